/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log as bytes: appending, checkpoints, export files, and the verifier that needs nothing
 * but a public key. Used by the controller (append), ros2ctl (verify) and tests. No I/O except
 * audit_file_*; no clock.
 *
 * leaf = SHA-256(0x00 || record bytes); chain_0 = 32 zero bytes; chain_n = SHA-256(chain_(n-1) ||
 * leaf_n). The tree over all leaves is RFC 6962; a checkpoint is a C2SP signed note over {origin,
 * size, root}.
 */
#ifndef ROS2_PROTO_AUDIT_AUDIT_H
#define ROS2_PROTO_AUDIT_AUDIT_H

#include "common/crypto.h"
#include "common/ids.h"
#include "common/merkle.h"
#include "proto/ros2/v1/audit.pb-c.h"

#define AUDIT_RECORD_MAX 16384 /* bytes of one serialised record */
#define AUDIT_NOTE_MAX   1024
#define AUDIT_VKEY_MAX   256
#define AUDIT_ORIGIN_MAX 128 /* with its NUL */
#define AUDIT_FORMAT     1

/* The end of a log, and of one tenant's history in it: all that is needed to append. Plain values,
 * copied freely; a zeroed struct is the empty log. */
struct audit_head {
	uint64_t seq;
	uint8_t chain[SHA256_LEN];
	struct merkle_acc tree;
};
struct audit_tenant_head {
	uint64_t seq;
	uint8_t prev[SHA256_LEN]; /* leaf of the tenant's last record */
};

struct audit_appended {
	uint64_t seq;
	uint8_t *bytes; /* malloc'd, the caller frees */
	size_t len;
	uint8_t chain[SHA256_LEN];
};
/* Fills format, seq, tenant_seq and tenant_prev of @rec (whatever they were), serialises it once
 * and moves both heads on. @tenant is NULL exactly when rec->tenant_uid is empty. The strings of
 * @rec stay the caller's. -EMSGSIZE above AUDIT_RECORD_MAX (heads unchanged), -ENOMEM. */
int audit_append(struct audit_head *head, struct audit_tenant_head *tenant,
                 Ros2__V1__AuditRecord *rec, struct audit_appended *ret, struct ros2_err *err);
/* Moves the heads over a record that is already stored (loading a log). -EBADMSG with words if it
 * does not fit. */
int audit_replay(struct audit_head *head, const void *bytes, size_t len,
                 const uint8_t chain[SHA256_LEN], struct ros2_err *err);

/* Parses a record with all limits checked (size, strings are UTF-8, lengths). The caller frees it
 * with ros2__v1__audit_record__free_unpacked. -EBADMSG. */
int audit_record_parse(const void *bytes, size_t len, Ros2__V1__AuditRecord **ret,
                       struct ros2_err *err);

/* ---- checkpoints: https://c2sp.org/tlog-checkpoint, https://c2sp.org/signed-note ---- */
/* @origin e.g. "ros2.test/audit/LINEAGE-HEX". Writes the note (text, NUL-terminated) to @out. */
int audit_checkpoint_sign(const char *origin, uint64_t size, const uint8_t root[SHA256_LEN],
                          const struct crypto_sign_key *key, char out[AUDIT_NOTE_MAX]);
/* "origin+hash+base64": what is given to auditors once, outside the log. */
int audit_vkey_format(const char *origin, const uint8_t pub[ED25519_PUB_LEN],
                      char out[AUDIT_VKEY_MAX]);
/* "name+hash+base64(alg || key)" as audit_vkey_format writes it; the name may hold no '+'. Behind
 * it only blanks and ends of line. -EINVAL. */
int audit_vkey_parse(const char *vkey, char ret_name[AUDIT_ORIGIN_MAX],
                     uint8_t ret_pub[ED25519_PUB_LEN], struct ros2_err *err);
struct audit_checkpoint {
	char origin[AUDIT_ORIGIN_MAX];
	uint64_t size;
	uint8_t root[SHA256_LEN];
};
/* Parses a note and checks its signature against one verifier key. -EBADMSG with words. */
int audit_checkpoint_open(const void *note, size_t len, const char *vkey,
                          struct audit_checkpoint *ret, struct ros2_err *err);

/* ---- the verifier: feed records in order, checkpoints after the records they cover ---- */
struct audit_verifier;
/* @vkey NULL: chain and tree are checked, signatures are not (the result says so): then whoever can
 * write the log can also rewrite it whole. -EINVAL when it is no verifier key. */
int audit_verifier_new(const char *vkey, struct audit_verifier **ret, struct ros2_err *err);
void audit_verifier_free(struct audit_verifier *v); /* takes NULL */
/* A checkpoint that was kept outside the log, given before the first record: the log must still
 * begin with the records it covers. The only thing that shows an end that was cut off or written
 * anew. -EBADMSG when it is none of this key. */
int audit_verifier_hold(struct audit_verifier *v, const void *note, size_t len,
                        struct ros2_err *err);
/* 0, or -EBADMSG: this is the first bad record; words say what is wrong with it (bytes do not match
 * the chain, gap in seq, tenant history broken, does not parse). After an error the verifier
 * accepts nothing more. */
int audit_verifier_record(struct audit_verifier *v, uint64_t seq, const void *bytes, size_t len,
                          const uint8_t chain[SHA256_LEN], struct ros2_err *err);
int audit_verifier_checkpoint(struct audit_verifier *v, const void *note, size_t len,
                              struct ros2_err *err);
struct audit_verdict {
	uint64_t records, checkpoints, tenants;
	uint64_t covered; /* records covered by the last good checkpoint */
	uint64_t held;    /* records of the checkpoint given to audit_verifier_hold; 0: none */
	bool signatures;  /* checked against a key */
	uint8_t root[SHA256_LEN];
	const char *note; /* the last good checkpoint, to be kept; NULL: none. Borrowed */
};
/* What was seen so far. */
void audit_verifier_result(const struct audit_verifier *v, struct audit_verdict *ret);
/* After the last record: 0, or -EBADMSG when the log is bad already, when it or its checkpoints end
 * before the held one, or when a key was given and nothing is signed by it. */
int audit_verifier_end(const struct audit_verifier *v, struct ros2_err *err);

/* ---- export files: "ROS2AUD1\n", then frames: u8 type 'R' or 'C', u32le length, [R: u64le seq, 32
 * bytes chain], bytes ---- */
struct audit_file;
/* Writes @path.partial first, for its owner only (0600), whatever it was before. -EBUSY: another
 * export writes it now; -ELOOP, -EEXIST: what has that name is no file of an export of ours (a
 * link, a pipe, of another user). */
int audit_file_create(const char *path, struct audit_file **ret, struct ros2_err *err);
int audit_file_write_record(struct audit_file *f, uint64_t seq, const void *bytes, size_t len,
                            const uint8_t chain[SHA256_LEN], struct ros2_err *err);
int audit_file_write_checkpoint(struct audit_file *f, const void *note, size_t len,
                                struct ros2_err *err);
/* It is there, whole and durably, when this says 0; on error what had that name before stays,
 * unless only the last step failed (fsx_write_atomic). Frees. */
int audit_file_finish(struct audit_file *f, struct ros2_err *err);
void audit_file_abort(struct audit_file *f);
/* Runs a fresh verifier over a file, to its end. On -EBADMSG *ret_bad_seq is the first bad record
 * (0: the file itself) and *ret_offset its place. */
int audit_file_verify(const char *path, struct audit_verifier *v, struct audit_verdict *ret,
                      uint64_t *ret_bad_seq, uint64_t *ret_offset, struct ros2_err *err);
/* Calls fn for each record; stops when it returns non-zero and returns that. */
int audit_file_each(const char *path,
                    int (*fn)(void *arg, uint64_t seq, const void *bytes, size_t len), void *arg,
                    struct ros2_err *err);
#endif

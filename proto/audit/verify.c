/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier. It re-hashes every record, follows the chain, the tree and each tenant's own chain,
 * and checks each checkpoint's signature and root against what it has hashed itself. It trusts
 * nothing it is fed. After the first error it accepts nothing more.
 */
#include "common/hash.h"
#include "common/util.h"
#include "proto/audit/audit_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct tenant_history {
	char uid[ROS2_UID_STR_LEN];
	struct audit_tenant_head head;
	UT_hash_handle hh;
};

struct audit_verifier {
	char *vkey; /* owned; NULL: signatures are not checked */
	struct audit_head head;
	struct tenant_history *tenants; /* owned */
	uint64_t checkpoints, covered;
	char note[AUDIT_NOTE_MAX + 1]; /* the last good checkpoint; "" before it */
	struct audit_checkpoint held;  /* size 0: none */
	bool failed;
};

int audit_verifier_new(const char *vkey, struct audit_verifier **ret, struct ros2_err *err)
{
	uint8_t pub[ED25519_PUB_LEN];
	char name[AUDIT_ORIGIN_MAX];
	int r = vkey ? audit_vkey_parse(vkey, name, pub, err) : 0;
	struct audit_verifier *v;

	if (r < 0)
		return r;
	v = calloc(1, sizeof(*v));
	if (v && vkey)
		v->vkey = strdup(vkey);
	if (!v || (vkey && !v->vkey)) {
		free(v);
		return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	*ret = v;
	return 0;
}

void audit_verifier_free(struct audit_verifier *v)
{
	struct tenant_history *t, *tmp;

	if (!v)
		return;
	HASH_ITER (hh, v->tenants, t, tmp) {
		HASH_DEL(v->tenants, t);
		free(t);
	}
	free(v->vkey);
	free(v);
}

static struct tenant_history *tenant_of(struct audit_verifier *v, const char *uid)
{
	struct tenant_history *t;

	HASH_FIND_STR(v->tenants, uid, t);
	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	snprintf(t->uid, sizeof(t->uid), "%s", uid);
	HASH_ADD_STR(v->tenants, uid, t);
	if (!HASH_TOOK(hh, t)) {
		free(t);
		return NULL;
	}
	return t;
}

/* The tenant's own history has no gap and no branch. */
static int check_tenant(struct audit_verifier *v, const Ros2__V1__AuditRecord *rec,
                        const uint8_t leaf[SHA256_LEN], struct ros2_err *err)
{
	struct ros2_uid uid;
	struct tenant_history *t;

	if (!*rec->tenant_uid) {
		if (rec->tenant_seq || rec->tenant_prev.len)
			return ros2_err_set(err, -EBADMSG,
			                    "record %" PRIu64
			                    ": a place in a tenant's history without a tenant",
			                    rec->seq);
		return 0;
	}
	if (ros2_uid_from_str(rec->tenant_uid, &uid) < 0)
		return ros2_err_set(err, -EBADMSG,
		                    "record %" PRIu64 ": tenant uid is not 32 hex digits",
		                    rec->seq);
	t = tenant_of(v, rec->tenant_uid);
	if (!t)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	if (rec->tenant_seq != t->head.seq + 1)
		return ros2_err_set(err, -EBADMSG,
		                    "record %" PRIu64
		                    ": tenant %s: expected its record number %" PRIu64
		                    ", found %" PRIu64,
		                    rec->seq, rec->tenant_uid, t->head.seq + 1, rec->tenant_seq);
	if (rec->tenant_prev.len != SHA256_LEN ||
	    memcmp(rec->tenant_prev.data, t->head.prev, SHA256_LEN))
		return ros2_err_set(err, -EBADMSG,
		                    "record %" PRIu64
		                    ": tenant %s: does not follow the tenant's last record",
		                    rec->seq, rec->tenant_uid);
	t->head.seq++;
	memcpy(t->head.prev, leaf, SHA256_LEN);
	return 0;
}

static int check_record(struct audit_verifier *v, uint64_t seq, const void *bytes, size_t len,
                        const uint8_t chain[SHA256_LEN], struct ros2_err *err)
{
	Ros2__V1__AuditRecord *rec = NULL;
	uint8_t leaf[SHA256_LEN];
	int r;

	if (seq != v->head.seq + 1)
		return ros2_err_set(err, -EBADMSG,
		                    "expected record %" PRIu64 ", found record %" PRIu64,
		                    v->head.seq + 1, seq);
	r = audit_replay_leaf(&v->head, bytes, len, chain, leaf, err);
	if (r < 0)
		return r;
	r = audit_record_parse(bytes, len, &rec, err);
	if (r < 0) {
		ros2_err_prefix(err, "record %" PRIu64, seq);
		return r;
	}
	if (rec->format != AUDIT_FORMAT)
		r = ros2_err_set(err, -EBADMSG,
		                 "record %" PRIu64 ": expected format %d, found %" PRIu32, seq,
		                 AUDIT_FORMAT, rec->format);
	else if (rec->seq != seq)
		r = ros2_err_set(err, -EBADMSG, "record %" PRIu64 ": says it is record %" PRIu64,
		                 seq, rec->seq);
	else
		r = check_tenant(v, rec, leaf, err);
	ros2__v1__audit_record__free_unpacked(rec, NULL);
	return r;
}

int audit_verifier_hold(struct audit_verifier *v, const void *note, size_t len,
                        struct ros2_err *err)
{
	int r = audit_checkpoint_open(note, len, v->vkey, &v->held, err);

	if (r < 0)
		ros2_err_prefix(err, "the kept checkpoint");
	return r;
}

/* The log has as many records as the held checkpoint: are they the same? */
static int check_held(const struct audit_verifier *v, struct ros2_err *err)
{
	uint8_t root[SHA256_LEN];

	if (!v->held.size || v->held.size != v->head.seq)
		return 0;
	merkle_acc_root(&v->head.tree, root);
	if (!memcmp(root, v->held.root, SHA256_LEN))
		return 0;
	return ros2_err_set(err, -EBADMSG,
	                    "records 1 to %" PRIu64
	                    " are not those of the kept checkpoint: the log was written anew",
	                    v->held.size);
}

int audit_verifier_record(struct audit_verifier *v, uint64_t seq, const void *bytes, size_t len,
                          const uint8_t chain[SHA256_LEN], struct ros2_err *err)
{
	int r = v->failed ? ros2_err_set(err, -EBADMSG, "the log is already known to be bad")
	                  : check_record(v, seq, bytes, len, chain, err);

	if (r == 0)
		r = check_held(v, err);
	v->failed = r < 0;
	return r;
}

static int check_checkpoint(struct audit_verifier *v, const void *note, size_t len,
                            struct ros2_err *err)
{
	struct audit_checkpoint cp;
	uint8_t root[SHA256_LEN];
	int r = audit_checkpoint_open(note, len, v->vkey, &cp, err);

	if (r < 0)
		return r;
	if (cp.size != v->head.seq)
		return ros2_err_set(err, -EBADMSG,
		                    "checkpoint of %" PRIu64
		                    " records stands after record %" PRIu64,
		                    cp.size, v->head.seq);
	merkle_acc_root(&v->head.tree, root);
	if (memcmp(root, cp.root, SHA256_LEN))
		return ros2_err_set(err, -EBADMSG,
		                    "checkpoint of %" PRIu64
		                    " records: its root is not the root of these records",
		                    cp.size);
	v->checkpoints++;
	v->covered = cp.size;
	memcpy(v->note, note, len);
	v->note[len] = '\0';
	return 0;
}

int audit_verifier_checkpoint(struct audit_verifier *v, const void *note, size_t len,
                              struct ros2_err *err)
{
	int r = v->failed ? ros2_err_set(err, -EBADMSG, "the log is already known to be bad")
	                  : check_checkpoint(v, note, len, err);

	v->failed = r < 0;
	return r;
}

void audit_verifier_result(const struct audit_verifier *v, struct audit_verdict *ret)
{
	*ret = (struct audit_verdict){
		.records = v->head.seq,
		.checkpoints = v->checkpoints,
		.tenants = HASH_COUNT(v->tenants),
		.covered = v->covered,
		.held = v->held.size,
		.signatures = v->vkey != NULL,
		.note = v->note[0] ? v->note : NULL,
	};
	merkle_acc_root(&v->head.tree, ret->root);
}

int audit_verifier_end(const struct audit_verifier *v, struct ros2_err *err)
{
	if (v->failed)
		return ros2_err_set(err, -EBADMSG, "the log is already known to be bad");
	if (v->head.seq < v->held.size)
		return ros2_err_set(err, -EBADMSG,
		                    "the log ends with record %" PRIu64
		                    ", the kept checkpoint covers %" PRIu64 ": its end was cut off",
		                    v->head.seq, v->held.size);
	/* Checkpoints are never removed: who hands out none that is as new wants an older one kept.
	 */
	if (v->covered < v->held.size)
		return ros2_err_set(err, -EBADMSG,
		                    "the kept checkpoint covers %" PRIu64
		                    " records, the last one of the log %" PRIu64
		                    ": later checkpoints were removed",
		                    v->held.size, v->covered);
	/* Chain and tree need no secret: without one signature all of it may have been made up. */
	if (v->vkey && !v->covered)
		return ros2_err_set(err, -EBADMSG,
		                    "no checkpoint covers any of %" PRIu64
		                    " records: nothing is signed (a new log is within a second)",
		                    v->head.seq);
	return 0;
}

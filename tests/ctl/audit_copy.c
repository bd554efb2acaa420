/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit-copy DIR RECORDS [FIRST]: writes DIR/log.audit, an export file as a controller would hand
 * it out, and DIR/audit.vkey, and prints one line "SEQ OFFSET LENGTH" per record: where its bytes
 * lie in the file, so that a script can damage exactly one of them. The last two records are not
 * yet covered by a checkpoint, as in a log at work; FIRST records are by an earlier one, too.
 */
#include "common/fsx.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ORIGIN      "ros2.test/audit"
#define MAGIC_LEN   9
#define RECORD_HEAD (1 + 4 + 8 + SHA256_LEN)
#define UNCOVERED   2

struct copy {
	struct audit_file *file;
	struct audit_head head;
	struct audit_tenant_head tenant[3];
	struct crypto_sign_key *key;
	uint64_t offset;
	struct ros2_err err;
};

static int write_record(struct copy *c, unsigned int i)
{
	static const char *const uids[] = {"", "00000000000000000000000000000001",
	                                   "00000000000000000000000000000002"};
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	struct audit_appended out;
	unsigned int t = i % ARRAY_SIZE(uids);
	int r;

	rec.actor = (char *)"spiffe://ros2.test/admin/root";
	rec.action = (char *)"grant.issue";
	rec.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	rec.tenant_uid = (char *)uids[t];
	rec.time_unix_ns = 1700000000000000000ull + i;
	r = audit_append(&c->head, t ? &c->tenant[t] : NULL, &rec, &out, &c->err);
	if (r < 0)
		return r;
	r = audit_file_write_record(c->file, out.seq, out.bytes, out.len, out.chain, &c->err);
	printf("%" PRIu64 " %" PRIu64 " %zu\n", out.seq, c->offset + RECORD_HEAD, out.len);
	c->offset += RECORD_HEAD + out.len;
	free(out.bytes);
	return r;
}

static int write_checkpoint(struct copy *c)
{
	uint8_t root[SHA256_LEN];
	char note[AUDIT_NOTE_MAX];
	int r;

	merkle_acc_root(&c->head.tree, root);
	r = audit_checkpoint_sign(ORIGIN, c->head.seq, root, c->key, note);
	r = r < 0 ? r : audit_file_write_checkpoint(c->file, note, strlen(note), &c->err);
	c->offset += 1 + 4 + strlen(note);
	return r;
}

static int write_key(struct copy *c, const char *dir)
{
	uint8_t pub[ED25519_PUB_LEN];
	char vkey[AUDIT_VKEY_MAX], path[4096];
	int r = crypto_sign_key_new(&c->key, &c->err);

	if (r < 0)
		return r;
	crypto_sign_key_public(c->key, pub);
	r = audit_vkey_format(ORIGIN, pub, vkey);
	snprintf(path, sizeof(path), "%s/audit.vkey", dir);
	return r < 0 ? r : fsx_write_atomic(path, vkey, strlen(vkey), 0644, &c->err);
}

static int write_log(struct copy *c, const char *dir, unsigned int n, unsigned int first)
{
	char path[4096];
	int r = write_key(c, dir);

	snprintf(path, sizeof(path), "%s/log.audit", dir);
	r = r < 0 ? r : audit_file_create(path, &c->file, &c->err);
	c->offset = MAGIC_LEN;
	for (unsigned int i = 0; i < n && r == 0; i++) {
		r = write_record(c, i);
		if (r == 0 && (i + 1 == first || i + 1 + UNCOVERED == n))
			r = write_checkpoint(c);
	}
	return r < 0 ? r : audit_file_finish(c->file, &c->err);
}

int main(int argc, char **argv)
{
	struct copy c = {.err = ROS2_ERR_INIT};
	unsigned int n = argc == 3 || argc == 4 ? (unsigned int)strtoul(argv[2], NULL, 10) : 0;
	unsigned int first = argc == 4 ? (unsigned int)strtoul(argv[3], NULL, 10) : 0;
	int r;

	if (n <= UNCOVERED) {
		fputs("usage: audit-copy DIR RECORDS [FIRST] (at least 3 records)\n", stderr);
		return 2;
	}
	r = write_log(&c, argv[1], n, first);
	if (r < 0)
		fprintf(stderr, "audit-copy: %s\n", c.err.msg);
	crypto_sign_key_free(c.key);
	return r < 0;
}

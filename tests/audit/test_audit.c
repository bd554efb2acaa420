/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log as an auditor meets it: what was appended verifies; whatever is changed afterwards
 * is found, and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/util.h"
#include "proto/audit/audit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ORIGIN  "ros2.test/audit"
#define RECORDS 12

struct log_copy {
	struct audit_appended rec[RECORDS];
	char note[AUDIT_NOTE_MAX];
	char vkey[AUDIT_VKEY_MAX];
	struct audit_head head;
};

static const char *const tenants[] = {"", "00000000000000000000000000000001",
                                      "00000000000000000000000000000002"};

static void append(struct log_copy *l, struct audit_tenant_head heads[3], int i)
{
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	int t = i % 3;
	struct ros2_err err = ROS2_ERR_INIT;

	rec.actor = (char *)"spiffe://ros2.test/admin/root";
	rec.action = (char *)"grant.issue";
	rec.tenant_uid = (char *)tenants[t];
	rec.time_unix_ns = 1000 + i;
	assert_int_equal(audit_append(&l->head, t ? &heads[t] : NULL, &rec, &l->rec[i], &err), 0);
}

static struct crypto_sign_key *build(struct log_copy *l)
{
	struct audit_tenant_head heads[3] = {0};
	struct crypto_sign_key *key = NULL;
	uint8_t root[SHA256_LEN], pub[ED25519_PUB_LEN];

	memset(l, 0, sizeof(*l));
	for (int i = 0; i < RECORDS; i++)
		append(l, heads, i);
	assert_int_equal(crypto_sign_key_new(&key, NULL), 0);
	merkle_acc_root(&l->head.tree, root);
	assert_int_equal(audit_checkpoint_sign(ORIGIN, RECORDS, root, key, l->note), 0);
	crypto_sign_key_public(key, pub);
	assert_int_equal(audit_vkey_format(ORIGIN, pub, l->vkey), 0);
	return key;
}

static void log_free(struct log_copy *l, struct crypto_sign_key *key)
{
	for (int i = 0; i < RECORDS; i++)
		free(l->rec[i].bytes);
	crypto_sign_key_free(key);
}

static int feed(struct audit_verifier *v, const struct log_copy *l, int i, struct ros2_err *err)
{
	return audit_verifier_record(v, l->rec[i].seq, l->rec[i].bytes, l->rec[i].len,
	                             l->rec[i].chain, err);
}

static void audit_verify__accepts_the_log_as_appended(void **state)
{
	struct log_copy l;
	struct crypto_sign_key *key = build(&l);
	struct audit_verifier *v = NULL;
	struct audit_verdict verdict;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(audit_verifier_new(l.vkey, &v, &err), 0);
	for (int i = 0; i < RECORDS; i++)
		assert_int_equal(feed(v, &l, i, &err), 0);
	assert_int_equal(audit_verifier_checkpoint(v, l.note, strlen(l.note), &err), 0);
	assert_int_equal(audit_verifier_end(v, &err), 0);
	audit_verifier_result(v, &verdict);
	assert_int_equal(verdict.records, RECORDS);
	assert_int_equal(verdict.covered, RECORDS);
	assert_int_equal(verdict.tenants, 2);
	assert_true(verdict.signatures);
	audit_verifier_free(v);
	log_free(&l, key);
}

static void audit_verify__names_the_record_of_every_changed_byte(void **state)
{
	struct log_copy l;
	struct crypto_sign_key *key = build(&l);

	for (int bad = 0; bad < RECORDS; bad++) {
		for (size_t at = 0; at < l.rec[bad].len; at++) {
			struct audit_verifier *v = NULL;
			int i, r = 0;

			l.rec[bad].bytes[at] ^= 0x20;
			assert_int_equal(audit_verifier_new(NULL, &v, NULL), 0);
			for (i = 0; i < RECORDS && r == 0; i++)
				r = feed(v, &l, i, NULL);
			assert_int_equal(r, -EBADMSG);
			assert_int_equal(i - 1, bad);
			audit_verifier_free(v);
			l.rec[bad].bytes[at] ^= 0x20;
		}
	}
	log_free(&l, key);
}

static void audit_verify__finds_a_missing_a_repeated_and_a_swapped_record(void **state)
{
	static const int orders[][3] = {{0, 2, 3}, {0, 0, 1}, {1, 0, 2}};
	struct log_copy l;
	struct crypto_sign_key *key = build(&l);

	for (size_t o = 0; o < ARRAY_SIZE(orders); o++) {
		struct audit_verifier *v = NULL;
		int r = 0;

		assert_int_equal(audit_verifier_new(NULL, &v, NULL), 0);
		for (int i = 0; i < 3 && r == 0; i++)
			r = feed(v, &l, orders[o][i], NULL);
		assert_int_equal(r, -EBADMSG);
		/* Nothing is accepted after the first error. */
		assert_int_equal(feed(v, &l, 0, NULL), -EBADMSG);
		audit_verifier_free(v);
	}
	log_free(&l, key);
}

/* A forger who rewrites the whole chain is caught by the signed root. */
static void audit_verify__finds_a_rewritten_history_by_the_checkpoint(void **state)
{
	struct log_copy real, forged;
	struct crypto_sign_key *key = build(&real), *other = NULL;
	struct audit_tenant_head heads[3] = {0};
	struct audit_verifier *v = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	memset(&forged, 0, sizeof(forged));
	for (int i = 0; i < RECORDS; i++)
		append(&forged, heads, (i + 3) % RECORDS);
	assert_int_equal(audit_verifier_new(real.vkey, &v, NULL), 0);
	for (int n = 0; n < RECORDS; n++)
		assert_int_equal(feed(v, &forged, (n + 3) % RECORDS, &err), 0);
	assert_int_equal(audit_verifier_checkpoint(v, real.note, strlen(real.note), &err),
	                 -EBADMSG);
	assert_non_null(strstr(err.msg, "root"));
	audit_verifier_free(v);
	log_free(&forged, other);
	log_free(&real, key);
}

static void audit_checkpoint__refuses_another_key_and_every_changed_byte(void **state)
{
	struct log_copy a, b;
	struct crypto_sign_key *ka = build(&a), *kb = build(&b);
	struct audit_checkpoint cp;
	size_t len = strlen(a.note);

	assert_int_equal(audit_checkpoint_open(a.note, len, a.vkey, &cp, NULL), 0);
	assert_int_equal(cp.size, RECORDS);
	assert_string_equal(cp.origin, ORIGIN);
	assert_int_equal(audit_checkpoint_open(a.note, len, b.vkey, &cp, NULL), -EBADMSG);
	for (size_t i = 0; i < len; i++) {
		a.note[i] ^= 1;
		assert_int_not_equal(audit_checkpoint_open(a.note, len, a.vkey, &cp, NULL), 0);
		a.note[i] ^= 1;
	}
	for (size_t i = 0; i < len; i++)
		assert_int_not_equal(audit_checkpoint_open(a.note, i, a.vkey, &cp, NULL), 0);
	log_free(&a, ka);
	log_free(&b, kb);
}

static long write_file(const struct log_copy *l, const char *path)
{
	struct audit_file *f = NULL;
	struct stat st;

	assert_int_equal(audit_file_create(path, &f, NULL), 0);
	for (int i = 0; i < RECORDS; i++)
		assert_int_equal(audit_file_write_record(f, l->rec[i].seq, l->rec[i].bytes,
		                                         l->rec[i].len, l->rec[i].chain, NULL),
		                 0);
	assert_int_equal(audit_file_write_checkpoint(f, l->note, strlen(l->note), NULL), 0);
	assert_int_equal(audit_file_finish(f, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void flip(const char *path, long at)
{
	FILE *f = fopen(path, "r+");
	int c;

	assert_non_null(f);
	fseek(f, at, SEEK_SET);
	c = fgetc(f);
	fseek(f, at, SEEK_SET);
	fputc(c ^ 1, f);
	fclose(f);
}

static int verify_file(const char *path, const char *vkey, struct audit_verdict *ret)
{
	struct audit_verifier *v = NULL;
	uint64_t seq, offset;
	int r;

	assert_int_equal(audit_verifier_new(vkey, &v, NULL), 0);
	r = audit_file_verify(path, v, ret, &seq, &offset, NULL);
	audit_verifier_free(v);
	return r;
}

static void audit_file__finds_every_changed_byte_of_a_copy(void **state)
{
	char path[] = "/tmp/ros2-audit-XXXXXX";
	int fd = mkstemp(path);
	struct log_copy l;
	struct crypto_sign_key *key = build(&l);
	struct audit_verdict verdict;
	long size = write_file(&l, path);

	assert_int_equal(verify_file(path, l.vkey, &verdict), 0);
	assert_int_equal(verdict.records, RECORDS);
	for (long at = 0; at < size; at++) {
		flip(path, at);
		assert_int_not_equal(verify_file(path, l.vkey, &verdict), 0);
		flip(path, at);
	}
	assert_int_equal(verify_file(path, l.vkey, &verdict), 0);
	close(fd);
	unlink(path);
	log_free(&l, key);
}

/* Of a name in a directory that others may write to. */
static void audit_file__writes_into_nobody_elses_file(void **state)
{
	char dir[] = "/tmp/ros2-audit-XXXXXX", path[64], partial[64], other[64];
	struct audit_file *f = NULL, *second = NULL;
	struct log_copy l;
	struct crypto_sign_key *key = build(&l);
	struct stat st;
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/copy", dir);
	snprintf(partial, sizeof(partial), "%s/copy.partial", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	fd = open(other, O_CREAT | O_WRONLY, 0644);
	assert_int_equal(write(fd, "kept", 4), 4);
	close(fd);
	assert_int_equal(symlink(other, partial), 0);
	assert_int_equal(audit_file_create(path, &f, NULL), -ELOOP);
	unlink(partial);
	assert_int_equal(link(other, partial), 0);
	assert_int_equal(audit_file_create(path, &f, NULL), -EEXIST);
	unlink(partial);
	assert_int_equal(mkfifo(partial, 0600), 0);
	assert_int_equal(audit_file_create(path, &f, NULL), -ENXIO);
	unlink(partial);
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(st.st_size, 4);
	/* A plain file of somebody else, who could read the log in it; only root can make one. */
	if (geteuid() == 0) {
		fd = open(partial, O_CREAT | O_WRONLY, 0644);
		assert_int_equal(fchown(fd, 65534, 65534), 0);
		assert_int_equal(audit_file_create(path, &f, NULL), -EEXIST);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0644);
		close(fd);
		unlink(partial);
	}
	/* The control: what a killed export left is written anew, by one at a time. */
	fd = open(partial, O_CREAT | O_WRONLY, 0644);
	assert_int_equal(write(fd, "left", 4), 4);
	close(fd);
	assert_int_equal(audit_file_create(path, &f, NULL), 0);
	assert_int_equal(audit_file_create(path, &second, NULL), -EBUSY);
	audit_file_abort(f);
	assert_true(write_file(&l, path) > 4);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	unlink(path);
	unlink(other);
	assert_int_equal(rmdir(dir), 0);
	log_free(&l, key);
}

static void audit_append__refuses_a_record_that_is_too_long_and_keeps_the_heads(void **state)
{
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	AUTO_FREE char *reason = calloc(1, AUDIT_RECORD_MAX + 1);
	struct audit_head head = {0}, before = {0};
	struct audit_appended out;

	memset(reason, 'x', AUDIT_RECORD_MAX);
	rec.reason = reason;
	assert_int_equal(audit_append(&head, NULL, &rec, &out, NULL), -EMSGSIZE);
	assert_memory_equal(&head, &before, sizeof(head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(audit_verify__accepts_the_log_as_appended),
		cmocka_unit_test(audit_verify__names_the_record_of_every_changed_byte),
		cmocka_unit_test(audit_verify__finds_a_missing_a_repeated_and_a_swapped_record),
		cmocka_unit_test(audit_verify__finds_a_rewritten_history_by_the_checkpoint),
		cmocka_unit_test(audit_checkpoint__refuses_another_key_and_every_changed_byte),
		cmocka_unit_test(audit_file__finds_every_changed_byte_of_a_copy),
		cmocka_unit_test(audit_file__writes_into_nobody_elses_file),
		cmocka_unit_test(
			audit_append__refuses_a_record_that_is_too_long_and_keeps_the_heads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

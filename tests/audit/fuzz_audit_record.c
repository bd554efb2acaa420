/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as an audit record, and as the frames of an export file: as they are, and cut into records
 * that follow each other, with seqs and chain made right, so that mutations reach what lies behind
 * the chain. A record that is accepted packs to one that is accepted, too; a file that verifies
 * hands out as many records as the verdict says; a refusal names a place within the file.
 */
#include "proto/audit/audit_priv.h"
#include "tests/fuzz/fuzz.h"
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC       "ROS2AUD1\n"
#define MAGIC_LEN   9u
#define RECORD_HEAD (1u + 4u + 8u + SHA256_LEN)

static void as_record(const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__AuditRecord *rec = NULL, *again = NULL;
	int r = audit_record_parse(data, size, &rec, &err);
	uint8_t *packed;
	size_t n;

	if (r < 0) {
		must_refuse(r, &err);
		return;
	}
	n = ros2__v1__audit_record__get_packed_size(rec);
	packed = malloc(n + 1);
	must(packed && ros2__v1__audit_record__pack(rec, packed) == n);
	r = audit_record_parse(packed, n, &again, &err);
	must(r == 0 || n > AUDIT_RECORD_MAX);
	if (r == 0) {
		must(again->seq == rec->seq && !strcmp(again->tenant_uid, rec->tenant_uid));
		ros2__v1__audit_record__free_unpacked(again, NULL);
	}
	ros2__v1__audit_record__free_unpacked(rec, NULL);
	free(packed);
}

static int count(void *arg, uint64_t seq, const void *bytes, size_t len)
{
	uint64_t *n = arg;

	must(len <= AUDIT_RECORD_MAX && (bytes || !len));
	return ++*n == UINT64_MAX;
}

static void verify(const char *path, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct audit_verifier *v = NULL;
	struct audit_verdict verdict;
	uint64_t seq, offset, n = 0;
	int r;

	must(audit_verifier_new(NULL, &v, NULL) == 0);
	r = audit_file_verify(path, v, &verdict, &seq, &offset, &err);
	audit_verifier_free(v);
	if (r < 0) {
		must_refuse(r, &err);
		must(offset <= size && seq <= size / RECORD_HEAD + 1);
		r = audit_file_each(path, count, &n, &err);
		must(n <= size / RECORD_HEAD && n + 1 >= seq);
		return;
	}
	must(audit_file_each(path, count, &n, &err) == 0 && n == verdict.records);
	must(!verdict.signatures && verdict.covered <= n && verdict.tenants <= n);
}

/* A file of memory; the parts are written one after the other. */
static const char *the_file(const void *p, size_t n, size_t at)
{
	static char path[64];
	static int fd = -1;

	if (fd < 0) {
		fd = memfd_create("export", 0);
		must(fd >= 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	}
	must(pwrite(fd, p, n, (off_t)at) == (ssize_t)n && ftruncate(fd, (off_t)(at + n)) == 0);
	return path;
}

static void as_file(const uint8_t *data, size_t size)
{
	the_file(MAGIC, MAGIC_LEN, 0);
	verify(the_file(data, size, MAGIC_LEN), MAGIC_LEN + size);
}

/* {u8 length, record} ... */
static void as_chained_file(const uint8_t *data, size_t size)
{
	uint8_t chain[SHA256_LEN] = {0}, leaf[SHA256_LEN], head[RECORD_HEAD] = {'R'};
	size_t at = MAGIC_LEN;
	const char *path = the_file(MAGIC, MAGIC_LEN, 0);
	uint8_t seq = 0;

	while (size > 1 && seq < 100) {
		size_t len = data[0] < size - 1 ? data[0] : size - 1;

		merkle_leaf(data + 1, len, leaf);
		audit_chain_next(chain, leaf, chain);
		head[1] = (uint8_t)len;
		head[2] = (uint8_t)(len >> 8);
		head[5] = ++seq;
		memcpy(head + 13, chain, SHA256_LEN);
		the_file(head, sizeof(head), at);
		the_file(data + 1, len, at + sizeof(head));
		at += sizeof(head) + len;
		data += len + 1;
		size -= len + 1;
	}
	verify(path, at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	as_record(data, size);
	as_file(data, size);
	as_chained_file(data, size);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's program as somebody outside this tree would write it: includes nothing but <ros2.h>
 * and the C library. Writes and reads back blocks through plain pwrite and pread, compares them,
 * makes the last one zeros, reads that, too, gives the first one up, prints what it did, and keeps
 * its session until its input ends, so that a test can look at the session meanwhile. outside
 * NAMESPACE FILE BLOCK-BYTES WRITES READS */
#include <ros2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ros2_err err;

static int fail(const char *what)
{
	fprintf(stderr, "outside: %s: %s: %s\n", what, ros2_status_to_str(err.status), err.msg);
	return 1;
}

static void fill(unsigned char *p, size_t n, unsigned long block)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 31 + block * 7 + (i >> 8));
}

static int work(struct ros2_file *f, size_t bs, unsigned long writes, unsigned long reads)
{
	unsigned char *want = malloc(bs), *got = malloc(bs);
	int rc = want && got ? 0 : 1;

	for (unsigned long i = 0; i < writes && !rc; i++) {
		fill(want, bs, i);
		if (ros2_pwrite(f, want, bs, i * bs, &err) != (int64_t)bs)
			rc = fail("write");
	}
	for (unsigned long i = 0; i < reads && !rc; i++) {
		unsigned long block = i % writes;

		fill(want, bs, block);
		if (ros2_pread(f, got, bs, block * bs, &err) != (int64_t)bs)
			rc = fail("read");
		else if (memcmp(want, got, bs) != 0) {
			fprintf(stderr, "outside: block %lu is not what was written\n", block);
			rc = 1;
		}
	}
	free(want);
	free(got);
	return rc;
}

static int clear(struct ros2_file *f, size_t bs, unsigned long last)
{
	unsigned char *got = malloc(bs);
	int rc = got ? 0 : 1;

	if (!rc && ros2_zero(f, bs, last * bs, &err))
		rc = fail("zero");
	if (!rc && ros2_pread(f, got, bs, last * bs, &err) != (int64_t)bs)
		rc = fail("read of zeros");
	for (size_t i = 0; i < bs && !rc; i++)
		if (got[i]) {
			fprintf(stderr, "outside: byte %zu is %u and not zero\n", i, got[i]);
			rc = 1;
		}
	if (!rc && ros2_discard(f, bs, 0, &err))
		rc = fail("discard");
	free(got);
	return rc;
}

static int run(struct ros2_session *s, char **argv)
{
	size_t bs = strtoul(argv[3], NULL, 10);
	unsigned long writes = strtoul(argv[4], NULL, 10), reads = strtoul(argv[5], NULL, 10);
	struct ros2_mount *m;
	struct ros2_file *f;

	if (ros2_mount(s, argv[1], &m, &err))
		return fail("mount");
	if (ros2_open(m, argv[2], ROS2_O_RDWR | ROS2_O_CREAT | ROS2_O_TRUNC, 0644, &f, &err))
		return fail("open");
	if (work(f, bs, writes, reads) || clear(f, bs, writes - 1))
		return 1;
	reads++;
	printf("{\"write_bytes\":%lu,\"write_ops\":%lu,\"read_bytes\":%lu,\"read_ops\":%lu,"
	       "\"cleared_bytes\":%lu,\"clear_ops\":2}\n",
	       (unsigned long)bs * writes, writes, (unsigned long)bs * reads, reads,
	       (unsigned long)bs * 2);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return ros2_close(f, &err) ? fail("close") : 0;
}

int main(int argc, char **argv)
{
	struct ros2_client_opts opts;
	struct ros2_client *c = NULL;
	struct ros2_session *s = NULL;
	int rc = 1;

	if (argc != 6 || strtoul(argv[3], NULL, 10) == 0 || strtoul(argv[4], NULL, 10) == 0) {
		fprintf(stderr, "usage: outside NAMESPACE FILE BLOCK-BYTES WRITES READS\n");
		return 2;
	}
	if (ros2_client_opts_from_env(&opts, &err) || ros2_connect(&opts, &c, &err))
		return fail("connect");
	if (ros2_session_open(c, NULL, &s, &err))
		fail("session");
	else
		rc = run(s, argv);
	ros2_session_close(s);
	ros2_disconnect(c);
	return rc;
}

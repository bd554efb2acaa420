// SPDX-License-Identifier: Apache-2.0
/*
 * A tenant's program that expects to be killed: sessions, a file, numbered blocks, flushes, reading
 * back; what it was promised goes to its notes (notes.h) before it goes on. Named refusals are part
 * of its life, it tries again; a broken promise ends it with exit code 3. With --check it only
 * compares a file of the engine with the notes, while nobody writes.
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/client/ros2.h"
#include "tests/soak/notes.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define DEPTH     8
#define RUN       16 /* blocks in one write */
#define RETRY_MS  30
#define SHARED    (4u << 20) /* over shm: what is in flight, and the library's part */
#define EXIT_LOST 3

struct client {
	struct notes *n;
	const char *file;
	size_t block;
	uint64_t blocks, random;
	uint32_t reconnect_ms;
	enum ros2_transport transport;
	int pause_ms;
	struct ros2_client *lib;
	struct ros2_session *s;
	struct ros2_mount *m;
	struct ros2_file *f;
	uint8_t *buf;
	struct notes_session *noted; /* of the session now */
};

static volatile sig_atomic_t stopping;

static void on_term(int sig)
{
	stopping = 1;
}

static uint64_t rnd(struct client *c, uint64_t below)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random % below;
}

static void broken(struct client *c, const char *words)
{
	notes_fail(c->n, words);
	fprintf(stderr, "%s: %s\n", c->file, words);
	_exit(EXIT_LOST); /* nothing is tidied up: that would only be more to explain */
}

/* The session now; a reconnect of the library makes another one. */
static void note_session(struct client *c, uint32_t files, uint32_t regions)
{
	struct ros2_session_info info;
	uint64_t i = c->n->n_sessions;

	ros2_session_info(c->s, &info);
	if (c->noted && !memcmp(c->noted->uid, info.session_uid, 16)) {
		c->noted->files += files;
		c->noted->regions += regions;
		return;
	}
	if (i == NOTES_SESSIONS)
		broken(c, "the notes have no room for another session");
	c->noted = &c->n->session[i];
	memcpy(c->noted->uid, info.session_uid, 16);
	__atomic_store_n(&c->n->n_sessions, i + 1, __ATOMIC_RELEASE);
}

/* At least one operation submitted at @submit_ns in the session of @uid has succeeded. */
static void note_success(struct client *c, uint64_t submit_ns, const uint8_t uid[16])
{
	struct notes_span *sp = &c->n->span[c->n->n_spans % NOTES_SPANS];

	if (c->n->n_spans == NOTES_SPANS)
		broken(c, "the notes have no room for another span");
	*sp = (struct notes_span){submit_ns, clock_boottime_ns()};
	__atomic_store_n(&c->n->n_spans, c->n->n_spans + 1, __ATOMIC_RELEASE);
	note_session(c, 0, 0);
	if (!memcmp(c->noted->uid, uid, 16))
		c->noted->last_ok_submit_ns = submit_ns;
}

static void check_blocks(struct client *c, const uint8_t *p, uint64_t first, uint64_t count)
{
	char words[256];

	for (uint64_t i = 0; i < count; i++)
		if (!notes_check(c->n, p + i * c->block, c->block, first + i, words))
			broken(c, words);
}

/* Nothing of ours is in flight. Blocks beyond the end of the file read as nothing. */
static int read_back(struct client *c, uint64_t first, uint64_t count)
{
	struct ros2_session_info info;
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t submit = clock_boottime_ns();
	size_t len = count * c->block;
	ssize_t r;

	ros2_session_info(c->s, &info);
	r = ros2_pread(c->f, c->buf, len, first * c->block, &err);
	if (r < 0)
		return (int)r;
	memset(c->buf + r, 0, len - (size_t)r);
	check_blocks(c, c->buf, first, count);
	c->n->reads++;
	note_success(c, submit, info.session_uid);
	return 0;
}

/* One write in each of DEPTH stripes, so that no two overlap. */
static int prepare(struct client *c, unsigned slot, uint64_t first[], uint64_t count[])
{
	uint64_t stripe = c->blocks / DEPTH;
	uint8_t *p = c->buf + slot * RUN * c->block;
	struct ros2_err err = ROS2_ERR_INIT;

	count[slot] = 1 + rnd(c, RUN);
	first[slot] = slot * stripe + rnd(c, stripe - count[slot] + 1);
	for (uint64_t i = 0; i < count[slot]; i++) {
		uint64_t b = first[slot] + i;

		notes_fill(p + i * c->block, c->block, c->n->file_id, b, ++c->n->next_seq);
		c->n->block[b].issued = c->n->next_seq;
	}
	return ros2_prep_write(c->f, p, (uint32_t)(count[slot] * c->block), first[slot] * c->block,
	                       slot, &err);
}

static int take(struct client *c, const struct ros2_completion *d, const uint64_t first[],
                const uint64_t count[])
{
	uint64_t slot = d->tag;

	if (d->status != ROS2_OK) {
		c->n->unknown += d->status == ROS2_OUTCOME_UNKNOWN;
		return -EIO;
	}
	if (d->result != (int64_t)(count[slot] * c->block))
		broken(c, "a write was short");
	for (uint64_t i = 0; i < count[slot]; i++)
		c->n->block[first[slot] + i].written = c->n->block[first[slot] + i].issued;
	c->n->writes++;
	return 0;
}

static int write_batch(struct client *c)
{
	uint64_t first[DEPTH], count[DEPTH], submit;
	struct ros2_completion done[DEPTH];
	struct ros2_session_info info;
	struct ros2_err err = ROS2_ERR_INIT;
	int n, ok = 0, taken = 0, r = 0;

	for (unsigned i = 0; i < DEPTH && !r; i++)
		r = prepare(c, i, first, count);
	if (r)
		return r;
	ros2_session_info(c->s, &info);
	submit = clock_boottime_ns();
	r = ros2_submit(c->s, &err);
	while (taken < DEPTH && r >= 0) {
		n = ros2_wait(c->s, done, 1, DEPTH, 60000, &err);
		if (n <= 0)
			return n ? n : -ETIMEDOUT;
		for (int i = 0; i < n; i++)
			ok += !take(c, &done[i], first, count);
		taken += n;
	}
	if (ok)
		note_success(c, submit, info.session_uid);
	return r < 0 ? r : ok < DEPTH ? -EIO : 0;
}

static int flush(struct client *c)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = ros2_flush(c->f, &err);

	if (r < 0)
		return r;
	for (uint64_t i = 0; i < c->blocks; i++)
		c->n->block[i].flushed = c->n->block[i].written;
	c->n->flushes++;
	return 0;
}

static int open_all(struct client *c, struct ros2_err *err)
{
	const struct ros2_session_opts so = {.depth = DEPTH,
	                                     .reconnect_ms = c->reconnect_ms,
	                                     .transport = c->transport,
	                                     .shm_bytes = SHARED};
	void *buf = NULL;
	int r = ros2_session_open(c->lib, &so, &c->s, err);

	if (r < 0)
		return r;
	c->noted = NULL;
	note_session(c, 0, 0);
	r = ros2_mount(c->s, "data", &c->m, err);
	if (!r)
		r = ros2_open(c->m, c->file, ROS2_O_RDWR | ROS2_O_CREAT, 0644, &c->f, err);
	if (!r)
		note_session(c, 1, 0);
	if (!r)
		r = ros2_buf_alloc(c->s, DEPTH * RUN * c->block, &buf, err);
	if (!r)
		note_session(c, 0, 1);
	c->buf = buf;
	return r;
}

static int one_session(struct client *c, struct ros2_err *err)
{
	int r = open_all(c, err);

	for (uint64_t b = 0; !r && b < c->blocks; b += DEPTH * RUN)
		r = read_back(c, b, MIN((uint64_t)DEPTH * RUN, c->blocks - b));
	while (!r && !stopping) {
		r = write_batch(c);
		if (!r && rnd(c, 2))
			r = flush(c);
		if (!r)
			r = read_back(c, rnd(c, c->blocks - RUN), RUN);
		poll(NULL, 0, c->pause_ms);
	}
	ros2_session_close(c->s);
	c->s = NULL;
	c->buf = NULL;
	return r;
}

static int run(struct client *c)
{
	struct ros2_client_opts o;
	struct ros2_err err = ROS2_ERR_INIT;

	if (ros2_client_opts_from_env(&o, &err) || ros2_connect(&o, &c->lib, &err)) {
		fprintf(stderr, "%s: %s\n", c->file, err.msg);
		return 1;
	}
	while (!stopping) {
		memset(&err, 0, sizeof(err));
		if (one_session(c, &err))
			c->n->refused++;
		if (err.code)
			fprintf(stderr, "%s: %s\n", ros2_status_to_str(err.status), err.msg);
		poll(NULL, 0, RETRY_MS);
	}
	ros2_disconnect(c->lib);
	return 0;
}

/* Reads what the engine has under the notes' feet: for the time between the death of an agent and
 * its restart. A file that was never made is good when nothing of it was acknowledged. */
static int check_file(struct client *c, const char *path)
{
	static uint8_t block[NOTES_BLOCK_SZ];
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char words[256];

	for (uint64_t i = 0; i < c->blocks; i++) {
		ssize_t r = fd < 0 ? 0 : pread(fd, block, c->block, (off_t)(i * c->block));

		memset(block + MAX(r, 0), 0, c->block - (size_t)MAX(r, 0));
		if (!notes_check(c->n, block, c->block, i, words)) {
			fprintf(stderr, "%s: %s\n", path, words);
			return EXIT_LOST;
		}
	}
	return 0;
}

static int tally(const struct notes *n)
{
	printf("sessions=%" PRIu64 " batches=%" PRIu64 " writes=%" PRIu64 " reads=%" PRIu64
	       " flushes=%" PRIu64 " unknown=%" PRIu64 " refused=%" PRIu64 "\n",
	       n->n_sessions, n->n_spans, n->writes, n->reads, n->flushes, n->unknown, n->refused);
	return 0;
}

static bool sizes_fit(const struct client *c)
{
	return c->block <= NOTES_BLOCK_SZ && c->block % 64 == 0 && c->blocks <= NOTES_BLOCKS &&
	       c->blocks >= DEPTH * RUN;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"notes", 1, NULL, 'n'},
		{"file", 1, NULL, 'f'},
		{"block", 1, NULL, 'b'},
		{"blocks", 1, NULL, 'c'},
		{"id", 1, NULL, 'i'},
		{"reconnect", 1, NULL, 'r'},
		{"pause-ms", 1, NULL, 'p'},
		{"check", 1, NULL, 'k'},
		{"tally", 0, NULL, 't'},
		{"shm", 0, NULL, 's'},
		{0},
	};
	struct client c = {.block = 4096,
	                   .blocks = 512,
	                   .reconnect_ms = UINT32_MAX,
	                   .transport = ROS2_TRANSPORT_TCP,
	                   .pause_ms = 2};
	const char *notes = NULL, *check = NULL;
	bool count = false;
	uint64_t id = 1;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'n':
			notes = optarg;
			break;
		case 'f':
			c.file = optarg;
			break;
		case 'b':
			c.block = strtoul(optarg, NULL, 10);
			break;
		case 'c':
			c.blocks = strtoul(optarg, NULL, 10);
			break;
		case 'i':
			id = strtoul(optarg, NULL, 10);
			break;
		case 'r':
			c.reconnect_ms = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'p':
			c.pause_ms = atoi(optarg);
			break;
		case 'k':
			check = optarg;
			break;
		case 't':
			count = true;
			break;
		case 's':
			c.transport = ROS2_TRANSPORT_SHM;
			break;
		default:
			return 2;
		}
	}
	if (!notes || (!c.file && !check && !count) || !sizes_fit(&c))
		return 2;
	c.n = notes_open(notes, id);
	if (!c.n)
		return 1;
	if (count)
		return tally(c.n);
	c.random = clock_unix_ns() | 1;
	signal(SIGTERM, on_term);
	signal(SIGPIPE, SIG_IGN);
	return check ? check_file(&c, check) : run(&c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* revoked.h: a thread for each connection. */
#include "tests/nvmf/revoked.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNS        6u /* one after another a writer and a reader */
#define LENGTH       (512u << 10)
#define UNDER_LOAD   3u /* answers of each */
#define ANSWER_MS    500
#define LATE_MS      2000u
#define BEGIN_MS     60000u
#define STAMPS       64u  /* what is written before: 1 .. STAMPS */
#define MARK_OFFERED 0xa5 /* .. and STAMPS - 1 more, in turns: two looks at the disk see others */
#define MARK_GIVEN   0x5a

struct conn {
	struct revoked *r;
	struct peer_session s;
	struct peer *p;
	pthread_t thread;
	uint32_t window, index;
	bool writes, has_thread;
	_Atomic bool asked;
	_Atomic uint64_t answers;
	_Atomic int end; /* why it asks no more */
};

struct revoked {
	struct site *site;
	int disk;
	uint8_t *before, *after; /* of the disk */
	_Atomic bool late, stop;
	struct revoked_result is;
	struct conn conns[CONNS];
};

static uint64_t count_other(const uint8_t *at, size_t n, uint8_t than)
{
	uint64_t other = 0;

	for (size_t i = 0; i < n; i++)
		other += at[i] != than;
	return other;
}

/* Past the page cache, which the target does not write to. */
static int look_at_disk(const struct revoked *r, uint8_t *ret)
{
	ssize_t n = pread(r->disk, ret, REVOKED_VOLUME, 0);

	return n < 0 ? -errno : n == REVOKED_VOLUME ? 0 : -EIO;
}

/* ---- a connection ---- */

static int come(struct conn *c)
{
	struct site *site = c->r->site;
	struct wire_header h = {.opcode = WIRE_WINDOW, .offset = PEER_TARGET};
	int r = site->session(site, ALPHA, &c->s);

	if (!r)
		r = peer_open(&c->p, c->s.data);
	if (!r)
		r = peer_join(c->p, &c->s);
	if (!r)
		r = site->prepare(site, ALPHA, &c->s, (uintptr_t)peer_target(c->p));
	if (!r)
		r = peer_bind(c->p, &c->window);
	h.key = c->s.key;
	h.generation = c->s.generation;
	h.address = (uintptr_t)peer_target(c->p);
	h.handle = c->window;
	return r ? r : peer_send(c->p, &h, NULL);
}

/* Readers read what writers wrote. */
static int ask(struct conn *c, uint64_t id)
{
	struct wire_header h = {.opcode = c->writes ? WIRE_WRITE : WIRE_READ,
	                        .request_id = id,
	                        .handle = c->s.handle,
	                        .address = (uintptr_t)peer_target(c->p),
	                        .offset = (uint64_t)(c->index / 2) * LENGTH,
	                        .length = LENGTH,
	                        .key = c->s.key,
	                        .generation = c->s.generation};

	if (c->writes)
		memset(peer_target(c->p),
		       c->r->late ? MARK_OFFERED + (int)(id % STAMPS) : 1 + (int)(id % STAMPS),
		       LENGTH);
	else if (!c->r->late)
		memset(peer_target(c->p), MARK_GIVEN, LENGTH);
	return peer_send(c->p, &h, NULL);
}

/* The end of a request. Where none comes it asks again: a revoked tenant gives nothing up. */
static int answer(struct conn *c, uint64_t id)
{
	struct wire_header h;
	int r;

	for (;;) {
		r = peer_receive(c->p, &h, ANSWER_MS);
		if (r == -ETIMEDOUT && !c->r->stop) {
			if (c->r->late)
				return ask(c, id);
			continue;
		}
		if (r)
			return r;
		if (h.request_id != id)
			continue;
		return h.opcode == WIRE_COMPLETE && h.status == ROS2_OK ? 1 : -EPROTO;
	}
}

static void *work(void *arg)
{
	struct conn *c = arg;
	int r = 0;

	for (uint64_t id = 1; r >= 0 && !c->r->stop; id++) {
		r = ask(c, id);
		c->asked = r == 0;
		if (!r)
			r = answer(c, id);
		if (r == 1) {
			c->asked = false;
			c->answers++;
		}
	}
	c->end = r;
	return NULL;
}

/* ---- all of them ---- */

static uint64_t answers_of(const struct revoked *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < CONNS; i++)
		n += r->conns[i].answers;
	return n;
}

static int under_load(struct revoked *r)
{
	for (uint32_t waited = 0, ready = 0; waited < BEGIN_MS; waited += 10, ready = 0) {
		for (uint32_t i = 0; i < CONNS; i++) {
			if (r->conns[i].end < 0)
				return r->conns[i].end;
			ready += r->conns[i].answers >= UNDER_LOAD;
		}
		if (ready == CONNS)
			return 0;
		/* poll: counters of other threads */
		usleep(10000);
	}
	return -ETIMEDOUT;
}

static int begin(struct revoked *r)
{
	int rc = 0;

	for (uint32_t i = 0; i < CONNS && !rc; i++) {
		r->conns[i].r = r;
		r->conns[i].index = i;
		r->conns[i].writes = i % 2 == 0;
		rc = come(&r->conns[i]);
	}
	for (uint32_t i = 0; i < CONNS && !rc; i++) {
		rc = -pthread_create(&r->conns[i].thread, NULL, work, &r->conns[i]);
		r->conns[i].has_thread = !rc;
	}
	return rc ? rc : under_load(r);
}

int revoked_begin(struct site *site, const char *disk, struct revoked **ret)
{
	struct revoked *r = calloc(1, sizeof(*r));
	int rc = -ENOMEM;

	*ret = r;
	if (!r)
		return rc;
	r->site = site;
	r->before = aligned_alloc(4096, REVOKED_VOLUME);
	r->after = aligned_alloc(4096, REVOKED_VOLUME);
	r->disk = open(disk, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (r->disk < 0)
		rc = -errno;
	else if (r->before && r->after)
		rc = begin(r);
	if (rc)
		printf("# the load does not begin: %s\n", strerror(-rc));
	return rc;
}

/* In the memory of readers, since it was marked. */
static uint64_t came(const struct revoked *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < CONNS; i++)
		if (!r->conns[i].writes)
			n += count_other(peer_target(r->conns[i].p), PEER_TARGET, MARK_GIVEN);
	return n;
}

static uint64_t changed(const struct revoked *r)
{
	uint64_t n = 0;

	for (size_t i = 0; i < REVOKED_VOLUME; i++)
		n += r->after[i] != r->before[i];
	return n;
}

int revoked_receipt(struct revoked *r)
{
	r->late = true;
	for (uint32_t i = 0; i < CONNS; i++)
		memset(peer_target(r->conns[i].p), r->conns[i].writes ? MARK_OFFERED : MARK_GIVEN,
		       PEER_TARGET);
	for (uint32_t i = 0; i < CONNS; i++)
		r->is.in_flight += r->conns[i].asked;
	return look_at_disk(r, r->before);
}

int revoked_drained(struct revoked *r)
{
	int rc;

	r->is.draining = came(r);
	for (uint32_t i = 0; i < CONNS; i++)
		if (!r->conns[i].writes)
			memset(peer_target(r->conns[i].p), MARK_GIVEN, PEER_TARGET);
	rc = look_at_disk(r, r->after);
	r->is.written = changed(r);
	memcpy(r->before, r->after, REVOKED_VOLUME);
	/* By now each thread has looked at what had come. */
	r->is.answers = answers_of(r);
	return rc;
}

int revoked_look(struct revoked *r, struct revoked_result *ret)
{
	int rc;

	/* time: for what comes late, which nothing tells of */
	usleep(LATE_MS * 1000);
	rc = look_at_disk(r, r->after);
	r->is.late = answers_of(r) - r->is.answers;
	r->is.landed = came(r);
	r->is.changed = changed(r);
	for (size_t i = 0; i < REVOKED_VOLUME; i++)
		r->is.marks += r->after[i] >= MARK_OFFERED && r->after[i] < MARK_OFFERED + STAMPS;
	*ret = r->is;
	return rc;
}

void revoked_end(struct revoked *r)
{
	if (!r)
		return;
	r->stop = true;
	for (uint32_t i = 0; i < CONNS; i++)
		if (r->conns[i].has_thread)
			pthread_join(r->conns[i].thread, NULL);
	for (uint32_t i = 0; i < CONNS; i++)
		peer_close(r->conns[i].p);
	if (r->disk >= 0)
		close(r->disk);
	free(r->before);
	free(r->after);
	free(r);
}

void revoked_print(const struct revoked_result *is)
{
	printf("{\"answers\":%llu,\"in_flight\":%u,\"late\":%llu,\"draining\":%llu,\"written\":%"
	       "llu,"
	       "\"landed\":%llu,\"marks\":%llu,\"changed\":%llu}\n",
	       (unsigned long long)is->answers, is->in_flight, (unsigned long long)is->late,
	       (unsigned long long)is->draining, (unsigned long long)is->written,
	       (unsigned long long)is->landed, (unsigned long long)is->marks,
	       (unsigned long long)is->changed);
	fflush(stdout);
}

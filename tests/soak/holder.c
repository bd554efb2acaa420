// SPDX-License-Identifier: Apache-2.0
/*
 * A tenant that never renews and uses its keys when they are over: libros2 stops at the end of a
 * lease by itself, so only who speaks wire.h by hand shows whether the agent does. Each session has
 * one lease; within its time there is I/O, after it every way to move a byte is tried with the old
 * key: over the same connection, and when that is gone over a new one, which an agent that was
 * killed and started again gives. Whoever lets a byte move ends it with exit code 3.
 *
 * How long a lease is comes from the document, never from what the agent says. What is sent too
 * late is marked, and may never be read, here or in the file.
 */
#include "common/clock.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/client/raw/raw.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_TIME   'g'
#define TOO_LATE  'L' /* lib.sh looks for it in the file */
#define BLOCK     4096u
#define BLOCKS    4u     /* READ and WRITE within the time; two for what comes too late */
#define BASE      65536u /* where the region says it is: nobody touches it there */
#define TRIES     4
#define TRY_MS    80
#define RETRY_MS  30
#define ANSWER_MS 20000
#define SLACK_NS  (20 * NS_PER_MS) /* as history.h's CONTACT_SLACK */
#define EXIT_LOST 3

enum answer { ANSWER_REFUSED, ANSWER_MOVED, ANSWER_GONE };

struct key {
	struct raw_session s;
	uint32_t key, generation;
};

struct holder {
	struct raw raw;
	const char *file;
	uint64_t ttl_ns;
	struct key now, old; /* old.key 0: there was none */
	uint64_t handle, ends_ns, next_id;
	struct wire_header said; /* the last message of the agent */
	int fd;
	/* For negative controls. */
	bool fresh;      /* what it takes for an old key is a new one */
	bool no_payload; /* no write waits for its payload: that would be found first */
	uint64_t served, late, elsewhere; /* since the last line */
	uint8_t in[WIRE_IO_MAX];
};

static volatile sig_atomic_t stopping;

static void on_term(int sig)
{
	stopping = 1;
}

static void broken(const struct holder *h, const char *what, uint64_t sent_ns)
{
	printf("broken: %s: %s", h->file, what);
	if (sent_ns)
		printf(", %.3f ms after the end of its lease",
		       (double)(sent_ns - h->ends_ns) / 1e6);
	printf("\n");
	fflush(stdout);
	_exit(EXIT_LOST); /* nothing is tidied up: that would only be more to explain */
}

/* ---- calls ---- */

static int open_file(struct holder *h, struct ros2_err *err)
{
	ProtobufCBinaryData uid = {16, h->now.s.uid};
	Ros2__V1__MountRequest mq = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__OpenRequest oq = ROS2__V1__OPEN_REQUEST__INIT;
	Ros2__V1__MountReply *m = NULL;
	Ros2__V1__OpenReply *o = NULL;
	int r;

	mq.session_uid = oq.session_uid = uid;
	mq.namespace_name = (char *)"data";
	r = ros2_v1_tenant_mount_sync(h->raw.channel, &mq, h->raw.timeout_ms, &m, err);
	if (r)
		return r;
	oq.mount = m->mount;
	protobuf_c_message_free_unpacked(&m->base, NULL);
	oq.path = (char *)(uintptr_t)h->file;
	oq.flags = ROS2__V1__OPEN_FLAG__OPEN_FLAG_READ | ROS2__V1__OPEN_FLAG__OPEN_FLAG_WRITE |
	           ROS2__V1__OPEN_FLAG__OPEN_FLAG_CREATE;
	oq.mode = 0644;
	r = ros2_v1_tenant_open_sync(h->raw.channel, &oq, h->raw.timeout_ms, &o, err);
	if (r)
		return r;
	h->handle = o->handle;
	protobuf_c_message_free_unpacked(&o->base, NULL);
	return 0;
}

/* The agent had counted its time when it answered: later than this the lease cannot end. */
static int take_lease(struct holder *h, struct ros2_err *err)
{
	Ros2__V1__RegisterRegionRequest q = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__RegisterRegionReply *p = NULL;
	int r;

	q.session_uid = (ProtobufCBinaryData){16, h->now.s.uid};
	q.address = BASE;
	q.length = BLOCKS * BLOCK;
	q.access = 3;
	r = ros2_v1_tenant_register_region_sync(h->raw.channel, &q, h->raw.timeout_ms, &p, err);
	if (r)
		return r;
	h->ends_ns = clock_boottime_ns() + h->ttl_ns + SLACK_NS;
	h->now.key = p->key;
	h->now.generation = p->generation;
	protobuf_c_message_free_unpacked(&p->base, NULL);
	return 0;
}

static bool renewed(struct holder *h, const struct raw_session *s, uint32_t key)
{
	Ros2__V1__RegionRef q = ROS2__V1__REGION_REF__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__RenewRegionReply *p = NULL;

	q.session_uid = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)s->uid};
	q.key = key;
	if (ros2_v1_tenant_renew_region_sync(h->raw.channel, &q, h->raw.timeout_ms, &p, &err))
		return false;
	protobuf_c_message_free_unpacked(&p->base, NULL);
	return true;
}

/* ---- messages ---- */

/* What the agent does about request @id: to move a byte, or to ask for one, is to do it. */
static enum answer answer_to(struct holder *h, uint64_t id)
{
	struct wire_header *a = &h->said;

	while (!raw_receive(h->fd, a, h->in, ANSWER_MS)) {
		if (a->opcode == WIRE_DATA && memchr(h->in, TOO_LATE, a->payload_len))
			broken(h, "the file has what was sent too late", 0);
		if (a->request_id != id)
			continue;
		if (a->opcode == WIRE_DATA || a->opcode == WIRE_PULL)
			return ANSWER_MOVED;
		if (a->opcode == WIRE_COMPLETE || a->opcode == WIRE_NAK)
			return a->status == ROS2_OK ? ANSWER_MOVED : ANSWER_REFUSED;
	}
	return ANSWER_GONE;
}

static enum answer ask(struct holder *h, struct wire_header q, const uint8_t *bytes)
{
	q.request_id = ++h->next_id;
	raw_seal(&q);
	return raw_send(h->fd, &q, bytes) ? ANSWER_GONE : answer_to(h, q.request_id);
}

static struct wire_header request(const struct holder *h, uint8_t opcode, uint32_t block,
                                  const struct key *k)
{
	return (struct wire_header){.opcode = opcode,
	                            .handle = h->handle,
	                            .offset = (uint64_t)block * BLOCK,
	                            .address = BASE + block * BLOCK,
	                            .length = BLOCK,
	                            .key = k->key,
	                            .generation = k->generation};
}

static enum answer read_block(struct holder *h, uint32_t block, const struct key *k)
{
	return ask(h, request(h, WIRE_READ, block, k), NULL);
}

static enum answer write_inline(struct holder *h, uint32_t block, const struct key *k, int fill)
{
	struct wire_header q = request(h, WIRE_WRITE, block, k);
	uint8_t bytes[BLOCK];

	memset(bytes, fill, sizeof(bytes));
	q.flags = WIRE_F_INLINE;
	q.payload_len = sizeof(bytes);
	return ask(h, q, bytes);
}

/* MOVED: it is asked for the payload, which it keeps. */
static enum answer write_asked(struct holder *h, uint32_t block, const struct key *k)
{
	return ask(h, request(h, WIRE_WRITE, block, k), NULL);
}

/* ---- within the time ---- */

/* Whatever is answered is right, but what was sent too late is never read. */
static bool works(struct holder *h)
{
	enum answer a = write_inline(h, 0, &h->now, IN_TIME);

	h->served += a == ANSWER_MOVED;
	for (uint32_t b = 0; b < BLOCKS && a != ANSWER_GONE; b++) {
		a = read_block(h, b, &h->now);
		h->served += a == ANSWER_MOVED;
	}
	return a != ANSWER_GONE;
}

/* False: the connection ended before the lease. */
static bool lease_over(struct holder *h)
{
	struct pollfd p = {.fd = h->fd, .events = POLLRDHUP};
	uint64_t now;

	while (!stopping && (now = clock_boottime_ns()) < h->ends_ns)
		if (poll(&p, 1, (int)((h->ends_ns - now) / NS_PER_MS) + 1) > 0)
			return false;
	return true;
}

/* ---- too late ---- */

static bool judge(struct holder *h, const char *what, uint64_t sent_ns, enum answer a)
{
	if (a == ANSWER_MOVED)
		broken(h, what, sent_ns);
	h->late += a == ANSWER_REFUSED;
	return a != ANSWER_GONE;
}

/* Of a WRITE that was asked for in time and has been waiting for its payload since. */
static bool late_payload(struct holder *h, const struct wire_header *pull)
{
	struct pollfd p = {.fd = h->fd, .events = POLLIN};
	struct wire_header q = *pull;
	uint64_t sent = clock_boottime_ns();
	uint8_t bytes[BLOCK];

	if (poll(&p, 1, 0) > 0) /* it was answered meanwhile: that cannot be good news */
		return judge(h, "a write without its payload is done", 0,
		             answer_to(h, pull->request_id));
	memset(bytes, TOO_LATE, sizeof(bytes));
	q.opcode = WIRE_DATA;
	q.payload_len = sizeof(bytes);
	raw_seal(&q);
	if (raw_send(h->fd, &q, bytes))
		return false;
	return judge(h, "a payload was taken", sent, answer_to(h, pull->request_id));
}

static bool late_requests(struct holder *h)
{
	uint64_t sent = clock_boottime_ns();

	if (!judge(h, "a read was served", sent, read_block(h, 0, &h->now)))
		return false;
	sent = clock_boottime_ns();
	if (!judge(h, "a write was asked for", sent, write_asked(h, 2, &h->now)))
		return false;
	sent = clock_boottime_ns();
	if (!judge(h, "a write was done", sent, write_inline(h, 3, &h->now, TOO_LATE)))
		return false;
	sent = clock_boottime_ns();
	if (renewed(h, &h->now.s, h->now.key))
		broken(h, "a key was renewed", sent);
	h->late++;
	return true;
}

/* The key of a connection that is gone, on a new one that has no lease yet; and its session. */
static void try_old(struct holder *h)
{
	enum ros2_status st = ROS2_OK;
	struct ros2_err err = ROS2_ERR_INIT;
	char words[257];
	AUTO_CLOSE int fd = raw_dial(h->old.s.data_address, &err);

	if (fd >= 0 && !raw_hello(fd, &h->old.s, &st, words) && st == ROS2_OK)
		broken(h, "a session that was over was proved again", 0);
	if (read_block(h, 0, &h->old) == ANSWER_MOVED)
		broken(h, "a key of a connection that is gone was good for a read", 0);
	if (write_asked(h, 2, &h->old) == ANSWER_MOVED ||
	    write_inline(h, 3, &h->old, TOO_LATE) == ANSWER_MOVED)
		broken(h, "a key of a connection that is gone was good for a write", 0);
	if (renewed(h, &h->old.s, h->old.key) || renewed(h, &h->now.s, h->old.key))
		broken(h, "a key of a connection that is gone was renewed", 0);
	h->elsewhere++;
}

/* ---- one lease after the other ---- */

static int begin(struct holder *h, struct ros2_err *err)
{
	enum ros2_status st = ROS2_OK;
	char words[257];
	int r = raw_session_open(&h->raw, &h->now.s, err);

	if (r)
		return r;
	h->fd = raw_dial(h->now.s.data_address, err);
	r = h->fd < 0 ? h->fd : raw_hello(h->fd, &h->now.s, &st, words);
	if (!r && st != ROS2_OK)
		r = ros2_err_named(err, st, "HELLO: %s", words);
	if (!r)
		r = open_file(h, err);
	if (!r && h->fresh) {
		r = take_lease(h, err);
		h->old = h->now;
	}
	if (!r && h->old.key)
		try_old(h);
	return r ? r : take_lease(h, err);
}

static void one_lease(struct holder *h)
{
	struct wire_header pull;
	bool waits;

	if (!works(h))
		return;
	waits = !h->no_payload && write_asked(h, 1, &h->now) == ANSWER_MOVED;
	pull = h->said;
	if (!lease_over(h) || stopping || (waits && !late_payload(h, &pull)))
		return;
	for (int i = 0; i < TRIES && !stopping && late_requests(h); i++)
		poll(NULL, 0, TRY_MS);
}

static void say(struct holder *h)
{
	printf("served=%" PRIu64 " late=%" PRIu64 " elsewhere=%" PRIu64 "\n", h->served, h->late,
	       h->elsewhere);
	fflush(stdout);
	h->served = h->late = h->elsewhere = 0;
}

static void one_session(struct holder *h, const struct raw_args *who)
{
	struct ros2_err err = ROS2_ERR_INIT;
	/* Anew each time: a channel that lost its agent waits longer and longer for the next. */
	int r = raw_connect(&h->raw, who, &err);

	h->fd = -1;
	h->now.key = 0;
	memset(h->now.s.uid, 0, sizeof(h->now.s.uid));
	if (!r)
		r = begin(h, &err);
	if (!r) {
		one_lease(h);
		h->old = h->now;
	} else {
		fprintf(stderr, "%s: %s\n", h->file, err.msg);
	}
	if (h->fd >= 0)
		close(h->fd);
	if (h->raw.channel)
		raw_session_close(&h->raw, &h->now.s);
	rpc_channel_free(TAKE_PTR(h->raw.channel));
	say(h);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"file", 1, NULL, 'f'},
	                                        {"ttl-ms", 1, NULL, 't'},
	                                        {"fresh", 0, NULL, 'n'},
	                                        {"no-payload", 0, NULL, 'p'},
	                                        {0}};
	static struct holder h = {.ttl_ns = NS_PER_S};
	const struct raw_args who = {NULL, 0}; /* from the environment, as ros2-raw */
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'f')
			h.file = optarg;
		else if (o == 't')
			h.ttl_ns = strtoull(optarg, NULL, 10) * NS_PER_MS;
		else if (o == 'n')
			h.fresh = true;
		else if (o == 'p')
			h.no_payload = true;
		else
			return 2;
	}
	if (!h.file)
		return 2;
	signal(SIGTERM, on_term);
	signal(SIGPIPE, SIG_IGN);
	while (!stopping) {
		one_session(&h, &who);
		poll(NULL, 0, RETRY_MS);
	}
	return 0;
}

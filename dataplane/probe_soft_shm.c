/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How peers of the probe speak over shm, and what only shm has to show: whose memory it is, and
 * that it is sealed. Files of the probe are zeros, so what the agent wrote is what is no longer
 * PAINT.
 */
#include "common/util.h"
#include "dataplane/probe_soft_priv.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PAINT       0xa5
#define PAGE        4096u
#define DATA_BYTES  WIRE_SHM_DATA_MIN
#define BASE        (WIRE_SHM_DATA_OFF + DATA_BYTES / 4) /* there is data before and behind a file */
#define QUIET_MS    10
#define FLOOD_BYTES 65536u

static struct wire_shm_control *control(const struct ps_peer *c)
{
	return (struct wire_shm_control *)(void *)c->m.map;
}

static uint8_t *data(const struct ps_peer *c)
{
	return c->m.map + WIRE_SHM_DATA_OFF;
}

static uint64_t data_bytes(const struct ps_peer *c)
{
	return c->m.bytes - WIRE_SHM_DATA_OFF;
}

/* ---- the connection ---- */

static int shm_dial(const struct ps_peer *c)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", c->path);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* MEMORY and its descriptor. */
static int recv_memory(int fd, struct wire_header *h, int *ret_fd)
{
	uint8_t bytes[WIRE_HEADER_LEN];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} space;
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = space.bytes,
	                     .msg_controllen = sizeof(space.bytes)};
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	struct cmsghdr *cm;
	const char *words;

	if (poll(&pfd, 1, PS_WAIT_MS) <= 0)
		return -ETIMEDOUT;
	if (recvmsg(fd, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(bytes))
		return -EPROTO;
	cm = CMSG_FIRSTHDR(&msg);
	if (!cm || cm->cmsg_type != SCM_RIGHTS || cm->cmsg_len != CMSG_LEN(sizeof(int)))
		return -EPROTO;
	memcpy(ret_fd, CMSG_DATA(cm), sizeof(int));
	if (wire_parse_from_agent(bytes, h, &words) == ROS2_OK && h->opcode == WIRE_MEMORY)
		return 0;
	close(*ret_fd);
	return -EPROTO;
}

static bool all_are(const uint8_t *p, uint64_t n, uint8_t what)
{
	return p[0] == what && !memcmp(p, p + 1, n - 1);
}

static int map_memory(struct ps_peer *c)
{
	struct wire_header h;
	struct stat st;
	void *p;
	int r = recv_memory(c->fd, &h, &c->m.fd);

	if (r)
		return r;
	if (fstat(c->m.fd, &st) < 0)
		return -errno;
	c->m.ino = st.st_ino;
	c->m.bytes = h.offset;
	p = mmap(NULL, c->m.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->m.fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	c->m.map = p;
	c->m.was_zero = all_are(data(c), data_bytes(c), 0);
	return 0;
}

static int say_mapped(struct ps_peer *c)
{
	struct wire_header h = {.opcode = WIRE_MAPPED};

	return ps_send(c->fd, &h, NULL, 0);
}

static int shm_join(struct ps_peer *c)
{
	int r = map_memory(c);

	return r ? r : say_mapped(c);
}

static void shm_leave(struct ps_peer *c)
{
	if (c->m.map)
		munmap(c->m.map, c->m.bytes);
	if (c->m.fd >= 0)
		close(c->m.fd);
	c->m = (struct ps_memory){.fd = -1};
}

/* ---- the rings ---- */

static uint32_t room(const struct ps_peer *c)
{
	uint32_t taken = __atomic_load_n(&control(c)->to_agent.taken, __ATOMIC_ACQUIRE);

	return WIRE_SHM_RING_ENTRIES - (c->m.written - taken);
}

/* Nothing is awaited: without room it is not said. */
static int shm_ask(struct ps_peer *c, struct wire_header *h)
{
	struct wire_shm_ring *ring = &control(c)->to_agent;
	uint8_t wake = 0;

	if (!room(c))
		return -EAGAIN;
	wire_seal(h);
	memcpy(c->m.map + WIRE_SHM_TO_AGENT_OFF +
	               c->m.written % WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN,
	       h, sizeof(*h));
	__atomic_store_n(&ring->written, ++c->m.written, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->sleeps, __ATOMIC_RELAXED))
		(void)!send(c->fd, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return 0;
}

static bool has_answer(const struct ps_peer *c)
{
	return __atomic_load_n(&control(c)->to_tenant.written, __ATOMIC_ACQUIRE) != c->m.taken;
}

/* An answer; -ECONNRESET, -ETIMEDOUT. */
static int shm_await(struct ps_peer *c)
{
	struct wire_shm_ring *ring = &control(c)->to_tenant;
	struct pollfd pfd = {.fd = c->fd, .events = POLLIN};
	uint8_t wakes[64];
	ssize_t k;
	int r = 0;

	__atomic_store_n(&ring->sleeps, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (!has_answer(c) && !r) {
		if (poll(&pfd, 1, PS_WAIT_MS) <= 0) {
			r = -ETIMEDOUT;
			break;
		}
		k = recv(c->fd, wakes, sizeof(wakes), MSG_DONTWAIT);
		if ((k == 0 || (k < 0 && errno != EAGAIN)) && !has_answer(c))
			r = -ECONNRESET;
	}
	__atomic_store_n(&ring->sleeps, 0, __ATOMIC_RELAXED);
	return r;
}

/* The words of a NAK go with it. */
static int shm_answer(struct ps_peer *c, struct wire_header *h)
{
	const uint8_t *at = c->m.map + WIRE_SHM_TO_TENANT_OFF;
	uint8_t bytes[WIRE_HEADER_LEN];
	const char *words;
	int r = shm_await(c);

	if (r)
		return r;
	memcpy(bytes, at + c->m.taken % WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN, sizeof(bytes));
	if (wire_parse_from_agent(bytes, h, &words) != ROS2_OK)
		return -EPROTO;
	c->m.taken += 1 + (h->payload_len + WIRE_HEADER_LEN - 1) / WIRE_HEADER_LEN;
	__atomic_store_n(&control(c)->to_tenant.taken, c->m.taken, __ATOMIC_RELEASE);
	return 0;
}

/* ---- what comes ---- */

static uint64_t painted_over(const struct ps_peer *c)
{
	const uint8_t *p = data(c);
	uint64_t n = 0;

	for (uint64_t at = 0; at < data_bytes(c); at += PAGE) {
		if (all_are(p + at, PAGE, PAINT))
			continue;
		for (uint32_t i = 0; i < PAGE; i++)
			n += p[at + i] != PAINT;
	}
	return n;
}

static void shm_mark(struct ps_peer *c)
{
	memset(data(c), PAINT, data_bytes(c));
	c->m.marked_written = __atomic_load_n(&control(c)->to_tenant.written, __ATOMIC_ACQUIRE);
	c->m.marked_taken = __atomic_load_n(&control(c)->to_agent.taken, __ATOMIC_ACQUIRE);
}

static enum ros2_status shm_read(struct ps_peer *c, uint32_t key, uint64_t address, uint32_t length,
                                 uint32_t *ret_bytes)
{
	struct wire_header h = ps_header(c, WIRE_READ, key, address, length);
	int r;

	shm_mark(c);
	*ret_bytes = 0;
	r = shm_ask(c, &h);
	if (!r)
		r = shm_answer(c, &h);
	*ret_bytes = (uint32_t)painted_over(c);
	return r ? ROS2_CLOSED : (enum ros2_status)h.status;
}

/* And entries of the rings, each of which is a header: answers, and requests that were taken. */
static uint64_t shm_came(struct ps_peer *c, int quiet_ms)
{
	const struct wire_shm_control *ctl = control(c);
	uint64_t entries;

	/* time: nothing tells that nothing happens */
	poll(NULL, 0, quiet_ms);
	entries = __atomic_load_n(&ctl->to_tenant.written, __ATOMIC_ACQUIRE) - c->m.marked_written;
	entries += __atomic_load_n(&ctl->to_agent.taken, __ATOMIC_ACQUIRE) - c->m.marked_taken;
	return painted_over(c) + entries * WIRE_HEADER_LEN;
}

/* Each of them is one answer. */
static uint64_t shm_had_come(const struct ps_peer *c)
{
	return (uint64_t)c->m.marked_written * PS_FILE_BYTES;
}

static void shm_knock(struct ps_peer *c, uint32_t key)
{
	struct wire_header h = ps_header(c, WIRE_READ, key, BASE, PS_FILE_BYTES);

	(void)shm_ask(c, &h);
}

static uint32_t shm_flood(struct ps_peer *c, enum wire_opcode op, uint32_t key, bool takes)
{
	uint32_t posted = 0;

	if (takes) {
		c->m.taken = __atomic_load_n(&control(c)->to_tenant.written, __ATOMIC_ACQUIRE);
		__atomic_store_n(&control(c)->to_tenant.taken, c->m.taken, __ATOMIC_RELEASE);
	}
	for (; posted < 4 * WIRE_SHM_RING_ENTRIES; posted++) {
		struct wire_header h = ps_header(c, op, key, BASE, FLOOD_BYTES);

		if (shm_ask(c, &h))
			break;
	}
	return posted;
}

/* ---- what only shm has ---- */

/* Offsets are of one's own memory: the same ones of B's are another place than A's. */
static void shm_more_pd_isolation(struct ps_case *c, struct probe_finding *f)
{
	uint32_t key, n;
	uint64_t strayed = painted_over(&c->a);
	bool held = f->result == PROBE_ENFORCED;
	char first[64];

	snprintf(first, sizeof(first), "%.60s", f->seen);
	if (c->a.m.ino == c->b.m.ino || strayed) {
		ps_found(f, PROBE_NOT_ENFORCED, "B's reads change %" PRIu64 " bytes of A's memory",
		         strayed);
		return;
	}
	if (!held) {
		ps_found(f, f->result, "%s, into B's own memory, none into A's", first);
		return;
	}
	if (ps_register(&c->b, BASE, PS_REGION_BYTES, 3, &key) != ROS2_OK ||
	    shm_read(&c->b, key, BASE, 4096, &n) != ROS2_OK || n != 4096)
		ps_found(f, PROBE_NOT_TRIED, "B's read with B's key does not work");
	else if ((strayed = painted_over(&c->a)))
		ps_found(f, PROBE_NOT_ENFORCED,
		         "B's own read at A's offsets changes %" PRIu64 " bytes of A's memory",
		         strayed);
	else
		ps_found(f, PROBE_ENFORCED, "%s; what B reads itself leaves A's memory as it is",
		         first);
}

/* No region of what is not data. */
static bool refuses_regions(struct ps_case *c, struct probe_finding *f)
{
	const uint64_t at[] = {0, WIRE_SHM_TO_AGENT_OFF, WIRE_SHM_TO_TENANT_OFF,
	                       WIRE_SHM_DATA_OFF - 4096, c->a.m.bytes - 4096};
	uint32_t key;

	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		if (ps_register(&c->a, at[i], 8192, 3, &key) != ROS2_OK)
			continue;
		ps_found(f, PROBE_NOT_ENFORCED,
		         "a region of 8192 bytes at %" PRIu64 ", where there is no data, was taken",
		         at[i]);
		return false;
	}
	return true;
}

static bool maps_for_writing(int fd, uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return false;
	munmap(p, bytes);
	return true;
}

static bool reopened_maps(const struct ps_memory *m)
{
	char path[64];
	bool can;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", m->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	can = maps_for_writing(fd, m->bytes);
	close(fd);
	return can;
}

/* By what the memory has afterwards: under qemu-user the call does nothing and says that it is
 * well.
 */
static bool removes_pages(const struct ps_memory *m, uint64_t at)
{
	volatile uint8_t *p = m->map + at;

	*p = PAINT;
	return madvise(m->map + at, PAGE, MADV_REMOVE) == 0 && *p != PAINT;
}

/* What the agent's use of the memory rests on; docs/decisions/0006-shm-sealing.md. NULL: nothing of
 * it works. */
static const char *can_be_done(const struct ps_memory *m)
{
	const uint8_t byte = PAINT;
	const off_t last = (off_t)m->bytes - PAGE;

	if (maps_for_writing(m->fd, m->bytes) || reopened_maps(m))
		return "a new writable mapping";
	if (pwrite(m->fd, &byte, 1, last) >= 0)
		return "a write to the descriptor";
	if (fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, last, PAGE) == 0 ||
	    removes_pages(m, (uint64_t)last))
		return "a hole in the memory";
	if (ftruncate(m->fd, last) == 0 || ftruncate(m->fd, (off_t)m->bytes + PAGE) == 0)
		return "another size";
	return NULL;
}

/* A session of A's whose memory is mapped, and that has not said MAPPED yet. */
struct silent {
	struct ps_way way;
	struct ps p;
	struct ps_peer peer;
};

static int silent_open(struct ps_case *c, struct silent *ret)
{
	ret->way = ps_way_shm;
	ret->way.join = map_memory;
	ret->p = *c->p;
	ret->p.way = &ret->way;
	return ps_peer_open(&ret->p, &c->ta, &ret->peer);
}

/* Until the memory is sealed nobody keeps a tenant from making one. */
static bool serves_memory_with_a_hole(struct ps_case *c)
{
	struct silent t;
	struct wire_header h;
	bool served;

	if (silent_open(c, &t))
		return false;
	served =
		fallocate(t.peer.m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BASE, PAGE) == 0;
	h = ps_header(&t.peer, WIRE_READ, 0, BASE, 0);
	served =
		served && !shm_ask(&t.peer, &h) && !say_mapped(&t.peer) && !shm_answer(&t.peer, &h);
	ps_peer_close(&t.peer);
	return served;
}

static void shm_more_mr_range(struct ps_case *c, struct probe_finding *f)
{
	const char *done;

	if (!refuses_regions(c, f))
		return;
	done = can_be_done(&c->a.m);
	if (done)
		ps_found(f, PROBE_NOT_ENFORCED, "the shared memory is not sealed: A made %s", done);
	else if (serves_memory_with_a_hole(c))
		ps_found(f, PROBE_NOT_ENFORCED, "memory in which A made a hole first is served");
	else
		ps_found(f, PROBE_ENFORCED,
		         "around a region, no region over the rings; the memfd: no hole, size, "
		         "write or new writable mapping");
}

/* What is in the ring before MAPPED waits for it. */
static void shm_more_zero_length(struct ps_case *c, struct probe_finding *f)
{
	struct silent t;
	struct wire_header h;
	uint64_t early;
	int r;

	if (silent_open(c, &t)) {
		ps_found(f, PROBE_NOT_TRIED, "no second session of A");
		return;
	}
	shm_mark(&t.peer);
	h = ps_header(&t.peer, WIRE_READ, 0, BASE, 0);
	r = shm_ask(&t.peer, &h);
	early = shm_came(&t.peer, 2 * QUIET_MS);
	if (!r)
		r = say_mapped(&t.peer);
	if (!r)
		r = shm_answer(&t.peer, &h);
	ps_peer_close(&t.peer);
	if (early)
		ps_found(f, PROBE_NOT_ENFORCED, "a read of length zero before MAPPED was answered");
	else if (r || h.status != ROS2_OK)
		ps_found(f, PROBE_NOT_TRIED, "a read of length zero does not work after MAPPED");
	else
		ps_found(f, PROBE_ENFORCED,
		         "length zero before HELLO and before MAPPED, and under no handle: refused "
		         "(an own one needs no key)");
}

static const char *shm_tells(const struct ps_peer *c)
{
	return c->m.was_zero ? NULL : "a new session's memory is not all zeros";
}

const struct ps_way ps_way_shm = {
	.name = "shm",
	.transport = DP_TRANSPORT_SHM,
	.base = BASE,
	.memory_bytes = DATA_BYTES,
	.read_bytes_per_s = 256u << 20,
	.quiet_ms = QUIET_MS,
	.lands = true,
	.no_dmabuf = "shm shares memory that the agent makes: it registers none of a device",
	.in_flight = "asked for, one more in the ring",
	.receives_full = "keeps its ring full",
	.dial = shm_dial,
	.join = shm_join,
	.leave = shm_leave,
	.ask = shm_ask,
	.answer = shm_answer,
	.read = shm_read,
	.await = shm_await,
	.mark = shm_mark,
	.knock = shm_knock,
	.came = shm_came,
	.had_come = shm_had_come,
	.flood = shm_flood,
	.more_pd_isolation = shm_more_pd_isolation,
	.more_mr_range = shm_more_mr_range,
	.more_zero_length = shm_more_zero_length,
	.tells = shm_tells,
};

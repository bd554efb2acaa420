/* SPDX-License-Identifier: Apache-2.0 */
/* See shm_raw.h. */
#include "tests/dataplane/shm_raw.h"
#include "common/crypto.h"
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

uint64_t rs_bytes = SHM_BYTES;

struct dp_result rs_try_open(struct fx *fx, struct fx_args *a)
{
	enum dp_transport was = fx_transport;
	struct dp_result res;

	fx_transport = DP_TRANSPORT_SHM;
	res = fx_do(fx, FX_OPEN_SESSION, a);
	fx_transport = was;
	return res;
}

void rs_open_as(struct fx *fx, struct shm_raw *t, const struct ros2_uid *tenant,
                const struct ros2_uid *grant, uint64_t cert_deadline_ns)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = *tenant,
	                    .grant = *grant,
	                    .a = cert_deadline_ns,
	                    .shm_bytes = rs_bytes};
	struct dp_result res = rs_try_open(fx, &a);

	if (res.status != ROS2_OK)
		fail_msg("open session: %s: %s", ros2_status_to_str(res.status), res.words);
	*t = (struct shm_raw){.c = {.fx = fx, .session = a.session, .fd = -1}, .memfd = -1};
	memcpy(t->c.secret, res.session.secret, sizeof(t->c.secret));
	assert_int_equal(res.session.max_inline, 0);
	assert_true(strlen(res.session.shm_path) < sizeof(t->path));
	strcpy(t->path, res.session.shm_path);
	t->offered = res.session.shm_bytes;
}

void rs_open_session(struct fx *fx, struct shm_raw *t)
{
	rs_open_as(fx, t, &fx->tenant, &fx->grant, UINT64_MAX);
}

void rs_open_at(struct fx *fx, struct shm_raw *t, const char *path)
{
	struct shm_raw elsewhere[2];
	int n = 0;

	/* They go to either in turn, as long as those of before are there. */
	for (rs_open_session(fx, t); strcmp(t->path, path); rs_open_session(fx, t)) {
		assert_true(n < 2);
		elsewhere[n++] = *t;
	}
	while (n > 0)
		rs_end(&elsewhere[--n]);
}

struct look {
	struct dp *dp;
	struct dp_shm shm;
};

static void look(void *arg)
{
	struct look *l = arg;

	dp_shm(l->dp, &l->shm);
}

struct dp_shm rs_shm(struct fx *fx)
{
	struct look l = {.dp = fx->dp};

	loop_call(fx->loop, look, &l);
	return l.shm;
}

int rs_connect_path(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = AWAIT_S};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(strlen(path) < sizeof(at.sun_path));
	strcpy(at.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		fail_msg("connect to %s: %s", path, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

void rs_hello(struct shm_raw *t)
{
	uint8_t nonce[WIRE_NONCE_LEN];
	struct wire_hello hello;
	struct wire_welcome w;
	struct wire_header h;

	t->c.fd = rs_connect_path(t->path);
	assert_true(raw_recv(&t->c, &h, nonce, sizeof(nonce)));
	assert_int_equal(h.opcode, WIRE_CHALLENGE);
	raw_hello(&t->c, nonce, &hello);
	h = (struct wire_header){.opcode = WIRE_HELLO, .length = raw_features};
	raw_send(&t->c, &h, &hello, sizeof(hello));
	assert_true(raw_recv(&t->c, &h, &w, sizeof(w)));
	assert_int_equal(h.opcode, WIRE_WELCOME);
	assert_int_equal(w.features, raw_features & WIRE_FEATURE_CLEAR);
	assert_int_equal(w.max_inline, 0);
	assert_int_equal(w.credits, 128);
}

/* The header, and the descriptor that comes with it. */
static int receive_memory(int fd, struct wire_header *h)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	struct iovec iov = {h, sizeof(*h)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;
	int memfd;

	assert_int_equal(recvmsg(fd, &msg, MSG_CMSG_CLOEXEC), sizeof(*h));
	assert_false(msg.msg_flags & MSG_CTRUNC);
	c = CMSG_FIRSTHDR(&msg);
	assert_non_null(c);
	assert_int_equal(c->cmsg_type, SCM_RIGHTS);
	assert_int_equal(c->cmsg_len, CMSG_LEN(sizeof(int)));
	memcpy(&memfd, CMSG_DATA(c), sizeof(memfd));
	return memfd;
}

void rs_memory(struct shm_raw *t)
{
	struct wire_header h;
	const char *words;

	t->memfd = receive_memory(t->c.fd, &h);
	assert_int_equal(wire_parse_from_agent((const uint8_t *)&h, &h, &words), ROS2_OK);
	assert_int_equal(h.opcode, WIRE_MEMORY);
	t->bytes = h.offset;
	assert_int_equal(t->bytes, WIRE_SHM_DATA_OFF + t->offered);
	assert_int_equal(lseek(t->memfd, 0, SEEK_END), t->bytes);
	t->map = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->memfd, 0);
	assert_ptr_not_equal(t->map, MAP_FAILED);
}

void rs_mapped(struct shm_raw *t)
{
	struct wire_header h = {.opcode = WIRE_MAPPED};

	raw_send(&t->c, &h, NULL, 0);
}

void rs_connect(struct shm_raw *t)
{
	rs_hello(t);
	rs_memory(t);
	rs_mapped(t);
	assert_true(AWAIT(fcntl(t->memfd, F_GET_SEALS) & F_SEAL_SEAL));
}

void rs_ready(struct fx *fx, struct shm_raw *t)
{
	rs_open_session(fx, t);
	rs_connect(t);
	raw_file(&t->c, "file");
	t->c.key = raw_register(&t->c, SHM_BASE, t->offered, 3);
}

void rs_neighbour(struct fx *fx, struct shm_raw *t)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	rs_open_as(fx, t, &tenant, &grant, UINT64_MAX);
	rs_connect(t);
	raw_file(&t->c, "file");
	t->c.key = raw_register(&t->c, SHM_BASE, t->offered, 3);
}

void rs_close(struct shm_raw *t)
{
	raw_close(&t->c);
	if (t->map)
		munmap(TAKE_PTR(t->map), t->bytes);
	util_close_cleanup(&t->memfd);
	t->memfd = -1;
}

void rs_end(struct shm_raw *t)
{
	struct fx_args a = {.session = t->c.session};
	enum ros2_status st = fx_do(t->c.fx, FX_CLOSE_SESSION, &a).status;

	assert_true(st == ROS2_OK || st == ROS2_CLOSED || st == ROS2_BAD_SESSION);
	rs_close(t);
	/* It holds its memory until it is gone. */
	assert_true(AWAIT(fx_do(t->c.fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
}

/* ---- the rings ---- */

struct wire_shm_control *rs_control(const struct shm_raw *t)
{
	return (struct wire_shm_control *)(void *)t->map;
}

uint8_t *rs_entry(const struct shm_raw *t, uint64_t ring_off, uint32_t n)
{
	return t->map + ring_off + (uint64_t)(n % WIRE_SHM_RING_ENTRIES) * WIRE_HEADER_LEN;
}

static bool has_room(const struct shm_raw *t)
{
	return t->written - __atomic_load_n(&rs_control(t)->to_agent.taken, __ATOMIC_ACQUIRE) <
	       WIRE_SHM_RING_ENTRIES;
}

void rs_put_quietly(struct shm_raw *t, const void *entry)
{
	uint64_t words[WIRE_HEADER_LEN / sizeof(uint64_t)], *to;

	assert_true(has_room(t) || AWAIT(has_room(t)));
	memcpy(words, entry, sizeof(words));
	to = (uint64_t *)(void *)rs_entry(t, WIRE_SHM_TO_AGENT_OFF, t->written++);
	/* Another thread of the test may be changing it meanwhile. */
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		__atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
}

void rs_tell(struct shm_raw *t)
{
	struct wire_shm_ring *ring = &rs_control(t)->to_agent;
	uint8_t wake = 1;

	__atomic_store_n(&ring->written, t->written, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!t->no_wake && __atomic_load_n(&ring->sleeps, __ATOMIC_RELAXED))
		raw_send_bytes(&t->c, &wake, 1);
}

void rs_put_bytes(struct shm_raw *t, const void *entry)
{
	rs_put_quietly(t, entry);
	rs_tell(t);
}

void rs_put(struct shm_raw *t, struct wire_header *h)
{
	wire_seal(h);
	rs_put_bytes(t, h);
}

bool rs_nothing(const struct shm_raw *t)
{
	return __atomic_load_n(&rs_control(t)->to_tenant.written, __ATOMIC_ACQUIRE) == t->taken;
}

/* False: the connection has ended, and nothing came before. */
static bool wait_for_entry(struct shm_raw *t)
{
	struct wire_shm_ring *ring = &rs_control(t)->to_tenant;
	struct pollfd p = {.fd = t->c.fd, .events = POLLIN};
	uint8_t wakes[256];
	bool ended = false;

	while (rs_nothing(t) && !ended) {
		__atomic_store_n(&ring->sleeps, 1, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!rs_nothing(t))
			break;
		if (poll(&p, 1, AWAIT_MS) == 0)
			fail_msg("nothing comes from the agent");
		ended = recv(t->c.fd, wakes, sizeof(wakes), MSG_DONTWAIT) == 0 ||
		        p.revents & (POLLHUP | POLLERR);
	}
	__atomic_store_n(&ring->sleeps, 0, __ATOMIC_RELAXED);
	return !rs_nothing(t);
}

void rs_took(struct shm_raw *t, uint32_t before)
{
	struct wire_shm_ring *ring = &rs_control(t)->to_tenant;
	uint8_t wake = 1;

	__atomic_store_n(&ring->taken, t->taken, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!t->no_room_byte &&
	    __atomic_load_n(&ring->written, __ATOMIC_RELAXED) - before > WIRE_SHM_RING_ENTRIES - 5)
		raw_send_bytes(&t->c, &wake, 1);
}

bool rs_take(struct shm_raw *t, struct wire_header *h, char *words)
{
	uint32_t n, before = t->taken;

	if (!wait_for_entry(t))
		return false;
	memcpy(h, rs_entry(t, WIRE_SHM_TO_TENANT_OFF, t->taken++), sizeof(*h));
	assert_int_equal(h->magic, WIRE_MAGIC);
	assert_int_equal(h->header_crc, crypto_crc32c(h, offsetof(struct wire_header, header_crc)));
	assert_true(h->payload_len <= (h->opcode == WIRE_NAK ? WIRE_WORDS_MAX : 0));
	for (uint32_t at = 0; at < h->payload_len; at += n) {
		n = MIN(h->payload_len - at, (uint32_t)WIRE_HEADER_LEN);
		assert_false(rs_nothing(t));
		if (words)
			memcpy(words + at, rs_entry(t, WIRE_SHM_TO_TENANT_OFF, t->taken), n);
		t->taken++;
	}
	if (words)
		words[h->payload_len] = '\0';
	rs_took(t, before);
	return true;
}

enum ros2_status rs_do(struct shm_raw *t, enum wire_opcode op, uint64_t offset, uint64_t address,
                       uint32_t len, uint32_t *ret_done)
{
	struct wire_header h = raw_header(&t->c, op, offset, address, len), in;

	if (op != WIRE_READ && op != WIRE_WRITE)
		h.key = 0;
	rs_put(t, &h);
	if (!rs_take(t, &in, NULL))
		return ROS2_CLOSED;
	assert_true(in.opcode == WIRE_COMPLETE || in.opcode == WIRE_NAK);
	assert_int_equal(in.request_id, h.request_id);
	if (ret_done)
		*ret_done = in.length;
	return in.status;
}

enum ros2_status rs_read(struct shm_raw *t, uint64_t offset, uint64_t address, uint32_t len)
{
	uint32_t done = 0;
	enum ros2_status st = rs_do(t, WIRE_READ, offset, address, len, &done);

	assert_int_equal(done, st == ROS2_OK ? len : 0);
	return st;
}

enum ros2_status rs_write(struct shm_raw *t, uint64_t offset, uint64_t address, uint32_t len)
{
	uint32_t done = 0;
	enum ros2_status st = rs_do(t, WIRE_WRITE, offset, address, len, &done);

	assert_int_equal(done, st == ROS2_OK ? len : 0);
	return st;
}

void rs_ping(struct shm_raw *t)
{
	struct wire_header h = raw_header(&t->c, WIRE_PING, 0, 0, 0), in;

	h.key = 0;
	rs_put(t, &h);
	assert_true(rs_take(t, &in, NULL));
	assert_int_equal(in.opcode, WIRE_PONG);
	assert_int_equal(in.request_id, h.request_id);
}

void rs_works(struct shm_raw *t)
{
	memset(t->map + SHM_BASE, 'n', 4096);
	assert_int_equal(rs_write(t, 0, SHM_BASE, 4096), ROS2_OK);
	memset(t->map + SHM_BASE, 0, 4096);
	assert_int_equal(rs_read(t, 0, SHM_BASE, 4096), ROS2_OK);
	assert_int_equal(t->map[SHM_BASE], 'n');
	assert_int_equal(t->map[SHM_BASE + 4095], 'n');
}

void rs_expect_nak(struct shm_raw *t, struct wire_header *h, enum ros2_status want)
{
	char words[WIRE_WORDS_MAX + 1];
	struct wire_header in;

	rs_put(t, h);
	assert_true(rs_take(t, &in, words));
	assert_int_equal(in.opcode, WIRE_NAK);
	assert_string_equal(ros2_status_to_str(in.status), ros2_status_to_str(want));
	assert_int_equal(in.request_id, h->request_id);
	assert_true(strlen(words) > 0);
}

void rs_expect_end(struct shm_raw *t, enum ros2_status want, const char *words)
{
	struct dp_event ev = fx_ended(t->c.fx, &t->c.session);

	assert_string_equal(ros2_status_to_str(ev.status), ros2_status_to_str(want));
	if (words && !strstr(ev.words, words))
		fail_msg("expected \"%s\", found \"%s\"", words, ev.words);
	raw_expect_end(&t->c);
}

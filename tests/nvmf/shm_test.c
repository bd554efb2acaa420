/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants over shared memory at a target over NVMe/TCP, in the real data plane. Without a data
 * digest payload moves between the socket and the tenant's memory itself, with one it is copied
 * once; what a tenant that changes its memory in the middle can do in either case; and what happens
 * to that memory when the right, the session or the target ends in the middle.
 */
#include "common/log.h"
#include "dataplane/nvmf/engine_priv.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/nvmf/target.h"
#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define NQN       "nqn.2026-11.test:shm"
#define KIB4      4096u
#define KIB64     65536u
#define MIB       (1u << 20)
#define HOUR_MS   3600000u
#define PART      (4u * MIB) /* of the namespace: each tenant's volume */
#define DEPTH     64u
#define PDU_DATA  7 /* C2HData */
#define IO_QUEUE  1
#define OPCODE_RD 2

/* ---- a tenant that is as fast as can be ---- */

static struct {
	uint8_t *_Atomic mem; /* NULL = it changes nothing */
	_Atomic uint32_t times, at_it;
} scribbler;

/* As another process would, so without an order that ThreadSanitizer knows of. */
__attribute__((no_sanitize_thread)) static void scribble(void)
{
	volatile uint64_t *mem;
	uint64_t with;

	atomic_fetch_add(&scribbler.at_it, 1);
	mem = (uint64_t *)(void *)atomic_load(&scribbler.mem);
	if (mem) {
		with = atomic_fetch_add(&scribbler.times, 1) * 0x0101010101010101u;
		for (uint32_t i = 0; i < KIB64 / sizeof(*mem); i++)
			mem[i] = with;
	}
	atomic_fetch_sub(&scribbler.at_it, 1);
}

/* Its memory goes: nobody writes there any more, or into what comes in its place. */
static void end_scribbling(void)
{
	atomic_store(&scribbler.mem, NULL);
	assert_true(AWAIT(atomic_load(&scribbler.at_it) == 0));
}

/* Whoever receives and sends: right behind the one, and right before the other. */
ssize_t __real_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags)
{
	ssize_t got = __real_recv(fd, buf, n, flags);

	scribble();
	return got;
}

ssize_t __real_readv(int fd, const struct iovec *iov, int parts);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int parts);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int parts)
{
	ssize_t got = __real_readv(fd, iov, parts);

	scribble();
	return got;
}

/* The target reads so slowly that the sockets to it are full; how often that was found, and how
 * often there was room. */
static _Atomic bool no_room;
static _Atomic uint32_t n_no_room, n_sent;

static bool is_between_target_and_us(int fd)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_INET;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n;

	scribble();
	if (!is_between_target_and_us(fd))
		return __real_sendmsg(fd, msg, flags);
	if (atomic_load(&no_room)) {
		atomic_fetch_add(&n_no_room, 1);
		errno = EAGAIN;
		return -1;
	}
	n = __real_sendmsg(fd, msg, flags);
	atomic_fetch_add(&n_sent, n > 0);
	return n;
}

/* ---- the control: an engine that computes over a tenant's memory ---- */

static struct engine_ops careless_ops;

static bool careless_takes_any_memory(const struct engine *e)
{
	return true;
}

static int careless_submit(struct engine_reactor *r, struct engine_io *io)
{
	io->tenant_memory = false;
	return engine_nvmf_ops.submit(r, io);
}

static void be_careless(void)
{
	careless_ops = engine_nvmf_ops;
	careless_ops.takes_any_memory = careless_takes_any_memory;
	careless_ops.submit = careless_submit;
	dp_test_switches.extra_engine = &careless_ops;
}

/* ---- a target, a data plane, two tenants ---- */

struct run {
	struct fx *fx;
	struct target *target;
	struct shm_raw a, b; /* one reactor or two, it makes no difference */
};

static struct {
	bool data_digest;
	uint64_t quiesce_ms;
} document;

struct put {
	struct fx *fx;
	struct nvmf_config c;
	int rc;
	struct ros2_err err;
};

static void do_put(void *arg)
{
	struct put *p = arg;
	struct dp_engine_config c = {.name = "flash", .type = "nvmf", .nvmf = &p->c};

	p->rc = dp_engine_put(p->fx->dp, &c, &p->err);
}

static void engine_put(struct run *t)
{
	struct put p = {.fx = t->fx,
	                .err = ROS2_ERR_INIT,
	                .c = {.transport = NVMF_TCP,
	                      .address = "127.0.0.1",
	                      .port = target_port(t->target),
	                      .subsystem = NQN,
	                      .host_nqn = "nqn.2026-11.test:host:" NVMF_TENANT_MARK,
	                      .header_digest = true,
	                      .data_digest = document.data_digest,
	                      .queue_depth = DEPTH,
	                      .keep_alive_ms = HOUR_MS,
	                      .command_timeout_ms = HOUR_MS,
	                      .quiesce_ms = document.quiesce_ms,
	                      .n_volumes = 2,
	                      .volumes = {{"a/all", 1, 0, PART}, {"b/all", 1, PART, PART}}}};

	loop_call(t->fx->loop, do_put, &p);
	if (p.rc < 0)
		fail_msg("%s", p.err.msg);
}

static void volume_open(struct fx *fx, struct shm_raw *t, const char *prefix)
{
	struct fx_args a = {.session = t->c.session, .to = "flash", .path = prefix, .flags = 3};
	struct dp_result res = fx_do(fx, FX_MOUNT, &a);

	if (res.status != ROS2_OK)
		fail_msg("mount: %s", res.words);
	a.mount = res.mount.mount;
	a.path = "all";
	a.flags = ENGINE_READ | ENGINE_WRITE;
	res = fx_do(fx, FX_OPEN, &a);
	if (res.status != ROS2_OK)
		fail_msg("open: %s", res.words);
	t->c.handle = res.open.handle;
	t->c.key = raw_register(&t->c, SHM_BASE, t->offered, 3);
}

static void tenant_begin(struct fx *fx, struct shm_raw *t, const struct ros2_uid *tenant,
                         const struct ros2_uid *grant, const char *prefix)
{
	rs_open_as(fx, t, tenant, grant, UINT64_MAX);
	rs_connect(t);
	volume_open(fx, t, prefix);
}

static void begin(struct run *t)
{
	struct target_opts o = {.success_flag = true};
	struct target_subsys_opts s = {.nqn = NQN, .mdts = 8, .in_capsule = 8192};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = 2 * PART / 512};
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	void *state;

	log_set_level(LOG_LEVEL_ERROR);
	*t = (struct run){0};
	assert_int_equal(target_new(&o, &t->target), 0);
	assert_int_equal(target_add_subsystem(t->target, &s), 0);
	assert_int_equal(target_add_ns(t->target, NQN, &n), 0);
	assert_int_equal(fx_setup(&state), 0);
	t->fx = state;
	engine_put(t);
	tenant_begin(t->fx, &t->a, &t->fx->tenant, &t->fx->grant, "a");
	fx_tenant(t->fx, &tenant);
	assert_int_equal(fx_grant(t->fx, &grant, &tenant, UINT64_MAX), 0);
	tenant_begin(t->fx, &t->b, &tenant, &grant, "b");
}

static void end(struct run *t)
{
	void *state = t->fx;

	end_scribbling();
	target_faults_off(t->target);
	target_delay(t->target, 0, false);
	target_release(t->target);
	rs_end(&t->a);
	rs_end(&t->b);
	fx_no_slots(t->fx);
	assert_int_equal(fx_teardown(&state), 0);
	target_free(t->target);
	dp_test_switches = (struct dp_test_switches){0};
	document.data_digest = false;
	document.quiesce_ms = 0;
	fx_shm_tenant_bytes = 0;
}

static struct target_stats stats(struct run *t)
{
	struct target_stats s;

	target_stats(t->target, &s);
	return s;
}

static uint64_t copied(struct run *t, struct shm_raw *of)
{
	return fx_stats(t->fx, &of->c.session).copied_bytes;
}

static void pattern(uint8_t *p, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (uint8_t)(seed >> 24);
	}
}

static bool is_all(const uint8_t *p, uint8_t with, uint32_t n)
{
	return p[0] == with && memcmp(p, p + 1, n - 1) == 0;
}

/* ---- what is copied ---- */

/* A write and a read of it, to other places; compared with the medium and with each other. */
static void round_trip(struct run *t, struct shm_raw *of, uint32_t volume_at, uint32_t len)
{
	static uint8_t medium[MIB];
	uint8_t *out = of->map + SHM_BASE + 7, *in = of->map + SHM_BASE + 2 * MIB + 13;

	pattern(out, len, len);
	memset(in - 1, 'm', len + 2);
	assert_int_equal(rs_write(of, 512, SHM_BASE + 7, len), ROS2_OK);
	assert_int_equal(target_media_read(t->target, NQN, 1, volume_at + 512, medium, len), 0);
	assert_memory_equal(medium, out, len);
	assert_int_equal(rs_read(of, 512, SHM_BASE + 2 * MIB + 13, len), ROS2_OK);
	assert_memory_equal(in, out, len);
	assert_int_equal(in[-1], 'm');
	assert_int_equal(in[len], 'm');
}

static const uint32_t lengths[] = {512, KIB4, 3 * KIB4, KIB64, MIB};

static void payload__moves_between_socket_and_tenants_memory(void **state)
{
	struct wire_header h;
	struct run t;

	begin(&t);
	for (uint32_t i = 0; i < 3 * ARRAY_SIZE(lengths); i++)
		round_trip(&t, &t.a, 0, lengths[i / 3]);
	/* And many at once, each in its place. */
	memset(t.a.map + SHM_BASE, 0, t.a.offered);
	for (uint32_t i = 0; i < 100; i++) {
		h = raw_header(&t.a.c, WIRE_READ, 512, SHM_BASE + (uint64_t)i * KIB64, KIB64);
		rs_put(&t.a, &h);
	}
	for (uint32_t i = 0; i < 100; i++) {
		assert_true(rs_take(&t.a, &h, NULL));
		assert_int_equal(h.status, ROS2_OK);
		assert_memory_equal(t.a.map + SHM_BASE + (uint64_t)i * KIB64, t.a.map + SHM_BASE,
		                    KIB64);
	}
	assert_false(is_all(t.a.map + SHM_BASE, 0, KIB64));
	assert_int_equal(copied(&t, &t.a), 0);
	assert_int_equal(stats(&t).violations, 0);
	end(&t);
}

static void payload__under_data_digests_is_copied_once_and_counted(void **state)
{
	uint64_t before, between, after;
	struct run t;

	document.data_digest = true;
	begin(&t);
	for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		memset(t.a.map + SHM_BASE, 'w', lengths[i]);
		before = copied(&t, &t.a);
		assert_int_equal(rs_write(&t.a, 0, SHM_BASE, lengths[i]), ROS2_OK);
		between = copied(&t, &t.a);
		assert_int_equal(between - before, lengths[i]);
		round_trip(&t, &t.a, 0, lengths[i]);
		after = copied(&t, &t.a);
		/* Of small reads what came with its header, too: once more at most. */
		assert_in_range(after - between, 2 * lengths[i], 3 * lengths[i]);
	}
	/* Of large ones next to nothing. */
	before = copied(&t, &t.a);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, MIB), ROS2_OK);
	assert_in_range(copied(&t, &t.a) - before, MIB, MIB + MIB / 50);
	assert_int_equal(stats(&t).violations, 0);
	end(&t);
}

/* ---- memory that changes in the middle ---- */

static void begin_scribbling(struct run *t)
{
	atomic_store(&scribbler.times, 0);
	atomic_store(&scribbler.mem, t->a.map + SHM_BASE);
}

/* Both tenants write and read, @b's bytes are what they should be, and the target finds nothing. */
static void scribbled(struct run *t)
{
	struct target_stats before;

	/* Queues are opened for the first request. */
	round_trip(t, &t->a, 0, KIB4);
	round_trip(t, &t->b, PART, KIB4);
	before = stats(t);
	begin_scribbling(t);
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t len = i % 2 ? KIB64 : KIB4;

		assert_int_equal(rs_write(&t->a, 0, SHM_BASE, len), ROS2_OK);
		round_trip(t, &t->b, PART, len);
		assert_int_equal(rs_read(&t->a, 0, SHM_BASE, len), ROS2_OK);
	}
	assert_true(atomic_load(&scribbler.times) > 100);
	assert_int_equal(stats(t).violations, 0);
	assert_int_equal(stats(t).connections, before.connections);
}

static void tenant__that_scribbles_without_digests_harms_only_itself(void **state)
{
	struct run t;

	begin(&t);
	scribbled(&t);
	assert_int_equal(copied(&t, &t.a), 0);
	end(&t);
}

static void tenant__that_scribbles_under_digests_spoils_none(void **state)
{
	struct run t;

	document.data_digest = true;
	begin(&t);
	scribbled(&t);
	end(&t);
}

static void control__a_digest_over_what_is_scribbled_on_is_wrong(void **state)
{
	uint64_t before;
	struct run t;

	document.data_digest = true;
	be_careless();
	begin(&t);
	begin_scribbling(&t);
	(void)rs_write(&t.a, 0, SHM_BASE, KIB64);
	assert_true(stats(&t).violations > 0);
	before = stats(&t).connections;
	(void)rs_read(&t.a, 0, SHM_BASE, KIB64);
	assert_true(stats(&t).connections > before);
	end(&t);
}

/* ---- an end in the middle of a transfer ---- */

/* The next C2HData comes a byte each 10 ms, and some of its payload has come. */
static void read_slowly(struct run *t)
{
	struct target_rule slow = {.fault = FAULT_PDU_SLOW,
	                           .qid = IO_QUEUE + 1,
	                           .opcode = OPCODE_RD + 1,
	                           .pdu = PDU_DATA + 1,
	                           .times = 1,
	                           .arg = 10};
	struct wire_header h;

	memset(t->a.map + SHM_BASE, 'f', KIB4);
	assert_int_equal(rs_write(&t->a, 0, SHM_BASE, KIB4), ROS2_OK);
	memset(t->a.map + SHM_BASE, 'm', t->a.offered);
	assert_int_equal(target_fault_on(t->target, &slow), 0);
	h = raw_header(&t->a.c, WIRE_READ, 0, SHM_BASE, KIB4);
	rs_put(&t->a, &h);
	assert_true(AWAIT(target_fault_hits(t->target, FAULT_PDU_SLOW) == 1));
}

static uint32_t arrived(const struct shm_raw *t)
{
	const volatile uint8_t *p = t->map + SHM_BASE;
	uint32_t n = 0;

	while (n < KIB4 && p[n] == 'f')
		n++;
	return n;
}

/* Nothing but the begin of what was read. */
static void is_cut(const struct shm_raw *t)
{
	uint32_t n = arrived(t);

	assert_true(n < KIB4);
	assert_true(is_all(t->map + SHM_BASE + n, 'm', (uint32_t)t->offered - n));
}

static void neighbour_is_well(struct run *t)
{
	round_trip(t, &t->b, PART, KIB64);
	round_trip(t, &t->b, PART, KIB4);
}

static void revoke__in_the_middle_of_a_read_drains(void **state)
{
	struct fx_revoked r;
	uint32_t then;
	struct run t;

	begin(&t);
	memset(t.b.map + SHM_BASE, 'n', t.b.offered);
	read_slowly(&t);
	assert_true(AWAIT(arrived(&t.a) > 0));
	fx_revoke(t.fx, DP_SCOPE_SESSION, &t.a.c.session, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.draining, 1);
	rs_expect_end(&t.a, ROS2_REVOKED, NULL);
	/* What the target sends yet lands there, and the receipt says so: decision 0032. */
	then = arrived(&t.a);
	assert_true(AWAIT(arrived(&t.a) > then + 10));
	fx_wait_calls(t.fx, &r, 1);
	assert_int_equal(r.calls, 1);
	assert_true(target_drop(t.target, IO_QUEUE) > 0);
	fx_wait_calls(t.fx, &r, 2);
	assert_int_equal(r.last.status, ROS2_OK);
	assert_int_equal(r.last.revoke.draining, 0);
	/* From here on nothing does. */
	then = arrived(&t.a);
	is_cut(&t.a);
	assert_true(is_all(t.b.map + SHM_BASE, 'n', (uint32_t)t.b.offered));
	neighbour_is_well(&t);
	assert_int_equal(arrived(&t.a), then);
	assert_int_equal(fx_lease_count(t.fx), 1);
	end(&t);
}

/* The same through a slot: what has no right any more is thrown away. */
static void revoke__in_the_middle_of_a_read_under_digests_hands_on_nothing(void **state)
{
	struct fx_revoked r;
	struct run t;

	document.data_digest = true;
	begin(&t);
	read_slowly(&t);
	fx_revoke(t.fx, DP_SCOPE_SESSION, &t.a.c.session, &r);
	assert_int_equal(r.first.revoke.draining, 1);
	assert_true(target_drop(t.target, IO_QUEUE) > 0);
	fx_wait_calls(t.fx, &r, 2);
	assert_int_equal(r.last.revoke.draining, 0);
	assert_true(is_all(t.a.map + SHM_BASE, 'm', (uint32_t)t.a.offered));
	neighbour_is_well(&t);
	end(&t);
}

/* A write that the target was handed, and asks the data of only after the receipt; the tenant has
 * changed its memory by then. What is in its blocks, which is the same for all of them. */
static uint8_t asked_for_late(struct run *t)
{
	static uint8_t medium[3 * KIB64];
	struct fx_revoked r;
	struct wire_header h;
	uint32_t sent;

	begin(t);
	memset(t->a.map + SHM_BASE, '.', sizeof(medium));
	assert_int_equal(rs_write(&t->a, 0, SHM_BASE, sizeof(medium)), ROS2_OK);
	memset(t->a.map + SHM_BASE, 'w', t->a.offered);
	target_freeze(t->target, true);
	sent = atomic_load(&n_sent);
	h = raw_header(&t->a.c, WIRE_WRITE, KIB64, SHM_BASE, KIB64);
	rs_put(&t->a, &h);
	/* Only ours: the target is frozen. What goes through a slot is handed on in a later turn
	 * than it is taken. */
	assert_true(AWAIT(atomic_load(&n_sent) > sent));
	fx_revoke(t->fx, DP_SCOPE_SESSION, &t->a.c.session, &r);
	assert_int_equal(r.first.revoke.draining, 1);
	memset(t->a.map + SHM_BASE, 'x', t->a.offered);
	target_freeze(t->target, false);
	fx_wait_calls(t->fx, &r, 2);
	assert_int_equal(r.last.revoke.draining, 0);
	memset(t->a.map + SHM_BASE, 'y', t->a.offered);
	neighbour_is_well(t);
	assert_int_equal(target_media_read(t->target, NQN, 1, 0, medium, sizeof(medium)), 0);
	assert_true(is_all(medium, '.', KIB64));
	assert_true(is_all(medium + KIB64, medium[KIB64], KIB64));
	assert_true(is_all(medium + 2 * KIB64, '.', KIB64));
	end(t);
	return medium[KIB64];
}

static void revoke__before_the_target_asks_for_data_drains_what_lies_there(void **state)
{
	struct run t;

	assert_int_equal(asked_for_late(&t), 'x');
}

static void revoke__before_the_target_asks_for_data_of_a_slot_drains_what_was_given(void **state)
{
	struct run t;

	document.data_digest = true;
	assert_int_equal(asked_for_late(&t), 'w');
}

/* The memory stays where it is until the queue is done with it, and counts as the tenant's. */
/* Writes with their data in the capsule and with data to be asked for, which wait for room in the
 * socket when the right ends: there is room only after the receipt. */
static void revoke__of_writes_that_wait_for_the_socket_hands_on_nothing(void **state)
{
	static uint8_t medium[4 * KIB64];
	uint64_t io, neighbours;
	struct wire_header h;
	struct fx_revoked r;
	struct run t;

	begin(&t);
	memset(t.a.map + SHM_BASE, '.', sizeof(medium));
	assert_int_equal(rs_write(&t.a, 0, SHM_BASE, sizeof(medium)), ROS2_OK);
	io = stats(&t).io;
	neighbour_is_well(&t);
	neighbours = stats(&t).io - io;
	io += neighbours;
	atomic_store(&n_no_room, 0);
	atomic_store(&no_room, true);
	memset(t.a.map + SHM_BASE, 'w', t.a.offered);
	for (uint32_t i = 0; i < 4; i++) {
		h = raw_header(&t.a.c, WIRE_WRITE, i * KIB64, SHM_BASE, i % 2 ? KIB64 : KIB4);
		rs_put(&t.a, &h);
	}
	assert_true(AWAIT(fx_stats(t.fx, &t.a.c.session).in_flight == 4));
	assert_true(AWAIT(atomic_load(&n_no_room) > 0));
	fx_revoke(t.fx, DP_SCOPE_SESSION, &t.a.c.session, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	atomic_store(&no_room, false);
	/* They may have come back to the reactor before its answer was told. */
	fx_wait_calls(t.fx, &r, r.first.revoke.draining ? 2 : 1);
	assert_int_equal(r.last.revoke.draining, 0);
	neighbour_is_well(&t);
	assert_int_equal(stats(&t).io - io, neighbours);
	assert_int_equal(target_media_read(t.target, NQN, 1, 0, medium, sizeof(medium)), 0);
	assert_true(is_all(medium, '.', sizeof(medium)));
	end(&t);
}

static void disconnect__in_the_middle_of_a_read_keeps_the_memory(void **state)
{
	struct fx_args again = {.a = UINT64_MAX, .shm_bytes = SHM_BYTES};
	struct target_stats before;
	struct fx_args gone = {0};
	uint32_t then;
	struct run t;

	fx_shm_tenant_bytes = SHM_BYTES + WIRE_SHM_DATA_OFF;
	begin(&t);
	read_slowly(&t);
	assert_true(AWAIT(arrived(&t.a) > 0));
	before = stats(&t);
	raw_close(&t.a.c);
	assert_int_equal(fx_ended(t.fx, &t.a.c.session).status, ROS2_CLOSED);
	then = arrived(&t.a);
	assert_true(AWAIT(arrived(&t.a) > then + 10));
	gone.session = t.a.c.session;
	again.session = ros2_uid_new();
	again.tenant = t.fx->tenant;
	again.grant = t.fx->grant;
	assert_int_equal(fx_do(t.fx, FX_CLOSE_SESSION, &gone).status, ROS2_CLOSED);
	assert_int_equal(rs_try_open(t.fx, &again).status, ROS2_LIMIT);
	assert_int_equal(stats(&t).connections, before.connections);
	assert_true(target_drop(t.target, IO_QUEUE) > 0);
	/* poll: gone, which nobody is told */
	assert_true(AWAIT(fx_do(t.fx, FX_CLOSE_SESSION, &gone).status == ROS2_BAD_SESSION));
	is_cut(&t.a);
	/* What is left of it is ours. */
	rs_close(&t.a);
	assert_true(AWAIT(rs_try_open(t.fx, &again).status == ROS2_OK));
	neighbour_is_well(&t);
	assert_int_equal(fx_do(t.fx, FX_CLOSE_SESSION, &again).status, ROS2_OK);
	end(&t);
}

/* Writes that the target has, and whose session ends: it is their bytes that reach the medium. */
static void disconnect__with_writes_at_the_target_ends_when_they_do(void **state)
{
	uint8_t medium[KIB4];
	struct wire_header h;
	struct run t;

	begin(&t);
	target_delay(t.target, HOUR_MS, false);
	memset(t.a.map + SHM_BASE, 'w', KIB4);
	h = raw_header(&t.a.c, WIRE_WRITE, 0, SHM_BASE, KIB4);
	rs_put(&t.a, &h);
	assert_true(AWAIT(stats(&t).waiting == 1));
	raw_close(&t.a.c);
	assert_int_equal(fx_ended(t.fx, &t.a.c.session).status, ROS2_CLOSED);
	memset(t.a.map + SHM_BASE, 'x', KIB4);
	target_delay(t.target, 0, false);
	target_release(t.target);
	rs_end(&t.a);
	assert_int_equal(target_media_read(t.target, NQN, 1, 0, medium, KIB4), 0);
	assert_true(is_all(medium, 'w', KIB4));
	neighbour_is_well(&t);
	end(&t);
}

/* ---- the target goes ---- */

/* More than wait inside the engine: the others stand back, and are not copied when it is back. */
static void reads__that_wait_for_a_lost_target_are_not_copied_after_it(void **state)
{
	struct wire_header h;
	struct run t;

	begin(&t);
	memset(t.a.map + SHM_BASE, 'f', KIB64);
	assert_int_equal(rs_write(&t.a, 0, SHM_BASE, KIB64), ROS2_OK);
	memset(t.a.map + SHM_BASE, 'm', t.a.offered);
	target_delay(t.target, HOUR_MS, false);
	for (uint32_t i = 0; i < 120; i++) {
		h = raw_header(&t.a.c, WIRE_READ, 0, SHM_BASE + (uint64_t)i * KIB64, KIB64);
		rs_put(&t.a, &h);
	}
	assert_true(AWAIT(stats(&t).waiting == DEPTH));
	target_stop(t.target);
	target_delay(t.target, 0, false);
	assert_int_equal(target_start(t.target), 0);
	for (uint32_t i = 0; i < 120; i++) {
		assert_true(rs_take(&t.a, &h, NULL));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
	}
	assert_true(is_all(t.a.map + SHM_BASE, 'f', 120 * KIB64));
	assert_int_equal(copied(&t, &t.a), 0);
	end(&t);
}

#define MOST (REACTOR_BORROWED_MAX / WIRE_IO_MAX)

/* Writes of unknown outcome have given their memory back when they wait for no more than time: the
 * bound on what an engine has of a tenant's holds nobody up meanwhile. */
static void writes__of_unknown_outcome_take_no_part_of_the_bound(void **state)
{
	struct wire_header h;
	struct run t;
	uint64_t last;

	document.quiesce_ms = 5000;
	begin(&t);
	target_delay(t.target, HOUR_MS, false);
	for (uint32_t i = 0; i < MOST; i++) {
		h = raw_header(&t.a.c, WIRE_WRITE, 0, SHM_BASE, MIB);
		rs_put(&t.a, &h);
	}
	assert_true(AWAIT(stats(&t).waiting >= MOST));
	target_delay(t.target, 0, false);
	assert_true(target_drop(t.target, IO_QUEUE) > 0);
	h = raw_header(&t.a.c, WIRE_READ, 2 * MIB, SHM_BASE + MIB, MIB);
	last = h.request_id;
	rs_put(&t.a, &h);
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.request_id, last);
	assert_int_equal(h.status, ROS2_OK);
	for (uint32_t i = 0; i < MOST; i++) {
		assert_true(rs_take(&t.a, &h, NULL));
		assert_int_equal(h.status, ROS2_OUTCOME_UNKNOWN);
	}
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payload__moves_between_socket_and_tenants_memory),
		cmocka_unit_test(payload__under_data_digests_is_copied_once_and_counted),
		cmocka_unit_test(tenant__that_scribbles_without_digests_harms_only_itself),
		cmocka_unit_test(tenant__that_scribbles_under_digests_spoils_none),
		cmocka_unit_test(control__a_digest_over_what_is_scribbled_on_is_wrong),
		cmocka_unit_test(revoke__in_the_middle_of_a_read_drains),
		cmocka_unit_test(revoke__in_the_middle_of_a_read_under_digests_hands_on_nothing),
		cmocka_unit_test(revoke__before_the_target_asks_for_data_drains_what_lies_there),
		cmocka_unit_test(
			revoke__before_the_target_asks_for_data_of_a_slot_drains_what_was_given),
		cmocka_unit_test(revoke__of_writes_that_wait_for_the_socket_hands_on_nothing),
		cmocka_unit_test(disconnect__in_the_middle_of_a_read_keeps_the_memory),
		cmocka_unit_test(disconnect__with_writes_at_the_target_ends_when_they_do),
		cmocka_unit_test(reads__that_wait_for_a_lost_target_are_not_copied_after_it),
		cmocka_unit_test(writes__of_unknown_outcome_take_no_part_of_the_bound),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

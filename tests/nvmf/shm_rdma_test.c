/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants over shared memory at a target over NVMe/RDMA, in the real data plane, on a device that
 * is memory. What the device knows of a tenant's memory it moves payload from and into itself, and
 * nothing is copied; everything else goes through a slot, is copied and counted. What a target can
 * reach by such a key, what ends it, and that the memory is mapped for as long as the device knows
 * any of it, with controls.
 */
#include "common/log.h"
#include "common/probe.h"
#include "dataplane/nvmf/engine_priv.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/nvmf/target_rdma.h"
#include "tests/verbs/fabric_mem.h"
#include <stdatomic.h>
#include <sys/mman.h>

#define NQN     "nqn.2026-11.test:shm"
#define KIB4    4096u
#define KIB64   65536u
#define MIB     (1u << 20)
#define HOUR_MS 3600000u
#define PART    (4u * MIB) /* of the namespace: each tenant's volume */
#define DEPTH   64u
/* What was seen of the device. */
#define EXACT  (1u << PROBE_MR_RANGE)
#define INSIDE (EXACT | 1u << PROBE_WINDOW_RANGE)

/* ---- memory that a device knows must not go ---- */

static _Atomic uint32_t unmapped_known;

int __real_munmap(void *mem, size_t len);
int __wrap_munmap(void *mem, size_t len);
int __wrap_munmap(void *mem, size_t len)
{
	if (fabric_mem_knows(mem, len))
		atomic_fetch_add(&unmapped_known, 1);
	return __real_munmap(mem, len);
}

/* ---- a target, a data plane, two tenants ---- */

struct run {
	struct fx *fx;
	struct target *target;
	struct shm_raw a, b; /* one reactor or two, it makes no difference */
};

static bool standing; /* of documents */

struct call {
	struct fx *fx;
	struct nvmf_config c;
	int rc;
	struct ros2_err err;
	struct dp_lent lent;
};

static void do_put(void *arg)
{
	struct call *p = arg;
	struct dp_engine_config c = {.name = "flash", .type = "nvmf", .nvmf = &p->c};

	p->rc = dp_engine_put(p->fx->dp, &c, &p->err);
}

static void engine_put(struct run *t)
{
	struct call p = {.fx = t->fx,
	                 .err = ROS2_ERR_INIT,
	                 .c = {.transport = NVMF_RDMA,
	                       .address = "127.0.0.1",
	                       .port = target_rdma_port(t->target),
	                       .subsystem = NQN,
	                       .host_nqn = "nqn.2026-11.test:host:" NVMF_TENANT_MARK,
	                       .keys_per_command = !standing,
	                       .queue_depth = DEPTH,
	                       .keep_alive_ms = HOUR_MS,
	                       .command_timeout_ms = HOUR_MS,
	                       .quiesce_ms = 0,
	                       .n_volumes = 2,
	                       .volumes = {{"a/all", 1, 0, PART}, {"b/all", 1, PART, PART}}}};

	loop_call(t->fx->loop, do_put, &p);
	if (p.rc < 0)
		fail_msg("%s", p.err.msg);
}

static void do_lent(void *arg)
{
	struct call *p = arg;

	dp_lent(p->fx->dp, &p->lent);
}

static struct dp_lent lent(const struct run *t)
{
	struct call p = {.fx = t->fx};

	loop_call(t->fx->loop, do_lent, &p);
	return p.lent;
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

static uint32_t regions_now(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.regions;
}

static void begin(struct run *t, uint32_t seen)
{
	struct target_opts o = {.success_flag = true};
	struct target_subsys_opts s = {.nqn = NQN, .mdts = 5, .in_capsule = 8192};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = 2 * PART / 512};
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	void *state;

	log_set_level(LOG_LEVEL_ERROR);
	atomic_store(&unmapped_known, 0);
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	*t = (struct run){0};
	assert_int_equal(target_new(&o, &t->target), 0);
	target_rdma_open(t->target, FABRIC_MEM_DEVICE);
	assert_int_equal(target_add_subsystem(t->target, &s), 0);
	assert_int_equal(target_add_ns(t->target, NQN, &n), 0);
	assert_int_equal(fx_setup(&state), 0);
	t->fx = state;
	engine_put(t);
	tenant_begin(t->fx, &t->a, &t->fx->tenant, &t->fx->grant, "a");
	fx_tenant(t->fx, &tenant);
	assert_int_equal(fx_grant(t->fx, &grant, &tenant, UINT64_MAX), 0);
	tenant_begin(t->fx, &t->b, &tenant, &grant, "b");
	/* Queues are opened for the first request, and what their login copies counts, too. */
	assert_int_equal(rs_read(&t->a, 0, SHM_BASE, 512), ROS2_OK);
	assert_int_equal(rs_read(&t->b, 0, SHM_BASE, 512), ROS2_OK);
	dp_rdma_seen(t->fx->dp, seen);
}

static void release(struct run *t)
{
	fabric_mem_hold(false);
	fabric_mem_keep_regions(0);
	fabric_mem_refuse_regions(false);
	fabric_mem_lax_windows(false);
	target_delay(t->target, 0, false);
	target_release(t->target);
}

static void end(struct run *t)
{
	void *state = t->fx;

	release(t);
	rs_end(&t->a);
	rs_end(&t->b);
	fx_no_slots(t->fx);
	/* poll: of sessions that are gone nothing is told */
	assert_true(AWAIT(lent(t).pieces == 0));
	assert_int_equal(fx_teardown(&state), 0);
	target_rdma_close(t->target);
	target_free(t->target);
	assert_int_equal(regions_now(), 0);
	dp_test_switches = (struct dp_test_switches){0};
	fx_rdma_device = fx_rdma_host = NULL;
	fx_shm_tenant_bytes = 0;
	fabric_mem_max_regions(0);
	standing = false;
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

/* A read of those bytes: is it copied? */
static bool copies(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len)
{
	uint64_t before = copied(t, of), after;

	assert_int_equal(rs_read(of, 512, address, len), ROS2_OK);
	after = copied(t, of);
	assert_true(after == before || after == before + len);
	return after != before;
}

static bool write_copies(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len)
{
	uint64_t before = copied(t, of), after;

	assert_int_equal(rs_write(of, 512, address, len), ROS2_OK);
	after = copied(t, of);
	assert_true(after == before || after == before + len);
	return after != before;
}

/* The first request asks for it, and a worker registers it. */
static void known(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len)
{
	/* poll: until a request is not copied, which only its counter tells */
	assert_true(AWAIT(!copies(t, of, address, len)));
}

static void round_trip(struct run *t, struct shm_raw *of, uint32_t volume_at, uint64_t from,
                       uint64_t to, uint32_t len)
{
	static uint8_t medium[MIB];
	uint8_t *out = of->map + from, *in = of->map + to;

	pattern(out, len, len);
	memset(in - 1, 'm', len + 2);
	assert_int_equal(rs_write(of, 512, from, len), ROS2_OK);
	assert_int_equal(target_media_read(t->target, NQN, 1, volume_at + 512, medium, len), 0);
	assert_memory_equal(medium, out, len);
	assert_int_equal(rs_read(of, 512, to, len), ROS2_OK);
	assert_memory_equal(in, out, len);
	assert_int_equal(in[-1], 'm');
	assert_int_equal(in[len], 'm');
}

static void neighbour_is_well(struct run *t)
{
	round_trip(t, &t->b, PART, SHM_BASE, SHM_BASE + MIB, KIB64);
	round_trip(t, &t->b, PART, SHM_BASE, SHM_BASE + MIB, KIB4);
}

static struct target_stats stats(struct run *t)
{
	struct target_stats s;

	target_stats(t->target, &s);
	return s;
}

/* ---- what is copied ---- */

static const uint32_t lengths[] = {512, KIB4, 3 * KIB4, KIB64, MIB};

/* Also at odd addresses, in the capsule, and as several commands. */
static void moved_by_the_device(uint32_t seen)
{
	uint64_t before, from = SHM_BASE + 7, to = SHM_BASE + 2 * MIB + 13;
	struct run t;

	begin(&t, seen);
	for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		known(&t, &t.a, from, lengths[i]);
		known(&t, &t.a, to, lengths[i]);
		before = copied(&t, &t.a);
		for (uint32_t n = 0; n < 3; n++)
			round_trip(&t, &t.a, 0, from, to, lengths[i]);
		assert_int_equal(copied(&t, &t.a), before);
	}
	assert_int_equal(stats(&t).violations, 0);
	neighbour_is_well(&t);
	end(&t);
	assert_int_equal(atomic_load(&unmapped_known), 0);
}

static void payload__is_moved_by_the_device_where_windows_are_enforced(void **state)
{
	moved_by_the_device(INSIDE);
}

static void payload__of_the_same_bytes_is_moved_by_the_device_where_only_regions_are(void **state)
{
	moved_by_the_device(EXACT);
}

static void payload__is_copied_once_where_nothing_was_seen_enforced(void **state)
{
	struct run t;

	begin(&t, 1u << PROBE_WINDOW_RANGE);
	for (uint32_t i = 0; i < 10; i++) {
		assert_true(copies(&t, &t.a, SHM_BASE, KIB64));
		assert_true(write_copies(&t, &t.a, SHM_BASE, KIB64));
	}
	assert_int_equal(lent(&t).made, 0);
	assert_int_equal(lent(&t).failed + lent(&t).refused, 0);
	end(&t);
}

/* As with a document that lets keys stand: those are over slots only. */
static void payload__has_a_key_for_each_command_where_others_stand(void **state)
{
	struct dp_lease_info rows[16];
	uint32_t n, commands = 0;
	struct wire_header h;
	uint64_t issued = 0;
	struct run t;

	standing = true;
	begin(&t, INSIDE);
	known(&t, &t.a, SHM_BASE, KIB64);
	fabric_mem_hold(true);
	h = raw_header(&t.a.c, WIRE_READ, 512, SHM_BASE, KIB64);
	rs_put(&t.a, &h);
	/* poll: as far as the device */
	assert_true(AWAIT(fabric_mem_held() == 1));
	n = fx_leases(t.fx, &t.fx->tenant, rows, ARRAY_SIZE(rows));
	for (uint32_t i = 0; i < n; i++)
		if (rows[i].kind == DP_LEASE_PER_COMMAND) {
			commands += rows[i].count;
			issued += rows[i].issued;
		}
	assert_int_equal(commands, 1);
	assert_true(issued >= 2);
	fabric_mem_hold(false);
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.status, ROS2_OK);
	n = fx_leases(t.fx, &t.fx->tenant, rows, ARRAY_SIZE(rows));
	for (uint32_t i = 0; i < n; i++)
		assert_true(rows[i].kind != DP_LEASE_PER_COMMAND || rows[i].count == 0);
	end(&t);
}

/* ---- which memory a request may name ---- */

/* Without more to be had: what is direct now lies in what the device knows. */
static void part__of_known_memory_is_copied_where_windows_are_not_enforced(void **state)
{
	struct run t;

	begin(&t, EXACT);
	known(&t, &t.a, SHM_BASE, KIB64);
	fabric_mem_refuse_regions(true);
	assert_false(copies(&t, &t.a, SHM_BASE, KIB64));
	assert_true(copies(&t, &t.a, SHM_BASE, KIB64 - 512));
	assert_true(copies(&t, &t.a, SHM_BASE + 512, KIB64 - 512));
	assert_true(copies(&t, &t.a, SHM_BASE + 1, KIB64));
	assert_true(copies(&t, &t.a, SHM_BASE, KIB64 + 512));
	assert_false(write_copies(&t, &t.a, SHM_BASE, KIB64));
	end(&t);
}

static void part__of_a_region_is_moved_by_the_device_to_its_ends(void **state)
{
	uint64_t last;
	struct run t;

	begin(&t, INSIDE);
	known(&t, &t.a, SHM_BASE, KIB4);
	fabric_mem_refuse_regions(true);
	last = SHM_BASE + t.a.offered;
	assert_false(copies(&t, &t.a, SHM_BASE, 512));
	assert_false(copies(&t, &t.a, SHM_BASE + 1, KIB64));
	assert_false(copies(&t, &t.a, last - 512, 512));
	assert_false(copies(&t, &t.a, last - MIB, MIB));
	assert_false(write_copies(&t, &t.a, last - KIB64, KIB64));
	assert_int_equal(rs_read(&t.a, 0, last - 511, 512), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE - 1, 512), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_read(&t.a, 0, UINT64_MAX - 255, 512), ROS2_OUT_OF_RANGE);
	assert_int_equal(lent(&t).pieces, 1);
	end(&t);
}

static uint32_t deregister(struct run *t, struct shm_raw *of)
{
	struct fx_args a = {.session = of->c.session, .key = of->c.key};

	return fx_do(t->fx, FX_DEREGISTER, &a).status;
}

/* What the device knows gives nobody a right: the lease does. */
static void key__that_ended_names_nothing_though_the_device_knows_the_memory(void **state)
{
	uint32_t old, second;
	uint64_t made;
	struct run t;

	begin(&t, INSIDE);
	assert_int_equal(deregister(&t, &t.a), ROS2_OK);
	second = raw_register(&t.a.c, SHM_BASE + KIB64, KIB64, 3);
	old = t.a.c.key = raw_register(&t.a.c, SHM_BASE, KIB64, 3);
	known(&t, &t.a, SHM_BASE, KIB64);
	made = lent(&t).made;
	/* From one into the other, which is next to it and the tenant's own. */
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE + KIB4, KIB64), ROS2_OUT_OF_RANGE);
	assert_int_equal(deregister(&t, &t.a), ROS2_OK);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, KIB64), ROS2_BAD_KEY);
	t.a.c.key = second;
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, KIB64), ROS2_OUT_OF_RANGE);
	/* The same bytes under another key are known still; for reading only. */
	t.a.c.key = raw_register(&t.a.c, SHM_BASE, KIB64, LEASE_READ);
	assert_int_not_equal(t.a.c.key, old);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, KIB64), ROS2_ACCESS);
	assert_false(write_copies(&t, &t.a, SHM_BASE, KIB64));
	assert_int_equal(lent(&t).made, made);
	/* Another tenant's keys and memory are its own. */
	t.b.c.key = t.a.c.key;
	assert_int_equal(rs_read(&t.b, 0, SHM_BASE, KIB64), ROS2_BAD_KEY);
	end(&t);
}

static void region__that_is_closed_under_a_command_stays_until_it_is_over(void **state)
{
	struct wire_header h;
	struct run t;

	begin(&t, INSIDE);
	known(&t, &t.a, SHM_BASE, KIB64);
	fabric_mem_hold(true);
	h = raw_header(&t.a.c, WIRE_READ, 512, SHM_BASE, KIB64);
	rs_put(&t.a, &h);
	/* poll: as far as the device */
	assert_true(AWAIT(fabric_mem_held() == 1));
	assert_int_equal(deregister(&t, &t.a), ROS2_OK);
	fabric_mem_hold(false);
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.status, ROS2_BAD_KEY);
	t.a.c.key = raw_register(&t.a.c, SHM_BASE, t.a.offered, 3);
	assert_false(copies(&t, &t.a, SHM_BASE, KIB64));
	end(&t);
	assert_int_equal(atomic_load(&unmapped_known), 0);
}

/* ---- what there is of it ---- */

static void device__that_refuses_a_region_costs_a_copy_until_it_does_not(void **state)
{
	struct run t;

	begin(&t, INSIDE);
	fabric_mem_refuse_regions(true);
	assert_true(copies(&t, &t.a, SHM_BASE, KIB64));
	/* poll: a worker was refused */
	assert_true(AWAIT(lent(&t).failed == 1));
	assert_true(copies(&t, &t.a, SHM_BASE, KIB64));
	assert_true(write_copies(&t, &t.a, SHM_BASE, KIB64));
	assert_int_equal(lent(&t).pieces, 0);
	fabric_mem_refuse_regions(false);
	known(&t, &t.a, SHM_BASE, KIB64);
	end(&t);
}

/* A quarter of what the device has, of that half a tenant. */
static void tenant__at_its_limit_is_copied_and_keeps_none_from_others(void **state)
{
	struct run t;

	fabric_mem_max_regions(32);
	begin(&t, EXACT);
	for (uint32_t i = 0; i < 4; i++)
		known(&t, &t.a, SHM_BASE + (uint64_t)i * KIB64, KIB64);
	assert_true(copies(&t, &t.a, SHM_BASE + MIB, KIB64));
	/* poll: the loop refused it */
	assert_true(AWAIT(lent(&t).refused == 1));
	assert_int_equal(lent(&t).pieces, 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_false(copies(&t, &t.a, SHM_BASE + (uint64_t)i * KIB64, KIB64));
		known(&t, &t.b, SHM_BASE + (uint64_t)i * KIB64, KIB64);
	}
	assert_int_equal(lent(&t).pieces, 8);
	/* One of its own that nobody needs makes room. */
	known(&t, &t.a, SHM_BASE + MIB, KIB64);
	assert_int_equal(lent(&t).pieces, 8);
	end(&t);
}

/* No more bytes of a session than it has: overlapping regions take each other's place. */
static void session__has_no_more_registered_than_it_has(void **state)
{
	uint32_t all;
	struct run t;

	begin(&t, INSIDE);
	all = t.a.c.key;
	known(&t, &t.a, SHM_BASE, KIB64);
	t.a.c.key = raw_register(&t.a.c, SHM_BASE + KIB4, t.a.offered - KIB4, 3);
	assert_true(copies(&t, &t.a, SHM_BASE + KIB4, KIB64));
	known(&t, &t.a, SHM_BASE + KIB4, KIB64);
	assert_int_equal(lent(&t).pieces, 1);
	t.a.c.key = all;
	assert_true(copies(&t, &t.a, SHM_BASE, KIB64));
	end(&t);
	assert_int_equal(atomic_load(&unmapped_known), 0);
}

/* ---- ends in the middle ---- */

/* The target's RDMA WRITE of a read waits in its device. */
static void read_in_flight(struct run *t, uint32_t seen)
{
	struct wire_header h;

	begin(t, seen);
	memset(t->b.map + SHM_BASE, 'n', t->b.offered);
	memset(t->a.map + SHM_BASE, 'f', KIB64);
	assert_int_equal(rs_write(&t->a, 0, SHM_BASE, KIB64), ROS2_OK);
	known(t, &t->a, SHM_BASE, KIB64);
	memset(t->a.map + SHM_BASE, 'm', t->a.offered);
	fabric_mem_hold(true);
	h = raw_header(&t->a.c, WIRE_READ, 0, SHM_BASE, KIB64);
	rs_put(&t->a, &h);
	/* poll: as far as the device */
	assert_true(AWAIT(fabric_mem_held() == 1));
}

static void revoked_in_the_middle(struct run *t, uint32_t seen)
{
	struct fx_revoked r;

	read_in_flight(t, seen);
	fx_revoke(t->fx, DP_SCOPE_SESSION, &t->a.c.session, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.draining, 1);
	assert_int_equal(r.first.revoke.windows, dp_test_switches.no_key_end ? 0 : 1);
	rs_expect_end(&t->a, ROS2_REVOKED, NULL);
	fabric_mem_hold(false);
	fx_wait_calls(t->fx, &r, 2);
	assert_int_equal(r.last.status, ROS2_OK);
	assert_int_equal(r.last.revoke.draining, 0);
	assert_true(is_all(t->b.map + SHM_BASE, 'n', (uint32_t)t->b.offered));
	/* poll: of a session that is gone nothing is told */
	assert_true(AWAIT(lent(t).pieces == 0));
	neighbour_is_well(t);
}

static void revoke__in_the_middle_of_a_read_lets_nothing_land_after_the_receipt(void **state)
{
	struct run t;

	for (int i = 0; i < 2; i++) {
		revoked_in_the_middle(&t, i ? EXACT : INSIDE);
		assert_true(is_all(t.a.map + SHM_BASE, 'm', (uint32_t)t.a.offered));
		end(&t);
		assert_int_equal(atomic_load(&unmapped_known), 0);
	}
}

static void control__without_the_end_of_keys_it_lands(void **state)
{
	struct run t;

	dp_test_switches.no_key_end = true;
	revoked_in_the_middle(&t, EXACT);
	assert_true(is_all(t.a.map + SHM_BASE, 'f', KIB64));
	assert_true(is_all(t.a.map + SHM_BASE + KIB64, 'm', (uint32_t)t.a.offered - KIB64));
	end(&t);
}

static enum ros2_status close_again(struct run *t)
{
	struct fx_args gone = {.session = t->a.c.session};

	return fx_do(t->fx, FX_CLOSE_SESSION, &gone).status;
}

static void disconnect__with_a_command_at_the_target_keeps_memory_and_region(void **state)
{
	struct fx_args again = {.a = UINT64_MAX, .shm_bytes = SHM_BYTES};
	uint64_t connections;
	struct run t;

	fx_shm_tenant_bytes = SHM_BYTES + WIRE_SHM_DATA_OFF;
	read_in_flight(&t, INSIDE);
	connections = stats(&t).connections;
	again.session = ros2_uid_new();
	again.tenant = t.fx->tenant;
	again.grant = t.fx->grant;
	raw_close(&t.a.c);
	assert_int_equal(fx_ended(t.fx, &t.a.c.session).status, ROS2_CLOSED);
	assert_int_equal(close_again(&t), ROS2_CLOSED);
	assert_int_equal(rs_try_open(t.fx, &again).status, ROS2_LIMIT);
	assert_int_equal(lent(&t).pieces, 1);
	fabric_mem_hold(false);
	/* poll: gone, which nobody is told */
	assert_true(AWAIT(close_again(&t) == ROS2_BAD_SESSION));
	assert_int_equal(lent(&t).pieces, 0);
	/* No right was withdrawn: it is its own memory. */
	assert_true(is_all(t.a.map + SHM_BASE, 'f', KIB64));
	rs_close(&t.a);
	/* poll: the kernel tells when the last mapping has gone */
	assert_true(AWAIT(rs_try_open(t.fx, &again).status == ROS2_OK));
	assert_int_equal(fx_do(t.fx, FX_CLOSE_SESSION, &again).status, ROS2_OK);
	assert_int_equal(stats(&t).connections, connections);
	neighbour_is_well(&t);
	end(&t);
	assert_int_equal(atomic_load(&unmapped_known), 0);
}

/* The device does not give up what it was asked to: as often as it is asked. */
static void ends_at_a_device_that_keeps_regions(struct run *t)
{
	struct fabric_mem_counts c;

	begin(t, INSIDE);
	known(t, &t->a, SHM_BASE, KIB64);
	fabric_mem_keep_regions(t->a.offered);
	raw_close(&t->a.c);
	assert_int_equal(fx_ended(t->fx, &t->a.c.session).status, ROS2_CLOSED);
	/* poll: it was asked thrice */
	assert_true(AWAIT((fabric_mem_counts(&c), c.regions_kept >= 3)));
	assert_int_equal(close_again(t), ROS2_CLOSED);
	assert_int_equal(lent(t).pieces, 1);
	neighbour_is_well(t);
	fabric_mem_keep_regions(0);
	/* poll: gone, which nobody is told */
	assert_true(AWAIT(close_again(t) == ROS2_BAD_SESSION));
	end(t);
}

static void memory__stays_mapped_as_long_as_the_device_keeps_some_of_it(void **state)
{
	struct run t;

	ends_at_a_device_that_keeps_regions(&t);
	assert_int_equal(atomic_load(&unmapped_known), 0);
}

static void control__without_waiting_it_is_unmapped_under_the_device(void **state)
{
	struct run t;

	dp_test_switches.no_lend_wait = true;
	ends_at_a_device_that_keeps_regions(&t);
	assert_true(atomic_load(&unmapped_known) > 0);
}

/* The agent stops in the middle. */
static void stop__with_commands_and_regions_unmaps_nothing_that_is_known(void **state)
{
	struct wire_header h;
	struct run t;
	void *fx;

	begin(&t, INSIDE);
	known(&t, &t.a, SHM_BASE, KIB64);
	for (uint32_t i = 0; i < 20; i++) {
		h = raw_header(&t.a.c, i % 2 ? WIRE_READ : WIRE_WRITE, 0, SHM_BASE, KIB64);
		rs_put(&t.a, &h);
	}
	fx = t.fx;
	assert_int_equal(fx_teardown(&fx), 0);
	assert_int_equal(atomic_load(&unmapped_known), 0);
	rs_close(&t.a);
	rs_close(&t.b);
	target_rdma_close(t.target);
	target_free(t.target);
	assert_int_equal(regions_now(), 0);
}

/* ---- the device, and a target that lies ---- */

static void device__that_loses_its_queue_pairs_is_done_without(void **state)
{
	struct wire_header h;
	struct run t;

	read_in_flight(&t, EXACT);
	fabric_mem_break_all();
	fabric_mem_hold(false);
	/* Asked again, over another queue. */
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	assert_true(is_all(t.a.map + SHM_BASE, 'f', KIB64));
	assert_true(is_all(t.a.map + SHM_BASE + KIB64, 'm', (uint32_t)t.a.offered - KIB64));
	assert_false(copies(&t, &t.a, SHM_BASE, KIB64));
	neighbour_is_well(&t);
	end(&t);
	assert_int_equal(atomic_load(&unmapped_known), 0);
}

/* On a device that lets a key be used anywhere in its region a target reaches behind the bytes of
 * the request it was given. */
static void reach_behind(struct run *t)
{
	struct wire_header h;

	begin(t, EXACT);
	fabric_mem_lax_windows(true);
	memset(t->a.map + SHM_BASE, 'f', KIB64);
	assert_int_equal(rs_write(&t->a, 0, SHM_BASE, KIB64), ROS2_OK);
	known(t, &t->a, SHM_BASE, KIB64);
	memset(t->a.map + SHM_BASE, 'm', t->a.offered);
	fabric_mem_aim(KIB64);
	h = raw_header(&t->a.c, WIRE_READ, 0, SHM_BASE, KIB64);
	rs_put(&t->a, &h);
	assert_true(rs_take(&t->a, &h, NULL));
}

static void target__that_reaches_behind_a_request_reaches_nothing(void **state)
{
	struct run t;

	reach_behind(&t);
	assert_true(is_all(t.a.map + SHM_BASE + KIB64, 'm', (uint32_t)t.a.offered - KIB64));
	neighbour_is_well(&t);
	end(&t);
}

static void control__with_more_than_the_request_it_reaches_that(void **state)
{
	struct run t;

	dp_test_switches.lends_unseen = true;
	reach_behind(&t);
	assert_true(is_all(t.a.map + SHM_BASE + KIB64, 'f', KIB64));
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payload__is_moved_by_the_device_where_windows_are_enforced),
		cmocka_unit_test(
			payload__of_the_same_bytes_is_moved_by_the_device_where_only_regions_are),
		cmocka_unit_test(payload__is_copied_once_where_nothing_was_seen_enforced),
		cmocka_unit_test(payload__has_a_key_for_each_command_where_others_stand),
		cmocka_unit_test(part__of_known_memory_is_copied_where_windows_are_not_enforced),
		cmocka_unit_test(part__of_a_region_is_moved_by_the_device_to_its_ends),
		cmocka_unit_test(key__that_ended_names_nothing_though_the_device_knows_the_memory),
		cmocka_unit_test(region__that_is_closed_under_a_command_stays_until_it_is_over),
		cmocka_unit_test(device__that_refuses_a_region_costs_a_copy_until_it_does_not),
		cmocka_unit_test(tenant__at_its_limit_is_copied_and_keeps_none_from_others),
		cmocka_unit_test(session__has_no_more_registered_than_it_has),
		cmocka_unit_test(
			revoke__in_the_middle_of_a_read_lets_nothing_land_after_the_receipt),
		cmocka_unit_test(control__without_the_end_of_keys_it_lands),
		cmocka_unit_test(disconnect__with_a_command_at_the_target_keeps_memory_and_region),
		cmocka_unit_test(memory__stays_mapped_as_long_as_the_device_keeps_some_of_it),
		cmocka_unit_test(control__without_waiting_it_is_unmapped_under_the_device),
		cmocka_unit_test(stop__with_commands_and_regions_unmaps_nothing_that_is_known),
		cmocka_unit_test(device__that_loses_its_queue_pairs_is_done_without),
		cmocka_unit_test(target__that_reaches_behind_a_request_reaches_nothing),
		cmocka_unit_test(control__with_more_than_the_request_it_reaches_that),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See shm_rdma_rig.h. */
#include "tests/nvmf/shm_rdma_rig.h"
#include "common/log.h"
#include "dataplane/nvmf/engine_priv.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/verbs/fabric_mem.h"
#include <stdatomic.h>
#include <sys/mman.h>

#define HOUR_MS 3600000u
#define DEPTH   64u

/* ---- memory that a device knows must not go ---- */

_Atomic uint32_t rig_unmapped;

int __real_munmap(void *mem, size_t len);
int __wrap_munmap(void *mem, size_t len);
int __wrap_munmap(void *mem, size_t len)
{
	if (fabric_mem_knows(mem, len))
		atomic_fetch_add(&rig_unmapped, 1);
	return __real_munmap(mem, len);
}

/* ---- a target, a data plane, two tenants ---- */

bool rig_standing;

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
	                       .keys_per_command = !rig_standing,
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

struct dp_lent rig_lent(const struct run *t)
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

uint32_t rig_regions(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.regions;
}

void rig_session(struct run *t, struct shm_raw *ret)
{
	tenant_begin(t->fx, ret, &t->fx->tenant, &t->fx->grant, "a");
}

void rig_begin(struct run *t, uint32_t seen)
{
	struct target_opts o = {.success_flag = true};
	struct target_subsys_opts s = {.nqn = NQN, .mdts = 5, .in_capsule = 8192};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = 2 * PART / 512};
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	void *state;

	log_set_level(LOG_LEVEL_ERROR);
	atomic_store(&rig_unmapped, 0);
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

void rig_end(struct run *t)
{
	void *state = t->fx;

	release(t);
	rs_end(&t->a);
	rs_end(&t->b);
	fx_no_slots(t->fx);
	/* poll: of sessions that are gone nothing is told */
	assert_true(AWAIT(rig_lent(t).pieces == 0));
	assert_int_equal(fx_teardown(&state), 0);
	target_rdma_close(t->target);
	target_free(t->target);
	assert_int_equal(rig_regions(), 0);
	dp_test_switches = (struct dp_test_switches){0};
	fx_rdma_device = fx_rdma_host = NULL;
	fx_shm_tenant_bytes = 0;
	fabric_mem_max_regions(0);
	rig_standing = false;
}

uint64_t rig_copied(struct run *t, struct shm_raw *of)
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

bool rig_is_all(const uint8_t *p, uint8_t with, uint32_t n)
{
	return p[0] == with && memcmp(p, p + 1, n - 1) == 0;
}

bool rig_copies(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len)
{
	uint64_t before = rig_copied(t, of), after;

	assert_int_equal(rs_read(of, 512, address, len), ROS2_OK);
	after = rig_copied(t, of);
	assert_true(after == before || after == before + len);
	return after != before;
}

bool rig_write_copies(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len)
{
	uint64_t before = rig_copied(t, of), after;

	assert_int_equal(rs_write(of, 512, address, len), ROS2_OK);
	after = rig_copied(t, of);
	assert_true(after == before || after == before + len);
	return after != before;
}

void rig_known(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len)
{
	/* poll: until a request is not copied, which only its counter tells */
	assert_true(AWAIT(!rig_copies(t, of, address, len)));
}

void rig_round_trip(struct run *t, struct shm_raw *of, uint32_t volume_at, uint64_t from,
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

void rig_neighbour_is_well(struct run *t)
{
	rig_round_trip(t, &t->b, PART, SHM_BASE, SHM_BASE + MIB, KIB64);
	rig_round_trip(t, &t->b, PART, SHM_BASE, SHM_BASE + MIB, KIB4);
}

struct target_stats rig_stats(struct run *t)
{
	struct target_stats s;

	target_stats(t->target, &s);
	return s;
}

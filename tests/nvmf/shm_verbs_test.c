/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants over shared memory at Linux nvmet-rdma on soft-RoCE, in the guest (guest_shm), in the
 * real data plane in this process: what the device moves between the target and a tenant's memory,
 * compared with the disk, and that a revocation ends it, with a control.
 */
#include "common/log.h"
#include "common/probe.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include <fcntl.h>

#define KIB4   4096u
#define KIB64  65536u
#define MIB    (1u << 20)
#define VOLUME (8u * MIB)
#define READS  32u

static struct shm_raw t;
static struct fx *fx;

/* What soft-RoCE enforces of the two that count here, as `guest_probe` sees it. */
static const uint32_t seen = 1u << PROBE_MR_RANGE;

struct put {
	int rc;
	struct ros2_err err;
};

static const char *env(const char *name)
{
	const char *value = getenv(name);

	if (!value)
		fail_msg("%s is not set: run guest_shm", name);
	return value;
}

static void put_engine(void *arg)
{
	struct put *p = arg;
	struct nvmf_config n = {.transport = NVMF_RDMA,
	                        .port = NVMF_PORT,
	                        .host_nqn = "nqn.2014-08.org.example:shm:" NVMF_TENANT_MARK,
	                        .queue_depth = 64,
	                        .keep_alive_ms = 10000,
	                        .command_timeout_ms = 20000,
	                        .quiesce_ms = 2000,
	                        .keys_per_command = true,
	                        .n_volumes = 1,
	                        .volumes = {{"a/all", 1, 0, VOLUME}}};
	struct dp_engine_config c = {.name = "flash", .type = "nvmf", .nvmf = &n};

	snprintf(n.address, sizeof(n.address), "%s", env("NVMET_ADDRESS"));
	snprintf(n.subsystem, sizeof(n.subsystem), "%s", env("NVMET_NQN"));
	p->rc = dp_engine_put(fx->dp, &c, &p->err);
}

static void begin(void)
{
	struct put p = {.err = ROS2_ERR_INIT};
	struct fx_args a = {.to = "flash", .path = "a", .flags = 3};
	struct dp_result res;
	void *state;

	log_set_level(LOG_LEVEL_ERROR);
	fx_shm = true;
	fx_rdma_device = "rxe0";
	fx_rdma_host = env("NVMET_ADDRESS");
	assert_int_equal(fx_setup(&state), 0);
	fx = state;
	loop_call(fx->loop, put_engine, &p);
	if (p.rc < 0)
		fail_msg("%s", p.err.msg);
	t = (struct shm_raw){0};
	rs_open_as(fx, &t, &fx->tenant, &fx->grant, UINT64_MAX);
	rs_connect(&t);
	a.session = t.c.session;
	res = fx_do(fx, FX_MOUNT, &a);
	if (res.status != ROS2_OK)
		fail_msg("mount: %s", res.words);
	a.mount = res.mount.mount;
	a.path = "all";
	a.flags = ENGINE_READ | ENGINE_WRITE;
	res = fx_do(fx, FX_OPEN, &a);
	assert_int_equal(res.status, ROS2_OK);
	t.c.handle = res.open.handle;
	t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 3);
	assert_int_equal(rs_read(&t, 0, SHM_BASE, KIB4), ROS2_OK);
	dp_rdma_seen(fx->dp, seen);
}

static void end(void)
{
	void *state = fx;

	rs_end(&t);
	assert_int_equal(fx_teardown(&state), 0);
	dp_test_switches = (struct dp_test_switches){0};
}

static uint64_t copied(void)
{
	return fx_stats(fx, &t.c.session).copied_bytes;
}

static bool read_copies(uint64_t offset, uint64_t address, uint32_t len)
{
	uint64_t before = copied();

	assert_int_equal(rs_read(&t, offset, address, len), ROS2_OK);
	return copied() != before;
}

/* Past the page cache. */
static void disk_is(const uint8_t *with, uint64_t offset, uint32_t len)
{
	static uint8_t is[MIB] __attribute__((aligned(4096)));
	int fd = open(env("NVMET_DISK"), O_RDONLY | O_DIRECT | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, is, len, (off_t)offset), len);
	close(fd);
	assert_memory_equal(is, with, len);
}

static void pattern(uint8_t *p, uint32_t n, uint32_t seed)
{
	for (uint32_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (uint8_t)(seed >> 24);
	}
}

static const uint32_t lengths[] = {512, KIB4, KIB64, MIB};

/* Also at odd addresses, in the capsule, and as several commands. */
static void payload__is_moved_by_the_device_and_stands_on_the_disk(void **state)
{
	uint64_t from = SHM_BASE + 7, to = SHM_BASE + 2 * MIB + 13, before, moved = 0;
	uint8_t *out, *in;

	begin();
	out = t.map + from;
	in = t.map + to;
	for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		uint32_t len = lengths[i];

		/* poll: until a worker has registered what is named, which only the count tells */
		assert_true(AWAIT(!read_copies(MIB, from, len)));
		assert_true(AWAIT(!read_copies(MIB, to, len))); /* poll: the same */
		before = copied();
		for (uint32_t n = 1; n <= 8; n++) {
			pattern(out, len, n * len);
			memset(in - 1, 'm', len + 2);
			assert_int_equal(rs_write(&t, MIB, from, len), ROS2_OK);
			disk_is(out, MIB, len);
			assert_int_equal(rs_read(&t, MIB, to, len), ROS2_OK);
			assert_memory_equal(in, out, len);
			assert_true(in[-1] == 'm' && in[len] == 'm');
			moved += 2 * len;
		}
		assert_int_equal(copied(), before);
	}
	print_message("# %llu bytes, none of them copied\n", (unsigned long long)moved);
	end();
}

/* So many reads are at the target, whose disk takes its time. At the receipt the tenant's memory is
 * filled with something else. */
static uint32_t landed_after_a_revocation(void)
{
	struct fx_revoked r;
	struct wire_header h;
	uint32_t landed = 0;

	begin();
	memset(t.map + SHM_BASE, 'f', MIB);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, MIB), ROS2_OK);
	for (uint32_t i = 0; i < READS; i++)
		/* poll: until a worker has registered it, which only the count tells */
		assert_true(AWAIT(!read_copies(0, SHM_BASE + (uint64_t)i * KIB64, KIB64)));
	for (uint32_t i = 0; i < READS; i++) {
		h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE + (uint64_t)i * KIB64, KIB64);
		rs_put(&t, &h);
	}
	/* In the turn that takes them they are handed on, and a revocation comes in another. */
	assert_true(AWAIT(fx_stats(fx, &t.c.session).in_flight >= READS / 2)); /* poll: see there */
	fx_revoke(fx, DP_SCOPE_SESSION, &t.c.session, &r);
	memset(t.map + SHM_BASE, 'm', READS * KIB64);
	assert_int_equal(r.first.status, ROS2_OK);
	print_message("# the receipt: %u windows, draining %u\n", r.first.revoke.windows,
	              r.first.revoke.draining);
	assert_true(r.first.revoke.draining > 0);
	fx_wait_calls(fx, &r, 2);
	assert_int_equal(r.last.revoke.draining, 0);
	for (uint32_t i = 0; i < READS * KIB64; i++)
		landed += t.map[SHM_BASE + i] != 'm';
	if (!dp_test_switches.no_key_end)
		assert_true(r.first.revoke.windows > 0);
	end();
	return landed;
}

static void revoke__lets_nothing_land_after_its_receipt(void **state)
{
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(landed_after_a_revocation(), 0);
}

static void control__without_the_end_of_keys_something_does(void **state)
{
	uint32_t landed;

	dp_test_switches.no_key_end = true;
	landed = landed_after_a_revocation();
	print_message("# %u bytes landed\n", landed);
	assert_true(landed > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payload__is_moved_by_the_device_and_stands_on_the_disk),
		cmocka_unit_test(revoke__lets_nothing_land_after_its_receipt),
		cmocka_unit_test(control__without_the_end_of_keys_something_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

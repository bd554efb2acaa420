/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine at Linux nvmet, over TCP or RDMA, in the guest: guest_engine makes the target and says
 * where it is.
 * The same load as at our own target, compared with the block devices themselves; the kernel's own
 * initiator beside us sees the same bytes. null_blk, brd and a loop file; removed, resized, shut
 * out and restored under load.
 */
#include "tests/nvmf/storm.h"
#include "tests/testing.h"

#include "common/clock.h"

#define NQN    "nqn.2026-11.test:one"
#define NQN2   "nqn.2026-11.test:two"
#define NVMET  "/sys/kernel/config/nvmet/"
#define SUBSYS NVMET "subsystems/" NQN "/"
#define LINK   NVMET "ports/1/subsystems/" NQN
#define HOST_A "nqn.2026-11.test:host:tenant-a"

/* Namespaces 1, 2, 3: the disks behind them, and what the kernel's initiator calls them. */
static const char *disks[4], *peers[4];
static const char *loop_file, *address, *device; /* device: NULL = over TCP */

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (n != (ssize_t)strlen(text))
		fail_msg("%s: %s", path, strerror(errno));
	close(fd);
}

/* Past every cache. */
static int direct(const char *path, bool write_it, uint64_t at, void *buf, size_t len)
{
	int fd = open(path, (write_it ? O_WRONLY : O_RDONLY) | O_DIRECT | O_CLOEXEC);
	void *aligned = NULL;
	ssize_t n = -1;

	if (fd >= 0 && !posix_memalign(&aligned, 4096, len)) {
		if (write_it)
			memcpy(aligned, buf, len);
		n = write_it ? pwrite(fd, aligned, len, (off_t)at)
		             : pread(fd, aligned, len, (off_t)at);
		if (!write_it && n == (ssize_t)len)
			memcpy(buf, aligned, len);
	}
	free(aligned);
	if (fd >= 0)
		close(fd);
	return n == (ssize_t)len ? 0 : -EIO;
}

static int read_disk(void *arg, uint64_t at, void *buf, size_t len)
{
	return direct(arg, false, at, buf, len);
}

static void prepare(struct storm *s, const char *nqn, const char *tenant, uint32_t nsid)
{
	storm_init(s, NULL, tenant);
	s->v.config.port = (uint16_t)atoi(getenv("NVMET_PORT"));
	snprintf(s->v.config.address, sizeof(s->v.config.address), "%s", address);
	snprintf(s->v.config.subsystem, sizeof(s->v.config.subsystem), "%s", nqn);
	s->v.config.volumes[0].nsid = nsid;
	s->v.config.keep_alive_ms = 5000;
	s->v.config.command_timeout_ms = 5000;
	s->v.config.quiesce_ms = 500;
	s->v.device = device;
	if (!device)
		return;
	s->v.config.transport = NVMF_RDMA;
	s->v.config.keys_per_command = true;
	/* soft-RoCE in emulation */
	s->v.config.keep_alive_ms = 10000;
	s->v.config.command_timeout_ms = 15000;
}

/* What a disk holds from before is not ours: zeros again. */
static void wipe(const char *disk)
{
	static uint8_t zeros[STORM_STRIDE];

	for (unsigned i = 0; i < STORM_SLOTS; i++)
		assert_int_equal(
			direct(disk, true, (uint64_t)i * STORM_STRIDE, zeros, STORM_STRIDE), 0);
}

static void expect_clean(struct storm *s, const char *name)
{
	printf("# %s: %lu good, %lu unknown, %lu refused, %lu other (%d), %lu lives\n", name,
	       s->good, s->unknown, s->refused, s->other, s->last_error, vol_health(&s->v).lives);
	if (s->wrong || s->other)
		fail_msg("%s: %u wrong: %s; %lu other errors (%d)", name, s->wrong, s->words,
		         s->other, s->last_error);
	assert_true(s->good > 20);
}

static void comes_back(struct storm *s)
{
	uint64_t end = clock_monotonic_ns() + 30 * NS_PER_S;

	while (vol_io(&s->v, ENGINE_OP_READ, 0, s->v.buf, 4096) != 4096)
		if (clock_monotonic_ns() > end)
			fail_msg("does not come back: %s", vol_health(&s->v).words);
}

/* Load, and then all of it by three ways. */
static void one_disk(uint32_t nsid, bool digests)
{
	struct storm s;

	wipe(disks[nsid]);
	prepare(&s, NQN, "tenant-a", nsid);
	s.v.config.header_digest = s.v.config.data_digest = digests;
	storm_open(&s);
	storm_run(&s, 1, 2000, NULL, NULL);
	assert_int_equal(vol_io(&s.v, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	storm_check_by(&s, read_disk, (void *)disks[nsid]);
	storm_check_by(&s, read_disk, (void *)peers[nsid]);
	assert_int_equal(vol_scenario(&s.v), 0);
	expect_clean(&s, disks[nsid]);
	assert_int_equal(vol_health(&s.v).lives, 1);
	storm_close(&s);
}

static void nvmf_kernel__null_blk(void **state)
{
	one_disk(1, false);
}

static void nvmf_kernel__brd(void **state)
{
	one_disk(2, false);
}

static void nvmf_kernel__loop_file(void **state)
{
	one_disk(3, false);
}

static void nvmf_kernel__digests(void **state)
{
	if (device)
		skip(); /* of TCP only */
	one_disk(1, true);
}

/* What the kernel writes is what we read, and the other way round. */
static void nvmf_kernel__its_own_initiator_sees_the_same_bytes(void **state)
{
	struct storm s;
	uint8_t *back;

	prepare(&s, NQN, "tenant-a", 1);
	storm_open(&s);
	back = s.v.buf + VOL_IO;
	for (uint32_t i = 1; i < 20; i++) {
		uint32_t len = i % 2 ? 4096 : VOL_IO;
		uint64_t at = (uint64_t)i * VOL_IO;

		vol_pattern(s.v.buf, len, i);
		if (i % 4 < 2) {
			assert_int_equal(vol_io(&s.v, ENGINE_OP_WRITE, at, s.v.buf, len), len);
			assert_int_equal(direct(peers[1], false, at, back, len), 0);
		} else {
			assert_int_equal(direct(peers[1], true, at, s.v.buf, len), 0);
			assert_int_equal(vol_io(&s.v, ENGINE_OP_READ, at, back, len), len);
		}
		assert_true(vol_is_pattern(back, len, i));
		assert_int_equal(direct(disks[1], false, at, back, len), 0);
		assert_true(vol_is_pattern(back, len, i));
	}
	storm_close(&s);
}

struct outage {
	unsigned step;
	const struct storm *beside; /* at another target; NULL = none */
	uint64_t had, meanwhile;    /* of it: done before the target went, while it was away */
};

static void remove_and_restore(void *arg, unsigned at_ms)
{
	struct outage *o = arg;
	uint64_t good = o->beside ? o->beside->good : 0;

	if (at_ms < o->step * 2500 + 1500)
		return;
	if (o->step % 2)
		assert_int_equal(symlink(SUBSYS, LINK), 0);
	else
		assert_int_equal(unlink(LINK), 0);
	if (o->step++ % 2)
		o->meanwhile += good - o->had;
	o->had = good;
}

static void removed_under_load(bool keys_per_command)
{
	struct outage o = {0};
	struct storm s;

	wipe(disks[1]);
	prepare(&s, NQN, "tenant-a", 1);
	s.v.config.keys_per_command = keys_per_command;
	storm_open(&s);
	storm_run(&s, 1, 6500, remove_and_restore, &o);
	while (o.step % 2)
		remove_and_restore(&o, UINT32_MAX);
	comes_back(&s);
	storm_check_by(&s, read_disk, (void *)disks[1]);
	expect_clean(&s, "removed and restored");
	assert_true(vol_health(&s.v).lives > 1);
	storm_close(&s);
}

static void nvmf_kernel__a_target_that_is_removed_and_restored_under_load(void **state)
{
	removed_under_load(true);
}

static void nvmf_kernel__the_same_with_standing_keys(void **state)
{
	if (!device)
		skip(); /* TCP has no keys */
	removed_under_load(false);
}

static void allow_a(bool on)
{
	static const char *const link = SUBSYS "allowed_hosts/" HOST_A;

	assert_int_equal(on ? symlink(NVMET "hosts/" HOST_A, link) : unlink(link), 0);
}

static void nvmf_kernel__its_access_list_is_by_tenant(void **state)
{
	struct storm s;

	allow_a(false);
	prepare(&s, NQN, "tenant-a", 1);
	assert_true(vol_open(&s.v) < 0);
	assert_non_null(strstr(s.v.words, "refuses host " HOST_A));
	storm_close(&s);
	prepare(&s, NQN, "tenant-b", 1);
	storm_open(&s);
	storm_close(&s);
	allow_a(true);
	prepare(&s, NQN, "tenant-a", 1);
	storm_open(&s);
	storm_close(&s);
}

static void nvmf_kernel__a_namespace_that_is_taken_away_under_load(void **state)
{
	struct storm s;

	wipe(disks[2]);
	prepare(&s, NQN, "tenant-a", 2);
	storm_open(&s);
	storm_run(&s, 1, 1000, NULL, NULL);
	put(SUBSYS "namespaces/2/enable", "0");
	storm_run(&s, 1, 1000, NULL, NULL);
	printf("# gone: %lu others (%d)\n", s.other, s.last_error);
	assert_true(s.other > 0);
	assert_true(s.last_error == -ENOENT);
	put(SUBSYS "namespaces/2/enable", "1");
	comes_back(&s);
	s.other = 0;
	storm_run(&s, 1, 1000, NULL, NULL);
	storm_check_by(&s, read_disk, (void *)disks[2]);
	expect_clean(&s, "taken away");
	storm_close(&s);
}

static void grow_and_shrink(void *arg, unsigned at_ms)
{
	unsigned *step = arg;
	char command[300];

	if (at_ms < *step * 700 + 500)
		return;
	assert_int_equal(truncate(loop_file, ++*step % 2 ? 12 << 20 : 16 << 20), 0);
	snprintf(command, sizeof(command), "losetup -c %s", disks[3]);
	assert_int_equal(system(command), 0);
	put(SUBSYS "namespaces/3/revalidate_size", "1");
}

static void nvmf_kernel__a_file_that_grows_and_shrinks_under_load(void **state)
{
	uint64_t end = clock_monotonic_ns() + 20 * NS_PER_S, want;
	struct engine_attr a = {0};
	unsigned step = 0;
	struct storm s;

	wipe(disks[3]);
	prepare(&s, NQN, "tenant-a", 3);
	storm_open(&s);
	storm_run(&s, 1, 4000, grow_and_shrink, &step);
	want = step % 2 ? 12 << 20 : 16 << 20;
	while (a.size != want && clock_monotonic_ns() < end) {
		vol_turn(&s.v, 20);
		assert_int_equal(engine_nvmf_ops.fstat(s.v.f, &a, NULL), 0);
	}
	assert_int_equal(a.size, want);
	storm_check_by(&s, read_disk, (void *)disks[3]);
	expect_clean(&s, "grows and shrinks");
	storm_close(&s);
}

/* On one subsystem, and one more on another. */
static void nvmf_kernel__tenants_beside_each_other(void **state)
{
	static struct storm s[3];
	struct outage o = {.beside = &s[2]};

	for (unsigned i = 1; i < 4; i++)
		wipe(disks[i]);
	prepare(&s[0], NQN, "tenant-a", 1);
	prepare(&s[1], NQN, "tenant-b", 2);
	prepare(&s[2], NQN2, "tenant-b", 1); /* the disk of namespace 3 of the first */
	for (unsigned i = 0; i < 3; i++) {
		s[i].seed = (i + 1) << 16;
		storm_open(&s[i]);
	}
	storm_run(s, 3, 6500, remove_and_restore, &o);
	while (o.step % 2)
		remove_and_restore(&o, UINT32_MAX);
	for (unsigned i = 0; i < 3; i++) {
		comes_back(&s[i]);
		storm_check_by(&s[i], read_disk, (void *)disks[i + 1]);
		expect_clean(&s[i], i == 2 ? "the other subsystem" : "the one that goes");
	}
	assert_true(vol_health(&s[0].v).lives > 1);
	assert_int_equal(vol_health(&s[2].v).lives, 1);
	assert_int_equal(s[2].unknown + s[2].refused, 0);
	assert_true(o.meanwhile > 20);
	for (unsigned i = 0; i < 3; i++)
		storm_close(&s[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_kernel__null_blk),
		cmocka_unit_test(nvmf_kernel__brd),
		cmocka_unit_test(nvmf_kernel__loop_file),
		cmocka_unit_test(nvmf_kernel__digests),
		cmocka_unit_test(nvmf_kernel__its_own_initiator_sees_the_same_bytes),
		cmocka_unit_test(nvmf_kernel__its_access_list_is_by_tenant),
		cmocka_unit_test(nvmf_kernel__a_namespace_that_is_taken_away_under_load),
		cmocka_unit_test(nvmf_kernel__a_file_that_grows_and_shrinks_under_load),
		cmocka_unit_test(nvmf_kernel__a_target_that_is_removed_and_restored_under_load),
		cmocka_unit_test(nvmf_kernel__the_same_with_standing_keys),
		cmocka_unit_test(nvmf_kernel__tenants_beside_each_other),
	};

	for (unsigned i = 1; i < 4; i++) {
		char name[32];

		snprintf(name, sizeof(name), "NVMET_DISK%u", i);
		disks[i] = getenv(name);
		snprintf(name, sizeof(name), "NVMET_PEER%u", i);
		peers[i] = getenv(name);
	}
	loop_file = getenv("NVMET_FILE");
	address = getenv("NVMET_ADDRESS");
	device = getenv("NVMET_DEVICE");
	if (!getenv("NVMET_PORT") || !address || !disks[3] || !peers[3] || !loop_file) {
		puts("1..0 # SKIP runs in the guest only (tests/nvmf/guest_engine)");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine under load while its target ends and comes back, loses connections, hangs, changes
 * its namespaces or its mind about who may connect. Every request ends, nothing that was
 * acknowledged is lost or overtaken, by the volume and by the medium; with a control in which the
 * time to quiesce is too short, and the model finds it.
 */
#include "tests/nvmf/storm.h"
#include "tests/await.h"
#include "tests/testing.h"

#include "common/clock.h"

struct rig {
	struct target *t;
	unsigned step;
};

static void expect_clean(struct storm *s, struct target *t, const char *name)
{
	char words[256];

	target_violations(t, words, sizeof(words));
	if (getenv("ROS2_SHOW_FAULTS"))
		printf("# %s: %lu good, %lu unknown, %lu refused, %lu other (%d), slowest %llu ms, "
		       "%lu lives\n",
		       name, s->good, s->unknown, s->refused, s->other, s->last_error,
		       s->slowest_ns / NS_PER_MS, vol_health(&s->v).lives);
	if (s->wrong || s->other || words[0])
		fail_msg("%s: %u wrong: %s; %lu other errors (%d); %s", name, s->wrong, s->words,
		         s->other, s->last_error, words);
	assert_true(s->good > 10);
}

static void let_late_ones_come(struct storm *s, unsigned n, struct target *t)
{
	struct target_stats st;

	target_delay(t, 0, true);
	/* poll: the last write that waits at the target */
	for (target_stats(t, &st); st.waiting; target_stats(t, &st))
		for (unsigned i = 0; i < n; i++)
			vol_turn(&s[i].v, 1);
	for (unsigned i = 0; i < n; i++) {
		uint64_t end = clock_monotonic_ns() + AWAIT_NS;

		while (vol_io(&s[i].v, ENGINE_OP_READ, 0, s[i].v.buf, 4096) != 4096)
			if (clock_monotonic_ns() > end)
				fail_msg("does not come back: %s", vol_health(&s[i].v).words);
	}
}

/* The whole of it, with one tenant. */
static void weather(const char *name, void (*event)(void *arg, unsigned at_ms), unsigned ms,
                    bool must_lose)
{
	struct rig r = {.t = vol_target()};
	unsigned fds = vol_fds();
	struct storm s;

	storm_init(&s, r.t, "tenant-a");
	storm_open(&s);
	storm_run(&s, 1, ms, event, &r);
	target_freeze(r.t, false);
	assert_int_equal(target_start(r.t), 0);
	assert_int_equal(target_allow(r.t, VOL_NQN, "nqn.2026-11.test:host:tenant-a"), 0);
	let_late_ones_come(&s, 1, r.t);
	storm_check(&s, r.t);
	expect_clean(&s, r.t, name);
	if (must_lose && vol_health(&s.v).lives < 2)
		fail_msg("%s: the controller was never lost", name);
	storm_close(&s);
	target_free(r.t);
	assert_true(vol_fds() <= fds);
}

/* Ends for 300 ms of each 1200 ms, with writes that take effect long after. */
static void end_and_begin(void *arg, unsigned at_ms)
{
	struct rig *r = arg;

	if (at_ms < r->step * 600 + (r->step % 2 ? 300 : 0))
		return;
	if (!r->step)
		target_delay(r->t, 60, true);
	else if (r->step % 2)
		target_stop(r->t);
	else
		assert_int_equal(target_start(r->t), 0);
	r->step++;
}

static void nvmf_storm__a_target_that_ends_and_begins_again(void **state)
{
	weather("restarts", end_and_begin, 4900, true);
}

static void cut(void *arg, unsigned at_ms)
{
	struct rig *r = arg;

	if (at_ms < r->step * 200)
		return;
	if (!r->step)
		target_delay(r->t, 20, true);
	else
		target_drop(r->t, r->step % 3 ? 1 : -1);
	r->step++;
}

static void nvmf_storm__connections_that_are_cut(void **state)
{
	weather("cuts", cut, 3000, true);
}

static void hang(void *arg, unsigned at_ms)
{
	struct rig *r = arg;

	if (at_ms < r->step * 1300)
		return;
	target_freeze(r->t, r->step++ % 2);
}

static void nvmf_storm__a_target_that_hangs(void **state)
{
	weather("hangs", hang, 5200, true);
}

static void shut_out(void *arg, unsigned at_ms)
{
	struct rig *r = arg;
	static const char host[] = "nqn.2026-11.test:host:tenant-a";

	if (at_ms < r->step * 400)
		return;
	if (r->step % 2)
		target_disallow(r->t, VOL_NQN, host);
	else
		target_allow(r->t, VOL_NQN, host);
	r->step++;
}

static void nvmf_storm__a_host_that_is_taken_from_the_list(void **state)
{
	weather("access", shut_out, 2900, true);
}

static void slow_stop(void *arg, unsigned at_ms)
{
	struct rig *r = arg;

	if (at_ms < r->step * 500)
		return;
	if (!r->step)
		target_delay(r->t, 100, true);
	else
		target_drop(r->t, 1); /* the admin queue can ask for CSTS.RDY = 0 */
	r->step++;
}

static void nvmf_storm__writes_that_end_before_the_controller_is_disabled(void **state)
{
	weather("disables", slow_stop, 3000, true);
}

static void resize(void *arg, unsigned at_ms)
{
	struct rig *r = arg;

	if (at_ms < r->step * 100)
		return;
	/* The slots are in the first half. */
	target_resize_ns(r->t, VOL_NQN, 1, VOL_BYTES / 512 / (r->step++ % 2 ? 2 : 1));
}

static void nvmf_storm__a_namespace_that_grows_and_shrinks(void **state)
{
	weather("resizes", resize, 2000, false);
}

/* What is in the target when it ends takes effect two seconds later. */
static void leave_late_writes(void *arg, unsigned at_ms)
{
	static const unsigned when[] = {50, 150, 200};
	struct target_stats st;
	struct rig *r = arg;

	if (r->step == ARRAY_SIZE(when) || at_ms < when[r->step])
		return;
	target_stats(r->t, &st);
	if (r->step == 0) {
		target_delay(r->t, 2000, true);
	} else if (r->step == 1) {
		/* On a slow machine nothing may have come yet. */
		if (st.waiting < 4 && at_ms < 1500)
			return;
		target_stop(r->t);
		target_delay(r->t, 0, true);
	} else {
		assert_int_equal(target_start(r->t), 0);
	}
	r->step++;
}

/* Returns how many reads were wrong. */
static unsigned late_writes(uint64_t quiesce_ms)
{
	struct rig r = {.t = vol_target()};
	struct target_stats st;
	struct storm s;

	storm_init(&s, r.t, "tenant-a");
	s.v.config.quiesce_ms = quiesce_ms;
	s.v.config.command_timeout_ms = 3000;
	storm_open(&s);
	storm_run(&s, 1, 3500, leave_late_writes, &r);
	let_late_ones_come(&s, 1, r.t);
	storm_check(&s, r.t);
	target_stats(r.t, &st);
	assert_true(st.orphans > 0);
	if (quiesce_ms > 1)
		expect_clean(&s, r.t, "late writes");
	storm_close(&s);
	target_free(r.t);
	return s.wrong;
}

static void nvmf_storm__late_writes_do_not_overtake(void **state)
{
	assert_int_equal(late_writes(2500), 0);
}

/* Control: the model sees a late write, when nobody waits for it. */
static void nvmf_storm__too_short_a_time_to_quiesce_is_found(void **state)
{
	assert_true(late_writes(1) > 0);
}

static void nvmf_storm__a_namespace_that_goes_and_comes(void **state)
{
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = VOL_BYTES / 512};
	struct target *t = vol_target();
	uint64_t end;
	struct storm s;

	storm_init(&s, t, "tenant-a");
	storm_open(&s);
	storm_run(&s, 1, 300, NULL, NULL);
	assert_int_equal(target_remove_ns(t, VOL_NQN, 1), 0);
	storm_run(&s, 1, 300, NULL, NULL);
	assert_true(s.other && s.last_error == -ENOENT);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(target_add_ns(t, VOL_NQN, &n), 0);
	end = clock_monotonic_ns() + AWAIT_NS;
	while (vol_io(&s.v, ENGINE_OP_READ, 0, s.v.buf, 512) != -ESTALE)
		assert_true(clock_monotonic_ns() < end);
	storm_run(&s, 1, 300, NULL, NULL);
	assert_int_equal(s.last_error, -ESTALE);
	assert_int_equal(s.wrong, 0);
	/* It is another one: what was there is not, and it is opened as such. */
	engine_nvmf_ops.close(s.v.f);
	assert_int_equal(engine_nvmf_ops.open(s.v.ns, "all", ENGINE_READ | ENGINE_WRITE, 0, &s.v.f,
	                                      NULL, NULL),
	                 0);
	memset(s.slots, 0, sizeof(s.slots));
	s.other = 0;
	storm_run(&s, 1, 300, NULL, NULL);
	storm_check(&s, t);
	expect_clean(&s, t, "comes again");
	assert_int_equal(vol_health(&s.v).lives, 1);
	storm_close(&s);
	target_free(t);
}

/* Each command of a host names its own namespace. */
static void expect_apart(struct target *t)
{
	struct target_log_entry *e = calloc(65536, sizeof(*e));
	size_t n;

	assert_non_null(e);
	n = target_log(t, 0, e, 65536);
	assert_true(n > 100);
	for (size_t i = 0; i < n; i++)
		if (e[i].qid && e[i].opcode != 0x7f)
			assert_int_equal(e[i].nsid, strstr(e[i].host_nqn, ":tenant-a") ? 1 : 2);
	free(e);
}

static void cut_a(void *arg, unsigned at_ms)
{
	struct rig *r = arg;
	static const char host[] = "nqn.2026-11.test:host:tenant-a";

	if (at_ms < r->step * 300)
		return;
	if (r->step % 2)
		target_disallow(r->t, VOL_NQN, host);
	else
		target_allow(r->t, VOL_NQN, host);
	r->step++;
}

static void nvmf_storm__two_tenants_on_one_subsystem_are_apart(void **state)
{
	struct target_ns_opts n = {.nsid = 2, .block_size = 4096, .blocks = VOL_BYTES / 4096};
	struct rig r = {.t = vol_target()};
	static struct storm s[2];

	assert_int_equal(target_add_ns(r.t, VOL_NQN, &n), 0);
	assert_int_equal(target_allow(r.t, VOL_NQN, "nqn.2026-11.test:host:tenant-b"), 0);
	assert_int_equal(target_allow(r.t, VOL_NQN, "nqn.2026-11.test:host:tenant-a"), 0);
	storm_init(&s[0], r.t, "tenant-a");
	storm_init(&s[1], r.t, "tenant-b");
	s[1].v.config.volumes[0].nsid = 2;
	s[1].v.config.keep_alive_ms = s[1].v.config.command_timeout_ms = 5000;
	s[1].seed = 1u << 20;
	storm_open(&s[0]);
	storm_open(&s[1]);
	r.step = 1;
	storm_run(s, 2, 2500, cut_a, &r);
	target_allow(r.t, VOL_NQN, "nqn.2026-11.test:host:tenant-a");
	let_late_ones_come(s, 2, r.t);
	for (int i = 0; i < 2; i++) {
		storm_check(&s[i], r.t);
		expect_clean(&s[i], r.t, i ? "neighbour" : "shut out");
	}
	assert_true(vol_health(&s[0].v).lives > 1);
	/* The neighbour has seen nothing of it. */
	assert_int_equal(vol_health(&s[1].v).lives, 1);
	assert_int_equal(s[1].unknown + s[1].refused, 0);
	expect_apart(r.t);
	storm_close(&s[0]);
	storm_close(&s[1]);
	target_free(r.t);
}

static void nvmf_storm__losing_one_target_costs_tenants_of_another_nothing(void **state)
{
	struct rig r = {.t = vol_target()};
	struct target *other = vol_target();
	static struct storm s[2];

	storm_init(&s[0], r.t, "tenant-a");
	storm_init(&s[1], other, "tenant-b");
	s[1].v.config.keep_alive_ms = s[1].v.config.command_timeout_ms = 5000;
	storm_open(&s[0]);
	storm_open(&s[1]);
	storm_run(s, 2, 3000, end_and_begin, &r);
	target_start(r.t);
	let_late_ones_come(&s[0], 1, r.t);
	storm_check(&s[0], r.t);
	storm_check(&s[1], other);
	expect_clean(&s[0], r.t, "the lost target");
	expect_clean(&s[1], other, "the other");
	assert_true(vol_health(&s[0].v).lives > 1);
	assert_int_equal(vol_health(&s[1].v).lives, 1);
	assert_int_equal(s[1].unknown + s[1].refused, 0);
	assert_true(s[1].slowest_ns < 3 * NS_PER_S);
	storm_close(&s[0]);
	storm_close(&s[1]);
	target_free(r.t);
	target_free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_storm__a_target_that_ends_and_begins_again),
		cmocka_unit_test(nvmf_storm__connections_that_are_cut),
		cmocka_unit_test(nvmf_storm__a_target_that_hangs),
		cmocka_unit_test(nvmf_storm__a_host_that_is_taken_from_the_list),
		cmocka_unit_test(nvmf_storm__writes_that_end_before_the_controller_is_disabled),
		cmocka_unit_test(nvmf_storm__a_namespace_that_grows_and_shrinks),
		cmocka_unit_test(nvmf_storm__late_writes_do_not_overtake),
		cmocka_unit_test(nvmf_storm__too_short_a_time_to_quiesce_is_found),
		cmocka_unit_test(nvmf_storm__a_namespace_that_goes_and_comes),
		cmocka_unit_test(nvmf_storm__two_tenants_on_one_subsystem_are_apart),
		cmocka_unit_test(nvmf_storm__losing_one_target_costs_tenants_of_another_nothing),
	};

	if (getenv("ROS2_EMULATED")) {
		puts("1..0 # SKIP emulated, commands take longer than they are given here");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

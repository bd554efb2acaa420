/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of the nvmf engine's start and first use: memory, descriptors, threads, watching.
 * What is not had is said by name and leaves nothing behind, and the next try works.
 */
#include "tests/nvmf/engine_rig.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* @rc is 0, or an error under a name, with words. */
static bool went(int rc, const struct ros2_err *err)
{
	if (rc == 0)
		return true;
	assert_true(sweep_fired());
	assert_int_equal(rc, err->code);
	if (err->status == ROS2_OK || err->status == ROS2_INTERNAL || !err->msg[0])
		fail_msg("%d %s: %s", rc, ros2_status_to_str(err->status), err->msg);
	return false;
}

static void io_ends(struct rig *g)
{
	struct rig_io i;
	int64_t res = rig_try(g, &i, g->all, ENGINE_OP_READ, 0, 65536, g->buf);

	if (res == 0)
		res = rig_wait(g, &i);
	if (res != 65536 && res != -ENOMEM && res != -ENOTCONN)
		fail_msg("a read ended %d", (int)res);
	assert_true(res == 65536 || sweep_fired());
}

/* As far as it is let. */
static void live(struct rig *g)
{
	struct engine_config c = {.name = "store", .nvmf = &g->config};
	struct engine_reactor_opts o = {.depth = RIG_DEPTH};
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t rw = ENGINE_READ | ENGINE_WRITE;

	g->ns = NULL;
	g->r = NULL;
	g->all = NULL;
	if (!went(nvmf_engine_create(&c, &fake_queue_ops, &g->e, &err), &err))
		return;
	if (went(g->ops->ns_open(g->e, &rig_who, "t/a", &g->ns, &err), &err) &&
	    went(g->ops->reactor_new(g->e, &o, &g->r, &err), &err) &&
	    went(g->ops->open(g->ns, "all", rw, 0, &g->all, NULL, &err), &err)) {
		io_ends(g);
		(void)g->ops->fsync(g->all, NULL);
		/* The target goes, and comes back or not. */
		fake_cut();
		io_ends(g);
	}
	g->ops->close(g->all);
	g->ops->ns_close(g->ns);
	g->ops->reactor_free(g->r);
	g->ops->destroy(g->e);
	assert_int_equal(fake_stats().open, 0);
}

static void nvmf_engine__that_cannot_start_says_why_and_leaves_nothing(void **state)
{
	static const struct sweep kinds[] = {{.kind = SWEEP_ALLOC, .error = ENOMEM},
	                                     {.kind = SWEEP_FD, .error = EMFILE},
	                                     {.kind = SWEEP_EPOLL_CTL, .error = ENOMEM},
	                                     {.kind = SWEEP_THREAD, .error = EAGAIN}};
	struct rig g;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct sweep s = kinds[i];
		unsigned fds = sweep_fds();

		while (sweep_next(&s)) {
			rig_init(&g);
			fake_write_cache(true);
			g.config.command_timeout_ms = 150;
			g.config.quiesce_ms = 10;
			g.buf = *state;
			live(&g);
			sweep_off();
			assert_true(sweep_fds_back(fds));
		}
		if (s.points < 2 * (kinds[i].kind == SWEEP_THREAD ? 1 : 4))
			fail_msg("kind %d: %u points", (int)kinds[i].kind, s.points);
	}
	rig_init(&g);
	g.buf = *state;
	live(&g);
}

int main(void)
{
	static uint8_t buf[RIG_BUF];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(
			nvmf_engine__that_cannot_start_says_why_and_leaves_nothing, buf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

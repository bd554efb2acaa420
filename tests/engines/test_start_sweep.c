/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of an engine's start and of opening: memory, descriptors, openat2, threads,
 * mappings (setting a ring up: test_uring_sweep.c). An engine, a namespace, a file or a reactor
 * that is not had says why and leaves nothing behind; a reactor that is had by a fallback works;
 * the next try works.
 */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct variant variants[] = {
	{.name = "ring", .type = "file", .base = "/var/tmp"},
	{.name = "threads", .type = "file", .base = "/var/tmp", .io_features = ENGINE_IO_NO_URING},
	{.name = "mem", .type = "mem"},
};

/* @rc is 0, or the fault's error under a name, with words. */
static bool went(int rc, const struct ros2_err *err)
{
	if (rc == 0)
		return true;
	assert_true(sweep_fired());
	assert_int_equal(rc, err->code);
	if (err->status == ROS2_OK || err->status == ROS2_INTERNAL ||
	    err->status == ROS2_UNSUPPORTED || !err->msg[0])
		fail_msg("%d %s: %s", rc, ros2_status_to_str(err->status), err->msg);
	return false;
}

static void write_and_read(struct fixture *fx, struct engine_file *f)
{
	uint8_t out[4096], in[4096];

	fx_pattern(out, 0, sizeof(out), 3);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, out, sizeof(out)), sizeof(out));
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, in, sizeof(in)), sizeof(in));
	assert_memory_equal(in, out, sizeof(in));
}

static void use_reactor(struct fixture *fx, struct engine *e, struct engine_file *f)
{
	struct engine_reactor_opts o = {
		.depth = FIXTURE_DEPTH, .buffers = fx->buffers, .n_buffers = FIXTURE_BUFFERS};
	struct engine_reactor *was = fx->r;
	struct ros2_err err = ROS2_ERR_INIT;

	if (!went(fx->ops->reactor_new(e, &o, &fx->r, &err), &err)) {
		fx->r = was;
		return;
	}
	/* With what was had before, the reactor works though the fault lasts. */
	write_and_read(fx, f);
	fx->ops->reactor_free(fx->r);
	fx->r = was;
}

/* As far as it is let. */
static void live(struct fixture *fx)
{
	struct engine_config c = {.name = "second",
	                          .root = fx->root[0] ? fx->root : NULL,
	                          .size_bytes = 1 << 20,
	                          .io_features = fx->v->io_features};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_file *f;
	struct engine_ns *ns;
	struct engine *e;

	if (!went(fx->ops->create(&c, &e, &err), &err))
		return;
	if (went(fx->ops->ns_open(e, &fixture_who, "/new/ns", &ns, &err), &err)) {
		if (went(fx->ops->open(ns, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE, 0600,
		                       &f, NULL, &err),
		         &err)) {
			use_reactor(fx, e, f);
			fx->ops->close(f);
		}
		fx->ops->ns_close(ns);
	}
	fx->ops->destroy(e);
}

static void engine__that_cannot_start_says_why_and_leaves_nothing(void **state)
{
	static const struct sweep kinds[] = {
		{.kind = SWEEP_ALLOC, .error = ENOMEM}, {.kind = SWEEP_MMAP, .error = ENOMEM},
		{.kind = SWEEP_FD, .error = EMFILE},    {.kind = SWEEP_FD, .error = ENFILE},
		{.kind = SWEEP_OPEN, .error = EMFILE},  {.kind = SWEEP_OPEN, .error = ENFILE},
		{.kind = SWEEP_THREAD, .error = EAGAIN}};
	struct fixture *fx = *state;
	uint32_t points = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct sweep s = kinds[i];
		unsigned fds = sweep_fds();

		while (sweep_next(&s)) {
			live(fx);
			sweep_off();
			assert_true(sweep_fds_back(fds));
			live(fx);
		}
		points += s.points;
	}
	assert_true(points >= 10);
}

#define V(i)                                                                                       \
	{                                                                                          \
		"engine__that_cannot_start_says_why_and_leaves_nothing",                           \
			engine__that_cannot_start_says_why_and_leaves_nothing, fixture_setup,      \
			fixture_teardown, (void *)&variants[i]                                     \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {V(0), V(1), V(2)};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

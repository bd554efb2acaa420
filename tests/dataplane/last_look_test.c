/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process is stopped between its look at the rights and the system call behind it, and goes on
 * when they have ended: the clock jumps there, right after an engine took a write and right after a
 * message was found good to be sent. Nothing may be handed on; with the last look switched off it
 * is.
 */
#include "tests/dataplane/fixture.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "tests/clock_ahead.h"
#include <errno.h>
#include <ftw.h>
#include <string.h>

#define LEASE_ENDS (40 * NS_PER_S) /* of the fixture's 30 s; its grant is good for 600 s */
#define GRANT_ENDS (700 * NS_PER_S)
#define LEN        4096u

/* ---- the clock ---- */

static _Atomic uint64_t jump_in_submit_ns, jump_in_look_ns; /* the next time, once */

enum ros2_status __real_request_may_hand_on(struct request *req, uint64_t now_ns);
enum ros2_status __wrap_request_may_hand_on(struct request *req, uint64_t now_ns);
enum ros2_status __wrap_request_may_hand_on(struct request *req, uint64_t now_ns)
{
	enum ros2_status st = __real_request_may_hand_on(req, now_ns);

	if (st == ROS2_OK)
		clock_ahead_ns += atomic_exchange(&jump_in_look_ns, 0);
	return st;
}

/* ---- engines that are stopped right after they took something ---- */

static struct engine_ops stopping;
static int (*submit)(struct engine_reactor *r, struct engine_io *io);

static int stopping_submit(struct engine_reactor *r, struct engine_io *io)
{
	int rc = submit(r, io);

	clock_ahead_ns += atomic_exchange(&jump_in_submit_ns, 0);
	return rc;
}

struct variant {
	const char *name;
	const struct engine_ops *ops;
	uint32_t io_features;
};
static const struct variant mem = {"mem", &engine_mem_ops, 0};
static const struct variant uring = {"uring", &engine_file_ops, 0};
static const struct variant threads = {"threads", &engine_file_ops, ENGINE_IO_NO_URING};
static char root[64];

static int setup(void **state)
{
	const struct variant *v = *state;

	stopping = *v->ops;
	stopping.type = "stopping";
	submit = v->ops->submit;
	stopping.submit = stopping_submit;
	dp_test_switches = (struct dp_test_switches){.extra_engine = &stopping};
	fx_engine_type = "stopping";
	fx_io_features = v->io_features;
	fx_engine_root = NULL;
	if (v->ops == &engine_file_ops) {
		strcpy(root, "/var/tmp/ros2-late-XXXXXX");
		fx_engine_root = mkdtemp(root);
	}
	return fx_setup(state);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static int teardown(void **state)
{
	int rc = fx_teardown(state);

	if (fx_engine_root)
		nftw(fx_engine_root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	fx_engine_root = NULL;
	dp_test_switches = (struct dp_test_switches){0};
	return rc;
}

/* ---- into an engine ---- */

static uint8_t buf[2 * LEN];

/* What lies in the file, for somebody whose rights stand. */
static uint8_t in_file(struct fx *fx)
{
	struct ros2_uid grant = ros2_uid_new();
	struct raw c;

	fx_contact(fx, clock_boottime_ns());
	assert_int_equal(fx_grant(fx, &grant, &fx->tenant, clock_boottime_ns() + 60 * NS_PER_S), 0);
	raw_open_as(fx, &c, &fx->tenant, &grant, UINT64_MAX);
	raw_connect(&c);
	raw_file(&c, "file");
	c.key = raw_register(&c, FX_BASE, LEN, 3);
	assert_int_equal(raw_read(&c, 0, buf, LEN, NULL), ROS2_OK);
	raw_close(&c);
	return buf[0];
}

/* A write that the engine has when the process stops, for so long. Returns what is in the file. */
static uint8_t write_and_stop(struct fx *fx, uint64_t ns, enum ros2_status want)
{
	struct raw c;

	raw_ready(fx, &c);
	memset(buf, 'a', LEN);
	assert_int_equal(raw_write(&c, 0, buf, LEN, true), ROS2_OK);
	memset(buf, 'b', LEN);
	jump_in_submit_ns = ns;
	if (want == ROS2_GRANT_EXPIRED) {
		struct wire_header h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, LEN);

		h.flags = WIRE_F_INLINE;
		h.payload_len = LEN;
		raw_send(&c, &h, buf, LEN);
		raw_expect_end(&c);
		fx_event(fx, DP_EVENT_SESSION_ENDED, want);
	} else {
		assert_int_equal(raw_write(&c, 0, buf, LEN, true), want);
	}
	assert_int_equal(jump_in_submit_ns, 0);
	raw_close(&c);
	return in_file(fx);
}

static void write__of_an_agent_stopped_past_the_lease_is_not_handed_on(void **state)
{
	assert_int_equal(write_and_stop(*state, LEASE_ENDS, ROS2_LEASE_EXPIRED), 'a');
}

static void write__of_an_agent_stopped_past_the_grant_is_not_handed_on(void **state)
{
	assert_int_equal(write_and_stop(*state, GRANT_ENDS, ROS2_GRANT_EXPIRED), 'a');
}

static void write__of_an_agent_stopped_for_less_is_handed_on(void **state)
{
	assert_int_equal(write_and_stop(*state, NS_PER_S, ROS2_OK), 'b');
}

static void control__without_the_last_look_the_write_is_handed_on(void **state)
{
	dp_test_switches.no_last_look = true;
	assert_int_equal(write_and_stop(*state, LEASE_ENDS, ROS2_OK), 'b');
}

/* ---- to the tenant ---- */

/* The first answer to @op when the process stops after the look. */
static struct wire_header ask_and_stop(struct fx *fx, enum wire_opcode op, uint64_t ns)
{
	struct wire_header h;
	struct raw c;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, LEN, true), ROS2_OK);
	jump_in_look_ns = ns;
	h = raw_header(&c, op, 0, FX_BASE, LEN);
	raw_send(&c, &h, NULL, 0);
	if (!raw_recv(&c, &h, buf, sizeof(buf)))
		h.opcode = 0; /* the connection ended */
	assert_int_equal(jump_in_look_ns, 0);
	raw_close(&c);
	return h;
}

static void payload__of_an_agent_stopped_past_the_lease_is_not_sent(void **state)
{
	struct wire_header h = ask_and_stop(*state, WIRE_READ, LEASE_ENDS);

	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_LEASE_EXPIRED);
}

static void payload__of_an_agent_stopped_past_the_grant_is_not_sent(void **state)
{
	assert_int_equal(ask_and_stop(*state, WIRE_READ, GRANT_ENDS).opcode, 0);
	fx_event(*state, DP_EVENT_SESSION_ENDED, ROS2_GRANT_EXPIRED);
}

static void invitation__of_an_agent_stopped_past_the_lease_is_not_sent(void **state)
{
	struct wire_header h = ask_and_stop(*state, WIRE_WRITE, LEASE_ENDS);

	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_LEASE_EXPIRED);
}

static void payload__of_an_agent_stopped_for_less_is_sent(void **state)
{
	assert_int_equal(ask_and_stop(*state, WIRE_READ, NS_PER_S).opcode, WIRE_DATA);
	assert_int_equal(ask_and_stop(*state, WIRE_WRITE, NS_PER_S).opcode, WIRE_PULL);
}

static void control__without_the_last_look_it_is_sent(void **state)
{
	dp_test_switches.no_last_look = true;
	assert_int_equal(ask_and_stop(*state, WIRE_READ, LEASE_ENDS).opcode, WIRE_DATA);
}

#define V(v, f)                                                                                    \
	{                                                                                          \
#f, f, setup, teardown, (void *)(uintptr_t)&v                                      \
	}
#define ALL(f) V(mem, f), V(uring, f), V(threads, f)
int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(write__of_an_agent_stopped_past_the_lease_is_not_handed_on),
		ALL(write__of_an_agent_stopped_past_the_grant_is_not_handed_on),
		ALL(write__of_an_agent_stopped_for_less_is_handed_on),
		ALL(control__without_the_last_look_the_write_is_handed_on),
		V(mem, payload__of_an_agent_stopped_past_the_lease_is_not_sent),
		V(mem, payload__of_an_agent_stopped_past_the_grant_is_not_sent),
		V(mem, invitation__of_an_agent_stopped_past_the_lease_is_not_sent),
		V(mem, payload__of_an_agent_stopped_for_less_is_sent),
		V(mem, control__without_the_last_look_it_is_sent),
	};

	if (!testing_has_openat2()) {
		puts("1..0 # SKIP no openat2 here: no file engine");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

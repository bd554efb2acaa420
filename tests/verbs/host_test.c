/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that goes without a word (its power, its cable) while its tenant's connections are silent:
 * the agent asks its device with a write of no bytes. Who answers stays, however long nobody says
 * anything; who does not is given up, and what he had is free again.
 */
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/verbs/peer.h"

#define ASKED_NS (30 * NS_PER_S)

static _Atomic uint32_t ticks; /* of the reactors */

void __real_verbs_tick(struct reactor *r);
void __wrap_verbs_tick(struct reactor *r);
void __wrap_verbs_tick(struct reactor *r)
{
	__real_verbs_tick(r);
	ticks++;
}

static uint64_t writes(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.writes;
}

/* A PING and its answer: the agent has sent something just now. */
static void says_something(struct peer *p)
{
	peer_send(p, (struct wire_header){.opcode = WIRE_PING}, NULL);
	assert_int_equal(peer_recv(p).opcode, WIRE_PONG);
}

static void silence__is_asked_about_once_in_its_time(void **state)
{
	struct fx *fx = *state;
	uint64_t before;
	struct peer p;

	peer_ready(fx, &p);
	says_something(&p);
	before = writes();
	for (uint32_t i = 1; i <= 3; i++) {
		clock_ahead_ns += ASKED_NS;
		AWAIT(writes() >= before + i);
		assert_int_equal(writes(), before + i);
	}
	/* It moved no byte, and the tenant's messages are what comes next. */
	says_something(&p);
	assert_int_equal(fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1), 0);
	peer_close(&p);
}

static void silence__is_of_one_connection(void **state)
{
	struct peer silent, busy;
	struct fx *fx = *state;
	uint64_t before;

	peer_ready(fx, &silent);
	peer_ready(fx, &busy);
	says_something(&silent);
	before = writes();
	clock_ahead_ns += ASKED_NS / 2;
	says_something(&busy);
	clock_ahead_ns += ASKED_NS / 2;
	AWAIT(writes() > before);
	/* By one that the busy one could have had as well: a turn looks at all of them. */
	says_something(&busy);
	assert_int_equal(writes(), before + 1);
	peer_close(&silent);
	peer_close(&busy);
}

/* One more session of the fixture's tenant has a place. */
static bool has_place(struct fx *fx)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX};

	if (fx_do(fx, FX_OPEN_SESSION, &a).status != ROS2_OK)
		return false;
	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &a).status, ROS2_OK);
	return true;
}

static void host__that_is_gone_is_given_up(void **state)
{
	struct fx *fx = *state;
	struct peer gone, other;
	struct dp_event ev;

	fx->limits.sessions_max = 2;
	fx_limits(fx);
	peer_ready(fx, &gone);
	peer_ready(fx, &other);
	assert_false(has_place(fx));
	fabric_mem_forge(gone.qp, FABRIC_OP_WRITE, FABRIC_END_NO_ANSWER);
	clock_ahead_ns += ASKED_NS;
	ev = fx_ended(fx, &gone.session);
	assert_int_equal(ev.status, ROS2_CLOSED);
	assert_non_null(strstr(ev.words, "the tenant's device does not answer"));
	assert_int_equal(ev.stats.violations, 0);
	assert_true(AWAIT(has_place(fx)));
	says_something(&other);
	peer_close(&gone);
	peer_close(&other);
}

/* Who lets nothing be written could not be answered either. */
static void device__that_refuses_to_be_asked_ends_its_own_connection(void **state)
{
	struct peer stubborn, other;
	struct fx *fx = *state;
	struct dp_event ev;

	peer_ready(fx, &stubborn);
	peer_ready(fx, &other);
	fabric_mem_forge(stubborn.qp, FABRIC_OP_WRITE, FABRIC_END_REMOTE_OTHER);
	clock_ahead_ns += ASKED_NS;
	ev = fx_ended(fx, &stubborn.session);
	assert_int_equal(ev.status, ROS2_CLOSED);
	assert_int_equal(ev.stats.violations, 0);
	says_something(&other);
	peer_close(&stubborn);
	peer_close(&other);
}

/* What waits is the question, and behind it the answer to the last message before BYE. */
static void bye__is_not_the_end_of_an_answer_that_is_on_its_way(void **state)
{
	struct fx *fx = *state;
	struct dp_event ev;
	struct peer p;
	uint32_t seen;

	peer_ready(fx, &p);
	says_something(&p);
	fabric_mem_hold(true);
	clock_ahead_ns += ASKED_NS;
	assert_true(AWAIT(fabric_mem_held() > 0));
	peer_send(&p, (struct wire_header){.opcode = WIRE_READ, .request_id = 7, .length = 1},
	          NULL);
	peer_send(&p, (struct wire_header){.opcode = WIRE_BYE}, NULL);
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_BAD_HANDLE);
	seen = ticks;
	assert_true(AWAIT(ticks - seen >= 4));
	assert_int_equal(fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1), 0);
	fabric_mem_hold(false);
	assert_int_equal(peer_recv(&p).opcode, WIRE_NAK);
	ev = fx_ended(fx, &p.session);
	assert_string_equal(ev.words, "the tenant said BYE");
	peer_close(&p);
}

static int setup(void **state)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return fx_setup(state);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(silence__is_asked_about_once_in_its_time),
		T(silence__is_of_one_connection),
		T(host__that_is_gone_is_given_up),
		T(device__that_refuses_to_be_asked_ends_its_own_connection),
		T(bye__is_not_the_end_of_an_answer_that_is_on_its_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

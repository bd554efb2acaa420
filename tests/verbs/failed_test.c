/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's completion queue has failed, and an engine holds a request of the tenant's as long as
 * it likes: the reactor takes what the queue pairs flush, and then sleeps again. One turn at a
 * time.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include "tests/await.h"
#include "tests/dataplane/slow_engine.h"
#include "tests/verbs/peer.h"
#include "tests/verbs/turns.h"
#include <sys/eventfd.h>

#define TURNS 16u

static int wake_fd;

/* The storage says when it has something: nobody needs to ask it in each turn. */
static int event_fd(struct engine_reactor *r)
{
	return wake_fd;
}

static void queue__that_failed_keeps_no_reactor_awake(void **state)
{
	struct fx *fx = *state;
	uint32_t awake = 0;
	struct peer p;

	peer_ready(fx, &p);
	slow_engine_shut(true);
	peer_send(&p, peer_request(&p, WIRE_READ, 0, 4096), NULL);
	slow_engine_wait_held(1);
	fabric_mem_report(p.qp, FABRIC_EVENT_CQ_FAILED, "the test says so");
	(void)fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_INTERNAL);
	turns_hold(fx);
	for (uint32_t i = 0; i < TURNS; i++)
		turns_step(fx);
	for (uint32_t i = 0; i < TURNS_REACTORS; i++)
		awake += verbs_must_poll(fx->dp->reactors[i]);
	turns_go_on();
	assert_int_equal(awake, 0);
	peer_close(&p);
}

static bool is_empty(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return !c.qps;
}

/* A device may speak of a queue when another has its place already, of another tenant even. */
static void word__of_a_queue_that_was_is_nothing_to_the_next(void **state)
{
	struct fx *fx = *state;
	struct peer was, is;
	uint64_t cookie;

	peer_ready(fx, &was);
	cookie = fabric_mem_peer_cookie(was.qp);
	fabric_mem_report(was.qp, FABRIC_EVENT_CQ_FAILED, "the test says so");
	(void)fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_INTERNAL);
	peer_close(&was);
	assert_true(AWAIT(is_empty()));
	peer_ready(fx, &is);
	fabric_mem_report_failed(is.qp, cookie);
	assert_true(AWAIT(fabric_mem_is_heard(is.qp)));
	/* a lease takes the same road to the reactor, behind it */
	peer_lease(&is, PEER_MEMORY, 3);
	peer_send(&is, (struct wire_header){.opcode = WIRE_PING}, NULL);
	assert_int_equal(peer_recv(&is).opcode, WIRE_PONG);
	peer_close(&is);
}

static int setup(void **state)
{
	slow_engine_init();
	slow_engine_ops.event_fd = event_fd;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dp_test_switches.extra_engine = &slow_engine_ops;
	fx_engine_type = "slow";
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return wake_fd < 0 ? -1 : fx_setup(state);
}

static int teardown(void **state)
{
	uint64_t one = 1;
	int rc;

	slow_engine_shut(false);
	(void)!write(wake_fd, &one, sizeof(one));
	rc = fx_teardown(state);
	dp_test_switches = (struct dp_test_switches){0};
	close(wake_fd);
	return rc;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(queue__that_failed_keeps_no_reactor_awake),
		T(word__of_a_queue_that_was_is_nothing_to_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which controller gives an agent contact, and what tenants hear without any. */
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <unistd.h>

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_start(w);
	world_agent_start(w);
	world_populate(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	return 0;
}

static enum ros2_status stat_handle(struct rpc_channel *c, struct ros2_uid *s, uint64_t h)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.handle = h;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, NULL);
}

static void agent__refuses_a_controller_of_an_older_epoch(void **state)
{
	struct world *w = *state;

	world_controller_stop(w);
	w->f.epoch.counter--;
	w->hellos = w->closed = w->beats = 0;
	world_controller_start(w);
	world_wait(w, &w->hellos, 2);
	world_wait(w, &w->closed, 2);
	assert_int_equal(w->beats, 0);
	world_controller_stop(w);
	w->f.epoch.counter += 2;
	world_controller_start(w);
	world_wait(w, &w->beats, 1);
}

static void tenant__is_denied_when_contact_is_lost(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c;
	Ros2__V1__AgentObject *o;
	struct ros2_uid s;

	fix_contact_limit = "1s";
	o = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 2);
	fix_contact_limit = "60s";
	world_send(w, &o, 1, false);
	world_wait(w, &w->acks, 2);
	c = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	w->silent = true;
	/* time: past the contact limit of a second */
	usleep(1500 * 1000);
	assert_int_equal(world_open_session(c, &s), ROS2_CONTACT_LOST);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_CONTACT_LOST);
	w->silent = false;
	assert_true(AWAIT(world_open_session(c, &s) == ROS2_OK));
	rpc_channel_free(c);
}

static void look_contact(void *arg)
{
	*(uint64_t *)arg = fake_dp_log.contact_ns;
}

/* A controller of before decision 0045 echoes the stamp of the hello in its Welcome, before what it
 * owes: a stream that is cut there, again and again, must give nothing. */
static void contact__is_not_given_by_a_stream_that_ends_after_its_welcome(void **state)
{
	struct world *w = *state;
	uint64_t contact[2];

	w->silent = true;
	for (int i = 0; i < 2; i++) {
		w->hellos = 0;
		world_cut(w);
		world_wait(w, &w->hellos, 1);
		/* A beat of this stream follows its Welcome. */
		w->beats = 0;
		world_wait(w, &w->beats, 1);
		loop_call(w->loop, look_contact, &contact[i]);
	}
	assert_true(contact[0] > 0);
	assert_true(contact[0] == contact[1]);
	w->silent = false;
	/* poll: the answer to a beat does */
	assert_true(
		AWAIT((loop_call(w->loop, look_contact, &contact[1]), contact[1] > contact[0])));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(agent__refuses_a_controller_of_an_older_epoch),
		T(tenant__is_denied_when_contact_is_lost),
		T(contact__is_not_given_by_a_stream_that_ends_after_its_welcome),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every opcode and every field of the header in the ring to the agent (garbage.h): each has the
 * answer or the end that is due, and another tenant's memory, file and session do not notice. With
 * a check switched off the walk finds that something else came.
 */
#include "tests/dataplane/garbage.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"

#define KIB4 4096u

struct attack {
	struct fx *fx;
	struct shm_raw t, victim;
	bool stands;
};

static void send_entry(void *arg, const struct wire_header *h)
{
	struct attack *a = arg;

	rs_put_bytes(&a->t, h);
}

static bool take_entry(void *arg, struct wire_header *h)
{
	struct attack *a = arg;

	return rs_take(&a->t, h, NULL);
}

static enum ros2_status new_session(void *arg, struct garbage *g)
{
	struct attack *a = arg;
	enum ros2_status st = ROS2_OK;

	if (a->stands) {
		struct fx_args close = {.session = a->t.c.session};

		fx_do(a->fx, FX_CLOSE_SESSION, &close);
		st = fx_ended(a->fx, &a->t.c.session).status;
		rs_end(&a->t);
	}
	fx_forget_events(a->fx);
	rs_ready(a->fx, &a->t);
	a->stands = true;
	g->handle = a->t.c.handle;
	g->key = a->t.c.key;
	g->generation = a->t.c.generation;
	g->address = SHM_BASE;
	return st;
}

static void begin(struct fx *fx, struct attack *a, struct garbage *g)
{
	*a = (struct attack){.fx = fx};
	rs_neighbour(fx, &a->victim);
	raw_file(&a->victim.c, "victim"); /* "file" is the attacker's */
	memset(a->victim.map + SHM_BASE, 'v', a->victim.offered);
	assert_int_equal(rs_write(&a->victim, 0, SHM_BASE, KIB4), ROS2_OK);
	*g = (struct garbage){.arg = a,
	                      .send = send_entry,
	                      .take = take_entry,
	                      .renew = new_session,
	                      .other_handle = a->victim.c.handle,
	                      .other_key = a->victim.c.key};
	(void)new_session(a, g);
}

static void end(struct attack *a)
{
	rs_end(&a->t);
	rs_end(&a->victim);
}

static void victim_is_untouched(struct attack *a)
{
	assert_int_equal(fx_stats(a->fx, &a->victim.c.session).violations, 0);
	for (uint64_t i = 0; i < a->victim.offered; i++)
		assert_int_equal(a->victim.map[SHM_BASE + i], 'v');
	memset(a->victim.map + SHM_BASE, 0, KIB4);
	assert_int_equal(rs_read(&a->victim, 0, SHM_BASE, KIB4), ROS2_OK);
	for (uint64_t i = 0; i < KIB4; i++)
		assert_int_equal(a->victim.map[SHM_BASE + i], 'v');
	rs_works(&a->victim);
}

static void walk__every_opcode_and_field_over_shm_has_what_is_due(void **state)
{
	struct attack a;
	struct garbage g;

	begin(*state, &a, &g);
	garbage_walk(&g);
	assert_int_equal(g.wrong, 0);
	assert_true(g.ended > 238 && g.naks > 50 && g.done > 100);
	/* Each that was answered so is told, and no other. */
	assert_true(AWAIT(fx_violations(*state) >= g.naks));
	assert_int_equal(fx_violations(*state), g.naks);
	victim_is_untouched(&a);
	end(&a);
}

static unsigned walked(struct fx *fx, enum wire_opcode op, const char *field)
{
	struct attack a;
	struct garbage g;

	begin(fx, &a, &g);
	garbage_walk_some(&g, op, field);
	end(&a);
	return g.wrong;
}

static void control__without_its_check_a_field_is_found(void **state)
{
	struct fx *fx = *state;

	assert_int_equal(walked(fx, WIRE_READ, "key"), 0);
	dp_test_switches.no_lease_check = true;
	assert_true(walked(fx, WIRE_READ, "key") > 0);
	dp_test_switches.no_lease_check = false;
	assert_int_equal(walked(fx, WIRE_FLUSH, "handle"), 0);
	dp_test_switches.no_handle_check = true;
	assert_true(walked(fx, WIRE_FLUSH, "handle") > 0);
}

static int teardown(void **state)
{
	dp_test_switches = (struct dp_test_switches){0};
	return fx_teardown(state);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fx_setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(walk__every_opcode_and_field_over_shm_has_what_is_due),
		T(control__without_its_check_a_field_is_found),
	};

	fx_shm = true;
	rs_bytes = WIRE_SHM_DATA_MIN;
	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places inside a reactor's engines, which all its tenants share: a tenant is asked for many
 * payloads while it has no place for them, and sends them all when its storage stands still.
 */
#include "dataplane/reactor_priv.h"
#include "tests/dataplane/slow_fixture.h"

#define SLOTS   (64u << 20) /* as a reactor has by default */
#define SMALL   512u
#define LARGE   (32u * 1024) /* of the next size of slots */
#define N_SMALL 4            /* sessions: with as many requests as credits, all slots there are */
#define N_LARGE 2            /* with a quarter of the slots each: half of them */
#define EACH    32
#define ASKED   (N_SMALL * DP_CREDITS + N_LARGE * EACH)

_Static_assert(ASKED > REACTOR_ENGINE_DEPTH, "they would take all places");

static uint8_t data[LARGE];

static void put_near(void *arg)
{
	struct fx *fx = arg;
	struct dp_engine_config c = {.name = "near", .type = "mem", .size_bytes = 64u << 20};

	assert_int_equal(dp_engine_put(fx->dp, &c, NULL), 0);
}

/* A session at the reactor of @port, 0 for any: they go to either in turn. */
static void session_at(struct fx *fx, struct raw *c, const struct ros2_uid *tenant,
                       const struct ros2_uid *grant, const char *engine, uint16_t port)
{
	struct fx_args a = {.to = engine, .path = "ns", .flags = 3};

	do {
		raw_open_as(fx, c, tenant, grant, UINT64_MAX);
	} while (port && c->port != port);
	raw_connect(c);
	a.session = c->session;
	a.mount = fx_do(fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	c->handle = fx_do(fx, FX_OPEN, &a).open.handle;
	c->key = raw_register(c, FX_BASE, 1u << 20, 3);
}

static void ask(struct raw *c, unsigned n, uint32_t length)
{
	while (n--) {
		struct wire_header h = raw_header(c, WIRE_WRITE, 0, FX_BASE, length);

		raw_send(c, &h, NULL, 0);
	}
}

static void take_pulls(struct raw *c, unsigned n, struct wire_header *pulls)
{
	for (unsigned i = 0; i < n; i++) {
		assert_true(raw_recv(c, &pulls[i], NULL, 0));
		assert_int_equal(pulls[i].opcode, WIRE_PULL);
	}
}

/* Whatever it said before has been taken, and given to its engine if it was to be. */
static void ping(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_PING, 0, 0, 0);

	raw_send(c, &h, NULL, 0);
	assert_true(raw_recv(c, &h, NULL, 0));
	assert_int_equal(h.opcode, WIRE_PONG);
}

static void answer(struct raw *c, unsigned n, const struct wire_header *pulls)
{
	for (unsigned i = 0; i < n; i++) {
		struct wire_header h = pulls[i];

		h.opcode = WIRE_DATA;
		raw_send(c, &h, data, h.length);
	}
	ping(c);
}

struct crowd {
	struct raw c[N_SMALL + N_LARGE], near;
};

static unsigned asked_of(unsigned i)
{
	return i < N_SMALL ? DP_CREDITS : EACH;
}

/* All that a tenant was asked for has come, and its storage does not answer. A neighbour is at the
 * same reactor, and at another engine. */
static void crowd_begin(struct crowd *t, struct fx *fx)
{
	static struct wire_header pulls[N_SMALL + N_LARGE][DP_CREDITS];
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	*t = (struct crowd){0};
	fx->limits.sessions_max = 64;
	fx_limits(fx);
	loop_call(fx->loop, put_near, fx);
	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	for (unsigned i = 0; i < N_SMALL + N_LARGE; i++)
		session_at(fx, &t->c[i], &fx->tenant, &fx->grant, "ram", t->c[0].port);
	session_at(fx, &t->near, &tenant, &grant, "near", t->c[0].port);
	for (unsigned i = 0; i < N_SMALL + N_LARGE; i++) {
		ask(&t->c[i], asked_of(i), i < N_SMALL ? SMALL : LARGE);
		take_pulls(&t->c[i], asked_of(i), pulls[i]);
	}
	slow_engine_shut(true);
	for (unsigned i = 0; i < N_SMALL + N_LARGE; i++)
		answer(&t->c[i], asked_of(i), pulls[i]);
}

/* The storage answers: all of it is done, of each session what came first before the others. */
static void crowd_end(struct crowd *t)
{
	struct wire_header h;

	slow_engine_shut(false);
	for (unsigned i = 0; i < N_SMALL + N_LARGE; i++) {
		uint64_t before = 0;

		for (unsigned n = asked_of(i); n > 0; n--) {
			assert_true(raw_recv(&t->c[i], &h, NULL, 0));
			assert_int_equal(h.opcode, WIRE_COMPLETE);
			assert_int_equal(h.status, ROS2_OK);
			assert_true(h.request_id > before);
			before = h.request_id;
		}
		raw_close(&t->c[i]);
	}
	raw_close(&t->near);
}

static int setup(void **state)
{
	fx_slot_bytes = SLOTS;
	return slow_setup(state);
}

static int teardown(void **state)
{
	fx_slot_bytes = 0;
	return slow_teardown(state);
}

static void places__are_not_all_taken_by_payloads_that_come_at_once(void **state)
{
	struct crowd t;

	crowd_begin(&t, *state);
	slow_engine_wait_held(REACTOR_ENGINE_TENANT);
	assert_int_equal(raw_write(&t.near, 0, data, SMALL, true), ROS2_OK);
	assert_int_equal(raw_write(&t.near, 0, data, SMALL, false), ROS2_OK);
	assert_int_equal(raw_read(&t.near, 0, data, SMALL, NULL), ROS2_OK);
	crowd_end(&t);
}

static void control__without_the_look_they_take_all_places(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct crowd t;

	dp_test_switches.no_pulled_places = true;
	crowd_begin(&t, fx);
	h = raw_header(&t.near, WIRE_READ, 0, FX_BASE, SMALL);
	raw_send(&t.near, &h, NULL, 0);
	ping(&t.near);
	assert_int_equal(fx_stats(fx, &t.near.session).read_ops, 0);
	assert_int_equal(fx_stats(fx, &t.near.session).in_flight, 1);
	crowd_end(&t);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(places__are_not_all_taken_by_payloads_that_come_at_once),
		T(control__without_the_look_they_take_all_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

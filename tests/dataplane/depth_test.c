/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant has inside an engine while others are there (depth.h): the rule alone, and a
 * reactor whose engine is behind a gate, so that what it was given can be counted.
 */
#include "dataplane/depth.h"
#include "dataplane/reactor_priv.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/slow_fixture.h"

#define N     3
#define KIB4  4096u
#define LARGE (128u * 1024)

/* ---- the rule: tenants that ask, an engine that answers the oldest ---- */

#define ENGINE_MAX 1024

struct model {
	struct depth_use use[N];
	struct depth_least least;
	struct {
		unsigned who, mark;
	} inside[ENGINE_MAX];
	unsigned first, n;
	unsigned wants[N], length[N], served[N];
};

static void tick(struct model *m)
{
	depth_least_begin(&m->least);
	for (int i = 0; i < N; i++)
		depth_least_add(&m->least, &m->use[i]);
}

/* As many as each wants and may have, in turns. */
static void fill(struct model *m)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < N; i++) {
			unsigned at;

			if (m->use[i].n >= m->wants[i] || !depth_allows(&m->use[i], &m->least))
				continue;
			at = (m->first + m->n++) % ENGINE_MAX;
			m->inside[at].who = i;
			m->inside[at].mark = depth_enter(&m->use[i], &m->least, m->length[i]);
			more = true;
		}
	}
}

/* So many ticks, in each of which the engine is done with so many. */
static void run(struct model *m, unsigned ticks, unsigned done)
{
	while (ticks--) {
		for (unsigned i = 0; i < done; i++) {
			unsigned who, mark;

			fill(m);
			if (!m->n)
				break;
			who = m->inside[m->first].who;
			mark = m->inside[m->first].mark;
			m->first = (m->first + 1) % ENGINE_MAX;
			m->n--;
			depth_leave(&m->use[who], &m->least, m->length[who], mark);
			m->served[who]++;
		}
		tick(m);
	}
	fill(m);
}

static struct model model_of(unsigned a, unsigned b, unsigned c)
{
	struct model m = {.wants = {a, b, c}, .length = {KIB4, KIB4, KIB4}};

	depth_least_begin(&m.least);
	return m;
}

static void depth__who_asks_for_more_gets_no_more(void **state)
{
	struct model m = model_of(32, 256, 200);

	run(&m, 20, 60);
	memset(m.served, 0, sizeof(m.served));
	run(&m, 20, 60);
	for (int i = 0; i < N; i++)
		assert_in_range(m.served[i], 380, 420);
}

static void depth__one_alone_has_all_it_wants(void **state)
{
	struct model m = model_of(0, 256, 0);

	run(&m, 10, 50);
	assert_int_equal(m.use[1].n, 256);
}

/* A hole in what one of them asks for is filled again: neither holds the other down. */
static void depth__two_that_ask_for_much_have_it(void **state)
{
	struct model m = model_of(256, 256, 0);

	run(&m, 10, 50);
	assert_int_equal(m.use[0].n, 256);
	assert_int_equal(m.use[1].n, 256);
	m.wants[0] = 40;
	run(&m, 10, 100);
	assert_int_equal(m.use[0].n, 40);
	assert_int_equal(m.use[1].n, 40);
	m.wants[0] = 256;
	run(&m, 10, 100);
	assert_int_equal(m.use[0].n, 256);
	assert_int_equal(m.use[1].n, 256);
}

static void depth__of_who_asks_for_little_others_keep_what_is_sure(void **state)
{
	struct model m = model_of(1, 256, 0);

	run(&m, 10, 100);
	assert_int_equal(m.use[0].n, 1);
	assert_int_equal(m.use[1].n, DEPTH_SURE);
	m.wants[0] = 0;
	run(&m, 4, 300);
	assert_int_equal(m.use[1].n, 256);
}

static void depth__is_counted_in_bytes(void **state)
{
	struct model m = model_of(32, 256, 0);

	m.length[1] = LARGE;
	run(&m, 10, 200);
	assert_int_equal(m.use[1].n, DEPTH_SURE_KIB * 1024 / LARGE);
	/* Whoever asks for large ones leaves as many bytes to who asks for small ones. */
	m = model_of(32, 256, 0);
	m.length[0] = 32u * 1024;
	run(&m, 10, 200);
	assert_int_equal(m.use[1].n, 256);
	assert_int_equal(depth_kib(0), DEPTH_LEAST_KIB);
	assert_int_equal(depth_kib(KIB4 + 1), 5);
	assert_int_equal(depth_kib(UINT32_MAX), 4u << 20);
}

/* One larger than all that is sure goes when nothing else of its tenant is inside. */
static void depth__one_is_always_allowed(void **state)
{
	struct model m = model_of(1, 8, 0);

	m.length[1] = 16u << 20;
	run(&m, 10, 20);
	assert_int_equal(m.use[1].n, 1);
	assert_true(m.served[1] > 50);
}

/* Its storage does not answer: what it has in the engine stays there, and is nobody's loss. */
static void depth__who_moves_nothing_holds_nobody_down(void **state)
{
	struct model m = model_of(0, 256, 0);
	uint32_t mark;

	mark = depth_enter(&m.use[0], &m.least, KIB4);
	run(&m, 4, 100);
	assert_int_equal(m.use[1].n, DEPTH_SURE);
	run(&m, DEPTH_STILL - 5, 100);
	assert_int_equal(m.use[1].n, DEPTH_SURE);
	run(&m, 4, 100);
	assert_int_equal(m.use[1].n, 256);
	/* It answers. */
	depth_leave(&m.use[0], &m.least, KIB4, mark);
	depth_enter(&m.use[0], &m.least, KIB4);
	run(&m, 4, 300);
	assert_int_equal(m.use[1].n, DEPTH_SURE);
}

#define HANG 31u

/* Some of a tenant's do not come out, and those that do are not kept waiting for them: neither
 * where all that is sure hangs, nor where one is left to go. */
static void hang(struct model *m, unsigned n, uint32_t marks[])
{
	*m = model_of(n, 1, 0);
	for (unsigned i = 0; i < n; i++)
		marks[i] = depth_enter(&m->use[0], &m->least, KIB4);
	m->wants[0] = 256;
	run(m, 4 * DEPTH_STILL, 100);
	assert_int_equal(m->use[0].n, n + DEPTH_SURE);
	memset(m->served, 0, sizeof(m->served));
	run(m, 10, 66);
	assert_in_range(m->served[0], 620, 660);
	assert_in_range(m->served[1], 15, 25);
}

static void depth__what_hangs_keeps_no_place_from_what_does_not(void **state)
{
	uint32_t marks[DEPTH_SURE];
	struct model m;

	hang(&m, DEPTH_SURE, marks);
	hang(&m, DEPTH_SURE - 1, marks);
	hang(&m, 1, marks);
}

/* It answers, in the end: nobody has more places for that it did not. */
static void depth__what_has_hung_gives_no_place(void **state)
{
	uint32_t marks[DEPTH_SURE];
	struct model m;

	hang(&m, DEPTH_SURE, marks);
	for (unsigned i = 0; i < DEPTH_SURE; i++) {
		depth_leave(&m.use[0], &m.least, KIB4, marks[i]);
		run(&m, 1, 10);
		assert_int_equal(m.use[0].n, 2 * DEPTH_SURE - 1 - i);
	}
	run(&m, 4 * DEPTH_STILL, 100);
	assert_int_equal(m.use[0].n, DEPTH_SURE);
	assert_int_equal(m.use[0].stuck.n, 0);
}

/* Each waits for many seconds, and nothing of one of them comes out while the other has its turn.
 */
static void depth__storage_that_is_slow_gives_no_place(void **state)
{
	struct model m = model_of(256, DEPTH_SURE, DEPTH_SURE);

	run(&m, 4, 100);
	for (int i = 0; i < 1000; i++) {
		run(&m, DEPTH_STILL / 10 - 1, 0);
		run(&m, 1, 1);
		assert_int_equal(m.use[0].stuck.n, 0);
		assert_in_range(m.use[0].n, 1, DEPTH_SURE);
	}
}

/* Its own that overtake them, out of the storage's cache, say nothing: that is up to it. */
static void depth__who_overtakes_itself_gets_no_place(void **state)
{
	struct model m = model_of(256, DEPTH_SURE, DEPTH_SURE);

	run(&m, 4, 100);
	m.wants[0] = DEPTH_SURE - 1;
	run(&m, 4, 100);
	for (int i = 0; i < 1000; i++) {
		run(&m, DEPTH_STILL / 10 - 1, 0);
		for (int k = 0; k < 10; k++)
			depth_leave(&m.use[0], &m.least, KIB4,
			            depth_enter(&m.use[0], &m.least, KIB4));
		run(&m, 1, 1);
		assert_int_equal(m.use[0].stuck.n, 0);
	}
}

/* ---- a reactor ---- */

#define SESSIONS 4
#define EACH     100

struct site {
	struct fx *fx;
	struct raw light, heavy[SESSIONS];
};

static uint8_t data[WIRE_IO_MAX];

static void session_at(struct site *t, struct raw *c, const struct ros2_uid *tenant,
                       const struct ros2_uid *grant)
{
	do {
		raw_open_as(t->fx, c, tenant, grant, UINT64_MAX);
	} while (c != &t->light && c->port != t->light.port);
	raw_connect(c);
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, 4u << 20, 3);
}

static void site_begin(struct site *t, struct fx *fx)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	*t = (struct site){.fx = fx};
	fx->limits.sessions_max = 64;
	fx_limits(fx);
	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	session_at(t, &t->light, &fx->tenant, &fx->grant);
	for (int i = 0; i < SESSIONS; i++)
		session_at(t, &t->heavy[i], &tenant, &grant);
	assert_int_equal(raw_write(&t->light, 0, data, sizeof(data), false), ROS2_OK);
	slow_engine_shut(true);
}

static uint32_t asked(const struct raw *c)
{
	return fx_stats(c->fx, &c->session).in_flight;
}

static void send_reads(struct raw *c, unsigned n, uint32_t length)
{
	for (unsigned i = 0; i < n; i++) {
		struct wire_header h = raw_header(c, WIRE_READ, 0, FX_BASE, length);

		raw_send(c, &h, NULL, 0);
	}
}

static void ask(struct raw *c, unsigned n, uint32_t length)
{
	send_reads(c, n, length);
	assert_true(AWAIT(asked(c) == n));
}

static uint64_t reads_done(const struct raw *c)
{
	return fx_stats(c->fx, &c->session).read_ops;
}

static void ask_much(struct site *t, unsigned each, uint32_t length)
{
	for (int i = 0; i < SESSIONS; i++)
		ask(&t->heavy[i], each, length);
}

static void ping(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_PING, 0, 0, 0);

	raw_send(c, &h, NULL, 0);
	assert_true(raw_recv(c, &h, NULL, 0));
	assert_int_equal(h.opcode, WIRE_PONG);
}

/* Two answers of the reactor are a whole turn. */
static void pass_ticks_of(struct raw *c, unsigned n)
{
	while (n--) {
		clock_ahead_ns += REACTOR_TICK_NS;
		ping(c);
		ping(c);
	}
}

/* As many as a tenant is remembered for, and one more. */
static void pass_ticks(struct raw *c)
{
	pass_ticks_of(c, 3);
}

static void take_ends(struct raw *c, unsigned n)
{
	struct wire_header h;

	while (n > 0) {
		assert_true(raw_recv(c, &h, data, sizeof(data)));
		assert_true(h.opcode == WIRE_DATA || h.status == ROS2_OK);
		n -= h.opcode == WIRE_COMPLETE;
	}
}

static void take_all(struct raw *c, unsigned n)
{
	take_ends(c, n);
	assert_true(AWAIT(asked(c) == 0));
}

static void take_much(struct site *t, unsigned each)
{
	for (int i = 0; i < SESSIONS; i++)
		take_all(&t->heavy[i], each);
}

static void site_end(struct site *t)
{
	raw_close(&t->light);
	for (int i = 0; i < SESSIONS; i++)
		raw_close(&t->heavy[i]);
}

static int setup(void **state)
{
	fx_slot_bytes = 64u << 20; /* as a reactor has by default */
	return slow_setup(state);
}

static int teardown(void **state)
{
	fx_slot_bytes = 0;
	return slow_teardown(state);
}

static void reactor__gives_a_flood_no_more_than_its_neighbour(void **state)
{
	struct site t;

	site_begin(&t, *state);
	ask(&t.light, 32, KIB4);
	slow_engine_wait_held(32);
	pass_ticks(&t.heavy[0]);
	ask_much(&t, EACH, KIB4);
	slow_engine_wait_held(32 + DEPTH_SURE);
	slow_engine_shut(false);
	take_all(&t.light, 32);
	take_much(&t, EACH);
	/* And all of it when that has gone. */
	pass_ticks(&t.heavy[0]);
	slow_engine_shut(true);
	ask_much(&t, EACH, KIB4);
	slow_engine_wait_held(REACTOR_ENGINE_TENANT);
	slow_engine_shut(false);
	take_much(&t, EACH);
	site_end(&t);
}

static void reactor__counts_bytes(void **state)
{
	struct site t;

	site_begin(&t, *state);
	ask(&t.light, 32, KIB4);
	slow_engine_wait_held(32);
	pass_ticks(&t.heavy[0]);
	ask_much(&t, 10, LARGE);
	slow_engine_wait_held(32 + DEPTH_SURE_KIB * 1024 / LARGE);
	slow_engine_shut(false);
	take_all(&t.light, 32);
	take_much(&t, 10);
	site_end(&t);
}

/* What is kept free of the reactor's places is kept as before. */
static void reactor__leaves_two_that_ask_for_much_alone(void **state)
{
	struct site t;

	site_begin(&t, *state);
	ask_much(&t, EACH, KIB4);
	slow_engine_wait_held(REACTOR_ENGINE_TENANT);
	pass_ticks(&t.light);
	ask(&t.light, EACH, KIB4);
	slow_engine_wait_held(REACTOR_ENGINE_TENANT + EACH);
	slow_engine_shut(false);
	take_all(&t.light, EACH);
	take_much(&t, EACH);
	site_end(&t);
}

/* One file of a tenant's does not answer; another of its does, at the same engine, while the
 * neighbour there asks for one after the other. */
static void reactor__serves_a_tenant_beside_what_hangs_of_it(void **state)
{
	struct site t;
	unsigned turns = 0;

	site_begin(&t, *state);
	ask(&t.heavy[0], DEPTH_SURE, KIB4);
	slow_engine_wait_held(DEPTH_SURE);
	slow_engine_keep(DEPTH_SURE);
	slow_engine_shut(false);
	for (; turns < 4 * DEPTH_STILL && reads_done(&t.heavy[1]) < EACH; turns++) {
		assert_int_equal(raw_write(&t.light, 0, data, KIB4, true), ROS2_OK);
		pass_ticks_of(&t.light, 1);
		if (turns == 3)
			send_reads(&t.heavy[1], EACH, KIB4);
	}
	assert_int_equal(reads_done(&t.heavy[1]), EACH);
	take_all(&t.heavy[1], EACH);
	assert_int_equal(asked(&t.heavy[0]), DEPTH_SURE);
	slow_engine_keep(0);
	take_all(&t.heavy[0], DEPTH_SURE);
	site_end(&t);
}

/* ---- two engines ---- */

static void put_near(void *arg)
{
	struct fx *fx = arg;
	struct dp_engine_config c = {.name = "near", .type = "mem", .size_bytes = 64u << 20};

	assert_int_equal(dp_engine_put(fx->dp, &c, NULL), 0);
}

/* A file at the other engine, of the same session. */
static uint64_t near_file(struct raw *c)
{
	struct fx_args a = {.session = c->session, .to = "near", .path = "ns", .flags = 3};

	a.mount = fx_do(c->fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	return fx_do(c->fx, FX_OPEN, &a).open.handle;
}

#define AT_EACH 40u

/* A tenant with files at both: what is sure to it at the first hangs, and the neighbour there asks
 * for one after the other. Few enough of them follow that what hangs is not known as that. */
struct two {
	struct site t;
	struct raw *both;
	uint64_t far, near, light_near;
};

static void small_write(struct site *t)
{
	assert_int_equal(raw_write(&t->light, 0, data, KIB4, true), ROS2_OK);
}

static void two_begin(struct two *w, struct fx *fx)
{
	site_begin(&w->t, fx);
	w->both = &w->t.heavy[0];
	w->far = w->both->handle;
	loop_call(fx->loop, put_near, fx);
	w->near = near_file(w->both);
	w->light_near = near_file(&w->t.light);
	ask(w->both, DEPTH_SURE, KIB4);
	slow_engine_wait_held(DEPTH_SURE);
	slow_engine_keep(DEPTH_SURE);
	slow_engine_shut(false);
	for (int i = 0; i < 3; i++) {
		small_write(&w->t);
		pass_ticks_of(&w->t.light, 1);
	}
}

static void two_end(struct two *w, unsigned asked_for)
{
	slow_engine_keep(0);
	take_all(w->both, asked_for);
	site_end(&w->t);
}

static void reactor__what_waits_for_one_engine_keeps_nothing_from_another(void **state)
{
	struct two w;

	two_begin(&w, *state);
	send_reads(w.both, AT_EACH, KIB4);
	w.both->handle = w.near;
	send_reads(w.both, AT_EACH, KIB4);
	w.both->handle = w.far;
	send_reads(w.both, 4, KIB4);
	for (unsigned i = 0; i < 8 * DEPTH_SURE && reads_done(w.both) < AT_EACH; i++)
		small_write(&w.t);
	assert_true(reads_done(w.both) >= AT_EACH);
	two_end(&w, DEPTH_SURE + 2 * AT_EACH + 4);
}

/* Writes of 1 MiB, of which its session may have the slot of one. */
static void ask_to_write(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_WRITE, 0, FX_BASE, sizeof(data));

	raw_send(c, &h, NULL, 0);
}

static void answer_pull(struct raw *c, struct wire_header *pull)
{
	assert_int_equal(pull->opcode, WIRE_PULL);
	pull->opcode = WIRE_DATA;
	raw_send(c, pull, data, sizeof(data));
}

/* All that it asked for ends, with what is pulled meanwhile. */
static void take_all_and_give(struct raw *c, unsigned n)
{
	struct wire_header h;

	while (n > 0) {
		assert_true(raw_recv(c, &h, data, sizeof(data)));
		if (h.opcode == WIRE_PULL)
			answer_pull(c, &h);
		else if (h.opcode == WIRE_COMPLETE) {
			assert_int_equal(h.status, ROS2_OK);
			n--;
		}
	}
}

/* Its payload is there, in the slot that the other one waits for, when its engine is full: that
 * one is not to be looked at first, again and again, when there is a place. */
static void reactor__who_has_its_slot_is_not_behind_who_waits_for_it(void **state)
{
	struct wire_header pull;
	struct site t;
	struct raw *both = &t.heavy[0];
	uint64_t near;

	site_begin(&t, *state);
	loop_call(t.fx->loop, put_near, t.fx);
	near = near_file(both);
	ask(&t.light, 1, KIB4);
	ask(both, DEPTH_SURE - 1, KIB4);
	slow_engine_wait_held(DEPTH_SURE);
	pass_ticks(both);
	ask_to_write(both);
	assert_true(raw_recv(both, &pull, data, sizeof(data)));
	send_reads(both, 1, KIB4);
	slow_engine_wait_held(DEPTH_SURE + 1);
	answer_pull(both, &pull);
	both->handle = near;
	ask_to_write(both);
	pass_ticks(both);
	slow_engine_shut(false);
	assert_true(AWAIT(fx_stats(t.fx, &both->session).write_ops == 1));
	take_all_and_give(both, DEPTH_SURE + 2);
	take_all(&t.light, 1);
	site_end(&t);
}

static int one_slot_setup(void **state)
{
	fx_slot_bytes = 8u << 20;
	return slow_setup(state);
}

/* How often it was asked in one turn whether storage is away: once for each request that is looked
 * at. */
static _Thread_local uint64_t turn_looked;
static _Thread_local uint32_t n_looked;
static _Atomic uint32_t most_looked;

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	n_looked = turn_looked == r->turn ? n_looked : 0;
	turn_looked = r->turn;
	return __real_admit_run(r);
}

static bool counting_away(const struct engine_reactor *r, const struct engine_file *f)
{
	if (++n_looked > atomic_load(&most_looked))
		atomic_store(&most_looked, n_looked);
	return false;
}

/* The neighbour writes 1 MiB at the other engine, for which it is served again and again, a part of
 * the cost each time. */
static uint32_t looked_at(struct fx *fx)
{
	struct two w;
	uint64_t far;
	uint32_t most;

	two_begin(&w, fx);
	far = w.t.light.handle;
	w.both->handle = w.near;
	send_reads(w.both, 1, KIB4);
	take_ends(w.both, 1);
	w.both->handle = w.far;
	send_reads(w.both, DP_CREDITS - DEPTH_SURE, KIB4);
	for (int i = 0; i < 4; i++)
		small_write(&w.t);
	atomic_store(&most_looked, 0);
	w.t.light.handle = w.light_near;
	assert_int_equal(raw_write(&w.t.light, 0, data, sizeof(data), false), ROS2_OK);
	most = atomic_load(&most_looked);
	w.t.light.handle = far;
	two_end(&w, DP_CREDITS);
	return most;
}

static void reactor__looks_once_at_what_waits_for_a_full_engine(void **state)
{
	assert_in_range(looked_at(*state), DP_CREDITS / 4, DP_CREDITS + DP_CREDITS / 2);
}

static void control__without_bounds_it_looks_again_and_again(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	assert_in_range(looked_at(*state), 4 * DP_CREDITS, UINT32_MAX);
}

static int counting_setup(void **state)
{
	fx_slot_bytes = 64u << 20;
	slow_prepare();
	slow_engine_ops.away = counting_away;
	return fx_setup(state);
}

static void control__without_the_bound_a_flood_has_half_of_the_places(void **state)
{
	struct site t;

	dp_test_switches.no_depth_bound = true;
	site_begin(&t, *state);
	ask(&t.light, 32, KIB4);
	slow_engine_wait_held(32);
	pass_ticks(&t.heavy[0]);
	ask_much(&t, EACH, KIB4);
	slow_engine_wait_held(32 + REACTOR_ENGINE_TENANT);
	slow_engine_shut(false);
	take_all(&t.light, 32);
	take_much(&t, EACH);
	site_end(&t);
}

int main(void)
{
#define T(f)        cmocka_unit_test_setup_teardown(f, setup, teardown)
#define COUNTING(f) cmocka_unit_test_setup_teardown(f, counting_setup, teardown)
#define ONE_SLOT(f) cmocka_unit_test_setup_teardown(f, one_slot_setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(depth__who_asks_for_more_gets_no_more),
		cmocka_unit_test(depth__one_alone_has_all_it_wants),
		cmocka_unit_test(depth__two_that_ask_for_much_have_it),
		cmocka_unit_test(depth__of_who_asks_for_little_others_keep_what_is_sure),
		cmocka_unit_test(depth__is_counted_in_bytes),
		cmocka_unit_test(depth__one_is_always_allowed),
		cmocka_unit_test(depth__who_moves_nothing_holds_nobody_down),
		cmocka_unit_test(depth__what_hangs_keeps_no_place_from_what_does_not),
		cmocka_unit_test(depth__what_has_hung_gives_no_place),
		cmocka_unit_test(depth__storage_that_is_slow_gives_no_place),
		cmocka_unit_test(depth__who_overtakes_itself_gets_no_place),
		T(reactor__gives_a_flood_no_more_than_its_neighbour),
		T(reactor__counts_bytes),
		T(reactor__leaves_two_that_ask_for_much_alone),
		T(reactor__serves_a_tenant_beside_what_hangs_of_it),
		T(reactor__what_waits_for_one_engine_keeps_nothing_from_another),
		ONE_SLOT(reactor__who_has_its_slot_is_not_behind_who_waits_for_it),
		COUNTING(reactor__looks_once_at_what_waits_for_a_full_engine),
		COUNTING(control__without_bounds_it_looks_again_and_again),
		T(control__without_the_bound_a_flood_has_half_of_the_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

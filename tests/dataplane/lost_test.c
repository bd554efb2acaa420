/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants whose storage does not answer, and one whose storage does: what the first push keeps
 * nothing from the last. Counted in turns of an engine that finishes in each turn all that it has
 * of files that are there, and nothing of files that are not ("lost..."): how many requests of the
 * healthy tenant are done in a turn, alone and beside the others. No clock is in it.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include <errno.h>
#include <stdatomic.h>

#define LOST  6 /* tenants at storage that is away */
#define DEPTH 64u
#define TURNS 8u
#define IO    4096u
#define FILES 64
#define HELD  4096

/* ---- the engine ---- */

static struct engine_ops half_ops;
static _Atomic(struct engine_file *) lost_files[FILES];
static _Atomic uint32_t n_lost_files, turns;
static _Atomic bool is_away; /* it is known that they do not answer */
static _Atomic bool is_over;
static _Atomic uint32_t n_there, n_lost, n_inside;
static struct ros2_uid healthy; /* set before threads use it */

struct half {
	struct engine_reactor *mem; /* owned */
	struct engine_io *there[HELD], *lost[HELD];
	uint32_t n_there, n_lost, turns_seen;
	bool was_away;
};

static struct half *half(const struct engine_reactor *r)
{
	return (struct half *)r;
}

static bool is_lost(const struct engine_file *f)
{
	for (uint32_t i = 0; i < atomic_load(&n_lost_files); i++)
		if (atomic_load(&lost_files[i]) == f)
			return true;
	return false;
}

static int half_open(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
                     struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err)
{
	int rc = engine_mem_ops.open(ns, path, flags, mode, ret, attr, err);

	if (rc == 0 && !strncmp(path, "lost", 4)) {
		assert_true(atomic_load(&n_lost_files) < FILES);
		atomic_store(&lost_files[atomic_load(&n_lost_files)], *ret);
		atomic_fetch_add(&n_lost_files, 1);
	}
	return rc;
}

static int half_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                            struct engine_reactor **ret, struct ros2_err *err)
{
	struct half *h = calloc(1, sizeof(*h));
	int rc = h ? engine_mem_ops.reactor_new(e, o, &h->mem, err) : -ENOMEM;

	if (rc < 0) {
		free(h);
		return rc;
	}
	*ret = (struct engine_reactor *)h;
	return 0;
}

static void half_reactor_free(struct engine_reactor *r)
{
	engine_mem_ops.reactor_free(half(r)->mem);
	free(r);
}

static int half_event_fd(struct engine_reactor *r)
{
	return -1;
}

static int half_submit(struct engine_reactor *r, struct engine_io *io)
{
	struct half *h = half(r);

	if (is_lost(io->file)) {
		h->lost[h->n_lost++] = io;
		atomic_fetch_add(&n_lost, 1);
	} else {
		h->there[h->n_there++] = io;
		atomic_fetch_add(&n_there, 1);
	}
	assert_true(h->n_lost < HELD && h->n_there < HELD);
	return 0;
}

static int half_kick(struct engine_reactor *r)
{
	return 0;
}

static void let_go(struct half *h, struct engine_io **ios, uint32_t *n, _Atomic uint32_t *total)
{
	for (uint32_t i = 0; i < *n; i++)
		if (engine_mem_ops.submit(h->mem, ios[i]) < 0)
			abort();
	atomic_fetch_sub(total, *n);
	*n = 0;
}

/* As the nvmf engine does it: the oldest stay. */
static uint32_t give_back(struct half *h, uint32_t keep)
{
	uint32_t n = 0;

	while (h->n_lost > keep && h->lost[h->n_lost - 1]->may_return) {
		struct engine_io *io = h->lost[--h->n_lost];

		atomic_fetch_sub(&n_lost, 1);
		n++;
		io->done(io, ENGINE_AWAY);
	}
	return n;
}

static uint32_t half_poll(struct engine_reactor *r, uint32_t max)
{
	struct half *h = half(r);
	bool away = atomic_load(&is_away);
	uint32_t now = atomic_load(&turns), n = 0;

	if (away && !h->was_away)
		n = give_back(h, 16);
	h->was_away = away;
	if (atomic_load(&is_over))
		let_go(h, h->lost, &h->n_lost, &n_lost);
	if (h->turns_seen != now || atomic_load(&is_over))
		let_go(h, h->there, &h->n_there, &n_there);
	h->turns_seen = now;
	n += engine_mem_ops.poll(h->mem, max);
	if (n == 0)
		/* time: this engine must be asked again and again, which leaves others the core */
		usleep(100);
	return n;
}

static uint32_t half_in_flight(const struct engine_reactor *r)
{
	return half(r)->n_there + half(r)->n_lost + engine_mem_ops.in_flight(half(r)->mem);
}

/* ---- how often it is asked in a turn of a reactor ---- */

static _Thread_local uint64_t turn_now, turn_asked, n_asked;
static _Atomic uint64_t most_asked;

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	turn_now = r->turn;
	return __real_admit_run(r);
}

static void note_asked(void)
{
	n_asked = turn_asked == turn_now ? n_asked + 1 : 1;
	turn_asked = turn_now;
	if (n_asked > atomic_load(&most_asked))
		atomic_store(&most_asked, n_asked);
}

static bool half_away(const struct engine_reactor *r, const struct engine_file *f)
{
	note_asked();
	return atomic_load(&is_away) && is_lost(f);
}

static uint32_t half_parked(const struct engine_reactor *r)
{
	return atomic_load(&is_away) ? half(r)->n_lost : 0;
}

static uint64_t half_copied(const struct engine_reactor *r)
{
	return engine_mem_ops.copied_bytes(half(r)->mem);
}

static bool half_of_lost(struct engine *e, const struct ros2_uid *tenant)
{
	return atomic_load(&is_away) && !ros2_uid_eq(tenant, &healthy);
}

static int half_mkdir(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err)
{
	atomic_fetch_add(&n_inside, 1);
	while (!strncmp(path, "lost", 4) && !atomic_load(&is_over))
		/* poll: a switch that a test turns */
		usleep(1000);
	return engine_mem_ops.mkdir(ns, path, mode, err);
}

static int setup(void **state)
{
	half_ops = engine_mem_ops;
	half_ops.type = "half";
	half_ops.open = half_open;
	half_ops.reactor_new = half_reactor_new;
	half_ops.reactor_free = half_reactor_free;
	half_ops.event_fd = half_event_fd;
	half_ops.submit = half_submit;
	half_ops.kick = half_kick;
	half_ops.poll = half_poll;
	half_ops.in_flight = half_in_flight;
	half_ops.copied_bytes = half_copied;
	half_ops.away = half_away;
	half_ops.parked = half_parked;
	half_ops.withdraw = NULL;
	half_ops.lost = half_of_lost;
	half_ops.mkdir = half_mkdir;
	atomic_store(&n_lost_files, 0);
	atomic_store(&turns, 0);
	atomic_store(&n_inside, 0);
	atomic_store(&n_there, 0);
	atomic_store(&n_lost, 0);
	atomic_store(&most_asked, 0);
	atomic_store(&is_away, false);
	atomic_store(&is_over, false);
	dp_test_switches = (struct dp_test_switches){.extra_engine = &half_ops};
	fx_engine_type = "half";
	return fx_setup(state);
}

static int teardown(void **state)
{
	atomic_store(&is_over, true);
	return fx_teardown(state);
}

/* ---- the tenants ---- */

struct run {
	struct fx *fx;
	struct raw healthy, lost[2 * LOST];
	uint32_t in_flight; /* of the healthy one */
};

static uint8_t buf[65536];

static void ready(struct fx *fx, struct raw *c, const struct ros2_uid *tenant,
                  const struct ros2_uid *grant, const char *file)
{
	raw_open_as(fx, c, tenant, grant, UINT64_MAX);
	raw_connect(c);
	raw_file(c, file);
	c->key = raw_register(c, FX_BASE, 1u << 20, 3);
}

/* Each has a session on each reactor. */
static void begin(struct run *t, struct fx *fx)
{
	struct ros2_uid tenant, grant;
	char name[16];

	*t = (struct run){.fx = fx};
	ready(fx, &t->healthy, &fx->tenant, &fx->grant, "there");
	for (int i = 0; i < 2 * LOST; i++) {
		if (i % 2 == 0) {
			tenant = ros2_uid_new();
			grant = ros2_uid_new();
			fx_tenant(fx, &tenant);
			assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
		}
		snprintf(name, sizeof(name), "lost%d", i);
		ready(fx, &t->lost[i], &tenant, &grant, name);
	}
}

static void end(struct run *t)
{
	atomic_store(&is_over, true);
	raw_close(&t->healthy);
	for (int i = 0; i < 2 * LOST; i++)
		raw_close(&t->lost[i]);
}

static void read_one(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_READ, 0, FX_BASE, IO);

	raw_send(c, &h, NULL, 0);
}

/* All that their credits let them. */
static void push(struct run *t)
{
	for (int i = 0; i < 2 * LOST; i++)
		for (int n = 0; n < 128; n++)
			read_one(&t->lost[i]);
}

/* Until it does not change any more. */
static uint32_t settled(_Atomic uint32_t *of)
{
	uint32_t was, now = atomic_load(of);

	do {
		was = now;
		/* poll: until nothing more is taken */
		usleep(150 * 1000);
		now = atomic_load(of);
	} while (now != was);
	return now;
}

static void grow(_Atomic uint32_t *of, uint32_t to)
{
	AWAIT(atomic_load(of) >= to);
}

/* How many reads of the healthy tenant are done in TURNS turns, with DEPTH in flight. */
static uint32_t done_in_turns(struct run *t, uint32_t expected)
{
	struct wire_header h;
	uint32_t done = 0;

	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t n;

		for (; t->in_flight < DEPTH; t->in_flight++)
			read_one(&t->healthy);
		if (expected)
			grow(&n_there, expected);
		n = expected && atomic_load(&n_there) >= expected ? atomic_load(&n_there)
		                                                  : settled(&n_there);
		atomic_fetch_add(&turns, 1);
		for (uint32_t i = 0; i < n; t->in_flight--, i++) {
			do {
				assert_true(raw_recv(&t->healthy, &h, buf, sizeof(buf)));
			} while (h.opcode == WIRE_DATA);
			assert_int_equal(h.opcode, WIRE_COMPLETE);
			assert_int_equal(h.status, ROS2_OK);
		}
		done += n;
	}
	return done;
}

static void tenants_at_lost_targets__take_no_turn_of_one_at_a_healthy_one(void **state)
{
	struct run t;
	uint32_t alone, beside;

	begin(&t, *state);
	alone = done_in_turns(&t, DEPTH);
	assert_int_equal(alone, TURNS * DEPTH);
	atomic_store(&is_away, true);
	push(&t);
	/* Of each tenant the first few at each reactor, and no more. */
	assert_int_equal(settled(&n_lost), 2 * LOST * 16);
	beside = done_in_turns(&t, DEPTH);
	if (beside * 10 < alone * 9)
		fail_msg("alone %u in %u turns, beside %d others %u", alone, TURNS, LOST, beside);
	end(&t);
}

static void requests_inside_when_a_target_is_lost__are_given_back(void **state)
{
	struct run t;
	uint32_t alone, beside, hanging;

	begin(&t, *state);
	alone = done_in_turns(&t, DEPTH);
	push(&t);
	hanging = settled(&n_lost);
	assert_true(hanging > 2 * 16 * LOST);
	/* Nobody knows it yet: the first ones of the healthy tenant have places all the same. */
	for (; t.in_flight < DEPTH; t.in_flight++)
		read_one(&t.healthy);
	assert_true(settled(&n_there) > 0);
	atomic_store(&is_away, true);
	beside = done_in_turns(&t, DEPTH);
	if (beside * 10 < alone * 9)
		fail_msg("alone %u in %u turns, beside %d others %u", alone, TURNS, LOST, beside);
	/* Nothing was lost on the way: when it comes back all of them are done. */
	atomic_store(&is_away, false);
	atomic_store(&is_over, true);
	for (int i = 0; i < 2 * LOST; i++) {
		for (int n = 0; n < 128; n++) {
			struct wire_header h;

			do {
				assert_true(raw_recv(&t.lost[i], &h, buf, sizeof(buf)));
			} while (h.opcode == WIRE_DATA);
			assert_int_equal(h.opcode, WIRE_COMPLETE);
			assert_int_equal(h.status, ROS2_OK);
		}
	}
	fx_no_slots(*state);
	end(&t);
}

static void without_the_shares__they_take_them_all(void **state)
{
	struct run t;
	uint32_t alone, beside;

	dp_test_switches.no_lost_share = true;
	begin(&t, *state);
	alone = done_in_turns(&t, DEPTH);
	atomic_store(&is_away, true);
	push(&t);
	(void)settled(&n_lost);
	beside = done_in_turns(&t, 0);
	if (beside * 10 >= alone * 9)
		fail_msg("alone %u in %u turns, beside %d others %u", alone, TURNS, LOST, beside);
	end(&t);
}

/* ---- what is looked at ---- */

static void put_near(void *arg)
{
	struct fx *fx = arg;
	struct dp_engine_config c = {.name = "near", .type = "mem", .size_bytes = 64u << 20};

	assert_int_equal(dp_engine_put(fx->dp, &c, NULL), 0);
}

/* @c has a file at a second engine, too, and has written to it. */
static void at_near(struct raw *c)
{
	struct fx_args a = {.session = c->session, .to = "near", .path = "ns", .flags = 3};
	uint64_t first = c->handle;

	a.mount = fx_do(c->fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	c->handle = fx_do(c->fx, FX_OPEN, &a).open.handle;
	assert_int_equal(raw_write(c, 0, buf, IO, true), ROS2_OK);
	if (first)
		c->handle = first;
}

/* A tenant has all its credits at storage that is away, and its session uses another engine, too. A
 * neighbour there writes 1 MiB, for which it is served again and again, a part of its cost each
 * time. How many requests were looked at in one turn at most. */
static uint64_t looked_at(struct fx *fx)
{
	static const uint8_t large[WIRE_IO_MAX];
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct raw lost, d = {.port = 0};

	loop_call(fx->loop, put_near, fx);
	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	ready(fx, &lost, &fx->tenant, &fx->grant, "lost");
	at_near(&lost);
	while (d.port != lost.port)
		raw_open_as(fx, &d, &tenant, &grant, UINT64_MAX);
	raw_connect(&d);
	d.key = raw_register(&d, FX_BASE, 1u << 20, 3);
	at_near(&d);
	atomic_store(&is_away, true);
	for (int n = 0; n < 128; n++)
		read_one(&lost);
	assert_int_equal(settled(&n_lost), 16);
	atomic_store(&most_asked, 0);
	assert_int_equal(raw_write(&d, 0, large, sizeof(large), false), ROS2_OK);
	atomic_store(&is_over, true);
	raw_close(&lost);
	raw_close(&d);
	return atomic_load(&most_asked);
}

static void requests_at_lost_storage__are_looked_at_once_a_turn(void **state)
{
	assert_in_range(looked_at(*state), 1, 128);
}

static void control__without_bounds_they_are_looked_at_again_and_again(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	assert_true(looked_at(*state) > 1024);
}

/* ---- control calls ---- */

struct caller {
	struct fx *fx;
	struct fx_args a;
	struct dp_result res;
	pthread_t thread;
};

static void *make_dir(void *arg)
{
	struct caller *c = arg;

	c->res = fx_do(c->fx, FX_PATH, &c->a);
	return NULL;
}

/* Three tenants with a call that waits for storage that is away; returns how many are inside. */
static uint32_t call_lost(struct run *t, struct caller c[3])
{
	static const char *const names[] = {"lost0", "lost1", "lost2"};

	healthy = t->fx->tenant;
	atomic_store(&is_away, true);
	for (int i = 0; i < 3; i++) {
		c[i] = (struct caller){.fx = t->fx,
		                       .a = {.session = t->lost[2 * i].session,
		                             .mount = 1,
		                             .path_op = DP_MKDIR,
		                             .path = names[i]}};
		pthread_create(&c[i].thread, NULL, make_dir, &c[i]);
	}
	return settled(&n_inside);
}

static void let_all_go(struct run *t, struct caller c[3])
{
	atomic_store(&is_over, true);
	for (int i = 0; i < 3; i++)
		pthread_join(c[i].thread, NULL);
	end(t);
}

static void calls_that_wait_for_a_lost_target__leave_a_worker_to_the_others(void **state)
{
	struct fx_args a = {.mount = 1, .path_op = DP_MKDIR, .path = "other"};
	struct caller c[3];
	struct run t;

	begin(&t, *state);
	assert_int_equal(call_lost(&t, c), 1); /* of two workers */
	a.session = t.healthy.session;
	assert_int_equal(fx_do(t.fx, FX_PATH, &a).status, ROS2_OK);
	assert_int_equal(atomic_load(&n_inside), 2);
	let_all_go(&t, c);
}

/* Its call that is inside has not ended, and nobody made or ended another: only a look finds it. */
static void calls_left_out_for_a_lost_target__begin_when_it_is_back(void **state)
{
	struct caller c[3];
	struct run t;

	begin(&t, *state);
	assert_int_equal(call_lost(&t, c), 1);
	atomic_store(&is_away, false);
	assert_true(AWAIT(atomic_load(&n_inside) == 2)); /* all workers */
	let_all_go(&t, c);
}

static void without_the_look__they_are_left_out_until_another_call_ends(void **state)
{
	struct caller c[3];
	struct run t;

	dp_test_switches.no_look_again = true;
	begin(&t, *state);
	assert_int_equal(call_lost(&t, c), 1);
	atomic_store(&is_away, false);
	assert_int_equal(settled(&n_inside), 1);
	let_all_go(&t, c);
}

static void without_the_shares__they_take_all_workers(void **state)
{
	struct caller c[3];
	struct run t;

	dp_test_switches.no_lost_share = true;
	begin(&t, *state);
	assert_int_equal(call_lost(&t, c), 2);
	let_all_go(&t, c);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(tenants_at_lost_targets__take_no_turn_of_one_at_a_healthy_one),
		T(requests_inside_when_a_target_is_lost__are_given_back),
		T(without_the_shares__they_take_them_all),
		T(requests_at_lost_storage__are_looked_at_once_a_turn),
		T(control__without_bounds_they_are_looked_at_again_and_again),
		T(calls_that_wait_for_a_lost_target__leave_a_worker_to_the_others),
		T(calls_left_out_for_a_lost_target__begin_when_it_is_back),
		T(without_the_look__they_are_left_out_until_another_call_ends),
		T(without_the_shares__they_take_all_workers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

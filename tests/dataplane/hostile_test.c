/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile tenant may do to its neighbours, and what may still be begun for one whose rights
 * have ended: attempts to take everything that is shared. Linked with the library that has the
 * switches, for an engine behind a gate.
 */
#include "tests/dataplane/fixture.h"
#include "dataplane/reactor_priv.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "dataplane/tcp_priv.h"
#include "dataplane/wire_codec.h"
#include "tests/dataplane/slow_fixture.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define SESSIONS 8
/* Of one tenant, in the engine, of both reactors: eight sessions ask for twice as many. */
#define FLUSHES_HELD (2 * REACTOR_SLOTLESS_MAX)

static uint8_t buf[1u << 20];

/* A session of a tenant of its own. */
static void neighbour(struct fx *fx, struct raw *c)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	raw_open_as(fx, c, &tenant, &grant, UINT64_MAX);
	raw_connect(c);
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, 1u << 20, 3);
}

static void flushes__of_one_tenant_leave_room_in_the_engine_for_another(void **state)
{
	struct fx *fx = *state;
	struct raw c[SESSIONS], d;
	struct wire_header h;

	slow_engine_shut(true);
	for (int i = 0; i < SESSIONS; i++) {
		raw_open(fx, &c[i]);
		raw_connect(&c[i]);
		raw_file(&c[i], "file");
		for (int n = 0; n < 128; n++) {
			h = raw_header(&c[i], WIRE_FLUSH, 0, 0, 0);
			raw_send(&c[i], &h, NULL, 0);
		}
	}
	slow_engine_wait_held(FLUSHES_HELD);
	neighbour(fx, &d);
	h = raw_header(&d, WIRE_READ, 0, FX_BASE, 4096);
	raw_send(&d, &h, NULL, 0);
	slow_engine_wait_held(FLUSHES_HELD + 1);
	slow_engine_shut(false);
	assert_true(raw_recv(&d, &h, buf, sizeof(buf)));
	for (int i = 0; i < SESSIONS; i++)
		raw_close(&c[i]);
	raw_close(&d);
}

/* However small: what makes a hole keeps as many threads of the kernel busy as a flush. */
static void clears__of_one_tenant_are_few_in_an_engine_at_once(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c, d;

	raw_features = WIRE_FEATURE_CLEAR;
	raw_ready(fx, &c);
	raw_features = 0;
	slow_engine_shut(true);
	for (int n = 0; n < 100; n++) {
		h = raw_clear_header(&c, WIRE_ZERO, 0, 4096);
		raw_send(&c, &h, NULL, 0);
	}
	slow_engine_wait_held(REACTOR_SLOTLESS_MAX);
	/* Behind them all. */
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, 4096);
	raw_send(&c, &h, NULL, 0);
	slow_engine_wait_held(REACTOR_SLOTLESS_MAX + 1);
	neighbour(fx, &d);
	slow_engine_shut(false);
	assert_int_equal(raw_write(&d, 0, buf, 4096, true), ROS2_OK);
	raw_close(&c);
	raw_close(&d);
}

/* Asks to write and never sends what it is asked for, where it is asked. */
static void stall(struct raw *c, int n, bool asked)
{
	struct wire_header h;

	for (int i = 0; i < n; i++) {
		h = raw_header(c, WIRE_WRITE, 0, FX_BASE, WIRE_IO_MAX);
		raw_send(c, &h, NULL, 0);
	}
	if (!asked)
		return;
	assert_true(raw_recv(c, &h, buf, sizeof(buf)));
	assert_int_equal(h.opcode, WIRE_PULL);
}

static void slots__are_not_kept_from_others_by_tenants_that_never_answer(void **state)
{
	struct fx *fx = *state;
	struct raw a[4], b[4], c, idle;
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	neighbour(fx, &idle);
	/* In pairs, so that each tenant has two on each reactor. */
	for (int i = 0; i < 8; i++) {
		bool second = i & 2;
		struct raw *s = second ? &b[(i & 4) / 2 + (i & 1)] : &a[(i & 4) / 2 + (i & 1)];

		raw_open_as(fx, s, second ? &tenant : &fx->tenant, second ? &grant : &fx->grant,
		            UINT64_MAX);
		raw_connect(s);
		raw_file(s, "file");
		s->key = raw_register(s, FX_BASE, 1u << 20, 3);
		/* The last quarter is kept for tenants that have none yet. */
		stall(s, 8, i < 6);
	}
	neighbour(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, sizeof(buf), false), ROS2_OK);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_TIMEOUT);
	/* Being idle is not stalling. */
	assert_int_equal(raw_write(&idle, 0, buf, sizeof(buf), false), ROS2_OK);
	for (int i = 0; i < 4; i++) {
		raw_close(&a[i]);
		raw_close(&b[i]);
	}
	raw_close(&c);
	raw_close(&idle);
}

/* ---- messages that cost nothing ---- */

static _Thread_local uint32_t messages; /* that this reactor has taken since its last turn */
static _Atomic uint32_t most_messages;

enum ros2_status __real_wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                               struct wire_header *ret, const char **ret_words);
enum ros2_status __wrap_wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                               struct wire_header *ret, const char **ret_words);
enum ros2_status __wrap_wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                               struct wire_header *ret, const char **ret_words)
{
	if (++messages > most_messages)
		most_messages = messages;
	return __real_wire_parse_from_tenant(bytes, ret, ret_words);
}

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	messages = 0;
	return __real_admit_run(r);
}

/* The most messages that a turn took of one connection, of a flood to which there is no answer. */
static uint32_t flood_of_pongs(struct fx *fx)
{
	static struct wire_header pongs[TCP_INPUT / WIRE_HEADER_LEN];
	struct wire_header h;
	struct raw c;

	raw_open(fx, &c);
	raw_connect(&c);
	most_messages = 0;
	for (size_t i = 0; i < ARRAY_SIZE(pongs); i++) {
		pongs[i] = (struct wire_header){.opcode = WIRE_PONG};
		wire_seal(&pongs[i]);
	}
	for (int i = 0; i < 32; i++)
		raw_send_bytes(&c, pongs, sizeof(pongs));
	h = raw_header(&c, WIRE_PING, 0, 0, 0);
	raw_send(&c, &h, NULL, 0);
	assert_true(raw_recv(&c, &h, NULL, 0));
	assert_int_equal(h.opcode, WIRE_PONG);
	raw_close(&c);
	return most_messages;
}

static void turn__takes_a_bounded_number_of_messages_of_a_connection(void **state)
{
	assert_in_range(flood_of_pongs(*state), 1, TCP_MESSAGES);
}

static void control__without_bounds_a_turn_takes_what_there_is(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	assert_true(flood_of_pongs(*state) > TCP_MESSAGES);
}

/* ---- the share of one engine, beside another ---- */

#define PART   (128u * 1024)
#define ALLOWS 8u /* of this size: a session, by a quarter of the pool */
#define HELD   "the tenant held buffers that others waited for"

static void put_near(void *arg)
{
	struct fx *fx = arg;
	struct dp_engine_config c = {.name = "near", .type = "mem", .size_bytes = 64u << 20};

	assert_int_equal(dp_engine_put(fx->dp, &c, NULL), 0);
}

static void file_at(struct raw *c, const char *engine)
{
	struct fx_args a = {.session = c->session, .to = engine, .path = "ns", .flags = 3};

	a.mount = fx_do(c->fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	c->handle = fx_do(c->fx, FX_OPEN, &a).open.handle;
	c->key = raw_register(c, FX_BASE, 4u << 20, 3);
}

/* A session at the reactor of @port, 0 for any: they go to either in turn. */
static void session_at(struct fx *fx, struct raw *c, const struct ros2_uid *tenant,
                       const struct ros2_uid *grant, uint16_t port)
{
	do {
		raw_open_as(fx, c, tenant, grant, UINT64_MAX);
	} while (port && c->port != port);
}

/* What it wrote is asked for, and comes. */
static void answer(struct raw *c, unsigned n)
{
	struct wire_header h;

	for (unsigned i = 0; i < n; i++) {
		assert_true(raw_recv(c, &h, buf, sizeof(buf)));
		assert_int_equal(h.opcode, WIRE_PULL);
		h.opcode = WIRE_DATA;
		raw_send(c, &h, buf, PART);
	}
	for (unsigned i = 0; i < n; i++) {
		assert_true(raw_recv(c, &h, buf, sizeof(buf)));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
	}
}

static void write_part(struct raw *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct wire_header h = raw_header(c, WIRE_WRITE, 0, FX_BASE, PART);

		raw_send(c, &h, NULL, 0);
	}
}

static bool has_ended(struct fx *fx, const struct raw *c, const char *words)
{
	bool yes = false;

	pthread_mutex_lock(&fx->lock);
	for (uint32_t i = 0; i < fx->n_events; i++)
		yes |= fx->events[i].type == DP_EVENT_SESSION_ENDED &&
		       ros2_uid_eq(&fx->events[i].session, &c->session) &&
		       fx->events[i].status == ROS2_TIMEOUT && strstr(fx->events[i].words, words);
	pthread_mutex_unlock(&fx->lock);
	return yes;
}

struct crowd {
	struct fx *fx;
	struct raw a[2], b[2], near;
};

/* At one reactor, with two engines: tenant A holds all that requests for the first one may hold
 * together, and never answers; so does B's first session with the one buffer that B has all the
 * same. B's second session asks for more. A third tenant, at the other engine, does not answer
 * either. There are free buffers. */
static void crowd_begin(struct crowd *t, struct fx *fx)
{
	struct ros2_uid tenant[2] = {ros2_uid_new(), ros2_uid_new()};
	struct ros2_uid grant[2] = {ros2_uid_new(), ros2_uid_new()};
	struct raw *all[] = {&t->a[0], &t->a[1], &t->b[0], &t->b[1], &t->near};
	uint32_t asks[] = {ALLOWS, ALLOWS, 1, 0, 1}, slots = 0;

	*t = (struct crowd){.fx = fx};
	fx->limits.lease_ttl_ms = 600000; /* longer than what the clock is ahead */
	fx_limits(fx);
	loop_call(fx->loop, put_near, fx);
	for (int i = 0; i < 2; i++) {
		fx_tenant(fx, &tenant[i]);
		assert_int_equal(fx_grant(fx, &grant[i], &tenant[i], UINT64_MAX), 0);
	}
	for (int i = 0; i < 5; i++) {
		const struct ros2_uid *of = i < 2 ? &fx->tenant : &tenant[i / 4];
		const struct ros2_uid *by = i < 2 ? &fx->grant : &grant[i / 4];

		session_at(fx, all[i], of, by, t->a[0].port);
		raw_connect(all[i]);
		file_at(all[i], i < 4 ? "ram" : "near");
	}
	for (int i = 0; i < 5; i++) {
		write_part(all[i], asks[i]);
		slots += asks[i];
		assert_true(AWAIT(fx_slots(fx) == slots));
	}
	write_part(&t->b[1], 1);
}

static void crowd_end(struct crowd *t)
{
	for (int i = 0; i < 2; i++) {
		raw_close(&t->a[i]);
		raw_close(&t->b[i]);
	}
	raw_close(&t->near);
}

static void share_of_an_engine__is_not_kept_from_others_by_tenants_that_never_answer(void **state)
{
	struct crowd t;

	crowd_begin(&t, *state);
	clock_ahead_ns += 100 * NS_PER_S;
	answer(&t.b[1], 1);
	for (int i = 0; i < 2; i++)
		assert_true(AWAIT(has_ended(t.fx, &t.a[i], HELD)));
	/* Nobody waits for what those of the other engine hold. */
	answer(&t.near, 1);
	crowd_end(&t);
}

/* The control. That the time is over is seen at a session that nobody connects to, which the timer
 * of the same reactor ends after it has looked at the others. */
static void without_the_end__the_share_of_an_engine_is_kept_from_others(void **state)
{
	struct pollfd p = {.events = POLLIN};
	struct crowd t;
	struct raw late;

	dp_test_switches.no_crowded_end = true;
	crowd_begin(&t, *state);
	/* Behind what waits, and of another size. */
	assert_int_equal(raw_read(&t.b[1], 0, buf, 4096, NULL), ROS2_OK);
	session_at(t.fx, &late, &t.fx->tenant, &t.fx->grant, t.a[0].port);
	clock_ahead_ns += 100 * NS_PER_S;
	assert_true(AWAIT(has_ended(t.fx, &late, "no HELLO within 10 s")));
	p.fd = t.b[1].fd;
	assert_int_equal(poll(&p, 1, 0), 0);
	for (int i = 0; i < 2; i++)
		assert_false(has_ended(t.fx, &t.a[i], HELD));
	answer(&t.a[0], ALLOWS);
	answer(&t.b[1], 1);
	answer(&t.near, 1);
	crowd_end(&t);
}

struct behind {
	struct fx *fx;
	struct fx_args a;
	struct dp_result res;
	pthread_t thread;
	_Atomic bool is_over;
};

static void *call_path(void *arg)
{
	struct behind *b = arg;

	b->res = fx_do(b->fx, FX_PATH, &b->a);
	b->is_over = true;
	return NULL;
}

/* As where each frees a large file that was unlinked. Of two workers one is another tenant's, also
 * when a call of the first waits to be made. */
static void closes__of_one_tenant_leave_a_worker_to_another(void **state)
{
	static struct behind slow, other;
	struct fx *fx = *state;
	struct raw b, c, d;

	raw_ready(fx, &b);
	raw_open(fx, &c);
	raw_connect(&c);
	for (int i = 0; i < 4; i++)
		raw_file(&c, "file");
	neighbour(fx, &d);
	slow_engine_shut(true);
	slow_engine_shut_closes(true);
	raw_close(&c);
	fx_event(fx, DP_EVENT_SESSION_ENDED, -1);
	slow_engine_wait_closes(1);
	slow = (struct behind){.fx = fx, .a = {.session = b.session, .mount = 1}};
	slow.a.path_op = DP_MKDIR;
	slow.a.path = "slow";
	pthread_create(&slow.thread, NULL, call_path, &slow);
	other = (struct behind){.fx = fx, .a = {.session = d.session, .mount = 1}};
	other.a.path_op = DP_STAT;
	other.a.path = "file";
	pthread_create(&other.thread, NULL, call_path, &other);
	assert_true(AWAIT(other.is_over));
	assert_int_equal(other.res.status, ROS2_OK);
	slow_engine_wait_closes(1);
	slow_engine_wait_calls(0);
	slow_engine_shut(false);
	slow_engine_shut_closes(false);
	pthread_join(other.thread, NULL);
	pthread_join(slow.thread, NULL);
	assert_int_equal(slow.res.status, ROS2_OK);
	raw_close(&b);
	raw_close(&d);
}

/* Three tenants end, whose storage is slow to close two files of each, and a fourth makes a call.
 * @at_work: how many files are being closed when the first, the second, the third has ended. */
static void many_close(struct fx *fx, const uint32_t at_work[3], struct behind *call, struct raw *d)
{
	struct raw c[3];

	neighbour(fx, d);
	slow_engine_shut_closes(true);
	for (int i = 0; i < 3; i++) {
		neighbour(fx, &c[i]);
		raw_file(&c[i], "other");
		raw_close(&c[i]);
		fx_ended(fx, &c[i].session);
		slow_engine_wait_closes(at_work[i]);
	}
	*call = (struct behind){.fx = fx, .a = {.session = d->session, .mount = 1}};
	call->a.path_op = DP_STAT;
	call->a.path = "file";
	pthread_create(&call->thread, NULL, call_path, call);
}

static void many_closed(struct behind *call, struct raw *d)
{
	slow_engine_shut_closes(false);
	pthread_join(call->thread, NULL);
	assert_int_equal(call->res.status, ROS2_OK);
	raw_close(d);
}

static void closes__of_many_tenants_leave_workers_to_calls(void **state)
{
	static struct behind call;
	struct raw d;

	many_close(*state, (uint32_t[]){1, 2, 2}, &call, &d);
	assert_true(AWAIT(call.is_over));
	slow_engine_wait_closes(2);
	many_closed(&call, &d);
}

static void control__without_a_share_of_closes_they_have_all_workers(void **state)
{
	static struct behind call;
	struct raw d;

	dp_test_switches.no_closes_share = true;
	many_close(*state, (uint32_t[]){2, 3, 4}, &call, &d);
	/* time: it waits, which nothing shows */
	usleep(200 * 1000);
	assert_false(call.is_over);
	many_closed(&call, &d);
}

/* ---- an engine that hangs, beside another ---- */

#define HANGING 4

/* A session of a tenant of its own. */
static void neighbour_at(struct fx *fx, struct raw *c, const char *engine)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	session_at(fx, c, &tenant, &grant, 0);
	raw_connect(c);
	file_at(c, engine);
}

static void put_far(void *arg)
{
	struct fx *fx = arg;
	struct dp_engine_config c = {.name = "far", .type = "slow", .size_bytes = 64u << 20};

	assert_int_equal(dp_engine_put(fx->dp, &c, NULL), 0);
}

struct removal {
	struct fx *fx;
	int rc;
};

static void remove_near(void *arg)
{
	struct removal *r = arg;

	r->rc = dp_engine_remove(r->fx->dp, "near", NULL);
}

/* Nothing of it is open any more. */
static bool near_is_closed(struct fx *fx)
{
	struct removal r = {.fx = fx};

	loop_call(fx->loop, remove_near, &r);
	return r.rc == 0;
}

/* Two tenants end whose storage is slow to close a file of each, and then one at another engine.
 * @at_work: how many files are being closed when the first, the second has ended. */
static void slow_and_near_end(struct fx *fx, const uint32_t at_work[2])
{
	struct raw slow[2], near;

	loop_call(fx->loop, put_near, fx);
	neighbour_at(fx, &near, "near");
	slow_engine_shut_closes(true);
	for (int i = 0; i < 2; i++) {
		neighbour(fx, &slow[i]);
		raw_close(&slow[i]);
		fx_ended(fx, &slow[i].session);
		slow_engine_wait_closes(at_work[i]);
	}
	raw_close(&near);
	fx_ended(fx, &near.session);
}

static void closes__at_an_engine_that_hangs_leave_a_worker_to_those_at_another(void **state)
{
	slow_and_near_end(*state, (uint32_t[]){1, 1});
	assert_true(AWAIT(near_is_closed(*state)));
}

static void control__without_a_share_of_engines_closes_have_all_of_theirs(void **state)
{
	dp_test_switches.no_engine_share = true;
	slow_and_near_end(*state, (uint32_t[]){1, 2});
	/* time: it waits, which nothing shows */
	usleep(200 * 1000);
	assert_false(near_is_closed(*state));
}

/* As many tenants as there are workers have a call inside of an engine that hangs, or wait to; one
 * at another engine makes a call. @inside: how many of the first are. */
struct hang {
	struct raw there[HANGING], near;
	struct behind calls[HANGING], call;
};

static void begin_call(struct behind *b, const struct raw *c, int op, const char *path)
{
	*b = (struct behind){.fx = c->fx, .a = {.session = c->session, .mount = 1}};
	b->a.path_op = op;
	b->a.path = path;
	pthread_create(&b->thread, NULL, call_path, b);
}

static void hang(struct fx *fx, struct hang *h, uint32_t inside)
{
	static const char *const names[HANGING] = {"first", "second", "third", "fourth"};

	loop_call(fx->loop, put_near, fx);
	neighbour_at(fx, &h->near, "near");
	for (int i = 0; i < HANGING; i++)
		neighbour(fx, &h->there[i]);
	slow_engine_shut(true);
	for (int i = 0; i < HANGING; i++)
		begin_call(&h->calls[i], &h->there[i], DP_MKDIR, names[i]);
	slow_engine_wait_calls(inside);
	begin_call(&h->call, &h->near, DP_STAT, "file");
}

static void call_over(struct behind *b)
{
	pthread_join(b->thread, NULL);
	assert_int_equal(b->res.status, ROS2_OK);
}

static void hang_over(struct hang *h)
{
	slow_engine_shut(false);
	for (int i = 0; i < HANGING; i++) {
		call_over(&h->calls[i]);
		raw_close(&h->there[i]);
	}
	call_over(&h->call);
	raw_close(&h->near);
}

static void calls__at_an_engine_that_hangs_leave_workers_to_those_at_another(void **state)
{
	static struct hang h;

	hang(*state, &h, HANGING / 2);
	assert_true(AWAIT(h.call.is_over));
	slow_engine_wait_calls(HANGING / 2);
	hang_over(&h);
}

static void control__without_a_share_of_engines_they_have_all_workers(void **state)
{
	static struct hang h;

	dp_test_switches.no_engine_share = true;
	hang(*state, &h, HANGING);
	/* time: it waits, which nothing shows */
	usleep(200 * 1000);
	assert_false(h.call.is_over);
	hang_over(&h);
}

/* Of its part, too, one tenant leaves a worker to another; and the other engine has as many. */
static void parts__of_engines_are_shared_out_by_their_tenants(void **state)
{
	static struct behind calls[5];
	struct fx *fx = *state;
	struct raw c[4];

	loop_call(fx->loop, put_far, fx);
	for (int i = 0; i < 4; i++)
		neighbour_at(fx, &c[i], i < 2 ? "ram" : "far");
	slow_engine_shut(true);
	for (uint32_t i = 0; i < 4; i++) {
		begin_call(&calls[i], &c[i], DP_MKDIR, i % 2 ? "second" : "first");
		slow_engine_wait_calls(i + 1);
		if (i > 0)
			continue;
		begin_call(&calls[4], &c[0], DP_MKDIR, "third");
		/* time: it waits, which nothing shows */
		usleep(100 * 1000);
	}
	slow_engine_shut(false);
	for (int i = 0; i < 5; i++)
		call_over(&calls[i]);
	for (int i = 0; i < 4; i++)
		raw_close(&c[i]);
}

/* The switch stands for a reactor that had no turn since: a process that was stopped. */
static void a_call_that_waited_past_the_end_of_its_rights__is_not_carried_out(void **state)
{
	struct fx *fx = *state;
	struct behind b[2];
	struct dp_result res;
	struct raw c, d;

	dp_test_switches.no_deadline_recheck = true;
	raw_open_as(fx, &c, &fx->tenant, &fx->grant, clock_boottime_ns() + 100 * NS_PER_S);
	raw_connect(&c);
	raw_file(&c, "file");
	slow_engine_shut(true);
	for (int i = 0; i < 2; i++) {
		b[i] = (struct behind){.fx = fx};
		b[i].a = (struct fx_args){.session = c.session,
		                          .mount = 1,
		                          .path_op = DP_MKDIR,
		                          .path = i ? "second" : "first"};
		pthread_create(&b[i].thread, NULL, call_path, &b[i]);
		slow_engine_wait_calls(1);
	}
	/* time: the second waits behind the first, which nothing shows */
	usleep(100 * 1000);
	clock_ahead_ns += 100 * NS_PER_S;
	slow_engine_shut(false);
	for (int i = 0; i < 2; i++)
		pthread_join(b[i].thread, NULL);
	assert_string_equal(ros2_status_to_str(b[1].res.status), "UNAUTHENTICATED");
	raw_ready(fx, &d);
	b[1].a.session = d.session;
	b[1].a.path_op = DP_STAT;
	res = fx_do(fx, FX_PATH, &b[1].a);
	assert_string_equal(ros2_status_to_str(res.status), "NOT_FOUND");
	raw_close(&c);
	raw_close(&d);
}

/* ---- BYE, and nothing is read any more ---- */

static void bye__gives_no_place_back_before_what_was_sent_is_taken(void **state)
{
	struct fx *fx = *state;
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX};
	struct raw c;

	fx->limits.sessions_max = 1;
	fx->limits.lease_ttl_ms = 600000; /* longer than what the clock is ahead */
	fx_limits(fx);
	raw_bye_unread(fx, &c);
	assert_string_equal(ros2_status_to_str(fx_do(fx, FX_OPEN_SESSION, &a).status), "LIMIT");
	clock_ahead_ns += 100 * NS_PER_S;
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_TIMEOUT);
	/* What it had not taken is gone. */
	assert_int_equal(raw_recv_end(&c), -1);
	assert_int_equal(errno, ECONNRESET);
	raw_close(&c);
	assert_true(AWAIT(fx_do(fx, FX_OPEN_SESSION, &a).status == ROS2_OK));
}

/* Also by a tenant that takes it only after it has closed its half. */
static void bye__lets_what_was_sent_be_taken(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c;

	for (int half = 0; half < 2; half++) {
		raw_bye_unread(fx, &c);
		if (half)
			shutdown(c.fd, SHUT_WR);
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
		assert_int_equal(h.payload_len, sizeof(buf));
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(raw_recv_end(&c), 0);
		assert_int_equal(fx_ended(fx, &c.session).status, ROS2_CLOSED);
		raw_close(&c);
	}
}

/* Returns how many sessions the revocation ended; the errno of the connection's end, 0 = all came.
 */
static uint32_t revoke_after_bye(struct fx *fx, int *ret_errno)
{
	struct fx_revoked r;
	struct raw c;

	raw_bye_unread(fx, &c);
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &r);
	*ret_errno = raw_recv_end(&c) < 0 ? errno : 0;
	raw_close(&c);
	return r.first.revoke.sessions;
}

static void revoke__takes_back_what_a_tenant_left_in_the_kernel_when_it_said_bye(void **state)
{
	int end;

	assert_int_equal(revoke_after_bye(*state, &end), 1);
	assert_int_equal(end, ECONNRESET);
	fx_event(*state, DP_EVENT_SESSION_ENDED, ROS2_REVOKED);
}

static void control__without_the_look_at_the_kernel_it_comes_all_the_same(void **state)
{
	int end;

	dp_test_switches.bye_leaves = true;
	assert_int_equal(revoke_after_bye(*state, &end), 0);
	assert_int_equal(end, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(bye__gives_no_place_back_before_what_was_sent_is_taken),
		SLOW_TEST(bye__lets_what_was_sent_be_taken),
		SLOW_TEST(revoke__takes_back_what_a_tenant_left_in_the_kernel_when_it_said_bye),
		SLOW_TEST(control__without_the_look_at_the_kernel_it_comes_all_the_same),
		SLOW_TEST(flushes__of_one_tenant_leave_room_in_the_engine_for_another),
		SLOW_TEST(clears__of_one_tenant_are_few_in_an_engine_at_once),
		SLOW_TEST(slots__are_not_kept_from_others_by_tenants_that_never_answer),
		SLOW_TEST(turn__takes_a_bounded_number_of_messages_of_a_connection),
		SLOW_TEST(control__without_bounds_a_turn_takes_what_there_is),
		SLOW_TEST(closes__of_one_tenant_leave_a_worker_to_another),
		FOUR_WORKERS_TEST(closes__of_many_tenants_leave_workers_to_calls),
		FOUR_WORKERS_TEST(control__without_a_share_of_closes_they_have_all_workers),
		FOUR_WORKERS_TEST(calls__at_an_engine_that_hangs_leave_workers_to_those_at_another),
		FOUR_WORKERS_TEST(control__without_a_share_of_engines_they_have_all_workers),
		FOUR_WORKERS_TEST(parts__of_engines_are_shared_out_by_their_tenants),
		FOUR_WORKERS_TEST(
			closes__at_an_engine_that_hangs_leave_a_worker_to_those_at_another),
		FOUR_WORKERS_TEST(control__without_a_share_of_engines_closes_have_all_of_theirs),
		SLOW_TEST(share_of_an_engine__is_not_kept_from_others_by_tenants_that_never_answer),
		SLOW_TEST(without_the_end__the_share_of_an_engine_is_kept_from_others),
		SLOW_TEST(a_call_that_waited_past_the_end_of_its_rights__is_not_carried_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

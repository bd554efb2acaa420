/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each tenant has of a reactor over verbs, in operations and bytes counted by turns of the
 * reactor and by a clock that the test sets: rates hold within 2 %; of two busy tenants each has
 * half of what a turn does, however many connections the other has; and who is flooded keeps at
 * least 90 % of that half. Each with its control, where the bound is left out.
 */
#include "dataplane/test_switches.h"
#include "dataplane/verbs_priv.h"
#include "tests/verbs/peer.h"
#include "tests/verbs/turns.h"

#define DEPTH     48u /* of a connection; its peer has receives for more */
#define FEW_CONNS 2u
#define CONNS     12u
#define STEP_NS   (2 * NS_PER_MS)
#define SETTLING  100u /* turns */
#define RATED     1000u
#define COUNTED   60u
#define MOST      400u /* more is never */
#define SMALL     4096u
#define LARGE     65536u

/* A connection that asks for the same again as soon as it is answered. */
struct busy {
	struct peer p;
	enum wire_opcode op;
	uint32_t length, depth, out;
	uint64_t done, other;
};

static void ask(struct busy *b)
{
	struct wire_header h = peer_request(&b->p, b->op, 0, b->length);

	if (b->op == WIRE_PING)
		h = (struct wire_header){.opcode = WIRE_PING, .request_id = b->p.next_id};
	peer_send(&b->p, h, NULL);
	b->out++;
}

static void take_answer(struct busy *b, const struct fabric_completion *c)
{
	struct wire_header h;

	assert_int_equal(c->end, FABRIC_END_OK);
	memcpy(&h, b->p.mem + c->cookie * 1024, sizeof(h));
	peer_post_recv(&b->p, b->p.qp, (uint32_t)c->cookie);
	b->out--;
	if ((h.opcode == WIRE_COMPLETE || h.opcode == WIRE_PONG) && h.status == ROS2_OK)
		b->done++;
	else
		b->other++;
}

static void goes_on(struct busy *b)
{
	struct fabric_completion c;

	while (fabric_set_poll(b->p.set, &c, 1) == 1)
		if (c.op == FABRIC_OP_RECV)
			take_answer(b, &c);
	while (b->out < b->depth)
		ask(b);
}

static void turns_of(struct fx *fx, struct busy *b, uint32_t n_conns, uint32_t n_turns)
{
	for (uint32_t t = 0; t < n_turns; t++) {
		for (uint32_t i = 0; i < n_conns; i++)
			goes_on(&b[i]);
		if (turns_still_ns)
			turns_still_ns += STEP_NS;
		turns_step(fx);
	}
}

static uint64_t done(const struct busy *b, uint32_t n)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n; i++) {
		sum += b[i].done;
		assert_int_equal(b[i].other, 0);
	}
	return sum;
}

static void opens(struct busy *b, struct fx *fx, const struct ros2_uid *tenant,
                  const struct ros2_uid *grant, uint16_t port)
{
	peer_device(fx, &b->p);
	do
		peer_session(&b->p, tenant, grant);
	while (port && b->p.port != port);
	peer_enter(&b->p);
	peer_settle(&b->p);
}

static void writes_once(struct busy *b)
{
	peer_send(&b->p, peer_request(&b->p, WIRE_WRITE, 0, LARGE), NULL);
	assert_int_equal(peer_recv(&b->p).status, ROS2_OK);
}

/* ---- rates ---- */

struct rate {
	enum wire_opcode op;
	uint32_t length, depth;
	uint64_t per_s; /* operations */
};

/* Operations in two seconds of two connections that want as much as they can have. */
static uint64_t in_two_seconds(struct fx *fx, const struct rate *r)
{
	struct busy b[FEW_CONNS];
	uint64_t before, n;

	for (uint32_t i = 0; i < FEW_CONNS; i++) {
		b[i] = (struct busy){.op = r->op, .length = r->length, .depth = r->depth};
		opens(&b[i], fx, &fx->tenant, &fx->grant, 0);
		writes_once(&b[i]);
	}
	fx_limits(fx);
	turns_hold(fx);
	turns_still_ns = clock_boottime_ns();
	turns_of(fx, b, FEW_CONNS, SETTLING);
	before = done(b, FEW_CONNS);
	turns_of(fx, b, FEW_CONNS, RATED);
	n = done(b, FEW_CONNS) - before;
	turns_later_ns = turns_still_ns - clock_boottime_ns();
	turns_still_ns = 0;
	turns_go_on();
	for (uint32_t i = 0; i < FEW_CONNS; i++)
		peer_close(&b[i].p);
	return n;
}

static const struct rate rates[] = {
	{WIRE_READ, SMALL, DEPTH, 1000}, /* operations */
	{WIRE_WRITE, SMALL, DEPTH, 700},
	{WIRE_READ, LARGE, 16, 512}, /* bytes */
	{WIRE_WRITE, LARGE, 16, 300},
};

static void set_rate(struct fx *fx, uint32_t i)
{
	const struct rate *r = &rates[i];

	if (i == 0)
		fx->limits.read_iops = r->per_s;
	else if (i == 1)
		fx->limits.write_iops = r->per_s;
	else if (i == 2)
		fx->limits.read_bytes_per_s = r->per_s * r->length;
	else
		fx->limits.write_bytes_per_s = r->per_s * r->length;
}

static void holds(struct fx *fx, uint32_t i)
{
	uint64_t n, want = 2 * rates[i].per_s;

	set_rate(fx, i);
	n = in_two_seconds(fx, &rates[i]);
	if (n * 100 < want * 98 || n * 100 > want * 102)
		fail_msg("%llu operations, expected %llu within 2 %%", (unsigned long long)n,
		         (unsigned long long)want);
}

static void rate__of_reads_holds_within_two_percent(void **state)
{
	holds(*state, 0);
}

static void rate__of_writes_holds_within_two_percent(void **state)
{
	holds(*state, 1);
}

static void rate__of_bytes_read_holds_within_two_percent(void **state)
{
	holds(*state, 2);
}

static void rate__of_bytes_written_holds_within_two_percent(void **state)
{
	holds(*state, 3);
}

static void control__without_a_rate_far_more_is_done(void **state)
{
	const struct rate r = {WIRE_READ, LARGE, 16, 512};

	assert_true(in_two_seconds(*state, &r) > 4 * 2 * r.per_s);
}

/* ---- two busy tenants ---- */

struct site {
	struct fx *fx;
	struct ros2_uid beta, grant;
	struct busy a[FEW_CONNS], b[CONNS];
	uint32_t alpha; /* its set */
};

struct shares {
	uint64_t alone, beside; /* operations of alpha's in COUNTED turns */
	uint64_t mine, all;     /* ends that the reactor took meanwhile, beside beta */
};

static uint64_t ends(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < TURNS_SETS; i++)
		sum += turns_taken[i];
	return sum;
}

/* Alpha works at its reactor, alone; which set is its is what is counted then. */
static void alpha_alone(struct site *s, struct shares *ret)
{
	for (uint32_t i = 0; i < FEW_CONNS; i++) {
		s->a[i] = (struct busy){.op = WIRE_READ, .length = SMALL, .depth = DEPTH};
		opens(&s->a[i], s->fx, &s->fx->tenant, &s->fx->grant, i ? s->a[0].p.port : 0);
		writes_once(&s->a[i]);
	}
	turns_hold(s->fx);
	turns_of(s->fx, s->a, FEW_CONNS, SETTLING);
	memset(turns_taken, 0, sizeof(turns_taken));
	ret->alone = done(s->a, FEW_CONNS);
	turns_of(s->fx, s->a, FEW_CONNS, COUNTED);
	ret->alone = done(s->a, FEW_CONNS) - ret->alone;
	while (!turns_taken[s->alpha])
		s->alpha++;
	assert_int_equal(turns_taken[s->alpha], ends());
	turns_go_on();
}

static void site_open(struct fx *fx, struct site *s, struct shares *ret)
{
	*s = (struct site){.fx = fx, .beta = ros2_uid_new(), .grant = ros2_uid_new()};
	fx->limits.sessions_max = UINT32_MAX;
	fx_tenant(fx, &s->beta);
	assert_int_equal(fx_grant(fx, &s->grant, &s->beta, UINT64_MAX), 0);
	fx_limits(fx);
	alpha_alone(s, ret);
}

/* What was counted since @beside was alpha's answers. */
static void site_close(struct site *s, struct shares *ret)
{
	ret->beside = done(s->a, FEW_CONNS) - ret->beside;
	ret->mine = turns_taken[s->alpha];
	ret->all = ends();
	turns_go_on();
	for (uint32_t i = 0; i < CONNS; i++)
		if (s->b[i].p.dev)
			peer_close(&s->b[i].p);
	for (uint32_t i = 0; i < FEW_CONNS; i++)
		peer_close(&s->a[i].p);
}

/* Beta asks for @length bytes at a time (WIRE_PING: nothing but an answer) over @conns. */
static struct shares beside(struct fx *fx, enum wire_opcode op, uint32_t length, uint32_t conns)
{
	struct shares ret;
	struct site s;

	site_open(fx, &s, &ret);
	for (uint32_t i = 0; i < conns; i++) {
		s.b[i] = (struct busy){.op = op, .length = length, .depth = DEPTH / 2};
		opens(&s.b[i], fx, &s.beta, &s.grant, s.a[0].p.port);
		writes_once(&s.b[i]);
	}
	turns_hold(fx);
	for (uint32_t t = 0; t < SETTLING + COUNTED; t++) {
		if (t == SETTLING) {
			memset(turns_taken, 0, sizeof(turns_taken));
			ret.beside = done(s.a, FEW_CONNS);
		}
		for (uint32_t i = 0; i < conns; i++)
			goes_on(&s.b[i]);
		turns_of(fx, s.a, FEW_CONNS, 1);
	}
	assert_true(done(s.b, conns) > 0);
	site_close(&s, &ret);
	return ret;
}

static uint32_t qps_freed(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return (uint32_t)c.qps_freed;
}

static void deaf_opens(struct site *s, struct peer *p)
{
	peer_device(s->fx, p);
	p->n_recvs = 1;
	do
		peer_session(p, &s->beta, &s->grant);
	while (p->port != s->a[0].p.port);
	peer_ask(p);
	peer_hello(p); /* WELCOME takes the only one */
}

/* All of beta's connections ask, and have no receive for an answer; counted until the device has
 * taken the last of them apart. In *ret_turns how many turns that were. */
static struct shares beside_the_deaf(struct fx *fx, uint32_t *ret_turns)
{
	struct wire_header ping = {.opcode = WIRE_PING};
	struct shares ret;
	struct site s;
	uint32_t freed, t = 0;

	site_open(fx, &s, &ret);
	for (uint32_t i = 0; i < CONNS; i++)
		deaf_opens(&s, &s.b[i].p);
	turns_hold(fx);
	turns_of(fx, s.a, FEW_CONNS, SETTLING);
	memset(turns_taken, 0, sizeof(turns_taken));
	ret.beside = done(s.a, FEW_CONNS);
	freed = qps_freed();
	for (uint32_t i = 0; i < CONNS * DEPTH / 2; i++)
		peer_send(&s.b[i % CONNS].p, ping, NULL);
	for (; qps_freed() - freed < CONNS && t < MOST; t++)
		turns_of(fx, s.a, FEW_CONNS, 1);
	assert_int_equal(qps_freed() - freed, CONNS);
	assert_int_equal(fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1), CONNS);
	site_close(&s, &ret);
	*ret_turns = t;
	return ret;
}

/* Alpha's part of what the reactor did, in percent. */
static uint32_t part_of(const struct shares *s)
{
	return (uint32_t)(100 * s->mine / s->all);
}

static void tenants__that_are_both_busy_have_half_each(void **state)
{
	struct shares s = beside(*state, WIRE_READ, SMALL, CONNS);

	assert_in_range(part_of(&s), 49, 51);
	assert_true(s.beside * 100 >= s.alone * 98);
}

static void control__without_bounds_requests_without_bytes_take_the_neighbours_share(void **state)
{
	struct shares s = beside(*state, WIRE_READ, 0, CONNS);

	assert_true(part_of(&s) < 45);
}

/* At least 90 % of its half, and of what it did in as many turns alone. */
static void keeps(const struct shares *s)
{
	assert_true(part_of(s) >= 45);
	assert_true(s->beside * 100 >= s->alone * 90);
}

/* Which its slots bound: they are beta's own. */
static void neighbour__of_large_requests_does_as_much_as_alone(void **state)
{
	struct shares s = beside(*state, WIRE_READ, LARGE, CONNS);

	assert_true(part_of(&s) >= 49);
	assert_true(s.beside * 100 >= s.alone * 98);
}

static void neighbour__of_requests_without_bytes_keeps_its_share(void **state)
{
	struct shares s = beside(*state, WIRE_READ, 0, CONNS);

	keeps(&s);
}

static void neighbour__of_who_takes_no_answers_keeps_its_share(void **state)
{
	uint32_t turns;
	struct shares s = beside_the_deaf(*state, &turns);

	assert_true(part_of(&s) >= 45);
	assert_true(s.beside * COUNTED * 100 >= s.alone * turns * 90);
}

static void control__without_bounds_who_takes_no_answers_takes_the_neighbours_share(void **state)
{
	uint32_t turns;
	struct shares s = beside_the_deaf(*state, &turns);

	assert_true(part_of(&s) < 45);
}

static void neighbour__of_messages_keeps_its_share(void **state)
{
	struct shares s = beside(*state, WIRE_PING, 0, CONNS);

	keeps(&s);
}

static void control__without_bounds_messages_take_the_neighbours_share(void **state)
{
	struct shares s = beside(*state, WIRE_PING, 0, CONNS);

	assert_true(part_of(&s) < 45);
}

static int setup(void **state)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return fx_setup(state);
}

static int unbounded(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	return setup(state);
}

static int teardown(void **state)
{
	struct fabric_mem_counts now;
	int rc = fx_teardown(state);

	dp_test_switches = (struct dp_test_switches){0};
	fabric_mem_counts(&now);
	assert_int_equal(now.devices + now.pds + now.sets + now.qps + now.regions + now.windows +
	                         now.conns + now.listeners,
	                 0);
	return rc;
}

int main(void)
{
#define T(f)      cmocka_unit_test_setup_teardown(f, setup, teardown)
#define C(f, how) cmocka_unit_test_setup_teardown(f, how, teardown)
	const struct CMUnitTest tests[] = {
		T(rate__of_reads_holds_within_two_percent),
		T(rate__of_writes_holds_within_two_percent),
		T(rate__of_bytes_read_holds_within_two_percent),
		T(rate__of_bytes_written_holds_within_two_percent),
		T(control__without_a_rate_far_more_is_done),
		T(tenants__that_are_both_busy_have_half_each),
		T(neighbour__of_large_requests_does_as_much_as_alone),
		T(neighbour__of_requests_without_bytes_keeps_its_share),
		C(control__without_bounds_requests_without_bytes_take_the_neighbours_share,
	          unbounded),
		T(neighbour__of_who_takes_no_answers_keeps_its_share),
		C(control__without_bounds_who_takes_no_answers_takes_the_neighbours_share,
	          unbounded),
		T(neighbour__of_messages_keeps_its_share),
		C(control__without_bounds_messages_take_the_neighbours_share, unbounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

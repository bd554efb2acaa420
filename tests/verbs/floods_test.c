/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floods over verbs, counted in turns of the reactor and calls of the device, never in time: the
 * reactors are held at the start of each turn and let go one turn at a time. What a flood is given
 * in a turn has a bound, so a neighbour's request takes as many turns beside it as alone, and a
 * revocation is answered in the turn that hears of it; each with its control, without the bound.
 */
#include "common/crypto.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs_priv.h"
#include "tests/await.h"
#include "tests/verbs/peer.h"
#include "tests/verbs/turns.h"
#include <arpa/inet.h>

#define ASKS     24u
#define CONNS    12u
#define CHURNS   12u
#define SLOTS    88u /* of a tenant at a reactor: VERBS_SLOTS */
#define MOST     64u /* turns; more is never */
#define READ_LEN 65536u
#define CROWD    300u /* more than a connection manager keeps unanswered */

/* ---- tenants ---- */

struct site {
	struct fx *fx;
	struct ros2_uid beta, grant;
	struct peer alpha;
};

/* Of the reactor at @port; those of the others are left to wait. 0: any. */
static void session_at(struct site *s, struct peer *p, bool beta, uint16_t port)
{
	do
		peer_session(p, beta ? &s->beta : &s->fx->tenant, beta ? &s->grant : &s->fx->grant);
	while (port && p->port != port);
}

/* Alpha works; beta is there. */
static void site_open(struct fx *fx, struct site *s)
{
	*s = (struct site){.fx = fx, .beta = ros2_uid_new(), .grant = ros2_uid_new()};
	fx->limits.sessions_max = UINT32_MAX;
	fx_tenant(fx, &s->beta);
	assert_int_equal(fx_grant(fx, &s->grant, &s->beta, UINT64_MAX), 0);
	peer_ready(fx, &s->alpha);
	peer_send(&s->alpha, peer_request(&s->alpha, WIRE_WRITE, 0, READ_LEN), NULL);
	assert_int_equal(peer_recv(&s->alpha).status, ROS2_OK);
}

static void beta_connects(struct site *s, struct peer *p)
{
	peer_device(s->fx, p);
	session_at(s, p, true, s->alpha.port);
	peer_ask(p);
	assert_true(p->established);
	peer_hello(p);
	assert_int_equal(peer_recv(p).opcode, WIRE_WELCOME);
}

/* What has come by now. */
static uint32_t answers(struct peer *p)
{
	struct fabric_completion c;
	uint32_t n = 0;

	while (fabric_set_poll(p->set, &c, 1) == 1) {
		if (c.op != FABRIC_OP_RECV || c.end != FABRIC_END_OK)
			continue;
		n++;
		peer_post_recv(p, p->qp, (uint32_t)c.cookie);
	}
	return n;
}

/* A READ of alpha's, and how many turns until it is answered. */
static uint32_t turns_of_alpha(struct site *s)
{
	uint32_t n = 0;

	peer_send(&s->alpha, peer_request(&s->alpha, WIRE_READ, 0, READ_LEN), NULL);
	do {
		turns_step(s->fx);
		n++;
	} while (!answers(&s->alpha) && n < MOST);
	return n;
}

/* ---- connections that prove nothing ---- */

static uint32_t told(struct peer *p, uint32_t n)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += peer_is_told(&p[i]);
	return sum;
}

static void strangers_ask(struct site *s, struct peer *p)
{
	for (uint32_t i = 0; i < ASKS; i++) {
		peer_device(s->fx, &p[i]);
		p[i].session = ros2_uid_new();
		p[i].port = s->alpha.port;
		peer_ask_begin(&p[i]);
	}
}

/* How many of them were answered in the first turn; all are in the end, with a name. */
static uint32_t flood_of_asks(struct fx *fx, uint32_t *ret_alone, uint32_t *ret_beside)
{
	struct peer b[ASKS];
	struct site s;
	uint32_t first, more = 0;

	site_open(fx, &s);
	turns_hold(fx);
	*ret_alone = turns_of_alpha(&s);
	strangers_ask(&s, b);
	peer_send(&s.alpha, peer_request(&s.alpha, WIRE_READ, 0, READ_LEN), NULL);
	turns_step(fx);
	first = told(b, ASKS);
	for (*ret_beside = 1; !answers(&s.alpha) && *ret_beside < MOST; ++*ret_beside)
		turns_step(fx);
	for (; told(b, ASKS) < ASKS && more < MOST; more++)
		turns_step(fx);
	assert_int_equal(told(b, ASKS), ASKS);
	turns_go_on();
	for (uint32_t i = 0; i < ASKS; i++) {
		assert_false(b[i].established);
		assert_int_equal(b[i].refused, ROS2_UNAUTHENTICATED);
		peer_close(&b[i]);
	}
	peer_close(&s.alpha);
	return first;
}

static void turn__answers_a_few_of_many_connection_requests(void **state)
{
	uint32_t alone, beside;

	assert_int_equal(flood_of_asks(*state, &alone, &beside), VERBS_CONN_EVENTS);
	assert_int_equal(beside, alone);
}

static void control__without_bounds_a_turn_answers_all_of_them(void **state)
{
	uint32_t alone, beside;

	assert_int_equal(flood_of_asks(*state, &alone, &beside), ASKS);
}

/* Strangers of one address, each with a queue pair and nothing else; they stay. */
struct crowd {
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set;
	struct fabric_cm *cm;
	struct fabric_conn *conn[CROWD];
	struct fabric_qp *qp[CROWD];
	uint32_t n, told, named; /* of told: refused with the name that is expected */
};

static void crowd_opens(struct crowd *c)
{
	const struct fabric_pd_opts pd = {1u << 20, 1, 1, CROWD};
	const struct fabric_set_opts set = {.cq_depth = 16 * CROWD, .qps_max = CROWD};

	*c = (struct crowd){0};
	assert_int_equal(fabric_dev_open(FABRIC_MEM_DEVICE, &c->dev, NULL), 0);
	assert_int_equal(fabric_pd_new(c->dev, &pd, &c->pd, NULL), 0);
	assert_int_equal(fabric_channel_new(c->dev, &c->channel, NULL), 0);
	assert_int_equal(fabric_set_new(c->pd, c->channel, &set, &c->set, NULL), 0);
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){0}, &c->cm, NULL), 0);
}

static void crowd_leaves(struct crowd *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		fabric_conn_free(c->conn[i]);
		fabric_qp_free(c->qp[i]);
	}
	fabric_set_free(c->set);
	fabric_channel_free(c->channel);
	assert_int_equal(fabric_pd_free(c->pd), 0);
	fabric_cm_free(c->cm);
	assert_int_equal(fabric_dev_close(c->dev), 0);
}

static void crowd_asks(struct crowd *c, uint16_t port, uint32_t n)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct wire_verbs_ask ask = {.version = WIRE_VERBS_VERSION};
	struct fabric_conn_opts o = {.qp = {.send_depth = 1, .recv_depth = 1},
	                             .hello = {&ask, sizeof(ask)}};

	for (; n; n--, c->n++) {
		crypto_random(ask.session_uid, sizeof(ask.session_uid));
		assert_int_equal(fabric_connect(c->cm, NULL, (struct sockaddr *)&to, 0,
		                                &c->conn[c->n], NULL),
		                 0);
		assert_int_equal(fabric_conn_ask(c->conn[c->n], c->set, &o, &c->qp[c->n], NULL), 0);
	}
}

static void crowd_is_told(void *arg, const struct fabric_conn_event *e)
{
	struct wire_verbs_refusal no;
	struct crowd *c = arg;

	assert_int_not_equal(e->kind, FABRIC_CONN_EVENT_ESTABLISHED);
	if (e->kind != FABRIC_CONN_EVENT_REJECTED)
		return;
	c->told++;
	if (e->data_len < sizeof(no))
		return;
	memcpy(&no, e->data, sizeof(no));
	c->named += no.status == ROS2_UNAUTHENTICATED;
}

/* Until so many have been told, and what is on its way has come. */
static void crowd_waits(struct crowd *c, uint32_t n)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;

	while (c->told < n && clock_monotonic_ns() < until) {
		/* poll: the reactor answers a few in each of its turns */
		usleep(200);
		(void)fabric_cm_events(c->cm, crowd_is_told, c);
	}
	assert_int_equal(c->told, n);
}

static struct fabric_mem_counts counts(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c;
}

static uint64_t refusals(struct fx *fx)
{
	uint64_t n;

	pthread_mutex_lock(&fx->lock);
	n = fx->refused;
	pthread_mutex_unlock(&fx->lock);
	return n;
}

/* All of its requests are refused by name, counted, and none has kept anything: who comes next from
 * the same address is let in while the crowd is still there. */
static void requests__that_prove_nothing_keep_no_place(void **state)
{
	struct fx *fx = *state;
	struct fabric_mem_counts before, after;
	struct crowd c;
	struct peer b;
	struct site s;

	site_open(fx, &s);
	crowd_opens(&c);
	before = counts();
	crowd_asks(&c, s.alpha.port, CROWD);
	crowd_waits(&c, CROWD);
	assert_int_equal(c.named, CROWD);
	after = counts();
	assert_int_equal(after.conns - before.conns, CROWD); /* their own ends */
	assert_int_equal(after.qps - before.qps, CROWD);
	assert_int_equal(after.regions_made, before.regions_made);
	assert_int_equal(after.sets_made, before.sets_made);
	beta_connects(&s, &b);
	/* what was refused is reported behind it, many at a time */
	assert_true(AWAIT(refusals(fx) >= CROWD));
	assert_int_equal(refusals(fx), CROWD);
	peer_close(&b);
	crowd_leaves(&c);
	peer_close(&s.alpha);
}

/* Left to wait, they have all places, and nobody else gets one. */
static void control__requests_that_are_not_refused_at_once_take_all_places(void **state)
{
	struct fx *fx = *state;
	struct crowd c;
	struct peer b;
	struct site s;

	site_open(fx, &s);
	crowd_opens(&c);
	crowd_asks(&c, s.alpha.port, CROWD);
	crowd_waits(&c, CROWD - 256);
	assert_int_equal(c.named, 0);
	peer_device(fx, &b);
	session_at(&s, &b, true, s.alpha.port);
	peer_ask(&b);
	assert_false(b.established);
	assert_int_equal(b.refused, ROS2_OK); /* without a name */
	assert_int_equal(refusals(fx), 0);
	peer_close(&b);
	crowd_leaves(&c);
	peer_close(&s.alpha);
}

/* As many as the kernel keeps for a listener are before it. */
static void newcomer__behind_a_full_queue_is_let_in_when_it_was_emptied(void **state)
{
	struct crowd c;
	struct peer b;
	struct site s;
	uint32_t n = 0;

	site_open(*state, &s);
	crowd_opens(&c);
	peer_device(s.fx, &b);
	session_at(&s, &b, true, s.alpha.port);
	turns_hold(s.fx);
	crowd_asks(&c, s.alpha.port, VERBS_BACKLOG);
	peer_ask_begin(&b);
	for (; !peer_is_told(&b) && n < MOST; n++)
		turns_step(s.fx);
	turns_go_on();
	assert_true(b.established);
	assert_int_equal(n, VERBS_BACKLOG / VERBS_CONN_EVENTS + 1);
	peer_close(&b);
	crowd_leaves(&c);
	peer_close(&s.alpha);
}

/* ---- a tenant that comes and goes ---- */

static uint64_t regions_made(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.regions_made;
}

/* The regions that the agent registered for CHURNS connections of beta's, one after another. */
static uint64_t regions_of_churn(struct fx *fx)
{
	struct fabric_mem_counts c;
	struct site s;
	uint64_t n;

	site_open(fx, &s);
	turns_still_ns = clock_boottime_ns();
	n = regions_made();
	for (uint32_t i = 0; i < CHURNS; i++) {
		struct peer p;

		beta_connects(&s, &p);
		n += 2; /* its own */
		peer_close(&p);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
		do {
			/* poll: the agent's end of it goes in a turn to come */
			usleep(200);
			fabric_mem_counts(&c);
		} while (c.qps > 2);
	}
	n = regions_made() - n;
	turns_still_ns = 0;
	peer_close(&s.alpha);
	return n;
}

static void churn__does_not_make_a_tenants_slots_again_each_time(void **state)
{
	struct fabric_mem_counts c;

	assert_int_equal(regions_of_churn(*state), SLOTS + CHURNS);
	do {
		/* poll: alpha's connection goes, too */
		usleep(200);
		fabric_mem_counts(&c);
	} while (c.qps + c.conns);
	assert_true(c.sets > 0);
	turns_later_ns += VERBS_KEPT_MS * NS_PER_MS;
	do {
		/* poll: their time is over, they go with the next tick */
		usleep(1000);
		fabric_mem_counts(&c);
	} while (c.sets);
	assert_int_equal(c.regions, 0);
}

static void control__of_slots_that_are_not_kept(void **state)
{
	assert_int_equal(regions_of_churn(*state), CHURNS * (SLOTS + 1));
}

/* ---- messages ---- */

/* More than a turn takes, fewer than the agent has receives for; none is answered. */
static void fills_the_queue(struct peer *p)
{
	(void)answers(p);
	for (uint32_t i = 0; i < VERBS_RECVS - VERBS_POLL; i++)
		peer_send(p, (struct wire_header){.opcode = WIRE_PONG}, NULL);
}

/* The most ends of beta's that a turn took, while its messages come without pause. */
static uint32_t flood_of_messages(struct fx *fx, uint32_t *ret_alone, uint32_t *ret_beside)
{
	struct peer b;
	struct site s;
	uint32_t most;

	site_open(fx, &s);
	beta_connects(&s, &b);
	turns_hold(fx);
	*ret_alone = turns_of_alpha(&s);
	turns_most_taken = 0;
	fills_the_queue(&b);
	*ret_beside = turns_of_alpha(&s);
	most = turns_most_taken;
	turns_go_on();
	peer_close(&b);
	peer_close(&s.alpha);
	return most;
}

static void turn__takes_a_bounded_number_of_a_tenants_messages(void **state)
{
	uint32_t alone, beside;

	assert_int_equal(flood_of_messages(*state, &alone, &beside), VERBS_POLL);
	assert_int_equal(beside, alone);
}

static void control__without_bounds_a_turn_takes_all_messages(void **state)
{
	uint32_t alone, beside;

	assert_true(flood_of_messages(*state, &alone, &beside) > VERBS_POLL);
}

/* ---- revocation ---- */

struct revoked {
	uint32_t turns;       /* until it was answered */
	uint32_t freed;       /* queue pairs that the device took apart in them */
	uint32_t alpha;       /* turns that a request of alpha's took beside it */
	uint32_t let_in;      /* of beta's connections that had asked when it came */
	uint32_t until_freed; /* turns until beta has nothing at the device */
};

static uint32_t qps_freed(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return (uint32_t)c.qps_freed;
}

/* Beta is revoked, with CONNS connections and as many good requests for more. */
static struct revoked revoke_in_flood(struct fx *fx)
{
	struct peer b[CONNS], asks[VERBS_QPS - CONNS];
	struct revoked got = {0};
	struct fx_revoked r;
	struct site s;
	uint32_t before;

	site_open(fx, &s);
	for (uint32_t i = 0; i < CONNS; i++)
		beta_connects(&s, &b[i]);
	for (uint32_t i = 0; i < ARRAY_SIZE(asks); i++) {
		peer_device(fx, &asks[i]);
		session_at(&s, &asks[i], true, s.alpha.port);
	}
	turns_hold(fx);
	for (uint32_t i = 0; i < ARRAY_SIZE(asks); i++)
		peer_ask_begin(&asks[i]);
	fills_the_queue(&b[0]);
	before = qps_freed();
	turns_later_ns += 100 * NS_PER_MS; /* the turn has its timers to run, too */
	peer_send(&s.alpha, peer_request(&s.alpha, WIRE_READ, 0, READ_LEN), NULL);
	fx_revoke_begin(fx, DP_SCOPE_TENANT, &s.beta, &r);
	while (!__atomic_load_n(&r.calls, __ATOMIC_ACQUIRE) && got.turns < MOST) {
		turns_step(fx);
		got.turns++;
		got.alpha += !got.alpha && answers(&s.alpha) ? got.turns : 0;
	}
	got.freed = qps_freed() - before;
	for (uint32_t n = got.turns; !got.alpha && n < MOST; n++) {
		turns_step(fx);
		got.alpha = answers(&s.alpha) ? n + 1 : 0;
	}
	for (; qps_freed() - before < CONNS && got.until_freed < MOST; got.until_freed++)
		turns_step(fx);
	turns_go_on();
	for (uint32_t i = 0; i < ARRAY_SIZE(asks); i++) {
		while (!peer_is_told(&asks[i]))
			/* poll: the reactors go on by themselves */
			usleep(200);
		got.let_in += asks[i].established;
		peer_close(&asks[i]);
	}
	for (uint32_t i = 0; i < CONNS; i++)
		peer_close(&b[i]);
	/* and those that wait at the other reactor */
	assert_true(r.first.revoke.sessions >= CONNS + ARRAY_SIZE(asks));
	peer_close(&s.alpha);
	return got;
}

static void revoke__of_a_tenant_that_floods_is_answered_in_one_turn(void **state)
{
	struct revoked got = revoke_in_flood(*state);

	assert_int_equal(got.turns, 1);
	assert_true(got.freed <= 4);
	assert_true(got.alpha <= 3);
	assert_int_equal(got.let_in, 0);
	assert_true(got.until_freed <= CONNS);
}

static void control__without_bounds_the_same_turn_takes_everything_apart(void **state)
{
	struct revoked got = revoke_in_flood(*state);

	assert_int_equal(got.freed, CONNS);
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

static int waits(void **state)
{
	dp_test_switches.no_early_refusal = true;
	return setup(state);
}

static int not_kept(void **state)
{
	fx_rdma_keep_ms = DP_RDMA_KEEP_NONE;
	return setup(state);
}

static int teardown(void **state)
{
	struct fabric_mem_counts now;
	int rc = fx_teardown(state);

	dp_test_switches = (struct dp_test_switches){0};
	fx_rdma_keep_ms = 0;
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
		T(turn__answers_a_few_of_many_connection_requests),
		C(control__without_bounds_a_turn_answers_all_of_them, unbounded),
		T(requests__that_prove_nothing_keep_no_place),
		C(control__requests_that_are_not_refused_at_once_take_all_places, waits),
		T(newcomer__behind_a_full_queue_is_let_in_when_it_was_emptied),
		T(churn__does_not_make_a_tenants_slots_again_each_time),
		C(control__of_slots_that_are_not_kept, not_kept),
		T(turn__takes_a_bounded_number_of_a_tenants_messages),
		C(control__without_bounds_a_turn_takes_all_messages, unbounded),
		T(revoke__of_a_tenant_that_floods_is_answered_in_one_turn),
		C(control__without_bounds_the_same_turn_takes_everything_apart, unbounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

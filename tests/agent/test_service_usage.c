/* SPDX-License-Identifier: Apache-2.0 */
/* What a session moves is recorded at intervals: while the controller takes no records, out of the
 * share of its tenant and no more, and what found no room is in a later one. */
#include "agent/sessions.h"
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"

#define INTERVALS 1000 /* whose records the whole spool of this test has no room for */
#define SPOOL     (256u * 1024u)

static _Atomic uint64_t told; /* operations of alpha */
static uint64_t last_seq;

/* Some come again on the next stream. */
static void sees_record(const Ros2__V1__AuditRecord *r)
{
	if (r->origin->seq <= last_seq)
		return;
	last_seq = r->origin->seq;
	if (!strcmp(r->action, "session.usage") && !strcmp(r->tenant, "alpha"))
		told += r->aggregate->count;
}

static struct ros2_uid connected_session(struct world *w, struct rpc_channel *c)
{
	struct dp_event ev = {.type = DP_EVENT_CONNECTED};

	assert_int_equal(world_open_session(c, &ev.session), ROS2_OK);
	fake_dp_event(w->agent->dp, &ev);
	return ev.session;
}

static void tick(void *arg)
{
	sessions_tick(((struct world *)arg)->agent->sessions);
}

static void interval(void *arg)
{
	fake_dp_read_ops++;
	tick(arg);
}

static void usage__leaves_the_neighbour_its_room_for_records(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rpc_channel *a, *b;
	struct ros2_uid s;

	(void)state;
	world_start(w);
	w->spool_quota = SPOOL;
	w->sees_record = sees_record;
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	b = world_tenant(w, "beta");
	connected_session(w, a);
	w->no_audit_acks = true;
	for (unsigned i = 0; i < INTERVALS; i++)
		loop_call(w->loop, interval, w);
	assert_int_equal(world_open_session(b, &s), ROS2_OK);
	assert_int_equal(agent_audit_lost(w->agent->audit), 0);
	assert_true(told < INTERVALS);
	w->no_audit_acks = false;
	world_cut(w); /* the next stream brings what was not acknowledged */
	assert_true(AWAIT((loop_call(w->loop, tick, w), told >= INTERVALS)));
	assert_int_equal(told, INTERVALS);
	rpc_channel_free(a);
	rpc_channel_free(b);
	world_stop(w);
	free(w);
}

struct counted {
	struct world *w;
	unsigned n; /* accounts of alpha */
	uint64_t bytes;
};

static void count(void *arg)
{
	struct counted *k = arg;
	struct sessions *t = k->w->agent->sessions;

	k->n = 0;
	sessions_account_now(t);
	for (const struct sessions_account *c = sessions_accounts(t); c; c = c->hh.next) {
		if (strcmp(c->name, "alpha") != 0)
			continue;
		k->n++;
		k->bytes = c->now.read_bytes;
	}
}

/* A metric has the tenant's name as its label, and its value never falls. */
static void usage__of_a_tenant_made_again_is_counted_behind_that_of_the_first(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct counted k = {w};
	struct rpc_channel *a;
	uint64_t first;
	unsigned acks;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	connected_session(w, a);
	loop_call(w->loop, count, &k);
	assert_int_equal(k.n, 1);
	first = k.bytes;
	assert_true(first > 0);
	acks = w->acks;
	world_replace(w, WORLD_ALPHA_SEED, 1, fix_tenant(&w->f, "alpha", FIX_ALPHA, 9, 1));
	world_wait(w, &w->acks, acks + 1);
	connected_session(w, a);
	loop_call(w->loop, count, &k);
	assert_int_equal(k.n, 1);
	assert_int_equal(k.bytes, 2 * first);
	rpc_channel_free(a);
	world_stop(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(usage__leaves_the_neighbour_its_room_for_records),
		cmocka_unit_test(usage__of_a_tenant_made_again_is_counted_behind_that_of_the_first),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

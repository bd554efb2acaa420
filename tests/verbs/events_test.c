/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the device says by itself, while each allocation on its way through the data plane fails,
 * once and then for good: whom it is about has ended all the same, and if there was no memory to
 * say who that is, all that it may be about; a port that goes down and comes back, and what is not
 * known, end nobody; and nobody else notices. Controls: without a fault exactly those end. That the
 * device is gone the log says, too: nothing else tells the operator why.
 */
#include "common/log.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include "tests/verbs/peer.h"
#include <errno.h>
#include <stdatomic.h>

#define PEERS 4 /* two tenants, each at two reactors */

static _Atomic uint32_t told; /* lines that say that the device is gone */

void __wrap_log_write(enum log_level level, const char *component, const char *fmt, ...);
void __wrap_log_write(enum log_level level, const char *component, const char *fmt, ...)
{
	if (strstr(fmt, "the RDMA device %s was removed") && level == LOG_LEVEL_ERROR)
		atomic_fetch_add(&told, 1);
}

struct stage {
	struct fx *fx;
	struct peer p[PEERS];
};

static int setup(void **state)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return fx_setup(state);
}

static void begin(struct stage *s)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	void *fx;

	assert_int_equal(setup(&fx), 0);
	s->fx = fx;
	fx_tenant(s->fx, &tenant);
	assert_int_equal(fx_grant(s->fx, &grant, &tenant, UINT64_MAX), 0);
	/* Sessions go to the reactors in turn. */
	for (uint32_t i = 0; i < PEERS; i++) {
		if (i < 2) {
			peer_ready(s->fx, &s->p[i]);
		} else {
			peer_connect(s->fx, &s->p[i], &tenant, &grant);
			peer_settle(&s->p[i]);
		}
	}
}

static void end(struct stage *s)
{
	void *fx = s->fx;

	for (uint32_t i = 0; i < PEERS; i++)
		peer_close(&s->p[i]);
	assert_int_equal(fx_teardown(&fx), 0);
}

static bool has_ended(struct fx *fx, const struct peer *p)
{
	bool is = false;

	pthread_mutex_lock(&fx->lock);
	for (uint32_t i = 0; i < fx->n_events; i++)
		is |= fx->events[i].type == DP_EVENT_SESSION_ENDED &&
		      ros2_uid_eq(&fx->events[i].session, &p->session);
	pthread_mutex_unlock(&fx->lock);
	return is;
}

static uint32_t ended(struct stage *s)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < PEERS; i++)
		set |= has_ended(s->fx, &s->p[i]) ? 1u << i : 0;
	return set;
}

/* Who has not ended works: a request of each, whose answer comes behind what was under way. */
static void others_work(struct stage *s, uint32_t gone)
{
	for (uint32_t i = 0; i < PEERS; i++) {
		if (gone & 1u << i)
			continue;
		peer_send(&s->p[i], peer_request(&s->p[i], WIRE_READ, 0, 4096), NULL);
		assert_int_equal(peer_recv(&s->p[i]).status, ROS2_OK);
	}
}

struct row {
	enum fabric_event_kind kind;
	uint32_t must; /* who has ended, whatever fails: peers by bit */
	uint32_t may;  /* if there was no memory to say who */
};
/* It is about the first peer, of the first tenant at the first reactor; at which the third is, too.
 */
static const struct row rows[] = {
	{FABRIC_EVENT_QP_FAILED, 1, 5},        {FABRIC_EVENT_CQ_FAILED, 1, 5},
	{FABRIC_EVENT_DEVICE_REMOVED, 15, 15}, {FABRIC_EVENT_PORT_DOWN, 0, 0},
	{FABRIC_EVENT_PORT_UP, 0, 0},          {FABRIC_EVENT_OTHER, 0, 0},
};

static void one(const struct row *row, struct sweep *w)
{
	struct stage s;
	uint32_t gone;

	begin(&s);
	atomic_store(&told, 0);
	if (!w->error)
		sweep_off();
	else if (!sweep_next(w))
		w->error = 0;
	sweep_hold();
	fabric_mem_report(s.p[0].qp, row->kind, "the test says so");
	/* While it fails. */
	if (!AWAIT((ended(&s) & row->must) == row->must))
		fail_msg("event %d, allocation %u%s: %x ended", row->kind, w->at,
		         w->persistent ? " and on" : "", ended(&s));
	sweep_release();
	sweep_off();
	others_work(&s, row->may);
	gone = ended(&s);
	if (gone & ~(sweep_fired() ? row->may : row->must))
		fail_msg("event %d, allocation %u%s: %x ended", row->kind, w->at,
		         w->persistent ? " and on" : "", gone);
	others_work(&s, gone);
	assert_int_equal(atomic_load(&told), row->kind == FABRIC_EVENT_DEVICE_REMOVED);
	end(&s);
}

static void event__without_memory_ends_whom_it_is_about(void **state)
{
	uint32_t points = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sweep w = {.kind = SWEEP_ALLOC, .error = ENOMEM};

		while (w.error)
			one(&rows[i], &w);
		points += w.points;
	}
	/* One for each reactor that is told. */
	assert_true(points >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(event__without_memory_ends_whom_it_is_about),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

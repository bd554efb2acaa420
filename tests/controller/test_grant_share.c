/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile tenant asks for grants at many agents at once, or lets thousands be renewed or end at
 * once: what its neighbour waits for, counted in the order of commits. A whole domain and its store
 * (no gRPC); the store's thread is held while the flood comes in.
 */
#include "controller/ctl.h"
#include "tests/await.h"
#include "tests/controller/store_fixture.h"
#include "common/clock.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define AGENTS    257 /* 64 each are more than the store's queue */
#define PER_AGENT 64  /* what an agent lets wait of one tenant (agent/grants_priv.h) */
#define FLOOD     (AGENTS * PER_AGENT)
#define A_ID      1000000 /* request ids of the neighbour's from here on */
#define PRINCIPAL "spiffe://ros2.test/tenant/%s/x"

/* ---- the store's thread is held at the beginning of a batch ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hold, is_held;

bool __real_store_reserve_may_refuse(const struct list *txns);
bool __wrap_store_reserve_may_refuse(const struct list *txns);
bool __wrap_store_reserve_may_refuse(const struct list *txns)
{
	pthread_mutex_lock(&lock);
	while (hold) {
		is_held = true;
		pthread_cond_broadcast(&changed);
		pthread_cond_wait(&changed, &lock);
	}
	is_held = false;
	pthread_mutex_unlock(&lock);
	return __real_store_reserve_may_refuse(txns);
}

/* ---- the cap, and what agents are told ---- */

static bool no_cap;

bool __real_ctl_grant_may_wait(const struct ctl *c, const struct ctl_object *tenant, bool ends);
bool __wrap_ctl_grant_may_wait(const struct ctl *c, const struct ctl_object *tenant, bool ends);
bool __wrap_ctl_grant_may_wait(const struct ctl *c, const struct ctl_object *tenant, bool ends)
{
	return no_cap || __real_ctl_grant_may_wait(c, tenant, ends);
}

struct told {
	unsigned given, refused;
	enum ros2_status status;
	char words[256];
};
static struct told told_a, told_b; /* the neighbour, the hostile one */

void __wrap_link_grant_denied(struct link *l, uint64_t request_id, enum ros2_status status,
                              const char *words);
void __wrap_link_grant_denied(struct link *l, uint64_t request_id, enum ros2_status status,
                              const char *words)
{
	struct told *t = request_id >= A_ID ? &told_a : &told_b;

	t->refused++;
	t->status = status;
	snprintf(t->words, sizeof(t->words), "%s", words);
}

void __wrap_outbox_grant(struct ctl_agent *a, const struct ctl_grant *g, bool reply);
void __wrap_outbox_grant(struct ctl_agent *a, const struct ctl_grant *g, bool reply)
{
	if (reply)
		(g->request_id >= A_ID ? &told_a : &told_b)->given++;
}

/* ---- the domain ---- */

static struct fixture fix;
static struct config cfg = {.trust_domain = "ros2.test"};
static const struct ctl_caller root = {
	.spiffe = "spiffe://ros2.test/admin/root", .peer = "127.0.0.1:1", .role = CTL_ADMIN};
static struct ctl *ctl;
static struct ctl_object *a, *b;
static struct ctl_agent *agents[AGENTS];
static _Atomic bool ok;

static const char *documents(void)
{
	static const char *const tenants[] = {"neighbour", "hostile"};
	static char text[65536];
	size_t n = (size_t)snprintf(text, sizeof(text),
	                            "apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: ram}\n"
	                            "spec: {type: mem, size: 16MiB}\n");

	for (unsigned i = 0; i < AGENTS; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
		                      "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                      "a-%u, labels: {fleet: x}}\nspec: {}\n",
		                      i);
	for (unsigned i = 0; i < 2; i++)
		n += (size_t)snprintf(
			text + n, sizeof(text) - n,
			"---\napiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: %s}\nspec:\n"
			"  principals: [" PRINCIPAL "]\n"
			"  placement: {selector: {fleet: x}}\n"
			"  namespaces: [{name: data, engine: ram, path: %s, access: rw}]\n"
			"  memory: {registeredBytes: 64MiB, regions: 4, access: [read, write]}\n"
			"  times: {grantLifetime: 1h, contactLimit: 1m}\n  sessions: {max: 64}\n",
			tenants[i], tenants[i], tenants[i]);
	assert_true(n < sizeof(text));
	return text;
}

static void on_applied(void *arg, const struct ros2_err *err, const struct ctl_apply_result *r)
{
	char name[16];

	assert_int_equal(err->code, 0);
	assert_true(r->applied);
	a = ctl_find(ctl, STORE_TENANT, "neighbour");
	b = ctl_find(ctl, STORE_TENANT, "hostile");
	for (unsigned i = 0; i < AGENTS; i++) {
		snprintf(name, sizeof(name), "a-%u", i);
		agents[i] = ctl_agent(ctl, name);
		assert_non_null(agents[i]);
	}
	atomic_store(&ok, true);
}

static void apply(void *arg)
{
	struct policy_source src = {.name = "test.yaml", .text = documents()};

	src.len = strlen(src.text);
	ctl_apply(ctl, &root, &src, 1, NULL, 0, false, ~0u, on_applied, NULL);
}

static void start(void *arg)
{
	assert_int_equal(store_open(&fix.opts, &fix.store, NULL), 0);
	assert_int_equal(ctl_new(fix.loop, &cfg, fix.store, &ctl, NULL), 0);
	store_set_on_batch(fix.store, ctl_on_batch, ctl);
	assert_int_equal(store_start(fix.store, NULL), 0);
	ctl_start(ctl);
	assert_int_equal(ctl_gate_enter(ctl, apply, NULL), 0);
}

static void until(_Atomic bool *flag)
{
	assert_true(AWAIT(atomic_load(flag)));
}

static int setup(void **state)
{
	fixture_init(&fix);
	fix.opts.reserve_bytes = 0;
	memset(&told_a, 0, sizeof(told_a));
	memset(&told_b, 0, sizeof(told_b));
	no_cap = false;
	atomic_store(&ok, false);
	loop_call(fix.loop, start, NULL);
	until(&ok);
	return 0;
}

static void stop(void *arg)
{
	if (!ctl)
		return;
	store_close(fix.store);
	ctl_free(ctl);
	fix.store = NULL;
	ctl = NULL;
}

static void set_hold(bool on)
{
	pthread_mutex_lock(&lock);
	hold = on;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static int teardown(void **state)
{
	set_hold(false);
	loop_call(fix.loop, stop, NULL);
	fixture_fini(&fix);
	return 0;
}

/* ---- steps ---- */

static void submit_plug(void *arg)
{
	struct store_txn *t = store_txn_new();

	store_txn_audit(t)->action = "test.plug";
	assert_int_equal(store_submit(fix.store, t, NULL, NULL, NULL), 0);
}

/* From here on the store takes, and commits nothing: it has one transaction, the plug. */
static void hold_store(void)
{
	set_hold(true);
	loop_call(fix.loop, submit_plug, NULL);
	pthread_mutex_lock(&lock);
	while (!is_held)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void look(void *arg)
{
	struct store_stats st;

	store_stats(fix.store, &st);
	*(bool *)arg = !ctl->grants_waiting && !st.waiting;
}

static void settle(void)
{
	bool idle = false;

	set_hold(false);
	assert_true(AWAIT((loop_call(fix.loop, look, &idle), idle)));
}

static void ask(struct ctl_agent *at, const struct ctl_object *tenant, uint64_t id)
{
	char principal[128];
	struct ctl_grant_ask q = {.request_id = id,
	                          .tenant_uid = tenant->uid,
	                          .principal = principal,
	                          .peer = "10.0.0.2:1"};

	snprintf(principal, sizeof(principal), PRINCIPAL, tenant->name);
	ctl_grant_request(at, &q);
}

/* @arg: how many the hostile tenant asks for, in turn at all agents. */
static void flood(void *arg)
{
	for (unsigned i = 0; i < (unsigned)(uintptr_t)arg; i++)
		ask(agents[i % AGENTS], b, i);
}

static void neighbour_asks(void *arg)
{
	ask(agents[0], a, A_ID);
}

static void call(void (*fn)(void *arg), unsigned n)
{
	loop_call(fix.loop, fn, (void *)(uintptr_t)n);
}

/* How many transactions were committed after the plug, up to the neighbour's grant: each of them
 * has one record. -1: it has none. Ends the domain. */
static int64_t neighbours_place(void)
{
	loop_call(fix.loop, stop, NULL);
	return fixture_sql(&fix, "SELECT a.seq-p.seq FROM audit a, audit p WHERE "
	                         "a.action='grant.issue' AND p.action='test.plug' AND "
	                         "a.object_name='spiffe://ros2.test/tenant/neighbour/x'");
}

/* ---- tests ---- */

static void share__of_a_flood_leaves_a_neighbour_the_next_batch(void **state)
{
	int64_t place;

	hold_store();
	call(flood, FLOOD);
	assert_int_equal(b->grants_waiting, CTL_GRANTS_WAITING_MAX);
	assert_int_equal(b->n_grants, CTL_GRANTS_WAITING_MAX);
	assert_int_equal(told_b.refused, FLOOD - CTL_GRANTS_WAITING_MAX);
	assert_int_equal(told_b.status, ROS2_BUSY);
	assert_non_null(strstr(told_b.words, "share of the controller's waiting grants, at most "
	                                     "1024 (fixed)"));
	call(neighbour_asks, 0);
	assert_int_equal(told_a.refused, 0);
	settle();
	assert_int_equal(told_b.given, CTL_GRANTS_WAITING_MAX);
	assert_int_equal(told_a.given, 1);
	assert_int_equal(b->grants_waiting, 0);
	/* The share is there again. */
	call(flood, 1);
	settle();
	assert_int_equal(told_b.given, CTL_GRANTS_WAITING_MAX + 1);
	place = neighbours_place();
	assert_in_range(place, CTL_GRANTS_WAITING_MAX + 1, 2 * STORE_BATCH_MAX);
	/* The refusals are recorded as others are: 100, then 10 a second. */
	assert_in_range(fixture_sql(&fix, "SELECT count(*) FROM audit WHERE action='grant.deny'"),
	                100, STORE_BATCH_MAX / 2);
}

/* The control. */
static void share__without_it_a_neighbour_is_refused(void **state)
{
	no_cap = true;
	hold_store();
	call(flood, FLOOD);
	assert_true(b->grants_waiting > 8 * CTL_GRANTS_WAITING_MAX);
	call(neighbour_asks, 0);
	assert_int_equal(told_a.refused, 1);
	assert_int_equal(told_a.status, ROS2_BUSY);
	assert_non_null(strstr(told_a.words, "store is behind"));
	settle();
	assert_int_equal(told_a.given, 0);
	assert_int_equal(neighbours_place(), -1);
}

static void on_revoked(void *arg, const struct ros2_err *err, const struct ctl_revoke_result *r)
{
	assert_int_equal(err->code, 0);
	assert_false(r->rev->record_pending);
	atomic_store(&ok, true);
}

static void revoke_inside(void *arg)
{
	struct ctl_revoke v = {.kind = STORE_TENANT, .object = b, .reason = "hostile"};

	v.wait_ms = 1;
	ctl_revoke(ctl, &root, &v, on_revoked, NULL);
}

static void revoke_b(void *arg)
{
	assert_int_equal(ctl_gate_enter_urgent(ctl, revoke_inside, NULL), 0);
}

static void share__refuses_no_revocation(void **state)
{
	hold_store();
	call(flood, FLOOD);
	assert_int_equal(b->grants_waiting, CTL_GRANTS_WAITING_MAX);
	atomic_store(&ok, false);
	call(revoke_b, 0);
	assert_int_equal(b->n_grants, 0);
	assert_int_equal(b->grants_waiting, 0); /* what waits is nobody's any more... */
	assert_int_equal(ctl->grants_waiting, CTL_GRANTS_WAITING_MAX); /* ...and takes its room */
	set_hold(false);
	until(&ok);
	settle();
	assert_int_equal(told_b.given, 0);
	loop_call(fix.loop, stop, NULL);
	assert_int_equal(fixture_sql(&fix, "SELECT count(*) FROM grants WHERE state=1"), 0);
	assert_int_equal(
		fixture_sql(&fix, "SELECT count(*) FROM audit WHERE action='tenant.revoke'"), 1);
}

static void each_live_grant_of_b(void (*fn)(struct ctl_grant *g))
{
	struct ctl_grant *g, *tmp;

	list_for_each_safe (&b->grants, g, tmp, of_tenant)
		fn(g);
}

static void release_one(struct ctl_grant *g)
{
	ctl_grant_release(g->agent, &g->uid);
}

static void release_all(void *arg)
{
	each_live_grant_of_b(release_one);
}

static void count(void *arg)
{
	*(unsigned *)arg = b->n_grants;
}

static void share__of_ends_leaves_half_and_loses_none(void **state)
{
	unsigned n = CTL_GRANTS_WAITING_MAX, left = 0;

	call(flood, n);
	settle();
	assert_int_equal(told_b.given, n);
	hold_store();
	call(release_all, 0);
	assert_int_equal(b->grants_waiting, n / 2);
	call(neighbour_asks, 0);
	call(flood, 1); /* its own new one, too */
	assert_int_equal(told_b.refused, 0);
	settle();
	/* The rest ends by timers within seconds. */
	AWAIT((loop_call(fix.loop, count, &left), left == 1));
	assert_int_equal(left, 1);
	assert_in_range(neighbours_place(), n / 2 + 1, STORE_BATCH_MAX);
	assert_int_equal(
		fixture_sql(&fix, "SELECT count(*) FROM audit WHERE action='grant.release'"), n);
}

static void make_due(struct ctl_grant *g)
{
	g->t.expires_ns = clock_boottime_ns() + 600 * NS_PER_S;
}

static void make_all_due(void *arg)
{
	each_live_grant_of_b(make_due);
}

static void say_in_use(struct ctl_grant *g)
{
	ctl_grants_in_use(g->agent, &g->uid, 1);
}

static void beats(void *arg)
{
	each_live_grant_of_b(say_in_use);
}

static void share__of_renewals_comes_with_later_beats(void **state)
{
	unsigned n = CTL_GRANTS_WAITING_MAX;

	for (int i = 0; i < 2; i++) {
		call(flood, n);
		settle();
	}
	assert_int_equal(b->n_grants, 2 * n);
	call(make_all_due, 0);
	hold_store();
	call(beats, 0);
	call(beats, 0);
	assert_int_equal(b->grants_waiting, n);
	call(neighbour_asks, 0);
	settle();
	call(beats, 0);
	settle();
	call(beats, 0); /* none is due */
	assert_int_equal(b->grants_waiting, 0);
	assert_in_range(neighbours_place(), n + 1, 2 * STORE_BATCH_MAX);
	assert_int_equal(fixture_sql(&fix, "SELECT count(*) FROM audit WHERE action='grant.renew'"),
	                 2 * n);
}

static void share__of_many_tenants_leaves_room_for_one_more(void **state)
{
	static struct ctl_object many[1000];
	struct ctl c = {0};
	struct ctl_object newcomer = {0};
	bool more = true;

	memset(many, 0, sizeof(many));
	while (more) {
		more = false;
		for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
			if (!ctl_grant_may_wait(&c, &many[i], false))
				continue;
			many[i].grants_waiting++;
			c.grants_waiting++;
			more = true;
		}
	}
	assert_true(c.grants_waiting < STORE_QUEUE_MAX);
	assert_true(ctl_grant_may_wait(&c, &newcomer, false));
	assert_true(ctl_grant_may_wait(&c, &newcomer, true));
	/* No tenant has more than another, but for the last round. */
	for (size_t i = 1; i < ARRAY_SIZE(many); i++)
		assert_in_range(many[i].grants_waiting + 1, many[0].grants_waiting,
		                many[0].grants_waiting + 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(share__of_a_flood_leaves_a_neighbour_the_next_batch),
		T(share__without_it_a_neighbour_is_refused),
		T(share__refuses_no_revocation),
		T(share__of_ends_leaves_half_and_loses_none),
		T(share__of_renewals_comes_with_later_beats),
		cmocka_unit_test(share__of_many_tenants_leaves_room_for_one_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a right and the keys that a storage target was given: they end with it, the answer of
 * a revocation waits until the device has confirmed, and nobody else waits with it. The engine is
 * one that holds its requests and pretends to have lent keys for them; tenants come over the device
 * that is memory. The controls: without the end, and without the wait.
 */
#include "tests/verbs/peer.h"
#include "common/probe.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/slow_fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <stdatomic.h>

#define LAST_NS 77ull /* before the beginning of each revocation */

static _Atomic uint32_t n_ended, idle; /* by end_keys; what forget_regions finds */
static _Atomic bool dead;
static _Atomic(const struct fabric_pd *) victim; /* the first that something ended of */
static _Atomic(const struct fabric_pd *) listed; /* the last whose keys were asked for */
static _Atomic uint64_t last_ns;

static uint32_t end_keys(struct engine_reactor *r, struct engine_io *io)
{
	atomic_fetch_add(&n_ended, 1);
	return 1;
}

static uint32_t forget_regions(struct engine_reactor *r, const struct fabric_pd *pd)
{
	const struct fabric_pd *none = NULL;

	if (!pd) /* of everybody */
		return atomic_exchange(&idle, 0);
	atomic_compare_exchange_strong(&victim, &none, pd);
	return atomic_load(&victim) == pd ? atomic_exchange(&idle, 0) : 0;
}

static uint32_t keys_ending(const struct engine_reactor *r, const struct fabric_pd *pd,
                            uint64_t until_ns, uint64_t *ret_last_ns)
{
	if (pd && atomic_load(&victim) != pd)
		return 0;
	*ret_last_ns = atomic_load(&last_ns);
	return atomic_load(&dead) ? 0 : 3;
}

static uint32_t n_standing = 3;

/* One row of commands for each direction, and standing keys. */
static void keys(const struct engine_reactor *r, const struct fabric_pd *pd, bool folded,
                 key_info_fn fn, void *arg)
{
	struct key_info k = {.id = 1, .access = 1, .issued = 900, .per_command = true};

	assert_non_null(pd);
	atomic_store(&listed, pd);
	fn(arg, &k);
	k = (struct key_info){.id = 2, .access = 2, .issued = 800, .per_command = true};
	k.count = 7;
	k.bytes = 7 * 4096;
	k.since_ns = clock_boottime_ns();
	fn(arg, &k);
	k = (struct key_info){.id = 3, .access = 2, .count = n_standing};
	k.bytes = n_standing * 4096ull;
	if (folded)
		fn(arg, &k);
	for (uint32_t i = 0; !folded && i < n_standing; i++) {
		k.id = 3 + i;
		k.count = 1;
		k.bytes = 4096;
		k.ending = i == 2;
		fn(arg, &k);
	}
}

static int setup(void **state)
{
	slow_prepare();
	slow_engine_ops.keys = keys;
	slow_engine_ops.end_keys = end_keys;
	slow_engine_ops.forget_regions = forget_regions;
	slow_engine_ops.keys_ending = keys_ending;
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	atomic_store(&n_ended, 0);
	atomic_store(&idle, 5);
	atomic_store(&dead, false);
	atomic_store(&victim, NULL);
	atomic_store(&last_ns, LAST_NS);
	return fx_setup(state);
}

/* A session of the tenant with two reads inside the engine. */
static void hold_two(struct fx *fx, struct peer *p)
{
	peer_ready(fx, p);
	slow_engine_shut(true);
	for (int i = 0; i < 2; i++)
		peer_send(p, peer_request(p, WIRE_READ, 0, 4096), NULL);
	slow_engine_wait_held(2);
}

static uint32_t calls(struct fx_revoked *r)
{
	return __atomic_load_n(&r->calls, __ATOMIC_ACQUIRE);
}

static void confirm(void)
{
	atomic_store(&last_ns, clock_boottime_ns());
	atomic_store(&dead, true);
}

static void revoke__is_answered_when_the_device_has_ended_the_keys(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct peer p;
	uint64_t confirmed;

	hold_two(fx, &p);
	fx_revoke_begin(fx, DP_SCOPE_TENANT, &fx->tenant, &r);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_REVOKED);
	/* time: long enough for what must not happen */
	usleep(100 * 1000);
	assert_int_equal(calls(&r), 0);
	assert_int_equal(atomic_load(&n_ended), 2);
	confirmed = clock_boottime_ns();
	confirm();
	fx_wait_calls(fx, &r, 1);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_true(r.first_at_ns >= confirmed);
	assert_int_equal(r.first.revoke.windows, 2 + 5);
	assert_int_equal(r.first.revoke.last_window_ns, atomic_load(&last_ns));
	assert_int_equal(r.first.revoke.draining, 2);
	slow_engine_shut(false);
	fx_wait_calls(fx, &r, 2);
	assert_int_equal(r.last.revoke.draining, 0);
	assert_int_equal(r.last.revoke.windows, 2 + 5);
	peer_close(&p);
}

static void control__without_the_wait_it_is_answered_while_keys_live(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	uint64_t asked;
	struct peer p;

	dp_test_switches.no_key_wait = true;
	hold_two(fx, &p);
	asked = clock_boottime_ns();
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &r);
	assert_false(atomic_load(&dead));
	assert_int_equal(r.first.revoke.windows, 2 + 5);
	/* The engine knows none since it was asked for: when it was looked at. */
	assert_true(r.first.revoke.last_window_ns >= asked &&
	            r.first.revoke.last_window_ns <= r.first_at_ns);
	slow_engine_shut(false);
	fx_wait_calls(fx, &r, 2);
	peer_close(&p);
}

static void control__without_the_end_no_key_is_touched(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct peer p;

	dp_test_switches.no_key_end = true;
	hold_two(fx, &p);
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &r);
	assert_int_equal(atomic_load(&n_ended), 0);
	assert_int_equal(r.first.revoke.windows, 0);
	assert_int_equal(atomic_load(&idle), 5);
	slow_engine_shut(false);
	fx_wait_calls(fx, &r, 2);
	peer_close(&p);
}

static void revoke__of_one_tenant_makes_no_other_wait(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct fx_revoked r, of_other;
	struct peer p, other;

	hold_two(fx, &p);
	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	peer_connect(fx, &other, &tenant, &grant);
	fx_revoke_begin(fx, DP_SCOPE_SESSION, &p.session, &r);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_REVOKED);
	slow_engine_shut(false);
	peer_lease(&other, PEER_MEMORY, 3);
	peer_bind(&other);
	peer_send(&other, peer_window(&other), NULL);
	peer_send(&other, peer_request(&other, WIRE_READ, 0, 4096), NULL);
	assert_int_equal(peer_recv(&other).status, ROS2_OK);
	fx_revoke(fx, DP_SCOPE_TENANT, &tenant, &of_other);
	assert_int_equal(of_other.first.revoke.sessions, 1);
	assert_int_equal(of_other.first.revoke.windows, 0);
	assert_int_equal(calls(&r), 0);
	confirm();
	fx_wait_calls(fx, &r, 1);
	/* What the engine held came back while it waited. */
	assert_int_equal(r.first.revoke.draining, 0);
	assert_int_equal(r.first.revoke.windows, 2 + 5);
	peer_close(&other);
	peer_close(&p);
}

/* A device that has not confirmed holds on to the domain, too. */
static struct fabric_region *hold_domain(struct fx *fx)
{
	static uint8_t mem[4096] __attribute__((aligned(4096)));
	struct fabric_region_opts o = {.addr = mem, .length = sizeof(mem)};
	struct fabric_region *r = NULL;
	struct dp_lease_info v[16];

	assert_true(fx_leases(fx, &fx->tenant, v, 16) > 0);
	assert_int_equal(fabric_region_new((struct fabric_pd *)atomic_load(&listed), &o, &r, NULL),
	                 0);
	return r;
}

/* Until the agent has nothing left of its one session: what answered for it is gone. */
static void wait_forgotten(struct fx *fx)
{
	struct fabric_mem_counts c = {.qps = 2};

	AWAIT((fabric_mem_counts(&c), c.qps <= 1));
	assert_int_equal(c.qps, 1); /* the peer's own */
	(void)fx_lease_count(fx);   /* one turn of the loop */
}

/* The second one's receipt is as good as the first's. */
static void ask_again(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid,
                      enum dp_scope again, const struct ros2_uid *uid_again)
{
	static struct fx_revoked first, second; /* answered late, or when the data plane goes */
	struct fabric_region *held;
	struct peer p;

	first = second = (struct fx_revoked){0};
	hold_two(fx, &p);
	held = hold_domain(fx);
	atomic_store(&victim, atomic_load(&listed));
	if (!uid)
		uid = &p.session;
	if (!uid_again)
		uid_again = &p.session;
	fx_revoke_begin(fx, scope, uid, &first);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_REVOKED);
	slow_engine_shut(false);
	wait_forgotten(fx);
	fx_revoke_begin(fx, again, uid_again, &second);
	/* time: long enough for what must not happen */
	usleep(100 * 1000);
	assert_int_equal(calls(&second), 0);
	confirm();
	fx_wait_calls(fx, &second, 1);
	fx_wait_calls(fx, &first, 1);
	assert_int_equal(second.first.revoke.draining, 0);
	fabric_region_free(held);
	peer_close(&p);
}

static void revoke__of_a_tenant_asked_again_waits_for_the_device_too(void **state)
{
	struct fx *fx = *state;

	ask_again(fx, DP_SCOPE_TENANT, &fx->tenant, DP_SCOPE_TENANT, &fx->tenant);
}

static void revoke__of_a_grant_asked_again_waits_for_the_device_too(void **state)
{
	struct fx *fx = *state;

	ask_again(fx, DP_SCOPE_GRANT, &fx->grant, DP_SCOPE_GRANT, &fx->grant);
}

static void revoke__of_a_session_asked_again_waits_for_the_device_too(void **state)
{
	ask_again(*state, DP_SCOPE_SESSION, NULL, DP_SCOPE_SESSION, NULL);
}

static void revoke__of_a_grant_after_its_tenant_waits_for_the_device_too(void **state)
{
	struct fx *fx = *state;

	ask_again(fx, DP_SCOPE_TENANT, &fx->tenant, DP_SCOPE_GRANT, &fx->grant);
}

static void revoke__of_a_grant_after_everything_waits_for_the_device_too(void **state)
{
	struct fx *fx = *state;

	ask_again(fx, DP_SCOPE_ALL, &fx->tenant, DP_SCOPE_GRANT, &fx->grant);
}

static void revoke__asked_again_counts_what_the_engine_still_holds(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked first, second;
	struct peer p;

	confirm();
	hold_two(fx, &p);
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &first);
	assert_int_equal(first.first.revoke.draining, 2);
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &second);
	assert_int_equal(second.first.revoke.draining, 2);
	slow_engine_shut(false);
	fx_wait_calls(fx, &first, 2);
	fx_wait_calls(fx, &second, 2);
	assert_int_equal(second.last.revoke.draining, 0);
	peer_close(&p);
}

static void revoke__of_everything_is_told_draining_while_one_device_does_not_confirm(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct fx_revoked all, of_other;
	struct peer p, other;
	uint64_t confirmed;

	hold_two(fx, &p);
	fabric_region_free(hold_domain(fx));
	atomic_store(&victim, atomic_load(&listed));
	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	peer_connect(fx, &other, &tenant, &grant);
	fx_revoke(fx, DP_SCOPE_ALL, NULL, &all);
	/* Everybody's sessions have ended; two requests and three keys at least have not. */
	assert_false(atomic_load(&dead));
	assert_int_equal(all.first.status, ROS2_OK);
	assert_int_equal(all.first.revoke.sessions, 2);
	assert_int_equal(all.first.revoke.windows, 2 + 5);
	assert_true(all.first.revoke.draining >= 2 + 3);
	assert_int_equal(all.first.revoke.last_window_ns, 0);
	/* While it waits, another tenant's own receipt does not. */
	fx_revoke(fx, DP_SCOPE_TENANT, &tenant, &of_other);
	assert_int_equal(of_other.first.revoke.draining, 0);
	confirmed = clock_boottime_ns();
	confirm();
	fx_wait_calls(fx, &all, 2);
	assert_true(all.last_at_ns >= confirmed);
	assert_int_equal(all.last.revoke.draining, 2);
	assert_int_equal(all.last.revoke.windows, 2 + 5);
	assert_int_equal(all.last.revoke.last_window_ns, atomic_load(&last_ns));
	slow_engine_shut(false);
	fx_wait_calls(fx, &all, 3);
	assert_int_equal(all.last.revoke.draining, 0);
	peer_close(&other);
	peer_close(&p);
}

struct asked {
	struct fx *fx;
	int rc;
	_Atomic bool done;
	uint32_t n, keys;
	struct ros2_uid tenant;
};

static void on_keys(void *arg, const struct ros2_uid *tenant, uint32_t keys)
{
	struct asked *q = arg;

	if (!tenant) {
		q->done = true;
		return;
	}
	q->n++;
	q->keys += keys;
	q->tenant = *tenant;
}

static void ask_pending(void *arg)
{
	struct asked *q = arg;

	q->rc = dp_keys_pending(q->fx->dp, clock_boottime_ns(), on_keys, q);
}

static struct asked ask(struct fx *fx)
{
	struct asked q = {.fx = fx};

	loop_call(fx->loop, ask_pending, &q);
	for (int i = 0; i < 20000 && q.rc == 0 && !q.done; i++)
		/* poll: a flag of the loop */
		usleep(1000);
	assert_int_equal(q.done, q.rc == 0);
	return q;
}

/* Also of a tenant that has gone, and without memory nobody is told half of it. */
static void keys_pending__are_told_of_whose_they_are(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "test"};
	struct fx *fx = *state;
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct fabric_region *held;
	struct fx_revoked all, of_tenant;
	struct peer p, other;
	uint32_t refused = 0;
	struct asked q;

	hold_two(fx, &p);
	held = hold_domain(fx);
	atomic_store(&victim, atomic_load(&listed));
	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	peer_connect(fx, &other, &tenant, &grant);
	fx_revoke(fx, DP_SCOPE_ALL, NULL, &all);
	assert_true(all.first.revoke.keys >= 3); /* of each reactor that has the engine */
	while (sweep_next(&s)) {
		q = ask(fx);
		sweep_off();
		assert_true(q.rc == 0 || (q.rc == -ENOMEM && sweep_fired()));
		assert_int_equal(q.n, q.rc == 0);
		refused += q.rc < 0;
		if (q.rc < 0)
			continue;
		assert_int_equal(q.keys, all.first.revoke.keys);
		assert_true(ros2_uid_eq(&q.tenant, &fx->tenant));
	}
	assert_true(refused >= 3); /* the list, an operation, what it brings: once; then for good */
	slow_engine_shut(false);
	peer_close(&other);
	fx_revoke_begin(fx, DP_SCOPE_TENANT, &fx->tenant, &of_tenant);
	wait_forgotten(fx);
	q = ask(fx);
	assert_int_equal(q.n, 1);
	assert_true(ros2_uid_eq(&q.tenant, &fx->tenant));
	confirm();
	fx_wait_calls(fx, &of_tenant, 1);
	fx_wait_calls(fx, &all, 2);
	assert_int_equal(all.last.revoke.keys, 0);
	q = ask(fx);
	assert_int_equal(q.n, 0);
	fabric_region_free(held);
	peer_close(&p);
}

static void revoke__of_everything_is_told_once_where_devices_confirm(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked all;
	struct peer p;

	hold_two(fx, &p);
	confirm();
	fx_revoke(fx, DP_SCOPE_ALL, NULL, &all);
	assert_int_equal(all.first.revoke.draining, 2);
	slow_engine_shut(false);
	fx_wait_calls(fx, &all, 2);
	assert_int_equal(all.last.revoke.draining, 0);
	peer_close(&p);
}

static void stop__does_not_wait_for_what_everybody_waits_for(void **state)
{
	struct fx *fx = *state;
	static struct fx_revoked r; /* answered when the data plane goes */
	struct peer p;

	hold_two(fx, &p);
	fx_revoke(fx, DP_SCOPE_ALL, NULL, &r);
	assert_true(r.first.revoke.draining >= 3);
	slow_engine_shut(false);
	peer_close(&p);
}

#define MANY 400 /* more than is set aside for revocations */

struct freeze {
	struct fx *fx;
	int r; /* of the last: the tenant's */
	int thaw;
	bool frozen;
};

static void ignore(void *arg, const struct dp_result *res)
{
}

static void revoke_many(void *arg)
{
	struct freeze *f = arg;

	for (int i = 0; i < MANY; i++) {
		struct ros2_uid uid = ros2_uid_new();

		(void)dp_revoke(f->fx->dp, DP_SCOPE_GRANT, &uid, clock_boottime_ns(), ROS2_REVOKED,
		                ignore, NULL);
	}
	f->r = dp_revoke(f->fx->dp, DP_SCOPE_TENANT, &f->fx->tenant, clock_boottime_ns(),
	                 ROS2_REVOKED, ignore, NULL);
}

static void ask_thaw(void *arg)
{
	struct freeze *f = arg;

	f->frozen = dp_is_frozen(f->fx->dp);
	f->thaw = dp_thaw(f->fx->dp);
}

/* Everybody is frozen; that lasts until there is memory, not until one tenant's device confirms.
 * That tenant's revocation, asked again, waits for it. */
static void freeze__ends_without_a_device_that_does_not_confirm(void **state)
{
	struct sweep s = {
		.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true, .thread = "test"};
	struct freeze f = {.fx = *state, .thaw = -EBUSY};
	static struct fx_revoked again;
	struct fabric_region *held;
	struct peer p;

	hold_two(f.fx, &p);
	held = hold_domain(f.fx);
	atomic_store(&victim, atomic_load(&listed));
	assert_true(sweep_next(&s));
	loop_call(f.fx->loop, revoke_many, &f);
	sweep_off();
	assert_int_equal(f.r, -ENOMEM);
	slow_engine_shut(false);
	wait_forgotten(f.fx);
	fx_revoke_begin(f.fx, DP_SCOPE_TENANT, &f.fx->tenant, &again);
	/* BUSY until every reactor has ended what it had. */
	AWAIT((loop_call(f.fx->loop, ask_thaw, &f), f.thaw != -EBUSY));
	assert_true(f.frozen);
	assert_int_equal(f.thaw, 0);
	assert_int_equal(calls(&again), 0);
	confirm();
	fx_wait_calls(f.fx, &again, 1);
	fabric_region_free(held);
	peer_close(&p);
}

#define PEERS 4 /* at two reactors */

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

static uint32_t how_many_ended(struct fx *fx, const struct peer p[PEERS])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < PEERS; i++)
		n += has_ended(fx, &p[i]);
	return n;
}

/* The device gives up on the first one's queue pair, and says so: @want sessions end, and the
 * others work. */
static void end_by_event(struct fx *fx, bool no_memory, uint32_t want)
{
	struct sweep s = {
		.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true, .thread = "test"};
	struct peer p[PEERS];

	for (uint32_t i = 0; i < PEERS; i++)
		peer_ready(fx, &p[i]);
	if (no_memory)
		assert_true(sweep_next(&s));
	fabric_mem_break_peer(p[0].qp, "local access violation work queue error");
	fx_event(fx, DP_EVENT_SESSION_ENDED, no_memory ? ROS2_INTERNAL : ROS2_CLOSED);
	/* The first one's end comes by another road, and each one's is told by itself. */
	for (uint32_t i = 0; i < 20000 && (!has_ended(fx, &p[0]) || how_many_ended(fx, p) < want);
	     i++)
		/* poll: events are told on another thread */
		usleep(1000);
	assert_true(has_ended(fx, &p[0]));
	sweep_off();
	for (uint32_t i = 0; i < PEERS; i++) {
		if (has_ended(fx, &p[i]))
			continue;
		peer_send(&p[i], peer_request(&p[i], WIRE_READ, 0, 4096), NULL);
		assert_int_equal(peer_recv(&p[i]).status, ROS2_OK);
	}
	assert_int_equal(how_many_ended(fx, p), want);
	for (uint32_t i = 0; i < PEERS; i++)
		peer_close(&p[i]);
}

/* Nobody can say to the reactor whose queue pair it was: all of that reactor's end, since what goes
 * on over a failed one would hang; the other reactor's go on, and so does the next. The control:
 * with memory it is the one alone. */
static void event__without_memory_for_it_ends_all_that_it_may_be_about(void **state)
{
	struct fx *fx = *state;
	struct peer p;

	end_by_event(fx, true, PEERS / 2);
	peer_ready(fx, &p);
	peer_send(&p, peer_request(&p, WIRE_READ, 0, 4096), NULL);
	assert_int_equal(peer_recv(&p).status, ROS2_OK);
	peer_close(&p);
}

static void control__event_with_memory_ends_the_one_it_is_about(void **state)
{
	end_by_event(*state, false, 1);
}

static void revoke__finds_what_a_lost_connection_left_in_the_engine(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct peer p;

	hold_two(fx, &p);
	peer_close(&p);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	/* The right stands: they end as they end. */
	assert_int_equal(atomic_load(&n_ended), 0);
	confirm();
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &r);
	assert_int_equal(atomic_load(&n_ended), 2);
	assert_int_equal(r.first.revoke.sessions, 0);
	assert_int_equal(r.first.revoke.windows, 2 + 5);
	slow_engine_shut(false);
	fx_wait_calls(fx, &r, 2);
}

static void expiry__of_a_grant_ends_its_keys(void **state)
{
	struct fx *fx = *state;
	struct peer p;

	hold_two(fx, &p);
	/* Contact with the controller ends: all rights do. */
	fx->limits.contact_limit_ms = 1;
	fx_limits(fx);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CONTACT_LOST);
	assert_int_equal(atomic_load(&n_ended), 2);
	assert_int_equal(atomic_load(&idle), 0);
	slow_engine_shut(false);
	peer_close(&p);
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = ((const struct dp_lease_info *)a)->lease_id,
		 y = ((const struct dp_lease_info *)b)->lease_id;

	return (x > y) - (x < y);
}

static void list__shows_keys_of_targets_beside_those_of_tenants(void **state)
{
	struct dp_lease_info v[16];
	struct ros2_uid stranger = ros2_uid_new();
	struct fx *fx = *state;
	struct peer p;

	n_standing = 3;
	peer_ready(fx, &p);
	/* Its request makes the engine known to the reactor. */
	peer_send(&p, peer_request(&p, WIRE_READ, 0, 4096), NULL);
	assert_int_equal(peer_recv(&p).status, ROS2_OK);
	assert_int_equal(fx_leases(fx, &fx->tenant, v, 16), 6);
	qsort(v, 6, sizeof(*v), by_id);
	assert_int_equal(v[0].kind, DP_LEASE_REGION);
	assert_int_equal(v[0].count, 1);
	assert_string_equal(v[0].engine, "");
	for (int i = 1; i < 6; i++) {
		assert_int_equal(v[i].kind, i < 3 ? DP_LEASE_PER_COMMAND : DP_LEASE_STANDING);
		assert_true(v[i].lease_id > v[i - 1].lease_id);
		assert_string_equal(v[i].engine, "ram");
		assert_true(ros2_uid_eq(&v[i].tenant, &fx->tenant));
		assert_true(ros2_uid_eq(&v[i].grant, &fx->grant));
		assert_true(ros2_uid_eq(&v[i].session, &p.session));
		assert_int_equal(v[i].ending, i == 5);
		assert_int_equal(v[i].count, i == 1 ? 0 : i == 2 ? 7 : 1);
		assert_true((v[i].since_unix_ns != 0) == (i == 2));
	}
	assert_int_equal(v[1].issued, 900);
	assert_int_equal(v[2].length, 7 * 4096);
	assert_true(clock_unix_ns() - v[2].since_unix_ns < 60 * NS_PER_S);
	assert_int_equal(fx_leases(fx, NULL, v, 4), 4);
	fx_tenant(fx, &stranger);
	assert_int_equal(fx_leases(fx, &stranger, v, 16), 0);
	/* More than are told one by one. */
	n_standing = 17000;
	assert_int_equal(fx_leases(fx, NULL, v, 16), 4);
	qsort(v, 4, sizeof(*v), by_id);
	assert_int_equal(v[3].kind, DP_LEASE_STANDING);
	assert_int_equal(v[3].count, 17000);
	peer_close(&p);
}

static void stop__does_not_wait_for_a_device_that_never_confirms(void **state)
{
	struct fx *fx = *state;
	static struct fx_revoked r; /* answered when the data plane goes */
	struct peer p;

	hold_two(fx, &p);
	fx_revoke_begin(fx, DP_SCOPE_TENANT, &fx->tenant, &r);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_REVOKED);
	slow_engine_shut(false);
	peer_close(&p);
	assert_int_equal(calls(&r), 0);
}

static int told; /* of the device: 1 safe, 0 not */

void __wrap_fabric_dev_set_peer_invalidates(struct fabric_dev *d, bool seen_safe);
void __wrap_fabric_dev_set_peer_invalidates(struct fabric_dev *d, bool seen_safe)
{
	assert_string_equal(fabric_dev_attr(d)->name, FABRIC_MEM_DEVICE);
	told = seen_safe;
}

static void device__is_told_what_the_probe_saw_of_invalidations(void **state)
{
	struct fx *fx = *state;

	told = -1;
	dp_rdma_seen(fx->dp, PROBE_ALL & ~(1u << PROBE_FOREIGN_INVALIDATE));
	assert_int_equal(told, 0);
	dp_rdma_seen(fx->dp, 1u << PROBE_FOREIGN_INVALIDATE);
	assert_int_equal(told, 1);
	dp_rdma_seen(fx->dp, 0);
	assert_int_equal(told, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, slow_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(revoke__is_answered_when_the_device_has_ended_the_keys),
		T(control__without_the_wait_it_is_answered_while_keys_live),
		T(control__without_the_end_no_key_is_touched),
		T(revoke__of_one_tenant_makes_no_other_wait),
		T(event__without_memory_for_it_ends_all_that_it_may_be_about),
		T(control__event_with_memory_ends_the_one_it_is_about),
		T(revoke__finds_what_a_lost_connection_left_in_the_engine),
		T(expiry__of_a_grant_ends_its_keys),
		T(list__shows_keys_of_targets_beside_those_of_tenants),
		T(stop__does_not_wait_for_a_device_that_never_confirms),
		T(revoke__of_a_tenant_asked_again_waits_for_the_device_too),
		T(revoke__of_a_grant_asked_again_waits_for_the_device_too),
		T(revoke__of_a_session_asked_again_waits_for_the_device_too),
		T(revoke__of_a_grant_after_its_tenant_waits_for_the_device_too),
		T(revoke__of_a_grant_after_everything_waits_for_the_device_too),
		T(revoke__asked_again_counts_what_the_engine_still_holds),
		T(revoke__of_everything_is_told_draining_while_one_device_does_not_confirm),
		T(keys_pending__are_told_of_whose_they_are),
		T(revoke__of_everything_is_told_once_where_devices_confirm),
		T(stop__does_not_wait_for_what_everybody_waits_for),
		T(freeze__ends_without_a_device_that_does_not_confirm),
		T(device__is_told_what_the_probe_saw_of_invalidations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The places for calls in flight at an agent, which headers alone take: a tenant has as many as any
 * other, however many principals its document has, and those whom nobody knows have as many
 * together. And who is told that a cap was hit reads which, and so does who reads the log. */
#include "agent/grants_priv.h"
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/log.h"
#include "proto/rpc/rpc_priv.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include "tests/rpc/bare.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define FEW    3 /* connections of an address */
#define ALL    1024
#define SECOND "spiffe://ros2.test/tenant/alpha/second"

/* For grants.c (CMakeLists.txt). */
struct agent_test_switches agent_test_switches;

/* The control: whoever comes first has what there is. */
static bool no_shares;
void __real_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
void __wrap_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
void __wrap_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group)
{
	__real_rpc_quota_init(q, of, total, per_group);
	if (!no_shares)
		return;
	q->share.most = q->share.sure = q->share.total;
	q->share.kept = 0;
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	Ros2__V1__AgentObject *o;

	world_start(w);
	world_agent_start(w);
	world_populate(w);
	o = fix_tenant(&w->f, "alpha", FIX_ALPHA "\n    - " SECOND, WORLD_ALPHA_SEED, 2);
	world_send(w, &o, 1, false);
	world_wait(w, &w->acks, 2);
	world_issue(w->dir, "tenant", "second", SECOND);
	world_issue(w->dir, "tenant", "other2", "spiffe://ros2.test/tenant/gamma/another");
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	return 0;
}

static struct rpc_server_stats stats(struct world *w)
{
	struct rpc_server_stats st;

	service_stats(w->agent->service, &st);
	return st;
}

static uint64_t answered(struct world *w)
{
	struct rpc_server_stats st = stats(w);

	return st.calls_total + st.refused_limit;
}

/* @n headers, each of which has a place or was refused one. */
static struct bare_held *hold(struct world *w, const char *who, const char *path, size_t n)
{
	char target[64], cert[4200], key[4200], ca[4200];
	struct bare r = {.target = target, .path = path, .ca = ca, .cert = cert, .key = key};
	uint64_t before = answered(w);
	struct bare_held *h;

	snprintf(target, sizeof(target), "127.0.0.1:%u", agent_tenant_port(w->agent));
	snprintf(cert, sizeof(cert), "%s/%s.crt", w->dir, who);
	snprintf(key, sizeof(key), "%s/%s.key", w->dir, who);
	testing_path(ca, w->dir, "infra.crt");
	h = bare_hold(&r, n);
	assert_true(AWAIT(answered(w) - before >= n));
	return h;
}

static const char of_calls[] = "calls in flight",
		  of_kept[] = "calls in flight that keep or give up what it has";

static void let_go(struct bare_held *h, size_t refused, const char *of)
{
	char words[512] = "", why[512];
	int code = 0;

	snprintf(why, sizeof(why),
	         "BUSY: too many open at once from this caller: it has 256 %s, and its share of "
	         "the 1024 is 256 (fixed): try again when one has ended",
	         of);
	assert_int_equal(bare_held_free(h, refused, &code, words), refused);
	if (refused)
		assert_string_equal(words, why);
}

static void is_served(struct world *w, const char *who)
{
	struct rpc_channel *c = world_tenant(w, who);
	struct ros2_uid s;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	rpc_channel_free(c);
}

static void tenant__has_the_places_of_one_for_all_its_principals(void **state)
{
	static const char *const paths[] = {"/ros2.v1.Tenant/Mount", "/ros2.v1.Tenant/RenewRegion"};
	struct world *w = *state;

	for (size_t i = 0; i < 2; i++) {
		struct bare_held *first = hold(w, "alpha", paths[i], SERVICE_CALLS_PER_TENANT - 2);
		struct bare_held *second = hold(w, "second", paths[i], 10);

		assert_int_equal(stats(w).calls_now, SERVICE_CALLS_PER_TENANT);
		is_served(w, "beta");
		let_go(second, 8, i ? of_kept : of_calls);
		let_go(first, 0, of_calls);
		assert_true(AWAIT(stats(w).calls_now == 0));
	}
}

static void control__without_its_share_one_tenant_has_every_place(void **state)
{
	struct world *w = *state;
	struct bare_held *h = hold(w, "alpha", "/ros2.v1.Tenant/Mount", ALL);
	struct rpc_channel *beta = world_tenant(w, "beta");
	struct ros2_uid s;

	assert_int_equal(stats(w).calls_now, ALL);
	assert_int_equal(world_open_session(beta, &s), ROS2_BUSY);
	rpc_channel_free(beta);
	let_go(h, 0, of_calls);
	assert_true(AWAIT(stats(w).calls_now == 0));
	is_served(w, "beta");
}

static void strangers__have_the_places_of_one_together(void **state)
{
	struct world *w = *state;
	struct bare_held *first, *second;

	first = hold(w, "other", "/ros2.v1.Tenant/Mount", SERVICE_CALLS_PER_TENANT - 2);
	second = hold(w, "other2", "/ros2.v1.Tenant/Mount", 10);
	assert_int_equal(stats(w).calls_now, SERVICE_CALLS_PER_TENANT);
	is_served(w, "alpha");
	is_served(w, "beta");
	let_go(second, 8, of_calls);
	let_go(first, 0, of_calls);
}

/* Whose document no longer has the principal does not pay for it, also while its calls are open. */
static void principal__that_comes_to_another_tenant_has_that_ones_places(void **state)
{
	struct world *w = *state;
	struct bare_held *before, *after;
	Ros2__V1__AgentObject *o[2];
	unsigned acks = w->acks;

	before = hold(w, "second", "/ros2.v1.Tenant/Mount", SERVICE_CALLS_PER_TENANT);
	o[0] = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 3);
	o[1] = fix_tenant(&w->f, "beta", FIX_BETA "\n    - " SECOND, WORLD_BETA_SEED, 2);
	world_send(w, o, 2, false);
	world_wait(w, &w->acks, acks + 1);
	after = hold(w, "second", "/ros2.v1.Tenant/Mount", SERVICE_CALLS_PER_TENANT + 1);
	assert_int_equal(stats(w).calls_now, 2 * SERVICE_CALLS_PER_TENANT);
	let_go(before, 0, of_calls);
	assert_true(AWAIT(stats(w).calls_now == SERVICE_CALLS_PER_TENANT));
	is_served(w, "alpha");
	let_go(after, 1, of_calls);
	assert_true(AWAIT(stats(w).calls_now == 0));
	is_served(w, "beta");
}

/* ---- grants that are waited for ---- */

struct waiting {
	struct world *w;
	unsigned told, at_once;
	enum ros2_status status; /* of the last that was refused at once */
	char words[320];
};

static void on_grant(void *arg, const struct ros2_uid *grant, const struct ros2_err *err)
{
	struct waiting *t = arg;

	t->told++;
	if (!err || t->at_once)
		return;
	t->status = err->status;
	snprintf(t->words, sizeof(t->words), "%s", err->msg);
}

/* On the loop, where the answers come in, too: no sooner than this has ended. */
static void take_many(void *arg)
{
	struct waiting *t = arg;
	struct ros2_uid alpha = fix_uid(WORLD_ALPHA_SEED);

	for (unsigned i = 0; i < GRANTS_PENDING_PER_TENANT + 1; i++)
		grants_take(t->w->agent->grants, &alpha, FIX_ALPHA, "10.0.0.1:1", on_grant, t);
	t->at_once = t->told;
}

static void is_told(void *arg)
{
	struct waiting *t = arg;

	if (t->told == GRANTS_PENDING_PER_TENANT + 1)
		t->w = NULL;
}

static void grants__that_are_waited_for_are_few_of_a_tenant(void **state)
{
	struct world *w = *state;
	struct waiting t = {.w = w};

	w->grant_status = ROS2_DENIED;
	loop_call(w->loop, take_many, &t);
	assert_int_equal(t.at_once, 1);
	assert_int_equal(t.status, ROS2_BUSY);
	assert_string_equal(t.words, "too many sessions wait for a grant: 64 of the tenant, which "
	                             "may be 64, and at most 1024 of all (fixed): try again in a "
	                             "moment");
	assert_true(AWAIT((loop_call(w->loop, is_told, &t), !t.w)));
	w->grant_status = 0;
	is_served(w, "alpha");
}

/* Places, of 64 each but the last ones: 12 tenants have three quarters, and four more the four each
 * that are theirs. */
#define GENEROUS       16u
#define FIRST_GENEROUS 100 /* seed */
#define PLACES         (GRANTS_PENDING_MAX - GRANTS_PENDING_MAX / 4 + 4 * GRANTS_PENDING_SURE)

/* All of them ask for what they may have, and one more, while nobody answers; then another. */
static void take_all(void *arg)
{
	struct waiting *t = arg;
	struct grants *g = t->w->agent->grants;

	for (uint8_t i = 0; i < GENEROUS; i++) {
		struct ros2_uid uid = fix_uid(FIRST_GENEROUS + i);

		for (unsigned n = 0; n < GRANTS_PENDING_PER_TENANT; n++)
			grants_take(g, &uid, FIX_ALPHA, "10.0.0.1:1", on_grant, t);
	}
	t->at_once = t->told;
}

static void take_one_more(void *arg)
{
	struct waiting *t = arg;
	struct ros2_uid beta = fix_uid(WORLD_BETA_SEED);

	grants_take(t->w->agent->grants, &beta, FIX_BETA, "10.0.0.1:2", on_grant, t);
	t->at_once = t->told;
}

/* What they were refused at once, and what their neighbour was. */
static void all_take(struct world *w, struct waiting *ret_all, struct waiting *ret_neighbour)
{
	*ret_all = *ret_neighbour = (struct waiting){.w = w};
	world_controller_stop(w);
	loop_call(w->loop, take_all, ret_all);
	loop_call(w->loop, take_one_more, ret_neighbour);
	world_agent_stop(w); /* those that wait are told here */
}

static void grants__that_many_tenants_wait_for_leave_a_neighbour_its_first(void **state)
{
	struct waiting all, neighbour;

	all_take(*state, &all, &neighbour);
	assert_int_equal(all.at_once, GENEROUS * GRANTS_PENDING_PER_TENANT - PLACES);
	assert_string_equal(all.words,
	                    "too many sessions wait for a grant: of the 1024 places (fixed) the "
	                    "last 256 are for each tenant's first 4, and this one has 4: try again "
	                    "in a moment");
	assert_int_equal(neighbour.at_once, 0);
}

static void control__without_that_share_they_leave_it_none(void **state)
{
	struct waiting all, neighbour;

	agent_test_switches.no_waiting_share = true;
	all_take(*state, &all, &neighbour);
	assert_int_equal(all.at_once, 0);
	assert_int_equal(neighbour.at_once, 1);
	assert_int_equal(neighbour.status, ROS2_BUSY);
	agent_test_switches.no_waiting_share = false;
}

static void control__one_tenant_waits_for_as_many_grants_as_it_asks_for(void **state)
{
	struct waiting t = {.w = *state};

	agent_test_switches.no_waiting_share = true;
	world_controller_stop(*state);
	loop_call(t.w->loop, take_many, &t);
	assert_int_equal(t.at_once, 0);
	world_agent_stop(*state);
	assert_int_equal(t.told, GRANTS_PENDING_PER_TENANT + 1);
	agent_test_switches.no_waiting_share = false;
}

/* Who waits for a grant gives up at once, where the test says so. */
static _Atomic bool impatient;
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, impatient && ms == GRANT_WAIT_MS ? 50 : ms, fn, arg);
}

struct table { /* of those that wait, full */
	struct world *w;
	_Atomic unsigned answered, given_up;
};

static void on_answer(void *arg, const struct ros2_uid *grant, const struct ros2_err *err)
{
	struct table *t = arg;

	if (err->status == ROS2_DENIED)
		t->answered++;
	else if (err->status == ROS2_UNAVAILABLE)
		t->given_up++;
}

#define SURE (GRANTS_PENDING_MAX / 4 / GRANTS_PENDING_SURE) /* tenants with no more than these */

static void fill_table(void *arg)
{
	struct table *t = arg;
	struct grants *g = t->w->agent->grants;
	unsigned n = GRANTS_PENDING_MAX / 4 * 3 / GRANTS_PENDING_PER_TENANT + SURE;

	t->answered = t->given_up = 0;
	for (uint8_t i = 0; i < n; i++) {
		struct ros2_uid uid = fix_uid(FIRST_GENEROUS + i);

		for (unsigned k = 0; k < GRANTS_PENDING_PER_TENANT; k++)
			grants_take(g, &uid, FIX_ALPHA, "10.0.0.1:1", on_answer, t);
	}
}

/* A controller that does not read for a while is asked no more than it takes: the stream, which is
 * everybody's, does not end for what is waited for. */
static void grants__are_asked_for_at_the_pace_of_the_controller(void **state)
{
	struct world *w = *state;
	struct table t = {.w = w};
	unsigned hellos = w->hellos, beats = w->beats;

	w->grant_status = ROS2_DENIED;
	w->deaf = true;
	world_wait(w, &w->beats, beats + 1);
	impatient = true;
	for (int i = 0; i < 3; i++) {
		loop_call(w->loop, fill_table, &t);
		assert_true(AWAIT(t.given_up == GRANTS_PENDING_MAX));
	}
	impatient = false;
	loop_call(w->loop, fill_table, &t);
	world_hear(w);
	assert_true(AWAIT(t.answered + t.given_up == GRANTS_PENDING_MAX));
	assert_int_equal(t.given_up, 0);
	assert_int_equal(w->hellos, hellos);
	/* And where it was away, when it comes. */
	world_controller_stop(w);
	loop_call(w->loop, fill_table, &t);
	world_controller_start(w);
	assert_true(AWAIT(t.answered + t.given_up == GRANTS_PENDING_MAX));
	assert_int_equal(t.given_up, 0);
	assert_int_equal(w->hellos, hellos + 1);
}

/* ---- what the log is told of a cap that is BUSY ---- */

static _Atomic unsigned denied_of_alpha; /* BUSY, and with these words */
static const char *_Atomic denied_why = "";

static void sees_record(const Ros2__V1__AuditRecord *r)
{
	denied_of_alpha += !strcmp(r->action, "session.deny") && !strcmp(r->tenant, "alpha") &&
	                   !strcmp(r->status, "BUSY") && strstr(r->reason, denied_why) &&
	                   r->result == ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED;
}

static int setup_seen(void **state)
{
	setup(state);
	((struct world *)*state)->sees_record = sees_record;
	denied_of_alpha = 0;
	return 0;
}

static void is_refused_and_recorded(struct rpc_channel *c, const char *words)
{
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	char told[320];

	denied_why = words;
	req.protocol = RPC_PROTOCOL_VERSION;
	req.transport = ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	assert_int_equal(world_call(c, &ros2_v1_tenant_open_session, &req.base, NULL, told),
	                 ROS2_BUSY);
	assert_non_null(strstr(told, words));
	assert_true(AWAIT(denied_of_alpha == 1));
}

static void grants__that_too_many_wait_for_are_told_in_the_log(void **state)
{
	struct world *w = *state;
	struct waiting t = {.w = w};
	struct rpc_channel *alpha = world_tenant(w, "alpha");

	w->hold_grants = true;
	loop_call(w->loop, take_many, &t);
	is_refused_and_recorded(alpha, "too many sessions wait for a grant: 64 of the tenant");
	rpc_channel_free(alpha);
	world_agent_stop(w);
}

/* The others on the connection of alpha's session are of tenants that this test says. */
static void fill_connection(void *arg)
{
	struct world *w = arg;
	struct agent_session *s = sessions_first(w->agent->sessions), *other;
	char peer[64];

	snprintf(peer, sizeof(peer), "%s", s->peer);
	for (unsigned i = 1; i < SESSIONS_PER_CONNECTION; i++) {
		struct agent_session_params p = {.tenant = fix_uid((uint8_t)(FIRST_GENEROUS + i)),
		                                 .tenant_name = "t",
		                                 .principal = FIX_ALPHA,
		                                 .peer = peer,
		                                 .max_of_tenant = 1,
		                                 .judged = RPC_TRUST_FIRST};

		assert_int_equal(agent_session_new(w->agent->sessions, &p, &other, NULL), 0);
	}
}

static void connection__with_too_many_sessions_is_told_in_the_log(void **state)
{
	struct world *w = *state;
	struct rpc_channel *alpha = world_tenant(w, "alpha");
	struct ros2_uid s;

	assert_int_equal(world_open_session(alpha, &s), ROS2_OK);
	loop_call(w->loop, fill_connection, w);
	is_refused_and_recorded(alpha, "64 sessions over one connection, the most there may be "
	                               "(fixed)");
	rpc_channel_free(alpha);
}

static int setup_no_shares(void **state)
{
	no_shares = true;
	return setup(state);
}

static int teardown_no_shares(void **state)
{
	no_shares = false;
	return teardown(state);
}

static int setup_few(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_start(w);
	w->connections_per_address = FEW;
	world_agent_start(w);
	*state = w;
	return 0;
}

static int dial(const struct world *w)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(agent_tenant_port(w->agent))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static bool recorded(struct world *w, const char *reason)
{
	bool found;

	pthread_mutex_lock(&w->lock);
	found = strstr(w->reasons, reason);
	pthread_mutex_unlock(&w->lock);
	return found;
}

/* Who sets the cap reads in the log by which flag. */
static void connections__beyond_the_flag_are_recorded_with_its_name(void **state)
{
	struct world *w = *state;
	int fd[FEW + 1];

	for (int i = 0; i < FEW + 1; i++)
		fd[i] = dial(w);
	assert_true(AWAIT(recorded(w, "max-connections-per-address of --tenant-connections: the "
	                              "listener has its 3 connections from this address")));
	for (int i = 0; i < FEW + 1; i++)
		close(fd[i]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(tenant__has_the_places_of_one_for_all_its_principals),
		cmocka_unit_test_setup_teardown(
			control__without_its_share_one_tenant_has_every_place, setup_no_shares,
			teardown_no_shares),
		T(strangers__have_the_places_of_one_together),
		T(grants__that_are_waited_for_are_few_of_a_tenant),
		T(grants__that_many_tenants_wait_for_leave_a_neighbour_its_first),
		T(control__without_that_share_they_leave_it_none),
		T(control__one_tenant_waits_for_as_many_grants_as_it_asks_for),
		T(grants__are_asked_for_at_the_pace_of_the_controller),
		cmocka_unit_test_setup_teardown(grants__that_too_many_wait_for_are_told_in_the_log,
	                                        setup_seen, teardown),
		cmocka_unit_test_setup_teardown(
			connection__with_too_many_sessions_is_told_in_the_log, setup_seen,
			teardown),
		T(principal__that_comes_to_another_tenant_has_that_ones_places),
		cmocka_unit_test_setup_teardown(
			connections__beyond_the_flag_are_recorded_with_its_name, setup_few,
			teardown),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crowd: more than four times sessions.max principals of one tenant, and as many whom no document
 * names, each with a certificate and a connection of its own, who knock again and again. What the
 * agent keeps is kept by tenant: together they have one tenant's calls in a second, sessions,
 * grants and records, and what is not recorded by itself is counted; each refusal is told, the last
 * one too. The neighbour opens and closes sessions meanwhile, and keeps the one it had. And those
 * who come no further than a handshake. Time, for rates, stands while they knock.
 */
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define SESSIONS 3 /* sessions.max of fix_tenant */
#define CROWD    (4 * SESSIONS + 4)
#define KNOCKS   16
#define VERBS    40 /* controlVerbsPerSecond of both */
#define AT_ONCE  50 /* handshakes: what a listener tells one by one */
#define ROUNDS   4

struct agent_test_switches agent_test_switches;

/* The clock of service.c and audit.c (CMakeLists.txt). */
static _Atomic uint64_t held_ns;

uint64_t service_clock_ns(void);
uint64_t service_clock_ns(void)
{
	return held_ns;
}

/* ---- what the log is told ---- */

struct told {
	const char *tenant;
	enum ros2_status status;
	_Atomic uint64_t by_itself, counted;
};
static struct told limit = {"alpha", ROS2_LIMIT}, rate = {"alpha", ROS2_RATE},
		   denied = {"", ROS2_DENIED}, busy = {"alpha", ROS2_BUSY},
		   handshakes = {"", ROS2_UNAUTHENTICATED};
static _Atomic unsigned other_denials, opened_by_beta;
static _Atomic unsigned by_its_words; /* of the fake data plane, one by one */

static bool is_of(const struct told *t, const Ros2__V1__AuditRecord *r)
{
	return !strcmp(r->tenant, t->tenant) && !strcmp(r->status, ros2_status_to_str(t->status));
}

static void count(struct told *t, const Ros2__V1__AuditRecord *r)
{
	if (r->aggregate)
		t->counted += r->aggregate->count;
	else
		t->by_itself++;
}

static void sees_record(const Ros2__V1__AuditRecord *r)
{
	struct told *const all[] = {&limit, &rate, &denied, &busy};
	bool known = false;

	if (!strcmp(r->action, "connection.refused") && is_of(&handshakes, r))
		count(&handshakes, r);
	by_its_words += !r->aggregate && !strcmp(r->reason, "the test says so");
	opened_by_beta += !strcmp(r->action, "session.open") && !strcmp(r->tenant, "beta");
	if (strcmp(r->action, "session.deny") != 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!is_of(all[i], r))
			continue;
		known = true;
		count(all[i], r);
	}
	other_denials += !known;
}

static uint64_t sum(const struct told *t)
{
	return t->by_itself + t->counted;
}

/* ---- the crowd ---- */

struct crowd {
	struct world *w;
	struct rpc_channel *alpha[CROWD], *nobody[CROWD], *beta;
	struct ros2_uid of_beta;
	unsigned opened, over_limit, over_rate, denied;
	unsigned served; /* sessions of beta */
};

static struct rpc_channel *principal(struct world *w, const char *tenant, unsigned i)
{
	char name[32], uri[96];

	snprintf(name, sizeof(name), "%s-%u", tenant, i);
	snprintf(uri, sizeof(uri), "spiffe://ros2.test/tenant/%s/%u", tenant, i);
	world_issue(w->dir, "tenant", name, uri);
	return world_tenant(w, name);
}

static void connected(struct world *w, struct rpc_channel *c, struct ros2_uid *ret)
{
	struct dp_event ev = {.type = DP_EVENT_CONNECTED};

	assert_int_equal(world_open_session(c, &ev.session), ROS2_OK);
	fake_dp_event(w->agent->dp, &ev);
	*ret = ev.session;
}

/* Alpha's document with them all. */
static void name_them(struct world *w)
{
	char text[CROWD * 48] = FIX_ALPHA;
	Ros2__V1__AgentObject *o;
	size_t n = strlen(text);

	for (unsigned i = 0; i < CROWD; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
		                      "\n    - spiffe://ros2.test/tenant/alpha/%u", i);
	o = fix_tenant(&w->f, "alpha", text, WORLD_ALPHA_SEED, 2);
	world_send(w, &o, 1, false);
	world_wait(w, &w->acks, 2);
}

static int setup(void **state)
{
	struct crowd *c = calloc(1, sizeof(*c));
	struct world *w = c->w = calloc(1, sizeof(*w));

	limit.by_itself = limit.counted = rate.by_itself = rate.counted = 0;
	denied.by_itself = denied.counted = other_denials = opened_by_beta = 0;
	held_ns = clock_boottime_ns();
	fix_verbs_per_s = VERBS;
	world_start(w);
	w->sees_record = sees_record;
	world_agent_start(w);
	world_populate(w);
	name_them(w);
	fix_verbs_per_s = 0;
	for (unsigned i = 0; i < CROWD; i++) {
		c->alpha[i] = principal(w, "alpha", i);
		c->nobody[i] = principal(w, "nobody", i);
	}
	c->beta = world_tenant(w, "beta");
	connected(w, c->beta, &c->of_beta);
	*state = c;
	return 0;
}

static int teardown(void **state)
{
	struct crowd *c = *state;

	agent_test_switches.no_verb_limit = agent_test_switches.no_record_bound = false;
	for (unsigned i = 0; i < CROWD; i++) {
		rpc_channel_free(c->alpha[i]);
		rpc_channel_free(c->nobody[i]);
	}
	rpc_channel_free(c->beta);
	world_stop(c->w);
	assert_int_equal(c->w->fatal.code, 0);
	free(c->w);
	free(c);
	return 0;
}

static void knock(struct crowd *c, unsigned i)
{
	struct ros2_uid s;
	enum ros2_status st;

	if (c->opened < SESSIONS) {
		connected(c->w, c->alpha[i], &s);
		c->opened++;
		return;
	}
	st = world_open_session(c->alpha[i], &s);
	c->over_limit += st == ROS2_LIMIT;
	c->over_rate += st == ROS2_RATE;
	if (st != ROS2_LIMIT && st != ROS2_RATE)
		fail_msg("principal %u of alpha: %s", i, ros2_status_to_str(st));
}

static void knock_unknown(struct crowd *c, unsigned i)
{
	struct ros2_uid s;

	assert_int_equal(world_open_session(c->nobody[i], &s), ROS2_DENIED);
	c->denied++;
}

/* A call in the session that it had, and a session more. */
static void beta_is_served(struct crowd *c)
{
	Ros2__V1__HandleRef stat = ROS2__V1__HANDLE_REF__INIT;
	Ros2__V1__SessionRef ref = ROS2__V1__SESSION_REF__INIT;
	struct ros2_uid s;

	stat.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, c->of_beta.b};
	stat.handle = 77;
	assert_int_equal(world_call(c->beta, &ros2_v1_tenant_stat_handle, &stat.base, NULL, NULL),
	                 ROS2_BAD_HANDLE);
	assert_int_equal(world_open_session(c->beta, &s), ROS2_OK);
	ref.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, s.b};
	assert_int_equal(world_call(c->beta, &ros2_v1_tenant_close_session, &ref.base, NULL, NULL),
	                 ROS2_OK);
	c->served++;
}

static void all_knock(struct crowd *c)
{
	for (unsigned k = 0; k < KNOCKS; k++) {
		for (unsigned i = 0; i < CROWD; i++) {
			knock(c, i);
			knock_unknown(c, i);
		}
		if (k % 2)
			beta_is_served(c);
	}
	assert_int_equal(c->opened + c->over_limit + c->over_rate, CROWD * KNOCKS);
	assert_int_equal(c->denied, CROWD * KNOCKS);
}

/* ---- what is left of it ---- */

struct kept {
	struct crowd *c;
	unsigned sessions, of_alpha;
};

static void look(void *arg)
{
	struct kept *k = arg;

	for (struct agent_session *s = sessions_first(k->c->w->agent->sessions); s;
	     s = s->hh.next) {
		k->sessions++;
		k->of_alpha += !strcmp(s->tenant_name, "alpha");
	}
}

static struct kept kept(struct crowd *c)
{
	struct kept k = {.c = c};

	loop_call(c->w->loop, look, &k);
	return k;
}

static bool all_is_told(const struct crowd *c)
{
	return sum(&limit) >= c->over_limit && sum(&rate) >= c->over_rate &&
	       sum(&denied) >= c->denied && opened_by_beta > c->served;
}

/* What was not told one by one is, counted, when it has been kept for long enough. */
static void assert_told_once(struct crowd *c)
{
	held_ns += AUDIT_BOUND_HOLD_NS;
	if (!AWAIT(all_is_told(c)))
		fail_msg("told: %u of %u LIMIT, %u of %u RATE, %u of %u DENIED, %u of %u of beta",
		         (unsigned)sum(&limit), c->over_limit, (unsigned)sum(&rate), c->over_rate,
		         (unsigned)sum(&denied), c->denied, (unsigned)opened_by_beta,
		         c->served + 1);
	assert_int_equal(sum(&limit), c->over_limit);
	assert_int_equal(sum(&rate), c->over_rate);
	assert_int_equal(sum(&denied), c->denied);
	assert_int_equal(opened_by_beta, c->served + 1);
	assert_int_equal(other_denials, 0);
}

/* By themselves no more than one tenant's, whoever it was: not a hundred of each principal. */
static bool is_bounded(const struct told *t)
{
	return t->by_itself <= AUDIT_BOUND_FIRST + AUDIT_BOUND_PER_S;
}

static void crowd__has_what_one_tenant_has_and_all_of_it_is_told(void **state)
{
	struct crowd *c = *state;

	all_knock(c);
	assert_int_equal(c->opened + c->over_limit, VERBS);
	assert_int_equal(kept(c).of_alpha, SESSIONS);
	assert_in_range(kept(c).sessions, SESSIONS + 1, SESSIONS + 1 + SESSIONS_ENDED_TENANT);
	assert_int_equal(c->w->grant_requests, SESSIONS + 2); /* two of beta's at once */
	assert_told_once(c);
	assert_true(is_bounded(&rate) && is_bounded(&denied));
}

static void control__calls_of_a_crowd(void **state)
{
	struct crowd *c = *state;

	agent_test_switches.no_verb_limit = true;
	all_knock(c);
	assert_int_equal(c->opened + c->over_limit, CROWD * KNOCKS);
}

static void control__records_of_a_crowd(void **state)
{
	struct crowd *c = *state;

	agent_test_switches.no_record_bound = true;
	all_knock(c);
	assert_told_once(c);
	assert_false(is_bounded(&rate) || is_bounded(&denied));
}

/* ---- who comes no further than a handshake ---- */

static _Atomic uint64_t refused_handshakes; /* that the agent was told of by its listener */
void __real_service_on_refused(void *arg, const struct rpc_refusal *r);
void __wrap_service_on_refused(void *arg, const struct rpc_refusal *r);
void __wrap_service_on_refused(void *arg, const struct rpc_refusal *r)
{
	__real_service_on_refused(arg, r);
	if (r->why == RPC_REFUSED_HANDSHAKE)
		refused_handshakes += r->count;
}

static int setup_alone(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	refused_handshakes = handshakes.by_itself = handshakes.counted = 0;
	busy.by_itself = busy.counted = limit.by_itself = limit.counted = 0;
	by_its_words = 0;
	held_ns = clock_boottime_ns();
	world_start(w);
	w->sees_record = sees_record;
	world_agent_start(w);
	*state = w;
	return 0;
}

static int teardown_alone(void **state)
{
	struct world *w = *state;

	agent_test_switches.no_record_bound = false;
	world_stop(w);
	free(w);
	return 0;
}

/* Connects, and goes. */
static void knock_and_go(struct world *w)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(agent_tenant_port(w->agent))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	close(fd);
}

static bool are_refused(struct world *w, uint64_t n)
{
	struct rpc_server_stats st;

	service_stats(w->agent->service, &st); /* which looks who has gone */
	return refused_handshakes >= n;
}

static void all_shake_hands(struct world *w)
{
	for (unsigned n = 0; n < ROUNDS * AT_ONCE; n++) {
		knock_and_go(w);
		if ((n + 1) % AT_ONCE == 0)
			assert_true(AWAIT(are_refused(w, n + 1)));
	}
	held_ns += AUDIT_BOUND_HOLD_NS;
	if (!AWAIT(sum(&handshakes) >= ROUNDS * AT_ONCE))
		fail_msg("told: %u handshakes", (unsigned)sum(&handshakes));
	assert_int_equal(sum(&handshakes), ROUNDS * AT_ONCE);
}

static void handshakes__in_vain_are_bounded_in_the_log_and_all_of_them_told(void **state)
{
	all_shake_hands(*state);
	assert_true(is_bounded(&handshakes));
}

static void control__records_of_handshakes(void **state)
{
	agent_test_switches.no_record_bound = true;
	all_shake_hands(*state);
	assert_int_equal(handshakes.by_itself, ROUNDS * AT_ONCE);
	assert_false(is_bounded(&handshakes));
}

/* ---- who is refused by the data plane ---- */

#define REFUSED 300 /* times, of each status */

/* Two caps of it, by the words that come from there. */
static void caps_of_the_data_plane__are_bounded_in_the_log_and_all_of_it_told(void **state)
{
	static const enum ros2_status caps[] = {ROS2_BUSY, ROS2_LIMIT};
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;
	struct rpc_channel *alpha;
	struct world *w = *state;
	struct ros2_uid s;

	world_populate(w);
	alpha = world_tenant(w, "alpha");
	connected(w, alpha, &s);
	req.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, s.b};
	req.namespace_name = (char *)"data";
	for (unsigned n = 0; n < 2 * REFUSED; n++) {
		fake_dp_fail_call = caps[n % 2];
		assert_int_equal(world_call(alpha, &ros2_v1_tenant_mount, &req.base, NULL, NULL),
		                 caps[n % 2]);
	}
	rpc_channel_free(alpha);
	held_ns += AUDIT_BOUND_HOLD_NS;
	if (!AWAIT(sum(&busy) >= REFUSED && sum(&limit) >= REFUSED))
		fail_msg("told: %u BUSY, %u LIMIT", (unsigned)sum(&busy), (unsigned)sum(&limit));
	assert_int_equal(sum(&busy), REFUSED);
	assert_int_equal(sum(&limit), REFUSED);
	assert_int_equal(by_its_words, busy.by_itself + limit.by_itself);
	assert_true(is_bounded(&busy) && is_bounded(&limit));
}

#define T(f)     cmocka_unit_test_setup_teardown(f, setup, teardown)
#define ALONE(f) cmocka_unit_test_setup_teardown(f, setup_alone, teardown_alone)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(crowd__has_what_one_tenant_has_and_all_of_it_is_told),
		T(control__calls_of_a_crowd),
		T(control__records_of_a_crowd),
		ALONE(handshakes__in_vain_are_bounded_in_the_log_and_all_of_them_told),
		ALONE(control__records_of_handshakes),
		ALONE(caps_of_the_data_plane__are_bounded_in_the_log_and_all_of_it_told),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

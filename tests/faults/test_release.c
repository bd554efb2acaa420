/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A grant that is given back, with the link cut at the message: before it leaves, and when it has
 * arrived; once, and again and again. A scripted agent says it, for ours keeps what is idle for the
 * next session, as long as nobody else of its tenant needs the place (test_room). What was not
 * heard counts for the tenant's limit until it is said again, or ends in its time; the agent is
 * told of it when it comes back, also after a start of the controller. What was heard is ended
 * once, whoever says it again.
 */
#include "controller/ctl.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/controller/service_audit.h"
#include "tests/faults/deaf.h"
#include "tests/faults/pair.h"
#include "common/util.h"
#include <sys/timerfd.h>

#define GRANTS  (2 * CTL_GRANTS_PER_SLOT) /* sessions.max of sf_tenant */
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

struct grant {
	struct ros2_uid uid;
	uint64_t version;
};

struct stage {
	struct pair *p;
	struct fake a;
	struct ros2_uid alpha;
	struct grant v[GRANTS]; /* the first is the one that is given back */
	uint64_t requests;
};

/* ---- loops whose alarm goes by the clock that is ahead ---- */

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *old);

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
	uint64_t ns = (uint64_t)when->it_value.tv_sec * NS_PER_S + (uint64_t)when->it_value.tv_nsec;
	struct itimerspec at = *when;

	if (ns) {
		ns = ns > clock_ahead_ns ? ns - clock_ahead_ns : 1;
		at.it_value.tv_sec = (time_t)(ns / NS_PER_S);
		at.it_value.tv_nsec = (long)(ns % NS_PER_S);
	}
	return __real_timerfd_settime(fd, flags, &at, old);
}

/* ---- the scripted agent ---- */

static Ros2__V1__ControllerMessage *want(struct stage *s, Ros2__V1__ControllerMessage__MsgCase k)
{
	Ros2__V1__ControllerMessage *m = fake_next(&s->a, k, AWAIT_MS);

	if (!m)
		fail_msg("no message %d (%s)", k, s->a.why.msg);
	return m;
}

/* Whether @m tells of that grant. */
static bool tells_of(struct stage *s, const Ros2__V1__Delta *m, const struct ros2_uid *grant)
{
	bool is = false;

	for (size_t i = 0; i < m->n_upserts; i++) {
		Ros2__V1__AgentObject *o = fake_open(&s->a, m->upserts[i]);

		is |= o->kind == (int)KIND(GRANT) && !memcmp(o->uid.data, grant->b, ROS2_UID_LEN);
		ros2__v1__agent_object__free_unpacked(o, NULL);
	}
	return is;
}

/* It comes with what it has, which the first of its grants is none of; was it told of that? */
static bool come_back(struct stage *s)
{
	Ros2__V1__HaveObject have[GRANTS - 1];
	bool told = false, done = false;

	for (size_t i = 0; i < ARRAY_SIZE(have); i++) {
		ros2__v1__have_object__init(&have[i]);
		have[i].kind = KIND(GRANT);
		have[i].uid = (ProtobufCBinaryData){ROS2_UID_LEN, s->v[i + 1].uid.b};
		have[i].version = s->v[i + 1].version;
	}
	fake_disconnect(&s->a);
	fake_connect(&s->a, have, s->v[1].version ? ARRAY_SIZE(have) : 0);
	want(s, MSG(WELCOME));
	while (!done) {
		const Ros2__V1__Delta *m = want(s, MSG(DELTA))->delta;

		told |= tells_of(s, m, &s->v[0].uid);
		done = m->initial_done;
	}
	return told;
}

static enum ros2_status ask(struct stage *s, struct grant *ret)
{
	const Ros2__V1__GrantReply *r;
	Ros2__V1__AgentObject *o;

	fake_ask_grant(&s->a, ++s->requests, &s->alpha, PAIR_TRAINER);
	r = want(s, MSG(GRANT_REPLY))->grant_reply;
	assert_int_equal(r->request_id, s->requests);
	if (r->status)
		return (enum ros2_status)r->status;
	o = fake_open(&s->a, r->grant);
	assert_int_equal(ros2_uid_from_bytes(o->uid.data, o->uid.len, &ret->uid), 0);
	ret->version = o->version;
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return ROS2_OK;
}

static void give_back(struct stage *s)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRelease r = ROS2__V1__GRANT_RELEASE__INIT;

	r.grant_uid = (ProtobufCBinaryData){ROS2_UID_LEN, s->v[0].uid.b};
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_RELEASE;
	m.grant_release = &r;
	fake_send(&s->a, &m);
}

/* What it said before has been acted on. */
static void assert_limit_is_reached(struct stage *s)
{
	struct grant none;

	assert_int_equal(ask(s, &none), ROS2_LIMIT);
}

/* ---- what the log says of the grant ---- */

static unsigned records(struct stage *s, const char *action)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(&s->v[0].uid, uid);
	q.action = (char *)action;
	q.object = uid;
	return sf_audit_count(s->p->f, &q);
}

static void assert_given_back_once(struct stage *s)
{
	struct grant next;

	assert_true(AWAIT(records(s, "grant.release") > 0));
	assert_int_equal(ask(s, &next), ROS2_OK);
	assert_int_equal(records(s, "grant.release"), 1);
	s->v[0] = next;
}

/* ---- set up ---- */

/* The agent's way to it is the relay. */
static void through_the_relay(struct pair *p)
{
	relay_target(p->relay, CUT_LINK, p->f->ports.agent);
	p->f->ports.agent = (uint16_t)atoi(strchr(p->target[CUT_LINK], ':') + 1);
}

static int setup(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));
	Ros2__V1__GetReply *g;
	void *p = NULL;

	if (pair_setup(&p))
		return -1;
	s->p = p;
	sf_apply(s->p->f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(s->p->f, KIND(TENANT), "alpha");
	assert_int_equal(ros2_uid_from_bytes(g->object->uid.data, 16, &s->alpha), 0);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(s->p->f, &s->a, "dpu-0");
	through_the_relay(s->p);
	come_back(s);
	for (size_t i = 0; i < GRANTS; i++)
		assert_int_equal(ask(s, &s->v[i]), ROS2_OK);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct stage *s = *state;
	void *p = s->p;

	fake_free(&s->a);
	free(s);
	return pair_teardown(&p);
}

/* ---- sweeps ---- */

static void lose_it(struct stage *s, struct cut *c)
{
	for (unsigned i = 0; i < (c->for_good ? CUT_FOR_GOOD : 1); i++) {
		give_back(s);
		assert_int_not_equal(fake_wait_closed(&s->a, AWAIT_MS), 0);
		if (c->when == CUT_AFTER)
			assert_true(AWAIT(records(s, "grant.release") > 0));
		/* It lives: it is told so. It is over: nobody brings it back. */
		if (come_back(s) != (c->when == CUT_BEFORE))
			fail_msg("it is %s", c->when == CUT_BEFORE ? "not told of" : "told of");
	}
	assert_int_equal(cut_fired(), c->for_good ? CUT_FOR_GOOD : 1);
	cut_off();
}

static void release__that_is_lost_counts_until_it_is_said_again(void **state)
{
	struct stage *s = *state;

	for (int i = 0; i < 4; i++) {
		struct cut c = {.name = "AgentMessage.grant_release",
		                .when = CUT_BEFORE,
		                .for_good = i & 1,
		                .at = 1};

		cut_at(&c);
		lose_it(s, &c);
		if (i & 2) {
			sf_stop(s->p->f);
			sf_start(s->p->f);
			through_the_relay(s->p);
			assert_true(come_back(s));
		}
		assert_limit_is_reached(s);
		assert_int_equal(records(s, "grant.release"), 0);
		give_back(s);
		assert_given_back_once(s);
	}
	pair_verify_log(s->p);
}

static void release__that_was_heard_is_done_once(void **state)
{
	struct stage *s = *state;

	for (int i = 0; i < 2; i++) {
		struct cut c = {.name = "AgentMessage.grant_release",
		                .when = CUT_AFTER,
		                .for_good = i,
		                .at = 1};

		cut_at(&c);
		lose_it(s, &c);
		give_back(s);
		assert_given_back_once(s);
	}
	pair_verify_log(s->p);
}

static unsigned live(struct pair *p)
{
	Ros2__V1__GetReply *g = sf_get(p->f, KIND(TENANT), "alpha");
	unsigned n = g->object->tenant->grants;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return n;
}

#define LIFETIME_NS (3600 * NS_PER_S + 4 * NS_PER_S) /* and 0.1 %, rounded up */

static void release__that_is_never_heard_ends_in_its_time(void **state)
{
	struct cut c = {.name = "AgentMessage.grant_release",
	                .when = CUT_BEFORE,
	                .for_good = true,
	                .at = 1};
	struct stage *s = *state;
	struct grant next;

	cut_at(&c);
	lose_it(s, &c);
	assert_limit_is_reached(s);
	clock_ahead_ns += LIFETIME_NS;
	assert_true(AWAIT(live(s->p) == 0));
	come_back(s);
	assert_int_equal(ask(s, &next), ROS2_OK);
	assert_int_equal(records(s, "grant.expire"), 1);
	assert_int_equal(records(s, "grant.release"), 0);
	give_back(s); /* too late: of another end nothing is told */
	assert_int_equal(ask(s, &next), ROS2_OK);
	assert_int_equal(records(s, "grant.release"), 0);
	pair_verify_log(s->p);
}

static void control__release_that_nobody_acts_on_is_noticed(void **state)
{
	struct stage *s = *state;

	deaf_to_releases = true;
	give_back(s);
	assert_limit_is_reached(s);
	deaf_to_releases = false;
	give_back(s);
	assert_given_back_once(s);
}

/* ---- our agent ---- */

struct at_agent {
	struct agent *a;
	unsigned n;
};

static void count_grant(void *arg, const struct state_have *h)
{
	struct at_agent *at = arg;

	at->n += h->kind == OBJ_GRANT;
}

static void look(void *arg)
{
	struct at_agent *at = arg;

	state_each_have(at->a->state, count_grant, at);
}

static unsigned held(struct pair *p)
{
	struct at_agent at = {.a = p->agent};

	pair_on_agent(p, look, &at);
	return at.n;
}

static bool opens(struct pair *p, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;

	return pair_open(p->tenant, arg, &err) == ROS2_OK;
}

static bool is_over(struct pair *p, void *arg)
{
	return live(p) == 0 && held(p) == 0;
}

/* The next session takes it, with the link cut, too; nobody has it for longer than it lives. */
static void grant__that_is_idle_serves_again_and_ends_in_its_time(void **state)
{
	struct pair *p = *state;
	struct ros2_uid session;

	assert_true(pair_until(p, opens, &session));
	pair_close(p->tenant, &session);
	relay_target(p->relay, CUT_LINK, 0);
	relay_cut(p->relay, CUT_LINK);
	assert_true(pair_until(p, opens, &session));
	pair_close(p->tenant, &session);
	relay_target(p->relay, CUT_LINK, p->f->ports.agent);
	assert_int_equal(live(p), 1);
	assert_int_equal(held(p), 1);
	clock_ahead_ns += LIFETIME_NS;
	if (!pair_until(p, is_over, NULL))
		fail_msg("the controller has %u, the agent %u", live(p), held(p));
	assert_int_equal(sf_audit_count_action(p->f, "grant.expire", "alpha"), 1);
	assert_true(pair_until(p, opens, &session));
	assert_int_equal(live(p), 1);
	pair_check(p, "afterwards");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(release__that_is_lost_counts_until_it_is_said_again),
		T(release__that_was_heard_is_done_once),
		T(release__that_is_never_heard_ends_in_its_time),
		T(control__release_that_nobody_acts_on_is_noticed),
		cmocka_unit_test_setup_teardown(
			grant__that_is_idle_serves_again_and_ends_in_its_time, pair_setup_running,
			pair_teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

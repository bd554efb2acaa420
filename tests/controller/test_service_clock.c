/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks that jump, and times that are over: what was told of an end stays true, and what is over
 * does not come back. The clock of rights only goes forward, also from one test to the next.
 */
#include "controller/ctl.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/controller/held_submit.h"
#include "tests/controller/service_audit.h"
#include <sys/timerfd.h>

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

/* ---- a clock on the wall that is put to another time ---- */

static _Atomic uint64_t wall_ns; /* added; may wrap: back */

uint64_t __real_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void)
{
	return __real_clock_unix_ns() + wall_ns;
}

/* ---- the agent's machine, which may have been started again ---- */

static _Atomic bool rebooted;

int __real_clock_stamp_now(struct clock_stamp *ret);
int __wrap_clock_stamp_now(struct clock_stamp *ret);
int __wrap_clock_stamp_now(struct clock_stamp *ret)
{
	int rc = __real_clock_stamp_now(ret);

	if (!rc && rebooted)
		ret->boot_id[0] ^= 1;
	return rc;
}

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

/* ---- a grant ---- */

static struct ros2_uid alpha_on_dpu0(struct sf *f, struct fake *a)
{
	Ros2__V1__GetReply *g;
	struct ros2_uid u;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(f, KIND(TENANT), "alpha");
	memcpy(u.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(f, a, "dpu-0");
	fake_connect(a, NULL, 0);
	fake_wait_synced(a);
	return u;
}

static struct ros2_uid has_a_grant(struct fake *a, const struct ros2_uid *alpha)
{
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	struct ros2_uid grant;

	fake_ask_grant(a, 1, alpha, "spiffe://" TD "/tenant/alpha/trainer");
	m = fake_next(a, MSG(GRANT_REPLY), AWAIT_MS);
	assert_non_null(m);
	assert_non_null(m->grant_reply->grant);
	o = fake_open(a, m->grant_reply->grant);
	memcpy(grant.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return grant;
}

/* Of the only one. */
static uint64_t shown_end(struct sf *f)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__ListReply *r = NULL;
	uint64_t at;

	q.kind = KIND(GRANT);
	assert_int_equal(ros2_v1_admin_list_sync(f->admin, &q, 20000, &r, NULL), 0);
	assert_int_equal(r->n_grants, 1);
	at = r->grants[0]->expires_unix_ns;
	ros2__v1__list_reply__free_unpacked(r, NULL);
	return at;
}

static void get__shows_the_end_of_a_grant_by_the_clock_as_it_is(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;
	uint64_t first;

	alpha = alpha_on_dpu0(f, &a);
	has_a_grant(&a, &alpha);
	first = shown_end(f);
	assert_int_equal(shown_end(f), first);
	wall_ns = 3 * 3600 * NS_PER_S;
	assert_in_range(shown_end(f), first + wall_ns - NS_PER_S, first + wall_ns + NS_PER_S);
	fake_free(&a);
}

struct revoking {
	struct sf *f;
	struct ros2_uid grant;
	Ros2__V1__RevokeReply *reply;
	int rc;
	pthread_t thread;
};

static void *revoke_it(void *arg)
{
	struct revoking *r = arg;
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(&r->grant, uid);
	r->rc = sf_revoke(r->f, KIND(GRANT), uid, 1, &r->reply, NULL);
	return NULL;
}

/* The answer names dpu-0 as one that was not reached, and says that it may act for its contact
 * limit of 10m from now on, the end of its hour being later. */
static void says_ten_minutes(struct revoking *r)
{
	uint64_t now = clock_unix_ns();

	assert_int_equal(r->rc, 0);
	assert_int_equal(r->reply->n_outcomes, 1);
	assert_in_range(r->reply->outcomes[0]->unconfirmed_until_unix_ns, now + 500 * NS_PER_S,
	                now + 610 * NS_PER_S);
	ros2__v1__revoke_reply__free_unpacked(r->reply, NULL);
}

/* While the record is on its way to a slow disk. */
static void revoke__states_no_time_that_a_clock_jumps_over_meanwhile(void **state)
{
	struct revoking r = {.f = *state};
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(r.f, &a);
	r.grant = has_a_grant(&a, &alpha);
	hold_next = true;
	assert_int_equal(pthread_create(&r.thread, NULL, revoke_it, &r), 0);
	assert_true(AWAIT(!hold_next));
	wall_ns = 3 * 3600 * NS_PER_S;
	loop_call(r.f->loop, held_let_go, NULL);
	assert_int_equal(pthread_join(r.thread, NULL), 0);
	says_ten_minutes(&r);
	fake_free(&a);
}

/* Until it comes: this grant, for so long. */
static void is_renewed(struct fake *a, const struct ros2_uid *grant, uint64_t lifetime_ms)
{
	bool is = false;

	while (!is) {
		Ros2__V1__ControllerMessage *m = fake_next(a, MSG(DELTA), AWAIT_MS);

		assert_non_null(m);
		for (size_t i = 0; i < m->delta->n_upserts; i++) {
			Ros2__V1__AgentObject *o = fake_open(a, m->delta->upserts[i]);

			is |= !memcmp(o->uid.data, grant->b, ROS2_UID_LEN) &&
			      o->grant->lifetime_ms == lifetime_ms;
			ros2__v1__agent_object__free_unpacked(o, NULL);
		}
	}
}

/* By a document with a shorter life, that is: its agent, which may be gone before it hears of the
 * renewal, goes on as it was told. */
static void grant__is_not_renewed_to_an_end_before_the_one_it_has(void **state)
{
	struct revoking r = {.f = *state};
	struct ros2_uid alpha, grants[2];
	static struct fake a;

	alpha = alpha_on_dpu0(r.f, &a);
	grants[0] = r.grant = has_a_grant(&a, &alpha);
	grants[1] = has_a_grant(&a, &alpha);
	sf_apply(r.f, sf_tenant("alpha", "1m", "10m", "dpu-0"));
	clock_ahead_ns += 31 * 60 * NS_PER_S;
	fake_beat(&a, grants, 2);
	has_a_grant(&a, &alpha); /* a renewal would be at the store before it */
	revoke_it(&r);
	says_ten_minutes(&r);
	clock_ahead_ns += 28 * 60 * NS_PER_S + 30 * NS_PER_S;
	fake_beat(&a, grants, 2);
	is_renewed(&a, &grants[1], 60000);
	fake_free(&a);
}

/* No controller runs while the clock is put forward by half an hour. Its agent, which comes again,
 * counts by its own. */
static void grant__can_be_revoked_for_as_long_as_its_agent_counts(void **state)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	struct revoking r = {.f = *state};
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(r.f, &a);
	r.grant = has_a_grant(&a, &alpha);
	fake_disconnect(&a);
	sf_stop(r.f);
	wall_ns = 30 * 60 * NS_PER_S;
	sf_start(r.f);
	have.kind = KIND(GRANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, r.grant.b};
	have.version = 1;
	fake_connect(&a, &have, 1);
	fake_wait_synced(&a);
	clock_ahead_ns += 31 * 60 * NS_PER_S;
	fake_beat(&a, NULL, 0);
	assert_non_null(fake_next(&a, MSG(CONTACT), AWAIT_MS));
	has_a_grant(&a, &alpha); /* the end of the other would be at the store before it */
	revoke_it(&r);
	says_ten_minutes(&r);
	fake_free(&a);
}

#define MOST 8 /* for 2 sessions */

/* They count in one boot only. */
static void grants__of_before_a_reboot_take_no_places(void **state)
{
	Ros2__V1__ControllerMessage *m;
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	for (unsigned i = 0; i < MOST; i++)
		has_a_grant(&a, &alpha);
	fake_ask_grant(&a, 1, &alpha, "spiffe://" TD "/tenant/alpha/trainer");
	m = fake_next(&a, MSG(GRANT_REPLY), AWAIT_MS);
	assert_non_null(m);
	assert_int_equal(m->grant_reply->status, ROS2_LIMIT);
	fake_disconnect(&a);
	rebooted = true;
	fake_connect(&a, NULL, 0);
	fake_beat(&a, NULL, 0);
	assert_non_null(fake_next(&a, MSG(CONTACT), AWAIT_MS));
	has_a_grant(&a, &alpha);
	sf_audit_wait(f, "grant.expire", MOST);
	fake_free(&a);
}

/* ---- a token ---- */

static void is_refused(struct sf *f, const char *secret, enum ros2_status st)
{
	struct fake a = {.f = f};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_not_equal(fake_enrol_with(f, &a, "dpu-0", secret, &err), 0);
	assert_int_equal(err.status, st);
}

/* A minute passes, and somebody puts the clock on the wall back by it. */
static void token__that_is_over_stays_so_when_the_clock_is_put_back(void **state)
{
	struct sf *f = *state;
	AUTO_FREE char *secret = NULL;

	sf_apply(f, sf_agent0);
	secret = sf_token(f, "dpu-0", 60);
	clock_ahead_ns += 61 * NS_PER_S;
	is_refused(f, secret, ROS2_UNAUTHENTICATED);
}

/* As that of a machine that begins with 1970: no token is over by it, so none is taken. */
static void token__is_not_taken_by_a_clock_from_before_it_was_made(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct sf *f = *state;
	struct fake a = {.f = f};
	AUTO_FREE char *secret = NULL;

	sf_apply(f, sf_agent0);
	secret = sf_token(f, "dpu-0", 60);
	sf_stop(f);
	wall_ns = 0 - 3600 * NS_PER_S;
	sf_start(f);
	is_refused(f, secret, ROS2_UNAVAILABLE);
	wall_ns = 0;
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", secret, &err), 0);
}

static int setup(void **state)
{
	wall_ns = 0;
	rebooted = false;
	return sf_setup(state);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(get__shows_the_end_of_a_grant_by_the_clock_as_it_is),
		T(revoke__states_no_time_that_a_clock_jumps_over_meanwhile),
		T(grant__is_not_renewed_to_an_end_before_the_one_it_has),
		T(grant__can_be_revoked_for_as_long_as_its_agent_counts),
		T(grants__of_before_a_reboot_take_no_places),
		T(token__that_is_over_stays_so_when_the_clock_is_put_back),
		T(token__is_not_taken_by_a_clock_from_before_it_was_made),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The renewal of an agent's certificate, and the report of its sessions, cut at each message. Of a
 * renewal: what is on disk is a certificate of the controller for the agent's key at every moment,
 * the link comes back with it, and once mended there is a new one. Of a report: whoever asks is
 * told all sessions, or that the agent's are missing, in time; never a part as if it were all.
 */
#include "tests/controller/service_audit.h"
#include "tests/agent/fake_dp.h"
#include "tests/faults/pair.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>
#include <time.h>

#define SESSIONS 5

/* ---- renewal ---- */

static _Atomic bool due;    /* as if half of this certificate's life were over, and of no other's */
static char due_serial[65]; /* set before due is */
static _Atomic bool unreadable; /* as if the disk gave an error */
static _Atomic bool ended;
static _Atomic unsigned n_unreadable;

int __real_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err);
int __wrap_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err);

static int serial_at(const char *dir, char out[65], struct ros2_err *err)
{
	struct pki_cert_info info;
	AUTO_FREE void *pem = NULL;
	char path[320];
	size_t n;

	snprintf(path, sizeof(path), "%s/tls.crt", dir);
	if (fsx_read_file(path, PKI_PEM_MAX, &pem, &n, err) < 0 ||
	    pki_cert_info(pem, n, &info, err) < 0)
		return -1;
	strcpy(out, info.serial);
	return 0;
}

static bool is_due(const char *dir)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char now[65];

	return due && serial_at(dir, now, &err) == 0 && !strcmp(now, due_serial);
}

int __wrap_identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                                      struct ros2_err *err)
{
	int rc = __real_identity_check_certificate(dir, name, ret_renew_in_s, err);

	if (unreadable) {
		n_unreadable++;
		return ros2_err_set(err, -EIO, "read tls.crt: the disk does not give it");
	}
	if (ended)
		return ros2_err_named(err, ROS2_UNAUTHENTICATED, "tls.crt has ended");
	if (rc == 0 && is_due(dir))
		*ret_renew_in_s = 0;
	return rc;
}

/* ---- the clock on the wall of each machine ---- */

static _Atomic int64_t ahead_s;             /* the agent's */
static _Atomic int64_t controllers_ahead_s; /* as far as it makes certificates */

time_t __real_time(time_t *ret);
time_t __wrap_time(time_t *ret);
time_t __wrap_time(time_t *ret)
{
	time_t now = __real_time(NULL);
	char name[16];

	if (!pthread_getname_np(pthread_self(), name, sizeof(name)))
		now += !strcmp(name, "agent") ? ahead_s : controllers_ahead_s;
	if (ret)
		*ret = now;
	return now;
}

/* Of the certificate on disk; fails when that is none of the agent's. */
static void serial_of(struct pair *p, char out[65])
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t in_s;

	if (__real_identity_check_certificate(p->dir, "dpu-0", &in_s, &err) < 0 ||
	    serial_at(p->dir, out, &err) < 0)
		fail_msg("the certificate on disk: %s", err.msg);
}

struct round {
	const struct cut *cut;
	char serial[65]; /* before it */
};

static bool is_new(struct pair *p, void *arg)
{
	const struct round *r = arg;
	char now[65];

	serial_of(p, now);
	return strcmp(now, r->serial) != 0;
}

static void make_due(const struct round *r)
{
	strcpy(due_serial, r->serial);
	due = true;
}

static bool has_cut(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return cut_is_over(r->cut);
}

static bool cut_or_new(struct pair *p, void *arg)
{
	return has_cut(p, arg) || is_new(p, arg);
}

static bool is_quiet(struct pair *p, void *arg)
{
	return pair_is_quiet(p);
}

static void renew_once(struct pair *p, struct cut *cut)
{
	struct round r = {.cut = cut};
	char where[CUT_WHERE_MAX];

	cut_where(cut, where);
	serial_of(p, r.serial);
	make_due(&r);
	if (!pair_until(p, cut_or_new, &r))
		fail_msg("%s: neither cut nor renewed", where);
	/* What was not heard was not taken. */
	if (cut->for_good && cut->at == 1 && is_new(p, &r))
		fail_msg("%s: renewed all the same", where);
	cut_off();
	if (!pair_until(p, is_new, &r))
		fail_msg("%s: not renewed after it was mended", where);
	due = false;
	if (!pair_until(p, is_quiet, NULL))
		fail_msg("%s: the link does not come back", where);
	pair_check(p, where);
}

static void renew__cut_at_each_message(void **state)
{
	static const struct cut points[] = {
		{.name = "RenewRequest", .when = CUT_BEFORE},
		{.name = "RenewRequest", .when = CUT_AFTER},
		{.name = "EnrolReply", .when = CUT_BEFORE},
	};
	struct pair *p = *state;

	pair_longest_ms = 100;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
		struct cut c = points[i / 2];
		unsigned before = cut_points();

		c.for_good = i % 2;
		while (cut_next(&c, 2))
			renew_once(p, &c);
		if (cut_points() == before)
			fail_msg("%s never came", c.name);
	}
	assert_true(sf_audit_count_action(p->f, "agent.renew", NULL) >= 2 * ARRAY_SIZE(points));
	pair_verify_log(p);
	pair_longest_ms = 0;
}

static bool looked_thrice(struct pair *p, void *arg)
{
	return n_unreadable >= 3;
}

/* A certificate that cannot be read has not ended: nobody is asked for another that way, and it is
 * renewed when it can be read again. */
static void renew__of_a_certificate_that_cannot_be_read_waits(void **state)
{
	struct cut c = {.name = "EnrolRequest", .when = CUT_BEFORE, .for_good = true};
	struct pair *p = *state;
	struct round r = {.cut = &c};

	pair_longest_ms = 100;
	serial_of(p, r.serial);
	assert_true(cut_next(&c, 1));
	unreadable = true;
	assert_true(pair_until(p, looked_thrice, NULL));
	assert_int_equal(cut_fired(), 0);
	unreadable = false;
	make_due(&r);
	assert_true(pair_until(p, is_new, &r));
	due = false;
	assert_int_equal(cut_fired(), 0);
	cut_off();
	assert_true(pair_until(p, is_quiet, NULL));
	pair_check(p, "afterwards");
	pair_longest_ms = 0;
}

static bool has_asked(struct pair *p, void *arg)
{
	return cut_fired() > 0;
}

/* One that had ended, and for which nobody answers at the enrolment listener, was replaced by hand:
 * the one in its place is renewed in its time. */
static void renew__goes_on_while_nobody_answers_at_the_enrolment_listener(void **state)
{
	struct cut c = {.name = "EnrolRequest", .when = CUT_BEFORE, .for_good = true};
	struct pair *p = *state;
	struct round r = {.cut = &c};

	pair_longest_ms = 100;
	serial_of(p, r.serial);
	assert_true(cut_next(&c, 1));
	ended = true;
	assert_true(pair_until(p, has_asked, NULL));
	ended = false;
	make_due(&r);
	assert_true(pair_until(p, is_new, &r));
	due = false;
	cut_off();
	assert_true(pair_until(p, is_quiet, NULL));
	pair_check(p, "afterwards");
	pair_longest_ms = 0;
}

static bool has_looked(struct pair *p, void *arg)
{
	return pair_asked_ms >= 60000;
}

/* An agent whose machine begins with a time that is long over has a certificate that lasts, until
 * somebody tells the machine the time. */
static void renew__looks_within_a_minute_whether_a_clock_was_put_right(void **state)
{
	struct pair *p = *state;

	pair_agent_stop(p);
	pair_asked_ms = 0;
	pair_agent_start(p);
	assert_true(pair_until(p, has_looked, NULL));
	assert_int_equal(pair_asked_ms, 60000);
}

static unsigned enrolments(struct pair *p)
{
	return sf_audit_count_action(p->f, "agent.enrol", "");
}

static bool has_enrolled(struct pair *p, void *arg)
{
	return enrolments(p) > 1;
}

static uint64_t last_beat(struct pair *p)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-0");
	uint64_t at = r->object->agent->last_beat_unix_ns;

	ros2__v1__get_reply__free_unpacked(r, NULL);
	return at;
}

static bool has_beaten(struct pair *p, void *arg)
{
	return last_beat(p) != *(uint64_t *)arg;
}

/* Each certificate has ended before it comes, by that clock, for which the controller does not
 * care: the first is used, and no other asked for. */
static void renew__asks_once_where_the_clock_of_the_machine_is_ahead(void **state)
{
	struct pair *p = *state;
	unsigned asked;

	pair_agent_stop(p);
	ahead_s = (int64_t)2 * 24 * 3600;
	pair_agent_start(p);
	assert_true(pair_until(p, has_enrolled, NULL));
	assert_true(pair_until(p, is_quiet, NULL));
	asked = enrolments(p);
	for (unsigned i = 0; i < 20; i++) {
		uint64_t beat = last_beat(p);

		assert_true(pair_until(p, has_beaten, &beat));
	}
	assert_int_equal(enrolments(p), asked);
	ahead_s = 0;
	pair_check(p, "afterwards");
}

/* The controller's clock was ahead when it made the certificate. Put right, TLS refuses it, without
 * a word that says why. */
static void
renew__of_one_that_does_not_begin_yet_is_asked_for_at_the_enrolment_listener(void **state)
{
	struct pair *p = *state;
	struct round r = {0};

	pair_longest_ms = 1000;
	serial_of(p, r.serial);
	controllers_ahead_s = 2 * 3600;
	make_due(&r);
	assert_true(pair_until(p, is_new, &r));
	controllers_ahead_s = 0;
	due = false;
	serial_of(p, r.serial);
	assert_true(pair_until(p, is_new, &r));
	assert_true(pair_until(p, is_quiet, NULL));
	pair_check(p, "afterwards");
	pair_longest_ms = 0;
}

/* ---- report ---- */

/* Whole, or the agent is named as one whose sessions are missing. */
static bool whole(struct pair *p, const char *where)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__ListReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	bool is;

	q.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION;
	q.page_size = 100;
	if (ros2_v1_admin_list_sync(p->f->admin, &q, 5000, &r, &err))
		fail_msg("%s: %s", where, err.msg);
	is = r->n_unreachable_agents == 0 ||
	     (r->n_unreachable_agents == 1 && strcmp(r->unreachable_agents[0], "dpu-1") == 0);
	if (is ? r->n_sessions != SESSIONS : r->n_sessions && r->n_sessions != SESSIONS)
		pair_wrong(p, "%zu sessions, and %zu agents missing", r->n_sessions,
		           r->n_unreachable_agents);
	ros2__v1__list_reply__free_unpacked(r, NULL);
	return is;
}

static bool is_whole(struct pair *p, void *arg)
{
	return pair_is_quiet(p) && whole(p, arg);
}

static void report_once(struct pair *p, struct cut *cut)
{
	char where[CUT_WHERE_MAX];
	int lost = 0;

	cut_where(cut, where);
	for (int i = 0; i < (cut->for_good ? 20 : 1) && cut_fired() < CUT_FOR_GOOD; i++)
		lost += !whole(p, where);
	/* Of a report that has arrived nothing is missing. */
	if (cut_fired() && cut->when == CUT_BEFORE && !lost)
		fail_msg("%s: nobody was named", where);
	cut_off();
	if (!pair_until(p, is_whole, where))
		fail_msg("%s: not whole after it was mended", where);
	pair_check(p, where);
}

/* So that its time to connect does not run out. */
struct connecting {
	struct pair *p;
	struct ros2_uid session;
};

static void connect_on_loop(void *arg)
{
	struct connecting *c = arg;

	fake_dp_connect(c->p->agent->dp, &c->session);
}

static void report__cut_at_each_message(void **state)
{
	static const char *const names[] = {"ControllerMessage.report_request",
	                                    "AgentMessage.report"};
	struct pair *p = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	for (int i = 0; i < SESSIONS; i++) {
		struct connecting c = {p};

		assert_int_equal(pair_open(p->tenant, &c.session, &err), ROS2_OK);
		pair_on_agent(p, connect_on_loop, &c);
	}
	assert_true(pair_until(p, is_quiet, NULL));
	for (int kind = 0; kind < 8; kind++) {
		struct cut c = {.name = names[kind / 4],
		                .when = kind & 1 ? CUT_AFTER : CUT_BEFORE,
		                .for_good = kind & 2};
		unsigned before = cut_points();

		while (cut_next(&c, 1))
			report_once(p, &c);
		if (cut_points() == before)
			fail_msg("%s never came", c.name);
	}
	/* No question is left: there are places for 64. */
	for (int i = 0; i < 70; i++)
		assert_true(whole(p, "afterwards"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup_running, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(renew__cut_at_each_message),
		T(renew__of_a_certificate_that_cannot_be_read_waits),
		T(renew__goes_on_while_nobody_answers_at_the_enrolment_listener),
		T(renew__looks_within_a_minute_whether_a_clock_was_put_right),
		T(renew__asks_once_where_the_clock_of_the_machine_is_ahead),
		T(renew__of_one_that_does_not_begin_yet_is_asked_for_at_the_enrolment_listener),
		T(report__cut_at_each_message),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

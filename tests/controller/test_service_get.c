/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What describes a tenant or an agent says what is not in it, and a question that cannot be asked
 * is refused by the name of its cap, never answered as if there were nothing. The bounds are small
 * here.
 */
#include "controller/svc_priv.h"
#include "controller/test_switches.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include "tests/controller/service_rows.h"

#define TRAINER  "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k)  ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)   ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define SESSIONS 500 /* of an answer */

struct ctl_test_switches ctl_test_switches; /* of reports.c: CMakeLists.txt */

static struct fake a, b;
static struct rows ra, rb;

static void agents(struct sf *f)
{
	memset(&ra, 0, sizeof(ra));
	memset(&rb, 0, sizeof(rb));
	rows_documents(f);
	rows_up(f, &a, "dpu-0", &ra);
	rows_up(f, &b, "dpu-1", &rb);
}

static int agents_gone(void **state)
{
	fake_free(&a);
	fake_free(&b);
	return sf_teardown(state);
}

static void get__names_agents_that_do_not_answer(void **state)
{
	struct sf *f = *state;
	Ros2__V1__GetReply *r;

	agents(f);
	rows_have(&a, &ra, 3);
	rb.silent = true;
	r = sf_get(f, KIND(TENANT), "alpha");
	assert_int_equal(r->n_sessions, 3);
	assert_int_equal(r->n_unreachable_agents, 1);
	assert_string_equal(r->unreachable_agents[0], "dpu-1");
	ros2__v1__get_reply__free_unpacked(r, NULL);
	/* Nor one that is not connected. */
	fake_disconnect(&b);
	r = sf_get(f, KIND(AGENT), "dpu-1");
	assert_int_equal(r->n_unreachable_agents, 1);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	r = sf_get(f, KIND(AGENT), "dpu-0");
	assert_int_equal(r->n_sessions, 3);
	assert_int_equal(r->n_unreachable_agents, 0);
	ros2__v1__get_reply__free_unpacked(r, NULL);
}

static void get__says_that_there_are_more_sessions(void **state)
{
	struct sf *f = *state;
	Ros2__V1__GetReply *r;

	agents(f);
	for (int more = 0; more < 2; more++) {
		rows_have(&a, &ra, SESSIONS - 100);
		rows_have(&b, &rb, 100 + (size_t)more);
		r = sf_get(f, KIND(TENANT), "alpha");
		assert_int_equal(r->n_sessions, SESSIONS);
		assert_int_equal(r->more_sessions, more);
		ros2__v1__get_reply__free_unpacked(r, NULL);
	}
}

/* Each row is copied and put in its place, on the loop: an agent says them in the order that makes
 * most of that, and as many as a message holds. */
static void get__takes_no_more_rows_of_an_agent_than_one_may_say(void **state)
{
	struct sf *f = *state;
	Ros2__V1__GetReply *r;
	uint8_t first[16];

	agents(f);
	ra.lies = true;
	rows_have(&a, &ra, 1000);
	r = sf_get(f, KIND(TENANT), "alpha");
	assert_int_equal(r->n_sessions, SESSIONS);
	assert_true(r->more_sessions);
	/* It begins with the last one. */
	rows_session_uid(1000 - ROWS_OF_AGENT, first);
	assert_memory_equal(r->sessions[0]->session_uid.data, first, sizeof(first));
	sf_audit_wait(f, "agent.claim", 1);
	ros2__v1__get_reply__free_unpacked(r, NULL);
}

static void get__says_that_there_are_more_grants(void **state)
{
	struct sf *f = *state;
	Ros2__V1__GetReply *r;
	struct ros2_uid alpha;

	agents(f);
	r = sf_get(f, KIND(TENANT), "alpha");
	memcpy(alpha.b, r->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	for (unsigned n = 1; n <= GET_GRANTS + 1; n++) {
		fake_ask_grant(&a, n, &alpha, TRAINER);
		assert_non_null(fake_next(&a, MSG(GRANT_REPLY), AWAIT_MS));
		r = sf_get(f, KIND(TENANT), "alpha");
		assert_int_equal(r->n_grants, MIN(n, (unsigned)GET_GRANTS));
		assert_int_equal(r->more_grants, n > GET_GRANTS);
		ros2__v1__get_reply__free_unpacked(r, NULL);
	}
	r = sf_get(f, KIND(AGENT), "dpu-1");
	assert_int_equal(r->n_grants, 0);
	assert_false(r->more_grants);
	ros2__v1__get_reply__free_unpacked(r, NULL);
}

/* ---- caps ---- */

static int try_get(struct sf *f, Ros2__V1__ObjectKind kind, const char *name, struct ros2_err *err)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__GetReply *r = NULL;
	int rc;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	rc = ros2_v1_admin_get_sync(f->admin, &q, AWAIT_MS, &r, err);
	if (!rc)
		ros2__v1__get_reply__free_unpacked(r, NULL);
	return rc;
}

static int try_list(struct sf *f, Ros2__V1__ObjectKind kind, struct ros2_err *err)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__ListReply *r = NULL;
	int rc;

	q.kind = kind;
	q.all = true;
	rc = ros2_v1_admin_list_sync(f->admin, &q, AWAIT_MS, &r, err);
	if (!rc)
		ros2__v1__list_reply__free_unpacked(r, NULL);
	return rc;
}

static void assert_cap(const struct ros2_err *err, const char *what, unsigned n)
{
	char words[64];

	assert_int_equal(err->status, ROS2_BUSY);
	snprintf(words, sizeof(words), "of at most %u (fixed)", n);
	assert_non_null(strstr(err->msg, what));
	assert_non_null(strstr(err->msg, words));
}

static void *get_alpha(void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;

	return try_get(arg, KIND(TENANT), "alpha", &err) ? (void *)1 : NULL;
}

/* An administrator who asks without an end keeps no revocation waiting for its turn to ask. */
static void get__is_refused_when_too_many_ask_and_a_revocation_is_not(void **state)
{
	const char *const what = "questions to agents";
	struct ros2_err err = ROS2_ERR_INIT;
	struct sf *f = *state;
	Ros2__V1__RevokeReply *r = NULL;
	pthread_t asks[REPORTS_MAX];
	char uid[ROS2_UID_STR_LEN];
	struct ros2_uid u;
	void *failed;

	agents(f);
	ra.silent = true;
	for (int i = 0; i < REPORTS_MAX; i++)
		assert_int_equal(pthread_create(&asks[i], NULL, get_alpha, f), 0);
	for (int i = 0; i < REPORTS_MAX; i++)
		assert_non_null(fake_next(&a, MSG(REPORT_REQUEST), AWAIT_MS));
	assert_int_not_equal(try_get(f, KIND(TENANT), "alpha", &err), 0);
	assert_cap(&err, what, REPORTS_MAX);
	assert_true(AWAIT(sf_audit_says(f, "admin.denied", "Admin.Get",
	                                "too many questions to "
	                                "agents at once")));
	assert_int_not_equal(try_list(f, KIND(SESSION), &err), 0);
	assert_cap(&err, what, REPORTS_MAX);
	/* Engines are at no agent. */
	assert_int_equal(try_get(f, KIND(ENGINE), "ram", &err), 0);
	rows_session_uid(700, u.b);
	ros2_uid_to_str(&u, uid);
	assert_int_equal(sf_revoke(f, KIND(SESSION), uid, 1, &r, &err), 0);
	assert_int_equal(r->n_outcomes, 1); /* dpu-1 says that it has it not */
	assert_string_equal(r->outcomes[0]->agent, "dpu-0");
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	for (int i = 0; i < REPORTS_MAX; i++) {
		assert_int_equal(pthread_join(asks[i], &failed), 0);
		assert_null(failed);
	}
	ra.silent = false;
	assert_int_equal(try_get(f, KIND(TENANT), "alpha", &err), 0);
}

static void control__without_that_cap_one_more_asks(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct sf *f = *state;
	pthread_t asks[REPORTS_MAX + 1];
	void *failed;

	agents(f);
	ra.silent = true;
	ctl_test_switches.no_question_max = true;
	for (int i = 0; i < REPORTS_MAX + 1; i++)
		assert_int_equal(pthread_create(&asks[i], NULL, get_alpha, f), 0);
	for (int i = 0; i < REPORTS_MAX + 1; i++)
		assert_non_null(fake_next(&a, MSG(REPORT_REQUEST), AWAIT_MS));
	for (int i = 0; i < REPORTS_MAX + 1; i++) {
		assert_int_equal(pthread_join(asks[i], &failed), 0);
		assert_null(failed);
	}
	ctl_test_switches.no_question_max = false;
	ra.silent = false;
	assert_int_equal(try_get(f, KIND(TENANT), "alpha", &err), 0);
}

static _Atomic int reads_fail;

int __real_store_read_grants(struct store *s, const struct store_grant_query *q, store_grants_fn fn,
                             void *arg);
int __wrap_store_read_grants(struct store *s, const struct store_grant_query *q, store_grants_fn fn,
                             void *arg);
int __wrap_store_read_grants(struct store *s, const struct store_grant_query *q, store_grants_fn fn,
                             void *arg)
{
	return reads_fail ? reads_fail : __real_store_read_grants(s, q, fn, arg);
}

static void get__of_what_ended_says_why_it_is_not_read(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct sf *f = *state;
	char uid[ROS2_UID_STR_LEN];
	struct ros2_uid u;

	rows_session_uid(1, u.b);
	ros2_uid_to_str(&u, uid);
	assert_int_not_equal(try_get(f, KIND(GRANT), uid, &err), 0);
	assert_int_equal(err.status, ROS2_NOT_FOUND);
	for (int list = 0; list < 2; list++) {
		reads_fail = -EBUSY;
		assert_int_not_equal(list ? try_list(f, KIND(GRANT), &err)
		                          : try_get(f, KIND(GRANT), uid, &err),
		                     0);
		assert_cap(&err, "pages of the store", STORE_READS_MAX);
		assert_true(
			AWAIT(sf_audit_says(f, "admin.denied", list ? "Admin.List" : "Admin.Get",
		                            "too many pages of the store wait to be read")));
		reads_fail = -ESHUTDOWN;
		assert_int_not_equal(list ? try_list(f, KIND(GRANT), &err)
		                          : try_get(f, KIND(GRANT), uid, &err),
		                     0);
		assert_int_equal(err.status, ROS2_IO);
		reads_fail = 0;
	}
	assert_int_equal(try_list(f, KIND(GRANT), &err), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
#define A(name) cmocka_unit_test_setup_teardown(name, sf_setup, agents_gone)
	const struct CMUnitTest tests[] = {
		A(get__names_agents_that_do_not_answer),
		A(get__says_that_there_are_more_sessions),
		A(get__takes_no_more_rows_of_an_agent_than_one_may_say),
		A(get__says_that_there_are_more_grants),
		A(get__is_refused_when_too_many_ask_and_a_revocation_is_not),
		A(control__without_that_cap_one_more_asks),
		T(get__of_what_ended_says_why_it_is_not_read),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

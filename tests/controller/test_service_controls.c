/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative controls: what the other service tests show to be refused works as soon as the one check
 * that refuses it is switched off, and is refused again when it is back. The files that have the
 * checks are compiled into this test with their switches.
 */
#include "controller/test_switches.h"
#include "tests/controller/service_attacks.h"
#include "tests/controller/service_methods.h"
#include "common/util.h"
#include "tests/await.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

struct ctl_test_switches ctl_test_switches;

/* What @attack gives without the check. */
#define WITHOUT(check, attack, result)                                                             \
	do {                                                                                       \
		int without_;                                                                      \
                                                                                                   \
		ctl_test_switches.check = true;                                                    \
		without_ = (attack);                                                               \
		ctl_test_switches.check = false;                                                   \
		assert_int_equal(without_, result);                                                \
	} while (0)

/* ---- people ---- */

static void control__roles(void **state)
{
	struct sf *f = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	WITHOUT(no_roles, attack_apply(f, "nobody", sf_agent0, &err), ROS2_OK);
	WITHOUT(no_roles, attack_apply(f, "eye", sf_engine, &err), ROS2_OK);
	WITHOUT(no_roles, attack_token(f, "op", "dpu-0"), ROS2_OK);
	assert_int_equal(attack_apply(f, "nobody", sf_agent1, &err), ROS2_DENIED);
	assert_int_equal(attack_apply(f, "eye", sf_engine, &err), ROS2_DENIED);
	assert_int_equal(attack_apply(f, "op", sf_agent1, &err), ROS2_DENIED);
	assert_int_equal(attack_token(f, "op", "dpu-0"), ROS2_DENIED);
	/* What they did is there, and what they were refused is not. */
	assert_int_equal(attack_token(f, "root", "dpu-0"), ROS2_OK);
	assert_int_equal(attack_token(f, "root", "dpu-1"), ROS2_NOT_FOUND);
}

/* Whoever the administrators' authority has signed may call all of them. */
static void control__roles_of_every_method(void **state)
{
	const struct rpc_method *m;
	struct sf *f = *state;

	methods_begin(f);
	for (size_t i = 0; (m = method_at(i)); i++) {
		assert_int_equal(attack_method(f, "nobody", f->ports.admin, m), ROS2_DENIED);
		WITHOUT(no_roles, attack_method(f, "nobody", f->ports.admin, m), ROS2_OK);
	}
}

static void control__uid_of_what_is_deleted(void **state)
{
	struct sf *f = *state;
	struct ros2_uid old;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	old = sf_uid_of(f, "alpha");
	sf_make_again(f, KIND(TENANT), "alpha", sf_tenant("alpha", "1h", "10m", "dpu-0"));
	assert_int_equal(attack_delete(f, "alpha", &old), ROS2_CONFLICT);
	WITHOUT(no_expect_uid, attack_delete(f, "alpha", &old), ROS2_OK);
	assert_int_equal(attack_delete(f, "alpha", &old), ROS2_NOT_FOUND);
}

/* ---- who an agent is ---- */

static void control__hello(void **state)
{
	uint64_t newer;
	struct two t;

	two_start(state, &t);
	newer = t.f->ports.epoch + 1;
	fake_disconnect(&t.b);
	WITHOUT(no_agent_uid, attack_hello_as(&t.b, &t.a.uid), ROS2_OK);
	assert_int_equal(attack_hello_as(&t.b, &t.a.uid), ROS2_DENIED);
	WITHOUT(no_lineage, attack_hello_of_epoch(&t.b, true, 1), ROS2_OK);
	assert_int_equal(attack_hello_of_epoch(&t.b, true, 1), ROS2_WRONG_DOMAIN);
	WITHOUT(no_newer_epoch, attack_hello_of_epoch(&t.b, false, newer), ROS2_OK);
	assert_int_equal(attack_hello_of_epoch(&t.b, false, newer), ROS2_STALE_EPOCH);
	assert_int_equal(attack_hello(&t.b), ROS2_OK);
	two_stop(&t);
}

static void control__key_of_an_agent(void **state)
{
	struct fake old, new;
	struct sf *f = *state;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &old, "dpu-0");
	sf_make_again(f, KIND(AGENT), "dpu-0", sf_agent0);
	fake_enrol_anew(f, &new, "dpu-0");
	WITHOUT(no_agent_key, attack_hello_as(&old, &new.uid), ROS2_OK);
	WITHOUT(no_agent_key, attack_hello(&old), ROS2_DENIED); /* the uid is another check */
	assert_int_equal(attack_hello_as(&old, &new.uid), ROS2_DENIED);
	assert_int_equal(attack_hello(&new), ROS2_OK);
	fake_free(&old);
	fake_free(&new);
}

static void isolate(struct sf *f, const char *agent)
{
	Ros2__V1__IsolateAgentRequest q = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	Ros2__V1__IsolateAgentReply *r = NULL;

	q.agent = (char *)agent;
	q.reason = (char *)"suspicious";
	assert_int_equal(ros2_v1_admin_isolate_agent_sync(f->admin, &q, 20000, &r, NULL), 0);
	ros2__v1__isolate_agent_reply__free_unpacked(r, NULL);
}

static void control__isolation(void **state)
{
	struct two t;

	two_start(state, &t);
	isolate(t.f, "dpu-1");
	fake_disconnect(&t.b);
	WITHOUT(no_isolation, attack_hello(&t.b), ROS2_OK);
	assert_int_equal(attack_hello(&t.b), ROS2_REVOKED);
	two_stop(&t);
}

static void control__tokens(void **state)
{
	struct sf *f = *state;
	struct fake a = {0}, b = {0}, thief = {.dir = "thief"};
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *first = NULL, *second = NULL;

	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	first = sf_token(f, "dpu-0", 0);
	second = sf_token(f, "dpu-0", 0);
	WITHOUT(no_token_agent, fake_enrol_with(f, &b, "dpu-1", first, &err), 0);
	assert_int_not_equal(fake_enrol_with(f, &b, "dpu-1", second, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", second, &err), 0);
	WITHOUT(no_token_once, fake_enrol_with(f, &thief, "dpu-0", second, &err), 0);
	/* By the key that it was used with last, or not at all. */
	assert_int_not_equal(fake_enrol_with(f, &a, "dpu-0", second, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
}

/* ---- what an agent says of another's ---- */

static void control__for_whom_a_grant_is(void **state)
{
	static const char stranger[] = "spiffe://" TD "/tenant/beta/trainer";
	struct two t;

	two_start(state, &t);
	WITHOUT(no_placement, attack_grant(&t.b, &t.alpha, TRAINER), ROS2_OK);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 1);
	assert_int_equal(attack_grant(&t.b, &t.alpha, TRAINER), ROS2_DENIED);
	WITHOUT(no_principal, attack_grant(&t.a, &t.alpha, stranger), ROS2_OK);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 2);
	assert_int_equal(attack_grant(&t.a, &t.alpha, stranger), ROS2_DENIED);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 2);
	two_stop(&t);
}

/* sessions.max is 2. */
static void control__number_of_grants(void **state)
{
	struct two t;

	two_start(state, &t);
	for (int i = 0; i < 8; i++)
		two_grant(&t);
	assert_int_equal(attack_grant(&t.a, &t.alpha, TRAINER), ROS2_LIMIT);
	WITHOUT(no_grant_limit, attack_grant(&t.a, &t.alpha, TRAINER), ROS2_OK);
	assert_int_equal(attack_grant(&t.a, &t.alpha, TRAINER), ROS2_LIMIT);
	two_stop(&t);
}

static void control__of_a_revoked_tenant(void **state)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct two t;

	two_start(state, &t);
	assert_int_equal(sf_revoke(t.f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	WITHOUT(no_revocation, attack_grant(&t.a, &t.alpha, TRAINER), ROS2_OK);
	assert_int_equal(attack_grant(&t.a, &t.alpha, TRAINER), ROS2_REVOKED);
	two_stop(&t);
}

static void control__whose_grant_it_is(void **state)
{
	struct ros2_uid first, second;
	struct two t;

	two_start(state, &t);
	first = two_grant(&t);
	second = two_grant(&t);
	WITHOUT(no_grant_owner, attack_release(&t, &first), true);
	assert_false(attack_release(&t, &second));
	/* Again when it came too late for one: each is of a grant of its own. */
	WITHOUT(no_grant_owner, AWAIT(attack_in_use(&t)), true);
	assert_false(attack_in_use(&t));
	two_stop(&t);
}

static void control__whose_records_and_states_they_are(void **state)
{
	struct two t;

	two_start(state, &t);
	WITHOUT(no_record_tenant, attack_record_of_tenant(&t), true);
	assert_false(attack_record_of_tenant(&t));
	WITHOUT(no_record_origin, attack_record_of_agent(&t), true);
	assert_false(attack_record_of_agent(&t));
	assert_false(attack_state(&t, "FORGED"));
	WITHOUT(no_state_owner, attack_state(&t, "FORGED"), true);
	two_stop(&t);
}

static void control__who_answers(void **state)
{
	struct two t;

	two_start(state, &t);
	WITHOUT(no_report_owner, attack_report(&t), true);
	assert_false(attack_report(&t));
	WITHOUT(no_receipt_owner, attack_receipt(&t), true);
	assert_false(attack_receipt(&t));
	two_stop(&t);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(control__roles),
		T(control__roles_of_every_method),
		T(control__uid_of_what_is_deleted),
		T(control__hello),
		T(control__key_of_an_agent),
		T(control__isolation),
		T(control__tokens),
		T(control__for_whom_a_grant_is),
		T(control__number_of_grants),
		T(control__of_a_revoked_tenant),
		T(control__whose_grant_it_is),
		T(control__whose_records_and_states_they_are),
		T(control__who_answers),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

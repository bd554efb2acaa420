/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one agent says of another's, in the fields of AgentLink that name nothing it could own: a
 * grant it says it has, a question it was not asked, a record of another's. No effect, one record
 * each; the control is the same, said by the agent whose it is.
 */
#include "tests/await.h"
#include "tests/controller/service_attacks.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

static void hello_with(struct fake *a, struct ros2_uid *grant)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;

	fake_disconnect(a);
	have.kind = KIND(GRANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, grant->b};
	have.version = 1;
	fake_connect(a, &have, 1);
	fake_want(a, MSG(WELCOME));
	fake_wait_synced(a);
}

static void claim__of_what_is_anothers_is_recorded_without_effect(void **state)
{
	struct ros2_uid grant;
	unsigned claims;
	struct two t;

	two_start(state, &t);
	/* Controls first: of its own, and nothing is said of it. */
	two_report(&t);
	fake_record(&t.a, NULL, &t.a.uid);
	grant = two_grant(&t);
	hello_with(&t.a, &grant);
	assert_int_equal(sf_audit_count_action(t.f, "agent.claim", ""), 0);
	/* A question that dpu-0 was asked is not answered by dpu-1. */
	assert_false(attack_report(&t));
	assert_true(AWAIT(sf_audit_count_action(t.f, "agent.claim", "")));
	claims = sf_audit_count_action(t.f, "agent.claim", "");
	/* A record is of who sends it, whatever it says. */
	assert_false(attack_record_of_agent(&t));
	sf_audit_wait(t.f, "agent.claim", claims + 1);
	sf_audit_names(t.f, "agent.claim", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED,
	               "spiffe://" TD "/agent/dpu-1", "agent", "dpu-1");
	/* Who says that it has dpu-0's grant gets nothing by it, and takes nothing away. */
	hello_with(&t.b, &grant);
	sf_audit_wait(t.f, "agent.claim", claims + 2);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 1);
	two_stop(&t);
}

static void claim__of_anothers_grant_in_use_does_not_renew_it(void **state)
{
	struct ros2_uid grant;
	struct two t;

	two_start(state, &t);
	assert_false(attack_in_use(&t));
	/* The control: of the agent that has it. */
	grant = two_grant(&t);
	while (!sf_audit_count_action(t.f, "grant.renew", "")) {
		fake_beat(&t.a, &grant, 1);
		fake_want(&t.a, MSG(CONTACT));
		/* poll: the log */
		usleep(20000);
	}
	two_stop(&t);
}

/* The agent knows the tenant that had the name before, and a grant of it. */
static void claim__of_a_tenant_made_again_is_not_the_old_ones(void **state)
{
	struct ros2_uid old, grant;
	struct two t;

	two_start(state, &t);
	old = t.alpha;
	grant = two_grant(&t);
	sf_make_again(t.f, KIND(TENANT), "alpha", sf_tenant("alpha", "1h", "10m", "dpu-0"));
	t.alpha = sf_uid_of(t.f, "alpha");
	assert_int_equal(attack_grant(&t.a, &old, TRAINER), ROS2_DENIED);
	hello_with(&t.a, &grant);
	fake_beat(&t.a, &grant, 1);
	fake_failed(&t.a, &old, 1, "FORGED");
	fake_record(&t.a, &old, NULL);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 0);
	assert_false(sf_rollout_says(t.f, "FORGED"));
	assert_int_equal(sf_audit_count_action(t.f, "session.open", "alpha"), 0);
	/* The control: the same of the tenant that there is. */
	two_grant(&t);
	fake_failed(&t.a, &t.alpha, 1, "FORGED");
	fake_record(&t.a, &t.alpha, NULL);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 1);
	assert_true(sf_rollout_says(t.f, "FORGED"));
	assert_int_equal(sf_audit_count_action(t.f, "session.open", "alpha"), 1);
	two_stop(&t);
}

/* ---- text that is cut ---- */

#define LONG_WORDS 600

/* @pad bytes, then characters of three: whatever is kept of it ends within one, for one of 0..2. */
static char *long_words(char out[LONG_WORDS + 1], unsigned pad)
{
	memset(out, 'x', pad);
	for (size_t i = pad; i + 3 <= LONG_WORDS; i += 3) {
		memcpy(out + i, "\xe2\x82\xac", 3);
		out[i + 3] = '\0';
	}
	return out;
}

static void list_agents(struct sf *f, const char *expect)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__ListReply *r = NULL;

	q.kind = KIND(AGENT);
	if (ros2_v1_admin_list_sync(f->admin, &q, 9000, &r, &err))
		fail_msg("agents: %s", err.msg);
	assert_int_equal(r->n_objects, 2);
	assert_memory_equal(r->objects[0]->agent->address, expect, 30);
	assert_memory_equal(r->objects[0]->agent->version, expect, 30);
	ros2__v1__list_reply__free_unpacked(r, NULL);
}

static void text__that_is_cut_leaves_every_answer_readable(void **state)
{
	char words[LONG_WORDS + 1];
	Ros2__V1__GetReply *g;
	struct two t;

	two_start(state, &t);
	for (unsigned pad = 0; pad < 3; pad++) {
		fake_disconnect(&t.a);
		t.a.software = t.a.address = long_words(words, pad);
		fake_link_up(&t.a);
		list_agents(t.f, words);
		fake_failed(&t.a, &t.alpha, 1, words);
		g = sf_get(t.f, KIND(TENANT), "alpha");
		assert_int_equal(g->object->n_rollout, 1);
		assert_memory_equal(g->object->rollout[0]->failed_reason, words, 300);
		ros2__v1__get_reply__free_unpacked(g, NULL);
	}
	two_stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			claim__of_what_is_anothers_is_recorded_without_effect, sf_setup,
			sf_teardown),
		cmocka_unit_test_setup_teardown(claim__of_anothers_grant_in_use_does_not_renew_it,
	                                        sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(claim__of_a_tenant_made_again_is_not_the_old_ones,
	                                        sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(text__that_is_cut_leaves_every_answer_readable,
	                                        sf_setup, sf_teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

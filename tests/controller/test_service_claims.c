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

/* It is sent a tenant where that is placed, and asked only for what it may have. */
static void hello__that_names_anothers_tenant_gets_nothing_of_it(void **state)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Ack ack = ROS2__V1__ACK__INIT;
	Ros2__V1__RevokeReply *r = NULL;
	unsigned removed = 0;
	struct two t;

	two_start(state, &t);
	fake_disconnect(&t.b);
	have.kind = KIND(TENANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, t.alpha.b};
	have.version = 1;
	fake_connect(&t.b, &have, 1);
	for (bool done = false; !done;) {
		const Ros2__V1__Delta *d = fake_want(&t.b, MSG(DELTA))->delta;

		for (size_t i = 0; i < d->n_upserts; i++) {
			Ros2__V1__AgentObject *o = fake_open(&t.b, d->upserts[i]);

			assert_string_not_equal(o->name, "alpha");
			ros2__v1__agent_object__free_unpacked(o, NULL);
		}
		for (size_t i = 0; i < d->n_removals; i++)
			removed += !memcmp(d->removals[i]->uid.data, t.alpha.b, ROS2_UID_LEN);
		ack.nonce = d->nonce;
		done = d->initial_done;
	}
	assert_int_equal(removed, 1);
	/* The control: until it says that it has removed it, it may act by it. */
	assert_int_equal(sf_revoke(t.f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	assert_int_equal(r->n_outcomes, 2);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_ACK;
	m.ack = &ack;
	fake_send(&t.b, &m);
	fake_beat(&t.b, NULL, 0);
	fake_want(&t.b, MSG(CONTACT));
	assert_int_equal(sf_revoke(t.f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	assert_int_equal(r->n_outcomes, 1);
	assert_string_equal(r->outcomes[0]->agent, "dpu-0");
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	two_stop(&t);
}

/* Numbers of records are an agent's own: under another's incarnation, too. */
static void incarnation__of_another_agent_is_another_one(void **state)
{
	struct two t;

	two_start(state, &t);
	for (unsigned i = 0; i < 3; i++)
		fake_record(&t.a, NULL, NULL);
	t.b.incarnation = t.a.incarnation;
	fake_disconnect(&t.b);
	fake_connect(&t.b, NULL, 0);
	assert_int_equal(fake_want(&t.b, MSG(WELCOME))->welcome->audit_acked_seq, 0);
	fake_record(&t.b, NULL, NULL);
	sf_audit_wait(t.f, "session.open", 4);
	/* The control: who it is goes on where it was, and misses none. */
	fake_disconnect(&t.a);
	fake_connect(&t.a, NULL, 0);
	assert_int_equal(fake_want(&t.a, MSG(WELCOME))->welcome->audit_acked_seq, 3);
	fake_record(&t.a, NULL, NULL);
	sf_audit_wait(t.f, "session.open", 5);
	assert_int_equal(sf_audit_count_action(t.f, "audit.gap", ""), 0);
	two_stop(&t);
}

static void answer__to_a_number_that_another_used_goes_to_who_asked(void **state)
{
	Ros2__V1__AgentObject *o;
	struct two t;

	two_start(state, &t);
	for (int i = 0; i < 2; i++) {
		struct fake *a = i ? &t.b : &t.a;

		fake_ask_grant(a, 7, i ? &t.beta : &t.alpha,
		               i ? "spiffe://" TD "/tenant/beta/trainer" : TRAINER);
	}
	for (int i = 0; i < 2; i++) {
		struct fake *a = i ? &t.b : &t.a;
		Ros2__V1__GrantReply *r = fake_want(a, MSG(GRANT_REPLY))->grant_reply;

		assert_int_equal(r->request_id, 7);
		o = fake_open(a, r->grant); /* sealed for it */
		assert_memory_equal(o->grant->tenant_uid.data, (i ? &t.beta : &t.alpha)->b,
		                    ROS2_UID_LEN);
		ros2__v1__agent_object__free_unpacked(o, NULL);
	}
	two_stop(&t);
}

/* ---- a record that says what only the log may ---- */

static void say_all(struct two *t)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d = ROS2__V1__AUDIT_DRAFT__INIT, *drafts = &d;
	Ros2__V1__AuditRecord r = ROS2__V1__AUDIT_RECORD__INIT;
	Ros2__V1__AuditOrigin o = ROS2__V1__AUDIT_ORIGIN__INIT;
	Ros2__V1__Epoch e = ROS2__V1__EPOCH__INIT;
	char alpha[ROS2_UID_STR_LEN], agent[ROS2_UID_STR_LEN], incarnation[ROS2_UID_STR_LEN];
	uint8_t prev[32] = {1};

	ros2_uid_to_str(&t->alpha, alpha);
	ros2_uid_to_str(&t->a.uid, agent);
	ros2_uid_to_str(&t->a.incarnation, incarnation);
	e.lineage = (ProtobufCBinaryData){ROS2_UID_LEN, t->alpha.b};
	e.counter = 77;
	o.agent = (char *)"dpu-0";
	o.agent_uid = agent;
	o.incarnation = incarnation;
	o.seq = 99;
	r.format = 9;
	r.seq = r.tenant_seq = 1;
	r.epoch = &e;
	r.actor = (char *)"spiffe://" TD "/admin/root";
	r.role = (char *)"admin";
	r.action = (char *)"tenant.delete";
	r.tenant = (char *)"alpha";
	r.tenant_uid = alpha;
	r.tenant_prev = (ProtobufCBinaryData){sizeof(prev), prev};
	r.origin = &o;
	d.seq = 1;
	d.record = &r;
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, t->b.incarnation.b};
	b.drafts = &drafts;
	b.n_drafts = 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(&t->b, &m);
	fake_want(&t->b, MSG(AUDIT_ACK));
}

static bool has_detail(const Ros2__V1__AuditRecord *r, const char *key)
{
	for (size_t i = 0; i < r->n_details; i++)
		if (!strcmp(r->details[i]->key, key))
			return true;
	return false;
}

static void is_of_dpu_1(const Ros2__V1__AuditRecord *r, uint64_t seq, const struct two *t)
{
	char agent[ROS2_UID_STR_LEN], incarnation[ROS2_UID_STR_LEN];

	ros2_uid_to_str(&t->b.uid, agent);
	ros2_uid_to_str(&t->b.incarnation, incarnation);
	assert_non_null(r->origin);
	assert_string_equal(r->origin->agent, "dpu-1");
	assert_string_equal(r->origin->agent_uid, agent);
	assert_string_equal(r->origin->incarnation, incarnation);
	assert_int_equal(r->origin->seq, 1);
	assert_int_equal(r->format, 1);
	assert_int_equal(r->seq, seq);
	assert_int_equal(r->epoch->counter, t->f->ports.epoch);
	assert_string_equal(r->tenant, "");
	assert_string_equal(r->tenant_uid, "");
	assert_int_equal(r->tenant_seq, 0);
	assert_int_equal(r->tenant_prev.len, 0);
	assert_true(has_detail(r, "claimed_tenant") && has_detail(r, "claimed_agent_uid"));
}

/* Whom it says it was done by is its word, in a record that says whose word it is. */
static void record__that_says_all_there_is_is_of_who_sent_it(void **state)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	const Ros2__V1__StoredRecord *row;
	Ros2__V1__AuditRecord *r = NULL;
	struct rpc_reader *reader = NULL;
	ProtobufCMessage *m;
	unsigned history;
	struct two t;

	two_start(state, &t);
	history = sf_audit_count_action(t.f, "", "alpha");
	say_all(&t);
	q.action = (char *)"tenant.delete";
	assert_int_equal(
		rpc_reader_open(t.f->admin, &ros2_v1_audit_query, &q.base, 5000, &reader, NULL), 0);
	assert_int_equal(rpc_reader_next(reader, 5000, &m, NULL), 0);
	row = ros2_v1_audit_query_out(m)->record;
	assert_int_equal(audit_record_parse(row->record.data, row->record.len, &r, NULL), 0);
	is_of_dpu_1(r, row->seq, &t);
	ros2__v1__audit_record__free_unpacked(r, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
	rpc_reader_close(reader);
	assert_int_equal(sf_audit_count_action(t.f, "", "alpha"), history);
	sf_audit_wait(t.f, "agent.claim", 1);
	sf_verify_log(t.f);
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
		cmocka_unit_test_setup_teardown(
			hello__that_names_anothers_tenant_gets_nothing_of_it, sf_setup,
			sf_teardown),
		cmocka_unit_test_setup_teardown(incarnation__of_another_agent_is_another_one,
	                                        sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(
			answer__to_a_number_that_another_used_goes_to_who_asked, sf_setup,
			sf_teardown),
		cmocka_unit_test_setup_teardown(record__that_says_all_there_is_is_of_who_sent_it,
	                                        sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(text__that_is_cut_leaves_every_answer_readable,
	                                        sf_setup, sf_teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

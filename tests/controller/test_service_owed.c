/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom the answer to a revocation names: every agent that may act on what is revoked, also when
 * this process knows of nothing that it has. And until when: the time that it states for an agent
 * that is not reached is never too early. And when: no agent hears of one that is not durable.
 */
#include "controller/ctl.h"
#include "tests/await.h"
#include "tests/controller/held_submit.h"
#include "tests/controller/service_audit.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

/* ---- a clock on the wall that jumps ---- */

static _Atomic uint64_t forward_ns;

uint64_t __real_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void)
{
	return __real_clock_unix_ns() + forward_ns;
}

/* ---- whom ---- */

static struct ros2_uid alpha_on_dpu0(struct sf *f, struct fake *a)
{
	Ros2__V1__GetReply *g;
	struct ros2_uid u;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(f, KIND(TENANT), "alpha");
	memcpy(u.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(f, a, "dpu-0");
	fake_connect(a, NULL, 0);
	fake_wait_synced(a);
	return u;
}

static Ros2__V1__RevokeReply *revoke_alpha(struct sf *f)
{
	Ros2__V1__RevokeReply *r = NULL;

	assert_int_equal(sf_revoke(f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	return r;
}

/* For so many seconds, plus 0.1 %, from its last contact, which is not long ago. Frees @r. */
static void says(Ros2__V1__RevokeReply *r, const char *agent, uint64_t limit_s)
{
	uint64_t now = clock_unix_ns();

	assert_int_equal(r->n_outcomes, 1);
	assert_string_equal(r->outcomes[0]->agent, agent);
	assert_int_equal(r->outcomes[0]->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED);
	assert_in_range(r->outcomes[0]->unconfirmed_until_unix_ns, now + limit_s * 5 / 6 * NS_PER_S,
	                now + limit_s * 61 / 60 * NS_PER_S);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
}

static void owes_for(struct sf *f, const char *agent, uint64_t limit_s)
{
	says(revoke_alpha(f), agent, limit_s);
}

static void owes(struct sf *f, const char *agent)
{
	owes_for(f, agent, 600);
}

static void owes_nothing(struct sf *f)
{
	Ros2__V1__RevokeReply *r = revoke_alpha(f);

	assert_int_equal(r->n_outcomes, 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
}

static void ack(struct fake *a)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Ack k = ROS2__V1__ACK__INIT;

	k.nonce = a->last_nonce;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_ACK;
	m.ack = &k;
	fake_send(a, &m);
	/* The stream is in order. */
	fake_beat(a, NULL, 0);
	assert_non_null(fake_next(a, MSG(CONTACT), AWAIT_MS));
}

/* Until this delta comes: it removes @tenant. */
static void removed(struct fake *a, const struct ros2_uid *tenant)
{
	Ros2__V1__ControllerMessage *m;
	bool is = false;

	while (!is) {
		m = fake_next(a, MSG(DELTA), AWAIT_MS);
		assert_non_null(m);
		for (size_t i = 0; i < m->delta->n_removals; i++)
			is |= !memcmp(m->delta->removals[i]->uid.data, tenant->b, ROS2_UID_LEN);
		a->last_nonce = m->delta->nonce;
	}
}

/* It was told of no end: the document took the tenant away while it could not be reached, and this
 * process knows nothing of what another has sent. */
static void revoke__names_an_agent_that_has_not_been_heard_since_the_start(void **state)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	Ros2__V1__ControllerMessage *m;
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	sf_stop(f);
	sf_start(f);
	/* Nor by which limit it counts: the longest that a document can have. */
	owes_for(f, "dpu-0", 86400);
	have.kind = KIND(TENANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, alpha.b};
	have.version = 1;
	fake_connect(&a, &have, 1);
	m = fake_next(&a, MSG(REVOKE), AWAIT_MS);
	assert_non_null(m);
	assert_memory_equal(m->revoke->uid.data, alpha.b, ROS2_UID_LEN);
	fake_receipt(&a, &m->revoke->revocation_uid, 0);
	sf_audit_wait(f, "revoke.receipt", 1);
	/* The control: it has been heard, and has removed it. */
	fake_wait_synced(&a);
	ack(&a);
	owes_nothing(f);
	fake_free(&a);
}

/* What was sent is not yet done: an agent that hangs, or is cut off, has it and serves it. */
static void revoke__names_an_agent_that_has_not_said_that_it_removed_the_tenant(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;
	uint64_t removal;

	alpha = alpha_on_dpu0(f, &a);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	removed(&a, &alpha);
	owes(f, "dpu-0");
	removal = a.last_nonce;
	a.last_nonce = removal - 1;
	ack(&a);
	owes(f, "dpu-0");
	a.last_nonce = removal;
	ack(&a);
	owes_nothing(f);
	fake_free(&a);
}

/* The other way round: it is placed there again before the agent has said anything. */
static void place__again_sends_a_tenant_that_was_to_be_removed(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;
	Ros2__V1__ControllerMessage *m;

	alpha = alpha_on_dpu0(f, &a);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	removed(&a, &alpha);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	do {
		m = fake_next(&a, MSG(DELTA), AWAIT_MS);
		assert_non_null(m);
		a.last_nonce = m->delta->nonce;
	} while (!m->delta->n_upserts);
	ack(&a); /* of all of it: what it has stays known, or it could not be removed again */
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	removed(&a, &alpha);
	fake_free(&a);
}

/* ---- until when ---- */

#define LIMIT_NS (600 * NS_PER_S + 600 * NS_PER_MS) /* 10m, plus 0.1 % */

static uint64_t revoke_until(struct sf *f)
{
	Ros2__V1__RevokeReply *r = revoke_alpha(f);
	uint64_t until;

	assert_int_equal(r->n_outcomes, 1);
	until = r->outcomes[0]->unconfirmed_until_unix_ns;
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	return until;
}

/* Somebody between the two cuts each stream after the Welcome. */
static void hello__gives_no_contact_before_what_is_owed(void **state)
{
	struct sf *f = *state;
	static struct fake a;

	alpha_on_dpu0(f, &a);
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 1);
	owes(f, "dpu-0");
	for (unsigned i = 0; i < 2; i++) {
		Ros2__V1__ControllerMessage *m;

		fake_connect(&a, NULL, 0);
		m = fake_next(&a, MSG(WELCOME), AWAIT_MS);
		assert_non_null(m);
		assert_null(m->welcome->stamp);
		fake_disconnect(&a);
		sf_audit_wait(f, "agent.disconnect", 2 + i);
	}
	/* The answer to a beat gives it, behind what is owed. */
	fake_connect(&a, NULL, 0);
	fake_beat(&a, NULL, 0);
	assert_non_null(fake_next(&a, MSG(CONTACT), AWAIT_MS));
	assert_non_null(fake_next(&a, MSG(REVOKE), 0));
	fake_free(&a);
}

static void is_applied(struct fake *a, const struct ros2_uid *tenant, uint64_t version)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ObjectState st = ROS2__V1__OBJECT_STATE__INIT;

	st.kind = KIND(TENANT);
	st.uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)tenant->b};
	st.version = version;
	st.applied = true;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_STATE;
	m.state = &st;
	fake_send(a, &m);
	fake_beat(a, NULL, 0);
	assert_non_null(fake_next(a, MSG(CONTACT), AWAIT_MS));
}

static uint64_t version_of(struct sf *f, const char *tenant)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), tenant);
	uint64_t version = g->object->version;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return version;
}

/* All that it is sent, until the latest version of @tenant. */
static void receives(struct sf *f, struct fake *a, const struct ros2_uid *tenant)
{
	uint64_t version = version_of(f, "alpha"), last = 0;

	while (last != version) {
		Ros2__V1__ControllerMessage *m = fake_next(a, MSG(DELTA), AWAIT_MS);

		assert_non_null(m);
		a->last_nonce = m->delta->nonce;
		for (size_t i = 0; i < m->delta->n_upserts; i++) {
			Ros2__V1__AgentObject *o = fake_open(a, m->delta->upserts[i]);

			if (!memcmp(o->uid.data, tenant->b, ROS2_UID_LEN))
				last = o->version;
			ros2__v1__agent_object__free_unpacked(o, NULL);
		}
	}
}

/* What it was sent it may not have read, or not have on its disk, or not be able to apply: it stops
 * by the longer limit. */
static void revoke__counts_by_the_limit_that_the_agent_may_still_have(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	ack(&a);
	is_applied(&a, &alpha, version_of(f, "alpha"));
	sf_apply(f, sf_tenant("alpha", "1h", "1m", "dpu-0"));
	owes_for(f, "dpu-0", 600);
	receives(f, &a, &alpha);
	ack(&a);
	owes_for(f, "dpu-0", 600);
	receives(f, &a, &alpha);
	is_applied(&a, &alpha, version_of(f, "alpha"));
	owes_for(f, "dpu-0", 600);
	receives(f, &a, &alpha);
	ack(&a);
	is_applied(&a, &alpha, version_of(f, "alpha"));
	owes_for(f, "dpu-0", 60);
	fake_free(&a);
}

static void revoke__counts_by_the_limit_of_what_the_agent_was_to_remove(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	sf_apply(f, sf_tenant("alpha", "1h", "1m", "dpu-1"));
	removed(&a, &alpha);
	owes_for(f, "dpu-0", 600);
	fake_free(&a);
}

/* It comes back with a version that this process has not sent on this stream, and is gone again
 * before it has said that it has another. */
static void revoke__counts_by_the_longest_limit_of_a_version_it_does_not_know(void **state)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	have.kind = KIND(TENANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, alpha.b};
	have.version = version_of(f, "alpha");
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 1);
	sf_apply(f, sf_tenant("alpha", "1h", "1m", "dpu-0"));
	fake_connect(&a, &have, 1);
	fake_wait_synced(&a);
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 2);
	owes_for(f, "dpu-0", 86400);
	fake_free(&a);
}

/* What it says that it has may be in its memory only, or of a kind that it cannot apply: it acts by
 * one before. */
static void revoke__counts_by_the_longest_limit_of_what_is_not_said_to_be_applied(void **state)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	sf_apply(f, sf_tenant("alpha", "1h", "1m", "dpu-0"));
	have.kind = KIND(TENANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, alpha.b};
	have.version = version_of(f, "alpha");
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 1);
	fake_connect(&a, &have, 1);
	fake_wait_synced(&a);
	owes_for(f, "dpu-0", 86400);
	/* The control. */
	receives(f, &a, &alpha);
	is_applied(&a, &alpha, version_of(f, "alpha"));
	ack(&a);
	owes_for(f, "dpu-0", 60);
	fake_free(&a);
}

struct revoking {
	struct sf *f;
	uint64_t until;
	pthread_t thread;
};

static void *revoke_it(void *arg)
{
	struct revoking *r = arg;

	r->until = revoke_until(r->f);
	return NULL;
}

/* A beat is answered while the record is on its way: it gives time before the revocation does. */
static void revoke__states_a_time_that_counts_from_when_it_is_sent(void **state)
{
	static struct revoking r;
	static struct fake a;
	uint64_t beat;

	r.f = *state;
	alpha_on_dpu0(r.f, &a);
	hold_next = true;
	assert_int_equal(pthread_create(&r.thread, NULL, revoke_it, &r), 0);
	assert_true(AWAIT(!hold_next));
	beat = clock_unix_ns();
	fake_beat(&a, NULL, 0);
	assert_non_null(fake_next(&a, MSG(CONTACT), AWAIT_MS));
	loop_call(r.f->loop, held_let_go, NULL);
	assert_int_equal(pthread_join(r.thread, NULL), 0);
	assert_true(r.until >= beat + LIMIT_NS);
	fake_free(&a);
}

static void all_of_dpu0_owes_for(struct sf *f, uint64_t limit_s)
{
	Ros2__V1__RevokeReply *r = NULL;

	assert_int_equal(sf_revoke(f, KIND(AGENT), "dpu-0", 1, &r, NULL), 0);
	says(r, "dpu-0", limit_s);
}

static void delete_alpha(struct sf *f)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;

	ref.kind = KIND(TENANT);
	ref.name = (char *)"alpha";
	q.ref = &ref;
	assert_int_equal(ros2_v1_admin_delete_sync(f->admin, &q, 20000, &r, NULL), 0);
	ros2__v1__delete_reply__free_unpacked(r, NULL);
}

/* The document of a tenant is gone, and the agent, which could not be reached, acts by it still: by
 * its limit, and by the longest that there can be when this process has never heard the agent. */
static void revoke__of_an_agent_counts_by_the_limit_of_a_tenant_that_was_deleted(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	sf_apply(f, sf_tenant("alpha", "4h", "2h", "dpu-0"));
	receives(f, &a, &alpha);
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 1);
	all_of_dpu0_owes_for(f, 7200);
	delete_alpha(f);
	all_of_dpu0_owes_for(f, 7200);
	sf_stop(f);
	sf_start(f);
	all_of_dpu0_owes_for(f, 86400);
	fake_free(&a);
}

/* The same while it is connected, and hangs: it was told to remove the tenant, and has not said
 * that it did. */
static void revoke__of_an_agent_counts_by_the_limit_of_a_tenant_that_it_was_to_remove(void **state)
{
	struct sf *f = *state;
	struct ros2_uid alpha;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	sf_apply(f, sf_tenant("alpha", "4h", "2h", "dpu-0"));
	receives(f, &a, &alpha);
	delete_alpha(f);
	removed(&a, &alpha);
	all_of_dpu0_owes_for(f, 7200);
	ack(&a);
	all_of_dpu0_owes_for(f, 600);
	fake_free(&a);
}

static void alpha_has_a_grant(struct fake *a, const struct ros2_uid *alpha,
                              char ret_uid[ROS2_UID_STR_LEN])
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
	ros2_uid_to_str(&grant, ret_uid);
}

/* The same between two processes: the next one does not know what part of its hour is over. */
static void revoke__of_a_grant_states_no_time_that_a_clock_has_jumped_over_at_a_start(void **state)
{
	char uid[ROS2_UID_STR_LEN];
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_uid alpha;
	struct sf *f = *state;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	alpha_has_a_grant(&a, &alpha, uid);
	fake_disconnect(&a);
	sf_stop(f);
	forward_ns = 3000 * NS_PER_S;
	sf_start(f);
	assert_int_equal(sf_revoke(f, KIND(GRANT), uid, 1, &r, NULL), 0);
	says(r, "dpu-0", 3600);
	forward_ns = 0;
	fake_free(&a);
}

/* Beyond its end by that clock: it is there to be revoked until its agent, which counts by its own,
 * comes, and is told to remove it. */
static size_t grants_that_are(struct sf *f, const char *state)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__ListReply *r = NULL;
	size_t n = 0;

	q.kind = KIND(GRANT);
	q.all = strcmp(state, "live");
	assert_int_equal(ros2_v1_admin_list_sync(f->admin, &q, 20000, &r, NULL), 0);
	for (size_t i = 0; i < r->n_grants; i++)
		n += !strcmp(r->grants[i]->state, state);
	ros2__v1__list_reply__free_unpacked(r, NULL);
	return n;
}

static void revoke__of_a_grant_finds_one_that_only_the_clock_says_is_over(void **state)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	char first[ROS2_UID_STR_LEN], second[ROS2_UID_STR_LEN];
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid alpha, grant;
	struct sf *f = *state;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	alpha_has_a_grant(&a, &alpha, first);
	alpha_has_a_grant(&a, &alpha, second);
	assert_int_equal(grants_that_are(f, "live"), 2);
	fake_disconnect(&a);
	sf_stop(f);
	forward_ns = 3 * 3600 * NS_PER_S;
	sf_start(f);
	assert_int_equal(grants_that_are(f, "live"), 0);
	assert_int_equal(grants_that_are(f, "expired"), 2);
	assert_int_equal(sf_revoke(f, KIND(GRANT), first, 1, &r, NULL), 0);
	says(r, "dpu-0", 3600);
	assert_int_equal(ros2_uid_from_str(second, &grant), 0);
	have.kind = KIND(GRANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, grant.b};
	have.version = 1;
	fake_connect(&a, &have, 1);
	assert_non_null(fake_next(&a, MSG(REVOKE), AWAIT_MS));
	removed(&a, &grant);
	sf_audit_wait(f, "grant.expire", 1);
	assert_int_not_equal(sf_revoke(f, KIND(GRANT), second, 1, &r, &err), 0);
	assert_int_equal(err.status, ROS2_NOT_FOUND);
	forward_ns = 0;
	fake_free(&a);
}

/* Somebody puts the clock on the wall forward while a grant lives: for its agent nothing is over.
 */
static void revoke__of_a_grant_states_no_time_that_a_clock_has_jumped_over(void **state)
{
	char uid[ROS2_UID_STR_LEN];
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_uid alpha;
	struct sf *f = *state;
	static struct fake a;

	alpha = alpha_on_dpu0(f, &a);
	alpha_has_a_grant(&a, &alpha, uid);
	forward_ns = 3 * 3600 * NS_PER_S;
	assert_int_equal(sf_revoke(f, KIND(GRANT), uid, 1, &r, NULL), 0);
	assert_int_equal(r->n_outcomes, 1);
	/* Of the two ends, that of the contact (10m) and of the grant (1h), the first. */
	assert_in_range(r->outcomes[0]->unconfirmed_until_unix_ns, clock_unix_ns() + 500 * NS_PER_S,
	                clock_unix_ns() + 610 * NS_PER_S);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	forward_ns = 0;
	fake_free(&a);
}

/* ---- in what order ---- */

/* All that it is sent until the first synchronisation is complete; the version of @tenant in it. */
static uint64_t synced_with(struct fake *a, const struct ros2_uid *tenant)
{
	uint64_t version = 0;

	for (;;) {
		Ros2__V1__ControllerMessage *m = fake_next(a, MSG(DELTA), AWAIT_MS);

		assert_non_null(m);
		for (size_t i = 0; i < m->delta->n_upserts; i++) {
			Ros2__V1__AgentObject *o = fake_open(a, m->delta->upserts[i]);

			if (!memcmp(o->uid.data, tenant->b, ROS2_UID_LEN))
				version = o->version;
			ros2__v1__agent_object__free_unpacked(o, NULL);
		}
		if (m->delta->initial_done)
			return version;
	}
}

/* Were the controller killed before the commit, the agent would have a version that no start knows
 * of: a document that is given the same number later would never reach it. */
static void revoke__is_told_to_nobody_before_it_is_durable(void **state)
{
	static struct revoking r;
	static struct fake a;
	struct ros2_uid alpha;
	uint64_t before;
	bool told;

	r.f = *state;
	alpha = alpha_on_dpu0(r.f, &a);
	fake_disconnect(&a);
	sf_audit_wait(r.f, "agent.disconnect", 1);
	hold_next = true;
	assert_int_equal(pthread_create(&r.thread, NULL, revoke_it, &r), 0);
	assert_true(AWAIT(!hold_next));
	fake_connect(&a, NULL, 0);
	before = synced_with(&a, &alpha);
	told = fake_next(&a, MSG(REVOKE), 0) != NULL;
	loop_call(r.f->loop, held_let_go, NULL);
	assert_int_equal(pthread_join(r.thread, NULL), 0);
	assert_int_equal(before, 0);
	assert_false(told);
	assert_non_null(fake_next(&a, MSG(REVOKE), AWAIT_MS));
	receives(r.f, &a, &alpha);
	fake_free(&a);
}

/* Until the answer to a beat, which comes behind all that it owes. */
static unsigned told_of(struct fake *a, unsigned disconnects)
{
	unsigned n = 0;

	fake_connect(a, NULL, 0);
	fake_beat(a, NULL, 0);
	assert_non_null(fake_next(a, MSG(CONTACT), AWAIT_MS));
	while (fake_next(a, MSG(REVOKE), 0))
		n++;
	fake_disconnect(a);
	sf_audit_wait(a->f, "agent.disconnect", disconnects);
	return n;
}

/* A loop that revokes until it is confirmed, while the agent is away for days. */
static void revoke__of_one_target_again_leaves_an_agent_that_is_away_one_of_them(void **state)
{
	struct sf *f = *state;
	static struct fake a;
	Ros2__V1__ControllerMessage *m;

	alpha_on_dpu0(f, &a);
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 1);
	for (unsigned i = 0; i < 5; i++)
		owes(f, "dpu-0");
	all_of_dpu0_owes_for(f, 600);
	all_of_dpu0_owes_for(f, 600);
	sf_stop(f);
	sf_start(f);
	assert_int_equal(told_of(&a, 2), 2); /* of the tenant, and of the agent */
	/* What it may have been told is not taken back: it may answer. */
	owes_for(f, "dpu-0", 600);
	assert_int_equal(told_of(&a, 3), 3);
	owes_for(f, "dpu-0", 600);
	owes_for(f, "dpu-0", 600);
	fake_connect(&a, NULL, 0);
	for (unsigned i = 0; i < 4; i++) {
		m = fake_next(&a, MSG(REVOKE), AWAIT_MS);
		assert_non_null(m);
		fake_receipt(&a, &m->revoke->revocation_uid, 0);
	}
	sf_audit_wait(f, "revoke.receipt", 4);
	fake_disconnect(&a);
	sf_audit_wait(f, "agent.disconnect", 4);
	assert_int_equal(told_of(&a, 5), 0);
	fake_free(&a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(revoke__names_an_agent_that_has_not_been_heard_since_the_start),
		T(revoke__names_an_agent_that_has_not_said_that_it_removed_the_tenant),
		T(place__again_sends_a_tenant_that_was_to_be_removed),
		T(hello__gives_no_contact_before_what_is_owed),
		T(revoke__states_a_time_that_counts_from_when_it_is_sent),
		T(revoke__counts_by_the_limit_that_the_agent_may_still_have),
		T(revoke__counts_by_the_limit_of_what_the_agent_was_to_remove),
		T(revoke__counts_by_the_longest_limit_of_a_version_it_does_not_know),
		T(revoke__counts_by_the_longest_limit_of_what_is_not_said_to_be_applied),
		T(revoke__of_an_agent_counts_by_the_limit_of_a_tenant_that_was_deleted),
		T(revoke__of_an_agent_counts_by_the_limit_of_a_tenant_that_it_was_to_remove),
		T(revoke__of_a_grant_states_no_time_that_a_clock_has_jumped_over),
		T(revoke__of_a_grant_states_no_time_that_a_clock_has_jumped_over_at_a_start),
		T(revoke__of_a_grant_finds_one_that_only_the_clock_says_is_over),
		T(revoke__is_told_to_nobody_before_it_is_durable),
		T(revoke__of_one_target_again_leaves_an_agent_that_is_away_one_of_them),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

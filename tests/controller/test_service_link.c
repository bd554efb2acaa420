/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AgentLink with a scripted agent: hello, synchronisation, contact, grants and their ends,
 * revocation with receipts, isolation, epochs, forwarded records.
 */
#include "controller/ctl.h"
#include "controller/store.h"
#include "tests/await.h"
#include "tests/controller/service_attacks.h"
#include "common/util.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define OK      ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK

struct world {
	struct sf *f;
	struct fake a;
	struct ros2_uid alpha;
};

static void world(void **state, struct world *w, const char *lifetime, const char *limit)
{
	Ros2__V1__GetReply *g;

	memset(w, 0, sizeof(*w));
	w->f = *state;
	sf_apply(w->f, sf_engine);
	sf_apply(w->f, sf_agent0);
	sf_apply(w->f, sf_tenant("alpha", lifetime, limit, "dpu-0"));
	g = sf_get(w->f, KIND(TENANT), "alpha");
	memcpy(w->alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(w->f, &w->a, "dpu-0");
}

static void link_up(struct world *w)
{
	fake_link_up(&w->a);
}

static struct ros2_uid get_grant(struct world *w, uint64_t id)
{
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	struct ros2_uid uid;

	fake_ask_grant(&w->a, id, &w->alpha, TRAINER);
	m = fake_want(&w->a, MSG(GRANT_REPLY));
	if (m->grant_reply->status)
		fail_msg("no grant: %s", m->grant_reply->words);
	assert_int_equal(m->grant_reply->request_id, id);
	o = fake_open(&w->a, m->grant_reply->grant);
	memcpy(uid.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return uid;
}

/* ---- hello and synchronisation ---- */

static void link__sends_what_is_placed_and_shows_how_far_it_came(void **state)
{
	struct world w;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentMessage out = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ObjectState st = ROS2__V1__OBJECT_STATE__INIT;
	Ros2__V1__Ack ack = ROS2__V1__ACK__INIT;
	Ros2__V1__AgentObject *engine, *tenant;
	Ros2__V1__GetReply *g;

	world(state, &w, "1h", "10m");
	sf_apply(w.f, sf_tenant("beta", "1h", "10m", "dpu-7"));
	fake_connect(&w.a, NULL, 0);
	m = fake_want(&w.a, MSG(WELCOME));
	assert_int_equal(m->welcome->epoch->counter, w.f->ports.epoch);
	assert_null(m->welcome->stamp); /* contact comes behind what is owed */
	m = fake_want(&w.a, MSG(DELTA));
	assert_int_equal(m->delta->n_upserts, 2); /* not beta's */
	engine = fake_open(&w.a, m->delta->upserts[0]);
	tenant = fake_open(&w.a, m->delta->upserts[1]);
	assert_int_equal(engine->kind, KIND(ENGINE));
	assert_string_equal(tenant->name, "alpha");
	assert_true(tenant->image.len > 0);
	ack.nonce = m->delta->nonce;
	out.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_ACK;
	out.ack = &ack;
	fake_send(&w.a, &out);
	st.kind = KIND(TENANT);
	st.uid = tenant->uid;
	st.version = tenant->version;
	st.applied = true;
	out.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_STATE;
	out.state = &st;
	fake_send(&w.a, &out);
	st.kind = KIND(ENGINE);
	st.uid = engine->uid;
	st.version = engine->version;
	st.applied = false;
	st.failed_reason = (char *)"no room";
	fake_send(&w.a, &out);
	fake_beat(&w.a, NULL, 0);
	m = fake_want(&w.a, MSG(CONTACT));
	assert_int_equal(m->contact->stamp->boot_id.len, 16);
	g = sf_get(w.f, KIND(TENANT), "alpha");
	assert_int_equal(g->object->n_rollout, 1);
	assert_int_equal(g->object->rollout[0]->applied_version, tenant->version);
	assert_int_equal(g->object->rollout[0]->received_version, tenant->version);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	g = sf_get(w.f, KIND(ENGINE), "ram");
	assert_string_equal(g->object->rollout[0]->failed_reason, "no room");
	ros2__v1__get_reply__free_unpacked(g, NULL);
	ros2__v1__agent_object__free_unpacked(engine, NULL);
	ros2__v1__agent_object__free_unpacked(tenant, NULL);
	fake_free(&w.a);
}

static void link__sends_only_differences_after_a_reconnect(void **state)
{
	struct world w;
	Ros2__V1__HaveObject have[3];
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__GetReply *t, *e;
	struct ros2_uid unknown = ros2_uid_new();

	world(state, &w, "1h", "10m");
	t = sf_get(w.f, KIND(TENANT), "alpha");
	e = sf_get(w.f, KIND(ENGINE), "ram");
	for (int i = 0; i < 3; i++)
		ros2__v1__have_object__init(&have[i]);
	have[0].kind = KIND(TENANT);
	have[0].uid = t->object->uid;
	have[0].version = t->object->version;
	have[1].kind = KIND(ENGINE);
	have[1].uid = e->object->uid;
	have[1].version = e->object->version;
	have[2].kind = KIND(TENANT);
	have[2].uid.data = unknown.b;
	have[2].uid.len = ROS2_UID_LEN;
	have[2].version = 5;
	fake_connect(&w.a, have, 3);
	m = fake_want(&w.a, MSG(DELTA));
	assert_int_equal(m->delta->n_upserts, 0);
	assert_int_equal(m->delta->n_removals, 1);
	assert_memory_equal(m->delta->removals[0]->uid.data, unknown.b, ROS2_UID_LEN);
	m = fake_want(&w.a, MSG(DELTA));
	assert_true(m->delta->initial_done);
	assert_int_equal(m->delta->n_upserts, 0);
	ros2__v1__get_reply__free_unpacked(t, NULL);
	ros2__v1__get_reply__free_unpacked(e, NULL);
	fake_free(&w.a);
}

static void link__refuses_another_epoch_lineage_and_uid(void **state)
{
	struct world w;
	struct ros2_uid unknown = ros2_uid_new();

	world(state, &w, "1h", "10m");
	assert_int_equal(attack_hello_of_epoch(&w.a, false, w.f->ports.epoch + 1),
	                 ROS2_STALE_EPOCH);
	assert_int_equal(attack_hello_of_epoch(&w.a, true, 1), ROS2_WRONG_DOMAIN);
	assert_int_equal(attack_hello_as(&w.a, &unknown), ROS2_DENIED);
	link_up(&w);
	fake_free(&w.a);
}

static unsigned denials(struct sf *f, const char *action)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.action = (char *)action;
	q.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED;
	return sf_audit_count(f, &q);
}

/* Its certificate is good for a day, and says the name of the agent that there is now. */
static void link__of_an_agent_made_again_refuses_the_old_certificate(void **state)
{
	struct sf *f = *state;
	AUTO_FREE char *token = NULL;
	struct fake old, now, same;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &old, "dpu-0");
	token = sf_token(f, "dpu-0", 0);
	assert_int_equal(attack_hello(&old), ROS2_OK);
	sf_make_again(f, KIND(AGENT), "dpu-0", sf_agent0);
	/* Nobody has enrolled as it yet. */
	assert_int_equal(attack_hello(&old), ROS2_DENIED);
	assert_int_equal(attack_renew(f, old.dir), ROS2_DENIED);
	assert_int_equal(attack_enrol(f, old.dir, "dpu-0", token), ROS2_UNAUTHENTICATED);
	assert_int_equal(attack_enrol(f, old.dir, "dpu-0", ""), ROS2_UNAUTHENTICATED);
	fake_enrol_anew(f, &now, "dpu-0");
	fake_link_up(&now);
	assert_int_equal(attack_hello(&old), ROS2_DENIED);
	assert_int_equal(attack_hello_as(&old, &now.uid), ROS2_DENIED);
	assert_int_equal(attack_renew(f, old.dir), ROS2_DENIED);
	assert_int_equal(attack_enrol(f, old.dir, "dpu-0", token), ROS2_UNAUTHENTICATED);
	assert_int_equal(attack_enrol(f, old.dir, "dpu-0", ""), ROS2_UNAUTHENTICATED);
	assert_true(AWAIT(denials(f, "agent.connect") == 3 && denials(f, "agent.renew") == 2 &&
	                  denials(f, "agent.enrol") == 4));
	/* Who holds the name now was left alone. */
	fake_record(&now, NULL, NULL);
	assert_false(fake_closed(&now));
	/* And with the old key, enrolled again: what it was before it is not. */
	fake_enrol(f, &same, "dpu-0");
	assert_int_equal(attack_hello_as(&same, &old.uid), ROS2_DENIED);
	assert_int_equal(attack_hello(&same), ROS2_OK);
	fake_free(&same);
	fake_free(&now);
	fake_free(&old);
}

/* ---- grants ---- */

static void grant__is_given_recorded_and_kept_over_a_restart(void **state)
{
	struct world w;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	struct ros2_uid uid;

	world(state, &w, "1h", "10m");
	link_up(&w);
	uid = get_grant(&w, 7);
	sf_audit_wait(w.f, "grant.issue", 1);
	sf_audit_names(w.f, "agent.connect", OK, "spiffe://" TD "/agent/dpu-0", "agent", "dpu-0");
	sf_audit_names(w.f, "controller.start", OK, "system", "system", TD);
	sf_audit_names(w.f, "grant.issue", OK, "spiffe://" TD "/agent/dpu-0", "agent", TRAINER);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 1);
	fake_disconnect(&w.a);
	sf_stop(w.f);
	sf_start(w.f);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 1);
	/* An agent that lost everything is sent the grant again. */
	fake_connect(&w.a, NULL, 0);
	m = fake_want(&w.a, MSG(DELTA));
	assert_int_equal(m->delta->n_upserts, 3);
	o = fake_open(&w.a, m->delta->upserts[2]);
	assert_int_equal(o->kind, KIND(GRANT));
	assert_memory_equal(o->uid.data, uid.b, ROS2_UID_LEN);
	assert_int_equal(o->grant->mac.len, 32);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	fake_free(&w.a);
}

static void grant__is_refused_to_whom_it_does_not_belong(void **state)
{
	struct world w;
	struct ros2_uid other = ros2_uid_new();
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__GetReply *g;

	world(state, &w, "1h", "10m");
	sf_apply(w.f, sf_tenant("beta", "1h", "10m", "dpu-7"));
	link_up(&w);
	g = sf_get(w.f, KIND(TENANT), "beta");
	assert_int_equal(attack_grant(&w.a, &other, TRAINER), ROS2_DENIED);
	assert_int_equal(attack_grant(&w.a, &w.alpha, "spiffe://" TD "/tenant/beta/trainer"),
	                 ROS2_DENIED);
	assert_int_equal(attack_grant(&w.a, &w.alpha, ""), ROS2_DENIED);
	/* beta is not placed on this agent. */
	memcpy(other.b, g->object->uid.data, ROS2_UID_LEN);
	assert_int_equal(attack_grant(&w.a, &other, "spiffe://" TD "/tenant/beta/trainer"),
	                 ROS2_DENIED);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	/* sessions.max is 2: eight grants, and no ninth. */
	for (uint64_t i = 0; i < 8; i++)
		get_grant(&w, i);
	fake_ask_grant(&w.a, 1, &w.alpha, TRAINER);
	m = fake_want(&w.a, MSG(GRANT_REPLY));
	assert_int_equal(m->grant_reply->status, ROS2_LIMIT);
	assert_null(m->grant_reply->grant);
	assert_string_equal(m->grant_reply->words,
	                    "the tenant has as many grants at this agent as its sessions.max "
	                    "allows: 4 for each session");
	sf_audit_wait(w.f, "grant.deny", 5);
	assert_true(sf_audit_says(w.f, "grant.deny", "dpu-0",
	                          "the tenant has as many grants at this agent as its sessions.max "
	                          "allows"));
	fake_free(&w.a);
}

static void grant__is_renewed_in_use_and_expires_out_of_use(void **state)
{
	struct world w;
	struct ros2_uid used, idle;
	Ros2__V1__ControllerMessage *m = NULL;
	Ros2__V1__AgentObject *o;

	world(state, &w, "2s", "10m");
	link_up(&w);
	used = get_grant(&w, 1);
	idle = get_grant(&w, 2);
	for (int i = 0; i < 30 && !m; i++) {
		fake_beat(&w.a, &used, 1);
		m = fake_next(&w.a, MSG(DELTA), 100);
	}
	assert_non_null(m);
	assert_int_equal(m->delta->n_upserts, 1);
	o = fake_open(&w.a, m->delta->upserts[0]);
	assert_memory_equal(o->uid.data, used.b, ROS2_UID_LEN);
	assert_true(o->grant->lifetime_ms == 2000);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	(void)idle;
	sf_audit_wait(w.f, "grant.expire", 1);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 1);
	sf_audit_wait(w.f, "grant.renew", 1);
	sf_audit_wait(w.f, "grant.expire", 2);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 0);
	fake_free(&w.a);
}

static void grant__ends_when_the_document_no_longer_allows_it(void **state)
{
	struct world w;
	struct ros2_uid uid;
	Ros2__V1__ControllerMessage *m;
	bool found = false;

	world(state, &w, "1h", "10m");
	link_up(&w);
	uid = get_grant(&w, 1);
	sf_apply(w.f, sf_tenant("alpha", "1h", "10m", "dpu-7"));
	for (int i = 0; i < 4 && !found; i++) {
		m = fake_want(&w.a, MSG(DELTA));
		for (size_t k = 0; k < m->delta->n_removals; k++)
			found |= memcmp(m->delta->removals[k]->uid.data, uid.b, 16) == 0;
	}
	assert_true(found);
	sf_audit_wait(w.f, "grant.revoke", 1);
	fake_free(&w.a);
}

/* ---- revocation ---- */

struct background {
	struct sf *f;
	Ros2__V1__ObjectKind kind;
	char name[64];
	uint32_t wait_ms;
	Ros2__V1__RevokeReply *reply;
	struct ros2_err err;
	int rc;
	pthread_t thread;
};

static void *revoke_thread(void *arg)
{
	struct background *b = arg;

	b->rc = sf_revoke(b->f, b->kind, b->name, b->wait_ms, &b->reply, &b->err);
	return NULL;
}

static void revoke_start(struct background *b, struct sf *f, Ros2__V1__ObjectKind kind,
                         const char *name)
{
	memset(b, 0, sizeof(*b));
	b->f = f;
	b->kind = kind;
	b->wait_ms = 5000;
	snprintf(b->name, sizeof(b->name), "%s", name);
	assert_int_equal(pthread_create(&b->thread, NULL, revoke_thread, b), 0);
}

static Ros2__V1__RevokeReply *revoke_wait(struct background *b)
{
	pthread_join(b->thread, NULL);
	if (b->rc)
		fail_msg("%s", b->err.msg);
	return b->reply;
}

static void revoke__tenant_is_answered_with_the_receipt(void **state)
{
	struct world w;
	struct background b;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__RevokeReply *r;
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	Ros2__V1__ReinstateReply *back = NULL;

	world(state, &w, "1h", "10m");
	link_up(&w);
	get_grant(&w, 1);
	revoke_start(&b, w.f, KIND(TENANT), "alpha");
	m = fake_want(&w.a, MSG(REVOKE));
	assert_int_equal(m->revoke->kind, KIND(TENANT));
	assert_memory_equal(m->revoke->uid.data, w.alpha.b, ROS2_UID_LEN);
	fake_receipt(&w.a, &m->revoke->revocation_uid, 3);
	fake_receipt(&w.a, &m->revoke->revocation_uid, 0);
	r = revoke_wait(&b);
	assert_int_equal(r->n_outcomes, 1);
	assert_int_equal(r->outcomes[0]->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED);
	assert_int_equal(r->outcomes[0]->leases, 2);
	assert_true(r->outcomes[0]->controller_to_receipt_ns > 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 0);
	assert_int_equal(attack_grant(&w.a, &w.alpha, TRAINER), ROS2_REVOKED);
	sf_audit_wait(w.f, "revoke.receipt", 2);
	/* Only a reinstatement gives rights again, and it is a higher version. */
	q.tenant = (char *)"alpha";
	q.reason = (char *)"settled";
	assert_int_equal(ros2_v1_admin_reinstate_sync(w.f->admin, &q, 5000, &back, NULL), 0);
	assert_true(back->version > m->revoke->version);
	ros2__v1__reinstate_reply__free_unpacked(back, NULL);
	get_grant(&w, 9);
	fake_free(&w.a);
}

/* An agent that will not be done must not fill the store, whose reserve is what revocations rest
 * on, nor the log. */
static void receipts__that_say_nothing_new_are_not_each_recorded(void **state)
{
	struct world w;
	struct background b;
	Ros2__V1__ControllerMessage *m;

	world(state, &w, "1h", "10m");
	link_up(&w);
	get_grant(&w, 1);
	revoke_start(&b, w.f, KIND(TENANT), "alpha");
	m = fake_want(&w.a, MSG(REVOKE));
	for (uint32_t i = 0; i < 200; i++)
		fake_receipt(&w.a, &m->revoke->revocation_uid, 1 + i % 2);
	fake_receipt(&w.a, &m->revoke->revocation_uid, 0);
	ros2__v1__revoke_reply__free_unpacked(revoke_wait(&b), NULL);
	/* time: long enough for records that must not be made */
	usleep(200 * 1000);
	assert_in_range(sf_audit_count_action(w.f, "revoke.receipt", ""), 2, 10);
	fake_free(&w.a);
}

static void revoke__late_agent_is_told_again_even_after_a_restart(void **state)
{
	struct world w;
	Ros2__V1__RevokeReply *r = NULL;
	Ros2__V1__ControllerMessage *m;
	uint64_t now;

	world(state, &w, "1h", "10m");
	link_up(&w);
	get_grant(&w, 1);
	fake_disconnect(&w.a);
	sf_audit_wait(w.f, "agent.disconnect", 1);
	assert_int_equal(sf_revoke(w.f, KIND(TENANT), "alpha", 200, &r, NULL), 0);
	assert_int_equal(r->outcomes[0]->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED);
	now = clock_unix_ns();
	assert_true(r->outcomes[0]->unconfirmed_until_unix_ns > now + 500 * NS_PER_S);
	assert_true(r->outcomes[0]->unconfirmed_until_unix_ns < now + 610 * NS_PER_S);
	sf_stop(w.f);
	sf_start(w.f);
	fake_connect(&w.a, NULL, 0);
	m = fake_want(&w.a, MSG(REVOKE));
	assert_memory_equal(m->revoke->revocation_uid.data, r->revocation_uid.data, ROS2_UID_LEN);
	fake_receipt(&w.a, &m->revoke->revocation_uid, 0);
	sf_audit_wait(w.f, "revoke.receipt", 1);
	fake_disconnect(&w.a);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	/* With the receipt in, nothing is owed any more. */
	link_up(&w);
	assert_null(fake_next(&w.a, MSG(REVOKE), 200));
	fake_free(&w.a);
}

/* As a store whose queue is full. */
static _Atomic bool store_refuses;
int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	if (!store_refuses)
		return __real_store_submit(s, t, done, arg, err);
	store_txn_free(t);
	return ros2_err_set(err, -EBUSY, "the store is behind");
}

static void revoke__takes_effect_when_the_store_does_not_take_its_record(void **state)
{
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	Ros2__V1__ReinstateReply *back = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__RevokeReply *r;
	struct background b;
	struct world w;

	world(state, &w, "1h", "10m");
	link_up(&w);
	get_grant(&w, 1);
	store_refuses = true;
	revoke_start(&b, w.f, KIND(TENANT), "alpha");
	m = fake_want(&w.a, MSG(REVOKE));
	assert_memory_equal(m->revoke->uid.data, w.alpha.b, ROS2_UID_LEN);
	fake_receipt(&w.a, &m->revoke->revocation_uid, 0);
	r = revoke_wait(&b);
	assert_true(r->record_pending);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	/* What gives the right back waits for the record. */
	q.tenant = (char *)"alpha";
	q.reason = (char *)"again";
	assert_int_not_equal(ros2_v1_admin_reinstate_sync(w.f->admin, &q, 9000, &back, &err), 0);
	assert_int_equal(err.status, ROS2_BUSY);
	store_refuses = false;
	sf_audit_wait(w.f, "tenant.revoke", 1);
	fake_disconnect(&w.a);
	sf_stop(w.f);
	sf_start(w.f);
	link_up(&w);
	assert_int_equal(attack_grant(&w.a, &w.alpha, TRAINER), ROS2_REVOKED);
	fake_free(&w.a);
}

static void revoke__grant_by_uid_leaves_the_others(void **state)
{
	struct world w;
	struct background b;
	struct ros2_uid one;
	char uid[ROS2_UID_STR_LEN];
	Ros2__V1__ControllerMessage *m;
	struct ros2_err err = ROS2_ERR_INIT;

	world(state, &w, "1h", "10m");
	link_up(&w);
	one = get_grant(&w, 1);
	get_grant(&w, 2);
	ros2_uid_to_str(&one, uid);
	revoke_start(&b, w.f, KIND(GRANT), uid);
	m = fake_want(&w.a, MSG(REVOKE));
	assert_memory_equal(m->revoke->uid.data, one.b, ROS2_UID_LEN);
	fake_receipt(&w.a, &m->revoke->revocation_uid, 0);
	ros2__v1__revoke_reply__free_unpacked(revoke_wait(&b), NULL);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 1);
	assert_int_not_equal(sf_revoke(w.f, KIND(GRANT), uid, 100, &b.reply, &err), 0);
	assert_int_equal(err.status, ROS2_NOT_FOUND);
	assert_int_not_equal(sf_revoke(w.f, KIND(GRANT), "zz", 100, &b.reply, &err), 0);
	assert_int_equal(err.status, ROS2_INVALID);
	fake_free(&w.a);
}

static void isolate__ends_the_stream_and_keeps_the_agent_out(void **state)
{
	struct world w;
	Ros2__V1__IsolateAgentRequest q = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	Ros2__V1__IsolateAgentReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	world(state, &w, "1h", "10m");
	link_up(&w);
	get_grant(&w, 1);
	q.agent = (char *)"dpu-0";
	assert_int_not_equal(ros2_v1_admin_isolate_agent_sync(w.f->admin, &q, 9000, &r, &err), 0);
	assert_int_equal(err.status, ROS2_INVALID); /* a reason is required */
	q.reason = (char *)"suspicious";
	/* It does not answer: unconfirmed, and out all the same. */
	assert_int_equal(ros2_v1_admin_isolate_agent_sync(w.f->admin, &q, 9000, &r, &err), 0);
	assert_int_equal(r->outcome->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED);
	ros2__v1__isolate_agent_reply__free_unpacked(r, NULL);
	assert_int_not_equal(fake_wait_closed(&w.a, AWAIT_MS), 0);
	assert_int_equal(w.a.why.status, ROS2_REVOKED);
	assert_int_equal(sf_grants_of(w.f, "alpha"), 0);
	fake_disconnect(&w.a);
	sf_stop(w.f);
	sf_start(w.f);
	assert_int_equal(attack_hello(&w.a), ROS2_REVOKED);
	q.lift = true;
	assert_int_equal(ros2_v1_admin_isolate_agent_sync(w.f->admin, &q, 9000, &r, &err), 0);
	ros2__v1__isolate_agent_reply__free_unpacked(r, NULL);
	link_up(&w);
	fake_free(&w.a);
}

/* ---- forwarded records ---- */

static void forward(struct world *w, uint64_t from, uint64_t to, const char *tenant_uid)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d[32], *ptrs[32];
	Ros2__V1__AuditRecord rec[32];

	for (uint64_t s = from; s <= to; s++) {
		size_t i = s - from;

		ros2__v1__audit_draft__init(&d[i]);
		ros2__v1__audit_record__init(&rec[i]);
		rec[i].action = (char *)"session.open";
		rec[i].actor = (char *)TRAINER;
		rec[i].tenant = (char *)"alpha";
		rec[i].tenant_uid = (char *)tenant_uid;
		rec[i].result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
		d[i].seq = s;
		d[i].record = &rec[i];
		ptrs[i] = &d[i];
	}
	b.incarnation.data = w->a.incarnation.b;
	b.incarnation.len = ROS2_UID_LEN;
	b.drafts = ptrs;
	b.n_drafts = to - from + 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(&w->a, &m);
}

static void audit__forwarded_records_are_taken_once_and_gaps_are_told(void **state)
{
	struct world w;
	char uid[ROS2_UID_STR_LEN];
	Ros2__V1__ControllerMessage *m;

	world(state, &w, "1h", "10m");
	ros2_uid_to_str(&w.alpha, uid);
	link_up(&w);
	forward(&w, 1, 3, uid);
	m = fake_want(&w.a, MSG(AUDIT_ACK));
	assert_int_equal(m->audit_ack->seq, 3);
	forward(&w, 2, 4, uid); /* 2 and 3 again */
	m = fake_want(&w.a, MSG(AUDIT_ACK));
	assert_int_equal(m->audit_ack->seq, 4);
	sf_audit_wait(w.f, "session.open", 4);
	forward(&w, 7, 7, uid); /* 5 and 6 are missing */
	m = fake_want(&w.a, MSG(AUDIT_ACK));
	assert_int_equal(m->audit_ack->seq, 7);
	sf_audit_wait(w.f, "audit.gap", 1);
	/* After a restart the controller still knows how far it is. */
	fake_disconnect(&w.a);
	sf_stop(w.f);
	sf_start(w.f);
	fake_connect(&w.a, NULL, 0);
	m = fake_want(&w.a, MSG(WELCOME));
	assert_int_equal(m->welcome->audit_acked_seq, 7);
	fake_free(&w.a);
}

static void forward_of_others(struct world *w, unsigned n, const char *tenant_uid)
{
	for (unsigned i = 0; i < n; i++) {
		w->a.incarnation = ros2_uid_new();
		forward(w, 1, 1, tenant_uid);
		fake_want(&w->a, MSG(AUDIT_ACK));
	}
}

/* An agent that was started often while the controller was away; of what was acknowledged last it
 * may not have heard. */
static void audit__records_of_many_incarnations_are_taken_once(void **state)
{
	struct world w;
	char uid[ROS2_UID_STR_LEN];
	struct ros2_uid first, second;

	world(state, &w, "1h", "10m");
	ros2_uid_to_str(&w.alpha, uid);
	link_up(&w);
	forward_of_others(&w, 1, uid);
	first = w.a.incarnation;
	forward_of_others(&w, 1, uid);
	second = w.a.incarnation;
	forward_of_others(&w, CTL_ORIGINS_MAX + 9, uid);
	sf_audit_wait(w.f, "session.open", CTL_ORIGINS_MAX + 11);
	fake_disconnect(&w.a);
	fake_connect(&w.a, NULL, 0);
	w.a.incarnation = first;
	forward(&w, 1, 2, uid);
	assert_int_equal(fake_want(&w.a, MSG(AUDIT_ACK))->audit_ack->seq, 2);
	sf_audit_wait(w.f, "session.open", CTL_ORIGINS_MAX + 12);
	/* The oldest comes first: with something new of it the others are not forgotten. */
	w.a.incarnation = second;
	forward(&w, 1, 1, uid);
	assert_int_equal(fake_want(&w.a, MSG(AUDIT_ACK))->audit_ack->seq, 1);
	sf_audit_wait(w.f, "session.open", CTL_ORIGINS_MAX + 12);
	/* But not of any number. */
	forward_of_others(&w, CTL_ORIGINS_SENT + 1, uid);
	w.a.incarnation = first;
	forward(&w, 2, 2, uid);
	fake_want(&w.a, MSG(AUDIT_ACK));
	sf_audit_wait(w.f, "audit.gap", 1);
	fake_free(&w.a);
}

/* ---- one agent, the other's objects ---- */

static void link__of_one_agent_reaches_nothing_of_another(void **state)
{
	struct ros2_uid grant;
	struct two t;

	two_start(state, &t);
	grant = two_grant(&t);
	/* What dpu-1 knows of dpu-0, where alpha is placed, it says as its own. */
	assert_false(attack_release(&t, &grant));
	assert_false(attack_state(&t, "FORGED"));
	assert_false(attack_record_of_tenant(&t));
	/* The control: said by the agent whose they are. */
	fake_record(&t.a, &t.alpha, NULL);
	assert_int_equal(sf_audit_count_action(t.f, "session.open", "alpha"), 1);
	fake_failed(&t.a, &t.alpha, 1, "FORGED");
	assert_true(sf_rollout_says(t.f, "FORGED"));
	fake_release(&t.a, &grant);
	sf_audit_wait(t.f, "grant.release", 1);
	assert_int_equal(sf_grants_of(t.f, "alpha"), 0);
	two_stop(&t);
}

static void receipt__of_an_agent_that_owes_none_confirms_nothing(void **state)
{
	struct two t;

	two_start(state, &t);
	assert_false(attack_receipt(&t));
	two_stop(&t);
}

/* ---- sessions are asked for ---- */

static void list__sessions_names_agents_that_do_not_answer(void **state)
{
	struct world w;
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__ListReply *r = NULL;

	world(state, &w, "1h", "10m");
	link_up(&w);
	q.kind = KIND(SESSION);
	assert_int_equal(ros2_v1_admin_list_sync(w.f->admin, &q, 9000, &r, NULL), 0);
	assert_int_equal(r->n_sessions, 0);
	assert_int_equal(r->n_unreachable_agents, 1);
	assert_string_equal(r->unreachable_agents[0], "dpu-0");
	ros2__v1__list_reply__free_unpacked(r, NULL);
	fake_want(&w.a, MSG(REPORT_REQUEST));
	fake_free(&w.a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(link__sends_what_is_placed_and_shows_how_far_it_came),
		T(link__sends_only_differences_after_a_reconnect),
		T(link__refuses_another_epoch_lineage_and_uid),
		T(link__of_an_agent_made_again_refuses_the_old_certificate),
		T(grant__is_given_recorded_and_kept_over_a_restart),
		T(grant__is_refused_to_whom_it_does_not_belong),
		T(grant__is_renewed_in_use_and_expires_out_of_use),
		T(grant__ends_when_the_document_no_longer_allows_it),
		T(revoke__tenant_is_answered_with_the_receipt),
		T(receipts__that_say_nothing_new_are_not_each_recorded),
		T(revoke__late_agent_is_told_again_even_after_a_restart),
		T(revoke__takes_effect_when_the_store_does_not_take_its_record),
		T(revoke__grant_by_uid_leaves_the_others),
		T(isolate__ends_the_stream_and_keeps_the_agent_out),
		T(audit__forwarded_records_are_taken_once_and_gaps_are_told),
		T(audit__records_of_many_incarnations_are_taken_once),
		T(link__of_one_agent_reaches_nothing_of_another),
		T(receipt__of_an_agent_that_owes_none_confirms_nothing),
		T(list__sessions_names_agents_that_do_not_answer),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

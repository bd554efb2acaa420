/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes go one at a time. What holds for one that waits: its caller may lose role or authority
 * meanwhile, and a delete comes a second time, when the receipts are there.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "controller/ctl.h"
#include "tests/await.h"
#include "tests/controller/held_submit.h"
#include "tests/controller/service_audit.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define ROOT    "spiffe://" TD "/admin/root admin\n"
#define ROOT_OP ROOT "spiffe://" TD "/admin/op operator\n"

/* ---- a gate that has no memory ---- */

static struct ctl *_Atomic the_ctl; /* as it was seen there */
static _Atomic unsigned entered;    /* so many changes have come to the gate */
static _Atomic bool no_memory;      /* for the next that enters it with haste */

int __real_ctl_gate_enter(struct ctl *c, loop_fn fn, void *arg);
int __wrap_ctl_gate_enter(struct ctl *c, loop_fn fn, void *arg);
int __wrap_ctl_gate_enter(struct ctl *c, loop_fn fn, void *arg)
{
	int rc = __real_ctl_gate_enter(c, fn, arg);

	the_ctl = c;
	entered++;
	return rc;
}

int __real_ctl_gate_enter_urgent(struct ctl *c, loop_fn fn, void *arg);
int __wrap_ctl_gate_enter_urgent(struct ctl *c, loop_fn fn, void *arg);
int __wrap_ctl_gate_enter_urgent(struct ctl *c, loop_fn fn, void *arg)
{
	if (no_memory) {
		no_memory = false;
		return -ENOMEM;
	}
	return __real_ctl_gate_enter_urgent(c, fn, arg);
}

/* ---- roles and authorities ---- */

static void put(const char *file, const char *text)
{
	assert_int_equal(
		fsx_write_atomic(sf_path("controller/%s", file), text, strlen(text), 0600, NULL),
		0);
}

/* @second: or NULL. */
static void put_authorities(const char *bundle, const char *first, const char *second)
{
	AUTO_FREE char *a = NULL, *b = NULL, *both = NULL;
	size_t n;

	assert_int_equal(fsx_read_file(sf_path("%s", first), 65536, (void **)&a, &n, NULL), 0);
	if (second)
		assert_int_equal(fsx_read_file(sf_path("%s", second), 65536, (void **)&b, &n, NULL),
		                 0);
	assert_true(asprintf(&both, "%s%s", a, b ? b : "") > 0);
	put(bundle, both);
}

static void make_authority(const char *name)
{
	struct pki_ca_opts o = {.common_name = name, .trust_domain = TD, .lifetime_s = 86400};

	o.key_path = sf_path("%s.key", name);
	o.cert_path = sf_path("%s.crt", name);
	assert_int_equal(pki_key_create(o.key_path, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
}

/* What the controller signs with, and shows, is of the authority that stays. */
static const char *const of_infra[] = {"issuer.crt", "issuer.key", "tls.crt", "tls.key"};
static const char *const of_infra2[] = {"infra2.crt", "infra2.key", "second/tls.crt",
                                        "second/tls.key"};

static void copy(const char *from, const char *to)
{
	AUTO_FREE void *p = NULL;
	size_t n;

	assert_int_equal(fsx_read_file(from, 65536, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(to, p, n, 0600, NULL), 0);
}

static int group_setup(void **state)
{
	if (sf_group_setup(state))
		return -1;
	make_authority("admin2");
	make_authority("infra2");
	sf_cert("admin2", "root2", "admin/root");
	sf_cert("infra2", "second", "controller/main");
	for (size_t i = 0; i < ARRAY_SIZE(of_infra); i++)
		copy(sf_path("controller/%s", of_infra[i]), sf_path("first-%s", of_infra[i]));
	return 0;
}

static int setup(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(of_infra); i++)
		copy(sf_path("first-%s", of_infra[i]), sf_path("controller/%s", of_infra[i]));
	put("roles", ROOT_OP);
	put_authorities("admin-bundle.pem", "admin.crt", "admin2.crt");
	put_authorities("infra-bundle.pem", "infra.crt", "infra2.crt");
	return sf_setup(state);
}

static void reload_now(void *arg)
{
	controller_reload(arg);
}

static void nothing(struct sf *f)
{
	(void)f;
}

static void op_loses_its_role(struct sf *f)
{
	put("roles", ROOT);
	loop_call(f->loop, reload_now, f->c);
}

static void admin2_goes(struct sf *f)
{
	put_authorities("admin-bundle.pem", "admin.crt", NULL);
	loop_call(f->loop, reload_now, f->c);
}

static void infra_goes(struct sf *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(of_infra); i++)
		copy(sf_path("%s", of_infra2[i]), sf_path("controller/%s", of_infra[i]));
	put_authorities("infra-bundle.pem", "infra2.crt", NULL);
	loop_call(f->loop, reload_now, f->c);
}

/* ---- a change that waits for its turn ---- */

struct applying {
	struct rpc_channel *ch;
	const char *yaml;
	struct ros2_err err;
	pthread_t thread;
};

static void *apply_it(void *arg)
{
	struct applying *w = arg;
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *r = NULL;

	file.name = (char *)"x.yaml";
	file.text = (ProtobufCBinaryData){strlen(w->yaml), (uint8_t *)w->yaml};
	q.files = &files;
	q.n_files = 1;
	if (!ros2_v1_admin_apply_sync(w->ch, &q, AWAIT_MS, &r, &w->err))
		ros2__v1__apply_reply__free_unpacked(r, NULL);
	return NULL;
}

/* @cert's apply waits behind another, of which the store says nothing yet. @meanwhile happens. */
static enum ros2_status apply_waits(struct sf *f, const char *cert, void (*meanwhile)(struct sf *))
{
	static struct applying w[2];

	w[0] = (struct applying){.ch = sf_channel(f, "root", f->ports.admin, NULL),
	                         .yaml = sf_agent0};
	w[1] = (struct applying){.ch = sf_channel(f, cert, f->ports.admin, NULL),
	                         .yaml = sf_engine};
	entered = 0;
	hold_next = true;
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&w[i].thread, NULL, apply_it, &w[i]), 0);
		assert_true(AWAIT(entered == i + 1));
	}
	assert_false(hold_next);
	meanwhile(f);
	loop_call(f->loop, held_let_go, NULL);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(w[i].thread, NULL), 0);
		rpc_channel_free(w[i].ch);
	}
	assert_int_equal(w[0].err.status, ROS2_OK);
	return w[1].err.status;
}

static void turn__comes_to_who_may(void **state)
{
	assert_int_equal(apply_waits(*state, "op", nothing), ROS2_OK);
	assert_int_equal(sf_audit_count_action(*state, "engine.apply", NULL), 1);
}

static void turn__of_who_lost_the_role_meanwhile_changes_nothing(void **state)
{
	assert_int_equal(apply_waits(*state, "op", op_loses_its_role), ROS2_DENIED);
	sf_audit_wait(*state, "admin.denied", 1);
	assert_int_equal(sf_audit_count_action(*state, "engine.apply", NULL), 0);
}

static void turn__of_whose_authority_went_meanwhile_changes_nothing(void **state)
{
	assert_int_equal(apply_waits(*state, "root2", admin2_goes), ROS2_UNAUTHENTICATED);
	sf_audit_wait(*state, "admin.denied", 1);
	assert_int_equal(sf_audit_count_action(*state, "engine.apply", NULL), 0);
}

/* ---- a grant whose asker is gone ---- */

static void link_up(struct fake *a)
{
	fake_connect(a, NULL, 0);
	if (!fake_next(a, MSG(WELCOME), AWAIT_MS))
		fail_msg("no Welcome: %s", a->why.msg);
	fake_wait_synced(a);
}

/* Its record is at the store when another stream of the agent comes. */
static void ask_and_come_back(struct sf *f, struct fake *a)
{
	Ros2__V1__GetReply *g;
	struct ros2_uid alpha;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(f, KIND(TENANT), "alpha");
	memcpy(alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(f, a, "dpu-0");
	link_up(a);
	hold_next = true;
	fake_ask_grant(a, 1, &alpha, "spiffe://" TD "/tenant/alpha/trainer");
	assert_true(AWAIT(!hold_next));
	fake_disconnect(a);
	link_up(a);
}

/* The stream is in order: what was answered before a beat is here. */
static void assert_not_answered(struct fake *a)
{
	fake_beat(a, NULL, 0);
	assert_non_null(fake_next(a, MSG(CONTACT), AWAIT_MS));
	assert_null(fake_next(a, MSG(GRANT_REPLY), 0));
}

/* A process that began anew counts its requests from 1. */
static void grant__is_no_answer_on_a_stream_that_did_not_ask(void **state)
{
	Ros2__V1__ControllerMessage *m;
	struct sf *f = *state;
	static struct fake a;

	ask_and_come_back(f, &a);
	loop_call(f->loop, held_let_go, NULL);
	m = fake_next(&a, MSG(DELTA), AWAIT_MS);
	assert_non_null(m);
	assert_int_equal(m->delta->n_upserts, 1);
	assert_not_answered(&a);
	fake_free(&a);
}

static void grant__that_is_withdrawn_is_no_answer_on_a_stream_that_did_not_ask(void **state)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct sf *f = *state;
	static struct fake a;

	ask_and_come_back(f, &a);
	assert_int_equal(sf_revoke(f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	assert_not_answered(&a);
	loop_call(f->loop, held_let_go, NULL);
	fake_free(&a);
}

/* ---- a delete that cannot go on ---- */

struct deleting {
	struct sf *f;
	int rc;
	struct ros2_err err;
	pthread_t thread;
};

static void *delete_it(void *arg)
{
	struct deleting *d = arg;
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;

	ref.kind = KIND(AGENT);
	ref.name = (char *)"dpu-0";
	q.ref = &ref;
	d->rc = ros2_v1_admin_delete_sync(d->f->admin, &q, AWAIT_MS, &r, &d->err);
	if (r)
		ros2__v1__delete_reply__free_unpacked(r, NULL);
	return NULL;
}

/* Until the agent has said that it has nothing any more. */
static enum ros2_status delete_agent(struct sf *f, struct fake *a, bool without_memory)
{
	static struct deleting d;
	Ros2__V1__ControllerMessage *m;

	d = (struct deleting){.f = f};
	assert_int_equal(pthread_create(&d.thread, NULL, delete_it, &d), 0);
	m = fake_next(a, MSG(REVOKE), AWAIT_MS);
	assert_non_null(m);
	no_memory = without_memory;
	fake_receipt(a, &m->revoke->revocation_uid, 0);
	assert_int_equal(pthread_join(d.thread, NULL), 0);
	assert_false(no_memory);
	return d.rc ? d.err.status : ROS2_OK;
}

static void delete__that_cannot_go_on_leaves_an_agent_that_can(void **state)
{
	static struct fake a; /* its stream outlives a test that fails */
	struct sf *f = *state;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &a, "dpu-0");
	link_up(&a);
	assert_int_equal(delete_agent(f, &a, true), ROS2_BUSY);
	fake_disconnect(&a);
	link_up(&a);
	assert_int_equal(delete_agent(f, &a, false), ROS2_OK);
	assert_int_equal(sf_audit_count_action(f, "agent.delete", NULL), 1);
	fake_free(&a);
}

/* ---- identities of agents ---- */

struct renewing {
	struct fake *a;
	struct ros2_err err;
	pthread_t thread;
};

static enum ros2_status renew_on(struct rpc_channel *ch, char *csr, struct ros2_err *err)
{
	Ros2__V1__RenewRequest q = ROS2__V1__RENEW_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;

	*err = (struct ros2_err)ROS2_ERR_INIT;
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	if (!ros2_v1_agent_link_renew_sync(ch, &q, 5000, &r, err))
		ros2__v1__enrol_reply__free_unpacked(r, NULL);
	return err->status;
}

static enum ros2_status renew(struct fake *a, struct ros2_err *err)
{
	struct rpc_channel *ch = sf_channel(a->f, a->dir, a->f->ports.agent, NULL);
	AUTO_FREE char *csr = NULL;

	assert_int_equal(pki_csr_create(sf_path("%s/tls.key", a->dir), NULL, &csr, NULL), 0);
	(void)renew_on(ch, csr, err);
	rpc_channel_free(ch);
	return err->status;
}

static void *renew_it(void *arg)
{
	struct renewing *r = arg;

	(void)renew(r->a, &r->err);
	return NULL;
}

static enum ros2_status enrol(struct fake *a, const char *name, const char *secret)
{
	struct ros2_err err = ROS2_ERR_INIT;

	(void)fake_enrol_with(a->f, a, name, secret, &err);
	return err.status;
}

/* The places are everybody's: an agent has one of them, and a stranger none. */
static void turn__is_waited_for_by_one_change_of_an_agents_identity(void **state)
{
	static struct applying w;
	static struct renewing r;
	static struct fake a;
	struct sf *f = *state;
	struct ros2_err err;
	char other[65];

	sf_apply(f, sf_agent0);
	fake_enrol(f, &a, "dpu-0");
	w = (struct applying){.ch = sf_channel(f, "root", f->ports.admin, NULL), .yaml = sf_engine};
	r.a = &a;
	entered = 0;
	hold_next = true;
	assert_int_equal(pthread_create(&w.thread, NULL, apply_it, &w), 0);
	assert_true(AWAIT(!hold_next));
	assert_int_equal(pthread_create(&r.thread, NULL, renew_it, &r), 0);
	assert_true(AWAIT(entered == 2));
	assert_int_equal(renew(&a, &err), ROS2_BUSY);
	assert_int_equal(enrol(&a, "dpu-0", ""), ROS2_BUSY); /* with its key */
	memset(other, 'a', 64);
	other[64] = '\0';
	assert_int_equal(enrol(&a, "dpu-0", other), ROS2_UNAUTHENTICATED);
	assert_int_equal(enrol(&a, "nobody", ""), ROS2_UNAUTHENTICATED);
	assert_int_equal(entered, 2);
	loop_call(f->loop, held_let_go, NULL);
	assert_int_equal(pthread_join(w.thread, NULL), 0);
	assert_int_equal(pthread_join(r.thread, NULL), 0);
	assert_int_equal(w.err.status, ROS2_OK);
	assert_int_equal(r.err.status, ROS2_OK);
	assert_int_equal(renew(&a, &err), ROS2_OK);
	assert_int_equal(enrol(&a, "dpu-0", ""), ROS2_OK);
	sf_audit_wait(f, "agent.renew", 2);
	rpc_channel_free(w.ch);
	fake_free(&a);
}

/* An agent's renewal waits behind an apply, of which the store says nothing yet. */
static enum ros2_status renewal_waits(struct sf *f, void (*meanwhile)(struct sf *))
{
	static struct applying w;
	static struct renewing r;
	static struct fake a;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &a, "dpu-0");
	w = (struct applying){.ch = sf_channel(f, "root", f->ports.admin, NULL), .yaml = sf_engine};
	r = (struct renewing){.a = &a};
	entered = 0;
	hold_next = true;
	assert_int_equal(pthread_create(&w.thread, NULL, apply_it, &w), 0);
	assert_true(AWAIT(!hold_next));
	assert_int_equal(pthread_create(&r.thread, NULL, renew_it, &r), 0);
	assert_true(AWAIT(entered == 2));
	meanwhile(f);
	loop_call(f->loop, held_let_go, NULL);
	assert_int_equal(pthread_join(w.thread, NULL), 0);
	assert_int_equal(pthread_join(r.thread, NULL), 0);
	assert_int_equal(w.err.status, ROS2_OK);
	rpc_channel_free(w.ch);
	fake_free(&a);
	return r.err.status;
}

static void renewal__that_waits_comes_to_whose_authority_is_believed(void **state)
{
	assert_int_equal(renewal_waits(*state, nothing), ROS2_OK);
	sf_audit_wait(*state, "agent.renew", 1);
}

static void renewal__of_whose_authority_went_meanwhile_gives_nothing(void **state)
{
	assert_int_equal(renewal_waits(*state, infra_goes), ROS2_UNAUTHENTICATED);
	sf_audit_wait(*state, "agent.renew", 1); /* and it is denied */
	sf_audit_names(*state, "agent.renew", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED,
	               "spiffe://" TD "/agent/dpu-0", "agent", "agents");
}

static void renewal__of_an_agent_that_does_nothing_else_is_told_to_wait(void **state)
{
	static struct fake a;
	struct sf *f = *state;
	struct rpc_channel *ch;
	struct ros2_err err;
	char none[] = "";
	unsigned n = 0;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &a, "dpu-0");
	ch = sf_channel(f, a.dir, f->ports.agent, NULL);
	while (n < 2000 && renew_on(ch, none, &err) == ROS2_INVALID)
		n++;
	assert_int_equal(err.status, ROS2_BUSY);
	rpc_channel_free(ch);
	fake_free(&a);
}

static enum ros2_status enrol_on(struct rpc_channel *ch, char *csr, struct ros2_err *err)
{
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;

	*err = (struct ros2_err)ROS2_ERR_INIT;
	q.agent = (char *)"dpu-0";
	q.secret = (char *)"";
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	q.protocol = RPC_PROTOCOL_VERSION;
	if (!ros2_v1_enrol_enrol_sync(ch, &q, AWAIT_MS, &r, err))
		ros2__v1__enrol_reply__free_unpacked(r, NULL);
	return err->status;
}

/* With the key that it has, so that no secret is used up. */
static void enrolment__of_an_agent_that_does_nothing_else_is_told_to_wait(void **state)
{
	static struct fake a;
	struct sf *f = *state;
	struct rpc_channel *ch;
	struct ros2_err err;
	AUTO_FREE char *csr = NULL;
	unsigned n = 0;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &a, "dpu-0");
	assert_int_equal(pki_csr_create(sf_path("%s/tls.key", a.dir), NULL, &csr, NULL), 0);
	ch = sf_channel(f, NULL, f->ports.enrol, NULL);
	while (n < 2000 && enrol_on(ch, csr, &err) == ROS2_OK)
		n++;
	assert_int_equal(err.status, ROS2_BUSY);
	assert_non_null(strstr(err.msg, "an enrolment"));
	assert_true(n >= 100);
	rpc_channel_free(ch);
	fake_free(&a);
}

/* On the controller's loop: nothing is left of its rate for a minute, or all of it. */
static void use_up(void *arg)
{
	ctl_agent(the_ctl, "dpu-0")->busy_ns = clock_boottime_ns() + 60 * NS_PER_S;
}

static void fill_up(void *arg)
{
	ctl_agent(the_ctl, "dpu-0")->busy_ns = 0;
}

/* Whoever loops with a stolen key does not keep out whom an administrator gave a token; nor is one
 * who comes once, after an outage, told to wait. */
static void enrolment__by_a_new_token_and_after_an_outage_waits_for_nobody(void **state)
{
	static struct fake a, b;
	struct sf *f = *state;
	AUTO_FREE char *secret = NULL;
	struct ros2_err err;

	sf_apply(f, sf_agent0);
	fake_enrol(f, &a, "dpu-0");
	assert_int_equal(enrol(&a, "dpu-0", ""), ROS2_OK);
	loop_call(f->loop, use_up, NULL);
	assert_int_equal(enrol(&a, "dpu-0", ""), ROS2_BUSY);
	assert_int_equal(renew(&a, &err), ROS2_BUSY);
	secret = sf_token(f, "dpu-0", 0);
	b = (struct fake){.f = f, .dir = "dpu-0-with-a-new-key"};
	assert_int_equal(enrol(&b, "dpu-0", secret), ROS2_OK);
	/* Once: the same again is one of many. */
	assert_int_equal(enrol(&b, "dpu-0", secret), ROS2_BUSY);
	assert_int_equal(enrol(&b, "dpu-0", ""), ROS2_BUSY);
	loop_call(f->loop, fill_up, NULL);
	assert_int_equal(enrol(&b, "dpu-0", ""), ROS2_OK);
	assert_int_equal(enrol(&b, "dpu-0", secret), ROS2_OK);
	fake_free(&a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(turn__comes_to_who_may),
		T(turn__of_who_lost_the_role_meanwhile_changes_nothing),
		T(turn__of_whose_authority_went_meanwhile_changes_nothing),
		T(turn__is_waited_for_by_one_change_of_an_agents_identity),
		T(renewal__that_waits_comes_to_whose_authority_is_believed),
		T(renewal__of_whose_authority_went_meanwhile_gives_nothing),
		T(renewal__of_an_agent_that_does_nothing_else_is_told_to_wait),
		T(enrolment__of_an_agent_that_does_nothing_else_is_told_to_wait),
		T(enrolment__by_a_new_token_and_after_an_outage_waits_for_nobody),
		T(grant__is_no_answer_on_a_stream_that_did_not_ask),
		T(grant__that_is_withdrawn_is_no_answer_on_a_stream_that_did_not_ask),
		T(delete__that_cannot_go_on_leaves_an_agent_that_can),
	};

	return cmocka_run_group_tests(tests, group_setup, sf_group_teardown);
}

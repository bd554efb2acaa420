/* SPDX-License-Identifier: Apache-2.0 */
/* The Admin, Enrol and Audit services over real mTLS: apply, roles, tokens, listeners, the log. */
#include "proto/audit/audit.h"
#include "tests/controller/service_attacks.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/await.h"
#include <ctype.h>
#include <sqlite3.h>

static void apply__reports_every_fault_and_changes_nothing(void **state)
{
	struct sf *f = *state;
	char text[4096];
	Ros2__V1__ApplyReply *r;

	snprintf(text, sizeof(text), "%s---\n%s", sf_engine,
	         "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: alpha}\n"
	         "spec:\n  principls: []\n  namespaces:\n    - {name: d, engine: nope, path: x, "
	         "access: q}\n");
	r = sf_apply_text(f, text, false);
	assert_false(r->applied);
	assert_true(r->n_diagnostics >= 2);
	assert_true(r->diagnostics[0]->line > 0 && r->diagnostics[0]->error);
	assert_string_equal(r->diagnostics[0]->file, "test.yaml");
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	sf_apply(f, sf_engine); /* still free: version 1 of this object */
}

static void apply__dry_run_plans_and_a_second_apply_is_unchanged(void **state)
{
	struct sf *f = *state;
	Ros2__V1__ApplyReply *r = sf_apply_text(f, sf_engine, true);
	uint64_t version;

	assert_false(r->applied);
	assert_int_equal(r->n_results, 1);
	assert_int_equal(r->results[0]->action, ROS2__V1__APPLY_ACTION__APPLY_ACTION_CREATED);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	r = sf_apply_text(f, sf_engine, false);
	assert_true(r->applied);
	assert_int_equal(r->results[0]->uid.len, ROS2_UID_LEN);
	version = r->results[0]->version;
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	r = sf_apply_text(f, sf_engine, false);
	assert_int_equal(r->results[0]->action, ROS2__V1__APPLY_ACTION__APPLY_ACTION_UNCHANGED);
	assert_int_equal(r->results[0]->version, version);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
}

static void apply__compares_and_swaps(void **state)
{
	struct sf *f = *state;
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ExpectedVersion e = ROS2__V1__EXPECTED_VERSION__INIT, *expect = &e;
	Ros2__V1__ApplyReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	file.name = (char *)"x.yaml";
	file.text.data = (uint8_t *)sf_engine;
	file.text.len = strlen(sf_engine);
	e.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE;
	e.name = (char *)"ram";
	q.files = &files;
	q.n_files = 1;
	q.expect = &expect;
	q.n_expect = 1;
	assert_int_equal(ros2_v1_admin_apply_sync(f->admin, &q, 5000, &r, &err), 0);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	assert_int_not_equal(ros2_v1_admin_apply_sync(f->admin, &q, 5000, &r, &err), 0);
	assert_int_equal(err.status, ROS2_CONFLICT);
}

static uint64_t version_of(struct sf *f, const char *tenant)
{
	Ros2__V1__GetReply *g = sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, tenant);
	uint64_t v = g->object->version;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return v;
}

/* Another object of the name has another version, also when the controller was started in between:
 * what was read of the one changes nothing of the other. */
static void apply__that_expects_what_had_the_name_before_is_refused(void **state)
{
	struct sf *f = *state;
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ExpectedVersion e = ROS2__V1__EXPECTED_VERSION__INIT, *expect = &e;
	Ros2__V1__ApplyReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t first;

	sf_apply(f, sf_agent0);
	sf_apply(f, sf_engine);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	first = version_of(f, "alpha");
	assert_int_equal(attack_delete(f, "alpha", NULL), ROS2_OK);
	sf_stop(f);
	sf_start(f);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	file.name = (char *)"alpha.yaml";
	file.text.data = (uint8_t *)sf_tenant("alpha", "2h", "10m", "dpu-0");
	file.text.len = strlen((char *)file.text.data);
	e.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	e.name = (char *)"alpha";
	e.version = first;
	q.files = &files;
	q.n_files = 1;
	q.expect = &expect;
	q.n_expect = 1;
	assert_int_not_equal(ros2_v1_admin_apply_sync(f->admin, &q, 5000, &r, &err), 0);
	assert_int_equal(err.status, ROS2_CONFLICT);
	/* The control: its own is taken. */
	e.version = version_of(f, "alpha");
	assert_true(e.version > first);
	assert_int_equal(ros2_v1_admin_apply_sync(f->admin, &q, 5000, &r, &err), 0);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	assert_true(version_of(f, "alpha") > e.version);
}

static void apply__survives_a_restart(void **state)
{
	struct sf *f = *state;
	Ros2__V1__GetReply *g;
	uint64_t epoch = f->ports.epoch, version;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha");
	version = g->object->version;
	ros2__v1__get_reply__free_unpacked(g, NULL);
	sf_stop(f);
	sf_start(f);
	assert_int_equal(f->ports.epoch, epoch + 1);
	g = sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha");
	assert_int_equal(g->object->version, version);
	assert_non_null(strstr((char *)g->object->yaml.data, "trainer"));
	assert_int_equal(g->object->tenant->contact_limit_ms, 600000);
	ros2__v1__get_reply__free_unpacked(g, NULL);
}

/* What libyaml takes behind '---' it does not take at the begin of a text, and that is where the
 * next start finds it. */
static void apply__with_a_tab_behind_the_marker_survives_a_restart(void **state)
{
	struct sf *f = *state;

	sf_apply(f, "---\t# of rack 7\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: dpu-9}\n"
	            "---\t{apiVersion: ros2/v1, kind: Agent, metadata: {name: dpu-8}}\n");
	sf_stop(f);
	sf_start(f);
	ros2__v1__get_reply__free_unpacked(
		sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-9"), NULL);
	ros2__v1__get_reply__free_unpacked(
		sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-8"), NULL);
}

#define NVMF_DOC(name, address, volumes)                                                           \
	"apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: " name "}\nspec:\n"                   \
	"  type: nvmf # kept as written\n  transport: tcp\n  address: " address "\n"               \
	"  subsystem: nqn.2014-08.org.example:storage:1\n"                                         \
	"  hostNqn: nqn.2014-08.org.example:{tenant}\n  secretRef: nvme-{tenant}\n"                \
	"  volumes: [" volumes "]\n"

static void expect_refused(struct sf *f, const char *yaml, const char *words)
{
	Ros2__V1__ApplyReply *r = sf_apply_text(f, yaml, false);

	assert_false(r->applied);
	assert_true(r->n_diagnostics > 0);
	if (!strstr(r->diagnostics[0]->message, words))
		fail_msg("expected `%s`, found `%s`", words, r->diagnostics[0]->message);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
}

/* What is stored counts: a volume of yesterday's engine is not given away by today's. */
static void apply__gives_no_volume_of_a_stored_nvmf_engine_away(void **state)
{
	static const char flash[] = NVMF_DOC("flash", "192.0.2.10", "{name: alpha/vol0, nsid: 1}");
	struct sf *f = *state;
	Ros2__V1__ApplyReply *r = sf_apply_text(f, flash, true);
	Ros2__V1__GetReply *g;

	assert_int_equal(r->results[0]->action, ROS2__V1__APPLY_ACTION__APPLY_ACTION_CREATED);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	sf_apply(f, flash);
	g = sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE, "flash");
	assert_int_equal(g->object->yaml.len, strlen(flash));
	assert_memory_equal(g->object->yaml.data, flash, strlen(flash));
	ros2__v1__get_reply__free_unpacked(g, NULL);
	sf_stop(f);
	sf_start(f);
	/* the same policy in other words */
	r = sf_apply_text(
		f,
		NVMF_DOC("flash", "'192.0.2.10'",
	                 "{nsid: 1, name: 'alpha/vol0'}") "  port: 4420\n  keepAlive: 5000ms\n",
		false);
	assert_int_equal(r->results[0]->action, ROS2__V1__APPLY_ACTION__APPLY_ACTION_UNCHANGED);
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	expect_refused(
		f,
		NVMF_DOC("other", "192.0.2.11",
	                 "{name: beta/vol0, nsid: 1, offset: 1GiB, size: 1GiB}"),
		"volume `beta/vol0` of engine `other` overlaps volume `alpha/vol0` of engine "
		"`flash`");
	expect_refused(f, NVMF_DOC("flash", "192.0.2.10", "{name: a, nsid: 1}, {name: a, nsid: 2}"),
	               "spec.volumes[1]: volume `a` is already defined");
	sf_apply(f, NVMF_DOC("other", "192.0.2.11", "{name: beta/vol0, nsid: 2}"));
}

static void delete__refuses_what_is_needed_and_forgets_names(void **state)
{
	struct sf *f = *state;
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid first;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	ref.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE;
	ref.name = (char *)"ram";
	q.ref = &ref;
	assert_int_not_equal(ros2_v1_admin_delete_sync(f->admin, &q, 9000, &r, &err), 0);
	assert_int_equal(err.status, ROS2_CONFLICT);
	ref.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	ref.name = (char *)"alpha";
	assert_int_equal(ros2_v1_admin_delete_sync(f->admin, &q, 9000, &r, &err), 0);
	memcpy(first.b, r->uid.data, ROS2_UID_LEN);
	ros2__v1__delete_reply__free_unpacked(r, NULL);
	assert_int_not_equal(ros2_v1_admin_delete_sync(f->admin, &q, 9000, &r, &err), 0);
	assert_int_equal(err.status, ROS2_NOT_FOUND);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	assert_int_equal(attack_delete(f, "alpha", &first), ROS2_CONFLICT);
	first = sf_uid_of(f, "alpha");
	assert_int_equal(attack_delete(f, "alpha", &first), ROS2_OK);
}

/* ---- roles ---- */

static void roles__are_kept_and_refusals_recorded(void **state)
{
	struct sf *f = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(attack_apply(f, "op", sf_engine, &err), ROS2_OK);
	assert_int_equal(attack_apply(f, "op", sf_agent0, &err), ROS2_DENIED);
	assert_int_equal(attack_apply(f, "eye", sf_engine, &err), ROS2_DENIED);
	assert_int_equal(attack_apply(f, "nobody", sf_engine, &err), ROS2_DENIED);
	assert_non_null(strstr(err.msg, "roles file"));
	sf_audit_wait(f, "admin.denied", 3);
	/* Also that of a document among those that the role may apply. */
	sf_audit_names(f, "admin.denied", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED,
	               "spiffe://" TD "/admin/op", "operator", "Admin.Apply");
}

/* The first 100, then 10 in each second and their counts. */
static unsigned most_records(uint64_t began_ns)
{
	return 101 + 11 * (unsigned)((clock_monotonic_ns() - began_ns) / NS_PER_S + 3);
}

static void roles__refusals_are_recorded_within_bounds(void **state)
{
	struct sf *f = *state;
	struct rpc_channel *c = sf_channel(f, "nobody", f->ports.admin, NULL);
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	uint64_t began_ns = clock_monotonic_ns();

	/* However long that takes: twice as many as may be recorded. */
	for (unsigned i = 0; i < 400 || i < 2 * most_records(began_ns); i++)
		assert_int_not_equal(ros2_v1_admin_status_sync(c, &q, 5000, &r, NULL), 0);
	rpc_channel_free(c);
	/* time: the counts are recorded once a second */
	usleep(1500000);
	assert_in_range(sf_audit_count_action(f, "admin.denied", ""), 101, most_records(began_ns));
}

/* ---- listeners ---- */

static void listeners__refuse_certificates_of_other_bundles(void **state)
{
	struct sf *f = *state;
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__RenewRequest renew = ROS2__V1__RENEW_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	Ros2__V1__EnrolReply *e = NULL;
	struct rpc_channel *c;
	struct ros2_err err = ROS2_ERR_INIT;

	sf_cert("tenant", "tenant-a", "tenant/alpha/trainer");
	sf_cert("infra", "agent-x", "agent/dpu-0");
	/* An agent's and a tenant's certificate on the admin listener, and none at all. */
	for (int i = 0; i < 3; i++) {
		static const char *const certs[] = {"agent-x", "tenant-a", NULL};

		c = sf_channel(f, certs[i], f->ports.admin, NULL);
		assert_int_not_equal(ros2_v1_admin_status_sync(c, &q, 3000, &r, &err), 0);
		rpc_channel_free(c);
	}
	/* An admin's, a tenant's, and one of the right bundle that never enrolled, on the agents'.
	 */
	for (int i = 0; i < 3; i++) {
		static const char *const certs[] = {"root", "tenant-a", "agent-x"};

		c = sf_channel(f, certs[i], f->ports.agent, NULL);
		assert_int_not_equal(ros2_v1_agent_link_renew_sync(c, &renew, 3000, &e, &err), 0);
		rpc_channel_free(c);
	}
	assert_int_equal(err.status, ROS2_DENIED);
	/* The controller's own certificate is no agent's. */
	c = sf_channel(f, "controller", f->ports.agent, NULL);
	assert_int_not_equal(ros2_v1_agent_link_renew_sync(c, &renew, 3000, &e, &err), 0);
	assert_int_equal(err.status, ROS2_DENIED);
	rpc_channel_free(c);
}

/* A tenant's and an administrator's certificate, and the same identities out of the agents' bundle:
 * where a site signs all of them with one authority. */
static const char *const no_agents[] = {"tenant-a", "root", "tenant-x", "root-x"};

static void make_no_agents(void)
{
	sf_cert("tenant", "tenant-a", "tenant/alpha/trainer");
	sf_cert("infra", "tenant-x", "tenant/alpha/trainer");
	sf_cert("infra", "root-x", "admin/root");
}

static unsigned denials(struct sf *f, const char *action, const char *object)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.action = (char *)action;
	q.object = (char *)object;
	q.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED;
	return sf_audit_count(f, &q);
}

static void listeners__of_agents_are_closed_to_tenants_and_administrators(void **state)
{
	struct two t;

	two_start(state, &t);
	make_no_agents();
	for (size_t i = 0; i < 2; i++) {
		assert_int_not_equal(attack_link(t.f, no_agents[i]), ROS2_OK);
		assert_int_not_equal(attack_renew(t.f, no_agents[i]), ROS2_OK);
		assert_int_equal(attack_link(t.f, no_agents[2 + i]), ROS2_DENIED);
		assert_int_equal(attack_renew(t.f, no_agents[2 + i]), ROS2_DENIED);
	}
	assert_true(AWAIT(denials(t.f, "connection.refused", "agents") >= 4));
	assert_true(AWAIT(denials(t.f, "agent.connect", "spiffe://" TD "/admin/root") == 1));
	assert_true(AWAIT(denials(t.f, "agent.renew", "spiffe://" TD "/admin/root") == 1));
	assert_true(AWAIT(denials(t.f, "agent.connect", TRAINER) == 1));
	assert_true(AWAIT(denials(t.f, "agent.renew", TRAINER) == 1));
	/* Nothing came of it: the agents are linked as before, and nobody has a certificate more.
	 */
	assert_int_equal(sf_audit_count_action(t.f, "agent.connect", ""), 4);
	assert_int_equal(sf_audit_count_action(t.f, "agent.renew", ""), 2);
	assert_int_equal(sf_audit_count_action(t.f, "agent.disconnect", ""), 0);
	fake_record(&t.a, NULL, NULL);
	fake_record(&t.b, NULL, NULL);
	two_stop(&t);
}

/* The listener for those who have no certificate yet asks for none, and looks at none. */
static void listeners__of_enrolment_take_no_certificate_for_a_token(void **state)
{
	struct two t;

	two_start(state, &t);
	make_no_agents();
	for (size_t i = 0; i < ARRAY_SIZE(no_agents); i++) {
		assert_int_equal(attack_enrol(t.f, no_agents[i], "dpu-0", ""),
		                 ROS2_UNAUTHENTICATED);
		assert_int_equal(attack_enrol(t.f, no_agents[i], "nobody", ""),
		                 ROS2_UNAUTHENTICATED);
	}
	/* Nor an agent's, for a name that is not its own. */
	assert_int_equal(attack_enrol(t.f, t.b.dir, "dpu-0", ""), ROS2_UNAUTHENTICATED);
	assert_true(AWAIT(denials(t.f, "agent.enrol", "dpu-0") == 5));
	assert_true(AWAIT(denials(t.f, "agent.enrol", "nobody") == 4));
	sf_audit_names(t.f, "agent.enrol", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED, "anonymous",
	               "agent", "dpu-0");
	/* The two that there are have enrolled once, and are linked. */
	sf_audit_wait(t.f, "agent.enrol", 2 + 9);
	fake_record(&t.a, NULL, NULL);
	assert_int_equal(attack_renew(t.f, t.a.dir), ROS2_OK);
	two_stop(&t);
}

/* A request of @a's own key that says @uri of itself (NULL: nothing). */
static char *request_saying(const struct fake *a, const char *uri)
{
	char *csr = NULL;

	assert_int_equal(pki_csr_create(sf_path("%s/tls.key", a->dir), uri, &csr, NULL), 0);
	return csr;
}

static void is_of_dpu_0(const Ros2__V1__EnrolReply *r, const struct two *t)
{
	struct pki_cert_info info;

	assert_int_equal(pki_cert_info((char *)r->cert_pem.data, r->cert_pem.len, &info, NULL), 0);
	assert_string_equal(info.uri, "spiffe://" TD "/agent/dpu-0");
	assert_memory_equal(r->agent_uid.data, t->a.uid.b, 16);
}

static void renewed_saying(struct two *t, const char *uri)
{
	struct rpc_channel *c = sf_channel(t->f, t->a.dir, t->f->ports.agent, NULL);
	AUTO_FREE char *csr = request_saying(&t->a, uri);
	Ros2__V1__RenewRequest q = ROS2__V1__RENEW_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;

	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	assert_int_equal(ros2_v1_agent_link_renew_sync(c, &q, 5000, &r, NULL), 0);
	is_of_dpu_0(r, t);
	ros2__v1__enrol_reply__free_unpacked(r, NULL);
	rpc_channel_free(c);
}

static void enrolled_saying(struct two *t, const char *uri)
{
	struct rpc_channel *c = sf_channel(t->f, NULL, t->f->ports.enrol, NULL);
	AUTO_FREE char *csr = request_saying(&t->a, uri), *secret = sf_token(t->f, "dpu-0", 0);
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;

	q.agent = (char *)"dpu-0";
	q.secret = secret;
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	q.protocol = RPC_PROTOCOL_VERSION;
	assert_int_equal(ros2_v1_enrol_enrol_sync(c, &q, 10000, &r, NULL), 0);
	is_of_dpu_0(r, t);
	ros2__v1__enrol_reply__free_unpacked(r, NULL);
	rpc_channel_free(c);
}

/* What a request says of a name is nothing; who asks, or whose token it is, is all. */
static void certificate__of_a_request_in_anothers_name_is_the_callers(void **state)
{
	static const char *const names[] = {"spiffe://" TD "/agent/dpu-1",
	                                    "spiffe://" TD "/admin/root", TRAINER};
	struct two t;

	two_start(state, &t);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		AUTO_FREE char *says = request_saying(&t.a, names[i]);
		AUTO_FREE char *nothing = request_saying(&t.a, NULL);

		assert_true(strlen(says) > strlen(nothing)); /* the control: it is in there */
		renewed_saying(&t, names[i]);
		enrolled_saying(&t, names[i]);
	}
	sf_audit_wait(t.f, "agent.renew", 3);
	sf_audit_names(t.f, "agent.renew", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK,
	               "spiffe://" TD "/agent/dpu-0", "agent", "dpu-0");
	sf_audit_wait(t.f, "agent.enrol", 2 + 3);
	/* The other agent is linked as before, and by its own key. */
	fake_record(&t.b, NULL, NULL);
	assert_int_equal(attack_renew(t.f, t.b.dir), ROS2_OK);
	two_stop(&t);
}

static void listeners__serve_only_their_own_services(void **state)
{
	struct sf *f = *state;
	struct rpc_channel *c = sf_channel(f, NULL, f->ports.enrol, NULL);
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_not_equal(ros2_v1_admin_status_sync(c, &q, 3000, &r, &err), 0);
	assert_int_equal(err.status, ROS2_UNSUPPORTED);
	rpc_channel_free(c);
}

/* ---- tokens ---- */

static void token__is_used_once_but_answers_the_same_key_again(void **state)
{
	struct sf *f = *state;
	struct fake a = {0}, thief = {.dir = "thief"};
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *secret = NULL;

	sf_apply(f, sf_agent0);
	secret = sf_token(f, "dpu-0", 0);
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", secret, &err), 0);
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", secret, &err), 0);
	assert_int_not_equal(fake_enrol_with(f, &thief, "dpu-0", secret, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "another key"));
	sf_audit_wait(f, "agent.enrol", 3);
	sf_audit_names(f, "agent.enrol", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK,
	               "spiffe://" TD "/agent/dpu-0", "agent", "dpu-0");
	sf_audit_names(f, "agent.enrol", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED, "anonymous",
	               "agent", "dpu-0");
	/* It is remembered as used. */
	sf_stop(f);
	sf_start(f);
	assert_int_not_equal(fake_enrol_with(f, &thief, "dpu-0", secret, &err), 0);
}

/* With a request that its own key has not signed. */
static struct ros2_err enrol_unsigned(struct sf *f, const char *secret)
{
	struct rpc_channel *ch = sf_channel(f, NULL, f->ports.enrol, NULL);
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *csr = NULL;
	char *in_signature;

	assert_int_equal(pki_csr_create(sf_path("root/tls.key"), NULL, &csr, NULL), 0);
	in_signature = strstr(csr, "-----END") - 6;
	while (!isalnum((unsigned char)*--in_signature))
		; /* a line's end, padding */
	*in_signature = *in_signature == 'A' ? 'B' : 'A';
	q.agent = (char *)"dpu-0";
	q.secret = (char *)secret;
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	q.protocol = RPC_PROTOCOL_VERSION;
	assert_int_not_equal(ros2_v1_enrol_enrol_sync(ch, &q, 10000, &r, &err), 0);
	rpc_channel_free(ch);
	return err;
}

static void enrol__looks_at_no_signature_of_a_stranger(void **state)
{
	struct sf *f = *state;
	AUTO_FREE char *secret = NULL;
	char unknown[65];

	sf_apply(f, sf_agent0);
	memset(unknown, 'a', 64);
	unknown[64] = '\0';
	assert_int_equal(enrol_unsigned(f, unknown).status, ROS2_UNAUTHENTICATED);
	assert_int_equal(enrol_unsigned(f, "").status, ROS2_UNAUTHENTICATED);
	/* The control: whoever has a token is told what is wrong with the request. */
	secret = sf_token(f, "dpu-0", 0);
	assert_non_null(strstr(enrol_unsigned(f, secret).msg, "not by its own key"));
	sf_audit_wait(f, "agent.enrol", 3);
}

/* A key was stolen, and what lay beside it: the agent has enrolled again with another one. */
static void token__of_a_key_that_was_replaced_does_not_bring_it_back(void **state)
{
	struct sf *f = *state;
	struct fake first = {0}, second = {.dir = "second"};
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *stolen = NULL, *fresh = NULL;

	sf_apply(f, sf_agent0);
	stolen = sf_token(f, "dpu-0", 0);
	assert_int_equal(fake_enrol_with(f, &first, "dpu-0", stolen, &err), 0);
	/* The control: as long as it is the agent's key. */
	assert_int_equal(fake_enrol_with(f, &first, "dpu-0", stolen, &err), 0);
	fresh = sf_token(f, "dpu-0", 0);
	assert_int_equal(fake_enrol_with(f, &second, "dpu-0", fresh, &err), 0);
	assert_int_not_equal(fake_enrol_with(f, &first, "dpu-0", stolen, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	sf_stop(f);
	sf_start(f);
	assert_int_not_equal(fake_enrol_with(f, &first, "dpu-0", stolen, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_int_equal(fake_enrol_with(f, &second, "dpu-0", fresh, &err), 0);
}

static void token__opens_no_other_name_and_not_for_ever(void **state)
{
	struct sf *f = *state;
	struct fake a = {0}, b = {0};
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *secret = NULL, *shortly = NULL;

	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	secret = sf_token(f, "dpu-0", 0);
	assert_int_not_equal(fake_enrol_with(f, &b, "dpu-1", secret, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_int_not_equal(fake_enrol_with(f, &b, "dpu-9", secret, &err), 0);
	shortly = sf_token(f, "dpu-0", 1);
	/* time: the token lives a second */
	usleep(2100000);
	assert_int_not_equal(fake_enrol_with(f, &a, "dpu-0", shortly, &err), 0);
	assert_non_null(strstr(err.msg, "expired"));
	assert_int_not_equal(fake_enrol_with(f, &a, "dpu-0", "00ff", &err), 0);
	assert_int_not_equal(fake_enrol_with(f, &a, "dpu-0", "", &err), 0);
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", secret, &err), 0);
	/* The key it enrolled with opens the door again without a token; another name's does not.
	 */
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", "", &err), 0);
	assert_int_not_equal(fake_enrol_with(f, &a, "dpu-1", "", &err), 0);
}

#define TOKENS_KEPT 1024

/* While the controller is down. */
static void in_database(struct sf *f, const char *sql)
{
	char path[128];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/ros2.db", f->dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

/* Each for a key that the agent has no more. */
static void add_used_tokens(struct sf *f, const char *agent, unsigned n)
{
	Ros2__V1__GetReply *r = sf_get(f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, agent);
	unsigned long long now = clock_unix_ns() / NS_PER_S;
	char uid[ROS2_UID_STR_LEN], sql[512];
	struct ros2_uid u;

	memcpy(u.b, r->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	ros2_uid_to_str(&u, uid);
	snprintf(sql, sizeof(sql),
	         "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%u) INSERT "
	         "INTO tokens SELECT randomblob(32),x'%s',%llu,%llu,1,randomblob(32) FROM n",
	         n, uid, now, now + 3600);
	sf_stop(f);
	in_database(f, sql);
	sf_start(f);
}

static void refuses_a_token(struct sf *f, const char *agent, const char *words)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	q.agent = (char *)agent;
	assert_int_not_equal(ros2_v1_admin_create_agent_token_sync(f->admin, &q, 10000, &r, &err),
	                     0);
	assert_int_equal(err.status, ROS2_LIMIT);
	if (!strstr(err.msg, words))
		fail_msg("%s", err.msg);
}

/* What was used is none of the 16 that can be used, but is kept until it expires: of all there are
 * 1024 for an agent. Another has its own. */
static void token__used_ones_are_bounded_until_they_expire(void **state)
{
	static const char full[] = "dpu-0 had 1024 tokens that have not expired: wait";
	struct ros2_err err = ROS2_ERR_INIT;
	struct sf *f = *state;
	struct fake a = {0};
	AUTO_FREE char *last = NULL;

	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	add_used_tokens(f, "dpu-0", TOKENS_KEPT - 2);
	free(sf_token(f, "dpu-0", 0));
	last = sf_token(f, "dpu-0", 0);
	refuses_a_token(f, "dpu-0", full);
	for (int i = 0; i < 16; i++)
		free(sf_token(f, "dpu-1", 0));
	refuses_a_token(f, "dpu-1", "dpu-1 has 16 tokens that have not expired and can be used");
	/* Those that are there work, and make no room. */
	assert_int_equal(fake_enrol_with(f, &a, "dpu-0", last, &err), 0);
	refuses_a_token(f, "dpu-0", full);
	sf_stop(f);
	in_database(f, "UPDATE tokens SET expires=1 WHERE secret=(SELECT min(secret) FROM tokens "
	               "WHERE used AND expires>1)");
	sf_start(f);
	free(sf_token(f, "dpu-0", 0));
	refuses_a_token(f, "dpu-0", full);
}

/* ---- audit ---- */

static void audit__filters_what_was_asked_for(void **state)
{
	struct sf *f = *state;
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	sf_apply(f, sf_tenant("beta", "1h", "10m", "dpu-0"));
	assert_int_equal(sf_audit_count_action(f, "tenant.*", ""), 2);
	assert_int_equal(sf_audit_count_action(f, "tenant.apply", "beta"), 1);
	assert_int_equal(sf_audit_count_action(f, "", "beta"), 1);
	assert_int_equal(sf_audit_count_action(f, "grant.issue", ""), 0);
	q.actor = (char *)"spiffe://" TD "/admin/root";
	assert_int_equal(sf_audit_count(f, &q), 3);
	q.object = (char *)"ram";
	assert_int_equal(sf_audit_count(f, &q), 1);
	q = (Ros2__V1__AuditQueryRequest)ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	q.limit = 2;
	q.newest = true;
	assert_int_equal(sf_audit_count(f, &q), 2);
	q.newest = false;
	q.limit = 0;
	q.from_seq = 3;
	q.to_seq = 3;
	assert_int_equal(sf_audit_count(f, &q), 1);
}

static bool is_all_signed(struct sf *f)
{
	struct audit_verdict v = sf_verify_log(f);

	return v.signatures && v.covered == v.records;
}

static void audit__raw_stream_verifies_with_the_status_key(void **state)
{
	struct sf *f = *state;

	sf_apply(f, sf_engine);
	for (int i = 0; i < 300; i++) {
		char text[200];

		snprintf(text, sizeof(text),
		         "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: a-%d}\nspec: {}\n", i);
		sf_apply(f, text);
	}
	/* Each second a checkpoint covers it all. */
	assert_true(AWAIT(is_all_signed(f)));
	assert_true(sf_verify_log(f).records >= 300);
}

/* ---- start ---- */

static void start__refuses_what_is_wrong_with_clear_words(void **state)
{
	struct sf *f = *state;
	struct controller_opts o = f->opts;
	struct controller *c = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct loop *l;
	char taken[64];

	assert_int_equal(loop_new(&(struct loop_opts){.name = "x"}, &l), 0);
	o.loop = l;
	assert_int_equal(controller_new(&o, &c, &err), -EBUSY); /* the directory is in use */
	assert_non_null(strstr(err.msg, "data-dir"));
	o.config_dir = "/nonexistent";
	assert_int_equal(controller_new(&o, &c, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "ros2ctl init"));
	o = f->opts;
	o.loop = l;
	o.data_dir = sf_path("other-data");
	snprintf(taken, sizeof(taken), "127.0.0.1:%u", f->ports.admin);
	o.admin_listen = taken;
	assert_int_equal(controller_new(&o, &c, &err), -EADDRINUSE);
	assert_non_null(strstr(err.msg, "--admin-listen"));
	loop_free(l);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(apply__reports_every_fault_and_changes_nothing),
		T(apply__dry_run_plans_and_a_second_apply_is_unchanged),
		T(apply__compares_and_swaps),
		T(apply__that_expects_what_had_the_name_before_is_refused),
		T(apply__survives_a_restart),
		T(apply__with_a_tab_behind_the_marker_survives_a_restart),
		T(apply__gives_no_volume_of_a_stored_nvmf_engine_away),
		T(delete__refuses_what_is_needed_and_forgets_names),
		T(roles__are_kept_and_refusals_recorded),
		T(roles__refusals_are_recorded_within_bounds),
		T(listeners__refuse_certificates_of_other_bundles),
		T(listeners__of_agents_are_closed_to_tenants_and_administrators),
		T(listeners__of_enrolment_take_no_certificate_for_a_token),
		T(certificate__of_a_request_in_anothers_name_is_the_callers),
		T(listeners__serve_only_their_own_services),
		T(token__is_used_once_but_answers_the_same_key_again),
		T(token__of_a_key_that_was_replaced_does_not_bring_it_back),
		T(enrol__looks_at_no_signature_of_a_stranger),
		T(token__opens_no_other_name_and_not_for_ever),
		T(token__used_ones_are_bounded_until_they_expire),
		T(audit__filters_what_was_asked_for),
		T(audit__raw_stream_verifies_with_the_status_key),
		T(start__refuses_what_is_wrong_with_clear_words),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every method of the administrators' services, as the tables have them, by everybody who may not
 * call it: refused, recorded once with who it was and which method, and nothing is changed. The
 * control is who may: for him the same requests work. A method without a row here fails.
 */
#include "common/util.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include "tests/controller/service_methods.h"
#include "tests/controller/service_picture.h"

#define DENIED ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED

enum { OPERATOR = 1, AUDITOR = 2 };

/* Beside administrators. */
static const struct right {
	const char *method;
	unsigned may;
} rights[] = {
	{"Admin.Apply", OPERATOR},
	{"Admin.Get", OPERATOR | AUDITOR},
	{"Admin.List", OPERATOR | AUDITOR},
	{"Admin.Delete", OPERATOR},
	{"Admin.Revoke", OPERATOR},
	{"Admin.Reinstate", OPERATOR},
	{"Admin.CreateAgentToken", 0},
	{"Admin.IsolateAgent", OPERATOR},
	{"Admin.Status", OPERATOR | AUDITOR},
	{"Audit.Query", OPERATOR | AUDITOR},
	{"Audit.Raw", AUDITOR},
};

/* An agent's and a tenant's identity signed by the administrators' authority: where a site has one
 * for all of them. */
static const struct caller {
	const char *cert, *id;
	unsigned role;
} callers[] = {
	{"nobody", "admin/nobody", 0},           {"agent-a", "agent/dpu-0", 0},
	{"tenant-b", "tenant/alpha/trainer", 0}, {"op", "admin/op", OPERATOR},
	{"eye", "admin/eye", AUDITOR},
};

static unsigned may_call(const struct rpc_method *m)
{
	for (size_t i = 0; i < ARRAY_SIZE(rights); i++)
		if (!strcmp(rights[i].method, m->name))
			return rights[i].may;
	fail_msg("%s: nobody has said who may call it", m->name);
	return 0;
}

static unsigned denied(struct sf *f, const char *id, const char *method)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	char actor[128];

	snprintf(actor, sizeof(actor), "spiffe://" TD "/%s", id);
	q.action = (char *)"admin.denied";
	q.actor = actor;
	q.object = (char *)method;
	q.result = DENIED;
	return sf_audit_count(f, &q);
}

/* Whatever changes something has a record that it did, in the same transaction. */
static unsigned done(struct sf *f)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	return sf_audit_count(f, &q);
}

static void is_refused(struct sf *f, const struct caller *c, const struct rpc_method *m)
{
	enum ros2_status st = attack_method(f, c->cert, f->ports.admin, m);

	if (st != ROS2_DENIED)
		fail_msg("%s by %s: %s", m->name, c->id, ros2_status_to_str(st));
}

static void roles__that_may_not_are_refused_in_every_method(void **state)
{
	const struct rpc_method *m;
	struct picture before, after;
	struct sf *f = *state;
	unsigned n = 0, was;

	sf_cert("admin", "agent-a", "agent/dpu-0");
	sf_cert("admin", "tenant-b", "tenant/alpha/trainer");
	methods_begin(f);
	picture_take(f, "", "", &before);
	was = done(f);
	for (size_t i = 0; (m = method_at(i)); i++)
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++) {
			if (may_call(m) & callers[c].role)
				continue;
			is_refused(f, &callers[c], m);
			n++;
		}
	sf_audit_wait(f, "admin.denied", n);
	for (size_t i = 0; (m = method_at(i)); i++)
		for (size_t c = 0; c < ARRAY_SIZE(callers); c++)
			assert_int_equal(denied(f, callers[c].id, m->name),
			                 !(may_call(m) & callers[c].role));
	picture_take(f, "", "", &after);
	assert_true(picture_same(&before, &after));
	assert_int_equal(done(f), was);
	picture_fini(&before);
	picture_fini(&after);
}

/* The control. */
static void roles__that_may_call_every_method(void **state)
{
	const struct rpc_method *m;
	struct picture before, after;
	struct sf *f = *state;
	unsigned n = 0;

	methods_begin(f);
	picture_take(f, "", "", &before);
	for (size_t i = 0; (m = method_at(i)); i++) {
		enum ros2_status st = attack_method(f, "root", f->ports.admin, m);

		if (st != ROS2_OK)
			fail_msg("%s: %s", m->name, ros2_status_to_str(st));
		n++;
	}
	assert_int_equal(n, ARRAY_SIZE(rights));
	picture_take(f, "", "", &after);
	assert_false(picture_same(&before, &after));
	assert_int_equal(sf_audit_count_action(f, "admin.denied", ""), 0);
	picture_fini(&before);
	picture_fini(&after);
}

/* Of an agent's identity an operator may do less than of a tenant. */
static void roles__of_operators_end_at_identities(void **state)
{
	const struct rpc_method *m;
	struct picture before, after;
	struct sf *f = *state;
	unsigned n = 0;
	bool has;

	methods_begin(f);
	/* Isolated, so that a lift is one. */
	assert_int_equal(attack_method(f, "op", f->ports.admin, &ros2_v1_admin_isolate_agent),
	                 ROS2_OK);
	picture_take(f, "", "", &before);
	for (size_t i = 0; (m = method_at(i)); i++) {
		enum ros2_status st = attack_identity(f, "op", f->ports.admin, m, &has);

		if (has && st != ROS2_DENIED)
			fail_msg("%s: %s", m->name, ros2_status_to_str(st));
		n += has;
	}
	assert_int_equal(n, 4);
	sf_audit_wait(f, "admin.denied", n);
	picture_take(f, "", "", &after);
	assert_true(picture_same(&before, &after));
	/* From the last to the first: of an isolated agent there is no token. */
	for (size_t i = ARRAY_SIZE(rights); i--;) {
		m = method_at(i);
		if (attack_identity(f, "root", f->ports.admin, m, &has) != ROS2_OK)
			fail_msg("%s: not even an administrator may", m->name);
	}
	picture_fini(&before);
	picture_fini(&after);
}

static unsigned refused_at(struct sf *f, const char *listener)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.object = (char *)listener;
	q.result = DENIED;
	return sf_audit_count(f, &q);
}

/* Where another authority signs agents and tenants, TLS refuses them before a method is named. */
static void listeners__let_no_other_bundle_call_any_method(void **state)
{
	static const char *const certs[] = {"agent-x", "tenant-a", NULL};
	const struct rpc_method *m;
	struct picture before, after;
	struct sf *f = *state;
	unsigned n = 0;

	sf_cert("infra", "agent-x", "agent/dpu-0");
	sf_cert("tenant", "tenant-a", "tenant/alpha/trainer");
	methods_begin(f);
	picture_take(f, "", "", &before);
	for (size_t i = 0; (m = method_at(i)); i++)
		for (size_t c = 0; c < ARRAY_SIZE(certs); c++, n++)
			if (attack_method(f, certs[c], f->ports.admin, m) == ROS2_OK)
				fail_msg("%s by %s", m->name, certs[c] ? certs[c] : "nobody");
	assert_true(AWAIT(refused_at(f, "admin") >= n));
	picture_take(f, "", "", &after);
	assert_true(picture_same(&before, &after));
	picture_fini(&before);
	picture_fini(&after);
}

/* Not even for an administrator. */
static void listeners__of_agents_serve_no_method_of_administrators(void **state)
{
	const struct rpc_method *m;
	struct picture before, after;
	struct sf *f = *state;
	struct fake a;
	unsigned n = 0;

	methods_begin(f);
	fake_enrol(f, &a, "dpu-0");
	picture_take(f, "", "", &before);
	for (size_t i = 0; (m = method_at(i)); i++, n++) {
		enum ros2_status st = attack_method(f, a.dir, f->ports.agent, m);

		if (st != ROS2_UNSUPPORTED)
			fail_msg("%s by an agent: %s", m->name, ros2_status_to_str(st));
		st = attack_method(f, "root", f->ports.enrol, m);
		if (st != ROS2_UNSUPPORTED)
			fail_msg("%s without a certificate: %s", m->name, ros2_status_to_str(st));
	}
	assert_true(AWAIT(refused_at(f, "agents") >= n && refused_at(f, "enrol") >= n));
	picture_take(f, "", "", &after);
	assert_true(picture_same(&before, &after));
	picture_fini(&before);
	picture_fini(&after);
	fake_free(&a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(roles__that_may_not_are_refused_in_every_method),
		T(roles__that_may_call_every_method),
		T(roles__of_operators_end_at_identities),
		T(listeners__let_no_other_bundle_call_any_method),
		T(listeners__of_agents_serve_no_method_of_administrators),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

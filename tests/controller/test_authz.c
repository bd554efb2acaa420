/* SPDX-License-Identifier: Apache-2.0 */
/* The table of roles: every method of every service has a row, and nobody gets more than the page
 * says. */
#include "common/util.h"
#include "controller/config.h"
#include "controller/ctl.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "tests/testing.h"

static const enum ctl_role people[] = {CTL_ADMIN, CTL_OPERATOR, CTL_AUDITOR};

static void authz__every_method_has_a_row(void **state)
{
	const struct rpc_service *services[] = {&ros2_v1_admin_service, &ros2_v1_audit_service};

	for (size_t s = 0; s < 2; s++)
		for (size_t i = 0; i < services[s]->n_methods; i++) {
			const char *name = services[s]->methods[i]->name;

			if (!ctl_authz(CTL_ADMIN, name))
				fail_msg("%s: not even an admin may call it", name);
		}
	for (size_t i = 0; i < ros2_v1_agent_link_service.n_methods; i++)
		assert_true(ctl_authz(CTL_AGENT, ros2_v1_agent_link_service.methods[i]->name));
}

static void authz__nobody_and_unknown_methods_get_nothing(void **state)
{
	for (size_t i = 0; i < ros2_v1_admin_service.n_methods; i++) {
		assert_int_equal(ctl_authz(CTL_NOBODY, ros2_v1_admin_service.methods[i]->name), 0);
		assert_int_equal(ctl_authz(CTL_AGENT, ros2_v1_admin_service.methods[i]->name), 0);
	}
	assert_int_equal(ctl_authz(CTL_ADMIN, "Admin.Nothing"), 0);
	assert_int_equal(ctl_authz((enum ctl_role)77, "Admin.Apply"), 0);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(ctl_authz(people[i], "AgentLink.Link"), 0);
}

static void authz__auditors_only_read(void **state)
{
	static const char *const reads[] = {"Admin.Get", "Admin.List", "Admin.Status",
	                                    "Audit.Query", "Audit.Raw"};
	static const char *const writes[] = {
		"Admin.Apply",     "Admin.Delete",           "Admin.Revoke",
		"Admin.Reinstate", "Admin.CreateAgentToken", "Admin.IsolateAgent"};

	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		assert_true(ctl_authz(CTL_AUDITOR, reads[i]));
	for (size_t i = 0; i < ARRAY_SIZE(writes); i++)
		assert_int_equal(ctl_authz(CTL_AUDITOR, writes[i]), 0);
}

static void authz__operators_have_no_hand_on_identities(void **state)
{
	assert_int_equal(ctl_authz(CTL_OPERATOR, "Admin.CreateAgentToken"), 0);
	assert_int_equal(ctl_authz(CTL_OPERATOR, "Audit.Raw"), 0);
	assert_false(ctl_authz(CTL_OPERATOR, "Admin.Apply") & 1u << STORE_AGENT);
	assert_false(ctl_authz(CTL_OPERATOR, "Admin.Delete") & 1u << STORE_AGENT);
	assert_false(ctl_authz(CTL_OPERATOR, "Admin.IsolateAgent") & 1u);
	assert_true(ctl_authz(CTL_OPERATOR, "Admin.Revoke") & 1u << STORE_TENANT);
}

#define ROOT "spiffe://ros2.test/admin/root"
#define OP   "spiffe://ros2.test/admin/op"

static int parse(const char *text, struct ros2_err *err)
{
	AUTO_FREE struct config_role *roles = NULL;
	size_t n;

	return config_roles_parse(text, strlen(text), "ros2.test", "roles", &roles, &n, err);
}

/* The upper line would hold, whatever a person wrote below it. */
static void roles__of_one_identity_that_contradict_each_other_are_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(parse(ROOT " admin\n" OP " admin\n\n" OP " auditor\n", &err), -EINVAL);
	assert_string_equal(err.msg, "roles:4: \"" OP "\" is admin in line 2: expected one role");
	/* Said twice is no contradiction; and case makes another identity. */
	assert_int_equal(parse(ROOT " admin\n" OP " auditor\n" ROOT " admin\n", NULL), 0);
	assert_int_equal(parse(ROOT " admin\nspiffe://ros2.test/admin/Root auditor\n", NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(authz__every_method_has_a_row),
		cmocka_unit_test(authz__nobody_and_unknown_methods_get_nothing),
		cmocka_unit_test(authz__auditors_only_read),
		cmocka_unit_test(authz__operators_have_no_hand_on_identities),
		cmocka_unit_test(roles__of_one_identity_that_contradict_each_other_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

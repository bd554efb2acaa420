/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a roles file. What is accepted names identities of this trust domain only, and
 * written again, one line for each role, it is the same roles; a refusal names file and line.
 */
#include "controller/config_priv.h"
#include "controller/ctl.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>

#define DOMAIN "ros2.test"

static void same_again(const struct config_role *roles, size_t n)
{
	const size_t line_max = sizeof(roles->spiffe) + 16;
	struct ros2_err err = ROS2_ERR_INIT;
	char *text = malloc(n * line_max + 1);
	struct config_role *again;
	size_t len = 0, n_again;

	must(text != NULL);
	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, line_max, "%s %s\n", roles[i].spiffe,
		                        ctl_role_to_str((enum ctl_role)roles[i].role));
	must(config_roles_parse(text, len, DOMAIN, "roles", &again, &n_again, &err) == 0);
	must(n_again == n);
	for (size_t i = 0; i < n; i++)
		must(roles[i].role == again[i].role && !strcmp(roles[i].spiffe, again[i].spiffe));
	free(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct config c = {0};
	struct config_role *roles = NULL;
	size_t n = 0;
	int r = config_roles_parse((const char *)data, size, DOMAIN, "roles", &roles, &n, &err);

	if (r < 0) {
		must_refuse(r, &err);
		must(!strncmp(err.msg, "roles:", 6) && err.msg[6] >= '1' && err.msg[6] <= '9');
		must(!roles && !n);
		return 0;
	}
	must(n <= CONFIG_ROLES_MAX && n <= size / strlen("spiffe://ros2.test/"));
	same_again(roles, n);
	must(config_roles_new(roles, n, &c.rights.roles, &err) == 0);
	for (size_t i = 0; i < n; i++) {
		const struct config_role *role = &roles[i];

		must(!strncmp(role->spiffe, "spiffe://" DOMAIN "/", 10 + strlen(DOMAIN)));
		must(role->role == CTL_ADMIN || role->role == CTL_OPERATOR ||
		     role->role == CTL_AUDITOR);
		must(config_role_of(&c, role->spiffe) != CTL_NOBODY);
	}
	must(config_role_of(&c, "spiffe://other.test/admin/root") == CTL_NOBODY);
	config_roles_unref(c.rights.roles);
	free(roles);
	return 0;
}

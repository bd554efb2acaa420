/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a roles file. What is accepted names identities of this trust domain only, and
 * written again, one line for each role, it is the same roles; a refusal names file and line.
 */
#include "controller/config.h"
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
	int r = config_roles_parse((const char *)data, size, DOMAIN, "roles", &c.roles, &c.n_roles,
	                           &err);

	if (r < 0) {
		must_refuse(r, &err);
		must(!strncmp(err.msg, "roles:", 6) && err.msg[6] >= '1' && err.msg[6] <= '9');
		must(!c.roles && !c.n_roles);
		return 0;
	}
	must(c.n_roles <= CONFIG_ROLES_MAX && c.n_roles <= size / strlen("spiffe://ros2.test/"));
	for (size_t i = 0; i < c.n_roles; i++) {
		const struct config_role *role = &c.roles[i];

		must(!strncmp(role->spiffe, "spiffe://" DOMAIN "/", 10 + strlen(DOMAIN)));
		must(role->role == CTL_ADMIN || role->role == CTL_OPERATOR ||
		     role->role == CTL_AUDITOR);
		must(config_role_of(&c, role->spiffe) != CTL_NOBODY);
	}
	must(config_role_of(&c, "spiffe://other.test/admin/root") == CTL_NOBODY);
	same_again(c.roles, c.n_roles);
	free(c.roles);
	return 0;
}

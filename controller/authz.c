/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: ONE table of method × role × kind of object. What is not in it is refused. A
 * role comes from the listener's trust bundle plus a binding in the roles file, never from a path
 * alone; agents act on themselves only (link.c compares the certificate with the object).
 */
#include "controller/ctl.h"
#include "controller/test_switches.h"
#include <string.h>

#define NONE    (1u << 0)
#define TENANT  (1u << STORE_TENANT)
#define ENGINE  (1u << STORE_ENGINE)
#define AGENT   (1u << STORE_AGENT)
#define GRANT   (1u << STORE_GRANT)
#define SESSION (1u << STORE_SESSION)
#define LEASE   (1u << STORE_LEASE)
#define ALL     (NONE | TENANT | ENGINE | AGENT | GRANT | SESSION | LEASE)

static const struct {
	const char *method;
	uint32_t admin, operator, auditor, agent;
} table[] = {
	{"Admin.Apply", NONE | TENANT | ENGINE | AGENT, NONE | TENANT | ENGINE, 0, 0},
	{"Admin.Get", ALL, ALL, ALL, 0},
	{"Admin.List", ALL, ALL, ALL, 0},
	{"Admin.Delete", TENANT | ENGINE | AGENT, TENANT | ENGINE, 0, 0},
	{"Admin.Revoke", TENANT | GRANT | SESSION | AGENT, TENANT | GRANT | SESSION | AGENT, 0, 0},
	{"Admin.Reinstate", TENANT, TENANT, 0, 0},
	{"Admin.CreateAgentToken", AGENT, 0, 0, 0},
	{"Admin.IsolateAgent", AGENT | NONE, AGENT, 0, 0}, /* NONE: may lift it */
	{"Admin.Status", NONE, NONE, NONE, 0},
	{"Audit.Query", NONE, NONE, NONE, 0},
	{"Audit.Raw", NONE, 0, NONE, 0},
	{"AgentLink.Link", 0, 0, 0, AGENT},
	{"AgentLink.Renew", 0, 0, 0, AGENT},
};

const char *ctl_role_to_str(enum ctl_role r)
{
	switch (r) {
	case CTL_ADMIN:
		return "admin";
	case CTL_OPERATOR:
		return "operator";
	case CTL_AUDITOR:
		return "auditor";
	case CTL_AGENT:
		return "agent";
	case CTL_NOBODY:
		break;
	}
	return "none";
}

uint32_t ctl_authz(enum ctl_role role, const char *method)
{
	if (CTL_SWITCH(no_roles))
		return ALL;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].method, method) != 0)
			continue;
		switch (role) {
		case CTL_ADMIN:
			return table[i].admin;
		case CTL_OPERATOR:
			return table[i].operator;
		case CTL_AUDITOR:
			return table[i].auditor;
		case CTL_AGENT:
			return table[i].agent;
		case CTL_NOBODY:
			return 0;
		}
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The words for the enums of policy.h and image.h. Pure; an unknown number is "?", never NULL. */
#include "policy/policy.h"
#include "common/util.h"

static const char *name_of(const char *const *names, size_t n, unsigned i)
{
	return i < n && names[i] ? names[i] : "?";
}
#define NAME_OF(names, i) name_of(names, ARRAY_SIZE(names), (unsigned)(i))

const char *policy_access_to_str(uint32_t access)
{
	static const char *const names[] = {"none", "r", "w", "rw"};

	return NAME_OF(names, access);
}

const char *policy_kind_to_str(enum policy_kind k)
{
	static const char *const names[] = {NULL, "Tenant", "Engine", "Agent"};

	return NAME_OF(names, k);
}

const char *policy_engine_type_to_str(enum policy_engine_type t)
{
	static const char *const names[] = {NULL, "file", "mem", "nvmf"};

	return NAME_OF(names, t);
}

const char *policy_transport_to_str(enum policy_transport t)
{
	static const char *const names[] = {NULL, "tcp", "rdma"};

	return NAME_OF(names, t);
}

const char *policy_violation_action_to_str(enum policy_violation_action a)
{
	static const char *const names[] = {NULL, "kill", "log"};

	return NAME_OF(names, a);
}

const char *policy_controller_loss_to_str(enum policy_controller_loss l)
{
	static const char *const names[] = {NULL, "hold"};

	return NAME_OF(names, l);
}

const char *policy_reason_to_str(enum policy_reason r)
{
	static const char *const names[] = {
		NULL, "rule", "namespace access", "no rule matches", "bad path", "bad question",
	};

	return NAME_OF(names, r);
}

const char *policy_severity_to_str(enum policy_severity s)
{
	static const char *const names[] = {NULL, "warning", "error"};

	return NAME_OF(names, s);
}

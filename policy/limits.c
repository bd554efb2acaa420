/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits, and the rules between them. Pure. */
#include "policy/limits.h"
#include "common/util.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)
#define SEC 1000ull
#define DAY (86400ull * SEC)

#define U32(f) offsetof(struct policy_limits, f), true, false
#define U64(f) offsetof(struct policy_limits, f), false, false
#define OPT(f) offsetof(struct policy_limits, f), false, true

const struct limit_field limit_fields[LIMIT_COUNT] = {
	[LIMIT_REGISTERED_BYTES] = {"memory.registeredBytes", UNIT_BYTES, U64(registered_bytes),
                                    4 * KIB, TIB, 256 * MIB},
	[LIMIT_REGIONS] = {"memory.regions", UNIT_COUNT, U32(regions), 1, 4096, 64},
	[LIMIT_REGION_SIZE_MIN] = {"memory.regionSize.min", UNIT_BYTES, U64(region_size_min), 1,
                                   TIB, 4 * KIB},
	[LIMIT_REGION_SIZE_MAX] = {"memory.regionSize.max", UNIT_BYTES, U64(region_size_max), 1,
                                   TIB, 64 * MIB},
	[LIMIT_ALIGNMENT] = {"memory.alignment", UNIT_BYTES, U64(region_alignment), 1, GIB,
                             4 * KIB},
	[LIMIT_LEASE_TTL] = {"rkeys.leaseTtl", UNIT_DURATION, U64(lease_ttl_ms), 1 * SEC,
                             3600 * SEC, 30 * SEC},
	[LIMIT_CONCURRENT] = {"rkeys.concurrent", UNIT_COUNT, U32(leases_max), 1, 65536, 64},
	[LIMIT_VIOLATIONS] = {"rkeys.violations.limit", UNIT_COUNT, U32(violations_limit), 1,
                              1000000, 100},
	[LIMIT_GRANT_LIFETIME] = {"times.grantLifetime", UNIT_DURATION, U64(grant_lifetime_ms),
                                  1 * SEC, 30 * DAY, 3600 * SEC},
	[LIMIT_CONTACT] = {"times.contactLimit", UNIT_DURATION, U64(contact_limit_ms), 1 * SEC,
                           1 * DAY, 600 * SEC},
	[LIMIT_SESSIONS] = {"sessions.max", UNIT_COUNT, U32(sessions_max), 1, 4096, 16},
	[LIMIT_READ_BYTES] = {"qos.read.bandwidth", UNIT_RATE, OPT(read.bytes_per_s), KIB, TIB, 0},
	[LIMIT_READ_OPS] = {"qos.read.iops", UNIT_OPS, OPT(read.ops_per_s), 1, 100000000, 0},
	[LIMIT_WRITE_BYTES] = {"qos.write.bandwidth", UNIT_RATE, OPT(write.bytes_per_s), KIB, TIB,
                               0},
	[LIMIT_WRITE_OPS] = {"qos.write.iops", UNIT_OPS, OPT(write.ops_per_s), 1, 100000000, 0},
	[LIMIT_BURST] = {"qos.burst", UNIT_DURATION, U64(burst_ms), 1, 10 * SEC, 100},
	[LIMIT_CONTROL_VERBS] = {"memory.controlVerbsPerSecond", UNIT_OPS, U32(control_verbs_per_s),
                                 1, 100000, 5000},
};

uint64_t limit_get(const struct policy_limits *l, enum limit_id id)
{
	const char *p = (const char *)l + limit_fields[id].offset;

	return limit_fields[id].is_u32 ? *(const uint32_t *)p : *(const uint64_t *)p;
}

void limit_set(struct policy_limits *l, enum limit_id id, uint64_t v)
{
	char *p = (char *)l + limit_fields[id].offset;

	if (limit_fields[id].is_u32)
		*(uint32_t *)p = (uint32_t)v;
	else
		*(uint64_t *)p = v;
}

void limits_default(struct policy_limits *ret)
{
	*ret = (struct policy_limits){
		.region_access = POLICY_ACCESS_ALL,
		.violations_action = POLICY_VIOLATION_KILL,
		.on_controller_loss = POLICY_LOSS_HOLD,
	};
	for (int i = 0; i < LIMIT_COUNT; i++)
		limit_set(ret, (enum limit_id)i, limit_fields[i].fallback);
}

bool limits_relation(const struct policy_limits *l, int i, enum limit_id *ret_at,
                     const char **ret_why)
{
	const struct {
		bool holds;
		enum limit_id at;
		const char *why;
	} rules[LIMIT_RELATIONS] = {
		{l->region_size_min <= l->region_size_max, LIMIT_REGION_SIZE_MIN,
	         "is larger than memory.regionSize.max: no region could be registered"},
		{l->region_size_max <= l->registered_bytes, LIMIT_REGION_SIZE_MAX,
	         "is larger than memory.registeredBytes: such a region could never be registered"},
		{l->region_alignment && !(l->region_alignment & (l->region_alignment - 1)),
	         LIMIT_ALIGNMENT, "is not a power of two"},
		{l->grant_lifetime_ms >= l->lease_ttl_ms, LIMIT_GRANT_LIFETIME,
	         "is shorter than rkeys.leaseTtl: a lease cannot outlive its grant"},
	};

	*ret_at = rules[i].at;
	*ret_why = rules[i].why;
	return rules[i].holds;
}

const char *limits_fault(const struct policy_limits *l)
{
	enum limit_id at;
	const char *why;

	for (int i = 0; i < LIMIT_COUNT; i++) {
		const struct limit_field *f = &limit_fields[i];
		uint64_t v = limit_get(l, (enum limit_id)i);

		if ((v < f->min && !(f->zero_is_unlimited && !v)) || v > f->max)
			return f->path;
	}
	for (int i = 0; i < LIMIT_RELATIONS; i++)
		if (!limits_relation(l, i, &at, &why))
			return limit_fields[at].path;
	if (!l->region_access || l->region_access & ~POLICY_ACCESS_ALL)
		return "memory.access";
	if (l->violations_action != POLICY_VIOLATION_KILL &&
	    l->violations_action != POLICY_VIOLATION_LOG)
		return "rkeys.violations.action";
	if (l->offline_restart)
		return "times.offlineRestart";
	return l->on_controller_loss == POLICY_LOSS_HOLD ? NULL : "qos.onControllerLoss";
}

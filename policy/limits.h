/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a tenant's policy as one table: the parser reads by it, the canonical text and the
 * image are written by it, and an image is checked by it. So a bound is told once.
 */
#ifndef ROS2_POLICY_LIMITS_H
#define ROS2_POLICY_LIMITS_H

#include "policy/image.h"
#include "policy/units.h"

/* The order is the order in the image: append, never reorder (docs/decisions/0004-policy-image.md).
 */
enum limit_id {
	LIMIT_REGISTERED_BYTES,
	LIMIT_REGIONS,
	LIMIT_REGION_SIZE_MIN,
	LIMIT_REGION_SIZE_MAX,
	LIMIT_ALIGNMENT,
	LIMIT_LEASE_TTL,
	LIMIT_CONCURRENT,
	LIMIT_VIOLATIONS,
	LIMIT_GRANT_LIFETIME,
	LIMIT_CONTACT,
	LIMIT_SESSIONS,
	LIMIT_READ_BYTES,
	LIMIT_READ_OPS,
	LIMIT_WRITE_BYTES,
	LIMIT_WRITE_OPS,
	LIMIT_BURST,
	LIMIT_CONTROL_VERBS, /* from here on: format 2 */
	LIMIT_COUNT,
};

struct limit_field {
	const char *path; /* below spec */
	enum unit_kind unit;
	size_t offset; /* in struct policy_limits */
	bool is_u32;
	bool zero_is_unlimited; /* 0 stands for "not given" and is never written by people */
	uint64_t min, max, fallback;
};
extern const struct limit_field limit_fields[LIMIT_COUNT];

#define ENGINE_MEM_SIZE_MIN (1ull << 20)
#define ENGINE_MEM_SIZE_MAX (1ull << 44)

uint64_t limit_get(const struct policy_limits *l, enum limit_id id);
void limit_set(struct policy_limits *l, enum limit_id id, uint64_t v);
/* What a document that says nothing gets. */
void limits_default(struct policy_limits *ret);

/* Rules between numbers. 0..LIMIT_RELATIONS-1: true when it holds; else *ret_at is the number to
 * point at. */
#define LIMIT_RELATIONS 4
bool limits_relation(const struct policy_limits *l, int i, enum limit_id *ret_at,
                     const char **ret_why);
/* Everything about them: ranges, relations, access, enums. NULL when good, else the reason. */
const char *limits_fault(const struct policy_limits *l);
#endif

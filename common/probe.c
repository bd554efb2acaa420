/* SPDX-License-Identifier: Apache-2.0 */
/* Names and sets of the properties that isolation rests on. Pure. */
#include "common/probe.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

static const struct {
	const char *name, *holds;
} properties[] = {
#define X(num, name, text, holds) [num] = {text, holds},
	PROBE_PROPERTY_LIST(X)
#undef X
};

_Static_assert(PROBE_PROPERTIES <= 32, "a set of properties is 32 bits");

const char *probe_property_to_str(enum probe_property p)
{
	return (unsigned)p < ARRAY_SIZE(properties) ? properties[p].name : "?";
}

const char *probe_property_text(enum probe_property p)
{
	return (unsigned)p < ARRAY_SIZE(properties) ? properties[p].holds : "?";
}

int probe_property_from_str(const char *s, enum probe_property *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(properties); i++) {
		if (strcmp(s, properties[i].name) != 0)
			continue;
		*ret = (enum probe_property)i;
		return 0;
	}
	return -ENOENT;
}

const char *probe_result_to_str(enum probe_result r)
{
	static const char *const names[] = {"not tried", "enforced", "NOT enforced",
	                                    "not supported"};

	return (unsigned)r < ARRAY_SIZE(names) ? names[r] : "?";
}

uint32_t probe_enforced(const struct probe_subject *s)
{
	uint32_t set = 0;

	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		if (s->findings[i].result == PROBE_ENFORCED)
			set |= 1u << i;
	return set;
}

bool probe_missing(const struct probe_subject *s, uint32_t required, enum probe_property *ret)
{
	uint32_t missing = required & ~probe_enforced(s);

	if (!missing)
		return false;
	*ret = (enum probe_property)__builtin_ctz(missing);
	return true;
}

bool probe_same_answers(const struct probe_subject *a, const struct probe_subject *b,
                        enum probe_property *ret)
{
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++) {
		if (a->findings[i].result == b->findings[i].result)
			continue;
		*ret = (enum probe_property)i;
		return false;
	}
	return true;
}

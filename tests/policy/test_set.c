/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of documents whose names somebody has chosen: whoever may apply some could make each look
 * at all of the set slow for everybody, had the place of a name in it been known outside. What is
 * counted is how often names are compared.
 */
#include "policy/policy.h"
#include "tests/testing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 1000
#define SLOTS 2048 /* of a set of so many */

static unsigned long compared;

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b)
{
	compared++;
	return __real_strcmp(a, b);
}

/* FNV-1a, which anybody computes: where a name would lie by it. */
static size_t slot_of(const char *name)
{
	uint64_t h = 0xcbf29ce484222325ull ^ (uint64_t)POLICY_KIND_AGENT;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
	return (size_t)(h ^ h >> 32) & (SLOTS - 1);
}

/* Documents of agents, NAMES of them; @chosen: so that all lie in one slot. */
static struct policy_set *documents(bool chosen)
{
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_source src = {.name = "agents.yaml"};
	struct policy_set *s = NULL;
	char *text = NULL, name[32];
	FILE *f = open_memstream(&text, &src.len);

	assert_non_null(f);
	for (unsigned i = 0, n = 0; n < NAMES; i++) {
		snprintf(name, sizeof(name), "a%x", i);
		if (chosen && slot_of(name) != 7)
			continue;
		fprintf(f,
		        "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: %s}\nspec: {}\n",
		        name);
		n++;
	}
	fclose(f);
	src.text = text;
	assert_int_equal(policy_parse(&src, 1, &s, &diags), 0);
	assert_int_equal(policy_set_count(s), NAMES);
	policy_diags_fini(&diags);
	free(text);
	return s;
}

/* As each apply does, with all that there is. */
static void put_all(const struct policy_set *from)
{
	struct policy_set *s = NULL;

	compared = 0;
	assert_int_equal(policy_set_new(&s), 0);
	for (size_t i = 0; i < policy_set_count(from); i++)
		assert_int_equal(policy_set_put(s, policy_set_at(from, i)), 0);
	for (size_t i = 0; i < policy_set_count(from); i++) {
		const struct policy_doc *d = policy_set_at(from, i);

		assert_ptr_equal(policy_set_find(s, d->kind, d->name), d);
	}
	policy_set_free(s);
	if (compared > 10ul * NAMES)
		fail_msg("%lu comparisons for %d names", compared, NAMES);
}

static void policy_set__finds_names_whatever_they_are(void **state)
{
	struct policy_set *any = documents(false), *chosen = documents(true);

	put_all(any);
	put_all(chosen);
	policy_set_free(any);
	policy_set_free(chosen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_set__finds_names_whatever_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

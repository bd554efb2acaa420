/* SPDX-License-Identifier: Apache-2.0 */
/* Which tenant a principal belongs to, while documents come, change and go: one of a thousand that
 * changes is not the work of all of them. */
#include "tests/agent/state_rig.h"

#define TENANTS 200
/* The same at any number of tenants: those of a document, and of what it replaces. */
#define LOOKUPS_MAX 20

static unsigned lookups;

uint32_t __real_hash_keyed(const void *p, size_t n);
uint32_t __wrap_hash_keyed(const void *p, size_t n);
uint32_t __wrap_hash_keyed(const void *p, size_t n)
{
	lookups++;
	return __real_hash_keyed(p, n);
}

/* The look-ups until it is in force; @principals: one, or more, each on a line "    - NAME". */
static unsigned put(struct env *e, uint8_t seed, const char *principals, uint64_t version)
{
	char name[32];

	snprintf(name, sizeof(name), "tenant-%u", seed);
	assert_int_equal(
		state_receive(e->s,
	                      fix_open(&e->f, fix_tenant(&e->f, name, principals, seed, version)),
	                      NULL),
		1);
	lookups = 0;
	state_stored(e->s, state_store_begin(e->s), 10);
	return lookups;
}

static unsigned take_away(struct env *e, uint8_t seed)
{
	struct ros2_uid uid = fix_uid(seed);

	lookups = 0;
	state_remove(e->s, OBJ_TENANT, &uid, 99);
	return lookups;
}

/* 0: it is nobody's. */
static uint8_t owner(const struct env *e, const char *spiffe)
{
	struct state_tenant t;

	return state_tenant_of(e->s, spiffe, &t) == 0 ? t.uid.b[0] : 0;
}

#define P(name) "spiffe://ros2.test/tenant/" name
#define AND     "\n    - "

static void index__of_many_tenants_is_not_made_anew_for_one_of_them(void **state)
{
	struct env *e = *state;
	char name[64];

	for (unsigned i = 1; i <= TENANTS; i++) {
		snprintf(name, sizeof(name), P("of-%u/server"), i);
		assert_true(put(e, (uint8_t)i, name, 1) <= LOOKUPS_MAX);
	}
	assert_true(put(e, 7, P("of-7/server") AND P("of-7/other"), 2) <= LOOKUPS_MAX);
	assert_true(take_away(e, 9) <= LOOKUPS_MAX);
	for (unsigned i = 1; i <= TENANTS; i++) {
		snprintf(name, sizeof(name), P("of-%u/server"), i);
		assert_int_equal(owner(e, name), i == 9 ? 0 : fix_uid((uint8_t)i).b[0]);
	}
	assert_int_equal(owner(e, P("of-7/other")), fix_uid(7).b[0]);
}

static void index__has_the_principals_of_the_document_in_force(void **state)
{
	struct env *e = *state;

	put(e, 1, P("a") AND P("b") AND P("c"), 1);
	put(e, 1, P("c") AND P("d") AND P("b"), 2);
	assert_int_equal(owner(e, P("a")), 0);
	assert_int_equal(owner(e, P("b")), fix_uid(1).b[0]);
	assert_int_equal(owner(e, P("c")), fix_uid(1).b[0]);
	assert_int_equal(owner(e, P("d")), fix_uid(1).b[0]);
	/* Nothing of the one before: its text is gone. */
	put(e, 1, P("d"), 3);
	assert_int_equal(owner(e, P("b")), 0);
	assert_int_equal(owner(e, P("c")), 0);
	assert_int_equal(owner(e, P("d")), fix_uid(1).b[0]);
	take_away(e, 1);
	assert_int_equal(owner(e, P("d")), 0);
	assert_null(e->s->principals);
}

/* One that two have is nobody's; who is left of them has it again. */
static void index__knows_who_is_left_of_two_that_had_the_same_principal(void **state)
{
	struct env *e = *state;

	put(e, 1, P("a") AND P("b"), 1);
	put(e, 2, P("c"), 1);
	put(e, 2, P("b") AND P("c"), 2);
	assert_int_equal(owner(e, P("b")), 0);
	assert_int_equal(owner(e, P("a")), fix_uid(1).b[0]);
	assert_int_equal(owner(e, P("c")), fix_uid(2).b[0]);
	put(e, 1, P("a"), 2);
	assert_int_equal(owner(e, P("b")), fix_uid(2).b[0]);
	put(e, 1, P("a") AND P("b"), 3);
	assert_int_equal(owner(e, P("b")), 0);
	take_away(e, 2);
	assert_int_equal(owner(e, P("b")), fix_uid(1).b[0]);
	assert_int_equal(owner(e, P("c")), 0);
	put(e, 3, P("b"), 1);
	take_away(e, 1);
	assert_int_equal(owner(e, P("b")), fix_uid(3).b[0]);
	assert_int_equal(owner(e, P("a")), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, state_rig_setup, state_rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(index__of_many_tenants_is_not_made_anew_for_one_of_them),
		T(index__has_the_principals_of_the_document_in_force),
		T(index__knows_who_is_left_of_two_that_had_the_same_principal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The properties isolation rests on: names, and what counts as seen. */
#include "tests/testing.h"
#include "common/probe.h"
#include <errno.h>

static void probe__every_name_reads_back_as_itself(void **state)
{
	for (int p = 0; p < PROBE_PROPERTIES; p++) {
		enum probe_property back;

		assert_int_equal(probe_property_from_str(probe_property_to_str(p), &back), 0);
		assert_int_equal(back, p);
		assert_true(strlen(probe_property_text(p)) > 10);
	}
}

static void probe__numbers_and_names_that_are_none_are_answered(void **state)
{
	enum probe_property p = PROBE_DMABUF;

	assert_string_equal(probe_property_to_str(PROBE_PROPERTIES), "?");
	assert_string_equal(probe_property_text((enum probe_property)999), "?");
	assert_string_equal(probe_result_to_str((enum probe_result)4), "?");
	assert_int_equal(probe_property_from_str("PD-ISOLATION", &p), -ENOENT);
	assert_int_equal(probe_property_from_str("", &p), -ENOENT);
	assert_int_equal(p, PROBE_DMABUF);
}

static void probe__only_what_was_tried_and_held_counts(void **state)
{
	struct probe_subject s = {0};
	enum probe_property missing;

	assert_true(probe_missing(&s, 1u << PROBE_MR_RANGE, &missing));
	assert_int_equal(missing, PROBE_MR_RANGE);
	s.findings[PROBE_MR_RANGE].result = PROBE_NOT_SUPPORTED;
	assert_true(probe_missing(&s, 1u << PROBE_MR_RANGE, &missing));
	s.findings[PROBE_MR_RANGE].result = PROBE_NOT_ENFORCED;
	assert_true(probe_missing(&s, 1u << PROBE_MR_RANGE, &missing));
	s.findings[PROBE_MR_RANGE].result = PROBE_ENFORCED;
	assert_false(probe_missing(&s, 1u << PROBE_MR_RANGE, &missing));
	assert_true(probe_missing(&s, PROBE_ALL, &missing));
	assert_int_equal(missing, PROBE_PD_ISOLATION);
	assert_false(probe_missing(&s, 0, &missing));
}

static void probe__a_changed_answer_is_noticed_and_changed_words_are_not(void **state)
{
	struct probe_subject a = {.name = "rxe0"}, b = {.name = "rxe0", .revoke_p50_ns = 7};
	enum probe_property which;

	snprintf(b.findings[0].seen, sizeof(b.findings[0].seen), "other words");
	assert_true(probe_same_answers(&a, &b, &which));
	b.findings[PROBE_QP_REUSE].result = PROBE_ENFORCED;
	assert_false(probe_same_answers(&a, &b, &which));
	assert_int_equal(which, PROBE_QP_REUSE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(probe__every_name_reads_back_as_itself),
		cmocka_unit_test(probe__numbers_and_names_that_are_none_are_answered),
		cmocka_unit_test(probe__only_what_was_tried_and_held_counts),
		cmocka_unit_test(probe__a_changed_answer_is_noticed_and_changed_words_are_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

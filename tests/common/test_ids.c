/* SPDX-License-Identifier: Apache-2.0 */
/* UIDs, names and SPIFFE IDs. */
#include "tests/testing.h"
#include "common/ids.h"
#include "common/util.h"
#include <errno.h>

static void uid__prints_and_reads_back(void **state)
{
	struct ros2_uid a = ros2_uid_new(), b = ros2_uid_new(), back;
	char s[ROS2_UID_STR_LEN];

	assert_false(ros2_uid_eq(&a, &b));
	assert_false(ros2_uid_is_zero(&a));
	ros2_uid_to_str(&a, s);
	assert_int_equal(strlen(s), 32);
	assert_int_equal(ros2_uid_from_str(s, &back), 0);
	assert_true(ros2_uid_eq(&a, &back));
	assert_int_equal(ros2_uid_from_bytes(a.b, 16, &back), 0);
	assert_true(ros2_uid_eq(&a, &back));
}

static void uid__refuses_other_forms(void **state)
{
	static const char *const bad[] = {
		"",
		"0",
		"0123456789abcdef0123456789abcde",
		"0123456789abcdef0123456789abcdef0",
		"0123456789ABCDEF0123456789abcdef",
		"0123456789abcdef0123456789abcdeg",
		"01234567-89abcdef0123456789abcde",
		" 0123456789abcdef0123456789abcde",
	};
	struct ros2_uid u = {{7}};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(ros2_uid_from_str(bad[i], &u), -EINVAL);
	assert_int_equal(ros2_uid_from_bytes("123456789012345", 15, &u), -EINVAL);
	assert_int_equal(ros2_uid_from_bytes("12345678901234567", 17, &u), -EINVAL);
	assert_int_equal(ros2_uid_from_bytes(NULL, 0, &u), -EINVAL);
	assert_int_equal(u.b[0], 7);
}

static void name__follows_rfc_1123_labels(void **state)
{
	static const struct {
		const char *name;
		bool ok;
	} rows[] = {
		{"a", true},    {"0", true},           {"alpha-1", true}, {"a--b", true},
		{"", false},    {"-a", false},         {"a-", false},     {"Alpha", false},
		{"a.b", false}, {"a_b", false},        {"a/b", false},    {"..", false},
		{"a b", false}, {"gr\xc3\xbc", false},
	};
	char long_name[66];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(ros2_name_valid(rows[i].name), rows[i].ok);
	memset(long_name, 'a', sizeof(long_name));
	long_name[63] = '\0';
	assert_true(ros2_name_valid(long_name));
	long_name[63] = 'a';
	long_name[64] = '\0';
	assert_false(ros2_name_valid(long_name));
}

static void spiffe__accepts_and_refuses_what_the_standard_says(void **state)
{
	static const struct {
		const char *id;
		bool ok;
	} rows[] = {
		{"spiffe://example.org/tenant/alpha", true},
		{"spiffe://a/b", true},
		{"spiffe://a-b_c.1/X.Y-Z_1", true},
		{"spiffe://a/...", true},
		{"spiffe://a", false},
		{"spiffe://a/", false},
		{"spiffe:///b", false},
		{"spiffe://", false},
		{"SPIFFE://a/b", false},
		{"http://a/b", false},
		{"spiffe://A/b", false},
		{"spiffe://a:80/b", false},
		{"spiffe://u@a/b", false},
		{"spiffe://a//b", false},
		{"spiffe://a/b/", false},
		{"spiffe://a/./b", false},
		{"spiffe://a/b/..", false},
		{"spiffe://a/%2e%2e", false},
		{"spiffe://a/b?q", false},
		{"spiffe://a/b#f", false},
		{"spiffe://a/b c", false},
		{"", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (ros2_spiffe_valid(rows[i].id, NULL, NULL) != rows[i].ok)
			fail_msg("%s: expected %d", rows[i].id, rows[i].ok);
	}
}

static void spiffe__tells_domain_and_path(void **state)
{
	const char *id = "spiffe://example.org/tenant/alpha", *path;
	char longest[ROS2_SPIFFE_MAX + 2];
	size_t n;

	assert_true(ros2_spiffe_valid(id, &n, &path));
	assert_int_equal(n, strlen("example.org"));
	assert_string_equal(path, "/tenant/alpha");
	memset(longest, 'a', sizeof(longest));
	memcpy(longest, "spiffe://a/", 11);
	longest[ROS2_SPIFFE_MAX] = '\0';
	assert_true(ros2_spiffe_valid(longest, NULL, NULL));
	longest[ROS2_SPIFFE_MAX] = 'a';
	longest[ROS2_SPIFFE_MAX + 1] = '\0';
	assert_false(ros2_spiffe_valid(longest, NULL, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uid__prints_and_reads_back),
		cmocka_unit_test(uid__refuses_other_forms),
		cmocka_unit_test(name__follows_rfc_1123_labels),
		cmocka_unit_test(spiffe__accepts_and_refuses_what_the_standard_says),
		cmocka_unit_test(spiffe__tells_domain_and_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

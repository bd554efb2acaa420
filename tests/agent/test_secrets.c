/* SPDX-License-Identifier: Apache-2.0 */
/* Which directory of secrets an agent starts with, and what it says of every other. */
#include "agent/secrets.h"
#include "common/util.h"
#include "tests/testing.h"
#include <sys/stat.h>

static void secrets__are_only_where_nobody_else_comes_in(void **state)
{
	static const struct {
		mode_t mode;
		int r;
	} table[] = {
		{0700, 0},       {0500, 0},       {0750, 0},       {0710, 0},
		{0770, -EACCES}, {0720, -EACCES}, {0701, -EACCES}, {0704, -EACCES},
		{0702, -EACCES}, {0755, -EACCES}, {0777, -EACCES},
	};
	const char *dir = *state;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct ros2_err err = ROS2_ERR_INIT;

		assert_int_equal(chmod(dir, table[i].mode), 0);
		assert_int_equal(agent_secrets_check(dir, &err), table[i].r);
		if (table[i].r && (!strstr(err.msg, dir) || !strstr(err.msg, "chmod g-w,o=")))
			fail_msg("%s", err.msg);
	}
	assert_int_equal(chmod(dir, 0700), 0);
}

static void secrets__directory_must_be_there_and_be_one(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/none", (char *)*state);
	assert_int_equal(agent_secrets_check(path, &err), -ENOENT);
	assert_non_null(strstr(err.msg, path));
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(agent_secrets_check(path, &err), -ENOTDIR);
}

/* Only root can give a directory away. */
static void secrets__of_another_owner_are_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (geteuid() != 0 || chown(*state, 4711, 0) < 0)
		skip();
	assert_int_equal(agent_secrets_check(*state, &err), -EACCES);
	assert_non_null(strstr(err.msg, "found uid 4711"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, testing_dir_setup, testing_dir_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(secrets__are_only_where_nobody_else_comes_in),
		T(secrets__directory_must_be_there_and_be_one),
		T(secrets__of_another_owner_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

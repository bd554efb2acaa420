/* SPDX-License-Identifier: Apache-2.0 */
/* Named errors and the words that travel with them. */
#include "tests/testing.h"
#include "common/err.h"
#include <errno.h>

static void status__every_name_reads_back_as_itself(void **state)
{
	for (int s = 0; s < ROS2_STATUS_COUNT; s++) {
		enum ros2_status back;

		assert_int_equal(ros2_status_from_str(ros2_status_to_str(s), &back), 0);
		assert_int_equal(back, s);
		assert_true(strlen(ros2_status_text(s)) > 0);
	}
}

static void status__every_errno_of_the_list_names_one_status(void **state)
{
	for (int s = 1; s < ROS2_STATUS_COUNT; s++) {
		int code = ros2_status_to_errno(s);

		assert_true(code < 0);
		assert_int_equal(ros2_status_from_errno(code), s);
	}
}

static void status__unknown_numbers_and_names_are_answered(void **state)
{
	enum ros2_status s = ROS2_BUSY;

	assert_string_equal(ros2_status_to_str(ROS2_STATUS_COUNT), "UNKNOWN");
	assert_string_equal(ros2_status_to_str((enum ros2_status) - 1), "UNKNOWN");
	assert_non_null(ros2_status_text((enum ros2_status)70000));
	assert_int_equal(ros2_status_to_errno(ROS2_STATUS_COUNT), -EIO);
	assert_int_equal(ros2_status_from_str("revoked", &s), -ENOENT);
	assert_int_equal(s, ROS2_BUSY);
	assert_int_equal(ros2_status_from_errno(-ENOTTY), ROS2_INTERNAL);
	assert_int_equal(ros2_status_from_errno(0), ROS2_OK);
}

static void err__keeps_code_status_and_words(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(ros2_err_set(&err, -ENOENT, "no %s", "thing"), -ENOENT);
	assert_int_equal(err.code, -ENOENT);
	assert_int_equal(err.status, ROS2_NOT_FOUND);
	assert_string_equal(err.msg, "no thing");
	assert_int_equal(ros2_err_named(&err, ROS2_REVOKED, "gone"), -EKEYREVOKED);
	assert_int_equal(err.status, ROS2_REVOKED);
	assert_int_equal(ros2_err_prefix(&err, "tenant %d", 7), -EKEYREVOKED);
	assert_string_equal(err.msg, "tenant 7: gone");
}

static void err__accepts_null(void **state)
{
	assert_int_equal(ros2_err_set(NULL, -EIO, "x"), -EIO);
	assert_int_equal(ros2_err_named(NULL, ROS2_BUSY, "x"), -EBUSY);
	assert_int_equal(ros2_err_prefix(NULL, "x"), 0);
}

static void err__cuts_long_words_and_terminates(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char words[2000];

	memset(words, 'a', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	ros2_err_set(&err, -EIO, "%s", words);
	assert_int_equal(strlen(err.msg), sizeof(err.msg) - 1);
	ros2_err_prefix(&err, "%s", words);
	assert_true(strlen(err.msg) < sizeof(err.msg));
	/* Words may quote the words that were there. */
	ros2_err_set(&err, -EIO, "first");
	ros2_err_set(&err, -EIO, "second after %s", err.msg);
	assert_string_equal(err.msg, "second after first");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status__every_name_reads_back_as_itself),
		cmocka_unit_test(status__every_errno_of_the_list_names_one_status),
		cmocka_unit_test(status__unknown_numbers_and_names_are_answered),
		cmocka_unit_test(err__keeps_code_status_and_words),
		cmocka_unit_test(err__accepts_null),
		cmocka_unit_test(err__cuts_long_words_and_terminates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words that travel with an error: a fixed-size, caller-owned place for one line that says what
 * was expected, what was found and what to do. Functions return 0 or negative errno; the words are
 * optional (NULL is accepted everywhere) and never thread-local.
 */
#ifndef ROS2_COMMON_ERR_H
#define ROS2_COMMON_ERR_H

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ros2_err {
	int code;                /* negative errno, 0 = no error */
	enum ros2_status status; /* the named error peers see; ROS2_OK when only errno is known */
	char msg[320];           /* one printable line of UTF-8, always terminated */
};

#define ROS2_ERR_INIT                                                                              \
	{                                                                                          \
		0                                                                                  \
	}

/* Writes the words and returns @code (negative errno), so that `return ros2_err_set(err, -EINVAL,
 * ...)` reads well. The named status becomes ros2_status_from_errno(code). @err may be NULL. */
int ros2_err_set(struct ros2_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Like ros2_err_set, for an error that has a name: the code becomes ros2_status_to_errno(status).
 */
int ros2_err_named(struct ros2_err *err, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the words that are there already. Returns err->code, or 0 when @err is
 * NULL. */
int ros2_err_prefix(struct ros2_err *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif

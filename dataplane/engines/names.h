/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a path may look like before any engine looks it up. This check is on the text only and the
 * same for every engine; that a lookup stays below the root is each engine's own duty and does not
 * rest on this one.
 */
#ifndef ROS2_DATAPLANE_ENGINES_NAMES_H
#define ROS2_DATAPLANE_ENGINES_NAMES_H

#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>

#define NAMES_NAME_MAX 255  /* bytes of one name */
#define NAMES_PATH_MAX 4095 /* bytes of a path, without NUL */

/* One name of a path; @p is not NUL-terminated there. */
struct names_part {
	const char *p;
	size_t len;
};

/* 0, or -ELIBBAD with words: empty names (so also a leading, a trailing or a double '/'), ".",
 * "..", a name over 255 bytes, a path over 4095. "" is allowed only with @root_ok. */
int names_check(const char *path, bool root_ok, struct ros2_err *err);
/* The next name of a checked path: moves *@path behind it. False at the end. */
bool names_next(const char **path, struct names_part *ret);
/* The last name of a checked, non-empty path, and how many bytes lie before it (0 = it lies in the
 * root; the '/' between is not counted). */
const char *names_last(const char *path, size_t *ret_parent_len);
/* A namespace's path as policies write it: like the others, but one leading '/' is skipped, "/" and
 * "" are the root. NULL after an error (-ELIBBAD in @err). */
const char *names_ns_path(const char *path, struct ros2_err *err);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the text of paths; see names.h. Never touches a file system. */
#include "dataplane/engines/names.h"
#include "dataplane/test_switches.h"

#include <errno.h>
#include <string.h>

bool names_next(const char **path, struct names_part *ret)
{
	if (**path == '\0')
		return false;
	ret->p = *path;
	ret->len = strcspn(*path, "/");
	*path += ret->len;
	if (**path == '/')
		(*path)++;
	return true;
}

static int part_check(const struct names_part *n, struct ros2_err *err)
{
	if (n->len == 0)
		return ros2_err_set(err, -ELIBBAD,
		                    "path: an empty name (expected NAME/NAME, no leading, trailing "
		                    "or double '/')");
	if (n->p[0] == '.' && (n->len == 1 || (n->len == 2 && n->p[1] == '.')))
		return ros2_err_set(err, -ELIBBAD, "path: the name \"%.*s\" is not allowed",
		                    (int)n->len, n->p);
	if (n->len > NAMES_NAME_MAX)
		return ros2_err_set(err, -ELIBBAD,
		                    "path: a name of %zu bytes, at most %d are allowed", n->len,
		                    NAMES_NAME_MAX);
	return 0;
}

int names_check(const char *path, bool root_ok, struct ros2_err *err)
{
	size_t len = strnlen(path, NAMES_PATH_MAX + 1);
	struct names_part part;

	if (DP_SWITCH(no_path_grammar))
		return 0;
	if (len > NAMES_PATH_MAX)
		return ros2_err_set(err, -ELIBBAD, "path: longer than %d bytes", NAMES_PATH_MAX);
	if (len == 0 && !root_ok)
		return ros2_err_set(err, -ELIBBAD,
		                    "path: empty, expected a name below the namespace");
	if (len > 0 && path[len - 1] == '/')
		return ros2_err_set(err, -ELIBBAD, "path: ends in '/', expected a name");
	while (names_next(&path, &part)) {
		int rc = part_check(&part, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

const char *names_last(const char *path, size_t *ret_parent_len)
{
	const char *slash = strrchr(path, '/');

	*ret_parent_len = slash ? (size_t)(slash - path) : 0;
	return slash ? slash + 1 : path;
}

const char *names_ns_path(const char *path, struct ros2_err *err)
{
	if (path[0] == '/')
		path++;
	return names_check(path, true, err) < 0 ? NULL : path;
}

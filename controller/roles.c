/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of the roles file: who may do what at this controller. A line is taken whole or the file
 * is refused by its number; nothing is skipped but blanks and comments, so that what a person reads
 * in the file is what holds.
 */
#include "common/util.h"
#include "controller/config.h"
#include "controller/ctl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\v\f";

struct roles_source {
	const char *trust_domain, *path;
	int line;
};

static int role_of_word(const char *w)
{
	static const enum ctl_role roles[] = {CTL_ADMIN, CTL_OPERATOR, CTL_AUDITOR};

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (strcmp(w, ctl_role_to_str(roles[i])) == 0)
			return (int)roles[i];
	return 0;
}

static int parse_line(char *line, const struct roles_source *src, struct config_role *ret,
                      struct ros2_err *err)
{
	char *save = NULL, *id = strtok_r(line, blanks, &save);
	char *word = strtok_r(NULL, blanks, &save);
	size_t domain_len;

	if (!word || strtok_r(NULL, blanks, &save))
		return ros2_err_set(err, -EINVAL, "%s:%d: expected \"SPIFFE-ID ROLE\"", src->path,
		                    src->line);
	if (!ros2_spiffe_valid(id, &domain_len, NULL))
		return ros2_err_set(err, -EINVAL, "%s:%d: \"%.100s\" is not a SPIFFE ID", src->path,
		                    src->line, id);
	if (domain_len != strlen(src->trust_domain) ||
	    strncmp(id + strlen("spiffe://"), src->trust_domain, domain_len) != 0)
		return ros2_err_set(err, -EINVAL, "%s:%d: \"%.100s\" is not of trust domain %s",
		                    src->path, src->line, id, src->trust_domain);
	ret->role = role_of_word(word);
	if (!ret->role)
		return ros2_err_set(err, -EINVAL,
		                    "%s:%d: \"%.40s\" is not a role: admin, operator or auditor",
		                    src->path, src->line, word);
	strcpy(ret->spiffe, id);
	ret->line = src->line;
	return 0;
}

/* @text ends with a NUL and is written to. */
static int parse_lines(char *text, struct roles_source *src, struct config_role *roles,
                       size_t *ret_n, struct ros2_err *err)
{
	size_t n = 0;
	int r = 0;

	for (char *line = text, *next; !r && line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		src->line++;
		line[strcspn(line, "#")] = '\0';
		line += strspn(line, blanks);
		if (!*line)
			continue;
		if (n == CONFIG_ROLES_MAX)
			r = ros2_err_set(err, -EFBIG, "%s:%d: more than %d roles", src->path,
			                 src->line, CONFIG_ROLES_MAX);
		else
			r = parse_line(line, src, &roles[n++], err);
	}
	*ret_n = n;
	return r;
}

static int by_id_and_line(const void *a, const void *b)
{
	const struct config_role *x = *(const struct config_role *const *)a;
	const struct config_role *y = *(const struct config_role *const *)b;
	int r = strcmp(x->spiffe, y->spiffe);

	return r ? r : (x->line > y->line) - (x->line < y->line);
}

/* Of two roles of one identity only one would hold, and a person reads both: who was given a lesser
 * one by a line below would have kept the other. */
static int check_one_each(const struct config_role *roles, size_t n, const char *path,
                          struct ros2_err *err)
{
	AUTO_FREE const struct config_role **v = calloc(n + 1, sizeof(*v));

	if (!v)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		v[i] = &roles[i];
	qsort(v, n, sizeof(*v), by_id_and_line);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(v[i]->spiffe, v[i - 1]->spiffe) && v[i]->role != v[i - 1]->role)
			return ros2_err_set(err, -EINVAL,
			                    "%s:%d: \"%.100s\" is %s in line %d: expected one role",
			                    path, v[i]->line, v[i]->spiffe,
			                    ctl_role_to_str((enum ctl_role)v[i - 1]->role),
			                    v[i - 1]->line);
	return 0;
}

/* At least 1: an empty file is an array, too. */
static size_t count_lines(const char *text, size_t len)
{
	size_t n = 1;

	for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + len - at))); at++)
		n++;
	return n;
}

int config_roles_parse(const char *text, size_t len, const char *trust_domain, const char *path,
                       struct config_role **ret, size_t *ret_n, struct ros2_err *err)
{
	AUTO_FREE struct config_role *roles =
		calloc(MIN(count_lines(text, len), CONFIG_ROLES_MAX), sizeof(*roles));
	AUTO_FREE char *copy = strndup(text, len);
	struct roles_source src = {.trust_domain = trust_domain, .path = path};
	size_t n;
	int r;

	if (!roles || !copy)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	r = parse_lines(copy, &src, roles, &n, err);
	/* The lines behind a NUL would not hold, though an editor shows them. */
	if (!r && strlen(copy) != len && memchr(text, '\0', len))
		r = ros2_err_set(err, -EINVAL, "%s:%d: a NUL byte: expected text", path, src.line);
	if (!r)
		r = check_one_each(roles, n, path, err);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(roles);
	*ret_n = n;
	return 0;
}

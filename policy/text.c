/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths are judged byte by byte and never resolved. The matcher goes back only to the last
 * wildcard, so its cost is bounded by the product of the two lengths.
 */
#include "policy/text.h"
#include "common/utf8.h"
#include "common/util.h"
#include "policy/image.h"
#include <string.h>

#define SEGMENT_MAX 255 /* NAME_MAX of the file systems below */

/* One segment of @n bytes, not ended by NUL. */
static const char *segment_fault(const char *s, size_t n)
{
	if (!n)
		return "has an empty segment (`//`, or `/` at an end)";
	if (n == 1 && s[0] == '.')
		return "has a segment `.`";
	if (n == 2 && s[0] == '.' && s[1] == '.')
		return "has a segment `..`";
	return n > SEGMENT_MAX ? "has a segment of more than 255 bytes" : NULL;
}

static const char *segments_fault(const char *s)
{
	for (;;) {
		size_t n = strcspn(s, "/");
		const char *fault = segment_fault(s, n);

		if (fault || !s[n])
			return fault;
		s += n + 1;
	}
}

const char *text_namespace_path_fault(const char *s)
{
	if (!*s || !strcmp(s, "."))
		return "would be the whole engine: name a directory under its root";
	if (*s == '/')
		return "is absolute: it must be relative to the engine's root";
	if (strlen(s) > POLICY_ROOT_MAX)
		return "is longer than 1023 bytes";
	if (!utf8_text_printable(s))
		return "has a control or hidden character";
	return segments_fault(s);
}

const char *text_root_fault(const char *s)
{
	if (strstr(s, "${"))
		return "has a placeholder: replace it before the document is applied";
	if (*s != '/')
		return "is not absolute: it must begin with `/`";
	if (!s[1])
		return "is the root of the machine: name a directory made for this";
	if (strlen(s) > POLICY_ROOT_MAX)
		return "is longer than 1023 bytes";
	if (!utf8_text_printable(s))
		return "has a control or hidden character";
	return segments_fault(s + 1);
}

const char *text_pattern_fault(const char *s)
{
	if (*s != '/')
		return "must begin with `/`, the top of the namespace";
	if (strlen(s) > POLICY_PATTERN_MAX)
		return "is longer than 255 bytes";
	if (!utf8_text_printable(s))
		return "has a control or hidden character";
	if (strpbrk(s, "?[]{}\\"))
		return "has one of `? [ ] { } \\`: only `*` and `**` are wildcards here";
	if (!s[1])
		return NULL;
	for (const char *p = strstr(s, "**"); p; p = strstr(p + 2, "**"))
		if (p[-1] != '/' || (p[2] && p[2] != '/'))
			return "has `**` beside other characters: it must be a whole segment";
	return segments_fault(s + 1);
}

static bool chars_valid(const char *s, const char *extra)
{
	size_t n = strlen(s);

	if (!n || n > POLICY_LABEL_MAX)
		return false;
	for (; *s; s++) {
		bool alnum = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		             (*s >= '0' && *s <= '9');

		if (!alnum && !strchr(extra, *s))
			return false;
	}
	return true;
}

bool text_label_key_valid(const char *s)
{
	return chars_valid(s, "._/-");
}

bool text_label_value_valid(const char *s)
{
	return chars_valid(s, "._-");
}

const char *text_question_path(const char *path)
{
	if (!path || strnlen(path, POLICY_PATH_MAX + 1) > POLICY_PATH_MAX)
		return NULL;
	if (*path == '/')
		path++;
	if (!*path)
		return path;
	for (const char *p = path; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return NULL;
	return segments_fault(path) ? NULL : path;
}

/* '*' within one segment. */
static bool segment_match(const char *p, size_t np, const char *t, size_t nt)
{
	size_t i = 0, j = 0, star = SIZE_MAX, star_j = 0;

	while (j < nt) {
		if (i < np && p[i] == '*') {
			star = i++;
			star_j = j;
		} else if (i < np && p[i] == t[j]) {
			i++;
			j++;
		} else if (star != SIZE_MAX) {
			i = star + 1;
			j = ++star_j;
		} else {
			return false;
		}
	}
	while (i < np && p[i] == '*')
		i++;
	return i == np;
}

static const char *after(const char *s, size_t n)
{
	return s[n] == '/' ? s + n + 1 : s + n;
}

bool text_pattern_match(const char *pattern, const char *path)
{
	const char *p = pattern + 1, *t = path, *star = NULL, *star_t = NULL;

	for (;;) {
		size_t np = strcspn(p, "/"), nt = strcspn(t, "/");

		if (np == 2 && p[0] == '*' && p[1] == '*') {
			p = star = after(p, np);
			star_t = t;
			if (!*p)
				return true;
		} else if (*p && *t && segment_match(p, np, t, nt)) {
			p = after(p, np);
			t = after(t, nt);
		} else if (!*p && !*t) {
			return true;
		} else if (star && *star_t) {
			star_t = after(star_t, strcspn(star_t, "/"));
			t = star_t;
			p = star;
		} else {
			return false;
		}
	}
}

bool text_pattern_below(const char *pattern, const char *dir)
{
	const char *p = pattern + 1;

	while (*dir) {
		size_t np = strcspn(p, "/"), nd = strcspn(dir, "/");

		if (np == 2 && p[0] == '*' && p[1] == '*')
			return true;
		if (!*p || !segment_match(p, np, dir, nd))
			return false;
		p = after(p, np);
		dir = after(dir, nd);
	}
	return *p;
}

bool text_path_within(const char *outer, const char *inner)
{
	size_t n = strlen(outer);

	return !strncmp(outer, inner, n) && (!inner[n] || inner[n] == '/');
}

int text_path_compare(const char *a, const char *b)
{
	for (;; a++, b++) {
		int ca = *a == '/' ? 1 : (unsigned char)*a, cb = *b == '/' ? 1 : (unsigned char)*b;

		if (ca != cb)
			return ca < cb ? -1 : 1;
		if (!ca)
			return 0;
	}
}

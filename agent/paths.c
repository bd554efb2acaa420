/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a path byte by byte; resolves nothing. The engine does so again with openat2. */
#include "agent/paths.h"
#include <string.h>

static int bad(struct ros2_err *err, const char *what)
{
	return ros2_err_named(err, ROS2_BAD_PATH, "path: %s", what);
}

/* Code point of the sequence at *@s, which is moved on; -1 when it is not UTF-8. */
static long next_code(const unsigned char **s)
{
	static const long least[] = {0, 0x80, 0x800, 0x10000};
	const unsigned char *p = *s;
	int more;
	long c;

	if (p[0] < 0x80) {
		*s = p + 1;
		return p[0];
	}
	if (p[0] < 0xc0 || p[0] > 0xf7)
		return -1;
	more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : 1;
	c = p[0] & (0x3f >> more);
	for (int i = 1; i <= more; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return -1;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return -1;
	*s = p + more + 1;
	return c;
}

static int check_segment(const char *s, size_t n, struct ros2_err *err)
{
	if (!n)
		return bad(err, "an empty segment (leading, doubled or trailing '/')");
	if (n > AGENT_SEGMENT_MAX)
		return bad(err, "a segment longer than 255 bytes");
	if ((n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
		return bad(err, "a '.' or '..' segment");
	return 0;
}

int agent_path_check(const char *path, bool root_ok, struct ros2_err *err)
{
	const unsigned char *p = (const unsigned char *)path;
	const char *segment = path;

	if (!path || !*path)
		return root_ok ? 0 : bad(err, "empty");
	if (strnlen(path, AGENT_PATH_MAX + 1) > AGENT_PATH_MAX)
		return bad(err, "longer than 4095 bytes");
	for (;;) {
		const char *at = (const char *)p;
		long c = next_code(&p);
		int r;

		if (c < 0)
			return bad(err, "not UTF-8");
		if (c == '/' || c == 0) {
			r = check_segment(segment, (size_t)(at - segment), err);
			if (r < 0 || c == 0)
				return r;
			segment = (const char *)p;
		} else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {
			return bad(err, "a control character");
		}
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder and the table of what is not shown. Must not depend on the locale. */
#include "common/utf8.h"
#include "common/util.h"
#include <string.h>

size_t utf8_decode(const char *s, size_t n, uint32_t *ret_cp)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *p = (const unsigned char *)s;
	size_t len;
	uint32_t cp;

	if (!n)
		return 0;
	if (p[0] < 0x80) {
		*ret_cp = p[0];
		return 1;
	}
	len = (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;
	if (!len || n < len)
		return 0;
	cp = p[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (p[i] & 0x3f);
	}
	if (cp < least[len] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
		return 0;
	*ret_cp = cp;
	return len;
}

/* U+200C and U+200D are not here: Persian, Indic scripts and joined emoji are written with them. */
static const struct {
	uint32_t first, last;
} hidden[] = {
	{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad}, /* soft hyphen */
	{0x61c, 0x61c},                                   /* Arabic letter mark */
	{0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
	{0xfdd0, 0xfdef}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
};

bool utf8_printable(uint32_t cp)
{
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (cp >= hidden[i].first && cp <= hidden[i].last)
			return false;
	return (cp & 0xfffe) != 0xfffe; /* the last two of each plane are no characters */
}

/* Length of the printable character at @s, 0 when there is none. */
static size_t printable_at(const char *s)
{
	uint32_t cp;
	size_t n = utf8_decode(s, strnlen(s, 4), &cp);

	return n && utf8_printable(cp) ? n : 0;
}

bool utf8_text_printable(const char *s)
{
	for (size_t n; *s; s += n) {
		n = printable_at(s);
		if (!n)
			return false;
	}
	return true;
}

size_t utf8_escape(const char *s, char *out, size_t max)
{
	static const char digits[] = "0123456789abcdef";
	size_t at = 0;

	while (*s) {
		size_t n = printable_at(s);
		unsigned char c = (unsigned char)*s;

		if (at + (n ? n : 4) >= max)
			break;
		if (n) {
			memcpy(out + at, s, n);
		} else {
			out[at] = '\\';
			out[at + 1] = 'x';
			out[at + 2] = digits[c >> 4];
			out[at + 3] = digits[c & 15];
		}
		at += n ? n : 4;
		s += n ? n : 1;
	}
	out[at] = '\0';
	return at;
}

void utf8_clean(char *s)
{
	while (*s) {
		size_t n = printable_at(s);

		if (!n)
			*s = '?';
		s += n ? n : 1;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How things look: aligned tables, JSON, YAML. Bytes that came from others are escaped before they
 * reach a terminal. */
#include "common/clock.h"
#include "common/utf8.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CELL_MAX 256

static const json_t *lookup(const json_t *item, const char *key)
{
	char part[64];

	while (item) {
		size_t n = strcspn(key, ".");

		snprintf(part, sizeof(part), "%.*s", (int)n, key);
		item = json_object_get(item, part);
		if (!key[n])
			return item;
		key += n + 1;
	}
	return NULL;
}

static void format_bytes(uint64_t v, char *out)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	size_t u = 0;
	double d = (double)v;

	while (d >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		d /= 1024;
		u++;
	}
	snprintf(out, CELL_MAX, u && d < 100 ? "%.1f%s" : "%.0f%s", d, units[u]);
}

static void format_ns(uint64_t ns, char *out)
{
	if (ns < 10000)
		snprintf(out, CELL_MAX, "%" PRIu64 "ns", ns);
	else if (ns < 10 * NS_PER_MS)
		snprintf(out, CELL_MAX, "%.1fus", (double)ns / 1e3);
	else if (ns < 10 * NS_PER_S)
		snprintf(out, CELL_MAX, "%.1fms", (double)ns / 1e6);
	else if (ns < 600 * NS_PER_S)
		snprintf(out, CELL_MAX, "%.0fs", (double)ns / 1e9);
	else if (ns < 120 * 60 * NS_PER_S)
		snprintf(out, CELL_MAX, "%.0fm", (double)ns / 60e9);
	else if (ns < 48 * 3600 * NS_PER_S)
		snprintf(out, CELL_MAX, "%.1fh", (double)ns / 3600e9);
	else
		snprintf(out, CELL_MAX, "%.0fd", (double)ns / 86400e9);
}

/* What is farther off than a clock goes is as far as it goes, not near again. */
static uint64_t in_ns(uint64_t v, uint64_t unit_ns)
{
	uint64_t ns;

	return __builtin_mul_overflow(v, unit_ns, &ns) ? UINT64_MAX : ns;
}

static void format_number(const struct ctl_column *col, uint64_t v, char *out)
{
	uint64_t now = clock_unix_ns();

	/* A moment that has not been. */
	if (!v && (col->as == CTL_AGE_UNIX_NS || col->as == CTL_TIME_UNIX_NS ||
	           col->as == CTL_TIME_UNIX_S)) {
		snprintf(out, CELL_MAX, "-");
		return;
	}
	switch (col->as) {
	case CTL_BYTES:
		format_bytes(v, out);
		break;
	case CTL_AGE_UNIX_NS:
		/* Nobody wants to know an age to the millisecond. */
		v = now > v ? now - v : 0;
		if (v < 10 * NS_PER_S)
			snprintf(out, CELL_MAX, "%.1fs", (double)v / 1e9);
		else
			format_ns(v, out);
		break;
	case CTL_TIME_UNIX_S:
	case CTL_TIME_UNIX_NS: {
		char when[32];

		clock_format_unix_ns(col->as == CTL_TIME_UNIX_NS ? v : in_ns(v, NS_PER_S), when);
		snprintf(out, CELL_MAX, "%s", when);
		break;
	}
	case CTL_NS:
		format_ns(v, out);
		break;
	case CTL_MS:
		format_ns(in_ns(v, NS_PER_MS), out);
		break;
	default:
		snprintf(out, CELL_MAX, "%" PRIu64, v);
	}
}

/* What looks like nothing: Unicode's Zs, and letters without a shape. */
static bool is_blank(uint32_t cp)
{
	static const uint32_t others[] = {0xa0,   0x115f, 0x1160, 0x1680, 0x2800,
	                                  0x202f, 0x205f, 0x3000, 0x3164, 0xffa0};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (cp == others[i])
			return true;
	return cp == ' ' || (cp >= 0x2000 && cp <= 0x200a);
}

static size_t show_bytes(const char *s, size_t n, char *out, size_t max)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, max - at, "\\x%02x", (unsigned char)s[i]);
	return at;
}

/* What does not fit says so. Blanks part columns: where another stands behind them (@inner), those
 * that could pass for the end of a cell, or for one, are shown as bytes. */
static size_t put_text(const char *s, bool inner, char *out, size_t max)
{
	static const char more[] = "...";
	bool behind_blank = true;
	size_t at = 0, n;

	for (; *s; s += n) {
		char one[5] = "", shown[4 * 4 + 1];
		uint32_t cp = 0;
		size_t len;

		n = MAX(utf8_decode(s, strnlen(s, 4), &cp), (size_t)1);
		memcpy(one, s, n);
		len = inner && behind_blank && is_blank(cp)
		              ? show_bytes(s, n, shown, sizeof(shown))
		              : utf8_escape(one, shown, sizeof(shown));
		behind_blank = is_blank(cp);
		if (at + len + sizeof(more) > max) {
			memcpy(out + at, more, sizeof(more));
			return at + sizeof(more) - 1;
		}
		memcpy(out + at, shown, len);
		at += len;
	}
	out[at] = '\0';
	return at;
}

/* "a,b,c,...": a name is whole, or not there. */
static void join(const json_t *list, bool inner, char out[CELL_MAX])
{
	size_t n = 0, i;
	json_t *v;

	out[0] = 0;
	json_array_foreach((json_t *)list, i, v)
	{
		char name[CELL_MAX];
		size_t len = json_is_string(v)
		                     ? put_text(json_string_value(v), inner, name, sizeof(name))
		                     : 0;
		bool fits = n + len + sizeof(",,...") <= CELL_MAX;

		if (!len)
			continue;
		n += (size_t)snprintf(out + n, CELL_MAX - n, "%s%s", n ? "," : "",
		                      fits ? name : "...");
		if (!fits)
			return;
	}
}

/* @inner: another column stands behind it. */
static void cell(const struct ctl_column *col, bool inner, const json_t *item, char out[CELL_MAX])
{
	const json_t *v = lookup(item, col->key);

	if (json_is_integer(v))
		format_number(col, (uint64_t)json_integer_value(v), out);
	else if (json_is_string(v) && json_string_length(v) && col->as == CTL_SHORT_ID)
		utf8_escape(json_string_value(v), out, 9 + 4);
	else if (json_is_string(v) && json_string_length(v))
		put_text(json_string_value(v), inner, out, CELL_MAX);
	else if (json_is_array(v) && json_array_size(v))
		join(v, inner, out);
	else if (col->as == CTL_YESNO)
		snprintf(out, CELL_MAX, "%s", json_is_true(v) ? "yes" : "no");
	else if (col->as == CTL_NUMBER || col->as == CTL_BYTES)
		snprintf(out, CELL_MAX, "0");
	else
		snprintf(out, CELL_MAX, "-");
}

static void row(const struct ctl_column *columns, size_t n, const json_t *item,
                const struct ctl_widths *w)
{
	char text[CELL_MAX];

	for (size_t k = 0; k < n; k++) {
		const char *shown = columns[k].title;

		if (item) {
			cell(&columns[k], k + 1 < n, item, text);
			shown = text;
		}
		printf("%-*s%s", k + 1 < n ? (int)w->of[k] + 3 : 0, shown, k + 1 < n ? "" : "\n");
	}
}

static void print_rows(const struct ctl_column *columns, const json_t *items, bool wide,
                       struct ctl_widths *w)
{
	bool begins = w->of[0] == 0;
	char text[CELL_MAX];
	size_t n = 0, i;
	json_t *item;

	for (; columns[n].title && n < CTL_COLUMNS_MAX && (wide || !columns[n].wide); n++)
		w->of[n] = MAX(w->of[n], strlen(columns[n].title));
	json_array_foreach((json_t *)items, i, item)
	{
		for (size_t k = 0; k < n; k++) {
			cell(&columns[k], k + 1 < n, item, text);
			w->of[k] = MAX(w->of[k], strlen(text));
		}
	}
	if (begins)
		row(columns, n, NULL, w);
	json_array_foreach((json_t *)items, i, item) row(columns, n, item, w);
}

void ctl_print_columns(const struct ctl_column *columns, const json_t *items, bool wide)
{
	struct ctl_widths w = {0};

	print_rows(columns, items, wide, &w);
}

void ctl_print_more(const struct ctl_column *columns, const json_t *items, struct ctl_widths *w)
{
	print_rows(columns, items, false, w);
}

void ctl_print_table(const struct ctl_column *columns, const json_t *items)
{
	ctl_print_columns(columns, items, false);
}

static bool is_leaf(const json_t *v)
{
	return !(json_is_object(v) && json_object_size(v)) &&
	       !(json_is_array(v) && json_array_size(v));
}

/* Lines and tabs of printable text: nothing that a terminal would take for a command. */
static bool shows_as_it_is(const char *s)
{
	for (size_t n; *s; s += n) {
		uint32_t cp = 0;

		n = utf8_decode(s, strnlen(s, 4), &cp);
		if (!n || (!utf8_printable(cp) && cp != '\n' && cp != '\t'))
			return false;
	}
	return true;
}

/* JSON leaves C1 controls and directional overrides as they are: then everything beyond ASCII is
 * written as \uNNNN. malloc'd; NULL without memory. */
static char *dump(const json_t *v, size_t flags)
{
	char *text = json_dumps(v, flags | JSON_ENCODE_ANY);

	if (text && !shows_as_it_is(text)) {
		free(text);
		text = json_dumps(v, flags | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	}
	return text;
}

/* Not as JSON has it: of a character beyond U+FFFF that has two halves, and DEL as it is. Those who
 * read YAML refuse both, and with them all of the document. */
static void yaml_quoted(const char *s, size_t len)
{
	putchar('"');
	for (size_t at = 0, n; at < len; at += n) {
		uint32_t cp = 0;

		n = MAX(utf8_decode(s + at, len - at, &cp), (size_t)1);
		if (cp == '"' || cp == '\\')
			printf("\\%c", (char)cp);
		else if (utf8_printable(cp))
			printf("%.*s", (int)n, s + at);
		else
			printf(cp <= 0xff ? "\\x%02x" : "\\U%08x", cp);
	}
	puts("\"");
}

static void yaml_leaf(const json_t *v, int indent)
{
	const char *s = json_string_value(v), *nl = s ? strchr(s, '\n') : NULL;
	char *text;

	if (s && (strlen(s) != json_string_length(v) || !shows_as_it_is(s))) {
		yaml_quoted(s, json_string_length(v));
		return;
	}

	/* A document within: block style, kept to the byte. Its indent is told by its first line,
	 * which libyaml does not take when a tab follows. */
	if (nl && nl[1] && *s != ' ' && *s != '\t' && *s != '\n') {
		size_t len = strlen(s);

		puts(s[len - 1] != '\n' ? "|-" : s[len - 2] == '\n' ? "|+" : "|");
		while (*s) {
			size_t n = strcspn(s, "\n");

			printf("%*s%.*s\n", indent + 2, "", (int)n, s);
			s += n + (s[n] == '\n');
		}
		return;
	}
	/* JSON scalars and empty containers are YAML. */
	text = dump(v, 0);
	puts(text ? text : "null");
	free(text);
}

void ctl_print_yaml(const json_t *v, int indent)
{
	const char *key;
	json_t *child;
	size_t i;

	if (json_is_object(v)) {
		json_object_foreach((json_t *)v, key, child)
		{
			printf("%*s%s:%s", indent, "", key, is_leaf(child) ? " " : "\n");
			if (is_leaf(child))
				yaml_leaf(child, indent);
			else
				ctl_print_yaml(child, indent + 2);
		}
		return;
	}
	json_array_foreach((json_t *)v, i, child)
	{
		printf("%*s-%s", indent, "", is_leaf(child) ? " " : "\n");
		if (is_leaf(child))
			yaml_leaf(child, indent);
		else
			ctl_print_yaml(child, indent + 2);
	}
}

void ctl_print_doc(const struct ctl *c, json_t *doc)
{
	if (c->output == CTL_YAML) {
		ctl_print_yaml(doc, 0);
	} else {
		char *text = dump(doc, JSON_INDENT(2));

		puts(text ? text : "null");
		free(text);
	}
	json_decref(doc);
}

void ctl_print_line(const struct ctl *c, json_t *doc)
{
	char *text;

	if (c->output == CTL_YAML) {
		puts("---");
		ctl_print_yaml(doc, 0);
		json_decref(doc);
		return;
	}
	text = dump(doc, JSON_COMPACT);
	puts(text ? text : "null");
	free(text);
	json_decref(doc);
}

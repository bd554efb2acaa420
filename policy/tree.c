/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml's events become trees. Recursion is bounded by POLICY_DEPTH_MAX; libyaml counts in
 * characters, documents are cut out of the source in bytes, so positions are converted once per
 * document.
 */
#include "policy/tree.h"
#include "common/utf8.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define BOM     "\xef\xbb\xbf" /* the byte order mark, which some editors begin a text with */
#define BOM_LEN 3

struct tree_reader {
	yaml_parser_t yaml;
	const struct policy_source *src; /* borrowed */
	struct policy_diags *diags;      /* borrowed */
	struct arena *arena;             /* of the present document */
	size_t nodes;
	bool began;
	/* how far characters have been counted, and which byte that is */
	size_t at_char, at_byte;
	size_t after; /* byte after the previous document */
	/* how far lines have been counted */
	size_t line_byte;
	int line;
	size_t bom; /* bytes of a byte order mark: not of the text */
};

static struct diag_at position(const struct tree_reader *r, yaml_mark_t m)
{
	int base = r->src->first_line > 0 ? r->src->first_line : 1;

	return (struct diag_at){r->src->name, base + (int)m.line, (int)m.column + 1};
}

static int refuse(struct tree_reader *r, yaml_mark_t m, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(struct tree_reader *r, yaml_mark_t m, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diags_vadd(r->diags, POLICY_ERROR, position(r, m), fmt, ap);
	va_end(ap);
	return -EINVAL;
}

bool node_is_null(const struct node *n)
{
	return n->type == NODE_SCALAR && n->plain &&
	       (!n->len || !strcmp(n->s, "~") || !strcasecmp(n->s, "null"));
}

const struct node *node_get(const struct node *map, const char *key)
{
	if (map->type != NODE_MAP)
		return NULL;
	for (const struct node *c = map->first; c; c = c->next)
		if (!strcmp(c->key, key))
			return c;
	return NULL;
}

int tree_reader_new(const struct policy_source *src, struct policy_diags *diags,
                    struct tree_reader **ret)
{
	struct tree_reader *r = calloc(1, sizeof(*r));
	/* libyaml asserts that there is text, and an empty one may come without. */
	const char *text = src->text ? src->text : "";

	if (!r)
		return -ENOMEM;
	if (!yaml_parser_initialize(&r->yaml)) {
		free(r);
		return -ENOMEM;
	}
	r->src = src;
	r->diags = diags;
	r->line = src->first_line > 0 ? src->first_line : 1;
	yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
	/* Told the encoding it does not look for a mark, and would take it for text. */
	r->bom = src->len >= BOM_LEN && !memcmp(text, BOM, BOM_LEN) ? BOM_LEN : 0;
	r->at_byte = r->after = r->bom;
	yaml_parser_set_input_string(&r->yaml, (const unsigned char *)text + r->bom,
	                             src->len - r->bom);
	*ret = r;
	return 0;
}

void tree_reader_free(struct tree_reader *r)
{
	if (!r)
		return;
	yaml_parser_delete(&r->yaml);
	free(r);
}

/* Byte offset of a character; marks only ever go forward. */
static size_t byte_of(struct tree_reader *r, size_t index)
{
	const char *t = r->src->text;

	while (r->at_char < index && r->at_byte < r->src->len) {
		r->at_byte++;
		while (r->at_byte < r->src->len && ((unsigned char)t[r->at_byte] & 0xc0) == 0x80)
			r->at_byte++;
		r->at_char++;
	}
	return r->at_byte;
}

/* Does a line end with the byte at @i? As libyaml counts: \n, \r\n as one, \r. (Its three other
 * line ends are refused, see refuse_hidden.) */
static bool ends_line(const struct policy_source *src, size_t i)
{
	const char *t = src->text;

	return t[i] == '\n' || (t[i] == '\r' && !(i + 1 < src->len && t[i + 1] == '\n'));
}

/* What is found by bytes, a reader error for one, has an offset and no mark. */
static yaml_mark_t mark_of_byte(const struct tree_reader *r, size_t offset)
{
	yaml_mark_t m = {0};

	for (size_t i = r->bom; i < offset && i < r->src->len; i++) {
		if (ends_line(r->src, i)) {
			m.line++;
			m.column = 0;
		} else if (((unsigned char)r->src->text[i] & 0xc0) != 0x80) {
			m.column++;
		}
	}
	return m;
}

static int syntax_error(struct tree_reader *r)
{
	const yaml_parser_t *p = &r->yaml;
	const char *what = p->problem ? p->problem : "unknown problem";
	char begun[32] = "";
	size_t byte;

	if (p->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	if (p->error == YAML_READER_ERROR)
		return refuse(r, mark_of_byte(r, r->bom + p->problem_offset),
		              "not readable as UTF-8 YAML: %s", what);
	byte = byte_of(r, p->problem_mark.index);
	if (byte < r->src->len && r->src->text[byte] == '\t')
		return refuse(r, p->problem_mark,
		              "not valid YAML: found a tab: indent with spaces");
	/* An end that is missing shows far below: where was the beginning? */
	if (p->context && p->context_mark.line != p->problem_mark.line)
		snprintf(begun, sizeof(begun), ", begun in line %d",
		         position(r, p->context_mark).line);
	return refuse(r, p->problem_mark, "not valid YAML: %s%s%s%s", what, p->context ? " " : "",
	              p->context ? p->context : "", begun);
}

static int next_event(struct tree_reader *r, yaml_event_t *ret)
{
	return yaml_parser_parse(&r->yaml, ret) ? 0 : syntax_error(r);
}

static int node_new(struct tree_reader *r, const yaml_event_t *e, enum node_type type,
                    struct node **ret)
{
	struct diag_at at = position(r, e->start_mark);
	struct node *n;

	if (++r->nodes > TREE_NODES_MAX)
		return refuse(r, e->start_mark, "more than %d values in one document",
		              TREE_NODES_MAX);
	n = arena_alloc(r->arena, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->type = type;
	n->line = at.line;
	n->col = at.col;
	*ret = n;
	return 0;
}

/* Anchors and tags change what a text means far from where it stands; a policy must mean what it
 * shows. */
static void refuse_decoration(struct tree_reader *r, const yaml_event_t *e, const void *anchor,
                              const void *tag)
{
	if (anchor)
		refuse(r, e->start_mark, "anchors (`&`) are not accepted: write the value out");
	if (tag)
		refuse(r, e->start_mark, "tags (`!`) are not accepted: write the plain value");
}

static int scalar_node(struct tree_reader *r, const yaml_event_t *e, struct node **ret)
{
	const char *s = (const char *)e->data.scalar.value;
	struct node *n;
	int rc = node_new(r, e, NODE_SCALAR, &n);

	if (rc < 0)
		return rc;
	refuse_decoration(r, e, e->data.scalar.anchor, e->data.scalar.tag);
	n->len = strlen(s);
	if (n->len != e->data.scalar.length)
		refuse(r, e->start_mark, "a value with a NUL byte is not accepted");
	n->s = arena_strndup(r->arena, s, n->len);
	n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	*ret = n;
	return n->s ? 0 : -ENOMEM;
}

static int build(struct tree_reader *r, const yaml_event_t *e, int depth, struct node **ret);

/* One key of a mapping has been read as @e: takes it into @key. */
static int take_key(struct tree_reader *r, const yaml_event_t *e, const struct node *map,
                    struct node **key)
{
	const struct node *same;
	char q[DIAG_QUOTE_MAX];
	int rc;

	if (e->type != YAML_SCALAR_EVENT)
		return refuse(r, e->start_mark,
		              "expected a plain word as key, found a list, mapping or alias");
	rc = scalar_node(r, e, key);
	if (rc < 0)
		return rc;
	if (map->n >= TREE_KEYS_MAX)
		return refuse(r, e->start_mark, "more than %d keys in one mapping", TREE_KEYS_MAX);
	same = node_get(map, (*key)->s);
	if (same)
		refuse(r, e->start_mark, "duplicate key %s: it is already given in line %d%s",
		       diag_quote((*key)->s, q), same->key_line,
		       strcmp((*key)->s, "apiVersion")
		               ? ""
		               : "; between two documents stands a line `---`");
	return 0;
}

static int build_children(struct tree_reader *r, struct node *parent, int depth)
{
	struct node **tail = &parent->first, *key = NULL, *child = NULL;
	bool map = parent->type == NODE_MAP;
	yaml_event_t e;
	int rc;

	for (;;) {
		rc = next_event(r, &e);
		if (rc < 0)
			return rc;
		if (e.type == YAML_MAPPING_END_EVENT || e.type == YAML_SEQUENCE_END_EVENT) {
			yaml_event_delete(&e);
			return 0;
		}
		if (map && !key) {
			rc = take_key(r, &e, parent, &key);
			yaml_event_delete(&e);
			if (rc < 0)
				return rc;
			continue;
		}
		rc = build(r, &e, depth, &child);
		yaml_event_delete(&e);
		if (rc < 0)
			return rc;
		if (map) {
			child->key = key->s;
			child->key_line = key->line;
			child->key_col = key->col;
			key = NULL;
		}
		*tail = child;
		tail = &child->next;
		parent->n++;
	}
}

static int build_collection(struct tree_reader *r, const yaml_event_t *e, int depth,
                            struct node **ret)
{
	bool map = e->type == YAML_MAPPING_START_EVENT;
	struct node *n;
	int rc;

	if (depth >= POLICY_DEPTH_MAX)
		return refuse(r, e->start_mark, "nested deeper than %d levels", POLICY_DEPTH_MAX);
	if (map)
		refuse_decoration(r, e, e->data.mapping_start.anchor, e->data.mapping_start.tag);
	else
		refuse_decoration(r, e, e->data.sequence_start.anchor, e->data.sequence_start.tag);
	rc = node_new(r, e, map ? NODE_MAP : NODE_LIST, &n);
	if (rc < 0)
		return rc;
	*ret = n;
	return build_children(r, n, depth + 1);
}

static int build(struct tree_reader *r, const yaml_event_t *e, int depth, struct node **ret)
{
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return scalar_node(r, e, ret);
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		return build_collection(r, e, depth, ret);
	case YAML_ALIAS_EVENT:
		return refuse(
			r, e->start_mark,
			"aliases (`*`) are not accepted: write the value out, in quotes if it "
			"begins with `*`");
	default:
		return refuse(r, e->start_mark, "not valid YAML: unexpected end of the document");
	}
}

/* Behind '---' or '...', what is blank belongs to that line, whatever follows: a tab is white space
 * there, and at the begin of a text an error. */
static size_t behind_marker(const char *t, size_t from, size_t to)
{
	size_t i = from;

	while (i < to && (t[i] == ' ' || t[i] == '\t' || t[i] == '\r'))
		i++;
	return i < to && t[i] == '\n' ? i + 1 : i;
}

/* A text that begins without a marker begins with its indentation. */
static void cut_text(struct tree_reader *r, size_t from, size_t to, struct tree_doc *ret)
{
	const char *t = r->src->text;

	if (from > r->bom)
		from = behind_marker(t, from, to);
	while (to > from && memchr(" \t\r\n", t[to - 1], 4))
		to--;
	for (; r->line_byte < from; r->line_byte++)
		r->line += ends_line(r->src, r->line_byte);
	ret->text = t + from;
	ret->text_len = to - from;
	ret->line = r->line;
}

/* From after the document-start event to its end. */
static int read_document(struct tree_reader *r, size_t from, struct tree_doc *ret)
{
	yaml_event_t e;
	int rc = next_event(r, &e);

	if (rc < 0)
		return rc;
	rc = build(r, &e, 0, &ret->root);
	yaml_event_delete(&e);
	if (rc < 0)
		return rc;
	rc = next_event(r, &e);
	if (rc < 0)
		return rc;
	cut_text(r, from, byte_of(r, e.start_mark.index), ret);
	r->after = byte_of(r, e.end_mark.index);
	yaml_event_delete(&e);
	return 1;
}

/* %TAG serves tags only, which are refused anyway, and libyaml's time grows with the square of
 * their number: the reader never gets to see one. Looks behind every byte that ends a line in
 * YAML 1.1: \n, \r, U+0085, U+2028, U+2029; and behind the byte order mark. */
static int refuse_tag_directives(struct tree_reader *r)
{
	static const char ends[] = {'\n', '\r', '\x85', '\xa8', '\xa9', '\xbf'};
	const char *t = r->src->text, *p = t, *end = t + r->src->len;

	for (; p && p < end; p++) {
		p = memmem(p, (size_t)(end - p), "%TAG", 4);
		if (p && (p == t || memchr(ends, p[-1], sizeof(ends))))
			return refuse(r, mark_of_byte(r, (size_t)(p - t)),
			              "tags are not accepted, nor `%%TAG`");
		if (!p)
			break;
	}
	return 0;
}

/* A reviewer must see what the parser sees, in comments too: one invisible character or one change
 * of direction, and a rule reads like another (CVE-2021-42574); one carriage return that most
 * readers show as nothing, and a rule goes on from a comment. The first is reported; the text is
 * read on, so that its other faults are found. */
static void refuse_hidden(struct tree_reader *r)
{
	const char *t = r->src->text;
	size_t n = r->src->len;
	uint32_t cp = 0;

	for (size_t i = r->bom, len; i < n; i += len) {
		len = utf8_decode(t + i, n - i, &cp);
		if (!len)
			return; /* the reader says so */
		if (t[i] == '\r' && ends_line(r->src, i)) {
			refuse(r, mark_of_byte(r, i),
			       "a carriage return without a line feed is not accepted, nor in a "
			       "comment: it ends a line that looks as if it went on");
			return;
		}
		if (len == 1 || utf8_printable(cp))
			continue; /* of ASCII the reader refuses what is not text */
		refuse(r, mark_of_byte(r, i),
		       "a character that is not seen (U+%04X) is not accepted, nor in a comment",
		       (unsigned)cp);
		return;
	}
}

int tree_next(struct tree_reader *r, struct arena *a, struct tree_doc *ret)
{
	yaml_event_t e;
	size_t from;
	int rc;

	if (!r->began) {
		if (!r->src->stored)
			refuse_hidden(r);
		if (refuse_tag_directives(r) < 0)
			return -EINVAL;
	}
	r->began = true;

	r->arena = a;
	r->nodes = 0;
	for (;;) {
		rc = next_event(r, &e);
		if (rc < 0)
			return rc;
		if (e.type == YAML_DOCUMENT_START_EVENT)
			break;
		rc = e.type == YAML_STREAM_START_EVENT;
		yaml_event_delete(&e);
		if (!rc)
			return 0;
	}
	from = e.data.document_start.implicit ? r->after : byte_of(r, e.end_mark.index);
	yaml_event_delete(&e);
	return read_document(r, from, ret);
}

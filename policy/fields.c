/* SPDX-License-Identifier: Apache-2.0 */
/* The generic reader of mappings and lists by table, and the scalar values every kind uses. */
#include "policy/parse.h"
#include "common/util.h"
#include "policy/limits.h"
#include "policy/text.h"
#include <stdio.h>
#include <string.h>

#define FIELDS_MAX 32 /* keys of one table, for suggestions */

size_t path_push(struct parser *p, const char *fmt, ...)
{
	size_t saved = strlen(p->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->path + saved, sizeof(p->path) - saved, fmt, ap);
	va_end(ap);
	return saved;
}

void path_pop(struct parser *p, size_t saved)
{
	p->path[saved] = '\0';
}

static struct diag_at node_at(const struct parser *p, const struct node *n)
{
	bool empty = n->key && node_is_null(n) && !n->len;

	/* an empty value stands after its line: the key is what a reader looks for */
	return empty ? (struct diag_at){p->file, n->key_line, n->key_col}
	             : (struct diag_at){p->file, n->line, n->col};
}

static void report(struct parser *p, enum policy_severity s, const struct node *n, const char *fmt,
                   va_list ap)
{
	char words[sizeof(((struct policy_diag *)0)->msg)];

	vsnprintf(words, sizeof(words), fmt, ap);
	diags_add(p->diags, s, node_at(p, n), "%s%s%s", p->path, p->path[0] ? ": " : "", words);
}

void parse_error(struct parser *p, const struct node *n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(p, POLICY_ERROR, n, fmt, ap);
	va_end(ap);
}

void parse_warning(struct parser *p, const struct node *n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	report(p, POLICY_WARNING, n, fmt, ap);
	va_end(ap);
}

static const char *found(const struct node *n, char q[DIAG_QUOTE_MAX])
{
	if (n->type == NODE_MAP)
		return "a mapping";
	if (n->type == NODE_LIST)
		return "a list";
	if (node_is_null(n))
		return "nothing";
	return diag_quote(n->s, q);
}

void parse_expected(struct parser *p, const struct node *n, const char *expected)
{
	char q[DIAG_QUOTE_MAX];

	parse_error(p, n, "expected %s, found %s", expected, found(n, q));
}

/* Costs the product of the lengths, so it is done only for what will be shown. */
static const char *suggest(const struct parser *p, const char *word, const char *const *words,
                           size_t n)
{
	return diags_keeps(p->diags, POLICY_ERROR) ? diag_suggest(word, words, n) : NULL;
}

void parse_expected_word(struct parser *p, const struct node *n, const char *expected,
                         const char *const *words, size_t n_words)
{
	char q[DIAG_QUOTE_MAX];
	const char *meant = n->type == NODE_SCALAR ? suggest(p, n->s, words, n_words) : NULL;

	if (meant)
		parse_error(p, n, "expected %s, found %s, did you mean `%s`?", expected,
		            found(n, q), meant);
	else
		parse_expected(p, n, expected);
}

static void unknown_key(struct parser *p, const struct node *c, const struct field_table *t)
{
	struct node at = {.line = c->key_line, .col = c->key_col, .s = "", .type = NODE_MAP};
	const char *keys[FIELDS_MAX], *meant;
	char q[DIAG_QUOTE_MAX], all[256] = "";
	size_t n = 0, len = 0;

	for (size_t i = 0; i < t->n && n < FIELDS_MAX; i++) {
		keys[n++] = t->v[i].key;
		if (!(t->v[i].flags & FIELD_NOT_ENFORCED) && len < sizeof(all))
			len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s",
			                        len ? ", " : "", t->v[i].key);
	}
	meant = suggest(p, c->key, keys, n);
	diag_quote(c->key, q);
	if (meant)
		parse_error(p, &at, "unknown key %s, did you mean `%s`?", q, meant);
	else if (all[0])
		parse_error(p, &at, "unknown key %s, expected one of: %s", q, all);
	else
		parse_error(p, &at, "unknown key %s, none is accepted here", q);
}

static const struct field *field_find(const struct field_table *t, const char *key)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->v[i].key, key))
			return &t->v[i];
	return NULL;
}

static void parse_field(struct parser *p, const struct node *c, const struct field_table *t,
                        void *out)
{
	const struct field *f = field_find(t, c->key);
	struct node at = {.line = c->key_line, .col = c->key_col, .s = "", .type = NODE_MAP};
	size_t saved;

	if (!f) {
		unknown_key(p, c, t);
		return;
	}
	saved = path_push(p, "%s%s", p->path[0] ? "." : "", f->key);
	if (f->flags & FIELD_NOT_ENFORCED)
		parse_error(p, &at, "not enforced by this version");
	else
		f->parse(p, c, f, (char *)out + f->offset);
	path_pop(p, saved);
}

bool parse_fields(struct parser *p, const struct node *n, const struct field_table *t, void *out)
{
	if (n->type != NODE_MAP) {
		parse_expected(p, n, "a mapping (`key: value`)");
		return false;
	}
	for (const struct node *c = n->first; c; c = c->next)
		parse_field(p, c, t, out);
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].flags & FIELD_REQUIRED && !node_get(n, t->v[i].key))
			parse_error(p, n, "missing key `%s`", t->v[i].key);
	return true;
}

void *parse_list(struct parser *p, const struct node *n, size_t min, size_t max, size_t size,
                 parse_fn *fn, size_t *ret_n)
{
	size_t i = 0, saved;
	char *v;

	*ret_n = 0;
	if (n->type != NODE_LIST) {
		parse_expected(p, n, "a list (`[a, b]` or lines with `- `)");
		return NULL;
	}
	if (n->n < min)
		parse_error(p, n, "expected at least %zu entry, found an empty list", min);
	if (n->n > max) {
		parse_error(p, n, "expected at most %zu entries, found %zu", max, n->n);
		return NULL;
	}
	v = arena_array(p->arena, n->n, size);
	if (!v)
		return NULL;
	for (const struct node *c = n->first; c; c = c->next, i++) {
		saved = path_push(p, "[%zu]", i);
		fn(p, c, NULL, v + i * size);
		path_pop(p, saved);
	}
	*ret_n = n->n;
	return v;
}

const char *parse_text(struct parser *p, const struct node *n, const char *expected)
{
	if (n->type == NODE_SCALAR && !node_is_null(n))
		return n->s;
	parse_expected(p, n, expected);
	return NULL;
}

void parse_section(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	parse_fields(p, n, f->arg, out);
}

bool parse_quantity(struct parser *p, const struct node *n, enum unit_kind unit, uint64_t min,
                    uint64_t max, uint64_t *ret)
{
	char low[UNIT_STR_LEN], high[UNIT_STR_LEN], q[DIAG_QUOTE_MAX];
	const char *s, *why;
	uint64_t v;

	unit_parse(unit, "", &v, &why); /* for the words that say what is expected */
	s = parse_text(p, n, why);
	if (!s)
		return false;
	if (unit_parse(unit, s, &v, &why) < 0) {
		parse_expected(p, n, why);
		return false;
	}
	if (v < min || v > max) {
		parse_error(p, n, "expected %s to %s, found %s", unit_format(unit, min, low),
		            unit_format(unit, max, high), diag_quote(s, q));
		return false;
	}
	*ret = v;
	return true;
}

void parse_limit(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const struct limit_field *l = f->arg;
	uint64_t v;

	if (parse_quantity(p, n, l->unit, l->min, l->max, &v))
		limit_set(out, (enum limit_id)(l - limit_fields), v);
}

void parse_name(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char expected[] =
		"a name of 1 to 63 of a-z, 0-9 and `-`, with a letter or digit at both ends";
	const char *s = parse_text(p, n, expected);

	if (!s)
		return;
	if (!ros2_name_valid(s))
		parse_expected(p, n, expected);
	*(const char **)out = s;
}

void parse_bool(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	bool plain = n->type == NODE_SCALAR && n->plain;

	if (plain && !strcmp(n->s, "true"))
		*(bool *)out = true;
	else if (plain && !strcmp(n->s, "false"))
		*(bool *)out = false;
	else
		parse_expected(p, n, plain ? "true or false" : "true or false without quotes");
}

void parse_access(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {NULL, "r", "w", "rw"};

	for (uint32_t i = 1; n->type == NODE_SCALAR && i < ARRAY_SIZE(words); i++) {
		if (!strcmp(n->s, words[i])) {
			*(uint32_t *)out = i;
			return;
		}
	}
	parse_expected(p, n, "r, w or rw");
}

static void parse_rw_word(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {NULL, "read", "write"};

	for (uint32_t i = 1; n->type == NODE_SCALAR && i < ARRAY_SIZE(words); i++) {
		if (!strcmp(n->s, words[i])) {
			*(uint32_t *)out = i;
			return;
		}
	}
	parse_expected_word(p, n, "read or write", words, ARRAY_SIZE(words));
}

void parse_rw_list(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	size_t count;
	const uint32_t *bits = parse_list(p, n, 1, 2, sizeof(*bits), parse_rw_word, &count);
	uint32_t access = 0;

	for (size_t i = 0; bits && i < count; i++) {
		if (access & bits[i])
			parse_error(p, n, "expected each word once, found one twice");
		access |= bits[i];
	}
	*(uint32_t *)out = access;
}

void parse_only_word(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	/* the enforced word first, then the others that the schema knows */
	const char *const *words = f->arg;
	const char *s = parse_text(p, n, words[0]);
	size_t count = 0;

	if (!s)
		return;
	while (words[count])
		count++;
	for (size_t i = 0; i < count; i++) {
		if (strcmp(s, words[i]) != 0)
			continue;
		if (i)
			parse_error(p, n, "`%s` is not enforced by this version, only `%s` is", s,
			            words[0]);
		return;
	}
	parse_expected_word(p, n, words[0], words, count);
}

void parse_word(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const struct word_list *l = f->arg;

	for (size_t i = 0; n->type == NODE_SCALAR && i < l->n; i++) {
		if (!strcmp(n->s, l->words[i])) {
			*(unsigned *)out = (unsigned)i + 1;
			return;
		}
	}
	parse_expected_word(p, n, l->expected, l->words, l->n);
}

static int label_compare(const void *a, const void *b)
{
	return strcmp(((const struct policy_label *)a)->key, ((const struct policy_label *)b)->key);
}

static void parse_label(struct parser *p, const struct node *c, struct policy_label *out)
{
	struct node at = {.line = c->key_line, .col = c->key_col, .s = "", .type = NODE_MAP};
	char q[DIAG_QUOTE_MAX];
	size_t saved;

	*out = (struct policy_label){c->key, ""};
	diag_quote(c->key, q);
	if (!text_label_key_valid(c->key)) {
		parse_error(p, &at,
		            "expected a label key of 1 to 63 letters, digits and `._/-`, found %s",
		            q);
		return;
	}
	saved = path_push(p, ".%s", c->key);
	if (c->type != NODE_SCALAR || node_is_null(c) || !text_label_value_valid(c->s))
		parse_expected(p, c, "a label value of 1 to 63 letters, digits and `._-`");
	else
		out->value = c->s;
	path_pop(p, saved);
}

const struct policy_label *parse_labels(struct parser *p, const struct node *n, size_t *ret_n)
{
	struct policy_label *v;
	size_t i = 0;

	*ret_n = 0;
	if (n->type != NODE_MAP) {
		parse_expected(p, n, "a mapping of labels (`key: value`)");
		return NULL;
	}
	if (n->n > POLICY_LABELS_MAX) {
		parse_error(p, n, "expected at most %d labels, found %zu", POLICY_LABELS_MAX, n->n);
		return NULL;
	}
	v = arena_array(p->arena, n->n, sizeof(*v));
	if (!v)
		return NULL;
	for (const struct node *c = n->first; c; c = c->next)
		parse_label(p, c, &v[i++]);
	qsort(v, n->n, sizeof(*v), label_compare);
	*ret_n = n->n;
	return v;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From sources to a set of documents: the envelope (apiVersion, kind, metadata), the spec by kind,
 * the text, the canonical text. Goes on after a fault, so that all are found; a set comes out only
 * when there were none.
 */
#include "policy/parse.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

static void doc_error(struct parser *p, int line, int col, const char *msg)
{
	diags_add(p->diags, POLICY_ERROR, (struct diag_at){p->file, line, col}, "%s", msg);
}

static void parse_name_at(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct policy_doc *d = out;

	parse_name(p, n, f, &d->name);
	d->name_line = n->line;
	d->name_col = n->col;
}

static void parse_doc_labels(struct parser *p, const struct node *n, const struct field *f,
                             void *out)
{
	struct policy_doc *d = out;

	d->labels = parse_labels(p, n, &d->n_labels);
}

static void parse_metadata(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const struct field fields[] = {
		{"name", FIELD_REQUIRED, parse_name_at, 0, NULL},
		{"labels", 0, parse_doc_labels, 0, NULL},
	};

	parse_fields(p, n, FIELD_TABLE(fields), out);
}

static void parse_version(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {API_VERSION};

	if (n->type != NODE_SCALAR || strcmp(n->s, API_VERSION) != 0)
		parse_expected_word(p, n, "`" API_VERSION "`", words, ARRAY_SIZE(words));
}

static void parse_kind(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {"Role", "Tenant", "Engine", "Agent"};
	struct policy_doc *d = out;

	for (size_t i = 1; n->type == NODE_SCALAR && i < ARRAY_SIZE(words); i++)
		if (!strcmp(n->s, words[i]))
			d->kind = (enum policy_kind)i;
	if (d->kind)
		return;
	if (n->type == NODE_SCALAR && !strcmp(n->s, "Role"))
		parse_error(p, n, "`Role` is not enforced by this version");
	else
		parse_expected_word(p, n, "Tenant, Engine or Agent", words, ARRAY_SIZE(words));
}

static void parse_nothing(struct parser *p, const struct node *n, const struct field *f, void *out)
{
}

static const struct field envelope_fields[] = {
	{"apiVersion", FIELD_REQUIRED, parse_version, 0, NULL},
	{"kind", FIELD_REQUIRED, parse_kind, 0, NULL},
	{"metadata", FIELD_REQUIRED, parse_metadata, 0, NULL},
	{"spec", 0, parse_nothing, 0, NULL}, /* read afterwards: its table depends on the kind */
};

static int parse_spec(struct parser *p, const struct node *root, struct policy_doc *d)
{
	static const struct node none = {.type = NODE_MAP};
	const struct node *n = node_get(root, "spec");
	size_t saved;

	if (!n && d->kind != POLICY_KIND_AGENT) {
		parse_error(p, root, "missing key `spec`");
		return 0;
	}
	if (!n)
		n = &none;
	saved = path_push(p, "spec");
	if (d->kind == POLICY_KIND_TENANT)
		d->tenant = parse_tenant(p, n);
	else if (d->kind == POLICY_KIND_ENGINE)
		d->engine = parse_engine(p, n);
	else
		parse_agent(p, n);
	path_pop(p, saved);
	return d->tenant || d->engine || d->kind == POLICY_KIND_AGENT ? 0 : -ENOMEM;
}

static int take_text(struct arena *a, const struct tree_doc *t, struct policy_doc *d)
{
	char *text = arena_alloc(a, t->text_len + 2);

	if (!text)
		return -ENOMEM;
	memcpy(text, t->text, t->text_len);
	text[t->text_len] = '\n';
	d->text = text;
	d->line = t->line;
	return 0;
}

/* 0 also when faults were reported: the caller compares error counts. */
static int parse_doc(struct parser *p, const struct tree_doc *t, struct policy_doc *d)
{
	d->file = arena_strndup(p->arena, p->file, strlen(p->file));
	if (!d->file || take_text(p->arena, t, d) < 0)
		return -ENOMEM;
	d->name = "";
	p->path[0] = '\0';
	if (t->root->type != NODE_MAP) {
		parse_expected(p, t->root, "a document with apiVersion, kind, metadata and spec");
		return 0;
	}
	parse_fields(p, t->root, FIELD_TABLE(envelope_fields), d);
	return d->kind ? parse_spec(p, t->root, d) : 0;
}

static void refuse_second(struct parser *p, const struct policy_set *s, const struct policy_doc *d)
{
	const struct policy_doc *first = policy_set_find(s, d->kind, d->name);
	struct diag_at at = {d->file, d->name_line, d->name_col};

	if (first && d->name[0])
		diags_add(p->diags, POLICY_ERROR, at, "%s `%s` is already defined in %s:%d",
		          policy_kind_to_str(d->kind), d->name, first->file, first->name_line);
}

/* What is stored is the text of the one document, read alone at each start: were it refused then,
 * or read otherwise, no controller would start again. So it is tried before anything is accepted.
 */
static int try_alone(struct parser *p, const struct policy_doc *d)
{
	struct policy_source alone = {.name = d->file,
	                              .text = d->text,
	                              .len = strlen(d->text),
	                              .first_line = d->line,
	                              .stored = true};
	struct diag_at at = {d->file, d->name_line, d->name_col};
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	int rc = policy_parse(&alone, 1, &s, &diags);
	const struct policy_doc *again = rc ? NULL : policy_set_at(s, 0);

	if (rc != -ENOMEM && (!again || strcmp(again->canonical, d->canonical) != 0))
		diags_add(p->diags, POLICY_ERROR, at,
		          "%s `%s` alone, cut out of this file, would not be the same document: "
		          "begin it on a line of its own, behind a line `---`",
		          policy_kind_to_str(d->kind), d->name);
	policy_set_free(s);
	policy_diags_fini(&diags);
	return rc == -ENOMEM ? rc : 0;
}

/* Takes the document into the set, faulty or not, so that a later one of the same name is noticed.
 */
static int finish_doc(struct parser *p, struct policy_set *s, struct policy_doc_box *box,
                      size_t errors)
{
	struct policy_doc *d = &box->doc;
	int rc;

	if (!d->kind)
		return 0;
	refuse_second(p, s, d);
	if (p->diags->errors == errors) {
		d->canonical = canonical_text(&box->arena, d);
		if (!d->canonical)
			return -ENOMEM;
		rc = p->stored ? 0 : try_alone(p, d);
		if (rc < 0)
			return rc;
	}
	if (policy_set_find(s, d->kind, d->name))
		return 0;
	return policy_set_put(s, d);
}

/* 1: there was one; 0: the end; negative errno. */
static int parse_one(struct parser *p, struct tree_reader *r, struct policy_set *s)
{
	struct policy_doc_box *box = calloc(1, sizeof(*box));
	size_t errors = p->diags->errors;
	struct tree_doc t;
	int rc;

	if (!box)
		return -ENOMEM;
	box->refs = 1;
	p->arena = &box->arena;
	rc = tree_next(r, &box->arena, &t);
	if (rc == 1 && !node_is_null(t.root)) {
		rc = parse_doc(p, &t, &box->doc);
		if (!rc && box->arena.failed)
			rc = -ENOMEM;
		if (!rc)
			rc = finish_doc(p, s, box, errors);
		if (!rc)
			rc = 1;
	}
	policy_doc_unref(&box->doc);
	return rc;
}

/* Older controllers stored what stood behind '---' with the tab before it: a text that is indented
 * has spaces there, so blanks with a tab among them are such ones. */
static struct policy_source without_old_tab(const struct policy_source *src)
{
	struct policy_source s = *src;
	size_t n = 0;

	while (n < s.len && (s.text[n] == ' ' || s.text[n] == '\t'))
		n++;
	if (s.stored && n > 0 && memchr(s.text, '\t', n)) {
		s.text += n;
		s.len -= n;
	}
	return s;
}

static int parse_source(const struct policy_source *given, struct policy_set *s, size_t *documents,
                        struct policy_diags *diags)
{
	struct policy_source read = without_old_tab(given), *src = &read;
	struct parser p = {
		.diags = diags, .file = src->name ? src->name : "-", .stored = src->stored};
	size_t before = policy_set_count(s), errors = diags->errors;
	struct tree_reader *r;
	int rc;

	diags_begin(diags);
	/* a stored text ends with a line end, which the last line of a file may not have */
	if (src->len > POLICY_SOURCE_MAX + (src->stored ? 1 : 0)) {
		doc_error(&p, 0, 0, "longer than 1 MiB");
		return 0;
	}
	/* each document has it */
	if (!src->stored && strlen(p.file) > POLICY_FILE_NAME_MAX) {
		doc_error(&p, 0, 0, "a file name of more than 4096 bytes");
		return 0;
	}
	rc = tree_reader_new(src, diags, &r);
	if (rc < 0)
		return rc;
	do {
		rc = parse_one(&p, r, s);
		/* empty and faulty ones count too: they cost as much */
		if (rc == 1 && ++*documents > POLICY_DOCUMENTS_MAX) {
			doc_error(&p, 0, 0, "more than 4096 documents");
			rc = -EINVAL;
		}
	} while (rc == 1);
	tree_reader_free(r);
	if (!rc && policy_set_count(s) == before && diags->errors == errors)
		diags_add(diags, POLICY_WARNING, (struct diag_at){p.file, 0, 0},
		          "no document in it");
	diags_sort(diags, false);
	return rc == -ENOMEM ? rc : 0; /* syntax errors are in the diagnostics */
}

int policy_parse(const struct policy_source *sources, size_t n, struct policy_set **ret,
                 struct policy_diags *diags)
{
	size_t errors = diags->errors, documents = 0;
	struct policy_set *s;
	int rc = policy_set_new(&s);

	if (rc < 0)
		return rc;
	if (n > POLICY_SOURCES_MAX) {
		diags_add(diags, POLICY_ERROR, (struct diag_at){"-", 0, 0},
		          "more than %d files at once", POLICY_SOURCES_MAX);
		n = 0;
	}
	for (size_t i = 0; i < n && !rc; i++)
		rc = parse_source(&sources[i], s, &documents, diags);
	if (!rc && diags->errors != errors)
		rc = -EINVAL;
	if (rc < 0) {
		policy_set_free(s);
		return rc;
	}
	*ret = s;
	return 0;
}

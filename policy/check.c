/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only shows when documents are seen together. Overlaps are found by sorting paths so that
 * each stands directly before what lies below it, then walking once with the chain of enclosing
 * paths: thousands of namespaces cost no square.
 */
#include "common/util.h"
#include "policy/diags.h"
#include "policy/nvmf.h"
#include "policy/text.h"
#include <errno.h>
#include <string.h>

/* A place that someone claims: a namespace's path on an engine, or an engine's root. */
struct claim {
	const char *group; /* claims of different groups never meet */
	const char *path;
	bool shared;
	const struct policy_doc *doc;
	const char *what; /* the namespace's name, or the engine's */
	int line, col;
	const struct claim *parent;    /* nearest enclosing claim */
	const struct claim *exclusive; /* nearest enclosing claim, or itself, that is not shared */
};

struct claims {
	struct claim *v; /* owned */
	size_t n;
};

static struct diag_at claim_at(const struct claim *c)
{
	return (struct diag_at){c->doc->file, c->line, c->col};
}

/* Equal paths in order of the documents' names, so that the same faults are told in the same words.
 */
static int claim_compare(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int r = strcmp(x->group, y->group);

	if (!r)
		r = text_path_compare(x->path, y->path);
	if (!r)
		r = strcmp(x->doc->name, y->doc->name);
	return r ? r : strcmp(x->what, y->what);
}

typedef void clash_fn(struct policy_diags *d, const struct claim *c, const struct claim *other);

static void find_clashes(struct claims *all, struct policy_diags *d, clash_fn *clash)
{
	const struct claim *top = NULL;

	if (all->n)
		qsort(all->v, all->n, sizeof(*all->v), claim_compare);
	for (size_t i = 0; i < all->n; i++) {
		struct claim *c = &all->v[i];
		const struct claim *other;

		while (top &&
		       (strcmp(top->group, c->group) != 0 || !text_path_within(top->path, c->path)))
			top = top->parent;
		other = !top ? NULL : c->shared ? top->exclusive : top;
		if (other)
			clash(d, c, other);
		c->parent = top;
		c->exclusive = !c->shared ? c : top ? top->exclusive : NULL;
		top = c;
	}
}

static void namespace_clash(struct policy_diags *d, const struct claim *c, const struct claim *o)
{
	const char *which = !c->shared && !o->shared ? "neither says" : "only one says";

	diags_add(d, POLICY_ERROR, claim_at(c),
	          "namespace `%s` of tenant `%s` (engine `%s`, path `%.80s`) overlaps namespace "
	          "`%s` of tenant `%s` at %.64s:%d, and %s `shared: true`",
	          c->what, c->doc->name, c->group, c->path, o->what, o->doc->name, o->doc->file,
	          o->line, which);
}

static void root_clash(struct policy_diags *d, const struct claim *c, const struct claim *o)
{
	diags_add(d, POLICY_ERROR, claim_at(c),
	          "root `%.80s` of engine `%s` lies in root `%.80s` of engine `%s` (%.64s:%d)",
	          c->path, c->what, o->path, o->what, o->doc->file, o->line);
}

/* ---- placement ---- */

static bool has_labels(const struct policy_doc *agent, const struct policy_label *l)
{
	for (size_t i = 0; i < agent->n_labels; i++)
		if (!strcmp(agent->labels[i].key, l->key) &&
		    !strcmp(agent->labels[i].value, l->value))
			return true;
	return false;
}

bool policy_doc_placed(const struct policy_doc *tenant, const struct policy_doc *agent)
{
	const struct policy_tenant_spec *t = tenant->tenant;

	if (!t || agent->kind != POLICY_KIND_AGENT)
		return false;
	for (size_t i = 0; i < t->n_agents; i++)
		if (!strcmp(t->agents[i].s, agent->name))
			return true;
	for (size_t i = 0; i < t->n_selector; i++)
		if (!has_labels(agent, &t->selector[i]))
			return false;
	return t->n_selector > 0;
}

/* ---- one pass over the tenants ---- */

/* A name that is near to one of this kind, for "did you mean". */
static const char *suggest_doc(const struct policy_set *s, enum policy_kind kind, const char *name)
{
	const char *candidates[256];
	size_t n = 0;

	for (size_t i = 0; i < policy_set_count(s) && n < ARRAY_SIZE(candidates); i++)
		if (policy_set_at(s, i)->kind == kind)
			candidates[n++] = policy_set_at(s, i)->name;
	return diag_suggest(name, candidates, n);
}

static void missing(const struct policy_set *s, struct policy_diags *d,
                    enum policy_severity severity, struct diag_at at, enum policy_kind kind,
                    const char *name)
{
	const char *meant = diags_keeps(d, severity) ? suggest_doc(s, kind, name) : NULL;

	diags_add(d, severity, at, "there is no %s `%s`%s%s%s", policy_kind_to_str(kind), name,
	          meant ? ", did you mean `" : "", meant ? meant : "", meant ? "`?" : "");
}

static bool placed_somewhere(const struct policy_set *s, const struct policy_doc *t)
{
	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *a = policy_set_at(s, i);

		if (a->kind == POLICY_KIND_AGENT && policy_doc_placed(t, a))
			return true;
	}
	return false;
}

static void check_placement(const struct policy_set *s, const struct policy_doc *t,
                            struct policy_diags *d)
{
	for (size_t i = 0; i < t->tenant->n_agents; i++) {
		const struct policy_string *a = &t->tenant->agents[i];

		if (policy_set_find(s, POLICY_KIND_AGENT, a->s))
			continue;
		missing(s, d, POLICY_WARNING, (struct diag_at){t->file, a->line, a->col},
		        POLICY_KIND_AGENT, a->s);
	}
	if (!t->tenant->n_agents && !placed_somewhere(s, t))
		diags_add(d, POLICY_WARNING, (struct diag_at){t->file, t->name_line, t->name_col},
		          "tenant `%s` is placed nowhere: no Agent has the labels of its selector",
		          t->name);
}

static void check_engine(const struct policy_set *s, const struct policy_doc *t,
                         const struct policy_namespace_spec *ns, struct policy_diags *d)
{
	const struct policy_doc *e = policy_set_find(s, POLICY_KIND_ENGINE, ns->engine);
	struct diag_at at = {t->file, ns->line, ns->col};

	if (!e)
		missing(s, d, POLICY_ERROR, at, POLICY_KIND_ENGINE, ns->engine);
	else if (e->engine->nvmf && !nvmf_has_volume_below(e->engine->nvmf, ns->path))
		diags_add(d, POLICY_WARNING, at,
		          "namespace `%s` of tenant `%s` has no volume: engine `%s` has none below "
		          "`%.80s`",
		          ns->name, t->name, ns->engine, ns->path);
}

static void check_tenant(const struct policy_set *s, const struct policy_doc *t,
                         struct claims *claims, struct policy_diags *d)
{
	for (size_t i = 0; i < t->tenant->n_namespaces; i++) {
		const struct policy_namespace_spec *ns = &t->tenant->namespaces[i];

		check_engine(s, t, ns, d);
		claims->v[claims->n++] = (struct claim){
			.group = ns->engine,
			.path = ns->path,
			.shared = ns->shared,
			.doc = t,
			.what = ns->name,
			.line = ns->line,
			.col = ns->col,
		};
	}
	check_placement(s, t, d);
}

/* ---- principals ---- */

struct owner {
	const struct policy_string *principal;
	const struct policy_doc *doc;
};

static int owner_compare(const void *a, const void *b)
{
	const struct owner *x = a, *y = b;
	int r = strcmp(x->principal->s, y->principal->s);

	return r ? r : strcmp(x->doc->name, y->doc->name);
}

static int check_principals(const struct policy_set *s, size_t max, struct policy_diags *d)
{
	AUTO_FREE struct owner *v = calloc(max ? max : 1, sizeof(*v));
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *t = policy_set_at(s, i);

		for (size_t j = 0; t->tenant && j < t->tenant->n_principals; j++)
			v[n++] = (struct owner){&t->tenant->principals[j], t};
	}
	qsort(v, n, sizeof(*v), owner_compare);
	for (size_t i = 1; i < n; i++) {
		const struct policy_string *p = v[i].principal;

		if (strcmp(p->s, v[i - 1].principal->s) != 0)
			continue;
		diags_add(d, POLICY_ERROR, (struct diag_at){v[i].doc->file, p->line, p->col},
		          "principal `%.120s` already belongs to tenant `%s` (%.80s:%d)", p->s,
		          v[i - 1].doc->name, v[i - 1].doc->file, v[i - 1].principal->line);
	}
	return 0;
}

static int check_roots(const struct policy_set *s, struct policy_diags *d)
{
	struct claims claims = {calloc(policy_set_count(s) + 1, sizeof(struct claim)), 0};

	if (!claims.v)
		return -ENOMEM;
	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *e = policy_set_at(s, i);

		if (!e->engine || e->engine->type != POLICY_ENGINE_FILE)
			continue;
		claims.v[claims.n++] = (struct claim){
			.group = "",
			.path = e->engine->root,
			.doc = e,
			.what = e->name,
			.line = e->name_line,
			.col = e->name_col,
		};
	}
	find_clashes(&claims, d, root_clash);
	free(claims.v);
	return 0;
}

int policy_check(const struct policy_set *s, struct policy_diags *diags)
{
	size_t namespaces = 0, principals = 0, errors = diags->errors;
	struct claims claims = {0};

	diags_begin(diags);
	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *t = policy_set_at(s, i);

		namespaces += t->tenant ? t->tenant->n_namespaces : 0;
		principals += t->tenant ? t->tenant->n_principals : 0;
	}
	claims.v = calloc(namespaces + 1, sizeof(*claims.v));
	if (!claims.v)
		return -ENOMEM;
	for (size_t i = 0; i < policy_set_count(s); i++)
		if (policy_set_at(s, i)->tenant)
			check_tenant(s, policy_set_at(s, i), &claims, diags);
	find_clashes(&claims, diags, namespace_clash);
	free(claims.v);
	if (check_principals(s, principals, diags) < 0 || check_roots(s, diags) < 0 ||
	    nvmf_check_set(s, diags) < 0)
		return -ENOMEM;
	diags_sort(diags, true);
	return diags->errors == errors ? 0 : -EINVAL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why: the document is compiled and asked as an agent asks it, so the answer cannot differ from the
 * agent's; the rule's index then leads back to the line.
 */
#include "common/utf8.h"
#include "common/util.h"
#include "policy/policy.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct policy_namespace_spec *find_spec(const struct policy_doc *d, const char *name)
{
	for (size_t i = 0; i < d->tenant->n_namespaces; i++)
		if (!strcmp(d->tenant->namespaces[i].name, name))
			return &d->tenant->namespaces[i];
	return NULL;
}

static int unknown_namespace(const struct policy_doc *d, const char *name,
                             struct policy_explanation *e)
{
	size_t len;

	*e = (struct policy_explanation){.verdict = {false, -1, POLICY_BAD_QUESTION}};
	e->file = d->file;
	e->line = d->name_line;
	e->col = d->name_col;
	len = (size_t)snprintf(
		e->text, sizeof(e->text),
		"denied: %.100s:%d:%d: tenant `%s` has no namespace `%.63s`, it has:", d->file,
		e->line, e->col, d->name, name);
	for (size_t i = 0; i < d->tenant->n_namespaces && len + 80 < sizeof(e->text); i++)
		len += (size_t)snprintf(e->text + len, sizeof(e->text) - len, " %s",
		                        d->tenant->namespaces[i].name);
	utf8_clean(e->text);
	return -ENOENT;
}

static int ask(const struct policy_doc *d, const char *name, const char *path, uint32_t wanted,
               struct policy_verdict *ret)
{
	static const struct ros2_uid any = {.b = {1}};
	struct policy_image_tenant image;
	struct policy_namespace ns;
	AUTO_FREE void *bytes = NULL;
	size_t len;
	int rc = policy_compile_doc(d, &any, 0, &bytes, &len, NULL);

	if (!rc)
		rc = policy_image_open_tenant(bytes, len, &image, NULL);
	if (!rc)
		rc = policy_namespace_find(&image, name, &ns);
	if (!rc)
		*ret = policy_eval_path(&image, &ns, path, wanted);
	return rc;
}

static void write_words(struct policy_explanation *e, const struct policy_namespace_spec *ns,
                        uint32_t wanted)
{
	const struct policy_path_rule *r =
		e->verdict.rule >= 0 ? &ns->rules[e->verdict.rule] : NULL;
	char why[400];

	switch (e->verdict.reason) {
	case POLICY_BY_RULE:
		snprintf(why, sizeof(why), "rule %d `%s` of namespace `%s` gives %s",
		         e->verdict.rule, r->pattern, ns->name, policy_access_to_str(r->access));
		break;
	case POLICY_BY_NAMESPACE:
		snprintf(why, sizeof(why), "namespace `%s` gives %s and has no path rules",
		         ns->name, policy_access_to_str(ns->access));
		break;
	case POLICY_NO_RULE:
		snprintf(why, sizeof(why), "none of the %zu path rules of namespace `%s` matches",
		         ns->n_rules, ns->name);
		break;
	case POLICY_BAD_PATH:
		snprintf(why, sizeof(why), "not a path of a namespace");
		break;
	default:
		snprintf(why, sizeof(why), "the question asks for no known access");
		break;
	}
	snprintf(e->text, sizeof(e->text), "%s: %.80s:%d:%d: %.370s, %s was asked for",
	         e->verdict.allowed ? "allowed" : "denied", e->file, e->line, e->col, why,
	         policy_access_to_str(wanted));
	utf8_clean(e->text);
}

int policy_explain(const struct policy_doc *d, const char *name, const char *path, uint32_t wanted,
                   struct policy_explanation *ret)
{
	const struct policy_namespace_spec *ns;
	struct policy_explanation e = {.file = d->file};
	int rc;

	if (!d->tenant)
		return -EINVAL;
	ns = find_spec(d, name);
	if (!ns)
		return unknown_namespace(d, name, ret);
	rc = ask(d, name, path, wanted, &e.verdict);
	if (rc < 0)
		return rc;
	e.line = e.verdict.rule >= 0 ? ns->rules[e.verdict.rule].line : ns->line;
	e.col = e.verdict.rule >= 0 ? ns->rules[e.verdict.rule].col : ns->col;
	write_words(&e, ns, wanted);
	*ret = e;
	return 0;
}

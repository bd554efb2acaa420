/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a verified tenant image. Nothing is allocated, nothing is cached; what was checked
 * when the image was opened is not checked again, what the caller brings (paths, names, indexes)
 * is.
 */
#include "policy/image.h"
#include "policy/image_layout.h"
#include "policy/text.h"
#include <errno.h>

static const char *string(const struct policy_image_tenant *t, const uint8_t *ref)
{
	return (const char *)t->base + t->strings_off + img_u32(ref);
}

const char *policy_principal_at(const struct policy_image_tenant *t, uint32_t i)
{
	if (i >= t->n_principals)
		return NULL;
	return string(t, t->base + t->principals_off + i * IMG_PRINCIPAL_LEN);
}

bool policy_principal_match(const struct policy_image_tenant *t, const char *spiffe)
{
	for (uint32_t i = 0; spiffe && i < t->n_principals; i++)
		if (!strcmp(policy_principal_at(t, i), spiffe))
			return true;
	return false;
}

int policy_namespace_at(const struct policy_image_tenant *t, uint32_t i,
                        struct policy_namespace *ret)
{
	const uint8_t *p = t->base + t->namespaces_off + (size_t)i * IMG_NAMESPACE_LEN;

	if (i >= t->n_namespaces)
		return -ENOENT;
	*ret = (struct policy_namespace){
		.index = i,
		.name = string(t, p + IMG_NS_NAME),
		.engine = string(t, p + IMG_NS_ENGINE),
		.path = string(t, p + IMG_NS_PATH),
		.access = p[IMG_NS_ACCESS],
		.shared = p[IMG_NS_SHARED],
		.n_rules = img_u32(p + IMG_NS_RULES),
		.first_rule = img_u32(p + IMG_NS_FIRST),
	};
	return 0;
}

int policy_namespace_find(const struct policy_image_tenant *t, const char *name,
                          struct policy_namespace *ret)
{
	for (uint32_t i = 0; name && i < t->n_namespaces; i++) {
		const uint8_t *p = t->base + t->namespaces_off + (size_t)i * IMG_NAMESPACE_LEN;

		if (!strcmp(string(t, p + IMG_NS_NAME), name))
			return policy_namespace_at(t, i, ret);
	}
	return -ENOENT;
}

int policy_rule_at(const struct policy_image_tenant *t, const struct policy_namespace *ns,
                   uint32_t i, const char **ret_pattern, uint32_t *ret_access)
{
	const uint8_t *p;

	if (i >= ns->n_rules || ns->first_rule + i >= t->n_rules)
		return -ENOENT;
	p = t->base + t->rules_off + (size_t)(ns->first_rule + i) * IMG_RULE_LEN;
	*ret_pattern = string(t, p + IMG_RULE_PATTERN);
	*ret_access = p[IMG_RULE_ACCESS];
	return 0;
}

static struct policy_verdict denied(enum policy_reason reason)
{
	return (struct policy_verdict){.allowed = false, .rule = -1, .reason = reason};
}

struct policy_verdict policy_eval_path(const struct policy_image_tenant *t,
                                       const struct policy_namespace *ns, const char *path,
                                       uint32_t wanted)
{
	const char *pattern;
	uint32_t access;

	if (!wanted || wanted & ~POLICY_ACCESS_ALL)
		return denied(POLICY_BAD_QUESTION);
	path = text_question_path(path);
	if (!path)
		return denied(POLICY_BAD_PATH);
	if (!ns->n_rules)
		return (struct policy_verdict){!(wanted & ~ns->access), -1, POLICY_BY_NAMESPACE};
	for (uint32_t i = 0; policy_rule_at(t, ns, i, &pattern, &access) == 0; i++)
		if (text_pattern_match(pattern, path))
			return (struct policy_verdict){!(wanted & ~(access & ns->access)), (int)i,
			                               POLICY_BY_RULE};
	return denied(POLICY_NO_RULE);
}

/* What it matches, it matches with everything below. */
static bool takes_all_below(const char *pattern, const char *dir)
{
	size_t n = strlen(pattern);

	return n >= 3 && !strcmp(pattern + n - 3, "/**") && text_pattern_match(pattern, dir);
}

bool policy_allows_below(const struct policy_image_tenant *t, const struct policy_namespace *ns,
                         const char *dir, uint32_t wanted)
{
	const char *pattern;
	uint32_t access;

	dir = text_question_path(dir);
	if (!dir || !wanted || wanted & ~POLICY_ACCESS_ALL)
		return false;
	if (!ns->n_rules)
		return !(wanted & ~ns->access);
	for (uint32_t i = 0; policy_rule_at(t, ns, i, &pattern, &access) == 0; i++) {
		if (!text_pattern_below(pattern, dir))
			continue;
		if (wanted & ~(access & ns->access))
			return false;
		if (takes_all_below(pattern, dir))
			return true;
	}
	return false;
}

static bool has_label(const struct policy_label *labels, size_t n, const char *key,
                      const char *value)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(labels[i].key, key) && !strcmp(labels[i].value, value))
			return true;
	return false;
}

bool policy_placed(const struct policy_image_tenant *t, const char *agent,
                   const struct policy_label *labels, size_t n_labels)
{
	const uint8_t *p = t->base + t->agents_off;

	for (uint32_t i = 0; agent && i < t->n_agents; i++, p += IMG_AGENT_LEN)
		if (!strcmp(string(t, p), agent))
			return true;
	p = t->base + t->selector_off;
	for (uint32_t i = 0; i < t->n_selector; i++, p += IMG_SELECTOR_LEN)
		if (!has_label(labels, n_labels, string(t, p), string(t, p + 4)))
			return false;
	return t->n_selector > 0;
}

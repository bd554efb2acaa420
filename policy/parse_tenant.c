/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of a Tenant document, as tables. Every field of the product's schema is here; those
 * that this version does not enforce say so and are refused.
 */
#include "policy/parse.h"
#include "common/probe.h"
#include "common/util.h"
#include "policy/limits.h"
#include "policy/text.h"
#include <string.h>

#define OFF(f) offsetof(struct policy_tenant_spec, f)
#define LIMITS OFF(limits)
#define LIMIT(k, id)                                                                               \
	{                                                                                          \
		k, 0, parse_limit, 0, &limit_fields[id]                                            \
	}
#define REFUSED(k)                                                                                 \
	{                                                                                          \
		k, FIELD_NOT_ENFORCED, NULL, 0, NULL                                               \
	}
#define LIMIT_OFF(f) offsetof(struct policy_limits, f)
#define SECTION(k, t)                                                                              \
	{                                                                                          \
		k, 0, parse_section, 0, FIELD_TABLE(t)                                             \
	}

/* ---- lists of strings ---- */

static void parse_principal(struct parser *p, const struct node *n, const struct field *f,
                            void *out)
{
	static const char expected[] = "a SPIFFE ID (spiffe://trust-domain/path)";
	struct policy_string *v = out;
	const char *s = parse_text(p, n, expected);

	*v = (struct policy_string){s ? s : "", n->line, n->col};
	if (s && !ros2_spiffe_valid(s, NULL, NULL))
		parse_expected(p, n, expected);
}

static void parse_agent_name(struct parser *p, const struct node *n, const struct field *f,
                             void *out)
{
	struct policy_string *v = out;

	*v = (struct policy_string){"", n->line, n->col};
	parse_name(p, n, f, &v->s);
}

/* The lists are at most 256 long. */
static void refuse_repeated(struct parser *p, const struct policy_string *v, size_t n)
{
	char q[DIAG_QUOTE_MAX];

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < i; j++) {
			struct node at = {.line = v[i].line, .col = v[i].col, .type = NODE_MAP};

			if (strcmp(v[i].s, v[j].s) != 0 || !v[i].s[0])
				continue;
			parse_error(p, &at, "%s is already given in line %d", diag_quote(v[i].s, q),
			            v[j].line);
			break;
		}
	}
}

static void parse_principals(struct parser *p, const struct node *n, const struct field *f,
                             void *out)
{
	struct policy_tenant_spec *t = out;

	t->principals = parse_list(p, n, 0, POLICY_PRINCIPALS_MAX, sizeof(*t->principals),
	                           parse_principal, &t->n_principals);
	refuse_repeated(p, t->principals, t->n_principals);
	if (n->type == NODE_LIST && !n->n)
		parse_warning(p, n, "no principals: nobody can open a session as this tenant");
}

/* ---- placement ---- */

static void parse_agents(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct policy_tenant_spec *t = out;

	t->agents = parse_list(p, n, 1, POLICY_AGENTS_MAX, sizeof(*t->agents), parse_agent_name,
	                       &t->n_agents);
	refuse_repeated(p, t->agents, t->n_agents);
}

static void parse_selector(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct policy_tenant_spec *t = out;

	if (n->type == NODE_MAP && !n->n) {
		parse_error(p, n,
		            "an empty selector would choose nothing or everything: give labels or "
		            "leave it out");
		return;
	}
	t->selector = parse_labels(p, n, &t->n_selector);
}

static void parse_property(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {
#define X(num, name, text, holds) text,
		PROBE_PROPERTY_LIST(X)
#undef X
	};
	enum probe_property property;

	if (n->type == NODE_SCALAR && !probe_property_from_str(n->s, &property))
		*(uint32_t *)out = 1u << property;
	else
		parse_expected_word(p, n, "a property that is probed (`ros2-agent probe`)", words,
		                    ARRAY_SIZE(words));
}

static void parse_require(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct policy_tenant_spec *t = out;
	size_t count;
	const uint32_t *bits =
		parse_list(p, n, 0, PROBE_PROPERTIES, sizeof(*bits), parse_property, &count);

	for (size_t i = 0; bits && i < count; i++) {
		if (t->require & bits[i])
			parse_error(p, n, "expected each property once, found one twice");
		t->require |= bits[i];
	}
}

static const struct field placement_fields[] = {
	{"agents", 0, parse_agents, 0, NULL},
	{"selector", 0, parse_selector, 0, NULL},
	{"require", 0, parse_require, 0, NULL},
};

static void parse_placement(struct parser *p, const struct node *n, const struct field *f,
                            void *out)
{
	if (parse_fields(p, n, FIELD_TABLE(placement_fields), out) && !node_get(n, "agents") &&
	    !node_get(n, "selector"))
		parse_error(p, n, "expected `agents` or `selector`: nothing says where");
}

/* ---- namespaces ---- */

static void parse_pattern(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const char *s = parse_text(p, n, "a path pattern, like \"/**\""), *fault;
	char q[DIAG_QUOTE_MAX];

	if (!s)
		return;
	fault = text_pattern_fault(s);
	if (fault)
		parse_error(p, n, "pattern %s %s", diag_quote(s, q), fault);
	*(const char **)out = s;
}

static void parse_rule_access(struct parser *p, const struct node *n, const struct field *f,
                              void *out)
{
	if (n->type == NODE_SCALAR && !strcmp(n->s, "none"))
		*(uint32_t *)out = 0;
	else if (n->type == NODE_SCALAR &&
	         (!strcmp(n->s, "r") || !strcmp(n->s, "w") || !strcmp(n->s, "rw")))
		parse_access(p, n, f, out);
	else
		parse_expected(p, n, "r, w, rw or none");
}

static const struct field rule_fields[] = {
	{"pattern", FIELD_REQUIRED, parse_pattern, offsetof(struct policy_path_rule, pattern),
         NULL},
	{"access", FIELD_REQUIRED, parse_rule_access, offsetof(struct policy_path_rule, access),
         NULL},
};

static void parse_rule(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct policy_path_rule *r = out;

	r->pattern = "";
	r->line = n->line;
	r->col = n->col;
	parse_fields(p, n, FIELD_TABLE(rule_fields), out);
}

static void parse_rules(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct policy_namespace_spec *ns = out;

	if (n->type == NODE_LIST && !n->n) {
		parse_error(p, n,
		            "an empty list would allow everything or nothing: leave `paths` out "
		            "or write a rule");
		return;
	}
	ns->rules =
		parse_list(p, n, 1, POLICY_RULES_MAX, sizeof(*ns->rules), parse_rule, &ns->n_rules);
}

static void parse_namespace_path(struct parser *p, const struct node *n, const struct field *f,
                                 void *out)
{
	const char *s = parse_text(p, n, "a path relative to the engine's root"), *fault;
	char q[DIAG_QUOTE_MAX];

	if (!s)
		return;
	fault = text_namespace_path_fault(s);
	if (fault)
		parse_error(p, n, "path %s %s", diag_quote(s, q), fault);
	*(const char **)out = s;
}

#define NS_OFF(f) offsetof(struct policy_namespace_spec, f)
static const struct field namespace_fields[] = {
	{"name", FIELD_REQUIRED, parse_name, NS_OFF(name), NULL},
	{"engine", FIELD_REQUIRED, parse_name, NS_OFF(engine), NULL},
	{"path", FIELD_REQUIRED, parse_namespace_path, NS_OFF(path), NULL},
	{"access", FIELD_REQUIRED, parse_access, NS_OFF(access), NULL},
	{"shared", 0, parse_bool, NS_OFF(shared), NULL},
	{"paths", 0, parse_rules, 0, NULL},
	REFUSED("quota"),
};

static void check_rules(struct parser *p, const struct policy_namespace_spec *ns)
{
	const struct policy_path_rule *all = NULL;

	for (size_t i = 0; i < ns->n_rules; i++) {
		const struct policy_path_rule *r = &ns->rules[i];
		struct node at = {.line = r->line, .col = r->col, .type = NODE_MAP};
		size_t saved = path_push(p, ".paths[%zu]", i);

		if (ns->access && r->access & ~ns->access)
			parse_error(p, &at, "access %s is wider than the namespace's access %s",
			            policy_access_to_str(r->access),
			            policy_access_to_str(ns->access));
		if (all)
			parse_warning(p, &at,
			              "never used: the rule in line %d already matches every path",
			              all->line);
		else if (!strcmp(r->pattern, "/**"))
			all = r;
		path_pop(p, saved);
	}
}

static void parse_namespace(struct parser *p, const struct node *n, const struct field *f,
                            void *out)
{
	struct policy_namespace_spec *ns = out;

	ns->name = ns->engine = ns->path = "";
	ns->line = n->line;
	ns->col = n->col;
	parse_fields(p, n, FIELD_TABLE(namespace_fields), out);
	check_rules(p, ns);
}

static void bound_rules(struct parser *p, const struct node *n, const struct policy_tenant_spec *t)
{
	size_t rules = 0;

	for (size_t i = 0; i < t->n_namespaces; i++)
		rules += t->namespaces[i].n_rules;
	if (rules > POLICY_ALL_RULES_MAX)
		parse_error(p, n, "expected at most %d path rules in all, found %zu",
		            POLICY_ALL_RULES_MAX, rules);
}

static void parse_namespaces(struct parser *p, const struct node *n, const struct field *f,
                             void *out)
{
	struct policy_tenant_spec *t = out;

	t->namespaces = parse_list(p, n, 0, POLICY_NAMESPACES_MAX, sizeof(*t->namespaces),
	                           parse_namespace, &t->n_namespaces);
	bound_rules(p, n, t);
	for (size_t i = 0; t->namespaces && i < t->n_namespaces; i++) {
		const struct policy_namespace_spec *a = &t->namespaces[i];
		struct node at = {.line = a->line, .col = a->col, .type = NODE_MAP};
		size_t saved;

		for (size_t j = 0; j < i && a->name[0]; j++) {
			if (strcmp(a->name, t->namespaces[j].name) != 0)
				continue;
			saved = path_push(p, "[%zu]", i);
			parse_error(p, &at, "a namespace `%.63s` is already given in line %d",
			            a->name, t->namespaces[j].line);
			path_pop(p, saved);
			break;
		}
	}
}

/* ---- the numbers ---- */

static const struct field region_size_fields[] = {
	LIMIT("min", LIMIT_REGION_SIZE_MIN),
	LIMIT("max", LIMIT_REGION_SIZE_MAX),
};
static const struct field memory_fields[] = {
	LIMIT("registeredBytes", LIMIT_REGISTERED_BYTES),
	LIMIT("regions", LIMIT_REGIONS),
	SECTION("regionSize", region_size_fields),
	LIMIT("alignment", LIMIT_ALIGNMENT),
	{"access", 0, parse_rw_list, LIMIT_OFF(region_access), NULL},
	REFUSED("sources"),
	LIMIT("controlVerbsPerSecond", LIMIT_CONTROL_VERBS),
};

static void parse_action(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {"kill", "log"};
	enum policy_violation_action *action = out;

	if (n->type == NODE_SCALAR && !strcmp(n->s, "kill"))
		*action = POLICY_VIOLATION_KILL;
	else if (n->type == NODE_SCALAR && !strcmp(n->s, "log"))
		*action = POLICY_VIOLATION_LOG;
	else
		parse_expected_word(p, n, "kill or log", words, ARRAY_SIZE(words));
}

static const struct field violations_fields[] = {
	LIMIT("limit", LIMIT_VIOLATIONS),
	{"action", 0, parse_action, LIMIT_OFF(violations_action), NULL},
};
static const struct field rkeys_fields[] = {
	LIMIT("leaseTtl", LIMIT_LEASE_TTL),
	LIMIT("concurrent", LIMIT_CONCURRENT),
	SECTION("violations", violations_fields),
	REFUSED("scope"),
	REFUSED("perIoRotation"),
};

static void parse_offline_restart(struct parser *p, const struct node *n, const struct field *f,
                                  void *out)
{
	bool v = false;

	parse_bool(p, n, f, &v);
	if (v)
		parse_error(p, n, "`true` is not enforced by this version, only `false` is");
}

static const struct field times_fields[] = {
	LIMIT("grantLifetime", LIMIT_GRANT_LIFETIME),
	LIMIT("contactLimit", LIMIT_CONTACT),
	{"offlineRestart", 0, parse_offline_restart, 0, NULL},
};
static const struct field sessions_fields[] = {
	LIMIT("max", LIMIT_SESSIONS),
};
static const struct field read_fields[] = {
	LIMIT("bandwidth", LIMIT_READ_BYTES),
	LIMIT("iops", LIMIT_READ_OPS),
};
static const struct field write_fields[] = {
	LIMIT("bandwidth", LIMIT_WRITE_BYTES),
	LIMIT("iops", LIMIT_WRITE_OPS),
};
static const char *const scope_words[] = {"agent", "cluster", NULL};
static const char *const loss_words[] = {"hold", "safe-rate", "stop", NULL};
static const struct field qos_fields[] = {
	SECTION("read", read_fields),
	SECTION("write", write_fields),
	LIMIT("burst", LIMIT_BURST),
	{"scope", 0, parse_only_word, 0, scope_words},
	{"onControllerLoss", 0, parse_only_word, 0, loss_words},
	REFUSED("class"),
	REFUSED("weight"),
	REFUSED("reservation"),
	REFUSED("latencyTarget"),
};

#define LIMITS_SECTION(k, t)                                                                       \
	{                                                                                          \
		k, 0, parse_section, LIMITS, FIELD_TABLE(t)                                        \
	}
static const struct field tenant_fields[] = {
	{"principals", FIELD_REQUIRED, parse_principals, 0, NULL},
	{"placement", FIELD_REQUIRED, parse_placement, 0, NULL},
	{"namespaces", FIELD_REQUIRED, parse_namespaces, 0, NULL},
	LIMITS_SECTION("memory", memory_fields),
	LIMITS_SECTION("rkeys", rkeys_fields),
	LIMITS_SECTION("times", times_fields),
	LIMITS_SECTION("sessions", sessions_fields),
	LIMITS_SECTION("qos", qos_fields),
	REFUSED("queuePairs"),
	REFUSED("encryption"),
	REFUSED("audit"),
};

/* The node of "memory.regionSize.min", or the nearest one above it that is written. */
static const struct node *node_at_path(const struct node *n, const char *path)
{
	char key[64];

	while (*path) {
		size_t len = strcspn(path, ".");
		const struct node *c;

		if (len >= sizeof(key))
			return n;
		memcpy(key, path, len);
		key[len] = '\0';
		c = node_get(n, key);
		if (!c)
			return n;
		n = c;
		path += len + (path[len] == '.');
	}
	return n;
}

/* The numbers are good one by one: do they go together? Defaults take part. */
static void check_relations(struct parser *p, const struct node *spec,
                            const struct policy_limits *l)
{
	char v[UNIT_STR_LEN];

	for (int i = 0; i < LIMIT_RELATIONS; i++) {
		enum limit_id at;
		const char *why;
		size_t saved;

		if (limits_relation(l, i, &at, &why))
			continue;
		saved = path_push(p, ".%s", limit_fields[at].path);
		parse_error(p, node_at_path(spec, limit_fields[at].path), "%s %s",
		            unit_format(limit_fields[at].unit, limit_get(l, at), v), why);
		path_pop(p, saved);
	}
}

const struct policy_tenant_spec *parse_tenant(struct parser *p, const struct node *n)
{
	struct policy_tenant_spec *t = arena_alloc(p->arena, sizeof(*t));
	size_t errors = p->diags->errors;

	if (!t)
		return NULL;
	limits_default(&t->limits);
	parse_fields(p, n, FIELD_TABLE(tenant_fields), t);
	if (p->diags->errors == errors)
		check_relations(p, n, &t->limits);
	return t;
}

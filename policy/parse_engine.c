/* SPDX-License-Identifier: Apache-2.0 */
/* The schemas of Engine and Agent documents. */
#include "policy/parse.h"
#include "common/util.h"
#include "policy/limits.h"
#include "policy/text.h"
#include <assert.h>
#include <string.h>

/* 0 when the type is missing, unknown or not enforced. */
static enum policy_engine_type type_of(const struct node *n)
{
	static const enum policy_engine_type types[] = {POLICY_ENGINE_FILE, POLICY_ENGINE_MEM,
	                                                POLICY_ENGINE_NVMF};
	const struct node *type = node_get(n, "type");

	for (size_t i = 0; type && type->type == NODE_SCALAR && i < ARRAY_SIZE(types); i++)
		if (!strcmp(type->s, policy_engine_type_to_str(types[i])))
			return types[i];
	return (enum policy_engine_type)0;
}

/* The values of one engine while they are read. */
struct draft {
	enum policy_engine_type type;
	void *base; /* what the fields of its owner are for */
};

static void parse_type(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {"file", "mem", "nvmf", "dfs"};

	if (!((const struct draft *)out)->type)
		parse_expected_word(p, n, "file, mem or nvmf", words, ARRAY_SIZE(words));
}

static void parse_root(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const char *s = parse_text(p, n, "an absolute path"), *fault;
	struct policy_engine_spec *e = out;
	char q[DIAG_QUOTE_MAX];

	if (!s)
		return;
	fault = text_root_fault(s);
	if (fault)
		parse_error(p, n, "path %s %s", diag_quote(s, q), fault);
	e->root = s;
}

static void parse_size(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	parse_quantity(p, n, UNIT_BYTES, ENGINE_MEM_SIZE_MIN, ENGINE_MEM_SIZE_MAX,
	               &((struct policy_engine_spec *)out)->size_bytes);
}

static const struct field root_field[] = {{"root", FIELD_REQUIRED, parse_root, 0, NULL}};
static const struct field mem_fields[] = {
	{"size", FIELD_REQUIRED, parse_size, 0, NULL},
	{"null", 0, parse_bool, offsetof(struct policy_engine_spec, null_mode), NULL},
};

/* Whose key it is. */
static const struct owner {
	enum policy_engine_type type;
	const struct field_table *fields;
} owners[] = {
	{POLICY_ENGINE_FILE, &(const struct field_table){root_field, ARRAY_SIZE(root_field)}},
	{POLICY_ENGINE_MEM, &(const struct field_table){mem_fields, ARRAY_SIZE(mem_fields)}},
	{POLICY_ENGINE_NVMF, &nvmf_fields},
};
#define KEYS_MAX 24

static void parse_own(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const struct field *own = f->arg;

	own->parse(p, n, own, (char *)((const struct draft *)out)->base + own->offset);
}

/* Nothing more is said of an engine whose type is not known. */
static void parse_foreign(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const struct node at = {.type = NODE_MAP, .line = n->key_line, .col = n->key_col};
	const struct owner *o = f->arg;

	if (((const struct draft *)out)->type)
		parse_error(p, &at, "belongs to engines of type %s",
		            policy_engine_type_to_str(o->type));
}

/* The keys of all types, so that a key in the wrong place is named as that. */
static void parse_keys(struct parser *p, const struct node *n, struct draft *d)
{
	struct field all[KEYS_MAX] = {{"type", FIELD_REQUIRED, parse_type, 0, NULL}};
	struct field_table t = {all, 1};

	for (size_t i = 0; i < ARRAY_SIZE(owners); i++) {
		const struct owner *o = &owners[i];

		for (size_t j = 0; j < o->fields->n; j++) {
			const struct field *f = &o->fields->v[j];

			assert(t.n < KEYS_MAX);
			all[t.n++] = o->type == d->type
			                     ? (struct field){f->key, 0, parse_own, 0, f}
			                     : (struct field){f->key, 0, parse_foreign, 0, o};
		}
	}
	if (!parse_fields(p, n, &t, d))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(owners); i++)
		for (size_t j = 0; owners[i].type == d->type && j < owners[i].fields->n; j++) {
			const struct field *f = &owners[i].fields->v[j];

			if (f->flags & FIELD_REQUIRED && !node_get(n, f->key))
				parse_error(p, n, "missing key `%s` of an engine of type %s",
				            f->key, policy_engine_type_to_str(d->type));
		}
}

/* One clear error is enough for an engine this version does not have. */
static bool refuse_dfs(struct parser *p, const struct node *n)
{
	const struct node *type = node_get(n, "type");
	size_t saved;

	if (!type || type->type != NODE_SCALAR || strcmp(type->s, "dfs") != 0)
		return false;
	saved = path_push(p, ".type");
	parse_error(p, type, "`dfs` is not enforced by this version, only file, mem and nvmf are");
	path_pop(p, saved);
	return true;
}

const struct policy_engine_spec *parse_engine(struct parser *p, const struct node *n)
{
	struct policy_engine_spec *e = arena_alloc(p->arena, sizeof(*e));
	struct draft d = {.type = type_of(n), .base = e};
	struct nvmf_draft *nvmf;

	if (!e)
		return NULL;
	e->root = "";
	e->type = d.type;
	if (refuse_dfs(p, n))
		return e;
	if (d.type == POLICY_ENGINE_NVMF) {
		d.base = nvmf = arena_alloc(p->arena, sizeof(*nvmf));
		if (!nvmf)
			return NULL;
		nvmf_draft_init(nvmf);
		parse_keys(p, n, &d);
		nvmf_draft_finish(p, n, nvmf);
		e->nvmf = &nvmf->v;
		e->volumes_at = nvmf->volumes_at;
	} else {
		parse_keys(p, n, &d);
	}
	return e;
}

static const struct field agent_fields[] = {
	{"address", FIELD_NOT_ENFORCED, NULL, 0, NULL},
};

void parse_agent(struct parser *p, const struct node *n)
{
	parse_fields(p, n, FIELD_TABLE(agent_fields), NULL);
}

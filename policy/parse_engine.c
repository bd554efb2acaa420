/* SPDX-License-Identifier: Apache-2.0 */
/* The schemas of Engine and Agent documents. */
#include "policy/parse.h"
#include "common/util.h"
#include "policy/limits.h"
#include "policy/text.h"
#include <string.h>

static void parse_type(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char *const words[] = {"file", "mem", "nvmf", "dfs"};
	struct policy_engine_spec *e = out;
	const char *s = n->type == NODE_SCALAR ? n->s : "";

	if (!strcmp(s, "file"))
		e->type = POLICY_ENGINE_FILE;
	else if (!strcmp(s, "mem"))
		e->type = POLICY_ENGINE_MEM;
	else if (!strcmp(s, "nvmf") || !strcmp(s, "dfs"))
		parse_error(p, n, "`%s` is not enforced by this version, only file and mem are", s);
	else
		parse_expected_word(p, n, "file or mem", words, ARRAY_SIZE(words));
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
	struct policy_engine_spec *e = out;
	char q[DIAG_QUOTE_MAX];
	const char *why, *s;
	uint64_t v;

	unit_parse(UNIT_BYTES, "", &v, &why);
	s = parse_text(p, n, why);
	if (!s)
		return;
	if (unit_parse(UNIT_BYTES, s, &v, &why) < 0)
		parse_expected(p, n, why);
	else if (v < ENGINE_MEM_SIZE_MIN || v > ENGINE_MEM_SIZE_MAX)
		parse_error(p, n, "expected 1MiB to 16TiB, found %s", diag_quote(s, q));
	else
		e->size_bytes = v;
}

static const struct field engine_fields[] = {
	{"type", FIELD_REQUIRED, parse_type, 0, NULL},
	{"root", 0, parse_root, 0, NULL},
	{"size", 0, parse_size, 0, NULL},
	{"null", 0, parse_bool, offsetof(struct policy_engine_spec, null_mode), NULL},
};

/* A key that belongs to the other type. */
static void refuse_foreign(struct parser *p, const struct node *n, const char *key,
                           const char *owner)
{
	const struct node *c = node_get(n, key);
	struct node at = {.type = NODE_MAP};

	if (!c)
		return;
	at.line = c->key_line;
	at.col = c->key_col;
	parse_error(p, &at, "`%s` belongs to engines of type %s", key, owner);
}

const struct policy_engine_spec *parse_engine(struct parser *p, const struct node *n)
{
	struct policy_engine_spec *e = arena_alloc(p->arena, sizeof(*e));
	const struct node *type = node_get(n, "type");

	if (!e)
		return NULL;
	e->root = "";
	/* the keys of an engine this version does not have are not looked at: one clear error is
	 * enough */
	if (type && type->type == NODE_SCALAR &&
	    (!strcmp(type->s, "nvmf") || !strcmp(type->s, "dfs"))) {
		size_t saved = path_push(p, ".type");

		parse_type(p, type, NULL, e);
		path_pop(p, saved);
		return e;
	}
	if (!parse_fields(p, n, FIELD_TABLE(engine_fields), e))
		return e;
	if (e->type == POLICY_ENGINE_FILE) {
		refuse_foreign(p, n, "size", "mem");
		refuse_foreign(p, n, "null", "mem");
		if (!node_get(n, "root"))
			parse_error(p, n, "missing key `root` of an engine of type file");
	} else if (e->type == POLICY_ENGINE_MEM) {
		refuse_foreign(p, n, "root", "file");
		if (!node_get(n, "size"))
			parse_error(p, n, "missing key `size` of an engine of type mem");
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of an engine of type nvmf, and how they fit each other within one document. */
#include "policy/nvmf.h"
#include "common/util.h"
#include "policy/parse.h"
#include "policy/text.h"
#include <assert.h>
#include <string.h>

/* Text into a place of @max bytes and a NUL; a fault is told with the text. */
static bool take_text(struct parser *p, const struct node *n, const char *what,
                      const char *(*fault_of)(const char *), char *out, size_t max)
{
	const char *s = parse_text(p, n, what), *fault = s ? fault_of(s) : NULL;
	char q[DIAG_QUOTE_MAX];

	if (fault)
		parse_error(p, n, "%s %s", diag_quote(s, q), fault);
	if (!s || fault)
		return false;
	assert(strlen(s) <= max);
	memcpy(out, s, strlen(s) + 1);
	return true;
}

#define PLACE(f) offsetof(struct nvmf_draft, v.f)

static void parse_address(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const char *s = parse_text(p, n, "an IPv4 or IPv6 address"), *fault;
	char q[DIAG_QUOTE_MAX];

	fault = s ? nvmf_address_fault(s, out) : NULL;
	if (fault)
		parse_error(p, n, "%s %s", diag_quote(s, q), fault);
}

static void parse_subsystem(struct parser *p, const struct node *n, const struct field *f,
                            void *out)
{
	take_text(p, n, "the NQN of a subsystem", nvmf_subsystem_fault, out, POLICY_NQN_MAX);
}

static void parse_host(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	take_text(p, n, "an NQN with `{tenant}`", nvmf_host_fault, out, POLICY_NQN_MAX);
}

static void parse_secret(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	static const char what[] = "the name of a file in the agent's secrets directory";
	char *name = out;

	if (take_text(p, n, what, nvmf_secret_fault, name, POLICY_SECRET_NAME_MAX) &&
	    !strstr(name, POLICY_TENANT_MARK))
		parse_warning(p, n,
		              "all tenants have the same secret: with `{tenant}` in it each has "
		              "its own");
}

/* What the target proves may well be one secret for all hosts. */
static void parse_target_secret(struct parser *p, const struct node *n, const struct field *f,
                                void *out)
{
	take_text(p, n, "the name of a file in the agent's secrets directory", nvmf_secret_fault,
	          out, POLICY_SECRET_NAME_MAX);
}

static void parse_number(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	const struct nvmf_number *l = f->arg;
	uint64_t v;

	if (parse_quantity(p, n, l->unit, l->min, l->max, &v))
		nvmf_number_set(out, (enum nvmf_number_id)(l - nvmf_numbers), v);
}

static const struct word_list transports = {"tcp or rdma", (const char *const[]){"tcp", "rdma"}, 2};
static const struct word_list key_words = {"perCommand or standing",
                                           (const char *const[]){"perCommand", "standing"}, 2};

static void parse_transport(struct parser *p, const struct node *n, const struct field *f,
                            void *out)
{
	unsigned v = 0;

	parse_word(p, n, f, &v);
	*(enum policy_transport *)out = (enum policy_transport)v;
}

static void parse_keys_word(struct parser *p, const struct node *n, const struct field *f,
                            void *out)
{
	unsigned v = 0;

	parse_word(p, n, f, &v);
	*(bool *)out = v == 1;
}

static const struct field digest_fields[] = {
	{"header", 0, parse_bool, PLACE(header_digest), NULL},
	{"data", 0, parse_bool, PLACE(data_digest), NULL},
};

/* ---- volumes ---- */

static void parse_volume_name(struct parser *p, const struct node *n, const struct field *f,
                              void *out)
{
	take_text(p, n, "the name of a volume, like `team-a/vol0`", nvmf_volume_name_fault, out,
	          POLICY_VOLUME_NAME_MAX);
}

static void parse_nsid(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	uint64_t v;

	if (parse_quantity(p, n, UNIT_COUNT, 1, NVMF_NSID_MAX, &v))
		*(uint32_t *)out = (uint32_t)v;
}

static void parse_bytes(struct parser *p, const struct node *n, uint64_t min, uint64_t *out)
{
	char q[DIAG_QUOTE_MAX];
	uint64_t v;

	if (!parse_quantity(p, n, UNIT_BYTES, min, NVMF_VOLUME_END, &v))
		return;
	if (v % NVMF_VOLUME_ALIGN)
		parse_error(p, n, "expected a multiple of 512B, found %s", diag_quote(n->s, q));
	else
		*out = v;
}

static void parse_offset(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	/* the one number that means the same in every unit */
	if (n->type != NODE_SCALAR || strcmp(n->s, "0") != 0)
		parse_bytes(p, n, 0, out);
}

static void parse_volume_size(struct parser *p, const struct node *n, const struct field *f,
                              void *out)
{
	parse_bytes(p, n, NVMF_VOLUME_ALIGN, out);
}

static const struct field volume_fields[] = {
	{"name", FIELD_REQUIRED, parse_volume_name, offsetof(struct policy_volume, name), NULL},
	{"nsid", FIELD_REQUIRED, parse_nsid, offsetof(struct policy_volume, nsid), NULL},
	{"offset", 0, parse_offset, offsetof(struct policy_volume, offset), NULL},
	{"size", 0, parse_volume_size, offsetof(struct policy_volume, size), NULL},
};

struct volume_draft {
	struct policy_volume v;
	struct policy_place at;
	bool good; /* worth comparing with others */
};

static void parse_volume(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct volume_draft *d = out;
	size_t errors = p->diags->errors;

	d->at = (struct policy_place){n->line, n->col};
	if (!parse_fields(p, n, FIELD_TABLE(volume_fields), &d->v) || p->diags->errors != errors)
		return;
	if (d->v.offset && !d->v.size)
		parse_error(p, n, "an offset needs a size");
	else if (d->v.size > NVMF_VOLUME_END - d->v.offset)
		parse_error(p, n, "offset and size reach beyond 8388608TiB");
	else
		d->good = true;
}

/* True when nothing was to be said. */
static bool compare(struct parser *p, const struct volume_draft *v, const struct volume_draft *old)
{
	const struct node at = {.type = NODE_MAP, .line = v->at.line, .col = v->at.col};

	if (!strcmp(v->v.name, old->v.name))
		parse_error(p, &at, "volume `%s` is already defined in line %d", v->v.name,
		            old->at.line);
	else if (text_path_within(old->v.name, v->v.name) ||
	         text_path_within(v->v.name, old->v.name))
		parse_error(p, &at, "volume `%s` and volume `%s` (line %d): one lies in the other",
		            v->v.name, old->v.name, old->at.line);
	else if (nvmf_volumes_overlap(&v->v, &old->v))
		parse_error(p, &at, "volume `%s` overlaps volume `%s` (line %d) on namespace %u%s",
		            v->v.name, old->v.name, old->at.line, v->v.nsid,
		            v->v.size && old->v.size
		                    ? ""
		                    : ": without a size it is the whole namespace");
	else
		return true;
	return false;
}

static void parse_volumes(struct parser *p, const struct node *n, const struct field *f, void *out)
{
	struct nvmf_draft *d = out;
	struct policy_place *at;
	size_t count;
	struct volume_draft *v =
		parse_list(p, n, 1, POLICY_VOLUMES_MAX, sizeof(*v), parse_volume, &count);

	at = v ? arena_array(p->arena, count, sizeof(*at)) : NULL;
	if (!at)
		return;
	for (size_t i = 0; i < count; i++) {
		size_t saved = path_push(p, "[%zu]", i);

		for (size_t j = 0; j < i; j++)
			if (v[i].good && v[j].good && !compare(p, &v[i], &v[j]))
				break; /* one fault of a volume is enough */
		path_pop(p, saved);
		d->v.volumes[i] = v[i].v;
		at[i] = v[i].at;
	}
	d->v.n_volumes = (uint32_t)count;
	d->volumes_at = at;
}

/* ---- the whole ---- */

static const struct field fields[] = {
	{"transport", FIELD_REQUIRED, parse_transport, PLACE(transport), &transports},
	{"address", FIELD_REQUIRED, parse_address, PLACE(address), NULL},
	{"port", 0, parse_number, 0, &nvmf_numbers[NVMF_NUMBER_PORT]},
	{"subsystem", FIELD_REQUIRED, parse_subsystem, PLACE(subsystem), NULL},
	{"hostNqn", FIELD_REQUIRED, parse_host, PLACE(host_nqn), NULL},
	{"secretRef", 0, parse_secret, PLACE(secret), NULL},
	{"targetSecretRef", 0, parse_target_secret, PLACE(target_secret), NULL},
	{"digests", 0, parse_section, 0,
         &(const struct field_table){digest_fields, ARRAY_SIZE(digest_fields)}},
	{"keys", 0, parse_keys_word, PLACE(keys_per_command), &key_words},
	{"queueDepth", 0, parse_number, 0, &nvmf_numbers[NVMF_NUMBER_QUEUE_DEPTH]},
	{"keepAlive", 0, parse_number, 0, &nvmf_numbers[NVMF_NUMBER_KEEP_ALIVE]},
	{"commandTimeout", 0, parse_number, 0, &nvmf_numbers[NVMF_NUMBER_COMMAND_TIMEOUT]},
	{"quiesce", 0, parse_number, 0, &nvmf_numbers[NVMF_NUMBER_QUIESCE]},
	{"volumes", FIELD_REQUIRED, parse_volumes, 0, NULL},
};
const struct field_table nvmf_fields = {fields, ARRAY_SIZE(fields)};

/* The draft begins with the values, so that their table works on both. */
_Static_assert(offsetof(struct nvmf_draft, v) == 0, "values first");

void nvmf_draft_init(struct nvmf_draft *d)
{
	/* A wrong header puts a payload where it does not belong, and its digest costs nothing.
	 * That of the data costs another look at every byte, which is why nobody has it on unasked.
	 */
	d->v.header_digest = true;
	d->v.keys_per_command = true;
	for (int i = 0; i < NVMF_NUMBERS; i++)
		nvmf_number_set(&d->v, (enum nvmf_number_id)i, nvmf_numbers[i].fallback);
}

/* About a key that was given; nothing when it was not. */
static void key_error(struct parser *p, const struct node *n, const char *key, const char *words)
{
	const struct node *c = node_get(n, key);
	struct node at = {.type = NODE_MAP};
	size_t saved;

	if (!c)
		return;
	at.line = c->key_line;
	at.col = c->key_col;
	saved = path_push(p, ".%s", key);
	parse_error(p, &at, "%s", words);
	path_pop(p, saved);
}

void nvmf_draft_finish(struct parser *p, const struct node *n, struct nvmf_draft *d)
{
	struct policy_nvmf *v = &d->v;

	if (v->transport == POLICY_TRANSPORT_RDMA) {
		key_error(p, n, "digests", "belongs to transport tcp");
		v->header_digest = v->data_digest = false;
	}
	if (v->transport == POLICY_TRANSPORT_TCP) {
		key_error(p, n, "keys", "belongs to transport rdma");
		v->keys_per_command = false;
	}
	if (!node_get(n, "secretRef"))
		key_error(p, n, "targetSecretRef",
		          "needs `secretRef`: a target proves itself only to a host that does");
	else if (v->secret[0] && !strcmp(v->secret, v->target_secret))
		key_error(p, n, "targetSecretRef",
		          "is the same as `secretRef`: each side could prove what the other does");
}

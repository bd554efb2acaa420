/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document in one fixed form: every field, defaults written out, plain units. Two documents with
 * the same canonical text are the same policy, so it is what `diff` compares and what decides that
 * nothing changed.
 */
#include "policy/parse.h"
#include "common/probe.h"
#include "common/util.h"
#include "policy/limits.h"
#include "policy/nvmf.h"
#include <stdio.h>
#include <string.h>

/* Strings were checked to be printable, so only the quote and the backslash need an escape. */
static void quoted(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', f);
		fputc(*s, f);
	}
	fputc('"', f);
}

static void labels(FILE *f, const struct policy_label *v, size_t n)
{
	fputc('{', f);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? ", " : "", f);
		quoted(f, v[i].key);
		fputs(": ", f);
		quoted(f, v[i].value);
	}
	fputs("}\n", f);
}

static void strings(FILE *f, const char *indent, const struct policy_string *v, size_t n)
{
	fputs(n ? "\n" : " []\n", f);
	for (size_t i = 0; i < n; i++) {
		fputs(indent, f);
		fputs("- ", f);
		quoted(f, v[i].s);
		fputc('\n', f);
	}
}

static void placement(FILE *f, const struct policy_tenant_spec *t)
{
	fputs("  placement:\n", f);
	if (t->n_agents) {
		fputs("    agents:", f);
		strings(f, "      ", t->agents, t->n_agents);
	}
	if (t->n_selector) {
		fputs("    selector: ", f);
		labels(f, t->selector, t->n_selector);
	}
	if (t->require)
		fputs("    require:\n", f);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		if (t->require & 1u << i)
			fprintf(f, "      - %s\n", probe_property_to_str((enum probe_property)i));
}

static void one_namespace(FILE *f, const struct policy_namespace_spec *ns)
{
	fprintf(f, "    - name: \"%s\"\n      engine: \"%s\"\n      path: ", ns->name, ns->engine);
	quoted(f, ns->path);
	fprintf(f, "\n      access: %s\n      shared: %s\n", policy_access_to_str(ns->access),
	        ns->shared ? "true" : "false");
	if (ns->n_rules)
		fputs("      paths:\n", f);
	for (size_t i = 0; i < ns->n_rules; i++) {
		fputs("        - pattern: ", f);
		quoted(f, ns->rules[i].pattern);
		fprintf(f, "\n          access: %s\n", policy_access_to_str(ns->rules[i].access));
	}
}

/* "    key: 4KiB"; nothing for an optional number that was not given. */
static void number(FILE *f, const struct policy_limits *l, enum limit_id id, const char *indent)
{
	const struct limit_field *field = &limit_fields[id];
	uint64_t v = limit_get(l, id);
	char s[UNIT_STR_LEN];

	if (!v && field->zero_is_unlimited)
		return;
	fprintf(f, "%s%s: %s\n", indent, strrchr(field->path, '.') + 1,
	        unit_format(field->unit, v, s));
}

static void rate(FILE *f, const struct policy_limits *l, const char *key, enum limit_id bytes,
                 enum limit_id ops)
{
	if (!limit_get(l, bytes) && !limit_get(l, ops))
		return;
	fprintf(f, "    %s:\n", key);
	number(f, l, bytes, "      ");
	number(f, l, ops, "      ");
}

static void limits(FILE *f, const struct policy_limits *l)
{
	static const char *const access[] = {"", "read", "write", "read, write"};

	fputs("  memory:\n", f);
	number(f, l, LIMIT_REGISTERED_BYTES, "    ");
	number(f, l, LIMIT_REGIONS, "    ");
	fputs("    regionSize:\n", f);
	number(f, l, LIMIT_REGION_SIZE_MIN, "      ");
	number(f, l, LIMIT_REGION_SIZE_MAX, "      ");
	number(f, l, LIMIT_ALIGNMENT, "    ");
	number(f, l, LIMIT_CONTROL_VERBS, "    ");
	fprintf(f, "    access: [%s]\n  rkeys:\n", access[l->region_access & POLICY_ACCESS_ALL]);
	number(f, l, LIMIT_LEASE_TTL, "    ");
	number(f, l, LIMIT_CONCURRENT, "    ");
	fputs("    violations:\n", f);
	number(f, l, LIMIT_VIOLATIONS, "      ");
	fprintf(f, "      action: %s\n  times:\n",
	        policy_violation_action_to_str(l->violations_action));
	number(f, l, LIMIT_GRANT_LIFETIME, "    ");
	number(f, l, LIMIT_CONTACT, "    ");
	fputs("    offlineRestart: false\n  sessions:\n", f);
	number(f, l, LIMIT_SESSIONS, "    ");
	fputs("  qos:\n", f);
	rate(f, l, "read", LIMIT_READ_BYTES, LIMIT_READ_OPS);
	rate(f, l, "write", LIMIT_WRITE_BYTES, LIMIT_WRITE_OPS);
	number(f, l, LIMIT_BURST, "    ");
	fprintf(f, "    scope: agent\n    onControllerLoss: %s\n",
	        policy_controller_loss_to_str(l->on_controller_loss));
}

static void tenant(FILE *f, const struct policy_tenant_spec *t)
{
	fputs("spec:\n  principals:", f);
	strings(f, "    ", t->principals, t->n_principals);
	placement(f, t);
	fputs(t->n_namespaces ? "  namespaces:\n" : "  namespaces: []\n", f);
	for (size_t i = 0; i < t->n_namespaces; i++)
		one_namespace(f, &t->namespaces[i]);
	limits(f, &t->limits);
}

static void quoted_line(FILE *f, const char *key, const char *value)
{
	fprintf(f, "  %s: ", key);
	quoted(f, value);
	fputc('\n', f);
}

static void volume(FILE *f, const struct policy_volume *v)
{
	char s[UNIT_STR_LEN];

	fputs("    - name: ", f);
	quoted(f, v->name);
	fprintf(f, "\n      nsid: %u\n", v->nsid);
	if (!v->size)
		return;
	fprintf(f, "      offset: %s\n", unit_format(UNIT_BYTES, v->offset, s));
	fprintf(f, "      size: %s\n", unit_format(UNIT_BYTES, v->size, s));
}

static void nvmf(FILE *f, const struct policy_nvmf *n)
{
	char s[UNIT_STR_LEN];

	fprintf(f, "  transport: %s\n", policy_transport_to_str(n->transport));
	quoted_line(f, "address", n->address);
	quoted_line(f, "subsystem", n->subsystem);
	quoted_line(f, "hostNqn", n->host_nqn);
	if (n->secret[0])
		quoted_line(f, "secretRef", n->secret);
	if (n->target_secret[0])
		quoted_line(f, "targetSecretRef", n->target_secret);
	if (n->transport == POLICY_TRANSPORT_TCP)
		fprintf(f, "  digests:\n    header: %s\n    data: %s\n",
		        n->header_digest ? "true" : "false", n->data_digest ? "true" : "false");
	else
		fprintf(f, "  keys: %s\n", n->keys_per_command ? "perCommand" : "standing");
	for (int i = 0; i < NVMF_NUMBERS; i++) {
		uint64_t v = nvmf_number_get(n, (enum nvmf_number_id)i);

		if (v)
			fprintf(f, "  %s: %s\n", nvmf_numbers[i].key,
			        unit_format(nvmf_numbers[i].unit, v, s));
	}
	fputs("  volumes:\n", f);
	for (uint32_t i = 0; i < n->n_volumes; i++)
		volume(f, &n->volumes[i]);
}

static void engine(FILE *f, const struct policy_engine_spec *e)
{
	char s[UNIT_STR_LEN];

	fprintf(f, "spec:\n  type: %s\n", policy_engine_type_to_str(e->type));
	if (e->type == POLICY_ENGINE_FILE)
		quoted_line(f, "root", e->root);
	else if (e->type == POLICY_ENGINE_MEM)
		fprintf(f, "  size: %s\n  \"null\": %s\n",
		        unit_format(UNIT_BYTES, e->size_bytes, s), e->null_mode ? "true" : "false");
	else
		nvmf(f, e->nvmf);
}

static void document(FILE *f, const struct policy_doc *d)
{
	fprintf(f, "apiVersion: %s\nkind: %s\nmetadata:\n  name: \"%s\"\n", API_VERSION,
	        policy_kind_to_str(d->kind), d->name);
	if (d->n_labels) {
		fputs("  labels: ", f);
		labels(f, d->labels, d->n_labels);
	}
	if (d->tenant)
		tenant(f, d->tenant);
	else if (d->engine)
		engine(f, d->engine);
	else
		fputs("spec: {}\n", f);
}

const char *canonical_text(struct arena *a, const struct policy_doc *d)
{
	char *buf = NULL;
	const char *text;
	size_t len = 0;
	FILE *f = open_memstream(&buf, &len);
	bool failed;

	if (!f)
		return NULL;
	document(f, d);
	failed = ferror(f);
	failed |= fclose(f) != 0;
	text = failed ? NULL : arena_strndup(a, buf, len);
	free(buf);
	return text;
}

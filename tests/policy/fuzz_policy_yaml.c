/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a policy document. What is accepted must hold together: its canonical text gives
 * itself again, its stored text parses alone, and it compiles to an image that opens.
 */
#include "common/util.h"
#include "policy/policy.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* NULL when @text is refused, which must come with words. */
static struct policy_set *parse(const char *text, size_t len, int first_line)
{
	struct policy_source src = {"fuzz", text, len, first_line};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	int rc = policy_parse(&src, 1, &s, &d);

	must((rc == 0) == (s != NULL) && (rc == 0 || d.errors > 0));
	free(policy_diags_to_str(&d));
	policy_diags_fini(&d);
	return s;
}

static void same_again(const struct policy_doc *d, const char *text, int first_line)
{
	struct policy_set *s = parse(text, strlen(text), first_line);

	must(s && policy_set_count(s) == 1);
	must(!strcmp(policy_set_at(s, 0)->canonical, d->canonical));
	policy_set_free(s);
}

static void use(const struct policy_doc *d)
{
	static const struct ros2_uid uid = {.b = {1}};
	struct policy_image_tenant t;
	struct policy_explanation e;
	AUTO_FREE void *image = NULL;
	size_t len;
	int rc = policy_compile_doc(d, &uid, 1, &image, &len, NULL);

	must((rc == 0) == (d->kind != POLICY_KIND_AGENT));
	if (d->kind != POLICY_KIND_TENANT)
		return;
	must(policy_image_open_tenant(image, len, &t, NULL) == 0);
	must(t.n_namespaces == d->tenant->n_namespaces);
	for (size_t i = 0; i < d->tenant->n_namespaces; i++)
		must(policy_explain(d, d->tenant->namespaces[i].name, "a/b", 1, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct policy_set *s = parse((const char *)data, size, 0);
	struct policy_diags d = POLICY_DIAGS_INIT;

	for (size_t i = 0; s && i < policy_set_count(s); i++) {
		const struct policy_doc *doc = policy_set_at(s, i);

		same_again(doc, doc->canonical, 0);
		same_again(doc, doc->text, doc->line);
		use(doc);
	}
	if (s)
		policy_check(s, &d);
	policy_diags_fini(&d);
	policy_set_free(s);
	return 0;
}

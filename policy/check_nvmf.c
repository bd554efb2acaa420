/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes across engines. An NQN is the name of one subsystem wherever it is reached, so engines
 * with the same subsystem are compared whatever their addresses say: one target has many. Sorted by
 * place, each volume needs only to be compared with the one that reaches furthest so far.
 */
#include "common/util.h"
#include "policy/diags.h"
#include "policy/nvmf.h"
#include <errno.h>
#include <string.h>

struct extent {
	const struct policy_volume *v;
	const struct policy_doc *doc;
	const struct policy_place *at;
};

static int extent_compare(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;
	int r = strcmp(x->doc->engine->nvmf->subsystem, y->doc->engine->nvmf->subsystem);

	if (r)
		return r;
	if (x->v->nsid != y->v->nsid)
		return x->v->nsid < y->v->nsid ? -1 : 1;
	if (x->v->offset != y->v->offset)
		return x->v->offset < y->v->offset ? -1 : 1;
	r = strcmp(x->doc->name, y->doc->name);
	return r ? r : strcmp(x->v->name, y->v->name);
}

static bool overlap(const struct extent *a, const struct extent *b)
{
	return !strcmp(a->doc->engine->nvmf->subsystem, b->doc->engine->nvmf->subsystem) &&
	       nvmf_volumes_overlap(a->v, b->v);
}

/* Within one engine the parser has refused it already. */
static void find_overlaps(const struct extent *v, size_t n, struct policy_diags *d)
{
	const struct extent *far = NULL;

	for (size_t i = 0; i < n; i++) {
		const struct extent *e = &v[i];

		if (far && overlap(e, far))
			diags_add(
				d, POLICY_ERROR,
				(struct diag_at){e->doc->file, e->at->line, e->at->col},
				"volume `%s` of engine `%s` overlaps volume `%s` of engine `%s` at "
				"%.64s:%d: both are on namespace %u of `%.80s`",
				e->v->name, e->doc->name, far->v->name, far->doc->name,
				far->doc->file, far->at->line, e->v->nsid,
				e->doc->engine->nvmf->subsystem);
		if (!far || !overlap(e, far) || nvmf_volume_end(e->v) > nvmf_volume_end(far->v))
			far = e;
	}
}

int nvmf_check_set(const struct policy_set *s, struct policy_diags *d)
{
	AUTO_FREE struct extent *v = NULL;
	size_t max = 0, n = 0;

	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *e = policy_set_at(s, i);

		max += e->engine && e->engine->nvmf ? e->engine->nvmf->n_volumes : 0;
	}
	if (!max)
		return 0;
	v = calloc(max, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *e = policy_set_at(s, i);

		for (uint32_t j = 0; e->engine && e->engine->nvmf && j < e->engine->nvmf->n_volumes;
		     j++)
			v[n++] = (struct extent){&e->engine->nvmf->volumes[j], e,
			                         &e->engine->volumes_at[j]};
	}
	qsort(v, n, sizeof(*v), extent_compare);
	find_overlaps(v, n, d);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose keys an RDMA device has not ended yet: each reactor is asked for each protection domain,
 * also for those whose tenant has gone, and the loop adds up. All memory first: a list that lacks a
 * reactor's keys must not look whole.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/verbs.h"
#include <errno.h>
#include <string.h>

struct keys_listing {
	struct dp *dp;
	dp_keys_fn fn;
	void *arg;
	uint32_t parts, n;
	struct list link; /* dp.keys_listings */
	struct dp_keys_of v[];
};

/* NULL: only counted. Two of one tenant are two here. */
static uint32_t domains(const struct dp *dp, struct dp_keys_of *v)
{
	const struct dp_tenant *t;
	uint32_t n = 0;

	list_for_each (&dp->tenants, t, link) {
		if (!t->pd)
			continue;
		if (v)
			v[n] = (struct dp_keys_of){.tenant = t->uid, .pd = t->pd};
		n++;
	}
	return n + verbs_kept_pds(dp, v ? v + n : NULL);
}

static void listing_end(struct keys_listing *l)
{
	list_del(&l->link);
	l->fn(l->arg, NULL, 0);
	free(l);
}

static void listing_back(struct dp_op *op)
{
	struct keys_listing *l = op->arg;

	for (uint32_t i = 0; i < l->n; i++)
		l->v[i].keys += op->keys_of[i].keys;
	dp_op_finish(op);
	if (--l->parts)
		return;
	for (uint32_t i = 0; i < l->n; i++)
		if (l->v[i].keys)
			l->fn(l->arg, &l->v[i].tenant, l->v[i].keys);
	listing_end(l);
}

static void run_count(struct reactor *r, struct dp_op *op)
{
	uint64_t last_ns = 0;

	for (uint32_t i = 0; i < op->n_keys_of; i++)
		op->keys_of[i].keys =
			reactor_engines_ending(r, op->keys_of[i].pd, op->keys_ended_ns, &last_ns);
	dp_op_back(op);
}

/* NULL: without memory. */
static struct dp_op *part_new(struct dp *dp, const struct keys_listing *l)
{
	struct dp_op *op = dp_op_try(dp, NULL, NULL);

	if (!op)
		return NULL;
	op->keys_of = calloc(MAX(l->n, 1u), sizeof(*op->keys_of));
	if (!op->keys_of) {
		dp_op_free(op);
		return NULL;
	}
	memcpy(op->keys_of, l->v, l->n * sizeof(*l->v));
	op->n_keys_of = l->n;
	return op;
}

int dp_keys_pending(struct dp *dp, uint64_t until_ns, dp_keys_fn fn, void *arg)
{
	uint32_t n = domains(dp, NULL);
	struct keys_listing *l = calloc(1, sizeof(*l) + n * sizeof(*l->v));
	struct dp_op *parts[DP_REACTORS_MAX] = {0};
	bool ok = l != NULL;

	loop_assert_owner(dp->loop);
	if (ok) {
		*l = (struct keys_listing){.dp = dp, .fn = fn, .arg = arg, .n = n};
		domains(dp, l->v);
	}
	for (uint32_t i = 0; ok && i < dp->n_reactors; i++) {
		parts[i] = part_new(dp, l);
		ok = parts[i] != NULL;
	}
	if (!ok) {
		for (uint32_t i = 0; i < dp->n_reactors && parts[i]; i++)
			dp_op_free(parts[i]);
		free(l);
		return -ENOMEM;
	}
	list_add_tail(&dp->keys_listings, &l->link);
	for (uint32_t i = 0; i < dp->n_reactors; i++) {
		parts[i]->arg = l;
		parts[i]->keys_ended_ns = until_ns;
		l->parts++;
		dp_op_to_reactor(parts[i], dp->reactors[i], run_count, listing_back);
	}
	return 0;
}

void dp_keys_free(struct dp *dp)
{
	while (!list_empty(&dp->keys_listings))
		listing_end(list_first(&dp->keys_listings, struct keys_listing, link));
}

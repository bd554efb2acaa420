/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leases at one reactor, when somebody asks: of tenants' memory, from the lease table; of slots
 * lent to storage targets, from the engines. Looks at what is there at this instant; keeps nothing,
 * so that who does not ask pays nothing.
 */
#include "common/clock.h"
#include "dataplane/fabric/fabric.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/verbs.h"

#define WINDOW_IDS (1ull << 47) /* no lease of the table has it */
#define ENGINE_AT  42           /* the engine's slot in an id of a window */

_Static_assert(DP_ENGINES_MAX <= 1u << (47 - ENGINE_AT), "an engine's slot has its place in ids");
_Static_assert(2 * DP_ENGINES_MAX * 256 <= REACTOR_WINDOWS, "one row for each queue and direction");

struct collect {
	struct reactor *r;
	struct dp_op *op;
	uint64_t now_ns, unix_ns;
	/* windows */
	const struct session *s; /* whose right lasts longest */
	uint32_t engine, n;
	bool folded;
};

static uint64_t ms_until(const struct collect *c, uint64_t deadline_ns)
{
	return deadline_ns > c->now_ns ? (deadline_ns - c->now_ns) / NS_PER_MS : 0;
}

static void collect_lease(void *arg, const struct lease *l)
{
	struct collect *c = arg;
	const struct session *s = c->r->sessions[l->conn & 0xffff];
	struct dp_lease_info *info = &c->op->infos[c->op->n_infos++];

	*info = (struct dp_lease_info){
		.lease_id = l->lease_id,
		.length = l->length,
		.expires_in_ms = ms_until(c, l->deadline_ns),
		.access = l->access,
		.session = s->uid,
		.tenant = s->tenant->uid,
		.grant = s->grant->uid,
		.count = 1,
	};
}

/* ---- windows ---- */

static uint64_t rights_until(const struct session *s)
{
	return s->state == SESSION_ENDED
	               ? 0
	               : dp_rights_until(s->dp, s->tenant, s->grant, s->cert_deadline_ns);
}

/* Of this tenant's sessions here that lend, the one whose right lasts longest; NULL unless @s is
 * the first of them. */
static const struct session *stands_for(const struct reactor *r, const struct session *s)
{
	const struct session *best = s;

	if (!verbs_lends_of(s))
		return NULL;
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++) {
		const struct session *it = r->sessions[i];

		if (!it || it == s || it->tenant != s->tenant || !verbs_lends_of(it))
			continue;
		if (i < s->index)
			return NULL;
		if (rights_until(it) > rights_until(best))
			best = it;
	}
	return best;
}

static void collect_key(void *arg, const struct key_info *k)
{
	struct collect *c = arg;
	const struct session *s = c->s;

	/* Counted first: whether it is there for all of them, or one by one. */
	if (c->n++ >= REACTOR_WINDOWS)
		return;
	c->op->infos[c->op->n_infos++] = (struct dp_lease_info){
		.lease_id = (uint64_t)(c->r->index + 1) << 48 | WINDOW_IDS |
	                    (uint64_t)c->engine << ENGINE_AT | (k->id & ((1ull << ENGINE_AT) - 1)),
		.length = k->bytes,
		.expires_in_ms = ms_until(c, rights_until(s)),
		.access = (k->access & FABRIC_READ ? LEASE_READ : 0) |
	                  (k->access & FABRIC_WRITE ? LEASE_WRITE : 0),
		.session = s->uid,
		.tenant = s->tenant->uid,
		.grant = s->grant->uid,
		.kind = k->per_command ? DP_LEASE_PER_COMMAND : DP_LEASE_STANDING,
		.count = k->count,
		.since_unix_ns = k->since_ns ? c->unix_ns - (c->now_ns - k->since_ns) : 0,
		.issued = k->issued,
		.ending = k->ending,
		.engine_slot = c->engine,
	};
}

static void collect_windows(struct collect *c)
{
	const struct reactor *r = c->r;

	c->n = 0;
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++) {
		const struct session *s = r->sessions[i];

		if (!s || (c->op->of_tenant && s->tenant != c->op->of_tenant))
			continue;
		c->s = stands_for(r, s);
		for (c->engine = 0; c->s && c->engine < DP_ENGINES_MAX; c->engine++) {
			const struct rengine *re = &r->engines[c->engine];

			if (re->engine && re->engine->ops->keys)
				re->engine->ops->keys(re->er, verbs_lends_of(s), c->folded,
				                      collect_key, c);
		}
	}
}

void session_run_leases(struct reactor *r, struct dp_op *op)
{
	struct collect c = {
		.r = r, .op = op, .now_ns = clock_boottime_ns(), .unix_ns = clock_unix_ns()};
	uint32_t regions;

	lease_each(r->leases, op->of_tenant ? op->of_tenant->index : UINT32_MAX, op->max,
	           collect_lease, &c);
	regions = op->n_infos;
	collect_windows(&c);
	if (c.n > REACTOR_WINDOWS) {
		op->n_infos = regions;
		c.folded = true;
		collect_windows(&c);
	}
	dp_op_back(op);
}

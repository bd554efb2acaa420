/* SPDX-License-Identifier: Apache-2.0 */
/* What the data plane knows of storage that is elsewhere, for beats and conditions. */
#include "agent/targets.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "common/util.h"
#include <stdio.h>

struct list_call {
	struct target *v;
	size_t n, n_lost; /* the lost ones lie in front */
	uint32_t left_out;
	uint64_t now_ns, now_unix_ns;
};

/* Where the next row goes; NULL: nowhere. */
static struct target *place(struct list_call *c, bool lost)
{
	bool full = c->n == TARGETS_MAX;

	c->left_out += full;
	if (full && (!lost || c->n_lost == c->n))
		return NULL;
	if (!lost)
		return &c->v[c->n++];
	if (!full)
		c->v[c->n++] = c->v[c->n_lost];
	return &c->v[c->n_lost++];
}

static void add(void *arg, const struct dp_engine_health *h)
{
	struct list_call *c = arg;
	uint64_t ago_ns = c->now_ns > h->since_ns ? c->now_ns - h->since_ns : 0;
	struct target *t = place(c, h->lost);

	if (!t)
		return;
	*t = (struct target){.lost = h->lost,
	                     .since_unix_ns =
	                             c->now_unix_ns > ago_ns ? c->now_unix_ns - ago_ns : 0};
	utf8_escape(h->engine, t->engine, sizeof(t->engine));
	utf8_escape(h->tenant, t->tenant, sizeof(t->tenant));
	utf8_escape(h->state, t->state, sizeof(t->state));
	if (h->lost)
		utf8_escape(h->words, t->reason, sizeof(t->reason));
}

size_t targets_list(struct dp *dp, struct target v[TARGETS_MAX], uint32_t *ret_left_out)
{
	struct list_call c = {
		.v = v, .now_ns = clock_boottime_ns(), .now_unix_ns = clock_unix_ns()};

	/* Once: a target that comes or goes meanwhile is neither told twice nor left out. */
	dp_engines_health(dp, add, &c);
	*ret_left_out = c.left_out;
	return c.n;
}

struct lost_call {
	uint32_t n;
	uint64_t since_ns; /* of the one that `first` is about */
	char first[2 * ROS2_NAME_MAX + TARGET_REASON_MAX + 32];
};

static void count(void *arg, const struct dp_engine_health *h)
{
	struct lost_call *c = arg;
	char why[TARGET_REASON_MAX + 1];

	if (!h->lost)
		return;
	if (c->n++ && h->since_ns >= c->since_ns)
		return;
	c->since_ns = h->since_ns;
	utf8_escape(h->words, why, sizeof(why));
	snprintf(c->first, sizeof(c->first), "engine %s, tenant %s: %s", h->engine, h->tenant, why);
}

uint32_t targets_lost(struct dp *dp, char *words, size_t size)
{
	struct lost_call c = {0};

	dp_engines_health(dp, count, &c);
	if (c.n > 1)
		snprintf(words, size, "%u are lost, first %s", c.n, c.first);
	else
		snprintf(words, size, "%s", c.first);
	utf8_clean(words); /* a character that was cut */
	return c.n;
}

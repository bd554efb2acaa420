/* SPDX-License-Identifier: Apache-2.0 */
/* How many calls or streams each group of peers has open, so that one cannot take every place. A
 * place goes back to the group it was taken from, wherever its peer belongs by then. Bound: an
 * entry for each place, for one without any is gone. */
#include "common/hash.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct quota_entry {
	struct rpc_quota *quota; /* borrowed: the server's */
	char group[RPC_GROUP_MAX + 1];
	uint32_t n;
	UT_hash_handle hh;
};

void rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group)
{
	/* A quarter is kept for who has none or few: of the default 1024, the first four of 64
	 * groups. */
	uint32_t kept = (uint32_t)total / 4;

	*q = (struct rpc_quota){.of = of,
	                        .share = {.total = (uint32_t)total,
	                                  .most = (uint32_t)per_group,
	                                  .sure = MAX(kept / 64, 1u),
	                                  .kept = kept}};
}

static struct quota_entry *entry_new(struct rpc_quota *q, const char *group)
{
	struct quota_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->quota = q;
	snprintf(e->group, sizeof(e->group), "%s", group);
	HASH_ADD_STR(q->entries, group, e);
	if (HASH_TOOK(hh, e))
		return e;
	free(e);
	return NULL;
}

/* What the others have is not said: it is theirs. */
static int refuse(const struct rpc_quota *q, uint32_t held, struct ros2_err *err)
{
	const struct share *s = &q->share;

	if (held >= s->most)
		return ros2_err_set(err, -EBUSY,
		                    "too many open at once from this caller: it has %u %s, and its "
		                    "share of the %u is %u (fixed): try again when one has ended",
		                    held, q->of, s->total, s->most);
	return ros2_err_set(err, -EBUSY,
	                    "the server is at its limit: of its %u %s (fixed) the last %u are for "
	                    "each caller's first %u, and this one has %u: try again later",
	                    s->total, q->of, s->kept, s->sure, held);
}

int rpc_quota_take(struct rpc_quota *q, const char *group, struct quota_entry **ret,
                   struct ros2_err *err)
{
	struct quota_entry *e;

	HASH_FIND_STR(q->entries, group, e);
	if (!share_allows(&q->share, e ? e->n : 0, q->used))
		return refuse(q, e ? e->n : 0, err);
	if (!e)
		e = entry_new(q, group);
	if (!e)
		return ros2_err_set(err, -EBUSY, "out of memory: try again later");
	e->n++;
	q->used++;
	*ret = e;
	return 0;
}

void rpc_quota_give(struct quota_entry *e)
{
	e->quota->used--;
	if (--e->n)
		return;
	HASH_DEL(e->quota->entries, e);
	free(e);
}

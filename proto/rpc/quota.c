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

void rpc_quota_init(struct rpc_quota *q, size_t total, size_t per_group)
{
	/* A quarter is kept for who has none or few: of the default 1024, the first four of 64
	 * groups. */
	uint32_t kept = (uint32_t)total / 4;

	*q = (struct rpc_quota){.share = {.total = (uint32_t)total,
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

int rpc_quota_take(struct rpc_quota *q, const char *group, struct quota_entry **ret,
                   const char **ret_what)
{
	struct quota_entry *e;

	HASH_FIND_STR(q->entries, group, e);
	*ret_what = e && e->n >= q->share.most
	                    ? "too many open at once from this caller: try again later"
	                    : "the server is at its limit: try again later";
	if (!share_allows(&q->share, e ? e->n : 0, q->used))
		return -EBUSY;
	*ret_what = "out of memory: try again later";
	if (!e)
		e = entry_new(q, group);
	if (!e)
		return -EBUSY;
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

/* SPDX-License-Identifier: Apache-2.0 */
/* How many calls or streams each peer has open, so that one peer cannot take every slot. Bound:
 * max_total entries. */
#include "common/hash.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct quota_entry {
	char key[ROS2_SPIFFE_MAX + 1];
	size_t n;
	UT_hash_handle hh;
};

/* The identity, or the address without its port. */
static void key_of(const struct rpc_peer *peer, char *out, size_t n)
{
	char *colon;

	snprintf(out, n, "%s", peer->authenticated ? peer->spiffe_id : peer->address);
	colon = peer->authenticated ? NULL : strrchr(out, ':');
	if (colon)
		*colon = '\0';
}

int rpc_quota_take(struct rpc_quota *q, const struct rpc_peer *peer, const char **ret_what)
{
	char key[ROS2_SPIFFE_MAX + 1];
	struct quota_entry *e;

	key_of(peer, key, sizeof(key));
	HASH_FIND_STR(q->entries, key, e);
	*ret_what = "the server is at its limit: try again later";
	if (q->total >= q->max_total)
		return -EBUSY;
	*ret_what = "too many open at once from this caller: try again later";
	if (e && e->n >= q->max_per_peer)
		return -EBUSY;
	if (!e) {
		*ret_what = "out of memory: try again later";
		e = calloc(1, sizeof(*e));
		if (!e)
			return -EBUSY;
		memcpy(e->key, key, sizeof(key));
		HASH_ADD_STR(q->entries, key, e);
		if (!HASH_TOOK(hh, e)) {
			free(e);
			return -EBUSY;
		}
	}
	e->n++;
	q->total++;
	return 0;
}

void rpc_quota_give(struct rpc_quota *q, const struct rpc_peer *peer)
{
	char key[ROS2_SPIFFE_MAX + 1];
	struct quota_entry *e;

	key_of(peer, key, sizeof(key));
	HASH_FIND_STR(q->entries, key, e);
	if (!e)
		return;
	q->total--;
	if (--e->n == 0) {
		HASH_DEL(q->entries, e);
		free(e);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What takes rights away and found no space is tried again until it fits, and of those that wait a
 * small one may go before a large one. Not before one about the same thing: that would put its
 * older row over the newer, and the log would tell it the wrong way round. Who waits is counted by
 * a hash of what it is about; two that share a number by chance wait for each other, which costs
 * them a moment. Store thread, or after it was joined.
 */
#include "common/hash.h"
#include "controller/store_front_priv.h"
#include <errno.h>

static uint16_t bucket(const struct store_txn *t)
{
	return (uint16_t)(hash_keyed(t->order.b, ROS2_UID_LEN) % STORE_ORDER_BUCKETS);
}

bool store_order_behind(const uint16_t n[STORE_ORDER_BUCKETS], const struct store_txn *t)
{
	return t->ordered && n[bucket(t)];
}

void store_order_count(uint16_t n[STORE_ORDER_BUCKETS], const struct store_txn *t)
{
	if (t->ordered)
		n[bucket(t)]++;
}

void store_order_wait(struct store *s, struct store_txn *t)
{
	if (t->in_line)
		return;
	t->in_line = true;
	store_order_count(s->waiting, t);
}

void store_order_leave(struct store *s, struct store_txn *t)
{
	if (t->in_line && t->ordered)
		s->waiting[bucket(t)]--;
	t->in_line = false;
}

void store_order_hold(struct store *s, struct list *txns, struct list *ret_held)
{
	struct store_txn *t, *tmp;

	list_for_each_safe (txns, t, tmp, link) {
		if (!store_order_behind(s->waiting, t))
			continue;
		store_refuse_waiting(t);
		store_order_wait(s, t);
		list_del(&t->link);
		list_add_tail(ret_held, &t->link);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction as the store's files see it. Built on the loop thread, then the store thread's,
 * then the loop thread's again when its result is delivered. */
#ifndef ROS2_CONTROLLER_STORE_TXN_H
#define ROS2_CONTROLLER_STORE_TXN_H

#include "controller/store.h"

struct chunk;
struct store_target {
	uint32_t kind;
	struct ros2_uid uid;
};

struct store_txn {
	struct list link; /* the queue it is in */
	struct store_mut *muts, few_muts[2];
	size_t n_muts, muts_cap;
	struct store_draft **drafts; /* owned array; the drafts are in chunks */
	size_t n_drafts, drafts_cap;
	struct chunk *chunks; /* owned */
	uint64_t revision;
	bool shrinks, kept, no_memory;
	bool ordered, in_line; /* it has an order; and is counted by it (store_order.c) */
	struct ros2_uid order;
	const void *note; /* in chunks; NULL: none */
	size_t note_len;
	struct store_target *targets; /* in chunks: what the note takes away */
	size_t n_targets, targets_cap;
	int slot;            /* of the journal; -1: none */
	bool in_slot, noted; /* written there; written and synced */
	bool unkept;         /* it waits at its owner: there is no place among the pending */
	store_done_fn done;
	void *arg;
	struct store_result result;
};
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of the data connection: a bounded queue of headers and of payload that stays
 * where the user has it. Many messages leave in one sendmsg. No system call here; no copy of
 * payload.
 */
#ifndef ROS2_CLIENT_TX_H
#define ROS2_CLIENT_TX_H

#include "dataplane/wire.h"
#include <stdbool.h>
#include <sys/uio.h>

#define TX_IOV_MAX 128

struct tx_entry {
	struct wire_header head;
	const void *payload; /* borrowed: until the entry was sent or dropped */
	int slot;            /* of the request it belongs to; -1 = none */
};

struct tx {
	struct tx_entry *ring; /* owned */
	uint32_t capacity;     /* a power of two */
	uint32_t first, count;
	size_t sent_of_first; /* bytes of the first entry already sent */
};

/* At least @capacity entries. 0 or -ENOMEM. */
int tx_init(struct tx *t, uint32_t capacity);
void tx_free(struct tx *t);
bool tx_is_full(const struct tx *t);
/* Seals @head and queues it with its payload (head->payload_len bytes at @payload). Not when full.
 */
void tx_push(struct tx *t, const struct wire_header *head, const void *payload, int slot);
/* Up to TX_IOV_MAX pieces of what waits. Returns how many. */
int tx_iov(const struct tx *t, struct iovec iov[TX_IOV_MAX]);
/* @n bytes were sent. Calls @sent for every entry that has left whole. */
void tx_advance(struct tx *t, size_t n, void (*sent)(void *arg, int slot), void *arg);
/* The first that waits, whole and sealed, or NULL; and away with it: for a transport that takes one
 * message at a time. */
const struct tx_entry *tx_peek(const struct tx *t);
void tx_pop(struct tx *t);
/* True when a byte of an entry of this request has left. Only the first entry can be half sent. */
bool tx_first_begun(const struct tx *t, int *ret_slot);
/* Forgets everything. */
void tx_drop(struct tx *t);
#endif

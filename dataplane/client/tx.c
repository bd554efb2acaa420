/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of the data connection; see tx.h. */
#include "dataplane/client/tx.h"
#include "dataplane/client/codec.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int tx_init(struct tx *t, uint32_t capacity)
{
	uint32_t n = 16;

	while (n < capacity)
		n *= 2;
	*t = (struct tx){.ring = calloc(n, sizeof(*t->ring)), .capacity = n};
	return t->ring ? 0 : -ENOMEM;
}

void tx_free(struct tx *t)
{
	free(t->ring);
	*t = (struct tx){0};
}

static struct tx_entry *at(const struct tx *t, uint32_t i)
{
	return &t->ring[(t->first + i) & (t->capacity - 1)];
}

bool tx_is_full(const struct tx *t)
{
	return t->count == t->capacity;
}

void tx_push(struct tx *t, const struct wire_header *head, const void *payload, int slot)
{
	struct tx_entry *e;

	assert(!tx_is_full(t));
	e = at(t, t->count++);
	*e = (struct tx_entry){.head = *head, .payload = payload, .slot = slot};
	codec_seal(&e->head);
}

int tx_iov(const struct tx *t, struct iovec iov[TX_IOV_MAX])
{
	size_t skip = t->sent_of_first;
	int n = 0;

	for (uint32_t i = 0; i < t->count && n + 2 <= TX_IOV_MAX; i++) {
		struct tx_entry *e = at(t, i);

		if (skip < WIRE_HEADER_LEN) {
			iov[n++] = (struct iovec){(char *)&e->head + skip, WIRE_HEADER_LEN - skip};
			skip = 0;
		} else {
			skip -= WIRE_HEADER_LEN;
		}
		if (e->head.payload_len)
			iov[n++] = (struct iovec){(char *)e->payload + skip,
			                          e->head.payload_len - skip};
		skip = 0;
	}
	return n;
}

void tx_advance(struct tx *t, size_t n, void (*sent)(void *arg, int slot), void *arg)
{
	n += t->sent_of_first;
	while (t->count) {
		struct tx_entry *e = at(t, 0);
		size_t whole = WIRE_HEADER_LEN + (size_t)e->head.payload_len;

		if (n < whole)
			break;
		n -= whole;
		t->first++;
		t->count--;
		if (e->slot >= 0)
			sent(arg, e->slot);
	}
	t->sent_of_first = n;
}

const struct tx_entry *tx_peek(const struct tx *t)
{
	return t->count ? at(t, 0) : NULL;
}

void tx_pop(struct tx *t)
{
	t->first++;
	t->count--;
}

bool tx_first_begun(const struct tx *t, int *ret_slot)
{
	if (!t->count || !t->sent_of_first)
		return false;
	*ret_slot = at(t, 0)->slot;
	return true;
}

void tx_drop(struct tx *t)
{
	t->first = t->count = 0;
	t->sent_of_first = 0;
}

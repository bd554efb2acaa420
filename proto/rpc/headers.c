/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers that come in pieces. Of a header that has not come to its end gRPC 1.51 keeps what there
 * is, and with each further piece copies all of it and reads it from its begin (CVE-2023-33953):
 * behind a name of a megabyte a frame of one byte, ten bytes of its caller's, is 44 ms of the
 * thread, and a read of 16 KiB more than a minute. So the frames (RFC 9113, 4.1) that a caller
 * sends are followed (ssl.c): nothing is known of them but their heads.
 */
#include "proto/rpc/headers_priv.h"
#include "common/util.h"
#include <string.h>

#define PREFACE_LEN  24 /* RFC 9113, 3.4 */
#define HEADERS      1  /* 6.2 */
#define END_HEADERS  4
#define CONTINUATION 9 /* 6.10 */

static bool piece(struct rpc_headers *h)
{
	return ++h->pieces <= RPC_HEADERS_PIECES && h->block <= RPC_HEADERS_MAX;
}

/* What the nine bytes of its head say of a frame. False: too much. */
static bool begin_frame(struct rpc_headers *h)
{
	h->left = (uint32_t)h->head[0] << 16 | (uint32_t)h->head[1] << 8 | h->head[2];
	if (h->head[3] == HEADERS)
		h->block = h->pieces = 0;
	else if (h->head[3] != CONTINUATION)
		return true;
	h->open = true;
	h->ends = h->head[4] & END_HEADERS;
	h->block += h->left;
	return piece(h);
}

/* How many of these bytes are of the same part. */
static size_t take(struct rpc_headers *h, const uint8_t *p, size_t n)
{
	size_t k;

	if (h->preface < PREFACE_LEN) {
		k = MIN(n, (size_t)PREFACE_LEN - h->preface);
		h->preface += (uint8_t)k;
	} else if (h->left) {
		k = MIN(n, (size_t)h->left);
		h->left -= (uint32_t)k;
	} else {
		k = MIN(n, sizeof(h->head) - h->n_head);
		memcpy(h->head + h->n_head, p, k);
		h->n_head = (uint8_t)((h->n_head + k) % sizeof(h->head));
		if (!h->n_head)
			h->over = !begin_frame(h);
	}
	return k;
}

bool rpc_headers_follow(struct rpc_headers *h, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	size_t k;

	if (h->open)
		h->over |= !piece(h);
	for (; n && !h->over; p += k, n -= k) {
		k = take(h, p, n);
		h->open &= h->left || !h->ends;
	}
	return !h->over;
}

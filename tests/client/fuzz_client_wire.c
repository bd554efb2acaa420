/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent sends, against a session with a read, a large write, a flush and a zero in flight.
 * The first byte of the input says how: 0 raw bytes; else each header gets magic, version and CRC,
 * and its address is counted from the region, so that the checks behind the CRC are reached.
 * Whatever comes, only the buffer of the read may change, and every request ends exactly once.
 */
#include "common/clock.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/internal_priv.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REGION    65536u
#define READ_AT   4096u
#define READ_LEN  4096u
#define WRITE_AT  8192u
#define WRITE_LEN 32768u
#define GUARD     0x5a

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static _Alignas(4096) uint8_t memory[REGION];
static struct ros2_mount mount;
static struct ros2_file file;

static void begin(struct ros2_session *s, enum request_kind kind, uint32_t at, uint32_t len)
{
	struct request *r = request_get(s, false);

	r->kind = kind;
	r->file = &file;
	r->region = kind == REQ_READ || kind == REQ_WRITE ? s->regions[0] : NULL;
	r->buf = r->region ? memory + at : NULL;
	r->len = len;
	request_prepare(s, r);
	request_set_ready(s, r, 1);
}

static void send_all(struct ros2_session *s)
{
	struct iovec iov[TX_IOV_MAX];
	int n;

	while ((n = tx_iov(&s->tx, iov)) > 0) {
		size_t bytes = 0;

		for (int i = 0; i < n; i++)
			bytes += iov[i].iov_len;
		tx_advance(&s->tx, bytes, requests_entry_sent, s);
	}
}

static struct ros2_session *set_up(struct ros2_client *c)
{
	struct ros2_session_opts o = {.depth = 8};
	struct ros2_session *s = session_make(c, &o);
	struct ros2_region *r = calloc(1, sizeof(*r));

	if (!s || !r)
		abort();
	s->credits = 8;
	s->max_io = 1u << 20;
	s->max_inline = WIRE_INLINE_MAX;
	s->features = WIRE_FEATURES_KNOWN;
	s->state = LINK_UP;
	if (requests_init(s))
		abort();
	s->regions = malloc(sizeof(*s->regions));
	s->regions[0] = r;
	s->n_regions = 1;
	*r = (struct ros2_region){.session = s,
	                          .addr = memory,
	                          .len = REGION,
	                          .access = 3,
	                          .key = 77,
	                          .generation = 5,
	                          .deadline_ns = UINT64_MAX};
	memset(memory, GUARD, sizeof(memory));
	file = (struct ros2_file){.mount = &mount, .handle = 1, .flags = ROS2_O_RDWR};
	begin(s, REQ_READ, READ_AT, READ_LEN);
	begin(s, REQ_WRITE, WRITE_AT, WRITE_LEN);
	begin(s, REQ_FLUSH, 0, 0);
	begin(s, REQ_ZERO, 0, READ_LEN);
	requests_dispatch(s);
	send_all(s);
	rx_reset(&s->rx, &requests_rx_ops, s);
	return s;
}

/* As the socket would: into the places rx names, and no more than it asked for. */
static int give(struct ros2_session *s, const uint8_t *p, size_t n)
{
	while (n) {
		struct iovec iov[2];
		int n_iov = rx_iov(&s->rx,
		                   s->n_small_reads_sent && s->n_small_reads_sent == s->n_sent
		                           ? RX_EXPECT_SMALL_READS
		                   : s->n_reads_sent ? RX_EXPECT_PAYLOAD
		                                     : RX_EXPECT_NO_PAYLOAD,
		                   iov);
		size_t took = 0;

		for (int i = 0; i < n_iov && took < n; i++) {
			size_t part = MIN(iov[i].iov_len, n - took);

			memcpy(iov[i].iov_base, p + took, part);
			took += part;
		}
		if (rx_advance(&s->rx, took, NULL))
			return -1;
		/* The send queue has room before anything is read: link.c, can_read. */
		send_all(s);
		p += took;
		n -= took;
	}
	return 0;
}

static void give_sealed(struct ros2_session *s, const uint8_t *p, size_t n)
{
	while (n >= WIRE_HEADER_LEN) {
		struct wire_header h;
		size_t payload;

		memcpy(&h, p, sizeof(h));
		h.address += (uintptr_t)memory;
		codec_seal(&h);
		payload = MIN(n - WIRE_HEADER_LEN, (size_t)h.payload_len);
		if (give(s, (const uint8_t *)&h, sizeof(h)) ||
		    give(s, p + WIRE_HEADER_LEN, payload))
			return;
		p += WIRE_HEADER_LEN + payload;
		n -= WIRE_HEADER_LEN + payload;
	}
}

/* As memcmp with itself, one byte further: a loop of our own is instrumented, and took most of the
 * time. */
static bool untouched(size_t from, size_t to)
{
	return memory[from] == GUARD && !memcmp(memory + from, memory + from + 1, to - from - 1);
}

static void check(struct ros2_session *s)
{
	struct ros2_err why = {-ESHUTDOWN, ROS2_CLOSED, "the end"};
	uint32_t done = 0;

	if (!untouched(0, READ_AT) || !untouched(READ_AT + READ_LEN, REGION))
		abort();
	requests_link_lost(s);
	requests_fail(s, &why);
	while (!list_empty(&s->done)) {
		request_put(s, list_first(&s->done, struct request, link));
		done++;
	}
	if (done != 4 || s->n_sent || s->n_reads_sent || file.users || s->regions[0]->users)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ros2_client c = {0};
	struct ros2_session *s;

	if (!size)
		return 0;
	s = set_up(&c);
	if (data[0])
		give_sealed(s, data + 1, size - 1);
	else
		give(s, data + 1, size - 1);
	check(s);
	session_unmake(s);
	return 0;
}

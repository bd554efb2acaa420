/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a segment of the audit spool, and as the name of one. The first byte says how: bit 0
 * set: each frame is given magic, a length that fits, and both CRCs, so that mutations reach what
 * lies behind them. What can be read is frames from the beginning, with seqs that follow each
 * other; written again they are the same bytes, and a segment cut after them is whole.
 */
#include "agent/spool_priv.h"
#include "common/crypto.h"
#include "common/util.h"
#include "tests/fuzz/fuzz.h"

static void seal(uint8_t *p, size_t n)
{
	while (n > SPOOL_FRAME_HEADER_LEN) {
		uint32_t len = get_le32(p + 4) % (SPOOL_RECORD_MAX + 2);

		len = (uint32_t)MIN(n - SPOOL_FRAME_HEADER_LEN, len);
		put_le32(p, SPOOL_FRAME_MAGIC);
		put_le32(p + 4, len);
		put_le32(p + 16, crypto_crc32c(p + SPOOL_FRAME_HEADER_LEN, len));
		put_le32(p + 20, crypto_crc32c(p, 20));
		p += SPOOL_FRAME_HEADER_LEN + len;
		n -= SPOOL_FRAME_HEADER_LEN + len;
	}
}

static void check_scan(const struct buf *b)
{
	struct buf again = {0}, cut;
	struct spool_scan scan, scan_again;
	uint64_t at = 0, next, n = 0;
	struct spool_view v;
	bool whole = spool_scan(b, &scan);

	must(scan.size <= b->n && whole == (scan.size == b->n));
	must(spool_lost(b, scan.size) <= b->n - scan.size);
	must(!scan.records == !scan.size && !scan.records == !scan.first_seq);
	while (at < scan.size) {
		must(spool_frame_at(b, at, &v, &next));
		must(v.len && v.len <= SPOOL_RECORD_MAX && v.seq == scan.first_seq + n++);
		must(v.p >= b->p && v.p + v.len == b->p + next && next <= scan.size);
		spool_frame_put(&again, v.seq, v.p, v.len);
		at = next;
	}
	must(n == scan.records && at == scan.size);
	must(!n || scan.last_seq == scan.first_seq + n - 1);
	must(again.n == scan.size && (!again.n || !memcmp(again.p, b->p, again.n)));
	cut = (struct buf){.p = b->p, .n = scan.size};
	must(spool_scan(&cut, &scan_again) && !memcmp(&scan, &scan_again, sizeof(scan)));
	buf_fini(&again);
}

static void check_name(const uint8_t *data, size_t size)
{
	char *name = fuzz_text(data, size), again[SPOOL_NAME_LEN];
	struct ros2_uid uid;
	uint64_t serial;

	if (spool_name_parse(name, &serial, &uid) == 0) {
		spool_name_format(serial, &uid, again);
		must(!strcmp(name, again));
	}
	free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf b = {0};
	struct spool_view v;
	uint64_t next;

	if (!size)
		return 0;
	check_name(data + 1, size - 1);
	b.n = size - 1;
	b.p = (uint8_t *)fuzz_text(data + 1, b.n);
	b.p = realloc(b.p, b.n ? b.n : 1);
	must(b.p != NULL);
	if (data[0] & 1)
		seal(b.p, b.n);
	check_scan(&b);
	for (uint64_t at = 0; at < b.n + 2; at++)
		must(!spool_frame_at(&b, at, &v, &next) || next <= b.n);
	must(!spool_frame_at(&b, UINT64_MAX, &v, &next));
	free(b.p);
	return 0;
}

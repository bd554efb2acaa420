/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the spool: names of segments, and frames of {u32 magic, u32 length, u64 seq, u32 CRC
 * of the record, u32 CRC of the 20 bytes before, record}, all little-endian. Reads nothing beyond
 * the bytes it is given, whatever they say; does no I/O.
 */
#include "agent/spool_priv.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdio.h>

/* Of a frame that may end behind @b. */
static bool header_at(const struct buf *b, uint64_t offset, uint32_t *ret_len)
{
	const uint8_t *h;

	if (offset > b->n || b->n - offset < SPOOL_FRAME_HEADER_LEN)
		return false;
	h = b->p + offset;
	*ret_len = get_le32(h + 4);
	return get_le32(h) == SPOOL_FRAME_MAGIC && get_le32(h + 20) == crypto_crc32c(h, 20) &&
	       *ret_len && *ret_len <= SPOOL_RECORD_MAX;
}

bool spool_frame_at(const struct buf *b, uint64_t offset, struct spool_view *ret,
                    uint64_t *ret_next)
{
	const uint8_t *h;
	uint32_t len;

	if (!header_at(b, offset, &len) || len > b->n - offset - SPOOL_FRAME_HEADER_LEN)
		return false;
	h = b->p + offset;
	if (get_le32(h + 16) != crypto_crc32c(h + SPOOL_FRAME_HEADER_LEN, len))
		return false;
	*ret = (struct spool_view){get_le64(h + 8), h + SPOOL_FRAME_HEADER_LEN, len};
	*ret_next = offset + SPOOL_FRAME_HEADER_LEN + len;
	return true;
}

void spool_frame_put(struct buf *b, uint64_t seq, const void *p, uint32_t len)
{
	uint8_t h[SPOOL_FRAME_HEADER_LEN];

	put_le32(h, SPOOL_FRAME_MAGIC);
	put_le32(h + 4, len);
	put_le64(h + 8, seq);
	put_le32(h + 16, crypto_crc32c(p, len));
	put_le32(h + 20, crypto_crc32c(h, 20));
	buf_put(b, h, sizeof(h));
	buf_put(b, p, len);
}

bool spool_scan(const struct buf *b, struct spool_scan *ret)
{
	struct spool_view v;
	uint64_t next;

	*ret = (struct spool_scan){0};
	while (spool_frame_at(b, ret->size, &v, &next)) {
		if (!v.seq || (ret->records && v.seq != ret->last_seq + 1))
			break;
		if (!ret->records++)
			ret->first_seq = v.seq;
		ret->last_seq = v.seq;
		ret->size = next;
	}
	return ret->size == b->n;
}

static bool all_zero(const struct buf *b, uint64_t from)
{
	while (from < b->n && !b->p[from])
		from++;
	return from >= b->n;
}

/* An append that did not come to its end, or whose bytes did not come to the disk. */
static bool is_torn(const struct buf *b, uint64_t from)
{
	uint32_t len;

	if (all_zero(b, from) || b->n - from < SPOOL_FRAME_HEADER_LEN)
		return true;
	return header_at(b, from, &len) && (len > b->n - from - SPOOL_FRAME_HEADER_LEN ||
	                                    all_zero(b, from + SPOOL_FRAME_HEADER_LEN));
}

uint64_t spool_lost(const struct buf *b, uint64_t from)
{
	uint64_t n;
	uint32_t len;

	if (is_torn(b, from))
		return 0;
	n = !header_at(b, from, &len);
	for (; from < b->n; from++)
		n += header_at(b, from, &len);
	return n;
}

void spool_name_format(uint64_t serial, const struct ros2_uid *incarnation,
                       char out[SPOOL_NAME_LEN])
{
	char hex[ROS2_UID_STR_LEN];

	ros2_uid_to_str(incarnation, hex);
	snprintf(out, SPOOL_NAME_LEN, "seg-%016llx-%s", (unsigned long long)serial, hex);
}

int spool_name_parse(const char *name, uint64_t *ret_serial, struct ros2_uid *ret_incarnation)
{
	char again[SPOOL_NAME_LEN];
	unsigned long long serial;
	struct ros2_uid uid;
	int n = 0;

	if (sscanf(name, "seg-%16llx-%n", &serial, &n) != 1 || !n ||
	    ros2_uid_from_str(name + n, &uid) < 0)
		return -EINVAL;
	/* sscanf also takes signs, blanks and 0x. The last serial has none after it. */
	spool_name_format(serial, &uid, again);
	if (strcmp(name, again) != 0 || serial == UINT64_MAX)
		return -EINVAL;
	*ret_serial = serial;
	*ret_incarnation = uid;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds and reads snapshots. The CRCs find accidents and let one bad object of the base be
 * skipped; what decides whether an object counts is its seal. Must never hand on an object of
 * another agent, another lineage, or an epoch above the header's.
 */
#include "agent/snapshot.h"
#include "agent/bytes.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>

#define ENTRY_HEADER_LEN 8u
#define OBJECTS_MAX      1000000u

#define HEADER_LEN_1 96u
#define BATCH_MAGIC  0x54414253u /* "SBAT" */
#define GONE_LEN     32u
#define ENTRY_OBJECT 1u
#define ENTRY_GONE   2u

enum {
	OFF_FORMAT = 8,
	OFF_HEADER_LEN = 12,
	OFF_AGENT = 16,
	OFF_LINEAGE = 32,
	OFF_COUNTER = 48,
	OFF_SEQUENCE = 56,
	OFF_COUNT = 64,
	OFF_BODY_LEN = 72,
	OFF_WRITTEN = 80,
	OFF_CRC_1 = 92,
	OFF_LAST_COUNTER = 88,
	OFF_LAST_BATCH = 96,
	OFF_CRC = 108
};
enum {
	BAT_COUNT = 4,
	BAT_SEQUENCE = 8,
	BAT_LINEAGE = 16,
	BAT_COUNTER = 32,
	BAT_BODY_LEN = 40,
	BAT_WRITTEN = 48,
	BAT_LAST_COUNTER = 56,
	BAT_LAST_BATCH = 64,
	BAT_BODY_CRC = 72,
	BAT_CRC = 76
};

static void put_header(const struct snapshot_header *h, size_t n, uint64_t body_len, uint8_t *p)
{
	memset(p, 0, SNAPSHOT_HEADER_LEN);
	memcpy(p, SNAPSHOT_MAGIC, 8);
	put_le32(p + OFF_FORMAT, SNAPSHOT_FORMAT);
	put_le32(p + OFF_HEADER_LEN, SNAPSHOT_HEADER_LEN);
	memcpy(p + OFF_AGENT, h->agent_uid.b, 16);
	memcpy(p + OFF_LINEAGE, h->epoch.lineage, 16);
	put_le64(p + OFF_COUNTER, h->epoch.counter);
	put_le64(p + OFF_SEQUENCE, h->sequence);
	put_le32(p + OFF_COUNT, (uint32_t)n);
	put_le64(p + OFF_BODY_LEN, body_len);
	put_le64(p + OFF_WRITTEN, h->written_unix_ns);
	put_le64(p + OFF_LAST_COUNTER, h->last_counter);
	put_le64(p + OFF_LAST_BATCH, h->last_batch);
	put_le32(p + OFF_CRC, crypto_crc32c(p, OFF_CRC));
}

static void put_object(struct buf *b, uint32_t second, const struct agent_object *o)
{
	uint8_t e[ENTRY_HEADER_LEN];

	put_le32(e, (uint32_t)o->sealed_len);
	put_le32(e + 4, second);
	buf_put(b, e, sizeof(e));
	buf_put(b, o->sealed, o->sealed_len);
}

static int finish(struct buf *b, size_t n, void **ret, size_t *ret_len, struct ros2_err *err)
{
	if (b->failed || b->n > SNAPSHOT_MAX || n > OBJECTS_MAX) {
		int code = b->failed ? -ENOMEM : -EFBIG;

		buf_fini(b);
		return ros2_err_set(err, code, "a snapshot of %zu objects does not fit", n);
	}
	*ret = b->p;
	*ret_len = b->n;
	return 0;
}

int snapshot_build(const struct snapshot_header *h, const struct agent_object *const *objs,
                   size_t n, void **ret, size_t *ret_len, struct ros2_err *err)
{
	uint8_t header[SNAPSHOT_HEADER_LEN] = {0};
	struct buf b = {0};

	buf_put(&b, header, sizeof(header));
	for (size_t i = 0; i < n && !b.failed; i++)
		put_object(&b, crypto_crc32c(objs[i]->sealed, objs[i]->sealed_len), objs[i]);
	if (!b.failed)
		put_header(h, n, b.n - SNAPSHOT_HEADER_LEN, b.p);
	return finish(&b, n, ret, ret_len, err);
}

static void put_gone(struct buf *b, const struct snapshot_gone *g)
{
	uint8_t e[ENTRY_HEADER_LEN + GONE_LEN] = {0};

	put_le32(e, GONE_LEN);
	put_le32(e + 4, ENTRY_GONE);
	put_le32(e + 8, (uint32_t)g->kind);
	memcpy(e + 16, g->uid.b, 16);
	put_le64(e + 32, g->version);
	buf_put(b, e, sizeof(e));
}

int snapshot_build_batch(const struct snapshot_header *h, const struct agent_object *const *objs,
                         size_t n, const struct snapshot_gone *gone, size_t n_gone, void **ret,
                         size_t *ret_len, struct ros2_err *err)
{
	uint8_t p[SNAPSHOT_BATCH_LEN] = {0};
	struct buf b = {0};

	buf_put(&b, p, sizeof(p));
	/* What went first: the same uid may have come again. */
	for (size_t i = 0; i < n_gone && !b.failed; i++)
		put_gone(&b, &gone[i]);
	for (size_t i = 0; i < n && !b.failed; i++)
		put_object(&b, ENTRY_OBJECT, objs[i]);
	if (b.failed)
		return finish(&b, n, ret, ret_len, err);
	put_le32(b.p, BATCH_MAGIC);
	put_le32(b.p + BAT_COUNT, (uint32_t)(n + n_gone));
	put_le64(b.p + BAT_SEQUENCE, h->sequence);
	memcpy(b.p + BAT_LINEAGE, h->epoch.lineage, 16);
	put_le64(b.p + BAT_COUNTER, h->epoch.counter);
	put_le64(b.p + BAT_BODY_LEN, b.n - SNAPSHOT_BATCH_LEN);
	put_le64(b.p + BAT_WRITTEN, h->written_unix_ns);
	put_le64(b.p + BAT_LAST_COUNTER, h->last_counter);
	put_le64(b.p + BAT_LAST_BATCH, h->last_batch);
	put_le32(b.p + BAT_BODY_CRC,
	         crypto_crc32c(b.p + SNAPSHOT_BATCH_LEN, b.n - SNAPSHOT_BATCH_LEN));
	put_le32(b.p + BAT_CRC, crypto_crc32c(b.p, BAT_CRC));
	return finish(&b, n + n_gone, ret, ret_len, err);
}

/* ---- reading ---- */

struct layout {
	uint32_t format, count;
	uint64_t body, body_end, good_end; /* offsets: the base, then whole batches */
};

static int parse_header(const uint8_t *p, size_t len, const struct agent_trust *trust,
                        struct snapshot_header *ret, struct layout *l, struct ros2_err *err)
{
	uint32_t header_len, crc_at;

	if (len < HEADER_LEN_1 || memcmp(p, SNAPSHOT_MAGIC, 8) != 0)
		return ros2_err_named(err, ROS2_CORRUPT, "not a snapshot, or only its beginning");
	l->format = get_le32(p + OFF_FORMAT);
	header_len = l->format == 1 ? HEADER_LEN_1 : SNAPSHOT_HEADER_LEN;
	crc_at = l->format == 1 ? OFF_CRC_1 : OFF_CRC;
	if (len < header_len || get_le32(p + crc_at) != crypto_crc32c(p, crc_at))
		return ros2_err_named(err, ROS2_CORRUPT, "the header fails its check");
	if (!l->format || l->format > SNAPSHOT_FORMAT || get_le32(p + OFF_HEADER_LEN) != header_len)
		return ros2_err_named(err, ROS2_VERSION, "format %u, this version reads 1 to %u",
		                      l->format, SNAPSHOT_FORMAT);
	memcpy(ret->agent_uid.b, p + OFF_AGENT, 16);
	memcpy(ret->epoch.lineage, p + OFF_LINEAGE, 16);
	ret->epoch.counter = get_le64(p + OFF_COUNTER);
	ret->sequence = get_le64(p + OFF_SEQUENCE);
	ret->written_unix_ns = get_le64(p + OFF_WRITTEN);
	if (l->format > 1) {
		ret->last_counter = get_le64(p + OFF_LAST_COUNTER);
		ret->last_batch = get_le64(p + OFF_LAST_BATCH);
	}
	l->count = get_le32(p + OFF_COUNT);
	l->body = header_len;
	l->body_end = header_len + MIN(get_le64(p + OFF_BODY_LEN), (uint64_t)(len - header_len));
	if (l->format == 1) /* ends where the file ends */
		l->body_end = len;
	l->good_end = l->body_end;
	if (!ros2_uid_eq(&ret->agent_uid, &trust->agent_uid))
		return ros2_err_named(err, ROS2_WRONG_DOMAIN, "another agent's snapshot");
	return 0;
}

static bool is_batch_header(const uint8_t *p, size_t left)
{
	return left >= SNAPSHOT_BATCH_LEN && get_le32(p) == BATCH_MAGIC &&
	       get_le32(p + BAT_CRC) == crypto_crc32c(p, BAT_CRC);
}

static bool is_batch(const uint8_t *p, size_t left)
{
	uint64_t n;

	if (!is_batch_header(p, left))
		return false;
	n = get_le64(p + BAT_BODY_LEN);
	return n <= left - SNAPSHOT_BATCH_LEN &&
	       get_le32(p + BAT_BODY_CRC) == crypto_crc32c(p + SNAPSHOT_BATCH_LEN, n);
}

/* Is there a whole batch with a later number anywhere in here? */
static bool has_later_batch(const uint8_t *p, size_t len, uint64_t sequence)
{
	static const uint8_t magic[4] = {'S', 'B', 'A', 'T'};
	const uint8_t *at = p;

	while ((at = memmem(at, len - (size_t)(at - p), magic, sizeof(magic)))) {
		size_t left = len - (size_t)(at - p);

		if (is_batch(at, left) && get_le64(at + BAT_SEQUENCE) > sequence)
			return true;
		at++;
	}
	return false;
}

/* Finds where the whole batches end; @h becomes that of the last one. */
static int scan_batches(const uint8_t *p, size_t len, struct snapshot_header *h, struct layout *l,
                        struct ros2_err *err)
{
	while (is_batch(p + l->good_end, len - l->good_end)) {
		const uint8_t *b = p + l->good_end;

		if (get_le64(b + BAT_SEQUENCE) <= h->sequence)
			break;
		memcpy(h->epoch.lineage, b + BAT_LINEAGE, 16);
		h->epoch.counter = get_le64(b + BAT_COUNTER);
		h->sequence = get_le64(b + BAT_SEQUENCE);
		h->written_unix_ns = get_le64(b + BAT_WRITTEN);
		h->last_counter = get_le64(b + BAT_LAST_COUNTER);
		h->last_batch = get_le64(b + BAT_LAST_BATCH);
		l->good_end += SNAPSHOT_BATCH_LEN + get_le64(b + BAT_BODY_LEN);
	}
	if (has_later_batch(p + l->good_end, len - l->good_end, h->sequence))
		return ros2_err_named(err, ROS2_CORRUPT,
		                      "damaged at byte %llu, before batches that are whole: a "
		                      "removal may be missing",
		                      (unsigned long long)l->good_end);
	return 0;
}

static void drop(const struct snapshot_reader *rd, struct snapshot_info *info,
                 const struct ros2_err *why)
{
	info->dropped++;
	if (rd->on_drop)
		rd->on_drop(rd->arg, why);
}

static void take_object(const uint8_t *p, uint32_t len, bool whole, struct agent_trust *trust,
                        const struct snapshot_reader *rd, struct snapshot_info *info)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct agent_object *o = NULL;

	if (!whole)
		ros2_err_named(&why, ROS2_CORRUPT, "an object fails its check");
	else if (agent_object_open(trust, &info->header.epoch, p, len, &o, &why) == 0 &&
	         o->epoch.counter > info->header.epoch.counter)
		ros2_err_named(&why, ROS2_CORRUPT, "%s %s is of epoch %llu, the snapshot of %llu",
		               obj_kind_to_str(o->kind), o->name,
		               (unsigned long long)o->epoch.counter,
		               (unsigned long long)info->header.epoch.counter);
	if (why.code == -ENOMEM) {
		agent_object_free(o);
		info->no_memory = true;
		return;
	}
	if (why.code) {
		agent_object_free(o);
		drop(rd, info, &why);
		return;
	}
	info->loaded++;
	rd->on_object(rd->arg, o);
}

static void take_base(const uint8_t *p, const struct layout *l, struct agent_trust *trust,
                      const struct snapshot_reader *rd, struct snapshot_info *info)
{
	const uint8_t *at = p + l->body, *end = p + l->body_end;
	struct ros2_err why = ROS2_ERR_INIT;
	uint32_t count = l->count;

	while (count && (size_t)(end - at) >= ENTRY_HEADER_LEN) {
		uint32_t n = get_le32(at), crc = get_le32(at + 4);

		if (n > (size_t)(end - at) - ENTRY_HEADER_LEN)
			break;
		at += ENTRY_HEADER_LEN;
		take_object(at, n, crypto_crc32c(at, n) == crc, trust, rd, info);
		at += n;
		count--;
	}
	if (count || at != end) {
		ros2_err_named(&why, ROS2_CORRUPT, "%u objects are cut off or unreadable", count);
		drop(rd, info, &why);
	}
}

/* Its check held: what does not parse now was written so. */
static void take_batch(const uint8_t *at, const uint8_t *end, struct agent_trust *trust,
                       const struct snapshot_reader *rd, struct snapshot_info *info)
{
	while ((size_t)(end - at) >= ENTRY_HEADER_LEN) {
		uint32_t n = get_le32(at), what = get_le32(at + 4);

		at += ENTRY_HEADER_LEN;
		if (n > (size_t)(end - at))
			return;
		if (what == ENTRY_OBJECT) {
			take_object(at, n, true, trust, rd, info);
		} else if (what == ENTRY_GONE && n == GONE_LEN && rd->on_gone) {
			struct snapshot_gone g = {.kind = (enum obj_kind)get_le32(at),
			                          .version = get_le64(at + 24)};

			memcpy(g.uid.b, at + 8, 16);
			rd->on_gone(rd->arg, &g);
		}
		at += n;
	}
}

int snapshot_parse(const void *data, size_t len, struct agent_trust *trust, uint64_t min_sequence,
                   const struct snapshot_reader *rd, struct snapshot_info *ret,
                   struct ros2_err *err)
{
	struct snapshot_info info = {0};
	struct layout l = {0};
	const uint8_t *p = data;
	int r = parse_header(p, len, trust, &info.header, &l, err);

	if (!r && l.format > 1)
		r = scan_batches(p, len, &info.header, &l, err);
	if (r < 0)
		return r;
	if (info.header.sequence < min_sequence)
		return ros2_err_named(
			err, ROS2_STALE_EPOCH,
			"sequence %llu, but %llu was written: an old copy was put back",
			(unsigned long long)info.header.sequence, (unsigned long long)min_sequence);
	take_base(p, &l, trust, rd, &info);
	for (uint64_t at = l.body_end; at < l.good_end;) {
		uint64_t end = at + SNAPSHOT_BATCH_LEN + get_le64(p + at + BAT_BODY_LEN);

		take_batch(p + at + SNAPSHOT_BATCH_LEN, p + end, trust, rd, &info);
		at = end;
	}
	info.appendable = l.format == SNAPSHOT_FORMAT && l.good_end == len && !info.dropped;
	*ret = info;
	return 0;
}

int snapshot_load(const char *path, struct agent_trust *trust, uint64_t min_sequence,
                  const struct snapshot_reader *rd, struct snapshot_info *ret, struct ros2_err *err)
{
	AUTO_FREE void *p = NULL;
	size_t len;
	int r = fsx_read_file(path, 2 * SNAPSHOT_MAX, &p, &len, err);

	if (r < 0)
		return r;
	r = snapshot_parse(p, len, trust, min_sequence, rd, ret, err);
	if (r < 0)
		ros2_err_prefix(err, "%s", path);
	return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds and reads snapshots. The CRCs find accidents and let one bad object be skipped; what
 * decides whether an object counts is its seal. Must never hand on an object of another agent,
 * another lineage, or an epoch above the header's.
 */
#include "agent/snapshot.h"
#include "agent/bytes.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>

#define ENTRY_HEADER_LEN 8u
#define OBJECTS_MAX      1000000u

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
	OFF_CRC = 92
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
	put_le32(p + OFF_CRC, crypto_crc32c(p, OFF_CRC));
}

int snapshot_build(const struct snapshot_header *h, const struct agent_object *const *objs,
                   size_t n, void **ret, size_t *ret_len, struct ros2_err *err)
{
	uint8_t header[SNAPSHOT_HEADER_LEN] = {0};
	struct buf b = {0};

	buf_put(&b, header, sizeof(header));
	for (size_t i = 0; i < n && !b.failed; i++) {
		uint8_t e[ENTRY_HEADER_LEN];

		put_le32(e, (uint32_t)objs[i]->sealed_len);
		put_le32(e + 4, crypto_crc32c(objs[i]->sealed, objs[i]->sealed_len));
		buf_put(&b, e, sizeof(e));
		buf_put(&b, objs[i]->sealed, objs[i]->sealed_len);
	}
	if (b.failed || b.n > SNAPSHOT_MAX || n > OBJECTS_MAX) {
		int code = b.failed ? -ENOMEM : -EFBIG;

		buf_fini(&b);
		return ros2_err_set(err, code, "a snapshot of %zu objects does not fit", n);
	}
	put_header(h, n, b.n - SNAPSHOT_HEADER_LEN, b.p);
	*ret = b.p;
	*ret_len = b.n;
	return 0;
}

static int parse_header(const uint8_t *p, size_t len, const struct agent_trust *trust,
                        uint64_t min_sequence, struct snapshot_header *ret, struct ros2_err *err)
{
	if (len < SNAPSHOT_HEADER_LEN || memcmp(p, SNAPSHOT_MAGIC, 8) != 0)
		return ros2_err_named(err, ROS2_CORRUPT, "not a snapshot, or only its beginning");
	if (get_le32(p + OFF_CRC) != crypto_crc32c(p, OFF_CRC))
		return ros2_err_named(err, ROS2_CORRUPT, "the header fails its check");
	if (get_le32(p + OFF_FORMAT) != SNAPSHOT_FORMAT ||
	    get_le32(p + OFF_HEADER_LEN) != SNAPSHOT_HEADER_LEN)
		return ros2_err_named(err, ROS2_VERSION, "format %u, this version reads %u",
		                      get_le32(p + OFF_FORMAT), SNAPSHOT_FORMAT);
	memcpy(ret->agent_uid.b, p + OFF_AGENT, 16);
	memcpy(ret->epoch.lineage, p + OFF_LINEAGE, 16);
	ret->epoch.counter = get_le64(p + OFF_COUNTER);
	ret->sequence = get_le64(p + OFF_SEQUENCE);
	ret->written_unix_ns = get_le64(p + OFF_WRITTEN);
	if (!ros2_uid_eq(&ret->agent_uid, &trust->agent_uid))
		return ros2_err_named(err, ROS2_WRONG_DOMAIN, "another agent's snapshot");
	if (ret->sequence < min_sequence)
		return ros2_err_named(
			err, ROS2_STALE_EPOCH,
			"sequence %llu, but %llu was written: an old copy was put back",
			(unsigned long long)ret->sequence, (unsigned long long)min_sequence);
	return 0;
}

static void drop(const struct snapshot_reader *rd, struct snapshot_info *info,
                 const struct ros2_err *why)
{
	info->dropped++;
	if (rd->on_drop)
		rd->on_drop(rd->arg, why);
}

static void parse_entry(const uint8_t *p, uint32_t len, uint32_t crc, struct agent_trust *trust,
                        const struct snapshot_reader *rd, struct snapshot_info *info)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct agent_object *o = NULL;

	if (crypto_crc32c(p, len) != crc)
		ros2_err_named(&why, ROS2_CORRUPT, "an object fails its check");
	else if (agent_object_open(trust, &info->header.epoch, p, len, &o, &why) == 0 &&
	         o->epoch.counter > info->header.epoch.counter)
		ros2_err_named(&why, ROS2_CORRUPT, "%s %s is of epoch %llu, the snapshot of %llu",
		               obj_kind_to_str(o->kind), o->name,
		               (unsigned long long)o->epoch.counter,
		               (unsigned long long)info->header.epoch.counter);
	if (why.code) {
		agent_object_free(o);
		drop(rd, info, &why);
		return;
	}
	info->loaded++;
	rd->on_object(rd->arg, o);
}

int snapshot_parse(const void *p, size_t len, struct agent_trust *trust, uint64_t min_sequence,
                   const struct snapshot_reader *rd, struct snapshot_info *ret,
                   struct ros2_err *err)
{
	struct snapshot_info info = {0};
	const uint8_t *at = p, *end = at + len;
	struct ros2_err why = ROS2_ERR_INIT;
	uint32_t count;
	int r = parse_header(p, len, trust, min_sequence, &info.header, err);

	if (r < 0)
		return r;
	count = get_le32(at + OFF_COUNT);
	at += SNAPSHOT_HEADER_LEN;
	while (count && (size_t)(end - at) >= ENTRY_HEADER_LEN) {
		uint32_t n = get_le32(at), crc = get_le32(at + 4);

		if (n > (size_t)(end - at) - ENTRY_HEADER_LEN)
			break;
		parse_entry(at + ENTRY_HEADER_LEN, n, crc, trust, rd, &info);
		at += ENTRY_HEADER_LEN + n;
		count--;
	}
	if (count || at != end) {
		ros2_err_named(&why, ROS2_CORRUPT, "%u objects are cut off or unreadable", count);
		drop(rd, &info, &why);
	}
	*ret = info;
	return 0;
}

int snapshot_load(const char *path, struct agent_trust *trust, uint64_t min_sequence,
                  const struct snapshot_reader *rd, struct snapshot_info *ret, struct ros2_err *err)
{
	AUTO_FREE void *p = NULL;
	size_t len;
	int r = fsx_read_file(path, SNAPSHOT_MAX, &p, &len, err);

	if (r < 0)
		return r;
	r = snapshot_parse(p, len, trust, min_sequence, rd, ret, err);
	if (r < 0)
		ros2_err_prefix(err, "%s", path);
	return r;
}

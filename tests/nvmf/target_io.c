/* SPDX-License-Identifier: Apache-2.0 */
/* The I/O commands of the NVM command set (NVM Command Set 1.0, 3.2) on a namespace in memory. */
#include "tests/nvmf/target_priv.h"

#include <string.h>

enum { IO_FLUSH = 0x00, IO_WRITE = 0x01, IO_READ = 0x02, IO_ZEROES = 0x08, IO_DSM = 0x09 };

static uint16_t range_check(const struct ns *n, uint64_t slba, uint64_t nlb)
{
	return slba > n->blocks || nlb > n->blocks - slba ? ST_RANGE : ST_OK;
}

/* Beyond what Identify told. */
static bool too_much(const struct subsys *s, const struct ns *n, const uint8_t *sqe)
{
	return sqe[0] == IO_ZEROES && s->o.wzsl &&
	       (le16(sqe + 48) + 1ull) * n->block_size > 4096ull << s->o.wzsl;
}

static uint16_t dsm(const struct subsys *s, const struct ns *n, const uint8_t *sqe,
                    const uint8_t *data, bool run)
{
	uint32_t ranges = (uint32_t)sqe[40] + 1;

	for (uint32_t i = 0; i < ranges; i++) {
		uint64_t slba = le64(data + (size_t)i * 16 + 8);
		uint32_t nlb = le32(data + (size_t)i * 16 + 4);

		if (range_check(n, slba, nlb))
			return ST_RANGE;
		if (s->o.dmrsl && nlb > s->o.dmrsl)
			return ST_FIELD;
		if (run && sqe[44] & 4) /* deallocate; DLFEAT says that zeros are read then */
			memset(n->media + slba * n->block_size, 0, (size_t)nlb * n->block_size);
	}
	return ST_OK;
}

uint16_t target_io_check(struct subsys *s, const uint8_t *sqe, const struct tcmd *cmd)
{
	uint32_t nsid = le32(sqe + 4), nlb = le16(sqe + 48) + 1u;
	struct ns *n = target_ns_find(s, nsid);

	if (sqe[0] == IO_FLUSH)
		return n || nsid == 0xffffffff ? ST_OK : ST_NAMESPACE;
	if (sqe[0] != IO_WRITE && sqe[0] != IO_READ && sqe[0] != IO_ZEROES && sqe[0] != IO_DSM)
		return ST_OPCODE;
	if (!n)
		return ST_NAMESPACE;
	if (s->o.no_clears && (sqe[0] == IO_ZEROES || sqe[0] == IO_DSM))
		return ST_OPCODE;
	if (too_much(s, n, sqe))
		return ST_FIELD;
	if (n->read_only && sqe[0] != IO_READ)
		return ST_PROTECTED;
	if (sqe[0] == IO_DSM)
		return cmd->len >= (sqe[40] + 1u) * 16 ? ST_OK
		                                       : ST_SGL_LENGTH; /* Linux sends 4096 */
	if (sqe[51] & 0x3c) /* PRINFO: there is no metadata */
		return ST_FIELD;
	if (sqe[0] != IO_ZEROES && cmd->len != nlb * n->block_size)
		return ST_SGL_LENGTH;
	if (sqe[0] != IO_ZEROES && s->o.mdts && cmd->len > 4096u << s->o.mdts)
		return ST_FIELD;
	return range_check(n, le64(sqe + 40), nlb);
}

/* Checked once more: the namespace may have changed since. */
uint16_t target_io_run(struct target *t, struct subsys *s, const uint8_t *sqe, uint8_t *data,
                       uint32_t len)
{
	struct tcmd cmd = {.len = len};
	uint16_t st = target_io_check(s, sqe, &cmd);
	struct ns *n = target_ns_find(s, le32(sqe + 4));
	uint64_t slba = le64(sqe + 40);
	uint8_t *at;

	if (st || sqe[0] == IO_FLUSH)
		return st;
	if (sqe[0] == IO_DSM) {
		st = dsm(s, n, sqe, data, false);
		return st ? st : dsm(s, n, sqe, data, true);
	}
	at = n->media + slba * n->block_size;
	if (sqe[0] == IO_READ) {
		memcpy(data, at, len);
		t->stats.reads++;
		t->stats.bytes_read += len;
		return ST_OK;
	}
	if (sqe[0] == IO_WRITE)
		memcpy(at, data, len);
	else
		memset(at, 0, (le16(sqe + 48) + 1ull) * n->block_size);
	t->stats.writes++;
	t->stats.bytes_written += sqe[0] == IO_WRITE ? len : 0;
	return ST_OK;
}

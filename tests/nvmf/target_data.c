/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of commands: C2HData and R2T, honest and not. */
#include "tests/nvmf/target_priv.h"

#include <string.h>

void target_data_one(struct conn *c, const struct tcmd *cmd, uint16_t cid, uint32_t off,
                     const void *data, uint32_t len, uint8_t flags)
{
	struct pdu d = {.type = PDU_C2HDATA, .hlen = 24, .flags = flags, .data = data, .len = len};

	if (c->carried) {
		c->t->o.carrier->write(c, cmd, off, data, len);
		return;
	}
	put16(d.head, cid);
	put32(d.head + 4, off);
	put32(d.head + 8, len);
	target_pdu_send(c, cmd, &d);
}

/* Bytes @from to @to of the command's data; the last PDU has the flags @end. */
static void data_range(struct conn *c, const struct tcmd *cmd, uint32_t from, uint32_t to,
                       uint8_t end)
{
	while (from < to) {
		uint32_t n = MIN(to - from, c->t->o.c2h_bytes);

		target_data_one(c, cmd, cmd->cid, from, cmd->data + from, n,
		                from + n == to ? end : 0);
		from += n;
	}
}

/* More, elsewhere, or in a way that no command asked for. */
static bool lie_about_place(struct conn *c, const struct tcmd *cmd)
{
	uint32_t len = cmd->len;
	uint64_t arg;
	uint8_t *more;

	if (target_lies(c, cmd, -1, FAULT_DATA_LONG, &arg)) {
		uint32_t n = arg ? (uint32_t)MIN(arg, TRANSFER_MAX) : 4;

		more = calloc(1, (size_t)len + n);
		if (more) {
			memcpy(more, cmd->data, len);
			memset(more + len, 0xee, n);
			target_data_one(c, cmd, cmd->cid, 0, more, len + n, F_LAST);
		}
		free(more);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_BEYOND, &arg)) {
		target_data_one(c, cmd, cmd->cid, arg ? (uint32_t)arg : len, cmd->data, len,
		                F_LAST);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_OVERFLOW, NULL)) {
		target_data_one(c, cmd, cmd->cid, 0u - (len & ~3u), cmd->data, len, F_LAST);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_SHORT, &arg)) {
		data_range(c, cmd, 0, len - (uint32_t)MIN(arg ? arg : 1, len - 1), F_LAST);
		return true;
	}
	return target_lies(c, cmd, -1, FAULT_DATA_NONE, NULL);
}

static bool lie_about_order(struct conn *c, const struct tcmd *cmd)
{
	uint32_t len = cmd->len, half = MAX(len / 2 & ~3u, MIN(len, 4));
	uint64_t arg;

	if (target_lies(c, cmd, -1, FAULT_DATA_ORDER, NULL)) {
		data_range(c, cmd, half, len, 0);
		data_range(c, cmd, 0, half, F_LAST);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_TWICE, NULL)) {
		data_range(c, cmd, 0, len, 0);
		data_range(c, cmd, 0, len, F_LAST);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_NO_LAST, NULL)) {
		data_range(c, cmd, 0, len, 0);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_LAST_EARLY, NULL)) {
		data_range(c, cmd, 0, half, F_LAST);
		data_range(c, cmd, half, len, F_LAST);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_SUCCESS_EARLY, NULL)) {
		data_range(c, cmd, 0, half, F_SUCCESS);
		data_range(c, cmd, half, len, F_LAST);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_ZERO, NULL))
		target_data_one(c, cmd, cmd->cid, 0, NULL, 0, 0);
	if (target_lies(c, cmd, -1, FAULT_DATA_WRONG_ID, &arg)) {
		target_data_one(c, cmd,
		                arg ? cmd->cid ^ (uint16_t)arg : target_free_cid(c, cmd->cid), 0,
		                cmd->data, len, F_LAST);
		return true;
	}
	return false;
}

void target_data_answer(struct conn *c, struct tcmd *cmd, uint64_t result)
{
	/* No answer of its own where the last PDU can say so: NVMe/TCP 1.0, 3.6.2.7. */
	bool success = c->t->o.success_flag && c->no_flow && !result;

	if (c->aside) {
		c->t->side->give(c, cmd, result);
		target_cmd_free(c, cmd);
		return;
	}
	if (target_lies(c, cmd, -1, FAULT_DATA_LATE, NULL)) {
		struct tcmd late = *cmd;

		cmd->data = NULL;
		target_cqe_send(c, cmd, ST_OK, result);
		data_range(c, &late, 0, late.len, F_LAST);
		free(late.data);
		return;
	}
	if (lie_about_place(c, cmd) || lie_about_order(c, cmd)) {
		target_cqe_send(c, cmd, ST_OK, result);
		return;
	}
	data_range(c, cmd, 0, cmd->len, F_LAST | (success ? F_SUCCESS : 0));
	if (success)
		target_cmd_free(c, cmd);
	else
		target_cqe_send(c, cmd, ST_OK, result);
}

void target_r2t_one(struct conn *c, const struct tcmd *cmd, uint16_t cid, uint16_t ttag,
                    uint32_t off, uint32_t len)
{
	struct pdu d = {.type = PDU_R2T, .hlen = 24};

	if (c->carried) {
		c->t->o.carrier->read(c, cmd, ttag, off, len);
		return;
	}
	put16(d.head, cid);
	put16(d.head + 2, ttag);
	put32(d.head + 4, off);
	put32(d.head + 8, len);
	target_pdu_send(c, cmd, &d);
}

/* An R2T that is wrong, in the place of an honest one (true) or before it. */
static bool lie_about_r2t(struct conn *c, const struct tcmd *cmd, uint16_t ttag, uint32_t off,
                          uint32_t len)
{
	uint64_t arg;

	if (target_lies(c, cmd, -1, FAULT_R2T_BEYOND, &arg)) {
		target_r2t_one(c, cmd, cmd->cid, ttag, off,
		               cmd->len - off + (arg ? (uint32_t)arg : 512));
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_R2T_OVERFLOW, NULL)) {
		target_r2t_one(c, cmd, cmd->cid, ttag, 0u - (len & ~3u), len);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_R2T_ZERO, NULL)) {
		target_r2t_one(c, cmd, cmd->cid, ttag, off, 0);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_R2T_WRONG_ID, NULL)) {
		target_r2t_one(c, cmd, target_free_cid(c, cmd->cid), ttag, off, len);
		return true;
	}
	if (target_lies(c, cmd, -1, FAULT_R2T_FLOOD, NULL)) {
		uint32_t piece = MAX(len / (c->maxr2t + 2) & ~3u, 4);

		for (uint32_t i = 0; i < c->maxr2t + 2; i++)
			target_r2t_one(c, cmd, cmd->cid, (uint16_t)(ttag + i), off + i * piece,
			               piece);
		return true;
	}
	if (off && target_lies(c, cmd, -1, FAULT_R2T_OVERLAP, NULL)) {
		target_r2t_one(c, cmd, cmd->cid, ttag, 0, len);
		return true;
	}
	return false;
}

/* The tag says where the R2T is kept: which command, which of its R2Ts. */
static void r2t_start(struct conn *c, struct tcmd *cmd, unsigned i)
{
	uint32_t most = c->t->o.r2t_bytes ? c->t->o.r2t_bytes : cmd->len;
	struct r2t *r = &cmd->r2ts[i];
	uint16_t ttag = (uint16_t)((cmd - c->cmds) * R2T_MAX + i);

	*r = (struct r2t){.used = true, .off = cmd->asked, .len = MIN(most, cmd->len - cmd->asked)};
	cmd->asked += r->len;
	if (lie_about_r2t(c, cmd, ttag, r->off, r->len))
		return;
	target_r2t_one(c, cmd, cmd->cid, ttag, r->off, r->len);
	if (target_lies(c, cmd, -1, FAULT_R2T_TWICE, NULL))
		target_r2t_one(c, cmd, cmd->cid, ttag, r->off, r->len);
}

void target_r2ts_send(struct conn *c, struct tcmd *cmd)
{
	if (target_lies(c, cmd, -1, FAULT_R2T_NEVER, NULL))
		return;
	for (unsigned i = 0; i < c->maxr2t && cmd->asked < cmd->len; i++)
		if (!cmd->r2ts[i].used)
			r2t_start(c, cmd, i);
	if (target_lies(c, cmd, -1, FAULT_R2T_EARLY_CQE, NULL))
		target_cqe_send(c, cmd, ST_OK, 0);
}

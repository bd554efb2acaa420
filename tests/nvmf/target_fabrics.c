/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics commands and a controller's life: Connect, properties, enable, shutdown, keep alive.
 *
 *   Connect -> (CC.EN = 1, ready_ms) -> RDY = 1 -> (CC.EN = 0, nothing left that waits) -> RDY = 0
 *   Keep alive too late, admin connection gone, host taken from the list -> the controller is gone,
 *   with each of its connections.
 *
 * NVMe Base 2.0: 3.1.3 (properties), 3.5 (initialization), 3.9 (keep alive), 6 (fabrics commands).
 */
#include "tests/nvmf/target_priv.h"

#include "common/clock.h"
#include <string.h>

enum { PROP_CAP = 0x00, PROP_VS = 0x08, PROP_CC = 0x14, PROP_CSTS = 0x1c };
enum {
	FC_PROPERTY_SET = 0x00,
	FC_CONNECT = 0x01,
	FC_PROPERTY_GET = 0x04,
	FC_AUTH_SEND = 0x05,
	FC_AUTH_RECEIVE = 0x06,
};
enum { RDY = 1, CFS = 2, SHST_MASK = 0xc, SHST_DONE = 8 };

struct ctrl *target_ctrl_find(struct target *t, uint16_t cntlid)
{
	struct ctrl *k;

	list_for_each (&t->ctrls, k, link)
		if (k->cntlid == cntlid)
			return k;
	return NULL;
}

static void end_conns(struct ctrl *k, bool io_only, bool reset)
{
	struct conn *c;

	list_for_each (&k->t->conns, c, link)
		if (!c->dead && c->ctrl == k && (!io_only || c->qid))
			target_conn_end(c, reset);
}

void target_ctrl_end(struct ctrl *k, bool reset)
{
	struct conn *admin = k->admin;

	k->admin = NULL; /* so that its end does not come back here */
	end_conns(k, true, reset);
	if (admin)
		target_conn_end(admin, reset);
	list_del(&k->link);
	free(k);
}

void target_keep_alive(struct ctrl *k)
{
	uint64_t unit = k->subsys->o.keep_alive_unit * 100ull, ms = k->kato_ms;

	ms = (ms + unit - 1) / unit * unit;
	/* Only a controller that is enabled and ready has a timer: Base 2.0, 3.9.1. */
	k->expires_ns =
		ms && (k->csts & (RDY | SHST_MASK)) == RDY ? k->t->now_ns + ms * NS_PER_MS : 0;
}

static bool has_waiting(const struct ctrl *k)
{
	struct orphan *o;

	list_for_each (&k->t->orphans, o, link)
		if (o->cntlid == k->cntlid)
			return true;
	return false;
}

uint64_t target_ctrl_next(const struct ctrl *k)
{
	uint64_t next = UINT64_MAX;

	if (k->expires_ns)
		next = k->expires_ns;
	if (k->ready_at_ns)
		next = MIN(next, k->ready_at_ns);
	if (k->stopped_at_ns && !has_waiting(k))
		next = MIN(next, k->stopped_at_ns);
	return next;
}

void target_ctrl_tick(struct ctrl *k)
{
	uint64_t now = k->t->now_ns;

	if (k->ready_at_ns && now >= k->ready_at_ns) {
		k->ready_at_ns = 0;
		if (!k->admin || !target_lies(k->admin, NULL, -1, FAULT_CSTS_NEVER, NULL))
			k->csts |= RDY;
		target_keep_alive(k);
	}
	if (k->stopped_at_ns && now >= k->stopped_at_ns && !has_waiting(k)) {
		k->stopped_at_ns = 0;
		if (!k->admin || !target_lies(k->admin, NULL, -1, FAULT_CSTS_STUCK, NULL))
			k->csts &= ~(uint32_t)(RDY | SHST_MASK);
		target_keep_alive(k);
	}
	if (k->expires_ns && now >= k->expires_ns) {
		k->t->stats.expired++;
		target_ctrl_end(k, true);
	}
}

static void write_cc(struct ctrl *k, uint32_t cc)
{
	uint32_t was = k->cc;

	k->cc = cc;
	if (cc & 0xc000) { /* SHN: what was answered is on the media already */
		k->csts = (k->csts & ~(uint32_t)SHST_MASK) | SHST_DONE;
		end_conns(k, true, false);
	}
	if ((cc & 1) && !(was & 1)) {
		/* 64 and 16 byte entries, 4 KiB pages, NVM command set. */
		if ((cc >> 16 & 0xff) != 0x46 || (cc >> 7 & 0xf) || (cc >> 4 & 7)) {
			target_violates(k->admin, "CC 0x%08x: entry sizes, page or command set",
			                cc);
			k->csts |= CFS;
		} else {
			k->ready_at_ns = k->t->now_ns + k->t->o.ready_ms * NS_PER_MS + 1;
		}
	}
	if (!(cc & 1) && (was & 1)) {
		end_conns(k, true, false);
		k->ready_at_ns = 0;
		k->stopped_at_ns = k->t->now_ns + k->t->o.slow_stop_ms * NS_PER_MS + 1;
		k->csts &= ~(uint32_t)CFS;
	}
	target_ctrl_tick(k); /* waits only where it was told to */
}

static bool property(struct conn *c, uint32_t offset, bool wide, uint64_t *ret)
{
	struct ctrl *k = c->ctrl;
	uint64_t arg;

	if (offset == PROP_CAP && wide) {
		/* MQES, CQR, TO 1 s, CSS: NVM */
		*ret = (k->t->o.queue_depth - 1) | 1u << 16 | 2u << 24 | 1ull << 37;
		if (target_lies(c, NULL, -1, FAULT_CAP_VALUE, &arg))
			*ret = arg;
	} else if (offset == PROP_VS && !wide) {
		*ret = 0x00020000;
		if (target_lies(c, NULL, -1, FAULT_VS_VALUE, &arg))
			*ret = arg;
	} else if (offset == PROP_CC && !wide) {
		*ret = k->cc;
	} else if (offset == PROP_CSTS && !wide) {
		*ret = k->csts;
		if (target_lies(c, NULL, -1, FAULT_CSTS_CFS, NULL))
			*ret |= CFS;
	} else {
		return false;
	}
	return true;
}

static void property_run(struct conn *c, struct tcmd *cmd)
{
	uint32_t offset = le32(cmd->sqe + 44);
	uint64_t value = 0;

	if (!c->ctrl || c->qid) {
		target_cqe_send(c, cmd, ST_SEQUENCE, 0);
		return;
	}
	target_ctrl_tick(c->ctrl);
	if (c->dead)
		return;
	if (cmd->sqe[4] == FC_PROPERTY_GET) {
		bool ok = cmd->sqe[40] < 2 && property(c, offset, cmd->sqe[40] == 1, &value);

		if (!ok)
			target_violates(c, "Property Get of 0x%x, size %u", offset, cmd->sqe[40]);
		target_cqe_send(c, cmd, ok ? ST_OK : ST_FIELD, value);
		return;
	}
	if (offset != PROP_CC || cmd->sqe[40]) {
		target_violates(c, "Property Set of 0x%x, size %u", offset, cmd->sqe[40]);
		target_cqe_send(c, cmd, ST_FIELD, 0);
		return;
	}
	write_cc(c->ctrl, le32(cmd->sqe + 48));
	if (!c->dead)
		target_cqe_send(c, cmd, ST_OK, 0);
}

/* Where Connect was wrong; @in_data: in its data, else in the command: Base 2.0, 6.3. */
static uint16_t wrong(uint64_t *result, uint16_t offset, bool in_data)
{
	*result = offset | (uint64_t)in_data << 16;
	return ST_CONNECT_PARAM;
}

static uint16_t connect_admin(struct conn *c, struct tcmd *cmd, struct subsys *s, uint64_t *result)
{
	struct target *t = c->t;
	struct ctrl *k;

	if (le16(cmd->data + 16) != 0xffff)
		return wrong(result, 16, true);
	k = calloc(1, sizeof(*k));
	if (!k)
		return ST_CONNECT_BUSY;
	do {
		k->cntlid = t->next_cntlid;
		t->next_cntlid = (uint16_t)(t->next_cntlid % 0xffef + 1);
	} while (target_ctrl_find(t, k->cntlid));
	k->t = t;
	k->subsys = s;
	k->admin = c;
	k->queues = s->o.io_queues;
	memcpy(k->host_id, cmd->data, 16);
	memcpy(k->host_nqn, cmd->data + 512, 223);
	k->kato_ms = le32(cmd->sqe + 48);
	k->write_cache = s->o.write_cache;
	target_keep_alive(k);
	list_add_tail(&t->ctrls, &k->link);
	c->ctrl = k;
	return ST_OK;
}

static uint16_t connect_io(struct conn *c, struct tcmd *cmd, struct subsys *s, uint64_t *result)
{
	struct ctrl *k = target_ctrl_find(c->t, le16(cmd->data + 16));
	uint16_t qid = le16(cmd->sqe + 42);
	struct conn *other;

	if (!k || k->subsys != s)
		return wrong(result, 16, true);
	if (strncmp(k->host_nqn, (const char *)cmd->data + 512, 223))
		return wrong(result, 512, true);
	if (memcmp(k->host_id, cmd->data, 16))
		return wrong(result, 0, true);
	if (qid > k->queues)
		return wrong(result, 42, false);
	if (!(k->csts & RDY))
		return ST_SEQUENCE;
	list_for_each (&c->t->conns, other, link)
		if (!other->dead && other->ctrl == k && other->qid == qid)
			return ST_SEQUENCE;
	c->ctrl = k;
	c->qid = qid;
	return ST_OK;
}

static uint16_t connect_check(struct conn *c, struct tcmd *cmd, uint64_t *result)
{
	uint16_t qid = le16(cmd->sqe + 42), sqsize = le16(cmd->sqe + 44);
	struct subsys *s;

	if (c->state != CONN_CONNECT)
		return ST_SEQUENCE;
	if ((!cmd->capsule && !c->aside && !c->carried) || cmd->len != 1024)
		return ST_SGL_LENGTH;
	if (le16(cmd->sqe + 40))
		return ST_CONNECT_FORMAT;
	if (!sqsize || sqsize >= c->t->o.queue_depth)
		return wrong(result, 44, false);
	if (cmd->data[256 + 223] || cmd->data[512 + 223])
		return wrong(result, cmd->data[256 + 223] ? 256 : 512, true);
	s = target_subsys_find(c->t, (const char *)cmd->data + 256);
	if (!s)
		return wrong(result, 256, true);
	if (!target_host_allowed(s, (const char *)cmd->data + 512))
		return ST_CONNECT_HOST;
	return qid ? connect_io(c, cmd, s, result) : connect_admin(c, cmd, s, result);
}

static void connect_run(struct conn *c, struct tcmd *cmd)
{
	uint64_t result = 0, arg;
	uint16_t st = connect_check(c, cmd, &result);

	if (!st) {
		c->state = CONN_LIVE;
		c->sqsize = le16(cmd->sqe + 44);
		c->sqhd = 1;
		c->no_flow = cmd->sqe[46] & 4;
		result = c->ctrl->cntlid | (uint64_t)target_auth_begin(c) << 17;
		if (target_lies(c, cmd, -1, FAULT_CONNECT_CNTLID, &arg))
			result ^= arg ? arg & 0xffff : 1;
	}
	if (target_lies(c, cmd, -1, FAULT_CONNECT_RESULT, &arg))
		result = arg;
	if (target_lies(c, cmd, -1, FAULT_CONNECT_STATUS, &arg))
		st = arg & 0x7fff;
	if (target_lies(c, cmd, -1, FAULT_CONNECT_NEVER, NULL))
		target_cmd_free(c, cmd);
	else
		target_cqe_send(c, cmd, st, result);
}

void target_fabrics_run(struct conn *c, struct tcmd *cmd)
{
	switch (cmd->sqe[4]) {
	case FC_CONNECT:
		connect_run(c, cmd);
		return;
	case FC_PROPERTY_SET:
	case FC_PROPERTY_GET:
		property_run(c, cmd);
		return;
	case FC_AUTH_SEND:
	case FC_AUTH_RECEIVE:
		target_auth_run(c, cmd);
		return;
	default:
		target_cqe_send(c, cmd, ST_OPCODE, 0);
	}
}

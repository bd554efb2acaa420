/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's way through the target: capsule, its data, a delay if one is set, what it does, its
 * answer. A place in conn.cmds is a command's from its capsule to its answer.
 */
#include "tests/nvmf/target_priv.h"

#include "common/clock.h"
#include <stdio.h>
#include <string.h>

enum {
	OP_FABRICS = 0x7f,
	SGL_IN_CAPSULE = 0x01,
	SGL_TRANSPORT = 0x5a,
	SGL_KEYED = 0x40,
	SGL_KEYED_INVALIDATE = 0x4f,
	TO_TARGET = 1,
	FROM_TARGET = 2
};

static unsigned direction(const uint8_t *sqe)
{
	return (sqe[0] == OP_FABRICS ? sqe[4] : sqe[0]) & 3;
}

struct tcmd *target_cmd_find(struct conn *c, uint16_t cid)
{
	for (unsigned i = 0; i <= TARGET_DEPTH_MAX; i++)
		if (c->cmds[i].used && c->cmds[i].cid == cid)
			return &c->cmds[i];
	return NULL;
}

void target_cmd_free(struct conn *c, struct tcmd *cmd)
{
	if (!cmd->used)
		return;
	c->in_flight--;
	c->waiting -= cmd->waiting;
	free(cmd->data);
	*cmd = (struct tcmd){0};
}

static struct tcmd *cmd_new(struct conn *c, const uint8_t *sqe)
{
	struct tcmd *cmd = NULL;

	if (c->in_flight > c->sqsize) {
		target_violates(c, "more commands than the queue holds (%u)", c->sqsize + 1u);
		return NULL;
	}
	for (unsigned i = 0; i <= TARGET_DEPTH_MAX && !cmd; i++)
		if (!c->cmds[i].used)
			cmd = &c->cmds[i];
	if (!cmd)
		return NULL;
	*cmd = (struct tcmd){.used = true, .cid = le16(sqe + 2)};
	memcpy(cmd->sqe, sqe, 64);
	c->in_flight++;
	if (c->sqsize)
		c->sqhd = (uint16_t)((c->sqhd + 1u) % (c->sqsize + 1u));
	return cmd;
}

static void note(struct conn *c, const struct tcmd *cmd)
{
	struct target *t = c->t;
	struct target_log_entry *e = &t->log[t->logged % LOG_MAX];
	const uint8_t *sqe = cmd->sqe;
	bool io = c->ctrl && c->qid && sqe[0] != OP_FABRICS;

	*e = (struct target_log_entry){.order = t->logged++,
	                               .qid = c->qid,
	                               .cid = cmd->cid,
	                               .opcode = sqe[0],
	                               .fctype = sqe[0] == OP_FABRICS ? sqe[4] : 0,
	                               .nsid = le32(sqe + 4),
	                               .slba = io ? le64(sqe + 40) : le32(sqe + 40)};
	if (io && (sqe[0] == 1 || sqe[0] == 2 || sqe[0] == 8))
		e->nlb = le16(sqe + 48) + 1u;
	if (c->ctrl) {
		e->cntlid = c->ctrl->cntlid;
		memcpy(e->host_nqn, c->ctrl->host_nqn, sizeof(e->host_nqn));
	}
	if (io)
		t->stats.io++;
	else
		t->stats.admin++;
}

/* A keyed SGL: Base 2.0, 4.1.2.1. */
static void key_in(struct conn *c, struct tcmd *cmd)
{
	struct target *t = c->t;

	cmd->addr = le64(cmd->sqe + 24);
	cmd->key = le32(cmd->sqe + 35);
	if (!c->ctrl || !c->qid || cmd->sqe[0] == OP_FABRICS)
		return;
	t->seen[t->n_seen % SEEN_KEYS] = (struct seen_key){.opcode = cmd->sqe[0],
	                                                   .addr = cmd->addr,
	                                                   .key = cmd->key,
	                                                   .len = le32(cmd->sqe + 32) & 0xffffff};
	memcpy(t->seen[t->n_seen++ % SEEN_KEYS].host_nqn, c->ctrl->host_nqn,
	       sizeof(c->ctrl->host_nqn));
}

/* What the SGL says of the data: ST_OK, and cmd->len, cmd->data of what came in the capsule. */
static uint16_t data_prepare(struct conn *c, struct tcmd *cmd, const uint8_t *data, uint32_t len)
{
	uint8_t type = cmd->sqe[39];
	uint32_t want = le32(cmd->sqe + 32) & (type == SGL_KEYED ? 0xffffffu : ~0u);
	uint64_t at = le64(cmd->sqe + 24);
	struct target *t = c->t;

	if (c->carried && type != SGL_IN_CAPSULE) {
		if (type != SGL_KEYED && type != SGL_KEYED_INVALIDATE)
			return ST_SGL_TYPE;
		cmd->invalidate = type == SGL_KEYED_INVALIDATE;
		type = SGL_TRANSPORT;
		want &= 0xffffff;
		if (want)
			key_in(c, cmd);
		t->stats.keyed += want != 0;
		t->stats.to_invalidate += cmd->invalidate;
	}
	if (type == SGL_IN_CAPSULE) {
		if (direction(cmd->sqe) != TO_TARGET || at > len || want > len - at || !want)
			return ST_SGL_LENGTH;
		cmd->capsule = true;
		data += at;
	} else if (type != (c->aside ? SGL_KEYED : SGL_TRANSPORT)) {
		return ST_SGL_TYPE;
	} else if (len) {
		return ST_FIELD;
	}
	if (want > TRANSFER_MAX)
		return ST_FIELD;
	if (!want || !direction(cmd->sqe))
		return ST_OK;
	cmd->data = calloc(1, want);
	if (!cmd->data)
		return 0x0006; /* internal error */
	cmd->len = want;
	if (cmd->capsule)
		memcpy(cmd->data, data, want);
	return ST_OK;
}

static void io_run(struct conn *c, struct tcmd *cmd)
{
	uint16_t st;

	if (!(c->ctrl->csts & 1)) {
		target_cqe_send(c, cmd, ST_SEQUENCE, 0);
		return;
	}
	st = target_io_run(c->t, c->ctrl->subsys, cmd->sqe, cmd->data, cmd->len);
	if (!st && direction(cmd->sqe) == FROM_TARGET)
		target_data_answer(c, cmd, 0);
	else
		target_cqe_send(c, cmd, st, 0);
}

static void run(struct conn *c, struct tcmd *cmd)
{
	if (target_auth_holds(c, cmd))
		return;
	if (cmd->sqe[0] == OP_FABRICS)
		target_fabrics_run(c, cmd);
	else if (!c->ctrl)
		target_cqe_send(c, cmd, ST_SEQUENCE, 0);
	else if (!c->qid)
		target_admin_run(c, cmd);
	else
		io_run(c, cmd);
}

/* When the medium is done with it. */
static uint64_t due(struct target *t)
{
	uint64_t at = t->now_ns + t->delay_ms * NS_PER_MS;

	if (!t->pace_ns)
		return at;
	t->idle_at_ns = MAX(t->idle_at_ns, t->now_ns) + t->pace_ns;
	return MAX(at, t->idle_at_ns);
}

/* All of it is here. */
static void complete(struct conn *c, struct tcmd *cmd)
{
	bool io = c->ctrl && c->qid && cmd->sqe[0] != OP_FABRICS;

	if (cmd->bad_digest) {
		target_violates(c, "wrong data digest");
		target_cqe_send(c, cmd, ST_TRANSIENT, 0);
	} else if (target_lies(c, cmd, -1, FAULT_ABORT_LATE, NULL)) {
		cmd->held = true;
	} else if (io && (c->t->delay_ms || c->t->pace_ns)) {
		cmd->waiting = true;
		cmd->due_ns = due(c->t);
		c->waiting++;
	} else {
		run(c, cmd);
	}
}

void target_cmd_taken(struct conn *c, struct tcmd *cmd)
{
	cmd->got = cmd->len;
	complete(c, cmd);
}

static void lie_at_start(struct conn *c, const struct tcmd *cmd)
{
	static const uint8_t junk[512] = {0xee};
	unsigned dir = direction(cmd->sqe);

	if (dir != FROM_TARGET && target_lies(c, cmd, -1, FAULT_DATA_FOR_WRITE, NULL))
		target_data_one(c, cmd, cmd->cid, 0, junk, sizeof(junk), F_LAST);
	if (dir != TO_TARGET && target_lies(c, cmd, -1, FAULT_R2T_FOR_READ, NULL))
		target_r2t_one(c, cmd, cmd->cid, 0xfff0, 0, 512);
	if (cmd->capsule && target_lies(c, cmd, -1, FAULT_R2T_IN_CAPSULE, NULL))
		target_r2t_one(c, cmd, cmd->cid, 0xfff0, 0, cmd->len);
}

static uint32_t capsule_max(const struct conn *c)
{
	if (c->ctrl && c->qid)
		return c->ctrl->subsys->o.in_capsule;
	return c->carried ? 0 : ADMIN_CAPSULE;
}

/* What is wrong with a capsule as such, before it is known what it wants. */
static uint16_t capsule_check(struct conn *c, const struct tcmd *cmd, bool twice)
{
	if (twice) {
		target_violates(c, "command id %u is in flight", cmd->cid);
		return 0x4003;
	}
	if (cmd->sqe[1] != 0x40) {
		target_violates(c, "flags 0x%02x of a command: expected 0x40", cmd->sqe[1]);
		return ST_FIELD;
	}
	if (c->state == CONN_CONNECT && (cmd->sqe[0] != OP_FABRICS || cmd->sqe[4] != 1)) {
		target_violates(c, "opcode 0x%02x before Connect", cmd->sqe[0]);
		return ST_SEQUENCE;
	}
	return ST_OK;
}

void target_cmd_in(struct conn *c, const uint8_t *sqe, const uint8_t *data, uint32_t len,
                   bool digest_ok)
{
	bool twice = target_cmd_find(c, le16(sqe + 2));
	struct tcmd *cmd = cmd_new(c, sqe);
	uint16_t st;

	if (!cmd || len > capsule_max(c)) {
		if (cmd)
			target_violates(c, "%u bytes in a capsule: at most %u", len,
			                capsule_max(c));
		target_term_send(c, 4, 0, c->rx, 72);
		return;
	}
	note(c, cmd);
	st = capsule_check(c, cmd, twice);
	if (!st) {
		st = data_prepare(c, cmd, data, len);
		if (st)
			target_violates(
				c, "SGL type 0x%02x length %u of opcode 0x%02x (%u in the capsule)",
				sqe[39], le32(sqe + 32), sqe[0], len);
	}
	cmd->bad_digest = !digest_ok;
	if (!st && c->ctrl && c->qid && sqe[0] != OP_FABRICS)
		st = target_io_check(c->ctrl->subsys, sqe, cmd);
	if (st) {
		target_cqe_send(c, cmd, st, 0);
		return;
	}
	if (!c->aside)
		lie_at_start(c, cmd);
	if (direction(sqe) == TO_TARGET && !cmd->capsule && cmd->len && c->aside)
		c->t->side->take(c, cmd);
	else if (direction(sqe) == TO_TARGET && !cmd->capsule && cmd->len)
		target_r2ts_send(c, cmd);
	else
		complete(c, cmd);
}

bool target_cmd_data_in(struct conn *c, const uint8_t *head, const uint8_t *data, uint32_t len,
                        bool last, bool digest_ok)
{
	uint16_t ttag = le16(head + 2);
	uint32_t off = le32(head + 4);
	struct tcmd *cmd;
	struct r2t *r;

	if (ttag >= (TARGET_DEPTH_MAX + 1) * R2T_MAX)
		return false;
	cmd = &c->cmds[ttag / R2T_MAX];
	r = &cmd->r2ts[ttag % R2T_MAX];
	if (!cmd->used || !r->used || cmd->cid != le16(head) || off != r->off + r->done ||
	    len > r->len - r->done || last != (len == r->len - r->done))
		return false;
	memcpy(cmd->data + off, data, len);
	cmd->bad_digest |= !digest_ok;
	r->done += len;
	cmd->got += len;
	if (r->done == r->len)
		r->used = false;
	if (cmd->got == cmd->len)
		complete(c, cmd);
	else if (!r->used)
		target_r2ts_send(c, cmd);
	return true;
}

void target_cmds_due(struct conn *c)
{
	for (unsigned i = 0; i <= TARGET_DEPTH_MAX && c->waiting; i++) {
		struct tcmd *cmd = &c->cmds[i];

		if (!cmd->used || !cmd->waiting || cmd->due_ns > c->t->now_ns)
			continue;
		cmd->waiting = false;
		c->waiting--;
		run(c, cmd);
	}
}

unsigned target_let_go(struct target *t)
{
	struct conn *c;
	unsigned n = 0;

	pthread_mutex_lock(&t->lock);
	list_for_each (&t->conns, c, link)
		for (unsigned i = 0; i <= TARGET_DEPTH_MAX && !c->dead; i++) {
			if (!c->cmds[i].used || !c->cmds[i].held)
				continue;
			c->cmds[i].held = false;
			run(c, &c->cmds[i]);
			n++;
		}
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return n;
}

static void orphan(struct conn *c, struct tcmd *cmd)
{
	struct orphan *o = calloc(1, sizeof(*o));

	if (!o)
		abort(); /* of a test */
	o->subsys = c->ctrl->subsys;
	o->cntlid = c->ctrl->cntlid;
	o->due_ns = cmd->due_ns;
	memcpy(o->sqe, cmd->sqe, 64);
	o->data = TAKE_PTR(cmd->data);
	o->len = cmd->len;
	list_add_tail(&c->t->orphans, &o->link);
}

/* The connection has ended: what waits and writes may live on. */
void target_cmds_orphan(struct conn *c)
{
	for (unsigned i = 0; i <= TARGET_DEPTH_MAX; i++) {
		struct tcmd *cmd = &c->cmds[i];

		if (cmd->used && cmd->waiting && c->t->keep_orphans && cmd->sqe[0] != 2)
			orphan(c, cmd);
		target_cmd_free(c, cmd);
	}
}

void target_orphans_due(struct target *t)
{
	struct orphan *o, *next;

	list_for_each_safe (&t->orphans, o, next, link) {
		if (o->due_ns > t->now_ns)
			continue;
		if (!target_io_run(t, o->subsys, o->sqe, o->data, o->len))
			t->stats.orphans++;
		list_del(&o->link);
		free(o->data);
		free(o);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Admin commands: features, abort, keep alive, asynchronous events. NVMe Base 2.0, 5. */
#include "tests/nvmf/target_priv.h"

#include <string.h>

enum admin_opcode {
	ADM_LOG = 0x02,
	ADM_IDENTIFY = 0x06,
	ADM_ABORT = 0x08,
	ADM_SET_FEATURES = 0x09,
	ADM_GET_FEATURES = 0x0a,
	ADM_EVENT = 0x0c,
	ADM_KEEP_ALIVE = 0x18,
};
enum { FEAT_CACHE = 0x06, FEAT_QUEUES = 0x07, FEAT_EVENTS = 0x0b, FEAT_KATO = 0x0f };
#define EVENT_NS_CHANGED 0x00040002u /* notice; namespace attribute changed; log page 4 */

static struct tcmd *event_waiting(struct conn *c)
{
	for (unsigned i = 0; i <= TARGET_DEPTH_MAX; i++)
		if (c->cmds[i].used && c->cmds[i].event)
			return &c->cmds[i];
	return NULL;
}

bool target_event_send(struct ctrl *k, uint32_t dword0)
{
	struct tcmd *cmd = k->admin ? event_waiting(k->admin) : NULL;

	if (!cmd)
		return false;
	target_cqe_send(k->admin, cmd, ST_OK, dword0);
	return true;
}

/* What has changed and was not told yet. */
static void tell_changes(struct ctrl *k)
{
	if (k->n_changed && !k->changed_masked && k->aec & 1u << 8 &&
	    target_event_send(k, EVENT_NS_CHANGED))
		k->changed_masked = true; /* until the log page is read */
}

void target_ns_changed(struct target *t, struct subsys *s, uint32_t nsid)
{
	struct ctrl *k;

	list_for_each (&t->ctrls, k, link) {
		bool known = false;

		if (k->subsys != s)
			continue;
		for (unsigned i = 0; i < k->n_changed; i++)
			known |= k->changed[i] == nsid;
		if (!known && k->n_changed < TARGET_NAMESPACES)
			k->changed[k->n_changed++] = nsid;
		tell_changes(k);
	}
}

static void event_run(struct conn *c, struct tcmd *cmd)
{
	unsigned n = 0;
	uint64_t arg;

	for (unsigned i = 0; i <= TARGET_DEPTH_MAX; i++)
		n += c->cmds[i].used && c->cmds[i].event;
	if (n > AERL) {
		target_violates(c, "more than %u event requests", AERL + 1);
		target_cqe_send(c, cmd, ST_AER_LIMIT, 0);
		return;
	}
	cmd->event = true;
	if (target_lies(c, cmd, -1, FAULT_AEN_FLOOD, NULL))
		target_cqe_send(c, cmd, ST_OK, EVENT_NS_CHANGED);
	else if (target_lies(c, cmd, -1, FAULT_AEN_VALUE, &arg))
		target_cqe_send(c, cmd, ST_OK, arg);
	else
		tell_changes(c->ctrl);
}

static uint16_t set_feature(struct conn *c, struct tcmd *cmd, uint64_t *result)
{
	struct ctrl *k = c->ctrl;
	uint32_t v = le32(cmd->sqe + 44), sq = v & 0xffff, cq = v >> 16;

	switch (cmd->sqe[40]) {
	case FEAT_QUEUES:
		if (k->subsys->discovery || sq == 0xffff || cq == 0xffff)
			return ST_FIELD;
		k->queues = MIN(MIN(sq, cq) + 1, k->subsys->o.io_queues);
		*result = (k->queues - 1) | (k->queues - 1) << 16;
		target_lies(c, cmd, -1, FAULT_QUEUES, result);
		return ST_OK;
	case FEAT_EVENTS:
		k->aec = v;
		tell_changes(k);
		return ST_OK;
	case FEAT_KATO:
		k->kato_ms = v;
		target_keep_alive(k);
		return ST_OK;
	case FEAT_CACHE:
		if (!k->subsys->o.write_cache)
			return ST_FIELD;
		k->write_cache = v & 1;
		return ST_OK;
	default:
		return ST_FIELD;
	}
}

static uint16_t get_feature(struct conn *c, struct tcmd *cmd, uint64_t *result)
{
	struct ctrl *k = c->ctrl;

	switch (cmd->sqe[40]) {
	case FEAT_QUEUES:
		*result = (k->queues - 1) | (k->queues - 1) << 16;
		return ST_OK;
	case FEAT_EVENTS:
		*result = k->aec;
		return ST_OK;
	case FEAT_KATO:
		*result = k->kato_ms;
		return ST_OK;
	case FEAT_CACHE:
		*result = k->write_cache;
		return k->subsys->o.write_cache ? ST_OK : ST_FIELD;
	default:
		return ST_FIELD;
	}
}

/* Only what waits can be aborted; what a fault held answers late. */
static void abort_run(struct conn *c, struct tcmd *cmd)
{
	uint16_t sqid = le16(cmd->sqe + 40), cid = le16(cmd->sqe + 42);
	struct tcmd *found = NULL;
	struct conn *other, *its = NULL;

	list_for_each (&c->t->conns, other, link) {
		if (other->dead || other->ctrl != c->ctrl || other->qid != sqid)
			continue;
		its = other;
		found = target_cmd_find(other, cid);
	}
	if (!found || found == cmd || !(found->waiting || found->held)) {
		target_cqe_send(c, cmd, ST_OK, 1); /* was not aborted */
		return;
	}
	if (found->held && found->data && (found->sqe[0] & 3) == 2) {
		struct tcmd late = *found;

		found->data = NULL;
		target_cqe_send(its, found, ST_ABORTED, 0);
		target_data_one(its, &late, late.cid, 0, late.data, late.len, F_LAST);
		free(late.data);
	} else {
		target_cqe_send(its, found, ST_ABORTED, 0);
	}
	target_cqe_send(c, cmd, ST_OK, 0);
}

static void data_run(struct conn *c, struct tcmd *cmd)
{
	uint16_t st = cmd->sqe[0] == ADM_LOG ? target_log_page(c, cmd) : target_identify(c, cmd);

	if (st)
		target_cqe_send(c, cmd, st, 0);
	else
		target_data_answer(c, cmd, 0);
}

void target_admin_run(struct conn *c, struct tcmd *cmd)
{
	struct ctrl *k = c->ctrl;
	uint64_t result = 0;
	uint16_t st = ST_OK;

	if (!(k->csts & 1) && cmd->sqe[0] != ADM_KEEP_ALIVE) {
		target_violates(c, "admin opcode 0x%02x before CSTS.RDY", cmd->sqe[0]);
		target_cqe_send(c, cmd, ST_SEQUENCE, 0);
		return;
	}
	switch (cmd->sqe[0]) {
	case ADM_LOG:
	case ADM_IDENTIFY:
		data_run(c, cmd);
		return;
	case ADM_EVENT:
		event_run(c, cmd);
		return;
	case ADM_ABORT:
		abort_run(c, cmd);
		return;
	case ADM_SET_FEATURES:
		st = set_feature(c, cmd, &result);
		break;
	case ADM_GET_FEATURES:
		st = get_feature(c, cmd, &result);
		break;
	case ADM_KEEP_ALIVE:
		c->t->stats.keep_alives++;
		target_keep_alive(k);
		break;
	default:
		st = ST_OPCODE;
	}
	target_cqe_send(c, cmd, st, result);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests as commands: split at what the target takes, handed on, put together again. What was not
 * handed on is handed on later; what was handed on without an answer is handed on again if it
 * changes nothing, and else waits until the controller it went to is quiet, and ends as unknown.
 * Whatever comes too late to be handed on ends its request.
 */
#include "common/clock.h"
#include "dataplane/nvmf/engine_priv.h"
#include <errno.h>

static bool changes(const struct nvmf_nio *nio)
{
	return engine_op_changes(nio->io->op);
}

static bool failed(const struct nvmf_nio *nio)
{
	return nio->unknown || nio->res < 0;
}

static bool all_given(const struct nvmf_nio *nio)
{
	return nio->io->op == ENGINE_OP_FLUSH ? nio->at > 0 : nio->at == nio->len;
}

static void cmd_free(struct nvmf_lane *l, struct nvmf_cmd *cmd)
{
	cmd->nio->n_cmds--;
	cmd->nio = NULL;
	list_del(&cmd->link);
	list_add_tail(&l->free, &cmd->link);
}

/* Takes back the commands of @nio that are not with the queue. */
static void forget_again(struct nvmf_lane *l, struct nvmf_nio *nio)
{
	struct nvmf_cmd *cmd, *tmp;

	list_for_each_safe (&l->again, cmd, tmp, link)
		if (cmd->nio == nio)
			cmd_free(l, cmd);
}

static void end_unknown(struct nvmf_lane *l, struct nvmf_nio *nio)
{
	nvmf_ctrl_count(l->ctrl, NVMF_COUNT_UNKNOWN);
	nvmf_nio_over(l->er, nio, -EREMOTEIO);
}

/* A read is short where the volume ends; what clears is not. */
static int64_t result_of(const struct nvmf_nio *nio)
{
	return engine_op_clears(nio->io->op) ? nio->io->len : nio->len;
}

/* Is it over? */
static void judge(struct nvmf_lane *l, struct nvmf_nio *nio)
{
	if (failed(nio))
		forget_again(l, nio);
	if (nio->n_cmds || (!failed(nio) && !all_given(nio)))
		return;
	if (!nio->unknown) {
		/* A write of which a part is done is neither done nor not done, whatever kept this
		 * side from handing on the rest. */
		if (nio->partly && nio->refused)
			nio->res = -EREMOTEIO;
		nvmf_nio_over(l->er, nio, nio->res < 0 ? nio->res : result_of(nio));
	} else if (nvmf_ctrl_quiet(l->ctrl) >= nio->generation) {
		end_unknown(l, nio);
	} else {
		list_del(&nio->link);
		list_add_tail(&l->unknown, &nio->link);
		if (nio->io->unneeded)
			nio->io->unneeded(nio->io);
	}
}

void nvmf_lane_quiet(struct nvmf_lane *l)
{
	uint32_t quiet = nvmf_ctrl_quiet(l->ctrl);
	struct nvmf_nio *nio, *tmp;

	list_for_each_safe (&l->unknown, nio, tmp, link)
		if (nio->generation <= quiet)
			end_unknown(l, nio);
}

/* ---- answers ---- */

static int error_of(uint16_t status)
{
	switch (NVME_STATUS_CODE(status)) {
	case NVME_SC_INVALID_NAMESPACE:
		return -ENOENT;
	case NVME_SC_LBA_RANGE:
		return -ERANGE;
	case NVME_SC_CAPACITY:
		return -ENOSPC;
	case NVME_SC_WRITE_PROTECTED:
	case NVME_SC_OPERATION_DENIED:
	case NVME_SC_ACCESS_DENIED:
		return -EACCES;
	case NVME_SC_RESERVATION:
	case NVME_SC_FORMATTING:
	case NVME_SC_SANITIZE_IN_PROGRESS:
		return -EBUSY;
	default:
		return -EIO;
	}
}

/* The target has ended the command, and says that another try may go better. */
static bool worth_another(uint16_t status)
{
	uint16_t code = NVME_STATUS_CODE(status);

	if (status & NVME_STATUS_DNR)
		return false;
	return code == NVME_SC_NS_NOT_READY || code == NVME_SC_INTERRUPTED ||
	       code == NVME_SC_TRANSPORT_ERROR || code == NVME_SC_MEDIA_NOT_READY ||
	       code == NVME_SC_ABORT_REQUESTED || code == NVME_SC_ABORT_SQ_DELETED ||
	       code >> 8 == 3;
}

/* False: too often. */
static bool try_again(struct nvmf_lane *l, struct nvmf_cmd *cmd, uint64_t wait_ns)
{
	if (++cmd->tries >= NVMF_TRIES_MAX)
		return false;
	cmd->not_before_ns = wait_ns ? clock_boottime_ns() + wait_ns : 0;
	list_add_tail(&l->again, &cmd->link);
	nvmf_ctrl_count(l->ctrl, NVMF_COUNT_RETRY);
	return true;
}

static void answered(struct nvmf_lane *l, struct nvmf_cmd *cmd, const struct nvme_cqe *cqe)
{
	struct nvmf_nio *nio = cmd->nio;
	uint16_t status = cqe->status >> 1;

	/* What it ended with an error it may have begun. */
	if (NVME_STATUS_CODE(status) != NVME_SC_NS_NOT_READY)
		nio->partly = changes(nio);
	if (NVME_STATUS_CODE(status) == NVME_SC_SUCCESS) {
		nio->flushed = l->generation;
		if (changes(nio) && !nio->cached && l->live.write_cache)
			nio->cached = l->generation;
	} else if (worth_another(status) && try_again(l, cmd, NVMF_RETRY_MS * NS_PER_MS)) {
		return;
	} else if (nio->res == 0) {
		nio->res = error_of(status);
	}
	cmd_free(l, cmd);
}

static void unanswered(struct nvmf_lane *l, struct nvmf_cmd *cmd)
{
	struct nvmf_nio *nio = cmd->nio;

	if (changes(nio)) {
		nio->unknown = true;
		nio->generation = l->generation;
		l->n_unknown++;
		nvmf_fence_add(l->ctrl, l->generation, nio->io->file->volume, nio->io->file->nsid,
		               nio->offset + cmd->at, cmd->len);
	} else if (try_again(l, cmd, 0)) {
		return;
	} else if (nio->res == 0) {
		nio->res = -ETIMEDOUT;
	}
	cmd_free(l, cmd);
}

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct nvmf_cmd *cmd = container_of(req, struct nvmf_cmd, req);
	struct nvmf_nio *nio = cmd->nio;
	struct nvmf_lane *l = nio->lane;

	l->still = 0;
	if (rc == 0)
		answered(l, cmd, cqe);
	else if (rc == -ECANCELED)
		list_add_tail(&l->again, &cmd->link);
	else
		unanswered(l, cmd);
	judge(l, nio);
}

/* ---- commands ---- */

static void deallocate(struct nvmf_cmd *cmd, uint64_t lba, uint32_t blocks)
{
	cmd->range = (struct nvme_dsm_range){.blocks = blocks, .slba = lba};
	cmd->req.dir = NVMF_TO_TARGET;
	cmd->req.buf = &cmd->range;
	cmd->req.len = sizeof(cmd->range);
	nvme_cmd_deallocate(&cmd->req.sqe, cmd->nio->io->file->nsid, 1);
}

static void build(struct nvmf_lane *l, struct nvmf_cmd *cmd)
{
	const struct nvmf_config *k = nvmf_admin_config(l->er->engine->admin);
	const struct nvmf_nio *nio = cmd->nio;
	const struct engine_file *f = nio->io->file;
	uint64_t lba = (nio->offset + cmd->at) >> f->block_shift;
	uint32_t blocks = cmd->len >> f->block_shift;

	cmd->req = (struct nvmf_req){.done = on_done,
	                             .dir = NVMF_NO_DATA,
	                             .timeout_ns = k->command_timeout_ms * NS_PER_MS,
	                             .until_ns = nio->io->until_ns};
	if (nio->io->op == ENGINE_OP_FLUSH) {
		nvme_cmd_flush(&cmd->req.sqe, f->nsid);
		return;
	}
	if (nio->io->op == ENGINE_OP_ZERO) {
		nvme_cmd_write_zeroes(&cmd->req.sqe, f->nsid, lba, blocks, false);
		return;
	}
	if (nio->io->op == ENGINE_OP_DISCARD) {
		deallocate(cmd, lba, blocks);
		return;
	}
	cmd->req.buf = (uint8_t *)nio->io->buf + cmd->at;
	cmd->req.len = cmd->len;
	cmd->req.region = nio->io->region;
	cmd->req.tenant_memory = nio->io->tenant_memory;
	cmd->req.dir = changes(nio) ? NVMF_TO_TARGET : NVMF_FROM_TARGET;
	if (changes(nio))
		nvme_cmd_write(&cmd->req.sqe, f->nsid, lba, blocks, false);
	else
		nvme_cmd_read(&cmd->req.sqe, f->nsid, lba, blocks);
}

/* The most bytes of one command for it; 0: the target cannot do that. */
static uint32_t cmd_max(const struct nvmf_lane *l, const struct nvmf_nio *nio)
{
	uint32_t shift = nio->io->file->block_shift;
	uint64_t max = l->live.transfer_max;

	if (nio->io->op == ENGINE_OP_ZERO)
		max = MIN(l->live.zeroes_max, (uint64_t)NVME_RW_BLOCKS_MAX << shift);
	else if (nio->io->op == ENGINE_OP_DISCARD)
		max = MIN(l->live.discard_blocks_max, (uint64_t)ENGINE_ZERO_MAX) << shift;
	return (uint32_t)MIN(max, (uint64_t)ENGINE_ZERO_MAX) & ~((1u << shift) - 1);
}

static bool is_late(const struct nvmf_nio *nio, uint64_t now_ns)
{
	return nio->io->until_ns && now_ns >= nio->io->until_ns;
}

static bool fenced(struct nvmf_lane *l, const struct nvmf_cmd *cmd)
{
	const struct nvmf_nio *nio = cmd->nio;

	return changes(nio) &&
	       nvmf_fence_hits(l->ctrl, nio->io->file->nsid, nio->offset + cmd->at, cmd->len);
}

/* The volume may have become another one since the request came in: nothing is named that is not
 * in it now. */
static int still_there(const struct nvmf_nio *nio)
{
	const struct engine_file *f = nio->io->file;
	uint64_t size;
	int rc = nvmf_file_size(f, &size, NULL);

	return rc == 0 && nio->offset - f->base + nio->len > size ? -ERANGE : rc;
}

/* A controller that came back may have other limits. */
static int still_possible(const struct nvmf_lane *l, const struct nvmf_cmd *cmd)
{
	const struct nvmf_nio *nio = cmd->nio;

	return engine_op_clears(nio->io->op) && cmd->len > cmd_max(l, nio) ? -EOPNOTSUPP
	                                                                   : still_there(nio);
}

/* 0 = the queue has it; 1 = it waits for a fence or its time; -EAGAIN, -ENOTCONN: no more now. It
 * is in again then. */
static int hand_on(struct nvmf_lane *l, struct nvmf_cmd *cmd, uint64_t now_ns)
{
	int rc = now_ns < cmd->not_before_ns || fenced(l, cmd) ? 1 : 0;

	list_del(&cmd->link);
	if (rc == 0) {
		build(l, cmd);
		rc = l->ops->submit(l->q, &cmd->req);
	}
	if (rc == 0)
		l->kick = true;
	else if (rc == 1)
		list_add_tail(&l->again, &cmd->link);
	else if (rc == -EAGAIN || rc == -ENOTCONN)
		list_add_head(&l->again, &cmd->link);
	return rc;
}

/* By this side, not by the target. */
static void refuse(struct nvmf_nio *nio, int rc)
{
	if (nio->res < 0)
		return;
	nio->res = rc;
	nio->refused = true;
}

/* What the queue refuses for good ends its request. */
static int hand_on_or_end(struct nvmf_lane *l, struct nvmf_cmd *cmd, uint64_t now_ns)
{
	struct nvmf_nio *nio = cmd->nio;
	int rc = is_late(nio, now_ns) ? ENGINE_LATE : still_possible(l, cmd);

	if (rc == 0)
		rc = hand_on(l, cmd, now_ns);
	if (rc >= 0 || rc == -EAGAIN || rc == -ENOTCONN)
		return rc;
	refuse(nio, rc);
	cmd_free(l, cmd);
	judge(l, nio);
	return 1;
}

/* Commands that came back go first. False: the queue takes no more. */
static bool pump_again(struct nvmf_lane *l, uint64_t now_ns)
{
	uint32_t n = 0;
	struct nvmf_cmd *cmd;

	list_for_each (&l->again, cmd, link)
		n++;
	/* Each about once: those that must wait go to the end. */
	for (; n && !list_empty(&l->again); n--)
		if (hand_on_or_end(l, list_first(&l->again, struct nvmf_cmd, link), now_ns) < 0)
			return false;
	return true;
}

static struct nvmf_cmd *next_cmd(struct nvmf_lane *l, struct nvmf_nio *nio)
{
	struct nvmf_cmd *cmd = list_first(&l->free, struct nvmf_cmd, link);

	cmd->nio = nio;
	cmd->at = nio->at;
	cmd->tries = 0;
	cmd->not_before_ns = 0;
	cmd->len = MIN(nio->len - nio->at, cmd_max(l, nio));
	nio->at += nio->io->op == ENGINE_OP_FLUSH ? 1 : cmd->len;
	nio->n_cmds++;
	return cmd;
}

static void give_up(struct nvmf_lane *l, struct nvmf_nio *nio, int rc)
{
	refuse(nio, rc);
	judge(l, nio);
}

/* False: no more now. */
static bool begin(struct nvmf_lane *l, struct nvmf_nio *nio, uint64_t now_ns)
{
	if (nio->io->op != ENGINE_OP_FLUSH && cmd_max(l, nio) == 0) {
		give_up(l, nio, -EOPNOTSUPP);
		return true;
	}
	while (!all_given(nio) && !failed(nio)) {
		struct nvmf_cmd *cmd;

		if (list_empty(&l->free))
			return false;
		cmd = next_cmd(l, nio);
		if (all_given(nio)) {
			list_del(&nio->link);
			list_add_tail(&l->begun, &nio->link);
		}
		if (hand_on_or_end(l, cmd, now_ns) < 0)
			return false;
	}
	return true;
}

static void pump_waiting(struct nvmf_lane *l, uint64_t now_ns)
{
	struct nvmf_nio *nio, *tmp;

	list_for_each_safe (&l->waiting, nio, tmp, link) {
		if (nio->at == 0 && is_late(nio, now_ns)) {
			give_up(l, nio, ENGINE_LATE);
			continue;
		}
		/* Here, and not as commands, which others need meanwhile. */
		if (changes(nio) &&
		    nvmf_fence_hits(l->ctrl, nio->io->file->nsid, nio->offset, nio->len))
			continue;
		if (!begin(l, nio, now_ns))
			return;
	}
}

void nvmf_lane_pump(struct nvmf_lane *l, uint64_t now_ns)
{
	if (l->state != LANE_READY)
		return;
	now_ns = clock_boottime_ns(); /* right before it is handed on */
	if (pump_again(l, now_ns))
		pump_waiting(l, now_ns);
	if (l->kick) {
		l->kick = false;
		/* What is wrong with it is seen at the next look. */
		(void)l->ops->kick(l->q, now_ns);
	}
}

/* ---- giving back, giving up ---- */

/* No command of it is with a queue, and none changed anything. */
static bool may_go_back(const struct nvmf_nio *nio)
{
	return nio->io->may_return && !failed(nio) && !nio->partly;
}

static uint32_t count(const struct list *of)
{
	const struct nvmf_nio *nio;
	uint32_t n = 0;

	list_for_each (of, nio, link)
		n += may_go_back(nio);
	return n;
}

/* The youngest first, and so to the front of where they come from. */
static void go_back(struct nvmf_lane *l, struct list *of, uint32_t n)
{
	struct list *at = of->prev;

	while (n && at != of) {
		struct nvmf_nio *nio = container_of(at, struct nvmf_nio, link);

		at = at->prev;
		if (!may_go_back(nio))
			continue;
		forget_again(l, nio);
		nvmf_nio_over(l->er, nio, ENGINE_AWAY);
		n--;
	}
}

void nvmf_lane_give_back(struct nvmf_lane *l)
{
	uint32_t waiting = count(&l->waiting), begun = count(&l->begun), n;

	if (waiting + begun <= NVMF_WAITERS_MAX)
		return;
	n = waiting + begun - NVMF_WAITERS_MAX;
	go_back(l, &l->waiting, MIN(n, waiting));
	go_back(l, &l->begun, n - MIN(n, waiting));
}

/* The next of its commands that the queue has, from *@at on; NULL: there is none. */
static struct nvmf_cmd *next_in_queue(struct nvmf_lane *l, const struct nvmf_nio *nio, uint32_t *at)
{
	uint32_t depth = nvmf_admin_config(l->er->engine->admin)->queue_depth;

	while (*at < depth) {
		struct nvmf_cmd *cmd = &l->cmds[(*at)++];

		/* In no list: the queue's. */
		if (cmd->nio == nio && list_empty(&cmd->link))
			return cmd;
	}
	return NULL;
}

/* A write of unknown outcome stays: it may still happen, and whoever waits for the end of what was
 * begun must know. */
void nvmf_lane_withdraw(struct nvmf_lane *l, struct nvmf_nio *nio)
{
	uint64_t now_ns = clock_boottime_ns();
	struct nvmf_cmd *cmd;

	if (nio->unknown)
		return;
	give_up(l, nio, -ECANCELED);
	/* What comes back in it finds that the request has failed; with the last it is over. */
	for (uint32_t at = 0; nio->n_cmds && l->q && l->ops->withdraw;) {
		cmd = next_in_queue(l, nio, &at);
		if (!cmd)
			return;
		l->ops->withdraw(l->q, &cmd->req, now_ns);
	}
}

uint32_t nvmf_lane_end_keys(struct nvmf_lane *l, const struct nvmf_nio *nio, uint64_t now_ns)
{
	struct nvmf_cmd *cmd;
	uint32_t n = 0, at = 0;

	if (!l->q || !l->ops->end_key)
		return 0;
	while (nio->n_cmds && (cmd = next_in_queue(l, nio, &at)))
		n += l->ops->end_key(l->q, &cmd->req, now_ns);
	return n;
}

void nvmf_lane_fail_all(struct nvmf_lane *l, int rc)
{
	struct nvmf_nio *nio, *tmp;

	list_for_each_safe (&l->waiting, nio, tmp, link)
		give_up(l, nio, rc);
}

static void expire_list(struct nvmf_lane *l, struct list *of, uint64_t now_ns)
{
	struct nvmf_nio *nio, *tmp;

	list_for_each_safe (of, nio, tmp, link) {
		if (nio->at == 0 && is_late(nio, now_ns)) {
			give_up(l, nio, ENGINE_LATE);
			continue;
		}
		if (now_ns < nio->deadline_ns || failed(nio))
			continue;
		l->given_up |= l->state != LANE_READY;
		nvmf_ctrl_count(l->ctrl, NVMF_COUNT_EXPIRED);
		give_up(l, nio, -ENOTCONN);
	}
}

void nvmf_lane_expire(struct nvmf_lane *l, uint64_t now_ns)
{
	expire_list(l, &l->waiting, now_ns);
	expire_list(l, &l->begun, now_ns);
}

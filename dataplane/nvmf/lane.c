/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The I/O queue of one controller at one reactor: opened when there is something to do and the
 * controller is LIVE, ended when it is not, or by a fault. A queue that died alone is opened again
 * within the same controller unless a write was in it without an answer (then the controller is
 * reset, because only its end makes sure of the write's), or the target lied.
 */
#define LOG_COMPONENT "nvmf"
#include "common/clock.h"
#include "common/log.h"
#include "dataplane/nvmf/engine_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

void nvmf_lane_heat(struct nvmf_lane *l)
{
	if (list_empty(&l->link_hot))
		list_add_tail(&l->er->hot, &l->link_hot);
}

static void release(struct nvmf_lane *l)
{
	free(l->cmds);
	free(l->nios);
	free(l);
}

static struct nvmf_lane *lane_new(struct engine_reactor *r, struct nvmf_ctrl *c)
{
	uint32_t depth = nvmf_admin_config(r->engine->admin)->queue_depth;
	struct nvmf_lane *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->cmds = calloc(depth, sizeof(*l->cmds));
	l->nios = calloc(r->tenant_depth, sizeof(*l->nios));
	if (!l->cmds || !l->nios) {
		release(l);
		return NULL;
	}
	l->ctrl = c;
	l->er = r;
	l->ops = r->engine->queue;
	list_init(&l->free);
	list_init(&l->again);
	list_init(&l->waiting);
	list_init(&l->begun);
	list_init(&l->unknown);
	list_init(&l->link_hot);
	for (uint32_t i = 0; i < depth; i++)
		list_add_tail(&l->free, &l->cmds[i].link);
	list_init(&l->free_nios);
	for (uint32_t i = 0; i < r->tenant_depth; i++)
		list_add_tail(&l->free_nios, &l->nios[i].link);
	nvmf_lane_hold(c);
	list_add_tail(&r->lanes, &l->link);
	return l;
}

struct nvmf_lane *nvmf_lane_of(struct engine_reactor *r, struct nvmf_ctrl *c, int *rc)
{
	struct nvmf_lane **at = &r->by_index[nvmf_ctrl_index(c)];

	if (!*at)
		*at = lane_new(r, c);
	if (!*at)
		*rc = -ENOMEM;
	return *at;
}

/* ---- the end of a queue ---- */

static void drop_queue(struct nvmf_lane *l)
{
	bool ending = l->ops->keys_ending && l->ops->keys_ending(l->q, UINT64_MAX);
	struct nvmf_queue_counters c;

	l->ops->counters(l->q, &c);
	l->er->copied_bytes += c.copied_bytes;
	l->last_withdrawn_ns = MAX(l->last_withdrawn_ns, c.last_withdrawn_ns);
	l->ops->free(TAKE_PTR(l->q));
	/* It ended what had not ended, and took the time of that along. */
	if (ending)
		l->last_withdrawn_ns = clock_boottime_ns();
	nvmf_proof_drop(TAKE_PTR(l->proof));
	if (l->n_unknown) {
		l->dead = true;
		nvmf_ctrl_reset(l->ctrl, l->generation, l->fault);
	}
	l->n_unknown = 0;
	nvmf_lane_end(l->ctrl, l->qid);
	l->state = LANE_DOWN;
}

/* Before the next one. One that dies soon whenever it is opened is opened ever more seldom: each is
 * some work for this side, and the target chooses how often. */
static uint64_t pause_ns(struct nvmf_lane *l, uint64_t now_ns)
{
	uint64_t most = NVMF_RETRY_MAX_MS * NS_PER_MS, ns;

	if (l->state == LANE_READY && now_ns >= clock_add_ns(l->ready_ns, most))
		l->ends = 0;
	ns = MIN(NVMF_RETRY_MS * NS_PER_MS << l->ends, most);
	l->ends += ns < most;
	return ns;
}

static void end_queue(struct nvmf_lane *l, const char *why, uint64_t now_ns)
{
	bool joined = l->state == LANE_READY;

	if (l->state == LANE_DOWN || l->state == LANE_ENDING)
		return;
	snprintf(l->fault, sizeof(l->fault), "I/O queue %u: %.180s", l->qid, why);
	l->open_at_ns = now_ns + pause_ns(l, now_ns);
	l->state = LANE_ENDING;
	l->ops->kill(l->q, why);
	l->failures = joined ? 0 : l->failures + 1;
	if (joined)
		l->waits_since_ns = now_ns;
	/* A target that lied is named, and begins anew with all of its queues. */
	if (l->failures < NVMF_REFUSALS_MAX && !nvmf_queue_lied(why)) {
		log_warn("controller %u: %s; it is opened again", l->live.cntlid, l->fault);
		return;
	}
	l->failures = 0;
	l->dead = true;
	nvmf_ctrl_reset(l->ctrl, l->generation, l->fault);
}

/* Everything it had came back: it goes. */
static void settle(struct nvmf_lane *l)
{
	if (l->state != LANE_ENDING || l->ops->in_flight(l->q))
		return;
	drop_queue(l);
	nvmf_lane_give_back(l);
	if (l->n_ios)
		nvmf_lane_heat(l);
}

void nvmf_lane_free(struct nvmf_lane *l)
{
	if (l->q) {
		l->state = LANE_ENDING;
		drop_queue(l);
	}
	l->er->by_index[nvmf_ctrl_index(l->ctrl)] = NULL;
	list_del(&l->link);
	list_del(&l->link_hot);
	nvmf_lane_drop(l->ctrl);
	release(l);
}

uint64_t nvmf_lane_patience_ns(const struct nvmf_lane *l)
{
	return NVMF_DEADLINES * NS_PER_MS *
	       nvmf_admin_config(l->er->engine->admin)->command_timeout_ms;
}

bool nvmf_lane_waits(const struct nvmf_lane *l)
{
	return l->state != LANE_READY || l->still >= NVMF_STALL_TICKS;
}

bool nvmf_lane_holds(const struct nvmf_lane *l)
{
	return !list_empty(&l->waiting) || !list_empty(&l->begun) || !list_empty(&l->unknown);
}

/* ---- its beginning ---- */

static int open_queue(struct nvmf_lane *l, uint64_t now_ns, struct ros2_err *err)
{
	const struct nvmf_config *k = nvmf_admin_config(l->er->engine->admin);
	struct nvmf_queue_opts o = {.peer = nvmf_ctrl_peer(l->ctrl),
	                            .qid = l->qid,
	                            .cntlid = l->live.cntlid,
	                            .depth = l->live.depth,
	                            .in_capsule_max = l->live.in_capsule_max,
	                            .transfer_max = l->live.transfer_max,
	                            .header_digest = k->header_digest,
	                            .data_digest = k->data_digest,
	                            .keys_per_command = k->keys_per_command,
	                            .remote_invalidate =
	                                    nvmf_peer_invalidates(nvmf_ctrl_pd(l->ctrl)),
	                            .pd = nvmf_ctrl_pd(l->ctrl),
	                            .key_ids = &l->er->key_ids,
	                            .epoll_fd = l->er->epoll_fd,
	                            .epoll_word = nvmf_ctrl_index(l->ctrl),
	                            .connect_timeout_ns = k->command_timeout_ms * NS_PER_MS,
	                            .now_ns = now_ns};

	return l->ops->open(&o, &l->q, err);
}

void nvmf_lane_open(struct nvmf_lane *l, uint64_t now_ns)
{
	struct nvmf_view v = nvmf_ctrl_view(l->ctrl);
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	if (l->state != LANE_DOWN || !l->n_ios || v.state != NVMF_CTRL_LIVE)
		return;
	if (v.generation != l->generation) {
		l->generation = v.generation;
		l->dead = false;
		l->failures = l->ends = 0;
		l->open_at_ns = 0;
	}
	if (l->dead || now_ns < l->open_at_ns)
		return;
	rc = nvmf_lane_begin(l->ctrl, l->generation, &l->live, &l->qid);
	if (rc == -EDQUOT)
		nvmf_lane_fail_all(l, rc);
	if (rc < 0)
		return;
	rc = open_queue(l, now_ns, &err);
	if (rc == 0) {
		l->state = LANE_CONNECTING;
		return;
	}
	nvmf_lane_end(l->ctrl, l->qid);
	l->open_at_ns = now_ns + NVMF_RETRY_MS * NS_PER_MS;
	log_debug("I/O queue: %s", err.msg);
}

static void ready(struct nvmf_lane *l)
{
	nvmf_proof_drop(TAKE_PTR(l->proof));
	l->state = LANE_READY;
	l->ready_ns = clock_boottime_ns();
	l->given_up = false;
	l->still = 0;
	nvmf_lane_heat(l);
}

static void on_message(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe);

/* The next message of the authentication, when it is computed. */
static void authenticate(struct nvmf_lane *l, uint64_t now_ns)
{
	struct nvmf_req next = {.timeout_ns = l->join.timeout_ns, .done = on_message};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	if (l->state != LANE_JOINING || !l->proof)
		return;
	rc = nvmf_proof_take(l->proof, &next, &err);
	if (rc == -EINPROGRESS)
		return;
	if (rc == 1) {
		ready(l);
		return;
	}
	l->join = next;
	if (rc == 0)
		rc = l->ops->submit(l->q, &l->join);
	if (rc == 0)
		rc = l->ops->kick(l->q, now_ns);
	if (rc < 0)
		end_queue(l, err.msg[0] ? err.msg : "Authentication was not handed on", now_ns);
}

static void on_message(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct nvmf_lane *l = container_of(req, struct nvmf_lane, join);

	if (l->state == LANE_JOINING && rc == 0)
		nvmf_proof_ask(l->proof, cqe);
	/* Else the queue is dead, which is seen after. */
}

static void on_joined(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct nvmf_lane *l = container_of(req, struct nvmf_lane, join);
	struct nvme_connected got;
	struct ros2_err err = ROS2_ERR_INIT;
	char words[100];

	if (l->state != LANE_JOINING || rc < 0)
		return; /* the queue is dead, which is seen after */
	if (NVME_STATUS_CODE(cqe->status >> 1) != NVME_SC_SUCCESS) {
		nvme_connect_refusal(cqe, words, sizeof(words));
		end_queue(l, words, clock_boottime_ns());
		return;
	}
	rc = nvme_connect_parse(cqe, &got, &err);
	if (rc == 0 && got.cntlid != l->live.cntlid)
		rc = ros2_err_set(&err, -EPROTO,
		                  "target sent Connect: expected controller %u, found %u",
		                  l->live.cntlid, got.cntlid);
	if (rc == 0 && got.authentication)
		rc = nvmf_proof_new(l->ctrl, &l->proof, &err);
	else if (rc == 0 && nvmf_admin_config(l->er->engine->admin)->target_secret[0])
		rc = ros2_err_set(&err, -EKEYREJECTED,
		                  "the target does not prove its secret, which is asked for");
	if (rc < 0)
		end_queue(l, err.msg, clock_boottime_ns());
	else if (got.authentication)
		nvmf_proof_ask(l->proof, NULL);
	else
		ready(l);
}

static void join(struct nvmf_lane *l, uint64_t now_ns)
{
	int rc = nvmf_lane_connect_data(l->ctrl, &l->connect_data);

	l->state = LANE_JOINING;
	l->join = (struct nvmf_req){
		.dir = NVMF_TO_TARGET,
		.buf = &l->connect_data,
		.len = sizeof(l->connect_data),
		.timeout_ns =
			NS_PER_MS * nvmf_admin_config(l->er->engine->admin)->command_timeout_ms,
		.done = on_joined};
	nvme_cmd_connect(&l->join.sqe, l->qid, l->live.depth + 1, 0, 0);
	if (rc == 0)
		rc = l->ops->submit(l->q, &l->join);
	if (rc == 0)
		rc = l->ops->kick(l->q, now_ns);
	if (rc < 0)
		end_queue(l, "Connect was not handed on", now_ns);
}

/* ---- what happens to it ---- */

static void look_at_queue(struct nvmf_lane *l, uint64_t now_ns)
{
	if (!l->q)
		return;
	if (l->ops->state(l->q) == NVMF_QUEUE_FAILED) {
		char why[NVMF_FAULT_WORDS];

		snprintf(why, sizeof(why), "%s", l->ops->fault(l->q));
		end_queue(l, why, now_ns);
	} else if (l->state == LANE_CONNECTING && l->ops->state(l->q) == NVMF_QUEUE_READY) {
		join(l, now_ns);
	}
	settle(l);
}

void nvmf_lane_event(struct nvmf_lane *l, uint64_t now_ns)
{
	if (!l->q)
		return;
	l->ops->poll(l->q, NVMF_LANE_POLL_MAX, now_ns);
	look_at_queue(l, now_ns);
	if (!list_empty(&l->waiting) || !list_empty(&l->again))
		nvmf_lane_heat(l);
}

void nvmf_lane_look(struct nvmf_lane *l, uint64_t now_ns)
{
	struct nvmf_view v = nvmf_ctrl_view(l->ctrl);

	if (l->q && (v.state != NVMF_CTRL_LIVE || v.generation != l->generation)) {
		end_queue(l, "the controller is lost", now_ns);
		settle(l);
	}
	authenticate(l, now_ns);
	settle(l);
	nvmf_lane_quiet(l);
	if (v.state == NVMF_CTRL_SHUTDOWN && !l->n_ios && !l->q)
		nvmf_lane_free(l);
	else if (l->n_ios)
		nvmf_lane_heat(l);
}

void nvmf_lane_tick(struct nvmf_lane *l, uint64_t now_ns)
{
	if (l->q) {
		l->still = l->ops->in_flight(l->q) ? l->still + 1 : 0;
		l->ops->tick(l->q, now_ns);
		look_at_queue(l, now_ns);
	}
	nvmf_lane_quiet(l);
	nvmf_lane_expire(l, now_ns);
	/* What was given back waits for this word. */
	l->given_up |= nvmf_lane_holds(l) && l->state != LANE_READY &&
	               now_ns >= l->waits_since_ns + nvmf_lane_patience_ns(l);
	if (nvmf_ctrl_view(l->ctrl).state == NVMF_CTRL_SHUTDOWN)
		nvmf_lane_look(l, now_ns);
	else if (l->n_ios)
		nvmf_lane_heat(l);
}

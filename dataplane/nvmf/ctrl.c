/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a controller (ctrl.h has the diagram), run by the admin thread: one short function
 * for each, a deadline for each that waits. What goes wrong is noted as a fault, with words, and
 * judged here, in one place.
 */
#define LOG_COMPONENT "nvmf"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/log.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define POLL_MAX       64u
#define CQT_MIN_MS     10000u
#define BACKOFF_SHIFTS 10u

const char *nvmf_ctrl_state_to_str(enum nvmf_ctrl_state s)
{
	static const char *const names[] = {[NVMF_CTRL_CONNECTING] = "CONNECTING",
	                                    [NVMF_CTRL_LIVE] = "LIVE",
	                                    [NVMF_CTRL_LOST] = "LOST",
	                                    [NVMF_CTRL_QUIESCING] = "QUIESCING",
	                                    [NVMF_CTRL_BACKOFF] = "BACKOFF",
	                                    [NVMF_CTRL_SHUTDOWN] = "SHUTDOWN"};

	return (unsigned)s < ARRAY_SIZE(names) ? names[s] : "UNKNOWN";
}

void nvmf_ctrl_fault(struct nvmf_ctrl *c, const char *fmt, ...)
{
	va_list ap;

	if (c->fault)
		return;
	c->fault = true;
	va_start(ap, fmt);
	vsnprintf(c->fault_words, sizeof(c->fault_words), fmt, ap);
	va_end(ap);
}

void nvmf_ctrl_drop_queue(struct nvmf_ctrl *c)
{
	c->program = NULL;
	/* Commands come back in it, and find no queue. */
	if (c->q)
		c->admin->queue->free(TAKE_PTR(c->q));
	nvmf_login_end(&c->login);
	c->readable = c->kick = c->busy = c->alive_busy = c->event_busy = false;
}

static void enter(struct nvmf_ctrl *c, enum nvmf_ctrl_state s)
{
	log_debug("engine %s, tenant %s: %s -> %s", c->admin->engine, c->name,
	          nvmf_ctrl_state_to_str(c->state), nvmf_ctrl_state_to_str(s));
	c->state = s;
	c->state_until_ns = UINT64_MAX;
	c->wake_at_ns = 0;
	/* Sequentially consistent, as the count of queues: a reactor that begins one either sees
	 * this or is seen. */
	atomic_store(&c->view, (uint64_t)c->generation << 8 | s);
	nvmf_admin_wake_ports(c->admin);
}

/* Takes the fault's words for whoever asks; wakes those who wait. */
static void tell(struct nvmf_ctrl *c, bool failed)
{
	pthread_mutex_lock(&c->admin->lock);
	if (failed) {
		snprintf(c->words, sizeof(c->words), "%s", c->fault_words);
		c->attempts++;
	}
	pthread_cond_broadcast(&c->admin->changed);
	pthread_mutex_unlock(&c->admin->lock);
}

static uint64_t jitter(uint64_t ns)
{
	return ns - ns / 4 + (ns / 2 / 1000 + 1) * (crypto_random_u32() % 1000);
}

static void back_off(struct nvmf_ctrl *c, uint64_t now_ns)
{
	uint32_t shift = MIN(c->failures, BACKOFF_SHIFTS);
	uint64_t ns = MIN(c->admin->backoff_min_ns << shift, c->admin->backoff_max_ns);

	nvmf_ctrl_drop_queue(c);
	c->fault = false;
	c->failures++;
	enter(c, NVMF_CTRL_BACKOFF);
	c->state_until_ns = now_ns + jitter(ns);
}

/* Nobody uses it, and from now on nobody can find it. */
static bool unused(struct nvmf_ctrl *c, uint64_t now_ns)
{
	bool yes;

	pthread_mutex_lock(&c->admin->lock);
	yes = c->refs == 0 && (now_ns >= c->linger_ns || atomic_load(&c->admin->ending));
	if (c->refs == 0 && !yes)
		c->wake_at_ns = MIN(c->wake_at_ns, c->linger_ns);
	if (yes)
		c->state = NVMF_CTRL_SHUTDOWN;
	if (yes)
		atomic_store(&c->view, (uint64_t)c->generation << 8 | NVMF_CTRL_SHUTDOWN);
	pthread_mutex_unlock(&c->admin->lock);
	return yes;
}

static bool shutting(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (!unused(c, now_ns))
		return false;
	enter(c, NVMF_CTRL_SHUTDOWN);
	c->state_until_ns = now_ns + NVMF_SHUTDOWN_MS * NS_PER_MS;
	return true;
}

/* ---- CONNECTING ---- */

static void open_queue(struct nvmf_ctrl *c, uint64_t now_ns)
{
	const struct nvmf_config *k = &c->admin->config;
	struct nvmf_queue_opts o = {.peer = &c->admin->peer.sa,
	                            .qid = 0,
	                            .cntlid = NVME_CNTLID_DYNAMIC,
	                            .depth = NVMF_ADMIN_DEPTH,
	                            .transfer_max = 4096,
	                            .header_digest = k->header_digest,
	                            .data_digest = k->data_digest,
	                            .keys_per_command = k->keys_per_command,
	                            .remote_invalidate = nvmf_peer_invalidates(c->pd),
	                            .pd = c->pd,
	                            .epoll_fd = c->admin->epoll_fd,
	                            .epoll_word = c->index,
	                            .connect_timeout_ns = k->command_timeout_ms * NS_PER_MS,
	                            .now_ns = now_ns};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = c->admin->queue->open(&o, &c->q, &err);

	if (rc < 0)
		nvmf_ctrl_fault(c, "cannot connect: %s", err.msg[0] ? err.msg : strerror(-rc));
}

static void live(struct nvmf_ctrl *c, uint64_t now_ns)
{
	nvmf_fences_trim(c);
	c->program = NULL;
	c->generation++;
	c->failures = 0;
	atomic_store(&c->qids, 0);
	atomic_store(&c->write_cache, c->live.write_cache);
	atomic_store(&c->since_ns, now_ns);
	atomic_fetch_add(&c->lives, 1);
	nvmf_events_begin(c, now_ns);
	enter(c, NVMF_CTRL_LIVE);
	log_info("engine %s, tenant %s: controller %u is live", c->admin->engine, c->name,
	         c->cntlid);
	tell(c, false);
}

static void run_connecting(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (!c->q && !c->fault) {
		for (uint32_t i = 0; i < c->n_ns; i++)
			c->ns[i].stale = true;
		open_queue(c, now_ns);
	}
	if (!c->fault && !c->program && c->admin->queue->state(c->q) == NVMF_QUEUE_READY)
		nvmf_steps_begin(c, nvmf_program_setup);
	if (!c->fault)
		nvmf_steps_run(c, now_ns);
	if (c->fault) {
		if (c->failures == 0)
			log_warn("engine %s, tenant %s: %s", c->admin->engine, c->name,
			         c->fault_words);
		back_off(c, now_ns);
		tell(c, true);
	} else if (c->program && !*c->program && atomic_load(&c->n_queues) == 0) {
		live(c, now_ns);
	} else if (shutting(c, now_ns)) {
		nvmf_ctrl_drop_queue(c);
	}
}

/* ---- LIVE, and its end ---- */

static void take_reset(struct nvmf_ctrl *c)
{
	if (atomic_load(&c->reset) != c->generation)
		return;
	pthread_mutex_lock(&c->admin->lock);
	nvmf_ctrl_fault(c, "%s", c->reset_words);
	pthread_mutex_unlock(&c->admin->lock);
}

/* A target that lies each time it is reached is reached ever more seldom: the next wait begins
 * where the one before began, doubled, until it was LIVE for as long as the longest wait is. */
static void count_lie(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (now_ns - atomic_load(&c->since_ns) >= c->admin->backoff_max_ns)
		c->lies = 0;
	c->failures = c->lies;
	if (nvmf_queue_lied(c->fault_words) && c->lies < BACKOFF_SHIFTS)
		c->lies++;
}

static void run_live(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (!c->fault)
		nvmf_events_run(c, now_ns);
	if (!c->fault)
		nvmf_steps_run(c, now_ns);
	if (c->fault) {
		log_warn("engine %s, tenant %s: controller %u is lost: %s", c->admin->engine,
		         c->name, c->cntlid, c->fault_words);
		count_lie(c, now_ns);
		atomic_store(&c->since_ns, now_ns);
		enter(c, NVMF_CTRL_LOST);
		tell(c, true);
		return;
	}
	/* What it still asked, of namespaces, is of no use any more. */
	if (shutting(c, now_ns))
		c->program = NULL;
}

static bool admin_works(const struct nvmf_ctrl *c)
{
	return c->q && c->admin->queue->state(c->q) == NVMF_QUEUE_READY;
}

/* Where traffic counts as a keep alive, the target looks only once in each interval, so the end may
 * come one interval later (Base 3.9.4). */
static uint64_t unasked_ms(const struct nvmf_ctrl *c, uint64_t keep_alive_ms)
{
	return keep_alive_ms * (c->id.traffic_keeps_alive ? 2 : 1) +
	       MAX(c->id.command_quiesce_ms, CQT_MIN_MS);
}

static uint64_t quiesce_ns(const struct nvmf_ctrl *c)
{
	const struct nvmf_config *k = &c->admin->config;

	return (k->quiesce_ms ? k->quiesce_ms : unasked_ms(c, k->keep_alive_ms)) * NS_PER_MS;
}

/* Of who was killed before: what its documents said may be longer than what is said now. */
static uint64_t killed_ns(const struct nvmf_ctrl *c)
{
	const struct nvmf_admin *a = c->admin;
	uint64_t ms = a->unquiet_quiesce_ms;

	if (a->unquiet_keep_alive_ms)
		ms = MAX(ms, unasked_ms(c, a->unquiet_keep_alive_ms));
	return MAX(ms * NS_PER_MS, quiesce_ns(c));
}

static void run_lost(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (atomic_load(&c->n_queues))
		return; /* each reactor tells when its queue has ended */
	enter(c, NVMF_CTRL_QUIESCING);
	c->fault = false;
	c->program = NULL;
	if (!admin_works(c)) {
		nvmf_ctrl_fault(c, "the admin queue is lost");
		return;
	}
	c->state_until_ns =
		now_ns + MIN(c->cap.ready_ms, c->admin->config.command_timeout_ms) * NS_PER_MS;
	nvmf_steps_begin(c, nvmf_program_disable);
}

static void run_quiescing(struct nvmf_ctrl *c, uint64_t now_ns)
{
	uint64_t quiet_at = now_ns;

	if (!c->fault)
		nvmf_steps_run(c, now_ns);
	if (!c->fault && now_ns < c->state_until_ns && *c->program)
		return;
	/* From now on it hears nothing more from this side, so not before does its keep alive run
	 * out. A time that the document says holds even against the target's word: some say
	 * CSTS.RDY = 0 while old writes are still under way (Linux nvmet). */
	if (c->fault || *c->program || c->admin->config.quiesce_ms)
		quiet_at += quiesce_ns(c);
	nvmf_losses_add(c, quiet_at);
	back_off(c, now_ns);
}

static void run_backoff(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (!shutting(c, now_ns) && now_ns >= c->state_until_ns)
		enter(c, NVMF_CTRL_CONNECTING);
}

/* True: over. */
static bool run_shutdown(struct nvmf_ctrl *c, uint64_t now_ns)
{
	if (atomic_load(&c->n_lanes))
		return false;
	if (!c->program && !c->busy && !c->fault && admin_works(c)) {
		c->ready_until_ns = c->state_until_ns;
		nvmf_steps_begin(c, nvmf_program_shutdown);
	}
	if (!c->fault && c->program)
		nvmf_steps_run(c, now_ns);
	/* Busy without a program: the answer to what was asked before is still to come. */
	if ((c->program ? *c->program != NULL : c->busy) && !c->fault && now_ns < c->state_until_ns)
		return false;
	nvmf_ctrl_drop_queue(c);
	return true;
}

static void take_in(struct nvmf_ctrl *c, uint64_t now_ns)
{
	const struct nvmf_queue_ops *ops = c->admin->queue;

	if (!c->q)
		return;
	ops->poll(c->q, POLL_MAX, now_ns);
	c->wake_at_ns = MIN(c->wake_at_ns, ops->tick(c->q, now_ns));
	if (ops->state(c->q) == NVMF_QUEUE_FAILED)
		nvmf_ctrl_fault(c, "admin queue: %s", ops->fault(c->q));
}

static bool run_state(struct nvmf_ctrl *c, uint64_t now_ns)
{
	switch (c->state) {
	case NVMF_CTRL_CONNECTING:
		run_connecting(c, now_ns);
		break;
	case NVMF_CTRL_LIVE:
		take_reset(c);
		run_live(c, now_ns);
		break;
	case NVMF_CTRL_LOST:
		run_lost(c, now_ns);
		break;
	case NVMF_CTRL_QUIESCING:
		run_quiescing(c, now_ns);
		break;
	case NVMF_CTRL_BACKOFF:
		run_backoff(c, now_ns);
		break;
	case NVMF_CTRL_SHUTDOWN:
		return !run_shutdown(c, now_ns);
	}
	return true;
}

/* From the start of this process on: when who was killed before died is not known. */
static void settle(struct nvmf_ctrl *c, uint64_t now_ns)
{
	uint64_t at;

	if (atomic_load(&c->settled) || c->state != NVMF_CTRL_LIVE)
		return;
	at = c->admin->unquiet_since_ns + killed_ns(c);
	if (now_ns < at) {
		c->wake_at_ns = MIN(c->wake_at_ns, at);
		return;
	}
	atomic_store(&c->settled, true);
	nvmf_admin_wake_ports(c->admin);
}

bool nvmf_ctrl_run(struct nvmf_ctrl *c, uint64_t now_ns)
{
	enum nvmf_ctrl_state was;

	c->wake_at_ns = now_ns + NS_PER_S;
	take_in(c, now_ns);
	do {
		was = c->state;
		if (!run_state(c, now_ns))
			return false;
		c->wake_at_ns = c->state == was ? c->wake_at_ns : now_ns + NS_PER_S;
	} while (c->state != was);
	if (nvmf_losses_run(c, now_ns))
		nvmf_admin_wake_ports(c->admin);
	if (c->n_losses)
		c->wake_at_ns = MIN(c->wake_at_ns, c->losses[0].quiet_at_ns);
	/* When that is over, and the state is the same, it waits for a reactor to let go. */
	if (c->state_until_ns > now_ns)
		c->wake_at_ns = MIN(c->wake_at_ns, c->state_until_ns);
	settle(c, now_ns);
	if (c->q && c->kick) {
		c->kick = false;
		if (c->admin->queue->kick(c->q, now_ns) < 0)
			c->wake_at_ns = now_ns;
	}
	return true;
}

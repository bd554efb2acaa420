/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admin commands of a controller, one after the other: a step fills a command and judges its
 * answer, a program is a row of steps. What the target says is checked by codec.h before it is
 * believed; an answer that is not what was expected ends the controller with words.
 */
#define LOG_COMPONENT "nvmf"
#include "common/clock.h"
#include "common/log.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ANOTHER_TOLD_NS NS_PER_S

static int refused(const char *what, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	return ros2_err_set(err, -EPROTO, "the target refuses %s: %s", what,
	                    nvme_status_text(cqe->status >> 1));
}

static bool ok(const struct nvme_cqe *cqe)
{
	return NVME_STATUS_CODE(cqe->status >> 1) == NVME_SC_SUCCESS;
}

static void with_data(struct nvmf_ctrl *c, enum nvmf_dir dir, uint32_t len)
{
	memset(c->data, 0, sizeof(c->data));
	c->req.dir = dir;
	c->req.buf = c->data;
	c->req.len = len;
}

/* ---- Fabrics Connect, enable ---- */

static int fill_connect(struct nvmf_ctrl *c, struct ros2_err *err)
{
	const struct nvmf_config *k = &c->admin->config;

	with_data(c, NVMF_TO_TARGET, sizeof(struct nvme_connect_data));
	nvme_cmd_connect(&c->req.sqe, 0, NVMF_ADMIN_DEPTH + 1, 0, (uint32_t)k->keep_alive_ms);
	return nvme_connect_data_fill((void *)c->data, c->host_id, NVME_CNTLID_DYNAMIC,
	                              k->subsystem, c->host_nqn);
}

/* The files are read each time, so that a new secret counts from the next connection on. */
static int begin_login(struct nvmf_ctrl *c, struct ros2_err *err)
{
	const struct nvmf_admin *a = c->admin;
	int rc = nvmf_secrets_load(&a->config, a->secrets_dir, c->name, &c->secrets, err);

	if (rc < 0)
		return rc;
	return nvmf_login_begin(&c->login, &c->secrets, c->host_nqn, a->config.subsystem, err);
}

static int got_connect(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	struct nvme_connected got;
	char words[120];
	int rc;

	if (!ok(cqe)) {
		nvme_connect_refusal(cqe, words, sizeof(words));
		return ros2_err_set(err, -EACCES, "the target refuses host %.100s: %s", c->host_nqn,
		                    words);
	}
	rc = nvme_connect_parse(cqe, &got, err);
	if (rc < 0)
		return rc;
	c->cntlid = got.cntlid;
	nvmf_secrets_wipe(&c->secrets);
	if (got.authentication)
		return begin_login(c, err);
	if (c->admin->config.target_secret[0])
		return ros2_err_set(err, -EKEYREJECTED,
		                    "the target does not prove its secret, which is asked for");
	return 0;
}

static int fill_login(struct nvmf_ctrl *c, struct ros2_err *err)
{
	return c->login.auth ? nvmf_login_fill(&c->login, &c->req, err) : 1;
}

static int got_login(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	int rc = nvmf_login_got(&c->login, cqe, err);

	return rc < 0 ? rc : STEP_AGAIN;
}

static int fill_cap(struct nvmf_ctrl *c, struct ros2_err *err)
{
	nvme_cmd_property_get(&c->req.sqe, NVME_PROP_CAP);
	return 0;
}

static int got_cap(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	if (!ok(cqe))
		return refused("property CAP", cqe, err);
	return nvme_cap_parse(nvme_property_value(cqe, NVME_PROP_CAP), &c->cap, err);
}

static int fill_enable(struct nvmf_ctrl *c, struct ros2_err *err)
{
	nvme_cmd_property_set(&c->req.sqe, NVME_PROP_CC, c->cap.cc);
	return 0;
}

static int got_cc(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	if (!ok(cqe))
		return refused("property CC", cqe, err);
	c->ready_until_ns = clock_boottime_ns() + c->cap.ready_ms * NS_PER_MS;
	return 0;
}

static int fill_csts(struct nvmf_ctrl *c, struct ros2_err *err)
{
	nvme_cmd_property_get(&c->req.sqe, NVME_PROP_CSTS);
	return 0;
}

static int later(struct nvmf_ctrl *c, const char *what, uint32_t csts, struct ros2_err *err)
{
	if (clock_boottime_ns() < c->ready_until_ns)
		return STEP_LATER;
	return ros2_err_set(err, -ETIMEDOUT,
	                    "the target did not become %s within %u ms: CSTS is 0x%x", what,
	                    c->cap.ready_ms, csts);
}

static int got_csts(const struct nvme_cqe *cqe, uint32_t *ret, struct ros2_err *err)
{
	if (!ok(cqe))
		return refused("property CSTS", cqe, err);
	*ret = (uint32_t)nvme_property_value(cqe, NVME_PROP_CSTS);
	return 0;
}

static int got_ready(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	uint32_t csts = 0;
	int rc = got_csts(cqe, &csts, err);

	if (rc < 0)
		return rc;
	if (csts & NVME_CSTS_CFS)
		return ros2_err_set(err, -EPROTO, "the target reports a fatal state (CSTS 0x%x)",
		                    csts);
	return csts & NVME_CSTS_RDY ? 0 : later(c, "ready", csts, err);
}

/* ---- what it is and what it gives ---- */

static int fill_identify(struct nvmf_ctrl *c, struct ros2_err *err)
{
	with_data(c, NVMF_FROM_TARGET, NVME_IDENTIFY_LEN);
	nvme_cmd_identify(&c->req.sqe, NVME_CNS_CONTROLLER, 0);
	return 0;
}

static int judge_identity(struct nvmf_ctrl *c, struct ros2_err *err)
{
	const struct nvme_controller *id = &c->id;

	if (id->type != NVME_CNTRLTYPE_IO && id->type != NVME_CNTRLTYPE_UNREPORTED)
		return ros2_err_set(err, -EPROTO,
		                    "the target is no I/O controller (type %d): is the subsystem "
		                    "right?",
		                    (int)id->type);
	if (c->admin->config.transport == NVMF_RDMA && !id->sgl_keyed)
		return ros2_err_set(err, -EPROTO, "the target takes no keyed SGL");
	if (id->max_transfer < 4096)
		return ros2_err_set(
			err, -EPROTO,
			"target sent MDTS: expected at least 4096 bytes, found %" PRIu64,
			id->max_transfer);
	return 0;
}

static int got_identify(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	const struct nvmf_config *k = &c->admin->config;
	struct nvmf_live *l = &c->live;
	int rc;

	if (!ok(cqe))
		return refused("Identify Controller", cqe, err);
	rc = nvme_controller_parse(c->data, c->cntlid, k->subsystem, c->cap.page_size_min, &c->id,
	                           err);
	if (rc == 0)
		rc = judge_identity(c, err);
	if (rc < 0)
		return rc;
	l->cntlid = c->cntlid;
	l->depth = MIN(k->queue_depth, c->cap.entries_max - 1);
	if (c->id.max_commands)
		l->depth = MIN(l->depth, c->id.max_commands);
	if (l->depth < 2)
		return ros2_err_set(
			err, -EPROTO,
			"target sent MQES and MAXCMD: expected room for 2 commands in a "
			"queue, found %u",
			l->depth);
	l->transfer_max = (uint32_t)MIN(c->id.max_transfer, (uint64_t)1 << 20) & ~4095u;
	l->in_capsule_max = c->id.in_capsule_offset ? 0 : c->id.in_capsule_bytes;
	/* MDTS is not said to hold for it, but a target that tells no limit is not tempted. */
	l->zeroes_max = c->id.has_write_zeroes ? l->transfer_max : 0;
	l->discard_blocks_max = c->id.has_dsm ? UINT64_MAX : 0;
	l->write_cache = c->id.volatile_write_cache;
	return 0;
}

/* The target refuses it for good. */
static bool not_known(const struct nvme_cqe *cqe)
{
	uint16_t status = cqe->status >> 1;

	return status & NVME_STATUS_DNR || NVME_STATUS_CODE(status) == NVME_SC_INVALID_FIELD ||
	       NVME_STATUS_CODE(status) == NVME_SC_INVALID_OPCODE;
}

static int fill_limits(struct nvmf_ctrl *c, struct ros2_err *err)
{
	if (!c->id.has_write_zeroes && !c->id.has_dsm)
		return 1;
	with_data(c, NVMF_FROM_TARGET, NVME_IDENTIFY_LEN);
	nvme_cmd_identify(&c->req.sqe, NVME_CNS_COMMAND_SET, 0);
	return 0;
}

/* Targets before 2.0 do not know it: they tell no limits. But one that failed to tell them this
 * time is asked again, like in everything else. */
static int got_limits(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	struct nvme_clear_limits limits;

	if (!ok(cqe))
		return not_known(cqe) ? 0 : refused("Identify, command set", cqe, err);
	nvme_clear_limits_parse(c->data, c->cap.page_size_min, &limits);
	if (c->id.has_write_zeroes && limits.zeroes_bytes != UINT64_MAX)
		c->live.zeroes_max = limits.zeroes_bytes;
	c->live.discard_blocks_max = MIN(c->live.discard_blocks_max, limits.discard_blocks);
	return 0;
}

static int fill_queues(struct nvmf_ctrl *c, struct ros2_err *err)
{
	nvme_cmd_set_feature(&c->req.sqe, NVME_FEAT_QUEUES, nvme_queues_value(NVMF_QUEUES_MAX));
	return 0;
}

static int got_queues(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	if (!ok(cqe))
		return refused("I/O queues", cqe, err);
	c->queues_given = MIN(nvme_queues_given(cqe), NVMF_QUEUES_MAX);
	return 0;
}

static int fill_events(struct nvmf_ctrl *c, struct ros2_err *err)
{
	if (!(c->id.events & NVME_AEC_NS_ATTRIBUTE))
		return 1;
	nvme_cmd_set_feature(&c->req.sqe, NVME_FEAT_ASYNC_EVENTS, NVME_AEC_NS_ATTRIBUTE);
	return 0;
}

/* A target that does not tell changes is used as it was identified. */
static int got_events(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	return 0;
}

/* ---- namespaces ---- */

static int fill_namespace(struct nvmf_ctrl *c, struct ros2_err *err)
{
	while (c->cursor < c->n_ns && !c->ns[c->cursor].stale)
		c->cursor++;
	if (c->cursor == c->n_ns)
		return 1;
	with_data(c, NVMF_FROM_TARGET, NVME_IDENTIFY_LEN);
	nvme_cmd_identify(&c->req.sqe,
	                  c->found.blocks ? NVME_CNS_NS_DESCRIPTORS : NVME_CNS_NAMESPACE,
	                  c->ns[c->cursor].nsid);
	return 0;
}

static int identified(struct nvmf_ns_state *ns, uint64_t geometry)
{
	ns->stale = false;
	atomic_store_explicit(&ns->geometry, geometry, memory_order_release);
	return STEP_AGAIN;
}

/* The target chooses how often, so it is not told each time. */
static void another(struct nvmf_ctrl *c, struct nvmf_ns_state *ns)
{
	uint64_t now_ns = clock_boottime_ns();

	atomic_fetch_add(&ns->life, 1);
	if (now_ns < c->another_told_ns)
		return;
	c->another_told_ns = now_ns + ANOTHER_TOLD_NS;
	log_warn("engine %s, tenant %s: namespace %u is another one than before: what was opened "
	         "in that one ends",
	         c->admin->engine, c->name, ns->nsid);
}

/* A target that does not know such a list, as before 1.3, tells no more than it has told. One that
 * has no such namespace any more tells that, too, by an event. */
static int got_descriptors(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	struct nvmf_ns_state *ns = &c->ns[c->cursor];
	struct nvme_namespace found = c->found;
	int rc;

	c->found = (struct nvme_namespace){0};
	if (ok(cqe)) {
		rc = nvme_ns_ids_parse(c->data, &found.ids, err);
		if (rc < 0)
			return rc;
	} else if (NVME_STATUS_CODE(cqe->status >> 1) == NVME_SC_INVALID_NAMESPACE) {
		return identified(ns, 0);
	} else if (!not_known(cqe)) {
		return refused("Identify, namespace descriptors", cqe, err);
	}
	if (ns->known && memcmp(&ns->ids, &found.ids, sizeof(ns->ids)) != 0)
		another(c, ns);
	ns->known = true;
	ns->ids = found.ids;
	return identified(ns, (uint64_t)found.block_shift << 56 | found.blocks);
}

static int got_namespace(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	struct nvmf_ns_state *ns = &c->ns[c->cursor];
	struct nvme_namespace got;
	int rc = 0;

	if (c->found.blocks)
		return got_descriptors(c, cqe, err);
	if (ok(cqe))
		rc = nvme_namespace_parse(c->data, &got, err);
	else if (NVME_STATUS_CODE(cqe->status >> 1) == NVME_SC_INVALID_NAMESPACE)
		rc = -ENOENT;
	else
		return refused("Identify Namespace", cqe, err);
	if (rc == 0 && (c->live.transfer_max >> got.block_shift) == 0)
		rc = -EOPNOTSUPP;
	if (rc == -ENOENT || rc == -EOPNOTSUPP)
		return identified(ns, rc == -ENOENT ? 0 : NVMF_GEOMETRY_UNUSABLE);
	if (rc < 0)
		return rc;
	c->found = got;
	return STEP_AGAIN;
}

static int fill_changed(struct nvmf_ctrl *c, struct ros2_err *err)
{
	with_data(c, NVMF_FROM_TARGET, NVME_IDENTIFY_LEN);
	nvme_cmd_get_log(&c->req.sqe, NVME_LOG_CHANGED_NAMESPACES, 0, NVME_IDENTIFY_LEN, false);
	return 0;
}

/* Linux nvmet lists them in the order in which they changed, where the list should rise. Whatever
 * is wrong with it, it says that something changed: then all are looked at. */
static int got_changed(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	uint32_t ids[NVME_NS_LIST_MAX], n = 0;
	bool all = false;

	if (!ok(cqe))
		return refused("the log of changed namespaces", cqe, err);
	if (nvme_ns_list_parse(c->data, 0, ids, &n, &all, NULL) < 0)
		all = true;
	for (uint32_t i = 0; i < c->n_ns; i++) {
		c->ns[i].stale |= all;
		for (uint32_t k = 0; k < n; k++)
			c->ns[i].stale |= ids[k] == c->ns[i].nsid;
	}
	return 0;
}

/* ---- the end ---- */

static int fill_disable(struct nvmf_ctrl *c, struct ros2_err *err)
{
	nvme_cmd_property_set(&c->req.sqe, NVME_PROP_CC, c->cap.cc & ~(uint64_t)NVME_CC_EN);
	return 0;
}

static int got_stopped(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	uint32_t csts = 0;
	int rc = got_csts(cqe, &csts, err);

	if (rc < 0)
		return rc;
	return csts & NVME_CSTS_RDY ? later(c, "disabled", csts, err) : 0;
}

static int fill_shutdown(struct nvmf_ctrl *c, struct ros2_err *err)
{
	nvme_cmd_property_set(&c->req.sqe, NVME_PROP_CC, c->cap.cc | NVME_CC_SHN_NORMAL);
	return 0;
}

static int got_shut(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err)
{
	uint32_t csts = 0;
	int rc = got_csts(cqe, &csts, err);

	if (rc < 0)
		return rc;
	return NVME_CSTS_SHST(csts) == NVME_SHST_DONE ? 0 : later(c, "shut down", csts, err);
}

static const struct nvmf_step connect_ = {"Connect", fill_connect, got_connect},
			      login = {"Authentication", fill_login, got_login},
			      cap = {"CAP", fill_cap, got_cap},
			      enable = {"CC.EN = 1", fill_enable, got_cc},
			      ready = {"CSTS.RDY = 1", fill_csts, got_ready},
			      identify = {"Identify Controller", fill_identify, got_identify},
			      queues = {"Set Features, queues", fill_queues, got_queues},
			      events = {"Set Features, events", fill_events, got_events},
			      names = {"Identify Namespace", fill_namespace, got_namespace},
			      limits = {"Identify, command set", fill_limits, got_limits},
			      changed = {"changed namespaces", fill_changed, got_changed},
			      disable = {"CC.EN = 0", fill_disable, got_cc},
			      stopped = {"CSTS.RDY = 0", fill_csts, got_stopped},
			      shut = {"CC.SHN", fill_shutdown, got_cc},
			      shut_done = {"CSTS.SHST", fill_csts, got_shut};

const struct nvmf_step *const nvmf_program_setup[] = {&connect_, &login,    &cap,    &enable,
                                                      &ready,    &identify, &queues, &events,
                                                      &names,    &limits,   NULL};
const struct nvmf_step *const nvmf_program_rescan[] = {&changed, &names, NULL};
const struct nvmf_step *const nvmf_program_disable[] = {&disable, &stopped, NULL};
const struct nvmf_step *const nvmf_program_shutdown[] = {&shut, &shut_done, NULL};

/* ---- one after the other ---- */

static void unanswered(struct nvmf_ctrl *c, const char *name)
{
	const char *why;

	if (!c->q)
		return; /* this side has given the queue up, with all that was in it */
	why = c->admin->queue->fault(c->q);
	nvmf_ctrl_fault(c, "%s%s%s", name, why[0] ? ": " : "", why);
}

static void on_answer(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct nvmf_ctrl *c = container_of(req, struct nvmf_ctrl, req);
	struct ros2_err err = ROS2_ERR_INIT;
	const char *name;

	c->busy = false;
	if (!c->program || *c->program != c->asked)
		return; /* of a program that was given up */
	name = (*c->program)->name;
	if (rc < 0) {
		unanswered(c, name);
		return;
	}
	rc = (*c->program)->got(c, cqe, &err);
	if (rc < 0)
		nvmf_ctrl_fault(c, "%s: %s", name, err.msg);
	else if (rc == STEP_LATER)
		c->again_at_ns = clock_boottime_ns() + NVMF_POLL_READY_MS * NS_PER_MS;
	else if (rc == 0)
		c->program++;
}

void nvmf_steps_begin(struct nvmf_ctrl *c, const struct nvmf_step *const *program)
{
	c->program = program;
	c->cursor = 0;
	c->found = (struct nvme_namespace){0};
	c->again_at_ns = 0;
}

void nvmf_steps_run(struct nvmf_ctrl *c, uint64_t now_ns)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = 1;

	if (!c->program || c->busy || c->fault)
		return;
	if (now_ns < c->again_at_ns) {
		c->wake_at_ns = MIN(c->wake_at_ns, c->again_at_ns);
		return;
	}
	while (*c->program && rc == 1) {
		c->req = (struct nvmf_req){.done = on_answer, .dir = NVMF_NO_DATA};
		c->req.timeout_ns = c->admin->config.command_timeout_ms * NS_PER_MS;
		rc = (*c->program)->fill(c, &err);
		c->program += rc == 1;
	}
	if (rc == 1)
		return;
	if (rc == 0)
		rc = c->admin->queue->submit(c->q, &c->req);
	if (rc < 0) {
		nvmf_ctrl_fault(c, "%s: not handed on: %s", (*c->program)->name, strerror(-rc));
		return;
	}
	c->asked = *c->program;
	c->busy = c->kick = true;
}

/* ---- keep alive, events ---- */

static void on_alive(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct nvmf_ctrl *c = container_of(req, struct nvmf_ctrl, alive);

	c->alive_busy = false;
	if (rc < 0)
		unanswered(c, "Keep Alive");
	else if (!ok(cqe))
		nvmf_ctrl_fault(c, "the target refuses Keep Alive: %s",
		                nvme_status_text(cqe->status >> 1));
}

static void on_event(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct nvmf_ctrl *c = container_of(req, struct nvmf_ctrl, event);
	struct nvme_event ev;

	c->event_busy = false;
	if (rc < 0)
		return; /* the queue is dead, which is told elsewhere */
	c->event_at_ns = clock_boottime_ns() + NVMF_EVENT_GAP_MS * NS_PER_MS;
	if (!ok(cqe)) {
		/* It takes none: changes are seen when commands fail. */
		c->event_off = true;
		return;
	}
	nvme_event_parse(cqe, &ev);
	c->rescan |= ev.type == NVME_EVENT_NOTICE && ev.info == NVME_NOTICE_NS_ATTRIBUTE;
}

void nvmf_events_begin(struct nvmf_ctrl *c, uint64_t now_ns)
{
	c->alive_at_ns = now_ns + c->admin->config.keep_alive_ms * NS_PER_MS / 2;
	c->event_at_ns = 0;
	c->event_off = c->rescan = false;
}

static void hand_on(struct nvmf_ctrl *c, struct nvmf_req *req, bool *busy, const char *name)
{
	int rc = c->admin->queue->submit(c->q, req);

	if (rc < 0) {
		nvmf_ctrl_fault(c, "%s: not handed on: %s", name, strerror(-rc));
		return;
	}
	*busy = c->kick = true;
}

void nvmf_events_run(struct nvmf_ctrl *c, uint64_t now_ns)
{
	uint64_t alive_ns = c->admin->config.keep_alive_ms * NS_PER_MS;

	if (!c->alive_busy && now_ns >= c->alive_at_ns) {
		c->alive = (struct nvmf_req){
			.done = on_alive, .dir = NVMF_NO_DATA, .timeout_ns = alive_ns};
		nvme_cmd_keep_alive(&c->alive.sqe);
		c->alive_at_ns = now_ns + alive_ns / 2;
		hand_on(c, &c->alive, &c->alive_busy, "Keep Alive");
	}
	if (c->program && !*c->program)
		c->program = NULL;
	if (c->rescan && !c->program && now_ns >= c->event_at_ns) {
		c->rescan = false;
		nvmf_steps_begin(c, nvmf_program_rescan);
	}
	/* Only when the log was read: until then the target has nothing new to say. */
	if (!c->fault && !c->event_busy && !c->event_off && !c->rescan && !c->program &&
	    now_ns >= c->event_at_ns) {
		c->event = (struct nvmf_req){.done = on_event, .dir = NVMF_NO_DATA};
		nvme_cmd_async_event(&c->event.sqe);
		hand_on(c, &c->event, &c->event_busy, "Asynchronous Event Request");
	}
	/* What is due and cannot be sent waits for the one before, or for its time limit. */
	if (c->alive_at_ns > now_ns)
		c->wake_at_ns = MIN(c->wake_at_ns, c->alive_at_ns);
	if (c->event_at_ns > now_ns)
		c->wake_at_ns = MIN(c->wake_at_ns, c->event_at_ns);
}

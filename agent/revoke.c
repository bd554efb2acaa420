/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Obeying a revocation. At once and side by side: the data plane stops, the state forgets, the
 * tombstone goes to disk. The receipt leaves after both. What an engine still holds is told as
 * `draining`, and a second receipt follows when it is zero. When the disk is full the revocation is
 * carried out all the same and the receipt says `durable: no`; the write is tried again and told by
 * another receipt. Before the first one the stamp is taken out of the contact file, and stays out
 * until all are on disk: a process that starts without the tombstone gives nothing from its
 * snapshot before the controller has sent what it owes (docs/decisions/0009-agent-state.md).
 * One that is not held at all, for want of memory or because too many are under way, is carried out
 * without a receipt. The stamp is taken out for it, too, until it was sent again: a stream ends for
 * that, at once or when there are few.
 *
 * Without memory. The data plane cannot hold it: it freezes, and is asked again each second. There
 * is none for the revocation itself: the stream ends, so that it is sent again. It thaws when
 * nothing of the kind is left: nothing waits to be asked again, and a stream that began after the
 * last one was lost has brought all that the controller owes (initial_done follows the
 * revocations).
 */
#include "agent/health.h"
#include "agent/pending_priv.h"
#include "agent/sessions.h"
#include "agent/test_switches.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "revoke"
#include "common/log.h"

#define PENDING_MAX 4096
#define RETRY_MS    1000
#define LOOK_MS     1000

/* One revocation on its way. Freed when the data plane has drained and the disk has it. */
struct revocation {
	struct list link;
	struct agent *a;
	struct tombstone t;
	uint64_t received_ns;
	struct writer_job job;
	int write_r;
	struct ros2_err write_err;
	uint64_t durable_ns;
	struct writer_job doubt_job;
	uint8_t doubt[CONTACT_FILE_LEN]; /* the contact file without its stamp */
	int doubt_r;
	struct ros2_err doubt_err;
	bool write_done, durable, stopped, drained, receipt_sent;
	bool in_doubt;          /* a process that started now would not know of it */
	bool keys;              /* some are pending */
	bool refused;           /* the data plane could not hold it: asked again */
	struct ros2_uid target; /* how the data plane knows it */
	struct dp_result res;   /* of the data plane's first answer */
	uint32_t draining;
	struct loop_timer retry;
	/* Of a whole agent, while a device has not confirmed: asked for before each receipt. */
	struct pending *pending; /* owned */
	struct loop_timer look;
};

struct revoker {
	struct agent *a;
	struct { /* the log without what is over */
		struct writer_job job;
		bool busy;
		void *p; /* owned */
		size_t len;
		int r;
		struct ros2_err err;
	} fresh;
	struct { /* ahead of the end of the log, for the next ones */
		struct writer_job job;
		bool busy;
		bool never; /* this file system reserves nothing */
		int r;
		struct ros2_err err;
	} room;
	struct { /* carried out, and held nowhere: together one more of n_doubt */
		struct writer_job job;
		uint8_t doubt[CONTACT_FILE_LEN];
		int r;
		struct ros2_err err;
		bool any, busy;
		bool asked;          /* a stream was ended for them */
		bool told;           /* a later stream has brought all that the controller owes */
		uint64_t generation; /* of the last that brought one */
	} unheld;
	struct list pending;
	unsigned n, n_refused, n_doubt;
	bool unstamped; /* the contact file gives nothing, while n_doubt */
	uint64_t total;
	bool lost; /* one could not be held anywhere: it has to come again, on a later stream */
	uint64_t lost_generation;
};

static uint64_t since(const struct revocation *v, uint64_t ns)
{
	return ns > v->received_ns ? ns - v->received_ns : 0;
}

static void one_less_in_doubt(struct revoker *r)
{
	if (--r->n_doubt)
		return;
	r->unstamped = false;
	persist_trust(r->a->persist, DOUBT_REVOCATION);
}

/* ---- held nowhere ---- */

/* Those that found no room here are sent again on the next stream. */
static void ask_unheld(struct revoker *r)
{
	if (!r->unheld.any || r->unheld.asked || r->n > PENDING_MAX / 2)
		return;
	r->unheld.asked = true;
	if (r->unheld.generation == uplink_generation(r->a->uplink))
		uplink_abort(r->a->uplink, ROS2_BUSY, "there is room for revocations again");
}

/* Each is on disk, or in doubt by itself. */
static bool all_tried(const struct revoker *r)
{
	const struct revocation *v;

	list_for_each (&r->pending, v, link)
		if (!v->write_done)
			return false;
	return true;
}

/* They came again. While the stamp is being taken out for them nobody may write one, which would be
 * taken out, too. */
static void unheld_over(struct revoker *r)
{
	if (!r->unheld.any || !r->unheld.told || r->unheld.busy || !all_tried(r))
		return;
	r->unheld.any = false;
	one_less_in_doubt(r);
}

/* ---- what the controller is told ---- */

static void send_receipt(struct revocation *v)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Receipt r = ROS2__V1__RECEIPT__INIT;

	r.revocation_uid = (ProtobufCBinaryData){16, v->t.revocation.b};
	r.durable = v->durable || AGENT_SWITCH(receipt_unwritten);
	r.sessions = v->res.revoke.sessions;
	r.leases = v->res.revoke.leases;
	r.windows = v->res.revoke.windows;
	r.draining = v->draining;
	r.receive_to_last_byte_ns = since(v, v->res.revoke.last_byte_ns);
	r.receive_to_last_engine_ns = since(v, v->res.revoke.last_engine_ns);
	r.receive_to_last_window_ns = since(v, v->res.revoke.last_window_ns);
	r.receive_to_durable_ns = v->durable ? since(v, v->durable_ns) : 0;
	pending_put(v->pending, &r);
	if (v->keys && !r.n_pending)
		r.pending_left_out = 1; /* nobody could be asked whose: somebody's */
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT;
	m.receipt = &r;
	v->receipt_sent = true;
	/* Without a stream: the controller sends the revocation again until it has a receipt. */
	uplink_send(v->a->uplink, &m);
}

static void revocation_free(struct revocation *v)
{
	list_del(&v->link);
	loop_timer_stop(&v->retry);
	loop_timer_stop(&v->look);
	pending_free(v->pending);
	free(v);
}

/* Both have answered, or one of them has news. */
static void progress(struct revocation *v)
{
	struct revoker *r = v->a->revoker;

	if (!v->stopped || !(v->write_done || AGENT_SWITCH(receipt_unwritten)))
		return;
	send_receipt(v);
	if (!v->drained || !v->durable)
		return;
	r->n--;
	revocation_free(v);
	ask_unheld(r);
}

/* ---- whose keys are pending ---- */

static void look(void *arg);

static void look_later(struct revocation *v)
{
	if (!v->a->ended)
		loop_timer_in_ms(v->a->o.loop, &v->look, LOOK_MS, look, v);
}

static void on_pending(void *arg, bool changed)
{
	struct revocation *v = arg;

	look_later(v);
	/* An empty list is no news: the data plane's last answer is on its way. */
	if (!v->receipt_sent || (changed && pending_any(v->pending)))
		progress(v);
}

/* False: there is no memory to ask, or an answer is awaited still. */
static bool ask_pending(struct revocation *v)
{
	if (!v->pending)
		v->pending = pending_new(v->a, clock_boottime_ns(), on_pending, v);
	return v->pending && pending_ask(v->pending) == 0;
}

static void look(void *arg)
{
	struct revocation *v = arg;

	if (!ask_pending(v))
		look_later(v);
}

static void on_stopped(void *arg, const struct dp_result *res)
{
	struct revocation *v = arg;

	if (!v->stopped)
		v->res = *res;
	else
		/* The later answer: times of what drained and of keys that ended meanwhile. */
		v->res.revoke.last_engine_ns =
			MAX(v->res.revoke.last_engine_ns, res->revoke.last_engine_ns);
	v->res.revoke.last_window_ns =
		MAX(v->res.revoke.last_window_ns, res->revoke.last_window_ns);
	v->stopped = true;
	v->draining = res->revoke.draining;
	v->drained = !res->revoke.draining;
	v->keys = res->revoke.keys != 0;
	if (v->keys) {
		if (ask_pending(v))
			return; /* the receipt leaves with the list */
		look_later(v);
	} else {
		loop_timer_stop(&v->look);
		pending_free(TAKE_PTR(v->pending));
	}
	progress(v);
}

static void write_work(struct writer_job *j)
{
	struct revocation *v = container_of(j, struct revocation, job);

	v->write_err = (struct ros2_err)ROS2_ERR_INIT;
	v->write_r = revlog_write(v->a->revlog, &v->t, &v->write_err);
	v->durable_ns = clock_boottime_ns();
}

static void write_again(void *arg)
{
	struct revocation *v = arg;

	writer_submit(v->a->revoke_writer, &v->job);
}

static void write_later(struct revocation *v)
{
	if (!v->a->stopping)
		loop_timer_in_ms(v->a->o.loop, &v->retry, RETRY_MS, write_again, v);
}

/* The receipt may say that it is not on disk. */
static void unwritten(struct revocation *v)
{
	bool first = !v->write_done;

	v->write_done = true;
	if (first)
		progress(v);
	unheld_over(v->a->revoker);
}

static void doubt_work(struct writer_job *j)
{
	struct revocation *v = container_of(j, struct revocation, doubt_job);

	v->doubt_err = (struct ros2_err)ROS2_ERR_INIT;
	v->doubt_r = persist_unstamp(v->a->persist, v->doubt, &v->doubt_err);
}

static void doubt_done(struct writer_job *j)
{
	struct revocation *v = container_of(j, struct revocation, doubt_job);

	v->a->revoker->unstamped |= v->doubt_r == 0;
	if (v->doubt_r < 0)
		log_error("%s: a restart before the controller answers may give it back",
		          v->doubt_err.msg);
	unwritten(v);
	write_later(v);
}

/* By the writer of the contact file, behind what it has to write there. When that has ended there
 * is no other thread. */
static void unstamp(struct agent *a, struct writer_job *j)
{
	if (!a->ended) {
		writer_submit(a->disk_writer, j);
		return;
	}
	j->work(j);
	j->done(j);
}

/* It is in memory only: what is on disk must not give anything without the controller. */
static void doubt(struct revocation *v)
{
	struct revoker *r = v->a->revoker;

	r->n_doubt += !v->in_doubt;
	v->in_doubt = true;
	if (r->unstamped || AGENT_SWITCH(contact_kept)) {
		unwritten(v);
		write_later(v);
		return;
	}
	persist_distrust(v->a->persist, v->doubt);
	unstamp(v->a, &v->doubt_job);
}

static void doubt_over(struct revocation *v)
{
	if (!v->in_doubt)
		return;
	v->in_doubt = false;
	one_less_in_doubt(v->a->revoker);
}

static void write_done(struct writer_job *j)
{
	struct revocation *v = container_of(j, struct revocation, job);
	struct revoker *r = v->a->revoker;

	v->durable = v->write_r == 0;
	health_wrote(v->a->health, HEALTH_REVOCATIONS, v->write_r, &v->write_err);
	if (v->durable) {
		v->write_done = true;
		doubt_over(v);
		progress(v);
		unheld_over(r);
		return;
	}
	log_error("revocation carried out, but not on disk: %s", v->write_err.msg);
	if (v->write_r != -EIO) {
		doubt(v);
		return;
	}
	agent_fatal(v->a, &v->write_err);
}

/* ---- room for the next ones ---- */

static void room_work(struct writer_job *j)
{
	struct revoker *r = container_of(j, struct revoker, room.job);

	r->room.err = (struct ros2_err)ROS2_ERR_INIT;
	r->room.r = revlog_reserve(r->a->revlog, &r->room.err);
}

static void room_done(struct writer_job *j)
{
	struct revoker *r = container_of(j, struct revoker, room.job);

	r->room.busy = false;
	r->room.never = r->room.r == -EOPNOTSUPP;
	if (r->room.never)
		log_warn("%s: on a full disk they are carried out, but not on disk",
		         r->room.err.msg);
	else
		health_wrote(r->a->health, HEALTH_RESERVE, r->room.r, &r->room.err);
}

void revoker_keep_room(struct revoker *r)
{
	if (r->room.busy || r->room.never || r->a->ended)
		return;
	r->room.busy = true;
	writer_submit(r->a->revoke_writer, &r->room.job);
}

/* ---- leaving out what is over ---- */

static void fresh_work(struct writer_job *j)
{
	struct revoker *r = container_of(j, struct revoker, fresh.job);

	r->fresh.err = (struct ros2_err)ROS2_ERR_INIT;
	r->fresh.r = revlog_replace(r->a->revlog, r->fresh.p, r->fresh.len, &r->fresh.err);
}

static void fresh_done(struct writer_job *j)
{
	struct revoker *r = container_of(j, struct revoker, fresh.job);

	r->fresh.busy = false;
	free(TAKE_PTR(r->fresh.p));
	if (r->fresh.r == -EIO)
		agent_fatal(r->a, &r->fresh.err);
	else if (r->fresh.r < 0)
		log_warn("revocations: %s: they stay as they are", r->fresh.err.msg);
}

/* Appends that are on their way go before it or after it; either way they are in the file. */
static void leave_out(struct revoker *r)
{
	struct agent *a = r->a;
	struct clock_stamp now = {.boottime_ns = clock_boottime_ns()};

	memcpy(now.boot_id, a->contact.boot_id, 16);
	if (r->fresh.busy || a->ended ||
	    revlog_compact(a->revlog, &now, a->o.revlog_compact_bytes, &r->fresh.p,
	                   &r->fresh.len) <= 0)
		return;
	r->fresh.busy = true;
	writer_submit(a->revoke_writer, &r->fresh.job);
}

static enum dp_scope scope_of(enum obj_kind k)
{
	switch (k) {
	case OBJ_TENANT:
		return DP_SCOPE_TENANT;
	case OBJ_GRANT:
		return DP_SCOPE_GRANT;
	case OBJ_SESSION:
		return DP_SCOPE_SESSION;
	default:
		return DP_SCOPE_ALL;
	}
}

static int decode(struct agent *a, const Ros2__V1__Revoke *m, struct tombstone *t,
                  struct ros2_err *err)
{
	*t = (struct tombstone){.kind = (enum obj_kind)m->kind,
	                        .version = m->version,
	                        .received_unix_ns = clock_unix_ns(),
	                        .received.boottime_ns = clock_boottime_ns(),
	                        .snapshot_sequence = persist_sequence(a->persist),
	                        .counter = a->last_counter,
	                        .batch = a->last_batch};
	if (ros2_uid_from_bytes(m->revocation_uid.data, m->revocation_uid.len, &t->revocation) <
	            0 ||
	    ros2_uid_from_bytes(m->uid.data, m->uid.len, &t->uid) < 0)
		return ros2_err_named(err, ROS2_PROTOCOL, "a revocation without uids");
	if (t->kind != OBJ_TENANT && t->kind != OBJ_GRANT && t->kind != OBJ_SESSION &&
	    t->kind != OBJ_AGENT)
		return ros2_err_named(err, ROS2_PROTOCOL, "a revocation of kind %d", (int)m->kind);
	memcpy(t->received.boot_id, a->contact.boot_id, 16);
	snprintf(t->reason, sizeof(t->reason), "%s", m->reason);
	return 0;
}

static void ignore(void *arg, const struct dp_result *res)
{
}

/* Sent again while the first is on its way: that one answers, or answers again. */
static bool repeat(struct revoker *r, const struct ros2_uid *revocation)
{
	struct revocation *v;

	list_for_each (&r->pending, v, link) {
		if (!ros2_uid_eq(&v->t.revocation, revocation))
			continue;
		if (v->receipt_sent)
			send_receipt(v);
		return true;
	}
	return false;
}

/* Sent again after the tenant was reinstated, or one of a whole agent after it was carried out:
 * only grants from before are meant, and the state ends those. The data plane knows no before: it
 * would withdraw what was given since, which the state would go on handing out. */
static bool is_superseded(const struct agent *a, const struct tombstone *t, bool known)
{
	struct state_tenant now;

	if (t->kind == OBJ_AGENT)
		return known;
	return t->kind == OBJ_TENANT && !state_tenant_get(a->state, &t->uid, &now) &&
	       !now.revoked && now.version > t->version;
}

static int ask_data_plane(struct revocation *v)
{
	return dp_revoke(v->a->dp, scope_of(v->t.kind), &v->target, v->received_ns, ROS2_REVOKED,
	                 on_stopped, v);
}

static void stop_data_plane(struct revocation *v, bool known)
{
	struct agent *a = v->a;
	struct tombstone *t = &v->t;

	if (is_superseded(a, t, known)) {
		v->stopped = v->drained = true;
		return;
	}
	if (ask_data_plane(v) < 0) {
		v->refused = true;
		a->revoker->n_refused++;
		log_error("revocation: no memory in the data plane: it is frozen");
	}
	if (t->kind == OBJ_TENANT)
		state_dp_withdrawn(a->state, &t->uid);
	sessions_on_revoke(a->sessions, t);
}

/* ---- one that cannot be held ---- */

static void unheld_work(struct writer_job *j)
{
	struct revoker *r = container_of(j, struct revoker, unheld.job);

	r->unheld.err = (struct ros2_err)ROS2_ERR_INIT;
	r->unheld.r = persist_unstamp(r->a->persist, r->unheld.doubt, &r->unheld.err);
}

static void unheld_done(struct writer_job *j)
{
	struct revoker *r = container_of(j, struct revoker, unheld.job);

	r->unheld.busy = false;
	r->unstamped |= r->unheld.r == 0;
	if (r->unheld.r < 0)
		log_error("%s: a restart before the controller answers may give it back",
		          r->unheld.err.msg);
	unheld_over(r);
}

static void unheld(struct revoker *r)
{
	r->n_doubt += !r->unheld.any;
	r->unheld.any = true;
	r->unheld.asked = r->unheld.told = false;
	r->unheld.generation = uplink_generation(r->a->uplink);
	if (r->unstamped || r->unheld.busy || AGENT_SWITCH(contact_kept))
		return;
	r->unheld.busy = true;
	persist_distrust(r->a->persist, r->unheld.doubt);
	unstamp(r->a, &r->unheld.job);
}

/* As far as that needs no memory. */
static int end_unheld(struct agent *a, const struct tombstone *t, const struct ros2_uid *target,
                      uint64_t received_ns)
{
	int r = dp_revoke(a->dp, scope_of(t->kind), target, received_ns, ROS2_REVOKED, ignore,
	                  NULL);

	if (t->kind == OBJ_TENANT)
		state_dp_withdrawn(a->state, &t->uid);
	sessions_on_revoke(a->sessions, t);
	return r;
}

/* Effective without a record of its own; no receipt, so it is sent again. */
static void carry_out_unheld(struct agent *a, const struct tombstone *t,
                             const struct ros2_uid *target, uint64_t received_ns, bool known)
{
	struct revoker *r = a->revoker;
	bool lost = !is_superseded(a, t, known) && end_unheld(a, t, target, received_ns) < 0;

	/* Also of one that was overtaken by a reinstatement: the grants from before it. */
	if (t->kind != OBJ_AGENT || !known)
		state_obey_unheld(a->state, t);
	log_error("revocation: no memory or too many at once%s",
	          lost ? ": the data plane is frozen" : "");
	if (lost) {
		r->lost = true;
		r->lost_generation = uplink_generation(a->uplink);
	}
	unheld(r);
	/* It is sent again on the next stream. Of too many that is asked for when there are fewer.
	 */
	if (lost || r->n < PENDING_MAX)
		uplink_abort(a->uplink, ROS2_BUSY, "no memory for a revocation");
}

void revoker_on_revoke(struct agent *a, const Ros2__V1__Revoke *m)
{
	uint64_t received_ns = clock_boottime_ns();
	struct ros2_err err = ROS2_ERR_INIT;
	struct revocation *v = NULL;
	struct tombstone t;
	struct ros2_uid target;
	bool known;

	if (decode(a, m, &t, &err) < 0) {
		log_error("%s", err.msg);
		return;
	}
	if (repeat(a->revoker, &t.revocation))
		return;
	target = t.kind == OBJ_TENANT ? state_dp_uid(a->state, &t.uid) : t.uid;
	known = revlog_has(a->revlog, &t.revocation);
	v = a->revoker->n < PENDING_MAX ? calloc(1, sizeof(*v)) : NULL;
	if (!v || (!known && revlog_add(a->revlog, &t, &err) < 0)) {
		free(v);
		carry_out_unheld(a, &t, &target, received_ns, known);
		return;
	}
	log_info("revoked: %s%s%s", obj_kind_to_str(t.kind), t.reason[0] ? ": " : "", t.reason);
	*v = (struct revocation){.a = a, .t = t, .received_ns = received_ns, .target = target};
	v->job.work = write_work;
	v->job.done = write_done;
	v->doubt_job.work = doubt_work;
	v->doubt_job.done = doubt_done;
	list_add_tail(&a->revoker->pending, &v->link);
	a->revoker->n++;
	a->revoker->total++;
	stop_data_plane(v, known);
	if (known) {
		/* Read from the log, or finished before: it is on disk. */
		v->write_done = true;
		v->durable = true;
		v->durable_ns = received_ns;
	} else {
		writer_submit(a->revoke_writer, &v->job);
	}
	state_obey(a->state, &t);
	persist_request(a->persist, NULL, NULL);
	progress(v);
	leave_out(a->revoker);
}

/* ---- thawing ---- */

void revoker_synced(struct revoker *r)
{
	uint64_t now = uplink_generation(r->a->uplink);

	if (r->lost && now != r->lost_generation)
		r->lost = false;
	if (r->unheld.any && now != r->unheld.generation)
		r->unheld.told = true;
	unheld_over(r);
}

/* False: there is still no memory. */
static bool ask_again(struct revoker *r)
{
	struct revocation *v;

	list_for_each (&r->pending, v, link) {
		if (!v->refused)
			continue;
		if (ask_data_plane(v) < 0)
			return false;
		v->refused = false;
		r->n_refused--;
	}
	return true;
}

void revoker_thaw(struct revoker *r)
{
	if (!dp_is_frozen(r->a->dp) || (r->n_refused && !ask_again(r)) || r->lost)
		return;
	if (dp_thaw(r->a->dp) == 0)
		log_info("the data plane goes on: every revocation is held");
}

const char *revoker_frozen(const struct revoker *r)
{
	if (!dp_is_frozen(r->a->dp))
		return NULL;
	return r->lost ? "no memory to hold a revocation: no session is served until the "
	                 "controller has sent it again"
	               : "no memory to hold a revocation: no session is served until there is";
}

uint64_t revoker_total(const struct revoker *r)
{
	return r->total;
}

unsigned revoker_unrecorded(const struct revoker *r)
{
	const struct revocation *v;
	unsigned n = 0;

	list_for_each (&r->pending, v, link)
		n += v->write_done && !v->durable;
	return n + r->unheld.any;
}

bool revoker_is_ahead_of_disk(const struct revoker *r)
{
	const struct revocation *v;

	if (r->unstamped || AGENT_SWITCH(contact_kept))
		return false;
	list_for_each (&r->pending, v, link)
		if (!v->durable)
			return true;
	return r->unheld.any;
}

bool revoker_is_idle(const struct revoker *r)
{
	return list_empty(&r->pending);
}

int revoker_new(struct agent *a, struct revoker **ret)
{
	struct revoker *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->a = a;
	r->fresh.job.work = fresh_work;
	r->fresh.job.done = fresh_done;
	r->room.job.work = room_work;
	r->room.job.done = room_done;
	r->unheld.job.work = unheld_work;
	r->unheld.job.done = unheld_done;
	list_init(&r->pending);
	*ret = r;
	return 0;
}

void revoker_free(struct revoker *r)
{
	if (!r)
		return;
	while (!list_empty(&r->pending)) {
		struct revocation *v = list_first(&r->pending, struct revocation, link);

		revocation_free(v);
	}
	free(r->fresh.p);
	free(r);
}

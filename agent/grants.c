/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grant requests on their way. A grant that arrives after its waiter gave up stays idle and is
 * taken by the next session of that principal, or given back when its tenant has reached the limit
 * of grants and another principal needs one. A reply is believed only as far as its seal goes:
 * tenant and principal are compared with what was asked.
 */
#include "agent/grants_priv.h"
#include "agent/test_switches.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/share.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "grants"
#include "common/log.h"

struct grant_wait {
	struct list link;
	struct grants *g;
	uint64_t request_id;
	bool sent;      /* set_sent */
	bool made_room; /* once on each stream: a grant was given back for it */
	struct ros2_uid tenant;
	char principal[ROS2_SPIFFE_MAX + 1], peer[64];
	grants_fn fn;
	void *arg;
	struct loop_timer timer;
};

struct grants {
	struct agent *a;
	struct list waiting;
	unsigned n, n_unsent;
	uint64_t next_id;
	struct loop_timer returned;
};

int grants_new(struct agent *a, struct grants **ret)
{
	struct grants *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->a = a;
	g->next_id = 1;
	list_init(&g->waiting);
	*ret = g;
	return 0;
}

static void set_sent(struct grant_wait *w, bool sent)
{
	w->g->n_unsent = w->g->n_unsent + w->sent - sent;
	w->sent = sent;
}

static void wait_free(struct grant_wait *w)
{
	set_sent(w, true);
	list_del(&w->link);
	loop_timer_stop(&w->timer);
	w->g->n--;
	free(w);
}

static void end_wait(struct grant_wait *w, const struct ros2_uid *grant, const struct ros2_err *err)
{
	grants_fn fn = w->fn;
	void *arg = w->arg;

	wait_free(w);
	fn(arg, grant, err);
}

void grants_free(struct grants *g)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (!g)
		return;
	ros2_err_named(&err, ROS2_CANCELLED, "the agent is stopping");
	while (!list_empty(&g->waiting))
		end_wait(list_first(&g->waiting, struct grant_wait, link), NULL, &err);
	loop_timer_stop(&g->returned);
	free(g);
}

static void on_timeout(void *arg)
{
	struct grant_wait *w = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	if (uplink_is_live(w->g->a->uplink))
		ros2_err_named(&err, ROS2_UNAVAILABLE,
		               "the controller did not answer within %d s: no grant yet",
		               GRANT_WAIT_MS / 1000);
	else
		ros2_err_named(&err, ROS2_UNAVAILABLE,
		               "no grant is left here and the controller cannot be reached now");
	end_wait(w, NULL, &err);
}

static void send_request(struct grant_wait *w)
{
	struct agent *a = w->g->a;
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRequest r = ROS2__V1__GRANT_REQUEST__INIT;
	Ros2__V1__Stamp stamp = ROS2__V1__STAMP__INIT;
	struct clock_stamp now = contact_now(&a->contact, clock_boottime_ns());

	stamp.boot_id = (ProtobufCBinaryData){16, now.boot_id};
	stamp.boottime_ns = now.boottime_ns;
	r.request_id = w->request_id;
	r.tenant_uid = (ProtobufCBinaryData){16, w->tenant.b};
	r.principal = w->principal;
	r.peer = w->peer;
	r.stamp = &stamp;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_REQUEST;
	m.grant_request = &r;
	set_sent(w, uplink_send(a->uplink, &m) == 0);
}

bool grants_send_waiting(struct grants *g)
{
	struct grant_wait *w;

	/* An answer under an epoch that is not on disk would not be taken. */
	if (!g || !g->n_unsent || !uplink_is_live(g->a->uplink))
		return false;
	list_for_each (&g->waiting, w, link) {
		if (w->sent)
			continue;
		send_request(w);
		return w->sent;
	}
	return false;
}

static unsigned of_tenant(const struct grants *g, const struct ros2_uid *tenant)
{
	const struct grant_wait *w;
	unsigned n = 0;

	list_for_each (&g->waiting, w, link)
		n += ros2_uid_eq(&w->tenant, tenant);
	return n;
}

/* While the controller does not answer whoever comes first would have all places for as long as
 * that lasts, for each that is given up can be taken again. */
static int may_wait(const struct grants *g, const struct ros2_uid *tenant, struct ros2_err *err)
{
	static const struct share share = {.total = GRANTS_PENDING_MAX,
	                                   .most = GRANTS_PENDING_PER_TENANT,
	                                   .sure = GRANTS_PENDING_SURE,
	                                   .kept = GRANTS_PENDING_MAX / 4};
	unsigned own = of_tenant(g, tenant);

	if (share_allows(&share, own, g->n) ||
	    (AGENT_SWITCH(no_waiting_share) && g->n < share.total))
		return 0;
	if (own >= share.sure && own < share.most)
		return ros2_err_named(
			err, ROS2_BUSY,
			"too many sessions wait for a grant: of the %u places (fixed) "
			"the last %u are for each tenant's first %u, and this one has "
			"%u: try again in a moment",
			share.total, share.kept, share.sure, own);
	return ros2_err_named(err, ROS2_BUSY,
	                      "too many sessions wait for a grant: %u of the tenant, which may be "
	                      "%u, and at most %u of all (fixed): try again in a moment",
	                      own, share.most, share.total);
}

void grants_take(struct grants *g, const struct ros2_uid *tenant, const char *principal,
                 const char *peer, grants_fn fn, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct grant_wait *w;
	struct ros2_uid uid;

	if (!state_grant_idle(g->a->state, tenant, principal, clock_boottime_ns(), &uid)) {
		state_grant_use(g->a->state, &uid, 1);
		fn(arg, &uid, NULL);
		return;
	}
	if (may_wait(g, tenant, &err) < 0) {
		fn(arg, NULL, &err);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w || loop_timer_in_ms(g->a->o.loop, &w->timer, GRANT_WAIT_MS, on_timeout, w) < 0) {
		free(w);
		ros2_err_set(&err, -ENOMEM, "no memory");
		fn(arg, NULL, &err);
		return;
	}
	w->g = g;
	g->n_unsent++;
	w->request_id = g->next_id++;
	w->tenant = *tenant;
	w->fn = fn;
	w->arg = arg;
	snprintf(w->principal, sizeof(w->principal), "%s", principal);
	snprintf(w->peer, sizeof(w->peer), "%s", peer);
	list_add_tail(&g->waiting, &w->link);
	g->n++;
	uplink_pump(g->a->uplink); /* or when the stream is there again, or takes it */
}

static int take_sealed(struct grants *g, const struct grant_wait *w,
                       const Ros2__V1__SealedObject *s, struct ros2_uid *ret, struct ros2_err *err)
{
	struct agent_object *o = NULL;
	int r;

	if (!s)
		return ros2_err_named(err, ROS2_PROTOCOL, "the controller sent no grant");
	r = uplink_open_sealed(g->a, s, &o, err);
	if (r < 0)
		return r;
	*ret = o->uid;
	if (o->kind != OBJ_GRANT || (w && (!ros2_uid_eq(&o->grant.tenant, &w->tenant) ||
	                                   strcmp(o->grant.principal, w->principal) != 0))) {
		agent_object_free(o);
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the controller sent another grant than "
		                      "was asked for");
	}
	r = state_receive(g->a->state, o, err);
	if (r < 0)
		return r;
	r = state_apply_grant(g->a->state, ret, clock_boottime_ns(), err);
	persist_request(g->a->persist, NULL, NULL);
	return r;
}

/* It ends here first: no session takes it while the controller is told. */
static void give_back(struct agent *a, struct ros2_uid *uid, uint64_t version)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRelease r = ROS2__V1__GRANT_RELEASE__INIT;

	state_remove(a->state, OBJ_GRANT, uid, version);
	persist_request(a->persist, NULL, NULL);
	r.grant_uid = (ProtobufCBinaryData){ROS2_UID_LEN, uid->b};
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_RELEASE;
	m.grant_release = &r;
	/* One that is lost is brought back by the next stream. */
	(void)uplink_send(a->uplink, &m);
}

/* Idle grants of others count for the tenant's limit, too. */
static bool make_room(struct grant_wait *w)
{
	struct agent *a = w->g->a;
	struct ros2_uid uid;
	uint64_t version;

	if (w->made_room || state_grant_spare(a->state, &w->tenant, &uid, &version) < 0)
		return false;
	w->made_room = true;
	give_back(a, &uid, version);
	send_request(w);
	return true;
}

void grants_on_reply(struct grants *g, const Ros2__V1__GrantReply *m)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct grant_wait *w, *found = NULL;
	struct ros2_uid uid;

	list_for_each (&g->waiting, w, link) {
		if (w->request_id == m->request_id)
			found = w;
	}
	if (m->status == ROS2_LIMIT && found && make_room(found))
		return;
	if (m->status)
		ros2_err_named(&err,
		               m->status < ROS2_STATUS_COUNT ? (enum ros2_status)m->status
		                                             : ROS2_NO_GRANT,
		               "%.250s", m->words);
	else
		take_sealed(g, found, m->grant, &uid, &err);
	if (!found) {
		if (err.code && !m->status)
			log_error("a grant is refused: %s", err.msg);
		return;
	}
	if (err.code) {
		bool no_memory = err.code == -ENOMEM;

		end_wait(found, NULL, &err);
		/* It counts there: the next stream brings it. */
		if (no_memory)
			uplink_abort(g->a->uplink, ROS2_BUSY, "no memory for a grant");
		return;
	}
	state_grant_use(g->a->state, &uid, 1);
	end_wait(found, &uid, NULL);
}

/* The first of which the controller has not heard, though its principal has an idle grant. */
static struct grant_wait *can_have_idle(struct grants *g, struct ros2_uid *ret)
{
	struct grant_wait *w;

	list_for_each (&g->waiting, w, link) {
		if (!w->sent && !state_grant_idle(g->a->state, &w->tenant, w->principal,
		                                  clock_boottime_ns(), ret))
			return w;
	}
	return NULL;
}

static void give_idle(void *arg)
{
	struct grants *g = arg;
	struct grant_wait *w;
	struct ros2_uid uid;

	while ((w = can_have_idle(g, &uid))) {
		state_grant_use(g->a->state, &uid, 1);
		end_wait(w, &uid, NULL);
	}
}

/* In a turn of its own: whoever ends a session may be walking over sessions. Without memory they
 * wait on. */
void grants_on_returned(struct grants *g)
{
	if (!g || list_empty(&g->waiting))
		return;
	loop_timer_stop(&g->returned);
	(void)loop_timer_in_ms(g->a->o.loop, &g->returned, 0, give_idle, g);
}

void grants_on_lost(struct grants *g)
{
	struct grant_wait *w;

	/* What was given back may not have been heard. */
	list_for_each (&g->waiting, w, link) {
		set_sent(w, false);
		w->made_room = false;
	}
	grants_on_returned(g);
}

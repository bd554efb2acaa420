/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions and leases are the agents' knowledge: they are asked, all at once, for one second; who
 * does not answer is named. What comes back is a claim: the agent's name in it is ours.
 */
#include "controller/link_priv.h"
#include "controller/svc.h"
#include <errno.h>
#include <string.h>

#define REPORT_MS   1000
#define REPORTS_MAX 64    /* questions at once */
#define ROWS_MAX    20000 /* in one answer */

struct report_op {
	struct svc *s;
	uint64_t id;
	struct report_ask ask;
	report_fn fn;
	void *arg;
	struct report_result res;
	struct ros2_uid *waiting; /* agents that have not said `last` */
	size_t n_waiting;
	struct loop_timer timer;
	UT_hash_handle hh;
};

static void op_free(struct report_op *op)
{
	for (size_t i = 0; i < op->res.n_sessions; i++)
		ros2__v1__session_info__free_unpacked(op->res.sessions[i], NULL);
	for (size_t i = 0; i < op->res.n_leases; i++)
		ros2__v1__lease_info__free_unpacked(op->res.leases[i], NULL);
	for (size_t i = 0; i < op->res.n_unreachable; i++)
		free(op->res.unreachable[i]);
	free(op->res.sessions);
	free(op->res.session_agents);
	free(op->res.leases);
	free(op->res.unreachable);
	free(op->waiting);
	free(op);
}

static void finish(struct report_op *op)
{
	loop_timer_stop(&op->timer);
	HASH_DEL(op->s->reports, op);
	op->fn(op->arg, &op->res);
	op_free(op);
}

static void add_unreachable(struct report_op *op, const char *name)
{
	char **more = reallocarray(op->res.unreachable, op->res.n_unreachable + 1, sizeof(*more));
	char *copy = strdup(name);

	if (more)
		op->res.unreachable = more;
	if (more && copy)
		op->res.unreachable[op->res.n_unreachable++] = copy;
	else
		free(copy);
}

static void timed_out(void *arg)
{
	struct report_op *op = arg;

	for (size_t i = 0; i < op->n_waiting; i++) {
		struct ctl_object *o = ctl_find_uid(op->s->ctl, &op->waiting[i]);

		if (o)
			add_unreachable(op, o->name);
	}
	finish(op);
}

static void ask_agent(struct report_op *op, struct ctl_agent *a)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__ReportRequest q = ROS2__V1__REPORT_REQUEST__INIT;

	q.request_id = op->id;
	q.sessions = op->ask.sessions;
	q.leases = op->ask.leases;
	q.limit = op->ask.limit;
	if (op->ask.tenant) {
		q.tenant_uid.data = (uint8_t *)op->ask.tenant->uid.b;
		q.tenant_uid.len = ROS2_UID_LEN;
	}
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_REPORT_REQUEST;
	m.report_request = &q;
	link_send(a->link, &m);
	op->waiting[op->n_waiting++] = a->obj->uid;
}

static bool concerns(const struct report_ask *ask, struct ctl_agent *a)
{
	if (!a || !a->enrolled || (ask->agent && ask->agent != a))
		return false;
	return !ask->tenant || ctl_placed(ask->tenant, a) ||
	       ctl_rollout_get(a, STORE_TENANT, &ask->tenant->uid, false);
}

int report_collect(struct svc *s, const struct report_ask *ask, report_fn fn, void *arg)
{
	struct report_op *op = NULL;
	struct ctl_object *o, *tmp;

	if (HASH_COUNT(s->reports) >= REPORTS_MAX)
		return -EBUSY;
	op = calloc(1, sizeof(*op));
	if (op)
		op->waiting = calloc(s->ctl->agents_connected + 1, sizeof(*op->waiting));
	if (!op || !op->waiting) {
		free(op);
		return -ENOMEM;
	}
	op->s = s;
	op->id = ++s->next_report;
	op->ask = *ask;
	op->fn = fn;
	op->arg = arg;
	HASH_ADD(hh, s->reports, id, sizeof(op->id), op);
	HASH_ITER (by_key, s->ctl->by_key, o, tmp) {
		if (!concerns(ask, o->agent))
			continue;
		if (o->agent->link)
			ask_agent(op, o->agent);
		else
			add_unreachable(op, o->name);
	}
	/* The question may outlive the objects it was about. */
	op->ask.tenant = NULL;
	op->ask.agent = NULL;
	loop_timer_in_ms(s->ctl->loop, &op->timer, op->n_waiting ? REPORT_MS : 0, timed_out, op);
	return 0;
}

/* ---- answers ---- */

static void *copy_message(const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *p = malloc(n ? n : 1);
	ProtobufCMessage *copy = NULL;

	if (p) {
		protobuf_c_message_pack(m, p);
		copy = protobuf_c_message_unpack(m->descriptor, NULL, n, p);
	}
	free(p);
	return copy;
}

static void set_name(char **field, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return;
	if (*field && *field != protobuf_c_empty_string)
		free(*field);
	*field = copy;
}

static int room(void **v, size_t n, size_t size)
{
	void *more;

	if (n >= ROWS_MAX)
		return -ENOSPC;
	if (n & (n + 1) && n)
		return 0; /* grows when n + 1 is a power of two: capacity 1, 3, 7, ... */
	more = reallocarray(*v, 2 * (n + 1), size);
	if (!more)
		return -ENOMEM;
	*v = more;
	return 0;
}

static void add_session(struct report_op *op, struct ctl_agent *a, const Ros2__V1__SessionInfo *in)
{
	size_t n = op->res.n_sessions;
	Ros2__V1__SessionInfo *copy;

	if (room((void **)&op->res.sessions, n, sizeof(*op->res.sessions)) < 0 ||
	    room((void **)&op->res.session_agents, n, sizeof(*op->res.session_agents)) < 0)
		return;
	copy = copy_message(&in->base);
	if (!copy)
		return;
	set_name(&copy->agent, a->obj->name);
	op->res.sessions[n] = copy;
	op->res.session_agents[n] = a->obj->uid;
	op->res.n_sessions++;
}

static void add_lease(struct report_op *op, struct ctl_agent *a, const Ros2__V1__LeaseInfo *in)
{
	Ros2__V1__LeaseInfo *copy;

	if (room((void **)&op->res.leases, op->res.n_leases, sizeof(*op->res.leases)) < 0)
		return;
	copy = copy_message(&in->base);
	if (!copy)
		return;
	set_name(&copy->agent, a->obj->name);
	op->res.leases[op->res.n_leases++] = copy;
}

static bool answered(struct report_op *op, const struct ctl_agent *a)
{
	for (size_t i = 0; i < op->n_waiting; i++) {
		if (!ros2_uid_eq(&op->waiting[i], &a->obj->uid))
			continue;
		op->waiting[i] = op->waiting[--op->n_waiting];
		return true;
	}
	return false;
}

static bool is_waiting(const struct report_op *op, const struct ctl_agent *a)
{
	for (size_t i = 0; i < op->n_waiting; i++)
		if (ros2_uid_eq(&op->waiting[i], &a->obj->uid))
			return true;
	return false;
}

void report_in(struct svc *s, struct ctl_agent *a, const Ros2__V1__Report *r)
{
	struct report_op *op;

	HASH_FIND(hh, s->reports, &r->request_id, sizeof(r->request_id), op);
	if (!op || !is_waiting(op, a))
		return;
	for (size_t i = 0; i < r->n_sessions; i++)
		add_session(op, a, r->sessions[i]);
	for (size_t i = 0; i < r->n_leases; i++)
		add_lease(op, a, r->leases[i]);
	if (r->last && answered(op, a) && !op->n_waiting)
		finish(op);
}

void report_agent_gone(struct svc *s, struct ctl_agent *a)
{
	struct report_op *op, *tmp;

	HASH_ITER (hh, s->reports, op, tmp) {
		if (!answered(op, a))
			continue;
		add_unreachable(op, a->obj->name);
		if (!op->n_waiting)
			loop_timer_in_ms(s->ctl->loop, &op->timer, 0, timed_out, op);
	}
}

void report_free_all(struct svc *s)
{
	struct report_op *op, *tmp;

	HASH_ITER (hh, s->reports, op, tmp)
		finish(op);
}

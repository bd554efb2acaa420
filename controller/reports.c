/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions and leases are the agents' knowledge: they are asked, all at once, for one second; who
 * does not answer is named. What comes back is a claim: the agent's name in it is ours, and an
 * agent that says more than it was asked for takes no room of the others': rows of other sessions
 * or tenants, rows longer than any can be, and more of them than any may say, are not taken. An
 * answer holds the first `limit` rows in order, or as many of them as a message does, whatever
 * arrives when.
 */
#include "controller/link_priv.h"
#include "controller/svc_show_priv.h"
#include "controller/test_switches.h"
#include <errno.h>
#include <string.h>

#define REPORT_MS   1000
#define PAGE_AGENTS 64 /* asked for one page, at most */
/* Packed. Names are at most 63 bytes, a principal 255, an address less. */
#define ROW_BYTES_MAX 4096
/* Of one agent in all its answers to a question: the most that it says of its own accord. Each is
 * copied, and put in its place among those of all. */
#ifndef ROWS_OF_AGENT
#define ROWS_OF_AGENT 5000
#endif
/* Beside what else an answer has, within what a message may be (4 MiB). */
#define ROWS_BYTES_MAX (5u << 19)

struct asked {
	struct ros2_uid agent;
	uint32_t rows; /* that it said */
};

struct report_op {
	struct svc *s;
	uint64_t id;
	bool leases;
	uint32_t limit;                 /* of rows; less when these are long */
	size_t bytes;                   /* of rows, packed */
	struct ros2_uid session;        /* zero = all */
	char tenant[ROS2_NAME_MAX + 1]; /* "" = all */
	struct page_pos after;
	report_fn fn;
	void *arg;
	struct report_result res;
	struct report_row *rows; /* owned: res.rows */
	/* owned: first the agents that have not said `last`, then the others that were asked */
	struct asked *waiting;
	size_t n_waiting, n_asked;
	struct loop_timer timer;
	UT_hash_handle hh;
};

static void op_free(struct report_op *op)
{
	for (size_t i = 0; i < op->res.n; i++)
		protobuf_c_message_free_unpacked(op->rows[i].message, NULL);
	for (size_t i = 0; i < op->res.n_unreachable; i++)
		free(op->res.unreachable[i]);
	free(op->rows);
	free(op->res.unreachable);
	free(op->waiting);
	free(op);
}

static void finish(struct report_op *op)
{
	loop_timer_stop(&op->timer);
	HASH_DEL(op->s->reports, op);
	op->res.rows = op->rows;
	op->fn(op->arg, &op->res);
	op_free(op);
}

/* An answer without it would look like all there is. */
static void lose(struct report_op *op)
{
	op->res.lost = true;
	show_lose();
}

static void add_unreachable(struct report_op *op, const char *name)
{
	char **more = reallocarray(op->res.unreachable, op->res.n_unreachable + 1, sizeof(*more));
	char *copy = strdup(name);

	if (more)
		op->res.unreachable = more;
	if (more && copy) {
		op->res.unreachable[op->res.n_unreachable++] = copy;
		return;
	}
	free(copy);
	lose(op);
}

static void timed_out(void *arg)
{
	struct report_op *op = arg;

	for (size_t i = 0; i < op->n_waiting; i++) {
		struct ctl_object *o = ctl_find_uid(op->s->ctl, &op->waiting[i].agent);

		if (o)
			add_unreachable(op, o->name);
	}
	finish(op);
}

/* ---- asking ---- */

static void ask_agent(struct report_op *op, const struct report_ask *ask, struct ctl_agent *a)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__ReportRequest q = ROS2__V1__REPORT_REQUEST__INIT;
	struct page_pos after = {.name = ""};

	if (ask->after && strcmp(ask->after->name, a->obj->name) == 0)
		after = *ask->after;
	q.request_id = op->id;
	q.sessions = !ask->leases;
	q.leases = ask->leases;
	q.limit = ask->limit;
	if (ask->tenant)
		q.tenant_uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)ask->tenant->uid.b};
	if (!ros2_uid_is_zero(&ask->session))
		q.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)ask->session.b};
	if (!ros2_uid_is_zero(&after.key) && ask->leases)
		for (int i = 0; i < 8; i++)
			q.after_lease_id = q.after_lease_id << 8 | after.key.b[i];
	else if (!ros2_uid_is_zero(&after.key))
		q.after_session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, after.key.b};
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_REPORT_REQUEST;
	m.report_request = &q;
	op->waiting[op->n_waiting++] = (struct asked){.agent = a->obj->uid};
	op->n_asked = op->n_waiting;
	link_send(a->link, &m);
}

static bool concerns(const struct report_ask *ask, struct ctl_agent *a)
{
	if (!a || !a->enrolled || (ask->agent && ask->agent != a))
		return false;
	if (ask->after && strcmp(a->obj->name, ask->after->name) < 0)
		return false;
	return !ask->tenant || ctl_placed(ask->tenant, a) ||
	       ctl_rollout_get(a, STORE_TENANT, &ask->tenant->uid, false);
}

static int by_agent_name(const void *a, const void *b)
{
	return strcmp((*(struct ctl_agent *const *)a)->obj->name,
	              (*(struct ctl_agent *const *)b)->obj->name);
}

/* How many of @v, which is in order, it takes for a page. */
static size_t enough(const struct report_ask *ask, struct ctl_agent *const *v, size_t n)
{
	uint64_t rows = 0;
	size_t i = 0;

	if (!ask->after)
		return n;
	while (i < n && i < PAGE_AGENTS && rows < ask->limit) {
		rows += v[i]->link ? (ask->leases ? v[i]->leases : v[i]->sessions) : 0;
		i++;
	}
	return i;
}

static void ask_all(struct report_op *op, struct report_ask *ask, struct ctl_agent **v, size_t n)
{
	size_t asked;

	qsort(v, n, sizeof(*v), by_agent_name);
	asked = enough(ask, v, n);
	for (size_t i = 0; i < asked; i++) {
		if (v[i]->link)
			ask_agent(op, ask, v[i]);
		else
			add_unreachable(op, v[i]->obj->name);
	}
	ask->asked_to[0] = '\0';
	if (asked < n)
		strcpy(ask->asked_to, v[asked]->obj->name);
}

int report_collect(struct svc *s, struct report_ask *ask, report_fn fn, void *arg)
{
	AUTO_FREE struct ctl_agent **v = calloc(HASH_CNT(by_key, s->ctl->by_key) + 1, sizeof(*v));
	bool revokes = !ros2_uid_is_zero(&ask->session);
	struct report_op *op = NULL;
	struct ctl_object *o, *tmp;
	size_t n = 0;

	if (HASH_COUNT(s->reports) >= REPORTS_MAX + (revokes ? REPORTS_REVOKE : 0) &&
	    !CTL_SWITCH(no_question_max))
		return -EBUSY;
	op = calloc(1, sizeof(*op));
	if (op) {
		op->waiting = calloc(s->ctl->agents_connected + 1, sizeof(*op->waiting));
		op->rows = calloc(ask->limit + 1, sizeof(*op->rows));
	}
	if (!v || !op || !op->waiting || !op->rows) {
		if (op)
			op_free(op);
		return -ENOMEM;
	}
	op->s = s;
	op->id = ++s->next_report;
	op->leases = ask->leases;
	op->limit = ask->limit;
	op->session = ask->session;
	if (ask->tenant)
		strcpy(op->tenant, ask->tenant->name);
	if (ask->after)
		op->after = *ask->after;
	op->fn = fn;
	op->arg = arg;
	HASH_ADD(hh, s->reports, id, sizeof(op->id), op);
	if (!HASH_TOOK(hh, op)) {
		op_free(op);
		return -ENOMEM;
	}
	HASH_ITER (by_key, s->ctl->by_key, o, tmp)
		if (concerns(ask, o->agent))
			v[n++] = o->agent;
	ask_all(op, ask, v, n);
	loop_timer_in_ms(s->ctl->loop, &op->timer, op->n_waiting ? REPORT_MS : 0, timed_out, op);
	return 0;
}

/* ---- answers ---- */

ProtobufCMessage *svc_copy_message(const ProtobufCMessage *m)
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

/* Who said so, whatever it says. */
static bool set_name(char **field, const char *name)
{
	char *copy = strdup(name);

	if (!copy)
		return false;
	if (*field && *field != protobuf_c_empty_string)
		free(*field);
	*field = copy;
	return true;
}

static int compare(const char *agent_a, const struct ros2_uid *a, const char *agent_b,
                   const struct ros2_uid *b)
{
	int c = strcmp(agent_a, agent_b);

	return c ? c : memcmp(a->b, b->b, ROS2_UID_LEN);
}

static void drop_last(struct report_op *op)
{
	ProtobufCMessage *m = op->rows[--op->res.n].message;

	op->res.more = true;
	op->bytes -= protobuf_c_message_get_packed_size(m);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* Room for a row of this place among the first `limit`; NULL: it is beyond, or there already. */
static struct report_row *place(struct report_op *op, const char *agent, const struct ros2_uid *key)
{
	size_t lo = 0, hi = op->res.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int c = compare(op->rows[mid].agent, &op->rows[mid].key, agent, key);

		if (!c)
			return NULL;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (op->res.n == op->limit) {
		op->res.more = true;
		if (lo == op->limit)
			return NULL;
		drop_last(op);
	}
	memmove(op->rows + lo + 1, op->rows + lo, (op->res.n - lo) * sizeof(*op->rows));
	op->res.n++;
	op->rows[lo] = (struct report_row){.key = *key};
	return &op->rows[lo];
}

/* What does not fit in a message is beyond the answer: also what comes later and lies there. A
 * question for one session is no answer's: it has a row of an agent at most. */
static void trim(struct report_op *op)
{
	while (op->bytes > ROWS_BYTES_MAX && ros2_uid_is_zero(&op->session)) {
		drop_last(op);
		op->limit = (uint32_t)op->res.n;
	}
}

static void add_row(struct report_op *op, struct ctl_agent *a, const ProtobufCMessage *in,
                    const struct ros2_uid *key)
{
	ProtobufCMessage *copy;
	struct report_row *row;

	if (compare(a->obj->name, key, op->after.name, &op->after.key) <= 0)
		return;
	copy = svc_copy_message(in);
	if (!copy || !set_name(op->leases ? &((Ros2__V1__LeaseInfo *)copy)->agent
	                                  : &((Ros2__V1__SessionInfo *)copy)->agent,
	                       a->obj->name)) {
		lose(op);
		if (copy)
			protobuf_c_message_free_unpacked(copy, NULL);
		return;
	}
	row = place(op, a->obj->name, key);
	if (!row) {
		protobuf_c_message_free_unpacked(copy, NULL);
		return;
	}
	strcpy(row->agent, a->obj->name);
	row->agent_uid = a->obj->uid;
	row->message = copy;
	op->bytes += protobuf_c_message_get_packed_size(copy);
	trim(op);
}

static struct asked *find_asked(struct asked *v, size_t n, const struct ctl_agent *a)
{
	for (size_t i = 0; i < n; i++)
		if (ros2_uid_eq(&v[i].agent, &a->obj->uid))
			return &v[i];
	return NULL;
}

static bool answered(struct report_op *op, const struct ctl_agent *a)
{
	struct asked *x = find_asked(op->waiting, op->n_waiting, a), was;

	if (!x)
		return false;
	was = *x;
	*x = op->waiting[--op->n_waiting];
	op->waiting[op->n_waiting] = was;
	return true;
}

/* An agent of before may not know what it is asked for, and says all. */
static bool is_asked_for(const struct report_op *op, const char *tenant,
                         const ProtobufCBinaryData *session)
{
	if (op->tenant[0] && tenant[0] && strcmp(op->tenant, tenant) != 0)
		return false;
	return ros2_uid_is_zero(&op->session) ||
	       (session->len == ROS2_UID_LEN &&
	        !memcmp(session->data, op->session.b, ROS2_UID_LEN));
}

static bool is_too_long(const ProtobufCMessage *row)
{
	return protobuf_c_message_get_packed_size(row) > ROW_BYTES_MAX;
}

/* How many it did not take because they are too long. */
static size_t take_sessions(struct report_op *op, struct ctl_agent *a, struct asked *of,
                            const Ros2__V1__Report *r)
{
	struct ros2_uid key;
	size_t n = 0;

	for (size_t i = 0; i < r->n_sessions && of->rows <= ROWS_OF_AGENT; i++) {
		const Ros2__V1__SessionInfo *in = r->sessions[i];

		if (ros2_uid_from_bytes(in->session_uid.data, in->session_uid.len, &key) < 0 ||
		    !is_asked_for(op, in->tenant, &in->session_uid))
			continue;
		if (is_too_long(&in->base))
			n++;
		else if (of->rows++ < ROWS_OF_AGENT)
			add_row(op, a, &in->base, &key);
	}
	return n;
}

static size_t take_leases(struct report_op *op, struct ctl_agent *a, struct asked *of,
                          const Ros2__V1__Report *r)
{
	struct ros2_uid key;
	size_t n = 0;

	for (size_t i = 0; i < r->n_leases && of->rows <= ROWS_OF_AGENT; i++) {
		const Ros2__V1__LeaseInfo *in = r->leases[i];

		if (!is_asked_for(op, in->tenant, &in->session_uid))
			continue;
		key = page_lease_key(in->lease_id);
		if (is_too_long(&in->base))
			n++;
		else if (of->rows++ < ROWS_OF_AGENT)
			add_row(op, a, &in->base, &key);
	}
	return n;
}

void report_in(struct svc *s, struct ctl_agent *a, const Ros2__V1__Report *r)
{
	struct asked nobody = {.rows = 0}, *of;
	struct report_op *op;
	size_t too_long;

	HASH_FIND(hh, s->reports, &r->request_id, sizeof(r->request_id), op);
	/* An answer may be late; that it answers who was not asked is no accident. */
	if (op && !find_asked(op->waiting, op->n_asked, a))
		ctl_agent_claim(a, "a report that it was not asked for");
	of = op ? find_asked(op->waiting, op->n_waiting, a) : NULL;
	if (!of && CTL_SWITCH(no_report_owner))
		of = &nobody;
	if (!op || !of)
		return;
	too_long = op->leases ? take_leases(op, a, of, r) : take_sessions(op, a, of, r);
	if (too_long)
		ctl_agent_claim(a, "a report with rows that are longer than any can be");
	if (of->rows > ROWS_OF_AGENT)
		ctl_agent_claim(a, "a report with more rows than any may have");
	op->res.more |= r->more || of->rows > ROWS_OF_AGENT;
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

// SPDX-License-Identifier: Apache-2.0
/*
 * The administrator: documents applied, changed, deleted and made again, rights revoked and given
 * back, tokens made. What was acknowledged becomes the object's state and an expected record; what
 * was not answered is looked up before the next operation on that object.
 */
#include "common/clock.h"
#include "common/util.h"
#include "tests/soak/history.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#define TENANT  ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT
#define ENGINE  ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE
#define AGENT   ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT
#define GRANT   ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT
#define SESSION ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION

#define RECEIPT_MS    1500
#define TOKENS_USABLE 16
#define BACK_NS                                                                                    \
	(700 * NS_PER_MS) /* a tenant with clients is without rights for about this long           \
	                   */

static const char *kind_word(int kind)
{
	return kind == TENANT    ? "tenant"
	       : kind == ENGINE  ? "engine"
	       : kind == AGENT   ? "agent"
	       : kind == GRANT   ? "grant"
	       : kind == SESSION ? "session"
	                         : "object";
}

static void add_object(struct world *w, int kind, int live, const char *format, int i)
{
	struct object *o = &w->object[w->n_objects++];

	o->kind = kind;
	o->live = live;
	snprintf(o->name, sizeof(o->name), "%s-%d", format, i);
}

void ops_init(struct world *w)
{
	for (int i = 0; i < LIVE_TENANTS; i++)
		add_object(w, TENANT, i, "live", i);
	for (int i = 0; i < 12; i++)
		add_object(w, TENANT, -1, "s-t", i);
	for (int i = 0; i < 4; i++) {
		add_object(w, ENGINE, -1, "s-e", i);
		add_object(w, AGENT, -1, "s-a", i);
	}
}

/* history.c counts with the same limits. */
static void document(const struct world *w, const struct object *o, uint64_t generation, char *out,
                     size_t size)
{
	static const char *const times[LIVE_TENANTS] = {
		"leaseTtl: 1s}, times: {contactLimit: 10m}",
		"leaseTtl: 1s}, times: {contactLimit: 2s}",
		"leaseTtl: 1s}, times: {contactLimit: 10m, grantLifetime: 3s}",
		"leaseTtl: 30s}, times: {contactLimit: 10m}",
	};
	int n = snprintf(out, size,
	                 "apiVersion: ros2/v1\nkind: %s\nmetadata: {name: %s, labels: {gen: "
	                 "g%" PRIu64 "x}}\nspec: ",
	                 o->kind == TENANT   ? "Tenant"
	                 : o->kind == ENGINE ? "Engine"
	                                     : "Agent",
	                 o->name, generation);

	if (o->kind == TENANT)
		snprintf(out + n, size - (size_t)n,
		         "{principals: ['spiffe://ros2.test/tenant/%s/x'], placement: {selector: "
		         "{role: storage}}, namespaces: [{name: data, engine: files, path: %s, "
		         "access: rw}], rkeys: {%s, sessions: {max: 32}}\n",
		         o->name, o->name, times[w->long_contact ? 0 : MAX(o->live, 0)]);
	else
		snprintf(out + n, size - (size_t)n,
		         o->kind == ENGINE ? "{type: mem, size: 1MiB}\n" : "{}\n");
}

/* ---- what the controller has ---- */

static bool may_be_absent(const struct object *o)
{
	return !o->present || o->unsure == OP_DELETE;
}

static const char *differs(struct world *w, const struct object *o, const Ros2__V1__ObjectInfo *i)
{
	char uid[ROS2_UID_STR_LEN], gen[32];
	bool revoked = i->tenant && i->tenant->revoked;
	struct ros2_uid now;

	if (ros2_uid_from_bytes(i->uid.data, i->uid.len, &now))
		return "has no uid";
	ros2_uid_to_str(&now, uid);
	if (fact_find(w->old_uids, uid))
		return "has the uid of a deleted object";
	if (!o->present)
		return o->unsure == OP_CREATE ? NULL : "was deleted and is there";
	if (!ros2_uid_eq(&now, &o->uid))
		return "has another uid";
	if (i->version < o->version)
		return "has an older version";
	if (revoked && !o->revoked && o->unsure != OP_REVOKE && o->unsure != OP_DELETE)
		return "is revoked, nobody asked for it";
	if (!revoked && o->revoked && o->unsure != OP_REINSTATE)
		return "was revoked and is not";
	snprintf(gen, sizeof(gen), "g%" PRIu64 "x", o->generation);
	if (o->unsure == OP_CHANGE || memmem(i->yaml.data, i->yaml.len, gen, strlen(gen)))
		return NULL;
	return "has another document";
}

static void adopt(struct object *o, const Ros2__V1__ObjectInfo *i)
{
	bool revoked = i && i->tenant && i->tenant->revoked;
	const char *g;

	o->present = i != NULL;
	if (i) {
		ros2_uid_from_bytes(i->uid.data, i->uid.len, &o->uid);
		o->version = i->version;
		g = memmem(i->yaml.data, i->yaml.len, "gen: g", 6);
		if (g)
			o->generation = strtoull(g + 6, NULL, 10);
	}
	if (!o->revoked && revoked)
		o->revoked_at_ns = clock_boottime_ns();
	o->revoked = revoked;
	o->unsure = OP_NONE;
}

static void remember_uid(struct world *w, const struct object *o)
{
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(&o->uid, uid);
	fact_get(&w->old_uids, uid);
}

int ops_look(struct world *w, struct object *o)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	const Ros2__V1__ObjectInfo *i = NULL;
	const char *what;
	bool unanswered;
	int r;

	ref.kind = (Ros2__V1__ObjectKind)o->kind;
	ref.name = o->name;
	q.ref = &ref;
	r = world_call(w, &ros2_v1_admin_get, &q.base, &m, &unanswered, &err);
	if (r < 0 && err.status != ROS2_NOT_FOUND)
		return -EAGAIN;
	if (!r)
		i = ros2_v1_admin_get_out(m)->object;
	what = i ? differs(w, o, i) : may_be_absent(o) ? NULL : "is lost";
	if (what)
		world_fail(w,
		           "%s %s %s (known: %s, version %" PRIu64 ", generation %" PRIu64
		           "%s, unsure %d; found version %" PRIu64 ")",
		           kind_word(o->kind), o->name, what, o->present ? "present" : "absent",
		           o->version, o->generation, o->revoked ? ", revoked" : "", o->unsure,
		           i ? i->version : 0);
	if (!i && o->present)
		remember_uid(w, o);
	adopt(o, i);
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

/* ---- operations ---- */

/* What an operation that failed leaves behind. */
static void not_done(struct world *w, struct object *o, enum soak_op op, bool unanswered,
                     const struct ros2_err *err)
{
	w->unanswered += unanswered;
	if (unanswered)
		o->unsure = op;
	else
		world_fail(w, "operation %d on %s %s was refused: %s: %s", op, kind_word(o->kind),
		           o->name, ros2_status_to_str(err->status), err->msg);
}

static void do_apply(struct world *w, struct object *o)
{
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files[] = {&file};
	struct ros2_err err = ROS2_ERR_INIT;
	enum soak_op op = o->present ? OP_CHANGE : OP_CREATE;
	uint64_t generation = ++w->next_op;
	ProtobufCMessage *m = NULL;
	char text[1024], key[192], uid[ROS2_UID_STR_LEN];
	const Ros2__V1__ApplyReply *a;
	bool unanswered;

	document(w, o, generation, text, sizeof(text));
	file.name = o->name;
	file.text = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
	q.files = files;
	q.n_files = 1;
	if (op == OP_CREATE) {
		world_window(w, o->live, o->no_io_from_ns, clock_boottime_ns(), "deleted");
		o->no_io_from_ns = 0;
	}
	if (world_call(w, &ros2_v1_admin_apply, &q.base, &m, &unanswered, &err) < 0) {
		not_done(w, o, op, unanswered, &err);
		return;
	}
	a = ros2_v1_admin_apply_out(m);
	if (!a->applied || a->n_results != 1) {
		world_fail(w, "%s was not applied: %s", o->name,
		           a->n_diagnostics ? a->diagnostics[0]->message : "no words");
	} else {
		ros2_uid_from_bytes(a->results[0]->uid.data, 16, &o->uid);
		ros2_uid_to_str(&o->uid, uid);
		if (op == OP_CREATE)
			o->revoked = false;
		o->present = true;
		o->version = a->results[0]->version;
		o->generation = generation;
		snprintf(key, sizeof(key), "%s.apply %s %s %" PRIu64, kind_word(o->kind), o->name,
		         uid, o->version);
		world_expect(w, key);
	}
	protobuf_c_message_free_unpacked(m, NULL);
}

/* When the last agent said that nothing more happens; 0 if one did not. */
static uint64_t confirmed(Ros2__V1__RevokeOutcome **v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (v[i]->state != ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED &&
		    v[i]->state != ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_DRAINING)
			return 0;
	return clock_boottime_ns();
}

static void do_delete(struct world *w, struct object *o)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	char key[192], uid[ROS2_UID_STR_LEN];
	bool unanswered;

	ref.kind = (Ros2__V1__ObjectKind)o->kind;
	ref.name = o->name;
	q.ref = &ref;
	if (world_call(w, &ros2_v1_admin_delete, &q.base, &m, &unanswered, &err) < 0) {
		not_done(w, o, OP_DELETE, unanswered, &err);
		return;
	}
	ros2_uid_to_str(&o->uid, uid);
	remember_uid(w, o);
	o->present = o->revoked = false;
	o->no_io_from_ns = confirmed(ros2_v1_admin_delete_out(m)->outcomes,
	                             ros2_v1_admin_delete_out(m)->n_outcomes);
	snprintf(key, sizeof(key), "%s.delete %s %s", kind_word(o->kind), o->name, uid);
	world_expect(w, key);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* 0: carried out, *ret_confirmed as confirmed() says; otherwise the error. */
static int take_away(struct world *w, int kind, const char *name, uint64_t *ret_confirmed,
                     bool *ret_unanswered, struct ros2_err *err)
{
	Ros2__V1__RevokeRequest q = ROS2__V1__REVOKE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	ProtobufCMessage *m = NULL;
	char reason[32], key[192];
	int r;

	snprintf(reason, sizeof(reason), "op-%" PRIu64, ++w->next_op);
	ref.kind = (Ros2__V1__ObjectKind)kind;
	ref.name = (char *)(uintptr_t)name;
	q.ref = &ref;
	q.reason = reason;
	q.wait_ms = RECEIPT_MS;
	r = world_call(w, &ros2_v1_admin_revoke, &q.base, &m, ret_unanswered, err);
	if (r < 0)
		return r;
	*ret_confirmed = confirmed(ros2_v1_admin_revoke_out(m)->outcomes,
	                           ros2_v1_admin_revoke_out(m)->n_outcomes);
	snprintf(key, sizeof(key), "%s.revoke %s", kind_word(kind), reason);
	if (!ros2_v1_admin_revoke_out(m)->record_pending)
		world_expect(w, key);
	protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

static void do_revoke(struct world *w, struct object *o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t from;
	bool unanswered;

	if (take_away(w, TENANT, o->name, &from, &unanswered, &err) < 0) {
		not_done(w, o, OP_REVOKE, unanswered, &err);
		return;
	}
	if (!o->revoked)
		o->revoked_at_ns = clock_boottime_ns();
	o->revoked = true;
	o->version++;
	if (!o->no_io_from_ns)
		o->no_io_from_ns = from;
}

bool ops_confirm(struct world *w, struct object *o)
{
	if (o->unsure)
		ops_look(w, o);
	if (!o->unsure && o->present && o->revoked && !o->no_io_from_ns)
		do_revoke(w, o);
	return !o->unsure && (!o->present || !o->revoked || o->no_io_from_ns);
}

void ops_take(struct world *w, struct object *o)
{
	if (!o->unsure && o->present && !o->revoked)
		do_revoke(w, o);
	/* Each try waits for receipts. */
	for (int n = 0; n < 20; n++)
		if (ops_confirm(w, o))
			return;
	world_fail(w, "the revocation of %s is not confirmed", o->name);
}

static void do_reinstate(struct world *w, struct object *o)
{
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	char reason[32], key[192];
	bool unanswered;

	snprintf(reason, sizeof(reason), "op-%" PRIu64, ++w->next_op);
	q.tenant = o->name;
	q.reason = reason;
	world_window(w, o->live, o->no_io_from_ns, clock_boottime_ns(), "revoked");
	o->no_io_from_ns = 0;
	if (world_call(w, &ros2_v1_admin_reinstate, &q.base, &m, &unanswered, &err) < 0) {
		not_done(w, o, OP_REINSTATE, unanswered, &err);
		return;
	}
	o->revoked = false;
	o->version = ros2_v1_admin_reinstate_out(m)->version;
	snprintf(key, sizeof(key), "tenant.reinstate %s", reason);
	world_expect(w, key);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* Nobody joins with them, so an agent has all that it was given, until it has its full number
 * (TOKENS_PER_AGENT in controller/identity.c): then one more is refused, and not before. */
static void do_token(struct world *w, struct object *o)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	char uid[ROS2_UID_STR_LEN];
	struct fact *f;
	bool unanswered;

	q.agent = o->name;
	ros2_uid_to_str(&o->uid, uid);
	f = fact_get(&w->tokens, uid);
	if (world_call(w, &ros2_v1_admin_create_agent_token, &q.base, &m, &unanswered, &err) < 0) {
		f->unanswered += unanswered;
		if (!unanswered &&
		    (err.status != ROS2_LIMIT || f->n + f->unanswered < TOKENS_USABLE))
			not_done(w, o, OP_NONE, false, &err);
		return;
	}
	if (++f->n > TOKENS_USABLE)
		world_fail(w, "agent %s was given %" PRIu64 " tokens: expected %d at most", o->name,
		           f->n, TOKENS_USABLE);
	w->acks++;
	world_journal(w, "agent.token.create %s %s", o->name, uid);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* One live session or grant of the tenant, by chance; false when there is none or nobody answers.
 */
static bool pick_right(struct world *w, const struct object *o, int kind,
                       char uid[ROS2_UID_STR_LEN])
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	const Ros2__V1__ListReply *l;
	ProtobufCMessage *m = NULL;
	struct ros2_uid u = {{0}};
	bool unanswered;
	size_t n;

	q.kind = (Ros2__V1__ObjectKind)kind;
	q.tenant = (char *)(uintptr_t)o->name;
	if (world_call(w, &ros2_v1_admin_list, &q.base, &m, &unanswered, &err) < 0)
		return false;
	l = ros2_v1_admin_list_out(m);
	n = kind == SESSION ? l->n_sessions : l->n_grants;
	if (n) {
		size_t i = world_random(w, n);
		const ProtobufCBinaryData *b =
			kind == SESSION ? &l->sessions[i]->session_uid : &l->grants[i]->grant_uid;

		ros2_uid_from_bytes(b->data, b->len, &u);
	}
	protobuf_c_message_free_unpacked(m, NULL);
	ros2_uid_to_str(&u, uid);
	return n > 0;
}

static void take_right(struct world *w, int kind, const char *uid)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t from;
	bool unanswered;
	int r;

	r = take_away(w, kind, uid, &from, &unanswered, &err);
	if (r < 0 && !unanswered && err.status != ROS2_NOT_FOUND && err.status != ROS2_BAD_SESSION)
		world_fail(w, "the %s %s could not be revoked: %s: %s", kind_word(kind), uid,
		           ros2_status_to_str(err.status), err.msg);
	if (r < 0)
		return;
	if (kind == GRANT)
		fact_get(&w->grants, uid)->seen = 1;
	if (from && kind == GRANT)
		fact_get(&w->grants, uid)->at_ns = from;
	if (from && kind == SESSION)
		fact_get(&w->dead_sessions, uid)->at_ns = from;
}

static void do_right(struct world *w, struct object *o, int kind)
{
	char uid[ROS2_UID_STR_LEN];

	if (pick_right(w, o, kind, uid))
		take_right(w, kind, uid);
}

void ops_take_grant(struct world *w, const char *uid)
{
	take_right(w, GRANT, uid);
}

/* ---- which, when ---- */

static void live_op(struct world *w, struct object *o)
{
	uint64_t dice = world_random(w, 100);

	if (o->revoked) {
		if (clock_boottime_ns() - o->revoked_at_ns > BACK_NS)
			do_reinstate(w, o);
	} else if (dice < 12) {
		do_revoke(w, o);
	} else if (dice < 20) {
		do_delete(w, o);
	} else if (dice < 45) {
		do_right(w, o, SESSION);
	} else if (dice < 65) {
		do_right(w, o, GRANT);
	} else {
		do_apply(w, o);
	}
}

static void plain_op(struct world *w, struct object *o)
{
	uint64_t dice = world_random(w, 100);

	if (dice < 20)
		do_delete(w, o);
	else if (o->kind == AGENT && dice < 60)
		do_token(w, o);
	else if (o->kind == TENANT && dice < 60 && o->revoked)
		do_reinstate(w, o);
	else if (o->kind == TENANT && dice < 60)
		do_revoke(w, o);
	else
		do_apply(w, o);
}

static void one_op(struct world *w)
{
	int first = world_random(w, 4) ? LIVE_TENANTS : 0;
	int n = first ? w->n_objects - LIVE_TENANTS : LIVE_TENANTS;
	struct object *o = &w->object[first + (int)world_random(w, (uint64_t)n)];

	if (o->unsure && ops_look(w, o) < 0)
		return;
	if (!o->present)
		do_apply(w, o);
	else if (o->live >= 0)
		live_op(w, o);
	else
		plain_op(w, o);
}

bool ops_restore(struct world *w)
{
	bool good = true;

	for (int i = 0; i < LIVE_TENANTS; i++) {
		struct object *o = &w->object[i];

		if (o->unsure)
			ops_look(w, o);
		if (!o->unsure && !o->present)
			do_apply(w, o);
		else if (!o->unsure && o->revoked)
			do_reinstate(w, o);
		good &= !o->unsure && o->present && !o->revoked;
	}
	return good;
}

void *ops_main(void *world)
{
	struct world *w = world;

	pthread_mutex_lock(&w->lock);
	while (!w->stopping) {
		if (!w->run_ops) {
			pthread_cond_wait(&w->wake, &w->lock);
			continue;
		}
		one_op(w);
		pthread_mutex_unlock(&w->lock);
		poll(NULL, 0, 15);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

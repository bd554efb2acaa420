/* SPDX-License-Identifier: Apache-2.0 */
/* See witness.h. Runs on the loops' threads, as each message arrives; reads files and the database
 * as another process would. */
#include "tests/faults/witness.h"
#include "agent/snapshot.h"
#include "common/fsx.h"
#include "common/util.h"
#include <sqlite3.h>

#define DELTAS_MAX  64
#define OBJECTS_MAX 16

struct object {
	enum obj_kind kind;
	struct ros2_uid uid;
	uint64_t version;
};

struct witness {
	struct pair *p;
	struct witness_counts n;
	pthread_mutex_t lock;
	struct { /* guarded by lock: of the newest stream, by nonce */
		uint64_t nonce;
		size_t n;
		struct object v[OBJECTS_MAX];
	} deltas[DELTAS_MAX];
};

const struct witness_counts *witness_counts(const struct witness *w)
{
	return &w->n;
}

/* ---- the agent's disk ---- */

struct seek {
	struct object want;
	bool is;
};

static void on_object(void *arg, struct agent_object *o)
{
	struct seek *s = arg;

	s->is |= o->kind == s->want.kind && ros2_uid_eq(&o->uid, &s->want.uid) &&
	         o->version >= s->want.version;
	agent_object_free(o);
}

/* What went came after what is looked for. */
static void on_gone(void *arg, const struct snapshot_gone *g)
{
	struct seek *s = arg;

	s->is |= g->kind == s->want.kind && ros2_uid_eq(&g->uid, &s->want.uid);
}

static bool in_snapshot(struct witness *w, const struct object *o)
{
	struct agent_trust trust = {.agent_uid = w->p->id.agent_uid};
	struct seek s = {.want = *o};
	struct snapshot_reader rd = {.on_object = on_object, .on_gone = on_gone, .arg = &s};
	struct snapshot_info info;
	char path[512];

	memcpy(trust.snapshot_pub, w->p->id.snapshot_pub, ED25519_PUB_LEN);
	snprintf(path, sizeof(path), "%s/snapshot", w->p->dir);
	return snapshot_load(path, &trust, 0, &rd, &info, NULL) >= 0 && s.is;
}

struct seek_tombstone {
	struct ros2_uid revocation;
	bool is;
};

static void on_tombstone(void *arg, const struct tombstone *t)
{
	struct seek_tombstone *s = arg;

	s->is |= ros2_uid_eq(&t->revocation, &s->revocation);
}

static bool in_revocations(struct witness *w, const ProtobufCBinaryData *uid)
{
	struct seek_tombstone s = {0};
	AUTO_FREE void *bytes = NULL;
	char path[512];
	size_t n, good;

	if (ros2_uid_from_bytes(uid->data, uid->len, &s.revocation) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/revocations", w->p->dir);
	if (fsx_read_file(path, 64 << 20, &bytes, &n, NULL) < 0)
		return false;
	revlog_parse(bytes, n, on_tombstone, &s, &good);
	return s.is;
}

/* ---- the controller's ---- */

/* How many rows @sql finds, with two blobs of 16 bytes and a number. */
static int64_t ask(struct witness *w, const char *sql, const void *a, const void *b, uint64_t n)
{
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	int64_t found = -1;
	char path[128];

	snprintf(path, sizeof(path), "%s/ros2.db", w->p->f->dir);
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
	    sqlite3_busy_timeout(db, 2000) == SQLITE_OK &&
	    sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK) {
		sqlite3_bind_blob(st, 1, a, 16, SQLITE_STATIC);
		if (b)
			sqlite3_bind_blob(st, 2, b, 16, SQLITE_STATIC);
		if (n)
			sqlite3_bind_int64(st, 3, (int64_t)n);
		if (sqlite3_step(st) == SQLITE_ROW)
			found = sqlite3_column_int64(st, 0);
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
	return found;
}

/* ---- messages ---- */

static void on_delta(struct witness *w, const Ros2__V1__Delta *d)
{
	size_t slot = d->nonce % DELTAS_MAX;

	pthread_mutex_lock(&w->lock);
	w->deltas[slot].nonce = d->nonce;
	w->deltas[slot].n = 0;
	for (size_t i = 0; i < d->n_upserts; i++) {
		const ProtobufCBinaryData *b = &d->upserts[i]->body;
		Ros2__V1__AgentObject *o = ros2__v1__agent_object__unpack(NULL, b->len, b->data);
		struct object *at = &w->deltas[slot].v[w->deltas[slot].n];

		if (o && w->deltas[slot].n < OBJECTS_MAX &&
		    !ros2_uid_from_bytes(o->uid.data, o->uid.len, &at->uid)) {
			at->kind = (enum obj_kind)o->kind;
			at->version = o->version;
			w->deltas[slot].n++;
		}
		if (o)
			ros2__v1__agent_object__free_unpacked(o, NULL);
	}
	pthread_mutex_unlock(&w->lock);
}

static void on_ack(struct witness *w, const Ros2__V1__Ack *a)
{
	size_t slot = a->nonce % DELTAS_MAX;

	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; w->deltas[slot].nonce == a->nonce && i < w->deltas[slot].n; i++) {
		const struct object *o = &w->deltas[slot].v[i];

		w->n.deltas++;
		/* A grant that was revoked meanwhile was never stored. */
		if (o->kind != OBJ_GRANT && !in_snapshot(w, o))
			pair_wrong(w->p, "delta %llu was acknowledged, version %llu is not on disk",
			           (unsigned long long)a->nonce, (unsigned long long)o->version);
	}
	pthread_mutex_unlock(&w->lock);
}

static void on_state(struct witness *w, const Ros2__V1__ObjectState *s)
{
	struct object o = {.kind = (enum obj_kind)s->kind, .version = s->version};

	/* Grants that were asked for are applied at once: a crash only loses them. */
	if (!s->applied || o.kind == OBJ_GRANT ||
	    ros2_uid_from_bytes(s->uid.data, s->uid.len, &o.uid) < 0)
		return;
	w->n.states++;
	if (!in_snapshot(w, &o))
		pair_wrong(w->p, "version %llu is told applied and is not on disk",
		           (unsigned long long)o.version);
}

static void on_receipt(struct witness *w, const Ros2__V1__Receipt *r)
{
	w->n.receipts++;
	if (r->durable && !in_revocations(w, &r->revocation_uid))
		pair_wrong(w->p, "a receipt says durable, and the revocation is not on disk");
}

static void on_grant(struct witness *w, const Ros2__V1__GrantReply *g)
{
	Ros2__V1__AgentObject *o;

	if (g->status || !g->grant)
		return;
	o = ros2__v1__agent_object__unpack(NULL, g->grant->body.len, g->grant->body.data);
	w->n.grants++;
	if (!o || ask(w, "SELECT count(*) FROM grants WHERE uid = ?1", o->uid.data, NULL, 0) != 1)
		pair_wrong(w->p, "a grant was given that is not in the store");
	if (o)
		ros2__v1__agent_object__free_unpacked(o, NULL);
}

static void on_audit_ack(struct witness *w, const Ros2__V1__AuditAck *a)
{
	w->n.records++;
	if (ask(w,
	        "SELECT count(*) FROM origins WHERE agent_uid = ?1 AND incarnation = ?2 AND seq >= "
	        "?3",
	        w->p->id.agent_uid.b, a->incarnation.data, a->seq) != 1)
		pair_wrong(w->p, "audit records up to %llu were acknowledged, not stored",
		           (unsigned long long)a->seq);
}

static void on_message(void *arg, const char *name, const ProtobufCMessage *m)
{
	const Ros2__V1__ControllerMessage *c = (const Ros2__V1__ControllerMessage *)m;
	const Ros2__V1__AgentMessage *a = (const Ros2__V1__AgentMessage *)m;
	struct witness *w = arg;

	if (!strcmp(name, "ControllerMessage.delta"))
		on_delta(w, c->delta);
	else if (!strcmp(name, "ControllerMessage.grant_reply"))
		on_grant(w, c->grant_reply);
	else if (!strcmp(name, "ControllerMessage.audit_ack"))
		on_audit_ack(w, c->audit_ack);
	else if (!strcmp(name, "AgentMessage.ack"))
		on_ack(w, a->ack);
	else if (!strcmp(name, "AgentMessage.state"))
		on_state(w, a->state);
	else if (!strcmp(name, "AgentMessage.receipt"))
		on_receipt(w, a->receipt);
}

struct witness *witness_new(struct pair *p)
{
	struct witness *w = calloc(1, sizeof(*w));

	w->p = p;
	pthread_mutex_init(&w->lock, NULL);
	cut_witness(on_message, w);
	return w;
}

void witness_free(struct witness *w)
{
	cut_witness(NULL, NULL);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

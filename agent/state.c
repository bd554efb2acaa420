/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the objects and moves them through their states; every move goes through state_move. */
#include "agent/state_priv.h"
#include "common/util.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define OBJECTS_MAX 200000u

const char *obj_state_to_str(enum obj_state s)
{
	static const char *const names[] = {"absent",  "received", "stored",
	                                    "applied", "failed",   "ended"};

	return (size_t)s < ARRAY_SIZE(names) ? names[s] : "?";
}

bool obj_state_legal(enum obj_state from, enum obj_state to)
{
	static const unsigned legal[] = {
		[OBJ_ABSENT] = 1u << OBJ_RECEIVED,
		[OBJ_RECEIVED] = 1u << OBJ_RECEIVED | 1u << OBJ_STORED | 1u << OBJ_ENDED,
		[OBJ_STORED] = 1u << OBJ_APPLIED | 1u << OBJ_FAILED | 1u << OBJ_ENDED,
		[OBJ_APPLIED] = 1u << OBJ_RECEIVED | 1u << OBJ_ENDED,
		[OBJ_FAILED] = 1u << OBJ_RECEIVED | 1u << OBJ_STORED | 1u << OBJ_ENDED,
		[OBJ_ENDED] = 0,
	};

	return (size_t)from < ARRAY_SIZE(legal) && (size_t)to < ARRAY_SIZE(legal) &&
	       (legal[from] & 1u << to);
}

void state_move(struct state *s, struct state_object *o, enum obj_state to)
{
	assert(obj_state_legal(o->st, to));
	o->st = to;
	if (to == OBJ_APPLIED)
		state_tell(s, o);
}

void state_tell(struct state *s, struct state_object *o)
{
	if (list_empty(&o->untold))
		list_add_tail(&s->untold, &o->untold);
	if (s->o.on_untold)
		s->o.on_untold(s->o.arg);
}

struct state_object *state_find(const struct state *s, enum obj_kind kind,
                                const struct ros2_uid *uid)
{
	struct state_key key = {(uint32_t)kind, *uid};
	struct state_object *o;

	HASH_FIND(hh, s->objects, &key, sizeof(key), o);
	return o;
}

/* Ends @o: out of force, then out of memory. */
void state_forget(struct state *s, struct state_object *o)
{
	struct ros2_uid uid = o->key.uid;
	bool tenant = o->key.kind == OBJ_TENANT;

	state_unapply(s, o);
	state_move(s, o, OBJ_ENDED);
	list_del(&o->untold);
	HASH_DEL(s->objects, o);
	if (tenant)
		state_index_principals(s);
	agent_object_free(o->cur);
	agent_object_free(o->next);
	free(o);
	if (tenant && s->o.on_tenant)
		s->o.on_tenant(s->o.arg, &uid);
}

static bool grant_covered(const struct state *s, const struct agent_object *o)
{
	return o->kind == OBJ_GRANT && revlog_covers_grant(s->o.revlog, o);
}

/* A tenant under a tombstone is known and has no rights, whatever its document says. */
static bool mark_revoked(const struct state *s, struct agent_object *o)
{
	if (!o || o->revoked || !revlog_covers_tenant(s->o.revlog, &o->uid, o->version))
		return false;
	o->revoked = true;
	return true;
}

static int receive(struct state *s, struct agent_object *obj, struct ros2_err *err)
{
	struct state_object *o = state_find(s, obj->kind, &obj->uid);

	if (grant_covered(s, obj))
		return ros2_err_named(err, ROS2_REVOKED, "the grant was revoked here");
	if (obj->kind == OBJ_TENANT)
		mark_revoked(s, obj);
	if (o && state_newest(o)->version >= obj->version) {
		if (o->st == OBJ_APPLIED || o->st == OBJ_FAILED)
			state_tell(s, o);
		return 0;
	}
	if (!o) {
		if (HASH_COUNT(s->objects) >= OBJECTS_MAX)
			return ros2_err_named(err, ROS2_LIMIT, "more than %u objects", OBJECTS_MAX);
		o = calloc(1, sizeof(*o));
		if (!o)
			return ros2_err_set(err, -ENOMEM, "no memory for an object");
		o->key = (struct state_key){(uint32_t)obj->kind, obj->uid};
		list_init(&o->untold);
		HASH_ADD(hh, s->objects, key, sizeof(o->key), o);
	}
	if (o->st == OBJ_STORED) /* cannot stay so: applying is synchronous */
		state_move(s, o, OBJ_FAILED);
	state_move(s, o, OBJ_RECEIVED);
	agent_object_free(o->next);
	o->next = obj;
	o->reason[0] = '\0';
	o->store_number = s->store_number;
	state_narrow(s, o);
	return 1;
}

int state_receive(struct state *s, struct agent_object *obj, struct ros2_err *err)
{
	int r = receive(s, obj, err);

	if (r <= 0)
		agent_object_free(obj);
	return r;
}

void state_remove(struct state *s, enum obj_kind kind, const struct ros2_uid *uid, uint64_t version)
{
	struct state_object *o = state_find(s, kind, uid);

	if (o && state_newest(o)->version <= version)
		state_forget(s, o);
}

static void obey_tenant(struct state *s, struct state_object *o)
{
	bool now = mark_revoked(s, o->cur);

	mark_revoked(s, o->next);
	if (now && s->o.on_tenant)
		s->o.on_tenant(s->o.arg, &o->key.uid);
}

static bool grant_is_dead(struct state *s, const struct state_object *o)
{
	const struct agent_object *n = state_newest(o);
	const struct state_object *t = state_find(s, OBJ_TENANT, &n->grant.tenant);

	return grant_covered(s, n) ||
	       (t && t->cur && t->cur->revoked && n->grant.policy_version <= t->cur->version);
}

static void end_dead_grants(struct state *s)
{
	struct state_object *o, *tmp;

	HASH_ITER (hh, s->objects, o, tmp) {
		if (o->key.kind == OBJ_GRANT && grant_is_dead(s, o))
			state_forget(s, o);
	}
}

void state_obey_tombstones(struct state *s)
{
	struct state_object *o, *tmp;

	end_dead_grants(s);
	HASH_ITER (hh, s->objects, o, tmp) {
		if (o->key.kind == OBJ_TENANT)
			obey_tenant(s, o);
	}
}

/* ---- storing ---- */

uint64_t state_store_begin(struct state *s)
{
	return s->store_number++;
}

int state_collect(const struct state *s, const struct agent_object ***ret, size_t *ret_n)
{
	const struct agent_object **v = calloc(HASH_COUNT(s->objects) + 1, sizeof(*v));
	const struct state_object *o;
	size_t n = 0;

	if (!v)
		return -ENOMEM;
	for (o = s->objects; o; o = o->hh.next)
		v[n++] = state_newest(o);
	*ret = v;
	*ret_n = n;
	return 0;
}

static void apply_kind(struct state *s, enum obj_kind kind, uint64_t number, uint64_t now_ns)
{
	struct state_object *o, *tmp;

	HASH_ITER (hh, s->objects, o, tmp) {
		if (o->key.kind != (uint32_t)kind || o->st != OBJ_RECEIVED ||
		    o->store_number > number)
			continue;
		state_move(s, o, OBJ_STORED);
		state_apply(s, o, now_ns);
	}
}

void state_not_stored(struct state *s, const struct ros2_err *why)
{
	struct state_object *o, *tmp;
	char words[sizeof(o->reason)];

	snprintf(words, sizeof(words), "%s: %.180s", ros2_status_to_str(ROS2_NOT_DURABLE),
	         why->msg);
	HASH_ITER (hh, s->objects, o, tmp) {
		if (o->st != OBJ_RECEIVED || !strcmp(words, o->reason))
			continue;
		strcpy(o->reason, words);
		state_tell(s, o);
	}
}

static void retry_failed(struct state *s, uint64_t now_ns)
{
	struct state_object *o, *tmp;

	HASH_ITER (hh, s->objects, o, tmp) {
		if (o->st != OBJ_FAILED || !o->next)
			continue;
		state_move(s, o, OBJ_STORED);
		state_apply(s, o, now_ns);
	}
}

void state_stored(struct state *s, uint64_t number, uint64_t now_ns)
{
	apply_kind(s, OBJ_ENGINE, number, now_ns);
	apply_kind(s, OBJ_TENANT, number, now_ns);
	end_dead_grants(s);
	apply_kind(s, OBJ_GRANT, number, now_ns);
}

int state_apply_grant(struct state *s, const struct ros2_uid *uid, uint64_t now_ns,
                      struct ros2_err *err)
{
	struct state_object *o = state_find(s, OBJ_GRANT, uid);

	if (!o)
		return ros2_err_named(err, ROS2_NO_GRANT, "the grant is not here");
	if (o->st == OBJ_RECEIVED) {
		state_move(s, o, OBJ_STORED);
		state_apply(s, o, now_ns);
	}
	if (o->st != OBJ_APPLIED)
		return ros2_err_named(err, ROS2_NO_GRANT, "the grant cannot be used: %s",
		                      o->reason);
	return 0;
}

void state_sweep(struct state *s, uint64_t now_ns)
{
	struct state_object *o, *tmp;

	HASH_ITER (hh, s->objects, o, tmp) {
		const struct agent_object *n = state_newest(o);
		uint64_t end;

		if (o->key.kind != OBJ_GRANT)
			continue;
		end = clock_add_ns(n->grant.from.boottime_ns,
		                   n->grant.lifetime_ms > UINT64_MAX / NS_PER_MS
		                           ? UINT64_MAX
		                           : n->grant.lifetime_ms * NS_PER_MS);
		if (end <= now_ns || memcmp(n->grant.from.boot_id, s->o.boot_id, 16) != 0)
			state_forget(s, o);
	}
	retry_failed(s, now_ns);
}

/* ---- life ---- */

int state_new(const struct state_opts *o, struct state **ret)
{
	struct state *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->o = *o;
	s->store_number = 1;
	list_init(&s->untold);
	*ret = s;
	return 0;
}

void state_free(struct state *s)
{
	struct state_object *o, *otmp;
	struct state_principal *p, *ptmp;
	struct state_dp_name *n, *ntmp;

	if (!s)
		return;
	HASH_ITER (hh, s->principals, p, ptmp) {
		HASH_DEL(s->principals, p);
		free(p);
	}
	HASH_ITER (hh, s->dp_names, n, ntmp) {
		HASH_DEL(s->dp_names, n);
		free(n);
	}
	HASH_ITER (hh, s->objects, o, otmp) {
		HASH_DEL(s->objects, o);
		agent_object_free(o->cur);
		agent_object_free(o->next);
		free(o);
	}
	free(s);
}

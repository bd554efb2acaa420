/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about the state; nothing here changes what is in force. */
#include "agent/state_priv.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>

static void fill_tenant(const struct state_object *o, struct state_tenant *ret)
{
	ret->uid = o->key.uid;
	strcpy(ret->name, o->cur->name);
	ret->version = o->cur->version;
	ret->revoked = o->cur->revoked;
	ret->image = o->image;
	ret->also = NULL;
	if (!o->narrowed)
		return;
	ret->also = &o->next_image;
	ret->image.require |= ret->also->require;
	ret->image.limits.sessions_max =
		MIN(ret->image.limits.sessions_max, ret->also->limits.sessions_max);
	ret->image.limits.control_verbs_per_s =
		MIN(ret->image.limits.control_verbs_per_s, ret->also->limits.control_verbs_per_s);
	ret->image.limits.contact_limit_ms =
		MIN(ret->image.limits.contact_limit_ms, ret->also->limits.contact_limit_ms);
}

bool state_principal_match(const struct state_tenant *t, const char *spiffe)
{
	return policy_principal_match(&t->image, spiffe) &&
	       (!t->also || policy_principal_match(t->also, spiffe));
}

int state_namespace(const struct state_tenant *t, const char *name, struct policy_namespace *ret)
{
	struct policy_namespace ns, also;

	if (policy_namespace_find(&t->image, name, &ns) < 0)
		return -ENOENT;
	if (t->also) {
		if (policy_namespace_find(t->also, name, &also) < 0 ||
		    strcmp(ns.engine, also.engine) != 0 || strcmp(ns.path, also.path) != 0)
			return -ENOENT;
		ns.access &= also.access;
	}
	*ret = ns;
	return 0;
}

struct policy_verdict state_eval_path(const struct state_tenant *t, const char *ns_name,
                                      const char *path, uint32_t wanted)
{
	struct policy_verdict v = {.allowed = false};
	struct policy_namespace ns;

	if (policy_namespace_find(&t->image, ns_name, &ns) < 0)
		return v;
	v = policy_eval_path(&t->image, &ns, path, wanted);
	if (!v.allowed || !t->also)
		return v;
	if (policy_namespace_find(t->also, ns_name, &ns) < 0)
		return (struct policy_verdict){.allowed = false};
	return policy_eval_path(t->also, &ns, path, wanted);
}

bool state_allows_below(const struct state_tenant *t, const char *ns_name, const char *dir,
                        uint32_t wanted)
{
	struct policy_namespace ns;

	if (policy_namespace_find(&t->image, ns_name, &ns) < 0 ||
	    !policy_allows_below(&t->image, &ns, dir, wanted))
		return false;
	return !t->also || (policy_namespace_find(t->also, ns_name, &ns) == 0 &&
	                    policy_allows_below(t->also, &ns, dir, wanted));
}

int state_tenant_of(const struct state *s, const char *spiffe, struct state_tenant *ret)
{
	const struct state_principal *p;

	HASH_FIND_STR(s->principals, spiffe, p);
	if (!p || !p->tenant->cur || !policy_principal_match(&p->tenant->image, spiffe))
		return -ENOENT;
	if (p->tenants != 1)
		return -EEXIST;
	fill_tenant(p->tenant, ret);
	return state_principal_match(ret, spiffe) ? 0 : -ENOENT;
}

int state_principal_owner(struct state *s, const char *spiffe, struct ros2_uid *ret)
{
	const struct state_principal *p;
	int r = -ENOENT;

	pthread_mutex_lock(&s->principals_lock);
	HASH_FIND_STR(s->principals, spiffe, p);
	if (p && p->tenants == 1) {
		*ret = p->tenant->key.uid;
		r = 0;
	}
	pthread_mutex_unlock(&s->principals_lock);
	return r;
}

int state_tenant_get(const struct state *s, const struct ros2_uid *uid, struct state_tenant *ret)
{
	const struct state_object *o = state_find(s, OBJ_TENANT, uid);

	if (!o || !o->cur)
		return -ENOENT;
	fill_tenant(o, ret);
	return 0;
}

static void fill_grant(const struct state_object *o, struct state_grant *ret)
{
	ret->uid = o->key.uid;
	ret->tenant = o->cur->grant.tenant;
	ret->principal = o->cur->grant.principal;
	ret->deadline_ns = o->deadline_ns;
	ret->policy_version = o->cur->grant.policy_version;
	ret->sessions = o->sessions;
}

int state_grant_get(const struct state *s, const struct ros2_uid *uid, struct state_grant *ret)
{
	const struct state_object *o = state_find(s, OBJ_GRANT, uid);

	if (!o || !o->cur)
		return -ENOENT;
	fill_grant(o, ret);
	return 0;
}

int state_grant_idle(const struct state *s, const struct ros2_uid *tenant, const char *principal,
                     uint64_t now_ns, struct ros2_uid *ret)
{
	char key[ROS2_UID_LEN + ROS2_SPIFFE_MAX];
	size_t len = state_owner_key(tenant, principal, key);
	const struct state_object *last;
	const struct state_owner *w;

	HASH_FIND(hh, s->owners, key, len, w);
	if (!w || list_empty(&w->idle))
		return -ENOENT;
	last = list_entry(w->idle.prev, struct state_object, idle);
	if (last->deadline_ns <= now_ns)
		return -ENOENT;
	*ret = last->key.uid;
	return 0;
}

int state_grant_spare(const struct state *s, const struct ros2_uid *tenant, struct ros2_uid *ret,
                      uint64_t *ret_version)
{
	const struct state_grants *g = state_grants_of(s, tenant);
	const struct state_object *o, *first = NULL;

	if (!g)
		return -ENOENT;
	list_for_each (&g->all, o, of_tenant) {
		if (o->sessions || (!o->cur && o->st != OBJ_FAILED))
			continue;
		/* One that is not in force has no end, so it goes first. */
		if (!first || o->deadline_ns < first->deadline_ns)
			first = o;
	}
	if (!first)
		return -ENOENT;
	*ret = first->key.uid;
	*ret_version = state_newest(first)->version;
	return 0;
}

void state_grant_use(struct state *s, const struct ros2_uid *uid, int delta)
{
	struct state_object *o = state_find(s, OBJ_GRANT, uid);

	if (!o || (delta < 0 && !o->sessions))
		return;
	o->sessions += (uint32_t)delta;
	if (o->cur)
		state_index_grant(s, o);
}

void state_each_have(const struct state *s, void (*fn)(void *arg, const struct state_have *h),
                     void *arg)
{
	const struct state_object *o;

	for (o = s->objects; o; o = o->hh.next) {
		struct state_have h = {(enum obj_kind)o->key.kind, o->key.uid,
		                       state_newest(o)->version};

		fn(arg, &h);
	}
}

size_t state_grants_in_use(const struct state *s, size_t skip, struct ros2_uid *out, size_t max)
{
	const struct state_object *o;
	size_t n = 0;

	for (o = s->objects; o && n < max; o = o->hh.next) {
		if (o->key.kind != OBJ_GRANT || !o->cur || !o->sessions)
			continue;
		if (skip) {
			skip--;
			continue;
		}
		out[n++] = o->key.uid;
	}
	return n;
}

static bool is_within(const char *name, const char *path)
{
	size_t n = strlen(path);

	return !strncmp(name, path, n) && (!name[n] || name[n] == '/');
}

static bool has_volume(const struct policy_nvmf *n, const struct policy_volume *v)
{
	for (uint32_t i = 0; i < n->n_volumes; i++) {
		const struct policy_volume *w = &n->volumes[i];

		if (!strcmp(w->name, v->name))
			return w->nsid == v->nsid && w->offset == v->offset && w->size == v->size;
	}
	return false;
}

/* What @path shows by the older one is what it shows by the newer one, or a part of it. */
static bool same_volumes(const struct policy_nvmf *now, const struct policy_nvmf *next,
                         const char *path)
{
	for (uint32_t i = 0; i < now->n_volumes; i++)
		if (is_within(now->volumes[i].name, path) && !has_volume(next, &now->volumes[i]))
			return false;
	return !strcmp(now->subsystem, next->subsystem);
}

/* Of one whose newer document waits: does the path lead to the same storage by both? */
static bool same_place(const struct state_object *o, const char *path)
{
	const struct agent_object *cur = o->cur, *newer = o->next;
	struct policy_image_engine now, next;

	if (!newer)
		return true;
	if (policy_image_open_engine(cur->image, cur->image_len, &now, NULL) < 0 ||
	    policy_image_open_engine(newer->image, newer->image_len, &next, NULL) < 0 ||
	    now.type != next.type || strcmp(now.root, next.root) != 0)
		return false;
	return now.type != POLICY_ENGINE_NVMF || same_volumes(&now.nvmf, &next.nvmf, path);
}

int state_engine_in_force(const struct state *s, const char *name, const char *path,
                          struct ros2_err *err)
{
	const struct state_object *o, *named = NULL;

	list_for_each (&s->kinds[OBJ_ENGINE], o, of_kind) {
		if (strcmp(state_newest(o)->name, name) != 0)
			continue;
		named = o;
		if (o->cur && same_place(o, path))
			return 0;
	}
	return ros2_err_named(err, ROS2_UNAVAILABLE, "engine %s is not in force at this agent%s%s",
	                      name, named && named->reason[0] ? ": " : "",
	                      named ? named->reason : "");
}

enum policy_transport state_engine_transport(const struct state *s, const char *name)
{
	const struct state_object *o;

	list_for_each (&s->kinds[OBJ_ENGINE], o, of_kind)
		if (o->cur && o->transport && !strcmp(o->cur->name, name))
			return o->transport;
	return (enum policy_transport)0;
}

bool state_next_untold(struct state *s, struct state_report *ret)
{
	const struct state_object *o;

	if (list_empty(&s->untold))
		return false;
	o = list_first(&s->untold, struct state_object, untold);
	ret->applied = o->st == OBJ_APPLIED;
	ret->what = (struct state_have){(enum obj_kind)o->key.kind, o->key.uid,
	                                state_newest(o)->version};
	snprintf(ret->reason, sizeof(ret->reason), "%s", o->reason);
	return true;
}

void state_told(struct state *s, const struct state_report *r)
{
	struct state_object *o = state_find(s, r->what.kind, &r->what.uid);

	if (o && state_newest(o)->version == r->what.version)
		list_del(&o->untold);
}

void state_untell_all(struct state *s)
{
	struct state_object *o;

	for (o = s->objects; o; o = o->hh.next)
		if ((o->st == OBJ_APPLIED || o->st == OBJ_FAILED || o->reason[0]) &&
		    list_empty(&o->untold))
			list_add_tail(&s->untold, &o->untold);
}

void state_counts(const struct state *s, struct state_counts *ret)
{
	const struct state_object *o;

	*ret = (struct state_counts){0};
	for (o = s->objects; o; o = o->hh.next) {
		ret->failed += o->st == OBJ_FAILED;
		ret->tenants += o->key.kind == OBJ_TENANT;
		ret->engines += o->key.kind == OBJ_ENGINE;
		ret->grants += o->key.kind == OBJ_GRANT;
	}
}

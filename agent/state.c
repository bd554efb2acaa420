/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the objects and moves them through their states; every move goes through state_move. */
#include "agent/state_priv.h"
#include "common/utf8.h"
#include "common/util.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define ENTRY_BYTES  8u /* what frames an object on disk */
#define STORED(size) ((size) + ENTRY_BYTES)

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
	list_del(&o->pending);
	if (to == OBJ_RECEIVED)
		list_add_tail(&s->pending, &o->pending);
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

static void note_removal(struct state *s, const struct state_object *o)
{
	struct state_removal *r = calloc(1, sizeof(*r));

	if (!r) {
		s->save_all = true;
		return;
	}
	r->what = (struct state_have){(enum obj_kind)o->key.kind, o->key.uid,
	                              MAX(o->highest, state_newest(o)->version)};
	list_add_tail(&s->removals, &r->link);
}

/* ---- the grants of a tenant ---- */

struct state_grants *state_grants_of(const struct state *s, const struct ros2_uid *tenant)
{
	struct state_grants *g;

	HASH_FIND(hh, s->grants, tenant, sizeof(*tenant), g);
	return g;
}

/* False: no memory. */
static bool grants_join(struct state *s, struct state_object *o, const struct ros2_uid *tenant)
{
	struct state_grants *g = state_grants_of(s, tenant);

	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return false;
		g->tenant = *tenant;
		list_init(&g->all);
		HASH_ADD(hh, s->grants, tenant, sizeof(g->tenant), g);
		if (!HASH_TOOK(hh, g)) {
			free(g);
			return false;
		}
	}
	o->grants = g;
	list_add_tail(&g->all, &o->of_tenant);
	return true;
}

static void grants_leave(struct state *s, struct state_object *o)
{
	struct state_grants *g = TAKE_PTR(o->grants);

	list_del(&o->of_tenant);
	if (!g || !list_empty(&g->all))
		return;
	HASH_DEL(s->grants, g);
	free(g);
}

/* Ends @o: out of force, then out of memory. */
static void forget(struct state *s, struct state_object *o, bool note)
{
	struct ros2_uid uid = o->key.uid;
	bool tenant = o->key.kind == OBJ_TENANT;

	if (note)
		note_removal(s, o);
	s->bytes -= STORED(state_newest(o)->sealed_len);
	list_del(&o->unsaved);
	list_del(&o->of_kind);
	state_unapply(s, o);
	state_move(s, o, OBJ_ENDED);
	list_del(&o->untold);
	grants_leave(s, o);
	HASH_DEL(s->objects, o);
	agent_object_free(o->cur);
	agent_object_free(o->next);
	free(o);
	if (tenant && s->o.on_tenant)
		s->o.on_tenant(s->o.arg, &uid);
}

void state_forget(struct state *s, struct state_object *o)
{
	forget(s, o, true);
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

static struct state_object *make(struct state *s, const struct agent_object *obj)
{
	struct state_object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->key = (struct state_key){(uint32_t)obj->kind, obj->uid};
	list_init(&o->untold);
	list_init(&o->pending);
	list_init(&o->unsaved);
	list_init(&o->idle);
	list_init(&o->of_tenant);
	if (obj->kind == OBJ_GRANT && !grants_join(s, o, &obj->grant.tenant)) {
		free(o);
		return NULL;
	}
	HASH_ADD(hh, s->objects, key, sizeof(o->key), o);
	if (!HASH_TOOK(hh, o)) {
		grants_leave(s, o);
		free(o);
		return NULL;
	}
	list_add_tail(&s->kinds[obj->kind], &o->of_kind);
	return o;
}

/* A controller of a later epoch may run on a backup: what it says of a grant has numbers that were
 * given out before, and counts. Of documents it has what is here, or is not let in (its hello). */
static bool is_newer(const struct agent_object *obj, const struct agent_object *than)
{
	if (obj->kind == OBJ_GRANT && obj->epoch.counter != than->epoch.counter)
		return obj->epoch.counter > than->epoch.counter;
	return obj->version > than->version;
}

static int receive(struct state *s, struct agent_object *obj, struct ros2_err *err)
{
	struct state_object *o = state_find(s, obj->kind, &obj->uid);

	if (grant_covered(s, obj))
		return ros2_err_named(err, ROS2_REVOKED, "the grant was revoked here");
	if (obj->kind == OBJ_TENANT)
		mark_revoked(s, obj);
	if (o && !is_newer(obj, state_newest(o))) {
		if (o->st == OBJ_APPLIED || o->st == OBJ_FAILED)
			state_tell(s, o);
		return 0;
	}
	if (!o) {
		if (HASH_COUNT(s->objects) >= STATE_OBJECTS_MAX)
			return ros2_err_named(err, ROS2_LIMIT, "more than %u objects (fixed)",
			                      STATE_OBJECTS_MAX);
		o = make(s, obj);
		if (!o)
			return ros2_err_set(err, -ENOMEM, "no memory for an object");
	} else {
		s->bytes -= STORED(state_newest(o)->sealed_len);
		o->highest = MAX(o->highest, state_newest(o)->version);
	}
	s->bytes += STORED(obj->sealed_len);
	/* The write that is under way has the older one in it. */
	o->on_disk |= o->being_saved;
	o->being_saved = false;
	list_del(&o->unsaved);
	list_add_tail(&s->unsaved, &o->unsaved);
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

	list_for_each_safe (&s->kinds[OBJ_GRANT], o, tmp, of_kind) {
		if (grant_is_dead(s, o))
			state_forget(s, o);
	}
}

void state_obey_tombstones(struct state *s)
{
	struct state_object *o, *tmp;

	end_dead_grants(s);
	s->recheck_grants = false;
	list_for_each_safe (&s->kinds[OBJ_TENANT], o, tmp, of_kind)
		obey_tenant(s, o);
}

/* The last one takes the list with it. */
static void end_dead_of(struct state *s, struct state_grants *g)
{
	struct list *head = &g->all, *at, *next;

	for (at = head->next; at != head; at = next) {
		struct state_object *o = list_entry(at, struct state_object, of_tenant);

		next = at->next;
		if (grant_is_dead(s, o))
			state_forget(s, o);
	}
}

/* Many tenants may be revoked at once. */
static void obey_of_tenant(struct state *s, const struct ros2_uid *tenant)
{
	struct state_grants *g = state_grants_of(s, tenant);
	struct state_object *o;

	if (g)
		end_dead_of(s, g);
	o = state_find(s, OBJ_TENANT, tenant);
	if (o)
		obey_tenant(s, o);
}

void state_obey(struct state *s, const struct tombstone *t)
{
	struct state_object *o;

	if (t->kind == OBJ_SESSION)
		return;
	if (t->kind == OBJ_TENANT) {
		obey_of_tenant(s, &t->uid);
		return;
	}
	if (t->kind != OBJ_GRANT) {
		state_obey_tombstones(s);
		return;
	}
	o = state_find(s, OBJ_GRANT, &t->uid);
	if (o && grant_is_dead(s, o))
		state_forget(s, o);
}

static void revoke_up_to(struct agent_object *o, uint64_t version)
{
	if (o && o->version <= version)
		o->revoked = true;
}

/* What end_dead_grants() takes from the log, told by the tombstone itself. */
static bool ends_grant(const struct tombstone *t, const struct state_object *o)
{
	const struct agent_object *n = state_newest(o);

	switch (t->kind) {
	case OBJ_AGENT:
		return true;
	case OBJ_GRANT:
		return ros2_uid_eq(&n->uid, &t->uid);
	case OBJ_TENANT:
		return ros2_uid_eq(&n->grant.tenant, &t->uid) &&
		       n->grant.policy_version <= t->version;
	default:
		return false;
	}
}

void state_obey_unheld(struct state *s, const struct tombstone *t)
{
	struct state_object *o, *tmp;

	list_for_each_safe (&s->kinds[OBJ_GRANT], o, tmp, of_kind)
		if (ends_grant(t, o))
			state_forget(s, o);
	/* Sessions the data plane knows by their own uids. */
	o = t->kind == OBJ_TENANT ? state_find(s, OBJ_TENANT, &t->uid) : NULL;
	if (!o)
		return;
	revoke_up_to(o->cur, t->version);
	revoke_up_to(o->next, t->version);
	if (s->o.on_tenant)
		s->o.on_tenant(s->o.arg, &t->uid);
}

/* ---- storing ---- */

static void splice_tail(struct list *to, struct list *from)
{
	while (!list_empty(from)) {
		struct list *l = from->next;

		list_del(l);
		list_add_tail(to, l);
	}
}

static void drop_removals(struct list *l)
{
	while (!list_empty(l)) {
		struct state_removal *r = list_first(l, struct state_removal, link);

		list_del(&r->link);
		free(r);
	}
}

static void mark_saving(struct state *s, bool is)
{
	struct state_object *o;

	list_for_each (&s->saving, o, unsaved)
		o->being_saved = is;
}

uint64_t state_store_begin(struct state *s)
{
	splice_tail(&s->saving, &s->unsaved);
	mark_saving(s, true);
	splice_tail(&s->removing, &s->removals);
	s->saving_all = s->save_all;
	s->save_all = false;
	return s->store_number++;
}

static size_t length(const struct list *l)
{
	size_t n = 0;

	for (const struct list *at = l->next; at != l; at = at->next)
		n++;
	return n;
}

int state_changes(const struct state *s, struct state_changes *ret)
{
	struct state_changes c = {0};
	const struct state_object *o;
	const struct state_removal *r;

	if (s->save_all)
		return -ENOTSUP;
	c.v = calloc(length(&s->unsaved) + 1, sizeof(*c.v));
	c.gone = calloc(length(&s->removals) + 1, sizeof(*c.gone));
	if (!c.v || !c.gone) {
		state_changes_fini(&c);
		return -ENOMEM;
	}
	list_for_each (&s->unsaved, o, unsaved)
		c.v[c.n++] = state_newest(o);
	list_for_each (&s->removals, r, link)
		c.gone[c.n_gone++] = r->what;
	*ret = c;
	return 0;
}

void state_changes_fini(struct state_changes *c)
{
	free(c->v);
	free(c->gone);
	*c = (struct state_changes){0};
}

uint64_t state_bytes(const struct state *s)
{
	return s->bytes;
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

	list_for_each_safe (&s->pending, o, tmp, pending) {
		if (o->key.kind != (uint32_t)kind || o->store_number > number)
			continue;
		if (kind == OBJ_GRANT && grant_is_dead(s, o)) {
			state_forget(s, o);
			continue;
		}
		state_move(s, o, OBJ_STORED);
		state_apply(s, o, now_ns);
	}
}

void state_words(char *out, size_t size, enum ros2_status status, const char *msg)
{
	snprintf(out, size, "%s: %.180s", ros2_status_to_str(status), msg);
	utf8_clean(out);
}

void state_not_stored(struct state *s, const struct ros2_err *why)
{
	struct state_object *o, *tmp;
	char words[sizeof(o->reason)];

	state_words(words, sizeof(words), ROS2_NOT_DURABLE, why->msg);
	mark_saving(s, false);
	splice_tail(&s->unsaved, &s->saving);
	splice_tail(&s->removals, &s->removing);
	s->save_all |= s->saving_all;
	list_for_each_safe (&s->pending, o, tmp, pending) {
		if (!strcmp(words, o->reason))
			continue;
		strcpy(o->reason, words);
		state_tell(s, o);
	}
}

static bool has_older_on_disk(const struct list *unsaved)
{
	const struct state_object *o;

	list_for_each (unsaved, o, unsaved)
		if (o->on_disk && o->key.kind != OBJ_GRANT)
			return true;
	return false;
}

bool state_takes_away(const struct state *s)
{
	return s->save_all || s->saving_all || !list_empty(&s->removals) ||
	       !list_empty(&s->removing) || has_older_on_disk(&s->unsaved) ||
	       has_older_on_disk(&s->saving);
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
	struct list saved;

	list_init(&saved);
	mark_saving(s, false);
	splice_tail(&saved, &s->saving);
	while (!list_empty(&saved)) {
		list_first(&saved, struct state_object, unsaved)->on_disk = true;
		list_del(saved.next);
	}
	drop_removals(&s->removing);
	s->saving_all = false;
	apply_kind(s, OBJ_ENGINE, number, now_ns);
	apply_kind(s, OBJ_TENANT, number, now_ns);
	if (s->recheck_grants)
		end_dead_grants(s);
	s->recheck_grants = false;
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

	list_for_each_safe (&s->kinds[OBJ_GRANT], o, tmp, of_kind) {
		const struct agent_object *n = state_newest(o);
		uint64_t end;

		end = clock_add_ns(n->grant.from.boottime_ns,
		                   n->grant.lifetime_ms > UINT64_MAX / NS_PER_MS
		                           ? UINT64_MAX
		                           : n->grant.lifetime_ms * NS_PER_MS);
		if (end <= now_ns || memcmp(n->grant.from.boot_id, s->o.boot_id, 16) != 0)
			/* Where it is on disk its time is over wherever it is read: that need not
			 * hear of it. */
			forget(s, o, o->on_disk && !list_empty(&o->unsaved));
	}
	state_leavers_again(s);
	retry_failed(s, now_ns);
	if (s->index_again)
		state_index_principals(s);
}

/* ---- life ---- */

int state_new(const struct state_opts *o, struct state **ret)
{
	struct state *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->o = *o;
	s->store_number = 1;
	pthread_mutex_init(&s->principals_lock, NULL);
	list_init(&s->untold);
	list_init(&s->pending);
	list_init(&s->unsaved);
	list_init(&s->saving);
	list_init(&s->removals);
	list_init(&s->removing);
	list_init(&s->leavers);
	for (size_t i = 0; i < ARRAY_SIZE(s->kinds); i++)
		list_init(&s->kinds[i]);
	*ret = s;
	return 0;
}

void state_free(struct state *s)
{
	struct state_object *o, *otmp;
	struct state_principal *p, *ptmp;
	struct state_dp_name *n, *ntmp;
	struct state_owner *w, *wtmp;
	struct state_grants *g, *gtmp;
	struct state_leaver *l, *ltmp;

	if (!s)
		return;
	drop_removals(&s->removals);
	drop_removals(&s->removing);
	list_for_each_safe (&s->leavers, l, ltmp, link)
		state_leaver_free(l);
	HASH_ITER (hh, s->owners, w, wtmp) {
		HASH_DEL(s->owners, w);
		free(w);
	}
	HASH_ITER (hh, s->grants, g, gtmp) {
		HASH_DEL(s->grants, g);
		free(g);
	}
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
	pthread_mutex_destroy(&s->principals_lock);
	free(s);
}

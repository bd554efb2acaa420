/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings objects into force in the data plane, and out of it. An image is opened (every byte of it
 * checked) before any of it is used; an image that names another object than its envelope is
 * refused.
 */
#include "agent/state_priv.h"
#include "agent/test_switches.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <errno.h>
#include <stdio.h>

_Static_assert(POLICY_NQN_MAX == NVMF_NQN_MAX && POLICY_ADDRESS_MAX == NVMF_ADDRESS_MAX &&
                       POLICY_SECRET_NAME_MAX == NVMF_SECRET_NAME_MAX &&
                       POLICY_VOLUME_NAME_MAX == NVMF_VOLUME_NAME_MAX &&
                       POLICY_VOLUMES_MAX == NVMF_VOLUMES_MAX,
               "what a document may say has room in the data plane");
_Static_assert((int)POLICY_TRANSPORT_TCP == (int)NVMF_TCP &&
                       (int)POLICY_TRANSPORT_RDMA == (int)NVMF_RDMA,
               "one numbering of transports");

static void nvmf_of(const struct policy_nvmf *p, struct nvmf_config *c)
{
	*c = (struct nvmf_config){
		.transport = (enum nvmf_transport)p->transport,
		.port = (uint16_t)p->port,
		.header_digest = p->header_digest,
		.data_digest = p->data_digest,
		.keys_per_command = p->keys_per_command,
		.queue_depth = p->queue_depth,
		.keep_alive_ms = p->keep_alive_ms,
		.command_timeout_ms = p->command_timeout_ms,
		.quiesce_ms = p->quiesce_ms,
		.n_volumes = p->n_volumes,
	};
	strcpy(c->address, p->address);
	strcpy(c->subsystem, p->subsystem);
	strcpy(c->host_nqn, p->host_nqn);
	strcpy(c->secret, p->secret);
	strcpy(c->target_secret, p->target_secret);
	for (uint32_t i = 0; i < p->n_volumes; i++) {
		const struct policy_volume *v = &p->volumes[i];

		c->volumes[i].nsid = v->nsid;
		c->volumes[i].offset = v->offset;
		c->volumes[i].size = v->size;
		strcpy(c->volumes[i].name, v->name);
	}
}

void state_leaver_free(struct state_leaver *l)
{
	list_del(&l->link);
	free(l);
}

/* Without memory it stays in the data plane, where no mount reaches it (state_engine_in_force). */
static void leave_later(struct state *s, const char *name)
{
	struct state_leaver *l = calloc(1, sizeof(*l));

	if (!l)
		return;
	strcpy(l->name, name);
	list_add_tail(&s->leavers, &l->link);
}

void state_leavers_again(struct state *s)
{
	struct state_leaver *l, *tmp;
	struct ros2_err err = ROS2_ERR_INIT;

	list_for_each_safe (&s->leavers, l, tmp, link)
		if (dp_engine_remove(s->o.dp, l->name, &err) == 0 || err.status != ROS2_BUSY)
			state_leaver_free(l);
}

/* The name is another's now. */
static void stays(struct state *s, const char *name)
{
	struct state_leaver *l, *tmp;

	list_for_each_safe (&s->leavers, l, tmp, link)
		if (!strcmp(l->name, name))
			state_leaver_free(l);
}

static void remove_engine(struct state *s, const char *name)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (s->o.on_engine_gone)
		s->o.on_engine_gone(s->o.arg, name);
	if (dp_engine_remove(s->o.dp, name, &err) < 0 && err.status == ROS2_BUSY)
		leave_later(s, name);
}

static int apply_engine(struct state *s, struct state_object *o, struct ros2_err *err)
{
	const struct agent_object *n = o->next;
	struct policy_image_engine img;
	struct dp_engine_config c;
	struct nvmf_config nvmf;
	int r = policy_image_open_engine(n->image, n->image_len, &img, err);

	if (r < 0)
		return r;
	if (!ros2_uid_eq(&img.uid, &n->uid) || strcmp(img.name, n->name) != 0)
		return ros2_err_named(err, ROS2_CORRUPT, "the image is of another engine");
	c = (struct dp_engine_config){.name = img.name,
	                              .type = policy_engine_type_to_str(img.type),
	                              .root = img.root,
	                              .size_bytes = img.size_bytes,
	                              .null_mode = img.null_mode,
	                              .io_features = s->o.io_features};
	if (img.type == POLICY_ENGINE_NVMF) {
		nvmf_of(&img.nvmf, &nvmf);
		c.nvmf = &nvmf;
	}
	r = dp_engine_put(s->o.dp, &c, err);
	if (r < 0)
		return r;
	o->transport = img.nvmf.transport;
	stays(s, img.name);
	return 0;
}

static void limits_of(const struct policy_limits *p, struct dp_tenant_limits *l)
{
	*l = (struct dp_tenant_limits){
		.registered_bytes = p->registered_bytes,
		.region_size_min = p->region_size_min,
		.region_size_max = p->region_size_max,
		.region_alignment = p->region_alignment,
		.regions = p->regions,
		.rkeys_concurrent = p->leases_max,
		.sessions_max = p->sessions_max,
		.access = p->region_access,
		.lease_ttl_ms = p->lease_ttl_ms,
		.contact_limit_ms = p->contact_limit_ms,
		.violations_limit = p->violations_limit,
		.violations_kill = p->violations_action == POLICY_VIOLATION_KILL,
		.read_bytes_per_s = p->read.bytes_per_s,
		.write_bytes_per_s = p->write.bytes_per_s,
		.read_iops = p->read.ops_per_s,
		.write_iops = p->write.ops_per_s,
		.burst_ms = p->burst_ms,
	};
}

/* The callback of ends that nobody waits for. */
static void ignore(void *arg, const struct dp_result *res)
{
}

static struct state_dp_name *dp_name(const struct state *s, const struct ros2_uid *tenant)
{
	struct state_dp_name *n;

	HASH_FIND(hh, s->dp_names, tenant, sizeof(*tenant), n);
	return n;
}

struct ros2_uid state_dp_uid(const struct state *s, const struct ros2_uid *tenant)
{
	const struct state_dp_name *n = dp_name(s, tenant);

	return n ? n->dp : *tenant;
}

struct ros2_uid state_of_dp_uid(const struct state *s, const struct ros2_uid *dp_uid)
{
	const struct state_dp_name *n;

	for (n = s->dp_names; n; n = n->hh.next)
		if (ros2_uid_eq(&n->dp, dp_uid))
			return n->tenant;
	return *dp_uid;
}

void state_dp_withdrawn(struct state *s, const struct ros2_uid *tenant)
{
	struct state_dp_name *n = dp_name(s, tenant);

	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n)
			return; /* putting it again fails REVOKED: denied, not revived */
		n->tenant = n->dp = *tenant;
		HASH_ADD(hh, s->dp_names, tenant, sizeof(n->tenant), n);
		if (!HASH_TOOK(hh, n)) {
			free(n);
			return; /* likewise */
		}
	}
	n->withdrawn = true;
}

void state_dp_uid_live(struct state *s, const struct ros2_uid *tenant, struct ros2_uid *ret)
{
	struct state_dp_name *n = dp_name(s, tenant);

	if (n && n->withdrawn) {
		n->dp = ros2_uid_new();
		n->withdrawn = false;
	}
	*ret = n ? n->dp : *tenant;
}

/* Takes a tenant's rights out of the data plane, once. */
static void withdraw(struct state *s, const struct ros2_uid *tenant)
{
	const struct state_dp_name *n = dp_name(s, tenant);
	struct ros2_uid dp = state_dp_uid(s, tenant);

	if (n && n->withdrawn)
		return;
	/* Not held: what it names there is withdrawn all the same, and what it does not name comes
	 * back by a newer message of the controller only. */
	(void)dp_revoke(s->o.dp, DP_SCOPE_TENANT, &dp, clock_boottime_ns(), ROS2_REVOKED, ignore,
	                NULL);
	state_dp_withdrawn(s, tenant);
}

static int open_tenant(const struct agent_object *n, struct policy_image_tenant *ret,
                       struct ros2_err *err)
{
	int r = policy_image_open_tenant(n->image, n->image_len, ret, err);

	if (r < 0)
		return r;
	if (!ros2_uid_eq(&ret->uid, &n->uid) || strcmp(ret->name, n->name) != 0)
		return ros2_err_named(err, ROS2_CORRUPT, "the image is of another tenant");
	return 0;
}

/* 0 is no limit. */
static uint64_t lower(uint64_t a, uint64_t b)
{
	return !a || !b ? MAX(a, b) : MIN(a, b);
}

/* Of each limit the one that allows less. */
static void limits_narrow(struct dp_tenant_limits *l, const struct dp_tenant_limits *by)
{
	l->registered_bytes = MIN(l->registered_bytes, by->registered_bytes);
	l->region_size_min = MAX(l->region_size_min, by->region_size_min);
	l->region_size_max = MIN(l->region_size_max, by->region_size_max);
	l->region_alignment = MAX(l->region_alignment, by->region_alignment);
	l->regions = MIN(l->regions, by->regions);
	l->rkeys_concurrent = MIN(l->rkeys_concurrent, by->rkeys_concurrent);
	l->sessions_max = MIN(l->sessions_max, by->sessions_max);
	l->access &= by->access;
	l->lease_ttl_ms = MIN(l->lease_ttl_ms, by->lease_ttl_ms);
	l->contact_limit_ms = MIN(l->contact_limit_ms, by->contact_limit_ms);
	l->violations_limit = (uint32_t)lower(l->violations_limit, by->violations_limit);
	l->violations_kill |= by->violations_kill;
	l->read_bytes_per_s = lower(l->read_bytes_per_s, by->read_bytes_per_s);
	l->write_bytes_per_s = lower(l->write_bytes_per_s, by->write_bytes_per_s);
	l->read_iops = lower(l->read_iops, by->read_iops);
	l->write_iops = lower(l->write_iops, by->write_iops);
	l->burst_ms = MIN(l->burst_ms, by->burst_ms);
}

static void narrow_limits(struct state *s, const struct state_object *o)
{
	struct dp_tenant_limits l, by;
	struct ros2_uid uid = state_dp_uid(s, &o->key.uid);
	struct ros2_err err = ROS2_ERR_INIT;

	limits_of(&o->image.limits, &l);
	limits_of(&o->next_image.limits, &by);
	limits_narrow(&l, &by);
	if (dp_tenant_put(s->o.dp, &uid, o->cur->name, &l, &err) < 0)
		withdraw(s, &o->key.uid);
}

void state_narrow(struct state *s, struct state_object *o)
{
	o->narrowed = false;
	if (o->key.kind != OBJ_TENANT || !o->cur)
		return;
	if (o->next->revoked) {
		withdraw(s, &o->key.uid);
		o->cur->revoked = true;
		s->recheck_grants = true;
	} else if (open_tenant(o->next, &o->next_image, NULL) == 0) {
		o->narrowed = true;
		if (!o->cur->revoked)
			narrow_limits(s, o);
	}
	if (s->o.on_tenant)
		s->o.on_tenant(s->o.arg, &o->key.uid);
}

static int apply_tenant(struct state *s, struct state_object *o, struct ros2_err *err)
{
	const struct agent_object *n = o->next;
	struct policy_image_tenant img;
	struct dp_tenant_limits l;
	struct ros2_uid uid;
	int r = open_tenant(n, &img, err);

	if (r < 0)
		return r;
	if (n->revoked) {
		withdraw(s, &n->uid);
	} else {
		limits_of(&img.limits, &l);
		state_dp_uid_live(s, &n->uid, &uid);
		r = dp_tenant_put(s->o.dp, &uid, n->name, &l, err);
		/* Withdrawn when there was no memory to note it: the retry takes a new uid. */
		if (r < 0 && err->status == ROS2_REVOKED)
			state_dp_withdrawn(s, &n->uid);
		if (r < 0)
			return r;
	}
	o->image = img;
	o->narrowed = false;
	return 0;
}

/* ---- the index of grants ---- */

size_t state_owner_key(const struct ros2_uid *tenant, const char *principal,
                       char key[ROS2_UID_LEN + ROS2_SPIFFE_MAX])
{
	size_t len = strnlen(principal, ROS2_SPIFFE_MAX);

	memset(key, 0, ROS2_UID_LEN);
	if (!AGENT_SWITCH(no_grant_tenant))
		memcpy(key, tenant->b, ROS2_UID_LEN);
	memcpy(key + ROS2_UID_LEN, principal, len);
	return ROS2_UID_LEN + len;
}

static struct state_owner *owner_of(struct state *s, const struct agent_grant_body *g)
{
	char key[ROS2_UID_LEN + ROS2_SPIFFE_MAX];
	size_t len = state_owner_key(&g->tenant, g->principal, key);
	struct state_owner *w;

	HASH_FIND(hh, s->owners, key, len, w);
	if (w)
		return w;
	w = calloc(1, sizeof(*w) + len);
	if (!w)
		return NULL; /* not found as idle: another one is asked for */
	list_init(&w->idle);
	w->key_len = len;
	memcpy(w->key, key, len);
	HASH_ADD_KEYPTR(hh, s->owners, w->key, len, w);
	if (!HASH_TOOK(hh, w)) {
		free(w);
		return NULL;
	}
	return w;
}

void state_unindex_grant(struct state *s, struct state_object *o)
{
	struct state_owner *w = TAKE_PTR(o->owner);

	list_del(&o->idle);
	if (!w || --w->grants)
		return;
	HASH_DEL(s->owners, w);
	free(w);
}

void state_index_grant(struct state *s, struct state_object *o)
{
	struct state_owner *w = owner_of(s, &o->cur->grant);
	struct list *at;

	if (w && w != o->owner)
		w->grants++;
	if (w != o->owner) {
		state_unindex_grant(s, o);
		o->owner = w;
	}
	list_del(&o->idle);
	if (!w || o->sessions)
		return;
	/* Usually the newest one ends last. */
	for (at = w->idle.prev; at != &w->idle; at = at->prev)
		if (list_entry(at, struct state_object, idle)->deadline_ns <= o->deadline_ns)
			break;
	list_add_head(at, &o->idle);
}

static int apply_grant(struct state *s, struct state_object *o, uint64_t now_ns,
                       struct ros2_err *err)
{
	const struct agent_grant_body *g = &o->next->grant;
	const struct state_object *t = state_find(s, OBJ_TENANT, &g->tenant);
	struct dp_grant p;
	int r;

	if (!t || !t->cur || t->cur->revoked)
		return ros2_err_named(err, ROS2_NOT_FOUND, "its tenant is not in force here");
	if (memcmp(g->from.boot_id, s->o.boot_id, 16) != 0)
		return ros2_err_named(err, ROS2_GRANT_EXPIRED, "counted from another boot");
	if (g->from.boottime_ns > now_ns)
		return ros2_err_named(err, ROS2_INVALID, "counted from a time that has not come");
	p = (struct dp_grant){
		.grant = o->next->uid,
		.tenant = state_dp_uid(s, &g->tenant),
		.deadline_ns =
			clock_add_ns(g->from.boottime_ns, g->lifetime_ms > UINT64_MAX / NS_PER_MS
	                                                          ? UINT64_MAX
	                                                          : g->lifetime_ms * NS_PER_MS),
		.max_keys = g->max_keys,
		.max_bytes = g->max_bytes,
		.access = g->access,
	};
	if (p.deadline_ns <= now_ns)
		return ros2_err_named(err, ROS2_GRANT_EXPIRED, "it ended before it arrived");
	r = dp_grant_put(s->o.dp, &p, err);
	if (!r)
		o->deadline_ns = p.deadline_ns;
	return r;
}

/* ---- the index of principals ---- */

static struct state_principal *find_principal(const struct state *s, const char *name)
{
	struct state_principal *p;

	HASH_FIND_STR(s->principals, name, p);
	return p;
}

static struct state_principal *new_principal(struct state *s, const char *name)
{
	struct state_principal *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->name = name;
	HASH_ADD_KEYPTR(hh, s->principals, p->name, strlen(p->name), p);
	if (HASH_TOOK(hh, p))
		return p;
	free(p);
	return NULL;
}

static void drop_principal(struct state *s, struct state_principal *p)
{
	HASH_DEL(s->principals, p);
	free(p);
}

/* NULL: unknown principals are denied; state_sweep tries again. After one that found no place no
 * other is new: it might be the same name. */
static struct state_principal *get_principal(struct state *s, const char *name)
{
	struct state_principal *p = find_principal(s, name);

	if (p || s->index_again)
		return p;
	p = new_principal(s, name);
	s->index_again = !p;
	return p;
}

/* Its name is the same text in the image that stays. */
static void give_principal(struct state_principal *p, const char *name, struct state_object *o)
{
	p->name = name;
	p->hh.key = name;
	p->tenant = o;
	p->tenants = 1;
}

static void index_tenant(struct state *s, struct state_object *o)
{
	for (uint32_t i = 0; i < o->image.n_principals; i++) {
		const char *name = policy_principal_at(&o->image, i);
		struct state_principal *p = get_principal(s, name);

		if (p && !p->tenants)
			give_principal(p, name, o);
		else if (p && p->tenant != o)
			p->tenants++;
	}
}

/* Who was in the index and still belongs there needs no memory. Runs while the images that the old
 * names are in are still there. */
void state_index_principals(struct state *s)
{
	struct state_principal *p, *tmp;
	struct state_object *o;

	pthread_mutex_lock(&s->principals_lock);
	s->index_again = false;
	for (p = s->principals; p; p = p->hh.next)
		p->tenants = 0;
	list_for_each (&s->kinds[OBJ_TENANT], o, of_kind) {
		if (o->cur)
			index_tenant(s, o);
	}
	HASH_ITER (hh, s->principals, p, tmp)
		if (!p->tenants)
			drop_principal(s, p);
	pthread_mutex_unlock(&s->principals_lock);
}

/* No other tenant has one of them; those that it @had are all in the index. */
static bool are_its_alone(const struct state *s, const struct state_object *o,
                          const struct policy_image_tenant *img, bool had)
{
	for (uint32_t i = 0; i < img->n_principals; i++) {
		const struct state_principal *p = find_principal(s, policy_principal_at(img, i));

		if (p ? p->tenants != 1 || p->tenant != o : had)
			return false;
	}
	return true;
}

static void replace_principals(struct state *s, struct state_object *o,
                               const struct policy_image_tenant *was,
                               const struct policy_image_tenant *now)
{
	struct state_principal *p;

	for (uint32_t i = 0; i < now->n_principals; i++) {
		const char *name = policy_principal_at(now, i);

		p = get_principal(s, name);
		if (!p)
			continue;
		give_principal(p, name, o);
		p->stays = true;
	}
	for (uint32_t i = 0; i < was->n_principals; i++) {
		p = find_principal(s, policy_principal_at(was, i));
		if (p && !p->stays)
			drop_principal(s, p);
	}
	for (uint32_t i = 0; i < now->n_principals; i++) {
		p = find_principal(s, policy_principal_at(now, i));
		if (p)
			p->stays = false;
	}
}

/* Looks at what @o has and had, not at all tenants: there may be a thousand, each with hundreds of
 * principals, and all may come at once. But who is left of two that had the same one, only all of
 * them can tell. Runs while both images are there. */
static void reindex_tenant(struct state *s, struct state_object *o,
                           const struct policy_image_tenant *was,
                           const struct policy_image_tenant *now)
{
	if (s->index_again || !are_its_alone(s, o, was, true) || !are_its_alone(s, o, now, false)) {
		state_index_principals(s);
		return;
	}
	pthread_mutex_lock(&s->principals_lock);
	replace_principals(s, o, was, now);
	pthread_mutex_unlock(&s->principals_lock);
}

static const struct policy_image_tenant nobody; /* without principals */

void state_apply(struct state *s, struct state_object *o, uint64_t now_ns)
{
	struct policy_image_tenant was = o->cur ? o->image : nobody;
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_object *old = o->cur;
	int r;

	if (o->key.kind == OBJ_ENGINE)
		r = apply_engine(s, o, &err);
	else if (o->key.kind == OBJ_TENANT)
		r = apply_tenant(s, o, &err);
	else
		r = apply_grant(s, o, now_ns, &err);
	if (r < 0) {
		char words[sizeof(o->reason)];

		state_words(words, sizeof(words), err.status, err.msg);
		state_move(s, o, OBJ_FAILED);
		/* A retry that fails the same way is nothing new to tell. */
		if (strcmp(words, o->reason) != 0) {
			strcpy(o->reason, words);
			state_tell(s, o);
		}
		return;
	}
	o->reason[0] = '\0';
	o->cur = TAKE_PTR(o->next);
	state_move(s, o, OBJ_APPLIED);
	if (o->key.kind == OBJ_TENANT) {
		s->recheck_grants |= o->cur->revoked;
		reindex_tenant(s, o, &was, &o->image);
	}
	if (o->key.kind == OBJ_GRANT)
		state_index_grant(s, o);
	agent_object_free(old);
	if (o->key.kind == OBJ_TENANT && s->o.on_tenant)
		s->o.on_tenant(s->o.arg, &o->key.uid);
}

void state_unapply(struct state *s, struct state_object *o)
{
	struct agent_object *cur = TAKE_PTR(o->cur);

	if (!cur)
		return;
	switch (o->key.kind) {
	case OBJ_ENGINE:
		remove_engine(s, cur->name);
		break;
	case OBJ_TENANT:
		withdraw(s, &cur->uid);
		reindex_tenant(s, o, &o->image, &nobody);
		break;
	case OBJ_GRANT:
		state_unindex_grant(s, o);
		/* What a tombstone covers the revlog knows. */
		dp_grant_remove(s->o.dp, &cur->uid,
		                o->deadline_ns <= clock_boottime_ns() ? ROS2_GRANT_EXPIRED
		                                                      : ROS2_REVOKED);
		break;
	default:
		break;
	}
	agent_object_free(cur);
}

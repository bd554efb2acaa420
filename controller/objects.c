/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants, engines and agents as documents: apply, reinstate, delete. An apply checks the whole set
 * as it would be afterwards and changes all of it or nothing. Memory changes when the commit is
 * through, then agents are told.
 */
#include "controller/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define OBJECTS_MAX 20000

_Static_assert((int)POLICY_KIND_TENANT == (int)STORE_TENANT, "kinds are the same numbers");
_Static_assert((int)POLICY_KIND_ENGINE == (int)STORE_ENGINE, "kinds are the same numbers");
_Static_assert((int)POLICY_KIND_AGENT == (int)STORE_AGENT, "kinds are the same numbers");

const char *ctl_kind_to_str(enum store_kind k)
{
	static const char *const names[] = {"?",     "tenant",  "engine", "agent",
	                                    "grant", "session", "lease"};

	return (size_t)k < ARRAY_SIZE(names) ? names[k] : "?";
}

struct ctl_object *ctl_find(struct ctl *c, enum store_kind kind, const char *name)
{
	struct ctl_object *o = NULL;
	char key[sizeof(o->key)];
	int n = snprintf(key, sizeof(key), "%d/%s", kind, name);

	if (n > 0 && (size_t)n < sizeof(key))
		HASH_FIND(by_key, c->by_key, key, (unsigned)n, o);
	return o;
}

struct ctl_object *ctl_find_uid(struct ctl *c, const struct ros2_uid *uid)
{
	struct ctl_object *o;

	HASH_FIND(by_uid, c->by_uid, uid->b, ROS2_UID_LEN, o);
	return o;
}

struct ctl_agent *ctl_agent(struct ctl *c, const char *name)
{
	struct ctl_object *o = ctl_find(c, STORE_AGENT, name);

	return o ? o->agent : NULL;
}

struct ctl_agent *ctl_agent_uid(struct ctl *c, const struct ros2_uid *uid)
{
	struct ctl_object *o = ctl_find_uid(c, uid);

	return o ? o->agent : NULL;
}

bool ctl_chosen(const struct ctl_object *tenant, const struct ctl_agent *a)
{
	return policy_placed(&tenant->policy, a->obj->name, a->obj->doc->labels,
	                     a->obj->doc->n_labels);
}

bool ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a)
{
	return ctl_chosen(tenant, a) && ctl_probes_meet(a, tenant->doc->tenant->require);
}

/* ---- one object in memory ---- */

/* Takes @image when it returns 0; an image that opens does so without memory. */
static int take_image(struct ctl_object *o, void *image, size_t len, struct ros2_err *err)
{
	struct policy_image_tenant policy = {0};
	int r = 0;

	if (o->kind == STORE_TENANT)
		r = policy_image_open_tenant(image, len, &policy, err);
	if (r < 0)
		return r;
	free(o->image);
	o->image = image;
	o->image_len = len;
	o->policy = policy;
	return 0;
}

/* Nobody finds it before object_link. */
static struct ctl_object *object_make(struct ctl *c, enum store_kind kind, const char *name,
                                      const struct ros2_uid *uid)
{
	struct ctl_object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->kind = kind;
	o->uid = *uid;
	snprintf(o->name, sizeof(o->name), "%s", name);
	snprintf(o->key, sizeof(o->key), "%d/%.63s", kind, name);
	list_init(&o->grants);
	if (kind == STORE_AGENT) {
		o->agent = ctl_agent_new(c, o);
		if (!o->agent) {
			free(o);
			return NULL;
		}
	}
	return o;
}

/* -ENOMEM only for the first object of all. */
static int object_link(struct ctl *c, struct ctl_object *o)
{
	HASH_ADD_TIGHT(by_key, c->by_key, key, strlen(o->key), o);
	if (HASH_TOOK(by_key, o))
		HASH_ADD_TIGHT(by_uid, c->by_uid, uid.b, ROS2_UID_LEN, o);
	return HASH_TOOK(by_uid, o) ? 0 : -ENOMEM;
}

void ctl_object_free(struct ctl *c, struct ctl_object *o)
{
	if (HASH_TOOK(by_key, o))
		HASH_DELETE(by_key, c->by_key, o);
	if (HASH_TOOK(by_uid, o))
		HASH_DELETE(by_uid, c->by_uid, o);
	ctl_agent_free(o->agent);
	policy_doc_unref(o->doc);
	free(o->image);
	free(o);
}

static void take_doc(struct ctl_object *o, const struct policy_doc *d)
{
	policy_doc_unref(o->doc);
	o->doc = policy_doc_ref(d);
}

int ctl_object_load(struct ctl *c, const struct store_object *row, struct ros2_err *err)
{
	struct policy_source src = {.name = row->file,
	                            .text = row->doc,
	                            .len = strlen(row->doc),
	                            .first_line = (int)row->line,
	                            .stored = true};
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_set *set = NULL;
	struct ctl_object *o;
	void *image = NULL;
	int r = policy_parse(&src, 1, &set, &diags);

	if (r < 0) {
		const struct policy_diag *first = policy_diags_first_error(&diags);

		ros2_err_set(err, -EBADMSG, "the stored %s \"%s\" does not parse: %s",
		             ctl_kind_to_str(row->kind), row->name,
		             first ? first->msg : "out of memory");
		policy_diags_fini(&diags);
		return -EBADMSG;
	}
	policy_diags_fini(&diags);
	o = object_make(c, row->kind, row->name, &row->uid);
	if (row->image_len)
		image = malloc(row->image_len);
	r = o && policy_set_count(set) == 1 && (image || !row->image_len) ? 0 : -ENOMEM;
	if (!r)
		r = policy_set_put(c->docs, policy_set_at(set, 0));
	if (!r) {
		take_doc(o, policy_set_at(set, 0));
		if (image)
			memcpy(image, row->image, row->image_len);
		r = take_image(o, image, row->image_len, err);
	}
	if (r < 0)
		free(image);
	else
		r = object_link(c, o);
	policy_set_free(set);
	if (r < 0) {
		if (o)
			ctl_object_free(c, o);
		return r;
	}
	o->version = row->version;
	o->created_unix_ns = row->created_unix_ns;
	o->updated_unix_ns = row->updated_unix_ns;
	o->revoked = row->revoked;
	o->revoked_version = row->revoked_version;
	o->state_since_unix_ns = row->state_since_unix_ns;
	snprintf(o->reason, sizeof(o->reason), "%s", row->state_reason);
	return 0;
}

void ctl_object_row(struct store_txn *t, const struct ctl_object *o, struct store_object *row)
{
	*row = (struct store_object){
		.kind = o->kind,
		.name = store_txn_str(t, o->name),
		.uid = o->uid,
		.version = o->version,
		.created_unix_ns = o->created_unix_ns,
		.updated_unix_ns = o->updated_unix_ns,
		.file = store_txn_str(t, o->doc->file),
		.line = (uint32_t)o->doc->line,
		.doc = store_txn_str(t, o->doc->text),
		.image = store_txn_mem(t, o->image, o->image_len),
		.image_len = o->image_len,
		.revoked = o->revoked,
		.revoked_version = o->revoked_version,
		.state_reason = store_txn_str(t, o->reason),
		.state_since_unix_ns = o->state_since_unix_ns,
	};
	store_txn_set_revision(t, o->version);
}

/* ---- apply ---- */

struct apply {
	struct ctl *c;
	struct policy_set *set; /* owned: what was applied */
	struct policy_set *all; /* owned: all documents, as they are then */
	struct policy_diags diags;
	struct ctl_applied *v; /* owned, one per document of the set */
	void **images;         /* owned, likewise */
	size_t *image_lens;
	/* Owned, likewise: what is created. All memory is there before the commit: after it what
	 * is committed has to be in force. */
	struct ctl_object **made;
	size_t n, n_changed;
	uint64_t now_unix_ns;
	ctl_apply_fn fn;
	void *arg;
};

static void apply_end(struct apply *a, const struct ros2_err *err, bool applied)
{
	struct ctl *c = a->c;
	struct ctl_apply_result res = {
		.applied = applied, .n = a->v ? a->n : 0, .v = a->v, .diags = &a->diags};
	struct ros2_err none = ROS2_ERR_INIT;

	ctl_gate_leave(c);
	a->fn(a->arg, err ? err : &none, &res);
	for (size_t i = 0; a->images && i < a->n; i++)
		free(a->images[i]);
	for (size_t i = 0; a->made && i < a->n; i++)
		if (a->made[i])
			ctl_object_free(c, a->made[i]);
	free(a->made);
	free(a->images);
	free(a->image_lens);
	free(a->v);
	policy_set_free(a->set);
	policy_set_free(a->all);
	policy_diags_fini(&a->diags);
	free(a);
}

static int check_expect(struct ctl *c, const struct ctl_expect *e, size_t n, struct ros2_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct ctl_object *o = ctl_find(c, e[i].kind, e[i].name);
		uint64_t have = o ? o->version : 0;

		if (have == e[i].version)
			continue;
		if (!o)
			return ros2_err_named(err, ROS2_CONFLICT,
			                      "%s \"%s\" does not exist, you expected version %llu",
			                      ctl_kind_to_str(e[i].kind), e[i].name,
			                      (unsigned long long)e[i].version);
		return ros2_err_named(
			err, ROS2_CONFLICT,
			"%s \"%s\" has version %llu, you expected %llu: read it again",
			ctl_kind_to_str(e[i].kind), e[i].name, (unsigned long long)have,
			(unsigned long long)e[i].version);
	}
	return 0;
}

static int check_may(struct apply *a, uint32_t may, struct ros2_err *err)
{
	for (size_t i = 0; i < a->n; i++) {
		const struct policy_doc *d = policy_set_at(a->set, i);

		if (!(may & 1u << d->kind))
			return ros2_err_named(err, ROS2_DENIED,
			                      "your role may not change %ss (\"%s\")",
			                      ctl_kind_to_str((enum store_kind)d->kind), d->name);
	}
	return 0;
}

/* The set as it would be. 0, -EINVAL (in diags), -ENOMEM. */
static int check_whole(struct apply *a)
{
	int r = policy_set_new(&a->all);

	for (size_t i = 0; !r && i < policy_set_count(a->c->docs); i++)
		r = policy_set_put(a->all, policy_set_at(a->c->docs, i));
	for (size_t i = 0; !r && i < a->n; i++)
		r = policy_set_put(a->all, policy_set_at(a->set, i));
	return r ? r : policy_check(a->all, &a->diags);
}

static int plan(struct apply *a, struct ros2_err *err)
{
	size_t created = 0;

	a->v = calloc(a->n + 1, sizeof(*a->v));
	a->images = calloc(a->n + 1, sizeof(*a->images));
	a->made = calloc(a->n + 1, sizeof(*a->made));
	a->image_lens = calloc(a->n + 1, sizeof(*a->image_lens));
	if (!a->v || !a->images || !a->made || !a->image_lens)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < a->n; i++) {
		const struct policy_doc *d = policy_set_at(a->set, i);
		const struct ctl_object *o = ctl_find(a->c, (enum store_kind)d->kind, d->name);
		struct ctl_applied *p = &a->v[i];

		p->kind = (enum store_kind)d->kind;
		snprintf(p->name, sizeof(p->name), "%s", d->name);
		p->action = CTL_CREATED;
		if (o) {
			p->uid = o->uid;
			p->version = o->version;
			p->action = strcmp(o->doc->canonical, d->canonical) == 0 ? CTL_UNCHANGED
			                                                         : CTL_CONFIGURED;
		}
		a->n_changed += p->action != CTL_UNCHANGED;
		created += p->action == CTL_CREATED;
	}
	/* At the bound, what is there can still be changed: perhaps to allow less. */
	if (created && HASH_CNT(by_key, a->c->by_key) + created > OBJECTS_MAX)
		return ros2_err_named(
			err, ROS2_LIMIT,
			"this controller holds at most %d objects (fixed): delete some first",
			OBJECTS_MAX);
	return 0;
}

static int compile(struct apply *a, size_t i, struct ros2_err *err)
{
	const struct policy_doc *d = policy_set_at(a->set, i);
	struct ctl_applied *p = &a->v[i];

	p->version = ++a->c->revision;
	if (p->action == CTL_CREATED) {
		p->uid = ros2_uid_new();
		a->made[i] = object_make(a->c, p->kind, p->name, &p->uid);
		if (!a->made[i])
			return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	if (d->kind == POLICY_KIND_AGENT)
		return 0;
	return policy_compile_doc(d, &p->uid, p->version, &a->images[i], &a->image_lens[i], err);
}

static void apply_row(struct apply *a, struct store_txn *t, size_t i)
{
	const struct policy_doc *d = policy_set_at(a->set, i);
	const struct ctl_applied *p = &a->v[i];
	const struct ctl_object *o = ctl_find(a->c, p->kind, p->name);

	store_txn_add(t, STORE_OBJECT_PUT)->object = (struct store_object){
		.kind = p->kind,
		.name = store_txn_str(t, p->name),
		.uid = p->uid,
		.version = p->version,
		.created_unix_ns = o ? o->created_unix_ns : a->now_unix_ns,
		.updated_unix_ns = a->now_unix_ns,
		.file = store_txn_str(t, d->file),
		.line = (uint32_t)d->line,
		.doc = store_txn_str(t, d->text),
		.image = store_txn_mem(t, a->images[i], a->image_lens[i]),
		.image_len = a->image_lens[i],
		.revoked = o && o->revoked,
		.revoked_version = o ? o->revoked_version : 0,
		.state_reason = store_txn_str(t, o ? o->reason : ""),
		.state_since_unix_ns = o ? o->state_since_unix_ns : 0,
	};
	store_txn_set_revision(t, p->version);
}

static void apply_audit(struct apply *a, struct store_txn *t, const struct ctl_caller *who,
                        size_t i)
{
	const struct policy_doc *d = policy_set_at(a->set, i);
	const struct ctl_applied *p = &a->v[i];
	char action[32];
	struct store_draft *r;

	snprintf(action, sizeof(action), "%s.apply", ctl_kind_to_str(p->kind));
	r = ctl_audit(t, who, action, p->kind, p->name, &p->uid);
	r->policy_version = p->version;
	if (p->kind == STORE_TENANT) {
		r->tenant = store_txn_str(t, p->name);
		r->tenant_uid = p->uid;
	}
	store_draft_detail(t, r, "change", p->action == CTL_CREATED ? "created" : "configured");
	store_draft_detail(t, r, "source", store_txn_fmt(t, "%.400s:%d", d->file, d->line));
}

static void apply_memory(struct apply *a, size_t i)
{
	const struct ctl_applied *p = &a->v[i];
	struct ctl_object *o = ctl_find(a->c, p->kind, p->name);
	struct ros2_err err = ROS2_ERR_INIT;
	int r = 0;

	if (!o) {
		o = TAKE_PTR(a->made[i]);
		o->created_unix_ns = a->now_unix_ns;
		r = object_link(a->c, o);
	}
	take_doc(o, policy_set_at(a->set, i));
	o->version = p->version;
	o->updated_unix_ns = a->now_unix_ns;
	if (!r)
		r = take_image(o, a->images[i], a->image_lens[i], &err);
	if (r < 0) {
		/* The first object of all, or an image of ours that does not open. */
		log_error("%s %s is committed and cannot be put in force: %s: ending, start again",
		          ctl_kind_to_str(p->kind), p->name, err.msg);
		_exit(1);
	}
	a->images[i] = NULL;
}

/* Grants that the policy in force no longer allows end; agents are told what changed. */
static void follow(struct apply *a)
{
	struct ctl *c = a->c;
	bool agents = false; /* labels may have moved: every tenant is concerned */
	struct ctl_object *o, *tmp;

	for (size_t i = 0; i < a->n; i++)
		agents |= a->v[i].kind == STORE_AGENT && a->v[i].action == CTL_CONFIGURED;
	for (size_t i = 0; i < a->n && !agents; i++) {
		o = ctl_find(c, a->v[i].kind, a->v[i].name);
		if (o && o->kind == STORE_TENANT && a->v[i].action == CTL_CONFIGURED)
			ctl_grants_recheck(o);
	}
	if (agents)
		HASH_ITER (by_key, c->by_key, o, tmp)
			if (o->kind == STORE_TENANT)
				ctl_grants_recheck(o);
	(void)ctl_grants_settle(c, NULL);
	ctl_rollout_sync_all(c);
}

static void apply_committed(void *arg, const struct store_result *r)
{
	struct apply *a = arg;

	if (r->rc < 0) {
		apply_end(a, &r->err, false);
		return;
	}
	for (size_t i = 0; i < a->n; i++)
		if (a->v[i].action != CTL_UNCHANGED)
			apply_memory(a, i);
	policy_set_free(a->c->docs);
	a->c->docs = TAKE_PTR(a->all);
	follow(a);
	apply_end(a, NULL, true);
}

static void apply_commit(struct apply *a, const struct ctl_caller *who)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct store_txn *t = store_txn_new();
	int r = ctl_grants_settle(a->c, &err);

	a->now_unix_ns = clock_unix_ns();
	for (size_t i = 0; i < a->n && !r; i++) {
		if (a->v[i].action == CTL_UNCHANGED)
			continue;
		r = compile(a, i, &err);
		if (r < 0)
			break;
		apply_row(a, t, i);
		apply_audit(a, t, who, i);
	}
	if (r < 0)
		store_txn_free(t);
	else
		r = store_submit(a->c->store, t, apply_committed, a, &err);
	if (r < 0)
		apply_end(a, &err, false);
}

void ctl_apply(struct ctl *c, const struct ctl_caller *who, const struct policy_source *files,
               size_t n_files, const struct ctl_expect *expect, size_t n_expect, bool dry_run,
               uint32_t may, ctl_apply_fn fn, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct apply *a = calloc(1, sizeof(*a));
	struct ctl_apply_result none = {0};
	int r;

	if (!a) {
		ros2_err_set(&err, -ENOMEM, "out of memory");
		ctl_gate_leave(c);
		fn(arg, &err, &none);
		return;
	}
	a->c = c;
	a->fn = fn;
	a->arg = arg;
	r = policy_parse(files, n_files, &a->set, &a->diags);
	if (!r) {
		a->n = policy_set_count(a->set);
		r = check_may(a, may, &err);
		if (!r)
			r = check_expect(c, expect, n_expect, &err);
		if (!r)
			r = check_whole(a);
	}
	/* -EINVAL without words: the diagnostics say it, if there was memory for them. */
	if (r == -EINVAL && !err.code && !policy_diags_first_error(&a->diags))
		r = -ENOMEM;
	if (r == -EINVAL && !err.code) {
		apply_end(a, NULL, false);
		return;
	}
	if (!r)
		r = plan(a, &err);
	if (r < 0 && !err.code)
		ros2_err_set(&err, r, "out of memory");
	if (r < 0 || dry_run)
		apply_end(a, r < 0 ? &err : NULL, false);
	else if (!a->n_changed)
		apply_end(a, NULL, true);
	else
		apply_commit(a, who);
}

/* ---- delete and reinstate ---- */

struct change {
	struct ctl *c;
	struct ctl_object *o;
	uint64_t version;
	void *image; /* owned; reinstate: in force from the commit on */
	size_t image_len;
	char reason[CTL_REASON_MAX + 1];
	ctl_done_fn fn;
	ctl_version_fn version_fn;
	void *arg;
};

int ctl_delete_check(struct ctl *c, const struct ctl_object *gone, struct ros2_err *err)
{
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_set *all = NULL;
	char words[256] = "the rest does not hold together";
	int r = policy_set_new(&all);

	for (size_t i = 0; !r && i < policy_set_count(c->docs); i++) {
		const struct policy_doc *d = policy_set_at(c->docs, i);

		if (d != gone->doc)
			r = policy_set_put(all, d);
	}
	if (!r)
		r = policy_check(all, &diags);
	/* not the first of all: that may be a warning about something else */
	if (policy_diags_first_error(&diags))
		policy_diag_format(policy_diags_first_error(&diags), words, sizeof(words));
	if (r == -EINVAL)
		r = ros2_err_named(err, ROS2_CONFLICT, "%s \"%s\" is still needed: %s",
		                   ctl_kind_to_str(gone->kind), gone->name, words);
	else if (r < 0)
		ros2_err_set(err, r, "out of memory");
	policy_diags_fini(&diags);
	policy_set_free(all);
	return r;
}

void ctl_delete_undo(struct ctl_object *o)
{
	if (!o->agent)
		return;
	o->agent->deleting = false;
	ctl_rollout_sync(o->agent); /* what was held back meanwhile */
	outbox_flush(o->agent->ctl);
}

static void deleted(void *arg, const struct store_result *r)
{
	struct change *x = arg;
	struct ctl *c = x->c;

	if (!r->rc) {
		if (x->o->kind == STORE_TENANT)
			ctl_grants_kill_tenant(x->o, UINT64_MAX);
		if (x->o->agent) {
			ctl_grants_kill_agent(x->o->agent, UINT64_MAX);
			ctl_tokens_forget(c, &x->o->uid);
			ctl_revocations_forget(c, &x->o->uid);
		}
		policy_set_remove(c->docs, (enum policy_kind)x->o->kind, x->o->name);
		ctl_object_free(c, x->o);
		ctl_rollout_sync_all(c);
	} else {
		ctl_delete_undo(x->o);
	}
	ctl_gate_leave(c);
	x->fn(x->arg, &r->err);
	free(x);
}

void ctl_delete(struct ctl *c, const struct ctl_caller *who, struct ctl_object *o, ctl_done_fn fn,
                void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct change *x = calloc(1, sizeof(*x));
	struct store_txn *t = store_txn_new();
	struct store_object *row = &store_txn_add(t, STORE_OBJECT_DELETE)->object;
	char action[32];
	struct store_draft *d;
	int r = -ENOMEM;

	*row = (struct store_object){.kind = o->kind,
	                             .name = store_txn_str(t, o->name),
	                             .uid = o->uid,
	                             .updated_unix_ns = clock_unix_ns()};
	if (o->agent)
		store_txn_add(t, STORE_AGENT_DELETE)->agent.uid = o->uid;
	snprintf(action, sizeof(action), "%s.delete", ctl_kind_to_str(o->kind));
	d = ctl_audit(t, who, action, o->kind, o->name, &o->uid);
	d->policy_version = o->version;
	if (o->kind == STORE_TENANT)
		ctl_audit_tenant(t, d, o);
	if (x) {
		*x = (struct change){.c = c, .o = o, .fn = fn, .arg = arg};
		r = store_submit(c->store, t, deleted, x, &err);
	} else {
		store_txn_free(t);
		ros2_err_set(&err, r, "out of memory");
	}
	if (r < 0) {
		ctl_delete_undo(o);
		free(x);
		ctl_gate_leave(c);
		fn(arg, &err);
	}
}

static void reinstated(void *arg, const struct store_result *r)
{
	struct change *x = arg;
	struct ctl *c = x->c;
	struct ros2_err err = r->err;
	int rc = r->rc;

	if (!rc)
		rc = take_image(x->o, x->image, x->image_len, &err);
	if (!rc) {
		x->image = NULL;
		x->o->revoked = false;
		x->o->version = x->version;
		x->o->state_since_unix_ns = clock_unix_ns();
		snprintf(x->o->reason, sizeof(x->o->reason), "%s", x->reason);
		ctl_rollout_sync_all(c);
	}
	ctl_gate_leave(c);
	x->version_fn(x->arg, &err, x->version);
	free(x->image);
	free(x);
}

static int reinstate_commit(struct change *x, const struct ctl_caller *who, struct ros2_err *err)
{
	struct ctl_object *o = x->o;
	struct store_txn *t = store_txn_new();
	struct store_object *row = &store_txn_add(t, STORE_OBJECT_PUT)->object;
	struct store_draft *d;

	ctl_object_row(t, o, row);
	row->version = x->version;
	row->image = store_txn_mem(t, x->image, x->image_len);
	row->image_len = x->image_len;
	row->revoked = false;
	row->state_reason = store_txn_str(t, x->reason);
	row->state_since_unix_ns = clock_unix_ns();
	store_txn_set_revision(t, x->version);
	d = ctl_audit(t, who, "tenant.reinstate", STORE_TENANT, o->name, &o->uid);
	d->reason = store_txn_str(t, x->reason);
	d->policy_version = x->version;
	ctl_audit_tenant(t, d, o);
	return store_submit(x->c->store, t, reinstated, x, err);
}

void ctl_reinstate(struct ctl *c, const struct ctl_caller *who, struct ctl_object *o,
                   const char *reason, ctl_version_fn fn, void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct change *x = calloc(1, sizeof(*x));
	int r = x ? ctl_revocation_recorded(c, &o->uid, &err)
	          : ros2_err_set(&err, -ENOMEM, "out of memory");

	if (!r) {
		*x = (struct change){.c = c, .o = o, .version_fn = fn, .arg = arg};
		x->version = ++c->revision;
		snprintf(x->reason, sizeof(x->reason), "%s", reason);
		/* The image names its version, so a reinstated tenant has a new one. */
		r = policy_compile_doc(o->doc, &o->uid, x->version, &x->image, &x->image_len, &err);
	}
	if (!r)
		r = reinstate_commit(x, who, &err);
	if (r < 0) {
		if (x)
			free(x->image);
		free(x);
		ctl_gate_leave(c);
		fn(arg, &err, 0);
	}
}

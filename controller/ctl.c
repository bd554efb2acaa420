/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's domain as a whole: loading it from the store, the gate that orders changes of
 * objects and identities, start and end.
 */
#include "controller/ctl.h"
#include <errno.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

struct gate_wait {
	struct list link;
	bool urgent;
	loop_fn fn;
	void *arg;
};

static int gate_enter(struct ctl *c, bool urgent, loop_fn fn, void *arg)
{
	struct gate_wait *w, *at;

	if (!c->gate_busy) {
		c->gate_busy = true;
		fn(arg);
		return 0;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct gate_wait){.urgent = urgent, .fn = fn, .arg = arg};
	c->n_gate++;
	if (urgent) {
		list_for_each (&c->gate, at, link) {
			if (at->urgent)
				continue;
			list_add_tail(&at->link, &w->link); /* before it */
			return 0;
		}
	}
	list_add_tail(&c->gate, &w->link);
	return 0;
}

int ctl_gate_enter(struct ctl *c, loop_fn fn, void *arg)
{
	return c->n_gate >= CTL_GATE_MAX ? -EBUSY : gate_enter(c, false, fn, arg);
}

/* Bounded by the calls that the admin listener admits. */
int ctl_gate_enter_urgent(struct ctl *c, loop_fn fn, void *arg)
{
	return gate_enter(c, true, fn, arg);
}

void ctl_gate_leave(struct ctl *c)
{
	struct gate_wait *w;
	loop_fn fn;
	void *arg;

	c->gate_busy = false;
	if (list_empty(&c->gate))
		return;
	w = list_first(&c->gate, struct gate_wait, link);
	list_del(&w->link);
	c->n_gate--;
	c->gate_busy = true;
	fn = w->fn;
	arg = w->arg;
	free(w);
	fn(arg);
}

void ctl_on_batch(void *ctl)
{
	outbox_flush(ctl);
}

/* ---- loading ---- */

struct loading {
	struct ctl *c;
	struct ros2_err *err;
};

static int load_object(void *arg, const struct store_object *o)
{
	struct loading *l = arg;

	return ctl_object_load(l->c, o, l->err);
}
static int load_agent(void *arg, const struct store_agent *a)
{
	return ctl_agent_load(((struct loading *)arg)->c, a);
}
static int load_grant(void *arg, const struct store_grant *g)
{
	return ctl_grant_load(((struct loading *)arg)->c, g);
}
static int load_revocation(void *arg, const struct store_revocation *r)
{
	return ctl_revocation_load(((struct loading *)arg)->c, r);
}
static int load_receipt(void *arg, const struct store_receipt *r)
{
	return ctl_receipt_load(((struct loading *)arg)->c, r);
}
static int load_token(void *arg, const struct store_token *t)
{
	return ctl_token_load(((struct loading *)arg)->c, t);
}
static int load_origin(void *arg, const struct store_origin *o)
{
	return ctl_origin_load(((struct loading *)arg)->c, o);
}

static int load_probe(void *arg, const struct store_probe *p)
{
	return ctl_probe_load(((struct loading *)arg)->c, p);
}

static int load_note(void *arg, const void *p, size_t n, int slot)
{
	struct loading *l = arg;
	int r = ctl_note_load(l->c, p, n, slot);

	if (r == -EBADMSG)
		return ros2_err_set(l->err, r,
		                    "slot %d of the journal of revocations cannot be read: is it "
		                    "of a newer ros2-controller? Nothing starts without it",
		                    slot);
	return r < 0 ? ros2_err_set(l->err, r, "no memory for a revocation of the journal") : r;
}

static int load_doubt(void *arg)
{
	return ctl_doubt_load(((struct loading *)arg)->c);
}

int ctl_new(struct loop *loop, const struct config *cfg, struct store *store, struct ctl **ret,
            struct ros2_err *err)
{
	struct ctl *c = calloc(1, sizeof(*c));
	struct loading l = {.c = c, .err = err};
	struct store_loader loader = {.object = load_object,
	                              .agent = load_agent,
	                              .grant = load_grant,
	                              .revocation = load_revocation,
	                              .receipt = load_receipt,
	                              .token = load_token,
	                              .origin = load_origin,
	                              .probe = load_probe,
	                              .note = load_note,
	                              .doubt = load_doubt,
	                              .arg = &l};
	int r;

	if (!c)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	c->loop = loop;
	c->cfg = cfg;
	c->store = store;
	c->epoch = *store_epoch(store);
	c->revision = store_revision(store);
	c->started_unix_ns = clock_unix_ns();
	c->started_ns = clock_boottime_ns();
	list_init(&c->gate);
	list_init(&c->ends);
	r = policy_set_new(&c->docs);
	if (!r)
		r = outbox_new(c, &c->outbox);
	if (r < 0)
		ros2_err_set(err, r, "out of memory");
	else
		r = store_load(store, &loader, err);
	if (r < 0) {
		ctl_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* Whom it believes from here on: what records of a reload say changes from there. */
static void add_rights(struct store_txn *t, struct store_draft *d, const struct config *cfg)
{
	static const struct config_rights nobody;
	struct config_changes now;

	config_rights_changes(&nobody, &cfg->rights, &now);
	for (size_t i = 0; i < CONFIG_BUNDLES; i++) {
		const char *name = config_bundle_to_str((enum config_bundle)i);
		const struct pki_trust_changes *b = &now.bundles[i];

		store_draft_detail(t, d, name, store_txn_fmt(t, "%zu authorities", b->authorities));
		store_draft_detail(t, d, store_txn_fmt(t, "%s.has", name),
		                   store_txn_str(t, b->added_text));
	}
	store_draft_detail(t, d, "roles", store_txn_fmt(t, "%zu", now.roles));
	store_draft_detail(t, d, "roles.has", store_txn_str(t, now.roles_added_text));
}

int ctl_record_start(struct ctl *c, struct ros2_err *err)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);

	d->action = "controller.start";
	d->actor = ctl_system.spiffe;
	d->role = "system";
	d->result = STORE_AUDIT_OK;
	d->status = "OK";
	d->object_kind = "controller";
	d->object_name = store_txn_str(t, c->cfg->trust_domain);
	store_draft_detail(t, d, "version", ROS2_VERSION_STRING);
	add_rights(t, d, c->cfg);
	return store_commit_now(c->store, t, err);
}

void ctl_start(struct ctl *c)
{
	ctl_denials_start(c);
	ctl_revocations_start(c);
	ctl_grants_start(c);
}

void ctl_free(struct ctl *c)
{
	struct gate_wait *w, *wtmp;
	struct ctl_object *o, *tmp;

	if (!c)
		return;
	list_for_each_safe (&c->gate, w, wtmp, link)
		free(w);
	ctl_denials_free(c);
	ctl_forward_shares_free(c);
	ctl_revocations_free(c);
	ctl_grants_free(c);
	ctl_tokens_free(c);
	HASH_ITER (by_key, c->by_key, o, tmp)
		ctl_object_free(c, o);
	outbox_free(c->outbox);
	policy_set_free(c->docs);
	free(c);
}

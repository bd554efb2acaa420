/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three sets of rights: told (what the log says), in force (in the config) and next (what the files
 * say and in force is not yet).
 *
 *   SIGHUP ──read──▶ in force = what both in force and next have ──▶ record of told ▸ in force
 *            ──▶ record of in force ▸ next, durable ──▶ in force = next
 *
 * One record is at the store at a time, so that the log has them in this order. Invariants: (1) in
 * force has nothing that neither told nor a durable record has; (2) the record of what is gone is
 * the difference to what the log says, so that nothing is lost between two SIGHUPs; (3) what a
 * SIGHUP overtook never comes into force, and the log says so.
 */
#include "controller/reload_priv.h"
#include "common/clock.h"
#include "common/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define AGAIN_MS 1000

struct reload {
	struct reload_opts o;
	struct config_rights told, next;  /* owned */
	struct config_rights at_store;    /* owned: what the record there says is in force */
	uint64_t number, number_at_store; /* of SIGHUPs */
	enum ros2_status failed;          /* of the last one: of what could not be read */
	bool has_bundles;                 /* of the last one: they were good */
	bool has_next;
	bool due;    /* a record of what is gone, of what failed, or that all is as it was */
	bool waits;  /* for the store */
	bool unread; /* for memory */
	bool ended;
	struct loop_timer again;
};

int reload_new(const struct reload_opts *o, struct reload **ret)
{
	struct reload *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->o = *o;
	config_rights_set(&r->told, &o->cfg->rights);
	*ret = r;
	return 0;
}

void reload_end(struct reload *r)
{
	if (!r)
		return;
	r->ended = true;
	loop_timer_stop(&r->again);
}

void reload_free(struct reload *r)
{
	if (!r)
		return;
	loop_timer_stop(&r->again);
	config_rights_fini(&r->told);
	config_rights_fini(&r->next);
	config_rights_fini(&r->at_store);
	free(r);
}

/* ---- what is told ---- */

static void again(void *arg);

/* It is tried until it is done; said once. */
static void pending(struct reload *r, const char *what, const struct ros2_err *err)
{
	struct config *cfg = r->o.cfg;
	char words[sizeof(cfg->reload_pending)];

	snprintf(words, sizeof(words), "%s: %.150s", what, err->msg);
	utf8_clean(words); /* an answer with half a character would be none */
	if (strcmp(words, cfg->reload_pending) != 0)
		log_error("%s", words);
	if (!cfg->reload_pending[0])
		cfg->reload_pending_unix_ns = clock_unix_ns();
	memcpy(cfg->reload_pending, words, sizeof(words));
	loop_timer_in_ms(r->o.loop, &r->again, AGAIN_MS, again, r);
}

static void not_pending(struct reload *r)
{
	if (r->o.cfg->reload_pending[0])
		log_info("roles and trust bundles: what waited is recorded and in force");
	r->o.cfg->reload_pending[0] = '\0';
	r->o.cfg->reload_pending_unix_ns = 0;
}

static void add_bundle(struct store_txn *t, struct store_draft *d, enum config_bundle b,
                       const struct pki_trust_changes *c)
{
	const char *name = config_bundle_to_str(b);

	store_draft_detail(t, d, name, store_txn_fmt(t, "%zu authorities", c->authorities));
	if (c->added)
		store_draft_detail(t, d, store_txn_fmt(t, "%s.added", name),
		                   store_txn_str(t, c->added_text));
	if (c->removed)
		store_draft_detail(t, d, store_txn_fmt(t, "%s.removed", name),
		                   store_txn_str(t, c->removed_text));
}

static struct store_txn *record(const struct reload *r, const struct config_changes *c,
                                enum ros2_status failed)
{
	const struct config *cfg = r->o.cfg;
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);

	d->action = "trust.reload";
	d->actor = ctl_system.spiffe;
	d->role = "system";
	d->object_kind = "controller";
	d->object_name = store_txn_str(t, cfg->trust_domain);
	d->result = failed ? STORE_AUDIT_FAILED : STORE_AUDIT_OK;
	d->status = ros2_status_to_str(failed);
	d->reason = failed ? store_txn_str(t, cfg->reload_failed) : "";
	for (size_t i = 0; i < CONFIG_BUNDLES; i++)
		if (r->has_bundles || c->bundles[i].added || c->bundles[i].removed)
			add_bundle(t, d, (enum config_bundle)i, &c->bundles[i]);
	store_draft_detail(t, d, "roles", store_txn_fmt(t, "%zu", c->roles));
	store_draft_detail(t, d, "roles.added", store_txn_str(t, c->roles_added_text));
	store_draft_detail(t, d, "roles.removed", store_txn_str(t, c->roles_removed_text));
	if (config_takes(c))
		store_txn_set_shrinks(t);
	return t;
}

/* ---- in force ---- */

static bool same_text(const struct config_rights *a, const struct config_rights *b,
                      enum config_bundle which)
{
	return !strcmp(pki_trust_text(a->trust[which], NULL),
	               pki_trust_text(b->trust[which], NULL));
}

/* It needs nothing, so it is done. */
static void put_in_force(struct reload *r, const struct config_rights *now)
{
	struct config_rights *in_force = &r->o.cfg->rights;
	bool given =
		!same_text(in_force, now, CONFIG_INFRA) || !same_text(in_force, now, CONFIG_TENANT);

	config_rights_set(in_force, now);
	rpc_server_set_trust(r->o.admin, now->trust[CONFIG_ADMIN]);
	rpc_server_set_trust(r->o.agents, now->trust[CONFIG_INFRA]);
	if (!given)
		return;
	log_info("SIGHUP: trust bundles read: agents get the new ones");
	/* An agent takes them when it connects; its sessions do not notice. */
	svc_renew_links(r->o.svc);
}

/* ---- records ---- */

static void go_on(struct reload *r);

static void submit(struct reload *r, const struct config_rights *from,
                   const struct config_rights *to, enum ros2_status failed, store_done_fn done,
                   const char *words)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct config_changes c;

	config_rights_changes(from, to, &c);
	if (store_submit(r->o.ctl->store, record(r, &c, failed), done, r, &err) < 0) {
		pending(r, words, &err);
		return;
	}
	r->waits = true;
	r->number_at_store = r->number;
	config_rights_set(&r->at_store, to);
}

static const char gone_waits[] =
	"what the last SIGHUP took away is in force, its record is pending";
static const char new_waits[] =
	"what the last SIGHUP added to roles and trust bundles is not in force";

/* True: the log has it, or will. Of what is recorded at the end the next start makes the rest. */
static bool recorded(struct reload *r, const struct store_result *res, const char *words)
{
	r->waits = false;
	if (r->ended)
		return false;
	if (res->rc < 0 && !res->record_pending) {
		pending(r, words, &res->err);
		return false;
	}
	config_rights_set(&r->told, &r->at_store);
	return true;
}

static void gone_recorded(void *arg, const struct store_result *res)
{
	struct reload *r = arg;
	bool is_last = r->number == r->number_at_store;

	if (!recorded(r, res, gone_waits))
		return;
	r->due &= !is_last;
	go_on(r);
}

static void new_recorded(void *arg, const struct store_result *res)
{
	struct reload *r = arg;

	if (!recorded(r, res, new_waits))
		return;
	if (r->number == r->number_at_store) {
		put_in_force(r, &r->next);
		config_rights_fini(&r->next);
		r->has_next = false;
	} else {
		r->due = true; /* it never was: the record says that it is gone */
	}
	go_on(r);
}

static void go_on(struct reload *r)
{
	struct config *cfg = r->o.cfg;

	if (r->waits)
		return;
	if (r->due)
		submit(r, &r->told, &cfg->rights, r->failed, gone_recorded, gone_waits);
	else if (r->has_next)
		submit(r, &cfg->rights, &r->next, ROS2_OK, new_recorded, new_waits);
	else if (!r->unread)
		not_pending(r);
}

/* ---- reading ---- */

static void failed(struct reload *r, const char *what, const struct ros2_err *err)
{
	struct config *cfg = r->o.cfg;

	log_error("SIGHUP: %s stay as they were: %s", what, err->msg);
	if (r->failed)
		return;
	r->failed = err->status ? err->status : ROS2_INTERNAL;
	snprintf(cfg->reload_failed, sizeof(cfg->reload_failed), "%s stay as they were: %.200s",
	         what, err->msg);
	utf8_clean(cfg->reload_failed);
	cfg->reload_failed_unix_ns = clock_unix_ns();
}

/* -ENOMEM: not all of it could be read. Each for itself: what is bad stays as it is in force. */
static int read_next(struct reload *r, struct config_rights *ret, struct ros2_err *err)
{
	struct config_rights bundles = {0};
	struct config_roles *roles = NULL;
	int r_roles = config_read_roles(r->o.cfg, &roles, err), r_bundles = 0;

	if (r_roles < 0 && r_roles != -ENOMEM)
		failed(r, "the roles", err);
	if (r_roles != -ENOMEM)
		r_bundles = config_read_bundles(r->o.cfg, &bundles, err);
	if (r_bundles < 0 && r_bundles != -ENOMEM)
		failed(r, "the trust bundles", err);
	if (r_roles == -ENOMEM || r_bundles == -ENOMEM) {
		config_roles_unref(roles);
		return -ENOMEM;
	}
	r->has_bundles = !r_bundles;
	config_rights_set(ret, &r->o.cfg->rights);
	if (!r_roles) {
		config_roles_unref(ret->roles);
		ret->roles = roles;
		log_info("SIGHUP: %zu roles read", roles->n);
	}
	for (size_t i = 0; !r_bundles && i < CONFIG_BUNDLES; i++) {
		pki_trust_unref(ret->trust[i]);
		ret->trust[i] = bundles.trust[i];
	}
	if (!r_bundles)
		memcpy(ret->infra_hash, bundles.infra_hash, sizeof(ret->infra_hash));
	return 0;
}

/* What is gone is gone here. */
static int take_next(struct reload *r, struct ros2_err *err)
{
	struct config_rights next = {0}, common = {0};
	struct config_changes c;
	int rc = read_next(r, &next, err);

	if (!rc)
		rc = config_rights_common(&r->o.cfg->rights, &next, &common, err);
	if (!rc) {
		config_rights_changes(&r->o.cfg->rights, &next, &c);
		put_in_force(r, &common);
		r->has_next = config_gives(&c);
		config_rights_set(&r->next, &next);
		config_rights_changes(&r->told, &common, &c);
		r->due = r->failed || config_takes(&c) || !r->has_next;
	}
	config_rights_fini(&next);
	config_rights_fini(&common);
	return rc;
}

void reload_now(struct reload *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	r->number++;
	r->failed = ROS2_OK;
	r->o.cfg->reload_failed[0] = '\0';
	r->o.cfg->reload_failed_unix_ns = 0;
	/* What it overtakes is not in force, and what is in force stays until this one is read. */
	r->has_next = false;
	r->unread = take_next(r, &err) < 0;
	if (r->unread)
		pending(r, "roles and trust bundles are not read", &err);
	go_on(r);
}

static void again(void *arg)
{
	struct reload *r = arg;

	if (r->unread)
		reload_now(r);
	else
		go_on(r);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a reload: which authorities came and went, or why it stayed as it was. Whom the
 * bundles name is the operator's decision and in force by the file; the record tells of it. One
 * that takes an authority away is kept like that of a revocation.
 */
#include "controller/ctl.h"

#define LOG_COMPONENT "controller"
#include "common/log.h"

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

static void recorded(void *arg, const struct store_result *r)
{
	if (r->rc < 0)
		log_error("a reload could not be recorded: %s", r->err.msg);
}

void ctl_audit_reload(struct ctl *c, const struct ctl_reload *r)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);
	struct ros2_err err = ROS2_ERR_INIT;
	size_t removed = 0;

	d->action = "trust.reload";
	d->actor = ctl_system.spiffe;
	d->role = "system";
	d->object_kind = "controller";
	d->object_name = store_txn_str(t, c->cfg->trust_domain);
	d->result = r->failed ? STORE_AUDIT_FAILED : STORE_AUDIT_OK;
	d->status = ros2_status_to_str(r->failed);
	d->reason = store_txn_str(t, c->cfg->reload_failed);
	for (size_t i = 0; r->has_bundles && i < CONFIG_BUNDLES; i++) {
		add_bundle(t, d, (enum config_bundle)i, &r->bundles[i]);
		removed += r->bundles[i].removed;
	}
	store_draft_detail(t, d, "roles", store_txn_fmt(t, "%zu", c->cfg->n_roles));
	if (removed)
		store_txn_set_shrinks(t);
	if (store_submit(c->store, t, recorded, NULL, &err) < 0)
		log_error("a reload could not be recorded: %s", err.msg);
}

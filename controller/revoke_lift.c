/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an isolation: what an agent is given back comes after the record of what was taken.
 * Loop thread. */
#include "controller/ctl.h"
#include <errno.h>

struct lift {
	struct ctl *c;
	struct ros2_uid agent_uid;
	ctl_done_fn fn;
	void *arg;
};

static void lifted(void *arg, const struct store_result *res)
{
	struct lift *l = arg;
	struct ctl_agent *a = ctl_agent_uid(l->c, &l->agent_uid);

	if (!res->rc && a) {
		a->isolated = false;
		a->isolated_reason[0] = '\0';
	}
	ctl_gate_leave(l->c);
	l->fn(l->arg, &res->err);
	free(l);
}

void ctl_lift_isolation(struct ctl *c, const struct ctl_caller *who, struct ctl_agent *a,
                        const char *reason, ctl_done_fn fn, void *arg)
{
	struct lift *l = calloc(1, sizeof(*l));
	struct store_txn *t = store_txn_new();
	struct store_agent *row = &store_txn_add(t, STORE_AGENT_PUT)->agent;
	struct ros2_err err = ROS2_ERR_INIT;
	struct store_draft *d;
	int r = -ENOMEM;

	ctl_agent_row(t, a, row);
	row->isolated = false;
	row->isolated_reason = "";
	d = ctl_audit(t, who, "agent.isolate", STORE_AGENT, a->obj->name, &a->obj->uid);
	d->reason = store_txn_str(t, reason);
	store_draft_detail(t, d, "change", "lifted");
	if (l) {
		*l = (struct lift){.c = c, .agent_uid = a->obj->uid, .fn = fn, .arg = arg};
		r = ctl_revocation_recorded(c, &a->obj->uid, &err);
	} else {
		ros2_err_set(&err, r, "out of memory");
	}
	if (!r)
		r = store_submit(c->store, t, lifted, l, &err);
	else
		store_txn_free(t);
	if (r < 0) {
		free(l);
		ctl_gate_leave(c);
		fn(arg, &err);
	}
}

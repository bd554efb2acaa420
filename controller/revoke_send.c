/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations to agents: at once to those that are connected, and to one that comes back all that
 * it owes a receipt for. That may be more than its stream's queue takes, so it is sent in turns, as
 * the stream takes it; the outbox, which asks for the turns, and the answers to beats come behind
 * the last of them. Loop thread.
 */
#include "controller/revoke_priv.h"

#define RESEND_TURN 1024 /* far below what the queue of a stream takes */

struct ctl_owed *revoke_owed_by(struct ctl_revocation *r, const struct ros2_uid *agent)
{
	struct ctl_owed *o;

	list_for_each (&r->owed, o, link)
		if (ros2_uid_eq(&o->agent_uid, agent))
			return o;
	return NULL;
}

void revoke_tell(struct ctl_owed *o, const struct ctl_agent *a, const struct ctl_revocation *r)
{
	o->stream = a->stream;
	link_revoke(a->link, r);
}

bool ctl_revocations_resend(struct ctl_agent *a)
{
	struct ctl_revocation *r, *tmp;
	unsigned n = 0;

	HASH_ITER (hh, a->ctl->revocations, r, tmp) {
		struct ctl_owed *o = r->sent ? revoke_owed_by(r, &a->obj->uid) : NULL;

		if (!o || o->state == CTL_CONFIRMED || o->stream == a->stream)
			continue;
		if (n++ == RESEND_TURN)
			return true;
		revoke_tell(o, a, r);
	}
	return false;
}

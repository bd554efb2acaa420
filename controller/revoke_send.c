/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations to agents: at once to those that are connected, and to one that comes back all that
 * it owes a receipt for. That may be more than its stream's queue takes, so it is sent in turns, as
 * the stream takes it; the outbox, which asks for the turns, and the answers to beats come behind
 * the last of them. Who revokes the same again and again while an agent is away leaves it one of
 * them. Loop thread.
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

/* ---- the same target again ---- */

static struct ctl_revocation *first_of(struct ctl *c, const struct ros2_uid *target)
{
	struct ctl_revocation *r;

	HASH_FIND(by_target, c->by_target, target->b, ROS2_UID_LEN, r);
	return r;
}

/* Those of one target stand in one bucket, among others. */
static struct ctl_revocation *next_of(struct ctl *c, struct ctl_revocation *r)
{
	struct UT_hash_handle *h = &r->by_target;
	struct ctl_revocation *n;

	while ((h = h->hh_next)) {
		n = ELMT_FROM_HH(c->by_target->by_target.tbl, h);
		if (ros2_uid_eq(&n->target_uid, &r->target_uid))
			return n;
	}
	return NULL;
}

/* Who waits for it hears of its own; what is recorded late has its rows yet to come. */
static bool is_earlier(const struct ctl_revocation *old, const struct ctl_revocation *r)
{
	return old->version < r->version && old->kind == r->kind && !old->waiter &&
	       !old->unrecorded.is;
}

/* The next after @o that was never told, and that its agent owes for @r, too. Both lists name
 * agents in the same order: *at goes through that of @r once. */
static struct ctl_owed *next_untold(struct ctl_revocation *old, struct ctl_owed *o,
                                    const struct ctl_revocation *r, const struct list **at)
{
	struct list *l = o ? o->link.next : old->owed.next;

	for (; l != &old->owed; l = l->next) {
		const struct list *n = *at;

		o = container_of(l, struct ctl_owed, link);
		if (o->stream || o->state != CTL_OWED)
			continue;
		while (n != &r->owed &&
		       !ros2_uid_eq(&container_of(n, struct ctl_owed, link)->agent_uid,
		                    &o->agent_uid))
			n = n->next;
		if (n == &r->owed)
			continue;
		*at = n->next;
		return o;
	}
	return NULL;
}

void revoke_supersede_rows(struct ctl *c, struct store_txn *t, struct store_draft *d,
                           const struct ctl_revocation *r)
{
	struct ctl_revocation *old;

	for (old = first_of(c, &r->target_uid); old; old = next_of(c, old)) {
		const struct list *at = r->owed.next;
		struct ctl_owed *o = is_earlier(old, r) ? next_untold(old, NULL, r, &at) : NULL;

		if (o)
			store_draft_detail(t, d, "supersedes", store_txn_uid(t, &old->uid));
		for (; o; o = next_untold(old, o, r, &at))
			store_txn_add(t, STORE_RECEIPT_DELETE)->receipt = (struct store_receipt){
				.revocation_uid = old->uid, .agent_uid = o->agent_uid};
	}
}

void revoke_supersede(struct ctl *c, const struct ctl_revocation *r)
{
	struct ctl_revocation *old, *next;

	for (old = first_of(c, &r->target_uid); old; old = next) {
		const struct list *at = r->owed.next;
		struct ctl_owed *o, *after;

		next = next_of(c, old);
		if (!is_earlier(old, r))
			continue;
		for (o = next_untold(old, NULL, r, &at); o; o = after) {
			after = next_untold(old, o, r, &at);
			list_del(&o->link);
			free(o->pending);
			free(o);
		}
		if (revoke_is_over(old))
			revoke_free(c, old);
	}
}

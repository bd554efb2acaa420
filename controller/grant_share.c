/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one tenant may have waiting at the store for its grants, over all agents: new ones, renewals
 * and ends. The store commits in the order of submission, so what one tenant has there is what
 * every other waits for. Invariants: (1) one tenant has at most a batch there, so that its
 * neighbour waits for one commit more; (2) tenants together never fill the queue: each may have an
 * eighth of what is left, so that something is always left; (3) revocations and receipts are not
 * counted and never ask.
 */
#include "controller/ctl.h"
#include <assert.h>

#define PART_OF_REST 8 /* a share is at most one of so many parts of what nobody has */

static_assert(CTL_GRANTS_WAITING_MAX <= STORE_BATCH_MAX, "a tenant's share is more than a batch");

static unsigned share(const struct ctl *c)
{
	unsigned left = STORE_QUEUE_MAX - MIN(c->grants_waiting, (unsigned)STORE_QUEUE_MAX);

	return MIN((unsigned)CTL_GRANTS_WAITING_MAX, left / PART_OF_REST);
}

bool ctl_grant_may_wait(const struct ctl *c, const struct ctl_object *tenant, bool ends)
{
	/* Ends lose nothing by waiting; new sessions would by waiting for them. */
	return tenant->grants_waiting < share(c) / (ends ? 2 : 1);
}

void ctl_grant_waits(struct ctl_grant *g)
{
	g->in_flight++;
	g->ctl->grants_waiting++;
	g->tenant->grants_waiting++;
}

void ctl_grant_waited(struct ctl_grant *g)
{
	g->in_flight--;
	g->ctl->grants_waiting--;
	if (g->tenant)
		g->tenant->grants_waiting--;
}

void ctl_grant_left(struct ctl_grant *g)
{
	g->tenant->grants_waiting -= g->in_flight;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/depth.h"
#include "common/util.h"

void depth_enter(struct depth_use *u, uint64_t bytes)
{
	u->n++;
	u->still = 0;
	u->kib += depth_kib(bytes);
	u->most = MAX(u->most, u->kib);
}

void depth_leave(struct depth_use *u, uint64_t bytes)
{
	u->n--;
	u->still = 0;
	u->kib -= depth_kib(bytes);
}

bool depth_allows(struct depth_use *u, const struct depth_least *l)
{
	uint32_t least = l->of == u ? l->others : l->kib;

	if ((u->n < DEPTH_SURE && u->kib < DEPTH_SURE_KIB) || u->kib < least)
		return true;
	u->more = true;
	return false;
}

void depth_least_begin(struct depth_least *l)
{
	*l = (struct depth_least){.kib = DEPTH_ALL, .others = DEPTH_ALL};
}

static uint32_t asks_for(const struct depth_use *u)
{
	if (u->still > DEPTH_STILL)
		return 0;
	return u->more || u->more_before ? DEPTH_ALL : MAX(u->most, u->most_before);
}

void depth_least_add(struct depth_least *l, struct depth_use *u)
{
	uint32_t asks;

	u->still += u->still <= DEPTH_STILL;
	asks = asks_for(u);
	u->more_before = u->more;
	u->most_before = u->most;
	u->more = false;
	u->most = u->kib;
	if (asks == 0)
		return;
	if (asks < l->kib) {
		l->others = l->kib;
		l->kib = asks;
		l->of = u;
	} else {
		l->others = MIN(l->others, asks);
	}
}

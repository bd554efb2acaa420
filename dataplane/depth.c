/* SPDX-License-Identifier: Apache-2.0 */
#include "dataplane/depth.h"
#include "common/util.h"
#include <stddef.h>

static uint32_t moving_kib(const struct depth_use *u)
{
	return u->kib - u->stuck.kib;
}

uint32_t depth_enter(struct depth_use *u, struct depth_least *l, uint64_t bytes)
{
	l->inside++;
	u->n++;
	u->still = 0;
	u->kib += depth_kib(bytes);
	u->most = MAX(u->most, moving_kib(u));
	return u->mark;
}

void depth_leave(struct depth_use *u, struct depth_least *l, uint64_t bytes, uint32_t mark)
{
	uint32_t kib = depth_kib(bytes);
	struct depth_part *part = mark < u->stuck.until    ? &u->stuck
	                          : mark < u->looked.until ? &u->looked
	                                                   : NULL;

	l->inside--;
	l->out++;
	u->n--;
	u->out++;
	u->still = 0;
	u->kib -= kib;
	if (part) {
		part->n--;
		part->kib -= kib;
	}
}

bool depth_allows(struct depth_use *u, const struct depth_least *l)
{
	uint32_t least = l->of == u ? l->others : l->kib, kib = moving_kib(u);

	if ((u->n - u->stuck.n < DEPTH_SURE && kib < DEPTH_SURE_KIB) || kib < least)
		return true;
	u->more = true;
	return false;
}

void depth_least_begin(struct depth_least *l)
{
	l->of = NULL;
	l->kib = l->others = DEPTH_ALL;
}

static uint32_t asks_for(const struct depth_use *u)
{
	if (u->still > DEPTH_STILL)
		return 0;
	return u->more || u->more_before ? DEPTH_ALL : MAX(u->most, u->most_before);
}

/* Those that are looked at have a second, or the time that the others take. */
static void look_from_now(struct depth_use *u, const struct depth_least *l)
{
	u->look.ticks = 0;
	u->look.n = u->looked.n;
	u->look.inside = l->inside;
	u->look.others = l->out - u->out;
}

/* All that is inside, and not stuck. */
static void look_at_all(struct depth_use *u)
{
	u->looked = (struct depth_part){
		.until = ++u->mark, .n = u->n - u->stuck.n, .kib = u->kib - u->stuck.kib};
}

static void looked_at_is_stuck(struct depth_use *u)
{
	u->stuck = (struct depth_part){.until = u->looked.until,
	                               .n = u->stuck.n + u->looked.n,
	                               .kib = u->stuck.kib + u->looked.kib};
}

static void look(struct depth_use *u, const struct depth_least *l)
{
	u->look.ticks += u->look.ticks <= DEPTH_STILL;
	if (u->look.ticks <= DEPTH_STILL)
		return;
	if (u->looked.n > 0 && u->looked.n == u->look.n) {
		if (l->out - u->out - u->look.others < u->look.inside)
			return;
		looked_at_is_stuck(u);
		look_at_all(u);
	} else if (u->looked.n == 0) {
		look_at_all(u);
	}
	look_from_now(u, l);
}

void depth_least_add(struct depth_least *l, struct depth_use *u)
{
	uint32_t asks;

	u->still += u->still <= DEPTH_STILL;
	look(u, l);
	asks = asks_for(u);
	u->more_before = u->more;
	u->most_before = u->most;
	u->more = false;
	u->most = moving_kib(u);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* See sweep.h. */
#include "tests/sweep/sweep.h"

#include <stdatomic.h>

static _Atomic int armed; /* an enum sweep_kind, 0 = off */
static _Atomic int error;
static _Atomic uint32_t fail_at, calls;
static _Atomic bool for_good, fired;

bool sweep_next(struct sweep *s)
{
	sweep_off();
	if (s->at > 0 && !sweep_fired()) {
		if (s->persistent)
			return false;
		s->persistent = true;
		s->at = 0;
	}
	s->points += s->at > 0;
	s->at++;
	error = s->error;
	fail_at = s->at;
	for_good = s->persistent;
	calls = 0;
	fired = false;
	armed = (int)s->kind;
	return true;
}

void sweep_off(void)
{
	armed = 0;
}

bool sweep_fired(void)
{
	return fired;
}

int sweep_hit(enum sweep_kind kind)
{
	uint32_t n;

	if (armed != (int)kind)
		return 0;
	n = atomic_fetch_add(&calls, 1) + 1;
	if (n != fail_at && !(for_good && n > fail_at))
		return 0;
	fired = true;
	return error;
}

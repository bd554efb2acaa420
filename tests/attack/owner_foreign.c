/* SPDX-License-Identifier: Apache-2.0 */
/* The attacker of owner.h: two ends of its own, in raw verbs. */
#include "tests/attack/owner.h"
#include "tests/attack/verbs_rig.h"

int owner_invalidate(uint32_t key)
{
	struct raw raw;
	struct raw_end e[2] = {0};
	struct raw_join j = {.access = 0, .rnr_retry = 3};
	int r = raw_open(&raw, "rxe0");

	for (int i = 0; i < 2 && !r; i++)
		r = raw_end_open(&raw, NULL, &e[i]);
	for (int i = 0; i < 2 && !r; i++) {
		raw_end_addr(&e[!i], &j.peer);
		r = raw_end_join(&e[i], &j);
	}
	if (!r)
		r = raw_recv(&e[1]);
	if (!r)
		r = raw_do(&e[0], IBV_WR_SEND_WITH_INV, 0, 8, key);
	for (int i = 0; i < 2; i++)
		raw_end_close(&e[i]);
	raw_close(&raw);
	return r;
}

const char *owner_end_str(int end)
{
	return raw_end_str(end);
}

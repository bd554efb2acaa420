/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of keys that the wrong side brings about, or that do not come about: a queue pair used again
 * with a live key, a key that another tenant invalidates. */
#include "tests/attack/verbs_stage.h"
#include <errno.h>
#include <string.h>

static int cannot(struct attack_try *t, const struct stage *s, const char *what, int r)
{
	attack_seen(t, "%s: %s %s", what, raw_end_str(r), s->err.msg);
	return r < 0 ? r : -EIO;
}

static int begin(struct attack_try *t, struct stage *s, const struct stage_opts *o,
                 struct stage_lease *l)
{
	int r = stage_open(s, t->defended, o);

	if (!r)
		r = stage_lend(s, A, 8192, true, l);
	if (!r && !stage_serves(s, l))
		r = -ENOTCONN;
	return r ? cannot(t, s, "A is not served before the attack", r) : 0;
}

/* A's connection ends while a key of it lives, and the next one in its place goes to B. */
static int reuse(struct attack_try *t)
{
	static const struct stage_opts o = {.one_tenant = true};
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l), end;

	if (!r)
		r = stage_rejoin(&s, A, B);
	if (!r) {
		memset(s.peer[B].mem, 'x', 64);
		end = raw_do(&s.peer[B], IBV_WR_RDMA_WRITE, l.addr, 64, l.key);
		t->worked = end == IBV_WC_SUCCESS || stage_changed(&l);
		attack_seen(t, "the old key on the queue pair's next connection: %s, %u bytes",
		            raw_end_str(end), stage_changed(&l));
	} else if (!t->seen[0]) {
		cannot(t, &s, "the next connection", r);
	}
	stage_close(&s);
	return r;
}

/* B's message names A's window, which is bound: the case of a free one stops kernels. */
static int invalidate(struct attack_try *t, const struct stage_opts *o)
{
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, o, &l), end;

	/* on a device of its own B has nobody to talk to but itself */
	if (!r && o->device_b) {
		struct raw_join j = {.access = RAW_ALL};

		raw_end_addr(&s.peer[B], &j.peer);
		r = raw_end_join(&s.peer[B], &j);
		if (!r)
			r = raw_recv(&s.peer[B]);
	}
	if (!r) {
		end = raw_do(&s.peer[B], IBV_WR_SEND_WITH_INV, 0, 8, l.key);
		t->worked = !stage_serves(&s, &l);
		attack_seen(t, "B's SEND naming A's window: %s; A's key %s", raw_end_str(end),
		            t->worked ? "is dead" : "lives");
	} else if (!t->seen[0]) {
		cannot(t, &s, "B's connection", r);
	}
	stage_close(&s);
	return r;
}

/* The same, of a key that is a window in the control, too: the agent without defence has none. */
static int foreign_invalidate(struct attack_try *t)
{
	static const struct stage_opts o = {.recvs = 8};

	/* nothing of ours stands in its way: the control is the device itself */
	t->defended = true;
	return invalidate(t, &o);
}

static int invalidate_across(struct attack_try *t)
{
	static const struct stage_opts apart = {.recvs = 8, .device_b = "rxe1"};

	if (!t->defended)
		return foreign_invalidate(t);
	return invalidate(t, &apart);
}

const struct attack attacks_ends[] = {
	{"queue_pair_reuse_with_a_live_window", "queue-pair reuse with a live window",
         "IBA vol. 1, 10.6.7.2",
         "no queue pair is used twice; windows are deallocated before theirs ends", reuse},
	{"foreign_remote_invalidate", "foreign remote invalidate", "IBA vol. 1, 10.6.7.2",
         "placement.require: [foreign-invalidate]", foreign_invalidate, true,
         PROBE_FOREIGN_INVALIDATE},
	{"foreign_remote_invalidate_from_another_function",
         "the same, from a device function of its own", "IBA vol. 1, 10.6.7.2",
         "a device function for each tenant", invalidate_across},
};
const unsigned n_attacks_ends = ARRAY_SIZE(attacks_ends);

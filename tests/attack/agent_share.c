/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alpha and beta each have work at one reactor, READs, and beta floods it over more connections
 * with requests that move no byte. What each of them gets is counted in requests that were
 * answered, between two of alpha's: a guest's time is emulated, and whose processor it is, is
 * chance.
 */
#include "tests/attack/agent_end.h"
#include "common/clock.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS  2u /* connections of either */
#define FLOODERS 8u /* beta's besides */
#define CONNS    (2 * WORKERS + FLOODERS)
#define DEPTH    48u
#define SMALL    4096u
#define SETTLING 512u /* of alpha's answers, not counted */
#define COUNTED  4096u
#define BAR      45u /* 90 % of its half */

enum part { ALPHAS, BETAS, FLOOD, PARTS };

struct busy {
	struct end e;
	enum part part;
	uint32_t out;
};

struct load {
	struct busy conn[CONNS];
	uint64_t done[PARTS];
	uint64_t other; /* answers that are none of a request carried out */
};

static struct wire_header next_of(struct busy *b)
{
	struct wire_header h = end_request(&b->e, WIRE_READ);

	h.length = b->part == FLOOD ? 0 : SMALL;
	h.request_id = ++b->e.next_id;
	return h;
}

/* Counts what was answered, and asks for as much again. */
static int goes_on(struct load *l, struct busy *b)
{
	struct wire_header h;
	int r;

	while (!(r = peer_look(b->e.p, &h))) {
		b->out--;
		if (h.opcode == WIRE_COMPLETE && !h.status)
			l->done[b->part]++;
		else
			l->other++;
	}
	if (r == -EAGAIN)
		r = 0;
	for (; !r && b->out < DEPTH; b->out++) {
		h = next_of(b);
		r = peer_send(b->e.p, &h, NULL);
	}
	return r;
}

/* Until alpha has had @answers. */
static int until(struct load *l, uint64_t answers)
{
	uint64_t end_ns = clock_boottime_ns() + 6 * END_WAIT_MS * NS_PER_MS;
	int r = 0;

	while (!r && !l->other && l->done[ALPHAS] < answers) {
		for (uint32_t i = 0; i < CONNS && !r; i++)
			r = goes_on(l, &l->conn[i]);
		if (clock_boottime_ns() > end_ns)
			r = -ETIMEDOUT;
	}
	return r ? r : l->other ? -EPROTO : 0;
}

static int begin(struct site *site, struct load *l)
{
	int r = 0;

	for (uint32_t i = 0; i < CONNS && !r; i++) {
		struct busy *b = &l->conn[i];

		b->part = i < WORKERS ? ALPHAS : i < 2 * WORKERS ? BETAS : FLOOD;
		r = end_come(site, b->part == ALPHAS ? ALPHA : BETA, &b->e);
		if (!r)
			r = end_works(&b->e) ? 0 : -EIO;
	}
	return r;
}

int agent_share_of_throughput(struct site *site, struct attack_try *t)
{
	struct load *l = calloc(1, sizeof(*l));
	uint64_t before[PARTS], n[PARTS], all = 0;
	uint32_t part;
	int r = l ? begin(site, l) : -ENOMEM;

	if (!r)
		r = until(l, SETTLING);
	if (!r) {
		memcpy(before, l->done, sizeof(before));
		r = until(l, before[ALPHAS] + COUNTED);
	}
	if (r) {
		attack_seen(t, "alpha, and beta that floods: %s, alpha has %llu answers",
		            strerror(-r), (unsigned long long)(l ? l->done[ALPHAS] : 0));
	} else {
		for (int i = 0; i < PARTS; i++)
			all += n[i] = l->done[i] - before[i];
		part = (uint32_t)(1000 * n[ALPHAS] / all);
		t->worked = part < 10 * BAR;
		attack_seen(
			t,
			"alpha has %llu answers over %u connections, beta %llu over %u, of them "
			"%llu to READs as alpha's: alpha has %u.%u %%",
			(unsigned long long)n[ALPHAS], WORKERS,
			(unsigned long long)(n[BETAS] + n[FLOOD]), WORKERS + FLOODERS,
			(unsigned long long)n[BETAS], part / 10, part % 10);
	}
	for (uint32_t i = 0; l && i < CONNS; i++)
		end_leave(&l->conn[i].e);
	free(l);
	return r;
}

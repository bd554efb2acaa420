/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of one engine's queue a tenant may fill while others are at that engine. The turns of
 * admit.c decide who enters; inside, a disk or a target serves what it has in its own order, so
 * who keeps eight times as much there gets eight times as much, and its neighbour's requests wait
 * behind all of it. So while several are there, each has in the engine no more than the one that
 * asks for least, and what is more than that waits where there are turns. Two exceptions:
 * DEPTH_SURE requests of at most DEPTH_SURE_KIB are everybody's, so that one who asks for next to
 * nothing does not empty the queue of a device that lives on it; and who asks for more than it may
 * have asks for everything, so that two of those do not hold each other down (docs/decisions/0059).
 *
 * A tenant is at an engine while it has something in it, and until the tick after the next; but
 * what has not moved for DEPTH_STILL ticks, nothing in and nothing out, waits for storage that does
 * not answer, and holds nobody down.
 *
 * Nor does it keep a place from the others of its own tenant: what is stuck is not counted. That is
 * more than slow: in DEPTH_STILL ticks or more nothing of it came out, and as many of the other
 * tenants' as were inside altogether when this began. Where requests are served as they came, or
 * nearly, that is none, however late they are. Of one reactor, and its thread's: each reactor has
 * queues of its own in an engine.
 */
#ifndef ROS2_DATAPLANE_DEPTH_H
#define ROS2_DATAPLANE_DEPTH_H

#include <stdbool.h>
#include <stdint.h>

#define DEPTH_SURE     32u
#define DEPTH_SURE_KIB 2048u
#define DEPTH_STILL    50u /* a second */
#define DEPTH_ALL      UINT32_MAX
/* What a request counts at least: it is a command, however short. */
#define DEPTH_LEAST_KIB 4u

/* A tenant at an engine; zeroed to begin. Sizes are in KiB. Of what is inside, the first that went
 * in are stuck, those behind them are looked at, the others are young: depth_enter's mark says
 * which. */
struct depth_use {
	uint16_t n;                 /* requests that are ready for the engine, or inside */
	uint8_t still;              /* ticks without anything that went in or came out */
	bool more, more_before;     /* in this tick, the one before: it was told to wait */
	uint32_t kib;               /* of those requests */
	uint32_t most, most_before; /* the largest value of that, without what is stuck, in this
	                             * tick, the one before */
	uint32_t mark;              /* the next one's */
	uint32_t out;               /* that came out, ever */
	struct depth_part {
		uint32_t until; /* with marks below, and not of the part before */
		uint32_t n, kib;
	} stuck, looked;
	struct {
		uint8_t ticks;
		uint32_t n;              /* looked.n at the begin */
		uint32_t inside, others; /* and in the engine; what of others had come out */
	} look;
};

/* An engine: what is inside and what came out, ever; and the least that somebody asks for there,
 * who, and the least of all others. */
struct depth_least {
	uint32_t inside, out;
	const struct depth_use *of; /* borrowed, compared only */
	uint32_t kib, others;       /* DEPTH_ALL: nobody, or everything */
};

static inline uint32_t depth_kib(uint64_t bytes)
{
	uint64_t kib = (bytes + 1023) / 1024;

	return kib < DEPTH_LEAST_KIB ? DEPTH_LEAST_KIB : (uint32_t)kib;
}

/* Returns what depth_leave gets, with the same number of bytes. */
uint32_t depth_enter(struct depth_use *u, struct depth_least *l, uint64_t bytes);
void depth_leave(struct depth_use *u, struct depth_least *l, uint64_t bytes, uint32_t mark);
/* One more? False is kept in @u: it asks for more. */
bool depth_allows(struct depth_use *u, const struct depth_least *l);

/* At a tick: depth_least_begin for an engine, depth_least_add for each that may be at it. */
void depth_least_begin(struct depth_least *l);
void depth_least_add(struct depth_least *l, struct depth_use *u);
#endif

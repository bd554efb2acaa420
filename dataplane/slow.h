/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers on this machine that make the agent's calls slow. Who sends on a local socket, frees what
 * came on it or closes it wakes whoever waits at the other end, all of them, inside that call. A
 * socket can be in as many epoll sets as fs.epoll.max_user_watches allows its user: 250 000 times
 * makes each such call take 20 to 90 ms, and all tenants of the reactor wait. So these calls are
 * timed, and a peer of slow ones is ended, by two rules:
 *
 * 1. SLOW_IN_A_ROW slow calls with no quick one between them.
 * 2. SLOW_SHARE_NS in slow calls within SLOW_WINDOW_NS. A peer can choose which call finds its
 *    watchers asleep (EPOLLEXCLUSIVE), and let every fourth be quick.
 *
 * Slow is a call in which the thread ran for longer than is allowed. That it was stopped there says
 * nothing: whoever it wakes may get its processor at once, so on a busy machine this happens in
 * many of these calls, and in several that follow each other. The clock that knows is a system call
 * itself, so it is read only for SLOW_WATCH_NS after a call that was slow by the machine's clock;
 * the first of them is not counted.
 *
 * Of connections that have proved nothing each user has, besides, SLOW_SHARE_NS within
 * SLOW_PENALTY_NS for all of them, so that many short ones are no way around the rules. Whose
 * connection ended so is not talked to for SLOW_PENALTY_NS. No thread but the caller's.
 */
#ifndef ROS2_DATAPLANE_SLOW_H
#define ROS2_DATAPLANE_SLOW_H

#include "common/clock.h"
#include "common/host.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOW_NS (250 * NS_PER_US)
#define SLOW_MACHINE_NS                                                                            \
	(6 * NS_PER_US) /* a call that wakes nobody takes longer: nobody is ended                  \
	                 */
#define SLOW_IN_A_ROW   4u
#define SLOW_WATCH_NS   (10 * NS_PER_S)
#define SLOW_WINDOW_NS  NS_PER_S
#define SLOW_SHARE_NS   (250 * NS_PER_MS)
#define SLOW_PENALTY_NS (10 * NS_PER_S)
#define SLOW_USERS      16u /* that are remembered; the one seen longest ago goes */

/* Of one connection. Zeroed: none was slow. */
struct slow {
	bool over; /* it is to be ended */
	uint32_t in_a_row;
	uint64_t watched_until_ns; /* it is known how long calls run; 0 = it is not */
	uint64_t since_ns;         /* of the window */
	uint64_t spent_ns;         /* in slow calls of the window */
	uint64_t owed_ns;          /* in slow calls, not yet counted for its user */
	uint64_t last_ns;          /* the latest slow one ran */
};

struct slow_call {
	uint64_t began_ns, cpu_ns; /* cpu_ns 0: was not read */
};

struct slow_users {
	struct slow_user {
		struct host_key from;
		uint64_t seen_ns; /* 0 = free */
		uint64_t since_ns, spent_ns;
		uint64_t until_ns; /* not talked to; 0 = is */
	} of[SLOW_USERS];
	uint32_t n;
};

/* @ns, or where calls are slow anyway for ever: an emulated machine is stopped, unseen, by whom it
 * wakes, and that several times in a row. */
uint64_t slow_allowed_ns(uint64_t ns);
/* Before a reactor runs; once in a process. */
void slow_measure(void);
/* SLOW_SHARE_NS; thrice as much on such a machine, where a thread that does not run is not known
 * not to. */
uint64_t slow_share_ns(void);
/* From now on it is known how long calls run. */
void slow_watch(struct slow *s, uint64_t now_ns);
/* Around a call; @now_ns: clock_boottime_ns() right before it, and right after. */
void slow_begin(struct slow_call *c, const struct slow *s, uint64_t now_ns);
void slow_done(struct slow *s, const struct slow_call *c, uint64_t allowed_ns, uint64_t now_ns);
/* Why it is over, in one line. */
void slow_words(const struct slow *s, uint64_t allowed_ns, char *out, size_t max);

/* Counts what @s owes. True: its user has used up its time, and is not talked to from now on. */
bool slow_user_pays(struct slow_users *u, const struct host_key *from, struct slow *s);
void slow_user_shun(struct slow_users *u, const struct host_key *from);
bool slow_user_is_shunned(const struct slow_users *u, const struct host_key *from);
#endif

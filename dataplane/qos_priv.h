/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token buckets. One bucket is shared by the reactors of an agent: its only state is the moment at
 * which what was taken so far is paid for (the "theoretical arrival time" of ITU-T I.371, the
 * virtual scheduling form of a token bucket), so a draw is one compare-and-swap. Reactors draw a
 * quantum of a millisecond at a time and spend it locally. Invariants: (1) over any span T at most
 * rate * T + rate * burst + one draw per reactor is given out; (2) a request larger than the burst
 * passes when the bucket is not in debt, and the next one waits until it is paid for. Time comes
 * from the caller: nothing here reads a clock.
 */
#ifndef ROS2_DATAPLANE_QOS_PRIV_H
#define ROS2_DATAPLANE_QOS_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define QOS_BURST_MIN_NS  5000000ull /* a reactor may wake this late without losing rate */
#define QOS_QUANTUM_PER_S 1000u      /* a quantum is the rate of one millisecond */

struct qos_bucket {
	_Atomic uint64_t rate; /* units per second, 0 = not limited */
	_Atomic uint64_t burst_ns;
	_Atomic uint64_t paid_ns; /* everything taken is paid for at this time */
};
/* Tokens of one reactor: drawn and not yet spent. */
struct qos_local {
	uint64_t tokens;
	uint64_t rate; /* of the bucket, when it was last asked */
};

/* One thread, beside those that draw. Keeps the debt, in tokens; without a rate there is none. The
 * first call leaves the bucket full. @now_ns: of the clock that qos_reserve is given. */
void qos_bucket_set(struct qos_bucket *b, uint64_t rate, uint64_t burst_ns, uint64_t now_ns);
/* True when @l holds at least @cost afterwards; false and *ret_at = when to try again. */
bool qos_reserve(struct qos_bucket *b, struct qos_local *l, uint64_t cost, uint64_t now_ns,
                 uint64_t *ret_at);
/* After a true qos_reserve of the same cost. */
void qos_spend(struct qos_bucket *b, struct qos_local *l, uint64_t cost);
#endif

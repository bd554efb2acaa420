/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of token buckets; see qos_priv.h. Allocates nothing, locks nothing, reads no
 * clock. */
#include "dataplane/qos_priv.h"
#include "common/clock.h"
#include "common/util.h"

/* What is owed in tokens is owed at the new rate: who asked for 1 MiB at 1 KiB/s does not wait 17
 * minutes for it once the rate is raised. */
static void reprice(struct qos_bucket *b, uint64_t was, uint64_t rate, uint64_t now_ns)
{
	uint64_t paid = atomic_load_explicit(&b->paid_ns, memory_order_seq_cst), next;

	do {
		unsigned __int128 owed;

		if (paid <= now_ns)
			return;
		owed = ((unsigned __int128)(paid - now_ns) * was + rate - 1) / rate;
		next = clock_add_ns(now_ns, owed > UINT64_MAX ? UINT64_MAX : (uint64_t)owed);
	} while (!atomic_compare_exchange_weak_explicit(
		&b->paid_ns, &paid, next, memory_order_relaxed, memory_order_relaxed));
}

/* A draw that comes in between is cheaper for it, never dearer: of a raise it learns afterwards
 * (draw), and a lowered rate is told when the debt is of it. */
void qos_bucket_set(struct qos_bucket *b, uint64_t rate, uint64_t burst_ns, uint64_t now_ns)
{
	uint64_t was = atomic_load_explicit(&b->rate, memory_order_relaxed);

	atomic_store_explicit(&b->burst_ns, MAX(burst_ns, QOS_BURST_MIN_NS), memory_order_relaxed);
	if (!was)
		atomic_store_explicit(&b->paid_ns, 0, memory_order_relaxed);
	if (was > rate && rate)
		reprice(b, was, rate, now_ns);
	atomic_store_explicit(&b->rate, rate, memory_order_seq_cst);
	if (was < rate && was)
		reprice(b, was, rate, now_ns);
}

/* Rounded up, so that rounding never gives rate away; saturates. */
static uint64_t price_ns(uint64_t cost, uint64_t rate)
{
	unsigned __int128 ns = ((unsigned __int128)cost * NS_PER_S + rate - 1) / rate;

	return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

/* It is drawn at @rate, which meanwhile may have become more, or none, before anybody saw this
 * debt. Who else changed it since has seen it. */
static void look_once_more(struct qos_bucket *b, uint64_t cost, uint64_t rate, uint64_t from,
                           uint64_t drawn)
{
	uint64_t is = atomic_load_explicit(&b->rate, memory_order_seq_cst);

	if (is == rate || (is && is < rate))
		return;
	from = is ? clock_add_ns(from, price_ns(cost, is)) : from;
	atomic_compare_exchange_strong_explicit(&b->paid_ns, &drawn, from, memory_order_relaxed,
	                                        memory_order_relaxed);
}

static bool draw(struct qos_bucket *b, uint64_t cost, uint64_t rate, uint64_t now_ns,
                 uint64_t *ret_at)
{
	uint64_t burst = atomic_load_explicit(&b->burst_ns, memory_order_relaxed);
	uint64_t floor = now_ns > burst ? now_ns - burst : 0;
	uint64_t paid = atomic_load_explicit(&b->paid_ns, memory_order_relaxed), next;

	do {
		if (paid > now_ns) {
			*ret_at = paid;
			return false;
		}
		next = clock_add_ns(MAX(paid, floor), price_ns(cost, rate));
	} while (!atomic_compare_exchange_weak_explicit(
		&b->paid_ns, &paid, next, memory_order_seq_cst, memory_order_relaxed));
	look_once_more(b, cost, rate, MAX(paid, floor), next);
	return true;
}

/* Rounded down, as what is given back must be. */
static void give_back(struct qos_bucket *b, uint64_t tokens, uint64_t rate)
{
	unsigned __int128 ns = (unsigned __int128)tokens * NS_PER_S / rate;
	uint64_t paid = atomic_load_explicit(&b->paid_ns, memory_order_relaxed), next;

	do
		next = paid > ns ? paid - (uint64_t)ns : 0;
	while (!atomic_compare_exchange_weak_explicit(&b->paid_ns, &paid, next,
	                                              memory_order_relaxed, memory_order_relaxed));
}

/* A millisecond of 10 GiB/s would be a quarter of an hour of 10 KiB/s: of what was drawn and not
 * spent it keeps as much as is a millisecond now, and the rest is not owed any more. */
static void follow(struct qos_bucket *b, struct qos_local *l, uint64_t rate)
{
	uint64_t had = l->tokens;

	if (rate < l->rate) {
		l->tokens = (uint64_t)((unsigned __int128)had * rate / l->rate);
		give_back(b, had - l->tokens, rate);
	}
	l->rate = rate;
}

bool qos_reserve(struct qos_bucket *b, struct qos_local *l, uint64_t cost, uint64_t now_ns,
                 uint64_t *ret_at)
{
	uint64_t rate = atomic_load_explicit(&b->rate, memory_order_acquire), want;

	if (rate == 0)
		return true;
	if (rate != l->rate)
		follow(b, l, rate);
	if (l->tokens >= cost)
		return true;
	want = MAX(cost - l->tokens, rate / QOS_QUANTUM_PER_S);
	if (!draw(b, want, rate, now_ns, ret_at))
		return false;
	l->tokens += want;
	return true;
}

void qos_spend(struct qos_bucket *b, struct qos_local *l, uint64_t cost)
{
	l->tokens -= MIN(l->tokens, cost);
}

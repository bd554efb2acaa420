/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latency histogram: 64 steps per power of two, so a percentile is off by less than 1.6 %. Values
 * below 64 ns are exact.
 */
#include "common/util.h"
#include "tools/bench/bench.h"

static uint32_t slot_of(uint64_t ns)
{
	uint32_t top;

	if (ns < HIST_SUB)
		return (uint32_t)ns;
	top = 63 - (uint32_t)__builtin_clzll(ns);
	return (top - 5) * HIST_SUB + (uint32_t)((ns >> (top - 6)) & (HIST_SUB - 1));
}

/* The highest value of a slot. */
static uint64_t value_of(uint32_t slot)
{
	uint32_t top = slot / HIST_SUB + 5;

	if (slot < HIST_SUB)
		return slot;
	return (((uint64_t)HIST_SUB + slot % HIST_SUB + 1) << (top - 6)) - 1;
}

void hist_add(struct hist *h, uint64_t ns)
{
	h->count++;
	h->sum += ns;
	h->max = MAX(h->max, ns);
	h->slots[MIN(slot_of(ns), HIST_SLOTS - 1u)]++;
}

void hist_merge(struct hist *to, const struct hist *from)
{
	to->count += from->count;
	to->sum += from->sum;
	to->max = MAX(to->max, from->max);
	for (uint32_t i = 0; i < HIST_SLOTS; i++)
		to->slots[i] += from->slots[i];
}

uint64_t hist_percentile(const struct hist *h, double p)
{
	/* As fio: the first value that at least p % are not above. */
	long double want = (long double)h->count * (long double)p / 100.0L - 1e-9L;
	uint64_t seen = 0;

	for (uint32_t i = 0; i < HIST_SLOTS; i++) {
		seen += h->slots[i];
		if (seen && (long double)seen >= want)
			return MIN(value_of(i), h->max);
	}
	return h->max;
}

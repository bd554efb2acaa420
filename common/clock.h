/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. Rights are counted on CLOCK_BOOTTIME (it goes on while the machine sleeps or the process is
 * stopped); the wall clock only labels records for people.
 */
#ifndef ROS2_COMMON_CLOCK_H
#define ROS2_COMMON_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* A moment of one boot of one machine: comparable only with stamps of the same boot id. */
struct clock_stamp {
	uint8_t boot_id[16]; /* /proc/sys/kernel/random/boot_id */
	uint64_t boottime_ns;
};

uint64_t clock_boottime_ns(void);
uint64_t clock_monotonic_ns(void);
uint64_t clock_unix_ns(void);
/* 0, or -EIO when the kernel does not tell its boot id. The id is read once and cached. */
int clock_stamp_now(struct clock_stamp *ret);
bool clock_stamp_same_boot(const struct clock_stamp *a, const struct clock_stamp *b);
/* a + b, saturating at UINT64_MAX: no duration a peer can send wraps a deadline. */
uint64_t clock_add_ns(uint64_t a, uint64_t b);
/* "2026-01-31T12:00:00.123456Z" */
void clock_format_unix_ns(uint64_t unix_ns, char out[32]);
#endif

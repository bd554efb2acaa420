/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before clock_boottime_ns (ld --wrap), of which it must be the only such one. */
#include "tests/clock_ahead.h"

_Atomic uint64_t clock_ahead_ns;

uint64_t __real_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void)
{
	return __real_clock_boottime_ns() + clock_ahead_ns;
}

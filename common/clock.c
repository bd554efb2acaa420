/* SPDX-License-Identifier: Apache-2.0 */
/* Reads clocks. The boot id is read once; afterwards nothing here can fail or block. */
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static uint8_t boot_id[16];
static int boot_err = -EIO;

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	/* Cannot fail for these ids and a valid pointer on any kernel with CLOCK_BOOTTIME (2.6.39).
	 */
	if (clock_gettime(id, &ts) < 0)
		abort();
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_boottime_ns(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

uint64_t clock_monotonic_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_unix_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* "c9f2a1b4-....-....-....-............": 32 digits, dashes anywhere. */
static int parse_boot_id(const char *s, size_t n, uint8_t out[16])
{
	size_t digits = 0;

	for (size_t i = 0; i < n && digits < 32; i++) {
		int v = hex_value(s[i]);

		if (s[i] == '-')
			continue;
		if (v < 0)
			return -EIO;
		out[digits / 2] = (uint8_t)(digits % 2 ? out[digits / 2] | v : v << 4);
		digits++;
	}
	return digits == 32 ? 0 : -EIO;
}

static void read_boot_id(void)
{
	AUTO_CLOSE int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
	char buf[64];
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, buf, sizeof(buf));
	if (n > 0)
		boot_err = parse_boot_id(buf, (size_t)n, boot_id);
}

int clock_stamp_now(struct clock_stamp *ret)
{
	pthread_once(&boot_once, read_boot_id);
	if (boot_err)
		return boot_err;
	memcpy(ret->boot_id, boot_id, sizeof(boot_id));
	ret->boottime_ns = clock_boottime_ns();
	return 0;
}

bool clock_stamp_same_boot(const struct clock_stamp *a, const struct clock_stamp *b)
{
	return !memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id));
}

uint64_t clock_add_ns(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

void clock_format_unix_ns(uint64_t unix_ns, char out[32])
{
	time_t seconds = (time_t)(unix_ns / NS_PER_S);
	struct tm tm;
	size_t n;

	/* 2^64 ns end in the year 2554, so the year always has four digits. */
	gmtime_r(&seconds, &tm);
	n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, 32 - n, ".%06uZ", (unsigned)(unix_ns % NS_PER_S / 1000));
}

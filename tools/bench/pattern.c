/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of verified blocks. Each sector of 512 bytes begins with a label (magic, offset in
 * the file, seed, generation); the rest is drawn from these, so that a torn or foreign sector
 * shows.
 */
#include "common/util.h"
#include "tools/bench/bench.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECTOR        512u
#define PATTERN_MAGIC 0x73326f72u /* "ro2s" */

struct label {
	uint32_t magic, generation;
	uint64_t offset, seed;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

static void make_sector(uint8_t out[SECTOR], const struct label *l)
{
	uint64_t state = mix(l->offset ^ mix(l->seed ^ l->generation)), words[SECTOR / 8];

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		state += 0x9e3779b97f4a7c15ull;
		words[i] = state ^ state >> 29;
	}
	memcpy(out, words, SECTOR);
	memcpy(out, l, sizeof(*l));
}

void pattern_fill(void *p, size_t n, uint64_t seed, uint64_t offset, uint32_t generation)
{
	uint8_t sector[SECTOR];

	for (size_t at = 0; at < n; at += SECTOR) {
		struct label l = {PATTERN_MAGIC, generation, offset + at, seed};

		make_sector(sector, &l);
		memcpy((uint8_t *)p + at, sector, MIN(n - at, (size_t)SECTOR));
	}
}

int pattern_check_zeros(const void *p, size_t n, uint64_t offset, struct ros2_err *err)
{
	const uint8_t *at = p;

	for (size_t i = 0; i < n; i++)
		if (at[i])
			return ros2_err_named(err, ROS2_CORRUPT,
			                      "at offset %llu: 0x%02x where zeros were asked for",
			                      (unsigned long long)(offset + i), at[i]);
	return 0;
}

int pattern_check_trimmed(const void *p, size_t n, uint64_t seed, uint64_t offset,
                          uint32_t generation, struct ros2_err *err)
{
	const uint8_t *at = p;
	uint8_t sector[SECTOR];

	for (size_t i = 0; i < n; i++) {
		struct label l = {PATTERN_MAGIC, generation, offset + i, seed};

		if (i % SECTOR == 0)
			make_sector(sector, &l);
		if (at[i] && at[i] != 0xff && at[i] != sector[i % SECTOR])
			return ros2_err_named(err, ROS2_CORRUPT,
			                      "at offset %llu: 0x%02x, which is not what was "
			                      "given up there, nor 0 or 0xff",
			                      (unsigned long long)(offset + i), at[i]);
	}
	return 0;
}

void pattern_spoil(void *p, size_t n)
{
	for (size_t at = 0; at < n; at += SECTOR)
		memset((uint8_t *)p + at, 0xdb, MIN(n - at, sizeof(struct label)));
}

static int explain(const uint8_t *p, size_t n, const struct label *want, struct ros2_err *err)
{
	struct label got = {0};

	memcpy(&got, p, MIN(n, sizeof(got)));
	if (n < sizeof(got) || got.magic != PATTERN_MAGIC || got.seed != want->seed)
		return ros2_err_named(err, ROS2_CORRUPT,
		                      "at offset %llu: no block of this run's pattern",
		                      (unsigned long long)want->offset);
	if (got.offset != want->offset)
		return ros2_err_named(err, ROS2_CORRUPT,
		                      "at offset %llu: misplaced, it is the block of offset %llu",
		                      (unsigned long long)want->offset,
		                      (unsigned long long)got.offset);
	if (got.generation != want->generation)
		return ros2_err_named(err, ROS2_CORRUPT,
		                      "at offset %llu: stale, generation %u where %u was written",
		                      (unsigned long long)want->offset, got.generation,
		                      want->generation);
	return ros2_err_named(err, ROS2_CORRUPT, "at offset %llu: bytes behind the label differ",
	                      (unsigned long long)want->offset);
}

int pattern_check(const void *p, size_t n, uint64_t seed, uint64_t offset, uint32_t generation,
                  struct ros2_err *err)
{
	uint8_t sector[SECTOR];

	for (size_t at = 0; at < n; at += SECTOR) {
		struct label l = {PATTERN_MAGIC, generation, offset + at, seed};
		size_t len = MIN(n - at, (size_t)SECTOR);

		make_sector(sector, &l);
		if (memcmp((const uint8_t *)p + at, sector, len))
			return explain((const uint8_t *)p + at, len, &l, err);
	}
	return 0;
}

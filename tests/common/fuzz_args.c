/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a number with a unit, as flags of programs take them. What is accepted is digits and
 * one of the units, and its value is theirs; a refusal leaves the result alone.
 */
#include "common/args.h"
#include "common/util.h"
#include "tests/fuzz/fuzz.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct args_unit units[] = {
	{"", 1}, {"k", 1024}, {"KiB", 1024}, {"G", 1ull << 30}, {"max", UINT64_MAX}};

/* The digits of @v after any zeroes of @s, and then the unit. */
static bool is_spelling(const char *s, uint64_t v, const struct args_unit *u)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%" PRIu64, v / u->factor);
	while (*s == '0' && s[1] >= '0' && s[1] <= '9')
		s++;
	return v % u->factor == 0 && !strncmp(s, digits, strlen(digits)) &&
	       !strcmp(s + strlen(digits), u->name);
}

static void with_unit(const char *s)
{
	const uint64_t mark = 0x0123456789abcdefull;
	uint64_t v = mark;
	bool found = false;

	if (args_with_unit(s, units, ARRAY_SIZE(units), &v) < 0) {
		must(v == mark);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		found |= is_spelling(s, v, &units[i]);
	must(found);
}

static void plain(const char *s)
{
	const uint64_t mark = 0x0123456789abcdefull;
	uint64_t v = mark, bounded = mark;

	if (args_u64(s, UINT64_MAX, &v) < 0) {
		must(v == mark && args_u64(s, 4096, &bounded) < 0 && bounded == mark);
		return;
	}
	must(is_spelling(s, v, &units[0]));
	if (args_u64(s, 4096, &bounded) == 0)
		must(bounded == v && v <= 4096);
	else
		must(bounded == mark && v > 4096);
}

static void caps(const char *s)
{
	uint32_t all = 7, each = 64;

	if (args_caps(s, 4096, &all, &each) < 0)
		must(all == 7 && each == 64);
	else
		must(all && each && each <= all && all <= 4096);
	all = each = 0;
	if (args_caps(s, 4096, &all, &each) == 0)
		must(all && each <= all && !each == !strchr(s, ','));
}

static void duration(const char *s)
{
	uint64_t ms;

	if (args_duration_ms(s, &ms) == 0)
		must(*s >= '0' && *s <= '9' && strchr("smhd", s[strlen(s) - 1]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = fuzz_text(data, size);

	with_unit(s);
	plain(s);
	caps(s);
	duration(s);
	free(s);
	return 0;
}

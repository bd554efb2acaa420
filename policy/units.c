/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of units and one number reader: digits, optionally a fraction that comes out whole, then
 * exactly one unit. */
#include "policy/units.h"
#include "common/util.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FRACTION_DIGITS 3

struct unit {
	const char *suffix;
	uint64_t factor; /* 0: ambiguous or refused, @why says so */
	const char *why;
};

/* Largest first: unit_format takes the first that divides. */
static const struct unit bytes_units[] = {
	{"TiB", 1ull << 40, NULL},
	{"GiB", 1ull << 30, NULL},
	{"MiB", 1ull << 20, NULL},
	{"KiB", 1ull << 10, NULL},
	{"B", 1, NULL},
	{"", 0, "a size with its unit (B, KiB, MiB, GiB or TiB)"},
	{"T", 0, "TiB (`T` is ambiguous)"},
	{"G", 0, "GiB (`G` is ambiguous)"},
	{"M", 0, "MiB (`M` is ambiguous)"},
	{"K", 0, "KiB (`K` is ambiguous)"},
	{"k", 0, "KiB (`k` is ambiguous)"},
	{"TB", 0, "TiB (`TB` is ambiguous)"},
	{"GB", 0, "GiB (`GB` is ambiguous)"},
	{"MB", 0, "MiB (`MB` is ambiguous)"},
	{"KB", 0, "KiB (`KB` is ambiguous)"},
	{"kB", 0, "KiB (`kB` is ambiguous)"},
};

static const struct unit rate_units[] = {
	{"TiB/s", 1ull << 40, NULL},
	{"GiB/s", 1ull << 30, NULL},
	{"MiB/s", 1ull << 20, NULL},
	{"KiB/s", 1ull << 10, NULL},
	{"B/s", 1, NULL},
	{"", 0, "a bandwidth with its unit (B/s, KiB/s, MiB/s, GiB/s or TiB/s)"},
	{"B", 0, "a bandwidth per second (B/s)"},
	{"KiB", 0, "a bandwidth per second (KiB/s)"},
	{"MiB", 0, "a bandwidth per second (MiB/s)"},
	{"GiB", 0, "a bandwidth per second (GiB/s)"},
	{"TiB", 0, "a bandwidth per second (TiB/s)"},
	{"KB/s", 0, "KiB/s (`KB/s` is ambiguous)"},
	{"kB/s", 0, "KiB/s (`kB/s` is ambiguous)"},
	{"MB/s", 0, "MiB/s (`MB/s` is ambiguous)"},
	{"GB/s", 0, "GiB/s (`GB/s` is ambiguous)"},
	{"Gb/s", 0, "bytes per second, like GiB/s"},
	{"Mb/s", 0, "bytes per second, like MiB/s"},
};

static const struct unit ops_units[] = {
	{"M", 1000000, NULL},
	{"k", 1000, NULL},
	{"", 1, NULL},
	{"K", 0, "k for 1000 (`K` is ambiguous)"},
	{"m", 0, "M for 1000000 (`m` is ambiguous)"},
};

static const struct unit duration_units[] = {
	{"d", 86400000, NULL},
	{"h", 3600000, NULL},
	{"m", 60000, NULL},
	{"s", 1000, NULL},
	{"ms", 1, NULL},
	{"", 0, "a duration with its unit (ms, s, m, h or d)"},
	{"M", 0, "m for minutes (`M` is ambiguous)"},
	{"us", 0, "a duration of whole milliseconds"},
	{"ns", 0, "a duration of whole milliseconds"},
};

static const struct unit count_units[] = {
	{"", 1, NULL},
	{"k", 0, "a count written out in digits"},
	{"M", 0, "a count written out in digits"},
};

static const struct unit_table {
	const struct unit *units;
	size_t n;
	const char *expected;
} tables[] = {
	[UNIT_COUNT] = {count_units, ARRAY_SIZE(count_units), "a whole number, like 64"},
	[UNIT_OPS] = {ops_units, ARRAY_SIZE(ops_units),
                      "operations per second, like 500, 400k or 2M"},
	[UNIT_BYTES] = {bytes_units, ARRAY_SIZE(bytes_units),
                        "a size with its unit, like 4KiB, 64MiB or 1GiB"},
	[UNIT_RATE] = {rate_units, ARRAY_SIZE(rate_units), "a bandwidth, like 500MiB/s or 4GiB/s"},
	[UNIT_DURATION] = {duration_units, ARRAY_SIZE(duration_units),
                           "a duration with its unit, like 100ms, 30s, 10m or 1h"},
};

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* value = whole * factor + fraction * factor / 1000, or why not */
static int scale(uint64_t whole, uint64_t thousandths, uint64_t factor, uint64_t *ret,
                 const char **ret_why)
{
	uint64_t v, part;

	*ret_why = "a smaller number: this one is beyond 64 bits";
	if (__builtin_mul_overflow(whole, factor, &v))
		return -EINVAL;
	if (thousandths) {
		/* every factor is below 2^41, so this cannot overflow */
		part = thousandths * factor;
		if (part % 1000) {
			*ret_why = "a number that comes out whole in the smallest unit";
			return -EINVAL;
		}
		if (__builtin_add_overflow(v, part / 1000, &v))
			return -EINVAL;
	}
	*ret = v;
	return 0;
}

/* Digits with an optional fraction of up to three digits. Moves *s behind them. */
static int number(const char **s, uint64_t *ret_whole, uint64_t *ret_thousandths)
{
	const char *p = *s;
	uint64_t whole = 0, thousandths = 0;
	int n = 0;

	if (!digit(*p) || (*p == '0' && digit(p[1])))
		return -EINVAL;
	for (; digit(*p); p++)
		if (__builtin_mul_overflow(whole, 10u, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
			return -ERANGE;
	if (*p == '.') {
		for (p++; digit(*p); p++, n++)
			if (n < FRACTION_DIGITS)
				thousandths = thousandths * 10 + (uint64_t)(*p - '0');
		if (!n || n > FRACTION_DIGITS)
			return -EINVAL;
		for (; n < FRACTION_DIGITS; n++)
			thousandths *= 10;
	}
	*s = p;
	*ret_whole = whole;
	*ret_thousandths = thousandths;
	return 0;
}

int unit_parse(enum unit_kind kind, const char *s, uint64_t *ret, const char **ret_why)
{
	const struct unit_table *t = &tables[kind];
	uint64_t whole, thousandths;
	int rc = number(&s, &whole, &thousandths);

	*ret_why = rc == -ERANGE ? "a smaller number: this one is beyond 64 bits" : t->expected;
	if (rc < 0)
		return -EINVAL;
	for (size_t i = 0; i < t->n; i++) {
		if (strcmp(t->units[i].suffix, s) != 0)
			continue;
		if (t->units[i].factor)
			return scale(whole, thousandths, t->units[i].factor, ret, ret_why);
		*ret_why = t->units[i].why;
		return -EINVAL;
	}
	return -EINVAL;
}

const char *unit_format(enum unit_kind kind, uint64_t v, char out[UNIT_STR_LEN])
{
	const struct unit_table *t = &tables[kind];
	size_t i = 0;

	while (t->units[i].factor > 1 && (!v || v % t->units[i].factor))
		i++;
	snprintf(out, UNIT_STR_LEN, "%" PRIu64 "%s", v / t->units[i].factor, t->units[i].suffix);
	return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One reader of numbers for all programs, so that a flag means the same in each. */
#include "common/args.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

int args_with_unit(const char *s, const struct args_unit *units, size_t n, uint64_t *ret)
{
	const char *end = s;
	uint64_t v = 0;

	for (; *end >= '0' && *end <= '9'; end++)
		if (__builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*end - '0'), &v))
			return -ERANGE;
	if (end == s)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(end, units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(v, units[i].factor, &v))
			return -ERANGE;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

int args_u64(const char *s, uint64_t max, uint64_t *ret)
{
	static const struct args_unit none = {"", 1};
	uint64_t v;
	int r = args_with_unit(s, &none, 1, &v);

	if (r == 0 && v > max)
		r = -ERANGE;
	if (r == 0)
		*ret = v;
	return r;
}

int args_duration_ms(const char *s, uint64_t *ret)
{
	static const struct args_unit units[] = {
		{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

	return args_with_unit(s, units, ARRAY_SIZE(units), ret);
}

int args_caps(const char *s, uint32_t max, uint32_t *all, uint32_t *each)
{
	const char *comma = strchrnul(s, ',');
	uint64_t a, e = *each;
	char first[24];
	int r;

	if ((size_t)(comma - s) >= sizeof(first))
		return -EINVAL;
	memcpy(first, s, (size_t)(comma - s));
	first[comma - s] = '\0';
	r = args_u64(first, max, &a);
	if (!r && *comma)
		r = args_u64(comma + 1, max, &e);
	else if (!r)
		e = e ? MIN(a, e) : 0;
	if (r < 0)
		return r;
	if (!a || (*comma && !e) || e > a)
		return -ERANGE;
	*all = (uint32_t)a;
	*each = (uint32_t)e;
	return 0;
}

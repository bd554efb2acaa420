/* SPDX-License-Identifier: Apache-2.0 */
/* Order statistics and their binomial coverage; see stats.h. No I/O, no clock, no chance. */
#include "tests/bench/report/stats.h"
#include "common/util.h"
#include <errno.h>
#include <math.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int sorted(const double *v, size_t n, double **ret)
{
	double *s;

	if (n == 0)
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		if (!isfinite(v[i]))
			return -EINVAL;
	s = malloc(n * sizeof(*s));
	if (!s)
		return -ENOMEM;
	memcpy(s, v, n * sizeof(*s));
	qsort(s, n, sizeof(*s), by_value);
	*ret = s;
	return 0;
}

/* P(exactly k of n are below the quantile q). */
static double share(size_t n, size_t k, double q)
{
	double dn = (double)n, dk = (double)k;

	return exp(lgamma(dn + 1) - lgamma(dk + 1) - lgamma(dn - dk + 1) + dk * log(q) +
	           (dn - dk) * log1p(-q));
}

/* Ranks 1..n: the narrowest [lo, hi] with at most half of what may be missed on either side; the
 * ends of the samples where there are too few. Returns the coverage. */
static double ranks(size_t n, double q, size_t *ret_lo, size_t *ret_hi)
{
	const double tail = (1 - STATS_COVERAGE) / 2;
	double below = share(n, 0, q), covered = 0, above = share(n, n, q);
	size_t lo = 1, hi = n;

	/* P(quantile < sample of rank lo) = P(at most lo - 1 below it) */
	while (lo < n && below + share(n, lo, q) <= tail)
		below += share(n, lo++, q);
	while (hi > lo && above + share(n, hi - 1, q) <= tail)
		above += share(n, --hi, q);
	for (size_t k = lo; k < hi; k++)
		covered += share(n, k, q);
	*ret_lo = lo;
	*ret_hi = hi;
	return covered;
}

int stats_quantile(const double *v, size_t n, double q, struct stats *ret)
{
	AUTO_FREE double *s = NULL;
	size_t at, lo, hi;
	int rc = sorted(v, n, &s);

	if (rc < 0)
		return rc;
	if (!(q > 0 && q < 1))
		return -EINVAL;
	at = (size_t)ceil(q * (double)n);
	at = MAX(at, (size_t)1);
	ret->n = n;
	ret->every = false;
	ret->value = s[at - 1];
	if (q == 0.5 && n % 2 == 0)
		ret->value = (s[n / 2 - 1] + s[n / 2]) / 2;
	ret->coverage = ranks(n, q, &lo, &hi);
	ret->lo = s[lo - 1];
	ret->hi = s[hi - 1];
	ret->min = s[0];
	ret->max = s[n - 1];
	return 0;
}

int stats_every(const double *v, size_t n, bool largest, struct stats *ret)
{
	int rc = stats_quantile(v, n, 0.5, ret);

	if (rc < 0)
		return rc;
	ret->value = largest ? ret->max : ret->min;
	ret->lo = ret->min;
	ret->hi = ret->max;
	ret->coverage = 1;
	ret->every = true;
	return 0;
}

const char *verdict_to_str(enum verdict v)
{
	static const char *const names[] = {"met", "not met", "not resolved", "not run"};

	return (unsigned)v < ARRAY_SIZE(names) ? names[v] : "unknown";
}

enum verdict stats_judge(const struct stats *s, double min, double max)
{
	/* One sample outside is enough where every sample counts. */
	if (s->every)
		return s->lo >= min && s->hi <= max ? VERDICT_MET : VERDICT_NOT_MET;
	if (s->coverage < STATS_COVERAGE)
		return VERDICT_NOT_RESOLVED;
	if (s->hi < min || s->lo > max)
		return VERDICT_NOT_MET;
	return s->lo >= min && s->hi <= max ? VERDICT_MET : VERDICT_NOT_RESOLVED;
}

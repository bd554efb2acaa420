/* SPDX-License-Identifier: Apache-2.0 */
/* From samples to verdicts. Ratios are of the same repetition, so that what disturbs both sides of
 * a pair cancels out. */
#include "common/util.h"
#include "tests/bench/report/report.h"
#include <errno.h>
#include <math.h>
#include <string.h>

#define TO_MAX 4

int row_load(const json_t *samples, const char *which, const char *series, struct row *ret)
{
	size_t i, max = json_array_size(samples);
	const json_t *s;

	*ret = (struct row){.v = calloc(max + 1, sizeof(double)),
	                    .rep = calloc(max + 1, sizeof(long))};
	if (!ret->v || !ret->rep) {
		row_free(ret);
		return -ENOMEM;
	}
	json_array_foreach(samples, i, s)
	{
		const char *c = json_string_value(json_object_get(s, "case"));
		const char *name = json_string_value(json_object_get(s, "series"));
		const json_t *value = json_object_get(s, "value");

		if (!c || !name || strcmp(c, which) || strcmp(name, series))
			continue;
		if (!json_is_number(value) || !isfinite(json_number_value(value))) {
			ret->failed++;
			continue;
		}
		ret->v[ret->n] = json_number_value(value);
		ret->rep[ret->n++] = (long)json_integer_value(json_object_get(s, "rep"));
	}
	return 0;
}

void row_free(struct row *r)
{
	free(TAKE_PTR(r->v));
	free(TAKE_PTR(r->rep));
	r->n = 0;
}

static const double *of_rep(const struct row *r, long rep)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->rep[i] == rep)
			return &r->v[i];
	return NULL;
}

/* The least of @to in the same repetition; NAN when one is missing. */
static double least(const struct row *to, const double *times, size_t n, long rep)
{
	double low = INFINITY;

	for (size_t i = 0; i < n; i++) {
		const double *v = of_rep(&to[i], rep);

		if (!v)
			return NAN;
		low = fmin(low, *v * times[i]);
	}
	return low;
}

static void divide(struct row *r, const struct row *to, const double *times, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < r->n; i++) {
		double d = least(to, times, n, r->rep[i]);

		if (!(d > 0))
			continue;
		r->v[kept] = r->v[i] / d;
		r->rep[kept++] = r->rep[i];
	}
	r->failed += r->n - kept;
	r->n = kept;
}

static int load_judged(const json_t *samples, const char *which, const json_t *bar, struct row *ret,
                       struct ros2_err *err)
{
	const char *of = json_string_value(json_object_get(bar, "of"));
	const json_t *to = json_object_get(bar, "to");
	size_t n = json_array_size(to);
	double times[TO_MAX];
	struct row rows[TO_MAX] = {0};
	int rc;

	if (!of || n > TO_MAX)
		return ros2_err_set(err, -EINVAL,
		                    "case %s: a bar needs \"of\", and at most %d \"to\"", which,
		                    TO_MAX);
	rc = row_load(samples, which, of, ret);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const json_t *t = json_array_get(to, i), *x = json_object_get(t, "times");
		const char *series = json_string_value(json_object_get(t, "series"));

		times[i] = x ? json_number_value(x) : 1;
		rc = series ? row_load(samples, which, series, &rows[i])
		            : ros2_err_set(err, -EINVAL, "case %s: \"to\" names no series", which);
	}
	if (rc == 0 && n)
		divide(ret, rows, times, n);
	for (size_t i = 0; i < n; i++)
		row_free(&rows[i]);
	return rc;
}

static double bound(const json_t *bar, const char *key, double none)
{
	const json_t *v = json_object_get(bar, key);

	return json_is_number(v) ? json_number_value(v) : none;
}

static int summarise(const json_t *bar, const char *which, struct bar_result *r,
                     struct ros2_err *err)
{
	const char *stat = json_string_value(json_object_get(bar, "stat"));

	if (!stat || !strcmp(stat, "median"))
		return stats_quantile(r->judged.v, r->judged.n, 0.5, &r->s);
	if (!strcmp(stat, "p99"))
		return stats_quantile(r->judged.v, r->judged.n, 0.99, &r->s);
	if (!strcmp(stat, "every"))
		return stats_every(r->judged.v, r->judged.n, isfinite(r->max), &r->s);
	return ros2_err_set(err, -EINVAL,
	                    "case %s: stat: expected median, p99 or every, found %.40s", which,
	                    stat);
}

int bar_judge(const json_t *samples, const char *which, const json_t *bar, struct bar_result *ret,
              struct ros2_err *err)
{
	int rc;

	*ret = (struct bar_result){.verdict = VERDICT_NOT_RUN, .why = "no samples"};
	ret->name = json_string_value(json_object_get(bar, "name"));
	ret->min = bound(bar, "min", -INFINITY);
	ret->max = bound(bar, "max", INFINITY);
	if (!ret->name || (isinf(ret->min) && isinf(ret->max)))
		return ros2_err_set(err, -EINVAL, "case %s: a bar needs a name, and min or max",
		                    which);
	rc = load_judged(samples, which, bar, &ret->judged, err);
	if (rc < 0 || ret->judged.n == 0)
		return rc;
	rc = summarise(bar, which, ret, err);
	if (rc < 0)
		return rc;
	ret->why = NULL;
	ret->verdict = stats_judge(&ret->s, ret->min, ret->max);
	/* What failed may have been what mattered. */
	if (ret->judged.failed && ret->verdict == VERDICT_MET) {
		ret->verdict = VERDICT_NOT_RESOLVED;
		ret->why = "a sample failed";
	} else if (ret->verdict == VERDICT_NOT_RESOLVED) {
		ret->why = ret->s.coverage < STATS_COVERAGE ? "too few samples"
		                                            : "the interval crosses the bar";
	}
	return 0;
}

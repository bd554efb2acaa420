/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a row of samples says and how sure that is. Intervals are distribution-free: order
 * statistics of the samples themselves with the coverage of the binomial distribution (Conover,
 * Practical Nonparametric Statistics, 3.2), so nothing is drawn at random and two runs over the
 * same samples say the same. A verdict is given only where the whole interval is on one side of the
 * bar.
 */
#ifndef ROS2_TESTS_BENCH_STATS_H
#define ROS2_TESTS_BENCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

#define STATS_COVERAGE 0.95

struct stats {
	size_t n;
	double value;    /* the quantile that was asked for */
	double lo, hi;   /* interval of it */
	double coverage; /* of the interval; below STATS_COVERAGE: too few samples */
	bool every;      /* nothing is inferred: each sample counts */
	double min, max;
};

/* @v (any order, @n of them, not changed) and a quantile 0 < @q < 1. -EINVAL without samples or
 * with one that is not finite, -ENOMEM. The median of an even number is the mean of the middle two;
 * other quantiles are the sample of rank ceil(q n). */
int stats_quantile(const double *v, size_t n, double q, struct stats *ret);
/* Of a bar that every sample must keep: value is the worst (the largest if @largest), the interval
 * is that of all samples and its coverage 1, since nothing is inferred. */
int stats_every(const double *v, size_t n, bool largest, struct stats *ret);

enum verdict { VERDICT_MET, VERDICT_NOT_MET, VERDICT_NOT_RESOLVED, VERDICT_NOT_RUN };
const char *verdict_to_str(enum verdict v); /* "met", "not met", "not resolved", "not run" */
/* Is @s at least @min and at most @max? Infinities: no such bound. */
enum verdict stats_judge(const struct stats *s, double min, double max);
#endif

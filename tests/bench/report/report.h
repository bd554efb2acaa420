/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-report: samples in, verdicts out. Cases and their bars are data (tests/bench/cases.json);
 * a sample is one line of JSON {case, series, rep, value, ...}. Nothing is measured here.
 */
#ifndef ROS2_TESTS_BENCH_REPORT_H
#define ROS2_TESTS_BENCH_REPORT_H

#include "common/err.h"
#include "tests/bench/report/stats.h"
#include <jansson.h>
#include <stdio.h>

/* The samples of @series in @which that have a value, by repetition: malloc'd, the caller frees. A
 * failed sample ({"error": words}) has none. */
struct row {
	double *v;
	long *rep;
	size_t n, failed;
};
int row_load(const json_t *samples, const char *which, const char *series, struct row *ret);
void row_free(struct row *r);

/* One bar: ret->v is what is judged (values, or ratios of the same repetition). */
struct bar_result {
	const char *name; /* borrowed: from the case */
	struct row judged;
	struct stats s;
	double min, max; /* +-INFINITY: none */
	enum verdict verdict;
	const char *why; /* words when it was not judged; static */
};
/* @bar: {name, of, [to: [{series, times}]], [min], [max], [stat: median | p99 | every]}. -EINVAL
 * with words for a bar that makes no sense. */
int bar_judge(const json_t *samples, const char *which, const json_t *bar, struct bar_result *ret,
              struct ros2_err *err);

/* report.json's part for one case; its rows of the table go to @table (NULL: none). NULL and words
 * on error. */
json_t *case_report(const json_t *samples, const json_t *c, FILE *table, struct ros2_err *err);
/* One picture: a strip of samples per series with median and interval, and one per ratio with its
 * bar. Complete SVG 1.1, no outside references. */
void plot_case(FILE *out, const json_t *report);
#endif

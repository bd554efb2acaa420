/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics against numbers known from tables, the verdicts at their edges, and that a picture
 * is well-formed whatever the samples are. */
#include "tests/testing.h"
#include "common/util.h"
#include "tests/bench/report/report.h"
#include <errno.h>
#include <math.h>

/* 1 .. n, in an order that is not sorted: n must not be a multiple of 7. */
static void fill(double *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i] = (double)(i * 7 % n) + 1;
}

static bool near(double a, double b)
{
	return fabs(a - b) < 1e-4;
}

static void stats__interval_of_the_median_has_the_tabulated_ranks(void **state)
{
	/* Conover, table A3 and the sign test: n, lower rank, upper rank, coverage */
	static const struct {
		size_t n;
		double lo, hi, coverage;
	} known[] = {{5, 1, 5, 0.9375},    {6, 1, 6, 0.96875},   {8, 1, 8, 0.9921875},
	             {9, 2, 8, 0.9609375}, {10, 2, 9, 0.978516}, {12, 3, 10, 0.961426},
	             {20, 6, 15, 0.958611}};
	double v[32];
	struct stats s;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		fill(v, known[i].n);
		assert_int_equal(stats_quantile(v, known[i].n, 0.5, &s), 0);
		assert_true(near(s.lo, known[i].lo));
		assert_true(near(s.hi, known[i].hi));
		assert_true(near(s.coverage, known[i].coverage));
		assert_true(near(s.value, (double)(known[i].n + 1) / 2));
	}
}

static void stats__p99_of_a_thousand_has_a_narrow_interval(void **state)
{
	double v[1000];
	struct stats s;

	fill(v, 1000);
	assert_int_equal(stats_quantile(v, 1000, 0.99, &s), 0);
	assert_true(near(s.value, 990));
	assert_in_range((int)s.lo, 980, 986);
	assert_in_range((int)s.hi, 994, 998);
	assert_true(s.coverage >= STATS_COVERAGE && s.coverage < 0.99);
}

static void stats__p99_of_a_hundred_is_never_resolved(void **state)
{
	double v[100];
	struct stats s;

	fill(v, 100);
	assert_int_equal(stats_quantile(v, 100, 0.99, &s), 0);
	assert_true(s.coverage < STATS_COVERAGE);
	assert_int_equal(stats_judge(&s, -INFINITY, 1e9), VERDICT_NOT_RESOLVED);
}

static void stats__refuses_no_samples_and_samples_that_are_no_numbers(void **state)
{
	double bad[] = {1, NAN, 2};
	struct stats s;

	assert_int_equal(stats_quantile(bad, 0, 0.5, &s), -EINVAL);
	assert_int_equal(stats_quantile(bad, 3, 0.5, &s), -EINVAL);
	assert_int_equal(stats_quantile(bad, 1, 1.0, &s), -EINVAL);
}

static void stats__a_verdict_needs_the_whole_interval_on_one_side(void **state)
{
	struct stats s = {.n = 9, .value = 0.75, .lo = 0.65, .hi = 0.85, .coverage = 0.96};

	assert_int_equal(stats_judge(&s, 0.60, INFINITY), VERDICT_MET);
	assert_int_equal(stats_judge(&s, 0.65, INFINITY), VERDICT_MET);
	assert_int_equal(stats_judge(&s, 0.66, INFINITY), VERDICT_NOT_RESOLVED);
	assert_int_equal(stats_judge(&s, 0.85, INFINITY), VERDICT_NOT_RESOLVED);
	assert_int_equal(stats_judge(&s, 0.86, INFINITY), VERDICT_NOT_MET);
	assert_int_equal(stats_judge(&s, -INFINITY, 0.85), VERDICT_MET);
	assert_int_equal(stats_judge(&s, -INFINITY, 0.80), VERDICT_NOT_RESOLVED);
	assert_int_equal(stats_judge(&s, -INFINITY, 0.64), VERDICT_NOT_MET);
	assert_int_equal(stats_judge(&s, 0.60, 0.90), VERDICT_MET);
	assert_int_equal(stats_judge(&s, 0.60, 0.80), VERDICT_NOT_RESOLVED);
	s.coverage = 0.9375;
	assert_int_equal(stats_judge(&s, 0.60, INFINITY), VERDICT_NOT_RESOLVED);
}

static void stats__one_sample_outside_breaks_a_bar_for_every_sample(void **state)
{
	double v[] = {0, 0, 0, 1, 0};
	struct stats s;

	assert_int_equal(stats_every(v, 5, true, &s), 0);
	assert_true(near(s.value, 1));
	assert_int_equal(stats_judge(&s, -INFINITY, 0), VERDICT_NOT_MET);
	v[3] = 0;
	assert_int_equal(stats_every(v, 5, true, &s), 0);
	assert_int_equal(stats_judge(&s, -INFINITY, 0), VERDICT_MET);
}

/* ---- samples and bars ---- */
static void add(json_t *samples, const char *series, int rep, double value)
{
	json_array_append_new(samples, json_pack("{s:s, s:s, s:i, s:f}", "case", "c", "series",
	                                         series, "rep", rep, "value", value));
}

static json_t *two_series(int reps)
{
	json_t *samples = json_array();

	for (int rep = 1; rep <= reps; rep++) {
		add(samples, "ours", rep, 60 * rep);
		add(samples, "raw", rep, 100 * rep);
		add(samples, "peer", rep, 50 * rep);
	}
	return samples;
}

static struct bar_result judge(const json_t *samples, const char *text)
{
	json_t *bar = json_loads(text, 0, NULL);
	struct bar_result r;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_non_null(bar);
	assert_int_equal(bar_judge(samples, "c", bar, &r, &err), 0);
	row_free(&r.judged);
	json_decref(bar);
	return r;
}

static void bar__ratio_is_of_the_same_repetition(void **state)
{
	json_t *samples = two_series(9);
	struct bar_result r =
		judge(samples,
	              "{\"name\":\"n\",\"of\":\"ours\",\"to\":[{\"series\":\"raw\"}],\"min\":0.6}");

	/* the samples grow ninefold, their ratio stays */
	assert_true(near(r.s.value, 0.6) && near(r.s.lo, 0.6) && near(r.s.hi, 0.6));
	assert_int_equal(r.s.n, 9);
	json_decref(samples);
}

static void bar__the_lower_of_two_peers_counts(void **state)
{
	json_t *samples = two_series(6);
	struct bar_result r =
		judge(samples,
	              "{\"name\":\"n\",\"of\":\"ours\",\"to\":[{\"series\":\"peer\"},{\"series\":"
	              "\"raw\",\"times\":0.4}],\"min\":0.9}");

	assert_true(near(r.s.value, 60 / 40.0));
	assert_int_equal(r.verdict, VERDICT_MET);
	json_decref(samples);
}

static void bar__a_failed_sample_never_counts_as_a_pass(void **state)
{
	json_t *samples = two_series(9);
	struct bar_result r;

	json_array_append_new(samples, json_pack("{s:s, s:s, s:i, s:s}", "case", "c", "series",
	                                         "ours", "rep", 10, "error", "REVOKED"));
	r = judge(samples, "{\"name\":\"n\",\"of\":\"ours\",\"min\":1}");
	assert_int_equal(r.verdict, VERDICT_NOT_RESOLVED);
	json_decref(samples);
}

static void bar__without_samples_it_was_not_run(void **state)
{
	json_t *samples = json_array();
	struct bar_result r = judge(samples, "{\"name\":\"n\",\"of\":\"ours\",\"min\":1}");

	assert_int_equal(r.verdict, VERDICT_NOT_RUN);
	json_decref(samples);
}

static void bar__that_makes_no_sense_is_an_error(void **state)
{
	static const char *const bad[] = {
		"{\"of\":\"ours\",\"min\":1}",
		"{\"name\":\"n\",\"min\":1}",
		"{\"name\":\"n\",\"of\":\"ours\"}",
		"{\"name\":\"n\",\"of\":\"ours\",\"to\":[{}],\"min\":1}",
		"{\"name\":\"n\",\"of\":\"ours\",\"min\":1,\"stat\":\"mode\"}",
	};
	json_t *samples = two_series(3);

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		json_t *bar = json_loads(bad[i], 0, NULL);
		struct ros2_err err = ROS2_ERR_INIT;
		struct bar_result r;

		assert_int_equal(bar_judge(samples, "c", bar, &r, &err), -EINVAL);
		assert_true(err.msg[0] != 0);
		row_free(&r.judged);
		json_decref(bar);
	}
	json_decref(samples);
}

/* ---- the picture ---- */
/* Every tag that is opened is closed, and no number is one that a viewer cannot read. */
static void assert_svg(const char *svg, size_t circles_min)
{
	size_t circles = 0;

	assert_int_equal(strncmp(svg, "<svg ", 5), 0);
	assert_non_null(strstr(svg, "</svg>\n"));
	assert_null(strstr(svg, "nan"));
	assert_null(strstr(svg, "inf"));
	for (const char *p = svg; (p = strchr(p, '<')); p++) {
		const char *end = strchr(p, '>');

		assert_non_null(end);
		circles += !strncmp(p, "<circle", 7);
		if (!strncmp(p, "<circle", 7) || !strncmp(p, "<line", 5) || !strncmp(p, "<rect", 5))
			assert_true(end[-1] == '/');
		else if (!strncmp(p, "<text", 5))
			assert_int_equal(strncmp(strchr(p + 1, '<'), "</text>", 7), 0);
	}
	assert_true(circles >= circles_min);
}

static void draw(const json_t *samples, const char *bars, size_t circles_min)
{
	json_error_t e;
	json_t *c =
		json_loads("{\"case\":\"c\",\"title\":\"A < B & C\",\"unit\":\"1/s\",\"series\":"
	                   "[{\"name\":\"ours\",\"label\":\"<ours>\"},{\"name\":\"raw\"}]}",
	                   0, &e);
	struct ros2_err err = ROS2_ERR_INIT;
	char *svg = NULL;
	size_t len;
	FILE *f = open_memstream(&svg, &len);
	json_t *report;

	json_object_set_new(c, "bars", json_loads(bars, 0, &e));
	report = case_report(samples, c, NULL, &err);
	assert_non_null(report);
	plot_case(f, report);
	fclose(f);
	assert_svg(svg, circles_min);
	assert_non_null(strstr(svg, "A &lt; B &amp; C"));
	free(svg);
	json_decref(report);
	json_decref(c);
}

static void plot__is_well_formed_with_and_without_samples(void **state)
{
	static const char bars[] =
		"[{\"name\":\"r\",\"of\":\"ours\",\"to\":[{\"series\":\"raw\"}],\"min\":0.6},"
		"{\"name\":\"e\",\"of\":\"ours\",\"max\":0,\"stat\":\"every\"}]";
	json_t *samples = two_series(9), *none = json_array(), *zero = json_array();

	draw(samples, bars, 36);
	draw(none, bars, 0);
	add(zero, "ours", 1, 0);
	draw(zero, bars, 2);
	json_decref(zero);
	json_decref(none);
	json_decref(samples);
}

static void cases__of_this_benchmark_are_all_well_formed(void **state)
{
	json_error_t e;
	json_t *cases = json_load_file("tests/bench/cases.json", 0, &e), *none = json_array();
	struct ros2_err err = ROS2_ERR_INIT;
	const json_t *c;
	size_t i;

	assert_true(json_array_size(cases) >= 7);
	json_array_foreach(cases, i, c)
	{
		json_t *report = case_report(none, c, NULL, &err);

		assert_string_equal(err.msg, "");
		assert_non_null(report);
		json_decref(report);
	}
	json_decref(none);
	json_decref(cases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stats__interval_of_the_median_has_the_tabulated_ranks),
		cmocka_unit_test(stats__p99_of_a_thousand_has_a_narrow_interval),
		cmocka_unit_test(stats__p99_of_a_hundred_is_never_resolved),
		cmocka_unit_test(stats__refuses_no_samples_and_samples_that_are_no_numbers),
		cmocka_unit_test(stats__a_verdict_needs_the_whole_interval_on_one_side),
		cmocka_unit_test(stats__one_sample_outside_breaks_a_bar_for_every_sample),
		cmocka_unit_test(bar__ratio_is_of_the_same_repetition),
		cmocka_unit_test(bar__the_lower_of_two_peers_counts),
		cmocka_unit_test(bar__a_failed_sample_never_counts_as_a_pass),
		cmocka_unit_test(bar__without_samples_it_was_not_run),
		cmocka_unit_test(bar__that_makes_no_sense_is_an_error),
		cmocka_unit_test(plot__is_well_formed_with_and_without_samples),
		cmocka_unit_test(cases__of_this_benchmark_are_all_well_formed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

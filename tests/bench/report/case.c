/* SPDX-License-Identifier: Apache-2.0 */
/* One case as JSON and as rows of the table. */
#include "common/util.h"
#include "tests/bench/report/report.h"
#include <errno.h>
#include <math.h>
#include <string.h>

static json_t *number(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

static json_t *row_json(const struct row *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(a, number(r->v[i]));
	return a;
}

static void format(double v, char out[24])
{
	double a = fabs(v);

	if (isinf(v))
		snprintf(out, 24, "-");
	else if (a >= 100000)
		snprintf(out, 24, "%.1f k", v / 1000);
	else
		snprintf(out, 24,
		         a >= 1000 || v == floor(v) ? "%.0f"
		         : a >= 10                  ? "%.1f"
		                                    : "%.3f",
		         v);
}

static void print_row(FILE *table, const char *what, const struct stats *s, const char *bar,
                      const char *verdict)
{
	char v[24] = "-", lo[24] = "", hi[24] = "", range[56] = "";

	if (!table)
		return;
	if (s->n) {
		format(s->value, v);
		format(s->lo, lo);
		format(s->hi, hi);
		snprintf(range, sizeof(range), "%s .. %s", lo, hi);
	}
	fprintf(table, "  %-42s %5zu %12s  %-25s %-14s %s\n", what, s->n, v, range, bar, verdict);
}

static json_t *stats_json(const struct stats *s)
{
	return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "n", (int)s->n, "value",
	                 number(s->value), "lo", number(s->lo), "hi", number(s->hi), "coverage",
	                 number(s->coverage), "min", number(s->min), "max", number(s->max));
}

static json_t *series_report(const json_t *samples, const char *which, const json_t *series,
                             FILE *table)
{
	const char *name = json_string_value(json_object_get(series, "name"));
	const char *label = json_string_value(json_object_get(series, "label"));
	struct stats s = {0};
	struct row r;
	json_t *j;

	if (!name || row_load(samples, which, name, &r) < 0)
		return NULL;
	if (r.n && stats_quantile(r.v, r.n, 0.5, &s) < 0) {
		row_free(&r);
		return NULL;
	}
	print_row(table, label ? label : name, &s, "", "");
	j = json_pack("{s:s, s:s, s:i, s:o, s:o}", "name", name, "label", label ? label : name,
	              "failed", (int)r.failed, "median", stats_json(&s), "samples", row_json(&r));
	row_free(&r);
	return j;
}

static void bar_text(const struct bar_result *b, char out[64])
{
	char lo[24], hi[24];

	format(b->min, lo);
	format(b->max, hi);
	if (isinf(b->max))
		snprintf(out, 64, ">= %s", lo);
	else if (isinf(b->min))
		snprintf(out, 64, "<= %s", hi);
	else
		snprintf(out, 64, "%s .. %s", lo, hi);
}

static json_t *bar_report(const json_t *samples, const char *which, const json_t *bar, FILE *table,
                          struct ros2_err *err)
{
	struct bar_result b;
	char text[64], verdict[80];
	json_t *j = NULL;

	if (bar_judge(samples, which, bar, &b, err) == 0) {
		bar_text(&b, text);
		snprintf(verdict, sizeof(verdict), "%s%s%s%s", verdict_to_str(b.verdict),
		         b.why ? " (" : "", b.why ? b.why : "", b.why ? ")" : "");
		print_row(table, b.name, &b.s, text, verdict);
		j = json_pack("{s:s, s:o, s:o, s:s, s:s, s:i, s:b, s:o, s:o}", "name", b.name,
		              "min", number(b.min), "max", number(b.max), "verdict",
		              verdict_to_str(b.verdict), "why", b.why ? b.why : "", "failed",
		              (int)b.judged.failed, "ratio", json_object_get(bar, "to") != NULL,
		              "statistic", stats_json(&b.s), "judged", row_json(&b.judged));
	}
	row_free(&b.judged);
	return j;
}

json_t *case_report(const json_t *samples, const json_t *c, FILE *table, struct ros2_err *err)
{
	const char *which = json_string_value(json_object_get(c, "case"));
	const char *title = json_string_value(json_object_get(c, "title"));
	const char *unit = json_string_value(json_object_get(c, "unit"));
	json_t *series = json_array(), *bars = json_array(), *item;
	bool good = which && title && unit;
	size_t i;
	const json_t *e;

	if (good && table)
		fprintf(table, "%s: %s [%s]\n", which, title, unit);
	json_array_foreach(json_object_get(c, "series"), i, e)
	{
		item = good ? series_report(samples, which, e, table) : NULL;
		good = good && item && json_array_append_new(series, item) == 0;
	}
	json_array_foreach(json_object_get(c, "bars"), i, e)
	{
		item = good ? bar_report(samples, which, e, table, err) : NULL;
		good = good && item && json_array_append_new(bars, item) == 0;
	}
	if (good)
		return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o}", "case", which, "title", title,
		                 "unit", unit, "one_unit",
		                 json_is_true(json_object_get(c, "one_unit")), "series", series,
		                 "bars", bars);
	json_decref(series);
	json_decref(bars);
	if (err && !err->code)
		ros2_err_set(err, -EINVAL,
		             "case %s: needs case, title, unit, named series and bars",
		             which ? which : "?");
	return NULL;
}

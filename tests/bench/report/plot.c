/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a case, as SVG text: every sample is a dot, so that nothing hides behind a median.
 * Each strip has an axis from zero, a bar is a dashed line, and the numbers stand at the right. */
#include "common/util.h"
#include "tests/bench/report/report.h"
#include <math.h>
#include <string.h>

#define WIDTH  960.0
#define LEFT   270.0
#define RIGHT  180.0
#define STRIP  46.0
#define TOP    58.0
#define DOTS   2000u /* more are thinned out */
#define FAMILY "font-family=\"sans-serif\""

static void text(FILE *f, double x, double y, const char *attrs, const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" " FAMILY " %s>", x, y, attrs);
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '>')
			fputs("&gt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else
			fputc((unsigned char)*s < ' ' ? ' ' : *s, f);
	}
	fputs("</text>\n", f);
}

static double get(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? json_number_value(v) : NAN;
}

/* The axis ends at a round number: 1, 2 or 5 times a power of ten. */
static double round_up(double v)
{
	double p;

	if (!(v > 0))
		return 1;
	p = pow(10, floor(log10(v)));
	return v <= p ? p : v <= 2 * p ? 2 * p : v <= 5 * p ? 5 * p : 10 * p;
}

/* Three digits, and k or M. */
static const char *number(char buf[32], double v)
{
	double by = fabs(v) >= 999500 ? 1e6 : fabs(v) >= 9995 ? 1e3 : 1;
	double shown = v / by;
	int decimals = fabs(shown) >= 99.95 || shown == floor(shown) ? 0
	               : fabs(shown) >= 9.995                        ? 1
	                                                             : 2;

	snprintf(buf, 32, "%.*f%s", decimals, shown, by > 1e3 ? "M" : by > 1 ? "k" : "");
	return buf;
}

static double x_of(double v, double end)
{
	return LEFT + fmin(fmax(v / end, 0), 1) * (WIDTH - LEFT - RIGHT);
}

static void axis(FILE *f, double y, double end, bool zero)
{
	char label[32];
	/* Steps that are round numbers: 1 and 2 in four, 5 in five; of nothing but zeroes only 0.
	 */
	int steps = fabs(end / pow(10, floor(log10(end))) - 5) < 0.01 ? 5 : 4;

	fprintf(f,
	        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\" "
	        "stroke-width=\"0.7\"/>\n",
	        LEFT, y + 12, WIDTH - RIGHT, y + 12);
	for (int i = 0; i <= (zero ? 0 : steps); i++) {
		double v = end * i / steps;

		text(f, x_of(v, end), y + 23,
		     "font-size=\"9\" fill=\"#666\" text-anchor=\"middle\"", number(label, v));
	}
}

static void line(FILE *f, double x, double y, const char *style)
{
	fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x, y - 12, x,
	        y + 12, style);
}

static void dots(FILE *f, const json_t *values, double y, double end)
{
	size_t n = json_array_size(values), step = n / DOTS + 1;

	for (size_t i = 0; i < n; i += step)
		fprintf(f,
		        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"#1f6fb2\" "
		        "fill-opacity=\"%.2f\"/>\n",
		        x_of(json_number_value(json_array_get(values, i)), end),
		        y + (double)(i * 7 % 9) - 4, n > 100 ? 0.25 : 0.65);
}

static void values_text(FILE *f, double y, const json_t *s)
{
	char value[32], lo[32], hi[32], all[128];

	text(f, WIDTH - RIGHT + 18, y, "font-size=\"12\" font-weight=\"bold\"",
	     number(value, get(s, "value")));
	if (isnan(get(s, "lo")) || get(s, "lo") == get(s, "hi"))
		return;
	snprintf(all, sizeof(all), "%s .. %s", number(lo, get(s, "lo")), number(hi, get(s, "hi")));
	text(f, WIDTH - RIGHT + 18, y + 13, "font-size=\"10\" fill=\"#555\"", all);
}

/* @least: where the axis ends at the earliest. */
static void strip(FILE *f, double y, const char *label, const json_t *values, const json_t *s,
                  double min, double max, double least)
{
	double end = round_up(fmax(fmax(fmax(get(s, "max"), least), isnan(min) ? 0 : min * 1.05),
	                           isnan(max) ? 0 : max * 1.05));

	text(f, LEFT - 14, y + 2, "font-size=\"12\" text-anchor=\"end\"", label);
	axis(f, y, end, get(s, "max") == 0 && !(max > 0) && !(min > 0) && !(least > 0));
	if (!json_array_size(values)) {
		text(f, LEFT + 4, y + 4, "font-size=\"11\" fill=\"#777\"", "no samples");
		return;
	}
	fprintf(f,
	        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" fill=\"#f2b134\" "
	        "fill-opacity=\"0.45\"/>\n",
	        x_of(get(s, "lo"), end), y - 9,
	        fmax(x_of(get(s, "hi"), end) - x_of(get(s, "lo"), end), 1));
	dots(f, values, y, end);
	values_text(f, y, s);
	line(f, x_of(get(s, "value"), end), y, "stroke=\"#b3541e\" stroke-width=\"2\"");
	if (!isnan(min))
		line(f, x_of(min, end), y,
		     "stroke=\"#111\" stroke-width=\"1.4\" stroke-dasharray=\"3,2\"");
	if (!isnan(max))
		line(f, x_of(max, end), y,
		     "stroke=\"#111\" stroke-width=\"1.4\" stroke-dasharray=\"3,2\"");
}

/* Series of one unit are seen side by side: one axis for all. */
static double common_end(const json_t *report)
{
	double end = 0;
	const json_t *e;
	size_t i;

	if (!json_is_true(json_object_get(report, "one_unit")))
		return 0;
	json_array_foreach(json_object_get(report, "series"), i, e) end =
		fmax(end, get(json_object_get(e, "median"), "max"));
	return end;
}

static const char *words(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void verdict(FILE *f, double y, const char *v)
{
	const char *colour = !strcmp(v, "met")       ? "#1a7f37"
	                     : !strcmp(v, "not met") ? "#b42318"
	                                             : "#9a6700";
	char attrs[128];

	snprintf(attrs, sizeof(attrs),
	         "font-size=\"11\" font-weight=\"bold\" text-anchor=\"end\" fill=\"%s\"", colour);
	text(f, LEFT - 14, y, attrs, v);
}

void plot_case(FILE *out, const json_t *report)
{
	const json_t *series = json_object_get(report, "series"),
		     *bars = json_object_get(report, "bars"), *e;
	double y = TOP + 20,
	       height = y + STRIP * (double)(json_array_size(series) + json_array_size(bars));
	size_t i;

	fprintf(out,
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
	        "viewBox=\"0 0 %.0f %.0f\">\n<rect width=\"100%%\" height=\"100%%\" "
	        "fill=\"#fff\"/>\n",
	        WIDTH, height, WIDTH, height);
	text(out, 12, 22, "font-size=\"15\" font-weight=\"bold\"", words(report, "title"));
	text(out, 12, 38, "font-size=\"11\" fill=\"#444\"", words(report, "unit"));
	text(out, 12, 52, "font-size=\"10\" fill=\"#666\"",
	     "dots: samples; line: median (or the named quantile); band: its 95 % interval; "
	     "dashed: the bar");
	json_array_foreach(series, i, e)
	{
		strip(out, y, words(e, "label"), json_object_get(e, "samples"),
		      json_object_get(e, "median"), NAN, NAN, common_end(report));
		y += STRIP;
	}
	json_array_foreach(bars, i, e)
	{
		strip(out, y, words(e, "name"), json_object_get(e, "judged"),
		      json_object_get(e, "statistic"), get(e, "min"), get(e, "max"), 0);
		verdict(out, y + 16, words(e, "verdict"));
		y += STRIP;
	}
	fputs("</svg>\n", out);
}

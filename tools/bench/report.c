/* SPDX-License-Identifier: Apache-2.0 */
/* How results look, as a table and as JSON. Named errors are shown as "NAME: words". */
#include "tools/bench/bench.h"
#include "common/utf8.h"
#include "common/util.h"
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	double p;
} percentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}};

static const char *name_of(const struct ros2_err *err)
{
	return err->status ? ros2_status_to_str(err->status) : "ERROR";
}

void report_text(FILE *to, const char *s)
{
	char shown[4096];

	utf8_escape(s, shown, sizeof(shown));
	fputs(shown, to);
}

json_t *report_text_json(const char *s)
{
	char shown[4096];
	json_t *j = json_string(s);

	if (!j) {
		utf8_escape(s, shown, sizeof(shown));
		j = json_string(shown);
	}
	return j ? j : json_null();
}

void report_error(const struct ros2_err *err)
{
	fprintf(stderr, "ros2-bench: %s: ", name_of(err));
	report_text(stderr, err->msg[0] ? err->msg : ros2_status_text(err->status));
	fputc('\n', stderr);
}

json_t *report_error_json(const struct ros2_err *err)
{
	return err->code ? json_pack("{s:s, s:o}", "name", name_of(err), "words",
	                             report_text_json(err->msg))
	                 : json_null();
}

void report_print_json(json_t *j)
{
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
}

json_t *report_latency_json(const struct hist *h)
{
	json_t *j = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++)
		json_object_set_new(j, percentiles[i].name,
		                    json_integer((json_int_t)hist_percentile(h, percentiles[i].p)));
	json_object_set_new(j, "max", json_integer((json_int_t)h->max));
	json_object_set_new(j, "mean",
	                    json_integer((json_int_t)(h->count ? h->sum / h->count : 0)));
	return j;
}

static void print_us(const char *name, uint64_t ns)
{
	printf("  %-6s %10.1f us\n", name, (double)ns / 1000);
}

void report_latency_table(const char *name, const struct hist *h, uint64_t ops, uint64_t bytes,
                          double seconds)
{
	char rate[32];

	if (!ops)
		return;
	format_bytes((double)bytes / seconds, rate);
	printf("%s: %llu operations, %.0f/s, %s/s\n", name, (unsigned long long)ops,
	       (double)ops / seconds, rate);
	for (size_t i = 0; i < ARRAY_SIZE(percentiles); i++)
		print_us(percentiles[i].name, hist_percentile(h, percentiles[i].p));
	print_us("max", h->max);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-report --cases FILE --samples FILE --machine FILE --out DIR: the table on stdout, DIR/
 * bench.json with everything, DIR/CASE.svg for each case that has samples. Exit 0 whatever the
 * verdicts are: this is not a gate.
 */
#include "common/util.h"
#include "tests/bench/report/report.h"
#include <errno.h>
#include <getopt.h>
#include <string.h>

struct flags {
	const char *cases, *samples, *machine, *out;
};

static json_t *load(const char *path)
{
	json_error_t e;
	json_t *j = json_load_file(path, 0, &e);

	if (!j)
		fprintf(stderr, "bench-report: %s:%d: %s\n", path, e.line, e.text);
	return j;
}

/* One JSON object a line; a line that is none is an error with its number. */
static json_t *load_lines(const char *path)
{
	json_t *all = json_array(), *one = NULL;
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	json_error_t e = {0};
	bool good = f != NULL;

	if (!f)
		fprintf(stderr, "bench-report: %s: %s\n", path, strerror(errno));
	while (good && getline(&line, &cap, f) > 0) {
		one = json_loads(line, 0, &e);
		good = one && json_array_append_new(all, one) == 0;
	}
	if (f && (!good || json_array_size(all) == 0)) {
		fprintf(stderr, "bench-report: %s: sample %zu: %s\n", path,
		        json_array_size(all) + 1, good ? "there is none" : e.text);
		good = false;
	}
	if (f)
		fclose(f);
	free(line);
	if (!good)
		json_decref(TAKE_PTR(all));
	return all;
}

static bool has_samples(const json_t *report)
{
	size_t i;
	const json_t *s;

	json_array_foreach(json_object_get(report, "series"), i,
	                   s) if (json_array_size(json_object_get(s, "samples")) ||
	                          json_integer_value(json_object_get(s, "failed"))) return true;
	return false;
}

static int draw(const char *dir, const json_t *report)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%.400s/%.80s.svg", dir,
	         json_string_value(json_object_get(report, "case")));
	f = fopen(path, "we");
	if (f)
		plot_case(f, report);
	if (!f || fclose(f) != 0) {
		fprintf(stderr, "bench-report: %s: %s\n", path, strerror(errno));
		return -1;
	}
	return 0;
}

static json_t *report_all(const json_t *cases, const json_t *samples, const char *out)
{
	json_t *all = json_array(), *one;
	struct ros2_err err = ROS2_ERR_INIT;
	const json_t *c;
	size_t i;

	printf("  %-42s %5s %12s  %-25s %-14s %s\n", "SERIES OR BAR", "N", "VALUE", "95 % INTERVAL",
	       "BAR", "VERDICT");
	json_array_foreach(cases, i, c)
	{
		one = case_report(samples, c, NULL, &err);
		if (!one) {
			fprintf(stderr, "bench-report: %s\n", err.msg);
			json_decref(all);
			return NULL;
		}
		if (has_samples(one)) {
			json_decref(one);
			one = case_report(samples, c, stdout, &err);
			if (draw(out, one) < 0) {
				json_decref(one);
				json_decref(all);
				return NULL;
			}
			json_array_append(all, one);
		}
		json_decref(one);
	}
	return all;
}

static int run(const struct flags *f)
{
	json_t *cases = load(f->cases), *machine = load(f->machine),
	       *samples = load_lines(f->samples), *reports = NULL, *all = NULL;
	char path[512];
	int rc = 1;

	if (cases && machine && samples)
		reports = report_all(cases, samples, f->out);
	if (reports)
		all = json_pack("{s:i, s:O, s:O, s:O}", "format", 1, "machine", machine, "cases",
		                reports, "samples", samples);
	snprintf(path, sizeof(path), "%.400s/bench.json", f->out);
	if (all && json_dump_file(all, path, JSON_INDENT(1) | JSON_PRESERVE_ORDER) == 0)
		rc = 0;
	else if (all)
		fprintf(stderr, "bench-report: cannot write %s\n", path);
	json_decref(all);
	json_decref(reports);
	json_decref(cases);
	json_decref(machine);
	json_decref(samples);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"cases", 1, NULL, 'c'},   {"samples", 1, NULL, 's'},
	                                      {"machine", 1, NULL, 'm'}, {"out", 1, NULL, 'o'},
	                                      {"help", 0, NULL, 'h'},    {0}};
	struct flags f = {0};
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		const char **at = c == 'c'   ? &f.cases
		                  : c == 's' ? &f.samples
		                  : c == 'm' ? &f.machine
		                  : c == 'o' ? &f.out
		                             : NULL;

		if (!at)
			break;
		*at = optarg;
	}
	if (c != -1 || !f.cases || !f.samples || !f.machine || !f.out || optind < argc) {
		fprintf(c == 'h' ? stdout : stderr,
		        "bench-report --cases FILE --samples FILE --machine FILE --out DIR\n"
		        "Table on stdout; DIR/bench.json and DIR/CASE.svg.\n");
		return c == 'h' ? 0 : 2;
	}
	return run(&f);
}

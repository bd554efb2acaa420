/* SPDX-License-Identifier: Apache-2.0 */
/* See probe_command.h. The JSON has the names that `ros2ctl get agents -o json` has for the same.
 */
#include "agent/probe_command.h"
#include "common/utf8.h"
#include "common/util.h"
#include "dataplane/dp_probe.h"
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: ros2-agent probe [--device NAME] [-o table|json]\n"
	"\n"
	"Tries what isolation rests on, with two throw-away tenants: on every RDMA device of this\n"
	"machine, on the device's own loopback, on the transport tcp, on 127.0.0.1, and on the\n"
	"transport shm, in a directory made for it below $TMPDIR, /tmp or /dev/shm. Each property\n"
	"is enforced, NOT enforced, not supported or not tried; `seen` says what came of it. Takes "
	"a\n"
	"few seconds for each device; other traffic of a device goes on.\n"
	"\n"
	"  --device NAME   only this one: a device's name, tcp or shm\n"
	"  -o FORMAT       table, or json (apiVersion ros2/v1)\n"
	"\n"
	"exit codes: 0 probed, whatever was seen; 1 failed; 2 usage\n";

/* Firmware words come from a device: nothing in them may end a string or move a cursor. */
static void print_json_string(const char *key, const char *s, const char *end)
{
	char shown[4 * PROBE_SEEN_MAX + 1];

	utf8_escape(s, shown, sizeof(shown));
	printf("\"%s\": \"", key);
	for (const char *at = shown; *at; at++)
		printf(*at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
	printf("\"%s", end);
}

static void print_json_subject(const struct probe_subject *s)
{
	printf("    {\n      ");
	print_json_string("name", s->name, ",\n      ");
	print_json_string("transport", s->transport, ",\n      ");
	print_json_string("device", s->device, ",\n      ");
	print_json_string("firmware", s->firmware, ",\n      ");
	print_json_string("kernel", s->kernel, ",\n");
	printf("      \"triedUnixNs\": %" PRIu64 ",\n", s->tried_unix_ns);
	printf("      \"revokeP50Ns\": %" PRIu32 ",\n", s->revoke_p50_ns);
	printf("      \"revokeP99Ns\": %" PRIu32 ",\n", s->revoke_p99_ns);
	printf("      \"keyBits\": %" PRIu32 ",\n      \"findings\": [\n", s->key_bits);
	for (unsigned p = 0; p < PROBE_PROPERTIES; p++) {
		printf("        {");
		print_json_string("property", probe_property_to_str((enum probe_property)p), ", ");
		print_json_string("result", probe_result_to_str(s->findings[p].result), ", ");
		print_json_string("seen", s->findings[p].seen,
		                  p + 1 < PROBE_PROPERTIES ? "},\n" : "}\n");
	}
	printf("      ]\n    }");
}

static void print_json(const struct probe_subject *s, size_t n)
{
	printf("{\n  \"apiVersion\": \"ros2/v1\",\n  \"kind\": \"ProbeReport\",\n  \"subjects\": "
	       "[\n");
	for (size_t i = 0; i < n; i++) {
		print_json_subject(&s[i]);
		printf(i + 1 < n ? ",\n" : "\n");
	}
	printf("  ]\n}\n");
}

static void print_table(const struct probe_subject *s)
{
	char name[4 * PROBE_NAME_MAX + 1], device[sizeof(name)], firmware[sizeof(name)],
		seen[4 * PROBE_SEEN_MAX + 1];

	utf8_escape(s->name, name, sizeof(name));
	utf8_escape(s->device, device, sizeof(device));
	utf8_escape(s->firmware, firmware, sizeof(firmware));
	printf("%s (%s; %s, firmware %s; Linux %s)", name, s->transport, device, firmware,
	       s->kernel);
	if (s->revoke_p50_ns)
		printf(": revoke p50 %.1f us, p99 %.1f us", s->revoke_p50_ns / 1e3,
		       s->revoke_p99_ns / 1e3);
	printf("\n%-20s%-15s%s\n", "PROPERTY", "RESULT", "SEEN");
	for (unsigned p = 0; p < PROBE_PROPERTIES; p++) {
		utf8_escape(s->findings[p].seen, seen, sizeof(seen));
		printf("%-20s%-15s%s\n", probe_property_to_str((enum probe_property)p),
		       probe_result_to_str(s->findings[p].result), seen);
	}
}

static int bad_usage(const char *fmt, const char *what)
{
	fprintf(stderr, "ros2-agent probe: ");
	fprintf(stderr, fmt, what);
	fprintf(stderr, "\ntry `ros2-agent probe --help`\n");
	return 2;
}

/* -1: go on; otherwise the exit code. */
static int parse(int argc, char **argv, const char **ret_device, bool *ret_json)
{
	static const struct option options[] = {
		{"device", required_argument, NULL, 'd'},
		{"output", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int flag;

	while ((flag = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		if (flag == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (flag == '?')
			return bad_usage("%s", "the command line was not understood");
		if (flag == 'd')
			*ret_device = optarg;
		else if (strcmp(optarg, "json") && strcmp(optarg, "table"))
			return bad_usage("-o: expected table or json, found \"%s\"", optarg);
		else
			*ret_json = !strcmp(optarg, "json");
	}
	return optind < argc ? bad_usage("unexpected argument \"%s\"", argv[optind]) : -1;
}

int agent_probe_command(int argc, char **argv)
{
	AUTO_FREE struct probe_subject *s = calloc(PROBE_SUBJECTS_MAX, sizeof(*s));
	struct ros2_err err = ROS2_ERR_INIT;
	const char *device = NULL;
	bool json = false;
	size_t n = 0;
	int code = parse(argc, argv, &device, &json);

	if (code >= 0)
		return code;
	if (!s || dp_probe(device, s, &n, &err)) {
		fprintf(stderr, "ros2-agent probe: %s\n", s ? err.msg : "out of memory");
		return 1;
	}
	if (json)
		print_json(s, n);
	for (size_t i = 0; i < n && !json; i++) {
		if (i)
			putchar('\n');
		print_table(&s[i]);
	}
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "ros2-agent probe: standard output cannot be written\n");
		return 1;
	}
	return 0;
}

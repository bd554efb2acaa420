/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any words, separated by NUL, as the command line of ros2-bench. What is accepted is within the
 * bounds that a run relies on; a refusal is a wrong usage and has words.
 */
#include "tests/fuzz/fuzz.h"
#include "tools/bench/bench.h"
#include <getopt.h>
#include <stdio.h>

#define ARGS_MAX 64

static void check(const struct bench_opts *o, int argc)
{
	must(o->ns && o->client.agent && o->client.cert_path && o->client.key_path &&
	     o->client.ca_path);
	must(o->bs && o->depth && o->depth <= 1024 && o->jobs && o->jobs <= 256);
	must(o->mix <= 100 && o->size >= o->bs && o->reconnect_ms);
	must((o->rw >= RW_READ && o->rw <= RW_BOTH) || o->rw == RW_ZERO || o->rw == RW_TRIM);
	must(o->n_args >= 0 && o->n_args < argc);
}

static void run(int argc, char **argv)
{
	char said[4096] = "";
	FILE *out = stdout, *err = stderr;
	struct bench_opts o;
	int r;

	stderr = stdout = fmemopen(said, sizeof(said), "w");
	must(stderr != NULL);
	optind = 0;
	r = opts_parse(argc, argv, &o);
	fclose(stderr);
	stderr = err;
	stdout = out;
	if (r == 0)
		check(&o, argc);
	else
		must((r == -1 || r == EXIT_USAGE) && said[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), *argv[ARGS_MAX + 2] = {(char *)"ros2-bench"};
	int argc = 1;

	for (char *at = text; at < text + size && argc <= ARGS_MAX; at += strlen(at) + 1)
		argv[argc++] = at;
	run(argc, argv);
	free(text);
	return 0;
}

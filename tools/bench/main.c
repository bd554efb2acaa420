/* SPDX-License-Identifier: Apache-2.0 */
/* ros2-bench: load, verification and directory trees over libros2. A table of commands. */
#include "common/util.h"
#include "tools/bench/bench.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int n_args;
	int (*run)(const struct bench_opts *o);
} commands[] = {
	{"run", 0, cmd_load},
	{"put", 2, cmd_put},
	{"get", 2, cmd_get},
	{"verify-tree", 2, cmd_verify_tree},
};

/* Whoever finds half a report where the exit is good takes it for the whole. */
static int written(int rc)
{
	/* A write that failed in the middle leaves nothing to flush, but its mark. */
	if (fflush(stdout) != EOF && !ferror(stdout))
		return rc;
	fputs("ros2-bench: stdout cannot be written: what it has is not all\n", stderr);
	return rc == EXIT_GOOD ? EXIT_FAILED : rc;
}

int main(int argc, char **argv)
{
	struct bench_opts o;
	size_t i = 0;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		printf("ros2-bench %s\n", ROS2_VERSION_STRING);
		return written(EXIT_GOOD);
	}
	if (argc > 1 && argv[1][0] != '-') {
		while (i < ARRAY_SIZE(commands) && strcmp(commands[i].name, argv[1]))
			i++;
		if (i == ARRAY_SIZE(commands)) {
			fprintf(stderr,
			        "ros2-bench: no command '%s': expected run, put, get or "
			        "verify-tree; see --help\n",
			        argv[1]);
			return EXIT_USAGE;
		}
		argv++;
		argc--;
	}
	rc = opts_parse(argc, argv, &o);
	if (rc)
		return rc < 0 ? written(EXIT_GOOD) : rc;
	if (o.n_args != commands[i].n_args) {
		fprintf(stderr, "ros2-bench %s: expected %d directories, found %d; see --help\n",
		        commands[i].name, commands[i].n_args, o.n_args);
		return EXIT_USAGE;
	}
	return written(commands[i].run(&o));
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvmf_target: the target as a program, for scripts and guests. Its arguments are lines of
 * target_line, carried out first; then it prints its port and takes further lines from standard
 * input, each answered by what it says and a line "ok" or "error: ...". It ends with its input, or
 * at SIGTERM where --stay was said.
 */
#include "tests/nvmf/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char out[1 << 20];

static int one(struct target *t, const char *line)
{
	int rc = target_line(t, line, out, sizeof(out));

	if (out[0])
		printf("%s\n", out);
	if (rc)
		printf("error: %s: %s\n", strerror(-rc), line);
	return rc;
}

static void serve(struct target *t)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, stdin) > 0) {
		if (!one(t, line))
			puts("ok");
		fflush(stdout);
	}
	free(line);
}

static int usage(void)
{
	fputs("usage: nvmf_target [--address A] [--port N] [--depth N] [--maxh2cdata N] [--cpda N] "
	      "[--r2t N] [--c2h N]\n                   [--success] [--stay] [LINE ...]\n"
	      "LINE is what `help` on standard input lists, as one argument.\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct target_opts o = {0};
	struct target *t = NULL;
	bool stay = false;
	int i = 1, rc;

	for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
		uint32_t n = i + 1 < argc ? (uint32_t)strtoul(argv[i + 1], NULL, 0) : 0;

		if (!strcmp(argv[i], "--stay"))
			stay = true;
		else if (!strcmp(argv[i], "--success"))
			o.success_flag = true;
		else if (i + 1 == argc)
			return usage();
		else if (!strcmp(argv[i], "--address"))
			o.address = argv[++i];
		else if (!strcmp(argv[i], "--port"))
			o.port = (uint16_t)n, i++;
		else if (!strcmp(argv[i], "--depth"))
			o.queue_depth = n, i++;
		else if (!strcmp(argv[i], "--maxh2cdata"))
			o.maxh2cdata = n, i++;
		else if (!strcmp(argv[i], "--cpda"))
			o.cpda = (uint8_t)n, i++;
		else if (!strcmp(argv[i], "--r2t"))
			o.r2t_bytes = n, i++;
		else if (!strcmp(argv[i], "--c2h"))
			o.c2h_bytes = n, i++;
		else
			return usage();
	}
	rc = target_new(&o, &t);
	if (rc) {
		fprintf(stderr, "nvmf_target: cannot listen: %s\n", strerror(-rc));
		return 1;
	}
	for (; i < argc && !rc; i++)
		rc = one(t, argv[i]);
	if (!rc) {
		printf("port %u\n", target_port(t));
		fflush(stdout);
		serve(t);
		while (stay)
			pause();
	}
	target_free(t);
	return rc ? 1 : 0;
}

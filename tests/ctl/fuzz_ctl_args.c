/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any words, separated by NUL, as the command line of ros2ctl, with a small table of commands. What
 * is accepted is a row of the table with what it requires, no more words than it takes, and options
 * that are words of the command line; a refusal has words. Nothing is run.
 */
#include "common/util.h"
#include "proto/ros2/v1/common.pb-c.h"
#include "tests/fuzz/fuzz.h"
#include "tools/ctl/ctl.h"
#include <stdarg.h>
#include <stdio.h>

#define ARGS_MAX 48

static bool said;

/* In place of main.c's. */
int ctl_fail(int code, const char *fmt, ...)
{
	char words[4096];
	va_list ap;

	va_start(ap, fmt);
	said = vsnprintf(words, sizeof(words), fmt, ap) > 0;
	va_end(ap);
	must(said && code == CTL_USAGE);
	return code;
}

static const struct ctl_opt token_opts[] = {
	{"ttl", 0, "DURATION", "", false, false}, {"out", 'f', "FILE", "", true, false}, {0}};
static const struct ctl_opt apply_opts[] = {{"filename", 'f', "FILE", "", true, true},
                                            {"dry-run", 0, NULL, "", false, false},
                                            {"wait", 'w', NULL, "", false, false},
                                            {0}};
static const struct ctl_cmd token = {
	.path = "agent token create", .max_pos = 1, .min_pos = 1, .opts = token_opts};
static const struct ctl_cmd agent = {.path = "agent", .max_pos = 2};
static const struct ctl_cmd apply = {.path = "apply", .opts = apply_opts};
static const struct ctl_cmd *const table[] = {&agent, &token, &apply};

/* Borrowed: a tail of one of the words given. */
static bool is_given(const char *s, const char *text, size_t size)
{
	return s >= text && s <= text + size;
}

static void check_options(const struct ctl *c, const struct ctl_cmd *cmd, const struct ctl_args *a,
                          const char *text, size_t size)
{
	must(!c->context || is_given(c->context, text, size));
	must(!c->controller || is_given(c->controller, text, size));
	must(c->timeout_ms && c->timeout_ms <= 3600000 && c->output <= CTL_NAME);
	must(a->n_list >= 0 && a->n_list <= CTL_FILES_MAX);
	for (int i = 0; i < a->n_list; i++)
		must(is_given(a->list[i], text, size));
	for (int i = 0; cmd->opts && cmd->opts[i].name; i++) {
		must(a->value[i] || !cmd->opts[i].required);
		must(!a->value[i] || !cmd->opts[i].arg || is_given(a->value[i], text, size));
	}
}

static void check_ref(const struct ctl_args *a)
{
	const char *name;
	int kind;

	if (a->n_pos < 1 || ctl_ref(a, &kind, &name) != CTL_OK)
		return;
	must(ctl_kind(ctl_kind_to_str(kind)) == kind && kind);
	must(a->n_pos == 2 ? name == a->pos[1] : *name);
}

static void run(int argc, char **argv, const char *text, size_t size)
{
	struct ctl c = {.timeout_ms = 10000};
	struct ctl_args a = {0};
	struct ctl_words w;
	bool help;
	int first = ctl_first_word(argc, argv, &help), r;
	const struct ctl_cmd *cmd = ctl_find(table, ARRAY_SIZE(table), argc, argv, first, &w);

	must(first >= 1 && w.n >= 0 && w.n <= CTL_WORDS_MAX && w.n_found <= w.n);
	must(!cmd == !w.n_found);
	r = ctl_args_parse(&c, cmd, argc, argv, &a);
	must(r == CTL_OK || r == -1 || r == CTL_USAGE);
	if (r != CTL_OK || !cmd)
		return;
	said = false;
	r = ctl_args_check(cmd, &a, w.n_found);
	must((r == CTL_OK) != said);
	if (r != CTL_OK)
		return;
	a.pos += w.n_found;
	a.n_pos -= w.n_found;
	must(a.n_pos >= cmd->min_pos && a.n_pos <= cmd->max_pos);
	check_options(&c, cmd, &a, text, size);
	check_ref(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *nowhere;
	char *text = fuzz_text(data, size), *argv[ARGS_MAX + 2] = {(char *)"ros2ctl"};
	FILE *shown = stderr;
	int argc = 1;

	if (!nowhere)
		nowhere = fopen("/dev/null", "w");
	must(nowhere != NULL);
	for (char *at = text; at < text + size && argc <= ARGS_MAX; at += strlen(at) + 1)
		argv[argc++] = at;
	stderr = nowhere; /* getopt speaks for itself */
	run(argc, argv, text, size);
	stderr = shown;
	free(text);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ros2ctl: finds the row of the command table that the words name, parses its options, runs it.
 * Help on every level is made from the same table, so it cannot lie.
 */
#include "common/args.h"
#include "common/utf8.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct ctl_cmd *const commands[] = {
	&ctl_cmd_init,         &ctl_cmd_apply,
	&ctl_cmd_get,          &ctl_cmd_describe,
	&ctl_cmd_delete,       &ctl_cmd_revoke,
	&ctl_cmd_agent_token,  &ctl_cmd_agent_isolate,
	&ctl_cmd_tenant_cert,  &ctl_cmd_tenant_reinstate,
	&ctl_cmd_audit_query,  &ctl_cmd_audit_verify,
	&ctl_cmd_audit_export, &ctl_cmd_status,
	&ctl_cmd_version,
};

static const char global_help[] =
	"Global options:\n"
	"      --context DIR       where tls.crt, tls.key, infra-bundle.pem and `controller` are\n"
	"                          (default: $ROS2CTL_CONTEXT)\n"
	"      --controller H:P    admin address of the controller (default: $ROS2CTL_CONTROLLER, "
	"or the\n"
	"                          file `controller` of the context)\n"
	"      --timeout DURATION  how long a call may take (default 10s)\n"
	"  -o, --output FORMAT     table, json, yaml or name (default table)\n"
	"  -h, --help              help for the words before it\n"
	"\n"
	"Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the controller cannot be "
	"reached.\n";

int ctl_fail(int code, const char *fmt, ...)
{
	char words[2048], shown[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	utf8_escape(words, shown, sizeof(shown));
	fprintf(stderr, "ros2ctl: %s\n", shown);
	return code;
}

int ctl_fail_err(const struct ros2_err *err)
{
	bool away = err->status == ROS2_UNAVAILABLE || err->status == ROS2_TIMEOUT;

	return ctl_fail(away ? CTL_UNREACHABLE : CTL_FAILED, "%s: %s",
	                ros2_status_to_str(err->status), err->msg);
}

/* How many leading words of @words make up @path; 0 when they do not. */
static int path_match(const char *path, const char *const *words, int n)
{
	int used = 0;

	for (const char *p = path; *p; used++) {
		size_t len = strcspn(p, " ");

		if (used == n || strlen(words[used]) != len || strncmp(words[used], p, len))
			return 0;
		p += len;
		p += *p == ' ';
	}
	return used;
}

static bool path_begins_with(const char *path, const char *const *words, int n)
{
	for (int i = 0; i < n; i++) {
		size_t len = strcspn(path, " ");

		if (!len || strlen(words[i]) != len || strncmp(words[i], path, len))
			return false;
		path += len;
		path += *path == ' ';
	}
	return true;
}

static void help_overview(FILE *to, const char *const *words, int n)
{
	fputs("ros2ctl: the operator's tool of the isolation control plane for shared RDMA "
	      "storage.\n\n"
	      "Usage: ros2ctl COMMAND [ARGUMENTS] [OPTIONS]\n\nCommands:\n",
	      to);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (path_begins_with(commands[i]->path, words, n))
			fprintf(to, "  %-20s %s\n", commands[i]->path, commands[i]->summary);
	fputs("\n`ros2ctl COMMAND --help` tells more.\n\n", to);
	fputs(global_help, to);
}

static void help_command(FILE *to, const struct ctl_cmd *cmd)
{
	fprintf(to, "%s\n\nUsage: ros2ctl %s%s%s [OPTIONS]\n\n%s\n", cmd->summary, cmd->path,
	        *cmd->args ? " " : "", cmd->args, cmd->help);
	if (cmd->opts && cmd->opts->name)
		fputs("\nOptions:\n", to);
	for (const struct ctl_opt *o = cmd->opts; o && o->name; o++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg ? " " : "",
		         o->arg ? o->arg : "");
		fprintf(to, "  %c%c%c %-22s %s%s\n", o->letter ? '-' : ' ',
		        o->letter ? o->letter : ' ', o->letter ? ',' : ' ', left, o->help,
		        o->required ? " (required)" : "");
	}
	fputc('\n', to);
	fputs(global_help, to);
}

/* ---- options: the command's own, then the global ones ---- */
enum { OPT_CONTEXT = 256, OPT_CONTROLLER, OPT_TIMEOUT, OPT_COMMAND_FIRST };

static const struct option globals[] = {
	{"context", required_argument, NULL, OPT_CONTEXT},
	{"controller", required_argument, NULL, OPT_CONTROLLER},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"output", required_argument, NULL, 'o'},
	{"help", no_argument, NULL, 'h'},
};

struct option_table {
	struct option longs[CTL_OPTS_MAX + ARRAY_SIZE(globals) + 1];
	char shorts[3 * CTL_OPTS_MAX + 8];
	int n_own;
};

static void option_table_build(struct option_table *t, const struct ctl_cmd *cmd)
{
	size_t s = 0;
	int n = 0;

	memset(t, 0, sizeof(*t));
	for (const struct ctl_opt *o = cmd ? cmd->opts : NULL; o && o->name; o++, n++) {
		t->longs[n] = (struct option){o->name, o->arg ? required_argument : no_argument,
		                              NULL, OPT_COMMAND_FIRST + n};
		if (o->letter) {
			t->shorts[s++] = o->letter;
			if (o->arg)
				t->shorts[s++] = ':';
		}
	}
	t->n_own = n;
	memcpy(t->longs + n, globals, sizeof(globals));
	memcpy(t->shorts + s, "o:h", 4);
}

static int set_output(struct ctl *c, const char *word)
{
	static const char *const words[] = {"table", "json", "yaml", "name"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (!strcmp(word, words[i])) {
			c->output = (enum ctl_output)i;
			return CTL_OK;
		}
	}
	return ctl_fail(CTL_USAGE, "--output: expected table, json, yaml or name, found '%s'",
	                word);
}

static int set_global(struct ctl *c, int opt, const char *value)
{
	uint64_t ms;

	switch (opt) {
	case OPT_CONTEXT:
		c->context = value;
		return CTL_OK;
	case OPT_CONTROLLER:
		c->controller = value;
		return CTL_OK;
	case OPT_TIMEOUT:
		if (args_duration_ms(value, &ms) < 0 || !ms || ms > 3600000)
			return ctl_fail(CTL_USAGE,
			                "--timeout: expected a duration such as 10s, found '%s'",
			                value);
		c->timeout_ms = (uint32_t)ms;
		return CTL_OK;
	default:
		return set_output(c, value);
	}
}

static int own_index(const struct option_table *t, const struct ctl_cmd *cmd, int opt)
{
	if (opt >= OPT_COMMAND_FIRST)
		return opt - OPT_COMMAND_FIRST;
	for (int i = 0; i < t->n_own; i++)
		if (cmd->opts[i].letter == opt)
			return i;
	return -1;
}

static int set_own(const struct ctl_cmd *cmd, int index, const char *value, struct ctl_args *a)
{
	const struct ctl_opt *o = &cmd->opts[index];

	if (!o->repeats && a->value[index])
		return ctl_fail(CTL_USAGE, "--%s is given twice", o->name);
	a->value[index] = value ? value : "";
	if (o->repeats) {
		if (a->n_list == CTL_FILES_MAX)
			return ctl_fail(CTL_USAGE, "--%s: more than %d", o->name, CTL_FILES_MAX);
		a->list[a->n_list++] = value;
	}
	return CTL_OK;
}

/* -1: help is asked for. */
static int parse(struct ctl *c, const struct ctl_cmd *cmd, int argc, char **argv,
                 struct ctl_args *a)
{
	struct option_table t;
	int opt, r = CTL_OK;

	option_table_build(&t, cmd);
	optind = 0;
	while (r == CTL_OK && (opt = getopt_long(argc, argv, t.shorts, t.longs, NULL)) != -1) {
		int index = opt == '?' || opt == 'h' ? -1 : own_index(&t, cmd, opt);

		if (opt == 'h')
			return -1;
		if (opt == '?')
			return CTL_USAGE;
		r = index >= 0 && index < t.n_own ? set_own(cmd, index, optarg, a)
		                                  : set_global(c, opt, optarg);
	}
	a->pos = (const char *const *)argv + optind;
	a->n_pos = argc - optind;
	return r;
}

static int check_args(const struct ctl_cmd *cmd, const struct ctl_args *a, int n_words)
{
	int n = a->n_pos - n_words;

	for (int i = 0; cmd->opts && cmd->opts[i].name; i++)
		if (cmd->opts[i].required && !a->value[i])
			return ctl_fail(CTL_USAGE, "%s: --%s is required: %s", cmd->path,
			                cmd->opts[i].name, cmd->opts[i].help);
	if (n < cmd->min_pos || n > cmd->max_pos)
		return ctl_fail(CTL_USAGE, "usage: ros2ctl %s %s (see --help)", cmd->path,
		                cmd->args);
	return CTL_OK;
}

/* How many words of argv an option that may stand before the command takes; 0: none of those. */
static int leading_option(const char *arg)
{
	const char *eq = strchr(arg, '=');
	size_t len = eq ? (size_t)(eq - arg) : strlen(arg);

	if (!strncmp(arg, "-o", 2))
		return arg[2] ? 1 : 2;
	if (!strcmp(arg, "-h"))
		return 1;
	for (size_t i = 0; len > 2 && !strncmp(arg, "--", 2) && i < ARRAY_SIZE(globals); i++)
		if (strlen(globals[i].name) == len - 2 &&
		    !strncmp(arg + 2, globals[i].name, len - 2))
			return globals[i].has_arg == required_argument && !eq ? 2 : 1;
	return 0;
}

/* Where the words of the command begin: after global options, and after a `help`. */
static int first_word(int argc, char **argv, bool *ret_help)
{
	int i = 1, n;

	while (i < argc && (n = leading_option(argv[i])) > 0)
		i += n;
	*ret_help = i < argc && !strcmp(argv[i], "help");
	return i + *ret_help;
}

/* Values of options may be among the words, which is harmless: a command's words come first. */
static const struct ctl_cmd *find(int argc, char **argv, int i, const char **words, int *n_words,
                                  int *n_found)
{
	const struct ctl_cmd *best = NULL;

	*n_found = 0;
	*n_words = 0;
	for (; i < argc && *n_words < 4 && argv[i][0] != '-'; i++)
		words[(*n_words)++] = argv[i];
	for (size_t k = 0; k < ARRAY_SIZE(commands); k++) {
		int used = path_match(commands[k]->path, words, *n_words);

		if (used > *n_found) {
			*n_found = used;
			best = commands[k];
		}
	}
	return best;
}

static int no_command(const char *const *words, int n, bool help)
{
	bool known = n == 0;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		known |= path_begins_with(commands[i]->path, words, n);
	if (!known)
		return ctl_fail(CTL_USAGE, "no command '%s' (see `ros2ctl --help`)", words[0]);
	help_overview(help ? stdout : stderr, words, n);
	return help ? CTL_OK : CTL_USAGE;
}

static bool asks_for_help(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h") ||
		    !strcmp(argv[i], "help"))
			return true;
	return false;
}

/* Set to nothing is as good as not set. */
static const char *from_env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

int main(int argc, char **argv)
{
	struct ctl c = {.context = from_env("ROS2CTL_CONTEXT"),
	                .controller = from_env("ROS2CTL_CONTROLLER"),
	                .timeout_ms = 10000};
	struct ctl_args a = {0};
	const char *words[4];
	int n_words, n_found, r;
	bool help;
	int first = first_word(argc, argv, &help);
	const struct ctl_cmd *cmd = find(argc, argv, first, words, &n_words, &n_found);

	if (!cmd) {
		n_words -= n_words && !strcmp(words[n_words - 1], "help");
		help |= asks_for_help(argc, argv);
		if (!help && !n_words && parse(&c, NULL, argc, argv, &a) == CTL_USAGE)
			return CTL_USAGE;
		return no_command(words, n_words, help);
	}
	r = help ? -1 : parse(&c, cmd, argc, argv, &a);
	if (r == -1) {
		help_command(stdout, cmd);
		return CTL_OK;
	}
	r = r == CTL_OK ? check_args(cmd, &a, n_found) : r;
	if (r == CTL_OK) {
		a.pos += n_found;
		a.n_pos -= n_found;
		r = cmd->run(&c, &a);
	}
	rpc_channel_free(c.channel);
	/* A write that failed in the middle leaves nothing to flush, but its mark. */
	if ((fflush(stdout) == EOF || ferror(stdout)) && r == CTL_OK)
		r = ctl_fail(CTL_FAILED, "stdout: %s", strerror(errno));
	return r;
}

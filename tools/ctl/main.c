/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ros2ctl: finds the row of the command table that the words name, parses its options, runs it.
 * Help on every level is made from the same table, so it cannot lie.
 */
#include "common/utf8.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct ctl_cmd *const commands[] = {
	&ctl_cmd_init,
	&ctl_cmd_apply,
	&ctl_cmd_get,
	&ctl_cmd_describe,
	&ctl_cmd_delete,
	&ctl_cmd_revoke,
	&ctl_cmd_agent_token,
	&ctl_cmd_agent_isolate,
	&ctl_cmd_tenant_cert,
	&ctl_cmd_admin_cert,
	&ctl_cmd_tenant_reinstate,
	&ctl_cmd_audit_query,
	&ctl_cmd_audit_verify,
	&ctl_cmd_audit_export,
	&ctl_cmd_status,
	&ctl_cmd_completion,
	&ctl_cmd_version,
};

static const char global_help[] =
	"Global options:\n"
	"      --context DIR       where tls.crt, tls.key, infra-bundle.pem and `controller` are\n"
	"                          (default: $ROS2CTL_CONTEXT)\n"
	"      --controller H:P    admin address of the controller (default: $ROS2CTL_CONTROLLER, "
	"or the\n"
	"                          file `controller` of the context)\n"
	"      --timeout DURATION  how long a call may take (default 10s); of the audit log\n"
	"                          nothing may come for three times that\n"
	"  -o, --output FORMAT     table, wide, json, yaml or name (default table)\n"
	"  -h, --help              help for the words before it\n"
	"\n"
	"Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the controller cannot be "
	"reached,\nor does not believe this certificate.\n";

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
	bool away = err->status == ROS2_UNAVAILABLE || err->status == ROS2_TIMEOUT ||
	            err->status == ROS2_UNAUTHENTICATED;

	return ctl_fail(away ? CTL_UNREACHABLE : CTL_FAILED, "%s: %s",
	                ros2_status_to_str(err->status), err->msg);
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

static bool is_group(const char *const *words, int n)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (path_begins_with(commands[i]->path, words, n))
			return true;
	return false;
}

static void add_word(char *to, size_t max, const char *between, const char *word)
{
	size_t n = strlen(to);

	snprintf(to + n, max - n, "%s%s", between, word);
}

static int no_command(const char *const *words, int n, bool help)
{
	char said[256] = "", expected[512] = "";
	int known = n;

	while (known > 0 && !is_group(words, known))
		known--;
	for (int i = 0; i <= known && i < n; i++)
		add_word(said, sizeof(said), i ? " " : "", words[i]);
	if (known < n && !known)
		return ctl_fail(CTL_USAGE, "no command '%s' (see `ros2ctl --help`)", said);
	for (size_t i = 0; known < n && i < ARRAY_SIZE(commands); i++)
		if (path_begins_with(commands[i]->path, words, known))
			add_word(expected, sizeof(expected), *expected ? ", " : "",
			         commands[i]->path);
	if (known < n)
		return ctl_fail(CTL_USAGE, "no command '%s': expected one of: %s", said, expected);
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
	struct ctl_words w;
	bool help;

	ctl_json_begin();
	if (argc > 1 && !strcmp(argv[1], "__complete")) {
		ctl_complete(&c, commands, ARRAY_SIZE(commands), (const char *const *)argv + 2,
		             argc - 2);
		rpc_channel_free(c.channel);
		return CTL_OK;
	}
	int first = ctl_first_word(argc, argv, &help), r;
	const struct ctl_cmd *cmd = ctl_find(commands, ARRAY_SIZE(commands), argc, argv, first, &w);

	if (!cmd) {
		w.n -= w.n && !strcmp(w.word[w.n - 1], "help");
		help |= asks_for_help(argc, argv);
		if (!help && !w.n && ctl_args_parse(&c, NULL, argc, argv, &a) == CTL_USAGE)
			return CTL_USAGE;
		return no_command(w.word, w.n, help);
	}
	r = help ? -1 : ctl_args_parse(&c, cmd, argc, argv, &a);
	if (r == -1) {
		help_command(stdout, cmd);
		return CTL_OK;
	}
	r = r == CTL_OK ? ctl_args_check(cmd, &a, w.n_found) : r;
	if (r == CTL_OK) {
		a.pos += w.n_found;
		a.n_pos -= w.n_found;
		r = cmd->run(&c, &a);
		if (r == CTL_UNREACHABLE)
			ctl_certificate_ended(&c);
	}
	rpc_channel_free(c.channel);
	/* A write that failed in the middle leaves nothing to flush, but its mark. */
	if ((fflush(stdout) == EOF || ferror(stdout)) && r == CTL_OK)
		r = ctl_fail(CTL_FAILED, "stdout: %s", strerror(errno));
	return r;
}

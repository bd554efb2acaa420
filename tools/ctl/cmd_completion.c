/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ros2ctl completion`: what a shell asks when somebody presses the tab key. The shell's part is a
 * few lines that call `ros2ctl __complete WORDS`; the answers are made from the table of commands
 * here, as the help is, so they cannot lie. It changes nothing, and is silent when something fails.
 */
#include "common/ids.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAMES_TIMEOUT_MS 2000

static const char bash_script[] =
	"# bash completion of ros2ctl: . <(ros2ctl completion bash)\n"
	"_ros2ctl() {\n"
	"\tlocal IFS=$'\\n'\n"
	"\tCOMPREPLY=($(\"${COMP_WORDS[0]}\" __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
	"2>/dev/null))\n"
	"\t[[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != */ ]] || compopt -o nospace\n"
	"}\n"
	"complete -o default -F _ros2ctl ros2ctl\n";

static void offer(const char *candidate, const char *begun)
{
	if (!strncmp(candidate, begun, strlen(begun)))
		puts(candidate);
}

/* The option that @word is, alone ("--tenant", "-t"); NULL if it is none that wants a value. */
static const struct ctl_opt *wants_value(const struct ctl_opt *opts, const char *word)
{
	for (const struct ctl_opt *o = opts; o && o->name; o++) {
		const char letter[] = {'-', o->letter, 0};

		if (o->arg && ((!strncmp(word, "--", 2) && !strcmp(word + 2, o->name)) ||
		               (o->letter && !strcmp(word, letter))))
			return o;
	}
	return NULL;
}

static void offer_options(const struct ctl_opt *opts, const char *begun)
{
	for (const struct ctl_opt *o = opts; o && o->name; o++) {
		char word[64];

		snprintf(word, sizeof(word), "--%s", o->name);
		offer(word, begun);
	}
}

/* Names of objects of a kind behind @head ("tenant/", ""), as far as one page goes. What is none is
 * left out: the shell puts a word behind its prompt as it comes, and would run what is in it. */
static void offer_names(struct ctl *c, int kind, const char *head, const char *begun)
{
	Ros2__V1__ListRequest req = ROS2__V1__LIST_REQUEST__INIT;
	ProtobufCMessage *msg = NULL;
	const Ros2__V1__ListReply *reply;
	char word[512];

	req.kind = (Ros2__V1__ObjectKind)kind;
	c->timeout_ms = NAMES_TIMEOUT_MS;
	if (ctl_call(c, &ros2_v1_admin_list, &req.base, &msg) != CTL_OK)
		return;
	reply = ros2_v1_admin_list_out(msg);
	for (size_t i = 0; i < reply->n_objects; i++) {
		if (!ros2_name_valid(reply->objects[i]->name))
			continue;
		snprintf(word, sizeof(word), "%s%s", head, reply->objects[i]->name);
		offer(word, begun);
	}
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* Grants, sessions and leases are named by numbers that nobody types: not offered. */
static bool has_names(int kind)
{
	return kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT ||
	       kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE ||
	       kind == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT;
}

static void offer_kinds(struct ctl *c, bool plural, const char *begun)
{
	const char *slash = strchr(begun, '/');
	char word[32];

	if (slash) {
		snprintf(word, sizeof(word), "%.*s", (int)MIN(slash - begun + 1, 31), begun);
		word[strlen(word) - 1] = 0;
		int kind = ctl_kind(word);

		word[strlen(word)] = '/';
		if (kind && has_names(kind))
			offer_names(c, kind, word, begun);
		return;
	}
	for (int kind = 1; strcmp(ctl_kind_to_str(kind), "object") != 0; kind++) {
		snprintf(word, sizeof(word), "%s%s", ctl_kind_to_str(kind), plural ? "s" : "/");
		offer(word, begun);
	}
}

static void offer_value(struct ctl *c, const struct ctl_opt *o, const char *begun)
{
	char words[128], *rest = words, *word;

	if (!strcmp(o->name, "output")) {
		for (int i = 0; ctl_output_words[i]; i++)
			offer(ctl_output_words[i], begun);
	} else if (!strcmp(o->name, "tenant") || !strcmp(o->name, "agent")) {
		offer_names(c, ctl_kind(o->name), "", begun);
	} else if (strchr(o->arg, '|') && o->arg[0] >= 'a') {
		snprintf(words, sizeof(words), "%s", o->arg);
		while ((word = strsep(&rest, "|")))
			offer(word, begun);
	}
}

/* The word that follows the @n words in a command's path; false when the path is another, or ends.
 */
static bool next_word(const char *path, const char *const *words, int n, char *out, size_t max)
{
	for (int k = 0; k < n; k++) {
		size_t len = strcspn(path, " ");

		if (strlen(words[k]) != len || strncmp(words[k], path, len) || !path[len])
			return false;
		path += len + 1;
	}
	snprintf(out, max, "%.*s", (int)strcspn(path, " "), path);
	return true;
}

static void offer_commands(const struct ctl_cmd *const *table, size_t n_table,
                           const char *const *words, int n, const char *begun)
{
	for (size_t i = 0; i < n_table; i++) {
		char word[64], before[64];
		bool told = false;

		if (!next_word(table[i]->path, words, n, word, sizeof(word)))
			continue;
		for (size_t k = 0; k < i && !told; k++)
			told = next_word(table[k]->path, words, n, before, sizeof(before)) &&
			       !strcmp(before, word);
		if (!told)
			offer(word, begun);
	}
}

static void offer_arguments(struct ctl *c, const struct ctl_cmd *cmd, const char *const *pos,
                            int n_pos, const char *begun)
{
	bool get = !strcmp(cmd->path, "get");

	if (strstr(cmd->args, "KIND") && !n_pos)
		offer_kinds(c, get && !strchr(begun, '/'), begun);
	else if (get && n_pos == 1 && has_names(ctl_kind(pos[0])))
		offer_names(c, ctl_kind(pos[0]), "", begun);
	else if (!n_pos && !strncmp(cmd->path, "agent ", 6))
		offer_names(c, ctl_kind("agent"), "", begun);
	else if (!n_pos && !strcmp(cmd->path, "tenant reinstate"))
		offer_names(c, ctl_kind("tenant"), "", begun);
	else if (!n_pos && cmd == &ctl_cmd_completion)
		offer("bash", begun);
}

/* What the words before the last say: the command, what stands behind it, and the option whose
 * value the last word is. */
struct said {
	const struct ctl_cmd *cmd;
	const struct ctl_opt *value;
	const char *pos[CTL_WORDS_MAX + 2];
	int n_pos, n_found;
};

static void read_words(struct ctl *c, const struct ctl_cmd *const *table, size_t n_table,
                       const char *const *words, int n, struct said *s)
{
	struct ctl_words w = {0};

	for (int i = 0; i < n; i++) {
		const struct ctl_opt *o = wants_value(ctl_global_opts, words[i]);

		o = o || !s->cmd ? o : wants_value(s->cmd->opts, words[i]);
		if (o && i + 1 == n) {
			s->value = o;
		} else if (o) {
			i++;
			if (!strcmp(o->name, "context"))
				c->context = words[i];
			if (!strcmp(o->name, "controller"))
				c->controller = words[i];
		} else if (words[i][0] != '-' && s->n_pos < (int)ARRAY_SIZE(s->pos)) {
			s->pos[s->n_pos++] = words[i];
			s->cmd = ctl_find(table, n_table, s->n_pos, (char **)s->pos, 0, &w);
			s->n_found = w.n_found;
		}
	}
}

void ctl_complete(struct ctl *c, const struct ctl_cmd *const *table, size_t n_table,
                  const char *const *words, int n)
{
	const char *begun = n ? words[n - 1] : "";
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct said s = {0};

	if (nowhere < 0 || dup2(nowhere, STDERR_FILENO) < 0)
		return;
	close(nowhere);
	read_words(c, table, n_table, words, n - 1, &s);
	if (s.value) {
		offer_value(c, s.value, begun);
	} else if (*begun == '-') {
		offer_options(s.cmd ? s.cmd->opts : NULL, begun);
		offer_options(ctl_global_opts, begun);
	} else if (s.cmd) {
		offer_arguments(c, s.cmd, s.pos + s.n_found, s.n_pos - s.n_found, begun);
	} else {
		offer_commands(table, n_table, s.pos, s.n_pos, begun);
	}
}

static int run_completion(struct ctl *c, const struct ctl_args *a)
{
	if (strcmp(a->pos[0], "bash") != 0)
		return ctl_fail(CTL_USAGE, "completion: expected bash, found '%s'", a->pos[0]);
	fputs(bash_script, stdout);
	return CTL_OK;
}

static const struct ctl_opt no_opts[] = {{0}};
const struct ctl_cmd ctl_cmd_completion = {
	.path = "completion",
	.args = "bash",
	.summary = "a script with which a shell completes commands, options and names",
	.help = "Names of tenants, engines and agents are asked of the controller of the context, "
		"for 2 s at most.\n\n"
		"  . <(ros2ctl completion bash)\n"
		"  ros2ctl completion bash >/etc/bash_completion.d/ros2ctl",
	.min_pos = 1,
	.max_pos = 1,
	.opts = no_opts,
	.run = run_completion,
};

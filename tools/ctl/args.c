/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of ros2ctl: which row of a command table the words name, its options and the global
 * ones, KIND/NAME. Does nothing but parse; every refusal is said on stderr.
 */
#include "common/args.h"
#include "common/util.h"
#include "proto/ros2/v1/common.pb-c.h"
#include "tools/ctl/ctl.h"
#include <getopt.h>
#include <stdio.h>
#include <string.h>

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

/* ---- options: the command's own, then the global ones ---- */
enum { OPT_CONTEXT = 256, OPT_CONTROLLER, OPT_TIMEOUT, OPT_COMMAND_FIRST };

const struct ctl_opt ctl_global_opts[] = {
	{.name = "context", .arg = "DIR"},      {.name = "controller", .arg = "H:P"},
	{.name = "timeout", .arg = "DURATION"}, {.name = "output", .letter = 'o', .arg = "FORMAT"},
	{.name = "help", .letter = 'h'},        {0},
};

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

/* In the order of enum ctl_output; `wide` is a table. */
const char *const ctl_output_words[] = {"table", "json", "yaml", "name", "wide", NULL};

static int set_output(struct ctl *c, const char *word)
{
	for (int i = 0; ctl_output_words[i]; i++) {
		if (!strcmp(word, ctl_output_words[i])) {
			c->wide = i > CTL_NAME;
			c->output = c->wide ? CTL_TABLE : (enum ctl_output)i;
			return CTL_OK;
		}
	}
	return ctl_fail(CTL_USAGE, "--output: expected table, wide, json, yaml or name, found '%s'",
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

int ctl_args_parse(struct ctl *c, const struct ctl_cmd *cmd, int argc, char **argv,
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

int ctl_args_check(const struct ctl_cmd *cmd, const struct ctl_args *a, int n_words)
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

int ctl_first_word(int argc, char **argv, bool *ret_help)
{
	int i = 1, n;

	while (i < argc && (n = leading_option(argv[i])) > 0)
		i += n;
	*ret_help = i < argc && !strcmp(argv[i], "help");
	return i + *ret_help;
}

/* Values of options may be among the words, which is harmless: a command's words come first. */
const struct ctl_cmd *ctl_find(const struct ctl_cmd *const *table, size_t n_table, int argc,
                               char **argv, int i, struct ctl_words *ret)
{
	const struct ctl_cmd *best = NULL;

	*ret = (struct ctl_words){0};
	for (; i < argc && ret->n < CTL_WORDS_MAX && argv[i][0] != '-'; i++)
		ret->word[ret->n++] = argv[i];
	for (size_t k = 0; k < n_table; k++) {
		int used = path_match(table[k]->path, ret->word, ret->n);

		if (used > ret->n_found) {
			ret->n_found = used;
			best = table[k];
		}
	}
	return best;
}

/* ---- KIND/NAME ---- */

static const struct {
	const char *word;
	int kind;
} kinds[] = {
	{"tenant", ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT},
	{"engine", ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE},
	{"agent", ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT},
	{"grant", ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT},
	{"session", ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION},
	{"lease", ROS2__V1__OBJECT_KIND__OBJECT_KIND_LEASE},
};

int ctl_kind(const char *word)
{
	size_t len = strlen(word);

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t n = strlen(kinds[i].word);

		if (!strncmp(word, kinds[i].word, n) &&
		    (len == n || (len == n + 1 && word[n] == 's')))
			return kinds[i].kind;
	}
	return 0;
}

const char *ctl_kind_to_str(int kind)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].kind == kind)
			return kinds[i].word;
	return "object";
}

int ctl_ref(const struct ctl_args *a, int *ret_kind, const char **ret_name)
{
	const char *slash = strchr(a->pos[0], '/');
	char word[32] = "";

	if (a->n_pos == 2 && !slash) {
		snprintf(word, sizeof(word), "%s", a->pos[0]);
		*ret_name = a->pos[1];
	} else if (a->n_pos == 1 && slash && slash[1]) {
		snprintf(word, sizeof(word), "%.*s", (int)MIN(slash - a->pos[0], 31), a->pos[0]);
		*ret_name = slash + 1;
	} else {
		return ctl_fail(CTL_USAGE, "expected KIND/NAME, found '%s'", a->pos[0]);
	}
	*ret_kind = ctl_kind(word);
	if (!*ret_kind)
		return ctl_fail(
			CTL_USAGE,
			"no kind '%s': expected tenant, engine, agent, grant, session or lease",
			word);
	return CTL_OK;
}

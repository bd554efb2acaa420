/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2ctl apply -f`: hands documents to the controller, all or nothing, and prints every
 * diagnostic it found. */
#include "common/args.h"
#include "common/fsx.h"
#include "common/utf8.h"
#include "common/util.h"
#include "policy/policy.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tools/ctl/ctl.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT_MAX (1u << 20)

enum { OPT_FILE, OPT_DRY_RUN, OPT_EXPECT };
static const struct ctl_opt opts[] = {
	{"filename", 'f', "FILE|DIR|-",
         "YAML to apply; may be given again; a directory means its *.yaml", .required = true,
         .repeats = true},
	{"dry-run", 0, NULL, "let the controller check and plan, change nothing"},
	{"expect-version", 0, "KIND/NAME=N",
         "apply only if the object is at version N (0: must not exist)"},
	{0},
};

struct sources {
	Ros2__V1__SourceFile file[CTL_FILES_MAX], *ptr[CTL_FILES_MAX];
	size_t n;
};

static int take(struct sources *s, const char *name, void *text, size_t len)
{
	Ros2__V1__SourceFile *f = &s->file[s->n];

	if (s->n == CTL_FILES_MAX) {
		free(text);
		return ctl_fail(CTL_USAGE, "more than %d files", CTL_FILES_MAX);
	}
	ros2__v1__source_file__init(f);
	f->name = strdup(name);
	f->text.data = text;
	f->text.len = len;
	s->ptr[s->n++] = f;
	return CTL_OK;
}

static int take_stdin(struct sources *s)
{
	char *text = malloc(TEXT_MAX + 1);
	size_t len = text ? fread(text, 1, TEXT_MAX + 1, stdin) : 0;

	if (text && ferror(stdin)) {
		free(text);
		return ctl_fail(CTL_FAILED, "standard input: %s", strerror(errno));
	}
	if (!text || len > TEXT_MAX) {
		free(text);
		return ctl_fail(CTL_USAGE, "standard input: more than 1 MiB");
	}
	return take(s, "-", text, len);
}

static int take_file(struct sources *s, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	void *text = NULL;
	size_t len;

	if (fsx_read_file(path, TEXT_MAX, &text, &len, &err) < 0)
		return ctl_fail(CTL_FAILED, "%s", err.msg);
	return take(s, path, text, len);
}

static int is_yaml(const struct dirent *d)
{
	const char *dot = strrchr(d->d_name, '.');

	return dot && d->d_name[0] != '.' && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

static int take_dir(struct sources *s, const char *dir)
{
	struct dirent **list = NULL;
	int n = scandir(dir, &list, is_yaml, alphasort), r = CTL_OK;

	if (n < 0)
		return ctl_fail(CTL_FAILED, "%s: %s", dir, strerror(errno));
	if (n == 0)
		r = ctl_fail(CTL_FAILED, "%s: no *.yaml in it", dir);
	for (int i = 0; i < n; i++) {
		AUTO_FREE char *path = ctl_path(dir, list[i]->d_name);

		r = r == CTL_OK ? take_file(s, path) : r;
		free(list[i]);
	}
	free(list);
	return r;
}

static int take_any(struct sources *s, const char *path)
{
	struct stat st;

	if (!strcmp(path, "-"))
		return take_stdin(s);
	if (stat(path, &st) < 0)
		return ctl_fail(CTL_FAILED, "%s: %s", path, strerror(errno));
	return S_ISDIR(st.st_mode) ? take_dir(s, path) : take_file(s, path);
}

static void sources_fini(struct sources *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->file[i].name);
		free(s->file[i].text.data);
	}
}

/* "tenant/alpha=3" */
static int parse_expect(const char *text, Ros2__V1__ExpectedVersion *e, char *copy, size_t max)
{
	char *slash, *eq;

	snprintf(copy, max, "%s", text);
	slash = strchr(copy, '/');
	eq = slash ? strchr(slash, '=') : NULL;
	if (!eq || strlen(text) >= max)
		return ctl_fail(CTL_USAGE, "--expect-version: expected KIND/NAME=N, found '%s'",
		                text);
	*slash = *eq = 0;
	e->kind = (Ros2__V1__ObjectKind)ctl_kind(copy);
	e->name = slash + 1;
	if (!e->kind || args_u64(eq + 1, UINT64_MAX, &e->version) < 0)
		return ctl_fail(CTL_USAGE, "--expect-version: expected KIND/NAME=N, found '%s'",
		                text);
	return CTL_OK;
}

static void print_diagnostics(const Ros2__V1__ApplyReply *reply)
{
	for (size_t i = 0; i < reply->n_diagnostics; i++) {
		const Ros2__V1__Diagnostic *d = reply->diagnostics[i];

		char file[512], message[1024], at[32] = "";

		/* the controller's words, about a file that somebody else may have written */
		utf8_escape(d->file, file, sizeof(file));
		utf8_escape(d->message, message, sizeof(message));
		if (d->line)
			snprintf(at, sizeof(at), ":%u:%u", d->line, d->column);
		fprintf(stderr, "%s%s: %s: %s\n", file, at, d->error ? "error" : "warning",
		        message);
	}
	if (reply->n_diagnostics >= POLICY_DIAGS_MAX)
		fprintf(stderr, "ros2ctl: only the first %d are shown\n", POLICY_DIAGS_MAX);
}

static bool has_errors(const Ros2__V1__ApplyReply *reply)
{
	for (size_t i = 0; i < reply->n_diagnostics; i++)
		if (reply->diagnostics[i]->error)
			return true;
	return false;
}

static void print_results(const struct ctl *c, const Ros2__V1__ApplyReply *reply, bool dry_run)
{
	static const char *const actions[] = {"?", "created", "configured", "unchanged"};

	if (c->output == CTL_JSON || c->output == CTL_YAML) {
		ctl_print_doc(c, ctl_json_kind("ApplyResult", ctl_json(&reply->base, true)));
		return;
	}
	for (size_t i = 0; i < reply->n_results; i++) {
		const Ros2__V1__ApplyResult *res = reply->results[i];
		char name[256];

		utf8_escape(res->name, name, sizeof(name));
		printf("%s/%s", ctl_kind_to_str(res->kind), name);
		if (c->output == CTL_TABLE)
			printf(" %s%s",
			       actions[(unsigned)res->action < ARRAY_SIZE(actions) ? res->action
			                                                           : 0],
			       dry_run ? " (dry run)" : "");
		putchar('\n');
	}
}

static int apply(struct ctl *c, const struct ctl_args *a, struct sources *s)
{
	Ros2__V1__ApplyRequest req = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__ExpectedVersion expect = ROS2__V1__EXPECTED_VERSION__INIT, *expects = &expect;
	ProtobufCMessage *msg = NULL;
	char text[256];
	int r = CTL_OK;

	req.files = s->ptr;
	req.n_files = s->n;
	req.dry_run = a->value[OPT_DRY_RUN] != NULL;
	if (a->value[OPT_EXPECT]) {
		r = parse_expect(a->value[OPT_EXPECT], &expect, text, sizeof(text));
		req.expect = &expects;
		req.n_expect = 1;
	}
	r = r == CTL_OK ? ctl_call(c, &ros2_v1_admin_apply, &req.base, &msg) : r;
	if (r != CTL_OK)
		return r;
	const Ros2__V1__ApplyReply *reply = ros2_v1_admin_apply_out(msg);
	print_diagnostics(reply);
	if (has_errors(reply))
		r = ctl_fail(CTL_FAILED, "nothing was applied");
	else if (!reply->applied && !req.dry_run)
		r = ctl_fail(CTL_FAILED,
		             "nothing was applied, and the controller does not say why");
	else
		print_results(c, reply, req.dry_run);
	protobuf_c_message_free_unpacked(msg, NULL);
	return r;
}

static int run(struct ctl *c, const struct ctl_args *a)
{
	struct sources s = {.n = 0};
	int r = CTL_OK;

	for (int i = 0; i < a->n_list && r == CTL_OK; i++)
		r = take_any(&s, a->list[i]);
	r = r == CTL_OK ? apply(c, a, &s) : r;
	sources_fini(&s);
	return r;
}

const struct ctl_cmd ctl_cmd_apply = {
	.path = "apply",
	.args = "",
	.summary = "create or change tenants, engines and agents from YAML, all or nothing",
	.help = "Every fault of every file is shown at once as file:line:col; with one error "
		"nothing is changed.\n"
		"When the command returns, the change and its audit record are on disk.\n\n"
		"  ros2ctl apply -f examples/policies\n"
		"  ros2ctl apply -f alpha.yaml --dry-run\n"
		"  sed 's/4GiB/8GiB/' alpha.yaml | ros2ctl apply -f -\n"
		"  ros2ctl apply -f alpha.yaml --expect-version tenant/alpha=3",
	.opts = opts,
	.run = run,
};

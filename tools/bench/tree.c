/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `put`, `get` and `verify-tree`: a directory tree through libros2. This file lists, makes the
 * directories, runs the workers (tree_copy.c) under a progress line and reports.
 */
#include "tools/bench/tree_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MISMATCHES_SHOWN 20

static const char *const names[] = {
	[TREE_PUT] = "put", [TREE_GET] = "get", [TREE_VERIFY] = "verify-tree"};

/* ---- directories ---- */

static int make_remote(struct ros2_mount *m, const char *path, struct ros2_err *err)
{
	struct ros2_err own = ROS2_ERR_INIT;

	if (!*path || !ros2_mkdir(m, path, 0755, &own) || own.status == ROS2_EXISTS)
		return 0;
	ros2_err_prefix(&own, "mkdir '%s'", path);
	*err = own;
	return own.code;
}

/* "a/b/c": a, a/b, a/b/c */
static int make_remote_root(struct ros2_mount *m, const char *root, struct ros2_err *err)
{
	char path[4096];
	int rc = tree_join(path, root, "", err);

	for (char *slash = path; !rc && (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		rc = make_remote(m, path, err);
		*slash = '/';
	}
	return rc ? rc : make_remote(m, path, err);
}

static int make_local(const char *path, struct ros2_err *err)
{
	if (!mkdir(path, 0755) || errno == EEXIST)
		return 0;
	return ros2_err_set(err, -errno, "mkdir %s: %s", path, strerror(errno));
}

static int make_dirs(struct tree *t, struct ros2_mount *m, struct ros2_err *err)
{
	bool put = t->op == TREE_PUT;
	char path[4096];
	int rc = put ? make_remote_root(m, t->remote, err) : make_local(t->local, err);

	for (size_t i = 0; i < t->n_dirs && !rc; i++) {
		rc = tree_join(path, put ? t->remote : t->local, t->dirs[i].path, err);
		if (!rc)
			rc = put ? make_remote(m, path, err) : make_local(path, err);
	}
	return rc;
}

static int prepare(struct tree *t, struct ros2_err *err)
{
	struct ros2_session_opts so = opts_session(t->o, 0);
	struct ros2_session *s = NULL;
	struct ros2_mount *m;
	int rc = t->op == TREE_GET ? 0 : tree_list_local(t, err);

	if (!rc)
		rc = ros2_connect(&t->o->client, &t->client, err);
	if (!rc)
		rc = ros2_session_open(t->client, &so, &s, err);
	if (!rc)
		rc = ros2_mount(s, t->o->ns, &m, err);
	if (!rc && t->op == TREE_GET)
		rc = tree_list_remote(t, m, err);
	if (!rc && t->op != TREE_VERIFY)
		rc = make_dirs(t, m, err);
	ros2_session_close(s);
	return rc;
}

/* ---- running ---- */

static void watch(struct tree *t, uint32_t n_workers)
{
	struct progress p;
	uint64_t began = clock_monotonic_ns();

	progress_begin(&p, names[t->op], t->bytes, t->o->quiet);
	while (atomic_load(&t->n_finished) < n_workers) {
		uint64_t moved = atomic_load(&t->moved);
		char done[32], total[32], rate[32], extra[128];

		format_bytes((double)moved, done);
		format_bytes((double)t->bytes, total);
		format_bytes((double)moved / ((double)(clock_monotonic_ns() - began + 1) / 1e9),
		             rate);
		snprintf(extra, sizeof(extra), "%s / %s  %s/s  %zu files", done, total, rate,
		         MIN(atomic_load(&t->next), t->n_files));
		progress_show(&p, moved, extra);
		/* time: the pace of the progress bar */
		usleep(2000);
	}
	progress_end(&p);
}

static int run(struct tree *t, struct ros2_err *err)
{
	uint32_t n = (uint32_t)MIN((size_t)t->o->jobs, MAX(t->n_files, (size_t)1)), started = 0;
	pthread_t *threads = calloc(n, sizeof(*threads));

	if (!threads)
		return ros2_err_set(err, -ENOMEM, "no memory for %u workers", n);
	while (started < n && !pthread_create(&threads[started], NULL, tree_worker, t))
		started++;
	if (started)
		watch(t, started);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	if (!started)
		return ros2_err_set(err, -EAGAIN, "cannot start a thread");
	*err = t->err;
	return err->code;
}

/* ---- reporting ---- */

struct outcome {
	uint64_t files, bytes, differ;
	double seconds;
};

/* As sha256sum writes it: a name with a line feed or a backslash is escaped, and the line says so.
 */
static void manifest_line(FILE *f, const char *hex, const char *path)
{
	fprintf(f, "%s%s  ", strpbrk(path, "\n\r\\") ? "\\" : "", hex);
	for (; *path; path++) {
		if (*path == '\n' || *path == '\r' || *path == '\\')
			fprintf(f, "\\%c", *path == '\n' ? 'n' : *path == '\r' ? 'r' : '\\');
		else
			fputc(*path, f);
	}
	fputc('\n', f);
}

static int write_manifest(const struct tree *t, struct ros2_err *err)
{
	FILE *f = t->o->manifest ? fopen(t->o->manifest, "w") : NULL;
	char hex[2 * SHA256_LEN + 1];
	int failed;

	if (!t->o->manifest)
		return 0;
	if (!f)
		return ros2_err_set(err, -errno, "%s: %s", t->o->manifest, strerror(errno));
	for (size_t i = 0; i < t->n_files; i++) {
		if (!t->files[i].done)
			continue;
		crypto_hex(t->files[i].sha256, SHA256_LEN, hex);
		manifest_line(f, hex, t->files[i].path);
	}
	failed = ferror(f);
	if (fclose(f) || failed)
		return ros2_err_set(err, -EIO, "%s: cannot write", t->o->manifest);
	return 0;
}

static json_t *mismatches(const struct tree *t)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->n_files && json_array_size(list) < MISMATCHES_SHOWN; i++)
		if (t->files[i].differs)
			json_array_append_new(list, report_text_json(t->files[i].path));
	return list;
}

static void print_json(const struct tree *t, const struct outcome *r, const struct ros2_err *err)
{
	json_t *j = json_pack("{s:i, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:o, s:o}",
	                      "version", 1, "command", names[t->op], "namespace",
	                      report_text_json(t->o->ns), "files", (json_int_t)r->files,
	                      "files_listed", (json_int_t)t->n_files, "bytes", (json_int_t)r->bytes,
	                      "seconds", r->seconds, "bytes_per_s", (double)r->bytes / r->seconds,
	                      "skipped", (json_int_t)t->skipped, "differ", (json_int_t)r->differ,
	                      "mismatches", mismatches(t), "error", report_error_json(err));

	report_print_json(j);
}

static void print_table(const struct tree *t, const struct outcome *r)
{
	char bytes[32], rate[32];

	format_bytes((double)r->bytes, bytes);
	format_bytes((double)r->bytes / r->seconds, rate);
	printf("%s: %" PRIu64 " of %zu files, %s in %.2f s, %s/s", names[t->op], r->files,
	       t->n_files, bytes, r->seconds, rate);
	if (t->op == TREE_VERIFY)
		printf(", SHA-256 equal: %" PRIu64 ", different: %" PRIu64, r->files - r->differ,
		       r->differ);
	if (t->skipped)
		printf(" (%" PRIu64 " links and devices skipped)", t->skipped);
	putchar('\n');
	for (size_t i = 0, shown = 0; i < t->n_files && shown < MISMATCHES_SHOWN; i++)
		if (t->files[i].differs && ++shown) {
			fputs("  different: ", stdout);
			report_text(stdout, t->files[i].path);
			putchar('\n');
		}
}

static int report(const struct tree *t, double seconds, struct ros2_err *err)
{
	struct outcome r = {.seconds = seconds > 0 ? seconds : 1e-9,
	                    .bytes = atomic_load(&t->moved)};

	for (size_t i = 0; i < t->n_files; i++) {
		r.files += t->files[i].done;
		r.differ += t->files[i].differs;
	}
	if (!err->code)
		write_manifest(t, err);
	if (t->o->json)
		print_json(t, &r, err);
	else
		print_table(t, &r);
	fflush(stdout);
	if (err->code) {
		report_error(err);
		return EXIT_FAILED;
	}
	return r.differ ? EXIT_CORRUPT : EXIT_GOOD;
}

static int tree_command(const struct bench_opts *o, enum tree_op op, const char *local,
                        const char *remote)
{
	struct tree t = {.o = o, .op = op, .local = local};
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t began;
	int rc;

	/* "." and "/" mean the root of the namespace. */
	while (*remote == '/')
		remote++;
	t.remote = strcmp(remote, ".") ? remote : "";
	pthread_mutex_init(&t.lock, NULL);
	rc = prepare(&t, &err);
	began = clock_monotonic_ns();
	if (!rc)
		run(&t, &err);
	rc = report(&t, (double)(clock_monotonic_ns() - began) / 1e9, &err);
	ros2_disconnect(t.client);
	tree_free(&t);
	pthread_mutex_destroy(&t.lock);
	return rc;
}

int cmd_put(const struct bench_opts *o)
{
	return tree_command(o, TREE_PUT, o->args[0], o->args[1]);
}

int cmd_get(const struct bench_opts *o)
{
	return tree_command(o, TREE_GET, o->args[1], o->args[0]);
}

int cmd_verify_tree(const struct bench_opts *o)
{
	return tree_command(o, TREE_VERIFY, o->args[0], o->args[1]);
}

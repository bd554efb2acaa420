/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of files: below a local directory, or below a directory of a namespace. Only regular files
 * and directories; links and devices are counted as skipped and never followed.
 */
#include "common/util.h"
#include "tools/bench/tree_priv.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRIES   128
#define EMPTY_MAX 100 /* pages in a row: no agent has even two */

int tree_join(char out[4096], const char *root, const char *path, struct ros2_err *err)
{
	int n = snprintf(out, 4096, "%s%s%s", root, *root && *path ? "/" : "", path);

	if (n < 0 || n > (int)TREE_PATH_MAX)
		return ros2_err_set(err, -ENAMETOOLONG, "'%.60s...': path too long", path);
	return 0;
}

static int add(struct tree_file **list, size_t *n, size_t *cap, const char *path, uint64_t size,
               struct ros2_err *err)
{
	if (*n == *cap) {
		size_t grown = *cap ? *cap * 2 : 256;
		struct tree_file *p =
			grown > TREE_FILES_MAX * 2ull ? NULL : realloc(*list, grown * sizeof(*p));

		if (!p)
			return ros2_err_set(err, -ENOMEM, "too many files");
		*list = p;
		*cap = grown;
	}
	(*list)[*n] = (struct tree_file){.path = strdup(path), .size = size};
	if (!(*list)[*n].path)
		return ros2_err_set(err, -ENOMEM, "no memory for a path");
	(*n)++;
	return 0;
}

static int add_file(struct tree *t, const char *path, uint64_t size, struct ros2_err *err)
{
	t->bytes += size;
	return add(&t->files, &t->n_files, &t->cap_files, path, size, err);
}

static int add_dir(struct tree *t, const char *path, struct ros2_err *err)
{
	return add(&t->dirs, &t->n_dirs, &t->cap_dirs, path, 0, err);
}

/* ---- local ---- */

static int list_local_entry(struct tree *t, int dir, const char *base, const char *name,
                            struct ros2_err *err)
{
	char path[4096];
	struct stat st;
	int rc = tree_join(path, base, name, err);

	if (rc)
		return rc;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return ros2_err_set(err, -errno, "%s: %s", path, strerror(errno));
	if (S_ISREG(st.st_mode))
		return add_file(t, path, (uint64_t)st.st_size, err);
	if (S_ISDIR(st.st_mode))
		return add_dir(t, path, err);
	t->skipped++;
	return 0;
}

static int list_local_dir(struct tree *t, const char *base, struct ros2_err *err)
{
	char path[4096];
	struct dirent *e;
	DIR *d;
	int rc = tree_join(path, t->local, base, err);

	if (rc)
		return rc;
	d = opendir(path);
	if (!d)
		return ros2_err_set(err, -errno, "%s: %s", path, strerror(errno));
	while (!rc && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			rc = list_local_entry(t, dirfd(d), base, e->d_name, err);
	closedir(d);
	return rc;
}

/* The list of directories is the queue, too. */
int tree_list_local(struct tree *t, struct ros2_err *err)
{
	int rc = list_local_dir(t, "", err);

	for (size_t i = 0; i < t->n_dirs && !rc; i++)
		rc = list_local_dir(t, t->dirs[i].path, err);
	return rc;
}

/* ---- remote ---- */

static int list_remote_entry(struct tree *t, struct ros2_mount *m, const char *base,
                             const struct ros2_dirent *e, struct ros2_err *err)
{
	char path[4096], full[4096];
	struct ros2_stat st;
	int rc = tree_join(path, base, e->name, err);

	if (!rc && e->type == 2)
		return add_dir(t, path, err);
	if (!rc && e->type != 1) {
		/* A list without end may be one of these. */
		return ++t->skipped < TREE_FILES_MAX
		               ? 0
		               : ros2_err_set(err, -ENOMEM, "too many links and devices");
	}
	if (!rc)
		rc = tree_join(full, t->remote, path, err);
	if (!rc)
		rc = ros2_stat(m, full, &st, err);
	return rc ? rc : add_file(t, path, st.size, err);
}

static int list_remote_dir(struct tree *t, struct ros2_mount *m, const char *base,
                           struct ros2_err *err)
{
	struct ros2_dirent *entries = calloc(ENTRIES, sizeof(*entries));
	uint64_t cookie = 0;
	char path[4096];
	int rc = tree_join(path, t->remote, base, err), empty = 0;

	if (!entries)
		rc = ros2_err_set(err, -ENOMEM, "no memory for a directory");
	while (rc >= 0) {
		int n = rc = ros2_readdir(m, path, &cookie, entries, ENTRIES, err);

		for (int i = 0; i < n && rc >= 0; i++)
			rc = list_remote_entry(t, m, base, &entries[i], err);
		if (!cookie)
			break;
		empty = n ? 0 : empty + 1;
		if (rc >= 0 && empty > EMPTY_MAX)
			rc = ros2_err_named(err, ROS2_PROTOCOL,
			                    "directory '%s': the agent says that there is more, "
			                    "and sends nothing of it",
			                    path);
	}
	free(entries);
	return MIN(rc, 0);
}

int tree_list_remote(struct tree *t, struct ros2_mount *m, struct ros2_err *err)
{
	int rc = list_remote_dir(t, m, "", err);

	for (size_t i = 0; i < t->n_dirs && !rc; i++)
		rc = list_remote_dir(t, m, t->dirs[i].path, err);
	return rc;
}

void tree_free(struct tree *t)
{
	for (size_t i = 0; i < t->n_files; i++)
		free(t->files[i].path);
	for (size_t i = 0; i < t->n_dirs; i++)
		free(t->dirs[i].path);
	free(t->files);
	free(t->dirs);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes as a tree of names: a volume's name is a path, what stands before a '/' in it is a
 * directory. A tenant's namespace is one such directory (or all), so that no path in it names a
 * volume outside.
 */
#include "dataplane/engines/names.h"
#include "dataplane/nvmf/engine_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What follows "@dir/" in @name; all of it when @dir is "". NULL: it is not below. */
static const char *below(const char *name, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 0)
		return name;
	return strncmp(name, dir, len) == 0 && name[len] == '/' ? name + len + 1 : NULL;
}

/* @path from the root of all volumes; @out takes any name there can be. False: longer than that. */
static bool full_path(const struct engine_ns *ns, const char *path,
                      char out[NVMF_VOLUME_NAME_MAX + 1])
{
	int n = snprintf(out, NVMF_VOLUME_NAME_MAX + 1, "%s%s%s", ns->prefix,
	                 ns->prefix[0] && path[0] ? "/" : "", path);

	return n >= 0 && n <= NVMF_VOLUME_NAME_MAX;
}

static int look_up(const struct nvmf_config *k, const char *full, uint32_t *ret)
{
	bool directory = full[0] == '\0', beneath = false;

	for (uint32_t i = 0; i < k->n_volumes; i++) {
		if (strcmp(k->volumes[i].name, full) == 0) {
			*ret = i;
			return 0;
		}
		directory |= below(k->volumes[i].name, full) != NULL;
		beneath |= below(full, k->volumes[i].name) != NULL;
	}
	return directory ? -EISDIR : beneath ? -ENOTDIR : -ENOENT;
}

int nvmf_volume_find(const struct engine_ns *ns, const char *path, uint32_t *ret,
                     struct ros2_err *err)
{
	char full[NVMF_VOLUME_NAME_MAX + 1];
	int rc = -ENOENT;

	if (full_path(ns, path, full))
		rc = look_up(nvmf_admin_config(ns->engine->admin), full, ret);
	if (rc == -ENOENT)
		ros2_err_set(err, rc, "no volume \"%.128s\"", path);
	else if (rc == -EISDIR)
		ros2_err_set(err, rc, "\"%.128s\" is a directory", path);
	else if (rc == -ENOTDIR)
		ros2_err_set(err, rc, "\"%.128s\" is below a volume", path);
	return rc;
}

int nvmf_ns_open(struct engine *e, const struct engine_who *who, const char *path,
                 struct engine_ns **ret, struct ros2_err *err)
{
	AUTO_FREE struct engine_ns *ns = NULL;
	uint32_t volume;
	int rc;

	path = names_ns_path(path, err);
	if (!path)
		return -ELIBBAD;
	if (!who)
		return ros2_err_set(err, -EINVAL, "nvmf engine: whose namespace is it?");
	rc = strlen(path) > NVMF_VOLUME_NAME_MAX
	             ? -ENOENT
	             : look_up(nvmf_admin_config(e->admin), path, &volume);
	if (rc == 0 || rc == -ENOTDIR)
		return ros2_err_set(
			err, -ENOTDIR,
			"namespace path: \"%s\" is a volume, or below one: expected what stands "
			"before volumes' names",
			path);
	if (rc == -ENOENT)
		return ros2_err_set(err, rc, "namespace path: no volume below \"%.128s\"", path);
	ns = calloc(1, sizeof(*ns));
	if (!ns)
		return ros2_err_set(err, -ENOMEM, "nvmf engine: no memory for a namespace");
	ns->engine = e;
	snprintf(ns->prefix, sizeof(ns->prefix), "%s", path);
	rc = nvmf_ctrl_get(e->admin, who, NVMF_OPEN_WAIT_MS, &ns->ctrl, err);
	if (rc < 0)
		return rc;
	*ret = TAKE_PTR(ns);
	return 0;
}

/* Length of the first name of @rest. */
static size_t head_len(const char *rest)
{
	return strcspn(rest, "/");
}

/* Does a volume before @i show the same name in this directory? */
static bool seen(const struct nvmf_config *k, const char *dir, uint32_t i, const char *head)
{
	size_t len = head_len(head);

	for (uint32_t j = 0; j < i; j++) {
		const char *rest = below(k->volumes[j].name, dir);

		if (rest && head_len(rest) == len && memcmp(rest, head, len) == 0)
			return true;
	}
	return false;
}

static int directory_of(const struct engine_ns *ns, const char *path,
                        char out[NVMF_VOLUME_NAME_MAX + 1], struct ros2_err *err)
{
	uint32_t volume;
	int rc = names_check(path, true, err);

	if (rc < 0)
		return rc;
	rc = nvmf_volume_find(ns, path, &volume, err);
	if (rc == 0)
		return ros2_err_set(err, -ENOTDIR, "\"%.128s\" is not a directory", path);
	if (rc != -EISDIR)
		return rc;
	/* It was found, so its name is not too long. */
	return full_path(ns, path, out) ? 0 : -ENAMETOOLONG;
}

int nvmf_readdir(struct engine_ns *ns, const char *path, uint64_t cookie, struct engine_dirent *out,
                 uint32_t max, uint32_t *ret_n, uint64_t *next, struct ros2_err *err)
{
	const struct nvmf_config *k = nvmf_admin_config(ns->engine->admin);
	char dir[NVMF_VOLUME_NAME_MAX + 1];
	uint32_t n = 0, i = (uint32_t)MIN(cookie, k->n_volumes);
	int rc = directory_of(ns, path, dir, err);

	if (rc < 0)
		return rc;
	if (max == 0)
		return ros2_err_set(err, -EINVAL, "readdir: room for no entry");
	for (; i < k->n_volumes && n < max; i++) {
		const char *rest = below(k->volumes[i].name, dir);
		size_t len;

		if (!rest || seen(k, dir, i, rest))
			continue;
		len = head_len(rest);
		memset(out[n].name, 0, sizeof(out[n].name));
		memcpy(out[n].name, rest, len);
		out[n].type = rest[len] ? ENGINE_DIRECTORY : ENGINE_REGULAR;
		n++;
	}
	*ret_n = n;
	*next = i < k->n_volumes ? i : 0;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem engine: directories and files in RAM with a bounded capacity, for tests, for benchmarks
 * and as the yardstick the other engines are measured with. It keeps nothing over a restart.
 * Control calls take engine.lock; see mem_priv.h for what the data path does instead.
 */
#include "dataplane/engines/mem_priv.h"

#include <errno.h>
#include <string.h>

static int mem_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	struct engine *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return ros2_err_set(err, -ENOMEM, "mem engine: no memory");
	rc = mem_pool_init(&e->pool, c->size_bytes, err);
	if (rc < 0) {
		free(e);
		return rc;
	}
	pthread_mutex_init(&e->lock, NULL);
	pthread_mutex_init(&e->reactors_lock, NULL);
	list_init(&e->nodes);
	list_init(&e->reactors);
	e->null_mode = c->null_mode;
	/* Names take memory too: about 5 KiB each, so at most about the capacity again; 16 Mi ends
	 * it for huge engines. */
	e->max_nodes = (uint32_t)MIN(MAX(c->size_bytes / 5120, (uint64_t)8192), (uint64_t)16 << 20);
	rc = mem_names_init(&e->names, e->max_nodes);
	e->root = rc ? NULL : mem_node_new(e, ENGINE_DIRECTORY, 0700, &rc);
	if (!e->root) {
		mem_names_fini(&e->names);
		mem_pool_fini(&e->pool);
		free(e);
		return ros2_err_set(err, rc, "mem engine: no memory for the root");
	}
	*ret = e;
	return 0;
}

static void mem_destroy(struct engine *e)
{
	if (!e)
		return;
	while (!list_empty(&e->nodes))
		mem_node_destroy(e, list_first(&e->nodes, struct mem_node, all));
	mem_names_fini(&e->names);
	mem_pool_fini(&e->pool);
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->reactors_lock);
	free(e);
}

/* Makes @name in @dir; the entry holds the one reference. */
static struct mem_node *make_node(struct engine *e, struct mem_node *dir, const char *name,
                                  enum engine_file_type type, uint32_t mode, int *rc,
                                  struct ros2_err *err)
{
	struct mem_node *n = mem_node_new(e, type, mode, rc);

	if (n) {
		*rc = mem_dir_add(dir, n, name);
		if (*rc == 0)
			return n;
		/* Nothing was ever written. */
		mem_data_free(e, mem_node_unref(e, n));
	}
	ros2_err_set(err, *rc, "cannot make \"%s\": the engine has no room for more names", name);
	return NULL;
}

static struct mem_node *walk_or_make(struct engine *e, const char *path, int *rc,
                                     struct ros2_err *err)
{
	struct mem_node *at = e->root, *child;
	char name[NAMES_NAME_MAX + 1];
	struct names_part part;

	while (names_next(&path, &part)) {
		memcpy(name, part.p, part.len);
		name[part.len] = '\0';
		child = mem_child(at, name, part.len);
		if (!child)
			child = make_node(e, at, name, ENGINE_DIRECTORY, 0700, rc, err);
		if (!child)
			return NULL;
		if (child->type != ENGINE_DIRECTORY) {
			*rc = ros2_err_set(err, -ENOTDIR,
			                   "namespace path: \"%s\" is not a directory", name);
			return NULL;
		}
		at = child;
	}
	return at;
}

static int mem_ns_open(struct engine *e, const struct engine_who *who, const char *path,
                       struct engine_ns **ret, struct ros2_err *err)
{
	struct engine_ns *ns;
	int rc = 0;

	path = names_ns_path(path, err);
	if (!path)
		return -ELIBBAD;
	ns = calloc(1, sizeof(*ns));
	if (!ns)
		return ros2_err_set(err, -ENOMEM, "mem engine: no memory for a namespace");
	pthread_mutex_lock(&e->lock);
	ns->root = walk_or_make(e, path, &rc, err);
	if (ns->root)
		ns->root->refs++;
	pthread_mutex_unlock(&e->lock);
	if (!ns->root) {
		free(ns);
		return rc;
	}
	ns->engine = e;
	*ret = ns;
	return 0;
}

static void mem_ns_close(struct engine_ns *ns)
{
	if (!ns)
		return;
	pthread_mutex_lock(&ns->engine->lock);
	(void)mem_node_unref(ns->engine, ns->root); /* a directory: it has no bytes */
	pthread_mutex_unlock(&ns->engine->lock);
	free(ns);
}

static void fill_attr(const struct mem_node *n, struct engine_attr *a)
{
	memset(a, 0, sizeof(*a));
	a->type = n->type;
	a->mode = n->mode;
	a->mtime_unix_ns = n->dir_mtime_unix_ns;
	if (!n->data)
		return;
	a->block_size = 1;
	a->size = atomic_load(&n->data->size);
	a->mtime_unix_ns = atomic_load(&n->data->mtime_unix_ns);
	a->blocks_512 = (uint64_t)atomic_load(&n->data->chunks) * (MEM_CHUNK / 512);
}

/* The directory @path lies in, and its last name. NULL with *rc and words. A removed directory
 * takes no new names. */
static struct mem_node *parent_of(struct engine_ns *ns, const char *path, const char **name,
                                  int *rc, struct ros2_err *err)
{
	struct mem_node *dir;
	size_t len;

	*name = names_last(path, &len);
	dir = mem_lookup(ns->root, path, len, rc, err);
	if (dir && dir->type != ENGINE_DIRECTORY)
		*rc = ros2_err_set(err, -ENOTDIR, "\"%s\" is not a directory", dir->name);
	else if (dir && !dir->parent && dir != ns->engine->root)
		*rc = ros2_err_set(err, -ENOENT, "the directory of the namespace was removed");
	else
		return dir;
	return NULL;
}

static struct mem_node *find_or_create(struct engine_ns *ns, const char *path, uint32_t flags,
                                       uint32_t mode, int *rc, struct ros2_err *err)
{
	const char *name;
	struct mem_node *dir = parent_of(ns, path, &name, rc, err), *n;

	if (!dir)
		return NULL;
	n = mem_child(dir, name, strlen(name));
	if (!n && (flags & ENGINE_CREATE))
		return make_node(ns->engine, dir, name, ENGINE_REGULAR, mode, rc, err);
	if (!n)
		*rc = ros2_err_set(err, -ENOENT, "no \"%s\"", path);
	else if ((flags & ENGINE_CREATE) && (flags & ENGINE_EXCLUSIVE))
		*rc = ros2_err_set(err, -EEXIST, "\"%s\" exists", path);
	else if (n->type == ENGINE_DIRECTORY)
		*rc = ros2_err_set(err, -EISDIR, "\"%s\" is a directory", path);
	else
		return n;
	return NULL;
}

static int mem_open(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
                    struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err)
{
	AUTO_FREE struct engine_file *f = NULL;
	int rc = names_check(path, false, err);

	if (rc < 0)
		return rc;
	if (!(flags & (ENGINE_READ | ENGINE_WRITE)))
		return ros2_err_set(err, -EINVAL, "open: neither read nor write was asked for");
	f = calloc(1, sizeof(*f));
	if (!f)
		return ros2_err_set(err, -ENOMEM, "mem engine: no memory for an open file");
	pthread_mutex_lock(&ns->engine->lock);
	f->node = find_or_create(ns, path, flags, mode, &rc, err);
	if (f->node)
		f->node->refs++;
	pthread_mutex_unlock(&ns->engine->lock);
	if (!f->node)
		return rc;
	f->engine = ns->engine;
	f->flags = flags;
	if ((flags & ENGINE_TRUNCATE) && (flags & ENGINE_WRITE))
		mem_data_truncate(f->engine, f->node->data, 0);
	if (attr)
		fill_attr(f->node, attr);
	*ret = TAKE_PTR(f);
	return 0;
}

static void mem_close(struct engine_file *f)
{
	struct mem_data *gone;

	if (!f)
		return;
	pthread_mutex_lock(&f->engine->lock);
	gone = mem_node_unref(f->engine, f->node);
	pthread_mutex_unlock(&f->engine->lock);
	mem_data_free(f->engine, gone);
	free(f);
}

static int mem_stat(struct engine_ns *ns, const char *path, struct engine_attr *ret,
                    struct ros2_err *err)
{
	int rc = names_check(path, true, err);
	struct mem_node *n;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&ns->engine->lock);
	n = mem_lookup(ns->root, path, strlen(path), &rc, err);
	if (n)
		fill_attr(n, ret);
	pthread_mutex_unlock(&ns->engine->lock);
	return n ? 0 : rc;
}

static int mem_fstat(struct engine_file *f, struct engine_attr *ret, struct ros2_err *err)
{
	fill_attr(f->node, ret);
	return 0;
}

static int mem_readdir(struct engine_ns *ns, const char *path, uint64_t cookie,
                       struct engine_dirent *out, uint32_t max, uint32_t *ret_n, uint64_t *next,
                       struct ros2_err *err)
{
	int rc = names_check(path, true, err);
	struct mem_node *n;

	if (rc < 0)
		return rc;
	if (max == 0)
		return ros2_err_set(err, -EINVAL, "readdir: room for no entry");
	pthread_mutex_lock(&ns->engine->lock);
	n = mem_lookup(ns->root, path, strlen(path), &rc, err);
	if (n && n->type != ENGINE_DIRECTORY)
		rc = ros2_err_set(err, -ENOTDIR, "\"%s\" is not a directory", path);
	else if (n)
		mem_dir_read(n, cookie, out, max, ret_n, next);
	pthread_mutex_unlock(&ns->engine->lock);
	return rc;
}

static int mem_mkdir(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err)
{
	int rc = names_check(path, false, err);
	struct mem_node *dir;
	const char *name;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&ns->engine->lock);
	dir = parent_of(ns, path, &name, &rc, err);
	if (dir && mem_child(dir, name, strlen(name)))
		rc = ros2_err_set(err, -EEXIST, "\"%s\" exists", path);
	else if (dir)
		make_node(ns->engine, dir, name, ENGINE_DIRECTORY, mode, &rc, err);
	pthread_mutex_unlock(&ns->engine->lock);
	return rc;
}

static int remove_name(struct engine_ns *ns, const char *path, enum engine_file_type type,
                       struct ros2_err *err)
{
	int rc = names_check(path, false, err);
	struct mem_node *dir, *n = NULL;
	struct mem_data *gone = NULL;
	const char *name;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&ns->engine->lock);
	dir = parent_of(ns, path, &name, &rc, err);
	if (dir)
		n = mem_child(dir, name, strlen(name));
	if (dir && !n)
		rc = ros2_err_set(err, -ENOENT, "no \"%s\"", path);
	else if (n && n->type != type)
		rc = type == ENGINE_DIRECTORY
		             ? ros2_err_set(err, -ENOTDIR, "\"%s\" is not a directory", path)
		             : ros2_err_set(err, -EISDIR, "\"%s\" is a directory", path);
	else if (n && n->n_children)
		rc = ros2_err_set(err, -ENOTEMPTY, "\"%s\" is not empty", path);
	else if (n) {
		mem_dir_remove(n);
		gone = mem_node_unref(ns->engine, n);
	}
	pthread_mutex_unlock(&ns->engine->lock);
	mem_data_free(ns->engine, gone);
	return rc;
}

static int mem_unlink(struct engine_ns *ns, const char *path, struct ros2_err *err)
{
	return remove_name(ns, path, ENGINE_REGULAR, err);
}

static int mem_rmdir(struct engine_ns *ns, const char *path, struct ros2_err *err)
{
	return remove_name(ns, path, ENGINE_DIRECTORY, err);
}

/* May @n take the place of @over (NULL = nothing there) in @dir? */
static int rename_check(const struct mem_node *n, const struct mem_node *over,
                        const struct mem_node *dir, struct ros2_err *err)
{
	for (const struct mem_node *p = dir; p; p = p->parent)
		if (p == n)
			return ros2_err_set(err, -EINVAL,
			                    "rename: a directory cannot move into itself");
	if (!over)
		return 0;
	if (over->type == ENGINE_DIRECTORY && n->type != ENGINE_DIRECTORY)
		return ros2_err_set(err, -EISDIR, "rename: the target is a directory");
	if (over->type != ENGINE_DIRECTORY && n->type == ENGINE_DIRECTORY)
		return ros2_err_set(err, -ENOTDIR, "rename: the target is not a directory");
	if (over->n_children)
		return ros2_err_set(err, -ENOTEMPTY, "rename: the target directory is not empty");
	return 0;
}

/* *gone: the bytes of what was there, as mem_node_unref gives them. */
static int move_node(struct engine *e, struct mem_node *n, struct mem_node *dir, const char *name,
                     struct mem_data **gone, struct ros2_err *err)
{
	struct mem_node *over = mem_child(dir, name, strlen(name)), *was = n->parent;
	char was_name[NAMES_NAME_MAX + 1];
	int rc;

	if (over == n)
		return 0;
	rc = rename_check(n, over, dir, err);
	if (rc < 0)
		return rc;
	memcpy(was_name, n->name, sizeof(was_name));
	if (over)
		mem_dir_remove(over); /* leaves room in dir's list for the node that comes */
	mem_dir_remove(n);
	rc = mem_dir_add(dir, n, name);
	if (rc < 0) {
		mem_dir_add(was, n, was_name); /* cannot fail: it has just left */
		if (over)
			mem_dir_add(dir, over, name);
		return ros2_err_set(err, rc, "rename: no room for the name");
	}
	*gone = mem_node_unref(e, over);
	return 0;
}

static int mem_rename(struct engine_ns *ns, const char *from, const char *to, struct ros2_err *err)
{
	const char *from_name, *to_name;
	struct mem_node *dir, *to_dir, *n;
	struct mem_data *gone = NULL;
	int rc = names_check(from, false, err);

	if (rc == 0)
		rc = names_check(to, false, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&ns->engine->lock);
	dir = parent_of(ns, from, &from_name, &rc, err);
	to_dir = dir ? parent_of(ns, to, &to_name, &rc, err) : NULL;
	n = to_dir ? mem_child(dir, from_name, strlen(from_name)) : NULL;
	if (n)
		rc = move_node(ns->engine, n, to_dir, to_name, &gone, err);
	else if (to_dir)
		rc = ros2_err_set(err, -ENOENT, "no \"%s\"", from);
	pthread_mutex_unlock(&ns->engine->lock);
	mem_data_free(ns->engine, gone);
	return rc;
}

static int mem_truncate(struct engine_file *f, uint64_t size, struct ros2_err *err)
{
	int rc;

	if (!(f->flags & ENGINE_WRITE))
		return ros2_err_set(err, -EBADF, "truncate: the file is not open for writing");
	rc = mem_data_truncate(f->engine, f->node->data, size);
	return rc < 0 ? ros2_err_set(err, rc,
	                             "truncate: longer than a mem engine's file may be (1TiB)")
	              : 0;
}

static int mem_fsync(struct engine_file *f, struct ros2_err *err)
{
	return 0;
}

static bool mem_takes_any_memory(const struct engine *e)
{
	return true;
}

const struct engine_ops engine_mem_ops = {
	.type = "mem",
	.takes_any_memory = mem_takes_any_memory,
	.create = mem_create,
	.destroy = mem_destroy,
	.ns_open = mem_ns_open,
	.ns_close = mem_ns_close,
	.open = mem_open,
	.close = mem_close,
	.stat = mem_stat,
	.fstat = mem_fstat,
	.readdir = mem_readdir,
	.mkdir = mem_mkdir,
	.unlink = mem_unlink,
	.rmdir = mem_rmdir,
	.rename = mem_rename,
	.truncate = mem_truncate,
	.fsync = mem_fsync,
	.reactor_new = mem_reactor_new,
	.reactor_free = mem_reactor_free,
	.event_fd = mem_event_fd,
	.submit = mem_submit,
	.kick = mem_kick,
	.poll = mem_poll,
	.in_flight = mem_in_flight,
	.withdraw = mem_withdraw,
	.unlend = mem_unlend,
	.copied_bytes = mem_copied_bytes,
};

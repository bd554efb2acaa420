/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control calls on names and open objects: mount, open, close, stat, directories. Each starts on
 * the loop, blocks on a worker, comes back. Rights are looked at when it starts and again when it
 * comes back; what was made for a session that ended meanwhile is taken back.
 */
#include "common/crypto.h"
#include "common/descriptors.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <string.h>

/* ---- mounts ---- */

void dp_mount_ref(struct dp_mount_obj *m)
{
	m->refs++;
}

/* ---- descriptors: the agent's own come out of the same number, and a neighbour's ---- */

struct share dp_descriptor_share(void)
{
	uint32_t all =
		descriptors_limit() / 2; /* connections, logs, the other half, are bounded apart */

	return (struct share){
		.total = all, .most = all / 2, .sure = DP_DESCRIPTORS_SURE, .kept = all / 4};
}

/* False: the operation has failed. */
static bool take_descriptors(struct dp_op *op, uint32_t n)
{
	struct dp_tenant *t = op->ds->tenant;
	const struct share *s = &op->dp->descriptors;

	if (!n)
		return true;
	if (!share_allows(s, t->n_descriptors + n - 1, op->dp->n_descriptors + n - 1) &&
	    !DP_SWITCH(no_descriptor_share)) {
		dp_op_fail(op, ROS2_LIMIT,
		           "the tenant's share of the agent's open files: at most %u of %u "
		           "descriptors (half of LimitNOFILE), and %u stay free for others; it "
		           "holds %u: close some first",
		           s->most, s->total, s->kept, t->n_descriptors);
		return false;
	}
	t->n_descriptors += n;
	op->dp->n_descriptors += n;
	return true;
}

static void give_descriptors(struct dp *dp, struct dp_tenant *t, uint32_t n)
{
	if (!n)
		return;
	dp->n_descriptors -= n;
	t->n_descriptors -= n;
	dp_tenant_release(dp, t);
}

static void mount_free(struct dp_mount_obj *m)
{
	m->engine->n_users--;
	list_del(&m->link);
	give_descriptors(m->engine->dp, m->tenant, m->engine->ops->ns_descriptors);
	free(m);
}

static void file_free(struct dp_file *f)
{
	list_del(&f->link);
	give_descriptors(f->dp, f->mount->tenant, f->mount->engine->ops->file_descriptors);
	dp_mount_unref(f->dp, f->mount);
	free(f);
}

/* ---- closing without memory ---- */

/* A file or mount that is not closed yet keeps its engine's part: dp_free closes what is left. */
static void work_unclosed(struct dp_op *op)
{
	struct dp_file *f = op->file_chain;
	struct dp_mount_obj *m = op->mount_chain;

	for (; f; f = f->next_unclosed)
		f->mount->engine->ops->close(TAKE_PTR(f->file));
	for (; m; m = m->next_unclosed)
		m->engine->ops->ns_close(TAKE_PTR(m->ns));
}

static void close_unclosed(struct dp *dp);

static void unclosed_closed(struct dp_op *op)
{
	struct dp_file *f = op->file_chain, *f_next;
	struct dp_mount_obj *m = op->mount_chain, *m_next;
	struct dp *dp = op->dp;

	dp_op_finish(op);
	dp->unclosed.busy = false;
	for (; f; f = f_next) {
		f_next = f->next_unclosed;
		file_free(f);
	}
	for (; m; m = m_next) {
		m_next = m->next_unclosed;
		mount_free(m);
	}
	close_unclosed(dp);
}

static void close_unclosed(struct dp *dp)
{
	struct dp_op *op = &dp->unclosed.op;

	if (dp->unclosed.busy || (!dp->unclosed.files && !dp->unclosed.mounts))
		return;
	dp->unclosed.busy = true;
	dp_op_begin(op, dp, NULL, NULL);
	op->file_chain = TAKE_PTR(dp->unclosed.files);
	op->mount_chain = TAKE_PTR(dp->unclosed.mounts);
	dp_op_to_worker(op, NULL, work_unclosed, unclosed_closed);
}

static void work_ns_close(struct dp_op *op)
{
	op->engine->ops->ns_close(op->ns);
	op->ns = NULL;
}

static void mount_closed(struct dp_op *op)
{
	mount_free(op->arg);
	op->arg = NULL;
	dp_op_finish(op);
}

void dp_mount_unref(struct dp *dp, struct dp_mount_obj *m)
{
	struct dp_op *op;

	if (--m->refs)
		return;
	if (!m->ns) {
		mount_free(m);
		return;
	}
	op = dp_op_try(dp, NULL, m);
	if (!op) {
		m->next_unclosed = dp->unclosed.mounts;
		dp->unclosed.mounts = m;
		close_unclosed(dp);
		return;
	}
	op->engine = m->engine;
	op->ns = TAKE_PTR(m->ns);
	op->closes_of = m->tenant;
	dp_op_to_worker(op, NULL, work_ns_close, mount_closed);
}

/* NULL: the operation has failed. */
static char *copy_path(struct dp_op *op, const char *path)
{
	char *copy;

	if (!path || strnlen(path, DP_PATH_MAX + 1) > DP_PATH_MAX) {
		dp_op_fail(op, ROS2_BAD_PATH, "path: expected at most %u bytes", DP_PATH_MAX);
		return NULL;
	}
	copy = strdup(path);
	if (!copy)
		dp_op_fail(op, ROS2_BUSY, "the agent has no memory");
	return copy;
}

static void work_mount(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct dp_tenant *t = op->ds->tenant;
	const struct engine_who who = {t->uid, t->name, op->engine->lends ? t->pd : NULL};
	int rc = op->engine->nvmf ? dp_unquiet_note(op->dp, op->engine->nvmf, &err) : 0;

	if (rc == 0)
		rc = op->engine->ops->ns_open(op->engine->engine, &who, op->path, &op->mount->ns,
		                              &err);

	if (rc < 0)
		dp_op_set_err(op, rc, &err);
}

/* What came back for a session that has ended meanwhile is not given out. What it changed stays
 * changed: CLOSED is said of what was not begun, and may be made again. */
static bool came_in_time(struct dp_op *op)
{
	if (op->res.status == ROS2_OK && op->ds->ended)
		dp_op_set(op, op->changes ? ROS2_OUTCOME_UNKNOWN : ROS2_CLOSED,
		          "the session ended meanwhile");
	return op->res.status == ROS2_OK;
}

static void back_mount(struct dp_op *op)
{
	struct dp_session *ds = op->ds;

	if (came_in_time(op) && ds->n_mounts == DP_MOUNTS_MAX)
		dp_op_set(op, ROS2_LIMIT, "mounts of a session: the limit is %u (fixed)",
		          DP_MOUNTS_MAX);
	if (op->res.status == ROS2_OK) {
		dp_mount_ref(op->mount);
		ds->mounts[ds->n_mounts++] = op->mount;
		op->res.mount.mount = ds->n_mounts;
	}
	dp_op_finish(op);
}

static struct dp_mount_obj *new_mount(struct dp *dp, struct dp_engine *e, struct dp_tenant *t,
                                      uint32_t access)
{
	struct dp_mount_obj *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->engine = e;
	m->tenant = t;
	m->access = access;
	m->refs = 1;
	e->n_users++;
	list_add_tail(&dp->mounts, &m->link);
	return m;
}

void dp_mount(struct dp *dp, const struct ros2_uid *session, const char *engine, const char *path,
              uint32_t access, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);

	if (!op)
		return;
	op->engine = dp_engine_find(dp, engine);
	if (!op->engine) {
		dp_op_fail(op, ROS2_NOT_FOUND, "no engine '%.63s' at this agent", engine);
		return;
	}
	if (op->engine->lends && !dp_device_for(dp, op->ds->tenant, op))
		return;
	op->path = copy_path(op, path);
	if (!op->path || !take_descriptors(op, op->engine->ops->ns_descriptors))
		return;
	op->mount =
		new_mount(dp, op->engine, op->ds->tenant, access & (ENGINE_READ | ENGINE_WRITE));
	if (!op->mount) {
		give_descriptors(dp, op->ds->tenant, op->engine->ops->ns_descriptors);
		dp_op_fail(op, ROS2_BUSY, "the agent has no memory");
		return;
	}
	dp_op_to_worker(op, op->ds->tenant, work_mount, back_mount);
}

/* NULL: the operation has failed. */
static struct dp_mount_obj *use_mount(struct dp_op *op, uint32_t mount, uint32_t need)
{
	struct dp_session *ds = op->ds;

	if (mount == 0 || mount > ds->n_mounts) {
		dp_op_fail(op, ROS2_NOT_FOUND, "no such mount in this session");
		return NULL;
	}
	if (need & ~ds->mounts[mount - 1]->access) {
		dp_op_fail(op, ROS2_DENIED, "the mount does not allow %s",
		           need & ENGINE_WRITE ? "writing" : "reading");
		return NULL;
	}
	op->mount = ds->mounts[mount - 1];
	dp_mount_ref(op->mount);
	op->engine = op->mount->engine;
	return op->mount;
}

/* ---- files ---- */

void dp_file_ref(struct dp_file *f)
{
	atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
}

static void work_file_close(struct dp_op *op)
{
	op->engine->ops->close(op->efile);
	op->efile = NULL;
}

static void file_closed(struct dp_op *op)
{
	file_free(op->arg);
	op->arg = NULL;
	dp_op_finish(op);
}

static void on_last_unref(struct dp_post *p)
{
	struct dp_file *f = container_of(p, struct dp_file, post);
	struct dp_op *op;

	if (!f->file) {
		file_free(f);
		return;
	}
	op = dp_op_try(f->dp, NULL, f);
	if (!op) {
		f->next_unclosed = f->dp->unclosed.files;
		f->dp->unclosed.files = f;
		close_unclosed(f->dp);
		return;
	}
	op->engine = f->mount->engine;
	op->efile = TAKE_PTR(f->file);
	op->closes_of = f->mount->tenant;
	dp_op_to_worker(op, NULL, work_file_close, file_closed);
}

void dp_file_unref(struct dp_file *f)
{
	if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) == 1)
		dp_post(f->dp, &f->post, on_last_unref);
}

static struct dp_file *new_file(struct dp *dp, struct dp_mount_obj *m, uint32_t flags)
{
	struct dp_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->dp = dp;
	f->mount = m;
	dp_mount_ref(m);
	f->access = flags & (ENGINE_READ | ENGINE_WRITE);
	atomic_init(&f->refs, 1);
	list_init(&f->flushes);
	list_init(&f->led);
	list_add_tail(&dp->files, &f->link);
	return f;
}

/* Handles never repeat within a process, whatever the session, and do not count how many there are.
 * 0: none is free. */
static uint64_t reserve_handle(struct dp_session *ds)
{
	for (uint32_t i = 0; i < DP_HANDLES_MAX; i++) {
		if (ds->handles[i].handle)
			continue;
		ds->dp->next_handle += 1 + crypto_random_u32() % 1024;
		ds->handles[i].handle = ds->dp->next_handle << DP_HANDLE_BITS | i;
		ds->handles[i].file = NULL;
		return ds->handles[i].handle;
	}
	return 0;
}

static void work_open(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr attr = {0};
	int rc = reactor_engine_ready(op->ds->reactor, op->engine, &err);

	if (rc == 0)
		rc = op->engine->ops->open(op->mount->ns, op->path, op->flags, op->mode,
		                           &op->file->file, &attr, &err);
	if (rc < 0)
		dp_op_set_err(op, rc, &err);
	op->b = attr.size;
}

static void unreserve(struct dp_op *op)
{
	uint32_t i = op->handle & (DP_HANDLES_MAX - 1);

	if (op->ds->handles[i].handle != op->handle)
		return;
	op->ds->handles[i].handle = 0;
	if (op->ds->handles[i].file)
		dp_file_unref(TAKE_PTR(op->ds->handles[i].file));
}

static void back_handle_added(struct dp_op *op)
{
	if (came_in_time(op)) {
		op->res.open.handle = op->handle;
		op->res.open.size = op->b;
	} else {
		unreserve(op);
	}
	dp_op_finish(op);
}

static void back_open(struct dp_op *op)
{
	uint32_t i = op->handle & (DP_HANDLES_MAX - 1);

	if (!came_in_time(op)) {
		unreserve(op);
		dp_op_finish(op);
		return;
	}
	dp_file_ref(op->file);
	op->ds->handles[i].file = op->file;
	dp_op_to_reactor(op, op->ds->reactor, session_run_handle_add, back_handle_added);
}

static void refuse_open(struct dp_op *op)
{
	if (!op->handle) {
		dp_op_fail(op, ROS2_LIMIT,
		           "open handles of a session: the limit is %u (fixed): close some first",
		           DP_HANDLES_MAX);
		return;
	}
	unreserve(op);
	dp_op_fail(op, ROS2_BUSY, "the agent has no memory");
}

static uint32_t open_needs(uint32_t flags)
{
	bool changes = flags & (ENGINE_CREATE | ENGINE_TRUNCATE);

	return (flags & (ENGINE_READ | ENGINE_WRITE)) | (changes ? ENGINE_WRITE : 0);
}

void dp_open(struct dp *dp, const struct ros2_uid *session, uint32_t mount, const char *path,
             uint32_t flags, uint32_t mode, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);

	if (!op)
		return;
	if (!(flags & (ENGINE_READ | ENGINE_WRITE)) || flags >= ENGINE_TRUNCATE * 2) {
		dp_op_fail(op, ROS2_INVALID,
		           "open flags: expected read or write and known bits, found 0x%x", flags);
		return;
	}
	if (!use_mount(op, mount, open_needs(flags)))
		return;
	op->path = copy_path(op, path);
	if (!op->path)
		return;
	op->flags = flags;
	op->changes = flags & (ENGINE_EXCLUSIVE | ENGINE_TRUNCATE);
	op->mode = mode;
	if (!take_descriptors(op, op->engine->ops->file_descriptors))
		return;
	op->handle = reserve_handle(op->ds);
	op->file = op->handle ? new_file(dp, op->mount, flags) : NULL;
	if (!op->file) {
		give_descriptors(dp, op->ds->tenant, op->engine->ops->file_descriptors);
		refuse_open(op);
		return;
	}
	dp_op_to_worker(op, op->ds->tenant, work_open, back_open);
}

/* NULL: the operation has failed. */
static struct dp_op *use_handle(struct dp *dp, const struct ros2_uid *session, uint64_t handle,
                                uint32_t need, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);
	uint32_t i = handle & (DP_HANDLES_MAX - 1);
	struct dp_file *f;

	if (!op)
		return NULL;
	f = handle && op->ds->handles[i].handle == handle ? op->ds->handles[i].file : NULL;
	if (!f || (need & ~f->access)) {
		dp_op_fail(op, f ? ROS2_ACCESS : ROS2_BAD_HANDLE, "%s",
		           f ? "the handle is not open for writing"
		             : "no such handle in this session");
		return NULL;
	}
	dp_file_ref(f);
	op->file = f;
	op->engine = f->mount->engine;
	op->handle = handle;
	return op;
}

static void back_handle_removed(struct dp_op *op)
{
	unreserve(op);
	dp_op_finish(op);
}

void dp_close(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg)
{
	struct dp_op *op = use_handle(dp, session, handle, 0, done, arg);
	uint32_t i = handle & (DP_HANDLES_MAX - 1);

	if (!op)
		return;
	/* The entry stays reserved until the reactor has let go, so that the index is not given out
	 * twice. */
	dp_file_unref(TAKE_PTR(op->ds->handles[i].file));
	dp_op_to_reactor(op, op->ds->reactor, session_run_handle_remove, back_handle_removed);
}

static void tell_attr(struct dp_op *op, const struct engine_attr *a)
{
	op->res.attr = (struct dp_attr){.type = (uint8_t)a->type,
	                                .size = a->size,
	                                .mtime_unix_ns = a->mtime_unix_ns,
	                                .blocks_512 = a->blocks_512,
	                                .mode = a->mode,
	                                .block_size = a->block_size};
}

static void work_fstat(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr a = {0};
	int rc = op->engine->ops->fstat(op->file->file, &a, &err);

	if (rc < 0)
		dp_op_set_err(op, rc, &err);
	else
		tell_attr(op, &a);
}

static void work_truncate(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = op->engine->ops->truncate(op->file->file, op->a, &err);

	if (rc < 0)
		dp_op_set_err(op, rc, &err);
}

static void work_fsync(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = flush_by_call(op->file, &err);

	if (rc < 0)
		dp_op_set_err(op, rc, &err);
}

static void back_plain(struct dp_op *op)
{
	came_in_time(op);
	dp_op_finish(op);
}

void dp_fstat(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg)
{
	struct dp_op *op = use_handle(dp, session, handle, 0, done, arg);

	if (op)
		dp_op_to_worker(op, op->ds->tenant, work_fstat, back_plain);
}

void dp_truncate(struct dp *dp, const struct ros2_uid *session, uint64_t handle, uint64_t size,
                 dp_done_fn done, void *arg)
{
	struct dp_op *op = use_handle(dp, session, handle, ENGINE_WRITE, done, arg);

	if (!op)
		return;
	if (size > INT64_MAX && !DP_SWITCH(no_size_check)) {
		dp_op_fail(op, ROS2_OUT_OF_RANGE, "size is beyond 2^63");
		return;
	}
	op->a = size;
	op->changes = true;
	dp_op_to_worker(op, op->ds->tenant, work_truncate, back_plain);
}

void dp_flush(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg)
{
	struct dp_op *op = use_handle(dp, session, handle, 0, done, arg);

	if (op)
		dp_op_to_worker(op, op->ds->tenant, work_fsync, back_plain);
}

/* ---- names ---- */

static int path_call(struct dp_op *op, struct ros2_err *err)
{
	const struct engine_ops *ops = op->engine->ops;
	struct engine_ns *ns = op->mount->ns;
	struct engine_attr a = {0};
	int rc;

	switch ((enum dp_path_op)op->path_op) {
	case DP_STAT:
		rc = ops->stat(ns, op->path, &a, err);
		if (rc == 0)
			tell_attr(op, &a);
		return rc;
	case DP_MKDIR:
		return ops->mkdir(ns, op->path, op->mode, err);
	case DP_UNLINK:
		return ops->unlink(ns, op->path, err);
	case DP_RMDIR:
		return ops->rmdir(ns, op->path, err);
	case DP_RENAME:
		return ops->rename(ns, op->path, op->to, err);
	}
	return ros2_err_set(err, -EINVAL, "no such operation on a path");
}

static void work_path(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = path_call(op, &err);

	if (rc < 0)
		dp_op_set_err(op, rc, &err);
}

void dp_path(struct dp *dp, const struct ros2_uid *session, uint32_t mount, enum dp_path_op path_op,
             const char *path, const char *to, uint32_t mode, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);

	if (!op || !use_mount(op, mount, path_op == DP_STAT ? 0 : ENGINE_WRITE))
		return;
	op->path = copy_path(op, path);
	if (!op->path)
		return;
	if (path_op == DP_RENAME) {
		op->to = copy_path(op, to);
		if (!op->to)
			return;
	}
	op->path_op = path_op;
	op->changes = path_op != DP_STAT;
	op->mode = mode;
	dp_op_to_worker(op, op->ds->tenant, work_path, back_plain);
}

static void work_readdir(struct dp_op *op)
{
	AUTO_FREE struct engine_dirent *found = calloc(op->max, sizeof(*found));
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t next = 0;
	uint32_t n = 0;
	int rc;

	op->entries = calloc(op->max, sizeof(*op->entries));
	if (!found || !op->entries) {
		dp_op_set(op, ROS2_BUSY, "the agent has no memory");
		return;
	}
	rc = op->engine->ops->readdir(op->mount->ns, op->path, op->a, found, op->max, &n, &next,
	                              &err);
	if (rc < 0) {
		dp_op_set_err(op, rc, &err);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		memcpy(op->entries[i].name, found[i].name, sizeof(op->entries[i].name));
		op->entries[i].type = (uint8_t)found[i].type;
	}
	op->res.dir.entries = op->entries;
	op->res.dir.n = n;
	op->res.dir.next = next;
}

void dp_readdir(struct dp *dp, const struct ros2_uid *session, uint32_t mount, const char *path,
                uint64_t cookie, uint32_t max, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);

	if (!op || !use_mount(op, mount, 0))
		return;
	op->path = copy_path(op, path);
	if (!op->path)
		return;
	op->a = cookie;
	op->max = max ? MIN(max, DP_READDIR_MAX) : 256;
	dp_op_to_worker(op, op->ds->tenant, work_readdir, back_plain);
}

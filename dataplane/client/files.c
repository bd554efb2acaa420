/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces, files and directories: control calls. Mount numbers and handles belong to one session
 * at the agent, so each call takes the present ones when it is made; after a reconnect they are
 * made again here, never with flags that would create or cut a file a second time.
 */
#include "dataplane/client/internal_priv.h"
#include <errno.h>
#include <string.h>

static struct control *control_of(const struct ros2_session *s)
{
	return s->client->control;
}

/* ---- mounts ---- */

int mount_again(struct ros2_session *s, struct ros2_mount *m, struct ros2_err *err)
{
	/* The number that it had is another's in this session. */
	m->id = 0;
	m->broken = (struct ros2_err)ROS2_ERR_INIT;
	return control_mount(control_of(s), s->uid, m->name, &m->id, err);
}

static int is_broken(const struct ros2_err *broken, struct ros2_err *err)
{
	if (broken->code && err)
		*err = *broken;
	return broken->code;
}

static int mount_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	return mount_again(s, arg, err);
}

int ros2_mount(struct ros2_session *s, const char *namespace_name, struct ros2_mount **ret,
               struct ros2_err *err)
{
	struct ros2_mount *m = calloc(1, sizeof(*m));
	int rc;

	if (!m || !(m->name = strdup(namespace_name))) {
		free(m);
		return ros2_err_set(err, -ENOMEM, "no memory for a mount");
	}
	m->session = s;
	list_init(&m->files);
	rc = session_call(s, true, "mount", mount_call, m, err);
	if (rc) {
		ros2_err_prefix(err, "mount '%s'", namespace_name);
		free(m->name);
		free(m);
		return rc;
	}
	list_add_tail(&s->mounts, &m->link);
	*ret = m;
	return 0;
}

static void file_free(struct ros2_file *f)
{
	list_del(&f->link);
	free(f->path);
	free(f);
}

/* The agent keeps a mount as long as the session: there is no call for it. */
void ros2_unmount(struct ros2_mount *m)
{
	struct ros2_err gone = ROS2_ERR_INIT;

	if (!m || client_is_childs(m->session->client))
		return;
	ros2_err_named(&gone, ROS2_CLOSED, "the namespace was unmounted");
	while (!list_empty(&m->files)) {
		struct ros2_file *f = list_first(&m->files, struct ros2_file, link);

		session_drain(m->session, NULL, f, &gone);
		if (m->session->state == LINK_UP && !f->broken.code)
			control_close(control_of(m->session), m->session->uid, f->handle, NULL);
		file_free(f);
	}
	list_del(&m->link);
	free(m->name);
	free(m);
}

/* ---- files ---- */

struct open_args {
	struct ros2_file *file;
	uint32_t flags;
};

static int open_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct open_args *a = arg;
	struct ros2_file *f = a->file;
	int rc = is_broken(&f->mount->broken, err);

	return rc ? rc
	          : control_open(control_of(s), s->uid, f->mount->id, f->path, a->flags, f->mode,
	                         &f->handle, err);
}

int file_open_again(struct ros2_session *s, struct ros2_file *f, struct ros2_err *err)
{
	struct open_args a = {f, f->flags & ROS2_O_RDWR};
	int rc;

	/* By its name another file would be found. */
	if (f->unlinked)
		return ros2_err_named(
			err, ROS2_NOT_FOUND,
			"'%s' was unlinked or replaced while it was open, or may have "
			"been, and the agent that held it was lost",
			f->path);
	rc = open_call(s, &a, err);
	if (!rc)
		f->broken = (struct ros2_err)ROS2_ERR_INIT;
	return rc;
}

int ros2_open(struct ros2_mount *m, const char *path, uint32_t flags, uint32_t mode,
              struct ros2_file **ret, struct ros2_err *err)
{
	const uint32_t once = ROS2_O_CREAT | ROS2_O_EXCL | ROS2_O_TRUNC;
	struct open_args a = {.flags = flags};
	struct ros2_file *f;
	int rc;

	if (!(flags & ROS2_O_RDWR) || flags & ~(once | ROS2_O_RDWR))
		return ros2_err_set(err, -EINVAL,
		                    "open flags 0x%x: expected RDONLY, WRONLY or RDWR, with CREAT, "
		                    "EXCL, TRUNC",
		                    flags);
	f = calloc(1, sizeof(*f));
	if (!f || !(f->path = strdup(path))) {
		free(f);
		return ros2_err_set(err, -ENOMEM, "no memory for a file");
	}
	f->mount = m;
	f->flags = flags;
	f->mode = mode;
	list_init(&f->link);
	a.file = f;
	rc = session_call(m->session, !(flags & (ROS2_O_EXCL | ROS2_O_TRUNC)), "open", open_call,
	                  &a, err);
	if (rc) {
		ros2_err_prefix(err, "open '%s'", path);
		file_free(f);
		return rc;
	}
	/* Not durable before a flush, and never cut a second time. */
	f->writes_acked = !!(flags & ROS2_O_TRUNC);
	list_add_tail(&m->files, &f->link);
	*ret = f;
	return 0;
}

/* Nobody knows whether the agent has closed it, or it has not: no call of the program's could mend
 * that, for its file is gone, and at the agent a handle ends with its session. A BUSY of the
 * agent's would besides be taken for ours, after which the file is still there. */
static bool is_left_to_the_session(enum ros2_status st)
{
	return st == ROS2_BAD_SESSION || st == ROS2_UNAVAILABLE || st == ROS2_TIMEOUT ||
	       st == ROS2_BUSY || st == ROS2_RATE;
}

int ros2_close(struct ros2_file *f, struct ros2_err *err)
{
	struct ros2_err said = ROS2_ERR_INIT;
	struct ros2_session *s;
	int rc = 0;

	if (!f)
		return 0;
	s = f->mount->session;
	rc = client_check_own(s->client, err);
	if (rc)
		return rc;
	if (f->users)
		return ros2_err_named(err, ROS2_BUSY, "%u requests on '%s' have not ended",
		                      f->users, f->path);
	/* On a lost session the handle is gone already. */
	if (s->state == LINK_UP && !f->broken.code)
		rc = control_close(control_of(s), s->uid, f->handle, &said);
	if (rc < 0 && is_left_to_the_session(said.status))
		rc = 0;
	if (rc < 0 && err)
		*err = said;
	file_free(f);
	return rc;
}

struct handle_args {
	struct ros2_file *file;
	uint64_t size;
	struct ros2_stat *stat;
};

static int fstat_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct handle_args *a = arg;
	int rc = is_broken(&a->file->broken, err);

	return rc ? rc
	          : control_stat_handle(control_of(s), s->uid, a->file->handle, 0, a->stat, err);
}

int ros2_fstat(struct ros2_file *f, struct ros2_stat *ret, struct ros2_err *err)
{
	struct handle_args a = {.file = f, .stat = ret};

	return session_call(f->mount->session, true, "fstat", fstat_call, &a, err);
}

static int truncate_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct handle_args *a = arg;
	int rc = is_broken(&a->file->broken, err);

	return rc ? rc : control_truncate(control_of(s), s->uid, a->file->handle, a->size, err);
}

int ros2_truncate(struct ros2_file *f, uint64_t size, struct ros2_err *err)
{
	struct handle_args a = {.file = f, .size = size};
	int rc = session_call(f->mount->session, false, "truncate", truncate_call, &a, err);

	f->writes_acked += rc >= 0;
	return rc;
}

/* ---- paths ---- */

struct path_args {
	struct ros2_mount *mount;
	const char *path, *to;
	uint32_t mode;
	enum control_path_op op;
	struct ros2_stat *stat;
};

/* What follows @root in @path: "" for the same, "/x" for what is below it, NULL for another. */
static const char *below(const char *path, const char *root)
{
	size_t n = strlen(root);

	return !strncmp(path, root, n) && (!path[n] || path[n] == '/') ? path + n : NULL;
}

static void file_moved(struct ros2_file *f, const char *rest, const char *to)
{
	char *path = to ? malloc(strlen(to) + strlen(rest) + 1) : NULL;

	/* Without memory for the new name it is as if it had none: never another file. */
	f->unlinked = !path;
	if (!path)
		return;
	stpcpy(stpcpy(path, to), rest);
	free(f->path);
	f->path = path;
}

/* After a reconnect open files are found by their names, so this program's own renames are
 * followed.
 * @to NULL: the name is gone. */
static void files_moved(struct ros2_mount *at, const char *from, const char *to)
{
	struct ros2_mount *m;
	struct ros2_file *f;
	const char *rest;

	list_for_each (&at->session->mounts, m, link) {
		if (strcmp(m->name, at->name))
			continue;
		list_for_each (&m->files, f, link)
			if (!f->unlinked && (rest = below(f->path, from)))
				file_moved(f, rest, to);
	}
}

/* Done or not: what a name leads to now is not known either. */
static bool is_unknown(int rc)
{
	return rc == ros2_status_to_errno(ROS2_OUTCOME_UNKNOWN);
}

static int stat_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct path_args *a = arg;
	int rc = is_broken(&a->mount->broken, err);

	return rc ? rc
	          : control_stat(control_of(s), s->uid, a->mount->id, a->path, 0, a->stat, err);
}

int ros2_stat(struct ros2_mount *m, const char *path, struct ros2_stat *ret, struct ros2_err *err)
{
	struct path_args a = {.mount = m, .path = path, .stat = ret};

	return session_call(m->session, true, "stat", stat_call, &a, err);
}

static int path_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct path_args *a = arg;
	int rc = is_broken(&a->mount->broken, err);

	return rc ? rc
	          : control_path(control_of(s), s->uid, a->mount->id, a->op, a->path, a->mode, err);
}

int ros2_mkdir(struct ros2_mount *m, const char *path, uint32_t mode, struct ros2_err *err)
{
	struct path_args a = {.mount = m, .path = path, .mode = mode, .op = CONTROL_MKDIR};

	return session_call(m->session, false, "mkdir", path_call, &a, err);
}

int ros2_unlink(struct ros2_mount *m, const char *path, struct ros2_err *err)
{
	struct path_args a = {.mount = m, .path = path, .op = CONTROL_UNLINK};
	int rc = session_call(m->session, false, "unlink", path_call, &a, err);

	if (!rc || is_unknown(rc))
		files_moved(m, path, NULL);
	return rc;
}

int ros2_rmdir(struct ros2_mount *m, const char *path, struct ros2_err *err)
{
	struct path_args a = {.mount = m, .path = path, .op = CONTROL_RMDIR};

	return session_call(m->session, false, "rmdir", path_call, &a, err);
}

static int rename_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct path_args *a = arg;
	int rc = is_broken(&a->mount->broken, err);

	return rc ? rc : control_rename(control_of(s), s->uid, a->mount->id, a->path, a->to, err);
}

int ros2_rename(struct ros2_mount *m, const char *from, const char *to, struct ros2_err *err)
{
	struct path_args a = {.mount = m, .path = from, .to = to};
	int rc = session_call(m->session, false, "rename", rename_call, &a, err);

	if ((rc && !is_unknown(rc)) || !strcmp(from, to))
		return rc;
	files_moved(m, to, NULL);
	files_moved(m, from, rc ? NULL : to);
	return rc;
}

struct readdir_args {
	struct ros2_mount *mount;
	const char *path;
	uint64_t *cookie;
	struct ros2_dirent *out;
	uint32_t max;
};

static int readdir_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct readdir_args *a = arg;
	int rc = is_broken(&a->mount->broken, err);

	return rc ? rc
	          : control_readdir(control_of(s), s->uid, a->mount->id, a->path, a->cookie, a->out,
	                            a->max, err);
}

int ros2_readdir(struct ros2_mount *m, const char *path, uint64_t *cookie, struct ros2_dirent *out,
                 uint32_t max, struct ros2_err *err)
{
	struct readdir_args a = {m, path, cookie, out, max};

	if (!max)
		return ros2_err_set(err, -EINVAL, "readdir with room for no entry");
	return session_call(m->session, true, "readdir", readdir_call, &a, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the files that commits go to are still the ones that the next start will find. A backup
 * that is moved into place (mv, rsync), or a file that is tidied away, leaves the open ones without
 * a name: commits would go on, be acknowledged, and be gone with the process. Nor would another
 * process see our locks on an index that is not its own. SQLite asks only where it keeps a rollback
 * journal. So each commit is followed by a look at the names, before it is acknowledged, and so is
 * the end. While a file is open no other one gets its number. What is written over in place keeps
 * its name and is not noticed here.
 *
 * A log that is left beside another database would be played into it by the next start: a mixture
 * of both, which nothing in it tells. So where the database is not ours any more the log, as long
 * as it is, gets another name. Nothing is touched that is not known to be ours.
 */
#include "controller/store_sqlite_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

#define LOOK_MS    512 /* the last wait: a second in all */
#define ASIDE      "ros2.db-wal.of-the-replaced"
#define ASIDES_MAX 1000 /* more than anybody leaves lying there */

enum { DATABASE, LOG, INDEX };
static const char *const suffixes[SQLITE_FILES] = {"", "-wal", "-shm"};
_Static_assert(SQLITE_FILES == INDEX + 1, "");

struct name {
	char s[sizeof(((struct backend *)0)->path) + 64];
};

static struct name name_of(const struct backend *b, unsigned i)
{
	struct name n;

	snprintf(n.s, sizeof(n.s), "%s%s", b->path, suffixes[i]);
	return n;
}

/* There is nothing of that name. Anything else says only that it could not be looked at. */
static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* What fails may be over in a moment: a want of memory, a server that does not answer. */
static int look(const struct name *n, struct stat *st)
{
	for (long ms = 1;; ms *= 2) {
		int r = fsx_io->stat(n->s, st) < 0 ? -errno : 0;

		if (!r || is_absent(r) || ms > LOOK_MS)
			return r;
		/* poll: nothing tells when it works again */
		nanosleep(&(struct timespec){.tv_nsec = ms * (long)NS_PER_MS}, NULL);
	}
}

static bool is_file(const struct backend *b, unsigned i, const struct stat *st)
{
	return st->st_dev == b->files[i].dev && st->st_ino == b->files[i].ino;
}

static int cannot_look(const struct name *n, int r, struct ros2_err *err)
{
	return ros2_err_set(err, -EIO, "%s cannot be looked at: %s", n->s, strerrordesc_np(-r));
}

/* Does SQLite itself see another file by the name than it has open? */
static bool has_moved(struct backend *b)
{
	int moved = 0;

	return sqlite3_file_control(b->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
	       moved;
}

static int take(struct backend *b, unsigned n, bool all, struct ros2_err *err)
{
	struct stat st;

	for (unsigned i = b->n_files; i < n; i++) {
		struct name name = name_of(b, i);
		int r = look(&name, &st);

		if (is_absent(r) && !all)
			return 0;
		if (r < 0)
			return cannot_look(&name, r, err);
		if (i == DATABASE && has_moved(b))
			return ros2_err_set(err, -EIO, "%s was replaced while it was opened",
			                    name.s);
		b->files[i].dev = st.st_dev;
		b->files[i].ino = st.st_ino;
		b->n_files = i + 1;
	}
	return 0;
}

int sqlite_names_take(struct backend *b, unsigned n, struct ros2_err *err)
{
	return take(b, n, true, err);
}

int sqlite_names_take_there(struct backend *b, struct ros2_err *err)
{
	return take(b, SQLITE_FILES, false, err);
}

/* ---- a log whose database is another's ---- */

/* By a second name, that nobody has yet, before the first goes. */
static int put_aside(struct backend *b, const struct name *log, char aside[64])
{
	int dir_len = (int)(strrchr(b->path, '/') - b->path);
	struct name to;
	struct stat st;
	int r = -EEXIST;

	for (unsigned i = 1; r == -EEXIST && i <= ASIDES_MAX; i++) {
		snprintf(aside, 64, i == 1 ? ASIDE : ASIDE ".%u", i);
		snprintf(to.s, sizeof(to.s), "%.*s/%s", dir_len, b->path, aside);
		r = fsx_io->link(log->s, to.s) < 0 ? -errno : 0;
	}
	if (r < 0)
		return r;
	r = look(&to, &st);
	if (!r && !is_file(b, LOG, &st))
		r = -ESTALE; /* the name has become another's */
	if (r < 0) {
		fsx_io->unlink(to.s);
		return r;
	}
	if (fsx_io->unlink(log->s) < 0)
		return -errno;
	return fsx_sync_parent(to.s, NULL);
}

static bool is_ours_by_name(const struct backend *b, unsigned i, struct name *ret)
{
	struct stat st;

	*ret = name_of(b, i);
	return i < b->n_files && !look(ret, &st) && is_file(b, i, &st);
}

/* What became of our log, in words behind others. */
static void set_aside(struct backend *b, struct ros2_err *err)
{
	struct ros2_err before = *err;
	struct name log, index;
	char aside[64];
	int r;

	if (is_ours_by_name(b, INDEX, &index))
		fsx_io->unlink(index.s);
	if (!is_ours_by_name(b, LOG, &log))
		return;
	r = put_aside(b, &log, aside);
	if (!r)
		ros2_err_set(err, -EIO, "%s; its log was set aside as %s", before.msg, aside);
	else
		ros2_err_set(err, -EIO,
		             "%s; its log cannot be set aside (%s): move it away before a start",
		             before.msg, strerrordesc_np(-r));
}

/* ---- whether they are the ones ---- */

static int is_another(struct backend *b, unsigned i, const struct name *n, int r,
                      struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;

	b->names_told = true;
	ros2_err_set(&why, -EIO,
	             "%s is not the file any more that was opened (%s): it was replaced, moved or "
	             "removed while it was in use",
	             n->s, r ? strerrordesc_np(-r) : "there is another");
	if (i == DATABASE)
		set_aside(b, &why);
	if (err)
		*err = why;
	return -EIO;
}

int sqlite_names_check(struct backend *b, struct ros2_err *err)
{
	struct stat st;

	for (unsigned i = 0; i < b->n_files; i++) {
		struct name name = name_of(b, i);
		int r = look(&name, &st);

		if (!r && is_file(b, i, &st))
			continue;
		return !r || is_absent(r) ? is_another(b, i, &name, r, err)
		                          : cannot_look(&name, r, err);
	}
	return 0;
}

void sqlite_names_last(struct backend *b)
{
	struct ros2_err why = ROS2_ERR_INIT;

	if (!b->names_told && sqlite_names_check(b, &why) < 0)
		log_error("%s", why.msg);
}

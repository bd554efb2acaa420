/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the files that commits go to are still the ones that the next start will find. A backup
 * that is moved into place (mv, rsync), or a file that is tidied away, leaves the open ones without
 * a name: commits would go on, be acknowledged, and be gone with the process. Nor would another
 * process see our locks on an index that is not its own. SQLite asks only where it keeps a rollback
 * journal. So each commit is followed by a look at the names, before it is acknowledged. While a
 * file is open no other one gets its number. What is written over in place keeps its name and is
 * not noticed here.
 */
#include "controller/store_sqlite_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOOK_MS 512 /* the last wait: a second in all */

static const char *const suffixes[SQLITE_FILES] = {"", "-wal", "-shm"};

/* There is nothing of that name. Anything else says only that it could not be looked at. */
static bool is_absent(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

/* What fails may be over in a moment: a want of memory, a server that does not answer. */
static int look(const struct backend *b, unsigned i, struct stat *st)
{
	char path[sizeof(b->path) + 8];

	snprintf(path, sizeof(path), "%s%s", b->path, suffixes[i]);
	for (long ms = 1;; ms *= 2) {
		int r = fsx_io->stat(path, st) < 0 ? -errno : 0;

		if (!r || is_absent(r) || ms > LOOK_MS)
			return r;
		nanosleep(&(struct timespec){.tv_nsec = ms * (long)NS_PER_MS}, NULL);
	}
}

static int cannot_look(const struct backend *b, unsigned i, int r, struct ros2_err *err)
{
	return ros2_err_set(err, -EIO, "%s%s cannot be looked at: %s", b->path, suffixes[i],
	                    strerrordesc_np(-r));
}

int sqlite_names_take(struct backend *b, struct ros2_err *err)
{
	struct stat st;
	int r;

	for (unsigned i = 0; i < SQLITE_FILES; i++) {
		r = look(b, i, &st);
		if (r < 0)
			return cannot_look(b, i, r, err);
		b->files[i].dev = st.st_dev;
		b->files[i].ino = st.st_ino;
	}
	return 0;
}

int sqlite_names_check(const struct backend *b, struct ros2_err *err)
{
	struct stat st;
	int r;

	for (unsigned i = 0; i < SQLITE_FILES; i++) {
		r = look(b, i, &st);
		if (!r && st.st_dev == b->files[i].dev && st.st_ino == b->files[i].ino)
			continue;
		if (r && !is_absent(r))
			return cannot_look(b, i, r, err);
		return ros2_err_set(
			err, -EIO,
			"%s%s is not the file any more that was opened (%s): it was replaced, "
			"moved or removed while it was in use",
			b->path, suffixes[i], r ? strerrordesc_np(-r) : "there is another");
	}
	return 0;
}

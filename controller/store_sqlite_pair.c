/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which log belongs to which database. SQLite plays any log that lies beside a database into it; a
 * log that a killed process left would so be mixed with the backup that was put in the database's
 * place, and nothing in the result tells. So a start notes both files, by number and time of birth,
 * in a file beside them, and the next one refuses where that very log is there and the database is
 * another file. Where both are others, all was copied; without a log there is nothing to mix. A
 * file system that tells no time of birth leaves it at that: a number alone is given anew to the
 * next file. docs/decisions/0061-pair.md
 */
#include "controller/store_sqlite_priv.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

#define TEXT_MAX 256
#define FORMAT   "1\nros2.db %llu %lld %u\nros2.db-wal %llu %lld %u\n"

struct birth {
	unsigned long long ino;
	long long s;
	unsigned ns;
};

struct pair {
	struct birth database, log;
};

static bool is_same(const struct birth *a, const struct birth *b)
{
	return a->ino == b->ino && a->s == b->s && a->ns == b->ns;
}

static void path_of(const struct backend *b, const char *suffix, char out[sizeof(b->path) + 8])
{
	snprintf(out, sizeof(b->path) + 8, "%s%s", b->path, suffix);
}

/* False: it is not there, or its birth is not known. */
static bool birth_of(const struct backend *b, const char *suffix, struct birth *ret,
                     uint64_t *ret_size)
{
	char path[sizeof(b->path) + 8];
	struct statx x;

	path_of(b, suffix, path);
	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_SIZE | STATX_BTIME, &x) < 0 ||
	    !(x.stx_mask & STATX_BTIME) || !(x.stx_btime.tv_sec | x.stx_btime.tv_nsec))
		return false;
	*ret = (struct birth){x.stx_ino, x.stx_btime.tv_sec, x.stx_btime.tv_nsec};
	*ret_size = x.stx_size;
	return true;
}

static bool pair_of(const struct backend *b, struct pair *ret, uint64_t *ret_log_size)
{
	uint64_t size;

	return birth_of(b, "", &ret->database, &size) &&
	       birth_of(b, "-wal", &ret->log, ret_log_size);
}

/* 1: there is a note; 0: none that this version reads. */
static int noted(const struct backend *b, struct pair *ret, struct ros2_err *err)
{
	char path[sizeof(b->path) + 8];
	AUTO_FREE void *text = NULL;
	size_t n;
	int r;

	path_of(b, "-pair", path);
	r = fsx_read_file(path, TEXT_MAX, &text, &n, err);
	if (r == -ENOENT || r == -EFBIG)
		return 0;
	if (r < 0)
		return r;
	return sscanf(text, FORMAT, &ret->database.ino, &ret->database.s, &ret->database.ns,
	              &ret->log.ino, &ret->log.s, &ret->log.ns) == 6;
}

int sqlite_pair_check(const struct backend *b, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct pair then, now;
	uint64_t size;
	int r;

	if (!pair_of(b, &now, &size) || !size)
		return 0;
	r = noted(b, &then, &why);
	if (r < 0 && err)
		*err = why;
	if (r <= 0 || !is_same(&then.log, &now.log) || is_same(&then.database, &now.database))
		return MIN(r, 0);
	return ros2_err_set(
		err, -EBADMSG,
		"%s is not the database that ros2.db-wal beside it is the log of, and would be "
		"mixed with it: for a backup move ros2.db-wal and ros2.db-shm away; for a copy of "
		"that database remove ros2.db-pair",
		b->path);
}

/* SQLite would begin an empty database, and remove a log that is none of that: with what was
 * acknowledged and is only there. A database is written before its first log is. */
int sqlite_pair_missing(const struct backend *b, struct ros2_err *err)
{
	char path[sizeof(b->path) + 8];
	struct stat database, log;
	bool is_empty;

	path_of(b, "-wal", path);
	is_empty = stat(b->path, &database) < 0 ? errno == ENOENT : !database.st_size;
	if (!is_empty || stat(path, &log) < 0 || !log.st_size)
		return 0;
	return ros2_err_set(err, -EBADMSG,
	                    "%s is missing, or empty, beside its log: put it back, or, to begin "
	                    "without either, move ros2.db-wal and ros2.db-shm away",
	                    b->path);
}

/* Those that this start has open. */
static bool are_ours(const struct backend *b, const struct pair *p)
{
	return p->database.ino == b->files[0].ino && p->log.ino == b->files[1].ino;
}

/* It takes nothing from a start that it cannot be noted: on a full disk rights are to be taken
 * away, too. An old note does no harm: its log is not there any more. */
void sqlite_pair_note(const struct backend *b)
{
	char path[sizeof(b->path) + 8], text[TEXT_MAX];
	struct ros2_err why = ROS2_ERR_INIT;
	struct pair then, now;
	uint64_t size;
	int n;

	if (!pair_of(b, &now, &size) || !are_ours(b, &now))
		return;
	if (noted(b, &then, NULL) == 1 && is_same(&then.log, &now.log) &&
	    is_same(&then.database, &now.database))
		return;
	n = snprintf(text, sizeof(text), FORMAT, now.database.ino, now.database.s, now.database.ns,
	             now.log.ino, now.log.s, now.log.ns);
	path_of(b, "-pair", path);
	if (fsx_write_atomic(path, text, (size_t)n, 0600, &why) < 0)
		log_warn("it is not noted which log is the database's: %s", why.msg);
}

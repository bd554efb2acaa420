/* SPDX-License-Identifier: Apache-2.0 */
/*
 * At a start, before anything is committed: the write-ahead log that a process left, and the first
 * page of the database, are written anew and synced. When that process ended because its own sync
 * had failed, the page cache may show what no block has, and says it is clean: a sync alone keeps
 * nothing of it. Commits behind such a frame would be acknowledged, and a power cut would take all
 * of them, since a log is read up to its first gap; and beside a database that is empty on the disk
 * SQLite throws the log away. Other pages need nothing: a log is only given up when all that was
 * moved out of it is synced. The bytes are the same, so no write tears any. Through the VFS, as
 * SQLite writes them.
 */
#include "controller/store_sqlite_priv.h"
#include "common/util.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 65536 /* the largest page there is */

static int copy_in_place(sqlite3_file *f, uint8_t *p, sqlite3_int64 most)
{
	sqlite3_int64 size = 0, off;
	int rc = f->pMethods->xFileSize(f, &size);

	size = MIN(size, most);
	for (off = 0; rc == SQLITE_OK && off < size; off += CHUNK) {
		int n = (int)MIN(size - off, (sqlite3_int64)CHUNK);

		rc = f->pMethods->xRead(f, p, n, off);
		if (rc == SQLITE_OK)
			rc = f->pMethods->xWrite(f, p, n, off);
	}
	return rc == SQLITE_OK ? f->pMethods->xSync(f, SQLITE_SYNC_NORMAL) : rc;
}

static int file_anew(sqlite3_vfs *v, const char *name, int kind, sqlite3_int64 most)
{
	AUTO_FREE sqlite3_file *f = calloc(1, (size_t)v->szOsFile);
	AUTO_FREE uint8_t *p = malloc(CHUNK);
	int there = 0, rc;

	if (!f || !p)
		return SQLITE_NOMEM;
	rc = v->xAccess(v, name, SQLITE_ACCESS_EXISTS, &there);
	if (rc != SQLITE_OK || !there)
		return rc;
	rc = v->xOpen(v, name, f, SQLITE_OPEN_READWRITE | kind, NULL);
	if (rc == SQLITE_OK)
		rc = copy_in_place(f, p, most);
	if (f->pMethods)
		f->pMethods->xClose(f);
	return rc;
}

int sqlite_write_anew(struct backend *b, struct ros2_err *err)
{
	char name[sizeof(b->path) + 8] = ""; /* a VFS reads on behind the NUL, to another one */
	sqlite3_vfs *v = sqlite3_vfs_find(NULL);
	int rc;

	snprintf(name, sizeof(name), "%s-wal", b->path);
	rc = file_anew(v, name, SQLITE_OPEN_WAL, INT64_MAX);
	if (rc == SQLITE_OK) {
		memset(name, 0, sizeof(name));
		snprintf(name, sizeof(name), "%s", b->path);
		rc = file_anew(v, name, SQLITE_OPEN_MAIN_DB, CHUNK);
	}
	if (rc == SQLITE_OK)
		return 0;
	return ros2_err_set(err,
	                    rc == SQLITE_NOMEM  ? -ENOMEM
	                    : rc == SQLITE_FULL ? -ENOSPC
	                                        : -EIO,
	                    "write %s anew: %s: what it holds may be lost", name,
	                    sqlite3_errstr(rc));
}

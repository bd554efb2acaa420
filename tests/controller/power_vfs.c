/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shim. After the cut every call that reads or changes a file fails with an I/O error; closing
 * and unlocking work, so that the dead process can be taken down in good order.
 */
#include "tests/controller/power_vfs.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct power_file {
	sqlite3_file base;
	bool is_wal;
	int inode;         /* -1: not mirrored (temporary files) */
	bool dir_unsynced; /* a new journal or log: the first sync also keeps its name, as in unix
	                    */
	char dir[512];
	sqlite3_file *real; /* behind this struct */
};

static struct power_vfs_opts opts;
static sqlite3_vfs *unix_vfs, power_vfs;
static _Atomic uint64_t syncs, writes, calls_after_shm;
static _Atomic bool is_full, no_sync, index_is_full, shm_refused;
static _Atomic int index_page; /* the last there is */

static struct power_file *of(sqlite3_file *f)
{
	return (struct power_file *)f;
}

static int p_close(sqlite3_file *f)
{
	return of(f)->real->pMethods->xClose(of(f)->real);
}

static int p_read(sqlite3_file *f, void *p, int n, sqlite3_int64 off)
{
	if (disk_is_off(opts.disk))
		return SQLITE_IOERR_READ;
	return of(f)->real->pMethods->xRead(of(f)->real, p, n, off);
}

/* Is it the one that fails? */
static bool fails_now(void)
{
	uint64_t n = atomic_fetch_add(&writes, 1) + 1;

	if (!opts.fail_write_at || n < opts.fail_write_at ||
	    (n > opts.fail_write_at && !opts.write_for_good))
		return false;
	errno = opts.write_errno; /* unix tells it by xGetLastError */
	return true;
}

static bool fails_after_shm(void)
{
	return opts.fail_after_shm && atomic_load(&shm_refused) &&
	       atomic_fetch_add(&calls_after_shm, 1) + 1 >= opts.fail_after_shm;
}

static int write_some(sqlite3_file *f, const void *p, int n, sqlite3_int64 off)
{
	int rc = of(f)->real->pMethods->xWrite(of(f)->real, p, n, off);

	if (rc == SQLITE_OK)
		disk_write(opts.disk, of(f)->inode, (uint64_t)off, p, (size_t)n);
	errno = opts.write_errno;
	return SQLITE_FULL;
}

static int p_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 off)
{
	int rc;

	if (of(f)->inode >= 0 && !disk_is_off(opts.disk) && atomic_load(&is_full))
		return SQLITE_FULL;
	if (of(f)->inode >= 0 && !disk_call(opts.disk))
		return SQLITE_IOERR_WRITE;
	if (of(f)->inode >= 0 && fails_after_shm())
		return SQLITE_IOERR_WRITE;
	if (of(f)->inode >= 0 && fails_now() && (!opts.write_lies || of(f)->is_wal)) {
		if (opts.write_lies)
			return SQLITE_OK;
		return opts.write_errno == ENOSPC ? write_some(f, p, n / 2, off)
		                                  : SQLITE_IOERR_WRITE;
	}
	rc = of(f)->real->pMethods->xWrite(of(f)->real, p, n, off);
	if (rc == SQLITE_OK && of(f)->inode >= 0)
		disk_write(opts.disk, of(f)->inode, (uint64_t)off, p, (size_t)n);
	return rc;
}

static int p_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	int rc;

	if (of(f)->inode >= 0 && !disk_call(opts.disk))
		return SQLITE_IOERR_TRUNCATE;
	if (of(f)->inode >= 0 && fails_now() && !opts.write_lies)
		return SQLITE_IOERR_TRUNCATE;
	rc = of(f)->real->pMethods->xTruncate(of(f)->real, size);
	if (rc == SQLITE_OK && of(f)->inode >= 0)
		disk_truncate(opts.disk, of(f)->inode, (uint64_t)size);
	return rc;
}

/* The model does the syncing: a real fsync would only cost time. */
static int p_sync(sqlite3_file *f, int flags)
{
	struct power_file *p = of(f);
	uint64_t n = atomic_fetch_add(&syncs, 1) + 1;

	if (p->inode < 0)
		return SQLITE_OK;
	if (!disk_call(opts.disk) || atomic_load(&no_sync) || fails_after_shm() ||
	    (opts.fail_sync_at && n >= opts.fail_sync_at))
		return SQLITE_IOERR_FSYNC;
	if (n == opts.forget_sync_at) {
		disk_forget(opts.disk, p->inode);
		return SQLITE_IOERR_FSYNC;
	}
	if (opts.sync_lies)
		return SQLITE_OK;
	disk_sync(opts.disk, p->inode);
	if (p->dir_unsynced && !opts.no_dir_sync)
		disk_sync_dir(opts.disk, p->dir);
	p->dir_unsynced = false;
	return SQLITE_OK;
}

static int p_size(sqlite3_file *f, sqlite3_int64 *n)
{
	if (disk_is_off(opts.disk))
		return SQLITE_IOERR_FSTAT;
	return of(f)->real->pMethods->xFileSize(of(f)->real, n);
}

static int p_lock(sqlite3_file *f, int how)
{
	return of(f)->real->pMethods->xLock(of(f)->real, how);
}

static int p_unlock(sqlite3_file *f, int how)
{
	return of(f)->real->pMethods->xUnlock(of(f)->real, how);
}

static int p_reserved(sqlite3_file *f, int *ret)
{
	return of(f)->real->pMethods->xCheckReservedLock(of(f)->real, ret);
}

/* A size hint makes unix write behind the model's back. */
static int p_control(sqlite3_file *f, int op, void *arg)
{
	if (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE ||
	    op == SQLITE_FCNTL_MMAP_SIZE)
		return SQLITE_NOTFOUND;
	return of(f)->real->pMethods->xFileControl(of(f)->real, op, arg);
}

static int p_sector(sqlite3_file *f)
{
	return of(f)->real->pMethods->xSectorSize(of(f)->real);
}

static int p_device(sqlite3_file *f)
{
	return of(f)->real->pMethods->xDeviceCharacteristics(of(f)->real);
}

static int p_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **ret)
{
	int rc;

	*ret = NULL;
	if (opts.no_shm_memory && page > 0) {
		if (page == 1) /* a commit's; what is kept ready is more at once */
			atomic_store(&shm_refused, true);
		return SQLITE_NOMEM;
	}
	if (extend && page > atomic_load(&index_page) && atomic_load(&index_is_full))
		return SQLITE_IOERR_SHMSIZE; /* unix tells no errno here */
	rc = of(f)->real->pMethods->xShmMap(of(f)->real, page, size, extend, ret);
	if (rc == SQLITE_OK && extend && page > atomic_load(&index_page))
		atomic_store(&index_page, page);
	return rc;
}

static int p_shm_lock(sqlite3_file *f, int off, int n, int flags)
{
	return of(f)->real->pMethods->xShmLock(of(f)->real, off, n, flags);
}

static void p_shm_barrier(sqlite3_file *f)
{
	of(f)->real->pMethods->xShmBarrier(of(f)->real);
}

static int p_shm_unmap(sqlite3_file *f, int remove)
{
	return of(f)->real->pMethods->xShmUnmap(of(f)->real, remove);
}

static const sqlite3_io_methods methods = {
	.iVersion = 2,
	.xClose = p_close,
	.xRead = p_read,
	.xWrite = p_write,
	.xTruncate = p_truncate,
	.xSync = p_sync,
	.xFileSize = p_size,
	.xLock = p_lock,
	.xUnlock = p_unlock,
	.xCheckReservedLock = p_reserved,
	.xFileControl = p_control,
	.xSectorSize = p_sector,
	.xDeviceCharacteristics = p_device,
	.xShmMap = p_shm_map,
	.xShmLock = p_shm_lock,
	.xShmBarrier = p_shm_barrier,
	.xShmUnmap = p_shm_unmap,
};

static int mirror_open(struct power_file *p, const char *name, int flags)
{
	const char *slash = strrchr(name, '/');

	/* As unix does it: whether or not the file was there. */
	p->dir_unsynced = (flags & SQLITE_OPEN_CREATE) &&
	                  (flags & (SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL));
	p->is_wal = flags & SQLITE_OPEN_WAL;
	p->inode = disk_lookup(opts.disk, name);
	sqlite3_snprintf(sizeof(p->dir), p->dir, "%.*s", (int)(slash - name), name);
	if (p->inode >= 0)
		return SQLITE_OK;
	if (!(flags & SQLITE_OPEN_CREATE))
		return SQLITE_OK;
	if (!disk_call(opts.disk))
		return SQLITE_CANTOPEN;
	p->inode = disk_create(opts.disk, name);
	return SQLITE_OK;
}

static int p_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
	struct power_file *p = of(f);
	int rc = SQLITE_OK;

	memset(p, 0, sizeof(*p));
	p->inode = -1;
	p->real = (sqlite3_file *)(p + 1);
	if (disk_is_off(opts.disk))
		return SQLITE_CANTOPEN;
	if (name && (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL)))
		rc = mirror_open(p, name, flags);
	if (rc == SQLITE_OK)
		rc = unix_vfs->xOpen(unix_vfs, name, p->real, flags, ret_flags);
	if (rc == SQLITE_OK)
		p->base.pMethods = &methods;
	return rc;
}

static int p_delete(sqlite3_vfs *v, const char *name, int sync_dir)
{
	char dir[512];
	int rc;

	if (!disk_call(opts.disk))
		return SQLITE_IOERR_DELETE;
	if (fails_now() && !opts.write_lies)
		return SQLITE_IOERR_DELETE;
	rc = unix_vfs->xDelete(unix_vfs, name, 0);
	if (rc != SQLITE_OK)
		return rc;
	disk_unlink(opts.disk, name);
	if (sync_dir && !opts.sync_lies) {
		sqlite3_snprintf(sizeof(dir), dir, "%.*s", (int)(strrchr(name, '/') - name), name);
		disk_sync_dir(opts.disk, dir);
	}
	return SQLITE_OK;
}

static int p_access(sqlite3_vfs *v, const char *name, int flags, int *ret)
{
	if (disk_is_off(opts.disk))
		return SQLITE_IOERR_ACCESS;
	return unix_vfs->xAccess(unix_vfs, name, flags, ret);
}

void power_vfs_use(const struct power_vfs_opts *o)
{
	opts = *o;
	atomic_store(&syncs, 0);
	atomic_store(&writes, 0);
	atomic_store(&calls_after_shm, 0);
	atomic_store(&no_sync, false);
	atomic_store(&index_is_full, false);
	atomic_store(&index_page, 0);
	atomic_store(&shm_refused, false);
	if (unix_vfs)
		return;
	unix_vfs = sqlite3_vfs_find("unix");
	power_vfs = *unix_vfs;
	power_vfs.pNext = NULL;
	power_vfs.zName = "power";
	power_vfs.szOsFile = (int)sizeof(struct power_file) + unix_vfs->szOsFile;
	power_vfs.xOpen = p_open;
	power_vfs.xDelete = p_delete;
	power_vfs.xAccess = p_access;
	sqlite3_vfs_register(&power_vfs, 1);
}

void power_vfs_full(bool full)
{
	atomic_store(&is_full, full);
}

void power_vfs_index_full(void)
{
	atomic_store(&index_is_full, true);
}

void power_vfs_fail_sync(void)
{
	atomic_store(&no_sync, true);
}

uint64_t power_vfs_syncs(void)
{
	return atomic_load(&syncs);
}

uint64_t power_vfs_writes(void)
{
	return atomic_load(&writes);
}

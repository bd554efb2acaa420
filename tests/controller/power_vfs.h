/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SQLite VFS over the real one ("unix") that mirrors every write, sync, truncation, creation and
 * deletion of a database, its journal and its log into a disk model, so that the power can be cut
 * at any of these calls. Locks, shared memory and reads are the real ones. It claims no more than
 * "unix" does (sector writes may tear, but leave bytes beside them alone: POWERSAFE_OVERWRITE).
 */
#ifndef ROS2_TESTS_CONTROLLER_POWER_VFS_H
#define ROS2_TESTS_CONTROLLER_POWER_VFS_H

#include "tests/common/disk_model.h"

struct power_vfs_opts {
	struct disk *disk;     /* borrowed */
	bool sync_lies;        /* xSync says yes and does nothing: a negative control */
	bool no_dir_sync;      /* it syncs no directory: SQLite may be built so */
	uint64_t fail_sync_at; /* the n-th xSync fails, and so does each after it; 0: none */
	/* The n-th xSync fails, and what it should have kept no later one keeps; 0: none. */
	uint64_t forget_sync_at;
	/* The n-th write, truncation or deletion fails with @write_errno (half of a write that
	 * fails for ENOSPC arrives), and with @write_for_good each after it; 0: none. */
	uint64_t fail_write_at;
	int write_errno;
	bool write_for_good;
	bool no_shm_memory; /* for more than the first page of the log's index */
	/* Once that was missing, the n-th write or sync after it fails, and each that follows; 0:
	 * none. */
	uint64_t fail_after_shm;
	/* Of the write-ahead log it says that it worked, and does nothing: a negative control. */
	bool write_lies;
};
/* Becomes the default VFS; a second call replaces the options. Nobody has a database open. */
void power_vfs_use(const struct power_vfs_opts *o);
uint64_t power_vfs_syncs(void);  /* since power_vfs_use */
uint64_t power_vfs_writes(void); /* and truncations and deletions */
/* From now on no write finds space, or each does; any thread. */
void power_vfs_full(bool full);
/* From now on the index of the log does not get longer: its disk is full. */
void power_vfs_index_full(void);
void power_vfs_fail_sync(void); /* from now on no sync works; any thread */
#endif

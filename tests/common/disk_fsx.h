/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsx_ops over the real ones that mirror into a disk model, so that the power can be cut, or the
 * process killed, at any call. The write at which it ends arrives by half.
 */
#ifndef ROS2_TESTS_COMMON_DISK_FSX_H
#define ROS2_TESTS_COMMON_DISK_FSX_H

#include "common/fsx.h"
#include "tests/common/disk_model.h"

struct disk_fsx_opts {
	struct disk *disk; /* borrowed */
	/* Paths that do not begin so are on another disk, whose power stays; NULL: there is none.
	 */
	const char *only_root;
	/* A negative control: fsync of paths that contain this does nothing; with a leading '=', of
	 * the path that ends so. NULL: none. */
	const char *no_fsync;
	/* The power goes at the write or fsync of such a path that follows on so many of them. */
	const char *cut_path;
	uint64_t cut_call;
	/* The call that follows on @fault_call others of such a path (NULL: of any) fails with
	 * @fault_errno, and with @fault_for_good each after it. Half of a write that fails for
	 * space arrives, and calls that need none work; what a failed fsync should have kept is
	 * never kept. 0: none fails. */
	int fault_errno;
	const char *fault_path;
	uint64_t fault_call;
	bool fault_for_good;
	unsigned fault_times; /* so many in a row; 0: one */
	bool short_writes;    /* each write takes some bytes only */
};
/* Sets fsx_io. */
void disk_fsx_use(const struct disk_fsx_opts *o);
void disk_fsx_end(void);            /* the real calls again */
unsigned disk_fsx_skipped(void);    /* fsyncs left out since disk_fsx_use */
uint64_t disk_fsx_path_calls(void); /* writes and fsyncs of cut_path since disk_fsx_use */
unsigned disk_fsx_faults(void);     /* calls that failed since disk_fsx_use */
#endif

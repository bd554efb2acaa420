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
	/* A negative control: fsync of paths that contain this does nothing; with a leading '=', of
	 * the path that ends so. NULL: none. */
	const char *no_fsync;
};
/* Sets fsx_io. */
void disk_fsx_use(const struct disk_fsx_opts *o);
void disk_fsx_end(void);         /* the real calls again */
unsigned disk_fsx_skipped(void); /* fsyncs left out since disk_fsx_use */
#endif

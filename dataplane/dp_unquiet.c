/* SPDX-License-Identifier: Apache-2.0 */
/*
 * That targets may still carry out writes of this process is noted durably before the first volume
 * is mounted, and taken back when the data plane has ended in order, with nothing left in an
 * engine. A process that finds the note knows that the one before it was killed (or the machine
 * was), and that its own writes must wait. The note is the file's name: nothing is in it, nothing
 * is parsed. docs/decisions/0023-unquiet-targets.md.
 */
#define LOG_COMPONENT "dataplane"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/log.h"
#include "dataplane/dp_priv.h"
#include <errno.h>
#include <stdio.h>

/* Longer than any target may take: twice the longest keep alive and the longest command quiesce
 * time. A document that says a longer quiesce time is not known here. */
#define UNQUIET_MAX_NS (300 * NS_PER_S)

int dp_unquiet_open(struct dp *dp, struct ros2_err *err)
{
	int n;

	pthread_mutex_init(&dp->unquiet.lock, NULL);
	if (!dp->opts.state_dir)
		return 0;
	n = snprintf(dp->unquiet.path, sizeof(dp->unquiet.path), "%s/unquiet-targets",
	             dp->opts.state_dir);
	if (n < 0 || (size_t)n >= sizeof(dp->unquiet.path))
		return ros2_err_set(err, -ENAMETOOLONG, "state directory: the name is too long");
	/* In doubt it is there. */
	if (access(dp->unquiet.path, F_OK) < 0 && errno == ENOENT)
		return 0;
	dp->unquiet.noted = true;
	dp->unquiet.since_ns = clock_boottime_ns();
	log_warn("the agent did not end in order: writes to NVMe-oF volumes wait until its old "
	         "controllers cannot be carrying out any");
	return 0;
}

int dp_unquiet_note(struct dp *dp, struct ros2_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&dp->unquiet.lock);
	if (dp->unquiet.path[0] && !dp->unquiet.noted) {
		rc = fsx_create_atomic(dp->unquiet.path, "", 0, 0600, err);
		if (rc == -EEXIST)
			rc = 0;
		dp->unquiet.noted = rc == 0;
	}
	pthread_mutex_unlock(&dp->unquiet.lock);
	return rc;
}

void dp_unquiet_close(struct dp *dp, bool in_order)
{
	uint64_t since = dp->unquiet.since_ns;

	/* What an earlier process left may not be over. */
	if (since && clock_boottime_ns() - since < UNQUIET_MAX_NS)
		in_order = false;
	if (in_order && dp->unquiet.noted) {
		/* If it stays, the next process waits for nothing. */
		(void)fsx_io->unlink(dp->unquiet.path);
		(void)fsx_sync_dir(dp->opts.state_dir, NULL);
	}
	pthread_mutex_destroy(&dp->unquiet.lock);
}

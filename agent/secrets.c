/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looked at once, at start: whoever may write there chooses as whom this agent comes to a storage
 * target, and whoever may read there can come as it. What is inside is judged by who reads it.
 */
#include "agent/secrets.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int agent_secrets_check(const char *dir, struct ros2_err *err)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r = fsx_open(dir, O_RDONLY | O_DIRECTORY, 0, &fd, err);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return ros2_err_set(err, -errno, "%s: %s", dir, strerrordesc_np(errno));
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return ros2_err_set(err, -EACCES,
		                    "%s: expected an owner who is root or this agent (uid %u), "
		                    "found uid %u",
		                    dir, geteuid(), st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IRWXO))
		return ros2_err_set(err, -EACCES,
		                    "%s: expected a directory that its group cannot change and "
		                    "others cannot enter, found mode %04o: chmod g-w,o= it",
		                    dir, st.st_mode & 07777);
	return 0;
}

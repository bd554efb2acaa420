/* SPDX-License-Identifier: Apache-2.0 */
/* The list of named errors of status.h as tables. Pure. */
#include "common/status.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

static const struct {
	const char *name, *text;
	int code;
} statuses[] = {
#define X(num, name_, code_, text_) [num] = {#name_, text_, code_},
	ROS2_STATUS_LIST(X)
#undef X
};

static int known(enum ros2_status s)
{
	return (unsigned)s < ARRAY_SIZE(statuses);
}

const char *ros2_status_to_str(enum ros2_status s)
{
	return known(s) ? statuses[s].name : "UNKNOWN";
}

const char *ros2_status_text(enum ros2_status s)
{
	return known(s) ? statuses[s].text : "an error this version does not know";
}

int ros2_status_from_str(const char *name, enum ros2_status *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		if (!strcmp(statuses[i].name, name)) {
			*ret = (enum ros2_status)i;
			return 0;
		}
	}
	return -ENOENT;
}

int ros2_status_to_errno(enum ros2_status s)
{
	return known(s) ? -statuses[s].code : -EIO;
}

enum ros2_status ros2_status_from_errno(int code)
{
	if (code == 0)
		return ROS2_OK;
	for (size_t i = 1; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i].code == -code)
			return (enum ros2_status)i;
	switch (-code) {
	case ENAMETOOLONG:
	case ELOOP:
	case EILSEQ:
		return ROS2_BAD_PATH;
	case ENOMEM:
		return ROS2_BUSY; /* ours, and it passes: no limit of the caller's */
	case EMFILE:
	case ENFILE:
	case EFBIG:
		return ROS2_LIMIT;
	case EOVERFLOW:
		return ROS2_OUT_OF_RANGE;
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case ENETUNREACH:
		return ROS2_UNAVAILABLE;
	case ECONNRESET:
	case EPIPE:
		return ROS2_CLOSED;
	case EROFS:
		return ROS2_DENIED;
	default:
		return ROS2_INTERNAL;
	}
}

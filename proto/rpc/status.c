/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named errors <-> gRPC: the name travels in the status message as "NAME: words", the code is the
 * nearest gRPC has. A name in a received message counts only when its code is the received one, so
 * words of other gRPC software cannot be mistaken for a name.
 */
#include "proto/rpc/rpc_priv.h"
#include <stdio.h>
#include <string.h>

grpc_status_code rpc_status_to_grpc(enum ros2_status s)
{
	switch (s) {
	case ROS2_OK:
		return GRPC_STATUS_OK;
	case ROS2_INVALID:
	case ROS2_PROTOCOL:
	case ROS2_TOO_LARGE:
	case ROS2_BAD_PATH:
		return GRPC_STATUS_INVALID_ARGUMENT;
	case ROS2_VERSION:
	case ROS2_CONTACT_LOST:
	case ROS2_NO_GRANT:
	case ROS2_GRANT_EXPIRED:
	case ROS2_LEASE_EXPIRED:
	case ROS2_STALE_EPOCH:
	case ROS2_NOT_DIR:
	case ROS2_IS_DIR:
	case ROS2_NOT_EMPTY:
	case ROS2_NOT_REGULAR:
		return GRPC_STATUS_FAILED_PRECONDITION;
	case ROS2_UNAUTHENTICATED:
	case ROS2_WRONG_DOMAIN:
		return GRPC_STATUS_UNAUTHENTICATED;
	case ROS2_DENIED:
	case ROS2_ACCESS:
	case ROS2_REVOKED:
		return GRPC_STATUS_PERMISSION_DENIED;
	case ROS2_NOT_FOUND:
	case ROS2_BAD_SESSION:
	case ROS2_BAD_HANDLE:
	case ROS2_BAD_KEY:
		return GRPC_STATUS_NOT_FOUND;
	case ROS2_EXISTS:
		return GRPC_STATUS_ALREADY_EXISTS;
	case ROS2_CONFLICT:
	case ROS2_VIOLATIONS:
		return GRPC_STATUS_ABORTED;
	case ROS2_OUT_OF_RANGE:
		return GRPC_STATUS_OUT_OF_RANGE;
	case ROS2_LIMIT:
	case ROS2_BUSY:
	case ROS2_RATE:
	case ROS2_NO_SPACE:
		return GRPC_STATUS_RESOURCE_EXHAUSTED;
	case ROS2_CORRUPT:
		return GRPC_STATUS_DATA_LOSS;
	case ROS2_UNSUPPORTED:
		return GRPC_STATUS_UNIMPLEMENTED;
	case ROS2_UNAVAILABLE:
	case ROS2_CLOSED:
	case ROS2_NOT_DURABLE:
		return GRPC_STATUS_UNAVAILABLE;
	case ROS2_TIMEOUT:
		return GRPC_STATUS_DEADLINE_EXCEEDED;
	case ROS2_CANCELLED:
		return GRPC_STATUS_CANCELLED;
	case ROS2_OUTCOME_UNKNOWN:
		return GRPC_STATUS_UNKNOWN;
	case ROS2_IO:
	case ROS2_INTERNAL:
	case ROS2_STATUS_COUNT:
		break;
	}
	return GRPC_STATUS_INTERNAL;
}

static enum ros2_status from_code(grpc_status_code code)
{
	switch (code) {
	case GRPC_STATUS_OK:
		return ROS2_OK;
	case GRPC_STATUS_CANCELLED:
		return ROS2_CANCELLED;
	case GRPC_STATUS_INVALID_ARGUMENT:
	case GRPC_STATUS_FAILED_PRECONDITION:
		return ROS2_INVALID;
	case GRPC_STATUS_DEADLINE_EXCEEDED:
		return ROS2_TIMEOUT;
	case GRPC_STATUS_NOT_FOUND:
		return ROS2_NOT_FOUND;
	case GRPC_STATUS_ALREADY_EXISTS:
		return ROS2_EXISTS;
	case GRPC_STATUS_PERMISSION_DENIED:
		return ROS2_DENIED;
	case GRPC_STATUS_UNAUTHENTICATED:
		return ROS2_UNAUTHENTICATED;
	case GRPC_STATUS_RESOURCE_EXHAUSTED:
		return ROS2_BUSY;
	case GRPC_STATUS_ABORTED:
		return ROS2_CONFLICT;
	case GRPC_STATUS_OUT_OF_RANGE:
		return ROS2_OUT_OF_RANGE;
	case GRPC_STATUS_UNIMPLEMENTED:
		return ROS2_UNSUPPORTED;
	case GRPC_STATUS_UNAVAILABLE:
		return ROS2_UNAVAILABLE;
	case GRPC_STATUS_DATA_LOSS:
		return ROS2_CORRUPT;
	default:
		return ROS2_INTERNAL;
	}
}

grpc_slice rpc_status_message(enum ros2_status s, const char *words)
{
	char text[RPC_STATUS_TEXT_MAX];

	if (s == ROS2_OK)
		return grpc_empty_slice();
	snprintf(text, sizeof(text), "%s: %s", ros2_status_to_str(s),
	         words && *words ? words : ros2_status_text(s));
	return grpc_slice_from_copied_string(text);
}

/* "NAME: words": the name, and where the words begin. */
static bool split_name(const char *text, enum ros2_status *ret, const char **ret_words)
{
	const char *colon = strstr(text, ": ");
	char name[32];

	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(name))
		return false;
	memcpy(name, text, (size_t)(colon - text));
	name[colon - text] = '\0';
	if (ros2_status_from_str(name, ret))
		return false;
	*ret_words = colon + 2;
	return true;
}

int rpc_status_from_grpc(grpc_status_code code, grpc_slice message, struct ros2_err *err)
{
	char text[RPC_STATUS_TEXT_MAX];
	size_t n = MIN(GRPC_SLICE_LENGTH(message), sizeof(text) - 1);
	enum ros2_status s = from_code(code), named;
	const char *words = text;

	if (code == GRPC_STATUS_OK)
		return 0;
	memcpy(text, GRPC_SLICE_START_PTR(message), n);
	text[n] = '\0';
	/* One line, whatever the peer sent. */
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = ' ';
	if (split_name(text, &named, &words) && rpc_status_to_grpc(named) == code && named)
		s = named;
	else
		words = text;
	if (words == text && !strncmp(text, "Received message larger than max", 32))
		s = ROS2_TOO_LARGE;
	return ros2_err_named(err, s, "%s", *words ? words : ros2_status_text(s));
}

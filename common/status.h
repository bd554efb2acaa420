/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named errors: one list for the wire, the RPC replies, the audit log and libros2. Numbers are a
 * promise (docs/decisions/0002-wire-format.md): new names are appended, none is renumbered or
 * reused.
 */
#ifndef ROS2_COMMON_STATUS_H
#define ROS2_COMMON_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(number, NAME, errno, "what it means, as a person reads it") */
#define ROS2_STATUS_LIST(X)                                                                        \
	X(0, OK, 0, "success")                                                                     \
	X(1, INVALID, EINVAL, "a field has a value that is never valid")                           \
	X(2, PROTOCOL, EPROTO, "the peer broke the protocol")                                      \
	X(3, VERSION, EPROTONOSUPPORT, "the peer speaks another protocol version")                 \
	X(4, TOO_LARGE, EMSGSIZE, "longer than this side accepts")                                 \
	X(5, UNAUTHENTICATED, EKEYREJECTED, "no proof of identity, or a wrong one")                \
	X(6, DENIED, EACCES, "the policy does not allow it")                                       \
	X(7, NOT_FOUND, ENOENT, "no such object, or not one of yours")                             \
	X(8, EXISTS, EEXIST, "an object of that name exists")                                      \
	X(9, CONFLICT, ESTALE, "the object changed since you read it")                             \
	X(10, BAD_SESSION, EBADFD, "no such session, or not yours")                                \
	X(11, BAD_HANDLE, EBADF, "no such handle in this session")                                 \
	X(12, BAD_KEY, EBADR, "no live lease has this key on this connection")                     \
	X(13, OUT_OF_RANGE, ERANGE, "outside the leased range or the object")                      \
	X(14, ACCESS, EPERM, "the lease or handle does not have this access")                      \
	X(15, LEASE_EXPIRED, EKEYEXPIRED, "the lease has ended: renew it")                         \
	X(16, NO_GRANT, ENOKEY, "no live grant: the controller has not allowed it")                \
	X(17, GRANT_EXPIRED, ETIME, "the grant has ended")                                         \
	X(18, REVOKED, EKEYREVOKED, "the right was withdrawn")                                     \
	X(19, CONTACT_LOST, EHOSTDOWN, "the agent has not heard from its controller in time")      \
	X(20, LIMIT, EDQUOT, "a limit of the policy is reached")                                   \
	X(21, BUSY, EBUSY, "too much at once: try again later")                                    \
	X(22, RATE, EAGAIN, "over the rate limit")                                                 \
	X(23, VIOLATIONS, ECONNABORTED, "too many violations: the session was ended")              \
	X(24, IO, EIO, "the storage engine failed")                                                \
	X(25, NO_SPACE, ENOSPC, "the storage engine is full")                                      \
	X(26, OUTCOME_UNKNOWN, EREMOTEIO, "the write may or may not have happened")                \
	X(27, NOT_DIR, ENOTDIR, "a part of the path is not a directory")                           \
	X(28, IS_DIR, EISDIR, "the path is a directory")                                           \
	X(29, NOT_EMPTY, ENOTEMPTY, "the directory is not empty")                                  \
	X(30, NOT_REGULAR, EMEDIUMTYPE, "not a regular file")                                      \
	X(31, BAD_PATH, ELIBBAD, "not a path of this namespace")                                   \
	X(32, UNSUPPORTED, EOPNOTSUPP, "not supported here")                                       \
	X(33, UNAVAILABLE, ENOTCONN, "the other side cannot be reached now")                       \
	X(34, TIMEOUT, ETIMEDOUT, "it took longer than allowed")                                   \
	X(35, CANCELLED, ECANCELED, "withdrawn before it was done")                                \
	X(36, CLOSED, ESHUTDOWN, "the session or connection has ended")                            \
	X(37, NOT_DURABLE, ENOTRECOVERABLE, "it could not be recorded, so it was not done")        \
	X(38, STALE_EPOCH, ESTRPIPE, "from a controller that has been superseded")                 \
	X(39, WRONG_DOMAIN, EXDEV, "from another trust domain")                                    \
	X(40, CORRUPT, EBADMSG, "stored or received bytes fail their check")                       \
	X(41, INTERNAL, ENOSYS, "a bug on our side")

enum ros2_status {
#define X(num, name, err, text) ROS2_##name = num,
	ROS2_STATUS_LIST(X)
#undef X
		ROS2_STATUS_COUNT,
};

/* "REVOKED"; "UNKNOWN" for a number that is not in the list. Never NULL. */
const char *ros2_status_to_str(enum ros2_status s);
/* The sentence of the list. Never NULL. */
const char *ros2_status_text(enum ros2_status s);
/* The inverse of ros2_status_to_str. Returns 0, or -ENOENT. */
int ros2_status_from_str(const char *name, enum ros2_status *ret);
/* Negative errno for @s as in the list, 0 for ROS2_OK; a number that is not in it gives -EIO. */
int ros2_status_to_errno(enum ros2_status s);
/* The named error nearest to a negative errno; ROS2_INTERNAL when there is none. */
enum ros2_status ros2_status_from_errno(int code);

#ifdef __cplusplus
}
#endif
#endif

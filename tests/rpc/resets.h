/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 without a library, over mTLS, for what none of them sends: calls that are begun and reset
 * in the same breath (RFC 9113, 5.4.2; known as rapid reset, CVE-2023-44487). A caller with a
 * library would be held to the streams that the server allows at once; who resets them never is.
 */
#ifndef ROS2_TESTS_RPC_RESETS_H
#define ROS2_TESTS_RPC_RESETS_H

#include <stddef.h>

struct resets;
/* Connects @target (host:port) from 127.0.0.2, with these PEM files. NULL: it is refused. The
 * caller's process ignores SIGPIPE. */
struct resets *resets_open(const char *target, const char *cert, const char *key, const char *path);
/* @n calls of @path, each reset at once. What the server says is read and dropped. 0, or
 * -EPIPE when it has ended the connection. */
int resets_send(struct resets *r, unsigned n);
void resets_close(struct resets *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A client that keeps no rule: any path, any bytes, any header, straight on gRPC core. */
#ifndef ROS2_TESTS_RPC_BARE_H
#define ROS2_TESTS_RPC_BARE_H

#include <stdbool.h>
#include <stddef.h>

struct bare {
	const char *target, *path;
	const char *cert, *key; /* paths; NULL: none */
	const char *ca;         /* path */
	const char *version;    /* value of ros2-protocol; NULL: no such header */
	const void *bytes;      /* one message; NULL: none */
	size_t n;
	bool keep_open; /* do not half-close */
	int timeout_ms;
	/* results */
	int code; /* gRPC status code */
	char message[512];
	bool got_reply;
};
void bare_call(struct bare *r);

/* @n calls over one connection, of which only the headers are sent: what @r says of messages, the
 * half-close and the time counts for nothing. Does not wait. */
struct bare_held;
struct bare_held *bare_hold(const struct bare *r, size_t n);
#define BARE_HELD_MS 10000
/* Waits for the end of as many as were @refused, no longer than that: of those that were not sent
 * yet when their connection ended gRPC makes new ones, and these may be let in. Then cancels the
 * others. How many had ended by themselves: *code and *message are of one of them. */
size_t bare_held_free(struct bare_held *h, size_t refused, int *code, char message[512]);
#endif

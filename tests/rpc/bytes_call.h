/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller that keeps no rule but HTTP/2's: any bytes to any method, over one connection that
 * stays. Blocking; one thread.
 */
#ifndef ROS2_TESTS_RPC_BYTES_CALL_H
#define ROS2_TESTS_RPC_BYTES_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes_channel;

/* Paths of PEM files; @cert and @key may be NULL. Connects with the first call. Never NULL. */
struct bytes_channel *bytes_channel_new(const char *target, const char *ca, const char *cert,
                                        const char *key);
void bytes_channel_free(struct bytes_channel *c);

struct bytes_part {
	const void *data;
	size_t len;
};

struct bytes_result {
	int code; /* of gRPC */
	char words[512];
	size_t replies;
	uint8_t reply[4096]; /* the beginning of the first */
	size_t reply_len;
	double seconds;
};

/* Sends the messages, half-closes, reads replies until the status comes. */
void bytes_call(struct bytes_channel *c, const char *path, const struct bytes_part *messages,
                size_t n, int timeout_ms, struct bytes_result *ret);
#endif

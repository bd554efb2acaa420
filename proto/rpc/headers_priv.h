/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a header block a caller of a listener may send, and in how many pieces. */
#ifndef ROS2_PROTO_RPC_HEADERS_PRIV_H
#define ROS2_PROTO_RPC_HEADERS_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* gRPC takes 8 KiB of a call's headers, decoded (GRPC_ARG_MAX_METADATA_SIZE), which are at most 11
 * encoded; no library sends a further frame before one of 16 KiB is full (RFC 9113, 6.5.2), nor,
 * of TLS, records of less than a packet. */
#define RPC_HEADERS_MAX    16384
#define RPC_HEADERS_PIECES 16

/* Where the caller's side of a connection is. All zeroes at its begin. */
struct rpc_headers {
	uint8_t preface; /* bytes of it */
	uint8_t n_head, head[9];
	uint32_t left;          /* of the frame's payload */
	uint32_t block, pieces; /* of the header block */
	bool open, ends;        /* more of the block may come; not behind this frame */
	bool over;              /* there was too much of one: stays */
};

/* The next @n bytes, which were a record of TLS. False: a header block is longer than it may be, or
 * in more frames and records. */
bool rpc_headers_follow(struct rpc_headers *h, const void *bytes, size_t n);
#endif

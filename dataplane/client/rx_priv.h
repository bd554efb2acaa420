/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of the data connection: a state machine that says where the next bytes go and
 * is told how many came. It makes no system call, so that tests and the fuzzer drive it as the
 * socket does.
 *
 *   HEADER --64 bytes, checked, accepted by on_header--> PAYLOAD --all of it, on_message--> HEADER
 *
 * Invariants: (1) a byte of payload goes only to the place on_header has named for it, after that
 * header was checked; (2) payload is copied only where it arrived in the stage together with its
 * header: at most RX_STAGE_BYTES - 64 bytes of a message, but where only small reads are in flight;
 * there one copy that stays in the cache costs less than a system call for each; (3) after an error
 * nothing more is accepted.
 */
#ifndef ROS2_CLIENT_RX_H
#define ROS2_CLIENT_RX_H

#include "common/err.h"
#include "dataplane/wire.h"
#include <stdbool.h>
#include <sys/uio.h>

/* Room for the COMPLETE of one request and the DATA header of the next: one readv per read in the
 * steady state, with its payload in place. */
#define RX_STAGE_BYTES (2 * WIRE_HEADER_LEN)
/* Used instead while no payload is expected: completions come in bunches. */
#define RX_STAGE_MAX (64 * WIRE_HEADER_LEN)
/* Used while nothing is in flight but reads of up to RX_SMALL_READ bytes. */
#define RX_STAGE_BULK (64u * 1024)
#define RX_SMALL_READ (8u * 1024)

enum rx_expect {
	RX_EXPECT_NO_PAYLOAD,
	RX_EXPECT_PAYLOAD,
	RX_EXPECT_SMALL_READS, /* and nothing else */
};

struct rx_ops {
	/* A header that passed codec_check. *ret_dst: where exactly h->payload_len bytes go; must
	 * be set when that is not 0. Anything but 0 ends the connection. */
	int (*on_header)(void *arg, const struct wire_header *h, void **ret_dst,
	                 struct ros2_err *err);
	/* Header and payload are there. */
	int (*on_message)(void *arg, const struct wire_header *h, struct ros2_err *err);
};

struct rx {
	const struct rx_ops *ops; /* borrowed, static */
	void *arg;                /* borrowed: until the connection ends */
	struct wire_header head;  /* of the message whose payload is being received */
	uint8_t *dst;             /* next payload byte; borrowed from on_header */
	uint32_t left;            /* payload bytes still to come */
	bool in_payload, failed;
	size_t at, staged;     /* bytes in stage: from @at on, @staged of them */
	uint64_t copied_bytes; /* payload that came with its header and was moved once */
	_Alignas(8) uint8_t stage[RX_STAGE_BULK];
};

void rx_reset(struct rx *r, const struct rx_ops *ops, void *arg);
/* Where the next bytes go: 1 or 2 entries. */
int rx_iov(struct rx *r, enum rx_expect expect, struct iovec iov[2]);
/* @n bytes were put there. 0, or the error of a check or of an op: the connection must end. */
int rx_advance(struct rx *r, size_t n, struct ros2_err *err);
#endif

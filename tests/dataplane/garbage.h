/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every opcode there can be, and of those that wire.h has every field of the header with hostile
 * values, one at a time, over any transport. What is due is said here, by wire.h and docs/wire.md
 * and without our codec. Where a message may have payload behind it, a WRITE with its own and the
 * DATA that a PULL asks for are tried in the same way.
 */
#ifndef ROS2_TESTS_DATAPLANE_GARBAGE_H
#define ROS2_TESTS_DATAPLANE_GARBAGE_H

#include "common/status.h"
#include "dataplane/wire.h"
#include <stdbool.h>

/* The attacker's end of it, and what it may name. */
struct garbage {
	void *arg;
	/* As it is, with payload_len bytes behind it when they are no more than WIRE_INLINE_MAX (or
	 * what the transport takes); what becomes of it is of no interest. */
	void (*send)(void *arg, const struct wire_header *h);
	/* What comes next. False: the connection has ended. */
	bool (*take)(void *arg, struct wire_header *h);
	/* The session has ended: what its end was told as; another one is made, and the values
	 * below with it. */
	enum ros2_status (*renew)(void *arg, struct garbage *g);
	/* Of a payload behind its WRITE; 0: there is none here. */
	uint32_t inline_max;
	/* Sends a WRITE whose payload is asked for: the DATA that is right. NULL: none is asked for
	 * here. */
	struct wire_header (*invite)(void *arg);
	uint64_t handle, address;
	uint32_t key, generation;
	struct wire_header window; /* a good one; opcode 0: there are none here */
	struct wire_header asked;  /* the DATA that is waited for; opcode 0: none is */
	uint64_t other_handle;     /* another tenant's */
	uint32_t other_key;
	unsigned patience; /* refusals after which a new session is made; 0: never */
	unsigned tried, ended, naks, done; /* what it came to */
	unsigned here;                     /* of naks, in this session */
	unsigned wrong;                    /* something else than was due; told on stderr */
};

void garbage_walk(struct garbage *g);
/* Of one opcode, and of one field when @field is not NULL. */
void garbage_walk_some(struct garbage *g, enum wire_opcode op, const char *field);

#endif

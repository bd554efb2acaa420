/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 in one process with the real data plane: the control calls go straight to dp.h instead of
 * over gRPC, the data over the transport that ROS2_TEST_TRANSPORT names. One program, one file, one
 * buffer: what the scenarios need.
 */
#ifndef ROS2_TESTS_CLIENT_DIRECT_H
#define ROS2_TESTS_CLIENT_DIRECT_H

#include "dataplane/client/internal_priv.h"
#include "tests/dataplane/fixture.h"

struct control_dp {
	struct control base;
	struct fx *fx;
	/* any thread: what goes wrong from now on */
	_Atomic enum ros2_status refuse_renewals; /* no lease is renewed any more, but so */
	_Atomic bool verbs_nowhere;  /* sessions over verbs are answered, but nobody listens */
	_Atomic uint32_t away;       /* so many OpenSessions find no agent */
	_Atomic uint32_t registered; /* leases given */
};

/* Somebody on the path of sessions over TCP: given the agent's port, the one that the program is
 * told. NULL = nobody. */
extern uint16_t (*direct_on_path)(uint16_t port);
extern const char *direct_engine; /* that is mounted; "ram" unless a test says otherwise */

struct user {
	struct control_dp *control; /* the client's */
	struct ros2_client *client;
	struct ros2_session *session;
	struct ros2_mount *mount;
	struct ros2_file *file;
	uint8_t *buf; /* USER_BUF bytes */
	struct ros2_err err;
};
#define USER_BUF (4u << 20)

#define ok(u, call)                                                                                \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, (u)->err.msg);                                   \
	} while (0)

/* A session over the transport under test, with "file" of "ns" open. */
void user_open(struct fx *fx, struct user *u);
/* As @o says, over whatever transport. Negative and words in u->err; close it all the same. */
int user_try(struct fx *fx, struct user *u, const struct ros2_session_opts *o);
/* The same, and it must go well. */
void user_open_as(struct fx *fx, struct user *u, const struct ros2_session_opts *o);
void user_close(struct user *u);
void user_fill(uint8_t *p, size_t n, uint32_t seed);
/* The agent ends the session, for no fault of the program: it is made again. */
void user_lose_session(struct user *u);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* One client with one session on a fake agent: what most tests of libros2 begin with. */
#ifndef ROS2_TESTS_RIG_H
#define ROS2_TESTS_RIG_H

#include "dataplane/client/internal_priv.h"
#include "tests/client/fake_agent.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

struct rig {
	struct fake_agent *agent;
	struct ros2_client *client;
	struct ros2_session *session;
	struct ros2_mount *mount;
	struct ros2_file *file;
	uint8_t *buf;
	size_t buf_len;
	struct ros2_err err;
};

/* For cmocka: @state becomes a struct rig with "f" of 1 MiB open for reading and writing. */
int rig_setup(void **state);
int rig_teardown(void **state);
/* Opens the session, after a test has told the agent what to offer. */
void rig_open(struct rig *r, const struct ros2_session_opts *o);
/* One request through the ring, until it is complete. */
struct ros2_completion rig_read(struct rig *r, void *buf, uint32_t len, uint64_t offset);
/* The library looks at what only wakes when no message has come: on a busy machine that may be
 * after many answers. Reads until one is refused, or long enough. */
struct ros2_completion rig_read_until_it_looks(struct rig *r);
/* What the agent did is seen from here on, and what was done here by it: where nothing else orders
 * the two that TSan knows of. */
void rig_meet(struct rig *r);
struct ros2_completion rig_write(struct rig *r, const void *buf, uint32_t len, uint64_t offset);
/* A write of ones is with the agent, which has not taken it from its connection, when that is given
 * up; twos are written on the next one; then the agent takes what the first one brought. */
void rig_write_before_and_after_a_loss(struct rig *r);
/* The agent has heard the end of the first connection. */
bool rig_is_over(struct rig *r);
/* As if the agent had said nothing for as long as it may. */
void rig_give_up_the_connection(struct rig *r);
void rig_pattern(uint8_t *p, size_t n, uint32_t seed);
#define rig_ok(r, call)                                                                            \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, (r)->err.msg);                                   \
	} while (0)
#endif

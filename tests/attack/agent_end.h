/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant at a site of agent.h, with a session, its file, its region and its window. */
#ifndef ROS2_TESTS_ATTACK_AGENT_END_H
#define ROS2_TESTS_ATTACK_AGENT_END_H

#include "tests/attack/agent.h"

#define END_WAIT_MS 10000
#define END_BLOCK   65536u

struct end {
	struct site *site;
	enum tenant who;
	struct peer_session s;
	struct peer *p;
	uint32_t window;
	uint64_t next_id;
};

int end_session(struct site *site, enum tenant who, struct end *e);
/* The rest, when the session and the connection are there. */
int end_settle(struct end *e);
/* All of it. end_leave in any case. */
int end_come(struct site *site, enum tenant who, struct end *e);
void end_leave(struct end *e);
/* Of END_BLOCK bytes. */
struct wire_header end_request(const struct end *e, enum wire_opcode op);
/* Asks, and waits for the answer to it. */
int end_ask(struct end *e, struct wire_header h, struct wire_header *ret);
/* Writes a block, reads it back, finds the same. */
bool end_works(struct end *e);
#endif

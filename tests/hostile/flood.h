/* SPDX-License-Identifier: Apache-2.0 */
/* What the floods of hostile-flood share: whose they are, their pace, and how they were answered.
 */
#ifndef ROS2_TESTS_HOSTILE_FLOOD_H
#define ROS2_TESTS_HOSTILE_FLOOD_H

#include "tests/attack/verbs_peer.h"
#include "tests/client/raw/raw.h"
#include <signal.h>

#define FLOOD_CALL_MS  5000
#define FLOOD_SESSIONS 4
#define FLOOD_SOCKETS  1200

struct flood {
	const char *name;
	struct raw raw;
	const struct raw_args *args;
	uint64_t start_ns, end_ns, done, rate;
	sigset_t asked; /* SIGUSR1, which interrupts nothing */
	json_t *answers, *words;
	struct raw_session s[FLOOD_SESSIONS];
	struct raw_shm m[FLOOD_SESSIONS]; /* without a map: it is over tcp, or has ended */
	struct peer *p[FLOOD_SESSIONS];   /* over verbs; owned */
	int fd[FLOOD_SESSIONS], sockets[FLOOD_SOCKETS];
	bool is_data[FLOOD_SOCKETS];
	size_t n_sessions, n_sockets;
	uint64_t handle[FLOOD_SESSIONS];
	uint32_t key[FLOOD_SESSIONS], generation[FLOOD_SESSIONS];
	uint64_t next_id;
	bool is_full[FLOOD_SESSIONS]; /* over shm: of answers that it does not take */
};

/* ---- flood.c ---- */

/* One more of that name, and a sample of its words. */
void flood_answered(struct flood *f, const char *name, const char *words);
void flood_answered_rpc(struct flood *f, int rc, const struct ros2_err *err);
bool flood_is_over(const struct flood *f);
/* False when it is over; else waits for the next one's turn. */
bool flood_turn(struct flood *f);
/* The calls' port: of the agent, or of the controller's that is flooded. */
const char *flood_port(const struct flood *f);
/* From 127.0.0.@host, or to unix:PATH as a user of its own where we may. Negative errno. */
int flood_dial_from(const char *address, uint8_t host);
int flood_dial(const char *address);

/* ---- flood_data.c: the data port, over tcp and over shm ---- */

/* With a file and a region. */
bool flood_session(struct flood *f, size_t i);
void flood_session_end(struct flood *f, size_t i);
/* By its file and its region; false: it was not taken, which is counted. */
bool flood_request(struct flood *f, size_t i, uint8_t opcode, uint32_t length, uint32_t key);

void flood_hellos(struct flood *f);
void flood_tiny(struct flood *f);
void flood_violations(struct flood *f);
void flood_unread(struct flood *f);
void flood_unpaced(struct flood *f);
void flood_halfopen(struct flood *f);
void flood_wakes(struct flood *f);

/* ---- flood_verbs.c: with transport=verbs ---- */

uint64_t flood_verbs_address(const struct flood *f, size_t i);
/* Connected and proved; then the window over its region. */
bool flood_verbs_join(struct flood *f, size_t i);
bool flood_verbs_window(struct flood *f, size_t i);
void flood_verbs_leave(struct flood *f, size_t i);
bool flood_verbs_put(struct flood *f, size_t i, struct wire_header *h);
/* As raw_receive; of a payload only the words of a NAK. */
int flood_verbs_take(struct flood *f, size_t i, struct wire_header *h, uint8_t *payload);

void flood_verbs_requests(struct flood *f);
void flood_verbs_hellos(struct flood *f);
void flood_verbs_unread(struct flood *f);
#endif

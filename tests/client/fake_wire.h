/* SPDX-License-Identifier: Apache-2.0 */
/* The wire half of the fake agent: one blocking thread per data connection. */
#ifndef ROS2_TESTS_FAKE_WIRE_H
#define ROS2_TESTS_FAKE_WIRE_H

#include "tests/client/fake_agent.h"

#define FAKE_WRITES 64

struct fake_conn {
	struct fake_agent *agent;
	struct fake_thread *thread;
	int fd, session;
	struct wire_header held; /* the last request that was not answered */
	struct fake_shm {
		bool wanted;  /* it came over the socket of this machine */
		uint8_t *mem; /* owned; NULL until the program has mapped it */
		size_t len;
		int memfd;
		uint32_t written, taken;
	} shm;
	int left; /* bytes it may still send; -1 = all */
	struct {
		uint64_t id;
		uint64_t file, offset;
		uint32_t left, length;
		bool expire;
	} writes[FAKE_WRITES]; /* waiting for their PULLs to be answered; id 0 = free */
};
/* fake_shm.c: after WELCOME: gives the memory, waits for MAPPED. */
int fake_shm_share(struct fake_conn *c);
void fake_shm_end(struct fake_conn *c);
int fake_shm_send(struct fake_conn *c, const struct wire_header *h, const void *payload);
/* The next message, or -1 when the program has hung up. */
int fake_shm_recv(struct fake_conn *c, struct wire_header *h);
/* Where the request's payload is, if its lease allows that; else NULL, and a violation. */
uint8_t *fake_shm_payload(struct fake_conn *c, const struct wire_header *q, uint32_t access);
/* What an engine has begun ends after its connection. */
void fake_shm_late(struct fake_conn *c);
/* An open file with a byte that wakes: returns when that was taken, or refused. */
void fake_shm_file(struct fake_conn *c);
int fake_shm_evil(struct fake_conn *c, const struct wire_header *q, enum evil evil);
void *fake_wire_thread(void *arg); /* a struct fake_conn, which it frees */
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's end of a connection to an agent, by librdmacm and raw verbs: says and posts what it
 * likes. Neither libros2 nor the fabric is behind it.
 */
#ifndef ROS2_TESTS_ATTACK_VERBS_PEER_H
#define ROS2_TESTS_ATTACK_VERBS_PEER_H

#include "common/status.h"
#include "dataplane/wire.h"
#include <stdbool.h>
#include <stdint.h>

#define PEER_TARGET (1u << 20) /* bytes that it registers with the agent */
#define PEER_SENDS  64u

/* What OpenSession gave, and what was made in the session. */
struct peer_session {
	uint8_t uid[16], secret[WIRE_SECRET_LEN];
	char data[80]; /* HOST:PORT */
	uint64_t handle;
	uint32_t key, generation;
	uint32_t ttl_ms; /* of the key's lease */
};

struct peer;

/* A queue pair on the device that leads to @data; not connected. 0 or -errno. */
int peer_open(struct peer **ret, const char *data);
/* The same with @recvs receives: fewer than 64 are not posted again. */
int peer_open_with(struct peer **ret, const char *data, uint32_t recvs);
void peer_close(struct peer *p); /* NULL is accepted */
/* Its queue pair is no more, and the other end is not told, as when a host loses its power. What is
 * left of @p hears the end of the connection (peer_is_ended), and can be closed. */
void peer_vanish(struct peer *p);
/* The proof for this end's queue pair. */
void peer_prove(const struct peer *p, const struct peer_session *s, struct wire_verbs_ask *ret);
/* 0: the agent took the connection. -ECONNREFUSED: *ret_refusal says what it answered, or -errno.
 */
int peer_connect(struct peer *p, const void *request, uint32_t len, enum ros2_status *ret_refusal);
/* HELLO without waiting for what comes of it. */
int peer_say_hello(struct peer *p, const struct peer_session *s);
/* HELLO; 0 when WELCOME came. -ECONNRESET: the connection ended instead. */
int peer_hello(struct peer *p, const struct peer_session *s);
/* All of it: the agent has taken the session over this end. */
int peer_join(struct peer *p, const struct peer_session *s);
/* Each message has a place of its own until its end has come: with PEER_SENDS under way it waits
 * for one. */
int peer_send(struct peer *p, struct wire_header *h, const void *payload);
/* The next message. -ECONNRESET, -ETIMEDOUT. */
int peer_receive(struct peer *p, struct wire_header *h, int timeout_ms);
/* What the NAK said that was received last. */
const char *peer_words(const struct peer *p);
/* One that is here already, without a system call. -EAGAIN, -ECONNRESET. */
int peer_look(struct peer *p, struct wire_header *h);
/* RDMA of no bytes to the agent's queue pair, and its end: 0 when it was carried out. */
int peer_empty(struct peer *p, bool write);
/* A message of @len bytes that mean nothing. */
int peer_noise(struct peer *p, uint32_t len);
/* Has the other end ended the connection? */
bool peer_is_ended(struct peer *p, int timeout_ms);
/* The number of this end's registration at the device; soft-RoCE counts those of everybody up. */
uint32_t peer_registration(const struct peer *p);
uint8_t *peer_target(struct peer *p);
/* A window of type 2B over the target, for reading and writing. */
int peer_bind(struct peer *p, uint32_t *ret_key);
/* A message that also invalidates @key at the agent's device; whether it was taken there. */
int peer_invalidate(struct peer *p, uint32_t key);
/* As an eavesdropper knows them: the agent's queue pair, the number of the next packet to it, the
 * address of both (this machine's, network order). */
void peer_numbers(struct peer *p, uint32_t *ret_qpn, uint32_t *ret_psn, uint32_t *ret_ip);
#endif

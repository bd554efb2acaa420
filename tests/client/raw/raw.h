/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ros2-raw: a tenant that does not keep the rules. It makes any call of tenant.proto with any
 * values and speaks wire.h by hand, to show what the agent answers. It shares no code with libros2,
 * lands in build/PRESET/bin and is never installed. One JSON object per line on stdout.
 */
#ifndef ROS2_TESTS_RAW_H
#define ROS2_TESTS_RAW_H

#include "common/err.h"
#include "dataplane/wire.h"
#include "proto/rpc/rpc.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct raw {
	struct rpc_channel *channel; /* owned */
	uint32_t timeout_ms;
	bool over_shm;   /* its sessions are; else over tcp */
	bool over_verbs; /* likewise: where somebody brings the other end (tests/attack/verbs_peer)
	                  */
	uint64_t shm_bytes; /* that they ask for; 0: what the agent gives by itself */
};

/* Values on the command line: name=value ... */
struct raw_args {
	char **v;
	int n;
};
const char *raw_arg(const struct raw_args *a, const char *name, const char *fallback);
uint64_t raw_arg_u64(const struct raw_args *a, const char *name, uint64_t fallback);
void raw_print(json_t *line); /* takes @line */

/* raw_rpc.c */
int raw_connect(struct raw *r, const struct raw_args *a, struct ros2_err *err);
/* "Mount" or "Tenant.Mount", with fields as name=value (bytes in hex). The reply or the named error
 * as JSON; *ret_status tells which. NULL for an unknown method or field (words in @err). */
json_t *raw_call(struct raw *r, const char *method, const struct raw_args *fields,
                 enum ros2_status *ret_status, struct ros2_err *err);

/* raw_wire.c */
struct raw_session {
	uint8_t uid[16], secret[32];
	char data_address[256];
};
/* OpenSession, over what @r says. */
int raw_session_open(struct raw *r, struct raw_session *ret, struct ros2_err *err);
void raw_session_close(struct raw *r, const struct raw_session *s);
/* @address: host:port, or unix:PATH. The descriptor or negative errno. */
int raw_dial(const char *address, struct ros2_err *err);
/* All of a HELLO that is right. */
void raw_prove(const struct raw_session *s, const uint8_t *agent_nonce, struct wire_hello *h);
/* CHALLENGE, HELLO, then WELCOME (*ret_status OK) or what came instead. */
int raw_hello(int fd, const struct raw_session *s, enum ros2_status *ret_status, char words[257]);
void raw_seal(struct wire_header *h);
int raw_send(int fd, const struct wire_header *h, const void *payload);
/* -ETIMEDOUT, -ECONNRESET (closed), -EPROTO. @payload has room for WIRE_IO_MAX. */
int raw_receive(int fd, struct wire_header *h, uint8_t *payload, int timeout_ms);
const char *raw_opcode(uint8_t opcode);
int raw_opcode_of(const char *name); /* 0: none */
json_t *raw_message_json(const struct wire_header *h, const uint8_t *payload);

/* raw_shm.c: what comes behind WELCOME over shm. Believes what the agent says of its memory. */
struct raw_shm {
	uint8_t *map; /* owned */
	uint64_t bytes;
	uint32_t written, taken;
};
/* MEMORY, and all of it mapped. */
int raw_shm_memory(int fd, struct raw_shm *ret);
int raw_shm_mapped(int fd);
/* An entry of the ring to the agent, sealed by the caller; false: there is no room for it. */
bool raw_shm_put(struct raw_shm *m, int fd, const struct wire_header *h);
/* The next of the ring to the tenant, as raw_receive; @payload has room for WIRE_WORDS_MAX. */
int raw_shm_take(struct raw_shm *m, int fd, struct wire_header *h, uint8_t *payload,
                 int timeout_ms);
/* Entries that are there and were not taken. */
uint32_t raw_shm_untaken(const struct raw_shm *m);
void raw_shm_free(struct raw_shm *m);
#endif

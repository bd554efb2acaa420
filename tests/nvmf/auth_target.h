/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target's side of DH-HMAC-CHAP (NVMe Base 2.0, 8.13), for tests: it computes with OpenSSL by
 * itself and shares nothing with dataplane/nvmf. Whoever carries the messages hands over what came
 * by Authentication Send and answers Authentication Receive with what reply gives; to lie, change
 * bytes in between. One thread.
 */
#ifndef ROS2_TESTS_NVMF_AUTH_TARGET_H
#define ROS2_TESTS_NVMF_AUTH_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_TARGET_MESSAGE_MAX 4096

struct auth_target;

/* @host_secret, @own_secret: "DHHC-1:hh:...:"; @own_secret NULL = a host that asks for a proof does
 * not get one. @hash: 1..3, @group: 0..5, as Base 8.13.5 numbers them; what is chosen, if the host
 * offers it. Ends the process on a malformed secret. */
struct auth_target *auth_target_new(const char *host_secret, const char *own_secret,
                                    const char *hostnqn, const char *subnqn, uint8_t hash,
                                    uint8_t group);
void auth_target_free(struct auth_target *t);
/* What the host sent. A message that cannot be so makes the next reply a failure1. */
void auth_target_take(struct auth_target *t, const void *msg, size_t len);
/* What the host receives; returns its length, 0 where nothing is to be said. */
size_t auth_target_reply(struct auth_target *t, uint8_t buf[AUTH_TARGET_MESSAGE_MAX]);

enum auth_target_state {
	AUTH_TARGET_GOING,
	AUTH_TARGET_GOOD, /* the host has proved itself, and has what it asked for */
	AUTH_TARGET_BAD,  /* end the queue */
};
enum auth_target_state auth_target_state(const struct auth_target *t);
/* The explanation in a failure1 that was made, or in a failure2 that came; 0 for none. */
uint8_t auth_target_why(const struct auth_target *t);
#endif

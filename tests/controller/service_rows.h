/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scripted agents that have sessions and leases, and say so when they are asked.
 */
#ifndef ROS2_TESTS_CONTROLLER_SERVICE_ROWS_H
#define ROS2_TESTS_CONTROLLER_SERVICE_ROWS_H

#include "tests/controller/service_fixture.h"
#include <stdatomic.h>

#define ROWS_MAX      1024
#define ROWS_PEER_MAX 104000

/* What an agent has: session i has uid {i + 1, be16} and lease i has id i + 1. */
struct rows {
	_Atomic size_t n;
	_Atomic bool gone[ROWS_MAX];
	_Atomic bool lies;         /* answers from the beginning, and more than it was asked for */
	_Atomic bool others;       /* answers with sessions that it was not asked for, thousands */
	_Atomic bool silent;       /* does not answer; the question can be taken (fake_next) */
	_Atomic size_t peer_bytes; /* of each row */
	_Atomic unsigned asked;
};

void rows_session_uid(size_t i, uint8_t uid[16]);
/* An engine, agents dpu-0 and dpu-1, and tenant alpha at both. */
void rows_documents(struct sf *f);
/* Enrols @a, connects it and lets it answer from @rows, which must outlive it. */
void rows_up(struct sf *f, struct fake *a, const char *name, struct rows *rows);
/* Says how many it has, as beats do: the next question counts on it. */
void rows_have(struct fake *a, struct rows *rows, size_t n);
#endif

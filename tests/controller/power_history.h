/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed history of transactions (each of the kinds the controller writes), and what the tables
 * hold after each of them, as one hash. */
#ifndef ROS2_TESTS_CONTROLLER_POWER_HISTORY_H
#define ROS2_TESTS_CONTROLLER_POWER_HISTORY_H

#include "tests/controller/store_fixture.h"

#define HISTORY_LEN 37

/* The @i-th transaction: the same rows and drafts each time. */
struct store_txn *history_txn(unsigned i);
/* Bit 1 << kind of each mutation that was in one. */
uint32_t history_kinds(void);
/* Of state and audit, without times, epochs and hashes that differ from run to run. False when the
 * tables cannot be read. Its sequence number of the log goes to *ret_seq. */
bool history_digest(const struct fixture *f, uint8_t out[SHA256_LEN], uint64_t *ret_seq);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of proto/audit share. */
#ifndef ROS2_PROTO_AUDIT_AUDIT_PRIV_H
#define ROS2_PROTO_AUDIT_AUDIT_PRIV_H

#include "proto/audit/audit.h"

/* SHA-256(prev || leaf); @out may be @prev. */
void audit_chain_next(const uint8_t prev[SHA256_LEN], const uint8_t leaf[SHA256_LEN],
                      uint8_t out[SHA256_LEN]);
/* audit_replay, which also gives the leaf of the record it has hashed. */
int audit_replay_leaf(struct audit_head *head, const void *bytes, size_t len,
                      const uint8_t chain[SHA256_LEN], uint8_t ret_leaf[SHA256_LEN],
                      struct ros2_err *err);
#endif

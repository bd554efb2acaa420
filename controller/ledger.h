/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives audit drafts their place in the log: sequence, time, epoch, tenant history, chain and tree
 * (proto/audit). Store thread only. A batch is bracketed by ledger_mark and ledger_settle or
 * ledger_undo, so the heads never run ahead of what is committed.
 */
#ifndef ROS2_CONTROLLER_LEDGER_H
#define ROS2_CONTROLLER_LEDGER_H

#include "controller/store_priv.h"
#include "proto/audit/audit.h"

/* The saved end of the log: seq, chain, tree size, then one hash for each set bit of the size, low
 * to high. */
#define LEDGER_HEAD_FIXED (8 + SHA256_LEN + 8)
#define LEDGER_HEAD_MAX   (LEDGER_HEAD_FIXED + 64 * SHA256_LEN)
/* The length; the same head gives the same bytes. */
size_t ledger_head_pack(const struct audit_head *h, uint8_t out[LEDGER_HEAD_MAX]);
int ledger_head_unpack(const uint8_t *p, size_t len, struct audit_head *h); /* -EBADMSG */

struct ledger;

/* Loads the heads; -EBADMSG when the last record and the saved heads do not belong together. */
int ledger_open(const struct store_ops *ops, void *backend, const struct store_epoch *epoch,
                struct ledger **ret, struct ros2_err *err);
void ledger_free(struct ledger *l); /* takes NULL */

/* In a transaction: the log in the database ends where it did at the last commit. -EIO: somebody
 * else has written to the database, or written an older one over it, and what is known here is not
 * what a start would find. */
int ledger_check(struct ledger *l, struct ros2_err *err);
void ledger_mark(struct ledger *l);
/* Appends @d and hands the row to the backend. Fills NULL strings of @d with "". */
int ledger_append(struct ledger *l, struct store_draft *d, struct ros2_err *err);
/* Writes the heads that moved since the mark, into the same commit. */
int ledger_save(struct ledger *l, struct ros2_err *err);
void ledger_settle(struct ledger *l); /* the commit is durable */
void ledger_undo(struct ledger *l);   /* it was rolled back */

uint64_t ledger_seq(const struct ledger *l);
/* Signs the present size and hands the note to the backend (in a commit). */
int ledger_checkpoint(struct ledger *l, const char *origin, const struct crypto_sign_key *key,
                      struct ros2_err *err);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Between revoke.c and revoke_*.c. Loop thread. */
#ifndef ROS2_CONTROLLER_REVOKE_PRIV_H
#define ROS2_CONTROLLER_REVOKE_PRIV_H

#include "controller/ctl.h"

/* @a owes a receipt, at most until then (boottime); not when it is not enrolled. -ENOMEM. */
int revoke_owe(struct ctl_revocation *r, struct ctl_agent *a, uint64_t at_most_ns);
/* Found at start, without a row: it is in force, and recorded as soon as the store runs. @slot: of
 * the journal, or -1. Takes @r. -ENOMEM. */
int revoke_adopt(struct ctl *c, struct ctl_revocation *r, const struct ctl_revoke *v, int slot);
void revoke_free(struct ctl *c, struct ctl_revocation *r);
/* Nothing is owed for it any more, to nobody. */
bool revoke_is_over(const struct ctl_revocation *r);
/* revoke_send.c: what @agent owes for it; NULL. */
struct ctl_owed *revoke_owed_by(struct ctl_revocation *r, const struct ros2_uid *agent);
/* It is connected. */
void revoke_tell(struct ctl_owed *o, const struct ctl_agent *a, const struct ctl_revocation *r);
/* What agents owe for earlier ones of the same target, and were never told, they owe for @r only.
 * In its transaction; and when that is durable. */
void revoke_supersede_rows(struct ctl *c, struct store_txn *t, struct store_draft *d,
                           const struct ctl_revocation *r);
void revoke_supersede(struct ctl *c, const struct ctl_revocation *r);
/* revoke_doubt.c: what it takes away, for a journal that is full. */
void revoke_set_targets(struct store_txn *t, const struct ctl_revocation *r);
/* The length. */
size_t revoke_note_pack(const struct ctl_revocation *r, const struct ctl_caller *who,
                        uint8_t out[STORE_NOTE_MAX]);
/* Not yet in the table of revocations. -ENOMEM; -EBADMSG: it cannot be read. */
int revoke_note_unpack(struct ctl *c, const void *note, size_t len, struct ctl_revocation **ret);
#endif

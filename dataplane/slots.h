/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots of one reactor: one mapping, cut into three sizes, registered with every engine as one
 * buffer. Only the reactor's thread touches it (others may count); nothing is allocated after
 * slots_new. A slot is handed out only within the caps of its user (a session, a tenant), so that
 * no session can empty the pool.
 */
#ifndef ROS2_DATAPLANE_SLOTS_H
#define ROS2_DATAPLANE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define SLOT_CLASSES    3
#define SLOT_NONE       UINT32_MAX
#define SLOTS_MIN_BYTES (4u * 1024 * 1024)

/* How many of each size one user holds; zeroed to begin. */
struct slot_use {
	uint32_t n[SLOT_CLASSES];
};

struct slot {
	uint8_t *mem; /* NULL = none */
	uint32_t size_class, index;
};

struct slots;
/* @bytes is rounded down to MiB and at least SLOTS_MIN_BYTES. 0, -ENOMEM. */
int slots_new(uint32_t bytes, struct slots **ret);
void slots_free(struct slots *s);
struct iovec slots_memory(const struct slots *s);
/* A slot of at least @len bytes (1..1 MiB). False: none left, or over a cap. */
bool slots_may_take(const struct slots *s, uint32_t len, const struct slot_use *session,
                    const struct slot_use *tenant);
/* None of this size is left for anybody. */
bool slots_used_up(const struct slots *s, uint32_t len);
bool slots_take(struct slots *s, uint32_t len, struct slot_use *session, struct slot_use *tenant,
                struct slot *ret);
void slots_give(struct slots *s, struct slot *slot, struct slot_use *session,
                struct slot_use *tenant);
/* Any thread: how many are handed out, of how many. */
uint32_t slots_taken(const struct slots *s);
uint32_t slots_total(const struct slots *s);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of slots of one reactor, in three sizes. Its own memory is one mapping, registered with
 * every engine as one buffer, for all tenants; or it hands out memory that a transport made for one
 * tenant. Only the reactor's thread touches it (others may count); nothing is allocated after it
 * was made. A slot is handed out only within the caps of its user (a session, a tenant), so that no
 * session can empty the pool.
 */
#ifndef ROS2_DATAPLANE_SLOTS_H
#define ROS2_DATAPLANE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define SLOT_CLASSES    3
#define SLOT_NONE       UINT32_MAX
#define SLOT_BORROWED   (UINT32_MAX - 1) /* of slot.size_class: memory of no pool's */
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
/* The mapping; nothing for a pool of others' memory. */
struct iovec slots_memory(const struct slots *s);

/* A pool of one tenant's own slots: memory of exactly the sizes, in any order, borrowed until
 * slots_free. The index of a slot is its place among those of its size in @pieces. A session gets
 * at most half of a size, but always one. 0, -ENOMEM. */
int slots_new_over(const struct slot *pieces, uint32_t n, struct slots **ret);
uint32_t slots_class_bytes(uint32_t size_class);
/* What engine_io.buf_index is for its slots. */
int slots_buf_index(const struct slots *s);
/* A slot of at least @len bytes (1..1 MiB). False: none left, or over a cap. */
bool slots_may_take(const struct slots *s, uint32_t len, const struct slot_use *session,
                    const struct slot_use *tenant);
/* May one more of a tenant lie with a request whose storage is away? All of those together keep at
 * most half of a size from the others, but for the first few of each tenant. */
bool slots_may_wait(const struct slots *s, uint32_t len, const struct slot_use *tenant);
/* What each of so many storages finds free whatever the others hold: its part of half of a size,
 * without what is kept for first ones; at least one. Of others' memory: 0. */
uint32_t slots_storage_share(const struct slots *s, uint32_t len, uint32_t storages);
/* How many of a size are held of @use. */
uint32_t slots_used(const struct slot_use *use, uint32_t len);
/* May requests for one storage, of all tenants, take one more, where there is other storage, too?
 * But for the first few of each tenant they hold at most half of a size, and beyond their own share
 * nothing of the @due that is missing to the shares of the others: it may be that nobody knows yet
 * that it does not answer, and that it is not the only one. Of others' memory: always. */
bool slots_may_crowd(const struct slots *s, uint32_t len, const struct slot_use *tenant,
                     const struct slot_use *storage, uint32_t share, uint32_t due);
/* A request of @len bytes did not get one: the pool is starved, if none of that size is left but
 * what is kept for first ones, until slots_unstarve. */
void slots_missed(struct slots *s, uint32_t len);
bool slots_starved(const struct slots *s);
void slots_unstarve(struct slots *s);
bool slots_take(struct slots *s, uint32_t len, struct slot_use *session, struct slot_use *tenant,
                struct slot *ret);
void slots_give(struct slots *s, struct slot *slot, struct slot_use *session,
                struct slot_use *tenant);
/* Any thread: how many are handed out, of how many. */
uint32_t slots_taken(const struct slots *s);
uint32_t slots_total(const struct slots *s);
#endif

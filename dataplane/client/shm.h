/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data connection through memory shared with an agent on this machine (docs/decisions/0032), and
 * what of that memory the program uses. Everything here is of the session's thread.
 *
 * The memory of one connection is an arena. What ros2_buf_alloc finds room for there is shared: the
 * agent reads and writes it where it lies. Everything else is not: other memory of the program's,
 * and after a reconnect what lies in the arena before. It has no lease, and its payload is copied
 * through a piece of the stage, a region of the library's own that each arena begins with.
 */
#ifndef ROS2_CLIENT_SHM_H
#define ROS2_CLIENT_SHM_H

#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link_ops;
struct request;
struct ros2_region;
struct ros2_session;
struct shm_arena;

/* shm_link.c */
extern const struct link_ops shm_link_ops;
/* No region is shared afterwards. The program's pointers stay good. */
void shm_link_cut(struct ros2_session *s);
/* With the session; the regions keep their memory. */
void shm_link_free(struct ros2_session *s);

/* shm_memory.c */
void shm_arena_unref(struct shm_arena *a);
/* @r lies in the memory of this connection: it has a lease, and this base. */
bool shm_region_is_shared(const struct ros2_session *s, const struct ros2_region *r);
uint64_t shm_region_base(const struct ros2_region *r);
/* Gives @r @len bytes of the arena at an offset that is a multiple of @align, or does nothing:
 * false when there is no room. */
bool shm_region_place(struct ros2_session *s, struct ros2_region *r, size_t len, size_t align);
/* The region whose key @r is sent with: its own when that is shared, else the stage, or NULL and
 * words when the stage is too small for it. */
struct ros2_region *shm_region_for(struct ros2_session *s, const struct request *r,
                                   struct ros2_err *err);
/* Not connected: nothing of the library's own keeps the memory of before, which the agent would
 * count beside that of the next session. Takes a session that is not over shm. */
void shm_stage_drop(struct ros2_session *s);
/* The longest request over memory that is not shared. */
uint32_t shm_stage_len(const struct ros2_session *s);

/* A request over memory that is not shared gets a piece of the stage, with what a WRITE carries.
 * False: none is free until one is put back; then s->stage_is_full. */
bool shm_piece_take(struct ros2_session *s, struct request *r);
/* The first @len bytes of what a READ has brought to where the program wants them. */
void shm_piece_read(struct ros2_session *s, const struct request *r, uint32_t len);
/* @r was with an agent whose connection is gone, unanswered: what its engine has begun may still
 * read or write the memory. The whole pages of @r's buffer become memory of this program only, with
 * the bytes they have; a page that other bytes share stays. */
void shm_request_lost(struct ros2_session *s, const struct request *r);
void shm_piece_put(struct ros2_session *s, struct request *r);
/* The address that is sent for @r's payload: an offset in the memory; 0 without any. */
uint64_t shm_address_of(const struct ros2_session *s, const struct request *r);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts on disk until the controller has made them part of its log. Keyed {incarnation,
 * seq}, seq from 1 without gaps in each start of the process; written in segments; a segment is
 * deleted when all of it is acknowledged. Bounded: a quota, of which an eighth is kept for records
 * of operations that shrink rights, and a share per tenant: at most a quarter of the rest, of which
 * another quarter only takes each tenant's first SPOOL_SURE bytes of widening records. So at the
 * default quota 1024 tenants are sure of theirs whatever the others write. Fair: drafts that wait
 * for the disk get their seq in turn over tenants, so nobody's flood delays a neighbour's record.
 * Loop thread; disk work goes to a writer.
 */
#ifndef ROS2_AGENT_SPOOL_H
#define ROS2_AGENT_SPOOL_H

#include "agent/writer.h"
#include "common/err.h"
#include "common/ids.h"

#define SPOOL_RECORD_MAX    16384u
#define SPOOL_BATCH_MAX     512u
#define SPOOL_SEGMENT_BYTES (1024u * 1024u)
#define SPOOL_QUOTA_DEFAULT (64u * 1024u * 1024u)
/* Segments of which nothing can be read: the newest are kept for people, outside of the quota. */
#define SPOOL_BAD_KEPT 4u
/* What a tenant may have in the spool however full the others made it. */
#define SPOOL_SURE 14336u

enum spool_class {
	SPOOL_WIDEN = 1, /* the operation waits until the record is durable, or fails */
	SPOOL_SHRINK,    /* may use the reserve; never waits */
	SPOOL_DENIAL,    /* never waits, never forces an fsync */
};
const char *spool_class_to_str(enum spool_class c);

struct spool;

struct spool_opts {
	const char *dir; /* exists or is made, 0700 */
	struct ros2_uid incarnation;
	uint64_t quota_bytes; /* 0 = SPOOL_QUOTA_DEFAULT */
	struct loop *loop;
	struct writer *writer; /* borrowed: freed before the spool */
	/* A failed fsync: the process must end. */
	void (*on_fatal)(void *arg, const struct ros2_err *err);
	/* A flush ended: 0, or negative errno with words. May be NULL. */
	void (*on_wrote)(void *arg, int r, const struct ros2_err *err);
	/* There is something to send. */
	void (*on_ready)(void *arg);
	void *arg;
};
struct spool_opened {
	uint64_t records, bytes; /* of earlier starts of the process, to be sent */
	uint32_t damaged;        /* segments of which the end could not be read */
	uint32_t removed;        /* of those of which nothing could be, and which are kept aside */
};
int spool_open(const struct spool_opts *o, struct spool **ret, struct spool_opened *info,
               struct ros2_err *err);
/* No more flushes. Who waits for a record is told now that it is not durable, also of one that is
 * being written: what they need to undo it may be gone when the disk has answered. Before its
 * writer is freed. */
void spool_shut(struct spool *s);
/* After its writer was freed and the loop has run the last callbacks. */
void spool_free(struct spool *s);

/* NULL @err: durable. Otherwise it is not and the operation must be undone. */
typedef void (*spool_done_fn)(void *arg, const struct ros2_err *err);
/* Copies the record. @fn only for SPOOL_WIDEN: runs once, later, when 0 was returned.
 * BUSY: the tenant's share is full; NOT_DURABLE: the spool is full. */
int spool_put(struct spool *s, enum spool_class c, const struct ros2_uid *tenant, const void *p,
              size_t len, spool_done_fn fn, void *arg, struct ros2_err *err);
/* Would a SPOOL_WIDEN record of this tenant be taken now? Errors as spool_put. */
int spool_room(const struct spool *s, const struct ros2_uid *tenant, struct ros2_err *err);

struct spool_view {
	uint64_t seq;
	const uint8_t *p; /* borrowed: until the next call */
	uint32_t len;
};
struct spool_batch {
	struct ros2_uid incarnation;
	uint32_t n;
	struct spool_view v[SPOOL_BATCH_MAX];
};
/* The next drafts that were not sent since the last rewind, in order, of one incarnation; 0 or the
 * number in @ret. */
uint32_t spool_next(struct spool *s, uint32_t max_records, uint32_t max_bytes,
                    struct spool_batch *ret);
/* A new connection: everything not acknowledged is to be sent again. */
void spool_rewind(struct spool *s);
/* Durable at the controller up to @seq of @incarnation. Never moves back. */
void spool_ack(struct spool *s, const struct ros2_uid *incarnation, uint64_t seq);

uint64_t spool_bytes(const struct spool *s);   /* waiting and on disk */
uint64_t spool_unacked(const struct spool *s); /* records */
uint64_t spool_unsent(const struct spool *s);
/* Records of earlier starts whose files somebody took away, since this was asked last. No file is
 * left that would say so at the next start. */
uint64_t spool_take_gone(struct spool *s);
/* A segment of an earlier start with *ret_n records (at least) that cannot be read and that nobody
 * else will miss: its name, borrowed until it is told; NULL: none. Its file stays, and each start
 * finds it again, until it was told: call that when the caller's own record of it is durable. */
const char *spool_hole(const struct spool *s, uint64_t *ret_n);
void spool_hole_told(struct spool *s);
uint64_t spool_next_seq(const struct spool *s);
bool spool_is_idle(const struct spool *s); /* nothing waits for the disk */
#endif

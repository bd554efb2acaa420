/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The revocation log: tombstones, appended and fsynced before a receipt says `durable`. What a
 * tombstone covers never comes back: not from the snapshot, not from an old message. Rewritten only
 * to leave out what cannot come back any more (docs/decisions/0013-revocation-log.md). A log that
 * is damaged anywhere but in a torn tail covers everything stored locally: the agent then starts
 * empty and serves only what the controller sends anew. Index: loop thread. revlog_write,
 * revlog_reserve: one other thread (the writer).
 */
#ifndef ROS2_AGENT_REVOCATIONS_H
#define ROS2_AGENT_REVOCATIONS_H

#include "agent/object.h"

#define REVLOG_REASON_MAX 255
#define REVLOG_FRAME_MAX  512
#define REVLOG_MAX        (1024u * 1024u * 1024u)
#define REVLOG_MARK       ((enum obj_kind)0) /* no tombstone: only what snapshot_sequence says */
/* Reserved behind the end of the log after each write: at least 64 entries of the longest words. */
#define REVLOG_RESERVE_MIN (32u * 1024u)
/* Damaged logs that are kept for people, the newest; each is as long as the log was. */
#define REVLOG_DAMAGED_KEPT 4u

struct tombstone {
	struct ros2_uid revocation, uid;
	enum obj_kind kind; /* TENANT, GRANT, SESSION, AGENT */
	uint64_t version;   /* TENANT: objects of this tenant up to this version are dead */
	uint64_t counter;   /* AGENT: grants sealed in this epoch up to */
	uint64_t batch;     /*        this batch are dead */
	uint64_t received_unix_ns;
	struct clock_stamp received; /* zero boot id: an entry of format 1, which does not say */
	uint64_t snapshot_sequence;  /* durable when this was written: an older one was put back */
	char reason[REVLOG_REASON_MAX + 1];
};

struct revlog;

struct revlog_opened {
	bool damaged;      /* corruption: everything stored locally is to be refused */
	bool torn;         /* an unfinished append was cut off: no receipt was sent for it */
	char words[320];   /* for the log when either is set */
	char saved_as[64]; /* damaged: where the old log was kept, beside it */
	unsigned removed;  /* damaged: of those kept before */
};
/* Opens or makes @path. @before_replace (may be NULL) runs before a damaged log is replaced by a
 * clean one: it must make local state forget what the log might have covered, durably. */
int revlog_open(const char *path, int (*before_replace)(void *arg, struct ros2_err *err), void *arg,
                struct revlog **ret, struct revlog_opened *info, struct ros2_err *err);
void revlog_free(struct revlog *l);

/* Into the index; from here on the tombstone is obeyed. -ENOMEM. */
int revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
/* Writes and fsyncs one frame. On failure the file ends where it ended before: -ENOSPC and the like
 * may be tried again; -EIO after a failed fsync or truncation may not: the process ends. */
int revlog_write(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
/* Once a second: 0 when REVLOG_RESERVE_MIN is reserved, now or already; otherwise what fallocate
 * says. -EOPNOTSUPP: this file system never will. */
int revlog_reserve(struct revlog *l, struct ros2_err *err);

/* ---- leaving out; the rule is in the .c ---- */
/* Loop: worth doing when the log has grown past @min_bytes (0 = default) and much of it says
 * nothing any more. 1: *ret (malloc'd) is to replace it; 0: not now; -ENOMEM. What is left out is
 * forgotten by the index as well. */
int revlog_compact(struct revlog *l, const struct clock_stamp *now, uint64_t min_bytes, void **ret,
                   size_t *ret_len);
/* Writer: everything added before revlog_compact is in it. On -ENOSPC and the like the old log goes
 * on; -EIO: the process ends. */
int revlog_replace(struct revlog *l, const void *p, size_t len, struct ros2_err *err);
/* Newest snapshot that an entry knows to be durable. */
uint64_t revlog_snapshot_sequence(const struct revlog *l);

bool revlog_has(const struct revlog *l, const struct ros2_uid *revocation);
size_t revlog_count(const struct revlog *l);
bool revlog_covers_tenant(const struct revlog *l, const struct ros2_uid *tenant, uint64_t version);
bool revlog_covers_grant(const struct revlog *l, const struct agent_object *grant);

/* For tests and the fuzz target: frames of a log in memory. Calls @fn per tombstone; false when the
 * bytes hold corruption (*ret_good = bytes before it, or before a torn tail). */
bool revlog_parse(const void *p, size_t len, void (*fn)(void *arg, const struct tombstone *t),
                  void *arg, size_t *ret_good);
size_t revlog_encode(const struct tombstone *t, uint8_t out[REVLOG_FRAME_MAX]);
#endif

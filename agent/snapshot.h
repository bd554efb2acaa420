/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's snapshot: every sealed object it holds, so that a restarted process serves while the
 * controller is away: a base that is written whole, then batches of what changed, appended. The
 * layout is told in docs/decisions/0012-snapshot-batches.md. Reading believes nothing but seals:
 * the file can lose objects, it cannot invent or change one; and what was removed stays removed.
 */
#ifndef ROS2_AGENT_SNAPSHOT_H
#define ROS2_AGENT_SNAPSHOT_H

#include "agent/object.h"

#define SNAPSHOT_MAGIC      "ROS2SNAP"
#define SNAPSHOT_FORMAT     2u
#define SNAPSHOT_HEADER_LEN 112u                   /* of format 1: 96 */
#define SNAPSHOT_BATCH_LEN  80u                    /* header of a batch */
#define SNAPSHOT_MAX        (256u * 1024u * 1024u) /* of a base, and of the batches behind it */

struct snapshot_header {
	struct ros2_uid agent_uid;
	struct agent_epoch
		epoch;     /* the highest seen; durable before anything under it is acted on */
	uint64_t sequence; /* grows with each write */
	uint64_t written_unix_ns;
	uint64_t last_counter, last_batch; /* newest seal seen; 0 in format 1 */
};

/* Serialises; @objs are borrowed during the call. *ret is malloc'd. -ENOMEM, -EFBIG. */
int snapshot_build(const struct snapshot_header *h, const struct agent_object *const *objs,
                   size_t n, void **ret, size_t *ret_len, struct ros2_err *err);

struct snapshot_gone {
	enum obj_kind kind;
	struct ros2_uid uid;
	uint64_t version; /* the last one that is gone */
};
/* A batch to append: what came and what went since the one before. Errors as snapshot_build. */
int snapshot_build_batch(const struct snapshot_header *h, const struct agent_object *const *objs,
                         size_t n, const struct snapshot_gone *gone, size_t n_gone, void **ret,
                         size_t *ret_len, struct ros2_err *err);

struct snapshot_reader {
	/* Takes the object. In the order of writing. */
	void (*on_object)(void *arg, struct agent_object *o);
	/* It went; may be NULL. */
	void (*on_gone)(void *arg, const struct snapshot_gone *g);
	/* One object was dropped: why, for the log and the audit record. */
	void (*on_drop)(void *arg, const struct ros2_err *why);
	void *arg;
};
struct snapshot_info {
	struct snapshot_header header; /* of the last batch that is whole */
	uint32_t loaded, dropped;
	bool no_memory;  /* for one of the objects, which is not there: an older one may be */
	bool appendable; /* format 2, and it ends with a whole batch */
};
/* @min_sequence: of the newest snapshot known to have been written; an older file was rolled back.
 * Fails without any object: CORRUPT (header damaged or not a snapshot), VERSION, WRONG_DOMAIN
 * (another agent's), STALE_EPOCH (rolled back). CORRUPT also for a batch that does not check and
 * has a later one behind it: a removal may be missing. A last batch that does not check was being
 * written, nobody was told of it: it is left out. Otherwise 0, whatever was dropped. */
int snapshot_parse(const void *p, size_t len, struct agent_trust *trust, uint64_t min_sequence,
                   const struct snapshot_reader *rd, struct snapshot_info *ret,
                   struct ros2_err *err);
/* As snapshot_parse, from a file. -ENOENT when there is none. */
int snapshot_load(const char *path, struct agent_trust *trust, uint64_t min_sequence,
                  const struct snapshot_reader *rd, struct snapshot_info *ret,
                  struct ros2_err *err);
#endif

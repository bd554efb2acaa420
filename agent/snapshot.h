/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's snapshot: every sealed object it holds, so that a restarted process serves while the
 * controller is away. The layout is told in docs/decisions/0009-agent-state.md. Reading believes
 * nothing but seals: the file can lose objects, it cannot invent or change one.
 */
#ifndef ROS2_AGENT_SNAPSHOT_H
#define ROS2_AGENT_SNAPSHOT_H

#include "agent/object.h"

#define SNAPSHOT_MAGIC      "ROS2SNAP"
#define SNAPSHOT_FORMAT     1u
#define SNAPSHOT_HEADER_LEN 96u
#define SNAPSHOT_MAX        (256u * 1024u * 1024u)

struct snapshot_header {
	struct ros2_uid agent_uid;
	struct agent_epoch
		epoch;     /* the highest seen; durable before anything under it is acted on */
	uint64_t sequence; /* grows with each write */
	uint64_t written_unix_ns;
};

/* Serialises; @objs are borrowed during the call. *ret is malloc'd. -ENOMEM, -EFBIG. */
int snapshot_build(const struct snapshot_header *h, const struct agent_object *const *objs,
                   size_t n, void **ret, size_t *ret_len, struct ros2_err *err);

struct snapshot_reader {
	/* Takes the object. */
	void (*on_object)(void *arg, struct agent_object *o);
	/* One object was dropped: why, for the log and the audit record. */
	void (*on_drop)(void *arg, const struct ros2_err *why);
	void *arg;
};
struct snapshot_info {
	struct snapshot_header header;
	uint32_t loaded, dropped;
};
/* @min_sequence: of the newest snapshot known to have been written; an older file was rolled back.
 * Fails without any object: CORRUPT (header damaged or not a snapshot), VERSION, WRONG_DOMAIN
 * (another agent's), STALE_EPOCH (rolled back). Otherwise 0, whatever was dropped. */
int snapshot_parse(const void *p, size_t len, struct agent_trust *trust, uint64_t min_sequence,
                   const struct snapshot_reader *rd, struct snapshot_info *ret,
                   struct ros2_err *err);
/* As snapshot_parse, from a file. -ENOENT when there is none. */
int snapshot_load(const char *path, struct agent_trust *trust, uint64_t min_sequence,
                  const struct snapshot_reader *rd, struct snapshot_info *ret,
                  struct ros2_err *err);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with this agent's disk (and, once, its memory), and with its way to storage that is
 * elsewhere, and that a trust bundle is not in force, as people are told it: in beats (`ros2ctl get
 * agents`), in metrics and, but for the last two, in the answer of grpc.health.v1 for
 * AGENT_HEALTH_DISK. Looked at once a second; a failure counts for HEALTH_HOLD_MS, and everything
 * that failed is tried again sooner than that. Never stored, never recorded. Loop thread; statvfs
 * is the disk writer's.
 */
#ifndef ROS2_AGENT_HEALTH_H
#define ROS2_AGENT_HEALTH_H

#include "agent/agent.h"

#define AGENT_HEALTH_DISK "ros2.agent.disk"
#define HEALTH_HOLD_MS    3000
#define HEALTH_FREE_MIN   (64u * 1024u) /* bytes free below which a disk is as good as full */

enum health_part {
	HEALTH_SNAPSHOT,
	HEALTH_CONTACT,
	HEALTH_REVOCATIONS,
	HEALTH_SPOOL,
	HEALTH_RESERVE, /* for revocations: revlog_reserve */
};
#define HEALTH_PARTS 5
const char *health_part_to_str(enum health_part p);

enum health_kind {
	HEALTH_DISK_FULL,       /* "DiskFull": something found no space, or hardly any is left */
	HEALTH_STATE_READ_ONLY, /* "StateReadOnly": a write failed for another reason */
	HEALTH_RECORDS_PENDING, /* "RecordsPending": revocations carried out, but not on disk */
	HEALTH_SPOOL_DROPPING,  /* "SpoolDropping": audit records find no place */
	HEALTH_FROZEN,          /* "Frozen": no memory to hold a revocation: dp_revoke */
	HEALTH_TARGET_LOST,     /* "TargetLost": an engine does not reach its storage: targets.h */
	HEALTH_RELOAD_FAILED,   /* "ReloadFailed": a bundle is not in force: bundles.h */
};
#define HEALTH_KINDS 7
const char *health_kind_to_str(enum health_kind k);

struct health_condition {
	bool is;
	uint64_t since_unix_ns; /* while it is */
	char reason[256];
};

int health_new(struct agent *a, struct health **ret);
void health_free(struct health *h);
/* The outcome of a write: @r 0 or negative errno with @why. NULL @h is fine. */
void health_wrote(struct health *h, enum health_part p, int r, const struct ros2_err *why);
/* Borrowed: until the loop's next turn. */
const struct health_condition *health_condition(const struct health *h, enum health_kind k);
/* Bytes an ordinary user may still write where the state is; UINT64_MAX before it is known. */
uint64_t health_free_bytes(const struct health *h);
#endif

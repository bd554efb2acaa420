/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One object as the controller sealed it for this agent: a tenant, an engine or a grant. The only
 * way to get a struct agent_object is agent_object_open, which checks the seal; so whatever the
 * rest of the agent holds was signed by the controller, for this agent, byte for byte.
 */
#ifndef ROS2_AGENT_OBJECT_H
#define ROS2_AGENT_OBJECT_H

#include "common/clock.h"
#include "common/crypto.h"
#include "common/err.h"
#include "common/ids.h"

#define AGENT_SEALED_MAX (1536u * 1024u) /* bytes of one sealed object */
/* A policy allows 30 days; the revocation log forgets by this. */
#define AGENT_GRANT_LIFETIME_MAX_MS (31ull * 86400ull * 1000ull)

/* The numbers of ros2.v1.ObjectKind. */
enum obj_kind {
	OBJ_TENANT = 1,
	OBJ_ENGINE = 2,
	OBJ_AGENT = 3,
	OBJ_GRANT = 4,
	OBJ_SESSION = 5,
	OBJ_LEASE = 6,
};
const char *obj_kind_to_str(enum obj_kind k); /* "tenant" */

struct agent_epoch {
	uint8_t lineage[16];
	uint64_t counter; /* 0 = none seen yet */
};

/* @offered against the highest one @stored: 0 = the same; 1 = newer, store it before acting on
 * anything that comes under it; STALE_EPOCH for a lower counter of the same lineage; WRONG_DOMAIN
 * for another lineage while something is stored; INVALID for counter 0. */
int agent_epoch_check(const struct agent_epoch *stored, const struct agent_epoch *offered,
                      struct ros2_err *err);

struct agent_grant_body {
	struct ros2_uid tenant;
	char principal[ROS2_SPIFFE_MAX + 1];
	uint32_t max_keys;
	uint64_t max_bytes;
	uint32_t access;
	uint64_t lifetime_ms;
	struct clock_stamp from;
	uint64_t policy_version;
};

struct agent_object {
	enum obj_kind kind;
	struct ros2_uid uid;
	char name[ROS2_NAME_MAX + 1]; /* "" for grants */
	uint64_t version;
	bool revoked;   /* tenants */
	uint8_t *image; /* owned; tenants and engines; not yet opened as a policy image */
	size_t image_len;
	struct agent_grant_body grant;
	struct agent_epoch epoch; /* of the seal */
	uint64_t batch;           /* of the seal */
	uint8_t *sealed;          /* owned; serialised SealedObject, as it is kept on disk */
	size_t sealed_len;
};

/* Whose seals count. @last caches the last signature that was good: a batch has one. */
struct agent_trust {
	struct ros2_uid agent_uid;
	uint8_t snapshot_pub[ED25519_PUB_LEN];
	struct {
		bool valid;
		uint8_t digest[SHA256_LEN];
	} last;
};

/* CORRUPT (does not parse, seal does not hold, values out of range); WRONG_DOMAIN: sealed for
 * another agent. @lineage NULL: any. *ret: agent_object_free. */
int agent_object_open(struct agent_trust *t, const struct agent_epoch *lineage, const void *sealed,
                      size_t len, struct agent_object **ret, struct ros2_err *err);
void agent_object_free(struct agent_object *o);

/* The bytes a batch signature is over (proto/ros2/v1/common.proto). */
#define AGENT_SEAL_MESSAGE_LEN (14 + 16 + 8 + 8 + 8 + SHA256_LEN)
void agent_seal_message(const struct agent_epoch *e, uint64_t batch, uint64_t tree_size,
                        const uint8_t root[SHA256_LEN], uint8_t out[AGENT_SEAL_MESSAGE_LEN]);
#endif

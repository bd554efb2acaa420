/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compiled policy of one tenant or one engine, as the agent and the data path use it: a flat
 * image that is opened (every offset, length and value is checked, and the SHA-256), then asked.
 * Asking allocates nothing, takes no lock, reads no clock and cannot fail other than by denying.
 * Hostile bytes are never read out of bounds. The layout is told in
 * docs/decisions/0004-policy-image.md and policy/image_layout.h.
 */
#ifndef ROS2_POLICY_IMAGE_H
#define ROS2_POLICY_IMAGE_H

#include "common/err.h"
#include "common/ids.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POLICY_IMAGE_MAX      (1024u * 1024u) /* longest image, bytes */
#define POLICY_IMAGE_FORMAT   4u /* newest; older ones are read, and written where they say all */
#define POLICY_DIGEST_LEN     32
#define POLICY_PATH_MAX       4095 /* longest path asked about, bytes without NUL */
#define POLICY_PATTERN_MAX    255  /* longest path pattern */
#define POLICY_ROOT_MAX       1023 /* longest engine root, and namespace path under it */
#define POLICY_PRINCIPALS_MAX 256
#define POLICY_NAMESPACES_MAX 64
#define POLICY_RULES_MAX      64 /* path rules of one namespace */
#define POLICY_ALL_RULES_MAX                                                                       \
	1024 /* path rules of one tenant, so that an image stays below its bound */
#define POLICY_LABELS_MAX 32
#define POLICY_LABEL_MAX  63  /* longest label key or value */
#define POLICY_AGENTS_MAX 256 /* agents named in a placement */
/* engines of type nvmf */
#define POLICY_NQN_MAX         223 /* bytes: NVMe Base 2.0, 4.5 */
#define POLICY_ADDRESS_MAX     63
#define POLICY_SECRET_NAME_MAX 127
#define POLICY_VOLUMES_MAX     64
#define POLICY_VOLUME_NAME_MAX 127
/* In a host NQN and in the name of a secret: stands for the tenant's name. */
#define POLICY_TENANT_MARK "{tenant}"

/* Access bits, the same for namespaces, path rules and memory regions. For a region they have the
 * verbs' sense: READ = the agent may read from tenant memory (a tenant's write needs it), WRITE =
 * the agent may write into it (a tenant's read needs it). */
#define POLICY_ACCESS_READ  1u
#define POLICY_ACCESS_WRITE 2u
#define POLICY_ACCESS_ALL   3u
/* "none", "r", "w", "rw"; "?" for other bits. */
const char *policy_access_to_str(uint32_t access);

enum policy_kind {
	POLICY_KIND_TENANT = 1,
	POLICY_KIND_ENGINE = 2,
	POLICY_KIND_AGENT = 3,
};
const char *policy_kind_to_str(enum policy_kind k); /* "Tenant"; "?" when unknown */

enum policy_engine_type {
	POLICY_ENGINE_FILE = 1,
	POLICY_ENGINE_MEM = 2,
	POLICY_ENGINE_NVMF = 3,
};
const char *policy_engine_type_to_str(enum policy_engine_type t); /* "file" */

enum policy_transport {
	POLICY_TRANSPORT_TCP = 1,
	POLICY_TRANSPORT_RDMA = 2,
};
const char *policy_transport_to_str(enum policy_transport t); /* "tcp" */

enum policy_violation_action {
	POLICY_VIOLATION_KILL = 1, /* past the limit the session is ended */
	POLICY_VIOLATION_LOG = 2,  /* counted and recorded only */
};
const char *policy_violation_action_to_str(enum policy_violation_action a); /* "kill" */

enum policy_controller_loss {
	POLICY_LOSS_HOLD = 1, /* rights and rates stay as they are until the contact limit */
};
const char *policy_controller_loss_to_str(enum policy_controller_loss l); /* "hold" */

struct policy_label {
	const char *key, *value; /* borrowed */
};

/* One direction of the shaper; 0 = unlimited. */
struct policy_rate {
	uint64_t bytes_per_s;
	uint64_t ops_per_s;
};

/* Every number of a tenant's policy: plain values, checked when the image was opened. */
struct policy_limits {
	/* memory */
	uint64_t registered_bytes; /* sum over live regions of the tenant at one agent */
	uint64_t region_size_min, region_size_max;
	uint64_t region_alignment; /* of a region's base address; a power of two */
	uint32_t regions;          /* live regions at one agent */
	uint32_t region_access;    /* POLICY_ACCESS_*: what a region may be registered for */
	/* rkeys */
	uint64_t lease_ttl_ms;
	uint32_t leases_max;       /* rkeys live at once at one agent */
	uint32_t violations_limit; /* per session; reaching it triggers the action */
	enum policy_violation_action violations_action;
	/* times */
	uint64_t grant_lifetime_ms;
	uint64_t contact_limit_ms;
	bool offline_restart; /* always false in this version */
	enum policy_controller_loss on_controller_loss;
	/* sessions and QoS, at one agent */
	uint32_t sessions_max;
	struct policy_rate read, write;
	uint64_t burst_ms;            /* a bucket holds this much time of its rate */
	uint32_t control_verbs_per_s; /* calls of the Tenant service at one agent */
};

/* A verified tenant image. Copyable; borrows the bytes, which must stay and not change while it is
 * used. Fields under "private" are for policy/ only. */
struct policy_image_tenant {
	struct ros2_uid uid;
	uint64_t version; /* the object's version at the controller */
	char name[ROS2_NAME_MAX + 1];
	uint8_t digest[POLICY_DIGEST_LEN]; /* SHA-256 of the image, as an identity for audit and
	                                      status */
	struct policy_limits limits;
	uint32_t require; /* placement.require: a set of properties, common/probe.h */
	uint32_t n_principals, n_namespaces;
	/* private */
	const uint8_t *base; /* borrowed */
	uint32_t len, n_agents, n_selector, n_rules;
	uint32_t principals_off, namespaces_off, rules_off, agents_off, selector_off, strings_off,
		strings_len;
};

/* [offset, +size) of a namespace of the subsystem, in bytes, multiples of 512. */
struct policy_volume {
	char name[POLICY_VOLUME_NAME_MAX + 1]; /* relative path; no other volume's is in it */
	uint32_t nsid;                         /* 1 to 0xfffffffe */
	uint64_t offset;
	uint64_t size; /* 0 = the whole namespace, with offset 0 only */
};

/* What an engine of type nvmf says: checked, as plain values. Volumes do not overlap. */
struct policy_nvmf {
	enum policy_transport transport;
	char address[POLICY_ADDRESS_MAX + 1]; /* IPv4 or IPv6, in the form of inet_ntop */
	uint32_t port;
	char subsystem[POLICY_NQN_MAX + 1];
	char host_nqn[POLICY_NQN_MAX + 1];              /* with the mark, once */
	char secret[POLICY_SECRET_NAME_MAX + 1];        /* "" = none; may have the mark */
	char target_secret[POLICY_SECRET_NAME_MAX + 1]; /* "" = none; may have the mark */
	bool header_digest, data_digest;                /* tcp */
	bool keys_per_command;                          /* rdma; false = standing */
	uint32_t queue_depth;
	uint64_t keep_alive_ms, command_timeout_ms;
	uint64_t quiesce_ms; /* 0 = not said */
	uint32_t n_volumes;  /* at least 1 */
	struct policy_volume volumes[POLICY_VOLUMES_MAX];
};

/* A verified engine image: everything is copied out, nothing is borrowed. */
struct policy_image_engine {
	struct ros2_uid uid;
	uint64_t version;
	char name[ROS2_NAME_MAX + 1];
	uint8_t digest[POLICY_DIGEST_LEN];
	enum policy_engine_type type;
	char root[POLICY_ROOT_MAX + 1]; /* file: absolute, normalised; else "" */
	uint64_t size_bytes;            /* mem: capacity; else 0 */
	bool null_mode;                 /* mem: writes are discarded, reads give zeros */
	struct policy_nvmf nvmf;        /* nvmf; else zero */
};

/* What an image is, before opening it. -EBADMSG when it is too short or has no magic;
 * -EPROTONOSUPPORT for another format. Looks at the header only: says nothing about the rest. */
int policy_image_kind(const void *p, size_t len, enum policy_kind *ret, struct ros2_err *err);
/* Checks everything. 0; -EBADMSG (damaged or hostile, words say what); -EPROTONOSUPPORT (other
 * format); -EMSGSIZE above POLICY_IMAGE_MAX. Pure; any thread. */
int policy_image_verify(const void *p, size_t len, struct ros2_err *err);
/* Verify and give the typed view. The wrong kind is -EBADMSG. *ret is written only on success. */
int policy_image_open_tenant(const void *p, size_t len, struct policy_image_tenant *ret,
                             struct ros2_err *err);
int policy_image_open_engine(const void *p, size_t len, struct policy_image_engine *ret,
                             struct ros2_err *err);

/* ---- asking a tenant image; pure, any thread, no allocation ---- */

/* Exact comparison with the principals of the policy; NULL is false. */
bool policy_principal_match(const struct policy_image_tenant *t, const char *spiffe);
/* i < n_principals, else NULL. Borrowed from the image. */
const char *policy_principal_at(const struct policy_image_tenant *t, uint32_t i);

struct policy_namespace {
	uint32_t index;
	const char *name, *engine,
		*path;   /* borrowed from the image; path: relative to the engine's root */
	uint32_t access; /* POLICY_ACCESS_* */
	bool shared;
	uint32_t n_rules;
	uint32_t first_rule; /* private */
};
/* 0 or -ENOENT. */
int policy_namespace_find(const struct policy_image_tenant *t, const char *name,
                          struct policy_namespace *ret);
int policy_namespace_at(const struct policy_image_tenant *t, uint32_t i,
                        struct policy_namespace *ret);
/* One path rule, for display: 0 or -ENOENT. *ret_pattern is borrowed from the image. */
int policy_rule_at(const struct policy_image_tenant *t, const struct policy_namespace *ns,
                   uint32_t i, const char **ret_pattern, uint32_t *ret_access);

enum policy_reason {
	POLICY_BY_RULE = 1,      /* rule @rule decided */
	POLICY_BY_NAMESPACE = 2, /* there are no rules: the namespace's access decided */
	POLICY_NO_RULE = 3,      /* there are rules and none matches: denied */
	POLICY_BAD_PATH = 4,     /* not a path of a namespace: denied */
	POLICY_BAD_QUESTION = 5, /* no access asked for, or unknown bits: denied */
};
const char *policy_reason_to_str(enum policy_reason r);

struct policy_verdict {
	bool allowed;
	int rule; /* index in the namespace's rules, -1 when no rule decided */
	enum policy_reason reason;
};

/*
 * May @path of the namespace be used with @wanted (POLICY_ACCESS_*)? The path is inside the
 * namespace, with or without one leading '/'; "" and "/" are its top directory. Empty, "." and ".."
 * segments and control bytes are denied as POLICY_BAD_PATH, never resolved. The first rule whose
 * pattern matches decides; without rules the namespace's access does; with rules of which none
 * matches it is denied. Never more than the namespace's access. Patterns: '*' any run of bytes
 * within a segment, '**' as a whole segment: any number of segments, also none.
 */
struct policy_verdict policy_eval_path(const struct policy_image_tenant *t,
                                       const struct policy_namespace *ns, const char *path,
                                       uint32_t wanted);

/* True only when everything that may ever be below the directory @dir may be used with @wanted: no
 * rule could say otherwise for any name. Who moves a directory moves what is below it past the
 * rules. */
bool policy_allows_below(const struct policy_image_tenant *t, const struct policy_namespace *ns,
                         const char *dir, uint32_t wanted);

/* Is the tenant placed on this agent: named in placement.agents, or it has every label of a
 * non-empty placement.selector. */
bool policy_placed(const struct policy_image_tenant *t, const char *agent,
                   const struct policy_label *labels, size_t n_labels);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane as the agent sees it: the only header of dataplane/ the agent includes. Every
 * function here is called on the agent's loop thread and does not block; results and events come
 * back as posts to that loop. Inside, one reactor per core owns its sessions, leases and slots;
 * nothing of a reactor is touched from outside.
 *
 * Rights: a request is carried out only when its session, the session's grant, the tenant and the
 * agent's contact with the controller are all live at the moment it is handed on. Deadlines are
 * CLOCK_BOOTTIME nanoseconds.
 */
#ifndef ROS2_DATAPLANE_DP_H
#define ROS2_DATAPLANE_DP_H

#include "common/err.h"
#include "common/ids.h"
#include "common/loop.h"
#include "common/util.h"
#include "dataplane/nvmf/config.h"
#include <stdbool.h>
#include <stdint.h>

#define DP_SECRET_LEN 32

struct dp;

/* Sessions and grants are named by UID at this face. */
enum dp_event_type {
	DP_EVENT_VIOLATION,     /* the peer did what it may not: status, words, count since the last
	                           event of this kind */
	DP_EVENT_SESSION_ENDED, /* status: CLOSED, REVOKED, VIOLATIONS, GRANT_EXPIRED, CONTACT_LOST,
	                           PROTOCOL, UNAUTHENTICATED, TIMEOUT, BUSY (dp_revoke) */
	DP_EVENT_CONNECTED,     /* HELLO proved; words = peer address */
	DP_EVENT_HELLO_REFUSED, /* session_uid zero when unknown; words = peer address */
};

struct dp_session_stats {
	uint64_t read_bytes, write_bytes, read_ops, write_ops, violations;
	uint64_t cleared_bytes, clear_ops; /* made zeros or given up */
	uint64_t copied_bytes;             /* payload copied by this process */
	uint64_t shaped_ns;                /* time requests waited for tokens */
	uint32_t regions, handles, in_flight;
	bool connected;
};

struct dp_event {
	enum dp_event_type type;
	struct ros2_uid session, tenant, grant;
	enum ros2_status status;
	uint64_t lease_id; /* 0 = none */
	uint64_t count;    /* events folded into this one, >= 1 */
	uint64_t first_unix_ns, last_unix_ns;
	struct dp_session_stats stats; /* SESSION_ENDED: final */
	char words[200];
};

#define DP_UNPROVED_MAX   4096u
#define DP_POLL_US_MAX    1000000u
#define DP_RDMA_LEAST     (11ull << 20) /* registered slots of one tenant at one reactor */
#define DP_RDMA_KEEP_NONE UINT32_MAX    /* of rdma_keep_ms: it does not */

struct dp_opts {
	struct loop *loop;         /* borrowed: until dp_free; results and events are posted here */
	uint32_t reactors;         /* 0 = cores that it may use, or its time is worth; at most 64 */
	const char *listen_host;   /* "127.0.0.1"; each reactor takes its own port */
	uint32_t slot_bytes_total; /* per reactor; 0 = 64 MiB */
	const char *rdma_device;   /* NULL = no transport over verbs */
	const char *rdma_host;     /* its address; each reactor takes its own port */
	/* How long a reactor keeps a tenant's registered slots after its last connection there,
	 * unless somebody finds none left; 0 = 10000. */
	uint32_t rdma_keep_ms;
	/* Bytes of all tenants' registered slots together; 0 = a quarter of what this process may
	 * have (common/group_limits.h). At least DP_RDMA_LEAST. */
	uint64_t rdma_total_bytes;
	uint32_t control_workers; /* 0 = 8, at most 64 */
	/* TCP connections of a reactor that have not proved anything, in all and of one address; 0
	 * = 64 and as many as in all. At most DP_UNPROVED_MAX. */
	uint32_t unproved, unproved_per_address;
	/* A reactor that has nothing to do looks again for so long before it sleeps: a wake-up of a
	 * core that sleeps costs tens of microseconds. 0 = sleeps at once; at most DP_POLL_US_MAX.
	 */
	uint32_t poll_us;
	const char *secrets_dir; /* borrowed: until dp_free; where engines find secrets by name,
	                            NULL = there are none */
	/* borrowed: until dp_free; where it is noted that targets may be at work for this process
	 * (docs/decisions/0023-unquiet-targets.md). NULL: it is not. */
	const char *state_dir;
	/* borrowed: until dp_free; where the sockets of the shm transport are made, NULL = it is
	 * not offered. And the bytes that all sessions of a tenant share with the agent together (0
	 * = 256 MiB), and all sessions of all tenants (0 = a quarter of what this process may have:
	 * common/group_limits.h). */
	const char *shm_dir;
	uint64_t shm_tenant_bytes, shm_total_bytes;
	/* borrowed: until dp_free; a program whose main, asked for DP_SEAL_COMMAND, does nothing
	 * but _exit(dp_seal_memory()): tenants' memory is sealed by a process of its own, which a
	 * tenant can make wait without end. NULL: by a worker, which then waits likewise. */
	const char *seal_program;
	void (*on_event)(void *arg, const struct dp_event *ev); /* on the loop */
	void *arg;
};

int dp_new(const struct dp_opts *o, struct dp **ret, struct ros2_err *err);
#define DP_SEAL_COMMAND "seal-memory"
/* Of a process that has the memory as descriptor 3, and needs nothing else: 0 or an errno, to exit
 * with. */
int dp_seal_memory(void);
/* Ends all sessions, joins the reactors, drops pending results (their callbacks run with
 * CANCELLED). Not from inside one of its callbacks; waits for what engines still hold. */
void dp_free(struct dp *dp);

struct dp_engine_config {
	const char *name, *type, *root;
	uint64_t size_bytes;
	bool null_mode;
	uint32_t io_features; /* what the file engine is to do without: dp_io_features_parse */
	const struct nvmf_config *nvmf; /* nvmf: borrowed during the call; else NULL */
};
/* Words with commas between: no-uring, no-deferred, no-cooperative, no-direct, no-fixed; empty is
 * nothing. INVALID names the word. Any thread. */
int dp_io_features_parse(const char *words, uint32_t *ret, struct ros2_err *err);
/* Makes or replaces an engine. UNSUPPORTED: there is no engine of this type here, or it needs
 * secrets and there is no directory of them. A changed configuration while namespaces are open:
 * BUSY. Blocks shortly (mkdir, open). */
int dp_engine_put(struct dp *dp, const struct dp_engine_config *c, struct ros2_err *err);
int dp_engine_remove(struct dp *dp, const char *name, struct ros2_err *err);

/* How an engine's way to its storage is, for one tenant: engine.h has the meaning of each. */
struct dp_engine_health {
	const char *engine, *tenant, *state, *words; /* borrowed: during the callback */
	bool live, lost;
	uint64_t since_ns, connects, unknown_writes, retries, given_up;
};
/* Loop: @fn for each engine whose storage is elsewhere, and each tenant that uses it. It must not
 * call the data plane. */
void dp_engines_health(struct dp *dp, void (*fn)(void *arg, const struct dp_engine_health *h),
                       void *arg);

/* Control calls at one engine (mounts, opens, closes, what changes names): how many are inside it,
 * and how many wait for a worker. One that is inside for long is one that its storage does not
 * answer. */
struct dp_control_load {
	const char *engine; /* borrowed: during the callback; "": at none, or one that is removed */
	uint32_t inside, waiting;
	uint64_t oldest_ns; /* for so long the oldest of those inside has been there */
};
/* Loop: @fn for each engine, and at last for "". It must not call the data plane. */
void dp_control_load(struct dp *dp, void (*fn)(void *arg, const struct dp_control_load *l),
                     void *arg);

/* The limits of one tenant at this agent, from its policy image. */
struct dp_tenant_limits {
	uint64_t registered_bytes, region_size_min, region_size_max, region_alignment;
	uint32_t regions, rkeys_concurrent, sessions_max;
	uint32_t access; /* 1 read, 2 write: lease.h */
	uint64_t lease_ttl_ms, contact_limit_ms;
	uint32_t violations_limit; /* 0 = none */
	bool violations_kill;
	uint64_t read_bytes_per_s, write_bytes_per_s, read_iops, write_iops; /* 0 = not limited */
	uint64_t burst_ms;
};
int dp_tenant_put(struct dp *dp, const struct ros2_uid *tenant, const char *name,
                  const struct dp_tenant_limits *l, struct ros2_err *err);
/* Ends the tenant's sessions; its uid is never accepted again. */
int dp_tenant_remove(struct dp *dp, const struct ros2_uid *tenant, struct ros2_err *err);

/* A grant, what it allows and its end. By a later call, a renewal, regions that there are go on as
 * by dp_tenant_put; one already ended is never revived (REVOKED). */
struct dp_grant {
	struct ros2_uid grant, tenant;
	uint64_t deadline_ns;
	uint32_t max_keys;
	uint64_t max_bytes;
	uint32_t access;
};
int dp_grant_put(struct dp *dp, const struct dp_grant *g, struct ros2_err *err);
/* One that is over or is not needed any more, and was not revoked: its sessions end as by
 * dp_revoke, which nobody is told of. Its uid and theirs are forgotten when many more have gone,
 * for tenants decide how many such there are: whether they may come again is for the caller to
 * know. */
void dp_grant_remove(struct dp *dp, const struct ros2_uid *grant, enum ros2_status why);

/* Contact with the controller: rights of a tenant end at stamp + its contact_limit. Never moves
 * back. Also from any thread. */
void dp_contact(struct dp *dp, uint64_t stamp_ns);

/* ---- asynchronous calls ---- */
struct dp_dirent {
	char name[256];
	uint8_t type; /* engine_file_type */
};
struct dp_attr {
	uint8_t type;
	uint64_t size, mtime_unix_ns, blocks_512;
	uint32_t mode, block_size;
};
struct dp_result {
	enum ros2_status status;
	char words[200];
	union {
		struct {
			uint8_t secret[DP_SECRET_LEN];
			uint16_t port;
			uint32_t credits, max_io, max_inline;
			const char *shm_path; /* borrowed: until dp_free; NULL = not over shm */
			uint64_t shm_bytes;   /* of it: for payload */
		} session;
		struct {
			uint32_t mount;
		} mount;
		struct {
			uint64_t handle, size;
		} open;
		struct dp_attr attr;
		struct {
			const struct dp_dirent *entries; /* borrowed: during the callback */
			uint32_t n;
			uint64_t next;
		} dir;
		struct {
			uint32_t key, generation, ttl_ms;
			uint64_t lease_id;
		} region;
		struct {
			uint32_t sessions, leases, draining;
			uint32_t keys;    /* of draining: keys, see dp_revoke */
			uint32_t windows; /* keys of storage targets to slots: ended, and confirmed
			                     by the device */
			uint64_t last_window_ns; /* boottime of the last of these, or when they
			                            were seen to be dead; 0 = none */
			uint64_t last_byte_ns;   /* boottime of the last byte handed to the kernel
			                            under the right; 0 = none since receive */
			uint64_t last_engine_ns; /* boottime of the last engine completion under it;
			                            0 = none since receive */
		} revoke;
	};
};
/* Always called exactly once, on the loop, never from inside the call that started it. */
typedef void (*dp_done_fn)(void *arg, const struct dp_result *res);

enum dp_transport { DP_TRANSPORT_TCP, DP_TRANSPORT_VERBS, DP_TRANSPORT_SHM };
static inline const char *dp_transport_to_str(enum dp_transport t)
{
	return t == DP_TRANSPORT_SHM ? "shm" : t == DP_TRANSPORT_VERBS ? "verbs" : "tcp";
}
struct dp_session_params {
	struct ros2_uid session, tenant, grant;
	uint64_t cert_deadline_ns;   /* boottime at which the caller's certificate ends */
	enum dp_transport transport; /* VERBS without a device, SHM without shm_dir: UNSUPPORTED */
	uint64_t shm_bytes;          /* SHM; 0 = 64 MiB, or less where the tenant may have less */
};
void dp_session_open(struct dp *dp, const struct dp_session_params *p, dp_done_fn done, void *arg);
void dp_session_close(struct dp *dp, const struct ros2_uid *session, enum ros2_status why,
                      dp_done_fn done, void *arg);
/* Who waits until a session is gone: none of what it had counts any more, but what its tenant keeps
 * mapped over shm. @fn runs once, on the loop, maybe inside another call; or when the data plane is
 * freed. The caller's memory until then, or until dp_gone_cancel. */
struct dp_gone {
	struct list link;
	void (*fn)(struct dp_gone *w);
};
/* False: there is no such session, @fn will not run. Loop. */
bool dp_session_await_gone(struct dp *dp, const struct ros2_uid *session, struct dp_gone *w);
void dp_gone_cancel(struct dp_gone *w);
int dp_session_stats(struct dp *dp, const struct ros2_uid *session, struct dp_session_stats *ret);

/* @access bounds every handle opened under the mount. */
void dp_mount(struct dp *dp, const struct ros2_uid *session, const char *engine, const char *path,
              uint32_t access, dp_done_fn done, void *arg);
void dp_open(struct dp *dp, const struct ros2_uid *session, uint32_t mount, const char *path,
             uint32_t flags, uint32_t mode, dp_done_fn done, void *arg);
void dp_close(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg);
void dp_fstat(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg);
void dp_truncate(struct dp *dp, const struct ros2_uid *session, uint64_t handle, uint64_t size,
                 dp_done_fn done, void *arg);
void dp_flush(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg);

enum dp_path_op { DP_STAT, DP_MKDIR, DP_UNLINK, DP_RMDIR, DP_RENAME };
void dp_path(struct dp *dp, const struct ros2_uid *session, uint32_t mount, enum dp_path_op op,
             const char *path, const char *to, uint32_t mode, dp_done_fn done, void *arg);
void dp_readdir(struct dp *dp, const struct ros2_uid *session, uint32_t mount, const char *path,
                uint64_t cookie, uint32_t max, dp_done_fn done, void *arg);

void dp_region_register(struct dp *dp, const struct ros2_uid *session, uint64_t base,
                        uint64_t length, uint32_t access, dp_done_fn done, void *arg);
void dp_region_renew(struct dp *dp, const struct ros2_uid *session, uint32_t key, dp_done_fn done,
                     void *arg);
void dp_region_deregister(struct dp *dp, const struct ros2_uid *session, uint32_t key,
                          dp_done_fn done, void *arg);

/* Withdraws rights in the data plane. When the callback runs, no byte is handed on any more under
 * them, on any reactor, and the RDMA device serves no key that a storage target was given for it.
 * What an engine still holds is result.revoke.draining; the callback runs again (status OK,
 * draining 0) when that is zero. With DP_SCOPE_ALL it runs before the devices have confirmed, if
 * one takes longer than DP_REVOKE_PARTIAL_MS: the keys it may still serve are then among
 * `draining`, and it runs again when all have. -ENOMEM: it could not be held, and @done is not
 * called. The data plane is frozen instead: every session ends (BUSY), and no session, tenant or
 * grant is taken that is not here already (BUSY, too) until dp_thaw. What the uid names here is
 * withdrawn for good; a uid that names nothing here could not be remembered, so it has to be
 * revoked again, and well, before dp_thaw is called. */
#define DP_REVOKE_PARTIAL_MS 1000u
enum dp_scope { DP_SCOPE_TENANT, DP_SCOPE_GRANT, DP_SCOPE_SESSION, DP_SCOPE_ALL };
int dp_revoke(struct dp *dp, enum dp_scope scope, const struct ros2_uid *uid, uint64_t received_ns,
              enum ros2_status why, dp_done_fn done, void *arg);
/* Keys of storage targets that were ended by @until_ns (boottime) and that the RDMA device may
 * serve yet: fn for each tenant that has some, with how many (a tenant that was withdrawn and is
 * back may come twice), then once with NULL; on the loop. -ENOMEM: nothing is begun, fn is not
 * called. */
typedef void (*dp_keys_fn)(void *arg, const struct ros2_uid *tenant, uint32_t keys);
int dp_keys_pending(struct dp *dp, uint64_t until_ns, dp_keys_fn fn, void *arg);
bool dp_is_frozen(const struct dp *dp);
/* 0: sessions and rights are taken again. -EBUSY: the freeze has not reached every reactor;
 * -ENOMEM: there is still no memory: ask again. */
int dp_thaw(struct dp *dp);

enum dp_lease_kind {
	DP_LEASE_REGION,      /* of a tenant's memory, to the agent */
	DP_LEASE_PER_COMMAND, /* of slots, to a storage target: those of one queue and direction */
	DP_LEASE_STANDING, /* of a slot, to a storage target; of many: of one queue and direction */
};
/* As in documents. */
static inline const char *dp_lease_kind_to_str(enum dp_lease_kind k)
{
	return k == DP_LEASE_PER_COMMAND ? "perCommand"
	       : k == DP_LEASE_STANDING  ? "standing"
	                                 : "region";
}
struct dp_lease_info {
	uint64_t lease_id, length, expires_in_ms;
	uint32_t access; /* of its holder */
	/* To targets: of the session whose right lasts longest, of those that the slots serve. */
	struct ros2_uid session, tenant, grant;
	enum dp_lease_kind kind;
	uint32_t count;                 /* keys now; PER_COMMAND: may be 0 */
	uint64_t since_unix_ns;         /* of the oldest; 0 = not known */
	uint64_t issued;                /* PER_COMMAND: so far */
	bool ending;                    /* the device has not confirmed its end yet */
	uint32_t engine_slot;           /* the data plane's own */
	char engine[ROS2_NAME_MAX + 1]; /* "" of a region */
};
/* Up to @max live leases, of either side, of @tenant (NULL = all); fn once per lease, then once
 * with NULL, on the loop. -ENOMEM: nothing is begun and fn is not called. */
int dp_leases(struct dp *dp, const struct ros2_uid *tenant, uint32_t max,
              void (*fn)(void *arg, const struct dp_lease_info *info), void *arg);
uint32_t dp_lease_count(struct dp *dp);

/* What was seen by trying the RDMA device (common/probe.h: probe_enforced), once or again; nothing
 * before. Storage targets are asked to invalidate keys of commands that are over by queues that are
 * opened afterwards, where foreign-invalidate is among it; memory of sessions over shm is lent to
 * them where mr-range is, whole regions where window-range is, too. Any thread. */
void dp_rdma_seen(struct dp *dp, uint32_t enforced);

/* Buffers of a reactor: taken while a request's payload is in one; all free when nothing is in
 * flight and nothing is inside an engine. */
struct dp_slots {
	uint32_t taken, total;
};
/* False: there is no reactor @i (they count from 0). */
bool dp_slots(struct dp *dp, uint32_t i, struct dp_slots *ret);

/* Bytes of memory that sessions over shm share with tenants, or are about to; and the most that
 * they may. Loop. */
struct dp_shm {
	uint64_t used, limit;
};
void dp_shm(const struct dp *dp, struct dp_shm *ret);

/* Pieces of that memory that the RDMA device knows, so that storage targets move payload from and
 * into it: now, and so far those that were registered, those that a limit refused, and those that
 * the device did. What was refused goes through buffers, and is copied. Loop. */
struct dp_lent {
	uint32_t pieces;
	uint64_t made, refused, failed;
};
void dp_lent(const struct dp *dp, struct dp_lent *ret);
#endif

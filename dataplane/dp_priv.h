/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane's objects as its loop side sees them: tenants, grants, engines, mounts, files,
 * sessions, and the operations that travel between loop, reactors and workers. The loop owns
 * everything here; what another thread may read is atomic or does not change after init. Must not
 * be included outside dataplane/.
 *
 * Every post to the loop goes through dp_post, which counts it: dp_free can come while posts are
 * under way, and the last of them frees the memory.
 */
#ifndef ROS2_DATAPLANE_DP_PRIV_H
#define ROS2_DATAPLANE_DP_PRIV_H

#include "common/hash.h"
#include "common/share.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include "dataplane/engine.h"
#include "dataplane/lease.h"
#include "dataplane/qos_priv.h"
#include "dataplane/shm_kept.h"
#include "dataplane/uidmap.h"
#include "dataplane/unquiet.h"
#include <pthread.h>
#include <stdatomic.h>

#define DP_REACTORS_MAX       64u
#define DP_ENGINES_MAX        32u  /* bits of session.engines */
#define DP_SESSIONS_MAX       256u /* per reactor */
#define DP_MOUNTS_MAX         64u  /* per session */
#define DP_DESCRIPTORS_SURE   16u  /* per tenant: a mount and five files of the file engine */
#define DP_HANDLES_MAX        256u /* per session; the low bits of a handle */
#define DP_HANDLE_BITS        8
#define DP_CREDITS            128u
#define DP_CONTROL_PER_TENANT 16u
#define DP_RDMA_SAID          64u
#define DP_READDIR_MAX        1024u
#define DP_PATH_MAX           4096u

struct fabric_dev;
struct fabric_pd;
struct reactor;
struct session; /* the reactor's half of a session: session_priv.h */
struct shm_closer;
struct shm_memory;
struct shm_sealer;

/* Something that travels to the loop; embedded in its owner, which outlives the post. */
struct dp_post {
	struct loop_post post;
	struct dp *dp;
	void (*fn)(struct dp_post *p);
};
/* Any thread; cannot fail. Again only when @fn has begun. */
void dp_post(struct dp *dp, struct dp_post *p, void (*fn)(struct dp_post *p));

enum qos_kind { QOS_READ_BYTES, QOS_READ_OPS, QOS_WRITE_BYTES, QOS_WRITE_OPS, QOS_KINDS };

struct dp_tenant {
	/* immutable after init */
	struct ros2_uid uid;
	uint32_t
		index; /* below LEASE_TENANTS_MAX; used again only after the last session is gone */
	char name[ROS2_NAME_MAX + 1];
	/* any thread */
	_Atomic uint64_t contact_limit_ns, lease_ttl_ns;
	_Atomic uint32_t violations_limit;
	_Atomic bool violations_kill;
	_Atomic uint32_t regions; /* live at this agent */
	_Atomic uint64_t registered_bytes;
	struct qos_bucket qos[QOS_KINDS];
	struct fabric_pd *pd; /* owned by the loop; set before its first session over verbs */
	/* loop */
	uint64_t shm_bytes; /* that its sessions share with this process, or will; or that it keeps
	                     */
	uint32_t n_lent;    /* pieces of its memory that the device knows (shm_lend_priv.h) */
	struct dp_tenant_limits limits;
	bool dead;
	uint32_t n_sessions, n_control;
	uint32_t n_descriptors; /* of its open files and mounts */
	struct list link;       /* dp.tenants */
};

struct dp_grant_obj {
	/* immutable after init */
	struct ros2_uid uid, tenant;
	uint64_t id;
	/* any thread */
	_Atomic uint64_t deadline_ns, max_bytes, bytes;
	_Atomic uint32_t max_keys, keys;
	/* loop */
	uint32_t access;
	bool dead;
	bool removed; /* and not revoked: its uid is forgotten in the end */
	uint32_t n_sessions;
	struct list link;  /* dp.grants */
	UT_hash_handle hh; /* dp.grants_by_uid */
};

/* An engine at a reactor, until that takes it. */
struct dp_engine_at {
	_Atomic(struct engine_reactor *) ready; /* owned; NULL = none */
	bool made;                              /* dp_engine.ready_lock: there is one, or was */
};

struct dp_engine {
	/* immutable after init */
	const struct engine_ops *ops;
	struct engine *engine; /* owned; a worker's while it ends */
	uint32_t slot;         /* index in dp.engines and in every reactor's table */
	struct dp *dp;
	bool lends; /* it lends slots to its target, so they must be the tenant's */
	bool takes_any_memory;
	struct dp_engine_at *at;    /* owned: one for each reactor */
	pthread_mutex_t ready_lock; /* of workers: while one makes such a thing */
	/* loop */
	char name[ROS2_NAME_MAX + 1], type[16], root[1024];
	uint64_t size_bytes;
	bool null_mode, removed;
	bool ending; /* no reactor has it any more: nothing but destroy is called */
	uint32_t io_features;
	struct nvmf_config *nvmf; /* owned; NULL = of another type */
	uint32_t n_users;         /* mounts, and calls under way */
	uint32_t n_dropping;      /* reactors that still have it */
	struct dp_op *dropped;    /* lent; with which a worker will destroy it */
};

struct dp_mount_obj {
	struct dp_engine *engine; /* counted in n_users */
	struct engine_ns *ns;     /* owned */
	uint32_t access, refs;    /* loop */
	struct dp_tenant
		*tenant;  /* compared only: it may be gone, unless descriptors are counted */
	struct list link; /* dp.mounts */
	struct dp_mount_obj *next_unclosed;
};

/* An open object. References: the loop's table, the reactor's table, every request and call under
 * way. */
struct dp_file {
	struct dp *dp;
	struct dp_mount_obj *mount; /* referenced */
	struct engine_file *file;   /* owned; closed on a worker */
	uint32_t access;            /* engine_open_flags READ | WRITE */
	_Atomic uint32_t refs;
	struct dp_post post; /* of the last unref */
	struct list link;    /* dp.files */
	struct dp_file *next_unclosed;
	/* flush.c; the lists are its reactor's */
	_Atomic uint32_t turn;  /* odd: a flush is with the engine */
	_Atomic uint32_t calls; /* flushes by call that are under way */
	_Atomic uint32_t calls_begun;
	struct list flushes; /* requests that stand by */
	struct list led;     /* those for which the one with the engine is, too */
};
/* Of the limit of this process now. */
struct share dp_descriptor_share(void);
/* On a worker: the engine's answer, or -EBUSY with words. */
int flush_by_call(struct dp_file *f, struct ros2_err *err);
void dp_file_ref(struct dp_file *f);
void dp_file_unref(struct dp_file *f); /* any thread */

/* Keys of a tenant that its device has not ended. */
struct dp_keys_of {
	struct ros2_uid tenant;
	const struct fabric_pd *pd; /* compared only */
	uint32_t keys;
};

enum op_stage { OP_LOOP, OP_REACTOR, OP_QUEUED, OP_WORKER };

/* One asynchronous call. Made on the loop, carried to a reactor or a worker, finished on the loop.
 */
struct dp_op {
	struct dp *dp;
	dp_done_fn done;
	void *arg;
	struct dp_result res;
	struct dp_session *ds; /* counted in n_ops; NULL for none */
	enum op_stage stage;
	bool cancelled;
	bool changes;     /* made twice it would not do the same: never to be taken for not begun */
	bool spare;       /* of memory set aside: may deny or withdraw, nothing else */
	bool lent;        /* a part of another object: not freed by itself */
	struct list link; /* dp.ops */
	/* reactor */
	struct dp_op *next;
	void (*run)(struct reactor *r, struct dp_op *op);
	struct dp_post post;
	void (*back)(struct dp_op *op);
	/* worker */
	void (*work)(struct dp_op *op);
	struct dp_tenant *tenant;          /* counted in n_control; NULL = it closes something */
	const struct dp_tenant *closes_of; /* compared only: whose that is; NULL = of several */
	bool closing;                      /* of the workers, which may be few for that */
	struct list job;
	struct list behind; /* of what closes something: what the same owner closes after it */
	struct dp_engine *engine;
	struct dp_mount_obj *mount; /* referenced */
	struct dp_file *file;       /* referenced */
	struct engine_ns *ns;
	struct engine_file *efile;
	struct dp_file *file_chain; /* by next_unclosed */
	struct dp_mount_obj *mount_chain;
	char *path, *to; /* owned */
	uint32_t flags, mode, max, key;
	int path_op;
	struct dp_tenant_limits limits;   /* renewal: in force when it was asked for */
	struct dp_session_params session; /* to be opened */
	struct shm_memory *shm;           /* owned: for it */
	uint64_t a, b;                    /* base and length, offset, size, cookie */
	uint64_t handle;
	struct dp_dirent *entries; /* owned */
	/* revoke, leases */
	struct revoke *revoke;
	struct dp_lease_info *infos; /* owned */
	uint32_t n_infos;
	enum dp_scope scope;
	struct dp_tenant *of_tenant;
	struct dp_grant_obj *of_grant;
	struct session *of_session;
	const struct fabric_pd *of_pd; /* compared only; NULL = nothing of it is lent */
	enum ros2_status why;
	uint64_t received_ns, keys_ended_ns;
	uint32_t keys_alive;        /* when the reactor answered */
	struct dp_keys_of *keys_of; /* owned */
	uint32_t n_keys_of;
};

struct dp_session {
	struct ros2_uid uid;
	struct dp *dp;
	struct dp_tenant *tenant;
	struct dp_grant_obj *grant;
	struct reactor *reactor;
	struct session *s;      /* owned; the reactor's until it is gone */
	struct shm_memory *shm; /* owned; NULL = not over shm */
	uint64_t seq, cert_deadline_ns;
	bool ended, gone, closing;
	bool removed; /* with its grant, and neither was revoked: its uid is forgotten in the end */
	struct dp_op close_op; /* lent to the call that closes it, while closing */
	struct dp_op seal_op;  /* over shm: lent once, when the tenant has mapped the memory */
	struct dp_op unmap_op; /* and once at its end, when nothing else names it */
	uint32_t n_ops;        /* operations under way that name it */
	uint32_t n_mounts;
	struct dp_mount_obj *mounts[DP_MOUNTS_MAX]; /* referenced */
	struct {
		uint64_t handle;      /* 0 = free */
		struct dp_file *file; /* referenced */
	} handles[DP_HANDLES_MAX];
	struct list link;    /* dp.sessions */
	struct list waiting; /* of struct dp_gone: for its end */
};

struct workers;

/* A call that there was no memory to begin, and its caller has not been told yet. */
struct dp_denied {
	dp_done_fn done;
	void *arg;
};
#define DP_DENIED 256u

/* Of @tasks threads and processes that this process may have. */
uint32_t dp_io_workers(uint64_t tasks, uint32_t reactors);

struct dp {
	/* immutable after init */
	struct loop *loop;
	struct dp_opts opts;
	uint32_t n_reactors;
	struct reactor *reactors[DP_REACTORS_MAX]; /* owned */
	struct workers *workers;                   /* owned */
	struct shm_closer *shm_closer;             /* owned; NULL = no transport over shm */
	struct shm_sealer *shm_sealer;             /* owned; NULL = workers seal */
	struct fabric_dev *rdma;                   /* owned; NULL = no transport over verbs */
	uint32_t rdma_qps;                         /* connections of a tenant at a reactor */
	/* any thread */
	_Atomic uint64_t contact_ns; /* latest stamp */
	_Atomic uint32_t rdma_seen;  /* what the RDMA device was seen to enforce: dp_rdma_seen */
	/* Sets of slots, pinned, of all reactors, those that the device does not give up, too; of
	 * them, by the tenant's index. And the most of them: immutable after init. */
	_Atomic uint32_t rdma_sets, rdma_sets_of[LEASE_TENANTS_MAX];
	uint32_t rdma_sets_max;
	_Atomic uint64_t rdma_short_ns; /* when somebody found none left; 0 = never */
	struct {
		char path[4096];   /* "" = it is not noted */
		uint64_t since_ns; /* start of this process, when the one before was killed; or 0 */
		struct unquiet_table killed; /* what that one knew */
		pthread_mutex_t lock;
		struct unquiet_table own; /* lock: what this process mounted */
		bool there, noted;        /* lock: the file is; own is in it */
	} unquiet;
	_Atomic uint32_t n_posts;
	/* loop */
	bool freed, rdma_watched, rdma_gone;
	struct shm_kept shm_kept;
	struct list kept_pds; /* of tenants that have gone, while something uses them */
	struct loop_timer pds_timer;
	uint32_t pds_look_ms;
	struct loop_fd rdma_fd;
	struct {
		uint64_t qp_id;    /* 0 = none */
		const char *words; /* static */
	} rdma_said[DP_RDMA_SAID]; /* the latest of what the device said of queue pairs */
	uint32_t rdma_said_n;
	struct uidmap uids; /* tenants, grants, sessions, and tombstones of all three */
	struct list tenants, grants, sessions, mounts, files, ops, revokes, listings, keys_listings;
	struct dp_grant_obj *grants_by_uid;   /* all of the list, dead ones too */
	struct list spare_ops, spare_revokes; /* owned: set aside, see dp_op_new */
	uint32_t n_spare_ops, n_spare_revokes;
	struct {
		/* what an engine has to close, while there is no memory for an operation of
		 * its own: one operation takes all of it, again and again */
		struct dp_file *files;
		struct dp_mount_obj *mounts;
		bool busy;
		struct dp_op op;
	} unclosed;
	struct dp_tenant *by_index[LEASE_TENANTS_MAX];
	struct dp_engine *engines[DP_ENGINES_MAX];
	struct dp_op *engine_drops[DP_ENGINES_MAX]; /* owned: of a slot, one for each reactor */
	bool destroying;                            /* a worker has an engine to end, or will */
	struct dp_op *rdma_lost;                    /* owned: one for each reactor */
	uint64_t lost_busy, lost_again;             /* a bit for each reactor */
	uint64_t next_grant, next_seq, next_handle;
	uint64_t shm_bytes, shm_limit; /* that all tenants' sessions share, or will; and may */
	struct dp_lent lent;
	/* loop: descriptors of open files and mounts */
	/* Threads of a reactor that the kernel may make for calls that block. */
	uint32_t io_workers;
	struct share descriptors;
	uint32_t n_descriptors;
	/* loop: a revocation that could not be held, see dp_revoke.c */
	struct revoke *freeze; /* owned; set aside at the start */
	bool frozen, freezing; /* nothing begins; its parts are under way */
	struct {
		struct dp_denied v[DP_DENIED]; /* a ring */
		uint32_t first, n;
		bool posted;
		struct dp_post post;
	} denied;
};

/* Set aside at the start and refilled by what ends: enough for denials and withdrawals under way
 * while there is no memory. */
#define DP_OPS_SPARE     256u
#define DP_REVOKES_SPARE 64u
#define DP_UIDS_SPARE    64u

/* dp_op.c: loop only, but dp_op_back. Without memory it is one of those set aside (op->spare); NULL
 * when these are used up, too: nothing is begun, and @done will hear BUSY. */
int dp_ops_reserve(struct dp *dp);
void dp_ops_unreserve(struct dp *dp);
struct dp_op *dp_op_new(struct dp *dp, dp_done_fn done, void *arg);
/* The same, but NULL without memory, and @done is not called. */
struct dp_op *dp_op_try(struct dp *dp, dp_done_fn done, void *arg);
/* The same for one embedded in another object, which outlives it: not under way already. */
void dp_op_begin(struct dp_op *op, struct dp *dp, dp_done_fn done, void *arg);
/* Sets the result and posts the end: for failures before anything was started. */
void dp_op_fail(struct dp_op *op, enum ros2_status s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void dp_op_set(struct dp_op *op, enum ros2_status s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void dp_op_set_err(struct dp_op *op, int code, const struct ros2_err *err);
/* The end: calls done, lets go of everything, frees. */
void dp_op_finish(struct dp_op *op);
void dp_op_free(struct dp_op *op);
void dp_denied_cancel(struct dp *dp); /* the callers of denied calls hear the end */
/* The tenant's protection domain, for a session over verbs or an engine that lends. False: the
 * operation has failed. Loop. */
bool dp_device_for(struct dp *dp, struct dp_tenant *t, struct dp_op *op);
void dp_op_to_reactor(struct dp_op *op, struct reactor *r,
                      void (*run)(struct reactor *r, struct dp_op *op),
                      void (*back)(struct dp_op *op));
/* Any thread: op->back runs on the loop. */
void dp_op_back(struct dp_op *op);
/* BUSY when the tenant has DP_CONTROL_PER_TENANT already: the operation is failed. */
void dp_op_to_worker(struct dp_op *op, struct dp_tenant *tenant, void (*work)(struct dp_op *op),
                     void (*back)(struct dp_op *op));
/* An operation of a session: looks it up and checks its rights now. NULL: failed, @done will be
 * called. */
struct dp_op *dp_op_of_session(struct dp *dp, const struct ros2_uid *session, dp_done_fn done,
                               void *arg);

/* The same for calls that give something up: they are carried out without memory, too. */
struct dp_op *dp_op_of_session_shrinking(struct dp *dp, const struct ros2_uid *session,
                                         dp_done_fn done, void *arg);

/* dp.c */
struct dp_tenant *dp_tenant_find(struct dp *dp, const struct ros2_uid *uid);
void dp_mount_ref(struct dp_mount_obj *m);
void dp_mount_unref(struct dp *dp, struct dp_mount_obj *m);
void dp_freed(struct dp *dp); /* the last post is through */

/* dp_unquiet.c. Loop; opts are set. */
int dp_unquiet_open(struct dp *dp, struct ros2_err *err);
/* What an engine of this document must know of an earlier process. Loop. */
void dp_unquiet_tell(const struct dp *dp, const struct nvmf_config *c, struct engine_config *ret);
/* Workers; blocks. Durable when it returns 0. */
int dp_unquiet_note(struct dp *dp, const struct nvmf_config *c, struct ros2_err *err);
/* Loop, once after open. @in_order: nothing of this process is left in an engine. */
void dp_unquiet_close(struct dp *dp, bool in_order);

/* dp_rights.c: any thread. OK, or why not: UNAUTHENTICATED, GRANT_EXPIRED, CONTACT_LOST. */
enum ros2_status dp_rights_now(const struct dp *dp, const struct dp_tenant *t,
                               const struct dp_grant_obj *g, uint64_t cert_deadline_ns,
                               uint64_t now_ns);
/* Until when that is OK if nothing changes; 0 when it is not. */
uint64_t dp_rights_until(const struct dp *dp, const struct dp_tenant *t,
                         const struct dp_grant_obj *g, uint64_t cert_deadline_ns);

/* dp_engine.c */
struct dp_engine *dp_engine_find(struct dp *dp, const char *name);
/* The engine itself, and what is ready for reactors, of which none has it. */
void dp_engine_destroy(struct dp_engine *e);
void dp_engine_free(struct dp_engine *e); /* its engine is destroyed; takes NULL */

/* dp_session.c */
/* The most that all sessions of one tenant may share. */
uint64_t dp_shm_tenant_bytes(const struct dp *dp);
struct dp_session *dp_session_find(struct dp *dp, const struct ros2_uid *uid);
void dp_session_ended(struct dp_session *ds);   /* the reactor said so, or a revoke did */
void dp_session_gone(struct dp_session *ds);    /* no request of it is left anywhere */
void dp_session_release(struct dp_session *ds); /* frees it when nothing names it any more */
void dp_session_free(struct dp_session *ds);
void dp_session_give_back(struct dp_op *op); /* memory of one that was not opened */
void dp_tenant_release(struct dp *dp, struct dp_tenant *t);
void dp_grant_release(struct dp *dp, struct dp_grant_obj *g);

/* dp_revoke.c */
int dp_revokes_reserve(struct dp *dp);
void dp_revokes_unreserve(struct dp *dp);
/* FROZEN: fills @err. Nothing new begins while a revocation could not be held. */
int dp_frozen_check(const struct dp *dp, struct ros2_err *err);
void dp_revokes_check(struct dp *dp);
void dp_revokes_free(struct dp *dp); /* and listings: their callers hear the end */

/* dp_keys.c */
void dp_keys_free(struct dp *dp); /* who asked hears the end */

/* workers.c */
int workers_new(struct dp *dp, uint32_t n, struct workers **ret);
/* Waits for what runs; what waits comes back with CANCELLED. */
void workers_stop(struct workers *w);
void workers_free(struct workers *w);
void workers_put(struct workers *w, struct dp_op *op);
/* How many engines there are: several leave workers to each other. */
void workers_engines(struct workers *w, uint32_t n);
/* By slot of the engine, the last: at none. Their names are not set. */
void workers_load(struct workers *w, struct dp_control_load ret[DP_ENGINES_MAX + 1]);
/* Takes back what has not begun and whose session has ended; their results are CLOSED, as if they
 * had come a moment later. */
void workers_cancel(struct workers *w);
/* Of calls that match: how many are inside an engine. */
uint32_t workers_running(struct workers *w, bool (*match)(const struct dp_op *op, void *arg),
                         void *arg);
#endif

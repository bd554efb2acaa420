/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One controller of one tenant at one target, never shared by tenants, and the thread that runs the
 * admin queues of all controllers of an engine. I/O queues are not here: reactors open them
 * (lane.h) while a controller is LIVE and end them when it is not.
 *
 *   CONNECTING --enabled, identified--> LIVE --fault, reset asked for--> LOST
 *       |  ^                              \                               | no I/O queue is left
 *       |  |                               \--last use ends--> SHUTDOWN   v
 *       |  +---time to wait is over--- BACKOFF <--CSTS.RDY=0, or not-- QUIESCING
 *       +--fault--> BACKOFF                             SHUTDOWN --CC.SHN done, or not--> gone
 *
 * Invariants: (1) between LOST and the next LIVE no command is handed to the target on an I/O
 * queue: CONNECTING is left only when every I/O queue of the generation before has ended; (2) a
 * write of generation g that was handed on and not answered is over only when nvmf_ctrl_quiet(c) >=
 * g: the target confirmed it (CC.EN = 0, then CSTS.RDY = 0), or the time is over after which it
 * cannot be carrying out anything of it; until then a write that overlaps it waits, whoever's it is
 * (fence); (3) what reactors read here is atomic, or is written only while no reactor has a queue;
 * (4) one target that is lost takes no time from another: every wait of the admin thread is a
 * deadline.
 *
 * Sources: NVM Express Base 2.0, 3.5 (initialisation), 3.6 (shutdown), 3.9 (keep alive), 6.
 */
#ifndef ROS2_DATAPLANE_NVMF_CTRL_H
#define ROS2_DATAPLANE_NVMF_CTRL_H

#include "common/err.h"
#include "dataplane/engine.h"
#include "dataplane/nvmf/config.h"
#include "dataplane/nvmf/queue.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct nvmf_proof;
struct nvmf_admin; /* the admin thread of one engine, and its controllers */
struct nvmf_ctrl;

#define NVMF_CTRLS_MAX   256u /* of one engine: tenants that have it mounted */
#define NVMF_CTRLS_EACH  16u  /* of a tenant, until those of before are shut down */
#define NVMF_QUEUES_MAX  64u  /* I/O queues of one controller: one for each reactor */
#define NVMF_FAULT_WORDS 200u
#define NVMF_FENCES_MAX  256u /* unanswered writes told one by one; with more, every write waits */

enum nvmf_ctrl_state {
	NVMF_CTRL_CONNECTING,
	NVMF_CTRL_LIVE,
	NVMF_CTRL_LOST,
	NVMF_CTRL_QUIESCING,
	NVMF_CTRL_BACKOFF,
	NVMF_CTRL_SHUTDOWN,
};
const char *nvmf_ctrl_state_to_str(enum nvmf_ctrl_state s);

struct nvmf_admin_opts {
	const struct nvmf_config *config;        /* borrowed: during the call; copied */
	const struct nvmf_queue_ops *queue;      /* static */
	const char *engine;                      /* its name, for words; copied */
	const char *secrets_dir;                 /* NULL = none; copied */
	uint32_t backoff_min_ms, backoff_max_ms; /* 0 = 100 and 10000 */
	/* engine_config's */
	uint64_t unquiet_since_ns, unquiet_keep_alive_ms, unquiet_quiesce_ms;
};
/* Starts the thread. -EINVAL: an address, name or number that config.h does not allow; -ENOMEM. */
int nvmf_admin_new(const struct nvmf_admin_opts *o, struct nvmf_admin **ret, struct ros2_err *err);
/* No controller is in use, no port is left. Those shutting down get up to half a second. */
void nvmf_admin_free(struct nvmf_admin *a);
const struct nvmf_config *nvmf_admin_config(const struct nvmf_admin *a);

/* ---- control threads; may block ---- */

/*
 * The controller of this tenant, made on first use. Waits until it was LIVE once, an attempt to
 * connect failed, or @wait_ms since it was made are over: then -ENOTCONN with the words of the last
 * fault, and nothing is held; it tries on for some seconds, in which whoever asks is answered at
 * once. One that was LIVE before is given out at once, whatever its state is now. -EDQUOT:
 * NVMF_CTRLS_MAX. -EBUSY: NVMF_CTRLS_EACH, which passes.
 */
int nvmf_ctrl_get(struct nvmf_admin *a, const struct engine_who *who, uint64_t wait_ms,
                  struct nvmf_ctrl **ret, struct ros2_err *err);
void nvmf_ctrl_ref(struct nvmf_ctrl *c);
/* Does not wait. The last one begins the shutdown. NULL is accepted. */
void nvmf_ctrl_put(struct nvmf_ctrl *c);

/* What is known of a namespace of the configuration. */
struct nvmf_geometry {
	uint64_t blocks;     /* 0: there is none of that id, or it cannot be used */
	uint8_t block_shift; /* 9..16 */
	bool unusable;       /* it is there, but its format is not for us */
	/* Counts the namespaces that had that id, one after the other: what was opened in one is
	 * not in the next. */
	uint32_t life;
};
/* Any thread. @volume: index in config.volumes. */
struct nvmf_geometry nvmf_ctrl_geometry(const struct nvmf_ctrl *c, uint32_t volume);

/* Any thread: must a flush be sent, or is durable what the controller that is LIVE, or was last,
 * acknowledged? */
bool nvmf_ctrl_write_cache(const struct nvmf_ctrl *c);

struct nvmf_ctrl_health {
	struct ros2_uid tenant;
	char name[ROS2_NAME_MAX + 1];
	enum nvmf_ctrl_state state;
	uint64_t since_ns;            /* boottime: when it became, or ceased to be, LIVE */
	uint64_t lives;               /* times it became LIVE */
	uint64_t unknown_writes;      /* ended with unknown outcome */
	uint64_t retries;             /* commands handed on again */
	uint64_t expired;             /* requests given up while the target was lost */
	char words[NVMF_FAULT_WORDS]; /* of the last fault; "" */
};
/* Any thread: @fn for one controller of each name of a tenant, under a lock that control threads
 * take. */
void nvmf_admin_health(struct nvmf_admin *a,
                       void (*fn)(void *arg, const struct nvmf_ctrl_health *h), void *arg);

/* Any thread: might a control call of this tenant wait for the target, as far as is known? */
bool nvmf_admin_lost(struct nvmf_admin *a, const struct ros2_uid *tenant);

/* Any thread: is there a controller of this tenant, even one that is shutting down? */
bool nvmf_admin_uses(struct nvmf_admin *a, const struct ros2_uid *tenant);

/* ---- reactors ---- */

/* A reactor's place to be woken at: whenever a controller's state, or what is quiet, changed. */
struct nvmf_port {
	int wake_fd; /* eventfd, of the reactor's engine part */
	struct list link;
};
void nvmf_port_add(struct nvmf_admin *a, struct nvmf_port *p);
void nvmf_port_remove(struct nvmf_admin *a, struct nvmf_port *p);

struct nvmf_view {
	enum nvmf_ctrl_state state;
	uint32_t generation; /* of the LIVE that is, or was last; 0 = never */
};
struct nvmf_view nvmf_ctrl_view(const struct nvmf_ctrl *c);
uint32_t nvmf_ctrl_index(const struct nvmf_ctrl *c); /* below NVMF_CTRLS_MAX, while it is used */
struct nvmf_admin *nvmf_ctrl_admin(const struct nvmf_ctrl *c);

/* What an I/O queue needs. Valid from nvmf_lane_begin to nvmf_lane_end. */
struct nvmf_live {
	uint16_t cntlid;
	uint32_t depth;        /* commands in flight */
	uint32_t transfer_max; /* bytes of a command, a multiple of 4096 */
	uint32_t in_capsule_max;
	bool write_cache; /* volatile: what is acknowledged is not durable before a flush */
	/* What one command may clear; 0: the target cannot. Commands name at least one block. */
	uint64_t zeroes_max;         /* bytes */
	uint64_t discard_blocks_max; /* in one range, alone */
};
/* A reactor uses the controller: until nvmf_lane_drop the memory stays. Only while it is
 * referenced. */
void nvmf_lane_hold(struct nvmf_ctrl *c);
void nvmf_lane_drop(struct nvmf_ctrl *c);
/* Takes a queue identifier of the generation that is LIVE. -ENOTCONN: it is not; -EDQUOT: the
 * target gives fewer queues than there are reactors. */
int nvmf_lane_begin(struct nvmf_ctrl *c, uint32_t generation, struct nvmf_live *ret,
                    uint16_t *ret_qid);
/* The queue has ended, everything in it came back, fences are told. */
void nvmf_lane_end(struct nvmf_ctrl *c, uint16_t qid);
/* What Fabrics Connect of an I/O queue tells. */
int nvmf_lane_connect_data(const struct nvmf_ctrl *c, struct nvme_connect_data *ret);
/* Begins to prove the I/O queue, with what the admin queue proved itself with; one step after the
 * other, each computed by the admin thread. -EKEYREJECTED: that one had not to. Within
 * nvmf_lane_begin and _end. */
int nvmf_proof_new(const struct nvmf_ctrl *c, struct nvmf_proof **ret, struct ros2_err *err);
/* Its request is done, whatever step it is in. NULL is accepted. */
void nvmf_proof_drop(struct nvmf_proof *p);
/* The next step, from the target's answer to the one before (NULL: the first). The reactor's port
 * is woken when it is there. */
void nvmf_proof_ask(struct nvmf_proof *p, const struct nvme_cqe *answer);
/* -EINPROGRESS: not yet. 0: command, direction, buffer and length of the next message are in @ret;
 * 1: there is none, both are who they say; -EKEYREJECTED, -EPROTO, -EIO: end the queue. */
int nvmf_proof_take(struct nvmf_proof *p, struct nvmf_req *ret, struct ros2_err *err);
/* The controller of this generation must end: a write is unanswered, or it refuses a queue. */
void nvmf_ctrl_reset(struct nvmf_ctrl *c, uint32_t generation, const char *why);
const struct sockaddr *nvmf_ctrl_peer(const struct nvmf_ctrl *c);
struct fabric_pd *nvmf_ctrl_pd(const struct nvmf_ctrl *c); /* NULL: over no RDMA device */
/* May targets be asked to invalidate keys of commands that are over? @pd may be NULL. */
bool nvmf_peer_invalidates(const struct fabric_pd *pd);

/* A write to @volume that was handed on in @generation and not answered. Before nvmf_lane_end. */
void nvmf_fence_add(struct nvmf_ctrl *c, uint32_t generation, uint32_t volume, uint32_t nsid,
                    uint64_t offset, uint64_t len);
/* Must a write of these bytes of the namespace wait, for one of this tenant or of any other that
 * has the engine? In doubt it must: asked again it is told. Within nvmf_lane_begin and _end. */
bool nvmf_fence_hits(const struct nvmf_ctrl *c, uint32_t nsid, uint64_t offset, uint64_t len);
/* The last generation of which nothing can happen at the target any more. */
uint32_t nvmf_ctrl_quiet(const struct nvmf_ctrl *c);

enum nvmf_count { NVMF_COUNT_UNKNOWN, NVMF_COUNT_RETRY, NVMF_COUNT_EXPIRED, NVMF_COUNTS };
void nvmf_ctrl_count(struct nvmf_ctrl *c, enum nvmf_count what);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the nvmf engine share: engine.c (life, open objects), engine_names.c (volumes
 * as a tree of names), engine_reactor.c (the data path's face), engine_flush.c (what a flush may
 * say), engine_keys.c (what the target may reach, and its end), lane.c (the I/O queue of one
 * controller at one reactor), lane_io.c (requests as commands). Must not be included outside
 * dataplane/nvmf and its tests.
 *
 *   DOWN --begin, connect--> CONNECTING --transport ready--> JOINING --Fabrics Connect--> READY
 *     ^                          \_____________\___________________fault, controller lost__/
 *     \--the queue is freed, all came back-- ENDING <-------------/
 *
 * Everything of a reactor, its lanes and requests is of that reactor's thread. Invariants: (1) a
 * request is in exactly one list: waiting (bytes not yet in a command), begun, unknown, done; (2)
 * it is over only with no command left; (3) a command that was handed on and not answered is handed
 * on again only if it does not change the medium; (4) a write of unknown outcome ends when the
 * controller it was handed to is quiet; (5) nothing is handed on, or handed on again, from the io's
 * until_ns on: the clock is read once for all that one kick hands on; (6) a flush says that all
 * that was written before is durable only if the controller that flushed has taken all of it: a
 * target that came back may have lost its cache.
 */
#ifndef ROS2_DATAPLANE_NVMF_ENGINE_PRIV_H
#define ROS2_DATAPLANE_NVMF_ENGINE_PRIV_H

#include "dataplane/engine.h"
#include "dataplane/nvmf/codec.h"
#include "dataplane/nvmf/ctrl.h"
#include <pthread.h>

#define NVMF_OPEN_WAIT_MS  5000u
#define NVMF_TICK_MS       50u
#define NVMF_TRIES_MAX     5u /* of one command */
#define NVMF_RETRY_MS      100u
#define NVMF_RETRY_MAX_MS  10000u /* the longest pause before an I/O queue is opened again */
#define NVMF_DEADLINES     3u     /* a request's time, in command time-outs */
#define NVMF_REFUSALS_MAX  3u     /* of an I/O queue, before the controller is reset */
#define NVMF_LANE_POLL_MAX 256u
#define NVMF_WAITERS_MAX   16u /* of a lane that is not ready; the others are given back */
#define NVMF_STALL_TICKS   6u  /* without an answer to what is in flight: the target is away */

struct engine {
	struct nvmf_admin *admin; /* owned */
	const struct nvmf_queue_ops *queue;
};

struct engine_ns {
	struct nvmf_ctrl *ctrl; /* referenced */
	struct engine *engine;
	const struct engine_ops *ops;
	char prefix[NVMF_VOLUME_NAME_MAX + 1]; /* "" = all volumes */
};

struct engine_file {
	struct nvmf_ctrl *ctrl; /* referenced */
	struct engine *engine;
	uint32_t volume, flags, nsid;
	uint64_t base, size; /* bytes; size 0 = to the end of the namespace */
	uint8_t block_shift; /* as it was opened */
	uint32_t life;       /* of the namespace; as it was opened */
	/* Any thread: generation of the controller that took the oldest write which only a volatile
	 * cache may have; 0 = none since the last flush. */
	_Atomic uint32_t cached;
	/* flushes_lock: those under way, by whatever thread; when one was last told of a loss */
	pthread_mutex_t flushes_lock;
	struct list flushes; /* nios */
	uint64_t told_ns;
};
/* The volume's extent in a namespace as it is now: bytes. -ENOENT: no namespace; -EOPNOTSUPP: of no
 * use; -ERANGE: the extent is not within it; -ESTALE: since it was opened its block size changed,
 * or another namespace has its id. */
int nvmf_file_size(const struct engine_file *f, uint64_t *ret, struct ros2_err *err);

/* One engine_io inside. */
struct nvmf_nio {
	struct engine_io *io;
	struct nvmf_lane *lane;
	uint64_t offset; /* bytes, in the namespace */
	uint32_t len;
	uint32_t at;     /* bytes given to commands; flush: 1 when it is */
	uint32_t n_cmds; /* given and not done */
	uint64_t deadline_ns;
	uint32_t generation; /* of the last unanswered write */
	/* A write: of its first answer. A flush: of the oldest write that it speaks for. */
	uint32_t cached;
	uint32_t took;    /* a flush: of that, what it took from its file */
	uint32_t flushed; /* of the controller that flushed */
	uint64_t asked_ns;
	struct list link_flush; /* the file's flushes */
	/* partly: the target may have done some of a write, or has; refused: res is not its word */
	bool partly, unknown, refused, over;
	int64_t res; /* negative: it failed */
	struct list link;
};

struct nvmf_cmd {
	struct nvmf_req req;
	struct nvmf_nio *nio; /* NULL = free */
	uint32_t at, len, tries;
	uint64_t not_before_ns;
	struct nvme_dsm_range range; /* of a deallocate: its data */
	struct list link;            /* free or again */
};

enum nvmf_lane_state { LANE_DOWN, LANE_CONNECTING, LANE_JOINING, LANE_READY, LANE_ENDING };

struct nvmf_lane {
	struct nvmf_ctrl *ctrl; /* held by nvmf_lane_hold */
	struct engine_reactor *er;
	const struct nvmf_queue_ops *ops;
	enum nvmf_lane_state state;
	uint32_t generation;  /* of the queue that is, or was last */
	bool dead;            /* of this generation no other queue is opened */
	struct nvmf_queue *q; /* owned */
	uint16_t qid;
	struct nvmf_live live;
	struct nvmf_req join;
	uint32_t failures; /* queues that could not join, one after the other */
	uint32_t ends;     /* queues that did not live for NVMF_RETRY_MAX_MS, one after the other */
	uint64_t ready_ns, open_at_ns;
	uint32_t n_unknown;         /* of the queue that ends */
	uint64_t last_withdrawn_ns; /* of queues that are gone */
	bool hot, kick, given_up;
	uint32_t n_ios;
	uint64_t waits_since_ns; /* while it is not READY and holds requests */
	uint32_t still;          /* ticks in which nothing of what is in flight was answered */
	struct nvmf_nio *nios;   /* owned: places of this tenant alone */
	struct list free_nios;
	struct nvmf_cmd *cmds; /* owned */
	struct list free, again;
	struct list waiting, begun, unknown; /* nios */
	struct list link, link_hot;
	char fault[NVMF_FAULT_WORDS];
	struct nvme_connect_data connect_data;
	struct nvmf_proof *proof; /* owned; while JOINING, where the target asks for it */
};

struct engine_reactor {
	struct engine *engine;
	struct nvmf_port port;
	int epoll_fd, timer_fd;
	bool timer_on;
	uint32_t tenant_depth, n_used;
	struct list done;
	struct list lanes, hot;
	struct nvmf_lane *by_index[NVMF_CTRLS_MAX]; /* owned */
	uint64_t copied_bytes;                      /* by queues that are gone */
	uint64_t key_ids;                           /* given out so far */
};

/* engine.c: with queues of another make, for tests. */
int nvmf_engine_create(const struct engine_config *c, const struct nvmf_queue_ops *queue,
                       struct engine **ret, struct ros2_err *err);

/* engine_names.c */
int nvmf_ns_open(struct engine *e, const struct engine_who *who, const char *path,
                 struct engine_ns **ret, struct ros2_err *err);
int nvmf_readdir(struct engine_ns *ns, const char *path, uint64_t cookie, struct engine_dirent *out,
                 uint32_t max, uint32_t *ret_n, uint64_t *next, struct ros2_err *err);
/* The volume of that name; -ENOENT, -EISDIR: names below it are volumes, -ENOTDIR: it is below one.
 */
int nvmf_volume_find(const struct engine_ns *ns, const char *path, uint32_t *ret,
                     struct ros2_err *err);

/* engine_reactor.c */
int nvmf_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                     struct engine_reactor **ret, struct ros2_err *err);
void nvmf_reactor_free(struct engine_reactor *r);
int nvmf_event_fd(struct engine_reactor *r);
int nvmf_submit(struct engine_reactor *r, struct engine_io *io);
int nvmf_kick(struct engine_reactor *r);
uint32_t nvmf_poll(struct engine_reactor *r, uint32_t max);
void nvmf_withdraw(struct engine_reactor *r, struct engine_io *io);
uint32_t nvmf_in_flight(const struct engine_reactor *r);
bool nvmf_away(const struct engine_reactor *r, const struct engine_file *f);
uint32_t nvmf_parked(const struct engine_reactor *r);
uint64_t nvmf_copied_bytes(const struct engine_reactor *r);
/* Over: its done runs in this poll or the next. */
void nvmf_nio_over(struct engine_reactor *r, struct nvmf_nio *nio, int64_t res);

/* engine_flush.c */
void nvmf_flush_begins(struct nvmf_nio *nio);
/* Is there anything that a flush of this file must be sent, or told, for? */
bool nvmf_flush_needed(struct engine_file *f);
/* The result of a nio that is over: what only a cache may have is noted with its file, and of a
 * flush it is said what was lost. */
int64_t nvmf_flush_judge(struct nvmf_nio *nio, int64_t res);

/* engine_keys.c */
uint32_t nvmf_forget_regions(struct engine_reactor *r, const struct fabric_pd *pd);
uint32_t nvmf_end_keys(struct engine_reactor *r, struct engine_io *io);
uint32_t nvmf_keys_ending(const struct engine_reactor *r, const struct fabric_pd *pd,
                          uint64_t until_ns, uint64_t *ret_last_ns);
void nvmf_keys(const struct engine_reactor *r, const struct fabric_pd *pd, bool folded,
               key_info_fn fn, void *arg);

/* lane.c */
/* NULL: no memory. */
struct nvmf_lane *nvmf_lane_of(struct engine_reactor *r, struct nvmf_ctrl *c, int *rc);
void nvmf_lane_free(struct nvmf_lane *l);
void nvmf_lane_look(struct nvmf_lane *l, uint64_t now_ns); /* the controller changed. May free it */
void nvmf_lane_event(struct nvmf_lane *l, uint64_t now_ns);
void nvmf_lane_tick(struct nvmf_lane *l, uint64_t now_ns);
void nvmf_lane_heat(struct nvmf_lane *l); /* it has something to hand on */
void nvmf_lane_open(struct nvmf_lane *l, uint64_t now_ns);
/* Requests in it wait for the target, now. */
uint64_t nvmf_lane_patience_ns(const struct nvmf_lane *l); /* of a request */
bool nvmf_lane_waits(const struct nvmf_lane *l);
/* It has requests that are not over; n_ios counts those that wait for the poll, too. */
bool nvmf_lane_holds(const struct nvmf_lane *l);

/* lane_io.c */
void nvmf_lane_pump(struct nvmf_lane *l, uint64_t now_ns);
void nvmf_lane_fail_all(struct nvmf_lane *l, int rc); /* of what no command has */
void nvmf_lane_withdraw(struct nvmf_lane *l, struct nvmf_nio *nio);
/* Keys of its commands that the queue has; how many ended. */
uint32_t nvmf_lane_end_keys(struct nvmf_lane *l, const struct nvmf_nio *nio, uint64_t now_ns);
void nvmf_lane_expire(struct nvmf_lane *l, uint64_t now_ns);
/* The queue is gone: of what would wait only the oldest stay. */
void nvmf_lane_give_back(struct nvmf_lane *l);
void nvmf_lane_quiet(struct nvmf_lane *l); /* ends writes whose controller is quiet */
#endif

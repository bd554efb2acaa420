/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the controller share: admin.c (thread, table, references), ctrl.c (states),
 * ctrl_steps.c (admin commands one after the other), ctrl_lane.c and proof.c (what reactors call),
 * fence.c.
 * Must not be included outside dataplane/nvmf and its tests.
 *
 * Locks: admin.lock guards the table, references, words and ports; it is taken by control threads
 * and the admin thread for moments, by reactors only when they come and go. fence_lock is taken by
 * reactors only when a queue has died with writes in it.
 */
#ifndef ROS2_DATAPLANE_NVMF_CTRL_PRIV_H
#define ROS2_DATAPLANE_NVMF_CTRL_PRIV_H

#include "dataplane/nvmf/codec.h"
#include "dataplane/nvmf/ctrl.h"
#include "dataplane/nvmf/login.h"
#include <netinet/in.h>
#include <pthread.h>

#define NVMF_ADMIN_DEPTH   31u
#define NVMF_LOSSES_MAX    16u
#define NVMF_SHUTDOWN_MS   2000u
#define NVMF_POLL_READY_MS 10u
/* Between the handling of two events: no target makes this thread spin. */
#define NVMF_EVENT_GAP_MS 100u

/* One thing that an admin command, or a few of one kind, achieve. */
struct nvmf_step {
	const char *name;
	/* Fills c->req. 1: there is nothing to do. */
	int (*fill)(struct nvmf_ctrl *c, struct ros2_err *err);
	/* The target's answer: 0 = done, STEP_AGAIN, STEP_LATER, negative errno = a fault. */
	int (*got)(struct nvmf_ctrl *c, const struct nvme_cqe *cqe, struct ros2_err *err);
};
enum { STEP_AGAIN = 1, STEP_LATER = 2 };
extern const struct nvmf_step *const nvmf_program_setup[],
	*const nvmf_program_rescan[], *const nvmf_program_disable[], *const nvmf_program_shutdown[];

/* Packed, so that a reactor sees size and block size of one moment. */
#define NVMF_GEOMETRY_UNUSABLE (0xfeull << 56)

struct nvmf_ns_state {
	uint32_t nsid;
	_Atomic uint64_t geometry; /* block shift << 56 | blocks; 0 = not there */
	/* Which of those that had this id it is; set before the geometry, and read after it. */
	_Atomic uint32_t life;
	/* admin thread */
	bool stale; /* to be identified again */
	bool known; /* what ids is of */
	struct nvme_ns_ids ids;
};

struct nvmf_fence {
	uint32_t generation, nsid;
	uint64_t offset, len;
};

/* Of one volume, what other tenants see of it: the bytes from its first unanswered write to its
 * last, so that no more than the volume is ever held. @to 0: there is none. */
struct nvmf_fence_box {
	uint32_t generation, nsid;
	uint64_t from, to;
};

struct nvmf_loss {
	uint32_t generation;
	uint64_t quiet_at_ns;
};

struct nvmf_ctrl {
	/* immutable after init */
	struct nvmf_admin *admin;
	uint32_t index;
	struct ros2_uid tenant;
	char name[ROS2_NAME_MAX + 1];
	char host_nqn[NVMF_NQN_MAX + 1];
	struct fabric_pd *pd; /* borrowed: stays as long as this does; NULL = none */
	uint8_t host_id[16];
	uint32_t n_ns;
	uint32_t ns_of[NVMF_VOLUMES_MAX]; /* volume -> ns */
	/* any thread */
	_Atomic uint64_t view;  /* generation << 8 | state */
	_Atomic uint32_t quiet; /* generation */
	_Atomic uint32_t n_lanes, n_queues;
	_Atomic uint64_t qids;  /* in use: bit n is qid n + 1 */
	_Atomic uint32_t reset; /* the generation that must end */
	_Atomic uint64_t counts[NVMF_COUNTS];
	_Atomic uint64_t since_ns, lives;
	_Atomic bool write_cache;
	_Atomic bool settled; /* no killed process's controller writes any more */
	struct nvmf_ns_state ns[NVMF_VOLUMES_MAX];
	_Atomic uint32_t n_fences,
		fence_all; /* fence_all: generation of those that found no room */
	struct nvmf_fence fences[NVMF_FENCES_MAX];
	pthread_mutex_t fence_lock;
	/* admin.boxes_lock */
	struct nvmf_fence_box boxes[NVMF_VOLUMES_MAX];
	uint32_t n_boxes;
	struct list link_boxes; /* admin.boxed, while it has some */
	/* written by the admin thread while n_queues is 0 and it is not LIVE */
	struct nvmf_live live;
	uint32_t queues_given;
	struct nvmf_secrets secrets; /* with which the admin queue proved itself */
	/* admin.lock */
	uint32_t refs, attempts; /* attempts: to connect, that failed */
	uint64_t begun_ns;       /* when it was made */
	uint64_t linger_ns;      /* without a reference it is kept until then */
	char words[NVMF_FAULT_WORDS];
	char reset_words[NVMF_FAULT_WORDS];
	/* admin thread */
	enum nvmf_ctrl_state state;
	uint32_t generation;
	struct nvmf_queue *q; /* owned */
	bool readable, kick, fault;
	char fault_words[NVMF_FAULT_WORDS];
	uint64_t state_until_ns, wake_at_ns; /* deadline of the state; when to run again */
	uint32_t failures;                   /* attempts since the last LIVE */
	uint32_t lies;                       /* that ended it, one soon after the other */
	/* one admin command at a time */
	const struct nvmf_step *const *program; /* NULL = none */
	const struct nvmf_step *asked;          /* what req is of */
	bool busy;                              /* the target has req */
	uint64_t again_at_ns;
	uint32_t cursor;             /* within a step */
	struct nvme_namespace found; /* there; what it is known by is asked next. No blocks: none */
	uint64_t another_told_ns;    /* not before is it logged again that one is another */
	struct nvmf_req req, alive, event;
	uint64_t alive_at_ns, event_at_ns;
	bool alive_busy, event_busy, event_off, rescan;
	uint64_t ready_until_ns;
	struct nvme_cap cap;
	struct nvme_controller id;
	uint16_t cntlid;
	struct nvmf_login login;
	struct nvmf_loss losses[NVMF_LOSSES_MAX]; /* oldest first */
	uint32_t n_losses;
	_Alignas(4096) uint8_t data[NVME_IDENTIFY_LEN];
};

struct nvmf_admin {
	/* immutable after init */
	struct nvmf_config config;
	const struct nvmf_queue_ops *queue;
	char engine[ROS2_NAME_MAX + 1];
	char *secrets_dir; /* owned; NULL = none */
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} peer;
	uint64_t backoff_min_ns, backoff_max_ns;
	uint64_t unquiet_since_ns, unquiet_keep_alive_ms, unquiet_quiesce_ms;
	int epoll_fd, wake_fd;
	pthread_t thread;
	_Atomic bool stop, ending; /* ending: nothing lingers */
	pthread_mutex_t lock;
	pthread_cond_t changed;     /* CLOCK_MONOTONIC */
	_Atomic uint32_t n_boxes;   /* of all controllers */
	pthread_mutex_t boxes_lock; /* reactors wait for it only when a queue has died */
	struct list boxed;          /* boxes_lock: controllers */
	/* lock; entries are made by control threads and removed by the admin thread */
	struct nvmf_ctrl *ctrls[NVMF_CTRLS_MAX];
	struct list ports;
	struct list proofs; /* that wait for the thread */
};

/* admin.c: any thread */
void nvmf_admin_wake(struct nvmf_admin *a);
void nvmf_admin_wake_ports(struct nvmf_admin *a);

/* proof.c: admin thread. Computes a step of one; true: there are others. */
bool nvmf_proofs_run(struct nvmf_admin *a);

/* ctrl.c: admin thread */
/* Lets pass what has come and what is due. False: it is gone, and may be freed. */
bool nvmf_ctrl_run(struct nvmf_ctrl *c, uint64_t now_ns);
void nvmf_ctrl_fault(struct nvmf_ctrl *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void nvmf_ctrl_drop_queue(struct nvmf_ctrl *c);

/* ctrl_steps.c: admin thread */
void nvmf_steps_begin(struct nvmf_ctrl *c, const struct nvmf_step *const *program);
/* Hands on the next command when it is time. */
void nvmf_steps_run(struct nvmf_ctrl *c, uint64_t now_ns);
/* Keep alive and asynchronous events of a LIVE controller. */
void nvmf_events_begin(struct nvmf_ctrl *c, uint64_t now_ns);
void nvmf_events_run(struct nvmf_ctrl *c, uint64_t now_ns);

/* fence.c: admin thread */
void nvmf_losses_add(struct nvmf_ctrl *c, uint64_t quiet_at_ns);
/* True: something became quiet. */
bool nvmf_losses_run(struct nvmf_ctrl *c, uint64_t now_ns);
/* Forgets fences that are over; no reactor has a queue. */
void nvmf_fences_trim(struct nvmf_ctrl *c);
/* Forgets what other tenants see of them: what is quiet, or, with @all, everything. */
void nvmf_boxes_trim(struct nvmf_ctrl *c, bool all);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent as one object: what every file of agent/ hangs on. Made by agent_new, which reads the
 * local state; agent_start begins to serve and to talk to the controller. Everything here belongs
 * to the loop's thread.
 */
#ifndef ROS2_AGENT_AGENT_H
#define ROS2_AGENT_AGENT_H

#include "agent/audit.h"
#include "agent/contact.h"
#include "agent/identity.h"
#include "agent/prober.h"
#include "agent/revocations.h"
#include "agent/spool.h"
#include "agent/state.h"
#include "agent/writer.h"
#include "common/loop.h"
#include <limits.h>

struct dp;
struct uplink;
struct grants;
struct sessions;
struct service;
struct persist;
struct revoker;
struct health;
struct bundles;
struct metrics;

struct agent_opts {
	struct loop *loop;        /* owned from agent_new on, also when it fails */
	struct identity identity; /* enrolled */
	const char *state_dir;    /* borrowed; locked by the caller */
	const char *controller;   /* host:port; NULL: no uplink (tests) */
	const char *enrol; /* host:port of the enrolment listener, for a certificate that has ended;
	                      or NULL */
	const char *listen;         /* host:port of the tenants' gRPC service */
	const char *data_host;      /* where the data plane listens */
	const char *secrets_dir;    /* of engines; agent_secrets_check was well; NULL: none */
	const char *rdma_device;    /* NULL: no sessions over verbs */
	const char *rdma_host;      /* its address; not NULL with a device */
	uint64_t rdma_total_bytes;  /* dp_opts.rdma_total_bytes */
	const char *shm_dir;        /* NULL: no sessions over shared memory */
	const char *seal_program;   /* dp_opts.seal_program */
	uint64_t shm_tenant_bytes;  /* dp_opts.shm_tenant_bytes, */
	uint64_t shm_total_bytes;   /* and shm_total_bytes */
	const char *metrics_listen; /* NULL: none; common/metrics.h */
	bool metrics_allow_remote;
	uint32_t reactors;    /* 0 = all cores */
	uint32_t poll_us;     /* dp_opts.poll_us */
	uint32_t io_features; /* what the file engine is to do without: dp.h */
	/* Caps at accept, 0 = default: of the tenants' listener; of connections of the data port
	 * that have proved nothing, per reactor. */
	uint32_t tenant_connections, tenant_connections_per_address;
	uint32_t unproved_connections, unproved_connections_per_address;
	uint64_t spool_quota_bytes;    /* 0 = default */
	uint32_t tenant_records_per_s; /* 0 = default: service.h */
	/* 0 = default; the snapshot is written anew beyond twice its content plus this */
	uint64_t snapshot_slack_bytes;
	/* 0 = default; of a revocation log below this nothing is left out */
	uint64_t revlog_compact_bytes;
	prober_fn probe;             /* NULL: nothing is tried, so nothing counts as seen */
	void (*on_ready)(void *arg); /* tenants are served; once */
	/* The process must end, at once and without a word to anybody: a failed fsync. */
	void (*on_fatal)(void *arg, const struct ros2_err *err);
	void *arg;
};

struct agent {
	struct agent_opts o;
	struct ros2_uid incarnation; /* of this start of the process */
	struct agent_trust trust;
	struct contact contact;
	struct agent_epoch epoch; /* highest seen; durable before anything under it is acted on */
	struct agent_epoch epoch_stored;   /* the one the files on disk name */
	uint64_t last_counter, last_batch; /* newest seal seen */
	uint64_t snapshot_sequence;        /* of the newest snapshot on disk or being written */
	bool synced; /* a snapshot was loaded, or the first synchronisation is done */
	/* A snapshot was loaded, but no contact: a revocation may have found no room here. No stamp
	 * counts before the controller has sent all it owes. */
	bool in_doubt;
	bool serving, ready_told, stopping;
	bool ended; /* in agent_free: nothing new goes to a writer */

	struct dp *dp;
	struct writer *revoke_writer; /* revocations only: nothing is in their way */
	struct writer *disk_writer;
	struct revlog *revlog;
	struct spool *spool;
	struct agent_audit *audit;
	struct state *state;
	struct persist *persist;
	struct sessions *sessions;
	struct grants *grants;
	struct revoker *revoker;
	struct health *health;
	struct bundles *bundles;
	struct prober *prober;
	struct metrics *metrics; /* NULL without metrics_listen */
	struct uplink *uplink;   /* NULL without a controller */
	struct service *service;
	struct loop_timer sweep;
	struct stopping *stop; /* owned; from agent_stop on: late callbacks find it */
};

int agent_new(const struct agent_opts *o, struct agent **ret, struct ros2_err *err);
/* Listens, opens the stream. */
int agent_start(struct agent *a, struct ros2_err *err);
/* Sessions are told, contact and audit drafts go to disk; then fn runs. */
void agent_stop(struct agent *a, loop_fn fn, void *arg);
/* After the loop has ended; frees the loop, whose last posts are the agent's. */
void agent_free(struct agent *a);

/* DIR/NAME of the state directory. */
void agent_path(const struct agent *a, const char *name, char out[PATH_MAX]);
void agent_fatal(struct agent *a, const struct ros2_err *err);
/* Something of ready's conditions may have come true. */
void agent_check_ready(struct agent *a);
uint16_t agent_tenant_port(const struct agent *a);

/* metrics.c: when agent_opts asks for it. */
int agent_metrics_start(struct agent *a, struct ros2_err *err);

/* ---- persist.c: the snapshot and the contact file, group-committed ---- */
int persist_new(struct agent *a, struct persist **ret);
void persist_free(struct persist *p);
/* Reads the snapshot and the contact file into @a. */
int persist_load(struct agent *a, struct ros2_err *err);
/* What the state holds now is to be durable; @fn (may be NULL) runs when it is. @arg is malloc'd or
 * NULL: @fn frees it, or the end of the agent does when that comes first. -ENOMEM: it will be
 * durable, but @fn does not run and @arg stays the caller's. Never fails without @fn. */
int persist_request(struct persist *p, loop_fn fn, void *arg);
/* Of the newest snapshot that is durable. */
uint64_t persist_sequence(const struct persist *p);
/* Contact moved: its file follows, at most every few seconds; @now: at once. */
void persist_contact(struct persist *p, bool now);
/* A bundle was with the writer, for which contact had to wait. */
void persist_contact_unheld(struct persist *p);
bool persist_is_idle(const struct persist *p);
/* What took rights away and is in memory only: the disk gives more than is in force. While there is
 * any, contact is not written, and its file gives nothing after a restart. */
enum persist_doubt {
	DOUBT_REVOCATION = 1,
	DOUBT_DOCUMENT = 2, /* an object narrowed or removed */
	DOUBT_BUNDLE = 4,
};
/* There is some: the stamp is taken out of the file, again with each call until it is out. */
void persist_doubt(struct persist *p, enum persist_doubt which);
/* The process would end with something of it in memory and a stamp on disk. */
bool persist_is_ahead_of_disk(const struct persist *p);
/* For revocations, whose receipts wait for it: *ret is what the file of contact is to hold. */
void persist_distrust(struct persist *p, uint8_t ret[CONTACT_FILE_LEN]);
/* The disk writer: writes that over the file, which needs no space, or else removes it. */
int persist_unstamp(const struct persist *p, const uint8_t with[CONTACT_FILE_LEN],
                    struct ros2_err *err);
/* The process ends with something of the kind in memory: the file gives nothing, and no stamp is
 * written any more. On the loop's thread; waits for what the writer has in hand. */
void persist_end_in_doubt(struct persist *p);
/* All of that kind is on disk; of every kind: contact is written again. */
void persist_trust(struct persist *p, enum persist_doubt which);
/* Makes the snapshot go away, durably: a damaged revocation log covers everything in it. Its epoch
 * stays, in the contact file. */
int persist_forget(struct agent *a, struct ros2_err *err);
#endif

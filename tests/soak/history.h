/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of a soak: what an administrator was told, kept outside of the processes that are
 * killed, and compared with what controller, audit log and clients' notes show. One lock
 * (world.lock) covers everything; an operation holds it from its call to its entry in the history.
 *
 * An operation whose answer did not come leaves its object `unsure`: the next look at it decides,
 * within what that operation could have done.
 */
#ifndef ROS2_TESTS_SOAK_HISTORY_H
#define ROS2_TESTS_SOAK_HISTORY_H

#include "common/crypto.h"
#include "common/err.h"
#include "common/ids.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "proto/rpc/rpc.h"
#include "tests/soak/notes.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <uthash.h>

#define LIVE_TENANTS  4
#define OBJECTS_MAX   32
#define NOTES_MAX     16
#define WINDOWS_MAX   65536
#define CONTACT_SLACK (20 * 1000000ull) /* the reactors' clock is read once per batch */

enum soak_op { OP_NONE, OP_CREATE, OP_CHANGE, OP_DELETE, OP_REVOKE, OP_REINSTATE };

struct object {
	int kind;
	char name[ROS2_NAME_MAX + 1];
	int live;            /* index of a tenant that has clients, else -1 */
	enum soak_op unsure; /* what was asked and not answered */
	bool present, revoked;
	struct ros2_uid uid;
	uint64_t version, generation, no_io_from_ns, revoked_at_ns;
};

/* No I/O of this tenant that was submitted at or after from and done before until may succeed. */
struct window {
	int tenant;
	uint64_t from_ns, until_ns;
	const char *why;
};

/* A name, and what is known of it: sets and maps of the checkers. */
struct fact {
	char key[192];
	uint64_t n, seen; /* as its owner likes */
	uint64_t unanswered;
	uint64_t at_ns;    /* dead from here */
	uint64_t ended_ns; /* a grant: when the controller was first seen to list it so */
	char other[ROS2_UID_STR_LEN];
	UT_hash_handle hh;
};

struct world {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct rpc_channel *channel;
	bool run_ops, stopping;
	int tries;         /* of 100 ms, until agents must be at rest */
	bool long_contact; /* negative control: documents allow more than the checks believe */
	uint64_t random, next_op;
	const char *dir, *engine_root;
	FILE *journal;
	struct object object[OBJECTS_MAX];
	int n_objects;
	struct notes *notes[NOTES_MAX];
	int notes_tenant[NOTES_MAX], n_notes;
	bool told[NOTES_MAX]; /* that its client found something broken */
	struct window window[WINDOWS_MAX];
	uint64_t n_windows, windows_checked;
	uint64_t down_since_ns;
	uint64_t all_there_ns; /* since then every agent has answered; 0: one is away */
	uint64_t epoch, acks, unanswered, checks, failures;
	/* The log as read so far. */
	uint64_t log_seq;
	uint8_t log_chain[SHA256_LEN];
	struct fact *recorded; /* what admins did, as the log tells */
	struct fact *expected; /* what they were told; goes when it is found */
	struct fact *tokens;   /* per agent: n acknowledged, seen recorded, and unanswered */
	struct fact *sessions; /* session.open: other = grant; n files, seen regions */
	struct fact *issued;   /* grant.issue */
	struct fact *origins;  /* agent/incarnation: n = last sequence, seen = records */
	struct fact *counted;  /* agent/incarnation: n = records in counts, seen = last of them */
	struct fact *gaps;     /* agent/incarnation: n = records that a gap record names */
	struct fact *grants;   /* as listed: n = 1 live, 2 ended; at_ns: revoked by us */
	struct fact *dead_sessions; /* revoked by us: at_ns */
	struct fact *old_uids;      /* of deleted objects */
};

uint64_t world_random(struct world *w, uint64_t below);
/* Prints "FAIL words" for the driver, counts. */
void world_fail(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line of the history, on disk before it returns. */
void world_journal(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct fact *fact_get(struct fact **set, const char *key); /* made when missing */
struct fact *fact_find(struct fact *set, const char *key);
void world_expect(struct world *w, const char *key);
void world_window(struct world *w, int tenant, uint64_t from_ns, uint64_t until_ns,
                  const char *why);

/* A call; *ret to be freed with protobuf_c_message_free_unpacked. Negative errno and
 * *ret_unanswered: nobody knows whether it was carried out. */
int world_call(struct world *w, const struct rpc_method *m, const ProtobufCMessage *req,
               ProtobufCMessage **ret, bool *ret_unanswered, struct ros2_err *err);

/* ops.c */
void ops_init(struct world *w);
void *ops_main(void *world);
/* The object as the controller has it now; decides what was unsure. -EAGAIN: cannot be asked now.
 */
int ops_look(struct world *w, struct object *o);
/* A revoked tenant that not all agents have confirmed is revoked again. true when it is confirmed.
 */
bool ops_confirm(struct world *w, struct object *o);
/* Revokes a tenant that has clients. */
void ops_take(struct world *w, struct object *o);
/* Revokes a grant. */
void ops_take_grant(struct world *w, const char *uid);
/* All live tenants exist and have rights. */
bool ops_restore(struct world *w);

/* checks.c */
bool check_reach(struct world *w); /* the controller answers; epoch grows */
void check_objects(struct world *w);
void check_rights(struct world *w); /* grants, sessions, leases as listed */
void check_notes(struct world *w);  /* windows, dead sessions and grants against clients' notes */
void check_idle(struct world *w);   /* nothing in use any more */

/* log.c */
void log_read(struct world *w);   /* what was added; what was seen must still be there */
void log_expect(struct world *w); /* every acknowledged operation has its record */
void log_end(struct world *w); /* every session that a client had has its records and its grant's */
#endif

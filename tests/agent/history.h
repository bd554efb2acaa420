/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole agent (its data plane is fake_dp, its gRPC service is left out) lives through a fixed
 * history of deltas, grants, revocations, audit records and beats on a disk model, and what it
 * tells anybody is noted, so that a test can end it anywhere and compare after the next start. Link
 * with --wrap=uplink_send, --wrap=service_new and --wrap=loop_timer_in_ms. One per process.
 */
#ifndef ROS2_TESTS_AGENT_HISTORY_H
#define ROS2_TESTS_AGENT_HISTORY_H

#include "agent/agent.h"
#include "tests/agent/fixture.h"
#include "tests/common/disk_fsx.h"

#define TOLD_MAX 256

struct told_object {
	enum obj_kind kind;
	struct ros2_uid uid;
	uint64_t version;
};
struct history {
	struct fixture fix;
	struct disk *disk;
	char *parent, dir[512];
	struct agent *agent; /* NULL: not running */
	unsigned fatals;
	uint64_t slack; /* of the snapshot: 1 = it is soon written anew */
	/* As the program does: nothing that it does afterwards reaches the disk or is heard. */
	bool ends_when_fatal;
	struct told_object now_have[TOLD_MAX]; /* of hist_collect_have */
	unsigned n_have;
	unsigned compared,
		refused; /* starts that hist_compare has seen; refused: without objects */
	struct {
		struct told_object objects[TOLD_MAX], sent[TOLD_MAX]; /* sent: by nonce */
		uint64_t nonce_of[TOLD_MAX];
		unsigned n_objects, n_sent;
		uint8_t receipts[TOLD_MAX]; /* seeds of revocations with a durable receipt */
		unsigned n_receipts;
		unsigned n_unwritten;      /* receipts that said that it is not on disk */
		uint8_t revoked[TOLD_MAX]; /* that were sent, with or without a receipt */
		unsigned n_revoked;
		char records[TOLD_MAX][16]; /* of operations that went on */
		unsigned n_records;
		uint64_t epoch; /* acted on */
		bool grants_dead;
	} told;
};
extern struct history hist;

/* A new disk; fsyncs of @no_fsync are left out. hist_end takes it away. */
void hist_begin(const char *no_fsync);
void hist_end(void);
bool hist_boot(void); /* false: it does not start */
void hist_live(void); /* two starts; it runs on, unless something ended it */
/* As a crash: what has not reached the disk by now never does. */
void hist_die(void);
bool hist_has_ended(void);
/* After a start: NULL, or what is not true of what it told. */
const char *hist_compare(void);

/* ---- steps ---- */

void hist_settle(void); /* until nothing is left to do */
void hist_epoch(uint64_t counter);
void hist_delta(uint64_t nonce, Ros2__V1__AgentObject **objs, size_t n);
void hist_beat(void);
void hist_send_revoke(uint8_t seed);
void hist_tell_object(enum obj_kind kind, const struct ros2_uid *uid, uint64_t version);
void hist_tell_reports(void);
void hist_stop_loop(void *loop);
void hist_collect_have(void *arg, const struct state_have *h); /* for state_each_have */
bool hist_in_have(const struct told_object *o);
/* A second later: what waited to be tried again is tried. How many. */
unsigned hist_retry(void);
#endif

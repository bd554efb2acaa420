/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole domain (no gRPC) over a disk model, whose database has no room when a test says so; what
 * was asked and answered; and what must be true after the next starts.
 */
#ifndef ROS2_TESTS_CONTROLLER_JOURNAL_RIG_H
#define ROS2_TESTS_CONTROLLER_JOURNAL_RIG_H

#include "controller/ctl.h"
#include "tests/common/disk_fsx.h"
#include "tests/controller/journal_targets.h"
#include "tests/controller/store_fixture.h"

#define SEED      20261121
#define JOURNAL   "=/revocations" /* a path that ends so */
#define RIG_FILES 2

extern struct fixture rig_fix;
extern struct disk *rig_disk;
extern struct ctl *rig_ctl; /* NULL: not running */
extern struct store *rig_store;
extern struct loop *rig_loop;
extern unsigned rig_slots;       /* of the journal; 0: all. Before rig_setup */
extern bool rig_full_from_start; /* after the record of the start the database has no room */
extern struct rig_told {
	bool asked, held; /* held: was answered, or seen in force after a start */
} rig_told[JOURNAL_TARGETS];
extern _Atomic unsigned rig_answers, rig_pending_answers, rig_fatals;
/* The database and the journal as each run finds them. */
extern struct rig_file {
	void *p;
	size_t n;
} rig_before[RIG_FILES];

int rig_setup(void **state);
int rig_teardown(void **state);
void rig_begin_run(const struct disk_fsx_opts *o);
void rig_end_run(void);

bool rig_start(void); /* the process; false: it did not, and nothing is left of it */
void rig_stop(void);
void rig_die(void);    /* the power is off: nothing that is done from here on counts */
bool rig_settle(void); /* until the store has recorded what waited, or cannot any more */
/* @n of them that wait together. */
void rig_revoke_some(unsigned first, unsigned n);

void rig_look_at_force(void *arg); /* on the loop: bool[JOURNAL_TARGETS] */
const char *rig_check_force(void); /* NULL, or what is wrong */
const char *rig_check(void); /* two starts: what the first has recorded, the second must not */
#endif

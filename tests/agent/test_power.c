/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole agent (its data plane is fake_dp, its gRPC service is left out) lives through a fixed
 * history of deltas, grants, revocations, audit records and beats, and ends at each call that
 * changes a file: the power is cut (unsynced gone; unsynced torn), or the process is killed,
 * started again, tells the controller what it has, and then the power is cut (likewise). After the
 * next start everything it has told anybody must be true: acknowledged and reported objects are
 * there, receipts that said `durable` have their tombstones, widening operations that went on have
 * their audit records. Negative controls: without any one kind of our fsyncs the sweep finds
 * losses.
 */
#include "agent/uplink_priv.h"
#include "tests/agent/history.h"
#include "tests/agent/step_writer.h"
#include "common/log.h"
#include "common/clock.h"
#include <sys/stat.h>

#define SEED 71

enum end {
	POWER,
	TORN,
	KILL_THEN_POWER,
	KILL_THEN_POWER_AT_START, /* while the next process reads what the killed one left */
	KILL_THEN_TORN,
};
#define START_CALLS 16 /* more than a start makes */

/* The controller repeats revocations it has no receipt for. A person has let others read the spool:
 * it does not look any more like a directory of ours, whose name each start syncs (fsx_mkdirs). */
static bool boot_after_kill(uint64_t cut_at)
{
	char spool[600];
	bool ok;

	snprintf(spool, sizeof(spool), "%s/spool", hist.dir);
	(void)!chmod(spool, 0750);
	disk_arm(hist.disk, cut_at);
	ok = hist_boot() || cut_at != UINT64_MAX;
	for (unsigned i = 0; hist.agent && i < hist.told.n_revoked; i++)
		hist_send_revoke(hist.told.revoked[i]);
	hist_die();
	return ok;
}

struct ending {
	enum end how;
	uint64_t call, start_call;
	unsigned seed; /* of what is torn off */
	const char *no_fsync;
	bool done;      /* the history was through before its end */
	bool revoking;  /* it ended in a revocation */
	unsigned skips; /* fsyncs left out */
};

static enum disk_loss loss_of(enum end how)
{
	return how == TORN || how == KILL_THEN_TORN ? DISK_TEAR : DISK_LOSE_UNSYNCED;
}

/* NULL or what is wrong. */
static const char *ends_at(struct ending *e)
{
	bool whole_start = e->how == KILL_THEN_POWER || e->how == KILL_THEN_TORN;
	const char *bad = NULL;

	hist.slack = e->how == TORN || whole_start;
	hist_begin(e->no_fsync);
	disk_arm(hist.disk, e->call);
	hist_live();
	e->done = !disk_is_off(hist.disk);
	e->revoking = hist.told.n_revoked > hist.told.n_receipts;
	hist_die();
	if (e->how >= KILL_THEN_POWER && !boot_after_kill(whole_start ? UINT64_MAX : e->start_call))
		bad = "the agent does not start after a kill";
	disk_restore(hist.disk, loss_of(e->how), SEED + e->call + e->seed * 1000);
	if (!bad)
		bad = hist_boot() ? hist_compare() : "the agent does not start";
	hist_die();
	e->skips += disk_fsx_skipped();
	hist_end();
	return bad;
}

/* Every call; those of the start after a kill one by one where an entry of the log was under way,
 * and one of them elsewhere. */
static const char *sweep_all(struct ending *e)
{
	const char *bad = NULL;

	for (e->call = 0, e->done = false; !e->done && !bad; e->call++) {
		e->start_call = e->call % START_CALLS;
		bad = ends_at(e);
		for (unsigned i = 0;
		     i < START_CALLS && !bad && e->revoking && e->how == KILL_THEN_POWER_AT_START;
		     i++) {
			e->start_call = i;
			bad = ends_at(e);
		}
	}
	return bad;
}

static void sweep_seed(enum end how, unsigned seed)
{
	struct ending e = {.how = how, .seed = seed};
	const char *bad;

	hist.compared = hist.refused = 0;
	bad = sweep_all(&e);
	if (bad)
		fail_msg("ended at call %llu, then %llu (seed %u): %s",
		         (unsigned long long)e.call - 1, (unsigned long long)e.start_call, seed,
		         bad);
	assert_true(e.call > 60);
	/* Of a start that refuses what is stored less is asked. */
	if (hist.refused * 5 > hist.compared + hist.refused)
		fail_msg("%u of %u starts refused what is stored", hist.refused,
		         hist.compared + hist.refused);
}

static void sweep(enum end how)
{
	sweep_seed(how, 0);
}

/* In an ordinary run (ROS2_SWEEP_STRIDE) one. */
static unsigned seeds(void)
{
	const char *s = getenv("ROS2_SWEEP_STRIDE");

	return s && strtoull(s, NULL, 10) > 1 ? 1 : 3;
}

static void agent__keeps_what_it_told_when_the_unsynced_is_gone(void **state)
{
	sweep(POWER);
}

static void agent__keeps_what_it_told_when_the_unsynced_is_torn(void **state)
{
	sweep(TORN);
}

static void agent__keeps_what_it_told_after_a_kill_when_the_power_goes_later(void **state)
{
	sweep(KILL_THEN_POWER);
}

static void agent__keeps_what_it_told_after_a_kill_when_the_power_goes_at_its_start(void **state)
{
	sweep(KILL_THEN_POWER_AT_START);
}

static void agent__keeps_what_it_told_after_a_kill_when_the_unsynced_is_torn_later(void **state)
{
	for (unsigned seed = 0; seed < seeds(); seed++)
		sweep_seed(KILL_THEN_TORN, seed);
}

/* One per place where the agent waits for the disk: a file's bytes, a directory's names. */
static void power__sweep_finds_the_losses_without_any_one_fsync(void **state)
{
	static const char *const kinds[] = {
		"=/revocations", ".snapshot.tmp-", "=/snapshot",        ".contact.tmp-",
		"/spool/seg-",   "=/spool",        ".revocations.tmp-", "=/state",
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct ending e = {.no_fsync = kinds[k]};
		bool found = false;

		for (e.how = POWER; e.how <= KILL_THEN_TORN && !found; e.how++)
			found = sweep_all(&e) != NULL;
		if (!found || !e.skips)
			fail_msg("nothing is lost without the fsyncs of %s (%u left out)", kinds[k],
			         e.skips);
	}
}

/* ---- how much is written ---- */

static uint64_t bytes_written;
static const struct fsx_ops *counted;

static ssize_t count_write(int fd, const void *p, size_t n)
{
	bytes_written += n;
	return counted->write(fd, p, n);
}

static void deliver(Ros2__V1__AgentObject **objs, size_t n)
{
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	Ros2__V1__SealedObject *sealed[2];
	struct fix_bytes b[2];

	fix_seal(&hist.fix, objs, n, b);
	for (size_t i = 0; i < n; i++)
		sealed[i] = ros2__v1__sealed_object__unpack(NULL, b[i].n, b[i].p);
	d.n_upserts = n;
	d.upserts = sealed;
	uplink_on_delta(hist.agent, &d);
	for (size_t i = 0; i < n; i++) {
		ros2__v1__sealed_object__free_unpacked(sealed[i], NULL);
		free(b[i].p);
	}
	hist_settle();
	hist_tell_reports();
}

static void snapshot__grows_with_what_changes_not_with_what_is_there(void **state)
{
	static struct fsx_ops ops;
	Ros2__V1__AgentObject *objs[2];
	struct state_counts c;
	uint64_t first;

	testing_dir_setup((void **)&hist.parent);
	snprintf(hist.dir, sizeof(hist.dir), "%s/state", hist.parent);
	assert_int_equal(mkdir(hist.dir, 0700), 0);
	memset(&hist.told, 0, sizeof(hist.told));
	hist.slack = 0;
	counted = fsx_io;
	ops = *fsx_io;
	ops.write = count_write;
	fsx_io = &ops;
	assert_true(hist_boot());
	hist.fix.epoch.counter = 3;
	hist_epoch(3);
	objs[0] = fix_engine(&hist.fix, "files", 1, 1);
	objs[1] = fix_tenant(&hist.fix, "alpha", FIX_ALPHA, 2, 2);
	deliver(objs, 2);
	first = bytes_written;
	for (unsigned i = 0; i < 200; i++) {
		memset(&hist.told, 0, sizeof(hist.told));
		objs[0] = fix_grant(&hist.fix, (uint8_t)(20 + i), 2, FIX_ALPHA, 5,
		                    clock_boottime_ns(), 3600000, 2);
		deliver(objs, 1);
	}
	/* A grant is some 400 bytes; each time all of it would be 200 x 100 of them. */
	assert_true(bytes_written - first < 200 * 1000);
	/* Many versions of one document: the file is written anew now and then. */
	for (unsigned i = 0; i < 2500; i++) {
		struct stat st;
		char path[4200];

		memset(&hist.told, 0, sizeof(hist.told));
		objs[0] = fix_tenant(&hist.fix, "alpha", FIX_ALPHA, 2, 10 + i);
		deliver(objs, 1);
		testing_path(path, hist.dir, "snapshot");
		assert_int_equal(stat(path, &st), 0);
		assert_true((uint64_t)st.st_size < 1100000 + 2 * state_bytes(hist.agent->state));
	}
	agent_free(hist.agent);
	assert_true(hist_boot());
	state_counts(hist.agent->state, &c);
	assert_int_equal(c.tenants + c.engines + c.grants, 202);
	agent_free(hist.agent);
	hist.agent = NULL;
	fsx_io = counted;
	testing_dir_teardown((void **)&hist.parent);
}

/* ---- what is put back ---- */

static void copy_file(const char *from_name, const char *to_name)
{
	char from[4200], to[4200];
	void *p;
	size_t n;

	testing_path(from, hist.dir, from_name);
	testing_path(to, hist.dir, to_name);
	assert_int_equal(fsx_read_file(from, 1 << 20, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(to, p, n, 0600, NULL), 0);
	free(p);
}

static void snapshot__put_back_with_its_contact_file_is_noticed(void **state)
{
	Ros2__V1__HaveObject gone = ROS2__V1__HAVE_OBJECT__INIT, *ptr = &gone;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	struct ros2_uid alpha = fix_uid(2);
	Ros2__V1__AgentObject *objs[2];
	struct state_counts c;

	testing_dir_setup((void **)&hist.parent);
	snprintf(hist.dir, sizeof(hist.dir), "%s/state", hist.parent);
	assert_int_equal(mkdir(hist.dir, 0700), 0);
	memset(&hist.told, 0, sizeof(hist.told));
	hist.slack = 0;
	hist.fix.epoch.counter = 3;
	assert_true(hist_boot());
	hist_epoch(3);
	objs[0] = fix_engine(&hist.fix, "files", 1, 1);
	objs[1] = fix_tenant(&hist.fix, "alpha", FIX_ALPHA, 2, 2);
	deliver(objs, 2);
	hist_beat();
	copy_file("snapshot", "old-snapshot");
	copy_file("contact", "old-contact");
	/* The tenant goes; then the process ends and begins. */
	gone.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	gone.uid = (ProtobufCBinaryData){16, alpha.b};
	gone.version = 2;
	d.n_removals = 1;
	d.removals = &ptr;
	uplink_on_delta(hist.agent, &d);
	hist_settle();
	agent_free(hist.agent);
	assert_true(hist_boot());
	state_counts(hist.agent->state, &c);
	assert_int_equal(c.tenants, 0);
	assert_int_equal(c.engines, 1);
	agent_free(hist.agent);
	copy_file("old-snapshot", "snapshot");
	copy_file("old-contact", "contact");
	assert_true(hist_boot());
	state_counts(hist.agent->state, &c);
	assert_int_equal(c.tenants + c.engines, 0);
	agent_free(hist.agent);
	hist.agent = NULL;
	testing_dir_teardown((void **)&hist.parent);
}

/* The epoch is in it, and in nothing else here: a controller of an older one would be believed. */
static void contact__that_cannot_be_read_now_is_not_overwritten(void **state)
{
	char contact[600], aside[600];

	testing_dir_setup((void **)&hist.parent);
	snprintf(hist.dir, sizeof(hist.dir), "%s/state", hist.parent);
	assert_int_equal(mkdir(hist.dir, 0700), 0);
	memset(&hist.told, 0, sizeof(hist.told));
	hist.slack = 0;
	hist.fix.epoch.counter = 3;
	assert_true(hist_boot());
	hist_epoch(3);
	hist_beat();
	hist_settle();
	agent_free(hist.agent);
	testing_path(contact, hist.dir, "contact");
	testing_path(aside, hist.dir, "aside");
	assert_int_equal(rename(contact, aside), 0);
	assert_int_equal(mkdir(contact, 0700), 0);
	assert_false(hist_boot());
	assert_int_equal(rmdir(contact), 0);
	assert_int_equal(rename(aside, contact), 0);
	assert_true(hist_boot());
	assert_int_equal(hist.agent->epoch.counter, 3);
	agent_free(hist.agent);
	hist.agent = NULL;
	testing_dir_teardown((void **)&hist.parent);
}

static int group_setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR + 1);
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	fixture_init(&hist.fix);
	return 0;
}

static int group_teardown(void **state)
{
	fixture_fini(&hist.fix);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agent__keeps_what_it_told_when_the_unsynced_is_gone),
		cmocka_unit_test(agent__keeps_what_it_told_when_the_unsynced_is_torn),
		cmocka_unit_test(agent__keeps_what_it_told_after_a_kill_when_the_power_goes_later),
		cmocka_unit_test(
			agent__keeps_what_it_told_after_a_kill_when_the_power_goes_at_its_start),
		cmocka_unit_test(
			agent__keeps_what_it_told_after_a_kill_when_the_unsynced_is_torn_later),
		cmocka_unit_test(snapshot__put_back_with_its_contact_file_is_noticed),
		cmocka_unit_test(contact__that_cannot_be_read_now_is_not_overwritten),
		cmocka_unit_test(snapshot__grows_with_what_changes_not_with_what_is_there),
		cmocka_unit_test(power__sweep_finds_the_losses_without_any_one_fsync),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every write and sync of the journal of revocations, while the database has no
 * room and a whole domain (no gRPC) answers revocations `effective, record pending`; and at calls
 * of the database beside it. What was not synced is gone, or torn and reordered; or the process is
 * killed, what it left is read by another, and then the power goes. After the next start every
 * revocation that was answered, or that a start has carried out, is in force; each has one row and
 * one audit record, nothing that nobody asked for is there, and no slot is left taken. Negative
 * controls: without the journal's syncs, without that of its directory, and with a checksum that is
 * always right, the same sweep finds what is wrong.
 *
 * ROS2_POWER_SECONDS: how long the sampled part of each sweep may take (2).
 */
#include "tests/controller/journal_targets.h"
#include "tests/controller/power_vfs.h"
#include "tests/controller/store_fixture.h"
#include "tests/common/disk_fsx.h"
#include "common/clock.h"
#include "common/util.h"
#include "controller/ctl.h"

#define SEED     20261121
#define SLOT_LEN 4096

static struct fixture fix;
static struct config cfg = {.trust_domain = "ros2.test"};
/* Long, as reasons are below: a note crosses the border of a sector. */
#define FORTY "a-name-of-forty-letters-is-not-a-short-1"
#define ADMIN "spiffe://ros2.test/admin/" FORTY "/" FORTY "/" FORTY "/" FORTY
static const struct ctl_caller root = {.spiffe = ADMIN, .peer = "127.0.0.1:1", .role = CTL_ADMIN};

/* ---- a checksum that is always right ---- */

static bool any_checksum;

uint32_t __real_crypto_crc32c(const void *p, size_t n);
uint32_t __wrap_crypto_crc32c(const void *p, size_t n);
uint32_t __wrap_crypto_crc32c(const void *p, size_t n)
{
	return any_checksum ? 0 : __real_crypto_crc32c(p, n);
}

/* ---- what was asked for, and answered ---- */

static struct {
	bool asked, held; /* held: was answered, or seen in force after a start */
} told[JOURNAL_TARGETS];
static _Atomic unsigned answers, pending_answers;
static _Atomic unsigned fatals;

static void on_fatal(void *arg, const struct ros2_err *why)
{
	atomic_fetch_add(&fatals, 1);
}

/* ---- the process ---- */

static struct disk *disk;
static struct ctl *ctl; /* NULL: not running */
static struct store *store;
static struct loop *loop;

static bool is_dead(void)
{
	return atomic_load(&fatals) || disk_is_off(disk);
}

static void stop_on_loop(void *arg)
{
	if (ctl)
		ctl->stopping = true;
	store_close(store);
	ctl_free(ctl);
	ctl = NULL;
	store = NULL;
}

static void stop(void)
{
	loop_call(loop, stop_on_loop, NULL);
	loop_stop(loop);
	loop_thread_join(loop);
	loop_free(loop);
}

static void start_on_loop(void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = store_open(&fix.opts, &store, &err);

	if (!r)
		r = ctl_new(loop, &cfg, store, &ctl, &err);
	if (!r)
		store_set_on_batch(store, ctl_on_batch, ctl);
	if (!r)
		r = store_start(store, &err);
	if (!r)
		ctl_start(ctl);
	*(bool *)arg = r == 0;
}

static bool start(void)
{
	bool ok = false;

	atomic_store(&fatals, 0);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "ctl"}, &loop), 0);
	assert_int_equal(loop_thread_start(loop), 0);
	fix.opts.loop = loop;
	loop_call(loop, start_on_loop, &ok);
	if (!ok)
		stop();
	return ok;
}

/* The power is off: nothing that is done from here on counts. */
static void die(void)
{
	disk_arm(disk, 0);
	disk_call(disk);
	stop();
}

static void look_what_waits(void *arg)
{
	struct ctl_revocation *r, *tmp;
	struct store_stats st;
	bool waits = false;

	HASH_ITER (hh, ctl->revocations, r, tmp)
		waits |= r->unrecorded.is || r->waiter;
	store_stats(store, &st);
	*(bool *)arg = waits || st.record_pending || st.waiting;
}

/* Until the store has recorded what waited, or cannot any more. */
static bool settle(void)
{
	for (int i = 0; i < 5000 && !is_dead(); i++) {
		bool waits = false;

		loop_call(loop, look_what_waits, &waits);
		if (!waits)
			return true;
		/* poll: counters of the store's thread */
		usleep(1000);
	}
	return false;
}

/* ---- the history ---- */

static void on_revoked(void *arg, const struct ros2_err *err, const struct ctl_revoke_result *r)
{
	answers++;
	if (err->code || is_dead())
		return;
	told[(uintptr_t)arg].held = true;
	pending_answers += r->rev->record_pending;
}

static void revoke_inside(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	bool agent = i == JOURNAL_TENANTS;
	struct ctl_revoke v = {.kind = agent ? STORE_AGENT : STORE_TENANT,
	                       .reason = journal_reason(i),
	                       .wait_ms = 1,
	                       .isolate = agent};

	v.object = ctl_find(ctl, v.kind, journal_name(i));
	assert_non_null(v.object);
	ctl_revoke(ctl, &root, &v, on_revoked, arg);
}

static void revoke_target(void *arg)
{
	assert_int_equal(ctl_gate_enter_urgent(ctl, revoke_inside, arg), 0);
}

/* @n of them that wait together. */
static void revoke_some(unsigned first, unsigned n)
{
	unsigned due = answers + n;

	if (is_dead())
		return;
	for (unsigned i = first; i < first + n; i++) {
		told[i].asked = true;
		loop_call(loop, revoke_target, (void *)(uintptr_t)i);
	}
	for (int i = 0; i < 5000 && answers < due; i++)
		/* poll: a counter of the loop's thread */
		usleep(1000);
	assert_int_equal(answers, due);
}

/* Three starts of the process; revocations wait for the end of a full disk, or for the next start.
 */
static void live(void)
{
	if (!start())
		return;
	power_vfs_full(true);
	revoke_some(0, 2);
	power_vfs_full(false);
	settle();
	power_vfs_full(true);
	revoke_some(2, 1);
	revoke_some(JOURNAL_TENANTS, 1);
	stop();
	power_vfs_full(false);
	if (disk_is_off(disk) || !start())
		return;
	settle();
	revoke_some(3, 1);
	power_vfs_full(true);
	revoke_some(4, 2);
	stop();
	power_vfs_full(false);
	if (disk_is_off(disk) || !start())
		return;
	power_vfs_full(true);
	revoke_some(6, 1); /* before those of the last day are recorded, maybe */
	power_vfs_full(false);
	settle();
	stop();
}

/* ---- a domain that was there before ---- */

#define FILES 2
static const char *const names[FILES] = {"ros2.db", "revocations"};
static struct {
	void *p;
	size_t n;
} before[FILES];

static void on_applied(void *arg, const struct ros2_err *err, const struct ctl_apply_result *r)
{
	atomic_store((_Atomic bool *)arg, !err->code && r->applied);
}

static void apply_inside(void *arg)
{
	struct policy_source src = {.name = "test.yaml", .text = journal_documents()};

	src.len = strlen(src.text);

	ctl_apply(ctl, &root, &src, 1, NULL, 0, false, ~0u, on_applied, arg);
}

static void apply(void *arg)
{
	assert_int_equal(ctl_gate_enter(ctl, apply_inside, arg), 0);
}

/* So that receipts are owed, and their agents are in the notes. */
static void enrol(void *arg)
{
	struct ctl_agent *a = ctl_agent(ctl, arg);
	struct store_txn *t = store_txn_new();

	a->enrolled = true;
	ctl_agent_row(t, a, &store_txn_add(t, STORE_AGENT_PUT)->agent);
	assert_int_equal(store_submit(store, t, NULL, NULL, NULL), 0);
}

static void remove_files(void)
{
	static const char *const more[] = {"ros2.db-wal", "ros2.db-shm", "ros2.db-journal",
	                                   "reserve", "revocations.new"};
	char path[128];

	for (size_t i = 0; i < FILES + ARRAY_SIZE(more); i++) {
		fixture_path(&fix, i < FILES ? names[i] : more[i - FILES], path);
		unlink(path);
	}
}

static void begin_run(const struct disk_fsx_opts *o)
{
	struct disk_fsx_opts with = *o;
	char path[128];

	remove_files();
	for (unsigned i = 0; i < FILES && before[i].p; i++) {
		FILE *f;

		fixture_path(&fix, names[i], path);
		f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(before[i].p, 1, before[i].n, f), before[i].n);
		fclose(f);
	}
	memset(told, 0, sizeof(told));
	answers = pending_answers = 0;
	disk = disk_new(fix.dir);
	with.disk = disk;
	disk_fsx_use(&with);
	power_vfs_use(&(struct power_vfs_opts){.disk = disk});
	power_vfs_full(false);
}

static void end_run(void)
{
	disk_fsx_end();
	disk_free(disk);
	disk = NULL;
}

static int setup(void **state)
{
	struct disk_fsx_opts none = {0};
	char path[128];
	_Atomic bool ok = false;

	fixture_init(&fix);
	fix.opts.checkpoint_ms = 3;
	fix.opts.on_fatal = on_fatal;
	begin_run(&none);
	assert_true(start());
	loop_call(loop, apply, &ok);
	for (int i = 0; i < 5000 && !atomic_load(&ok); i++)
		/* poll: the answer to apply */
		usleep(1000);
	assert_true(atomic_load(&ok));
	loop_call(loop, enrol, (char *)"dpu-0");
	loop_call(loop, enrol, (char *)"dpu-1");
	assert_true(settle());
	stop();
	end_run();
	for (unsigned i = 0; i < FILES; i++) {
		fixture_path(&fix, names[i], path);
		assert_int_equal(fsx_read_file(path, 64u << 20, &before[i].p, &before[i].n, NULL),
		                 0);
	}
	assert_int_equal(before[1].n, 1024 * SLOT_LEN);
	return 0;
}

static int teardown(void **state)
{
	for (unsigned i = 0; i < FILES; i++)
		free(before[i].p);
	fixture_fini(&fix);
	return 0;
}

/* ---- after it ---- */

static bool in_force(unsigned i)
{
	const struct ctl_object *o =
		ctl_find(ctl, i == JOURNAL_TENANTS ? STORE_AGENT : STORE_TENANT, journal_name(i));
	const char *why = !o ? "" : i == JOURNAL_TENANTS ? o->agent->isolated_reason : o->reason;

	return o && (i == JOURNAL_TENANTS ? o->agent->isolated : o->revoked) &&
	       !strcmp(why, journal_reason(i));
}

static void look_at_force(void *arg)
{
	for (unsigned i = 0; i < JOURNAL_TARGETS; i++)
		((bool *)arg)[i] = in_force(i);
}

static const char *check_force(void)
{
	bool force[JOURNAL_TARGETS];

	loop_call(loop, look_at_force, force);
	for (unsigned i = 0; i < JOURNAL_TARGETS; i++) {
		if (told[i].held && !force[i])
			return "a revocation that was answered is lost";
		if (!told[i].asked && force[i])
			return "a revocation is in force that nobody asked for";
	}
	return NULL;
}

static const char *check_log(void)
{
	struct verdict v;

	for (unsigned i = 0; i < JOURNAL_TARGETS; i++) {
		char sql[200];
		int64_t rows, records;

		snprintf(sql, sizeof(sql),
		         "SELECT count(*) FROM revocations WHERE target_name='%s'",
		         journal_name(i));
		rows = fixture_sql(&fix, sql);
		snprintf(sql, sizeof(sql),
		         "SELECT count(*) FROM audit WHERE object_name='%s' AND action IN "
		         "('tenant.revoke', 'agent.isolate')",
		         journal_name(i));
		records = fixture_sql(&fix, sql);
		if (rows != records)
			return "rows and audit records of a revocation do not belong together";
		if (rows > 1)
			return "a revocation is recorded twice";
		if (told[i].held && !rows)
			return "a revocation that was answered is not recorded";
		if (!told[i].asked && rows)
			return "a revocation is recorded that nobody asked for";
	}
	fixture_verify(&fix, &v);
	return v.rc ? "the audit log does not verify" : NULL;
}

static const char *check_slots(void)
{
	AUTO_FREE void *file = NULL;
	const uint8_t *p;
	char path[128];
	size_t n;

	fixture_path(&fix, "revocations", path);
	if (fsx_read_file(path, 64u << 20, &file, &n, NULL) < 0)
		return "there is no journal";
	p = file;
	if (n != 1024 * SLOT_LEN)
		return "the journal is not of full length";
	for (size_t at = 0; at < n; at += SLOT_LEN) {
		uint32_t len, crc;

		memcpy(&len, p + at + 8, 4);
		memcpy(&crc, p + at + 12, 4);
		if (!memcmp(p + at, "ROS2REV1", 8) && len <= SLOT_LEN - 16 &&
		    crypto_crc32c(p + at + 16, len) == crc)
			return "a slot is left taken";
	}
	return NULL;
}

/* Two starts: what the first has recorded, the second must not. */
static const char *check(void)
{
	const char *bad = NULL;

	for (int i = 0; i < 2 && !bad; i++) {
		if (!start())
			return "the controller does not start";
		bad = check_force();
		if (!bad && !settle())
			bad = "a revocation is not recorded although there is space";
		stop();
		bad = bad ? bad : check_log();
		bad = bad ? bad : check_slots();
	}
	return bad;
}

enum end { GONE, TORN, KILLED };

static bool was_cut;

/* NULL, or what is wrong. @call: of the journal, or with @o->cut_path NULL of anything. */
static const char *cut_at(uint64_t call, enum end how, const struct disk_fsx_opts *o)
{
	struct disk_fsx_opts with = *o;
	bool force[JOURNAL_TARGETS];
	const char *bad;

	with.cut_call = call;
	begin_run(&with);
	if (!with.cut_path)
		disk_arm(disk, call);
	live();
	was_cut = disk_is_off(disk);
	if (was_cut && ctl)
		stop();
	if (how == KILLED && was_cut) {
		/* The process is gone, the machine goes on, and only then the power goes. */
		with.cut_path = NULL;
		with.disk = disk;
		disk_fsx_use(&with);
		disk_arm(disk, UINT64_MAX);
		assert_true(start());
		loop_call(loop, look_at_force, force);
		for (unsigned i = 0; i < JOURNAL_TARGETS; i++)
			told[i].held |= force[i];
		die();
	}
	disk_restore(disk, how == TORN ? DISK_TEAR : DISK_LOSE_UNSYNCED, SEED + call);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	bad = check();
	end_run();
	return bad;
}

static uint64_t seconds(void)
{
	const char *s = getenv("ROS2_POWER_SECONDS");

	return s ? strtoull(s, NULL, 10) : 2;
}

#define JOURNAL "=/revocations"

static const char *sweep_journal(enum end how, const char *no_fsync, uint64_t *ret_call)
{
	struct disk_fsx_opts o = {.cut_path = JOURNAL, .no_fsync = no_fsync};
	const char *bad = NULL;

	was_cut = true;
	for (*ret_call = 0; was_cut && !bad; ++*ret_call)
		bad = cut_at(*ret_call, how, &o);
	return bad;
}

static void sweep(enum end how)
{
	uint64_t end = clock_monotonic_ns() + seconds() * NS_PER_S, call;
	const char *bad = sweep_journal(how, NULL, &call);
	struct disk_fsx_opts o = {0};

	if (bad)
		fail_msg("ended at call %llu of the journal: %s", (unsigned long long)call - 1,
		         bad);
	/* Two calls to take a slot and two to free it, for most of them. */
	assert_true(call > 20);
	was_cut = true;
	for (call = (unsigned)how; was_cut && !bad && clock_monotonic_ns() < end; call += 7)
		bad = cut_at(call, how, &o);
	if (bad)
		fail_msg("ended at call %llu: %s", (unsigned long long)call - 7, bad);
}

static void journal__keeps_what_was_answered_when_the_unsynced_is_gone(void **state)
{
	sweep(GONE);
}

static void journal__keeps_what_was_answered_when_the_unsynced_is_torn(void **state)
{
	sweep(TORN);
}

static void journal__keeps_what_a_start_after_a_kill_has_carried_out(void **state)
{
	sweep(KILLED);
}

static void journal__is_used_by_the_history_and_empty_after_it(void **state)
{
	struct disk_fsx_opts o = {.cut_path = JOURNAL, .cut_call = UINT64_MAX};

	begin_run(&o);
	live();
	assert_int_equal(atomic_load(&fatals), 0);
	assert_int_equal(answers, 8);
	assert_true(pending_answers >= 6);
	assert_true(disk_fsx_path_calls() > 20);
	assert_null(check());
	end_run();
}

/* ---- negative controls ---- */

static void sweep__finds_the_loss_without_the_journals_fsync(void **state)
{
	uint64_t call;

	assert_non_null(sweep_journal(GONE, JOURNAL, &call));
	assert_non_null(sweep_journal(TORN, JOURNAL, &call));
	assert_non_null(sweep_journal(KILLED, JOURNAL, &call));
}

static void sweep__finds_a_torn_slot_that_passes_for_one(void **state)
{
	uint64_t call;

	any_checksum = true;
	assert_non_null(sweep_journal(TORN, NULL, &call));
	any_checksum = false;
}

/* ---- while it is made ---- */

/* The first start is cut at a call of making it; the next one makes or finds it, and uses it. */
static const char *made_at(uint64_t call, enum disk_loss loss, const char *no_fsync)
{
	struct disk_fsx_opts o = {
		.no_fsync = no_fsync, .cut_path = "/revocations.new", .cut_call = call};
	void *journal = before[1].p;
	const char *bad;

	before[1].p = NULL;
	begin_run(&o);
	before[1].p = journal;
	if (start()) {
		/* Beyond making it: the cut comes at once, or after an answer out of the journal.
		 */
		power_vfs_full(true);
		if (call == UINT64_MAX)
			revoke_some(0, 1);
		die();
	}
	was_cut = !told[0].held;
	power_vfs_full(false);
	disk_restore(disk, loss, SEED + call);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	bad = check();
	end_run();
	return bad;
}

static const char *sweep_making(const char *no_fsync)
{
	static const uint64_t calls[] = {0,         1, 2, 511, 1022, 1023, 1024, UINT64_MAX - 1,
	                                 UINT64_MAX};
	const char *bad = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(calls) && !bad; i++) {
		bad = made_at(calls[i], DISK_LOSE_UNSYNCED, no_fsync);
		bad = bad ? bad : made_at(calls[i], DISK_TEAR, no_fsync);
	}
	return bad;
}

static void journal__is_whole_or_not_there_when_the_power_goes_as_it_is_made(void **state)
{
	const char *bad = sweep_making(NULL);

	if (bad)
		fail_msg("%s", bad);
	assert_false(was_cut);
}

static void sweep__finds_a_journal_made_without_its_fsyncs(void **state)
{
	char dir[80];

	snprintf(dir, sizeof(dir), "=%s", strrchr(fix.dir, '/'));
	assert_non_null(sweep_making("/revocations.new"));
	assert_non_null(sweep_making(dir));
}

/* ---- calls that fail ---- */

static const int errors[] = {EIO, ENOSPC, EINTR};

/* The database has no room until the end, and the journal fails once: what was answered is in it by
 * then, and the power goes. */
static const char *fails_once(const struct disk_fsx_opts *o)
{
	begin_run(o);
	if (start()) {
		power_vfs_full(true);
		revoke_some(0, 2);
		if (!told[0].held || !told[1].held)
			return "a revocation was refused for a fault of the journal";
		/* time: some tries of the commit, and of the journal beside each */
		usleep(40000);
		die();
	}
	return NULL;
}

/* The journal fails for good: the revocations are in force, and in the database when it has room.
 */
static const char *fails_for_good(const struct disk_fsx_opts *o)
{
	begin_run(o);
	if (start()) {
		power_vfs_full(true);
		revoke_some(0, 2);
		if (!told[0].held || !told[1].held)
			return "a revocation was refused for a fault of the journal";
		if (check_force())
			return "a revocation was not carried out";
		power_vfs_full(false);
		if (!settle())
			return "a revocation is not recorded although there is space";
		revoke_some(2, 1);
		die();
	}
	return NULL;
}

static const char *fault_at(const struct disk_fsx_opts *o, bool *ret_fired)
{
	const char *bad = o->fault_for_good ? fails_for_good(o) : fails_once(o);

	*ret_fired = disk_fsx_faults() > 0;
	power_vfs_full(false);
	if (store)
		die();
	disk_restore(disk, DISK_LOSE_UNSYNCED, SEED);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	bad = bad ? bad : check();
	end_run();
	return bad;
}

static void sweep_faults(bool for_good)
{
	for (size_t e = 0; e < ARRAY_SIZE(errors); e++) {
		struct disk_fsx_opts o = {.fault_errno = errors[e],
		                          .fault_path = JOURNAL,
		                          .fault_for_good = for_good};
		bool fired = true;

		/* EINTR for good is no answer of a disk. */
		for (; fired && !(for_good && errors[e] == EINTR); o.fault_call++) {
			const char *bad = fault_at(&o, &fired);

			if (bad)
				fail_msg("call %llu of the journal, %s: %s",
				         (unsigned long long)o.fault_call, strerror(errors[e]),
				         bad);
			assert_true(fired || o.fault_call > 1);
		}
	}
}

static void journal__loses_nothing_that_was_answered_when_any_call_fails_once(void **state)
{
	sweep_faults(false);
}

static void journal__that_fails_for_good_stops_no_revocation(void **state)
{
	sweep_faults(true);
}

static void journal__that_cannot_be_made_is_made_by_the_next_start(void **state)
{
	static const uint64_t at[] = {0, 1, 500, 1024, 1025, 1026};

	for (size_t i = 0; i < ARRAY_SIZE(at) * 2; i++) {
		struct disk_fsx_opts o = {.fault_path = "/revocations.new",
		                          .fault_errno = errors[i % 2],
		                          .fault_call = at[i / 2],
		                          .fault_for_good = true};
		void *journal = before[1].p;
		const char *bad;
		bool fired;

		before[1].p = NULL;
		bad = fault_at(&o, &fired);
		before[1].p = journal;
		if (bad)
			fail_msg("call %llu of making it: %s", (unsigned long long)o.fault_call,
			         bad);
		assert_true(fired || o.fault_call > 1025);
	}
}

static void journal__is_written_whole_by_short_writes(void **state)
{
	struct disk_fsx_opts o = {.short_writes = true};
	bool fired;

	assert_null(fault_at(&o, &fired));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(journal__is_used_by_the_history_and_empty_after_it),
		cmocka_unit_test(journal__keeps_what_was_answered_when_the_unsynced_is_gone),
		cmocka_unit_test(journal__keeps_what_was_answered_when_the_unsynced_is_torn),
		cmocka_unit_test(journal__keeps_what_a_start_after_a_kill_has_carried_out),
		cmocka_unit_test(journal__is_whole_or_not_there_when_the_power_goes_as_it_is_made),
		cmocka_unit_test(journal__loses_nothing_that_was_answered_when_any_call_fails_once),
		cmocka_unit_test(journal__that_fails_for_good_stops_no_revocation),
		cmocka_unit_test(journal__that_cannot_be_made_is_made_by_the_next_start),
		cmocka_unit_test(journal__is_written_whole_by_short_writes),
		cmocka_unit_test(sweep__finds_the_loss_without_the_journals_fsync),
		cmocka_unit_test(sweep__finds_a_torn_slot_that_passes_for_one),
		cmocka_unit_test(sweep__finds_a_journal_made_without_its_fsyncs),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

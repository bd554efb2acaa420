/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of the journal's tests: see journal_rig.h. */
#include "tests/controller/journal_rig.h"
#include "tests/await.h"
#include "tests/controller/power_vfs.h"
#include "common/clock.h"
#include "common/util.h"

#define SLOT_LEN  4096
#define SLOTS_LEN (1024 * SLOT_LEN)
#define DOUBT_LEN 65536

struct fixture rig_fix;
static struct config cfg = {.trust_domain = "ros2.test"};
/* Long, as reasons are below: a note crosses the border of a sector. */
#define FORTY "a-name-of-forty-letters-is-not-a-short-1"
#define ADMIN "spiffe://ros2.test/admin/" FORTY "/" FORTY "/" FORTY "/" FORTY
static const struct ctl_caller root = {.spiffe = ADMIN, .peer = "127.0.0.1:1", .role = CTL_ADMIN};

/* ---- what was asked for, and answered ---- */

struct rig_told rig_told[JOURNAL_TARGETS];
_Atomic unsigned rig_answers, rig_pending_answers;
_Atomic unsigned rig_fatals;

static void on_fatal(void *arg, const struct ros2_err *why)
{
	atomic_fetch_add(&rig_fatals, 1);
}

/* ---- the process ---- */

struct disk *rig_disk;
struct ctl *rig_ctl; /* NULL: not running */
struct store *rig_store;
struct loop *rig_loop;

unsigned rig_slots;
bool rig_full_from_start; /* after the record of the start the database has no room */

static bool is_dead(void)
{
	return atomic_load(&rig_fatals) || disk_is_off(rig_disk);
}

static void stop_on_loop(void *arg)
{
	store_close(rig_store);
	ctl_free(rig_ctl);
	rig_ctl = NULL;
	rig_store = NULL;
}

void rig_stop(void)
{
	loop_call(rig_loop, stop_on_loop, NULL);
	loop_stop(rig_loop);
	loop_thread_join(rig_loop);
	loop_free(rig_loop);
}

static void start_on_loop(void *arg)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int r = store_open(&rig_fix.opts, &rig_store, &err);

	if (!r)
		r = ctl_new(rig_loop, &cfg, rig_store, &rig_ctl, &err);
	if (!r)
		store_set_on_batch(rig_store, ctl_on_batch, rig_ctl);
	if (!r)
		r = ctl_record_start(rig_ctl, &err);
	if (rig_full_from_start)
		power_vfs_full(true);
	if (!r)
		r = store_start(rig_store, &err);
	if (!r)
		ctl_start(rig_ctl);
	*(bool *)arg = r == 0;
}

bool rig_start(void)
{
	bool ok = false;

	atomic_store(&rig_fatals, 0);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "ctl"}, &rig_loop), 0);
	assert_int_equal(loop_thread_start(rig_loop), 0);
	rig_fix.opts.loop = rig_loop;
	loop_call(rig_loop, start_on_loop, &ok);
	if (!ok)
		rig_stop();
	return ok;
}

/* The power is off: nothing that is done from here on counts. */
void rig_die(void)
{
	disk_arm(rig_disk, 0);
	disk_call(rig_disk);
	rig_stop();
}

static void look_what_waits(void *arg)
{
	struct ctl_revocation *r, *tmp;
	struct store_stats st;
	bool waits = false;

	HASH_ITER (hh, rig_ctl->revocations, r, tmp)
		waits |= r->unrecorded.is || r->waiter;
	store_stats(rig_store, &st);
	*(bool *)arg = waits || st.record_pending || st.waiting;
}

/* Until the store has recorded what waited, or cannot any more. */
bool rig_settle(void)
{
	bool waits = true;

	AWAIT(is_dead() || (loop_call(rig_loop, look_what_waits, &waits), !waits));
	return !waits;
}

/* ---- the history ---- */

static void on_revoked(void *arg, const struct ros2_err *err, const struct ctl_revoke_result *r)
{
	rig_answers++;
	if (err->code || is_dead())
		return;
	rig_told[(uintptr_t)arg].held = true;
	rig_pending_answers += r->rev->record_pending;
}

static void revoke_inside(void *arg)
{
	unsigned i = (unsigned)(uintptr_t)arg;
	bool agent = i == JOURNAL_TENANTS;
	struct ctl_revoke v = {.kind = agent ? STORE_AGENT : STORE_TENANT,
	                       .reason = journal_reason(i),
	                       .wait_ms = 1,
	                       .isolate = agent};

	v.object = ctl_find(rig_ctl, v.kind, journal_name(i));
	assert_non_null(v.object);
	ctl_revoke(rig_ctl, &root, &v, on_revoked, arg);
}

static void revoke_target(void *arg)
{
	assert_int_equal(ctl_gate_enter_urgent(rig_ctl, revoke_inside, arg), 0);
}

/* @n of them that wait together. */
void rig_revoke_some(unsigned first, unsigned n)
{
	unsigned due = rig_answers + n;

	if (is_dead())
		return;
	for (unsigned i = first; i < first + n; i++) {
		rig_told[i].asked = true;
		loop_call(rig_loop, revoke_target, (void *)(uintptr_t)i);
	}
	AWAIT(rig_answers >= due);
	assert_int_equal(rig_answers, due);
}
/* ---- a domain that was there before ---- */

static const char *const names[RIG_FILES] = {"ros2.db", "revocations"};
struct rig_file rig_before[RIG_FILES];

static void on_applied(void *arg, const struct ros2_err *err, const struct ctl_apply_result *r)
{
	atomic_store((_Atomic bool *)arg, !err->code && r->applied);
}

static void apply_inside(void *arg)
{
	struct policy_source src = {.name = "test.yaml", .text = journal_documents()};

	src.len = strlen(src.text);

	ctl_apply(rig_ctl, &root, &src, 1, NULL, 0, false, ~0u, on_applied, arg);
}

static void apply(void *arg)
{
	assert_int_equal(ctl_gate_enter(rig_ctl, apply_inside, arg), 0);
}

/* So that receipts are owed, and their agents are in the notes. */
static void enrol(void *arg)
{
	struct ctl_agent *a = ctl_agent(rig_ctl, arg);
	struct store_txn *t = store_txn_new();

	a->enrolled = true;
	ctl_agent_row(t, a, &store_txn_add(t, STORE_AGENT_PUT)->agent);
	assert_int_equal(store_submit(rig_store, t, NULL, NULL, NULL), 0);
}

static void remove_files(void)
{
	static const char *const more[] = {"ros2.db-wal",    "ros2.db-shm", "ros2.db-journal",
	                                   "ros2.db-pair",   "reserve",     "start-reserve",
	                                   "revocations.new"};
	char path[128];

	for (size_t i = 0; i < RIG_FILES + ARRAY_SIZE(more); i++) {
		fixture_path(&rig_fix, i < RIG_FILES ? names[i] : more[i - RIG_FILES], path);
		unlink(path);
	}
}

void rig_begin_run(const struct disk_fsx_opts *o)
{
	struct disk_fsx_opts with = *o;
	char path[128];

	remove_files();
	for (unsigned i = 0; i < RIG_FILES && rig_before[i].p; i++) {
		FILE *f;

		fixture_path(&rig_fix, names[i], path);
		f = fopen(path, "w");
		assert_non_null(f);
		assert_int_equal(fwrite(rig_before[i].p, 1, rig_before[i].n, f), rig_before[i].n);
		fclose(f);
	}
	memset(rig_told, 0, sizeof(rig_told));
	rig_answers = rig_pending_answers = 0;
	rig_disk = disk_new(rig_fix.dir);
	with.disk = rig_disk;
	disk_fsx_use(&with);
	power_vfs_use(&(struct power_vfs_opts){.disk = rig_disk});
	power_vfs_full(false);
}

void rig_end_run(void)
{
	disk_fsx_end();
	disk_free(rig_disk);
	rig_disk = NULL;
}

int rig_setup(void **state)
{
	struct disk_fsx_opts none = {0};
	char path[128];
	_Atomic bool ok = false;

	fixture_init(&rig_fix);
	rig_fix.opts.checkpoint_ms = 3;
	rig_fix.opts.ending_ms = 50;
	rig_fix.opts.journal_slots = rig_slots;
	rig_fix.opts.on_fatal = on_fatal;
	rig_begin_run(&none);
	assert_true(rig_start());
	loop_call(rig_loop, apply, &ok);
	AWAIT(atomic_load(&ok));
	assert_true(atomic_load(&ok));
	loop_call(rig_loop, enrol, (char *)"dpu-0");
	loop_call(rig_loop, enrol, (char *)"dpu-1");
	assert_true(rig_settle());
	rig_stop();
	rig_end_run();
	for (unsigned i = 0; i < RIG_FILES; i++) {
		fixture_path(&rig_fix, names[i], path);
		assert_int_equal(
			fsx_read_file(path, 64u << 20, &rig_before[i].p, &rig_before[i].n, NULL),
			0);
	}
	assert_int_equal(rig_before[1].n, SLOTS_LEN + DOUBT_LEN);
	return 0;
}

int rig_teardown(void **state)
{
	for (unsigned i = 0; i < RIG_FILES; i++)
		free(rig_before[i].p);
	fixture_fini(&rig_fix);
	return 0;
}

/* ---- after it ---- */

static bool in_force(unsigned i)
{
	const struct ctl_object *o = ctl_find(
		rig_ctl, i == JOURNAL_TENANTS ? STORE_AGENT : STORE_TENANT, journal_name(i));
	const char *why = !o ? "" : i == JOURNAL_TENANTS ? o->agent->isolated_reason : o->reason;

	return o && (i == JOURNAL_TENANTS ? o->agent->isolated : o->revoked) &&
	       (!strcmp(why, journal_reason(i)) || (rig_slots && !strncmp(why, "in doubt", 8)));
}

void rig_look_at_force(void *arg)
{
	for (unsigned i = 0; i < JOURNAL_TARGETS; i++)
		((bool *)arg)[i] = in_force(i);
}

const char *rig_check_force(void)
{
	bool force[JOURNAL_TARGETS];

	loop_call(rig_loop, rig_look_at_force, force);
	for (unsigned i = 0; i < JOURNAL_TARGETS; i++) {
		if (rig_told[i].held && !force[i])
			return "a revocation that was answered is lost";
		if (!rig_told[i].asked && force[i])
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
		rows = fixture_sql(&rig_fix, sql);
		snprintf(sql, sizeof(sql),
		         "SELECT count(*) FROM audit WHERE object_name='%s' AND action IN "
		         "('tenant.revoke', 'agent.isolate')",
		         journal_name(i));
		records = fixture_sql(&rig_fix, sql);
		if (rows != records)
			return "rows and audit records of a revocation do not belong together";
		if (rows > 1)
			return "a revocation is recorded twice";
		if (rig_told[i].held && !rows)
			return "a revocation that was answered is not recorded";
		if (!rig_told[i].asked && rows)
			return "a revocation is recorded that nobody asked for";
	}
	fixture_verify(&rig_fix, &v);
	return v.rc ? "the audit log does not verify" : NULL;
}

static const char *check_slots(void)
{
	AUTO_FREE void *file = NULL;
	const uint8_t *p;
	char path[128];
	size_t n;

	fixture_path(&rig_fix, "revocations", path);
	if (fsx_read_file(path, 64u << 20, &file, &n, NULL) < 0)
		return "there is no journal";
	p = file;
	if (n != SLOTS_LEN + DOUBT_LEN)
		return "the journal is not of full length";
	for (size_t i = SLOTS_LEN; i < n; i++)
		if (p[i])
			return "something is left in doubt";
	for (size_t at = 0; at < SLOTS_LEN; at += SLOT_LEN) {
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
const char *rig_check(void)
{
	const char *bad = NULL;

	for (int i = 0; i < 2 && !bad; i++) {
		if (!rig_start())
			return "the controller does not start";
		bad = rig_check_force();
		if (!bad && !rig_settle())
			bad = "a revocation is not recorded although there is space";
		rig_stop();
		bad = bad ? bad : check_log();
		bad = bad ? bad : check_slots();
	}
	return bad;
}

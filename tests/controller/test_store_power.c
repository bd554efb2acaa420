/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every call that changes a file of the store: what was not synced is gone, or
 * torn and reordered. After each cut the store opens, its tables are exactly those after some
 * transaction of the history, not before the last acknowledged one, and the log verifies: so no
 * acknowledged row is lost, no state row is there without its audit row, and no order is broken.
 * Likewise when a write, a truncation or a deletion fails, once or for good, for space or
 * otherwise. Negative controls: with synchronous=OFF or NORMAL, and with syncs that do nothing, the
 * same sweep finds losses.
 *
 * ROS2_POWER_SECONDS: how long the sampled part of the sweep may take (12). ROS2_SWEEP_STRIDE: of
 * what fails one by one, after the first, only so many. ROS2_POWER_ALL=1: all there is of each.
 */
#include "tests/controller/power_history.h"
#include "tests/controller/power_points.h"
#include "tests/controller/power_vfs.h"
#include "controller/store_priv.h"
#include <errno.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <sys/stat.h>

#define SAMPLED_AT_LEAST 5  /* however slow the machine is */
#define EVERY_UP_TO      40 /* cuts at each of the first calls; then a sample */
#define SEED             20261120

static struct fixture fix;
static uint8_t expected[HISTORY_LEN + 1][SHA256_LEN];
static struct store_ops ops;

/* ---- switches of the negative controls ---- */

static const char *weaker; /* instead of FULL, or NULL */
static unsigned weakened;

int __real_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
                        void *arg, char **err);
int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
                        void *arg, char **err);

int __wrap_sqlite3_exec(sqlite3 *db, const char *sql, int (*fn)(void *, int, char **, char **),
                        void *arg, char **err)
{
	static const char full[] = "synchronous=FULL";
	const char *at = weaker ? strstr(sql, full) : NULL;
	char text[1024];

	if (!at)
		return __real_sqlite3_exec(db, sql, fn, arg, err);
	snprintf(text, sizeof(text), "%.*ssynchronous=%s%s", (int)(at - sql), sql, weaker,
	         at + strlen(full));
	weakened++;
	return __real_sqlite3_exec(db, text, fn, arg, err);
}

/* ---- compaction when the history says so ---- */

static _Atomic uint64_t wal_bytes;
static sem_t compacted;

static uint64_t said_wal_bytes(void *b)
{
	return atomic_load(&wal_bytes);
}

static int count_compact(void *b, bool hard)
{
	int r = store_sqlite_ops.compact(b, hard);

	atomic_store(&wal_bytes, 0);
	sem_post(&compacted);
	return r;
}

/* ---- one run ---- */

static struct run {
	struct disk *disk;
	unsigned submitted;
	_Atomic unsigned acknowledged; /* the first so many */
	_Atomic unsigned refused;
	uint64_t epoch; /* the last one that was told */
	sem_t answered;
} run;

static _Atomic unsigned fatals;
static struct ros2_err fatal_why; /* the store is closed, or has answered, before it is read */
static _Atomic bool fatal_ends;   /* as the program: it writes nothing more */

static void on_fatal(void *arg, const struct ros2_err *why)
{
	fatal_why = *why;
	atomic_fetch_add(&fatals, 1);
	if (!atomic_load(&fatal_ends))
		return;
	disk_arm(run.disk, 0);
	disk_call(run.disk);
}

static void on_answer(void *arg, const struct store_result *r)
{
	if (!r->rc)
		atomic_store(&run.acknowledged, (unsigned)(uintptr_t)arg + 1);
	else
		atomic_fetch_add(&run.refused, 1);
	sem_post(&run.answered);
}

/* @n transactions that wait together, then a compaction if @wal says that the log is long. */
static void commit_some(unsigned n, uint64_t wal)
{
	atomic_store(&wal_bytes, wal);
	for (unsigned i = 0; i < n; i++, run.submitted++)
		assert_int_equal(store_submit(fix.store, history_txn(run.submitted), on_answer,
		                              (void *)(uintptr_t)run.submitted, NULL),
		                 0);
	for (unsigned i = 0; i < n; i++)
		sem_wait(&run.answered);
	if (wal)
		sem_wait(&compacted);
}

static bool open_store(void)
{
	struct ros2_err err = ROS2_ERR_INIT;
	bool ok = fixture_open(&fix, &err) == 0;

	if (!ok)
		fixture_close(&fix);
	else
		run.epoch = store_epoch(fix.store)->counter;
	return ok;
}

#define SOFT (5u << 20)
#define HARD (17u << 20)

/* Two starts of the controller. Ends early when the power is gone. */
static void live(void)
{
	if (!open_store())
		return;
	for (int i = 0; i < 12; i++)
		commit_some(1, i == 4 ? SOFT : i == 8 ? HARD : 0);
	commit_some(4, 0);
	fixture_close(&fix);
	if (disk_is_off(run.disk) || !open_store())
		return;
	for (int i = 16; i < HISTORY_LEN - 2; i++)
		commit_some(1, i == 19 ? HARD : 0);
	commit_some(2, SOFT);
	fixture_close(&fix);
}

static void begin_run(bool sync_lies)
{
	static const char *const files[] = {"ros2.db", "ros2.db-wal", "ros2.db-shm",
	                                    "ros2.db-journal"};
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		fixture_path(&fix, files[i], path);
		unlink(path);
	}
	run.disk = disk_new(fix.dir);
	run.submitted = 0;
	atomic_store(&run.acknowledged, 0);
	atomic_store(&run.refused, 0);
	run.epoch = 0;
	atomic_store(&wal_bytes, 0);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk, .sync_lies = sync_lies});
}

/* ---- after the cut ---- */

/* NULL, or what is wrong. */
static const char *compare(void)
{
	uint8_t have[SHA256_LEN];
	struct verdict v;
	uint64_t seq;

	if (fixture_sql(&fix, "SELECT count(*) FROM pragma_integrity_check"
	                      " WHERE integrity_check <> 'ok'") != 0)
		return "the database is damaged";
	if (!history_digest(&fix, have, &seq))
		return "the tables cannot be read";
	if (seq < atomic_load(&run.acknowledged))
		return "an acknowledged transaction is lost";
	if (seq > run.submitted)
		return "there is more than was submitted";
	if (memcmp(have, expected[seq], SHA256_LEN) != 0)
		return "state and audit do not belong together";
	fixture_verify(&fix, &v);
	if (v.rc || v.records != seq)
		return "the audit log does not verify";
	return NULL;
}

static const char *check(void)
{
	uint64_t epoch = run.epoch;
	const char *bad;

	if (!open_store())
		return "the store does not open";
	bad = run.epoch <= epoch ? "the epoch went back" : compare();
	if (!bad) {
		struct ros2_uid u = {{0xee}};

		bad = fixture_commit(&fix, fixture_grant(&u, &u)) ? "nothing can be written" : NULL;
	}
	fixture_close(&fix);
	return bad;
}

static const char *cut_at(uint64_t call, enum disk_loss loss, bool sync_lies, bool *ret_cut)
{
	const char *bad;

	begin_run(sync_lies);
	disk_arm(run.disk, call);
	live();
	*ret_cut = disk_is_off(run.disk);
	disk_restore(run.disk, loss, SEED + call);
	if (call % 3 == 0) { /* and again while it recovers */
		disk_arm(run.disk, call / 3 % 24);
		if (open_store())
			fixture_close(&fix);
		disk_restore(run.disk, loss, SEED ^ call);
	}
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
	bad = check();
	disk_free(run.disk);
	return bad;
}

/* How many calls a run without a cut makes. Learns what the tables are after each transaction. */
static uint64_t learn(void)
{
	uint64_t calls, seq;

	begin_run(false);
	assert_true(open_store());
	for (unsigned i = 0; i <= HISTORY_LEN; i++) {
		assert_true(history_digest(&fix, expected[i], &seq));
		assert_int_equal(seq, i);
		if (i < HISTORY_LEN)
			commit_some(1, 0);
	}
	fixture_close(&fix);
	disk_free(run.disk);
	begin_run(false);
	live();
	assert_int_equal(atomic_load(&run.acknowledged), HISTORY_LEN);
	/* From STORE_OBJECT_PUT to STORE_PROBES_DELETE. */
	assert_int_equal(history_kinds(), (2u << STORE_PROBES_DELETE) - 1);
	calls = disk_calls(run.disk);
	disk_free(run.disk);
	return calls;
}

static uint64_t calls;

static int setup(void **state)
{
	fixture_init(&fix);
	ops = store_sqlite_ops;
	ops.wal_bytes = ops.wal_left = said_wal_bytes;
	ops.compact = count_compact;
	fix.opts.ops = &ops;
	fix.opts.checkpoint_ms = 3600 * 1000;
	fix.opts.on_fatal = on_fatal;
	sem_init(&compacted, 0, 0);
	sem_init(&run.answered, 0, 0);
	calls = learn();
	return 0;
}

static int teardown(void **state)
{
	fixture_fini(&fix);
	return 0;
}

/* Those that wait together may share a commit or not, four commits more or less of some nine calls:
 * of 25 runs the shortest made 672 calls, and the longest 708. */
#define SLACK 40

static void sweep(enum disk_loss loss)
{
	struct power_points p = {.calls = calls,
	                         .first = EVERY_UP_TO,
	                         .at_least = EVERY_UP_TO + SAMPLED_AT_LEAST,
	                         .seconds = 12,
	                         .from = loss * calls / 2};

	while (power_points_next(&p)) {
		const char *bad = cut_at(p.at, loss, false, &p.cut);

		if (bad)
			fail_msg("power cut at call %llu of %llu: %s", (unsigned long long)p.at,
			         (unsigned long long)calls, bad);
	}
	assert_true(p.cuts > EVERY_UP_TO);
	power_points_end(&p, SLACK);
}

static void store__keeps_what_it_acknowledged_when_the_unsynced_is_gone(void **state)
{
	sweep(DISK_LOSE_UNSYNCED);
}

static void store__keeps_what_it_acknowledged_when_the_unsynced_is_torn(void **state)
{
	sweep(DISK_TEAR);
}

/* Killed at a call, started again: what is read then is told to agents, so a power cut right after
 * the start must not take it back. */
static const char *kill_at(uint64_t at, enum disk_loss loss, uint64_t seed, bool *ret_killed)
{
	uint8_t digest[SHA256_LEN];
	const char *bad;
	uint64_t seq;

	begin_run(false);
	disk_arm(run.disk, at);
	live();
	*ret_killed = disk_is_off(run.disk);
	disk_arm(run.disk, UINT64_MAX);
	assert_true(open_store());
	assert_true(history_digest(&fix, digest, &seq));
	assert_true(seq >= atomic_load(&run.acknowledged) && seq <= run.submitted);
	atomic_store(&run.acknowledged, (unsigned)seq);
	disk_arm(run.disk, 0);
	disk_call(run.disk);
	fixture_close(&fix);
	disk_restore(run.disk, loss, seed + at);
	bad = check();
	disk_free(run.disk);
	return bad;
}

static void sweep_kills(enum disk_loss loss, uint64_t seed)
{
	uint64_t each = power_stride() * (1 + calls / 100);
	struct power_points p = {.calls = calls, .at_least = 1 + calls / each, .from = seed};

	while (power_points_next(&p)) {
		const char *bad = kill_at(p.at, loss, seed, &p.cut);

		if (bad)
			fail_msg("killed at call %llu of %llu (seed %llu): %s",
			         (unsigned long long)p.at, (unsigned long long)calls,
			         (unsigned long long)seed, bad);
	}
	power_points_end(&p, SLACK);
}

static void store__keeps_what_a_start_after_a_kill_has_read_when_the_power_goes(void **state)
{
	sweep_kills(DISK_LOSE_UNSYNCED, SEED);
}

/* In an ordinary run (ROS2_SWEEP_STRIDE) with one seed. */
static void store__keeps_what_a_start_after_a_kill_has_read_when_the_unsynced_is_torn(void **state)
{
	for (uint64_t i = 0; i < (power_stride() > 1 ? 1 : 3); i++)
		sweep_kills(DISK_TEAR, SEED + i * 100000);
}

/* From the n-th on, no sync works, and what was not synced by then is gone. */
static void store__acknowledges_nothing_after_a_failed_sync(void **state)
{
	uint64_t all;

	begin_run(false);
	live();
	all = power_vfs_syncs();
	disk_free(run.disk);
	assert_true(all > 30);
	for (uint64_t n = 1; n <= all; n += n < 12 ? 1 : power_stride()) {
		const char *bad;

		begin_run(false);
		power_vfs_use(&(struct power_vfs_opts){.disk = run.disk, .fail_sync_at = n});
		atomic_store(&fatals, 0);
		live();
		/* Told at once while it runs; at open and close in other ways. */
		if (run.submitted && atomic_load(&run.acknowledged) < run.submitted)
			assert_true(atomic_load(&fatals) > 0);
		disk_restore(run.disk, DISK_LOSE_UNSYNCED, SEED + n);
		power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
		bad = check();
		if (bad)
			fail_msg("sync %llu of %llu failed: %s", (unsigned long long)n,
			         (unsigned long long)all, bad);
		disk_free(run.disk);
	}
}

/* Another process starts on what the one before left, reads it, and acknowledges one more; then the
 * power goes. */
static const char *more_then_cut(uint64_t seed)
{
	uint8_t digest[SHA256_LEN];
	uint64_t seq;

	disk_arm(run.disk, UINT64_MAX);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
	if (!open_store())
		return "the store does not open";
	assert_true(history_digest(&fix, digest, &seq));
	assert_true(seq >= atomic_load(&run.acknowledged) && seq <= run.submitted);
	atomic_store(&run.acknowledged, (unsigned)seq);
	run.submitted = (unsigned)seq;
	if (seq < HISTORY_LEN)
		commit_some(1, 0);
	assert_int_equal(atomic_load(&run.acknowledged), run.submitted);
	disk_arm(run.disk, 0);
	disk_call(run.disk);
	fixture_close(&fix);
	disk_restore(run.disk, DISK_LOSE_UNSYNCED, seed);
	return check();
}

/* One sync fails, and what it should have kept no block has: but whoever reads the file is shown
 * it, and no later sync says otherwise. */
static void store__keeps_what_a_start_after_a_failed_sync_acknowledges(void **state)
{
	uint64_t all, ended = 0;

	begin_run(false);
	live();
	all = power_vfs_syncs();
	disk_free(run.disk);
	atomic_store(&fatal_ends, true);
	for (uint64_t n = 1; n <= all; n += n < 12 ? 1 : power_stride()) {
		const char *bad;

		begin_run(false);
		power_vfs_use(&(struct power_vfs_opts){.disk = run.disk, .forget_sync_at = n});
		live();
		ended += disk_is_off(run.disk);
		bad = more_then_cut(SEED + n);
		if (bad)
			fail_msg("sync %llu of %llu failed once: %s", (unsigned long long)n,
			         (unsigned long long)all, bad);
		disk_free(run.disk);
	}
	atomic_store(&fatal_ends, false);
	assert_true(ended > 20 / power_stride());
}

/* ---- no memory for the log's index ---- */

#define BIG_DOC   (60 * 1024)
#define INDEX_MAX 4062 /* frames in its first page (SQLite's walformat.html, 2.2) */
#define PAGE      4096

/* A transaction of some hundred frames. */
static int commit_big(unsigned n)
{
	static char doc[BIG_DOC];
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);
	char name[16];

	d->action = "tenant.apply";
	d->actor = "system";
	memset(doc, 'x', sizeof(doc) - 1);
	snprintf(name, sizeof(name), "big-%u", n);
	for (unsigned i = 0; i < 16; i++) {
		struct store_mut *m = store_txn_add(t, STORE_OBJECT_PUT);
		char one[24];

		snprintf(one, sizeof(one), "%s-%u", name, i);
		m->object = (struct store_object){.kind = STORE_TENANT,
		                                  .name = store_txn_str(t, one),
		                                  .uid = {{1, (uint8_t)n, (uint8_t)i}},
		                                  .version = 1,
		                                  .file = "t.yaml",
		                                  .doc = doc,
		                                  .state_reason = ""};
	}
	return fixture_commit(&fix, t);
}

/* Commits until one finds no memory for the index: 16 objects each were acknowledged for the *ret_n
 * before it. What that one was told. */
static int refused_by_the_index(uint64_t fail_after, unsigned *ret_n)
{
	unsigned n = 0;
	int r = 0;

	begin_run(false);
	power_vfs_use(&(struct power_vfs_opts){
		.disk = run.disk, .no_shm_memory = true, .fail_after_shm = fail_after});
	atomic_store(&fatals, 0);
	assert_true(open_store());
	while (!r && n < INDEX_MAX / 100) {
		r = commit_big(n);
		n += !r;
	}
	*ret_n = n;
	return r;
}

/* The machine is lost, or (@kill) the process only. How many transactions are there, in the tables
 * and in the log. */
static unsigned there_after_the_end(bool kill)
{
	int64_t objects;
	struct verdict v;

	disk_arm(run.disk, 0);
	disk_call(run.disk);
	fixture_close(&fix);
	if (!kill)
		disk_restore(run.disk, DISK_LOSE_UNSYNCED, SEED);
	disk_arm(run.disk, UINT64_MAX);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
	assert_true(open_store());
	objects = fixture_sql(&fix, "SELECT count(*) FROM objects WHERE name LIKE 'big-%'");
	assert_int_equal(objects % 16, 0);
	fixture_verify(&fix, &v);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.records, objects / 16);
	assert_int_equal(commit_big(INDEX_MAX), 0);
	fixture_close(&fix);
	disk_free(run.disk);
	return (unsigned)(objects / 16);
}

static void store__has_nothing_of_what_it_refused_after_a_power_cut(void **state)
{
	unsigned n;

	for (int kill = 0; kill <= 1; kill++) {
		assert_int_equal(refused_by_the_index(0, &n), -ENOMEM);
		assert_int_equal(atomic_load(&fatals), 0);
		assert_int_equal(there_after_the_end(kill), n);
	}
}

static bool is_not_taken_back(int r)
{
	return r == -EIO && strstr(fatal_why.msg, "cannot be taken back");
}

/* The commit that takes it back fails, too, at its first call, at its second ... until it does not:
 * that nobody knows what is there is said, and nothing is committed from then on. How often
 * something was there that had been refused. */
static unsigned fail_what_takes_back(bool kill, unsigned *ret_failed)
{
	const struct ros2_uid grant = {{1}}, tenant = {{2}};
	unsigned n, wrong = 0, there;
	int r;

	*ret_failed = 0;
	do {
		r = refused_by_the_index(*ret_failed + 1, &n);
		if (is_not_taken_back(r)) {
			assert_int_equal(atomic_load(&fatals), 1);
			assert_int_equal(commit_big(n + 1), -EIO);
			assert_int_equal(fixture_commit(&fix, fixture_grant(&grant, &tenant)),
			                 -EIO);
			(*ret_failed)++;
		}
		there = there_after_the_end(kill);
		assert_true(there == n || there == n + 1);
		wrong += r == -ENOMEM && there != n;
	} while (is_not_taken_back(r));
	return wrong;
}

static void store__ends_when_it_cannot_take_back_what_it_refused(void **state)
{
	unsigned failed;

	for (int kill = 0; kill <= 1; kill++) {
		assert_int_equal(fail_what_takes_back(kill, &failed), 0);
		assert_true(failed > 2);
	}
}

static int commit_that_says_refused(void *b, struct ros2_err *err)
{
	int r = store_sqlite_ops.commit(b, err);

	return r == -EIO ? -ENOMEM : r;
}

static void power__cut_finds_what_was_refused_and_not_taken_back(void **state)
{
	unsigned failed;

	ops.commit = commit_that_says_refused;
	assert_int_equal(fail_what_takes_back(false, &failed), 1);
	ops.commit = store_sqlite_ops.commit;
}

/* The disk is full when the log's index would grow: no commit is refused for that, and none ends
 * the store, for the index is there already. Nothing is moved out of the log here (said_wal_bytes).
 */
static void store__commits_where_the_index_of_the_log_cannot_grow(void **state)
{
	char path[128];
	struct stat st;

	begin_run(false);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
	assert_true(open_store());
	power_vfs_index_full();
	for (unsigned n = 0; n < INDEX_MAX / 100; n++)
		assert_int_equal(commit_big(n), 0);
	fixture_path(&fix, "ros2.db-wal", path);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size / PAGE > INDEX_MAX);
	fixture_close(&fix);
	disk_free(run.disk);
}

/* ---- writes that fail ---- */

/* NULL, or what is wrong with what those who asked heard. */
static const char *told(const struct power_vfs_opts *o)
{
	if (atomic_load(&run.acknowledged) == run.submitted || atomic_load(&fatals))
		return NULL;
	/* A lack of space is no broken file; and what fails once is tried again. */
	if (o->write_errno == ENOSPC && !o->write_for_good)
		return "one was refused for a lack of space that had passed";
	return atomic_load(&run.refused) ? NULL : "nobody was told";
}

/* NULL, or what is wrong. @ret_failed: it came to that write. */
static const char *fail_write(const struct power_vfs_opts *o, bool *ret_failed)
{
	struct power_vfs_opts with = *o;
	const char *bad;

	begin_run(false);
	with.disk = run.disk;
	power_vfs_use(&with);
	atomic_store(&fatals, 0);
	atomic_store(&fatal_ends, true);
	live();
	atomic_store(&fatal_ends, false);
	*ret_failed = power_vfs_writes() >= o->fail_write_at;
	bad = o->write_lies ? NULL : told(o);
	disk_restore(run.disk, DISK_LOSE_UNSYNCED, SEED + o->fail_write_at);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
	bad = bad ? bad : check();
	disk_free(run.disk);
	return bad;
}

/* Some of them, others each time: @first is where it begins. With ROS2_POWER_ALL all. */
static unsigned fail_writes(struct power_vfs_opts o, uint64_t first)
{
	uint64_t all, step;
	const char *bad = NULL;
	bool failed = true;
	unsigned n = 0;

	begin_run(false);
	live();
	all = power_vfs_writes();
	disk_free(run.disk);
	assert_true(all > 100);
	step = power_all() ? 1 : power_stride() * (1 + all / 30);
	for (o.fail_write_at = 1 + first % step; failed && !bad; o.fail_write_at += step) {
		bad = fail_write(&o, &failed);
		n += failed;
		if (bad)
			fail_msg("write %llu of %llu, %s%s: %s",
			         (unsigned long long)o.fail_write_at, (unsigned long long)all,
			         strerror(o.write_errno), o.write_for_good ? ", for good" : "",
			         bad);
	}
	power_all_tried(n, all, SLACK);
	return n;
}

static void store__says_so_when_any_write_fails(void **state)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		struct power_vfs_opts o = {.write_errno = kind & 1 ? ENOSPC : EIO,
		                           .write_for_good = kind & 2};

		assert_true(fail_writes(o, kind) > 20 / power_stride());
	}
}

static void power__sweep_finds_the_losses_of_a_write_that_does_nothing(void **state)
{
	struct power_vfs_opts o = {.write_errno = EIO, .write_lies = true};
	unsigned losses = 0;
	bool failed = true;

	for (o.fail_write_at = 40; failed && !losses; o.fail_write_at += 7)
		losses += fail_write(&o, &failed) != NULL;
	assert_true(losses > 0);
}

/* Cuts in the second half, where much was acknowledged. */
static unsigned losses(enum disk_loss loss, bool sync_lies)
{
	unsigned n = 0;
	bool cut;

	for (uint64_t at = calls / 2; at < calls; at += calls / 16)
		n += cut_at(at, loss, sync_lies, &cut) != NULL;
	return n;
}

static void losses_with(const char *synchronous)
{
	weaker = synchronous;
	weakened = 0;
	assert_true(losses(DISK_LOSE_UNSYNCED, false) > 0);
	assert_true(losses(DISK_TEAR, false) > 0);
	assert_true(weakened > 0);
	weaker = NULL;
}

static void power__sweep_finds_the_losses_of_synchronous_off(void **state)
{
	losses_with("OFF");
}

static void power__sweep_finds_the_losses_of_synchronous_normal(void **state)
{
	losses_with("NORMAL");
}

static void power__sweep_finds_the_losses_of_a_sync_that_does_nothing(void **state)
{
	assert_true(losses(DISK_LOSE_UNSYNCED, true) > 0);
	assert_true(losses(DISK_TEAR, true) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store__has_nothing_of_what_it_refused_after_a_power_cut),
		cmocka_unit_test(store__commits_where_the_index_of_the_log_cannot_grow),
		cmocka_unit_test(store__ends_when_it_cannot_take_back_what_it_refused),
		cmocka_unit_test(power__cut_finds_what_was_refused_and_not_taken_back),
		cmocka_unit_test(store__keeps_what_it_acknowledged_when_the_unsynced_is_gone),
		cmocka_unit_test(store__keeps_what_it_acknowledged_when_the_unsynced_is_torn),
		cmocka_unit_test(
			store__keeps_what_a_start_after_a_kill_has_read_when_the_power_goes),
		cmocka_unit_test(
			store__keeps_what_a_start_after_a_kill_has_read_when_the_unsynced_is_torn),
		cmocka_unit_test(store__acknowledges_nothing_after_a_failed_sync),
		cmocka_unit_test(store__keeps_what_a_start_after_a_failed_sync_acknowledges),
		cmocka_unit_test(store__says_so_when_any_write_fails),
		cmocka_unit_test(power__sweep_finds_the_losses_of_a_write_that_does_nothing),
		cmocka_unit_test(power__sweep_finds_the_losses_of_synchronous_off),
		cmocka_unit_test(power__sweep_finds_the_losses_of_synchronous_normal),
		cmocka_unit_test(power__sweep_finds_the_losses_of_a_sync_that_does_nothing),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write-ahead log and the thread that moves it: in steps, not at each commit; and a commit that
 * comes while the log is begun anew is woken when that is over, or told after a time. SQLite's own
 * lock it would wait for in sleeps (the control). Whoever reads page after page beside them does
 * not make the log grow; a reader that stays does (the control).
 */
#include "common/util.h"
#include "controller/store_priv.h"
#include "controller/store_sqlite_priv.h"
#include "tests/await.h"
#include "tests/controller/store_fixture.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#define STEP (2u << 20)  /* WAL_SOFT_BYTES */
#define LONG (64u << 20) /* beyond WAL_HARD_BYTES */
#define MOST (20u << 20) /* WAL_HARD_BYTES, and what is committed until that is seen and done */

static struct fixture fix;
static struct store_ops ops;
static const struct ros2_uid TENANT = {{0xaa}};
static unsigned granted;

static struct store_txn *next_grant(void)
{
	struct ros2_uid uid = {{0x55}};

	granted++;
	memcpy(uid.b + 8, &granted, sizeof(granted));
	return fixture_grant(&uid, &TENANT);
}

static off_t size_of_log(void)
{
	struct stat st;
	char path[128];

	fixture_path(&fix, "ros2.db-wal", path);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* ---- what the store is told of the log ---- */

static _Atomic uint64_t said_bytes; /* 0: the truth */
static _Atomic bool long_next;      /* said to be long from the next commit on */
static _Atomic unsigned compactions;
static sem_t compacted; /* after what is said to be long */

static uint64_t say_bytes(void *b)
{
	uint64_t n = atomic_load(&said_bytes);

	return n ? n : store_sqlite_ops.wal_bytes(b);
}

static struct {
	_Atomic unsigned chains; /* of commits, those that go on */
	_Atomic unsigned failed;
	_Atomic uint64_t bytes; /* written to the log */
	uint64_t last;          /* its length at the last commit; front thread */
} much;

/* A log that is shorter than at the last commit was begun anew. */
static void count_bytes(void *b)
{
	uint64_t now = store_sqlite_ops.wal_bytes(b), last = much.last;

	much.last = now;
	atomic_fetch_add(&much.bytes, now >= last ? now - last : now);
}

static int commit(void *b, struct ros2_err *err)
{
	int r = store_sqlite_ops.commit(b, err);

	count_bytes(b);
	if (atomic_exchange(&long_next, false))
		atomic_store(&said_bytes, LONG);
	return r;
}

static int count_compact(void *b, bool hard)
{
	int r;

	if (hard) /* one that began before this was said leaves it to the next */
		atomic_store(&said_bytes, 0);
	r = store_sqlite_ops.compact(b, hard);
	atomic_fetch_add(&compactions, 1);
	if (hard)
		sem_post(&compacted);
	return r;
}

/* ---- who sleeps, and who asks for a turn ---- */

static sqlite3_vfs *vfs;
static int (*real_sleep)(sqlite3_vfs *v, int us);
static _Atomic enum { OFF, ARMED, SENT, LEAVES, HOLDS } stage;
static sqlite3 *reader;
static _Atomic bool no_turns;
static _Atomic unsigned front_sleeps;
static struct wait beside;
static sem_t front_waits; /* for its turn, or asleep */
static sem_t front_gave_up;

int __real_sqlite_turn_commit(struct wal_turn *t, struct ros2_err *err);
int __wrap_sqlite_turn_commit(struct wal_turn *t, struct ros2_err *err);
int __wrap_sqlite_turn_commit(struct wal_turn *t, struct ros2_err *err)
{
	int r;

	if (atomic_load(&no_turns))
		return 0;
	if (atomic_load(&stage) == SENT)
		sem_post(&front_waits);
	if (atomic_load(&stage) == HOLDS)
		t->patience_ns = 20 * NS_PER_MS;
	r = __real_sqlite_turn_commit(t, err);
	if (r)
		sem_post(&front_gave_up);
	return r;
}

/* The compactor sleeps, for there is a reader, and holds the lock that a commit needs: one is sent,
 * and the compactor goes on when that is seen to wait. */
static int watched_sleep(sqlite3_vfs *v, int us)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (!strcmp(name, "store")) {
		atomic_fetch_add(&front_sleeps, 1);
		sem_post(&front_waits);
	} else if (!strcmp(name, "store-wal") && atomic_load(&stage) == ARMED) {
		atomic_store(&stage, SENT);
		fixture_submit(&fix, &beside, next_grant());
		sem_wait(&front_waits);
		atomic_store(&stage, OFF);
	} else if (!strcmp(name, "store-wal") && atomic_load(&stage) == HOLDS) {
		fixture_submit(&fix, &beside, next_grant());
		sem_wait(&front_gave_up);
		atomic_store(&stage, OFF);
	} else if (!strcmp(name, "store-wal") && atomic_load(&stage) == LEAVES) {
		sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL);
		atomic_store(&stage, OFF);
	}
	return real_sleep(v, us);
}

static int setup_with(uint32_t lock_wait_ms)
{
	struct ros2_err err = ROS2_ERR_INIT;

	fixture_init(&fix);
	fix.opts.lock_wait_ms = lock_wait_ms;
	ops = store_sqlite_ops;
	ops.wal_bytes = say_bytes;
	ops.commit = commit;
	ops.compact = count_compact;
	fix.opts.ops = &ops;
	fix.opts.checkpoint_ms = 3600 * 1000;
	sem_init(&compacted, 0, 0);
	sem_init(&front_waits, 0, 0);
	sem_init(&front_gave_up, 0, 0);
	beside = (struct wait){0};
	granted = 0;
	much.last = 0;
	atomic_store(&compactions, 0);
	atomic_store(&front_sleeps, 0);
	atomic_store(&stage, OFF);
	atomic_store(&no_turns, false);
	vfs = sqlite3_vfs_find(NULL);
	real_sleep = vfs->xSleep;
	vfs->xSleep = watched_sleep;
	assert_int_equal(fixture_open(&fix, &err), 0);
	return 0;
}

static int setup(void **state)
{
	return setup_with(0);
}

/* Who has waited for a turn in vain has waited as long as the store waits. */
static int setup_hasty(void **state)
{
	return setup_with(1);
}

static int teardown(void **state)
{
	fixture_close(&fix);
	vfs->xSleep = real_sleep;
	fixture_fini(&fix);
	return 0;
}

/* ---- tests ---- */

/* One commit after the other. What is there is moved when there is a step of it. */
static void wal__is_moved_in_steps(void **state)
{
	unsigned first = 20, steps = 4, commits;
	off_t each;

	for (unsigned i = 0; i < first; i++)
		assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	each = size_of_log() / first;
	assert_int_equal(atomic_load(&compactions), 0);
	commits = (unsigned)((off_t)steps * STEP / each);
	assert_true(commits > 20 * steps); /* or nothing is shown */
	for (unsigned i = 0; i < commits; i++)
		assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	assert_in_range(atomic_load(&compactions), 1, steps + 1);
}

/* A commit, and then the log is begun anew. */
static void begin_anew(void)
{
	atomic_store(&long_next, true);
	assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	sem_wait(&compacted);
}

/* Of what is in the log by now; what is committed later it does not see, and keeps in the log. */
static void reader_begins(void)
{
	char path[128];

	fixture_path(&fix, "ros2.db", path);
	assert_int_equal(sqlite3_open_v2(path, &reader, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT * FROM meta", NULL, NULL, NULL),
	                 SQLITE_OK);
}

/* PASSIVE cannot, for there is a reader; RESTART waits for it. */
static void wal__that_is_long_is_begun_anew(void **state)
{
	off_t size;

	for (int i = 0; i < 40; i++)
		assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	reader_begins();
	atomic_store(&stage, LEAVES);
	begin_anew();
	assert_int_equal(atomic_load(&stage), OFF); /* it was waited for */
	sqlite3_close(reader);
	size = size_of_log();
	for (int i = 0; i < 30; i++)
		assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	assert_int_equal(size_of_log(), size);
	assert_int_equal(fixture_sql(&fix, "SELECT count(*) FROM grants"), granted);
}

/* Somebody reads what is in the log, so RESTART waits for them, while nobody may write. */
static unsigned sleeps_beside_a_restart(void)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	reader_begins();
	atomic_store(&stage, ARMED);
	begin_anew();
	fixture_wait(&fix, &beside);
	assert_int_equal(beside.due, 1); /* the compactor did wait */
	assert_int_equal(beside.failed, 0);
	sqlite3_close(reader);
	assert_int_equal(fixture_sql(&fix, "SELECT count(*) FROM grants"), granted);
	return atomic_load(&front_sleeps);
}

/* A reader that stays: what it keeps in the log is long, so nobody is kept waiting for RESTART. */
static void wal__that_is_read_is_not_waited_for(void **state)
{
	unsigned commits = 0;

	reader_begins();
	while (size_of_log() < 600 * 4096) {
		assert_int_equal(fixture_commit(&fix, next_grant()), 0);
		commits++;
	}
	atomic_store(&stage, ARMED);
	begin_anew();
	assert_int_equal(atomic_load(&stage), ARMED); /* the compactor slept for nobody */
	atomic_store(&stage, OFF);
	sqlite3_close(reader);
	assert_int_equal(fixture_sql(&fix, "SELECT count(*) FROM grants"), commits + 1);
}

static void wal__a_commit_beside_a_restart_is_woken(void **state)
{
	assert_int_equal(sleeps_beside_a_restart(), 0);
}

static void control__without_turns_it_sleeps(void **state)
{
	atomic_store(&no_turns, true);
	assert_true(sleeps_beside_a_restart() > 0);
}

/* The log is being begun anew for longer than a commit waits: nothing of that is stored, and what
 * comes later is. */
static void wal__a_commit_does_not_wait_for_ever(void **state)
{
	assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	reader_begins();
	atomic_store(&stage, HOLDS);
	begin_anew();
	fixture_wait(&fix, &beside);
	assert_int_equal(beside.due, 1);
	assert_int_equal(beside.last.rc, -EBUSY);
	assert_non_null(strstr(beside.last.err.msg, "try again"));
	sqlite3_close(reader);
	assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	assert_int_equal(fixture_sql(&fix, "SELECT count(*) FROM grants"), granted - 1);
}

/* ---- who reads page after page ---- */

static struct stream {
	_Atomic uint64_t pages;
	_Atomic bool ends, ended;
} streams[3];

static int ask(struct stream *s);

static void on_page(void *arg, const struct store_audit_page *p)
{
	struct stream *s = arg;

	atomic_fetch_add(&s->pages, p->rc == 0);
	if (atomic_load(&s->ends) || ask(s))
		atomic_store(&s->ended, true);
}

static int ask(struct stream *s)
{
	struct store_audit_query q = {.from_seq = 1, .limit = STORE_PAGE_MAX};

	return store_read_audit(fix.store, &q, on_page, s);
}

/* Commits without a pause, each answer asking for the next, until the log would be several times as
 * long as it may become. Loop thread. */
static void on_committed(void *arg, const struct store_result *r)
{
	atomic_fetch_add(&much.failed, r->rc != 0);
	if (r->rc || atomic_load(&much.bytes) >= 3ull * MOST ||
	    store_submit(fix.store, next_grant(), on_committed, NULL, NULL))
		atomic_fetch_sub(&much.chains, 1);
}

static void commit_chains(void *arg)
{
	const struct store_result begin = {0};

	for (unsigned i = atomic_load(&much.chains); i; i--)
		on_committed(NULL, &begin);
}

static void commit_much(void)
{
	atomic_store(&much.bytes, 0);
	atomic_store(&much.failed, 0);
	atomic_store(&much.chains, 48);
	loop_call(fix.loop, commit_chains, NULL);
	assert_true(AWAIT(!atomic_load(&much.chains)));
	assert_int_equal(atomic_load(&much.failed), 0);
}

static void wal__does_not_grow_beside_readers(void **state)
{
	off_t size;

	memset(streams, 0, sizeof(streams));
	assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++)
		assert_int_equal(ask(&streams[i]), 0);
	commit_much();
	size = size_of_log();
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++)
		atomic_store(&streams[i].ends, true);
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
		assert_true(AWAIT(atomic_load(&streams[i].ended)));
		assert_true(atomic_load(&streams[i].pages) > 20); /* or nothing is shown */
	}
	assert_in_range(size, STEP, MOST);
}

static void control__a_reader_that_stays_makes_it_grow(void **state)
{
	assert_int_equal(fixture_commit(&fix, next_grant()), 0);
	reader_begins();
	commit_much();
	assert_true(size_of_log() > MOST);
	sqlite3_close(reader);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(wal__is_moved_in_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(wal__that_is_long_is_begun_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(wal__a_commit_beside_a_restart_is_woken, setup,
	                                        teardown),
		cmocka_unit_test_setup_teardown(wal__that_is_read_is_not_waited_for, setup,
	                                        teardown),
		cmocka_unit_test_setup_teardown(control__without_turns_it_sleeps, setup, teardown),
		cmocka_unit_test_setup_teardown(wal__a_commit_does_not_wait_for_ever, setup_hasty,
	                                        teardown),
		cmocka_unit_test_setup_teardown(wal__does_not_grow_beside_readers, setup, teardown),
		cmocka_unit_test_setup_teardown(control__a_reader_that_stays_makes_it_grow, setup,
	                                        teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

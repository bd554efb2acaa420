/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store beside another process that has locked its file: what takes rights away is answered
 * when that was waited for once, is kept, and is stored before anything that gives some; the rest
 * fails by name.
 */
#include "common/clock.h"
#include "controller/store_priv.h"
#include "tests/await.h"
#include "tests/controller/store_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int setup(void **state)
{
	struct fixture *f = malloc(sizeof(*f));

	fixture_init(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	fixture_fini(*state);
	free(*state);
	return 0;
}

static struct fixture *opened(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fixture_open(*state, &err))
		fail_msg("%s", err.msg);
	return *state;
}

static void nothing_waits_any_more(struct fixture *f)
{
	struct store_stats st;

	assert_true(AWAIT((store_stats(f->store, &st), !st.record_pending)));
}

static _Atomic bool impatient; /* with locks of others */

int __real_sqlite3_busy_timeout(sqlite3 *db, int ms);
int __wrap_sqlite3_busy_timeout(sqlite3 *db, int ms);
int __wrap_sqlite3_busy_timeout(sqlite3 *db, int ms)
{
	return __real_sqlite3_busy_timeout(db, impatient && ms > 20 ? 20 : ms);
}

static struct fixture *opened_impatient(void **state)
{
	struct fixture *f = *state;

	impatient = true;
	f->opts.lock_wait_ms = 1;
	return opened(state);
}

static int teardown_impatient(void **state)
{
	int r = teardown(state);

	impatient = false;
	return r;
}

/* alpha's row, as revoked at version 6 or reinstated at 7. */
static struct store_txn *alpha_row(const struct ros2_uid *u, bool revoked)
{
	struct store_txn *t = store_txn_new();

	store_txn_add(t, STORE_OBJECT_PUT)->object =
		(struct store_object){.kind = STORE_TENANT,
	                              .name = "alpha",
	                              .uid = *u,
	                              .version = revoked ? 6 : 7,
	                              .doc = "kind: Tenant\n",
	                              .image = store_txn_mem(t, "IMAGE", 5),
	                              .image_len = 5,
	                              .revoked = revoked};
	if (revoked)
		store_txn_set_shrinks(t);
	return t;
}

/* The control: nothing is looked at that waits. */
static _Atomic bool any_order;

bool __real_store_reserve_may_refuse(const struct list *txns);
bool __wrap_store_reserve_may_refuse(const struct list *txns);
bool __wrap_store_reserve_may_refuse(const struct list *txns)
{
	return !any_order && __real_store_reserve_may_refuse(txns);
}

void __real_store_reserve_refuse(struct store *s, struct list *txns, bool pending,
                                 struct list *ret_refused);
void __wrap_store_reserve_refuse(struct store *s, struct list *txns, bool pending,
                                 struct list *ret_refused);
void __wrap_store_reserve_refuse(struct store *s, struct list *txns, bool pending,
                                 struct list *ret_refused)
{
	__real_store_reserve_refuse(s, txns, pending && !any_order, ret_refused);
}

static void nothing(void *arg)
{
}

/* What is kept is the store's again only when its owner's function has returned. */
static void delivered(struct fixture *f)
{
	loop_call(f->loop, nothing, NULL);
}

static sqlite3 *lock_of_another(struct fixture *f)
{
	char path[128];
	sqlite3 *db;

	fixture_path(f, "ros2.db", path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	sqlite3_busy_timeout(db, AWAIT_MS);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	return db;
}

static void unlock(sqlite3 *db)
{
	assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

/* A revocation of alpha that waits for a lock on the file, and @db has that. */
static sqlite3 *revoked_behind_a_lock(struct fixture *f, const struct ros2_uid *u)
{
	struct wait w = {0};
	sqlite3 *db = lock_of_another(f);

	fixture_submit(f, &w, alpha_row(u, true));
	fixture_wait(f, &w);
	delivered(f);
	assert_int_equal(w.last.rc, -EBUSY);
	assert_true(w.last.record_pending);
	return db;
}

/* A lock of another process on the file: the revocation is effective and waits. What gives the
 * right back is refused as long as it does, and comes behind it when the lock is gone. */
static void store__gives_nothing_back_before_what_was_taken_away_is_recorded(void **state)
{
	struct ros2_uid u = ros2_uid_new();
	struct fixture *f = opened_impatient(state);
	sqlite3 *db = revoked_behind_a_lock(f, &u);

	assert_int_equal(fixture_commit(f, alpha_row(&u, false)), -EBUSY);
	unlock(db);
	assert_int_equal(fixture_commit(f, alpha_row(&u, false)), 0);
	/* Whoever comes first, the last word is the reinstatement's: also a second later, when the
	 * revocation would have been tried again. */
	nothing_waits_any_more(f);
	assert_int_equal(fixture_sql(f, "SELECT version FROM objects"), 7);
	assert_int_equal(fixture_sql(f, "SELECT revoked FROM objects"), 0);
}

/* ---- how often the lock is waited for ---- */

static sem_t begins; /* the store thread is about to wait for the lock */
static sem_t go_on;  /* it may */
static _Atomic bool held;
static _Atomic unsigned in_vain; /* how often it did, since it had it */
static _Atomic unsigned begun;   /* how often it had it */
static struct store_ops counting;

static int counted_begin(void *b, struct ros2_err *err)
{
	int r;

	if (atomic_load(&held)) {
		sem_post(&begins);
		sem_wait(&go_on);
	}
	r = store_sqlite_ops.begin(b, err);
	if (r == -EBUSY)
		atomic_fetch_add(&in_vain, 1);
	else
		atomic_store(&in_vain, 0);
	atomic_fetch_add(&begun, r == 0);
	return r;
}

static void count_begins(struct fixture *f)
{
	counting = store_sqlite_ops;
	counting.begin = counted_begin;
	atomic_store(&in_vain, 0);
	f->opts.ops = &counting;
	f->opts.checkpoint_ms = 3600 * 1000; /* no tick takes part */
}

struct last { /* the one that takes rights away */
	struct wait w;
	_Atomic unsigned in_vain, begun; /* when it was answered */
};

static void on_last(void *arg, const struct store_result *r)
{
	struct last *l = arg;

	atomic_store(&l->in_vain, atomic_load(&in_vain));
	atomic_store(&l->begun, atomic_load(&begun));
	l->w.last = *r;
	atomic_fetch_add(&l->w.done, 1);
}

/* Of each turn: one wait, whatever it has to do. The first is of what came before the others, the
 * second of these and of the revocation behind them. */
static void store__waits_for_a_lock_of_another_process_once_for_all_that_wait(void **state)
{
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new(), g;
	struct fixture *f = *state;
	struct wait first = {0}, w = {0};
	struct last l = {.w.due = 1};
	sqlite3 *db;

	count_begins(f);
	sem_init(&begins, 0, 0);
	sem_init(&go_on, 0, 0);
	opened_impatient(state);
	db = lock_of_another(f);
	atomic_store(&in_vain, 0);
	atomic_store(&held, true);
	g = ros2_uid_new();
	fixture_submit(f, &first, fixture_grant(&g, &tenant));
	sem_wait(&begins);
	for (int i = 0; i < 100; i++) {
		g = ros2_uid_new();
		fixture_submit(f, &w, fixture_grant(&g, &tenant));
	}
	assert_int_equal(store_submit(f->store, alpha_row(&u, true), on_last, &l, NULL), 0);
	atomic_store(&held, false);
	sem_post(&go_on);
	fixture_wait(f, &l.w);
	assert_int_equal(l.w.last.rc, -EBUSY);
	assert_true(l.w.last.record_pending);
	assert_in_range(atomic_load(&l.in_vain), 1, 2);
	fixture_wait(f, &first);
	fixture_wait(f, &w);
	delivered(f);
	assert_int_equal(w.failed, 100);
	assert_int_equal(w.pending, 0);
	assert_int_equal(w.last.rc, -EBUSY);
	assert_string_not_equal(w.last.err.msg, "");
	unlock(db);
	/* What gives rights comes behind what waits: that is stored with it. */
	assert_int_equal(fixture_commit(f, fixture_grant(&g, &tenant)), 0);
	nothing_waits_any_more(f);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM grants"), 1);
	assert_int_equal(fixture_sql(f, "SELECT revoked FROM objects"), 1);
	fixture_close(f);
	sem_destroy(&begins);
	sem_destroy(&go_on);
}

#define FOR_EVER (3600 * 1000)

/* Also one that comes while it is already being waited for: the grants before it, which would wait
 * for as long as it takes, are told that there is a lock. */
static void store__keeps_no_revocation_waiting_for_a_lock_that_grants_wait_for(void **state)
{
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new(), g = ros2_uid_new();
	struct fixture *f = *state;
	struct wait w = {0};
	struct last l = {.w.due = 1};
	unsigned before;
	sqlite3 *db;

	count_begins(f);
	f->opts.lock_wait_ms = FOR_EVER;
	impatient = true;
	opened(state);
	db = lock_of_another(f);
	fixture_submit(f, &w, fixture_grant(&g, &tenant));
	/* The control: what takes nothing away goes on waiting, and so do others beside it. */
	assert_true(AWAIT(atomic_load(&in_vain) >= 3));
	g = ros2_uid_new();
	fixture_submit(f, &w, fixture_grant(&g, &tenant));
	before = atomic_load(&in_vain);
	assert_true(AWAIT(atomic_load(&in_vain) >= before + 3));
	assert_int_equal(atomic_load(&w.done), 0);
	assert_int_equal(store_submit(f->store, alpha_row(&u, true), on_last, &l, NULL), 0);
	fixture_wait(f, &l.w);
	assert_int_equal(l.w.last.rc, -EBUSY);
	assert_true(l.w.last.record_pending);
	fixture_wait(f, &w);
	assert_int_equal(w.failed, 2);
	delivered(f);
	unlock(db);
	g = ros2_uid_new();
	assert_int_equal(fixture_commit(f, fixture_grant(&g, &tenant)), 0);
	assert_int_equal(fixture_sql(f, "SELECT revoked FROM objects"), 1);
	fixture_close(f);
}

#define WAITING 200

/* WAITING of them, each to be stored by itself when the lock is gone: @db has that. */
static sqlite3 *many_wait(struct fixture *f, const struct ros2_uid *u)
{
	sqlite3 *db = lock_of_another(f);
	struct wait w = {0};

	for (int i = 0; i < WAITING; i++)
		fixture_submit(f, &w, alpha_row(u, true));
	fixture_wait(f, &w);
	delivered(f);
	assert_int_equal(w.pending, WAITING);
	return db;
}

/* What was taken away before is stored when it can be, be it for what would give some or because
 * the time has come. A revocation that comes amid that is not behind all of it. */
static void comes_amid_those_that_wait(void **state, bool at_a_tick)
{
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new(), g = ros2_uid_new();
	struct fixture *f = *state;
	struct wait w = {0};
	struct last l = {.w.due = 1};
	sqlite3 *db;

	count_begins(f);
	if (at_a_tick)
		f->opts.checkpoint_ms = 20;
	sem_init(&begins, 0, 0);
	sem_init(&go_on, 0, 0);
	opened_impatient(state);
	db = many_wait(f, &u);
	atomic_store(&held, true);
	if (!at_a_tick)
		fixture_submit(f, &w, fixture_grant(&g, &tenant));
	sem_wait(&begins);
	unlock(db);
	atomic_store(&begun, 0);
	assert_int_equal(store_submit(f->store, alpha_row(&u, true), on_last, &l, NULL), 0);
	atomic_store(&held, false);
	sem_post(&go_on);
	fixture_wait(f, &l.w);
	assert_int_equal(l.w.last.rc, 0);
	assert_in_range(atomic_load(&l.begun), 1, 4);
	/* Nothing is forgotten for it. */
	fixture_wait(f, &w);
	assert_true(AWAIT(fixture_commit(f, fixture_grant(&g, &tenant)) == 0));
	nothing_waits_any_more(f);
	fixture_close(f);
	sem_destroy(&begins);
	sem_destroy(&go_on);
}

static void store__keeps_no_revocation_waiting_for_those_that_are_recorded_late(void **state)
{
	comes_amid_those_that_wait(state, false);
}

static void store__keeps_no_revocation_waiting_for_those_that_are_tried_each_second(void **state)
{
	comes_amid_those_that_wait(state, true);
}

static int one_is_too_large(void *b, const struct store_mut *m, struct ros2_err *err)
{
	if (m->kind == STORE_GRANT_PUT && m->grant.max_keys == UINT32_MAX)
		return ros2_err_set(err, -ENOSPC, "there is no room for it");
	return store_sqlite_ops.apply(b, m, err);
}

static struct store_txn *too_large(const struct ros2_uid *uid, const struct ros2_uid *tenant)
{
	struct store_txn *t = fixture_grant(uid, tenant);

	store_txn_add(t, STORE_GRANT_PUT)->grant =
		(struct store_grant){.uid = *uid, .tenant_uid = *tenant, .max_keys = UINT32_MAX};
	return t;
}

/* Of a common commit that finds no space each is tried by itself, also those before it. */
static void store__keeps_no_revocation_waiting_for_grants_that_are_tried_alone(void **state)
{
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new(), g = ros2_uid_new();
	struct fixture *f = *state;
	struct wait first = {0}, w = {0};
	struct last l = {.w.due = 1};

	count_begins(f);
	counting.apply = one_is_too_large;
	sem_init(&begins, 0, 0);
	sem_init(&go_on, 0, 0);
	opened_impatient(state);
	atomic_store(&held, true);
	fixture_submit(f, &first, fixture_grant(&g, &tenant));
	sem_wait(&begins);
	for (int i = 0; i < WAITING; i++) {
		g = ros2_uid_new();
		fixture_submit(f, &w, i ? fixture_grant(&g, &tenant) : too_large(&g, &tenant));
	}
	assert_int_equal(store_submit(f->store, alpha_row(&u, true), on_last, &l, NULL), 0);
	atomic_store(&begun, 0);
	atomic_store(&held, false);
	sem_post(&go_on);
	fixture_wait(f, &l.w);
	assert_int_equal(l.w.last.rc, 0);
	/* That of the first, the common one, and its own. */
	assert_in_range(atomic_load(&l.begun), 1, 3);
	fixture_wait(f, &w);
	assert_int_equal(w.failed, WAITING);
	/* The control: without it those that find room get it. */
	w = (struct wait){0};
	atomic_store(&held, true);
	fixture_submit(f, &first, fixture_grant(&g, &tenant));
	sem_wait(&begins);
	for (int i = 0; i < WAITING; i++) {
		g = ros2_uid_new();
		fixture_submit(f, &w, i ? fixture_grant(&g, &tenant) : too_large(&g, &tenant));
	}
	atomic_store(&held, false);
	sem_post(&go_on);
	fixture_wait(f, &w);
	assert_int_equal(w.failed, 1);
	fixture_close(f);
	sem_destroy(&begins);
	sem_destroy(&go_on);
}

/* A lock that stays is tried once, until it was had; then it is waited for as before. */
static void store__that_waited_for_a_lock_in_vain_is_impatient_until_it_had_it(void **state)
{
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new(), g = ros2_uid_new();
	struct fixture *f = *state;
	struct wait w = {0};
	unsigned before;
	sqlite3 *db;

	count_begins(f);
	f->opts.lock_wait_ms = FOR_EVER;
	impatient = true;
	opened(state);
	db = revoked_behind_a_lock(f, &u);
	before = atomic_load(&in_vain);
	assert_int_equal(fixture_commit(f, alpha_row(&u, false)), -EBUSY);
	assert_in_range(atomic_load(&in_vain), before + 1, before + 2); /* and what waits */
	unlock(db);
	assert_int_equal(fixture_commit(f, alpha_row(&u, false)), 0);
	db = lock_of_another(f);
	fixture_submit(f, &w, fixture_grant(&g, &tenant));
	assert_true(AWAIT(atomic_load(&in_vain) >= 5));
	assert_int_equal(atomic_load(&w.done), 0);
	unlock(db);
	fixture_wait(f, &w);
	assert_int_equal(w.failed, 0);
	fixture_close(f);
}

/* What passes is not answered with the advice to put an old copy in its place. */
static void store__that_another_process_has_locked_is_not_said_to_be_none(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = opened(state);
	char path[128];
	sqlite3 *db;

	fixture_close(f);
	fixture_path(f, "ros2.db", path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
	                              "PRAGMA locking_mode=EXCLUSIVE; SELECT * FROM sqlite_schema",
	                              NULL, NULL, NULL),
	                 SQLITE_OK);
	impatient = true;
	assert_int_equal(fixture_open(f, &err), -EBUSY);
	impatient = false;
	assert_null(strstr(err.msg, "backup"));
	sqlite3_close(db);
	assert_int_equal(fixture_open(f, &err), 0);
}

/* ---- a lock that SQLite does not say to be one ---- */

/* Another process has locked what readers of the write-ahead log lock: bytes 123 to 127 of its
 * index (SQLite's walformat.html, 2.3). Ends when @to is closed. */
static pid_t lock_readers(struct fixture *f, int to[2])
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 123, .l_len = 5};
	int from[2];
	char path[128], c = 0;
	pid_t pid;

	fixture_path(f, "ros2.db-shm", path);
	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	pid = fork();
	if (!pid) {
		int fd = open(path, O_RDWR | O_CLOEXEC);

		close(to[1]);
		/* Behind a reader of the store, if there is one just now. */
		c = fd >= 0 && fcntl(fd, F_SETLKW, &l) == 0;
		_exit(write(from[1], &c, 1) == 1 ? (int)read(to[0], &c, 1) : 1);
	}
	close(from[1]);
	assert_int_equal(read(from[0], &c, 1), 1);
	assert_int_equal(c, 1);
	close(from[0]);
	close(to[0]);
	return pid;
}

static int no_sleep(sqlite3_vfs *v, int us)
{
	return us;
}

/* It tries that a hundred times, and then speaks of its protocol: nothing is wrong with the file.
 */
static void store__that_cannot_begin_to_read_for_a_lock_does_not_end(void **state)
{
	int (*sleeps)(sqlite3_vfs * v, int us) = sqlite3_vfs_find(NULL)->xSleep;
	struct ros2_uid u = ros2_uid_new(), tenant = ros2_uid_new(), g = ros2_uid_new();
	struct fixture *f = opened_impatient(state);
	struct wait w = {.due = 0};
	pid_t pid;
	int to[2];

	assert_int_equal(fixture_commit(f, fixture_grant(&g, &tenant)), 0);
	sqlite3_vfs_find(NULL)->xSleep = no_sleep;
	pid = lock_readers(f, to);
	fixture_submit(f, &w, alpha_row(&u, true));
	fixture_wait(f, &w);
	assert_int_equal(w.last.rc, -EBUSY);
	assert_true(w.last.record_pending);
	close(to[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	sqlite3_vfs_find(NULL)->xSleep = sleeps;
	delivered(f);
	nothing_waits_any_more(f);
	assert_int_equal(fixture_sql(f, "SELECT revoked FROM objects"), 1);
}

/* The control: committed in the order in which they find the database free, the revocation undoes
 * the reinstatement that was answered. A try may be in time before it: then another round. */
static void control__without_the_order_a_revocation_undoes_the_reinstatement(void **state)
{
	struct ros2_uid u = ros2_uid_new();
	bool undone = false;
	struct fixture *f = opened_impatient(state);

	any_order = true;
	for (int i = 0; i < 20 && !undone; i++) {
		unlock(revoked_behind_a_lock(f, &u));
		assert_int_equal(fixture_commit(f, alpha_row(&u, false)), 0);
		nothing_waits_any_more(f);
		undone = fixture_sql(f, "SELECT revoked FROM objects") == 1;
	}
	any_order = false;
	assert_true(undone);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown_impatient)
	const struct CMUnitTest tests[] = {
		T(store__gives_nothing_back_before_what_was_taken_away_is_recorded),
		T(store__waits_for_a_lock_of_another_process_once_for_all_that_wait),
		T(store__keeps_no_revocation_waiting_for_a_lock_that_grants_wait_for),
		T(store__keeps_no_revocation_waiting_for_those_that_are_recorded_late),
		T(store__keeps_no_revocation_waiting_for_those_that_are_tried_each_second),
		T(store__keeps_no_revocation_waiting_for_grants_that_are_tried_alone),
		T(store__that_waited_for_a_lock_in_vain_is_impatient_until_it_had_it),
		T(store__that_another_process_has_locked_is_not_said_to_be_none),
		T(store__that_cannot_begin_to_read_for_a_lock_does_not_end),
		T(control__without_the_order_a_revocation_undoes_the_reinstatement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

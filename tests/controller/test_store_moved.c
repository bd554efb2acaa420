/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store whose files are replaced, moved or removed under it: what it writes then nobody finds at
 * the next start, so it acknowledges nothing of it and ends; a revocation it notes under the name
 * that a start looks for. And a store beside another one.
 */
#include "common/fsx.h"
#include "common/util.h"
#include "controller/store_sqlite_priv.h"
#include "controller/store_txn.h"
#include "tests/controller/store_fixture.h"
#include "tests/await.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct ros2_uid TENANT = {{0xaa}}, REVOCATION = {{0xbb}};
static _Atomic unsigned fatals;
static struct ros2_err why;

static void on_fatal(void *arg, const struct ros2_err *e)
{
	why = *e;
	atomic_fetch_add(&fatals, 1);
}

/* ---- faults ---- */

static _Atomic int look_fails; /* so many looks at the database; -1: all */
static _Atomic int look_errno;
static struct fsx_ops faulty_io;
static const struct fsx_ops *real_io;

static int faulty_stat(const char *path, struct stat *st)
{
	const char *end = strstr(path, "/ros2.db");

	if (!look_fails || !end || strcmp(end, "/ros2.db") != 0)
		return stat(path, st);
	if (look_fails > 0)
		look_fails--;
	errno = look_errno;
	return -1;
}

/* Is the directory synced behind the log's removal? */
static _Atomic bool log_removed, removal_synced;

static int seen_unlink(const char *path)
{
	int r = unlink(path);

	if (!r && strstr(path, "/ros2.db-wal"))
		log_removed = true;
	return r;
}

static int seen_fsync(int fd)
{
	struct stat st;

	if (log_removed && !fstat(fd, &st) && S_ISDIR(st.st_mode))
		removal_synced = true;
	return fsync(fd);
}

static int pair_errno; /* of the next that is made */

static int faulty_open(const char *path, int flags, mode_t mode)
{
	if (!pair_errno || !(flags & O_CREAT) || !strstr(path, "ros2.db-pair"))
		return real_io->open(path, flags, mode);
	errno = pair_errno;
	pair_errno = 0;
	return -1;
}

int __real_sqlite_write_anew(struct backend *b, struct ros2_err *err);
int __wrap_sqlite_write_anew(struct backend *b, struct ros2_err *err);
static const struct fixture *replaced_in_start;
static bool with_its_log;

int __wrap_sqlite_write_anew(struct backend *b, struct ros2_err *err)
{
	char path[128], from[128];

	if (replaced_in_start) {
		fixture_path(replaced_in_start, "ros2.db", path);
		fixture_path(replaced_in_start, "backup", from);
		assert_int_equal(rename(from, path), 0);
	}
	if (with_its_log)
		assert_int_equal(fixture_rename(replaced_in_start, "its-log", "ros2.db-wal"), 0);
	return __real_sqlite_write_anew(b, err);
}

static int setup(void **state)
{
	struct fixture *f = malloc(sizeof(*f));
	struct ros2_err err = ROS2_ERR_INIT;

	real_io = fsx_io;
	faulty_io = *fsx_io;
	faulty_io.stat = faulty_stat;
	faulty_io.open = faulty_open;
	faulty_io.unlink = seen_unlink;
	faulty_io.fsync = seen_fsync;
	log_removed = removal_synced = false;
	fsx_io = &faulty_io;
	look_fails = 0;
	replaced_in_start = NULL;
	atomic_store(&fatals, 0);
	fixture_init(f);
	f->opts.checkpoint_ms = 3600 * 1000;
	f->opts.ending_ms = 1;
	f->opts.on_fatal = on_fatal;
	*state = f;
	return fixture_open(f, &err);
}

static int teardown(void **state)
{
	fixture_fini(*state);
	fsx_io = real_io;
	free(*state);
	return 0;
}

static struct store_txn *grant(uint8_t n)
{
	struct ros2_uid uid = {{0x55, n}};

	return fixture_grant(&uid, &TENANT);
}

static struct store_txn *revocation(void)
{
	struct store_txn *t = grant(9);

	store_txn_set_shrinks(t);
	store_txn_set_note(t, REVOCATION.b, sizeof(REVOCATION.b), -1);
	return t;
}

static void replace(const struct fixture *f, const char *name)
{
	char path[128], other[128];
	FILE *out;

	fixture_path(f, name, path);
	fixture_path(f, "another", other);
	out = fopen(other, "we");
	assert_non_null(out);
	assert_int_equal(fputs("another's", out) < 0 || fclose(out), 0);
	assert_int_equal(rename(other, path), 0);
}

static void ends_at_the_next_commit(struct fixture *f, const char *name)
{
	assert_int_equal(fixture_commit(f, grant(2)), -EIO);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	assert_non_null(strstr(why.msg, name));
	assert_non_null(strstr(why.msg, "replaced, moved or removed"));
	assert_int_equal(fixture_commit(f, grant(3)), -EIO);
}

static void store__whose_database_is_replaced_acknowledges_nothing_more(void **state)
{
	assert_int_equal(fixture_commit(*state, grant(1)), 0);
	replace(*state, "ros2.db");
	ends_at_the_next_commit(*state, "/ros2.db ");
}

static void store__whose_database_is_removed_acknowledges_nothing_more(void **state)
{
	assert_int_equal(fixture_commit(*state, grant(1)), 0);
	fixture_remove(*state, "ros2.db");
	ends_at_the_next_commit(*state, "/ros2.db ");
}

static void store__whose_log_is_removed_acknowledges_nothing_more(void **state)
{
	assert_int_equal(fixture_commit(*state, grant(1)), 0);
	fixture_remove(*state, "ros2.db-wal");
	ends_at_the_next_commit(*state, "/ros2.db-wal ");
}

/* Another process would not see our locks, and might write beside us. */
static void store__whose_index_is_replaced_acknowledges_nothing_more(void **state)
{
	assert_int_equal(fixture_commit(*state, grant(1)), 0);
	replace(*state, "ros2.db-shm");
	ends_at_the_next_commit(*state, "/ros2.db-shm ");
}

/* As a backup is moved into place: the directory has another's name, and its name is another's. */
static void store__whose_directory_is_moved_acknowledges_nothing_more(void **state)
{
	struct fixture *f = *state;
	char moved[80];

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	snprintf(moved, sizeof(moved), "%s.moved", f->dir);
	assert_int_equal(rename(f->dir, moved), 0);
	assert_int_equal(mkdir(f->dir, 0700), 0);
	ends_at_the_next_commit(f, "/ros2.db ");
	assert_int_equal(rmdir(f->dir), 0);
	assert_int_equal(rename(moved, f->dir), 0);
}

/* By another name it is the same: one process has it. */
static void store__of_the_same_directory_by_another_name_is_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state;
	struct store_opts o = f->opts;
	struct store *second = NULL;
	char name[80];

	snprintf(name, sizeof(name), "%s.link", f->dir);
	assert_int_equal(symlink(f->dir, name), 0);
	o.dir = name;
	assert_int_equal(store_open(&o, &second, &err), -EBUSY);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(fixture_commit(f, grant(1)), 0);
}

/* Where the lock was removed, another process may have the same database: what the one commits
 * keeps the other from acknowledging what it knows nothing better of. */
static void store__beside_another_on_its_database_acknowledges_nothing_more(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state, other = *f;

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	fixture_remove(f, "LOCK");
	assert_int_equal(fixture_open(&other, &err), 0);
	assert_int_equal(other.grants, 1);
	assert_int_equal(fixture_commit(&other, grant(2)), 0);
	assert_int_equal(fixture_commit(f, grant(3)), -EIO);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	assert_int_equal(fixture_commit(&other, grant(4)), 0);
	fixture_close(&other);
}

static void copy(sqlite3 *to, sqlite3 *from)
{
	sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");

	assert_non_null(b);
	assert_int_equal(sqlite3_backup_step(b, -1), SQLITE_DONE);
	assert_int_equal(sqlite3_backup_finish(b), SQLITE_OK);
}

/* As sqlite3's .restore does: in place, with SQLite's locks. What was acknowledged since is not in
 * the file any more, so what this process knows of is not what a start finds. */
static void store__whose_database_is_restored_in_place_acknowledges_nothing_more(void **state)
{
	struct fixture *f = *state;
	sqlite3 *db, *backup;
	char path[128];

	fixture_path(f, "ros2.db", path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_open(":memory:", &backup), SQLITE_OK);
	assert_int_equal(fixture_commit(f, grant(1)), 0);
	copy(backup, db);
	assert_int_equal(fixture_commit(f, grant(2)), 0);
	copy(db, backup);
	assert_int_equal(fixture_commit(f, grant(3)), -EIO);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	assert_non_null(strstr(why.msg, "should end with record 2 and ends with 1"));
	sqlite3_close(db);
	sqlite3_close(backup);
}

/* ---- what the next start finds ---- */

static sqlite3 *connect(const struct fixture *f, const char *name)
{
	char path[128];
	sqlite3 *db;

	fixture_path(f, name, path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	return db;
}

static void back_up(const struct fixture *f, const char *name)
{
	sqlite3 *from = connect(f, "ros2.db"), *to = connect(f, name);

	copy(to, from);
	sqlite3_close(to);
	sqlite3_close(from);
}

static void move_over(const struct fixture *f, const char *name)
{
	char path[128], from[128];

	fixture_path(f, "ros2.db", path);
	fixture_path(f, name, from);
	assert_int_equal(rename(from, path), 0);
}

static int64_t number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int64_t v = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
	    sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	else
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_finalize(st);
	return v;
}

/* Each table but `meta`, in which a start has written its epoch. */
static void is_all_of(const struct fixture *f, const char *backup)
{
	static const char names[] =
		"SELECT name FROM sqlite_schema WHERE type='table' AND name<>'meta'";
	sqlite3 *db = connect(f, backup);
	char path[128], sql[512];
	sqlite3_stmt *st = NULL;
	unsigned tables = 0;

	fixture_path(f, "ros2.db", path);
	snprintf(sql, sizeof(sql), "ATTACH '%s' AS now", path);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, names, -1, &st, NULL), SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW) {
		const char *t = (const char *)sqlite3_column_text(st, 0);

		snprintf(sql, sizeof(sql),
		         "SELECT (SELECT count(*) FROM (SELECT * FROM main.%s EXCEPT SELECT * "
		         "FROM now.%s)) + (SELECT count(*) FROM (SELECT * FROM now.%s EXCEPT "
		         "SELECT * FROM main.%s))",
		         t, t, t, t);
		if (number(db, sql))
			fail_msg("table %s is not the backup's", t);
		tables++;
	}
	sqlite3_finalize(st);
	assert_true(tables >= 10);
	sqlite3_close(db);
}

static struct store_txn *token(uint8_t n)
{
	struct store_txn *t = store_txn_new();

	store_txn_add(t, STORE_TOKEN_PUT)->token = (struct store_token){
		.secret_sha256 = {n}, .agent_uid = TENANT, .expires_unix_s = INT64_MAX};
	return t;
}

/* A backup is made; the log begins anew behind what is committed then, so that it holds pages of
 * some tables and not of others. */
static void go_on_behind_a_backup(struct fixture *f)
{
	assert_int_equal(fixture_commit(f, grant(1)), 0);
	back_up(f, "backup");
	back_up(f, "copy");
	assert_int_equal(fixture_commit(f, token(1)), 0);
	assert_int_equal(fixture_sql(f, "PRAGMA wal_checkpoint(RESTART)"), 0);
	assert_int_equal(fixture_commit(f, grant(2)), 0);
}

/* Its copy is left. */
static void replace_by_a_backup(struct fixture *f)
{
	go_on_behind_a_backup(f);
	move_over(f, "backup");
}

static void is_the_backup_alone(struct fixture *f)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fixture_open(f, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(f->grants, 1);
	assert_int_equal(f->tokens, 0);
	is_all_of(f, "copy");
}

static void store__whose_database_is_replaced_is_followed_by_the_backup_alone(void **state)
{
	struct fixture *f = *state;

	replace_by_a_backup(f);
	assert_int_equal(fixture_commit(f, grant(3)), -EIO);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	fixture_close(f);
	is_the_backup_alone(f);
	assert_true(fixture_has(f, "ros2.db-wal.of-the-replaced"));
}

/* The clean-up of what is old is over, which each process does in its first second: from there on
 * nothing is committed but what is asked for. */
static void wait_until_quiet(struct fixture *f)
{
	struct store_txn *t = token(9);

	t->muts[0].token.expires_unix_s = 1;
	fixture_close(f);
	f->opts.audit_key = NULL; /* whose checkpoints are commits */
	f->opts.checkpoint_ms = 20;
	assert_int_equal(fixture_open(f, NULL), 0);
	assert_int_equal(fixture_commit(f, t), 0);
	assert_true(AWAIT(fixture_sql(f, "SELECT count(*) FROM tokens") == 0));
}

/* As an administrator would: SIGTERM behind the mv. */
static void store__that_is_closed_with_its_database_replaced_leaves_the_backup_alone(void **state)
{
	struct fixture *f = *state;

	wait_until_quiet(f);
	replace_by_a_backup(f);
	fixture_close(f);
	assert_int_equal(atomic_load(&fatals), 0);
	is_the_backup_alone(f);
	assert_true(fixture_has(f, "ros2.db-wal.of-the-replaced"));
}

/* What was set aside before stays; and beside its own database it is what it was. */
static void store__whose_database_is_moved_away_keeps_its_log_for_people(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	char path[128];
	sqlite3 *db;

	replace(f, "ros2.db-wal.of-the-replaced");
	assert_int_equal(fixture_commit(f, grant(1)), 0);
	assert_int_equal(fixture_sql(f, "PRAGMA wal_checkpoint(RESTART)"), 0);
	assert_int_equal(fixture_commit(f, grant(2)), 0);
	assert_int_equal(fixture_rename(f, "ros2.db", "old"), 0);
	assert_int_equal(fixture_commit(f, grant(3)), -EIO);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	assert_non_null(strstr(why.msg, "set aside as ros2.db-wal.of-the-replaced.2"));
	assert_true(removal_synced);
	fixture_close(f);
	assert_false(fixture_has(f, "ros2.db-wal"));
	assert_false(fixture_has(f, "ros2.db-shm"));
	fixture_path(f, "ros2.db-wal.of-the-replaced", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, strlen("another's"));
	assert_int_equal(fixture_rename(f, "ros2.db-wal.of-the-replaced.2", "old-wal"), 0);
	db = connect(f, "old");
	assert_int_equal(number(db, "SELECT count(*) FROM grants"), 3);
	sqlite3_close(db);
}

/* Only what is ours is touched: who moved all of it into place has a log of his own. */
static void store__whose_log_is_replaced_too_leaves_it(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	replace(f, "ros2.db-wal");
	replace(f, "ros2.db");
	ends_at_the_next_commit(f, "/ros2.db ");
	fixture_close(f);
	assert_true(fixture_has(f, "ros2.db-wal"));
	assert_false(fixture_has(f, "ros2.db-wal.of-the-replaced"));
}

struct note {
	char text[512];
};

static struct note note_of(const struct fixture *f)
{
	struct note n = {0};
	char path[128];
	void *p;
	size_t len;

	fixture_path(f, "ros2.db-pair", path);
	if (!fsx_read_file(path, sizeof(n.text), &p, &len, NULL)) {
		memcpy(n.text, p, len);
		free(p);
	}
	return n;
}

static void store__whose_database_is_replaced_in_its_start_is_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct note before, after;
	struct fixture *f = *state;

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	back_up(f, "backup");
	back_up(f, "copy");
	assert_int_equal(fixture_commit(f, token(1)), 0);
	fixture_close(f);
	before = note_of(f);
	replaced_in_start = f;
	assert_int_equal(fixture_open(f, &err), -EIO);
	assert_non_null(strstr(err.msg, "replaced, moved or removed"));
	replaced_in_start = NULL;
	after = note_of(f);
	assert_memory_equal(&after, &before, sizeof(before));
	is_the_backup_alone(f);
}

/* The log that is there then is the other one's. */
static void store__whose_files_are_all_replaced_in_its_start_leaves_them(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state;

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	back_up(f, "backup");
	fixture_copy(f, "backup", "its-log");
	fixture_close(f);
	replaced_in_start = f;
	with_its_log = true;
	assert_int_equal(fixture_open(f, &err), -EIO);
	with_its_log = false;
	replaced_in_start = NULL;
	assert_true(fixture_has(f, "ros2.db-wal"));
	assert_false(fixture_has(f, "ros2.db-wal.of-the-replaced"));
}

/* ---- names that cannot be looked at ---- */

static void store__whose_names_cannot_be_looked_at_for_a_moment_goes_on(void **state)
{
	static const int errors[] = {ENOMEM, EIO, ETIMEDOUT, EACCES};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		look_errno = errors[i];
		look_fails = 2;
		assert_int_equal(fixture_commit(f, grant((uint8_t)i)), 0);
		assert_int_equal(look_fails, 0);
	}
	assert_int_equal(atomic_load(&fatals), 0);
}

/* Nothing says that they are another's: the log stays where it is. */
static void store__whose_names_cannot_be_looked_at_ends_and_says_so(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state;

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	look_errno = ENOMEM;
	look_fails = -1;
	assert_int_equal(fixture_commit(f, grant(2)), -EIO);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	assert_non_null(strstr(why.msg, "/ros2.db cannot be looked at: "));
	assert_null(strstr(why.msg, "replaced"));
	look_fails = 0;
	fixture_close(f);
	assert_false(fixture_has(f, "ros2.db-wal.of-the-replaced"));
	look_fails = -1;
	assert_int_equal(store_open(&f->opts, &f->store, &err), -EIO);
	assert_non_null(strstr(err.msg, "/ros2.db cannot be looked at: "));
	look_fails = 0;
	assert_int_equal(fixture_open(f, &err), 0);
	assert_int_equal(f->grants, 2);
}

/* ---- killed ---- */

static void work_until_killed(struct fixture *f, int ready)
{
	if (loop_new(&(struct loop_opts){.name = "child"}, &f->loop) || loop_thread_start(f->loop))
		_exit(3);
	f->opts.loop = f->loop;
	f->opts.on_fatal = NULL;
	if (fixture_open(f, NULL))
		_exit(4);
	go_on_behind_a_backup(f);
	if (write(ready, "", 1) != 1)
		_exit(5);
	for (;;)
		pause();
}

/* Another process commits, and is killed: behind @then. */
static void kill_one(struct fixture *f, void (*then)(const struct fixture *f, const char *name))
{
	int ready[2], status;
	char c;
	pid_t pid;

	fixture_close(f);
	/* A child of several threads may find a lock of the allocator held for ever. */
	loop_stop(f->loop);
	loop_thread_join(f->loop);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		work_until_killed(f, ready[1]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	if (then)
		then(f, "backup");
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	close(ready[0]);
	assert_int_equal(loop_thread_start(f->loop), 0);
}

/* Without a time of birth nothing can be told. */
static void skip_unless_births_are_told(const struct fixture *f)
{
	char path[128];
	struct statx x;

	fixture_path(f, "ros2.db", path);
	if (statx(AT_FDCWD, path, 0, STATX_BTIME, &x) < 0 || !(x.stx_mask & STATX_BTIME) ||
	    !x.stx_btime.tv_sec)
		skip();
}

static void is_refused(struct fixture *f)
{
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(store_open(&f->opts, &f->store, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "/ros2.db is not the database that ros2.db-wal"));
}

static void is_refused_until_the_log_is_away(struct fixture *f)
{
	is_refused(f);
	is_refused(f); /* the first left all as it was */
	assert_int_equal(fixture_rename(f, "ros2.db-wal", "away"), 0);
	fixture_remove(f, "ros2.db-shm");
	is_the_backup_alone(f);
}

static void store__whose_database_is_replaced_before_it_is_killed_refuses_the_log(void **state)
{
	skip_unless_births_are_told(*state);
	kill_one(*state, move_over);
	is_refused_until_the_log_is_away(*state);
}

static void store__whose_database_is_replaced_after_it_was_killed_refuses_the_log(void **state)
{
	skip_unless_births_are_told(*state);
	kill_one(*state, NULL);
	move_over(*state, "backup");
	is_refused_until_the_log_is_away(*state);
}

static void has_all(struct fixture *f)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fixture_open(f, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(f->grants, 2);
	assert_int_equal(f->tokens, 1);
}

/* As a directory is moved to another disk, with what a killed process left. */
static void store__whose_files_are_all_copied_goes_on(void **state)
{
	struct fixture *f = *state;

	kill_one(f, NULL);
	fixture_copy(f, "ros2.db", "ros2.db");
	fixture_copy(f, "ros2.db-wal", "ros2.db-wal");
	has_all(f);
}

/* Only a person can tell that it is the same one. */
static void store__whose_database_is_a_copy_goes_on_when_it_is_told(void **state)
{
	struct fixture *f = *state;

	skip_unless_births_are_told(f);
	kill_one(f, NULL);
	fixture_copy(f, "ros2.db", "ros2.db");
	is_refused(f);
	fixture_remove(f, "ros2.db-pair");
	has_all(f);
}

/* An empty database would cost the log, and what was acknowledged. */
static void store__whose_database_is_missing_keeps_its_log(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state;

	kill_one(f, NULL);
	assert_int_equal(fixture_rename(f, "ros2.db", "kept"), 0);
	fixture_remove(f, "ros2.db-pair");
	assert_int_equal(store_open(&f->opts, &f->store, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "is missing, or empty, beside its log"));
	assert_false(fixture_has(f, "ros2.db"));
	assert_int_equal(fixture_rename(f, "kept", "ros2.db"), 0);
	has_all(f);
}

/* Its space is for what takes rights away, as that of all else. */
static void store__that_cannot_note_its_pair_opens(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state;

	assert_int_equal(fixture_commit(f, grant(1)), 0);
	fixture_close(f);
	pair_errno = ENOSPC;
	assert_int_equal(fixture_open(f, &err), 0);
	assert_int_equal(pair_errno, 0);
	assert_int_equal(fixture_commit(f, grant(2)), 0);
}

/* Nothing is left of its files: what is answered is found by the next start nevertheless. */
static void store__whose_files_are_removed_keeps_a_revocation_that_it_answers(void **state)
{
	static const char *const names[] = {"ros2.db", "ros2.db-wal", "ros2.db-shm", "revocations"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct fixture *f = *state;
	struct wait w = {0};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		fixture_remove(f, names[i]);
	fixture_submit(f, &w, revocation());
	fixture_wait(f, &w);
	assert_int_equal(w.last.rc, -EIO);
	assert_true(w.last.record_pending && w.last.ending);
	assert_true(AWAIT(atomic_load(&fatals) == 1));
	fixture_close(f);
	assert_int_equal(fixture_open(f, &err), 0);
	assert_int_equal(f->notes, 1);
	assert_memory_equal(f->last_note, REVOCATION.b, sizeof(REVOCATION.b));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(store__whose_database_is_replaced_acknowledges_nothing_more),
		T(store__whose_database_is_removed_acknowledges_nothing_more),
		T(store__whose_log_is_removed_acknowledges_nothing_more),
		T(store__whose_index_is_replaced_acknowledges_nothing_more),
		T(store__whose_directory_is_moved_acknowledges_nothing_more),
		T(store__of_the_same_directory_by_another_name_is_refused),
		T(store__beside_another_on_its_database_acknowledges_nothing_more),
		T(store__whose_database_is_restored_in_place_acknowledges_nothing_more),
		T(store__whose_database_is_replaced_is_followed_by_the_backup_alone),
		T(store__that_is_closed_with_its_database_replaced_leaves_the_backup_alone),
		T(store__whose_database_is_moved_away_keeps_its_log_for_people),
		T(store__whose_log_is_replaced_too_leaves_it),
		T(store__whose_database_is_replaced_in_its_start_is_refused),
		T(store__whose_files_are_all_replaced_in_its_start_leaves_them),
		T(store__whose_names_cannot_be_looked_at_for_a_moment_goes_on),
		T(store__whose_names_cannot_be_looked_at_ends_and_says_so),
		T(store__whose_database_is_replaced_before_it_is_killed_refuses_the_log),
		T(store__whose_database_is_replaced_after_it_was_killed_refuses_the_log),
		T(store__whose_files_are_all_copied_goes_on),
		T(store__whose_database_is_a_copy_goes_on_when_it_is_told),
		T(store__whose_database_is_missing_keeps_its_log),
		T(store__that_cannot_note_its_pair_opens),
		T(store__whose_files_are_removed_keeps_a_revocation_that_it_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

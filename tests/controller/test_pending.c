/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations that a full disk does not take: answered `record pending`, they wait in order, in
 * memory and in the journal. With room again each is recorded once, in their order, by itself; a
 * process that is killed, or ends, in between has lost none, nor has one that is killed while they
 * are being recorded; those for which the journal has no slot are in its filter. What is smaller
 * does not overtake what it is about. The controls: without their notes, or without what the filter
 * is made of, a kill loses them; what does not say what it is about overtakes.
 */
#include "controller/store_front_priv.h"
#include "tests/await.h"
#include "tests/controller/store_fixture.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FULL_PAGES 120
#define MANY       60
#define SLOTS      1024 /* of the journal */
#define KIND       7    /* of what is revoked here; any number will do */

struct shared { /* with the child */
	_Atomic unsigned answered, pending;
	_Atomic bool ready;
};
static struct shared *shared;

/* ---- revocations, by number ---- */

static struct ros2_uid uid_of(unsigned n)
{
	struct ros2_uid u = {{0xab, (uint8_t)(n >> 8), (uint8_t)n}};

	return u;
}

static unsigned number_of(const void *note)
{
	const uint8_t *b = note;

	return (unsigned)b[1] << 8 | b[2];
}

static bool without_targets; /* the filter has nothing to be made of */

static struct store_txn *revocation(unsigned n, bool with_note, int slot)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);
	struct ros2_uid uid = uid_of(n);

	store_txn_add(t, STORE_REVOCATION_PUT)->revocation =
		(struct store_revocation){.uid = uid,
	                                  .kind = STORE_TENANT,
	                                  .target_uid = {{9}},
	                                  .target_name = "alpha",
	                                  .version = n,
	                                  .created_unix_ns = 1,
	                                  .reason = "test"};
	d->action = "tenant.revoke";
	d->actor = "system";
	d->object_name = store_txn_fmt(t, "r-%05u", n);
	store_txn_set_shrinks(t);
	if (with_note)
		store_txn_set_note(t, uid.b, ROS2_UID_LEN, slot);
	if (with_note && !without_targets)
		store_txn_add_target(t, KIND, &uid);
	return t;
}

static void fill_up(struct fixture *f)
{
	struct ros2_uid tenant = {{5}};
	struct wait w = {0};

	for (int i = 0; i < 2000; i++) {
		struct ros2_uid u = ros2_uid_new();

		fixture_submit(f, &w, fixture_grant(&u, &tenant));
	}
	fixture_wait(f, &w);
	assert_true(w.failed > 0);
}

/* How many of them wait. */
static unsigned take_more(struct fixture *f, unsigned first, unsigned n, bool with_note)
{
	struct wait w = {0};

	for (unsigned i = first; i < first + n; i++)
		fixture_submit(f, &w, revocation(i, with_note, -1));
	fixture_wait(f, &w);
	/* Each is recorded, or waits. */
	assert_int_equal(w.pending, w.failed);
	return w.pending;
}

static unsigned take_away(struct fixture *f, unsigned n, bool with_note)
{
	return take_more(f, 1, n, with_note);
}

/* -1: they are being tried just now. */
static int count_waiting(struct store *s, bool *ret_ordered)
{
	const struct store_txn *t;
	unsigned last = 0, n = 0;
	bool ordered = true, all;

	pthread_mutex_lock(&s->lock);
	list_for_each (&s->pending, t, link) {
		ordered &= number_of(t->note) > last;
		last = number_of(t->note);
		n++;
	}
	all = n == s->n_pending;
	pthread_mutex_unlock(&s->lock);
	*ret_ordered = ordered;
	return all ? (int)n : -1;
}

/* So many wait, in the order in which they were made. */
static void wait_in_order(struct fixture *f, unsigned n)
{
	bool ordered;
	int found;

	assert_true(AWAIT((found = count_waiting(f->store, &ordered)) >= 0));
	assert_int_equal(found, n);
	assert_true(ordered);
}

static void make_room(struct fixture *f)
{
	fixture_sql(f, "DELETE FROM grants");
}

/* ---- what a start finds ---- */

struct found {
	unsigned n, v[2 * SLOTS];
	int slot[2 * SLOTS];
	/* in doubt; -1 is their slot */
	struct fixture *f;
	unsigned asked, doubted, wrongly;
};

static int on_note(void *arg, const void *p, size_t n, int slot)
{
	struct found *x = arg;

	assert_int_equal(n, ROS2_UID_LEN);
	x->v[x->n] = number_of(p);
	x->slot[x->n++] = slot;
	return 0;
}

static bool has(const struct found *x, unsigned n)
{
	for (unsigned i = 0; i < x->n; i++)
		if (x->v[i] == n)
			return true;
	return false;
}

/* As the domain does: what is named is looked at, and is owed. */
static int on_doubt(void *arg)
{
	struct found *x = arg;
	unsigned noted = x->n;

	x->asked++;
	for (unsigned i = 1; i < 2 * SLOTS; i++) {
		struct ros2_uid uid = uid_of(i);

		if (!store_doubts(x->f->store, KIND, &uid))
			continue;
		assert_false(has(x, i));
		assert_int_equal(store_doubt_owe(x->f->store, &uid), 0);
		x->v[x->n] = i;
		x->slot[x->n++] = -1;
	}
	x->doubted = x->n - noted;
	for (unsigned i = 0; i < 10000; i++) {
		struct ros2_uid other = {{0xcd, (uint8_t)(i >> 8), (uint8_t)i}}, uid = uid_of(i);

		x->wrongly += store_doubts(x->f->store, KIND, &other);
		x->wrongly += store_doubts(x->f->store, KIND + 1, &uid);
	}
	return 0;
}

static void open_it(struct fixture *f, uint64_t max_pages, struct found *ret)
{
	struct store_loader l = {.note = on_note, .doubt = on_doubt, .arg = ret};
	struct ros2_err err = ROS2_ERR_INIT;

	*ret = (struct found){.f = f};
	f->opts.max_pages = max_pages;
	if (store_open(&f->opts, &f->store, &err) || store_load(f->store, &l, &err) ||
	    store_start(f->store, &err))
		fail_msg("%s", err.msg);
}

static unsigned rows(const struct fixture *f)
{
	return (unsigned)fixture_sql(f, "SELECT count(*) FROM revocations");
}

/* All of them, each once, in the order in which they were made; but those that were tried just
 * before there was room, when the others were about to be, come behind these, once. */
static void all_recorded(const struct fixture *f, unsigned n)
{
	struct verdict v;

	assert_int_equal(rows(f), n);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM audit WHERE action='tenant.revoke'"),
	                 n);
	assert_in_range(fixture_sql(f, "SELECT count(*) FROM (SELECT object_name AS o,"
	                               " lag(object_name) OVER (ORDER BY seq) AS before FROM audit"
	                               " WHERE action='tenant.revoke') WHERE before >= o"),
	                0, 1);
	fixture_verify(f, &v);
	assert_int_equal(v.rc, 0);
}

static void wait_recorded(struct fixture *f)
{
	struct store_stats st;

	assert_true(AWAIT((store_stats(f->store, &st), !st.record_pending)));
}

/* As the domain does: what a start found is submitted again, in its slot. */
static void record_found(struct fixture *f, const struct found *x)
{
	struct wait w = {0};

	for (unsigned i = 0; i < x->n; i++)
		fixture_submit(f, &w, revocation(x->v[i], true, x->slot[i]));
	fixture_wait(f, &w);
	assert_int_equal(w.failed, w.pending);
	wait_recorded(f);
}

/* ---- with a process that lives ---- */

static void pending__is_recorded_in_order_when_there_is_room(void **state)
{
	static struct found x;
	struct fixture f;
	unsigned waiting, all = MANY;

	fixture_init(&f);
	open_it(&f, FULL_PAGES, &x);
	fill_up(&f);
	waiting = take_away(&f, MANY, true);
	assert_true(waiting > MANY / 2);
	wait_in_order(&f, waiting);
	/* Tried again meanwhile, without room, and more come: nothing changes its place. Looked at
	 * after each: a change that the next one undoes is one. */
	for (int i = 0; i < 6; i++) {
		struct ros2_uid u = ros2_uid_new(), tenant = {{5}};

		assert_true(fixture_commit(&f, fixture_grant(&u, &tenant)) < 0);
		wait_in_order(&f, waiting);
		if (i % 2)
			continue;
		assert_int_equal(take_more(&f, all + 1, 5, true), 5);
		all += 5;
		waiting += 5;
		wait_in_order(&f, waiting);
	}
	assert_int_equal(rows(&f) + waiting, all);
	make_room(&f);
	wait_recorded(&f);
	all_recorded(&f, all);
	fixture_close(&f);
	/* No note is left, so that nothing is done twice. */
	open_it(&f, 0, &x);
	assert_int_equal(x.n, 0);
	fixture_fini(&f);
}

static void pending__is_there_after_a_restart_and_another(void **state)
{
	static struct found x, y;
	struct fixture f;
	unsigned n;

	fixture_init(&f);
	open_it(&f, FULL_PAGES, &x);
	fill_up(&f);
	n = take_away(&f, MANY, true);
	assert_true(n > MANY / 2);
	for (int i = 0; i < 2; i++) {
		fixture_close(&f);
		open_it(&f, FULL_PAGES, &y);
		assert_int_equal(y.n + rows(&f), MANY);
		assert_true(y.n > 0);
		for (unsigned k = 1; k < y.n; k++)
			assert_true(y.v[k] > y.v[k - 1]);
	}
	make_room(&f);
	record_found(&f, &y);
	all_recorded(&f, MANY);
	fixture_close(&f);
	open_it(&f, 0, &x);
	assert_int_equal(x.n, 0);
	fixture_fini(&f);
}

/* So many pages, more or less; @about: NULL says nothing of it. */
static struct store_txn *pages(unsigned n, unsigned rows, const struct ros2_uid *about)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);
	char reason[4001];

	memset(reason, 'x', sizeof(reason) - 1);
	reason[sizeof(reason) - 1] = '\0';
	for (unsigned i = 0; i < rows; i++)
		store_txn_add(t, STORE_REVOCATION_PUT)->revocation =
			(struct store_revocation){.uid = uid_of(1000 * n + i),
		                                  .kind = STORE_TENANT,
		                                  .target_name = "alpha",
		                                  .version = n,
		                                  .created_unix_ns = 1,
		                                  .reason = store_txn_str(t, reason)};
	d->action = "tenant.revoke";
	d->actor = "system";
	d->object_name = store_txn_fmt(t, "r-%05u", n);
	store_txn_set_shrinks(t);
	if (about)
		store_txn_set_order(t, about);
	return t;
}

/* A large one waits, and there is room for small ones. */
static void small_after_large(struct fixture *f, const struct ros2_uid *about, bool overtakes)
{
	static struct found x;
	struct ros2_uid u = ros2_uid_new(), tenant = {{5}}, large = {{7}};
	struct wait w = {0};

	fixture_init(f);
	open_it(f, FULL_PAGES, &x);
	assert_int_equal(fixture_commit(f, pages(1, 60, NULL)), 0);
	fixture_submit(f, &w, pages(2, 60, &large));
	fixture_wait(f, &w);
	assert_int_equal(w.pending, 1);
	w = (struct wait){0};
	fixture_submit(f, &w, pages(3, 1, about));
	fixture_wait(f, &w);
	assert_int_equal(w.pending, !overtakes);
	/* Tried again: the large one alone, or all of them. */
	for (int i = 0; i < 3; i++)
		assert_true(fixture_commit(f, fixture_grant(&u, &tenant)) < 0);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM revocations WHERE version=3"),
	                 overtakes);
	fixture_sql(f, "DELETE FROM revocations WHERE version=1");
	wait_recorded(f);
	assert_int_equal(rows(f), 61);
}

static void pending__is_not_overtaken_by_what_is_about_the_same(void **state)
{
	const struct ros2_uid same = {{7}};
	struct fixture f;
	struct wait w = {0};

	small_after_large(&f, &same, false);
	assert_int_equal(fixture_sql(&f,
	                             "SELECT (SELECT seq FROM audit WHERE object_name='r-00002')"
	                             " < (SELECT seq FROM audit WHERE object_name='r-00003')"),
	                 1);
	/* Nobody waits any more: nor does the next. */
	fixture_submit(&f, &w, pages(4, 1, &same));
	fixture_wait(&f, &w);
	assert_int_equal(w.failed, 0);
	fixture_fini(&f);
}

static void control__what_does_not_say_what_it_is_about_overtakes(void **state)
{
	struct fixture f;

	small_after_large(&f, NULL, true);
	fixture_fini(&f);
}

/* However many wait: what its owner forgets with the call. */
static void pending__keeps_what_is_to_be_kept_beyond_its_places(void **state)
{
	static struct found x;
	struct fixture f;
	struct wait w = {0};
	unsigned n = 4096 / 2 + 50; /* places of what is no revocation, and some */

	fixture_init(&f);
	open_it(&f, FULL_PAGES, &x);
	assert_int_equal(fixture_commit(&f, pages(1, 60, NULL)), 0);
	for (unsigned i = 0; i < n; i++) {
		struct store_txn *t = pages(2, 60, NULL);

		store_txn_set_kept(t);
		fixture_submit(&f, &w, t);
	}
	fixture_wait(&f, &w);
	assert_int_equal(w.pending, n);
	w = (struct wait){0};
	fixture_submit(&f, &w, pages(2, 60, NULL));
	fixture_wait(&f, &w);
	assert_int_equal(w.failed, 1);
	assert_int_equal(w.pending, 0);
	fixture_fini(&f);
}

/* ---- with one that is killed ---- */

static void child(struct fixture *f, unsigned n, bool with_note, bool room)
{
	static struct found x;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails, too */
	if (loop_new(&(struct loop_opts){.name = "child"}, &f->loop) || loop_thread_start(f->loop))
		_exit(3);
	f->opts.loop = f->loop;
	open_it(f, FULL_PAGES, &x);
	fill_up(f);
	shared->pending = take_away(f, n, with_note);
	shared->ready = true;
	if (room)
		make_room(f);
	for (;;)
		pause();
}

/* Killed @after_us after it has answered all; @room: while what waits is being recorded. */
static void run_and_kill(struct fixture *f, unsigned n, bool with_note, bool room,
                         unsigned after_us)
{
	int status;
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	assert_true(shared != MAP_FAILED);
	fixture_init(f);
	/* A child of several threads may find a lock of the allocator held for ever. */
	loop_stop(f->loop);
	loop_thread_join(f->loop);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(f, n, with_note, room);
	assert_true(AWAIT(shared->ready));
	/* time: killed at another moment each round */
	usleep(after_us);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	loop_free(f->loop);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "test"}, &f->loop), 0);
	assert_int_equal(loop_thread_start(f->loop), 0);
	f->opts.loop = f->loop;
}

static void run_end(struct fixture *f)
{
	fixture_fini(f);
	munmap(shared, sizeof(*shared));
}

static void pending__is_there_after_a_kill(void **state)
{
	static struct found x;
	struct fixture f;

	run_and_kill(&f, MANY, true, false, 0);
	open_it(&f, FULL_PAGES, &x);
	assert_int_equal(x.n, shared->pending);
	assert_int_equal(x.n + rows(&f), MANY);
	make_room(&f);
	record_found(&f, &x);
	all_recorded(&f, MANY);
	fixture_close(&f);
	open_it(&f, 0, &x);
	assert_int_equal(x.n, 0);
	run_end(&f);
}

static void pending__is_there_once_after_a_kill_while_it_is_recorded(void **state)
{
	static struct found x;

	for (unsigned round = 0; round < 8; round++) {
		struct fixture f;

		run_and_kill(&f, MANY, true, true, 9000 * round);
		open_it(&f, 0, &x);
		/* Each is a row, or found: not both. */
		assert_int_equal(x.n + rows(&f), MANY);
		record_found(&f, &x);
		all_recorded(&f, MANY);
		run_end(&f);
	}
}

static void control__without_notes_a_kill_loses_what_waits(void **state)
{
	static struct found x;
	struct fixture f;

	run_and_kill(&f, MANY, false, false, 0);
	open_it(&f, 0, &x);
	assert_int_equal(x.n, 0);
	assert_int_equal(rows(&f), MANY - shared->pending);
	assert_true(shared->pending > 0);
	run_end(&f);
}

/* Those for which the journal has no slot: named by its filter, and nothing else is. */
static void pending__beyond_the_slots_of_the_journal_is_in_doubt_after_a_kill(void **state)
{
	static struct found x;
	struct fixture f;
	unsigned n = SLOTS + 300;
	struct ros2_uid u = ros2_uid_new(), tenant = {{5}};

	run_and_kill(&f, n, true, false, 0);
	assert_true(shared->pending > SLOTS + 200);
	open_it(&f, 0, &x);
	assert_int_equal(x.asked, 1);
	assert_int_equal(x.doubted, shared->pending - SLOTS);
	assert_int_equal(x.wrongly, 0);
	assert_int_equal(x.n + rows(&f), n);
	/* Nothing is given before they are recorded, though there is room. */
	assert_true(fixture_commit(&f, fixture_grant(&u, &tenant)) < 0);
	record_found(&f, &x);
	assert_int_equal(rows(&f), n);
	assert_int_equal(fixture_commit(&f, fixture_grant(&u, &tenant)), 0);
	fixture_close(&f);
	open_it(&f, 0, &x);
	assert_int_equal(x.n + x.asked, 0);
	run_end(&f);
}

/* Those found in doubt, which wait again, and again the process is killed. */
static void pending__in_doubt_is_in_doubt_after_another_kill(void **state)
{
	static struct found x, y;
	struct fixture f;

	run_and_kill(&f, SLOTS + 100, true, false, 0);
	for (int i = 0; i < 2; i++) {
		open_it(&f, FULL_PAGES, &x);
		assert_int_equal(x.doubted, shared->pending - SLOTS);
		fixture_close(&f);
	}
	open_it(&f, 0, &y);
	assert_int_equal(y.n, x.n);
	record_found(&f, &y);
	assert_int_equal(rows(&f), SLOTS + 100);
	run_end(&f);
}

static void control__without_the_filter_a_kill_loses_what_has_no_slot(void **state)
{
	static struct found x;
	struct fixture f;

	without_targets = true;
	run_and_kill(&f, SLOTS + 40, true, false, 0);
	without_targets = false;
	assert_true(shared->pending > SLOTS);
	open_it(&f, 0, &x);
	assert_int_equal(x.n, SLOTS);
	assert_int_equal(x.asked, 0);
	run_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pending__is_recorded_in_order_when_there_is_room),
		cmocka_unit_test(pending__is_there_after_a_restart_and_another),
		cmocka_unit_test(pending__is_not_overtaken_by_what_is_about_the_same),
		cmocka_unit_test(control__what_does_not_say_what_it_is_about_overtakes),
		cmocka_unit_test(pending__keeps_what_is_to_be_kept_beyond_its_places),
		cmocka_unit_test(pending__is_there_after_a_kill),
		cmocka_unit_test(pending__is_there_once_after_a_kill_while_it_is_recorded),
		cmocka_unit_test(control__without_notes_a_kill_loses_what_waits),
		cmocka_unit_test(pending__beyond_the_slots_of_the_journal_is_in_doubt_after_a_kill),
		cmocka_unit_test(pending__in_doubt_is_in_doubt_after_another_kill),
		cmocka_unit_test(control__without_the_filter_a_kill_loses_what_has_no_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

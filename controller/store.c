/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's front: a queue, the store thread with its group commit, the compaction thread, and
 * the delivery of results on the loop. Must never answer before the commit is durable, and never
 * retry a commit that failed with an I/O error (the process ends).
 *
 * One turn of the store thread: take everything that waits (up to STORE_BATCH_MAX) ▸ BEGIN ▸ apply
 * mutations, append audit records, save heads ▸ COMMIT (fsync) ▸ post the results. When the disk is
 * full the batch is rolled back and each transaction is tried alone, so that the small ones and
 * those that shrink rights get what space there is; the latter may use the reserve file (and alone
 * then, until there is a reserve again), and if even that is not enough they are kept and tried
 * again each second, a revocation with a note in the journal (rule 10, store_journal.c).
 */
#include "controller/store_front_priv.h"
#include "common/clock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

#define GATHER_NS (600 * 1000ull)
/* Transactions that are worth a commit: less, and pages and syncs are paid for too few; more, and
 * who has that many in flight waits for all of them each time, while nobody works on the next. */
#define GATHER_GOAL    24
#define PENDING_MAX    4096 /* transactions that wait for space */
#define PRUNE_EVERY_NS (60 * NS_PER_S)
#define ENDED_KEEP_NS  (24 * 3600 * NS_PER_S)
/* What is moved at a time. Small: meanwhile the disk has little time for a commit. Not less: a sync
 * or two each. */
#define WAL_SOFT_BYTES (2u << 20)
/* From this length on it is begun anew. 4062 pages need one of the log's index; the next one asks
 * for memory in a commit. */
#define WAL_HARD_BYTES (12u << 20)

static bool is_fatal(int rc)
{
	return rc == -EIO || rc == -EBADMSG;
}

/* ---- one commit (store thread) ---- */

/* What takes rights away needs no commit to do so: it goes on once it is known that there is none.
 */
static bool is_pressed(struct store *s)
{
	bool r;

	pthread_mutex_lock(&s->lock);
	r = s->takes_away || s->hurry;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Such a one waits for its turn. */
static bool is_hurried(struct store *s)
{
	bool r;

	pthread_mutex_lock(&s->lock);
	r = s->hurry;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* A lock of another process on the file is about none of those that wait here: where one has waited
 * for it in vain, the others of this turn are told so at once. A revocation would else be answered
 * when each before it had waited as long. It is waited for no longer than a tenth of a second when
 * a revocation waits, and until it was had once after it was waited for in vain. */
int store_begin(struct store *s, struct ros2_err *err)
{
	uint64_t due = clock_monotonic_ns();
	int r;

	if (s->locked_out.code) {
		*err = s->locked_out;
		return s->locked_out.code;
	}
	if (!s->lock_stays)
		due += (s->o.lock_wait_ms ? s->o.lock_wait_ms : STORE_LOCK_WAIT_MS) * NS_PER_MS;
	while ((r = s->ops->begin(s->backend, err)) == -EBUSY && clock_monotonic_ns() < due &&
	       !is_pressed(s))
		s->ops->rollback(s->backend);
	s->lock_stays = r == -EBUSY;
	if (r == -EBUSY)
		s->locked_out = *err;
	return r;
}

/* What begins here may wait for such a lock once. */
static void new_turn(struct store *s)
{
	s->locked_out = (struct ros2_err)ROS2_ERR_INIT;
}

/* Rows are changed as this process knows them, so they have to be the ones that it knows. */
static int begin_on_own(struct store *s, struct ros2_err *err)
{
	int r = store_begin(s, err);

	return r ? r : ledger_check(s->ledger, err);
}

static int write_txn(struct store *s, struct store_txn *t, struct ros2_err *err)
{
	int r = 0;

	for (size_t i = 0; i < t->n_muts && !r; i++)
		r = s->ops->apply(s->backend, &t->muts[i], err);
	for (size_t i = 0; i < t->n_drafts && !r; i++)
		r = ledger_append(s->ledger, t->drafts[i], err);
	s->revision_next = MAX(s->revision_next, t->revision);
	return r;
}

static int save_revision(struct store *s, struct ros2_err *err)
{
	uint8_t b[8];

	if (s->revision_next == s->revision_saved)
		return 0;
	for (int i = 0; i < 8; i++)
		b[i] = (uint8_t)(s->revision_next >> (8 * i));
	return s->ops->meta_put(s->backend, "revision", b, sizeof(b), err);
}

static int commit_list(struct store *s, struct list *txns, struct ros2_err *err)
{
	uint64_t revision = s->revision_next, began_ns = clock_boottime_ns();
	struct store_txn *t;
	int r;

	if (atomic_load(&s->dead))
		return ros2_err_set(err, -EIO, "the store has failed");
	r = begin_on_own(s, err);
	ledger_mark(s->ledger);
	if (!r)
		list_for_each (txns, t, link) {
			r = write_txn(s, t, err);
			if (r < 0)
				break;
		}
	if (!r)
		r = ledger_save(s->ledger, err);
	if (!r)
		r = save_revision(s, err);
	if (!r)
		r = s->ops->commit(s->backend, err);
	if (r < 0) {
		s->ops->rollback(s->backend);
		ledger_undo(s->ledger);
		s->revision_next = revision;
		return r;
	}
	ledger_settle(s->ledger);
	s->revision_saved = s->revision_next;
	atomic_store(&s->audit_records, ledger_seq(s->ledger));
	atomic_fetch_add(&s->commits, 1);
	metrics_latency_add(&s->commit_latency, clock_boottime_ns() - began_ns);
	return 0;
}

void store_set_results(struct list *txns, int rc, const struct ros2_err *err)
{
	uint64_t now = clock_boottime_ns();
	struct store_txn *t;

	list_for_each (txns, t, link) {
		t->result.rc = rc;
		t->result.committed_boottime_ns = now;
		if (rc < 0)
			t->result.err = *err;
	}
}

/* One transaction alone: the last stage for those that did not fit into a common commit. */
static void commit_alone(struct store *s, struct store_txn *t)
{
	struct list one;
	struct ros2_err err = ROS2_ERR_INIT;
	int r;

	list_init(&one);
	list_add_tail(&one, &t->link);
	r = commit_list(s, &one, &err);
	if (r == -ENOSPC && t->shrinks && !s->reserve_used) {
		store_reserve_free(s);
		r = commit_list(s, &one, &err);
	}
	if (is_fatal(r))
		store_fatal(s, &err);
	store_set_results(&one, r, &err);
	list_del(&t->link);
	if (r == -ENOSPC && !atomic_exchange(&s->full, true)) {
		atomic_store(&s->full_since_unix_ns, clock_unix_ns());
		log_error("the disk is full: nothing new is granted until there is space (%s)",
		          err.msg);
	}
}

/* Not the fault of the transaction: it may go through later. */
static bool may_succeed_later(int rc)
{
	return rc == -ENOSPC || rc == -EBUSY || rc == -ENOMEM;
}

/* A transaction that must not be lost although there is no space: its owner is told now, the rows
 * follow. The copy in `pending` keeps the memory; the owner's result needs only the result. */
static bool keep_pending(struct store *s, struct store_txn *t)
{
	if (!may_succeed_later(t->result.rc) || !t->shrinks)
		return false;
	/* Revocations have the places that receipts do not. */
	if (!t->kept && s->n_pending >= (t->note ? PENDING_MAX : PENDING_MAX / 2)) {
		log_error("%zu records of what was taken away wait for space: one more is "
		          "effective but not kept",
		          s->n_pending);
		t->unkept = true;
		return false;
	}
	t->result.record_pending = true;
	return true;
}

static bool any_shrinks(const struct list *txns)
{
	const struct store_txn *t;

	list_for_each (txns, t, link)
		if (t->shrinks)
			return true;
	return false;
}

/* Each alone is a commit each, of hundreds: where one of them takes rights away, or such a one
 * waits for its turn, the others are not tried before it. Nor are they behind it, if it waits for
 * space then. */
static void commit_batch(struct store *s, struct list *txns)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct store_txn *t, *tmp;
	struct list alone;
	int r = commit_list(s, txns, &err);
	bool waits; /* one that takes rights away */

	if (!r) {
		store_set_results(txns, 0, NULL);
		if (!s->reserve_lent)
			atomic_store(&s->full, false);
		return;
	}
	if (is_fatal(r))
		store_fatal(s, &err);
	waits = any_shrinks(txns);
	list_init(&alone);
	list_for_each_safe (txns, t, tmp, link) {
		list_del(&t->link);
		list_add_tail(&alone, &t->link);
	}
	list_for_each_safe (&alone, t, tmp, link) {
		list_del(&t->link);
		if (atomic_load(&s->dead)) {
			t->result.rc = -EIO;
			t->result.err = err;
		} else if ((!t->shrinks && (waits || is_hurried(s))) ||
		           store_order_behind(s->waiting, t)) {
			store_refuse_waiting(t);
		} else {
			commit_alone(s, t);
		}
		if (t->shrinks && may_succeed_later(t->result.rc))
			store_order_wait(s, t);
		list_add_tail(txns, &t->link);
	}
}

static void retry_pending(struct store *s, bool all);

static bool anything_waits(struct store *s)
{
	bool waits;

	pthread_mutex_lock(&s->lock);
	waits = s->n_pending > 0 || s->n_doubted;
	pthread_mutex_unlock(&s->lock);
	return waits;
}

/* What gives rights is never committed before what took some away earlier: a revocation's rows that
 * came after the reinstatement's would undo it, and the log would tell it the wrong way round. */
static void refuse_before_pending(struct store *s, struct list *txns, struct list *ret_refused)
{
	if (store_reserve_may_refuse(txns) && anything_waits(s))
		retry_pending(s, false);
	store_reserve_refuse(s, txns, anything_waits(s), ret_refused);
}

static void run_batch(struct store *s, struct list *txns)
{
	struct store_txn *t, *tmp;
	struct list refused;

	list_init(&refused);
	refuse_before_pending(s, txns, &refused);
	store_order_hold(s, txns, &refused);
	if (!list_empty(txns))
		commit_batch(s, txns);
	list_for_each_safe (&refused, t, tmp, link) {
		list_del(&t->link);
		list_add_tail(txns, &t->link);
	}
}

/* ---- delivery (loop thread) ---- */

/* The owner of a record-pending transaction has been answered: now the store thread may write it.
 */
static void give_back(struct store *s, struct store_txn *t)
{
	t->done = NULL;
	t->result = (struct store_result){0};
	pthread_mutex_lock(&s->lock);
	list_add_tail(&s->pending, &t->link);
	pthread_mutex_unlock(&s->lock);
}

static void deliver(struct store *s)
{
	struct store_txn *t, *tmp;
	struct list done;

	list_init(&done);
	pthread_mutex_lock(&s->lock);
	while (!list_empty(&s->done)) {
		t = list_first(&s->done, struct store_txn, link);
		list_del(&t->link);
		list_add_tail(&done, &t->link);
	}
	s->delivery_posted = false;
	pthread_mutex_unlock(&s->lock);
	list_for_each_safe (&done, t, tmp, link) {
		list_del(&t->link);
		if (t->done)
			t->done(t->arg, &t->result);
		if (t->result.record_pending)
			give_back(s, t);
		else
			store_txn_free(t);
	}
	if (s->on_batch)
		s->on_batch(s->batch_arg);
}

static void delivery(void *arg)
{
	struct store *s = arg;

	if (!s->closed)
		deliver(s);
	store_unref(s);
}

void store_post(struct store *s, struct list *txns)
{
	struct store_txn *t, *tmp;
	bool post;

	pthread_mutex_lock(&s->lock);
	list_for_each_safe (txns, t, tmp, link) {
		list_del(&t->link);
		list_add_tail(&s->done, &t->link);
		atomic_fetch_add(&s->transactions, 1);
	}
	post = !s->delivery_posted;
	s->delivery_posted = true;
	pthread_mutex_unlock(&s->lock);
	if (!post)
		return;
	store_ref(s);
	loop_post_urgent(s->o.loop, &s->delivery_post, delivery, s);
}

static void post_results(struct store *s, struct list *txns)
{
	struct store_txn *t;
	unsigned in_memory;

	pthread_mutex_lock(&s->lock);
	list_for_each (txns, t, link) {
		bool kept = keep_pending(s, t);

		s->n_pending += kept;
		if (!kept)
			store_order_leave(s, t);
	}
	pthread_mutex_unlock(&s->lock);
	in_memory = store_journal_keep(s, txns);
	if (in_memory)
		log_error("%u revocations are effective, but in memory only: the journal does not "
		          "take them",
		          in_memory);
	store_journal_done(s, txns);
	store_post(s, txns);
}

/* ---- the end ---- */

static bool ends(struct store *s)
{
	return atomic_load(&s->dead) && !s->ended;
}

/* What was committed or refused before the failure is answered as ever. */
static void end_turn(struct store *s, struct list *txns)
{
	struct store_txn *t, *tmp;
	struct list settled;

	list_init(&settled);
	list_for_each_safe (txns, t, tmp, link) {
		if (is_fatal(t->result.rc))
			continue;
		list_del(&t->link);
		list_add_tail(&settled, &t->link);
	}
	if (!list_empty(&settled))
		post_results(s, &settled);
	store_end(s, txns);
}

/* ---- periodic work (store thread) ---- */

static void give_slot_back(struct store *s, struct store_txn *t)
{
	struct list one;

	list_init(&one);
	list_add_tail(&one, &t->link);
	store_journal_done(s, &one);
	list_del(&t->link);
}

/* True: it must be tried once more, and its place stays taken. */
static bool retry_one(struct store *s, struct store_txn *t)
{
	if (!atomic_load(&s->dead))
		commit_alone(s, t);
	if (atomic_load(&s->dead) || may_succeed_later(t->result.rc)) {
		t->result.record_pending = true;
		return true;
	}
	give_slot_back(s, t);
	store_order_leave(s, t);
	pthread_mutex_lock(&s->lock);
	s->n_pending--;
	pthread_mutex_unlock(&s->lock);
	if (t->result.rc < 0)
		log_error("what waited for space cannot be recorded: %s", t->result.err.msg);
	else
		log_info("a revocation that waited for space is recorded now");
	store_txn_free(t);
	return false;
}

/* Is the next one tried? All are, so that the small ones get what space there is; or up to the
 * first that fails, because more than the time of one is not to be spent. Each has a commit of its
 * own, and there may be thousands: what takes rights away now is not behind them. Of all, the first
 * is tried anyway. */
static bool is_tried(struct store *s, bool all, bool is_first, const struct list *still)
{
	if (all)
		return is_first || !is_hurried(s);
	return list_empty(still) && !is_pressed(s);
}

static void retry_pending(struct store *s, bool all)
{
	uint16_t behind[STORE_ORDER_BUCKETS] = {0};
	struct list again, still, *first;
	struct store_txn *t, *tmp;
	size_t n = 0;

	list_init(&again);
	list_init(&still);
	pthread_mutex_lock(&s->lock);
	list_for_each_safe (&s->pending, t, tmp, link) {
		list_del(&t->link);
		list_add_tail(&again, &t->link);
	}
	pthread_mutex_unlock(&s->lock);
	list_for_each_safe (&again, t, tmp, link) {
		list_del(&t->link);
		if (is_tried(s, all, !n++, &still) && !store_order_behind(behind, t) &&
		    !retry_one(s, t))
			continue;
		t->result.record_pending = true; /* whether it was tried or not */
		list_add_tail(&still, &t->link);
		store_order_count(behind, t);
	}
	store_journal_keep(s, &still);
	pthread_mutex_lock(&s->lock);
	first = s->pending.next; /* what was given back meanwhile is younger */
	list_for_each_safe (&still, t, tmp, link) {
		list_del(&t->link);
		list_add_tail(first, &t->link);
	}
	pthread_mutex_unlock(&s->lock);
	if (s->reserve_used && !s->n_pending && (s->reserve_lent || !atomic_load(&s->full)))
		store_reserve_make(s);
}

void store_note_pending(struct store *s)
{
	retry_pending(s, true);
}

static int in_commit(struct store *s, int (*fn)(struct store *s, struct ros2_err *err),
                     struct ros2_err *err)
{
	int r;

	if (atomic_load(&s->dead))
		return -EIO;
	r = begin_on_own(s, err);
	if (!r)
		r = fn(s, err);
	if (!r)
		r = s->ops->commit(s->backend, err);
	if (r < 0)
		s->ops->rollback(s->backend);
	if (is_fatal(r))
		store_fatal(s, err);
	return r;
}

static int do_checkpoint(struct store *s, struct ros2_err *err)
{
	return ledger_checkpoint(s->ledger, s->origin, s->o.audit_key, err);
}

static int do_prune(struct store *s, struct ros2_err *err)
{
	uint64_t now = clock_unix_ns();

	int n = s->ops->prune(s->backend, now > ENDED_KEEP_NS ? now - ENDED_KEEP_NS : 0, err);

	/* More than one round's worth has ended: the next turn goes on. */
	if (n == STORE_PRUNE_ROWS)
		s->prune_ns = 0;
	return MIN(n, 0);
}

static void tick(struct store *s, uint64_t now)
{
	struct ros2_err err = ROS2_ERR_INIT;

	s->tick_ns = now;
	if (s->n_pending || s->reserve_used)
		retry_pending(s, true);
	else if (s->reserve_short && !atomic_load(&s->full))
		store_reserve_make(s);
	else if (s->start_short && !atomic_load(&s->full))
		store_reserve_make_for_start(s);
	store_journal_tend(s);
	if (s->o.audit_key && ledger_seq(s->ledger) > s->checkpoint_size &&
	    !in_commit(s, do_checkpoint, &err))
		s->checkpoint_size = ledger_seq(s->ledger);
	if (now - s->prune_ns >= PRUNE_EVERY_NS) {
		s->prune_ns = now;
		in_commit(s, do_prune, &err);
	}
}

/* ---- threads ---- */

static bool log_is_long(const struct store *s)
{
	return s->ops->wal_left(s->backend) >= WAL_SOFT_BYTES ||
	       s->ops->wal_bytes(s->backend) >= WAL_HARD_BYTES;
}

static void compaction_due(struct store *s)
{
	if (!log_is_long(s))
		return;
	pthread_mutex_lock(&s->compact_lock);
	s->compact_due = true;
	pthread_cond_signal(&s->compact_wake);
	pthread_mutex_unlock(&s->compact_lock);
}

void *store_compaction_thread(void *arg)
{
	struct store *s = arg;

	pthread_mutex_lock(&s->compact_lock);
	while (!s->compact_stop) {
		bool hard;
		int r;

		if (!s->compact_due) {
			pthread_cond_wait(&s->compact_wake, &s->compact_lock);
			continue;
		}
		s->compact_due = false;
		if (!log_is_long(s))
			continue; /* it was, before what was just moved */
		pthread_mutex_unlock(&s->compact_lock);
		hard = s->ops->wal_bytes(s->backend) >= WAL_HARD_BYTES;
		r = s->ops->compact(s->backend, hard);
		if (is_fatal(r)) {
			struct ros2_err err = ROS2_ERR_INIT;

			ros2_err_set(&err, r,
			             "moving the write-ahead log into the database failed");
			store_fatal(s, &err);
		}
		pthread_mutex_lock(&s->compact_lock);
	}
	pthread_mutex_unlock(&s->compact_lock);
	return NULL;
}

/* Where several submit at once, the answers to one commit bring the next requests within a moment:
 * waiting that long for them writes and syncs once instead of several times. A lone caller, and
 * whatever takes rights away, waits for nobody. Called with the lock held. */
static void gather(struct store *s)
{
	uint64_t due = clock_monotonic_ns() + GATHER_NS;
	struct timespec until = {.tv_sec = (time_t)(due / NS_PER_S),
	                         .tv_nsec = (long)(due % NS_PER_S)};

	while (s->last_batch > 1 && s->n_queue && s->n_queue < GATHER_GOAL && !s->hurry &&
	       !s->stop && pthread_cond_timedwait(&s->wake, &s->lock, &until) != ETIMEDOUT)
		;
}

/* Moves what waits to @txns; false when the thread should end. Waits until there is work or the
 * next tick. */
static bool take_work(struct store *s, struct list *txns)
{
	struct timespec until;
	uint64_t due = s->tick_ns + s->checkpoint_ms * NS_PER_MS;
	size_t n = 0;
	bool more;

	until.tv_sec = (time_t)(due / NS_PER_S);
	until.tv_nsec = (long)(due % NS_PER_S);
	pthread_mutex_lock(&s->lock);
	while (list_empty(&s->queue) && !s->stop && !ends(s) &&
	       pthread_cond_timedwait(&s->wake, &s->lock, &until) != ETIMEDOUT)
		;
	gather(s);
	while (!list_empty(&s->queue) && n < STORE_BATCH_MAX) {
		struct store_txn *t = list_first(&s->queue, struct store_txn, link);

		list_del(&t->link);
		list_add_tail(txns, &t->link);
		n++;
	}
	s->n_queue -= n;
	s->takes_away = s->hurry;
	s->hurry &= !list_empty(&s->queue);
	if (n)
		s->last_batch = n;
	more = n || !s->stop;
	pthread_mutex_unlock(&s->lock);
	return more;
}

void *store_thread(void *arg)
{
	struct store *s = arg;
	struct list txns;

	list_init(&txns);
	s->tick_ns = clock_monotonic_ns();
	while (take_work(s, &txns)) {
		uint64_t now;

		new_turn(s);
		if (!list_empty(&txns)) {
			if (!atomic_load(&s->dead))
				run_batch(s, &txns);
			else
				store_set_results(
					&txns, -EIO,
					&(struct ros2_err){.code = -EIO,
				                           .status = ROS2_NOT_DURABLE,
				                           .msg = "the store has failed"});
		}
		if (ends(s))
			end_turn(s, &txns);
		if (!list_empty(&txns)) {
			post_results(s, &txns);
			compaction_due(s);
		}
		now = clock_monotonic_ns();
		if (!atomic_load(&s->dead) && now - s->tick_ns >= s->checkpoint_ms * NS_PER_MS)
			tick(s, now);
		else if (atomic_load(&s->dead))
			s->tick_ns = now;
	}
	new_turn(s);
	if (!atomic_load(&s->dead))
		tick(s, clock_monotonic_ns());
	if (ends(s))
		end_turn(s, &txns);
	return NULL;
}

/* ---- submit (loop thread) ---- */

int store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                 struct ros2_err *err)
{
	int r = 0;

	if (!t || t->no_memory) {
		store_txn_free(t);
		return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	t->done = done;
	t->arg = arg;
	pthread_mutex_lock(&s->lock);
	if (s->stop || !s->running)
		r = -ESHUTDOWN;
	else if (!t->note && !t->kept && s->n_queue >= STORE_QUEUE_MAX * (t->shrinks ? 2 : 1))
		r = -EBUSY;
	if (!r) {
		list_add_tail(&s->queue, &t->link);
		s->n_queue++;
		s->hurry |= t->shrinks;
		if (s->n_queue == 1 || s->n_queue == GATHER_GOAL || t->shrinks)
			pthread_cond_signal(&s->wake);
	}
	pthread_mutex_unlock(&s->lock);
	if (r == -EBUSY)
		ros2_err_set(err, r, "the controller's store is behind: try again in a moment");
	else if (r)
		ros2_err_set(err, r, "the controller is stopping");
	if (r)
		store_txn_free(t);
	return r;
}

/* Without it no right can be taken away, so it may have the space that is kept for that. */
int store_commit_now(struct store *s, struct store_txn *t, struct ros2_err *err)
{
	int r;

	if (!t || t->no_memory) {
		store_txn_free(t);
		return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	t->shrinks = true;
	new_turn(s);
	commit_alone(s, t);
	if (t->result.rc == -ENOSPC && store_reserve_free_for_start(s)) {
		t->result.err = (struct ros2_err)ROS2_ERR_INIT;
		commit_alone(s, t);
	}
	r = t->result.rc;
	if (r < 0 && err)
		*err = t->result.err;
	store_txn_free(t);
	return r;
}

void store_settle(struct store *s)
{
	struct list none;

	list_init(&none);
	deliver(s);
	new_turn(s);
	if (!atomic_load(&s->dead))
		retry_pending(s, true);
	if (ends(s))
		store_end(s, &none);
	if (s->n_pending)
		log_error("%zu records of what was taken away wait for space: revocations among "
		          "them are in the journal",
		          s->n_pending);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The front's own state, shared by store.c (writing) and store_read.c (reading in pages). */
#ifndef ROS2_CONTROLLER_STORE_FRONT_PRIV_H
#define ROS2_CONTROLLER_STORE_FRONT_PRIV_H

#include "common/metrics.h"
#include "controller/ledger.h"
#include "controller/store_priv.h"
#include "controller/store_txn.h"
#include <pthread.h>
#include <stdatomic.h>

#define STORE_JOURNAL_SLOTS 1024
#define STORE_JOURNAL_SLOT  4096u
#define STORE_DOUBT_LEN     65536u /* bytes behind the slots: store_doubt.c */
#define STORE_JOURNAL_LEN   (STORE_JOURNAL_SLOTS * STORE_JOURNAL_SLOT + STORE_DOUBT_LEN)

#define STORE_ORDER_BUCKETS 4096

struct doubted;

struct store {
	/* immutable after open */
	struct store_opts o; /* its strings are not used after open */
	const struct store_ops *ops;
	char *dir, *domain, *origin; /* owned */
	char reserve_path[4096], start_path[4096];
	uint64_t reserve_bytes, revision_open;
	uint32_t checkpoint_ms;
	struct store_epoch epoch;
	int lock_fd;
	void *backend; /* owned */

	/* any thread */
	_Atomic bool dead, full, reserve_used;
	_Atomic uint64_t commits, transactions, audit_records, checkpoint_size;
	_Atomic uint64_t full_since_unix_ns;
	struct metrics_latency commit_latency;
	_Atomic int refs; /* one of the owner, one per message posted to the loop */

	/* loop thread */
	bool closed; /* results are no longer delivered */
	loop_fn on_batch;
	void *batch_arg;

	/* store thread */
	struct ledger *ledger; /* owned */
	uint64_t revision_next, revision_saved, tick_ns, prune_ns;
	bool ended;                 /* store_end has run */
	bool reserve_lent;          /* its space is for what shrinks rights, and for nothing else */
	bool reserve_short;         /* it is there, and smaller than it is to be */
	bool start_short;           /* what is for a start is, or is not there */
	struct ros2_err locked_out; /* why BEGIN was -EBUSY in this turn; code 0: it was not */
	bool lock_stays;            /* the last BEGIN was -EBUSY */
	bool takes_away;            /* so does something of this turn's transactions */
	uint16_t waiting[STORE_ORDER_BUCKETS]; /* store_order.c: how many wait for space */

	struct { /* store_journal.c */
		int fd;
		uint8_t *image; /* owned: what the file should hold */
		bool used[STORE_JOURNAL_SLOTS];
		/* A write or sync failed, and the image was not written anew since. Any thread may
		 * read it. */
		_Atomic bool suspect;
		bool is_short;    /* made by a version without the filter, and not written anew */
		bool doubt_dirty; /* the filter in the image is not yet in the file */
	} journal;
	struct doubted *doubted;  /* owned; store_doubt.c: revocations that have no slot */
	_Atomic size_t n_doubted; /* any thread reads it */

	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list queue, done, pending; /* of struct store_txn */
	size_t n_queue, n_pending, last_batch;
	bool hurry; /* something that takes rights away waits */
	bool stop, delivery_posted;
	struct ros2_err dead_why;       /* constant from `dead` on */
	struct loop_post delivery_post; /* delivery_posted says whether it waits */

	/* guarded by compact_lock */
	pthread_mutex_t compact_lock;
	pthread_cond_t compact_wake;
	bool compact_due, compact_stop;

	/* guarded by read_lock */
	pthread_mutex_t read_lock;
	pthread_cond_t read_wake;
	struct list reads; /* of struct read_job */
	size_t n_reads;
	bool read_stop;

	pthread_t thread, compactor, reader;
	bool running, compacting, reading;
};

void store_ref(struct store *s);
void store_unref(void *s);
void *store_reader_thread(void *arg);

/* store.c: the threads, from store_start to store_close. */
void *store_thread(void *arg);
void *store_compaction_thread(void *arg);
/* After they were joined: what is left is delivered, and what waits for space tried once more. */
void store_settle(struct store *s);

/* Store thread, or none yet: ops->begin, waiting for another process's lock on the file. After it
 * fails, too: ops->rollback. */
int store_begin(struct store *s, struct ros2_err *err);
void store_set_results(struct list *txns, int rc, const struct ros2_err *err);
/* Hands results to the loop. */
void store_post(struct store *s, struct list *txns);
/* What waits for space and is in memory only is noted, where the journal takes it. */
void store_note_pending(struct store *s);

/* store_end.c: the end of a store that cannot be trusted. */
/* Any thread: nothing is committed from here on, and the store thread ends the process. */
void store_fatal(struct store *s, const struct ros2_err *why);
/* Once, when that was said. @txns: those that met it; what is left in it where the process does not
 * end (on_fatal) is refused. */
void store_end(struct store *s, struct list *txns);

/* store_reserve.c: the space that is kept for what shrinks rights. Store thread. */
void store_reserve_free(struct store *s);
/* Says when there is space again. */
void store_reserve_make(struct store *s);
/* The part of it that is for a start. False: there was none. */
bool store_reserve_free_for_start(struct store *s);
void store_reserve_make_for_start(struct store *s);
/* Both, what is for the next start first. */
void store_reserve_make_at_start(struct store *s);
/* Moves what does not shrink rights from @txns to @ret_refused, while the reserve is lent or
 * something that does @waits to be recorded. */
void store_reserve_refuse(struct store *s, struct list *txns, bool waits, struct list *ret_refused);
/* There is such a one. */
bool store_reserve_may_refuse(const struct list *txns);
void store_refuse_waiting(struct store_txn *t);

/* store_order.c: those about one thing do not overtake each other. Store thread. @n: counters. */
bool store_order_behind(const uint16_t n[STORE_ORDER_BUCKETS], const struct store_txn *t);
void store_order_count(uint16_t n[STORE_ORDER_BUCKETS], const struct store_txn *t);
/* @t waits for space from here on; it does no longer. */
void store_order_wait(struct store *s, struct store_txn *t);
void store_order_leave(struct store *s, struct store_txn *t);
/* Moves those that stand behind one that waits from @txns to @ret_held, as -EBUSY. */
void store_order_hold(struct store *s, struct list *txns, struct list *ret_held);

/* store_epoch.c: the trust domain is checked, the epoch goes up durably. */
int store_first_commit(struct store *s, struct ros2_err *err);

/* store_journal.c: revocations that the database had no room for. Store thread, or before it runs.
 */
/* Of a file that is there: -EACCES, -EIO, ... with words. Without one it makes one, or none. */
int store_journal_open(struct store *s, struct ros2_err *err);
void store_journal_close(struct store *s);
void store_journal_fini(struct store *s);
/* Once a second: writes a suspect file anew. */
void store_journal_tend(struct store *s);
int store_journal_load(struct store *s,
                       int (*fn)(void *arg, const void *p, size_t n, unsigned slot), void *arg,
                       struct ros2_err *err);
/* Notes of those of @txns that wait for space and have none; synced when it returns. How many are
 * in memory only. */
unsigned store_journal_keep(struct store *s, struct list *txns);
/* Gives back the slots of those that are committed. */
void store_journal_done(struct store *s, struct list *txns);
void store_journal_drop(struct store *s, unsigned slot);
/* What is behind the slots, in the image; NULL: the file has no room for it. */
uint8_t *store_journal_doubt(const struct store *s);
/* That is to be written. */
void store_journal_doubt_changed(struct store *s);
/* At start, when nobody owes what it names. */
void store_journal_doubt_drop(struct store *s);

/* store_doubt.c: those for which the journal has no slot. Store thread, or before it runs. */
/* False: it is in memory only. */
bool store_doubt_put(struct store *s, const struct store_txn *t);
/* @t is committed: true when it was the last one that the filter was kept for. */
bool store_doubt_done(struct store *s, const struct store_txn *t);
bool store_doubt_any(const struct store *s); /* the filter names something */
void store_doubt_fini(struct store *s);

#endif

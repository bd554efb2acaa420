/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a store that cannot be trusted any more: a sync failed, and nobody knows what the file
 * has. The process ends (rule 10), but what takes rights away is not lost with it:
 *
 *   1. nothing is committed from here on (store.c: dead);
 *   2. each revocation that waits is noted in the journal, a file of its own, and synced;
 *   3. those that are noted are answered `record pending` and sent to their agents;
 *   4. STORE_ENDING_MS later, with nobody to tell at once, the process ends;
 *   5. the next start finds the notes, or the rows, and carries them out.
 *
 * Whoever asked for anything else, or for a revocation that the journal does not take either, is
 * answered nothing: whether the file has it is not known. The connection breaks. Store thread, or
 * after it was joined.
 */
#include "controller/store_front_priv.h"
#include "common/clock.h"
#include <errno.h>
#include <unistd.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

void store_fatal(struct store *s, const struct ros2_err *why)
{
	bool first;

	pthread_mutex_lock(&s->lock);
	first = !atomic_load(&s->dead);
	if (first)
		s->dead_why = *why;
	atomic_store(&s->dead, true);
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (first && !s->o.on_fatal)
		log_error("the store failed and cannot be trusted any more, ending: %s", why->msg);
}

/* Those that are noted go to their owners, the others to @held. How many were. */
static unsigned tell(struct store *s, struct list *txns, struct list *held)
{
	struct store_txn *t, *tmp;
	struct list noted;
	unsigned n = 0;

	list_init(&noted);
	list_for_each (txns, t, link)
		t->result.record_pending = t->note != NULL;
	(void)store_journal_keep(s, txns);
	list_for_each_safe (txns, t, tmp, link) {
		bool told = t->note && t->noted;

		t->result.record_pending = t->result.ending = told;
		list_del(&t->link);
		list_add_tail(told ? &noted : held, &t->link);
		n += told;
	}
	if (!n)
		return 0;
	pthread_mutex_lock(&s->lock);
	s->n_pending += n;
	pthread_mutex_unlock(&s->lock);
	store_post(s, &noted);
	log_warn("%u revocations are in the journal: they hold, and are recorded by the next start",
	         n);
	return n;
}

/* What came meanwhile; false: the time is over. */
static bool take_more(struct store *s, const struct timespec *until, struct list *txns)
{
	struct store_txn *t, *tmp;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	while (list_empty(&s->queue) && !s->stop && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&s->wake, &s->lock, until);
	r = list_empty(&s->queue) || s->stop;
	if (!r)
		list_for_each_safe (&s->queue, t, tmp, link) {
			list_del(&t->link);
			list_add_tail(txns, &t->link);
			s->n_queue--;
		}
	pthread_mutex_unlock(&s->lock);
	return !r;
}

static bool over(const struct timespec *until)
{
	return clock_monotonic_ns() >=
	       (uint64_t)until->tv_sec * NS_PER_S + (uint64_t)until->tv_nsec;
}

void store_end(struct store *s, struct list *txns)
{
	uint32_t ms = s->o.ending_ms ? s->o.ending_ms : STORE_ENDING_MS;
	uint64_t due = clock_monotonic_ns() + ms * NS_PER_MS;
	struct timespec until = {.tv_sec = (time_t)(due / NS_PER_S),
	                         .tv_nsec = (long)(due % NS_PER_S)};
	struct store_txn *t, *tmp;
	struct list held;

	list_init(&held);
	store_note_pending(s);
	if (tell(s, txns, &held))
		while (!over(&until) && take_more(s, &until, txns)) {
			store_set_results(txns, -EIO, &s->dead_why);
			tell(s, txns, &held);
		}
	s->ended = true;
	if (!s->o.on_fatal)
		_exit(1);
	s->o.on_fatal(s->o.arg, &s->dead_why);
	list_for_each_safe (&held, t, tmp, link) {
		list_del(&t->link);
		list_add_tail(txns, &t->link);
	}
}

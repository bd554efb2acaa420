/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's life: opened, loaded, its threads started and joined, and freed when the last message
 * that names it is gone. What the threads do is in store.c and store_read.c.
 */
#include "controller/store_front_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHECKPOINT_MS 1000
#define RESERVE_BYTES (8u << 20)

static int open_backend(struct store *s, struct ros2_err *err)
{
	struct store_opts o = s->o;
	int r = 0;

	o.dir = s->dir;
	if (!s->backend)
		r = s->ops->open(&o, &s->backend, err);
	return r ? r : store_first_commit(s, err);
}

/* On a full disk rights are still to be taken away, and no less by a process that begins: its epoch
 * may have of the space that is kept for that. */
static int open_on_reserve(struct store *s, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	int r = open_backend(s, &why);

	if (r == -ENOSPC && store_reserve_free_for_start(s)) {
		why = (struct ros2_err)ROS2_ERR_INIT;
		r = open_backend(s, &why);
	}
	if (r == -ENOSPC) {
		why = (struct ros2_err)ROS2_ERR_INIT;
		store_reserve_free(s);
		atomic_store(&s->full, true);
		atomic_store(&s->full_since_unix_ns, clock_unix_ns());
		r = open_backend(s, &why);
	}
	if (r < 0 && err)
		*err = why;
	return r;
}

static int open_parts(struct store *s, struct ros2_err *err)
{
	uint8_t chain[SHA256_LEN];
	uint64_t last, noted;
	int r = fsx_mkdirs(s->dir, 0700, err);

	if (!r)
		r = fsx_lock_dir(s->dir, &s->lock_fd, err);
	if (!r)
		r = open_on_reserve(s, err);
	if (!r)
		r = ledger_open(s->ops, s->backend, &s->epoch, &s->ledger, err);
	if (!r)
		r = s->ops->audit_last(s->backend, &last, chain, &noted, err);
	if (r < 0)
		return r;
	s->audit_records = last;
	s->checkpoint_size = noted;
	r = store_journal_open(s, err);
	if (!r)
		store_reserve_make_at_start(s);
	return r;
}

static void init_locks(struct store *s)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->wake, &attr);
	pthread_mutex_init(&s->compact_lock, NULL);
	pthread_cond_init(&s->compact_wake, NULL);
	pthread_mutex_init(&s->read_lock, NULL);
	pthread_cond_init(&s->read_wake, NULL);
	pthread_condattr_destroy(&attr);
	list_init(&s->queue);
	list_init(&s->done);
	list_init(&s->pending);
	list_init(&s->reads);
}

static void free_store(struct store *s)
{
	struct store_txn *t, *tmp;

	list_for_each_safe (&s->pending, t, tmp, link)
		store_txn_free(t);
	store_doubt_fini(s);
	store_journal_fini(s);
	ledger_free(s->ledger);
	if (s->backend)
		s->ops->close(s->backend);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->compact_lock);
	pthread_cond_destroy(&s->compact_wake);
	pthread_mutex_destroy(&s->read_lock);
	pthread_cond_destroy(&s->read_wake);
	free(s->dir);
	free(s->domain);
	free(s->origin);
	free(s);
}

int store_open(const struct store_opts *o, struct store **ret, struct ros2_err *err)
{
	struct store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	init_locks(s);
	s->o = *o;
	s->ops = o->ops ? o->ops : &store_sqlite_ops;
	s->lock_fd = s->journal.fd = -1;
	s->refs = 1;
	s->checkpoint_ms = o->checkpoint_ms ? o->checkpoint_ms : CHECKPOINT_MS;
	s->reserve_bytes = o->reserve_bytes ? o->reserve_bytes : RESERVE_BYTES;
	s->dir = strdup(o->dir);
	s->domain = strdup(o->trust_domain);
	s->origin = strdup(o->audit_origin ? o->audit_origin : "");
	r = s->dir && s->domain && s->origin ? 0 : ros2_err_set(err, -ENOMEM, "out of memory");
	if (!r) {
		snprintf(s->reserve_path, sizeof(s->reserve_path), "%s/reserve", s->dir);
		snprintf(s->start_path, sizeof(s->start_path), "%s/start-reserve", s->dir);
		r = open_parts(s, err);
	}
	if (r < 0) {
		free_store(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct note_load {
	struct store *s;
	const struct store_loader *l;
	struct ros2_err *err;
};

/* A process that ended between the commit and the slot's end has left both. */
static int load_note(void *arg, const void *p, size_t n, unsigned slot)
{
	struct note_load *x = arg;
	struct ros2_uid uid;
	int r;

	memcpy(uid.b, p, ROS2_UID_LEN);
	r = x->s->ops->revocation_get(x->s->backend, &uid, x->err);
	if (!r)
		store_journal_drop(x->s, slot);
	if (r == -ENOENT)
		r = x->l->note ? x->l->note(x->l->arg, p, n, (int)slot) : 0;
	if (r > 0) {
		store_journal_drop(x->s, slot);
		r = 0;
	}
	return r;
}

int store_load(struct store *s, const struct store_loader *l, struct ros2_err *err)
{
	struct note_load x = {s, l, err};
	int r = s->ops->load(s->backend, l, err);

	if (!r)
		r = store_journal_load(s, load_note, &x, err);
	if (r < 0 || !l->doubt || !store_doubt_any(s))
		return r;
	r = l->doubt(l->arg);
	if (r < 0)
		return ros2_err_set(err, r, "what may have been revoked cannot be taken away");
	if (!s->n_doubted)
		store_journal_doubt_drop(s);
	return 0;
}

void store_set_on_batch(struct store *s, loop_fn fn, void *arg)
{
	s->on_batch = fn;
	s->batch_arg = arg;
}

int store_start(struct store *s, struct ros2_err *err)
{
	int r = pthread_create(&s->thread, NULL, store_thread, s);

	if (r)
		return ros2_err_set(err, -r, "cannot start the store thread");
	pthread_setname_np(s->thread, "store");
	s->running = true;
	r = pthread_create(&s->compactor, NULL, store_compaction_thread, s);
	if (!r) {
		pthread_setname_np(s->compactor, "store-wal");
		s->compacting = true;
		r = pthread_create(&s->reader, NULL, store_reader_thread, s);
	}
	if (r)
		return ros2_err_set(err, -r, "cannot start the store's threads");
	pthread_setname_np(s->reader, "store-read");
	s->reading = true;
	return 0;
}

static void stop_threads(struct store *s)
{
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
	if (s->running)
		pthread_join(s->thread, NULL);
	pthread_mutex_lock(&s->compact_lock);
	s->compact_stop = true;
	pthread_cond_signal(&s->compact_wake);
	pthread_mutex_unlock(&s->compact_lock);
	if (s->compacting)
		pthread_join(s->compactor, NULL);
	pthread_mutex_lock(&s->read_lock);
	s->read_stop = true;
	pthread_cond_signal(&s->read_wake);
	pthread_mutex_unlock(&s->read_lock);
	if (s->reading)
		pthread_join(s->reader, NULL);
}

void store_ref(struct store *s)
{
	atomic_fetch_add(&s->refs, 1);
}

void store_unref(void *arg)
{
	struct store *s = arg;

	if (atomic_fetch_sub(&s->refs, 1) == 1)
		free_store(s);
}

/* Messages that are still in the loop's queue hold a reference and find `closed`. */
void store_close(struct store *s)
{
	if (!s)
		return;
	stop_threads(s);
	if (s->running)
		store_settle(s);
	s->closed = true;
	/* Whoever has the lock next finds no log of ours beside a database that is not. */
	if (s->backend)
		s->ops->close(TAKE_PTR(s->backend));
	if (s->lock_fd >= 0)
		close(TAKE_FD(s->lock_fd));
	store_unref(s);
}

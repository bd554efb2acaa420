/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes of one file, in turn. Linux tells what it could not write to one fsync of an open file:
 * of two that are under way at once the other says that all is well (errseq_t, Documentation/
 * core-api/errseq.rst; "PostgreSQL's fsync() surprise", LWN 2018). So an engine that rests on fsync
 * has one flush of a file at a time; who asks meanwhile stands by, and all who stand by are served
 * by the next one, which begins after them all: of any number of flushes at once a tenant waits for
 * two. A flush by call, on a worker, is not made to wait: where one was under way beside the other,
 * nobody knows whom the kernel told, and the answer is BUSY.
 *
 * Invariant: where requests stand by, a flush of their file is with the engine or ready for it.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>

static bool in_turn(const struct request *req)
{
	return req->op == REQUEST_FLUSH && req->file->mount->engine->ops->flushes_in_turn &&
	       !DP_SWITCH(flushes_at_once);
}

static bool is_with_engine(const struct dp_file *f)
{
	return f->turn & 1;
}

bool flush_stands_by(struct request *req)
{
	if (!in_turn(req) || !is_with_engine(req->file))
		return false;
	list_del(&req->link);
	list_add_tail(&req->file->flushes, &req->link);
	return true;
}

static void move_all(struct list *to, struct list *from)
{
	while (!list_empty(from)) {
		struct list *n = from->next;

		list_del(n);
		list_add_tail(to, n);
	}
}

void flush_given(struct request *req)
{
	if (!in_turn(req))
		return;
	atomic_fetch_add(&req->file->turn, 1);
	move_all(&req->file->led, &req->file->flushes);
}

void flush_next(struct reactor *r, struct dp_file *f)
{
	struct list *first = f->flushes.next;

	if (is_with_engine(f) || list_empty(&f->flushes))
		return;
	list_del(first);
	list_add_tail(&r->ready, first);
}

struct dp_file *flush_is_over(struct request *req, int64_t *res)
{
	struct dp_file *f = req->file;

	if (!in_turn(req))
		return NULL;
	dp_file_ref(f); /* the request may be its last */
	if (*res >= 0 && atomic_load(&f->calls))
		*res = -EBUSY;
	atomic_fetch_add(&f->turn, 1);
	return f;
}

void flush_answer(struct reactor *r, struct dp_file *f, int64_t res)
{
	/* Nothing was done: the next one is for them. */
	if (res == ENGINE_LATE || res == ENGINE_AWAY)
		move_all(&f->flushes, &f->led);
	/* An answer may end the session, and with it all who stand by. */
	while (!list_empty(&f->led))
		request_answer(list_first(&f->led, struct request, link), res);
	flush_next(r, f);
	dp_file_unref(f);
}

int flush_by_call(struct dp_file *f, struct ros2_err *err)
{
	uint32_t turn = atomic_load(&f->turn), mine = atomic_fetch_add(&f->calls_begun, 1) + 1;
	bool alone = atomic_fetch_add(&f->calls, 1) == 0 && !(turn & 1);
	int rc = f->mount->engine->ops->fsync(f->file, err);

	alone = alone && atomic_load(&f->turn) == turn && atomic_load(&f->calls_begun) == mine;
	atomic_fetch_sub(&f->calls, 1);
	if (rc < 0 || alone || !f->mount->engine->ops->flushes_in_turn ||
	    DP_SWITCH(flushes_at_once))
		return rc;
	return ros2_err_set(
		err, -EBUSY,
		"another flush of this handle was under way: which of them was told what "
		"the disk does not keep is not known; ask again");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps engine_mem_ops: a reactor of it is a reactor of mem with a queue before it. */
#include "tests/dataplane/slow_engine.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/testing.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define HELD_MAX 1024

struct engine_ops slow_engine_ops;
static _Atomic bool is_shut, closes_shut;
static _Atomic uint32_t n_held, n_calls, n_closes, n_kept;

struct slow_reactor {
	struct engine_reactor *mem; /* owned */
	struct engine_io *held[HELD_MAX];
	uint32_t n;
};

static struct slow_reactor *slow(const struct engine_reactor *r)
{
	return (struct slow_reactor *)r;
}

static int slow_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                            struct engine_reactor **ret, struct ros2_err *err)
{
	struct slow_reactor *r = calloc(1, sizeof(*r));
	int rc = r ? engine_mem_ops.reactor_new(e, o, &r->mem, err) : -ENOMEM;

	if (rc < 0) {
		free(r);
		return rc;
	}
	*ret = (struct engine_reactor *)r;
	return 0;
}

static void slow_reactor_free(struct engine_reactor *r)
{
	engine_mem_ops.reactor_free(slow(r)->mem);
	free(r);
}

static int slow_event_fd(struct engine_reactor *r)
{
	return -1;
}

static int slow_submit(struct engine_reactor *r, struct engine_io *io)
{
	if (slow(r)->n == HELD_MAX)
		return -EAGAIN;
	slow(r)->held[slow(r)->n++] = io;
	atomic_fetch_add(&n_held, 1);
	return 0;
}

static int slow_kick(struct engine_reactor *r)
{
	return 0;
}

/* As many as fit. */
static void pass_on(struct slow_reactor *r)
{
	uint32_t first = MIN(atomic_load(&n_kept), r->n), n = first;

	while (n < r->n && engine_mem_ops.submit(r->mem, r->held[n]) == 0)
		n++;
	memmove(r->held + first, r->held + n, (r->n - n) * sizeof(struct engine_io *));
	r->n -= n - first;
	atomic_fetch_sub(&n_held, n - first);
}

static uint32_t slow_poll(struct engine_reactor *r, uint32_t max)
{
	if (atomic_load(&is_shut)) {
		/* time: it is the slow engine */
		usleep(100);
		return 0;
	}
	pass_on(slow(r));
	return engine_mem_ops.poll(slow(r)->mem, max);
}

static uint32_t slow_in_flight(const struct engine_reactor *r)
{
	return slow(r)->n + engine_mem_ops.in_flight(slow(r)->mem);
}

static uint64_t slow_copied(const struct engine_reactor *r)
{
	return engine_mem_ops.copied_bytes(slow(r)->mem);
}

static int slow_mkdir(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err)
{
	atomic_fetch_add(&n_calls, 1);
	while (atomic_load(&is_shut))
		/* poll: a switch that a test turns */
		usleep(1000);
	atomic_fetch_sub(&n_calls, 1);
	return engine_mem_ops.mkdir(ns, path, mode, err);
}

static void slow_close(struct engine_file *f)
{
	atomic_fetch_add(&n_closes, 1);
	while (atomic_load(&closes_shut))
		/* poll: a switch that a test turns */
		usleep(1000);
	atomic_fetch_sub(&n_closes, 1);
	engine_mem_ops.close(f);
}

void slow_engine_init(void)
{
	slow_engine_ops = engine_mem_ops;
	slow_engine_ops.type = "slow";
	slow_engine_ops.reactor_new = slow_reactor_new;
	slow_engine_ops.reactor_free = slow_reactor_free;
	slow_engine_ops.event_fd = slow_event_fd;
	slow_engine_ops.submit = slow_submit;
	slow_engine_ops.kick = slow_kick;
	slow_engine_ops.poll = slow_poll;
	slow_engine_ops.in_flight = slow_in_flight;
	slow_engine_ops.copied_bytes = slow_copied;
	slow_engine_ops.withdraw = NULL; /* behind the gate is the storage */
	slow_engine_ops.mkdir = slow_mkdir;
	slow_engine_ops.close = slow_close;
	atomic_store(&is_shut, false);
	atomic_store(&closes_shut, false);
	atomic_store(&n_kept, 0);
}

void slow_engine_keep(uint32_t n)
{
	atomic_store(&n_kept, n);
}

void slow_engine_shut(bool shut)
{
	atomic_store(&is_shut, shut);
}

static void wait_for(_Atomic uint32_t *n, uint32_t want)
{
	AWAIT(atomic_load(n) >= want);
	assert_int_equal(atomic_load(n), want);
}

void slow_engine_wait_held(uint32_t n)
{
	wait_for(&n_held, n);
}

void slow_engine_wait_calls(uint32_t n)
{
	wait_for(&n_calls, n);
}

void slow_engine_shut_closes(bool shut)
{
	atomic_store(&closes_shut, shut);
}

void slow_engine_wait_closes(uint32_t n)
{
	wait_for(&n_closes, n);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a listener refuses before a handler sees it, on its way to who records it (the loop). Any
 * thread adds; the polling thread posts, ten times a second at most. Bound: REFUSALS_MAX of them by
 * themselves between two posts, then one more per kind that only counts, with the last as a sample.
 * So a flood costs neither memory nor the loop more than that, and nothing is left uncounted.
 */
#include "common/clock.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define REFUSALS_MAX 56

struct entry {
	struct rpc_refusal r; /* strings: those beside it */
	char spiffe_id[ROS2_SPIFFE_MAX + 1], address[64], words[192];
};

struct batch {
	struct entry one[REFUSALS_MAX], rest[RPC_REFUSED_KINDS];
	size_t n;
	bool any;
};

struct rpc_refusals {
	atomic_int refs;
	pthread_mutex_t lock;
	/* guarded by lock */
	struct batch *now; /* owned */
	bool posted;
	/* loop thread, while posted */
	struct batch *out; /* owned */
};

const char *rpc_refused_to_str(enum rpc_refused why)
{
	static const char *const names[RPC_REFUSED_KINDS] = {
		[RPC_REFUSED_CONNECTIONS] = "max-connections",
		[RPC_REFUSED_CONNECTIONS_PER_SOURCE] = "max-connections-per-address",
		[RPC_REFUSED_HANDSHAKE] = "handshake",
		[RPC_REFUSED_IDENTITY] = "identity",
		[RPC_REFUSED_TRUST] = "trust",
		[RPC_REFUSED_METHOD] = "method",
		[RPC_REFUSED_VERSION] = "version",
		[RPC_REFUSED_MESSAGE] = "message",
		[RPC_REFUSED_LIMIT] = "limit",
		[RPC_REFUSED_FUTILE] = "futile-calls",
	};

	return (size_t)why < ARRAY_SIZE(names) ? names[why] : "unknown";
}

struct rpc_refusals *rpc_refusals_new(void)
{
	struct rpc_refusals *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	atomic_init(&f->refs, 1);
	pthread_mutex_init(&f->lock, NULL);
	f->now = calloc(1, sizeof(*f->now));
	f->out = calloc(1, sizeof(*f->out));
	if (f->now && f->out)
		return f;
	rpc_refusals_unref(f);
	return NULL;
}

struct rpc_refusals *rpc_refusals_ref(struct rpc_refusals *f)
{
	atomic_fetch_add(&f->refs, 1);
	return f;
}

void rpc_refusals_unref(struct rpc_refusals *f)
{
	if (!f || atomic_fetch_sub(&f->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&f->lock);
	free(f->now);
	free(f->out);
	free(f);
}

static void set(struct entry *e, const struct rpc_refusal *r)
{
	e->r.why = r->why;
	e->r.status = r->status;
	e->r.method = r->method;
	snprintf(e->spiffe_id, sizeof(e->spiffe_id), "%s", r->spiffe_id ? r->spiffe_id : "");
	snprintf(e->address, sizeof(e->address), "%s", r->address ? r->address : "");
	snprintf(e->words, sizeof(e->words), "%s", r->words ? r->words : "");
}

void rpc_refusals_add(struct rpc_refusals *f, const struct rpc_refusal *r)
{
	uint64_t now = clock_unix_ns();
	struct batch *b;
	struct entry *e;

	pthread_mutex_lock(&f->lock);
	b = f->now;
	b->any = true;
	e = b->n < REFUSALS_MAX ? &b->one[b->n++] : &b->rest[r->why];
	set(e, r);
	/* Counted together with others: nobody's in particular. */
	if (e == &b->rest[r->why])
		e->spiffe_id[0] = '\0';
	if (!e->r.count++)
		e->r.first_unix_ns = now;
	e->r.last_unix_ns = now;
	pthread_mutex_unlock(&f->lock);
}

bool rpc_refusals_take(struct rpc_refusals *f)
{
	struct batch *b;
	bool due;

	pthread_mutex_lock(&f->lock);
	due = f->now->any && !f->posted;
	if (due) {
		b = f->out;
		f->out = f->now;
		f->now = b;
		f->posted = true;
	}
	pthread_mutex_unlock(&f->lock);
	return due;
}

static void tell_one(struct entry *e, rpc_refused_fn fn, void *arg)
{
	if (!e->r.count || !fn)
		return;
	e->r.spiffe_id = e->spiffe_id;
	e->r.address = e->address;
	e->r.words = e->words;
	fn(arg, &e->r);
}

void rpc_refusals_tell(struct rpc_refusals *f, rpc_refused_fn fn, void *arg)
{
	struct batch *b = f->out;

	for (size_t i = 0; i < b->n; i++)
		tell_one(&b->one[i], fn, arg);
	for (size_t i = 0; i < RPC_REFUSED_KINDS; i++)
		tell_one(&b->rest[i], fn, arg);
	memset(b, 0, sizeof(*b));
	pthread_mutex_lock(&f->lock);
	f->posted = false;
	pthread_mutex_unlock(&f->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See conns_priv.h. Invariants: what is counted (n, uncalled, tally) is what the lists hold; who is
 * held is counted as that, and waits. A group is there while it has a connection or futile calls.
 */
#include "proto/rpc/conns_priv.h"
#include "common/clock.h"
#include <stdio.h>
#include <string.h>

/* ---- addresses and groups ---- */

static struct conn_source *find_source(const struct conns_table *t, const struct host_key *key)
{
	struct conn_source *s;

	HASH_FIND(hh, t->sources, key, sizeof(*key), s);
	return s;
}

static struct conn_source *source_get(struct conns_table *t, const struct host_key *key)
{
	struct conn_source *s = find_source(t, key);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = *key;
	list_init(&s->conns);
	HASH_ADD(hh, t->sources, key, sizeof(s->key), s);
	if (HASH_TOOK(hh, s))
		return s;
	free(s);
	return NULL;
}

static void source_put(struct conns_table *t, struct conn_source *s)
{
	if (s->n)
		return;
	HASH_DEL(t->sources, s);
	free(s);
}

static struct conn_owner *owner_get(struct conns_table *t, const char *name)
{
	struct conn_owner *o;

	HASH_FIND_STR(t->owners, name, o);
	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	snprintf(o->name, sizeof(o->name), "%s", name);
	HASH_ADD_STR(t->owners, name, o);
	if (HASH_TOOK(hh, o))
		return o;
	free(o);
	return NULL;
}

/* Of what became nothing, so many bytes; no more than there are. */
static void forgive(struct rpc_conn *k, uint64_t bytes)
{
	size_t n = (size_t)MIN(k->useless, bytes);

	k->useless -= n;
	if (k->owner)
		k->owner->useless -= n;
}

static void disown(struct conns_table *t, struct rpc_conn *k)
{
	struct conn_owner *o;

	forgive(k, SIZE_MAX);
	o = TAKE_PTR(k->owner);
	if (!o)
		return;
	o->busy -= k->calls > 0;
	o->refusals -= k->refusals;
	if (--o->n || o->futile_ns) /* else until conns_sweep */
		return;
	HASH_DEL(t->owners, o);
	free(o);
}

/* ---- connections ---- */

void conns_init(struct conns_table *t)
{
	*t = (struct conns_table){0};
	list_init(&t->waiting);
}

size_t conns_count(const struct conns_table *t)
{
	return HASH_COUNT(t->by_address);
}

size_t conns_count_source(const struct conns_table *t, const struct host_key *key)
{
	const struct conn_source *s = find_source(t, key);

	return s ? s->n : 0;
}

bool conns_add(struct conns_table *t, struct rpc_conn *k, const struct host_key *from)
{
	struct conn_source *s = source_get(t, from);

	if (!s)
		return false;
	HASH_ADD_STR(t->by_address, address, k);
	if (HASH_TOOK(hh, k))
		HASH_ADD(hh_fd, t->by_fd, fd, sizeof(k->fd), k);
	if (!HASH_TOOK(hh, k) || !HASH_TOOK(hh_fd, k)) { /* not counted is not taken */
		if (HASH_TOOK(hh, k))
			HASH_DEL(t->by_address, k);
		source_put(t, s);
		return false;
	}
	k->source = s;
	k->useless_ns = k->since_ns;
	list_init(&k->of_waiting);
	s->n++;
	s->uncalled += !k->called;
	t->uncalled += !k->called;
	list_add_tail(&s->conns, &k->of_source);
	return true;
}

void conns_remove(struct conns_table *t, struct rpc_conn *k)
{
	struct conn_source *s = TAKE_PTR(k->source);

	t->held -= k->held;
	list_del(&k->of_waiting);
	HASH_DEL(t->by_address, k);
	HASH_DELETE(hh_fd, t->by_fd, k);
	list_del(&k->of_source);
	s->n--;
	s->refusals -= k->refusals;
	s->uncalled -= !k->called;
	t->uncalled -= !k->called;
	source_put(t, s);
	disown(t, k);
	if (!k->calls)
		free(k);
}

struct rpc_conn *conns_find(const struct conns_table *t, const char *address)
{
	struct rpc_conn *k;

	HASH_FIND_STR(t->by_address, address, k);
	return k;
}

struct rpc_conn *conns_find_fd(const struct conns_table *t, int fd)
{
	struct rpc_conn *k;

	HASH_FIND(hh_fd, t->by_fd, &fd, sizeof(fd), k);
	return k;
}

static void own(struct conns_table *t, struct rpc_conn *k, const char *group)
{
	if (!group || (k->owner && !strcmp(k->owner->name, group)))
		return;
	disown(t, k);
	k->owner = owner_get(t, group);
	if (!k->owner)
		return;
	k->owner->n++;
	k->owner->busy += k->calls > 0;
	k->owner->refusals += k->refusals;
}

void conns_called(struct conns_table *t, struct rpc_conn *k, const char *group, uint64_t now_ns)
{
	if (!k->called) {
		k->called = true;
		k->source->uncalled--;
		t->uncalled--;
	}
	forgive(k, SIZE_MAX);
	own(t, k, group);
	if (!k->calls++ && k->owner)
		k->owner->busy++;
	k->since_ns = now_ns;
}

void conns_call_over(struct rpc_conn *k, uint64_t now_ns)
{
	k->since_ns = now_ns;
	if (--k->calls)
		return;
	forgive(k, SIZE_MAX); /* of what was asked of it something may still come */
	if (k->owner)
		k->owner->busy--;
	if (!k->source)
		free(k);
}

static void count_refusals(struct rpc_conn *k, int by)
{
	k->refusals += (uint32_t)by;
	if (k->source)
		k->source->refusals += (size_t)by;
	if (k->owner)
		k->owner->refusals += (size_t)by;
}

bool conns_refused(struct rpc_conn *k)
{
	count_refusals(k, 1);
	if (k->owner)
		return k->owner->refusals > CONNS_REFUSALS;
	return k->source && k->source->refusals > CONNS_REFUSALS;
}

void conns_refusal_over(struct rpc_conn *k, uint64_t now_ns)
{
	count_refusals(k, -1);
	conns_call_over(k, now_ns);
}

/* ---- what gRPC gets to read ---- */

static struct conn_reads *reads_of(struct conns_table *t, struct rpc_conn *k)
{
	struct conn_reads *r = k->owner ? &k->owner->reads : &k->source->reads;

	if (r->turn != t->turn)
		*r = (struct conn_reads){.turn = t->turn};
	return r;
}

/* gRPC reads on where it got less than it has room for, so only the second time that it is told
 * "nothing" in a row it is sure to have polled in between. */
static bool pauses(struct rpc_conn *k, size_t each)
{
	if (k->read < each)
		return false;
	if (k->refused++ < 2)
		return true;
	k->read = k->refused = 0;
	return false;
}

size_t conns_may_read(struct conns_table *t, struct rpc_conn *k, size_t each, bool *ret_again)
{
	const struct conn_reads *r = reads_of(t, k);
	size_t most;

	if (!k->called)
		each = MIN(each, CONNS_READ_UNCALLED);
	*ret_again = pauses(k, each);
	if (*ret_again)
		return 0;
	most = t->idle ? CONNS_READ_IDLE * each : each;
	if (r->n < most)
		return MIN(each - k->read, most - r->n);
	t->held += !k->held;
	k->held = true;
	if (list_empty(&k->of_waiting)) /* else it keeps its place */
		list_add_tail(&t->waiting, &k->of_waiting);
	return 0;
}

void conns_has_read(struct conns_table *t, struct rpc_conn *k, size_t n)
{
	reads_of(t, k)->n += n;
	k->seen = true;
	k->read += n;
	/* It goes on before it was let: by a call of its own it has come to be of another group. */
	t->held -= k->held;
	k->held = false;
	list_del(&k->of_waiting);
	k->useless += n;
	if (k->owner)
		k->owner->useless += n;
}

void conns_owes(struct conns_table *t, struct rpc_conn *k, size_t n)
{
	reads_of(t, k)->n += n;
	k->read += n;
}

void conns_message(struct rpc_conn *k)
{
	forgive(k, SIZE_MAX);
}

static bool over_useless(const struct rpc_conn *k, size_t message)
{
	return k->useless > CONNS_USELESS + (k->called ? message : 0) ||
	       (k->owner && k->owner->useless > CONNS_USELESS_GROUP);
}

bool conns_is_useless(struct rpc_conn *k, size_t message, uint64_t sent, uint64_t now_ns)
{
	uint64_t seconds = (now_ns - MIN(now_ns, k->useless_ns)) / NS_PER_S;

	if (!over_useless(k, message))
		return false;
	k->useless_ns += seconds * NS_PER_S;
	forgive(k, seconds * CONNS_USELESS_PER_S);
	forgive(k, (sent - MIN(sent, k->sent)) / CONNS_USELESS_SENT);
	k->sent = MAX(k->sent, sent);
	return over_useless(k, message);
}

bool conns_next_turn(struct conns_table *t, void (*go_on)(const struct rpc_conn *k))
{
	bool held = t->held;
	struct rpc_conn *k;

	t->turn++;
	if (!held)
		return false;
	list_for_each (&t->waiting, k, of_waiting) {
		if (k->held)
			go_on(k);
		k->held = false;
	}
	t->held = 0;
	return true;
}

/* ---- calls that come to nothing ---- */

/* A bucket (GCRA): one that is full gives CONNS_FUTILE at once. */
bool conns_futile(struct rpc_conn *k, uint64_t now_ns)
{
	uint64_t *at = k->owner ? &k->owner->futile_ns : &k->futile_ns;
	uint64_t each = NS_PER_S / CONNS_FUTILE_PER_S,
		 most = clock_add_ns(now_ns, CONNS_FUTILE * each);

	*at = clock_add_ns(MAX(*at, now_ns), each);
	if (*at <= most)
		return false;
	*at = most;
	return true;
}

void conns_sweep(struct conns_table *t, uint64_t now_ns)
{
	struct conn_owner *o, *tmp;

	HASH_ITER (hh, t->owners, o, tmp) {
		if (o->futile_ns <= now_ns)
			o->futile_ns = 0;
		if (o->n || o->futile_ns)
			continue;
		HASH_DEL(t->owners, o);
		free(o);
	}
}

bool conns_crowded(const struct conns_table *t, const struct rpc_conn *k, size_t places_of_source,
                   size_t places)
{
	size_t most_here = places_of_source - places_of_source / 4, here = 0;
	const struct rpc_conn *o;

	if (!k->owner || k->owner->busy <= most_here)
		return k->owner && k->owner->busy > places - places / 4;
	list_for_each (&k->source->conns, o, of_source)
		here += o->calls && o->owner == k->owner;
	return here > most_here || k->owner->busy > places - places / 4;
}

/* ---- who goes ---- */

static struct rpc_conn *first_of(const struct conns_table *t, const struct conn_source *only)
{
	return only ? list_first(&only->conns, struct rpc_conn, of_source) : t->by_address;
}

static struct rpc_conn *next_of(const struct rpc_conn *k, const struct conn_source *only)
{
	if (!only)
		return k->hh.next;
	return k->of_source.next == &only->conns
	               ? NULL
	               : list_entry(k->of_source.next, struct rpc_conn, of_source);
}

/* How many its group holds of those that are looked at; its address, where no group is known. */
static size_t held(const struct rpc_conn *k)
{
	return k->owner ? k->owner->tally : k->source->n;
}

static void tally(const struct conns_table *t, const struct conn_source *only)
{
	for (const struct rpc_conn *k = first_of(t, only); k; k = next_of(k, only))
		if (k->owner)
			k->owner->tally = 0;
	for (const struct rpc_conn *k = first_of(t, only); k; k = next_of(k, only))
		if (k->owner)
			k->owner->tally++;
}

/* Of two that have made no call, or of two idle ones, the first is worse. */
static bool worse(size_t crowd, const struct rpc_conn *k, size_t other_crowd,
                  const struct rpc_conn *other)
{
	return !other || crowd > other_crowd ||
	       (crowd == other_crowd && k->since_ns < other->since_ns);
}

static bool had_its_time(const struct conns_table *t, const struct conn_source *only,
                         const struct rpc_conn *k, size_t places, uint64_t now_ns)
{
	size_t uncalled = only ? only->uncalled : t->uncalled;

	return now_ns >= k->since_ns + CONNS_YOUNG_MS * NS_PER_MS ||
	       k->source->uncalled > CONNS_YOUNG_EACH || uncalled > places / 4;
}

static bool may_be_spared(const struct rpc_conn *k, uint64_t now_ns)
{
	return held(k) > CONNS_FEW || now_ns >= k->since_ns + CONNS_RECENT_MS * NS_PER_MS;
}

struct rpc_conn *conns_choose(struct conns_table *t, const struct host_key *from, size_t places,
                              uint64_t now_ns)
{
	const struct conn_source *only = from ? find_source(t, from) : NULL;
	struct rpc_conn *uncalled = NULL, *idle = NULL, *stranger = NULL;

	if (from && !only)
		return NULL;
	tally(t, only);
	for (struct rpc_conn *k = first_of(t, only); k; k = next_of(k, only)) {
		if (k->nameless || (k->calls && k->owner))
			continue;
		if (k->calls) {
			if (worse(k->source->n, k, stranger ? stranger->source->n : 0, stranger))
				stranger = k;
		} else if (!k->called) {
			if (worse(k->source->uncalled, k, uncalled ? uncalled->source->uncalled : 0,
			          uncalled))
				uncalled = k;
		} else if (may_be_spared(k, now_ns) &&
		           worse(held(k), k, idle ? held(idle) : 0, idle)) {
			idle = k;
		}
	}
	if (uncalled && had_its_time(t, only, uncalled, places, now_ns))
		return uncalled;
	if (idle)
		return idle;
	return stranger ? stranger : uncalled;
}

void conns_clear(struct conns_table *t)
{
	struct rpc_conn *k, *tmp;

	HASH_ITER (hh, t->by_address, k, tmp)
		conns_remove(t, k);
	conns_sweep(t, UINT64_MAX);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease table: an array of entries found by the low bits of the key, so a check looks at one
 * entry whatever a tenant sends. Must never tell a key of another connection from one that does not
 * exist. Invariants: (1) an entry is in the free ring XOR live (in its three lists) XOR ended with
 * holds > 0; (2) the counters of a tenant are the sums over its entries; (3) the generation of an
 * index only grows; an index whose generation is used up is never used again.
 */
#include "dataplane/lease.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/test_switches.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS    4096u /* per list kind; a power of two */
#define NONE       UINT32_MAX
#define INDEX_MASK (LEASE_MAX - 1)

enum by { BY_TENANT, BY_CONN, BY_GRANT, BY_COUNT };

struct entry {
	struct lease lease; /* first: a lease is its entry */
	struct {
		uint32_t prev, next;
	} link[BY_COUNT];
};

struct lease_table {
	/* immutable after new */
	uint32_t capacity, reactor;
	/* owner thread */
	void (*on_end)(void *arg, const struct lease *l); /* NULL = nobody wants to know */
	void *on_end_arg;
	uint64_t next_id;
	struct entry *entries; /* owned; capacity of them */
	uint32_t *ring;        /* owned; free indexes, the one freed longest ago first */
	uint32_t ring_head, ring_n, sweep_at;
	uint32_t head[BY_COUNT][BUCKETS];
	struct lease_counts all, tenant[LEASE_TENANTS_MAX];
};

const char *lease_state_to_str(enum lease_state s)
{
	static const char *const names[] = {"free", "live", "ended"};

	return (unsigned)s < ARRAY_SIZE(names) ? names[s] : "unknown";
}

static uint32_t index_of(const struct lease_table *t, const struct entry *e)
{
	return (uint32_t)(e - t->entries);
}

/* Fibonacci hashing: ids are counters, so the low bits alone would do, but connections carry a
 * generation above. */
static uint32_t bucket_of(uint64_t id)
{
	return (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 52) & (BUCKETS - 1);
}

static uint32_t bucket_by(const struct lease *l, enum by by)
{
	uint64_t id = by == BY_TENANT ? l->tenant : by == BY_CONN ? l->conn : l->grant;

	return bucket_of(id);
}

static void link_all(struct lease_table *t, struct entry *e)
{
	uint32_t index = index_of(t, e);

	for (enum by by = 0; by < BY_COUNT; by++) {
		uint32_t *head = &t->head[by][bucket_by(&e->lease, by)];

		e->link[by].prev = NONE;
		e->link[by].next = *head;
		if (*head != NONE)
			t->entries[*head].link[by].prev = index;
		*head = index;
	}
}

static void unlink_all(struct lease_table *t, struct entry *e)
{
	for (enum by by = 0; by < BY_COUNT; by++) {
		uint32_t prev = e->link[by].prev, next = e->link[by].next;

		if (prev == NONE)
			t->head[by][bucket_by(&e->lease, by)] = next;
		else
			t->entries[prev].link[by].next = next;
		if (next != NONE)
			t->entries[next].link[by].prev = prev;
	}
}

static void ring_push(struct lease_table *t, uint32_t index)
{
	assert(t->ring_n < t->capacity);
	t->ring[(t->ring_head + t->ring_n++) % t->capacity] = index;
}

static uint32_t ring_pop(struct lease_table *t)
{
	uint32_t index = t->ring[t->ring_head];

	t->ring_head = (t->ring_head + 1) % t->capacity;
	t->ring_n--;
	return index;
}

/* Fisher-Yates, so that the order of indexes tells a tenant nothing about its neighbours. */
static void ring_shuffle(struct lease_table *t)
{
	for (uint32_t i = 0; i < t->capacity; i++)
		ring_push(t, i);
	for (uint32_t i = t->capacity - 1; i > 0; i--) {
		uint32_t j = crypto_random_u32() % (i + 1), swap = t->ring[i];

		t->ring[i] = t->ring[j];
		t->ring[j] = swap;
	}
}

int lease_table_new(uint32_t capacity, uint32_t reactor, struct lease_table **ret)
{
	struct lease_table *t;

	if (capacity == 0 || capacity > LEASE_MAX)
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->entries = calloc(capacity, sizeof(*t->entries));
	t->ring = calloc(capacity, sizeof(*t->ring));
	if (!t->entries || !t->ring) {
		lease_table_free(t);
		return -ENOMEM;
	}
	t->capacity = capacity;
	t->reactor = reactor;
	memset(t->head, 0xff, sizeof(t->head));
	ring_shuffle(t);
	*ret = t;
	return 0;
}

void lease_table_free(struct lease_table *t)
{
	if (!t)
		return;
	free(t->entries);
	free(t->ring);
	free(t);
}

static uint32_t draw_key(uint32_t index, uint32_t last)
{
	uint32_t key;

	do {
		key = crypto_random_u32() << LEASE_INDEX_BITS | index;
	} while (key == 0 || key == last);
	return key;
}

static void count(struct lease_table *t, const struct lease *l, int live, int draining)
{
	struct lease_counts *both[] = {&t->all, &t->tenant[l->tenant]};

	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		both[i]->live += (uint32_t)live;
		both[i]->draining += (uint32_t)draining;
		if (live > 0)
			both[i]->live_bytes += l->length;
		else if (live < 0)
			both[i]->live_bytes -= l->length;
	}
}

static bool params_valid(const struct lease_params *p)
{
	uint64_t end;

	return ((p->length && !__builtin_add_overflow(p->base, p->length, &end)) ||
	        DP_SWITCH(no_lease_shape)) &&
	       (p->access & (LEASE_READ | LEASE_WRITE)) &&
	       !(p->access & ~(LEASE_READ | LEASE_WRITE)) && p->tenant < LEASE_TENANTS_MAX;
}

enum ros2_status lease_issue(struct lease_table *t, const struct lease_params *p,
                             const struct lease **ret)
{
	struct entry *e;
	uint32_t index;

	if (!params_valid(p))
		return ROS2_INVALID;
	if (t->ring_n == 0)
		return ROS2_LIMIT;
	index = ring_pop(t);
	e = &t->entries[index];
	e->lease = (struct lease){
		.lease_id = (uint64_t)(t->reactor + 1) << 48 | ++t->next_id,
		.base = p->base,
		.length = p->length,
		.deadline_ns = DP_SWITCH(no_expiry) ? UINT64_MAX : p->deadline_ns,
		.grant = p->grant,
		.tenant = p->tenant,
		.pd = p->pd,
		.conn = p->conn,
		.key = draw_key(index, e->lease.key),
		.generation = e->lease.generation + 1,
		.access = p->access,
		.state = LEASE_LIVE,
	};
	link_all(t, e);
	count(t, &e->lease, 1, 0);
	*ret = &e->lease;
	return ROS2_OK;
}

static void to_pool(struct lease_table *t, struct entry *e)
{
	e->lease.state = LEASE_FREE;
	if (e->lease.generation != UINT32_MAX)
		ring_push(t, index_of(t, e));
}

void lease_on_end(struct lease_table *t, void (*fn)(void *arg, const struct lease *l), void *arg)
{
	t->on_end = fn;
	t->on_end_arg = arg;
}

static void end(struct lease_table *t, struct entry *e, enum ros2_status why)
{
	unlink_all(t, e);
	e->lease.state = LEASE_ENDED;
	e->lease.end_status = why;
	count(t, &e->lease, -1, e->lease.holds ? 1 : 0);
	if (t->on_end)
		t->on_end(t->on_end_arg, &e->lease);
	if (!e->lease.holds)
		to_pool(t, e);
}

/* The entry that has this key on this connection, live or lately ended; NULL for anything else. */
static struct entry *find(struct lease_table *t, uint32_t key, uint64_t conn)
{
	uint32_t index = key & INDEX_MASK;
	struct entry *e;

	if (key == 0 || index >= t->capacity)
		return NULL;
	e = &t->entries[index];
	if (e->lease.key != key && !(DP_SWITCH(no_key_generation) && e->lease.key))
		return NULL;
	return e->lease.conn == conn || DP_SWITCH(no_key_owner) ? e : NULL;
}

/* OK only for a live lease within its time. */
static enum ros2_status standing(const struct lease *l, uint64_t now_ns)
{
	if (l->state == LEASE_LIVE)
		return now_ns < l->deadline_ns ? ROS2_OK : ROS2_LEASE_EXPIRED;
	if (l->end_status == ROS2_LEASE_EXPIRED)
		return ROS2_LEASE_EXPIRED;
	if (l->state == LEASE_ENDED && l->end_status == ROS2_REVOKED)
		return ROS2_REVOKED;
	return ROS2_BAD_KEY;
}

enum ros2_status lease_check(struct lease_table *t, uint32_t key, uint64_t conn, uint8_t access,
                             uint64_t addr, uint64_t len, uint64_t now_ns, struct lease **ret)
{
	struct entry *e = find(t, key, conn);
	enum ros2_status s;

	if (!e)
		return ROS2_BAD_KEY;
	s = standing(&e->lease, now_ns);
	if (s != ROS2_OK)
		return s;
	if (!access || ((access & ~e->lease.access) && !DP_SWITCH(no_access_check)))
		return ROS2_ACCESS;
	/* No sum of hostile numbers: the difference is taken only after addr >= base, so nothing
	 * wraps. */
	if ((!len || len > e->lease.length || addr < e->lease.base ||
	     addr - e->lease.base > e->lease.length - len) &&
	    !DP_SWITCH(no_range_check))
		return ROS2_OUT_OF_RANGE;
	*ret = &e->lease;
	return ROS2_OK;
}

void lease_hold(struct lease *l)
{
	assert(l->state == LEASE_LIVE);
	l->holds++;
}

void lease_unhold(struct lease_table *t, struct lease *l)
{
	assert(l->holds > 0);
	if (--l->holds || l->state != LEASE_ENDED)
		return;
	count(t, l, 0, -1);
	to_pool(t, (struct entry *)l);
}

enum ros2_status lease_look(struct lease_table *t, uint32_t key, uint64_t conn, uint64_t now_ns,
                            const struct lease **ret)
{
	struct entry *e = find(t, key, conn);
	enum ros2_status s = e ? standing(&e->lease, now_ns) : ROS2_BAD_KEY;

	if (s == ROS2_OK)
		*ret = &e->lease;
	return s;
}

enum ros2_status lease_renew(struct lease_table *t, uint32_t key, uint64_t conn, uint64_t now_ns,
                             uint64_t deadline_ns, const struct lease **ret)
{
	struct entry *e = find(t, key, conn);
	enum ros2_status s;

	if (!e)
		return ROS2_BAD_KEY;
	s = standing(&e->lease, now_ns);
	if (s != ROS2_OK)
		return s;
	e->lease.deadline_ns = MAX(e->lease.deadline_ns, deadline_ns);
	*ret = &e->lease;
	return ROS2_OK;
}

enum ros2_status lease_set_window(struct lease_table *t, const struct lease_window *w,
                                  uint64_t conn, uint64_t now_ns)
{
	struct entry *e = find(t, w->key, conn);
	enum ros2_status s = e ? standing(&e->lease, now_ns) : ROS2_BAD_KEY;

	if (s != ROS2_OK)
		return s;
	if (w->generation != e->lease.generation || w->base != e->lease.base ||
	    w->length != e->lease.length)
		return ROS2_OUT_OF_RANGE;
	if (e->lease.holds)
		return ROS2_BUSY;
	e->lease.window_key = w->window_key;
	e->lease.has_window = true;
	return ROS2_OK;
}

enum ros2_status lease_end(struct lease_table *t, uint32_t key, uint64_t conn, enum ros2_status why)
{
	struct entry *e = find(t, key, conn);

	if (!e || e->lease.state != LEASE_LIVE)
		return ROS2_BAD_KEY;
	end(t, e, why);
	return ROS2_OK;
}

static uint64_t id_by(const struct lease *l, enum by by)
{
	return by == BY_TENANT ? l->tenant : by == BY_CONN ? l->conn : l->grant;
}

static uint32_t end_by(struct lease_table *t, enum by by, uint64_t id, enum ros2_status why)
{
	uint32_t n = 0, next;

	for (uint32_t i = t->head[by][bucket_of(id)]; i != NONE; i = next) {
		struct entry *e = &t->entries[i];

		next = e->link[by].next;
		if (id_by(&e->lease, by) != id)
			continue;
		end(t, e, why);
		n++;
	}
	return n;
}

uint32_t lease_end_conn(struct lease_table *t, uint64_t conn, enum ros2_status why)
{
	return end_by(t, BY_CONN, conn, why);
}

uint32_t lease_end_grant(struct lease_table *t, uint64_t grant, enum ros2_status why)
{
	return end_by(t, BY_GRANT, grant, why);
}

uint32_t lease_end_tenant(struct lease_table *t, uint32_t tenant, enum ros2_status why)
{
	return end_by(t, BY_TENANT, tenant, why);
}

uint32_t lease_sweep(struct lease_table *t, uint64_t now_ns, uint32_t budget)
{
	uint32_t n = 0;

	for (uint32_t looked = 0; looked < MIN(budget, t->capacity); looked++) {
		struct entry *e = &t->entries[t->sweep_at];

		t->sweep_at = (t->sweep_at + 1) % t->capacity;
		if (e->lease.state != LEASE_LIVE || now_ns < e->lease.deadline_ns)
			continue;
		end(t, e, ROS2_LEASE_EXPIRED);
		n++;
	}
	return n;
}

void lease_counts(const struct lease_table *t, uint32_t tenant, struct lease_counts *ret)
{
	static const struct lease_counts none;

	*ret = tenant == UINT32_MAX         ? t->all
	       : tenant < LEASE_TENANTS_MAX ? t->tenant[tenant]
	                                    : none;
}

void lease_each(const struct lease_table *t, uint32_t tenant, uint32_t max,
                void (*fn)(void *arg, const struct lease *l), void *arg)
{
	struct lease_counts left;

	lease_counts(t, tenant, &left);
	max = MIN(max, left.live);
	for (uint32_t i = 0; i < t->capacity && max; i++) {
		const struct lease *l = &t->entries[i].lease;

		if (l->state != LEASE_LIVE || (tenant != UINT32_MAX && l->tenant != tenant))
			continue;
		fn(arg, l);
		max--;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What isolation rests on over tcp and shm, each property on fresh sessions of two tenants. A queue
 * pair is a connection here, a window a lease, and who may use a key is decided by the data plane's
 * own checks: this shows that they are there, through the socket that tenants use.
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/probe_soft.h"
#include "dataplane/probe_soft_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static uint64_t base_of(const struct ps_case *c)
{
	return c->p->way->base;
}

/* ---- keys ---- */

/* A refusal counts only if the same read works where it must. */
static bool works(struct ps_peer *c, uint32_t key, struct probe_finding *f)
{
	uint32_t n;
	enum ros2_status st = c->p->way->read(c, key, c->p->way->base, 4096, &n);

	if (st == ROS2_OK && n == 4096)
		return true;
	ps_found(f, PROBE_NOT_TRIED, "a leased read does not work: %s", ros2_status_to_str(st));
	return false;
}

static bool refused(struct ps_peer *c, uint32_t key, uint64_t address, uint32_t length,
                    const char *what, struct probe_finding *f)
{
	uint32_t n;
	enum ros2_status st = c->p->way->read(c, key, address, length, &n);

	if (st == ROS2_OK || n)
		ps_found(f, PROBE_NOT_ENFORCED, "%s: %u bytes came (%s)", what, n,
		         ros2_status_to_str(st));
	else if (st == ROS2_CLOSED)
		ps_found(f, PROBE_NOT_TRIED, "%s: the connection ended", what);
	else
		ps_found(f, PROBE_ENFORCED, "%s: %s", what, ros2_status_to_str(st));
	return f->result == PROBE_ENFORCED;
}

static bool registered(struct ps_peer *c, uint64_t base, uint64_t length, uint32_t access,
                       uint32_t *ret_key, struct probe_finding *f)
{
	enum ros2_status st = ps_register(c, base, length, access, ret_key);

	if (st == ROS2_OK)
		return true;
	ps_found(f, PROBE_NOT_TRIED, "a region cannot be registered: %s", ros2_status_to_str(st));
	return false;
}

static void case_pd_isolation(struct ps_case *c, struct probe_finding *f)
{
	const struct ps_way *way = c->p->way;

	if (!works(&c->a, c->key, f))
		return;
	way->mark(&c->a);
	refused(&c->b, c->key, base_of(c), 4096, "A's key on B's connection", f);
	if (way->more_pd_isolation && f->result != PROBE_NOT_TRIED)
		way->more_pd_isolation(c, f);
}

static void case_qp_bound_keys(struct ps_case *c, struct probe_finding *f)
{
	struct ps_peer second;

	if (!works(&c->a, c->key, f))
		return;
	if (ps_peer_open(c->p, &c->ta, &second)) {
		ps_found(f, PROBE_NOT_TRIED, "no second session of A");
		return;
	}
	refused(&second, c->key, base_of(c), 4096, "A's key on another connection of A", f);
	ps_peer_close(&second);
}

static void around(struct ps_case *c, uint32_t key, uint64_t length, const char *what,
                   struct probe_finding *f)
{
	const uint64_t at[] = {base_of(c) + length, base_of(c) + length - 2048, base_of(c) - 4096,
	                       base_of(c) - 2048, UINT64_MAX - 2048};

	if (!works(&c->a, key, f))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		if (!refused(&c->a, key, at[i], 4096, what, f))
			return;
	ps_found(f, PROBE_ENFORCED, "%s: refused behind, before, across both ends and past 2^64",
	         what);
}

static void case_mr_range(struct ps_case *c, struct probe_finding *f)
{
	around(c, c->key, PS_REGION_BYTES, "outside a region", f);
	if (c->p->way->more_mr_range && f->result == PROBE_ENFORCED)
		c->p->way->more_mr_range(c, f);
}

static void case_window_range(struct ps_case *c, struct probe_finding *f)
{
	uint32_t small;

	if (registered(&c->a, base_of(c), 8192, 3, &small, f))
		around(c, small, 8192, "outside a lease, inside A's larger region", f);
}

static void case_access_mask(struct ps_case *c, struct probe_finding *f)
{
	const struct ps_way *way = c->p->way;
	uint32_t for_reading, for_writing;
	struct wire_header h;

	if (!works(&c->a, c->key, f) || !registered(&c->a, base_of(c), 8192, 1, &for_reading, f) ||
	    !registered(&c->a, base_of(c), 8192, 2, &for_writing, f) ||
	    !refused(&c->a, for_reading, base_of(c), 4096, "writing under a key for reading", f))
		return;
	h = ps_header(&c->a, WIRE_WRITE, for_writing, base_of(c), 4096);
	if (way->ask(&c->a, &h) || way->answer(&c->a, &h))
		ps_found(f, PROBE_NOT_TRIED, "the connection ended");
	else if (h.opcode == WIRE_PULL || h.status == ROS2_OK)
		ps_found(f, PROBE_NOT_ENFORCED, "the agent reads under a key for writing");
	else
		ps_found(f, PROBE_ENFORCED, "writing under a key for reading, and the reverse: %s",
		         ros2_status_to_str((enum ros2_status)h.status));
}

static void case_invalidated_key(struct ps_case *c, struct probe_finding *f)
{
	if (!works(&c->a, c->key, f))
		return;
	if (ps_deregister(&c->a, c->key) != ROS2_OK)
		ps_found(f, PROBE_NOT_TRIED, "a region cannot be deregistered");
	else
		refused(&c->a, c->key, base_of(c), 4096, "key of a deregistered region", f);
}

static void case_rebound_key(struct ps_case *c, struct probe_finding *f)
{
	uint32_t key;

	if (!works(&c->a, c->key, f))
		return;
	if (ps_deregister(&c->a, c->key) != ROS2_OK) {
		ps_found(f, PROBE_NOT_TRIED, "a region cannot be deregistered");
		return;
	}
	if (registered(&c->a, base_of(c), PS_REGION_BYTES, 3, &key, f) && works(&c->a, key, f))
		refused(&c->a, c->key, base_of(c), 4096, "old key of a region registered again", f);
}

/* Addresses are the tenant's own: B may say any, and what it asks for comes to B alone. */
static void case_bind_own_pd(struct ps_case *c, struct probe_finding *f)
{
	uint32_t key, n;
	enum ros2_status st;

	if (!registered(&c->b, base_of(c), PS_REGION_BYTES, 3, &key, f))
		return;
	c->p->way->mark(&c->a);
	st = c->p->way->read(&c->b, key, base_of(c), 4096, &n);
	if (st != ROS2_OK || n != 4096)
		ps_found(f, PROBE_NOT_TRIED, "B's read does not work: %s", ros2_status_to_str(st));
	else if (c->p->way->came(&c->a, 20))
		ps_found(f, PROBE_NOT_ENFORCED, "B's lease of A's addresses: bytes came to A");
	else
		ps_found(f, PROBE_ENFORCED,
		         "B's lease of A's addresses: 4096 bytes came to B, none to A");
}

/* A new connection with the secret of the old one, and a new session with its key. */
static void case_qp_reuse(struct ps_case *c, struct probe_finding *f)
{
	struct ps_peer next;
	enum ros2_status st;
	int fd = -1;

	if (!works(&c->a, c->key, f))
		return;
	ps_peer_hang_up(&c->a);
	st = ps_hello(&c->a, &fd);
	if (st == ROS2_OK) {
		close(fd);
		ps_found(f, PROBE_NOT_ENFORCED, "a used secret connects again");
		return;
	}
	if (ps_peer_open(c->p, &c->ta, &next)) {
		ps_found(f, PROBE_NOT_TRIED, "no second session of A");
		return;
	}
	if (c->p->way->tells && c->p->way->tells(&next))
		ps_found(f, PROBE_NOT_ENFORCED, "%s", c->p->way->tells(&next));
	else if (refused(&next, c->key, base_of(c), 4096, "old key on the next connection", f))
		ps_found(f, PROBE_ENFORCED, "used secret: %s; old key on the next connection: dead",
		         ros2_status_to_str(st));
	ps_peer_close(&next);
}

static void case_foreign_invalidate(struct ps_case *c, struct probe_finding *f)
{
	enum ros2_status st;
	uint32_t n;

	if (!works(&c->a, c->key, f))
		return;
	st = ps_deregister(&c->b, c->key);
	if (st == ROS2_OK || c->p->way->read(&c->a, c->key, base_of(c), 4096, &n) != ROS2_OK)
		ps_found(f, PROBE_NOT_ENFORCED, "B deregisters A's key: %s; A's key is dead",
		         ros2_status_to_str(st));
	else
		ps_found(f, PROBE_ENFORCED, "B deregisters A's key: %s; A's key still works",
		         ros2_status_to_str(st));
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

#define KEY_SAMPLES 129u
#define KEY_BITS    6u /* of the 7 that so many samples can show */

/* What guessing by the commonest step from one key to the next leaves unknown. */
static void case_key_randomness(struct ps_case *c, struct probe_finding *f)
{
	uint32_t keys[KEY_SAMPLES], n, run = 0, most = 0, bits = 0;

	for (n = 0; n < KEY_SAMPLES; n++)
		if (!registered(&c->b, base_of(c), 4096, 3, &keys[n], f) ||
		    ps_deregister(&c->b, keys[n]) != ROS2_OK)
			return;
	for (uint32_t i = 0; i + 1 < n; i++)
		keys[i] = keys[i + 1] - keys[i];
	n--;
	qsort(keys, n, sizeof(*keys), by_number);
	for (uint32_t i = 0; i < n; i++) {
		run = i && keys[i] == keys[i - 1] ? run + 1 : 1;
		most = MAX(most, run);
	}
	while ((most << (bits + 1)) <= n)
		bits++;
	c->s->key_bits = bits;
	ps_found(f, bits >= KEY_BITS ? PROBE_ENFORCED : PROBE_NOT_ENFORCED,
	         "the commonest of %u steps between keys came %u times: %u bits unknown at least",
	         n, most, bits);
}

/* Before HELLO a connection may do nothing; and no length makes another's handle good. */
static void case_zero_length(struct ps_case *c, struct probe_finding *f)
{
	struct wire_header h = ps_header(&c->a, WIRE_READ, c->key, base_of(c), 0);
	uint8_t words[WIRE_WORDS_MAX];
	int fd = ps_dial(&c->a), r;
	enum ros2_status st;

	r = fd < 0 ? fd : ps_send(fd, &h, NULL, 0);
	if (!r)
		r = ps_recv(fd, &h, words, sizeof(words));
	if (fd >= 0)
		close(fd);
	if (fd < 0 || (r && r != -ECONNRESET)) {
		ps_found(f, PROBE_NOT_TRIED, "no connection to ask on: %s", strerror(-r));
		return;
	}
	if (!r && (h.opcode != WIRE_NAK || h.status == ROS2_OK)) {
		ps_found(f, PROBE_NOT_ENFORCED, "a read of length zero before HELLO was answered");
		return;
	}
	h = ps_header(&c->b, WIRE_READ, 0, base_of(c), 0);
	h.handle = c->a.handle ^ 1ull << 63;
	r = c->p->way->ask(&c->b, &h);
	if (!r)
		r = c->p->way->answer(&c->b, &h);
	st = r ? ROS2_CLOSED : (enum ros2_status)h.status;
	ps_found(f, st == ROS2_OK ? PROBE_NOT_ENFORCED : PROBE_ENFORCED,
	         "length zero before HELLO: refused; under no handle: %s (an own one needs no key)",
	         ros2_status_to_str(st));
	if (c->p->way->more_zero_length && f->result == PROBE_ENFORCED)
		c->p->way->more_zero_length(c, f);
}

static void case_dmabuf(struct ps_case *c, struct probe_finding *f)
{
	ps_found(f, PROBE_NOT_SUPPORTED, "%s", c->p->way->no_dmabuf);
}

/* ---- all of them ---- */

static void (*const cases[PROBE_PROPERTIES])(struct ps_case *c, struct probe_finding *f) = {
	[PROBE_PD_ISOLATION] = case_pd_isolation,
	[PROBE_QP_BOUND_KEYS] = case_qp_bound_keys,
	[PROBE_MR_RANGE] = case_mr_range,
	[PROBE_WINDOW_RANGE] = case_window_range,
	[PROBE_ACCESS_MASK] = case_access_mask,
	[PROBE_INVALIDATED_KEY] = case_invalidated_key,
	[PROBE_REBOUND_KEY] = case_rebound_key,
	[PROBE_BIND_OWN_PD] = case_bind_own_pd,
	[PROBE_QP_REUSE] = case_qp_reuse,
	[PROBE_FOREIGN_INVALIDATE] = case_foreign_invalidate,
	[PROBE_KEY_RANDOMNESS] = case_key_randomness,
	[PROBE_ZERO_LENGTH] = case_zero_length,
	[PROBE_REVOKE_COMPLETE] = ps_case_revoke_complete,
	[PROBE_CQ_SEPARATION] = ps_case_cq_separation,
	[PROBE_RQ_SEPARATION] = ps_case_rq_separation,
	[PROBE_DMABUF] = case_dmabuf,
};

static void try(struct ps *p, enum probe_property prop, struct probe_subject *s)
{
	struct ps_case c = {
		.p = p, .s = s, .a = {.fd = -1, .m = {.fd = -1}}, .b = {.fd = -1, .m = {.fd = -1}}};
	struct probe_finding *f = &s->findings[prop];
	int r = ps_tenant_add(p, "probe-a", 0, &c.ta);

	if (!r)
		r = ps_tenant_add(p, "probe-b", 0, &c.tb);
	if (!r)
		r = ps_peer_open(p, &c.ta, &c.a);
	if (!r)
		r = ps_peer_open(p, &c.tb, &c.b);
	if (r)
		ps_found(f, PROBE_NOT_TRIED, "no two tenants could be made: %s", strerror(-r));
	else if (registered(&c.a, base_of(&c), PS_REGION_BYTES, 3, &c.key, f))
		cases[prop](&c, f);
	ps_peer_close(&c.a);
	ps_peer_close(&c.b);
}

static int probe(const struct ps_way *way, struct probe_subject *ret, struct ros2_err *err)
{
	struct probe_subject s = {.tried_unix_ns = clock_unix_ns(),
	                          .device = "software",
	                          .firmware = ROS2_VERSION_STRING};
	struct utsname u;
	struct ps p;
	int r = ps_open(&p, way, err);

	if (r)
		return r;
	snprintf(s.name, sizeof(s.name), "%s", way->name);
	snprintf(s.transport, sizeof(s.transport), "%s", way->name);
	if (uname(&u) == 0)
		snprintf(s.kernel, sizeof(s.kernel), "%.*s", PROBE_NAME_MAX, u.release);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		try(&p, (enum probe_property)i, &s);
	ps_close(&p);
	*ret = s;
	return 0;
}

int probe_tcp(struct probe_subject *ret, struct ros2_err *err)
{
	return probe(&ps_way_tcp, ret, err);
}

int probe_shm(struct probe_subject *ret, struct ros2_err *err)
{
	return probe(&ps_way_shm, ret, err);
}

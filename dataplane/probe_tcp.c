/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What isolation rests on over tcp, each property on fresh sessions of two tenants. A queue pair is
 * a connection here, a window a lease, and who may use a key is decided by the data plane's own
 * checks: this shows that they are there, through the port that tenants use.
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/probe_tcp.h"
#include "dataplane/probe_tcp_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- keys ---- */

/* A refusal counts only if the same read works where it must. */
static bool works(struct pt_peer *c, uint32_t key, struct probe_finding *f)
{
	uint32_t n;
	enum ros2_status st = pt_read(c, key, PT_BASE, 4096, &n);

	if (st == ROS2_OK && n == 4096)
		return true;
	pt_found(f, PROBE_NOT_TRIED, "a leased read does not work: %s", ros2_status_to_str(st));
	return false;
}

static bool refused(struct pt_peer *c, uint32_t key, uint64_t address, uint32_t length,
                    const char *what, struct probe_finding *f)
{
	uint32_t n;
	enum ros2_status st = pt_read(c, key, address, length, &n);

	if (st == ROS2_OK || n)
		pt_found(f, PROBE_NOT_ENFORCED, "%s: %u bytes came (%s)", what, n,
		         ros2_status_to_str(st));
	else if (st == ROS2_CLOSED)
		pt_found(f, PROBE_NOT_TRIED, "%s: the connection ended", what);
	else
		pt_found(f, PROBE_ENFORCED, "%s: %s", what, ros2_status_to_str(st));
	return f->result == PROBE_ENFORCED;
}

static bool registered(struct pt_peer *c, uint64_t base, uint64_t length, uint32_t access,
                       uint32_t *ret_key, struct probe_finding *f)
{
	enum ros2_status st = pt_register(c, base, length, access, ret_key);

	if (st == ROS2_OK)
		return true;
	pt_found(f, PROBE_NOT_TRIED, "a region cannot be registered: %s", ros2_status_to_str(st));
	return false;
}

static void case_pd_isolation(struct pt_case *c, struct probe_finding *f)
{
	if (works(&c->a, c->key, f))
		refused(&c->b, c->key, PT_BASE, 4096, "A's key on B's connection", f);
}

static void case_qp_bound_keys(struct pt_case *c, struct probe_finding *f)
{
	struct pt_peer second;

	if (!works(&c->a, c->key, f))
		return;
	if (pt_peer_open(c->p, &c->ta, &second)) {
		pt_found(f, PROBE_NOT_TRIED, "no second session of A");
		return;
	}
	refused(&second, c->key, PT_BASE, 4096, "A's key on another connection of A", f);
	pt_peer_close(&second);
}

static void around(struct pt_case *c, uint32_t key, uint64_t length, const char *what,
                   struct probe_finding *f)
{
	const uint64_t at[] = {PT_BASE + length, PT_BASE + length - 2048, PT_BASE - 4096,
	                       PT_BASE - 2048, UINT64_MAX - 2048};

	if (!works(&c->a, key, f))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++)
		if (!refused(&c->a, key, at[i], 4096, what, f))
			return;
	pt_found(f, PROBE_ENFORCED, "%s: refused behind, before, across both ends and past 2^64",
	         what);
}

static void case_mr_range(struct pt_case *c, struct probe_finding *f)
{
	around(c, c->key, PT_REGION_BYTES, "outside a region", f);
}

static void case_window_range(struct pt_case *c, struct probe_finding *f)
{
	uint32_t small;

	if (registered(&c->a, PT_BASE, 8192, 3, &small, f))
		around(c, small, 8192, "outside a lease, inside A's larger region", f);
}

static void case_access_mask(struct pt_case *c, struct probe_finding *f)
{
	struct wire_header h;
	uint8_t words[WIRE_WORDS_MAX];
	uint32_t for_reading, for_writing;

	if (!works(&c->a, c->key, f) || !registered(&c->a, PT_BASE, 8192, 1, &for_reading, f) ||
	    !registered(&c->a, PT_BASE, 8192, 2, &for_writing, f) ||
	    !refused(&c->a, for_reading, PT_BASE, 4096, "writing under a key for reading", f))
		return;
	h = pt_header(&c->a, WIRE_WRITE, for_writing, PT_BASE, 4096);
	if (pt_send(c->a.fd, &h, NULL, 0) || pt_recv(c->a.fd, &h, words, sizeof(words)))
		pt_found(f, PROBE_NOT_TRIED, "the connection ended");
	else if (h.opcode == WIRE_PULL || h.status == ROS2_OK)
		pt_found(f, PROBE_NOT_ENFORCED, "the agent reads under a key for writing");
	else
		pt_found(f, PROBE_ENFORCED, "writing under a key for reading, and the reverse: %s",
		         ros2_status_to_str((enum ros2_status)h.status));
}

static void case_invalidated_key(struct pt_case *c, struct probe_finding *f)
{
	if (!works(&c->a, c->key, f))
		return;
	if (pt_deregister(&c->a, c->key) != ROS2_OK)
		pt_found(f, PROBE_NOT_TRIED, "a region cannot be deregistered");
	else
		refused(&c->a, c->key, PT_BASE, 4096, "key of a deregistered region", f);
}

static void case_rebound_key(struct pt_case *c, struct probe_finding *f)
{
	uint32_t key;

	if (!works(&c->a, c->key, f))
		return;
	if (pt_deregister(&c->a, c->key) != ROS2_OK) {
		pt_found(f, PROBE_NOT_TRIED, "a region cannot be deregistered");
		return;
	}
	if (registered(&c->a, PT_BASE, PT_REGION_BYTES, 3, &key, f) && works(&c->a, key, f))
		refused(&c->a, c->key, PT_BASE, 4096, "old key of a region registered again", f);
}

/* Addresses are the tenant's own: B may say any, and what it asks for comes to B alone. */
static void case_bind_own_pd(struct pt_case *c, struct probe_finding *f)
{
	uint32_t key, n;
	enum ros2_status st;

	if (!registered(&c->b, PT_BASE, PT_REGION_BYTES, 3, &key, f))
		return;
	st = pt_read(&c->b, key, PT_BASE, 4096, &n);
	if (st != ROS2_OK || n != 4096)
		pt_found(f, PROBE_NOT_TRIED, "B's read does not work: %s", ros2_status_to_str(st));
	else if (pt_drain(&c->a, 20))
		pt_found(f, PROBE_NOT_ENFORCED, "B's lease of A's addresses: bytes came to A");
	else
		pt_found(f, PROBE_ENFORCED,
		         "B's lease of A's addresses: 4096 bytes came to B, none to A");
}

/* A new connection with the secret of the old one, and a new session with its key. */
static void case_qp_reuse(struct pt_case *c, struct probe_finding *f)
{
	struct pt_peer next;
	enum ros2_status st;
	int fd = -1;

	if (!works(&c->a, c->key, f))
		return;
	close(c->a.fd);
	c->a.fd = -1;
	st = pt_hello(&c->a, &fd);
	if (st == ROS2_OK) {
		close(fd);
		pt_found(f, PROBE_NOT_ENFORCED, "a used secret connects again");
		return;
	}
	if (pt_peer_open(c->p, &c->ta, &next)) {
		pt_found(f, PROBE_NOT_TRIED, "no second session of A");
		return;
	}
	if (refused(&next, c->key, PT_BASE, 4096, "old key on the next connection", f))
		pt_found(f, PROBE_ENFORCED, "used secret: %s; old key on the next connection: dead",
		         ros2_status_to_str(st));
	pt_peer_close(&next);
}

static void case_foreign_invalidate(struct pt_case *c, struct probe_finding *f)
{
	enum ros2_status st;
	uint32_t n;

	if (!works(&c->a, c->key, f))
		return;
	st = pt_deregister(&c->b, c->key);
	if (st == ROS2_OK || pt_read(&c->a, c->key, PT_BASE, 4096, &n) != ROS2_OK)
		pt_found(f, PROBE_NOT_ENFORCED, "B deregisters A's key: %s; A's key is dead",
		         ros2_status_to_str(st));
	else
		pt_found(f, PROBE_ENFORCED, "B deregisters A's key: %s; A's key still works",
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
static void case_key_randomness(struct pt_case *c, struct probe_finding *f)
{
	uint32_t keys[KEY_SAMPLES], n, run = 0, most = 0, bits = 0;

	for (n = 0; n < KEY_SAMPLES; n++)
		if (!registered(&c->b, PT_BASE, 4096, 3, &keys[n], f) ||
		    pt_deregister(&c->b, keys[n]) != ROS2_OK)
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
	pt_found(f, bits >= KEY_BITS ? PROBE_ENFORCED : PROBE_NOT_ENFORCED,
	         "the commonest of %u steps between keys came %u times: %u bits unknown at least",
	         n, most, bits);
}

/* Before HELLO a connection may do nothing; and no length makes another's handle good. */
static void case_zero_length(struct pt_case *c, struct probe_finding *f)
{
	struct wire_header h = pt_header(&c->a, WIRE_READ, c->key, PT_BASE, 0);
	uint8_t words[WIRE_WORDS_MAX];
	int fd = pt_dial(&c->a), r;
	enum ros2_status st;

	r = fd < 0 ? fd : pt_send(fd, &h, NULL, 0);
	if (!r)
		r = pt_recv(fd, &h, words, sizeof(words));
	if (fd >= 0)
		close(fd);
	if (fd < 0 || (r && r != -ECONNRESET)) {
		pt_found(f, PROBE_NOT_TRIED, "no connection to ask on: %s", strerror(-r));
		return;
	}
	if (!r && (h.opcode != WIRE_NAK || h.status == ROS2_OK)) {
		pt_found(f, PROBE_NOT_ENFORCED, "a read of length zero before HELLO was answered");
		return;
	}
	h = pt_header(&c->b, WIRE_READ, 0, PT_BASE, 0);
	h.handle = c->a.handle ^ 1ull << 63;
	r = pt_send(c->b.fd, &h, NULL, 0);
	if (!r)
		r = pt_recv(c->b.fd, &h, words, sizeof(words));
	st = r ? ROS2_CLOSED : (enum ros2_status)h.status;
	pt_found(f, st == ROS2_OK ? PROBE_NOT_ENFORCED : PROBE_ENFORCED,
	         "length zero before HELLO: refused; under no handle: %s (an own one needs no key)",
	         ros2_status_to_str(st));
}

static void case_dmabuf(struct pt_case *c, struct probe_finding *f)
{
	pt_found(f, PROBE_NOT_SUPPORTED, "tcp carries bytes: it registers no memory of a device");
}

/* ---- all of them ---- */

static void (*const cases[PROBE_PROPERTIES])(struct pt_case *c, struct probe_finding *f) = {
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
	[PROBE_REVOKE_COMPLETE] = pt_case_revoke_complete,
	[PROBE_CQ_SEPARATION] = pt_case_cq_separation,
	[PROBE_RQ_SEPARATION] = pt_case_rq_separation,
	[PROBE_DMABUF] = case_dmabuf,
};

static void try(struct pt *p, enum probe_property prop, struct probe_subject *s)
{
	struct pt_case c = {.p = p, .s = s, .a = {.fd = -1}, .b = {.fd = -1}};
	struct probe_finding *f = &s->findings[prop];
	int r = pt_tenant_add(p, "probe-a", &c.ta);

	if (!r)
		r = pt_tenant_add(p, "probe-b", &c.tb);
	if (!r)
		r = pt_peer_open(p, &c.ta, &c.a);
	if (!r)
		r = pt_peer_open(p, &c.tb, &c.b);
	if (r)
		pt_found(f, PROBE_NOT_TRIED, "no two tenants could be made: %s", strerror(-r));
	else if (registered(&c.a, PT_BASE, PT_REGION_BYTES, 3, &c.key, f))
		cases[prop](&c, f);
	pt_peer_close(&c.a);
	pt_peer_close(&c.b);
}

int probe_tcp(struct probe_subject *ret, struct ros2_err *err)
{
	struct probe_subject s = {.tried_unix_ns = clock_unix_ns(),
	                          .name = "tcp",
	                          .transport = "tcp",
	                          .device = "software",
	                          .firmware = ROS2_VERSION_STRING};
	struct utsname u;
	struct pt p;
	int r = pt_open(&p, err);

	if (r)
		return r;
	if (uname(&u) == 0)
		snprintf(s.kernel, sizeof(s.kernel), "%.*s", PROBE_NAME_MAX, u.release);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		try(&p, (enum probe_property)i, &s);
	pt_close(&p);
	*ret = s;
	return 0;
}

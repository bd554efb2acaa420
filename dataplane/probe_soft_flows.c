/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's cases with many requests in flight: revokes, and a tenant that fills its queues. */
#include "common/util.h"
#include "dataplane/probe_soft_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHTS 100u

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* One transfer, cut off or, as a control, left alone. */
struct flight {
	uint64_t took_ns;
	uint64_t late; /* bytes that came after the receipt */
	bool cut;      /* it had not ended */
};

static int ask_for_all(struct ps_peer *peer, uint32_t *ret_key)
{
	uint64_t base = peer->p->way->base;
	int r = ps_register(peer, base, PS_FILE_BYTES, 3, ret_key) == ROS2_OK ? 0 : -EIO;

	for (unsigned i = 0; i < PS_FLIGHT_READS && !r; i++) {
		struct wire_header h = ps_header(peer, WIRE_READ, *ret_key, base, PS_FILE_BYTES);

		r = peer->p->way->ask(peer, &h);
	}
	return r;
}

/*
 * Sixteen reads of 1 MiB, the first of it awaited, then the revoke. What had come to the peer when
 * the receipt came was handed on before; what comes beyond that is late. Without @with_revoke it is
 * what was still to come.
 */
static int one_flight(struct ps *p, const struct ps_tenant *of, bool with_revoke,
                      struct flight *ret)
{
	const struct ps_way *way = p->way;
	struct ps_peer peer;
	uint32_t key;
	int r = ps_peer_open(p, of, &peer);

	if (r)
		return r;
	*ret = (struct flight){0};
	r = ask_for_all(&peer, &key);
	if (!r)
		r = way->await(&peer);
	if (!r && with_revoke)
		r = ps_revoke(&peer, &ret->took_ns);
	else if (!r)
		way->mark(&peer);
	if (!r && with_revoke && way->knock)
		way->knock(&peer, key);
	if (!r) {
		ret->late = way->came(&peer, with_revoke ? way->quiet_ms : PS_CONTROL_MS);
		ret->cut = way->had_come(&peer) + ret->late < PS_FLIGHT_BYTES;
	}
	ps_peer_close(&peer);
	return r;
}

static void tell_flights(struct ps_case *c, uint32_t ns[FLIGHTS], uint32_t cut,
                         struct probe_finding *f)
{
	qsort(ns, FLIGHTS, sizeof(*ns), by_number);
	c->s->revoke_p50_ns = ns[FLIGHTS / 2 - 1];
	c->s->revoke_p99_ns = ns[FLIGHTS * 99 / 100 - 1];
	ps_found(f, PROBE_ENFORCED, "0 bytes came after the revoke returned, %u MiB %s, %u times",
	         PS_FLIGHT_READS, c->p->way->in_flight, cut);
}

void ps_case_revoke_complete(struct ps_case *c, struct probe_finding *f)
{
	struct flight control = {0}, one;
	uint32_t ns[FLIGHTS], cut = 0, n = 0;
	uint64_t late = 0;
	struct ps_tenant of, slow;
	uint64_t rate = c->p->way->read_bytes_per_s;
	int r = ps_tenant_add(c->p, "probe-c", rate, &of);

	/* It must not be over before a slow machine has made its mark. */
	if (!r)
		r = ps_tenant_add(c->p, "probe-d", rate / PS_CONTROL_SLOWER, &slow);
	if (!r)
		r = one_flight(c->p, &slow, false, &control);
	for (; n < FLIGHTS && !r; n++) {
		r = one_flight(c->p, &of, true, &one);
		if (r)
			break;
		ns[n] = (uint32_t)MIN(one.took_ns, (uint64_t)UINT32_MAX);
		late += one.late;
		cut += one.cut;
	}
	if (late)
		ps_found(f, PROBE_NOT_ENFORCED, "%" PRIu64 " bytes came after %u revokes returned",
		         late, n);
	else if (r || cut < FLIGHTS / 2 || control.late < PS_FILE_BYTES)
		ps_found(f, PROBE_NOT_TRIED,
		         "%u of %u transfers were cut, %" PRIu64 " bytes without: %s", cut, FLIGHTS,
		         control.late, strerror(-r));
	else
		tell_flights(c, ns, cut, f);
}

/* A's reads while B's queues are full, or kept so; then the finding. */
static void a_goes_on(struct ps_case *c, enum wire_opcode op, bool takes, const char *what,
                      struct probe_finding *f)
{
	const struct ps_way *way = c->p->way;
	enum ros2_status st = ROS2_OK;
	uint32_t key, posted = 0, done = 0, n;

	if (ps_register(&c->b, way->base, PS_FILE_BYTES, 3, &key) != ROS2_OK) {
		ps_found(f, PROBE_NOT_TRIED, "no region of B's");
		return;
	}
	for (unsigned i = 0; i < 16 && st == ROS2_OK; i++) {
		posted += way->flood(&c->b, op, key, takes);
		st = way->read(&c->a, c->key, way->base, 4096, &n);
		done += st == ROS2_OK && n == 4096;
	}
	if (done == 16)
		ps_found(f, PROBE_ENFORCED, "B %s (%u requests); A's 16 reads went on", what,
		         posted);
	else
		ps_found(f, PROBE_NOT_ENFORCED, "B %s (%u requests); A's read %u: %s", what, posted,
		         done + 1, ros2_status_to_str(st));
}

/* B asks for more than it has room for, and takes nothing. */
void ps_case_cq_separation(struct ps_case *c, struct probe_finding *f)
{
	a_goes_on(c, WIRE_READ, false, "takes none of its answers", f);
}

/* What the agent receives of B is full: over tcp of writes whose data never comes. */
void ps_case_rq_separation(struct ps_case *c, struct probe_finding *f)
{
	a_goes_on(c, WIRE_WRITE, true, c->p->way->receives_full, f);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp probe's cases with many requests in flight: revokes, and a tenant that fills its queues.
 */
#include "common/util.h"
#include "dataplane/probe_tcp_priv.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHT_READS 16u
#define FLIGHTS      100u

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/*
 * Sixteen reads of 1 MiB, their first bytes awaited, then the revoke. What is in the peer's socket
 * when the receipt comes was handed to the kernel before; what comes beyond that is late. Without
 * @with_revoke, as a control, it is what the peer's socket had no room for. *ret_cut: the transfer
 * had not ended.
 */
static int one_flight(struct pt_case *c, bool with_revoke, struct pt_receipt *ret,
                      uint64_t *ret_late, bool *ret_cut)
{
	struct pollfd pfd = {.events = POLLIN};
	uint64_t came;
	struct pt_peer peer;
	uint32_t key;
	int r = pt_peer_open(c->p, &c->ta, &peer);

	if (r)
		return r;
	r = pt_register(&peer, PT_BASE, PT_FILE_BYTES, 3, &key) == ROS2_OK ? 0 : -EIO;
	for (unsigned i = 0; i < FLIGHT_READS && !r; i++) {
		struct wire_header h = pt_header(&peer, WIRE_READ, key, PT_BASE, PT_FILE_BYTES);

		r = pt_send(peer.fd, &h, NULL, 0);
	}
	pfd.fd = peer.fd;
	if (!r && poll(&pfd, 1, PT_WAIT_MS) <= 0)
		r = -ETIMEDOUT;
	*ret = (struct pt_receipt){0};
	if (!r && with_revoke)
		r = pt_revoke(&peer, ret);
	if (!r) {
		came = pt_drain(&peer, with_revoke ? PT_WAIT_MS : 100);
		*ret_late = came - MIN(came, (uint64_t)ret->queued_bytes);
		*ret_cut = came < (uint64_t)FLIGHT_READS * PT_FILE_BYTES;
	}
	pt_peer_close(&peer);
	return r;
}

void pt_case_revoke_complete(struct pt_case *c, struct probe_finding *f)
{
	uint64_t late = 0, control = 0, n_late;
	struct pt_receipt receipt;
	uint32_t ns[FLIGHTS], cut = 0, n = 0;
	bool was_cut;
	int r = one_flight(c, false, &receipt, &control, &was_cut);

	for (; n < FLIGHTS && !r; n++) {
		r = one_flight(c, true, &receipt, &n_late, &was_cut);
		if (r)
			break;
		ns[n] = (uint32_t)MIN(receipt.took_ns, (uint64_t)UINT32_MAX);
		late += n_late;
		cut += was_cut;
	}
	if (late) {
		pt_found(f, PROBE_NOT_ENFORCED, "%" PRIu64 " bytes came after %u revokes returned",
		         late, n);
	} else if (r || cut < FLIGHTS / 2 || control < PT_FILE_BYTES) {
		pt_found(f, PROBE_NOT_TRIED,
		         "%u of %u transfers were cut, %" PRIu64 " bytes without: %s", cut, FLIGHTS,
		         control, strerror(-r));
	} else {
		qsort(ns, FLIGHTS, sizeof(*ns), by_number);
		c->s->revoke_p50_ns = ns[FLIGHTS / 2 - 1];
		c->s->revoke_p99_ns = ns[FLIGHTS * 99 / 100 - 1];
		pt_found(f, PROBE_ENFORCED,
		         "0 bytes came after the revoke returned, %u MiB in flight, %u times",
		         FLIGHT_READS, cut);
	}
}

/* A's reads while B's queues are full; then the finding. */
static void a_goes_on(struct pt_case *c, const char *what, uint32_t posted, struct probe_finding *f)
{
	enum ros2_status st = ROS2_OK;
	uint32_t done = 0, n;

	for (unsigned i = 0; i < 16 && st == ROS2_OK; i++) {
		st = pt_read(&c->a, c->key, PT_BASE, 4096, &n);
		done += st == ROS2_OK && n == 4096;
	}
	if (done == 16)
		pt_found(f, PROBE_ENFORCED, "B %s (%u requests); A's 16 reads went on", what,
		         posted);
	else
		pt_found(f, PROBE_NOT_ENFORCED, "B %s (%u requests); A's read %u: %s", what, posted,
		         done + 1, ros2_status_to_str(st));
}

static uint32_t post_all(struct pt_case *c, enum wire_opcode op, uint32_t key, uint32_t length)
{
	uint32_t posted = 0;

	while (posted < c->b.credits) {
		struct wire_header h = pt_header(&c->b, op, key, PT_BASE, length);

		if (pt_send(c->b.fd, &h, NULL, 0))
			break;
		posted++;
	}
	return posted;
}

/* B asks for more than its socket holds, and takes nothing. */
void pt_case_cq_separation(struct pt_case *c, struct probe_finding *f)
{
	uint32_t key, posted;

	if (pt_register(&c->b, PT_BASE, PT_FILE_BYTES, 3, &key) != ROS2_OK) {
		pt_found(f, PROBE_NOT_TRIED, "no region of B's");
		return;
	}
	posted = post_all(c, WIRE_READ, key, PT_FILE_BYTES);
	a_goes_on(c, "takes none of its answers", posted, f);
}

/* B's writes hold what the agent receives them in, and their data never comes. */
void pt_case_rq_separation(struct pt_case *c, struct probe_finding *f)
{
	uint32_t key, posted;

	if (pt_register(&c->b, PT_BASE, PT_FILE_BYTES, 3, &key) != ROS2_OK) {
		pt_found(f, PROBE_NOT_TRIED, "no region of B's");
		return;
	}
	posted = post_all(c, WIRE_WRITE, key, PT_FILE_BYTES);
	a_goes_on(c, "never sends the data it was asked for", posted, f);
}

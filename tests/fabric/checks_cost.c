// SPDX-License-Identifier: Apache-2.0
/*
 * What the face costs per work request, in ns of this machine: for each kind, the checks and the
 * queueing alone, and with the accounting of its end (a flush and a poll against the stub, less
 * what the stub itself costs is not known, so that column is an upper bound). Not a test: run it
 * from a release build (preset guest) on an idle machine.
 */
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include "common/clock.h"
#include "common/util.h"

#define ROUNDS 2000
#define BATCH  32

/* VERBS_*: what the verbs transport queues for a request of a tenant: its payload by a WRITE or a
 * READ, its COMPLETE by a SEND. */
enum kind { SENDS, WRITES, READS, VERBS_READ, VERBS_WRITE, ROTATIONS, KINDS };
static const char *const names[KINDS] = {"fabric-send",         "fabric-write",
                                         "fabric-read",         "verbs-read-request",
                                         "verbs-write-request", "fabric-rotate-key"};

static void queue_one(struct world *w, enum kind k, struct fabric_slot *slot,
                      struct fabric_window **win)
{
	struct fabric_part part = {.region = slot->region, .length = 4096};
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};
	struct fabric_bind b = {.region = slot->region,
	                        .length = 4096,
	                        .access = FABRIC_READ,
	                        .flags = FABRIC_QUIET};
	uint32_t key;
	int r;

	if (k != ROTATIONS) {
		r = k == WRITES || k == VERBS_READ   ? fabric_write(w->qp[PEER], &wr)
		    : k == READS || k == VERBS_WRITE ? fabric_read(w->qp[PEER], &wr)
		                                     : fabric_send(w->qp[PEER], &wr);
		part.length = 64;
		if (r == 0 && (k == VERBS_READ || k == VERBS_WRITE))
			r = fabric_send(w->qp[PEER], &wr);
	} else {
		r = fabric_window_revoke(*win, 1, NULL, NULL);
		if (r == 0)
			r = fabric_window_bind(w->qp[OURS], &b, win, &key);
	}
	assert_int_equal(r, 0);
}

/* ns for one, the best of all rounds: what disturbs makes it only longer. */
static void measure(enum kind k, double *ret_queue, double *ret_all)
{
	uint32_t batch = k == ROTATIONS ? 1 : BATCH;
	int side = k == ROTATIONS ? OURS : PEER;
	struct fabric_completion c[64];
	struct fabric_window *win;
	struct fabric_slot slot;
	struct world w;
	uint32_t key;

	stub_reset();
	world_open(&w);
	slot = world_slot(&w, side, 4096);
	if (k == ROTATIONS)
		win = world_bind(&w, &slot, FABRIC_READ, &key);
	*ret_queue = *ret_all = 1e9;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = clock_monotonic_ns(), queued;

		for (uint32_t n = 0; n < batch; n++)
			queue_one(&w, k, &slot, &win);
		queued = clock_monotonic_ns();
		/* the stub ends them well without looking */
		if (k != ROTATIONS)
			stub_hold(STUB_ALL);
		assert_int_equal(fabric_qp_flush(w.qp[side], 1), 0);
		if (k != ROTATIONS)
			stub_end_held();
		(void)fabric_set_poll(w.set[side], c, 64);
		*ret_queue = MIN(*ret_queue, (double)(queued - start) / batch);
		*ret_all = MIN(*ret_all, (double)(clock_monotonic_ns() - start) / batch);
	}
	world_close(&w);
}

/* All, or the one that is named (under a profiler). */
int main(int argc, char **argv)
{
	for (int k = 0; k < KINDS; k++) {
		double queue, all;

		if (argc > 1 && strcmp(argv[1], names[k]))
			continue;
		measure((enum kind)k, &queue, &all);
		printf("%-22s %8.1f ns checked and queued %8.1f ns with its end, and the stub\n",
		       names[k], queue, all);
	}
	return 0;
}

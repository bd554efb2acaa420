/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant uses up: receives, completions, retries, accesses of no length, memory and objects
 * of the device. The neighbour A must not notice. Without defence the agent shares what the attack
 * is at: receive queue, completion queue, one budget for all.
 */
#include "tests/attack/verbs_stage.h"
#include "common/clock.h"
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RECVS 16u

static int begin(struct attack_try *t, struct stage *s, const struct stage_opts *o)
{
	int r = stage_open(s, t->defended, o);

	if (r)
		attack_seen(t, "the stage: %s %s", raw_end_str(r), s->err.msg);
	return r;
}

/* Does a message of A's arrive, and does the agent get to know of it? */
static bool a_is_heard(struct stage *s)
{
	uint64_t until = clock_monotonic_ns() + 2 * NS_PER_S;
	uint32_t heard = 0;

	if (raw_do(&s->peer[A], IBV_WR_SEND, 0, 8, 0) != IBV_WC_SUCCESS)
		return false;
	while (!(heard = stage_takes(s, A)) && clock_monotonic_ns() < until)
		;
	return heard;
}

/* Messages until one is not taken; how many were. */
static uint32_t b_sends(struct stage *s, uint32_t most, int *ret_end)
{
	uint32_t n = 0;

	for (*ret_end = 0; n < most && *ret_end == 0; n += *ret_end == 0)
		*ret_end = raw_do(&s->peer[B], IBV_WR_SEND, 0, 8, 0);
	return n;
}

/* B sends until the receives are used up; the agent does not post new ones as fast. */
static int receives(struct attack_try *t)
{
	static const struct stage_opts o = {.recvs = RECVS, .shared_srq = RECVS};
	struct stage s;
	int r = begin(t, &s, &o), end;
	uint32_t n;

	if (!r && !a_is_heard(&s)) {
		attack_seen(t, "A is not heard before the attack");
		r = -EIO;
	}
	if (!r) {
		n = b_sends(&s, 4 * RECVS, &end);
		t->worked = !a_is_heard(&s);
		attack_seen(t, "%u messages of B's were taken, the next: %s; then A's: %s", n,
		            raw_end_str(end), t->worked ? "NOT taken" : "taken");
	}
	stage_close(&s);
	return r;
}

/* B's messages end in a completion queue that nobody empties at the moment. */
static int completions(struct attack_try *t)
{
	static const struct stage_opts o = {.recvs = RECVS, .shared_cq = 7};
	struct stage s;
	int r = begin(t, &s, &o), end;
	uint32_t n;

	if (!r && !a_is_heard(&s)) {
		attack_seen(t, "A is not heard before the attack");
		r = -EIO;
	}
	if (!r) {
		n = b_sends(&s, 4 * RECVS, &end);
		/* twice: the first may meet the last free place */
		t->worked = !a_is_heard(&s);
		t->worked = !a_is_heard(&s) || t->worked;
		attack_seen(t, "%u completions of B's were not fetched, then: %s; A's messages: %s",
		            n, raw_end_str(end), t->worked ? "lost" : "taken and told");
	}
	stage_close(&s);
	return r;
}

#define ZEROES 2000u

/* Towards tenants the agent takes no remote operation; these move no byte that a counter sees. */
static int zeroes(struct attack_try *t)
{
	static const struct stage_opts o = {.recvs = 4, .closed = true};
	struct stage s;
	int r = begin(t, &s, &o), end = 0;
	uint32_t n = 0;

	if (!r && !a_is_heard(&s)) {
		attack_seen(t, "A is not heard before the attack");
		r = -EIO;
	}
	for (; !r && n < ZEROES && end == 0; n += end == 0)
		end = raw_do(&s.peer[B], IBV_WR_RDMA_WRITE, 0x1000, 0, 0x1234 + n);
	if (!r) {
		t->worked = n > 0;
		t->neighbour_harmed = !a_is_heard(&s);
		attack_seen(t, "%u WRITEs of no length with any key were taken, then: %s", n,
		            n < ZEROES ? raw_end_str(end) : "the test ended it");
	}
	stage_close(&s);
	return r;
}

#define STUCK_MS 8000

/* B posts no receive and asks for long pauses: what the agent has sent stays the device's. */
static int not_ready(struct attack_try *t)
{
	static const struct stage_opts o = {
		.recvs = 4, .no_peer_recvs = true, .rnr_timer = 30}; /* 327.68 ms */
	struct stage s;
	int r = begin(t, &s, &o), end;
	uint64_t began = clock_monotonic_ns();

	if (!r) {
		end = stage_send(&s, A, STUCK_MS);
		if (end) {
			attack_seen(t, "a message to A: %s", raw_end_str(end));
			r = -EIO;
		}
	}
	if (!r) {
		began = clock_monotonic_ns();
		end = stage_send(&s, B, STUCK_MS);
		t->worked = end == -ETIMEDOUT;
		t->neighbour_harmed = !a_is_heard(&s);
		attack_seen(t, "a message to B, who has no receive: %s after %u ms%s",
		            t->worked ? "still the device's" : raw_end_str(end),
		            (unsigned)((clock_monotonic_ns() - began) / NS_PER_MS),
		            t->worked ? "" : " (emulated), and its slot came back");
	}
	stage_close(&s);
	return r;
}

/* ---- one budget for all ---- */

#define BUDGET_BYTES (64u << 20)
#define PIECE_BYTES  (1u << 20)
#define PIECES       (2 * BUDGET_BYTES / PIECE_BYTES)

struct grabbed {
	void *mem;
	struct fabric_region *fab[PIECES];
	struct ibv_mr *bare[PIECES];
	uint32_t n;
};

/* A registration of @who's, as each agent would make it. */
static int grab(struct stage *s, enum who who, struct grabbed *g)
{
	uint8_t *at = (uint8_t *)g->mem + (size_t)g->n * PIECE_BYTES;
	struct fabric_region_opts o = {.addr = at, .length = PIECE_BYTES, .bindable = true};
	int r = 0;

	if (s->defended)
		r = fabric_region_new(s->pd[who], &o, &g->fab[g->n], &s->err);
	else if (!(g->bare[g->n] = ibv_reg_mr(s->agent[A].pd, at, PIECE_BYTES, RAW_ALL)))
		r = -errno;
	g->n += r == 0;
	return r;
}

static void ungrab(struct grabbed *g)
{
	for (uint32_t i = 0; i < g->n; i++) {
		fabric_region_free(g->fab[i]);
		if (g->bare[i])
			ibv_dereg_mr(g->bare[i]);
	}
}

/* Without CAP_IPC_LOCK the limit on locked memory is real. */
static int limit(bool on)
{
	static struct rlimit before;
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];
	struct rlimit now = {.rlim_cur = BUDGET_BYTES, .rlim_max = RLIM_INFINITY};
	const uint32_t bit = 1u << CAP_IPC_LOCK;

	if (on && getrlimit(RLIMIT_MEMLOCK, &before))
		return -errno;
	now.rlim_max = before.rlim_max < BUDGET_BYTES ? BUDGET_BYTES : before.rlim_max;
	if (setrlimit(RLIMIT_MEMLOCK, on ? &now : &before) || syscall(SYS_capget, &h, d))
		return -errno;
	d[0].effective = on ? d[0].effective & ~bit : d[0].effective | bit;
	return syscall(SYS_capset, &h, d) ? -errno : 0;
}

static int exhaustion(struct attack_try *t)
{
	static const struct stage_opts o;
	static struct grabbed g;
	struct stage s;
	int r = begin(t, &s, &o), b = 0, a;
	uint32_t of_b;

	g = (struct grabbed){.mem = aligned_alloc(4096, (size_t)PIECES * PIECE_BYTES)};
	if (!r)
		r = g.mem ? limit(true) : -ENOMEM;
	while (!r && b == 0 && g.n < PIECES - 1)
		b = grab(&s, B, &g);
	of_b = g.n;
	if (!r) {
		a = grab(&s, A, &g);
		t->worked = a < 0;
		attack_seen(t, "B pins %u MiB of the %u that may be, then: %s; A's next: %s", of_b,
		            BUDGET_BYTES >> 20, raw_end_str(b), a ? raw_end_str(a) : "granted");
		r = limit(false);
	}
	ungrab(&g);
	free(g.mem);
	stage_close(&s);
	return r;
}

/* ---- one device for all ---- */

#define DEVICE_OBJECTS 300u /* more than the product lets one tenant have */
#define CGROUP         "/run/attack-cgroup"

/* What soft-RoCE has is a million of each; a NIC has thousands. So the kernel is told that this
 * process, which is the agent, has so many objects of the device from here on: its rdma controller
 * counts queue pairs, windows, regions and queues alike. */
static int device_is_small(bool on)
{
	static const char small[] =
		"mkdir -p " CGROUP " && mount -t cgroup2 none " CGROUP " && echo +rdma >" CGROUP
		"/cgroup.subtree_control && mkdir " CGROUP "/agent";
	char command[160];

	if (on && system(small)) /* fixed words only */
		return -EOPNOTSUPP;
	if (on)
		snprintf(command, sizeof(command),
		         "echo rxe0 hca_object=%u >" CGROUP "/agent/rdma.max && "
		         "echo %d >" CGROUP "/agent/cgroup.procs",
		         DEVICE_OBJECTS, getpid());
	else
		snprintf(command, sizeof(command),
		         "echo %d >" CGROUP "/cgroup.procs && echo $$ >" CGROUP
		         "/cgroup.procs && rmdir " CGROUP "/agent && umount " CGROUP,
		         getpid());
	return system(command) ? -EOPNOTSUPP : 0;
}

/* What B gets of it: queue pairs with windows, or windows. */
struct taken {
	struct fabric_qp *qp[DEVICE_OBJECTS];
	struct ibv_mw *mw[DEVICE_OBJECTS];
	uint32_t n, windows;
};

static int take_objects(struct stage *s, struct taken *k)
{
	struct fabric_qp_opts q = {.send_depth = 1,
	                           .recv_depth = 1,
	                           .windows = 16,
	                           .reads_in = 1,
	                           .remote_access = FABRIC_READ};
	int r = 0;

	for (; k->n < DEVICE_OBJECTS && !r; k->n += r == 0) {
		errno = 0;
		if (s->defended)
			r = fabric_qp_new(s->set[B], &q, &k->qp[k->n], &s->err);
		else if (!(k->mw[k->n] = ibv_alloc_mw(s->agent[A].pd, IBV_MW_TYPE_2)))
			r = -(errno ? errno : ENOMEM);
		k->windows += r ? 0 : s->defended ? q.windows : 1;
	}
	return r;
}

static void give_objects(struct taken *k)
{
	for (uint32_t i = 0; i < k->n; i++) {
		fabric_qp_free(k->qp[i]);
		if (k->mw[i])
			ibv_dealloc_mw(k->mw[i]);
	}
}

/* A's next queue pair, as each agent makes it. */
static int next_of_a(struct stage *s)
{
	struct fabric_qp_opts q = {.send_depth = 1, .recv_depth = 1};
	struct fabric_qp *qp;
	struct raw_end e;
	struct raw_opts o = {.pd = s->agent[A].pd};
	int r;

	if (s->defended) {
		r = fabric_qp_new(s->set[A], &q, &qp, &s->err);
		if (!r)
			fabric_qp_free(qp);
		return r;
	}
	r = raw_end_open(&s->raw, &o, &e);
	if (!r)
		raw_end_close(&e);
	return r;
}

/* Until nothing is given any more: with the tenant's own budget that is soon, without it is when
 * the device has nothing left, and then A gets nothing, either. */
static int objects(struct attack_try *t)
{
	static const struct stage_opts o;
	static struct taken k;
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o), b, a;

	k = (struct taken){0};
	if (!r) {
		r = device_is_small(true);
		if (r)
			attack_seen(t, "this kernel has no rdma cgroup");
	}
	if (!r) {
		b = take_objects(&s, &k);
		a = next_of_a(&s);
		t->worked = a < 0;
		t->neighbour_harmed = stage_lend(&s, A, 8192, true, &l) || !stage_serves(&s, &l);
		attack_seen(t, "B holds %u windows, then: %s; A's next queue pair: %s", k.windows,
		            b ? raw_end_str(b) : "the test ended it",
		            a ? raw_end_str(a) : "granted");
		give_objects(&k);
		r = device_is_small(false);
	}
	stage_close(&s);
	return r;
}

const struct attack attacks_floods[] = {
	{"shared_receive_queue_starvation", "shared SRQ starvation", "IBA vol. 1, chapter 10",
         "no shared receive queue: receives of its own for each connection", receives},
	{"shared_completion_queue_overflow", "shared CQ overflow", "IBA vol. 1, 11.6.3",
         "a CQ for each tenant and reactor, as deep as all its queue pairs", completions},
	{"zero_byte_flood", "zero-byte flood", "IBA vol. 1, C9-88",
         "tenant-facing queue pairs take no remote operation (flags 0, verified)", zeroes},
	{"rnr_flood", "RNR flood", "Husky (NSDI 2023), exceptions",
         "3 RNR retries, then the tenant's own queue pair ends", not_ready},
	{"memory_exhaustion", "memory registrations without end", "ReDMArk (USENIX Security 2021)",
         "pinned bytes capped per tenant", exhaustion},
	{"object_exhaustion", "queue pairs and windows without end",
         "ReDMArk (USENIX Security 2021)", "queue pairs and windows capped per tenant", objects},
};
const unsigned n_attacks_floods = ARRAY_SIZE(attacks_floods);

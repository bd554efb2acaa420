// SPDX-License-Identifier: Apache-2.0
/*
 * What a key for each command costs, counted: nvmf_rdma_cost [depth] [rounds] [only]. READs of
 * 4 KiB from Linux nvmet-rdma on soft-RoCE (tests/nvmf/guest_rdma), in turns under standing keys
 * and under a key for each, and beside them as many bare INVALIDATE + BIND on a queue pair of their
 * own, one doorbell for @depth pairs, slept for as the queue does. The fourth kind, the control,
 * rotates with a doorbell for each command: at depth 16 that must be too much. Where the guest's
 * clock is the number of instructions (`run --icount`) times are a verdict, too: what everything in
 * the guest, target and kernel too, executes. Otherwise counts alone are. Linked without the wait
 * of fabric/grace.c, which no hardware has.
 */
#include "tests/nvmf/rdma_verbs_rig.h"
#include "tests/bench/steady/count_calls.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/fabric/fabric_conn.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#define PER_ROUND  256u
#define DEPTH_MAX  16u
#define ROUNDS_MAX 1000u
#define ADDED_MAX  1.5 /* times the time of a bare INVALIDATE + BIND: the bar */

/* ---- what is counted ---- */

enum count {
	REQUESTS,  /* work requests */
	DOORBELLS, /* calls that handed some on to be sent: a system call each */
	RECEIVES,  /* ... receives: none on soft-RoCE */
	BINDS,
	INVALIDATES,
	CQES,
	WAKES,
	CHANNEL, /* looks at the completion channel */
	ARMS,
	CM, /* looks at the connection manager */
	TIMERS,
	POLLS,
	ALLOCATED, /* by our own code */
	LOCKED,
	SLEEPS, /* of the thread */
	PREEMPTED,
	COUNTS
};
static const char *const count_names[COUNTS] = {
	"work requests", "send doorbells", "receive doorbells",  "BINDs",
	"LOCAL_INVs",    "CQEs",           "wake-ups",           "channel looks",
	"CQ arms",       "CM looks",       "timers set",         "CQ polls",
	"allocations",   "locks",          "voluntary switches", "preemptions"};
static uint64_t now_count[COUNTS];
static struct fabric_set *last_set;
struct count_calls *count_calls(void);

/* The linker puts these before what they name. */
int __real_fabric_set_new(struct fabric_pd *pd, struct fabric_channel *c,
                          const struct fabric_set_opts *o, struct fabric_set **ret,
                          struct ros2_err *err);
int __wrap_fabric_set_new(struct fabric_pd *pd, struct fabric_channel *c,
                          const struct fabric_set_opts *o, struct fabric_set **ret,
                          struct ros2_err *err);
int __wrap_fabric_set_new(struct fabric_pd *pd, struct fabric_channel *c,
                          const struct fabric_set_opts *o, struct fabric_set **ret,
                          struct ros2_err *err)
{
	int rc = __real_fabric_set_new(pd, c, o, ret, err);

	if (rc == 0)
		last_set = *ret;
	return rc;
}

#define COUNTED(what, ret, name, params, args)                                                     \
	ret __real_##name params;                                                                  \
	ret __wrap_##name params;                                                                  \
	ret __wrap_##name params                                                                   \
	{                                                                                          \
		now_count[what]++;                                                                 \
		return __real_##name args;                                                         \
	}
COUNTED(ARMS, int, fabric_set_arm, (struct fabric_set * s), (s))
COUNTED(CHANNEL, uint32_t, fabric_channel_events,
        (struct fabric_channel * c, void (*fn)(void *arg, struct fabric_set *s), void *arg),
        (c, fn, arg))
COUNTED(CM, uint32_t, fabric_cm_events,
        (struct fabric_cm * cm, void (*fn)(void *arg, const struct fabric_conn_event *e),
         void *arg),
        (cm, fn, arg))
COUNTED(TIMERS, int, timerfd_settime,
        (int fd, int flags, const struct itimerspec *new, struct itimerspec *old),
        (fd, flags, new, old))

COUNTED(POLLS, int, fabric_set_poll,
        (struct fabric_set * s, struct fabric_completion *out, uint32_t max), (s, out, max))

/* ---- one kind of load ---- */

enum kind { STANDING, ROTATED, BARE, EAGER, KINDS };
static const char *const kind_names[KINDS] = {"standing", "rotated", "bare", "eager"};

struct load;
struct command {
	struct nvmf_req req;
	struct load *load;
};

struct load {
	enum kind kind;
	struct rig rig; /* of commands */
	struct command commands[DEPTH_MAX];
	struct fabric_slot slot[DEPTH_MAX];
	uint32_t left, n_done;
	/* bare */
	struct fabric_channel *channel;
	struct fabric_qp *qp[2];
	struct fabric_window *window[DEPTH_MAX];
	int epoll_fd;
	/* all */
	struct fabric_set *set; /* what counts its work requests */
	uint64_t counts[COUNTS], ns[ROUNDS_MAX];
};
static struct load loads[KINDS];
static uint32_t depth = DEPTH_MAX, rounds = 20;

static void look(struct load *l, uint64_t c[COUNTS])
{
	struct nvmf_queue_counters q = {0};
	struct fabric_counters f;
	struct rusage u;

	memcpy(c, now_count, sizeof(now_count));
	fabric_set_counters(l->set, &f);
	if (l->kind != BARE)
		nvmf_rdma_queue_ops.counters(l->rig.io[0], &q);
	getrusage(RUSAGE_THREAD, &u);
	c[REQUESTS] = f.posted;
	c[DOORBELLS] = l->kind == BARE ? f.doorbells : q.calls + q.revoke_calls;
	c[RECEIVES] = f.doorbells - c[DOORBELLS];
	c[BINDS] = f.binds;
	c[CQES] = f.cqes;
	c[INVALIDATES] = f.invalidates;
	c[ALLOCATED] = count_calls()->alloc;
	c[LOCKED] = count_calls()->lock;
	c[SLEEPS] = (uint64_t)u.ru_nvcsw;
	c[PREEMPTED] = (uint64_t)u.ru_nivcsw;
}

static void load_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct load *l = container_of(req, struct command, req)->load;

	assert_int_equal(rc, 0);
	assert_int_equal(cqe->status >> 1, 0);
	l->n_done++;
	if (l->left) {
		l->left--;
		assert_int_equal(nvmf_rdma_queue_ops.submit(l->rig.io[0], req), 0);
		if (l->kind == EAGER)
			assert_int_equal(
				nvmf_rdma_queue_ops.kick(l->rig.io[0], clock_boottime_ns()), 0);
	}
}

static void commands(struct load *l)
{
	struct nvmf_queue *q = l->rig.io[0];
	struct epoll_event ev;

	l->n_done = 0;
	l->left = PER_ROUND - depth;
	for (uint32_t i = 0; i < depth; i++)
		assert_int_equal(nvmf_rdma_queue_ops.submit(q, &l->commands[i].req), 0);
	assert_int_equal(nvmf_rdma_queue_ops.kick(q, clock_boottime_ns()), 0);
	while (l->n_done < PER_ROUND) {
		/* the admin queue is asked nothing meanwhile */
		assert_int_equal(epoll_wait(l->rig.epoll_fd, &ev, 1, 10000), 1);
		assert_int_equal(ev.data.u64, 1);
		now_count[WAKES]++;
		nvmf_rdma_queue_ops.poll(q, 64, clock_boottime_ns());
		assert_int_equal(nvmf_rdma_queue_ops.state(q), NVMF_QUEUE_READY);
	}
}

static void receipt(void *arg, const struct fabric_receipt *r)
{
	struct load *l = arg;

	l->n_done++;
}

static void event(void *arg, struct fabric_set *set)
{
}

static void bind_one(struct load *l, uint32_t i)
{
	struct fabric_bind b = {.region = l->slot[i].region,
	                        .length = 4096,
	                        .access = FABRIC_WRITE,
	                        .flags = FABRIC_QUIET};
	uint32_t key;

	assert_int_equal(fabric_window_bind(l->qp[0], &b, &l->window[i], &key), 0);
}

/* A batch: one doorbell, and a sleep until all its LOCAL_INVs have ended. */
static void pairs(struct load *l)
{
	struct fabric_completion end;
	struct epoll_event ev;

	for (uint32_t n = 0; n < PER_ROUND; n += depth) {
		l->n_done = 0;
		for (uint32_t i = 0; i < depth; i++)
			assert_int_equal(
				fabric_window_revoke(l->window[i], clock_boottime_ns(), receipt, l),
				0);
		for (uint32_t i = 0; i < depth; i++)
			bind_one(l, i);
		assert_int_equal(fabric_qp_flush(l->qp[0], clock_boottime_ns()), 0);
		while (l->n_done < depth) {
			assert_int_equal(fabric_set_arm(l->set), 0);
			assert_true(fabric_set_poll(l->set, &end, 1) >= 0);
			if (l->n_done == depth)
				break;
			assert_int_equal(epoll_wait(l->epoll_fd, &ev, 1, 10000), 1);
			now_count[WAKES]++;
			(void)fabric_channel_events(l->channel, event, NULL);
			assert_true(fabric_set_poll(l->set, &end, 1) >= 0);
		}
	}
}

static void one_round(struct load *l, uint32_t round)
{
	uint64_t before[COUNTS], after[COUNTS], began;

	look(l, before);
	began = clock_monotonic_ns();
	if (l->kind == BARE)
		pairs(l);
	else
		commands(l);
	l->ns[round] = clock_monotonic_ns() - began;
	look(l, after);
	for (int i = 0; i < COUNTS; i++)
		l->counts[i] += after[i] - before[i];
}

/* ---- made and unmade ---- */

static void open_commands(struct load *l)
{
	rig_device(&l->rig);
	l->rig.depth = DEPTH_MAX;
	rig_up(&l->rig, 1, l->kind != STANDING);
	l->set = last_set;
	for (uint32_t i = 0; i < depth; i++) {
		assert_true(fabric_slot_take(l->rig.set, 4096, &l->slot[i]));
		l->commands[i].req = rig_io(&l->rig, false, &l->slot[i], i * 4096, 4096);
		l->commands[i].req.done = load_done;
		l->commands[i].load = l;
	}
}

static void open_pairs(struct load *l)
{
	struct fabric_set_opts so = {.cq_depth = 512, .qps_max = 2, .slots = {DEPTH_MAX}};
	struct fabric_qp_opts qo = {.send_depth = 2 * DEPTH_MAX,
	                            .recv_depth = 4,
	                            .windows = 3 * DEPTH_MAX,
	                            .remote_access = FABRIC_WRITE,
	                            .gid_index = 1};
	struct epoll_event ev = {.events = EPOLLIN};
	struct fabric_qp_addr at[2];

	rig_device(&l->rig);
	assert_int_equal(fabric_channel_new(l->rig.dev, &l->channel, NULL), 0);
	assert_int_equal(fabric_set_new(l->rig.pd, l->channel, &so, &l->set, NULL), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fabric_qp_new(l->set, &qo, &l->qp[i], NULL), 0);
		fabric_qp_address(l->qp[i], &at[i]);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(fabric_qp_join(l->qp[i], &at[!i], NULL), 0);
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fabric_channel_fd(l->channel), &ev),
	                 0);
	for (uint32_t i = 0; i < depth; i++) {
		assert_true(fabric_slot_take(l->set, 4096, &l->slot[i]));
		bind_one(l, i);
	}
	assert_int_equal(fabric_qp_flush(l->qp[0], clock_boottime_ns()), 0);
}

static void close_load(struct load *l)
{
	if (l->kind == BARE) {
		fabric_qp_free(l->qp[0]);
		fabric_qp_free(l->qp[1]);
	} else {
		rig_down(&l->rig);
	}
	for (uint32_t i = 0; i < depth; i++)
		assert_true(fabric_slot_give(l->kind == BARE ? l->set : l->rig.set, &l->slot[i]));
	if (l->kind == BARE) {
		assert_int_equal(fabric_set_free(l->set), 0);
		fabric_channel_free(l->channel);
		close(l->epoll_fd);
	}
	rig_close(&l->rig);
}

/* ---- what is said ---- */

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double us(const struct load *l)
{
	double v[ROUNDS_MAX];

	for (uint32_t i = 0; i < rounds; i++)
		v[i] = (double)l->ns[i] / PER_ROUND / 1000;
	return median(v, rounds);
}

static void print_table(void)
{
	print_message("# for 100 of them, depth %-4u", depth);
	for (int k = 0; k < KINDS; k++)
		print_message(" %9s", kind_names[k]);
	print_message("\n");
	for (int c = 0; c < COUNTS; c++) {
		print_message("# %-26s", count_names[c]);
		for (int k = 0; k < KINDS; k++)
			print_message(" %9.1f",
			              100.0 * (double)loads[k].counts[c] / (PER_ROUND * rounds));
		print_message("\n");
	}
	print_message("# us (emulated), median     ");
	for (int k = 0; k < KINDS; k++)
		print_message(" %9.2f", us(&loads[k]));
	print_message("\n");
}

/* Rotation adds its two work requests, one doorbell at most, and nothing to wake up for. */
static void assert_counts(void)
{
	const uint64_t *s = loads[STANDING].counts, *r = loads[ROTATED].counts,
		       n = (uint64_t)PER_ROUND * rounds;

	assert_int_equal(r[BINDS], n);
	assert_int_equal(r[INVALIDATES], n);
	assert_int_equal(r[REQUESTS], 4 * n);
	assert_true(r[DOORBELLS] <= s[DOORBELLS] + n);
	assert_true(r[CQES] <= s[CQES]);
	assert_true(r[CM] <= n / 50);
	for (int k = STANDING; k <= ROTATED; k++)
		assert_int_equal(loads[k].counts[ALLOCATED] + loads[k].counts[LOCKED], 0);
}

static double added(enum kind k, uint32_t round)
{
	return ((double)loads[k].ns[round] - (double)loads[STANDING].ns[round]) /
	       (double)loads[BARE].ns[round];
}

/* The median; @v is sorted then. */
static double print_added(const char *what, double *v, uint32_t n)
{
	double m = median(v, n);

	print_message("# %s adds %.2f x the time of a bare INVALIDATE + BIND (median of %u rounds, "
	              "%.2f .. %.2f; emulated)\n",
	              what, m, n, v[0], v[n - 1]);
	return m;
}

/* Times of one CPU whose clock counts instructions are work; others are weather. */
static void assert_times(double rotated, double eager, double itself)
{
	if (!getenv("ROS2_GUEST_ICOUNT"))
		return;
	assert_true(rotated <= ADDED_MAX);
	assert_true(rotated > itself);
	if (depth == DEPTH_MAX)
		assert_true(eager > ADDED_MAX);
}

static void judge(void)
{
	double rotated[ROUNDS_MAX], eager[ROUNDS_MAX], itself[ROUNDS_MAX], r, e, i;

	for (uint32_t n = 0; n < rounds; n++) {
		rotated[n] = added(ROTATED, n);
		eager[n] = added(EAGER, n);
		itself[n] = ((double)loads[STANDING].ns[(n + 1) % rounds] -
		             (double)loads[STANDING].ns[n]) /
		            (double)loads[BARE].ns[n];
		/* for tests/bench/run */
		print_message("# depth %u round %u: added %.3f of bare\n", depth, n + 1,
		              rotated[n]);
	}
	print_message("# depth %u doorbells added: %.4f for each command\n", depth,
	              ((double)loads[ROTATED].counts[DOORBELLS] -
	               (double)loads[STANDING].counts[DOORBELLS]) /
	                      (PER_ROUND * rounds));
	i = print_added("the next round of standing keys", itself, rounds);
	e = print_added("rotation with a doorbell for each command (control)", eager, rounds);
	r = print_added("rotation", rotated, rounds);
	assert_times(r, e, i);
}

static void nvmf_rdma__rotation_adds_what_a_bare_rotation_is(void **state)
{
	const char *only = *state;

	for (int k = 0; k < KINDS; k++) {
		loads[k].kind = (enum kind)k;
		if (only && strcmp(only, kind_names[k]))
			continue;
		if (k == BARE)
			open_pairs(&loads[k]);
		else
			open_commands(&loads[k]);
	}
	for (uint32_t r = 0; r < rounds; r++)
		for (int k = 0; k < KINDS; k++)
			if (loads[k].set)
				one_round(&loads[k], r);
	print_table();
	if (!only) {
		judge();
		assert_counts();
	}
	for (int k = 0; k < KINDS; k++)
		if (loads[k].set)
			close_load(&loads[k]);
}

int main(int argc, char **argv)
{
	char *only = argc > 3 ? argv[3] : NULL;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(nvmf_rdma__rotation_adds_what_a_bare_rotation_is, only),
	};

	if (argc > 1)
		depth = MAX(MIN((uint32_t)atoi(argv[1]), DEPTH_MAX), 1);
	if (argc > 2)
		rounds = MAX(MIN((uint32_t)atoi(argv[2]), ROUNDS_MAX), 1);
	/* what is counted is threads of this name */
	pthread_setname_np(pthread_self(), "reactor0");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The queue over NVMe/RDMA as its callers see it: made, polled, timed, ended. rdma_queue_priv.h has
 * the states and the numbered end of life. Must never run a request's done before what the target
 * could reach its memory by is dead.
 */
#include "dataplane/nvmf/rdma_queue_priv.h"
#include "common/clock.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

static struct rdma_queue *of(const struct nvmf_queue *q)
{
	return (struct rdma_queue *)(void *)(uintptr_t)q;
}

/* ---- end ---- */

/* What the device would not give up: tried again with each queue that is made or freed. Rare, so a
 * lock does not hurt. */
static pthread_mutex_t graves_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list graves = {&graves, &graves};
static _Atomic bool any_graves;

/* True: nothing is left of it. */
static bool bury(struct rdma_queue *q)
{
	if (fabric_set_free(q->set) < 0)
		return false;
	q->set = NULL;
	if (q->region && fabric_region_free(q->region) < 0)
		return false;
	q->region = NULL;
	for (uint32_t i = 0; i < q->n_own; i++) {
		if (q->own_regions[i] && fabric_region_free(q->own_regions[i]) < 0)
			return false;
		q->own_regions[i] = NULL;
	}
	fabric_channel_free(q->channel);
	if (q->mem)
		munmap(q->mem, q->mem_bytes);
	free(q->cmds);
	free(q->keys);
	free(q);
	return true;
}

static void bury_all(struct rdma_queue *q)
{
	struct rdma_queue *it, *next;

	pthread_mutex_lock(&graves_lock);
	if (q)
		list_add_tail(&graves, &q->buried);
	list_for_each_safe (&graves, it, next, buried) {
		list_del(&it->buried);
		if (!bury(it))
			list_add_head(&graves, &it->buried);
	}
	atomic_store(&any_graves, !list_empty(&graves));
	pthread_mutex_unlock(&graves_lock);
}

/* The device was asked for everything that may end a key: the last one is to destroy the queue
 * pair. Receipts run inside. What it does not destroy either may still send: it is tried again with
 * the ticks, and a capsule that had not left keeps its memory. */
static void destroy_qp(struct rdma_queue *q)
{
	fabric_conn_free(TAKE_PTR(q->conn));
	if (q->qp) {
		q->kept_id = fabric_qp_id(q->qp);
		(void)fabric_qp_free(TAKE_PTR(q->qp));
	}
	if (!q->kept_id || fabric_qp_kept(q->set, q->kept_id))
		return;
	q->kept_id = 0;
	for (uint32_t i = 0; i < q->depth; i++) {
		q->cmds[i].sent = true;
		rdma_settle(&q->cmds[i]);
	}
}

void rdma_fail(struct rdma_queue *q, const char *fmt, ...)
{
	va_list ap;
	bool killed;

	if (q->state == NVMF_QUEUE_FAILED)
		return;
	q->state = NVMF_QUEUE_FAILED;
	q->failed_ns = q->now_ns;
	va_start(ap, fmt);
	(void)vsnprintf(q->fault, sizeof(q->fault), fmt, ap);
	va_end(ap);
	killed = !q->qp || fabric_qp_kill(q->qp, NULL) == 0;
	/* Also of one that the device does not take to error: its destruction gives the receipts,
	 * and after it no window may be named. */
	if (q->qp)
		rdma_keys_end(q);
	if (!killed)
		destroy_qp(q);
	fabric_conn_free(TAKE_PTR(q->conn));
	for (uint32_t i = 0; i < q->depth; i++)
		rdma_settle(&q->cmds[i]);
}

static uint32_t run_ready(struct rdma_queue *q, uint32_t max)
{
	uint32_t n = 0;

	if (q->running)
		return 0;
	q->running = true;
	for (; n < max && !list_empty(&q->ready); n++)
		rdma_release(list_first(&q->ready, struct rdma_cmd, link));
	q->running = false;
	return n;
}

static void take_ends(struct rdma_queue *q);

/* ---- make ---- */

_Static_assert(NVMF_RDMA_REGIONS_MAX == 1 + RDMA_OWN_SLOTS, "as make_memory registers");
_Static_assert(NVMF_RDMA_WINDOWS_MAX >= RDMA_DEPTH_MAX + 2 * RDMA_SPARE + RDMA_OWN_SLOTS,
               "as make counts");
_Static_assert(NVMF_RDMA_PINNED_MAX >= (RDMA_DEPTH_MAX + 1) * (RDMA_CAPSULE + RDMA_ANSWER) +
                                               RDMA_OWN_SLOTS * RDMA_OWN_BYTES,
               "as make_memory pins");

static int check(const struct nvmf_queue_opts *o, struct ros2_err *err)
{
	uint32_t max = o->qid ? RDMA_DEPTH_MAX : RDMA_ADMIN_MAX;

	if (!o->pd)
		return ros2_err_set(err, -EOPNOTSUPP, "nvmf over RDMA: there is no RDMA device");
	if (o->depth < 2 || o->depth > max)
		return ros2_err_set(err, -EINVAL,
		                    "nvmf over RDMA: a queue of %u commands: expected 2..%u",
		                    o->depth, max);
	if (!o->transfer_max || o->transfer_max > NVME_SGL_KEYED_LENGTH_MAX)
		return ros2_err_set(err, -EINVAL,
		                    "nvmf over RDMA: %u bytes in a command: expected 1..%u",
		                    o->transfer_max, NVME_SGL_KEYED_LENGTH_MAX);
	return 0;
}

static int make_memory(struct rdma_queue *q, struct ros2_err *err)
{
	size_t own = (size_t)q->n_own * RDMA_OWN_BYTES,
	       ring = q->depth * RDMA_CAPSULE + (q->depth + 1) * RDMA_ANSWER;
	struct fabric_region_opts o = {.length = ring};
	int rc;

	/* Slots of our own begin on pages, behind the ring. */
	ring = (ring + RDMA_OWN_BYTES - 1) & ~(size_t)(RDMA_OWN_BYTES - 1);
	q->mem_bytes = ring + own;
	q->mem = mmap(NULL, q->mem_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	              0);
	if (q->mem == MAP_FAILED) {
		q->mem = NULL;
		return ros2_err_set(err, -ENOMEM, "no memory for a queue");
	}
	o.addr = q->mem;
	rc = fabric_region_new(q->pd, &o, &q->region, err);
	for (uint32_t i = 0; i < q->n_own && rc == 0; i++) {
		o = (struct fabric_region_opts){.addr = q->mem + ring + i * RDMA_OWN_BYTES,
		                                .length = RDMA_OWN_BYTES,
		                                .bindable = true};
		rc = fabric_region_new(q->pd, &o, &q->own_regions[i], err);
	}
	return rc;
}

static int make_tables(struct rdma_queue *q, struct ros2_err *err)
{
	q->cmds = calloc(q->depth, sizeof(*q->cmds));
	q->keys = calloc(MAX(q->n_keys, 1), sizeof(*q->keys));
	if (!q->cmds || !q->keys)
		return ros2_err_set(err, -ENOMEM, "no memory for a queue of %u", q->depth);
	for (uint32_t i = 0; i < q->depth; i++) {
		q->cmds[i].q = q;
		q->cmds[i].index = (uint16_t)i;
		list_add_tail(&q->free, &q->cmds[i].link);
	}
	for (uint32_t i = 0; i < q->n_keys; i++) {
		q->keys[i].q = q;
		list_init(&q->keys[i].bucket);
		list_add_tail(&q->key_free, &q->keys[i].lru);
	}
	return 0;
}

static int make_set(struct rdma_queue *q, struct ros2_err *err)
{
	/* As fabric counts: sends, LOCAL_INVs, its mark, receives. */
	struct fabric_set_opts o = {.cookie = NVMF_RDMA_SET_COOKIE,
	                            .cq_depth = 2 * q->depth + q->n_windows + 1 + q->depth + 1,
	                            .qps_max = 1};
	int rc = fabric_channel_new(fabric_pd_dev(q->pd), &q->channel, err);

	return rc == 0 ? fabric_set_new(q->pd, q->channel, &o, &q->set, err) : rc;
}

static int watch(struct rdma_queue *q, int fd, uint64_t word)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = word};

	return epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int watch_all(struct rdma_queue *q, uint64_t word, struct ros2_err *err)
{
	int rc;

	q->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	rc = q->timer_fd < 0 ? -errno : watch(q, q->timer_fd, word);
	if (rc == 0)
		rc = watch(q, fabric_channel_fd(q->channel), word);
	if (rc == 0)
		rc = watch(q, fabric_cm_fd(q->cm), word);
	return rc < 0 ? ros2_err_set(err, rc, "cannot watch a queue: %s", strerror(-rc)) : 0;
}

static struct rdma_queue *make(const struct nvmf_queue_opts *o)
{
	struct rdma_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->qid = o->qid;
	q->cntlid = o->cntlid;
	q->depth = o->depth;
	q->in_capsule_max = o->qid ? o->in_capsule_max : 0;
	q->transfer_max = o->transfer_max;
	q->per_command = o->keys_per_command;
	q->remote_invalidate = o->remote_invalidate && o->keys_per_command;
	q->n_own = o->qid ? 1 : RDMA_OWN_SLOTS;
	q->own_free = (1u << q->n_own) - 1;
	q->n_keys = o->qid && !q->per_command ? MAX(q->depth, RDMA_STANDING) + RDMA_SPARE : 0;
	q->n_windows = (q->n_keys ? q->n_keys + q->n_own : q->depth) + RDMA_SPARE;
	while (1u << q->index_bits < q->depth)
		q->index_bits++;
	q->epoll_fd = o->epoll_fd;
	q->timer_fd = -1;
	q->last_ns = UINT64_MAX;
	q->pd = o->pd;
	q->ids = o->key_ids;
	for (uint32_t i = 0; q->ids && i < ARRAY_SIZE(q->row_ids); i++)
		q->row_ids[i] = ++*q->ids;
	q->now_ns = o->now_ns;
	q->connect_deadline_ns = clock_add_ns(o->now_ns, o->connect_timeout_ns);
	list_init(&q->free);
	list_init(&q->queued);
	list_init(&q->out);
	list_init(&q->ready);
	list_init(&q->key_free);
	list_init(&q->key_lru);
	list_init(&q->buried);
	for (uint32_t i = 0; i < RDMA_BUCKETS; i++)
		list_init(&q->buckets[i]);
	return q;
}

static void unwatch(struct rdma_queue *q)
{
	if (q->channel)
		(void)epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, fabric_channel_fd(q->channel), NULL);
	if (q->cm)
		(void)epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, fabric_cm_fd(q->cm), NULL);
	if (q->timer_fd >= 0)
		close(q->timer_fd);
}

static void rdma_free(struct nvmf_queue *nq)
{
	struct rdma_queue *q = of(nq);

	if (!q)
		return;
	if (q->cmds && q->keys)
		rdma_fail(q, "ended");
	if (q->set)
		take_ends(q);
	destroy_qp(q);
	run_ready(q, UINT32_MAX);
	/* The device kept all of it: the memory stays bound, so nobody gets it again. */
	for (uint32_t i = 0; q->n_busy && i < q->depth; i++)
		if (q->cmds[i].req)
			rdma_release(&q->cmds[i]);
	unwatch(q);
	fabric_cm_free(q->cm);
	bury_all(q);
}

static int rdma_open(const struct nvmf_queue_opts *o, struct nvmf_queue **ret, struct ros2_err *err)
{
	struct rdma_queue *q;
	int rc = check(o, err);

	bury_all(NULL);
	if (rc < 0)
		return rc;
	q = make(o);
	if (!q)
		return ros2_err_set(err, -ENOMEM, "no memory for a queue");
	rc = make_tables(q, err);
	if (rc == 0)
		rc = make_memory(q, err);
	if (rc == 0)
		rc = make_set(q, err);
	if (rc == 0)
		rc = rdma_connect_begin(q, o->peer, err);
	if (rc == 0)
		rc = watch_all(q, o->epoll_word, err);
	if (rc < 0) {
		rdma_free((struct nvmf_queue *)q);
		return rc;
	}
	*ret = (struct nvmf_queue *)q;
	return 0;
}

/* ---- run ---- */

void rdma_collect(struct rdma_queue *q)
{
	struct fabric_completion ends[RDMA_BATCH];
	int n;

	do {
		n = fabric_set_poll(q->set, ends, RDMA_BATCH);
		for (int i = 0; i < n; i++)
			rdma_ended(q, &ends[i]);
		q->n_ends += n > 0 ? (uint32_t)n : 0;
	} while (n == RDMA_BATCH);
	if (n < 0)
		rdma_fail(q, "the completion queue of the RDMA device has failed");
}

/* The end of the queue pair counts after the answers that came before it, and what the connection
 * says about it has better words, but for a lie that was seen. */
static void take_ends(struct rdma_queue *q)
{
	rdma_collect(q);
	if (!q->broken)
		return;
	if (!nvmf_queue_lied(q->broken))
		rdma_cm_events(q);
	rdma_fail(q, "%s", q->broken);
}

static void set_timer(struct rdma_queue *q, uint64_t in_ns)
{
	struct itimerspec t = {.it_value = {.tv_nsec = (long)in_ns}};

	q->timer_armed = in_ns && timerfd_settime(q->timer_fd, 0, &t, NULL) == 0;
}

/* Receipts of a software device are due some time after their completions, and what @max left must
 * wake the caller again. */
static void set_alarm(struct rdma_queue *q)
{
	uint64_t next = UINT64_MAX;

	if (!list_empty(&q->ready)) {
		set_timer(q, 1);
		return;
	}
	if (q->n_receipts)
		next = fabric_set_tick(q->set, q->now_ns);
	if (!list_empty(&q->ready))
		set_timer(q, 1);
	else if (next <= q->now_ns + RDMA_GRACE_NS)
		set_timer(q, RDMA_GRACE_NS);
}

/* The channel tells of what comes from here on, and what came before was taken. */
static void arm(struct rdma_queue *q)
{
	if (q->armed)
		return;
	q->armed = true;
	if (fabric_set_arm(q->set) < 0)
		rdma_fail(q, "the completion queue of the RDMA device has failed");
	else
		take_ends(q);
}

static void channel_event(void *arg, struct fabric_set *set)
{
	struct rdma_queue *q = arg;

	q->armed = false;
}

static void take_events(struct rdma_queue *q)
{
	uint64_t n;

	if (q->timer_armed && read(q->timer_fd, &n, sizeof(n)) == sizeof(n))
		q->timer_armed = false;
	if (q->armed)
		(void)fabric_channel_events(q->channel, channel_event, q);
}

static uint32_t rdma_poll(struct nvmf_queue *nq, uint32_t max, uint64_t now_ns)
{
	struct rdma_queue *q = of(nq);
	uint64_t before = q->n_ends + q->c.keys_revoked;
	uint32_t n;

	q->now_ns = now_ns;
	take_events(q);
	take_ends(q);
	/* A look at the connection is a system call. */
	if (q->state == NVMF_QUEUE_CONNECTING || q->n_ends + q->c.keys_revoked == before)
		rdma_cm_events(q);
	n = run_ready(q, max);
	(void)rdma_hand_on(q);
	arm(q);
	if (n < max)
		n += run_ready(q, max - n);
	(void)rdma_hand_on(q);
	set_alarm(q);
	return n;
}

static uint32_t rdma_forget(struct nvmf_queue *nq, uint64_t now_ns)
{
	struct rdma_queue *q = of(nq);
	uint32_t n;

	q->now_ns = now_ns;
	if (q->state != NVMF_QUEUE_READY)
		return 0; /* of a queue that has failed all are ending */
	n = rdma_keys_forget(q);
	(void)rdma_hand_on(q);
	set_alarm(q);
	return n;
}

static uint32_t rdma_end_key(struct nvmf_queue *nq, struct nvmf_req *req, uint64_t now_ns)
{
	struct rdma_cmd *cmd = (struct rdma_cmd *)(uintptr_t)req->priv[0];
	struct rdma_queue *q = of(nq);

	q->now_ns = now_ns;
	if (q->state != NVMF_QUEUE_READY || cmd->req != req)
		return 0;
	/* A window must not be invalidated from both ends: some kernels stop. */
	if (cmd->invalidate && !cmd->answered) {
		rdma_fail(q, "a right ended under a key that the target was asked to invalidate");
		return 1;
	}
	return rdma_key_withdraw(cmd);
}

static uint32_t rdma_ending(const struct nvmf_queue *q, uint64_t until_ns)
{
	return rdma_keys_ending(of(q), until_ns);
}

static void rdma_keys(const struct nvmf_queue *q, bool folded, key_info_fn fn, void *arg)
{
	rdma_keys_tell(of(q), folded, fn, arg);
}

static uint32_t rdma_kept(const struct fabric_pd *pd)
{
	struct rdma_queue *q;
	uint32_t n = 0;

	if (!atomic_load(&any_graves))
		return 0;
	bury_all(NULL);
	pthread_mutex_lock(&graves_lock);
	list_for_each (&graves, q, buried)
		n += !pd || q->pd == pd ? q->n_receipts : 0;
	pthread_mutex_unlock(&graves_lock);
	return n;
}

static int rdma_kick(struct nvmf_queue *nq, uint64_t now_ns)
{
	struct rdma_queue *q = of(nq);
	int rc;

	q->now_ns = now_ns;
	rc = rdma_hand_on(q);
	/* What came back in it: the next poll gives it back. */
	if (!list_empty(&q->ready))
		set_timer(q, 1);
	return rc;
}

static uint64_t overdue(struct rdma_queue *q)
{
	uint64_t next = UINT64_MAX;
	struct rdma_cmd *cmd;

	list_for_each (&q->out, cmd, link) {
		if (cmd->req->deadline_ns <= q->now_ns && !cmd->answered) {
			rdma_fail(q, "a command (opcode %#04x) had no answer in %llu ms",
			          cmd->req->sqe.opcode,
			          (unsigned long long)(cmd->req->timeout_ns / NS_PER_MS));
			return UINT64_MAX;
		}
		next = MIN(next, cmd->answered ? UINT64_MAX : cmd->req->deadline_ns);
	}
	return next;
}

static uint64_t rdma_tick(struct nvmf_queue *nq, uint64_t now_ns)
{
	struct rdma_queue *q = of(nq);
	uint64_t next = UINT64_MAX;

	q->now_ns = now_ns;
	take_events(q);
	take_ends(q);
	rdma_cm_tick(q);
	if (q->state == NVMF_QUEUE_CONNECTING)
		next = q->connect_deadline_ns;
	else if (q->state == NVMF_QUEUE_READY)
		next = overdue(q);
	(void)rdma_hand_on(q);
	next = MIN(next, fabric_set_tick(q->set, now_ns));
	if (q->state == NVMF_QUEUE_FAILED && q->n_busy) {
		if (q->kept_id || now_ns - q->failed_ns >= RDMA_FLUSH_NS)
			destroy_qp(q);
		next = MIN(next, q->failed_ns + RDMA_FLUSH_NS);
	}
	arm(q);
	run_ready(q, UINT32_MAX);
	(void)rdma_hand_on(q);
	set_alarm(q);
	return next;
}

static void rdma_kill(struct nvmf_queue *nq, const char *why)
{
	struct rdma_queue *q = of(nq);

	rdma_fail(q, "%s", why);
	take_ends(q);
	arm(q);
	run_ready(q, UINT32_MAX);
	set_alarm(q);
}

/* ---- what it says ---- */

static enum nvmf_queue_state rdma_state(const struct nvmf_queue *q)
{
	return of(q)->state;
}

static const char *rdma_fault(const struct nvmf_queue *q)
{
	return of(q)->fault;
}

static int submit(struct nvmf_queue *q, struct nvmf_req *req)
{
	return rdma_submit(of(q), req);
}

static uint32_t rdma_in_flight(const struct nvmf_queue *q)
{
	return of(q)->n_busy;
}

static void rdma_counters(const struct nvmf_queue *q, struct nvmf_queue_counters *ret)
{
	*ret = of(q)->c;
}

const struct nvmf_queue_ops nvmf_rdma_queue_ops = {
	.name = "rdma",
	.open = rdma_open,
	.free = rdma_free,
	.state = rdma_state,
	.fault = rdma_fault,
	.submit = submit,
	.kick = rdma_kick,
	.poll = rdma_poll,
	.tick = rdma_tick,
	.kill = rdma_kill,
	.forget_regions = rdma_forget,
	.end_key = rdma_end_key,
	.keys_ending = rdma_ending,
	.keys_kept = rdma_kept,
	.keys = rdma_keys,
	.in_flight = rdma_in_flight,
	.counters = rdma_counters,
};

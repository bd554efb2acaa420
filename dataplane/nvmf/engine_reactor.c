/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvmf engine at one reactor: requests are checked against the volume and the namespace as it
 * is now, given to the lane of their controller, and come back through one list, in poll. Queues,
 * the admin thread and a timer wake the reactor through one epoll descriptor. Places for requests
 * are each lane's own, so a lane that waits for its target keeps nothing from the others.
 */
#include "common/clock.h"
#include "dataplane/nvmf/engine_priv.h"
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#define WORD_WAKE  UINT64_MAX
#define WORD_TIMER (UINT64_MAX - 1)
#define EVENTS_MAX 64

static int watch(struct engine_reactor *r, int fd, uint64_t word)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = word};

	return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int open_fds(struct engine_reactor *r)
{
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->port.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (r->epoll_fd < 0 || r->port.wake_fd < 0 || r->timer_fd < 0)
		return -errno;
	if (watch(r, r->port.wake_fd, WORD_WAKE) < 0 || watch(r, r->timer_fd, WORD_TIMER) < 0)
		return -errno;
	return 0;
}

static void reactor_release(struct engine_reactor *r)
{
	util_close_cleanup(&r->epoll_fd);
	util_close_cleanup(&r->port.wake_fd);
	util_close_cleanup(&r->timer_fd);
	free(r);
}

int nvmf_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                     struct engine_reactor **ret, struct ros2_err *err)
{
	struct engine_reactor *r;
	int rc;

	if (o->depth == 0 || o->depth > 65536)
		return ros2_err_set(err, -EINVAL,
		                    "nvmf engine: depth: expected 1 to 65536, found %u", o->depth);
	r = calloc(1, sizeof(*r));
	if (!r)
		return ros2_err_set(err, -ENOMEM, "nvmf engine: no memory for a reactor");
	r->epoll_fd = r->port.wake_fd = r->timer_fd = -1;
	rc = open_fds(r);
	if (rc < 0) {
		reactor_release(r);
		return ros2_err_set(err, rc, "nvmf engine: no memory or descriptors for a reactor");
	}
	r->engine = e;
	r->tenant_depth = o->tenant_depth ? o->tenant_depth : o->depth;
	list_init(&r->done);
	list_init(&r->lanes);
	list_init(&r->hot);
	nvmf_port_add(e->admin, &r->port);
	*ret = r;
	return 0;
}

void nvmf_reactor_free(struct engine_reactor *r)
{
	struct nvmf_lane *l, *tmp;

	if (!r)
		return;
	list_for_each_safe (&r->lanes, l, tmp, link)
		nvmf_lane_free(l);
	nvmf_port_remove(r->engine->admin, &r->port);
	reactor_release(r);
}

int nvmf_event_fd(struct engine_reactor *r)
{
	return r->epoll_fd;
}

uint32_t nvmf_in_flight(const struct engine_reactor *r)
{
	return r->n_used;
}

bool nvmf_away(const struct engine_reactor *r, const struct engine_file *f)
{
	const struct nvmf_lane *l = r->by_index[nvmf_ctrl_index(f->ctrl)];

	/* Given up: what is new is answered at once. */
	return !l || (nvmf_lane_waits(l) && (l->state == LANE_READY || !l->given_up));
}

uint32_t nvmf_parked(const struct engine_reactor *r)
{
	const struct nvmf_lane *l;
	uint32_t n = 0;

	list_for_each (&r->lanes, l, link)
		n += nvmf_lane_waits(l) ? l->n_ios : 0;
	return n;
}

uint64_t nvmf_copied_bytes(const struct engine_reactor *r)
{
	uint64_t n = r->copied_bytes;
	const struct nvmf_lane *l;

	list_for_each (&r->lanes, l, link) {
		struct nvmf_queue_counters c;

		if (!l->q)
			continue;
		l->ops->counters(l->q, &c);
		n += c.copied_bytes;
	}
	return n;
}

/* ---- in ---- */

/* What of the request is to be moved: *ret_len 0 = nothing. */
static int judge_range(const struct engine_io *io, uint32_t *ret_len)
{
	const struct engine_file *f = io->file;
	uint64_t size, end, mask = ((uint64_t)1 << f->block_shift) - 1;
	int rc = nvmf_file_size(f, &size, NULL);

	*ret_len = 0;
	if (rc < 0)
		return rc;
	if (io->len == 0)
		return 0;
	if ((io->offset | io->len) & mask)
		return -EINVAL;
	if (engine_op_clears(io->op) && io->len > ENGINE_ZERO_MAX)
		return -EINVAL;
	if (__builtin_add_overflow(io->offset, (uint64_t)io->len, &end) ||
	    (engine_op_clears(io->op) && end > INT64_MAX))
		return -ERANGE;
	if (io->op == ENGINE_OP_WRITE && end > size)
		return -ERANGE;
	if (io->offset < size)
		*ret_len = (uint32_t)MIN((uint64_t)io->len, size - io->offset);
	return 0;
}

static int judge(const struct engine_io *io, uint32_t *ret_len)
{
	uint64_t size;

	*ret_len = 0;
	switch (io->op) {
	case ENGINE_OP_READ:
		return io->file->flags & ENGINE_READ ? judge_range(io, ret_len) : -EBADF;
	case ENGINE_OP_WRITE:
	case ENGINE_OP_ZERO:
	case ENGINE_OP_DISCARD:
		return io->file->flags & ENGINE_WRITE ? judge_range(io, ret_len) : -EBADF;
	case ENGINE_OP_FLUSH:
		return nvmf_file_size(io->file, &size, NULL);
	}
	return -EINVAL;
}

static void timer(struct engine_reactor *r, bool on)
{
	struct itimerspec t = {0};

	if (r->timer_on == on)
		return;
	r->timer_on = on;
	if (on)
		t.it_value.tv_nsec = t.it_interval.tv_nsec = (long)(NVMF_TICK_MS * NS_PER_MS);
	(void)timerfd_settime(r->timer_fd, 0, &t, NULL);
}

static void give_lane(struct engine_reactor *r, struct nvmf_nio *nio)
{
	struct nvmf_lane *l = nio->lane;
	uint64_t now;

	timer(r, true);
	if (l->given_up && l->state != LANE_READY) {
		nvmf_ctrl_count(l->ctrl, NVMF_COUNT_EXPIRED);
		nvmf_nio_over(r, nio, -ENOTCONN);
		/* Nothing else may be in it that has the queue opened when the target is back. */
		nvmf_lane_heat(l);
		return;
	}
	now = clock_boottime_ns();
	if (!nio->io->wait_until_ns)
		nio->io->wait_until_ns = now + nvmf_lane_patience_ns(l);
	nio->deadline_ns = nio->io->wait_until_ns;
	if (!nvmf_lane_holds(l))
		l->waits_since_ns = now;
	list_add_tail(&l->waiting, &nio->link);
	nvmf_lane_heat(l);
}

/* Over before it begins: nothing to move, or nothing that a cache has, or had that was lost. */
static bool is_nothing(const struct nvmf_nio *nio)
{
	if (nio->io->op != ENGINE_OP_FLUSH)
		return nio->len == 0;
	return !nio->cached && !nvmf_ctrl_write_cache(nio->io->file->ctrl);
}

int nvmf_submit(struct engine_reactor *r, struct engine_io *io)
{
	int rc = 0;
	struct nvmf_lane *l = nvmf_lane_of(r, io->file->ctrl, &rc);
	struct nvmf_nio *nio;
	uint32_t len;

	if (!l)
		return rc;
	if (list_empty(&l->free_nios))
		return -EAGAIN;
	rc = judge(io, &len);
	nio = list_first(&l->free_nios, struct nvmf_nio, link);
	list_del(&nio->link);
	r->n_used++;
	l->n_ios++;
	*nio = (struct nvmf_nio){
		.io = io, .lane = l, .offset = io->file->base + io->offset, .len = len};
	list_init(&nio->link);
	io->priv[0] = (uintptr_t)nio;
	if (io->op == ENGINE_OP_FLUSH)
		nvmf_flush_begins(nio);
	if (rc < 0)
		nvmf_nio_over(r, nio, rc);
	else if (is_nothing(nio))
		nvmf_nio_over(r, nio, engine_op_clears(io->op) ? io->len : 0);
	else
		give_lane(r, nio);
	return 0;
}

static void run_hot(struct engine_reactor *r, uint64_t now)
{
	while (!list_empty(&r->hot)) {
		struct nvmf_lane *l = list_first(&r->hot, struct nvmf_lane, link_hot);

		list_del(&l->link_hot);
		nvmf_lane_open(l, now);
		nvmf_lane_pump(l, now);
	}
}

int nvmf_kick(struct engine_reactor *r)
{
	if (!list_empty(&r->hot))
		run_hot(r, clock_boottime_ns());
	return 0;
}

/* ---- out ---- */

void nvmf_nio_over(struct engine_reactor *r, struct nvmf_nio *nio, int64_t res)
{
	nio->res = nvmf_flush_judge(nio, res);
	nio->over = true;
	list_del(&nio->link);
	list_add_tail(&r->done, &nio->link);
}

void nvmf_withdraw(struct engine_reactor *r, struct engine_io *io)
{
	struct nvmf_nio *nio = (struct nvmf_nio *)(uintptr_t)io->priv[0];

	if (!nio->over)
		nvmf_lane_withdraw(nio->lane, nio);
}

static uint32_t give_back(struct engine_reactor *r, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && !list_empty(&r->done)) {
		struct nvmf_nio *nio = list_first(&r->done, struct nvmf_nio, link);
		struct engine_io *io = nio->io;
		int64_t res = nio->res;

		list_del(&nio->link);
		nio->lane->n_ios--;
		list_add_tail(&nio->lane->free_nios, &nio->link);
		r->n_used--;
		n++;
		io->done(io, res);
	}
	return n;
}

static void each_lane(struct engine_reactor *r, void (*fn)(struct nvmf_lane *l, uint64_t now_ns),
                      uint64_t now)
{
	struct nvmf_lane *l, *tmp;

	list_for_each_safe (&r->lanes, l, tmp, link)
		fn(l, now);
}

static void take_events(struct engine_reactor *r, uint64_t now)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(r->epoll_fd, events, EVENTS_MAX, 0);
	uint64_t count;

	for (int i = 0; i < n; i++) {
		uint64_t word = events[i].data.u64;

		if (word == WORD_WAKE) {
			if (read(r->port.wake_fd, &count, sizeof(count)) > 0)
				each_lane(r, nvmf_lane_look, now);
		} else if (word == WORD_TIMER) {
			if (read(r->timer_fd, &count, sizeof(count)) > 0)
				each_lane(r, nvmf_lane_tick, now);
		} else if (word < NVMF_CTRLS_MAX && r->by_index[word]) {
			nvmf_lane_event(r->by_index[word], now);
		}
	}
	timer(r, !list_empty(&r->lanes));
}

uint32_t nvmf_poll(struct engine_reactor *r, uint32_t max)
{
	uint64_t now = clock_boottime_ns();

	take_events(r, now);
	nvmf_kick(r);
	return give_back(r, max);
}

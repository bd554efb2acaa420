/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's thread. A turn: wait; messages of the loop; descriptors; input; admission; engines;
 * output; timers. Must never block but in epoll, and takes no lock. A message is always looked at
 * before I/O of the same turn, so that a revocation is at most one turn away.
 */
#include "dataplane/reactor_priv.h"
#include "common/clock.h"
#include "dataplane/shm.h"
#include "dataplane/tcp_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define EVENTS_MAX   128
#define ROUNDS       8
#define BURIALS      4u
#define SWEEP_BUDGET 2048u

void reactor_send(struct reactor *r, struct dp_op *op)
{
	struct dp_op *head = atomic_load_explicit(&r->inbox, memory_order_relaxed);
	uint64_t one = 1;

	do {
		op->next = head;
	} while (!atomic_compare_exchange_weak_explicit(&r->inbox, &head, op, memory_order_release,
	                                                memory_order_relaxed));
	/* EAGAIN: the counter is full, so it wakes anyway. */
	if (!head && write(r->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static void run_messages(struct reactor *r)
{
	struct dp_op *op, *in_order = NULL;

	if (!atomic_load_explicit(&r->inbox, memory_order_relaxed))
		return;
	op = atomic_exchange_explicit(&r->inbox, NULL, memory_order_acquire);
	while (op) {
		struct dp_op *next = op->next;

		op->next = in_order;
		in_order = op;
		op = next;
	}
	while (in_order) {
		op = in_order;
		in_order = op->next;
		op->run(r, op);
	}
}

static void on_event(struct reactor *r, const struct epoll_event *ev)
{
	struct source *src = ev->data.ptr;
	uint64_t count;

	switch (src->kind) {
	case SOURCE_WAKE:
		if (read(r->wake_fd, &count, sizeof(count)) < 0)
			return;
		break;
	case SOURCE_LISTENER:
		hello_accept(r, container_of(src, struct listener, source));
		break;
	case SOURCE_PREAUTH:
		hello_receive(r, container_of(src, struct preauth, source), ev->events);
		break;
	case SOURCE_SESSION:
		tcp_event(container_of(src, struct tcp_conn, source), ev->events);
		break;
	case SOURCE_VERBS:
		verbs_event(r, src, ev->events);
		break;
	case SOURCE_SHM:
		shm_event(src, ev->events);
		break;
	case SOURCE_ENGINE:
		container_of(src, struct rengine, source)->readable = true;
		break;
	}
}

/* Runs @fn for those that are in the list now; they may put themselves in again. */
static void each_of(struct list *head, size_t link_offset, void (*fn)(struct session *s))
{
	struct list todo;

	if (list_empty(head))
		return;
	todo = *head;
	todo.next->prev = todo.prev->next = &todo;
	list_init(head);
	while (!list_empty(&todo)) {
		struct list *n = todo.next;

		list_del(n);
		fn((struct session *)((char *)n - link_offset));
	}
}

static void receive(struct session *s)
{
	if (session_alive(s))
		s->transport->receive(s);
}

static void flush(struct session *s)
{
	if (session_alive(s))
		s->transport->flush(s);
}

static void work(struct reactor *r)
{
	uint32_t done = 1;

	verbs_poll(r);
	shm_poll(r);
	each_of(&r->input, offsetof(struct session, link_input), receive);
	for (int i = 0; i < ROUNDS && done; i++) {
		done = admit_run(r);
		done += admit_submit(r);
		done += reactor_engines_poll(r);
	}
	r->again |= done > 0;
	each_of(&r->output, offsetof(struct session, link_output), flush);
}

static void tick(struct reactor *r)
{
	if (r->now_ns < r->tick_at_ns)
		return;
	r->tick_at_ns = r->now_ns + REACTOR_TICK_NS;
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++)
		if (r->sessions[i])
			session_tick(r->sessions[i], r->now_ns);
	slots_unstarve(r->slots);
	reactor_engines_share(r);
	r->crowded = 0;
	lease_sweep(r->leases, r->now_ns, SWEEP_BUDGET);
	hello_expire(r);
	hello_accept_again(r);
	verbs_tick(r);
}

/* The last thing of a turn: no pointer to these is left here. Over verbs each is a queue pair that
 * the device has to take apart, so of many some wait for the next turn. */
static void bury(struct reactor *r)
{
	uint32_t most = DP_SWITCH(no_turn_bounds) ? DP_SESSIONS_MAX : BURIALS;

	for (uint32_t n = 0; n < most && !list_empty(&r->gone); n++) {
		struct session *s = list_first(&r->gone, struct session, link_gone);

		list_del(&s->link_gone);
		r->sessions[s->index] = NULL;
		r->n_attached--;
		s->rt->n_sessions--;
		verbs_unlend(s);
		if (s->transport->gone)
			s->transport->gone(s);
		dp_post(s->dp, &s->gone_post, session_on_gone);
	}
	r->again |= !list_empty(&r->gone);
}

static bool has_inbox(const struct reactor *r)
{
	return atomic_load_explicit(&((struct reactor *)r)->inbox, memory_order_relaxed) != NULL;
}

/* NULL: no time limit. */
static const struct timespec *wait_time(struct reactor *r, struct timespec *ts)
{
	uint64_t now = clock_boottime_ns(), at = UINT64_MAX, ns;

	if (r->n_attached || r->n_preauth || r->refused[REFUSED_HELLO].pending.count ||
	    r->refused[REFUSED_CAP].pending.count || r->tcp_listener.paused ||
	    r->shm_listener.paused || r->revokes || verbs_keeps(r))
		at = r->tick_at_ns;
	at = MIN(at, r->wait_at_ns);
	if (now < r->awake_until_ns || r->again || has_inbox(r) || reactor_engines_must_poll(r) ||
	    verbs_must_poll(r) || shm_must_poll(r))
		at = 0;
	if (at == UINT64_MAX)
		return NULL;
	ns = at > now ? at - now : 0;
	ts->tv_sec = (time_t)(ns / NS_PER_S);
	ts->tv_nsec = (long)(ns % NS_PER_S);
	return ts;
}

static int wait_events(struct reactor *r, struct epoll_event *events)
{
	struct timespec ts;
	const struct timespec *until = wait_time(r, &ts);
	int n, ms = -1;

	if (!r->no_pwait2) {
		n = epoll_pwait2(r->epoll_fd, events, EVENTS_MAX, until, NULL);
		/* A sandbox that is older than the call forbids it. */
		if (n >= 0 || (errno != ENOSYS && errno != EPERM))
			return n;
		r->no_pwait2 = true;
	}
	if (until)
		ms = (int)MIN((uint64_t)until->tv_sec * 1000 +
		                      ((uint64_t)until->tv_nsec + 999999) / 1000000,
		              (uint64_t)60000);
	return epoll_wait(r->epoll_fd, events, EVENTS_MAX, ms);
}

static void turn(struct reactor *r)
{
	struct epoll_event events[EVENTS_MAX];
	int n = wait_events(r, events);

	r->again = false;
	r->turn++;
	r->now_ns = clock_boottime_ns();
	run_messages(r);
	for (int i = 0; i < n; i++)
		on_event(r, &events[i]);
	work(r);
	session_revokes_check(r);
	if (n > 0 || r->again)
		r->awake_until_ns = r->now_ns + r->dp->opts.poll_us * NS_PER_US;
	tick(r);
	bury(r);
}

static void end_all(struct reactor *r)
{
	hello_close_all(r);
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++)
		if (r->sessions[i])
			session_end(r->sessions[i], ROS2_CLOSED, "the agent is stopping");
}

static void *reactor_main(void *arg)
{
	struct reactor *r = arg;

	spin_init(&r->spin);
	while (!atomic_load_explicit(&r->stop, memory_order_acquire))
		turn(r);
	/* What was sent before the stop is still answered; then nothing is left but what engines
	 * and devices hold. */
	run_messages(r);
	if (r->tcp_listener.fd >= 0)
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->tcp_listener.fd, NULL);
	if (r->shm_listener.fd >= 0)
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->shm_listener.fd, NULL);
	end_all(r);
	while (r->n_engine || r->n_device || verbs_busy(r)) {
		turn(r);
		end_all(r);
	}
	while (!list_empty(&r->gone))
		bury(r);
	/* First engines, which may keep keys over memory of the others. */
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++)
		reactor_engine_drop(r, i);
	verbs_stop(r);
	session_revokes_drop(r);
	return NULL;
}

static int open_fds(struct reactor *r, struct ros2_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &r->wake_source};
	int rc;

	r->wake_source.kind = SOURCE_WAKE;
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->epoll_fd < 0 || r->wake_fd < 0 ||
	    epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->wake_fd, &ev) < 0)
		return ros2_err_set(err, -errno, "reactor %u: no descriptors: %s", r->index,
		                    strerror(errno));
	rc = tcp_listen(r, r->dp->opts.listen_host, err);
	if (rc == 0)
		rc = shm_listen(r, err);
	return rc == 0 && r->dp->rdma ? verbs_new(r, r->dp->opts.rdma_host, err) : rc;
}

static int make_memory(struct reactor *r, struct ros2_err *err)
{
	uint32_t bytes = r->dp->opts.slot_bytes_total ? r->dp->opts.slot_bytes_total : 64u << 20;
	int rc = lease_table_new(REACTOR_LEASES, r->index, &r->leases);

	if (rc == 0)
		rc = slots_new(bytes, &r->slots);
	r->tenants = calloc(LEASE_TENANTS_MAX, sizeof(*r->tenants));
	if (rc < 0 || !r->tenants)
		return ros2_err_set(err, -ENOMEM, "reactor %u: no memory for leases and slots",
		                    r->index);
	lease_on_end(r->leases, session_lease_ended, r);
	return 0;
}

static void init_lists(struct reactor *r)
{
	list_init(&r->active);
	list_init(&r->ready);
	list_init(&r->input);
	list_init(&r->output);
	list_init(&r->gone);
	list_init(&r->shm);
	r->wait_at_ns = UINT64_MAX;
}

static int make_preauth(struct reactor *r, struct ros2_err *err)
{
	const struct dp_opts *o = &r->dp->opts;

	r->preauth_max = MIN(o->unproved ? o->unproved : PREAUTH_DEFAULT, DP_UNPROVED_MAX);
	r->preauth_per_address = o->unproved_per_address ? o->unproved_per_address : r->preauth_max;
	r->preauth = calloc(r->preauth_max, sizeof(*r->preauth));
	if (!r->preauth)
		return ros2_err_set(err, -ENOMEM, "no memory for a reactor");
	for (uint32_t i = 0; i < r->preauth_max; i++)
		r->preauth[i].fd = -1;
	return 0;
}

static int start_thread(struct reactor *r, struct ros2_err *err)
{
	char name[16];
	int rc = pthread_create(&r->thread, NULL, reactor_main, r);

	if (rc)
		return ros2_err_set(err, -rc, "reactor %u: no thread: %s", r->index, strerror(rc));
	snprintf(name, sizeof(name), "reactor%u", r->index);
	pthread_setname_np(r->thread, name);
	return 0;
}

int reactor_new(struct dp *dp, uint32_t index, struct reactor **ret, struct ros2_err *err)
{
	struct reactor *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a reactor");
	r->dp = dp;
	r->index = index;
	r->epoll_fd = r->wake_fd = r->tcp_listener.fd = r->shm_listener.fd = -1;
	init_lists(r);
	rc = make_memory(r, err);
	if (rc == 0)
		rc = make_preauth(r, err);
	if (rc == 0)
		rc = open_fds(r, err);
	if (rc == 0)
		rc = start_thread(r, err);
	if (rc < 0) {
		reactor_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

void reactor_stop(struct reactor *r)
{
	uint64_t one = 1;

	atomic_store_explicit(&r->stop, true, memory_order_release);
	if (write(r->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort(); /* an eventfd takes 8 bytes: anything else is a bug of ours */
	pthread_join(r->thread, NULL);
}

void reactor_free(struct reactor *r)
{
	if (!r)
		return;
	verbs_free(r);
	lease_table_free(r->leases);
	slots_free(r->slots);
	free(r->tenants);
	free(r->preauth);
	util_close_cleanup(&r->tcp_listener.fd);
	shm_unlisten(r);
	util_close_cleanup(&r->wake_fd);
	util_close_cleanup(&r->epoll_fd);
	free(r);
}

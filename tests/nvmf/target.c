/* SPDX-License-Identifier: Apache-2.0 */
/* The target's life: its thread, what it listens to, and the turn in which things become due. */
#include "tests/nvmf/target_priv.h"

#include "common/clock.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

void target_wake(struct target *t)
{
	uint64_t one = 1;

	if (write(t->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is awake already */
}

static int listen_start(struct target *t)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(t->port)};
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &t->listen_fd};
	socklen_t len = sizeof(a);
	int fd, one = 1;

	if (t->o.carrier)
		return t->o.carrier->listen(t);
	if (inet_pton(AF_INET, t->o.address, &a.sin_addr) != 1)
		return -EINVAL;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0 ||
	    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	if (!t->port) /* once, before there is another thread */
		t->port = ntohs(a.sin_port);
	t->listen_fd = fd;
	return 0;
}

static void listen_stop(struct target *t)
{
	if (t->o.carrier)
		t->o.carrier->unlisten(t);
	else if (t->listen_fd >= 0)
		close(TAKE_FD(t->listen_fd));
}

static uint64_t next_of_conn(const struct conn *c)
{
	uint64_t next = UINT64_MAX;

	if (c->slow_ns && c->tx_at < c->tx_len)
		next = c->slow_next_ns;
	if (c->waiting)
		for (unsigned i = 0; i <= TARGET_DEPTH_MAX; i++)
			if (c->cmds[i].used && c->cmds[i].waiting)
				next = MIN(next, c->cmds[i].due_ns);
	return next;
}

static int wait_ms(struct target *t)
{
	uint64_t next = UINT64_MAX, now = clock_monotonic_ns();
	struct conn *c;
	struct ctrl *k;
	struct orphan *o;

	list_for_each (&t->conns, c, link)
		next = c->dead ? 0 : MIN(next, next_of_conn(c));
	list_for_each (&t->ctrls, k, link)
		next = MIN(next, target_ctrl_next(k));
	list_for_each (&t->orphans, o, link)
		next = MIN(next, o->due_ns);
	if (next == UINT64_MAX)
		return -1;
	return next <= now ? 0 : (int)MIN((next - now) / NS_PER_MS + 1, 60000ull);
}

static void tick_ctrls(struct target *t)
{
	struct ctrl *k, *next;

	t->now_ns = clock_monotonic_ns();
	list_for_each_safe (&t->ctrls, k, next, link)
		target_ctrl_tick(k);
}

static void turn(struct target *t)
{
	struct conn *c, *next_conn;

	t->now_ns = clock_monotonic_ns();
	list_for_each (&t->conns, c, link) {
		if (!c->dead && c->waiting)
			target_cmds_due(c);
		if (!c->dead && !c->aside)
			target_conn_flush(c);
	}
	target_orphans_due(t);
	tick_ctrls(t);
	list_for_each_safe (&t->conns, c, next_conn, link)
		if (c->dead)
			target_conn_free(c);
}

/* With the lock; gives it back while it waits. */
static int wait_events(struct target *t, struct epoll_event *ev, int max)
{
	struct pollfd wake = {.fd = t->wake_fd, .events = POLLIN};
	int ms = wait_ms(t), n;
	bool frozen = t->frozen;

	pthread_mutex_unlock(&t->lock);
	if (frozen) {
		poll(&wake, 1, -1);
		n = epoll_wait(t->epoll_fd, ev, 0, 0);
	} else {
		n = epoll_wait(t->epoll_fd, ev, max, ms);
	}
	pthread_mutex_lock(&t->lock);
	return n;
}

static void *run(void *arg)
{
	struct target *t = arg;
	struct epoll_event ev[64];
	uint64_t drained;

	pthread_mutex_lock(&t->lock);
	while (!t->ending) {
		int n = wait_events(t, ev, ARRAY_SIZE(ev));

		if (read(t->wake_fd, &drained, sizeof(drained)) < 0)
			drained = 0;
		if (t->frozen)
			continue;
		/* First what is over: a machine that hung does nothing that is too late. */
		tick_ctrls(t);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr == &t->listen_fd)
				target_accept(t);
			else if (ev[i].data.ptr == &t->side_fd)
				t->side->turn(t);
			else if (ev[i].data.ptr == &t->carried_fd)
				t->o.carrier->event(t);
			else if (ev[i].data.ptr && !((struct conn *)ev[i].data.ptr)->dead)
				target_conn_event(ev[i].data.ptr, ev[i].events);
		}
		turn(t);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void defaults(struct target_opts *o)
{
	o->address = o->address ? o->address : "127.0.0.1";
	o->queue_depth = o->queue_depth ? o->queue_depth : 128;
	o->maxh2cdata = o->maxh2cdata ? o->maxh2cdata : 131072;
	o->c2h_bytes = o->c2h_bytes ? o->c2h_bytes : 131072;
}

static void release(struct target *t)
{
	listen_stop(t);
	if (t->o.carrier)
		t->o.carrier->close(t);
	if (t->wake_fd >= 0)
		close(t->wake_fd);
	if (t->epoll_fd >= 0)
		close(t->epoll_fd);
	for (unsigned i = 0; i < t->n_subsystems; i++) {
		for (unsigned j = 0; j < TARGET_NAMESPACES; j++)
			if (t->subsystems[i]->ns[j].used)
				munmap(t->subsystems[i]->ns[j].media,
				       MAX(t->subsystems[i]->ns[j].blocks, 1) *
				               t->subsystems[i]->ns[j].block_size);
		free(t->subsystems[i]);
	}
	free(t->log);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static int prepare(struct target *t)
{
	struct target_subsys_opts discovery = {.nqn = TARGET_DISCOVERY_NQN};
	struct epoll_event ev = {.events = EPOLLIN};
	int rc;

	t->log = calloc(LOG_MAX, sizeof(*t->log));
	if (!t->log)
		return -ENOMEM;
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (t->epoll_fd < 0 || t->wake_fd < 0 ||
	    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->wake_fd, &ev) < 0)
		return -errno;
	rc = target_add_subsystem(t, &discovery);
	if (rc)
		return rc;
	t->subsystems[0]->discovery = true;
	return listen_start(t);
}

int target_new(const struct target_opts *o, struct target **ret)
{
	struct target *t;
	int rc;

	if (o->queue_depth > TARGET_DEPTH_MAX || o->maxh2cdata > RX_MAX / 2)
		return -EINVAL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->epoll_fd = t->wake_fd = t->listen_fd = t->carried_fd = -1;
	t->o = *o;
	t->port = o->port;
	t->next_cntlid = 1;
	t->now_ns = clock_monotonic_ns();
	defaults(&t->o);
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->conns);
	list_init(&t->ctrls);
	list_init(&t->orphans);
	rc = prepare(t);
	if (!rc)
		rc = -pthread_create(&t->thread, NULL, run, t);
	if (rc) {
		release(t);
		return rc;
	}
	*ret = t;
	return 0;
}

static void end_all(struct target *t)
{
	struct conn *c;
	struct ctrl *k, *next;

	list_for_each (&t->conns, c, link)
		if (!c->dead)
			target_conn_end(c, true);
	list_for_each_safe (&t->ctrls, k, next, link)
		target_ctrl_end(k, true);
}

static void orphans_free(struct target *t)
{
	struct orphan *o, *next;

	list_for_each_safe (&t->orphans, o, next, link) {
		list_del(&o->link);
		free(o->data);
		free(o);
	}
}

void target_free(struct target *t)
{
	struct conn *c, *next;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	t->keep_orphans = false;
	end_all(t);
	list_for_each_safe (&t->conns, c, next, link)
		target_conn_free(c);
	orphans_free(t);
	release(t);
}

uint16_t target_port(const struct target *t)
{
	return t->port;
}

void target_stop(struct target *t)
{
	pthread_mutex_lock(&t->lock);
	listen_stop(t);
	t->stopped = true;
	end_all(t);
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
}

static int listen_as_told(struct target *t)
{
	int rc = 0;

	if (t->stopped || t->refusing)
		listen_stop(t);
	else if (t->o.carrier || t->listen_fd < 0)
		rc = listen_start(t);
	target_wake(t);
	return rc;
}

int target_start(struct target *t)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	t->stopped = false;
	rc = listen_as_told(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

int target_refuse(struct target *t, bool on)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	t->refusing = on;
	rc = listen_as_told(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

unsigned target_drop(struct target *t, int qid)
{
	struct conn *c;
	unsigned n = 0;

	pthread_mutex_lock(&t->lock);
	list_for_each (&t->conns, c, link) {
		if (c->dead || (qid >= 0 && (!c->ctrl || c->qid != qid)))
			continue;
		target_conn_end(c, true);
		n++;
	}
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return n;
}

void target_freeze(struct target *t, bool on)
{
	pthread_mutex_lock(&t->lock);
	t->frozen = on;
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
}

void target_delay(struct target *t, uint32_t ms, bool orphans)
{
	pthread_mutex_lock(&t->lock);
	t->delay_ms = ms;
	t->keep_orphans = orphans;
	pthread_mutex_unlock(&t->lock);
}

void target_pace(struct target *t, uint32_t us)
{
	pthread_mutex_lock(&t->lock);
	t->pace_ns = us * NS_PER_US;
	pthread_mutex_unlock(&t->lock);
}

void target_release(struct target *t)
{
	struct orphan *o;
	struct conn *c;

	pthread_mutex_lock(&t->lock);
	list_for_each (&t->conns, c, link)
		for (unsigned i = 0; i <= TARGET_DEPTH_MAX && c->waiting; i++)
			c->cmds[i].due_ns = 0;
	list_for_each (&t->orphans, o, link)
		o->due_ns = 0;
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
}

unsigned target_event(struct target *t, uint32_t dword0)
{
	struct ctrl *k;
	unsigned n = 0;

	pthread_mutex_lock(&t->lock);
	list_for_each (&t->ctrls, k, link)
		n += target_event_send(k, dword0);
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See relay.h. One thread polls; whoever cuts does so under the lock, and the thread looks at its
 * table again before it touches what poll told it of. */
#include "tests/faults/relay.h"
#include "tests/testing.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define CONNS_MAX 64

struct conn {
	int fd[2]; /* who came, where it goes; -1: free */
	unsigned line;
	bool dead; /* cut */
};

struct relay {
	pthread_t thread;
	int wake;
	pthread_mutex_t lock;
	/* guarded by lock */
	int listener[RELAY_LINES];
	uint16_t target[RELAY_LINES];
	bool refuse[RELAY_LINES]; /* the next one */
	struct conn conns[CONNS_MAX];
	uint64_t changed; /* grows with each descriptor that is closed or opened */
	bool ending;
};

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_port = htons(port),
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* The end goes to both, and nothing more; what they still send is read and thrown away until they
 * have closed. */
static void drop(struct relay *r, struct conn *p)
{
	p->dead = true;
	for (int side = 0; side < 2; side++)
		if (p->fd[side] >= 0)
			shutdown(p->fd[side], SHUT_WR);
	r->changed++;
}

static void close_side(struct relay *r, struct conn *p, int side)
{
	close(p->fd[side]);
	p->fd[side] = -1;
	r->changed++;
}

static bool is_free(const struct conn *p)
{
	return p->fd[0] < 0 && p->fd[1] < 0;
}

static void take_in(struct relay *r, unsigned line)
{
	struct sockaddr_in to = loopback(r->target[line]);
	int in = accept4(r->listener[line], NULL, NULL, SOCK_CLOEXEC);
	bool serve = r->target[line] && !r->refuse[line];
	struct conn *p = r->conns;

	assert_true(in >= 0);
	r->refuse[line] = false;
	while (p < r->conns + CONNS_MAX && !is_free(p))
		p++;
	assert_true(p < r->conns + CONNS_MAX);
	*p = (struct conn){{in, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, line, false};
	r->changed++;
	for (int side = 0; side < 2; side++)
		setsockopt(p->fd[side], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	if (serve && !connect(p->fd[1], (struct sockaddr *)&to, sizeof(to)))
		return;
	close_side(r, p, 1);
	drop(r, p);
}

/* What is there goes over; false: this connection has ended. */
static bool carry(const struct conn *p, int from)
{
	static char buf[65536]; /* of the one thread */
	ssize_t n = recv(p->fd[from], buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	for (ssize_t done = 0, w; !p->dead && done < n; done += w) {
		w = send(p->fd[!from], buf + done, (size_t)(n - done), MSG_NOSIGNAL);
		if (w < 0)
			return false;
	}
	return n > 0;
}

static size_t collect(struct relay *r, struct pollfd *v)
{
	size_t n = 0;

	v[n++] = (struct pollfd){r->wake, POLLIN, 0};
	for (unsigned i = 0; i < RELAY_LINES; i++)
		v[n++] = (struct pollfd){r->listener[i], POLLIN, 0};
	for (int i = 0; i < CONNS_MAX; i++)
		for (int side = 0; side < 2; side++)
			v[n++] = (struct pollfd){r->conns[i].fd[side], POLLIN, 0};
	return n;
}

static void act(struct relay *r, const struct pollfd *v)
{
	uint64_t seen = r->changed;

	for (unsigned i = 0; i < RELAY_LINES; i++)
		if (v[1 + i].revents)
			take_in(r, i);
	for (int i = 0; i < CONNS_MAX && r->changed == seen; i++)
		for (int side = 0; side < 2; side++) {
			struct conn *p = &r->conns[i];

			if (!v[1 + RELAY_LINES + 2 * i + side].revents || p->fd[side] < 0 ||
			    carry(p, side))
				continue;
			if (!p->dead)
				drop(r, p);
			close_side(r, p, side);
		}
}

static void *run(void *arg)
{
	struct pollfd v[1 + RELAY_LINES + 2 * CONNS_MAX];
	struct relay *r = arg;
	uint64_t seen, n;
	size_t nfds;

	pthread_mutex_lock(&r->lock);
	while (!r->ending) {
		nfds = collect(r, v);
		seen = r->changed;
		pthread_mutex_unlock(&r->lock);
		poll(v, nfds, -1);
		pthread_mutex_lock(&r->lock);
		if (v[0].revents && read(r->wake, &n, sizeof(n)) < 0)
			break;
		if (r->changed == seen)
			act(r, v);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void wake(struct relay *r)
{
	uint64_t one = 1;

	assert_int_equal(write(r->wake, &one, sizeof(one)), sizeof(one));
}

struct relay *relay_new(void)
{
	struct relay *r = calloc(1, sizeof(*r));

	pthread_mutex_init(&r->lock, NULL);
	r->wake = eventfd(0, EFD_CLOEXEC);
	for (unsigned i = 0; i < RELAY_LINES; i++)
		r->listener[i] = -1;
	for (int i = 0; i < CONNS_MAX; i++)
		r->conns[i].fd[0] = r->conns[i].fd[1] = -1;
	assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
	return r;
}

void relay_free(struct relay *r)
{
	pthread_mutex_lock(&r->lock);
	r->ending = true;
	pthread_mutex_unlock(&r->lock);
	wake(r);
	pthread_join(r->thread, NULL);
	for (int i = 0; i < CONNS_MAX; i++)
		for (int side = 0; side < 2; side++)
			if (r->conns[i].fd[side] >= 0)
				close_side(r, &r->conns[i], side);
	for (unsigned i = 0; i < RELAY_LINES; i++)
		if (r->listener[i] >= 0)
			close(r->listener[i]);
	close(r->wake);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

uint16_t relay_line(struct relay *r, unsigned line, uint16_t target)
{
	struct sockaddr_in at = loopback(0);
	socklen_t n = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, n), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
	pthread_mutex_lock(&r->lock);
	r->listener[line] = fd;
	r->target[line] = target;
	r->changed++;
	pthread_mutex_unlock(&r->lock);
	wake(r);
	return ntohs(at.sin_port);
}

void relay_target(struct relay *r, unsigned line, uint16_t target)
{
	pthread_mutex_lock(&r->lock);
	r->target[line] = target;
	pthread_mutex_unlock(&r->lock);
}

void relay_cut(struct relay *r, unsigned line)
{
	pthread_mutex_lock(&r->lock);
	for (int i = 0; i < CONNS_MAX; i++)
		if (!is_free(&r->conns[i]) && !r->conns[i].dead && r->conns[i].line == line)
			drop(r, &r->conns[i]);
	pthread_mutex_unlock(&r->lock);
	wake(r);
}

void relay_refuse_next(struct relay *r, unsigned line)
{
	pthread_mutex_lock(&r->lock);
	r->refuse[line] = true;
	pthread_mutex_unlock(&r->lock);
}

void relay_refuse_none(struct relay *r)
{
	pthread_mutex_lock(&r->lock);
	memset(r->refuse, 0, sizeof(r->refuse));
	pthread_mutex_unlock(&r->lock);
}

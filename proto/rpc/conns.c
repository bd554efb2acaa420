/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many connections a listener has, overall and per source address. gRPC 1.51 offers no such
 * limit, but it shows every accepted socket to its "socket mutator" before the TLS handshake; one
 * too many is shut down there and dies without costing a handshake. gRPC does not say when a socket
 * is closed: entries are checked (same descriptor, same inode) when a limit is met or somebody
 * asks. The struct of a mutator is not in a public header; its shape here is that of gRPC 1.10
 * to 1.60 (src/core/lib/iomgr/socket_mutator.h), and a test fails if it stops counting.
 */
#include "proto/rpc/rpc_priv.h"
#include <arpa/inet.h>
#include <errno.h>
#include <grpc/support/sync.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum fd_usage { FD_CLIENT_CONNECTION, FD_SERVER_LISTENER, FD_SERVER_CONNECTION };

struct mutate_info {
	int fd;
	enum fd_usage usage;
};

struct mutator;
struct mutator_vtable {
	bool (*mutate_fd)(int fd, struct mutator *m);
	int (*compare)(struct mutator *a, struct mutator *b);
	void (*destroy)(struct mutator *m);
	bool (*mutate_fd_2)(const struct mutate_info *info, struct mutator *m);
};

struct mutator {
	const struct mutator_vtable *vtable;
	gpr_refcount refs;
};

struct conn {
	int fd;
	ino_t ino;
	struct in6_addr source; /* IPv4 mapped */
};

struct rpc_conns {
	struct mutator m; /* first */
	size_t max, max_per_source;
	pthread_mutex_t lock;
	/* guarded by lock */
	struct conn *open; /* max entries */
	size_t n;
	uint64_t refused;
};

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) || !S_ISSOCK(st.st_mode) ? 0 : st.st_ino;
}

static bool source_of(int fd, struct in6_addr *ret)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	memset(ret, 0, sizeof(*ret));
	if (getpeername(fd, (struct sockaddr *)&ss, &len))
		return false;
	if (ss.ss_family == AF_INET6) {
		*ret = ((struct sockaddr_in6 *)&ss)->sin6_addr;
	} else if (ss.ss_family == AF_INET) {
		ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
		memcpy(&ret->s6_addr[12], &((struct sockaddr_in *)&ss)->sin_addr, 4);
	}
	return true;
}

static void forget_closed(struct rpc_conns *c)
{
	for (size_t i = 0; i < c->n;) {
		if (inode_of(c->open[i].fd) == c->open[i].ino)
			i++;
		else
			c->open[i] = c->open[--c->n];
	}
}

static size_t count_source(const struct rpc_conns *c, const struct in6_addr *source)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		n += !memcmp(&c->open[i].source, source, sizeof(*source));
	return n;
}

/* Under the lock. */
static bool admit(struct rpc_conns *c, int fd)
{
	struct conn new = {.fd = fd, .ino = inode_of(fd)};

	if (!source_of(fd, &new.source))
		return false;
	/* The kernel gives a descriptor again only after it was closed. */
	for (size_t i = 0; i < c->n; i++)
		if (c->open[i].fd == fd)
			c->open[i--] = c->open[--c->n];
	if (c->n >= c->max || count_source(c, &new.source) >= c->max_per_source)
		forget_closed(c);
	if (c->n >= c->max || count_source(c, &new.source) >= c->max_per_source)
		return false;
	c->open[c->n++] = new;
	return true;
}

static bool mutate(const struct mutate_info *info, struct mutator *m)
{
	struct rpc_conns *c = container_of(m, struct rpc_conns, m);

	if (info->usage != FD_SERVER_CONNECTION)
		return true;
	pthread_mutex_lock(&c->lock);
	if (!admit(c, info->fd)) {
		c->refused++;
		/* Answering false would stop the listener. */
		shutdown(info->fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&c->lock);
	rpc_tsan_release(c);
	return true;
}

static bool mutate_old(int fd, struct mutator *m)
{
	return true;
}

static int compare(struct mutator *a, struct mutator *b)
{
	return a < b ? -1 : a > b;
}

static void destroy(struct mutator *m)
{
	struct rpc_conns *c = container_of(m, struct rpc_conns, m);

	rpc_tsan_acquire(c);
	pthread_mutex_destroy(&c->lock);
	free(c->open);
	free(c);
}

static const struct mutator_vtable vtable = {mutate_old, compare, destroy, mutate};

struct rpc_conns *rpc_conns_new(size_t max, size_t max_per_source)
{
	struct rpc_conns *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->m.vtable = &vtable;
	gpr_ref_init(&c->m.refs, 1);
	pthread_mutex_init(&c->lock, NULL);
	c->max = max;
	c->max_per_source = max_per_source;
	c->open = calloc(max, sizeof(*c->open));
	if (!c->open) {
		destroy(&c->m);
		return NULL;
	}
	return c;
}

void rpc_conns_unref(struct rpc_conns *c)
{
	rpc_tsan_release(c);
	if (gpr_unref(&c->m.refs))
		destroy(&c->m);
}

static void *arg_copy(void *p)
{
	gpr_ref(&((struct mutator *)p)->refs);
	return p;
}

static void arg_destroy(void *p)
{
	rpc_conns_unref(p);
}

static int arg_cmp(void *a, void *b)
{
	return a < b ? -1 : a > b;
}

grpc_arg rpc_conns_arg(struct rpc_conns *c)
{
	static const grpc_arg_pointer_vtable arg_vtable = {arg_copy, arg_destroy, arg_cmp};
	grpc_arg arg = {.type = GRPC_ARG_POINTER, .key = (char *)GRPC_ARG_SOCKET_MUTATOR};

	arg.value.pointer.p = &c->m;
	arg.value.pointer.vtable = &arg_vtable;
	return arg;
}

void rpc_conns_stats(struct rpc_conns *c, uint64_t *ret_now, uint64_t *ret_refused)
{
	pthread_mutex_lock(&c->lock);
	forget_closed(c);
	*ret_now = c->n;
	*ret_refused = c->refused;
	pthread_mutex_unlock(&c->lock);
}

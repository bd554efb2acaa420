/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many connections a listener has, overall and per source address. gRPC 1.51 offers no such
 * limit, but it shows every accepted socket to its "socket mutator" before the TLS handshake; one
 * too many is shut down there and dies without costing a handshake. gRPC does not say when a socket
 * is closed: entries are checked (same descriptor, same inode) when a limit is met or somebody
 * asks, and once a second while they have made no call: one that ends so was refused by TLS or
 * given up, and is told as that (refusals.c). The struct of a mutator is not in a public header;
 * its shape here is that of gRPC 1.10 to 1.60 (src/core/lib/iomgr/socket_mutator.h), and a test
 * fails if it stops counting.
 */
#include "common/hash.h"
#include "proto/rpc/rpc_priv.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <grpc/support/sync.h>
#include <stdio.h>
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
	char address[64];       /* as peers are named */
	bool called;            /* or not to be told apart from one that has */
	uint64_t judged;        /* by this generation of client CAs; 0: by TLS only */
	bool distrusted;        /* how */
	uint8_t cert[32];       /* who: a call of an earlier connection from here may still come */
	UT_hash_handle hh;
};

struct rpc_conns {
	struct mutator m; /* first */
	size_t max, max_per_source;
	const char *name; /* of who sets them, or NULL */
	pthread_mutex_t lock;
	struct rpc_refusals *refusals; /* a reference */
	/* guarded by lock */
	struct conn *by_address; /* owned; at most max */
	uint64_t refused, refused_per_source, handshakes;
};

/* 0: not a socket (any more). The descriptor may be closed, or be something else's by now, at any
 * moment: that is the question. (ThreadSanitizer would call an fstat of it a race.) */
static ino_t inode_of(int fd)
{
	struct stat st;

	return fstatat(fd, "", &st, AT_EMPTY_PATH) || !S_ISSOCK(st.st_mode) ? 0 : st.st_ino;
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

/* As gRPC names it, so that a call finds its connection. False when it may not: of an address with
 * a scope we do not know how. */
static bool name_of(int fd, char out[64])
{
	struct sockaddr_storage ss;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&ss;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&ss;
	socklen_t len = sizeof(ss);
	char host[INET6_ADDRSTRLEN];

	snprintf(out, 64, "fd:%d", fd);
	if (getpeername(fd, (struct sockaddr *)&ss, &len))
		return false;
	if (ss.ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(out, 64, "%s:%u", host, ntohs(v4->sin_port));
		return true;
	}
	if (ss.ss_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof(host));
		snprintf(out, 64, "%s:%u", host, ntohs(v6->sin6_port));
		return true;
	}
	inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	snprintf(out, 64, "[%s]:%u", host, ntohs(v6->sin6_port));
	return !v6->sin6_scope_id;
}

/* ---- those that are open; under the lock ---- */

/* It has ended. */
static void forget(struct rpc_conns *c, struct conn *k)
{
	if (!k->called) {
		c->handshakes++;
		rpc_refusals_add(
			c->refusals,
			&(struct rpc_refusal){.why = RPC_REFUSED_HANDSHAKE,
		                              .status = ROS2_UNAUTHENTICATED,
		                              .address = k->address,
		                              .words = "the connection ended without a call: no "
		                                       "certificate that is accepted here, another "
		                                       "error of TLS, or given up"});
	}
	HASH_DEL(c->by_address, k);
	free(k);
}

static void forget_closed(struct rpc_conns *c)
{
	struct conn *k, *tmp;

	HASH_ITER (hh, c->by_address, k, tmp)
		if (inode_of(k->fd) != k->ino)
			forget(c, k);
}

static size_t count_source(const struct rpc_conns *c, const struct in6_addr *source)
{
	size_t n = 0;

	for (const struct conn *k = c->by_address; k; k = k->hh.next)
		n += !memcmp(&k->source, source, sizeof(*source));
	return n;
}

static bool over(const struct rpc_conns *c, const struct conn *new, enum rpc_refused *ret)
{
	*ret = RPC_REFUSED_CONNECTIONS;
	if (HASH_COUNT(c->by_address) >= c->max)
		return true;
	*ret = RPC_REFUSED_CONNECTIONS_PER_SOURCE;
	return count_source(c, &new->source) >= c->max_per_source;
}

static void tell_cap(struct rpc_conns *c, enum rpc_refused why, const char *address)
{
	bool all = why == RPC_REFUSED_CONNECTIONS;
	char words[128];

	++*(all ? &c->refused : &c->refused_per_source);
	snprintf(words, sizeof(words), "%s%s%s: the listener has its %zu connections%s",
	         rpc_refused_to_str(why), c->name ? " of " : "", c->name ? c->name : "",
	         all ? c->max : c->max_per_source, all ? "" : " from this address");
	rpc_refusals_add(c->refusals, &(struct rpc_refusal){.why = why,
	                                                    .status = ROS2_LIMIT,
	                                                    .address = address,
	                                                    .words = words});
}

static bool admit(struct rpc_conns *c, int fd)
{
	struct conn *new = calloc(1, sizeof(*new)), *k, *tmp;
	enum rpc_refused why;

	if (!new)
		return false;
	new->fd = fd;
	new->ino = inode_of(fd);
	new->called = !name_of(fd, new->address);
	if (!source_of(fd, &new->source)) {
		free(new);
		return false;
	}
	/* The kernel gives a descriptor, or a port, again only after it was closed. */
	HASH_ITER (hh, c->by_address, k, tmp)
		if (k->fd == fd || !strcmp(k->address, new->address))
			forget(c, k);
	if (over(c, new, &why))
		forget_closed(c);
	if (over(c, new, &why)) {
		tell_cap(c, why, new->address);
		free(new);
		return false;
	}
	HASH_ADD_STR(c->by_address, address, new);
	if (!HASH_TOOK(hh, new)) { /* not counted is not taken */
		free(new);
		return false;
	}
	return true;
}

static bool mutate(const struct mutate_info *info, struct mutator *m)
{
	struct rpc_conns *c = container_of(m, struct rpc_conns, m);

	if (info->usage != FD_SERVER_CONNECTION)
		return true;
	pthread_mutex_lock(&c->lock);
	if (!admit(c, info->fd))
		/* Answering false would stop the listener. */
		shutdown(info->fd, SHUT_RDWR);
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
	struct conn *k, *tmp;

	rpc_tsan_acquire(c);
	HASH_ITER (hh, c->by_address, k, tmp) {
		HASH_DEL(c->by_address, k);
		free(k);
	}
	rpc_refusals_unref(c->refusals);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct mutator_vtable vtable = {mutate_old, compare, destroy, mutate};

struct rpc_conns *rpc_conns_new(const struct rpc_limits *lim, struct rpc_refusals *refusals)
{
	struct rpc_conns *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->m.vtable = &vtable;
	gpr_ref_init(&c->m.refs, 1);
	pthread_mutex_init(&c->lock, NULL);
	c->max = lim->max_connections;
	c->max_per_source = lim->max_connections_per_source;
	c->name = lim->connections_name;
	c->refusals = rpc_refusals_ref(refusals);
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

void rpc_conns_called(struct rpc_conns *c, const char *address)
{
	struct conn *k;

	pthread_mutex_lock(&c->lock);
	HASH_FIND_STR(c->by_address, address, k);
	if (k)
		k->called = true;
	pthread_mutex_unlock(&c->lock);
}

int rpc_conns_trust(struct rpc_conns *c, const char *address, const uint8_t cert[32],
                    uint64_t generation)
{
	struct conn *k;
	int word = 0;

	pthread_mutex_lock(&c->lock);
	HASH_FIND_STR(c->by_address, address, k);
	if (k && k->judged == generation && !memcmp(k->cert, cert, sizeof(k->cert)))
		word = k->distrusted ? -1 : 1;
	pthread_mutex_unlock(&c->lock);
	return word;
}

void rpc_conns_judged(struct rpc_conns *c, const char *address, const uint8_t cert[32],
                      uint64_t generation, bool well)
{
	struct conn *k;

	pthread_mutex_lock(&c->lock);
	HASH_FIND_STR(c->by_address, address, k);
	if (k) {
		k->judged = generation;
		k->distrusted = !well;
		memcpy(k->cert, cert, sizeof(k->cert));
	}
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_sweep(struct rpc_conns *c)
{
	struct conn *k, *tmp;

	pthread_mutex_lock(&c->lock);
	HASH_ITER (hh, c->by_address, k, tmp)
		if (!k->called && inode_of(k->fd) != k->ino)
			forget(c, k);
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_stats(struct rpc_conns *c, struct rpc_server_stats *ret)
{
	pthread_mutex_lock(&c->lock);
	forget_closed(c);
	ret->connections_now = HASH_COUNT(c->by_address);
	ret->refused_connections = c->refused;
	ret->refused_connections_per_source = c->refused_per_source;
	ret->refused_handshakes = c->handshakes;
	pthread_mutex_unlock(&c->lock);
}

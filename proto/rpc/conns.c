/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many connections a listener has, overall and per source address. gRPC 1.51 offers no such
 * limit, but it shows every accepted socket to its "socket mutator" before the TLS handshake. For
 * one too many another is ended, the one with the least claim to its place (conns_priv.h); where
 * there is none such, the new one is shut down and dies without costing a handshake. gRPC does not
 * say when a socket is closed: entries are checked (same descriptor, same inode) when a limit is
 * met, no more often than each CHECK_MS, or somebody asks, and once a second while they have made
 * no call: one that ends so was refused by TLS or given up, and is told as that (refusals.c).
 * Invariant: what is shut down is the connection that was meant, whoever has its descriptor by
 * then.
 */
#define LOG_COMPONENT "rpc"
#include "common/clock.h"
#include "common/log.h"
#include "proto/rpc/conns_priv.h"
#include "proto/rpc/headers_priv.h"
#include "proto/rpc/mutator_priv.h"
#include "proto/rpc/rpc_priv.h"
#include <arpa/inet.h>
#include <limits.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Each look at all of them costs a system call for each, under the lock that calls take. */
#define CHECK_MS 100

/* A message of this length is refused in words, however short they have to be at a listener. */
#define MESSAGE_TOLD (8ul << 20)

struct rpc_conns {
	struct mutator m; /* first */
	size_t max, max_per_source, read_bytes, message_bytes;
	int receive_bytes;
	const char *name; /* of who sets them, or NULL */
	pthread_mutex_t lock;
	struct rpc_refusals *refusals; /* a reference */
	/* guarded by lock */
	struct conns_table table; /* at most max */
	bool told_unseen;
	uint64_t checked_ns;
	uint64_t refused, refused_per_source, ended, handshakes, futile;
};

/* As gRPC names it, so that a call finds its connection. False when it may not: of another family
 * we do not know how. */
static bool name_of(int fd, const struct sockaddr_storage *ss, char out[64])
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ss;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)ss;
	char host[INET6_ADDRSTRLEN];

	snprintf(out, 64, "fd:%d", fd);
	if (ss->ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
		snprintf(out, 64, "%s:%u", host, ntohs(v4->sin_port));
		return true;
	}
	if (ss->ss_family != AF_INET6)
		return false;
	if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof(host));
		snprintf(out, 64, "%s:%u", host, ntohs(v6->sin6_port));
		return true;
	}
	inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	/* A link-local one has a scope: by its number, as gRPC does it. */
	if (v6->sin6_scope_id)
		snprintf(out, 64, "[%.39s%%%u]:%u", host, v6->sin6_scope_id, ntohs(v6->sin6_port));
	else
		snprintf(out, 64, "[%s]:%u", host, ntohs(v6->sin6_port));
	return true;
}

/* NULL: it has ended already, or no memory. */
static struct rpc_conn *conn_new(int fd, struct host_key *ret_from)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct rpc_conn *k;

	memset(&ss, 0, sizeof(ss));
	if (getpeername(fd, (struct sockaddr *)&ss, &len))
		return NULL;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->fd = fd;
	k->ino = rpc_socket_ino(fd);
	k->nameless = !name_of(fd, &ss, k->address);
	k->called = k->nameless;
	k->since_ns = clock_monotonic_ns();
	list_init(&k->of_source);
	*ret_from = host_key_of(&ss);
	return k;
}

/* ---- those that are open; under the lock ---- */

static void drop(struct rpc_conns *c, struct rpc_conn *k)
{
	rpc_gate_remove(k->fd, c);
	conns_remove(&c->table, k);
}

/* It has ended by itself. */
static void forget(struct rpc_conns *c, struct rpc_conn *k)
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
	drop(c, k);
}

static void forget_closed(struct rpc_conns *c)
{
	struct rpc_conn *k, *tmp;

	HASH_ITER (hh, c->table.by_address, k, tmp)
		if (rpc_socket_ino(k->fd) != k->ino)
			forget(c, k);
}

static void forget_closed_in_time(struct rpc_conns *c, uint64_t now_ns)
{
	if (c->checked_ns && now_ns < c->checked_ns + CHECK_MS * NS_PER_MS)
		return;
	c->checked_ns = now_ns;
	forget_closed(c);
}

/* No place for one more from there. @ret: by which cap. */
static bool over(const struct rpc_conns *c, const struct host_key *from, enum rpc_refused *ret)
{
	*ret = RPC_REFUSED_CONNECTIONS_PER_SOURCE;
	if (conns_count_source(&c->table, from) >= c->max_per_source)
		return true;
	*ret = RPC_REFUSED_CONNECTIONS;
	return conns_count(&c->table) >= c->max;
}

/* @how: what became of whom, in words. */
static void tell_cap(struct rpc_conns *c, enum rpc_refused why, const char *address,
                     const char *how)
{
	bool all = why == RPC_REFUSED_CONNECTIONS;
	char words[192];

	++*(all ? &c->refused : &c->refused_per_source);
	snprintf(words, sizeof(words), "%s%s%s: the listener has its %zu connections%s%s",
	         rpc_refused_to_str(why), c->name ? " of " : "", c->name ? c->name : "",
	         all ? c->max : c->max_per_source, all ? "" : " from this address", how);
	rpc_refusals_add(c->refusals, &(struct rpc_refusal){.why = why,
	                                                    .status = ROS2_LIMIT,
	                                                    .address = address,
	                                                    .words = words});
}

static void tell_futile(struct rpc_conns *c, const char *spiffe_id, const char *address,
                        const char *words)
{
	c->futile++;
	rpc_refusals_add(c->refusals, &(struct rpc_refusal){.why = RPC_REFUSED_FUTILE,
	                                                    .status = ROS2_LIMIT,
	                                                    .spiffe_id = spiffe_id,
	                                                    .address = address,
	                                                    .words = words});
}

/* Ends the one that has the least claim to its place. False: there is none such. */
static bool make_room(struct rpc_conns *c, const struct host_key *from, enum rpc_refused why,
                      uint64_t now_ns)
{
	bool all = why == RPC_REFUSED_CONNECTIONS;
	struct rpc_conn *k = conns_choose(&c->table, all ? NULL : from,
	                                  all ? c->max : c->max_per_source, now_ns);
	char how[64] = "; without a call, this one made room";

	if (!k)
		return false;
	if (!rpc_socket_end(k->fd, k->ino)) {
		if (rpc_socket_ino(k->fd) == k->ino)
			return false;
		forget(c, k);
		return true;
	}
	if (k->calls)
		snprintf(how, sizeof(how), "; of a caller who is not known, this one made room");
	else if (k->called)
		snprintf(how, sizeof(how), "; idle for %llu s, this one made room",
		         (unsigned long long)((now_ns - k->since_ns) / NS_PER_S));
	tell_cap(c, why, k->address, how);
	c->ended++;
	drop(c, k);
	return true;
}

/* The kernel gives a descriptor, or a port, again only after it was closed. */
static void forget_namesakes(struct rpc_conns *c, const struct rpc_conn *new)
{
	struct rpc_conn *k = conns_find_fd(&c->table, new->fd);

	if (k)
		forget(c, k);
	k = conns_find(&c->table, new->address);
	if (k)
		forget(c, k);
}

static bool admit(struct rpc_conns *c, int fd)
{
	struct host_key from;
	struct rpc_conn *new = conn_new(fd, &from);
	enum rpc_refused why;

	if (!new)
		return false;
	forget_namesakes(c, new);
	if (over(c, &from, &why))
		forget_closed_in_time(c, new->since_ns);
	if (over(c, &from, &why) && !make_room(c, &from, why, new->since_ns)) {
		tell_cap(c, why, new->address, "");
		free(new);
		return false;
	}
	if (!rpc_gate_add(fd, c) || !conns_add(&c->table, new, &from)) {
		rpc_gate_remove(fd, c);
		free(new);
		return false;
	}
	return true;
}

static bool mutate(const struct mutate_info *info, struct mutator *m)
{
	struct rpc_conns *c = container_of(m, struct rpc_conns, m);

	/* gRPC is kept to this: so much it may find at most when a connection was ended. Of the
	 * listener, too: the window that a SYN was answered with is not taken back. */
	setsockopt(info->fd, SOL_SOCKET, SO_RCVBUF, &c->receive_bytes, sizeof(c->receive_bytes));
	if (info->usage == FD_SERVER_LISTENER)
		rpc_gate_listen(info->fd);
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

static void destroy(struct mutator *m)
{
	struct rpc_conns *c = container_of(m, struct rpc_conns, m);
	struct rpc_conn *k, *tmp;

	rpc_tsan_acquire(c);
	rpc_gate_close();
	HASH_ITER (hh, c->table.by_address, k, tmp)
		drop(c, k);
	rpc_gate_closed();
	conns_clear(&c->table);
	rpc_refusals_unref(c->refusals);
	rpc_socket_unreserve();
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static const struct mutator_vtable vtable = {rpc_mutator_old, rpc_mutator_compare, destroy, mutate};

struct rpc_conns *rpc_conns_new(const struct rpc_limits *lim, struct rpc_refusals *refusals)
{
	struct rpc_conns *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	rpc_socket_reserve();
	rpc_mutator_init(&c->m, &vtable);
	pthread_mutex_init(&c->lock, NULL);
	conns_init(&c->table);
	c->max = lim->max_connections;
	c->max_per_source = lim->max_connections_per_source;
	c->read_bytes = MIN(lim->receive_bytes, RPC_READ_MAX);
	c->message_bytes = MAX(2 * lim->max_message_bytes, MESSAGE_TOLD);
	c->receive_bytes = (int)MIN(lim->receive_bytes, INT_MAX);
	c->name = lim->connections_name;
	c->refusals = rpc_refusals_ref(refusals);
	return c;
}

void rpc_conns_unref(struct rpc_conns *c)
{
	rpc_mutator_unref(&c->m);
}

grpc_arg rpc_conns_arg(struct rpc_conns *c)
{
	return rpc_mutator_arg(&c->m);
}

struct rpc_conn *rpc_conns_called(struct rpc_conns *c, const char *address, const char *group,
                                  bool *ret_crowded)
{
	struct rpc_conn *k;
	bool unseen;

	pthread_mutex_lock(&c->lock);
	k = conns_find(&c->table, address);
	if (k)
		conns_called(&c->table, k, group, clock_monotonic_ns());
	*ret_crowded = k && conns_crowded(&c->table, k, c->max_per_source, c->max);
	unseen = k && !k->seen && !c->told_unseen;
	c->told_unseen |= unseen;
	pthread_mutex_unlock(&c->lock);
	if (unseen)
		log_error("gRPC does not read by recvmsg(2) of this program: what it reads is not "
		          "bounded, and one caller can keep all others waiting");
	return k;
}

void rpc_conns_call_over(struct rpc_conns *c, struct rpc_conn *k)
{
	if (!k)
		return;
	pthread_mutex_lock(&c->lock);
	conns_call_over(k, clock_monotonic_ns());
	pthread_mutex_unlock(&c->lock);
}

/* Ended, as long as it is ours: what is left of its calls finds no connection any more. */
void rpc_conns_futile(struct rpc_conns *c, struct rpc_conn *k, const struct rpc_peer *peer)
{
	static const char words[] = "futile-calls: its caller has begun more than %u calls, and %u "
				    "each second (fixed), that were reset before their answer or "
				    "refused at once: this connection was ended";
	char text[192];

	if (!k)
		return;
	pthread_mutex_lock(&c->lock);
	if (k->source && conns_futile(k, clock_monotonic_ns()) && rpc_socket_abort(k->fd, k->ino)) {
		snprintf(text, sizeof(text), words, CONNS_FUTILE, CONNS_FUTILE_PER_S);
		tell_futile(c, peer->spiffe_id, k->address, text);
		drop(c, k);
	}
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_refused(struct rpc_conns *c, struct rpc_conn *k, const struct rpc_peer *peer)
{
	char text[192];

	if (!k)
		return;
	pthread_mutex_lock(&c->lock);
	if (conns_refused(k) && k->source && rpc_socket_abort(k->fd, k->ino)) {
		snprintf(text, sizeof(text),
		         "futile-calls: its caller has not taken the answers to more than %u calls "
		         "(fixed) that were refused: this connection was ended",
		         CONNS_REFUSALS);
		tell_futile(c, peer->spiffe_id, k->address, text);
		drop(c, k);
	}
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_headers(struct rpc_conns *c, int fd)
{
	char text[192];
	struct rpc_conn *k;

	pthread_mutex_lock(&c->lock);
	k = conns_find_fd(&c->table, fd);
	if (k && rpc_socket_abort(k->fd, k->ino)) {
		snprintf(text, sizeof(text),
		         "futile-calls: headers of a call came in more than %u pieces, or %u bytes "
		         "(fixed): this connection was ended",
		         RPC_HEADERS_PIECES, RPC_HEADERS_MAX);
		tell_futile(c, "", k->address, text);
		drop(c, k);
	}
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_refusal_over(struct rpc_conns *c, struct rpc_conn *k)
{
	if (!k)
		return;
	pthread_mutex_lock(&c->lock);
	conns_refusal_over(k, clock_monotonic_ns());
	pthread_mutex_unlock(&c->lock);
}

/* tcpi_bytes_acked (RFC 4898); 0: it is no connection any more. */
static uint64_t acked(const struct rpc_conn *k)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	return getsockopt(k->fd, IPPROTO_TCP, TCP_INFO, &info, &len) ? 0 : info.tcpi_bytes_acked;
}

void rpc_conns_message(struct rpc_conns *c, struct rpc_conn *k)
{
	if (!k)
		return;
	pthread_mutex_lock(&c->lock);
	conns_message(k);
	pthread_mutex_unlock(&c->lock);
}

static void end_useless(struct rpc_conns *c, struct rpc_conn *k, uint64_t now_ns)
{
	size_t most = CONNS_USELESS + (k->called ? c->message_bytes : 0);
	char text[192];
	bool alone;

	if (!conns_is_useless(k, c->message_bytes, 0, now_ns) ||
	    !conns_is_useless(k, c->message_bytes, acked(k), now_ns) ||
	    !rpc_socket_abort(k->fd, k->ino))
		return;
	alone = k->useless > most;
	snprintf(text, sizeof(text),
	         "futile-calls: %zu bytes came over %s that were no call and no message, of at "
	         "most %zu (fixed): this connection was ended",
	         alone ? k->useless : k->owner->useless,
	         alone ? "this connection" : "all connections of its caller",
	         alone ? most : CONNS_USELESS_GROUP);
	tell_futile(c, "", k->address, text);
	drop(c, k);
}

size_t rpc_conns_may_read(struct rpc_conns *c, int fd)
{
	bool again = false;
	size_t n = SIZE_MAX;
	struct rpc_conn *k;
	ino_t ino = 0;

	pthread_mutex_lock(&c->lock);
	k = conns_find_fd(&c->table, fd);
	if (k && rpc_socket_ino(fd) == k->ino) {
		ino = k->ino;
		n = conns_may_read(&c->table, k, c->read_bytes, &again);
	}
	pthread_mutex_unlock(&c->lock);
	if (again)
		rpc_socket_look_again(fd, ino);
	return n;
}

void rpc_conns_has_read(struct rpc_conns *c, int fd, size_t bytes)
{
	struct rpc_conn *k;

	pthread_mutex_lock(&c->lock);
	k = conns_find_fd(&c->table, fd);
	if (k) {
		conns_has_read(&c->table, k, bytes);
		end_useless(c, k, clock_monotonic_ns());
	}
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_owes(struct rpc_conns *c, int fd, size_t bytes)
{
	struct rpc_conn *k;

	pthread_mutex_lock(&c->lock);
	k = conns_find_fd(&c->table, fd);
	if (k)
		conns_owes(&c->table, k, bytes);
	pthread_mutex_unlock(&c->lock);
}

static void look_again(const struct rpc_conn *k)
{
	if (rpc_socket_ino(k->fd) == k->ino)
		rpc_socket_look_again(k->fd, k->ino);
}

bool rpc_conns_idle(struct rpc_conns *c, bool idle)
{
	bool held;

	pthread_mutex_lock(&c->lock);
	held = idle && conns_next_turn(&c->table, look_again);
	c->table.idle = idle;
	pthread_mutex_unlock(&c->lock);
	return held;
}

int rpc_conns_trust(struct rpc_conns *c, const char *address, const uint8_t cert[32],
                    uint64_t generation)
{
	struct rpc_conn *k;
	int word = 0;

	pthread_mutex_lock(&c->lock);
	k = conns_find(&c->table, address);
	if (k && k->judged == generation && !memcmp(k->cert, cert, sizeof(k->cert)))
		word = k->distrusted ? -1 : 1;
	pthread_mutex_unlock(&c->lock);
	return word;
}

void rpc_conns_judged(struct rpc_conns *c, const char *address, const uint8_t cert[32],
                      uint64_t generation, bool well)
{
	struct rpc_conn *k;

	pthread_mutex_lock(&c->lock);
	k = conns_find(&c->table, address);
	if (k) {
		k->judged = generation;
		k->distrusted = !well;
		memcpy(k->cert, cert, sizeof(k->cert));
	}
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_sweep(struct rpc_conns *c)
{
	struct rpc_conn *k, *tmp;

	pthread_mutex_lock(&c->lock);
	HASH_ITER (hh, c->table.by_address, k, tmp)
		if (!k->called && rpc_socket_ino(k->fd) != k->ino)
			forget(c, k);
	conns_sweep(&c->table, clock_monotonic_ns());
	pthread_mutex_unlock(&c->lock);
}

void rpc_conns_stats(struct rpc_conns *c, struct rpc_server_stats *ret)
{
	pthread_mutex_lock(&c->lock);
	forget_closed(c);
	ret->connections_now = conns_count(&c->table);
	ret->refused_connections = c->refused;
	ret->refused_connections_per_source = c->refused_per_source;
	ret->ended_connections = c->ended;
	ret->refused_handshakes = c->handshakes;
	ret->refused_futile = c->futile;
	pthread_mutex_unlock(&c->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gRPC is given to read, bounded. gRPC 1.51 reads from a connection until there is nothing
 * left, and makes a call of everything; whoever sends as fast as it reads has its thread for good,
 * and where another thread of the process reads, too, calls pile up that nobody has handled. It has
 * no bound for that. But it reads by recvmsg(2), and an executable's function of that name is taken
 * before libc's (ld.so(8)): this one asks the listener whose socket it is (conns_may_read).
 * "Nothing there" (EAGAIN) brings gRPC back to its poll, behind everybody else who has something to
 * say.
 *
 * It waits for an edge then (EPOLLET), and no byte might ever come again: rpc_socket_look_again.
 *
 * Resets: the kernel says with what is read how much is left (TCP_INQ), and where that is nothing
 * gRPC waits for the next edge. Of a FIN the kernel says that something is left (tcp_inq_hint), of
 * a reset it does not; and the edge of one that came right behind the last bytes was theirs, too.
 * gRPC would hear of it when it next writes: a call would wait for its deadline, a stream for a
 * keepalive. So the word is put right here, for every socket of the process.
 *
 * Invariant: a socket is in the table while it is in its listener's (conns.c). What else the
 * process receives by recvmsg goes through as it is, but for that word.
 *
 * Accepting: gRPC 1.51 gives a listener up, for good and without a word, at any error of accept4(2)
 * but EAGAIN (CVE-2023-4785): without a descriptor, or memory for one, for a moment, nobody would
 * be heard any more. So of its listeners each error is EAGAIN, and they are looked at again.
 */
#define LOG_COMPONENT "rpc"
#include "common/clock.h"
#include "common/log.h"
#include "proto/rpc/rpc_priv.h"
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

/* As many descriptors as a process can have (fs.nr_open): eight bytes each, of pages that only
 * exist where one is used. */
#define GATE_FDS  (1 << 20)
#define GATE_IOVS 64ul /* what gRPC gives at once at most */
static _Atomic(struct rpc_conns *) gates[GATE_FDS];
/* Held for reading while a listener is asked, for writing when one goes. Before its lock. */
static pthread_rwlock_t gate_lock = PTHREAD_RWLOCK_INITIALIZER;
static _Atomic uint64_t passed;

typedef ssize_t (*recvmsg_fn)(int fd, struct msghdr *m, int flags);

static recvmsg_fn next_recvmsg(void)
{
	static _Atomic(recvmsg_fn) next;
	recvmsg_fn fn = atomic_load_explicit(&next, memory_order_relaxed);
	void *symbol;

	if (fn)
		return fn;
	symbol = dlsym(RTLD_NEXT, "recvmsg");
	memcpy(&fn, &symbol, sizeof(fn));
	atomic_store_explicit(&next, fn, memory_order_relaxed);
	return fn;
}

bool rpc_gate_add(int fd, struct rpc_conns *c)
{
	if (fd < 0 || fd >= GATE_FDS)
		return false;
	atomic_store(&gates[fd], c);
	return true;
}

void rpc_gate_remove(int fd, struct rpc_conns *c)
{
	atomic_compare_exchange_strong(&gates[fd], &c, NULL);
}

void rpc_gate_close(void)
{
	pthread_rwlock_wrlock(&gate_lock);
}

void rpc_gate_closed(void)
{
	pthread_rwlock_unlock(&gate_lock);
}

uint64_t rpc_gate_passed(void)
{
	return atomic_load(&passed);
}

static _Thread_local struct {
	int fd;
	uint64_t passed; /* with it */
	size_t owed;     /* for the records that were in it: rpc_gate_record */
} last = {.fd = -1};

uint64_t rpc_gate_last(int *ret_fd)
{
	*ret_fd = last.fd;
	return last.passed;
}

void rpc_gate_headers(int fd)
{
	struct rpc_conns *c;

	if (fd < 0 || fd >= GATE_FDS)
		return;
	pthread_rwlock_rdlock(&gate_lock);
	c = atomic_load(&gates[fd]);
	if (c)
		rpc_conns_headers(c, fd);
	pthread_rwlock_unlock(&gate_lock);
}

void rpc_gate_record(size_t bytes)
{
	last.owed += RPC_RECORD_LEAST - MIN(bytes, (size_t)RPC_RECORD_LEAST);
}

/* What is owed, before more is read of anything. */
static void settle(void)
{
	size_t owed = last.owed;
	struct rpc_conns *c;

	last.owed = 0;
	if (!owed || last.fd < 0)
		return;
	pthread_rwlock_rdlock(&gate_lock);
	c = atomic_load(&gates[last.fd]);
	if (c)
		rpc_conns_owes(c, last.fd, owed);
	pthread_rwlock_unlock(&gate_lock);
}

/* ---- accept4(2) ---- */

#define LISTENERS_MAX 64              /* of a process, on all their addresses */
#define TELL_NS       (10 * NS_PER_S) /* of one that cannot accept it is told so often */

struct listener {
	int fd;
	ino_t ino; /* 0: none; another's: it was closed */
	uint64_t told_ns;
	bool missed; /* somebody waits who could not be accepted */
};

static struct {
	pthread_mutex_t lock;
	struct listener of[LISTENERS_MAX]; /* guarded by lock */
	atomic_bool missed;                /* any of them */
} listeners = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef int (*accept4_fn)(int fd, struct sockaddr *a, socklen_t *len, int flags);

static accept4_fn next_accept4(void)
{
	static _Atomic(accept4_fn) next;
	accept4_fn fn = atomic_load_explicit(&next, memory_order_relaxed);
	void *symbol;

	if (fn)
		return fn;
	symbol = dlsym(RTLD_NEXT, "accept4");
	memcpy(&fn, &symbol, sizeof(fn));
	atomic_store_explicit(&next, fn, memory_order_relaxed);
	return fn;
}

static bool is_there(const struct listener *l)
{
	return l->ino && rpc_socket_ino(l->fd) == l->ino;
}

void rpc_gate_listen(int fd)
{
	pthread_mutex_lock(&listeners.lock);
	for (size_t i = 0; i < LISTENERS_MAX; i++) {
		struct listener *l = &listeners.of[i];

		if (is_there(l))
			continue;
		*l = (struct listener){.fd = fd, .ino = rpc_socket_ino(fd)};
		break;
	}
	pthread_mutex_unlock(&listeners.lock);
}

static const char *what_to_do(int error)
{
	switch (error) {
	case EMFILE:
		return ". Let the process have more files open (LimitNOFILE)";
	case ENFILE:
		return ". Let the machine have more files open (fs.file-max)";
	case ENOMEM:
	case ENOBUFS:
		return ". Give the machine, or the process's cgroup, more memory";
	default:
		return "";
	}
}

/* Under the lock. */
static void tell_missed(struct listener *l, int error)
{
	uint64_t now = clock_monotonic_ns();

	if (l->told_ns && now - l->told_ns < TELL_NS)
		return;
	l->told_ns = now;
	log_error("a connection cannot be accepted: %s: it waits and is tried again%s",
	          strerror(error), what_to_do(error));
}

/* True: it is one of ours, and will be looked at again. */
static bool misses(int fd, int error)
{
	bool is = false;

	pthread_mutex_lock(&listeners.lock);
	for (size_t i = 0; i < LISTENERS_MAX && !is; i++) {
		struct listener *l = &listeners.of[i];

		is = l->fd == fd && is_there(l);
		if (!is)
			continue;
		tell_missed(l, error);
		l->missed = true;
		listeners.missed = true;
	}
	pthread_mutex_unlock(&listeners.lock);
	return is;
}

void rpc_gate_accept_again(void)
{
	if (!listeners.missed)
		return;
	pthread_mutex_lock(&listeners.lock);
	listeners.missed = false;
	for (size_t i = 0; i < LISTENERS_MAX; i++) {
		struct listener *l = &listeners.of[i];

		if (l->missed && is_there(l))
			rpc_socket_accept_again(l->fd);
		l->missed = false;
	}
	pthread_mutex_unlock(&listeners.lock);
}

int accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	int own = next_accept4()(fd, a, len, flags), error = errno;

	if (own < 0 && error != EAGAIN && error != EINTR && misses(fd, error))
		error = EAGAIN;
	errno = error;
	return own;
}

/* ---- recvmsg(2) ---- */

/* SIZE_MAX: whatever there is; it is nobody's here. */
static size_t may_read(int fd)
{
	size_t n = SIZE_MAX;
	struct rpc_conns *c;

	if (fd < 0 || fd >= GATE_FDS || !atomic_load_explicit(&gates[fd], memory_order_relaxed))
		return n;
	pthread_rwlock_rdlock(&gate_lock);
	c = atomic_load(&gates[fd]);
	if (c)
		n = rpc_conns_may_read(c, fd);
	pthread_rwlock_unlock(&gate_lock);
	return n;
}

static void has_read(int fd, size_t n)
{
	struct rpc_conns *c;

	last.fd = fd;
	last.passed = atomic_fetch_add_explicit(&passed, n, memory_order_relaxed) + n;
	pthread_rwlock_rdlock(&gate_lock);
	c = atomic_load(&gates[fd]);
	if (c)
		rpc_conns_has_read(c, fd, n);
	pthread_rwlock_unlock(&gate_lock);
}

/* See above. */
static void tell_of_reset(int fd, struct msghdr *m)
{
	struct cmsghdr *cm = CMSG_FIRSTHDR(m);
	int left;

	while (cm && (cm->cmsg_level != IPPROTO_TCP || cm->cmsg_type != TCP_CM_INQ))
		cm = CMSG_NXTHDR(m, cm);
	if (!cm || cm->cmsg_len != CMSG_LEN(sizeof(left)))
		return;
	memcpy(&left, CMSG_DATA(cm), sizeof(left));
	if (left || !rpc_socket_is_over(fd))
		return;
	left = 1;
	memcpy(CMSG_DATA(cm), &left, sizeof(left));
}

static ssize_t receive_all(int fd, struct msghdr *m, int flags)
{
	ssize_t n = next_recvmsg()(fd, m, flags);

	if (n > 0 && m->msg_controllen)
		tell_of_reset(fd, m);
	return n;
}

/* At most @n bytes of it. */
static ssize_t receive(int fd, struct msghdr *m, int flags, size_t n)
{
	struct iovec some[GATE_IOVS], *all = m->msg_iov;
	size_t n_all = m->msg_iovlen, i;
	ssize_t got;

	for (i = 0; i < MIN(n_all, GATE_IOVS) && n; i++) {
		some[i] = (struct iovec){all[i].iov_base, MIN(all[i].iov_len, n)};
		n -= some[i].iov_len;
	}
	m->msg_iov = some;
	m->msg_iovlen = i;
	got = receive_all(fd, m, flags);
	m->msg_iov = all;
	m->msg_iovlen = n_all;
	return got;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	size_t may;
	ssize_t n;

	settle();
	may = may_read(fd);
	if (may == SIZE_MAX)
		return receive_all(fd, m, flags);
	if (!may) {
		errno = EAGAIN;
		return -1;
	}
	n = receive(fd, m, flags, may);
	if (n > 0)
		has_read(fd, (size_t)n);
	return n;
}

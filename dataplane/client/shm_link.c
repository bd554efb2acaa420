/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One data connection through shared memory: a stream socket, HELLO and WELCOME as over tcp, then
 * the memfd and two rings of headers (dataplane/wire.h). The agent is taken for hostile: the memfd
 * must be sealed against becoming shorter, its counts are believed only within what can be, and an
 * entry is copied once and then checked.
 *
 * While messages come no system call is made. The socket is looked at when none came: for the
 * agent's hanging up, and for the bytes that only woke us. No open file comes with those: the
 * kernel is asked to keep them away (Linux 6.16), and where one came all the same the session ends.
 */
#include "common/clock.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/shm_priv.h"
#include "dataplane/client/test_switches.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>

#define ADDRESS_PREFIX   "unix:"
#define DESCRIPTORS      4 /* more than may come are received, to be closed */
#define CONNECT_PAUSE_US 1000
#define LOOK_EVERY       16 /* rounds in which nothing came, before the socket is looked at */
#define DRAIN_READS      16
/* Entries of the longest message: a NAK with its words. */
#define MESSAGE_ENTRIES (1 + WIRE_WORDS_MAX / WIRE_HEADER_LEN)

/* ---- the socket ---- */

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* The memory has come: nothing else is to. Older kernels do not know how. */
static void refuse_files(int fd)
{
	int no = 0;

	if (!CLIENT_SWITCH(passes_descriptors))
		(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

static int connect_to(const char *address, uint64_t deadline_ns, int *ret_fd, struct ros2_err *err)
{
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const char *path = address + sizeof(ADDRESS_PREFIX) - 1;
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	if (fd < 0)
		return ros2_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	if (strncmp(address, ADDRESS_PREFIX "/", sizeof(ADDRESS_PREFIX)) != 0 ||
	    strlen(path) >= sizeof(sun.sun_path))
		return ros2_err_named(
			err, ROS2_PROTOCOL,
			"'%s' is no address of shared memory: expected " ADDRESS_PREFIX
			"/PATH, at most %zu bytes of path",
			address, sizeof(sun.sun_path) - 1);
	memcpy(sun.sun_path, path, strlen(path));
	while (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return ros2_err_named(err, ROS2_UNAVAILABLE,
			                      "cannot connect to %s: %s (is the agent on this "
			                      "machine?)",
			                      path, strerror(errno));
		if (clock_monotonic_ns() >= deadline_ns)
			return ros2_err_named(err, ROS2_TIMEOUT, "%s took no connection in time",
			                      path);
		/* time: others wait to be taken there, and nothing says when they were */
		usleep(CONNECT_PAUSE_US);
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* ---- MEMORY ---- */

struct parcel {
	struct wire_header h;
	size_t got;
	int fd;         /* owned; the first that came; -1 = none */
	unsigned n_fds; /* how many came */
	bool were_more; /* and some that there was no room for */
};

static void take_descriptors(struct parcel *p, struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (p->n_fds++)
				close(fd);
			else
				p->fd = fd;
		}
	}
	p->were_more |= m->msg_flags & MSG_CTRUNC;
}

/* One header, and what descriptors come with any byte of it. */
static int receive_parcel(int fd, struct parcel *p, uint64_t deadline_ns, struct ros2_err *err)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control;

	while (p->got < sizeof(p->h)) {
		struct iovec iov = {(char *)&p->h + p->got, sizeof(p->h) - p->got};
		struct msghdr m = {.msg_iov = &iov,
		                   .msg_iovlen = 1,
		                   .msg_control = control.buf,
		                   .msg_controllen = sizeof(control.buf)};
		ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
		int rc = 0;

		if (n > 0) {
			take_descriptors(p, &m);
			p->got += (size_t)n;
		} else if (n == 0) {
			rc = ros2_err_named(err, ROS2_CLOSED,
			                    "the agent closed the connection before it shared "
			                    "memory");
		} else if (errno == EAGAIN) {
			rc = link_wait(fd, POLLIN, deadline_ns, err);
		} else if (errno != EINTR) {
			rc = ros2_err_named(err, ROS2_CLOSED, "the connection broke: %s",
			                    strerror(errno));
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int check_parcel(int fd, const struct parcel *p, uint64_t deadline_ns, struct ros2_err *err)
{
	const struct wire_header *h = &p->h;
	int rc = codec_check(h, err);

	if (rc)
		return rc;
	if (h->opcode == WIRE_NAK)
		return link_refused(fd, h, deadline_ns, err);
	if (h->opcode != WIRE_MEMORY || h->payload_len)
		return ros2_err_named(err, ROS2_PROTOCOL, "expected MEMORY, the agent sent %s",
		                      codec_opcode_to_str(h->opcode));
	if (p->were_more && !p->n_fds)
		return ros2_err_set(err, -EMFILE,
		                    "no descriptor is left for the memory that the agent shares");
	if (p->n_fds != 1 || p->were_more)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent sent MEMORY with %u descriptors%s instead of one",
		                      p->n_fds, p->were_more ? " and more" : "");
	if (h->offset < WIRE_SHM_DATA_OFF + WIRE_SHM_DATA_MIN || h->offset > SHM_BYTES_MAX ||
	    (h->offset - WIRE_SHM_DATA_OFF) % WIRE_SHM_DATA_UNIT)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent shares %llu bytes: that is no size for it",
		                      (unsigned long long)h->offset);
	return 0;
}

/* It is as long as was said, and stays so: otherwise the agent could end this program by a SIGBUS.
 */
static int check_memfd(const struct parcel *p, struct ros2_err *err)
{
	int seals = fcntl(p->fd, F_GET_SEALS);
	struct statfs fs;
	struct stat st;

	if (fstat(p->fd, &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size != p->h.offset)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent sent memory that is not as long as it says");
	if ((seals < 0 ||
	     (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) &&
	    !CLIENT_SWITCH(no_seal_check))
		return ros2_err_named(
			err, ROS2_PROTOCOL,
			"the agent sent memory that is not sealed against a change of "
			"its length");
	/* Of huge pages a hole is a SIGBUS where the machine has none left, and the agent may still
	 * make holes. */
	if (fstatfs(p->fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent sent memory of another kind than shmem");
	return 0;
}

static int take_memory(int fd, uint64_t deadline_ns, struct shm_arena **ret, struct ros2_err *err)
{
	struct parcel p = {.fd = -1};
	int rc = receive_parcel(fd, &p, deadline_ns, err);

	if (!rc)
		rc = check_parcel(fd, &p, deadline_ns, err);
	if (!rc)
		rc = check_memfd(&p, err);
	if (!rc)
		rc = shm_arena_new(p.fd, (size_t)p.h.offset, ret, err);
	if (p.fd >= 0)
		close(p.fd);
	return rc;
}

/* ---- the rings ---- */

static struct wire_shm_control *control_of(const struct shm_link *v)
{
	return (struct wire_shm_control *)v->arena->map;
}

static uint8_t *entry(const struct shm_link *v, size_t ring_off, uint32_t n)
{
	return v->arena->map + ring_off + n % WIRE_SHM_RING_ENTRIES * (size_t)WIRE_HEADER_LEN;
}

/* One byte, if there is room for it: without, there are enough already. Whether the agent has hung
 * up is seen when the socket is read. */
static void wake(struct ros2_session *s)
{
	char byte = 0;

	while (send(s->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR)
		continue;
}

/* Sequentially consistent on both sides: either the agent sees the entries, or we see that it
 * sleeps. */
static void publish(struct ros2_session *s)
{
	struct wire_shm_ring *ring = &control_of(s->shm)->to_agent;

	__atomic_store_n(&ring->written, s->shm->written, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->sleeps, __ATOMIC_SEQ_CST))
		wake(s);
}

static int shm_send(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	struct shm_link *v = s->shm;
	const struct tx_entry *e = tx_peek(&s->tx);
	uint32_t used, before = v->written;

	if (!e)
		return 0;
	used = v->written - __atomic_load_n(&control_of(v)->to_agent.taken, __ATOMIC_ACQUIRE);
	if (used > WIRE_SHM_RING_ENTRIES)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent says that it has taken more messages than there "
		                      "were");
	for (; e && used < WIRE_SHM_RING_ENTRIES; used++, e = tx_peek(&s->tx)) {
		int slot = e->slot;

		memcpy(entry(v, WIRE_SHM_TO_AGENT_OFF, v->written++), &e->head, sizeof(e->head));
		tx_pop(&s->tx);
		if (slot < 0)
			continue;
		requests_entry_begun(s, slot);
		requests_entry_sent(s, slot);
	}
	if (v->written == before)
		return 0;
	publish(s);
	*ret_moved = true;
	return 0;
}

static void copy_words(const struct shm_link *v, uint8_t *to, uint32_t len)
{
	for (uint32_t at = 0; at < len; at += WIRE_HEADER_LEN)
		memcpy(to + at, entry(v, WIRE_SHM_TO_TENANT_OFF, v->taken + at / WIRE_HEADER_LEN),
		       MIN(len - at, WIRE_HEADER_LEN));
}

/* @left: entries that are there. */
static int take_message(struct ros2_session *s, uint32_t *left, struct ros2_err *err)
{
	struct shm_link *v = s->shm;
	struct wire_header h;
	void *to = NULL;
	uint32_t more;
	int rc;

	memcpy(&h, entry(v, WIRE_SHM_TO_TENANT_OFF, v->taken), sizeof(h));
	v->taken++;
	--*left;
	rc = codec_check(&h, err);
	if (!rc)
		rc = requests_rx_ops.on_header(s, &h, &to, err);
	if (rc)
		return rc;
	/* Only words, so at most WIRE_WORDS_MAX bytes. */
	more = (h.payload_len + WIRE_HEADER_LEN - 1) / WIRE_HEADER_LEN;
	if (more > *left)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent sent %s without all of its words",
		                      codec_opcode_to_str(h.opcode));
	copy_words(v, to, h.payload_len);
	v->taken += more;
	*left -= more;
	return requests_rx_ops.on_message(s, &h, err);
}

static int take(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	struct shm_link *v = s->shm;
	struct wire_shm_ring *ring = &control_of(v)->to_tenant;
	uint32_t left = __atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) - v->taken;
	uint32_t before = v->taken;
	int rc = 0;

	if (left > WIRE_SHM_RING_ENTRIES)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent says that it has written %u messages to a ring of "
		                      "%u",
		                      left, WIRE_SHM_RING_ENTRIES);
	while (left && !rc && link_can_read(s))
		rc = take_message(s, &left, err);
	if (v->taken == before)
		return rc;
	/* Either the agent sees the room, or we see that it may have found too little. */
	__atomic_store_n(&ring->taken, v->taken, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->written, __ATOMIC_SEQ_CST) - before >
	    WIRE_SHM_RING_ENTRIES - MESSAGE_ENTRIES)
		wake(s);
	s->silent_ns = s->pinged_ns = 0;
	s->looked_ns = clock_monotonic_ns();
	*ret_moved = true;
	return rc;
}

/* Takes the bytes that woke us, and sees whether the agent has hung up. Not without end, however
 * many it sends. */
static void drain(struct ros2_session *s)
{
	char bytes[64];

	for (int i = 0; i < DRAIN_READS; i++) {
		struct iovec iov = {bytes, sizeof(bytes)};
		struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n = recvmsg(s->fd, &m, MSG_DONTWAIT);

		/* The kernel has closed what came: there was no room for it. */
		if (n > 0 && m.msg_flags & MSG_CTRUNC && !CLIENT_SWITCH(no_descriptor_look)) {
			s->shm->is_over = s->shm->sent_files = true;
			return;
		}
		if (n == (ssize_t)sizeof(bytes) || (n < 0 && errno == EINTR))
			continue;
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			s->shm->is_over = true;
			s->shm->error = n < 0 ? errno : 0;
		}
		return;
	}
}

static int is_over(struct ros2_session *s, struct ros2_err *err)
{
	if (s->shm->sent_files)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent sent open files after the memory");
	return s->shm->is_over ? link_broke(s, s->shm->error, err) : 0;
}

/* Nothing came. */
static int look(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	struct shm_link *v = s->shm;
	int rc;

	if (!v->is_over && v->n_idle++ % LOOK_EVERY == 0)
		drain(s);
	if (!v->is_over)
		return 0;
	/* What it put there before it went. */
	rc = take(s, ret_moved, err);
	return rc || *ret_moved ? rc : is_over(s, err);
}

static int shm_progress(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	bool moved = false;
	int rc = shm_send(s, &moved, err);

	if (!rc)
		rc = take(s, &moved, err);
	if (!rc && !moved)
		rc = look(s, &moved, err);
	*ret_moved |= moved;
	return rc;
}

static int shm_listen(struct ros2_session *s, struct ros2_err *err)
{
	bool moved = false;
	int rc;

	drain(s);
	rc = take(s, &moved, err);
	return rc ? rc : is_over(s, err);
}

/* Something waits to be sent, and the agent has made room behind the last look. */
static bool can_send(const struct ros2_session *s)
{
	const struct shm_link *v = s->shm;

	return tx_peek(&s->tx) &&
	       v->written - __atomic_load_n(&control_of(v)->to_agent.taken, __ATOMIC_SEQ_CST) !=
	               WIRE_SHM_RING_ENTRIES;
}

/* True: something came while we looked. */
static bool watch(struct ros2_session *s)
{
	const struct wire_shm_ring *ring = &control_of(s->shm)->to_tenant;
	uint64_t until;
	bool came;

	if (!spin_begin(&s->spin))
		return false;
	until = clock_monotonic_ns() + SPIN_NS;
	do {
		for (int i = 0; i < (int)SPIN_LOOKS; i++) {
			came = __atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) != s->shm->taken;
			if (came)
				break;
			spin_pause();
		}
	} while (!came && clock_monotonic_ns() < until);
	spin_end(&s->spin, came);
	return came;
}

static void shm_poll(struct ros2_session *s, int timeout_ms)
{
	struct wire_shm_ring *ring = &control_of(s->shm)->to_tenant;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};

	if (s->shm->is_over || watch(s))
		return;
	__atomic_store_n(&ring->sleeps, 1, __ATOMIC_SEQ_CST);
	/* An interrupted or failed poll only means that the caller looks again. */
	if (__atomic_load_n(&ring->written, __ATOMIC_SEQ_CST) == s->shm->taken && !can_send(s))
		(void)poll(&p, 1, timeout_ms);
	__atomic_store_n(&ring->sleeps, 0, __ATOMIC_RELEASE);
	if (p.revents)
		drain(s);
}

/* ---- the connection ---- */

/* The last message on the socket. */
static int say_mapped(int fd, uint64_t deadline_ns, struct ros2_err *err)
{
	struct wire_header h = {.opcode = WIRE_MAPPED};

	codec_seal(&h);
	return link_send_all(fd, &h, sizeof(h), deadline_ns, err);
}

static int shm_open_link(struct ros2_session *s, uint32_t timeout_ms, struct ros2_err *err)
{
	uint64_t deadline = clock_add_ns(clock_monotonic_ns(), timeout_ms * NS_PER_MS);
	struct shm_arena *arena = NULL;
	struct wire_welcome w;
	AUTO_CLOSE int fd = -1;
	int rc;

	if (!s->shm)
		s->shm = calloc(1, sizeof(*s->shm));
	if (!s->shm)
		return ros2_err_set(err, -ENOMEM, "no memory for a connection");
	shm_link_cut(s);
	rc = connect_to(s->granted.data_address, deadline, &fd, err);
	if (!rc)
		rc = link_shake_hands(s, fd, deadline, &w, err);
	if (!rc)
		rc = link_take_welcome(s, &w, err);
	if (!rc)
		rc = take_memory(fd, deadline, &arena, err);
	if (!rc)
		refuse_files(fd);
	if (!rc)
		rc = shm_arena_adopt(s, arena, err);
	if (!rc)
		rc = say_mapped(fd, deadline, err);
	if (rc) {
		shm_link_cut(s);
		ros2_err_prefix(err, "shared memory of the agent");
		return rc;
	}
	/* There is no place for it in a ring. */
	s->max_inline = 0;
	s->fd = TAKE_FD(fd);
	return 0;
}

void shm_link_cut(struct ros2_session *s)
{
	struct shm_link *v = s->shm;

	if (!v)
		return;
	shm_arena_unref(TAKE_PTR(v->arena));
	v->written = v->taken = v->n_idle = 0;
	v->is_over = v->sent_files = false;
	v->error = 0;
}

void shm_link_free(struct ros2_session *s)
{
	shm_link_cut(s);
	free(TAKE_PTR(s->shm));
}

const struct link_ops shm_link_ops = {
	.open = shm_open_link,
	.progress = shm_progress,
	.send = shm_send,
	.listen = shm_listen,
	.poll = shm_poll,
};

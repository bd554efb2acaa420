/* SPDX-License-Identifier: Apache-2.0 */
/* The fake agent's side of shared memory: the memfd, the rings, and ways to break them. */
#include "common/util.h"
#include "dataplane/client/codec.h"
#include "tests/client/fake_wire.h"
#include <fcntl.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- MEMORY ---- */

static int make_memfd(size_t len, bool sealed)
{
	int fd = memfd_create("ros2-fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)len) ||
	    (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)))
		abort();
	return fd;
}

/* Where there are none, something else that is no shared memory. */
static int make_huge(size_t len)
{
	int fd = memfd_create("ros2-fake", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd >= 0 && ftruncate(fd, (off_t)len) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

static int send_with(int fd, const struct wire_header *h, int memfd, unsigned n)
{
	struct iovec iov = {(void *)h, sizeof(*h)};
	union {
		struct cmsghdr head;
		char buf[CMSG_SPACE(8 * sizeof(int))];
	} control = {{0}};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n) {
		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		control.head = (struct cmsghdr){CMSG_LEN(n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
		for (unsigned i = 0; i < n; i++)
			memcpy(CMSG_DATA(&control.head) + i * sizeof(int), &memfd, sizeof(memfd));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*h) ? 0 : -1;
}

static int offer(struct fake_conn *c, enum shm_offer how)
{
	static const char words[] = "no memory left";
	struct wire_header h = {.opcode = WIRE_MEMORY, .offset = c->shm.len};
	unsigned n = 1;
	int rc;

	if (how == SHM_OFFER_CLOSE)
		return -1;
	if (how == SHM_OFFER_NO_DESCRIPTOR)
		n = 0;
	if (how == SHM_OFFER_TWO_DESCRIPTORS)
		n = 2;
	if (how == SHM_OFFER_MANY_DESCRIPTORS)
		n = 8;
	if (how == SHM_OFFER_OTHER_SIZE)
		h.offset += WIRE_SHM_DATA_UNIT;
	if (how == SHM_OFFER_HUGE)
		h.offset = UINT64_MAX;
	if (how == SHM_OFFER_OTHER_MESSAGE)
		h.opcode = WIRE_PING;
	if (how == SHM_OFFER_NAK)
		h = (struct wire_header){
			.opcode = WIRE_NAK, .status = ROS2_LIMIT, .payload_len = sizeof(words) - 1};
	codec_seal(&h);
	rc = send_with(c->fd, &h, c->shm.memfd, n);
	if (!rc && how == SHM_OFFER_NAK)
		(void)send(c->fd, words, sizeof(words) - 1, MSG_NOSIGNAL);
	return rc;
}

int fake_shm_share(struct fake_conn *c)
{
	struct fake_agent *a = c->agent;
	struct wire_header h;
	enum shm_offer how;

	WITH_AGENT(a, how = a->shm_offer;
	           c->shm.len = WIRE_SHM_DATA_OFF + a->sessions[c->session].shm_bytes);
	if (how == SHM_OFFER_SMALL)
		c->shm.len = WIRE_SHM_DATA_OFF + WIRE_SHM_DATA_MIN - WIRE_SHM_DATA_UNIT;
	if (how == SHM_OFFER_ODD)
		c->shm.len += 4096;
	if (how == SHM_OFFER_HUGE_PAGES)
		c->shm.len = 4u << 20;
	if (how == SHM_OFFER_NO_MEMFD)
		c->shm.memfd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	else if (how == SHM_OFFER_HUGE_PAGES)
		c->shm.memfd = make_huge(c->shm.len);
	else
		c->shm.memfd = make_memfd(c->shm.len, how != SHM_OFFER_UNSEALED);
	if (offer(c, how))
		return -1;
	if (how == SHM_OFFER_NO_MEMFD || how == SHM_OFFER_HUGE_PAGES)
		return recv(c->fd, &h, 1, 0) > 0 ? 0 : -1;
	c->shm.mem = mmap(NULL, c->shm.len, PROT_READ | PROT_WRITE, MAP_SHARED, c->shm.memfd, 0);
	if (c->shm.mem == MAP_FAILED)
		abort();
	if (recv(c->fd, &h, sizeof(h), MSG_WAITALL) != (ssize_t)sizeof(h))
		return -1;
	if (codec_check(&h, NULL) || h.opcode != WIRE_MAPPED || h.payload_len) {
		WITH_AGENT(a, a->saw_violation = true);
		return -1;
	}
	return fcntl(c->shm.memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

void fake_shm_end(struct fake_conn *c)
{
	if (!c->shm.wanted)
		return;
	if (c->shm.mem)
		munmap(c->shm.mem, c->shm.len);
	if (c->shm.memfd > 0)
		close(c->shm.memfd);
}

/* ---- the rings ---- */

static struct wire_shm_control *control_of(struct fake_conn *c)
{
	return (struct wire_shm_control *)c->shm.mem;
}

static void put(struct fake_conn *c, const void *p, size_t n)
{
	uint8_t *to = c->shm.mem + WIRE_SHM_TO_TENANT_OFF +
	              c->shm.written++ % WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN;

	memcpy(to, p, n);
}

static void publish(struct fake_conn *c, uint32_t written)
{
	struct wire_shm_ring *r = &control_of(c)->to_tenant;

	/* Each side has a mapping of its own: what orders the two is not seen by TSan. It sees this
	 * lock, and rig_meet's. */
	WITH_AGENT(c->agent, (void)0);
	__atomic_store_n(&r->written, written, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->sleeps, __ATOMIC_SEQ_CST))
		(void)send(c->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Waits for a byte, or for nothing in particular. -1 when the program has hung up. */
static int doze(struct fake_conn *c, int ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	char bytes[64];
	ssize_t n;

	(void)poll(&p, 1, ms);
	if (!p.revents)
		return 0;
	n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	return n > 0 ? 0 : -1;
}

/* As an agent does that keeps its answers: woken by a byte, and else not. */
static int wait_for_room(struct fake_conn *c, uint32_t n)
{
	struct wire_shm_control *ctl = control_of(c);

	while (c->shm.written - __atomic_load_n(&ctl->to_tenant.taken, __ATOMIC_SEQ_CST) + n >
	       WIRE_SHM_RING_ENTRIES) {
		__atomic_store_n(&ctl->to_agent.sleeps, 1, __ATOMIC_SEQ_CST);
		if (doze(c, -1))
			return -1;
		__atomic_store_n(&ctl->to_agent.sleeps, 0, __ATOMIC_SEQ_CST);
	}
	return 0;
}

int fake_shm_send(struct fake_conn *c, const struct wire_header *h, const void *payload)
{
	uint32_t n = 1 + (h->payload_len + WIRE_HEADER_LEN - 1) / WIRE_HEADER_LEN;

	if (n > WIRE_SHM_RING_ENTRIES || wait_for_room(c, n))
		return -1;
	put(c, h, sizeof(*h));
	for (uint32_t at = 0; at < h->payload_len; at += WIRE_HEADER_LEN)
		put(c, (const uint8_t *)payload + at, MIN(h->payload_len - at, WIRE_HEADER_LEN));
	publish(c, c->shm.written);
	return 0;
}

static bool holds(struct fake_agent *a)
{
	bool hold;

	WITH_AGENT(a, hold = a->hold_ring);
	return hold;
}

int fake_shm_recv(struct fake_conn *c, struct wire_header *h)
{
	struct wire_shm_ring *r = &control_of(c)->to_agent;

	for (;;) {
		/* poll: for the test to let it go on */
		while (holds(c->agent))
			if (doze(c, 5))
				return -1;
		if (__atomic_load_n(&r->written, __ATOMIC_ACQUIRE) != c->shm.taken)
			break;
		__atomic_store_n(&r->sleeps, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&r->written, __ATOMIC_SEQ_CST) == c->shm.taken && doze(c, 20))
			return -1;
		__atomic_store_n(&r->sleeps, 0, __ATOMIC_SEQ_CST);
	}
	memcpy(h,
	       c->shm.mem + WIRE_SHM_TO_AGENT_OFF +
	               c->shm.taken++ % WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN,
	       sizeof(*h));
	/* Nothing the program says has a payload here. */
	if (h->payload_len)
		WITH_AGENT(c->agent, c->agent->saw_violation = true);
	__atomic_store_n(&r->taken, c->shm.taken, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&r->written, __ATOMIC_SEQ_CST) - c->shm.taken + 1 ==
	    WIRE_SHM_RING_ENTRIES)
		(void)send(c->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	return h->payload_len ? -1 : 0;
}

uint8_t *fake_shm_payload(struct fake_conn *c, const struct wire_header *q, uint32_t access)
{
	struct fake_agent *a = c->agent;
	bool fine = false;

	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < FAKE_REGIONS; i++) {
		const struct fake_lease *l = &a->leases[i];

		fine |= l->live && l->key == q->key && l->generation == q->generation &&
		        l->session == c->session && l->access & access &&
		        l->addr >= WIRE_SHM_DATA_OFF && l->addr + l->len <= c->shm.len &&
		        q->address >= l->addr && q->address + q->length <= l->addr + l->len;
	}
	a->saw_violation |= !fine;
	pthread_mutex_unlock(&a->lock);
	return fine ? c->shm.mem + q->address : NULL;
}

void fake_shm_late(struct fake_conn *c)
{
	struct fake_agent *a = c->agent;
	bool late, now;

	do {
		usleep(1000); /* poll: for the test to say so */
		WITH_AGENT(a, late = a->late; now = a->late_now || a->stopping);
	} while (late && !now);
	if (!late)
		return;
	memset(c->shm.mem + c->held.address, 0xee, c->held.length);
	WITH_AGENT(a, a->n_late++);
}

/* ---- breaking them ---- */

void fake_shm_file(struct fake_conn *c)
{
	struct fake_agent *a = c->agent;
	struct wire_header h = {0};
	int rc, left = 1;

	/* Who has heard of it finds it counted. */
	WITH_AGENT(a, a->evil = EVIL_NONE; rc = send_with(c->fd, &h, c->shm.memfd, 1);
	           a->n_files_sent += rc == 0; a->n_files_refused += rc && errno == EPERM);
	/* poll: nothing says when bytes were taken out of the other end */
	while (!rc && left && !ioctl(c->fd, SIOCOUTQ, &left) &&
	       poll(&(struct pollfd){.fd = c->fd}, 1, 1) == 0)
		;
}

int fake_shm_evil(struct fake_conn *c, const struct wire_header *q, enum evil evil)
{
	struct wire_header h = {.opcode = WIRE_COMPLETE, .request_id = q->request_id};

	switch (evil) {
	case EVIL_SHM_WRITTEN_AHEAD:
		publish(c, c->shm.written + WIRE_SHM_RING_ENTRIES + 1);
		return 0;
	case EVIL_SHM_WRITTEN_BEHIND:
		publish(c, c->shm.written - 1);
		return 0;
	case EVIL_SHM_TAKEN_AHEAD:
		__atomic_store_n(&control_of(c)->to_agent.taken, c->shm.taken + 1000,
		                 __ATOMIC_SEQ_CST);
		h.length = q->length;
		break;
	case EVIL_SHM_COMPLETE_LONG:
		h.length = q->length + 1;
		break;
	case EVIL_SHM_WORDS_MISSING:
		h.opcode = WIRE_NAK;
		h.status = ROS2_LIMIT;
		h.payload_len = WIRE_WORDS_MAX;
		codec_seal(&h);
		put(c, &h, sizeof(h));
		publish(c, c->shm.written);
		return 0;
	case EVIL_SHM_MEMORY_AGAIN:
		h = (struct wire_header){.opcode = WIRE_MEMORY, .offset = c->shm.len};
		break;
	default:
		return -1;
	}
	codec_seal(&h);
	return fake_shm_send(c, &h, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The data port over shared memory by hand: the descriptor that comes with MEMORY, and the two
 * rings (dataplane/wire.h). */
#include "common/util.h"
#include "tests/client/raw/raw.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Entries of the longest message to the tenant: a NAK with its words. */
#define MESSAGE_ENTRIES (1 + WIRE_WORDS_MAX / WIRE_HEADER_LEN)

static int receive_memfd(int fd, struct wire_header *h, int *ret_memfd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {h, sizeof(*h)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct cmsghdr *c;
	ssize_t n;

	if (poll(&p, 1, 5000) <= 0)
		return -ETIMEDOUT;
	n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (n <= 0)
		return -ECONNRESET;
	if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
		return -EPROTO;
	memcpy(ret_memfd, CMSG_DATA(c), sizeof(*ret_memfd));
	return n == (ssize_t)sizeof(*h) && h->opcode == WIRE_MEMORY ? 0 : -EPROTO;
}

int raw_shm_memory(int fd, struct raw_shm *ret)
{
	AUTO_CLOSE int memfd = -1;
	struct wire_header h;
	int rc = receive_memfd(fd, &h, &memfd);
	void *p;

	if (rc)
		return rc;
	p = mmap(NULL, h.offset, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (p == MAP_FAILED)
		return -errno;
	*ret = (struct raw_shm){.map = p, .bytes = h.offset};
	return 0;
}

int raw_shm_mapped(int fd)
{
	struct wire_header h = {.opcode = WIRE_MAPPED};

	raw_seal(&h);
	return raw_send(fd, &h, NULL);
}

static struct wire_shm_control *control_of(const struct raw_shm *m)
{
	return (struct wire_shm_control *)(void *)m->map;
}

static uint8_t *entry(const struct raw_shm *m, size_t ring_off, uint32_t n)
{
	return m->map + ring_off + n % WIRE_SHM_RING_ENTRIES * (size_t)WIRE_HEADER_LEN;
}

/* Without room for it there are enough already. */
static void wake(int fd)
{
	(void)send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool raw_shm_put(struct raw_shm *m, int fd, const struct wire_header *h)
{
	struct wire_shm_ring *ring = &control_of(m)->to_agent;

	if (m->written - __atomic_load_n(&ring->taken, __ATOMIC_ACQUIRE) >= WIRE_SHM_RING_ENTRIES)
		return false;
	memcpy(entry(m, WIRE_SHM_TO_AGENT_OFF, m->written++), h, sizeof(*h));
	__atomic_store_n(&ring->written, m->written, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->sleeps, __ATOMIC_SEQ_CST))
		wake(fd);
	return true;
}

uint32_t raw_shm_untaken(const struct raw_shm *m)
{
	return __atomic_load_n(&control_of(m)->to_tenant.written, __ATOMIC_SEQ_CST) - m->taken;
}

static int wait_for_entry(struct raw_shm *m, int fd, int timeout_ms)
{
	struct wire_shm_ring *ring = &control_of(m)->to_tenant;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char wakes[256];
	ssize_t n;

	while (!raw_shm_untaken(m)) {
		__atomic_store_n(&ring->sleeps, 1, __ATOMIC_SEQ_CST);
		if (raw_shm_untaken(m))
			break;
		if (poll(&p, 1, timeout_ms) <= 0)
			return -ETIMEDOUT;
		n = recv(fd, wakes, sizeof(wakes), MSG_DONTWAIT);
		if ((n == 0 || (n < 0 && errno != EAGAIN)) && !raw_shm_untaken(m))
			return -ECONNRESET;
	}
	__atomic_store_n(&ring->sleeps, 0, __ATOMIC_RELAXED);
	return 0;
}

int raw_shm_take(struct raw_shm *m, int fd, struct wire_header *h, uint8_t *payload, int timeout_ms)
{
	struct wire_shm_ring *ring = &control_of(m)->to_tenant;
	uint32_t before = m->taken;
	int rc = wait_for_entry(m, fd, timeout_ms);

	if (rc)
		return rc;
	memcpy(h, entry(m, WIRE_SHM_TO_TENANT_OFF, m->taken++), sizeof(*h));
	if (h->magic != WIRE_MAGIC || h->payload_len > WIRE_WORDS_MAX)
		return -EPROTO;
	for (uint32_t at = 0; at < h->payload_len; at += WIRE_HEADER_LEN)
		memcpy(payload + at, entry(m, WIRE_SHM_TO_TENANT_OFF, m->taken++),
		       MIN(h->payload_len - at, (uint32_t)WIRE_HEADER_LEN));
	__atomic_store_n(&ring->taken, m->taken, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->written, __ATOMIC_SEQ_CST) - before >
	    WIRE_SHM_RING_ENTRIES - MESSAGE_ENTRIES)
		wake(fd);
	return 0;
}

void raw_shm_free(struct raw_shm *m)
{
	if (m->map)
		munmap(TAKE_PTR(m->map), m->bytes);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One packet: IPv4, UDP to 4791, BTH, RETH or AETH if the opcode has one, payload, invariant CRC.
 */
#include "tests/attack/packets.h"
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROCE_PORT      4791
#define LRH_MASKED_CRC 0xdebb20e3u /* CRC-32 of the eight bytes 0xff that stand for an LRH */
#define FORGED_MAX     1024u
#define HEADERS        (sizeof(struct iphdr) + sizeof(struct udphdr) + sizeof(struct bth))

struct bth {
	uint8_t opcode, flags;
	uint16_t pkey;
	uint32_t qpn, psn;
} __attribute__((packed));

struct reth {
	uint64_t va;
	uint32_t rkey, length;
} __attribute__((packed));

struct packet {
	struct iphdr ip;
	struct udphdr udp;
	struct bth bth;
	uint8_t rest[sizeof(struct reth) + FORGED_MAX + 4];
} __attribute__((packed));

/* CRC-32 (IEEE 802.3, reflected), without its last complement. */
static uint32_t crc32_more(uint32_t crc, const void *p, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		crc ^= b[i];
		for (int k = 0; k < 8; k++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
	}
	return crc;
}

/* What routers change counts as ones (IBA annex A17, A17.3.3). */
static uint32_t icrc(const struct packet *p, size_t n)
{
	struct packet m = *p;

	m.ip.tos = 0xff;
	m.ip.ttl = 0xff;
	m.ip.check = 0xffff;
	m.udp.check = 0xffff;
	m.bth.qpn |= htonl(0xff000000);
	return ~crc32_more(LRH_MASKED_CRC, &m, n);
}

int packets_socket(const char *ns)
{
	char path[64];
	int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there, fd = -1, r = 0;

	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	there = open(path, O_RDONLY | O_CLOEXEC);
	if (here < 0 || there < 0 || setns(there, CLONE_NEWNET)) {
		r = -errno;
	} else {
		fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
		r = fd < 0 ? -errno : 0;
		if (setns(here, CLONE_NEWNET))
			r = -errno;
	}
	if (here >= 0)
		close(here);
	if (there >= 0)
		close(there);
	if (r && fd >= 0)
		close(fd);
	return r ? r : fd;
}

/* What follows the BTH, without the CRC; returns how many bytes. */
static size_t put_rest(const struct forged *f, uint8_t *at)
{
	const uint32_t length = f->length > FORGED_MAX ? FORGED_MAX : f->length;
	struct reth reth = {.va = htobe64(f->addr), .rkey = htonl(f->key), .length = htonl(length)};
	uint32_t aeth = htonl((uint32_t)f->syndrome << 24);
	size_t n = 0;

	if (!f->kind || f->kind == FORGED_WRITE) {
		memcpy(at, &reth, sizeof(reth));
		n = sizeof(reth);
	} else if (f->kind != FORGED_SEND) {
		memcpy(at, &aeth, sizeof(aeth));
		n = sizeof(aeth);
	}
	if (f->kind == FORGED_ACKNOWLEDGE)
		return n;
	if (f->payload)
		memcpy(at + n, f->payload, length);
	else
		memset(at + n, 'x', length);
	return n + length;
}

int packets_send(int fd, const struct forged *f)
{
	struct packet p = {
		.ip = {.version = 4,
	               .ihl = 5,
	               .id = htons(1),
	               .frag_off = htons(IP_DF),
	               .ttl = 64,
	               .protocol = IPPROTO_UDP,
	               .saddr = f->src,
	               .daddr = f->dst},
		.udp = {.source = htons(0xc000), .dest = htons(ROCE_PORT)},
		.bth = {.opcode = f->kind ? f->kind : FORGED_WRITE,
	                .flags = 0x40, /* migrated; no padding: lengths here are multiples of 4 */
	                .pkey = 0xffff,
	                .qpn = htonl(f->qpn & 0xffffff),
	                .psn = htonl((f->psn & 0xffffff) | 0x80000000)},
	};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = f->dst};
	const size_t covered = HEADERS + put_rest(f, p.rest);
	uint32_t crc;

	p.ip.tot_len = htons((uint16_t)(covered + 4));
	p.udp.len = htons((uint16_t)(covered + 4 - sizeof(struct iphdr)));
	crc = htole32(icrc(&p, covered));
	memcpy((uint8_t *)&p + covered, &crc, sizeof(crc));
	if (sendto(fd, &p, covered + 4, 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		return -errno;
	return 0;
}

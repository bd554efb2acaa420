/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_victims.h, by the netlink table that rdma-resource(8) shows. */
#include "tests/attack/verbs_victims.h"
#include "common/util.h"
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READY_TO_SEND 3u /* enum ibv_qp_state */
#define RELIABLE      2u /* enum ibv_qp_type, as the kernel numbers them */
#define ANSWER_MAX    32768u
#define ATTR_ROOM     NLA_ALIGN(sizeof(struct nlattr))

int victims_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);

	return fd < 0 ? -errno : fd;
}

static int ask(int fd, uint32_t dev)
{
	struct {
		struct nlmsghdr h;
		struct nlattr a;
		uint32_t dev;
	} q = {.h = {.nlmsg_len = sizeof(q),
	             .nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET),
	             .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	       .a = {.nla_len = ATTR_ROOM + sizeof(dev), .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX},
	       .dev = dev};

	return send(fd, &q, sizeof(q), 0) == sizeof(q) ? 0 : -EIO;
}

/* The next attribute of [*at, *at + *left); NULL: none. */
static const struct nlattr *next(const uint8_t **at, size_t *left)
{
	struct nlattr head;
	const uint8_t *a = *at;
	size_t step;

	if (*left < sizeof(head))
		return NULL;
	memcpy(&head, a, sizeof(head));
	if (head.nla_len < ATTR_ROOM || head.nla_len > *left)
		return NULL;
	step = MIN((size_t)NLA_ALIGN(head.nla_len), *left);
	*at += step;
	*left -= step;
	return (const struct nlattr *)(const void *)a;
}

static const uint8_t *inside(const struct nlattr *a, size_t *ret_len)
{
	*ret_len = a->nla_len - ATTR_ROOM;
	return (const uint8_t *)a + ATTR_ROOM;
}

static uint32_t number(const struct nlattr *a)
{
	uint32_t v = 0;
	size_t n;
	const uint8_t *p = inside(a, &n);

	memcpy(&v, p, MIN(n, sizeof(v)));
	return v;
}

/* False: not one that is connected. */
static bool read_entry(const struct nlattr *entry, struct victim *v)
{
	uint32_t state = 0, type = 0;
	const struct nlattr *a;
	size_t left;
	const uint8_t *at = inside(entry, &left);

	*v = (struct victim){0};
	while ((a = next(&at, &left)) != NULL) {
		switch (a->nla_type & NLA_TYPE_MASK) {
		case RDMA_NLDEV_ATTR_RES_PID:
			v->thread = number(a);
			break;
		case RDMA_NLDEV_ATTR_RES_LQPN:
			v->qpn = number(a);
			break;
		case RDMA_NLDEV_ATTR_RES_RQPN:
			v->peer = number(a);
			break;
		case RDMA_NLDEV_ATTR_RES_SQ_PSN:
			v->sends_next = number(a);
			break;
		case RDMA_NLDEV_ATTR_RES_STATE:
			state = number(a);
			break;
		case RDMA_NLDEV_ATTR_RES_TYPE:
			type = number(a);
			break;
		default:
			break;
		}
	}
	return state == READY_TO_SEND && type == RELIABLE && v->thread;
}

/* Of one message; how many of them are in @out then. */
static unsigned read_table(const uint8_t *at, size_t left, struct victim *out, unsigned n,
                           unsigned max)
{
	const struct nlattr *a, *entry;

	while ((a = next(&at, &left)) != NULL) {
		const uint8_t *rows;
		size_t rest;

		if ((a->nla_type & NLA_TYPE_MASK) != RDMA_NLDEV_ATTR_RES_QP)
			continue;
		rows = inside(a, &rest);
		while (n < max && (entry = next(&rows, &rest)) != NULL)
			n += read_entry(entry, &out[n]);
	}
	return n;
}

int victims_look(int fd, uint32_t dev, struct victim *out, unsigned max)
{
	static uint8_t answer[ANSWER_MAX] __attribute__((aligned(8)));
	unsigned n = 0;
	int r = ask(fd, dev);

	while (r == 0) {
		ssize_t got = recv(fd, answer, sizeof(answer), 0);
		struct nlmsghdr *h = (struct nlmsghdr *)(void *)answer;
		int left = (int)got;

		if (got < 0)
			return -errno;
		for (; NLMSG_OK(h, (uint32_t)left); h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return (int)n;
			if (h->nlmsg_type == NLMSG_ERROR)
				return -EIO;
			n = read_table(NLMSG_DATA(h), h->nlmsg_len - NLMSG_HDRLEN, out, n, max);
		}
	}
	return r;
}

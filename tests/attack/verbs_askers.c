/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_askers.h. A request in the name of a queue pair that is there would end that one's
 * connection (docs/rdma.md), so these count from where soft-RoCE, which counts up, does not come.
 */
#include "tests/attack/verbs_askers.h"
#include "common/util.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define QPN     0xe00000u
#define QPNS    0x100000u
#define WAIT_MS 10000

struct askers {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id[ASKERS_MAX];
	const struct wire_verbs_ask *by;
	unsigned n, over, *ret;
};

static int ask(struct rdma_cm_id *id, const struct wire_verbs_ask *by)
{
	static uint32_t asked;
	struct rdma_conn_param c = {.private_data = by,
	                            .private_data_len = sizeof(*by),
	                            .responder_resources = 16,
	                            .retry_count = 7,
	                            .rnr_retry_count = 3,
	                            .qp_num = QPN + asked++ % QPNS};

	return rdma_connect(id, &c);
}

static void refused(struct askers *a, const struct rdma_conn_param *c)
{
	struct wire_verbs_refusal no;

	if (c->private_data_len < sizeof(no))
		return;
	memcpy(&no, c->private_data, sizeof(no));
	/* What the connection manager refuses by itself says nothing, in as many zeros. */
	if (no.version == WIRE_VERBS_VERSION && no.status < ROS2_STATUS_COUNT)
		a->ret[no.status]++;
}

static void goes_on(struct askers *a, const struct rdma_cm_event *e)
{
	int r = -1;

	if (e->event == RDMA_CM_EVENT_ADDR_RESOLVED)
		r = rdma_resolve_route(e->id, 2000);
	else if (e->event == RDMA_CM_EVENT_ROUTE_RESOLVED)
		r = ask(e->id, a->by);
	else if (e->event == RDMA_CM_EVENT_REJECTED)
		refused(a, &e->param.conn);
	a->over += r != 0;
}

static bool begins(struct askers *a, struct sockaddr *at)
{
	struct rdma_cm_id **id = &a->id[a->n];

	return !rdma_create_id(a->channel, id, NULL, RDMA_PS_TCP) && ++a->n &&
	       !rdma_resolve_addr(*id, NULL, at, 2000);
}

static int all(struct askers *a, struct sockaddr *at, unsigned n)
{
	struct rdma_cm_event *e;
	struct pollfd fd = {.events = POLLIN};

	a->channel = rdma_create_event_channel();
	if (!a->channel)
		return -errno;
	fd.fd = a->channel->fd;
	while (a->n < n)
		if (!begins(a, at))
			return -errno;
	while (a->over < a->n && poll(&fd, 1, WAIT_MS) == 1 && !rdma_get_cm_event(a->channel, &e)) {
		goes_on(a, e);
		rdma_ack_cm_event(e);
	}
	return 0;
}

int askers_ask(const char *data, const struct wire_verbs_ask *by, unsigned n,
               unsigned ret[ROS2_STATUS_COUNT])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *to;
	struct askers a = {.by = by, .ret = ret};
	const char *colon = strrchr(data, ':');
	char host[80];
	int r;

	memset(ret, 0, ROS2_STATUS_COUNT * sizeof(*ret));
	if (!colon)
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - data), data);
	if (getaddrinfo(host, colon + 1, &hints, &to))
		return -EINVAL;
	r = all(&a, to->ai_addr, MIN(n, ASKERS_MAX));
	for (unsigned i = 0; i < a.n; i++)
		rdma_destroy_id(a.id[i]);
	if (a.channel)
		rdma_destroy_event_channel(a.channel);
	freeaddrinfo(to);
	return r;
}

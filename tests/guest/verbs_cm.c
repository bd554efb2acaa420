/* SPDX-License-Identifier: Apache-2.0 */
/* See verbs_cm.h. */
#include "tests/guest/verbs_cm.h"
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#define RETRY_MS 20000
#define EVENT_MS 5000
#define QPN      5000u

struct askers {
	struct rdma_event_channel *there, *here;
	struct rdma_cm_id *listener, *id[CM_ASKERS];
	int found, asked, came;
};

static bool event_is(struct rdma_event_channel *c, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;
	bool is;

	if (rdma_get_cm_event(c, &e))
		return false;
	is = e->event == want;
	rdma_ack_cm_event(e);
	return is;
}

static bool listens(struct askers *a, struct sockaddr_in *at)
{
	return (a->there = rdma_create_event_channel()) &&
	       (a->here = rdma_create_event_channel()) &&
	       !rdma_create_id(a->there, &a->listener, NULL, RDMA_PS_TCP) &&
	       !rdma_bind_addr(a->listener, (struct sockaddr *)at) &&
	       !rdma_listen(a->listener, CM_BACKLOG) &&
	       (at->sin_port = rdma_get_src_port(a->listener)) != 0;
}

static bool finds(struct askers *a, struct sockaddr_in *at)
{
	struct rdma_cm_id **id = &a->id[a->found];

	return !rdma_create_id(a->here, id, NULL, RDMA_PS_TCP) && ++a->found &&
	       !rdma_resolve_addr(*id, NULL, (struct sockaddr *)at, 2000) &&
	       event_is(a->here, RDMA_CM_EVENT_ADDR_RESOLVED) && !rdma_resolve_route(*id, 2000) &&
	       event_is(a->here, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* By a queue pair that there is not, and each by another: none is let in. */
static bool asks(struct askers *a)
{
	struct rdma_conn_param p = {.qp_num = QPN + (uint32_t)a->asked, .retry_count = 7};

	return !rdma_connect(a->id[a->asked], &p) && ++a->asked;
}

/* How many have been told so by now. */
static int are_refused(struct askers *a, int ms)
{
	struct pollfd fd = {a->here->fd, POLLIN, 0};
	int n = 0;

	while (n < a->asked && poll(&fd, 1, ms) == 1 && event_is(a->here, RDMA_CM_EVENT_REJECTED))
		n++;
	return n;
}

/* Refuses what comes until nothing has come for @ms, or all have. */
static int refuse(struct askers *a, int ms)
{
	struct pollfd fd = {a->there->fd, POLLIN, 0};
	struct rdma_cm_event *e;
	int before = a->came;

	while (a->came < CM_ASKERS && poll(&fd, 1, ms) == 1 && !rdma_get_cm_event(a->there, &e)) {
		struct rdma_cm_id *id = e->id;

		rdma_ack_cm_event(e);
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		a->came++;
	}
	return a->came - before;
}

static void end(struct askers *a)
{
	for (int i = 0; i < a->found; i++)
		rdma_destroy_id(a->id[i]);
	if (a->listener)
		rdma_destroy_id(a->listener);
	if (a->here)
		rdma_destroy_event_channel(a->here);
	if (a->there)
		rdma_destroy_event_channel(a->there);
}

bool cm_requests(const char *host, struct cm_seen *ret)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(host)};
	struct askers a = {0};
	bool made = listens(&a, &at);

	while (made && a.found < CM_ASKERS)
		made = finds(&a, &at);
	while (made && a.asked < CM_ASKERS)
		made = asks(&a);
	if (made) {
		ret->early = are_refused(&a, 1000); /* long enough for all to arrive */
		ret->first = refuse(&a, 200);
		ret->later = refuse(&a, RETRY_MS);
		ret->refused = ret->early + are_refused(&a, 1000);
	}
	ret->asked = a.asked;
	end(&a);
	return made;
}

/* ---- in the name of another's queue pair ---- */

static bool comes(struct rdma_event_channel *c)
{
	struct pollfd fd = {c->fd, POLLIN, 0};

	return poll(&fd, 1, EVENT_MS) == 1;
}

/* The first of the askers is let in, by a queue pair that there is not either. */
static bool is_connected(struct askers *a, struct rdma_cm_id **ret)
{
	struct rdma_conn_param p = {.qp_num = QPN + CM_ASKERS};
	struct rdma_cm_event *e;

	if (!comes(a->there) || rdma_get_cm_event(a->there, &e))
		return false;
	*ret = e->id;
	rdma_ack_cm_event(e);
	return !rdma_accept(*ret, &p) && comes(a->here) &&
	       event_is(a->here, RDMA_CM_EVENT_CONNECT_RESPONSE) && !rdma_establish(a->id[0]) &&
	       comes(a->there) && event_is(a->there, RDMA_CM_EVENT_ESTABLISHED);
}

/* What both hear, in whatever order. */
static void hear(struct askers *a, struct cm_named *ret)
{
	struct rdma_cm_event *e;

	while (!(ret->status && ret->ended) && comes(a->here) && !rdma_get_cm_event(a->here, &e)) {
		if (e->id == a->id[0])
			ret->ended |= e->event == RDMA_CM_EVENT_DISCONNECTED;
		else if (e->event == RDMA_CM_EVENT_REJECTED)
			ret->status = e->status;
		rdma_ack_cm_event(e);
	}
}

/* The same listener hears of the end of the one, and of nothing else. */
static bool request_came(struct askers *a)
{
	struct rdma_cm_event *e;
	bool is = false;

	while (comes(a->there) && !rdma_get_cm_event(a->there, &e)) {
		is |= e->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		rdma_ack_cm_event(e);
	}
	return is;
}

bool cm_names_anothers(const char *host, struct cm_named *ret)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(host)};
	struct rdma_conn_param same = {.qp_num = QPN, .retry_count = 7};
	struct rdma_cm_id *accepted = NULL;
	struct askers a = {0};
	bool made = listens(&a, &at) && finds(&a, &at) && finds(&a, &at) && asks(&a);

	ret->stood = made && is_connected(&a, &accepted);
	made = ret->stood && !rdma_connect(a.id[1], &same);
	if (made) {
		hear(&a, ret);
		ret->heard = request_came(&a);
	}
	if (accepted)
		rdma_destroy_id(accepted);
	end(&a);
	return made;
}

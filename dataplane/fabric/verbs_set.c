// SPDX-License-Identifier: Apache-2.0
/*
 * A tenant's share of a reactor: its completion queue, and who has reserved how much of it; the
 * channel that wakes the reactor for idle ones. Invariant: cq_reserved <= cq_depth, and a
 * reservation ends only when the queue pair is destroyed and what it left in the queue has been
 * taken out; so the queue cannot overflow.
 */
#include "dataplane/fabric/verbs_priv.h"
#include "common/clock.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#define WC_BATCH       32u
#define EVENTS_AT_ONCE 64u
#define GRACE_LOOK_NS  1000000ull
#define INDEX_BITS     10

_Static_assert(FABRIC_QPS_MAX == 1u << INDEX_BITS,
               "the index of a queue pair fits its part of wr_id");

/* generation : 21 | index : 10 | receive : 1 | number : 32 */
uint64_t wr_id(const struct fabric_qp *qp, bool recv, uint32_t number)
{
	return (uint64_t)qp->generation << 43 | (uint64_t)qp->index << 33 | (uint64_t)recv << 32 |
	       number;
}

int fabric_channel_new(struct fabric_dev *d, struct fabric_channel **ret, struct ros2_err *err)
{
	struct fabric_channel *c = calloc(1, sizeof(*c));
	int flags, r;

	if (!c)
		return ros2_err_set(err, -ENOMEM, "no memory for a completion channel");
	c->dev = d;
	c->channel = ibv_create_comp_channel(d->context);
	if (!c->channel) {
		r = verbs_err(err, errno, d, "ibv_create_comp_channel");
		free(c);
		return r;
	}
	flags = fcntl(c->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(c->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		r = verbs_err(err, errno, d, "O_NONBLOCK on a completion channel");
		ibv_destroy_comp_channel(c->channel);
		free(c);
		return r;
	}
	/* Else all reactors are woken by one interrupt, on one core. */
	c->vector = (int)(d->next_vector++ % (uint32_t)MAX(d->context->num_comp_vectors, 1));
	d->n_channels++;
	*ret = c;
	return 0;
}

void fabric_channel_free(struct fabric_channel *c)
{
	if (!c)
		return;
	assert(c->n_sets == 0);
	ibv_destroy_comp_channel(c->channel);
	c->dev->n_channels--;
	free(c);
}

int fabric_channel_fd(const struct fabric_channel *c)
{
	return c->channel->fd;
}

uint32_t fabric_channel_events(struct fabric_channel *c,
                               void (*fn)(void *arg, struct fabric_set *s), void *arg)
{
	struct fabric_set *s, *tmp;
	struct ibv_cq *cq;
	struct list sets;
	uint32_t n = 0, told = 0;
	void *context;

	list_init(&sets);
	for (uint32_t i = 0; i < EVENTS_AT_ONCE; i++) {
		if (ibv_get_cq_event(c->channel, &cq, &context) != 0)
			break;
		s = context;
		ibv_ack_cq_events(cq, 1);
		if (s->has_event)
			continue;
		s->has_event = true;
		list_add_tail(&sets, &s->event);
		/* Another look is a system call; what it would find comes with the next one. */
		if (++told == c->n_sets)
			break;
	}
	list_for_each_safe (&sets, s, tmp, event) {
		list_del(&s->event);
		s->has_event = false;
		n++;
		fn(arg, s);
	}
	return n;
}

static int check_opts(const struct fabric_pd *pd, const struct fabric_channel *c,
                      const struct fabric_set_opts *o, struct ros2_err *err)
{
	const struct fabric_dev_attr *a = &pd->dev->attr;

	if (c->dev != pd->dev)
		return ros2_err_set(err, -EINVAL,
		                    "the channel is of device %s, the protection domain of %s",
		                    c->dev->attr.name, a->name);
	if (o->cq_depth == 0 || o->cq_depth > MIN(a->max_cq_depth, (uint32_t)INT32_MAX))
		return ros2_err_set(err, -EINVAL, "a completion queue of %u: %s takes 1..%u",
		                    o->cq_depth, a->name, a->max_cq_depth);
	if (o->qps_max == 0 || o->qps_max > FABRIC_QPS_MAX)
		return ros2_err_set(err, -EINVAL, "%u queue pairs in a set: expected 1..%u",
		                    o->qps_max, FABRIC_QPS_MAX);
	return 0;
}

static int set_fill(struct fabric_set *s, struct ros2_err *err)
{
	s->qps = calloc(s->o.qps_max, sizeof(struct fabric_qp *));
	s->qp_generations = calloc(s->o.qps_max, sizeof(uint32_t));
	if (!s->qps || !s->qp_generations)
		return ros2_err_set(err, -ENOMEM, "no memory for %u queue pairs", s->o.qps_max);
	s->cq = ibv_create_cq(s->pd->dev->context, (int)s->o.cq_depth, s, s->chan->channel,
	                      s->chan->vector);
	if (!s->cq)
		return verbs_err(err, errno, s->pd->dev, "ibv_create_cq");
	s->c.cq_depth = s->o.cq_depth;
	return slots_make(s, err);
}

int fabric_set_new(struct fabric_pd *pd, struct fabric_channel *c, const struct fabric_set_opts *o,
                   struct fabric_set **ret, struct ros2_err *err)
{
	int r = check_opts(pd, c, o, err);
	struct fabric_set *s;

	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory for a set");
	s->pd = pd;
	s->chan = c;
	s->o = *o;
	s->o.bind_limit_ns = o->bind_limit_ns ? o->bind_limit_ns : 1000 * 1000 * 1000ull;
	s->o.invalidate_limit_ns =
		o->invalidate_limit_ns ? o->invalidate_limit_ns : 100 * 1000 * 1000ull;
	list_init(&s->all);
	list_init(&s->reports);
	list_init(&s->binding);
	list_init(&s->invalidating);
	list_init(&s->settling);
	list_init(&s->zombies);
	list_init(&s->event);
	pd->sets++;
	c->n_sets++;
	r = set_fill(s, err);
	if (r < 0) {
		fabric_set_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static bool zombies_end(struct fabric_set *s)
{
	struct fabric_qp *qp, *tmp;

	list_for_each_safe (&s->zombies, qp, tmp, link)
		(void)qp_destroy(qp);
	return list_empty(&s->zombies);
}

int fabric_set_free(struct fabric_set *s)
{
	struct fabric_qp *qp, *tmp;

	if (!s)
		return 0;
	list_for_each_safe (&s->all, qp, tmp, link)
		(void)fabric_qp_free(qp);
	if (!zombies_end(s) || slots_unmake(s) < 0)
		return -EBUSY;
	if (s->cq && ibv_destroy_cq(s->cq) != 0 && !s->pd->dev->removed)
		return -EBUSY;
	s->chan->n_sets--;
	s->pd->sets--;
	free(s->qps);
	free(s->qp_generations);
	free(s);
	return 0;
}

uint64_t fabric_set_cookie(const struct fabric_set *s)
{
	return s->o.cookie;
}

static void note(struct fabric_set *s, const struct ibv_wc *wc)
{
	uint32_t index = (wc->wr_id >> 33) & (FABRIC_QPS_MAX - 1),
		 generation = (uint32_t)(wc->wr_id >> 43);
	struct fabric_qp *qp = index < s->o.qps_max ? s->qps[index] : NULL;

	if (!qp || qp->generation != generation) {
		s->c.stale++;
		return;
	}
	qp_note(qp, wc);
}

uint64_t set_now(struct fabric_set *s)
{
	if (!s->taking)
		return clock_boottime_ns();
	if (!s->batch_ns)
		s->batch_ns = clock_boottime_ns();
	return s->batch_ns;
}

/* Takes up to @max completions out of the queue, into the rings of the queue pairs. Returns how
 * many. */
uint32_t set_pull(struct fabric_set *s, uint32_t max, int *ret)
{
	struct ibv_wc wc[WC_BATCH];
	uint32_t total = 0;

	*ret = 0;
	while (total < max) {
		uint32_t want = MIN(max - total, WC_BATCH);
		int n = ibv_poll_cq(s->cq, (int)want, wc);

		if (n < 0) {
			*ret = -ENODEV;
			fabric_set_failed(s);
			break;
		}
		s->c.cqes += (uint64_t)n;
		s->taking = true;
		for (int i = 0; i < n; i++)
			note(s, &wc[i]);
		s->taking = false;
		s->batch_ns = 0;
		total += (uint32_t)n;
		if ((uint32_t)n < want)
			break;
	}
	return total;
}

static uint32_t report(struct fabric_set *s, struct fabric_completion *out, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && !list_empty(&s->reports))
		n += qp_report(list_first(&s->reports, struct fabric_qp, report), out + n, max - n);
	return n;
}

int fabric_set_poll(struct fabric_set *s, struct fabric_completion *out, uint32_t max)
{
	uint32_t n = report(s, out, max), pulled = 1;
	int r = 0;

	while (n < max && pulled && r == 0) {
		pulled = set_pull(s, max - n, &r);
		n += report(s, out + n, max - n);
	}
	windows_grace(s);
	return n == 0 && r < 0 ? r : (int)n;
}

int fabric_set_arm(struct fabric_set *s)
{
	return ibv_req_notify_cq(s->cq, 0) == 0 ? 0 : -ENODEV;
}

static uint64_t late(struct fabric_set *s, struct list *waiting, uint64_t now_ns)
{
	while (!list_empty(waiting)) {
		struct fabric_window *w = list_first(waiting, struct fabric_window, waiting);

		if (w->deadline_ns > now_ns)
			return w->deadline_ns;
		window_late(w, now_ns); /* takes it, and maybe others, off the list */
	}
	return UINT64_MAX;
}

uint64_t fabric_set_tick(struct fabric_set *s, uint64_t now_ns)
{
	uint64_t a = late(s, &s->binding, now_ns), b = late(s, &s->invalidating, now_ns);
	struct fabric_qp *qp;

	list_for_each (&s->all, qp, link)
		if (qp->n_gone)
			windows_refill(qp);
	(void)zombies_end(s);
	windows_grace(s);
	if (!list_empty(&s->settling))
		a = MIN(a, now_ns + GRACE_LOOK_NS);
	return MIN(a, b);
}

void fabric_set_failed(struct fabric_set *s)
{
	struct fabric_qp *qp;

	s->failed = true;
	list_for_each (&s->all, qp, link)
		qp_fail(qp);
}

void fabric_set_counters(const struct fabric_set *s, struct fabric_counters *ret)
{
	*ret = s->c;
}

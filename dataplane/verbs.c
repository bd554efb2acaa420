/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reactor's part of the verbs transport: listener, completion channel, and for each tenant that
 * has connections here its set: one completion queue, its slots. A set that has work is polled
 * every turn until it is empty, then armed. Must never let one tenant's set hold up another's: a
 * turn takes a bounded number of ends from each.
 */
#include "dataplane/verbs.h"
#include "common/clock.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs_priv.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>

static int watch(struct reactor *r, int fd, struct source *src)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = src};

	src->kind = SOURCE_VERBS;
	return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int listen_on(struct verbs *v, const char *host, struct ros2_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *ai;
	int rc = getaddrinfo(host, "0", &hints, &ai);

	if (rc)
		return ros2_err_set(err, -EINVAL,
		                    "RDMA address: expected a numeric host, found '%s': %s", host,
		                    gai_strerror(rc));
	rc = fabric_listen(v->cm, ai->ai_addr, VERBS_BACKLOG, &v->listener, err);
	freeaddrinfo(ai);
	if (rc == 0)
		v->port = fabric_listener_port(v->listener);
	return rc;
}

int verbs_new(struct reactor *r, const char *host, struct ros2_err *err)
{
	const struct fabric_cm_opts bounded = {.events_at_once = VERBS_CONN_EVENTS},
				    unbounded = {.events_at_once = UINT32_MAX};
	struct verbs *v = calloc(1, sizeof(*v));
	uint32_t kept_ms = r->dp->opts.rdma_keep_ms;
	int rc;

	if (!v)
		return ros2_err_set(err, -ENOMEM, "reactor %u: no memory for verbs", r->index);
	r->verbs = v;
	v->r = r;
	v->kept_ns =
		kept_ms == DP_RDMA_KEEP_NONE ? 0 : (kept_ms ? kept_ms : VERBS_KEPT_MS) * NS_PER_MS;
	list_init(&v->sets);
	list_init(&v->active);
	for (uint32_t i = 0; i < LEASE_TENANTS_MAX; i++) {
		list_init(&v->tenants[i].link);
		list_init(&v->tenants[i].active);
	}
	rc = fabric_channel_new(r->dp->rdma, &v->channel, err);
	if (rc == 0)
		rc = fabric_cm_new(DP_SWITCH(no_turn_bounds) ? &unbounded : &bounded, &v->cm, err);
	if (rc == 0)
		rc = listen_on(v, host, err);
	if (rc < 0)
		return rc;
	rc = watch(r, fabric_channel_fd(v->channel), &v->channel_source);
	if (rc == 0)
		rc = watch(r, fabric_cm_fd(v->cm), &v->cm_source);
	return rc < 0 ? ros2_err_set(err, rc, "reactor %u: cannot watch the RDMA device: %s",
	                             r->index, strerror(-rc))
	              : 0;
}

/* ---- how many sets there may be ---- */

static bool count_set(struct verbs *v, const struct verbs_tenant *t, struct ros2_err *err)
{
	struct dp *dp = v->r->dp;
	uint32_t most = dp->rdma_sets_max, used = atomic_fetch_add(&dp->rdma_sets, 1),
		 held = atomic_fetch_add(&dp->rdma_sets_of[t - v->tenants], 1);
	/* Of two or three, too, one is for somebody else. */
	struct share share = {.total = most,
	                      .most = most,
	                      .sure = 1,
	                      .kept = MAX(most / 4, (uint32_t)(most > 1))};

	if (share_allows(&share, held, used))
		return true;
	atomic_fetch_sub(&dp->rdma_sets, 1);
	atomic_fetch_sub(&dp->rdma_sets_of[t - v->tenants], 1);
	/* What the others have is not said: it is theirs. */
	ros2_err_named(
		err, ROS2_BUSY,
		"memory for RDMA of all tenants (--rdma-memory-total): the limit is %u sets "
		"of slots, a quarter is kept for each tenant's first; this one has %u, asked "
		"for 1 more: try again later",
		most, held);
	return false;
}

/* Sets first: with them go queue pairs that hold on to memory. */
static void bury(struct verbs *v)
{
	for (uint32_t i = v->n_dying; i-- > 0;) {
		if (fabric_set_free(v->dying[i]) < 0)
			continue;
		v->dying[i] = v->dying[--v->n_dying];
		atomic_fetch_sub(&v->r->dp->rdma_sets, 1);
	}
	for (uint32_t i = v->n_held; i-- > 0;) {
		if (fabric_region_free(v->held[i].region) < 0)
			continue;
		free(v->held[i].mem);
		v->held[i] = v->held[--v->n_held];
	}
}

static bool device_keeps(const struct verbs *v, struct ros2_err *err)
{
	if (v->n_dying < VERBS_QPS && v->n_held < VERBS_QPS)
		return false;
	ros2_err_named(err, ROS2_BUSY, "the RDMA device does not give up old memory");
	return true;
}

void verbs_memory_free(struct verbs *v, struct fabric_region *region, uint8_t *mem)
{
	if (fabric_region_free(region) == 0) {
		free(mem);
		return;
	}
	assert(v->n_held < ARRAY_SIZE(v->held));
	v->held[v->n_held].region = region;
	v->held[v->n_held++].mem = mem;
}

void verbs_free(struct reactor *r)
{
	struct verbs *v = r->verbs;

	if (!v)
		return;
	fabric_listener_free(v->listener);
	fabric_cm_free(v->cm);
	/* What a device kept to the end the kernel takes back with the process. */
	if (!v->n_dying)
		fabric_channel_free(v->channel);
	free(TAKE_PTR(r->verbs));
}

uint16_t verbs_port(const struct reactor *r)
{
	return r->verbs ? r->verbs->port : 0;
}

/* ---- a tenant here ---- */

static void free_tables(struct verbs_tenant *t)
{
	slots_free(TAKE_PTR(t->pool));
	for (int i = 0; i < SLOT_CLASSES; i++)
		free(TAKE_PTR(t->region_of[i]));
	free(TAKE_PTR(t->slots));
	t->n_slots = 0;
}

/* Takes every slot of the set: from here on the pool counts them. */
static int take_slots(struct verbs_tenant *t, const uint32_t counts[SLOT_CLASSES])
{
	uint32_t total = counts[0] + counts[1] + counts[2];
	struct slot *pieces = calloc(total, sizeof(*pieces));
	int rc = 0;

	t->slots = calloc(total, sizeof(*t->slots));
	for (uint32_t i = 0; pieces && t->slots && i < SLOT_CLASSES && rc == 0; i++) {
		t->region_of[i] = calloc(counts[i], sizeof(struct fabric_region *));
		rc = t->region_of[i] ? 0 : -ENOMEM;
		for (uint32_t j = 0; j < counts[i] && rc == 0; j++) {
			struct fabric_slot *fs = &t->slots[t->n_slots];

			if (!fabric_slot_take(t->set, slots_class_bytes(i), fs) ||
			    fs->size_class != i) {
				rc = -ENOSPC;
				break;
			}
			pieces[t->n_slots++] = (struct slot){.mem = fs->mem, .size_class = i};
			t->region_of[i][j] = fs->region;
		}
	}
	if (!pieces || !t->slots)
		rc = -ENOMEM;
	if (rc == 0)
		rc = slots_new_over(pieces, total, &t->pool);
	free(pieces);
	return rc;
}

/* The device may keep something of a set: it is tried again with the ticks. */
static void end_set(struct verbs *v, struct fabric_set *set)
{
	if (fabric_set_free(set) == 0) {
		atomic_fetch_sub(&v->r->dp->rdma_sets, 1);
		return;
	}
	assert(v->n_dying < ARRAY_SIZE(v->dying));
	v->dying[v->n_dying++] = set;
}

static void tenant_end(struct verbs *v, struct verbs_tenant *t)
{
	list_del(&t->link);
	list_del(&t->active);
	reactor_engines_forget(v->r, t->pd);
	for (uint32_t i = 0; i < t->n_slots; i++)
		fabric_slot_give(t->set, &t->slots[i]);
	free_tables(t);
	atomic_fetch_sub(&v->r->dp->rdma_sets_of[t - v->tenants], 1);
	end_set(v, TAKE_PTR(t->set));
}

/* One without a connection. */
static void idle_end(struct verbs *v, struct verbs_tenant *t)
{
	v->n_idle--;
	tenant_end(v, t);
}

/* So a device says that it has no more, which passes. */
static int no_storage_is_full(int rc, struct ros2_err *err)
{
	if (rc != -ENOSPC)
		return rc;
	if (err) {
		err->status = ROS2_BUSY;
		err->code = ros2_status_to_errno(ROS2_BUSY);
	}
	return ros2_status_to_errno(ROS2_BUSY);
}

static struct verbs_tenant *longest_idle(struct verbs *v)
{
	struct verbs_tenant *t, *ret = NULL;

	list_for_each (&v->sets, t, link)
		if (!t->n_conns && (!ret || t->idle_ns < ret->idle_ns))
			ret = t;
	return ret;
}

static bool may_make_room(const struct verbs *v, uint64_t now_ns)
{
	uint64_t pace_ms = DP_SWITCH(room_pace_ms) ? DP_SWITCH(room_pace_ms) : VERBS_ROOM_MS;

	return !v->room_ns || now_ns >= clock_add_ns(v->room_ns, pace_ms * NS_PER_MS);
}

/* What is only kept counts, too, but nobody who needs one waits long for it: of this reactor one
 * goes at once, of the others with their ticks, but of each no more than one in VERBS_ROOM_MS. */
static bool make_room(struct verbs *v, const struct verbs_tenant *t, struct ros2_err *err)
{
	struct verbs_tenant *idle;
	uint64_t now_ns = clock_boottime_ns();
	bool is_counted = count_set(v, t, err);

	idle = is_counted || !may_make_room(v, now_ns) ? NULL : longest_idle(v);
	if (idle) {
		v->room_ns = now_ns;
		idle_end(v, idle);
		is_counted = count_set(v, t, err);
	}
	if (!is_counted)
		atomic_store_explicit(&v->r->dp->rdma_short_ns, now_ns, memory_order_relaxed);
	return is_counted;
}

static int tenant_make(struct verbs *v, struct session *s, struct verbs_tenant *t,
                       struct ros2_err *err)
{
	struct fabric_set_opts o = {
		.cookie = verbs_set_cookie(v->r->index, v->n_made++, s->tenant->index),
		.cq_depth = v->r->dp->rdma_qps * verbs_cq_room(),
		.qps_max = v->r->dp->rdma_qps,
		.slots = VERBS_SLOTS};
	int rc;

	if (!make_room(v, t, err))
		return ros2_status_to_errno(ROS2_BUSY);
	rc = fabric_set_new(s->tenant->pd, v->channel, &o, &t->set, err);
	if (rc < 0) {
		atomic_fetch_sub(&v->r->dp->rdma_sets, 1);
		atomic_fetch_sub(&v->r->dp->rdma_sets_of[t - v->tenants], 1);
		return no_storage_is_full(rc, err);
	}
	t->use = (struct slot_use){0};
	t->failed = t->withdrawn = false;
	t->pd = s->tenant->pd;
	list_add_tail(&v->sets, &t->link);
	rc = take_slots(t, o.slots);
	if (rc < 0) {
		tenant_end(v, t);
		return ros2_err_named(err, ROS2_BUSY, "no memory for a tenant's slots");
	}
	verbs_activate(v, t); /* the first poll arms it */
	return 0;
}

struct verbs_tenant *verbs_tenant_enter(struct verbs *v, struct session *s, struct ros2_err *err)
{
	struct verbs_tenant *t = &v->tenants[s->tenant->index];
	bool idle = t->set && !t->n_conns;

	/* A device that keeps so much of what was given up gets no more to keep. */
	if (device_keeps(v, err))
		return NULL;
	/* What was kept may be of the last tenant that had the index. */
	if (idle && (t->failed || t->pd != s->tenant->pd)) {
		idle_end(v, t);
		idle = false;
	}
	if (!t->set && tenant_make(v, s, t, err) < 0)
		return NULL;
	if (t->failed) {
		ros2_err_set(err, -EIO,
		             "the tenant's completion queue has failed: it is made anew "
		             "when its last connection has gone");
		return NULL;
	}
	v->n_idle -= idle;
	t->n_conns++;
	return t;
}

void verbs_tenant_leave(struct verbs *v, struct verbs_tenant *t)
{
	if (--t->n_conns)
		return;
	v->n_idle++;
	if (!v->kept_ns) {
		idle_end(v, t);
		return;
	}
	/* Memory is kept, keys to it are not. */
	reactor_engines_forget(v->r, t->pd);
	t->idle_ns = clock_boottime_ns();
}

bool verbs_keeps(const struct reactor *r)
{
	const struct verbs *v = r->verbs;

	return v && (v->n_idle || v->n_dying || v->n_held);
}

void verbs_forget_pd(struct reactor *r, const struct fabric_pd *pd)
{
	struct verbs_tenant *t;

	if (!r->verbs)
		return;
	list_for_each (&r->verbs->sets, t, link)
		if (!pd || t->pd == pd)
			t->withdrawn = true;
}

void verbs_stop(struct reactor *r)
{
	struct verbs *v = r->verbs;
	struct verbs_tenant *t, *next;

	if (!v)
		return;
	fabric_listener_free(TAKE_PTR(v->listener));
	list_for_each_safe (&v->sets, t, next, link)
		if (!t->n_conns)
			idle_end(v, t);
	bury(v);
}

/* ---- memory that engines lend ---- */

int verbs_lend(struct session *s, struct ros2_err *err)
{
	struct verbs_tenant *t;

	if (s->transport == &transport_verbs || s->lender)
		return 0;
	if (!s->r->verbs || !s->tenant->pd)
		return ros2_err_set(err, -EOPNOTSUPP, "this agent has no RDMA device");
	t = verbs_tenant_enter(s->r->verbs, s, err);
	if (!t)
		return err && err->code ? err->code : -ENOMEM;
	s->lender = t;
	s->lent = (struct slot_source){.pool = t->pool, .tenant = &t->use};
	return 0;
}

void verbs_unlend(struct session *s)
{
	if (!s->lender)
		return;
	s->lent = (struct slot_source){0};
	verbs_tenant_leave(s->r->verbs, TAKE_PTR(s->lender));
}

const struct fabric_pd *verbs_lends_of(const struct session *s)
{
	return s->lender || s->transport == &transport_verbs ? s->tenant->pd : NULL;
}

struct fabric_region *verbs_lent_region(const struct session *s, const struct slot *slot)
{
	const struct verbs_tenant *t = s->lender ? s->lender : verbs_of(s)->t;

	return t->region_of[slot->size_class][slot->index];
}

/* ---- completions ---- */

void verbs_activate(struct verbs *v, struct verbs_tenant *t)
{
	if (list_empty(&t->active))
		list_add_tail(&v->active, &t->active);
}

static struct verbs_tenant *tenant_of(struct verbs *v, const struct fabric_set *set)
{
	return &v->tenants[verbs_cookie_tenant(fabric_set_cookie(set))];
}

static void set_has_work(void *arg, struct fabric_set *set)
{
	struct verbs *v = arg;
	struct verbs_tenant *t = tenant_of(v, set);

	/* One that the device would not give up yet has nobody any more. */
	if (t->set == set)
		verbs_activate(v, t);
}

/* The channel of a device that is gone says so from then on, whenever it is asked, and brings
 * nothing more: it is not asked again. */
void verbs_event(struct reactor *r, const struct source *src, uint32_t events)
{
	struct verbs *v = r->verbs;

	if (src != &v->channel_source) {
		fabric_cm_events(v->cm, verbs_conn_event, v);
		return;
	}
	fabric_channel_events(v->channel, set_has_work, v);
	if (events & (EPOLLERR | EPOLLHUP))
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, fabric_channel_fd(v->channel), NULL);
}

/* All its connections end, and what they had posted with them. */
static void tenant_failed(struct verbs *v, struct verbs_tenant *t)
{
	t->failed = true;
	fabric_set_failed(t->set);
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++) {
		struct session *s = v->r->sessions[i];

		if (s && s->transport == &transport_verbs && verbs_of(s)->t == t)
			session_end(s, ROS2_INTERNAL, "the RDMA device failed");
	}
}

static uint32_t take_ends(struct verbs *v, struct verbs_tenant *t)
{
	struct fabric_completion ends[VERBS_POLL];
	int n = fabric_set_poll(t->set, ends, VERBS_POLL);

	if (n < 0) {
		list_del(&t->active);
		if (!t->failed)
			tenant_failed(v, t);
		return 0;
	}
	/* Nothing is freed before the end of the turn: a queue pair leads to its session. */
	for (int i = 0; i < n; i++)
		verbs_completed((struct session *)(uintptr_t)fabric_qp_cookie(ends[i].qp),
		                &ends[i]);
	return (uint32_t)n;
}

/* Empty: armed, and looked at once more, because what came in between gives no event. One that has
 * failed, too: it stays as long as somebody has something of it, and its flushes may come yet. */
static uint32_t poll_one(struct verbs *v, struct verbs_tenant *t)
{
	uint32_t n = take_ends(v, t);

	if (n || list_empty(&t->active)) /* empty: it cannot be polled any more */
		return n;
	list_del(&t->active);
	if (fabric_set_arm(t->set) < 0) {
		if (!t->failed)
			tenant_failed(v, t);
		return 0;
	}
	n = take_ends(v, t);
	if (n)
		verbs_activate(v, t);
	return n;
}

uint32_t verbs_poll(struct reactor *r)
{
	struct verbs *v = r->verbs;
	struct verbs_tenant *t, *next;
	uint32_t n = 0;

	if (!v)
		return 0;
	list_for_each_safe (&v->active, t, next, active) {
		uint32_t got = poll_one(v, t);

		for (n += got; got && DP_SWITCH(no_turn_bounds); n += got)
			got = take_ends(v, t);
	}
	return n;
}

bool verbs_must_poll(const struct reactor *r)
{
	return r->verbs && !list_empty(&r->verbs->active);
}

/* ---- time, and the end ---- */

/* What the device never flushed: with the queue pair destroyed it cannot touch it any more. One
 * that it does not destroy either is tried again with the ticks of its set, and until then what was
 * posted stays where it is; but at the end of all, after which nobody uses a slot again. */
static void give_up_flushing(struct session *s)
{
	struct verbs_conn *c = verbs_of(s);

	fabric_conn_free(TAKE_PTR(c->conn));
	fabric_qp_free(TAKE_PTR(c->qp));
	c->kept = fabric_qp_kept(c->t->set, c->qp_id);
	if (c->kept && !atomic_load_explicit(&s->r->stop, memory_order_acquire))
		return;
	c->kept = false;
	for (uint32_t i = 0; i < DP_CREDITS; i++)
		if (s->requests[i].on_device)
			request_from_device(&s->requests[i]);
	session_maybe_gone(s);
}

static bool must_give_up(const struct reactor *r, const struct session *s)
{
	const struct verbs_conn *c = verbs_of(s);

	return s->state == SESSION_ENDED &&
	       (c->kept || (c->qp && r->now_ns > clock_add_ns(c->ended_ns, VERBS_FLUSH_NS)));
}

static void with_time(struct reactor *r, struct session *s)
{
	if (!s || s->transport != &transport_verbs)
		return;
	if (must_give_up(r, s))
		give_up_flushing(s);
	else
		verbs_ask_whether_there(s, r->now_ns);
}

static bool is_short(const struct reactor *r)
{
	uint64_t at_ns = atomic_load_explicit(&r->dp->rdma_short_ns, memory_order_relaxed);

	return at_ns && r->now_ns < clock_add_ns(at_ns, VERBS_SHORT_NS);
}

static bool is_over(const struct verbs *v, const struct verbs_tenant *t)
{
	return !t->n_conns &&
	       (t->failed || t->withdrawn || v->r->now_ns >= clock_add_ns(t->idle_ns, v->kept_ns));
}

/* Of those that are only kept, while somebody has none. */
static struct verbs_tenant *makes_room(struct verbs *v)
{
	struct verbs_tenant *t = NULL;

	if (is_short(v->r) && may_make_room(v, v->r->now_ns))
		t = longest_idle(v);
	if (t)
		v->room_ns = v->r->now_ns;
	return t;
}

void verbs_tick(struct reactor *r)
{
	struct verbs *v = r->verbs;
	struct verbs_tenant *t, *over = NULL;

	if (!v)
		return;
	fabric_cm_tick(v->cm, r->now_ns, verbs_conn_event, v);
	list_for_each (&v->sets, t, link) {
		slots_unstarve(t->pool);
		fabric_set_tick(t->set, r->now_ns);
		if (is_over(v, t))
			over = t;
	}
	/* One at a time: it takes some hundred calls of the device. */
	if (!over)
		over = makes_room(v);
	if (over)
		idle_end(v, over);
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++)
		with_time(r, r->sessions[i]);
	bury(v);
}

bool verbs_busy(const struct reactor *r)
{
	for (uint32_t i = 0; r->verbs && i < DP_SESSIONS_MAX; i++)
		if (r->sessions[i] && r->sessions[i]->transport == &transport_verbs &&
		    verbs_of(r->sessions[i])->qp)
			return true;
	return false;
}

/* Its flushes may have been here first: the same end either way. */
static void ended_by_device(struct session *s)
{
	if (s->state != SESSION_ENDED)
		verbs_of(s)->by_device = true;
	session_end(s, ROS2_CLOSED, verbs_ended_by_device);
}

void verbs_run_failed(struct reactor *r, struct dp_op *op)
{
	struct verbs *v = r->verbs;
	struct verbs_tenant *t;
	struct fabric_qp *qp;

	list_for_each (&v->sets, t, link) {
		if (!op->handle && fabric_set_cookie(t->set) != op->a)
			continue;
		qp = op->b ? fabric_qp_find(t->set, op->b) : NULL;
		if (qp)
			ended_by_device((struct session *)(uintptr_t)fabric_qp_cookie(qp));
		else if (!op->b && !t->failed)
			tenant_failed(v, t);
	}
	dp_op_back(op);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of a session over verbs, and what of the program's memory it may reach. End of a
 * window, each step once: 1. nothing more is sent under its key; 2. LOCAL_INV on its queue pair
 * (or, where that cannot be, its deallocation, or the end of the queue pair: dataplane/fabric
 * decides);
 * 3. the receipt: no access is served any more; 4. the memory's registration ends, if the region
 * does; 5. the memory is the caller's.
 */
#include "common/clock.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/client/verbs_priv.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define RECEIPT_MS 2000u

bool verbs_available(void)
{
	char names[1][FABRIC_NAME_MAX];
	uint32_t n = 0;

	return fabric_list(names, 1, &n, NULL) == 0 && n;
}

/* ---- the device ---- */

uint8_t *verbs_pages_new(size_t bytes)
{
	void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mem == MAP_FAILED ? NULL : mem;
}

static void pages_free(uint8_t *mem, size_t bytes)
{
	if (mem)
		munmap(mem, bytes);
}

static void ask_for_kept(struct verbs_link *v)
{
	for (uint32_t i = v->n_kept; i-- > 0;) {
		if (fabric_region_free(v->kept[i].region) < 0)
			continue;
		pages_free(v->kept[i].mem, v->kept[i].bytes);
		v->kept[i] = v->kept[--v->n_kept];
	}
}

void verbs_give_back(struct verbs_link *v, struct fabric_region *region, uint8_t *mem, size_t bytes)
{
	ask_for_kept(v);
	if (fabric_region_free(region) == 0) {
		pages_free(mem, bytes);
		return;
	}
	/* Of such a device no more is asked, and what it keeps is nobody's any more. */
	if (v->n_kept == VERBS_KEPT)
		return;
	v->kept[v->n_kept].region = region;
	v->kept[v->n_kept].mem = mem;
	v->kept[v->n_kept++].bytes = bytes;
}

/* The set first: with it go queue pairs that hold on to memory. False: the device keeps something;
 * what is left can be asked for again. */
static bool forget_device(struct verbs_link *v)
{
	v->ending = true;
	if (fabric_set_free(v->set) < 0)
		return false;
	v->set = NULL;
	ask_for_kept(v);
	if (v->n_kept)
		return false;
	fabric_channel_free(TAKE_PTR(v->channel));
	if (fabric_pd_free(v->pd) < 0)
		return false;
	v->pd = NULL;
	if (fabric_dev_close(v->dev) < 0)
		return false;
	v->dev = NULL;
	v->device[0] = 0;
	v->ending = false;
	return true;
}

/* The device may keep the registration: without a window nobody reaches what it is of. */
static void give_back_region(struct verbs_link *v, struct ros2_region *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(v->revokes) && r->revoking; i++) {
		struct verbs_revoke *x = &v->revokes[i];

		if (!x->due || x->region != r)
			continue;
		x->region = NULL;
		r->revoking--;
	}
	verbs_give_back(v, TAKE_PTR(r->fabric), NULL, 0);
}

static void give_back_regions(struct ros2_session *s)
{
	for (uint32_t i = 0; i < s->n_regions; i++)
		give_back_region(s->verbs, s->regions[i]);
}

static int open_device(struct verbs_link *v, const char *name, struct ros2_err *err)
{
	struct fabric_pd_opts pd = {.pinned_bytes_max = UINT64_MAX / 4,
	                            .regions_max = REGIONS_MAX + 16,
	                            .windows_max = 2 * VERBS_WINDOWS,
	                            .qps_max = 2};
	/* The sends (each may be a bind), the LOCAL_INVs and the receives of two connections: one
	 * that the device is slow to give up, and the next. */
	struct fabric_set_opts set = {
		.cq_depth = 2 * (2 * WIRE_CREDITS_MAX + 4 * VERBS_WINDOWS + 4 * VERBS_SPARE),
		.qps_max = 2};
	int rc = fabric_fork_init(err);

	if (rc == 0)
		rc = fabric_dev_open(name, &v->dev, err);
	if (rc == 0)
		rc = fabric_pd_new(v->dev, &pd, &v->pd, err);
	if (rc == 0)
		rc = fabric_channel_new(v->dev, &v->channel, err);
	if (rc == 0) {
		set.cq_depth = MIN(set.cq_depth, fabric_dev_attr(v->dev)->max_cq_depth);
		set.end_by_dealloc =
			fabric_dev_attr(v->dev)->software && !CLIENT_SWITCH(invalidates_windows);
		rc = fabric_set_new(v->pd, v->channel, &set, &v->set, err);
	}
	return rc;
}

static void no_event(void *arg, const struct fabric_event *e)
{
}

/* It may have been reset, and be there again under the same name: what was made of it before is of
 * no use any more. */
static bool was_reset(struct verbs_link *v)
{
	if (v->dev)
		(void)fabric_dev_events(v->dev, no_event, NULL);
	return v->dev && fabric_dev_removed(v->dev);
}

int verbs_use_device(struct ros2_session *s, const char *name, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	bool reset = was_reset(v);
	int rc;

	ask_for_kept(v);
	if (v->set && !v->ending && !reset && v->n_kept < VERBS_KEPT && !strcmp(v->device, name))
		return 0;
	/* One that was reset flushes nothing: its windows let go of regions with the set. */
	if (reset && fabric_set_free(v->set) == 0)
		v->set = NULL;
	give_back_regions(s);
	if (!forget_device(v))
		return ros2_err_set(err, -ENOSPC,
		                    "RDMA device %s does not give up what earlier connections had",
		                    v->device);
	rc = open_device(v, name, err);
	if (rc < 0) {
		(void)forget_device(v);
		return ros2_err_prefix(err, "RDMA device %s", name);
	}
	snprintf(v->device, sizeof(v->device), "%s", name);
	return 0;
}

void verbs_ask_again(struct ros2_client *c)
{
	struct verbs_link *v, *tmp;

	list_for_each_safe (&c->verbs_kept, v, tmp, link) {
		if (!forget_device(v))
			continue;
		list_del(&v->link);
		free(v);
	}
}

void verbs_link_free(struct ros2_session *s)
{
	struct ros2_client *c = s->client;
	struct verbs_link *v = s->verbs;

	if (!v)
		return;
	verbs_link_cut(s);
	give_back_regions(s);
	fabric_cm_free(TAKE_PTR(v->cm));
	s->verbs = NULL;
	pthread_mutex_lock(&c->lock);
	list_add_tail(&c->verbs_kept, &v->link);
	verbs_ask_again(c);
	pthread_mutex_unlock(&c->lock);
}

struct fabric_region *verbs_region_of(struct ros2_session *s, struct ros2_region *r,
                                      struct ros2_err *err)
{
	struct fabric_region_opts o = {.addr = r->addr,
	                               .length = r->len,
	                               .bindable = true,
	                               .dmabuf = r->is_device,
	                               .dmabuf_fd = r->dmabuf_fd,
	                               .dmabuf_offset = r->dmabuf_offset};

	if (!r->fabric && fabric_region_new(s->verbs->pd, &o, &r->fabric, err) < 0)
		ros2_err_prefix(err, "registering %zu bytes with the RDMA device", r->len);
	return r->fabric;
}

/* The agent is told of one window, which is all of the region. */
int verbs_region_fits(const struct ros2_session *s, const struct ros2_region *r,
                      struct ros2_err *err)
{
	bool is_over = s->over == ROS2_TRANSPORT_VERBS && s->verbs && s->verbs->dev;
	uint64_t most = is_over ? fabric_dev_attr(s->verbs->dev)->max_window_bytes : 0;

	if (!most || r->len <= most)
		return 0;
	return ros2_err_named(err, ROS2_TOO_LARGE,
	                      "a region of %zu bytes: a memory window of RDMA device %s has at "
	                      "most %llu; register parts of it",
	                      r->len, s->verbs->device, (unsigned long long)most);
}

int verbs_know_region(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err)
{
	struct ros2_err own = ROS2_ERR_INIT;
	int rc = verbs_region_fits(s, r, err);

	if (rc < 0)
		return rc;
	if (s->over != ROS2_TRANSPORT_VERBS)
		return ros2_err_named(err, ROS2_UNSUPPORTED,
		                      "memory of a device is reached over verbs only: this session "
		                      "is over %s",
		                      s->over == ROS2_TRANSPORT_SHM ? "shm" : "tcp");
	if (verbs_region_of(s, r, &own))
		return 0;
	if (own.code == -EOPNOTSUPP)
		return ros2_err_named(err, ROS2_UNSUPPORTED, "%s", own.msg);
	if (err)
		*err = own;
	return own.code;
}

/* ---- windows ---- */

static void on_receipt(void *arg, const struct fabric_receipt *receipt)
{
	struct verbs_revoke *x = arg;

	x->due = false;
	x->link->n_revoking--;
	if (x->region)
		x->region->revoking--;
}

static struct verbs_revoke *free_revoke(struct verbs_link *v)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(v->revokes) && v->revokes[i].due)
		i++;
	assert(i < ARRAY_SIZE(v->revokes));
	return &v->revokes[i];
}

static void revoke_window(struct ros2_session *s, struct ros2_region *r)
{
	struct fabric_window *w = TAKE_PTR(r->window);
	struct verbs_revoke *x;

	if (!w)
		return;
	x = free_revoke(s->verbs);
	*x = (struct verbs_revoke){s->verbs, r, true};
	r->revoking++;
	s->verbs->n_revoking++;
	/* Already ended: there will be no receipt. */
	if (fabric_window_revoke(w, clock_boottime_ns(), on_receipt, x) < 0)
		on_receipt(x, NULL);
}

void verbs_windows_lost(struct ros2_session *s)
{
	/* The windows go with their queue pair; receipts that are due run when it is freed. */
	for (uint32_t i = 0; i < s->n_regions; i++)
		s->regions[i]->window = NULL;
}

static bool lease_ended(struct ros2_session *s, struct ros2_region *r, uint64_t now)
{
	bool ended, late;

	pthread_mutex_lock(&s->lock);
	ended = r->stale || now >= r->deadline_ns || r->key != r->window_lease ||
	        r->generation != r->window_generation;
	late = now >= clock_add_ns(r->deadline_ns, VERBS_GRACE_MS * NS_PER_MS);
	pthread_mutex_unlock(&s->lock);
	/* The agent begins nothing after its own end of the lease; what it had begun may end. */
	return ended && (!r->n_sent || late);
}

void verbs_windows_expire(struct ros2_session *s)
{
	uint64_t now = clock_boottime_ns();
	bool any = false;

	for (uint32_t i = 0; i < s->n_regions; i++) {
		struct ros2_region *r = s->regions[i];

		if (!r->window || !lease_ended(s, r, now))
			continue;
		revoke_window(s, r);
		any = true;
	}
	if (any && s->verbs->qp)
		fabric_qp_flush(s->verbs->qp, now);
}

static void tell_window(struct ros2_session *s, const struct ros2_region *r, uint32_t window_key)
{
	struct wire_header h = {.opcode = WIRE_WINDOW,
	                        .handle = window_key,
	                        .offset = r->len,
	                        .address = (uintptr_t)r->addr,
	                        .key = r->window_lease,
	                        .generation = r->window_generation};

	tx_push(&s->tx, &h, NULL, -1);
}

static enum verbs_window bind_window(struct ros2_session *s, const struct request *r,
                                     struct ros2_err *err)
{
	struct ros2_region *region = r->region;
	struct fabric_bind b = {.cookie = (uint64_t)VERBS_BIND << 32,
	                        .region = region->fabric,
	                        .length = region->len,
	                        .flags = FABRIC_QUIET};
	uint32_t key;
	int rc;

	b.access = (region->access & ROS2_REGION_READ ? FABRIC_READ : 0) |
	           (region->access & ROS2_REGION_WRITE ? FABRIC_WRITE : 0);
	if (tx_is_full(&s->tx))
		return VERBS_WINDOW_WAIT;
	rc = fabric_window_bind(s->verbs->qp, &b, &region->window, &key);
	/* Some come back: LOCAL_INVs are under way, or sends. */
	if (rc == -EBUSY && (s->verbs->n_revoking || s->n_sent))
		return VERBS_WINDOW_WAIT;
	if (rc < 0) {
		if (rc == -EBUSY)
			ros2_err_named(err, ROS2_LIMIT,
			               "more regions are in use than a connection has windows");
		else
			ros2_err_set(err, rc, "no window could be bound over a region: %s",
			             strerror(-rc));
		return VERBS_WINDOW_FAILED;
	}
	region->window_lease = r->key;
	region->window_generation = r->generation;
	tell_window(s, region, key);
	return VERBS_WINDOW_READY;
}

enum verbs_window verbs_window_ready(struct ros2_session *s, const struct request *r,
                                     struct ros2_err *err)
{
	struct ros2_region *region = r->region;

	if (!region)
		return VERBS_WINDOW_READY;
	if (!s->verbs->qp)
		return VERBS_WINDOW_WAIT; /* it has just been cut: the next step says so */
	if (verbs_know_region(s, region, err) < 0)
		return VERBS_WINDOW_FAILED;
	if (r->kind == REQ_WRITE && r->len <= s->max_inline)
		return VERBS_WINDOW_READY;
	if (region->window && region->window_lease == r->key &&
	    region->window_generation == r->generation)
		return VERBS_WINDOW_READY;
	/* Of a lease that has ended: what was sent under it must be answered first. */
	if (region->window && region->n_sent)
		return VERBS_WINDOW_WAIT;
	revoke_window(s, region);
	return bind_window(s, r, err);
}

/* ---- the end of a region ---- */

static void wait_for_receipt(struct ros2_session *s, struct ros2_region *r)
{
	uint64_t until = clock_add_ns(clock_monotonic_ns(), RECEIPT_MS * NS_PER_MS);
	bool moved = false;

	while (r->revoking && s->verbs->qp && clock_monotonic_ns() < until) {
		struct pollfd p = {.fd = fabric_channel_fd(s->verbs->channel), .events = POLLIN};

		if (verbs_take(s, &moved, NULL) < 0)
			break;
		fabric_set_tick(s->verbs->set, clock_boottime_ns());
		fabric_set_arm(s->verbs->set);
		if (verbs_take(s, &moved, NULL) < 0)
			break;
		if (r->revoking)
			(void)poll(&p, 1, 50);
	}
}

void verbs_region_end(struct ros2_session *s, struct ros2_region *r)
{
	if (!s->verbs)
		return;
	if (r->window) {
		revoke_window(s, r);
		fabric_qp_flush(s->verbs->qp, clock_boottime_ns());
	}
	wait_for_receipt(s, r);
	/* Not without the receipt: then the queue pair goes, and the window with it. */
	if (r->revoking) {
		verbs_link_cut(s);
		s->verbs->over = true;
		ros2_err_named(&s->verbs->why, ROS2_CLOSED,
		               "the RDMA device did not end a window in time");
	}
	give_back_region(s->verbs, r);
}

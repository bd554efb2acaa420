/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, domains, regions, channels, sets, slots and windows of fabric_mem. */
#include "tests/verbs/fabric_mem_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
struct fabric_mem_counts mem_now;
static bool absent, forks_unsafe, has_dmabuf, refuses_regions;
static uint64_t keeps_length;
static uint32_t max_regions;
static uint64_t max_window;
static struct list all_regions = {&all_regions, &all_regions};

void fabric_mem_counts(struct fabric_mem_counts *ret)
{
	pthread_mutex_lock(&mem_lock);
	*ret = mem_now;
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_absent(bool is)
{
	absent = is;
}

void fabric_mem_max_regions(uint32_t max)
{
	max_regions = max;
}

void fabric_mem_max_window(uint64_t bytes)
{
	max_window = bytes;
}

void fabric_mem_refuse_regions(bool refuse)
{
	pthread_mutex_lock(&mem_lock);
	refuses_regions = refuse;
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_keep_regions(uint64_t length)
{
	pthread_mutex_lock(&mem_lock);
	keeps_length = length;
	pthread_mutex_unlock(&mem_lock);
}

bool fabric_mem_knows(const void *mem, size_t len)
{
	const struct fabric_region *r;
	bool knows = false;

	pthread_mutex_lock(&mem_lock);
	list_for_each (&all_regions, r, link)
		knows |= r->mem < (const uint8_t *)mem + len &&
		         (const uint8_t *)mem < r->mem + r->length;
	pthread_mutex_unlock(&mem_lock);
	return knows;
}

void fabric_mem_dmabuf(bool has)
{
	has_dmabuf = has;
}

/* ---- faults ---- */

/* Of fault, apart from mem_lock, which some of those who ask hold. */
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint32_t nth, asked;
	enum fabric_mem_whose whose;
	bool for_good;
	pthread_t thread;
} fault;

void fabric_mem_fail(enum fabric_mem_whose whose, uint32_t nth, bool for_good)
{
	pthread_mutex_lock(&fault_lock);
	fault.whose = whose;
	fault.for_good = for_good;
	fault.thread = pthread_self();
	if (nth)
		fault.asked = 0;
	fault.nth = nth;
	pthread_mutex_unlock(&fault_lock);
}

uint32_t fabric_mem_asked(void)
{
	uint32_t n;

	pthread_mutex_lock(&fault_lock);
	n = fault.asked;
	pthread_mutex_unlock(&fault_lock);
	return n;
}

bool mem_faulty(void)
{
	bool mine, faulty = false;

	pthread_mutex_lock(&fault_lock);
	mine = pthread_equal(fault.thread, pthread_self());
	if (fault.nth && mine == (fault.whose == FABRIC_MEM_MINE)) {
		fault.asked++;
		faulty = fault.for_good ? fault.asked >= fault.nth : fault.asked == fault.nth;
	}
	pthread_mutex_unlock(&fault_lock);
	return faulty;
}

static void count(uint32_t *n, int by)
{
	pthread_mutex_lock(&mem_lock);
	*n += (uint32_t)by;
	pthread_mutex_unlock(&mem_lock);
}

/* ---- names ---- */

const char *fabric_op_to_str(enum fabric_op op)
{
	static const char *const names[] = {"send", "recv", "read", "write", "bind", "invalidate"};

	return names[op];
}

const char *fabric_end_to_str(enum fabric_end e)
{
	static const char *const names[] = {
		"ok",           "flushed",   "local",      "remote access",
		"remote other", "no answer", "no receive", "device"};

	return names[e];
}

/* ---- device and domain ---- */

int fabric_list(char (*names)[FABRIC_NAME_MAX], uint32_t max, uint32_t *ret_n, struct ros2_err *err)
{
	*ret_n = absent || !max ? 0 : 1;
	if (*ret_n)
		snprintf(names[0], FABRIC_NAME_MAX, "%s", FABRIC_MEM_DEVICE);
	return 0;
}

void fabric_mem_forks(bool unsafe)
{
	forks_unsafe = unsafe;
}

int fabric_fork_init(struct ros2_err *err)
{
	return forks_unsafe ? ros2_err_set(err, -EOPNOTSUPP, "forks are not safe") : 0;
}

int fabric_dev_open(const char *name, struct fabric_dev **ret, struct ros2_err *err)
{
	struct fabric_dev *d;

	if (absent || strcmp(name, FABRIC_MEM_DEVICE))
		return ros2_err_set(err, -ENODEV, "no RDMA device '%s': there is %s", name,
		                    absent ? "none" : FABRIC_MEM_DEVICE);
	if (mem_faulty())
		return ros2_err_set(err, -EIO, "the device does not answer");
	d = calloc(1, sizeof(*d));
	snprintf(d->attr.name, sizeof(d->attr.name), "%s", name);
	d->attr.max_cq_depth = 65536;
	d->attr.max_qp_depth = 16384;
	d->attr.max_windows = 65536;
	d->attr.max_regions = max_regions;
	d->attr.max_window_bytes = max_window;
	d->attr.max_reads_in = d->attr.max_reads_out = 16;
	d->attr.window_2b = true;
	d->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	count(&mem_now.devices, 1);
	*ret = d;
	return 0;
}

int fabric_dev_close(struct fabric_dev *d)
{
	if (d && d->users)
		return -EBUSY;
	if (d) {
		close(d->event_fd);
		count(&mem_now.devices, -1);
	}
	free(d);
	return 0;
}

const struct fabric_dev_attr *fabric_dev_attr(const struct fabric_dev *d)
{
	return &d->attr;
}

void fabric_dev_set_peer_invalidates(struct fabric_dev *d, bool seen_safe)
{
	d->peer_invalidates = seen_safe && !d->attr.software;
}

bool fabric_dev_peer_invalidates(const struct fabric_dev *d)
{
	return d->peer_invalidates;
}

int fabric_dev_event_fd(const struct fabric_dev *d)
{
	return d->event_fd;
}

uint32_t fabric_dev_events(struct fabric_dev *d,
                           void (*fn)(void *arg, const struct fabric_event *e), void *arg)
{
	struct fabric_event e;
	uint64_t n;

	pthread_mutex_lock(&mem_lock);
	e = d->event;
	d->event = (struct fabric_event){0};
	(void)!read(d->event_fd, &n, sizeof(n));
	d->removed |= e.words && e.kind == FABRIC_EVENT_DEVICE_REMOVED;
	pthread_mutex_unlock(&mem_lock);
	if (!e.words)
		return 0;
	fn(arg, &e);
	return 1;
}

bool fabric_dev_removed(const struct fabric_dev *d)
{
	return d->removed;
}

int fabric_pd_new(struct fabric_dev *d, const struct fabric_pd_opts *o, struct fabric_pd **ret,
                  struct ros2_err *err)
{
	struct fabric_pd *pd;

	if (mem_faulty())
		return ros2_err_set(err, -ENOSPC, "the device has no more domains");
	pd = calloc(1, sizeof(*pd));
	if (!o->pinned_bytes_max || !o->regions_max || !o->windows_max || !o->qps_max) {
		free(pd);
		return ros2_err_set(err, -EINVAL, "a cap of a protection domain is zero");
	}
	pd->dev = d;
	pd->opts = *o;
	d->users++;
	count(&mem_now.pds, 1);
	*ret = pd;
	return 0;
}

int fabric_pd_free(struct fabric_pd *pd)
{
	bool busy;

	if (!pd)
		return 0;
	/* Reactors give up what is of it. */
	pthread_mutex_lock(&mem_lock);
	busy = pd->use.regions || pd->use.sets;
	pthread_mutex_unlock(&mem_lock);
	if (busy)
		return -EBUSY;
	pd->dev->users--;
	count(&mem_now.pds, -1);
	free(pd);
	return 0;
}

struct fabric_dev *fabric_pd_dev(const struct fabric_pd *pd)
{
	return pd->dev;
}

/* ---- regions ---- */

static int region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                      struct fabric_region **ret, struct ros2_err *err)
{
	struct fabric_region *r;
	uint8_t *mem = o->addr;

	if (pd->dev->reset)
		return ros2_err_set(err, -EIO, "the device was reset");
	if (!o->length || (!o->addr && !o->dmabuf))
		return ros2_err_set(err, -EINVAL, "no memory to register");
	if (o->dmabuf && !has_dmabuf)
		return ros2_err_set(err, -EOPNOTSUPP, "dma-buf: not supported by %s",
		                    FABRIC_MEM_DEVICE);
	if (pd->use.regions >= pd->opts.regions_max ||
	    pd->use.pinned_bytes + o->length > pd->opts.pinned_bytes_max)
		return ros2_err_set(err, -EDQUOT,
		                    "the protection domain's cap: %u regions of %u, "
		                    "%llu bytes and %llu more of %llu",
		                    pd->use.regions, pd->opts.regions_max,
		                    (unsigned long long)pd->use.pinned_bytes,
		                    (unsigned long long)o->length,
		                    (unsigned long long)pd->opts.pinned_bytes_max);
	if (o->dmabuf) {
		mem = mmap(NULL, o->length, PROT_READ | PROT_WRITE, MAP_SHARED, o->dmabuf_fd,
		           (off_t)o->dmabuf_offset);
		if (mem == MAP_FAILED)
			return ros2_err_set(err, -errno, "dma-buf: %s", strerror(errno));
	}
	r = calloc(1, sizeof(*r));
	*r = (struct fabric_region){.pd = pd,
	                            .mem = mem,
	                            .base = (uintptr_t)o->addr,
	                            .length = o->length,
	                            .bindable = o->bindable,
	                            .dmabuf = o->dmabuf};
	list_add_tail(&all_regions, &r->link);
	pd->use.regions++;
	pd->use.pinned_bytes += o->length;
	mem_now.regions++;
	mem_now.regions_made++;
	*ret = r;
	return 0;
}

int fabric_region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                      struct fabric_region **ret, struct ros2_err *err)
{
	int rc;

	if (mem_faulty())
		return ros2_err_set(err, -ENOMEM, "the device has no memory for a region");
	pthread_mutex_lock(&mem_lock);
	mem_now.regions_refused += refuses_regions;
	rc = refuses_regions ? ros2_err_set(err, -ENOMEM, "the device has no memory for a region")
	                     : region_new(pd, o, ret, err);
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

static int region_free(struct fabric_region *r)
{
	/* A device that was reset flushes nothing: windows let go of memory with their set. */
	if (r->users || (r->pd->dev->reset && r->bindable && r->pd->use.sets))
		return -EBUSY;
	list_del(&r->link);
	r->pd->use.pinned_bytes -= r->length;
	r->pd->use.regions--;
	mem_now.regions--;
	if (r->dmabuf)
		munmap(r->mem, r->length);
	free(r);
	return 0;
}

int fabric_region_free(struct fabric_region *r)
{
	int rc = 0;

	pthread_mutex_lock(&mem_lock);
	if (r && keeps_length == r->length) {
		mem_now.regions_kept++;
		rc = -EBUSY;
	} else if (r) {
		rc = region_free(r);
	}
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

uint64_t fabric_region_base(const struct fabric_region *r)
{
	return r->base;
}

uint64_t fabric_region_length(const struct fabric_region *r)
{
	return r->length;
}

void *fabric_region_mem(const struct fabric_region *r)
{
	return r->dmabuf ? NULL : r->mem;
}

/* ---- channel ---- */

int fabric_channel_new(struct fabric_dev *d, struct fabric_channel **ret, struct ros2_err *err)
{
	struct fabric_channel *c;

	if (mem_faulty())
		return ros2_err_set(err, -ENOMEM, "no memory for a channel");
	c = calloc(1, sizeof(*c));
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->dev = d;
	d->users++;
	list_init(&c->sets);
	*ret = c;
	return 0;
}

void fabric_channel_free(struct fabric_channel *c)
{
	if (!c)
		return;
	c->dev->users--;
	close(c->fd);
	free(c);
}

int fabric_channel_fd(const struct fabric_channel *c)
{
	return c->fd;
}

uint32_t fabric_channel_events(struct fabric_channel *c,
                               void (*fn)(void *arg, struct fabric_set *s), void *arg)
{
	uint64_t n;
	uint32_t told = 0;

	if (read(c->fd, &n, sizeof(n)) < 0)
		return 0;
	for (;;) {
		struct fabric_set *s = NULL;

		pthread_mutex_lock(&mem_lock);
		if (!list_empty(&c->sets)) {
			s = list_first(&c->sets, struct fabric_set, ready);
			list_del(&s->ready);
		}
		pthread_mutex_unlock(&mem_lock);
		if (!s)
			return told;
		fn(arg, s);
		told++;
	}
}

/* ---- set ---- */

static int make_slots(struct fabric_set *s, struct ros2_err *err)
{
	static const uint32_t sizes[] = {16u << 10, 128u << 10, 1u << 20};
	uint32_t total = s->opts.slots[0] + s->opts.slots[1] + s->opts.slots[2];

	s->slots = calloc(total + 1, sizeof(*s->slots));
	s->taken = calloc(total + 1, sizeof(*s->taken));
	for (uint32_t c = 0; c < FABRIC_SLOT_CLASSES; c++)
		for (uint32_t i = 0; i < s->opts.slots[c]; i++) {
			struct fabric_slot *slot = &s->slots[s->n_slots];
			struct fabric_region_opts o = {
				.addr = malloc(sizes[c]), .length = sizes[c], .bindable = true};
			int rc = region_new(s->pd, &o, &slot->region, err);

			if (rc < 0) {
				free(o.addr);
				return rc;
			}
			slot->mem = o.addr;
			slot->size_class = c;
			slot->size_bytes = sizes[c];
			slot->index = s->n_slots++;
		}
	return 0;
}

static void set_drop(struct fabric_set *s)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		region_free(s->slots[i].region);
		free(s->slots[i].mem);
	}
	while (!list_empty(&s->ends)) {
		struct mem_end *e = list_first(&s->ends, struct mem_end, link);

		list_del(&e->link);
		free(e);
	}
	list_del(&s->ready);
	s->pd->use.sets--;
	mem_now.sets--;
	free(s->slots);
	free(s->taken);
	free(s);
}

int fabric_set_new(struct fabric_pd *pd, struct fabric_channel *c, const struct fabric_set_opts *o,
                   struct fabric_set **ret, struct ros2_err *err)
{
	struct fabric_set *s;
	int rc;

	if (mem_faulty())
		return ros2_err_set(err, -ENOSPC, "the device has no more completion queues");
	s = calloc(1, sizeof(*s));
	pthread_mutex_lock(&mem_lock);
	s->pd = pd;
	s->channel = c;
	s->opts = *o;
	list_init(&s->ends);
	list_init(&s->ready);
	list_init(&s->qps);
	list_init(&s->zombies);
	pd->use.sets++;
	mem_now.sets++;
	mem_now.sets_made++;
	rc = make_slots(s, err);
	if (rc < 0)
		set_drop(s);
	else
		*ret = s;
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

int fabric_set_free(struct fabric_set *s)
{
	bool over;

	if (!s)
		return 0;
	while (!list_empty(&s->qps))
		fabric_qp_free(list_first(&s->qps, struct fabric_qp, link));
	pthread_mutex_lock(&mem_lock);
	over = mem_zombies_end(s);
	if (over)
		set_drop(s);
	pthread_mutex_unlock(&mem_lock);
	return over ? 0 : -EBUSY;
}

uint64_t fabric_set_cookie(const struct fabric_set *s)
{
	return s->opts.cookie;
}

static void notify(struct fabric_set *s)
{
	uint64_t one = 1;

	s->armed = false;
	if (list_empty(&s->ready))
		list_add_tail(&s->channel->sets, &s->ready);
	if (write(s->channel->fd, &one, sizeof(one)) < 0)
		abort();
}

void mem_tell(struct fabric_set *s, const struct fabric_completion *c,
              struct fabric_window *receipt)
{
	struct mem_end *e = calloc(1, sizeof(*e));

	if (c)
		e->c = *c;
	e->receipt = receipt;
	list_add_tail(&s->ends, &e->link);
	if (s->armed)
		notify(s);
}

static struct mem_end *take_end(struct fabric_set *s)
{
	struct mem_end *e = NULL;

	pthread_mutex_lock(&mem_lock);
	if (!list_empty(&s->ends)) {
		e = list_first(&s->ends, struct mem_end, link);
		list_del(&e->link);
	}
	pthread_mutex_unlock(&mem_lock);
	return e;
}

static void run_receipt(struct fabric_window *w, enum fabric_receipt_how how)
{
	struct fabric_receipt r = {.last_posted_ns = w->last_posted_ns,
	                           .invalidated_ns = clock_boottime_ns(),
	                           .how = how};
	fabric_receipt_fn fn = w->fn;

	w->fn = NULL;
	if (fn)
		fn(w->arg, &r);
}

int fabric_set_poll(struct fabric_set *s, struct fabric_completion *out, uint32_t max)
{
	uint32_t n = 0;

	if (mem_faulty()) {
		fabric_set_failed(s);
		return -ENODEV;
	}
	while (n < max) {
		struct mem_end *e = take_end(s);

		if (!e)
			break;
		if (e->receipt)
			run_receipt(e->receipt, FABRIC_BY_INVALIDATE);
		else
			out[n++] = e->c;
		free(e);
	}
	return (int)n;
}

int fabric_set_arm(struct fabric_set *s)
{
	if (mem_faulty()) {
		fabric_set_failed(s);
		return -ENODEV;
	}
	pthread_mutex_lock(&mem_lock);
	s->armed = true;
	pthread_mutex_unlock(&mem_lock);
	return 0;
}

uint64_t fabric_set_tick(struct fabric_set *s, uint64_t now_ns)
{
	pthread_mutex_lock(&mem_lock);
	(void)mem_zombies_end(s);
	pthread_mutex_unlock(&mem_lock);
	return UINT64_MAX;
}

void fabric_set_failed(struct fabric_set *s)
{
	struct fabric_qp *qp;

	pthread_mutex_lock(&mem_lock);
	list_for_each (&s->qps, qp, link)
		mem_qp_fail(qp);
	pthread_mutex_unlock(&mem_lock);
}

bool fabric_slot_take(struct fabric_set *s, uint32_t len, struct fabric_slot *ret)
{
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (s->taken[i] || s->slots[i].size_bytes < len)
			continue;
		s->taken[i] = true;
		*ret = s->slots[i];
		return true;
	}
	return false;
}

bool fabric_slot_give(struct fabric_set *s, struct fabric_slot *slot)
{
	s->taken[slot->index] = false;
	return true;
}

/* ---- windows ---- */

static struct fabric_window *free_window(struct fabric_qp *qp)
{
	for (uint32_t i = 0; i < qp->opts.windows; i++)
		if (qp->windows[i].state == FABRIC_WINDOW_FREE && !qp->windows[i].fn &&
		    !qp->windows[i].held)
			return &qp->windows[i];
	return NULL;
}

static int queue_internal(struct fabric_qp *qp, enum fabric_op op, struct fabric_window *w,
                          uint64_t cookie, uint32_t flags)
{
	struct mem_wr *wr = calloc(1, sizeof(*wr));

	*wr = (struct mem_wr){.qp = qp,
	                      .op = op,
	                      .window = w,
	                      .cookie = cookie,
	                      .flags = flags,
	                      .internal = op == FABRIC_OP_INVALIDATE};
	qp->outstanding++;
	list_add_tail(&qp->queued, &wr->link);
	return 0;
}

static int bind_window(struct fabric_qp *qp, const struct fabric_bind *b,
                       struct fabric_window **ret, uint32_t *ret_key)
{
	struct fabric_window *w = free_window(qp);

	if (qp->state != FABRIC_QP_READY)
		return -ENOTCONN;
	if (!w)
		return -EBUSY;
	if (b->region->pd != qp->set->pd || !b->region->bindable)
		return -EPERM;
	if (!b->length || b->offset > b->region->length ||
	    b->length > b->region->length - b->offset)
		return -ERANGE;
	if (!b->access || b->access & ~qp->opts.remote_access)
		return -EINVAL;
	*w = (struct fabric_window){.qp = qp,
	                            .state = FABRIC_WINDOW_BINDING,
	                            .region = b->region,
	                            .offset = b->offset,
	                            .length = b->length,
	                            .access = b->access,
	                            .held = true,
	                            .key = w->key ? w->key : crypto_random_u32()};
	w->key = (w->key & ~0xffu) | ((w->key + 1 + crypto_random_u32() % 200) & 0xff);
	b->region->users++;
	*ret = w;
	*ret_key = w->key;
	return queue_internal(qp, FABRIC_OP_BIND, w, b->cookie, b->flags);
}

int fabric_window_bind(struct fabric_qp *qp, const struct fabric_bind *b,
                       struct fabric_window **ret, uint32_t *ret_key)
{
	uint64_t most;
	int rc;

	if (mem_faulty())
		return -EBUSY;
	pthread_mutex_lock(&mem_lock);
	most = qp->set->pd->dev->attr.max_window_bytes;
	rc = most && b->length > most ? -EMSGSIZE : bind_window(qp, b, ret, ret_key);
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

int fabric_window_revoke(struct fabric_window *w, uint64_t now_ns, fabric_receipt_fn fn, void *arg)
{
	bool at_once;

	pthread_mutex_lock(&mem_lock);
	if (!w->held) {
		pthread_mutex_unlock(&mem_lock);
		return -EALREADY;
	}
	w->held = false;
	at_once = w->state == FABRIC_WINDOW_GONE || w->state == FABRIC_WINDOW_FREE;
	w->fn = fn;
	w->arg = arg;
	if (!at_once) {
		w->state = FABRIC_WINDOW_INVALIDATING;
		queue_internal(w->qp, FABRIC_OP_INVALIDATE, w, 0, FABRIC_QUIET);
	}
	pthread_mutex_unlock(&mem_lock);
	if (at_once) {
		run_receipt(w, FABRIC_BY_DEALLOC);
		w->state = FABRIC_WINDOW_FREE;
	}
	return 0;
}

enum fabric_window_state fabric_window_state(const struct fabric_window *w)
{
	return w->state;
}

uint64_t fabric_window_base(const struct fabric_window *w)
{
	return w->region->base + w->offset;
}

uint32_t fabric_window_key(const struct fabric_window *w)
{
	return w->key;
}

uint32_t fabric_qp_windows_free(const struct fabric_qp *qp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < qp->opts.windows; i++)
		n += qp->windows[i].state == FABRIC_WINDOW_FREE;
	return n;
}

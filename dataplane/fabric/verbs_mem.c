// SPDX-License-Identifier: Apache-2.0
/*
 * Protection domains with the caps of their tenant, and registered memory. Memory is registered
 * with LOCAL_WRITE, with MW_BIND if windows are to be bound over it, and never with a remote flag:
 * its own rkey opens nothing. Caps are taken before the device is asked and given back when it
 * refused, so that no tenant's churn reaches the limits of the device.
 */
#include "dataplane/fabric/verbs_priv.h"
#include <assert.h>
#include <errno.h>

int pd_take(_Atomic uint32_t *count, uint32_t n, uint32_t max)
{
	uint32_t have = atomic_load(count);

	do {
		if (n > max || have > max - n)
			return -EDQUOT;
	} while (!atomic_compare_exchange_weak(count, &have, have + n));
	return 0;
}

static int pd_pin(struct fabric_pd *pd, uint64_t bytes)
{
	uint64_t have = atomic_load(&pd->pinned_bytes), max = pd->caps.pinned_bytes_max;

	do {
		if (bytes > max || have > max - bytes)
			return -EDQUOT;
	} while (!atomic_compare_exchange_weak(&pd->pinned_bytes, &have, have + bytes));
	return 0;
}

int fabric_pd_new(struct fabric_dev *d, const struct fabric_pd_opts *o, struct fabric_pd **ret,
                  struct ros2_err *err)
{
	struct fabric_pd *pd;
	int r;

	if (!o->pinned_bytes_max || !o->regions_max || !o->windows_max || !o->qps_max)
		return ros2_err_set(err, -EINVAL,
		                    "a cap of a protection domain is 0: expected at least 1 (bytes "
		                    "%llu, regions "
		                    "%u, windows %u, queue pairs %u)",
		                    (unsigned long long)o->pinned_bytes_max, o->regions_max,
		                    o->windows_max, o->qps_max);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return ros2_err_set(err, -ENOMEM, "no memory for a protection domain");
	pd->dev = d;
	pd->caps = *o;
	pd->pd = ibv_alloc_pd(d->context);
	if (!pd->pd) {
		r = verbs_err(err, errno, d, "ibv_alloc_pd");
		free(pd);
		return r;
	}
	d->n_pds++;
	*ret = pd;
	return 0;
}

int fabric_pd_free(struct fabric_pd *pd)
{
	if (!pd)
		return 0;
	if (pd->sets || pd->regions)
		return -EBUSY;
	if (ibv_dealloc_pd(pd->pd) != 0 && !pd->dev->removed)
		return -EBUSY;
	pd->dev->n_pds--;
	free(pd);
	return 0;
}

struct fabric_dev *fabric_pd_dev(const struct fabric_pd *pd)
{
	return pd->dev;
}

void fabric_pd_use(const struct fabric_pd *pd, struct fabric_pd_use *ret)
{
	*ret = (struct fabric_pd_use){
		.pinned_bytes = pd->pinned_bytes,
		.regions = pd->regions,
		.windows = pd->windows,
		.qps = pd->qps,
		.sets = pd->sets,
	};
}

static int check_opts(const struct fabric_pd *pd, const struct fabric_region_opts *o,
                      struct ros2_err *err)
{
	const struct fabric_dev_attr *a = &pd->dev->attr;
	uint64_t at = (uintptr_t)o->addr, from = o->dmabuf ? o->dmabuf_offset : at;

	if (o->length == 0 || from + o->length < from || at + o->length < at ||
	    (!o->dmabuf && !o->addr))
		return ros2_err_set(
			err, -EINVAL,
			"a region of %llu bytes at %#llx: expected some bytes that do not wrap",
			(unsigned long long)o->length, (unsigned long long)from);
	if (a->max_region_bytes && o->length > a->max_region_bytes)
		return ros2_err_set(err, -EINVAL, "a region of %llu bytes: %s takes at most %llu",
		                    (unsigned long long)o->length, a->name,
		                    (unsigned long long)a->max_region_bytes);
	return 0;
}

static struct ibv_mr *reg_dmabuf(const struct fabric_pd *pd, const struct fabric_region_opts *o,
                                 int access)
{
	return ibv_reg_dmabuf_mr(pd->pd, o->dmabuf_offset, o->length, (uintptr_t)o->addr,
	                         o->dmabuf_fd, access);
}

/* Among the flags that Linux takes for a dma-buf (uverbs_std_types_mr.c, 5.12 to 6.18) there is no
 * MW_BIND: EINVAL, as of any mistake in the arguments. True: it was the flag. */
static bool is_for_windows_only(const struct fabric_pd *pd, const struct fabric_region_opts *o)
{
	struct ibv_mr *mr = reg_dmabuf(pd, o, IBV_ACCESS_LOCAL_WRITE);

	return mr && ibv_dereg_mr(mr) == 0;
}

static struct ibv_mr *reg(const struct fabric_pd *pd, const struct fabric_region_opts *o)
{
	errno = 0;
	if (o->dmabuf)
		return reg_dmabuf(pd, o,
		                  IBV_ACCESS_LOCAL_WRITE | (o->bindable ? IBV_ACCESS_MW_BIND : 0));
	if (o->bindable)
		return ibv_reg_mr(pd->pd, o->addr, o->length,
		                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	return ibv_reg_mr(pd->pd, o->addr, o->length, IBV_ACCESS_LOCAL_WRITE);
}

static int not_registered(const struct fabric_pd *pd, const struct fabric_region_opts *o, int code,
                          struct ros2_err *err)
{
	if (code == EINVAL && o->dmabuf && o->bindable && is_for_windows_only(pd, o))
		return verbs_err(err, EOPNOTSUPP, pd->dev, "windows over a dma-buf");
	return verbs_err(err, code, pd->dev, o->dmabuf ? "dma-buf" : "ibv_reg_mr");
}

int region_init(struct fabric_region *r, struct fabric_pd *pd, const struct fabric_region_opts *o,
                struct ros2_err *err)
{
	int code = check_opts(pd, o, err);

	if (code < 0)
		return code;
	if (pd_take(&pd->regions, 1, pd->caps.regions_max) < 0)
		return ros2_err_set(err, -EDQUOT, "one region more than the %u of the tenant at %s",
		                    pd->caps.regions_max, pd->dev->attr.name);
	if (pd_pin(pd, o->length) < 0) {
		pd->regions--;
		return ros2_err_set(
			err, -EDQUOT, "%llu pinned bytes more: the tenant has %llu of %llu at %s",
			(unsigned long long)o->length, (unsigned long long)pd->pinned_bytes,
			(unsigned long long)pd->caps.pinned_bytes_max, pd->dev->attr.name);
	}
	r->mr = reg(pd, o);
	if (!r->mr) {
		code = not_registered(pd, o, errno, err);
		pd->pinned_bytes -= o->length;
		pd->regions--;
		return code;
	}
	r->pd = pd;
	r->mem = o->dmabuf ? NULL : o->addr;
	r->base = (uintptr_t)o->addr;
	r->length = o->length;
	r->bindable = o->bindable;
	return 0;
}

int region_fini(struct fabric_region *r)
{
	if (!r->mr)
		return 0;
	if (r->bound || r->held)
		return -EBUSY;
	if (ibv_dereg_mr(r->mr) != 0 && !r->pd->dev->removed)
		return -EBUSY;
	r->mr = NULL;
	r->pd->pinned_bytes -= r->length;
	r->pd->regions--;
	return 0;
}

int fabric_region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                      struct fabric_region **ret, struct ros2_err *err)
{
	struct fabric_region *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a region");
	code = region_init(r, pd, o, err);
	if (code < 0) {
		free(r);
		return code;
	}
	*ret = r;
	return 0;
}

int fabric_region_free(struct fabric_region *r)
{
	int code;

	if (!r)
		return 0;
	assert(!r->slot);
	code = region_fini(r);
	if (code == 0)
		free(r);
	return code;
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
	return r->mem;
}

bool region_covers(const struct fabric_region *r, uint64_t offset, uint64_t length)
{
	return offset <= r->length && length <= r->length - offset;
}

void region_hold(struct fabric_region *r)
{
	atomic_fetch_add_explicit(&r->held, 1, memory_order_relaxed);
}

static void let_go(struct fabric_region *r, _Atomic uint32_t *count)
{
	struct slot_place *slot = r->slot; /* another thread may free a region that nothing names */
	uint32_t had = atomic_fetch_sub_explicit(count, 1, memory_order_release);

	assert(had > 0);
	if (had == 1 && slot)
		slot_settle(slot);
}

void region_unhold(struct fabric_region *r)
{
	let_go(r, &r->held);
}

void region_unbind(struct fabric_region *r)
{
	let_go(r, &r->bound);
}

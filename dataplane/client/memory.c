/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory the agent may reach: a table sorted by address, no two regions overlapping. A key is
 * the agent's name for a region on this session only; it is renewed in the background (client.c)
 * and made anew here when that came too late.
 *
 * Over shared memory a region that does not lie there needs no key: it is known here only, and the
 * agent is not told of it (shm.h).
 *
 * End of a region: 1. no new request finds it. 2. requests that use it end, or the connection is
 * cut so that nothing can land any more. 3. over verbs its window is invalidated and the device
 * forgets the memory. 4. the agent is told. 5. the memory is the caller's again.
 */
#include "common/clock.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"
#include "dataplane/client/verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define REGION_ALIGN_MAX (1u << 30)
#define REGION_SIZE_MAX  ((size_t)1 << 47)

/* ---- the table ---- */

/* Index of the first region that ends beyond @addr. */
static uint32_t lower_bound(const struct ros2_session *s, const uint8_t *addr)
{
	uint32_t lo = 0, hi = s->n_regions;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->regions[mid]->addr + s->regions[mid]->len <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct ros2_region *region_find(struct ros2_session *s, const void *addr, size_t len)
{
	uint32_t i = lower_bound(s, addr);
	struct ros2_region *r;

	if (i == s->n_regions)
		return NULL;
	r = s->regions[i];
	if ((const uint8_t *)addr < r->addr || len > r->len ||
	    (size_t)((const uint8_t *)addr - r->addr) > r->len - len)
		return NULL;
	return r;
}

bool region_is_device(const struct ros2_session *s, const void *addr, size_t len)
{
	const uint8_t *end = (const uint8_t *)addr + len;

	for (uint32_t i = lower_bound(s, addr); i < s->n_regions && s->regions[i]->addr < end; i++)
		if (s->regions[i]->is_device)
			return true;
	return false;
}

int region_insert(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err)
{
	uint32_t at = lower_bound(s, r->addr);
	struct ros2_region **grown;

	if (at < s->n_regions && s->regions[at]->addr < r->addr + r->len)
		return ros2_err_named(err, ROS2_EXISTS,
		                      "the memory overlaps a region that is registered already");
	if (s->n_regions == REGIONS_MAX)
		return ros2_err_named(err, ROS2_LIMIT, "%u regions are registered already",
		                      REGIONS_MAX);
	pthread_mutex_lock(&s->lock);
	grown = realloc(s->regions, (s->n_regions + 1) * sizeof(*grown));
	if (grown) {
		memmove(grown + at + 1, grown + at, (s->n_regions - at) * sizeof(*grown));
		grown[at] = r;
		s->regions = grown;
		s->n_regions++;
	}
	pthread_mutex_unlock(&s->lock);
	return grown ? 0 : ros2_err_set(err, -ENOMEM, "no memory for a region");
}

void region_remove(struct ros2_session *s, struct ros2_region *r)
{
	uint32_t at = lower_bound(s, r->addr);

	pthread_mutex_lock(&s->lock);
	if (at < s->n_regions && s->regions[at] == r) {
		s->n_regions--;
		memmove(s->regions + at, s->regions + at + 1,
		        (s->n_regions - at) * sizeof(*s->regions));
	}
	pthread_mutex_unlock(&s->lock);
}

void region_free(struct ros2_region *r)
{
	if (r->mapping)
		munmap(r->mapping, r->mapping_len);
	if (r->is_device)
		close(r->dmabuf_fd);
	shm_arena_unref(r->arena);
	free(r);
}

void regions_free(struct ros2_session *s)
{
	for (uint32_t i = 0; i < s->n_regions; i++)
		region_free(s->regions[i]);
	free(s->regions);
	s->regions = NULL;
	s->n_regions = 0;
}

/* ---- keys ---- */

bool region_key(struct ros2_session *s, struct ros2_region *r, uint32_t *ret_key,
                uint32_t *ret_generation)
{
	bool live;

	pthread_mutex_lock(&s->lock);
	live = !r->stale && clock_boottime_ns() < r->deadline_ns;
	*ret_key = r->key;
	*ret_generation = r->generation;
	pthread_mutex_unlock(&s->lock);
	return live;
}

void region_set_stale(struct ros2_session *s, struct ros2_region *r)
{
	pthread_mutex_lock(&s->lock);
	r->stale = true;
	pthread_mutex_unlock(&s->lock);
}

void region_set_times(struct ros2_region *r, uint64_t asked_ns)
{
	uint64_t ttl = r->ttl_ms * NS_PER_MS;

	r->deadline_ns = clock_add_ns(asked_ns, ttl);
	/* Not in a tight loop, however short the agent makes its leases. */
	r->renew_at_ns = clock_add_ns(asked_ns, MAX(ttl / 3, RENEW_MIN_MS * NS_PER_MS));
}

/* The agent reaches it. */
static bool has_lease(const struct ros2_session *s, const struct ros2_region *r)
{
	if (r->is_device)
		return s->over == ROS2_TRANSPORT_VERBS;
	return s->over != ROS2_TRANSPORT_SHM || shm_region_is_shared(s, r);
}

static uint64_t base_of(const struct ros2_session *s, const struct ros2_region *r)
{
	return s->over == ROS2_TRANSPORT_SHM ? shm_region_base(r) : (uintptr_t)r->addr;
}

int region_register(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err)
{
	struct control_lease l;
	uint64_t asked = clock_boottime_ns();
	int rc;

	if (!has_lease(s, r)) {
		pthread_mutex_lock(&s->lock);
		r->key = r->generation = 0;
		r->stale = true;
		pthread_mutex_unlock(&s->lock);
		return 0;
	}
	rc = control_register(s->client->control, s->uid, base_of(s, r), r->len, r->access, &l,
	                      err);
	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	r->key = l.key;
	r->generation = l.generation;
	r->ttl_ms = l.ttl_ms;
	region_set_times(r, asked);
	r->stale = false;
	pthread_mutex_unlock(&s->lock);
	client_wake(s->client);
	return 0;
}

static int register_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	struct ros2_region *r = arg;
	uint32_t key, generation;
	/* What the RDMA device cannot is said here, and not by the first request. */
	int rc = r->is_device ? verbs_know_region(s, r, err) : verbs_region_fits(s, r, err);

	if (rc < 0)
		return rc;
	/* A reconnect on the way has done it. */
	return region_key(s, r, &key, &generation) ? 0 : region_register(s, r, err);
}

/* ---- the public face ---- */

/* @r becomes the table's or is freed. */
static int region_add(struct ros2_session *s, struct ros2_region *r, struct ros2_region **ret,
                      struct ros2_err *err)
{
	int rc;

	r->session = s;
	r->stale = true;
	rc = session_need_up(s, err);
	if (!rc)
		rc = region_insert(s, r, err);
	if (rc) {
		region_free(r);
		return rc;
	}
	rc = session_call(s, true, "register a region", register_call, r, err);
	if (rc) {
		verbs_region_end(s, r);
		region_remove(s, r);
		region_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

/* Of the caller's memory. */
static int region_make(void *addr, size_t len, uint32_t access, struct ros2_region **ret,
                       struct ros2_err *err)
{
	struct ros2_region *r;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr)
		return ros2_err_set(err, -EINVAL, "%p with %zu bytes is no memory", addr, len);
	if (!access || access & ~(uint32_t)(ROS2_REGION_READ | ROS2_REGION_WRITE))
		return ros2_err_set(err, -EINVAL,
		                    "access 0x%x: expected ROS2_REGION_READ, _WRITE or both",
		                    access);
	r = calloc(1, sizeof(*r));
	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a region");
	r->addr = addr;
	r->len = len;
	r->access = access;
	*ret = r;
	return 0;
}

int ros2_region_register(struct ros2_session *s, void *addr, size_t len, uint32_t access,
                         struct ros2_region **ret, struct ros2_err *err)
{
	struct ros2_region *r;
	int rc = region_make(addr, len, access, &r, err);

	return rc ? rc : region_add(s, r, ret, err);
}

int ros2_region_register_dmabuf(struct ros2_session *s, int fd, uint64_t offset, void *addr,
                                size_t len, uint32_t access, struct ros2_region **ret,
                                struct ros2_err *err)
{
	struct ros2_region *r;
	int rc;

	if (offset > UINT64_MAX - len)
		return ros2_err_set(err, -EINVAL, "%zu bytes at %llu of a dma-buf: beyond any", len,
		                    (unsigned long long)offset);
	rc = region_make(addr, len, access, &r, err);
	if (rc)
		return rc;
	r->dmabuf_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (r->dmabuf_fd < 0) {
		rc = ros2_err_set(err, -errno, "descriptor %d of a dma-buf: %s", fd,
		                  strerror(errno));
		free(r);
		return rc;
	}
	r->dmabuf_offset = offset;
	r->is_device = true;
	return region_add(s, r, ret, err);
}

void ros2_region_deregister(struct ros2_region *r)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct ros2_session *s;
	uint32_t key, generation;

	if (!r || client_is_childs(r->session->client))
		return;
	s = r->session;
	ros2_err_named(&why, ROS2_CANCELLED, "a region was deregistered while requests used it");
	session_drain(s, r, NULL, &why);
	verbs_region_end(s, r);
	region_remove(s, r);
	if (region_key(s, r, &key, &generation) && s->state == LINK_UP)
		control_deregister(s->client->control, s->uid, key, WHY_MS, NULL);
	if (s->bounce == r)
		s->bounce = NULL;
	region_free(r);
}

int region_shape(const struct ros2_session *s, size_t *len, size_t *ret_align, struct ros2_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), size = *len;
	const struct control_session *g = &s->granted;
	size_t align = MAX(page, (size_t)g->region_alignment), unit = MAX(g->region_alignment, 1u);

	if (!size || size > REGION_SIZE_MAX)
		return ros2_err_set(err, -EINVAL, "cannot make a buffer of %zu bytes", size);
	/* The agent's numbers: a sum that wraps would make a buffer smaller than was asked for. */
	if (g->region_alignment & (g->region_alignment - 1) || align > REGION_ALIGN_MAX ||
	    g->region_size_min > REGION_SIZE_MAX)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "the agent wants regions of at least %llu bytes at multiples "
		                      "of %llu",
		                      (unsigned long long)g->region_size_min,
		                      (unsigned long long)g->region_alignment);
	size = MAX(size, (size_t)g->region_size_min);
	/* Whole pages, but not more than the policy allows: what is asked for may be the limit. */
	if (!g->region_size_max || (size + align - 1) / align * align <= g->region_size_max)
		unit = align;
	*len = (size + unit - 1) / unit * unit;
	*ret_align = align;
	return 0;
}

/* Memory of this program only. */
static int map_region(struct ros2_region *r, size_t len, size_t align, struct ros2_err *err)
{
	uint8_t *p;

	r->mapping_len = align > (size_t)sysconf(_SC_PAGESIZE) ? len + align : len;
	p = mmap(NULL, r->mapping_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return ros2_err_set(err, -ENOMEM, "no memory for a buffer of %zu bytes", len);
	r->mapping = p;
	r->addr = (uint8_t *)(((uintptr_t)p + align - 1) / align * align);
	r->len = len;
	return 0;
}

/* Memory aligned and sized as the policy wants it; shared where there is such. */
static int region_alloc(struct ros2_session *s, size_t size, struct ros2_region **ret,
                        struct ros2_err *err)
{
	struct ros2_region *r;
	size_t align;
	int rc = region_shape(s, &size, &align, err);

	/* Not of an arena that is gone already. */
	if (!rc && s->over == ROS2_TRANSPORT_SHM)
		rc = session_need_up(s, err);
	if (rc)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a region");
	r->access = ROS2_REGION_READ | ROS2_REGION_WRITE;
	if (shm_region_place(s, r, size, align))
		memset(r->addr, 0, r->len);
	else
		rc = map_region(r, size, align, err);
	if (rc) {
		free(r);
		return rc;
	}
	return region_add(s, r, ret, err);
}

int ros2_buf_alloc(struct ros2_session *s, size_t size, void **ret, struct ros2_err *err)
{
	struct ros2_region *r = NULL;
	int rc = region_alloc(s, size, &r, err);

	if (!rc)
		*ret = r->addr;
	return rc;
}

void ros2_buf_free(struct ros2_session *s, void *buf)
{
	struct ros2_region *r = buf ? region_find(s, buf, 1) : NULL;

	if (r && (r->mapping || r->arena) && !r->is_stage && r->addr == buf)
		ros2_region_deregister(r);
}

int region_bounce(struct ros2_session *s, struct ros2_region **ret, struct ros2_err *err)
{
	size_t size = s->max_io;
	int rc = 0;

	if (s->granted.region_size_max && size > s->granted.region_size_max)
		size = s->granted.region_size_max;
	if (size > s->granted.region_alignment && s->granted.region_alignment)
		size -= size % s->granted.region_alignment;
	if (!s->bounce) {
		rc = region_alloc(s, size, &s->bounce, err);
		if (rc)
			ros2_err_prefix(err, "buffer for memory that is not registered");
	}
	if (!rc)
		*ret = s->bounce;
	return rc;
}

int ros2_debug_key(struct ros2_session *s, const void *addr, uint32_t *ret_key,
                   uint64_t *ret_handle_of, const struct ros2_file *f)
{
	struct ros2_region *r = addr ? region_find(s, addr, 1) : NULL;
	uint32_t generation;

	if (client_is_childs(s->client))
		return -EBADFD;
	if (addr && !r)
		return -ENOENT;
	if (r && ret_key)
		region_key(s, r, ret_key, &generation);
	if (f && ret_handle_of)
		*ret_handle_of = f->handle;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory the agent may reach: a table sorted by address, no two regions overlapping. A key is
 * the agent's name for a region on this session only; it is renewed in the background (client.c)
 * and made anew here when that came too late.
 *
 * End of a region: 1. no new request finds it. 2. requests that use it end, or the connection is
 * cut so that nothing can land any more. 3. the agent is told. 4. the memory is the caller's again.
 */
#include "common/clock.h"
#include "dataplane/client/internal.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define DRAIN_MS 5000u

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

static int table_add(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err)
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

static void table_remove(struct ros2_session *s, struct ros2_region *r)
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

static void region_free(struct ros2_region *r)
{
	if (r->mapping)
		munmap(r->mapping, r->mapping_len);
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

int region_register(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err)
{
	struct control_lease l;
	uint64_t asked = clock_boottime_ns();
	int rc = control_register(s->client->control, s->uid, r->addr, r->len, r->access, &l, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	r->key = l.key;
	r->generation = l.generation;
	r->ttl_ms = l.ttl_ms;
	/* From before the call: the agent's own clock for it cannot have begun earlier. */
	r->deadline_ns = clock_add_ns(asked, l.ttl_ms * NS_PER_MS);
	r->renew_at_ns = clock_add_ns(asked, l.ttl_ms * NS_PER_MS / 3);
	r->stale = false;
	pthread_mutex_unlock(&s->lock);
	client_wake(s->client);
	return 0;
}

static int register_call(struct ros2_session *s, void *arg, struct ros2_err *err)
{
	return region_register(s, arg, err);
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
		rc = table_add(s, r, err);
	if (rc) {
		region_free(r);
		return rc;
	}
	rc = session_call(s, true, "register a region", register_call, r, err);
	if (rc) {
		table_remove(s, r);
		region_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int ros2_region_register(struct ros2_session *s, void *addr, size_t len, uint32_t access,
                         struct ros2_region **ret, struct ros2_err *err)
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
	return region_add(s, r, ret, err);
}

static void drain_users(struct ros2_session *s, struct ros2_region *r)
{
	uint64_t until = clock_add_ns(clock_monotonic_ns(), DRAIN_MS * NS_PER_MS);
	struct ros2_err how = ROS2_ERR_INIT;

	while (r->users && s->state == LINK_UP && clock_monotonic_ns() < until)
		session_step(s, 100, NULL);
	if (!r->users)
		return;
	/* Requests that wait for a reconnect, or for an agent that does not answer: nothing may
	 * name this memory afterwards. */
	ros2_err_named(&how, ROS2_CANCELLED, "a region was deregistered while requests used it");
	if (s->state == LINK_UP)
		session_lost(s, &how);
	requests_fail(s, &how);
}

void ros2_region_deregister(struct ros2_region *r)
{
	struct ros2_session *s;
	uint32_t key, generation;

	if (!r)
		return;
	s = r->session;
	drain_users(s, r);
	table_remove(s, r);
	if (region_key(s, r, &key, &generation) && s->state == LINK_UP)
		control_deregister(s->client->control, s->uid, key, WHY_MS, NULL);
	if (s->bounce == r)
		s->bounce = NULL;
	region_free(r);
}

/* Memory aligned and sized as the policy wants it. */
static int region_alloc(struct ros2_session *s, size_t size, struct ros2_region **ret,
                        struct ros2_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t align = MAX(page, (size_t)s->granted.region_alignment);
	struct ros2_region *r;
	uint8_t *p;

	if (!size || align > 1u << 30 || size > SIZE_MAX / 4)
		return ros2_err_set(err, -EINVAL, "cannot make a buffer of %zu bytes", size);
	size = MAX(size, (size_t)s->granted.region_size_min);
	size = (size + align - 1) / align * align;
	r = calloc(1, sizeof(*r));
	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a region");
	r->mapping_len = align > page ? size + align : size;
	p = mmap(NULL, r->mapping_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		free(r);
		return ros2_err_set(err, -ENOMEM, "no memory for a buffer of %zu bytes", size);
	}
	r->mapping = p;
	r->addr = (uint8_t *)(((uintptr_t)p + align - 1) / align * align);
	r->len = size;
	r->access = ROS2_REGION_READ | ROS2_REGION_WRITE;
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

	if (r && r->mapping && r->addr == buf)
		ros2_region_deregister(r);
}

int region_bounce(struct ros2_session *s, struct ros2_region **ret, struct ros2_err *err)
{
	size_t size = s->max_io;
	int rc = 0;

	if (s->granted.region_size_max && size > s->granted.region_size_max)
		size = s->granted.region_size_max;
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

	if (addr && !r)
		return -ENOENT;
	if (r && ret_key)
		region_key(s, r, ret_key, &generation);
	if (f && ret_handle_of)
		*ret_handle_of = f->handle;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena of a session over shared memory: which of it is a region, and the stage through which
 * payload of other memory goes. The only place beside plain.c that copies payload; counted in
 * session->copied_bytes.
 *
 * Invariants: (1) an arena stays mapped while a region lies in it, whatever became of its
 * connection; (2) a piece of the stage belongs to one request from before it is sent until it is no
 * longer with the agent; (3) what an agent has begun and not answered when its connection is lost
 * reaches no whole page of a buffer that the program has back; (4) lengths come from the request,
 * never from the shared memory.
 */
#include "dataplane/client/shm_priv.h"
#include "dataplane/client/test_switches.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* ---- arenas ---- */

int shm_arena_new(int fd, size_t len, struct shm_arena **ret, struct ros2_err *err)
{
	struct shm_arena *a = calloc(1, sizeof(*a));
	void *p;
	int rc;

	if (!a)
		return ros2_err_set(err, -ENOMEM, "no memory for a connection");
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		free(a);
		return ros2_err_set(err, -errno, "cannot map the %zu bytes that the agent shares",
		                    len);
	}
	/* A child that is forked would read and write them, and the agent would count them for as
	 * long as the child is there. */
	if (madvise(p, len, MADV_DONTFORK) < 0) {
		rc = ros2_err_set(err, -errno, "cannot keep shared memory from children");
		munmap(p, len);
		free(a);
		return rc;
	}
	*a = (struct shm_arena){.map = p, .len = len, .refs = 1};
	*ret = a;
	return 0;
}

void shm_arena_unref(struct shm_arena *a)
{
	if (!a || --a->refs)
		return;
	munmap(a->map, a->len);
	free(a);
}

/* ---- regions ---- */

bool shm_region_is_shared(const struct ros2_session *s, const struct ros2_region *r)
{
	return s->shm && s->shm->arena && r->arena == s->shm->arena;
}

uint64_t shm_region_base(const struct ros2_region *r)
{
	return (uint64_t)(r->addr - r->arena->map);
}

static size_t align_up(size_t at, size_t align)
{
	return (at + align - 1) / align * align;
}

/* The first gap between regions, whoever they are of: the table is sorted. 0 = none. */
static size_t find_gap(const struct ros2_session *s, const struct shm_arena *a, size_t len,
                       size_t align)
{
	size_t at = align_up(WIRE_SHM_DATA_OFF, align);

	for (uint32_t i = 0; i < s->n_regions; i++) {
		const struct ros2_region *r = s->regions[i];

		if (r->addr + r->len <= a->map + at)
			continue;
		if (r->addr >= a->map + a->len || at > a->len ||
		    (size_t)(r->addr - a->map) >= at + len)
			break;
		at = align_up((size_t)(r->addr + r->len - a->map), align);
	}
	return at <= a->len && len <= a->len - at ? at : 0;
}

bool shm_region_place(struct ros2_session *s, struct ros2_region *r, size_t len, size_t align)
{
	struct shm_arena *a = s->shm ? s->shm->arena : NULL;
	size_t at = a ? find_gap(s, a, len, align) : 0;

	if (!at)
		return false;
	r->addr = a->map + at;
	r->len = len;
	r->arena = a;
	a->refs++;
	return true;
}

/* ---- the stage ---- */

/* A quarter of the memory, and room for one request of any length, within what the policy allows a
 * region to be. */
static int make_stage(struct ros2_session *s, struct ros2_err *err)
{
	const struct control_session *g = &s->granted;
	struct shm_link *v = s->shm;
	size_t len = v->arena->len - WIRE_SHM_DATA_OFF, most = len, align;
	struct ros2_region *r;
	int rc;

	if (g->region_bytes_max)
		most = MIN(most, g->region_bytes_max);
	len = MAX(most / 4, (size_t)s->max_io);
	len = align_up(MIN(len, (size_t)SHM_STAGE_MAX), SHM_PAGE);
	len = MIN(len, most);
	if (g->region_size_max)
		len = MIN(len, g->region_size_max);
	rc = region_shape(s, &len, &align, err);
	if (rc)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory for a region");
	*r = (struct ros2_region){.session = s,
	                          .access = ROS2_REGION_READ | ROS2_REGION_WRITE,
	                          .stale = true,
	                          .is_stage = true};
	if (!shm_region_place(s, r, len, align)) {
		free(r);
		return 0;
	}
	rc = region_insert(s, r, err);
	if (rc) {
		region_free(r);
		return rc;
	}
	v->stage = r;
	v->n_pages = (uint32_t)(MIN(len, (size_t)SHM_STAGE_MAX) / SHM_PAGE);
	return 0;
}

void shm_stage_drop(struct ros2_session *s)
{
	struct shm_link *v = s->shm;

	if (!v || !v->stage)
		return;
	region_remove(s, v->stage);
	region_free(TAKE_PTR(v->stage));
	v->n_pages = 0;
}

int shm_arena_adopt(struct ros2_session *s, struct shm_arena *a, struct ros2_err *err)
{
	struct shm_link *v = s->shm;

	shm_stage_drop(s);
	v->arena = a;
	memset(v->pages_in_use, 0, sizeof(v->pages_in_use));
	s->stage_is_full = false;
	return make_stage(s, err);
}

uint32_t shm_stage_len(const struct ros2_session *s)
{
	return s->shm->n_pages * SHM_PAGE;
}

struct ros2_region *shm_region_for(struct ros2_session *s, const struct request *r,
                                   struct ros2_err *err)
{
	if (r->region && shm_region_is_shared(s, r->region))
		return r->region;
	if (r->len <= shm_stage_len(s))
		return s->shm->stage;
	ros2_err_named(
		err, ROS2_TOO_LARGE,
		"%u bytes of memory that is not shared with the agent: %u is what can be "
		"copied at once (the rest of the shared memory, or the policy, allows no more)",
		r->len, shm_stage_len(s));
	return NULL;
}

static bool is_in_use(const struct shm_link *v, uint32_t page)
{
	return v->pages_in_use[page / 64] >> page % 64 & 1;
}

static bool find_pages(const struct shm_link *v, uint32_t n, uint32_t *ret_first)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < v->n_pages; i++) {
		if (i % 64 == 0 && v->pages_in_use[i / 64] == UINT64_MAX) {
			i += 63;
			run = 0;
			continue;
		}
		run = is_in_use(v, i) ? 0 : run + 1;
		if (run == n) {
			*ret_first = i + 1 - n;
			return true;
		}
	}
	return false;
}

static void mark_pages(struct shm_link *v, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		v->pages_in_use[i / 64] ^= (uint64_t)1 << i % 64;
}

static uint8_t *piece_at(const struct ros2_session *s, const struct request *r)
{
	return s->shm->stage->addr + (size_t)r->piece_first * SHM_PAGE;
}

bool shm_piece_take(struct ros2_session *s, struct request *r)
{
	uint32_t n = (r->len + SHM_PAGE - 1) / SHM_PAGE;

	if (!r->via || r->via == r->region)
		return true;
	assert(r->len <= shm_stage_len(s) && !r->piece_pages);
	if (!find_pages(s->shm, n, &r->piece_first)) {
		s->stage_is_full = true;
		return false;
	}
	mark_pages(s->shm, r->piece_first, n);
	r->piece_pages = n;
	if (r->kind == REQ_WRITE) {
		memcpy(piece_at(s, r), r->buf, r->len);
		s->copied_bytes += r->len;
	}
	return true;
}

void shm_piece_read(struct ros2_session *s, const struct request *r, uint32_t len)
{
	if (!r->piece_pages)
		return;
	memcpy(r->buf, piece_at(s, r), len);
	s->copied_bytes += len;
}

void shm_request_lost(struct ros2_session *s, const struct request *r)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *from, *to;
	void *fresh;

	/* A piece of the stage is not used again on another connection. */
	if (!r->region || !r->region->arena || r->piece_pages || CLIENT_SWITCH(keeps_shared_pages))
		return;
	from = r->region->arena->map + align_up((size_t)(r->buf - r->region->arena->map), page);
	to = r->buf + r->len;
	to -= (uintptr_t)to % page;
	if (from >= to)
		return;
	/* Without memory for it the pages stay as they are, as the edges do. */
	fresh = mmap(NULL, (size_t)(to - from), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	             -1, 0);
	if (fresh == MAP_FAILED)
		return;
	/* The buffer is the library's until the completion: nobody else writes it meanwhile. */
	memcpy(fresh, from, (size_t)(to - from));
	if (mremap(fresh, (size_t)(to - from), (size_t)(to - from), MREMAP_MAYMOVE | MREMAP_FIXED,
	           from) == MAP_FAILED)
		munmap(fresh, (size_t)(to - from));
}

void shm_piece_put(struct ros2_session *s, struct request *r)
{
	if (!r->piece_pages)
		return;
	mark_pages(s->shm, r->piece_first, r->piece_pages);
	r->piece_pages = 0;
	s->stage_is_full = false;
}

uint64_t shm_address_of(const struct ros2_session *s, const struct request *r)
{
	if (!r->via)
		return 0;
	if (r->piece_pages)
		return (uint64_t)(piece_at(s, r) - s->shm->arena->map);
	return (uint64_t)(r->buf - s->shm->arena->map);
}

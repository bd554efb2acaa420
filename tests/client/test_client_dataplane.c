/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite of scenarios for every transport: libros2 against the real data plane in one process
 * (direct.h). What is on the wire is what both sides mean.
 */
#include "tests/client/direct.h"
#include "dataplane/client/shm_priv.h"
#include "tests/await.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#ifdef ROS2_TEST_FABRIC_MEM
#include "dataplane/client/verbs_priv.h"
#include "tests/verbs/fabric_mem.h"
#endif

static void real_data_plane__every_size_comes_back(void **state)
{
	static const uint32_t sizes[] = {1, 4095, 4096, 16384, 16385, 100001, 1u << 20};
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t *back = u.buf + (2u << 20);

		user_fill(u.buf, sizes[i], (uint32_t)i);
		assert_int_equal(ros2_pwrite(u.file, u.buf, sizes[i], i * 7, &u.err), sizes[i]);
		memset(back, 0, sizes[i]);
		assert_int_equal(ros2_pread(u.file, back, sizes[i], i * 7, &u.err), sizes[i]);
		assert_memory_equal(u.buf, back, sizes[i]);
	}
	assert_int_equal(ros2_flush(u.file, &u.err), 0);
	assert_int_equal(ros2_pread(u.file, u.buf, 100, 1u << 30, &u.err), 0);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__a_deep_mixed_ring_is_right(void **state)
{
	struct ros2_completion c[64];
	struct fx *fx = *state;
	struct user u;
	uint32_t depth;

	user_open(fx, &u);
	depth = MIN(u.session->depth, 64u) & ~1u;
	user_fill(u.buf, 2u << 20, 5);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 2u << 20, 0, &u.err), 2u << 20);
	memset(u.buf + (2u << 20), 0, 2u << 20);
	for (uint32_t i = 0; i < depth / 2; i++) {
		ok(&u, ros2_prep_read(u.file, u.buf + (2u << 20) + i * 32768, 32768, i * 32768, i,
		                      &u.err));
		ok(&u, ros2_prep_write(u.file, u.buf + i * 32768, i % 2 ? 32768 : 512,
		                       (4u << 20) + i * 32768, 1000 + i, &u.err));
	}
	assert_int_equal(ros2_submit(u.session, &u.err), depth);
	for (uint32_t n = 0; n < depth;) {
		int got = ros2_wait(u.session, c, 1, 64, 5000, &u.err);

		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(c[i].status, ROS2_OK);
		n += (uint32_t)got;
	}
	assert_memory_equal(u.buf, u.buf + (2u << 20), depth / 2 * 32768);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__leases_are_renewed_under_work(void **state)
{
	struct fx *fx = *state;
	struct user u;

	fx->limits.lease_ttl_ms = 150;
	fx_limits(fx);
	user_open(fx, &u);
	for (int i = 0; i < 20; i++) {
		poll(NULL, 0, 25);
		assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
		assert_int_equal(ros2_pread(u.file, u.buf, 50000, 0, &u.err), 50000);
	}
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__revocation_is_named_within_half_a_second(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked revoked = {0};
	struct ros2_completion c[2];
	struct user u;
	uint64_t began;
	int n = 0;

	user_open(fx, &u);
	ok(&u, ros2_pwrite(u.file, u.buf, 1u << 20, 0, &u.err));
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &revoked);
	if (revoked.first.revoke.draining)
		fx_wait_calls(fx, &revoked, 2);
	began = clock_monotonic_ns();
	ok(&u, ros2_prep_read(u.file, u.buf, 4096, 0, 1, &u.err));
	ok(&u, ros2_prep_write(u.file, u.buf, 4096, 0, 2, &u.err));
	ok(&u, ros2_submit(u.session, &u.err));
	while (n < 2) {
		int got = ros2_wait(u.session, c + n, 1, 2 - (uint32_t)n, 5000, &u.err);

		assert_true(got > 0);
		n += got;
	}
	assert_true(clock_monotonic_ns() - began < AWAIT_NS / 6);
	assert_int_equal(c[0].status, ROS2_REVOKED);
	assert_int_equal(c[1].status, ROS2_REVOKED);
	assert_int_equal(ros2_pread(u.file, u.buf, 1, 0, &u.err), -EKEYREVOKED);
	user_close(&u);
}

/* Reads end right whatever happens to the connection; a write ends right or as unknown. */
static void real_data_plane__a_session_lost_under_work_is_made_again(void **state)
{
	enum { OPS = 16, SIZE = 20000, HALF = USER_BUF / 2 };
	struct ros2_completion c[OPS];
	struct fx *fx = *state;
	uint32_t lost = 0;
	struct user u;

	user_open(fx, &u);
	user_fill(u.buf, HALF, 3);
	assert_int_equal(ros2_pwrite(u.file, u.buf, HALF, 0, &u.err), HALF);
	for (uint32_t round = 0; round < 6; round++) {
		memset(u.buf + HALF, 0, OPS * SIZE);
		for (uint32_t i = 0; i < OPS; i++)
			ok(&u, i % 4 ? ros2_prep_read(u.file, u.buf + HALF + i * SIZE, SIZE,
			                              i * SIZE, i, &u.err)
			             : ros2_prep_write(u.file, u.buf + i * SIZE, SIZE, i * SIZE, i,
			                               &u.err));
		assert_int_equal(ros2_submit(u.session, &u.err), OPS);
		if (round % 2 == 0) {
			user_lose_session(&u);
			lost++;
		}
		for (uint32_t n = 0; n < OPS;) {
			int got = ros2_wait(u.session, c, 1, OPS, 20000, &u.err);

			assert_true(got > 0);
			for (int i = 0; i < got; i++)
				if (c[i].status != ROS2_OK) {
					assert_int_equal(c[i].tag % 4, 0);
					assert_int_equal(c[i].status, ROS2_OUTCOME_UNKNOWN);
				}
			n += (uint32_t)got;
		}
		for (uint32_t i = 0; i < OPS; i++)
			if (i % 4)
				assert_memory_equal(u.buf + i * SIZE, u.buf + HALF + i * SIZE,
				                    SIZE);
	}
	assert_true(u.session->reconnects >= 1 && u.session->reconnects <= lost);
	assert_int_equal(ros2_pread(u.file, u.buf + HALF, HALF, 0, &u.err), HALF);
	assert_memory_equal(u.buf, u.buf + HALF, HALF);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

/* Where a lease may end under the transfer (a machine may be slow), the connection does, too, over
 * verbs, and a write on its way has an unknown outcome: the tenant writes again. */
static void write_until_known(struct user *u, uint32_t len)
{
	for (int i = 0; i < 20; i++) {
		int64_t got = ros2_pwrite(u->file, u->buf, len, 0, &u->err);

		if (got == len)
			return;
		assert_int_equal(u->err.status, ROS2_OUTCOME_UNKNOWN);
		u->err = (struct ros2_err)ROS2_ERR_INIT;
	}
	fail_msg("no write of twenty had a known outcome");
}

static void real_data_plane__leases_that_cannot_be_renewed_are_made_anew(void **state)
{
	struct fx *fx = *state;
	struct user u;
	uint32_t first;

	fx->limits.lease_ttl_ms = 150;
	fx_limits(fx);
	user_open(fx, &u);
	atomic_store(&u.control->refuse_renewals, ROS2_UNAVAILABLE);
	first = atomic_load(&u.control->registered);
	for (int i = 0; i < 20; i++) {
		/* time: leases end by it */
		poll(NULL, 0, 25);
		write_until_known(&u, 50000);
		assert_int_equal(ros2_pread(u.file, u.buf, 50000, 0, &u.err), 50000);
	}
	assert_true(atomic_load(&u.control->registered) > first);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void make_due(struct ros2_session *s)
{
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->n_regions; i++)
		s->regions[i]->renew_at_ns = 0;
	pthread_mutex_unlock(&s->lock);
	client_wake(s->client);
}

static bool is_due(struct ros2_session *s)
{
	bool due = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->n_regions; i++)
		due |= !s->regions[i]->stale && !s->regions[i]->renew_at_ns;
	pthread_mutex_unlock(&s->lock);
	return due;
}

/* It stands, and a second one of the same bytes is more than the policy allows. */
static void real_data_plane__a_lease_whose_renewal_is_over_the_rate_is_kept(void **state)
{
	struct fx *fx = *state;
	struct user u;
	uint32_t first;

	user_open(fx, &u);
	write_until_known(&u, 50000);
	fx->limits.registered_bytes = USER_BUF + USER_BUF / 2;
	fx_limits(fx);
	first = atomic_load(&u.control->registered);
	atomic_store(&u.control->refuse_renewals, ROS2_RATE);
	make_due(u.session);
	assert_true(AWAIT(!is_due(u.session)));
	atomic_store(&u.control->refuse_renewals, ROS2_OK);
	ok(&u, ros2_pread(u.file, u.buf, 50000, 0, &u.err));
	assert_int_equal(atomic_load(&u.control->registered), first);
	user_close(&u);
}

static void expect_bytes(const uint8_t *p, size_t n, uint8_t byte)
{
	assert_true(p[0] == byte && !memcmp(p, p + 1, n - 1));
}

/* Zeros come back, and of what was given up the old bytes or zeros. */
static void real_data_plane__what_was_cleared_comes_back_as_promised(void **state)
{
	static const uint32_t lens[] = {4096, 65536, WIRE_IO_MAX};
	enum { LEN = 3u << 19 };
	struct ros2_completion c[3];
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	memset(u.buf, 0x55, LEN);
	assert_int_equal(ros2_pwrite(u.file, u.buf, LEN, 0, &u.err), LEN);
	ok(&u, ros2_zero(u.file, LEN - 1001, 1000, &u.err)); /* two pieces */
	assert_int_equal(ros2_pread(u.file, u.buf, LEN, 0, &u.err), LEN);
	expect_bytes(u.buf, 1000, 0x55);
	expect_bytes(u.buf + 1000, LEN - 1001, 0);
	assert_int_equal(u.buf[LEN - 1], 0x55);
	memset(u.buf, 0x66, LEN);
	assert_int_equal(ros2_pwrite(u.file, u.buf, LEN, 0, &u.err), LEN);
	ok(&u, ros2_prep_zero(u.file, lens[0], 0, 0, &u.err));
	ok(&u, ros2_prep_discard(u.file, lens[1], 8192, 1, &u.err));
	ok(&u, ros2_prep_zero(u.file, lens[2], 1ull << 37, 2, &u.err));
	assert_int_equal(ros2_submit(u.session, &u.err), 3);
	assert_int_equal(ros2_wait(u.session, c, 3, 3, 20000, &u.err), 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(c[i].status, ROS2_OK);
		assert_int_equal(c[i].result, lens[c[i].tag]);
	}
	assert_int_equal(ros2_pread(u.file, u.buf, LEN, 0, &u.err), LEN);
	expect_bytes(u.buf, 4096, 0);
	expect_bytes(u.buf + 4096, 4096, 0x66);
	for (uint32_t i = 8192; i < 8192 + 65536; i++)
		assert_true(u.buf[i] == 0 || u.buf[i] == 0x66);
	expect_bytes(u.buf + 8192 + 65536, LEN - 8192 - 65536, 0x66);
	assert_int_equal(ros2_flush(u.file, &u.err), 0);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__nothing_is_cleared_after_a_revocation(void **state)
{
	struct fx_revoked revoked = {0};
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	ok(&u, ros2_zero(u.file, 4096, 0, &u.err));
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &revoked);
	if (revoked.first.revoke.draining)
		fx_wait_calls(fx, &revoked, 2);
	assert_int_equal(ros2_zero(u.file, 4096, 0, &u.err), -EKEYREVOKED);
	assert_int_equal(ros2_discard(u.file, 4096, 0, &u.err), -EKEYREVOKED);
	assert_int_equal(u.err.status, ROS2_REVOKED);
	user_close(&u);
}

/* Reads until one fails: how, by name. */
static enum ros2_status read_until_refused(struct user *u)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;

	while (clock_monotonic_ns() < until) {
		u->err = (struct ros2_err)ROS2_ERR_INIT;
		if (ros2_pread(u->file, u->buf, 50000, 0, &u->err) < 0)
			return u->err.status;
	}
	return ROS2_OK;
}

static void real_data_plane__a_grant_that_ends_is_named(void **state)
{
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	assert_int_equal(
		fx_grant(fx, &fx->grant, &fx->tenant, clock_boottime_ns() + 200 * NS_PER_MS), 0);
	assert_int_equal(read_until_refused(&u), ROS2_GRANT_EXPIRED);
	assert_true(ros2_pread(u.file, u.buf, 1, 0, &u.err) < 0);
	assert_int_equal(fx_lease_count(fx), 0);
	user_close(&u);
}

static void real_data_plane__lost_contact_is_named_and_what_comes_after_it_works(void **state)
{
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	user_fill(u.buf, 50000, 9);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	fx->limits.contact_limit_ms = 300;
	fx_limits(fx);
	assert_int_equal(read_until_refused(&u), ROS2_CONTACT_LOST);
	fx->limits.contact_limit_ms = 60000;
	fx_limits(fx);
	fx_contact(fx, clock_boottime_ns());
	assert_int_equal(ros2_pread(u.file, u.buf + 100000, 50000, 0, &u.err), 50000);
	assert_memory_equal(u.buf, u.buf + 100000, 50000);
	user_close(&u);
}

/* Only what it may not take less than is asked: a machine may be slow. */
static void real_data_plane__rates_hold(void **state)
{
	struct fx *fx = *state;
	uint64_t began;
	struct user u;

	fx->limits.read_iops = 100;
	fx->limits.write_bytes_per_s = 1u << 20;
	fx_limits(fx);
	user_open(fx, &u);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 65536, 0, &u.err), 65536);
	began = clock_monotonic_ns();
	for (int i = 0; i < 40; i++)
		assert_int_equal(ros2_pread(u.file, u.buf, 512, 0, &u.err), 512);
	assert_true(clock_monotonic_ns() - began > 300 * NS_PER_MS);
	began = clock_monotonic_ns();
	for (int i = 0; i < 8; i++)
		assert_int_equal(ros2_pwrite(u.file, u.buf, 65536, 0, &u.err), 65536);
	assert_true(clock_monotonic_ns() - began > 300 * NS_PER_MS);
	user_close(&u);
}

/* Blocks of one file in any order and size, at most one request a block at a time: what is read is
 * what was written last. */
enum { WALK_BLOCKS = 48, WALK_BLOCK = 40000, WALK_STEPS = 1500 };
struct walk {
	struct user *u;
	uint32_t random, generation[WALK_BLOCKS], busy_len[WALK_BLOCKS];
	bool writing[WALK_BLOCKS];
	uint8_t *expected; /* WALK_BLOCK bytes */
};

static uint32_t draw(struct walk *w, uint32_t below)
{
	w->random = w->random * 1664525u + 1013904223u;
	return (w->random >> 8) % below;
}

static void walk_begin(struct walk *w, uint32_t b)
{
	struct user *u = w->u;
	uint8_t *at = u->buf + b * WALK_BLOCK;

	w->writing[b] = !w->generation[b] || draw(w, 3) == 0;
	w->busy_len[b] = w->writing[b] ? WALK_BLOCK : 1 + draw(w, WALK_BLOCK);
	if (w->writing[b]) {
		user_fill(at, WALK_BLOCK, b * 1000 + ++w->generation[b]);
		ok(u,
		   ros2_prep_write(u->file, at, WALK_BLOCK, (uint64_t)b * WALK_BLOCK, b, &u->err));
		return;
	}
	memset(at, 0, WALK_BLOCK);
	ok(u, ros2_prep_read(u->file, at, w->busy_len[b], (uint64_t)b * WALK_BLOCK, b, &u->err));
}

static void walk_end(struct walk *w, const struct ros2_completion *c)
{
	uint32_t b = (uint32_t)c->tag, len = w->busy_len[b];

	assert_int_equal(c->status, ROS2_OK);
	assert_int_equal(c->result, len);
	w->busy_len[b] = 0;
	if (w->writing[b])
		return;
	user_fill(w->expected, WALK_BLOCK, b * 1000 + w->generation[b]);
	assert_memory_equal(w->u->buf + b * WALK_BLOCK, w->expected, len);
}

static void real_data_plane__a_random_walk_reads_what_was_written(void **state)
{
	uint32_t steps = getenv("ROS2_TEST_RDMA_DEVICE") ? WALK_STEPS / 5 : WALK_STEPS, begun = 0;
	struct ros2_completion c[WALK_BLOCKS];
	struct fx *fx = *state;
	struct user u;
	struct walk w = {.u = &u, .random = 7, .expected = malloc(WALK_BLOCK)};

	user_open(fx, &u);
	for (uint32_t ended = 0; ended < steps;) {
		int got;

		for (uint32_t i = 0; i < WALK_BLOCKS / 2 && begun < steps; i++) {
			uint32_t b = draw(&w, WALK_BLOCKS);

			if (w.busy_len[b] || begun - ended >= u.session->depth)
				continue;
			walk_begin(&w, b);
			begun++;
		}
		assert_true(ros2_submit(u.session, &u.err) >= 0);
		got = ros2_wait(u.session, c, 1, WALK_BLOCKS, 20000, &u.err);
		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			walk_end(&w, &c[i]);
		ended += (uint32_t)got;
	}
	assert_int_equal(fx->violations, 0);
	assert_int_equal(u.session->reconnects, 0);
	user_close(&u);
	free(w.expected);
}

static void real_data_plane__memory_freed_under_work_ends_its_requests_first(void **state)
{
	struct ros2_completion c[8];
	struct fx *fx = *state;
	uint32_t leases;
	struct user u;

	user_open(fx, &u);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 1u << 20, 0, &u.err), 1u << 20);
	leases = fx_lease_count(fx);
	for (uint32_t i = 0; i < 8; i++)
		ok(&u, ros2_prep_read(u.file, u.buf + i * 65536, 65536, i * 65536, i, &u.err));
	ok(&u, ros2_submit(u.session, &u.err));
	ros2_buf_free(u.session, u.buf);
	assert_int_equal(fx_lease_count(fx), leases - 1);
	assert_int_equal(ros2_wait(u.session, c, 8, 8, 5000, &u.err), 8);
	for (int i = 0; i < 8; i++)
		assert_true(c[i].status == ROS2_OK || c[i].status == ROS2_CANCELLED);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

/* A device that leads nowhere costs a program nothing but the attempt. */
static void real_data_plane__auto_takes_tcp_where_verbs_lead_nowhere(void **state)
{
	struct ros2_session_opts only = {.transport = ROS2_TRANSPORT_VERBS};
	struct ros2_session_info info;
	struct ros2_session *none = NULL;
	struct fx *fx = *state;
	struct user u;

	if (fx_transport == DP_TRANSPORT_SHM)
		skip(); /* nobody asks for AUTO there */
	user_open(fx, &u);
	atomic_store(&u.control->verbs_nowhere, true);
	user_lose_session(&u);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	ros2_session_info(u.session, &info);
	assert_int_equal(info.transport, ROS2_TRANSPORT_TCP);
	assert_int_equal(info.reconnects, 1);
	/* Who wants verbs and nothing else hears so. */
	assert_true(ros2_session_open(u.client, &only, &none, &u.err) < 0);
	assert_int_equal(u.err.status,
	                 fx_transport == DP_TRANSPORT_VERBS ? ROS2_UNAVAILABLE : ROS2_UNSUPPORTED);
	user_close(&u);
}

static size_t shared_bytes(const struct user *u)
{
	return u->session->shm->arena->len - WIRE_SHM_DATA_OFF;
}

/* Buffers of the lost session count beside the next one's memory: it takes what is left of the
 * tenant's, and all that it wanted when they are gone. */
static void over_shm__a_session_made_again_takes_the_memory_that_is_left(void **state)
{
	static const struct ros2_session_opts o = {.transport = ROS2_TRANSPORT_SHM,
	                                           .shm_bytes = 8u << 20};
	struct ros2_session_info info;
	struct ros2_session *other = NULL;
	struct fx *fx = *state;
	struct user u;

	if (fx_transport != DP_TRANSPORT_SHM)
		skip();
	user_open_as(fx, &u, &o);
	assert_int_equal(shared_bytes(&u), 8u << 20);
	/* Who has nothing to lose hears of the limit. */
	assert_true(ros2_session_open(u.client, &o, &other, &u.err) < 0);
	assert_int_equal(u.err.status, ROS2_LIMIT);
	user_fill(u.buf, USER_BUF, 1);
	user_lose_session(&u);
	assert_int_equal(ros2_pwrite(u.file, u.buf, USER_BUF, 0, &u.err), USER_BUF);
	assert_in_range(shared_bytes(&u), 2u << 20, (8u << 20) - 1);
	ros2_session_info(u.session, &info);
	assert_int_equal(info.copied_bytes, USER_BUF);
	assert_int_equal(ros2_flush(u.file, &u.err), 0);
	ros2_buf_free(u.session, u.buf);
	user_lose_session(&u);
	assert_int_equal(ros2_flush(u.file, &u.err), 0);
	assert_int_equal(shared_bytes(&u), 8u << 20);
	assert_int_equal(u.session->reconnects, 2);
	user_close(&u);
}

static int setup_little(void **state)
{
	fx_shm_tenant_bytes = 13u << 20;
	return fx_setup(state);
}

static int teardown_little(void **state)
{
	fx_shm_tenant_bytes = 0;
	return fx_teardown(state);
}

#ifdef ROS2_TEST_FABRIC_MEM
/* Only there can be seen what the device was asked for. */
static void over_verbs__each_window_ends_once_and_with_its_region(void **state)
{
	struct fabric_mem_counts before, bound, after;
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	fabric_mem_counts(&before);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	fabric_mem_counts(&bound);
	assert_int_equal(bound.binds, before.binds + 1);
	assert_int_equal(bound.invalidates, before.invalidates);
	assert_int_equal(bound.regions, before.regions + 1);
	ros2_buf_free(u.session, u.buf);
	fabric_mem_counts(&after);
	assert_int_equal(after.invalidates, before.invalidates + 1);
	assert_int_equal(after.regions, before.regions);
	assert_int_equal(after.refused, before.refused);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void over_verbs__where_a_fork_would_take_its_pages_no_device_is_used(void **state)
{
	const struct ros2_session_opts over_verbs = {.transport = ROS2_TRANSPORT_VERBS};
	struct ros2_session_info info;
	struct fx *fx = *state;
	struct user u;

	fabric_mem_forks(true);
	assert_true(user_try(fx, &u, &over_verbs) < 0);
	assert_int_equal(u.err.status, ROS2_UNSUPPORTED);
	user_close(&u);
	user_open_as(fx, &u, NULL);
	ros2_session_info(u.session, &info);
	assert_int_equal(info.transport, ROS2_TRANSPORT_TCP);
	user_close(&u);
	fabric_mem_forks(false);
}

/* Before Linux 5.13 libibverbs keeps whole pages of what is registered from children, as the kernel
 * can do it of no less: what else of the program were there would be missing, too. */
static void over_verbs__no_page_of_messages_has_anything_of_the_heap(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct user u;

	user_open(*state, &u);
	assert_int_equal((uintptr_t)u.session->verbs->mem % page, 0);
	user_close(&u);
}

/* The next write hears why; a program that lets the library reconnect writes on. */
static void break_and_hear(struct fx *fx, const struct fabric_mem_failure *how,
                           struct ros2_err *ret)
{
	const struct ros2_session_opts o = {.transport = ROS2_TRANSPORT_VERBS,
	                                    .reconnect_ms = UINT32_MAX};
	struct user u;

	user_open_as(fx, &u, &o);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	fabric_mem_break_as(u.session->verbs->qp, how);
	*ret = (struct ros2_err)ROS2_ERR_INIT;
	assert_true(ros2_pwrite(u.file, u.buf, 50000, 0, ret) < 0);
	user_close(&u);
}

static void over_verbs__why_a_device_ended_the_connection_is_said(void **state)
{
	static const struct {
		struct fabric_mem_failure how;
		const char *numbers, *event;
	} rows[] = {
		{{FABRIC_END_LOCAL, 1, 0x54, "local access violation work queue error", false},
	         "(status 1, vendor error 84)",
	         "reports: local access violation work queue error"},
		{{FABRIC_END_FLUSHED, 5, 249, NULL, false},
	         "(status 5, vendor error 249)",
	         "reports no event"},
		{{FABRIC_END_DEVICE, 21, 0, "somebody else's", true},
	         "(status 21, vendor error 0)",
	         "reports no event"},
	};
	char words[160];

	for (uint32_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ros2_err err;

		break_and_hear(*state, &rows[i].how, &err);
		assert_int_equal(err.status, ROS2_CLOSED);
		snprintf(words, sizeof(words), "failed at %s: %s %s; the device %s",
		         fabric_op_to_str(FABRIC_OP_RECV), fabric_end_to_str(rows[i].how.end),
		         rows[i].numbers, rows[i].event);
		if (!strstr(err.msg, words))
			fail_msg("row %u: %s", i, err.msg);
	}
}

static void over_verbs__a_connection_that_a_device_ended_is_made_again(void **state)
{
	static const struct fabric_mem_failure how = {
		FABRIC_END_FLUSHED, 5, 249, "local access violation work queue error", false};
	struct ros2_session_info info;
	struct user u;

	user_open(*state, &u);
	for (uint32_t i = 1; i <= 3; i++) {
		user_fill(u.buf, 100000, i);
		assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
		fabric_mem_break_as(u.session->verbs->qp, &how);
		assert_int_equal(ros2_pread(u.file, u.buf + 50000, 50000, 0, &u.err), 50000);
		assert_memory_equal(u.buf, u.buf + 50000, 50000);
		ros2_session_info(u.session, &info);
		assert_int_equal(info.reconnects, i);
		assert_int_equal(info.transport, ROS2_TRANSPORT_VERBS);
	}
	user_close(&u);
}
#endif

#define T(f) cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(real_data_plane__every_size_comes_back),
		T(real_data_plane__a_deep_mixed_ring_is_right),
		T(real_data_plane__leases_are_renewed_under_work),
		T(real_data_plane__revocation_is_named_within_half_a_second),
		T(real_data_plane__a_session_lost_under_work_is_made_again),
		T(real_data_plane__leases_that_cannot_be_renewed_are_made_anew),
		T(real_data_plane__a_lease_whose_renewal_is_over_the_rate_is_kept),
		T(real_data_plane__a_grant_that_ends_is_named),
		T(real_data_plane__what_was_cleared_comes_back_as_promised),
		T(real_data_plane__nothing_is_cleared_after_a_revocation),
		T(real_data_plane__lost_contact_is_named_and_what_comes_after_it_works),
		T(real_data_plane__rates_hold),
		T(real_data_plane__a_random_walk_reads_what_was_written),
		T(real_data_plane__memory_freed_under_work_ends_its_requests_first),
		T(real_data_plane__auto_takes_tcp_where_verbs_lead_nowhere),
		cmocka_unit_test_setup_teardown(
			over_shm__a_session_made_again_takes_the_memory_that_is_left, setup_little,
			teardown_little),
#ifdef ROS2_TEST_FABRIC_MEM
		T(over_verbs__each_window_ends_once_and_with_its_region),
		T(over_verbs__where_a_fork_would_take_its_pages_no_device_is_used),
		T(over_verbs__no_page_of_messages_has_anything_of_the_heap),
		T(over_verbs__why_a_device_ended_the_connection_is_said),
		T(over_verbs__a_connection_that_a_device_ended_is_made_again),
#endif
	};

	fx_from_env();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

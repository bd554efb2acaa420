/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the device fails, once and then for good, at the agent's end and at the library's:
 * the program goes on (over verbs again, or over tcp), or hears a named error; nothing is left at
 * the device; and when it works again, so does a new session over it.
 */
#include "dataplane/client/verbs_priv.h"
#include "tests/client/direct.h"
#include "tests/verbs/fabric_mem.h"

#define LARGE 50000u
#define SMALL 1000u

/* Of sessions: their tenant's domain stays. */
static uint32_t things(void)
{
	struct fabric_mem_counts now;

	fabric_mem_counts(&now);
	return now.qps + now.conns + now.windows + now.regions + now.sets;
}

/* What the agent has of a session goes when its reactor gets to it. */
static void nothing_is_left(void)
{
	uint64_t until = clock_monotonic_ns() + 10 * NS_PER_S;

	while (things() && clock_monotonic_ns() < until)
		/* poll: counters of the device */
		usleep(500);
	assert_int_equal(things(), 0);
}

static void named(const struct ros2_err *err)
{
	assert_true(err->status != ROS2_OK && err->status != ROS2_INTERNAL);
	assert_true(err->msg[0]);
}

/* A write that is answered, or whose outcome is unknown, is made again until it is answered. */
static bool writes(struct user *u, uint32_t len, uint64_t at)
{
	for (int i = 0; i < 4; i++) {
		u->err = (struct ros2_err)ROS2_ERR_INIT;
		if (ros2_pwrite(u->file, u->buf, len, at, &u->err) == len)
			return true;
		named(&u->err);
		fprintf(stderr, "# a write ended with %s\n", u->err.msg);
	}
	return false;
}

static bool reads(struct user *u, uint32_t len, uint64_t at)
{
	uint8_t *back = u->buf + USER_BUF / 2;

	for (int i = 0; i < 4; i++) {
		u->err = (struct ros2_err)ROS2_ERR_INIT;
		memset(back, 0, len);
		if (ros2_pread(u->file, back, len, at, &u->err) == len) {
			assert_memory_equal(u->buf, back, len);
			return true;
		}
		named(&u->err);
	}
	return false;
}

/* Until it is answered. That zeros come back is for the scenarios: a read more is a fault more for
 * each of its calls. */
static bool zeroes(struct user *u, uint32_t len, uint64_t at)
{
	for (int i = 0; i < 4; i++) {
		u->err = (struct ros2_err)ROS2_ERR_INIT;
		if (!ros2_zero(u->file, len, at, &u->err))
			return true;
		named(&u->err);
	}
	return false;
}

/* True: everything a program wants was done, whatever failed. *@felt: the session was made again,
 * or is over tcp. */
static bool works(struct fx *fx, bool *felt)
{
	struct ros2_session_opts o = {.reconnect_ms = 700};
	struct user u;
	struct ros2_session_info info;
	bool done;

	if (user_try(fx, &u, &o) < 0) {
		fprintf(stderr, "# a session ended with %s\n", u.err.msg);
		named(&u.err);
		user_close(&u);
		return false;
	}
	user_fill(u.buf, LARGE, 11);
	done = writes(&u, LARGE, 0) && writes(&u, SMALL, 1u << 20) && reads(&u, LARGE, 0) &&
	       reads(&u, SMALL, 1u << 20) && zeroes(&u, SMALL, 1u << 20);
	ros2_session_info(u.session, &info);
	*felt = info.reconnects || info.transport == ROS2_TRANSPORT_TCP;
	user_close(&u);
	return done;
}

static void works_over_verbs(struct fx *fx)
{
	struct user u;

	user_open(fx, &u);
	user_fill(u.buf, LARGE, 12);
	assert_true(writes(&u, LARGE, 0) && reads(&u, LARGE, 0));
	user_close(&u);
}

static void sweep(struct fx *fx, enum fabric_mem_whose whose, bool for_good)
{
	uint32_t calls, refused = 0, n_felt = 0, runs = 0;
	bool felt;

	works_over_verbs(fx);
	fabric_mem_fail(whose, UINT32_MAX, false);
	assert_true(works(fx, &felt));
	assert_false(felt);
	calls = fabric_mem_asked();
	fabric_mem_fail(whose, 0, false);
	assert_true(calls > 10);
	/* For good: each from the first on, then more sparsely, as they are the same again and
	 * again. */
	for (uint32_t n = 1; n <= calls; n += for_good && n > 40 ? 7 : 1) {
		fabric_mem_fail(whose, n, for_good);
		if (!works(fx, &felt)) {
			fprintf(stderr, "# the program gave up after fault %u\n", n);
			refused++;
		} else
			n_felt += felt;
		runs++;
		fabric_mem_fail(whose, 0, false);
		nothing_is_left();
	}
	/* tcp is there: a device that fails is no reason to have no storage. */
	assert_int_equal(refused, 0);
	/* Nearly every fault is one for somebody: the sweep swept. */
	assert_true(n_felt * 2 > runs);
	works_over_verbs(fx);
	nothing_is_left();
}

static void agent__goes_on_when_a_call_of_its_device_fails_once(void **state)
{
	sweep(*state, FABRIC_MEM_OTHERS, false);
}

static void agent__goes_on_when_its_device_fails_for_good(void **state)
{
	sweep(*state, FABRIC_MEM_OTHERS, true);
}

static void library__goes_on_when_a_call_of_its_device_fails_once(void **state)
{
	sweep(*state, FABRIC_MEM_MINE, false);
}

static void library__goes_on_when_its_device_fails_for_good(void **state)
{
	sweep(*state, FABRIC_MEM_MINE, true);
}

/* ---- a device that gives nothing up ---- */

struct kept {
	struct user u;
	uint8_t *mem; /* of the connection: receives, and what is sent */
	size_t len;
	uint64_t times; /* that the device kept something, before */
};

static uint64_t times_kept(void)
{
	struct fabric_mem_counts now;

	fabric_mem_counts(&now);
	return now.regions_kept;
}

static void keep_begin(struct fx *fx, struct kept *k)
{
	const struct verbs_link *v;

	k->times = times_kept();
	user_open(fx, &k->u);
	v = k->u.session->verbs;
	k->mem = v->mem;
	k->len = (size_t)v->n_recv * VERBS_RECV_BYTES + (size_t)v->n_send * VERBS_SEND_BYTES;
	user_fill(k->u.buf, LARGE, 13);
}

static void close_session(struct user *u)
{
	ros2_session_close(u->session);
	u->session = NULL;
}

static void library__leaves_a_device_the_memory_that_it_keeps_after_a_reconnect(void **state)
{
	struct kept k;

	keep_begin(*state, &k);
	fabric_mem_keep_regions(k.len);
	user_lose_session(&k.u);
	assert_true(writes(&k.u, LARGE, 0) && reads(&k.u, LARGE, 0));
	assert_true(times_kept() > k.times);
	/* As such a device may. */
	memset(k.mem, 0xee, k.len);
	assert_true(reads(&k.u, LARGE, 0));
	fabric_mem_keep_regions(0);
	user_close(&k.u);
	nothing_is_left();
}

static void library__leaves_a_device_the_memory_that_it_keeps_after_a_session(void **state)
{
	struct kept k;

	keep_begin(*state, &k);
	fabric_mem_keep_regions(k.len);
	close_session(&k.u);
	assert_true(times_kept() > k.times);
	memset(k.mem, 0xee, k.len);
	fabric_mem_keep_regions(0);
	user_close(&k.u);
	nothing_is_left();
}

static void library__leaves_a_device_the_queue_pair_that_it_keeps_after_a_session(void **state)
{
	struct kept k;

	keep_begin(*state, &k);
	fabric_mem_hang(true);
	close_session(&k.u);
	/* What it has in hand it writes now. */
	fabric_mem_hang(false);
	user_close(&k.u);
	nothing_is_left();
}

/* ---- a device that is reset ---- */

static const struct ros2_session_opts over_verbs = {.transport = ROS2_TRANSPORT_VERBS};

static void many_regions(struct fx *fx)
{
	fx->limits.regions = fx->limits.rkeys_concurrent = fx->max_keys = 2 * VERBS_KEPT;
	fx_limits(fx);
	fx->grant = ros2_uid_new();
	fx_grant(fx, &fx->grant, &fx->tenant, clock_boottime_ns() + 600 * NS_PER_S);
}

/* Its name is the same, and a new context of it works. */
static void library__opens_a_device_that_was_reset_anew(void **state)
{
	struct ros2_region *r[VERBS_KEPT + 4];
	struct fx *fx = *state;
	struct user u;
	uint8_t *mem;

	many_regions(fx);
	user_open_as(fx, &u, &over_verbs);
	user_fill(u.buf, LARGE, 14);
	mem = aligned_alloc(4096, ARRAY_SIZE(r) * 8192);
	assert_non_null(mem);
	for (uint32_t i = 0; i < ARRAY_SIZE(r); i++) {
		ok(&u, ros2_region_register(u.session, mem + i * 8192, 8192, ROS2_REGION_WRITE,
		                            &r[i], &u.err));
		assert_int_equal(ros2_pread(u.file, mem + i * 8192, 8192, 1u << 20, &u.err), 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(writes(&u, LARGE, 0));
		fabric_mem_reset(u.session->verbs->qp);
		assert_true(writes(&u, LARGE, 0) && reads(&u, LARGE, 0));
		assert_int_equal(u.session->over, ROS2_TRANSPORT_VERBS);
	}
	assert_int_equal(u.session->reconnects, 2);
	user_close(&u);
	free(mem);
	nothing_is_left();
}

static int windows_setup(void **state)
{
	fabric_mem_max_window(2 * USER_BUF);
	return fx_setup(state);
}

static int windows_teardown(void **state)
{
	fabric_mem_max_window(0);
	return fx_teardown(state);
}

/* The first request under it would be the end of the connection, and of the next one, and so on. */
static void library__names_a_region_that_is_longer_than_a_window(void **state)
{
	struct ros2_region *r = NULL;
	struct fx *fx = *state;
	uint32_t leases;
	uint8_t *mem;
	struct user u;

	user_open_as(fx, &u, &over_verbs);
	mem = aligned_alloc(4096, 2 * USER_BUF + 4096);
	assert_non_null(mem);
	leases = u.control->registered;
	assert_true(ros2_region_register(u.session, mem, 2 * USER_BUF + 4096, ROS2_REGION_READ, &r,
	                                 &u.err) < 0);
	assert_int_equal(u.err.status, ROS2_TOO_LARGE);
	assert_non_null(strstr(u.err.msg, "a memory window of RDMA device mem0 has at most"));
	assert_int_equal(u.control->registered, leases);
	ok(&u, ros2_region_register(u.session, mem, 2 * USER_BUF, ROS2_REGION_READ, &r, &u.err));
	user_fill(mem, LARGE, 15);
	assert_int_equal(ros2_pwrite(u.file, mem, LARGE, 0, &u.err), LARGE);
	assert_int_equal(ros2_pread(u.file, u.buf, LARGE, 0, &u.err), LARGE);
	assert_memory_equal(u.buf, mem, LARGE);
	assert_int_equal(u.session->reconnects, 0);
	user_close(&u);
	free(mem);
	nothing_is_left();
}

#define W(f) cmocka_unit_test_setup_teardown(f, windows_setup, windows_teardown)
#define T(f) cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(agent__goes_on_when_a_call_of_its_device_fails_once),
		T(agent__goes_on_when_its_device_fails_for_good),
		T(library__goes_on_when_a_call_of_its_device_fails_once),
		T(library__goes_on_when_its_device_fails_for_good),
		T(library__leaves_a_device_the_memory_that_it_keeps_after_a_reconnect),
		T(library__leaves_a_device_the_memory_that_it_keeps_after_a_session),
		T(library__leaves_a_device_the_queue_pair_that_it_keeps_after_a_session),
		T(library__opens_a_device_that_was_reset_anew),
		W(library__names_a_region_that_is_longer_than_a_window),
	};

	fx_from_env();
	/* What each fault leaves is looked for at once. */
	fx_rdma_keep_ms = DP_RDMA_KEEP_NONE;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

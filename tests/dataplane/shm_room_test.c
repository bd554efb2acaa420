/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings over shared memory that are full: who waits for room is told by a byte when there is some,
 * and needs no tick for it. The reactor has none here, so what is not told of is never seen.
 */
#include "tests/dataplane/shm_raw.h"
#include "dataplane/shm_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define SMALL 64u /* short answers that the agent keeps while there is no room */

/* ---- a reactor without ticks ---- */

static _Atomic bool no_ticks;
static _Atomic uint64_t ticks;

int __real_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *limit,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *limit,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *limit,
                        const sigset_t *mask)
{
	bool sleeps = !limit || limit->tv_sec || limit->tv_nsec;
	int n;

	if (no_ticks && sleeps)
		limit = NULL;
	n = __real_epoll_pwait2(ep, ev, max, limit, mask);
	ticks += sleeps && n == 0;
	return n;
}

/* ---- between the agent's last look for room and when it tells what it has put ---- */

#define IN_GAP 100u

static struct shm_raw *_Atomic takes_in_gap;

enum ros2_status __real_session_rights(const struct session *s, uint64_t now_ns);
enum ros2_status __wrap_session_rights(const struct session *s, uint64_t now_ns);
enum ros2_status __wrap_session_rights(const struct session *s, uint64_t now_ns)
{
	struct shm_raw *t = takes_in_gap;
	uint32_t before;

	if (t && ros2_uid_eq(&s->uid, &t->c.session) &&
	    shm_of(s)->written - t->taken == WIRE_SHM_RING_ENTRIES &&
	    shm_of(s)->written != shm_of(s)->published) {
		before = t->taken;
		t->taken += IN_GAP;
		rs_took(t, before);
		takes_in_gap = NULL;
	}
	return __real_session_rights(s, now_ns);
}

static int setup(void **state)
{
	/* Before Linux 5.11, and under qemu-user, there is no epoll_pwait2: ticks are not held
	 * back. */
	if (getenv("ROS2_EMULATED"))
		return 0;
	return fx_setup(state);
}

static int teardown(void **state)
{
	int rc;

	no_ticks = false;
	rc = *state ? fx_teardown(state) : 0;
	dp_test_switches = (struct dp_test_switches){0};
	return rc;
}

static bool reactor_sleeps(const struct shm_raw *t)
{
	return __atomic_load_n(&rs_control(t)->to_agent.sleeps, __ATOMIC_SEQ_CST);
}

static void ready(struct fx *fx, struct shm_raw *t)
{
	if (!fx)
		skip();
	rs_ready(fx, t);
	no_ticks = true;
	/* The wait that has a tick at its end still is the last of that kind. */
	rs_ping(t);
	assert_true(AWAIT(reactor_sleeps(t)));
	ticks = 0;
}

static void end(struct shm_raw *t)
{
	assert_int_equal(ticks, 0);
	no_ticks = false;
	rs_end(t);
}

/* ---- messages, as many as there is room for, and no waiting ---- */

static uint32_t room(const struct shm_raw *t)
{
	uint32_t taken = __atomic_load_n(&rs_control(t)->to_agent.taken, __ATOMIC_SEQ_CST);

	return WIRE_SHM_RING_ENTRIES - (t->written - taken);
}

static uint32_t there(const struct shm_raw *t)
{
	return __atomic_load_n(&rs_control(t)->to_tenant.written, __ATOMIC_SEQ_CST) - t->taken;
}

static void put_pings(struct shm_raw *t, uint32_t n)
{
	while (n--) {
		struct wire_header h = {.opcode = WIRE_PING, .request_id = t->written};

		assert_true(room(t) > 0);
		rs_put(t, &h);
	}
}

static void take_pongs(struct shm_raw *t, uint32_t n)
{
	uint32_t before = t->taken;

	assert_true(there(t) >= n);
	for (; n; n--, t->taken++) {
		struct wire_header h;

		memcpy(&h, rs_entry(t, WIRE_SHM_TO_TENANT_OFF, t->taken), sizeof(h));
		assert_int_equal(h.opcode, WIRE_PONG);
		assert_int_equal(h.request_id, t->taken);
	}
	rs_took(t, before);
}

static void take_socket(struct shm_raw *t)
{
	uint8_t bytes[256];

	while (recv(t->c.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* The ring to the tenant is full, the agent holds what it may, and the ring to it is full, too. */
static void fill_all(struct shm_raw *t)
{
	uint32_t first = t->taken;

	put_pings(t, WIRE_SHM_RING_ENTRIES);
	assert_true(AWAIT(room(t) == WIRE_SHM_RING_ENTRIES));
	put_pings(t, SMALL);
	assert_true(AWAIT(room(t) == WIRE_SHM_RING_ENTRIES));
	put_pings(t, WIRE_SHM_RING_ENTRIES);
	assert_true(AWAIT(reactor_sleeps(t)));
	assert_int_equal(there(t), WIRE_SHM_RING_ENTRIES);
	assert_int_equal(t->taken, first);
	assert_int_equal(room(t), 0);
}

static bool byte_comes(struct shm_raw *t, int ms)
{
	struct pollfd p = {.fd = t->c.fd, .events = POLLIN};
	bool came = poll(&p, 1, ms) > 0;

	take_socket(t);
	return came;
}

/* ---- one ring, then the other ---- */

static void agent_without_room__goes_on_when_the_tenant_takes(void **state)
{
	struct shm_raw t;

	ready(*state, &t);
	fill_all(&t);
	/* One by one: what is made room for comes each time. */
	for (uint32_t i = 0; i < 10; i++) {
		take_pongs(&t, 1);
		assert_true(AWAIT(there(&t) == WIRE_SHM_RING_ENTRIES));
	}
	for (uint32_t left = WIRE_SHM_RING_ENTRIES + SMALL + WIRE_SHM_RING_ENTRIES - 10; left;) {
		uint32_t n = there(&t);

		take_pongs(&t, n);
		left -= n;
		assert_true(!left || AWAIT(there(&t) > 0));
	}
	end(&t);
}

static void tenant_without_room__is_told_when_the_agent_takes(void **state)
{
	struct shm_raw t;

	ready(*state, &t);
	fill_all(&t);
	take_socket(&t);
	/* It does not sleep, it says: no byte comes for what is written to it. */
	assert_int_equal(rs_control(&t)->to_tenant.sleeps, 0);
	take_pongs(&t, WIRE_SHM_RING_ENTRIES);
	assert_true(byte_comes(&t, AWAIT_MS));
	assert_true(room(&t) > 0);
	while (there(&t) || room(&t) != WIRE_SHM_RING_ENTRIES) {
		assert_true(there(&t) || AWAIT(there(&t) > 0));
		take_pongs(&t, there(&t));
	}
	end(&t);
}

static void control__a_tenant_that_is_not_told_waits(void **state)
{
	struct shm_raw t;

	dp_test_switches.no_room_byte = true;
	ready(*state, &t);
	fill_all(&t);
	take_socket(&t);
	take_pongs(&t, WIRE_SHM_RING_ENTRIES);
	assert_true(AWAIT(room(&t) > 0));
	/* time: long enough for what must not happen */
	assert_false(byte_comes(&t, 200));
	end(&t);
}

/* True: the agent put nothing where there is room until it was told. */
static bool waits_untold(struct shm_raw *t)
{
	uint8_t wake = 0;
	bool waited;

	fill_all(t);
	/* It says so right before it sleeps, and may look once more. time: for that */
	usleep(200 * 1000);
	t->no_room_byte = true;
	take_pongs(t, WIRE_SHM_RING_ENTRIES);
	/* time: long enough for what must not happen */
	usleep(200 * 1000);
	waited = there(t) == 0;
	raw_send_bytes(&t->c, &wake, 1);
	assert_true(AWAIT(there(t) > 0));
	return waited;
}

/* Where its thread gets no processor for so long, the last look comes behind what is taken, and
 * then it need not be told: another try. */
static void control__an_agent_that_is_not_told_waits(void **state)
{
	struct shm_raw t;
	bool waited = false;
	unsigned i;

	for (i = 0; i < 5 && !waited; i++) {
		ready(*state, &t);
		waited = waits_untold(&t);
		end(&t);
	}
	assert_true(waited);
}

/* The tenant saw no full ring, so it sends no byte: the agent has to look again by itself. */
static void agent_without_room__sees_what_was_taken_before_it_told(void **state)
{
	struct shm_raw t;

	ready(*state, &t);
	fill_all(&t);
	takes_in_gap = &t;
	/* 64 of them come in one turn, the others in the next, which ends without room. */
	take_pongs(&t, IN_GAP);
	assert_true(AWAIT(!takes_in_gap));
	assert_true(AWAIT(there(&t) == WIRE_SHM_RING_ENTRIES));
	end(&t);
}

/* ---- both at once, again and again ---- */

#define MESSAGES 1000000u

static uint32_t noise(uint32_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 17;
	return *x ^= *x << 5;
}

/* As wire.h says that it is done: whoever finds nothing to do looks once more, and sleeps. */
static bool sleep_a_while(struct shm_raw *t, bool has_more, uint64_t *ret_sleeps)
{
	struct wire_shm_ring *ring = &rs_control(t)->to_tenant;
	bool came = true;

	__atomic_store_n(&ring->sleeps, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!there(t) && (!has_more || !room(t))) {
		++*ret_sleeps;
		came = byte_comes(t, AWAIT_MS);
	}
	__atomic_store_n(&ring->sleeps, 0, __ATOMIC_SEQ_CST);
	return came;
}

static void room__is_never_missed(void **state)
{
	uint32_t x = 2463534242u, put = 0, taken = 0;
	uint64_t sleeps = 0, full = 0;
	struct shm_raw t;

	ready(*state, &t);
	while (taken < MESSAGES) {
		uint32_t n = MIN(room(&t), MESSAGES - put), m = there(&t);

		/* Now nearly all, now a few, so that rings are full, empty and in between. */
		n = n && noise(&x) % 4 ? 1 + noise(&x) % n : n;
		m = m && noise(&x) % 2 ? 1 + noise(&x) % m : m;
		put_pings(&t, n);
		put += n;
		full += !room(&t);
		take_pongs(&t, m);
		taken += m;
		if (!n && !m)
			assert_true(sleep_a_while(&t, put < MESSAGES, &sleeps));
	}
	/* Or nothing was tried. */
	assert_true(full > 0 && sleeps > 0);
	end(&t);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(agent_without_room__goes_on_when_the_tenant_takes),
		T(tenant_without_room__is_told_when_the_agent_takes),
		T(control__a_tenant_that_is_not_told_waits),
		T(control__an_agent_that_is_not_told_waits),
		T(agent_without_room__sees_what_was_taken_before_it_told),
		T(room__is_never_missed),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

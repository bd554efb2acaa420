/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What works over shared memory for a tenant that keeps the rules, over the mem and the file
 * engine, with io_uring and with threads; what is copied for it; and that neither side sleeps
 * through a message of the other.
 */
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include <sys/epoll.h>
#include <sys/stat.h>

#define MIB      (1u << 20)
#define IN_BYTES (4u * MIB) /* where what is read lands, behind what is written */

/* ---- a reactor without ticks: what wakes it is an event, or nothing does ---- */

static _Atomic bool no_ticks;
static _Atomic bool forbidden; /* by a sandbox that does not know the call */

int __real_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *limit,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *limit,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *limit,
                        const sigset_t *mask)
{
	if (forbidden) {
		errno = EPERM;
		return -1;
	}
	if (no_ticks && limit && (limit->tv_sec || limit->tv_nsec))
		limit = NULL;
	return __real_epoll_pwait2(ep, ev, max, limit, mask);
}

static void fill(uint8_t *p, size_t n, uint8_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(seed + i * 31 + (i >> 8));
}

/* Written at @offset of the file from the data's @from, and read back. */
static void write_and_read(struct shm_raw *t, uint64_t offset, uint32_t from, uint32_t len)
{
	uint8_t *out = t->map + SHM_BASE + from, *in = t->map + SHM_BASE + IN_BYTES + from;

	fill(out, len, (uint8_t)(offset + from));
	memset(in - 1, 0x5a, len + 2);
	assert_int_equal(rs_write(t, offset, SHM_BASE + from, len), ROS2_OK);
	assert_int_equal(rs_read(t, offset, SHM_BASE + IN_BYTES + from, len), ROS2_OK);
	assert_memory_equal(in, out, len);
	/* And not a byte beside it. */
	assert_int_equal(in[-1], 0x5a);
	assert_int_equal(in[len], 0x5a);
}

/* ---- requests ---- */

static void write__is_read_back_equal_at_every_size_and_alignment(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t from, len;
	} all[] = {{0, 1, 1},          {0, 4096, 4096},   {4096, 8192, MIB}, {0, 0, MIB},
	           {7, 1, 4095},       {4095, 4095, 2},   {1, 4097, 65537},  {512, 512, 512},
	           {123457, 777, MIB}, {8192, 513, 4096}, {3, 4096, 12288}};
	struct shm_raw t;

	rs_ready(*state, &t);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		write_and_read(&t, all[i].offset, MIB + all[i].from, all[i].len);
	assert_int_equal(rs_do(&t, WIRE_FLUSH, 0, 0, 0, NULL), ROS2_OK);
	rs_end(&t);
}

static void write_and_read__reach_the_last_byte_of_the_memory(void **state)
{
	struct shm_raw t;
	uint64_t last;

	rs_ready(*state, &t);
	last = t.bytes - 1;
	fill(t.map + last - 4095, 4096, 9);
	assert_int_equal(rs_write(&t, 0, last - 4095, 4096), ROS2_OK);
	memset(t.map + last - 4095, 0, 4096);
	assert_int_equal(rs_read(&t, 0, last - 4095, 4096), ROS2_OK);
	fill(t.map + SHM_BASE, 4096, 9);
	assert_memory_equal(t.map + last - 4095, t.map + SHM_BASE, 4096);
	assert_int_equal(rs_read(&t, 0, last, 1), ROS2_OK);
	rs_end(&t);
}

static void read__is_short_only_at_the_end_of_the_file(void **state)
{
	struct shm_raw t;
	uint32_t done;

	rs_ready(*state, &t);
	fill(t.map + SHM_BASE, 5000, 3);
	memset(t.map + SHM_BASE + MIB, 0x5a, 4096);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, 5000), ROS2_OK);
	assert_int_equal(rs_do(&t, WIRE_READ, 4096, SHM_BASE + MIB, 4096, &done), ROS2_OK);
	assert_int_equal(done, 904);
	assert_memory_equal(t.map + SHM_BASE + MIB, t.map + SHM_BASE + 4096, 904);
	assert_int_equal(rs_do(&t, WIRE_READ, MIB, SHM_BASE + MIB, 4096, &done), ROS2_OK);
	assert_int_equal(done, 0);
	assert_int_equal(rs_do(&t, WIRE_READ, 0, SHM_BASE, 0, &done), ROS2_OK);
	assert_int_equal(done, 0);
	assert_int_equal(rs_do(&t, WIRE_WRITE, 0, SHM_BASE, 0, &done), ROS2_OK);
	rs_end(&t);
}

static void zero_and_discard__leave_zeroes_and_need_no_memory(void **state)
{
	static const uint8_t zeroes[65536];
	struct shm_raw t;
	uint32_t done;

	rs_ready(*state, &t);
	write_and_read(&t, 0, MIB, MIB);
	assert_int_equal(rs_do(&t, WIRE_ZERO, 65536, 0, 65536, &done), ROS2_OK);
	assert_int_equal(done, 65536);
	assert_int_equal(rs_read(&t, 65536, SHM_BASE, 65536), ROS2_OK);
	assert_memory_equal(t.map + SHM_BASE, zeroes, sizeof(zeroes));
	assert_int_equal(rs_do(&t, WIRE_DISCARD, 0, 0, MIB, &done), ROS2_OK);
	assert_int_equal(done, MIB);
	rs_end(&t);
}

#define DEPTH 128u
#define PART  8192u

/* As many in flight as there are credits, each with memory of its own. */
static void in_flight(struct shm_raw *t, enum wire_opcode op, uint64_t base)
{
	bool seen[DEPTH] = {0};
	uint64_t first = t->c.next_id + 1;
	struct wire_header h;

	for (uint32_t i = 0; i < DEPTH; i++) {
		h = raw_header(&t->c, op, (uint64_t)i * PART, base + (uint64_t)i * PART, PART);
		wire_seal(&h);
		rs_put_quietly(t, &h);
	}
	rs_tell(t);
	for (uint32_t i = 0; i < DEPTH; i++) {
		assert_true(rs_take(t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		assert_int_equal(h.length, PART);
		assert_in_range(h.request_id, first, first + DEPTH - 1);
		assert_false(seen[h.request_id - first]);
		seen[h.request_id - first] = true;
	}
}

/* The rings go round more than twice. */
static void requests__in_flight_all_complete_wherever_the_rings_wrap(void **state)
{
	struct dp_session_stats st;
	struct shm_raw t;

	rs_ready(*state, &t);
	for (uint8_t round = 0; round < 5; round++) {
		fill(t.map + SHM_BASE, DEPTH * PART, round);
		in_flight(&t, WIRE_WRITE, SHM_BASE);
		in_flight(&t, WIRE_READ, SHM_BASE + IN_BYTES);
		assert_memory_equal(t.map + SHM_BASE, t.map + SHM_BASE + IN_BYTES, DEPTH * PART);
		/* So that the next does not begin at an entry that DEPTH divides. */
		rs_ping(&t);
	}
	assert_true(t.taken > 2 * WIRE_SHM_RING_ENTRIES);
	st = fx_stats(*state, &t.c.session);
	assert_int_equal(st.read_ops, 5 * DEPTH);
	assert_int_equal(st.write_bytes, 5 * DEPTH * PART);
	assert_int_equal(st.violations, 0);
	rs_end(&t);
}

/* Words of a NAK lie across the end of the ring, too. */
static void naks__are_whole_wherever_the_ring_wraps(void **state)
{
	struct shm_raw t;

	rs_ready(*state, &t);
	while (t.taken < 2 * WIRE_SHM_RING_ENTRIES) {
		struct wire_header h = raw_header(&t.c, WIRE_READ, 0, 0, 4096);

		rs_expect_nak(&t, &h, ROS2_OUT_OF_RANGE);
		if (t.taken % 3 == 0)
			rs_ping(&t);
	}
	assert_int_equal(rs_read(&t, 0, SHM_BASE, 0), ROS2_OK);
	rs_end(&t);
}

static void bye__ends_the_session_when_all_is_answered(void **state)
{
	struct wire_header h;
	struct shm_raw t;
	uint32_t n = 0;

	rs_ready(*state, &t);
	for (uint32_t i = 0; i < 20; i++) {
		h = raw_header(&t.c, WIRE_WRITE, (uint64_t)i * PART, SHM_BASE, PART);
		wire_seal(&h);
		rs_put_quietly(&t, &h);
	}
	h = (struct wire_header){.opcode = WIRE_BYE};
	rs_put(&t, &h);
	while (rs_take(&t, &h, NULL)) {
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		n++;
	}
	assert_int_equal(n, 20);
	rs_expect_end(&t, ROS2_CLOSED, "BYE");
	rs_close(&t);
}

/* ---- what is copied ---- */

struct copied {
	uint64_t by_write, by_read;
};

static struct copied copies(struct fx *fx)
{
	uint64_t before, between, after;
	struct shm_raw t;

	rs_ready(fx, &t);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, MIB), ROS2_OK);
	before = fx_stats(fx, &t.c.session).copied_bytes;
	for (int i = 0; i < 4; i++)
		assert_int_equal(rs_write(&t, 0, SHM_BASE, MIB), ROS2_OK);
	between = fx_stats(fx, &t.c.session).copied_bytes;
	for (int i = 0; i < 4; i++)
		assert_int_equal(rs_read(&t, 0, SHM_BASE, MIB), ROS2_OK);
	after = fx_stats(fx, &t.c.session).copied_bytes;
	assert_int_equal(fx_slots(fx), 0);
	rs_end(&t);
	return (struct copied){between - before, after - between};
}

static void payload__of_files_is_copied_by_nobody(void **state)
{
	struct copied c = copies(*state);

	assert_int_equal(c.by_write, 0);
	assert_int_equal(c.by_read, 0);
}

/* What the mem engine has is a copy of what it was given, and the other way round. */
static void payload__of_memory_is_copied_once_each_way(void **state)
{
	struct copied c = copies(*state);

	assert_int_equal(c.by_write, 4 * MIB);
	assert_int_equal(c.by_read, 4 * MIB);
}

/* ---- sleeping ---- */

static bool reactor_sleeps(const struct shm_raw *t)
{
	return __atomic_load_n(&rs_control(t)->to_agent.sleeps, __ATOMIC_SEQ_CST);
}

static void asleep(struct shm_raw *t)
{
	no_ticks = true;
	/* The wait that has a tick at its end still is the last of that kind. */
	rs_ping(t);
	assert_true(AWAIT(reactor_sleeps(t)));
}

static void request__to_a_reactor_that_sleeps_is_answered(void **state)
{
	struct shm_raw t;

	rs_ready(*state, &t);
	asleep(&t);
	for (int i = 0; i < 100; i++) {
		assert_true(AWAIT(reactor_sleeps(&t)));
		assert_int_equal(rs_write(&t, 0, SHM_BASE, 4096), ROS2_OK);
	}
	no_ticks = false;
	rs_end(&t);
}

static void reactor__waits_by_the_older_call_where_the_newer_is_forbidden(void **state)
{
	struct shm_raw t;

	forbidden = true;
	rs_ready(*state, &t);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, 4096), ROS2_OK);
	forbidden = false;
	rs_end(&t);
}

/* The control: it is the byte that wakes it. */
static void control__without_the_byte_it_sleeps_on(void **state)
{
	struct wire_header h = {.opcode = WIRE_PING, .request_id = 1};
	struct shm_raw t;
	uint8_t wake = 0;

	/* Before Linux 5.11, and under qemu-user, there is no epoll_pwait2: ticks are not held
	 * back.
	 */
	if (getenv("ROS2_EMULATED"))
		skip();
	rs_ready(*state, &t);
	asleep(&t);
	/* It says so right before it sleeps, and may look once more. time: for that */
	usleep(200 * 1000);
	t.no_wake = true;
	rs_put(&t, &h);
	/* time: long enough for what must not happen */
	usleep(200 * 1000);
	assert_true(rs_nothing(&t));
	raw_send_bytes(&t.c, &wake, 1);
	assert_true(rs_take(&t, &h, NULL));
	assert_int_equal(h.opcode, WIRE_PONG);
	no_ticks = false;
	rs_end(&t);
}

#define ROUNDS 100000

/* One message at a time, so that each side sleeps, or is about to, when the other writes. */
static void wake_up__is_never_lost(void **state)
{
	uint64_t polls = 0;
	struct shm_raw t;

	rs_ready(*state, &t);
	asleep(&t);
	for (int i = 0; i < ROUNDS; i++) {
		polls += reactor_sleeps(&t);
		rs_ping(&t);
	}
	/* Or nothing was tried. */
	assert_true(polls > 0);
	no_ticks = false;
	rs_end(&t);
}

/* ---- the beginning ---- */

static void memory__is_of_the_size_that_was_said_and_all_there(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;
	struct stat st;

	rs_open_session(fx, &t);
	assert_int_equal(t.offered, SHM_BYTES);
	rs_hello(&t);
	rs_memory(&t);
	assert_int_equal(fstat(t.memfd, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= t.bytes);
	for (uint64_t i = 4096; i < t.bytes; i++)
		if (t.map[i])
			fail_msg("byte %llu is not 0", (unsigned long long)i);
	rs_mapped(&t);
	rs_ping(&t);
	rs_end(&t);
}

static void sessions__have_memory_of_their_own(void **state)
{
	struct shm_raw a, b;
	struct stat sa, sb;

	rs_ready(*state, &a);
	rs_ready(*state, &b);
	assert_int_equal(fstat(a.memfd, &sa) | fstat(b.memfd, &sb), 0);
	assert_int_not_equal(sa.st_ino, sb.st_ino);
	memset(a.map + SHM_BASE, 'a', 4096);
	memset(b.map + SHM_BASE, 'b', 4096);
	assert_int_equal(rs_write(&a, 0, SHM_BASE, 4096), ROS2_OK);
	assert_int_equal(b.map[SHM_BASE], 'b');
	assert_int_equal(rs_read(&b, 0, SHM_BASE, 4096), ROS2_OK);
	assert_int_equal(b.map[SHM_BASE], 'a');
	rs_end(&a);
	rs_end(&b);
}

#define EACH(f) FX_TEST(f), FX_FILE_TEST(f, fx_file_setup), FX_FILE_TEST(f, fx_threads_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(write__is_read_back_equal_at_every_size_and_alignment),
		EACH(write_and_read__reach_the_last_byte_of_the_memory),
		EACH(read__is_short_only_at_the_end_of_the_file),
		EACH(zero_and_discard__leave_zeroes_and_need_no_memory),
		EACH(requests__in_flight_all_complete_wherever_the_rings_wrap),
		EACH(bye__ends_the_session_when_all_is_answered),
		FX_TEST(naks__are_whole_wherever_the_ring_wraps),
		FX_TEST(payload__of_memory_is_copied_once_each_way),
		FX_FILE_TEST(payload__of_files_is_copied_by_nobody, fx_file_setup),
		FX_FILE_TEST(payload__of_files_is_copied_by_nobody, fx_threads_setup),
		FX_TEST(request__to_a_reactor_that_sleeps_is_answered),
		FX_TEST(reactor__waits_by_the_older_call_where_the_newer_is_forbidden),
		FX_TEST(control__without_the_byte_it_sleeps_on),
		FX_TEST(wake_up__is_never_lost),
		FX_TEST(memory__is_of_the_size_that_was_said_and_all_there),
		FX_TEST(sessions__have_memory_of_their_own),
	};

	fx_shm = true;
	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* libros2 against an agent that behaves: ring, plain I/O, memory, files, renewal. */
#include "common/clock.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void ring__reads_and_writes_every_size_class(void **state)
{
	static const uint32_t sizes[] = {1, 511, 4096, 16384, 16385, 65536, 200000, 262144};
	struct rig *r = *state;

	rig_open(r, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t *back = r->buf + (512u << 10);
		struct ros2_completion c;

		rig_pattern(r->buf, sizes[i], (uint32_t)i);
		c = rig_write(r, r->buf, sizes[i], i * 3);
		assert_int_equal(c.result, sizes[i]);
		assert_int_equal(c.tag, 8);
		memset(back, 0, sizes[i]);
		c = rig_read(r, back, sizes[i], i * 3);
		assert_int_equal(c.result, sizes[i]);
		assert_memory_equal(r->buf, back, sizes[i]);
	}
	assert_false(r->agent->saw_violation);
}

static void ring__works_when_every_message_comes_byte_by_byte(void **state)
{
	struct rig *r = *state;
	uint8_t *back = r->buf;
	struct ros2_completion c;

	r->agent->byte_by_byte = true;
	rig_open(r, NULL);
	back = r->buf + 65536;
	rig_pattern(r->buf, 20000, 5);
	c = rig_write(r, r->buf, 20000, 100);
	assert_int_equal(c.result, 20000);
	c = rig_read(r, back, 20000, 100);
	assert_int_equal(c.result, 20000);
	assert_memory_equal(r->buf, back, 20000);
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void ring__keeps_depth_requests_in_flight_and_refuses_more(void **state)
{
	struct ros2_session_opts o = {.depth = 8};
	struct ros2_completion c[8];
	struct rig *r = *state;
	uint32_t seen = 0;

	rig_open(r, &o);
	for (uint32_t i = 0; i < 8; i++)
		rig_ok(r, ros2_prep_read(r->file, r->buf + i * 4096, 4096, i * 4096, i, &r->err));
	assert_int_equal(ros2_prep_read(r->file, r->buf, 4096, 0, 9, NULL), -EAGAIN);
	assert_int_equal(ros2_submit(r->session, &r->err), 8);
	for (int n = 0; n < 8;) {
		int got = ros2_wait(r->session, c, 1, 8, 5000, &r->err);

		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			seen |= 1u << c[i].tag;
		n += got;
	}
	assert_int_equal(seen, 0xff);
	assert_int_equal(ros2_wait(r->session, c, 1, 8, -1, &r->err), 0);
}

/* Looking before sleeping changes when an answer is seen, and nothing else. */
static void wait__that_looks_first_keeps_its_time_limit_and_then_sleeps(void **state)
{
	struct ros2_session_opts o = {.poll_us = 5000};
	struct rig *r = *state;
	struct ros2_completion c;
	uint64_t before, cpu;

	rig_open(r, &o);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_OK);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_UNAVAILABLE);
	region_set_stale(r->session, region_find(r->session, r->buf, 1));
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	before = clock_monotonic_ns();
	cpu = thread_cpu_ns();
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 400, &r->err), 0);
	assert_true(clock_monotonic_ns() - before >= 400 * NS_PER_MS);
	assert_true(thread_cpu_ns() - cpu < 200 * NS_PER_MS);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_OK);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 20000, &r->err), 1);
	assert_int_equal(c.status, ROS2_OK);
}

/* Until it was asked several times. */
static void *lets_register(void *arg)
{
	struct fake_agent *a = arg;
	unsigned asked = 0;

	AWAIT(({
		WITH_AGENT(a, asked = a->n_registers_refused);
		asked >= 3;
	}));
	WITH_AGENT(a, a->register_status = ROS2_OK);
	return NULL;
}

static void wait__without_a_limit_returns_when_something_is_there(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;
	pthread_t later;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_UNAVAILABLE);
	region_set_stale(r->session, region_find(r->session, r->buf, 1));
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	pthread_create(&later, NULL, lets_register, r->agent);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, -1, &r->err), 1);
	assert_int_equal(c.status, ROS2_OK);
	pthread_join(later, NULL);
}

static void ring__mixed_load_with_more_requests_than_credits_is_right(void **state)
{
	struct ros2_session_opts o = {.depth = 64};
	struct ros2_completion c[64];
	struct rig *r = *state;
	uint8_t *file;

	r->agent->credits = 5;
	file = fake_agent_file(r->agent, "f", 1u << 20);
	rig_pattern(file, 512u << 10, 77);
	rig_open(r, &o);
	rig_pattern(r->buf, 512u << 10, 78);
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t at = i * 16384;

		rig_ok(r, ros2_prep_read(r->file, r->buf + (512u << 10) + at, 16384, at, i, NULL));
		rig_ok(r, ros2_prep_write(r->file, r->buf + at, i % 2 ? 16384 : 300,
		                          (512u << 10) + at, 100 + i, NULL));
	}
	assert_int_equal(ros2_submit(r->session, &r->err), 64);
	for (int n = 0; n < 64;) {
		int got = ros2_wait(r->session, c, 1, 64, 5000, &r->err);

		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(c[i].status, ROS2_OK);
		n += got;
	}
	assert_memory_equal(r->buf + (512u << 10), file, 512u << 10);
	for (uint32_t i = 0; i < 32; i++)
		assert_memory_equal(r->buf + i * 16384, file + (512u << 10) + i * 16384,
		                    i % 2 ? 16384 : 300);
	assert_false(r->agent->saw_violation);
}

static void ring__refuses_memory_that_is_not_registered(void **state)
{
	struct rig *r = *state;
	uint8_t stray[64];

	rig_open(r, NULL);
	assert_int_equal(ros2_prep_read(r->file, stray, 64, 0, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_prep_read(r->file, r->buf + r->buf_len - 10, 20, 0, 1, &r->err),
	                 -EINVAL);
	assert_int_equal(ros2_prep_read(r->file, r->buf, 0, 0, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_prep_read(r->file, r->buf, 1, UINT64_MAX, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_prep_read(r->file, r->buf, 262145, 0, 1, &r->err), -EINVAL);
}

static int bytes_that_wake(const struct rig *r)
{
	socklen_t len = sizeof(int);
	int bytes = -1;

	assert_return_code(getsockopt(r->session->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, &len),
	                   errno);
	return bytes;
}

/* Waits, again and again, until it would sleep for @bytes. False: it never did. */
static bool sleeps_for(struct rig *r, int bytes)
{
	struct ros2_completion c;

	for (int i = 0; i < 4000; i++) {
		/* poll: of what the agent sent the kernel may have only a part yet */
		assert_int_equal(ros2_wait(r->session, &c, 1, 1, 5, &r->err), 0);
		if (bytes_that_wake(r) == bytes)
			return true;
	}
	return false;
}

static void wait__sleeps_for_much_of_a_large_payload_and_never_for_more_than_comes(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20);
	int gate = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);

	r->agent->max_io = r->agent->chunk = 1u << 20;
	rig_open(r, NULL);
	r->agent->gate = gate;
	rig_pattern(file, r->buf_len, 3);
	rig_ok(r, ros2_prep_read(r->file, r->buf, (uint32_t)r->buf_len, 0, 7, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(bytes_that_wake(r), 1);
	assert_true(sleeps_for(r, 512 * 1024));
	assert_return_code(eventfd_write(gate, 1), errno);
	assert_true(sleeps_for(r, FAKE_GATE_BYTES));
	assert_return_code(eventfd_write(gate, 1), errno);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 20000, &r->err), 1);
	assert_int_equal(c.result, r->buf_len);
	assert_memory_equal(r->buf, file, r->buf_len);
	/* What comes next may be as short as a header. */
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 7, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_true(sleeps_for(r, 1));
	close(gate);
}

static void regions__may_not_overlap_and_keep_their_access(void **state)
{
	struct rig *r = *state;
	uint8_t *mem = aligned_alloc(4096, 16384);
	struct ros2_region *a, *b;

	rig_open(r, NULL);
	rig_ok(r, ros2_region_register(r->session, mem, 8192, ROS2_REGION_READ, &a, &r->err));
	assert_int_equal(ros2_region_register(r->session, mem + 8191, 10, 3, &b, &r->err), -EEXIST);
	rig_ok(r, ros2_region_register(r->session, mem + 8192, 8192, 3, &b, &r->err));
	assert_int_equal(ros2_prep_read(r->file, mem, 100, 0, 1, &r->err), -EPERM);
	assert_int_equal(ros2_prep_write(r->file, mem + 8000, 1000, 0, 1, &r->err), -EINVAL);
	assert_int_equal(rig_write(r, mem, 100, 0).result, 100);
	ros2_region_deregister(a);
	ros2_region_deregister(b);
	assert_int_equal(ros2_prep_write(r->file, mem, 100, 0, 1, &r->err), -EINVAL);
	free(mem);
}

static void plain__any_length_in_any_memory_comes_back(void **state)
{
	struct rig *r = *state;
	size_t n = 900001;
	uint8_t *a = malloc(n), *b = malloc(n);

	rig_open(r, NULL);
	rig_pattern(a, n, 3);
	assert_int_equal(ros2_pwrite(r->file, a, n, 12345, &r->err), n);
	assert_int_equal(ros2_pread(r->file, b, n, 12345, &r->err), n);
	assert_memory_equal(a, b, n);
	/* Registered memory, many pieces in flight, short at the end of the file. */
	assert_int_equal(ros2_pread(r->file, r->buf, r->buf_len, 1u << 19, &r->err), 1u << 19);
	assert_memory_equal(r->buf, a + (1u << 19) - 12345, n + 12345 - (1u << 19));
	assert_int_equal(ros2_pread(r->file, b, n, 5u << 20, &r->err), 0);
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
	free(a);
	free(b);
}

static void plain__uses_a_bounce_buffer_as_small_as_the_policy_allows(void **state)
{
	struct rig *r = *state;
	uint8_t data[20000], back[20000];

	r->agent->region_size_max = 8192;
	rig_open(r, NULL);
	rig_pattern(data, sizeof(data), 9);
	assert_int_equal(ros2_pwrite(r->file, data, sizeof(data), 0, &r->err), sizeof(data));
	assert_int_equal(ros2_pread(r->file, back, sizeof(back), 0, &r->err), sizeof(back));
	assert_memory_equal(data, back, sizeof(data));
	assert_int_equal(r->session->bounce->len, 8192);
}

static void files__are_listed_and_missing_ones_are_named(void **state)
{
	struct rig *r = *state;
	struct ros2_dirent e[8];
	uint64_t cookie = 0;
	struct ros2_stat st;
	struct ros2_file *f;

	rig_open(r, NULL);
	assert_int_equal(ros2_readdir(r->mount, "", &cookie, e, 8, &r->err), 1);
	assert_string_equal(e[0].name, "f");
	rig_ok(r, ros2_fstat(r->file, &st, &r->err));
	assert_int_equal(st.size, 1u << 20);
	assert_int_equal(st.block_size, 0); /* an agent that does not say */
	r->agent->block_size = 4096;
	rig_ok(r, ros2_stat(r->mount, "f", &st, &r->err));
	assert_int_equal(st.block_size, 4096);
	assert_int_equal(ros2_open(r->mount, "none", ROS2_O_RDONLY, 0, &f, &r->err), -ENOENT);
	assert_int_equal(r->err.status, ROS2_NOT_FOUND);
	rig_ok(r, ros2_close(r->file, &r->err));
}

static void leases__are_renewed_before_they_end_and_may_rotate(void **state)
{
	struct rig *r = *state;
	uint32_t before = 0, after = 0;

	r->agent->ttl_ms = 150;
	r->agent->rotate_keys = true;
	rig_open(r, NULL);
	ros2_debug_key(r->session, r->buf, &before, NULL, NULL);
	for (int i = 0; i < 8; i++) {
		poll(NULL, 0, 50);
		assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	}
	ros2_debug_key(r->session, r->buf, &after, NULL, NULL);
	assert_true(r->agent->n_renewals >= 3);
	assert_int_not_equal(before, after);
}

static void leases__refused_as_expired_are_registered_again_unseen(void **state)
{
	struct rig *r = *state;
	unsigned registered;

	rig_open(r, NULL);
	registered = r->agent->n_registers;
	WITH_AGENT(r->agent, r->agent->expire_next = 2);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(r->agent->n_registers, registered + 2);
	WITH_AGENT(r->agent, r->agent->expire_next = 1);
	assert_int_equal(rig_write(r, r->buf, 100000, 0).result, 100000);
	WITH_AGENT(r->agent, r->agent->expire_next = 1000);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_LEASE_EXPIRED);
}

static void leases__that_end_in_the_middle_of_a_write_leave_it_in_doubt(void **state)
{
	struct rig *r = *state;
	unsigned writes;

	rig_open(r, NULL);
	writes = r->agent->n_writes;
	WITH_AGENT(r->agent, r->agent->pull_then_expire = 1);
	assert_int_equal(rig_write(r, r->buf, 100000, 0).status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(r->agent->n_writes, writes + 1);
}

static void naks__name_the_error_of_their_request(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->nak_next = ROS2_ACCESS);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_ACCESS);
	WITH_AGENT(r->agent, r->agent->nak_next = ROS2_ACCESS);
	assert_int_equal(ros2_pread(r->file, r->buf, 4096, 0, &r->err), -EPERM);
	assert_string_equal(r->err.msg, "not allowed here");
}

struct worker {
	struct rig *rig;
	uint64_t offset; /* each its own */
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct rig *r = w->rig;
	struct ros2_session *s;
	struct ros2_mount *m;
	struct ros2_file *f;
	uint8_t data[5000] = "";
	int bad = 0;

	if (ros2_session_open(r->client, NULL, &s, NULL))
		return (void *)1;
	bad += ros2_mount(s, "data", &m, NULL) || ros2_open(m, "f", ROS2_O_RDWR, 0, &f, NULL);
	for (int i = 0; i < 20 && !bad; i++) {
		bad += ros2_pwrite(f, data, sizeof(data), w->offset, NULL) != sizeof(data);
		bad += ros2_pread(f, data, sizeof(data), w->offset, NULL) != sizeof(data);
	}
	ros2_session_close(s);
	return (void *)(intptr_t)bad;
}

static void sessions__of_one_client_work_side_by_side(void **state)
{
	struct rig *r = *state;
	struct worker w[12];
	pthread_t t[12];

	r->agent->ttl_ms = 60;
	rig_open(r, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		w[i] = (struct worker){r, i * 8192};
		pthread_create(&t[i], NULL, work, &w[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		void *bad;

		pthread_join(t[i], &bad);
		assert_null(bad);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ring__reads_and_writes_every_size_class),
		T(ring__works_when_every_message_comes_byte_by_byte),
		T(ring__keeps_depth_requests_in_flight_and_refuses_more),
		T(wait__that_looks_first_keeps_its_time_limit_and_then_sleeps),
		T(wait__without_a_limit_returns_when_something_is_there),
		T(ring__mixed_load_with_more_requests_than_credits_is_right),
		T(ring__refuses_memory_that_is_not_registered),
		T(wait__sleeps_for_much_of_a_large_payload_and_never_for_more_than_comes),
		T(regions__may_not_overlap_and_keep_their_access),
		T(plain__any_length_in_any_memory_comes_back),
		T(plain__uses_a_bounce_buffer_as_small_as_the_policy_allows),
		T(files__are_listed_and_missing_ones_are_named),
		T(leases__are_renewed_before_they_end_and_may_rotate),
		T(leases__refused_as_expired_are_registered_again_unseen),
		T(leases__that_end_in_the_middle_of_a_write_leave_it_in_doubt),
		T(naks__name_the_error_of_their_request),
		T(sessions__of_one_client_work_side_by_side),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

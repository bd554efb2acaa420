/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 where things end in an unusual order or by somebody's fault: a program that looks away
 * for a minute or unmaps its memory, an agent whose limits wrap, that drops every connection, that
 * has no lease to give; objects freed while others still use them.
 */
#include "common/clock.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

static void limits__that_would_make_a_buffer_smaller_than_asked_are_refused(void **state)
{
	static const struct {
		uint64_t size_min, alignment;
	} wrong[] = {{UINT64_MAX, 8192}, {UINT64_MAX - 8000, 8192}, {1ull << 60, 0},
	             {0, 4097},          {0, 1ull << 40},           {0, UINT64_MAX}};
	struct rig *r = *state;
	void *buf = NULL;

	rig_open(r, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		r->session->granted.region_size_min = wrong[i].size_min;
		r->session->granted.region_alignment = wrong[i].alignment;
		assert_int_equal(ros2_buf_alloc(r->session, 1u << 20, &buf, &r->err), -EPROTO);
	}
	r->session->granted.region_size_min = r->session->granted.region_alignment = 0;
	assert_int_equal(ros2_buf_alloc(r->session, SIZE_MAX, &buf, &r->err), -EINVAL);
	assert_int_equal(ros2_buf_alloc(r->session, (size_t)1 << 47, &buf, &r->err), -ENOMEM);
	assert_int_equal(ros2_buf_alloc(r->session, 0, &buf, &r->err), -EINVAL);
	assert_null(buf);
}

static void
buffers__may_be_as_large_as_the_policy_allows_also_if_that_is_no_whole_page(void **state)
{
	struct rig *r = *state;
	uint8_t byte = 1;
	void *buf;

	r->agent->region_size_max = 10000;
	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	rig_ok(r, ros2_session_open(r->client, NULL, &r->session, &r->err));
	rig_ok(r, ros2_mount(r->session, "data", &r->mount, &r->err));
	rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDWR, 0, &r->file, &r->err));
	rig_ok(r, ros2_buf_alloc(r->session, 10000, &buf, &r->err));
	assert_int_equal(region_find(r->session, buf, 1)->len, 10000);
	assert_int_equal(ros2_pwrite(r->file, &byte, 1, 0, &r->err), 1);
	assert_int_equal(r->session->bounce->len, 10000);
}

static void slow_program__finds_its_answers_after_a_minute_and_no_lost_agent(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, NULL);
	rig_ok(r, ros2_prep_write(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	/* As if a minute had passed since. */
	r->session->looked_ns -= 60 * NS_PER_S;
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 5000, &r->err), 1);
	assert_int_equal(c.status, ROS2_OK);
	assert_int_equal(r->session->reconnects, 0);
}

static void silent_agent__is_lost_after_its_time_also_for_one_who_looks_seldom(void **state)
{
	struct ros2_session_opts o = {.reconnect_ms = UINT32_MAX};
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	/* Each look after 5 s counts for 2: without them PONGs would say that it lives. */
	for (int i = 0; i < 4; i++) {
		r->session->looked_ns -= 5 * NS_PER_S;
		assert_int_equal(ros2_peek(r->session, &c, 1, &r->err), 0);
	}
	assert_true(r->session->silent_ns > 7 * NS_PER_S && r->session->silent_ns < 9 * NS_PER_S);
	r->session->silent_ns = LOST_AFTER_MS * NS_PER_MS;
	assert_int_equal(ros2_peek(r->session, &c, 1, &r->err), 1);
	assert_int_equal(c.status, ROS2_TIMEOUT);
}

/* That the session does not reconnect makes no write less in doubt. */
static void session__that_ends_with_its_connection_leaves_writes_in_doubt(void **state)
{
	struct ros2_session_opts o = {.reconnect_ms = UINT32_MAX};
	struct rig *r = *state;
	struct ros2_completion c[3];

	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_write(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_prep_read(r->file, r->buf + 4096, 4096, 0, 2, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	rig_ok(r, ros2_prep_write(r->file, r->buf, 4096, 0, 3, &r->err));
	assert_true(AWAIT(fake_agent_count(r->agent, &r->agent->n_reads) == 1));
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_wait(r->session, c, 3, 3, AWAIT_MS, &r->err), 3);
	assert_int_equal(c[0].tag, 1);
	assert_int_equal(c[0].status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(c[0].result, -EREMOTEIO);
	/* What only reads, and what never left, is not. */
	assert_int_equal(c[1].status, ROS2_CLOSED);
	assert_int_equal(c[2].status, ROS2_CLOSED);
}

static void agent_that_drops_every_connection__is_given_up_and_not_stormed(void **state)
{
	struct ros2_session_opts o = {.reconnect_ms = 1500};
	struct rig *r = *state;
	uint64_t began;

	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->drop_always = true);
	began = clock_monotonic_ns();
	assert_int_equal(ros2_pread(r->file, r->buf, 4096, 0, &r->err), -ENOTCONN);
	assert_true(clock_monotonic_ns() - began < AWAIT_NS);
	/* 20, 40, 80 ... ms apart. */
	assert_in_range(r->agent->n_sessions_opened, 2, 12);
	WITH_AGENT(r->agent, r->agent->drop_always = false);
	assert_int_equal(ros2_pread(r->file, r->buf, 4096, 0, &r->err), 4096);
}

static void idle_connection__lost_before_a_write_leaves_it_not_in_doubt(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	for (int i = 0; i < 3; i++) {
		struct pollfd p = {.fd = r->session->fd, .events = POLLIN};

		fake_agent_reset_all(r->agent);
		assert_int_equal(poll(&p, 1, AWAIT_MS), 1);
		assert_int_equal(rig_write(r, r->buf, 100000, 0).result, 100000);
	}
	assert_int_equal(r->session->reconnects, 3);
}

static void lease__that_ended_at_an_agent_that_restarted_is_had_from_the_new_one(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent,
	           for (int i = 0; i < FAKE_SESSIONS; i++) r->agent->sessions[i].live = false);
	region_set_stale(r->session, region_find(r->session, r->buf, 1));
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(r->session->reconnects, 1);
}

static void lease__that_cannot_be_had_now_is_waited_for(void **state)
{
	struct ros2_session_opts o = {.reconnect_ms = 500};
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_UNAVAILABLE);
	region_set_stale(r->session, region_find(r->session, r->buf, 1));
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 150, &r->err), 0);
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_OK);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 5000, &r->err), 1);
	assert_int_equal(c.status, ROS2_OK);
	assert_int_equal(r->session->reconnects, 0);
	/* But no longer than for a connection. */
	WITH_AGENT(r->agent, r->agent->register_status = ROS2_UNAVAILABLE);
	region_set_stale(r->session, region_find(r->session, r->buf, 1));
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_UNAVAILABLE);
}

static void leases__of_a_millisecond_are_not_renewed_in_a_loop(void **state)
{
	struct rig *r = *state;

	r->agent->ttl_ms = 1;
	rig_open(r, NULL);
	poll(NULL, 0, 300);
	assert_true(r->agent->n_renewals < 40);
}

static void leases__that_ended_at_a_lost_agent_are_not_asked_for_ever(void **state)
{
	struct rig *r = *state;
	unsigned before;

	r->agent->ttl_ms = 300;
	r->agent->renew_status = ROS2_UNAVAILABLE;
	rig_open(r, NULL);
	poll(NULL, 0, 600);
	WITH_AGENT(r->agent, before = r->agent->n_renewals);
	assert_true(before >= 1);
	poll(NULL, 0, 500);
	assert_int_equal(r->agent->n_renewals, before);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
}

static void unmount__ends_what_was_prepared_and_does_not_wait_for_it(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, NULL);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 77, &r->err));
	ros2_unmount(r->mount);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 0, &r->err), 1);
	assert_int_equal(c.tag, 77);
	assert_int_equal(c.status, ROS2_CLOSED);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 0, &r->err), 0);
}

static void deregister__ends_only_the_requests_of_that_region(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c[2];
	void *other;

	rig_open(r, NULL);
	rig_ok(r, ros2_buf_alloc(r->session, 4096, &other, &r->err));
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_prep_read(r->file, other, 4096, 0, 2, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	/* Held by the agent: after 5 s the connection is cut. */
	ros2_buf_free(r->session, r->buf);
	WITH_AGENT(r->agent, r->agent->hold = false);
	assert_int_equal(ros2_wait(r->session, c, 2, 2, 10000, &r->err), 2);
	assert_int_equal(c[0].tag, 1);
	assert_int_equal(c[0].status, ROS2_CANCELLED);
	assert_int_equal(c[1].tag, 2);
	assert_int_equal(c[1].result, 4096);
}

static unsigned renewals(struct rig *r)
{
	unsigned n;

	WITH_AGENT(r->agent, n = r->agent->n_renewals);
	return n;
}

static void client__may_be_disconnected_before_its_sessions_are_closed(void **state)
{
	struct rig *r = *state;
	unsigned before;

	r->agent->ttl_ms = 100;
	rig_open(r, NULL);
	ros2_disconnect(r->client);
	r->client = NULL;
	before = renewals(r);
	assert_true(AWAIT(renewals(r) >= before + 2));
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
}

static void background_thread__takes_no_signal_of_the_program(void **state)
{
	struct rig *r = *state;
	sigset_t usr1;

	/* main() blocked it for the agent's threads: only ours could take it, and would die. */
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	rig_open(r, NULL);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	kill(getpid(), SIGUSR1);
	poll(NULL, 0, 50);
	assert_int_equal(sigtimedwait(&usr1, NULL, &(struct timespec){0}), SIGUSR1);
}

static void unmapped_memory__ends_the_session_by_name_and_not_the_process(void **state)
{
	struct rig *r = *state;
	struct ros2_region *region;
	uint8_t *mem = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ros2_completion c;

	rig_open(r, NULL);
	rig_ok(r, ros2_region_register(r->session, mem, 65536, 3, &region, &r->err));
	rig_ok(r, ros2_prep_write(r->file, mem, 65536, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 5000, &r->err), 1);
	assert_int_equal(c.result, -EFAULT);
	assert_int_equal(r->session->reconnects, 0);
	munmap(mem, 65536);
}

static void own_renames__are_followed_when_files_are_opened_again(void **state)
{
	struct rig *r = *state;
	struct ros2_file *g;

	fake_agent_file(r->agent, "g", 5000);
	rig_open(r, NULL);
	rig_ok(r, ros2_open(r->mount, "g", ROS2_O_RDWR, 0, &g, &r->err));
	rig_ok(r, ros2_rename(r->mount, "f", "f.1", &r->err));
	rig_ok(r, ros2_rename(r->mount, "g", "f", &r->err));
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	assert_string_equal(r->file->path, "f.1");
	assert_string_equal(g->path, "f");
	/* Replaced or unlinked: never another file of that name. */
	rig_ok(r, ros2_rename(r->mount, "f", "f.1", &r->err));
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_pread(r->file, r->buf, 10, 0, &r->err), -ENOENT);
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), 10);
	rig_ok(r, ros2_unlink(r->mount, "f.1", &r->err));
	fake_agent_file(r->agent, "f.1", 10);
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), -ENOENT);
}

/* Where it is unknown what a name leads to, it leads to nothing: never to another file. */
static void own_renames__of_unknown_outcome_leave_no_name_to_open_files_by(void **state)
{
	struct rig *r = *state;
	struct ros2_file *g, *h;

	fake_agent_file(r->agent, "g", 5000);
	fake_agent_file(r->agent, "h", 5000);
	rig_open(r, NULL);
	rig_ok(r, ros2_open(r->mount, "g", ROS2_O_RDWR, 0, &g, &r->err));
	rig_ok(r, ros2_open(r->mount, "h", ROS2_O_RDWR, 0, &h, &r->err));
	WITH_AGENT(r->agent, r->agent->lose_answer = true);
	assert_int_equal(ros2_rename(r->mount, "f", "g", NULL), -EREMOTEIO);
	WITH_AGENT(r->agent, r->agent->lose_answer = true);
	assert_int_equal(ros2_unlink(r->mount, "h", &r->err), -EREMOTEIO);
	/* While the agent holds them they are what they were. */
	assert_int_equal(ros2_pread(h, r->buf, 10, 0, &r->err), 10);
	WITH_AGENT(r->agent, fake_agent_file(r->agent, "f", 10));
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_pread(r->file, r->buf, 10, 0, &r->err), -ENOENT);
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), -ENOENT);
	assert_int_equal(ros2_pread(h, r->buf, 10, 0, &r->err), -ENOENT);
	assert_int_equal(r->err.status, ROS2_NOT_FOUND);
}

static void smaller_requests__after_a_reconnect_are_refused_here_and_no_violation(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 100000, 0, 1, &r->err));
	WITH_AGENT(r->agent, r->agent->max_io = 65536);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf + 200000, 100000, 0).status, ROS2_TOO_LARGE);
	assert_int_equal(r->agent->n_reads, 0);
}

static void nothing__can_be_read_and_written_anywhere(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	assert_int_equal(ros2_pread(r->file, NULL, 0, 0, &r->err), 0);
	assert_int_equal(ros2_pwrite(r->file, r->buf, 0, INT64_MAX, &r->err), 0);
	assert_int_equal(ros2_pread(r->file, NULL, 1, 0, &r->err), -EINVAL);
	assert_int_equal(ros2_pread(r->file, r->buf, 1, INT64_MAX, &r->err), -EINVAL);
	assert_int_equal(ros2_pwrite(r->file, r->buf, SIZE_MAX, 0, &r->err), -EINVAL);
	assert_int_equal(ros2_pwrite(r->file, r->buf, 1, 1ull << 63, &r->err), -EINVAL);
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(limits__that_would_make_a_buffer_smaller_than_asked_are_refused),
		T(buffers__may_be_as_large_as_the_policy_allows_also_if_that_is_no_whole_page),
		T(slow_program__finds_its_answers_after_a_minute_and_no_lost_agent),
		T(silent_agent__is_lost_after_its_time_also_for_one_who_looks_seldom),
		T(session__that_ends_with_its_connection_leaves_writes_in_doubt),
		T(agent_that_drops_every_connection__is_given_up_and_not_stormed),
		T(idle_connection__lost_before_a_write_leaves_it_not_in_doubt),
		T(lease__that_ended_at_an_agent_that_restarted_is_had_from_the_new_one),
		T(lease__that_cannot_be_had_now_is_waited_for),
		T(leases__of_a_millisecond_are_not_renewed_in_a_loop),
		T(leases__that_ended_at_a_lost_agent_are_not_asked_for_ever),
		T(unmount__ends_what_was_prepared_and_does_not_wait_for_it),
		T(deregister__ends_only_the_requests_of_that_region),
		T(client__may_be_disconnected_before_its_sessions_are_closed),
		T(background_thread__takes_no_signal_of_the_program),
		T(unmapped_memory__ends_the_session_by_name_and_not_the_process),
		T(own_renames__are_followed_when_files_are_opened_again),
		T(own_renames__of_unknown_outcome_leave_no_name_to_open_files_by),
		T(smaller_requests__after_a_reconnect_are_refused_here_and_no_violation),
		T(nothing__can_be_read_and_written_anywhere),
	};
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* libros2 when connections and agents are lost, and when rights are withdrawn. */
#include "common/clock.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include <errno.h>
#include <linux/sockios.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void lost_connection__reads_are_made_again_on_a_new_session(void **state)
{
	struct rig *r = *state;
	struct ros2_session_info info;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20);

	rig_pattern(file, 1u << 20, 4);
	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->drop_after = 1);
	assert_int_equal(rig_read(r, r->buf, 100000, 5).result, 100000);
	assert_memory_equal(r->buf, file + 5, 100000);
	ros2_session_info(r->session, &info);
	assert_int_equal(info.reconnects, 1);
	/* Never a second time with flags that create or cut. */
	assert_int_equal(r->agent->last_open_flags, ROS2_O_RDWR);
}

static void lost_connection__in_the_middle_of_data_is_no_half_read(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20);

	rig_pattern(file, 1u << 20, 4);
	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->drop_in_data = 1);
	assert_int_equal(rig_read(r, r->buf, 200000, 0).result, 200000);
	assert_memory_equal(r->buf, file, 200000);
}

static void lost_connection__writes_on_the_way_are_in_doubt_and_not_replayed(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->drop_after = 1);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(r->agent->n_writes, 1);
	/* The session goes on. */
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(r->agent->n_writes, 2);
}

/* The first piece ends short, and the agent is lost before it answers the second. */
static void lost_connection__a_piece_in_doubt_is_not_hidden_by_a_short_one(void **state)
{
	struct rig *r = *state;

	r->agent->max_io = 4096;
	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_COMPLETE_SHORT; r->agent->drop_after = 2);
	assert_true(ros2_pwrite(r->file, r->buf, 8192, 0, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_OUTCOME_UNKNOWN);
}

static void lost_connection__a_flush_after_unflushed_writes_says_so_once(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(ros2_flush(r->file, &r->err), -EREMOTEIO);
	assert_int_equal(r->err.status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
	/* What was flushed before is not in doubt. */
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
}

/* Who waits for one of them has only its word. */
static void lost_connection__each_flush_that_was_under_way_says_so(void **state)
{
	struct ros2_completion c[3];
	struct rig *r = *state;

	rig_open(r, NULL);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	WITH_AGENT(r->agent, r->agent->hold = true);
	for (uint64_t i = 0; i < ARRAY_SIZE(c); i++)
		rig_ok(r, ros2_prep_flush(r->file, i, &r->err));
	assert_int_equal(ros2_submit(r->session, &r->err), ARRAY_SIZE(c));
	fake_agent_reset_all(r->agent);
	WITH_AGENT(r->agent, r->agent->hold = false);
	assert_int_equal(ros2_wait(r->session, c, ARRAY_SIZE(c), ARRAY_SIZE(c), -1, &r->err),
	                 ARRAY_SIZE(c));
	for (uint32_t i = 0; i < ARRAY_SIZE(c); i++)
		assert_int_equal(c[i].status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
}

static void flush_says_once_that_something_is_lost(struct rig *r, struct ros2_file *f)
{
	assert_int_equal(ros2_flush(f, &r->err), -EREMOTEIO);
	assert_int_equal(r->err.status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(ros2_flush(f, &r->err), 0);
}

/* A machine that lost its power has the old length again, and what lay behind the new one. */
static void lost_connection__a_flush_after_an_unflushed_truncate_says_so_once(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	rig_ok(r, ros2_truncate(r->file, 100, &r->err));
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 100);
	flush_says_once_that_something_is_lost(r, r->file);
	rig_ok(r, ros2_truncate(r->file, 50, &r->err));
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
}

static void lost_connection__a_flush_after_an_open_that_cut_says_so_once(void **state)
{
	struct rig *r = *state;
	struct ros2_file *g;

	fake_agent_file(r->agent, "g", 5000);
	rig_open(r, NULL);
	rig_ok(r, ros2_open(r->mount, "g", ROS2_O_RDWR | ROS2_O_TRUNC, 0, &g, &r->err));
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	flush_says_once_that_something_is_lost(r, g);
}

/* As over verbs, where the end of a SEND may come later than the answer: here it never comes. */
static void answer_before_the_end_of_the_send(struct rig *r, enum request_kind kind, uint32_t n)
{
	struct request *req = list_first(&r->session->sent, struct request, link);
	struct wire_header h = {.opcode = WIRE_COMPLETE, .request_id = req->id, .length = n};

	assert_int_equal(req->kind, kind);
	assert_int_equal(req->out_refs, 0);
	req->out_refs = 1;
	r->session->over = ROS2_TRANSPORT_VERBS;
	rig_ok(r, requests_rx_ops.on_message(r->session, &h, &r->err));
	r->session->over = ROS2_TRANSPORT_TCP;
	assert_true(req->answered);
	WITH_AGENT(r->agent, r->agent->hold = false);
	fake_agent_reset_all(r->agent);
}

static void lost_connection__a_write_whose_send_had_not_ended_is_unflushed_too(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_write(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	answer_before_the_end_of_the_send(r, REQ_WRITE, 4096);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, -1, &r->err), 1);
	assert_int_equal(c.result, 4096);
	flush_says_once_that_something_is_lost(r, r->file);
}

static void lost_connection__a_flush_whose_send_had_not_ended_tells_an_earlier_loss(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, NULL);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_flush(r->file, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	answer_before_the_end_of_the_send(r, REQ_FLUSH, 0);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, -1, &r->err), 1);
	assert_int_equal(c.status, ROS2_OUTCOME_UNKNOWN);
	assert_int_equal(ros2_flush(r->file, &r->err), 0);
}

/* More files than calls may come at once: all of them are there again. */
static void lost_connection__files_beyond_the_rate_of_calls_are_all_had_again(void **state)
{
	struct ros2_file *files[80];
	struct rig *r = *state;

	rig_open(r, NULL);
	for (int i = 0; i < 80; i++)
		rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDONLY, 0, &files[i], &r->err));
	WITH_AGENT(r->agent, r->agent->verbs_per_s = 200);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_true(r->agent->n_over_rate > 0);
	for (int i = 0; i < 80; i++)
		if (ros2_pread(files[i], r->buf, 4096, 0, &r->err) != 4096)
			fail_msg("file %d: %s", i, r->err.msg);
}

/* A tenant that has too many calls under way at the moment has lost nothing by that, also when it
 * lasts for longer than a call may take. */
static void lost_connection__files_of_a_busy_agent_are_all_had_again(void **state)
{
	static const uint32_t timeouts_ms[] = {2000, 8};
	struct rig *r = *state;

	rig_open(r, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(timeouts_ms); i++) {
		r->client->control->timeout_ms = timeouts_ms[i];
		WITH_AGENT(r->agent, r->agent->busy_next = 6);
		fake_agent_reset_all(r->agent);
		assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
		assert_int_equal(r->agent->busy_next, 0);
	}
	assert_true(r->session->reconnects >= 2);
}

static void calls__that_find_the_agent_busy_wait_for_it(void **state)
{
	struct rig *r = *state;
	struct ros2_file *g;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->busy_next = 5);
	rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDONLY, 0, &g, &r->err));
	r->client->control->timeout_ms = 8;
	WITH_AGENT(r->agent, r->agent->busy_next = 1000);
	assert_int_equal(ros2_open(r->mount, "f", ROS2_O_RDONLY, 0, &g, &r->err), -EBUSY);
	assert_int_equal(r->err.status, ROS2_BUSY);
}

/* No call of the program fails for the rate while its time lasts, and then with that name. */
static void calls__beyond_the_rate_wait_for_it(void **state)
{
	struct rig *r = *state;
	struct ros2_stat st;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->verbs_per_s = 100);
	for (int i = 0; i < 40; i++)
		rig_ok(r, ros2_stat(r->mount, "f", &st, &r->err));
	assert_true(r->agent->n_over_rate > 0);
	r->client->control->timeout_ms = 50;
	WITH_AGENT(r->agent, r->agent->verbs_per_s = 1; r->agent->verbs_ns = UINT64_MAX / 2);
	assert_int_equal(ros2_stat(r->mount, "f", &st, &r->err), -EAGAIN);
	assert_int_equal(r->err.status, ROS2_RATE);
}

/* A write of the lost connection that is carried out after newer data was flushed would undo it. */
static void lost_connection__what_it_brings_late_is_not_carried_out(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20);

	rig_open(r, NULL);
	rig_write_before_and_after_a_loss(r);
	assert_int_equal(file[0], 2);
	assert_int_equal(r->agent->n_dropped, 1);
	assert_int_equal(r->agent->n_live_at_open, 0);
}

/* Nor does this machine go on sending it. */
static void lost_connection__what_was_not_sent_yet_is_not_sent(void **state)
{
	struct rig *r = *state;
	uint64_t one = 1;
	int unsent = 0;

	if (getenv("ROS2_EMULATED")) {
		print_message("# SKIP: qemu-user does not know SIOCOUTQNSD\n");
		skip();
	}
	r->agent->max_inline = 16384;
	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->stall = eventfd(0, EFD_CLOEXEC);
	           r->agent->stalled_fd = r->agent->sessions[0].fd; r->agent->hold = true);
	for (uint32_t i = 0; i < 32; i++)
		rig_ok(r, ros2_prep_write(r->file, r->buf, 16384, i * 16384, i, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	rig_ok(r, ioctl(r->session->fd, SIOCOUTQNSD, &unsent));
	assert_true(unsent > 16384 + (int)WIRE_HEADER_LEN);
	rig_give_up_the_connection(r);
	assert_int_equal(write(r->agent->stall, &one, sizeof(one)), sizeof(one));
	assert_true(AWAIT(rig_is_over(r)));
	assert_true(r->agent->n_writes + r->agent->n_dropped < 32);
	close(r->agent->stall);
}

/* An agent that is there and does not end sessions is asked a few times, not for ever. */
static void lost_session__that_cannot_be_ended_does_not_keep_the_program_for_ever(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->close_status = ROS2_TIMEOUT);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_in_range(r->agent->n_sessions_opened, 3, 5);
}

static void lost_connection__many_reads_in_flight_all_come_back(void **state)
{
	struct ros2_completion c[32];
	struct rig *r = *state;

	rig_open(r, NULL);
	for (int round = 0; round < 5; round++) {
		WITH_AGENT(r->agent, r->agent->drop_after = 10);
		for (uint32_t i = 0; i < 32; i++)
			rig_ok(r, ros2_prep_read(r->file, r->buf + i * 4096, 4096, i * 4096, i,
			                         &r->err));
		rig_ok(r, ros2_submit(r->session, &r->err));
		for (int n = 0; n < 32;) {
			int got = ros2_wait(r->session, c, 1, 32, 10000, &r->err);

			assert_true(got > 0);
			for (int i = 0; i < got; i++)
				assert_int_equal(c[i].result, 4096);
			n += got;
		}
	}
	assert_true(r->session->reconnects >= 5);
}

static void revocation__ends_everything_in_flight_and_later_by_name(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c[4];
	struct ros2_stat st;
	uint64_t began;
	int n = 0;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_prep_write(r->file, r->buf, 4096, 0, 2, &r->err));
	rig_ok(r, ros2_prep_flush(r->file, 3, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	WITH_AGENT(r->agent, r->agent->session_status = r->agent->open_status = ROS2_REVOKED);
	began = clock_monotonic_ns();
	fake_agent_reset_all(r->agent);
	while (n < 3)
		n += ros2_wait(r->session, c + n, 1, 4 - (uint32_t)n, 5000, &r->err);
	assert_true(clock_monotonic_ns() - began < AWAIT_NS / 6);
	for (int i = 0; i < 3; i++)
		assert_int_equal(c[i].status, ROS2_REVOKED);
	assert_int_equal(ros2_fstat(r->file, &st, &r->err), -EKEYREVOKED);
	assert_int_equal(r->err.status, ROS2_REVOKED);
	assert_int_equal(ros2_wait(r->session, c, 1, 4, 0, &r->err), -EKEYREVOKED);
}

/* The wire knows of a session that waits no more only that its proof is nobody's. */
static void revocation__before_the_hello_of_the_next_session_is_told_by_name(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->ends_before_hello = ROS2_REVOKED);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_REVOKED);
	assert_int_equal(ros2_flush(r->file, &r->err), -EKEYREVOKED);
}

static void restarted_agent__before_the_hello_of_the_next_session_is_tried_again(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->ends_before_hello = ROS2_BAD_SESSION);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(r->agent->n_sessions_opened, 3);
}

static void refused_hello__of_a_session_that_stands_is_final(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->hello_nak = ROS2_UNAUTHENTICATED);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_UNAUTHENTICATED);
	assert_int_equal(r->agent->n_sessions_opened, 2);
}

static void violations__said_before_the_reset_are_the_reason(void **state)
{
	struct ros2_session_opts o = {.reconnect_ms = UINT32_MAX};
	struct rig *r = *state;

	rig_open(r, &o);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_CLOSED);
}

static void lost_agent__requests_fail_after_their_time_and_the_session_recovers(void **state)
{
	struct ros2_session_opts o = {.reconnect_ms = 300};
	struct rig *r = *state;
	struct ros2_completion c;

	rig_open(r, &o);
	WITH_AGENT(r->agent, r->agent->session_status = r->agent->open_status = ROS2_UNAVAILABLE);
	fake_agent_reset_all(r->agent);
	c = rig_read(r, r->buf, 4096, 0);
	assert_int_equal(c.status, ROS2_UNAVAILABLE);
	assert_int_equal(c.result, -ENOTCONN);
	WITH_AGENT(r->agent, r->agent->session_status = r->agent->open_status = ROS2_OK);
	r->session->reconnect_ms = AWAIT_MS;
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
}

static void lost_contact__is_told_at_once_and_the_session_recovers(void **state)
{
	struct rig *r = *state;
	uint64_t began = clock_monotonic_ns();

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->session_status = r->agent->open_status = ROS2_CONTACT_LOST);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).status, ROS2_CONTACT_LOST);
	assert_int_equal(ros2_pread(r->file, r->buf, 10, 0, &r->err), -EHOSTDOWN);
	assert_true(clock_monotonic_ns() - began < AWAIT_NS / 6);
	WITH_AGENT(r->agent, r->agent->session_status = r->agent->open_status = ROS2_OK);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
}

static void restarted_agent__control_calls_find_the_new_session(void **state)
{
	struct rig *r = *state;
	struct ros2_stat st;

	rig_open(r, NULL);
	WITH_AGENT(r->agent,
	           for (int i = 0; i < FAKE_SESSIONS; i++) r->agent->sessions[i].live = false);
	rig_ok(r, ros2_fstat(r->file, &st, &r->err));
	assert_int_equal(r->session->reconnects, 1);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
}

static void calls_that_change_things__are_not_repeated_when_the_agent_is_lost(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->session_status = ROS2_UNAVAILABLE);
	assert_int_equal(ros2_mkdir(r->mount, "d", 0755, &r->err), -EREMOTEIO);
	assert_int_equal(r->err.status, ROS2_OUTCOME_UNKNOWN);
}

static void lost_file__fails_by_itself_and_leaves_the_others(void **state)
{
	struct rig *r = *state;
	struct ros2_file *g;

	fake_agent_file(r->agent, "g", 5000);
	rig_open(r, NULL);
	rig_ok(r, ros2_open(r->mount, "g", ROS2_O_RDONLY, 0, &g, &r->err));
	WITH_AGENT(r->agent, r->agent->files[1].path[0] = 'x');
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), -ENOENT);
}

/* The agent would record a refusal that nobody earned. */
static void lost_file__is_not_asked_for_by_the_handle_that_it_had(void **state)
{
	struct ros2_err how = ROS2_ERR_INIT;
	struct rig *r = *state;
	struct ros2_file *g;

	fake_agent_file(r->agent, "g", 5000);
	rig_open(r, NULL);
	rig_ok(r, ros2_open(r->mount, "g", ROS2_O_RDWR, 0, &g, &r->err));
	WITH_AGENT(r->agent, r->agent->files[0].path[0] = 'x');
	for (int i = 0; i < 2; i++) {
		fake_agent_reset_all(r->agent);
		assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), 10);
		assert_int_equal(r->file->broken.status, ROS2_NOT_FOUND);
	}
	rig_ok(r, ros2_close(g, &r->err));
	/* Nor is a mount that is none, where no file is left to ask for. */
	ros2_err_named(&how, ROS2_CLOSED, "the test says so");
	session_lost(r->session, &how);
	rig_ok(r, ros2_open(r->mount, "g", ROS2_O_RDWR, 0, &g, &r->err));
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), 10);
	ros2_unmount(r->mount);
	assert_int_equal(r->agent->n_bad_handles, 0);
	assert_int_equal(r->agent->n_bad_mounts, 0);
}

/* The agent numbers the mounts of each session from 1: what has no mount of its own any more must
 * not go by the number that another has now. */
static void lost_mount__fails_by_itself_and_never_acts_in_another_namespace(void **state)
{
	struct rig *r = *state;
	struct ros2_dirent entry;
	struct ros2_mount *other;
	struct ros2_file *g;
	uint64_t cookie = 0;
	struct ros2_stat st;

	rig_open(r, NULL);
	rig_ok(r, ros2_mount(r->session, "other", &other, &r->err));
	rig_ok(r, ros2_open(other, "f", ROS2_O_RDWR, 0, &g, &r->err));
	WITH_AGENT(r->agent, r->agent->refused_mount = "data";
	           r->agent->mount_status = ROS2_DENIED);
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), 10);
	WITH_AGENT(r->agent, r->agent->acted_in[0] = 0);
	assert_int_equal(ros2_unlink(r->mount, "f", &r->err), -EACCES);
	assert_int_equal(r->err.status, ROS2_DENIED);
	assert_int_equal(ros2_open(r->mount, "f", ROS2_O_RDWR | ROS2_O_TRUNC, 0, &g, &r->err),
	                 -EACCES);
	assert_int_equal(ros2_rename(r->mount, "f", "g", &r->err), -EACCES);
	assert_int_equal(ros2_mkdir(r->mount, "d", 0755, &r->err), -EACCES);
	assert_int_equal(ros2_stat(r->mount, "f", &st, &r->err), -EACCES);
	assert_int_equal(ros2_readdir(r->mount, "", &cookie, &entry, 1, &r->err), -EACCES);
	assert_int_equal(ros2_pread(r->file, r->buf, 10, 0, &r->err), -EACCES);
	assert_string_equal(r->agent->acted_in, "");
	rig_ok(r, ros2_stat(other, "f", &st, &r->err));
	assert_string_equal(r->agent->acted_in, "other");
	/* The next reconnect mounts it again. */
	WITH_AGENT(r->agent, r->agent->mount_status = ROS2_OK);
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_pread(g, r->buf, 10, 0, &r->err), 10);
	rig_ok(r, ros2_stat(r->mount, "f", &st, &r->err));
	assert_string_equal(r->agent->acted_in, "data");
	assert_int_equal(ros2_pread(r->file, r->buf, 10, 0, &r->err), 10);
}

static void deregistered_memory__is_never_reached_again(void **state)
{
	struct ros2_completion c;
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	/* Not even sent: the end of its region ends it. */
	ros2_buf_free(r->session, r->buf);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 0, &r->err), 1);
	assert_int_equal(c.status, ROS2_CANCELLED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(lost_connection__reads_are_made_again_on_a_new_session),
		T(lost_connection__in_the_middle_of_data_is_no_half_read),
		T(lost_connection__writes_on_the_way_are_in_doubt_and_not_replayed),
		T(lost_connection__a_piece_in_doubt_is_not_hidden_by_a_short_one),
		T(lost_connection__a_flush_after_unflushed_writes_says_so_once),
		T(lost_connection__each_flush_that_was_under_way_says_so),
		T(lost_connection__a_flush_after_an_unflushed_truncate_says_so_once),
		T(lost_connection__a_flush_after_an_open_that_cut_says_so_once),
		T(lost_connection__a_write_whose_send_had_not_ended_is_unflushed_too),
		T(lost_connection__a_flush_whose_send_had_not_ended_tells_an_earlier_loss),
		T(lost_connection__files_beyond_the_rate_of_calls_are_all_had_again),
		T(lost_connection__files_of_a_busy_agent_are_all_had_again),
		T(calls__that_find_the_agent_busy_wait_for_it),
		T(calls__beyond_the_rate_wait_for_it),
		T(lost_connection__what_it_brings_late_is_not_carried_out),
		T(lost_connection__what_was_not_sent_yet_is_not_sent),
		T(lost_session__that_cannot_be_ended_does_not_keep_the_program_for_ever),
		T(lost_connection__many_reads_in_flight_all_come_back),
		T(revocation__ends_everything_in_flight_and_later_by_name),
		T(revocation__before_the_hello_of_the_next_session_is_told_by_name),
		T(restarted_agent__before_the_hello_of_the_next_session_is_tried_again),
		T(refused_hello__of_a_session_that_stands_is_final),
		T(violations__said_before_the_reset_are_the_reason),
		T(lost_agent__requests_fail_after_their_time_and_the_session_recovers),
		T(lost_contact__is_told_at_once_and_the_session_recovers),
		T(restarted_agent__control_calls_find_the_new_session),
		T(calls_that_change_things__are_not_repeated_when_the_agent_is_lost),
		T(lost_file__fails_by_itself_and_leaves_the_others),
		T(lost_file__is_not_asked_for_by_the_handle_that_it_had),
		T(lost_mount__fails_by_itself_and_never_acts_in_another_namespace),
		T(deregistered_memory__is_never_reached_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

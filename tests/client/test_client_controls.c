/* SPDX-License-Identifier: Apache-2.0 */
/* Negative controls: with a check switched off, the attack that the other tests refuse works. */
#include "dataplane/client/test_switches.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include <errno.h>

#define GUARD 0x5a
#define LEN   8192u

static bool was_changed(const struct rig *r, const uint8_t *at, size_t len)
{
	for (size_t i = 0; i < r->buf_len; i++)
		if (r->buf[i] != GUARD && (&r->buf[i] < at || &r->buf[i] >= at + len))
			return true;
	return false;
}

static int controls_setup(void **state)
{
	memset(&client_test_switches, 0, sizeof(client_test_switches));
	return rig_setup(state);
}

static void without_the_piece_check__data_lands_outside_the_request(void **state)
{
	struct rig *r = *state;
	uint8_t *at;

	client_test_switches.no_piece_check = true;
	rig_open(r, NULL);
	at = r->buf + 65536;
	memset(r->buf, GUARD, r->buf_len);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_DATA_OUTSIDE_REQUEST);
	rig_ok(r, ros2_prep_read(r->file, at, LEN, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	for (int i = 0; i < 50 && !was_changed(r, at, LEN); i++) {
		struct ros2_completion c;

		ros2_wait(r->session, &c, 1, 1, 100, NULL);
	}
	assert_true(was_changed(r, at, LEN));
}

static void without_the_piece_check__a_wrong_key_writes(void **state)
{
	struct ros2_completion c;
	struct rig *r = *state;

	client_test_switches.no_piece_check = true;
	rig_open(r, NULL);
	memset(r->buf, GUARD, r->buf_len);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_DATA_WRONG_KEY);
	rig_ok(r, ros2_prep_read(r->file, r->buf, LEN, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	for (int i = 0; i < 50 && r->buf[0] == GUARD; i++)
		ros2_wait(r->session, &c, 1, 1, 100, NULL);
	assert_int_not_equal(r->buf[0], GUARD);
}

static void without_the_proof__an_impostor_is_believed(void **state)
{
	struct rig *r = *state;

	client_test_switches.no_agent_proof = true;
	r->agent->wrong_proof = true;
	rig_open(r, NULL);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
}

static void without_the_doubt__a_write_is_replayed(void **state)
{
	struct rig *r = *state;

	client_test_switches.replay_writes = true;
	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->drop_after = 1);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).status, ROS2_OK);
	assert_int_equal(r->agent->n_writes, 2);
	WITH_AGENT(r->agent, r->agent->drop_after = 1);
	rig_ok(r, ros2_zero(r->file, 4096, 0, &r->err));
	assert_int_equal(r->agent->n_clears, 2);
}

/* With the reset alone: what the agent's kernel has taken is carried out when the agent comes to
 * it.
 */
static void without_the_fence__an_old_write_undoes_a_new_one(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", 1u << 20);

	client_test_switches.no_fence = true;
	rig_open(r, NULL);
	rig_write_before_and_after_a_loss(r);
	assert_int_equal(file[0], 1);
}

static void without_pacing__files_beyond_the_rate_are_lost(void **state)
{
	struct ros2_file *files[80];
	struct rig *r = *state;
	int lost = 0;

	client_test_switches.no_pacing = true;
	rig_open(r, NULL);
	for (int i = 0; i < 80; i++)
		rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDONLY, 0, &files[i], &r->err));
	WITH_AGENT(r->agent, r->agent->verbs_per_s = 200);
	fake_agent_reset_all(r->agent);
	(void)rig_read(r, r->buf, 4096, 0);
	for (int i = 0; i < 80; i++)
		lost += files[i]->broken.status == ROS2_RATE;
	assert_true(lost > 0);
}

static const struct ros2_session_opts over_shm = {.transport = ROS2_TRANSPORT_SHM};

static void without_the_seals__memory_that_may_become_shorter_is_mapped(void **state)
{
	struct rig *r = *state;

	client_test_switches.no_seal_check = true;
	fake_agent_offer_shm(r->agent);
	r->agent->shm_offer = SHM_OFFER_UNSEALED;
	rig_open(r, &over_shm);
	assert_non_null(r->session->shm);
}

/* As before Linux 6.16: what came is seen, and ends the session by name. */
static void without_the_kernels_help__open_files_end_the_session(void **state)
{
	struct ros2_completion c;
	struct rig *r = *state;

	client_test_switches.passes_descriptors = true;
	fake_agent_offer_shm(r->agent);
	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_SHM_FILE);
	c = rig_read_until_it_looks(r);
	assert_int_equal(c.status, ROS2_PROTOCOL);
	assert_int_equal(fake_agent_count(r->agent, &r->agent->n_files_sent), 1);
	assert_int_equal(ros2_pread(r->file, r->buf, 1, 0, &r->err), -EPROTO);
	assert_non_null(strstr(r->err.msg, "open files"));
}

static void without_the_look__open_files_are_taken_in_silence(void **state)
{
	struct rig *r = *state;

	client_test_switches.passes_descriptors = true;
	client_test_switches.no_descriptor_look = true;
	fake_agent_offer_shm(r->agent);
	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_SHM_FILE);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_read(r, r->buf, 100, 0).result, 100);
	assert_int_equal(fake_agent_count(r->agent, &r->agent->n_files_sent), 1);
}

static void with_the_shared_pages__a_lost_agent_reaches_the_programs_memory(void **state)
{
	struct ros2_completion c;
	struct rig *r = *state;

	client_test_switches.keeps_shared_pages = true;
	fake_agent_offer_shm(r->agent);
	rig_open(r, &over_shm);
	WITH_AGENT(r->agent, r->agent->hold = r->agent->late = true);
	rig_ok(r, ros2_prep_read(r->file, r->buf, LEN, 0, 1, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_true(AWAIT(fake_agent_count(r->agent, &r->agent->n_reads) == 1));
	WITH_AGENT(r->agent, r->agent->hold = false);
	fake_agent_reset_all(r->agent);
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, AWAIT_MS, &r->err), 1);
	memset(r->buf, GUARD, LEN);
	WITH_AGENT(r->agent, r->agent->late_now = true);
	assert_true(AWAIT(fake_agent_count(r->agent, &r->agent->n_late) == 1));
	assert_int_not_equal(r->buf[0], GUARD);
}

#define T(f) cmocka_unit_test_setup_teardown(f, controls_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(without_the_piece_check__data_lands_outside_the_request),
		T(without_the_piece_check__a_wrong_key_writes),
		T(without_the_proof__an_impostor_is_believed),
		T(without_the_doubt__a_write_is_replayed),
		T(without_the_fence__an_old_write_undoes_a_new_one),
		T(without_pacing__files_beyond_the_rate_are_lost),
		T(without_the_seals__memory_that_may_become_shorter_is_mapped),
		T(without_the_kernels_help__open_files_end_the_session),
		T(without_the_look__open_files_are_taken_in_silence),
		T(with_the_shared_pages__a_lost_agent_reaches_the_programs_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

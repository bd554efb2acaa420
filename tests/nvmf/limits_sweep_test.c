/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a controller is asked when it is set up, above all what of write zeroes and deallocate one
 * command may do: each call of the admin thread fails, and each Identify is answered wrongly, late
 * or not at all, once. Whatever came of it, the same engine comes to a live controller in the end,
 * and no command is larger than what was told.
 */
#include "tests/nvmf/vol.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"

#include "common/util.h"
#include <errno.h>

#define ZEROES_BLOCKS  16u   /* WZSL 1: 8 KiB */
#define DISCARD_BLOCKS 1000u /* DMRSL */
#define OP_ZEROES      0x08
#define OP_IDENTIFY    0x06
#define IDENTIFIES     4u /* controller, namespace, its names, limits */
#define LIMITS         3u /* the last of these */

static struct target *target_begin(void)
{
	struct target_subsys_opts s = {
		.nqn = VOL_NQN, .mdts = 4, .in_capsule = 8192, .wzsl = 1, .dmrsl = DISCARD_BLOCKS};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = VOL_BYTES / 512};
	struct target *t = NULL;

	assert_int_equal(target_new(&(struct target_opts){0}, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, VOL_NQN, &n), 0);
	return t;
}

/* The same engine, as often as it takes. */
static void bring_up(struct vol *v)
{
	struct engine_reactor_opts o = {.depth = VOL_IOS};
	const struct engine_ops *ops = &engine_nvmf_ops;
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = vol_open(v);

	if (rc == 0)
		return;
	assert_true(v->words[0]);
	assert_non_null(v->e);
	assert_null(v->ns);
	for (int i = 0; i < 1000; i++) {
		rc = ops->ns_open(v->e, &v->who, "v", &v->ns, &err);
		if (rc == 0)
			break;
		assert_true(err.msg[0]);
		/* poll: the engine's own attempts, with its own pauses */
		usleep(10000);
	}
	if (rc == 0)
		rc = ops->reactor_new(v->e, &o, &v->r, &err);
	if (rc == 0)
		rc = ops->open(v->ns, "all", ENGINE_READ | ENGINE_WRITE, 0, &v->f, NULL, &err);
	if (rc < 0)
		fail_msg("%s", err.msg);
}

/* Commands of write zeroes since the last call, and the largest. */
static uint32_t zeroes(struct target *t, uint64_t *from, uint32_t *ret_largest)
{
	static struct target_log_entry e[1024];
	size_t n = target_log(t, *from, e, ARRAY_SIZE(e));
	uint32_t found = 0;

	*ret_largest = 0;
	for (size_t i = 0; i < n; i++) {
		*from = e[i].order + 1;
		if (e[i].qid == 0 || e[i].opcode != OP_ZEROES)
			continue;
		found++;
		*ret_largest = MAX(*ret_largest, e[i].nlb);
	}
	return found;
}

static void clears_within_limits(struct vol *v, struct target *t, uint64_t *log)
{
	uint32_t largest;

	assert_int_equal(vol_io(v, ENGINE_OP_ZERO, 0, NULL, 65536), 65536);
	assert_int_equal(vol_io(v, ENGINE_OP_DISCARD, 0, NULL, 2 * DISCARD_BLOCKS * 512),
	                 2 * DISCARD_BLOCKS * 512);
	assert_int_equal(zeroes(t, log, &largest), 65536 / 512 / ZEROES_BLOCKS);
	assert_int_equal(largest, ZEROES_BLOCKS);
}

static void setup__each_call_of_the_admin_thread_fails(void **state)
{
	static const struct sweep kinds[] = {
		{.kind = SWEEP_ALLOC, .error = ENOMEM, .most = 2},
		{.kind = SWEEP_SEND, .error = EPIPE, .most = 2},

		{.kind = SWEEP_RECV, .error = ECONNRESET, .most = 2},
		{.kind = SWEEP_FD, .error = EMFILE, .most = 2},
		{.kind = SWEEP_CONNECT, .error = ECONNREFUSED, .most = 2},
		{.kind = SWEEP_EPOLL_CTL, .error = ENOMEM, .most = 2},
	};
	struct target *t = target_begin();
	uint64_t log = 0;
	char words[200];
	struct vol v;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct sweep s = kinds[i];

		s.thread = "nvmf-admin";
		while (sweep_next(&s)) {
			vol_init(&v, t, "tenant-a");
			bring_up(&v);
			sweep_off();
			clears_within_limits(&v, t, &log);
			vol_close(&v);
		}
		/* Connect, properties, three Identifies and so on, each once and for good. */
		if (s.points < 2 || (kinds[i].kind == SWEEP_SEND && s.points < 2 * 8))
			fail_msg("kind %d: %u points", (int)kinds[i].kind, s.points);
	}
	target_violations(t, words, sizeof(words));
	assert_string_equal(words, "");
	target_free(t);
}

struct lie {
	enum target_fault fault;
	uint64_t arg;
	bool no_limits; /* of the last Identify: it counts as one that the target does not know */
};

static const struct lie lies[] = {
	{FAULT_CQE_WRONG_STATUS, 0x0006, false}, /* internal error */
	{FAULT_CQE_WRONG_STATUS, 0x4006, true},  /* the same, and it will not go better */
	{FAULT_CQE_WRONG_STATUS, 0x0002, true},  /* invalid field: no such CNS */
	{FAULT_CQE_WRONG_STATUS, 0x4002, true},
	{FAULT_CQE_NEVER, 0, false},
	{FAULT_DATA_SHORT, 0, false},
	{FAULT_DATA_NONE, 0, false},
	{FAULT_DATA_LONG, 0, false},
};

/* Without limits the same is one command, which the target refuses, and nothing is changed. */
static void clears_refused(struct vol *v, struct target *t, uint64_t *log)
{
	uint32_t largest;
	uint8_t byte = 0;

	memset(v->buf, 7, 512);
	assert_int_equal(vol_io(v, ENGINE_OP_WRITE, 0, v->buf, 512), 512);
	assert_int_equal(vol_io(v, ENGINE_OP_ZERO, 0, NULL, 65536), -EIO);
	assert_int_equal(zeroes(t, log, &largest), 1);
	assert_int_equal(largest, 128);
	assert_int_equal(target_media_read(t, VOL_NQN, 1, 0, &byte, 1), 0);
	assert_int_equal(byte, 7);
}

static void setup__each_identify_is_answered_wrongly_once(void **state)
{
	struct target *t = target_begin();
	uint64_t log = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		for (uint32_t at = 0; at < IDENTIFIES; at++) {
			struct target_rule r = {.fault = lies[i].fault,
			                        .qid = 1,
			                        .opcode = OP_IDENTIFY + 1,
			                        .skip = at,
			                        .times = 1,
			                        .arg = lies[i].arg};
			uint64_t hits = target_fault_hits(t, r.fault);
			struct vol v;

			assert_int_equal(target_fault_on(t, &r), 0);
			vol_init(&v, t, "tenant-a");
			v.config.command_timeout_ms = 300;
			bring_up(&v);
			assert_int_equal(target_fault_hits(t, r.fault), hits + 1);
			target_faults_off(t);
			if (at == LIMITS && lies[i].no_limits)
				clears_refused(&v, t, &log);
			else
				clears_within_limits(&v, t, &log);
			vol_close(&v);
		}
	}
	target_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(setup__each_call_of_the_admin_thread_fails),
		cmocka_unit_test(setup__each_identify_is_answered_wrongly_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write zeroes and deallocate at a target of our own: commands within what Identify tells, targets
 * that cannot, that say they can and do not, that do not answer. What they do to bytes is in the
 * common suite; what an unknown outcome holds back in engine_target_test.c.
 */
#include "tests/nvmf/vol.h"
#include "tests/testing.h"

#include "common/util.h"

#define OP_ZEROES 0x08
#define OP_DSM    0x09
#define MIB       (1u << 20)

struct bed {
	struct target *t;
	struct vol v;
	uint64_t log;
};

static void bed_open(struct bed *b, const struct target_subsys_opts *o, uint32_t block_size)
{
	struct target_ns_opts n = {
		.nsid = 1, .block_size = block_size, .blocks = VOL_BYTES / block_size};
	struct target_subsys_opts s = *o;

	*b = (struct bed){0};
	s.nqn = VOL_NQN;
	assert_int_equal(target_new(&(struct target_opts){0}, &b->t), 0);
	assert_int_equal(target_add_subsystem(b->t, &s), 0);
	assert_int_equal(target_add_ns(b->t, VOL_NQN, &n), 0);
	vol_init(&b->v, b->t, "tenant-a");
	if (vol_open(&b->v))
		fail_msg("%s", b->v.words);
}

static void bed_close(struct bed *b)
{
	char words[200];

	vol_close(&b->v);
	target_violations(b->t, words, sizeof(words));
	assert_string_equal(words, "");
	target_free(b->t);
}

/* How many commands of this opcode came since the last call, each of at most @max_blocks. */
static unsigned commands(struct bed *b, uint8_t opcode, uint32_t max_blocks)
{
	static struct target_log_entry e[1024];
	size_t n = target_log(b->t, b->log, e, ARRAY_SIZE(e));
	unsigned found = 0;

	for (size_t i = 0; i < n; i++) {
		b->log = e[i].order + 1;
		if (e[i].qid == 0 || e[i].opcode != opcode)
			continue;
		found++;
		if (opcode == OP_ZEROES)
			assert_in_range(e[i].nlb, 1, max_blocks);
	}
	return found;
}

static void nvmf_clear__commands_are_within_what_the_target_tells(void **state)
{
	static const struct {
		struct target_subsys_opts o;
		uint32_t block_size, zeroes, max_blocks, discards; /* commands for 4 MiB */
	} rows[] = {
		{{.mdts = 4}, 512, 64, 128, 1},            /* no limit told: MDTS, 64 KiB */
		{{.mdts = 0}, 4096, 4, 256, 1},            /* ours: 1 MiB of a transfer */
		{{.mdts = 4, .wzsl = 9}, 512, 2, 4096, 1}, /* 512 pages of 4 KiB */
		{{.wzsl = 1}, 4096, 512, 2, 1},            /* two blocks */
		{{.wzsl = 20}, 512, 1, 8192, 1},           /* more than a request has */
		{{.dmrsl = 1000}, 512, 4, 2048, 9},        /* 8192 blocks in ranges of 1000 */
		{{.dmrsl = UINT32_MAX}, 512, 4, 2048, 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct bed b;

		bed_open(&b, &rows[i].o, rows[i].block_size);
		(void)commands(&b, 0, 0);
		assert_int_equal(vol_io(&b.v, ENGINE_OP_ZERO, 0, NULL, 4 * MIB), 4 * MIB);
		assert_int_equal(commands(&b, OP_ZEROES, rows[i].max_blocks), rows[i].zeroes);
		assert_int_equal(vol_io(&b.v, ENGINE_OP_DISCARD, MIB, NULL, 4 * MIB), 4 * MIB);
		assert_int_equal(commands(&b, OP_DSM, 0), rows[i].discards);
		bed_close(&b);
	}
}

static void nvmf_clear__a_target_that_cannot_is_not_asked(void **state)
{
	uint8_t byte = 0;
	struct bed b;

	bed_open(&b, &(struct target_subsys_opts){.no_clears = true}, 512);
	assert_int_equal(target_media_write(b.t, VOL_NQN, 1, 5, "x", 1), 0);
	assert_int_equal(vol_io(&b.v, ENGINE_OP_ZERO, 0, NULL, 4096), -EOPNOTSUPP);
	assert_int_equal(vol_io(&b.v, ENGINE_OP_DISCARD, 0, NULL, 4096), -EOPNOTSUPP);
	assert_int_equal(commands(&b, OP_ZEROES, 0) + commands(&b, OP_DSM, 0), 0);
	assert_int_equal(target_media_read(b.t, VOL_NQN, 1, 5, &byte, 1), 0);
	assert_int_equal(byte, 'x');
	assert_int_equal(vol_scenario(&b.v), 0);
	bed_close(&b);
}

/* Its word counts for how much is asked for, and for nothing else. */
static void nvmf_clear__limits_that_are_lies_are_borne(void **state)
{
	static const uint8_t fills[] = {0, 1, 0x7f, 0x80, 0xff};

	for (size_t i = 0; i < ARRAY_SIZE(fills); i++) {
		struct target_rule rule = {.fault = FAULT_ID_LIMITS, .arg = fills[i]};
		struct bed b;

		bed_open(&b, &(struct target_subsys_opts){.wzsl = 1, .dmrsl = 64}, 512);
		assert_int_equal(target_fault_on(b.t, &rule), 0);
		assert_int_equal(target_drop(b.t, 0), 1);
		assert_true(vol_until(&b.v, NVMF_CTRL_LIVE, 5000));
		while (vol_health(&b.v).lives < 2)
			vol_turn(&b.v, 5);
		/* Fill 1 is less than it takes, all others are more, which it refuses. */
		assert_int_equal(vol_io(&b.v, ENGINE_OP_ZERO, 0, NULL, MIB),
		                 fills[i] == 1 ? (int64_t)MIB : -EIO);
		assert_int_equal(vol_io(&b.v, ENGINE_OP_ZERO, 0, NULL, 4096), 4096);
		assert_int_equal(vol_io(&b.v, ENGINE_OP_DISCARD, 0, NULL, 4096), 4096);
		assert_int_equal(vol_scenario(&b.v), 0);
		assert_true(target_fault_hits(b.t, FAULT_ID_LIMITS) > 0);
		bed_close(&b);
	}
}

/* As of a write: whether it happened is not known, and the controller ends. */
static void nvmf_clear__without_an_answer_the_outcome_is_unknown(void **state)
{
	static const struct {
		enum engine_op op;
		uint8_t opcode;
	} rows[] = {{ENGINE_OP_ZERO, OP_ZEROES}, {ENGINE_OP_DISCARD, OP_DSM}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct target_rule rule = {
			.fault = FAULT_CQE_NEVER, .opcode = rows[i].opcode + 1, .times = 1};
		struct bed b;

		bed_open(&b, &(struct target_subsys_opts){.mdts = 4}, 512);
		assert_int_equal(vol_io(&b.v, ENGINE_OP_READ, 0, b.v.buf, 4096), 4096);
		(void)commands(&b, 0, 0);
		assert_int_equal(target_fault_on(b.t, &rule), 0);
		assert_int_equal(vol_io(&b.v, rows[i].op, 0, NULL, 4096), -EREMOTEIO);
		assert_int_equal(vol_health(&b.v).unknown_writes, 1);
		assert_int_equal(commands(&b, rows[i].opcode, 8), 1); /* and not again */
		assert_int_equal(vol_scenario(&b.v), 0);
		assert_int_equal(vol_health(&b.v).lives, 2);
		bed_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_clear__commands_are_within_what_the_target_tells),
		cmocka_unit_test(nvmf_clear__a_target_that_cannot_is_not_asked),
		cmocka_unit_test(nvmf_clear__limits_that_are_lies_are_borne),
		cmocka_unit_test(nvmf_clear__without_an_answer_the_outcome_is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

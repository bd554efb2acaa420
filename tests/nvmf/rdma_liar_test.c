/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvmf engine on a real device and a target over RDMA that lies (target_verbs.h): in setting up
 * a controller, and with commands in flight. Each lie is a row: it is refused or ends this tenant's
 * controller, by name; no slot but that of the request is touched; the tenant of another target
 * goes on; then the same tenant works again, and at last nothing is left. Keys: rdma_liar_keys.c.
 */
#include "tests/nvmf/rdma_liar_keys.h"
#include "tests/nvmf/rdma_liar_rig.h"

#include "common/clock.h"

struct lie {
	struct target_rule rule;
	const char *words; /* NULL: it is borne */
	enum engine_op op;
	bool slow;           /* its name is that of a time-out */
	uint32_t kept_bytes; /* borne: at the end of the slot, as they were */
	bool queue_only;     /* only the I/O queue ends: no write was in it, and no lie was told */
};

#define IO       .qid = 1 + 1, .times = 1
#define IDENTIFY .opcode = 6 + 1

/* ---- setting up ---- */

static void one_of_setup(const struct lie *l)
{
	const char *name = target_fault_to_str(l->rule.fault);
	uint64_t hits = target_fault_hits(liar.liar, l->rule.fault);
	struct vol v;

	liar_tenant(&v, "tenant-a", true);
	if (l->slow)
		v.config.command_timeout_ms = 1000;
	assert_int_equal(target_fault_on(liar.liar, &l->rule), 0);
	if (vol_open(&v) == 0)
		fail_msg("%s: is taken for a target", name);
	if (getenv("ROS2_SHOW_FAULTS"))
		print_message("# %s %llx: %s\n", name, (unsigned long long)l->rule.arg, v.words);
	if (target_fault_hits(liar.liar, l->rule.fault) == hits)
		fail_msg("%s: was never let loose", name);
	if (!strstr(v.words, l->words))
		fail_msg("%s: expected \"%s\", found \"%s\"", name, l->words, v.words);
	target_faults_off(liar.liar);
	liar_close(&v, name);
	liar_bystander(name);
}

static void nvmf_rdma_liar__a_controller_that_cannot_be(void **state)
{
	static const struct lie rows[] = {
		{{FAULT_IC_NEVER}, "did not answer", .slow = true},
		{{FAULT_IC_GARBAGE}, "private data"},
		{{FAULT_IC_PFV, .arg = 7}, "private data of format 7"},
		{{FAULT_IC_MAXDATA}, "receive queue of 0"},
		{{FAULT_CM_REJECT, .arg = 6}, "no resources"},
		{{FAULT_CM_REJECT}, "refused the connection"},
		{{FAULT_CM_NO_RECEIVE}, "no receive posted"},
		{{FAULT_CONNECT_STATUS, .arg = 0x4184}, "refuses host"},
		{{FAULT_CONNECT_RESULT, .arg = 0xffff}, "target sent"},
		{{FAULT_CONNECT_CNTLID}, "target sent"},
		{{FAULT_CQE_RESULT, .opcode = 0x7f + 1, .arg = 0xfffffffffffffff0}, "target"},
		{{FAULT_ID_SGLS, .arg = 1}, "keyed SGL"},
		{{FAULT_DATA_NONE, IDENTIFY}, "Identify"},
		{{FAULT_DATA_LONG, IDENTIFY, .arg = 4096}, "key that was not good"},
		{{FAULT_R2T_FOR_READ, IDENTIFY}, "key that was not good"},
		{{FAULT_CQE_SIZE, IDENTIFY, .arg = 8}, "expected 16 bytes, found 8"},
		{{FAULT_CQE_SIZE, IDENTIFY, .arg = 64}, "too long"},
		{{FAULT_CQE_SQHD, IDENTIFY, .arg = 0xffff}, "queue head"},
	};
	struct vol v;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		one_of_setup(&rows[i]);
	/* Control: it was the lies. */
	liar_tenant(&v, "tenant-a", true);
	liar_open(&v);
	liar_media(LIAR_SLOT, 5);
	assert_int_equal(liar_io(&v, ENGINE_OP_READ), LIAR_LEN);
	assert_true(vol_is_pattern(liar_slot(&v, LIAR_SLOT), LIAR_LEN, 5));
	liar_close(&v, "honest");
}

/* ---- commands in flight ---- */

static void judge(struct vol *v, const struct lie *l, int64_t res, const struct liar_past *past)
{
	const char *name = target_fault_to_str(l->rule.fault);
	const uint8_t *slot = liar_slot(v, LIAR_SLOT);
	uint32_t good = LIAR_LEN - l->kept_bytes;

	if (l->words && l->queue_only)
		liar_reopened(v, past, l->words, name);
	else if (l->words)
		liar_lost(v, past, l->words, name);
	else
		assert_int_equal(vol_health(v).lives, past->lives);
	/* A write that was handed on is of unknown outcome; a read is asked again. */
	if (l->words && l->op == ENGINE_OP_WRITE)
		assert_int_equal(res, -EREMOTEIO);
	else if (res != LIAR_LEN)
		fail_msg("%s: %lld", name, (long long)res);
	if (l->op == ENGINE_OP_READ && !vol_is_pattern(slot, good, 77))
		fail_msg("%s: other bytes than the medium's were read", name);
	for (uint32_t i = good; i < LIAR_LEN; i++)
		assert_int_equal(slot[i], 0x33);
	liar_unharmed(v, LIAR_SLOT, name);
}

static void one_in_flight(struct vol *v, const struct lie *l)
{
	const char *name = target_fault_to_str(l->rule.fault);
	uint64_t hits = target_fault_hits(liar.liar, l->rule.fault);
	struct liar_past past = liar_past(v);
	int64_t res;

	liar_media(LIAR_SLOT, 77);
	liar_fill(v);
	memset(liar_slot(v, LIAR_SLOT), 0x33, LIAR_LEN);
	assert_int_equal(target_fault_on(liar.liar, &l->rule), 0);
	res = liar_io(v, l->op);
	liar_until_hit(v, l->rule.fault, hits + 1, name);
	judge(v, l, res, &past);
	target_faults_off(liar.liar);
	liar_bystander(name);
	/* And it works again. */
	liar_media(LIAR_SLOT, 78);
	assert_int_equal(liar_io(v, ENGINE_OP_READ), LIAR_LEN);
	assert_true(vol_is_pattern(liar_slot(v, LIAR_SLOT), LIAR_LEN, 78));
}

#define READS        .op = ENGINE_OP_READ
#define BAD_KEY_READ "key that was not good", READS
#define WRITES       .op = ENGINE_OP_WRITE
enum { OP_WRITE = 1 + 1, OP_READ = 2 + 1 };

static void in_flight(const struct lie *rows, size_t n, uint32_t timeout_ms)
{
	struct vol v;

	liar_tenant(&v, "tenant-a", true);
	if (timeout_ms)
		v.config.command_timeout_ms = timeout_ms;
	liar_open(&v);
	assert_int_equal(liar_io(&v, ENGINE_OP_READ), LIAR_LEN);
	for (size_t i = 0; i < n; i++)
		one_in_flight(&v, &rows[i]);
	liar_close(&v, "lies in flight");
}

static void nvmf_rdma_liar__answers_and_data_that_cannot_be(void **state)
{
	static const struct lie rows[] = {
		{{FAULT_CQE_WRONG_ID, IO}, "expected a command in flight", READS},
		{{FAULT_CQE_WRONG_ID, IO}, "expected a command in flight", WRITES},
		{{FAULT_CQE_FREE_ID, IO}, "expected a command in flight", READS},
		{{FAULT_CQE_SIZE, IO, .arg = 0}, "expected 16 bytes, found 0", READS},
		{{FAULT_CQE_SIZE, IO, .arg = 15}, "expected 16 bytes, found 15", WRITES},
		{{FAULT_CQE_SIZE, IO, .arg = 17}, "too long", READS},
		{{FAULT_CQE_SQHD, IO, .arg = 17}, "queue head", READS},
		{{FAULT_DATA_LONG, IO, .arg = 4096}, BAD_KEY_READ},
		{{FAULT_DATA_BEYOND, IO}, BAD_KEY_READ},
		{{FAULT_DATA_OVERFLOW, IO}, BAD_KEY_READ},
		{{FAULT_DATA_FOR_WRITE, IO}, "key that was not good", WRITES},
		{{FAULT_R2T_FOR_READ, IO}, BAD_KEY_READ},
		{{FAULT_R2T_BEYOND, IO, .arg = 4096}, "key that was not good", WRITES},
		{{FAULT_RX_CLOSE, IO}, "ended", WRITES},
		/* No initiator can see it; what it reads then is its own slot as it was. */
		{{FAULT_DATA_SHORT, IO, .arg = 4096}, NULL, READS, .kept_bytes = 4096},
		{{FAULT_DATA_NONE, IO}, NULL, READS, .kept_bytes = LIAR_LEN},
		{{FAULT_DATA_TWICE, IO}, NULL, READS},
		{{FAULT_R2T_TWICE, IO}, NULL, WRITES},
	};

	in_flight(rows, ARRAY_SIZE(rows), 0);
}

static void nvmf_rdma_liar__answers_that_never_come_or_come_twice(void **state)
{
	static const struct lie rows[] = {
		{{FAULT_CQE_NEVER, IO}, "no answer", READS, .queue_only = true},
		{{FAULT_CQE_NEVER, IO}, "no answer", WRITES},
	};
	uint64_t hits = target_fault_hits(liar.liar, FAULT_CQE_TWICE);
	struct target_rule twice = {FAULT_CQE_TWICE, IO};
	struct liar_past past;
	struct vol v;

	in_flight(rows, ARRAY_SIZE(rows), 2000);
	/* The request is back by the first answer; the second ends the controller. */
	liar_tenant(&v, "tenant-a", true);
	liar_open(&v);
	liar_media(LIAR_SLOT, 77);
	past = liar_past(&v);
	assert_int_equal(target_fault_on(liar.liar, &twice), 0);
	assert_int_equal(liar_io(&v, ENGINE_OP_READ), LIAR_LEN);
	assert_true(vol_is_pattern(liar_slot(&v, LIAR_SLOT), LIAR_LEN, 77));
	liar_until_hit(&v, FAULT_CQE_TWICE, hits + 1, "twice");
	liar_submit(&v, ENGINE_OP_READ);
	liar_lost(&v, &past, "expected a command in flight", "twice");
	assert_int_equal(liar_wait(&v), LIAR_LEN);
	target_faults_off(liar.liar);
	liar_close(&v, "twice");
	liar_bystander("twice");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		LIAR_TEST(a_controller_that_cannot_be),
		LIAR_TEST(answers_and_data_that_cannot_be),
		LIAR_TEST(answers_that_never_come_or_come_twice),
		LIAR_KEY_TESTS,
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, liar_setup, liar_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strikes (target_verbs.h): a target uses a key in a way or at a time that it was not given for.
 * Nothing lands; the controller whose queue pair was struck ends by name, and nobody else's. Each
 * has its control, in which the same strike lands: on the key's own queue pair while the command is
 * in flight; with standing keys; with keys whose end is left out.
 */
#include "tests/nvmf/rdma_liar_keys.h"
#include "tests/nvmf/rdma_liar_rig.h"

#define REFUSED "key that was not good"
enum { OP_WRITE = 1, OP_READ = 2 };

/* One command of @v is at the target, unanswered: its key lives. */
static void hold(struct vol *v, enum engine_op op)
{
	struct target_rule r = {.fault = FAULT_ABORT_LATE,
	                        .qid = 1 + 1,
	                        .times = 1,
	                        .opcode = (op == ENGINE_OP_READ ? OP_READ : OP_WRITE) + 1};
	uint64_t hits = target_fault_hits(liar.liar, r.fault);

	snprintf(r.host_nqn, sizeof(r.host_nqn), "nqn.2026-11.test:host:%s", v->who.name);
	assert_int_equal(target_fault_on(liar.liar, &r), 0);
	liar_submit(v, op);
	liar_until_hit(v, r.fault, hits + 1, "hold");
	target_faults_off(liar.liar);
}

static void refused(const struct target_strike *s, const char *name)
{
	int r = target_verbs_strike(liar.liar, s, NULL);

	/* Of one that the host has left nobody says no. */
	if (r <= 0 && !(s->ended && r == -ETIMEDOUT))
		fail_msg("%s: expected that the device refuses it, found %d", name, r);
}

struct row {
	const char *name;
	enum engine_op op; /* of the command that is in flight */
	struct target_strike s;
};

static void strike_in_flight(struct vol *v, const struct row *row)
{
	struct liar_past past = liar_past(v);

	liar_media(LIAR_SLOT, 77);
	liar_fill(v);
	hold(v, row->op);
	refused(&row->s, row->name);
	liar_unharmed(v, -1, row->name);
	liar_lost(v, &past, REFUSED, row->name);
	if (row->op == ENGINE_OP_WRITE) {
		assert_int_equal(liar_wait(v), -EREMOTEIO);
		liar_unharmed(v, -1, row->name);
	} else { /* asked again of the next controller */
		assert_int_equal(liar_wait(v), LIAR_LEN);
		assert_true(vol_is_pattern(liar_slot(v, LIAR_SLOT), LIAR_LEN, 77));
		liar_unharmed(v, LIAR_SLOT, row->name);
	}
	liar_bystander(row->name);
}

#define MINE(op) .key_host = LIAR_A, .on_host = LIAR_A, .opcode = op

void nvmf_rdma_liar__a_key_of_a_command_in_flight(void **state)
{
	static const struct row rows[] = {
		{"a key that nobody has", ENGINE_OP_READ, {MINE(OP_READ), .key_xor = 0x00ffff00}},
		{"another count of the key", ENGINE_OP_READ, {MINE(OP_READ), .key_xor = 0x01}},
		{"before the slot", ENGINE_OP_READ, {MINE(OP_READ), .offset = -4096, .len = 8192}},
		{"behind the slot", ENGINE_OP_READ, {MINE(OP_READ), .offset = LIAR_LEN, .len = 64}},
		{"over its end",
	         ENGINE_OP_READ,
	         {MINE(OP_READ), .offset = LIAR_LEN - 64, .len = 128}},
		{"at address 0", ENGINE_OP_READ, {MINE(OP_READ), .offset = INT64_MIN, .len = 64}},
		{"the wrong way", ENGINE_OP_READ, {MINE(OP_READ), .read = true}},
		{"the wrong way, too", ENGINE_OP_WRITE, {MINE(OP_WRITE)}},
	};
	const struct target_strike good = {MINE(OP_READ), .offset = 64, .len = 64};
	uint8_t *slot;
	struct vol v;

	liar_tenant(&v, "tenant-a", true);
	liar_open(&v);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		strike_in_flight(&v, &rows[i]);
	/* Control: what the key is for works, at exactly these bytes. */
	liar_fill(&v);
	hold(&v, ENGINE_OP_READ);
	slot = liar_slot(&v, LIAR_SLOT);
	assert_int_equal(target_verbs_strike(liar.liar, &good, NULL), 0);
	for (unsigned i = 64; i < 128; i++)
		assert_int_equal(slot[i], TARGET_STRIKE_BYTE);
	liar_unharmed(&v, LIAR_SLOT, "control");
	assert_int_equal(target_let_go(liar.liar), 1);
	assert_int_equal(liar_wait(&v), LIAR_LEN);
	liar_close(&v, "keys in flight");
}

/* B's command is in flight, its key alive and known to the target; it is used on A's queue pair. */
static void foreign(struct vol *a, struct vol *b, enum engine_op op)
{
	struct target_strike s = {.key_host = LIAR_B,
	                          .on_host = LIAR_A,
	                          .opcode = op == ENGINE_OP_READ ? OP_READ : OP_WRITE,
	                          .read = op == ENGINE_OP_WRITE};
	uint64_t of_b = vol_health(b).lives;
	struct liar_past past;

	liar_media(LIAR_SLOT, 77);
	liar_fill(a);
	liar_fill(b);
	assert_int_equal(liar_io(a, ENGINE_OP_READ), LIAR_LEN);
	vol_pattern(liar_slot(a, LIAR_SLOT), VOL_IO, 1000 + LIAR_SLOT);
	hold(b, op);
	past = liar_past(a);
	refused(&s, "another tenant's key");
	liar_unharmed(a, -1, "another tenant's key");
	liar_unharmed(b, -1, "another tenant's key");
	liar_submit(a, ENGINE_OP_READ);
	liar_lost(a, &past, REFUSED, "another tenant's key");
	assert_int_equal(liar_wait(a), LIAR_LEN);
	/* Control: the key is good where it belongs, and B did not notice. */
	s.on_host = LIAR_B;
	assert_int_equal(target_verbs_strike(liar.liar, &s, NULL), 0);
	assert_int_equal(target_let_go(liar.liar), 1);
	assert_int_equal(liar_wait(b), LIAR_LEN);
	assert_int_equal(vol_health(b).lives, of_b);
	liar_bystander("another tenant's key");
}

void nvmf_rdma_liar__a_key_of_another_tenant(void **state)
{
	struct vol a, b;

	liar_tenant(&a, "tenant-a", true);
	liar_tenant(&b, "tenant-b", true);
	liar_open(&a);
	liar_open(&b);
	foreign(&a, &b, ENGINE_OP_READ);
	foreign(&a, &b, ENGINE_OP_WRITE);
	/* Keys that stay are no better elsewhere. */
	vol_close(&b);
	liar_tenant(&b, "tenant-b", false);
	liar_open(&b);
	foreign(&a, &b, ENGINE_OP_READ);
	vol_close(&b);
	liar_close(&a, "another tenant's key");
}

/* The request is back, its slot is used for something else: how a strike with its key ends. */
static int late(struct vol *v, enum engine_op op, uint8_t *got)
{
	struct target_strike s = {MINE(op == ENGINE_OP_READ ? OP_READ : OP_WRITE)};

	s.read = op == ENGINE_OP_WRITE;
	liar_media(LIAR_SLOT, 77);
	assert_int_equal(liar_io(v, op), LIAR_LEN);
	liar_fill(v);
	return target_verbs_strike(liar.liar, &s, got);
}

void nvmf_rdma_liar__a_key_of_a_command_that_is_over(void **state)
{
	uint8_t *got = calloc(1, LIAR_LEN);
	struct vol v;

	liar_tenant(&v, "tenant-a", true);
	liar_open(&v);
	for (unsigned i = 0; i < 2; i++) {
		int r = late(&v, i ? ENGINE_OP_WRITE : ENGINE_OP_READ, got);
		struct liar_past past = liar_past(&v);

		if (r <= 0)
			fail_msg("late: expected that the device refuses it, found %d", r);
		liar_unharmed(&v, -1, "late");
		liar_submit(&v, ENGINE_OP_READ);
		liar_lost(&v, &past, REFUSED, "late");
		assert_int_equal(liar_wait(&v), LIAR_LEN);
		liar_unharmed(&v, LIAR_SLOT, "late");
	}
	for (unsigned i = 0; i < LIAR_LEN; i++)
		assert_int_equal(got[i], 0);
	free(got);
	liar_close(&v, "late");
	liar_bystander("late");
}

static void lands(struct vol *v, const char *name)
{
	uint8_t *got = calloc(1, LIAR_LEN);
	const uint8_t *slot = liar_slot(v, LIAR_SLOT);

	assert_int_equal(late(v, ENGINE_OP_READ, NULL), 0);
	for (unsigned i = 0; i < LIAR_LEN; i++)
		assert_int_equal(slot[i], TARGET_STRIKE_BYTE);
	liar_unharmed(v, LIAR_SLOT, name);
	/* And what lies in the slot after a write is told to who has its key. */
	assert_int_equal(late(v, ENGINE_OP_WRITE, got), 0);
	assert_memory_equal(got, slot, LIAR_LEN);
	assert_int_equal(vol_health(v).lives, 1);
	free(got);
}

void nvmf_rdma_liar__the_control_keys_that_do_not_end(void **state)
{
	struct vol v;

	liar_tenant(&v, "tenant-a", false);
	liar_open(&v);
	lands(&v, "standing keys");
	liar_close(&v, "standing keys");
	liar_tenant(&v, "tenant-a", true);
	liar_open(&v);
	assert_int_equal(liar_io(&v, ENGINE_OP_READ), LIAR_LEN); /* the queue's Connect is over */
	liar_revoke(false);
	lands(&v, "keys whose end is left out");
	liar_revoke(true);
	liar_close(&v, "keys whose end is left out");
}

/* The target never answers; when the host has given up it writes all the same: by the queue pair
 * that the host has left, and by the new one. */
void nvmf_rdma_liar__a_write_after_a_time_out(void **state)
{
	struct target_strike old = {MINE(OP_READ), .back = 1, .ended = true};
	struct target_strike anew = {MINE(OP_READ), .back = 1};
	struct liar_past past;
	struct vol v;

	liar_tenant(&v, "tenant-a", true);
	v.config.command_timeout_ms = 2000;
	liar_open(&v);
	liar_media(LIAR_SLOT, 77);
	target_verbs_keep(liar.liar, true);
	assert_int_equal(liar_io(&v, ENGINE_OP_READ), LIAR_LEN);
	past = liar_past(&v);
	hold(&v, ENGINE_OP_READ);
	liar_reopened(&v, &past, "no answer", "held");
	assert_int_equal(liar_wait(&v), LIAR_LEN); /* asked again */
	liar_fill(&v);
	refused(&old, "after a time-out");
	liar_unharmed(&v, -1, "after a time-out");
	past = liar_past(&v);
	refused(&anew, "after a time-out, by the new queue pair");
	liar_unharmed(&v, -1, "after a time-out, by the new queue pair");
	liar_submit(&v, ENGINE_OP_READ);
	liar_lost(&v, &past, REFUSED, "after a time-out");
	assert_int_equal(liar_wait(&v), LIAR_LEN);
	assert_true(vol_is_pattern(liar_slot(&v, LIAR_SLOT), LIAR_LEN, 77));
	target_verbs_keep(liar.liar, false);
	liar_close(&v, "after a time-out");
	liar_bystander("after a time-out");
}

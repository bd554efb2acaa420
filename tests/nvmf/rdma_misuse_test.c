/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target that uses a key wrongly (of another tenant, of a command that is over, out of its
 * range, the wrong way) loses this tenant's controller with all of its queues, by name: on a device
 * that is memory, with the engine, two of its reactors, and a target of our own. Another tenant at
 * the same target goes on, and one at another. A target that does it whenever it is reached is
 * reached ever more seldom. Controls: an honest end of a queue, and a key that we ended ourselves
 * under a command, end that queue alone; losses without a lie slow nothing down.
 */
#include "tests/nvmf/target_fabric.h"
#include "tests/nvmf/vol.h"
#include "tests/testing.h"
#include "tests/verbs/fabric_mem.h"

#include "common/clock.h"

#define WAIT_MS 20000u
#define LEN     16384
#define SIDE    5u /* the slot of the request at the other reactor */
#define HELD    7u /* the slot of the other tenant's */
#define LOSSES  4u
/* Waits of 100, 200, 400 and 800 ms, each at least three quarters of that. */
#define SLOWED_NS (1125 * NS_PER_MS)
#define HOST(t)   "nqn.2026-11.test:host:tenant-" t
enum { OP_WRITE = 1, OP_READ = 2 };

struct scene {
	struct target *liar, *honest;
	struct vol a, side, b, c; /* side: @a at another reactor */
	uint8_t bytes[LEN];
};

static struct target *target_open(void)
{
	struct target_opts o = {.carrier = &target_fabric};
	struct target_subsys_opts s = {.nqn = VOL_NQN, .in_capsule = 4096, .mdts = 4};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = VOL_BYTES / 512};
	struct target *t = NULL;

	assert_int_equal(target_new(&o, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, VOL_NQN, &n), 0);
	return t;
}

static void tenant(struct vol *v, struct target *t, const char *name)
{
	vol_init(v, t, name);
	v->config.transport = NVMF_RDMA;
	v->config.keys_per_command = true;
	v->config.command_timeout_ms = v->config.keep_alive_ms = WAIT_MS;
	v->config.quiesce_ms = 100;
	v->device = FABRIC_MEM_DEVICE;
	if (vol_open(v))
		fail_msg("%s", v->words);
}

static int setup(void **state)
{
	static struct scene s;
	struct engine_reactor_opts o = {.depth = VOL_IOS};

	s = (struct scene){.liar = target_open(), .honest = target_open()};
	tenant(&s.a, s.liar, "tenant-a");
	tenant(&s.b, s.liar, "tenant-b");
	tenant(&s.c, s.honest, "tenant-c");
	s.side = s.a;
	assert_int_equal(engine_nvmf_ops.reactor_new(s.a.e, &o, &s.side.r, NULL), 0);
	vol_pattern(s.bytes, LEN, 7);
	assert_int_equal(target_media_write(s.liar, VOL_NQN, 1, 0, s.bytes, LEN), 0);
	*state = &s;
	return 0;
}

static int teardown(void **state)
{
	struct scene *s = *state;

	engine_nvmf_ops.reactor_free(s->side.r);
	vol_close(&s->a);
	vol_close(&s->b);
	vol_close(&s->c);
	target_free(s->liar);
	target_free(s->honest);
	return 0;
}

static uint8_t *slot(struct vol *v, unsigned i)
{
	return v->buf + (size_t)i * VOL_IO;
}

static void turn(struct scene *s)
{
	vol_turn(&s->side, 0);
	vol_turn(&s->b, 0);
	vol_turn(&s->a, 2);
}

/* All reactors turn: a controller that is lost waits for each. */
static int64_t wait_for(struct scene *s, struct vol_io *i)
{
	uint64_t end = clock_monotonic_ns() + WAIT_MS * NS_PER_MS;

	while (!i->done && clock_monotonic_ns() < end)
		turn(s);
	return i->done ? i->res : INT64_MIN;
}

static int64_t io(struct scene *s, enum engine_op op)
{
	vol_submit(&s->a, &s->a.ios[0], op, 0, slot(&s->a, 0), LEN);
	return wait_for(s, &s->a.ios[0]);
}

static void live_again(struct scene *s)
{
	uint64_t end = clock_monotonic_ns() + WAIT_MS * NS_PER_MS;

	while (vol_health(&s->a).state != NVMF_CTRL_LIVE) {
		turn(s);
		assert_true(clock_monotonic_ns() < end);
	}
}

/* A request of @v stays at the target, unanswered, its key alive. */
static void hold(struct scene *s, struct vol *v, unsigned i, uint8_t opcode, const char *host)
{
	struct target_rule r = {
		.fault = FAULT_ABORT_LATE, .qid = 0, .times = 1, .opcode = opcode + 1};
	uint64_t hits = target_fault_hits(s->liar, r.fault);
	uint64_t end = clock_monotonic_ns() + WAIT_MS * NS_PER_MS;

	snprintf(r.host_nqn, sizeof(r.host_nqn), "%s", host);
	assert_int_equal(target_fault_on(s->liar, &r), 0);
	vol_pattern(slot(v, i), LEN, 100 + i);
	vol_submit(v, &v->ios[i], opcode == OP_READ ? ENGINE_OP_READ : ENGINE_OP_WRITE,
	           (uint64_t)i * VOL_IO, slot(v, i), LEN);
	while (target_fault_hits(s->liar, r.fault) == hits) {
		vol_turn(v, 5);
		turn(s);
		assert_true(clock_monotonic_ns() < end);
	}
	target_faults_off(s->liar);
}

static int64_t with_fault(struct scene *s, enum target_fault f, uint64_t arg, enum engine_op op)
{
	struct target_rule r = {.fault = f,
	                        .times = 1,
	                        .arg = arg,
	                        .host_nqn = HOST("a"),
	                        .opcode = (op == ENGINE_OP_READ ? OP_READ : OP_WRITE) + 1};
	uint64_t hits = target_fault_hits(s->liar, f);
	int64_t res;

	memcpy(slot(&s->a, 0), s->bytes, LEN);
	if (op == ENGINE_OP_READ)
		memset(slot(&s->a, 0), 0, LEN);
	assert_int_equal(target_fault_on(s->liar, &r), 0);
	res = io(s, op);
	assert_int_equal(target_fault_hits(s->liar, f), hits + 1);
	target_faults_off(s->liar);
	return res;
}

/* B's request is as it was, and C's target all that it was. */
static void others_go_on(struct scene *s, const char *name)
{
	struct vol_io *held = &s->b.ios[HELD];

	vol_turn(&s->b, 0);
	if (held->done || vol_health(&s->b).lives != 1)
		fail_msg("%s: the other tenant noticed", name);
	assert_true(vol_is_pattern(slot(&s->b, HELD), LEN, 100 + HELD));
	if (vol_scenario(&s->c) || vol_health(&s->c).lives != 1)
		fail_msg("%s: the other target's tenant noticed", name);
}

static void misuse(struct scene *s, enum target_fault f, uint64_t arg, enum engine_op op)
{
	const char *name = target_fault_to_str(f);
	uint64_t lives = vol_health(&s->a).lives;
	int64_t res;

	hold(s, &s->side, SIDE, OP_WRITE, HOST("a"));
	hold(s, &s->b, HELD, OP_WRITE, HOST("b"));
	res = with_fault(s, f, arg, op);
	/* A read is asked again of the next controller. */
	if (res != (op == ENGINE_OP_READ ? LEN : -EREMOTEIO))
		fail_msg("%s: %lld", name, (long long)res);
	assert_memory_equal(slot(&s->a, 0), s->bytes, LEN);
	if (!strstr(vol_health(&s->a).words, "target used a key that was not good"))
		fail_msg("%s: \"%s\"", name, vol_health(&s->a).words);
	/* The queue of the other reactor did no wrong: it ended with its controller. */
	assert_int_equal(wait_for(s, &s->side.ios[SIDE]), -EREMOTEIO);
	live_again(s);
	assert_int_equal(vol_health(&s->a).lives, lives + 1);
	others_go_on(s, name);
	assert_int_equal(target_let_go(s->liar), 1);
	assert_int_equal(wait_for(s, &s->b.ios[HELD]), LEN);
}

/* Each with tenants of its own: none is slowed down by the one before. */
static void nvmf_misuse__of_a_key_ends_the_controller_and_nobody_elses(void **state)
{
	static const struct {
		enum target_fault fault;
		uint64_t arg;
		enum engine_op op;
	} rows[] = {
		{FAULT_KEY_FOREIGN, 0, ENGINE_OP_READ},     {FAULT_KEY_OLD, 0, ENGINE_OP_READ},
		{FAULT_DATA_LONG, 4096, ENGINE_OP_READ},    {FAULT_R2T_FOR_READ, 0, ENGINE_OP_READ},
		{FAULT_DATA_FOR_WRITE, 0, ENGINE_OP_WRITE},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		setup(state);
		misuse(*state, rows[i].fault, rows[i].arg, rows[i].op);
		teardown(state);
	}
}

/* The control of both: the queue of @a ends without a lie, and that of the other reactor stays. */
static void stayed(struct scene *s)
{
	vol_turn(&s->side, 0);
	assert_int_equal(s->side.ios[SIDE].done, 0);
	assert_int_equal(vol_health(&s->a).lives, 1);
	assert_int_equal(target_let_go(s->liar), 1);
	assert_int_equal(wait_for(s, &s->side.ios[SIDE]), LEN);
}

static void nvmf_misuse__a_queue_that_just_ends_is_opened_again_alone(void **state)
{
	struct target_rule r = {.fault = FAULT_RX_CLOSE, .times = 1, .host_nqn = HOST("a")};
	struct scene *s = *state;

	assert_int_equal(io(s, ENGINE_OP_READ), LEN);
	hold(s, &s->side, SIDE, OP_WRITE, HOST("a"));
	/* qid 1 is that of the first reactor: it opened its queue first. */
	r.qid = 1 + 1;
	memset(slot(&s->a, 0), 0, LEN);
	assert_int_equal(target_fault_on(s->liar, &r), 0);
	assert_int_equal(io(s, ENGINE_OP_READ), LEN);
	assert_memory_equal(slot(&s->a, 0), s->bytes, LEN);
	assert_int_equal(target_fault_hits(s->liar, r.fault), 1);
	target_faults_off(s->liar);
	stayed(s);
}

static void nvmf_misuse__a_key_that_we_ended_under_a_command_is_no_lie(void **state)
{
	uint64_t end = clock_monotonic_ns() + WAIT_MS * NS_PER_MS, last_ns;
	struct scene *s = *state;
	struct vol_io *i = &s->a.ios[0];

	hold(s, &s->a, 0, OP_READ, HOST("a"));
	assert_int_equal(engine_nvmf_ops.end_keys(s->a.r, &i->io), 1);
	engine_nvmf_ops.forget_regions(s->a.r, NULL);
	while (engine_nvmf_ops.keys_ending(s->a.r, NULL, UINT64_MAX, &last_ns)) {
		vol_turn(&s->a, 1);
		assert_true(clock_monotonic_ns() < end);
	}
	/* The target serves it now, honestly, under a key that it was given. */
	assert_int_equal(target_let_go(s->liar), 1);
	hold(s, &s->side, SIDE, OP_WRITE, HOST("a"));
	assert_int_equal(wait_for(s, i), LEN); /* here it is asked again */
	assert_memory_equal(slot(&s->a, 0), s->bytes, LEN);
	stayed(s);
}

/* How long it takes until the controller was lost so often and is LIVE again. */
static uint64_t losses_ns(struct scene *s, enum target_fault f, enum engine_op op)
{
	struct target_rule r = {.fault = f, .qid = 1 + 1, .times = 1, .host_nqn = HOST("a")};
	uint64_t was = vol_health(&s->a).lives, began = clock_monotonic_ns();

	while (vol_health(&s->a).lives < was + LOSSES) {
		assert_int_equal(target_fault_on(s->liar, &r), 0);
		io(s, op);
		target_faults_off(s->liar);
		live_again(s);
		assert_true(clock_monotonic_ns() - began < 3 * WAIT_MS * NS_PER_MS);
	}
	return clock_monotonic_ns() - began;
}

static void nvmf_misuse__again_and_again_is_reached_ever_more_seldom(void **state)
{
	struct scene *s = *state;
	uint64_t ns = losses_ns(s, FAULT_KEY_FOREIGN, ENGINE_OP_READ);

	if (ns < SLOWED_NS)
		fail_msg("lost %u times in %llu ms", LOSSES, (unsigned long long)(ns / NS_PER_MS));
	assert_int_equal(vol_health(&s->b).lives, 1);
}

static void nvmf_misuse__other_losses_slow_nothing_down(void **state)
{
	struct scene *s = *state;
	uint64_t best = UINT64_MAX;

	/* A machine that is busy may take long: one of them does not. */
	for (unsigned i = 0; i < 5 && best >= SLOWED_NS; i++)
		best = MIN(best, losses_ns(s, FAULT_RX_CLOSE, ENGINE_OP_WRITE));
	assert_true(best < SLOWED_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(nvmf_misuse__##name, setup, teardown)
		cmocka_unit_test(nvmf_misuse__of_a_key_ends_the_controller_and_nobody_elses),
		T(a_queue_that_just_ends_is_opened_again_alone),
		T(a_key_that_we_ended_under_a_command_is_no_lie),
		T(again_and_again_is_reached_ever_more_seldom),
		T(other_losses_slow_nothing_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nvmf engine and a target that lies: in setting up a controller, and under load. Each lie is a
 * row: the controller is refused or dropped by name, nothing is left of it, a tenant of an honest
 * target goes on meanwhile with each byte right, and the same tenant at the same target works as
 * soon as it is honest. No request is ever lost, answered twice, or answered with wrong bytes.
 */
#include "tests/nvmf/vol.h"
#include "tests/await.h"
#include "tests/testing.h"

#include "common/clock.h"

struct lie {
	struct target_rule rule;
	const char *words; /* what is said of it; NULL: the controller stays */
	int rc;            /* with NULL: of the scenario */
};

enum { OP_WRITE = 1 + 1, OP_READ = 2 + 1, OP_FLUSH = 0 + 1, OP_KEEP_ALIVE = 0x18 + 1 };

struct rig {
	struct target *liar, *honest;
	struct vol bystander;
	uint64_t short_ms; /* as all the commands of a scenario take here, now; so one takes much
	                      less */
};

#define PATIENT_MS 20000u

static int setup(void **state)
{
	static struct rig r;
	uint64_t began;
	int rc;

	r.liar = vol_target();
	r.honest = vol_target();
	vol_init(&r.bystander, r.honest, "bystander");
	r.bystander.config.keep_alive_ms = PATIENT_MS;
	r.bystander.config.command_timeout_ms = PATIENT_MS;
	*state = &r;
	began = clock_monotonic_ns();
	rc = vol_open(&r.bystander) || vol_scenario(&r.bystander);
	r.short_ms = MIN(MAX(300u, (clock_monotonic_ns() - began) / NS_PER_MS), 3000u);
	return rc;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	vol_close(&r->bystander);
	target_free(r->liar);
	target_free(r->honest);
	return 0;
}

static void passes(struct vol *v, struct target *t, const char *after)
{
	int rc = vol_scenario(v);
	char words[256];

	target_violations(t, words, sizeof(words));
	if (rc || words[0])
		fail_msg("%s: honest target: %d, %s %s", after, rc, vol_health(v).words, words);
}

/* Only what is found out by the time that it takes has a short one: elsewhere a slow machine would
 * be taken for a liar. */
static bool is_told_by_time(const struct target_rule *lie)
{
	switch (lie->fault) {
	case FAULT_IC_NEVER:
	case FAULT_CONNECT_NEVER:
	case FAULT_CSTS_NEVER:
	case FAULT_CQE_NEVER:
	case FAULT_R2T_NEVER:
	case FAULT_PDU_SLOW:
	case FAULT_ABORT_LATE:
		return true;
	default:
		return lie->opcode == OP_KEEP_ALIVE;
	}
}

static void begin(struct vol *v, struct rig *r, const struct target_rule *lie)
{
	bool timed = lie && is_told_by_time(lie);

	vol_init(v, r->liar, "tenant-a");
	v->config.command_timeout_ms = timed ? r->short_ms : PATIENT_MS;
	v->config.keep_alive_ms = timed ? 3000 : PATIENT_MS;
	v->config.quiesce_ms = 200;
}

static bool shows(void)
{
	return getenv("ROS2_SHOW_FAULTS") != NULL;
}

/* Nothing is left of it: neither here nor there. */
static void nothing_left(struct rig *r, unsigned fds, const char *name)
{
	struct target_stats s = {0};

	/* The end of connections is seen by the target's thread. */
	if (AWAIT((target_stats(r->liar, &s), !s.open && !s.controllers && vol_fds() <= fds)))
		return;
	fail_msg("%s: %u connections and %u controllers are left, %u descriptors of %u", name,
	         s.open, s.controllers, vol_fds(), fds);
}

/* At the opening; then without the lie. */
static void one_of_setup(struct rig *r, const struct lie *l)
{
	const char *name = target_fault_to_str(l->rule.fault);
	uint64_t hits = target_fault_hits(r->liar, l->rule.fault);
	unsigned fds = vol_fds();
	struct vol v;
	int rc;

	begin(&v, r, &l->rule);
	assert_int_equal(target_fault_on(r->liar, &l->rule), 0);
	rc = vol_open(&v);
	if (!rc)
		rc = vol_scenario(&v);
	if (!v.words[0])
		snprintf(v.words, sizeof(v.words), "%s", vol_health(&v).words);
	vol_close(&v);
	target_faults_off(r->liar);
	if (shows())
		printf("# %s %llx: %d %s\n", name, (unsigned long long)l->rule.arg, rc, v.words);
	if (target_fault_hits(r->liar, l->rule.fault) == hits)
		fail_msg("%s: was never let loose", name);
	if (l->words && (!rc || rc == -EILSEQ || rc == -ETIME || !strstr(v.words, l->words)))
		fail_msg("%s: expected \"%s\", found %d: \"%s\"", name, l->words, rc, v.words);
	if (!l->words && rc != l->rc)
		fail_msg("%s: expected %d and no fault, found %d: \"%s\"", name, l->rc, rc,
		         v.words);
	nothing_left(r, fds, name);
}

static void of_setup(struct rig *r, const struct lie *l, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct vol v;

		one_of_setup(r, &l[i]);
		passes(&r->bystander, r->honest, target_fault_to_str(l[i].rule.fault));
		/* Control: it was the lie. */
		begin(&v, r, NULL);
		if (vol_open(&v))
			fail_msg("the target is honest again: %s", v.words);
		passes(&v, r->liar, "honest again");
		vol_close(&v);
	}
}

/* Under load: the first answers may be errors, never wrong; then it comes back by itself. */
static void one_under_load(struct rig *r, const struct lie *l)
{
	const char *name = target_fault_to_str(l->rule.fault);
	uint64_t hits = target_fault_hits(r->liar, l->rule.fault), lives;
	unsigned fds = vol_fds();
	struct nvmf_ctrl_health h;
	struct vol v;
	int rc;

	begin(&v, r, &l->rule);
	if (vol_open(&v))
		fail_msg("%s: %s", name, v.words);
	passes(&v, r->liar, "before");
	lives = vol_health(&v).lives;
	assert_int_equal(target_fault_on(r->liar, &l->rule), 0);
	rc = vol_scenario(&v);
	for (uint64_t end = clock_monotonic_ns() + AWAIT_NS;
	     (target_fault_hits(r->liar, l->rule.fault) == hits ||
	      (l->words && vol_health(&v).lives == lives)) &&
	     clock_monotonic_ns() < end;)
		vol_turn(&v, 5);
	target_faults_off(r->liar);
	h = vol_health(&v);
	if (shows())
		printf("# %s %llx: %d %lu %s\n", name, (unsigned long long)l->rule.arg, rc,
		       h.lives - lives, h.words);
	if (target_fault_hits(r->liar, l->rule.fault) == hits)
		fail_msg("%s: was never let loose", name);
	if (rc == -EILSEQ || rc == -ETIME)
		fail_msg("%s: %d", name, rc);
	if (l->words && !strstr(h.words, l->words))
		fail_msg("%s: expected \"%s\", found %d: \"%s\"", name, l->words, rc, h.words);
	if (!l->words && (rc != l->rc || h.lives != lives))
		fail_msg("%s: expected that it is borne, found %d: \"%s\"", name, rc, h.words);
	passes(&r->bystander, r->honest, name);
	if (!vol_until(&v, NVMF_CTRL_LIVE, AWAIT_MS))
		fail_msg("%s: does not come back: %s", name, vol_health(&v).words);
	passes(&v, r->honest, name);
	vol_close(&v);
	nothing_left(r, fds, name);
}

static void under_load(struct rig *r, const struct lie *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		one_under_load(r, &l[i]);
}

#define IO .qid = 1 + 1
#define BORNE(result, f, ...)                                                                      \
	{                                                                                          \
		.rule = {.fault = FAULT_##f, ##__VA_ARGS__}, .rc = result                          \
	}
#define SAYS(said, f, ...)                                                                         \
	{                                                                                          \
		.rule = {.fault = FAULT_##f, ##__VA_ARGS__}, .words = said                         \
	}
static void nvmf_hostile_engine__a_controller_that_cannot_be(void **state)
{
	static const struct lie rows[] = {
		SAYS("ICReq", IC_NEVER),
		SAYS("target sent", IC_GARBAGE),
		SAYS("Connect", CONNECT_NEVER),
		SAYS("refuses host", CONNECT_STATUS, .arg = 0x4184),
		SAYS("refuses", CONNECT_STATUS, .arg = 0x4182),
		SAYS("refuses", CONNECT_STATUS, .arg = 0x7fff),
		SAYS("target sent", CONNECT_RESULT, .arg = 0xffff),
		SAYS("authentication", CONNECT_RESULT, .arg = 0x20001),
		SAYS("target sent", CONNECT_CNTLID),
		SAYS("ready", CSTS_NEVER),
		SAYS("fatal", CSTS_CFS),
		SAYS("CAP", CAP_VALUE, .arg = 0),
		/* Pages of 128 MiB, which the target then refuses. */
		SAYS("fatal", CAP_VALUE, .arg = UINT64_MAX),
		SAYS("CAP", CAP_VALUE, .arg = 0x20140100ffull << 16),
		SAYS("controller id", ID_CNTLID),
		/* No limit is what it says, and then it has one. */
		BORNE(-EIO, ID_MDTS, .arg = 0),
		BORNE(-EIO, ID_MDTS, .arg = 255),
		BORNE(0, ID_MDTS, .arg = 1),
		SAYS("IOCCSZ", ID_IOCCSZ, .arg = 0),
		SAYS("IOCCSZ", ID_IOCCSZ, .arg = 3),
		SAYS("IOCCSZ", ID_IOCCSZ, .arg = UINT32_MAX),
		SAYS("IORCSZ", ID_IORCSZ, .arg = 0),
		/* Then nothing goes in a capsule. */
		BORNE(0, ID_ICDOFF, .arg = 0xffff),
		SAYS("SGL", ID_SGLS, .arg = 0),
		SAYS("SQES", ID_SQES, .arg = 0),
		BORNE(0, ID_KAS, .arg = 0),
		BORNE(0, ID_NN, .arg = 0),
		SAYS("NN", ID_NN, .arg = UINT32_MAX),
		SAYS("MAXCMD", ID_MAXCMD, .arg = 1),
		SAYS("I/O controller", ID_CNTRLTYPE, .arg = 2),
		SAYS("controller type 255", ID_CNTRLTYPE, .arg = 0xff),
		SAYS("subsystem NQN of 256 bytes", ID_SUBNQN),
		SAYS("target sent", ID_GARBAGE),
		BORNE(0, QUEUES, .arg = UINT32_MAX),
		SAYS("Identify", DATA_SHORT, .opcode = 6 + 1),
		SAYS("Identify", CQE_NEVER, .opcode = 6 + 1),
		SAYS("refuses", CQE_WRONG_STATUS, .opcode = 6 + 1, .arg = 0x4006),
	};

	of_setup(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile_engine__a_namespace_that_cannot_be(void **state)
{
	static const struct lie rows[] = {
		SAYS("namespace", NS_NSZE, .arg = 0),
		SAYS("blocks of 512 bytes: expected", NS_NSZE, .arg = 1ull << 63),
		SAYS("blocks of 512 bytes: expected", NS_NSZE, .arg = UINT64_MAX),
		SAYS("NCAP", NS_NCAP, .arg = UINT64_MAX),
		SAYS("expected 2^9 or more", NS_LBADS, .arg = 0),
		SAYS("expected 2^9 or more", NS_LBADS, .arg = 8),
		SAYS("block size that is not supported", NS_LBADS, .arg = 31),
		SAYS("block size that is not supported", NS_LBADS, .arg = 255),
		SAYS("namespace", NS_MS, .arg = 8),
		SAYS("LBA format 15", NS_FLBAS, .arg = 0x0f),
		SAYS("LBA format 0 of 256", NS_NLBAF, .arg = 255),
		SAYS("target sent", ID_GARBAGE, .skip = 1),
	};

	of_setup(*state, rows, ARRAY_SIZE(rows));
}

static void nvmf_hostile_engine__queues_that_lie_under_load(void **state)
{
	static const struct lie rows[] = {
		SAYS("id of a command", CQE_WRONG_ID, IO, .times = 1),
		SAYS("id of a command", CQE_TWICE, IO, .times = 1),
		SAYS("no answer to Write", CQE_NEVER, IO, .times = 1, .opcode = OP_WRITE),
		/* No lie: the queue is opened again, and the read is made again. */
		BORNE(0, CQE_NEVER, IO, .times = 1, .opcode = OP_READ),
		SAYS("C2HData", DATA_LONG, IO, .times = 1),
		SAYS("C2HData", DATA_BEYOND, IO, .times = 1),
		SAYS("C2HData", DATA_FOR_WRITE, IO, .times = 1),
		SAYS("success", DATA_SHORT, IO, .times = 1),
		SAYS("success", DATA_NONE, IO, .times = 1),
		SAYS("success", DATA_LATE, IO, .times = 1),
		SAYS("R2T", R2T_BEYOND, IO, .times = 1),
		SAYS("R2T", R2T_TWICE, IO, .times = 1),
		SAYS("R2T", R2T_FOR_READ, IO, .times = 1),
		SAYS("no answer to Write", R2T_NEVER, IO, .times = 1),
		SAYS("PLEN", PDU_PLEN_HUGE, IO, .times = 1),
		SAYS("target sent", PDU_GARBAGE, IO, .times = 1),
		SAYS("closed", PDU_CLOSE, IO, .times = 1),
		SAYS("C2HTermReq", PDU_TERM, IO, .times = 1),
		SAYS("no answer to", PDU_SLOW, IO, .times = 1),
		BORNE(0, ABORT_LATE, IO, .times = 1, .opcode = OP_READ),
		SAYS("Keep Alive", CQE_NEVER, .times = 1, .opcode = OP_KEEP_ALIVE),
		SAYS("Keep Alive", CQE_WRONG_STATUS, .times = 1, .opcode = OP_KEEP_ALIVE,
	             .arg = 0x4002),
		SAYS("id of a command", CQE_WRONG_ID, .times = 1, .opcode = OP_KEEP_ALIVE),
	};

	under_load(*state, rows, ARRAY_SIZE(rows));
}

/* Each PDU of the way to a controller, and of its end, is the last that the target takes. */
static void nvmf_hostile_engine__connections_cut_in_setting_up(void **state)
{
	struct target_rule rule = {.fault = FAULT_RX_CLOSE, .times = 1};
	struct rig *r = *state;
	unsigned refused = 0;

	for (rule.skip = 0; rule.skip < 24; rule.skip++) {
		unsigned fds = vol_fds();
		struct vol v;

		begin(&v, r, NULL);
		assert_int_equal(target_fault_on(r->liar, &rule), 0);
		if (vol_open(&v)) {
			refused++;
			if (!strstr(v.words, "connection"))
				fail_msg("cut after %u PDUs: %s", rule.skip, v.words);
		} else {
			int rc = vol_scenario(&v);

			if (rc && rc != -EREMOTEIO)
				fail_msg("cut after %u PDUs: %d", rule.skip, rc);
		}
		vol_close(&v);
		target_faults_off(r->liar);
		nothing_left(r, fds, "cut");
	}
	assert_true(refused > 5);
	passes(&r->bystander, r->honest, "cuts");
}

/* Events that never end, or that nobody can read, cost the liar's tenant at most its controller. */
static void nvmf_hostile_engine__events_that_never_end(void **state)
{
	static const struct target_rule rules[] = {
		{.fault = FAULT_AEN_FLOOD},
		{.fault = FAULT_AEN_VALUE, .arg = 0x00ff07ff},
		{.fault = FAULT_AEN_VALUE, .arg = 0x00010000},
	};
	struct rig *r = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(rules); i++) {
		struct target_stats before, after;
		unsigned fds = vol_fds();
		struct vol v;
		int rc;

		begin(&v, r, NULL);
		assert_int_equal(target_fault_on(r->liar, &rules[i]), 0);
		assert_int_equal(vol_open(&v), 0);
		target_stats(r->liar, &before);
		for (uint64_t end = clock_monotonic_ns() + NS_PER_S; clock_monotonic_ns() < end;)
			vol_turn(&v, 20);
		rc = vol_scenario(&v);
		target_stats(r->liar, &after);
		if (shows())
			printf("# %s %llx: %d, %lu admin commands, %s\n",
			       target_fault_to_str(rules[i].fault),
			       (unsigned long long)rules[i].arg, rc, after.admin - before.admin,
			       vol_health(&v).words);
		assert_true(after.admin - before.admin < 2000);
		passes(&r->bystander, r->honest, "events");
		target_faults_off(r->liar);
		vol_close(&v);
		nothing_left(r, fds, "events");
	}
}

#define T(name) cmocka_unit_test_setup_teardown(nvmf_hostile_engine__##name, setup, teardown)

/* A process is killed with a write at the target, which carries it out late; the next process
 * writes to the same place. What the medium shows at last. */
static uint8_t late_write_of_the_killed(struct rig *r, bool told)
{
	struct vol killed, next;
	struct target_stats s;
	uint64_t orphans;
	uint8_t last;

	begin(&killed, r, NULL);
	killed.config.quiesce_ms = 100;
	assert_int_equal(vol_open(&killed), 0);
	memset(killed.buf, 1, 4096);
	assert_int_equal(vol_io(&killed, ENGINE_OP_READ, 0, killed.buf + VOL_IO, 4096), 4096);
	target_delay(r->liar, UINT32_MAX, true);
	vol_submit(&killed, &killed.ios[0], ENGINE_OP_WRITE, 0, killed.buf, 4096);
	for (s.waiting = 0; !s.waiting; target_stats(r->liar, &s))
		vol_turn(&killed, 1);
	target_delay(r->liar, 0, true);
	target_drop(r->liar, -1);
	begin(&next, r, NULL);
	next.config.quiesce_ms = 4000;
	next.unquiet_since_ns = told ? clock_boottime_ns() : 0;
	assert_int_equal(vol_open(&next), 0);
	assert_int_equal(vol_io(&next, ENGINE_OP_READ, 0, next.buf, 512), 512);
	memset(next.buf, 2, 4096);
	/* Who is told waits until the old one must be over, and it is as late as can be. */
	vol_submit(&next, &next.ios[0], ENGINE_OP_WRITE, 0, next.buf, 4096);
	if (!told)
		assert_int_equal(vol_wait(&next, &next.ios[0], AWAIT_MS), 4096);
	vol_turn(&next, 5);
	target_stats(r->liar, &s);
	orphans = s.orphans;
	target_release(r->liar);
	assert_true(AWAIT((target_stats(r->liar, &s), s.orphans > orphans)));
	assert_int_equal(vol_wait(&next, &next.ios[0], AWAIT_MS), 4096);
	assert_int_equal(target_media_read(r->liar, VOL_NQN, 1, 0, &last, 1), 0);
	assert_int_equal(vol_wait(&killed, &killed.ios[0], AWAIT_MS), -EREMOTEIO);
	vol_close(&killed);
	vol_close(&next);
	return last;
}

static void nvmf_hostile_engine__a_write_of_a_process_that_was_killed(void **state)
{
	assert_int_equal(late_write_of_the_killed(*state, true), 2);
	/* The control: who does not know of it loses what was acknowledged. */
	assert_int_equal(late_write_of_the_killed(*state, false), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_write_of_a_process_that_was_killed), T(a_controller_that_cannot_be),
		T(a_namespace_that_cannot_be),           T(queues_that_lie_under_load),
		T(connections_cut_in_setting_up),        T(events_that_never_end),
	};

	if (getenv("ROS2_EMULATED")) {
		puts("1..0 # SKIP emulated, commands take longer than they are given here");
		return 77;
	}

	return cmocka_run_group_tests(tests, NULL, NULL);
}

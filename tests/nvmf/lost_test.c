/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real engine in the real data plane, at two targets of our own: tenants at the one that is
 * lost, and a tenant at the other, over TCP and over RDMA (on a device that is memory). Counted in
 * turns of the healthy target, which keeps all that it is asked until it is told to answer: how
 * many requests of the healthy tenant it has in each turn, alone and beside the others. No clock is
 * in it. tests/dataplane/lost_test.c is the same with an engine that is a model.
 */
#include "common/log.h"
#include "dataplane/nvmf/engine_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include "tests/nvmf/target_rdma.h"
#include "tests/verbs/fabric_mem.h"
#include <stdatomic.h>

#define NQN      "nqn.2026-11.test:lost"
#define LOST     6 /* tenants at the target that is lost, each with a session on each reactor */
#define SESSIONS (2 * LOST)
#define FARS     3u   /* targets that may be lost at once; each with a part of those tenants */
#define PUSHED   120u /* requests of each such session: nearly all that its credits let it */
#define DEPTH    32u
/* Of 128 buffers 96 are not kept for first ones: half of them, for all engines here. */
#define SHARE   6u
#define TURNS   6u
#define IO      4096u
#define HOUR_MS 3600000u

/* ---- the engine, and what of it waits for the lost target ---- */

static struct engine_ops spy_ops;
static _Atomic(struct engine *) fars[FARS];
static struct {
	_Atomic(const struct engine_reactor *) r;
	_Atomic uint32_t parked;
} seen[8 * FARS];

static int spy_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	int rc = engine_nvmf_ops.create(c, ret, err);

	if (rc == 0 && !strncmp(c->name, "far", 3))
		atomic_store(&fars[c->name[3] - '0'], *ret);
	return rc;
}

static bool is_far(struct engine *e)
{
	for (size_t i = 0; i < FARS; i++)
		if (e == atomic_load(&fars[i]))
			return true;
	return false;
}

static uint32_t spy_poll(struct engine_reactor *r, uint32_t max)
{
	uint32_t n = engine_nvmf_ops.poll(r, max);
	const struct engine_reactor *none;

	if (!is_far(r->engine))
		return n;
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		none = NULL;
		if (atomic_load(&seen[i].r) == r ||
		    atomic_compare_exchange_strong(&seen[i].r, &none, r)) {
			atomic_store(&seen[i].parked, engine_nvmf_ops.parked(r));
			break;
		}
	}
	return n;
}

static uint32_t parked(void *arg)
{
	uint32_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
		n += atomic_load(&seen[i].parked);
	return n;
}

/* ---- two targets, a data plane, the tenants ---- */

struct run {
	struct fx *fx;
	struct target *near, *far[FARS];
	unsigned n_far;
	bool rdma;
	struct raw healthy, lost[SESSIONS];
	uint32_t in_flight, depth; /* of the healthy one */
};

static uint8_t buf[65536];
static uint64_t quiesce_ms; /* of documents; 0 = not said */

static struct target *target_begin(bool rdma)
{
	struct target_opts o = {.success_flag = true};
	struct target_subsys_opts s = {.nqn = NQN, .mdts = 4, .in_capsule = 8192};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = (FARS + 1) * 4096};
	struct target *t = NULL;

	assert_int_equal(target_new(&o, &t), 0);
	if (rdma)
		target_rdma_open(t, FABRIC_MEM_DEVICE);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, NQN, &n), 0);
	return t;
}

static void target_finish(struct target *t, bool rdma)
{
	if (rdma)
		target_rdma_close(t);
	target_free(t);
}

struct put {
	struct fx *fx;
	const char *name;
	struct nvmf_config c;
	int rc;
	struct ros2_err err;
};

static void do_put(void *arg)
{
	struct put *p = arg;
	struct dp_engine_config c = {.name = p->name, .type = "nvmf", .nvmf = &p->c};

	p->rc = dp_engine_put(p->fx->dp, &c, &p->err);
}

/* A document in which nothing times out: what happens here happens because it is told to. One NQN,
 * as two targets that know nothing of each other may have: other blocks. */
static struct put engine_try(struct run *t, const char *name, struct target *at, uint64_t offset)
{
	struct put p = {.fx = t->fx,
	                .name = name,
	                .err = ROS2_ERR_INIT,
	                .c = {.transport = t->rdma ? NVMF_RDMA : NVMF_TCP,
	                      .address = "127.0.0.1",
	                      .port = t->rdma ? target_rdma_port(at) : target_port(at),
	                      .subsystem = NQN,
	                      .host_nqn = "nqn.2026-11.test:host:" NVMF_TENANT_MARK,
	                      .queue_depth = 64,
	                      .keep_alive_ms = HOUR_MS,
	                      .command_timeout_ms = HOUR_MS,
	                      .quiesce_ms = quiesce_ms,
	                      .keys_per_command = true,
	                      .n_volumes = 1,
	                      .volumes = {{"v/all", 1, offset, 2u << 20}}}};

	loop_call(t->fx->loop, do_put, &p);
	return p;
}

static void engine_put(struct run *t, const char *name, struct target *at, uint64_t offset)
{
	struct put p = engine_try(t, name, at, offset);

	if (p.rc < 0)
		fail_msg("%s", p.err.msg);
}

static void ready(struct run *t, struct raw *c, const struct ros2_uid *tenant,
                  const struct ros2_uid *grant, const char *engine)
{
	struct fx_args a = {.to = engine, .path = "v", .flags = 3};
	struct dp_result res;

	raw_open_as(t->fx, c, tenant, grant, UINT64_MAX);
	raw_connect(c);
	a.session = c->session;
	res = fx_do(t->fx, FX_MOUNT, &a);
	if (res.status != ROS2_OK)
		fail_msg("mount: %s", res.words);
	a.mount = res.mount.mount;
	a.path = "all";
	a.flags = ENGINE_READ | ENGINE_WRITE;
	res = fx_do(t->fx, FX_OPEN, &a);
	if (res.status != ROS2_OK)
		fail_msg("open: %s", res.words);
	c->handle = res.open.handle;
	c->key = raw_register(c, FX_BASE, 1u << 20, 3);
}

static void read_one(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_READ, 0, FX_BASE, IO);

	raw_send(c, &h, NULL, 0);
}

static void answer_one(struct raw *c)
{
	struct wire_header h;

	do {
		assert_true(raw_recv(c, &h, buf, sizeof(buf)));
	} while (h.opcode == WIRE_DATA);
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
}

/* The tenants of the lost targets are dealt out to @n of them. */
static void begin_at(struct run *t, bool rdma, unsigned n)
{
	static const char *const names[FARS] = {"far0", "far1", "far2"};
	struct ros2_uid tenant = {0}, grant = {0};
	void *state;

	log_set_level(LOG_LEVEL_ERROR);
	memset(seen, 0, sizeof(seen));
	memset(fars, 0, sizeof(fars));
	spy_ops = engine_nvmf_ops;
	spy_ops.create = spy_create;
	spy_ops.poll = spy_poll;
	dp_test_switches.extra_engine = &spy_ops;
	fx_rdma_device = rdma ? FABRIC_MEM_DEVICE : NULL;
	fx_rdma_host = rdma ? "127.0.0.1" : NULL;
	*t = (struct run){.rdma = rdma, .near = target_begin(rdma), .n_far = n, .depth = DEPTH};
	for (unsigned i = 0; i < n; i++)
		t->far[i] = target_begin(rdma);
	assert_int_equal(fx_setup(&state), 0);
	t->fx = state;
	engine_put(t, "near", t->near, 0);
	for (unsigned i = 0; i < n; i++)
		engine_put(t, names[i], t->far[i], (i + 1ull) * (2u << 20));
	ready(t, &t->healthy, &t->fx->tenant, &t->fx->grant, "near");
	for (int i = 0; i < SESSIONS; i++) {
		if (i % 2 == 0) {
			tenant = ros2_uid_new();
			grant = ros2_uid_new();
			fx_tenant(t->fx, &tenant);
			assert_int_equal(fx_grant(t->fx, &grant, &tenant, UINT64_MAX), 0);
		}
		ready(t, &t->lost[i], &tenant, &grant, names[i / 2 % (int)n]);
		/* Its queue is there. */
		read_one(&t->lost[i]);
		answer_one(&t->lost[i]);
	}
}

static void begin(struct run *t, bool rdma)
{
	begin_at(t, rdma, 1);
}

static void end(struct run *t)
{
	void *state = t->fx;

	target_delay(t->near, 0, false);
	target_release(t->near);
	raw_close(&t->healthy);
	for (int i = 0; i < SESSIONS; i++)
		raw_close(&t->lost[i]);
	assert_int_equal(fx_teardown(&state), 0);
	target_finish(t->near, t->rdma);
	for (unsigned i = 0; i < t->n_far; i++)
		target_finish(t->far[i], t->rdma);
	dp_test_switches = (struct dp_test_switches){0};
	fx_rdma_device = fx_rdma_host = NULL;
}

static void push(struct run *t)
{
	for (int i = 0; i < SESSIONS; i++)
		for (unsigned n = 0; n < PUSHED; n++)
			read_one(&t->lost[i]);
}

static uint32_t waiting(void *arg)
{
	struct target_stats s;

	target_stats(arg, &s);
	return s.waiting;
}

/* Until it is at least @least. */
static uint32_t grown(uint32_t (*of)(void *arg), void *arg, uint32_t least)
{
	uint32_t now;

	AWAIT((now = of(arg)) >= least);
	return now;
}

/* Until it does not change any more. */
static uint32_t settled(uint32_t (*of)(void *arg), void *arg)
{
	uint32_t was, now = of(arg), same = 0;

	while (same < 10) {
		was = now;
		/* poll: until nothing more comes */
		usleep(20000);
		now = of(arg);
		same = now == was ? same + 1 : 0;
	}
	return now;
}

/* How many reads of the healthy tenant its target has, and answers, in TURNS turns; DEPTH are in
 * flight. @expected: of each turn; 0 = whatever comes. */
static uint32_t done_in_turns(struct run *t, uint32_t expected)
{
	uint32_t done = 0;

	target_delay(t->near, HOUR_MS, false);
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t n;

		for (; t->in_flight < t->depth; t->in_flight++)
			read_one(&t->healthy);
		n = expected ? grown(waiting, t->near, expected) : settled(waiting, t->near);
		target_release(t->near);
		for (uint32_t i = 0; i < n; t->in_flight--, i++)
			answer_one(&t->healthy);
		done += n;
	}
	return done;
}

static void lose(struct run *t, bool hangs)
{
	for (unsigned i = 0; i < t->n_far; i++) {
		if (hangs)
			target_freeze(t->far[i], true);
		else
			target_stop(t->far[i]);
	}
}

static void come_back(struct run *t, bool hangs)
{
	for (unsigned i = 0; i < t->n_far; i++) {
		if (hangs)
			target_freeze(t->far[i], false);
		else
			assert_int_equal(target_start(t->far[i]), 0);
	}
}

static void lost_target__takes_no_turn_of_a_tenant_at_another(bool rdma, bool hangs)
{
	uint32_t alone, inside;
	struct run t;

	begin(&t, rdma);
	alone = done_in_turns(&t, DEPTH);
	assert_int_equal(alone, TURNS * DEPTH);
	lose(&t, hangs);
	push(&t);
	grown(parked, NULL, SESSIONS);
	inside = settled(parked, NULL);
	/* The first few of each tenant at each reactor; one that hangs is known to only after. */
	assert_true(inside >= SESSIONS);
	if (!hangs)
		assert_true(inside <= SESSIONS * NVMF_WAITERS_MAX);
	assert_int_equal(done_in_turns(&t, DEPTH), alone);
	come_back(&t, hangs);
	/* Nothing was lost on the way. */
	for (int i = 0; i < SESSIONS; i++)
		for (unsigned n = 0; n < PUSHED; n++)
			answer_one(&t.lost[i]);
	end(&t);
}

/* Several at once: what each has by the time that it is known to hang stays with it. Together they
 * leave a tenant of another its turns all the same. */
static void over_tcp__several_targets_that_hang(void **state)
{
	uint32_t alone;
	struct run t;

	begin_at(&t, false, FARS);
	t.depth = SHARE;
	alone = done_in_turns(&t, SHARE);
	lose(&t, true);
	push(&t);
	grown(parked, NULL, SESSIONS);
	(void)settled(parked, NULL);
	assert_int_equal(done_in_turns(&t, SHARE), alone);
	come_back(&t, true);
	for (int i = 0; i < SESSIONS; i++)
		for (unsigned n = 0; n < PUSHED; n++)
			answer_one(&t.lost[i]);
	end(&t);
}

static void over_tcp__a_target_that_is_gone(void **state)
{
	lost_target__takes_no_turn_of_a_tenant_at_another(false, false);
}

static void over_tcp__a_target_that_hangs(void **state)
{
	lost_target__takes_no_turn_of_a_tenant_at_another(false, true);
}

static void over_rdma__a_target_that_is_gone(void **state)
{
	lost_target__takes_no_turn_of_a_tenant_at_another(true, false);
}

static void over_rdma__a_target_that_hangs(void **state)
{
	lost_target__takes_no_turn_of_a_tenant_at_another(true, true);
}

static void write_one(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_WRITE, 0, FX_BASE, IO);

	h.flags = WIRE_F_INLINE;
	raw_send(c, &h, buf, IO);
}

/* Writes that come with their data, of a tenant that has its first buffers, while the buffers for
 * what waits for a target that hangs are used up: how many of all answers are BUSY. */
static uint32_t busy_writes(struct run *t)
{
	struct wire_header h;
	uint32_t busy = 0;

	lose(t, true);
	push(t);
	grown(parked, NULL, SESSIONS);
	(void)settled(parked, NULL);
	for (int i = 0; i < SESSIONS; i++)
		write_one(&t->lost[i]);
	/* Without the shares there is no answer before it has come back. */
	if (!dp_test_switches.no_lost_share) {
		for (int i = 0; i < SESSIONS; i++) {
			assert_true(raw_recv(&t->lost[i], &h, buf, sizeof(buf)));
			assert_int_equal(h.opcode, WIRE_NAK);
			assert_int_equal(h.status, ROS2_BUSY);
			busy++;
		}
		/* It costs nobody at another target anything. */
		assert_int_equal(raw_write(&t->healthy, 0, buf, IO, true), ROS2_OK);
	}
	come_back(t, true);
	for (int i = 0; i < SESSIONS; i++)
		for (unsigned n = 0; n < PUSHED + (dp_test_switches.no_lost_share ? 1 : 0); n++)
			answer_one(&t->lost[i]);
	/* And is nothing that stays. */
	for (int i = 0; i < SESSIONS; i++)
		assert_int_equal(raw_write(&t->lost[i], 0, buf, IO, true), ROS2_OK);
	return busy;
}

static void writes_for_a_target_that_hangs__answer_busy_when_its_buffers_are_used_up(void **state)
{
	struct run t;

	begin(&t, false);
	assert_int_equal(busy_writes(&t), SESSIONS);
	end(&t);
}

static void closed(void *arg, const struct dp_result *res)
{
}

/* Does not wait for what is still inside an engine. */
static void do_close(void *arg)
{
	struct run *t = arg;

	for (int i = 0; i < SESSIONS; i++)
		dp_session_close(t->fx->dp, &t->lost[i].session, ROS2_CLOSED, closed, NULL);
}

/* All sessions at the far target end, perhaps with a write that it has not answered and never will.
 * How long after that does another document get its blocks? */
static uint64_t blocks_go_over_ns(struct run *t, bool outstanding)
{
	uint64_t begun;
	struct put p;

	if (outstanding) {
		target_delay(t->far[0], HOUR_MS, true);
		write_one(&t->lost[0]);
		assert_int_equal(grown(waiting, t->far[0], 1), 1);
	}
	begun = clock_boottime_ns();
	target_stop(t->far[0]);
	loop_call(t->fx->loop, do_close, t);
	/* Until the sessions have ended, and what they began. */
	AWAIT((p = engine_try(t, "third", t->far[0], 2u << 20)).rc == 0 ||
	      p.err.status != ROS2_BUSY);
	assert_int_equal(p.rc, 0);
	return clock_boottime_ns() - begun;
}

/* A write of unknown outcome may come late: until it cannot any more its blocks are in no other
 * document, whose controllers know nothing of it. Without one it is the end of the sessions alone
 * that is waited for. */
static void document__gets_no_blocks_of_another_with_a_write_of_unknown_outcome(void **state)
{
	struct run t;
	uint64_t with;

	quiesce_ms = 2000;
	begin(&t, false);
	with = blocks_go_over_ns(&t, true);
	end(&t);
	begin(&t, false);
	(void)blocks_go_over_ns(&t, false);
	end(&t);
	quiesce_ms = 0;
	assert_true(with >= 2000 * NS_PER_MS);
}

/* The control: they wait, and what they are in front of with them. */
static void without_the_shares__they_wait(void **state)
{
	struct run t;

	dp_test_switches.no_lost_share = true;
	begin(&t, false);
	assert_int_equal(busy_writes(&t), 0);
	end(&t);
}

/* The control. */
static void without_the_shares__they_take_its_turns(void **state)
{
	uint32_t alone, beside;
	struct run t;

	dp_test_switches.no_lost_share = true;
	begin(&t, false);
	alone = done_in_turns(&t, DEPTH);
	lose(&t, true);
	push(&t);
	grown(parked, NULL, SESSIONS);
	(void)settled(parked, NULL);
	beside = done_in_turns(&t, 0);
	if (beside * 10 >= alone * 9)
		fail_msg("alone %u in %u turns, beside %d others %u", alone, TURNS, LOST, beside);
	come_back(&t, true);
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_tcp__a_target_that_is_gone),
		cmocka_unit_test(over_tcp__a_target_that_hangs),
		cmocka_unit_test(over_tcp__several_targets_that_hang),
		cmocka_unit_test(over_rdma__a_target_that_is_gone),
		cmocka_unit_test(over_rdma__a_target_that_hangs),
		cmocka_unit_test(without_the_shares__they_take_its_turns),
		cmocka_unit_test(
			writes_for_a_target_that_hangs__answer_busy_when_its_buffers_are_used_up),
		cmocka_unit_test(without_the_shares__they_wait),
		cmocka_unit_test(
			document__gets_no_blocks_of_another_with_a_write_of_unknown_outcome),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one tenant's lost target keeps from others, over fake queues: places of a reactor, buffers,
 * and the order of writes when a volume changes hands.
 */
#include "common/clock.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/nvmf/engine_rig.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define MANY 24u

struct dp_test_switches dp_test_switches; /* of admin.c: CMakeLists.txt */

static unsigned unneeded;

static void on_unneeded(struct engine_io *io)
{
	unneeded++;
}

/* As the data plane does it. */
static void submit(struct rig *g, struct rig_io *i, enum engine_op op, uint64_t offset)
{
	rig_blank(i, g->all, op, offset, 512, g->buf);
	i->io.may_return = true;
	i->io.unneeded = on_unneeded;
	assert_int_equal(g->ops->submit(g->r, &i->io), 0);
}

static uint32_t ended(const struct rig_io *ios, int64_t res)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MANY; i++)
		n += ios[i].done && ios[i].res == res;
	return n;
}

static void turn_until(struct rig *g, const struct rig_io *ios, int64_t res, uint32_t n)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;

	while (ended(ios, res) < n) {
		rig_turn(g, 5);
		assert_true(clock_monotonic_ns() < until);
	}
}

static void nvmf_lane__keeps_the_oldest_and_gives_the_others_back(void **state)
{
	static struct rig_io ios[MANY];
	struct rig *g = *state;

	assert_true(g->ops->away(g->r, g->all)); /* nothing is known yet */
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	assert_false(g->ops->away(g->r, g->all));
	assert_int_equal(g->ops->parked(g->r), 0);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_READ + 1, .action = FAKE_HANG});
	for (uint32_t i = 0; i < MANY; i++)
		submit(g, &ios[i], ENGINE_OP_READ, 0);
	rig_turn(g, 5);
	/* It hangs: nobody has said so, but nothing of it is answered. */
	while (!g->ops->away(g->r, g->all))
		rig_turn(g, 5);
	assert_int_equal(g->ops->parked(g->r), MANY);
	assert_int_equal(ended(ios, ENGINE_AWAY), 0);
	fake_refuse(true);
	fake_cut();
	turn_until(g, ios, ENGINE_AWAY, MANY - NVMF_WAITERS_MAX);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(ios[i].done, i >= NVMF_WAITERS_MAX);
	assert_true(ios[MANY - 1].order < ios[NVMF_WAITERS_MAX].order);
	assert_int_equal(g->ops->parked(g->r), NVMF_WAITERS_MAX);
	fake_rules_off();
	fake_refuse(false);
	turn_until(g, ios, 512, NVMF_WAITERS_MAX);
	assert_false(g->ops->away(g->r, g->all));
}

/* A tick while a request that was refused at once waits for its poll, and the queue is not open
 * yet: it is not one that has waited in vain. */
static void nvmf_lane__is_not_given_up_for_what_was_refused_at_once(void **state)
{
	static struct rig_io refused;
	struct rig *g = *state;
	struct nvmf_lane *l;

	submit(g, &refused, ENGINE_OP_WRITE, (uint64_t)1 << 50);
	assert_false(refused.done);
	l = list_first(&g->r->lanes, struct nvmf_lane, link);
	assert_int_not_equal(l->state, LANE_READY);
	nvmf_lane_tick(l, clock_boottime_ns());
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	assert_true(refused.done);
	assert_int_equal(refused.res, -ERANGE);
}

static void nvmf_lane__answers_what_was_given_back_when_it_has_given_up(void **state)
{
	static struct rig_io ios[MANY];
	struct rig *g = *state;

	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_READ + 1, .action = FAKE_HANG});
	for (uint32_t i = 0; i < MANY; i++)
		submit(g, &ios[i], ENGINE_OP_READ, 0);
	rig_turn(g, 5);
	fake_refuse(true);
	fake_cut();
	turn_until(g, ios, -ENOTCONN, NVMF_WAITERS_MAX);
	assert_int_equal(ended(ios, ENGINE_AWAY), MANY - NVMF_WAITERS_MAX);
	/* From now on there is no reason to keep the others. */
	assert_false(g->ops->away(g->r, g->all));
	submit(g, &ios[MANY - 1], ENGINE_OP_READ, 0);
	rig_turn(g, 0);
	assert_true(ios[MANY - 1].done);
	assert_int_equal(ios[MANY - 1].res, -ENOTCONN);
	fake_rules_off();
	fake_refuse(false);
	rig_until(g, NVMF_CTRL_LIVE);
}

static void nvmf_lane__lets_go_of_the_buffer_of_a_write_of_unknown_outcome(void **state)
{
	static struct rig_io ios[MANY];
	struct rig *g = *state;

	unneeded = 0;
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .action = FAKE_HANG});
	submit(g, &ios[0], ENGINE_OP_WRITE, 0);
	rig_turn(g, 5);
	fake_cut();
	while (!unneeded)
		rig_turn(g, 5);
	assert_false(ios[0].done);
	assert_int_equal(rig_wait(g, &ios[0]), -EREMOTEIO);
	assert_int_equal(unneeded, 1);
}

/* ---- a volume that changes hands ---- */

struct other {
	struct engine_ns *ns;
	struct engine_file *f, *part;
};

/* Another tenant gets what was the first one's directory, as when a document is changed. */
static void other_open(struct rig *g, struct other *o)
{
	const struct engine_who who = {{{8}}, "tenant-b"};
	uint32_t rw = ENGINE_READ | ENGINE_WRITE;

	assert_int_equal(g->ops->ns_open(g->e, &who, "t/a", &o->ns, NULL), 0);
	assert_int_equal(g->ops->open(o->ns, "all", rw, 0, &o->f, NULL, NULL), 0);
	assert_int_equal(g->ops->open(o->ns, "part", rw, 0, &o->part, NULL, NULL), 0);
	assert_ptr_not_equal(o->f->ctrl, g->all->ctrl);
}

static void other_close(struct rig *g, struct other *o)
{
	g->ops->close(o->f);
	g->ops->close(o->part);
	g->ops->ns_close(o->ns);
}

/* The first tenant's target goes with two of its writes in it, which happen late. */
static void lose_with_writes(struct rig *g, struct rig_io w[2])
{
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 2, .action = FAKE_HANG});
	memset(g->buf, 1, 4096);
	rig_submit(g, &w[0], g->all, ENGINE_OP_WRITE, 4096, 4096, g->buf);
	rig_submit(g, &w[1], g->all, ENGINE_OP_WRITE, 32768, 4096, g->buf);
	rig_turn(g, 20);
	fake_cut();
	while (rig_health(g).lives < 2)
		rig_turn(g, 5);
}

static void nvmf_fence__holds_for_who_gets_the_volume(void **state)
{
	struct rig_io w[2], over, between, beside, elsewhere;
	uint8_t two[8192], back[512];
	struct other o;
	struct rig g;

	rig_init(&g);
	g.config.quiesce_ms = 1500; /* long enough to look around */
	g.config.command_timeout_ms = 2000;
	rig_start(&g);
	lose_with_writes(&g, w);
	other_open(&g, &o);
	memset(two, 2, sizeof(two));
	rig_submit(&g, &over, o.f, ENGINE_OP_WRITE, 0, 8192, two);
	rig_submit(&g, &between, o.f, ENGINE_OP_WRITE, 16384, 512, two);
	rig_submit(&g, &beside, o.f, ENGINE_OP_WRITE, 65536, 8192, two);
	rig_submit(&g, &elsewhere, o.part, ENGINE_OP_WRITE, 0, 8192, two);
	assert_int_equal(rig_wait(&g, &beside), 8192);
	assert_int_equal(rig_wait(&g, &elsewhere), 8192);
	assert_int_equal(rig_io(&g, o.f, ENGINE_OP_READ, 4096, 512, back), 512);
	assert_false(w[0].done || w[1].done || over.done || between.done);
	fake_orphans();
	assert_int_equal(rig_wait(&g, &over), 8192);
	assert_int_equal(rig_wait(&g, &between), 512);
	assert_int_equal(rig_wait(&g, &w[0]), -EREMOTEIO);
	assert_int_equal(rig_wait(&g, &w[1]), -EREMOTEIO);
	for (uint32_t i = 0; i < 8192; i++)
		assert_int_equal(fake_media(1)[i], 2);
	assert_int_equal(fake_media(1)[32768], 1);
	/* It is over, for both. */
	assert_int_equal(rig_io(&g, o.f, ENGINE_OP_WRITE, 32768, 4096, two), 4096);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 4096, 4096, two), 4096);
	other_close(&g, &o);
	rig_stop(&g);
}

/* As before, with a time to quiesce that is not true: the old write comes last. */
static void nvmf_fence__without_it_the_old_tenants_write_comes_last(void **state)
{
	struct rig_io w[2], over;
	uint8_t two[8192];
	struct other o;
	struct rig g;

	rig_init(&g);
	g.config.quiesce_ms = 1;
	rig_start(&g);
	lose_with_writes(&g, w);
	other_open(&g, &o);
	memset(two, 2, sizeof(two));
	rig_submit(&g, &over, o.f, ENGINE_OP_WRITE, 0, 8192, two);
	assert_int_equal(rig_wait(&g, &over), 8192);
	fake_orphans();
	assert_int_equal(fake_media(1)[4096], 1);
	assert_int_equal(rig_wait(&g, &w[0]), -EREMOTEIO);
	assert_int_equal(rig_wait(&g, &w[1]), -EREMOTEIO);
	other_close(&g, &o);
	rig_stop(&g);
}

static void nvmf_engine__says_whose_memory_it_uses(void **state)
{
	const struct engine_who who = {{{8}}, "tenant-b"};
	struct rig *g = *state;
	struct engine_ns *ns;

	assert_true(g->ops->uses(g->e, &rig_who.uid));
	assert_false(g->ops->uses(g->e, &who.uid));
	assert_true(g->ops->lost(g->e, &who.uid) == false); /* others' is live */
	assert_int_equal(g->ops->ns_open(g->e, &who, "t/b", &ns, NULL), 0);
	assert_true(g->ops->uses(g->e, &who.uid));
	g->ops->ns_close(ns);
	while (g->ops->uses(g->e, &who.uid))
		rig_nap();
	assert_int_equal(fake_stats().shutdowns, 1);
}

static uint32_t shutting(struct rig *g)
{
	struct nvmf_admin *a = g->e->admin;
	uint32_t n = 0;

	pthread_mutex_lock(&a->lock);
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		n += a->ctrls[i] && nvmf_ctrl_view(a->ctrls[i]).state == NVMF_CTRL_SHUTDOWN;
	pthread_mutex_unlock(&a->lock);
	return n;
}

struct told {
	const char *tenant;
	uint32_t n, live;
};

static void tell(void *arg, const struct engine_health *h)
{
	struct told *t = arg;
	bool is = !strcmp(h->name, t->tenant);

	t->n += is;
	t->live += is && h->live;
}

/* Beats and metrics have one row for a tenant at an engine: also of one that has come again while
 * its controllers of before have not gone, and of a new tenant of that name. */
static void nvmf_engine__tells_one_controller_of_a_tenant(void **state)
{
	struct engine_who who = {{{8}}, "tenant-b"};
	struct told t = {.tenant = who.name};
	struct rig *g = *state;
	struct engine_ns *ns;
	int rc;

	for (uint32_t n = 1; n <= 3; n++) {
		who.uid.b[1] = n == 3;
		assert_int_equal(g->ops->ns_open(g->e, &who, "t/b", &ns, NULL), 0);
		t.n = t.live = 0;
		g->ops->health(g->e, tell, &t);
		assert_int_equal(t.n, 1);
		assert_int_equal(t.live, 1);
		assert_non_null(nvmf_lane_of(g->r, ns->ctrl, &rc));
		g->ops->ns_close(ns);
		assert_true(AWAIT(shutting(g) == n));
	}
	t.n = t.live = 0;
	g->ops->health(g->e, tell, &t);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.live, 0);
	assert_true(AWAIT((rig_turn(g, 5), shutting(g) == 0)));
}

/* How often it could. */
static uint32_t come_and_go(struct rig *g, const struct engine_who *who, struct ros2_err *err)
{
	struct engine_ns *ns;
	uint32_t n = 0;
	int rc;

	while (n < NVMF_CTRLS_MAX && g->ops->ns_open(g->e, who, "t/b", &ns, err) == 0) {
		assert_non_null(nvmf_lane_of(g->r, ns->ctrl, &rc));
		g->ops->ns_close(ns);
		n++;
		assert_true(AWAIT(shutting(g) == n));
	}
	return n;
}

/* The end of a controller may take its time, at the target or at a reactor (here), in which it has
 * its place; each that comes anew gets one of its own. */
static void nvmf_engine__who_comes_and_goes_leaves_controllers_to_others(void **state)
{
	const struct engine_who busy = {{{8}}, "tenant-b"}, other = {{{9}}, "tenant-c"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rig *g = *state;
	struct engine_ns *ns;
	uint32_t n = come_and_go(g, &busy, &err);

	assert_int_equal(g->ops->ns_open(g->e, &other, "t/b", &ns, NULL), 0);
	g->ops->ns_close(ns);
	assert_int_equal(n, NVMF_CTRLS_EACH);
	assert_int_equal(err.status, ROS2_BUSY);
	assert_non_null(strstr(err.msg, "controllers of the tenant at an nvmf engine: the limit is "
	                                "16 (fixed)"));
	/* Some of its own have gone, and it may come again. */
	assert_true(AWAIT((rig_turn(g, 5), shutting(g) == 0)));
	assert_int_equal(g->ops->ns_open(g->e, &busy, "t/b", &ns, NULL), 0);
	g->ops->ns_close(ns);
}

static void control__without_its_share_one_tenant_has_all_controllers(void **state)
{
	const struct engine_who busy = {{{8}}, "tenant-b"}, other = {{{9}}, "tenant-c"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rig *g = *state;
	struct engine_ns *ns;

	dp_test_switches.no_ctrl_share = true;
	/* But the one that the rig's own tenant has. */
	assert_int_equal(come_and_go(g, &busy, &err), NVMF_CTRLS_MAX - 1);
	assert_int_equal(g->ops->ns_open(g->e, &other, "t/b", &ns, &err), -EDQUOT);
	assert_non_null(strstr(err.msg, "controllers of an nvmf engine: the limit is 256 (fixed)"));
	dp_test_switches.no_ctrl_share = false;
	assert_true(AWAIT((rig_turn(g, 5), shutting(g) == 0)));
}

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(nvmf_lane__keeps_the_oldest_and_gives_the_others_back),
		RIG_TEST(nvmf_lane__is_not_given_up_for_what_was_refused_at_once),
		RIG_TEST(nvmf_lane__answers_what_was_given_back_when_it_has_given_up),
		RIG_TEST(nvmf_lane__lets_go_of_the_buffer_of_a_write_of_unknown_outcome),
		cmocka_unit_test(nvmf_fence__holds_for_who_gets_the_volume),
		cmocka_unit_test(nvmf_fence__without_it_the_old_tenants_write_comes_last),
		RIG_TEST(nvmf_engine__says_whose_memory_it_uses),
		RIG_TEST(nvmf_engine__who_comes_and_goes_leaves_controllers_to_others),
		RIG_TEST(control__without_its_share_one_tenant_has_all_controllers),
		RIG_TEST(nvmf_engine__tells_one_controller_of_a_tenant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

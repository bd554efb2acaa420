/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenants' bundle without one authority comes while each allocation of the agent's loop fails,
 * once and for good. In the end it is in force, by itself or with the next stream, and there is a
 * record, or one that says that one is missing: whom it names no more has lost his session and his
 * connection, who is named by both bundles notices nothing.
 */
#include "agent/bundles.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include <errno.h>

/* What is tried again later is tried soon. */
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, ms >= 200 && ms <= 10000 ? ms / 20 : ms, fn, arg);
}

struct given {
	struct world *w;
	char *pem; /* owned */
	size_t len;
};

static struct given read_bundle(struct world *w, const char *a, const char *b)
{
	AUTO_FREE char *pa = NULL, *pb = NULL;
	struct given g = {.w = w};
	char path[4200];
	size_t n;

	testing_path(path, w->dir, a);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pa, &n, NULL), 0);
	if (b) {
		testing_path(path, w->dir, b);
		assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pb, &n, NULL), 0);
	}
	g.len = (size_t)asprintf(&g.pem, "%s%s", pa, pb ? pb : "");
	return g;
}

static void take(void *arg)
{
	struct given *g = arg;

	bundles_take(g->w->agent->bundles, BUNDLE_TENANT, g->pem, g->len);
}

/* Records of reloads, or that say that records are missing. */
static unsigned reloads(struct world *w)
{
	static const char *const words[] = {"trust.reload", "audit.gap"};
	unsigned n = 0;

	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		for (const char *p = w->actions; (p = strstr(p, words[i])); p++)
			n++;
	pthread_mutex_unlock(&w->lock);
	return n;
}

static enum ros2_status stat_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.handle = 77;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, NULL);
}
#define WORKS ROS2_BAD_HANDLE /* it got as far as that */

struct seen {
	struct world *w;
	bool trouble, writing;
};

static void look(void *arg)
{
	struct seen *s = arg;

	s->trouble = bundles_failed(s->w->agent->bundles) != NULL;
	s->writing = bundles_writing(s->w->agent->bundles);
}

/* On the loop, that owns it. */
static struct seen see(struct world *w)
{
	struct seen s = {w};

	loop_call(w->loop, look, &s);
	return s;
}

/* And it has been written, or not. */
static void give(struct world *w, struct given *g)
{
	loop_call(w->loop, take, g);
	assert_true(AWAIT(!see(w).writing));
}

/* Its data connection, too. */
static void open_as(struct world *w, struct rpc_channel *c, struct ros2_uid *ret)
{
	assert_int_equal(world_open_session(c, ret), ROS2_OK);
	fake_dp_connect(w->agent->dp, ret);
}

/* A stream that ended for want of memory may bring the other bundle behind the one that was given.
 */
static bool opens_with(struct world *w, struct given *g, struct rpc_channel *c,
                       struct ros2_uid *ret)
{
	give(w, g);
	return world_open_session(c, ret) == ROS2_OK;
}

static void bundle__without_memory_is_in_force_or_not_and_in_the_end_it_is(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "agent"};
	struct world *w = calloc(1, sizeof(*w));
	struct rpc_channel *a, *a2;
	struct given both, one;
	struct ros2_uid sa, sa2;

	world_start(w);
	world_make_ca(w->dir, "tenant2");
	world_issue(w->dir, "tenant2", "alpha2", FIX_ALPHA);
	both = read_bundle(w, "tenant.crt", "tenant2.crt");
	one = read_bundle(w, "tenant.crt", NULL);
	world_agent_start(w);
	world_populate(w);
	give(w, &both);
	a = world_tenant(w, "alpha");
	a2 = world_tenant(w, "alpha2");
	open_as(w, a, &sa);
	w->tenant_bundle = "tenant.crt"; /* what comes with a new stream */
	for (;;) {
		unsigned n = reloads(w);

		assert_true(AWAIT(opens_with(w, &both, a2, &sa2)));
		fake_dp_connect(w->agent->dp, &sa2);
		if (!sweep_next(&s))
			break;
		give(w, &one);
		sweep_off();
		assert_int_equal(stat_as(a, &sa), WORKS);
		if (!AWAIT(fake_dp_sessions() == 1))
			fail_msg("allocation %u%s: his session goes on", s.at,
			         s.persistent ? " and on" : "");
		assert_int_equal(stat_as(a2, &sa2), ROS2_UNAUTHENTICATED);
		assert_int_equal(stat_as(a, &sa), WORKS);
		assert_true(AWAIT(reloads(w) > n));
		assert_true(AWAIT(!see(w).trouble));
		n = reloads(w);
		give(w, &both);
		assert_true(AWAIT(reloads(w) > n));
	}
	assert_true(s.points > 4);
	rpc_channel_free(a);
	rpc_channel_free(a2);
	world_stop(w);
	free(both.pem);
	free(one.pem);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bundle__without_memory_is_in_force_or_not_and_in_the_end_it_is),
	};

	/* The program's own name begins as the loop's. */
	pthread_setname_np(pthread_self(), "test");
	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

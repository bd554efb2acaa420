/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A revocation for which there is no memory: what it ends is ended, and the stream ends, too, so
 * that the controller sends it again; then it is recorded and answered.
 */
#include "agent/agent.h"
#include "agent/health.h"
#include "common/fsx.h"
#include "common/log.h"
#include "tests/agent/fake_dp.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <errno.h>
#include <unistd.h>

static _Atomic int failing;

struct told {
	struct world *w;
	bool is;
};

int __real_revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
int __wrap_revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
int __wrap_revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err)
{
	if (failing)
		return ros2_err_set(err, -ENOMEM, "no memory");
	return __real_revlog_add(l, t, err);
}

static void revoke__without_memory_is_asked_for_again(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rpc_channel *alpha;
	struct ros2_uid session;
	unsigned before;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	alpha = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(alpha, &session), ROS2_OK);
	before = fake_dp_log.revokes;
	failing = 1;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->hellos, 2); /* the stream ended, and another began */
	assert_int_equal(w->receipts, 0);
	assert_int_equal(fake_dp_log.revokes, before + 1); /* carried out all the same */
	assert_int_equal(fake_dp_log.last_scope, DP_SCOPE_TENANT);
	failing = 0;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_true(w->last_durable);
	assert_int_not_equal(world_open_session(alpha, &session), ROS2_OK);
	rpc_channel_free(alpha);
	world_stop(w);
	free(w);
}

static const struct fsx_ops *real_io;
static _Atomic bool disk_full; /* for the snapshot */

static ssize_t full_write(int fd, const void *p, size_t n)
{
	char link[64], path[4200];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = disk_full ? readlink(link, path, sizeof(path) - 1) : 0;
	path[len > 0 ? len : 0] = '\0';
	if (!strstr(path, "snapshot"))
		return real_io->write(fd, p, n);
	errno = ENOSPC;
	return -1;
}

/* Until it comes again nothing of the tenant does: not by a document that waits either, which the
 * data plane would be given under another uid. */
static void revoke__without_memory_holds_against_a_document_that_waits(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	Ros2__V1__AgentObject *o;
	struct rpc_channel *alpha;
	struct ros2_uid session;
	unsigned revokes;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	alpha = world_tenant(w, "alpha");
	disk_full = true;
	o = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 2);
	world_send(w, &o, 1, false);
	world_wait(w, &w->failed, 1);
	failing = 1;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 2);
	world_wait(w, &w->hellos, 2);
	disk_full = false;
	world_wait_stored(w);
	assert_int_equal(world_open_session(alpha, &session), ROS2_REVOKED);
	/* One of before its reinstatement, which comes late, takes nothing. */
	o = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 3);
	world_send(w, &o, 1, false);
	assert_true(AWAIT(world_open_session(alpha, &session) == ROS2_OK));
	revokes = fake_dp_log.revokes;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 2);
	world_wait(w, &w->hellos, 3);
	assert_int_equal(fake_dp_log.revokes, revokes);
	failing = 0;
	rpc_channel_free(alpha);
	world_stop(w);
	free(w);
}

static void close_session(struct rpc_channel *c, const struct ros2_uid *session)
{
	Ros2__V1__SessionRef ref = ROS2__V1__SESSION_REF__INIT;

	ref.session_uid = (ProtobufCBinaryData){16, (uint8_t *)session->b};
	assert_int_equal(world_call(c, &ros2_v1_tenant_close_session, &ref.base, NULL, NULL),
	                 ROS2_OK);
}

/* Alpha has a grant that no session uses. @kind and @seed name what is revoked without memory. */
static void expect_idle_grant_to_end(enum obj_kind kind, uint8_t seed, uint64_t version,
                                     bool reinstated)
{
	struct world *w = calloc(1, sizeof(*w));
	Ros2__V1__AgentObject *o;
	struct rpc_channel *alpha;
	struct ros2_uid session;
	unsigned asked;

	world_start(w);
	world_agent_start(w);
	world_populate(w);
	alpha = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(alpha, &session), ROS2_OK);
	close_session(alpha, &session);
	if (reinstated) {
		o = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, version + 1);
		world_send(w, &o, 1, false);
		world_wait(w, &w->applied, 4);
	}
	asked = w->grant_requests;
	assert_int_equal(world_open_session(alpha, &session), ROS2_OK);
	close_session(alpha, &session);
	assert_int_equal(w->grant_requests, asked); /* it is used again, while it lives */
	failing = 1;
	world_revoke(w, kind, seed, version);
	world_wait(w, &w->hellos, 2);
	assert_true(AWAIT(world_open_session(alpha, &session) == ROS2_OK));
	assert_int_equal(w->grant_requests, asked + 1);
	failing = 0;
	rpc_channel_free(alpha);
	world_stop(w);
	free(w);
}

static void revoke__of_the_agent_without_memory_ends_grants_that_are_idle(void **state)
{
	(void)state;
	expect_idle_grant_to_end(OBJ_AGENT, 1, 1, false);
}

static void revoke__of_a_grant_without_memory_ends_it_while_idle(void **state)
{
	(void)state;
	expect_idle_grant_to_end(OBJ_GRANT, WORLD_FIRST_GRANT_SEED, 1, false);
}

/* What comes before the reinstatement names the grants of before it. */
static void revoke__overtaken_without_memory_ends_the_grants_of_before(void **state)
{
	(void)state;
	expect_idle_grant_to_end(OBJ_TENANT, WORLD_ALPHA_SEED, 2, true);
}

static bool frozen_is_told(struct world *w)
{
	return health_condition(w->agent->health, HEALTH_FROZEN)->is;
}

static void look(void *arg)
{
	struct told *t = arg;

	t->is = frozen_is_told(t->w);
}

static void wait_told(struct world *w, bool is)
{
	struct told t = {w, !is};

	/* It looks at its health once a second. */
	AWAIT((loop_call(w->loop, look, &t), t.is == is));
	assert_int_equal(t.is, is);
}

/* The agent holds it, the data plane cannot: asked again until it can. */
static void revoke__that_the_data_plane_cannot_hold_is_asked_again(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	fake_dp_no_memory = true;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	wait_told(w, true);
	assert_int_equal(w->receipts, 0);
	assert_int_equal(fake_dp_log.thaws, 0);
	assert_int_equal(w->hellos, 1); /* the stream went on: nothing has to be sent again */
	fake_dp_no_memory = false;
	world_wait(w, &w->receipts, 1);
	assert_true(w->last_durable);
	wait_told(w, false);
	assert_int_equal(fake_dp_log.thaws, 1);
	world_stop(w);
	free(w);
}

/* Nobody holds it: frozen until the controller has sent all it owes, on another stream. */
static void revoke__that_is_lost_keeps_it_frozen_until_it_came_again(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	Ros2__V1__AgentObject *objs[1];
	unsigned beats;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	fake_dp_no_memory = true;
	failing = 1;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->hellos, 2);
	fake_dp_no_memory = false;
	failing = 0;
	/* The agent would thaw within a second: its health is looked at as often. */
	wait_told(w, true);
	beats = w->beats;
	world_wait(w, &w->beats, beats + 30); /* of 100 ms */
	assert_int_equal(fake_dp_log.thaws, 0);
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_true(w->last_durable);
	objs[0] = fix_engine(&w->f, "files", 1, 1);
	assert_int_equal(fake_dp_log.thaws, 0); /* there may be others behind it */
	world_send(w, objs, 1, true);
	wait_told(w, false);
	assert_int_equal(fake_dp_log.thaws, 1);
	world_stop(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(revoke__without_memory_is_asked_for_again),
		cmocka_unit_test(revoke__without_memory_holds_against_a_document_that_waits),
		cmocka_unit_test(revoke__of_the_agent_without_memory_ends_grants_that_are_idle),
		cmocka_unit_test(revoke__of_a_grant_without_memory_ends_it_while_idle),
		cmocka_unit_test(revoke__overtaken_without_memory_ends_the_grants_of_before),
		cmocka_unit_test(revoke__that_the_data_plane_cannot_hold_is_asked_again),
		cmocka_unit_test(revoke__that_is_lost_keeps_it_frozen_until_it_came_again),
	};
	struct fsx_ops io = *fsx_io;

	real_io = fsx_io;
	io.write = full_write;
	fsx_io = &io;
	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

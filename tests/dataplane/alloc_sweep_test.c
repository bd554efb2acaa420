/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept allocations of the data plane's control operations. Without memory what would widen rights
 * is refused with LIMIT; deregistration and every revocation are carried out all the same; then
 * everything works again and nothing is left behind.
 */
#include "tests/dataplane/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>

static void allowed(const struct dp_result *res)
{
	if (res->status != ROS2_OK && res->status != ROS2_LIMIT && res->status != ROS2_BAD_SESSION)
		fail_msg("%s: %s", ros2_status_to_str(res->status), res->words);
}

static void revoked(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid)
{
	struct fx_revoked r = {0};

	fx_revoke(fx, scope, uid, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.draining, 0);
}

/* Goes as far as it is let. */
static void open_all(struct fx *fx, struct fx_args *a)
{
	struct dp_result res = fx_do(fx, FX_OPEN_SESSION, a);
	bool is_open = res.status == ROS2_OK;

	allowed(&res);
	a->to = "ram";
	a->path = "ns";
	a->flags = 3;
	res = fx_do(fx, FX_MOUNT, a);
	allowed(&res);
	if (res.status == ROS2_OK) {
		a->mount = res.mount.mount;
		a->path = "file";
		a->flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
		res = fx_do(fx, FX_OPEN, a);
		allowed(&res);
	}
	a->a = FX_BASE;
	a->b = 1 << 20;
	a->flags = 3;
	res = fx_do(fx, FX_REGISTER, a);
	allowed(&res);
	if (res.status == ROS2_OK) {
		a->key = res.region.key;
		res = fx_do(fx, FX_DEREGISTER, a);
		assert_int_equal(res.status, ROS2_OK);
	}
	assert_true(is_open || !a->key);
}

static void data_plane__without_memory_refuses_and_still_revokes(void **state)
{
	struct fx *fx = *state;
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	uint8_t byte = 7;

	while (sweep_next(&s)) {
		struct fx_args a = {.session = ros2_uid_new(),
		                    .tenant = fx->tenant,
		                    .grant = fx->grant,
		                    .a = UINT64_MAX};
		struct ros2_uid unknown = ros2_uid_new();
		struct dp_lease_info infos[4];
		struct dp_result res;
		struct raw c;

		open_all(fx, &a);
		revoked(fx, DP_SCOPE_SESSION, &a.session);
		revoked(fx, DP_SCOPE_GRANT, &unknown);
		(void)fx_leases(fx, NULL, infos, 4);
		sweep_off();
		res = fx_do(fx, FX_OPEN_SESSION, &a);
		assert_int_equal(res.status, ROS2_REVOKED);
		a.session = ros2_uid_new();
		a.grant = unknown;
		res = fx_do(fx, FX_OPEN_SESSION, &a);
		assert_int_equal(res.status, ROS2_REVOKED);
		assert_int_equal(fx_lease_count(fx), 0);
		raw_ready(fx, &c);
		assert_int_equal(raw_write(&c, 0, &byte, 1, true), ROS2_OK);
		revoked(fx, DP_SCOPE_SESSION, &c.session);
		raw_close(&c);
	}
	assert_true(s.points >= 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			data_plane__without_memory_refuses_and_still_revokes, fx_setup,
			fx_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

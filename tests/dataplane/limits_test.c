/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a tenant's document: what goes beyond one is refused by the name of its field, with
 * the numbers; of all sessions together, and again at a renewal. And those that no document sets.
 */
#include "tests/dataplane/fixture.h"

static struct dp_result try_register(struct raw *c, uint64_t base, uint64_t len, uint32_t access)
{
	struct fx_args a = {.session = c->session, .a = base, .b = len, .flags = access};

	return fx_do(c->fx, FX_REGISTER, &a);
}

/* By the field that sets it, with the numbers. */
static void assert_limit(struct dp_result res, const char *words)
{
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_string_equal(res.words, words);
}

static void lease__is_not_renewed_beyond_what_the_document_allows_by_now(void **state)
{
	struct fx *fx = *state;
	struct dp_tenant_limits was = fx->limits;
	struct dp_result res;
	struct fx_args a;
	struct raw c;

	raw_ready(fx, &c);
	a = (struct fx_args){.session = c.session, .key = c.key};
	assert_int_equal(fx_do(fx, FX_RENEW, &a).status, ROS2_OK);
	fx->limits.access = 1;
	fx_limits(fx);
	res = fx_do(fx, FX_RENEW, &a);
	assert_int_equal(res.status, ROS2_DENIED);
	assert_non_null(strstr(res.words, "access"));
	fx->limits = was;
	fx->limits.region_size_max = 4096;
	fx_limits(fx);
	assert_limit(
		fx_do(fx, FX_RENEW, &a),
		"memory.regionSize: the limits are 4096 to 4096 by now, the lease has 4194304");
	fx->limits = was;
	fx->limits.region_alignment = 1ull << 47;
	fx_limits(fx);
	assert_limit(
		fx_do(fx, FX_RENEW, &a),
		"memory.alignment is 140737488355328 by now, the lease has base 0x7f0000000000");
	fx->limits = was;
	fx->limits.registered_bytes = 4096;
	fx_limits(fx);
	assert_limit(fx_do(fx, FX_RENEW, &a), "memory.registeredBytes of the tenant: the limit is "
	                                      "4096 by now, 4194304 are taken");
	fx->limits = was;
	fx->limits.rkeys_concurrent = 0;
	fx_limits(fx);
	assert_limit(fx_do(fx, FX_RENEW, &a),
	             "rkeys.concurrent of the tenant: the limit is 0 by now, 1 are live");
	fx->limits = was;
	fx->limits.regions = 0;
	fx_limits(fx);
	assert_limit(fx_do(fx, FX_RENEW, &a),
	             "memory.regions of the tenant: the limit is 0 by now, 1 are live");
	fx->limits = was;
	fx->limits.lease_ttl_ms = 50;
	fx_limits(fx);
	a.key = raw_register(&c, FX_BASE, 4096, 1);
	res = fx_do(fx, FX_RENEW, &a);
	assert_int_equal(res.status, ROS2_OK);
	assert_true(res.region.ttl_ms <= 50);
	raw_close(&c);
}

struct renewing {
	struct fx *fx;
	struct dp_grant g;
};

static void do_renew(void *arg)
{
	struct renewing *x = arg;

	assert_int_equal(dp_grant_put(x->fx->dp, &x->g, NULL), 0);
}

static void renew_grant(struct fx *fx, uint32_t max_keys, uint64_t max_bytes, uint32_t access)
{
	struct renewing x = {fx,
	                     {.grant = fx->grant,
	                      .tenant = fx->tenant,
	                      .deadline_ns = UINT64_MAX,
	                      .max_keys = max_keys,
	                      .max_bytes = max_bytes,
	                      .access = access}};

	loop_call(fx->loop, do_renew, &x);
}

static void grant__allows_what_its_renewal_says(void **state)
{
	struct fx *fx = *state;
	struct fx_args a;
	struct raw c;

	raw_open(fx, &c);
	renew_grant(fx, 2, 8192, 1);
	assert_int_equal(try_register(&c, FX_BASE, 4096, 3).status, ROS2_DENIED);
	assert_limit(try_register(&c, FX_BASE, 12288, 1),
	             "memory.registeredBytes, bytes of the grant: the limit is 8192, 0 are taken, "
	             "asked for 12288");
	raw_register(&c, FX_BASE, 4096, 1);
	renew_grant(fx, 1, 8192, 1);
	assert_limit(try_register(&c, FX_BASE, 4096, 1),
	             "rkeys.concurrent, keys of the grant: the limit is 1, 1 are live, asked for 1 "
	             "more");
	renew_grant(fx, 2, 1u << 20, 3);
	a = (struct fx_args){.session = c.session, .key = raw_register(&c, FX_BASE, 65536, 3)};
	assert_int_equal(fx_do(fx, FX_RENEW, &a).status, ROS2_OK);
	renew_grant(fx, 2, 1u << 20, 1);
	assert_int_equal(fx_do(fx, FX_RENEW, &a).status, ROS2_DENIED);
	raw_close(&c);
}

/* In whole ms it would have none, which no client takes for a lease. */
static void lease__that_would_end_at_once_is_refused_and_takes_nothing(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct raw c;
	unsigned i;

	raw_open(fx, &c);
	fx->limits.lease_ttl_ms = 0;
	fx_limits(fx);
	for (i = 0; i <= fx->limits.regions; i++) {
		res = try_register(&c, FX_BASE, 4096, 1);
		assert_int_equal(res.status, ROS2_LEASE_EXPIRED);
		assert_string_equal(res.words, "region: its lease would end within a millisecond");
	}
	fx->limits.lease_ttl_ms = 30000;
	fx_limits(fx);
	res = try_register(&c, FX_BASE, 4096, 1);
	assert_int_equal(res.status, ROS2_OK);
	assert_in_range(res.region.ttl_ms, 1, 30000);
	raw_close(&c);
}

static void region__beyond_a_limit_is_refused_with_the_numbers(void **state)
{
	struct fx *fx = *state;
	struct raw c;

	raw_open(fx, &c);
	assert_limit(try_register(&c, FX_BASE, 32u << 20, 3),
	             "memory.regionSize: the limits are 4096 to 16777216, asked for 33554432");
	assert_limit(try_register(&c, FX_BASE, 4095, 3),
	             "memory.regionSize: the limits are 4096 to 16777216, asked for 4095");
	assert_limit(try_register(&c, FX_BASE + 1, 4096, 3),
	             "memory.alignment is 4096, asked for base 0x7f0000000001");
	assert_int_equal(try_register(&c, FX_BASE, 0, 3).status, ROS2_INVALID);
	assert_int_equal(try_register(&c, UINT64_MAX - 4095, 8192, 3).status, ROS2_INVALID);
	assert_int_equal(try_register(&c, FX_BASE, 4096, 0).status, ROS2_INVALID);
	assert_int_equal(try_register(&c, FX_BASE, 4096, 4).status, ROS2_INVALID);
	for (int i = 0; i < 3; i++)
		raw_register(&c, FX_BASE, 16u << 20, 3);
	assert_limit(
		try_register(&c, FX_BASE, 4096, 3), /* the grant's bytes: 48 MiB */
		"memory.registeredBytes, bytes of the grant: the limit is 50331648, 50331648 are "
		"taken, asked for 4096");
	fx->limits.registered_bytes = 48u << 20;
	fx_limits(fx);
	assert_limit(try_register(&c, FX_BASE, 4096, 3),
	             "memory.registeredBytes of the tenant: the limit is 50331648, 50331648 are "
	             "taken, asked for 4096");
	raw_close(&c);
}

static void region__limits_count_all_sessions_of_a_tenant(void **state)
{
	struct fx *fx = *state;
	struct raw c, d;

	fx->limits.regions = 3;
	fx_limits(fx);
	raw_open(fx, &c);
	raw_open(fx, &d); /* on the other reactor */
	raw_register(&c, FX_BASE, 4096, 3);
	raw_register(&d, FX_BASE, 4096, 3);
	c.key = raw_register(&c, FX_BASE, 4096, 3);
	assert_limit(try_register(&d, FX_BASE, 4096, 3),
	             "memory.regions of the tenant: the limit is 3, 3 are live, asked for 1 more");
	fx->limits.rkeys_concurrent = 2;
	fx_limits(fx);
	assert_limit(
		try_register(&d, FX_BASE, 4096, 3),
		"rkeys.concurrent of the tenant: the limit is 2, 3 are live, asked for 1 more");
	fx->limits.rkeys_concurrent = 16;
	fx_limits(fx);
	fx_do(fx, FX_DEREGISTER, &(struct fx_args){.session = c.session, .key = c.key});
	raw_register(&d, FX_BASE, 4096, 3);
	/* The end of a session gives back what it held. */
	fx_do(fx, FX_CLOSE_SESSION, &(struct fx_args){.session = d.session});
	raw_register(&c, FX_BASE, 4096, 3);
	raw_register(&c, FX_BASE, 4096, 3);
	assert_int_equal(try_register(&c, FX_BASE, 4096, 3).status, ROS2_LIMIT);
}

static void session__limits_and_rights_are_checked_at_opening(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid unknown = ros2_uid_new(), beta = ros2_uid_new();
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX};
	struct raw c;

	fx->limits.sessions_max = 1;
	fx_limits(fx);
	a.tenant = unknown;
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_NOT_FOUND);
	a.tenant = fx->tenant;
	a.grant = unknown;
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_NO_GRANT);
	fx_tenant(fx, &beta);
	a.tenant = beta;
	a.grant = fx->grant; /* another tenant's grant */
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_NO_GRANT);
	a.tenant = fx->tenant;
	a.a = 1;
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_UNAUTHENTICATED);
	raw_open(fx, &c);
	a.a = UINT64_MAX;
	assert_limit(fx_do(fx, FX_OPEN_SESSION, &a), "sessions.max of the tenant: the limit is 1, "
	                                             "1 are open, asked for 1 more");
	a.session = unknown;
	assert_int_equal(fx_do(fx, FX_MOUNT, &a).status, ROS2_BAD_SESSION);
}

/* What no document sets: the places of a session's own tables. */
static void session__has_as_many_mounts_and_open_files_as_there_are_places(void **state)
{
	struct fx *fx = *state;
	struct fx_args a = {.to = "ram", .path = "ns", .mount = 1, .flags = 3};
	struct dp_result res;
	struct raw c;

	raw_open(fx, &c);
	a.session = c.session;
	for (int i = 0; i < 64; i++)
		assert_int_equal(fx_do(fx, FX_MOUNT, &a).status, ROS2_OK);
	assert_limit(fx_do(fx, FX_MOUNT, &a), "mounts of a session: the limit is 64 (fixed)");
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	for (int i = 0; i < 256; i++) {
		res = fx_do(fx, FX_OPEN, &a);
		assert_int_equal(res.status, ROS2_OK);
	}
	assert_limit(fx_do(fx, FX_OPEN, &a),
	             "open handles of a session: the limit is 256 (fixed): close some first");
	a.a = res.open.handle;
	assert_int_equal(fx_do(fx, FX_CLOSE, &a).status, ROS2_OK);
	assert_int_equal(fx_do(fx, FX_OPEN, &a).status, ROS2_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FX_TEST(lease__is_not_renewed_beyond_what_the_document_allows_by_now),
		FX_TEST(grant__allows_what_its_renewal_says),
		FX_TEST(lease__that_would_end_at_once_is_refused_and_takes_nothing),
		FX_TEST(region__beyond_a_limit_is_refused_with_the_numbers),
		FX_TEST(region__limits_count_all_sessions_of_a_tenant),
		FX_TEST(session__limits_and_rights_are_checked_at_opening),
		FX_TEST(session__has_as_many_mounts_and_open_files_as_there_are_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

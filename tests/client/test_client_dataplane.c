/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 against the real data plane in one process: the control calls go straight to dp.h instead
 * of over gRPC, the data over the transport that ROS2_TEST_TRANSPORT names. What is on the wire is
 * what both sides mean.
 */
#include "dataplane/client/internal_priv.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/dataplane/fixture.h"
#include <errno.h>
#include <poll.h>
#ifdef ROS2_TEST_FABRIC_MEM
#include "tests/verbs/fabric_mem.h"
#endif

/* ---- control calls over dp.h ---- */

struct control_dp {
	struct control base;
	struct fx *fx;
};

static struct ros2_uid uid_of(const ProtobufCMessage *req)
{
	struct ros2_uid u = {0};
	ProtobufCBinaryData b = ((const Ros2__V1__SessionRef *)req)->session_uid;

	ros2_uid_from_bytes(b.data, b.len, &u);
	return u;
}

static void *take(size_t size, const ProtobufCMessageDescriptor *d)
{
	void *m = calloc(1, size);

	protobuf_c_message_init(d, m);
	return m;
}
#define NEW(type, lower) ((type *)take(sizeof(type), &ros2__v1__##lower##__descriptor))

static ProtobufCBinaryData copy_bytes(const void *p, size_t n)
{
	ProtobufCBinaryData b = {n, malloc(n)};

	memcpy(b.data, p, n);
	return b;
}

static struct dp_result open_session(struct fx *fx, ProtobufCMessage **ret)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX};
	struct dp_result res = fx_do(fx, FX_OPEN_SESSION, &a);
	Ros2__V1__OpenSessionReply *r;
	char address[64];

	if (res.status)
		return res;
	r = NEW(Ros2__V1__OpenSessionReply, open_session_reply);
	snprintf(address, sizeof(address), "%s:%u", fx_rdma_host ? fx_rdma_host : "127.0.0.1",
	         res.session.port);
	r->transport = fx_transport == DP_TRANSPORT_VERBS ? ROS2__V1__TRANSPORT__TRANSPORT_VERBS
	                                                  : ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	r->session_uid = copy_bytes(a.session.b, 16);
	r->secret = copy_bytes(res.session.secret, 32);
	r->data_address = strdup(address);
	r->credits = res.session.credits;
	r->max_io = res.session.max_io;
	r->max_inline = res.session.max_inline;
	r->lease_ttl_ms = (uint32_t)fx->limits.lease_ttl_ms;
	r->region_size_min = fx->limits.region_size_min;
	r->region_size_max = fx->limits.region_size_max;
	r->region_alignment = fx->limits.region_alignment;
	*ret = &r->base;
	return res;
}

static ProtobufCMessage *stat_reply(const struct dp_result *res)
{
	Ros2__V1__StatReply *r = NEW(Ros2__V1__StatReply, stat_reply);

	r->type = res->attr.type;
	r->size = res->attr.size;
	return &r->base;
}

static ProtobufCMessage *lease_reply(const struct rpc_method *m, const struct dp_result *res)
{
	Ros2__V1__RegisterRegionReply *g;
	Ros2__V1__RenewRegionReply *n;

	if (m == &ros2_v1_tenant_renew_region) {
		n = NEW(Ros2__V1__RenewRegionReply, renew_region_reply);
		n->key = res->region.key;
		n->generation = res->region.generation;
		n->ttl_ms = res->region.ttl_ms;
		return &n->base;
	}
	g = NEW(Ros2__V1__RegisterRegionReply, register_region_reply);
	g->key = res->region.key;
	g->generation = res->region.generation;
	g->ttl_ms = res->region.ttl_ms;
	return &g->base;
}

static struct dp_result call_dp(struct fx *fx, const struct rpc_method *m,
                                const ProtobufCMessage *req, ProtobufCMessage **ret)
{
	struct fx_args a = {.session = uid_of(req), .to = "ram", .path = "ns", .flags = 3};
	struct dp_result res;

	if (m == &ros2_v1_tenant_open_session)
		return open_session(fx, ret);
	if (m == &ros2_v1_tenant_close_session)
		return fx_do(fx, FX_CLOSE_SESSION, &a);
	if (m == &ros2_v1_tenant_mount) {
		Ros2__V1__MountReply *r = NEW(Ros2__V1__MountReply, mount_reply);

		res = fx_do(fx, FX_MOUNT, &a);
		r->mount = res.mount.mount;
		*ret = &r->base;
		return res;
	}
	if (m == &ros2_v1_tenant_open) {
		const Ros2__V1__OpenRequest *q = ros2_v1_tenant_open_in(req);
		Ros2__V1__OpenReply *r = NEW(Ros2__V1__OpenReply, open_reply);

		a.mount = q->mount;
		a.path = q->path;
		a.flags = q->flags;
		res = fx_do(fx, FX_OPEN, &a);
		r->handle = res.open.handle;
		*ret = &r->base;
		return res;
	}
	if (m == &ros2_v1_tenant_close || m == &ros2_v1_tenant_stat_handle) {
		a.a = ((const Ros2__V1__HandleRef *)req)->handle;
		res = fx_do(fx, m == &ros2_v1_tenant_close ? FX_CLOSE : FX_FSTAT, &a);
		if (m == &ros2_v1_tenant_stat_handle)
			*ret = stat_reply(&res);
		return res;
	}
	if (m == &ros2_v1_tenant_register_region) {
		const Ros2__V1__RegisterRegionRequest *q = ros2_v1_tenant_register_region_in(req);

		a.a = q->address;
		a.b = q->length;
		a.flags = q->access;
		res = fx_do(fx, FX_REGISTER, &a);
		*ret = lease_reply(m, &res);
		return res;
	}
	if (m == &ros2_v1_tenant_renew_region || m == &ros2_v1_tenant_deregister_region) {
		bool renew = m == &ros2_v1_tenant_renew_region;

		a.key = ((const Ros2__V1__RegionRef *)req)->key;
		res = fx_do(fx, renew ? FX_RENEW : FX_DEREGISTER, &a);
		if (renew)
			*ret = lease_reply(m, &res);
		return res;
	}
	return (struct dp_result){.status = ROS2_UNSUPPORTED};
}

static int control_dp_call(struct control *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, uint32_t timeout_ms, ProtobufCMessage **ret,
                           struct ros2_err *err)
{
	struct fx *fx = container_of(c, struct control_dp, base)->fx;
	ProtobufCMessage *reply = NULL;
	struct dp_result res = call_dp(fx, m, req, &reply);

	if (res.status) {
		if (reply)
			protobuf_c_message_free_unpacked(reply, NULL);
		return ros2_err_named(err, res.status, "%s", res.words);
	}
	*ret = reply ? reply : &NEW(Ros2__V1__Empty, empty)->base;
	return 0;
}

static int always_ready(struct control *c, uint32_t timeout_ms, struct ros2_err *err)
{
	return 0;
}

static void control_dp_free(struct control *c)
{
	free(container_of(c, struct control_dp, base));
}

/* ---- a client on the fixture ---- */

struct user {
	struct ros2_client *client;
	struct ros2_session *session;
	struct ros2_mount *mount;
	struct ros2_file *file;
	uint8_t *buf;
	struct ros2_err err;
};
#define ok(u, call)                                                                                \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, (u)->err.msg);                                   \
	} while (0)

static void user_open(struct fx *fx, struct user *u)
{
	struct control_dp *c = calloc(1, sizeof(*c));
	struct ros2_session_info info;
	void *buf = NULL;

	*u = (struct user){0};
	c->base = (struct control){control_dp_call, always_ready, control_dp_free, 0};
	c->fx = fx;
	ok(u, client_new(&c->base, 5000, &u->client, &u->err));
	ok(u, ros2_session_open(u->client, NULL, &u->session, &u->err));
	ok(u, ros2_mount(u->session, "data", &u->mount, &u->err));
	ok(u, ros2_open(u->mount, "file", ROS2_O_RDWR | ROS2_O_CREAT, 0644, &u->file, &u->err));
	ok(u, ros2_buf_alloc(u->session, 4u << 20, &buf, &u->err));
	u->buf = buf;
	ros2_session_info(u->session, &info);
	assert_int_equal(info.transport, fx_transport == DP_TRANSPORT_VERBS ? ROS2_TRANSPORT_VERBS
	                                                                    : ROS2_TRANSPORT_TCP);
}

static void user_close(struct user *u)
{
	ros2_session_close(u->session);
	ros2_disconnect(u->client);
}

static void fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (uint8_t)(seed >> 24);
	}
}

static void real_data_plane__every_size_comes_back(void **state)
{
	static const uint32_t sizes[] = {1, 4095, 4096, 16384, 16385, 100001, 1u << 20};
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint8_t *back = u.buf + (2u << 20);

		fill(u.buf, sizes[i], (uint32_t)i);
		assert_int_equal(ros2_pwrite(u.file, u.buf, sizes[i], i * 7, &u.err), sizes[i]);
		memset(back, 0, sizes[i]);
		assert_int_equal(ros2_pread(u.file, back, sizes[i], i * 7, &u.err), sizes[i]);
		assert_memory_equal(u.buf, back, sizes[i]);
	}
	assert_int_equal(ros2_flush(u.file, &u.err), 0);
	assert_int_equal(ros2_pread(u.file, u.buf, 100, 1u << 30, &u.err), 0);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__a_deep_mixed_ring_is_right(void **state)
{
	struct ros2_completion c[64];
	struct fx *fx = *state;
	struct user u;
	uint32_t depth;

	user_open(fx, &u);
	depth = MIN(u.session->depth, 64u) & ~1u;
	fill(u.buf, 2u << 20, 5);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 2u << 20, 0, &u.err), 2u << 20);
	memset(u.buf + (2u << 20), 0, 2u << 20);
	for (uint32_t i = 0; i < depth / 2; i++) {
		ok(&u, ros2_prep_read(u.file, u.buf + (2u << 20) + i * 32768, 32768, i * 32768, i,
		                      &u.err));
		ok(&u, ros2_prep_write(u.file, u.buf + i * 32768, i % 2 ? 32768 : 512,
		                       (4u << 20) + i * 32768, 1000 + i, &u.err));
	}
	assert_int_equal(ros2_submit(u.session, &u.err), depth);
	for (uint32_t n = 0; n < depth;) {
		int got = ros2_wait(u.session, c, 1, 64, 5000, &u.err);

		assert_true(got > 0);
		for (int i = 0; i < got; i++)
			assert_int_equal(c[i].status, ROS2_OK);
		n += (uint32_t)got;
	}
	assert_memory_equal(u.buf, u.buf + (2u << 20), depth / 2 * 32768);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__leases_are_renewed_under_work(void **state)
{
	struct fx *fx = *state;
	struct user u;

	fx->limits.lease_ttl_ms = 150;
	fx_limits(fx);
	user_open(fx, &u);
	for (int i = 0; i < 20; i++) {
		poll(NULL, 0, 25);
		assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
		assert_int_equal(ros2_pread(u.file, u.buf, 50000, 0, &u.err), 50000);
	}
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}

static void real_data_plane__revocation_is_named_within_half_a_second(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked revoked = {0};
	struct ros2_completion c[2];
	struct user u;
	uint64_t began;
	int n = 0;

	user_open(fx, &u);
	ok(&u, ros2_pwrite(u.file, u.buf, 1u << 20, 0, &u.err));
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &revoked);
	if (revoked.first.revoke.draining)
		fx_wait_calls(fx, &revoked, 2);
	began = clock_monotonic_ns();
	ok(&u, ros2_prep_read(u.file, u.buf, 4096, 0, 1, &u.err));
	ok(&u, ros2_prep_write(u.file, u.buf, 4096, 0, 2, &u.err));
	ok(&u, ros2_submit(u.session, &u.err));
	while (n < 2) {
		int got = ros2_wait(u.session, c + n, 1, 2 - (uint32_t)n, 5000, &u.err);

		assert_true(got > 0);
		n += got;
	}
	assert_true(clock_monotonic_ns() - began < 500 * NS_PER_MS);
	assert_int_equal(c[0].status, ROS2_REVOKED);
	assert_int_equal(c[1].status, ROS2_REVOKED);
	assert_int_equal(ros2_pread(u.file, u.buf, 1, 0, &u.err), -EKEYREVOKED);
	user_close(&u);
}

#ifdef ROS2_TEST_FABRIC_MEM
/* Only there can be seen what the device was asked for. */
static void over_verbs__each_window_ends_once_and_with_its_region(void **state)
{
	struct fabric_mem_counts before, bound, after;
	struct fx *fx = *state;
	struct user u;

	user_open(fx, &u);
	fabric_mem_counts(&before);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ros2_pwrite(u.file, u.buf, 50000, 0, &u.err), 50000);
	fabric_mem_counts(&bound);
	assert_int_equal(bound.binds, before.binds + 1);
	assert_int_equal(bound.invalidates, before.invalidates);
	assert_int_equal(bound.regions, before.regions + 1);
	ros2_buf_free(u.session, u.buf);
	fabric_mem_counts(&after);
	assert_int_equal(after.invalidates, before.invalidates + 1);
	assert_int_equal(after.regions, before.regions);
	assert_int_equal(after.refused, before.refused);
	assert_int_equal(fx->violations, 0);
	user_close(&u);
}
#endif

#define T(f) cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(real_data_plane__every_size_comes_back),
		T(real_data_plane__a_deep_mixed_ring_is_right),
		T(real_data_plane__leases_are_renewed_under_work),
		T(real_data_plane__revocation_is_named_within_half_a_second),
#ifdef ROS2_TEST_FABRIC_MEM
		T(over_verbs__each_window_ends_once_and_with_its_region),
#endif
	};

	fx_from_env();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See direct.h. */
#include "tests/client/direct.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"

uint16_t (*direct_on_path)(uint16_t port);
const char *direct_engine = "ram";

/* ---- control calls over dp.h ---- */

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

/* What fx_do opens sessions over is a global: @transport only for this call. */
static struct dp_result open_over(struct fx *fx, enum dp_transport transport,
                                  const struct fx_args *a)
{
	enum dp_transport was = fx_transport;
	struct dp_result res;

	fx_transport = transport;
	res = fx_do(fx, FX_OPEN_SESSION, a);
	fx_transport = was;
	return res;
}

static struct dp_result open_session(struct control_dp *c, const ProtobufCMessage *req,
                                     ProtobufCMessage **ret)
{
	const Ros2__V1__OpenSessionRequest *q = ros2_v1_tenant_open_session_in(req);
	static const Ros2__V1__Transport words[] = {
		[DP_TRANSPORT_TCP] = ROS2__V1__TRANSPORT__TRANSPORT_TCP,
		[DP_TRANSPORT_VERBS] = ROS2__V1__TRANSPORT__TRANSPORT_VERBS,
		[DP_TRANSPORT_SHM] = ROS2__V1__TRANSPORT__TRANSPORT_SHM,
	};
	bool verbs = fx_transport == DP_TRANSPORT_VERBS &&
	             q->transport != ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	bool shm = q->transport == ROS2__V1__TRANSPORT__TRANSPORT_SHM;
	enum dp_transport over = shm     ? DP_TRANSPORT_SHM
	                         : verbs ? DP_TRANSPORT_VERBS
	                                 : DP_TRANSPORT_TCP;
	struct fx *fx = c->fx;
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX,
	                    .shm_bytes = q->shared_memory_bytes};
	struct dp_result res = open_over(fx, over, &a);
	Ros2__V1__OpenSessionReply *r;
	char address[128];

	if (res.status)
		return res;
	r = NEW(Ros2__V1__OpenSessionReply, open_session_reply);
	if (direct_on_path && over == DP_TRANSPORT_TCP)
		res.session.port = direct_on_path(res.session.port);
	snprintf(address, sizeof(address), "%s:%u",
	         verbs && fx_rdma_host ? fx_rdma_host : "127.0.0.1",
	         verbs && atomic_load(&c->verbs_nowhere) ? 1 : res.session.port);
	if (shm)
		snprintf(address, sizeof(address), "unix:%s", res.session.shm_path);
	r->transport = words[over];
	r->shared_memory_bytes = res.session.shm_bytes;
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
	r->block_size = res->attr.block_size;
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

static struct dp_result call_dp(struct control_dp *c, const struct rpc_method *m,
                                const ProtobufCMessage *req, ProtobufCMessage **ret)
{
	struct fx *fx = c->fx;
	struct fx_args a = {.session = uid_of(req), .to = direct_engine, .path = "ns", .flags = 3};
	struct dp_result res;

	if (m == &ros2_v1_tenant_open_session && atomic_load(&c->away)) {
		atomic_fetch_sub(&c->away, 1);
		return (struct dp_result){.status = ROS2_UNAVAILABLE};
	}
	if (m == &ros2_v1_tenant_open_session)
		return open_session(c, req, ret);
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
		atomic_fetch_add(&c->registered, res.status == ROS2_OK);
		*ret = lease_reply(m, &res);
		return res;
	}
	if (m == &ros2_v1_tenant_renew_region || m == &ros2_v1_tenant_deregister_region) {
		bool renew = m == &ros2_v1_tenant_renew_region;

		res.status = renew ? atomic_load(&c->refuse_renewals) : ROS2_OK;
		if (res.status)
			return res;
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
	struct control_dp *direct = container_of(c, struct control_dp, base);
	ProtobufCMessage *reply = NULL;
	struct dp_result res = call_dp(direct, m, req, &reply);

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

int user_try(struct fx *fx, struct user *u, const struct ros2_session_opts *o)
{
	struct control_dp *c = calloc(1, sizeof(*c));
	void *buf = NULL;
	int rc;

	*u = (struct user){.control = c};
	c->base = (struct control){control_dp_call, always_ready, control_dp_free, 0};
	c->fx = fx;
	rc = client_new(&c->base, 5000, &u->client, &u->err);
	if (!rc)
		rc = ros2_session_open(u->client, o, &u->session, &u->err);
	if (!rc)
		rc = ros2_mount(u->session, "data", &u->mount, &u->err);
	if (!rc)
		rc = ros2_open(u->mount, "file", ROS2_O_RDWR | ROS2_O_CREAT, 0644, &u->file,
		               &u->err);
	if (!rc)
		rc = ros2_buf_alloc(u->session, USER_BUF, &buf, &u->err);
	u->buf = buf;
	return rc;
}

void user_open_as(struct fx *fx, struct user *u, const struct ros2_session_opts *o)
{
	ok(u, user_try(fx, u, o));
}

void user_open(struct fx *fx, struct user *u)
{
	static const enum ros2_transport want[] = {
		[DP_TRANSPORT_TCP] = ROS2_TRANSPORT_TCP,
		[DP_TRANSPORT_VERBS] = ROS2_TRANSPORT_VERBS,
		[DP_TRANSPORT_SHM] = ROS2_TRANSPORT_SHM,
	};
	bool shm = fx_transport == DP_TRANSPORT_SHM;
	const struct ros2_session_opts over_shm = {.transport = ROS2_TRANSPORT_SHM};
	struct ros2_session_info info;

	user_open_as(fx, u, shm ? &over_shm : NULL);
	ros2_session_info(u->session, &info);
	assert_int_equal(info.transport, want[fx_transport]);
}

void user_close(struct user *u)
{
	ros2_session_close(u->session);
	ros2_disconnect(u->client);
}

void user_fill(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (uint8_t)(seed >> 24);
	}
}

void user_lose_session(struct user *u)
{
	struct fx_args a = {0};

	ros2_uid_from_bytes(u->session->uid, 16, &a.session);
	assert_int_equal(fx_do(u->control->fx, FX_CLOSE_SESSION, &a).status, ROS2_OK);
}

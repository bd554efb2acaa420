/* SPDX-License-Identifier: Apache-2.0 */
/* See pair.h. */
#include "tests/faults/pair.h"
#include "agent/uplink_priv.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include <time.h>

/* ---- waits between attempts ---- */

#define SHORTEN_FROM_MS 200
#define SHORTEN_TO_MS   3500

int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);

_Atomic uint32_t pair_longest_ms;
_Atomic uint64_t pair_asked_ms;
void (*pair_agent_opts)(struct agent_opts *o);

int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	char name[16];

	if (!pthread_getname_np(pthread_self(), name, sizeof(name)) && !strcmp(name, "agent")) {
		pair_asked_ms = MAX(pair_asked_ms, ms);
		if (ms >= SHORTEN_FROM_MS && ms <= SHORTEN_TO_MS)
			ms /= 10;
		if (pair_longest_ms)
			ms = MIN(ms, (uint64_t)pair_longest_ms);
	}
	return __real_loop_timer_in_ms(l, t, ms, fn, arg);
}

/* ---- what must not be ---- */

void pair_wrong(struct pair *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	pthread_mutex_lock(&p->lock);
	if (!p->wrong[0])
		vsnprintf(p->wrong, sizeof(p->wrong), fmt, ap);
	pthread_mutex_unlock(&p->lock);
	va_end(ap);
}

void pair_check(struct pair *p, const char *where)
{
	char wrong[sizeof(p->wrong)];

	pthread_mutex_lock(&p->lock);
	strcpy(wrong, p->wrong);
	pthread_mutex_unlock(&p->lock);
	if (wrong[0])
		fail_msg("%s: %s", where, wrong);
}

bool pair_until(struct pair *p, bool (*is)(struct pair *p, void *arg), void *arg)
{
	return AWAIT(is(p, arg));
}

/* ---- enrolment ---- */

void pair_token(struct pair *p, const char *agent, struct join_token *t)
{
	AUTO_FREE char *secret = sf_token(p->f, agent, 0);
	AUTO_FREE void *pem = NULL;
	uint8_t hash[32];
	char text[16384], hex[65];
	struct ros2_err err = ROS2_ERR_INIT;
	size_t n;
	int len;

	assert_int_equal(
		fsx_read_file(sf_path("controller/infra-bundle.pem"), 8192, &pem, &n, NULL), 0);
	assert_int_equal(pki_bundle_hash(pem, n, hash, NULL), 0);
	crypto_hex(hash, sizeof(hash), hex);
	len = snprintf(text, sizeof(text), "ros2-join-v1 %s %s %s\n%.*s", agent, secret, hex,
	               (int)n, (char *)pem);
	if (join_token_parse(text, (size_t)len, agent, t, &err) < 0)
		fail_msg("%s", err.msg);
}

struct enrolling {
	struct loop *loop;
	struct enrol *e;
	struct enrol_opts o;
	char dir[256], address[64];
	_Atomic bool done;
	struct ros2_err err;
};

static void on_enrolled(void *arg, const struct ros2_err *err)
{
	struct enrolling *e = arg;

	e->err = err ? *err : (struct ros2_err)ROS2_ERR_INIT;
	e->done = true;
}

static void enrol_on_loop(void *arg)
{
	struct enrolling *e = arg;

	e->done = enrol_start(&e->o, &e->e, &e->err) < 0;
}

struct enrolling *pair_enrol_begin(struct pair *p, const char *dir, const struct join_token *t)
{
	struct enrolling *e = calloc(1, sizeof(*e));

	snprintf(e->dir, sizeof(e->dir), "%s", dir);
	snprintf(e->address, sizeof(e->address), "%s", p->target[CUT_ENROL]);
	assert_int_equal(fsx_mkdirs(dir, 0700, NULL), 0);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "agent"}, &e->loop), 0);
	e->o = (struct enrol_opts){.loop = e->loop,
	                           .dir = e->dir,
	                           .address = e->address,
	                           .token = t,
	                           .done = on_enrolled,
	                           .arg = e};
	assert_int_equal(loop_thread_start(e->loop), 0);
	loop_call(e->loop, enrol_on_loop, e);
	return e;
}

bool pair_enrol_is_done(struct enrolling *e)
{
	return e->done;
}

static void enrol_free_on_loop(void *arg)
{
	struct enrolling *e = arg;

	enrol_free(e->e);
}

int pair_enrol_end(struct enrolling *e, struct ros2_err *err)
{
	int r;

	loop_call(e->loop, enrol_free_on_loop, e);
	loop_stop(e->loop);
	loop_thread_join(e->loop);
	loop_free(e->loop);
	*err = e->err;
	r = e->done ? e->err.code : -EINPROGRESS;
	free(e);
	return r;
}

static bool enrol_done(struct pair *p, void *arg)
{
	return pair_enrol_is_done(arg);
}

/* ---- the agent ---- */

static void on_ready(void *arg)
{
	((struct pair *)arg)->ready = true;
}

static void on_fatal(void *arg, const struct ros2_err *err)
{
	struct pair *p = arg;

	p->fatal = true;
	pair_wrong(p, "the agent had to end: %s", err->msg);
}

void pair_agent_start(struct pair *p)
{
	struct agent_opts o = {.identity = p->id,
	                       .controller = p->target[CUT_LINK],
	                       .enrol = p->target[CUT_ENROL],
	                       .listen = "127.0.0.1:0",
	                       .data_host = "127.0.0.1",
	                       .state_dir = p->dir,
	                       .on_ready = on_ready,
	                       .on_fatal = on_fatal,
	                       .arg = p};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(loop_new(&(struct loop_opts){.name = "agent"}, &p->loop), 0);
	o.loop = p->loop;
	if (pair_agent_opts)
		pair_agent_opts(&o);
	p->ready = false;
	if (agent_new(&o, &p->agent, &err) < 0 || agent_start(p->agent, &err) < 0)
		fail_msg("%s", err.msg);
	relay_target(p->relay, CUT_TENANT, agent_tenant_port(p->agent));
	assert_int_equal(loop_thread_start(p->loop), 0);
}

static void stopped(void *arg)
{
	loop_stop(((struct pair *)arg)->loop);
}

static void stop_agent(void *arg)
{
	struct pair *p = arg;

	agent_stop(p->agent, stopped, p);
}

void pair_agent_stop(struct pair *p)
{
	if (!p->agent)
		return;
	loop_post_urgent(p->loop, &p->stop_post, stop_agent, p);
	loop_thread_join(p->loop);
	agent_free(p->agent);
	p->agent = NULL;
}

void pair_on_agent(struct pair *p, loop_fn fn, void *arg)
{
	loop_call(p->loop, fn, arg);
}

/* ---- what both have come to ---- */

struct quiet {
	struct agent *a;
	bool is;
};

static void look_quiet(void *arg)
{
	struct quiet *q = arg;

	q->is = uplink_is_live(q->a->uplink) && !spool_unacked(q->a->spool) &&
	        revoker_is_idle(q->a->revoker) && persist_is_idle(q->a->persist);
}

bool pair_is_quiet(struct pair *p)
{
	struct quiet q = {.a = p->agent};
	Ros2__V1__GetReply *r;
	bool connected;

	pair_on_agent(p, look_quiet, &q);
	if (!q.is)
		return false;
	r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-0");
	connected = r->object->agent->connected;
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return connected;
}

void pair_apply_alpha(struct pair *p, const char *lifetime, const char *agents)
{
	char text[2048];

	snprintf(text, sizeof(text),
	         "apiVersion: ros2/v1\nkind: Tenant\nmetadata:\n  name: alpha\nspec:\n"
	         "  principals:\n    - " PAIR_TRAINER "\n"
	         "  placement:\n    agents: [%s]\n"
	         "  namespaces:\n    - name: data\n      engine: ram\n      path: alpha\n"
	         "      access: rw\n"
	         "  memory:\n    registeredBytes: 64MiB\n    regions: 4\n"
	         "    access: [read, write]\n"
	         "  times: {grantLifetime: %s, contactLimit: 10m}\n  sessions: {max: 32}\n",
	         agents, lifetime);
	sf_apply(p->f, text);
}

void pair_rollout(struct pair *p, struct pair_rollout *ret)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha");

	*ret = (struct pair_rollout){.version = r->object->version,
	                             .revoked = r->object->tenant->revoked};
	assert_int_equal(ros2_uid_from_bytes(r->object->uid.data, r->object->uid.len, &ret->uid),
	                 0);
	for (size_t i = 0; i < r->object->n_rollout; i++) {
		const Ros2__V1__Rollout *ro = r->object->rollout[i];

		if (strcmp(ro->agent, "dpu-0") != 0)
			continue;
		ret->sent = ro->sent_version;
		ret->received = ro->received_version;
		ret->applied = ro->applied_version;
	}
	ros2__v1__get_reply__free_unpacked(r, NULL);
}

struct held {
	struct agent *a;
	struct pair_held *h;
};

static void look_held(void *arg)
{
	struct held *q = arg;
	struct state_tenant t;

	q->h->is = state_tenant_get(q->a->state, &q->h->uid, &t) == 0;
	q->h->version = q->h->is ? t.version : 0;
	q->h->revoked = q->h->is && t.revoked;
}

void pair_held(struct pair *p, struct pair_held *h)
{
	struct held q = {p->agent, h};

	pair_on_agent(p, look_held, &q);
}

struct grants_seen {
	struct agent *a;
	struct ros2_uid v[64];
	size_t n;
};

static void add_grant(void *arg, const struct state_have *h)
{
	struct grants_seen *g = arg;

	if (h->kind == OBJ_GRANT && g->n < ARRAY_SIZE(g->v))
		g->v[g->n++] = h->uid;
}

static void look_grants(void *arg)
{
	struct grants_seen *g = arg;

	state_each_have(g->a->state, add_grant, g);
}

bool pair_grants_agree(struct pair *p)
{
	struct grants_seen at_agent = {.a = p->agent};
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha");
	size_t same = 0, n = r->n_grants;

	pair_on_agent(p, look_grants, &at_agent);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < at_agent.n; j++)
			same += !memcmp(r->grants[i]->grant_uid.data, at_agent.v[j].b, 16);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return same == n && n == at_agent.n;
}

enum ros2_status pair_open(struct rpc_channel *c, struct ros2_uid *ret, struct ros2_err *err)
{
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	Ros2__V1__OpenSessionReply *r = NULL;

	req.protocol = RPC_PROTOCOL_VERSION;
	req.transport = ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	rpc_channel_reset_backoff(c);
	if (ros2_v1_tenant_open_session_sync(c, &req, 20000, &r, err))
		return err->status;
	assert_int_equal(ros2_uid_from_bytes(r->session_uid.data, r->session_uid.len, ret), 0);
	ros2__v1__open_session_reply__free_unpacked(r, NULL);
	return ROS2_OK;
}

void pair_close(struct rpc_channel *c, const struct ros2_uid *session)
{
	Ros2__V1__SessionRef q = ROS2__V1__SESSION_REF__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *r = NULL;

	q.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)session->b};
	if (rpc_unary_sync(c, &ros2_v1_tenant_close_session, &q.base, 10000, &r, &err))
		fail_msg("%s", err.msg);
	protobuf_c_message_free_unpacked(r, NULL);
}

enum ros2_status pair_mount(struct rpc_channel *c, const struct ros2_uid *session)
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__MountReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	req.session_uid = (ProtobufCBinaryData){16, (uint8_t *)session->b};
	req.namespace_name = (char *)"data";
	rpc_channel_reset_backoff(c);
	if (ros2_v1_tenant_mount_sync(c, &req, 10000, &r, &err))
		return err.status;
	ros2__v1__mount_reply__free_unpacked(r, NULL);
	return ROS2_OK;
}

void pair_verify_log(struct pair *p)
{
	sf_verify_log(p->f);
}

/* ---- life ---- */

static struct rpc_channel *channel(struct pair *p, const char *name, const char *target,
                                   const char *server)
{
	char crt[512], key[512], ca[512];
	struct rpc_channel_opts o = {.name = name,
	                             .target = target,
	                             .ca_path = ca,
	                             .cert_path = crt,
	                             .key_path = key,
	                             .server_id = server,
	                             .server_id_is_prefix = true};
	struct rpc_channel *c = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	snprintf(ca, sizeof(ca), "%s", sf_path("controller/infra-bundle.pem"));
	snprintf(crt, sizeof(crt), "%s", sf_path("%s/tls.crt", name));
	snprintf(key, sizeof(key), "%s", sf_path("%s/tls.key", name));
	if (rpc_channel_new(&o, &c, &err))
		fail_msg("%s", err.msg);
	return c;
}

int pair_setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	void *f = NULL;

	pthread_mutex_init(&p->lock, NULL);
	p->relay = relay_new();
	cut_init(p->relay);
	if (sf_setup(&f))
		return -1;
	p->f = f;
	for (unsigned i = 0; i < RELAY_LINES; i++) {
		uint16_t target = i == CUT_LINK    ? p->f->ports.agent
		                  : i == CUT_ENROL ? p->f->ports.enrol
		                  : i == CUT_ADMIN ? p->f->ports.admin
		                                   : 0;

		snprintf(p->target[i], sizeof(p->target[i]), "127.0.0.1:%u",
		         relay_line(p->relay, i, target));
	}
	snprintf(p->dir, sizeof(p->dir), "%s-agent", p->f->dir);
	sf_apply(p->f, sf_agent0);
	sf_apply(p->f, sf_agent1);
	sf_apply(p->f, sf_engine);
	sf_cert("tenant", "trainer", "tenant/alpha/trainer");
	sf_cert("tenant", "stranger", "tenant/nobody");
	p->admin = channel(p, "root", p->target[CUT_ADMIN], "spiffe://" TD "/controller/");
	p->tenant = channel(p, "trainer", p->target[CUT_TENANT], "spiffe://" TD "/agent/");
	*state = p;
	return 0;
}

static bool in_force(struct pair *p, void *arg)
{
	struct pair_rollout r;

	pair_rollout(p, &r);
	return p->ready && r.applied == r.version && pair_is_quiet(p);
}

int pair_setup_running(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct enrolling *e;
	struct join_token t;
	char direct[64];
	struct pair *p;

	if (pair_setup(state))
		return -1;
	p = *state;
	pair_token(p, "dpu-0", &t);
	e = pair_enrol_begin(p, p->dir, &t);
	pair_until(p, enrol_done, e);
	if (pair_enrol_end(e, &err))
		fail_msg("%s", err.msg);
	join_token_fini(&t);
	assert_int_equal(identity_load(p->dir, "dpu-0", &p->id, NULL), 0);
	pair_apply_alpha(p, "1h", "dpu-0");
	pair_agent_start(p);
	snprintf(direct, sizeof(direct), "127.0.0.1:%u", agent_tenant_port(p->agent));
	p->nobody = channel(p, "stranger", direct, "spiffe://" TD "/agent/");
	assert_true(pair_until(p, in_force, NULL));
	return 0;
}

int pair_teardown(void **state)
{
	struct pair *p = *state;
	void *f = p->f;

	cut_off();
	rpc_channel_free(p->tenant);
	rpc_channel_free(p->admin);
	rpc_channel_free(p->nobody);
	pair_agent_stop(p);
	sf_teardown(&f);
	cut_fini();
	relay_free(p->relay);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return 0;
}

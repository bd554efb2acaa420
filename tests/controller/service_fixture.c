/* SPDX-License-Identifier: Apache-2.0 */
/* The fixture of the service tests. Streams run on a loop of their own; the test thread waits. */
#include "tests/controller/service_fixture.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/merkle.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/await.h"
#include <stdarg.h>
#include <time.h>

static char base[64];

const char *sf_path(const char *fmt, ...)
{
	static char bufs[32][512];
	static _Atomic unsigned next;
	char *out = bufs[next++ % 32];
	va_list ap;
	int n = snprintf(out, 512, "%s/", base);

	va_start(ap, fmt);
	vsnprintf(out + n, 512 - (size_t)n, fmt, ap);
	va_end(ap);
	return out;
}

/* ---- the trust domain ---- */

static void put(const char *path, const char *text)
{
	assert_int_equal(fsx_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static void copy(const char *from, const char *to)
{
	AUTO_FREE void *p = NULL;
	size_t n;

	assert_int_equal(fsx_read_file(from, 65536, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(to, p, n, 0644, NULL), 0);
}

static void make_ca(const char *name, const char *issuer)
{
	struct pki_ca_opts o = {.common_name = name,
	                        .trust_domain = TD,
	                        .key_path = sf_path("%s.key", name),
	                        .cert_path = sf_path("%s.crt", name),
	                        .issuer_cert_path = issuer ? sf_path("%s.crt", issuer) : NULL,
	                        .issuer_key_path = issuer ? sf_path("%s.key", issuer) : NULL,
	                        .lifetime_s = 86400};

	assert_int_equal(pki_key_create(o.key_path, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
}

void sf_cert(const char *ca, const char *name, const char *id)
{
	AUTO_FREE char *csr = NULL, *pem = NULL;
	const char *key = sf_path("%s/tls.key", name);
	char uri[200];
	struct pki_issue_opts o = {.uri = uri,
	                           .dns = "localhost,127.0.0.1",
	                           .issuer_cert_path = sf_path("%s.crt", ca),
	                           .issuer_key_path = sf_path("%s.key", ca),
	                           .lifetime_s = 86400};

	if (access(key, F_OK) == 0)
		return;
	assert_int_equal(fsx_mkdirs(sf_path("%s", name), 0700, NULL), 0);
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_csr_create(key, NULL, &csr, NULL), 0);
	o.csr_pem = csr;
	o.csr_len = strlen(csr);
	snprintf(uri, sizeof(uri), "spiffe://" TD "/%s", id);
	assert_int_equal(pki_issue(&o, &pem, NULL), 0);
	put(sf_path("%s/tls.crt", name), pem);
}

int sf_group_setup(void **state)
{
	static const char *const keys[] = {"controller/audit.key", "controller/snapshot.key"};
	char hex[65];
	uint8_t mac[32];

	log_set_level(LOG_LEVEL_ERROR + 1);
	snprintf(base, sizeof(base), "/tmp/ros2-ctl-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	make_ca("infra", NULL);
	make_ca("admin", NULL);
	make_ca("tenant", NULL);
	sf_cert("infra", "controller", "controller/ctl-0");
	sf_cert("admin", "root", "admin/root");
	sf_cert("admin", "op", "admin/op");
	sf_cert("admin", "eye", "admin/eye");
	sf_cert("admin", "nobody", "admin/nobody");
	make_ca("issuer", "infra");
	copy(sf_path("issuer.crt"), sf_path("controller/issuer.crt"));
	copy(sf_path("issuer.key"), sf_path("controller/issuer.key"));
	copy(sf_path("infra.crt"), sf_path("controller/infra-bundle.pem"));
	copy(sf_path("admin.crt"), sf_path("controller/admin-bundle.pem"));
	copy(sf_path("tenant.crt"), sf_path("controller/tenant-bundle.pem"));
	for (size_t i = 0; i < 2; i++) {
		struct crypto_sign_key *k;

		assert_int_equal(crypto_sign_key_new(&k, NULL), 0);
		assert_int_equal(crypto_sign_key_save(k, sf_path("%s", keys[i]), NULL), 0);
		crypto_sign_key_free(k);
	}
	crypto_random(mac, sizeof(mac));
	crypto_hex(mac, sizeof(mac), hex);
	put(sf_path("controller/mac.key"), hex);
	put(sf_path("controller/trust-domain"), TD "\n");
	put(sf_path("controller/roles"), "# roles\nspiffe://" TD "/admin/root admin\n"
	                                 "spiffe://" TD "/admin/op operator # may apply\n"
	                                 "spiffe://" TD "/admin/eye auditor\n");
	return 0;
}

int sf_group_teardown(void **state)
{
	return nftw(base, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the controller ---- */

int sf_try(struct sf *f, struct ros2_err *err)
{
	int r = loop_new(&(struct loop_opts){.name = "controller"}, &f->loop);

	if (r < 0)
		return ros2_err_set(err, r, "no loop");
	f->opts.loop = f->loop;
	r = controller_new(&f->opts, &f->c, err);
	if (r < 0) {
		loop_free(f->loop);
		return r;
	}
	controller_ports(f->c, &f->ports);
	r = loop_thread_start(f->loop);
	if (r < 0) {
		controller_free(f->c);
		loop_free(f->loop);
		return ros2_err_set(err, r, "no thread");
	}
	return 0;
}

void sf_start(struct sf *f)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (sf_try(f, &err) < 0)
		fail_msg("%s", err.msg);
	f->admin = sf_channel(f, "root", f->ports.admin, NULL);
}

static void free_on_loop(void *arg)
{
	controller_free(arg);
}

void sf_stop(struct sf *f)
{
	rpc_channel_free(f->admin);
	loop_call(f->loop, free_on_loop, f->c);
	loop_stop(f->loop);
	loop_thread_join(f->loop);
	loop_free(f->loop);
	f->c = NULL;
}

int sf_setup(void **state)
{
	static unsigned number;
	struct sf *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "%.40s/data-%u", base, ++number);
	f->opts = (struct controller_opts){.config_dir = strdup(sf_path("controller")),
	                                   .data_dir = f->dir,
	                                   .admin_listen = "127.0.0.1:0",
	                                   .agent_listen = "127.0.0.1:0",
	                                   .enrol_listen = "127.0.0.1:0"};
	assert_int_equal(loop_new(&(struct loop_opts){.name = "client"}, &f->client_loop), 0);
	assert_int_equal(loop_thread_start(f->client_loop), 0);
	sf_start(f);
	*state = f;
	return 0;
}

int sf_teardown(void **state)
{
	struct sf *f = *state;

	/* First: what a failed test left open was on its stack, and is told nothing any more. */
	loop_stop(f->client_loop);
	loop_thread_join(f->client_loop);
	sf_stop(f);
	loop_free(f->client_loop);
	free((void *)f->opts.config_dir);
	free(f);
	return 0;
}

struct rpc_channel *sf_channel(struct sf *f, const char *name, uint16_t port, struct loop *loop)
{
	char target[64], crt[512], key[512], ca[512];
	struct rpc_channel_opts o = {.name = "test",
	                             .target = target,
	                             .loop = loop,
	                             .ca_path = ca,
	                             .server_id = "spiffe://" TD "/controller/",
	                             .server_id_is_prefix = true};
	struct rpc_channel *c = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	snprintf(target, sizeof(target), "127.0.0.1:%u", port);
	snprintf(ca, sizeof(ca), "%s", sf_path("controller/infra-bundle.pem"));
	if (name) {
		snprintf(crt, sizeof(crt), "%s", sf_path("%s/tls.crt", name));
		snprintf(key, sizeof(key), "%s", sf_path("%s/tls.key", name));
		o.cert_path = crt;
		o.key_path = key;
	}
	if (rpc_channel_new(&o, &c, &err))
		fail_msg("%s", err.msg);
	return c;
}

/* ---- admin ---- */

const char sf_agent0[] = "apiVersion: ros2/v1\nkind: Agent\nmetadata:\n  name: dpu-0\nspec: {}\n";
const char sf_agent1[] = "apiVersion: ros2/v1\nkind: Agent\nmetadata:\n  name: dpu-1\nspec: {}\n";
const char sf_engine[] = "apiVersion: ros2/v1\nkind: Engine\nmetadata:\n  name: ram\n"
			 "spec:\n  type: mem\n  size: 16MiB\n";

const char *sf_tenant(const char *name, const char *grant_lifetime, const char *contact_limit,
                      const char *agents)
{
	static char bufs[8][2048];
	static _Atomic unsigned next;
	char *out = bufs[next++ % 8];

	snprintf(out, 2048,
	         "apiVersion: ros2/v1\nkind: Tenant\nmetadata:\n  name: %s\nspec:\n"
	         "  principals:\n    - spiffe://" TD "/tenant/%s/trainer\n"
	         "  placement:\n    agents: [%s]\n"
	         "  namespaces:\n    - name: data\n      engine: ram\n      path: %s\n"
	         "      access: rw\n"
	         "  memory:\n    registeredBytes: 64MiB\n    regions: 4\n"
	         "    access: [read, write]\n"
	         "  rkeys: {leaseTtl: 1s}\n"
	         "  times: {grantLifetime: %s, contactLimit: %s}\n  sessions: {max: 2}\n",
	         name, name, agents, name, grant_lifetime, contact_limit);
	return out;
}

Ros2__V1__ApplyReply *sf_apply_text(struct sf *f, const char *yaml, bool dry_run)
{
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *reply = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	file.name = (char *)"test.yaml";
	file.text.data = (uint8_t *)yaml;
	file.text.len = strlen(yaml);
	q.files = &files;
	q.n_files = 1;
	q.dry_run = dry_run;
	if (ros2_v1_admin_apply_sync(f->admin, &q, 10000, &reply, &err))
		fail_msg("%s", err.msg);
	return reply;
}

void sf_apply(struct sf *f, const char *yaml)
{
	Ros2__V1__ApplyReply *r = sf_apply_text(f, yaml, false);

	if (!r->applied)
		fail_msg("%u: %s", r->n_diagnostics ? r->diagnostics[0]->line : 0,
		         r->n_diagnostics ? r->diagnostics[0]->message : "not applied");
	ros2__v1__apply_reply__free_unpacked(r, NULL);
}

int sf_revoke(struct sf *f, Ros2__V1__ObjectKind kind, const char *name, uint32_t wait_ms,
              Ros2__V1__RevokeReply **ret, struct ros2_err *err)
{
	Ros2__V1__RevokeRequest q = ROS2__V1__REVOKE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	q.reason = (char *)"test";
	q.wait_ms = wait_ms;
	return ros2_v1_admin_revoke_sync(f->admin, &q, 20000, ret, err);
}

Ros2__V1__GetReply *sf_get(struct sf *f, Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__GetReply *reply = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	if (ros2_v1_admin_get_sync(f->admin, &q, 10000, &reply, &err))
		fail_msg("%s", err.msg);
	return reply;
}

char *sf_token(struct sf *f, const char *agent, uint32_t ttl_s)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *r = NULL;
	char name[64], secret[80], hash[80], *copy;
	struct ros2_err err = ROS2_ERR_INIT;

	q.agent = (char *)agent;
	q.ttl_s = ttl_s;
	if (ros2_v1_admin_create_agent_token_sync(f->admin, &q, 10000, &r, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(sscanf(r->token, "ros2-join-v1 %63s %79s %79s", name, secret, hash), 3);
	assert_string_equal(name, agent);
	copy = strdup(secret);
	ros2__v1__create_agent_token_reply__free_unpacked(r, NULL);
	return copy;
}

/* ---- the scripted agent ---- */

int fake_enrol_with(struct sf *f, struct fake *a, const char *name, const char *secret,
                    struct ros2_err *err)
{
	struct rpc_channel *ch = sf_channel(f, NULL, f->ports.enrol, NULL);
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	Ros2__V1__EnrolReply *r = NULL;
	AUTO_FREE char *csr = NULL;
	const char *key;
	int rc;

	if (!a->dir[0])
		snprintf(a->dir, sizeof(a->dir), "%.60s-%.30s", strrchr(f->dir, '/') + 1, name);
	key = sf_path("%s/tls.key", a->dir);
	assert_int_equal(fsx_mkdirs(sf_path("%s", a->dir), 0700, NULL), 0);
	if (access(key, F_OK) != 0)
		assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_csr_create(key, NULL, &csr, NULL), 0);
	q.agent = (char *)name;
	q.secret = (char *)secret;
	q.csr_pem.data = (uint8_t *)csr;
	q.csr_pem.len = strlen(csr);
	q.protocol = RPC_PROTOCOL_VERSION;
	rc = ros2_v1_enrol_enrol_sync(ch, &q, 10000, &r, err);
	if (!rc) {
		assert_int_equal(fsx_write_atomic(sf_path("%s/tls.crt", a->dir), r->cert_pem.data,
		                                  r->cert_pem.len, 0644, NULL),
		                 0);
		assert_int_equal(ros2_uid_from_bytes(r->agent_uid.data, r->agent_uid.len, &a->uid),
		                 0);
		assert_int_equal(r->snapshot_key.len, ED25519_PUB_LEN);
		memcpy(a->snapshot_pub, r->snapshot_key.data, ED25519_PUB_LEN);
		ros2__v1__enrol_reply__free_unpacked(r, NULL);
	}
	rpc_channel_free(ch);
	return rc;
}

static void enrol(struct sf *f, struct fake *a, const char *name, const char *which)
{
	AUTO_FREE char *secret = sf_token(f, name, 0);
	struct ros2_err err = ROS2_ERR_INIT;

	memset(a, 0, sizeof(*a));
	snprintf(a->dir, sizeof(a->dir), "%.60s-%.30s%s", strrchr(f->dir, '/') + 1, name, which);
	a->f = f;
	a->incarnation = ros2_uid_new();
	snprintf(a->name, sizeof(a->name), "%s", name);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->cond, NULL);
	if (fake_enrol_with(f, a, name, secret, &err))
		fail_msg("%s", err.msg);
}

void fake_enrol(struct sf *f, struct fake *a, const char *name)
{
	enrol(f, a, name, "");
}

void fake_enrol_anew(struct sf *f, struct fake *a, const char *name)
{
	enrol(f, a, name, "-anew");
}

static void on_message(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	struct fake *a = user;
	size_t n = protobuf_c_message_get_packed_size(m);
	uint8_t *p;

	if (a->sees && a->sees(a, ros2_v1_agent_link_link_out(m)))
		return;
	p = malloc(n + 1);
	protobuf_c_message_pack(m, p);
	pthread_mutex_lock(&a->lock);
	if (a->n_in < ARRAY_SIZE(a->in))
		a->in[a->n_in++] = ros2__v1__controller_message__unpack(NULL, n, p);
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
	free(p);
}

static void on_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct fake *a = user;

	pthread_mutex_lock(&a->lock);
	a->closed = true;
	a->why = *why;
	pthread_cond_broadcast(&a->cond);
	pthread_mutex_unlock(&a->lock);
}

static const struct rpc_stream_ops ops = {.on_message = on_message, .on_closed = on_closed};

static void open_on_loop(void *arg)
{
	struct fake *a = arg;
	struct rpc_stream_opts o = {.ops = &ops, .user = a};
	struct ros2_err err = ROS2_ERR_INIT;

	if (rpc_stream_open(a->ch, &ros2_v1_agent_link_link, NULL, &o, &a->s, &err))
		return;
	rpc_stream_ref(a->s);
}

void fake_stamp(Ros2__V1__Stamp *st, uint8_t boot[16])
{
	struct clock_stamp now;

	assert_int_equal(clock_stamp_now(&now), 0);
	memcpy(boot, now.boot_id, 16);
	ros2__v1__stamp__init(st);
	st->boot_id.data = boot;
	st->boot_id.len = 16;
	st->boottime_ns = now.boottime_ns;
}

void fake_send(struct fake *a, Ros2__V1__AgentMessage *m)
{
	rpc_stream_send(a->s, &m->base);
}

void fake_say_hello(struct fake *a, Ros2__V1__AgentHello *h)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;

	a->closed = false;
	a->ch = sf_channel(a->f, a->dir, a->f->ports.agent, a->f->client_loop);
	loop_call(a->f->client_loop, open_on_loop, a);
	assert_non_null(a->s);
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_HELLO;
	m.hello = h;
	fake_send(a, &m);
}

void fake_connect(struct fake *a, const Ros2__V1__HaveObject *have, size_t n_have)
{
	Ros2__V1__AgentHello h = ROS2__V1__AGENT_HELLO__INIT;
	Ros2__V1__HaveObject **ptrs = calloc(n_have + 1, sizeof(Ros2__V1__HaveObject *));
	Ros2__V1__Stamp st;
	uint8_t boot[16];

	fake_stamp(&st, boot);
	for (size_t i = 0; i < n_have; i++)
		ptrs[i] = (Ros2__V1__HaveObject *)&have[i];
	h.protocol = RPC_PROTOCOL_VERSION;
	h.software = (char *)(a->software ? a->software : "fake/1");
	h.agent_uid.data = a->uid.b;
	h.agent_uid.len = ROS2_UID_LEN;
	h.incarnation.data = a->incarnation.b;
	h.incarnation.len = ROS2_UID_LEN;
	h.stamp = &st;
	h.epoch = a->epoch;
	h.have = ptrs;
	h.n_have = n_have;
	h.tenant_address = (char *)(a->address ? a->address : "127.0.0.1:1");
	fake_say_hello(a, &h);
	free(ptrs);
}

static void drop_on_loop(void *arg)
{
	struct fake *a = arg;

	rpc_stream_unref(a->s);
	rpc_channel_free(a->ch);
	a->s = NULL;
	a->ch = NULL;
}

void fake_disconnect(struct fake *a)
{
	if (a->ch)
		loop_call(a->f->client_loop, drop_on_loop, a);
	for (size_t i = 0; i < a->n_in; i++)
		ros2__v1__controller_message__free_unpacked(a->in[i], NULL);
	a->n_in = a->taken = 0;
}

void fake_free(struct fake *a)
{
	fake_disconnect(a);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->cond);
}

static void deadline(struct timespec *ts, int ms)
{
	clock_gettime(CLOCK_REALTIME, ts);
	ts->tv_sec += ms / 1000;
	ts->tv_nsec += (long)(ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
}

/* Takes one out of the list; it stays owned by it (moved behind the others that were taken). */
static Ros2__V1__ControllerMessage *take(struct fake *a, Ros2__V1__ControllerMessage__MsgCase kind)
{
	for (size_t i = a->taken; i < a->n_in; i++) {
		Ros2__V1__ControllerMessage *m = a->in[i];

		if ((int)m->msg_case != (int)kind)
			continue;
		memmove(&a->in[a->taken + 1], &a->in[a->taken], (i - a->taken) * sizeof(a->in[0]));
		a->in[a->taken++] = m;
		return m;
	}
	return NULL;
}

Ros2__V1__ControllerMessage *fake_next(struct fake *a, Ros2__V1__ControllerMessage__MsgCase kind,
                                       int ms)
{
	Ros2__V1__ControllerMessage *m;
	struct timespec until;

	deadline(&until, ms);
	pthread_mutex_lock(&a->lock);
	while (!(m = take(a, kind)) && !a->closed &&
	       pthread_cond_timedwait(&a->cond, &a->lock, &until) == 0)
		;
	if (!m)
		m = take(a, kind);
	pthread_mutex_unlock(&a->lock);
	return m;
}

bool fake_closed(struct fake *a)
{
	bool closed;

	pthread_mutex_lock(&a->lock);
	closed = a->closed;
	pthread_mutex_unlock(&a->lock);
	return closed;
}

int fake_wait_closed(struct fake *a, int ms)
{
	struct timespec until;

	deadline(&until, ms);
	pthread_mutex_lock(&a->lock);
	while (!a->closed && pthread_cond_timedwait(&a->cond, &a->lock, &until) == 0)
		;
	pthread_mutex_unlock(&a->lock);
	assert_true(a->closed);
	return a->why.code;
}

void fake_wait_synced(struct fake *a)
{
	for (;;) {
		Ros2__V1__ControllerMessage *m =
			fake_next(a, ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA, AWAIT_MS);

		if (!m)
			fail_msg("agent %s was not synchronised: %s", a->name, a->why.msg);
		a->last_nonce = m->delta->nonce;
		if (m->delta->initial_done)
			return;
	}
}

void fake_ask_grant(struct fake *a, uint64_t id, const struct ros2_uid *tenant,
                    const char *principal)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRequest g = ROS2__V1__GRANT_REQUEST__INIT;
	Ros2__V1__Stamp st;
	uint8_t boot[16];

	fake_stamp(&st, boot);
	g.request_id = id;
	g.tenant_uid.data = (uint8_t *)tenant->b;
	g.tenant_uid.len = ROS2_UID_LEN;
	g.principal = (char *)principal;
	g.peer = (char *)"10.0.0.1:5";
	g.stamp = &st;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_REQUEST;
	m.grant_request = &g;
	fake_send(a, &m);
}

void fake_beat(struct fake *a, const struct ros2_uid *in_use, size_t n)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Beat b = ROS2__V1__BEAT__INIT;
	ProtobufCBinaryData uids[16];
	Ros2__V1__Stamp st;
	uint8_t boot[16];

	fake_stamp(&st, boot);
	for (size_t i = 0; i < n && i < 16; i++)
		uids[i] = (ProtobufCBinaryData){.data = (uint8_t *)in_use[i].b, .len = 16};
	b.stamp = &st;
	b.grants_in_use = uids;
	b.n_grants_in_use = n;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_BEAT;
	m.beat = &b;
	fake_send(a, &m);
}

void fake_receipt(struct fake *a, const ProtobufCBinaryData *revocation, uint32_t draining)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Receipt r = ROS2__V1__RECEIPT__INIT;

	r.revocation_uid = *revocation;
	r.durable = true;
	r.sessions = 1;
	r.leases = 2;
	r.draining = draining;
	r.receive_to_durable_ns = 1000;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT;
	m.receipt = &r;
	fake_send(a, &m);
}

Ros2__V1__AgentObject *fake_open(struct fake *a, const Ros2__V1__SealedObject *s)
{
	uint8_t path[MERKLE_PATH_MAX][SHA256_LEN], leaf[SHA256_LEN];
	uint8_t msg[14 + 16 + 24 + SHA256_LEN], *p = msg;
	const Ros2__V1__BatchSeal *e = s->seal;
	uint64_t numbers[3] = {e->epoch->counter, e->batch, e->tree_size};
	Ros2__V1__AgentObject *o;

	assert_true(e->n_path <= MERKLE_PATH_MAX);
	for (size_t i = 0; i < e->n_path; i++)
		memcpy(path[i], e->path[i].data, SHA256_LEN);
	merkle_leaf(s->body.data, s->body.len, leaf);
	assert_true(merkle_path_verify(leaf, e->leaf_index, e->tree_size,
	                               (const uint8_t(*)[SHA256_LEN])path, e->n_path,
	                               e->root.data));
	memcpy(p, "ros2-batch-v1", 14);
	memcpy(p + 14, e->epoch->lineage.data, 16);
	for (int i = 0; i < 24; i++)
		p[30 + i] = (uint8_t)(numbers[i / 8] >> (8 * (7 - i % 8)));
	memcpy(p + 54, e->root.data, SHA256_LEN);
	assert_true(crypto_verify(a->snapshot_pub, msg, sizeof(msg), e->signature.data));
	o = ros2__v1__agent_object__unpack(NULL, s->body.len, s->body.data);
	assert_non_null(o);
	assert_memory_equal(o->agent_uid.data, a->uid.b, ROS2_UID_LEN);
	return o;
}

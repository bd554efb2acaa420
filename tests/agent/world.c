/* SPDX-License-Identifier: Apache-2.0 */
/* See world.h. The controller lives on a loop of its own; what it hears is counted under a lock. */
#include "tests/agent/world.h"
#include "common/util.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "tests/await.h"
#include <time.h>

void world_make_ca(const char *dir, const char *name)
{
	char key[4200], crt[4200];
	struct pki_ca_opts o = {.common_name = name,
	                        .trust_domain = "ros2.test",
	                        .key_path = key,
	                        .cert_path = crt,
	                        .lifetime_s = 86400};

	snprintf(key, sizeof(key), "%s/%s.key", dir, name);
	snprintf(crt, sizeof(crt), "%s/%s.crt", dir, name);
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
}

void world_issue(const char *dir, const char *ca, const char *name, const char *uri)
{
	char key[4200], crt[4200], ca_key[4200], ca_crt[4200], *csr, *pem;
	struct pki_issue_opts o = {.uri = uri,
	                           .issuer_cert_path = ca_crt,
	                           .issuer_key_path = ca_key,
	                           .dns = "localhost,127.0.0.1",
	                           .lifetime_s = 3600};

	snprintf(key, sizeof(key), "%s/%s.key", dir, name);
	snprintf(crt, sizeof(crt), "%s/%s.crt", dir, name);
	snprintf(ca_key, sizeof(ca_key), "%s/%s.key", dir, ca);
	snprintf(ca_crt, sizeof(ca_crt), "%s/%s.crt", dir, ca);
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_csr_create(key, uri, &csr, NULL), 0);
	o.csr_pem = csr;
	o.csr_len = strlen(csr);
	assert_int_equal(pki_issue(&o, &pem, NULL), 0);
	assert_int_equal(fsx_write_atomic(crt, pem, strlen(pem), 0644, NULL), 0);
	free(csr);
	free(pem);
}

void world_copy(const char *dir, const char *from, const char *to)
{
	char a[4200], b[4200];
	void *p;
	size_t n;

	testing_path(a, dir, from);
	testing_path(b, dir, to);
	assert_int_equal(fsx_read_file(a, 1 << 20, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(b, p, n, 0600, NULL), 0);
	free(p);
}

/* ---- the controller ---- */

static void heard(struct world *w, _Atomic unsigned *counter)
{
	pthread_mutex_lock(&w->lock);
	(*counter)++;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void say(struct world *w, Ros2__V1__ControllerMessage *m)
{
	struct rpc_stream *s = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->link)
		s = rpc_stream_ref(w->link);
	pthread_mutex_unlock(&w->lock);
	if (s) {
		rpc_stream_send(s, &m->base);
		rpc_stream_unref(s);
	}
}

/* The named file of the world's directory, as a message has it; the caller frees data. */
static ProtobufCBinaryData bundle(struct world *w, const char *name)
{
	ProtobufCBinaryData b = {0};
	char path[4200];

	testing_path(path, w->dir, name ? name : "none");
	if (name)
		assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&b.data, &b.len, NULL), 0);
	return b;
}

static void say_done(struct world *w)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;

	d.initial_done = true;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA;
	m.delta = &d;
	say(w, &m);
}

static void on_hello(struct world *w, const Ros2__V1__AgentHello *h)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Welcome wel = ROS2__V1__WELCOME__INIT;
	Ros2__V1__Epoch e = ROS2__V1__EPOCH__INIT;

	e.lineage = (ProtobufCBinaryData){16, w->f.epoch.lineage};
	e.counter = w->f.epoch.counter;
	wel.protocol = RPC_PROTOCOL_VERSION;
	wel.epoch = &e;
	wel.beat_interval_ms = 100;
	wel.stamp = h->stamp;
	wel.infra_bundle_pem = bundle(w, w->infra_bundle);
	wel.tenant_bundle_pem = bundle(w, w->tenant_bundle);
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_WELCOME;
	m.welcome = &wel;
	w->last_have = h->n_have;
	say(w, &m);
	free(wel.infra_bundle_pem.data);
	free(wel.tenant_bundle_pem.data);
	if (w->done_at_hello)
		say_done(w);
	heard(w, &w->hellos);
}

static void on_beat(struct world *w, const Ros2__V1__Beat *b)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Contact c = ROS2__V1__CONTACT__INIT;

	c.stamp = b->stamp;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_CONTACT;
	m.contact = &c;
	if (!w->silent)
		say(w, &m);
	if (w->sees_beat)
		w->sees_beat(b);
	heard(w, &w->beats);
}

static void hold(struct world *w, const Ros2__V1__ControllerMessage *m)
{
	size_t n = ros2__v1__controller_message__get_packed_size(m);
	uint8_t *p = malloc(n);

	ros2__v1__controller_message__pack(m, p);
	ros2__v1__controller_message__free_unpacked(w->held, NULL);
	w->held = ros2__v1__controller_message__unpack(NULL, n, p);
	free(p);
}

static void answer_held(void *arg)
{
	struct world *w = arg;

	say(w, w->held);
	ros2__v1__controller_message__free_unpacked(TAKE_PTR(w->held), NULL);
}

void world_answer_grant(struct world *w)
{
	loop_call(w->ctl_loop, answer_held, w);
}

static void on_grant_request(struct world *w, const Ros2__V1__GrantRequest *r)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__GrantReply rep = ROS2__V1__GRANT_REPLY__INIT;
	struct fix_bytes b = {0};

	rep.request_id = r->request_id;
	rep.status = w->grant_status;
	rep.words = (char *)"the test says no";
	if (!rep.status) {
		Ros2__V1__AgentObject *g;

		memcpy(w->f.boot_id, r->stamp->boot_id.data, 16);
		g = fix_grant(&w->f, w->next_grant++, r->tenant_uid.data[0], r->principal, 1,
		              r->stamp->boottime_ns, w->grant_lifetime_ms, w->grant_policy);
		fix_seal(&w->f, &g, 1, &b);
		rep.grant = ros2__v1__sealed_object__unpack(NULL, b.n, b.p);
	}
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_GRANT_REPLY;
	m.grant_reply = &rep;
	if (w->hold_grants)
		hold(w, &m);
	else
		say(w, &m);
	if (rep.grant)
		ros2__v1__sealed_object__free_unpacked(rep.grant, NULL);
	free(b.p);
	heard(w, &w->grant_requests);
}

static void append(char *to, size_t size, const char *word)
{
	if (*word && strlen(to) + strlen(word) + 2 < size) {
		strcat(to, word);
		strcat(to, " ");
	}
}

static void on_audit(struct world *w, const Ros2__V1__AuditBatch *a)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__AuditAck ack = ROS2__V1__AUDIT_ACK__INIT;

	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < a->n_drafts; i++) {
		const Ros2__V1__AuditRecord *r = a->drafts[i]->record;

		if (w->sees_record)
			w->sees_record(r);
		append(w->actions, sizeof(w->actions), r->action);
		append(w->reasons, sizeof(w->reasons), r->reason);
		append(w->subjects, sizeof(w->subjects), r->object_name);
		append(w->subjects, sizeof(w->subjects), r->object_uid);
		ack.seq = a->drafts[i]->seq;
	}
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	ack.incarnation = a->incarnation;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_AUDIT_ACK;
	m.audit_ack = &ack;
	if (!w->no_audit_acks)
		say(w, &m);
}

static void on_probe(struct world *w, const Ros2__V1__ProbeReport *r)
{
	uint32_t enforced = 0;

	for (size_t i = 0; r->n_subjects && i < r->subjects[0]->n_findings; i++)
		if (r->subjects[0]->findings[i]->result == PROBE_ENFORCED)
			enforced |= 1u << r->subjects[0]->findings[i]->property;
	w->probe_enforced = enforced;
	w->probe_subjects = (unsigned)r->n_subjects;
	heard(w, &w->probes);
}

static void on_report(struct world *w, const Ros2__V1__Report *r)
{
	w->report_sessions += (unsigned)r->n_sessions;
	if (r->last)
		heard(w, &w->reports);
}

static void on_message(struct rpc_stream *s, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__AgentMessage *m = (const Ros2__V1__AgentMessage *)msg;
	struct world *w = user;

	if (w->deaf)
		rpc_stream_hold(s);
	switch (m->msg_case) {
	case ROS2__V1__AGENT_MESSAGE__MSG_HELLO:
		on_hello(w, m->hello);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_BEAT:
		on_beat(w, m->beat);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_STATE:
		heard(w, m->state->applied ? &w->applied : &w->failed);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_GRANT_REQUEST:
		on_grant_request(w, m->grant_request);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_PROBE:
		on_probe(w, m->probe);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_REPORT:
		on_report(w, m->report);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT:
		w->last_durable = m->receipt->durable;
		w->last_sessions = m->receipt->sessions;
		w->last_draining = m->receipt->draining;
		heard(w, &w->receipts);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_ACK:
		heard(w, &w->acks);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_AUDIT:
		on_audit(w, m->audit);
		break;
	default:
		break;
	}
}

void world_hear(struct world *w)
{
	w->deaf = false;
	pthread_mutex_lock(&w->lock);
	if (w->link)
		rpc_stream_resume(w->link);
	pthread_mutex_unlock(&w->lock);
}

static void on_open(struct rpc_stream *s, const ProtobufCMessage *req, void *user)
{
	struct world *w = user;

	pthread_mutex_lock(&w->lock);
	rpc_stream_unref(w->link);
	w->link = rpc_stream_ref(s);
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void on_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct world *w = user;

	pthread_mutex_lock(&w->lock);
	if (w->link == s) {
		rpc_stream_unref(w->link);
		w->link = NULL;
	}
	pthread_mutex_unlock(&w->lock);
	heard(w, &w->closed);
}

static void on_renew(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__RenewRequest *q = ros2_v1_agent_link_renew_in(msg);
	Ros2__V1__EnrolReply m = ROS2__V1__ENROL_REPLY__INIT;
	struct world *w = user;
	char key[4200], crt[4200], *pem;
	struct pki_issue_opts o = {.csr_pem = (const char *)q->csr_pem.data,
	                           .csr_len = q->csr_pem.len,
	                           .uri = "spiffe://ros2.test/agent/dpu-0",
	                           .issuer_cert_path = crt,
	                           .issuer_key_path = key,
	                           .dns = "localhost,127.0.0.1",
	                           .lifetime_s = 3600};

	testing_path(key, w->dir, "infra.key");
	testing_path(crt, w->dir, "infra.crt");
	assert_int_equal(pki_issue(&o, &pem, NULL), 0);
	m.cert_pem = (ProtobufCBinaryData){strlen(pem), (uint8_t *)pem};
	m.infra_bundle_pem = bundle(w, w->infra_bundle);
	m.tenant_bundle_pem = bundle(w, w->tenant_bundle);
	rpc_call_reply(call, &m.base);
	free(m.infra_bundle_pem.data);
	free(m.tenant_bundle_pem.data);
	free(pem);
	heard(w, &w->renewals);
}

void world_controller_start(struct world *w)
{
	static const struct rpc_stream_ops ops = {
		.on_open = on_open, .on_message = on_message, .on_closed = on_closed};
	const struct rpc_handler rows[] = {
		{.method = &ros2_v1_agent_link_link, .stream = &ops, .user = w},
		{.method = &ros2_v1_agent_link_renew, .unary = on_renew, .user = w},
	};
	char crt[4200], key[4200], ca[4200];
	struct rpc_server_opts o = {
		.name = "ctl", .cert_path = crt, .key_path = key, .client_ca_path = ca};

	testing_path(crt, w->dir, "ctl.crt");
	testing_path(key, w->dir, "ctl.key");
	testing_path(ca, w->dir, "infra.crt");
	o.listen = w->ctl_address[0] ? w->ctl_address : "127.0.0.1:0";
	assert_int_equal(loop_new(&(struct loop_opts){.name = "ctl"}, &w->ctl_loop), 0);
	o.loop = w->ctl_loop;
	assert_int_equal(rpc_server_new(&o, &w->ctl, NULL), 0);
	assert_int_equal(
		rpc_server_add(w->ctl, &ros2_v1_agent_link_service, rows, ARRAY_SIZE(rows), NULL),
		0);
	assert_int_equal(rpc_server_start(w->ctl, NULL), 0);
	snprintf(w->ctl_address, sizeof(w->ctl_address), "127.0.0.1:%u", rpc_server_port(w->ctl));
	assert_int_equal(loop_thread_start(w->ctl_loop), 0);
}

static void free_ctl(void *arg)
{
	struct world *w = arg;

	rpc_server_free(w->ctl);
	w->ctl = NULL;
}

void world_controller_stop(struct world *w)
{
	if (!w->ctl)
		return;
	loop_call(w->ctl_loop, free_ctl, w);
	loop_stop(w->ctl_loop);
	loop_thread_join(w->ctl_loop);
	loop_free(w->ctl_loop);
}

/* ---- the agent ---- */

static void on_ready(void *arg)
{
	struct world *w = arg;

	pthread_mutex_lock(&w->lock);
	w->ready = true;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void on_fatal(void *arg, const struct ros2_err *err)
{
	((struct world *)arg)->fatal = *err;
}

int world_agent_try(struct world *w, struct ros2_err *err)
{
	static char state[4200];
	struct agent_opts o = {.controller = w->ctl_address,
	                       .listen = "127.0.0.1:0",
	                       .data_host = "127.0.0.1",
	                       .state_dir = state,
	                       .probe = w->probe,
	                       .rdma_device = w->rdma_device,
	                       .shm_dir = w->shm_dir,
	                       .rdma_host = w->rdma_device ? "127.0.0.1" : NULL,
	                       .spool_quota_bytes = w->spool_quota,
	                       .tenant_records_per_s = w->records_per_s,
	                       .tenant_connections_per_address = w->connections_per_address,
	                       .on_ready = on_ready,
	                       .on_fatal = on_fatal,
	                       .arg = w};
	int r;

	testing_path(state, w->dir, "state");
	strcpy(o.identity.name, "dpu-0");
	strcpy(o.identity.trust_domain, "ros2.test");
	o.identity.agent_uid = w->f.trust.agent_uid;
	memcpy(o.identity.snapshot_pub, w->f.trust.snapshot_pub, ED25519_PUB_LEN);
	r = loop_new(&(struct loop_opts){.name = "agent"}, &w->loop);
	if (r < 0)
		return ros2_err_set(err, r, "no loop");
	o.loop = w->loop;
	w->ready = false;
	w->agent = NULL;
	r = agent_new(&o, &w->agent, err);
	if (r < 0)
		return r;
	r = agent_start(w->agent, err);
	if (!r)
		r = loop_thread_start(w->loop);
	if (r < 0) {
		if (!err->msg[0])
			ros2_err_set(err, r, "no thread");
		agent_free(w->agent);
		w->agent = NULL;
	}
	return r;
}

void world_agent_start(struct world *w)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (world_agent_try(w, &err) < 0)
		fail_msg("%s", err.msg);
}

static void stopped(void *arg)
{
	loop_stop(((struct world *)arg)->loop);
}

static void stop_agent(void *arg)
{
	struct world *w = arg;

	agent_stop(w->agent, stopped, w);
}

void world_agent_stop(struct world *w)
{
	if (!w->agent)
		return;
	loop_post_urgent(w->loop, &w->stop_post, stop_agent, w);
	loop_thread_join(w->loop);
	agent_free(w->agent);
	w->agent = NULL;
}

struct idle {
	struct world *w;
	bool is;
};

static void look_idle(void *arg)
{
	struct idle *i = arg;

	i->is = persist_is_idle(i->w->agent->persist);
}

void world_wait_stored(struct world *w)
{
	struct idle i = {w, false};

	assert_true(AWAIT((loop_call(w->loop, look_idle, &i), i.is)));
}

bool world_has_stamp(struct world *w)
{
	struct contact_saved s;
	char path[4200];
	void *p = NULL;
	size_t n;
	bool has;

	testing_path(path, w->dir, "state/contact");
	if (fsx_read_file(path, 4096, &p, &n, NULL) < 0)
		return false;
	has = contact_decode(p, n, &s, NULL) == 0 && s.stamp.boottime_ns;
	free(p);
	return has;
}

/* ---- the test's side ---- */

void world_start(struct world *w)
{
	char state[4200];

	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	fixture_init(&w->f);
	w->next_grant = WORLD_FIRST_GRANT_SEED;
	w->grant_lifetime_ms = 600000;
	w->grant_policy = 1;
	assert_int_equal(testing_dir_setup((void **)&w->dir), 0);
	world_make_ca(w->dir, "infra");
	world_make_ca(w->dir, "tenant");
	world_issue(w->dir, "infra", "ctl", "spiffe://ros2.test/controller/ctl-0");
	world_issue(w->dir, "infra", "agent", "spiffe://ros2.test/agent/dpu-0");
	world_issue(w->dir, "tenant", "alpha", FIX_ALPHA);
	world_issue(w->dir, "tenant", "beta", FIX_BETA);
	world_issue(w->dir, "tenant", "other", "spiffe://ros2.test/tenant/nobody");
	testing_path(state, w->dir, "state");
	assert_int_equal(fsx_mkdirs(state, 0700, NULL), 0);
	world_copy(w->dir, "agent.crt", "state/tls.crt");
	world_copy(w->dir, "agent.key", "state/tls.key");
	world_copy(w->dir, "infra.crt", "state/infra-bundle.pem");
	world_copy(w->dir, "tenant.crt", "state/tenant-bundle.pem");
	world_controller_start(w);
}

void world_stop(struct world *w)
{
	world_agent_stop(w);
	world_controller_stop(w);
	rpc_stream_unref(w->link);
	testing_dir_teardown((void **)&w->dir);
	fixture_fini(&w->f);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	ros2__v1__controller_message__free_unpacked(TAKE_PTR(w->held), NULL);
}

void world_wait(struct world *w, const _Atomic unsigned *counter, unsigned n)
{
	struct timespec end;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += AWAIT_S;
	pthread_mutex_lock(&w->lock);
	while (*counter < n && !r)
		r = pthread_cond_timedwait(&w->cond, &w->lock, &end);
	pthread_mutex_unlock(&w->lock);
	assert_int_equal(r, 0);
}

bool world_wait_action(struct world *w, const char *action)
{
	struct timespec end;
	bool found;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += AWAIT_S;
	pthread_mutex_lock(&w->lock);
	while (!(found = strstr(w->actions, action)) && !r)
		r = pthread_cond_timedwait(&w->cond, &w->lock, &end);
	pthread_mutex_unlock(&w->lock);
	return found;
}

void world_send(struct world *w, Ros2__V1__AgentObject **objs, size_t n, bool initial_done)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	Ros2__V1__SealedObject *sealed[8];
	struct fix_bytes b[8];

	assert_true(n <= 8);
	fix_seal(&w->f, objs, n, b);
	for (size_t i = 0; i < n; i++) {
		sealed[i] = ros2__v1__sealed_object__unpack(NULL, b[i].n, b[i].p);
		free(b[i].p);
	}
	d.nonce = w->f.batch;
	d.n_upserts = n;
	d.upserts = sealed;
	d.initial_done = initial_done;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA;
	m.delta = &d;
	say(w, &m);
	for (size_t i = 0; i < n; i++)
		ros2__v1__sealed_object__free_unpacked(sealed[i], NULL);
}

void world_populate(struct world *w)
{
	Ros2__V1__AgentObject *objs[] = {
		fix_engine(&w->f, "files", 1, 1),
		fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 1),
		fix_tenant(&w->f, "beta", FIX_BETA, WORLD_BETA_SEED, 1),
	};

	world_wait(w, &w->beats, 1);
	world_send(w, objs, 3, true);
	world_wait(w, &w->applied, 3);
	world_wait(w, &w->acks, 1);
}

void world_revoke_as(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version,
                     const struct ros2_uid *revocation)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Revoke r = ROS2__V1__REVOKE__INIT;
	struct ros2_uid uid = fix_uid(seed), rev = *revocation;

	r.revocation_uid = (ProtobufCBinaryData){16, rev.b};
	r.uid = (ProtobufCBinaryData){16, uid.b};
	r.kind = (Ros2__V1__ObjectKind)kind;
	r.version = version;
	r.reason = (char *)"the test says so";
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_REVOKE;
	m.revoke = &r;
	say(w, &m);
}

void world_revoke(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version)
{
	struct ros2_uid rev = fix_uid((uint8_t)(seed + 100));

	world_revoke_as(w, kind, seed, version, &rev);
}

/* @by: one to bring, sealed, or NULL. */
static void remove_and_bring(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version,
                             Ros2__V1__SealedObject *by)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__HaveObject h = ROS2__V1__HAVE_OBJECT__INIT, *removals = &h;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	struct ros2_uid uid = fix_uid(seed);

	d.nonce = w->f.batch;
	d.n_upserts = by != NULL;
	d.upserts = &by;
	h.kind = (Ros2__V1__ObjectKind)kind;
	h.uid = (ProtobufCBinaryData){16, uid.b};
	h.version = version;
	d.n_removals = 1;
	d.removals = &removals;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA;
	m.delta = &d;
	say(w, &m);
}

void world_remove(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version)
{
	remove_and_bring(w, kind, seed, version, NULL);
}

void world_replace(struct world *w, uint8_t seed, uint64_t version, Ros2__V1__AgentObject *by)
{
	Ros2__V1__SealedObject *sealed;
	struct fix_bytes b;

	fix_seal(&w->f, &by, 1, &b);
	sealed = ros2__v1__sealed_object__unpack(NULL, b.n, b.p);
	free(b.p);
	remove_and_bring(w, OBJ_TENANT, seed, version, sealed);
	ros2__v1__sealed_object__free_unpacked(sealed, NULL);
}

void world_ask_report(struct world *w)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__ReportRequest r = ROS2__V1__REPORT_REQUEST__INIT;

	w->report_sessions = 0;
	r.request_id = 1;
	r.sessions = true;
	r.leases = true;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_REPORT_REQUEST;
	m.report_request = &r;
	say(w, &m);
}

void world_cut(struct world *w)
{
	struct rpc_stream *s = NULL;

	pthread_mutex_lock(&w->lock);
	if (w->link)
		s = rpc_stream_ref(w->link);
	pthread_mutex_unlock(&w->lock);
	if (s)
		rpc_stream_abort(s, ROS2_UNAVAILABLE, "the test says so");
	rpc_stream_unref(s);
}

struct rpc_channel *world_tenant(struct world *w, const char *name)
{
	char crt[4200], key[4200], ca[4200], target[64];
	struct rpc_channel_opts o = {.name = name,
	                             .target = target,
	                             .ca_path = ca,
	                             .cert_path = crt,
	                             .key_path = key,
	                             .server_id = "spiffe://ros2.test/agent/",
	                             .server_id_is_prefix = true};
	struct rpc_channel *c = NULL;

	snprintf(crt, sizeof(crt), "%s/%s.crt", w->dir, name);
	snprintf(key, sizeof(key), "%s/%s.key", w->dir, name);
	testing_path(ca, w->dir, "infra.crt");
	snprintf(target, sizeof(target), "127.0.0.1:%u", agent_tenant_port(w->agent));
	assert_int_equal(rpc_channel_new(&o, &c, NULL), 0);
	return c;
}

enum ros2_status world_call(struct rpc_channel *c, const struct rpc_method *m,
                            const ProtobufCMessage *req, ProtobufCMessage **ret, char words[320])
{
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *reply = NULL;
	int r = rpc_unary_sync(c, m, req, 15000, &reply, &err);

	if (words)
		strcpy(words, err.msg);
	if (r < 0)
		return err.status;
	if (ret)
		*ret = reply;
	else
		protobuf_c_message_free_unpacked(reply, NULL);
	return ROS2_OK;
}

enum ros2_status world_open_session(struct rpc_channel *c, struct ros2_uid *ret)
{
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	enum ros2_status st;

	req.protocol = RPC_PROTOCOL_VERSION;
	req.transport = ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	st = world_call(c, &ros2_v1_tenant_open_session, &req.base, &m, NULL);
	if (st != ROS2_OK)
		return st;
	memcpy(ret->b, ((Ros2__V1__OpenSessionReply *)m)->session_uid.data, 16);
	assert_int_equal(((Ros2__V1__OpenSessionReply *)m)->secret.len, 32);
	protobuf_c_message_free_unpacked(m, NULL);
	return ROS2_OK;
}

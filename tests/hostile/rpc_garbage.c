/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every method of every service, as the tables have them, with every payload of payloads.h, by a
 * caller who may call it. A new method is covered by being a row, a new field by being in the
 * descriptor. What must hold: a reply or a named error within seconds; the server lives.
 */
#include "common/clock.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/grpc/health/v1/health.rpc.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/hostile/hostile.h"
#include "tests/hostile/payloads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_MS     10000
#define LIMIT_S     8.0 /* Delete and Revoke wait 5 s for an agent that is away */
#define WATCH_MS    250
#define SEED        20251120
#define BATCH_MAX   32
#define BATCH_BYTES (2u << 20)
#define NUM(n, own, other)                                                                         \
	{                                                                                          \
		.field = (n), .number = (own), .foreign_number = (other)                           \
	}
#define TEXT(n, s)                                                                                 \
	{                                                                                          \
		.field = (n), .data = (s), .len = sizeof(s) - 1                                    \
	}

/* Of a stream of both directions: payloads that wait for the next one. */
struct batch {
	struct bytes hello; /* what stands before them */
	struct bytes payload[BATCH_MAX];
	char what[BATCH_MAX][128];
	unsigned n, heard;      /* heard: by its handler, of all */
	bool counts[BATCH_MAX]; /* as a hello */
	size_t len;
};

/* One service and the caller. */
struct target {
	struct hostile *h;
	struct bytes_channel *c;
	const struct rpc_method *m;
	const struct payload_opts *o;
	struct batch batch;
	uint64_t busy_ns; /* boottime at which the agent's bucket of hellos is empty again */
	unsigned calls, accepted, anothers;
	double worst_s;
	bool is_agent; /* each call counts as a hello */
};

/* The one bad field is what only its owner may name, and it is the neighbour's. */
static bool is_anothers(const char *what)
{
	static const char *const owned[] = {"session_uid", "handle", "key"};
	char want[64];

	for (size_t i = 0; i < ARRAY_SIZE(owned); i++) {
		snprintf(want, sizeof(want), "%s = another tenant's", owned[i]);
		if (!strcmp(what, want))
			return true;
	}
	return false;
}

static void judge(struct target *t, const char *what, const struct bytes_result *r)
{
	t->calls++;
	t->accepted += !r->code;
	if (is_anothers(what)) {
		t->anothers++;
		if (!r->code)
			hostile_problem(t->h, "%s: is accepted", what);
	}
	t->worst_s = r->seconds > t->worst_s ? r->seconds : t->worst_s;
	if (!is_named(r) || r->seconds > LIMIT_S)
		hostile_problem(t->h, "%s: code %d, '%s', %.3f s", what, r->code, r->words,
		                r->seconds);
}

/* A session that a payload has opened is not left behind: it would use up the attacker's limit. */
static void close_opened(struct target *t, const struct bytes_result *r)
{
	struct bytes_part m = {r->reply, 18}; /* session_uid is field 1 of both messages */
	struct bytes_result ignored;

	if (t->m == &ros2_v1_tenant_open_session && !r->code && r->reply_len >= 18)
		bytes_call(t->c, "/ros2.v1.Tenant/CloseSession", &m, 1, CALL_MS, &ignored);
}

/* Of an agent that says hello too often nothing is looked at. Ten a second are taken, of which a
 * report and a renewal are each another one, after a hundred: the controller counts later than
 * we do, so nine here. */
static void wait_for_hellos(struct target *t, unsigned n)
{
	const uint64_t each = NS_PER_S / 9, now = clock_boottime_ns();
	uint64_t full = now - 90 * each;

	t->busy_ns = MAX(t->busy_ns, full) + n * each;
	if (t->busy_ns > now)
		/* time: until there is room */
		usleep((useconds_t)((t->busy_ns - now) / NS_PER_US));
}

static void send_payload(void *arg, const char *what, const void *p, size_t n)
{
	struct target *t = arg;
	struct bytes_part part = {p, n};
	struct bytes_result r;

	if (t->is_agent)
		wait_for_hellos(t, 1);
	bytes_call(t->c, t->m->path, &part, 1, CALL_MS, &r);
	judge(t, what, &r);
	close_opened(t, &r);
	if (t->calls % 40 == 0)
		neighbours_work(t->h);
}

static void no_message(struct target *t)
{
	struct bytes_result r;

	bytes_call(t->c, t->m->path, NULL, 0, CALL_MS, &r);
	judge(t, "no message at all", &r);
}

static void method(struct target *t)
{
	t->calls = t->accepted = t->anothers = 0;
	t->worst_s = 0;
	no_message(t);
	payloads_each(t->m->input, t->o, send_payload, t);
	servers_live(t->h);
	hostile_test(t->h, "%s: %u payloads, %u of them valid, the slowest took %.0f ms",
	             t->m->name, t->calls, t->accepted, t->worst_s * 1e3);
}

/* The negative control: good values get through, so the bad field was looked at. */
static void was_heard(struct target *t)
{
	if (t->accepted)
		return;
	hostile_problem(t->h, "not even good values were accepted");
	hostile_test(t->h, "%s takes good values", t->m->name);
}

static void service(struct target *t, const struct rpc_service *s, void (*before)(struct target *t))
{
	for (size_t i = 0; i < s->n_methods; i++) {
		t->m = s->methods[i];
		if (before)
			before(t);
		method(t);
		was_heard(t);
	}
}

/* ---- the controller's ---- */

static const struct known_value controller_values[] = {
	NUM("kind", 1, 3),        TEXT("name", "nobody"),    TEXT("agent", "nobody"),
	TEXT("tenant", "nobody"), TEXT("reason", "garbage"), NUM("wait_ms", 10, 1),
	NUM("protocol", 1, 2),    NUM("limit", 5, 1),        TEXT("secret", "00"),
	TEXT("text", "a: b\n"),   NUM("dry_run", 1, 0),      {.field = NULL},
};

/* An agent and a tenant that nobody misses: what the good values name, and what is revoked and
 * deleted here. */
static void make_nobody(struct target *t)
{
	static const char text[] =
		"apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: nobody}\nspec: {}\n---\n"
		"apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: nobody}\nspec:\n"
		"  principals: [\"spiffe://ros2.test/tenant/nobody/x\"]\n"
		"  placement: {agents: [dpu-0]}\n  namespaces:\n"
		"    - {name: data, engine: files, path: nobody, access: rw}\n"
		"  memory: {registeredBytes: 64MiB, regions: 1}\n";
	struct bytes file = {0}, apply = {0};
	struct bytes_part m;
	struct bytes_result r;

	bytes_field(&file, 1, "nobody.yaml", 11);
	bytes_field(&file, 2, text, sizeof(text) - 1);
	bytes_field(&apply, 1, file.p, file.len);
	m = (struct bytes_part){apply.p, apply.len};
	bytes_call(t->c, "/ros2.v1.Admin/Apply", &m, 1, CALL_MS, &r);
	/* ApplyReply.applied = true */
	if (r.code || r.reply_len < 2 || memcmp(r.reply, "\x08\x01", 2))
		hostile_problem(t->h, "nobody was not applied: code %d, %s, %.*s", r.code, r.words,
		                (int)r.reply_len, r.reply);
	bytes_fini(&file);
	bytes_fini(&apply);
}

/* What only who was revoked can have. */
static void revoke_nobody(struct target *t)
{
	Ros2__V1__RevokeRequest q = ROS2__V1__REVOKE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	struct bytes_result r;
	uint8_t buf[64];
	struct bytes_part m = {buf, 0};

	ref.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	ref.name = (char *)"nobody";
	q.ref = &ref;
	q.reason = (char *)"garbage";
	m.len = protobuf_c_message_pack(&q.base, buf);
	bytes_call(t->c, "/ros2.v1.Admin/Revoke", &m, 1, CALL_MS, &r);
	if (r.code)
		hostile_problem(t->h, "nobody was not revoked: code %d, %s", r.code, r.words);
}

static void prepare(struct target *t)
{
	make_nobody(t);
	if (t->m == &ros2_v1_admin_reinstate)
		revoke_nobody(t);
}

static struct bytes_channel *admin_channel(const struct hostile *h)
{
	return bytes_channel_new(h->admin, hostile_path(h, "td/admin/infra-bundle.pem"),
	                         hostile_path(h, "td/admin/tls.crt"),
	                         hostile_path(h, "td/admin/tls.key"));
}

static void admin_and_audit(struct hostile *h)
{
	struct payload_opts o = {.known = controller_values, .too_large = 5u << 20, .seed = SEED};
	struct target t = {.h = h, .o = &o};

	t.c = admin_channel(h);
	service(&t, &ros2_v1_admin_service, prepare);
	service(&t, &ros2_v1_audit_service, NULL);
	bytes_channel_free(t.c);
}

/* A good request for a certificate, with a key of its own; malloc'd. */
static char *new_csr(const struct hostile *h, const char *name)
{
	struct ros2_err err = ROS2_ERR_INIT;
	const char *key = hostile_path(h, "%s.key", name);
	char *csr = NULL;

	if (!pki_key_create(key, &err) && !pki_csr_create(key, NULL, &csr, &err))
		return csr;
	fprintf(stderr, "no certificate request: %s\n", err.msg);
	exit(2);
}

/* The secret of a token that is good for nobody. */
static void new_secret(struct hostile *h, char secret[80])
{
	struct target t = {.h = h, .c = admin_channel(h)};
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *p;
	struct bytes_result r;
	uint8_t buf[64];
	struct bytes_part m = {buf, 0};

	make_nobody(&t);
	q.agent = (char *)"nobody";
	m.len = protobuf_c_message_pack(&q.base, buf);
	bytes_call(t.c, "/ros2.v1.Admin/CreateAgentToken", &m, 1, CALL_MS, &r);
	p = ros2__v1__create_agent_token_reply__unpack(NULL, r.reply_len, r.reply);
	if (r.code || !p || sscanf(p->token, "%*s %*s %79s", secret) != 1)
		hostile_problem(h, "no token: code %d, %s", r.code, r.words);
	if (p)
		ros2__v1__create_agent_token_reply__free_unpacked(p, NULL);
	bytes_channel_free(t.c);
}

/* The same with one character of the signature another one: well-formed, and not its key's. */
static void forge(char *csr)
{
	char *at = strstr(csr, "\n-----END");

	if (!at || at - csr < 40)
		abort();
	at -= 24;
	*at = *at == 'A' ? 'B' : 'A';
}

static void forged_csr(struct target *t, const char *secret, const char *csr)
{
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	AUTO_FREE char *forged = strdup(csr);
	struct bytes_result r;
	uint8_t buf[4096];
	struct bytes_part m = {buf, 0};

	forge(forged);
	q.agent = (char *)"nobody";
	q.secret = (char *)secret;
	q.csr_pem = (ProtobufCBinaryData){strlen(forged), (uint8_t *)forged};
	q.protocol = 1;
	m.len = protobuf_c_message_pack(&q.base, buf);
	bytes_call(t->c, t->m->path, &m, 1, CALL_MS, &r);
	judge(t, "a forged request for a certificate", &r);
	/* Not for the token: that it was looked at, and is good still, the good values show. */
	if (!r.code || strstr(r.words, "token"))
		hostile_problem(t->h, "a forged request is answered: code %d, %s", r.code, r.words);
	hostile_test(t->h, "Enrol.Enrol: a good token with a forged request: %s", r.words);
}

static void enrol(struct hostile *h)
{
	AUTO_FREE char *csr = new_csr(h, "nobody");
	char secret[80] = "";
	struct known_value values[] = {TEXT("agent", "nobody"),
	                               {.field = "secret", .data = secret},
	                               {.field = "csr_pem", .data = csr, .len = strlen(csr)},
	                               NUM("protocol", 1, 2),
	                               {.field = NULL}};
	struct payload_opts o = {.known = values, .too_large = 300u << 10, .seed = SEED};
	struct target t = {.h = h, .o = &o, .m = &ros2_v1_enrol_enrol};

	new_secret(h, secret);
	values[1].len = strlen(secret);
	t.c = bytes_channel_new(h->enrol, hostile_path(h, "td/admin/infra-bundle.pem"), NULL, NULL);
	forged_csr(&t, secret, csr);
	service(&t, &ros2_v1_enrol_service, NULL);
	bytes_channel_free(t.c);
}

/* ---- the stream of an agent ---- */

static void put_hello(struct bytes *out, const uint8_t uid[16])
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AgentHello hello = ROS2__V1__AGENT_HELLO__INIT;
	Ros2__V1__Stamp stamp = ROS2__V1__STAMP__INIT;
	struct ros2_uid incarnation = ros2_uid_new();
	struct clock_stamp now;
	uint8_t buf[512];

	if (clock_stamp_now(&now))
		abort();
	stamp.boot_id = (ProtobufCBinaryData){16, now.boot_id};
	stamp.boottime_ns = now.boottime_ns;
	hello.protocol = 1;
	hello.software = (char *)"hostile";
	hello.agent_uid = (ProtobufCBinaryData){16, (uint8_t *)uid};
	hello.incarnation = (ProtobufCBinaryData){16, incarnation.b};
	hello.stamp = &stamp;
	hello.tenant_address = (char *)"127.0.0.1:1";
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_HELLO;
	m.hello = &hello;
	bytes_add(out, buf, protobuf_c_message_pack(&m.base, buf));
}

static void call_as_agent(struct target *t, const struct bytes_part *parts, size_t n,
                          unsigned hellos, struct bytes_result *r)
{
	wait_for_hellos(t, hellos);
	bytes_call(t->c, t->m->path, parts, n, CALL_MS, r);
	if (strstr(r->words, "says hello more than"))
		hostile_problem(t->h, "what stood behind a hello was not looked at: %s", r->words);
}

static void heard(struct target *t, const char *what, const struct bytes_part *parts, size_t n,
                  unsigned hellos)
{
	struct bytes_result r;

	call_as_agent(t, parts, n, hellos, &r);
	judge(t, what, &r);
}

/* All on one stream; when one of them ends it, each on its own. */
static void batch_leaves(struct target *t)
{
	struct batch *b = &t->batch;
	struct bytes_part parts[BATCH_MAX + 1] = {{b->hello.p, b->hello.len}};
	struct bytes_result r;
	unsigned hellos = 1;

	for (unsigned i = 0; i < b->n; i++) {
		parts[i + 1] = (struct bytes_part){b->payload[i].p, b->payload[i].len};
		hellos += b->counts[i];
	}
	call_as_agent(t, parts, b->n + 1, hellos, &r);
	if (r.code == 0)
		judge(t, b->what[0], &r);
	for (unsigned i = 0; r.code && i < b->n; i++) {
		parts[1] = (struct bytes_part){b->payload[i].p, b->payload[i].len};
		heard(t, b->what[i], parts, 2, 1 + b->counts[i]);
	}
	for (unsigned i = 0; i < b->n; i++)
		bytes_fini(&b->payload[i]);
	b->heard += b->n;
	b->n = 0;
	b->len = 0;
	neighbours_work(t->h);
}

/* What cannot be decoded is refused before anybody looks at who says it; of the others a hello is
 * the first message, and all else comes after one that is good. */
static void link_payload(void *arg, const char *what, const void *p, size_t n)
{
	struct target *t = arg;
	struct batch *b = &t->batch;
	ProtobufCMessage *m = NULL;
	struct bytes_part part = {p, n};
	Ros2__V1__AgentMessage__MsgCase kind;

	if (n > t->o->too_large || rpc_message_decode(t->m->input, p, n, &m, NULL) < 0) {
		send_payload(t, what, p, n);
		return;
	}
	kind = ((const Ros2__V1__AgentMessage *)m)->msg_case;
	protobuf_c_message_free_unpacked(m, NULL);
	if (kind == ROS2__V1__AGENT_MESSAGE__MSG_HELLO) {
		b->heard++;
		heard(t, what, &part, 1, 1);
		return;
	}
	if (b->n == BATCH_MAX || b->len + n > BATCH_BYTES)
		batch_leaves(t);
	bytes_add(&b->payload[b->n], p, n);
	b->counts[b->n] = kind == ROS2__V1__AGENT_MESSAGE__MSG_PROBE;
	snprintf(b->what[b->n++], sizeof(b->what[0]), "%s", what);
	b->len += n;
}

static void link_service(struct target *t)
{
	t->m = &ros2_v1_agent_link_link;
	payloads_each(t->m->input, t->o, link_payload, t);
	if (t->batch.n)
		batch_leaves(t);
	servers_live(t->h);
	/* The control: a message that was heard is not one that was refused for the hello before.
	 */
	if (t->batch.heard < 500 || t->accepted < 20)
		hostile_problem(t->h, "%u were heard, %u streams ended well", t->batch.heard,
		                t->accepted);
	hostile_test(t->h, "%s: %u payloads were heard, the slowest call took %.0f ms", t->m->name,
	             t->batch.heard, t->worst_s * 1e3);
	t->m = &ros2_v1_agent_link_renew;
	t->is_agent = true;
	method(t);
	was_heard(t);
}

/* As dpu-1, which is down: an enrolled agent that has been taken over. */
static void agent_link(struct hostile *h)
{
	AUTO_FREE char *csr = new_csr(h, "renewed");
	struct ros2_uid uid;
	const char *hex = getenv("HOSTILE_AGENT_UID");
	struct known_value values[] = {{.field = "agent_uid",
	                                .data = uid.b,
	                                .len = 16,
	                                .foreign_data = h->a.s.uid,
	                                .foreign_len = 16},
	                               {.field = "incarnation", .data = uid.b, .len = 16},
	                               {.field = "boot_id", .data = uid.b, .len = 16},
	                               {.field = "csr_pem", .data = csr, .len = strlen(csr)},
	                               NUM("boottime_ns", 1, 2),
	                               NUM("protocol", 1, 2),
	                               TEXT("software", "hostile"),
	                               {.field = NULL}};
	struct payload_opts o = {.known = values, .too_large = 5u << 20, .seed = SEED};
	struct target t = {.h = h, .o = &o};

	if (!hex || ros2_uid_from_str(hex, &uid)) {
		hostile_problem(h, "HOSTILE_AGENT_UID: expected a uid");
		hostile_test(h, "the link's caller is known");
		return;
	}
	put_hello(&t.batch.hello, uid.b);
	t.c = bytes_channel_new(h->link, hostile_path(h, "td/admin/infra-bundle.pem"),
	                        hostile_path(h, "agents/dpu-1/tls.crt"),
	                        hostile_path(h, "agents/dpu-1/tls.key"));
	link_service(&t);
	bytes_channel_free(t.c);
	bytes_fini(&t.batch.hello);
}

/* ---- the agent's ---- */

/* What their good path names is a file, or is not there. */
static bool may_all_fail(const struct rpc_method *m)
{
	return m == &ros2_v1_tenant_readdir || m == &ros2_v1_tenant_mkdir ||
	       m == &ros2_v1_tenant_unlink || m == &ros2_v1_tenant_rmdir ||
	       m == &ros2_v1_tenant_rename;
}

static void tenant(struct hostile *h)
{
	const struct rpc_service *s = &ros2_v1_tenant_service;
	struct target t = {.h = h, .c = h->b.bytes};
	struct ros2_err err = ROS2_ERR_INIT;

	for (size_t i = 0; i < s->n_methods; i++) {
		struct known_value values[] = {{.field = "session_uid",
		                                .data = h->b.s.uid,
		                                .len = 16,
		                                .foreign_data = h->a.s.uid,
		                                .foreign_len = 16},
		                               NUM("handle", h->b.handle, h->a.handle),
		                               NUM("key", h->b.key, h->a.key),
		                               NUM("mount", h->b.mount, h->a.mount),
		                               TEXT("namespace_name", "data"),
		                               TEXT("path", "garbage"),
		                               TEXT("from", "no"),
		                               TEXT("to", "where"),
		                               NUM("protocol", 1, 2),
		                               NUM("transport", 1, 2),
		                               NUM("flags", 7, 1),
		                               NUM("mode", 0644, 0),
		                               NUM("access", 3, 1),
		                               NUM("length", 4096, 1),
		                               NUM("address", 1ull << 32, 65536),
		                               {.field = NULL}};
		struct payload_opts o = {.known = values, .too_large = 300u << 10, .seed = SEED};

		t.o = &o;
		t.m = s->methods[i];
		method(&t);
		if (!t.anothers && t.m != &ros2_v1_tenant_open_session) {
			hostile_problem(h, "no payload named the neighbour's session");
			hostile_test(h, "%s: another's session is tried", t.m->name);
		}
		if (!may_all_fail(t.m))
			was_heard(&t);
		/* Some of the payloads are good enough to end the session. */
		if (!tenant_open(&h->b, &err)) {
			hostile_problem(h, "no new session: %s", err.msg);
			hostile_test(h, "after %s a session opens", t.m->name);
		}
	}
}

/* ---- health, at an agent and at the controller ---- */

/* What is watched ends with who watches: its first reply is the answer. That may take longer than
 * there is time for each of many. */
static void watch_payload(void *arg, const char *what, const void *p, size_t n)
{
	static const int limits_ms[] = {WATCH_MS, CALL_MS};
	struct target *t = arg;
	struct bytes_part part = {p, n};
	struct bytes_result r = {0};

	for (size_t i = 0; i < ARRAY_SIZE(limits_ms) && !r.replies && !(r.code && is_named(&r));
	     i++)
		bytes_call(t->c, t->m->path, &part, 1, limits_ms[i], &r);
	if (r.replies) {
		r.code = 0;
		r.seconds = 0;
	}
	judge(t, what, &r);
}

static void health(struct hostile *h, struct bytes_channel *c)
{
	static const struct known_value values[] = {TEXT("service", ""), {.field = NULL}};
	struct payload_opts o = {.known = values, .too_large = 5u << 20, .seed = SEED};
	struct target t = {.h = h, .c = c, .o = &o, .m = &grpc_health_v1_health_check};

	method(&t);
	was_heard(&t);
	t.m = &grpc_health_v1_health_watch;
	t.calls = t.accepted = 0;
	payloads_each(t.m->input, &o, watch_payload, &t);
	servers_live(h);
	hostile_test(h, "%s: %u payloads, %u of them valid", t.m->name, t.calls, t.accepted);
	was_heard(&t);
}

static void health_of_both(struct hostile *h)
{
	struct bytes_channel *admin = admin_channel(h);

	health(h, h->b.bytes);
	health(h, admin);
	bytes_channel_free(admin);
}

void rpc_garbage(struct hostile *h)
{
	tenant(h);
	health_of_both(h);
	enrol(h);
	admin_and_audit(h);
	agent_link(h);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every method of every service, as the tables have them, with every payload of payloads.h, by a
 * caller who may call it. A new method is covered by being a row, a new field by being in the
 * descriptor. What must hold: a reply or a named error within seconds; the server lives.
 */
#include "common/clock.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/hostile/hostile.h"
#include "tests/hostile/payloads.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL_MS 10000
#define LIMIT_S 5.0
#define SEED    20251120
#define NUM(n, own, other)                                                                         \
	{                                                                                          \
		.field = (n), .number = (own), .foreign_number = (other)                           \
	}
#define TEXT(n, s)                                                                                 \
	{                                                                                          \
		.field = (n), .data = (s), .len = sizeof(s) - 1                                    \
	}

/* One service and the caller: its connection, and what stands before a payload on a stream. */
struct target {
	struct hostile *h;
	struct bytes_channel *c;
	const struct rpc_method *m;
	const struct payload_opts *o;
	struct bytes hello; /* of a stream of both directions */
	unsigned calls, accepted;
	double worst_s;
};

static void judge(struct target *t, const char *what, const struct bytes_result *r)
{
	t->calls++;
	t->accepted += !r->code;
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

static void send_payload(void *arg, const char *what, const void *p, size_t n)
{
	struct target *t = arg;
	struct bytes_part parts[2] = {{t->hello.p, t->hello.len}, {p, n}};
	struct bytes_result r;

	bytes_call(t->c, t->m->path, parts + 1, 1, CALL_MS, &r);
	judge(t, what, &r);
	close_opened(t, &r);
	if (t->m->kind == RPC_BIDI) {
		bytes_call(t->c, t->m->path, parts, 2, CALL_MS, &r);
		judge(t, what, &r);
	}
	if (t->calls % 40 < 2)
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
	t->calls = t->accepted = 0;
	t->worst_s = 0;
	no_message(t);
	payloads_each(t->m->input, t->o, send_payload, t);
	servers_live(t->h);
	hostile_test(t->h, "%s: %u payloads, %u of them valid, the slowest took %.0f ms",
	             t->m->name, t->calls, t->accepted, t->worst_s * 1e3);
}

static void service(struct target *t, const struct rpc_service *s, void (*before)(struct target *t))
{
	for (size_t i = 0; i < s->n_methods; i++) {
		t->m = s->methods[i];
		if (before)
			before(t);
		method(t);
	}
}

/* ---- the controller's ---- */

static const struct known_value controller_values[] = {
	NUM("kind", 1, 3),      TEXT("name", "nobody"),    TEXT("agent", "nobody"),
	TEXT("tenant", "beta"), TEXT("reason", "garbage"), NUM("wait_ms", 10, 1),
	NUM("protocol", 1, 2),  NUM("limit", 5, 1),        TEXT("secret", "00"),
	TEXT("text", "a: b\n"), NUM("dry_run", 1, 0),      {.field = NULL},
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

static void admin_and_audit(struct hostile *h)
{
	struct payload_opts o = {.known = controller_values, .too_large = 5u << 20, .seed = SEED};
	struct target t = {.h = h, .o = &o};

	t.c = bytes_channel_new(h->admin, hostile_path(h, "td/admin/infra-bundle.pem"),
	                        hostile_path(h, "td/admin/tls.crt"),
	                        hostile_path(h, "td/admin/tls.key"));
	service(&t, &ros2_v1_admin_service, make_nobody);
	service(&t, &ros2_v1_audit_service, NULL);
	bytes_channel_free(t.c);
}

static void enrol(struct hostile *h)
{
	struct payload_opts o = {.known = controller_values, .too_large = 300u << 10, .seed = SEED};
	struct target t = {.h = h, .o = &o};

	t.c = bytes_channel_new(h->enrol, hostile_path(h, "td/admin/infra-bundle.pem"), NULL, NULL);
	service(&t, &ros2_v1_enrol_service, NULL);
	bytes_channel_free(t.c);
}

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

/* As dpu-1, which is down: an enrolled agent that has been taken over. */
static void agent_link(struct hostile *h)
{
	struct ros2_uid uid;
	const char *hex = getenv("HOSTILE_AGENT_UID");
	struct known_value values[] = {{.field = "agent_uid",
	                                .data = uid.b,
	                                .len = 16,
	                                .foreign_data = h->a.s.uid,
	                                .foreign_len = 16},
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
	put_hello(&t.hello, uid.b);
	t.c = bytes_channel_new(h->link, hostile_path(h, "td/admin/infra-bundle.pem"),
	                        hostile_path(h, "agents/dpu-1/tls.crt"),
	                        hostile_path(h, "agents/dpu-1/tls.key"));
	service(&t, &ros2_v1_agent_link_service, NULL);
	bytes_channel_free(t.c);
	bytes_fini(&t.hello);
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
		/* The negative control: good values get through, so the bad field was looked at.
		 */
		if (!t.accepted && !may_all_fail(t.m)) {
			hostile_problem(h, "not even good values were accepted");
			hostile_test(h, "%s takes good values", t.m->name);
		}
		/* Some of the payloads are good enough to end the session. */
		if (!tenant_open(&h->b, &err)) {
			hostile_problem(h, "no new session: %s", err.msg);
			hostile_test(h, "after %s a session opens", t.m->name);
		}
	}
}

void rpc_garbage(struct hostile *h)
{
	tenant(h);
	enrol(h);
	admin_and_audit(h);
	agent_link(h);
}

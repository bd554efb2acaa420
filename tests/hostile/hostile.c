/* SPDX-License-Identifier: Apache-2.0 */
/* See hostile.h. */
#include "tests/hostile/hostile.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_MS     8000
#define NEIGHBOUR_S 2.0
#define GROWTH_KB   (160 * 1024) /* a sanitizer's quarantine is a part of it */

static long rss_kb(pid_t pid)
{
	char path[64], line[256];
	long kb = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

static long first_rss[2];

const char *hostile_path(const struct hostile *h, const char *fmt, ...)
{
	static char bufs[16][512];
	static unsigned next;
	char *out = bufs[next++ % 16];
	int n = snprintf(out, 512, "%.300s/", h->dir);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + n, 512 - (size_t)n, fmt, ap);
	va_end(ap);
	return out;
}

void hostile_problem(struct hostile *h, const char *fmt, ...)
{
	va_list ap;

	if (h->problems++ > 12)
		return;
	va_start(ap, fmt);
	printf("# ");
	vprintf(fmt, ap);
	printf("\n");
	va_end(ap);
}

void hostile_test(struct hostile *h, const char *fmt, ...)
{
	va_list ap;

	h->failed += h->problems > 0;
	printf("%sok %u - ", h->problems ? "not " : "", ++h->tests);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	h->problems = 0;
}

bool is_named(const struct bytes_result *r)
{
	const char *colon = strchr(r->words, ':');
	enum ros2_status st;
	char name[32];

	if (!r->code)
		return true;
	/* gRPC's own limit, at twice ours, ends a call before we see it; libros2 says TOO_LARGE. */
	if (!strncmp(r->words, "Received message larger than max", 32))
		return true;
	if (!colon || (size_t)(colon - r->words) >= sizeof(name))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)(colon - r->words), r->words);
	return !ros2_status_from_str(name, &st) && st != ROS2_OK && st != ROS2_INTERNAL;
}

/* ---- tenants ---- */

static bool tenant_file(struct tenant_end *t, struct ros2_err *err)
{
	Ros2__V1__MountRequest m = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__OpenRequest o = ROS2__V1__OPEN_REQUEST__INIT;
	Ros2__V1__MountReply *mr = NULL;
	Ros2__V1__OpenReply * or = NULL;

	m.session_uid = o.session_uid = (ProtobufCBinaryData){16, t->s.uid};
	m.namespace_name = (char *)"data";
	if (ros2_v1_tenant_mount_sync(t->raw.channel, &m, CALL_MS, &mr, err))
		return false;
	t->mount = o.mount = mr->mount;
	protobuf_c_message_free_unpacked(&mr->base, NULL);
	o.path = (char *)"hostile";
	o.flags = 7;
	o.mode = 0644;
	if (ros2_v1_tenant_open_sync(t->raw.channel, &o, CALL_MS, & or, err))
		return false;
	t->handle = or->handle;
	protobuf_c_message_free_unpacked(& or->base, NULL);
	return true;
}

static bool tenant_region(struct tenant_end *t, struct ros2_err *err)
{
	Ros2__V1__RegisterRegionRequest q = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__RegisterRegionReply *r = NULL;

	q.session_uid = (ProtobufCBinaryData){16, t->s.uid};
	q.address = 65536;
	q.length = 1u << 20;
	q.access = 3;
	if (ros2_v1_tenant_register_region_sync(t->raw.channel, &q, CALL_MS, &r, err))
		return false;
	t->key = r->key;
	t->generation = r->generation;
	protobuf_c_message_free_unpacked(&r->base, NULL);
	return true;
}

bool tenant_open(struct tenant_end *t, struct ros2_err *err)
{
	enum ros2_status st = ROS2_OK;
	char words[257] = "";

	tenant_close(t);
	if (raw_session_open(&t->raw, &t->s, err))
		return false;
	t->fd = raw_dial(t->s.data_address, err);
	if (t->fd < 0)
		return false;
	if (raw_hello(t->fd, &t->s, &st, words) || st != ROS2_OK) {
		ros2_err_set(err, -EPROTO, "HELLO: %s", words);
		return false;
	}
	return tenant_file(t, err) && tenant_region(t, err);
}

void tenant_close(struct tenant_end *t)
{
	if (t->fd < 0)
		return;
	close(TAKE_FD(t->fd));
	raw_session_close(&t->raw, &t->s);
}

static void tenant_init(struct hostile *h, struct tenant_end *t, const char *name)
{
	char *args[4];
	struct raw_args a = {args, 4};
	struct ros2_err err = ROS2_ERR_INIT;
	const char *crt = hostile_path(h, "%s/tls.crt", name);
	const char *key = hostile_path(h, "%s/tls.key", name);
	const char *ca = hostile_path(h, "%s/infra-bundle.pem", name);

	t->name = name;
	t->fd = -1;
	if (asprintf(&args[0], "cert=%s", crt) < 0 || asprintf(&args[1], "tls_key=%s", key) < 0 ||
	    asprintf(&args[2], "ca=%s", ca) < 0 || asprintf(&args[3], "agent=%s", h->tenant) < 0)
		abort();
	if (raw_connect(&t->raw, &a, &err) || !tenant_open(t, &err)) {
		fprintf(stderr, "%s cannot open a session: %s\n", name, err.msg);
		exit(2);
	}
	for (int i = 0; i < 4; i++)
		free(args[i]);
	t->bytes = bytes_channel_new(h->tenant, ca, crt, key);
}

/* ---- what must hold ---- */

static void stat_handle(struct hostile *h, struct tenant_end *t)
{
	Ros2__V1__HandleRef q = ROS2__V1__HANDLE_REF__INIT;
	uint8_t buf[64];
	struct bytes_part m = {buf, 0};
	struct bytes_result r;

	q.session_uid = (ProtobufCBinaryData){16, t->s.uid};
	q.handle = t->handle;
	m.len = protobuf_c_message_pack(&q.base, buf);
	bytes_call(t->bytes, "/ros2.v1.Tenant/StatHandle", &m, 1, CALL_MS, &r);
	if (r.code || r.seconds > NEIGHBOUR_S)
		hostile_problem(h, "the neighbour's StatHandle: code %d, %s, %.3f s", r.code,
		                r.words, r.seconds);
}

void neighbours_work(struct hostile *h)
{
	struct bytes_part none = {"", 0};
	struct bytes_result r;

	stat_handle(h, &h->a);
	bytes_call(h->admin_bytes, "/ros2.v1.Admin/Status", &none, 1, CALL_MS, &r);
	if (r.code || r.seconds > NEIGHBOUR_S)
		hostile_problem(h, "the administrator's Status: code %d, %s, %.3f s", r.code,
		                r.words, r.seconds);
}

static void serving(struct hostile *h, struct bytes_channel *c, const char *who)
{
	struct bytes_part none = {"", 0};
	struct bytes_result r;

	bytes_call(c, "/grpc.health.v1.Health/Check", &none, 1, CALL_MS, &r);
	if (r.code || r.reply_len != 2 || memcmp(r.reply, "\x08\x01", 2))
		hostile_problem(h, "health of the %s is not SERVING: code %d, %s", who, r.code,
		                r.words);
}

void servers_live(struct hostile *h)
{
	const pid_t pids[2] = {h->controller, h->agent};

	for (int i = 0; i < 2; i++) {
		long kb = rss_kb(pids[i]);

		if (!first_rss[i])
			first_rss[i] = kb;
		if (kb < 0 || kill(pids[i], 0))
			hostile_problem(h, "the %s is gone", i ? "agent" : "controller");
		else if (kb > first_rss[i] + GROWTH_KB)
			hostile_problem(h, "the %s has grown from %ld to %ld KiB",
			                i ? "agent" : "controller", first_rss[i], kb);
	}
	serving(h, h->admin_bytes, "controller");
	serving(h, h->a.bytes, "agent");
	neighbours_work(h);
}

/* ---- life ---- */

static const char *need(const char *name)
{
	const char *v = getenv(name);

	if (v && *v)
		return v;
	fprintf(stderr, "%s is not set: run this by tests/hostile/garbage\n", name);
	exit(2);
}

void hostile_init(struct hostile *h)
{
	*h = (struct hostile){
		.dir = need("HOSTILE_DIR"),
		.admin = need("HOSTILE_ADMIN"),
		.link = need("HOSTILE_LINK"),
		.enrol = need("HOSTILE_ENROL"),
		.tenant = need("HOSTILE_TENANT"),
		.controller = (pid_t)atoi(need("HOSTILE_CONTROLLER_PID")),
		.agent = (pid_t)atoi(need("HOSTILE_AGENT_PID")),
	};
	signal(SIGPIPE, SIG_IGN);
	tenant_init(h, &h->a, "alpha");
	tenant_init(h, &h->b, "beta");
	h->admin_bytes = bytes_channel_new(h->admin, hostile_path(h, "td/admin/infra-bundle.pem"),
	                                   hostile_path(h, "td/admin/tls.crt"),
	                                   hostile_path(h, "td/admin/tls.key"));
}

void hostile_fini(struct hostile *h)
{
	struct tenant_end *ends[] = {&h->a, &h->b};

	for (size_t i = 0; i < 2; i++) {
		tenant_close(ends[i]);
		rpc_channel_free(ends[i]->raw.channel);
		bytes_channel_free(ends[i]->bytes);
	}
	bytes_channel_free(h->admin_bytes);
}

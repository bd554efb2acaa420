/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of the tcp probe: probe_tcp_priv.h tells what it is. */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/engine.h"
#include "dataplane/probe_tcp_priv.h"
#include "dataplane/wire_codec.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the data plane, on a loop of its own thread ---- */

static void ignore(void *arg, const struct dp_event *ev)
{
}

static void make_dp(void *arg)
{
	struct pt *p = arg;
	struct dp_opts o = {.loop = p->loop,
	                    .reactors = 1,
	                    .listen_host = "127.0.0.1",
	                    .slot_bytes_total = 16u << 20,
	                    .control_workers = 1,
	                    .on_event = ignore};
	struct dp_engine_config mem = {.name = "probe", .type = "mem", .size_bytes = 64u << 20};

	if (dp_new(&o, &p->dp, &p->err) < 0)
		p->dp = NULL;
	else if (dp_engine_put(p->dp, &mem, &p->err) == 0)
		dp_contact(p->dp, clock_boottime_ns());
}

static void free_dp(void *arg)
{
	struct pt *p = arg;

	dp_free(p->dp);
}

int pt_open(struct pt *p, struct ros2_err *err)
{
	static const struct loop_opts lo = {.name = "probe"};
	int r;

	*p = (struct pt){.err = ROS2_ERR_INIT};
	r = loop_new(&lo, &p->loop);
	if (r)
		return ros2_err_set(err, r, "no loop for the probe of tcp");
	r = loop_thread_start(p->loop);
	if (!r)
		r = loop_call(p->loop, make_dp, p);
	if (!r)
		r = p->err.code;
	if (!r)
		return 0;
	ros2_err_set(err, r, "no data plane for the probe of tcp: %s", p->err.msg);
	pt_close(p);
	return r;
}

void pt_close(struct pt *p)
{
	if (p->dp)
		loop_call(p->loop, free_dp, p);
	loop_stop(p->loop);
	loop_thread_join(p->loop);
	loop_free(p->loop);
}

/* ---- calls that wait for their answer ---- */

struct call {
	struct pt *p;
	struct pt_peer *c;
	void (*start)(struct call *call);
	struct dp_result res;
	sem_t done;
	/* arguments */
	const char *name;
	const struct pt_tenant *tenant;
	uint64_t base, length;
	uint32_t access, key, mount;
	/* of a revoke */
	uint64_t began_ns, ended_ns;
	int queued_bytes;
	int r;
};

static void call_run(void *arg)
{
	struct call *call = arg;

	call->start(call);
}

static void call_done(void *arg, const struct dp_result *res)
{
	struct call *call = arg;

	call->res = *res;
	sem_post(&call->done);
}

static enum ros2_status call_wait(struct call *call)
{
	sem_init(&call->done, 0, 0);
	if (loop_call(call->p->loop, call_run, call)) {
		call->res.status = ROS2_INTERNAL;
	} else {
		while (sem_wait(&call->done) < 0) /* EINTR */
			;
	}
	sem_destroy(&call->done);
	return call->res.status;
}

static void add_tenant(void *arg)
{
	static const struct dp_tenant_limits limits = {.registered_bytes = 64u << 20,
	                                               .region_size_min = 4096,
	                                               .region_size_max = 16u << 20,
	                                               .region_alignment = 4096,
	                                               .regions = 16,
	                                               .rkeys_concurrent = 16,
	                                               .sessions_max = 64,
	                                               .access = 3,
	                                               .lease_ttl_ms = 60000,
	                                               .contact_limit_ms = 600000,
	                                               .burst_ms = 10};
	struct call *call = arg;
	struct dp_grant g = {.grant = call->tenant->grant,
	                     .tenant = call->tenant->tenant,
	                     .deadline_ns = UINT64_MAX,
	                     .max_keys = 64,
	                     .max_bytes = 64u << 20,
	                     .access = 3};

	call->r = dp_tenant_put(call->p->dp, &g.tenant, call->name, &limits, NULL);
	if (!call->r)
		call->r = dp_grant_put(call->p->dp, &g, NULL);
}

int pt_tenant_add(struct pt *p, const char *name, struct pt_tenant *ret)
{
	struct call call = {.p = p, .name = name, .tenant = ret};
	int r;

	*ret = (struct pt_tenant){ros2_uid_new(), ros2_uid_new()};
	r = loop_call(p->loop, add_tenant, &call);
	return r ? r : call.r;
}

static void start_open_session(struct call *call)
{
	const struct dp_session_params sp = {.session = call->c->session,
	                                     .tenant = call->c->of->tenant,
	                                     .grant = call->c->of->grant,
	                                     .cert_deadline_ns = UINT64_MAX};

	dp_session_open(call->p->dp, &sp, call_done, call);
}

static void start_mount(struct call *call)
{
	dp_mount(call->p->dp, &call->c->session, "probe", call->name, 3, call_done, call);
}

static void start_open(struct call *call)
{
	dp_open(call->p->dp, &call->c->session, call->mount, "file",
	        ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE, 0600, call_done, call);
}

static void start_truncate(struct call *call)
{
	dp_truncate(call->p->dp, &call->c->session, call->c->handle, PT_FILE_BYTES, call_done,
	            call);
}

static void start_register(struct call *call)
{
	dp_region_register(call->p->dp, &call->c->session, call->base, call->length, call->access,
	                   call_done, call);
}

static void start_deregister(struct call *call)
{
	dp_region_deregister(call->p->dp, &call->c->session, call->key, call_done, call);
}

static void start_close(struct call *call)
{
	dp_session_close(call->p->dp, &call->c->session, ROS2_CLOSED, call_done, call);
}

/* The first answer is the receipt; a second one would say that nothing drains any more. */
static void revoked(void *arg, const struct dp_result *res)
{
	struct call *call = arg;

	if (!call->ended_ns) {
		call->ended_ns = clock_boottime_ns();
		if (ioctl(call->c->fd, FIONREAD, &call->queued_bytes) < 0)
			call->queued_bytes = 0;
		call->res = *res;
	}
	if (res->revoke.draining == 0)
		sem_post(&call->done);
}

static void start_revoke(struct call *call)
{
	call->began_ns = clock_boottime_ns();
	dp_revoke(call->p->dp, DP_SCOPE_SESSION, &call->c->session, call->began_ns, ROS2_REVOKED,
	          revoked, call);
}

static enum ros2_status open_file(struct pt_peer *c)
{
	struct call call = {.p = c->p, .c = c, .start = start_mount};
	char path[ROS2_UID_STR_LEN];
	enum ros2_status st;

	ros2_uid_to_str(&c->of->tenant, path);
	call.name = path;
	st = call_wait(&call);
	if (st != ROS2_OK)
		return st;
	call.mount = call.res.mount.mount;
	call.start = start_open;
	st = call_wait(&call);
	if (st != ROS2_OK)
		return st;
	c->handle = call.res.open.handle;
	call.start = start_truncate;
	return call_wait(&call);
}

int pt_peer_open(struct pt *p, const struct pt_tenant *of, struct pt_peer *ret)
{
	struct call call = {.p = p, .c = ret, .start = start_open_session};

	*ret = (struct pt_peer){.p = p, .of = of, .session = ros2_uid_new(), .fd = -1};
	if (call_wait(&call) != ROS2_OK)
		return -EIO;
	memcpy(ret->secret, call.res.session.secret, sizeof(ret->secret));
	ret->port = call.res.session.port;
	ret->credits = call.res.session.credits;
	if (pt_hello(ret, &ret->fd) == ROS2_OK && open_file(ret) == ROS2_OK)
		return 0;
	pt_peer_close(ret);
	return -EIO;
}

void pt_peer_close(struct pt_peer *c)
{
	struct call call = {.p = c->p, .c = c, .start = start_close};

	if (!c->p)
		return;
	call_wait(&call);
	if (c->fd >= 0)
		close(c->fd);
	*c = (struct pt_peer){.fd = -1};
}

enum ros2_status pt_register(struct pt_peer *c, uint64_t base, uint64_t length, uint32_t access,
                             uint32_t *ret_key)
{
	struct call call = {.p = c->p,
	                    .c = c,
	                    .start = start_register,
	                    .base = base,
	                    .length = length,
	                    .access = access};
	enum ros2_status st = call_wait(&call);

	if (st == ROS2_OK)
		*ret_key = call.res.region.key;
	return st;
}

enum ros2_status pt_deregister(struct pt_peer *c, uint32_t key)
{
	struct call call = {.p = c->p, .c = c, .start = start_deregister, .key = key};

	return call_wait(&call);
}

int pt_revoke(struct pt_peer *c, struct pt_receipt *ret)
{
	struct call call = {.p = c->p, .c = c, .start = start_revoke};

	if (call_wait(&call) != ROS2_OK)
		return -EIO;
	*ret = (struct pt_receipt){call.ended_ns - call.began_ns, call.queued_bytes};
	return 0;
}

/* ---- the wire ---- */

static int exactly(int fd, void *p, size_t n)
{
	while (n) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		ssize_t k;

		if (poll(&pfd, 1, PT_WAIT_MS) == 0)
			return -ETIMEDOUT;
		k = recv(fd, p, n, MSG_DONTWAIT);
		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			return -ECONNRESET;
		p = (uint8_t *)p + k;
		n -= (size_t)k;
	}
	return 0;
}

int pt_recv(int fd, struct wire_header *h, void *payload, uint32_t max)
{
	uint8_t bytes[WIRE_HEADER_LEN];
	const char *words;
	int r = exactly(fd, bytes, sizeof(bytes));

	if (r)
		return r;
	if (wire_parse_from_agent(bytes, h, &words) != ROS2_OK || h->payload_len > max)
		return -EPROTO;
	return exactly(fd, payload, h->payload_len);
}

static int all(int fd, const void *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -ECONNRESET;
		p = (const uint8_t *)p + k;
		n -= (size_t)k;
	}
	return 0;
}

int pt_send(int fd, struct wire_header *h, const void *payload, uint32_t length)
{
	int r;

	h->payload_len = length;
	wire_seal(h);
	r = all(fd, h, sizeof(*h));
	return r ? r : all(fd, payload, length);
}

struct wire_header pt_header(struct pt_peer *c, enum wire_opcode op, uint32_t key, uint64_t address,
                             uint32_t length)
{
	return (struct wire_header){.opcode = (uint8_t)op,
	                            .request_id = ++c->next_id,
	                            .handle = c->handle,
	                            .address = address,
	                            .length = length,
	                            .key = key};
}

static int dial(const struct pt_peer *c, struct wire_challenge *ret)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(c->port)};
	struct timeval limit = {.tv_sec = PT_WAIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;
	struct wire_header h;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		r = -errno;
	} else {
		r = pt_recv(fd, &h, ret, sizeof(*ret));
		if (!r && (h.opcode != WIRE_CHALLENGE || h.payload_len != sizeof(*ret)))
			r = -EPROTO;
	}
	if (!r)
		return fd;
	close(fd);
	return r;
}

int pt_dial(const struct pt_peer *c)
{
	struct wire_challenge ch;

	return dial(c, &ch);
}

enum ros2_status pt_hello(struct pt_peer *c, int *ret_fd)
{
	struct wire_header h = {.opcode = WIRE_HELLO};
	struct wire_challenge ch;
	struct wire_hello hello;
	uint8_t payload[WIRE_WORDS_MAX];
	int fd = dial(c, &ch), r;
	const struct crypto_span parts[] = {
		{WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT)},
		{hello.session_uid, sizeof(hello.session_uid)},
		{ch.agent_nonce, sizeof(ch.agent_nonce)},
		{hello.tenant_nonce, sizeof(hello.tenant_nonce)},
	};

	if (fd < 0)
		return ROS2_CLOSED;
	memcpy(hello.session_uid, c->session.b, sizeof(hello.session_uid));
	crypto_random(hello.tenant_nonce, sizeof(hello.tenant_nonce));
	crypto_hmac_sha256v(c->secret, sizeof(c->secret), parts, ARRAY_SIZE(parts), hello.proof);
	r = pt_send(fd, &h, &hello, sizeof(hello));
	if (!r)
		r = pt_recv(fd, &h, payload, sizeof(payload));
	if (!r && h.opcode == WIRE_WELCOME) {
		*ret_fd = fd;
		return ROS2_OK;
	}
	close(fd);
	return !r && h.opcode == WIRE_NAK ? (enum ros2_status)h.status : ROS2_CLOSED;
}

enum ros2_status pt_read(struct pt_peer *c, uint32_t key, uint64_t address, uint32_t length,
                         uint32_t *ret_bytes)
{
	struct wire_header h = pt_header(c, WIRE_READ, key, address, length);
	uint8_t payload[PT_REGION_BYTES];

	*ret_bytes = 0;
	if (pt_send(c->fd, &h, NULL, 0))
		return ROS2_CLOSED;
	while (!pt_recv(c->fd, &h, payload, sizeof(payload))) {
		if (h.opcode == WIRE_DATA)
			*ret_bytes += h.payload_len;
		if (h.opcode == WIRE_NAK || h.opcode == WIRE_COMPLETE)
			return (enum ros2_status)h.status;
	}
	return ROS2_CLOSED;
}

uint64_t pt_drain(struct pt_peer *c, int quiet_ms)
{
	static uint8_t junk[65536];
	struct pollfd pfd = {.fd = c->fd, .events = POLLIN};
	uint64_t n = 0;

	while (poll(&pfd, 1, quiet_ms) > 0) {
		ssize_t k = recv(c->fd, junk, sizeof(junk), MSG_DONTWAIT);

		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			break;
		n += (uint64_t)k;
	}
	return n;
}

void pt_found(struct probe_finding *f, enum probe_result r, const char *fmt, ...)
{
	va_list ap;

	f->result = r;
	va_start(ap, fmt);
	vsnprintf(f->seen, sizeof(f->seen), fmt, ap);
	va_end(ap);
}

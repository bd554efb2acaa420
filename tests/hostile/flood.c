/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tenant that floods its agent, or somebody a port of the controller, each in one of several
 * ways, at a stated rate for a stated time: on a machine of few cores a flooder without a rate
 * would show only what the scheduler does. Connects from 127.0.0.2 where it can, so that caps per
 * source are its own. Prints one JSON object at the end, and at each SIGUSR1 what it would be now:
 * what it did and how it was answered, with one sample of words for each answer.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/client/raw/raw.h"
#include "tests/rpc/http2.h"
#include "tests/rpc/bare.h"
#include "tests/rpc/bytes_call.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALL_MS       5000
#define SESSIONS      4
#define SOCKETS_MAX   1200
#define CROWD         1100 /* more than the 1024 connections of a listener */
#define TINY_BATCH    16
#define UNPACED_DEPTH 100 /* requests of a session; credits are 128 */
#define UNREAD_TAKEN  4096
#define UNREAD_DEPTH  100
#define CALLS_SHARE   256 /* docs/operations.md: a tenant's, of the calls in flight */
#define CALLS_BEYOND  44
#define FRAMES        100 /* of a turn */
#define ENROL_MAX     4096
#define LONG_MESSAGE  8000000

struct flood {
	const char *name;
	struct raw raw;
	const struct raw_args *args;
	uint64_t start_ns, end_ns, done, rate;
	sigset_t asked; /* SIGUSR1, which interrupts nothing */
	json_t *answers, *words;
	struct raw_session s[SESSIONS];
	int fd[SESSIONS], sockets[SOCKETS_MAX];
	bool is_data[SOCKETS_MAX];
	size_t n_sessions, n_sockets;
	uint64_t handle[SESSIONS];
	uint32_t key[SESSIONS];
	uint64_t next_id;
};

static uint8_t scratch[WIRE_IO_MAX];

static void answered(struct flood *f, const char *name, const char *words)
{
	json_int_t n = json_integer_value(json_object_get(f->answers, name));

	json_object_set_new(f->answers, name, json_integer(n + 1));
	if (!n && words && *words)
		json_object_set_new(f->words, name, json_string(words));
}

static void answered_rpc(struct flood *f, int rc, const struct ros2_err *err)
{
	answered(f, rc ? ros2_status_to_str(err->status) : "OK", rc ? err->msg : NULL);
}

/* SIGTERM ends a flood in order, as its time does. */
static volatile sig_atomic_t told_to_end;

static void on_signal(int signo)
{
	told_to_end = 1;
}

static bool is_over(const struct flood *f)
{
	return told_to_end || clock_monotonic_ns() >= f->end_ns;
}

static void report(const struct flood *f)
{
	double seconds = (double)(clock_monotonic_ns() - f->start_ns) / NS_PER_S;

	raw_print(json_pack("{s:s, s:I, s:f, s:I, s:O, s:O}", "flood", f->name, "rate",
	                    (json_int_t)f->rate, "seconds", seconds, "attempts",
	                    (json_int_t)f->done, "answers", f->answers, "words", f->words));
}

/* False when it is over; else waits for the next one's turn. */
static bool turn(struct flood *f)
{
	uint64_t at = f->start_ns + f->done * NS_PER_S / f->rate, now = clock_monotonic_ns();
	const struct timespec none = {0};

	if (sigtimedwait(&f->asked, NULL, &none) > 0)
		report(f);
	at = MIN(at, f->end_ns);
	if (at > now)
		/* time: the flood's own pace */
		usleep((useconds_t)((at - now) / 1000 + 1));
	if (is_over(f))
		return false;
	f->done++;
	return true;
}

static int dial_from(const char *address, uint8_t host)
{
	struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	struct timeval limit = {.tv_sec = 3};
	const char *colon = strrchr(address, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	from.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~255u) + host);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(colon ? colon + 1 : "0"));
	if (fd < 0)
		return -errno;
	/* What is sent in pieces does not wait for the answer to the first. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	return fd;
}

static int dial(const char *address)
{
	return dial_from(address, 2);
}

static bool is_ended(int fd)
{
	uint8_t byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

/* ---- sessions ---- */

static bool session(struct flood *f, size_t i)
{
	Ros2__V1__MountRequest m = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__OpenRequest o = ROS2__V1__OPEN_REQUEST__INIT;
	Ros2__V1__RegisterRegionRequest g = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__MountReply *mr = NULL;
	Ros2__V1__OpenReply * or = NULL;
	Ros2__V1__RegisterRegionReply *gr = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	char words[257];
	int rc = raw_session_open(&f->raw, &f->s[i], &err);

	f->fd[i] = -1;
	if (rc) {
		answered_rpc(f, rc, &err);
		return false;
	}
	f->fd[i] = dial(f->s[i].data_address);
	m.session_uid = o.session_uid = g.session_uid = (ProtobufCBinaryData){16, f->s[i].uid};
	m.namespace_name = (char *)"data";
	o.path = (char *)"flood";
	o.flags = 7;
	o.mode = 0644;
	g.address = 65536;
	g.length = 1u << 20;
	g.access = 3;
	if (f->fd[i] < 0 || raw_hello(f->fd[i], &f->s[i], &st, words) || st ||
	    ros2_v1_tenant_mount_sync(f->raw.channel, &m, CALL_MS, &mr, &err))
		return false;
	o.mount = mr->mount;
	protobuf_c_message_free_unpacked(&mr->base, NULL);
	if (ros2_v1_tenant_open_sync(f->raw.channel, &o, CALL_MS, & or, &err))
		return false;
	f->handle[i] = or->handle;
	protobuf_c_message_free_unpacked(& or->base, NULL);
	if (ros2_v1_tenant_register_region_sync(f->raw.channel, &g, CALL_MS, &gr, &err))
		return false;
	f->key[i] = gr->key;
	protobuf_c_message_free_unpacked(&gr->base, NULL);
	return true;
}

static void session_end(struct flood *f, size_t i)
{
	if (f->fd[i] >= 0)
		close(TAKE_FD(f->fd[i]));
	raw_session_close(&f->raw, &f->s[i]);
}

static bool request(struct flood *f, size_t i, uint8_t opcode, uint32_t length, uint32_t key)
{
	struct wire_header h = {.opcode = opcode,
	                        .request_id = ++f->next_id,
	                        .handle = f->handle[i],
	                        .address = 65536,
	                        .length = length,
	                        .key = key};

	raw_seal(&h);
	if (send(f->fd[i], &h, sizeof(h), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(h))
		return true;
	answered(f, "not taken", NULL);
	return false;
}

/* ---- the floods ---- */

/* A caller of gRPC without our library, with the tenant's certificate or none. */
static struct bare bare(const struct flood *f, bool with_cert)
{
	return (struct bare){.target = raw_arg(f->args, "agent", getenv("ROS2_AGENT")),
	                     .path = "/ros2.v1.Tenant/CloseSession",
	                     .ca = raw_arg(f->args, "ca", getenv("ROS2_CA")),
	                     .cert = with_cert ? getenv("ROS2_CERT") : NULL,
	                     .key = with_cert ? getenv("ROS2_KEY") : NULL,
	                     .version = "1"};
}

/* Every other one without a certificate. */
static void handshakes(struct flood *f)
{
	while (turn(f)) {
		struct bare b = bare(f, false);
		struct ros2_err err = ROS2_ERR_INIT;
		struct raw r = {0};
		Ros2__V1__SessionRef q = ROS2__V1__SESSION_REF__INIT;
		Ros2__V1__Empty *e = NULL;
		int rc;

		if (f->done & 1) {
			bare_call(&b);
			answered(f, b.got_reply ? "without a certificate" : "no handshake",
			         b.message);
			continue;
		}
		rc = raw_connect(&r, f->args, &err);
		if (!rc) {
			rc = ros2_v1_tenant_close_session_sync(r.channel, &q, CALL_MS, &e, &err);
			if (!rc)
				protobuf_c_message_free_unpacked(&e->base, NULL);
			rpc_channel_free(r.channel);
		}
		answered_rpc(f, rc, &err);
	}
}

/* Headers of calls that never come, more than the tenant has places for: @calls of them. */
static void calls(struct flood *f)
{
	size_t all = raw_arg_u64(f->args, "calls", CALLS_SHARE + CALLS_BEYOND);

	while (turn(f)) {
		struct bare b = bare(f, true);
		struct bare_held *h = bare_hold(&b, all);
		char words[512] = "";
		int code;
		size_t n = bare_held_free(h, all - CALLS_SHARE, &code, words);

		for (size_t i = 0; i < n; i++)
			answered(f, strncmp(words, "BUSY", 4) ? "refused" : "BUSY", words);
	}
}

/* By tests/rpc/http2: as it is called there, over one connection, and another when it was ended.
 * From an address of its own: few are let in from there for a while. */
static void frames(struct flood *f)
{
	uint8_t host = (uint8_t)raw_arg_u64(f->args, "host", 7);
	enum http2_flood kind = http2_find(f->name);
	struct bare b = bare(f, true);
	struct http2 *h = NULL;

	while (turn(f)) {
		if (!h)
			h = http2_open(b.target, host, b.cert, b.key, b.path);
		if (!h || http2_send(h, kind, FRAMES)) {
			answered(f, h ? "ended" : "no connection", NULL);
			http2_close(TAKE_PTR(h));
			continue;
		}
		answered(f, "sent", NULL);
	}
	http2_close(h);
}

/* Handshakes to their end, by who has a certificate, and nothing after it. */
static void shakes(struct flood *f)
{
	uint8_t host = (uint8_t)raw_arg_u64(f->args, "host", 2);
	struct bare b = bare(f, true);

	while (turn(f)) {
		struct http2 *h = http2_open(b.target, host, b.cert, b.key, b.path);

		answered(f, h ? "well" : "no connection", NULL);
		http2_close(h);
	}
}

static void hellos(struct flood *f)
{
	struct raw_session s = f->s[0];

	crypto_random(s.secret, sizeof(s.secret));
	while (turn(f)) {
		enum ros2_status st = ROS2_OK;
		char words[257] = "";
		int fd = dial(s.data_address);
		int rc = fd < 0 ? fd : raw_hello(fd, &s, &st, words);

		answered(f, rc ? "closed" : ros2_status_to_str(st), words);
		if (fd >= 0)
			close(fd);
	}
}

static void opens(struct flood *f)
{
	struct raw_session s[2 * SESSIONS];
	size_t n = 0;

	while (turn(f)) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc = raw_session_open(&f->raw, &s[n % ARRAY_SIZE(s)], &err);

		answered_rpc(f, rc, &err);
		/* All but one of ten are beyond the limit; the tenth is new. */
		if (!rc && ++n % 10 == 9)
			raw_session_close(&f->raw, &s[(n - 1) % ARRAY_SIZE(s)]);
	}
}

static void regions(struct flood *f)
{
	Ros2__V1__RegisterRegionRequest g = ROS2__V1__REGISTER_REGION_REQUEST__INIT;

	g.session_uid = (ProtobufCBinaryData){16, f->s[0].uid};
	g.length = 1u << 20;
	g.access = 3;
	while (turn(f)) {
		Ros2__V1__RegisterRegionReply *r = NULL;
		struct ros2_err err = ROS2_ERR_INIT;
		int rc;

		g.address = (f->done + 1) << 24;
		rc = ros2_v1_tenant_register_region_sync(f->raw.channel, &g, CALL_MS, &r, &err);
		answered_rpc(f, rc, &err);
		if (!rc)
			protobuf_c_message_free_unpacked(&r->base, NULL);
	}
}

/* One file, opened again and again in one session (or in @sessions, in turn), and never closed. */
static void files(struct flood *f)
{
	Ros2__V1__OpenRequest o = ROS2__V1__OPEN_REQUEST__INIT;
	size_t all = MIN(raw_arg_u64(f->args, "sessions", 1), (uint64_t)SESSIONS);

	while (f->n_sessions < all && session(f, f->n_sessions))
		f->n_sessions++;
	o.mount = 1; /* where each has its first file */
	o.path = (char *)"flood";
	o.flags = 1;
	while (turn(f)) {
		Ros2__V1__OpenReply *r = NULL;
		struct ros2_err err = ROS2_ERR_INIT;
		int rc;

		o.session_uid = (ProtobufCBinaryData){16, f->s[f->done % f->n_sessions].uid};
		rc = ros2_v1_tenant_open_sync(f->raw.channel, &o, CALL_MS, &r, &err);

		answered_rpc(f, rc, &err);
		if (!rc)
			protobuf_c_message_free_unpacked(&r->base, NULL);
	}
}

/* The end of one request. */
static void drain(struct flood *f, size_t i)
{
	struct wire_header h = {.opcode = WIRE_DATA};
	int rc = 0;

	while (!rc && h.opcode != WIRE_COMPLETE && h.opcode != WIRE_NAK)
		rc = raw_receive(f->fd[i], &h, scratch, 2000);
	if (rc) {
		answered(f, "closed", NULL);
		session_end(f, i);
		(void)session(f, i);
		return;
	}
	scratch[MIN(h.payload_len, 256u)] = '\0';
	answered(f, ros2_status_to_str((enum ros2_status)h.status),
	         h.opcode == WIRE_NAK ? (const char *)scratch : NULL);
}

static void tiny(struct flood *f)
{
	while (turn(f)) {
		for (int i = 0; i < TINY_BATCH; i++)
			request(f, 0, WIRE_READ, 1, f->key[0]);
		for (int i = 0; i < TINY_BATCH && f->fd[0] >= 0; i++)
			drain(f, 0);
	}
}

static void violations(struct flood *f)
{
	while (turn(f)) {
		request(f, 0, WIRE_READ, 4096, f->key[0] ^ 0x55aa0000u);
		drain(f, 0);
	}
}

/* The kernel takes little for it, so that what it does not read waits in slots. */
static void deafen(struct flood *f, size_t i)
{
	if (f->fd[i] >= 0)
		setsockopt(f->fd[i], SOL_SOCKET, SO_RCVBUF, &(int){UNREAD_TAKEN}, sizeof(int));
}

/* As many megabytes as the credits allow are asked for, and none is read. One session after the
 * other is given up for a new one, so that at each turn there is one that asks. */
static void unread(struct flood *f)
{
	unsigned asked[SESSIONS] = {0};

	for (size_t i = 1; i < SESSIONS; i++)
		f->n_sessions += session(f, i);
	for (size_t i = 0; i < f->n_sessions; i++)
		deafen(f, i);
	while (turn(f)) {
		size_t next = f->done / UNREAD_DEPTH % f->n_sessions;

		if (f->done % UNREAD_DEPTH == 0) {
			session_end(f, next);
			(void)session(f, next);
			deafen(f, next);
			asked[next] = 0;
		}
		for (size_t i = 0; i < f->n_sessions; i++)
			if (f->fd[i] >= 0 && asked[i]++ < UNREAD_DEPTH &&
			    request(f, i, WIRE_READ, WIRE_IO_MAX, f->key[i]))
				answered(f, "asked", NULL);
	}
}

/* With its payload behind it, however long the kernel takes to take it. */
static void write_request(struct flood *f, size_t i, uint32_t length)
{
	static uint8_t bytes[sizeof(struct wire_header) + WIRE_INLINE_MAX];
	struct wire_header h = {.opcode = WIRE_WRITE,
	                        .flags = WIRE_F_INLINE,
	                        .request_id = ++f->next_id,
	                        .handle = f->handle[i],
	                        .address = 65536,
	                        .length = length,
	                        .payload_len = length,
	                        .key = f->key[i]};
	size_t n = sizeof(h) + length, sent = 0;
	ssize_t k = 1;

	raw_seal(&h);
	memcpy(bytes, &h, sizeof(h));
	while (sent < n && k > 0) {
		k = send(f->fd[i], bytes + sent, n - sent, MSG_NOSIGNAL);
		sent += k > 0 ? (size_t)k : 0;
	}
}

static void ask_more(struct flood *f, size_t i, uint32_t length, bool writes)
{
	if (writes)
		write_request(f, i, MIN(length, WIRE_INLINE_MAX));
	else
		request(f, i, WIRE_READ, length, f->key[i]);
}

/* All the credits of all its sessions, all the time: what comes back is asked for again at once. */
static void unpaced(struct flood *f)
{
	uint32_t length = (uint32_t)raw_arg_u64(f->args, "length", 16384);
	bool writes = !strcmp(raw_arg(f->args, "op", "read"), "write");

	for (size_t i = 1; i < SESSIONS; i++)
		f->n_sessions += session(f, i);
	for (size_t i = 0; i < f->n_sessions; i++)
		for (int k = 0; k < UNPACED_DEPTH; k++)
			ask_more(f, i, length, writes);
	while (!is_over(f)) {
		for (size_t i = 0; i < f->n_sessions && f->fd[i] >= 0; i++) {
			drain(f, i);
			ask_more(f, i, length, writes);
			f->done++;
		}
	}
}

/* As many as a listener has places, from five addresses, and again whichever it ended: to @at,
 * without a word. */
static void crowd(struct flood *f)
{
	const char *at = raw_arg(f->args, "at", "");
	size_t i;

	while (turn(f)) {
		i = f->done % CROWD;
		if (f->sockets[i] > 0 && !is_ended(f->sockets[i]))
			continue;
		answered(f, f->sockets[i] > 0 ? "ended" : "connected", NULL);
		if (f->sockets[i] > 0)
			close(f->sockets[i]);
		f->sockets[i] = dial_from(at, 2 + (uint8_t)(i % 5));
	}
}

/* What was said to one that said nothing, or too little, and never reads; then it goes. */
static void let_go(struct flood *f, size_t at)
{
	struct wire_header h = {0};
	int fd = f->sockets[at];
	uint8_t byte;
	ssize_t n;

	if (fd < 0)
		return;
	while (f->is_data[at] && h.opcode != WIRE_NAK && !raw_receive(fd, &h, scratch, 1))
		;
	if (h.opcode == WIRE_NAK) {
		scratch[MIN(h.payload_len, 256u)] = '\0';
		answered(f, ros2_status_to_str((enum ros2_status)h.status), (const char *)scratch);
	} else {
		n = recv(fd, &byte, 1, MSG_DONTWAIT);
		answered(f,
		         n < 0 && errno == EAGAIN ? "left open"
		         : f->is_data[at]         ? "data closed"
		                                  : "closed",
		         NULL);
	}
	close(TAKE_FD(f->sockets[at]));
}

static const char *port(const struct flood *f)
{
	return raw_arg(f->args, "agent", getenv("ROS2_AGENT"));
}

/* To the data port, to the calls' port without a word, and there with the beginning of a TLS
 * handshake, and of what stands behind one. The oldest goes when there are too many. */
static void halfopen(struct flood *f)
{
	static const uint8_t hello_begins[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};

	while (turn(f)) {
		bool data = f->n_sessions && f->done % 3 == 0;
		size_t at = f->n_sockets++ % SOCKETS_MAX;
		int fd;

		if (f->n_sockets > SOCKETS_MAX)
			let_go(f, at);
		fd = dial(data ? f->s[0].data_address : port(f));
		answered(f, fd < 0 ? strerror(-fd) : "connected", NULL);
		f->is_data[at] = data;
		f->sockets[at] = fd;
		if (fd >= 0 && f->done % 3 == 1 &&
		    send(fd, hello_begins, sizeof(hello_begins), MSG_NOSIGNAL) < 0)
			answered(f, strerror(errno), NULL);
	}
	for (size_t i = 0; i < MIN(f->n_sockets, (size_t)SOCKETS_MAX); i++)
		let_go(f, i);
}

/* ---- of the controller ---- */

/* A request that is well-formed: who is not known by its secret is who asks. */
static size_t enrol_request(uint8_t out[ENROL_MAX])
{
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	char *csr = NULL, key[] = "/tmp/ros2-flood-XXXXXX";
	struct ros2_err err = ROS2_ERR_INIT;
	size_t n;
	int fd = mkstemp(key);

	if (fd < 0 || close(fd) || unlink(key) || pki_key_create(key, &err) ||
	    pki_csr_create(key, NULL, &csr, &err)) {
		fprintf(stderr, "hostile-flood: no certificate request: %s\n", err.msg);
		exit(1);
	}
	unlink(key);
	q.agent = (char *)"dpu-0";
	q.secret = (char *)"00";
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	q.protocol = 1;
	n = ros2__v1__enrol_request__pack(&q, out);
	free(csr);
	return n;
}

/* One after the other, over one connection: the same message. */
static void call_on(struct flood *f, const char *path, const uint8_t *message, size_t len)
{
	const char *cert = getenv("ROS2_CERT");
	bool has_one = cert && *cert;
	struct bytes_channel *c =
		bytes_channel_new(port(f), getenv("ROS2_CA"), has_one ? cert : NULL,
	                          has_one ? getenv("ROS2_KEY") : NULL);
	struct bytes_part part = {message, len};

	while (turn(f)) {
		struct bytes_result r;
		char name[32];

		bytes_call(c, path, &part, 1, CALL_MS, &r);
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(r.words, ":"), r.words);
		answered(f, r.code ? name : "OK", r.words);
	}
	bytes_channel_free(c);
}

/* Calls of who may not make them. */
static void strangers(struct flood *f)
{
	const char *path = raw_arg(f->args, "path", "/ros2.v1.Admin/Status");
	uint8_t message[ENROL_MAX];

	call_on(f, path, message, strstr(path, "/Enrol") ? enrol_request(message) : 0);
}

/* Of who may, but longer than any may be. */
static void messages(struct flood *f)
{
	uint8_t *message = calloc(1, LONG_MESSAGE);

	if (!message)
		abort();
	call_on(f, "/ros2.v1.Tenant/CloseSession", message, LONG_MESSAGE);
	free(message);
}

/* Handshakes of who has no certificate, each on a connection of its own. */
static void nobody(struct flood *f)
{
	while (turn(f)) {
		struct bare b = bare(f, false);

		bare_call(&b);
		answered(f, b.got_reply ? "without a certificate" : "no handshake", b.message);
	}
}

static const struct {
	const char *name;
	uint64_t rate;
	void (*run)(struct flood *f);
	bool sessionless; /* whoever has no session floods as well */
} floods[] = {
	{"handshakes", 15, handshakes},
	{"calls", 4, calls},
	{"hellos", 200, hellos},
	{"opens", 100, opens},
	{"regions", 200, regions},
	{"files", 300, files},
	{"tiny", 250, tiny},
	{"violations", 300, violations},
	{"unread", 100, unread},
	{"unpaced", 1, unpaced},
	{"halfopen", 100, halfopen},
	{"resets", 20, frames, true},
	{"begun", 20, frames, true},
	{"pings", 20, frames, true},
	{"settings", 20, frames, true},
	{"empty", 20, frames, true},
	{"continuations", 20, frames, true},
	{"windows", 20, frames, true},
	{"priorities", 20, frames, true},
	{"unknown", 20, frames, true},
	{"messages", 20, messages, true},
	{"shakes", 100, shakes, true},
	{"crowd", 2000, crowd},
	{"silent", 100, halfopen, true},
	{"nobody", 20, nobody, true},
	{"strangers", 200, strangers, true},
};

static void usage(void)
{
	fputs("usage: hostile-flood FLOOD [rate=PER-SECOND] [seconds=N] [host=OF-127.0.0.0/24] "
	      "(and ROS2_*)\nfloods:",
	      stderr);
	for (size_t i = 0; i < ARRAY_SIZE(floods); i++)
		fprintf(stderr, " %s", floods[i].name);
	fputs("\n", stderr);
}

int main(int argc, char **argv)
{
	struct raw_args a = {argv + 2, argc > 2 ? argc - 2 : 0};
	struct flood f = {.args = &a};
	struct ros2_err err = ROS2_ERR_INIT;
	size_t i = 0;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&f.asked);
	sigaddset(&f.asked, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &f.asked, NULL); /* in threads that are not there yet, too */
	signal(SIGTERM, on_signal);
	while (i < ARRAY_SIZE(floods) && (argc < 2 || strcmp(argv[1], floods[i].name)))
		i++;
	if (i == ARRAY_SIZE(floods)) {
		usage();
		return 2;
	}
	f.name = floods[i].name;
	f.answers = json_object();
	f.words = json_object();
	if (!floods[i].sessionless && (raw_connect(&f.raw, &a, &err) || !session(&f, 0))) {
		fprintf(stderr, "hostile-flood: no session: %s\n", err.msg);
		json_dumpf(f.answers, stderr, JSON_COMPACT);
		return 1;
	}
	f.n_sessions = !floods[i].sessionless;
	f.rate = raw_arg_u64(&a, "rate", floods[i].rate);
	f.start_ns = clock_monotonic_ns();
	f.end_ns = f.start_ns + raw_arg_u64(&a, "seconds", 5) * NS_PER_S;
	printf("{\"flooding\":\"%s\"}\n", f.name);
	fflush(stdout);
	floods[i].run(&f);
	for (size_t k = 0; k < f.n_sessions; k++)
		session_end(&f, k);
	report(&f);
	json_decref(f.answers);
	json_decref(f.words);
	rpc_channel_free(f.raw.channel);
	return 0;
}

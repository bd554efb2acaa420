/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tenant that floods its agent, or somebody a port of the controller, each in one of several
 * ways, at a stated rate for a stated time: on a machine of few cores a flooder without a rate
 * would show only what the scheduler does. Connects from 127.0.0.2 where it can, so that caps per
 * source are its own; with transport=shm its sessions are over shared memory, and it is another
 * user there; with transport=verbs they are over verbs. Prints one JSON object at the end, and at
 * each SIGUSR1 what it would be now: what it did and how it was answered, with one sample of words
 * for each answer.
 */
#include "tests/hostile/flood.h"
#include "common/clock.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/tenant.rpc.h"
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define CROWD        1100 /* more than the 1024 connections of a listener */
#define CALLS_SHARE  256  /* docs/operations.md: a tenant's, of the calls in flight */
#define CALLS_BEYOND 44
#define FRAMES       100 /* of a turn */
#define ENROL_MAX    4096
#define LONG_MESSAGE 8000000
#define USERS        60000 /* and the host: who it is at a socket of this machine */

void flood_answered(struct flood *f, const char *name, const char *words)
{
	json_int_t n = json_integer_value(json_object_get(f->answers, name));

	json_object_set_new(f->answers, name, json_integer(n + 1));
	if (!n && words && *words)
		json_object_set_new(f->words, name, json_string(words));
}

void flood_answered_rpc(struct flood *f, int rc, const struct ros2_err *err)
{
	flood_answered(f, rc ? ros2_status_to_str(err->status) : "OK", rc ? err->msg : NULL);
}

/* SIGTERM ends a flood in order, as its time does. */
static volatile sig_atomic_t told_to_end;

static void on_signal(int signo)
{
	told_to_end = 1;
}

bool flood_is_over(const struct flood *f)
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
bool flood_turn(struct flood *f)
{
	uint64_t at = f->start_ns + f->done * NS_PER_S / f->rate, now = clock_monotonic_ns();
	const struct timespec none = {0};

	if (sigtimedwait(&f->asked, NULL, &none) > 0)
		report(f);
	at = MIN(at, f->end_ns);
	if (at > now)
		/* time: the flood's own pace */
		usleep((useconds_t)((at - now) / 1000 + 1));
	if (flood_is_over(f))
		return false;
	f->done++;
	return true;
}

static void be_user(uid_t user)
{
	(void)syscall(SYS_setresuid, -1, user, -1);
}

/* The kernel says there whose connection it is: of this thread, as it is now. The way there may be
 * closed to that user; what it leads to is not. */
static int connect_unix(int fd, const char *path, uid_t user)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *slash = strrchr(path, '/');
	char dir[sizeof(to.sun_path)];
	bool may = geteuid() == 0;
	int rc;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	snprintf(to.sun_path, sizeof(to.sun_path), "%s", slash ? slash + 1 : path);
	if (chdir(dir))
		return -errno;
	if (may)
		be_user(user);
	rc = connect(fd, (struct sockaddr *)&to, sizeof(to)) ? -errno : 0;
	if (may)
		be_user(0);
	/* Who changes its user is not looked into any more, and a leak would not be found. */
	(void)prctl(PR_SET_DUMPABLE, 1);
	return rc;
}

static int connect_tcp(int fd, const char *address, uint8_t host)
{
	struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	const char *colon = strrchr(address, ':');

	from.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~255u) + host);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(colon ? colon + 1 : "0"));
	/* What is sent in pieces does not wait for the answer to the first. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
	return bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
	                       connect(fd, (struct sockaddr *)&to, sizeof(to))
	               ? -errno
	               : 0;
}

int flood_dial_from(const char *address, uint8_t host)
{
	bool local = !strncmp(address, "unix:", 5);
	struct timeval limit = {.tv_sec = 3};
	int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	rc = local ? connect_unix(fd, address + 5, USERS + host) : connect_tcp(fd, address, host);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

int flood_dial(const char *address)
{
	return flood_dial_from(address, 2);
}

static bool is_ended(int fd)
{
	uint8_t byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN);
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
	while (flood_turn(f)) {
		struct bare b = bare(f, false);
		struct ros2_err err = ROS2_ERR_INIT;
		struct raw r = {0};
		Ros2__V1__SessionRef q = ROS2__V1__SESSION_REF__INIT;
		Ros2__V1__Empty *e = NULL;
		int rc;

		if (f->done & 1) {
			bare_call(&b);
			flood_answered(f, b.got_reply ? "without a certificate" : "no handshake",
			               b.message);
			continue;
		}
		rc = raw_connect(&r, f->args, &err);
		if (!rc) {
			rc = ros2_v1_tenant_close_session_sync(r.channel, &q, FLOOD_CALL_MS, &e,
			                                       &err);
			if (!rc)
				protobuf_c_message_free_unpacked(&e->base, NULL);
			rpc_channel_free(r.channel);
		}
		flood_answered_rpc(f, rc, &err);
	}
}

/* Headers of calls that never come, more than the tenant has places for: @calls of them. */
static void calls(struct flood *f)
{
	size_t all = raw_arg_u64(f->args, "calls", CALLS_SHARE + CALLS_BEYOND);

	while (flood_turn(f)) {
		struct bare b = bare(f, true);
		struct bare_held *h = bare_hold(&b, all);
		char words[512] = "";
		int code;
		size_t n = bare_held_free(h, all - CALLS_SHARE, &code, words);

		for (size_t i = 0; i < n; i++)
			flood_answered(f, strncmp(words, "BUSY", 4) ? "refused" : "BUSY", words);
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

	b.path = raw_arg(f->args, "path", b.path);
	if (kind == HTTP2_UNREAD) /* answered with a message, to whoever asks */
		b.path = "/grpc.health.v1.Health/Check";
	while (flood_turn(f)) {
		if (!h)
			h = http2_open(b.target, host, b.cert, b.key, b.path);
		if (!h || http2_send(h, kind, FRAMES)) {
			flood_answered(f, h ? "ended" : "no connection", NULL);
			http2_close(TAKE_PTR(h));
			continue;
		}
		flood_answered(f, "sent", NULL);
	}
	http2_close(h);
}

/* Handshakes to their end, by who has a certificate, and nothing after it. */
static void shakes(struct flood *f)
{
	uint8_t host = (uint8_t)raw_arg_u64(f->args, "host", 2);
	struct bare b = bare(f, true);

	while (flood_turn(f)) {
		struct http2 *h = http2_open(b.target, host, b.cert, b.key, b.path);

		flood_answered(f, h ? "well" : "no connection", NULL);
		http2_close(h);
	}
}

static void opens(struct flood *f)
{
	struct raw_session s[2 * FLOOD_SESSIONS];
	size_t n = 0;

	while (flood_turn(f)) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc = raw_session_open(&f->raw, &s[n % ARRAY_SIZE(s)], &err);

		flood_answered_rpc(f, rc, &err);
		/* All but one of ten are beyond the limit; the tenth is new. */
		if (!rc && ++n % 10 == 9)
			raw_session_close(&f->raw, &s[(n - 1) % ARRAY_SIZE(s)]);
	}
}

static void regions(struct flood *f)
{
	Ros2__V1__RegisterRegionRequest g = ROS2__V1__REGISTER_REGION_REQUEST__INIT;

	g.session_uid = (ProtobufCBinaryData){16, f->s[0].uid};
	g.length = f->raw.over_shm ? 4096 : 1u << 20;
	g.access = 3;
	while (flood_turn(f)) {
		Ros2__V1__RegisterRegionReply *r = NULL;
		struct ros2_err err = ROS2_ERR_INIT;
		int rc;

		g.address = f->raw.over_shm ? WIRE_SHM_DATA_OFF + f->done % 256 * 4096
		                            : (f->done + 1) << 24;
		rc = ros2_v1_tenant_register_region_sync(f->raw.channel, &g, FLOOD_CALL_MS, &r,
		                                         &err);
		flood_answered_rpc(f, rc, &err);
		if (!rc)
			protobuf_c_message_free_unpacked(&r->base, NULL);
	}
}

/* One file, opened again and again in one session (or in @sessions, in turn), and never closed. */
static void files(struct flood *f)
{
	Ros2__V1__OpenRequest o = ROS2__V1__OPEN_REQUEST__INIT;
	size_t all = MIN(raw_arg_u64(f->args, "sessions", 1), (uint64_t)FLOOD_SESSIONS);

	while (f->n_sessions < all && flood_session(f, f->n_sessions))
		f->n_sessions++;
	o.mount = 1; /* where each has its first file */
	o.path = (char *)"flood";
	o.flags = 1;
	while (flood_turn(f)) {
		Ros2__V1__OpenReply *r = NULL;
		struct ros2_err err = ROS2_ERR_INIT;
		int rc;

		o.session_uid = (ProtobufCBinaryData){16, f->s[f->done % f->n_sessions].uid};
		rc = ros2_v1_tenant_open_sync(f->raw.channel, &o, FLOOD_CALL_MS, &r, &err);

		flood_answered_rpc(f, rc, &err);
		if (!rc)
			protobuf_c_message_free_unpacked(&r->base, NULL);
	}
}

/* As many as a listener has places, from five addresses, and again whichever it ended: to @at,
 * without a word. */
static void crowd(struct flood *f)
{
	const char *at = raw_arg(f->args, "at", "");
	size_t i;

	while (flood_turn(f)) {
		i = f->done % CROWD;
		if (f->sockets[i] > 0 && !is_ended(f->sockets[i]))
			continue;
		flood_answered(f, f->sockets[i] > 0 ? "ended" : "connected", NULL);
		if (f->sockets[i] > 0)
			close(f->sockets[i]);
		f->sockets[i] = flood_dial_from(at, 2 + (uint8_t)(i % 5));
	}
}

const char *flood_port(const struct flood *f)
{
	return raw_arg(f->args, "agent", getenv("ROS2_AGENT"));
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
		bytes_channel_new(flood_port(f), getenv("ROS2_CA"), has_one ? cert : NULL,
	                          has_one ? getenv("ROS2_KEY") : NULL);
	struct bytes_part part = {message, len};

	while (flood_turn(f)) {
		struct bytes_result r;
		char name[32];

		bytes_call(c, path, &part, 1, FLOOD_CALL_MS, &r);
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(r.words, ":"), r.words);
		flood_answered(f, r.code ? name : "OK", r.words);
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

/* Longer than any may be. */
static void messages(struct flood *f)
{
	uint8_t *message = calloc(1, LONG_MESSAGE);

	if (!message)
		abort();
	call_on(f, raw_arg(f->args, "path", "/ros2.v1.Tenant/CloseSession"), message, LONG_MESSAGE);
	free(message);
}

/* Handshakes of who has no certificate, each on a connection of its own. */
static void nobody(struct flood *f)
{
	while (flood_turn(f)) {
		struct bare b = bare(f, false);

		bare_call(&b);
		flood_answered(f, b.got_reply ? "without a certificate" : "no handshake",
		               b.message);
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
	{"hellos", 200, flood_hellos},
	{"opens", 100, opens},
	{"memory", 100, opens},
	{"regions", 200, regions},
	{"files", 300, files},
	{"tiny", 250, flood_tiny},
	{"violations", 300, flood_violations},
	{"unread", 100, flood_unread},
	{"unpaced", 1, flood_unpaced},
	{"halfopen", 100, flood_halfopen},
	{"resets", 20, frames, true},
	{"begun", 20, frames, true},
	{"pings", 20, frames, true},
	{"settings", 20, frames, true},
	{"empty", 20, frames, true},
	{"continuations", 20, frames, true},
	{"windows", 20, frames, true},
	{"priorities", 20, frames, true},
	{"unknown", 20, frames, true},
	{"answers", 20, frames, true},
	{"messages", 20, messages, true},
	{"shakes", 100, shakes, true},
	{"wakes", 100, flood_wakes},
	{"requests", 10, flood_verbs_requests},
	{"crowd", 2000, crowd},
	{"silent", 100, flood_halfopen, true},
	{"nobody", 20, nobody, true},
	{"strangers", 200, strangers, true},
};

static void usage(void)
{
	fputs("usage: hostile-flood FLOOD [rate=PER-SECOND] [seconds=N] [host=OF-127.0.0.0/24] "
	      "[transport=shm shm_bytes=N | transport=verbs] (and ROS2_*)\nfloods:",
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
	if (!floods[i].sessionless && (raw_connect(&f.raw, &a, &err) || !flood_session(&f, 0))) {
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
		flood_session_end(&f, k);
	report(&f);
	json_decref(f.answers);
	json_decref(f.words);
	rpc_channel_free(f.raw.channel);
	return 0;
}

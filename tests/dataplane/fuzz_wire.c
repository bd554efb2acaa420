/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a tenant, into a real data plane over a real connection: the header parser, then the
 * state machine behind it. The first byte of an input says how the rest is sent. Bit 0 clear: as it
 * is; set: as messages, with magic, version and CRC made right and the value 1 in handle, key and
 * generation replaced by good ones, so that mutations reach what lies behind the checks. Bit 1
 * clear: by one who has proved himself; set: in place of the HELLO, where a session of all zeroes
 * stands for the one that waits and a proof of all zeroes for the right one. Whatever is sent, the
 * connection must come to its end, only the right proof is welcome, and nothing may be left behind.
 */
#include "common/crypto.h"
#include "dataplane/wire_codec.h"
#include "tests/dataplane/fixture.h"
#include <errno.h>
#include <semaphore.h>
#include <sys/socket.h>

#define INPUT_MAX     65536u
#define PARSE_OFFSETS 64u

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Other threads allocate and free while an input runs, so libFuzzer would look for leaks after
 * nearly every one, which takes longer than the input. At the end of the process LSan still does.
 */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char **more = calloc((size_t)*argc + 2, sizeof(*more));

	if (!more)
		abort();
	memcpy(more, *argv, (size_t)*argc * sizeof(*more));
	more[(*argc)++] = (char *)"-detect_leaks=0";
	*argv = more;
	return 0;
}

static void *shared; /* one data plane for all inputs */

static void stop(void)
{
	fx_teardown(&shared);
}

static struct fx *fixture(void)
{
	uint8_t hash[SHA256_LEN];
	struct fx *fx;

	if (shared)
		return shared;
	raw_features = WIRE_FEATURE_CLEAR;
	if (fx_setup(&shared))
		abort();
	fx = shared;
	fx->limits.sessions_max = 400;
	fx->limits.regions = fx->limits.rkeys_concurrent = 1000;
	fx->limits.registered_bytes = UINT64_MAX;
	fx->limits.contact_limit_ms = 1000ull * 3600 * 24;
	fx_limits(fx);
	/* The library of the hashes registers its own end when it is first used; ours has to come
	 * before that. */
	crypto_sha256("", 0, hash);
	atexit(stop);
	return fx;
}

static void parse_only(const uint8_t *data, size_t size)
{
	struct wire_header h;
	const char *words;

	/* A few offsets: the parser has no memory, and a long input would be hashed at each. */
	for (size_t at = 0; at + WIRE_HEADER_LEN <= size && at < PARSE_OFFSETS * 8; at += 8) {
		enum ros2_status a = wire_parse_from_tenant(data + at, &h, &words);
		enum ros2_status b = wire_parse_from_agent(data + at, &h, &words);

		if ((unsigned)a >= ROS2_STATUS_COUNT || (unsigned)b >= ROS2_STATUS_COUNT)
			abort();
	}
}

/* Returns whether the proof is the right one. */
static bool fill_hello(const struct raw *c, const uint8_t nonce[WIRE_NONCE_LEN], uint8_t *payload)
{
	static const uint8_t zeroes[WIRE_MAC_LEN];
	struct wire_hello h, good;

	memcpy(&h, payload, sizeof(h));
	if (!memcmp(h.session_uid, zeroes, sizeof(h.session_uid)))
		memcpy(h.session_uid, c->session.b, sizeof(h.session_uid));
	raw_prove(c, nonce, &h, good.proof);
	if (!memcmp(h.proof, zeroes, sizeof(h.proof)))
		memcpy(h.proof, good.proof, sizeof(h.proof));
	memcpy(payload, &h, sizeof(h));
	return !memcmp(h.session_uid, c->session.b, sizeof(h.session_uid)) &&
	       !memcmp(h.proof, good.proof, sizeof(h.proof));
}

static void send_sealed(struct raw *c, const uint8_t *data, size_t size)
{
	while (size >= WIRE_HEADER_LEN) {
		struct wire_header h;
		size_t payload;

		memcpy(&h, data, sizeof(h));
		h.handle = h.handle == 1 ? c->handle : h.handle;
		h.key = h.key == 1 ? c->key : h.key;
		h.generation = h.generation == 1 ? c->generation : h.generation;
		wire_seal(&h);
		raw_send_bytes(c, &h, sizeof(h));
		data += WIRE_HEADER_LEN;
		size -= WIRE_HEADER_LEN;
		payload = MIN(h.payload_len, size);
		raw_send_bytes(c, data, payload);
		data += payload;
		size -= payload;
	}
	raw_send_bytes(c, data, size);
}

/* The session of one input is made in one go on the loop's thread: waking another thread for each
 * call took most of the time. */
struct ready {
	struct fx *fx;
	struct raw *c;
	struct ros2_uid grant;
	const char *step;
	struct dp_result res;
	sem_t done;
};

static bool next_step(struct ready *rd, const struct dp_result *res, const char *step)
{
	if (res->status == ROS2_OK) {
		rd->step = step;
		return true;
	}
	rd->res = *res;
	sem_post(&rd->done);
	return false;
}

static void registered(void *arg, const struct dp_result *res)
{
	struct ready *rd = arg;

	rd->c->key = res->region.key;
	rd->c->generation = res->region.generation;
	rd->res = *res;
	sem_post(&rd->done);
}

static void opened(void *arg, const struct dp_result *res)
{
	struct ready *rd = arg;

	if (!next_step(rd, res, "register"))
		return;
	rd->c->handle = res->open.handle;
	dp_region_register(rd->fx->dp, &rd->c->session, FX_BASE, 1u << 20, 3, registered, rd);
}

static void mounted(void *arg, const struct dp_result *res)
{
	struct ready *rd = arg;

	if (next_step(rd, res, "open"))
		dp_open(rd->fx->dp, &rd->c->session, res->mount.mount, "file",
		        ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE, 0644, opened, rd);
}

static void session_opened(void *arg, const struct dp_result *res)
{
	struct ready *rd = arg;

	if (!next_step(rd, res, "mount"))
		return;
	rd->c->port = res->session.port;
	memcpy(rd->c->secret, res->session.secret, sizeof(rd->c->secret));
	dp_mount(rd->fx->dp, &rd->c->session, "ram", "ns", 3, mounted, rd);
}

static void start(void *arg)
{
	struct ready *rd = arg;
	const struct dp_grant g = {.grant = rd->grant,
	                           .tenant = rd->fx->tenant,
	                           .deadline_ns = UINT64_MAX,
	                           .max_keys = rd->fx->max_keys,
	                           .max_bytes = 48u << 20,
	                           .access = 3};
	const struct dp_session_params p = {rd->c->session, rd->fx->tenant, rd->grant, UINT64_MAX};

	if (dp_grant_put(rd->fx->dp, &g, NULL) < 0)
		abort();
	dp_session_open(rd->fx->dp, &p, session_opened, rd);
}

/* A grant of its own for each input, so that its limits never get in the way. */
static void ready(struct fx *fx, struct raw *c)
{
	struct ready rd = {.fx = fx, .c = c, .grant = ros2_uid_new(), .step = "session"};

	*c = (struct raw){.fx = fx, .session = ros2_uid_new(), .fd = -1};
	sem_init(&rd.done, 0, 0);
	if (loop_post(fx->loop, start, &rd) < 0)
		abort();
	while (sem_wait(&rd.done) < 0)
		;
	sem_destroy(&rd.done);
	if (rd.res.status != ROS2_OK) {
		fprintf(stderr, "# %s: %s: %s\n", rd.step, ros2_status_to_str(rd.res.status),
		        rd.res.words);
		abort();
	}
}

/* To its end, which has to come. */
static void drain(struct raw *c)
{
	if (raw_recv_end(c) < 0 && errno != ECONNRESET)
		abort(); /* the agent neither answered nor ended */
}

static void send_as(struct raw *c, const uint8_t *data, size_t size, bool sealed)
{
	if (sealed)
		send_sealed(c, data, size);
	else
		raw_send_bytes(c, data, size);
	shutdown(c->fd, SHUT_WR);
}

/* Nobody but the one who knows the secret is welcome. */
static void unproved(struct raw *c, const uint8_t *data, size_t size, bool sealed)
{
	const size_t hello_len = WIRE_HEADER_LEN + sizeof(struct wire_hello);
	uint8_t nonce[WIRE_NONCE_LEN], *copy = malloc(size + 1);
	struct wire_header h;
	bool good = false;
	struct fx_args a = {.session = c->session};

	if (!copy)
		abort();
	memcpy(copy, data, size);
	c->fd = raw_connect_port(c->port);
	if (!raw_recv(c, &h, nonce, sizeof(nonce)) || h.opcode != WIRE_CHALLENGE)
		abort();
	if (sealed && size >= hello_len)
		good = fill_hello(c, nonce, copy + WIRE_HEADER_LEN);
	send_as(c, copy, size, sealed);
	if (raw_recv_bytes(c, &h, sizeof(h))) {
		if (h.opcode == WIRE_WELCOME && !good)
			abort();
		if (h.opcode != WIRE_WELCOME && (h.opcode != WIRE_NAK || !h.status))
			abort();
	}
	drain(c);
	fx_do(c->fx, FX_CLOSE_SESSION, &a);
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct raw c;

	if (size == 0 || size > INPUT_MAX)
		return 0;
	parse_only(data + 1, size - 1);
	ready(fixture(), &c);
	if (data[0] & 2) {
		unproved(&c, data + 1, size - 1, data[0] & 1);
	} else {
		raw_connect(&c);
		send_as(&c, data + 1, size - 1, data[0] & 1);
		drain(&c);
	}
	raw_close(&c);
	return 0;
}

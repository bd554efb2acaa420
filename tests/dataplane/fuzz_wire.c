/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a tenant that has proved itself, into a real data plane over a real connection: the
 * header parser, then the state machine behind it. The first byte of an input says how the rest is
 * sent: bit 0 clear: as it is; set: as messages, with magic, version and CRC made right and the
 * value 1 in handle, key and generation replaced by good ones, so that mutations reach what lies
 * behind the checks. Whatever is sent, the connection must come to its end, and nothing may be left
 * behind.
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
 * nearly every one, which takes longer than the input. At the end of the process LSan still does. */
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
	raw_connect(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t junk[16384];
	struct raw c;
	ssize_t n;

	if (size == 0 || size > INPUT_MAX)
		return 0;
	parse_only(data + 1, size - 1);
	ready(fixture(), &c);
	if (data[0] & 1)
		send_sealed(&c, data + 1, size - 1);
	else
		raw_send_bytes(&c, data + 1, size - 1);
	shutdown(c.fd, SHUT_WR);
	while ((n = recv(c.fd, junk, sizeof(junk), 0)) > 0)
		;
	if (n < 0 && errno != ECONNRESET)
		abort(); /* the agent neither answered nor ended */
	raw_close(&c);
	return 0;
}

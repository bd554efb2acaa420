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
#include <sys/socket.h>

#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

	for (size_t at = 0; at + WIRE_HEADER_LEN <= size; at++) {
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

/* A grant of its own for each input, so that its limits never get in the way. */
static void ready(struct fx *fx, struct raw *c)
{
	struct ros2_uid grant = ros2_uid_new();

	if (fx_grant(fx, &grant, &fx->tenant, UINT64_MAX))
		abort();
	raw_open_as(fx, c, &fx->tenant, &grant, UINT64_MAX);
	raw_connect(c);
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, 1u << 20, 3);
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

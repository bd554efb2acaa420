/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every opcode and every field of the header with hostile values on a data port, after a good HELLO
 * and in place of one. What must hold: NAK or COMPLETE with a named error, an answer that is right,
 * or the end of the connection, all in time; never payload that was not asked for.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/hostile/hostile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 3000
#define PING_ID   0x70696e67u

#define FIELD(f)                                                                                   \
	{                                                                                          \
#f, offsetof(struct wire_header, f), sizeof(((struct wire_header *)0)->f)          \
	}
static const struct {
	const char *name;
	size_t offset, size;
} fields[] = {
	FIELD(magic),  FIELD(version),  FIELD(flags),       FIELD(request_id), FIELD(handle),
	FIELD(offset), FIELD(address),  FIELD(length),      FIELD(key),        FIELD(generation),
	FIELD(status), FIELD(reserved), FIELD(payload_len), FIELD(header_crc),
};

static const uint8_t opcodes[] = {
	WIRE_CHALLENGE,
	WIRE_HELLO,
	WIRE_WELCOME,
	WIRE_READ,
	WIRE_WRITE,
	WIRE_FLUSH,
	WIRE_WINDOW,
	WIRE_ZERO,
	WIRE_DISCARD,
	WIRE_DATA,
	WIRE_PULL,
	WIRE_COMPLETE,
	WIRE_NAK,
	WIRE_PING,
	WIRE_PONG,
	WIRE_BYE,
	0,
	4,
	15,
	22,
	51,
	128,
	255,
};

static uint8_t scratch[WIRE_IO_MAX];

struct wire {
	struct hostile *h;
	unsigned sent, naks, completes, ends, told, waits;
};

static bool alive(struct wire *w)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (w->h->b.fd >= 0 || tenant_open(&w->h->b, &err))
		return true;
	hostile_problem(w->h, "no new session: %s", err.msg);
	return false;
}

/* A status that says something, in the words of the list. */
static void named(struct wire *w, const char *what, const struct wire_header *in)
{
	if (in->status >= ROS2_STATUS_COUNT || in->status == ROS2_INTERNAL ||
	    (in->opcode == WIRE_NAK && !in->status))
		hostile_problem(w->h, "%s: %s with status %u", what, raw_opcode(in->opcode),
		                in->status);
}

/* The connection has ended: the session's next call says why, by name. */
static void told_why(struct wire *w, const char *what)
{
	Ros2__V1__HandleRef q = ROS2__V1__HANDLE_REF__INIT;
	uint8_t buf[64];
	struct bytes_part m = {buf, 0};
	struct bytes_result r = {0};

	q.session_uid = (ProtobufCBinaryData){16, w->h->b.s.uid};
	q.handle = w->h->b.handle;
	m.len = protobuf_c_message_pack(&q.base, buf);
	for (int i = 0; i < 200 && !r.code; i++) {
		/* poll: the session's end, asked over the wire */
		usleep(i ? 5000 : 0);
		bytes_call(w->h->b.bytes, "/ros2.v1.Tenant/StatHandle", &m, 1, ANSWER_MS, &r);
	}
	if (!r.code || !is_named(&r) || !strncmp(r.words, "BAD_", 4))
		hostile_problem(w->h, "%s: the session does not say why it ended: code %d, %s",
		                what, r.code, r.words);
	else
		w->told++;
}

/* Reads what comes until the answer to the PING; a peer that waits for payload gives none. */
static void answers(struct wire *w, const char *what, const struct wire_header *out)
{
	uint64_t until = clock_monotonic_ns() + ANSWER_MS * NS_PER_MS;
	struct wire_header in;
	int rc;

	while (!(rc = raw_receive(w->h->b.fd, &in, scratch, out->payload_len ? 300 : ANSWER_MS))) {
		if (in.opcode == WIRE_PONG && in.request_id == PING_ID)
			return;
		named(w, what, &in);
		w->naks += in.opcode == WIRE_NAK;
		w->completes += in.opcode == WIRE_COMPLETE;
		if (in.opcode == WIRE_DATA && in.key != out->key)
			hostile_problem(w->h, "%s: DATA for another key", what);
		if (clock_monotonic_ns() > until)
			break;
	}
	if (rc == -ETIMEDOUT && !out->payload_len)
		hostile_problem(w->h, "%s: no answer in %d ms", what, ANSWER_MS);
	w->waits += rc == -ETIMEDOUT && out->payload_len;
	w->ends += rc != -ETIMEDOUT;
	if (rc != -ETIMEDOUT)
		told_why(w, what);
	tenant_close(&w->h->b);
}

static void try_one(struct wire *w, const char *what, struct wire_header *h, bool seal)
{
	struct wire_header ping = {.opcode = WIRE_PING, .request_id = PING_ID};

	if (!alive(w))
		return;
	w->sent++;
	if (seal)
		h->header_crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));
	raw_seal(&ping);
	/* What is announced is sent, up to a bound; the rest the peer may wait for. */
	if (send(w->h->b.fd, h, sizeof(*h), MSG_NOSIGNAL) > 0 && h->payload_len <= WIRE_INLINE_MAX)
		(void)send(w->h->b.fd, scratch, h->payload_len, MSG_NOSIGNAL);
	(void)send(w->h->b.fd, &ping, sizeof(ping), MSG_NOSIGNAL);
	answers(w, what, h);
}

static struct wire_header good(const struct wire *w, uint8_t opcode)
{
	struct wire_header h = {.opcode = opcode,
	                        .request_id = w->sent + 1,
	                        .handle = w->h->b.handle,
	                        .address = 65536,
	                        .length = 4096,
	                        .key = w->h->b.key,
	                        .generation = w->h->b.generation};

	if (opcode == WIRE_FLUSH || opcode == WIRE_ZERO || opcode == WIRE_DISCARD)
		h.address = h.key = h.generation = 0;
	if (opcode == WIRE_FLUSH)
		h.length = 0;
	raw_seal(&h);
	return h;
}

static void one_field(struct wire *w, uint8_t opcode, size_t f)
{
	const uint64_t values[] = {0,
	                           1,
	                           0x7f,
	                           0xfff,
	                           0x8000,
	                           1ull << 31,
	                           UINT32_MAX,
	                           1ull << 63,
	                           (1ull << 63) - 1,
	                           UINT64_MAX - 4095,
	                           UINT64_MAX,
	                           w->h->a.handle,
	                           w->h->a.key};

	for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
		struct wire_header h;
		char what[128];

		if (fields[f].size < 8 && values[v] >> (8 * fields[f].size))
			continue;
		if (!alive(w))
			return;
		h = good(w, opcode);
		memcpy((char *)&h + fields[f].offset, &values[v], fields[f].size);
		snprintf(what, sizeof(what), "%s (%u) %s = %llu", raw_opcode(opcode), opcode,
		         fields[f].name, (unsigned long long)values[v]);
		try_one(w, what, &h, strcmp(fields[f].name, "header_crc"));
	}
}

/* In place of HELLO: the port of a session that waits. */
static void before_hello(struct wire *w)
{
	const char *address = w->h->a.s.data_address;

	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct ros2_err err = ROS2_ERR_INIT;
		struct wire_header h = good(w, opcodes[i]), in;
		AUTO_CLOSE int fd = raw_dial(address, &err);
		int rc, n = 0;

		h.payload_len = h.opcode == WIRE_HELLO ? sizeof(struct wire_hello) : 0;
		raw_seal(&h);
		if (fd < 0 || raw_receive(fd, &in, scratch, ANSWER_MS) ||
		    in.opcode != WIRE_CHALLENGE) {
			hostile_problem(w->h, "no CHALLENGE: %s", err.msg);
			continue;
		}
		(void)send(fd, &h, sizeof(h), MSG_NOSIGNAL);
		(void)send(fd, scratch, h.payload_len, MSG_NOSIGNAL);
		while (!(rc = raw_receive(fd, &in, scratch, ANSWER_MS)) && ++n)
			named(w, raw_opcode(opcodes[i]), &in);
		if (rc == -ETIMEDOUT || !n)
			hostile_problem(w->h, "%s in place of HELLO: %d answers, then %s",
			                raw_opcode(opcodes[i]), n, strerror(-rc));
	}
	servers_live(w->h);
	hostile_test(w->h,
	             "every opcode in place of HELLO is refused by name, and the connection ends");
}

void wire_garbage(struct hostile *h)
{
	struct wire w = {.h = h};

	before_hello(&w);
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		w.naks = w.completes = w.ends = w.told = w.waits = 0;
		for (size_t f = 0; f < ARRAY_SIZE(fields); f++)
			one_field(&w, opcodes[i], f);
		servers_live(h);
		hostile_test(h,
		             "%s (%u): every field: %u NAK, %u COMPLETE, %u ended, %u of them with "
		             "a name",
		             raw_opcode(opcodes[i]), opcodes[i], w.naks, w.completes, w.ends,
		             w.told);
	}
}

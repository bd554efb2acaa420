/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every opcode there can be on a data port, and of those that wire.h has every field of the header
 * with hostile values, after a good HELLO; every opcode in place of one; and HELLO itself with one
 * field of its header or one bit of the rest wrong, for another session and said again. What must
 * hold: NAK or COMPLETE with a named error, an answer that is right, or the end of the connection,
 * all in time; never payload that was not asked for.
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

/* -1, after telling it: no connection with a CHALLENGE, which is in scratch. */
static int challenged(struct wire *w)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int fd = raw_dial(w->h->a.s.data_address, &err);
	struct wire_header in;

	if (fd >= 0 && !raw_receive(fd, &in, scratch, ANSWER_MS) && in.opcode == WIRE_CHALLENGE)
		return fd;
	hostile_problem(w->h, "no CHALLENGE: %s", err.msg);
	if (fd >= 0)
		close(fd);
	return -1;
}

/* In place of HELLO: the port of a session that waits. */
static void before_hello(struct wire *w)
{
	for (unsigned op = 0; op < 256; op++) {
		struct wire_header h = good(w, (uint8_t)op), in;
		AUTO_CLOSE int fd = challenged(w);
		int rc, n = 0;

		if (fd < 0)
			continue;
		h.payload_len = h.opcode == WIRE_HELLO ? sizeof(struct wire_hello) : 0;
		raw_seal(&h);
		(void)send(fd, &h, sizeof(h), MSG_NOSIGNAL);
		(void)send(fd, scratch, h.payload_len, MSG_NOSIGNAL);
		while (!(rc = raw_receive(fd, &in, scratch, ANSWER_MS)) && ++n)
			named(w, raw_opcode(h.opcode), &in);
		if (rc == -ETIMEDOUT || !n)
			hostile_problem(w->h, "%s (%u) in place of HELLO: %d answers, then %s",
			                raw_opcode(h.opcode), op, n, strerror(-rc));
	}
	servers_live(w->h);
	hostile_test(w->h,
	             "every opcode in place of HELLO is refused by name, and the connection ends");
}

/* ---- HELLO ---- */

/* What comes first after @hello on @fd: WELCOME, or a NAK and its status, with the end behind it.
 */
static uint8_t say_hello(struct wire *w, int fd, const struct wire_hello *hello, uint16_t *status)
{
	struct wire_header h = {
		.opcode = WIRE_HELLO, .length = WIRE_FEATURES_KNOWN, .payload_len = sizeof(*hello)};

	raw_seal(&h);
	if (raw_send(fd, &h, hello) || raw_receive(fd, &h, scratch, ANSWER_MS))
		return 0;
	*status = h.status;
	if (h.opcode == WIRE_NAK && raw_receive(fd, &h, scratch, ANSWER_MS) != -ECONNRESET)
		hostile_problem(w->h, "a refused HELLO does not end the connection");
	return h.opcode;
}

/* What HELLO's header says beside its opcode and the bytes behind it: of what it does not use
 * anything goes; a length is what it knows. */
static bool is_free(size_t f)
{
	return strcmp(fields[f].name, "magic") && strcmp(fields[f].name, "version") &&
	       strcmp(fields[f].name, "flags") && strcmp(fields[f].name, "reserved") &&
	       strcmp(fields[f].name, "payload_len") && strcmp(fields[f].name, "header_crc");
}

/* A right proof under a header of which one field is wrong; a session of its own for each that may
 * be welcome. */
static void one_header(struct wire *w, struct raw_session *s, size_t f, uint64_t value)
{
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};
	struct ros2_err err = ROS2_ERR_INIT;
	struct wire_hello hello;
	AUTO_CLOSE int fd = -1;
	int rc;

	if (is_free(f) && raw_session_open(&w->h->b.raw, s, &err)) {
		hostile_problem(w->h, "no session: %s", err.msg);
		return;
	}
	fd = challenged(w);
	if (fd < 0)
		return;
	raw_prove(s, scratch, &hello);
	raw_seal(&h);
	memcpy((char *)&h + fields[f].offset, &value, fields[f].size);
	if (strcmp(fields[f].name, "header_crc"))
		h.header_crc = crypto_crc32c(&h, offsetof(struct wire_header, header_crc));
	w->sent++;
	(void)send(fd, &h, sizeof(h), MSG_NOSIGNAL);
	(void)send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
	rc = raw_receive(fd, &h, scratch, ANSWER_MS);
	if (rc || h.opcode != (is_free(f) ? WIRE_WELCOME : WIRE_NAK))
		hostile_problem(w->h, "HELLO, %s = %llu: %s, %s", fields[f].name,
		                (unsigned long long)value, rc ? strerror(-rc) : "",
		                raw_opcode(h.opcode));
	else
		named(w, "HELLO", &h);
	w->naks += !rc && h.opcode == WIRE_NAK;
	if (!is_free(f) && !rc && raw_receive(fd, &h, scratch, ANSWER_MS) != -ECONNRESET)
		hostile_problem(w->h, "a refused HELLO does not end the connection");
	if (is_free(f))
		raw_session_close(&w->h->b.raw, s);
}

static void hello_headers(struct wire *w)
{
	const uint64_t values[] = {2, 0x7f, 0xfff, 0x8000, 1ull << 31, UINT32_MAX, UINT64_MAX};
	struct raw_session waits, s;
	struct ros2_err err = ROS2_ERR_INIT;

	tenant_close(&w->h->b);
	if (raw_session_open(&w->h->b.raw, &waits, &err))
		hostile_problem(w->h, "no session: %s", err.msg);
	w->sent = w->naks = 0;
	for (size_t f = 0; f < ARRAY_SIZE(fields); f++)
		for (size_t v = 0; v < ARRAY_SIZE(values); v++)
			if (fields[f].size == 8 || values[v] >> (8 * fields[f].size) == 0)
				one_header(w, is_free(f) ? &s : &waits, f, values[v]);
	raw_session_close(&w->h->b.raw, &waits);
	servers_live(w->h);
	hostile_test(w->h, "HELLO: every field of its header: %u sent, %u NAK", w->sent, w->naks);
}

static void is_unproved(struct wire *w, int fd, const struct wire_hello *hello, const char *what,
                        size_t byte)
{
	uint16_t status = 0;
	uint8_t op = say_hello(w, fd, hello, &status);

	w->sent++;
	if (op != WIRE_NAK || status != ROS2_UNAUTHENTICATED)
		hostile_problem(w->h, "HELLO with %s (byte %zu): %s, %s", what, byte,
		                raw_opcode(op), ros2_status_to_str((enum ros2_status)status));
}

/* One bit of each byte of a field is not what it should be; @foreign (may be NULL) stands there. */
static void wrong_hellos(struct wire *w, const char *field, size_t from, size_t n,
                         const uint8_t *foreign)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct wire_hello hello;
	struct raw_session s;
	uint16_t status = 0;
	int fd;

	tenant_close(&w->h->b); /* its place is for the session here */
	if (raw_session_open(&w->h->b.raw, &s, &err)) {
		hostile_problem(w->h, "no session: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < n + !!foreign; i++) {
		fd = challenged(w);
		if (fd < 0)
			break;
		raw_prove(&s, scratch, &hello);
		if (i < n)
			((uint8_t *)&hello)[from + i] ^= (uint8_t)(1u << (i % 8));
		else
			memcpy((uint8_t *)&hello + from, foreign, n);
		is_unproved(w, fd, &hello, field, i);
		close(fd);
	}
	/* The control: the session waited all the while, and takes what is right; once. */
	fd = challenged(w);
	raw_prove(&s, scratch, &hello);
	if (fd < 0 || say_hello(w, fd, &hello, &status) != WIRE_WELCOME)
		hostile_problem(w->h, "after wrong ones the right HELLO is not welcome: %s",
		                ros2_status_to_str((enum ros2_status)status));
	for (int again = 0; again < 2; again++) {
		AUTO_CLOSE int other = challenged(w);

		if (again)
			raw_prove(&s, scratch, &hello);
		is_unproved(w, other, &hello, again ? "a new proof" : "the same bytes", 0);
	}
	if (fd >= 0)
		close(fd);
	raw_session_close(&w->h->b.raw, &s);
}

static void hellos(struct wire *w)
{
	const struct wire_hello *h = NULL;
	struct raw_session waits; /* the neighbour's */
	struct ros2_err err = ROS2_ERR_INIT;

	if (raw_session_open(&w->h->a.raw, &waits, &err))
		hostile_problem(w->h, "the neighbour gets no session: %s", err.msg);
	w->sent = 0;
	wrong_hellos(w, "session_uid", offsetof(struct wire_hello, session_uid),
	             sizeof(h->session_uid), waits.uid);
	wrong_hellos(w, "session_uid", offsetof(struct wire_hello, session_uid),
	             sizeof(h->session_uid), w->h->a.s.uid);
	wrong_hellos(w, "tenant_nonce", offsetof(struct wire_hello, tenant_nonce),
	             sizeof(h->tenant_nonce), NULL);
	wrong_hellos(w, "proof", offsetof(struct wire_hello, proof), sizeof(h->proof), NULL);
	raw_session_close(&w->h->a.raw, &waits);
	servers_live(w->h);
	hostile_test(w->h, "HELLO: every field, for another's session and again: %u refused",
	             w->sent);
}

static void every_field(struct wire *w, uint8_t opcode)
{
	w->naks = w->completes = w->ends = w->told = w->waits = 0;
	for (size_t f = 0; f < ARRAY_SIZE(fields); f++)
		one_field(w, opcode, f);
	servers_live(w->h);
	hostile_test(w->h,
	             "%s (%u): every field: %u NAK, %u COMPLETE, %u ended, %u of them with a name",
	             raw_opcode(opcode), opcode, w->naks, w->completes, w->ends, w->told);
}

void wire_garbage(struct hostile *h)
{
	struct wire w = {.h = h};
	unsigned others = 0;

	before_hello(&w);
	hellos(&w);
	hello_headers(&w);
	for (unsigned op = 0; op < 256; op++)
		if (raw_opcode_of(raw_opcode((uint8_t)op)))
			every_field(&w, (uint8_t)op);
	w.naks = w.ends = 0;
	for (unsigned op = 0; op < 256; op++) {
		struct wire_header out;
		char what[32];

		if (raw_opcode_of(raw_opcode((uint8_t)op)) || !alive(&w))
			continue;
		out = good(&w, (uint8_t)op);
		snprintf(what, sizeof(what), "opcode %u", op);
		try_one(&w, what, &out, true);
		others++;
	}
	if (w.naks + w.ends < others)
		hostile_problem(h, "%u of them were refused", w.naks + w.ends);
	servers_live(h);
	hostile_test(h, "%u opcodes that nobody knows: %u NAK, %u ended", others, w.naks, w.ends);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every opcode in place of HELLO, and HELLO itself with one field of its header or one bit of the
 * rest wrong, for another session and said again; and behind a good one every opcode there can be,
 * with every field of the header (tests/dataplane/garbage.h). What must hold: the answer that is
 * due, or the end of the connection with the name that is due, all in time; never payload that was
 * not asked for.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/dataplane/garbage.h"
#include "tests/hostile/hostile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 3000
#define ADDRESS   65536u /* of the attacker's region */
#define PATIENCE  10     /* of beta's rkeys.violations, which are 20 */

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
	unsigned sent, naks;
	struct wire_header out; /* the READ or WRITE that waits for its answer; opcode 0: none */
	unsigned pulls, datas;
};

static const char *name_of(uint16_t status)
{
	return ros2_status_to_str((enum ros2_status)status);
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

/* One NAK with this status, and the end. */
static void is_refused(struct wire *w, int fd, const char *what, enum ros2_status due)
{
	struct wire_header in;
	int rc = raw_receive(fd, &in, scratch, ANSWER_MS);

	if (rc || in.opcode != WIRE_NAK || in.status != due || !in.payload_len)
		hostile_problem(w->h, "%s: %s is due, found %s, %s %s", what,
		                ros2_status_to_str(due), rc ? strerror(-rc) : "",
		                rc ? "" : raw_opcode(in.opcode), rc ? "" : name_of(in.status));
	w->naks += !rc;
	if (!rc && raw_receive(fd, &in, scratch, ANSWER_MS) != -ECONNRESET)
		hostile_problem(w->h, "%s: what is refused does not end the connection", what);
}

/* In place of HELLO: the port of a session that waits. */
static void before_hello(struct wire *w)
{
	for (unsigned op = 0; op < 256; op++) {
		bool hello = op == WIRE_HELLO;
		struct wire_header h = {.opcode = (uint8_t)op,
		                        .length = 4096,
		                        .payload_len = hello ? sizeof(struct wire_hello) : 0};
		AUTO_CLOSE int fd = challenged(w);
		char what[64];

		if (fd < 0)
			continue;
		raw_seal(&h);
		(void)send(fd, &h, sizeof(h), MSG_NOSIGNAL);
		(void)send(fd, scratch, h.payload_len, MSG_NOSIGNAL);
		snprintf(what, sizeof(what), "%s (%u) in place of HELLO", raw_opcode(h.opcode), op);
		is_refused(w, fd, what, hello ? ROS2_UNAUTHENTICATED : ROS2_PROTOCOL);
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

static enum ros2_status header_due(size_t f)
{
	if (!strcmp(fields[f].name, "version"))
		return ROS2_VERSION;
	if (!strcmp(fields[f].name, "payload_len"))
		return ROS2_TOO_LARGE;
	return strcmp(fields[f].name, "header_crc") ? ROS2_PROTOCOL : ROS2_CORRUPT;
}

/* A right proof under a header of which one field is wrong; a session of its own for each that may
 * be welcome. */
static void one_header(struct wire *w, struct raw_session *s, size_t f, uint64_t value)
{
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};
	struct ros2_err err = ROS2_ERR_INIT;
	struct wire_hello hello;
	AUTO_CLOSE int fd = -1;
	char what[64];
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
	snprintf(what, sizeof(what), "HELLO, %s = %llu", fields[f].name, (unsigned long long)value);
	if (!is_free(f)) {
		is_refused(w, fd, what, header_due(f));
		return;
	}
	rc = raw_receive(fd, &h, scratch, ANSWER_MS);
	if (rc || h.opcode != WIRE_WELCOME)
		hostile_problem(w->h, "%s: %s, %s", what, rc ? strerror(-rc) : "",
		                raw_opcode(h.opcode));
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
		                raw_opcode(op), name_of(status));
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
		                name_of(status));
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

/* ---- behind a good HELLO ---- */

static void send_message(void *arg, const struct wire_header *h)
{
	struct wire *w = arg;

	if (h->opcode == WIRE_READ || h->opcode == WIRE_WRITE)
		w->out = *h;
	/* What is behind it: of more than that nothing is looked at. */
	if (send(w->h->b.fd, h, sizeof(*h), MSG_NOSIGNAL) > 0 && h->payload_len <= WIRE_INLINE_MAX)
		(void)send(w->h->b.fd, scratch, h->payload_len, MSG_NOSIGNAL);
}

/* What moves bytes names what was asked for: the request, and the memory that is its own. */
static bool is_of_the_request(const struct wire *w, const struct wire_header *in,
                              enum wire_opcode op)
{
	return w->out.opcode == op && in->request_id == w->out.request_id &&
	       in->key == w->h->b.key && in->generation == w->h->b.generation &&
	       in->address == ADDRESS && in->offset == 0 && in->length <= w->out.length;
}

static void answer_pull(struct wire *w, const struct wire_header *in)
{
	struct wire_header h = *in;

	w->pulls++;
	if (!is_of_the_request(w, in, WIRE_WRITE) || in->length != w->out.length)
		hostile_problem(w->h, "PULL of what was not offered");
	h.opcode = WIRE_DATA;
	h.payload_len = h.length;
	raw_seal(&h);
	(void)raw_send(w->h->b.fd, &h, scratch);
}

static bool take_message(void *arg, struct wire_header *h)
{
	struct wire *w = arg;
	int rc;

	while (!(rc = raw_receive(w->h->b.fd, h, scratch, ANSWER_MS))) {
		if (h->opcode == WIRE_PULL) {
			answer_pull(w, h);
		} else if (h->opcode == WIRE_DATA) {
			w->datas++;
			if (!is_of_the_request(w, h, WIRE_READ))
				hostile_problem(w->h, "DATA for what was not asked for");
		} else {
			if (h->request_id == w->out.request_id && h->opcode != WIRE_PONG)
				w->out.opcode = 0;
			return true;
		}
	}
	if (rc != -ECONNRESET)
		hostile_problem(w->h, "no answer in %d ms: %s", ANSWER_MS, strerror(-rc));
	return false;
}

static struct wire_header invite(void *arg)
{
	struct wire *w = arg;
	struct wire_header h = {.opcode = WIRE_WRITE,
	                        .request_id = ++w->sent,
	                        .handle = w->h->b.handle,
	                        .address = ADDRESS,
	                        .length = 4096,
	                        .key = w->h->b.key};

	raw_seal(&h);
	(void)raw_send(w->h->b.fd, &h, NULL);
	if (raw_receive(w->h->b.fd, &h, scratch, ANSWER_MS) || h.opcode != WIRE_PULL)
		hostile_problem(w->h, "a WRITE is not asked for its payload: %s",
		                raw_opcode(h.opcode));
	h.opcode = WIRE_DATA;
	h.payload_len = h.length;
	return h;
}

/* The connection has ended: the session's next call says why, by name. */
static enum ros2_status why_it_ended(struct wire *w)
{
	Ros2__V1__HandleRef q = ROS2__V1__HANDLE_REF__INIT;
	enum ros2_status st = ROS2_OK;
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
	r.words[strcspn(r.words, ":")] = '\0';
	if (!r.code || ros2_status_from_str(r.words, &st))
		hostile_problem(w->h, "the session does not say why it ended: code %d, %s", r.code,
		                r.words);
	return st;
}

static enum ros2_status new_session(void *arg, struct garbage *g)
{
	struct wire *w = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st = ROS2_OK;
	struct wire_header in;

	/* Before its patience is at an end it lives. */
	if (w->h->b.fd >= 0 && raw_receive(w->h->b.fd, &in, scratch, 0) == -ECONNRESET)
		st = why_it_ended(w);
	if (!tenant_open(&w->h->b, &err))
		hostile_problem(w->h, "no new session: %s", err.msg);
	w->out.opcode = 0;
	g->handle = w->h->b.handle;
	g->key = w->h->b.key;
	g->generation = w->h->b.generation;
	return st;
}

/* So that there is something to read. */
static void write_once(struct wire *w)
{
	struct wire_header h = invite(w);

	raw_seal(&h);
	(void)raw_send(w->h->b.fd, &h, scratch);
	if (raw_receive(w->h->b.fd, &h, scratch, ANSWER_MS) || h.opcode != WIRE_COMPLETE ||
	    h.status)
		hostile_problem(w->h, "a WRITE is not completed: %s, %s", raw_opcode(h.opcode),
		                name_of(h.status));
}

static void behind_hello(struct wire *w)
{
	struct garbage g = {.arg = w,
	                    .send = send_message,
	                    .take = take_message,
	                    .renew = new_session,
	                    .inline_max = WIRE_INLINE_MAX,
	                    .invite = invite,
	                    .address = ADDRESS,
	                    .other_handle = w->h->a.handle,
	                    .other_key = w->h->a.key,
	                    .patience = PATIENCE};

	(void)new_session(w, &g);
	write_once(w);
	garbage_walk(&g);
	/* The control: all that there is to come has come. */
	if (g.wrong || g.ended < 238 || g.naks < 80 || g.done < 150 || w->pulls < 20 ||
	    w->datas < 20)
		hostile_problem(w->h, "%u wrong, %u PULL, %u DATA", g.wrong, w->pulls, w->datas);
	servers_live(w->h);
	neighbours_work(w->h);
	hostile_test(
		w->h,
		"every opcode and field: of %u %u were done, %u refused and %u ended as is due",
		g.tried, g.done, g.naks, g.ended);
}

void wire_garbage(struct hostile *h)
{
	struct wire w = {.h = h};

	before_hello(&w);
	hellos(&w);
	hello_headers(&w);
	behind_hello(&w);
}

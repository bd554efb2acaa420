/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over tcp: every byte of HELLO, every opcode in its place, and behind a good one every opcode and
 * every field of the header (garbage.h), with payload and without. Each has the answer or the end
 * that is due, and as many refusals are told as there were; another tenant's connection, file and
 * session do not notice. With a check switched off the walk finds that something else came.
 */
#include "tests/dataplane/garbage.h"
#include "common/crypto.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include <errno.h>
#include <sys/socket.h>

#define KIB4   4096u
#define REGION (4u << 20)

static uint8_t memory[WIRE_IO_MAX];

/* ---- the neighbour ---- */

static void neighbour(struct fx *fx, struct raw *v)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	uint8_t file[KIB4];

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	raw_open_as(fx, v, &tenant, &grant, UINT64_MAX);
	raw_connect(v);
	raw_file(v, "victim"); /* "file" is the attacker's */
	v->key = raw_register(v, FX_BASE, REGION, 3);
	memset(file, 'v', sizeof(file));
	assert_int_equal(raw_write(v, 0, file, sizeof(file), true), ROS2_OK);
}

/* Nothing came to it, nothing is held against it, and what it stored is there. */
static void is_untouched(struct raw *v)
{
	uint8_t file[KIB4];

	assert_int_equal(recv(v->fd, file, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fx_stats(v->fx, &v->session).violations, 0);
	assert_int_equal(raw_read(v, 0, file, sizeof(file), NULL), ROS2_OK);
	for (uint32_t i = 0; i < KIB4; i++)
		assert_int_equal(file[i], 'v');
	assert_int_equal(raw_write(v, 0, file, sizeof(file), false), ROS2_OK);
}

/* ---- before the proof ---- */

#define HELLO_BYTES (WIRE_HEADER_LEN + (uint32_t)sizeof(struct wire_hello))

/* A connection for the session of @c, and the HELLO that is right for it. */
static void hello_of(struct raw *c, uint8_t out[HELLO_BYTES])
{
	struct wire_header h;
	struct wire_hello hello;
	uint8_t nonce[WIRE_NONCE_LEN];

	c->fd = raw_connect_port(c->port);
	assert_true(raw_recv(c, &h, nonce, sizeof(nonce)));
	assert_int_equal(h.opcode, WIRE_CHALLENGE);
	raw_hello(c, nonce, &hello);
	h = (struct wire_header){.opcode = WIRE_HELLO, .length = raw_features};
	raw_seal(&h, sizeof(hello));
	memcpy(out, &h, sizeof(h));
	memcpy(out + sizeof(h), &hello, sizeof(hello));
}

/* ROS2_OK: WELCOME. Else what the NAK says, behind which the connection has ended. */
static enum ros2_status said_hello(struct raw *c, const uint8_t *hello, uint32_t n)
{
	uint8_t words[WIRE_WORDS_MAX];
	enum ros2_status st = ROS2_OK;
	struct wire_header h;

	raw_send_bytes(c, hello, n);
	assert_true(raw_recv(c, &h, words, sizeof(words)));
	if (h.opcode != WIRE_WELCOME) {
		assert_int_equal(h.opcode, WIRE_NAK);
		assert_true(h.payload_len > 0);
		st = (enum ros2_status)h.status;
		raw_expect_end(c);
	}
	raw_close(c);
	return st;
}

/* Of a bit of this byte, under a CRC that is right but for its own bytes. */
static enum ros2_status hello_due(uint32_t byte)
{
	if (byte >= WIRE_HEADER_LEN)
		return ROS2_UNAUTHENTICATED;
	if (byte >= offsetof(struct wire_header, header_crc))
		return ROS2_CORRUPT;
	if (byte >= offsetof(struct wire_header, reserved))
		return ROS2_PROTOCOL;
	if (byte >= offsetof(struct wire_header, status))
		return ROS2_OK;
	if (byte >= offsetof(struct wire_header, payload_len))
		return ROS2_TOO_LARGE;
	/* What HELLO does not use says nothing; its length is what it knows. */
	if (byte >= offsetof(struct wire_header, request_id))
		return ROS2_OK;
	return byte == offsetof(struct wire_header, version) ? ROS2_VERSION : ROS2_PROTOCOL;
}

static uint64_t refused(struct fx *fx)
{
	uint64_t n;

	pthread_mutex_lock(&fx->lock);
	n = fx->refused;
	pthread_mutex_unlock(&fx->lock);
	return n;
}

static void close_session(struct raw *c)
{
	struct fx_args a = {.session = c->session};

	fx_do(c->fx, FX_CLOSE_SESSION, &a);
	fx_ended(c->fx, &c->session);
	fx_forget_events(c->fx);
}

static void try_byte(struct raw *waits, uint32_t byte)
{
	enum ros2_status st, due = hello_due(byte);
	uint8_t hello[HELLO_BYTES];
	struct wire_header h;
	struct raw own;

	/* Of what may be welcome each has a session of its own. */
	if (due == ROS2_OK)
		raw_open(waits->fx, &own);
	hello_of(due == ROS2_OK ? &own : waits, hello);
	hello[byte] ^= (uint8_t)(1u << (byte % 8));
	memcpy(&h, hello, sizeof(h));
	if (byte < offsetof(struct wire_header, header_crc))
		h.header_crc = crypto_crc32c(hello, offsetof(struct wire_header, header_crc));
	memcpy(hello, &h, sizeof(h));
	st = said_hello(due == ROS2_OK ? &own : waits, hello, sizeof(hello));
	if (st != due)
		fail_msg("byte %u of HELLO: expected %s, found %s", byte, ros2_status_to_str(due),
		         ros2_status_to_str(st));
	if (due == ROS2_OK)
		close_session(&own);
}

static void hello__every_byte_of_it_counts(void **state)
{
	uint8_t hello[HELLO_BYTES];
	struct fx *fx = *state;
	struct raw victim, waits;
	uint64_t due = 0;

	neighbour(fx, &victim);
	raw_open(fx, &waits);
	for (uint32_t i = 0; i < HELLO_BYTES; i++) {
		try_byte(&waits, i);
		due += hello_due(i) != ROS2_OK;
	}
	assert_true(AWAIT(refused(fx) >= due));
	assert_int_equal(refused(fx), due);
	/* The control: its session waits for what is right. */
	hello_of(&waits, hello);
	assert_int_equal(said_hello(&waits, hello, sizeof(hello)), ROS2_OK);
	is_untouched(&victim);
	raw_close(&victim);
}

static void hello__no_other_opcode_stands_in_its_place(void **state)
{
	uint8_t hello[HELLO_BYTES];
	struct fx *fx = *state;
	struct raw victim, waits;

	neighbour(fx, &victim);
	raw_open(fx, &waits);
	for (unsigned op = 0; op < 256; op++) {
		struct wire_header h = {.opcode = (uint8_t)op};
		enum ros2_status st;

		hello_of(&waits, hello);
		raw_seal(&h, 0);
		st = said_hello(&waits, (uint8_t *)&h, sizeof(h));
		if (st != (op == WIRE_HELLO ? ROS2_TOO_LARGE : ROS2_PROTOCOL))
			fail_msg("opcode %u in place of HELLO: %s", op, ros2_status_to_str(st));
	}
	assert_true(AWAIT(refused(fx) >= 256));
	assert_int_equal(refused(fx), 256);
	hello_of(&waits, hello);
	assert_int_equal(said_hello(&waits, hello, sizeof(hello)), ROS2_OK);
	is_untouched(&victim);
	raw_close(&victim);
}

static void control__without_proofs_the_bytes_of_them_do_not_count(void **state)
{
	uint8_t hello[HELLO_BYTES];
	struct raw c;

	dp_test_switches.no_proof = true;
	raw_open(*state, &c);
	hello_of(&c, hello);
	hello[HELLO_BYTES - 1] ^= 1;
	assert_int_equal(said_hello(&c, hello, sizeof(hello)), ROS2_OK);
}

/* ---- every opcode and field ---- */

struct attack {
	struct fx *fx;
	struct raw t, victim;
	struct wire_header out; /* the READ or WRITE that waits for its answer; opcode 0: none */
	unsigned pulls, datas, astray;
	bool stands;
};

static void send_message(void *arg, const struct wire_header *h)
{
	struct attack *a = arg;

	if (h->opcode == WIRE_READ || h->opcode == WIRE_WRITE)
		a->out = *h;
	raw_send_bytes(&a->t, h, sizeof(*h));
	if (h->payload_len <= WIRE_INLINE_MAX)
		raw_send_bytes(&a->t, memory, h->payload_len);
}

/* What moves bytes names what was asked for: the request, and the memory that is its own. */
static bool is_of_the_request(const struct attack *a, const struct wire_header *in,
                              enum wire_opcode op)
{
	return a->out.opcode == op && in->request_id == a->out.request_id && in->key == a->t.key &&
	       in->generation == a->t.generation && in->address == FX_BASE && in->offset == 0 &&
	       in->length <= a->out.length;
}

static void answer_pull(struct attack *a, const struct wire_header *in)
{
	struct wire_header h = *in;

	a->pulls++;
	a->astray += !is_of_the_request(a, in, WIRE_WRITE) || in->length != a->out.length;
	h.opcode = WIRE_DATA;
	raw_send(&a->t, &h, memory, h.length);
}

static bool take_message(void *arg, struct wire_header *h)
{
	struct attack *a = arg;

	while (raw_recv(&a->t, h, memory, sizeof(memory))) {
		if (h->opcode == WIRE_PULL) {
			answer_pull(a, h);
		} else if (h->opcode == WIRE_DATA) {
			a->datas++;
			a->astray += !is_of_the_request(a, h, WIRE_READ);
		} else {
			a->astray += h->opcode == WIRE_NAK && !h->payload_len;
			if (h->request_id == a->out.request_id && h->opcode != WIRE_PONG)
				a->out.opcode = 0;
			return true;
		}
	}
	return false;
}

static struct wire_header invite(void *arg)
{
	struct attack *a = arg;
	struct wire_header h = raw_header(&a->t, WIRE_WRITE, 0, FX_BASE, KIB4), in;

	raw_send(&a->t, &h, NULL, 0);
	assert_true(raw_recv(&a->t, &in, memory, sizeof(memory)));
	assert_int_equal(in.opcode, WIRE_PULL);
	assert_int_equal(in.request_id, h.request_id);
	in.opcode = WIRE_DATA;
	in.payload_len = in.length;
	return in;
}

static enum ros2_status new_session(void *arg, struct garbage *g)
{
	struct attack *a = arg;
	enum ros2_status st = ROS2_OK;

	if (a->stands) {
		struct fx_args close = {.session = a->t.session};

		fx_do(a->fx, FX_CLOSE_SESSION, &close);
		st = fx_ended(a->fx, &a->t.session).status;
		raw_close(&a->t);
	}
	fx_forget_events(a->fx);
	raw_ready(a->fx, &a->t);
	a->out.opcode = 0;
	a->stands = true;
	g->handle = a->t.handle;
	g->key = a->t.key;
	g->generation = a->t.generation;
	g->address = FX_BASE;
	return st;
}

static void begin(struct fx *fx, struct attack *a, struct garbage *g)
{
	*a = (struct attack){.fx = fx};
	neighbour(fx, &a->victim);
	*g = (struct garbage){.arg = a,
	                      .send = send_message,
	                      .take = take_message,
	                      .renew = new_session,
	                      .inline_max = WIRE_INLINE_MAX,
	                      .invite = invite,
	                      .other_handle = a->victim.handle,
	                      .other_key = a->victim.key};
	(void)new_session(a, g);
	/* There is something to read. */
	assert_int_equal(raw_write(&a->t, 0, memory, 65536, false), ROS2_OK);
}

static void end(struct attack *a)
{
	raw_close(&a->t);
	raw_close(&a->victim);
}

static void walk__every_opcode_and_field_over_tcp_has_what_is_due(void **state)
{
	struct fx *fx = *state;
	struct attack a;
	struct garbage g;

	begin(fx, &a, &g);
	garbage_walk(&g);
	assert_int_equal(g.wrong, 0);
	assert_int_equal(a.astray, 0);
	assert_true(g.ended > 238 && g.naks > 80 && g.done > 150);
	assert_true(a.pulls > 20 && a.datas > 20);
	/* Each that was answered so is told, and no other. */
	assert_true(AWAIT(fx_violations(fx) >= g.naks));
	assert_int_equal(fx_violations(fx), g.naks);
	is_untouched(&a.victim);
	end(&a);
}

static unsigned walked(struct fx *fx, enum wire_opcode op, const char *field)
{
	struct attack a;
	struct garbage g;

	begin(fx, &a, &g);
	garbage_walk_some(&g, op, field);
	end(&a);
	return g.wrong + a.astray;
}

static void control__without_its_check_a_field_is_found(void **state)
{
	struct fx *fx = *state;

	assert_int_equal(walked(fx, WIRE_READ, "key"), 0);
	dp_test_switches.no_lease_check = true;
	assert_true(walked(fx, WIRE_READ, "key") > 0);
	dp_test_switches.no_lease_check = false;
	assert_int_equal(walked(fx, WIRE_FLUSH, "handle"), 0);
	dp_test_switches.no_handle_check = true;
	assert_true(walked(fx, WIRE_FLUSH, "handle") > 0);
	dp_test_switches.no_handle_check = false;
	assert_int_equal(walked(fx, WIRE_DATA, "key"), 0);
	dp_test_switches.no_pull_check = true;
	assert_true(walked(fx, WIRE_DATA, "key") > 0);
}

static int teardown(void **state)
{
	dp_test_switches = (struct dp_test_switches){0};
	return fx_teardown(state);
}

#define T(f) cmocka_unit_test_setup_teardown(f, fx_setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(hello__every_byte_of_it_counts),
		T(hello__no_other_opcode_stands_in_its_place),
		T(control__without_proofs_the_bytes_of_them_do_not_count),
		T(walk__every_opcode_and_field_over_tcp_has_what_is_due),
		T(control__without_its_check_a_field_is_found),
	};

	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

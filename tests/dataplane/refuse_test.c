/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant must not be able to do over the data port: each attempt is a raw message, and each
 * is answered with its named error, counted, and leaves the victim untouched.
 */
#include "common/crypto.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/fixture.h"
#include <arpa/inet.h>
#include <sys/socket.h>

static uint8_t buf[1u << 20];

/* ---- HELLO ---- */

struct hello_try {
	struct raw c;
	uint8_t nonce[WIRE_NONCE_LEN];
	struct wire_hello hello;
};

static void begin_hello(struct fx *fx, struct hello_try *t)
{
	struct wire_header h;

	raw_open(fx, &t->c);
	t->c.fd = raw_connect_port(t->c.port);
	assert_true(raw_recv(&t->c, &h, t->nonce, sizeof(t->nonce)));
	raw_hello(&t->c, t->nonce, &t->hello);
}

static void expect_refused(struct fx *fx, struct hello_try *t)
{
	struct wire_header h = {.opcode = WIRE_HELLO};
	char words[WIRE_WORDS_MAX];

	raw_send(&t->c, &h, &t->hello, sizeof(t->hello));
	assert_true(raw_recv(&t->c, &h, words, sizeof(words)));
	assert_int_equal(h.opcode, WIRE_NAK);
	assert_int_equal(h.status, ROS2_UNAUTHENTICATED);
	raw_expect_end(&t->c);
	raw_close(&t->c);
	fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_UNAUTHENTICATED);
}

static void hello__with_a_wrong_proof_is_refused_and_does_not_use_the_secret_up(void **state)
{
	struct hello_try t;
	struct raw again;

	begin_hello(*state, &t);
	t.hello.proof[31] ^= 1;
	again = t.c;
	expect_refused(*state, &t);
	raw_connect(&again);
	raw_close(&again);
}

static void hello__of_a_foreign_session_is_refused(void **state)
{
	struct hello_try t, other;

	begin_hello(*state, &t);
	begin_hello(*state, &other);
	/* B's session id with A's secret. */
	memcpy(t.hello.session_uid, other.c.session.b, 16);
	expect_refused(*state, &t);
	raw_close(&other.c);
}

static void hello__cannot_be_replayed(void **state)
{
	struct hello_try t;
	struct raw first;
	struct wire_header h = {.opcode = WIRE_HELLO};

	begin_hello(*state, &t);
	first = t.c;
	raw_send(&first, &h, &t.hello, sizeof(t.hello));
	assert_true(raw_recv(&first, &h, buf, sizeof(buf)));
	assert_int_equal(h.opcode, WIRE_WELCOME);
	/* The same bytes on a new connection: another nonce, and the secret is gone. */
	t.c.fd = raw_connect_port(t.c.port);
	assert_true(raw_recv(&t.c, &h, t.nonce, sizeof(t.nonce)));
	expect_refused(*state, &t);
	/* Even a fresh proof with the right secret. */
	t.c.fd = raw_connect_port(t.c.port);
	assert_true(raw_recv(&t.c, &h, t.nonce, sizeof(t.nonce)));
	raw_hello(&t.c, t.nonce, &t.hello);
	expect_refused(*state, &t);
	raw_close(&first);
}

static void hello__is_not_awaited_longer_than_ten_seconds(void **state)
{
	struct fx *fx = *state;
	struct hello_try t;

	begin_hello(fx, &t);
	clock_ahead_ns += 10 * NS_PER_S; /* which a HELLO may take */
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_TIMEOUT);
	fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_TIMEOUT);
	/* The idle connection is gone too, and a new one finds no session. */
	raw_expect_end(&t.c);
	raw_close(&t.c);
}

static void preauth__a_flood_of_idle_connections_keeps_nobody_out(void **state)
{
	struct raw c;
	int idle[150];

	raw_open(*state, &c);
	for (int i = 0; i < 150; i++)
		idle[i] = raw_connect_port(c.port);
	raw_connect(&c);
	for (int i = 0; i < 150; i++)
		close(idle[i]);
	raw_close(&c);
}

/* What an idle connection hears: its challenge, then (@status not 0) why it must go. */
static void expect_farewell(int fd, enum ros2_status status, const char *words)
{
	struct wire_header h;
	char said[WIRE_WORDS_MAX + 1] = "";

	assert_int_equal(recv(fd, &h, sizeof(h), MSG_WAITALL), sizeof(h));
	assert_int_equal(h.opcode, WIRE_CHALLENGE);
	assert_int_equal(recv(fd, buf, h.payload_len, MSG_WAITALL), h.payload_len);
	assert_int_equal(recv(fd, &h, sizeof(h), MSG_WAITALL), sizeof(h));
	assert_int_equal(h.opcode, WIRE_NAK);
	assert_int_equal(h.status, status);
	assert_int_equal(recv(fd, said, h.payload_len, MSG_WAITALL), h.payload_len);
	if (!strstr(said, words))
		fail_msg("expected \"%s\", found \"%s\"", words, said);
}

static void preauth__who_loses_its_place_hears_which_cap_it_was(void **state)
{
	struct fx *fx = *state;
	struct dp_event ev;
	struct raw c;
	int idle[65];

	raw_open(fx, &c);
	for (int i = 0; i < 64; i++)
		idle[i] = raw_connect_port(c.port);
	/* Control: as many as there may be, and nobody was refused. */
	assert_int_equal(recv(idle[63], buf, WIRE_HEADER_LEN, MSG_WAITALL), WIRE_HEADER_LEN);
	assert_int_equal(fx_count_events(fx, DP_EVENT_HELLO_REFUSED, -1), 0);
	idle[64] = raw_connect_port(c.port);
	expect_farewell(idle[0], ROS2_LIMIT, "--unproved-connections: an address has at most 64");
	ev = fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_LIMIT);
	assert_non_null(strstr(ev.words, "127.0.0.1:"));
	assert_non_null(strstr(ev.words, ": --unproved-connections: "));
	assert_int_equal(ev.count, 1);
	for (int i = 0; i < 65; i++)
		close(idle[i]);
	raw_close(&c);
}

static int connect_from(uint32_t address, uint16_t port)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
	struct sockaddr_in to = {.sin_family = AF_INET,
	                         .sin_port = htons(port),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {.tv_sec = AWAIT_S};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static void preauth__a_flood_from_one_address_costs_no_other_its_slow_hello(void **state)
{
	uint8_t nonce[WIRE_NONCE_LEN];
	struct wire_hello hello;
	struct wire_header h;
	int flood[200];
	struct raw c;

	raw_open(*state, &c);
	c.fd = connect_from(INADDR_LOOPBACK + 1, c.port);
	assert_true(raw_recv(&c, &h, nonce, sizeof(nonce)));
	for (int i = 0; i < 200; i++)
		flood[i] = raw_connect_port(c.port);
	/* The last of the flood was accepted when its challenge is there. */
	assert_int_equal(recv(flood[199], &h, sizeof(h), MSG_WAITALL), sizeof(h));
	raw_hello(&c, nonce, &hello);
	h = (struct wire_header){.opcode = WIRE_HELLO};
	raw_send(&c, &h, &hello, sizeof(hello));
	assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
	assert_int_equal(h.opcode, WIRE_WELCOME);
	for (int i = 0; i < 200; i++)
		close(flood[i]);
	raw_close(&c);
}

static int setup_two_per_address(void **state)
{
	int r;

	fx_unproved_per_address = 2;
	r = fx_setup(state);
	fx_unproved_per_address = 0;
	return r;
}

/* Of one address only as many as it may have, while there is room for all others. */
static void preauth__an_address_has_its_own_cap(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	int own[3], other;

	raw_open(fx, &c);
	other = connect_from(INADDR_LOOPBACK + 1, c.port);
	for (int i = 0; i < 3; i++)
		own[i] = raw_connect_port(c.port);
	expect_farewell(own[0], ROS2_LIMIT, "--unproved-connections: an address has at most 2");
	assert_int_equal(recv(other, buf, WIRE_HEADER_LEN + WIRE_NONCE_LEN, MSG_WAITALL),
	                 WIRE_HEADER_LEN + WIRE_NONCE_LEN);
	assert_true(recv(other, buf, 1, MSG_DONTWAIT) < 0);
	for (int i = 0; i < 3; i++)
		close(own[i]);
	close(other);
	raw_close(&c);
}

static void preauth__garbage_is_refused_at_once(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;
	uint8_t nonce[32];

	raw_open(fx, &c);
	c.fd = raw_connect_port(c.port);
	assert_true(raw_recv(&c, &h, nonce, sizeof(nonce)));
	memset(buf, 'G', 64);
	raw_send_bytes(&c, buf, 64);
	raw_expect_end(&c);
	raw_close(&c);
	fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_PROTOCOL);
}

/* ---- keys and handles ---- */

static void request__with_a_foreign_key_is_refused(void **state)
{
	struct fx *fx = *state;
	struct raw a, b;
	struct wire_header h;
	struct ros2_uid beta = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &beta);
	assert_int_equal(fx_grant(fx, &grant, &beta, UINT64_MAX), 0);
	raw_ready(fx, &a);
	raw_open_as(fx, &b, &beta, &grant, UINT64_MAX);
	raw_connect(&b);
	raw_file(&b, "file");
	b.key = a.key;
	h = raw_header(&b, WIRE_READ, 0, FX_BASE, 4096);
	raw_expect_nak(&b, &h, ROS2_BAD_KEY);
	/* Two sessions of one tenant are two connections. */
	raw_close(&b);
	raw_open(fx, &b);
	raw_connect(&b);
	raw_file(&b, "file");
	b.key = a.key;
	h = raw_header(&b, WIRE_READ, 0, FX_BASE, 4096);
	raw_expect_nak(&b, &h, ROS2_BAD_KEY);
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_BAD_KEY);
	assert_int_equal(raw_read(&a, 0, buf, 4096, NULL), ROS2_OK);
	raw_close(&a);
	raw_close(&b);
}

static void request__with_a_stale_key_is_refused(void **state)
{
	struct raw c;
	struct wire_header h;
	struct fx_args a;

	raw_ready(*state, &c);
	a = (struct fx_args){.session = c.session, .key = c.key};
	assert_int_equal(fx_do(c.fx, FX_DEREGISTER, &a).status, ROS2_OK);
	assert_int_equal(fx_do(c.fx, FX_DEREGISTER, &a).status, ROS2_BAD_KEY);
	assert_int_equal(fx_do(c.fx, FX_RENEW, &a).status, ROS2_BAD_KEY);
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, 4096);
	raw_expect_nak(&c, &h, ROS2_BAD_KEY);
	h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 65536);
	raw_expect_nak(&c, &h, ROS2_BAD_KEY);
	raw_close(&c);
}

static void request__with_a_foreign_or_closed_handle_is_refused(void **state)
{
	struct raw a, b;
	struct wire_header h;
	struct fx_args args;

	raw_ready(*state, &a);
	raw_ready(*state, &b);
	h = raw_header(&b, WIRE_READ, 0, FX_BASE, 4096);
	h.handle = a.handle;
	raw_expect_nak(&b, &h, ROS2_BAD_HANDLE);
	args = (struct fx_args){.session = a.session, .a = a.handle};
	assert_int_equal(fx_do(a.fx, FX_CLOSE, &args).status, ROS2_OK);
	h = raw_header(&a, WIRE_READ, 0, FX_BASE, 4096);
	raw_expect_nak(&a, &h, ROS2_BAD_HANDLE);
	/* Nor when another file took its place. */
	h.handle = a.handle;
	raw_file(&a, "second");
	h.request_id++;
	raw_expect_nak(&a, &h, ROS2_BAD_HANDLE);
	/* And the control plane of another session. */
	args = (struct fx_args){.session = a.session, .a = b.handle};
	assert_int_equal(fx_do(a.fx, FX_FSTAT, &args).status, ROS2_BAD_HANDLE);
	raw_close(&a);
	raw_close(&b);
}

static void request__outside_the_leased_range_is_refused(void **state)
{
	static const struct {
		uint64_t address;
		uint32_t length;
	} bad[] = {{FX_BASE - 1, 4096},
	           {FX_BASE + (4u << 20), 1},
	           {FX_BASE + (4u << 20) - 4095, 4096},
	           {UINT64_MAX - 10, 4096},
	           {0, 4096}};
	struct raw c;
	struct wire_header h;

	raw_ready(*state, &c);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		h = raw_header(&c, WIRE_READ, 0, bad[i].address, bad[i].length);
		raw_expect_nak(&c, &h, ROS2_OUT_OF_RANGE);
	}
	h = raw_header(&c, WIRE_READ, INT64_MAX, FX_BASE, 1);
	raw_expect_nak(&c, &h, ROS2_OUT_OF_RANGE);
	h = raw_header(&c, WIRE_READ, UINT64_MAX - 100, FX_BASE, 4096);
	raw_expect_nak(&c, &h, ROS2_OUT_OF_RANGE);
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, WIRE_IO_MAX + 1);
	raw_expect_nak(&c, &h, ROS2_TOO_LARGE);
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, UINT32_MAX);
	raw_expect_nak(&c, &h, ROS2_TOO_LARGE);
	raw_close(&c);
}

static void request__against_the_access_of_region_or_handle_is_refused(void **state)
{
	struct raw c;
	struct wire_header h;
	struct fx_args a;
	struct dp_result res;

	raw_ready(*state, &c);
	c.key = raw_register(&c, FX_BASE, 65536, 1); /* the agent may only read it */
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, 4096);
	raw_expect_nak(&c, &h, ROS2_ACCESS);
	c.key = raw_register(&c, FX_BASE, 65536, 2); /* the agent may only write it */
	h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 65536);
	raw_expect_nak(&c, &h, ROS2_ACCESS);
	a = (struct fx_args){
		.session = c.session, .mount = 1, .path = "file", .flags = ENGINE_READ};
	res = fx_do(c.fx, FX_OPEN, &a);
	assert_int_equal(res.status, ROS2_OK);
	c.handle = res.open.handle;
	c.key = raw_register(&c, FX_BASE, 65536, 3);
	h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 65536);
	raw_expect_nak(&c, &h, ROS2_ACCESS);
	raw_close(&c);
}

/* ---- framing, credits, violence ---- */

static void request__over_the_credits_or_with_an_id_in_flight_is_a_violation(void **state)
{
	struct raw c;
	struct wire_header h;
	uint32_t naks = 0, pulls = 0;

	raw_ready(*state, &c);
	/* Writes that are never sent stay in flight. */
	for (int i = 0; i < 130; i++) {
		h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 32768);
		raw_send(&c, &h, NULL, 0);
	}
	h = raw_header(&c, WIRE_PING, 0, 0, 0);
	raw_send(&c, &h, NULL, 0);
	do {
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
		if (h.opcode == WIRE_NAK) {
			assert_int_equal(h.status, ROS2_LIMIT);
			buf[h.payload_len] = '\0';
			assert_string_equal(buf, "more than 128 requests in flight (fixed)");
			naks++;
		}
		pulls += h.opcode == WIRE_PULL;
	} while (h.opcode != WIRE_PONG);
	assert_int_equal(naks, 2);
	assert_true(pulls <= 128);
	raw_close(&c);
	raw_ready(*state, &c);
	h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 32768);
	raw_send(&c, &h, NULL, 0);
	raw_send(&c, &h, NULL, 0);
	do
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
	while (h.opcode != WIRE_NAK);
	assert_int_equal(h.status, ROS2_INVALID);
	raw_close(&c);
}

static void expect_protocol_end(void **state, void (*spoil)(struct raw *c, struct wire_header *h))
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;

	raw_ready(fx, &c);
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, 4096);
	h.magic = WIRE_MAGIC;
	h.version = WIRE_VERSION;
	spoil(&c, &h);
	raw_expect_end(&c);
	raw_close(&c);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
}

static void send_sealed(struct raw *c, struct wire_header *h)
{
	h->header_crc = crypto_crc32c(h, 60);
	raw_send_bytes(c, h, sizeof(*h));
}

static void bad_magic(struct raw *c, struct wire_header *h)
{
	h->magic++;
	send_sealed(c, h);
}
static void bad_version(struct raw *c, struct wire_header *h)
{
	h->version = 2;
	send_sealed(c, h);
}
static void bad_crc(struct raw *c, struct wire_header *h)
{
	h->header_crc = crypto_crc32c(h, 60) ^ 1;
	raw_send_bytes(c, h, sizeof(*h));
}
static void bad_flag(struct raw *c, struct wire_header *h)
{
	h->flags = WIRE_F_TLS;
	send_sealed(c, h);
}
static void bad_opcode(struct raw *c, struct wire_header *h)
{
	h->opcode = WIRE_COMPLETE;
	send_sealed(c, h);
}
static void bad_payload_len(struct raw *c, struct wire_header *h)
{
	h->payload_len = UINT32_MAX;
	send_sealed(c, h);
}
static void unasked_data(struct raw *c, struct wire_header *h)
{
	h->opcode = WIRE_DATA;
	h->payload_len = h->length;
	send_sealed(c, h);
	raw_send_bytes(c, buf, h->length);
}
static void second_hello(struct raw *c, struct wire_header *h)
{
	h->opcode = WIRE_HELLO;
	h->payload_len = sizeof(struct wire_hello);
	send_sealed(c, h);
	raw_send_bytes(c, buf, sizeof(struct wire_hello));
}
static void noise(struct raw *c, struct wire_header *h)
{
	crypto_random(buf, 65536);
	raw_send_bytes(c, buf, 65536);
}

static void framing__that_is_malformed_ends_the_connection(void **state)
{
	static void (*const spoils[])(struct raw * c, struct wire_header * h) = {
		bad_magic,       bad_version,  bad_crc,      bad_flag, bad_opcode,
		bad_payload_len, unasked_data, second_hello, noise};

	for (size_t i = 0; i < ARRAY_SIZE(spoils); i++)
		expect_protocol_end(state, spoils[i]);
}

static void message__of_another_transport_ends_the_connection_by_its_name(void **state)
{
	static const struct {
		enum wire_opcode op;
		uint32_t payload_len;
		const char *words;
	} messages[] = {{WIRE_WINDOW, 0, "WINDOW: "},
	                {WIRE_MAPPED, 0, "MAPPED: "},
	                {WIRE_HELLO, sizeof(struct wire_hello), "a second HELLO"}};
	struct fx *fx = *state;

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		struct wire_header h = {.opcode = (uint8_t)messages[i].op};
		struct raw c;

		raw_ready(fx, &c);
		raw_send(&c, &h, buf, messages[i].payload_len);
		raw_expect_end(&c);
		raw_close(&c);
		assert_non_null(strstr(fx_ended(fx, &c.session).words, messages[i].words));
	}
}

/* One field of it says something else than the PULL did. */
static void lie(struct wire_header *data, int field)
{
	switch (field) {
	case 0:
		data->request_id++;
		break;
	case 1:
		data->key ^= 1;
		break;
	case 2:
		data->address++;
		break;
	case 3:
		data->generation++;
		break;
	case 4:
		data->offset = 1;
		break;
	case 5:
		data->length--;
		break;
	}
}

static void data__that_answers_another_pull_ends_the_connection(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h, pull;

	for (int field = 0; field < 7; field++) {
		raw_ready(fx, &c);
		h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 65536);
		raw_send(&c, &h, NULL, 0);
		assert_true(raw_recv(&c, &pull, buf, sizeof(buf)));
		assert_int_equal(pull.opcode, WIRE_PULL);
		pull.opcode = WIRE_DATA;
		lie(&pull, field);
		raw_send(&c, &pull, buf, pull.length);
		if (field == 6) { /* the control: none does */
			assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
			assert_int_equal(h.opcode, WIRE_COMPLETE);
			assert_int_equal(h.status, ROS2_OK);
			raw_close(&c);
			continue;
		}
		raw_expect_end(&c);
		raw_close(&c);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
	}
}

static void violations__past_the_limit_end_the_session(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;
	struct dp_event ev;

	fx->limits.violations_limit = 5;
	fx->limits.violations_kill = true;
	fx_limits(fx);
	raw_ready(fx, &c);
	for (int i = 0; i < 4; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE - 1, 1);
		raw_expect_nak(&c, &h, ROS2_OUT_OF_RANGE);
	}
	h = raw_header(&c, WIRE_READ, 0, FX_BASE - 1, 1);
	raw_send(&c, &h, NULL, 0);
	raw_expect_end(&c);
	raw_close(&c);
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_VIOLATIONS);
	assert_int_equal(ev.stats.violations, 5);
	assert_string_equal(ev.words, "5 violations, rkeys.violations.limit is 5");
}

static void violations__past_the_limit_are_only_counted_when_the_policy_says_log(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;

	fx->limits.violations_limit = 5;
	fx->limits.violations_kill = false;
	fx_limits(fx);
	raw_ready(fx, &c);
	for (int i = 0; i < 20; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE - 1, 1);
		raw_expect_nak(&c, &h, ROS2_OUT_OF_RANGE);
	}
	assert_int_equal(fx_stats(fx, &c.session).violations, 20);
	raw_close(&c);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
}

static void violations__are_reported_folded_and_all_counted(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;

	raw_ready(fx, &c);
	for (int i = 0; i < 2000; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE - 1, 1);
		raw_send(&c, &h, NULL, 0);
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
	}
	assert_int_equal(fx_stats(fx, &c.session).violations, 2000);
	raw_close(&c);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	assert_int_equal(fx->violations, 2000);
}

static void session__that_does_not_read_stalls_only_itself(void **state)
{
	struct fx *fx = *state;
	struct raw slow, quick;
	struct wire_header h;

	raw_ready(fx, &slow);
	memset(buf, 5, sizeof(buf));
	assert_int_equal(raw_write(&slow, 0, buf, sizeof(buf), false), ROS2_OK);
	for (int i = 0; i < 128; i++) {
		h = raw_header(&slow, WIRE_READ, 0, FX_BASE, WIRE_IO_MAX);
		raw_send(&slow, &h, NULL, 0);
	}
	for (int i = 0; i < 4; i++) {
		/* Some of these are on the same reactor. */
		raw_ready(fx, &quick);
		raw_file(&quick, "other");
		for (int k = 0; k < 50; k++) {
			assert_int_equal(raw_write(&quick, 0, buf, 65536, false), ROS2_OK);
			assert_int_equal(raw_read(&quick, 0, buf, 65536, NULL), ROS2_OK);
		}
		raw_close(&quick);
	}
	/* And it gets all of its own once it reads. */
	for (int n = 0; n < 128;) {
		assert_true(raw_recv(&slow, &h, buf, sizeof(buf)));
		n += h.opcode == WIRE_COMPLETE;
	}
	raw_close(&slow);
}

static void session__half_open_or_cut_in_the_middle_ends_cleanly(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	struct wire_header h;

	raw_ready(fx, &c);
	h = raw_header(&c, WIRE_WRITE, 0, FX_BASE, 16384);
	h.flags = WIRE_F_INLINE;
	h.magic = WIRE_MAGIC;
	h.version = WIRE_VERSION;
	h.payload_len = 16384;
	h.header_crc = crypto_crc32c(&h, 60);
	raw_send_bytes(&c, &h, sizeof(h));
	raw_send_bytes(&c, buf, 1000);
	shutdown(c.fd, SHUT_WR);
	raw_expect_end(&c);
	raw_close(&c);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	assert_int_equal(fx_lease_count(fx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FX_TEST(hello__with_a_wrong_proof_is_refused_and_does_not_use_the_secret_up),
		FX_TEST(hello__of_a_foreign_session_is_refused),
		FX_TEST(hello__cannot_be_replayed),
		FX_TEST(hello__is_not_awaited_longer_than_ten_seconds),
		FX_TEST(preauth__a_flood_of_idle_connections_keeps_nobody_out),
		FX_TEST(preauth__a_flood_from_one_address_costs_no_other_its_slow_hello),
		FX_TEST(preauth__who_loses_its_place_hears_which_cap_it_was),
		cmocka_unit_test_setup_teardown(preauth__an_address_has_its_own_cap,
	                                        setup_two_per_address, fx_teardown),
		FX_TEST(preauth__garbage_is_refused_at_once),
		FX_TEST(request__with_a_foreign_key_is_refused),
		FX_TEST(request__with_a_stale_key_is_refused),
		FX_TEST(request__with_a_foreign_or_closed_handle_is_refused),
		FX_TEST(request__outside_the_leased_range_is_refused),
		FX_TEST(request__against_the_access_of_region_or_handle_is_refused),
		FX_TEST(request__over_the_credits_or_with_an_id_in_flight_is_a_violation),
		FX_TEST(framing__that_is_malformed_ends_the_connection),
		FX_TEST(message__of_another_transport_ends_the_connection_by_its_name),
		FX_TEST(data__that_answers_another_pull_ends_the_connection),
		FX_TEST(violations__past_the_limit_end_the_session),
		FX_TEST(violations__past_the_limit_are_only_counted_when_the_policy_says_log),
		FX_TEST(violations__are_reported_folded_and_all_counted),
		FX_TEST(session__that_does_not_read_stalls_only_itself),
		FX_TEST(session__half_open_or_cut_in_the_middle_ends_cleanly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

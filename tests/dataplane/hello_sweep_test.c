/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of a reactor where sessions are not proved yet: accepting, CHALLENGE, HELLO and
 * WELCOME, watching a connection, waiting; and a tenant that vanishes at each byte. A session that
 * was not reached can still be proved; one that was ends; one beside it goes on, where the fault is
 * not its own while it lasts; no descriptor, slot or lease is left.
 */
#include "common/crypto.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define SMALL 4096u
#define BIG   65536u
#define HELLO (WIRE_HEADER_LEN + sizeof(struct wire_hello))

static uint8_t out[BIG], in[BIG];

static enum ros2_status some_work(struct raw *c)
{
	enum ros2_status st = raw_write(c, 0, out, SMALL, true);
	uint32_t done = 0;

	if (st == ROS2_OK)
		st = raw_write(c, 0, out, BIG, false);
	memset(in, 0, sizeof(in));
	if (st == ROS2_OK)
		st = raw_read(c, 0, in, BIG, &done);
	if (st == ROS2_OK) {
		assert_int_equal(done, BIG);
		assert_memory_equal(in, out, BIG);
	}
	return st;
}

static void works(struct raw *c)
{
	assert_int_equal(some_work(c), ROS2_OK);
}

/* False: refused, or the connection ended before the session was proved. */
static bool shake_hands(struct raw *c)
{
	uint8_t nonce[WIRE_NONCE_LEN];
	uint8_t answer[WIRE_WORDS_MAX];
	struct wire_hello hello;
	struct wire_header h;

	if (!raw_recv(c, &h, nonce, sizeof(nonce)))
		return false;
	assert_int_equal(h.opcode, WIRE_CHALLENGE);
	raw_hello(c, nonce, &hello);
	h = (struct wire_header){.opcode = WIRE_HELLO};
	raw_send(c, &h, &hello, sizeof(hello));
	if (!raw_recv(c, &h, answer, sizeof(answer)))
		return false;
	assert_true(h.opcode == WIRE_WELCOME || h.opcode == WIRE_NAK);
	return h.opcode == WIRE_WELCOME;
}

static enum ros2_status close_session(struct fx *fx, struct raw *c)
{
	struct fx_args a = {.session = c->session};
	enum ros2_status st = fx_do(fx, FX_CLOSE_SESSION, &a).status;

	raw_close(c);
	assert_true(st == ROS2_OK || st == ROS2_CLOSED || st == ROS2_BAD_SESSION ||
	            st == ROS2_INTERNAL);
	return st;
}

static void connect_again(struct raw *c)
{
	raw_close(c);
	c->fd = raw_connect_port(c->port);
}

/* A session that was refused is good for another try, or it has ended. */
static void prove_again(struct fx *fx, struct raw *c)
{
	connect_again(c);
	if (shake_hands(c))
		return;
	assert_true(close_session(fx, c) != ROS2_OK);
	raw_open(fx, c);
	connect_again(c);
	assert_true(shake_hands(c));
}

static void use(struct raw *c)
{
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, 4u << 20, 3);
	works(c);
}

/* Nothing is left but the neighbour's. */
static void at_rest(struct fx *fx, unsigned fds)
{
	fx_no_slots(fx);
	assert_int_equal(fx_lease_count(fx), 1);
	assert_true(sweep_fds_back(fds));
}

static unsigned begin(struct fx *fx, struct raw *neighbour)
{
	for (size_t i = 0; i < BIG; i++)
		out[i] = (uint8_t)(i * 7 + (i >> 8));
	raw_ready(fx, neighbour);
	works(neighbour);
	return sweep_fds();
}

enum effect {
	PASSES, /* the session is proved all the same */
	IS_SHARED /* the neighbour's calls fail as well */,
	IS_OWN,
};

static void sweep_proofs(struct fx *fx, struct sweep s, enum effect effect)
{
	struct raw neighbour, c;
	unsigned fds = begin(fx, &neighbour);

	s.thread = "reactor";
	s.most = effect == IS_OWN ? 0 : 40;
	for (;;) {
		bool proved;

		raw_open(fx, &c);
		if (!sweep_next(&s))
			break;
		c.fd = raw_connect_port(c.port);
		proved = shake_hands(&c);
		if (effect == IS_OWN)
			works(&neighbour);
		sweep_off();
		assert_true(proved || (sweep_fired() && effect != PASSES));
		if (!proved)
			prove_again(fx, &c);
		use(&c);
		close_session(fx, &c);
		works(&neighbour);
		at_rest(fx, fds);
	}
	close_session(fx, &c);
	raw_close(&neighbour);
	assert_true(s.points >= 2);
}

#define SWEEP(name, k, e, effect)                                                                  \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_proofs(*state, (struct sweep){.kind = k, .error = e}, effect);               \
	}
SWEEP(proof__goes_on_after_eagain_of_a_receive, SWEEP_RECV, EAGAIN, PASSES)
SWEEP(proof__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR, PASSES)
SWEEP(proof__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT, PASSES)
SWEEP(proof__may_be_tried_again_after_a_receive_that_was_reset, SWEEP_RECV, ECONNRESET, IS_SHARED)
/* A CHALLENGE that does not fit the buffer of a new socket ends the connection. */
SWEEP(proof__may_be_tried_again_after_eagain_of_a_send, SWEEP_SEND, EAGAIN, IS_SHARED)
SWEEP(proof__may_be_tried_again_after_sends_of_one_byte, SWEEP_SEND, SWEEP_SHORT, IS_SHARED)
SWEEP(proof__may_be_tried_again_after_a_send_that_was_reset, SWEEP_SEND, ECONNRESET, IS_SHARED)
SWEEP(proof__may_be_tried_again_after_a_send_without_buffers, SWEEP_SEND, ENOBUFS, IS_SHARED)
SWEEP(proof__may_be_tried_again_without_memory_in_epoll, SWEEP_EPOLL_CTL, ENOMEM, IS_OWN)
SWEEP(proof__may_be_tried_again_without_room_in_epoll, SWEEP_EPOLL_CTL, ENOSPC, IS_OWN)
SWEEP(proof__goes_on_after_interrupted_waits, SWEEP_WAIT, EINTR, PASSES)

/* ---- accepting ---- */

static void until_fired(void)
{
	AWAIT(sweep_fired());
	assert_true(sweep_fired());
}

/* For 100 ms: one try per tick of 20 ms, and what was under way. */
static void rests(void)
{
	uint32_t before = sweep_calls();

	/* time: what must not happen, a reactor that tries without a pause */
	usleep(100000);
	assert_true(sweep_calls() - before < 20);
}

static void sweep_accepts(struct fx *fx, int error, bool pauses)
{
	struct sweep s = {.kind = SWEEP_ACCEPT, .error = error, .thread = "reactor"};
	struct raw neighbour, c;
	unsigned fds = begin(fx, &neighbour);

	for (;;) {
		bool shut;

		raw_open(fx, &c);
		if (!sweep_next(&s))
			break;
		shut = s.persistent && s.at == 1;
		c.fd = raw_connect_port(c.port);
		if (!shut)
			assert_true(shake_hands(&c));
		else
			until_fired();
		if (shut && pauses)
			rests();
		works(&neighbour);
		sweep_off();
		/* It was only kept waiting. */
		if (shut)
			assert_true(shake_hands(&c));
		use(&c);
		close_session(fx, &c);
		at_rest(fx, fds);
	}
	close_session(fx, &c);
	raw_close(&neighbour);
	assert_true(s.points >= 2);
}

#define ACCEPTS(name, e, pauses)                                                                   \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_accepts(*state, e, pauses);                                                  \
	}
ACCEPTS(accept__waits_while_the_process_has_no_descriptor, EMFILE, true)
ACCEPTS(accept__waits_while_the_system_has_no_descriptor, ENFILE, true)
ACCEPTS(accept__waits_while_there_are_no_buffers, ENOBUFS, true)
ACCEPTS(accept__waits_while_there_is_no_memory, ENOMEM, true)
ACCEPTS(accept__goes_on_after_a_connection_that_was_aborted, ECONNABORTED, false)
ACCEPTS(accept__goes_on_after_an_interruption, EINTR, false)

#define HOLES 256

/* A connection that the process truly has no descriptor to accept with. @ret: to be closed. */
static int connect_without_descriptors(struct raw *c, const struct rlimit *all, int ret[HOLES])
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(c->port)};
	struct timeval limit = {.tv_sec = AWAIT_S};
	struct rlimit few = *all;
	int n = 0;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	few.rlim_cur = (rlim_t)c->fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < HOLES && (ret[n] = dup(c->fd)) >= 0)
		n++;
	assert_int_equal(connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return n;
}

/* The listener rests without descriptors; epoll refuses the rest, or its end. */
static void accept__rests_and_wakes_even_if_epoll_refuses(void **state)
{
	struct sweep s = {.kind = SWEEP_EPOLL_CTL, .error = ENOMEM, .thread = "reactor", .most = 3};
	struct fx *fx = *state;
	struct raw neighbour, c;
	unsigned fds = begin(fx, &neighbour);
	int holes[HOLES];
	struct rlimit all;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	for (;;) {
		int n;

		raw_open(fx, &c);
		/* A listener at rest is looked at each tick, so a next call always comes: the 1st
		 * to the 4th tell all there is to tell. */
		if (s.at == 4) {
			if (s.persistent)
				break;
			s.persistent = true;
			s.at = 0;
		}
		assert_true(sweep_next(&s));
		n = connect_without_descriptors(&c, &all, holes);
		/* At rest and back, each tick. */
		until_fired();
		works(&neighbour);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
		while (n > 0)
			close(holes[--n]);
		sweep_off();
		assert_true(shake_hands(&c));
		use(&c);
		close_session(fx, &c);
		at_rest(fx, fds);
	}
	close_session(fx, &c);
	raw_close(&neighbour);
}

/* ---- a tenant that vanishes ---- */

static void vanish(struct raw *c, bool reset)
{
	struct linger l = {.l_onoff = 1, .l_linger = 0};

	if (reset)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	raw_close(c);
}

/* Sends @n bytes of a whole HELLO. */
static void part_of_hello(struct raw *c, size_t n)
{
	struct {
		struct wire_header h;
		struct wire_hello hello;
	} whole = {.h = {.magic = WIRE_MAGIC,
	                 .version = WIRE_VERSION,
	                 .opcode = WIRE_HELLO,
	                 .payload_len = sizeof(struct wire_hello)}};
	uint8_t nonce[WIRE_NONCE_LEN];
	struct wire_header h;

	connect_again(c);
	assert_true(raw_recv(c, &h, nonce, sizeof(nonce)));
	raw_hello(c, nonce, &whole.hello);
	whole.h.header_crc = crypto_crc32c(&whole.h, offsetof(struct wire_header, header_crc));
	raw_send_bytes(c, &whole, n);
}

static void proof__is_not_used_up_by_one_that_vanishes(void **state)
{
	struct fx *fx = *state;
	struct raw neighbour, c;
	unsigned fds = begin(fx, &neighbour);

	for (int reset = 0; reset < 2; reset++) {
		for (size_t n = 0; n < HELLO; n++) {
			/* Within its 10 s. */
			if (n % 16 == 0)
				raw_open(fx, &c);
			part_of_hello(&c, n);
			vanish(&c, reset);
			if (n % 16 < 15 && n < HELLO - 1)
				continue;
			connect_again(&c);
			assert_true(shake_hands(&c));
			use(&c);
			close_session(fx, &c);
			works(&neighbour);
			at_rest(fx, fds);
		}
		/* All of it: proved, and lost. */
		raw_open(fx, &c);
		part_of_hello(&c, HELLO);
		vanish(&c, reset);
		close_session(fx, &c);
		at_rest(fx, fds);
	}
	raw_close(&neighbour);
}

static void ready(struct fx *fx, struct raw *c)
{
	raw_open(fx, c);
	connect_again(c);
	assert_true(shake_hands(c));
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, 4u << 20, 3);
}

/* A write whose payload comes with it, of @len bytes, cut behind @n. */
static void part_of_write(struct raw *c, uint32_t len, size_t n)
{
	struct wire_header h = raw_header(c, WIRE_WRITE, 0, FX_BASE, len);

	h.flags = WIRE_F_INLINE;
	h.magic = WIRE_MAGIC;
	h.version = WIRE_VERSION;
	h.payload_len = len;
	h.header_crc = crypto_crc32c(&h, offsetof(struct wire_header, header_crc));
	raw_send_bytes(c, &h, n < sizeof(h) ? n : sizeof(h));
	if (n > sizeof(h))
		raw_send_bytes(c, out, n - sizeof(h));
}

static void part_of_data(struct raw *c, uint32_t len, size_t n)
{
	struct wire_header h = raw_header(c, WIRE_WRITE, 0, FX_BASE, len);
	uint8_t words[WIRE_WORDS_MAX];

	raw_send(c, &h, NULL, 0);
	assert_true(raw_recv(c, &h, words, sizeof(words)));
	assert_int_equal(h.opcode, WIRE_PULL);
	assert_true(fx_slots(c->fx) > 0);
	h.opcode = WIRE_DATA;
	h.payload_len = len;
	h.header_crc = crypto_crc32c(&h, offsetof(struct wire_header, header_crc));
	raw_send_bytes(c, &h, n < sizeof(h) ? n : sizeof(h));
	if (n > sizeof(h))
		raw_send_bytes(c, out, n - sizeof(h));
}

static void vanish_in(struct fx *fx, uint32_t len,
                      void (*part)(struct raw *c, uint32_t len, size_t n))
{
	struct raw neighbour, c;
	unsigned fds = begin(fx, &neighbour);

	for (size_t i = 0; i < 2 * (WIRE_HEADER_LEN + 16); i++) {
		size_t n = i / 2;

		/* Each byte of the header, then a few of the payload. */
		if (n > WIRE_HEADER_LEN)
			n = WIRE_HEADER_LEN + (n - WIRE_HEADER_LEN) * (len / 16);
		ready(fx, &c);
		part(&c, len, n);
		vanish(&c, i % 2);
		close_session(fx, &c);
		at_rest(fx, fds);
	}
	works(&neighbour);
	raw_close(&neighbour);
}

static void write__leaves_nothing_wherever_its_tenant_vanishes(void **state)
{
	vanish_in(*state, SMALL, part_of_write);
}

static void pulled_write__leaves_nothing_wherever_its_tenant_vanishes(void **state)
{
	vanish_in(*state, BIG, part_of_data);
}

/* What the rounds above say of the neighbour could not be said if its own connection were hit; and
 * a slot that is held is seen. */
static void control__a_neighbour_that_is_hit_and_a_slot_that_is_held_are_seen(void **state)
{
	struct sweep s = {.kind = SWEEP_SEND, .error = ECONNRESET, .thread = "reactor"};
	struct fx *fx = *state;
	struct raw neighbour, c;

	(void)begin(fx, &neighbour);
	assert_true(sweep_next(&s));
	assert_int_equal(some_work(&neighbour), ROS2_CLOSED);
	sweep_off();
	close_session(fx, &neighbour);
	fx_no_slots(fx);
	ready(fx, &c);
	part_of_data(&c, BIG, WIRE_HEADER_LEN);
	assert_int_equal(fx_slots(fx), 1);
	vanish(&c, true);
	fx_no_slots(fx);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fx_setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(proof__goes_on_after_eagain_of_a_receive),
		T(proof__goes_on_after_eintr_of_a_receive),
		T(proof__goes_on_after_receives_of_one_byte),
		T(proof__may_be_tried_again_after_a_receive_that_was_reset),
		T(proof__may_be_tried_again_after_eagain_of_a_send),
		T(proof__may_be_tried_again_after_sends_of_one_byte),
		T(proof__may_be_tried_again_after_a_send_that_was_reset),
		T(proof__may_be_tried_again_after_a_send_without_buffers),
		T(proof__may_be_tried_again_without_memory_in_epoll),
		T(proof__may_be_tried_again_without_room_in_epoll),
		T(proof__goes_on_after_interrupted_waits),
		T(accept__waits_while_the_process_has_no_descriptor),
		T(accept__waits_while_the_system_has_no_descriptor),
		T(accept__waits_while_there_are_no_buffers),
		T(accept__waits_while_there_is_no_memory),
		T(accept__goes_on_after_a_connection_that_was_aborted),
		T(accept__goes_on_after_an_interruption),
		T(accept__rests_and_wakes_even_if_epoll_refuses),
		T(proof__is_not_used_up_by_one_that_vanishes),
		T(write__leaves_nothing_wherever_its_tenant_vanishes),
		T(pulled_write__leaves_nothing_wherever_its_tenant_vanishes),
		T(control__a_neighbour_that_is_hit_and_a_slot_that_is_held_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

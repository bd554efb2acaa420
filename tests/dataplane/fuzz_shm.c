/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant can write into the memory that it shares with a real data plane, and send beside
 * it. The first byte of an input: bit 0 set: 64 bytes of the input stand for MAPPED, sealed when
 * bit 1 is set; bit 2: the counts of the rings begin shortly before they wrap; bit 3: a hole is
 * made in the memory before it is sealed. Then steps: a byte says which (enum step), what it needs
 * follows. In messages that are sealed the value 1 in handle, key and generation is replaced by a
 * good one, and addresses count from the lease. Steps do not wait for the agent unless they say so:
 * what is written may be read before, behind or in between.
 *
 * Whatever is written, the connection comes to its end; the agent has written only where it may:
 * its own counts, its own ring, the lease; what it said in its ring is well formed while nobody
 * else wrote there; nothing is left of the session; and a neighbour at the same reactor is
 * answered.
 */
#include "common/crypto.h"
#include "dataplane/dp_priv.h"
#include "dataplane/shm_priv.h"
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/fuzz/fuzz.h"
#include <sys/mman.h>
#include <sys/socket.h>

#define INPUT_MAX 16384u
#define STEPS_MAX 256u
#define LEASE_AT  (SHM_BASE + 4096)
#define LEASE_LEN (256u << 10)
#define WRAPS_AT  (UINT32_MAX - 7)
#define MINE      WIRE_SHM_TO_TENANT_OFF /* the control page and the ring to the agent */

int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Other threads allocate and free while an input runs: leaks are looked for at the end only. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char **more = calloc((size_t)*argc + 2, sizeof(*more));

	must(more != NULL);
	memcpy(more, *argv, (size_t)*argc * sizeof(*more));
	more[(*argc)++] = (char *)"-detect_leaks=0";
	*argv = more;
	return 0;
}

/* ---- one data plane for all inputs ---- */

static void *shared;
static struct shm_raw neighbours[2]; /* the first is at the reactor of all that is fuzzed */
static struct ros2_uid grant;

static void stop(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(neighbours); i++)
		rs_end(&neighbours[i]);
	fx_teardown(&shared);
}

static struct fx *fixture(void)
{
	uint8_t hash[SHA256_LEN];
	struct fx *fx;

	if (shared)
		return shared;
	fx_shm = true;
	raw_features = WIRE_FEATURE_CLEAR;
	must(fx_setup(&shared) == 0);
	fx = shared;
	fx->limits.contact_limit_ms = 1000ull * 3600 * 24;
	fx_limits(fx);
	grant = ros2_uid_new();
	must(fx_grant(fx, &grant, &fx->tenant, UINT64_MAX) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(neighbours); i++)
		rs_neighbour(fx, &neighbours[i]);
	/* The library of the hashes registers its own end when it is first used; ours has to come
	 * before that. */
	crypto_sha256("", 0, hash);
	atexit(stop);
	return fx;
}

/* ---- the input ---- */

struct input {
	const uint8_t *at;
	size_t left;
};

/* What is not there is zero. */
static void take_bytes(struct input *in, void *to, size_t n)
{
	size_t have = MIN(n, in->left);

	memset(to, 0, n);
	memcpy(to, in->at, have);
	in->at += have;
	in->left -= have;
}

static uint32_t take_number(struct input *in, size_t bytes)
{
	uint32_t n = 0;

	take_bytes(in, &n, bytes);
	return n;
}

/* ---- the tenant ---- */

struct tenant {
	struct shm_raw t;
	uint8_t mine[MINE]; /* what only this side writes, as it wrote it */
	bool spoilt;        /* it wrote what the agent writes, or took what was not there */
	uint32_t last_put;
};

static void write_mine(struct tenant *f, size_t at, const void *p, size_t n)
{
	memcpy(f->mine + at, p, n);
	memcpy(f->t.map + at, p, n);
}

static void store(struct tenant *f, size_t at, uint32_t v)
{
	memcpy(f->mine + at, &v, sizeof(v));
	__atomic_store_n((uint32_t *)(void *)(f->t.map + at), v, __ATOMIC_SEQ_CST);
}

#define TO_AGENT(field)                                                                            \
	(offsetof(struct wire_shm_control, to_agent) + offsetof(struct wire_shm_ring, field))
#define TO_TENANT(field)                                                                           \
	(offsetof(struct wire_shm_control, to_tenant) + offsetof(struct wire_shm_ring, field))

static void tell(struct tenant *f)
{
	store(f, TO_AGENT(written), f->t.written);
	rs_tell(&f->t);
}

static void put(struct tenant *f, const void *entry)
{
	f->last_put = f->t.written;
	write_mine(f,
	           WIRE_SHM_TO_AGENT_OFF +
	                   (size_t)(f->t.written++ % WIRE_SHM_RING_ENTRIES) * WIRE_HEADER_LEN,
	           entry, WIRE_HEADER_LEN);
}

static void put_sealed(struct tenant *f, struct wire_header h)
{
	h.handle = h.handle == 1 ? f->t.c.handle : h.handle;
	h.key = h.key == 1 ? f->t.c.key : h.key;
	h.generation = h.generation == 1 ? f->t.c.generation : h.generation;
	h.address += LEASE_AT;
	wire_seal(&h);
	put(f, &h);
}

static void put_many(struct tenant *f, struct input *in)
{
	uint32_t n = take_number(in, 2) % (WIRE_SHM_RING_ENTRIES + 100);
	struct wire_header h;

	take_bytes(in, &h, sizeof(h));
	while (n--) {
		put_sealed(f, h);
		h.request_id++;
	}
}

/* Anywhere before the data, whoever writes there. */
static void poke(struct tenant *f, struct input *in)
{
	uint32_t at = take_number(in, 3) % (WIRE_SHM_DATA_OFF - 256);
	uint32_t n = take_number(in, 1);
	uint8_t bytes[256];

	take_bytes(in, bytes, n);
	if (at < MINE)
		memcpy(f->mine + at, bytes, MIN(n, MINE - at));
	memcpy(f->t.map + at, bytes, n);
	f->spoilt = true;
}

/* The entry that was put last changes, whether it is being read or not. */
static void change_last(struct tenant *f, struct input *in)
{
	uint32_t at = take_number(in, 1) % WIRE_HEADER_LEN;
	uint8_t byte = (uint8_t)take_number(in, 1);

	write_mine(f,
	           WIRE_SHM_TO_AGENT_OFF +
	                   (size_t)(f->last_put % WIRE_SHM_RING_ENTRIES) * WIRE_HEADER_LEN + at,
	           &byte, 1);
}

static void send_bytes(struct tenant *f, struct input *in)
{
	uint8_t bytes[256];
	uint32_t n = take_number(in, 1);

	take_bytes(in, bytes, n);
	(void)send(f->t.c.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void check_answer(const struct tenant *f, uint32_t left)
{
	const uint8_t *entry = rs_entry(&f->t, WIRE_SHM_TO_TENANT_OFF, f->t.taken);
	struct wire_header h;
	const char *words;

	must(wire_parse_from_agent(entry, &h, &words) == ROS2_OK);
	must(h.opcode == WIRE_COMPLETE || h.opcode == WIRE_NAK || h.opcode == WIRE_PONG);
	must(h.status < ROS2_STATUS_COUNT && (h.opcode == WIRE_NAK || !h.payload_len));
	must(1 + (h.payload_len + WIRE_HEADER_LEN - 1) / WIRE_HEADER_LEN <= left);
}

/* Whatever is there now. */
static void take_answers(struct tenant *f)
{
	uint32_t written = __atomic_load_n(&rs_control(&f->t)->to_tenant.written, __ATOMIC_ACQUIRE);
	struct wire_header h;

	while (!f->spoilt && f->t.taken != written) {
		uint32_t left = written - f->t.taken;

		must(left <= WIRE_SHM_RING_ENTRIES);
		check_answer(f, left);
		memcpy(&h, rs_entry(&f->t, WIRE_SHM_TO_TENANT_OFF, f->t.taken), sizeof(h));
		f->t.taken += 1 + (h.payload_len + WIRE_HEADER_LEN - 1) / WIRE_HEADER_LEN;
	}
	f->t.taken = written;
	store(f, TO_TENANT(taken), written);
}

/* The reactor has looked at everything that was told before: a message comes first in a turn, so
 * the second is behind all of the turn of the first. */
static void wait_turn(struct tenant *f)
{
	struct fx_args a = {.session = f->t.c.session, .key = f->t.c.key};

	for (int i = 0; i < 2; i++)
		(void)fx_do(f->t.c.fx, FX_RENEW, &a);
}

enum step {
	PUT,       /* a header, sealed */
	PUT_RAW,   /* 64 bytes */
	PUT_MANY,  /* how many (2 bytes), a header: with one request id after the other */
	TELL,      /* as a tenant does that means well */
	WRITTEN,   /* another count than there is: so many more (4 bytes) */
	TAKEN,     /* the same of what was taken */
	SLEEPS,    /* of which ring, what: a byte each */
	AGENTS,    /* a count that is the agent's: which (a byte), what (4 bytes) */
	POKE,      /* where (3 bytes), how many, bytes */
	CHANGE,    /* a byte of the last entry: which, what */
	SEND,      /* how many, bytes: on the socket */
	TAKE,      /* what has been answered */
	WAIT_TURN, /* of the reactor */
	STEPS
};

static void write_agents(struct tenant *f, struct input *in)
{
	bool which = take_number(in, 1) & 1;

	store(f, which ? TO_AGENT(taken) : TO_TENANT(written), take_number(in, 4));
	f->spoilt = true;
}

static void do_step(struct tenant *f, enum step step, struct input *in)
{
	uint8_t entry[WIRE_HEADER_LEN];
	struct wire_header h;

	switch (step) {
	case PUT:
		take_bytes(in, &h, sizeof(h));
		return put_sealed(f, h);
	case PUT_RAW:
		take_bytes(in, entry, sizeof(entry));
		return put(f, entry);
	case PUT_MANY:
		return put_many(f, in);
	case TELL:
		return tell(f);
	case WRITTEN:
		return store(f, TO_AGENT(written), f->t.written + take_number(in, 4));
	case TAKEN:
		f->spoilt = true;
		return store(f, TO_TENANT(taken), f->t.taken + take_number(in, 4));
	case SLEEPS:
		return store(f, take_number(in, 1) & 1 ? TO_AGENT(sleeps) : TO_TENANT(sleeps),
		             take_number(in, 1));
	case AGENTS:
		return write_agents(f, in);
	case POKE:
		return poke(f, in);
	case CHANGE:
		return change_last(f, in);
	case SEND:
		return send_bytes(f, in);
	case TAKE:
		return take_answers(f);
	case WAIT_TURN:
		return wait_turn(f);
	case STEPS:
		break;
	}
}

/* ---- a session ---- */

struct counts {
	struct fx *fx;
	const struct ros2_uid *session;
	uint32_t begin_at;
	uint64_t shm_bytes;
};

/* As if so many messages had gone both ways already. Before HELLO nobody looks at the counts: they
 * are the loop's as long as the socket's bytes carry them to the reactor. */
static void set_counts(void *arg)
{
	struct counts *c = arg;
	struct shm_conn *conn = shm_of(dp_session_find(c->fx->dp, c->session)->s);

	conn->taken = conn->written = conn->published = c->begin_at;
}

static void begin_at(struct tenant *f, uint32_t n)
{
	struct counts c = {f->t.c.fx, &f->t.c.session, n, 0};

	f->t.written = f->t.taken = n;
	loop_call(f->t.c.fx->loop, set_counts, &c);
}

static void open_session(struct fx *fx, struct tenant *f)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = grant,
	                    .a = UINT64_MAX,
	                    .shm_bytes = WIRE_SHM_DATA_MIN};
	struct dp_result res = rs_try_open(fx, &a);

	must(res.status == ROS2_OK);
	must(!strcmp(res.session.shm_path, neighbours[0].path));
	*f = (struct tenant){.t = {.c = {.fx = fx, .session = a.session, .fd = -1}, .memfd = -1}};
	memcpy(f->t.c.secret, res.session.secret, sizeof(f->t.c.secret));
	strcpy(f->t.path, res.session.shm_path);
	f->t.offered = res.session.shm_bytes;
}

static void set_ring_counts(struct tenant *f)
{
	static const size_t all[] = {TO_AGENT(written), TO_AGENT(taken), TO_TENANT(written),
	                             TO_TENANT(taken)};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		store(f, all[i], f->t.written);
}

static void say_mapped(struct tenant *f, uint8_t how, struct input *in)
{
	struct wire_header h;

	if (how & 8)
		must(fallocate(f->t.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		               WIRE_SHM_DATA_OFF, 4096) == 0);
	if (!(how & 1)) {
		rs_mapped(&f->t);
		return;
	}
	take_bytes(in, &h, sizeof(h));
	if (how & 2)
		wire_seal(&h);
	raw_send_bytes(&f->t.c, &h, sizeof(h));
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return !n || (!*p && !memcmp(p, p + 1, n - 1));
}

/* The agent is gone from it. */
static void check_memory(struct tenant *f)
{
	static const size_t agents[] = {TO_AGENT(taken), TO_AGENT(sleeps), TO_TENANT(written)};

	for (size_t i = 0; i < ARRAY_SIZE(agents); i++)
		memcpy(f->mine + agents[i], f->t.map + agents[i], sizeof(uint32_t));
	/* rs_tell and the like store the rest of the counts themselves. */
	must(!memcmp(f->mine, f->t.map, MINE));
	must(all_zero(f->t.map + SHM_BASE, LEASE_AT - SHM_BASE));
	must(all_zero(f->t.map + LEASE_AT + LEASE_LEN, f->t.bytes - LEASE_AT - LEASE_LEN));
}

static void look_at_account(void *arg)
{
	struct counts *c = arg;

	c->shm_bytes = dp_tenant_find(c->fx->dp, &c->fx->tenant)->shm_bytes;
}

static void end(struct tenant *f)
{
	struct fx_args a = {.session = f->t.c.session};
	struct counts c = {.fx = f->t.c.fx};

	shutdown(f->t.c.fd, SHUT_WR);
	/* To its end, which has to come. */
	must(raw_recv_end(&f->t.c) == 0 || errno == ECONNRESET);
	(void)fx_do(f->t.c.fx, FX_CLOSE_SESSION, &a);
	must(AWAIT(fx_do(f->t.c.fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
	check_memory(f);
	rs_close(&f->t);
	/* The last mapping was ours. */
	must(AWAIT((loop_call(c.fx->loop, look_at_account, &c), c.shm_bytes == 0)));
	must(fx_slots(c.fx) == 0);
	rs_ping(&neighbours[0]);
	fx_forget_events(c.fx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tenant f;
	struct fx *fx = fixture();
	struct input in = {data, size};
	uint8_t how;

	if (!size || size > INPUT_MAX)
		return 0;
	how = (uint8_t)take_number(&in, 1);
	open_session(fx, &f);
	if (how & 4)
		begin_at(&f, WRAPS_AT);
	rs_hello(&f.t);
	rs_memory(&f.t);
	set_ring_counts(&f);
	raw_file(&f.t.c, "file");
	f.t.c.key = raw_register(&f.t.c, LEASE_AT, LEASE_LEN, 3);
	say_mapped(&f, how, &in);
	for (uint32_t n = 0; in.left && n < STEPS_MAX; n++)
		do_step(&f, take_number(&in, 1) % STEPS, &in);
	tell(&f);
	end(&f);
	return 0;
}

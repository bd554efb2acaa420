// SPDX-License-Identifier: Apache-2.0
/*
 * A target that does what it likes, at a queue over NVMe/RDMA on a device that is memory. The first
 * byte of an input says how (enum mode), then come steps of both ends (enum step), a byte and what
 * it needs. Claims, whatever comes: each request comes back once, and then no key of its own is
 * good; the target reads only what a write in flight sends it and writes only what a read in flight
 * asks for (with standing keys: in a slot that was so used); an end that the device has confirmed
 * is one; a queue that fails says why, and no key that the target was ever told outlives it. And a
 * model knows of each answer whether it is a lie: one is always found, and nothing else is one.
 */
#include "tests/fuzz/fuzz.h"
#include "common/util.h"
#include "tests/nvmf/rdma_host.h"
#include "tests/verbs/fabric_mem.h"

enum mode {
	STANDING = 1,
	INVALIDATES = 2, /* the target may be asked to */
	OBEYS = 4,       /* a device that does not look whose a key is */
	SAYS = 8,        /* the rest is what the target says when it is asked to connect */
	REJECTS = 16,
	HOLDS = 32, /* the device is slow to end keys */
};

enum step {
	SUBMIT, /* what, slot and length */
	KICK,
	TURN,
	TAKE,     /* commands, by the target */
	ANSWER,   /* of which, what is wrong with it */
	TRANSFER, /* of which, what is wrong with it */
	END_KEY,  /* of which */
	FORGET,
	TICK, /* by how much */
	HOLD,
	KILL,
	STEPS,
};

#define REQUESTS 64u
#define TOLD     128u

struct request {
	struct host_req r; /* first */
	uint32_t slot, at, len;
	uint32_t key, own_key; /* that the target was told; own_key: nobody else's. 0 = none */
	bool submitted, withdrawn;
};

static struct {
	struct request requests[REQUESTS];
	uint32_t n_requests, n_submitted, n_done;
	struct rdma_peer_cmd told[TOLD];
	bool answered[TOLD];
	uint32_t n_told;
	bool lied;    /* so it has to fail */
	bool excused; /* so it may */
	bool cut_off; /* by the device: the host hears nothing of it, nor of what comes then */
	bool used[HOST_SLOTS][3]; /* by requests whose keys may stand, by direction */
	uint8_t mode;
} run;

struct input {
	const uint8_t *p;
	size_t n;
};

static struct host *host;

static void stop(void)
{
	host_close(host);
	free(host);
}

static struct host *fixture(void)
{
	if (host)
		return host;
	host = calloc(1, sizeof(*host));
	must(host != NULL);
	host_open(host);
	host->o.depth = 8;
	host->peer.may_fail = true;
	atexit(stop);
	return host;
}

static uint8_t next(struct input *in)
{
	if (!in->n)
		return 0;
	in->n--;
	return *in->p++;
}

/* ---- the host ---- */

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct request *r = container_of(req, struct request, r.req);

	must(r->submitted && ++r->r.n_done == 1);
	must((rc == 0) == (cqe != NULL) && (rc == 0 || rc == -ECANCELED || rc == -EREMOTEIO));
	must(!r->own_key || !fabric_mem_key_lives(r->own_key));
	run.n_done++;
}

static void submit(struct host *h, struct input *in)
{
	static const uint32_t lens[] = {512, 4096, 8192, 65536};
	static const uint8_t opcodes[] = {NVME_IO_FLUSH, NVME_IO_READ, NVME_IO_WRITE};
	struct request *r = &run.requests[run.n_requests];
	uint8_t what = next(in), slot = next(in);
	uint32_t dir = what % 3;

	if (run.n_requests == REQUESTS)
		return;
	*r = (struct request){.slot = slot % HOST_SLOTS, .at = (what >> 4) * 4096u};
	r->len = dir ? lens[slot >> 6] : 0;
	r->r = host_io(h, opcodes[dir], r->slot, r->at, r->len);
	r->r.req.sqe.cdw10 = run.n_requests; /* by which the target's end is known */
	r->r.req.tenant_memory = what & 4;
	r->r.req.done = on_done;
	run.n_requests++;
	r->submitted = true;
	if (h->ops->submit(h->q, &r->r.req) < 0) {
		r->submitted = false;
		return;
	}
	run.n_submitted++;
	if (run.mode & STANDING && !r->r.req.tenant_memory)
		run.used[r->slot][dir] = true;
}

static bool in_flight(const struct request *r)
{
	return r->submitted && !r->r.n_done;
}

static void end_key(struct host *h, struct input *in)
{
	struct request *r = &run.requests[next(in) % REQUESTS];

	if (r >= run.requests + run.n_requests || !in_flight(r))
		return;
	r->withdrawn |= h->ops->end_key(h->q, &r->r.req, h->now_ns) == 1;
	h->ops->kick(h->q, h->now_ns);
	run.excused |= run.mode & INVALIDATES;
}

static void ended_keys_are_dead(struct host *h)
{
	if (h->ops->keys_ending(h->q, UINT64_MAX))
		return;
	for (uint32_t i = 0; i < run.n_requests; i++)
		if (run.requests[i].withdrawn && run.requests[i].key)
			must(!fabric_mem_key_lives(run.requests[i].key));
}

/* ---- the target ---- */

static void take(struct host *h)
{
	struct rdma_peer_cmd *cmd;

	while (h->peer.qp && (cmd = rdma_peer_take(&h->peer)) && run.n_told < TOLD) {
		struct request *r = &run.requests[cmd->sqe.cdw10 % REQUESTS];

		run.told[run.n_told++] = *cmd;
		must(cmd->sgl.len == r->len);
		if (cmd->sgl.type == NVME_SGL_DATA_OFFSET) {
			must(r->r.req.dir == NVMF_TO_TARGET && cmd->data_len == r->len);
			continue;
		}
		must(cmd->data_len == 0);
		r->key = cmd->sgl.key;
		if (run.mode & STANDING && !r->r.req.tenant_memory)
			continue;
		r->own_key = r->key;
		must(in_flight(r) || !r->key || !fabric_mem_key_lives(r->key));
	}
}

static const struct rdma_peer_cmd *which(struct input *in)
{
	uint8_t i = next(in);

	return run.n_told ? &run.told[i % run.n_told] : NULL;
}

/* Of what was answered before, or of nothing that was ever told, any answer is one. */
static bool is_lie(struct host *h, const struct nvme_cqe *cqe, uint32_t len, uint32_t key)
{
	const struct rdma_peer_cmd *cmd;
	uint32_t i = 0;

	while (i < run.n_told && run.told[i].sqe.cid != cqe->cid)
		i++;
	if (i == run.n_told || run.answered[i] || len != sizeof(*cqe) || cqe->sq_head > h->o.depth)
		return true;
	cmd = &run.told[i];
	run.answered[i] = true;
	return key && (cmd->sgl.type != NVME_SGL_KEYED_INVALIDATE || cmd->sgl.key != key);
}

static void answer(struct host *h, struct input *in)
{
	static const uint32_t lens[] = {16, 16, 15, 17, 64, 0, 8, 32};
	const struct rdma_peer_cmd *cmd = which(in), *other = which(in);
	uint8_t wrong = next(in), bits = next(in);
	uint32_t len = wrong & 8 ? lens[bits & 7] : 16, key = 0;
	struct nvme_cqe cqe = {0};

	if (!cmd || !h->peer.qp)
		return;
	if (wrong & 16)
		key = other->sgl.key ^ (wrong & 32 ? bits : 0);
	cqe.cid = cmd->sqe.cid ^ (uint16_t)(wrong & 1 ? bits << 8 | bits : 0);
	cqe.sq_head = (uint16_t)(h->peer.sq_head ^ (wrong & 2 ? bits : 0));
	cqe.status = wrong & 4 ? bits : 0;
	run.cut_off |= len > sizeof(cqe);
	run.excused |= run.cut_off;
	run.lied |= !run.cut_off && is_lie(h, &cqe, len, key);
	rdma_peer_send(&h->peer, &cqe, len, key);
}

/* Of this slot and these bytes some request in flight, or in a slot with standing keys one that
 * was, lets the target do it. */
static bool lets(uint32_t slot, uint64_t at, uint64_t len, enum nvmf_dir dir)
{
	if (run.used[slot][dir])
		return true;
	for (uint32_t i = 0; i < run.n_requests; i++) {
		const struct request *r = &run.requests[i];

		if (in_flight(r) && r->slot == slot && r->r.req.dir == dir && at >= r->at &&
		    at + len <= (uint64_t)r->at + r->len)
			return true;
	}
	return false;
}

static void transfer(struct host *h, struct input *in)
{
	const struct rdma_peer_cmd *cmd = which(in), *other = which(in);
	uint8_t wrong = next(in), bits = next(in);
	struct request *r;
	uint64_t addr, at;
	uint32_t key, len;
	enum fabric_end end;

	if (!cmd || !cmd->sgl.len || !h->peer.qp)
		return;
	r = &run.requests[cmd->sqe.cdw10 % REQUESTS];
	key = wrong & 2 ? other->sgl.key : cmd->sgl.key;
	addr = cmd->sgl.addr + (wrong & 4 ? (uint64_t)(int8_t)bits * 512u : 0);
	len = cmd->sgl.len + (wrong & 8 ? bits : 0);
	at = r->at + (addr - cmd->sgl.addr);
	if (wrong & 1)
		end = rdma_peer_write(&h->peer, addr, len, key);
	else
		end = rdma_peer_read(&h->peer, addr, len, key);
	run.excused |= end != FABRIC_END_OK;
	if (end != FABRIC_END_OK)
		return;
	/* Another slot's key, at this one's address, is good nowhere. */
	must(wrong & 2 || key == cmd->sgl.key);
	must(lets(r->slot, at, len, wrong & 1 ? NVMF_FROM_TARGET : NVMF_TO_TARGET));
}

/* ---- both ---- */

static void step(struct host *h, struct input *in)
{
	switch ((enum step)(next(in) % STEPS)) {
	case SUBMIT:
		submit(h, in);
		break;
	case KICK:
		h->ops->kick(h->q, h->now_ns);
		break;
	case TURN:
		host_turn(h);
		break;
	case TAKE:
		take(h);
		break;
	case ANSWER:
		answer(h, in);
		break;
	case TRANSFER:
		transfer(h, in);
		break;
	case END_KEY:
		end_key(h, in);
		break;
	case FORGET:
		h->ops->forget_regions(h->q, h->now_ns);
		break;
	case TICK:
		host_tick(h, next(in) * (HOST_COMMAND_NS / 128));
		run.excused = true;
		break;
	case HOLD:
		fabric_mem_hold_invalidates(run.mode & HOLDS && next(in) & 1);
		break;
	default:
		if (next(in) != KILL)
			break;
		h->ops->kill(h->q, "ended by its owner");
		run.excused = true;
	}
}

static void connect_queue(struct host *h, struct input *in)
{
	h->o.keys_per_command = !(run.mode & STANDING);
	h->o.remote_invalidate = run.mode & INVALIDATES;
	h->peer.reject = run.mode & REJECTS ? 1 : 0;
	h->peer.says = NULL;
	if (run.mode & SAYS) {
		h->peer.says = in->p;
		h->peer.says_len = (uint32_t)MIN(in->n, (size_t)FABRIC_PRIVATE_MAX);
		in->n = 0;
	}
	host_begin(h);
	host_turns(h, 6);
	run.excused = run.mode & (SAYS | REJECTS);
}

/* What was in it has come back, and no key is left. */
static void end(struct host *h)
{
	bool failed;

	fabric_mem_hold_invalidates(false);
	fabric_mem_obey_all(false);
	host_turns(h, 4);
	failed = h->ops->state(h->q) != NVMF_QUEUE_READY;
	must(!failed || (h->ops->fault(h->q)[0] && (run.lied || run.excused)));
	must(failed || !run.lied);
	h->ops->free(TAKE_PTR(h->q));
	must(run.n_done == run.n_submitted);
	for (uint32_t i = 0; i < run.n_told; i++)
		must(!run.told[i].sgl.key || !fabric_mem_key_lives(run.told[i].sgl.key));
	rdma_peer_run(&h->peer);
	h->peer.taken = h->peer.n_cmds;
	must(h->ops->keys_kept(NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct host *h = fixture();

	if (!size || size > 4096)
		return 0;
	memset(&run, 0, sizeof(run));
	run.mode = next(&in);
	connect_queue(h, &in);
	fabric_mem_obey_all(run.mode & OBEYS);
	while (in.n) {
		step(h, &in);
		ended_keys_are_dead(h);
		must(h->ops->in_flight(h->q) == run.n_submitted - run.n_done);
	}
	end(h);
	return 0;
}

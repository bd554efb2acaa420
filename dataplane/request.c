/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request pipeline: parse > handle belongs to this session > range and access > lease live >
 * QoS > slot > engine > transfer > complete. The lease is looked at three times: on arrival (so
 * that a violation is answered at once), right before the engine gets the request, right before
 * payload is handed to the kernel; a lease is held from the second look to the end. A right that
 * ends between two looks is not a violation: the request completes with the name of what ended.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/shm_lend_priv.h"
#include "dataplane/test_switches.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

void request_init_all(struct session *s)
{
	list_init(&s->free);
	list_init(&s->queue[0]);
	list_init(&s->queue[1]);
	for (uint32_t i = 0; i < DP_CREDITS; i++) {
		struct request *req = &s->requests[i];

		req->s = s;
		list_add_tail(&s->free, &req->link);
	}
}

static bool id_in_flight(const struct session *s, uint64_t id)
{
	uint32_t same = 0;

	if (!s->n_requests)
		return false;
	for (uint32_t i = 0; i < DP_CREDITS; i++)
		same += s->ids[i] == id && s->requests[i].state > REQUEST_POSTED;
	return same > 0;
}

static uint32_t access_needed(enum request_op op)
{
	return op == REQUEST_READ ? ENGINE_READ : op == REQUEST_FLUSH ? 0 : ENGINE_WRITE;
}

/* What the agent does to tenant memory: a READ writes into it. */
static uint8_t lease_access(enum request_op op)
{
	return op == REQUEST_READ ? LEASE_WRITE : LEASE_READ;
}

/* Credits, id, length, range: what needs no table. False: answered. */
static bool check_shape(struct session *s, const struct request_in *in)
{
	const uint32_t credits = DP_SWITCH(few_credits) ? DP_CREDITS_FEW : DP_CREDITS;
	uint64_t end;

	if (s->state != SESSION_OPEN)
		session_violation(s, in->id, ROS2_PROTOCOL, "a request after BYE");
	else if (s->n_requests - s->n_posted >= credits)
		session_violation(s, in->id, ROS2_LIMIT, "more than %u requests in flight (fixed)",
		                  credits);
	else if (id_in_flight(s, in->id))
		session_violation(s, in->id, ROS2_INVALID,
		                  "request id %" PRIu64 " is in flight already", in->id);
	else if (request_op_clears(in->op) && !(s->features & WIRE_FEATURE_CLEAR))
		session_violation(s, in->id, ROS2_UNSUPPORTED,
		                  "%s, which is not among the features of WELCOME",
		                  in->op == REQUEST_ZERO ? "ZERO" : "DISCARD");
	else if (in->op != REQUEST_FLUSH && in->length > WIRE_IO_MAX && !DP_SWITCH(no_length_check))
		session_violation(s, in->id, ROS2_TOO_LARGE, "length %u is more than %u (fixed)",
		                  in->length, WIRE_IO_MAX);
	else if ((__builtin_add_overflow(in->offset, (uint64_t)in->length, &end) ||
	          end > INT64_MAX) &&
	         !DP_SWITCH(no_offset_check))
		session_violation(s, in->id, ROS2_OUT_OF_RANGE, "offset + length is beyond 2^63");
	else
		return true;
	return false;
}

static bool check_handle(struct session *s, const struct request_in *in, struct dp_file **ret)
{
	struct dp_file *f = session_file(s, in->handle);
	uint32_t need = access_needed(in->op);

	if (!f) {
		session_violation(s, in->id, ROS2_BAD_HANDLE, "no such handle in this session");
		return false;
	}
	if (need & ~f->access && !DP_SWITCH(no_open_check)) {
		session_violation(s, in->id, ROS2_ACCESS, "the handle is not open for %s",
		                  in->op == REQUEST_READ ? "reading" : "writing");
		return false;
	}
	*ret = f;
	return true;
}

/* *ret: the lease that allows it; NULL: it needs none. */
static bool check_lease(struct session *s, const struct request_in *in, uint64_t now_ns,
                        struct lease **ret)
{
	struct lease *l;
	enum ros2_status st;

	*ret = NULL;
	/* What names no memory needs none; the rights of the session count all the same. */
	if (in->op == REQUEST_FLUSH || request_op_clears(in->op) || in->length == 0 ||
	    DP_SWITCH(no_lease_check))
		return true;
	st = lease_check(s->r->leases, in->key, s->conn, lease_access(in->op), in->address,
	                 in->length, now_ns, &l);
	if (st == ROS2_OK && s->transport->needs_window && !in->has_payload && !l->has_window) {
		session_violation(s, in->id, ROS2_BAD_KEY, "no window was told for this key");
		return false;
	}
	if (st == ROS2_OK) {
		*ret = l;
		return true;
	}
	if (st == ROS2_LEASE_EXPIRED || st == ROS2_REVOKED)
		s->transport->refuse(s, in->id, st, NULL);
	else if (st == ROS2_ACCESS)
		session_violation(s, in->id, st, "the region is not leased for %s",
		                  in->op == REQUEST_READ ? "writing into it" : "reading from it");
	else
		session_violation(s, in->id, st, "%s", ros2_status_text(st));
	return false;
}

bool request_away(const struct session *s, const struct dp_file *f)
{
	const struct dp_engine *e = f->mount->engine;

	return e->ops->away && !DP_SWITCH(no_lost_share) &&
	       e->ops->away(s->r->engines[e->slot].er, f->file);
}

/* What is missing to the shares of the other engines. */
static uint32_t due_to_others(const struct reactor *r, uint32_t but, uint32_t len, uint32_t share)
{
	uint32_t due = 0;

	for (uint32_t left = r->engines_here & ~(1u << but); left; left &= left - 1) {
		const struct rengine *e = &r->engines[__builtin_ctz(left)];

		due += share - MIN(share, slots_used(&e->slots, len));
	}
	return due;
}

bool request_crowds(struct session *s, const struct dp_file *f, const struct slot_source *from,
                    uint32_t len)
{
	uint32_t at = f->mount->engine->slot;
	struct reactor *r = s->r;
	uint32_t n_engines = (uint32_t)__builtin_popcount(r->engines_here), share;

	if (n_engines < 2 || DP_SWITCH(no_lost_share))
		return false;
	share = slots_storage_share(from->pool, len, n_engines);
	if (slots_may_crowd(from->pool, len, from->tenant, &r->engines[at].slots, share,
	                    due_to_others(r, at, len, share)))
		return false;
	r->crowded |= 1u << at;
	return true;
}

bool request_take_slot(struct session *s, const struct dp_file *f, struct slot_source *from,
                       uint32_t len, struct slot *ret)
{
	if (!slots_take(from->pool, len, &from->use, from->tenant, ret))
		return false;
	if (session_slots_shared(s, from))
		s->r->engines[f->mount->engine->slot].slots.n[ret->size_class]++;
	return true;
}

static bool check_buffer(struct session *s, const struct request_in *in, const struct dp_file *f,
                         const struct slot_source *from)
{
	if (slots_may_wait(from->pool, in->length, from->tenant) || !request_away(s, f))
		return true;
	s->transport->refuse(s, in->id, ROS2_BUSY,
	                     "the engine's storage does not answer, and the buffers for what "
	                     "waits for such storage are used up");
	return false;
}

/* The tenant's own memory, for engines that take it as it is, or lend it: what the device knows of
 * it. */
static void *borrowed_memory(struct session *s, const struct request_in *in,
                             const struct dp_file *f, const struct lease *l,
                             struct shm_piece **ret_piece)
{
	bool moves = (in->op == REQUEST_READ || in->op == REQUEST_WRITE) && in->length;
	const struct dp_engine *e = f->mount->engine;
	void *mem;

	if (!moves || !s->transport->memory || !(e->takes_any_memory || e->lends))
		return NULL;
	mem = s->transport->memory(s, in->address, in->length);
	if (!mem || e->takes_any_memory)
		return mem;
	*ret_piece = l ? s->transport->piece(s, l, in->address, in->length) : NULL;
	return *ret_piece ? mem : NULL;
}

static void fill(struct request *req, const struct request_in *in, struct dp_file *f)
{
	dp_file_ref(f);
	req->file = f;
	req->s->engines |= 1u << f->mount->engine->slot;
	req->lease = NULL;
	req->piece = NULL;
	req->op = in->op;
	req->status = ROS2_OK;
	req->has_payload = in->has_payload && in->length;
	req->shaped = req->paid = false;
	req->io.wait_until_ns = 0;
	req->length = in->op == REQUEST_FLUSH ? 0 : in->length;
	req->key = in->key;
	req->bytes = req->got = 0;
	req->id = in->id;
	req->offset = in->offset;
	req->address = in->address;
	req->generation = 0;
	req->begun_ns = req->s->r->now_ns;
}

/* The payload of a WRITE is where the engine takes it from. */
static void borrow(struct request *req, void *mem)
{
	req->slot = (struct slot){.mem = mem, .size_class = SLOT_BORROWED};
	req->has_payload = req->op == REQUEST_WRITE;
}

struct request_in request_in_of(const struct wire_header *h)
{
	static const uint8_t ops[] = {[WIRE_READ] = REQUEST_READ,
	                              [WIRE_WRITE] = REQUEST_WRITE,
	                              [WIRE_FLUSH] = REQUEST_FLUSH,
	                              [WIRE_ZERO] = REQUEST_ZERO,
	                              [WIRE_DISCARD] = REQUEST_DISCARD};

	assert(h->opcode < ARRAY_SIZE(ops));
	return (struct request_in){
		.op = (enum request_op)ops[h->opcode],
		.has_payload = h->flags & WIRE_F_INLINE,
		.id = h->request_id,
		.handle = h->handle,
		.offset = h->offset,
		.address = h->address,
		.length = h->length,
		.key = h->key,
	};
}

enum request_verdict request_begin(struct session *s, const struct request_in *in,
                                   struct request **ret)
{
	struct slot slot = {0};
	struct slot_source *from;
	void *borrowed;
	struct request *req;
	struct lease *lease;
	struct dp_file *f;

	if (!check_shape(s, in) || !check_handle(s, in, &f) ||
	    !check_lease(s, in, clock_boottime_ns(), &lease))
		return REQUEST_REFUSED;
	/* The tenant has the answers of those that are posted; we have not heard of it yet. */
	if (list_empty(&s->free))
		return REQUEST_WAIT;
	from = session_slots_for(s, f);
	if (in->has_payload && in->length && !check_buffer(s, in, f, from))
		return REQUEST_REFUSED;
	if (in->has_payload && in->length && request_crowds(s, f, from, in->length))
		return REQUEST_WAIT;
	if (in->has_payload && in->length && !request_take_slot(s, f, from, in->length, &slot)) {
		slots_missed(from->pool, in->length);
		return REQUEST_WAIT;
	}
	req = list_first(&s->free, struct request, link);
	list_del(&req->link);
	fill(req, in, f);
	req->slot = slot;
	req->from = from;
	borrowed = borrowed_memory(s, in, f, lease, &req->piece);
	if (borrowed)
		borrow(req, borrowed);
	s->ids[req - s->requests] = in->id;
	s->n_requests++;
	atomic_store_explicit(&s->stats.in_flight, s->n_requests, memory_order_relaxed);
	*ret = req;
	if (req->has_payload && !borrowed)
		req->state = REQUEST_PAYLOAD;
	else
		admit_enqueue(req);
	return REQUEST_TAKEN;
}

void *request_buffer(struct request *req, uint32_t *ret_len)
{
	*ret_len = req->length;
	return req->slot.mem;
}

void request_payload_arrived(struct request *req)
{
	if (req->state == REQUEST_PAYLOAD) {
		admit_enqueue(req);
		return;
	}
	assert(req->state == REQUEST_PULLING);
	admit_pulled(req);
}

static uint64_t *borrowed_at(const struct request *req)
{
	return &req->s->rt->borrowed_at[req->file->mount->engine->slot];
}

void request_ready(struct request *req)
{
	uint32_t engine = req->file->mount->engine->slot;
	struct session *s = req->s;

	req->state = REQUEST_READY;
	req->begun = true;
	s->rt->n_begun++;
	req->depth_mark =
		depth_enter(&s->rt->at[engine], &s->r->engines[engine].least, req->length);
	s->rt->slotless_at[engine] += request_is_slotless(req);
	*borrowed_at(req) += request_borrows(req) ? req->length : 0;
	s->r->n_begun++;
	list_add_tail(&s->r->ready, &req->link);
}

static void count_out(struct request *req)
{
	uint32_t engine;

	if (!req->begun)
		return;
	engine = req->file->mount->engine->slot;
	req->begun = false;
	req->s->rt->n_begun--;
	depth_leave(&req->s->rt->at[engine], &req->s->r->engines[engine].least, req->length,
	            req->depth_mark);
	req->s->rt->slotless_at[engine] -= request_is_slotless(req);
	*borrowed_at(req) -= request_borrows(req) ? req->length : 0;
	req->s->r->n_begun--;
}

enum ros2_status request_hold_lease(struct request *req, uint64_t now_ns)
{
	struct session *s = req->s;
	struct lease *l;
	enum ros2_status st;

	if (!request_moves_bytes(req) || DP_SWITCH(no_lease_check))
		return ROS2_OK;
	if (DP_SWITCH(no_deadline_recheck))
		now_ns = req->begun_ns;
	st = lease_check(s->r->leases, req->key, s->conn, lease_access(req->op), req->address,
	                 req->length, now_ns, &l);
	if (st != ROS2_OK || req->lease)
		return st;
	lease_hold(l);
	req->lease = l;
	req->generation = l->generation;
	return ROS2_OK;
}

enum ros2_status request_may_hand_on(struct request *req, uint64_t now_ns)
{
	const struct lease *l = req->lease;

	if (DP_SWITCH(no_deadline_recheck) || DP_SWITCH(no_lease_check))
		return ROS2_OK;
	if (!l)
		return request_hold_lease(req, now_ns);
	if (l->state != LEASE_LIVE)
		return l->end_status;
	return now_ns < l->deadline_ns ? ROS2_OK : ROS2_LEASE_EXPIRED;
}

uint64_t request_until(const struct request *req)
{
	uint64_t until = session_rights_until(req->s);

	if (!req->lease || DP_SWITCH(no_deadline_recheck) || DP_SWITCH(no_last_look))
		return until;
	return MIN(until, req->lease->deadline_ns);
}

static void give_slot(struct request *req)
{
	struct session *s = req->s;

	if (request_borrows(req))
		req->slot.mem = NULL;
	if (req->piece)
		shm_lend_give(TAKE_PTR(req->piece), s->r->now_ns);
	if (!req->slot.mem)
		return;
	if (session_slots_shared(s, req->from))
		s->r->engines[req->file->mount->engine->slot].slots.n[req->slot.size_class]--;
	slots_give(req->from->pool, &req->slot, &req->from->use, req->from->tenant);
}

void request_release(struct request *req)
{
	struct session *s = req->s;

	s->transport->forget(s, req);
	s->n_posted -= req->state == REQUEST_POSTED;
	count_out(req);
	list_del(&req->link);
	if (req->io.n_parts)
		req->file->mount->engine->ops->unlend(&req->io);
	give_slot(req);
	if (req->lease)
		lease_unhold(s->r->leases, TAKE_PTR(req->lease));
	dp_file_unref(TAKE_PTR(req->file));
	req->state = REQUEST_FREE;
	list_add_head(&s->free, &req->link);
	s->n_requests--;
	atomic_store_explicit(&s->stats.in_flight, s->n_requests, memory_order_relaxed);
	s->r->again = true;
}

void request_reply(struct request *req, enum ros2_status status)
{
	req->status = status;
	if (status != ROS2_OK)
		req->bytes = 0;
	req->state = REQUEST_REPLY;
	count_out(req);
	list_del(&req->link);
	req->s->transport->reply(req->s, req);
}

void request_handed_on(struct request *req)
{
	struct session *s = req->s;

	/* An invitation: the payload is still to come. */
	if (req->state == REQUEST_PULLING)
		return;
	request_release(req);
	session_maybe_closed(s);
}

void request_to_device(struct request *req)
{
	assert(!req->on_device && (req->state == REQUEST_PULLING || req->state == REQUEST_REPLY));
	if (req->state == REQUEST_REPLY) {
		req->state = REQUEST_POSTED;
		req->s->n_posted++;
	}
	req->on_device = true;
	req->s->n_device++;
	req->s->r->n_device++;
}

/* What came back when the session has ended: the last hold on it may have been this one. */
static void release_late(struct request *req)
{
	struct session *s = req->s;

	request_release(req);
	atomic_store_explicit(&s->stats.in_flight, session_held(s), memory_order_relaxed);
	session_maybe_gone(s);
}

bool request_from_device(struct request *req)
{
	struct session *s = req->s;

	assert(req->on_device);
	req->on_device = false;
	s->n_device--;
	s->r->n_device--;
	if (s->state != SESSION_ENDED)
		return true;
	release_late(req);
	return false;
}

static enum ros2_status status_of(int64_t res)
{
	enum ros2_status s = ros2_status_from_errno((int)res);

	return s == ROS2_INTERNAL || s == ROS2_OK ? ROS2_IO : s;
}

static void count_done(struct request *req, uint64_t n)
{
	struct session *s = req->s;
	bool read = req->op == REQUEST_READ, clear = request_op_clears(req->op);
	_Atomic uint64_t *bytes = read    ? &s->stats.read_bytes
	                          : clear ? &s->stats.cleared_bytes
	                                  : &s->stats.write_bytes;
	_Atomic uint64_t *ops = read    ? &s->stats.read_ops
	                        : clear ? &s->stats.clear_ops
	                                : &s->stats.write_ops;

	atomic_fetch_add_explicit(bytes, n, memory_order_relaxed);
	atomic_fetch_add_explicit(ops, 1, memory_order_relaxed);
}

void request_reply_empty(struct request *req)
{
	count_done(req, 0);
	request_reply(req, ROS2_OK);
}

static void note_engine(struct request *req)
{
	struct rengine *e = &req->s->r->engines[req->file->mount->engine->slot];
	uint64_t now = e->engine->ops->copied_bytes(e->er);

	atomic_fetch_add_explicit(&req->s->stats.copied_bytes, now - e->copied_seen,
	                          memory_order_relaxed);
	e->copied_seen = now;
	req->s->r->own_pace = e->event_fd >= 0;
}

void request_engine_unneeded(struct engine_io *io)
{
	struct request *req = container_of(io, struct request, io);

	/* Of memory of the tenant's no engine has this part any more. */
	if (request_borrows(req))
		*borrowed_at(req) -= req->length;
	give_slot(req);
}

/* Its storage is away: it waits in its session again, and of what is shared it keeps only a payload
 * that has arrived. */
static void stand_back(struct request *req)
{
	count_out(req);
	if (req->lease)
		lease_unhold(req->s->r->leases, TAKE_PTR(req->lease));
	if (req->op == REQUEST_READ && !request_borrows(req))
		give_slot(req);
	req->has_payload = req->slot.mem != NULL;
	req->paid = true;
	admit_again(req);
}

void request_answer(struct request *req, int64_t res)
{
	if (res >= 0) {
		req->bytes = (uint32_t)MIN((uint64_t)res, req->length);
		count_done(req, req->bytes);
	}
	request_reply(req, res < 0 ? status_of(res) : ROS2_OK);
}

static void came_back(struct request *req, int64_t res)
{
	struct session *s = req->s;

	assert(req->state == REQUEST_ENGINE);
	s->n_engine--;
	s->r->n_engine--;
	/* Nothing was done of it: it is looked at again, and may have been renewed meanwhile. */
	if (res == ENGINE_LATE && s->state != SESSION_ENDED) {
		req->state = REQUEST_READY;
		list_add_tail(&s->r->ready, &req->link);
		return;
	}
	if (res == ENGINE_AWAY && s->state != SESSION_ENDED) {
		stand_back(req);
		return;
	}
	s->last_engine_ns = s->r->now_ns;
	note_engine(req);
	if (s->state == SESSION_ENDED) {
		release_late(req);
		return;
	}
	request_answer(req, res);
}

void request_engine_done(struct engine_io *io, int64_t res)
{
	struct request *req = container_of(io, struct request, io);
	struct reactor *r = req->s->r;
	struct dp_file *flushed = flush_is_over(req, &res);

	came_back(req, res);
	if (flushed)
		flush_answer(r, flushed, res);
}

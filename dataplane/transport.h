/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The face between the request pipeline and a transport: tcp, verbs or shm. The
 * transport knows how bytes travel and nothing of rights; the pipeline knows rights and nothing of
 * sockets. All of it runs on the session's reactor, but init.
 *
 * A transport calls request_*, session_violation and session_end; the pipeline calls the table
 * below.
 *
 * Rules: (1) a transport asks request_may_hand_on with a clock read for the purpose right before it
 * hands payload, or an invitation to send payload, to the kernel or a device, and reads the clock
 * once more as the last thing before the call: at request_until it hands nothing on; (2) after
 * reset() nothing more of the session is handed on, and what was queued is dropped; (3) a transport
 * allocates nothing after attach; (4) a request between request_to_device and request_from_device
 * is a device's, with its slot and its lease, whatever happens to its session meanwhile.
 */
#ifndef ROS2_DATAPLANE_TRANSPORT_H
#define ROS2_DATAPLANE_TRANSPORT_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lease;
struct session;
struct shm_piece;
struct request;
struct wire_header;

enum request_op { REQUEST_READ, REQUEST_WRITE, REQUEST_FLUSH, REQUEST_ZERO, REQUEST_DISCARD };

/* It changes bytes and brings none. */
static inline bool request_op_clears(enum request_op op)
{
	return op == REQUEST_ZERO || op == REQUEST_DISCARD;
}

/* What a peer asks for; every number is hostile. */
struct request_in {
	enum request_op op;
	bool has_payload; /* WRITE: the payload comes with it */
	uint64_t id, handle, offset, address;
	uint32_t length, key;
};

/* Of READ, WRITE, FLUSH, ZERO or DISCARD. */
struct request_in request_in_of(const struct wire_header *h);

enum request_verdict {
	REQUEST_TAKEN,   /* *ret is set; with has_payload: fill request_buffer(), then
	                    request_payload_arrived() */
	REQUEST_REFUSED, /* answered; its payload must be skipped; the session may have ended */
	REQUEST_WAIT, /* no room now: ask again when the reactor turns; nothing else of this session
	                 may overtake it */
};
enum request_verdict request_begin(struct session *s, const struct request_in *in,
                                   struct request **ret);
void *request_buffer(struct request *req, uint32_t *ret_len);
void request_payload_arrived(struct request *req);
/* OK: payload (READ) or the invitation (WRITE) may be handed on under the request's lease at
 * @now_ns. Else why not. */
enum ros2_status request_may_hand_on(struct request *req, uint64_t now_ns);
/* The reply has left; the request is over and must not be touched. */
void request_handed_on(struct request *req);
/* A device has it now, and gave it back: the work that was posted for it is done or flushed. False:
 * its session has ended meanwhile, and the request with it. */
void request_to_device(struct request *req);
bool request_from_device(struct request *req);

struct transport_ops {
	const char *name;
	/* It can send payload from memory that is not a slot: engines may lend theirs. */
	bool takes_parts;
	/* Payload moves by the tenant's windows: a lease without one is good for nothing. */
	bool needs_window;
	/* The tenant's memory as this process has it, for engines that take any: payload goes
	 * through no slot then. NULL, or NULL returned: there is none. */
	void *(*memory)(const struct session *s, uint64_t address, uint64_t len);
	/* The piece of it that an RDMA device knows, for engines that lend; the request's until
	 * shm_lend_give. @l allows those bytes. NULL, or NULL returned: there is none now. */
	struct shm_piece *(*piece)(struct session *s, const struct lease *l, uint64_t address,
	                           uint32_t len);
	/* May it be leased? NULL: any may. */
	bool (*has_region)(const struct session *s, uint64_t base, uint64_t len);
	/* Its own part of a session, session.channel: so many bytes, zeroed, that live as long as
	 * the session. init, on the loop, makes them ready and gives every request its request.out.
	 */
	size_t channel_size;
	void (*init)(struct session *s);
	/* Queues the reply: status, bytes and, for a READ with bytes, the payload in the request's
	 * slot, or in the parts that the engine lent. */
	void (*reply)(struct session *s, struct request *req);
	/* Queues the invitation to send the payload of a WRITE. */
	void (*pull)(struct session *s, struct request *req);
	/* Queues the end of something that never became a request. @words NULL: a COMPLETE; else a
	 * NAK. */
	void (*refuse)(struct session *s, uint64_t request_id, enum ros2_status status,
	               const char *words);
	/* Takes what has come in. */
	void (*receive)(struct session *s);
	/* Hands on what is queued, as far as it goes. */
	void (*flush)(struct session *s);
	/* Ends the connection; @discard: what is not on its way yet must never arrive. */
	void (*close)(struct session *s, bool discard);
	/* @req is being released: drops what is queued for it. */
	void (*forget)(struct session *s, struct request *req);
	/* Nothing is queued, here or in the kernel: a plain close leaves nothing behind. */
	bool (*idle)(const struct session *s);
	/* Something of the session waits until the peer reads, or sends what it was asked for. */
	bool (*waits_for_peer)(const struct session *s);
	/* Bytes that the peer has taken and sent so far. */
	uint64_t (*moved)(const struct session *s);
	/* Time passes over a connection. NULL: nothing depends on that. */
	void (*tick)(struct session *s, uint64_t now_ns);
	/* After close: a device still holds something of the session besides requests. NULL: never.
	 * When it no longer does, the transport calls session_maybe_gone. */
	bool (*busy)(const struct session *s);
	/* Loop, when the end of a session is told: what else is known of why, in @max bytes behind
	 * its words. NULL: never anything. */
	void (*end_more)(const struct session *s, char *out, size_t max);
	/* The last call for a session: frees what it has of the device. NULL: nothing. */
	void (*gone)(struct session *s);
};
extern const struct transport_ops transport_tcp, transport_verbs, transport_shm;
#endif

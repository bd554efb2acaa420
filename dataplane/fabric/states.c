// SPDX-License-Identifier: Apache-2.0
/*
 * Names, and the tables of moves that are legal: of windows, queue pairs and connections. No
 * device, no state: whoever changes a state asks here first and asserts, because an illegal move is
 * our own bug.
 */
#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"
#include "common/util.h"

#define NAME_OF(table, i) ((size_t)(i) < ARRAY_SIZE(table) && (table)[i] ? (table)[i] : "unknown")
#define BIT(x)            (1u << (x))

const char *fabric_window_state_to_str(enum fabric_window_state s)
{
	static const char *const names[FABRIC_WINDOW_STATES] = {
		[FABRIC_WINDOW_FREE] = "free",   [FABRIC_WINDOW_BINDING] = "binding",
		[FABRIC_WINDOW_BOUND] = "bound", [FABRIC_WINDOW_INVALIDATING] = "invalidating",
		[FABRIC_WINDOW_GONE] = "gone",   [FABRIC_WINDOW_SET_ASIDE] = "set aside",
	};
	return NAME_OF(names, s);
}

bool fabric_window_state_may_follow(enum fabric_window_state from, enum fabric_window_state to)
{
	static const uint8_t legal[FABRIC_WINDOW_STATES] = {
		[FABRIC_WINDOW_FREE] = BIT(FABRIC_WINDOW_BINDING),
		[FABRIC_WINDOW_BINDING] = BIT(FABRIC_WINDOW_BOUND) |
	                                  BIT(FABRIC_WINDOW_INVALIDATING) |
	                                  BIT(FABRIC_WINDOW_GONE) | BIT(FABRIC_WINDOW_SET_ASIDE),
		[FABRIC_WINDOW_BOUND] = BIT(FABRIC_WINDOW_INVALIDATING) | BIT(FABRIC_WINDOW_FREE) |
	                                BIT(FABRIC_WINDOW_GONE) | BIT(FABRIC_WINDOW_SET_ASIDE),
		[FABRIC_WINDOW_INVALIDATING] = BIT(FABRIC_WINDOW_FREE) | BIT(FABRIC_WINDOW_GONE) |
	                                       BIT(FABRIC_WINDOW_SET_ASIDE),
		[FABRIC_WINDOW_GONE] = BIT(FABRIC_WINDOW_FREE),
		[FABRIC_WINDOW_SET_ASIDE] = BIT(FABRIC_WINDOW_GONE),
	};
	return (size_t)from < FABRIC_WINDOW_STATES && (size_t)to < FABRIC_WINDOW_STATES &&
	       (legal[from] & BIT(to));
}

const char *fabric_qp_state_to_str(enum fabric_qp_state s)
{
	static const char *const names[FABRIC_QP_STATES] = {
		[FABRIC_QP_MADE] = "made",
		[FABRIC_QP_JOINING] = "joining",
		[FABRIC_QP_READY] = "ready",
		[FABRIC_QP_FAILED] = "failed",
	};
	return NAME_OF(names, s);
}

bool fabric_qp_state_may_follow(enum fabric_qp_state from, enum fabric_qp_state to)
{
	static const uint8_t legal[FABRIC_QP_STATES] = {
		[FABRIC_QP_MADE] = BIT(FABRIC_QP_JOINING) | BIT(FABRIC_QP_FAILED),
		[FABRIC_QP_JOINING] = BIT(FABRIC_QP_READY) | BIT(FABRIC_QP_FAILED),
		[FABRIC_QP_READY] = BIT(FABRIC_QP_FAILED),
		[FABRIC_QP_FAILED] = 0,
	};
	return (size_t)from < FABRIC_QP_STATES && (size_t)to < FABRIC_QP_STATES &&
	       (legal[from] & BIT(to));
}

const char *fabric_conn_state_to_str(enum fabric_conn_state s)
{
	static const char *const names[FABRIC_CONN_STATES] = {
		[FABRIC_CONN_RESOLVING] = "resolving", [FABRIC_CONN_RESOLVED] = "resolved",
		[FABRIC_CONN_ASKED] = "asked",         [FABRIC_CONN_REQUESTED] = "requested",
		[FABRIC_CONN_ACCEPTED] = "accepted",   [FABRIC_CONN_UP] = "up",
		[FABRIC_CONN_ENDED] = "ended",
	};
	return NAME_OF(names, s);
}

bool fabric_conn_state_may_follow(enum fabric_conn_state from, enum fabric_conn_state to)
{
	static const uint8_t legal[FABRIC_CONN_STATES] = {
		[FABRIC_CONN_RESOLVING] = BIT(FABRIC_CONN_RESOLVED) | BIT(FABRIC_CONN_ENDED),
		[FABRIC_CONN_RESOLVED] = BIT(FABRIC_CONN_ASKED) | BIT(FABRIC_CONN_ENDED),
		[FABRIC_CONN_ASKED] = BIT(FABRIC_CONN_UP) | BIT(FABRIC_CONN_ENDED),
		[FABRIC_CONN_REQUESTED] = BIT(FABRIC_CONN_ACCEPTED) | BIT(FABRIC_CONN_ENDED),
		[FABRIC_CONN_ACCEPTED] = BIT(FABRIC_CONN_UP) | BIT(FABRIC_CONN_ENDED),
		[FABRIC_CONN_UP] = BIT(FABRIC_CONN_ENDED),
		[FABRIC_CONN_ENDED] = 0,
	};
	return (size_t)from < FABRIC_CONN_STATES && (size_t)to < FABRIC_CONN_STATES &&
	       (legal[from] & BIT(to));
}

const char *fabric_event_kind_to_str(enum fabric_event_kind k)
{
	static const char *const names[] = {
		[FABRIC_EVENT_DEVICE_REMOVED] = "device removed",
		[FABRIC_EVENT_PORT_UP] = "port up",
		[FABRIC_EVENT_PORT_DOWN] = "port down",
		[FABRIC_EVENT_QP_FAILED] = "queue pair failed",
		[FABRIC_EVENT_CQ_FAILED] = "completion queue failed",
		[FABRIC_EVENT_OTHER] = "other",
	};
	return NAME_OF(names, k);
}

const char *fabric_conn_event_kind_to_str(enum fabric_conn_event_kind k)
{
	static const char *const names[] = {
		[FABRIC_CONN_EVENT_REQUEST] = "request",
		[FABRIC_CONN_EVENT_RESOLVED] = "resolved",
		[FABRIC_CONN_EVENT_ESTABLISHED] = "established",
		[FABRIC_CONN_EVENT_REJECTED] = "rejected",
		[FABRIC_CONN_EVENT_ENDED] = "ended",
	};
	return NAME_OF(names, k);
}

const char *fabric_op_to_str(enum fabric_op op)
{
	static const char *const names[] = {
		[FABRIC_OP_SEND] = "send", [FABRIC_OP_RECV] = "recv",
		[FABRIC_OP_READ] = "read", [FABRIC_OP_WRITE] = "write",
		[FABRIC_OP_BIND] = "bind", [FABRIC_OP_INVALIDATE] = "invalidate",
	};
	return NAME_OF(names, op);
}

const char *fabric_end_to_str(enum fabric_end e)
{
	static const char *const names[] = {
		[FABRIC_END_OK] = "ok",
		[FABRIC_END_FLUSHED] = "flushed",
		[FABRIC_END_LOCAL] = "local error",
		[FABRIC_END_REMOTE_ACCESS] = "remote access refused",
		[FABRIC_END_REMOTE_OTHER] = "remote error",
		[FABRIC_END_NO_ANSWER] = "no answer",
		[FABRIC_END_NO_RECEIVE] = "no receive posted",
		[FABRIC_END_DEVICE] = "device error",
	};
	return NAME_OF(names, e);
}

const char *fabric_receipt_how_to_str(enum fabric_receipt_how h)
{
	static const char *const names[] = {
		[FABRIC_BY_INVALIDATE] = "invalidate",
		[FABRIC_BY_DEALLOC] = "dealloc",
		[FABRIC_BY_QP_ERROR] = "queue pair error",
	};
	return NAME_OF(names, h);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between libros2 and the fake agent: makes one control call fail, or that one and all after it,
 * and counts what such a failure may leave at the agent. Time passes when the library sleeps
 * (rpc_tap_in_library) or an answer does not come, and then at once: for programs linked with
 * --wrap=usleep, poll and clock_monotonic_ns.
 */
#ifndef ROS2_TESTS_RPC_TAP_H
#define ROS2_TESTS_RPC_TAP_H

#include "tests/client/fake_agent.h"

enum fault {
	FAULT_NONE,
	FAULT_NOT_SENT,   /* never arrives; the connection broke */
	FAULT_LOST,       /* carried out; the connection broke */
	FAULT_STUCK,      /* never arrives; nothing is said */
	FAULT_LATE,       /* carried out; nothing is said */
	FAULT_BUSY,       /* refused: later */
	FAULT_LIMIT,      /* refused by name */
	FAULT_NO_SESSION, /* refused: the agent has ended the session */
	FAULT_RESTARTED,  /* never arrives; the agent begins anew, without sessions */
	FAULT_DIED,       /* carried out; likewise */
	/* What must not be, for the controls. */
	FAULT_LIE,       /* not carried out, and answered OK */
	FAULT_TWICE,     /* carried out, and again */
	FAULT_ELSEWHERE, /* carried out in another namespace */
	FAULT_LEAK,      /* and another lease, of which nobody knows */
	FAULT_LAST,
};
const char *fault_to_str(enum fault f);
/* What the library is told. */
enum ros2_status fault_says(enum fault f);

struct rpc_tap {
	struct control base;
	struct control *to; /* owned */
	struct fake_agent *agent;
	enum fault fault;
	unsigned at; /* the call that fails, from 1; 0 = none */
	bool for_good;
	const char *ns; /* where the program means to change something */
	/* what happened */
	_Atomic unsigned calls, fired;
	_Atomic uint32_t methods; /* that were called: rpc_tap_method */
	unsigned elsewhere;
	bool misbehaved; /* a FAULT_LIE or one after it has met a call that it is of */
	/* What the agent may have that the library does not know. */
	unsigned stray_sessions, stray_mounts, stray_handles;
	_Atomic unsigned stray_leases, lost_renewals;
};

/* @t belongs to the caller and outlives the client that &t->base is given to. */
void rpc_tap_init(struct rpc_tap *t, struct fake_agent *a);

/* A bit for each method of the Tenant service. */
uint32_t rpc_tap_method(const struct rpc_method *m);

extern _Atomic uint64_t rpc_tap_passed_ns;
extern _Thread_local bool rpc_tap_in_library;
/* So often the library waited on its connection for long, and nothing came. */
extern _Atomic unsigned rpc_tap_vain_waits;
#endif

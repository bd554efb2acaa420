/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that turn single checks of the agent off, for negative controls: a test of a check means
 * something only if the attack works without it. They exist only in the test that compiles the file
 * with ROS2_AGENT_TEST_SWITCHES; elsewhere AGENT_SWITCH is the constant false and no symbol
 * remains.
 */
#ifndef ROS2_AGENT_TEST_SWITCHES_H
#define ROS2_AGENT_TEST_SWITCHES_H

#include <stdbool.h>

#ifdef ROS2_AGENT_TEST_SWITCHES
struct agent_test_switches {
	_Atomic bool no_session_owner;   /* who knows the uid of a session has it */
	_Atomic bool no_session_tenant;  /* it is its principal's, whatever the tenant */
	_Atomic bool no_tenant_end;      /* sessions stay when their tenant is gone */
	_Atomic bool no_grant_tenant;    /* a grant is of its principal, whatever the tenant */
	_Atomic bool no_path_grammar;    /* a path says what it likes */
	_Atomic bool no_size_check;      /* a file may be cut to any size */
	_Atomic bool no_region_shape;    /* a region may be empty, or go on behind all memory */
	_Atomic bool no_refusal_records; /* what is malformed is refused, but not recorded */
	_Atomic bool no_spool_room;      /* who is called does not ask if a record finds place */
	_Atomic bool no_verb_limit;      /* controlVerbsPerSecond is counted, not enforced */
	_Atomic bool
		no_waiting_share; /* one tenant may wait for all grants that can be waited for */
	_Atomic bool no_connection_cap; /* one connection may have any number of sessions */
	_Atomic bool no_record_limit;   /* records of what was done are counted, not bounded */
	_Atomic bool no_record_bound;   /* each refusal is a record of its own */
	_Atomic bool no_session_trust;  /* whose CA is gone from the bundle keeps his sessions */
	_Atomic bool receipt_unwritten; /* a receipt does not wait for the disk */
	_Atomic bool contact_kept;      /* what took away and found no room leaves the stamp */
	_Atomic bool
		no_transport_check; /* transports and engines that are not good enough are used */
};
extern struct agent_test_switches agent_test_switches; /* set before a call comes */
#define AGENT_SWITCH(name) (agent_test_switches.name)
#else
#define AGENT_SWITCH(name) false
#endif
#endif

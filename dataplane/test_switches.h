/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that turn single checks off, for negative controls: a test of a check means something
 * only if the attack works without it. They exist only in the library ros2_dataplane_unsafe, which
 * no shipped program links; elsewhere DP_SWITCH is the constant false and no symbol remains.
 */
#ifndef ROS2_DATAPLANE_TEST_SWITCHES_H
#define ROS2_DATAPLANE_TEST_SWITCHES_H

#include <stdbool.h>

struct engine_ops;

#define DP_CREDITS_FEW 8u

#ifdef ROS2_TEST_SWITCHES
struct dp_test_switches {
	bool no_lease_check;      /* any key is good */
	bool no_descriptor_share; /* open files of a tenant are counted, not bounded */
	bool no_handle_check;     /* the index of a handle is enough */
	bool no_deadline_recheck; /* rights are looked at when a request arrives, not when it is
	                             handed on, nor by the timer */
	bool no_last_look;        /* nor between the look at them and the system call behind it */
	bool no_contact_check;    /* losing the controller ends nothing */
	bool no_early_refusal;    /* who asks over verbs and proves nothing is left to wait */
	bool no_key_owner;        /* a key is good on every connection */
	bool no_key_generation;   /* the index of a key is enough, whatever its random bits */
	bool no_proof;            /* a connection needs to know no secret */
	bool no_access_check;     /* any lease allows reading and writing */
	bool no_open_check;       /* any handle is open for reading and writing */
	bool no_range_check;      /* a lease is for all of memory */
	bool no_length_check;     /* a request is as long as it says */
	bool no_offset_check;     /* and wherever it says */
	bool no_region_shape;     /* whoever registers may name no memory, or more than there is */
	bool no_lease_shape;      /* and has a lease of it */
	bool no_size_check;       /* a file may be cut to any size */
	bool no_pull_check;       /* DATA answers the oldest PULL, whatever it says */
	bool no_freeze;           /* a revocation that could not be held stops nothing else */
	bool no_expiry;           /* a lease ends when its session does */
	bool no_session_share;    /* one tenant may have all sessions of a reactor */
	bool no_key_share;        /* and all of its keys */
	bool no_slot_share;       /* and all of its buffers */
	bool no_stall_end;        /* and keep them, whoever waits for them */
	bool no_session_end;      /* a revocation is answered, and no session ends */
	bool no_key_end;          /* the end of a right ends no key of a storage target */
	bool no_key_wait;         /* a revocation is answered before the device has ended them */
	bool no_beneath;          /* paths of the file engine go where their names lead */
	bool no_path_grammar;     /* and say what they like: "..", no name at all */
	bool no_one_name;         /* of files that have a second one, too */
	bool no_lost_share;       /* who waits for storage that is away may take what there is */
	bool no_look_again;       /* who was left out for that waits for another to end */
	bool no_engine_share;     /* calls at one engine may take all workers */
	bool no_closes_share;     /* what is closed may take all workers */
	bool no_pulled_places;    /* payloads that were asked for take what places they like */
	bool no_crowded_end;      /* who never answers keeps an engine's share from others */
	bool refusals_count;      /* what a tenant's device refuses is a violation */
	bool no_rnr_limit;        /* a peer that takes no answers is waited for without end */
	bool remote_operations;   /* tenants' queue pairs take RDMA */
	bool no_room_byte;        /* a tenant that waits for room over shm is told of none */
	bool no_shm_share;        /* one tenant may take all of what all tenants share */
	bool ends_get_lost;       /* what the kernel had no room to tell is never found */
	bool no_seal;             /* a tenant may do to memory over shm what it likes */
	bool passes_descriptors; /* sockets over shm can be sent open files, as before Linux 6.16 */
	bool no_descriptor_look; /* and they are taken as they come */
	bool no_slow_end;        /* calls take as long as a peer likes, and all that has come */
	bool no_turn_bounds;     /* a turn does all there is to do for connections */
	bool no_lend_wait;       /* memory is unmapped whatever a device knows of it */
	bool lends_unseen;       /* it is lent by whole regions, whatever was seen of the device */
	bool bye_leaves;         /* who said BYE is gone when the kernel has what it is to get */
	bool flushes_at_once;    /* any number of flushes of a file are with the engine, and a call
	                            believes what it says whoever else was there */
	bool no_clear_bounds;    /* a tenant clears as much at once as it asks, and flushes */
	bool no_borrowed_bound;  /* engines have as much of a tenant's own memory as it asks */
	bool no_depth_bound;     /* and of its requests, whoever else is there */
	bool no_control_bound;   /* a tenant has any number of control calls at once */
	bool no_shm_limit;       /* and as much memory over shm as all tenants have together */
	bool no_seals_share;     /* of which it may write to all while it is sealed */
	bool no_ctrl_share;      /* it may have all controllers of an nvmf engine */
	unsigned room_pace_ms; /* of kept slots for RDMA one goes for others so seldom; 0 = ours */
	bool few_credits;      /* DP_CREDITS_FEW requests in flight, not what there is room for */
	/* An engine type of the test's own, found before the real ones; NULL for none. */
	const struct engine_ops *extra_engine;
};
extern struct dp_test_switches dp_test_switches; /* set before dp_new */
#define DP_SWITCH(name) (dp_test_switches.name)
#else
#define DP_SWITCH(name) false
#endif
#endif

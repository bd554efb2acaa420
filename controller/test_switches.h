/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that turn single checks of the controller off, for negative controls: a test of a check
 * means something only if the attack works without it. They exist only in the test that compiles
 * the file with ROS2_CTL_TEST_SWITCHES; elsewhere CTL_SWITCH is the constant false and no symbol
 * remains.
 */
#ifndef ROS2_CONTROLLER_TEST_SWITCHES_H
#define ROS2_CONTROLLER_TEST_SWITCHES_H

#include <stdbool.h>

#ifdef ROS2_CTL_TEST_SWITCHES
struct ctl_test_switches {
	_Atomic bool no_roles;       /* whoever an administrators' CA has signed may do all */
	_Atomic bool no_expect_uid;  /* a name is deleted, whoever has it now */
	_Atomic bool no_isolation;   /* an isolated agent is let in */
	_Atomic bool no_agent_key;   /* an agent's name is enough, whatever key it enrolled with */
	_Atomic bool no_agent_uid;   /* the uid of a hello may be of who had the name before */
	_Atomic bool no_lineage;     /* an agent of another controller's history is taken */
	_Atomic bool no_newer_epoch; /* and one that has heard a newer controller */
	_Atomic bool no_placement;   /* a grant is for tenants wherever they are placed */
	_Atomic bool no_principal;   /* and for whomever the agent says */
	_Atomic bool no_revocation;  /* and for tenants that are revoked */
	_Atomic bool no_grant_owner; /* an agent ends and renews the grants of another */
	_Atomic bool no_giving_back; /* a grant that was given back is sent again */
	_Atomic bool no_record_tenant; /* its records are of the tenant that they name */
	_Atomic bool no_record_origin; /* and of the agent that they name */
	_Atomic bool no_state_owner;   /* it tells how far objects came that it was never sent */
	_Atomic bool no_report_owner;  /* it answers what another one was asked */
	_Atomic bool no_receipt_owner; /* its receipt is for whoever owes one */
	_Atomic bool no_token_agent;   /* a token opens every agent's name */
	_Atomic bool no_token_once;    /* as often as it is shown, for any key */
	_Atomic bool no_grant_limit;   /* a tenant has any number of grants at an agent */
	_Atomic bool no_hello_rate;    /* an agent says hello as often as it likes */
	_Atomic bool no_question_max;  /* any number of administrators ask the agents at once */
	_Atomic bool no_page_max;      /* and wait for pages of the store */
};
extern struct ctl_test_switches ctl_test_switches;
#define CTL_SWITCH(name) (ctl_test_switches.name)
#else
#define CTL_SWITCH(name) false
#endif
#endif

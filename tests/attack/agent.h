/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on an agent by a tenant that speaks its protocol over verbs by hand. A site is what is
 * attacked: agent_real.c a real agent with its controller, agent_control.c the same data plane with
 * a check switched off (dataplane/test_switches.h). The same code attacks both.
 */
#ifndef ROS2_TESTS_ATTACK_AGENT_H
#define ROS2_TESTS_ATTACK_AGENT_H

#include "tests/attack/attack.h"
#include "tests/attack/verbs_peer.h"

enum tenant { ALPHA, BETA };

struct site {
	void *own;
	/* OpenSession over verbs; 0, or -errno (-EDQUOT: there may not be more). */
	int (*session)(struct site *site, enum tenant who, struct peer_session *ret);
	/* A file of the session's own, and a region of PEER_TARGET bytes at @address. */
	int (*prepare)(struct site *site, enum tenant who, struct peer_session *s,
	               uint64_t address);
	int (*close)(struct site *site, enum tenant who, const struct peer_session *s);
};

struct agent_attack {
	const char *name, *words, *source, *defence;
	int (*run)(struct site *site, struct attack_try *t);
	/* the control is in this program: the same agent, attacked where nothing is claimed */
	bool own_control;
	/* the switch of the data plane that the control turns off; NULL: tests/attack/verbs_*
	 * have the control */
	const char *control;
	bool defect; /* of this device: the script shows the rest */
	bool flood;  /* tried by tests/attack/floods */
	bool alone;  /* by name only: nobody else may work there */
};
int agent_share_of_throughput(struct site *site, struct attack_try *t);
extern const struct agent_attack agent_attacks[];
extern const unsigned n_agent_attacks;
#endif

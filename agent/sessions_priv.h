/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the session table: sessions.c keeps it, session_events.c reacts to the world. */
#ifndef ROS2_AGENT_SESSIONS_PRIV_H
#define ROS2_AGENT_SESSIONS_PRIV_H

#include "agent/grants_priv.h"
#include "agent/sessions.h"

/* What is counted of one tenant, or of one connection, as long as it has a session here: who asks
 * for one more makes nobody look at all there are. */
struct sessions_tenant {
	struct ros2_uid uid;
	uint32_t n_live, n_ended;
	struct list ended; /* agent_session, oldest first */
	UT_hash_handle hh;
};
struct sessions_peer {
	char address[64]; /* agent_session.peer */
	uint32_t n_live;
	UT_hash_handle hh;
};

struct sessions {
	struct agent *a;
	struct agent_session *all;       /* owned */
	struct sessions_tenant *tenants; /* owned */
	struct sessions_peer *peers;     /* owned */
	struct list ended;
	struct sessions_account *accounts; /* owned */
	uint32_t n_live, n_ended;
	struct pki_trust
		*trust; /* a reference; NULL: the tenants' bundle of the start, which TLS knows */
	uint64_t generation; /* of it */
	struct loop_timer judge;
};

/* With its words, unless the agent ended it for a reason of its own. */
void sessions_ended_in_dp(struct agent_session *s, const struct dp_event *ev);
/* The statistics of a session that ends. */
void sessions_account_end(struct agent_session *s, const struct dp_session_stats *st);
/* Soon: those that were not judged by the present bundle are. */
void sessions_judge_soon(struct sessions *t);
void sessions_forget_old(struct sessions *t, uint64_t now_ns);
void sessions_ignore(void *arg, const struct dp_result *res);
#endif

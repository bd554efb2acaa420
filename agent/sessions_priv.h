/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the session table: sessions.c keeps it, session_events.c reacts to the world. */
#ifndef ROS2_AGENT_SESSIONS_PRIV_H
#define ROS2_AGENT_SESSIONS_PRIV_H

#include "agent/grants_priv.h"
#include "agent/sessions.h"

struct sessions {
	struct agent *a;
	struct agent_session *all; /* owned */
	struct list ended;
	struct sessions_account *accounts; /* owned */
	uint32_t n_live, n_ended;
};

/* With its words, unless the agent ended it for a reason of its own. */
void sessions_ended_in_dp(struct agent_session *s, const struct dp_event *ev);
/* The statistics of a session that ends. */
void sessions_account_end(struct agent_session *s, const struct dp_session_stats *st);
void sessions_forget_old(struct sessions *t, uint64_t now_ns);
void sessions_ignore(void *arg, const struct dp_result *res);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* One agent's stream, for the files that know messages: link.c, outbox.c, reports.c. Loop thread.
 */
#ifndef ROS2_CONTROLLER_LINK_PRIV_H
#define ROS2_CONTROLLER_LINK_PRIV_H

#include "controller/ctl.h"
#include "proto/ros2/v1/agentlink.pb-c.h"

struct rpc_stream;

struct link {
	struct rpc_stream *stream; /* borrowed: until on_closed */
	struct svc *svc;           /* borrowed */
	struct ctl_agent
		*agent; /* borrowed; NULL before hello, and after another stream took over */
	char name[ROS2_NAME_MAX + 1], spiffe[ROS2_SPIFFE_MAX + 1];
	struct list all; /* of svc.links */
	uint64_t nonce;
	bool ending;
};

/* A queue that is full ends the stream: the agent resumes from what it has. */
void link_send(struct link *l, const Ros2__V1__ControllerMessage *m);
/* What is sent between cork and its undoing leaves together; nests. */
void link_cork(struct link *l, bool cork);
/* link_hello.c: 0, or why this hello of @a is not accepted */
int link_check_hello(struct link *l, struct ctl_agent *a, const Ros2__V1__AgentHello *h,
                     struct ros2_err *err);
/* Likewise, of what it says it has. */
int link_check_documents(struct link *l, const Ros2__V1__AgentHello *h, struct ros2_err *err);
/* What a hello that was accepted says it has. False: no memory. */
bool link_take_have(struct ctl_agent *a, const Ros2__V1__AgentHello *h);
/* What costs everybody's loop something: of one agent so many a second, BUSY beyond. A bucket of
 * HELLOS_FIRST that fills HELLOS_PER_S a second. @n_have: objects of a hello. */
int link_check_rate(struct ctl_agent *a, size_t n_have, struct ros2_err *err);
int link_take_stamp(const Ros2__V1__Stamp *in, struct clock_stamp *out);
/* Text of an agent that is shown: as much as fits. A character that was cut would make the whole
 * answer that it is shown in no message. */
void link_take_text(char *out, size_t size, const char *in);
/* link_probe.c */
void link_on_probe(struct link *l, const Ros2__V1__ProbeReport *m);
void link_take_targets(struct ctl_agent *a, const Ros2__V1__Beat *b);
/* in->pending is the caller's to free. */
void link_take_pending(const Ros2__V1__Receipt *r, struct ctl_receipt *in);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this agent's devices and transports were seen to enforce: tried once per start of the
 * process on a thread of its own, told to the controller on every stream, and asked before a tenant
 * that requires something gets a session. Until the answer is there nothing counts as seen. Loop
 * thread.
 */
#ifndef ROS2_AGENT_PROBER_H
#define ROS2_AGENT_PROBER_H

#include "common/err.h"
#include "common/probe.h"
#include "dataplane/dp.h"

struct agent;
struct prober;

/* Tries everything there is, shm only when this agent offers it; on the prober's thread, bounded in
 * time. 0 and *ret_n subjects, or an error with words: nothing was seen then. */
typedef int (*prober_fn)(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                         struct ros2_err *err);

int prober_new(struct agent *a, struct prober **ret);
/* Tries all, and again when called again: the old answers count until the new ones are there, and
 * sessions that these do not allow end then. With a->o.probe NULL there is nothing to try. */
void prober_start(struct prober *p);
/* Waits for what is being tried. The loop still runs its last callback, so memory goes with
 * prober_free. */
void prober_stop(struct prober *p);
void prober_free(struct prober *p);

/* Sends the report, if there is one: after each Welcome, and when it is there. */
void prober_tell(struct prober *p);
/* Does what a session over @t goes by enforce all of @required? 0; -EBUSY while it is being tried;
 * -EACCES with the property that was not seen. */
int prober_allows_transport(const struct prober *p, enum dp_transport t, uint32_t required,
                            struct ros2_err *err);
/* The same of what lies between this agent and an engine: the device that a namespace of a tenant
 * would go over. Engines that are here, or reached over TCP, are always allowed. */
int prober_allows_engine(const struct prober *p, const char *engine, uint32_t required,
                         struct ros2_err *err);
#endif

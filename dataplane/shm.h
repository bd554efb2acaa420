/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm transport as the reactor sees it. Every function accepts a reactor that offers none, and
 * does nothing then. The reactor's thread, but shm_listen and shm_unlisten.
 */
#ifndef ROS2_DATAPLANE_SHM_H
#define ROS2_DATAPLANE_SHM_H

#include "common/err.h"
#include "dataplane/source.h"
#include <stdbool.h>
#include <stdint.h>

struct host_key;
struct reactor;
struct session;
struct slow;
struct wire_welcome;

/* Loop, before the thread runs: a socket of the reactor's own in dp_opts.shm_dir. -EADDRINUSE:
 * somebody listens there; -ENAMETOOLONG; -EACCES, ... */
int shm_listen(struct reactor *r, struct ros2_err *err);
/* Loop, after the thread has ended. */
void shm_unlisten(struct reactor *r);
/* The session proved itself on @fd, which it takes when this returns 0; of the user @from, with
 * calls as slow as @slow says so far. */
int shm_start(struct session *s, int fd, const struct wire_welcome *w, const struct host_key *from,
              const struct slow *slow);
void shm_event(struct source *src, uint32_t events);
/* Looks into the rings of its sessions. */
void shm_poll(struct reactor *r);
/* Tells the tenants that the reactor is about to sleep. True: it may not, something has come. */
bool shm_must_poll(struct reactor *r);
#endif

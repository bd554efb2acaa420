/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hostile programs share: who they are, two tenants with a session each (the attacker and
 * the neighbour), and what must hold after every attempt.
 */
#ifndef ROS2_TESTS_HOSTILE_HOSTILE_H
#define ROS2_TESTS_HOSTILE_HOSTILE_H

#include "tests/client/raw/raw.h"
#include "tests/rpc/bytes_call.h"
#include <sys/types.h>

/* A tenant with a session that is connected, a file and a region. */
struct tenant_end {
	const char *name;
	struct raw raw;
	struct bytes_channel *bytes;
	struct raw_session s;
	int fd; /* -1: no session */
	uint32_t mount, key, generation;
	uint64_t handle;
};

struct hostile {
	const char *dir;                           /* of the cluster */
	const char *admin, *link, *enrol, *tenant; /* host:port */
	pid_t controller, agent;
	struct tenant_end a, b; /* the neighbour and the attacker */
	struct bytes_channel *admin_bytes;
	unsigned tests, failed, problems;
};

/* From the environment (HOSTILE_*), or exits 2 with words. */
void hostile_init(struct hostile *h);
void hostile_fini(struct hostile *h);
/* "DIR/..." in a buffer of its own until 16 calls later. */
const char *hostile_path(const struct hostile *h, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* TAP. A problem is a line of diagnosis; hostile_test ends a test: ok when there was none since. */
void hostile_problem(struct hostile *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void hostile_test(struct hostile *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

bool tenant_open(struct tenant_end *t, struct ros2_err *err);
void tenant_close(struct tenant_end *t);
/* The neighbours' calls: an administrator's Status, a tenant's StatHandle. Problems when they fail
 * or take more than two seconds. */
void neighbours_work(struct hostile *h);
/* Both processes live, health is SERVING everywhere, memory is below @limit_kb more than at first.
 */
void servers_live(struct hostile *h);
/* The reply, or "NAME: words" with a name of common/status.h that is not INTERNAL. */
bool is_named(const struct bytes_result *r);

/* rpc_garbage.c, wire_garbage.c */
void rpc_garbage(struct hostile *h);
void wire_garbage(struct hostile *h);
#endif

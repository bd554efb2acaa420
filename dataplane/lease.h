/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease table: the one place that decides whether a key is good. Every transport asks here, so
 * a key means the same on all of them. One table per reactor; only the reactor's thread touches it;
 * no allocation after lease_table_new.
 *
 * Key: 32 bits = index (low LEASE_INDEX_BITS) | random bits; the index comes from a shuffled free
 * pool that gives back the one freed longest ago, the random bits are drawn anew each time and
 * never equal to the last ones of that index, so a value is never the next one used again. Key 0 is
 * never issued.
 *
 * End of life of a lease: 1. LIVE -> ENDED (expiry, deregister, revoke): no check succeeds from
 * here on. 2. in-flight holds drain. 3. at zero holds the entry goes back to the pool. Between 1
 * and 3 the memory it names may still be a target of what was handed on before: lease_draining()
 * counts those.
 */
#ifndef ROS2_DATAPLANE_LEASE_H
#define ROS2_DATAPLANE_LEASE_H

#include "common/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEASE_INDEX_BITS  16
#define LEASE_MAX         (1u << LEASE_INDEX_BITS)
#define LEASE_TENANTS_MAX 1024u /* tenant indexes are below this */

enum lease_access { LEASE_READ = 1, LEASE_WRITE = 2 }; /* what the agent may do to the memory */

enum lease_state { LEASE_FREE, LEASE_LIVE, LEASE_ENDED };
const char *lease_state_to_str(enum lease_state s);

struct lease {
	uint64_t lease_id; /* unique per agent process; what the audit log names */
	uint64_t base, length;
	uint64_t deadline_ns; /* CLOCK_BOOTTIME */
	uint64_t grant;       /* the data plane's id of the grant it rests on */
	uint32_t tenant;      /* index of the tenant at this agent */
	uint32_t pd;          /* protection domain: tenant x device */
	uint64_t conn;        /* the ONE queue pair or connection, with generation */
	uint32_t key;
	uint32_t generation; /* of this index, never repeats within a process */
	uint32_t holds;      /* transfers handed on and not yet back */
	uint8_t access;
	uint8_t state;
	bool has_window;             /* verbs: the tenant has told the key of its window, */
	uint32_t window_key;         /* the device's */
	enum ros2_status end_status; /* why it ended: LEASE_EXPIRED, REVOKED, ... */
};

struct lease_table;

/* @capacity <= LEASE_MAX. @reactor goes into the high bits of lease ids so that they are unique per
 * agent. */
int lease_table_new(uint32_t capacity, uint32_t reactor, struct lease_table **ret);
void lease_table_free(struct lease_table *t);

/* @fn runs for every lease that leaves LIVE, inside the call that ended it; it must not call the
 * table. */
void lease_on_end(struct lease_table *t, void (*fn)(void *arg, const struct lease *l), void *arg);

struct lease_params {
	uint64_t base, length, deadline_ns, grant, conn;
	uint32_t tenant, pd;
	uint8_t access;
};
/* INVALID (zero length, base + length wraps, no access bits), or LIMIT when the table is full. *ret
 * is borrowed: until the lease ends. */
enum ros2_status lease_issue(struct lease_table *t, const struct lease_params *p,
                             const struct lease **ret);

/* The check. @addr, @len and @access are hostile. OK and *ret (borrowed), or BAD_KEY (unknown,
 * another connection's, ended and drained: all the same to the caller), LEASE_EXPIRED (own lease
 * that expired, until its index is used again), REVOKED, ACCESS, OUT_OF_RANGE (also zero length and
 * wrap-around). Constant time in the table's size. */
enum ros2_status lease_check(struct lease_table *t, uint32_t key, uint64_t conn, uint8_t access,
                             uint64_t addr, uint64_t len, uint64_t now_ns, struct lease **ret);
/* A transfer that passed the check is handed on / came back. */
void lease_hold(struct lease *l);
void lease_unhold(struct lease_table *t, struct lease *l);

/* The holder's own live lease as it is. BAD_KEY, LEASE_EXPIRED or REVOKED as lease_check. */
enum ros2_status lease_look(struct lease_table *t, uint32_t key, uint64_t conn, uint64_t now_ns,
                            const struct lease **ret);
/* New deadline for the holder's own lease (never shortens). BAD_KEY, LEASE_EXPIRED or REVOKED as
 * lease_check. */
enum ros2_status lease_renew(struct lease_table *t, uint32_t key, uint64_t conn, uint64_t now_ns,
                             uint64_t deadline_ns, const struct lease **ret);
/* The tenant bound a window over exactly the lease's memory for this connection. OK, or as
 * lease_look; OUT_OF_RANGE: not its generation, base and length; BUSY: transfers under it are in
 * flight, whose key must not change. */
struct lease_window {
	uint32_t key, generation;
	uint64_t base, length;
	uint32_t window_key;
};
enum ros2_status lease_set_window(struct lease_table *t, const struct lease_window *w,
                                  uint64_t conn, uint64_t now_ns);
/* Ends one lease of this connection. BAD_KEY if it is not one. */
enum ros2_status lease_end(struct lease_table *t, uint32_t key, uint64_t conn,
                           enum ros2_status why);
/* End all of a connection / grant / tenant; returns how many were live. */
uint32_t lease_end_conn(struct lease_table *t, uint64_t conn, enum ros2_status why);
uint32_t lease_end_grant(struct lease_table *t, uint64_t grant, enum ros2_status why);
uint32_t lease_end_tenant(struct lease_table *t, uint32_t tenant, enum ros2_status why);
/* Ends what is past @now_ns; looks at no more than @budget entries, goes round. Expiry never
 * depends on it: lease_check looks at the deadline itself. */
uint32_t lease_sweep(struct lease_table *t, uint64_t now_ns, uint32_t budget);

struct lease_counts {
	uint32_t live, draining; /* draining: ended with holds > 0 */
	uint64_t live_bytes;
};
/* Of one tenant (UINT32_MAX = all); O(1). */
void lease_counts(const struct lease_table *t, uint32_t tenant, struct lease_counts *ret);
/* Calls @fn for up to @max live leases of @tenant (UINT32_MAX = all). */
void lease_each(const struct lease_table *t, uint32_t tenant, uint32_t max,
                void (*fn)(void *arg, const struct lease *l), void *arg);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent records. Three ways in, one per class of the spool: an operation that widens
 * rights waits for its record; one that shrinks them is recorded without waiting; a denial is
 * recorded within bounds: per tenant and kind the first 100, then 10 a second, the rest as one
 * counted record per interval with first, last and a sample. Loop thread.
 */
#ifndef ROS2_AGENT_AUDIT_H
#define ROS2_AGENT_AUDIT_H

#include "agent/spool.h"
#include "common/status.h"

#define AGENT_AUDIT_DETAILS 8
#define AGENT_AUDIT_TEXT    512 /* longest string of a record, bytes */

enum agent_audit_result { AGENT_AUDIT_OK = 1, AGENT_AUDIT_DENIED = 2, AGENT_AUDIT_FAILED = 3 };

struct agent_audit_detail {
	const char *key, *value;
};

/* Everything is borrowed during the call; NULL strings are empty. Hostile text is cut to
 * AGENT_AUDIT_TEXT bytes and what is not UTF-8 becomes '?'. */
struct agent_audit_event {
	const char *action; /* a name of docs/audit.md */
	const char *actor;  /* SPIFFE ID, "anonymous"; NULL = "system" */
	const char *peer;
	const char *object_kind, *object_name, *object_id;
	enum agent_audit_result result;
	enum ros2_status status;
	const char *reason;
	const char *tenant;
	struct ros2_uid tenant_uid; /* zero: touches no tenant */
	uint64_t policy_version;
	struct agent_audit_detail details[AGENT_AUDIT_DETAILS];
	size_t n_details;
	uint64_t count, first_unix_ns, last_unix_ns; /* an aggregate when count > 0 */
};

/* ---- the bound on individual records; no clock of its own ---- */
#define AUDIT_BOUND_FIRST   100
#define AUDIT_BOUND_PER_S   10
#define AUDIT_BOUND_HOLD_NS (10ull * 1000000000ull)

struct audit_bound {
	uint64_t individually; /* ever */
	uint64_t second;       /* of the present window */
	uint32_t in_second;
	uint64_t held, held_since_ns, first_unix_ns, last_unix_ns;
};
/* @n events now: true = record them as one record by themselves; false = held. @now_ns: boottime.
 */
bool audit_bound_pass(struct audit_bound *b, uint64_t n, uint64_t now_ns, uint64_t first_unix_ns,
                      uint64_t last_unix_ns);
/* True when what is held is due as a counted record; the caller resets it with audit_bound_taken.
 */
bool audit_bound_due(const struct audit_bound *b, uint64_t now_ns);
void audit_bound_taken(struct audit_bound *b);

/* ---- the recorder ---- */
struct agent_audit;
struct agent_audit_opts {
	const char *agent; /* name; borrowed: until free */
	struct ros2_uid agent_uid, incarnation;
	struct spool *spool; /* borrowed */
	struct loop *loop;
	uint64_t (*now_ns)(void); /* NULL = clock_boottime_ns; tests have their own */
};
int agent_audit_new(const struct agent_audit_opts *o, struct agent_audit **ret);
/* Flushes counted records into the spool. */
void agent_audit_free(struct agent_audit *a);

/* Widens: @fn runs once when the record is durable or could not be made so. Errors as spool_put. */
int agent_audit_durable(struct agent_audit *a, const struct agent_audit_event *ev, spool_done_fn fn,
                        void *arg, struct ros2_err *err);
/* Shrinks, or tells what is: recorded without waiting. What finds no space is counted and becomes
 * an audit.gap record when there is some. */
void agent_audit_note(struct agent_audit *a, const struct agent_audit_event *ev);
/* What the caller goes on counting when there is no room: false. Of a tenant's share, not of the
 * reserve: it is as much as the tenant has sessions and moves bytes. */
bool agent_audit_counted(struct agent_audit *a, const struct agent_audit_event *ev);
/* A denial or violation: bounded. */
void agent_audit_denied(struct agent_audit *a, const struct agent_audit_event *ev);
/* Makes counted records of what is held: called each second, and at the end with @all. */
void agent_audit_tick(struct agent_audit *a, bool all);
uint64_t agent_audit_lost(const struct agent_audit *a);
#endif

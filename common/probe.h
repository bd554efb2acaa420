/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What isolation rests on, by name: one list for the probe that tries it, the report to the
 * controller, the policy that requires it (`placement.require`), the audit log and the tables
 * people read. A subject is a device or a software transport; a finding is what was seen when one
 * property was tried on it. Numbers and names are a promise (docs/decisions/0018-probe.md): new
 * ones are appended, none is renumbered or reused.
 */
#ifndef ROS2_COMMON_PROBE_H
#define ROS2_COMMON_PROBE_H

#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(number, NAME, "name", "what holds when it is enforced") */
#define PROBE_PROPERTY_LIST(X)                                                                     \
	X(0, PD_ISOLATION, "pd-isolation",                                                         \
	  "a key of one tenant is refused on another's queue pair")                                \
	X(1, QP_BOUND_KEYS, "qp-bound-keys",                                                       \
	  "a key is good on the one queue pair or connection it was made for")                     \
	X(2, MR_RANGE, "mr-range", "no access outside the memory region behind a key")             \
	X(3, WINDOW_RANGE, "window-range", "no access outside a window, though inside its region") \
	X(4, ACCESS_MASK, "access-mask", "a key made for reading does not write")                  \
	X(5, INVALIDATED_KEY, "invalidated-key", "a key is dead once it was invalidated")          \
	X(6, REBOUND_KEY, "rebound-key", "the old key is dead once its window was bound again")    \
	X(7, BIND_OWN_PD, "bind-own-pd", "no window over another protection domain's memory")      \
	X(8, QP_REUSE, "qp-reuse", "a reused queue pair does not carry a live key to a new peer")  \
	X(9, FOREIGN_INVALIDATE, "foreign-invalidate", "no peer invalidates another tenant's key") \
	X(10, KEY_RANDOMNESS, "key-randomness", "the next key cannot be told from those before")   \
	X(11, ZERO_LENGTH, "zero-length",                                                          \
	  "a queue pair that takes no remote operation takes none of length zero either")          \
	X(12, REVOKE_COMPLETE, "revoke-complete", "no byte moves after a revoke returned")         \
	X(13, CQ_SEPARATION, "cq-separation",                                                      \
	  "a tenant that fills its completion queue harms no other")                               \
	X(14, RQ_SEPARATION, "rq-separation", "a tenant that takes all receives harms no other")   \
	X(15, DMABUF, "dmabuf", "device memory can be registered as a dma-buf")

enum probe_property {
#define X(num, name, text, holds) PROBE_##name = num,
	PROBE_PROPERTY_LIST(X)
#undef X
		PROBE_PROPERTIES
};

enum probe_result {
	PROBE_NOT_TRIED = 0, /* an old agent, or the case could harm the machine */
	PROBE_ENFORCED = 1,  /* tried, and it held */
	PROBE_NOT_ENFORCED = 2,
	PROBE_NOT_SUPPORTED = 3, /* what would be tried does not exist there */
};

#define PROBE_SEEN_MAX     119
#define PROBE_NAME_MAX     63
#define PROBE_SUBJECTS_MAX 16

struct probe_finding {
	enum probe_result result;
	char seen[PROBE_SEEN_MAX + 1]; /* one line, UTF-8: what was tried and what came of it */
};

/* One device or software transport, with all that its answers depend on. */
struct probe_subject {
	char name[PROBE_NAME_MAX + 1];     /* "rxe0", "tcp" */
	char transport[8];                 /* "verbs", "tcp", "shm" */
	char device[PROBE_NAME_MAX + 1];   /* vendor and part, or "software" */
	char firmware[PROBE_NAME_MAX + 1]; /* its version; of software: this program's */
	char kernel[PROBE_NAME_MAX + 1];   /* uname -r */
	uint64_t tried_unix_ns;
	uint32_t revoke_p50_ns, revoke_p99_ns; /* order given -> nothing moves; 0 = not measured */
	uint32_t key_bits;                     /* unpredictable bits seen in keys */
	struct probe_finding findings[PROBE_PROPERTIES];
};

/* "pd-isolation"; "?" for a number that is none. */
const char *probe_property_to_str(enum probe_property p);
/* What holds when it is enforced, as a person reads it. */
const char *probe_property_text(enum probe_property p);
/* 0, or -ENOENT. */
int probe_property_from_str(const char *s, enum probe_property *ret);
/* "enforced", "NOT enforced", "not supported", "not tried". */
const char *probe_result_to_str(enum probe_result r);

/* A set of properties: bit 1 << number. */
#define PROBE_ALL ((1u << PROBE_PROPERTIES) - 1)
/* The properties that were seen to hold: only PROBE_ENFORCED counts. */
uint32_t probe_enforced(const struct probe_subject *s);
/* The first property of @required that was not seen on @s, or false when all were. */
bool probe_missing(const struct probe_subject *s, uint32_t required, enum probe_property *ret);
/* Do @a and @b answer alike? The times and the words do not matter. *ret: the first that differs.
 */
bool probe_same_answers(const struct probe_subject *a, const struct probe_subject *b,
                        enum probe_property *ret);

#ifdef __cplusplus
}
#endif
#endif

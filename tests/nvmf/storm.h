/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load on volumes while their target comes and goes, and a model of what may lie where. A slot of a
 * volume has one write in flight at most; what it may hold afterwards is what was acknowledged
 * last, or a write of unknown outcome since. What was read once stays; what was refused was not
 * written; an acknowledged write is never overtaken by an older one.
 */
#ifndef ROS2_TESTS_NVMF_STORM_H
#define ROS2_TESTS_NVMF_STORM_H

#include "tests/nvmf/vol.h"

#define STORM_SLOTS  64u
#define STORM_STRIDE 65536u
#define STORM_MAYBE  16u

struct slot {
	uint32_t committed; /* seed of its pattern; 0 = zeros, as the medium began */
	uint32_t maybe[STORM_MAYBE];
	unsigned n_maybe;
	bool busy;
};

struct storm {
	struct vol v;
	struct slot slots[STORM_SLOTS];
	struct {
		unsigned slot;
		bool write;
	} what[VOL_IOS];
	bool idle[VOL_IOS];
	uint32_t seed;
	/* What came of it. */
	uint64_t good, unknown, refused, other;
	uint64_t slowest_ns; /* of those that went well */
	int last_error;      /* of the others */
	unsigned wrong;      /* reads that were none of what may be there */
	char words[160];     /* of the first of them */
};

/* Opens the volume of @t; the caller may have changed s->v.config after storm_init. */
void storm_init(struct storm *s, struct target *t, const char *tenant);
void storm_open(struct storm *s);
/* Load on all of them for @ms, then until nothing is in flight; @event (may be NULL) is called each
 * turn with the milliseconds since the begin. Fails when a request never ends. */
void storm_run(struct storm *s, unsigned n, unsigned ms, void (*event)(void *arg, unsigned at_ms),
               void *arg);
/* Each slot, by the volume and by the medium itself. */
void storm_check(struct storm *s, struct target *t);
/* The same, with another way to read the medium: 0 or negative errno. */
void storm_check_by(struct storm *s, int (*medium)(void *arg, uint64_t at, void *buf, size_t len),
                    void *arg);
void storm_close(struct storm *s);
#endif

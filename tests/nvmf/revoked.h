/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that comes over verbs by hand (tests/attack/verbs_peer.h) and moves data without pause
 * to and from a volume of an nvmf engine: some connections write, some read, one request each. When
 * it is told of a receipt it fills what writers offer and what readers are given with marks, and
 * goes on asking. Where a mark is on the block device afterwards, or something else than marks in a
 * reader's memory, bytes moved after the receipt. revoked_real.c has a real agent,
 * revoked_control.c the same data plane with and without the end of sessions.
 */
#ifndef ROS2_TESTS_NVMF_REVOKED_H
#define ROS2_TESTS_NVMF_REVOKED_H

#include "tests/attack/agent.h"

#define REVOKED_VOLUME (4u << 20) /* bytes from the beginning of the disk, alpha's `attacked` */

struct revoked;
struct revoked_result {
	uint32_t in_flight;      /* requests without an answer, when told of the receipt */
	uint64_t answers, late;  /* before and after the end of draining */
	uint64_t draining;       /* bytes in readers' memory between it and the end of draining */
	uint64_t written;        /* bytes on the disk that changed between these */
	uint64_t landed;         /* ... and since then */
	uint64_t marks, changed; /* bytes on the disk: of what was offered since then; all */
};

/* Alpha under load, @disk looked at; each connection has had some answers. 0 or -errno, which is
 * printed; revoked_end in any case. */
int revoked_begin(struct site *site, const char *disk, struct revoked **ret);
int revoked_receipt(struct revoked *r); /* is here */
int revoked_drained(struct revoked *r); /* and nothing drains any more */
/* What came since both, after some time in which it went on asking. */
int revoked_look(struct revoked *r, struct revoked_result *ret);
void revoked_end(struct revoked *r); /* NULL is accepted */
void revoked_print(const struct revoked_result *is);
#endif

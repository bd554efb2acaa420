/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics queues without a fabric: a target in memory that answers each command in the poll after
 * its kick, or as a rule says. For tests of the controller and the engine; one target in a process,
 * used by the admin thread, reactors and the test alike.
 */
#ifndef ROS2_TESTS_NVMF_FAKE_QUEUE_H
#define ROS2_TESTS_NVMF_FAKE_QUEUE_H

#include "dataplane/nvmf/queue.h"

#define FAKE_NAMESPACES 4 /* nsid 1..4; the first two are there at the start */
#define FAKE_NS_BYTES   (1u << 20)
#define FAKE_BLOCK      512u

enum fake_action {
	FAKE_STATUS, /* answers with @arg as the CQE's status (without phase bit) */
	FAKE_VALUE,  /* success, with @arg as dword 0 */
	FAKE_HANG,   /* no answer */
	FAKE_WAIT,   /* no answer until the rules are off */
	FAKE_DIE,    /* the queue fails; the command was handed on, and has no effect yet */
	FAKE_LOSE,   /* the queue fails before the command is handed on */
	FAKE_ZERO,   /* success, with zeroes as data */
};

struct fake_rule {
	int qid;              /* + 1; 0 = any; FAKE_IO = any but the admin queue */
	int opcode;           /* + 1; 0 = any */
	int fctype;           /* + 1, with opcode 0x7f; 0 = any */
	int offset;           /* + 1, of a property; 0 = any */
	uint32_t skip, times; /* times 0 = for ever */
	enum fake_action action;
	uint32_t arg;
};
#define FAKE_IO 1000

extern const struct nvmf_queue_ops fake_queue_ops;

void fake_reset(void);
void fake_rule(const struct fake_rule *r);
void fake_rules_off(void);
uint32_t fake_hits(void); /* of all rules */

/* Every queue fails, with what is in it handed on. */
void fake_cut(void);
/* New queues fail at once. */
void fake_refuse(bool on);
/* Writes that died with their queue take effect now. */
void fake_orphans(void);
void fake_resize(uint32_t nsid, uint64_t blocks); /* 0 = removed; and tells it */
/* Of a namespace, what each byte of its UUID is from now on (0 = it has none); and tells it. */
void fake_uuid(uint32_t nsid, uint8_t value);
/* Identify of namespace descriptors is refused with this status; 0 = is not. */
void fake_descriptors(uint16_t status);
void fake_write_cache(bool on);
void fake_cqt(uint16_t ms);
/* CAP.TO: how long it may take to be ready, and to stop, in 500 ms. 1 unless told. */
void fake_ready_time(uint8_t halves);
void fake_give_queues(uint32_t n);
uint8_t *fake_media(uint32_t nsid);

struct fake_stats {
	uint32_t connects, io_connects, shutdowns, disables, reads, writes, flushes, keep_alives,
		open, host_names, keys_ended, admin_polls;
	uint32_t write_blocks_max;
	char host_nqn[256];
};
struct fake_stats fake_stats(void);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target of target.h on a real RDMA device, by librdmacm and raw verbs: command capsules are
 * received, payload is read and written with the keys that hosts give, answers are sent. Each fault
 * of target_faults.h that is no matter of PDUs works there, too. Nothing is checked before it is
 * posted, and nothing of dataplane/fabric is behind it.
 *
 * What no command asks for is a strike: one access with a key that some host gave once, whosever it
 * was, on whichever queue pair. A test orders it and sees how it ended.
 *
 * Sources: NVMe/RDMA Transport 1.0; InfiniBand Architecture Specification vol. 1, 10.6, 10.7.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_VERBS_H
#define ROS2_TESTS_NVMF_TARGET_VERBS_H

#include "tests/nvmf/target.h"

/* target_opts.carrier. The address is one of the device's. */
extern const struct target_carrier target_verbs;

#define TARGET_STRIKE_BYTE 0xee    /* what strikes write */
#define TARGET_STRIKE_MAX  196608u /* bytes of one */

struct target_strike {
	/* The key: of the newest I/O command of this host with this opcode, or as many before it.
	 */
	const char *key_host;
	uint8_t opcode;
	unsigned back;
	/* The queue pair: this host's newest I/O queue; @ended: the last one that has ended, which
	 * target_verbs_keep had to be told to keep. */
	const char *on_host;
	bool ended;
	bool read;        /* RDMA READ; else WRITE */
	int64_t offset;   /* from the address that came with the key */
	uint32_t len;     /* 0 = that of the command */
	uint32_t key_xor; /* turns bits of the key */
};
/* Waits for its end: an ibv_wc_status (0: it was carried out). -ENOENT: no such key, no such queue;
 * -ETIMEDOUT: no end in 10 s (@ended: 1 s, the device may try for ever); -ESHUTDOWN: the queue pair
 * had failed before, so nothing was tried; else what posting it said. What a READ brought is in
 * @got (at least of the strike's length), where it is not NULL. */
int target_verbs_strike(struct target *t, const struct target_strike *s, void *got);
/* From now on the queue pair of an I/O queue whose host has left is kept as it was, the last one
 * that there is, until this is switched off. */
void target_verbs_keep(struct target *t, bool on);
#endif

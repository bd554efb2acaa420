/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small honest peer for the queue over NVMe/TCP: no controller, only PDUs. A READ is answered
 * with rig_pattern(seed = its command dword 10), a WRITE is compared with it, everything else is
 * success (with chaos: some are NVME_SC_INTERNAL). It acts only in peer_turn and never blocks, so
 * it can live in the test's thread or in one of its own. It uses no call that tests/sweep fails.
 */
#ifndef ROS2_TESTS_NVMF_TCP_PEER_H
#define ROS2_TESTS_NVMF_TCP_PEER_H

#include "dataplane/nvmf/pdu.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_IN       (4u << 20)
#define PEER_OUT      (8u << 20)
#define PEER_COMMANDS 65536u

struct peer_opts {
	bool header_digest, data_digest; /* what ICReq must ask for */
	bool success;                    /* reads end without a response capsule */
	bool reverse;                    /* answers those of one turn in reverse order */
	uint32_t chaos; /* seed: PDUs of any size, another order now and then, some errors; 0 = off
	                 */
	bool any_data;  /* sends what is there, compares nothing: for measuring */
	uint32_t piece; /* sends at most so many bytes in a turn; 0 = all */
	uint8_t cpda;
	uint32_t maxh2c, c2h_max, r2t_max; /* bytes; 0 = all in one */
};

struct peer {
	struct peer_opts o;
	int fd; /* borrowed */
	bool hello, ended;
	struct pdu_params rx, tx;
	size_t in_n, out_at, out_n;
	uint64_t commands, wrong; /* wrong: writes whose data is not what it should be */
	uint32_t n_held;
	struct nvme_sqe held[1024]; /* reverse: of this turn */
	struct {
		uint32_t len, asked, got, seed;
	} writes[PEER_COMMANDS]; /* by command id; len 0 = none */
	uint8_t in[PEER_IN], out[PEER_OUT];
};

void peer_init(struct peer *p, const struct peer_opts *o, int fd);
/* Takes and answers what is there. False when nothing could be moved; ended: the connection is. */
bool peer_turn(struct peer *p);

/* Bytes that look different at each place. */
void rig_pattern(void *buf, size_t n, uint8_t seed);
/* The part of it that begins at @offset. */
void rig_pattern_at(void *buf, size_t offset, size_t n, uint8_t seed);
#endif

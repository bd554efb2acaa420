/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tenants over shared memory at a target over NVMe/RDMA, in the real data plane, on a device
 * that is memory; and whether a request's payload was copied. Link with --wrap=munmap. One at a
 * time.
 */
#ifndef ROS2_TESTS_NVMF_SHM_RDMA_RIG_H
#define ROS2_TESTS_NVMF_SHM_RDMA_RIG_H

#include "common/probe.h"
#include "dataplane/dp.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/nvmf/target_rdma.h"

#define NQN   "nqn.2026-11.test:shm"
#define KIB4  4096u
#define KIB64 65536u
#define MIB   (1u << 20)
#define PART  (4u * MIB) /* of the namespace: each tenant's volume */
/* What was seen of the device. */
#define EXACT  (1u << PROBE_MR_RANGE)
#define INSIDE (EXACT | 1u << PROBE_WINDOW_RANGE)

struct run {
	struct fx *fx;
	struct target *target;
	struct shm_raw a, b; /* one reactor or two, it makes no difference */
};

extern bool rig_standing;             /* of documents; before rig_begin */
extern _Atomic uint32_t rig_unmapped; /* how often memory went that the device knew */

void rig_begin(struct run *t, uint32_t seen);
/* One more of the first tenant's. */
void rig_session(struct run *t, struct shm_raw *ret);
/* Whatever was told to the device and the target is taken back; nothing may be left. */
void rig_end(struct run *t);

struct dp_lent rig_lent(const struct run *t);
uint32_t rig_regions(void); /* of the device, now */
struct target_stats rig_stats(struct run *t);
uint64_t rig_copied(struct run *t, struct shm_raw *of);
/* A read, a write of those bytes: is it copied? */
bool rig_copies(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len);
bool rig_write_copies(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len);
/* Until the device knows them: the first request asks for it, and a worker registers it. */
void rig_known(struct run *t, struct shm_raw *of, uint64_t address, uint32_t len);
/* Out of @from, seen on the medium (of @of at @volume_at), and into @to; nothing beside it. */
void rig_round_trip(struct run *t, struct shm_raw *of, uint32_t volume_at, uint64_t from,
                    uint64_t to, uint32_t len);
void rig_neighbour_is_well(struct run *t);
bool rig_is_all(const uint8_t *p, uint8_t with, uint32_t n);
#endif

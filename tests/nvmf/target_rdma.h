/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target of target.h over NVMe/RDMA as well, on a device of dataplane/fabric: keyed SGLs, data
 * in capsules, one RDMA READ or WRITE for the data of a command. Linked with fabric_mem, on which
 * a call from any thread is good. Honest: of target_faults.h it knows those that are about a
 * command's answer, not those about PDUs.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_RDMA_H
#define ROS2_TESTS_NVMF_TARGET_RDMA_H

#include "tests/nvmf/target.h"

/* At most this much a command moves: mdts of its subsystems must be 1 to 5. */
#define TARGET_RDMA_BYTES (128u << 10)

/* Once for a target, before anybody connects; it listens at 127.0.0.1, at a port of its own. */
void target_rdma_open(struct target *t, const char *device);
uint16_t target_rdma_port(struct target *t);
/* Ends its connections; before target_free. */
void target_rdma_close(struct target *t);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target of target.h over RDMA on whatever implements dataplane/fabric: for tests without a
 * device (tests/verbs/fabric_mem.h). On a device there is target_verbs.h, which shares no code with
 * what is tested.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_FABRIC_H
#define ROS2_TESTS_NVMF_TARGET_FABRIC_H

#include "tests/nvmf/target.h"

/* target_opts.carrier */
extern const struct target_carrier target_fabric;
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The engines' common suite (tests/engines/fixture.h) over volumes of an nvmf target. */
#ifndef ROS2_TESTS_NVMF_SUITE_H
#define ROS2_TESTS_NVMF_SUITE_H

#include "dataplane/nvmf/config.h"
#include "tests/engines/fixture.h"

#define SUITE_NQN "nqn.2026-11.test:suite"

extern const struct engine_who suite_who;

/* What a document says of a target with t/a/f and t/b/f in namespace @nsid; t/a/f begins at
 * SUITE_AT. They take SUITE_BYTES. */
#define SUITE_AT    ((uint64_t)1 << 20)
#define SUITE_BYTES (SUITE_AT + 2 * FIXTURE_VOLUME)
void suite_config(struct nvmf_config *k, uint32_t nsid);
#endif

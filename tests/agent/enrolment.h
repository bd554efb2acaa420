/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent's identity made without a controller: a CA of the test's own, enrolments and renewals by
 * it, in directories of the test. One of each in a process.
 */
#ifndef ROS2_TESTS_AGENT_ENROLMENT_H
#define ROS2_TESTS_AGENT_ENROLMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENROLMENT_LIFE_S 600

/* Of which the agent's state directory, which is not there yet, and others beside it are. */
extern char *enrolment_parent;
extern char enrolment_dir[512];
/* The CA's certificate, which is both bundles. */
extern void *enrolment_ca;
extern size_t enrolment_ca_len;

/* cmocka's, of a group. In memory, where that can be had. */
int enrolment_setup(void **state);
int enrolment_teardown(void **state);

/* As agent/enrol.c: key, certificate for so long, bundles. 0 or -errno. */
int enrolment_as(uint8_t uid, uint64_t life_s);
int enrolment_make(void);
int enrolment_renew(void);
bool enrolment_bundle_is_whole(const char *name);

#endif

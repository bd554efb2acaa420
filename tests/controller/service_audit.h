/* SPDX-License-Identifier: Apache-2.0 */
/* What the audit log of a service fixture holds, asked for through the Audit service. */
#ifndef ROS2_TESTS_CONTROLLER_SERVICE_AUDIT_H
#define ROS2_TESTS_CONTROLLER_SERVICE_AUDIT_H

#include "proto/audit/audit.h"
#include "tests/controller/service_fixture.h"

/* How many records match. */
unsigned sf_audit_count(struct sf *f, const Ros2__V1__AuditQueryRequest *q);
unsigned sf_audit_count_action(struct sf *f, const char *action, const char *tenant);
/* Records that wait for nobody come a commit later: until there are @n, for at most 4 s; exactly @n
 * then. */
void sf_audit_wait(struct sf *f, const char *action, unsigned n);
/* The first record of @action with @result names this actor, role and object. */
void sf_audit_names(struct sf *f, const char *action, Ros2__V1__AuditResult result,
                    const char *actor, const char *role, const char *object);
/* There is a record of @action on @object whose reason begins with these words. */
bool sf_audit_says(struct sf *f, const char *action, const char *object, const char *words);
/* The log, whole, verifies against the key of the controller. Returns what the verifier says. */
struct audit_verdict sf_verify_log(struct sf *f);
#endif

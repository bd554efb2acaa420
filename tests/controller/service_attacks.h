/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one agent tries with what is another's, and what people try who have no role for it. A test
 * that shows a refusal and the one that switches the check off (test_service_controls.c) make the
 * same attack; each function says what came of it.
 */
#ifndef ROS2_TESTS_CONTROLLER_SERVICE_ATTACKS_H
#define ROS2_TESTS_CONTROLLER_SERVICE_ATTACKS_H

#include "tests/controller/service_audit.h"

#define TRAINER "spiffe://" TD "/tenant/alpha/trainer"

struct two {
	struct sf *f;
	struct fake a, b; /* dpu-0, where tenant alpha is; dpu-1, where beta is: both are linked */
	struct ros2_uid alpha, beta;
};

void two_start(void **state, struct two *t);
void two_stop(struct two *t);
/* A grant of alpha's trainer at dpu-0. */
struct ros2_uid two_grant(struct two *t);
/* An administrator asks for the sessions of dpu-0, and nobody but dpu-0 answers. */
void two_report(struct two *t);
struct ros2_uid sf_uid_of(struct sf *f, const char *tenant);
unsigned sf_grants_of(struct sf *f, const char *tenant);
/* An agent said so of alpha, and it is shown. */
bool sf_rollout_says(struct sf *f, const char *words);

/* The next message of this kind; fails the test when none comes. */
Ros2__V1__ControllerMessage *fake_want(struct fake *a, Ros2__V1__ControllerMessage__MsgCase k);
void fake_link_up(struct fake *a);
struct ros2_uid fake_granted(struct fake *a, const struct ros2_uid *tenant, const char *principal);
/* Hands up one record and waits until it is in the log: of @tenant (NULL: of none), and of agent
 * @origin (NULL: of itself). */
void fake_record(struct fake *a, const struct ros2_uid *tenant, const struct ros2_uid *origin);
void fake_release(struct fake *a, struct ros2_uid *grant);
/* Says that it failed to apply this version of a tenant, and waits until that was heard. */
void fake_failed(struct fake *a, const struct ros2_uid *tenant, uint64_t version,
                 const char *words);

/* ---- hello ---- */

/* Connects, says hello and goes: ROS2_OK when it was welcomed, or why it was not. */
enum ros2_status attack_hello(struct fake *a);
enum ros2_status attack_hello_as(struct fake *a, const struct ros2_uid *uid);
/* Says that it has heard epoch @counter, of this controller's lineage or of another one. */
enum ros2_status attack_hello_of_epoch(struct fake *a, bool of_another, uint64_t counter);

/* What Link, Renew and Enrol say to whoever has this certificate (sf_cert). */
enum ros2_status attack_link(struct sf *f, const char *cert);
enum ros2_status attack_renew(struct sf *f, const char *cert);
enum ros2_status attack_enrol(struct sf *f, const char *cert, const char *agent,
                              const char *secret);
/* Deletes an object, and applies its document again. */
void sf_make_again(struct sf *f, Ros2__V1__ObjectKind kind, const char *name, const char *yaml);

/* ---- one agent, the other's objects ---- */

/* What a request for a grant is answered with. */
enum ros2_status attack_grant(struct fake *a, const struct ros2_uid *tenant, const char *principal);
/* By dpu-1, of what is dpu-0's; true: it had the effect that dpu-0's own word has. */
bool attack_release(struct two *t, struct ros2_uid *grant);
bool attack_in_use(struct two *t);
bool attack_state(struct two *t, const char *words);
bool attack_record_of_tenant(struct two *t);
bool attack_record_of_agent(struct two *t);
/* An administrator who asks for the sessions of dpu-0 is shown one of dpu-1. */
bool attack_report(struct two *t);
/* One who revokes a grant of dpu-0 is told that it is over before dpu-0 said so. */
bool attack_receipt(struct two *t);

/* ---- people ---- */

enum ros2_status attack_apply(struct sf *f, const char *cert, const char *yaml,
                              struct ros2_err *err);
/* Deletes a tenant of that name, if it has that uid. */
enum ros2_status attack_delete(struct sf *f, const char *tenant, const struct ros2_uid *uid);
enum ros2_status attack_token(struct sf *f, const char *cert, const char *agent);
#endif

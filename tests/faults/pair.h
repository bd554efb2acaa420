/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real controller and a real agent, each on its loop's thread, with a relay between them and a
 * tenant that calls through it too. The agent's data plane is fake_dp, unless the test links the
 * real one, and its waits between
 * attempts are a tenth of what they are.
 */
#ifndef ROS2_TESTS_FAULTS_PAIR_H
#define ROS2_TESTS_FAULTS_PAIR_H

#include "agent/agent.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/controller/service_fixture.h"
#include "tests/faults/cut.h"

#define PAIR_TRAINER "spiffe://" TD "/tenant/alpha/trainer"

/* No timer of the agent takes longer; 0: as long as it is, but for the waits between attempts. */
extern _Atomic uint32_t pair_longest_ms;
/* The longest that one asked for. */
extern _Atomic uint64_t pair_asked_ms;
/* NULL, or changes what the agent is started with. */
extern void (*pair_agent_opts)(struct agent_opts *o);

struct pair {
	struct sf *f; /* the controller; its admin channel is not cut */
	struct relay *relay;
	char target[RELAY_LINES][64]; /* "127.0.0.1:port" of each line */
	char dir[256];                /* the agent's state */
	struct identity id;
	struct loop *loop; /* the agent's */
	struct loop_post stop_post;
	struct agent *agent;
	struct rpc_channel *admin;  /* cut */
	struct rpc_channel *tenant; /* alpha's trainer; cut */
	struct rpc_channel *nobody; /* a tenant's certificate that no document names; not cut */
	_Atomic bool ready, fatal;
	pthread_mutex_t lock;
	char wrong[320]; /* guarded by lock: the first thing that must not be, seen on any thread */
};

/* cmocka: a controller with the documents of agent and engine; no agent yet. */
int pair_setup(void **state);
/* The same, and the agent enrolled, started and synchronised, alpha in force at version *ret. */
int pair_setup_running(void **state);
int pair_teardown(void **state);

/* A join token of that agent: join_token_fini. */
void pair_token(struct pair *p, const char *agent, struct join_token *t);
/* Enrols into @dir with what @t says, on a loop of its own, until it is done with. */
struct enrolling;
struct enrolling *pair_enrol_begin(struct pair *p, const char *dir, const struct join_token *t);
bool pair_enrol_is_done(struct enrolling *e);
int pair_enrol_end(struct enrolling *e, struct ros2_err *err);

void pair_agent_start(struct pair *p);
void pair_agent_stop(struct pair *p);

/* Runs on the agent's loop. */
void pair_on_agent(struct pair *p, loop_fn fn, void *arg);
/* Looks each millisecond until @is says so (tests/await.h). */
bool pair_until(struct pair *p, bool (*is)(struct pair *p, void *arg), void *arg);
/* Notes what must not be. Any thread. */
void pair_wrong(struct pair *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Fails the test when something was noted, or the agent had to end. */
void pair_check(struct pair *p, const char *where);
/* Both know of the link, and the agent has no audit record that was not acknowledged. */
bool pair_is_quiet(struct pair *p);
/* The document of alpha, as it was last applied. */
void pair_apply_alpha(struct pair *p, const char *lifetime, const char *agents);
/* What the controller has of the object, the tenant alpha when NULL: and how far dpu-0 is. */
struct pair_rollout {
	struct ros2_uid uid;
	uint64_t version, sent, received, applied;
	bool revoked;
};
void pair_rollout(struct pair *p, struct pair_rollout *ret);
/* What the agent has of alpha. */
struct pair_held {
	struct ros2_uid uid; /* in: asked for */
	bool is, revoked;
	uint64_t version;
};
void pair_held(struct pair *p, struct pair_held *h);
/* Whether agent and controller have the same grants of alpha. */
bool pair_grants_agree(struct pair *p);
/* OpenSession as @c; *ret on ROS2_OK. */
enum ros2_status pair_open(struct rpc_channel *c, struct ros2_uid *ret, struct ros2_err *err);
void pair_close(struct rpc_channel *c, const struct ros2_uid *session);
enum ros2_status pair_mount(struct rpc_channel *c, const struct ros2_uid *session);
/* The log, whole, against the key of the controller. */
void pair_verify_log(struct pair *p);
#endif

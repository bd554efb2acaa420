/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trust domain, a whole controller inside the test process over real gRPC and mTLS, and a
 * scripted agent: it sends what the test says and shows what it was sent.
 */
#ifndef ROS2_TESTS_CONTROLLER_SERVICE_FIXTURE_H
#define ROS2_TESTS_CONTROLLER_SERVICE_FIXTURE_H

#include "common/clock.h"
#include "common/crypto.h"
#include "common/ids.h"
#include "controller/controller.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/audit.rpc.h"
#include "tests/testing.h"
#include <errno.h>
#include <pthread.h>

#define TD "ros2.test"

struct sf {
	char dir[64];
	struct loop *loop;        /* the controller's */
	struct loop *client_loop; /* the agents' streams */
	struct controller *c;
	struct controller_ports ports;
	struct controller_opts opts;
	struct rpc_channel *admin; /* role admin; blocking calls only */
};

/* cmocka: the trust domain once per program, a controller per test (fresh data). */
int sf_group_setup(void **state);
int sf_group_teardown(void **state);
int sf_setup(void **state);
int sf_teardown(void **state);
void sf_start(struct sf *f); /* again, on the same data */
/* Without a channel of an administrator; on error nothing is left of it. */
int sf_try(struct sf *f, struct ros2_err *err);
void sf_stop(struct sf *f);
const char *sf_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* NAME/tls.{crt,key} with spiffe://TD/ID from CA infra, admin or tenant; once per name. */
void sf_cert(const char *ca, const char *name, const char *id);
/* A channel with the certificate NAME (NULL: none) to a port of the controller. */
struct rpc_channel *sf_channel(struct sf *f, const char *name, uint16_t port, struct loop *loop);

/* Apply one text; the reply is the caller's. Fails the test when the call fails. */
Ros2__V1__ApplyReply *sf_apply_text(struct sf *f, const char *yaml, bool dry_run);
/* Documents of agents, an engine and a tenant; fails the test when not applied. */
void sf_apply(struct sf *f, const char *yaml);
extern const char sf_agent0[], sf_agent1[], sf_engine[];
/* A tenant "alpha" placed on dpu-0, with these lines under spec.times ("grantLifetime: 1h"). */
const char *sf_tenant(const char *name, const char *grant_lifetime, const char *contact_limit,
                      const char *agents);
int sf_revoke(struct sf *f, Ros2__V1__ObjectKind kind, const char *name, uint32_t wait_ms,
              Ros2__V1__RevokeReply **ret, struct ros2_err *err);
Ros2__V1__GetReply *sf_get(struct sf *f, Ros2__V1__ObjectKind kind, const char *name);

/* ---- the scripted agent ---- */

struct fake {
	struct sf *f;
	char name[64], dir[128];
	struct ros2_uid uid, incarnation;
	uint8_t snapshot_pub[ED25519_PUB_LEN];
	struct rpc_channel *ch;
	struct rpc_stream *s;
	Ros2__V1__Epoch *epoch; /* what it claims to have seen; NULL: that of the controller */
	const char *software, *address; /* what its hello says; NULL: what is usual */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	Ros2__V1__ControllerMessage *in[4096]; /* owned */
	size_t n_in, taken;
	bool closed;
	struct ros2_err why;
	uint64_t last_nonce;
	uint64_t last_seq; /* of the records that fake_record hands up */
	/* NULL, or sees each message first, on the client loop: true when it is done with. */
	bool (*sees)(struct fake *a, const Ros2__V1__ControllerMessage *m);
	void *arg;
};
/* Creates a token and enrols. */
void fake_enrol(struct sf *f, struct fake *a, const char *name);
/* With a key of its own: not the one that fake_enrol made for that name. */
void fake_enrol_anew(struct sf *f, struct fake *a, const char *name);
int fake_enrol_with(struct sf *f, struct fake *a, const char *name, const char *secret,
                    struct ros2_err *err);
char *sf_token(struct sf *f, const char *agent, uint32_t ttl_s); /* the secret; the caller frees */
/* Opens the stream and says hello; does not wait. @have may be NULL. */
void fake_connect(struct fake *a, const Ros2__V1__HaveObject *have, size_t n_have);
/* The same with a hello of one's own. */
void fake_say_hello(struct fake *a, Ros2__V1__AgentHello *h);
void fake_disconnect(struct fake *a);
void fake_free(struct fake *a);
void fake_send(struct fake *a, Ros2__V1__AgentMessage *m);
/* The next message of that kind that was not taken yet, within @ms; NULL: none came. Borrowed. */
Ros2__V1__ControllerMessage *fake_next(struct fake *a, Ros2__V1__ControllerMessage__MsgCase kind,
                                       int ms);
bool fake_closed(struct fake *a); /* the stream has ended, and @why tells why */
/* Waits for the stream's end; the code. */
int fake_wait_closed(struct fake *a, int ms);
/* Waits for the delta that completes the first synchronisation. */
void fake_wait_synced(struct fake *a);
void fake_stamp(Ros2__V1__Stamp *st, uint8_t boot[16]);
void fake_ask_grant(struct fake *a, uint64_t id, const struct ros2_uid *tenant,
                    const char *principal);
void fake_beat(struct fake *a, const struct ros2_uid *in_use, size_t n);
void fake_receipt(struct fake *a, const ProtobufCBinaryData *revocation, uint32_t draining);
/* Checks the seal and gives the object: ros2__v1__agent_object__free_unpacked. */
Ros2__V1__AgentObject *fake_open(struct fake *a, const Ros2__V1__SealedObject *s);
#endif

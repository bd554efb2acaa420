/* SPDX-License-Identifier: Apache-2.0 */
/* An agent over real gRPC between a controller of our own, which says what the test wants, and
 * tenants with real certificates. The data plane is fake_dp. */
#ifndef ROS2_TESTS_AGENT_WORLD_H
#define ROS2_TESTS_AGENT_WORLD_H

#include "agent/agent.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/agent/fake_dp.h"
#include "tests/agent/fixture.h"
#include <pthread.h>

#define WORLD_ALPHA_SEED       2
#define WORLD_BETA_SEED        3
#define WORLD_FIRST_GRANT_SEED 10

struct world {
	struct fixture f;
	char *dir;
	/* the controller */
	struct loop *ctl_loop;
	struct rpc_server *ctl;
	char ctl_address[64];
	_Atomic bool silent;           /* beats are not answered */
	_Atomic bool done_at_hello;    /* a stream begins with all that is owed: nothing */
	_Atomic bool no_audit_acks;    /* records are heard, and never made part of a log */
	_Atomic bool deaf;             /* nothing is read behind the next message: world_hear */
	_Atomic uint32_t grant_status; /* of grant requests; 0 = granted */
	_Atomic uint32_t grant_lifetime_ms;
	_Atomic uint64_t grant_policy;     /* the version of the document it comes from */
	_Atomic bool hold_grants;          /* the answer is kept until world_answer_grant */
	Ros2__V1__ControllerMessage *held; /* owned; the controller's loop */
	/* What Welcome and a renewal bring: files of dir; NULL: nothing. */
	const char *_Atomic infra_bundle, *_Atomic tenant_bundle;
	struct rpc_stream *link; /* referenced */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* written under lock: what was heard */
	_Atomic unsigned hellos, beats, receipts, acks, applied, failed, grant_requests, closed;
	_Atomic unsigned renewals;
	_Atomic size_t last_have;
	_Atomic bool last_durable;
	uint32_t last_sessions, last_draining;
	char actions[16384]; /* "session.open session.deny " */
	_Atomic uint8_t next_grant;
	char subjects[65536]; /* of the same records: names and ids of their objects */
	char reasons[65536];
	_Atomic unsigned probes, reports;
	_Atomic unsigned report_sessions; /* of the report that is coming, or came last */
	_Atomic uint32_t probe_enforced;  /* of the first subject of the last report */
	_Atomic unsigned probe_subjects;  /* of the last report */
	/* the agent */
	struct loop_post stop_post;
	prober_fn probe;                  /* before world_agent_start */
	const char *rdma_device;          /* likewise */
	const char *shm_dir;              /* likewise */
	uint64_t spool_quota;             /* likewise, bytes; 0: the agent's own */
	uint32_t records_per_s;           /* likewise, agent_opts.tenant_records_per_s */
	uint32_t connections_per_address; /* likewise, of tenants; 0: the agent's own */
	struct loop *loop;
	struct agent *agent;
	bool ready;
	struct ros2_err fatal;
	/* NULL, or sees each beat before it counts: on the controller's loop. Before
	 * world_agent_start. */
	void (*sees_beat)(const Ros2__V1__Beat *b);
	/* Likewise each record that comes. */
	void (*sees_record)(const Ros2__V1__AuditRecord *r);
};

/* Of dir: NAME.crt and NAME.key; a file becomes another. */
void world_make_ca(const char *dir, const char *name);
void world_issue(const char *dir, const char *ca, const char *name, const char *uri);
void world_copy(const char *dir, const char *from, const char *to);
void world_start(struct world *w); /* trust domain, controller; no agent yet */
void world_stop(struct world *w);
void world_agent_start(struct world *w);
/* The same; a negative errno with words, and nothing is left of it. */
int world_agent_try(struct world *w, struct ros2_err *err);
void world_agent_stop(struct world *w);
void world_controller_start(struct world *w);
void world_controller_stop(struct world *w);
/* Sends one delta of what the test made; takes the objects. */
void world_send(struct world *w, Ros2__V1__AgentObject **objs, size_t n, bool initial_done);
/* The engine and both tenants, then waits until all are applied. */
void world_populate(struct world *w);
void world_revoke(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version);
/* With a name of its own: what is revoked twice has two. */
void world_revoke_as(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version,
                     const struct ros2_uid *revocation);
/* A delta with one removal. */
void world_remove(struct world *w, enum obj_kind kind, uint8_t seed, uint64_t version);
/* A delta that removes a tenant and brings another; takes it. */
void world_replace(struct world *w, uint8_t seed, uint64_t version, Ros2__V1__AgentObject *by);
/* Asks for all sessions and leases. */
void world_ask_report(struct world *w);
/* Ends the stream, if there is one. */
void world_cut(struct world *w);
/* Sends the answer that was held back. */
void world_answer_grant(struct world *w);
/* No more deaf: reads on. */
void world_hear(struct world *w);
/* All that was given is on disk. */
void world_wait_stored(struct world *w);
/* The contact file has a stamp: a restart has contact. */
bool world_has_stamp(struct world *w);
/* Waits up to 8 s until *counter >= n. */
void world_wait(struct world *w, const _Atomic unsigned *counter, unsigned n);
bool world_wait_action(struct world *w, const char *action);

/* A tenant's connection. NAME: "alpha" or "beta" or "other". */
struct rpc_channel *world_tenant(struct world *w, const char *name);
/* Calls and gives the named error; *ret (may be NULL) is the reply. */
enum ros2_status world_call(struct rpc_channel *c, const struct rpc_method *m,
                            const ProtobufCMessage *req, ProtobufCMessage **ret, char words[320]);
enum ros2_status world_open_session(struct rpc_channel *c, struct ros2_uid *ret);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A small controller for tests of the agent: a signing key, sealed batches, policy images. */
#ifndef ROS2_TESTS_AGENT_FIXTURE_H
#define ROS2_TESTS_AGENT_FIXTURE_H

#include "agent/object.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include "tests/testing.h"

#define FIX_ALPHA "spiffe://ros2.test/tenant/alpha/trainer"
#define FIX_BETA  "spiffe://ros2.test/tenant/beta/server"

/* Likewise of alpha, namespaces beside the usual ones: lines of the document. "" = none. */
extern const char *fix_namespaces;

struct fixture {
	struct crypto_sign_key *key;
	struct agent_trust trust;
	struct agent_epoch epoch;
	_Atomic uint64_t batch; /* sealed by the test and by its controller */
	uint8_t boot_id[16];
};

/* Of the tenants made from here on; verbs: 0 = the default. */
extern const char *fix_contact_limit;
extern unsigned fix_verbs_per_s;
extern const char
	*fix_require; /* what alpha's placement requires: "mr-range, qp-reuse"; "" = nothing */

void fixture_init(struct fixture *f);
void fixture_fini(struct fixture *f);

struct ros2_uid fix_uid(uint8_t seed);
/* An AgentObject to change before it is sealed; strings and bytes are malloc'd as protobuf-c does.
 */
Ros2__V1__AgentObject *fix_tenant(struct fixture *f, const char *name, const char *principal,
                                  uint8_t seed, uint64_t version);
Ros2__V1__AgentObject *fix_engine(struct fixture *f, const char *name, uint8_t seed,
                                  uint64_t version);
/* One of type nvmf, with a volume for each of alpha and beta. The transport, and lines of its own.
 */
extern const char *fix_nvmf_transport;
extern unsigned fix_nvmf_nsid; /* of alpha's volume */
Ros2__V1__AgentObject *fix_nvmf(struct fixture *f, const char *name, uint8_t seed,
                                uint64_t version);
Ros2__V1__AgentObject *fix_grant(struct fixture *f, uint8_t seed, uint8_t tenant_seed,
                                 const char *principal, uint64_t version, uint64_t from_ns,
                                 uint64_t lifetime_ms, uint64_t policy_version);

struct fix_bytes {
	uint8_t *p;
	size_t n;
};
/* Seals a batch; frees the objects. @out: n sealed objects, each to be freed. */
void fix_seal(struct fixture *f, Ros2__V1__AgentObject **objs, size_t n, struct fix_bytes *out);
/* Seals one and opens it. */
struct agent_object *fix_open(struct fixture *f, Ros2__V1__AgentObject *obj);
#endif

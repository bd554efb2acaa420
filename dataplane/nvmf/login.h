/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An authentication (auth.h) over a fabrics queue: its messages as requests, one after the other.
 * The same for the admin queue of a controller and for its I/O queues, of which each proves itself
 * where the target's answer to Connect asks for it (NVMe Base 2.0, 6.3, 8.13). Of one thread.
 */
#ifndef ROS2_DATAPLANE_NVMF_LOGIN_H
#define ROS2_DATAPLANE_NVMF_LOGIN_H

#include "dataplane/nvmf/auth.h"
#include "dataplane/nvmf/config.h"
#include "dataplane/nvmf/queue.h"
#include <pthread.h>

/* What a tenant's queues prove themselves with. */
struct nvmf_secrets {
	struct nvme_auth_secret host, target;
	bool has_host, has_target; /* has_target: the target must prove itself */
};
/* The files that the document names, with the tenant's name for NVMF_TENANT_MARK, from @dir (NULL:
 * there is none). What it does not name is not there. As nvme_auth_secret_load. */
int nvmf_secrets_load(const struct nvmf_config *k, const char *dir, const char *tenant,
                      struct nvmf_secrets *ret, struct ros2_err *err);
void nvmf_secrets_wipe(struct nvmf_secrets *s);

/* Zeroed: none is going on. */
struct nvmf_login {
	struct nvme_auth *auth; /* owned */
	bool receives;
	pthread_t not_by; /* with @elsewhere: who must not compute */
	bool elsewhere;
	struct ros2_err why;                /* what went wrong, while the target is told */
	uint8_t msg[NVME_AUTH_MESSAGE_MAX]; /* the request's until it is done */
};
/* -EKEYREJECTED: no secret of the host is known. Ends one that is going on. */
int nvmf_login_begin(struct nvmf_login *l, const struct nvmf_secrets *s, const char *hostnqn,
                     const char *subnqn, struct ros2_err *err);
/* Whoever calls this will not compute: fill and got are another thread's. */
void nvmf_login_not_here(struct nvmf_login *l);
/* The command, direction, buffer and length of the next message. 0; 1: there is none, both are who
 * they say; -EIO. Computes: milliseconds in the larger groups. */
int nvmf_login_fill(struct nvmf_login *l, struct nvmf_req *req, struct ros2_err *err);
/* The answer to it; computes, too. 0: fill the next; -EKEYREJECTED, -EPROTO: end the queue. */
int nvmf_login_got(struct nvmf_login *l, const struct nvme_cqe *cqe, struct ros2_err *err);
/* No request of it is under way. */
void nvmf_login_end(struct nvmf_login *l);
#endif

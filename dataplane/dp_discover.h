/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a discovery controller over NVMe/TCP or NVMe/RDMA what there is (NVMe Base 2.0, 3.1.1.2):
 * connects, proves itself where that is asked for, enables it, reads its log, shuts it down. For a
 * command; it waits, and uses nothing that runs.
 */
#ifndef ROS2_DATAPLANE_DP_DISCOVER_H
#define ROS2_DATAPLANE_DP_DISCOVER_H

#include "dataplane/nvmf/discover.h"

struct dp_discover_opts {
	const char *address; /* IPv4 or IPv6, numeric */
	uint16_t port;
	const char *host_nqn;            /* NULL: made of a random UUID (Base 4.5) */
	uint64_t timeout_ms;             /* for all of it */
	bool rdma;                       /* else TCP */
	const char *device;              /* rdma; NULL: the only one there is */
	bool header_digest, data_digest; /* tcp: asked for, and refused where they are not given */
	/* Files with a DHHC-1 secret that only their owner may use; NULL: none. @target_secret: the
	 * target must prove that it knows it. */
	const char *secret, *target_secret;
};
/* 0 and the log, which is the caller's (nvme_discovery_free). Calling thread. -EINVAL: an address
 * or name, or several devices and none named; -ENODEV; -ETIMEDOUT; -EKEYREJECTED: who asks, or who
 * is asked, did not prove itself; -ENOTCONN, -EPROTO, -EACCES ... with words. */
int dp_discover(const struct dp_discover_opts *o, struct nvme_discovery **ret,
                struct ros2_err *err);
#endif

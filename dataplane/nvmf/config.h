/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an Engine document of type nvmf says, as agent, data plane and initiator hand it on: plain
 * values, checked by policy/ and once more where they are used. Secrets are never in it, only the
 * names of the files that hold them.
 */
#ifndef ROS2_DATAPLANE_NVMF_CONFIG_H
#define ROS2_DATAPLANE_NVMF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define NVMF_NQN_MAX         223 /* bytes without NUL: NVMe Base 2.0, 4.5 */
#define NVMF_ADDRESS_MAX     63
#define NVMF_SECRET_NAME_MAX 127
#define NVMF_VOLUMES_MAX     64
#define NVMF_VOLUME_NAME_MAX 127
#define NVMF_CQT_MAX_MS      65535 /* a target tells it in 16 bits */
#define NVMF_PORT            4420  /* I/O controllers, IANA */
#define NVMF_DISCOVERY_PORT  8009
/* In a host NQN and in the name of a secret: replaced by the tenant's name. */
#define NVMF_TENANT_MARK "{tenant}"

enum nvmf_transport { NVMF_TCP = 1, NVMF_RDMA = 2 };

/* [offset, +size) of a namespace of the subsystem, in bytes; multiples of its block size, which is
 * known only when the target has said it. */
struct nvmf_volume {
	char name[NVMF_VOLUME_NAME_MAX + 1]; /* segments with '/' between; a tenant's namespace
	                                        path is a prefix of whole segments */
	uint32_t nsid;                       /* 1..0xfffffffe */
	uint64_t offset;
	uint64_t size; /* 0 = to the end of the namespace, with offset 0 only */
};

struct nvmf_config {
	enum nvmf_transport transport;
	char address[NVMF_ADDRESS_MAX + 1]; /* IPv4 or IPv6, no name */
	uint16_t port;
	char subsystem[NVMF_NQN_MAX + 1];
	char host_nqn[NVMF_NQN_MAX + 1];       /* with NVMF_TENANT_MARK in it, exactly once */
	char secret[NVMF_SECRET_NAME_MAX + 1]; /* file in the agent's secrets directory: DHHC-1 of
	                                          the host; may hold the mark; "" = none */
	char target_secret[NVMF_SECRET_NAME_MAX + 1]; /* what the target must prove; "" = nothing */
	bool header_digest, data_digest;              /* tcp */
	bool keys_per_command;  /* rdma: a key for each command, else as long as its slot is used */
	uint32_t queue_depth;   /* of one I/O queue: 2..1024 */
	uint64_t keep_alive_ms; /* 1 s .. 60 s */
	/* Without an answer for this long the controller is given up. */
	uint64_t command_timeout_ms;
	/* After the loss of a controller whose end the target has not confirmed: how long until it
	 * cannot be carrying out old commands any more. 0 = keep alive time-out + what the target
	 * tells as its command quiesce time (at least 10 s). When it is not 0 it is waited for also
	 * where the target has confirmed the end. */
	uint64_t quiesce_ms;
	uint32_t n_volumes;
	struct nvmf_volume volumes[NVMF_VOLUMES_MAX];
};
#endif

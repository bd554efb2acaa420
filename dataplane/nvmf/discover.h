/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The discovery log (NVMe Base 2.0, 5.16.1.23): which parts of it to ask for, in which order, and
 * what they say. A log that changes while it is read is read again from its beginning, a few times.
 * No I/O: the caller carries Get Log Page. One thread; bounded whatever the target says.
 */
#ifndef ROS2_DATAPLANE_NVMF_DISCOVER_H
#define ROS2_DATAPLANE_NVMF_DISCOVER_H

#include "common/err.h"
#include "dataplane/nvmf/config.h"
#include "dataplane/nvmf/spec.h"
#include <stdbool.h>

#define NVME_DISCOVERY_MAX      1024u /* entries; more is a fault with a name */
#define NVME_DISCOVERY_PART     4096u /* most bytes of one Get Log Page */
#define NVME_DISCOVERY_RESTARTS 8u

struct nvme_discovered {
	uint8_t transport; /* enum nvme_trtype, or one that is not known here */
	uint8_t family;    /* enum nvme_adrfam, likewise */
	uint8_t kind;      /* enum nvme_subtype */
	uint8_t requires;  /* TREQ: NVME_TREQ_* */
	bool tls;          /* tcp: only with TLS (TSAS) */
	uint16_t port_id, cntlid, admin_entries;
	char address[257]; /* as the target wrote it: printable UTF-8 */
	char service[33];
	char subnqn[NVMF_NQN_MAX + 1];
};
/* "rdma", "fc", "tcp", "loop", "unknown"; "ipv4", ...; "referral", "nvme", "this". Never NULL. */
const char *nvme_trtype_to_str(uint8_t transport);
const char *nvme_adrfam_to_str(uint8_t family);
const char *nvme_subtype_to_str(uint8_t kind);

/* One entry: sizeof(struct nvme_discovery_entry) bytes. -EPROTO with words. */
int nvme_discovered_parse(const void *entry, struct nvme_discovered *ret, struct ros2_err *err);

struct nvme_discovery;
int nvme_discovery_new(struct nvme_discovery **ret, struct ros2_err *err); /* -ENOMEM */
void nvme_discovery_free(struct nvme_discovery *d);                        /* NULL is accepted */
/* The next part to ask for: bytes [*ret_offset, + *ret_len) of log 70h. False: all is known. */
bool nvme_discovery_next(const struct nvme_discovery *d, uint64_t *ret_offset, uint32_t *ret_len);
/* What was answered: exactly as many bytes as were asked for. -EPROTO, -ENOMEM; -EAGAIN: it changed
 * each time it was read. After an error there is nothing more to ask. */
int nvme_discovery_take(struct nvme_discovery *d, const void *data, struct ros2_err *err);
/* When all is known. Borrowed until free. */
const struct nvme_discovered *nvme_discovery_entries(const struct nvme_discovery *d, size_t *ret_n,
                                                     uint64_t *ret_generation);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control calls of a tenant (proto/ros2/v1/tenant.proto) as plain functions over one blocking
 * call. Behind it is a gRPC channel (control_rpc.c), or a test's own agent. Any thread.
 */
#ifndef ROS2_CLIENT_CONTROL_H
#define ROS2_CLIENT_CONTROL_H

#include "common/err.h"
#include "dataplane/client/ros2.h"
#include "proto/rpc/rpc.h"
#include <stdint.h>

struct control {
	/* As rpc_unary_sync. */
	int (*call)(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
	            uint32_t timeout_ms, ProtobufCMessage **ret_reply, struct ros2_err *err);
	/* Waits for a connection to the agent. */
	int (*wait_ready)(struct control *c, uint32_t timeout_ms, struct ros2_err *err);
	void (*free)(struct control *c);
	uint32_t timeout_ms; /* of calls that name none */
};

/* Over gRPC with mTLS. */
int control_rpc_new(const struct ros2_client_opts *o, struct control **ret, struct ros2_err *err);

struct control_session {
	uint8_t uid[16], secret[32];
	char data_address[256], tenant[64];
	uint32_t credits, max_io, max_inline, lease_ttl_ms, regions_max;
	uint64_t region_bytes_max, region_size_min, region_size_max, region_alignment;
	enum ros2_transport transport; /* TCP, VERBS or SHM: what data_address is of */
};
/* @shm_bytes: of SHM, or 0. */
int control_open_session(struct control *c, enum ros2_transport transport, uint64_t shm_bytes,
                         struct control_session *ret, struct ros2_err *err);
int control_close_session(struct control *c, const uint8_t uid[16], uint32_t timeout_ms,
                          struct ros2_err *err);
int control_mount(struct control *c, const uint8_t uid[16], const char *name, uint32_t *ret_mount,
                  struct ros2_err *err);
int control_open(struct control *c, const uint8_t uid[16], uint32_t mount, const char *path,
                 uint32_t flags, uint32_t mode, uint64_t *ret_handle, struct ros2_err *err);
int control_close(struct control *c, const uint8_t uid[16], uint64_t handle, struct ros2_err *err);
/* @timeout_ms 0 = the usual. */
int control_stat_handle(struct control *c, const uint8_t uid[16], uint64_t handle,
                        uint32_t timeout_ms, struct ros2_stat *ret, struct ros2_err *err);
int control_truncate(struct control *c, const uint8_t uid[16], uint64_t handle, uint64_t size,
                     struct ros2_err *err);
int control_stat(struct control *c, const uint8_t uid[16], uint32_t mount, const char *path,
                 uint32_t timeout_ms, struct ros2_stat *ret, struct ros2_err *err);
enum control_path_op { CONTROL_MKDIR, CONTROL_UNLINK, CONTROL_RMDIR };
int control_path(struct control *c, const uint8_t uid[16], uint32_t mount, enum control_path_op op,
                 const char *path, uint32_t mode, struct ros2_err *err);
int control_rename(struct control *c, const uint8_t uid[16], uint32_t mount, const char *from,
                   const char *to, struct ros2_err *err);
/* Returns the number of entries, or negative errno. */
int control_readdir(struct control *c, const uint8_t uid[16], uint32_t mount, const char *path,
                    uint64_t *cookie, struct ros2_dirent *out, uint32_t max, struct ros2_err *err);

struct control_lease {
	uint32_t key, generation, ttl_ms;
};
/* @addr: over shm an offset in the shared memory. */
int control_register(struct control *c, const uint8_t uid[16], uint64_t addr, uint64_t len,
                     uint32_t access, struct control_lease *ret, struct ros2_err *err);
int control_renew(struct control *c, const uint8_t uid[16], uint32_t key, uint32_t timeout_ms,
                  struct control_lease *ret, struct ros2_err *err);
int control_deregister(struct control *c, const uint8_t uid[16], uint32_t key, uint32_t timeout_ms,
                       struct ros2_err *err);
#endif

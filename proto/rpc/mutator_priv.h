/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gRPC shows of its sockets: each to the "socket mutator" of its listener or channel, before
 * it is used. The struct of one is in no public header; its shape here is that of gRPC 1.10 to 1.60
 * (src/core/lib/iomgr/socket_mutator.h), and tests fail if it is another.
 */
#ifndef ROS2_PROTO_RPC_MUTATOR_PRIV_H
#define ROS2_PROTO_RPC_MUTATOR_PRIV_H

#include <grpc/grpc.h>
#include <grpc/support/sync.h>
#include <stdbool.h>

enum fd_usage { FD_CLIENT_CONNECTION, FD_SERVER_LISTENER, FD_SERVER_CONNECTION };

struct mutate_info {
	int fd;
	enum fd_usage usage;
};

struct mutator;
struct mutator_vtable {
	bool (*mutate_fd)(int fd, struct mutator *m);
	int (*compare)(struct mutator *a, struct mutator *b);
	void (*destroy)(struct mutator *m);
	bool (*mutate_fd_2)(const struct mutate_info *info, struct mutator *m);
};

struct mutator {
	const struct mutator_vtable *vtable;
	gpr_refcount refs;
};

/* mutator.c; any thread. The first two of a vtable; gRPC asks the last one for each socket. */
bool rpc_mutator_old(int fd, struct mutator *m);
int rpc_mutator_compare(struct mutator *a, struct mutator *b);
/* With one reference. The last one given back runs @vtable->destroy, which begins with
 * rpc_tsan_acquire of @m. */
void rpc_mutator_init(struct mutator *m, const struct mutator_vtable *vtable);
void rpc_mutator_unref(struct mutator *m);
/* Of a server or a channel, which takes a reference of its own. */
grpc_arg rpc_mutator_arg(struct mutator *m);
#endif

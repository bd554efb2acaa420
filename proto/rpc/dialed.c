/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket that a channel dials with. gRPC 1.51 forgets a connection that comes to be one while
 * its channel is destroyed: one whose server's SETTINGS come behind that, which on a busy machine
 * is no rare moment (grpc/grpc#32071, fixed in 1.52). Nobody closes it then: it answers the
 * server's pings, and takes a descriptor and the server's place for a connection, for as long as
 * the process is there. So before a channel goes, what it dials is reset.
 */
#include "proto/rpc/mutator_priv.h"
#include "proto/rpc/rpc_priv.h"
#include <stdlib.h>

struct rpc_dialed {
	struct mutator m; /* first */
	pthread_mutex_t lock;
	/* guarded by lock: the latest; one at a time */
	int fd;
	ino_t ino; /* 0: none */
};

static bool mutate(const struct mutate_info *info, struct mutator *m)
{
	struct rpc_dialed *d = container_of(m, struct rpc_dialed, m);

	pthread_mutex_lock(&d->lock);
	d->fd = info->fd;
	d->ino = rpc_socket_ino(info->fd);
	pthread_mutex_unlock(&d->lock);
	return true;
}

static void destroy(struct mutator *m)
{
	struct rpc_dialed *d = container_of(m, struct rpc_dialed, m);

	rpc_tsan_acquire(d);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static const struct mutator_vtable vtable = {rpc_mutator_old, rpc_mutator_compare, destroy, mutate};

struct rpc_dialed *rpc_dialed_new(void)
{
	struct rpc_dialed *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	rpc_mutator_init(&d->m, &vtable);
	pthread_mutex_init(&d->lock, NULL);
	return d;
}

void rpc_dialed_unref(struct rpc_dialed *d)
{
	if (d)
		rpc_mutator_unref(&d->m);
}

grpc_arg rpc_dialed_arg(struct rpc_dialed *d)
{
	return rpc_mutator_arg(&d->m);
}

bool rpc_dialed_abort(struct rpc_dialed *d)
{
	bool is;

	pthread_mutex_lock(&d->lock);
	is = d->ino && rpc_socket_abort(d->fd, d->ino);
	pthread_mutex_unlock(&d->lock);
	return is;
}

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

static bool mutate_old(int fd, struct mutator *m)
{
	return true;
}

static int compare(struct mutator *a, struct mutator *b)
{
	return a < b ? -1 : a > b;
}

static void destroy(struct mutator *m)
{
	struct rpc_dialed *d = container_of(m, struct rpc_dialed, m);

	rpc_tsan_acquire(d);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static const struct mutator_vtable vtable = {mutate_old, compare, destroy, mutate};

struct rpc_dialed *rpc_dialed_new(void)
{
	struct rpc_dialed *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->m.vtable = &vtable;
	gpr_ref_init(&d->m.refs, 1);
	pthread_mutex_init(&d->lock, NULL);
	return d;
}

void rpc_dialed_unref(struct rpc_dialed *d)
{
	if (!d)
		return;
	rpc_tsan_release(d);
	if (gpr_unref(&d->m.refs))
		destroy(&d->m);
}

static void *arg_copy(void *p)
{
	gpr_ref(&((struct mutator *)p)->refs);
	return p;
}

static void arg_destroy(void *p)
{
	rpc_dialed_unref(p);
}

static int arg_cmp(void *a, void *b)
{
	return a < b ? -1 : a > b;
}

grpc_arg rpc_dialed_arg(struct rpc_dialed *d)
{
	static const grpc_arg_pointer_vtable arg_vtable = {arg_copy, arg_destroy, arg_cmp};
	grpc_arg arg = {.type = GRPC_ARG_POINTER, .key = (char *)GRPC_ARG_SOCKET_MUTATOR};

	arg.value.pointer.p = &d->m;
	arg.value.pointer.vtable = &arg_vtable;
	return arg;
}

bool rpc_dialed_abort(struct rpc_dialed *d)
{
	bool is;

	pthread_mutex_lock(&d->lock);
	is = d->ino && rpc_socket_abort(d->fd, d->ino);
	pthread_mutex_unlock(&d->lock);
	return is;
}

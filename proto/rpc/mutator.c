/* SPDX-License-Identifier: Apache-2.0 */
/* What every socket mutator has in common: its references, and its way to gRPC as an argument. */
#include "proto/rpc/mutator_priv.h"
#include "proto/rpc/rpc_priv.h"

bool rpc_mutator_old(int fd, struct mutator *m)
{
	return true;
}

int rpc_mutator_compare(struct mutator *a, struct mutator *b)
{
	return a < b ? -1 : a > b;
}

void rpc_mutator_init(struct mutator *m, const struct mutator_vtable *vtable)
{
	m->vtable = vtable;
	gpr_ref_init(&m->refs, 1);
}

void rpc_mutator_unref(struct mutator *m)
{
	rpc_tsan_release(m);
	if (gpr_unref(&m->refs))
		m->vtable->destroy(m);
}

static void *arg_copy(void *p)
{
	gpr_ref(&((struct mutator *)p)->refs);
	return p;
}

static void arg_destroy(void *p)
{
	rpc_mutator_unref(p);
}

static int arg_cmp(void *a, void *b)
{
	return a < b ? -1 : a > b;
}

grpc_arg rpc_mutator_arg(struct mutator *m)
{
	static const grpc_arg_pointer_vtable arg_vtable = {arg_copy, arg_destroy, arg_cmp};
	grpc_arg arg = {.type = GRPC_ARG_POINTER, .key = (char *)GRPC_ARG_SOCKET_MUTATOR};

	arg.value.pointer.p = m;
	arg.value.pointer.vtable = &arg_vtable;
	return arg;
}

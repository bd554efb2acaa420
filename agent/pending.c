/* SPDX-License-Identifier: Apache-2.0 */
/* See pending_priv.h. What the data plane answers is gathered beside the list that is told, and
 * takes its place when it is whole. Freed while an answer is awaited it stays until that has come.
 */
#include "agent/pending_priv.h"
#include "agent/state.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct one {
	struct ros2_uid tenant;
	uint32_t keys;
};

struct keys_list {
	struct one v[PENDING_TENANTS_MAX];
	uint32_t n, left_out;
};

struct pending {
	struct agent *a; /* borrowed: it is freed after the data plane's last answer */
	uint64_t until_ns;
	pending_fn fn;
	void *arg;
	bool asking, freed;
	struct keys_list now, next;
	Ros2__V1__PendingKeys msg[PENDING_TENANTS_MAX], *msgs[PENDING_TENANTS_MAX];
};

struct pending *pending_new(struct agent *a, uint64_t until_ns, pending_fn fn, void *arg)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->a = a;
	p->until_ns = until_ns;
	p->fn = fn;
	p->arg = arg;
	return p;
}

void pending_free(struct pending *p)
{
	if (p && p->asking)
		p->freed = true;
	else
		free(p);
}

/* More than fit: the one with fewest keys is left out. */
static void add(struct keys_list *l, const struct ros2_uid *tenant, uint32_t keys)
{
	struct one *least = l->v;

	for (uint32_t i = 0; i < l->n; i++) {
		if (ros2_uid_eq(&l->v[i].tenant, tenant)) {
			l->v[i].keys += MIN(keys, UINT32_MAX - l->v[i].keys);
			return;
		}
		if (l->v[i].keys < least->keys)
			least = &l->v[i];
	}
	if (l->n < PENDING_TENANTS_MAX) {
		l->v[l->n++] = (struct one){*tenant, keys};
		return;
	}
	l->left_out++;
	if (keys > least->keys)
		*least = (struct one){*tenant, keys};
}

static int most_first(const void *a, const void *b)
{
	const struct one *x = a, *y = b;

	if (x->keys != y->keys)
		return x->keys < y->keys ? 1 : -1;
	return memcmp(&x->tenant, &y->tenant, sizeof(x->tenant));
}

static void on_keys(void *arg, const struct ros2_uid *dp_tenant, uint32_t keys)
{
	struct pending *p = arg;
	struct ros2_uid tenant;
	bool changed;

	if (dp_tenant) {
		if (p->freed)
			return;
		tenant = state_of_dp_uid(p->a->state, dp_tenant);
		add(&p->next, &tenant, keys);
		return;
	}
	p->asking = false;
	if (p->freed) {
		free(p);
		return;
	}
	qsort(p->next.v, p->next.n, sizeof(p->next.v[0]), most_first);
	changed = memcmp(&p->now, &p->next, sizeof(p->now)) != 0;
	p->now = p->next;
	p->fn(p->arg, changed);
}

int pending_ask(struct pending *p)
{
	int r;

	if (p->asking)
		return -EALREADY;
	memset(&p->next, 0, sizeof(p->next));
	r = dp_keys_pending(p->a->dp, p->until_ns, on_keys, p);
	p->asking = r == 0;
	return r;
}

bool pending_any(const struct pending *p)
{
	return p->now.n != 0;
}

void pending_put(struct pending *p, Ros2__V1__Receipt *r)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->now.n; i++) {
		Ros2__V1__PendingKeys *m = &p->msg[i];

		ros2__v1__pending_keys__init(m);
		m->tenant_uid = (ProtobufCBinaryData){16, p->now.v[i].tenant.b};
		m->keys = p->now.v[i].keys;
		m->device = (char *)(p->a->o.rdma_device ? p->a->o.rdma_device : "");
		p->msgs[i] = m;
	}
	r->pending = p->msgs;
	r->n_pending = p->now.n;
	r->pending_left_out = p->now.left_out;
}

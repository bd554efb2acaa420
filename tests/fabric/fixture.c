// SPDX-License-Identifier: Apache-2.0
#include "tests/fabric/fixture.h"
#include "common/clock.h"
#include "tests/await.h"
#include <errno.h>
#include <string.h>

bool world_end_by_dealloc;
uint64_t world_pinned_bytes;

struct fabric_pd_opts world_caps(void)
{
	return (struct fabric_pd_opts){.pinned_bytes_max =
	                                       world_pinned_bytes ? world_pinned_bytes : 256u << 20,
	                               .regions_max = 512,
	                               .windows_max = 512,
	                               .qps_max = 16};
}

struct fabric_set_opts world_set(void)
{
	return (struct fabric_set_opts){.cq_depth = 1024,
	                                .qps_max = 8,
	                                .slots = {16, 4, 4},
	                                .end_by_dealloc = world_end_by_dealloc};
}

struct fabric_qp_opts world_qp(const struct world *w, int side)
{
	struct fabric_qp_opts o = {
		.cookie = (uint64_t)side + 100,
		.send_depth = 64,
		.recv_depth = 32,
		.send_parts = 2,
		.recv_parts = 2,
		.inline_bytes = 64,
		.reads_out = 4,
		.gid_index = w->gid_index,
	};

	if (side == OURS) {
		o.windows = 8;
		o.remote_access = FABRIC_READ | FABRIC_WRITE;
		o.reads_in = 4;
	}
	return o;
}

/* RoCE v2 over IPv4 where there is one: 0:0:0:0:0:ffff:a.b.c.d */
static uint32_t find_gid(const struct fabric_dev_attr *a)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	for (uint32_t i = 0; i < a->ports[0].n_gids; i++)
		if (memcmp(a->ports[0].gids[i].raw, v4, sizeof(v4)) == 0)
			return a->ports[0].gids[i].index;
	return a->ports[0].n_gids > 1 ? a->ports[0].gids[1].index : 0;
}

int world_sets(struct world *w)
{
	char names[1][FABRIC_NAME_MAX];
	struct fabric_pd_opts caps = world_caps();
	struct fabric_set_opts so = world_set();
	uint32_t n;
	int r;

	*w = (struct world){0};
	r = fabric_list(names, 1, &n, &w->err);
	if (r < 0 || n == 0)
		return r < 0 ? r : -ENODEV;
	r = fabric_dev_open(names[0], &w->dev, &w->err);
	if (r < 0)
		return r;
	w->gid_index = find_gid(fabric_dev_attr(w->dev));
	r = fabric_channel_new(w->dev, &w->chan, &w->err);
	for (int i = 0; i < SIDES && r == 0; i++) {
		r = fabric_pd_new(w->dev, &caps, &w->pd[i], &w->err);
		so.cookie = (uint64_t)i + 1;
		if (r == 0)
			r = fabric_set_new(w->pd[i], w->chan, &so, &w->set[i], &w->err);
	}
	return r;
}

static int post_receives(struct world *w, int side, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct fabric_slot slot;
		struct fabric_part part;
		int r;

		if (!fabric_slot_take(w->set[side], 1, &slot))
			return -ENOMEM;
		part = (struct fabric_part){.region = slot.region, .length = 4096};
		r = fabric_recv(w->qp[side],
		                &(struct fabric_wr){.cookie = i, .parts = &part, .n_parts = 1});
		/* quarantined until the receive ends */
		(void)fabric_slot_give(w->set[side], &slot);
		if (r < 0)
			return r;
	}
	return fabric_qp_flush(w->qp[side], 1);
}

int world_join(struct world *w, uint32_t receives)
{
	struct fabric_qp_addr at[SIDES];
	int r = 0;

	for (int i = 0; i < SIDES && r == 0; i++) {
		struct fabric_qp_opts o = world_qp(w, i);

		r = fabric_qp_new(w->set[i], &o, &w->qp[i], &w->err);
		if (r < 0)
			break;
		fabric_qp_address(w->qp[i], &at[i]);
		r = post_receives(w, i, receives);
	}
	for (int i = 0; i < SIDES && r == 0; i++)
		r = fabric_qp_join(w->qp[i], &at[!i], &w->err);
	return r;
}

void world_open(struct world *w)
{
	int r = world_sets(w);

	if (r == 0)
		r = world_join(w, 4);
	if (r < 0)
		print_error("%s\n", w->err.msg);
	assert_int_equal(r, 0);
}

void world_close(struct world *w)
{
	struct fabric_pd_use use;

	for (int i = 0; i < SIDES; i++) {
		if (w->qp[i])
			fabric_qp_free(w->qp[i]);
		assert_int_equal(fabric_set_free(w->set[i]), 0);
		if (w->pd[i]) {
			fabric_pd_use(w->pd[i], &use);
			assert_int_equal(use.pinned_bytes, 0);
			assert_int_equal(use.regions + use.windows + use.qps + use.sets, 0);
		}
		assert_int_equal(fabric_pd_free(w->pd[i]), 0);
	}
	fabric_channel_free(w->chan);
	assert_int_equal(fabric_dev_close(w->dev), 0);
}

void world_rejoin(struct world *w)
{
	for (int i = 0; i < SIDES; i++)
		fabric_qp_free(w->qp[i]);
	assert_int_equal(world_join(w, 4), 0);
}

struct fabric_completion world_wait(struct world *w, int side, enum fabric_op op)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;
	struct fabric_completion c;

	while (clock_monotonic_ns() < until) {
		int n = fabric_set_poll(w->set[side], &c, 1);

		assert_true(n >= 0);
		if (n == 1 && c.op == op)
			return c;
		/* the other side moves on, too */
		(void)fabric_set_poll(w->set[!side], &c, 0);
	}
	fail_msg("no completion of %s", fabric_op_to_str(op));
	return c;
}

uint32_t world_poll(struct world *w, int side, struct fabric_completion *last)
{
	struct fabric_completion c[64];
	int n = fabric_set_poll(w->set[side], c, 64);

	assert_true(n >= 0);
	if (n > 0)
		*last = c[n - 1];
	return (uint32_t)n;
}

struct fabric_slot world_slot(struct world *w, int side, uint32_t len)
{
	struct fabric_slot slot = {0};

	assert_true(fabric_slot_take(w->set[side], len, &slot));
	return slot;
}

struct fabric_window *world_bind(struct world *w, struct fabric_slot *slot, uint8_t access,
                                 uint32_t *key)
{
	struct fabric_bind b = {
		.region = slot->region, .length = slot->size_bytes, .access = access};
	struct fabric_window *win;

	assert_int_equal(fabric_window_bind(w->qp[OURS], &b, &win, key), 0);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], clock_boottime_ns()), 0);
	assert_int_equal(world_wait(w, OURS, FABRIC_OP_BIND).end, FABRIC_END_OK);
	return win;
}

enum fabric_end world_rdma(struct world *w, enum fabric_op op, struct fabric_slot *slot,
                           uint32_t len, uint64_t address, uint32_t key)
{
	struct fabric_part part = {.region = slot->region, .length = len};
	struct fabric_wr wr = {.parts = &part,
	                       .n_parts = len ? 1 : 0,
	                       .remote_address = address,
	                       .remote_key = key};

	assert_int_equal(op == FABRIC_OP_READ ? fabric_read(w->qp[PEER], &wr)
	                                      : fabric_write(w->qp[PEER], &wr),
	                 0);
	assert_int_equal(fabric_qp_flush(w->qp[PEER], clock_boottime_ns()), 0);
	return world_wait(w, PEER, op).end;
}

void on_receipt(void *arg, const struct fabric_receipt *r)
{
	struct receipts *all = arg;

	all->n++;
	all->last = *r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rxe of Linux 6.1, and its connection manager, does and does not enforce, asked row by row;
 * TAP, one line a row with what was seen. A row fails when the device answers otherwise than it is
 * known to: then the kernel or the library changed, and what rests on the row must be looked at
 * again.
 *
 *   guest-facts            the rows that no product needs to try; the others: tests/guest/probe
 *   guest-facts revoke-race N   N revokes by each way during transfers
 *   guest-facts NAME       one row that may take the kernel down; runs in a guest of its own
 */
#include "common/util.h"
#include "dataplane/fabric/probe_verbs_priv.h"
#include "tests/guest/verbs_cm.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOTH (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static unsigned lines, failed, race_tries = 10;

static void row(bool as_known, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void row(bool as_known, const char *name, const char *fmt, ...)
{
	va_list ap;

	printf("%s %u - rxe__%s (", as_known ? "ok" : "not ok", ++lines, name);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(")\n");
	fflush(stdout);
	failed += !as_known;
}

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* ---- rows that need two tenants ---- */

static void plain_key_on_another_qp(struct vp_case *c)
{
	struct vp_pair second;
	int r = vp_pair_open(c->v, &c->a, &c->a, NULL, &second);

	if (!r) {
		r = vp_write(&second, at(c->a.slot), 64, c->a.plain_mr->rkey);
		vp_pair_close(&second);
	}
	row(r == IBV_WC_SUCCESS, "region_key_works_on_every_queue_pair_of_its_pd", "%s",
	    vp_end_str(r));
}

static void type_1_on_another_qp(struct vp_case *c)
{
	struct ibv_mw *mw = ibv_alloc_mw(c->a.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind b = {.send_flags = IBV_SEND_SIGNALED,
	                        .bind_info = {.mr = c->a.slot_mr,
	                                      .addr = at(c->a.slot),
	                                      .length = 4096,
	                                      .mw_access_flags = BOTH}};
	struct vp_pair second;
	int r = mw ? -ibv_bind_mw(c->own.t.qp, mw, &b) : -errno;

	if (!r)
		r = vp_wait(&c->own.t, NULL, VP_WAIT_MS);
	if (!r)
		r = vp_pair_open(c->v, &c->a, &c->a, NULL, &second);
	if (!r) {
		r = vp_write(&second, at(c->a.slot), 64, mw->rkey);
		vp_pair_close(&second);
	}
	if (mw)
		ibv_dealloc_mw(mw);
	row(r == IBV_WC_SUCCESS, "type_1_window_works_on_every_queue_pair_of_its_pd", "%s",
	    vp_end_str(r));
}

static void zero_length_where_access_is_open(struct vp_case *c)
{
	int w = vp_access(&c->own, &c->own.i, IBV_WR_RDMA_WRITE, 0, 0, 0x1234);
	int r = vp_access(&c->own, &c->own.i, IBV_WR_RDMA_READ, 0, 0, 0x1234);

	row(w == IBV_WC_SUCCESS && r == IBV_WC_SUCCESS,
	    "zero_length_succeeds_with_any_key_where_access_is_open", "WRITE %s, READ %s",
	    vp_end_str(w), vp_end_str(r));
}

static void dereg_under_a_window(struct vp_case *c)
{
	int r = vp_bind(&c->own, 0, c->a.slot_mr, at(c->a.slot), 4096, BOTH), d;

	d = r ? 0 : ibv_dereg_mr(c->a.slot_mr);
	if (!r && !d)
		c->a.slot_mr = NULL;
	row(!r && d == EINVAL, "a_region_under_a_window_is_not_deregistered", "bind %s, dereg %s",
	    vp_end_str(r), strerror(d));
}

static void invalidate_by_another_qp(struct vp_case *c)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV};
	struct vp_pair second;
	int r = vp_bind(&c->own, 0, c->a.slot_mr, at(c->a.slot), 4096, BOTH);

	if (!r)
		r = vp_pair_open(c->v, &c->a, &c->a, NULL, &second);
	if (!r) {
		wr.invalidate_rkey = c->own.windows[0].key;
		c->own.windows[0].bound = false;
		r = vp_post(&second.t, &wr);
		if (!r)
			r = vp_wait(&second.t, NULL, VP_WAIT_MS);
		vp_pair_close(&second);
	}
	row(r == IBV_WC_SUCCESS, "any_queue_pair_of_the_pd_may_invalidate", "%s", vp_end_str(r));
}

/* Over memory that the region does not have. */
static void failed_bind(struct vp_case *c)
{
	int r = vp_bind(&c->own, 0, c->a.slot_mr, at(c->a.slot), 2 * VP_SLOT_BYTES, BOTH);
	int next = vp_bind(&c->own, 1, c->a.slot_mr, at(c->a.slot), 4096, BOTH);

	row(r > 0 && next != IBV_WC_SUCCESS, "a_failed_bind_ends_the_queue_pair",
	    "the bind %s, the next %s", vp_end_str(r), vp_end_str(next));
}

/* The QP's own end is flushed; deallocating is what is left. */
static void invalidate_in_error(struct vp_case *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	int r = vp_bind(&c->own, 0, c->a.slot_mr, at(c->a.slot), 4096, BOTH), d;

	if (!r && ibv_modify_qp(c->own.t.qp, &a, IBV_QP_STATE))
		r = -EIO;
	if (!r)
		r = vp_invalidate(&c->own, 0);
	d = vp_dealloc(&c->own, 0);
	row(r == IBV_WC_WR_FLUSH_ERR && !d, "local_inv_in_error_is_flushed_and_dealloc_works",
	    "LOCAL_INV %s, dealloc %s", vp_end_str(r), strerror(-d));
}

static void sequential_numbers(struct vp_case *c)
{
	int first = (int)c->own.t.qp->qp_num;
	int steps[3] = {(int)c->own.i.qp->qp_num - first, (int)c->other.t.qp->qp_num - first,
	                (int)c->other.i.qp->qp_num - first};

	row(steps[0] == 1 && steps[1] == 2 && steps[2] == 3,
	    "queue_pair_numbers_count_up_across_tenants", "steps %d %d %d", steps[0], steps[1],
	    steps[2]);
}

static void not_supported(struct vp_case *c)
{
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1000};
	struct ibv_td_init_attr td = {0};
	struct ibv_td *t;
	struct ibv_mr *mr;
	int r = ibv_modify_qp_rate_limit(c->own.t.qp, &rate);

	row(r == EOPNOTSUPP, "no_rate_limit", "ibv_modify_qp_rate_limit: %s", strerror(r));
	r = ibv_rereg_mr(c->a.plain_mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
	                 IBV_ACCESS_LOCAL_WRITE);
	row(r != 0, "no_rereg", "ibv_rereg_mr: %d, %s", r, strerror(errno));
	mr = ibv_reg_mr(c->a.pd, c->a.slot, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	row(!mr, "no_on_demand_paging", "%s", mr ? "registered" : strerror(errno));
	if (mr)
		ibv_dereg_mr(mr);
	errno = 0;
	mr = ibv_alloc_null_mr(c->a.pd);
	row(!mr, "no_null_region", "%s", mr ? "allocated" : strerror(errno));
	errno = 0;
	t = ibv_alloc_td(c->v->ctx, &td);
	row(!t, "no_thread_domain", "%s", t ? "allocated" : strerror(errno));
	if (t)
		ibv_dealloc_td(t);
}

/* Writes are checked, then copied, packet by packet: what was checked before the revoke may be
 * copied after it returned, when the processor that copies is held up. Never more than one packet,
 * and nothing after a grace period of the kernel. */
static void revoke_race(struct vp_case *c)
{
	static const char *const how[] = {"local_inv", "dealloc_mw", "local_inv_and_grace",
	                                  "dealloc_mw_and_grace"};
	char name[64];

	for (int i = 0; i < 4; i++) {
		const uint32_t most = i < 2 ? 1024 : 0;
		struct vp_flights fl;
		int r = vp_flights(c, i & 1 ? VP_BY_DEALLOC : VP_BY_INVALIDATE, i >= 2, race_tries,
		                   &fl);

		snprintf(name, sizeof(name), "%s_leaves_%s", how[i],
		         most ? "one_packet_at_most" : "nothing");
		row(!r && fl.cut && fl.most_late <= most, name,
		    "%u revokes in flight, %u with late bytes, at most %u; %s", fl.cut,
		    fl.with_late, fl.most_late, vp_end_str(r));
	}
}

/* ---- rows that may take the kernel down ---- */

static void second_invalidate(struct vp_case *c)
{
	int r = vp_bind(&c->own, 0, c->a.slot_mr, at(c->a.slot), 4096, BOTH);

	if (!r)
		r = vp_invalidate(&c->own, 0);
	if (r) {
		row(false, "second_local_inv", "the first did not work: %s", vp_end_str(r));
		return;
	}
	printf("# the window is free; once more\n");
	fflush(stdout);
	c->own.windows[0].bound = true; /* on purpose: it is not */
	r = vp_invalidate(&c->own, 0);
	row(false, "second_local_inv_takes_the_kernel_down", "it lives: %s", vp_end_str(r));
}

static void foreign_unbound(struct vp_case *c)
{
	struct ibv_mw *mw = ibv_alloc_mw(c->a.pd, IBV_MW_TYPE_2);
	int r = vp_recv(&c->other);

	if (!mw || r) {
		row(false, "foreign_unbound", "no window, or no receive");
		return;
	}
	printf("# the window was never bound; a SEND_WITH_INV names it\n");
	fflush(stdout);
	r = vp_send(&c->other, mw->rkey);
	row(false, "foreign_invalidate_of_an_unbound_window_takes_the_kernel_down", "it lives: %s",
	    vp_end_str(r));
	ibv_dealloc_mw(mw);
}

static void requests_beyond_the_backlog(void)
{
	struct cm_seen s = {0};
	bool made = cm_requests("10.77.0.1", &s);

	row(made && s.first == CM_BACKLOG && !s.early && s.later == CM_ASKERS - CM_BACKLOG &&
	            s.refused == CM_ASKERS,
	    "requests_beyond_the_backlog_are_dropped_and_come_again",
	    "%d asked a listener of %d that did not look: %d were refused; it found %d, and then "
	    "%d that asked again; %d heard that they are refused",
	    s.asked, CM_BACKLOG, s.early, s.first, s.later, s.refused);
}

static void request_in_anothers_name(void)
{
	struct cm_named s = {0};
	bool made = cm_names_anothers("10.77.0.1", &s);

	row(made && s.status && !s.heard && s.ended,
	    "a_request_that_names_anothers_queue_pair_ends_its_connection",
	    "a connection %s; who asked with the number of its queue pair was refused (%d) by the "
	    "kernel, the listener heard %s of it; the connection %s",
	    s.stood ? "stood" : "did not stand", s.status, s.heard ? "something" : "nothing",
	    s.ended ? "was ended" : "stands");
}

static void with_tenants(struct vp *v, void (*fn)(struct vp_case *c))
{
	struct vp_case c = {.v = v};

	if (vp_tenant_open(v, &c.a) || vp_tenant_open(v, &c.b) ||
	    vp_pair_open(v, &c.a, &c.a, NULL, &c.own) ||
	    vp_pair_open(v, &c.b, &c.b, NULL, &c.other)) {
		row(false, "tenants", "two tenants could not be made");
		return;
	}
	fn(&c);
	vp_pair_close(&c.own);
	vp_pair_close(&c.other);
	vp_tenant_close(&c.a);
	vp_tenant_close(&c.b);
}

static void (*const rows[])(struct vp_case *c) = {
	sequential_numbers,  plain_key_on_another_qp,          type_1_on_another_qp,
	failed_bind,         zero_length_where_access_is_open, dereg_under_a_window,
	invalidate_in_error, invalidate_by_another_qp,         not_supported,
};

int main(int argc, char **argv)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct vp v;

	if (vp_open(&v, "rxe0", &err)) {
		printf("1..0 # SKIP %s\n", err.msg);
		return 77;
	}
	if (argc == 1) {
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			with_tenants(&v, rows[i]);
		requests_beyond_the_backlog();
		request_in_anothers_name();
	} else if (!strcmp(argv[1], "revoke-race")) {
		race_tries = argc > 2 ? (unsigned)atoi(argv[2]) : 100;
		with_tenants(&v, revoke_race);
	} else if (!strcmp(argv[1], "second-invalidate"))
		with_tenants(&v, second_invalidate);
	else if (!strcmp(argv[1], "foreign-unbound"))
		with_tenants(&v, foreign_unbound);
	else
		row(false, "usage", "no row '%s'", argv[1]);
	vp_close(&v);
	printf("1..%u\n", lines);
	return failed ? 1 : 0;
}

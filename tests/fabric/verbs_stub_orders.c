// SPDX-License-Identifier: Apache-2.0
/* The state of the stub, its faults, and what a test orders. See verbs_stub.h. */
#include "tests/fabric/verbs_stub_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct stub_state st = {.lock = PTHREAD_MUTEX_INITIALIZER, .async_fd = -1};

pthread_mutex_t *stub_lock(void)
{
	pthread_mutex_lock(&st.lock);
	return &st.lock;
}

/* Of tests/sweep, where a test has it. */
extern void sweep_hold(void) __attribute__((weak));
extern void sweep_release(void) __attribute__((weak));

void *stub_zalloc(size_t n, size_t size)
{
	void *p;

	if (sweep_hold)
		sweep_hold();
	p = calloc(n, size);
	if (sweep_release)
		sweep_release();
	return p;
}

void stub_blame(const char *words)
{
	if (!st.violation)
		st.violation = words;
}

void stub_born(int n)
{
	st.alive += (uint32_t)n;
}

const char *stub_call_to_str(enum stub_call c)
{
	static const char *const names[] = {
#define X(name) [STUB_##name] = #name,
		STUB_CALLS(X)
#undef X
	};
	return names[c];
}

static bool only_ends(enum stub_call c)
{
	return c == STUB_dealloc_pd || c == STUB_dereg_mr || c == STUB_dealloc_mw ||
	       c == STUB_destroy_cq || c == STUB_destroy_qp || c == STUB_poll_cq ||
	       c == STUB_req_notify_cq;
}

int stub_fault(enum stub_call c)
{
	int code = 0;

	if (st.paused)
		return 0;
	st.calls[c].count++;
	if (st.any_armed && !only_ends(c)) {
		if (st.any_after <= 1)
			code = ENOMEM;
		if (st.any_after)
			st.any_after--;
		if (code && !st.any_for_good)
			st.any_armed = false;
	}
	if (!code && st.calls[c].armed && st.calls[c].after-- <= 1) {
		code = (int)st.calls[c].code;
		st.calls[c].after = 1;
		st.calls[c].armed = st.calls[c].for_good;
	}
	st.failures += code != 0;
	if (code)
		errno = code;
	return code;
}

void stub_order_add(const char *name)
{
	size_t n = strlen(st.order), k = strlen(name);

	if ((n >= k && strcmp(st.order + n - k, name) == 0) || n + k + 2 > sizeof(st.order))
		return;
	snprintf(st.order + n, sizeof(st.order) - n, "%s%s", n ? " " : "", name);
}

struct qp *stub_qp_of(uint32_t qpn)
{
	for (int i = 0; i < QPS; i++)
		if (st.qps[i].used && st.qps[i].qp.qp_num == qpn)
			return &st.qps[i];
	return NULL;
}

void stub_order_clear(void)
{
	st.order[0] = 0;
}

const char *stub_order(void)
{
	return st.order;
}

uint32_t stub_alive(void)
{
	STUB_LOCK;

	return st.alive;
}

const char *stub_violation(void)
{
	STUB_LOCK;

	return st.violation;
}

void stub_devices(uint32_t n)
{
	st.n_devices = MIN(n, DEVICES);
}

void stub_fail(enum stub_call c, uint32_t nth, int code, bool for_good)
{
	STUB_LOCK;

	st.calls[c].armed = nth > 0;
	st.calls[c].after = nth;
	st.calls[c].code = (uint32_t)code;
	st.calls[c].for_good = for_good;
}

void stub_fail_any(uint32_t nth, bool for_good)
{
	STUB_LOCK;

	st.any_armed = nth > 0;
	st.any_after = nth;
	st.any_for_good = for_good;
	st.failures = 0;
}

void stub_pause(bool on)
{
	STUB_LOCK;

	st.paused = on;
}

uint32_t stub_failures(void)
{
	return st.failures;
}

uint64_t stub_count(enum stub_call c)
{
	STUB_LOCK;

	return st.calls[c].count;
}

void stub_hold(uint32_t ops)
{
	STUB_LOCK;

	st.held = ops;
}

void stub_release(void)
{
	STUB_LOCK;

	st.held = 0;
	stub_run_all();
}

void stub_end_held(void)
{
	STUB_LOCK;

	st.held = 0;
	for (int i = 0; i < QPS; i++) {
		struct qp *qp = &st.qps[i];

		while (qp->used && qp->sq_head != qp->sq_tail) {
			const struct swr *w = &qp->sq[qp->sq_head++ % QUEUE];

			if (w->flags & IBV_SEND_SIGNALED)
				stub_push(qp->qp.send_cq, (struct ibv_wc){.wr_id = w->wr_id,
				                                          .qp_num = qp->qp.qp_num});
		}
	}
}

void stub_end_next(enum stub_op op, int status)
{
	STUB_LOCK;

	st.end_op = op;
	st.end_status = status;
}

void stub_lose(bool on)
{
	st.lose = on;
}

void stub_port(bool active)
{
	st.port_active = active;
}

void stub_event_port(bool up)
{
	STUB_LOCK;

	st.port_active = up;
	stub_push_event((struct ibv_async_event){.element.port_num = 1,
	                                         .event_type = up ? IBV_EVENT_PORT_ACTIVE
	                                                          : IBV_EVENT_PORT_ERR});
}

void stub_event_device(void)
{
	STUB_LOCK;

	stub_push_event((struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
}

void stub_event_qp(uint32_t qpn)
{
	STUB_LOCK;

	stub_push_event((struct ibv_async_event){.element.qp = &stub_qp_of(qpn)->qp,
	                                         .event_type = IBV_EVENT_QP_ACCESS_ERR});
}

void stub_event_cq_of(uint32_t qpn)
{
	STUB_LOCK;

	stub_push_event((struct ibv_async_event){.element.cq = stub_qp_of(qpn)->qp.send_cq,
	                                         .event_type = IBV_EVENT_CQ_ERR});
}

void stub_event_other(void)
{
	STUB_LOCK;

	stub_push_event((struct ibv_async_event){.event_type = IBV_EVENT_GID_CHANGE});
}

static bool lives(const struct mw *w)
{
	return w->used && w->bound && (w->qp->state == IBV_QPS_RTR || w->qp->state == IBV_QPS_RTS);
}

bool stub_key_lives(uint32_t key)
{
	STUB_LOCK;
	const struct mw *w = stub_window_of(key);

	return w && lives(w);
}

uint32_t stub_keys_live(void)
{
	STUB_LOCK;
	uint32_t n = 0;

	for (uint32_t i = 0; i < st.next_window; i++)
		n += lives(&st.windows[i]);
	return n;
}

void stub_foreign_invalidate(uint32_t qpn, uint32_t key)
{
	STUB_LOCK;
	struct qp *qp = stub_qp_of(qpn);
	struct rwr *r = &qp->rq[qp->rq_head++ % QUEUE];

	for (uint32_t i = 0; i < st.next_window; i++) {
		struct mw *w = &st.windows[i];

		if (!w->used || !w->bound || w->key != key)
			continue;
		w->bound = false;
		w->mr->n_bound--;
	}
	stub_push(qp->qp.recv_cq, (struct ibv_wc){.wr_id = r->wr_id,
	                                          .wc_flags = IBV_WC_WITH_INV,
	                                          .invalidated_rkey = key,
	                                          .qp_num = qpn});
}

void stub_spurious_completion(uint32_t qpn, uint64_t wr_id)
{
	STUB_LOCK;

	stub_push(stub_qp_of(qpn)->qp.recv_cq, (struct ibv_wc){.wr_id = wr_id, .qp_num = qpn});
}

void stub_show_access(int flags)
{
	st.show_access = flags;
}

void stub_access_sticks(bool on)
{
	st.sticks = on;
}

void stub_windows(bool claimed)
{
	st.no_windows = !claimed;
}

void stub_forks(enum stub_forks status, int code)
{
	STUB_LOCK;

	st.forks = status;
	st.fork_code = code;
}

enum stub_forks stub_forks_now(void)
{
	STUB_LOCK;

	return st.forks;
}

void stub_software(bool on)
{
	st.software = on;
}

void stub_mellanox(bool on)
{
	st.mellanox = on;
}

void stub_dmabuf_as_linux(bool on)
{
	st.dmabuf_as_linux = on;
}

uint32_t stub_cq_vectors(void)
{
	STUB_LOCK;

	return st.cq_vectors;
}

void stub_inline_limit(uint32_t bytes)
{
	st.inline_limit = bytes;
}

int stub_qp_access(uint32_t qpn)
{
	STUB_LOCK;

	return (int)stub_qp_of(qpn)->access;
}

int stub_qp_ack_timeout(uint32_t qpn)
{
	STUB_LOCK;

	return stub_qp_of(qpn)->ack_timeout;
}

int stub_qp_retries(uint32_t qpn)
{
	STUB_LOCK;

	return stub_qp_of(qpn)->retries;
}

bool stub_qp_in_error(uint32_t qpn)
{
	STUB_LOCK;

	return stub_qp_of(qpn)->state == IBV_QPS_ERR;
}

// SPDX-License-Identifier: Apache-2.0
/* The symbols of libibverbs: objects, what they are asked, in which order they end. See
 * verbs_stub.h. */
#include "tests/fabric/verbs_stub_priv.h"
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

static void reset_devices(void)
{
	for (uint32_t i = 0; i < DEVICES; i++) {
		struct ibv_context *c = &st.contexts[i];

		snprintf(st.devices[i].name, sizeof(st.devices[i].name), "stub%u", i);
		*c = (struct ibv_context){.device = &st.devices[i],
		                          .async_fd = st.async_fd,
		                          .num_comp_vectors = STUB_VECTORS};
		c->ops = (struct ibv_context_ops){.alloc_mw = stub_alloc_mw,
		                                  .dealloc_mw = stub_dealloc_mw,
		                                  .poll_cq = stub_poll_cq,
		                                  .req_notify_cq = stub_req_notify_cq,
		                                  .post_send = stub_post_send,
		                                  .post_recv = stub_post_recv};
	}
}

void stub_reset(void)
{
	stub_cm_reset();
	STUB_LOCK;
	int fd = st.async_fd;

	if (fd >= 0)
		close(fd);
	for (int i = 0; i < QPS; i++) {
		free(st.qps[i].sq);
		free(st.qps[i].rq);
	}
	memset(st.calls, 0, sizeof(st.calls));
	memset(st.qps, 0, sizeof(st.qps));
	memset(st.mrs, 0, sizeof(st.mrs));
	memset(st.windows, 0, sizeof(struct mw) * st.next_window);
	st.n_devices = 1;
	st.alive = st.any_after = st.failures = st.held = st.end_op = 0;
	st.violation = NULL;
	st.any_armed = st.any_for_good = st.paused = st.lose = st.no_windows = st.sticks =
		st.software = st.mellanox = st.dmabuf_as_linux = false;
	st.cq_vectors = 0;
	st.port_active = true;
	st.order[0] = 0;
	st.show_access = -1;
	st.inline_limit = 64;
	st.ev_head = st.ev_tail = st.next_window = 0;
	st.next_qpn = 17;
	st.async_fd = eventfd(0, EFD_NONBLOCK);
	reset_devices();
}

struct ibv_context *stub_context(uint32_t device)
{
	return &st.contexts[device];
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	STUB_LOCK;
	struct ibv_device **list;

	if (stub_fault(STUB_get_device_list))
		return NULL;
	list = stub_zalloc(st.n_devices + 1, sizeof(struct ibv_device *));
	for (uint32_t i = 0; i < st.n_devices; i++)
		list[i] = &st.devices[i];
	*num_devices = (int)st.n_devices;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	STUB_LOCK;

	return (enum ibv_fork_status)st.forks;
}

int ibv_fork_init(void)
{
	STUB_LOCK;

	if (!st.fork_code)
		st.forks = STUB_FORKS_ENABLED;
	return st.fork_code;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	STUB_LOCK;

	if (stub_fault(STUB_open_device))
		return NULL;
	stub_born(1);
	return &st.contexts[device - st.devices];
}

int ibv_close_device(struct ibv_context *context)
{
	STUB_LOCK;

	stub_born(-1);
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *a)
{
	STUB_LOCK;
	int r = stub_fault(STUB_query_device);

	if (r)
		return r;
	*a = (struct ibv_device_attr){.fw_ver = "stub 1.2",
	                              .node_guid = htobe64(0x1122334455667788),
	                              .max_mr_size = 1ull << 40,
	                              .vendor_id = st.software   ? 0xffffff
	                                           : st.mellanox ? 0x02c9
	                                                         : 0x15b3,
	                              .vendor_part_id = 42,
	                              .hw_ver = 3,
	                              .max_qp = QPS,
	                              .max_qp_wr = QUEUE,
	                              .max_sge = SGES,
	                              .max_cq = 100,
	                              .max_cqe = QUEUE * 4,
	                              .max_mr = MRS,
	                              .max_pd = 100,
	                              .max_qp_rd_atom = 16,
	                              .max_qp_init_rd_atom = 16,
	                              .max_mw = WINDOWS,
	                              .phys_port_cnt = 1,
	                              .device_cap_flags =
	                                      IBV_DEVICE_MEM_MGT_EXTENSIONS |
	                                      (st.no_windows ? 0 : IBV_DEVICE_MEM_WINDOW_TYPE_2B)};
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *out)
{
	STUB_LOCK;
	struct ibv_port_attr *a = (struct ibv_port_attr *)out;
	int r = stub_fault(STUB_query_port);

	if (r)
		return r;
	a->state = st.port_active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	a->active_mtu = IBV_MTU_4096;
	a->gid_tbl_len = 3;
	a->max_msg_sz = 1u << 23;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	if (gid_index == 2)
		return ENODATA;
	memset(entry, 0, sizeof(*entry));
	entry->gid.raw[15] = (uint8_t)(gid_index + 1);
	entry->gid_type = gid_index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	STUB_LOCK;
	struct ibv_pd *pd;

	if (stub_fault(STUB_alloc_pd))
		return NULL;
	pd = stub_zalloc(1, sizeof(*pd));
	pd->context = context;
	stub_born(1);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	STUB_LOCK;
	int r = stub_fault(STUB_dealloc_pd);

	if (r)
		return r;
	for (int i = 0; i < MRS; i++)
		if (st.mrs[i].used && st.mrs[i].mr.pd == pd)
			stub_blame("a protection domain was freed before its regions");
	free(pd);
	stub_born(-1);
	stub_order_add("dealloc_pd");
	return 0;
}

static struct ibv_mr *reg(struct ibv_pd *pd, uint64_t base, size_t length, int access)
{
	for (uint32_t i = 0; i < MRS; i++) {
		struct mr *m = &st.mrs[i];

		if (m->used)
			continue;
		*m = (struct mr){.used = true, .access = access};
		m->mr = (struct ibv_mr){.context = pd->context,
		                        .pd = pd,
		                        .length = length,
		                        .addr = (void *)(uintptr_t)base,
		                        .lkey = (i + 1) << 8 | 0x80,
		                        .rkey = (i + 1) << 8 | 0x80}; /* NOLINT */
		if (access &
		    (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
			stub_blame("memory was registered with a remote flag");
		stub_born(1);
		return &m->mr;
	}
	errno = ENOMEM;
	return NULL;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	STUB_LOCK;

	return stub_fault(STUB_reg_mr) ? NULL : reg(pd, (uintptr_t)addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                unsigned int access)
{
	return ibv_reg_mr(pd, addr, length, (int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
	STUB_LOCK;

	if (stub_fault(STUB_reg_dmabuf_mr))
		return NULL;
	if (st.dmabuf_as_linux && access & IBV_ACCESS_MW_BIND) {
		errno = EINVAL;
		return NULL;
	}
	return reg(pd, iova, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	STUB_LOCK;
	struct mr *m = container_of(mr, struct mr, mr);
	int r = stub_fault(STUB_dereg_mr);

	if (r)
		return r;
	if (m->n_bound) {
		stub_blame("a region was deregistered under a bound window");
		return EINVAL;
	}
	m->used = false;
	stub_born(-1);
	stub_order_add("dereg_mr");
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	STUB_LOCK;
	struct channel *c;

	if (stub_fault(STUB_create_comp_channel))
		return NULL;
	c = stub_zalloc(1, sizeof(*c));
	c->channel.context = context;
	c->channel.fd = eventfd(0, EFD_NONBLOCK);
	stub_born(1);
	return &c->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	STUB_LOCK;

	close(channel->fd);
	free(container_of(channel, struct channel, channel));
	stub_born(-1);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector)
{
	STUB_LOCK;
	struct cq *cq;

	if (stub_fault(STUB_create_cq))
		return NULL;
	assert(comp_vector >= 0 && comp_vector < STUB_VECTORS);
	st.cq_vectors |= 1u << comp_vector;
	cq = stub_zalloc(1, sizeof(*cq));
	cq->cq = (struct ibv_cq){
		.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
	stub_born(1);
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	STUB_LOCK;
	int r = stub_fault(STUB_destroy_cq);

	if (r)
		return r;
	for (int i = 0; i < QPS; i++)
		if (st.qps[i].used && st.qps[i].qp.send_cq == cq)
			stub_blame("a completion queue was destroyed before its queue pairs");
	free(container_of(cq, struct cq, cq));
	stub_born(-1);
	stub_order_add("destroy_cq");
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	STUB_LOCK;
	struct channel *c = container_of(channel, struct channel, channel);
	uint64_t n;

	if (c->head == c->tail) {
		(void)!read(channel->fd, &n, sizeof(n));
		errno = EAGAIN;
		return -1;
	}
	*cq = &c->events[c->head++ % EVENTS]->cq;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	STUB_LOCK;
	struct qp *qp = NULL;

	if (stub_fault(STUB_create_qp))
		return NULL;
	if (a->cap.max_inline_data > st.inline_limit) {
		errno = EINVAL;
		return NULL;
	}
	for (int i = 0; i < QPS && !qp; i++)
		qp = st.qps[i].used ? NULL : &st.qps[i];
	assert(qp);
	*qp = (struct qp){.used = true,
	                  .max_inline = a->cap.max_inline_data,
	                  .sq_max = a->cap.max_send_wr,
	                  .rq_max = a->cap.max_recv_wr};
	qp->sq = stub_zalloc(QUEUE, sizeof(*qp->sq));
	qp->rq = stub_zalloc(QUEUE, sizeof(*qp->rq));
	qp->qp = (struct ibv_qp){.context = pd->context,
	                         .qp_context = a->qp_context,
	                         .pd = pd,
	                         .send_cq = a->send_cq,
	                         .recv_cq = a->recv_cq,
	                         .qp_num = st.next_qpn++,
	                         .qp_type = a->qp_type};
	stub_born(1);
	return &qp->qp;
}

int ibv_modify_qp(struct ibv_qp *to, struct ibv_qp_attr *a, int mask)
{
	STUB_LOCK;
	struct qp *qp = container_of(to, struct qp, qp);
	int r = stub_fault(STUB_modify_qp);

	if (r)
		return r;
	if (mask & IBV_QP_ACCESS_FLAGS && !(st.sticks && !(mask & IBV_QP_STATE)))
		qp->access = a->qp_access_flags;
	if (mask & IBV_QP_DEST_QPN)
		qp->dest = a->dest_qp_num;
	if (mask & IBV_QP_TIMEOUT)
		qp->ack_timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		qp->retries = a->retry_cnt;
	if (!(mask & IBV_QP_STATE))
		return 0;
	if (a->qp_state == IBV_QPS_ERR) {
		if (qp->state == IBV_QPS_RESET)
			return EINVAL;
		stub_to_error(qp);
	} else if ((int)a->qp_state != (int)qp->state + 1) {
		stub_blame("a step of the queue pair's states was left out");
		return EINVAL;
	}
	qp->state = qp->qp.state = a->qp_state;
	stub_run_all();
	return 0;
}

int ibv_query_qp(struct ibv_qp *of, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	STUB_LOCK;
	struct qp *qp = container_of(of, struct qp, qp);
	int r = stub_fault(STUB_query_qp);

	if (r)
		return r;
	a->qp_state = qp->state;
	a->qp_access_flags = st.show_access >= 0 ? (unsigned int)st.show_access : qp->access;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *of)
{
	STUB_LOCK;
	struct qp *qp = container_of(of, struct qp, qp);
	int r = stub_fault(STUB_destroy_qp);

	if (r)
		return r;
	for (uint32_t i = 0; i < st.next_window; i++)
		if (st.windows[i].used && st.windows[i].bound && st.windows[i].qp == qp)
			stub_blame("a queue pair was destroyed with a bound window: 50 s on a real "
			           "device");
	/* its completions stay in the queue, as with soft-RoCE */
	free(qp->sq);
	free(qp->rq);
	*qp = (struct qp){0};
	stub_born(-1);
	stub_order_add("destroy_qp");
	return 0;
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return "an event of the stub";
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	STUB_LOCK;
	uint64_t n;

	if (st.ev_head == st.ev_tail) {
		(void)!read(st.async_fd, &n, sizeof(n));
		errno = EAGAIN;
		return -1;
	}
	*event = st.events[st.ev_head++ % EVENTS];
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
}

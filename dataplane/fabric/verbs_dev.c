// SPDX-License-Identifier: Apache-2.0
/*
 * Devices: list, open, what they say of themselves, and what they report later. What a device
 * claims is only shown, never trusted: the probe tries it. Asynchronous events are acknowledged at
 * once, so that nothing that is being destroyed waits for us; they carry ids, because the object
 * may be gone when the event is handled.
 */
#include "dataplane/fabric/verbs_priv.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define EVENTS_AT_ONCE 64u
#define MELLANOX       0x02c9u /* ibv_device_attr.vendor_id */

int verbs_err(struct ros2_err *err, int code, const struct fabric_dev *d, const char *what)
{
	const char *name = d ? d->attr.name : "RDMA";

	switch (code) {
	case 0:
		return ros2_err_set(err, -EIO, "%s: %s failed and did not say why", name, what);
	case EOPNOTSUPP:
	case ENOSYS:
	case EPROTONOSUPPORT:
		return ros2_err_set(err, -EOPNOTSUPP, "%s: not supported by %s", what, name);
	case ENOMEM:
		return ros2_err_set(err, -ENOMEM,
		                    "%s: %s: no memory, or the limit of locked memory is reached "
		                    "(ulimit -l)",
		                    name, what);
	default:
		return ros2_err_set(err, -code, "%s: %s: %s", name, what, strerror(code));
	}
}

int fabric_list(char (*names)[FABRIC_NAME_MAX], uint32_t max, uint32_t *ret_n, struct ros2_err *err)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	uint32_t out = 0;

	if (!list && errno == ENOMEM)
		return ros2_err_set(err, -ENOMEM, "no memory for the list of RDMA devices");
	for (int i = 0; list && i < n && out < max; i++, out++)
		snprintf(names[out], FABRIC_NAME_MAX, "%s", ibv_get_device_name(list[i]));
	if (list)
		ibv_free_device_list(list);
	*ret_n = out;
	return 0;
}

int fabric_fork_init(struct ros2_err *err)
{
	int r;

	if (ibv_is_fork_initialized() != IBV_FORK_DISABLED)
		return 0;
	r = ibv_fork_init();
	if (r == 0)
		return 0;
	return ros2_err_set(
		err, -EOPNOTSUPP,
		"forks are not safe with RDMA on this kernel, and it is too late to make "
		"them so (%s): expected RDMAV_FORK_SAFE=1 in the environment",
		strerror(r));
}

static uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static int port_query(struct fabric_dev *d, uint32_t number, struct fabric_port *ret,
                      struct ros2_err *err)
{
	struct ibv_port_attr a = {0};
	struct ibv_gid_entry entry;
	struct fabric_port p = {.number = number};
	int r = ibv_query_port(d->context, (uint8_t)number, &a);

	if (r != 0)
		return verbs_err(err, r > 0 ? r : errno, d, "ibv_query_port");
	p.active = a.state == IBV_PORT_ACTIVE;
	p.ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET;
	p.mtu_bytes = mtu_bytes(a.active_mtu);
	p.max_message_bytes = a.max_msg_sz;
	p.lid = a.lid;
	for (int i = 0; i < a.gid_tbl_len && p.n_gids < FABRIC_GIDS_MAX; i++) {
		struct fabric_gid *g = &p.gids[p.n_gids];

		/* -ENODATA: an empty place of the table */
		if (ibv_query_gid_ex(d->context, number, (uint32_t)i, &entry, 0) != 0)
			continue;
		memcpy(g->raw, entry.gid.raw, FABRIC_GID_LEN);
		g->index = (uint32_t)i;
		g->roce_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
		p.n_gids++;
	}
	*ret = p;
	return 0;
}

int fabric_dev_port(struct fabric_dev *d, uint32_t number, struct fabric_port *ret,
                    struct ros2_err *err)
{
	if (number == 0 || number > d->attr.n_ports)
		return ros2_err_set(err, -EINVAL, "%s: port %u: expected 1..%u", d->attr.name,
		                    number, d->attr.n_ports);
	return port_query(d, number, ret, err);
}

/* Devices say int where they mean a count; what is negative counts as none. */
static uint32_t count(int n)
{
	return n > 0 ? (uint32_t)n : 0;
}

static int attr_query(struct fabric_dev *d, struct ros2_err *err)
{
	struct ibv_device_attr a = {0};
	struct fabric_dev_attr *t = &d->attr;
	const unsigned int need = IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
	int r = ibv_query_device(d->context, &a);

	if (r != 0)
		return verbs_err(err, r > 0 ? r : errno, d, "ibv_query_device");
	snprintf(t->firmware, sizeof(t->firmware), "%.*s", (int)sizeof(a.fw_ver), a.fw_ver);
	t->vendor_id = a.vendor_id;
	t->vendor_part_id = a.vendor_part_id;
	t->hw_version = a.hw_ver;
	t->node_guid = be64toh(a.node_guid);
	t->max_qps = count(a.max_qp);
	t->max_qp_depth = count(a.max_qp_wr);
	t->max_cqs = count(a.max_cq);
	t->max_cq_depth = count(a.max_cqe);
	t->max_regions = count(a.max_mr);
	t->max_windows = count(a.max_mw);
	t->max_pds = count(a.max_pd);
	t->max_sge = count(a.max_sge);
	t->max_reads_in = count(a.max_qp_rd_atom);
	t->max_reads_out = count(a.max_qp_init_rd_atom);
	t->max_region_bytes = a.max_mr_size;
	/* No device says it. Those of Mellanox describe a window by one entry with a length of 31
	 * bits, and their library refuses to post a longer one (providers/mlx5, set_bind_wr). */
	t->max_window_bytes = a.vendor_id == MELLANOX ? 1ull << 31 : 0;
	/* soft-RoCE, soft-iWARP */
	t->software = a.vendor_id == 0xffffff || a.vendor_id == 0x626d74;
	t->window_2b = (a.device_cap_flags & need) == need;
	t->n_ports = MIN(a.phys_port_cnt, FABRIC_PORTS_MAX);
	for (uint32_t i = 0; i < t->n_ports; i++) {
		r = port_query(d, i + 1, &t->ports[i], err);
		if (r < 0)
			return r;
	}
	return 0;
}

static struct ibv_device *find_device(struct ibv_device **list, int n, const char *name,
                                      char *others, size_t size)
{
	size_t at = 0;

	others[0] = 0;
	for (int i = 0; i < n; i++) {
		const char *have = ibv_get_device_name(list[i]);

		if (strcmp(have, name) == 0)
			return list[i];
		if (at < size)
			at += (size_t)snprintf(others + at, size - at, "%s%s", at ? ", " : "",
			                       have);
	}
	return NULL;
}

static int open_context(struct fabric_dev *d, const char *name, struct ros2_err *err)
{
	int n = 0, r = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_device *dev;
	char others[160];

	if (!list && errno == ENOMEM)
		return ros2_err_set(err, -ENOMEM, "no memory for the list of RDMA devices");
	dev = list ? find_device(list, n, name, others, sizeof(others)) : NULL;
	if (!dev)
		r = ros2_err_set(err, -ENODEV, "no RDMA device `%s`; this machine has: %s", name,
		                 list && n > 0 ? others : "none");
	if (dev) {
		d->context = ibv_open_device(dev);
		if (!d->context)
			r = verbs_err(err, errno, d, "ibv_open_device");
	}
	if (list)
		ibv_free_device_list(list);
	return r;
}

int fabric_dev_open(const char *name, struct fabric_dev **ret, struct ros2_err *err)
{
	struct fabric_dev *d;
	int r, flags;

	if (strlen(name) >= FABRIC_NAME_MAX)
		return ros2_err_set(err, -ENODEV, "no RDMA device has a name of %zu bytes",
		                    strlen(name));
	d = calloc(1, sizeof(*d));
	if (!d)
		return ros2_err_set(err, -ENOMEM, "no memory for a device");
	snprintf(d->attr.name, sizeof(d->attr.name), "%s", name);
	r = open_context(d, name, err);
	if (r == 0)
		r = attr_query(d, err);
	if (r == 0 && d->attr.software && grace_new(&d->grace) < 0)
		r = ros2_err_set(err, -ENOMEM, "no memory for a thread");
	if (r == 0) {
		flags = fcntl(d->context->async_fd, F_GETFL);
		if (flags < 0 || fcntl(d->context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
			r = verbs_err(err, errno, d, "O_NONBLOCK on the event descriptor");
	}
	if (r < 0) {
		fabric_dev_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

int fabric_dev_close(struct fabric_dev *d)
{
	if (!d)
		return 0;
	if (d->n_pds || d->n_channels)
		return -EBUSY;
	grace_free(d->grace);
	if (d->context)
		ibv_close_device(d->context);
	free(d);
	return 0;
}

const struct fabric_dev_attr *fabric_dev_attr(const struct fabric_dev *d)
{
	return &d->attr;
}

void fabric_dev_set_peer_invalidates(struct fabric_dev *d, bool seen_safe)
{
	atomic_store(&d->peer_invalidates, seen_safe && !d->attr.software);
}

bool fabric_dev_peer_invalidates(const struct fabric_dev *d)
{
	return atomic_load(&d->peer_invalidates);
}

int fabric_dev_event_fd(const struct fabric_dev *d)
{
	return d->context->async_fd;
}

/* Until the event is acknowledged nobody can free its object: ibv_destroy_qp and ibv_destroy_cq
 * wait for that. */
static struct fabric_event translate(const struct ibv_async_event *in)
{
	struct fabric_event e = {.kind = FABRIC_EVENT_OTHER,
	                         .words = ibv_event_type_str(in->event_type)};
	const struct fabric_qp *qp;
	const struct fabric_set *set;

	switch (in->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		e.kind = FABRIC_EVENT_DEVICE_REMOVED;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		e.kind = in->event_type == IBV_EVENT_PORT_ERR ? FABRIC_EVENT_PORT_DOWN
		                                              : FABRIC_EVENT_PORT_UP;
		e.port = (uint32_t)in->element.port_num;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp = in->element.qp->qp_context;
		e.kind = FABRIC_EVENT_QP_FAILED;
		e.qp_id = qp->id;
		e.set_cookie = qp->set->o.cookie;
		break;
	case IBV_EVENT_CQ_ERR:
		set = in->element.cq->cq_context;
		e.kind = FABRIC_EVENT_CQ_FAILED;
		e.set_cookie = set->o.cookie;
		break;
	default:
		break;
	}
	return e;
}

uint32_t fabric_dev_events(struct fabric_dev *d,
                           void (*fn)(void *arg, const struct fabric_event *e), void *arg)
{
	struct ibv_async_event in;
	struct fabric_event e;
	uint32_t n = 0;

	while (n < EVENTS_AT_ONCE && ibv_get_async_event(d->context, &in) == 0) {
		e = translate(&in);
		if (e.kind == FABRIC_EVENT_DEVICE_REMOVED)
			d->removed = true;
		ibv_ack_async_event(&in);
		n++;
		fn(arg, &e);
	}
	return n;
}

bool fabric_dev_removed(const struct fabric_dev *d)
{
	return d->removed;
}

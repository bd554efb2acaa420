/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command after the other on one admin queue, each waited for. What the target answers is
 * checked by nvmf/codec.h and nvmf/discover.h.
 */
#include "dataplane/dp_discover.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/fabric/fabric.h"
#include "dataplane/nvmf/codec.h"
#include "dataplane/nvmf/login.h"
#include "dataplane/nvmf/queue.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define DEPTH         4u
#define READY_POLL_MS 10u

struct asking {
	const struct nvmf_queue_ops *ops;
	struct nvmf_queue *q; /* owned */
	int epoll_fd;
	uint64_t until_ns;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} peer;
	char host_nqn[NVMF_NQN_MAX + 1];
	uint8_t host_id[16];
	uint16_t cntlid;
	struct nvme_cap cap;
	struct nvmf_req req;
	bool done;
	int rc;
	struct nvme_cqe cqe;
	uint8_t data[NVME_IDENTIFY_LEN];
	struct nvmf_secrets secrets;
	struct nvmf_login login;
	struct fabric_dev *dev; /* owned; rdma */
	struct fabric_pd *pd;   /* owned */
};

static int fill_peer(struct asking *a, const struct dp_discover_opts *o, struct ros2_err *err)
{
	if (inet_pton(AF_INET, o->address, &a->peer.in.sin_addr) == 1) {
		a->peer.in.sin_family = AF_INET;
		a->peer.in.sin_port = htons(o->port);
	} else if (inet_pton(AF_INET6, o->address, &a->peer.in6.sin6_addr) == 1) {
		a->peer.in6.sin6_family = AF_INET6;
		a->peer.in6.sin6_port = htons(o->port);
	} else {
		return ros2_err_set(err, -EINVAL, "address: expected IPv4 or IPv6, found \"%s\"",
		                    o->address);
	}
	return 0;
}

static int name_host(struct asking *a, const char *nqn, struct ros2_err *err)
{
	uint8_t digest[SHA256_LEN], *u = a->host_id;

	if (nqn) {
		if (!nvme_nqn_valid(nqn))
			return ros2_err_set(err, -EINVAL, "host NQN: not an NQN: \"%s\"", nqn);
		snprintf(a->host_nqn, sizeof(a->host_nqn), "%s", nqn);
		crypto_sha256(nqn, strlen(nqn), digest);
		memcpy(a->host_id, digest, sizeof(a->host_id));
		return 0;
	}
	crypto_random(u, sizeof(a->host_id));
	u[6] = (u[6] & 0x0f) | 0x40; /* RFC 4122: random, variant 1 */
	u[8] = (u[8] & 0x3f) | 0x80;
	snprintf(a->host_nqn, sizeof(a->host_nqn),
	         "nqn.2014-08.org.nvmexpress:uuid:%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
	         "%02x%02x%02x%02x%02x%02x",
	         u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
	         u[13], u[14], u[15]);
	return 0;
}

/* Lets pass what comes, for at most @ms. */
static int turn(struct asking *a, uint64_t ms, struct ros2_err *err)
{
	struct epoll_event ev;
	uint64_t now = clock_boottime_ns();

	if (now >= a->until_ns)
		return ros2_err_set(err, -ETIMEDOUT, "the target did not answer in time");
	ms = MIN(ms, (a->until_ns - now) / NS_PER_MS + 1);
	(void)epoll_wait(a->epoll_fd, &ev, 1, (int)ms);
	now = clock_boottime_ns();
	a->ops->poll(a->q, DEPTH, now);
	a->ops->tick(a->q, now);
	if (a->ops->state(a->q) == NVMF_QUEUE_FAILED)
		return ros2_err_set(err, -ENOTCONN, "%s", a->ops->fault(a->q));
	return 0;
}

/* ---- what it takes before ---- */

/* @path: a file, by whatever road. */
static int load_secret(const char *path, struct nvme_auth_secret *ret, struct ros2_err *err)
{
	const char *slash = strrchr(path, '/');
	char dir[4096];

	if (!slash)
		return nvme_auth_secret_load(".", path, ret, err);
	if ((size_t)(slash - path) + 2 > sizeof(dir))
		return ros2_err_set(err, -ENAMETOOLONG, "secret: a path of %zu bytes",
		                    strlen(path));
	/* With its slash: that of / itself, too. */
	memcpy(dir, path, (size_t)(slash - path) + 1);
	dir[slash - path + 1] = '\0';
	return nvme_auth_secret_load(dir, slash + 1, ret, err);
}

static int load_secrets(struct asking *a, const struct dp_discover_opts *o, struct ros2_err *err)
{
	int r = 0;

	a->secrets.has_host = o->secret;
	a->secrets.has_target = o->target_secret;
	if (o->target_secret && !o->secret)
		return ros2_err_set(err, -EINVAL,
		                    "a target proves itself only to who does: expected a secret of "
		                    "the host, too");
	if (o->secret)
		r = load_secret(o->secret, &a->secrets.host, err);
	if (r == 0 && o->target_secret)
		r = load_secret(o->target_secret, &a->secrets.target, err);
	return r;
}

static int find_device(char (*names)[FABRIC_NAME_MAX], const char **ret, struct ros2_err *err)
{
	uint32_t n = 0;
	int r = fabric_list(names, 2, &n, err);

	if (r < 0)
		return r;
	if (n == 0)
		return ros2_err_set(err, -ENODEV, "there is no RDMA device here");
	if (n > 1)
		return ros2_err_set(
			err, -EINVAL,
			"there are several RDMA devices (%s, %s ...): expected the name "
			"of the one that reaches the target",
			names[0], names[1]);
	*ret = names[0];
	return 0;
}

static int open_device(struct asking *a, const struct dp_discover_opts *o, struct ros2_err *err)
{
	const struct fabric_pd_opts caps = {.pinned_bytes_max = NVMF_RDMA_PINNED_MAX,
	                                    .regions_max = NVMF_RDMA_REGIONS_MAX,
	                                    .windows_max = NVMF_RDMA_WINDOWS_MAX,
	                                    .qps_max = 1};
	char names[2][FABRIC_NAME_MAX];
	const char *name = o->device;
	int r = name ? 0 : find_device(names, &name, err);

	if (r == 0)
		r = fabric_dev_open(name, &a->dev, err);
	return r == 0 ? fabric_pd_new(a->dev, &caps, &a->pd, err) : r;
}

/* What a device keeps to the end the kernel takes back with the process. */
static void close_device(struct asking *a)
{
	if (a->dev && fabric_pd_free(a->pd) == 0)
		(void)fabric_dev_close(a->dev);
}

/* ---- one command after the other ---- */

static int open_queue(struct asking *a, const struct dp_discover_opts *o, struct ros2_err *err)
{
	uint64_t now = clock_boottime_ns();
	const struct nvmf_queue_opts qo = {.peer = &a->peer.sa,
	                                   .cntlid = NVME_CNTLID_DYNAMIC,
	                                   .depth = DEPTH,
	                                   .transfer_max = NVME_IDENTIFY_LEN,
	                                   .header_digest = o->header_digest,
	                                   .data_digest = o->data_digest,
	                                   .keys_per_command = true,
	                                   .pd = a->pd,
	                                   .epoll_fd = a->epoll_fd,
	                                   .connect_timeout_ns =
	                                           a->until_ns - MIN(now, a->until_ns),
	                                   .now_ns = now};
	int r = a->ops->open(&qo, &a->q, err);

	while (r == 0 && a->ops->state(a->q) == NVMF_QUEUE_CONNECTING)
		r = turn(a, 1000, err);
	if (r == 0 && a->ops->state(a->q) == NVMF_QUEUE_FAILED)
		r = ros2_err_set(err, -ENOTCONN, "%s", a->ops->fault(a->q));
	return r;
}

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct asking *a = container_of(req, struct asking, req);

	a->done = true;
	a->rc = rc;
	if (rc == 0)
		a->cqe = *cqe;
}

/* a->req, to its answer, whose status is the caller's to judge. */
static int carry(struct asking *a, struct ros2_err *err)
{
	int r;

	a->done = false;
	a->req.done = on_done;
	r = a->ops->submit(a->q, &a->req);
	if (r == 0)
		r = a->ops->kick(a->q, clock_boottime_ns());
	if (r < 0)
		return ros2_err_set(err, r, "%s was not handed on",
		                    nvme_sqe_name(&a->req.sqe, false));
	while (r == 0 && !a->done)
		r = turn(a, 1000, err);
	if (r < 0)
		return r;
	if (a->rc < 0)
		return ros2_err_set(err, -ENOTCONN, "%s: %s", nvme_sqe_name(&a->req.sqe, false),
		                    a->ops->fault(a->q));
	return 0;
}

/* @sqe, with data of @len bytes in a->data. */
static int ask(struct asking *a, const struct nvme_sqe *sqe, enum nvmf_dir dir, uint32_t len,
               struct ros2_err *err)
{
	a->req =
		(struct nvmf_req){.sqe = *sqe, .dir = dir, .buf = len ? a->data : NULL, .len = len};
	if (dir == NVMF_FROM_TARGET)
		memset(a->data, 0, sizeof(a->data));
	return carry(a, err);
}

static int refused(const struct asking *a, const char *what, struct ros2_err *err)
{
	uint16_t status = a->cqe.status >> 1;

	if (NVME_STATUS_CODE(status) == NVME_SC_SUCCESS)
		return 0;
	return ros2_err_set(err, -EPROTO, "the target refuses %s: %s", what,
	                    nvme_status_text(status));
}

static int log_in(struct asking *a, struct ros2_err *err)
{
	int r;

	if (!a->secrets.has_host)
		return ros2_err_set(err, -EKEYREJECTED,
		                    "the discovery controller asks for authentication: expected a "
		                    "secret of this host, found none");
	r = nvmf_login_begin(&a->login, &a->secrets, a->host_nqn, NVME_DISCOVERY_NQN, err);
	while (r == 0) {
		a->req = (struct nvmf_req){0};
		r = nvmf_login_fill(&a->login, &a->req, err);
		if (r)
			break;
		r = carry(a, err);
		if (r == 0)
			r = nvmf_login_got(&a->login, &a->cqe, err);
	}
	return MIN(r, 0);
}

static int join(struct asking *a, struct ros2_err *err)
{
	struct nvme_connected got;
	struct nvme_sqe sqe;
	char words[120];
	int r = nvme_connect_data_fill((struct nvme_connect_data *)a->data, a->host_id,
	                               NVME_CNTLID_DYNAMIC, NVME_DISCOVERY_NQN, a->host_nqn);

	if (r < 0)
		return ros2_err_set(err, r, "host NQN: not an NQN");
	/* No keep alive: it is over soon (Base 3.1.1.2). */
	nvme_cmd_connect(&sqe, 0, DEPTH + 1, 0, 0);
	r = ask(a, &sqe, NVMF_TO_TARGET, sizeof(struct nvme_connect_data), err);
	if (r < 0)
		return r;
	if (NVME_STATUS_CODE(a->cqe.status >> 1) != NVME_SC_SUCCESS) {
		nvme_connect_refusal(&a->cqe, words, sizeof(words));
		return ros2_err_set(err, -EACCES, "%s", words);
	}
	r = nvme_connect_parse(&a->cqe, &got, err);
	if (r < 0)
		return r;
	a->cntlid = got.cntlid;
	if (got.authentication)
		return log_in(a, err);
	if (a->secrets.has_target)
		return ros2_err_set(err, -EKEYREJECTED,
		                    "the target does not prove its secret, which is asked for");
	return 0;
}

static int get_property(struct asking *a, uint32_t offset, uint64_t *ret, struct ros2_err *err)
{
	struct nvme_sqe sqe;
	int r;

	nvme_cmd_property_get(&sqe, offset);
	r = ask(a, &sqe, NVMF_NO_DATA, 0, err);
	if (r == 0)
		r = refused(a, "Property Get", err);
	if (r == 0)
		*ret = nvme_property_value(&a->cqe, offset);
	return r;
}

static int set_cc(struct asking *a, uint32_t cc, struct ros2_err *err)
{
	struct nvme_sqe sqe;
	int r;

	nvme_cmd_property_set(&sqe, NVME_PROP_CC, cc);
	r = ask(a, &sqe, NVMF_NO_DATA, 0, err);
	return r < 0 ? r : refused(a, "Property Set", err);
}

static int enable(struct asking *a, struct ros2_err *err)
{
	uint64_t v = 0, until;
	int r = get_property(a, NVME_PROP_CAP, &v, err);

	if (r == 0)
		r = nvme_cap_parse(v, &a->cap, err);
	if (r == 0)
		r = set_cc(a, a->cap.cc, err);
	until = clock_boottime_ns() + a->cap.ready_ms * NS_PER_MS;
	while (r == 0) {
		r = get_property(a, NVME_PROP_CSTS, &v, err);
		if (r < 0 || v & NVME_CSTS_RDY)
			return r;
		if (v & NVME_CSTS_CFS || clock_boottime_ns() > until)
			return ros2_err_set(err, -EPROTO,
			                    "target sent CSTS 0x%x: expected ready within %u ms",
			                    (unsigned)v, a->cap.ready_ms);
		r = turn(a, READY_POLL_MS, err);
	}
	return r;
}

static int identify(struct asking *a, struct ros2_err *err)
{
	struct nvme_controller c;
	struct nvme_sqe sqe;
	int r;

	nvme_cmd_identify(&sqe, NVME_CNS_CONTROLLER, 0);
	r = ask(a, &sqe, NVMF_FROM_TARGET, NVME_IDENTIFY_LEN, err);
	if (r == 0)
		r = refused(a, "Identify", err);
	if (r == 0)
		r = nvme_controller_parse(a->data, a->cntlid, NVME_DISCOVERY_NQN,
		                          a->cap.page_size_min, &c, err);
	if (r == 0 && c.type != NVME_CNTRLTYPE_DISCOVERY)
		r = ros2_err_set(err, -EPROTO,
		                 "target sent controller type %d: expected 2, discovery", c.type);
	return r;
}

static int read_log(struct asking *a, struct nvme_discovery *d, struct ros2_err *err)
{
	uint64_t offset;
	uint32_t len;
	int r = 0;

	while (r == 0 && nvme_discovery_next(d, &offset, &len)) {
		struct nvme_sqe sqe;

		nvme_cmd_get_log(&sqe, NVME_LOG_DISCOVERY, offset, len, false);
		r = ask(a, &sqe, NVMF_FROM_TARGET, len, err);
		if (r == 0)
			r = refused(a, "the discovery log", err);
		if (r == 0)
			r = nvme_discovery_take(d, a->data, err);
	}
	return r;
}

static int discover(struct asking *a, const struct dp_discover_opts *o, struct nvme_discovery *d,
                    struct ros2_err *err)
{
	int r = o->rdma ? open_device(a, o, err) : 0;

	if (r == 0)
		r = open_queue(a, o, err);

	if (r == 0)
		r = join(a, err);
	if (r == 0)
		r = enable(a, err);
	if (r == 0)
		r = identify(a, err);
	if (r == 0)
		r = read_log(a, d, err);
	if (r == 0)
		(void)set_cc(a, a->cap.cc | NVME_CC_SHN_NORMAL, NULL); /* nothing rests on it */
	return r;
}

int dp_discover(const struct dp_discover_opts *o, struct nvme_discovery **ret, struct ros2_err *err)
{
	AUTO_FREE struct asking *a = calloc(1, sizeof(*a));
	struct nvme_discovery *d = NULL;
	int r;

	if (!a)
		return ros2_err_set(err, -ENOMEM, "discovery: no memory");
	a->ops = o->rdma ? &nvmf_rdma_queue_ops : &nvmf_tcp_queue_ops;
	a->until_ns = clock_boottime_ns() + o->timeout_ms * NS_PER_MS;
	r = fill_peer(a, o, err);
	if (r == 0)
		r = name_host(a, o->host_nqn, err);
	if (r == 0)
		r = load_secrets(a, o, err);
	if (r == 0)
		r = nvme_discovery_new(&d, err);
	if (r < 0) {
		nvmf_secrets_wipe(&a->secrets);
		return r;
	}
	a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r = a->epoll_fd < 0 ? ros2_err_set(err, -errno, "epoll: %s", strerror(errno))
	                    : discover(a, o, d, err);
	a->ops->free(a->q);
	close_device(a);
	nvmf_login_end(&a->login);
	nvmf_secrets_wipe(&a->secrets);
	util_close_cleanup(&a->epoll_fd);
	if (r < 0)
		nvme_discovery_free(d);
	else
		*ret = d;
	return r;
}

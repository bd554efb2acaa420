/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a target into every parser of codec.h and discover.h. The first byte chooses: what
 * follows is padded with zeroes to the size that is read. Claimed: a refusal has words, what is
 * accepted keeps the promises of the headers.
 */
#include "dataplane/nvmf/codec.h"
#include "dataplane/nvmf/discover.h"
#include "tests/fuzz/fuzz.h"
#include <errno.h>

#define SUBNQN "nqn.2026-11.example:volume-1"

static uint8_t *padded(const uint8_t *data, size_t size, size_t want)
{
	uint8_t *p = (uint8_t *)calloc(1, want);

	must(p != NULL);
	memcpy(p, data, size < want ? size : want);
	return p;
}

static void controller(const uint8_t *p, const char *subnqn)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_controller c;
	uint16_t cntlid;
	int r;

	memcpy(&cntlid, p + 78, sizeof(cntlid));
	r = nvme_controller_parse(p, cntlid, subnqn, 4096, &c, &err);
	if (r < 0) {
		must(r == -EPROTO);
		must_refuse(r, &err);
		return;
	}
	must(nvme_nqn_valid(c.subnqn) && c.cntlid == cntlid && c.async_events_max >= 1);
	must(c.max_transfer >= 4096 && c.namespaces != NVME_NSID_ALL);
	must(nvme_controller_parse(p, (uint16_t)(cntlid + 1), subnqn, 4096, &c, &err) == -EPROTO);
}

static void namespace(const uint8_t *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_namespace n;
	struct nvme_clear_limits limits;
	struct nvme_ns_ids ids = {0};
	int r = nvme_ns_ids_parse(p, &ids, &err);

	must(r == 0 || r == -EPROTO);
	if (r < 0)
		must_refuse(r, &err);
	err = (struct ros2_err)ROS2_ERR_INIT;
	r = nvme_namespace_parse(p, &n, &err);

	nvme_clear_limits_parse(p, 4096, &limits);
	must(limits.zeroes_bytes >= 4096 && limits.discard_blocks > 0);
	if (r < 0) {
		must(r == -EPROTO || r == -ENOENT || r == -EOPNOTSUPP);
		must_refuse(r, &err);
		return;
	}
	must(n.block_shift >= 9 && n.block_shift <= 16 && n.blocks && n.capacity <= n.blocks);
	must(n.blocks <= (uint64_t)INT64_MAX >> n.block_shift);
}

static void list(const uint8_t *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t ids[NVME_NS_LIST_MAX], n = 0;
	bool all = false;
	int r = nvme_ns_list_parse(p, 0, ids, &n, &all, &err);

	if (r < 0) {
		must_refuse(r, &err);
		return;
	}
	must(n <= NVME_NS_LIST_MAX && !(all && n));
	for (uint32_t i = 0; i < n; i++)
		must(ids[i] && ids[i] != NVME_NSID_ALL && (i == 0 || ids[i] > ids[i - 1]));
}

static void completion(const uint8_t *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_connected connected;
	struct nvme_event event;
	struct nvme_cqe cqe;
	struct nvme_cap cap;
	char words[160];
	int r;

	memcpy(&cqe, p, sizeof(cqe));
	must(nvme_status_text(cqe.status >> 1)[0]);
	nvme_connect_refusal(&cqe, words, sizeof(words));
	must(words[0] && strlen(words) < sizeof(words) - 1);
	nvme_event_parse(&cqe, &event);
	must(nvme_queues_given(&cqe) >= 1 && nvme_queues_given(&cqe) <= 65536);
	r = nvme_connect_parse(&cqe, &connected, &err);
	if (r < 0)
		must_refuse(r, &err);
	else
		must(connected.cntlid <= NVME_CNTLID_MAX);
	r = nvme_cap_parse(nvme_property_value(&cqe, NVME_PROP_CAP), &cap, &err);
	if (r < 0)
		must_refuse(r, &err);
	else
		must(cap.entries_max >= 2 && cap.ready_ms >= 500 && cap.cc & NVME_CC_EN);
}

static void private_data(const uint8_t *p, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t depth;
	uint16_t status;
	int r = nvme_rdma_accept_parse(p, size, &depth, &err);

	if (r < 0)
		must_refuse(r, &err);
	else
		must(depth >= 1 && depth <= 65535);
	r = nvme_rdma_reject_parse(p, size, &status, &err);
	if (r < 0)
		must_refuse(r, &err);
	else
		must(nvme_rdma_status_text(status)[0]);
}

static void command(const uint8_t *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_sgl_value v;
	struct nvme_sqe sqe;
	int r;

	memcpy(&sqe, p, sizeof(sqe));
	must(nvme_sqe_name(&sqe, true)[0] && nvme_sqe_name(&sqe, false)[0]);
	r = nvme_sgl_parse(&sqe, &v, &err);
	if (r < 0) {
		must_refuse(r, &err);
		return;
	}
	if (v.type == NVME_SGL_KEYED || v.type == NVME_SGL_KEYED_INVALIDATE) {
		must(nvme_sgl_keyed(&sqe, v.addr, v.len, v.key, v.type != NVME_SGL_KEYED) == 0);
		must(memcmp(&sqe.dptr, p + 24, sizeof(sqe.dptr)) == 0);
	}
}

/* The input, part by part, each as long as it is asked for. */
static void discovery(const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_discovery *d;
	uint64_t offset, generation;
	uint32_t len;
	size_t n;
	int r = 0;

	must(nvme_discovery_new(&d, &err) == 0);
	while (r == 0 && size && nvme_discovery_next(d, &offset, &len)) {
		uint8_t *part = padded(data, size, len);

		must(len && len <= NVME_DISCOVERY_PART);
		r = nvme_discovery_take(d, part, &err);
		free(part);
		data += size < len ? size : len;
		size -= size < len ? size : len;
	}
	if (r < 0) {
		must_refuse(r, &err);
		must(!nvme_discovery_next(d, &offset, &len));
	} else if (!nvme_discovery_next(d, &offset, &len)) {
		const struct nvme_discovered *e = nvme_discovery_entries(d, &n, &generation);

		must(n <= NVME_DISCOVERY_MAX);
		for (size_t i = 0; i < n; i++)
			must(nvme_nqn_valid(e[i].subnqn) && nvme_subtype_to_str(e[i].kind)[0]);
	}
	nvme_discovery_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *p;

	if (size < 1 || size > 1u << 18)
		return 0;
	p = padded(data + 1, size - 1, NVME_IDENTIFY_LEN);
	switch (data[0] % 8) {
	case 0:
		controller(p, SUBNQN);
		break;
	case 1:
		controller(p, NVME_DISCOVERY_NQN);
		break;
	case 2:
		namespace
		(p);
		break;
	case 3:
		list(p);
		break;
	case 4:
		completion(p);
		break;
	case 5:
		private_data(data + 1, size - 1);
		break;
	case 6:
		command(p);
		break;
	default:
		discovery(data + 1, size - 1);
	}
	free(p);
	return 0;
}

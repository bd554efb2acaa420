/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a target answers, checked. Each field is read once from a copy or from memory that nobody
 * else writes; nothing is taken that another field contradicts. What a specification reserves is
 * not looked at, so that a later version of it may use it.
 */
#include "dataplane/nvmf/codec.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READY_UNIT_MS   500u
#define BLOCK_SHIFT_MAX 16

int nvme_connect_parse(const struct nvme_cqe *cqe, struct nvme_connected *ret, struct ros2_err *err)
{
	uint16_t cntlid = NVME_CONNECT_CNTLID(cqe->dw0);

	if (cntlid > NVME_CNTLID_MAX)
		return ros2_err_set(err, -EPROTO,
		                    "target sent controller id 0x%04x to Connect: expected at most "
		                    "0x%04x",
		                    cntlid, NVME_CNTLID_MAX);
	if (cqe->dw0 & NVME_CONNECT_AUTH_CHANNEL)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "target wants a secure channel (TLS) before authentication: "
		                    "expected none");
	ret->cntlid = cntlid;
	ret->authentication = cqe->dw0 & NVME_CONNECT_AUTH;
	return 0;
}

static const char *connect_field(bool in_data, uint16_t offset)
{
	static const struct {
		bool in_data;
		uint16_t offset;
		const char *name;
	} fields[] = {
		{true, offsetof(struct nvme_connect_data, hostid), "host identifier"},
		{true, offsetof(struct nvme_connect_data, cntlid), "controller id"},
		{true, offsetof(struct nvme_connect_data, subnqn), "subsystem NQN"},
		{true, offsetof(struct nvme_connect_data, hostnqn), "host NQN"},
		{false, offsetof(struct nvme_connect_cmd, recfmt), "record format"},
		{false, offsetof(struct nvme_connect_cmd, qid), "queue id"},
		{false, offsetof(struct nvme_connect_cmd, sqsize), "queue size"},
		{false, offsetof(struct nvme_connect_cmd, cattr), "attributes"},
		{false, offsetof(struct nvme_connect_cmd, kato_ms), "keep alive time-out"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (fields[i].in_data == in_data && fields[i].offset == offset)
			return fields[i].name;
	return "unnamed field";
}

void nvme_connect_refusal(const struct nvme_cqe *cqe, char *buf, size_t len)
{
	uint16_t status = cqe->status >> 1, offset = NVME_CONNECT_BAD_OFFSET(cqe->dw0);
	bool in_data = NVME_CONNECT_BAD_IN_DATA(cqe->dw0);

	/* 180h.. mean one thing for Connect and another for I/O; here only the first is meant. */
	switch (NVME_STATUS_CODE(status)) {
	case NVME_SC_CONNECT_FORMAT:
		snprintf(buf, len, "the target does not take this format of Connect");
		break;
	case NVME_SC_CONNECT_BUSY:
		snprintf(buf, len, "the controller is busy");
		break;
	case NVME_SC_CONNECT_PARAMETER:
		snprintf(buf, len, "the target does not take the %s (byte %u of the %s)",
		         connect_field(in_data, offset), offset, in_data ? "data" : "command");
		break;
	case NVME_SC_CONNECT_RESTART:
		snprintf(buf, len, "the target is elsewhere: discovery says where");
		break;
	case NVME_SC_CONNECT_HOST:
		snprintf(buf, len, "the target does not allow this host");
		break;
	default:
		snprintf(buf, len, "%s (status 0x%04x)", nvme_status_text(status), status);
	}
}

uint64_t nvme_property_value(const struct nvme_cqe *cqe, uint32_t offset)
{
	return offset == NVME_PROP_CAP ? cqe->dw0 | (uint64_t)cqe->dw1 << 32 : cqe->dw0;
}

int nvme_cap_parse(uint64_t cap, struct nvme_cap *ret, struct ros2_err *err)
{
	uint32_t mqes = NVME_CAP_MQES(cap), css = NVME_CAP_CSS(cap);

	if (!mqes)
		return ros2_err_set(err, -EPROTO,
		                    "target sent CAP.MQES 0: expected queues of 2 entries or more");
	if (NVME_CAP_MPSMIN(cap) > NVME_CAP_MPSMAX(cap))
		return ros2_err_set(err, -EPROTO,
		                    "target sent CAP.MPSMIN %u: expected at most its MPSMAX, %u",
		                    NVME_CAP_MPSMIN(cap), NVME_CAP_MPSMAX(cap));
	if (!(css & (NVME_CAP_CSS_NVM | NVME_CAP_CSS_IOCS)))
		return ros2_err_set(err, -EPROTO,
		                    "target sent CAP.CSS 0x%02x: expected the NVM command set",
		                    css);
	*ret = (struct nvme_cap){
		.entries_max = mqes + 1,
		.ready_ms = MAX(NVME_CAP_TO(cap), 1) * READY_UNIT_MS,
		.page_size_min = 1ull << (12 + NVME_CAP_MPSMIN(cap)),
		.cc = NVME_CC_EN | NVME_CC_MPS(NVME_CAP_MPSMIN(cap)) | NVME_CC_IOSQES |
	              NVME_CC_IOCQES | (css & NVME_CAP_CSS_NVM ? 0 : NVME_CC_CSS_IOCS),
	};
	return 0;
}

/* Base 5.27.1.5: both numbers are less one. */
uint32_t nvme_queues_value(uint32_t n)
{
	n = MIN(MAX(n, 1), 0xffffu) - 1;
	return n | n << 16;
}

uint32_t nvme_queues_given(const struct nvme_cqe *cqe)
{
	return MIN(cqe->dw0 & 0xffff, cqe->dw0 >> 16) + 1;
}

void nvme_event_parse(const struct nvme_cqe *cqe, struct nvme_event *ret)
{
	ret->type = cqe->dw0 & 7;
	ret->info = (uint8_t)(cqe->dw0 >> 8);
	ret->log = (uint8_t)(cqe->dw0 >> 16);
}

static int parse_subnqn(const struct nvme_identify_ctrl *id, const char *expected, char *ret,
                        struct ros2_err *err)
{
	int r = nvme_text_parse(id->subnqn, sizeof(id->subnqn), "subsystem NQN", ret,
	                        NVMF_NQN_MAX + 1, err);

	if (r < 0)
		return r;
	if (!nvme_nqn_valid(ret))
		return ros2_err_set(err, -EPROTO,
		                    "target sent subsystem NQN \"%s\": expected an NQN", ret);
	if (strcmp(expected, NVME_DISCOVERY_NQN) != 0 && strcmp(expected, ret) != 0)
		return ros2_err_set(err, -EPROTO,
		                    "target sent subsystem NQN \"%s\": expected \"%s\"", ret,
		                    expected);
	return 0;
}

/* What I/O controllers must tell, and others need not. */
static int check_io_controller(const struct nvme_identify_ctrl *id, struct ros2_err *err)
{
	uint64_t command = (uint64_t)id->ioccsz * NVME_CAPSULE_UNIT;

	if ((id->sqes & 0xf) > 6 || id->sqes >> 4 < 6)
		return ros2_err_set(err, -EPROTO,
		                    "target sent SQES 0x%02x: expected entries of 64 bytes",
		                    id->sqes);
	if ((id->cqes & 0xf) > 4 || id->cqes >> 4 < 4)
		return ros2_err_set(err, -EPROTO,
		                    "target sent CQES 0x%02x: expected entries of 16 bytes",
		                    id->cqes);
	if (command < sizeof(struct nvme_sqe) || command > UINT32_MAX)
		return ros2_err_set(
			err, -EPROTO,
			"target sent IOCCSZ %u: expected 4 or more, and less than 4 GiB",
			id->ioccsz);
	if (!id->iorcsz)
		return ros2_err_set(err, -EPROTO, "target sent IORCSZ 0: expected 1 or more");
	if ((id->sgls & NVME_SGLS_MASK) == 0 || (id->sgls & NVME_SGLS_MASK) == 3)
		return ros2_err_set(err, -EPROTO, "target sent SGLS 0x%x: expected support of SGLs",
		                    id->sgls);
	if (id->nn == NVME_NSID_ALL)
		return ros2_err_set(err, -EPROTO,
		                    "target sent NN 0x%x: expected at most 0xfffffffe", id->nn);
	return 0;
}

static uint64_t max_transfer(uint8_t mdts, uint64_t page_size_min)
{
	if (!mdts || mdts >= 64 || page_size_min > UINT64_MAX >> mdts)
		return UINT64_MAX;
	return page_size_min << mdts;
}

static enum nvme_cntrltype controller_type(const struct nvme_identify_ctrl *id, const char *subnqn)
{
	if (id->cntrltype != NVME_CNTRLTYPE_UNREPORTED)
		return (enum nvme_cntrltype)id->cntrltype;
	return strcmp(subnqn, NVME_DISCOVERY_NQN) == 0 ? NVME_CNTRLTYPE_DISCOVERY
	                                               : NVME_CNTRLTYPE_IO;
}

static void fill_io_controller(const struct nvme_identify_ctrl *id, struct nvme_controller *c)
{
	uint32_t data = id->ioccsz * NVME_CAPSULE_UNIT - (uint32_t)sizeof(struct nvme_sqe);

	c->in_capsule_offset = id->icdoff * NVME_CAPSULE_UNIT;
	c->in_capsule_bytes = data > c->in_capsule_offset ? data - c->in_capsule_offset : 0;
	c->namespaces = id->nn;
}

int nvme_controller_parse(const void *data, uint16_t cntlid, const char *subnqn,
                          uint64_t page_size_min, struct nvme_controller *ret, struct ros2_err *err)
{
	const struct nvme_identify_ctrl *id = data;
	struct nvme_controller c = {
		.cntlid = id->cntlid,
		.type = controller_type(id, subnqn),
		.max_transfer = max_transfer(id->mdts, page_size_min),
		.max_commands = id->maxcmd,
		.keep_alive_unit_ms = id->kas * 100u,
		.command_quiesce_ms = id->cqt,
		.events = id->oaes,
		.sgl_descriptors_max = id->msdbd,
		.async_events_max = (uint8_t)MIN(id->aerl + 1u, 255u),
		.sgl_keyed = id->sgls & NVME_SGLS_KEYED,
		.sgl_offset = id->sgls & NVME_SGLS_OFFSET,
		.sgl_dword_aligned = (id->sgls & NVME_SGLS_MASK) == NVME_SGLS_DWORD,
		.volatile_write_cache = id->vwc & NVME_VWC_PRESENT,
		.has_dsm = id->oncs & NVME_ONCS_DSM,
		.has_write_zeroes = id->oncs & NVME_ONCS_ZEROES,
		.traffic_keeps_alive = id->ctratt & NVME_CTRATT_TBKAS,
	};
	int r;

	if (c.cntlid != cntlid)
		return ros2_err_set(err, -EPROTO,
		                    "target sent controller id %u in Identify: expected %u, as its "
		                    "answer to Connect said",
		                    c.cntlid, cntlid);
	if (c.type > NVME_CNTRLTYPE_ADMIN)
		return ros2_err_set(err, -EPROTO,
		                    "target sent controller type %u: expected 1 (I/O) to 3 (admin)",
		                    c.type);
	r = parse_subnqn(id, subnqn, c.subnqn, err);
	if (r == 0 && c.type == NVME_CNTRLTYPE_IO)
		r = check_io_controller(id, err);
	if (r < 0)
		return r;
	if (c.type == NVME_CNTRLTYPE_IO)
		fill_io_controller(id, &c);
	*ret = c;
	return 0;
}

void nvme_clear_limits_parse(const void *data, uint64_t page_size_min,
                             struct nvme_clear_limits *ret)
{
	struct nvme_identify_nvm id;

	memcpy(&id, data, sizeof(id));
	ret->zeroes_bytes = max_transfer(id.wzsl, page_size_min);
	ret->discard_blocks = MIN(id.dmrsl ? id.dmrsl : UINT64_MAX, id.dmsl ? id.dmsl : UINT64_MAX);
}

static bool all_zero(const void *p, size_t n)
{
	const uint8_t *at = p;

	return at[0] == 0 && memcmp(at, at + 1, n - 1) == 0;
}

/* NVM 4.1.5.1: bits 6:5 of FLBAS count only with more than 16 formats. */
static int parse_format(const struct nvme_identify_ns *id, uint8_t *ret_shift, struct ros2_err *err)
{
	unsigned formats = id->nlbaf + 1u + id->nulbaf, i = id->flbas & 0xf;
	struct nvme_lbaf f;

	if (formats > 16)
		i |= (id->flbas >> 5 & 3u) << 4;
	if (i >= formats || formats > NVME_LBAF_COUNT)
		return ros2_err_set(err, -EPROTO,
		                    "target sent LBA format %u of %u: expected one that exists, of "
		                    "at most %u",
		                    i, formats, NVME_LBAF_COUNT);
	f = id->lbaf[i];
	if (f.lbads < 9)
		return ros2_err_set(err, -EPROTO,
		                    "target sent blocks of 2^%u bytes: expected 2^9 or more",
		                    f.lbads);
	if (f.lbads > BLOCK_SHIFT_MAX)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "target has blocks of 2^%u bytes: expected 2^9 to 2^%u",
		                    f.lbads, BLOCK_SHIFT_MAX);
	if (f.ms)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "target has %u bytes of metadata for each block: expected none",
		                    f.ms);
	if (id->dps & NVME_DPS_TYPE_MASK)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "target has protection information of type %u: expected none",
		                    id->dps & NVME_DPS_TYPE_MASK);
	*ret_shift = f.lbads;
	return 0;
}

int nvme_namespace_parse(const void *data, struct nvme_namespace *ret, struct ros2_err *err)
{
	const struct nvme_identify_ns *id = data;
	struct nvme_namespace n = {
		.blocks = id->nsze,
		.capacity = id->ncap,
		.shared = id->nmic & NVME_NMIC_SHARED,
	};
	int r;

	if (all_zero(data, sizeof(*id)))
		return ros2_err_set(err, -ENOENT, "target has no active namespace of this id");
	r = parse_format(id, &n.block_shift, err);
	if (r < 0)
		return r;
	if (!n.blocks || n.blocks > (uint64_t)INT64_MAX >> n.block_shift)
		return ros2_err_set(
			err, -EPROTO,
			"target sent a namespace of %llu blocks of %u bytes: expected 1 "
			"block to 2^63 bytes",
			(unsigned long long)n.blocks, 1u << n.block_shift);
	if (n.capacity > n.blocks)
		return ros2_err_set(err, -EPROTO,
		                    "target sent NCAP %llu: expected at most NSZE, %llu",
		                    (unsigned long long)n.capacity, (unsigned long long)n.blocks);
	memcpy(n.ids.nguid, id->nguid, sizeof(n.ids.nguid));
	memcpy(n.ids.eui64, id->eui64, sizeof(n.ids.eui64));
	*ret = n;
	return 0;
}

/* Where a value of this type goes; NULL: it is none that is known here. */
static uint8_t *id_of(struct nvme_ns_ids *ids, uint8_t nidt, uint32_t *ret_len)
{
	switch (nidt) {
	case NVME_NIDT_EUI64:
		*ret_len = sizeof(ids->eui64);
		return ids->eui64;
	case NVME_NIDT_NGUID:
		*ret_len = sizeof(ids->nguid);
		return ids->nguid;
	case NVME_NIDT_UUID:
		*ret_len = sizeof(ids->uuid);
		return ids->uuid;
	default:
		return NULL;
	}
}

int nvme_ns_ids_parse(const void *data, struct nvme_ns_ids *ids, struct ros2_err *err)
{
	struct nvme_ns_ids found = *ids;
	struct nvme_ns_descriptor d;
	const uint8_t *bytes = data;

	for (uint32_t at = 0; at <= NVME_IDENTIFY_LEN - sizeof(d); at += d.nidl) {
		uint32_t want = 0;
		uint8_t *to;

		memcpy(&d, bytes + at, sizeof(d));
		if (d.nidt == 0)
			break;
		at += sizeof(d);
		to = id_of(&found, d.nidt, &want);
		if (at + d.nidl > NVME_IDENTIFY_LEN || (to && d.nidl != want))
			return ros2_err_set(err, -EPROTO,
			                    "target sent an identifier of type %u and %u bytes at "
			                    "%u: expected another length",
			                    d.nidt, d.nidl, at);
		if (to)
			memcpy(to, bytes + at, want);
	}
	*ids = found;
	return 0;
}

int nvme_ns_list_parse(const void *data, uint32_t above, uint32_t ret[NVME_NS_LIST_MAX],
                       uint32_t *ret_n, bool *ret_all, struct ros2_err *err)
{
	const uint8_t *at = data;
	uint32_t ids[NVME_NS_LIST_MAX], n = 0, last = above;

	memcpy(ids, at, sizeof(ids));
	/* Base 5.16.1.5: a first entry of all ones, and zeroes, stands for more than fit. */
	if (ids[0] == NVME_NSID_ALL && ids[1] == 0) {
		*ret_n = 0;
		*ret_all = true;
		return 0;
	}
	for (; n < NVME_NS_LIST_MAX && ids[n]; n++) {
		if (ids[n] == NVME_NSID_ALL || ids[n] <= last)
			return ros2_err_set(err, -EPROTO,
			                    "target sent namespace id 0x%x at place %u of a list: "
			                    "expected ids that rise, above 0x%x",
			                    ids[n], n, last);
		last = ids[n];
	}
	memcpy(ret, ids, n * sizeof(ids[0]));
	*ret_n = n;
	*ret_all = false;
	return 0;
}

int nvme_rdma_accept_parse(const void *data, size_t len, uint32_t *ret_depth, struct ros2_err *err)
{
	struct nvme_rdma_accept a;

	if (len < sizeof(a))
		return ros2_err_set(err, -EPROTO,
		                    "target sent %zu bytes of private data: expected %zu or more",
		                    len, sizeof(a));
	memcpy(&a, data, sizeof(a));
	if (a.recfmt)
		return ros2_err_set(err, -EPROTO,
		                    "target sent private data of format %u: expected 0", a.recfmt);
	if (!a.crqsize)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a receive queue of 0 entries: expected 1 or more");
	*ret_depth = a.crqsize;
	return 0;
}

int nvme_rdma_reject_parse(const void *data, size_t len, uint16_t *ret_status, struct ros2_err *err)
{
	struct nvme_rdma_reject j;

	if (len < sizeof(j))
		return ros2_err_set(err, -EPROTO,
		                    "target sent %zu bytes with a rejection: expected %zu or more",
		                    len, sizeof(j));
	memcpy(&j, data, sizeof(j));
	if (j.recfmt || !j.sts)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a rejection of format %u with status %u: expected "
		                    "format 0 and a status",
		                    j.recfmt, j.sts);
	*ret_status = j.sts;
	return 0;
}

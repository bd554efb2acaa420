/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands built: every field that a specification names is set, everything else is zero. The
 * command id and the data pointer stay zero for the queue.
 */
#include "dataplane/nvmf/codec.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

static void begin(struct nvme_sqe *sqe, uint8_t opcode, uint32_t nsid)
{
	*sqe = (struct nvme_sqe){.opcode = opcode, .flags = NVME_FLAG_SGL, .nsid = nsid};
}

/* Fabrics commands have their own shapes, all of 64 bytes, and their type where others have the
 * namespace. */
static void put(struct nvme_sqe *sqe, const void *shape)
{
	memcpy(sqe, shape, sizeof(*sqe));
}

int nvme_sgl_keyed(struct nvme_sqe *sqe, uint64_t addr, uint32_t len, uint32_t key, bool invalidate)
{
	struct nvme_sgl_keyed *k = &sqe->dptr.keyed;

	if (len > NVME_SGL_KEYED_LENGTH_MAX)
		return -EINVAL;
	sqe->flags = NVME_FLAG_SGL;
	k->addr = addr;
	memcpy(k->length, &len, sizeof(k->length));
	memcpy(k->key, &key, sizeof(k->key));
	k->type = invalidate ? NVME_SGL_KEYED_INVALIDATE : NVME_SGL_KEYED;
	return 0;
}

void nvme_sgl_in_capsule(struct nvme_sqe *sqe, uint64_t offset, uint32_t len)
{
	sqe->flags = NVME_FLAG_SGL;
	sqe->dptr.sgl =
		(struct nvme_sgl){.addr = offset, .length = len, .type = NVME_SGL_DATA_OFFSET};
}

void nvme_sgl_transport(struct nvme_sqe *sqe, uint32_t len)
{
	sqe->flags = NVME_FLAG_SGL;
	sqe->dptr.sgl = (struct nvme_sgl){.length = len, .type = NVME_SGL_TRANSPORT};
}

int nvme_sgl_parse(const struct nvme_sqe *sqe, struct nvme_sgl_value *ret, struct ros2_err *err)
{
	const struct nvme_sgl_keyed *k = &sqe->dptr.keyed;
	struct nvme_sgl_value v = {.type = (enum nvme_sgl_type)k->type, .addr = k->addr};

	if ((sqe->flags & 0xc0) != NVME_FLAG_SGL)
		return ros2_err_set(err, -EINVAL,
		                    "host sent command flags 0x%02x: expected an SGL (0x40)",
		                    sqe->flags);
	switch (k->type) {
	case NVME_SGL_KEYED:
	case NVME_SGL_KEYED_INVALIDATE:
		memcpy(&v.len, k->length, sizeof(k->length));
		memcpy(&v.key, k->key, sizeof(k->key));
		break;
	case NVME_SGL_DATA_OFFSET:
	case NVME_SGL_TRANSPORT:
		v.len = sqe->dptr.sgl.length;
		break;
	default:
		return ros2_err_set(err, -EINVAL,
		                    "host sent SGL descriptor type 0x%02x: expected 0x01, 0x40, "
		                    "0x4f or 0x5a",
		                    k->type);
	}
	*ret = v;
	return 0;
}

void nvme_cmd_connect(struct nvme_sqe *sqe, uint16_t qid, uint32_t depth, uint8_t cattr,
                      uint32_t kato_ms)
{
	const struct nvme_connect_cmd c = {
		.opcode = NVME_FABRICS,
		.flags = NVME_FLAG_SGL,
		.fctype = NVME_FC_CONNECT,
		.qid = qid,
		.sqsize = (uint16_t)(depth - 1),
		.cattr = cattr,
		.kato_ms = kato_ms,
	};

	assert(depth >= 2 && depth <= 65536 && (qid == 0 || kato_ms == 0));
	put(sqe, &c);
}

int nvme_connect_data_fill(struct nvme_connect_data *data, const uint8_t hostid[16],
                           uint16_t cntlid, const char *subnqn, const char *hostnqn)
{
	if (!nvme_nqn_valid(subnqn) || !nvme_nqn_valid(hostnqn))
		return -EINVAL;
	*data = (struct nvme_connect_data){.cntlid = cntlid};
	memcpy(data->hostid, hostid, sizeof(data->hostid));
	memcpy(data->subnqn, subnqn, strlen(subnqn));
	memcpy(data->hostnqn, hostnqn, strlen(hostnqn));
	return 0;
}

static void property(struct nvme_sqe *sqe, uint8_t fctype, uint32_t offset, uint64_t value)
{
	const struct nvme_property_cmd c = {
		.opcode = NVME_FABRICS,
		.flags = NVME_FLAG_SGL,
		.fctype = fctype,
		.attrib = offset == NVME_PROP_CAP ? 1 : 0,
		.offset = offset,
		.value = value,
	};

	put(sqe, &c);
}

void nvme_cmd_property_get(struct nvme_sqe *sqe, uint32_t offset)
{
	property(sqe, NVME_FC_PROPERTY_GET, offset, 0);
}

void nvme_cmd_property_set(struct nvme_sqe *sqe, uint32_t offset, uint64_t value)
{
	property(sqe, NVME_FC_PROPERTY_SET, offset, value);
}

static void auth(struct nvme_sqe *sqe, uint8_t fctype, uint32_t len)
{
	const struct nvme_auth_cmd c = {
		.opcode = NVME_FABRICS,
		.flags = NVME_FLAG_SGL,
		.fctype = fctype,
		.spsp0 = NVME_AUTH_SPSP0,
		.spsp1 = NVME_AUTH_SPSP1,
		.secp = NVME_AUTH_SECP,
		.length = len,
	};

	put(sqe, &c);
}

void nvme_cmd_auth_send(struct nvme_sqe *sqe, uint32_t len)
{
	auth(sqe, NVME_FC_AUTH_SEND, len);
}

void nvme_cmd_auth_receive(struct nvme_sqe *sqe, uint32_t len)
{
	auth(sqe, NVME_FC_AUTH_RECEIVE, len);
}

void nvme_cmd_disconnect(struct nvme_sqe *sqe)
{
	const struct nvme_disconnect_cmd c = {
		.opcode = NVME_FABRICS,
		.flags = NVME_FLAG_SGL,
		.fctype = NVME_FC_DISCONNECT,
	};

	put(sqe, &c);
}

void nvme_cmd_identify(struct nvme_sqe *sqe, enum nvme_cns cns, uint32_t nsid)
{
	begin(sqe, NVME_ADMIN_IDENTIFY, nsid);
	sqe->cdw10 = cns;
}

/* Base 5.16: number of dwords - 1 in NUMDL (CDW10 31:16) and NUMDU (CDW11 15:0); offset in bytes.
 */
void nvme_cmd_get_log(struct nvme_sqe *sqe, enum nvme_log log, uint64_t offset, uint32_t len,
                      bool retain)
{
	uint32_t numd = len / 4 - 1;

	assert(len && len % 4 == 0 && offset % 4 == 0);
	begin(sqe, NVME_ADMIN_GET_LOG_PAGE, log == NVME_LOG_CHANGED_NAMESPACES ? NVME_NSID_ALL : 0);
	sqe->cdw10 = (uint32_t)log | (retain ? NVME_LOG_RAE : 0) | numd << 16;
	sqe->cdw11 = numd >> 16;
	sqe->cdw12 = (uint32_t)offset;
	sqe->cdw13 = (uint32_t)(offset >> 32);
}

void nvme_cmd_set_feature(struct nvme_sqe *sqe, enum nvme_feature feature, uint32_t value)
{
	begin(sqe, NVME_ADMIN_SET_FEATURES, 0);
	sqe->cdw10 = feature;
	sqe->cdw11 = value;
}

void nvme_cmd_get_feature(struct nvme_sqe *sqe, enum nvme_feature feature)
{
	begin(sqe, NVME_ADMIN_GET_FEATURES, 0);
	sqe->cdw10 = feature;
}

void nvme_cmd_keep_alive(struct nvme_sqe *sqe)
{
	begin(sqe, NVME_ADMIN_KEEP_ALIVE, 0);
}

void nvme_cmd_async_event(struct nvme_sqe *sqe)
{
	begin(sqe, NVME_ADMIN_ASYNC_EVENT, 0);
}

void nvme_cmd_abort(struct nvme_sqe *sqe, uint16_t sqid, uint16_t cid)
{
	begin(sqe, NVME_ADMIN_ABORT, 0);
	sqe->cdw10 = sqid | (uint32_t)cid << 16;
}

static void io(struct nvme_sqe *sqe, uint8_t opcode, uint32_t nsid, uint64_t lba, uint32_t blocks)
{
	assert(blocks && blocks <= NVME_RW_BLOCKS_MAX);
	begin(sqe, opcode, nsid);
	sqe->cdw10 = (uint32_t)lba;
	sqe->cdw11 = (uint32_t)(lba >> 32);
	sqe->cdw12 = blocks - 1;
}

void nvme_cmd_read(struct nvme_sqe *sqe, uint32_t nsid, uint64_t lba, uint32_t blocks)
{
	io(sqe, NVME_IO_READ, nsid, lba, blocks);
}

void nvme_cmd_write(struct nvme_sqe *sqe, uint32_t nsid, uint64_t lba, uint32_t blocks, bool fua)
{
	io(sqe, NVME_IO_WRITE, nsid, lba, blocks);
	if (fua)
		sqe->cdw12 |= NVME_RW_FUA;
}

void nvme_cmd_flush(struct nvme_sqe *sqe, uint32_t nsid)
{
	begin(sqe, NVME_IO_FLUSH, nsid);
}

void nvme_cmd_write_zeroes(struct nvme_sqe *sqe, uint32_t nsid, uint64_t lba, uint32_t blocks,
                           bool deallocate)
{
	io(sqe, NVME_IO_WRITE_ZEROES, nsid, lba, blocks);
	if (deallocate)
		sqe->cdw12 |= NVME_ZEROES_DEALLOC;
}

void nvme_cmd_deallocate(struct nvme_sqe *sqe, uint32_t nsid, uint32_t n)
{
	assert(n && n <= NVME_DSM_RANGES_MAX);
	begin(sqe, NVME_IO_DSM, nsid);
	sqe->cdw10 = n - 1;
	sqe->cdw11 = NVME_DSM_DEALLOCATE;
}

void nvme_rdma_request_fill(struct nvme_rdma_request *req, uint16_t qid, uint32_t depth,
                            uint16_t cntlid)
{
	assert(depth >= 2 && depth <= UINT16_MAX);
	*req = (struct nvme_rdma_request){
		.qid = qid,
		.hrqsize = (uint16_t)depth,
		.hsqsize = (uint16_t)(depth - 1),
		.cntlid = cntlid,
	};
}

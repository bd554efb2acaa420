/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of what travels. See codec.h for the contracts, spec.h for the layout.
 */
#include "dataplane/nvmf/codec.h"
#include "common/util.h"

struct name {
	uint16_t code;
	const char *text;
};

static const char *find(const struct name *names, size_t n, uint16_t code, const char *none)
{
	for (size_t i = 0; i < n; i++)
		if (names[i].code == code)
			return names[i].text;
	return none;
}

const char *nvme_status_text(uint16_t status)
{
	static const struct name names[] = {
#define X(num, name, text) {num, text},
		NVME_STATUS_LIST(X)
#undef X
	};

	return find(names, ARRAY_SIZE(names), NVME_STATUS_CODE(status), "unknown status");
}

static const struct name fabrics_names[] = {
	{NVME_FC_PROPERTY_SET, "Property Set"},
	{NVME_FC_CONNECT, "Connect"},
	{NVME_FC_PROPERTY_GET, "Property Get"},
	{NVME_FC_AUTH_SEND, "Authentication Send"},
	{NVME_FC_AUTH_RECEIVE, "Authentication Receive"},
	{NVME_FC_DISCONNECT, "Disconnect"},
};
static const struct name admin_names[] = {
	{NVME_ADMIN_GET_LOG_PAGE, "Get Log Page"},
	{NVME_ADMIN_IDENTIFY, "Identify"},
	{NVME_ADMIN_ABORT, "Abort"},
	{NVME_ADMIN_SET_FEATURES, "Set Features"},
	{NVME_ADMIN_GET_FEATURES, "Get Features"},
	{NVME_ADMIN_ASYNC_EVENT, "Asynchronous Event Request"},
	{NVME_ADMIN_KEEP_ALIVE, "Keep Alive"},
};
static const struct name io_names[] = {
	{NVME_IO_FLUSH, "Flush"},
	{NVME_IO_WRITE, "Write"},
	{NVME_IO_READ, "Read"},
	{NVME_IO_WRITE_ZEROES, "Write Zeroes"},
	{NVME_IO_DSM, "Dataset Management"},
};

const char *nvme_sqe_name(const struct nvme_sqe *sqe, bool io)
{
	static const char none[] = "unknown command";

	if (sqe->opcode == NVME_FABRICS) /* the type is where others have the namespace */
		return find(fabrics_names, ARRAY_SIZE(fabrics_names), sqe->nsid & 0xff, none);
	if (io)
		return find(io_names, ARRAY_SIZE(io_names), sqe->opcode, none);
	return find(admin_names, ARRAY_SIZE(admin_names), sqe->opcode, none);
}

const char *nvme_rdma_status_text(uint16_t sts)
{
	static const struct name names[] = {
		{NVME_RDMA_LENGTH, "invalid length of the private data"},
		{NVME_RDMA_RECFMT, "invalid record format"},
		{NVME_RDMA_QID, "invalid queue identifier"},
		{NVME_RDMA_HSQSIZE, "invalid host send queue size"},
		{NVME_RDMA_HRQSIZE, "invalid host receive queue size"},
		{NVME_RDMA_RESOURCES, "no resources"},
		{NVME_RDMA_IRD, "invalid IRD"},
		{NVME_RDMA_ORD, "invalid ORD"},
		{NVME_RDMA_CNTLID, "invalid controller identifier"},
	};

	return find(names, ARRAY_SIZE(names), sts, "unknown reason");
}

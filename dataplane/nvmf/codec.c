/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of what travels, and the text in it. Contracts: codec.h; layout: spec.h.
 */
#include "dataplane/nvmf/codec.h"
#include "common/utf8.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

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

bool nvme_nqn_valid(const char *nqn)
{
	return strncmp(nqn, "nqn.", 4) == 0 && nqn[4] &&
	       strnlen(nqn, NVMF_NQN_MAX + 1) <= NVMF_NQN_MAX && utf8_text_printable(nqn);
}

int nvme_text_parse(const char *field, size_t len, const char *what, char *ret, size_t ret_size,
                    struct ros2_err *err)
{
	char text[NVME_NQN_FIELD + 1], shown[NVME_NQN_FIELD];
	size_t n = strnlen(field, MIN(len, NVME_NQN_FIELD));

	while (n && field[n - 1] == ' ')
		n--;
	memcpy(text, field, n);
	text[n] = '\0';
	if (n >= ret_size)
		return ros2_err_set(err, -EPROTO,
		                    "target sent a %s of %zu bytes: expected at most %zu", what, n,
		                    ret_size - 1);
	if (!utf8_text_printable(text)) {
		utf8_escape(text, shown, sizeof(shown));
		return ros2_err_set(err, -EPROTO, "target sent %s \"%s\": expected printable UTF-8",
		                    what, shown);
	}
	memcpy(ret, text, n + 1);
	return 0;
}

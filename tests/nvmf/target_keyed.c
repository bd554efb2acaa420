/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said over RDMA besides capsules, whatever carries it: the private data of a connection
 * (NVMe/RDMA 1.0, 3.2), and which key an answer invalidates.
 */
#include "tests/nvmf/target_priv.h"

#include "common/crypto.h"
#include <string.h>

uint16_t target_rdma_judge(struct target *t, const uint8_t *asked, size_t len,
                           uint8_t words[RDMA_REFUSAL])
{
	struct conn nobody = {.t = t};
	uint64_t status = 0;
	bool lie = false;

	if (len < RDMA_HELLO)
		status = RDMA_BAD_LENGTH;
	else if (le16(asked))
		status = RDMA_BAD_FORMAT;
	else if (t->stopped || t->refusing)
		status = RDMA_NO_RESOURCES;
	else
		lie = target_lies(&nobody, NULL, -1, FAULT_CM_REJECT, &status);
	memset(words, 0, RDMA_REFUSAL);
	put16(words + 2, (uint16_t)status);
	if (lie && !status) {
		crypto_random(words, RDMA_REFUSAL);
		words[0] |= 1; /* of no format there is */
		return RDMA_NO_RESOURCES;
	}
	return (uint16_t)status;
}

bool target_rdma_silent(struct target *t)
{
	struct conn nobody = {.t = t};

	return target_lies(&nobody, NULL, PDU_ICRESP, FAULT_IC_NEVER, NULL);
}

void target_rdma_hello(struct conn *c, const uint8_t *asked, uint8_t hello[RDMA_HELLO])
{
	uint64_t arg;

	memset(hello, 0, RDMA_HELLO);
	put16(hello + 2, (uint16_t)(le16(asked + 6) + 1));
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_PFV, &arg))
		put16(hello, arg ? (uint16_t)arg : 1);
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_MAXDATA, &arg))
		put16(hello + 2, (uint16_t)arg);
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_GARBAGE, NULL)) {
		crypto_random(hello, RDMA_HELLO);
		hello[0] |= 1;
	}
}

void target_rdma_reach(struct conn *c, const struct tcmd *cmd, uint64_t *ret_addr,
                       uint32_t *ret_key)
{
	struct target *t = c->t;
	bool foreign = target_lies(c, cmd, -1, FAULT_KEY_FOREIGN, NULL),
	     old = !foreign && target_lies(c, cmd, -1, FAULT_KEY_OLD, NULL);

	*ret_addr = cmd->addr;
	*ret_key = cmd->key;
	for (unsigned i = 1; (foreign || old) && i <= MIN(t->n_seen, SEEN_KEYS); i++) {
		const struct seen_key *k = &t->seen[(t->n_seen - i) % SEEN_KEYS];

		if (!strcmp(k->host_nqn, c->ctrl->host_nqn) == foreign || k->key == cmd->key)
			continue;
		*ret_addr = k->addr;
		*ret_key = k->key;
		return;
	}
	if (foreign || old)
		*ret_key ^= 0x00ffff00; /* that nobody has */
}

uint32_t target_rdma_invalidates(struct conn *c, const struct tcmd *cmd)
{
	struct target *t = c->t;
	uint64_t back;

	if (target_lies(c, cmd, -1, FAULT_INV_UNASKED, NULL))
		return cmd->key;
	if (target_lies(c, cmd, -1, FAULT_INV_WRONG, &back) && t->n_seen > back + 1)
		return t->seen[(t->n_seen - 2 - back) % SEEN_KEYS].key;
	return cmd->invalidate ? cmd->key : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the saved end of the audit log, a value in the controller's database. What is
 * accepted is a tree of as many records as the log has, and is written the same again.
 */
#include "controller/ledger.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[LEDGER_HEAD_MAX];
	struct audit_head h;

	if (ledger_head_unpack(data, size, &h) < 0)
		return 0;
	must(h.seq == h.tree.size && size <= sizeof(again));
	must(ledger_head_pack(&h, again) == size && !memcmp(again, data, size));
	return 0;
}

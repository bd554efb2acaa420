/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that tests of the queue over NVMe/TCP read and write; see tcp_peer.h. */
#include "tests/nvmf/tcp_peer.h"

void rig_pattern_at(void *buf, size_t offset, size_t n, uint8_t seed)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)((offset + i) * 7 + ((offset + i) >> 8) + seed);
}

void rig_pattern(void *buf, size_t n, uint8_t seed)
{
	rig_pattern_at(buf, 0, n, seed);
}

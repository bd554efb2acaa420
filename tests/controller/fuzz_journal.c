/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the file of the controller's journal of revocations: one slot as it is, and the same
 * bytes as a note in a slot that is whole. What is told of is within its slot and has its checksum;
 * the whole one is told of as it was written, unless its length is no note's. Nothing else is.
 */
#include "common/crypto.h"
#include "common/util.h"
#include "controller/store_front_priv.h"
#include "tests/fuzz/fuzz.h"
#include <sys/mman.h>
#include <unistd.h>

#define LOG_COMPONENT "fuzz"
#include "common/log.h"

#define SLOT     4096
#define HEAD_LEN 16

struct told {
	const uint8_t *note;
	size_t n;
	bool whole;
};

static int tell(void *arg, const void *p, size_t n, unsigned slot)
{
	struct told *t = arg;

	must(slot < 2 && n >= ROS2_UID_LEN && n <= STORE_NOTE_MAX);
	if (slot == 1) {
		must(n == t->n && !memcmp(p, t->note, n));
		t->whole = true;
	}
	return 0;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct store s = {.journal.fd = -1};
	uint8_t file[2 * SLOT] = {0};
	struct told t = {data, MIN(size, (size_t)SLOT - HEAD_LEN), false};

	log_set_level((enum log_level)(LOG_LEVEL_ERROR + 1)); /* it logs what it leaves out */
	if (s.journal.fd < 0)
		s.journal.fd = memfd_create("journal", MFD_CLOEXEC);
	if (!s.journal.image)
		s.journal.image = calloc(1, STORE_JOURNAL_LEN);
	s.dir = (char *)"."; /* synced: the journal writes what it read anew */
	must(s.journal.fd >= 0 && s.journal.image);
	memset(s.journal.used, 0, sizeof(s.journal.used));
	memcpy(file, data, MIN(size, (size_t)SLOT));
	memcpy(file + SLOT, "ROS2REV1", 8);
	put32(file + SLOT + 8, (uint32_t)t.n);
	put32(file + SLOT + 12, crypto_crc32c(data, t.n));
	memcpy(file + SLOT + HEAD_LEN, data, t.n);
	must(pwrite(s.journal.fd, file, sizeof(file), 0) == sizeof(file));
	must(store_journal_load(&s, tell, &t, NULL) == 0);
	must(t.whole == (t.n >= ROS2_UID_LEN && t.n <= STORE_NOTE_MAX));
	must(s.journal.used[1] == t.whole);
	return 0;
}

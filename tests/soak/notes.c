// SPDX-License-Identifier: Apache-2.0
/* The mapping of the notes, and blocks that tell where they belong and whether they are whole. */
#include "tests/soak/notes.h"
#include "common/util.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define NOTES_MAGIC 0x534f414b4e4f5431ull
#define BLOCK_MAGIC 0x534f414b424c4b31ull

struct notes *notes_open(const char *path, uint64_t file_id)
{
	AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct notes *n;

	if (fd < 0 || ftruncate(fd, sizeof(*n)) < 0)
		return NULL;
	n = mmap(NULL, sizeof(*n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (n == MAP_FAILED)
		return NULL;
	if (n->magic != NOTES_MAGIC) {
		n->file_id = file_id;
		n->magic = NOTES_MAGIC;
	}
	return n;
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	return x;
}

/* Every word depends on file, place, sequence and its position: a mixture of two blocks is none. */
void notes_fill(void *block, size_t size, uint64_t file_id, uint64_t index, uint64_t seq)
{
	uint64_t *w = block, key = mix(mix(file_id ^ BLOCK_MAGIC) + mix(index) + seq);

	w[0] = BLOCK_MAGIC;
	w[1] = file_id;
	w[2] = index;
	w[3] = seq;
	for (size_t i = 4; i < size / 8; i++)
		w[i] = mix(key + i);
}

bool notes_check(const struct notes *n, const void *block, size_t size, uint64_t index,
                 char words[256])
{
	static __thread uint64_t want[NOTES_BLOCK_SZ / 8];
	const struct notes_block *b = &n->block[index];
	uint64_t least = MAX(b->written, b->flushed), seq = ((const uint64_t *)block)[3];

	memset(want, 0, size);
	if (!memcmp(block, want, size)) {
		if (!least)
			return true;
		snprintf(words, 256, "block %" PRIu64 " is empty, %" PRIu64 " was acknowledged",
		         index, least);
		return false;
	}
	notes_fill(want, size, n->file_id, index, seq);
	if (memcmp(block, want, size)) {
		snprintf(words, 256,
		         "block %" PRIu64 " is torn or not of this place (seq %" PRIu64
		         "; acknowledged %" PRIu64 ", flushed %" PRIu64 ", issued %" PRIu64 ")",
		         index, seq, b->written, b->flushed, b->issued);
		return false;
	}
	if (seq >= least && seq <= b->issued)
		return true;
	snprintf(words, 256,
	         "block %" PRIu64 " has seq %" PRIu64 "; acknowledged %" PRIu64 ", flushed %" PRIu64
	         ", issued %" PRIu64,
	         index, seq, b->written, b->flushed, b->issued);
	return false;
}

void notes_fail(struct notes *n, const char *words)
{
	if (!n->failed[0])
		snprintf(n->failed, sizeof(n->failed), "%s", words);
}

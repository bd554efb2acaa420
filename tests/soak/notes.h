/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one soak client was promised, in a file that its death does not touch: a shared mapping, so
 * that each word is there the moment it is written, also after kill -9. The client writes it, the
 * checkers read it at any moment: an entry is complete before its count is raised.
 */
#ifndef ROS2_TESTS_SOAK_NOTES_H
#define ROS2_TESTS_SOAK_NOTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOTES_BLOCKS   2048
#define NOTES_SESSIONS 16384
#define NOTES_SPANS    (1u << 20)
#define NOTES_BLOCK_SZ 4096 /* the largest block */

struct notes_session {
	uint8_t uid[16];
	uint64_t last_ok_submit_ns; /* CLOCK_BOOTTIME: the last I/O that succeeded was submitted */
	uint32_t files, regions;    /* that the agent answered OK */
};

/* A batch of I/O of which at least one operation succeeded. */
struct notes_span {
	uint64_t submit_ns, done_ns;
};

/* Sequence numbers of one block of the file. flushed <= written <= issued. */
struct notes_block {
	uint64_t issued, written, flushed;
};

struct notes {
	uint64_t magic, file_id, next_seq;
	uint64_t n_sessions, n_spans;
	uint64_t writes, reads, flushes, unknown, refused;
	char failed[256]; /* words of the first promise that was found broken */
	struct notes_block block[NOTES_BLOCKS];
	struct notes_session session[NOTES_SESSIONS];
	struct notes_span span[NOTES_SPANS];
};

/* Maps @path, made when it is missing; @file_id is that of a new one. NULL when it cannot. */
struct notes *notes_open(const char *path, uint64_t file_id);

/* Fills @size bytes as block @index of file @file_id with sequence @seq; @size is a multiple of 64.
 */
void notes_fill(void *block, size_t size, uint64_t file_id, uint64_t index, uint64_t seq);
/* What is at the place of block @index must be a whole block: one that was issued, not older than
 * what was acknowledged; all zeros only if nothing was acknowledged. false with words. */
bool notes_check(const struct notes *n, const void *block, size_t size, uint64_t index,
                 char words[256]);
void notes_fail(struct notes *n, const char *words);
#endif

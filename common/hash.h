/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uthash, as it is used here: an element for which there is no memory in the table's index is not
 * in the table (uthash by itself ends the process). So every HASH_ADD is followed by a look. And
 * keys come from peers: by uthash's own function, which has no key, anybody computes as many as he
 * likes that all share a bucket, and each look-up walks past them; so it is another one here.
 */
#ifndef ROS2_COMMON_HASH_H
#define ROS2_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_KEY_LEN 16

/* The same for the same bytes in one process; nobody outside can tell which. Any thread. */
uint32_t hash_keyed(const void *p, size_t n);
/* SipHash-2-4, its 8 bytes as a little-endian number. */
uint64_t hash_siphash(const uint8_t key[HASH_KEY_LEN], const void *p, size_t n);

#define HASH_NONFATAL_OOM             1
#define HASH_FUNCTION(p, n, ret_hash) ((ret_hash) = hash_keyed((p), (n)))
#include <uthash.h>

/* After HASH_ADD and its like: the element is in the table. */
#define HASH_TOOK(hh, element) ((element)->hh.tbl != NULL)

/* HASH_ADD that finds no memory only for the first element of a table: otherwise the buckets stay
 * as many as they are, and fuller. */
#define HASH_ADD_TIGHT(hh, head, field, len, add)                                                  \
	do {                                                                                       \
		HASH_ADD(hh, head, field, len, add);                                               \
		if (!HASH_TOOK(hh, add) && (head)) {                                               \
			unsigned int was_ = (head)->hh.tbl->noexpand;                              \
                                                                                                   \
			(head)->hh.tbl->noexpand = 1;                                              \
			HASH_ADD(hh, head, field, len, add);                                       \
			(head)->hh.tbl->noexpand = was_;                                           \
		}                                                                                  \
	} while (0)
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Between the raw loop and its server that reads a file. */
#ifndef ROS2_TESTS_BENCH_TCP_RAW_H
#define ROS2_TESTS_BENCH_TCP_RAW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define REQUEST   32u
#define DEPTH_MAX 512u /* two iovecs per reply, 1024 per call */

struct request {
	uint64_t id; /* a reply begins with it */
	uint8_t rest[REQUEST - 8];
};
_Static_assert(sizeof(struct request) == REQUEST, "what is sent");

/* Sends all of @iov over the blocking socket @fd; changes @iov. 0 or negative errno. */
int raw_send_all(int fd, struct iovec *iov, size_t n);

/* Block @id reads, of @n: of the same id always the same; neighbours are far from each other
 * (Knuth, TAOCP 6.4). */
size_t raw_block_of(uint64_t id, size_t n);

/* Answers requests on the connected socket @fd, at most @depth in flight, each with @reply bytes
 * (a multiple of 4096) of @path, read past the page cache where the file system can, in the order
 * in which they come. Returns 0 when the client hangs up, else a negative errno; says why on
 * stderr. */
int raw_file_serve(int fd, const char *path, uint32_t reply, uint32_t depth);

#endif

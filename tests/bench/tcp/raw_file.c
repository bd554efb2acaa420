/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor under a storage server over TCP that reads a file: one thread, one io_uring for the
 * socket and the file, registered buffers, completions when it asks for them. It frames nothing and
 * checks nothing, and does what is known to be quick: a disk that idles has two requests, then
 * eight, while the others are made ready.
 */
#include "tests/bench/tcp/raw.h"
#include "common/util.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PAGE        4096u
#define FIRST_KICK  2u
#define SECOND_KICK 8u
#define RECEIVED    UINT64_MAX /* completion of the socket; of the file: the buffer's index */

struct server {
	int fd, file; /* file: owned */
	uint32_t reply, depth, in_flight;
	size_t blocks; /* of the file */
	struct io_uring ring;
	uint8_t *mem; /* owned: depth buffers */
	struct {
		uint32_t at[DEPTH_MAX], n;
	} unused, done;          /* buffers; those between them are with the kernel */
	uint64_t ids[DEPTH_MAX]; /* by buffer */
	struct request in[DEPTH_MAX];
	size_t have; /* bytes of in */
};

static int failed(const char *what, int rc)
{
	fprintf(stderr, "raw-tcp-bench: %s: %s\n", what, strerror(-rc));
	return rc;
}

static int open_file(struct server *s, const char *path)
{
	struct stat st;

	s->file = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (s->file < 0 && errno == EINVAL) /* a file system without it */
		s->file = open(path, O_RDONLY | O_CLOEXEC);
	if (s->file < 0 || fstat(s->file, &st) < 0)
		return failed(path, -errno);
	s->blocks = (size_t)st.st_size / s->reply;
	return s->blocks ? 0 : failed("the file holds no reply", -EINVAL);
}

static int set_up(struct server *s)
{
	struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER |
	                                     IORING_SETUP_DEFER_TASKRUN};
	size_t bytes = (size_t)s->depth * s->reply;
	struct iovec all = {.iov_len = bytes};
	int rc = posix_memalign(&all.iov_base, PAGE, bytes);

	if (rc != 0)
		return failed("memory", -rc);
	s->mem = all.iov_base;
	memset(s->mem, 0, bytes);
	for (; s->unused.n < s->depth; s->unused.n++)
		s->unused.at[s->unused.n] = s->unused.n;
	rc = io_uring_queue_init_params(2 * DEPTH_MAX, &s->ring, &p);
	if (rc < 0)
		return failed("io_uring (Linux 6.1 or newer)", rc);
	rc = io_uring_register_buffers(&s->ring, &all, 1);
	if (rc < 0) {
		io_uring_queue_exit(&s->ring);
		return failed("registered buffers", rc);
	}
	return 0;
}

static void listen_again(struct server *s)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);

	io_uring_prep_recv(sqe, s->fd, (uint8_t *)s->in + s->have, sizeof(s->in) - s->have, 0);
	sqe->user_data = RECEIVED;
}

static void read_block(struct server *s, uint64_t id)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);
	uint32_t b = s->unused.at[--s->unused.n];
	uint64_t offset = (uint64_t)raw_block_of(id, s->blocks) * s->reply;

	s->ids[b] = id;
	io_uring_prep_read_fixed(sqe, s->file, s->mem + (size_t)b * s->reply, s->reply, offset, 0);
	sqe->user_data = b;
	if (++s->in_flight == FIRST_KICK || s->in_flight == SECOND_KICK)
		io_uring_submit(&s->ring);
}

/* -EPROTO: more requests than it was told. */
static int on_received(struct server *s, size_t n)
{
	size_t whole;

	s->have += n;
	whole = s->have / REQUEST;
	if (whole > s->unused.n)
		return failed("more in flight than --depth", -EPROTO);
	for (size_t i = 0; i < whole; i++)
		read_block(s, s->in[i].id);
	s->have -= whole * REQUEST;
	memmove(s->in, s->in + whole, s->have);
	listen_again(s);
	return 0;
}

/* *ret_end: the client has hung up. */
static int on_completion(struct server *s, const struct io_uring_cqe *cqe, bool *ret_end)
{
	if (cqe->user_data == RECEIVED) {
		*ret_end = cqe->res == 0 || cqe->res == -ECONNRESET;
		if (*ret_end)
			return 0;
		return cqe->res < 0 ? failed("recv", cqe->res) : on_received(s, (size_t)cqe->res);
	}
	s->in_flight--;
	if (cqe->res != (int)s->reply)
		return failed("read of the file", cqe->res < 0 ? cqe->res : -EIO);
	s->done.at[s->done.n++] = (uint32_t)cqe->user_data;
	return 0;
}

static int answer_done(struct server *s)
{
	struct iovec iov[2 * DEPTH_MAX];
	uint32_t n = s->done.n;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t b = s->done.at[i];

		iov[2 * i] = (struct iovec){&s->ids[b], sizeof(s->ids[b])};
		iov[2 * i + 1] =
			(struct iovec){s->mem + (size_t)b * s->reply, s->reply - sizeof(s->ids[b])};
	}
	rc = n ? raw_send_all(s->fd, iov, 2 * (size_t)n) : 0;
	while (s->done.n)
		s->unused.at[s->unused.n++] = s->done.at[--s->done.n];
	return rc;
}

static int turn(struct server *s, bool *ret_end)
{
	struct io_uring_cqe *cqe;
	unsigned int head, n = 0;
	int rc = io_uring_submit_and_wait(&s->ring, 1);

	if (rc < 0)
		return rc == -EINTR ? 0 : failed("io_uring_enter", rc);
	rc = 0;
	io_uring_for_each_cqe(&s->ring, head, cqe)
	{
		n++;
		rc = on_completion(s, cqe, ret_end);
		if (rc < 0 || *ret_end)
			break;
	}
	io_uring_cq_advance(&s->ring, n);
	return rc < 0 || *ret_end ? rc : answer_done(s);
}

int raw_file_serve(int fd, const char *path, uint32_t reply, uint32_t depth)
{
	static struct server s;
	bool end = false;
	int rc;

	s = (struct server){.fd = fd, .file = -1, .reply = reply, .depth = depth};
	rc = open_file(&s, path);
	if (rc == 0)
		rc = set_up(&s);
	if (rc == 0) {
		listen_again(&s);
		while (rc == 0 && !end)
			rc = turn(&s, &end);
		io_uring_queue_exit(&s.ring);
	}
	free(s.mem);
	if (s.file >= 0)
		close(s.file);
	return rc;
}

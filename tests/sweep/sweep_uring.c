/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring in a sweep: setting a ring up, submitting, and the results of completions; openat2,
 * which has no wrapper of its own either. */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <liburing.h>
#include <sys/syscall.h>

int __real_io_uring_queue_init_params(unsigned int n, struct io_uring *r,
                                      struct io_uring_params *p);
int __wrap_io_uring_queue_init_params(unsigned int n, struct io_uring *r,
                                      struct io_uring_params *p);
int __real_io_uring_register_eventfd(struct io_uring *r, int fd);
int __wrap_io_uring_register_eventfd(struct io_uring *r, int fd);
int __real_io_uring_register_buffers(struct io_uring *r, const struct iovec *v, unsigned int n);
int __wrap_io_uring_register_buffers(struct io_uring *r, const struct iovec *v, unsigned int n);
struct io_uring_probe *__real_io_uring_get_probe_ring(struct io_uring *r);
struct io_uring_probe *__wrap_io_uring_get_probe_ring(struct io_uring *r);
int __real_io_uring_submit(struct io_uring *r);
int __wrap_io_uring_submit(struct io_uring *r);
unsigned int __real_io_uring_peek_batch_cqe(struct io_uring *r, struct io_uring_cqe **c,
                                            unsigned int n);
unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *r, struct io_uring_cqe **c,
                                            unsigned int n);
long __real_syscall(long nr, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long nr, long a, long b, long c, long d, long e, long f);

int __wrap_io_uring_queue_init_params(unsigned int n, struct io_uring *r, struct io_uring_params *p)
{
	int err = sweep_hit(SWEEP_URING_SETUP);

	return err ? -err : __real_io_uring_queue_init_params(n, r, p);
}

int __wrap_io_uring_register_eventfd(struct io_uring *r, int fd)
{
	int err = sweep_hit(SWEEP_URING_SETUP);

	return err ? -err : __real_io_uring_register_eventfd(r, fd);
}

int __wrap_io_uring_register_buffers(struct io_uring *r, const struct iovec *v, unsigned int n)
{
	int err = sweep_hit(SWEEP_URING_SETUP);

	return err ? -err : __real_io_uring_register_buffers(r, v, n);
}

struct io_uring_probe *__wrap_io_uring_get_probe_ring(struct io_uring *r)
{
	return sweep_hit(SWEEP_URING_SETUP) ? NULL : __real_io_uring_get_probe_ring(r);
}

/* How the engine enables its ring, and opens everything below its root. */
long __wrap_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	int err = nr == SYS_io_uring_register ? sweep_hit(SWEEP_URING_SETUP)
	          : nr == SYS_openat2         ? sweep_hit(SWEEP_OPEN)
	                                      : 0;

	if (!err)
		return __real_syscall(nr, a, b, c, d, e, f);
	errno = err;
	return -1;
}

int __wrap_io_uring_submit(struct io_uring *r)
{
	int err = sweep_hit(SWEEP_URING_SUBMIT);

	return err ? -err : __real_io_uring_submit(r);
}

unsigned int __wrap_io_uring_peek_batch_cqe(struct io_uring *r, struct io_uring_cqe **c,
                                            unsigned int n)
{
	unsigned int got = __real_io_uring_peek_batch_cqe(r, c, n);

	for (unsigned int i = 0; i < got; i++) {
		int err = sweep_hit(SWEEP_URING_RESULT);

		if (err)
			c[i]->res = -err;
	}
	return got;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and mappings in a sweep: what is made when something starts. */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	int err = sweep_hit(SWEEP_THREAD);

	return err ? err : __real_pthread_create(t, a, fn, arg);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	int err = sweep_hit(SWEEP_MMAP);

	if (!err)
		return __real_mmap(at, n, prot, flags, fd, offset);
	errno = err;
	return MAP_FAILED;
}

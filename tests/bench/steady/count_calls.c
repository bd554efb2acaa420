/* SPDX-License-Identifier: Apache-2.0 */
/* Interposes the allocator and pthread's locks; see count_calls.h. Preloaded, it finds the real
 * ones by dlsym; with COUNT_CALLS_WRAP the linker gives them as __real_*. Allocates nothing itself.
 */
#include "tests/bench/steady/count_calls.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct count_calls own, *counts = &own;
/* Initial-exec: the dynamic kind may allocate at its first use. */
static _Thread_local int is_reactor __attribute__((tls_model("initial-exec")));

#ifdef COUNT_CALLS_WRAP
#define NAME(f) __wrap_##f
#define REAL(ret, f, ...)                                                                          \
	ret __real_##f(__VA_ARGS__);                                                               \
	ret __wrap_##f(__VA_ARGS__);
#define NEXT(f) __real_##f
struct count_calls *count_calls(void);
struct count_calls *count_calls(void)
{
	return counts;
}
#else
#define NAME(f)           f
#define REAL(ret, f, ...) static ret (*real_##f)(__VA_ARGS__);
#define NEXT(f)           (*(real_##f ? real_##f : (real_##f = dlsym(RTLD_NEXT, #f))))
#endif

static void count(_Atomic uint64_t *what)
{
	if (is_reactor)
		atomic_fetch_add_explicit(what, 1, memory_order_relaxed);
}

/* ---- which threads ---- */
REAL(int, pthread_setname_np, pthread_t t, const char *name)

/* The reactor's creator names it: every thread looks at its own name when one was given since. */
static _Atomic uint32_t n_named;

static void notice(void)
{
	static _Thread_local uint32_t asked __attribute__((tls_model("initial-exec")));
	uint32_t n = atomic_load_explicit(&n_named, memory_order_acquire);
	char name[16] = "";

	if (is_reactor || asked == n)
		return;
	asked = n;
	if (prctl(PR_GET_NAME, name) < 0 || strncmp(name, "reactor", 7))
		return;
	is_reactor = 1;
	atomic_store(&counts->tid, (uint64_t)syscall(SYS_gettid));
}

int NAME(pthread_setname_np)(pthread_t t, const char *name)
{
	int rc = NEXT(pthread_setname_np)(t, name);

	if (rc == 0 && !strncmp(name, "reactor", 7)) {
		atomic_fetch_add(&counts->reactors, 1);
		atomic_fetch_add(&n_named, 1);
	}
	return rc;
}

/* ---- what is counted ---- */
#define COUNTED(which, ret, f, params, args)                                                       \
	REAL(ret, f, params)                                                                       \
	ret NAME(f)(params)                                                                        \
	{                                                                                          \
		notice();                                                                          \
		count(&counts->which);                                                             \
		return NEXT(f)(args);                                                              \
	}
#define _(...) __VA_ARGS__

#ifndef COUNT_CALLS_WRAP
/* dlsym may allocate before it can tell where calloc is. */
static char early[4096];
static size_t early_used;

static void *early_calloc(size_t n)
{
	void *p = early + early_used;

	early_used += (n + 15) & ~(size_t)15;
	return early_used <= sizeof(early) ? p : NULL;
}

static void *(*real_calloc)(size_t, size_t);
void *calloc(size_t n, size_t size)
{
	static int looking;

	if (!real_calloc && looking)
		return early_calloc(n * size);
	if (!real_calloc) {
		looking = 1;
		real_calloc = dlsym(RTLD_NEXT, "calloc");
	}
	notice();
	count(&counts->alloc);
	return real_calloc(n, size);
}

static void (*real_free)(void *);
void free(void *p)
{
	if ((char *)p >= early && (char *)p < early + sizeof(early))
		return;
	notice();
	count(&counts->alloc);
	if (!real_free)
		real_free = dlsym(RTLD_NEXT, "free");
	real_free(p);
}
#else
COUNTED(alloc, void *, calloc, _(size_t n, size_t size), _(n, size))
REAL(void, free, void *p)
void NAME(free)(void *p)
{
	notice();
	count(&counts->alloc);
	NEXT(free)(p);
}
#endif

COUNTED(alloc, void *, malloc, _(size_t n), _(n))
COUNTED(alloc, void *, realloc, _(void *p, size_t n), _(p, n))
COUNTED(alloc, void *, reallocarray, _(void *p, size_t n, size_t size), _(p, n, size))
COUNTED(alloc, void *, aligned_alloc, _(size_t a, size_t n), _(a, n))
COUNTED(alloc, int, posix_memalign, _(void **p, size_t a, size_t n), _(p, a, n))
COUNTED(lock, int, pthread_mutex_lock, _(pthread_mutex_t *m), _(m))
COUNTED(lock, int, pthread_mutex_trylock, _(pthread_mutex_t *m), _(m))
COUNTED(lock, int, pthread_rwlock_rdlock, _(pthread_rwlock_t *l), _(l))
COUNTED(lock, int, pthread_rwlock_wrlock, _(pthread_rwlock_t *l), _(l))
COUNTED(lock, int, pthread_spin_lock, _(pthread_spinlock_t *l), _(l))
COUNTED(lock, int, pthread_cond_wait, _(pthread_cond_t *c, pthread_mutex_t *m), _(c, m))
COUNTED(lock, int, pthread_cond_timedwait,
        _(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t), _(c, m, t))
COUNTED(lock, int, sem_wait, _(sem_t *s), _(s))

#ifndef COUNT_CALLS_WRAP
/* Before main: there is one thread, and nothing was counted yet. */
__attribute__((constructor)) static void share(void)
{
	const char *path = getenv("ROS2_COUNT_FILE");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *p = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(*counts)) == 0)
		p = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return;
	counts = p;
	counts->magic = COUNT_MAGIC;
}
#endif

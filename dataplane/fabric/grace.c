// SPDX-License-Identifier: Apache-2.0
/*
 * The last packet of a software device. soft-RoCE says that a LOCAL_INV, a dealloc or a move to
 * error is done while its receiving side may still be copying one packet that it had checked before
 * (seen: up to one MTU lands afterwards). That copy runs in a softirq of this kernel, so a grace
 * period of its RCU is over only when the copy is: membarrier(2) with MEMBARRIER_CMD_GLOBAL waits
 * for one. A thread of its own does the waiting; reactors ask for a number and look whether it has
 * been reached. Hardware that keeps its promise needs none of this.
 */
#include "dataplane/fabric/grace_priv.h"
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Where the kernel has no global barrier (nohz_full): far longer than a softirq may run. */
#define INSTEAD_NS 100000000l

struct fabric_grace {
	pthread_t thread;
	int wake_fd;
	/* any thread */
	_Atomic uint64_t asked, reached;
	_Atomic bool stop;
};

static void wait_one(void)
{
	struct timespec t = {.tv_nsec = INSTEAD_NS};

	if (syscall(__NR_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
		/* poll: no event tells when a softirq of another CPU is over */
		while (nanosleep(&t, &t) != 0 && errno == EINTR)
			;
}

static void *run(void *arg)
{
	struct fabric_grace *g = arg;
	uint64_t n;

	while (!g->stop) {
		uint64_t upto = g->asked;

		if (upto != g->reached) {
			wait_one();
			g->reached = upto;
		} else if (read(g->wake_fd, &n, sizeof(n)) < 0 && errno != EINTR) {
			break;
		}
	}
	return NULL;
}

/* A program's signals are for its own threads. */
static int start(struct fabric_grace *g)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&g->thread, NULL, run, g);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int grace_new(struct fabric_grace **ret)
{
	struct fabric_grace *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (g->wake_fd < 0 || start(g) != 0) {
		if (g->wake_fd >= 0)
			close(g->wake_fd);
		free(g);
		return -ENOMEM;
	}
	*ret = g;
	return 0;
}

static void wake(struct fabric_grace *g)
{
	const uint64_t one = 1;

	/* The counter is full only when it is awake. */
	(void)!write(g->wake_fd, &one, sizeof(one));
}

void grace_free(struct fabric_grace *g)
{
	if (!g)
		return;
	g->stop = true;
	wake(g);
	pthread_join(g->thread, NULL);
	close(g->wake_fd);
	free(g);
}

uint64_t grace_ask(struct fabric_grace *g)
{
	/* A wait that has begun already began too early: the next one counts. */
	uint64_t n = atomic_fetch_add(&g->asked, 1) + 1;

	wake(g);
	return n;
}

bool grace_reached(const struct fabric_grace *g, uint64_t n)
{
	return g->reached >= n;
}

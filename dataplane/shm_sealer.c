/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See shm_sealer.h. Processes are started by one thread with a table of descriptors of its own: a
 * process that is started has for a moment what that table has, and that may be a moment without
 * end (the close of a file whose storage hangs). The memory is sent to it. It never waits for a
 * tenant, nor with the lock held; what it starts is on its list until it was reaped.
 *
 * Never by fork: memory may be pinned for a device, and a copy on write would part from it.
 */
#include "dataplane/shm_sealer.h"
#include "common/clock.h"
#include "common/share.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include "dataplane/own_fds.h"
#include "dataplane/shm_memory.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEAL_FD 3 /* of the process that seals */
/* From when it is asked for: a program begins and ends in a few milliseconds, and a call that
 * writes and is not held takes less. */
#define SEAL_NS (2000 * NS_PER_MS)
/* From then on it is killed, and that long it may take to end, if it is only slow. */
#define KILLED_NS (1000 * NS_PER_MS)
#define LOOK_MS   10 /* where there is no descriptor that tells of an end */
#define LEFT      64u
#define SEALS     (LEFT + 64u) /* and each worker's */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif

enum seal_state { SEAL_FREE, SEAL_SENT, SEAL_RUNS, SEAL_OVER };

struct seal {
	enum seal_state state;
	bool cancelled;
	bool left; /* nobody waits for it */
	struct ros2_uid tenant;
	const void *whose; /* compared only */
	int rc;            /* when it is over */
	pid_t pid;         /* while it runs */
	int pidfd;         /* likewise, in the thread's table; -1 = none */
};

struct shm_sealer {
	/* immutable after start */
	const char *program;
	int to, from; /* from: the thread's table has it, too, and there alone it is open */
	pthread_t thread;
	sem_t ready;
	int rc; /* of the start */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* guarded by lock */
	bool stopped;
	struct seal seals[SEALS];
};

/* Whoever holds one holds it to his own harm; a process is little, but not nothing. */
static const struct share left_share = {
	.total = LEFT, .most = SHM_SEALER_LEFT, .sure = 1, .kept = LEFT - LEFT / 4};

struct parcel {
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	uint32_t i; /* of seals */
	struct iovec iov;
	struct msghdr msg;
};

static void parcel_init(struct parcel *p, uint32_t i)
{
	*p = (struct parcel){.i = i, .iov = {&p->i, sizeof(p->i)}};
	p->msg = (struct msghdr){.msg_iov = &p->iov,
	                         .msg_iovlen = 1,
	                         .msg_control = p->control.bytes,
	                         .msg_controllen = sizeof(p->control.bytes)};
}

/* ---- the process ---- */

int dp_seal_memory(void)
{
	(void)prctl(PR_SET_NAME, DP_SEAL_COMMAND);
	(void)syscall(SYS_close_range, SEAL_FD + 1, ~0u, 0);
	return -shm_memory_add_seals(SEAL_FD);
}

static int start_process(const char *program, int memfd, pid_t *ret)
{
	char name[] = "ros2-agent", command[] = DP_SEAL_COMMAND, *argv[] = {name, command, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	rc = posix_spawn_file_actions_init(&files);
	/* Whoever reads what the agent says would wait for its end, too. */
	for (int fd = 0; rc == 0 && fd < SEAL_FD; fd++)
		if (fd != memfd)
			rc = posix_spawn_file_actions_addclose(&files, fd);
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(&files, memfd, SEAL_FD);
	if (rc == 0)
		rc = posix_spawn(ret, program, &files, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

/* ---- the thread ---- */

/* Lock held. */
static void over(struct shm_sealer *s, struct seal *l, int rc)
{
	if (l->left) {
		*l = (struct seal){.state = SEAL_FREE};
		return;
	}
	l->rc = rc;
	l->state = SEAL_OVER;
	pthread_cond_broadcast(&s->cond);
}

/* Lock held. */
static void runs(struct seal *l, pid_t pid)
{
	l->state = SEAL_RUNS;
	l->pid = pid;
	l->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* Meanwhile nobody waits. */
	if (l->left)
		(void)kill(pid, SIGKILL);
}

/* @memfd is the thread's. */
static void begin(struct shm_sealer *s, struct seal *l, int memfd)
{
	pid_t pid = 0;
	int rc = memfd < 0 ? -EMFILE : 0;

	pthread_mutex_lock(&s->lock);
	if (l->left)
		rc = -ECANCELED;
	pthread_mutex_unlock(&s->lock);
	if (rc == 0)
		rc = start_process(s->program, memfd, &pid);
	if (memfd >= 0)
		(void)syscall(SYS_close, memfd);
	pthread_mutex_lock(&s->lock);
	if (rc < 0)
		over(s, l, rc);
	else
		runs(l, pid);
	pthread_mutex_unlock(&s->lock);
}

/* False: nobody sends any more. */
static bool take(struct shm_sealer *s)
{
	struct parcel p;
	int memfd = -1;
	ssize_t n;

	parcel_init(&p, 0);
	n = syscall(SYS_recvmsg, s->from, &p.msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n == 0)
		return false;
	if (n != sizeof(p.i))
		return true;
	/* Without a place in the table for it there is no descriptor with it. */
	if (CMSG_FIRSTHDR(&p.msg))
		memcpy(&memfd, CMSG_DATA(CMSG_FIRSTHDR(&p.msg)), sizeof(memfd));
	begin(s, &s->seals[p.i], memfd);
	return true;
}

/* What its end says; see dp_seal_memory. */
static int rc_of(int status)
{
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

static void reap(struct shm_sealer *s)
{
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < SEALS; i++) {
		struct seal *l = &s->seals[i];
		int status = 0;
		pid_t pid;

		if (l->state != SEAL_RUNS)
			continue;
		pid = waitpid(l->pid, &status, WNOHANG);
		if (pid == 0)
			continue;
		if (l->pidfd >= 0)
			(void)syscall(SYS_close, l->pidfd);
		over(s, l, pid < 0 ? -errno : rc_of(status));
	}
	pthread_mutex_unlock(&s->lock);
}

/* Until something was sent, or one of them may have ended. */
static void wait_for_any(struct shm_sealer *s)
{
	struct pollfd p[1 + SEALS] = {{.fd = s->from, .events = POLLIN}};
	struct timespec look = {.tv_nsec = LOOK_MS * NS_PER_MS};
	bool unseen = false;
	nfds_t n = 1;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < SEALS; i++) {
		const struct seal *l = &s->seals[i];

		if (l->state != SEAL_RUNS)
			continue;
		unseen |= l->pidfd < 0;
		if (l->pidfd >= 0)
			p[n++] = (struct pollfd){.fd = l->pidfd, .events = POLLIN};
	}
	pthread_mutex_unlock(&s->lock);
	(void)syscall(SYS_ppoll, p, n, unseen ? &look : NULL, NULL, 0);
}

static void *sealer_main(void *arg)
{
	struct shm_sealer *s = arg;

	s->rc = own_fds_keep(s->from);
	sem_post(&s->ready);
	if (s->rc < 0)
		return NULL;
	do {
		reap(s);
		wait_for_any(s);
	} while (take(s));
	reap(s);
	/* What it has open goes with it. */
	return NULL;
}

/* ---- made, freed ---- */

static void init_locks(struct shm_sealer *s)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&s->cond, &a);
	pthread_condattr_destroy(&a);
	pthread_mutex_init(&s->lock, NULL);
	sem_init(&s->ready, 0, 0);
}

static void destroy(struct shm_sealer *s)
{
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	sem_destroy(&s->ready);
	free(s);
}

static int start(struct shm_sealer *s)
{
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	s->to = ends[0];
	s->from = ends[1];
	rc = -pthread_create(&s->thread, NULL, sealer_main, s);
	if (rc == 0) {
		pthread_setname_np(s->thread, "sealer");
		while (sem_wait(&s->ready) < 0) /* EINTR */
			;
		rc = s->rc;
		if (rc < 0)
			pthread_join(s->thread, NULL);
	}
	close(ends[1]);
	if (rc < 0)
		close(s->to);
	return rc;
}

int shm_sealer_new(const char *program, struct shm_sealer **ret, struct ros2_err *err)
{
	struct shm_sealer *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory for a thread that has memory sealed");
	s->program = program;
	init_locks(s);
	rc = start(s);
	if (rc < 0) {
		destroy(s);
		return ros2_err_set(err, rc, "cannot start a thread that has memory sealed: %s",
		                    strerror(-rc));
	}
	*ret = s;
	return 0;
}

void shm_sealer_stop(struct shm_sealer *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stopped = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

void shm_sealer_free(struct shm_sealer *s)
{
	if (!s)
		return;
	close(s->to);
	pthread_join(s->thread, NULL);
	destroy(s);
}

/* ---- who has something sealed ---- */

/* Lock held. */
static bool may(const struct shm_sealer *s, const struct ros2_uid *tenant)
{
	uint32_t held = 0, used = 0;

	for (uint32_t i = 0; i < SEALS; i++) {
		used += s->seals[i].left;
		held += s->seals[i].left && ros2_uid_eq(&s->seals[i].tenant, tenant);
	}
	return share_allows(&left_share, held, used) || (DP_SWITCH(no_seals_share) && used < LEFT);
}

bool shm_sealer_may(struct shm_sealer *s, const struct ros2_uid *tenant)
{
	bool r;

	if (!s)
		return true;
	pthread_mutex_lock(&s->lock);
	r = may(s, tenant);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* Lock held. */
static int place(struct shm_sealer *s, const struct ros2_uid *tenant, const void *whose,
                 uint32_t *ret)
{
	uint32_t i = 0;

	if (s->stopped)
		return -ECANCELED;
	while (i < SEALS && s->seals[i].state != SEAL_FREE)
		i++;
	if (i == SEALS || !may(s, tenant))
		return -EDQUOT;
	s->seals[i] =
		(struct seal){.state = SEAL_SENT, .tenant = *tenant, .whose = whose, .pidfd = -1};
	*ret = i;
	return 0;
}

static int send_to_thread(struct shm_sealer *s, uint32_t i, int fd)
{
	struct parcel p;

	parcel_init(&p, i);
	p.control.head.cmsg_level = SOL_SOCKET;
	p.control.head.cmsg_type = SCM_RIGHTS;
	p.control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&p.control.head), &fd, sizeof(fd));
	return sendmsg(s->to, &p.msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Lock held. Nobody waits for it: it is free when it has ended. */
static void leave(struct seal *l)
{
	l->left = true;
	if (l->state == SEAL_RUNS)
		(void)kill(l->pid, SIGKILL);
}

/* Lock held. True: it is over. */
static bool is_over_in(struct shm_sealer *s, const struct seal *l, uint64_t ns)
{
	uint64_t at = clock_monotonic_ns() + ns;
	struct timespec ts = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};
	int rc = 0;

	while (l->state != SEAL_OVER && !l->cancelled && !s->stopped && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&s->cond, &s->lock, &ts);
	return l->state == SEAL_OVER;
}

/* Lock held. A process that a tenant's write holds does not end when it is killed; one that found
 * no time on this machine does. */
static bool was_only_slow(struct shm_sealer *s, struct seal *l)
{
	if (l->state != SEAL_RUNS || l->cancelled || s->stopped)
		return false;
	(void)kill(l->pid, SIGKILL);
	return is_over_in(s, l, KILLED_NS);
}

/* Lock held. */
static int await_end(struct shm_sealer *s, struct seal *l)
{
	if (is_over_in(s, l, SEAL_NS)) {
		l->state = SEAL_FREE;
		return l->rc;
	}
	if (was_only_slow(s, l)) {
		l->state = SEAL_FREE;
		return -EAGAIN;
	}
	leave(l);
	if (l->cancelled || s->stopped)
		return -ECANCELED;
	return l->state == SEAL_SENT ? -EAGAIN : -ETIMEDOUT;
}

int shm_sealer_seal(struct shm_sealer *s, const struct ros2_uid *tenant, const void *whose, int fd)
{
	uint32_t i;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = place(s, tenant, whose, &i);
	if (rc == 0) {
		rc = send_to_thread(s, i, fd);
		if (rc < 0)
			s->seals[i].state = SEAL_FREE;
		else
			rc = await_end(s, &s->seals[i]);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void shm_sealer_cancel(struct shm_sealer *s, const void *whose)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < SEALS; i++)
		if (s->seals[i].state != SEAL_FREE && s->seals[i].whose == whose)
			s->seals[i].cancelled = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

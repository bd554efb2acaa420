/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a tenant's program by LD_PRELOAD: whenever it maps memory that it shares with an
 * agent, and so before it says MAPPED, a thread of it writes there by a system call whose source is
 * a page that is never there (userfaultfd). Then the file $ROS2_HOLD_WRITE is there; where the
 * kernel does not allow that, $ROS2_HOLD_WRITE.not, and nothing is held. The program does not end
 * by itself any more, for the write would end with it: kill it. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096

static void *map(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

struct held {
	int fd;
	void *page;
};

/* A signal would end the wait, and the kernel begin the write anew when the memory was sealed. */
static void *write_held(void *arg)
{
	struct held *w = arg;

	(void)!pwrite(w->fd, w->page, PAGE, 0);
	return NULL;
}

/* Returns true when the kernel waits for the page, with the memory's lock. */
static int hold(struct held *w, int fd)
{
	struct uffdio_register reg = {.range.len = PAGE, .mode = UFFDIO_REGISTER_MODE_MISSING};
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct pollfd p = {.fd = uffd, .events = POLLIN};
	struct uffdio_api api = {.api = UFFD_API};
	sigset_t all, before;
	pthread_t t;
	int rc;

	w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	w->page = map(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)w->page;
	if (uffd < 0 || w->fd < 0 || w->page == MAP_FAILED || ioctl(uffd, UFFDIO_API, &api) ||
	    ioctl(uffd, UFFDIO_REGISTER, &reg))
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&t, NULL, write_held, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return !rc && poll(&p, 1, -1) == 1;
}

static int is_session(int fd)
{
	char self[64], name[64] = "";

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return readlink(self, name, sizeof(name) - 1) > 0 && strstr(name, "memfd:ros2-session");
}

static void say(const char *end)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s%s", getenv("ROS2_HOLD_WRITE"), end);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static unsigned n_held;

__attribute__((destructor)) static void stay(void)
{
	while (n_held)
		pause();
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	static struct held all[8];
	unsigned i;

	if (fd >= 0 && (flags & MAP_SHARED) && getenv("ROS2_HOLD_WRITE") && is_session(fd)) {
		i = __atomic_fetch_add(&n_held, 1, __ATOMIC_RELAXED);
		say(i < 8 && hold(&all[i], fd) ? "" : ".not");
	}
	return map(at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
	__attribute__((alias("mmap")));

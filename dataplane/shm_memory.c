/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a session over shm; see shm_memory.h. */
#include "dataplane/shm_memory.h"
#include "common/util.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS_MADE   (F_SEAL_SHRINK | F_SEAL_GROW)
#define SEALS_MAPPED (F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3 */
#endif

static int make_fd(void)
{
	int fd = memfd_create("ros2-session", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	return fd < 0 && errno == EINVAL
	               ? memfd_create("ros2-session", MFD_CLOEXEC | MFD_ALLOW_SEALING)
	               : fd;
}

/* Its name in /proc is the only one it has. */
static int watch(const struct shm_memory *m, int inotify_fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", m->fd);
	return inotify_add_watch(inotify_fd, path, IN_DELETE_SELF);
}

/* All of it is mapped then; before Linux 5.14 only where it may be locked. A page in swap would be
 * waited for by a reactor, too; where it may not be locked it may go there. */
static void lock(const struct shm_memory *m)
{
	(void)madvise(m->map, m->bytes, MADV_POPULATE_WRITE);
	(void)mlock(m->map, m->bytes);
}

static int make(struct shm_memory *m, int inotify_fd)
{
	void *p;

	m->fd = make_fd();
	/* First of all: later a page that is missing would be asked for by a reactor, in the middle
	 * of a tenant's request. */
	if (m->fd < 0 || ftruncate(m->fd, (off_t)m->bytes) < 0 ||
	    fallocate(m->fd, 0, 0, (off_t)m->bytes) < 0 ||
	    fcntl(m->fd, F_ADD_SEALS, SEALS_MADE) < 0)
		return -errno;
	m->watch = watch(m, inotify_fd);
	if (m->watch < 0)
		return -errno;
	p = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, m->fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	m->map = p;
	lock(m);
	/* Not in what a crash leaves behind: it is the tenant's. A failure costs only that. */
	(void)madvise(p, m->bytes, MADV_DONTDUMP);
	return 0;
}

int shm_memory_new(uint64_t data_bytes, int inotify_fd, struct shm_memory **ret,
                   struct ros2_err *err)
{
	struct shm_memory *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return ros2_err_set(err, -ENOMEM, "no memory for a session");
	m->fd = -1;
	m->bytes = WIRE_SHM_DATA_OFF + data_bytes;
	list_init(&m->link);
	rc = make(m, inotify_fd);
	if (rc < 0) {
		shm_memory_free(m);
		return ros2_err_set(err, rc,
		                    "cannot make %llu bytes of memory to share with the tenant: %s",
		                    (unsigned long long)data_bytes, strerror(-rc));
	}
	*ret = m;
	return 0;
}

/* Until it was sealed the tenant could punch holes, and a page that is missing is asked for by a
 * reactor: where there is no memory for it that is the end of the process. Its size is its own
 * since it was made (SHRINK, GROW). */
static bool is_all_there(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_blocks * 512 >= st.st_size;
}

static int wanted(void)
{
	return SEALS_MADE | (DP_SWITCH(no_seal) ? 0 : SEALS_MAPPED);
}

int shm_memory_add_seals(int fd)
{
	if (fcntl(fd, F_ADD_SEALS, wanted()) < 0)
		return -errno;
	return is_all_there(fd) ? 0 : -ENODATA;
}

int shm_memory_sealed(struct shm_memory *m)
{
	/* One more is no harm: where vm.memfd_noexec is set each memfd has F_SEAL_EXEC. */
	int want = wanted(), seals = fcntl(m->fd, F_GET_SEALS);

	if (seals < 0 || (seals & want) != want)
		return seals < 0 ? -errno : -EINVAL;
	/* Pages that the tenant took away and put there again are its own cgroup's and nobody has
	 * locked them: a reactor would wait for them as long as the tenant likes. */
	lock(m);
	close(TAKE_FD(m->fd));
	return 0;
}

void shm_memory_unmap(struct shm_memory *m)
{
	if (m->map)
		munmap(TAKE_PTR(m->map), m->bytes);
	if (m->fd >= 0)
		close(TAKE_FD(m->fd));
}

void shm_memory_free(struct shm_memory *m)
{
	if (!m)
		return;
	shm_memory_unmap(m);
	free(m);
}

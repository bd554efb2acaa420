/* SPDX-License-Identifier: Apache-2.0 */
/* See shm_kept.h. */
#include "dataplane/shm_kept.h"
#include "dataplane/dp_priv.h"
#include "dataplane/shm_memory.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define EVENTS_BYTES 4096

static void gone(struct dp *dp, int watch)
{
	struct shm_memory *m;

	/* Few: each has 2 MiB at least, of what a tenant may have. */
	list_for_each (&dp->shm_kept.all, m, link) {
		struct dp_tenant *t;

		if (m->watch != watch)
			continue;
		t = dp_tenant_find(dp, &m->tenant);
		/* One that was removed meanwhile has no account any more. */
		if (t)
			t->shm_bytes -= m->bytes;
		dp->shm_bytes -= m->bytes;
		list_del(&m->link);
		shm_memory_free(m);
		return;
	}
}

/* What was lost because the queue was full stays counted: that takes 8192 ends in one turn. */
void shm_kept_look(struct dp *dp)
{
	union {
		struct inotify_event align;
		char bytes[EVENTS_BYTES];
	} buf;
	const struct inotify_event *ev;
	ssize_t n;

	while ((n = read(dp->shm_kept.fd, buf.bytes, sizeof(buf.bytes))) > 0)
		for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*ev) + ev->len)) {
			ev = (const struct inotify_event *)(const void *)(buf.bytes + at);
			if (ev->mask & IN_DELETE_SELF)
				gone(dp, ev->wd);
		}
}

static void on_events(void *arg, uint32_t revents)
{
	shm_kept_look(arg);
}

int shm_kept_open(struct dp *dp, struct ros2_err *err)
{
	struct shm_kept *k = &dp->shm_kept;
	int rc;

	k->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (k->fd < 0)
		return ros2_err_set(err, -errno, "cannot watch shared memory (inotify): %s",
		                    strerror(errno));
	rc = loop_fd_add(dp->loop, &k->watch, k->fd, EPOLLIN, on_events, dp);
	return rc < 0 ? ros2_err_set(err, rc, "cannot watch shared memory: %s", strerror(-rc)) : 0;
}

void shm_kept_stop(struct dp *dp)
{
	if (dp->shm_kept.watch.loop)
		loop_fd_del(&dp->shm_kept.watch);
}

void shm_kept_close(struct dp *dp)
{
	while (!list_empty(&dp->shm_kept.all)) {
		struct shm_memory *m = list_first(&dp->shm_kept.all, struct shm_memory, link);

		list_del(&m->link);
		shm_memory_free(m);
	}
	if (dp->shm_kept.fd >= 0)
		close(TAKE_FD(dp->shm_kept.fd));
}

void shm_kept_put(struct dp *dp, const struct ros2_uid *tenant, struct shm_memory *m)
{
	m->tenant = *tenant;
	list_add_tail(&dp->shm_kept.all, &m->link);
	shm_memory_unmap(m);
	/* Nobody else has it, usually: it is free at once. */
	shm_kept_look(dp);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See shm_kept.h. */
#include "dataplane/shm_kept.h"
#include "dataplane/dp_priv.h"
#include "dataplane/shm_memory.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define EVENTS_BYTES 4096

/* Nobody has it any more. */
static void uncount(struct dp *dp, struct shm_memory *m)
{
	struct dp_tenant *t = dp_tenant_find(dp, &m->tenant);

	/* One that was removed meanwhile has no account any more. */
	if (t)
		t->shm_bytes -= m->bytes;
	dp->shm_bytes -= m->bytes;
	list_del(&m->link);
	shm_memory_free(m);
}

static void gone(struct dp *dp, int watch)
{
	struct shm_memory *m;

	/* Few: each has 2 MiB at least, of what a tenant may have. */
	list_for_each (&dp->shm_kept.all, m, link) {
		if (m->watch != watch)
			continue;
		uncount(dp, m);
		return;
	}
}

/* ---- ends that were lost: 8192 in one turn, and the kernel's queue is full ---- */

struct watches {
	int *v; /* owned */
	size_t n, cap;
};

static int by_number(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static bool has_watch(const struct watches *w, int watch)
{
	return w->n && bsearch(&watch, w->v, w->n, sizeof(watch), by_number);
}

static int add_watch(struct watches *w, int watch)
{
	if (w->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 256;
		int *v = realloc(w->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		w->v = v;
		w->cap = cap;
	}
	w->v[w->n++] = watch;
	return 0;
}

/* Those that the kernel has: of what is gone it has none. */
static int list_watches(const struct shm_kept *k, struct watches *w)
{
	char path[48], line[512];
	unsigned watch;
	FILE *f;
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", k->fd);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (rc == 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "inotify wd:%x", &watch) == 1)
			rc = add_watch(w, (int)watch);
	if (rc == 0 && ferror(f))
		rc = -EIO;
	fclose(f);
	if (w->n)
		qsort(w->v, w->n, sizeof(*w->v), by_number);
	/* A kernel that lists none there says nothing of any. */
	return rc == 0 && !has_watch(w, k->always) ? -ENODATA : rc;
}

/* What is still there stays counted, and so does all while that cannot be found out: the next look
 * tries again. */
static void find_lost(struct dp *dp)
{
	struct shm_kept *k = &dp->shm_kept;
	struct watches w = {0};
	struct shm_memory *m, *tmp;

	if (list_watches(k, &w) == 0) {
		list_for_each_safe (&k->all, m, tmp, link)
			if (!has_watch(&w, m->watch))
				uncount(dp, m);
		k->lost = false;
	}
	free(w.v);
}

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
			dp->shm_kept.lost |= ev->mask & IN_Q_OVERFLOW && !DP_SWITCH(ends_get_lost);
		}
	if (dp->shm_kept.lost)
		find_lost(dp);
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
	/* Never ends, so it is always listed. */
	k->always = inotify_add_watch(k->fd, "/", IN_DELETE_SELF);
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

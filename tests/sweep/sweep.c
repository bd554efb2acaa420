/* SPDX-License-Identifier: Apache-2.0 */
/* See sweep.h. */
#include "tests/sweep/sweep.h"
#include "tests/await.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int armed; /* an enum sweep_kind, 0 = off */
static _Atomic int error;
static _Atomic uint32_t fail_at, calls;
static _Atomic uint32_t most;
static const char *_Atomic thread;
static _Atomic bool for_good, fired;
static _Thread_local bool held;

/* From call @at to the next that is tried. The first are tried one by one everywhere: they are all
 * of a short sweep. Without a stride of the run none of a test's own counts, either. */
static uint32_t stride_after(uint32_t at)
{
	const char *stride = getenv("ROS2_SWEEP_STRIDE"), *own = getenv("ROS2_SWEEP_STRIDE_OWN");

	if (at < 20 || !stride || atoi(stride) <= 1)
		return 1;
	return own && atoi(own) > 1 ? (uint32_t)atoi(own) : (uint32_t)atoi(stride);
}

bool sweep_next(struct sweep *s)
{
	sweep_off();
	if (s->at > 0 && !sweep_fired()) {
		if (s->persistent)
			return false;
		s->persistent = true;
		s->at = 0;
	} else if (s->at > 0) {
		s->points += s->at > 20 ? stride_after(s->at) : 1;
	}
	s->at += stride_after(s->at);
	sweep_arm(s);
	return true;
}

void sweep_arm(const struct sweep *s)
{
	error = s->error;
	fail_at = s->at;
	for_good = s->persistent;
	most = s->most;
	thread = s->thread;
	calls = 0;
	fired = false;
	armed = (int)s->kind;
}

void sweep_off(void)
{
	armed = 0;
}

bool sweep_fired(void)
{
	return fired;
}

uint32_t sweep_calls(void)
{
	return calls;
}

static bool is_meant(void)
{
	const char *want = thread;
	char name[16];

	return !want || (pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 &&
	                 strncmp(name, want, strlen(want)) == 0);
}

int sweep_hit(enum sweep_kind kind)
{
	uint32_t n;

	if (armed != (int)kind || held || !is_meant())
		return 0;
	n = atomic_fetch_add(&calls, 1) + 1;
	if (n < fail_at || (n > fail_at && (!for_good || (most && n - fail_at >= most))))
		return 0;
	fired = true;
	return error;
}

void sweep_hold(void)
{
	held = true;
}

void sweep_release(void)
{
	held = false;
}

unsigned sweep_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

bool sweep_fds_back(unsigned before)
{
	AWAIT(sweep_fds() <= before);
	return sweep_fds() <= before;
}

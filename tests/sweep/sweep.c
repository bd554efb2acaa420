/* SPDX-License-Identifier: Apache-2.0 */
/* See sweep.h. */
#include "tests/sweep/sweep.h"
#include "tests/await.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static _Atomic int armed; /* an enum sweep_kind, 0 = off */
static _Atomic int error;
static _Atomic uint32_t fail_at, calls;
static _Atomic uint32_t most;
static const char *_Atomic thread;
static _Atomic bool for_good, fired;
static _Thread_local bool held;

bool sweep_next(struct sweep *s)
{
	sweep_off();
	if (s->at > 0 && !sweep_fired()) {
		if (s->persistent)
			return false;
		s->persistent = true;
		s->at = 0;
	}
	s->points += s->at > 0;
	s->at++;
	error = s->error;
	fail_at = s->at;
	for_good = s->persistent;
	most = s->most;
	thread = s->thread;
	calls = 0;
	fired = false;
	armed = (int)s->kind;
	return true;
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

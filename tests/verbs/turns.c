/* SPDX-License-Identifier: Apache-2.0 */
/* See turns.h. */
#include "tests/verbs/turns.h"
#include <sys/epoll.h>

/* ---- turns ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool held;
	uint32_t n_waiting;
	bool may[TURNS_REACTORS];
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

_Atomic uint32_t turns_most_taken;
_Atomic uint64_t turns_taken[TURNS_SETS];

/* Only reactors wait by epoll_pwait2: the others have no index. */
static __thread int mine = -1;
static __thread uint64_t turns; /* begun */
static _Atomic int next_reactor;

int __wrap_epoll_pwait2(int fd, struct epoll_event *ev, int max, const struct timespec *until,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int fd, struct epoll_event *ev, int max, const struct timespec *until,
                        const sigset_t *mask)
{
	/* poll: one that sleeps is at its next turn soon, where it can be held */
	int ms = until && !until->tv_sec && !until->tv_nsec ? 0 : 2;

	if (mine < 0)
		mine = atomic_fetch_add(&next_reactor, 1) % (int)TURNS_REACTORS;
	turns++;
	pthread_mutex_lock(&gate.lock);
	if (gate.held) {
		gate.n_waiting++;
		pthread_cond_broadcast(&gate.cond);
		while (gate.held && !gate.may[mine])
			pthread_cond_wait(&gate.cond, &gate.lock);
		gate.may[mine] = false;
		gate.n_waiting--;
		ms = 0;
	}
	pthread_mutex_unlock(&gate.lock);
	return epoll_wait(fd, ev, max, ms);
}

int __real_fabric_set_poll(struct fabric_set *s, struct fabric_completion *out, uint32_t max);
int __wrap_fabric_set_poll(struct fabric_set *s, struct fabric_completion *out, uint32_t max);
int __wrap_fabric_set_poll(struct fabric_set *s, struct fabric_completion *out, uint32_t max)
{
	static __thread struct fabric_set *last;
	static __thread uint32_t run;
	static __thread uint64_t in_turn;
	int n = __real_fabric_set_poll(s, out, max);

	if (mine < 0 || n <= 0)
		return n;
	run = last == s && in_turn == turns ? run + (uint32_t)n : (uint32_t)n;
	last = s;
	in_turn = turns;
	if (run > turns_most_taken)
		turns_most_taken = run;
	turns_taken[(uint32_t)fabric_set_cookie(s) % TURNS_SETS] += (uint32_t)n;
	return n;
}

static void nothing(void *arg)
{
}

static void all_stand(struct fx *fx)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.n_waiting < TURNS_REACTORS)
		pthread_cond_wait(&gate.cond, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	assert_int_equal(loop_call(fx->loop, nothing, NULL), 0);
}

void turns_hold(struct fx *fx)
{
	pthread_mutex_lock(&gate.lock);
	gate.held = true;
	pthread_mutex_unlock(&gate.lock);
	all_stand(fx);
}

void turns_go_on(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.held = false;
	pthread_cond_broadcast(&gate.cond);
	pthread_mutex_unlock(&gate.lock);
}

void turns_step(struct fx *fx)
{
	pthread_mutex_lock(&gate.lock);
	for (uint32_t i = 0; i < TURNS_REACTORS; i++)
		gate.may[i] = true;
	pthread_cond_broadcast(&gate.cond);
	for (uint32_t i = 0; i < TURNS_REACTORS; i++)
		while (gate.may[i])
			pthread_cond_wait(&gate.cond, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	all_stand(fx);
}

/* ---- time, which stands still or leaps where a test says so ---- */

_Atomic uint64_t turns_still_ns, turns_later_ns;
uint64_t __real_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void)
{
	uint64_t ns = turns_still_ns;

	return ns ? ns : __real_clock_boottime_ns() + turns_later_ns;
}

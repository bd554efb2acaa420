/* SPDX-License-Identifier: Apache-2.0 */
/* See slow.h. */
#include "dataplane/slow.h"
#include "common/util.h"
#include "dataplane/test_switches.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) < 0)
		return 0;
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- what is slow here ---- */

#define ROUNDS 33

static uint64_t measured_ns; /* what a call takes that wakes nobody; 0: not known. Not written
                              * once a reactor runs. */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void measure(void)
{
	uint64_t took_ns[ROUNDS];
	uint8_t byte = 0;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t began_ns = cpu_ns();

		if (send(ends[0], &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ||
		    recv(ends[1], &byte, 1, MSG_DONTWAIT) < 0)
			break;
		took_ns[i] = cpu_ns() - began_ns;
		if (i < ROUNDS - 1)
			continue;
		qsort(took_ns, ROUNDS, sizeof(took_ns[0]), by_value);
		measured_ns = took_ns[ROUNDS / 2];
	}
	close(ends[0]);
	close(ends[1]);
}

void slow_measure(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, measure);
}

uint64_t slow_allowed_ns(uint64_t ns)
{
	return measured_ns > SLOW_MACHINE_NS ? UINT64_MAX : ns;
}

/* ---- calls ---- */

void slow_watch(struct slow *s, uint64_t now_ns)
{
	s->watched_until_ns = clock_add_ns(now_ns, SLOW_WATCH_NS);
}

void slow_begin(struct slow_call *c, const struct slow *s, uint64_t now_ns)
{
	*c = (struct slow_call){now_ns, s->watched_until_ns ? cpu_ns() : 0};
}

static void was_quick(struct slow *s, uint64_t now_ns)
{
	s->in_a_row = 0;
	if (now_ns >= s->watched_until_ns)
		s->watched_until_ns = 0;
}

static void was_slow(struct slow *s, uint64_t ran_ns, uint64_t now_ns)
{
	if (now_ns - s->since_ns >= SLOW_WINDOW_NS) {
		s->since_ns = now_ns;
		s->spent_ns = 0;
	}
	s->in_a_row++;
	s->last_ns = ran_ns;
	s->spent_ns += ran_ns;
	s->owed_ns += ran_ns;
	s->over |= s->in_a_row >= SLOW_IN_A_ROW || s->spent_ns >= SLOW_SHARE_NS;
}

void slow_done(struct slow *s, const struct slow_call *c, uint64_t allowed_ns, uint64_t now_ns)
{
	uint64_t ran_ns;

	if (now_ns - c->began_ns <= allowed_ns || DP_SWITCH(no_slow_end)) {
		was_quick(s, now_ns);
		return;
	}
	slow_watch(s, now_ns);
	if (!c->cpu_ns) /* who knows; of the next it will be known */
		return;
	ran_ns = cpu_ns() - c->cpu_ns;
	if (ran_ns > allowed_ns)
		was_slow(s, ran_ns, now_ns);
	else
		s->in_a_row = 0;
}

void slow_words(const struct slow *s, uint64_t allowed_ns, char *out, size_t max)
{
	snprintf(out, max,
	         "the peer makes the agent's calls slow: expected at most %llu us (fixed) for one, "
	         "found %llu us: how many epoll sets is its socket in? Let few wait on it",
	         (unsigned long long)(allowed_ns / NS_PER_US),
	         (unsigned long long)(s->last_ns / NS_PER_US));
}

/* ---- users ---- */

static struct slow_user *user_of(const struct slow_users *u, const struct host_key *from)
{
	for (uint32_t i = 0; i < u->n; i++)
		if (!memcmp(&u->of[i].from, from, sizeof(*from)))
			return (struct slow_user *)&u->of[i];
	return NULL;
}

static struct slow_user *place_of(struct slow_users *u, const struct host_key *from)
{
	struct slow_user *place = user_of(u, from);

	if (place)
		return place;
	if (u->n < SLOW_USERS) {
		place = &u->of[u->n++];
	} else {
		place = &u->of[0];
		for (uint32_t i = 1; i < SLOW_USERS; i++)
			if (u->of[i].seen_ns < place->seen_ns)
				place = &u->of[i];
	}
	*place = (struct slow_user){.from = *from};
	return place;
}

bool slow_user_pays(struct slow_users *u, const struct host_key *from, struct slow *s)
{
	uint64_t now_ns, owed_ns = s->owed_ns;
	struct slow_user *user;

	if (!owed_ns)
		return false;
	s->owed_ns = 0;
	now_ns = clock_boottime_ns();
	user = place_of(u, from);
	if (!user->seen_ns || now_ns - user->since_ns >= SLOW_PENALTY_NS) {
		user->since_ns = now_ns;
		user->spent_ns = 0;
	}
	user->seen_ns = now_ns;
	user->spent_ns += owed_ns;
	if (user->spent_ns >= SLOW_SHARE_NS)
		slow_user_shun(u, from);
	return user->spent_ns >= SLOW_SHARE_NS;
}

void slow_user_shun(struct slow_users *u, const struct host_key *from)
{
	struct slow_user *user = place_of(u, from);

	user->seen_ns = clock_boottime_ns();
	user->until_ns = clock_add_ns(user->seen_ns, SLOW_PENALTY_NS);
}

bool slow_user_is_shunned(const struct slow_users *u, const struct host_key *from)
{
	const struct slow_user *user = user_of(u, from);

	return user && user->until_ns && clock_boottime_ns() < user->until_ns;
}

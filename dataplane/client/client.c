/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client: one control connection to an agent, its sessions, and one background thread that renews
 * the leases of their regions at a third of their lifetime. The thread touches nothing but keys and
 * deadlines (guarded by session->lock); a lease it could not renew is marked stale and registered
 * anew by the session's own thread.
 */
#include "common/clock.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/verbs.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

#define TICK_MS      1000u /* boottime may jump (suspend): looked at this often */
#define RENEW_RPC_MS 5000u
#define PAUSE_MS     200u /* after a renewal that failed for want of the agent */

struct due {
	uint8_t uid[16];
	uint64_t epoch;
	uint32_t key;
};

/* A region of @s that is due, or the time of the next. */
static bool find_due(struct ros2_session *s, uint64_t now, struct due *ret, uint64_t *ret_next)
{
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->n_regions && !found; i++) {
		struct ros2_region *r = s->regions[i];

		/* Ended: nothing to renew, its next use registers it. So an agent that is gone is
		 * not asked for ever by a program that does nothing. */
		r->stale |= now >= r->deadline_ns;
		if (r->stale)
			continue;
		if (r->renew_at_ns > now) {
			*ret_next = MIN(*ret_next, r->renew_at_ns);
			continue;
		}
		*ret = (struct due){.epoch = s->epoch, .key = r->key};
		memcpy(ret->uid, s->uid, sizeof(ret->uid));
		found = true;
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* It stands at the agent, and counts: one more beside it may be more than the policy allows. */
static bool lease_stands(enum ros2_status st)
{
	return st == ROS2_UNAVAILABLE || st == ROS2_TIMEOUT || st == ROS2_BUSY || st == ROS2_RATE;
}

static void renewed(struct ros2_session *s, const struct due *d, int rc,
                    const struct control_lease *l, enum ros2_status status, uint64_t asked)
{
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->n_regions && s->epoch == d->epoch; i++) {
		struct ros2_region *r = s->regions[i];

		if (r->key != d->key || r->stale)
			continue;
		if (!rc) {
			r->key = l->key;
			r->generation = l->generation;
			r->ttl_ms = l->ttl_ms;
			region_set_times(r, asked);
		} else if (lease_stands(status)) {
			r->renew_at_ns = clock_add_ns(clock_boottime_ns(), PAUSE_MS * NS_PER_MS);
		} else {
			r->stale = true;
		}
	}
	pthread_mutex_unlock(&s->lock);
}

static void renew(struct ros2_client *c, struct ros2_session *s, const struct due *d)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct control_lease l = {0};
	uint64_t asked = clock_boottime_ns();
	int rc = control_renew(c->control, d->uid, d->key, MIN(c->timeout_ms, RENEW_RPC_MS), &l,
	                       &err);

	renewed(s, d, rc, &l, err.status, asked);
}

/* Returns true when it renewed something (the lock was given up meanwhile). */
static bool renew_one(struct ros2_client *c, uint64_t *ret_next)
{
	uint64_t now = clock_boottime_ns();
	struct ros2_session *s;
	struct due d;

	list_for_each (&c->sessions, s, link) {
		if (!find_due(s, now, &d, ret_next))
			continue;
		c->renewing = s;
		pthread_mutex_unlock(&c->lock);
		renew(c, s, &d);
		pthread_mutex_lock(&c->lock);
		c->renewing = NULL;
		pthread_cond_broadcast(&c->idle);
		return true;
	}
	return false;
}

static void *renew_thread(void *arg)
{
	struct ros2_client *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->stopping) {
		uint64_t next = clock_add_ns(clock_boottime_ns(), TICK_MS * NS_PER_MS), pause,
			 until;
		struct timespec ts;

		if (renew_one(c, &next))
			continue;
		pause = next - MIN(next, clock_boottime_ns());
		until = clock_monotonic_ns() + pause;
		ts = (struct timespec){(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
		pthread_cond_timedwait(&c->wake, &c->lock, &ts);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void client_wake(struct ros2_client *c)
{
	pthread_mutex_lock(&c->lock);
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

int client_check_own(const struct ros2_client *c, struct ros2_err *err)
{
	if (!client_is_childs(c))
		return 0;
	return ros2_err_named(err, ROS2_BAD_SESSION,
	                      "this process was forked from the one that connected: what that one "
	                      "opened is its own (connect behind the fork)");
}

int client_new(struct control *control, uint32_t timeout_ms, struct ros2_client **ret,
               struct ros2_err *err)
{
	struct ros2_client *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;
	sigset_t all, before;
	int rc;

	if (!c) {
		control->free(control);
		return ros2_err_set(err, -ENOMEM, "no memory for a client");
	}
	c->control = control;
	c->timeout_ms = timeout_ms ? timeout_ms : CONTROL_MS;
	control->timeout_ms = c->timeout_ms;
	c->refs = 1;
	fork_mark_init(&c->mark);
	list_init(&c->sessions);
	list_init(&c->verbs_kept);
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake, &attr);
	pthread_cond_init(&c->idle, &attr);
	pthread_condattr_destroy(&attr);
	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&c->thread, NULL, renew_thread, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		pthread_cond_destroy(&c->wake);
		pthread_cond_destroy(&c->idle);
		pthread_mutex_destroy(&c->lock);
		fork_mark_fini(&c->mark);
		control->free(control);
		free(c);
		return ros2_err_set(err, -rc, "cannot start a thread: %s", strerror(rc));
	}
	*ret = c;
	return 0;
}

static void client_free(struct ros2_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	/* What a device keeps even now it may write to at any time: it is left to it. */
	verbs_ask_again(c);
	c->control->free(c->control);
	pthread_cond_destroy(&c->wake);
	pthread_cond_destroy(&c->idle);
	pthread_mutex_destroy(&c->lock);
	fork_mark_fini(&c->mark);
	free(c);
}

void client_unref(struct ros2_client *c)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = !--c->refs;
	pthread_mutex_unlock(&c->lock);
	if (last)
		client_free(c);
}

void ros2_disconnect(struct ros2_client *c)
{
	if (c && !client_is_childs(c))
		client_unref(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session: its life, and what happens when its connection is lost. The states are in
 * internal_priv.h.
 *
 * A lost connection: 1. ask the agent over gRPC why; a right that was withdrawn ends the session
 * for good and everything fails with that name. 2. Otherwise writes that may have happened end with
 * OUTCOME_UNKNOWN, reads and flushes wait. 3. After a pause the session is ended at the agent, a
 * new one is opened, and what stood on the old one is made again (restore.c). 4. A request that has
 * waited reconnect_ms fails with what the last attempt met; the session goes on trying when it is
 * used again.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/client/verbs.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool status_is_final(enum ros2_status st)
{
	switch (st) {
	case ROS2_REVOKED:
	case ROS2_DENIED:
	case ROS2_VIOLATIONS:
	case ROS2_UNAUTHENTICATED:
	case ROS2_VERSION:
	case ROS2_WRONG_DOMAIN:
		return true;
	default:
		return false;
	}
}

/* ---- opening and closing ---- */

struct ros2_session *session_make(struct ros2_client *c, const struct ros2_session_opts *o)
{
	struct ros2_session *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->client = c;
	s->fd = -1;
	s->depth = o ? o->depth : 0;
	s->transport = o ? o->transport : ROS2_TRANSPORT_AUTO;
	s->over = ROS2_TRANSPORT_TCP;
	s->reconnect_ms = o && o->reconnect_ms ? o->reconnect_ms : RECONNECT_MS;
	/* Beyond this the agent says no, whatever it is. */
	s->shm_bytes = o ? MIN(o->shm_bytes, SHM_BYTES_MAX) : 0;
	s->shm_bytes =
		(s->shm_bytes + WIRE_SHM_DATA_UNIT - 1) / WIRE_SHM_DATA_UNIT * WIRE_SHM_DATA_UNIT;
	s->poll_us = o ? MIN(o->poll_us, POLL_US_MAX) : 0;
	s->backoff_ms = BACKOFF_FIRST_MS;
	list_init(&s->free);
	list_init(&s->prepared);
	list_init(&s->ready);
	list_init(&s->sent);
	list_init(&s->done);
	list_init(&s->done_internal);
	list_init(&s->mounts);
	list_init(&s->link);
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void session_unmake(struct ros2_session *s)
{
	link_close(s);
	tx_free(&s->tx);
	verbs_link_free(s);
	shm_link_free(s);
	regions_free(s);
	free(s->requests);
	pthread_mutex_destroy(&s->lock);
	crypto_wipe(&s->granted, sizeof(s->granted));
	free(s);
}

int ros2_session_open(struct ros2_client *c, const struct ros2_session_opts *o,
                      struct ros2_session **ret, struct ros2_err *err)
{
	struct ros2_session *s;
	int rc = client_check_own(c, err);

	if (rc)
		return rc;
	s = session_make(c, o);
	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory for a session");
	rc = session_open_and_restore(s, err);
	if (rc) {
		session_unmake(s);
		return rc;
	}
	s->depth = s->depth ? MIN(s->depth, WIRE_CREDITS_MAX) : s->credits;
	if (requests_init(s)) {
		rc = ros2_err_set(err, -ENOMEM, "no memory for %u requests", s->depth);
		/* It would count at the agent until the loss of its connection is seen. */
		control_close_session(c->control, s->uid, WHY_MS, NULL);
		session_unmake(s);
		return rc;
	}
	pthread_mutex_lock(&c->lock);
	c->refs++;
	list_add_tail(&c->sessions, &s->link);
	pthread_mutex_unlock(&c->lock);
	*ret = s;
	return 0;
}

/* After this the background thread does not know the session any more. */
static void session_unlist(struct ros2_session *s)
{
	struct ros2_client *c = s->client;

	pthread_mutex_lock(&c->lock);
	while (c->renewing == s)
		pthread_cond_wait(&c->idle, &c->lock);
	list_del(&s->link);
	pthread_mutex_unlock(&c->lock);
}

void ros2_session_close(struct ros2_session *s)
{
	struct ros2_err closed = ROS2_ERR_INIT;
	struct ros2_client *c;
	bool was_up;

	if (!s)
		return;
	c = s->client;
	if (client_is_childs(c)) {
		link_leave(s);
		return;
	}
	was_up = s->state == LINK_UP;
	session_unlist(s);
	ros2_err_named(&closed, ROS2_CLOSED, "the session was closed");
	s->state = LINK_DEAD;
	requests_fail(s, &closed);
	while (!list_empty(&s->mounts))
		ros2_unmount(list_first(&s->mounts, struct ros2_mount, link));
	/* The agent would notice by itself; this only tells it sooner. */
	if (was_up)
		control_close_session(c->control, s->uid, WHY_MS, NULL);
	else
		(void)session_end_lost(s);
	session_unmake(s);
	client_unref(c);
}

void ros2_session_info(const struct ros2_session *s, struct ros2_session_info *ret)
{
	*ret = (struct ros2_session_info){
		.credits = s->credits,
		.max_io = s->max_io,
		.regions_max = s->granted.regions_max,
		.lease_ttl_ms = s->granted.lease_ttl_ms,
		.region_size_min = s->granted.region_size_min,
		.region_size_max = s->granted.region_size_max,
		.region_alignment = s->granted.region_alignment,
		.region_bytes_max = s->granted.region_bytes_max,
		.reconnects = s->reconnects,
		.transport = s->over,
		.copied_bytes = s->copied_bytes,
	};
	snprintf(ret->tenant, sizeof(ret->tenant), "%s", s->granted.tenant);
	memcpy(ret->session_uid, s->granted.uid, sizeof(ret->session_uid));
}

/* ---- loss ---- */

void session_die(struct ros2_session *s, const struct ros2_err *why)
{
	s->state = LINK_DEAD;
	s->why = *why;
	requests_fail(s, why);
}

/* Any call on the session answers with its state; one that asks for attributes is the cheapest.
 * What is asked for is ours on this session, where there is anything: else it would count as a
 * violation of somebody who meant none. */
static void ask_why(struct ros2_session *s, struct ros2_err *ret)
{
	const struct ros2_file *file = NULL, *f;
	const struct ros2_mount *mount = NULL, *m;
	struct ros2_stat st;

	list_for_each (&s->mounts, m, link) {
		if (!m->broken.code)
			mount = m;
		list_for_each (&m->files, f, link)
			if (!f->broken.code)
				file = f;
	}
	if (file)
		control_stat_handle(s->client->control, s->uid, file->handle, WHY_MS, &st, ret);
	else
		control_stat(s->client->control, s->uid, mount ? mount->id : 0, "", WHY_MS, &st,
		             ret);
}

static void note_unflushed(struct ros2_session *s)
{
	struct ros2_mount *m;
	struct ros2_file *f;

	list_for_each (&s->mounts, m, link) {
		list_for_each (&m->files, f, link) {
			f->losses += f->writes_acked > f->writes_flushed;
			f->writes_flushed = f->writes_acked;
		}
	}
}

/* Full jitter over the upper half, so that the sessions of a restarted agent do not come at once.
 */
static void schedule_next_try(struct ros2_session *s)
{
	uint32_t pause = s->backoff_ms / 2 + crypto_random_u32() % (s->backoff_ms / 2 + 1);

	s->next_try_ns = clock_add_ns(clock_monotonic_ns(), pause * NS_PER_MS);
	s->backoff_ms = MIN(s->backoff_ms * 2, BACKOFF_MAX_MS);
}

void session_lost(struct ros2_session *s, const struct ros2_err *how)
{
	/* EFAULT: this program's own memory, see link.c. */
	bool final = status_is_final(how->status) || how->status == ROS2_PROTOCOL ||
	             how->code == -EFAULT;
	bool was_up = s->state == LINK_UP;
	struct ros2_err why = ROS2_ERR_INIT;

	link_cut(s);
	s->state = LINK_DOWN;
	s->why = *how;
	/* A peer that broke the protocol gets no second chance to write into this memory. */
	if (!final)
		ask_why(s, &why);
	if (was_up) {
		memcpy(s->lost_uid, s->uid, sizeof(s->lost_uid));
		s->lost_may_go_on = why.status != ROS2_BAD_SESSION && !CLIENT_SWITCH(no_fence);
	}
	/* DENIED would be about the handle asked for; of the tenant OpenSession says it. */
	if (status_is_final(why.status) && why.status != ROS2_DENIED) {
		session_die(s, &why);
		return;
	}
	if (why.status == ROS2_CONTACT_LOST || why.status == ROS2_GRANT_EXPIRED)
		s->why = why;
	if (final) {
		session_die(s, &s->why);
		return;
	}
	/* First what was answered and waited for its SEND only: it is unflushed, too. */
	requests_link_lost(s);
	if (s->reconnect_ms == UINT32_MAX) {
		session_die(s, &s->why);
		return;
	}
	note_unflushed(s);
	/* An agent that takes every session and drops it at once is not asked again in a loop. */
	if (clock_monotonic_ns() - s->up_since_ns > STABLE_MS * NS_PER_MS)
		s->backoff_ms = BACKOFF_FIRST_MS;
	schedule_next_try(s);
}

void session_drain(struct ros2_session *s, const struct ros2_region *region,
                   const struct ros2_file *file, const struct ros2_err *why)
{
	const uint32_t *users = region ? &region->users : &file->users;
	uint64_t until = clock_add_ns(clock_monotonic_ns(), DRAIN_MS * NS_PER_MS);

	/* Never submitted: nobody will end them. */
	requests_cancel(s, region, file, false, why);
	while (*users && s->state == LINK_UP && clock_monotonic_ns() < until)
		session_step(s, 100, NULL);
	requests_cancel(s, region, file, true, why);
	if (!*users)
		return;
	/* With an agent that does not answer. What else is in flight there is made again, except
	 * writes. */
	session_lost(s, why);
	requests_cancel(s, region, file, true, why);
}

static void try_again(struct ros2_session *s)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (!session_open_and_restore(s, &err)) {
		s->reconnects++;
		return;
	}
	if (status_is_final(err.status)) {
		session_die(s, &err);
		return;
	}
	s->why = err;
	schedule_next_try(s);
}

/* The agent is there and says that there is no right now. It may come back, but nobody knows when:
 * what waits is told at once, what comes later tries again. */
static bool is_refused_now(const struct ros2_session *s)
{
	return s->why.status == ROS2_CONTACT_LOST || s->why.status == ROS2_GRANT_EXPIRED;
}

/* Requests that have waited too long for the agent. */
static void give_up_waiting(struct ros2_session *s)
{
	uint64_t now = clock_monotonic_ns();
	bool refused = is_refused_now(s);
	struct request *r, *tmp;

	list_for_each_safe (&s->ready, r, tmp, link) {
		if (refused || now - r->ready_ns > s->reconnect_ms * NS_PER_MS)
			request_done(s, r, s->why.status ? s->why.status : ROS2_UNAVAILABLE,
			             s->why.code ? s->why.code : -ENOTCONN, s->why.msg);
	}
}

static void step_down(struct ros2_session *s, int timeout_ms)
{
	uint64_t now = clock_monotonic_ns();

	if (now < s->next_try_ns && timeout_ms) {
		uint64_t ms = (s->next_try_ns - now) / NS_PER_MS + 1;
		uint64_t pause = timeout_ms < 0 ? ms : MIN(ms, (uint64_t)timeout_ms);

		/* time: the back-off */
		usleep((useconds_t)(pause * 1000));
		now = clock_monotonic_ns();
	}
	if (now >= s->next_try_ns)
		try_again(s);
	if (s->state == LINK_DOWN)
		give_up_waiting(s);
}

/* ---- working ---- */

static int step_up(struct ros2_session *s, int timeout_ms, struct ros2_err *how)
{
	bool moved;
	int rc = 0;

	/* An agent that went away while nothing was in flight: a write sent after it would be in
	 * doubt for nothing. */
	if (!s->n_sent && !list_empty(&s->ready))
		rc = link_listen(s, how);
	if (rc)
		return rc;
	/* What ended so is there to be taken: nobody sleeps over it. */
	moved = requests_dispatch(s);
	if (s->state != LINK_UP)
		return 0;
	rc = link_progress(s, &moved, how);
	if (rc || moved || !timeout_ms)
		return rc;
	/* Looked at again now and then, for the peer's silence, and for leases that could not be
	 * had. */
	timeout_ms = timeout_ms < 0 ? 1000 : MIN(timeout_ms, 1000);
	timeout_ms = list_empty(&s->ready) ? timeout_ms : MIN(timeout_ms, REGISTER_PAUSE_MS);
	return link_await(s, timeout_ms, &moved, how);
}

int session_step(struct ros2_session *s, int timeout_ms, struct ros2_err *err)
{
	struct ros2_err how = ROS2_ERR_INIT;

	if (s->state == LINK_DOWN)
		step_down(s, timeout_ms);
	else if (s->state == LINK_UP && step_up(s, timeout_ms, &how))
		session_lost(s, &how);
	if (s->state != LINK_DEAD)
		return 0;
	if (err)
		*err = s->why;
	return s->why.code;
}

int session_need_up(struct ros2_session *s, struct ros2_err *err)
{
	uint64_t until = clock_add_ns(clock_monotonic_ns(), s->reconnect_ms * NS_PER_MS);
	bool tried = false;
	int rc = client_check_own(s->client, err);

	while (!rc && s->state != LINK_UP) {
		uint64_t now = clock_monotonic_ns();

		if (s->state == LINK_DOWN && (now >= until || (tried && is_refused_now(s)))) {
			if (err)
				*err = s->why;
			return s->why.code ? s->why.code : -ENOTCONN;
		}
		rc = session_step(s, 1000, err);
		tried = true;
	}
	return rc;
}

/* ---- control calls ---- */

/* The agent said, or can only have meant, that it did not begin. */
static bool was_not_begun(enum ros2_status st)
{
	return st == ROS2_BAD_SESSION || st == ROS2_CLOSED;
}

static bool was_lost(enum ros2_status st)
{
	return st == ROS2_UNAVAILABLE || st == ROS2_TIMEOUT;
}

static int call_once(struct ros2_session *s, bool repeatable, const char *what, session_call_fn fn,
                     void *arg, struct ros2_err *err)
{
	int rc = session_need_up(s, err);

	/* A refused connection must not be taken for a call that was lost on its way. */
	if (!rc && !repeatable)
		rc = s->client->control->wait_ready(s->client->control, s->client->timeout_ms, err);
	if (rc) {
		ros2_err_prefix(err, "%s", what);
		return rc;
	}
	rc = fn(s, arg, err);
	if (rc < 0 && was_lost(err->status) && !repeatable)
		return ros2_err_named(err, ROS2_OUTCOME_UNKNOWN,
		                      "%s: the agent was lost before it answered: it may have "
		                      "happened",
		                      what);
	return rc;
}

int session_call(struct ros2_session *s, bool repeatable, const char *what, session_call_fn fn,
                 void *arg, struct ros2_err *err)
{
	uint64_t until = clock_add_ns(clock_monotonic_ns(), s->reconnect_ms * NS_PER_MS);
	struct ros2_err own = ROS2_ERR_INIT, how;
	int rc = client_check_own(s->client, err);

	if (rc)
		return rc;
	for (;;) {
		own = (struct ros2_err)ROS2_ERR_INIT;
		rc = call_once(s, repeatable, what, fn, arg, &own);
		if (rc >= 0)
			return rc;
		if (!was_not_begun(own.status) && !(repeatable && was_lost(own.status)))
			break;
		if (s->state == LINK_DEAD || s->reconnect_ms == UINT32_MAX ||
		    clock_monotonic_ns() >= until)
			break;
		how = own;
		if (s->state == LINK_UP && was_not_begun(own.status))
			session_lost(s, &how);
		else
			/* time: the back-off */
			usleep(BACKOFF_FIRST_MS * 1000);
	}
	if (err)
		*err = own;
	return rc;
}

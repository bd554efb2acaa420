/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a session at the agent and makes again on it what stood on the one before: mounts, files,
 * regions. A mount, file or region that cannot be had again is marked with its own error and does
 * not stop the rest.
 */
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/client/verbs.h"
#include <string.h>

static void adopt(struct ros2_session *s, const struct control_session *granted)
{
	s->granted = *granted;
	pthread_mutex_lock(&s->lock);
	memcpy(s->uid, granted->uid, sizeof(s->uid));
	s->epoch++;
	for (uint32_t i = 0; i < s->n_regions; i++)
		s->regions[i]->stale = true;
	pthread_mutex_unlock(&s->lock);
}

/* What the agent did nothing for and will do later: nothing is given up for it. */
static bool passes(enum ros2_status st)
{
	return (st == ROS2_RATE || st == ROS2_BUSY) && !CLIENT_SWITCH(no_pacing);
}

/* The link may break again while this goes on: the caller then sees UNAVAILABLE or the like. */
static bool stops_restore(enum ros2_status st)
{
	/* DENIED is said of one mount, file or region. */
	return (status_is_final(st) && st != ROS2_DENIED) || passes(st) || st == ROS2_UNAVAILABLE ||
	       st == ROS2_TIMEOUT || st == ROS2_BAD_SESSION || st == ROS2_CLOSED ||
	       st == ROS2_CONTACT_LOST || st == ROS2_GRANT_EXPIRED || st == ROS2_NO_GRANT;
}

static int restore_files(struct ros2_session *s, struct ros2_mount *m, struct ros2_err *err)
{
	struct ros2_err own = ROS2_ERR_INIT;
	bool mounted = !mount_again(s, m, &own);
	struct ros2_file *f;

	if (!mounted && stops_restore(own.status))
		goto fail;
	m->broken = own;
	list_for_each (&m->files, f, link) {
		struct ros2_err file_err = own;

		if (mounted && !file_open_again(s, f, &file_err))
			continue;
		own = file_err;
		if (mounted && stops_restore(own.status))
			goto fail;
		f->broken = own;
	}
	return 0;
fail:
	if (err)
		*err = own;
	return own.code;
}

static int restore(struct ros2_session *s, struct ros2_err *err)
{
	struct ros2_err own = ROS2_ERR_INIT;
	struct ros2_mount *m;

	list_for_each (&s->mounts, m, link) {
		int rc = restore_files(s, m, err);

		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < s->n_regions; i++) {
		/* One that fails for its own reasons stays stale; its next use names the error. */
		if (s->regions[i]->is_stage)
			continue; /* its first use does it */
		if (!region_register(s, s->regions[i], &own) || !stops_restore(own.status))
			continue;
		if (err)
			*err = own;
		return own.code;
	}
	return 0;
}

bool session_end_lost(struct ros2_session *s)
{
	struct ros2_err own = ROS2_ERR_INIT;

	if (!s->lost_may_go_on)
		return true;
	(void)control_close_session(s->client->control, s->lost_uid, WHY_MS, &own);
	/* An agent that does not know it has begun anew; one that takes rights away ends sessions.
	 */
	s->lost_may_go_on = own.status != ROS2_OK && own.status != ROS2_BAD_SESSION &&
	                    own.status != ROS2_CLOSED && !status_is_final(own.status);
	return !s->lost_may_go_on;
}

/* The agent is there, so it could end the session before, too. One that cannot must not keep the
 * program for ever. */
static int check_lost_ended(struct ros2_session *s, struct ros2_err *err)
{
	if (session_end_lost(s) || ++s->n_unended >= UNENDED_MAX)
		return 0;
	return ros2_err_named(err, ROS2_UNAVAILABLE,
	                      "the agent does not end the session whose connection was lost");
}

/* The wire says of a proof only that no session waits for it. Where the session was ended since
 * OpenSession, by a revocation or with the agent itself, a call on it says so. Nothing is mounted
 * on it yet: of one that stands after all this is DENIED. */
static int why_refused(struct ros2_session *s, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct ros2_stat st;

	control_stat(s->client->control, s->uid, 0, "", WHY_MS, &st, &why);
	if (why.status == ROS2_BAD_SESSION || why.status == ROS2_CLOSED)
		return ros2_err_named(err, ROS2_UNAVAILABLE,
		                      "the session ended at the agent before its connection stood: "
		                      "%s",
		                      why.msg);
	if ((status_is_final(why.status) && why.status != ROS2_DENIED) ||
	    why.status == ROS2_CONTACT_LOST || why.status == ROS2_GRANT_EXPIRED)
		*err = why;
	return err->code;
}

static int open_once(struct ros2_session *s, enum ros2_transport transport, uint64_t shm_bytes,
                     struct ros2_err *err)
{
	struct control_session granted;
	int rc;

	shm_stage_drop(s);
	s->verbs_failed = false;
	/* First: it counts against the tenant's limits. */
	(void)session_end_lost(s);
	rc = control_open_session(s->client->control, transport, shm_bytes, &granted, err);
	if (rc)
		return rc;
	adopt(s, &granted);
	crypto_wipe(granted.secret, sizeof(granted.secret));
	rc = check_lost_ended(s, err);
	if (!rc) {
		rc = link_open(s, CONNECT_MS, err);
		s->verbs_failed = rc && s->over == ROS2_TRANSPORT_VERBS;
		if (rc && err->status == ROS2_UNAUTHENTICATED)
			rc = why_refused(s, err);
	}
	if (!rc)
		rc = restore(s, err);
	if (rc) {
		link_close(s);
		control_close_session(s->client->control, s->uid, WHY_MS, NULL);
		return rc;
	}
	s->state = LINK_UP;
	s->lost_may_go_on = false;
	s->n_unended = 0;
	return 0;
}

/* What the program has of the memory of a lost session counts beside that of the next. */
static bool keeps_shared_memory(const struct ros2_session *s)
{
	for (uint32_t i = 0; i < s->n_regions; i++)
		if (s->regions[i]->arena)
			return true;
	return false;
}

/* Where not all is to be had again because of that, what is left will do: the program's buffers are
 * copied anyway. */
static int open_with_memory(struct ros2_session *s, enum ros2_transport transport,
                            struct ros2_err *err)
{
	int rc = open_once(s, transport, s->shm_bytes, err);

	if (rc && err->status == ROS2_LIMIT && s->shm_bytes && keeps_shared_memory(s)) {
		*err = (struct ros2_err)ROS2_ERR_INIT;
		rc = open_once(s, transport, 0, err);
	}
	return rc;
}

/* AUTO asks for verbs only where it can be had here, and not again after it did not work, unless it
 * was for want of something there. */
static enum ros2_transport wanted(const struct ros2_session *s)
{
	if (s->transport != ROS2_TRANSPORT_AUTO)
		return s->transport;
	return !s->no_verbs && verbs_available() ? ROS2_TRANSPORT_AUTO : ROS2_TRANSPORT_TCP;
}

int session_open_and_restore(struct ros2_session *s, struct ros2_err *err)
{
	enum ros2_transport transport = wanted(s);
	struct ros2_err own = ROS2_ERR_INIT;
	int rc;

	if (transport == ROS2_TRANSPORT_VERBS && !verbs_available())
		return ros2_err_named(err, ROS2_UNSUPPORTED,
		                      "this machine has no RDMA device: a session over verbs was "
		                      "asked for");
	rc = open_with_memory(s, transport, &own);
	/* An agent before verbs does not know the word; and a device may be there that leads
	 * nowhere. Where tcp does not work either the agent has gone, which says nothing of it. */
	if (rc && transport == ROS2_TRANSPORT_AUTO &&
	    (own.status == ROS2_UNSUPPORTED || (s->verbs_failed && !status_is_final(own.status)))) {
		bool is_short = own.status == ROS2_LIMIT || own.status == ROS2_BUSY;

		own = (struct ros2_err)ROS2_ERR_INIT;
		rc = open_once(s, ROS2_TRANSPORT_TCP, 0, &own);
		s->no_verbs = !rc && !is_short;
	}
	if (rc && err)
		*err = own;
	return rc;
}

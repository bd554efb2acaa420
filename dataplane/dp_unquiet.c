/* SPDX-License-Identifier: Apache-2.0 */
/*
 * That targets may still carry out writes of this process is noted durably before a volume is
 * mounted, and for how long by its document; it is taken back when the data plane has ended in
 * order, with nothing left in an engine. A process that finds the note knows that the one before it
 * was killed (or the machine was), and that its own writes must wait. What may not be over when a
 * process ends in order stays noted. docs/decisions/0023-unquiet-targets.md, 0025.
 */
#define LOG_COMPONENT "dataplane"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/log.h"
#include "dataplane/dp_priv.h"
#include <errno.h>
#include <stdio.h>

/* What a note counts as at least, where nobody knows more: it is empty, as older agents made it, or
 * cannot be read. */
#define UNQUIET_MIN_MS 300000u

static void read_note(struct dp *dp)
{
	const struct unquiet_times doubt = {.quiesce_ms = UNQUIET_MIN_MS};
	struct ros2_err err = ROS2_ERR_INIT;
	void *text = NULL;
	size_t len = 0;
	int rc = fsx_read_file(dp->unquiet.path, UNQUIET_TEXT, &text, &len, &err);

	if (rc == 0)
		rc = unquiet_parse(text, len, &dp->unquiet.killed, &err);
	free(text);
	if (rc == 0)
		return;
	log_warn("%s: %s: it counts as %u s for every target", dp->unquiet.path, err.msg,
	         UNQUIET_MIN_MS / 1000);
	dp->unquiet.killed.n = 0;
	unquiet_add(&dp->unquiet.killed, UNQUIET_OTHERS, &doubt);
}

int dp_unquiet_open(struct dp *dp, struct ros2_err *err)
{
	int n;

	pthread_mutex_init(&dp->unquiet.lock, NULL);
	if (!dp->opts.state_dir)
		return 0;
	n = snprintf(dp->unquiet.path, sizeof(dp->unquiet.path), "%s/unquiet-targets",
	             dp->opts.state_dir);
	if (n < 0 || (size_t)n >= sizeof(dp->unquiet.path))
		return ros2_err_set(err, -ENAMETOOLONG, "state directory: the name is too long");
	/* In doubt it is there. */
	if (access(dp->unquiet.path, F_OK) < 0 && errno == ENOENT)
		return 0;
	dp->unquiet.there = true;
	dp->unquiet.since_ns = clock_boottime_ns();
	read_note(dp);
	log_warn("the agent did not end in order: writes to NVMe-oF volumes wait until its old "
	         "controllers cannot be carrying out any");
	return 0;
}

void dp_unquiet_tell(const struct dp *dp, const struct nvmf_config *c, struct engine_config *ret)
{
	const struct unquiet_times t = unquiet_find(&dp->unquiet.killed, c->subsystem);

	ret->unquiet_since_ns = dp->unquiet.since_ns;
	ret->unquiet_keep_alive_ms = t.keep_alive_ms;
	ret->unquiet_quiesce_ms = t.quiesce_ms;
}

/* Those times, since the start of this process, are not over for sure. */
static bool lasts(const struct dp *dp, const struct unquiet_times *t)
{
	uint64_t ms = MAX(unquiet_longest_ms(t), UNQUIET_MIN_MS);

	return dp->unquiet.since_ns && clock_boottime_ns() - dp->unquiet.since_ns < ms * NS_PER_MS;
}

static bool any_lasts(const struct dp *dp, const struct unquiet_table *of)
{
	for (uint32_t i = 0; i < of->n; i++)
		if (lasts(dp, &of->v[i].times))
			return true;
	return false;
}

/* What this process mounted, and of the one before what may not be over. Under the lock. */
static int write_note(struct dp *dp, struct ros2_err *err)
{
	const struct unquiet_table *killed = &dp->unquiet.killed;
	AUTO_FREE struct unquiet_table *all = malloc(sizeof(*all));
	AUTO_FREE char *text = malloc(UNQUIET_TEXT);

	if (!all || !text)
		return ros2_err_set(err, -ENOMEM, "no memory to note a target");
	*all = dp->unquiet.own;
	for (uint32_t i = 0; i < killed->n; i++)
		if (lasts(dp, &killed->v[i].times))
			unquiet_add(all, killed->v[i].subsystem, &killed->v[i].times);
	/* Whatever came of it: it may be there. */
	dp->unquiet.there = true;
	return fsx_write_atomic(dp->unquiet.path, text, unquiet_format(all, text), 0600, err);
}

int dp_unquiet_note(struct dp *dp, const struct nvmf_config *c, struct ros2_err *err)
{
	const struct unquiet_times t = {.keep_alive_ms = c->quiesce_ms ? 0 : c->keep_alive_ms,
	                                .quiesce_ms = c->quiesce_ms};
	int rc = 0;

	pthread_mutex_lock(&dp->unquiet.lock);
	if (unquiet_add(&dp->unquiet.own, c->subsystem, &t))
		dp->unquiet.noted = false;
	if (dp->unquiet.path[0] && !dp->unquiet.noted) {
		rc = write_note(dp, err);
		dp->unquiet.noted = rc == 0;
	}
	pthread_mutex_unlock(&dp->unquiet.lock);
	return rc;
}

void dp_unquiet_close(struct dp *dp, bool in_order)
{
	const struct unquiet_times least = {0};

	/* What an earlier process left may not be over. A document of now counts, too: it may be
	 * that somebody has found out that the target takes longer. */
	if (lasts(dp, &least) || any_lasts(dp, &dp->unquiet.killed) ||
	    any_lasts(dp, &dp->unquiet.own))
		in_order = false;
	if (in_order && dp->unquiet.there) {
		/* If it stays, the next process waits for nothing. */
		(void)fsx_io->unlink(dp->unquiet.path);
		(void)fsx_sync_dir(dp->opts.state_dir, NULL);
	}
	pthread_mutex_destroy(&dp->unquiet.lock);
}

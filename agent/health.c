/* SPDX-License-Identifier: Apache-2.0 */
/* Turns outcomes of writes, the free space, what waits and lost targets into the conditions. */
#include "agent/health.h"
#include "agent/bundles.h"
#include "agent/service.h"
#include "agent/targets.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#define LOG_COMPONENT "health"
#include "common/log.h"

#define TICK_MS 1000

struct health {
	struct agent *a;
	struct health_condition is[HEALTH_KINDS];
	struct {
		uint64_t failed_ns; /* boottime of the last failure; 0: the last write was good */
		bool no_space;
		char words[160];
	} part[HEALTH_PARTS];
	uint64_t free_bytes, lost, lost_ns;
	struct loop_timer tick;
	bool asking;
	struct writer_job job;
	uint64_t asked_free;
};

const char *health_part_to_str(enum health_part p)
{
	static const char *const names[] = {"snapshot", "contact", "revocations", "spool",
	                                    "reserve"};

	return (size_t)p < ARRAY_SIZE(names) ? names[p] : "?";
}

const char *health_kind_to_str(enum health_kind k)
{
	static const char *const names[] = {"DiskFull",      "StateReadOnly", "RecordsPending",
	                                    "SpoolDropping", "Frozen",        "TargetLost",
	                                    "ReloadFailed"};

	return (size_t)k < ARRAY_SIZE(names) ? names[k] : "?";
}

void health_wrote(struct health *h, enum health_part p, int r, const struct ros2_err *why)
{
	if (!h)
		return;
	h->part[p].failed_ns = r < 0 ? clock_boottime_ns() : 0;
	h->part[p].no_space = r == -ENOSPC || r == -EDQUOT;
	snprintf(h->part[p].words, sizeof(h->part[p].words), "%.159s",
	         r < 0 && why ? why->msg : "");
}

static void set(struct health *h, enum health_kind k, bool is, const char *words)
{
	struct health_condition *c = &h->is[k];

	if (is && !c->is)
		c->since_unix_ns = clock_unix_ns();
	snprintf(c->reason, sizeof(c->reason), "%.255s", is ? words : "");
	utf8_clean(c->reason); /* a beat with half a character would be none */
	if (is == c->is)
		return;
	c->is = is;
	if (is)
		log_warn("%s: %s", health_kind_to_str(k), c->reason);
	else
		log_info("%s is over", health_kind_to_str(k));
}

/* The latest failure that still counts; NULL when there is none. */
static const char *failure(const struct health *h, bool no_space, uint64_t now_ns)
{
	const char *words = NULL;
	uint64_t latest = 0;

	for (size_t i = 0; i < HEALTH_PARTS; i++) {
		uint64_t at = h->part[i].failed_ns;

		if (!at || h->part[i].no_space != no_space || at < latest ||
		    now_ns - at > HEALTH_HOLD_MS * NS_PER_MS)
			continue;
		latest = at;
		words = h->part[i].words;
	}
	return words;
}

static void look(struct health *h)
{
	uint64_t now = clock_boottime_ns(), lost = agent_audit_lost(h->a->audit);
	unsigned pending = revoker_unrecorded(h->a->revoker);
	const char *full = failure(h, true, now), *other = failure(h, false, now);
	const char *frozen = revoker_frozen(h->a->revoker), *bundle;
	char words[256];

	if (h->free_bytes == UINT64_MAX)
		snprintf(words, sizeof(words), "%s", full ? full : "");
	else
		snprintf(words, sizeof(words), "%llu bytes free%s%.200s",
		         (unsigned long long)h->free_bytes, full ? "; " : "", full ? full : "");
	set(h, HEALTH_DISK_FULL, full || h->free_bytes < HEALTH_FREE_MIN, words);
	set(h, HEALTH_STATE_READ_ONLY, other != NULL, other ? other : "");
	snprintf(words, sizeof(words), "%u revocations are carried out, but not on disk", pending);
	set(h, HEALTH_RECORDS_PENDING, pending != 0, words);
	if (lost != h->lost)
		h->lost_ns = now;
	h->lost = lost;
	snprintf(words, sizeof(words), "%llu audit records found no place since the start",
	         (unsigned long long)lost);
	set(h, HEALTH_SPOOL_DROPPING, h->lost_ns && now - h->lost_ns <= HEALTH_HOLD_MS * NS_PER_MS,
	    words);
	set(h, HEALTH_FROZEN, frozen != NULL, frozen ? frozen : "");
	set(h, HEALTH_TARGET_LOST, targets_lost(h->a->dp, words, sizeof(words)) > 0, words);
	bundle = bundles_failed(h->a->bundles);
	set(h, HEALTH_RELOAD_FAILED, bundle != NULL, bundle ? bundle : "");
}

static void ask_work(struct writer_job *j)
{
	struct health *h = container_of(j, struct health, job);
	struct statvfs st;

	h->asked_free = UINT64_MAX;
	if (statvfs(h->a->o.state_dir, &st) == 0)
		h->asked_free = (uint64_t)st.f_bavail * st.f_frsize;
}

static void ask_done(struct writer_job *j)
{
	struct health *h = container_of(j, struct health, job);

	h->asking = false;
	h->free_bytes = h->asked_free;
}

static void on_tick(void *arg)
{
	struct health *h = arg;
	bool good = true;

	revoker_thaw(h->a->revoker);
	revoker_keep_room(h->a->revoker);
	look(h);
	for (size_t i = 0; i < HEALTH_KINDS; i++)
		good &= !h->is[i].is || i == HEALTH_TARGET_LOST || i == HEALTH_RELOAD_FAILED;
	service_set_health(h->a->service, AGENT_HEALTH_DISK, good);
	if (!h->asking && !h->a->ended) {
		h->asking = true;
		writer_submit(h->a->disk_writer, &h->job);
	}
	loop_timer_in_ms(h->a->o.loop, &h->tick, TICK_MS, on_tick, h);
}

const struct health_condition *health_condition(const struct health *h, enum health_kind k)
{
	return &h->is[k];
}

uint64_t health_free_bytes(const struct health *h)
{
	return h->free_bytes;
}

int health_new(struct agent *a, struct health **ret)
{
	struct health *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->a = a;
	h->free_bytes = UINT64_MAX;
	h->job.work = ask_work;
	h->job.done = ask_done;
	loop_timer_in_ms(a->o.loop, &h->tick, 0, on_tick, h);
	*ret = h;
	return 0;
}

void health_free(struct health *h)
{
	if (!h)
		return;
	loop_timer_stop(&h->tick);
	free(h);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot and the contact file. One snapshot write is under way at a time; whoever asks
 * meanwhile shares the next one. What changed is appended; when the file has grown to twice what it
 * has to say, and whenever its end is not known to be good, it is written anew. A full disk is
 * tried again, and the controller told; a failed fsync is fatal. Order on disk: a snapshot of
 * sequence n, then a contact file that names n, so that an older snapshot put back is noticed; and
 * a contact file that names the epoch, before the snapshot that names it is removed.
 */
#include "agent/agent.h"
#include "agent/bundles.h"
#include "agent/health.h"
#include "agent/snapshot.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_COMPONENT "agent"
#include "common/log.h"

#define RETRY_MS         1000
#define GARBAGE_MIN      (1024u * 1024u)
#define CONTACT_PAUSE_MS 250

struct waiter {
	struct list link;
	loop_fn fn;
	void *arg;
};

struct persist {
	struct agent *a;
	struct list waiting, writing; /* waiter, owned */
	bool wanted;
	struct loop_timer retry;

	bool busy;
	struct writer_job job;
	uint64_t number;
	struct agent_epoch epoch; /* of the snapshot that is being written */
	void *bytes;              /* owned; NULL: nothing is to be written */
	size_t len;
	bool whole; /* the file is written anew */
	/* the writer's while busy: the file that is appended to, -1 when none is */
	int fd;
	uint64_t size; /* of the file, all of it good */
	char path[PATH_MAX];
	int r;
	struct ros2_err err;

	bool contact_busy, contact_wanted;
	unsigned doubts; /* persist_doubt: not on disk */
	struct writer_job contact_job;
	pthread_mutex_t contact_lock; /* of the file, and of ends */
	bool ends;                    /* no stamp is written any more */
	uint64_t sequence_on_disk;
	uint8_t contact_bytes[CONTACT_FILE_LEN];
	char contact_path[PATH_MAX];
	int contact_r;
	struct ros2_err contact_err;
	struct loop_timer contact_pause;
	struct { /* the stamp is taken out */
		struct writer_job job;
		bool busy, again;
		bool done; /* it is out, and stays out while there are doubts */
		uint8_t with[CONTACT_FILE_LEN];
		int r;
		struct ros2_err err;
	} unstamp;
};

static void start(struct persist *p);

static void close_file(struct persist *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

/* The file ends where it ended before, or nobody knows where it ends: -EIO. */
static int append(struct persist *p)
{
	int r = fsx_write_all(p->fd, p->bytes, p->len);

	if (r < 0 && fsx_io->ftruncate(p->fd, (off_t)p->size) < 0)
		return ros2_err_set(&p->err, -EIO, "truncate %s: %s", p->path,
		                    strerrordesc_np(errno));
	if (r < 0)
		return ros2_err_set(&p->err, r, "write %s: %s", p->path, strerrordesc_np(-r));
	if (fsx_io->fsync(p->fd) < 0)
		return ros2_err_set(&p->err, -EIO, "fsync %s: %s", p->path, strerrordesc_np(errno));
	p->size += p->len;
	return 0;
}

static int write_whole(struct persist *p)
{
	int r = fsx_write_atomic(p->path, p->bytes, p->len, 0600, &p->err);

	/* Also when it failed: what was open may not have its name any more. */
	close_file(p);
	if (r < 0)
		return r;
	/* Without it the next one is written whole, too. */
	p->fd = fsx_io->open(p->path, O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	p->size = p->len;
	return 0;
}

static void work(struct writer_job *j)
{
	struct persist *p = container_of(j, struct persist, job);

	p->err = (struct ros2_err)ROS2_ERR_INIT;
	p->r = !p->bytes ? 0 : p->whole ? write_whole(p) : append(p);
}

static void retry(void *arg)
{
	start(arg);
}

static void run_waiters(struct list *l)
{
	while (!list_empty(l)) {
		struct waiter *w = list_first(l, struct waiter, link);

		list_del(&w->link);
		w->fn(w->arg);
		free(w);
	}
}

static void failed(struct persist *p)
{
	if (p->r == -EIO)
		agent_fatal(p->a, &p->err);
	log_error("snapshot: %s: trying again", p->err.msg);
	health_wrote(p->a->health, HEALTH_SNAPSHOT, p->r, &p->err);
	state_not_stored(p->a->state, &p->err);
	if (state_takes_away(p->a->state))
		persist_doubt(p, DOUBT_DOCUMENT);
	while (!list_empty(&p->writing)) {
		struct waiter *w = list_entry(p->writing.prev, struct waiter, link);

		list_del(&w->link);
		list_add_head(&p->waiting, &w->link);
	}
	p->wanted = true;
	if (!p->a->stopping)
		loop_timer_in_ms(p->a->o.loop, &p->retry, RETRY_MS, retry, p);
}

static void done(struct writer_job *j)
{
	struct persist *p = container_of(j, struct persist, job);
	bool wrote = p->bytes;

	p->busy = false;
	free(TAKE_PTR(p->bytes));
	if (p->r < 0) {
		failed(p);
		return;
	}
	if (wrote) {
		p->sequence_on_disk = p->a->snapshot_sequence;
		p->a->epoch_stored = p->epoch;
		health_wrote(p->a->health, HEALTH_SNAPSHOT, 0, NULL);
	}
	if (p->a->ended) /* the data plane is gone: the next process applies it */
		return;
	/* A receive during the callbacks belongs to the next number. */
	state_stored(p->a->state, p->number, clock_boottime_ns());
	persist_trust(p, DOUBT_DOCUMENT);
	run_waiters(&p->writing);
	if (wrote)
		persist_contact(p, false);
	start(p);
}

static int build_whole(struct persist *p, const struct snapshot_header *h)
{
	const struct agent_object **objs = NULL;
	size_t n;
	int r = state_collect(p->a->state, &objs, &n);

	if (r < 0)
		return ros2_err_set(&p->err, r, "no memory for a snapshot");
	r = snapshot_build(h, objs, n, &p->bytes, &p->len, &p->err);
	free(objs);
	p->whole = true;
	return r;
}

static int build_batch(struct persist *p, const struct snapshot_header *h,
                       const struct state_changes *c)
{
	struct snapshot_gone *gone = calloc(c->n_gone + 1, sizeof(*gone));
	int r;

	if (!gone)
		return ros2_err_set(&p->err, -ENOMEM, "no memory for a snapshot");
	for (size_t i = 0; i < c->n_gone; i++)
		gone[i] =
			(struct snapshot_gone){c->gone[i].kind, c->gone[i].uid, c->gone[i].version};
	r = snapshot_build_batch(h, c->v, c->n, gone, c->n_gone, &p->bytes, &p->len, &p->err);
	free(gone);
	p->whole = false;
	return r;
}

static bool must_be_whole(const struct persist *p)
{
	uint64_t slack = p->a->o.snapshot_slack_bytes;

	return p->fd < 0 ||
	       p->size > (slack ? slack : GARBAGE_MIN) + 2 * state_bytes(p->a->state) ||
	       p->size > SNAPSHOT_MAX;
}

static int build(struct persist *p)
{
	struct agent *a = p->a;
	struct snapshot_header h = {.agent_uid = a->o.identity.agent_uid,
	                            .epoch = a->epoch,
	                            .sequence = a->snapshot_sequence + 1,
	                            .written_unix_ns = clock_unix_ns(),
	                            .last_counter = a->last_counter,
	                            .last_batch = a->last_batch};
	struct state_changes c = {0};
	int r;

	p->err = (struct ros2_err)ROS2_ERR_INIT;
	if (must_be_whole(p) || state_changes(a->state, &c) < 0) {
		r = build_whole(p, &h);
	} else if (!c.n && !c.n_gone && !memcmp(&a->epoch, &a->epoch_stored, sizeof(a->epoch))) {
		state_changes_fini(&c);
		return 0; /* all of it is on disk */
	} else {
		r = build_batch(p, &h, &c);
	}
	state_changes_fini(&c);
	if (!r) {
		a->snapshot_sequence++;
		p->epoch = a->epoch;
	}
	return r;
}

static void start(struct persist *p)
{
	if (p->busy || !p->wanted || p->retry.loop || p->a->ended)
		return;
	p->wanted = false;
	while (!list_empty(&p->waiting)) {
		struct waiter *w = list_first(&p->waiting, struct waiter, link);

		list_del(&w->link);
		list_add_tail(&p->writing, &w->link);
	}
	p->r = build(p);
	if (p->r < 0) {
		failed(p);
		return;
	}
	p->number = state_store_begin(p->a->state);
	p->busy = true;
	writer_submit(p->a->disk_writer, &p->job);
}

int persist_request(struct persist *p, loop_fn fn, void *arg)
{
	struct waiter *w = fn ? calloc(1, sizeof(*w)) : NULL;

	p->wanted = true;
	if (w) {
		w->fn = fn;
		w->arg = arg;
		list_add_tail(&p->waiting, &w->link);
	}
	start(p);
	return fn && !w ? -ENOMEM : 0;
}

uint64_t persist_sequence(const struct persist *p)
{
	return p->sequence_on_disk;
}

bool persist_is_idle(const struct persist *p)
{
	return !p->busy && !p->contact_busy && !p->unstamp.busy && !p->wanted;
}

/* ---- contact ---- */

static void contact_work(struct writer_job *j)
{
	struct persist *p = container_of(j, struct persist, contact_job);

	p->contact_err = (struct ros2_err)ROS2_ERR_INIT;
	pthread_mutex_lock(&p->contact_lock);
	p->contact_r = p->ends ? 0
	                       : fsx_write_atomic(p->contact_path, p->contact_bytes,
	                                          CONTACT_FILE_LEN, 0600, &p->contact_err);
	pthread_mutex_unlock(&p->contact_lock);
}

void persist_contact_unheld(struct persist *p)
{
	if (p->contact_wanted)
		persist_contact(p, false);
}

static void contact_again(void *arg)
{
	persist_contact_unheld(arg);
}

static void contact_done(struct writer_job *j)
{
	struct persist *p = container_of(j, struct persist, contact_job);

	p->contact_busy = false;
	health_wrote(p->a->health, HEALTH_CONTACT, p->contact_r, &p->contact_err);
	if (p->contact_r == -EIO)
		agent_fatal(p->a, &p->contact_err);
	else if (p->contact_r < 0) /* an older stamp stays on disk: a restart is only shorter */
		log_warn("contact file: %s", p->contact_err.msg);
	if (!p->a->stopping)
		loop_timer_in_ms(p->a->o.loop, &p->contact_pause, CONTACT_PAUSE_MS, contact_again,
		                 p);
}

void persist_contact(struct persist *p, bool now)
{
	struct contact_saved s = {.epoch = p->a->epoch, .snapshot_sequence = p->sequence_on_disk};

	p->contact_wanted = true;
	if (p->doubts || bundles_writing(p->a->bundles) || p->contact_busy || p->a->ended ||
	    (p->contact_pause.loop && !now))
		return;
	p->contact_wanted = false;
	memcpy(s.stamp.boot_id, p->a->contact.boot_id, 16);
	s.stamp.boottime_ns = p->a->contact.known ? p->a->contact.last_ns : 0;
	contact_encode(&s, p->contact_bytes);
	p->contact_busy = true;
	writer_submit(p->a->disk_writer, &p->contact_job);
}

/* ---- no contact from the disk ---- */

static void unstamped_contact(const struct persist *p, uint8_t ret[CONTACT_FILE_LEN])
{
	struct contact_saved s = {.epoch = p->a->epoch, .snapshot_sequence = p->sequence_on_disk};

	contact_encode(&s, ret);
}

void persist_distrust(struct persist *p, uint8_t ret[CONTACT_FILE_LEN])
{
	p->doubts |= DOUBT_REVOCATION;
	unstamped_contact(p, ret);
}

int persist_unstamp(const struct persist *p, const uint8_t with[CONTACT_FILE_LEN],
                    struct ros2_err *err)
{
	int fd = fsx_io->open(p->contact_path, O_WRONLY | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : fsx_pwrite_all(fd, with, CONTACT_FILE_LEN, 0);

	if (r == -ENOENT)
		return 0;
	if (!r && fsx_io->fsync(fd) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	if (!r)
		return 0;
	/* A file system that copies on write needs space even for that. */
	if (fsx_io->unlink(p->contact_path) < 0 && errno != ENOENT)
		return ros2_err_set(err, -errno, "unlink %s: %s", p->contact_path,
		                    strerrordesc_np(errno));
	return fsx_sync_dir(p->a->o.state_dir, err);
}

static void unstamp_work(struct writer_job *j)
{
	struct persist *p = container_of(j, struct persist, unstamp.job);

	p->unstamp.err = (struct ros2_err)ROS2_ERR_INIT;
	p->unstamp.r = persist_unstamp(p, p->unstamp.with, &p->unstamp.err);
}

/* Behind what the writer of the contact file has to write there. When that has ended there is no
 * other thread. */
static void unstamp(struct persist *p)
{
	p->unstamp.busy = true;
	p->unstamp.again = false;
	unstamped_contact(p, p->unstamp.with);
	if (!p->a->ended) {
		writer_submit(p->a->disk_writer, &p->unstamp.job);
		return;
	}
	p->unstamp.job.work(&p->unstamp.job);
	p->unstamp.job.done(&p->unstamp.job);
}

static void unstamp_done(struct writer_job *j)
{
	struct persist *p = container_of(j, struct persist, unstamp.job);

	p->unstamp.busy = false;
	if (p->unstamp.r < 0)
		log_error("%s: a restart before the controller answers may give back what was "
		          "taken away",
		          p->unstamp.err.msg);
	/* Since then contact may have been written, and doubted again. */
	if (p->doubts && p->unstamp.again)
		unstamp(p);
	else
		p->unstamp.done = p->doubts && p->unstamp.r == 0;
}

void persist_doubt(struct persist *p, enum persist_doubt which)
{
	p->doubts |= which;
	if (p->unstamp.done || AGENT_SWITCH(contact_kept))
		return;
	if (p->unstamp.busy)
		p->unstamp.again = true;
	else
		unstamp(p);
}

bool persist_is_ahead_of_disk(const struct persist *p)
{
	return !p->unstamp.done && !AGENT_SWITCH(contact_kept) &&
	       (p->doubts || state_takes_away(p->a->state));
}

void persist_end_in_doubt(struct persist *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t with[CONTACT_FILE_LEN];
	int r;

	persist_distrust(p, with);
	pthread_mutex_lock(&p->contact_lock);
	p->ends = true;
	r = persist_unstamp(p, with, &err);
	pthread_mutex_unlock(&p->contact_lock);
	if (r < 0)
		log_error("%s: a restart before the controller answers may give back what was "
		          "revoked",
		          err.msg);
}

void persist_trust(struct persist *p, enum persist_doubt which)
{
	if (!(p->doubts & which))
		return;
	p->doubts &= ~(unsigned)which;
	if (p->doubts)
		return;
	p->unstamp.done = false;
	persist_contact(p, false);
}

/* ---- loading ---- */

struct loading {
	struct agent *a;
	uint32_t refused;
	bool no_memory;
};

static void saw_seal(struct agent *a, uint64_t counter, uint64_t batch)
{
	if (counter < a->last_counter || (counter == a->last_counter && batch <= a->last_batch))
		return;
	a->last_counter = counter;
	a->last_batch = batch;
}

static void on_object(void *arg, struct agent_object *o)
{
	struct loading *l = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	int r;

	saw_seal(l->a, o->epoch.counter, o->batch);
	r = state_receive(l->a->state, o, &err);

	l->no_memory |= r == -ENOMEM;
	if (r < 0) {
		l->refused++;
		log_info("snapshot: %s", err.msg);
	}
}

static void on_drop(void *arg, const struct ros2_err *why)
{
	struct loading *l = arg;
	char uid[ROS2_UID_STR_LEN];
	struct agent_audit_event ev = {.action = "snapshot.drop",
	                               .object_kind = "agent",
	                               .object_name = l->a->o.identity.name,
	                               .object_id = uid,
	                               .result = AGENT_AUDIT_DENIED,
	                               .status = why->status,
	                               .reason = why->msg};

	ros2_uid_to_str(&l->a->o.identity.agent_uid, uid);
	log_warn("snapshot: dropped: %s", why->msg);
	agent_audit_denied(l->a->audit, &ev);
}

static int read_contact(const char *path, struct contact_saved *ret, struct ros2_err *err)
{
	AUTO_FREE void *p = NULL;
	size_t len;
	int r = fsx_read_file(path, 4096, &p, &len, err);

	return r < 0 ? r : contact_decode(p, len, ret, err);
}

/* It was read, and says nothing that can be used. */
static bool is_useless(const struct ros2_err *why)
{
	return why->status == ROS2_CORRUPT || why->status == ROS2_VERSION ||
	       why->status == ROS2_WRONG_DOMAIN || why->status == ROS2_STALE_EPOCH;
}

/* What cannot be read now may be there another time, and has the epoch: a controller of an older
 * one would be believed. */
static int load_contact(struct agent *a, struct contact_saved *ret, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	char path[PATH_MAX];
	int r;

	agent_path(a, "contact", path);
	r = read_contact(path, ret, &why);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && !is_useless(&why)) {
		if (err)
			*err = why;
		return r;
	}
	if (r < 0)
		log_warn("%s: %s: no rights until the controller answers", path, why.msg);
	else if (!contact_restore(&a->contact, ret, clock_boottime_ns()))
		log_info("last contact was in another boot, or what took rights away found no "
		         "room: no rights until the controller answers");
	return 0;
}

static void on_gone(void *arg, const struct snapshot_gone *g)
{
	struct loading *l = arg;

	state_remove(l->a->state, g->kind, &g->uid, g->version);
}

/* A process that was killed, or whose own sync failed, may have left a batch in the page cache
 * only. What is told from here on has to be durable. */
static int open_synced(struct persist *p, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	int r = fsx_write_anew(p->path, &why);

	if (r == -ENOENT)
		return 0;
	if (r < 0) {
		if (err)
			*err = why;
		return r;
	}
	p->fd = fsx_io->open(p->path, O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
	if (p->fd < 0)
		return ros2_err_set(err, -errno, "open %s: %s", p->path, strerrordesc_np(errno));
	p->size = (uint64_t)lseek(p->fd, 0, SEEK_END);
	return 0;
}

int persist_load(struct agent *a, struct ros2_err *err)
{
	struct loading l = {.a = a};
	struct snapshot_reader rd = {
		.on_object = on_object, .on_gone = on_gone, .on_drop = on_drop, .arg = &l};
	struct contact_saved saved = {0};
	struct snapshot_info info = {0};
	struct ros2_err why = ROS2_ERR_INIT;
	char path[PATH_MAX];
	int r;

	r = load_contact(a, &saved, err);
	if (r < 0)
		return r;
	/* Put back together with its contact file, it is older than the log of revocations knows.
	 */
	saved.snapshot_sequence = MAX(saved.snapshot_sequence, revlog_snapshot_sequence(a->revlog));
	a->epoch = a->epoch_stored = saved.epoch;
	agent_path(a, "snapshot", path);
	r = open_synced(a->persist, err);
	if (r < 0)
		return r;
	r = snapshot_load(path, &a->trust, saved.snapshot_sequence, &rd, &info, &why);
	a->snapshot_sequence = saved.snapshot_sequence;
	a->persist->sequence_on_disk = saved.snapshot_sequence;
	if (r < 0 || !info.appendable)
		close_file(a->persist);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && !is_useless(&why)) {
		if (err)
			*err = why;
		return r;
	}
	if (r < 0) {
		on_drop(&l, &why);
		return 0;
	}
	/* Not started is better than with an older version, which may allow more. */
	if (info.no_memory || l.no_memory)
		return ros2_err_set(err, -ENOMEM, "%s: no memory for what is in it", path);
	a->snapshot_sequence = a->persist->sequence_on_disk = info.header.sequence;
	saw_seal(a, info.header.last_counter, info.header.last_batch);
	if (info.header.epoch.counter > a->epoch.counter)
		a->epoch = a->epoch_stored = info.header.epoch;
	state_stored(a->state, state_store_begin(a->state), clock_boottime_ns());
	a->synced = true;
	a->in_doubt = !a->contact.known;
	log_info("snapshot: %u objects, %u dropped, %u under a revocation", info.loaded,
	         info.dropped, l.refused);
	return 0;
}

static void leave_object(void *arg, struct agent_object *o)
{
	agent_object_free(o);
}

static void leave_drop(void *arg, const struct ros2_err *why)
{
}

/* What the snapshot knows of the controller outlives it: otherwise one that was superseded would be
 * believed again. */
static int keep_epoch(struct agent *a, const char *snapshot, struct ros2_err *err)
{
	struct snapshot_reader rd = {.on_object = leave_object, .on_drop = leave_drop};
	struct contact_saved saved = {0};
	struct snapshot_info info = {0};
	struct ros2_err why = ROS2_ERR_INIT;
	uint8_t bytes[CONTACT_FILE_LEN];
	char path[PATH_MAX];
	int r = snapshot_load(snapshot, &a->trust, 0, &rd, &info, &why);

	if (r == -ENOENT || (r < 0 && is_useless(&why)))
		return 0;
	if (r < 0) {
		if (err)
			*err = why;
		return r;
	}
	agent_path(a, "contact", path);
	r = read_contact(path, &saved, &why);
	if (r < 0 && r != -ENOENT && !is_useless(&why)) {
		if (err)
			*err = why;
		return r;
	}
	if (info.header.epoch.counter <= saved.epoch.counter)
		return 0;
	saved.epoch = info.header.epoch;
	saved.snapshot_sequence = MAX(saved.snapshot_sequence, info.header.sequence);
	contact_encode(&saved, bytes);
	return fsx_write_atomic(path, bytes, sizeof(bytes), 0600, err);
}

int persist_forget(struct agent *a, struct ros2_err *err)
{
	char path[PATH_MAX];
	int r;

	agent_path(a, "snapshot", path);
	r = keep_epoch(a, path, err);
	if (r < 0)
		return r;
	if (fsx_io->unlink(path) < 0 && errno != ENOENT)
		return ros2_err_set(err, -errno, "unlink %s: %s", path, strerrordesc_np(errno));
	return fsx_sync_dir(a->o.state_dir, err);
}

int persist_new(struct agent *a, struct persist **ret)
{
	struct persist *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->a = a;
	p->fd = -1;
	pthread_mutex_init(&p->contact_lock, NULL);
	list_init(&p->waiting);
	list_init(&p->writing);
	p->job.work = work;
	p->job.done = done;
	p->contact_job.work = contact_work;
	p->contact_job.done = contact_done;
	p->unstamp.job.work = unstamp_work;
	p->unstamp.job.done = unstamp_done;
	agent_path(a, "snapshot", p->path);
	agent_path(a, "contact", p->contact_path);
	*ret = p;
	return 0;
}

static void drop_waiters(struct list *l)
{
	while (!list_empty(l)) {
		struct waiter *w = list_first(l, struct waiter, link);

		list_del(&w->link);
		free(w->arg);
		free(w);
	}
}

void persist_free(struct persist *p)
{
	if (!p)
		return;
	loop_timer_stop(&p->retry);
	loop_timer_stop(&p->contact_pause);
	drop_waiters(&p->waiting);
	drop_waiters(&p->writing);
	close_file(p);
	pthread_mutex_destroy(&p->contact_lock);
	free(p->bytes);
	free(p);
}

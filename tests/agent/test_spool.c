/* SPDX-License-Identifier: Apache-2.0 */
/* The audit spool and the bounds on recording: nothing acknowledged is lost, nothing unbounded is
 * kept, nobody's flood delays a neighbour. */
#include "agent/audit.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "tests/agent/fixture.h"
#include "tests/agent/step_writer.h"
#include "tests/sweep/sweep.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct env {
	char *dir;
	struct loop *loop;
	struct writer *writer;
	struct spool *spool;
	struct ros2_uid incarnation;
	unsigned durable, failed, fatal;
};

static void on_fatal(void *arg, const struct ros2_err *err)
{
	((struct env *)arg)->fatal++;
}

static void open_spool(struct env *e, uint64_t quota, uint8_t incarnation,
                       struct spool_opened *info)
{
	struct spool_opts o = {.dir = e->dir, .quota_bytes = quota, .on_fatal = on_fatal, .arg = e};

	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &e->loop), 0);
	assert_int_equal(writer_new(e->loop, "w", &e->writer), 0);
	o.loop = e->loop;
	o.writer = e->writer;
	o.incarnation = e->incarnation = fix_uid(incarnation);
	assert_int_equal(spool_open(&o, &e->spool, info, NULL), 0);
}

static void close_spool(struct env *e)
{
	writer_free(e->writer);
	spool_free(e->spool);
	loop_free(e->loop);
}

static int setup(void **state)
{
	struct env *e = calloc(1, sizeof(*e));

	*state = e;
	return testing_dir_setup((void **)&e->dir);
}

static int teardown(void **state)
{
	struct env *e = *state;
	int r = testing_dir_teardown((void **)&e->dir);

	free(e);
	return r;
}

static void done(void *arg, const struct ros2_err *err)
{
	struct env *e = arg;

	if (err)
		e->failed++;
	else
		e->durable++;
}

static int put(struct env *e, enum spool_class c, uint8_t tenant, const char *text)
{
	struct ros2_uid t = tenant ? fix_uid(tenant) : (struct ros2_uid){{0}};

	return spool_put(e->spool, c, &t, text, strlen(text), c == SPOOL_WIDEN ? done : NULL, e,
	                 NULL);
}

static bool view_is(const struct spool_view *v, const char *text)
{
	return v->len == strlen(text) && !memcmp(v->p, text, v->len);
}

static void spool__tells_durable_only_after_the_write(void **state)
{
	struct env *e = *state;
	struct spool_batch b;
	struct spool_opened info;

	open_spool(e, 0, 1, &info);
	assert_int_equal(put(e, SPOOL_WIDEN, 1, "one"), 0);
	assert_int_equal(e->durable, 0);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
	step_writer_run(e->writer);
	assert_int_equal(e->durable, 1);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 1);
	assert_int_equal(b.v[0].seq, 1);
	assert_true(view_is(&b.v[0], "one"));
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
	close_spool(e);
}

static void spool__sends_again_after_a_restart_what_was_not_acknowledged(void **state)
{
	struct env *e = *state;
	struct spool_opened info;
	struct spool_batch b;
	struct ros2_uid first;

	open_spool(e, 0, 1, &info);
	first = e->incarnation;
	for (int i = 0; i < 5; i++) {
		char text[16];

		snprintf(text, sizeof(text), "r%d", i + 1);
		put(e, SPOOL_DENIAL, 1, text);
	}
	step_writer_run(e->writer);
	spool_ack(e->spool, &first, 2);
	assert_int_equal(spool_unacked(e->spool), 3);
	spool_rewind(e->spool);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 3);
	assert_int_equal(b.v[0].seq, 3);
	close_spool(e);

	open_spool(e, 0, 2, &info);
	assert_int_equal(info.records, 5);
	put(e, SPOOL_WIDEN, 1, "new");
	step_writer_run(e->writer);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 5);
	assert_true(ros2_uid_eq(&b.incarnation, &first));
	assert_true(view_is(&b.v[4], "r5"));
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 1);
	assert_true(ros2_uid_eq(&b.incarnation, &e->incarnation));
	assert_int_equal(b.v[0].seq, 1);
	spool_ack(e->spool, &first, 5);
	step_writer_run(e->writer);
	spool_ack(e->spool, &e->incarnation, 1);
	assert_int_equal(spool_unacked(e->spool), 0);
	close_spool(e);
	open_spool(e, 0, 3, &info);
	assert_int_equal(info.records,
	                 1); /* the open segment of 2: the controller knows its seqs */
	close_spool(e);
}

static void spool__gives_seqs_in_turn_over_tenants(void **state)
{
	struct env *e = *state;
	struct spool_opened info;
	struct spool_batch b;

	open_spool(e, 0, 1, &info);
	put(e, SPOOL_DENIAL, 1, "starts the first write");
	for (int i = 0; i < 100; i++)
		put(e, SPOOL_DENIAL, 1, "flood");
	put(e, SPOOL_WIDEN, 2, "neighbour");
	step_writer_run(e->writer);
	assert_int_equal(spool_next(e->spool, 4, 10000, &b), 4);
	assert_true(view_is(&b.v[1], "flood"));
	assert_true(view_is(&b.v[2], "neighbour"));
	close_spool(e);
}

static void spool__keeps_a_tenant_to_its_share_and_the_reserve_for_shrinking(void **state)
{
	struct env *e = *state;
	struct spool_opened info;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid alpha = fix_uid(1), beta = fix_uid(2);
	char text[1001];
	unsigned n = 0, more = 0;

	memset(text, 'x', 1000);
	text[1000] = 0;
	open_spool(e, 64 * 1024, 1, &info);
	while (put(e, SPOOL_DENIAL, 1, text) == 0 && n < 1000)
		n++;
	assert_in_range(n, 12, 15);
	assert_true(spool_room(e->spool, &alpha, &err) < 0);
	assert_int_equal(err.status, ROS2_BUSY);
	assert_int_equal(spool_room(e->spool, &beta, NULL), 0);
	for (uint8_t t = 2; t < 9; t++)
		while (put(e, SPOOL_DENIAL, t, text) == 0)
			;
	/* Denials leave the last quarter to what widens. */
	assert_int_equal(spool_room(e->spool, &(struct ros2_uid){{99}}, NULL), 0);
	for (uint8_t t = 2; t < 9; t++)
		while (put(e, SPOOL_WIDEN, t, text) == 0)
			;
	assert_true(spool_room(e->spool, &(struct ros2_uid){{99}}, &err) < 0);
	assert_int_equal(err.status, ROS2_NOT_DURABLE);
	while (put(e, SPOOL_SHRINK, 1, text) == 0)
		more++;
	assert_true(more >= 7);
	step_writer_run(e->writer);
	spool_ack(e->spool, &e->incarnation, 1000);
	/* All is acknowledged but the open segment stays on disk until it is full. */
	assert_int_equal(spool_unacked(e->spool), 0);
	close_spool(e);
}

static void spool__keeps_each_tenants_first_records_whatever_others_write(void **state)
{
	struct env *e = *state;
	struct spool_opened info;
	char text[1001];

	memset(text, 'x', 1000);
	text[1000] = 0;
	open_spool(e, 1024 * 1024, 1, &info);
	/* Ten that take what they get: the quarter holds the first bytes of sixteen. */
	for (uint8_t t = 1; t <= 10; t++) {
		while (put(e, SPOOL_WIDEN, t, text) == 0)
			;
		while (put(e, SPOOL_DENIAL, t, text) == 0)
			;
	}
	for (uint8_t t = 11; t <= 15; t++)
		for (int i = 0; i < 13; i++)
			assert_int_equal(put(e, SPOOL_WIDEN, t, text), 0);
	close_spool(e);
}

static void spool__deletes_segments_when_all_of_them_is_acknowledged(void **state)
{
	struct env *e = *state;
	struct spool_opened info;
	char text[8001];
	struct dirent *d;
	unsigned files = 0;
	DIR *dir;

	memset(text, 'x', 8000);
	text[8000] = 0;
	open_spool(e, 0, 1, &info);
	for (int i = 0; i < 300; i++) {
		assert_int_equal(put(e, SPOOL_DENIAL, (uint8_t)(1 + i % 3), text), 0);
		step_writer_run(e->writer);
	}
	spool_ack(e->spool, &e->incarnation, 299);
	assert_int_equal(spool_unacked(e->spool), 1);
	step_writer_run(e->writer);
	dir = opendir(e->dir);
	while ((d = readdir(dir)))
		files += d->d_name[0] != '.';
	closedir(dir);
	assert_int_equal(files, 1);
	close_spool(e);
}

static const struct fsx_ops *real;
static int fail_writes, fail_fsyncs;
static ssize_t f_write(int fd, const void *p, size_t n)
{
	if (!fail_writes)
		return real->write(fd, p, n);
	fail_writes--;
	(void)!real->write(fd, p, n / 2);
	errno = ENOSPC;
	return -1;
}
static int f_fsync(int fd)
{
	if (!fail_fsyncs)
		return real->fsync(fd);
	errno = EIO;
	return -1;
}

/* The disk may answer when nobody is there any more who waits for it. */
static void spool__tells_at_its_end_who_waits_for_the_disk(void **state)
{
	struct env *e = *state;
	struct spool_opened info;

	open_spool(e, 0, 1, &info);
	assert_int_equal(put(e, SPOOL_WIDEN, 1, "being written"), 0);
	assert_int_equal(put(e, SPOOL_WIDEN, 1, "behind it"), 0);
	spool_shut(e->spool);
	assert_int_equal(e->failed, 2);
	step_writer_run(e->writer);
	assert_int_equal(e->failed, 2);
	assert_int_equal(e->durable, 0);
	close_spool(e);
	open_spool(e, 0, 2, &info);
	assert_int_equal(info.damaged, 0);
	close_spool(e);
}

static void stop_loop(void *arg)
{
	loop_stop(arg);
}

static void spool__fails_widening_and_keeps_the_rest_when_the_disk_is_full(void **state)
{
	struct env *e = *state;
	struct fsx_ops ops = *fsx_io;
	struct spool_opened info;
	struct spool_batch b;
	struct loop_timer t = {0};

	real = fsx_io;
	ops.write = f_write;
	ops.fsync = f_fsync;
	fsx_io = &ops;
	fail_writes = 2;
	open_spool(e, 0, 1, &info);
	put(e, SPOOL_DENIAL, 1, "denied");
	put(e, SPOOL_WIDEN, 1, "opened");
	put(e, SPOOL_SHRINK, 1, "closed");
	step_writer_run(e->writer);
	/* The first write failed, the rest waits for the next try, a second later. */
	loop_timer_in_ms(e->loop, &t, 1300, stop_loop, e->loop);
	loop_run(e->loop);
	step_writer_run(e->writer);
	assert_int_equal(e->failed, 1);
	assert_int_equal(e->fatal, 0);
	fsx_io = real;
	close_spool(e);
	open_spool(e, 0, 2, &info);
	assert_int_equal(info.damaged, 0);
	assert_true(spool_next(e->spool, 10, 10000, &b) <= 2);
	close_spool(e);
}

/* What is read next is in a segment that is there: a file that could not be begun is none. */
static void spool__goes_on_sending_when_no_new_segment_can_be_begun(void **state)
{
	struct env *e = *state;
	struct fsx_ops ops = *fsx_io;
	struct spool_opened info;
	struct spool_batch b;

	real = fsx_io;
	ops.write = f_write;
	fsx_io = &ops;
	/* First with nothing before it, then after a segment of an earlier start. */
	for (uint8_t start = 1; start <= 2; start++) {
		open_spool(e, 0, start, &info);
		while (spool_next(e->spool, 10, 10000, &b))
			;
		fail_writes = 1;
		assert_int_equal(put(e, SPOOL_WIDEN, 1, "finds no room"), 0);
		/* Asked while the writer is at it, and again when it has failed. */
		assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
		step_writer_run(e->writer);
		assert_int_equal(e->failed, start);
		assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
		close_spool(e);
		open_spool(e, 0, start, &info);
		assert_int_equal(put(e, SPOOL_WIDEN, 1, "finds room"), 0);
		step_writer_run(e->writer);
		while (b.n != 1 || !view_is(&b.v[0], "finds room"))
			assert_true(spool_next(e->spool, 10, 10000, &b) > 0);
		close_spool(e);
	}
	fsx_io = real;
}

static void spool__ends_the_process_when_fsync_fails(void **state)
{
	struct env *e = *state;
	struct fsx_ops ops = *fsx_io;
	struct spool_opened info;

	real = fsx_io;
	ops.write = f_write;
	ops.fsync = f_fsync;
	fsx_io = &ops;
	open_spool(e, 0, 1, &info);
	fail_fsyncs = 1;
	put(e, SPOOL_WIDEN, 1, "opened");
	step_writer_run(e->writer);
	assert_int_equal(e->fatal, 1);
	assert_int_equal(e->failed, 1);
	fail_fsyncs = 0;
	fsx_io = real;
	close_spool(e);
}

static void spool__sends_what_found_no_memory_after_it_was_written(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct env *e = *state;
	struct spool_opened info;
	struct spool_batch b;
	uint8_t incarnation = 1;
	char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	while (sweep_next(&s)) {
		unsigned sent = 0;

		sweep_hold();
		open_spool(e, 0, incarnation++, &info);
		e->durable = 0;
		assert_int_equal(put(e, SPOOL_WIDEN, 1, "first"), 0);
		step_writer_run(e->writer);
		sweep_release();
		for (int i = 0; i < 8; i++)
			put(e, SPOOL_WIDEN, 1, text);
		step_writer_run(e->writer);
		sweep_off();
		while (spool_next(e->spool, 100, 100000, &b) > 0)
			sent += ros2_uid_eq(&b.incarnation, &e->incarnation) ? b.n : 0;
		if (sent != e->durable)
			fail_msg("%u are durable, %u were sent", e->durable, sent);
		close_spool(e);
	}
	assert_true(s.points > 3);
}

static void only_segment(const struct env *e, char path[4200])
{
	char name[300] = "";
	struct dirent *d;
	DIR *dir = opendir(e->dir);

	while ((d = readdir(dir)))
		if (d->d_name[0] == 's')
			snprintf(name, sizeof(name), "%s", d->d_name);
	closedir(dir);
	snprintf(path, 4200, "%s/%s", e->dir, name);
}

/* A record of an earlier start, whose segment is at @path, and one of this. */
static void old_and_new(struct env *e, char path[4200])
{
	struct spool_opened info;

	open_spool(e, 0, 1, &info);
	put(e, SPOOL_DENIAL, 1, "old");
	step_writer_run(e->writer);
	close_spool(e);
	only_segment(e, path);
	open_spool(e, 0, 2, &info);
	put(e, SPOOL_DENIAL, 1, "new");
	step_writer_run(e->writer);
}

/* Somebody removed it: what is missing is counted, and what is behind it is sent. */
static void spool__sends_what_is_behind_a_segment_that_is_gone(void **state)
{
	struct env *e = *state;
	struct spool_batch b;
	char path[4200];

	old_and_new(e, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 1);
	assert_true(view_is(&b.v[0], "new"));
	assert_int_equal(spool_unacked(e->spool), 1);
	assert_int_equal(spool_take_gone(e->spool), 1);
	close_spool(e);
}

/* The disk does not give it now: nothing overtakes it, and nothing is lost. */
static void spool__waits_for_a_segment_that_cannot_be_read_now(void **state)
{
	char path[4200], away[4300];
	struct env *e = *state;
	struct spool_batch b;

	old_and_new(e, path);
	snprintf(away, sizeof(away), "%s.away", path);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rename(away, path), 0);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 1);
	assert_true(view_is(&b.v[0], "old"));
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 1);
	close_spool(e);
}

static void spool__sends_what_is_readable_of_a_damaged_segment(void **state)
{
	struct env *e = *state;
	struct spool_opened info;
	char path[4200];
	size_t n;
	uint8_t *p;

	open_spool(e, 0, 1, &info);
	for (int i = 0; i < 10; i++)
		put(e, SPOOL_DENIAL, 1, "0123456789");
	step_writer_run(e->writer);
	close_spool(e);
	only_segment(e, path);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&p, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		struct spool_batch b;

		p[i] ^= 0x80;
		assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
		p[i] ^= 0x80;
		open_spool(e, 0, 2, &info);
		assert_int_equal(info.damaged, 1);
		assert_int_equal(info.records, i / 34);
		assert_int_equal(spool_next(e->spool, 100, 10000, &b), i / 34);
		close_spool(e);
	}
	free(p);
}

static void bad_name(unsigned serial, char out[100])
{
	struct ros2_uid u = fix_uid(1);
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(&u, uid);
	snprintf(out, 100, "bad-seg-%016x-%s", serial, uid);
}

/* Serials begin again when all was acknowledged: the newest is who was written last. */
static void spool__keeps_of_what_it_cannot_read_the_newest(void **state)
{
	struct env *e = *state;
	unsigned n = SPOOL_BAD_KEPT + 5;
	struct spool_opened info;
	char path[4200], other[4200], name[100];

	testing_path(other, e->dir, "bad-notes");
	assert_int_equal(fsx_write_atomic(other, "?", 1, 0600, NULL), 0);
	for (unsigned i = 1; i <= n; i++) {
		struct timespec at[2] = {{.tv_sec = 1000000 - i}, {.tv_sec = 1000000 - i}};

		bad_name(i, name);
		testing_path(path, e->dir, name);
		assert_int_equal(fsx_write_atomic(path, "rot", 3, 0600, NULL), 0);
		assert_int_equal(utimensat(AT_FDCWD, path, at, 0), 0);
	}
	open_spool(e, 0, 2, &info);
	close_spool(e);
	assert_int_equal(info.removed, 5);
	for (unsigned i = 1; i <= n; i++) {
		bad_name(i, name);
		testing_path(path, e->dir, name);
		assert_int_equal(access(path, F_OK) == 0, i <= SPOOL_BAD_KEPT);
	}
	assert_int_equal(access(other, F_OK), 0);
	open_spool(e, 0, 2, &info);
	close_spool(e);
	assert_int_equal(info.removed, 0);
}

/* ---- bounds ---- */

static void audit__records_the_first_hundred_then_ten_a_second_then_counts(void **state)
{
	struct audit_bound b = {0};
	uint64_t now = 50 * NS_PER_S;
	unsigned passed = 0;

	for (int i = 0; i < 1000; i++)
		passed += audit_bound_pass(&b, 1, now, 1, 2);
	assert_int_equal(passed, 110);
	assert_int_equal(b.held, 890);
	now += NS_PER_S;
	for (int i = 0; i < 50; i++)
		passed += audit_bound_pass(&b, 1, now, 3, 4);
	assert_int_equal(passed, 120);
	assert_int_equal(b.held, 930);
	assert_int_equal(b.first_unix_ns, 1);
	assert_int_equal(b.last_unix_ns, 4);
	assert_false(audit_bound_due(&b, now));
	assert_true(audit_bound_due(&b, 60 * NS_PER_S));
	audit_bound_taken(&b);
	assert_false(audit_bound_due(&b, 100 * NS_PER_S));
}

static uint64_t fake_now;
static uint64_t now_ns(void)
{
	return fake_now;
}

static void audit__bounds_each_tenant_and_kind_by_itself(void **state)
{
	struct env *e = *state;
	struct agent_audit_opts o = {.agent = "dpu-0", .now_ns = now_ns};
	struct agent_audit_event ev = {.action = "lease.violation",
	                               .actor = FIX_ALPHA,
	                               .status = ROS2_OUT_OF_RANGE,
	                               .result = AGENT_AUDIT_DENIED,
	                               .reason = "bad \xff\n text",
	                               .tenant = "alpha"};
	static struct spool_batch b;
	struct spool_opened info;
	struct agent_audit *a;
	Ros2__V1__AuditRecord *r;
	uint32_t n = 0, last = 0, total = 0;

	fake_now = 10 * NS_PER_S;
	open_spool(e, 0, 1, &info);
	o.spool = e->spool;
	o.loop = e->loop;
	assert_int_equal(agent_audit_new(&o, &a), 0);
	ev.tenant_uid = fix_uid(1);
	for (int i = 0; i < 5000; i++)
		agent_audit_denied(a, &ev);
	ev.tenant_uid = fix_uid(2);
	agent_audit_denied(a, &ev);
	step_writer_run(e->writer);
	while ((n = spool_next(e->spool, 512, 1 << 20, &b)))
		total += n;
	assert_int_equal(total, 111);
	fake_now += 11 * NS_PER_S;
	agent_audit_tick(a, false);
	step_writer_run(e->writer);
	last = spool_next(e->spool, 512, 1 << 20, &b);
	assert_int_equal(last, 1);
	r = ros2__v1__audit_record__unpack(NULL, b.v[0].len, b.v[0].p);
	assert_non_null(r);
	assert_int_equal(r->aggregate->count, 4890);
	assert_string_equal(r->reason, "bad ?? text");
	assert_string_equal(r->actor, FIX_ALPHA);
	assert_string_equal(r->status, "OUT_OF_RANGE");
	ros2__v1__audit_record__free_unpacked(r, NULL);
	agent_audit_free(a);
	close_spool(e);
}

/* More tenants than it has entries for. */
static void audit__counts_what_many_share_under_nobodys_name(void **state)
{
	struct env *e = *state;
	struct agent_audit_opts o = {.agent = "dpu-0", .now_ns = now_ns};
	struct agent_audit_event ev = {.action = "file.deny",
	                               .actor = FIX_ALPHA,
	                               .status = ROS2_DENIED,
	                               .result = AGENT_AUDIT_DENIED,
	                               .tenant = "alpha"};
	static struct spool_batch b;
	struct spool_opened info;
	struct agent_audit *a;
	Ros2__V1__AuditRecord *r;
	uint64_t counted = 0;
	uint32_t n;

	fake_now = 10 * NS_PER_S;
	open_spool(e, 64 << 20, 1, &info);
	o.spool = e->spool;
	o.loop = e->loop;
	assert_int_equal(agent_audit_new(&o, &a), 0);
	for (uint32_t i = 0; i < 4096 + 500; i++) {
		memcpy(ev.tenant_uid.b, &(uint32_t){i + 1}, sizeof(i));
		agent_audit_denied(a, &ev);
	}
	fake_now += 11 * NS_PER_S;
	agent_audit_tick(a, false);
	step_writer_run(e->writer);
	while ((n = spool_next(e->spool, 512, 1 << 20, &b)))
		for (uint32_t i = 0; i < n; i++) {
			r = ros2__v1__audit_record__unpack(NULL, b.v[i].len, b.v[i].p);
			assert_non_null(r);
			counted += r->aggregate ? r->aggregate->count : 0;
			assert_string_equal(r->tenant, r->aggregate ? "" : "alpha");
			assert_int_equal(r->tenant_uid[0] == '\0', r->aggregate != NULL);
			ros2__v1__audit_record__free_unpacked(r, NULL);
		}
	assert_int_equal(counted, 500 - 110);
	assert_int_equal(agent_audit_lost(a), 0);
	agent_audit_free(a);
	close_spool(e);
}

static void fill_share(struct env *e, uint8_t tenant)
{
	char text[1001];

	memset(text, 'x', 1000);
	text[1000] = 0;
	while (put(e, SPOOL_DENIAL, tenant, text) == 0)
		;
}

/* Who is only refused gets nothing of the reserve: it is counted until there is room. */
static void audit__counts_what_a_full_share_holds_and_leaves_the_reserve(void **state)
{
	struct env *e = *state;
	struct agent_audit_opts o = {.agent = "dpu-0", .now_ns = now_ns};
	struct agent_audit_event ev = {.action = "file.deny",
	                               .actor = FIX_ALPHA,
	                               .status = ROS2_CONTACT_LOST,
	                               .result = AGENT_AUDIT_DENIED,
	                               .tenant = "alpha",
	                               .tenant_uid = fix_uid(1)};
	static struct spool_batch b;
	struct spool_opened info;
	struct agent_audit *a;
	Ros2__V1__AuditRecord *r;
	uint64_t full;

	fake_now = 10 * NS_PER_S;
	open_spool(e, 64 * 1024, 1, &info);
	o.spool = e->spool;
	o.loop = e->loop;
	assert_int_equal(agent_audit_new(&o, &a), 0);
	fill_share(e, 1);
	for (int i = 0; i < 500; i++)
		agent_audit_denied(a, &ev);
	agent_audit_tick(a, false); /* tells of those that were lost */
	full = spool_bytes(e->spool);
	fake_now += 11 * NS_PER_S;
	agent_audit_tick(a, false);
	assert_int_equal(spool_bytes(e->spool), full);
	step_writer_run(e->writer);
	while (spool_next(e->spool, 512, 1 << 20, &b))
		;
	spool_ack(e->spool, &e->incarnation, 1000);
	agent_audit_tick(a, false);
	step_writer_run(e->writer);
	while (spool_next(e->spool, 1, 1 << 20, &b) && b.v[0].len >= 1000)
		;
	r = ros2__v1__audit_record__unpack(NULL, b.v[0].len, b.v[0].p);
	assert_non_null(r);
	assert_string_equal(r->action, "file.deny");
	assert_int_equal(r->aggregate->count, 390);
	ros2__v1__audit_record__free_unpacked(r, NULL);
	/* At the end there is no later. */
	fill_share(e, 1);
	for (int i = 0; i < 50; i++)
		agent_audit_denied(a, &ev);
	agent_audit_tick(a, false);
	full = spool_bytes(e->spool);
	agent_audit_tick(a, true);
	assert_true(spool_bytes(e->spool) > full);
	agent_audit_free(a);
	close_spool(e);
}

static void audit__tells_of_records_it_had_no_room_for(void **state)
{
	struct env *e = *state;
	struct agent_audit_opts o = {.agent = "dpu-0", .now_ns = now_ns};
	struct agent_audit_event ev = {.action = "session.close", .actor = FIX_ALPHA};
	static struct spool_batch b;
	struct spool_opened info;
	struct agent_audit *a;
	Ros2__V1__AuditRecord *r = NULL;

	open_spool(e, 4096, 1, &info);
	o.spool = e->spool;
	o.loop = e->loop;
	assert_int_equal(agent_audit_new(&o, &a), 0);
	for (int i = 0; i < 500; i++)
		agent_audit_note(a, &ev);
	assert_true(agent_audit_lost(a) > 0);
	step_writer_run(e->writer);
	spool_ack(e->spool, &e->incarnation, 10000);
	agent_audit_tick(a, false);
	step_writer_run(e->writer);
	assert_int_equal(spool_next(e->spool, 512, 1 << 20, &b), 1);
	r = ros2__v1__audit_record__unpack(NULL, b.v[0].len, b.v[0].p);
	assert_string_equal(r->action, "audit.gap");
	assert_int_equal(r->aggregate->count, agent_audit_lost(a));
	ros2__v1__audit_record__free_unpacked(r, NULL);
	agent_audit_free(a);
	close_spool(e);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(spool__tells_durable_only_after_the_write),
		T(spool__sends_again_after_a_restart_what_was_not_acknowledged),
		T(spool__gives_seqs_in_turn_over_tenants),
		T(spool__keeps_a_tenant_to_its_share_and_the_reserve_for_shrinking),
		T(spool__keeps_each_tenants_first_records_whatever_others_write),
		T(spool__deletes_segments_when_all_of_them_is_acknowledged),
		T(spool__fails_widening_and_keeps_the_rest_when_the_disk_is_full),
		T(spool__goes_on_sending_when_no_new_segment_can_be_begun),
		T(spool__tells_at_its_end_who_waits_for_the_disk),
		T(spool__ends_the_process_when_fsync_fails),
		T(spool__sends_what_found_no_memory_after_it_was_written),
		T(spool__sends_what_is_behind_a_segment_that_is_gone),
		T(spool__waits_for_a_segment_that_cannot_be_read_now),
		T(spool__sends_what_is_readable_of_a_damaged_segment),
		T(spool__keeps_of_what_it_cannot_read_the_newest),
		cmocka_unit_test(audit__records_the_first_hundred_then_ten_a_second_then_counts),
		T(audit__bounds_each_tenant_and_kind_by_itself),
		T(audit__counts_what_many_share_under_nobodys_name),
		T(audit__counts_what_a_full_share_holds_and_leaves_the_reserve),
		T(audit__tells_of_records_it_had_no_room_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

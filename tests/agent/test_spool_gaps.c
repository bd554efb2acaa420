/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts of an earlier start that were written and cannot be read. Where more of that start
 * came behind them the controller sees the hole; where nothing did, nobody would, so this agent
 * tells of them, once, when what could be read is acknowledged. An append that a loss of power tore
 * is none: nobody was told of it.
 */
#include "agent/audit.h"
#include "agent/spool_priv.h"
#include "common/fsx.h"
#include "proto/ros2/v1/audit.pb-c.h"
#include "tests/agent/fixture.h"
#include "tests/agent/step_writer.h"
#include "tests/common/disk_fsx.h"
#include <dirent.h>

#define RECORDS 10
#define TEXT    "0123456789"
#define BIG     (SPOOL_SEGMENT_BYTES / SPOOL_RECORD_MAX + 16)
#define FRAME   (SPOOL_FRAME_HEADER_LEN + sizeof(TEXT) - 1)

struct env {
	char *dir;
	struct loop *loop;
	struct writer *writer;
	struct spool *spool;
	struct spool_opened info;
	struct agent_audit *audit; /* of live() */
};

/* Of a disk that is off. */
static void on_fatal(void *arg, const struct ros2_err *err)
{
}

static int try_open(struct env *e, uint8_t start)
{
	struct spool_opts o = {.dir = e->dir, .incarnation = fix_uid(start), .on_fatal = on_fatal};

	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &e->loop), 0);
	assert_int_equal(writer_new(e->loop, "w", &e->writer), 0);
	o.loop = e->loop;
	o.writer = e->writer;
	e->spool = NULL;
	return spool_open(&o, &e->spool, &e->info, NULL);
}

static void open_spool(struct env *e, uint8_t start)
{
	assert_int_equal(try_open(e, start), 0);
}

static void close_spool(struct env *e)
{
	writer_free(e->writer);
	spool_free(e->spool);
	loop_free(e->loop);
}

static void put(struct env *e, const char *text, size_t len)
{
	struct ros2_uid t = fix_uid(1);

	assert_int_equal(spool_put(e->spool, SPOOL_DENIAL, &t, text, len, NULL, NULL, NULL), 0);
}

/* The first in order of names, of those that begin so. Returns how many there are. */
static unsigned files(const struct env *e, const char *prefix, char path[4200])
{
	char name[300] = "";
	struct dirent *d;
	DIR *dir = opendir(e->dir);
	unsigned n = 0;

	while ((d = readdir(dir))) {
		if (strncmp(d->d_name, prefix, strlen(prefix)) != 0)
			continue;
		n++;
		if (!name[0] || strcmp(d->d_name, name) < 0)
			snprintf(name, sizeof(name), "%s", d->d_name);
	}
	closedir(dir);
	snprintf(path, 4200, "%s/%s", e->dir, name);
	return n;
}

static void first_segment(const struct env *e, char path[4200])
{
	(void)files(e, "seg-", path);
}

static int setup(void **state)
{
	struct env *e = calloc(1, sizeof(*e));

	*state = e;
	assert_int_equal(testing_dir_setup((void **)&e->dir), 0);
	open_spool(e, 1);
	for (int i = 0; i < RECORDS; i++)
		put(e, TEXT, strlen(TEXT));
	step_writer_run(e->writer);
	return 0;
}

static int teardown(void **state)
{
	struct env *e = *state;
	int r = testing_dir_teardown((void **)&e->dir);

	free(e);
	return r;
}

static void read_segment(const struct env *e, char path[4200], uint8_t **ret, size_t *ret_n)
{
	first_segment(e, path);
	assert_int_equal(fsx_read_file(path, 4 << 20, (void **)ret, ret_n, NULL), 0);
}

static void flip(const struct env *e, size_t at)
{
	char path[4200];
	uint8_t *p;
	size_t n;

	read_segment(e, path, &p, &n);
	p[at] ^= 1;
	assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
	free(p);
}

static uint64_t hole(const struct env *e)
{
	uint64_t n;

	assert_int_equal(spool_take_gone(e->spool), 0);
	return spool_hole(e->spool, &n) ? n : 0;
}

static void told(struct env *e)
{
	spool_hole_told(e->spool);
	step_writer_run(e->writer);
	assert_int_equal(hole(e), 0);
}

/* All that is to be had of the earlier start, to its end; how many were sent. */
static uint64_t send_and_acknowledge(struct env *e)
{
	static struct spool_batch b;
	struct ros2_uid earlier = fix_uid(1);
	uint64_t n = 0, last = 0;

	while (spool_next(e->spool, SPOOL_BATCH_MAX, 1 << 20, &b)) {
		n += b.n;
		last = b.v[b.n - 1].seq;
	}
	spool_ack(e->spool, &earlier, last);
	step_writer_run(e->writer);
	return n;
}

/* Until they are told all of it comes again; the controller knows what it has of it. */
static void records__that_rotted_at_the_end_of_a_start_are_told_once(void **state)
{
	struct env *e = *state;
	struct spool_batch b;
	char path[4200];

	first_segment(e, path);
	close_spool(e);
	flip(e, 4 * FRAME + SPOOL_FRAME_HEADER_LEN); /* the fifth, which hides those behind it */
	for (uint8_t start = 2; start < 5; start++) {
		open_spool(e, start);
		assert_int_equal(e->info.records, 4);
		assert_int_equal(hole(e), 0);
		if (start > 2) { /* else nobody took them */
			assert_int_equal(send_and_acknowledge(e), 4);
			assert_int_equal(hole(e), RECORDS - 4);
			assert_int_equal(spool_bytes(e->spool), 0);
			assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
		}
		if (start < 4)
			close_spool(e);
	}
	told(e);
	assert_int_equal(access(path, F_OK), -1);
	close_spool(e);
	open_spool(e, 5);
	assert_int_equal(e->info.records, 0);
	assert_int_equal(hole(e), 0);
	close_spool(e);
}

static void records__of_which_no_header_is_left_are_at_least_one(void **state)
{
	struct env *e = *state;

	close_spool(e);
	flip(e, (RECORDS - 1) * FRAME); /* the magic of the last */
	open_spool(e, 2);
	assert_int_equal(send_and_acknowledge(e), RECORDS - 1);
	assert_int_equal(hole(e), 1);
	close_spool(e);
}

/* When they are told. */
static void records__of_a_segment_that_is_set_aside_are_told_once(void **state)
{
	struct env *e = *state;
	char path[4200], bad[4200];

	first_segment(e, path);
	snprintf(bad, sizeof(bad), "%s/bad-%s", e->dir, strrchr(path, '/') + 1);
	close_spool(e);
	flip(e, SPOOL_FRAME_HEADER_LEN);
	for (uint8_t start = 2; start < 4; start++) {
		open_spool(e, start);
		assert_int_equal(e->info.records, 0);
		assert_int_equal(hole(e), RECORDS);
		if (start < 3)
			close_spool(e);
	}
	assert_int_equal(access(path, F_OK), 0);
	told(e);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(bad, F_OK), 0);
	close_spool(e);
	open_spool(e, 4);
	assert_int_equal(hole(e), 0);
	close_spool(e);
}

/* Each is kept for people when it has been told: the newest of them. */
static void segments__that_cannot_be_read_leave_few_files(void **state)
{
	struct env *e = *state;
	char path[4200];

	for (uint8_t start = 2; start < 4 + SPOOL_BAD_KEPT; start++) {
		close_spool(e);
		flip(e, SPOOL_FRAME_HEADER_LEN);
		open_spool(e, start);
		spool_hole_told(e->spool);
		step_writer_run(e->writer);
		put(e, TEXT, strlen(TEXT));
		step_writer_run(e->writer);
	}
	assert_int_equal(files(e, "bad-", path), SPOOL_BAD_KEPT);
	close_spool(e);
}

/* Somebody took the file away before it was sent: with what could be read in it, and what not. */
static void records__that_are_gone_with_their_file_are_told_with_it(void **state)
{
	struct env *e = *state;
	struct spool_batch b;
	char path[4200];

	first_segment(e, path);
	close_spool(e);
	flip(e, 4 * FRAME + SPOOL_FRAME_HEADER_LEN);
	open_spool(e, 2);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(spool_next(e->spool, 10, 10000, &b), 0);
	assert_int_equal(spool_take_gone(e->spool), RECORDS);
	assert_int_equal(hole(e), 0);
	close_spool(e);
}

/* Its seqs say what is missing before it. */
static void records__before_others_of_their_start_are_the_controllers_to_miss(void **state)
{
	static const char big[SPOOL_RECORD_MAX] = "x";
	struct env *e = *state;

	for (unsigned i = 0; i < BIG; i++) /* the last of them are in the next one */
		put(e, big, sizeof(big));
	step_writer_run(e->writer);
	close_spool(e);
	flip(e, 4 * FRAME + SPOOL_FRAME_HEADER_LEN);
	open_spool(e, 2);
	assert_in_range(send_and_acknowledge(e), 4 + 1, 4 + BIG - 1);
	assert_int_equal(hole(e), 0);
	close_spool(e);
}

static void append__that_was_torn_is_no_loss(void **state)
{
	struct env *e = *state;
	char path[4200];
	uint8_t *p;
	size_t n;

	close_spool(e);
	read_segment(e, path, &p, &n);
	assert_int_equal(n, RECORDS * FRAME);
	for (size_t cut = n - FRAME; cut < n; cut++) {
		assert_int_equal(fsx_write_atomic(path, p, cut, 0600, NULL), 0);
		open_spool(e, 2);
		assert_int_equal(send_and_acknowledge(e), RECORDS - 1);
		assert_int_equal(hole(e), 0);
		close_spool(e);
	}
	/* The file grew, and its bytes did not come: of the last, or of its record only. */
	for (int whole = 0; whole < 2; whole++) {
		size_t from = n - FRAME + (whole ? 0 : SPOOL_FRAME_HEADER_LEN);

		memset(p + from, 0, n - from);
		assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
		open_spool(e, 2);
		assert_int_equal(send_and_acknowledge(e), RECORDS - 1);
		assert_int_equal(hole(e), 0);
		close_spool(e);
	}
	free(p);
}

/* ---- the end, at any call, of a start that tells of them ---- */

/* False: the disk is off already. */
static bool begin_audit(struct env *e, uint8_t start)
{
	struct agent_audit_opts o = {.agent = "dpu-0"};

	if (try_open(e, start) < 0) {
		close_spool(e);
		return false;
	}
	o.spool = e->spool;
	o.loop = e->loop;
	o.incarnation = fix_uid(start);
	assert_int_equal(agent_audit_new(&o, &e->audit), 0);
	return true;
}

static void end_audit(struct env *e)
{
	spool_shut(e->spool);
	agent_audit_free(e->audit);
	close_spool(e);
}

/* Some ticks of one that is in contact. */
static void live(struct env *e, uint8_t start)
{
	if (!begin_audit(e, start))
		return;
	send_and_acknowledge(e);
	for (int i = 0; i < 2; i++) {
		agent_audit_tick(e->audit, false);
		step_writer_run(e->writer);
	}
	end_audit(e);
}

/* How many the records say that are to be sent; and of how many starts these are. */
static uint64_t gaps_told(struct env *e)
{
	static struct spool_batch b;
	uint64_t n = 0;

	while (spool_next(e->spool, SPOOL_BATCH_MAX, 1 << 20, &b))
		for (uint32_t i = 0; i < b.n; i++) {
			Ros2__V1__AuditRecord *r =
				ros2__v1__audit_record__unpack(NULL, b.v[i].len, b.v[i].p);

			if (!r) /* a text of setup's */
				continue;
			if (!strcmp(r->action, "audit.gap"))
				n += r->aggregate->count;
			ros2__v1__audit_record__free_unpacked(r, NULL);
		}
	return n;
}

/* The next start, whose controller has heard of nothing yet. */
static uint64_t told_after(struct env *e)
{
	struct ros2_uid earlier = fix_uid(1);
	uint64_t n;

	assert_true(begin_audit(e, 3));
	spool_ack(e->spool, &earlier, RECORDS);
	for (int i = 0; i < 2; i++) {
		agent_audit_tick(e->audit, false);
		step_writer_run(e->writer);
	}
	n = gaps_told(e);
	end_audit(e);
	return n;
}

enum end { KILL, POWER, TORN };

/* Whether it was through before its end. */
static bool ends_at(struct env *e, size_t flipped, enum end how, uint64_t call)
{
	uint64_t n, lost = RECORDS - flipped;
	struct disk *disk;
	bool done;

	close_spool(e);
	flip(e, flipped * FRAME + SPOOL_FRAME_HEADER_LEN);
	disk = disk_new(e->dir);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	disk_arm(disk, call);
	live(e, 2);
	done = !disk_is_off(disk);
	if (how == KILL)
		disk_arm(disk, UINT64_MAX);
	else
		disk_restore(disk, how == POWER ? DISK_LOSE_UNSYNCED : DISK_TEAR, call);
	n = told_after(e);
	if (n < lost || (done && how == KILL && n != lost))
		fail_msg("ended at call %llu (%d): %llu of %llu are told", (unsigned long long)call,
		         how, (unsigned long long)n, (unsigned long long)lost);
	disk_fsx_end();
	disk_free(disk);
	return done;
}

/* They are told once more at the worst: where it ended between the record and the file's end. */
static void records__that_cannot_be_read_are_told_wherever_a_start_ends(void **state)
{
	static const size_t flipped[] = {0, 4}; /* nothing is to be sent, or some */
	struct env *e = *state;

	close_spool(e);
	for (size_t i = 0; i < ARRAY_SIZE(flipped); i++)
		for (enum end how = KILL; how <= TORN; how++) {
			uint64_t call = 0;

			do {
				teardown(state);
				setup(state);
				e = *state;
			} while (!ends_at(e, flipped[i], how, call++));
			assert_true(call > 3);
		}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(records__that_rotted_at_the_end_of_a_start_are_told_once),
		T(records__of_which_no_header_is_left_are_at_least_one),
		T(records__of_a_segment_that_is_set_aside_are_told_once),
		T(segments__that_cannot_be_read_leave_few_files),
		T(records__that_are_gone_with_their_file_are_told_with_it),
		T(records__before_others_of_their_start_are_the_controllers_to_miss),
		T(append__that_was_torn_is_no_loss),
		T(records__that_cannot_be_read_are_told_wherever_a_start_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

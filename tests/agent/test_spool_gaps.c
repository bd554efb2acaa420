/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts of an earlier start that were written and cannot be read. Where more of that start
 * came behind them the controller sees the hole; where nothing did, nobody would, so this agent
 * tells of them, once, when what could be read is acknowledged. An append that a loss of power tore
 * is none: nobody was told of it.
 */
#include "agent/spool_priv.h"
#include "common/fsx.h"
#include "tests/agent/fixture.h"
#include "tests/agent/step_writer.h"
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
};

static void open_spool(struct env *e, uint8_t start)
{
	struct spool_opts o = {.dir = e->dir, .incarnation = fix_uid(start)};

	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &e->loop), 0);
	assert_int_equal(writer_new(e->loop, "w", &e->writer), 0);
	o.loop = e->loop;
	o.writer = e->writer;
	assert_int_equal(spool_open(&o, &e->spool, &e->info, NULL), 0);
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

/* The first in order of names, of those that are segments. */
static void first_segment(const struct env *e, char path[4200])
{
	char name[300] = "";
	struct dirent *d;
	DIR *dir = opendir(e->dir);

	while ((d = readdir(dir)))
		if (!strncmp(d->d_name, "seg-", 4) && (!name[0] || strcmp(d->d_name, name) < 0))
			snprintf(name, sizeof(name), "%s", d->d_name);
	closedir(dir);
	snprintf(path, 4200, "%s/%s", e->dir, name);
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

static void records__that_rotted_at_the_end_of_a_start_are_counted_once(void **state)
{
	struct env *e = *state;

	close_spool(e);
	flip(e, 4 * FRAME + SPOOL_FRAME_HEADER_LEN); /* the fifth, which hides those behind it */
	for (uint8_t start = 2; start < 4; start++) {
		open_spool(e, start);
		assert_int_equal(e->info.records, 4);
		assert_int_equal(spool_take_gone(e->spool), 0);
		if (start < 3)
			close_spool(e); /* nobody took them: they come again */
	}
	assert_int_equal(send_and_acknowledge(e), 4);
	assert_int_equal(spool_take_gone(e->spool), RECORDS - 4);
	assert_int_equal(spool_take_gone(e->spool), 0);
	close_spool(e);
	open_spool(e, 5);
	assert_int_equal(send_and_acknowledge(e), 0);
	assert_int_equal(spool_take_gone(e->spool), 0);
	close_spool(e);
}

static void records__of_which_no_header_is_left_are_at_least_one(void **state)
{
	struct env *e = *state;

	close_spool(e);
	flip(e, (RECORDS - 1) * FRAME); /* the magic of the last */
	open_spool(e, 2);
	assert_int_equal(send_and_acknowledge(e), RECORDS - 1);
	assert_int_equal(spool_take_gone(e->spool), 1);
	close_spool(e);
}

static void records__of_a_segment_that_is_set_aside_are_counted(void **state)
{
	struct env *e = *state;

	close_spool(e);
	flip(e, SPOOL_FRAME_HEADER_LEN);
	open_spool(e, 2);
	assert_int_equal(e->info.records, 0);
	assert_int_equal(spool_take_gone(e->spool), RECORDS);
	close_spool(e);
	open_spool(e, 3);
	assert_int_equal(spool_take_gone(e->spool), 0);
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
	assert_int_equal(spool_take_gone(e->spool), 0);
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
		assert_int_equal(spool_take_gone(e->spool), 0);
		close_spool(e);
	}
	/* The file grew, and its bytes did not come: of the last, or of its record only. */
	for (int whole = 0; whole < 2; whole++) {
		size_t from = n - FRAME + (whole ? 0 : SPOOL_FRAME_HEADER_LEN);

		memset(p + from, 0, n - from);
		assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
		open_spool(e, 2);
		assert_int_equal(send_and_acknowledge(e), RECORDS - 1);
		assert_int_equal(spool_take_gone(e->spool), 0);
		close_spool(e);
	}
	free(p);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(records__that_rotted_at_the_end_of_a_start_are_counted_once),
		T(records__of_which_no_header_is_left_are_at_least_one),
		T(records__of_a_segment_that_is_set_aside_are_counted),
		T(records__before_others_of_their_start_are_the_controllers_to_miss),
		T(append__that_was_torn_is_no_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

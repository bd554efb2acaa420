/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: what every engine does with reads, writes, holes, ends of files and truncation, alone and
 * under load. */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define RW (ENGINE_READ | ENGINE_WRITE)

static uint8_t big[FIXTURE_BUF], back[FIXTURE_BUF];

void engine__reads_back_odd_offsets_and_lengths(void **state)
{
	static const uint64_t offsets[] = {0,     1,     511,   512,     4095,    4096,
	                                   65535, 65536, 65537, 1048575, 1048576, 5000011};
	static const uint32_t lens[] = {1,    7,    511,   512,    513,    4095,
	                                4096, 4097, 65536, 131072, 200001, 1 << 20};
	struct fixture *fx = *state;

	for (size_t o = 0; o < ARRAY_SIZE(offsets); o++) {
		struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE | ENGINE_TRUNCATE);

		for (size_t l = 0; l < ARRAY_SIZE(lens); l++) {
			fx_pattern(big, offsets[o], lens[l], (uint32_t)l);
			assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, offsets[o], big, lens[l]),
			                 lens[l]);
			memset(back, 0x5a, sizeof(back));
			assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, offsets[o], back, lens[l]),
			                 lens[l]);
			assert_memory_equal(back, big, lens[l]);
			if (lens[l] < sizeof(back))
				assert_int_equal(back[lens[l]], 0x5a);
		}
		fx->ops->close(f);
	}
}

void engine__reads_holes_as_zeros(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);

	fx_pattern(big, 3000000, 1000, 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 3000000, big, 1000), 1000);
	for (uint64_t at = 0; at < 3000000; at += 500000) {
		memset(back, 1, 500000);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, at, back, 500000), 500000);
		fx_expect_zeros(back, 500000);
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 2999000, back, 2000), 2000);
	fx_expect_zeros(back, 1000);
	fx_expect_pattern(back + 1000, 3000000, 1000, 1);
	fx->ops->close(f);
}

void engine__reads_short_only_at_the_end(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);

	fx_pattern(big, 0, 10000, 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, 100), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, big, 10000), 10000);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, 65536), 10000);
	fx_expect_pattern(back, 0, 10000, 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 8192, back, 4096), 1808);
	fx_expect_pattern(back, 8192, 1808, 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 9999, back, 4096), 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 10000, back, 4096), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 1 << 30, back, 4096), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 5, back, 0), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 20000, big, 0), 0);
	fx->ops->close(f);
}

void engine__overlapping_writes_leave_the_last(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);

	assert_int_equal(fx->ops->truncate(f, FIXTURE_BUF, NULL), 0);
	/* aligned and unaligned in turns: the direct and the buffered way must agree on every byte
	 */
	for (uint32_t i = 0; i < 40; i++) {
		uint64_t at = i % 2 ? i * 4096 : i * 4096 + 1000 + i;
		uint32_t len = i % 2 ? 65536 : 50001;

		fx_pattern(big + at, at, len, i);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, at, big + at, len), len);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, at & ~4095ull, back, 65536), 65536);
		if (at >= 1000)
			assert_memory_equal(back + (at & 4095), big + at,
			                    MIN(len, 65536 - (at & 4095)));
	}
	fx->ops->close(f);
}

void engine__truncates_and_grows_with_zeros(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr a;

	memset(big, 0xee, 1 << 20);
	for (uint64_t at = 0; at < 3 << 20; at += 1 << 20)
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, at, big, 1 << 20), 1 << 20);
	assert_int_equal(fx->ops->truncate(f, 70001, &err), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, 1 << 20), 70001);
	assert_int_equal(fx->ops->truncate(f, 3 << 20, &err), 0);
	assert_int_equal(fx->ops->fstat(f, &a, &err), 0);
	assert_int_equal(a.size, 3 << 20);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, 1 << 20), 1 << 20);
	assert_memory_equal(back, big, 70001);
	fx_expect_zeros(back + 70001, (1 << 20) - 70001);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 2 << 20, back, 1 << 20), 1 << 20);
	fx_expect_zeros(back, 1 << 20);
	assert_int_equal(fx->ops->truncate(f, 0, &err), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, 4096), 0);
	fx->ops->close(f);
	f = fx_open(fx, "f", ENGINE_READ);
	assert_true(fx->ops->truncate(f, 0, &err) < 0);
	fx->ops->close(f);
}

struct truncator {
	struct fixture *fx;
	struct engine_file *file;
	atomic_bool stop;
	int failures, turns;
};

static void *truncate_again_and_again(void *arg)
{
	struct truncator *t = arg;

	for (; !atomic_load(&t->stop); t->turns++)
		if (t->fx->ops->truncate(t->file, (uint64_t)(t->turns % 5) * 50000, NULL) < 0)
			t->failures++;
	return NULL;
}

struct load {
	struct engine_io io;
	uint8_t buf[70000];
	uint32_t seed, left;
	struct fixture *fx;
	int64_t worst;
};

static void load_next(struct load *l)
{
	l->seed = l->seed * 1664525 + 1013904223;
	l->io.op = l->seed & 0x10000 ? ENGINE_OP_WRITE : ENGINE_OP_READ;
	l->io.offset = (l->seed >> 8) % 300000;
	l->io.len = 1 + (l->seed >> 4) % 70000;
	if (l->io.op == ENGINE_OP_WRITE)
		memset(l->buf, 0xab, l->io.len);
}

static void load_done(struct engine_io *io, int64_t res)
{
	struct load *l = (struct load *)io;

	if (res < 0)
		l->worst = res;
	/* every byte is either written or a hole */
	for (int64_t i = 0; io->op == ENGINE_OP_READ && i < res; i++)
		if (l->buf[i] != 0 && l->buf[i] != 0xab)
			l->worst = -EBADMSG;
	if (--l->left == 0)
		return;
	load_next(l);
	if (l->fx->ops->submit(l->fx->r, &l->io) < 0)
		l->worst = -EAGAIN;
}

void engine__truncates_under_load(void **state)
{
	static struct load loads[8];
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	struct truncator t = {.fx = fx, .file = f};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, truncate_again_and_again, &t), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(loads); i++) {
		loads[i] = (struct load){.seed = i, .left = 150, .fx = fx};
		loads[i].io = (struct engine_io){
			.file = f, .buf = loads[i].buf, .buf_index = -1, .done = load_done};
		load_next(&loads[i]);
		assert_int_equal(fx->ops->submit(fx->r, &loads[i].io), 0);
	}
	while (fx->ops->in_flight(fx->r) > 0) {
		assert_int_equal(fx->ops->kick(fx->r), 0);
		fx->ops->poll(fx->r, 64);
	}
	atomic_store(&t.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(t.failures, 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(loads); i++)
		assert_int_equal(loads[i].worst, 0);
	fx->ops->close(f);
}

static void count_done(struct engine_io *io, int64_t res)
{
	assert_int_equal(res, 512);
	++*(uint32_t *)io->buf;
}

void engine__refuses_more_than_depth(void **state)
{
	static struct engine_io ios[FIXTURE_DEPTH + 1];
	static uint32_t bufs[FIXTURE_DEPTH + 1][128];
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);

	memset(bufs, 0, sizeof(bufs));
	for (uint32_t i = 0; i <= FIXTURE_DEPTH; i++) {
		ios[i] = (struct engine_io){.file = f,
		                            .op = ENGINE_OP_WRITE,
		                            .offset = i * 512,
		                            .len = 512,
		                            .buf = bufs[i],
		                            .buf_index = -1,
		                            .done = count_done};
		assert_int_equal(fx->ops->submit(fx->r, &ios[i]), i < FIXTURE_DEPTH ? 0 : -EAGAIN);
	}
	assert_int_equal(fx->ops->in_flight(fx->r), FIXTURE_DEPTH);
	assert_int_equal(fx->ops->kick(fx->r), 0);
	fx_drain(fx);
	for (uint32_t i = 0; i <= FIXTURE_DEPTH; i++)
		assert_int_equal(bufs[i][0], i < FIXTURE_DEPTH);
	assert_int_equal(fx->ops->poll(fx->r, 8), 0);
	fx->ops->close(f);
}

void engine__flushes(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 1, big, 5000), 5000);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	assert_int_equal(fx->ops->fsync(f, &err), 0);
	fx->ops->close(f);
}

void engine__refuses_offsets_beyond_what_files_hold(void **state)
{
	static const uint64_t offsets[] = {1ull << 63, UINT64_MAX, UINT64_MAX - 4095, INT64_MAX,
	                                   INT64_MAX - 4095};
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	struct ros2_err err = ROS2_ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		assert_true(fx_io(fx, f, ENGINE_OP_WRITE, offsets[i], big, 4096) < 0);
		assert_true(fx_io(fx, f, ENGINE_OP_READ, offsets[i], big, 4096) <= 0);
		if (offsets[i] > INT64_MAX)
			assert_true(fx->ops->truncate(f, offsets[i], &err) < 0);
	}
	assert_int_equal(fx_io(fx, f, (enum engine_op)77, 0, big, 4096), -EINVAL);
	fx->ops->close(f);
}

void engine__refuses_io_the_open_did_not_ask_for(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *w = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE),
			   *r = fx_open(fx, "f", ENGINE_READ);

	assert_int_equal(fx_io(fx, w, ENGINE_OP_READ, 0, big, 4096), -EBADF);
	assert_int_equal(fx_io(fx, r, ENGINE_OP_WRITE, 0, big, 4096), -EBADF);
	fx->ops->close(w);
	fx->ops->close(r);
}

void engine__uses_registered_buffers(void **state)
{
	static const uint64_t offsets[] = {0, 4096, 4097, 100};
	static const size_t ats[] = {0, 4096, 512, 3};
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *in = fx->buffers[0].iov_base, *out = fx->buffers[1].iov_base;

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		fx_pattern(in + ats[i], offsets[i], 131072, (uint32_t)i);
		memset(out, 0, FIXTURE_BUF);
		assert_int_equal(fx_io_slot(fx, f, ENGINE_OP_WRITE, offsets[i], 0, ats[i], 131072),
		                 131072);
		assert_int_equal(fx_io_slot(fx, f, ENGINE_OP_READ, offsets[i], 1, ats[i], 131072),
		                 131072);
		fx_expect_pattern(out + ats[i], offsets[i], 131072, (uint32_t)i);
	}
	fx->ops->close(f);
}

void engine__wakes_its_event_fd(void **state)
{
	struct fixture *fx = *state;
	int fd = fx->ops->event_fd(fx->r);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);

	/* twice: what wakes once must wake again */
	for (int i = 0; i < 2; i++) {
		static uint32_t buf[128];
		struct engine_io io = {.file = f,
		                       .op = ENGINE_OP_WRITE,
		                       .len = 512,
		                       .buf = buf,
		                       .buf_index = -1,
		                       .done = count_done};

		buf[0] = 0;
		assert_int_equal(fx->ops->submit(fx->r, &io), 0);
		assert_int_equal(fx->ops->kick(fx->r), 0);
		while (buf[0] == 0) {
			if (fd >= 0)
				assert_int_equal(poll(&p, 1, 5000), 1);
			fx->ops->poll(fx->r, 8);
		}
	}
	fx->ops->close(f);
}

void engine__falls_silent_when_nothing_is_left(void **state)
{
	struct fixture *fx = *state;
	struct pollfd p = {.fd = fx->ops->event_fd(fx->r), .events = POLLIN};
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	int calls = 0;

	for (int i = 0; i < 50; i++)
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, (uint64_t)i * 100, big, 100), 100);
	/* a late wake-up is allowed, one that poll cannot take back is not */
	while (p.fd >= 0 && poll(&p, 1, 20) == 1) {
		assert_true(calls++ < 40);
		assert_int_equal(fx->ops->poll(fx->r, 8), 0);
	}
	fx->ops->close(f);
}

struct worker {
	struct fixture fx; /* shares engine and namespace, has a reactor of its own */
	struct engine_file *file;
	uint32_t id;
	bool ok;
};

static void *write_own_parts(void *arg)
{
	struct worker *w = arg;
	uint8_t *buf = calloc(1, 10007);

	w->ok = buf != NULL;
	for (uint32_t i = w->id; w->ok && i < 200; i += 4) {
		fx_pattern(buf, i * 10007u, 10007, 3);
		w->ok = fx_io(&w->fx, w->file, ENGINE_OP_WRITE, i * 10007u, buf, 10007) == 10007;
	}
	free(buf);
	return NULL;
}

void engine__several_reactors_write_one_file(void **state)
{
	struct fixture *fx = *state;
	struct engine_reactor_opts o = {.depth = 4};
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	struct worker w[4];
	pthread_t t[4];

	for (uint32_t i = 0; i < 4; i++) {
		w[i] = (struct worker){.fx = *fx, .file = f, .id = i};
		assert_int_equal(fx->ops->reactor_new(fx->e, &o, &w[i].fx.r, NULL), 0);
		assert_int_equal(pthread_create(&t[i], NULL, write_own_parts, &w[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_true(w[i].ok);
		fx->ops->reactor_free(w[i].fx.r);
	}
	for (uint32_t i = 0; i < 200; i++) {
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, i * 10007u, back, 10007), 10007);
		fx_expect_pattern(back, i * 10007u, 10007, 3);
	}
	fx->ops->close(f);
}

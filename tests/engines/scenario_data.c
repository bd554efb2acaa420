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

/* Whole units of about these bytes, at least one. */
static uint32_t len_of(const struct fixture *fx, uint64_t bytes)
{
	return (uint32_t)fx_up(fx, bytes);
}

void engine__reads_back_odd_offsets_and_lengths(void **state)
{
	static const uint64_t offsets[] = {0,     1,     511,   512,     4095,    4096,
	                                   65535, 65536, 65537, 1048575, 1048576, 5000011};
	static const uint32_t lens[] = {1,    7,    511,   512,    513,    4095,
	                                4096, 4097, 65536, 131072, 200001, 1 << 20};
	struct fixture *fx = *state;
	uint8_t *big = fx_memory(fx, FIXTURE_BUF), *back = fx_memory(fx, FIXTURE_BUF);

	for (size_t o = 0; o < ARRAY_SIZE(offsets); o++) {
		struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE | ENGINE_TRUNCATE);
		uint64_t at = fx_down(fx, offsets[o]);

		for (size_t l = 0; l < ARRAY_SIZE(lens); l++) {
			uint32_t len = len_of(fx, lens[l]);

			fx_pattern(big, at, len, (uint32_t)(l + 16 * o));
			assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, at, big, len), len);
			memset(back, 0x5a, FIXTURE_BUF);
			assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, at, back, len), len);
			assert_memory_equal(back, big, len);
			if (len < FIXTURE_BUF)
				assert_int_equal(back[len], 0x5a);
		}
		fx->ops->close(f);
	}
}

void engine__reads_holes_as_zeros(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f;
	uint8_t *big = fx_memory(fx, FIXTURE_BUF), *back = fx_memory(fx, FIXTURE_BUF);

	f = fx_open(fx, "f", RW | ENGINE_CREATE);
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

/* Where the object ends: 10000 bytes into a file, at its last block for a volume. */
static uint64_t end_of(struct fixture *fx, struct engine_file *f, uint8_t *big)
{
	uint64_t end = fx->v->volumes ? FIXTURE_VOLUME : 10000, from = fx_down(fx, end - 10000);

	if (!fx->v->volumes)
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, big, 100), 0);
	fx_pattern(big, from, end - from, 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, from, big, (uint32_t)(end - from)),
	                 end - from);
	return end;
}

void engine__reads_short_only_at_the_end(void **state)
{
	static const uint32_t before[] = {10000, 1808, 4096, 8192, 1};
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *big = fx_memory(fx, FIXTURE_BUF), *back = fx_memory(fx, FIXTURE_BUF);
	uint64_t end = end_of(fx, f, big);
	uint32_t page = len_of(fx, 4096);

	for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
		uint32_t n = (uint32_t)fx_up(fx, before[i]);

		n = n > 10000 ? (uint32_t)fx_down(fx, 10000) : n;
		memset(back, 0x5a, FIXTURE_BUF);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, end - n, back, 65536), n);
		fx_expect_pattern(back, end - n, n, 1);
		/* the system may fill what is left with zeros */
		for (uint32_t k = n; k < 65536; k++)
			assert_true(back[k] == 0x5a || back[k] == 0);
		assert_int_equal(back[65536], 0x5a);
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, end, back, page), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 1 << 30, back, page), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 5 * fx->unit, back, 0), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 2 * fx->unit, big, 0), 0);
	fx->ops->close(f);
}

void engine__overlapping_writes_leave_the_last(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *big = fx_memory(fx, FIXTURE_BUF), *back = fx_memory(fx, FIXTURE_BUF);

	if (!fx->v->volumes)
		assert_int_equal(fx->ops->truncate(f, FIXTURE_BUF, NULL), 0);
	/* aligned and unaligned in turns: the direct and the buffered way must agree on every byte
	 */
	for (uint32_t i = 0; i < 40; i++) {
		uint64_t at = i % 2 ? i * 4096 : fx_down(fx, i * 4096 + 1000 + i);
		uint32_t len = i % 2 ? 65536 : len_of(fx, 50001);

		fx_pattern(big + at, at, len, i);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, at, big + at, len), len);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, at & ~4095ull, back, 65536), 65536);
		assert_memory_equal(back + (at & 4095), big + at, MIN(len, 65536 - (at & 4095)));
	}
	fx->ops->close(f);
}

struct many {
	struct engine_io io;
	uint8_t *buf;
	int64_t res;
	uint32_t ends;
};

static void many_done(struct engine_io *io, int64_t res)
{
	struct many *m = container_of(io, struct many, io);

	m->res = res;
	m->ends++;
}

static void many_submit(struct fixture *fx, struct many *m, struct engine_file *f,
                        enum engine_op op, uint64_t at, uint32_t len)
{
	m->io = fx_prepare(fx, f, op, at, m->buf, len);
	m->io.done = many_done;
	m->ends = 0;
	assert_int_equal(fx->ops->submit(fx->r, &m->io), 0);
}

static void many_end(struct fixture *fx, const struct many *m, size_t n)
{
	assert_int_equal(fx->ops->kick(fx->r), 0);
	fx_drain(fx);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(m[i].ends, 1);
		assert_int_equal(m[i].res, m[i].io.len);
	}
}

/* Which of them is the last is not said, but each byte is of one of them that covers it, and what
 * one read has seen another sees, too. */
void engine__overlapping_requests_in_flight_leave_whole_bytes(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *back = fx_memory(fx, FIXTURE_BUF), *again = fx_memory(fx, FIXTURE_BUF);
	struct many m[16] = {0};

	memset(back, 0xee, FIXTURE_BUF);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, back, FIXTURE_BUF), FIXTURE_BUF);
	for (uint32_t i = 0; i < ARRAY_SIZE(m); i++) {
		m[i].buf = fx_memory(fx, 65536);
		memset(m[i].buf, (int)i, 65536);
		many_submit(fx, &m[i], f, i % 4 == 3 ? ENGINE_OP_READ : ENGINE_OP_WRITE,
		            i * (uint64_t)8192, 65536);
	}
	many_end(fx, m, ARRAY_SIZE(m));
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, FIXTURE_BUF), FIXTURE_BUF);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, again, FIXTURE_BUF), FIXTURE_BUF);
	assert_memory_equal(back, again, FIXTURE_BUF);
	for (uint32_t at = 0; at < FIXTURE_BUF; at++) {
		uint32_t by = back[at];

		if (by == 0xee)
			assert_true(at >= 14 * 8192 + 65536);
		else
			assert_true(by % 4 != 3 && by < ARRAY_SIZE(m) && at >= by * 8192 &&
			            at < by * 8192 + 65536);
	}
	fx->ops->close(f);
}

/* As many as the engine takes, of all sizes, each to its own place. */
void engine__keeps_many_in_flight_apart(void **state)
{
	static struct many m[FIXTURE_DEPTH];
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	const uint64_t stride = fx_up(fx, 40000);

	memset(m, 0, sizeof(m));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < ARRAY_SIZE(m); i++) {
			uint32_t len = len_of(fx, 1 + (i * 7919 + round) % 40000);

			if (!m[i].buf)
				m[i].buf = fx_memory(fx, stride);
			fx_pattern(m[i].buf, i * stride, len, round);
			many_submit(fx, &m[i], f, ENGINE_OP_WRITE, i * stride, len);
		}
		many_end(fx, m, ARRAY_SIZE(m));
		for (uint32_t i = 0; i < ARRAY_SIZE(m); i++) {
			memset(m[i].buf, 0x5a, stride);
			many_submit(fx, &m[i], f, ENGINE_OP_READ, i * stride, m[i].io.len);
		}
		many_end(fx, m, ARRAY_SIZE(m));
		for (uint32_t i = 0; i < ARRAY_SIZE(m); i++)
			fx_expect_pattern(m[i].buf, i * stride, m[i].io.len, round);
	}
	fx->ops->close(f);
}

void engine__truncates_and_grows_with_zeros(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr a;
	uint8_t *big = fx_memory(fx, FIXTURE_BUF), *back = fx_memory(fx, FIXTURE_BUF);

	f = fx_open(fx, "f", RW | ENGINE_CREATE);
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
	struct engine_file *f;
	struct truncator t = {.fx = fx};
	pthread_t thread;

	f = fx_open(fx, "f", RW | ENGINE_CREATE);
	t.file = f;
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

/* Its buffer begins with how often it ended. */
static void count_done(struct engine_io *io, int64_t res)
{
	assert_int_equal(res, io->len);
	++*(uint32_t *)io->buf;
}

void engine__refuses_more_than_depth(void **state)
{
	static struct engine_io ios[FIXTURE_DEPTH + 1];
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint32_t len = len_of(fx, 512);

	for (uint32_t i = 0; i <= FIXTURE_DEPTH; i++) {
		ios[i] = fx_prepare(fx, f, ENGINE_OP_WRITE, (uint64_t)i * len, fx_memory(fx, len),
		                    len);
		ios[i].done = count_done;
		assert_int_equal(fx->ops->submit(fx->r, &ios[i]), i < FIXTURE_DEPTH ? 0 : -EAGAIN);
	}
	assert_int_equal(fx->ops->in_flight(fx->r), FIXTURE_DEPTH);
	assert_int_equal(fx->ops->kick(fx->r), 0);
	fx_drain(fx);
	for (uint32_t i = 0; i <= FIXTURE_DEPTH; i++)
		assert_int_equal(*(uint32_t *)ios[i].buf, i < FIXTURE_DEPTH);
	assert_int_equal(fx->ops->poll(fx->r, 8), 0);
	fx->ops->close(f);
}

void engine__flushes(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint32_t len = len_of(fx, 5000);
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, fx_down(fx, 1), fx_memory(fx, len), len),
	                 len);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	assert_int_equal(fx->ops->fsync(f, &err), 0);
	fx->ops->close(f);
}

void engine__refuses_offsets_beyond_what_files_hold(void **state)
{
	static const uint64_t offsets[] = {1ull << 63, UINT64_MAX,       UINT64_MAX - 4095,
	                                   INT64_MAX,  INT64_MAX - 4095, (1ull << 63) - 512};
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *big = fx_memory(fx, FIXTURE_BUF);
	struct ros2_err err = ROS2_ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		uint64_t at = fx_down(fx, offsets[i]);

		assert_true(fx_io(fx, f, ENGINE_OP_WRITE, offsets[i], big, 4096) < 0);
		assert_true(fx_io(fx, f, ENGINE_OP_READ, offsets[i], big, 4096) <= 0);
		assert_true(fx_io(fx, f, ENGINE_OP_WRITE, at, big, FIXTURE_BUF) < 0);
		assert_true(fx_io(fx, f, ENGINE_OP_READ, at, big, FIXTURE_BUF) <= 0);
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
	uint8_t *big = fx_memory(fx, 4096);

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
		uint64_t at = fx_down(fx, offsets[i]);

		fx_pattern(in + ats[i], at, 131072, (uint32_t)i);
		memset(out, 0, FIXTURE_BUF);
		assert_int_equal(fx_io_slot(fx, f, ENGINE_OP_WRITE, at, 0, ats[i], 131072), 131072);
		assert_int_equal(fx_io_slot(fx, f, ENGINE_OP_READ, at, 1, ats[i], 131072), 131072);
		fx_expect_pattern(out + ats[i], at, 131072, (uint32_t)i);
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
		uint32_t len = len_of(fx, 512), *buf = (uint32_t *)(void *)fx_memory(fx, len);
		struct engine_io io = fx_prepare(fx, f, ENGINE_OP_WRITE, 0, buf, len);

		io.done = count_done;
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
	uint32_t len = len_of(fx, 100);
	uint8_t *big = fx_memory(fx, len);
	int calls = 0;

	for (uint64_t i = 0; i < 50; i++)
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, i * len, big, len), len);
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
	uint8_t *buf;
	uint32_t id, len;
	bool ok;
};

static void *write_own_parts(void *arg)
{
	struct worker *w = arg;

	w->ok = true;
	for (uint32_t i = w->id; w->ok && i < 200; i += 4) {
		fx_pattern(w->buf, i * w->len, w->len, 3);
		w->ok = fx_io(&w->fx, w->file, ENGINE_OP_WRITE, i * w->len, w->buf, w->len) ==
		        w->len;
	}
	return NULL;
}

void engine__several_reactors_write_one_file(void **state)
{
	struct fixture *fx = *state;
	struct engine_reactor_opts o = {.depth = 4};
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint32_t len = len_of(fx, 10007);
	uint8_t *back = fx_memory(fx, len);
	struct worker w[4];
	pthread_t t[4];

	for (uint32_t i = 0; i < 4; i++) {
		w[i] = (struct worker){.fx = *fx, .file = f, .id = i, .len = len};
		w[i].buf = fx_memory(fx, len);
		assert_int_equal(fx->ops->reactor_new(fx->e, &o, &w[i].fx.r, NULL), 0);
		assert_int_equal(pthread_create(&t[i], NULL, write_own_parts, &w[i]), 0);
	}
	for (uint32_t i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_true(w[i].ok);
		fx->ops->reactor_free(w[i].fx.r);
	}
	for (uint64_t i = 0; i < 200; i++) {
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, i * len, back, len), len);
		fx_expect_pattern(back, i * len, len, 3);
	}
	fx->ops->close(f);
}

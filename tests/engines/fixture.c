/* SPDX-License-Identifier: Apache-2.0 */
/* See fixture.h. */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void make_memory(struct fixture *fx)
{
	fx->memory = mmap(NULL, FIXTURE_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                  -1, 0);
	assert_ptr_not_equal(fx->memory, MAP_FAILED);
	for (int i = 0; i < FIXTURE_BUFFERS; i++)
		fx->buffers[i] = (struct iovec){fx_memory(fx, FIXTURE_BUF), FIXTURE_BUF};
}

const struct engine_who fixture_who = {{{1}}, "tenant-a"};

int fixture_setup(void **state)
{
	struct fixture *fx = calloc(1, sizeof(*fx));
	struct engine_config c = {.name = "e", .size_bytes = 64 << 20};
	struct engine_reactor_opts o = {.depth = FIXTURE_DEPTH, .n_buffers = FIXTURE_BUFFERS};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_non_null(fx);
	fx->v = *state;
	fx->who = &fixture_who;
	fx->unit = 1;
	fx->ops = engine_ops_find(fx->v->type);
	assert_non_null(fx->ops);
	if (fx->v->base) {
		snprintf(fx->root, sizeof(fx->root), "%s/ros2-engine-XXXXXX", fx->v->base);
		assert_non_null(mkdtemp(fx->root));
		c.root = fx->root;
	}
	c.io_features = fx->v->io_features;
	make_memory(fx);
	if (fx->v->volumes)
		fx->v->volumes->begin(fx, &c);
	o.buffers = fx->buffers;
	if (fx->ops->create(&c, &fx->e, &err) < 0 ||
	    fx->ops->ns_open(fx->e, fx->who, "/t/a", &fx->ns, &err) < 0 ||
	    fx->ops->reactor_new(fx->e, &o, &fx->r, &err) < 0)
		fail_msg("%s", err.msg);
	*state = fx;
	return 0;
}

int fixture_teardown(void **state)
{
	struct fixture *fx = *state;

	assert_int_equal(fx->ops->in_flight(fx->r), 0);
	fx->ops->reactor_free(fx->r);
	fx->ops->ns_close(fx->ns);
	fx->ops->destroy(fx->e);
	if (fx->v->volumes)
		fx->v->volumes->end(fx);
	munmap(fx->memory, FIXTURE_MEMORY);
	if (fx->root[0])
		nftw(fx->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(fx);
	return 0;
}

void fixture_need_openat2(void)
{
	if (testing_has_openat2())
		return;
	puts("1..0 # SKIP no openat2 here (Linux before 5.6, or qemu-user): no file engine");
	exit(77);
}

void fx_skip(const char *why)
{
	printf("# skipped: %s\n", why);
	skip();
}

uint64_t fx_down(const struct fixture *fx, uint64_t n)
{
	return n / fx->unit * fx->unit;
}

uint64_t fx_up(const struct fixture *fx, uint64_t n)
{
	return fx_down(fx, n + fx->unit - 1);
}

uint8_t *fx_memory(struct fixture *fx, size_t len)
{
	uint8_t *p = fx->memory + fx->memory_used;

	len = (len + 4095) & ~(size_t)4095;
	assert_true(len <= FIXTURE_MEMORY - fx->memory_used);
	fx->memory_used += len;
	return p;
}

struct engine_file *fx_open(struct fixture *fx, const char *path, uint32_t flags)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_file *f = NULL;

	if (fx->v && fx->v->volumes)
		flags &= ~(uint32_t)(ENGINE_CREATE | ENGINE_TRUNCATE);
	if (fx->ops->open(fx->ns, path, flags, 0600, &f, NULL, &err) < 0)
		fail_msg("open %s: %s", path, err.msg);
	return f;
}

struct waited {
	struct engine_io io;
	int64_t res;
	bool done;
};

static void waited_done(struct engine_io *io, int64_t res)
{
	struct waited *w = (struct waited *)io;

	assert_false(w->done);
	w->done = true;
	w->res = res;
}

static void turn(struct fixture *fx)
{
	int fd = fx->ops->event_fd(fx->r);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fx->ops->poll(fx->r, 32) == 0 && fd >= 0)
		poll(&p, 1, 1000);
}

static int64_t run(struct fixture *fx, struct waited *w)
{
	assert_int_equal(fx->ops->submit(fx->r, &w->io), 0);
	assert_int_equal(fx->ops->kick(fx->r), 0);
	for (int i = 0; !w->done; i++) {
		assert_true(i < 100000);
		turn(fx);
	}
	return w->res;
}

struct engine_io fx_prepare(const struct fixture *fx, struct engine_file *f, enum engine_op op,
                            uint64_t offset, void *buf, uint32_t len)
{
	return (struct engine_io){.file = f,
	                          .op = op,
	                          .offset = offset,
	                          .buf = buf,
	                          .len = len,
	                          .buf_index = -1,
	                          .region = fx->region};
}

void fx_count_end(struct engine_io *io, int64_t res)
{
	assert_int_equal(res, io->len);
	++*container_of(io, struct fx_counted, io)->ended;
}

static void look(struct fixture *fx, const struct engine_io *io, int64_t res)
{
	uint8_t *found;

	if (fx->looks_away || !fx->v || !fx->v->volumes || !fx->v->volumes->look ||
	    io->op == ENGINE_OP_READ || io->op == ENGINE_OP_DISCARD || res <= 0)
		return;
	if (io->op == ENGINE_OP_ZERO)
		res = MIN(res, (int64_t)(FIXTURE_VOLUME - MIN(io->offset, FIXTURE_VOLUME)));
	if (res == 0)
		return;
	found = malloc((size_t)res);
	assert_non_null(found);
	fx->v->volumes->look(fx, io->offset, found, (size_t)res);
	if (io->op == ENGINE_OP_ZERO)
		fx_expect_zeros(found, (size_t)res);
	else
		assert_memory_equal(found, io->buf, (size_t)res);
	free(found);
}

int64_t fx_io(struct fixture *fx, struct engine_file *f, enum engine_op op, uint64_t offset,
              void *buf, uint32_t len)
{
	struct waited w = {.io = fx_prepare(fx, f, op, offset, buf, len)};
	int64_t res;

	w.io.done = waited_done;
	res = run(fx, &w);
	look(fx, &w.io, res);
	return res;
}

int64_t fx_io_slot(struct fixture *fx, struct engine_file *f, enum engine_op op, uint64_t offset,
                   int slot, size_t at, uint32_t len)
{
	uint8_t *buf = (uint8_t *)fx->buffers[slot].iov_base + at;
	struct waited w = {.io = fx_prepare(fx, f, op, offset, buf, len)};

	w.io.done = waited_done;
	w.io.buf_index = slot;
	return run(fx, &w);
}

void fx_drain(struct fixture *fx)
{
	for (int i = 0; fx->ops->in_flight(fx->r) > 0; i++) {
		assert_true(i < 1000000);
		turn(fx);
	}
}

static uint8_t pattern_at(uint64_t at, uint32_t seed)
{
	uint64_t x = (at / 8 + 1) * 0x9e3779b97f4a7c15u + seed * 0xff51afd7ed558ccdu;

	return (uint8_t)(x >> (8 * (at % 8)));
}

void fx_pattern(uint8_t *buf, uint64_t offset, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern_at(offset + i, seed);
}

void fx_expect_pattern(const uint8_t *buf, uint64_t offset, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != pattern_at(offset + i, seed))
			fail_msg("byte %zu of the file: expected %02x, found %02x",
			         (size_t)offset + i, pattern_at(offset + i, seed), buf[i]);
}

void fx_expect_zeros(const uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != 0)
			fail_msg("byte %zu: expected zero, found %02x", i, buf[i]);
}

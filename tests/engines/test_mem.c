/* SPDX-License-Identifier: Apache-2.0 */
/* What only the mem engine has: a capacity, a null mode, chunks that several reactors race for. */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "dataplane/engines/mem_priv.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static uint8_t big[FIXTURE_BUF], back[FIXTURE_BUF];

static void mem_setup(struct fixture *fx, uint64_t size_bytes, bool null_mode)
{
	struct engine_config c = {.name = "e", .size_bytes = size_bytes, .null_mode = null_mode};
	struct engine_reactor_opts o = {.depth = 8};

	*fx = (struct fixture){.ops = engine_ops_find("mem")};
	assert_int_equal(fx->ops->create(&c, &fx->e, NULL), 0);
	assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "", &fx->ns, NULL), 0);
	assert_int_equal(fx->ops->reactor_new(fx->e, &o, &fx->r, NULL), 0);
}

static void mem_end(struct fixture *fx)
{
	fx->ops->reactor_free(fx->r);
	fx->ops->ns_close(fx->ns);
	fx->ops->destroy(fx->e);
}

/* ---- who waits while chunks go back ---- */

static struct engine *watched; /* NULL: none */
static uint32_t given_back, given_back_under_the_lock;

int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice)
{
	if (watched) {
		bool free_now = pthread_mutex_trylock(&watched->lock) == 0;

		given_back++;
		given_back_under_the_lock += !free_now;
		if (free_now)
			pthread_mutex_unlock(&watched->lock);
	}
	return __real_madvise(at, len, advice);
}

/* A file of 8 chunks that ends in one of the ways there are. */
static void end_of_file(struct fixture *fx, int way)
{
	struct engine_file *f = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE);

	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, big, 8 * MEM_CHUNK), 8 * MEM_CHUNK);
	if (way == 0) {
		assert_int_equal(fx->ops->unlink(fx->ns, "f", NULL), 0);
		fx->ops->close(f);
		return;
	}
	fx->ops->close(f);
	if (way == 1) {
		assert_int_equal(fx->ops->unlink(fx->ns, "f", NULL), 0);
		return;
	}
	fx->ops->close(fx_open(fx, "g", ENGINE_WRITE | ENGINE_CREATE));
	assert_int_equal(fx->ops->rename(fx->ns, "g", "f", NULL), 0);
	assert_int_equal(fx->ops->unlink(fx->ns, "f", NULL), 0);
}

/* Of all tenants' names: a large file takes long to free. */
static void mem_engine__frees_a_file_without_the_lock_of_its_names(void **state)
{
	struct fixture fx;

	(void)state;
	for (int way = 0; way < 3; way++) {
		mem_setup(&fx, 16 * MEM_CHUNK, false);
		given_back = given_back_under_the_lock = 0;
		watched = fx.e;
		end_of_file(&fx, way);
		watched = NULL;
		assert_int_equal(given_back, 8);
		assert_int_equal(given_back_under_the_lock, 0);
		mem_end(&fx);
	}
}

static void mem_engine__refuses_senseless_capacities(void **state)
{
	static const uint64_t sizes[] = {0, 65535, MEM_CAPACITY_MAX + 1, UINT64_MAX};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine *e = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct engine_config c = {.name = "e", .size_bytes = sizes[i]};

		assert_int_equal(engine_mem_ops.create(&c, &e, &err), -EINVAL);
	}
	assert_null(engine_ops_find("nvme"));
	assert_null(engine_ops_find(NULL));
}

static void mem_engine__is_full_at_its_capacity_and_gives_space_back(void **state)
{
	struct fixture fx;
	struct engine_file *f, *g;

	mem_setup(&fx, 1 << 20, false);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	g = fx_open(&fx, "g", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	memset(big, 0xcc, sizeof(big));
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 900000), 900000);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 0, big, 900000), -ENOSPC);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_READ, 0, back, 4096), 0);
	/* unlink alone gives nothing back while the file is open */
	assert_int_equal(fx.ops->unlink(fx.ns, "f", NULL), 0);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 0, big, 900000), -ENOSPC);
	fx.ops->close(f);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 100, big, 100), 100);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_READ, 0, back, 200), 200);
	fx_expect_zeros(back, 100);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 0, big, 900000), 900000);
	fx.ops->close(g);
	mem_end(&fx);
}

/* What a write had taken that was refused for want of room. */
static void mem_engine__gives_back_what_is_beyond_the_end_at_truncate(void **state)
{
	struct fixture fx;
	struct engine_file *f, *g;

	mem_setup(&fx, 1 << 20, false);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	g = fx_open(&fx, "g", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	memset(big, 0xcc, sizeof(big));
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 0, big, 2 << 16), 2 << 16);
	for (uint64_t size = 0; size <= 100; size += 100) {
		if (size)
			assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 100), 100);
		assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 15 << 16), -ENOSPC);
		/* Nobody else has room... */
		assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 2 << 16, big, 1), -ENOSPC);
		/* ...until it is as long as it is. */
		assert_int_equal(fx.ops->truncate(f, size, NULL), 0);
		assert_int_equal(atomic_load(&fx.e->pool.used), 2 + (size ? 1 : 0));
	}
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_READ, 0, back, 4096), 100);
	assert_memory_equal(back, big, 100);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 2 << 16, big, 12 << 16), 12 << 16);
	fx.ops->close(f);
	fx.ops->close(g);
	mem_end(&fx);
}

static void mem_engine__shows_nobody_what_another_file_held(void **state)
{
	struct fixture fx;
	struct engine_file *f;
	char one = 'x';

	mem_setup(&fx, 1 << 20, false);
	memset(big, 0xcc, sizeof(big));
	for (int round = 0; round < 3; round++) {
		f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
		assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 1 << 20), 1 << 20);
		fx.ops->close(f);
		assert_int_equal(fx.ops->unlink(fx.ns, "f", NULL), 0);
		f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
		for (uint64_t at = 65535; at < 1 << 20; at += 65536)
			assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, at, &one, 1), 1);
		assert_int_equal(fx_io(&fx, f, ENGINE_OP_READ, 0, back, 1 << 20), 1 << 20);
		for (uint64_t at = 65535; at < 1 << 20; at += 65536)
			back[at] = 0;
		fx_expect_zeros(back, 1 << 20);
		fx.ops->close(f);
		assert_int_equal(fx.ops->unlink(fx.ns, "f", NULL), 0);
	}
	mem_end(&fx);
}

static void mem_engine__holds_large_sparse_files(void **state)
{
	static const uint64_t offsets[] = {
		0, 1 << 20, 1ull << 30, (1ull << 30) - 5, 700ull << 30, MEM_FILE_MAX - 1000};
	struct fixture fx;
	struct engine_file *f;

	mem_setup(&fx, 4 << 20, false);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		fx_pattern(big, offsets[i], 1000, (uint32_t)i);
		assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, offsets[i], big, 1000), 1000);
	}
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, MEM_FILE_MAX - 10, big, 11), -EFBIG);
	for (size_t i = ARRAY_SIZE(offsets); i-- > 0;) {
		if (i == 2)
			continue; /* the one after it wrote over its first bytes */
		assert_int_equal(fx_io(&fx, f, ENGINE_OP_READ, offsets[i], back, 1000), 1000);
		fx_expect_pattern(back, offsets[i], 1000, (uint32_t)i);
	}
	/* cut in the middle of a table, then grow: nothing of the rest may be left */
	assert_int_equal(fx.ops->truncate(f, (1ull << 30) - 2, NULL), 0);
	assert_int_equal(fx.ops->truncate(f, MEM_FILE_MAX, NULL), 0);
	assert_int_equal(fx.ops->truncate(f, MEM_FILE_MAX + 1, NULL), -EFBIG);
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_READ, (1ull << 30) - 5, back, 2000), 2000);
	fx_expect_pattern(back, (1ull << 30) - 5, 3, 3);
	fx_expect_zeros(back + 3, 1997);
	assert_int_equal(fx.ops->truncate(f, 0, NULL), 0);
	assert_int_equal(atomic_load(&fx.e->pool.used), 0);
	fx.ops->close(f);
	mem_end(&fx);
}

static void mem_engine__drops_writes_in_null_mode(void **state)
{
	struct fixture fx;
	struct engine_file *f;

	mem_setup(&fx, 1 << 20, true);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	memset(big, 0xcc, sizeof(big));
	for (uint64_t at = 0; at < 16 << 20; at += 1 << 20)
		assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, at, big, 1 << 20), 1 << 20);
	memset(back, 0x77, sizeof(back)); /* what lay in the slot before must not come back */
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_READ, 5 << 20, back, 1 << 20), 1 << 20);
	fx_expect_zeros(back, 1 << 20);
	assert_int_equal(fx.ops->copied_bytes(fx.r), 0);
	fx.ops->close(f);
	mem_end(&fx);
}

static void mem_engine__counts_what_it_copies(void **state)
{
	struct fixture fx;
	struct engine_file *f;

	mem_setup(&fx, 1 << 20, false);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 100000), 100000);
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_READ, 0, back, 50000), 50000);
	assert_int_equal(fx.ops->copied_bytes(fx.r), 150000);
	fx.ops->close(f);
	mem_end(&fx);
}

static void lent_done(struct engine_io *io, int64_t res)
{
	io->priv[0] = (uint64_t)res;
}

/* A read that lends; parts and result are in @io. */
static int64_t lend(struct fixture *fx, struct engine_file *f, uint64_t at, uint32_t len,
                    struct engine_io *io)
{
	*io = (struct engine_io){.file = f,
	                         .op = ENGINE_OP_READ,
	                         .offset = at,
	                         .len = len,
	                         .done = lent_done,
	                         .may_lend = true};
	assert_int_equal(fx->ops->submit(fx->r, io), 0);
	assert_int_equal(fx->ops->poll(fx->r, 8), 1);
	return (int64_t)io->priv[0];
}

static void expect_bytes(const struct engine_io *io, uint8_t want, size_t len)
{
	for (uint32_t i = 0; i < io->n_parts; len -= io->parts[i].iov_len, i++) {
		const uint8_t *p = io->parts[i].iov_base;

		for (size_t k = 0; k < io->parts[i].iov_len; k++)
			assert_int_equal(p[k], want);
	}
	assert_int_equal(len, 0);
}

static void mem_engine__lends_what_is_read_and_copies_nothing(void **state)
{
	struct fixture fx;
	struct engine_file *f;
	struct engine_io io;
	uint64_t copied;

	mem_setup(&fx, 4 << 20, false);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	memset(big, 0xcc, sizeof(big));
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 1 << 20), 1 << 20);
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 1 << 20, big, 1 << 20), 1 << 20);
	copied = fx.ops->copied_bytes(fx.r);
	assert_int_equal(lend(&fx, f, 4097, 4096, &io), 4096);
	assert_int_equal(io.n_parts, 1);
	expect_bytes(&io, 0xcc, 4096);
	fx.ops->unlend(&io);
	assert_int_equal(lend(&fx, f, 1, 1 << 20, &io), 1 << 20);
	assert_int_equal(io.n_parts, ENGINE_PARTS_MAX);
	expect_bytes(&io, 0xcc, 1 << 20);
	fx.ops->unlend(&io);
	assert_int_equal(lend(&fx, f, (2 << 20) - 10, 4096, &io), 10);
	expect_bytes(&io, 0xcc, 10);
	fx.ops->unlend(&io);
	assert_int_equal(fx.ops->truncate(f, 3 << 20, NULL), 0);
	assert_int_equal(lend(&fx, f, 2 << 20, 1 << 20, &io), 1 << 20);
	expect_bytes(&io, 0, 1 << 20);
	fx.ops->unlend(&io);
	assert_int_equal(lend(&fx, f, 3 << 20, 4096, &io), 0);
	assert_int_equal(io.n_parts, 0);
	assert_int_equal(fx.ops->copied_bytes(fx.r), copied);
	fx.ops->close(f);
	mem_end(&fx);
}

static void mem_engine__what_is_lent_shows_no_other_file_after_truncate(void **state)
{
	struct engine_io io, twice;
	struct fixture fx;
	struct engine_file *f, *g;

	mem_setup(&fx, 1 << 20, false);
	f = fx_open(&fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	g = fx_open(&fx, "g", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	memset(big, 0xaa, sizeof(big));
	assert_int_equal(fx_io(&fx, f, ENGINE_OP_WRITE, 0, big, 3 << 16), 3 << 16);
	assert_int_equal(lend(&fx, f, 0, 2 << 16, &io), 2 << 16);
	assert_int_equal(lend(&fx, f, 0, 1 << 16, &twice), 1 << 16);
	assert_int_equal(fx.ops->truncate(f, 0, NULL), 0);
	assert_int_equal(atomic_load(&fx.e->pool.used), 2);
	/* everything that is free becomes g's */
	memset(big, 0xbb, sizeof(big));
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 0, big, 14 << 16), 14 << 16);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, 14 << 16, big, 1), -ENOSPC);
	expect_bytes(&io, 0xaa, 2 << 16);
	fx.ops->unlend(&io);
	assert_int_equal(atomic_load(&fx.e->pool.used), 15);
	expect_bytes(&twice, 0xaa, 1 << 16);
	fx.ops->unlend(&twice);
	assert_int_equal(atomic_load(&fx.e->pool.used), 14);
	/* what comes back is clean */
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_WRITE, (16 << 16) - 1, big, 1), 1);
	assert_int_equal(fx_io(&fx, g, ENGINE_OP_READ, 15 << 16, back, 100), 100);
	fx_expect_zeros(back, 100);
	fx.ops->close(f);
	fx.ops->close(g);
	mem_end(&fx);
}

static void mem_engine__bounds_the_number_of_names(void **state)
{
	struct fixture fx;
	struct ros2_err err = ROS2_ERR_INIT;
	char name[32];
	uint32_t i;
	int rc = 0;

	mem_setup(&fx, 65536, false);
	for (i = 0; rc == 0 && i < 10000; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		rc = fx.ops->mkdir(fx.ns, name, 0700, &err);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(fx.ops->rename(fx.ns, "d0", "e0", &err), 0);
	assert_int_equal(fx.ops->rmdir(fx.ns, "e0", &err), 0);
	assert_int_equal(fx.ops->mkdir(fx.ns, "again", 0700, &err), 0);
	mem_end(&fx);
}

static void mem_engine__outlives_a_namespace_directory_that_was_removed(void **state)
{
	struct fixture fx;
	struct engine_ns *sub = NULL;
	struct engine_file *f = NULL;

	mem_setup(&fx, 1 << 20, false);
	assert_int_equal(fx.ops->ns_open(fx.e, &fixture_who, "sub", &sub, NULL), 0);
	assert_int_equal(fx.ops->rmdir(fx.ns, "sub", NULL), 0);
	assert_int_equal(fx.ops->open(sub, "f", ENGINE_WRITE | ENGINE_CREATE, 0600, &f, NULL, NULL),
	                 -ENOENT);
	assert_int_equal(fx.ops->mkdir(sub, "d", 0700, NULL), -ENOENT);
	fx.ops->ns_close(sub);
	mem_end(&fx);
}

static void *take_and_return(void *arg)
{
	struct mem_pool *p = arg;
	uint32_t have[8];

	for (int i = 0; i < 3000; i++) {
		int n = 0;

		while (n < 8 && (have[n] = mem_pool_get(p)))
			n++;
		for (int k = 0; k < n; k++) {
			uint8_t *at = mem_pool_at(p, have[k]);

			if (at[0] ||
			    at[MEM_CHUNK - 1]) /* somebody else has it too, or it is not clean */
				return (void *)1;
			at[0] = at[MEM_CHUNK - 1] = 1;
		}
		for (int k = 0; k < n; k++)
			mem_pool_put(p, have[k]);
	}
	return NULL;
}

static void mem_pool__gives_a_chunk_to_one_at_a_time(void **state)
{
	struct mem_pool p = {0};
	pthread_t t[4];
	void *bad;

	assert_int_equal(mem_pool_init(&p, 20 * MEM_CHUNK, NULL), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, take_and_return, &p), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(atomic_load(&p.used), 0);
	mem_pool_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mem_engine__refuses_senseless_capacities),
		cmocka_unit_test(mem_engine__is_full_at_its_capacity_and_gives_space_back),
		cmocka_unit_test(mem_engine__gives_back_what_is_beyond_the_end_at_truncate),
		cmocka_unit_test(mem_engine__shows_nobody_what_another_file_held),
		cmocka_unit_test(mem_engine__holds_large_sparse_files),
		cmocka_unit_test(mem_engine__drops_writes_in_null_mode),
		cmocka_unit_test(mem_engine__counts_what_it_copies),
		cmocka_unit_test(mem_engine__lends_what_is_read_and_copies_nothing),
		cmocka_unit_test(mem_engine__what_is_lent_shows_no_other_file_after_truncate),
		cmocka_unit_test(mem_engine__frees_a_file_without_the_lock_of_its_names),
		cmocka_unit_test(mem_engine__bounds_the_number_of_names),
		cmocka_unit_test(mem_engine__outlives_a_namespace_directory_that_was_removed),
		cmocka_unit_test(mem_pool__gives_a_chunk_to_one_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are made zeros or given up, in every engine: exactly those, by whoever may write, and
 * never one more. */
#include "tests/engines/fixture.h"

#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

#define RW (ENGINE_READ | ENGINE_WRITE)

static const enum engine_op ops[] = {ENGINE_OP_ZERO, ENGINE_OP_DISCARD};

/* FIXTURE_BUF bytes of a pattern at the beginning. */
static struct engine_file *filled(struct fixture *fx, uint8_t *mem)
{
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);

	fx_pattern(mem, 0, FIXTURE_BUF, 4);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, mem, FIXTURE_BUF), FIXTURE_BUF);
	return f;
}

/* Of what was discarded each byte may also be what it was. */
static void expect_cleared(enum engine_op op, const uint8_t *mem, uint64_t at, size_t len)
{
	uint8_t *was = malloc(len);

	assert_non_null(was);
	fx_pattern(was, at, len, 4);
	for (size_t i = 0; i < len; i++)
		if (mem[i] != 0 && (op == ENGINE_OP_ZERO || mem[i] != was[i]))
			fail_msg("byte %zu: expected zero, found %02x", (size_t)at + i, mem[i]);
	free(was);
}

void engine__clears_exactly_what_it_is_told(void **state)
{
	static const struct {
		uint32_t at, len;
	} ranges[] = {{0, 1},      {1, 511},       {4095, 2},        {4096, 4096},
	              {65535, 2},  {65536, 65536}, {100000, 200000}, {196608, 131072},
	              {7, 524288}, {0, 1048576},   {1048575, 1},     {512, 512},
	              {123456, 0}};
	struct fixture *fx = *state;
	uint8_t *mem = fx_memory(fx, FIXTURE_BUF);

	for (size_t i = 0; i < 2 * ARRAY_SIZE(ranges); i++) {
		enum engine_op op = ops[i % 2];
		uint32_t at = (uint32_t)fx_down(fx, ranges[i / 2].at);
		uint32_t len = (uint32_t)fx_down(fx, ranges[i / 2].len + fx->unit - 1);
		struct engine_file *f = filled(fx, mem);

		len = MIN(len, (uint32_t)FIXTURE_BUF - at);
		assert_int_equal(fx_io(fx, f, op, at, NULL, len), len);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, mem, FIXTURE_BUF), FIXTURE_BUF);
		fx_expect_pattern(mem, 0, at, 4);
		expect_cleared(op, mem + at, at, len);
		fx_expect_pattern(mem + at + len, at + len, FIXTURE_BUF - at - len, 4);
		/* and they take new bytes */
		fx_pattern(mem, at, len, 6);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, at, mem, len), len);
		memset(mem, 0, len);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, at, mem, len), len);
		fx_expect_pattern(mem, at, len, 6);
		fx->ops->close(f);
	}
}

void engine__clears_nothing_beyond_the_end(void **state)
{
	struct fixture *fx = *state;
	uint8_t *mem = fx_memory(fx, FIXTURE_BUF);
	struct engine_file *f = filled(fx, mem);
	struct engine_attr before, after;
	uint64_t end;

	assert_int_equal(fx->ops->fstat(f, &before, NULL), 0);
	end = before.size;
	fx_pattern(mem, 0, 65536, 4);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, end - 65536, mem, 65536), 65536);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		assert_int_equal(fx_io(fx, f, ops[i], end, NULL, 65536), 65536);
		assert_int_equal(fx_io(fx, f, ops[i], end - 4096, NULL, ENGINE_ZERO_MAX),
		                 ENGINE_ZERO_MAX);
		assert_int_equal(fx_io(fx, f, ops[i], (uint64_t)1 << 39, NULL, 4096), 4096);
		assert_int_equal(fx->ops->fstat(f, &after, NULL), 0);
		assert_int_equal(after.size, end);
		assert_true(after.blocks_512 <= before.blocks_512);
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, end - 65536, mem, 131072), 65536);
	fx_expect_pattern(mem, 0, 65536 - 4096, 4);
	fx_expect_zeros(mem + 65536 - 4096, 4096);
	fx->ops->close(f);
}

void engine__refuses_to_clear_what_it_may_not(void **state)
{
	static const uint64_t offsets[] = {1ull << 63, UINT64_MAX,       UINT64_MAX - 4095,
	                                   INT64_MAX,  INT64_MAX - 4094, (1ull << 63) - 512};
	struct fixture *fx = *state;
	uint8_t *mem = fx_memory(fx, FIXTURE_BUF);
	struct engine_file *f = filled(fx, mem), *r = fx_open(fx, "f", ENGINE_READ);

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		assert_int_equal(fx_io(fx, r, ops[i], 0, NULL, 4096), -EBADF);
		assert_int_equal(fx_io(fx, r, ops[i], 0, NULL, 0), -EBADF);
		assert_int_equal(fx_io(fx, f, ops[i], 0, NULL, ENGINE_ZERO_MAX + 4096), -EINVAL);
		assert_int_equal(fx_io(fx, f, ops[i], 0, NULL, UINT32_MAX), -EINVAL);
		assert_int_equal(fx_io(fx, f, ops[i], 4096, NULL, 0), 0);
		for (size_t k = 0; k < ARRAY_SIZE(offsets); k++) {
			assert_true(fx_io(fx, f, ops[i], offsets[k], NULL, 4096) < 0);
			assert_true(fx_io(fx, f, ops[i], fx_down(fx, offsets[k]), NULL,
			                  ENGINE_ZERO_MAX) < 0);
		}
		if (fx->unit > 1)
			assert_int_equal(fx_io(fx, f, ops[i], 1, NULL, 4096), -EINVAL);
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, mem, FIXTURE_BUF), FIXTURE_BUF);
	fx_expect_pattern(mem, 0, FIXTURE_BUF, 4);
	fx->ops->close(r);
	fx->ops->close(f);
}

struct one {
	struct engine_io io;
	int64_t res;
	uint32_t ends;
};

static void ended(struct engine_io *io, int64_t res)
{
	struct one *o = container_of(io, struct one, io);

	o->res = res;
	o->ends++;
}

/* Over each other, with writes between them: each byte is zero or a write's; those that come too
 * late change nothing. */
void engine__clears_in_flight_beside_writes(void **state)
{
	struct fixture *fx = *state;
	uint8_t *mem = fx_memory(fx, FIXTURE_BUF), *ones = fx_memory(fx, 65536);
	struct engine_file *f = filled(fx, mem);
	struct one o[24] = {0};

	memset(ones, 1, 65536);
	for (uint32_t i = 0; i < ARRAY_SIZE(o); i++) {
		bool late = i % 8 == 7;

		o[i].io = fx_prepare(fx, f, i % 3 ? ENGINE_OP_ZERO : ENGINE_OP_WRITE,
		                     i * (uint64_t)8192, i % 3 ? NULL : ones, 65536);
		if (late)
			o[i].io = fx_prepare(fx, f, ENGINE_OP_ZERO, 524288, NULL, 65536);
		o[i].io.until_ns = late ? 1 : clock_boottime_ns() + 3600 * NS_PER_S;
		o[i].io.done = ended;
		assert_int_equal(fx->ops->submit(fx->r, &o[i].io), 0);
	}
	assert_int_equal(fx->ops->kick(fx->r), 0);
	fx_drain(fx);
	for (uint32_t i = 0; i < ARRAY_SIZE(o); i++) {
		assert_int_equal(o[i].ends, 1);
		assert_int_equal(o[i].res, i % 8 == 7 ? ENGINE_LATE : 65536);
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, mem, FIXTURE_BUF), FIXTURE_BUF);
	for (uint32_t i = 0; i < 22 * 8192 + 65536; i++)
		assert_true(mem[i] <= 1);
	fx_expect_pattern(mem + 524288, 524288, 65536, 4);
	fx->ops->close(f);
}

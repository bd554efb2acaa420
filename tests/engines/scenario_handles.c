/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects and requests as every engine has them, with a tree of names or without: names that lead
 * elsewhere, handles beside each other, requests that are late or withdrawn; and what only volumes
 * refuse.
 */
#include "tests/engines/fixture.h"

#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <poll.h>
#include <string.h>

#define RW  (ENGINE_READ | ENGINE_WRITE)
#define LEN 8192u

static int open_rc(struct fixture *fx, const char *path, uint32_t flags)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_file *f = NULL;
	int rc = fx->ops->open(fx->ns, path, flags, 0600, &f, NULL, &err);

	if (rc == 0)
		fx->ops->close(f);
	else
		assert_string_not_equal(err.msg, "");
	return rc;
}

/* Where there is no f yet: one. */
static void make_f(struct fixture *fx)
{
	fx->ops->close(fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE));
}

/* ---- names ---- */

void engine__refuses_hostile_names(void **state)
{
	struct fixture *fx = *state;
	char name[300], path[4400];
	const char *leave[] = {"",       "/",       "/f",         "f/",   "f//f",      ".",
	                       "..",     "f/.",     "f/..",       "../f", "f/../../b", "./f",
	                       "../b/f", "/t/b/f",  name,         path,   "..//",      "f/./f",
	                       "//f",    "a/../..", "../../t/b/f"};
	const char *none[] = {"\xff\xfe", "f\n", " f",       "f ",  "%s%n",
	                      "F",        "~",   "f\\..\\b", "...", "*"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr attr;
	struct engine_dirent d;
	uint64_t next;
	uint32_t n;

	memset(name, 'x', 256);
	name[256] = '\0';
	for (size_t i = 0; i < 4200; i++)
		path[i] = i % 2 ? '/' : 'p';
	path[4199] = '\0';
	make_f(fx);
	for (size_t i = 0; i < ARRAY_SIZE(leave); i++) {
		assert_int_equal(open_rc(fx, leave[i], ENGINE_READ), -ELIBBAD);
		assert_int_equal(open_rc(fx, leave[i], ENGINE_WRITE | ENGINE_CREATE), -ELIBBAD);
		if (leave[i][0] == '\0')
			continue; /* the root itself */
		assert_int_equal(fx->ops->stat(fx->ns, leave[i], &attr, &err), -ELIBBAD);
		assert_int_equal(fx->ops->readdir(fx->ns, leave[i], 0, &d, 1, &n, &next, &err),
		                 -ELIBBAD);
	}
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		assert_int_equal(open_rc(fx, none[i], RW), -ENOENT);
		assert_int_equal(fx->ops->stat(fx->ns, none[i], &attr, &err), -ENOENT);
	}
}

void engine__opens_and_refuses_by_flags(void **state)
{
	struct fixture *fx = *state;

	assert_int_equal(open_rc(fx, "none", ENGINE_READ), -ENOENT);
	assert_int_equal(open_rc(fx, "none", ENGINE_WRITE), -ENOENT);
	assert_int_equal(open_rc(fx, "none/f", RW), -ENOENT);
	make_f(fx);
	assert_int_equal(open_rc(fx, "f", 0), -EINVAL);
	assert_int_equal(open_rc(fx, "f", ENGINE_CREATE), -EINVAL);
	assert_int_equal(open_rc(fx, "f", RW), 0);
	assert_int_equal(open_rc(fx, "f", ENGINE_WRITE | ENGINE_CREATE), 0);
	assert_int_equal(open_rc(fx, "f", RW | ENGINE_CREATE | ENGINE_EXCLUSIVE), -EEXIST);
	assert_int_equal(open_rc(fx, "f/g", ENGINE_READ), -ENOTDIR);
	assert_int_equal(open_rc(fx, "f/g", ENGINE_WRITE | ENGINE_CREATE), -ENOTDIR);
}

void engine__lists_its_names_in_pages(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_dirent d[2];
	uint64_t cookie = 0;
	uint32_t n = 7, found = 0, pages = 0;

	make_f(fx);
	do {
		memset(d, 0, sizeof(d));
		assert_int_equal(fx->ops->readdir(fx->ns, "", cookie, d, 1, &n, &cookie, &err), 0);
		assert_true(n <= 1 && pages++ < 10);
		assert_string_equal(d[1].name, "");
		if (n == 0)
			continue;
		assert_string_equal(d[0].name, "f");
		assert_int_equal(d[0].type, ENGINE_REGULAR);
		found++;
	} while (cookie != 0);
	assert_int_equal(found, 1);
	assert_int_equal(fx->ops->readdir(fx->ns, "f", 0, d, 1, &n, &cookie, &err), -ENOTDIR);
	assert_int_equal(fx->ops->readdir(fx->ns, "none", 0, d, 1, &n, &cookie, &err), -ENOENT);
	assert_int_equal(fx->ops->readdir(fx->ns, "f/g", 0, d, 1, &n, &cookie, &err), -ENOTDIR);
}

void engine__describes_objects(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint64_t size = fx->v->volumes ? FIXTURE_VOLUME : LEN;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr a, b;

	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, fx_memory(fx, LEN), LEN), LEN);
	assert_int_equal(fx->ops->fstat(f, &a, &err), 0);
	assert_int_equal(a.type, ENGINE_REGULAR);
	assert_int_equal(a.size, size);
	assert_int_equal(a.mode, 0600);
	assert_int_equal(fx->ops->stat(fx->ns, "f", &b, &err), 0);
	assert_int_equal(b.type, ENGINE_REGULAR);
	assert_int_equal(b.size, size);
	assert_int_equal(fx->ops->stat(fx->ns, "", &b, &err), 0);
	assert_int_equal(b.type, ENGINE_DIRECTORY);
	assert_int_equal(fx->ops->stat(fx->ns, "none", &b, &err), -ENOENT);
	assert_int_equal(fx->ops->stat(fx->ns, "f/x", &b, &err), -ENOTDIR);
	fx->ops->close(f);
}

/* ---- handles ---- */

/* Each has its own rights, all of them the same bytes; one that goes takes nothing along. */
void engine__keeps_handles_apart(void **state)
{
	struct fixture *fx = *state;
	uint8_t *in = fx_memory(fx, LEN), *out = fx_memory(fx, LEN);
	struct engine_file *f[8], *r;

	for (size_t i = 0; i < ARRAY_SIZE(f); i++)
		f[i] = fx_open(fx, "f", RW | ENGINE_CREATE);
	r = fx_open(fx, "f", ENGINE_READ);
	for (uint32_t i = 0; i < ARRAY_SIZE(f); i++) {
		fx_pattern(in, 0, LEN, i + 1);
		assert_int_equal(fx_io(fx, f[i], ENGINE_OP_WRITE, 0, in, LEN), LEN);
		fx->ops->close(f[i]);
		memset(out, 0, LEN);
		assert_int_equal(fx_io(fx, r, ENGINE_OP_READ, 0, out, LEN), LEN);
		fx_expect_pattern(out, 0, LEN, i + 1);
		assert_int_equal(fx_io(fx, r, ENGINE_OP_WRITE, 0, in, LEN), -EBADF);
	}
	fx->ops->close(r);
}

void engine__closes_one_handle_while_another_has_requests(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE),
			   *g = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *in = fx_memory(fx, LEN);
	struct engine_attr a;

	fx_pattern(in, 0, LEN, 1);
	assert_int_equal(fx_io(fx, g, ENGINE_OP_WRITE, 0, in, LEN), LEN);
	for (uint32_t i = 0; i < 20; i++) {
		struct engine_file *other = fx_open(fx, "f", RW);

		assert_int_equal(fx_io(fx, other, ENGINE_OP_READ, 0, in, LEN), LEN);
		fx->ops->close(other);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, in, LEN), LEN);
		fx_expect_pattern(in, 0, LEN, 1);
	}
	fx->ops->close(f);
	assert_int_equal(fx_io(fx, g, ENGINE_OP_READ, 0, in, LEN), LEN);
	assert_int_equal(fx->ops->fstat(g, &a, NULL), 0);
	fx->ops->close(g);
}

/* The same name in two namespaces is two objects. */
void engine__keeps_the_namespaces_of_tenants_apart(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *a = fx->ns, *b = NULL, *bad = NULL;
	uint8_t *mem = fx_memory(fx, LEN);
	struct engine_file *fa = fx_open(fx, "f", RW | ENGINE_CREATE), *fb;

	assert_int_equal(fx->ops->ns_open(fx->e, fx->who, "t/b", &b, &err), 0);
	fx->ns = b;
	fb = fx_open(fx, "f", RW | ENGINE_CREATE);
	fx->ns = a;
	for (uint32_t i = 0; i < 4; i++) {
		fx_pattern(mem, 0, LEN, 10 + i);
		assert_int_equal(fx_io(fx, fa, ENGINE_OP_WRITE, 0, mem, LEN), LEN);
		fx_pattern(mem, 0, LEN, 20 + i);
		fx->looks_away = true;
		assert_int_equal(fx_io(fx, fb, ENGINE_OP_WRITE, 0, mem, LEN), LEN);
		fx->looks_away = false;
		assert_int_equal(fx_io(fx, fa, ENGINE_OP_READ, 0, mem, LEN), LEN);
		fx_expect_pattern(mem, 0, LEN, 10 + i);
		assert_int_equal(fx_io(fx, fb, ENGINE_OP_READ, 0, mem, LEN), LEN);
		fx_expect_pattern(mem, 0, LEN, 20 + i);
	}
	fx->ops->close(fb);
	fx->ops->ns_close(b);
	assert_int_equal(fx_io(fx, fa, ENGINE_OP_READ, 0, mem, LEN), LEN);
	assert_int_equal(fx->ops->ns_open(fx->e, fx->who, "t/a/f", &bad, &err), -ENOTDIR);
	assert_int_equal(fx->ops->ns_open(fx->e, fx->who, "t/../a", &bad, &err), -ELIBBAD);
	assert_int_equal(fx->ops->ns_open(fx->e, fx->who, "//t", &bad, &err), -ELIBBAD);
	assert_null(bad);
	fx->ops->close(fa);
}

/* ---- time ---- */

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

/* The first @n_late of each three are late when they are handed on. */
static void late_turn(struct fixture *fx, struct engine_file *f, enum engine_op op, uint8_t *mem,
                      struct one o[12], uint32_t n_late)
{
	uint64_t now = clock_boottime_ns(), until = now + 5 * NS_PER_MS;

	memset(o, 0, 12 * sizeof(*o));
	for (uint32_t i = 0; i < 12; i++) {
		o[i].io = fx_prepare(fx, f, op, (uint64_t)i * LEN, mem + (size_t)i * LEN,
		                     op == ENGINE_OP_FLUSH ? 0 : LEN);
		o[i].io.done = ended;
		o[i].io.until_ns = i % 3 < n_late ? until : i % 3 == 2 ? 0 : now + 3600 * NS_PER_S;
		assert_int_equal(fx->ops->submit(fx->r, &o[i].io), 0);
	}
	/* poll: until the clock says so: this is what a process that was stopped sees */
	while (n_late && clock_boottime_ns() < until)
		poll(NULL, 0, 1);
	assert_int_equal(fx->ops->kick(fx->r), 0);
	fx_drain(fx);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(o[i].ends, 1);
}

void engine__does_nothing_that_is_late(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", RW | ENGINE_CREATE);
	uint8_t *mem = fx_memory(fx, 12 * LEN), *back = fx_memory(fx, LEN);
	struct one o[12];

	/* The last turn, in which none is late, is the control. */
	for (uint32_t n_late = 3; n_late-- > 0;) {
		memset(mem, 1, 12 * LEN);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, mem, 12 * LEN), 12 * LEN);
		memset(mem, 2, 12 * LEN);
		late_turn(fx, f, ENGINE_OP_WRITE, mem, o, n_late);
		for (uint32_t i = 0; i < 12; i++) {
			bool late = i % 3 < n_late;

			assert_int_equal(o[i].res, late ? ENGINE_LATE : (int64_t)LEN);
			assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, (uint64_t)i * LEN, back, LEN),
			                 LEN);
			assert_int_equal(back[7], late ? 1 : 2);
			assert_int_equal(back[LEN - 1], late ? 1 : 2);
		}
		memset(mem, 3, 12 * LEN);
		late_turn(fx, f, ENGINE_OP_READ, mem, o, n_late);
		for (uint32_t i = 0; i < 12; i++) {
			bool late = i % 3 < n_late;

			assert_int_equal(o[i].res, late ? ENGINE_LATE : (int64_t)LEN);
			assert_int_equal(mem[i * LEN], late ? 3 : 2);
		}
	}
	fx->ops->close(f);
}

/* What was not handed on yet is not; what is over is not harmed. Each comes back once. */
void engine__gives_back_what_is_withdrawn(void **state)
{
	struct fixture *fx = *state;
	uint8_t *mem = fx_memory(fx, 12 * LEN), *back = fx_memory(fx, LEN);
	struct one o[12] = {0};
	struct engine_file *f;

	if (!fx->ops->withdraw)
		fx_skip("nothing ever waits in this engine");
	f = fx_open(fx, "f", RW | ENGINE_CREATE);
	memset(mem, 1, 12 * LEN);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, mem, 12 * LEN), 12 * LEN);
	memset(mem, 2, 12 * LEN);
	for (uint32_t i = 0; i < 12; i++) {
		o[i].io = fx_prepare(fx, f, ENGINE_OP_WRITE, (uint64_t)i * LEN, mem + i * LEN, LEN);
		o[i].io.done = ended;
		assert_int_equal(fx->ops->submit(fx->r, &o[i].io), 0);
		if (i % 3 == 0)
			fx->ops->withdraw(fx->r, &o[i].io);
		assert_int_equal(o[i].ends, 0);
	}
	assert_int_equal(fx->ops->kick(fx->r), 0);
	for (uint32_t i = 1; i < 12; i += 3)
		fx->ops->withdraw(fx->r, &o[i].io);
	fx_drain(fx);
	for (uint32_t i = 0; i < 12; i++) {
		assert_int_equal(o[i].ends, 1);
		if (i % 3 == 0)
			assert_true(o[i].res == -ECANCELED || o[i].res == ENGINE_LATE);
		else if (i % 3 == 1)
			assert_true(o[i].res == LEN || o[i].res == -ECANCELED ||
			            o[i].res == ENGINE_LATE || o[i].res == -EREMOTEIO);
		else
			assert_int_equal(o[i].res, LEN);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, (uint64_t)i * LEN, back, LEN), LEN);
		if (i % 3 != 1)
			assert_int_equal(back[7], i % 3 == 0 ? 1 : 2);
	}
	fx->ops->close(f);
}

/* ---- volumes ---- */

void volumes__refuse_what_they_do_not_have(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_file *f;

	f = fx_open(fx, "f", RW);
	assert_int_equal(fx->ops->mkdir(fx->ns, "d", 0700, &err), -EOPNOTSUPP);
	assert_int_equal(fx->ops->unlink(fx->ns, "f", &err), -EOPNOTSUPP);
	assert_int_equal(fx->ops->rmdir(fx->ns, "f", &err), -EOPNOTSUPP);
	assert_int_equal(fx->ops->rename(fx->ns, "f", "g", &err), -EOPNOTSUPP);
	assert_int_equal(fx->ops->truncate(f, 0, &err), -EOPNOTSUPP);
	assert_int_equal(open_rc(fx, "f", RW | ENGINE_TRUNCATE), -EOPNOTSUPP);
	assert_int_equal(open_rc(fx, "new", RW | ENGINE_CREATE), -ENOENT);
	fx->ops->close(f);
}

void volumes__refuse_parts_of_blocks(void **state)
{
	static const struct {
		uint64_t at;
		uint32_t len;
	} parts[] = {{0, 1}, {1, 512}, {511, 4096}, {512, 4095}, {0, 4097}, {100, 100}, {4097, 1}};
	struct fixture *fx = *state;
	uint8_t *mem, *back;
	struct engine_file *f;

	f = fx_open(fx, "f", RW);
	mem = fx_memory(fx, 16384);
	back = fx_memory(fx, 16384);
	fx_pattern(mem, 0, 16384, 5);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, mem, 16384), 16384);
	memset(mem, 0xdd, 16384);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, parts[i].at, mem, parts[i].len),
		                 -EINVAL);
		assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, parts[i].at, mem, parts[i].len),
		                 -EINVAL);
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, back, 16384), 16384);
	fx_expect_pattern(back, 0, 16384, 5);
	fx->ops->close(f);
}

/* t/b/f begins with the byte after t/a/f. */
void volumes__end_where_their_neighbour_begins(void **state)
{
	struct fixture *fx = *state;
	struct engine_ns *a = fx->ns, *b = NULL;
	struct engine_file *fa, *fb;
	uint8_t *mem;
	uint64_t end = FIXTURE_VOLUME;

	mem = fx_memory(fx, 65536);
	assert_int_equal(fx->ops->ns_open(fx->e, fx->who, "t/b", &b, NULL), 0);
	fx->ns = b;
	fb = fx_open(fx, "f", RW);
	fx->ns = a;
	fa = fx_open(fx, "f", RW);
	fx_pattern(mem, 0, 65536, 9);
	fx->looks_away = true;
	assert_int_equal(fx_io(fx, fb, ENGINE_OP_WRITE, 0, mem, 65536), 65536);
	fx->looks_away = false;
	memset(mem, 0xdd, 65536);
	assert_int_equal(fx_io(fx, fa, ENGINE_OP_WRITE, end, mem, 65536), -ERANGE);
	assert_int_equal(fx_io(fx, fa, ENGINE_OP_WRITE, end - 32768, mem, 65536), -ERANGE);
	assert_int_equal(fx_io(fx, fa, ENGINE_OP_WRITE, end - 65536, mem, 65536), 65536);
	assert_int_equal(fx_io(fx, fb, ENGINE_OP_READ, 0, mem, 65536), 65536);
	fx_expect_pattern(mem, 0, 65536, 9);
	memset(mem, 0xdd, 65536);
	assert_int_equal(fx_io(fx, fa, ENGINE_OP_READ, end - 32768, mem, 65536), 32768);
	for (size_t i = 0; i < 65536; i++)
		assert_int_equal(mem[i], 0xdd);
	fx->ops->close(fb);
	fx->ops->ns_close(b);
	fx->ops->close(fa);
}

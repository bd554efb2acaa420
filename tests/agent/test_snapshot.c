/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed objects, snapshots, epochs and contact: what is believed, and what is not. */
#include "agent/contact.h"
#include "agent/bytes.h"
#include "agent/snapshot.h"
#include "common/fsx.h"
#include "tests/agent/fixture.h"
#include <errno.h>

struct seen {
	struct agent_object *v[16];
	unsigned n, drops;
	enum ros2_status last;
};

static void on_object(void *arg, struct agent_object *o)
{
	struct seen *s = arg;

	assert_true(s->n < 16);
	s->v[s->n++] = o;
}

static void on_drop(void *arg, const struct ros2_err *why)
{
	struct seen *s = arg;

	s->drops++;
	s->last = why->status;
}

static void seen_fini(struct seen *s)
{
	for (unsigned i = 0; i < s->n; i++)
		agent_object_free(s->v[i]);
	*s = (struct seen){0};
}

static int parse(struct fixture *f, const void *p, size_t n, uint64_t min, struct seen *s,
                 struct snapshot_info *info, struct ros2_err *err)
{
	struct snapshot_reader rd = {.on_object = on_object, .on_drop = on_drop, .arg = s};

	return snapshot_parse(p, n, &f->trust, min, &rd, info, err);
}

/* Three objects of one batch, in a snapshot. */
static void *build(struct fixture *f, size_t *len, struct seen *originals)
{
	Ros2__V1__AgentObject *objs[] = {
		fix_engine(f, "files", 1, 1),
		fix_tenant(f, "alpha", FIX_ALPHA, 2, 4),
		fix_grant(f, 3, 2, FIX_ALPHA, 1, 1000, 60000, 4),
	};
	struct snapshot_header h = {
		.agent_uid = f->trust.agent_uid, .epoch = f->epoch, .sequence = 5};
	struct fix_bytes b[3];
	void *p;

	fix_seal(f, objs, 3, b);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(agent_object_open(&f->trust, &f->epoch, b[i].p, b[i].n,
		                                   &originals->v[originals->n++], NULL),
		                 0);
		free(b[i].p);
	}
	assert_int_equal(snapshot_build(&h, (const struct agent_object *const *)originals->v, 3, &p,
	                                len, NULL),
	                 0);
	return p;
}

static void snapshot__gives_back_what_was_written(void **state)
{
	struct fixture f;
	struct seen orig = {0}, got = {0};
	struct snapshot_info info;
	size_t n;
	void *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	assert_int_equal(parse(&f, p, n, 5, &got, &info, NULL), 0);
	assert_int_equal(info.loaded, 3);
	assert_int_equal(info.dropped, 0);
	assert_int_equal(info.header.sequence, 5);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(got.v[i]->kind, orig.v[i]->kind);
		assert_int_equal(got.v[i]->sealed_len, orig.v[i]->sealed_len);
		assert_memory_equal(got.v[i]->sealed, orig.v[i]->sealed, orig.v[i]->sealed_len);
	}
	assert_string_equal(got.v[2]->grant.principal, FIX_ALPHA);
	free(p);
	seen_fini(&orig);
	seen_fini(&got);
	fixture_fini(&f);
}

/* Whatever byte changes: no crash, and what is given is byte for byte what was sealed. */
static void snapshot__believes_no_changed_byte(void **state)
{
	struct fixture f;
	struct seen orig = {0};
	size_t n;
	uint8_t *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	for (size_t i = 0; i < n; i++) {
		struct seen got = {0};
		struct snapshot_info info;

		p[i] ^= 0x41;
		if (parse(&f, p, n, 0, &got, &info, NULL) == 0) {
			assert_true(got.n < 3);
			assert_true(got.drops > 0);
		}
		for (unsigned k = 0; k < got.n; k++) {
			bool same = false;

			for (int o = 0; o < 3; o++)
				same |= got.v[k]->sealed_len == orig.v[o]->sealed_len &&
				        !memcmp(got.v[k]->sealed, orig.v[o]->sealed,
				                orig.v[o]->sealed_len);
			assert_true(same);
		}
		seen_fini(&got);
		p[i] ^= 0x41;
	}
	free(p);
	seen_fini(&orig);
	fixture_fini(&f);
}

/* The CRCs are repaired after the change: only the seal is left to say no. */
static void object__with_any_changed_byte_fails_its_seal(void **state)
{
	struct fixture f;
	struct agent_object *o, *again;

	fixture_init(&f);
	o = fix_open(&f, fix_tenant(&f, "alpha", FIX_ALPHA, 2, 4));
	for (size_t i = 0; i < o->sealed_len; i++) {
		again = NULL;
		o->sealed[i] ^= 0x10;
		/* An unknown field number may stay without effect: then the meaning is the same. */
		if (agent_object_open(&f.trust, &f.epoch, o->sealed, o->sealed_len, &again, NULL) ==
		    0) {
			assert_int_equal(again->version, o->version);
			assert_int_equal(again->image_len, o->image_len);
			assert_memory_equal(again->image, o->image, o->image_len);
			assert_int_equal(again->revoked, o->revoked);
			agent_object_free(again);
		}
		o->sealed[i] ^= 0x10;
	}
	agent_object_free(o);
	fixture_fini(&f);
}

static void object__of_another_agent_is_refused(void **state)
{
	struct fixture f;
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_object *o, *out = NULL;

	fixture_init(&f);
	o = fix_open(&f, fix_engine(&f, "files", 1, 1));
	f.trust.agent_uid = fix_uid(201);
	assert_true(agent_object_open(&f.trust, &f.epoch, o->sealed, o->sealed_len, &out, &err) <
	            0);
	assert_int_equal(err.status, ROS2_WRONG_DOMAIN);
	agent_object_free(o);
	fixture_fini(&f);
}

static void object__signed_by_another_key_is_refused(void **state)
{
	struct fixture f, g;
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_object *o, *out = NULL;

	fixture_init(&f);
	fixture_init(&g);
	o = fix_open(&f, fix_engine(&f, "files", 1, 1));
	assert_true(agent_object_open(&g.trust, &f.epoch, o->sealed, o->sealed_len, &out, &err) <
	            0);
	assert_int_equal(err.status, ROS2_CORRUPT);
	agent_object_free(o);
	fixture_fini(&f);
	fixture_fini(&g);
}

static void snapshot__of_another_agent_is_refused_whole(void **state)
{
	struct fixture f;
	struct seen orig = {0}, got = {0};
	struct snapshot_info info;
	struct ros2_err err = ROS2_ERR_INIT;
	size_t n;
	void *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	f.trust.agent_uid = fix_uid(201);
	assert_true(parse(&f, p, n, 0, &got, &info, &err) < 0);
	assert_int_equal(err.status, ROS2_WRONG_DOMAIN);
	assert_int_equal(got.n, 0);
	free(p);
	seen_fini(&orig);
	fixture_fini(&f);
}

static void snapshot__that_was_rolled_back_is_refused_whole(void **state)
{
	struct fixture f;
	struct seen orig = {0}, got = {0};
	struct snapshot_info info;
	struct ros2_err err = ROS2_ERR_INIT;
	size_t n;
	void *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	assert_true(parse(&f, p, n, 6, &got, &info, &err) < 0);
	assert_int_equal(err.status, ROS2_STALE_EPOCH);
	free(p);
	seen_fini(&orig);
	fixture_fini(&f);
}

static void snapshot__drops_objects_of_a_newer_epoch_or_another_lineage(void **state)
{
	struct fixture f;
	struct snapshot_header h;
	struct agent_object *o[2];
	struct seen got = {0};
	struct snapshot_info info;
	size_t n;
	void *p;

	fixture_init(&f);
	h = (struct snapshot_header){
		.agent_uid = f.trust.agent_uid, .epoch = f.epoch, .sequence = 1};
	f.epoch.counter = 9;
	o[0] = fix_open(&f, fix_engine(&f, "files", 1, 1));
	f.epoch.lineage[0] ^= 1;
	o[1] = fix_open(&f, fix_engine(&f, "files", 1, 1));
	assert_int_equal(snapshot_build(&h, (const struct agent_object *const *)o, 2, &p, &n, NULL),
	                 0);
	assert_int_equal(parse(&f, p, n, 0, &got, &info, NULL), 0);
	assert_int_equal(info.loaded, 0);
	assert_int_equal(info.dropped, 2);
	free(p);
	agent_object_free(o[0]);
	agent_object_free(o[1]);
	fixture_fini(&f);
}

static void snapshot__cut_at_any_length_gives_only_whole_objects(void **state)
{
	struct fixture f;
	struct seen orig = {0};
	size_t n;
	void *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	for (size_t cut = 0; cut < n; cut++) {
		struct seen got = {0};
		struct snapshot_info info;

		if (parse(&f, p, cut, 0, &got, &info, NULL) == 0)
			assert_true(got.n < 3 && got.drops > 0);
		else
			assert_int_equal(got.n, 0);
		seen_fini(&got);
	}
	free(p);
	seen_fini(&orig);
	fixture_fini(&f);
}

/* The revocation log forgets a grant's tombstone after 32 days. */
static void object__that_is_a_grant_for_more_than_31_days_is_refused(void **state)
{
	static const uint64_t lifetimes_ms[] = {2678400000, 2678400001, UINT64_MAX};
	struct fixture f;

	fixture_init(&f);
	for (size_t i = 0; i < 3; i++) {
		Ros2__V1__AgentObject *g = fix_grant(&f, 3, 2, FIX_ALPHA, 1, 0, lifetimes_ms[i], 1);
		struct agent_object *o = NULL;
		struct fix_bytes b;

		fix_seal(&f, &g, 1, &b);
		assert_int_equal(agent_object_open(&f.trust, &f.epoch, b.p, b.n, &o, NULL) == 0,
		                 i == 0);
		agent_object_free(o);
		free(b.p);
	}
	fixture_fini(&f);
}

/* The snapshot of build, then a batch: the grant went, the tenant came again; then an empty one. */
static uint8_t *build_batches(struct fixture *f, size_t *base, size_t *first, size_t *len)
{
	struct seen orig = {0};
	struct snapshot_header h = {.agent_uid = f->trust.agent_uid, .epoch = f->epoch};
	Ros2__V1__AgentObject *o = fix_tenant(f, "alpha", FIX_ALPHA, 2, 9);
	struct snapshot_gone gone = {.kind = OBJ_GRANT, .uid = fix_uid(3), .version = 1};
	struct agent_object *again;
	struct fix_bytes b;
	uint8_t *p = build(f, base, &orig);
	void *batch;
	size_t n;

	fix_seal(f, &o, 1, &b);
	assert_int_equal(agent_object_open(&f->trust, &f->epoch, b.p, b.n, &again, NULL), 0);
	h.sequence = 6;
	h.last_counter = f->epoch.counter;
	h.last_batch = 77;
	assert_int_equal(snapshot_build_batch(&h, (const struct agent_object *const *)&again, 1,
	                                      &gone, 1, &batch, &n, NULL),
	                 0);
	p = realloc(p, *base + n + 4096);
	memcpy(p + *base, batch, n);
	*first = *base + n;
	free(batch);
	h.sequence = 7;
	assert_int_equal(snapshot_build_batch(&h, NULL, 0, NULL, 0, &batch, &n, NULL), 0);
	memcpy(p + *first, batch, n);
	*len = *first + n;
	free(batch);
	free(b.p);
	agent_object_free(again);
	seen_fini(&orig);
	return p;
}

static struct snapshot_gone went;
static unsigned n_went;

static void on_gone(void *arg, const struct snapshot_gone *g)
{
	went = *g;
	n_went++;
}

static int parse_batches(struct fixture *f, const void *p, size_t n, uint64_t min, struct seen *s,
                         struct snapshot_info *info, struct ros2_err *err)
{
	struct snapshot_reader rd = {
		.on_object = on_object, .on_gone = on_gone, .on_drop = on_drop, .arg = s};

	n_went = 0;
	return snapshot_parse(p, n, &f->trust, min, &rd, info, err);
}

static void snapshot__tells_what_came_and_what_went_in_order(void **state)
{
	struct fixture f;
	struct seen got = {0};
	struct snapshot_info info;
	size_t base, first, n;
	uint8_t *p;

	fixture_init(&f);
	p = build_batches(&f, &base, &first, &n);
	assert_int_equal(parse_batches(&f, p, n, 7, &got, &info, NULL), 0);
	assert_int_equal(got.n, 4);
	assert_int_equal(got.v[3]->version, 9);
	assert_int_equal(n_went, 1);
	assert_int_equal(went.kind, OBJ_GRANT);
	assert_int_equal(went.uid.b[0], 3);
	assert_int_equal(info.header.sequence, 7);
	assert_int_equal(info.header.last_batch, 77);
	assert_true(info.appendable);
	free(p);
	seen_fini(&got);
	fixture_fini(&f);
}

/* A last batch that was being written is left out, unless the contact file knows that it was done.
 */
static void snapshot__cut_in_a_batch_ends_before_it(void **state)
{
	struct fixture f;
	size_t base, first, n;
	uint8_t *p;

	fixture_init(&f);
	p = build_batches(&f, &base, &first, &n);
	for (size_t cut = base; cut < n; cut++) {
		struct seen got = {0};
		struct snapshot_info info;
		struct ros2_err err = ROS2_ERR_INIT;

		assert_int_equal(parse_batches(&f, p, cut, 5, &got, &info, NULL), 0);
		assert_int_equal(info.header.sequence, cut < first ? 5 : 6);
		assert_int_equal(got.n, cut < first ? 3 : 4);
		assert_int_equal(n_went, cut >= first);
		assert_int_equal(info.appendable, cut == base || cut == first);
		seen_fini(&got);
		assert_true(parse_batches(&f, p, cut, 7, &got, &info, &err) < 0);
		assert_int_equal(err.status, ROS2_STALE_EPOCH);
		assert_int_equal(got.n + n_went, 0);
	}
	free(p);
	fixture_fini(&f);
}

/* A batch that does not check with a whole one behind it may have held a removal. */
static void snapshot__damaged_before_a_whole_batch_is_refused_whole(void **state)
{
	struct fixture f;
	size_t base, first, n;
	uint8_t *p;

	fixture_init(&f);
	p = build_batches(&f, &base, &first, &n);
	for (size_t at = base; at < first; at++) {
		struct seen got = {0};
		struct snapshot_info info;
		struct ros2_err err = ROS2_ERR_INIT;

		p[at] ^= 0x10;
		assert_true(parse_batches(&f, p, n, 0, &got, &info, &err) < 0);
		assert_int_equal(err.status, ROS2_CORRUPT);
		assert_int_equal(got.n + n_went, 0);
		p[at] ^= 0x10;
	}
	free(p);
	fixture_fini(&f);
}

/* What earlier versions wrote: 96 bytes of header, no batches. It is read, and written anew. */
static void snapshot__of_format_1_is_read(void **state)
{
	struct fixture f;
	struct seen orig = {0}, got = {0};
	struct snapshot_info info;
	size_t n;
	uint8_t *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	p[8] = 1;
	p[12] = 96;
	memset(p + 88, 0, 8);
	put_le32(p + 92, crypto_crc32c(p, 92));
	memmove(p + 96, p + 112, n - 112);
	assert_int_equal(parse_batches(&f, p, n - 16, 5, &got, &info, NULL), 0);
	assert_int_equal(got.n, 3);
	assert_int_equal(info.dropped, 0);
	assert_false(info.appendable);
	free(p);
	seen_fini(&orig);
	seen_fini(&got);
	fixture_fini(&f);
}

static void epoch__newer_is_stored_older_and_foreign_are_refused(void **state)
{
	struct agent_epoch none = {{0}, 0}, a = {{1}, 4}, older = {{1}, 3}, newer = {{1}, 5};
	struct agent_epoch other = {{2}, 9};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(agent_epoch_check(&none, &a, NULL), 1);
	assert_int_equal(agent_epoch_check(&a, &a, NULL), 0);
	assert_int_equal(agent_epoch_check(&a, &newer, NULL), 1);
	assert_true(agent_epoch_check(&a, &older, &err) < 0);
	assert_int_equal(err.status, ROS2_STALE_EPOCH);
	assert_true(agent_epoch_check(&a, &other, &err) < 0);
	assert_int_equal(err.status, ROS2_WRONG_DOMAIN);
	assert_true(agent_epoch_check(&a, &none, &err) < 0);
	assert_int_equal(err.status, ROS2_INVALID);
}

static void contact__counts_only_stamps_of_this_boot_that_were_sent(void **state)
{
	uint8_t boot[16] = {1};
	struct clock_stamp a, b, fake;
	struct contact c;

	contact_init(&c, boot);
	assert_false(contact_live(&c, UINT64_MAX, 1));
	a = contact_stamp(&c, 1000);
	b = contact_stamp(&c, 1000);
	assert_true(b.boottime_ns > a.boottime_ns);
	fake = a;
	fake.boottime_ns += 500000;
	assert_int_equal(contact_echo(&c, &fake, NULL), -EINVAL);
	fake = a;
	fake.boot_id[3] ^= 1;
	assert_int_equal(contact_echo(&c, &fake, NULL), -EINVAL);
	assert_false(contact_live(&c, 1000, 1000));
	assert_int_equal(contact_echo(&c, &b, NULL), 1);
	assert_int_equal(contact_echo(&c, &a, NULL), 0);
	assert_int_equal(c.last_ns, b.boottime_ns);
	assert_true(contact_live(&c, 1, b.boottime_ns + NS_PER_MS - 1));
	assert_false(contact_live(&c, 1, b.boottime_ns + NS_PER_MS));
}

static void contact__forgets_stamps_that_are_too_old(void **state)
{
	uint8_t boot[16] = {1};
	struct contact c;
	struct clock_stamp first;

	contact_init(&c, boot);
	first = contact_stamp(&c, 10);
	for (uint64_t i = 0; i < CONTACT_SENT_MAX; i++)
		contact_stamp(&c, 1000 + i);
	assert_int_equal(contact_echo(&c, &first, NULL), -EINVAL);
}

static void contact__survives_a_restart_but_not_a_reboot(void **state)
{
	uint8_t boot[16] = {1}, other[16] = {2}, file[CONTACT_FILE_LEN];
	struct contact_saved s = {.snapshot_sequence = 8}, got;
	struct contact c;

	memcpy(s.stamp.boot_id, boot, 16);
	s.stamp.boottime_ns = 5000;
	s.epoch.counter = 4;
	contact_encode(&s, file);
	assert_int_equal(contact_decode(file, sizeof(file), &got, NULL), 0);
	assert_int_equal(got.snapshot_sequence, 8);
	assert_int_equal(got.epoch.counter, 4);
	contact_init(&c, boot);
	assert_false(contact_restore(&c, &got, 4999));
	assert_true(contact_restore(&c, &got, 6000));
	assert_true(contact_live(&c, 1, 6000));
	contact_init(&c, other);
	assert_false(contact_restore(&c, &got, 6000));
	for (size_t i = 0; i < 76; i++) {
		file[i] ^= 4;
		assert_true(contact_decode(file, sizeof(file), &got, NULL) < 0);
		file[i] ^= 4;
	}
}

/* Replacing a snapshot fails at each step: what is read afterwards is one of the two, whole. */
static struct {
	int left;
	bool fired;
} fault;
static const struct fsx_ops *real;

static bool hit(void)
{
	if (fault.left < 0 || fault.left--)
		return false;
	fault.fired = true;
	errno = ENOSPC;
	return true;
}
static int f_open(const char *p, int flags, mode_t m)
{
	return hit() ? -1 : real->open(p, flags, m);
}
static ssize_t f_write(int fd, const void *p, size_t n)
{
	if (!hit())
		return real->write(fd, p, n);
	(void)!real->write(fd, p, n / 2);
	return -1;
}
static int f_fsync(int fd)
{
	return hit() ? -1 : real->fsync(fd);
}
static int f_rename(const char *a, const char *b)
{
	return hit() ? -1 : real->rename(a, b);
}

static void snapshot__stays_readable_whatever_write_fails(void **state)
{
	struct fsx_ops ops = *fsx_io;
	struct fixture f;
	struct seen orig = {0};
	char path[4200];
	size_t n;
	void *p;

	fixture_init(&f);
	p = build(&f, &n, &orig);
	testing_path(path, *state, "snapshot");
	real = fsx_io;
	ops.open = f_open;
	ops.write = f_write;
	ops.fsync = f_fsync;
	ops.rename = f_rename;
	assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
	for (int i = 0;; i++) {
		struct snapshot_reader rd = {.on_object = on_object, .on_drop = on_drop};
		struct seen got = {0};
		struct snapshot_info info;
		int r;

		fault.left = i;
		fault.fired = false;
		fsx_io = &ops;
		r = fsx_write_atomic(path, p, n, 0600, NULL);
		fsx_io = real;
		assert_int_equal(r < 0, fault.fired);
		rd.arg = &got;
		assert_int_equal(snapshot_load(path, &f.trust, 5, &rd, &info, NULL), 0);
		assert_int_equal(info.loaded, 3);
		seen_fini(&got);
		if (!fault.fired)
			break;
	}
	free(p);
	seen_fini(&orig);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(snapshot__gives_back_what_was_written),
		cmocka_unit_test(snapshot__believes_no_changed_byte),
		cmocka_unit_test(object__with_any_changed_byte_fails_its_seal),
		cmocka_unit_test(object__of_another_agent_is_refused),
		cmocka_unit_test(object__signed_by_another_key_is_refused),
		cmocka_unit_test(snapshot__of_another_agent_is_refused_whole),
		cmocka_unit_test(snapshot__that_was_rolled_back_is_refused_whole),
		cmocka_unit_test(snapshot__drops_objects_of_a_newer_epoch_or_another_lineage),
		cmocka_unit_test(snapshot__cut_at_any_length_gives_only_whole_objects),
		cmocka_unit_test(object__that_is_a_grant_for_more_than_31_days_is_refused),
		cmocka_unit_test(snapshot__tells_what_came_and_what_went_in_order),
		cmocka_unit_test(snapshot__cut_in_a_batch_ends_before_it),
		cmocka_unit_test(snapshot__damaged_before_a_whole_batch_is_refused_whole),
		cmocka_unit_test(snapshot__of_format_1_is_read),
		cmocka_unit_test(epoch__newer_is_stored_older_and_foreign_are_refused),
		cmocka_unit_test(contact__counts_only_stamps_of_this_boot_that_were_sent),
		cmocka_unit_test(contact__forgets_stamps_that_are_too_old),
		cmocka_unit_test(contact__survives_a_restart_but_not_a_reboot),
		cmocka_unit_test_setup_teardown(snapshot__stays_readable_whatever_write_fails,
	                                        testing_dir_setup, testing_dir_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

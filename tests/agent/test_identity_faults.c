/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each call that an enrolment and a renewal make of the disk fails, once and for good: what was
 * said to be done is whole, an enrolment is whole or not there, a renewal leaves a certificate that
 * fits the key, no temporary file stays, and the same again works, also when the power goes right
 * after it.
 */
#include "agent/identity.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/agent/enrolment.h"
#include "tests/common/disk_fsx.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static char *const dir = enrolment_dir;
static struct disk *disk;

/* NULL or what is wrong. */
static const char *check(bool enrolled)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct identity id;
	int r = identity_load(dir, "dpu-0", &id, &err);

	if (r == -ENOENT)
		return enrolled ? "an enrolment that was done is not there" : NULL;
	if (r < 0)
		return "the identity is damaged";
	return enrolment_bundle_is_whole("infra-bundle.pem") &&
	                       enrolment_bundle_is_whole("tenant-bundle.pem")
	               ? NULL
	               : "a bundle is damaged";
}

static bool has_leftovers(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found = false;

	while ((e = readdir(d)))
		found |= strstr(e->d_name, ".tmp-") != NULL;
	closedir(d);
	return found;
}

static void begin(struct disk_fsx_opts *o)
{
	mkdir(dir, 0700);
	disk = disk_new(dir);
	o->disk = disk;
	disk_arm(disk, UINT64_MAX);
}

static void end(void)
{
	disk_fsx_end();
	disk_free(disk);
	nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The disk is in order: the same again works and stays. Leaves what cannot be removed. */
static const char *again(int (*what)(void))
{
	const char *bad;

	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	if (fsx_sweep_tmp(dir, NULL) < 0)
		return "what was left cannot be removed";
	if (what())
		return "the same again fails";
	if (has_leftovers())
		return "a temporary file stays";
	disk_restore(disk, DISK_LOSE_UNSYNCED, 1);
	bad = check(true);
	return bad;
}

/* One round: call @at of @what fails. *ret_hit: it came to that. */
static const char *one(bool renewing, struct disk_fsx_opts *o, bool *ret_hit)
{
	const char *bad = NULL;
	bool done;

	begin(o);
	if (renewing) {
		disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
		assert_int_equal(enrolment_make(), 0);
	}
	disk_fsx_use(o);
	done = (renewing ? enrolment_renew() : enrolment_make()) == 0;
	*ret_hit = disk_fsx_faults() > 0;
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	bad = check(renewing || done);
	if (!bad)
		bad = again(renewing ? enrolment_renew : enrolment_make);
	end();
	return bad;
}

static void identity__holds_when_any_call_of_the_disk_fails(void **state)
{
	static const int errors[] = {EIO, ENOSPC, EACCES};

	for (int kind = 0; kind < 12; kind++) {
		bool renewing = kind & 1, hit = true;
		uint64_t at = 0;

		for (; hit; at++) {
			struct disk_fsx_opts o = {.fault_errno = errors[kind / 4],
			                          .fault_call = at,
			                          .fault_for_good = kind & 2};
			const char *bad = one(renewing, &o, &hit);

			if (bad)
				fail_msg("%s, errno %d, call %llu %s: %s",
				         renewing ? "renewal" : "enrolment", o.fault_errno,
				         (unsigned long long)at,
				         o.fault_for_good ? "and all after it" : "once", bad);
		}
		assert_true(at > (renewing ? 3 : 15));
	}
}

/* A bundle lets people in: as long as its name cannot be synced it does not count as stored, though
 * it is found there. */
static void bundle__counts_as_stored_when_its_directory_is_synced(void **state)
{
	struct disk_fsx_opts o = {
		.fault_errno = EIO, .fault_path = "=/state", .fault_for_good = true};
	struct disk_fsx_opts none = {0};
	struct ros2_err err = ROS2_ERR_INIT;
	char more[65536], path[600];
	void *p = NULL;
	size_t n = 0, len = (size_t)snprintf(more, sizeof(more), "%.*s\n", (int)enrolment_ca_len,
	                                     (const char *)enrolment_ca);

	begin(&none);
	disk_fsx_use(&none);
	assert_int_equal(enrolment_make(), 0);
	o.disk = disk;
	disk_fsx_use(&o);
	for (int i = 0; i < 3; i++)
		assert_int_equal(identity_store_bundle(dir, "tenant-bundle.pem", more, len, &err),
		                 -EIO);
	assert_true(strlen(err.msg) > 0);
	disk_fsx_use(&none);
	assert_true(identity_store_bundle(dir, "tenant-bundle.pem", more, len, &err) >= 0);
	disk_arm(disk, 0);
	disk_restore(disk, DISK_LOSE_UNSYNCED, 1);
	snprintf(path, sizeof(path), "%s/tenant-bundle.pem", dir);
	disk_fsx_use(&none);
	assert_int_equal(fsx_read_file(path, sizeof(more), &p, &n, NULL), 0);
	assert_int_equal(n, len);
	assert_memory_equal(p, more, len);
	free(p);
	end();
}

/* A read that fails is told as that: nobody is sent to enrol again for it. */
static void identity__that_cannot_be_read_is_not_called_damaged(void **state)
{
	struct sweep s = {.kind = SWEEP_READ, .error = EIO};
	struct disk_fsx_opts o = {0};

	begin(&o);
	assert_int_equal(enrolment_make(), 0);
	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		uint64_t in_s = 0;
		struct identity id;
		bool was_asked; /* it failed in there, once */
		int r = identity_load(dir, "dpu-0", &id, &err);

		/* Nor is it made anew, when the token file was left where it was. */
		if (identity_must_enrol(dir, "dpu-0", r, &err, true))
			fail_msg("read %u: made anew", s.at);
		was_asked = !r && sweep_fired();
		if (!r)
			r = identity_check_certificate(dir, "dpu-0", &in_s, &err);
		if (!r)
			r = enrolment_renew();
		sweep_off();
		if (sweep_fired() && !(was_asked && !s.persistent)) {
			assert_int_equal(r, -EIO);
			assert_int_not_equal(err.status, ROS2_CORRUPT);
			assert_int_not_equal(err.status, ROS2_UNAUTHENTICATED);
		}
		assert_null(check(true));
		assert_int_equal(enrolment_renew(), 0);
	}
	assert_true(s.points >= 10);
	end();
}

static void identity__is_made_anew_only_where_that_mends_it(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct disk_fsx_opts o = {0};
	struct identity id;
	char path[600];
	int r;

	begin(&o);
	r = identity_load(dir, "dpu-0", &id, &err);
	assert_true(identity_must_enrol(dir, "dpu-0", r, &err, false));
	assert_int_equal(enrolment_make(), 0);
	r = identity_load(dir, "dpu-1", &id, &err);
	assert_true(r < 0);
	assert_false(identity_must_enrol(dir, "dpu-1", r, &err, true));
	snprintf(path, sizeof(path), "%s/snapshot.pub", dir);
	assert_int_equal(fsx_write_atomic(path, "x", 1, 0600, NULL), 0);
	r = identity_load(dir, "dpu-0", &id, &err);
	assert_true(identity_must_enrol(dir, "dpu-0", r, &err, true));
	assert_false(identity_must_enrol(dir, "dpu-0", r, &err, false));
	end();
}

/* A token of another authority than the identity's. */
static void other_token(struct join_token *t)
{
	char key[600], crt[600];
	struct pki_ca_opts other = {.common_name = "other",
	                            .trust_domain = "ros2.test",
	                            .key_path = key,
	                            .cert_path = crt,
	                            .lifetime_s = 3600};

	snprintf(key, sizeof(key), "%s/other.key", enrolment_parent);
	snprintf(crt, sizeof(crt), "%s/other.crt", enrolment_parent);
	if (access(crt, F_OK) < 0) {
		assert_int_equal(pki_key_create(key, NULL), 0);
		assert_int_equal(pki_ca_create(&other, NULL), 0);
	}
	*t = (struct join_token){.agent = "dpu-0", .secret = "s", .trust_domain = "ros2.test"};
	assert_int_equal(fsx_read_file(crt, 65536, (void **)&t->bundle_pem, &t->bundle_len, NULL),
	                 0);
}

/* Whom the agent believes is another matter only when the controller has answered. */
static void enrolment__that_only_begins_leaves_the_bundle(void **state)
{
	struct join_token t;
	struct enrol_opts eo = {.dir = dir, .address = "127.0.0.1:1", .token = &t};
	struct disk_fsx_opts o = {0};
	struct enrol *e = NULL;

	begin(&o);
	assert_int_equal(enrolment_make(), 0);
	other_token(&t);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &eo.loop), 0);
	assert_int_equal(enrol_start(&eo, &e, NULL), 0);
	assert_true(enrolment_bundle_is_whole("infra-bundle.pem"));
	enrol_free(e);
	loop_free(eo.loop);
	assert_true(enrolment_bundle_is_whole("infra-bundle.pem"));
	assert_null(check(true));
	join_token_fini(&t);
	end();
}

static int begin_with_other_token(struct disk_fsx_opts *o, bool *ret_believes_its_own)
{
	struct join_token t;
	struct enrol_opts eo = {.dir = dir, .address = "127.0.0.1:1", .token = &t};
	struct enrol *e = NULL;
	AUTO_FREE void *p = NULL;
	char path[600];
	size_t n = 0;
	int r;

	other_token(&t);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &eo.loop), 0);
	disk_fsx_use(o);
	r = enrol_start(&eo, &e, NULL);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	snprintf(path, sizeof(path), "%s/join-ca.pem", dir);
	*ret_believes_its_own = fsx_read_file(path, 65536, &p, &n, NULL) == 0 &&
	                        n == t.bundle_len && !memcmp(p, t.bundle_pem, n);
	enrol_free(e);
	loop_free(eo.loop);
	join_token_fini(&t);
	return r;
}

/* One that was killed leaves the authority of its token behind: nobody believes it, neither the
 * agent that is enrolled nor an enrolment with another token, also when that finds no room. */
static void enrolment__believes_no_authority_that_one_before_it_left(void **state)
{
	struct disk_fsx_opts o = {0}, full = {.fault_errno = ENOSPC,
	                                      .fault_path = ".join-ca.pem.tmp-",
	                                      .fault_for_good = true};
	char path[600];
	bool own;

	begin(&o);
	full.disk = disk;
	assert_int_equal(enrolment_make(), 0);
	snprintf(path, sizeof(path), "%s/join-ca.pem", dir);
	assert_int_equal(fsx_write_atomic(path, enrolment_ca, enrolment_ca_len, 0644, NULL), 0);
	assert_null(check(true));
	assert_int_equal(begin_with_other_token(&full, &own), -ENOSPC);
	assert_int_equal(fsx_write_atomic(path, enrolment_ca, enrolment_ca_len, 0644, NULL), 0);
	assert_int_equal(begin_with_other_token(&o, &own), 0);
	assert_true(own);
	assert_int_equal(access(path, F_OK), -1);
	assert_false(has_leftovers());
	assert_null(check(true));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identity__holds_when_any_call_of_the_disk_fails),
		cmocka_unit_test(bundle__counts_as_stored_when_its_directory_is_synced),
		cmocka_unit_test(identity__that_cannot_be_read_is_not_called_damaged),
		cmocka_unit_test(identity__is_made_anew_only_where_that_mends_it),
		cmocka_unit_test(enrolment__that_only_begins_leaves_the_bundle),
		cmocka_unit_test(enrolment__believes_no_authority_that_one_before_it_left),
	};

	return cmocka_run_group_tests(tests, enrolment_setup, enrolment_teardown);
}

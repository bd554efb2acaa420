/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every call of an enrolment, of a renewal and of bundles that are replaced. An
 * enrolment that was said to be done is whole; one that was not is not there, or whole; a renewal
 * leaves a certificate that fits the key; one that is made in the place of another is that as soon
 * as it counts; of a bundle there is the one before or the next, and the
 * next when it was said to be stored. Negative controls: without the fsync of any one of the files,
 * the sweep finds losses.
 */
#include "agent/identity.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/agent/enrolment.h"
#include "tests/await.h"
#include "tests/common/disk_fsx.h"
#include "tests/testing.h"
#include <errno.h>
#include <sys/stat.h>

static char *const dir = enrolment_dir;
static char ended_dir[512];
static struct disk *disk;

/* An identity whose certificate has ended, in a directory of its own. */
static int make_ended(void)
{
	uint64_t in_s;
	int r = -1;

	mkdir(dir, 0700);
	/* It lives whole seconds from the last one on: it may end before it is stored, and then it
	 * is refused. */
	for (uint64_t life_s = 1; r && life_s <= 16; life_s *= 2)
		r = enrolment_as(9, life_s);
	if (!r && !AWAIT(identity_check_certificate(dir, "dpu-0", &in_s, NULL)))
		r = -ETIMEDOUT;
	return r ? r : rename(dir, ended_dir);
}

static int group_setup(void **state)
{
	int r = enrolment_setup(state);

	snprintf(ended_dir, sizeof(ended_dir), "%s/ended", enrolment_parent);
	return r ? r : make_ended();
}

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

static const char *cut_at(uint64_t call, enum disk_loss loss, const char *no_fsync, bool *ret_done)
{
	const char *bad;
	bool enrolled;

	mkdir(dir, 0700);
	disk = disk_new(dir);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	enrolled = enrolment_make() == 0;
	*ret_done = enrolled && enrolment_renew() == 0;
	disk_restore(disk, loss, call + 1);
	bad = check(enrolled);
	disk_fsx_end();
	disk_free(disk);
	nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return bad;
}

static void copy_ended(const char *name)
{
	char from[600], to[600];
	AUTO_FREE void *p = NULL;
	size_t len;

	snprintf(from, sizeof(from), "%s/%s", ended_dir, name);
	snprintf(to, sizeof(to), "%s/%s", dir, name);
	assert_int_equal(fsx_read_file(from, 65536, &p, &len, NULL), 0);
	assert_int_equal(fsx_write_atomic(to, p, len, 0600, NULL), 0);
}

/* The Agent document was made again, and the agent has a token because its certificate has ended,
 * or a file is damaged. What counts after the cut is what the controller knows, or the token is
 * used once more. */
static const char *cut_another(bool damaged, uint64_t call, enum disk_loss loss,
                               const char *no_fsync, bool *ret_done)
{
	static const char *const names[] = {"infra-bundle.pem", "tenant-bundle.pem",
	                                    "snapshot.pub",     "tls.key",
	                                    "tls.crt",          "identity.json"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct identity id;
	bool again = true; /* it may be enrolled */
	char path[600];
	int r;

	mkdir(dir, 0700);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		copy_ended(names[i]);
	snprintf(path, sizeof(path), "%s/snapshot.pub", dir);
	if (damaged) {
		assert_int_equal(enrolment_renew(), 0);
		assert_int_equal(fsx_write_atomic(path, "x", 1, 0600, NULL), 0);
	}
	r = identity_load(dir, "dpu-0", &id, &err);
	assert_true(identity_must_enrol(dir, "dpu-0", r, &err, true));
	disk = disk_new(dir);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	*ret_done = enrolment_as(10, ENROLMENT_LIFE_S) == 0;
	disk_restore(disk, loss, call + 1);
	r = identity_load(dir, "dpu-0", &id, &err);
	if (r || id.agent_uid.b[0] != 10)
		again = !*ret_done && identity_must_enrol(dir, "dpu-0", r, &err, true);
	disk_fsx_end();
	disk_free(disk);
	nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return again ? NULL : "who it is now does not count, nor does its token";
}

static const char *cut_ended(uint64_t call, enum disk_loss loss, const char *no_fsync,
                             bool *ret_done)
{
	return cut_another(false, call, loss, no_fsync, ret_done);
}

static const char *cut_damaged(uint64_t call, enum disk_loss loss, const char *no_fsync,
                               bool *ret_done)
{
	return cut_another(true, call, loss, no_fsync, ret_done);
}

/* Some lines more each time. */
static char *bundle_text(unsigned n)
{
	char *text;

	assert_true(asprintf(&text, "%.*s%.*s", (int)enrolment_ca_len, (const char *)enrolment_ca,
	                     (int)n, "\n\n\n\n\n\n\n\n") > 0);
	return text;
}

#define BUNDLES 4 /* one after the other, in the place of the first */

/* NULL or what is wrong; so many were said to be stored. */
static const char *check_bundle(const char *name, unsigned stored)
{
	char path[600];
	AUTO_FREE char *have = NULL;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (fsx_read_file(path, 65536, (void **)&have, &len, NULL) < 0)
		return "a bundle is gone";
	for (unsigned n = stored; n <= stored + 1; n++) {
		AUTO_FREE char *want = bundle_text(n);

		if (!strcmp(have, want))
			return NULL;
	}
	return "a bundle is torn, or one that was said to be stored is lost";
}

static const char *cut_bundles(uint64_t call, enum disk_loss loss, const char *no_fsync,
                               bool *ret_done)
{
	static const char *const names[] = {"infra-bundle.pem", "tenant-bundle.pem"};
	unsigned stored[ARRAY_SIZE(names)] = {0};
	const char *bad = NULL;

	mkdir(dir, 0700);
	disk = disk_new(dir);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	assert_int_equal(enrolment_make(), 0);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	for (unsigned i = 0; i < BUNDLES * ARRAY_SIZE(names); i++) {
		const char *name = names[i % ARRAY_SIZE(names)];
		AUTO_FREE char *text = bundle_text(i / ARRAY_SIZE(names) + 1);

		if (identity_store_bundle(dir, name, text, strlen(text), NULL) < 0)
			break;
		stored[i % ARRAY_SIZE(names)]++;
	}
	*ret_done = stored[ARRAY_SIZE(names) - 1] == BUNDLES;
	disk_restore(disk, loss, call + 1);
	for (size_t i = 0; i < ARRAY_SIZE(names) && !bad; i++)
		bad = check_bundle(names[i], stored[i]);
	disk_fsx_end();
	disk_free(disk);
	nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return bad;
}

typedef const char *cut_fn(uint64_t call, enum disk_loss loss, const char *no_fsync,
                           bool *ret_done);

static const char *sweep(cut_fn *cut, enum disk_loss loss, const char *no_fsync,
                         uint64_t *ret_calls)
{
	const char *bad = NULL;
	bool done = false;

	for (*ret_calls = 0; !done && !bad; (*ret_calls)++)
		bad = cut(*ret_calls, loss, no_fsync, &done);
	return bad;
}

static void at_any_call(cut_fn *cut, uint64_t least)
{
	for (enum disk_loss loss = DISK_LOSE_UNSYNCED; loss <= DISK_TEAR; loss++) {
		uint64_t calls;
		const char *bad = sweep(cut, loss, NULL, &calls);

		if (bad)
			fail_msg("cut at call %llu: %s", (unsigned long long)calls - 1, bad);
		assert_true(calls > least);
	}
}

static void identity__is_whole_or_not_there_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_at, 30);
}

static void identity__in_the_place_of_another_is_that_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_ended, 20);
	at_any_call(cut_damaged, 20);
}

static void bundle__is_the_one_before_or_the_next_after_a_power_cut_at_any_call(void **state)
{
	at_any_call(cut_bundles, 2 * BUNDLES * 4);
}

static void found(cut_fn *cut, const char *const *kinds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t calls;

		if (!sweep(cut, DISK_LOSE_UNSYNCED, kinds[i], &calls))
			fail_msg("nothing is lost without the fsyncs of %s", kinds[i]);
	}
}

static void power__sweep_finds_the_losses_without_the_fsync_of_any_one_file(void **state)
{
	static const char *const kinds[] = {".infra-bundle.pem.tmp-",
	                                    ".tenant-bundle.pem.tmp-",
	                                    ".snapshot.pub.tmp-",
	                                    ".tls.key.tmp-",
	                                    ".tls.crt.tmp-",
	                                    ".identity.json.tmp-",
	                                    "=/state"};
	static const char *const another[] = {".snapshot.pub.tmp-", ".tls.crt.tmp-",
	                                      ".identity.json.tmp-", "=/state"};
	static const char *const bundles[] = {".infra-bundle.pem.tmp-", ".tenant-bundle.pem.tmp-",
	                                      "=/state"};

	found(cut_at, kinds, ARRAY_SIZE(kinds));
	found(cut_ended, another, ARRAY_SIZE(another));
	found(cut_bundles, bundles, ARRAY_SIZE(bundles));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identity__is_whole_or_not_there_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			identity__in_the_place_of_another_is_that_after_a_power_cut_at_any_call),
		cmocka_unit_test(
			bundle__is_the_one_before_or_the_next_after_a_power_cut_at_any_call),
		cmocka_unit_test(power__sweep_finds_the_losses_without_the_fsync_of_any_one_file),
	};

	return cmocka_run_group_tests(tests, group_setup, enrolment_teardown);
}

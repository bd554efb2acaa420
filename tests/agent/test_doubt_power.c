/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power of the disk is cut where the agent takes back what its own files would give after a
 * start: the stamp, before a receipt says that a revocation found no room (written over, or where
 * even that finds none, removed), and likewise for a bundle that names somebody no more; and the
 * snapshot, when the log of revocations is damaged, whose epoch stays. Negative controls: without
 * the fsync of each, the sweep finds that a start has the right again, or has forgotten the epoch.
 */
#include "tests/agent/history.h"
#include "agent/bundles.h"
#include "agent/identity.h"
#include "common/log.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <sys/stat.h>

#define SEED    74
#define REVOKED 102 /* the tenant alpha: see hist_send_revoke */

#define LATER_EPOCH 4
#define GIVEN       "after a damaged log what was revoked works again"
#define FORGOTTEN   "after a damaged log an epoch that was acted on is forgotten"

static Ros2__V1__AgentObject *alpha(void)
{
	return fix_tenant(&hist.fix, "alpha", FIX_ALPHA, 2, 2);
}

static void begin(void)
{
	Ros2__V1__AgentObject *objs[2];

	hist.slack = 0;
	hist.ends_when_fatal = true;
	hist_begin(NULL);
	hist.fix.epoch.counter = 3;
	assert_true(hist_boot());
	hist_epoch(3);
	objs[0] = fix_engine(&hist.fix, "files", 1, 1);
	objs[1] = alpha();
	hist_delta(1, objs, 2);
	hist_beat();
}

static void end(void)
{
	hist_die();
	hist.ends_when_fatal = false;
	hist_end();
}

/* ---- no room for a revocation ---- */

struct cut {
	bool copies; /* the disk has no room to write over something, either */
	enum disk_loss loss;
	const char *no_fsync;
	uint64_t call;
	unsigned seed;
	bool done;
};

/* NULL or what is wrong. */
static const char *no_room_at(struct cut *c)
{
	struct disk_fsx_opts full = {.fault_errno = ENOSPC,
	                             .fault_path = c->copies ? NULL : "=/revocations",
	                             .fault_for_good = true,
	                             .no_fsync = c->no_fsync};
	const char *bad = NULL;
	bool told;

	begin();
	assert_true(hist.agent->contact.known);
	full.disk = hist.disk;
	disk_fsx_use(&full);
	disk_arm(hist.disk, c->call);
	hist_send_revoke(REVOKED);
	c->done = !disk_is_off(hist.disk);
	told = hist.told.n_unwritten > 0;
	assert_int_equal(hist.told.n_receipts, 0);
	assert_true(told || !c->done);
	hist_die();
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk});
	disk_restore(hist.disk, c->loss, SEED + c->call);
	if (!hist_boot())
		bad = "the agent does not start";
	else if (told && hist.agent->contact.known)
		bad = "a start knows of contact, and not of a revocation that was answered";
	end();
	return bad;
}

static const char *sweep_no_room(bool copies, enum disk_loss loss, const char *no_fsync)
{
	struct cut c = {.copies = copies, .loss = loss, .no_fsync = no_fsync};
	const char *bad = NULL;

	for (; !c.done && !bad; c.call++)
		bad = no_room_at(&c);
	if (!bad)
		assert_true(c.call > 2);
	return bad;
}

static void stamp__is_off_the_disk_before_a_receipt_says_not_durable(void **state)
{
	for (int i = 0; i < 4; i++) {
		const char *bad =
			sweep_no_room(i % 2, i / 2 ? DISK_TEAR : DISK_LOSE_UNSYNCED, NULL);

		if (bad)
			fail_msg("%s%s", i % 2 ? "without room to write over: " : "", bad);
	}
}

static void power__sweep_finds_a_stamp_that_was_written_over_without_its_fsync(void **state)
{
	assert_non_null(sweep_no_room(false, DISK_LOSE_UNSYNCED, "=/contact"));
}

static void power__sweep_finds_a_stamp_that_was_removed_without_its_fsync(void **state)
{
	assert_non_null(sweep_no_room(true, DISK_LOSE_UNSYNCED, "=/state"));
}

/* ---- no room for a bundle ---- */

static char *authorities[2]; /* of two, and of the first */

static void make_authority(const char *parent, const char *name, char **ret)
{
	char key[600], crt[600];
	struct pki_ca_opts o = {.common_name = name,
	                        .trust_domain = "ros2.test",
	                        .key_path = key,
	                        .cert_path = crt,
	                        .lifetime_s = 3600};
	size_t len;

	snprintf(key, sizeof(key), "%s/%s.key", parent, name);
	snprintf(crt, sizeof(crt), "%s/%s.crt", parent, name);
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
	assert_int_equal(fsx_read_file(crt, PKI_PEM_MAX, (void **)ret, &len, NULL), 0);
}

static void make_authorities(void)
{
	AUTO_FREE char *second = NULL;
	char *parent;

	assert_int_equal(testing_dir_setup((void **)&parent), 0);
	make_authority(parent, "first", &authorities[1]);
	make_authority(parent, "second", &second);
	assert_true(asprintf(&authorities[0], "%s%s", authorities[1], second) > 0);
	testing_dir_teardown((void **)&parent);
}

static void give_bundle(const char *pem)
{
	bundles_take(hist.agent->bundles, BUNDLE_INFRA, pem, strlen(pem));
	hist_settle();
}

/* What names one authority less is in force, and the disk has the old one. */
static const char *no_room_for_bundle_at(struct cut *c)
{
	struct disk_fsx_opts full = {.fault_errno = ENOSPC,
	                             .fault_path = c->copies ? NULL : ".infra-bundle.pem.tmp-",
	                             .fault_for_good = true,
	                             .no_fsync = c->no_fsync};
	const char *bad = NULL;
	bool held;

	begin();
	give_bundle(authorities[0]);
	assert_true(hist.agent->contact.known);
	assert_null(bundles_unwritten(hist.agent->bundles, BUNDLE_INFRA));
	full.disk = hist.disk;
	disk_fsx_use(&full);
	disk_arm(hist.disk, c->call);
	give_bundle(authorities[1]);
	c->done = !disk_is_off(hist.disk);
	assert_non_null(bundles_unwritten(hist.agent->bundles, BUNDLE_INFRA));
	held = !persist_is_ahead_of_disk(hist.agent->persist);
	assert_true(held || !c->done);
	hist_die();
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk});
	disk_restore(hist.disk, c->loss, SEED + c->call);
	if (!hist_boot())
		bad = "the agent does not start";
	else if (held && hist.agent->contact.known)
		bad = "a start knows of contact, and not of a bundle that is in force";
	end();
	return bad;
}

static const char *sweep_no_room_for_bundle(bool copies, enum disk_loss loss, const char *no_fsync)
{
	struct cut c = {.copies = copies, .loss = loss, .no_fsync = no_fsync};
	const char *bad = NULL;

	for (; !c.done && !bad; c.call++)
		bad = no_room_for_bundle_at(&c);
	if (!bad)
		assert_true(c.call > 2);
	return bad;
}

static void stamp__is_off_the_disk_when_a_bundle_that_takes_finds_no_room(void **state)
{
	for (int i = 0; i < 4; i++) {
		const char *bad = sweep_no_room_for_bundle(
			i % 2, i / 2 ? DISK_TEAR : DISK_LOSE_UNSYNCED, NULL);

		if (bad)
			fail_msg("%s%s", i % 2 ? "without room to write over: " : "", bad);
	}
}

static void power__sweep_finds_a_stamp_that_outlives_a_bundle(void **state)
{
	assert_non_null(sweep_no_room_for_bundle(false, DISK_LOSE_UNSYNCED, "=/contact"));
	assert_non_null(sweep_no_room_for_bundle(true, DISK_LOSE_UNSYNCED, "=/state"));
}

/* ---- a damaged log ---- */

/* Its first entry says something else. */
static void damage(void)
{
	char path[4200];
	int fd;

	testing_path(path, hist.dir, "revocations");
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "????", 4, 4), 4);
	close(fd);
}

static bool gives_alpha(void)
{
	struct ros2_uid uid = fix_uid(2);
	struct state_tenant now;

	return state_tenant_get(hist.agent->state, &uid, &now) == 0 && !now.revoked;
}

static bool forgot_epoch(void)
{
	return hist.agent->epoch.counter < LATER_EPOCH;
}

/* The epoch came after contact was written: only the snapshot names it. */
static const char *damaged_at(struct cut *c)
{
	const char *bad = NULL;

	begin();
	hist_epoch(LATER_EPOCH);
	hist_send_revoke(REVOKED);
	assert_int_equal(hist.told.n_receipts, 1);
	agent_free(hist.agent);
	hist.agent = NULL;
	damage();
	disk_free(hist.disk);
	hist.disk = disk_new(hist.dir);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk, .no_fsync = c->no_fsync});
	disk_arm(hist.disk, c->call);
	if (hist_boot())
		bad = gives_alpha()    ? "a start with a damaged log gives what was revoked"
		      : forgot_epoch() ? "a start with a damaged log forgets the epoch"
		                       : NULL;
	c->done = !disk_is_off(hist.disk);
	hist_die();
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk});
	disk_restore(hist.disk, c->loss, SEED + c->seed * 1000 + c->call);
	if (!bad && !hist_boot())
		bad = "the agent does not start";
	else if (!bad && gives_alpha())
		bad = GIVEN;
	else if (!bad && forgot_epoch())
		bad = FORGOTTEN;
	end();
	return bad;
}

/* Which names reach the disk without a sync is left to chance. With @only nothing else is looked
 * for. */
static const char *sweep_damaged(enum disk_loss loss, const char *no_fsync, const char *only)
{
	struct cut c = {.loss = loss, .no_fsync = no_fsync};
	const char *bad = NULL;

	for (; c.seed < 16 && !bad; c.seed++) {
		c.done = false;
		for (c.call = 0; !c.done && !bad; c.call++) {
			bad = damaged_at(&c);
			if (only && bad && strcmp(bad, only) != 0)
				bad = NULL;
		}
		assert_true(bad || c.call > 8);
	}
	return bad;
}

static void snapshot__is_gone_before_a_damaged_log_is_replaced(void **state)
{
	const char *bad = sweep_damaged(DISK_TEAR, NULL, NULL);

	bad = bad ? bad : sweep_damaged(DISK_LOSE_UNSYNCED, NULL, NULL);
	if (bad)
		fail_msg("%s", bad);
}

static void power__sweep_finds_a_snapshot_that_was_removed_without_its_fsync(void **state)
{
	assert_non_null(sweep_damaged(DISK_TEAR, "=/state", GIVEN));
}

static void power__sweep_finds_an_epoch_that_was_kept_without_its_fsync(void **state)
{
	assert_non_null(sweep_damaged(DISK_LOSE_UNSYNCED, ".contact.tmp-", FORGOTTEN));
}

static int group_setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR + 1);
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	fixture_init(&hist.fix);
	make_authorities();
	return 0;
}

static int group_teardown(void **state)
{
	fixture_fini(&hist.fix);
	for (size_t i = 0; i < ARRAY_SIZE(authorities); i++)
		free(authorities[i]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stamp__is_off_the_disk_before_a_receipt_says_not_durable),
		cmocka_unit_test(
			power__sweep_finds_a_stamp_that_was_written_over_without_its_fsync),
		cmocka_unit_test(power__sweep_finds_a_stamp_that_was_removed_without_its_fsync),
		cmocka_unit_test(stamp__is_off_the_disk_when_a_bundle_that_takes_finds_no_room),
		cmocka_unit_test(power__sweep_finds_a_stamp_that_outlives_a_bundle),
		cmocka_unit_test(snapshot__is_gone_before_a_damaged_log_is_replaced),
		cmocka_unit_test(power__sweep_finds_a_snapshot_that_was_removed_without_its_fsync),
		cmocka_unit_test(power__sweep_finds_an_epoch_that_was_kept_without_its_fsync),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

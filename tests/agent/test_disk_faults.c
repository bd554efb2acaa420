/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The history of tests/agent/history.h, in which each call that touches the disk fails, once and
 * for good, with EIO, ENOSPC and EINTR; and with short writes. The process ends or goes on; when
 * the power goes after it, nothing that it told is lost; revocations are carried out; and once the
 * fault has gone what did not get through does. Likewise when another process has begun before the
 * power goes, and told what it found, which the failed call may have left in the page cache only.
 */
#include "tests/agent/history.h"
#include "common/log.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SEED       72
#define LAST_EPOCH 5

static void try_again(void)
{
	for (int i = 0; i < 10 && hist.agent && !hist_has_ended(); i++) {
		hist_settle();
		if (!hist_retry())
			return;
	}
}

static bool has_receipt(uint8_t seed)
{
	for (unsigned i = 0; i < hist.told.n_receipts; i++)
		if (hist.told.receipts[i] == seed)
			return true;
	return false;
}

static bool was_told(const struct told_object *o)
{
	for (unsigned i = 0; i < hist.told.n_objects; i++)
		if (hist.told.objects[i].kind == o->kind &&
		    ros2_uid_eq(&hist.told.objects[i].uid, &o->uid))
			return hist.told.objects[i].version >= o->version;
	return false;
}

/* It lives, and its disk works again or not. */
static const char *check_alive(bool for_good)
{
	static const struct {
		uint8_t uid;
		enum obj_kind kind;
		uint64_t version;
	} last[] = {{1, OBJ_ENGINE, 9}, {3, OBJ_TENANT, 8}};
	struct ros2_uid grant = fix_uid(10);

	hist.n_have = 0;
	state_each_have(hist.agent->state, hist_collect_have, NULL);
	for (unsigned i = 0; i < hist.n_have; i++)
		if (hist.now_have[i].kind == OBJ_GRANT &&
		    ros2_uid_eq(&hist.now_have[i].uid, &grant))
			return "a grant is there although it was revoked";
	if (for_good)
		return NULL;
	if (hist.told.epoch != LAST_EPOCH)
		return "an epoch is not durable although the fault has gone";
	for (size_t i = 0; i < sizeof(last) / sizeof(last[0]); i++) {
		struct told_object o = {last[i].kind, fix_uid(last[i].uid), last[i].version};

		if (!hist_in_have(&o) || !was_told(&o))
			return "an object did not get through although the fault has gone";
	}
	for (unsigned i = 0; i < hist.told.n_revoked; i++) {
		if (!has_receipt(hist.told.revoked[i]))
			hist_send_revoke(hist.told.revoked[i]);
		if (!has_receipt(hist.told.revoked[i]))
			return "a revocation is not durable although the fault has gone";
	}
	return NULL;
}

/* The machine goes on. The controller repeats revocations that it has no receipt for. */
static const char *starts_again(void)
{
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk});
	disk_arm(hist.disk, UINT64_MAX);
	if (!hist_boot())
		return "the agent does not start again";
	for (unsigned i = 0; i < hist.told.n_revoked; i++)
		if (!has_receipt(hist.told.revoked[i]))
			hist_send_revoke(hist.told.revoked[i]);
	hist_die();
	return NULL;
}

static const char *fails(const struct disk_fsx_opts *o, bool again, bool *ret_fired)
{
	struct disk_fsx_opts with = *o;
	const char *bad = NULL;

	hist.slack = o->fault_call % 2;
	hist_begin(NULL);
	with.disk = hist.disk;
	disk_fsx_use(&with);
	hist.ends_when_fatal = true;
	hist.fatals = 0;
	hist_live();
	if (hist.agent && !hist_has_ended())
		hist_epoch(LAST_EPOCH); /* nothing comes after it that would write it, too */
	try_again();
	*ret_fired = disk_fsx_faults() > 0;
	if (o->fault_errno == ENOSPC && hist.fatals)
		bad = "the process ended for want of space";
	else if (hist.agent && !hist_has_ended())
		bad = check_alive(o->fault_for_good);
	hist_die();
	hist.ends_when_fatal = false;
	if (!bad && again)
		bad = starts_again();
	disk_fsx_use(&(struct disk_fsx_opts){.disk = hist.disk});
	disk_restore(hist.disk, DISK_LOSE_UNSYNCED, SEED);
	if (!bad)
		bad = hist_boot() ? hist_compare() : "the agent does not start";
	hist_die();
	hist_end();
	return bad;
}

static void sweep_faults(int error, bool for_good, bool again)
{
	struct disk_fsx_opts o = {.fault_errno = error, .fault_for_good = for_good};
	bool fired = true;

	for (; fired; o.fault_call++) {
		const char *bad = fails(&o, again, &fired);

		if (bad)
			fail_msg("call %llu, %s%s%s: %s", (unsigned long long)o.fault_call,
			         strerror(error), for_good ? " for good" : "",
			         again ? ", then another start" : "", bad);
	}
	assert_true(o.fault_call > (error == ENOSPC ? 30 : 80));
}

static void agent__keeps_what_it_told_when_any_call_fails_once(void **state)
{
	sweep_faults(EIO, false, false);
	sweep_faults(ENOSPC, false, false);
	sweep_faults(EINTR, false, false);
}

static void agent__keeps_what_it_told_when_calls_fail_for_good(void **state)
{
	sweep_faults(EIO, true, false);
	sweep_faults(ENOSPC, true, false);
}

static void agent__keeps_what_the_next_process_told_when_a_call_failed_before(void **state)
{
	sweep_faults(EIO, false, true);
	sweep_faults(ENOSPC, false, true);
}

static void agent__writes_all_of_it_by_short_writes(void **state)
{
	struct disk_fsx_opts o = {.short_writes = true};
	bool fired;

	assert_null(fails(&o, false, &fired));
}

static int group_setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR + 1);
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	fixture_init(&hist.fix);
	return 0;
}

static int group_teardown(void **state)
{
	fixture_fini(&hist.fix);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agent__keeps_what_it_told_when_any_call_fails_once),
		cmocka_unit_test(agent__keeps_what_it_told_when_calls_fail_for_good),
		cmocka_unit_test(agent__keeps_what_the_next_process_told_when_a_call_failed_before),
		cmocka_unit_test(agent__writes_all_of_it_by_short_writes),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole agent (its data plane is fake_dp, its gRPC service is left out) lives through a fixed
 * history of deltas, grants, revocations, audit records and beats, and ends at each call that
 * changes a file: the power is cut (unsynced gone; unsynced torn), or the process is killed,
 * started again, tells the controller what it has, and then the power is cut. After the next start
 * everything it has told anybody must be true: acknowledged and reported objects are there,
 * receipts that said `durable` have their tombstones, widening operations that went on have their
 * audit records. Negative controls: without any one kind of our fsyncs the sweep finds losses.
 */
#include "agent/agent.h"
#include "agent/service.h"
#include "agent/uplink_priv.h"
#include "tests/agent/fake_dp.h"
#include "tests/agent/fixture.h"
#include "tests/agent/step_writer.h"
#include "tests/common/disk_fsx.h"
#include "common/log.h"
#include "common/clock.h"
#include <errno.h>
#include <sys/stat.h>

#define SEED     71
#define TOLD_MAX 256

/* ---- what was told ---- */

struct told_object {
	enum obj_kind kind;
	struct ros2_uid uid;
	uint64_t version;
};
static struct {
	struct told_object objects[TOLD_MAX], sent[TOLD_MAX]; /* sent: by nonce */
	uint64_t nonce_of[TOLD_MAX];
	unsigned n_objects, n_sent;
	uint8_t receipts[TOLD_MAX]; /* seeds of revocations with a durable receipt */
	unsigned n_receipts;
	uint8_t revoked[TOLD_MAX]; /* that were sent, with or without a receipt */
	unsigned n_revoked;
	char records[TOLD_MAX][16]; /* of operations that went on */
	unsigned n_records;
	uint64_t epoch; /* acted on */
	bool grants_dead;
} told;

static void tell_object(enum obj_kind kind, const struct ros2_uid *uid, uint64_t version)
{
	assert_true(told.n_objects < TOLD_MAX);
	for (unsigned i = 0; i < told.n_objects; i++) {
		struct told_object *o = &told.objects[i];

		if (o->kind == kind && ros2_uid_eq(&o->uid, uid)) {
			o->version = version > o->version ? version : o->version;
			return;
		}
	}
	told.objects[told.n_objects++] = (struct told_object){kind, *uid, version};
}

static void on_ack(uint64_t nonce)
{
	for (unsigned i = 0; i < told.n_sent; i++)
		if (told.nonce_of[i] == nonce)
			tell_object(told.sent[i].kind, &told.sent[i].uid, told.sent[i].version);
}

static void on_receipt(const Ros2__V1__Receipt *r)
{
	assert_true(told.n_receipts < TOLD_MAX);
	if (r->durable)
		told.receipts[told.n_receipts++] = r->revocation_uid.data[0];
}

int __wrap_uplink_send(struct uplink *u, const Ros2__V1__AgentMessage *m);
int __wrap_service_new(struct agent *a, struct service **ret, struct ros2_err *err);

int __wrap_uplink_send(struct uplink *u, const Ros2__V1__AgentMessage *m)
{
	if (m->msg_case == ROS2__V1__AGENT_MESSAGE__MSG_ACK)
		on_ack(m->ack->nonce);
	else if (m->msg_case == ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT)
		on_receipt(m->receipt);
	return 0;
}

int __wrap_service_new(struct agent *a, struct service **ret, struct ros2_err *err)
{
	return 0;
}

/* ---- the process ---- */

static struct fixture fix;
static struct disk *disk;
static char *parent, dir[512];
static struct agent *agent; /* NULL: not running */
static unsigned fatals;
static uint64_t slack; /* of the snapshot: 1 = it is soon written anew */

static void on_fatal(void *arg, const struct ros2_err *err)
{
	fatals++;
}

static void stop_loop(void *arg)
{
	loop_stop(arg);
}

/* Until nothing is left to do: disk, answers of the data plane, and what these bring. */
static void settle(void)
{
	unsigned n;

	do {
		n = step_writer_run(agent->revoke_writer) + step_writer_run(agent->disk_writer);
		loop_post(agent->o.loop, stop_loop, agent->o.loop);
		loop_run(agent->o.loop);
	} while (n);
}

static void tell_have(void *arg, const struct state_have *h)
{
	tell_object(h->kind, &h->uid, h->version);
}

static bool boot(void)
{
	struct agent_opts o = {.state_dir = dir,
	                       .listen = "127.0.0.1:0",
	                       .snapshot_slack_bytes = slack,
	                       .revlog_compact_bytes = slack,
	                       .on_fatal = on_fatal};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(loop_new(&(struct loop_opts){.name = "agent"}, &o.loop), 0);
	strcpy(o.identity.name, "dpu-0");
	o.identity.agent_uid = fix.trust.agent_uid;
	memcpy(o.identity.snapshot_pub, fix.trust.snapshot_pub, ED25519_PUB_LEN);
	if (agent_new(&o, &agent, &err) < 0) {
		agent = NULL;
		return false;
	}
	state_untell_all(agent->state);
	/* The hello names the epoch and what is here. */
	told.epoch = agent->epoch.counter > told.epoch ? agent->epoch.counter : told.epoch;
	state_each_have(agent->state, tell_have, NULL);
	return true;
}

/* As a crash: what has not reached the disk by now never does. */
static void die(void)
{
	disk_arm(disk, 0);
	disk_call(disk);
	if (agent)
		agent_free(agent);
	agent = NULL;
}

/* ---- the history ---- */

static void tell_reports(void)
{
	struct state_report r;

	while (state_next_untold(agent->state, &r)) {
		if (r.applied)
			tell_object(r.what.kind, &r.what.uid, r.what.version);
		state_told(agent->state, &r);
	}
}

static void on_epoch_durable(void *arg)
{
	told.epoch = fix.epoch.counter;
}

static void epoch(uint64_t counter)
{
	fix.epoch.counter = counter;
	agent->epoch = fix.epoch;
	persist_request(agent->persist, on_epoch_durable, NULL);
	settle();
}

static void delta(uint64_t nonce, Ros2__V1__AgentObject **objs, size_t n)
{
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	Ros2__V1__SealedObject *sealed[8];
	struct fix_bytes b[8];

	for (size_t i = 0; i < n; i++) {
		struct told_object *o = &told.sent[told.n_sent];

		*o = (struct told_object){.kind = (enum obj_kind)objs[i]->kind,
		                          .version = objs[i]->version};
		memcpy(o->uid.b, objs[i]->uid.data, 16);
		told.nonce_of[told.n_sent++] = nonce;
	}
	fix_seal(&fix, objs, n, b);
	for (size_t i = 0; i < n; i++)
		sealed[i] = ros2__v1__sealed_object__unpack(NULL, b[i].n, b[i].p);
	d.nonce = nonce;
	d.n_upserts = n;
	d.upserts = sealed;
	d.initial_done = nonce == 1;
	uplink_on_delta(agent, &d);
	for (size_t i = 0; i < n; i++) {
		ros2__v1__sealed_object__free_unpacked(sealed[i], NULL);
		free(b[i].p);
	}
	settle();
	tell_reports();
}

static void send_revoke(uint8_t seed)
{
	Ros2__V1__Revoke m = ROS2__V1__REVOKE__INIT;
	struct ros2_uid rev = fix_uid(seed), target = fix_uid((uint8_t)(seed - 100));

	m.revocation_uid = (ProtobufCBinaryData){16, rev.b};
	m.uid = (ProtobufCBinaryData){16, target.b};
	m.kind = seed == 110 ? ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT
	                     : ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	m.version = seed == 110 ? 0 : 4;
	m.reason = (char *)"key leaked, seen at a place that takes some words to describe, so that "
			   "an entry of the log may cross the border of a sector of the disk";
	revoker_on_revoke(agent, &m);
	settle();
}

static void revoke_seed(uint8_t seed)
{
	told.grants_dead = true;
	told.revoked[told.n_revoked++] = seed;
	send_revoke(seed);
}

static void on_recorded(void *arg, const struct ros2_err *err)
{
	if (!err)
		snprintf(told.records[told.n_records++], sizeof(told.records[0]), "%s",
		         (const char *)arg);
}

static void record(enum spool_class c, const char *text)
{
	struct ros2_uid t = fix_uid(2);

	spool_put(agent->spool, c, &t, text, strlen(text), c == SPOOL_WIDEN ? on_recorded : NULL,
	          (void *)(uintptr_t)text, NULL);
}

static void beat(void)
{
	struct clock_stamp s = contact_stamp(&agent->contact, clock_boottime_ns());

	contact_echo(&agent->contact, &s, NULL);
	persist_contact(agent->persist, true);
	settle();
}

static void first_day(void)
{
	Ros2__V1__AgentObject *objs[3];

	epoch(3);
	beat();
	objs[0] = fix_engine(&fix, "files", 1, 1);
	objs[1] = fix_tenant(&fix, "alpha", FIX_ALPHA, 2, 2);
	objs[2] = fix_tenant(&fix, "beta", FIX_BETA, 3, 3);
	delta(1, objs, 3);
	record(SPOOL_DENIAL, "denial-1");
	settle();
	record(SPOOL_WIDEN, "open-1");
	record(SPOOL_DENIAL, "denial-2");
	record(SPOOL_WIDEN, "open-2");
	settle();
	objs[0] = fix_grant(&fix, 10, 2, FIX_ALPHA, 5, clock_boottime_ns(), 3600000, 2);
	delta(2, objs, 1);
	revoke_seed(110);
}

static void second_day(void)
{
	Ros2__V1__AgentObject *objs[2];

	epoch(4);
	objs[0] = fix_tenant(&fix, "beta", FIX_BETA, 3, 6);
	delta(3, objs, 1);
	objs[0] = fix_tenant(&fix, "alpha", FIX_ALPHA, 2, 7);
	objs[1] = fix_tenant(&fix, "beta", FIX_BETA, 3, 8);
	delta(4, objs, 2);
	objs[0] = fix_engine(&fix, "files", 1, 9);
	delta(5, objs, 1);
	beat();
	revoke_seed(102);
	record(SPOOL_WIDEN, "open-3");
	settle();
}

/* Two starts of the process. */
static void live(void)
{
	fix.epoch.counter = 3;
	if (!boot())
		return;
	first_day();
	agent_free(agent);
	agent = NULL;
	if (disk_is_off(disk) || !boot())
		return;
	second_day();
}

/* ---- after it ---- */

static struct told_object now_have[TOLD_MAX];
static unsigned n_have;

static void collect_have(void *arg, const struct state_have *h)
{
	now_have[n_have++] = (struct told_object){h->kind, h->uid, h->version};
}

static bool in_have(const struct told_object *o)
{
	for (unsigned i = 0; i < n_have; i++)
		if (now_have[i].kind == o->kind && ros2_uid_eq(&now_have[i].uid, &o->uid))
			return now_have[i].version >= o->version;
	return false;
}

static const char *check_records(void)
{
	bool seen[TOLD_MAX] = {false};
	struct spool_batch b;

	spool_rewind(agent->spool);
	while (spool_next(agent->spool, SPOOL_BATCH_MAX, 1 << 20, &b))
		for (uint32_t i = 0; i < b.n; i++)
			for (unsigned k = 0; k < told.n_records; k++)
				seen[k] |= b.v[i].len == strlen(told.records[k]) &&
				           !memcmp(b.v[i].p, told.records[k], b.v[i].len);
	for (unsigned k = 0; k < told.n_records; k++)
		if (!seen[k])
			return "the audit record of an operation that went on is lost";
	return NULL;
}

static const char *check_tombstones(void)
{
	for (unsigned i = 0; i < told.n_receipts; i++) {
		struct ros2_uid u = fix_uid(told.receipts[i]);

		if (!revlog_has(agent->revlog, &u))
			return "a revocation with a durable receipt is lost";
	}
	return NULL;
}

/* A log that was torn inside an entry nobody was told of may look damaged: then everything stored
 * is refused, which is safe, and only the tombstones must be there. */
static bool is_refused(void)
{
	char path[4200];

	testing_path(path, dir, "revocations.damaged-1");
	return access(path, F_OK) == 0;
}

static const char *check_contact(void)
{
	struct contact_saved c;
	char path[4200];
	void *p;
	size_t n;
	int r;

	testing_path(path, dir, "contact");
	r = fsx_read_file(path, 4096, &p, &n, NULL);
	if (r == -ENOENT)
		return NULL;
	r = r < 0 ? r : contact_decode(p, n, &c, NULL);
	free(p);
	return r < 0 ? "the contact file is damaged" : NULL;
}

static const char *compare(void)
{
	const char *bad = check_contact();

	bad = bad ? bad : check_tombstones();
	bad = bad ? bad : check_records();
	if (bad || is_refused())
		return bad;
	if (agent->epoch.counter < told.epoch)
		return "an epoch that was acted on is forgotten";
	n_have = 0;
	state_each_have(agent->state, collect_have, NULL);
	for (unsigned i = 0; i < told.n_objects; i++) {
		const struct told_object *o = &told.objects[i];

		if (!(o->kind == OBJ_GRANT && told.grants_dead) && !in_have(o))
			return "an object that was told to be here is lost";
	}
	return NULL;
}

enum end {
	POWER,
	TORN,
	KILL_THEN_POWER,
	KILL_THEN_POWER_AT_START, /* while the next process reads what the killed one left */
};
#define START_CALLS 12 /* more than a start makes */

static void begin(const char *no_fsync)
{
	testing_dir_setup((void **)&parent);
	snprintf(dir, sizeof(dir), "%s/state", parent);
	assert_int_equal(mkdir(dir, 0700), 0);
	disk = disk_new(dir);
	memset(&told, 0, sizeof(told));
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
}

static void end(void)
{
	disk_fsx_end();
	disk_free(disk);
	testing_dir_teardown((void **)&parent);
}

/* The controller repeats revocations it has no receipt for. */
static bool boot_after_kill(uint64_t cut_at)
{
	bool ok;

	disk_arm(disk, cut_at);
	ok = boot() || cut_at != UINT64_MAX;
	for (unsigned i = 0; agent && i < told.n_revoked; i++)
		send_revoke(told.revoked[i]);
	die();
	return ok;
}

struct ending {
	enum end how;
	uint64_t call, start_call;
	const char *no_fsync;
	bool done;      /* the history was through before its end */
	bool revoking;  /* it ended in a revocation */
	unsigned skips; /* fsyncs left out */
};

/* NULL or what is wrong. */
static const char *ends_at(struct ending *e)
{
	const char *bad = NULL;

	slack = e->how == TORN || e->how == KILL_THEN_POWER;
	begin(e->no_fsync);
	disk_arm(disk, e->call);
	live();
	e->done = !disk_is_off(disk);
	e->revoking = told.n_revoked > told.n_receipts;
	die();
	if (e->how >= KILL_THEN_POWER &&
	    !boot_after_kill(e->how == KILL_THEN_POWER ? UINT64_MAX : e->start_call))
		bad = "the agent does not start after a kill";
	disk_restore(disk, e->how == TORN ? DISK_TEAR : DISK_LOSE_UNSYNCED, SEED + e->call);
	if (!bad)
		bad = boot() ? compare() : "the agent does not start";
	die();
	e->skips += disk_fsx_skipped();
	end();
	return bad;
}

/* Every call; those of the start after a kill one by one where an entry of the log was under way,
 * and one of them elsewhere. */
static const char *sweep_all(struct ending *e)
{
	const char *bad = NULL;

	for (e->call = 0, e->done = false; !e->done && !bad; e->call++) {
		e->start_call = e->call % START_CALLS;
		bad = ends_at(e);
		for (unsigned i = 0;
		     i < START_CALLS && !bad && e->revoking && e->how == KILL_THEN_POWER_AT_START;
		     i++) {
			e->start_call = i;
			bad = ends_at(e);
		}
	}
	return bad;
}

static void sweep(enum end how)
{
	struct ending e = {.how = how};
	const char *bad = sweep_all(&e);

	if (bad)
		fail_msg("ended at call %llu, then %llu: %s", (unsigned long long)e.call - 1,
		         (unsigned long long)e.start_call, bad);
	assert_true(e.call > 60);
}

static void agent__keeps_what_it_told_when_the_unsynced_is_gone(void **state)
{
	sweep(POWER);
}

static void agent__keeps_what_it_told_when_the_unsynced_is_torn(void **state)
{
	sweep(TORN);
}

static void agent__keeps_what_it_told_after_a_kill_when_the_power_goes_later(void **state)
{
	sweep(KILL_THEN_POWER);
}

static void agent__keeps_what_it_told_after_a_kill_when_the_power_goes_at_its_start(void **state)
{
	sweep(KILL_THEN_POWER_AT_START);
}

/* One per place where the agent waits for the disk: a file's bytes, a directory's names. */
static void power__sweep_finds_the_losses_without_any_one_fsync(void **state)
{
	static const char *const kinds[] = {
		"=/revocations", ".snapshot.tmp-", "=/snapshot",        ".contact.tmp-",
		"/spool/seg-",   "=/spool",        ".revocations.tmp-", "=/state",
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct ending e = {.no_fsync = kinds[k]};
		bool found = false;

		for (e.how = POWER; e.how <= KILL_THEN_POWER_AT_START && !found; e.how++)
			found = sweep_all(&e) != NULL;
		if (!found || !e.skips)
			fail_msg("nothing is lost without the fsyncs of %s (%u left out)", kinds[k],
			         e.skips);
	}
}

/* ---- how much is written ---- */

static uint64_t bytes_written;
static const struct fsx_ops *counted;

static ssize_t count_write(int fd, const void *p, size_t n)
{
	bytes_written += n;
	return counted->write(fd, p, n);
}

static void deliver(Ros2__V1__AgentObject **objs, size_t n)
{
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	Ros2__V1__SealedObject *sealed[2];
	struct fix_bytes b[2];

	fix_seal(&fix, objs, n, b);
	for (size_t i = 0; i < n; i++)
		sealed[i] = ros2__v1__sealed_object__unpack(NULL, b[i].n, b[i].p);
	d.n_upserts = n;
	d.upserts = sealed;
	uplink_on_delta(agent, &d);
	for (size_t i = 0; i < n; i++) {
		ros2__v1__sealed_object__free_unpacked(sealed[i], NULL);
		free(b[i].p);
	}
	settle();
	tell_reports();
}

static void snapshot__grows_with_what_changes_not_with_what_is_there(void **state)
{
	static struct fsx_ops ops;
	Ros2__V1__AgentObject *objs[2];
	struct state_counts c;
	uint64_t first;

	testing_dir_setup((void **)&parent);
	snprintf(dir, sizeof(dir), "%s/state", parent);
	assert_int_equal(mkdir(dir, 0700), 0);
	memset(&told, 0, sizeof(told));
	slack = 0;
	counted = fsx_io;
	ops = *fsx_io;
	ops.write = count_write;
	fsx_io = &ops;
	assert_true(boot());
	fix.epoch.counter = 3;
	epoch(3);
	objs[0] = fix_engine(&fix, "files", 1, 1);
	objs[1] = fix_tenant(&fix, "alpha", FIX_ALPHA, 2, 2);
	deliver(objs, 2);
	first = bytes_written;
	for (unsigned i = 0; i < 200; i++) {
		memset(&told, 0, sizeof(told));
		objs[0] = fix_grant(&fix, (uint8_t)(20 + i), 2, FIX_ALPHA, 5, clock_boottime_ns(),
		                    3600000, 2);
		deliver(objs, 1);
	}
	/* A grant is some 400 bytes; each time all of it would be 200 x 100 of them. */
	assert_true(bytes_written - first < 200 * 1000);
	/* Many versions of one document: the file is written anew now and then. */
	for (unsigned i = 0; i < 2500; i++) {
		struct stat st;
		char path[4200];

		memset(&told, 0, sizeof(told));
		objs[0] = fix_tenant(&fix, "alpha", FIX_ALPHA, 2, 10 + i);
		deliver(objs, 1);
		testing_path(path, dir, "snapshot");
		assert_int_equal(stat(path, &st), 0);
		assert_true((uint64_t)st.st_size < 1100000 + 2 * state_bytes(agent->state));
	}
	agent_free(agent);
	assert_true(boot());
	state_counts(agent->state, &c);
	assert_int_equal(c.tenants + c.engines + c.grants, 202);
	agent_free(agent);
	agent = NULL;
	fsx_io = counted;
	testing_dir_teardown((void **)&parent);
}

/* ---- what is put back ---- */

static void copy_file(const char *from_name, const char *to_name)
{
	char from[4200], to[4200];
	void *p;
	size_t n;

	testing_path(from, dir, from_name);
	testing_path(to, dir, to_name);
	assert_int_equal(fsx_read_file(from, 1 << 20, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(to, p, n, 0600, NULL), 0);
	free(p);
}

static void snapshot__put_back_with_its_contact_file_is_noticed(void **state)
{
	Ros2__V1__HaveObject gone = ROS2__V1__HAVE_OBJECT__INIT, *ptr = &gone;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	struct ros2_uid alpha = fix_uid(2);
	Ros2__V1__AgentObject *objs[2];
	struct state_counts c;

	testing_dir_setup((void **)&parent);
	snprintf(dir, sizeof(dir), "%s/state", parent);
	assert_int_equal(mkdir(dir, 0700), 0);
	memset(&told, 0, sizeof(told));
	slack = 0;
	fix.epoch.counter = 3;
	assert_true(boot());
	epoch(3);
	objs[0] = fix_engine(&fix, "files", 1, 1);
	objs[1] = fix_tenant(&fix, "alpha", FIX_ALPHA, 2, 2);
	deliver(objs, 2);
	beat();
	copy_file("snapshot", "old-snapshot");
	copy_file("contact", "old-contact");
	/* The tenant goes; then the process ends and begins. */
	gone.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	gone.uid = (ProtobufCBinaryData){16, alpha.b};
	gone.version = 2;
	d.n_removals = 1;
	d.removals = &ptr;
	uplink_on_delta(agent, &d);
	settle();
	agent_free(agent);
	assert_true(boot());
	state_counts(agent->state, &c);
	assert_int_equal(c.tenants, 0);
	assert_int_equal(c.engines, 1);
	agent_free(agent);
	copy_file("old-snapshot", "snapshot");
	copy_file("old-contact", "contact");
	assert_true(boot());
	state_counts(agent->state, &c);
	assert_int_equal(c.tenants + c.engines, 0);
	agent_free(agent);
	agent = NULL;
	testing_dir_teardown((void **)&parent);
}

static int group_setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR + 1);
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	fixture_init(&fix);
	return 0;
}

static int group_teardown(void **state)
{
	fixture_fini(&fix);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agent__keeps_what_it_told_when_the_unsynced_is_gone),
		cmocka_unit_test(agent__keeps_what_it_told_when_the_unsynced_is_torn),
		cmocka_unit_test(agent__keeps_what_it_told_after_a_kill_when_the_power_goes_later),
		cmocka_unit_test(
			agent__keeps_what_it_told_after_a_kill_when_the_power_goes_at_its_start),
		cmocka_unit_test(snapshot__put_back_with_its_contact_file_is_noticed),
		cmocka_unit_test(snapshot__grows_with_what_changes_not_with_what_is_there),
		cmocka_unit_test(power__sweep_finds_the_losses_without_any_one_fsync),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

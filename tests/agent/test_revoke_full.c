/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations for which the disk has no room, or which fails, or the agent no room at all, and a
 * process that is killed with them: the next one, without a controller, gives nothing of what the
 * snapshot says; with one, nothing before it has sent what it owes. The controls: with its contact
 * file as it was, what was revoked works again. And room that cannot be kept for revocations: the
 * controller hears of it.
 */
#include "agent/agent.h"
#include "agent/bytes.h"
#include "agent/health.h"
#include "agent/test_switches.h"
#include "agent/uplink_priv.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <errno.h>
#include <unistd.h>

struct agent_test_switches agent_test_switches;

/* ---- a disk without room for any of the three files that matter ---- */

static _Atomic bool disk_full, copies; /* copies: it needs space to write over something, too */
static _Atomic bool unsynced;          /* only a process is killed: what it wrote is there */
static _Atomic bool disk_fails;        /* under the log of revocations and the snapshot */
static _Thread_local bool copying;     /* the test itself */
static const struct fsx_ops *real_io;
static const char *const files[] = {"contact", "snapshot", "revocations"};

static bool is_full_for(int fd)
{
	char link[64], path[4200];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = disk_full && !copying ? readlink(link, path, sizeof(path) - 1) : 0;
	path[len > 0 ? len : 0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (strstr(path, files[i]))
			return true;
	return false;
}

static ssize_t full_write(int fd, const void *p, size_t n)
{
	if (!is_full_for(fd))
		return real_io->write(fd, p, n);
	errno = ENOSPC;
	return -1;
}

static ssize_t full_pwrite(int fd, const void *p, size_t n, off_t off)
{
	if (!copies || !is_full_for(fd))
		return real_io->pwrite(fd, p, n, off);
	errno = ENOSPC;
	return -1;
}

static int quick_fsync(int fd)
{
	return unsynced ? 0 : real_io->fsync(fd);
}

/* ---- and none to reserve ---- */

static _Atomic int no_reserve; /* errno; 0: there is room */
static _Atomic unsigned refused_room;

int __real_fallocate(int fd, int mode, off_t from, off_t n);
int __wrap_fallocate(int fd, int mode, off_t from, off_t n);

int __wrap_fallocate(int fd, int mode, off_t from, off_t n)
{
	if (!no_reserve)
		return __real_fallocate(fd, mode, from, n);
	refused_room++;
	errno = no_reserve;
	return -1;
}

/* ---- a writer that stands still ---- */

#define REVOCATIONS_MAX 4096u /* under way at once: agent/revoke.c */

static _Atomic bool hold_log;
static _Atomic unsigned held;

static bool is_of(int fd, const char *name)
{
	char link[64], path[4200];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len > 0 ? len : 0] = '\0';
	return strstr(path, name);
}

static ssize_t held_write(int fd, const void *p, size_t n)
{
	if (hold_log && is_of(fd, "revocations")) {
		held++;
		/* poll: until the test lets it go on */
		(void)AWAIT(!hold_log);
	}
	if (disk_fails && !copying && (is_of(fd, "revocations") || is_of(fd, "snapshot"))) {
		errno = EIO;
		return -1;
	}
	return full_write(fd, p, n);
}

/* ---- what the controller hears ---- */

static _Atomic bool hears_of_room;

static void sees_beat(const Ros2__V1__Beat *b)
{
	bool is = false;

	for (size_t i = 0; i < b->n_conditions; i++)
		is |= !strcmp(b->conditions[i]->name, "DiskFull") && b->conditions[i]->status &&
		      strstr(b->conditions[i]->reason, "no room is kept for revocations in ");
	hears_of_room = is;
}

/* ---- a process that is killed: the files as they are then ---- */

static void copy_files(struct world *w, const char *from, const char *to)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char a[64], b[64], path[4200];

		snprintf(a, sizeof(a), "%s/%s", from, files[i]);
		snprintf(b, sizeof(b), "%s/%s", to, files[i]);
		testing_path(path, w->dir, b);
		(void)!unlink(path);
		testing_path(path, w->dir, a);
		if (access(path, F_OK) == 0)
			world_copy(w->dir, a, b);
	}
}

static void kill_agent(struct world *w)
{
	char kept[4200];

	testing_path(kept, w->dir, "kept");
	assert_int_equal(fsx_mkdirs(kept, 0700, NULL), 0);
	copying = true;
	copy_files(w, "state", "kept");
	world_agent_stop(w);
	copy_files(w, "kept", "state");
	copying = false;
}

static enum ros2_status try_session(struct world *w, const char *tenant)
{
	struct rpc_channel *c = world_tenant(w, tenant);
	struct ros2_uid s;
	enum ros2_status st = world_open_session(c, &s);

	rpc_channel_free(c);
	return st;
}

/* Alpha's right is on disk, is revoked on a disk that takes nothing, and the process is killed. */
static void revoke_and_kill(struct world *w)
{
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
	world_wait_stored(w);
	assert_true(AWAIT(world_has_stamp(w)));
	disk_full = true;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_false(w->last_durable);
	assert_int_equal(try_session(w, "alpha"), ROS2_REVOKED);
	world_controller_stop(w);
	kill_agent(w);
	world_agent_start(w);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	log_set_level(LOG_LEVEL_ERROR);
	disk_full = copies = unsynced = disk_fails = false;
	held = 0;
	no_reserve = 0;
	agent_test_switches.contact_kept = false;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	disk_full = false;
	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	return 0;
}

static void revoke__that_found_no_room_holds_after_a_kill_without_a_controller(void **state)
{
	struct world *w = *state;

	revoke_and_kill(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
	world_agent_stop(w);
	world_agent_start(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

/* As on a file system that copies on write. */
static void revoke__that_found_no_room_even_to_write_over_holds_after_a_kill(void **state)
{
	struct world *w = *state;

	copies = true;
	revoke_and_kill(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

static void control__with_the_contact_file_kept_it_works_again(void **state)
{
	struct world *w = *state;

	agent_test_switches.contact_kept = true;
	revoke_and_kill(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
}

static void contact__after_it_counts_when_the_controller_has_sent_all_it_owes(void **state)
{
	struct world *w = *state;
	Ros2__V1__AgentObject *o;
	unsigned n;

	revoke_and_kill(w);
	n = w->beats;
	world_controller_start(w);
	/* Each is answered with a stamp. */
	world_wait(w, &w->beats, n + 5);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
	assert_int_equal(try_session(w, "beta"), ROS2_CONTACT_LOST);
	n = w->receipts;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, n + 1);
	assert_false(w->last_durable);
	o = fix_engine(&w->f, "files", 1, 1);
	world_send(w, &o, 1, true);
	assert_true(AWAIT(try_session(w, "beta") == ROS2_OK));
	assert_int_equal(try_session(w, "alpha"), ROS2_REVOKED);
	assert_false(world_has_stamp(w));
	/* With room again all of it is on disk, and a restart has its rights. */
	n = w->receipts;
	disk_full = false;
	world_wait(w, &w->receipts, n + 1);
	assert_true(w->last_durable);
	assert_true(AWAIT(world_has_stamp(w)));
	world_wait_stored(w);
	world_controller_stop(w);
	kill_agent(w);
	world_agent_start(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_REVOKED);
	assert_int_equal(try_session(w, "beta"), ROS2_OK);
}

static void kill_alone(struct world *w)
{
	world_controller_stop(w);
	kill_agent(w);
	world_agent_start(w);
}

/* ---- documents that take away ---- */

static void narrow_alpha(struct world *w)
{
	Ros2__V1__AgentObject *o =
		fix_tenant(&w->f, "alpha", "spiffe://ros2.test/tenant/nobody", WORLD_ALPHA_SEED, 2);

	world_send(w, &o, 1, false);
}

static void remove_alpha(struct world *w)
{
	world_remove(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
}

/* The new document finds no room, and the process is killed: the disk has the old one. */
static void take_away_and_kill(struct world *w, void (*take_away)(struct world *w))
{
	unsigned failed = w->failed;

	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
	world_wait_stored(w);
	assert_true(AWAIT(world_has_stamp(w)));
	disk_full = true;
	take_away(w);
	assert_true(AWAIT(try_session(w, "alpha") == ROS2_DENIED));
	if (agent_test_switches.contact_kept)
		world_wait(w, &w->failed, failed + 1);
	else
		assert_true(AWAIT(!world_has_stamp(w)));
	world_controller_stop(w);
	kill_agent(w);
	world_agent_start(w);
}

static void document__that_took_and_found_no_room_holds_after_a_kill(void **state)
{
	struct world *w = *state;

	take_away_and_kill(w, narrow_alpha);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

static void removal__that_found_no_room_holds_after_a_kill(void **state)
{
	struct world *w = *state;

	take_away_and_kill(w, remove_alpha);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

static void control__with_the_contact_file_kept_a_document_gives_it_back(void **state)
{
	struct world *w = *state;

	agent_test_switches.contact_kept = true;
	take_away_and_kill(w, narrow_alpha);
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
}

/* ---- a disk that fails ---- */

/* The process ends for it, and there is a next one. */
static void revoke_on_a_failing_disk(struct world *w)
{
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
	world_wait_stored(w);
	assert_true(AWAIT(world_has_stamp(w)));
	disk_fails = true;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	/* poll: on the loop's thread */
	assert_true(AWAIT(__atomic_load_n(&w->fatal.code, __ATOMIC_ACQUIRE)));
	assert_int_equal(w->fatal.code, -EIO);
	world_controller_stop(w);
	kill_agent(w);
	disk_fails = false;
	w->fatal = (struct ros2_err)ROS2_ERR_INIT;
	world_agent_start(w);
}

static void revoke__on_a_failing_disk_holds_in_the_next_process(void **state)
{
	struct world *w = *state;

	revoke_on_a_failing_disk(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

static void control__with_the_contact_file_kept_a_failing_disk_gives_it_back(void **state)
{
	struct world *w = *state;

	agent_test_switches.contact_kept = true;
	revoke_on_a_failing_disk(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
}

/* ---- no room is kept ---- */

static void start_without_room(struct world *w, int why)
{
	world_agent_stop(w);
	hears_of_room = false;
	w->sees_beat = sees_beat;
	no_reserve = why;
	world_agent_start(w);
}

static void room__that_cannot_be_kept_is_told_until_it_can(void **state)
{
	struct world *w = *state;
	unsigned n;

	start_without_room(w, ENOSPC);
	assert_true(AWAIT(hears_of_room));
	/* Asked for each second: for longer than a failure is held against the disk. */
	n = refused_room + HEALTH_HOLD_MS / 1000 + 2;
	assert_true(AWAIT(refused_room >= n));
	assert_true(hears_of_room);
	no_reserve = 0;
	assert_true(AWAIT(!hears_of_room));
}

/* It never will be, and the disk is not full. */
static void room__of_a_file_system_that_keeps_none_is_no_trouble(void **state)
{
	struct world *w = *state;
	unsigned n;

	start_without_room(w, EOPNOTSUPP);
	n = w->beats;
	world_wait(w, &w->beats, n + 15);
	assert_false(hears_of_room);
	n = refused_room;
	world_wait(w, &w->beats, w->beats + 15);
	assert_int_equal(refused_room, n);
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_true(w->last_durable);
}

/* ---- an end ---- */

/* The writers have ended before the loop hears that the log found no room. */
static void agent__that_ends_under_a_revocation_takes_the_stamp_out_all_the_same(void **state)
{
	struct world *w = *state;

	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
	world_wait_stored(w);
	disk_full = hold_log = true;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	/* poll: of a writer */
	assert_true(AWAIT(held == 1));
	loop_stop(w->loop);
	loop_thread_join(w->loop);
	hold_log = false;
	agent_free(TAKE_PTR(w->agent));
	assert_false(world_has_stamp(w));
	world_controller_stop(w);
	world_agent_start(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

/* ---- too many at once ---- */

struct idle {
	struct world *w;
	bool is;
};

static void look_done(void *arg)
{
	struct idle *i = arg;

	i->is = revoker_is_idle(i->w->agent->revoker);
}

/* As many as there may be wait for the disk, and alpha's is one more. Then there is room. */
static void revoke_one_too_many(struct world *w)
{
	struct ros2_uid name = fix_uid(77);
	struct idle i = {w, false};
	unsigned n = fake_dp_log.revokes;

	/* Each says each second that it is not on disk. */
	log_set_level(LOG_LEVEL_ERROR + 1);
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
	world_wait_stored(w);
	assert_true(AWAIT(world_has_stamp(w)));
	disk_full = unsynced = true;
	for (uint32_t k = 0; k < REVOCATIONS_MAX; k++) {
		memcpy(name.b, &k, sizeof(k));
		world_revoke_as(w, OBJ_SESSION, 200, 1, &name);
		if (k % 64 == 63)
			world_wait(w, &w->receipts, k + 1);
	}
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	/* poll: it gives no receipt */
	assert_true(AWAIT(fake_dp_log.revokes == n + REVOCATIONS_MAX + 1));
	disk_full = false;
	/* poll: all that are held are on disk */
	assert_true(AWAIT((loop_call(w->loop, look_done, &i), i.is)));
}

static void revoke__that_was_one_too_many_holds_after_a_kill_without_a_controller(void **state)
{
	struct world *w = *state;
	unsigned n;

	revoke_one_too_many(w);
	n = w->beats;
	/* Each is answered with a stamp. */
	world_wait(w, &w->beats, n + 10);
	assert_false(world_has_stamp(w));
	kill_alone(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_CONTACT_LOST);
}

static void control__with_the_contact_file_kept_one_too_many_works_again(void **state)
{
	struct world *w = *state;

	agent_test_switches.contact_kept = true;
	revoke_one_too_many(w);
	world_wait_stored(w);
	assert_true(world_has_stamp(w));
	kill_alone(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_OK);
}

/* As the controller does on each stream: what has no receipt, then that this is all. */
static void revoke__that_was_one_too_many_is_asked_for_again_when_there_is_room(void **state)
{
	struct world *w = *state;
	unsigned hellos = w->hellos, n;
	Ros2__V1__AgentObject *o;

	revoke_one_too_many(w);
	world_wait(w, &w->hellos, hellos + 1);
	n = w->receipts;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, n + 1);
	assert_true(w->last_durable);
	assert_false(world_has_stamp(w));
	o = fix_engine(&w->f, "files", 1, 1);
	world_send(w, &o, 1, true);
	assert_true(AWAIT(world_has_stamp(w)));
	kill_alone(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_REVOKED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	static struct fsx_ops io;
	const struct CMUnitTest tests[] = {
		T(revoke__that_found_no_room_holds_after_a_kill_without_a_controller),
		T(revoke__that_found_no_room_even_to_write_over_holds_after_a_kill),
		T(control__with_the_contact_file_kept_it_works_again),
		T(contact__after_it_counts_when_the_controller_has_sent_all_it_owes),
		T(document__that_took_and_found_no_room_holds_after_a_kill),
		T(removal__that_found_no_room_holds_after_a_kill),
		T(control__with_the_contact_file_kept_a_document_gives_it_back),
		T(revoke__on_a_failing_disk_holds_in_the_next_process),
		T(control__with_the_contact_file_kept_a_failing_disk_gives_it_back),
		T(room__that_cannot_be_kept_is_told_until_it_can),
		T(room__of_a_file_system_that_keeps_none_is_no_trouble),
		T(agent__that_ends_under_a_revocation_takes_the_stamp_out_all_the_same),
		T(revoke__that_was_one_too_many_holds_after_a_kill_without_a_controller),
		T(control__with_the_contact_file_kept_one_too_many_works_again),
		T(revoke__that_was_one_too_many_is_asked_for_again_when_there_is_room),
	};

	real_io = fsx_io;
	io = *real_io;
	io.write = held_write;
	io.fsync = quick_fsync;
	io.pwrite = full_pwrite;
	fsx_io = &io;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations for which the disk has no room, and a process that is killed with them: the next one,
 * without a controller, gives nothing of what the snapshot says; with one, nothing before it has
 * sent what it owes. The control: with its contact file as it was, what was revoked works again.
 */
#include "agent/agent.h"
#include "agent/bytes.h"
#include "agent/test_switches.h"
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

struct idle {
	struct world *w;
	bool is;
};

static void look_idle(void *arg)
{
	struct idle *i = arg;

	i->is = persist_is_idle(i->w->agent->persist);
}

/* All that was given is on disk. */
static void wait_stored(struct world *w)
{
	struct idle i = {w, false};

	assert_true(AWAIT((loop_call(w->loop, look_idle, &i), i.is)));
}

static bool has_stamp(struct world *w)
{
	struct contact_saved s;
	char path[4200];
	void *p = NULL;
	size_t n;
	bool has;

	testing_path(path, w->dir, "state/contact");
	if (fsx_read_file(path, 4096, &p, &n, NULL) < 0)
		return false;
	has = contact_decode(p, n, &s, NULL) == 0 && s.stamp.boottime_ns;
	free(p);
	return has;
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
	wait_stored(w);
	assert_true(AWAIT(has_stamp(w)));
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

	disk_full = copies = false;
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
	assert_false(has_stamp(w));
	/* With room again all of it is on disk, and a restart has its rights. */
	n = w->receipts;
	disk_full = false;
	world_wait(w, &w->receipts, n + 1);
	assert_true(w->last_durable);
	assert_true(AWAIT(has_stamp(w)));
	wait_stored(w);
	world_controller_stop(w);
	kill_agent(w);
	world_agent_start(w);
	assert_int_equal(try_session(w, "alpha"), ROS2_REVOKED);
	assert_int_equal(try_session(w, "beta"), ROS2_OK);
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
	};

	log_set_level_str("error");
	real_io = fsx_io;
	io = *real_io;
	io.write = full_write;
	io.pwrite = full_pwrite;
	fsx_io = &io;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

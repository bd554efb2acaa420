/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two bundles, one behind the other. The first names one authority more and is still on its way to
 * disk when the second comes, which does not; then the disk takes the first and not the second.
 * Nobody may be believed for what is only on disk: neither a controller by the agent that runs, nor
 * a tenant by the one that starts after it.
 */
#include "agent/bundles.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <errno.h>

static const struct fsx_ops *real_io;
static _Atomic bool hold; /* who renames a bundle; what is held then goes through */
static _Atomic bool full; /* for the others */
static _Atomic unsigned held;

static int rename_bundle(const char *from, const char *to)
{
	if (!strstr(to, "-bundle.pem"))
		return real_io->rename(from, to);
	if (hold) {
		held++;
		/* poll: until the test lets it go on */
		(void)AWAIT(!hold);
	} else if (full) {
		errno = ENOSPC;
		return -1;
	}
	return real_io->rename(from, to);
}

/* Both authorities of a kind. */
static void join(struct world *w, const char *a, const char *b, const char *to)
{
	AUTO_FREE char *pa = NULL, *pb = NULL, *both = NULL;
	char path[4200];
	size_t n;

	testing_path(path, w->dir, a);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pa, &n, NULL), 0);
	testing_path(path, w->dir, b);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&pb, &n, NULL), 0);
	assert_true(asprintf(&both, "%s%s", pa, pb) > 0);
	testing_path(path, w->dir, to);
	assert_int_equal(fsx_write_atomic(path, both, strlen(both), 0644, NULL), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	static struct fsx_ops io;

	real_io = fsx_io;
	io = *fsx_io;
	io.rename = rename_bundle;
	fsx_io = &io;
	hold = full = false;
	held = 0;
	world_start(w);
	world_make_ca(w->dir, "infra2");
	world_make_ca(w->dir, "tenant2");
	world_issue(w->dir, "tenant2", "alpha2", FIX_ALPHA);
	world_issue(w->dir, "infra2", "ctl2", "spiffe://ros2.test/controller/ctl-0");
	join(w, "tenant.crt", "tenant2.crt", "tenants.pem");
	join(w, "infra.crt", "infra2.crt", "infras.pem");
	world_agent_start(w);
	world_populate(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	hold = full = false;
	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	fsx_io = real_io;
	return 0;
}

static bool is_told(struct world *w, const char *why)
{
	bool is;

	pthread_mutex_lock(&w->lock);
	is = strstr(w->reasons, why);
	pthread_mutex_unlock(&w->lock);
	return is;
}

/* The agent has heard the Welcome of another stream: a beat follows it. */
static void another_stream(struct world *w)
{
	unsigned hellos = w->hellos, beats;

	world_cut(w);
	world_wait(w, &w->hellos, hellos + 1);
	beats = w->beats;
	world_wait(w, &w->beats, beats + 1);
}

static void give(struct world *w, const char *_Atomic *which, const char *first, const char *second)
{
	hold = true;
	*which = first;
	another_stream(w);
	assert_true(AWAIT(held == 1));
	*which = second;
	another_stream(w);
	full = true;
	hold = false;
	assert_true(AWAIT(is_told(w, strerrordesc_np(ENOSPC))));
}

static void bundle__that_is_only_on_disk_gives_nothing_to_the_next_process(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid s;

	/* A right that the next process finds. */
	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	rpc_channel_free(c);
	world_wait_stored(w);
	assert_true(AWAIT(world_has_stamp(w)));
	give(w, &w->tenant_bundle, "tenants.pem", "tenant.crt");
	assert_true(AWAIT(!world_has_stamp(w)));
	/* Killed: nothing of its end is written. */
	world_controller_stop(w);
	world_copy(w->dir, "state/contact", "contact");
	world_agent_stop(w);
	world_copy(w->dir, "contact", "state/contact");
	world_agent_start(w);
	c = world_tenant(w, "alpha2");
	assert_int_equal(world_open_session(c, &s), ROS2_CONTACT_LOST);
	rpc_channel_free(c);
}

static uint64_t refused_handshakes(struct world *w)
{
	struct rpc_server_stats st;

	rpc_server_stats(w->ctl, &st);
	return st.refused_handshakes;
}

/* More of them than come before it has looked at the file again. */
static void bundle__that_is_only_on_disk_names_no_controller(void **state)
{
	struct world *w = *state;
	unsigned hellos;

	give(w, &w->infra_bundle, "infras.pem", "infra.crt");
	world_controller_stop(w);
	world_copy(w->dir, "ctl2.key", "ctl.key");
	world_copy(w->dir, "ctl2.crt", "ctl.crt");
	hellos = w->hellos;
	world_controller_start(w);
	assert_true(AWAIT(refused_handshakes(w) >= 5 || w->hellos > hellos));
	assert_int_equal(w->hellos, hellos);
	/* When the disk takes what names both, it is heard. */
	world_controller_stop(w);
	world_issue(w->dir, "infra", "ctl1", "spiffe://ros2.test/controller/ctl-0");
	world_copy(w->dir, "ctl1.key", "ctl.key");
	world_copy(w->dir, "ctl1.crt", "ctl.crt");
	full = false;
	w->infra_bundle = "infras.pem";
	world_controller_start(w);
	world_wait(w, &w->hellos, hellos + 1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(bundle__that_is_only_on_disk_gives_nothing_to_the_next_process),
		T(bundle__that_is_only_on_disk_names_no_controller),
	};

	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

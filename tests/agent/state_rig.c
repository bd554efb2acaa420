/* SPDX-License-Identifier: Apache-2.0 */
/* See state_rig.h. */
#include "tests/agent/state_rig.h"
#include "tests/agent/fake_dp.h"

static void on_tenant(void *arg, const struct ros2_uid *t)
{
	((struct env *)arg)->tenant_calls++;
}

static void on_untold(void *arg)
{
	((struct env *)arg)->untold_calls++;
}

int state_rig_setup(void **state)
{
	struct env *e = calloc(1, sizeof(*e));
	struct dp_opts dpo = {0};
	struct state_opts so = {.on_tenant = on_tenant, .on_untold = on_untold, .arg = e};
	struct revlog_opened info;
	char path[4200];

	fixture_init(&e->f);
	assert_int_equal(testing_dir_setup((void **)&e->dir), 0);
	testing_path(path, e->dir, "revocations");
	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &e->loop), 0);
	dpo.loop = e->loop;
	assert_int_equal(dp_new(&dpo, &e->dp, NULL), 0);
	assert_int_equal(revlog_open(path, NULL, NULL, &e->log, &info, NULL), 0);
	so.dp = e->dp;
	so.revlog = e->log;
	memcpy(so.boot_id, e->f.boot_id, 16);
	assert_int_equal(state_new(&so, &e->s), 0);
	*state = e;
	return 0;
}

int state_rig_teardown(void **state)
{
	struct env *e = *state;

	state_free(e->s);
	revlog_free(e->log);
	loop_free(e->loop);
	dp_free(e->dp);
	testing_dir_teardown((void **)&e->dir);
	fixture_fini(&e->f);
	free(e);
	return 0;
}

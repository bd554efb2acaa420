/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount takes its time: a target is logged in to, a file system looks for a directory. What takes
 * its right away meanwhile ends the session, as it does where the mount is there already: the data
 * plane has it, and asks nobody any more.
 */
#include "agent/prober.h"
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"

static _Atomic bool device_holds; /* mr-range, as the next try sees it */

static void fill(struct probe_subject *s, const char *name, const char *transport, bool holds)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->transport, sizeof(s->transport), "%s", transport);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		s->findings[i].result = PROBE_ENFORCED;
	if (!holds)
		s->findings[PROBE_MR_RANGE].result = PROBE_NOT_ENFORCED;
}

static int scripted(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                    struct ros2_err *err)
{
	fill(&out[0], "tcp", "tcp", true);
	fill(&out[1], "dev0", "verbs", device_holds);
	*ret_n = 2;
	return 0;
}

struct mounting {
	struct world *w;
	struct rpc_channel *c;
	struct ros2_uid s;
	enum ros2_status status;
	char words[320];
	pthread_t thread;
};

/* Alpha requires something of the way to the engine, which is reached over RDMA; its session is
 * over tcp, which holds that. */
static void populate(struct world *w)
{
	const char *tcp = fix_nvmf_transport;
	Ros2__V1__AgentObject *objs[2];

	world_wait(w, &w->beats, 1);
	fix_nvmf_transport = "rdma";
	objs[0] = fix_nvmf(&w->f, "files", 1, 1);
	fix_nvmf_transport = tcp;
	fix_require = "mr-range";
	objs[1] = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 1);
	fix_require = "";
	world_send(w, objs, 2, true);
	world_wait(w, &w->applied, 2);
	world_wait(w, &w->acks, 1);
	world_wait(w, &w->probes, 1);
}

static int setup(void **state)
{
	struct mounting *m = calloc(1, sizeof(*m));

	m->w = calloc(1, sizeof(*m->w));
	device_holds = true;
	world_start(m->w);
	m->w->probe = scripted;
	m->w->rdma_device = "dev0";
	world_agent_start(m->w);
	populate(m->w);
	m->c = world_tenant(m->w, "alpha");
	assert_int_equal(world_open_session(m->c, &m->s), ROS2_OK);
	fake_dp_connect(m->w->agent->dp, &m->s);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct mounting *m = *state;

	loop_call(m->w->loop, fake_dp_answer, NULL);
	rpc_channel_free(m->c);
	world_stop(m->w);
	assert_int_equal(m->w->fatal.code, 0);
	free(m->w);
	free(m);
	return 0;
}

static enum ros2_status mount(struct mounting *m, char words[320])
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, m->s.b};
	req.namespace_name = (char *)"data";
	return world_call(m->c, &ros2_v1_tenant_mount, &req.base, NULL, words);
}

static void *mount_slowly(void *arg)
{
	struct mounting *m = arg;

	m->status = mount(m, m->words);
	return NULL;
}

static void begin(struct mounting *m)
{
	fake_dp_hold = true;
	assert_int_equal(pthread_create(&m->thread, NULL, mount_slowly, m), 0);
	assert_true(AWAIT(fake_dp_held == 1));
}

static enum ros2_status finish(struct mounting *m)
{
	loop_call(m->w->loop, fake_dp_answer, NULL);
	assert_int_equal(pthread_join(m->thread, NULL), 0);
	return m->status;
}

/* And everybody is told why. */
static void session_is_over(struct mounting *m, const char *why)
{
	char words[320];

	assert_non_null(strstr(m->words, why));
	assert_int_equal(mount(m, words), ROS2_REVOKED);
	assert_non_null(strstr(words, why));
	assert_true(world_wait_action(m->w, "session.close"));
	assert_int_equal(fake_dp_sessions(), 0);
}

static void mount__that_takes_its_time_is_one(void **state)
{
	struct mounting *m = *state;

	begin(m);
	assert_int_equal(finish(m), ROS2_OK);
	assert_int_equal(mount(m, NULL), ROS2_OK);
}

static void mount__whose_engine_is_taken_away_meanwhile_ends_its_session(void **state)
{
	struct mounting *m = *state;
	unsigned acks = m->w->acks;

	begin(m);
	fake_dp_engine_busy = true;
	world_remove(m->w, OBJ_ENGINE, 1, 1);
	world_wait(m->w, &m->w->acks, acks + 1);
	assert_int_equal(finish(m), ROS2_UNAVAILABLE);
	session_is_over(m, "engine files is not in force at this agent");
}

static void try_again(void *arg)
{
	prober_start(((struct world *)arg)->agent->prober);
}

static void mount__over_a_device_that_does_not_hold_meanwhile_ends_its_session(void **state)
{
	struct mounting *m = *state;

	begin(m);
	device_holds = false;
	loop_call(m->w->loop, try_again, m->w);
	world_wait(m->w, &m->w->probes, 2);
	assert_int_equal(finish(m), ROS2_DENIED);
	session_is_over(m, "engine files: placement.require: mr-range");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(mount__that_takes_its_time_is_one),
		T(mount__whose_engine_is_taken_away_meanwhile_ends_its_session),
		T(mount__over_a_device_that_does_not_hold_meanwhile_ends_its_session),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

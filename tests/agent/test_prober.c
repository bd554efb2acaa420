/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.require at the agent: what was not seen here gives no session, whatever the controller
 * sends. Beta, which requires nothing, is the control. What is tried is the test's.
 */
#include "common/log.h"
#include "tests/agent/world.h"
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static sem_t go;                 /* the probe waits for it */
static enum probe_result answer; /* for mr-range; the others are enforced */
static const char *transport;
static int fails;
static const char *device_of_agent;
static const char *shm_dir_of_agent;
static enum probe_result answer_of_shm; /* for mr-range, likewise */
static _Atomic bool shm_was_tried;

/* All hold but mr-range, which is @mr_range. */
static void fill(struct probe_subject *s, const char *name, const char *of,
                 enum probe_result mr_range)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->transport, sizeof(s->transport), "%s", of);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		s->findings[i].result = PROBE_ENFORCED;
	s->findings[PROBE_MR_RANGE].result = mr_range;
}

static int scripted(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                    struct ros2_err *err)
{
	sem_wait(&go);
	if (fails)
		return ros2_err_set(err, fails, "the device is on fire");
	fill(&out[0], strcmp(transport, "tcp") ? "dev0" : "tcp", transport, answer);
	if (shm)
		fill(&out[1], "shm", "shm", answer_of_shm);
	shm_was_tried = shm;
	*ret_n = 1 + shm;
	return 0;
}

struct party {
	struct world *w;
	struct rpc_channel *alpha, *beta;
};

static void start(struct party *p, enum probe_result mr_range, const char *of, int rc)
{
	sem_init(&go, 0, 0);
	answer = mr_range;
	transport = of;
	fails = rc;
	p->w = calloc(1, sizeof(*p->w));
	fix_require = "mr-range, qp-reuse";
	world_start(p->w);
	p->w->probe = scripted;
	p->w->rdma_device = device_of_agent;
	p->w->shm_dir = shm_dir_of_agent;
	world_agent_start(p->w);
	world_populate(p->w);
	fix_require = "";
	p->alpha = world_tenant(p->w, "alpha");
	p->beta = world_tenant(p->w, "beta");
}

static void stop(struct party *p)
{
	rpc_channel_free(p->alpha);
	rpc_channel_free(p->beta);
	world_stop(p->w);
	free(p->w);
	sem_destroy(&go);
}

static enum ros2_status open_over(struct rpc_channel *c, Ros2__V1__Transport t, char words[320])
{
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;

	req.protocol = RPC_PROTOCOL_VERSION;
	req.transport = t;
	return world_call(c, &ros2_v1_tenant_open_session, &req.base, NULL, words);
}

static enum ros2_status open_as(struct rpc_channel *c, char words[320])
{
	return open_over(c, ROS2__V1__TRANSPORT__TRANSPORT_TCP, words);
}

static void prober__gives_sessions_when_it_has_seen_what_is_required(void **state)
{
	struct party p;
	char words[320];

	(void)state;
	start(&p, PROBE_ENFORCED, "tcp", 0);
	assert_int_equal(open_as(p.alpha, words), ROS2_BUSY);
	assert_non_null(strstr(words, "placement.require"));
	assert_int_equal(open_as(p.beta, words), ROS2_OK);
	assert_int_equal(p.w->probes, 0);
	sem_post(&go);
	world_wait(p.w, &p.w->probes, 1);
	assert_int_equal(p.w->probe_enforced, PROBE_ALL);
	assert_int_equal(open_as(p.alpha, words), ROS2_OK);
	stop(&p);
}

static void refused(enum probe_result mr_range, const char *of, int rc, const char *expected)
{
	struct party p;
	char words[320];

	start(&p, mr_range, of, rc);
	sem_post(&go);
	world_wait(p.w, &p.w->probes, 1);
	assert_int_equal(open_as(p.alpha, words), ROS2_DENIED);
	if (!strstr(words, expected))
		fail_msg("expected \"%s\" in \"%s\"", expected, words);
	assert_int_equal(open_as(p.beta, words), ROS2_OK);
	assert_true(world_wait_action(p.w, "session.deny"));
	stop(&p);
}

static void prober__gives_none_where_it_saw_that_it_is_not_enforced(void **state)
{
	(void)state;
	refused(PROBE_NOT_ENFORCED, "tcp", 0,
	        "mr-range over transport tcp of this agent: NOT enforced");
	refused(PROBE_NOT_SUPPORTED, "tcp", 0, "not supported");
}

static void prober__of_another_transport_says_nothing_of_this_one(void **state)
{
	(void)state;
	refused(PROBE_ENFORCED, "verbs", 0, "over transport tcp of this agent: not tried");
}

/* What a tenant that requires mr-range hears over shm; over tcp it is served. */
static enum ros2_status over_shm(const char *dir, enum probe_result of_shm, char words[320])
{
	char of_tcp[320];
	enum ros2_status st;
	struct party p;

	shm_dir_of_agent = dir;
	answer_of_shm = of_shm;
	start(&p, PROBE_ENFORCED, "tcp", 0);
	shm_dir_of_agent = NULL;
	sem_post(&go);
	world_wait(p.w, &p.w->probes, 1);
	assert_int_equal(shm_was_tried, dir != NULL);
	assert_int_equal(p.w->probe_subjects, dir ? 2 : 1);
	st = open_over(p.alpha, ROS2__V1__TRANSPORT__TRANSPORT_SHM, words);
	assert_int_equal(open_as(p.alpha, of_tcp), ROS2_OK);
	stop(&p);
	return st;
}

static void prober__tries_shm_where_it_is_offered(void **state)
{
	char words[320];

	(void)state;
	assert_int_equal(over_shm("/nobody/listens", PROBE_ENFORCED, words), ROS2_OK);
	assert_int_equal(over_shm("/nobody/listens", PROBE_NOT_ENFORCED, words), ROS2_DENIED);
	assert_non_null(strstr(words, "mr-range over transport shm of this agent: NOT enforced"));
	assert_int_equal(over_shm("/nobody/listens", PROBE_NOT_TRIED, words), ROS2_DENIED);
	assert_non_null(strstr(words, "not tried"));
	assert_int_equal(over_shm(NULL, PROBE_ENFORCED, words), ROS2_UNSUPPORTED);
}

static void prober__that_failed_has_seen_nothing(void **state)
{
	(void)state;
	refused(PROBE_ENFORCED, "tcp", -EIO, "not tried");
}

static void prober__tells_every_stream(void **state)
{
	struct party p;

	(void)state;
	start(&p, PROBE_ENFORCED, "tcp", 0);
	sem_post(&go);
	world_wait(p.w, &p.w->probes, 1);
	world_controller_stop(p.w);
	world_controller_start(p.w);
	world_wait(p.w, &p.w->probes, 2);
	stop(&p);
}

/* What the data plane is told of its device; "dev0" is it where @of is verbs. */
static uint32_t told(const char *of, const char *device, int rc)
{
	struct party p;

	device_of_agent = device;
	start(&p, PROBE_ENFORCED, of, rc);
	device_of_agent = NULL;
	fake_dp_log.rdma_seen = 0xdead;
	sem_post(&go);
	world_wait(p.w, &p.w->probes, 1);
	stop(&p);
	assert_int_equal(fake_dp_log.rdma_told, device != NULL);
	return fake_dp_log.rdma_seen;
}

static void prober__tells_the_data_plane_what_was_seen_of_its_device(void **state)
{
	(void)state;
	assert_int_equal(told("verbs", "dev0", 0), PROBE_ALL);
	assert_int_equal(told("verbs", "dev1", 0), 0);
	assert_int_equal(told("tcp", "dev0", 0), 0);
	assert_int_equal(told("verbs", "dev0", -EIO), 0);
	assert_int_equal(told("verbs", NULL, 0), 0xdead);
}

static void prober__is_waited_for_at_the_end(void **state)
{
	struct party p;

	(void)state;
	start(&p, PROBE_ENFORCED, "tcp", 0);
	sem_post(&go); /* it may or may not have begun */
	stop(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prober__gives_sessions_when_it_has_seen_what_is_required),
		cmocka_unit_test(prober__gives_none_where_it_saw_that_it_is_not_enforced),
		cmocka_unit_test(prober__of_another_transport_says_nothing_of_this_one),
		cmocka_unit_test(prober__tries_shm_where_it_is_offered),
		cmocka_unit_test(prober__that_failed_has_seen_nothing),
		cmocka_unit_test(prober__tells_every_stream),
		cmocka_unit_test(prober__tells_the_data_plane_what_was_seen_of_its_device),
		cmocka_unit_test(prober__is_waited_for_at_the_end),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

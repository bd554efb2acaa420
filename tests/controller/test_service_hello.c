/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No memory for how far one object is at an agent that comes back. What the controller does not
 * remember it would neither take away there nor send: the stream ends, and the next one has all.
 * And an agent that comes back too often.
 */
#include "controller/ctl.h"
#include "controller/test_switches.h"
#include "tests/await.h"
#include "tests/controller/service_attacks.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

struct ctl_test_switches ctl_test_switches; /* of link_hello.c: CMakeLists.txt */

static _Atomic int forgetful; /* so many entries find no memory */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	if (n == 1 && size == sizeof(struct ctl_rollout) && forgetful > 0) {
		forgetful--;
		return NULL;
	}
	return __real_calloc(n, size);
}

static struct fake agent;
static struct ros2_uid alpha, grant;

static struct sf *world(void **state)
{
	struct sf *f = *state;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	Ros2__V1__GetReply *g;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(f, KIND(TENANT), "alpha");
	memcpy(alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(f, &agent, "dpu-0");
	fake_connect(&agent, NULL, 0);
	fake_wait_synced(&agent);
	fake_ask_grant(&agent, 1, &alpha, TRAINER);
	m = fake_next(&agent, MSG(GRANT_REPLY), AWAIT_MS);
	assert_non_null(m);
	o = fake_open(&agent, m->grant_reply->grant);
	memcpy(grant.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	fake_disconnect(&agent);
	sf_audit_wait(f, "agent.disconnect", 1);
	return f;
}

static void refused_for_memory(void)
{
	assert_int_not_equal(fake_wait_closed(&agent, AWAIT_MS), 0);
	assert_int_equal(agent.why.status, ROS2_BUSY);
	assert_int_equal(forgetful, 0);
	fake_disconnect(&agent);
}

static bool names(const Ros2__V1__Delta *d, const struct ros2_uid *uid)
{
	for (size_t i = 0; i < d->n_removals; i++)
		if (!memcmp(d->removals[i]->uid.data, uid->b, ROS2_UID_LEN))
			return true;
	return false;
}

static void hello__whose_list_finds_no_memory_is_not_accepted(void **state)
{
	Ros2__V1__HaveObject have[2] = {ROS2__V1__HAVE_OBJECT__INIT, ROS2__V1__HAVE_OBJECT__INIT};
	struct sf *f = world(state);
	bool tenant = false, right = false;

	have[0].kind = KIND(TENANT);
	have[0].uid = (ProtobufCBinaryData){ROS2_UID_LEN, alpha.b};
	have[0].version = 1;
	have[1].kind = KIND(GRANT);
	have[1].uid = (ProtobufCBinaryData){ROS2_UID_LEN, grant.b};
	have[1].version = 1;
	/* While it is away its tenant goes elsewhere, and the grant ends: no revocation tells it.
	 */
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	forgetful = 1;
	fake_connect(&agent, have, 2);
	refused_for_memory();
	fake_connect(&agent, have, 2);
	while (!tenant || !right) {
		Ros2__V1__ControllerMessage *m = fake_next(&agent, MSG(DELTA), AWAIT_MS);

		assert_non_null(m);
		tenant |= names(m->delta, &alpha);
		right |= names(m->delta, &grant);
	}
	fake_free(&agent);
}

static void sync__that_finds_no_memory_ends_the_stream(void **state)
{
	unsigned n = 0;

	world(state);
	forgetful = 1;
	fake_connect(&agent, NULL, 0);
	refused_for_memory();
	fake_connect(&agent, NULL, 0);
	while (n < 3) { /* the engine, the tenant and the grant */
		Ros2__V1__ControllerMessage *m = fake_next(&agent, MSG(DELTA), AWAIT_MS);

		assert_non_null(m);
		n += m->delta->n_upserts;
	}
	fake_free(&agent);
}

/* How many are taken at once; the bounds are small here. */
static unsigned hellos(unsigned most)
{
	unsigned n = 0;

	while (n < most && attack_hello(&agent) == ROS2_OK)
		n++;
	return n;
}

static void hello__too_often_is_refused_and_recorded_by_the_cap(void **state)
{
	struct sf *f = world(state);

	assert_in_range(hellos(100), 1, 50);
	assert_int_equal(agent.why.status, ROS2_BUSY);
	assert_non_null(strstr(agent.why.msg, "says hello more than 1 times a second (fixed)"));
	assert_true(AWAIT(
		sf_audit_says(f, "agent.connect", "spiffe://" TD "/agent/dpu-0",
	                      "agent \"dpu-0\" says hello more than 1 times a second (fixed)")));
	ctl_test_switches.no_hello_rate = true;
	assert_int_equal(hellos(100), 100);
	ctl_test_switches.no_hello_rate = false;
	assert_int_equal(hellos(100), 0);
	fake_free(&agent);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(hello__whose_list_finds_no_memory_is_not_accepted),
		T(sync__that_finds_no_memory_ends_the_stream),
		T(hello__too_often_is_refused_and_recorded_by_the_cap),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

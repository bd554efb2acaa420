/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that are open when placement.require comes to bind them: a document gains it, or what
 * was tried answers differently. Those over a transport that does not hold it end, the others go
 * on, and with the check switched off (session_events.c and service_session.c are compiled
 * into this test) all go on. Likewise the way between the agent and an engine, at Mount and after.
 */
#include "agent/prober.h"
#include "agent/test_switches.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include <stdio.h>
#include <string.h>

struct agent_test_switches agent_test_switches;

static _Atomic unsigned device_holds; /* mr-range, as the next try sees it */

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
	(void)err;
	fill(&out[0], "tcp", "tcp", true);
	fill(&out[1], "dev0", "verbs", device_holds);
	*ret_n = 2;
	return 0;
}

struct party {
	struct world *w;
	struct rpc_channel *alpha, *beta;
	struct ros2_uid tcp, verbs, betas; /* sessions; beta's is over verbs */
};

static struct ros2_uid open_over(struct rpc_channel *c, Ros2__V1__Transport t)
{
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	struct ros2_uid uid;

	req.protocol = RPC_PROTOCOL_VERSION;
	req.transport = t;
	assert_int_equal(world_call(c, &ros2_v1_tenant_open_session, &req.base, &m, NULL), ROS2_OK);
	memcpy(uid.b, ((Ros2__V1__OpenSessionReply *)m)->session_uid.data, 16);
	protobuf_c_message_free_unpacked(m, NULL);
	return uid;
}

/* What a call in the session says. */
static enum ros2_status state_of(struct rpc_channel *c, const struct ros2_uid *s, char words[320])
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;
	struct ros2_uid uid = *s;

	req.session_uid = (ProtobufCBinaryData){16, uid.b};
	req.namespace_name = (char *)"data";
	return world_call(c, &ros2_v1_tenant_mount, &req.base, NULL, words);
}

static void start(struct party *p, bool holds, const char *require)
{
	device_holds = holds;
	p->w = calloc(1, sizeof(*p->w));
	fix_require = require;
	world_start(p->w);
	p->w->probe = scripted;
	p->w->rdma_device = "dev0";
	world_agent_start(p->w);
	world_populate(p->w);
	fix_require = "";
	world_wait(p->w, &p->w->probes, 1);
	p->alpha = world_tenant(p->w, "alpha");
	p->beta = world_tenant(p->w, "beta");
	p->tcp = open_over(p->alpha, ROS2__V1__TRANSPORT__TRANSPORT_TCP);
	p->verbs = open_over(p->alpha, ROS2__V1__TRANSPORT__TRANSPORT_VERBS);
	p->betas = open_over(p->beta, ROS2__V1__TRANSPORT__TRANSPORT_VERBS);
}

static void stop(struct party *p)
{
	rpc_channel_free(p->alpha);
	rpc_channel_free(p->beta);
	world_stop(p->w);
	free(p->w);
}

/* Only alpha's session over verbs is over, and everybody is told why. */
static void only_verbs_ended(struct party *p)
{
	char words[320];

	assert_int_equal(state_of(p->alpha, &p->verbs, words), ROS2_REVOKED);
	if (!strstr(words, "mr-range over transport verbs of this agent: NOT enforced"))
		fail_msg("the tenant hears \"%s\"", words);
	assert_int_equal(state_of(p->alpha, &p->tcp, words), ROS2_OK);
	assert_int_equal(state_of(p->beta, &p->betas, words), ROS2_OK);
	assert_true(world_wait_action(p->w, "session.close"));
	pthread_mutex_lock(&p->w->lock);
	assert_non_null(strstr(p->w->reasons, "placement.require: mr-range over transport verbs"));
	pthread_mutex_unlock(&p->w->lock);
	assert_int_equal(fake_dp_sessions(), 2);
}

static void all_go_on(struct party *p)
{
	assert_int_equal(state_of(p->alpha, &p->verbs, NULL), ROS2_OK);
	assert_int_equal(state_of(p->alpha, &p->tcp, NULL), ROS2_OK);
	assert_int_equal(state_of(p->beta, &p->betas, NULL), ROS2_OK);
}

static void new_document(struct party *p, const char *require)
{
	unsigned was = p->w->applied;
	Ros2__V1__AgentObject *o;

	fix_require = require;
	o = fix_tenant(&p->w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 2);
	fix_require = "";
	world_send(p->w, &o, 1, false);
	world_wait(p->w, &p->w->applied, was + 1);
}

static void try_again(void *arg)
{
	prober_start(((struct world *)arg)->agent->prober);
}

static void another_try(struct party *p, bool holds)
{
	unsigned was = p->w->probes;

	device_holds = holds;
	loop_call(p->w->loop, try_again, p->w);
	world_wait(p->w, &p->w->probes, was + 1);
}

static void document__that_gains_a_requirement_ends_what_does_not_meet_it(void **state)
{
	struct party p;

	(void)state;
	start(&p, false, "");
	new_document(&p, "mr-range");
	only_verbs_ended(&p);
	stop(&p);
}

static void document__whose_requirement_the_device_meets_ends_nothing(void **state)
{
	struct party p;

	(void)state;
	start(&p, true, "");
	new_document(&p, "mr-range");
	all_go_on(&p);
	stop(&p);
}

static void probe__that_answers_differently_ends_what_rested_on_it(void **state)
{
	struct party p;

	(void)state;
	start(&p, true, "mr-range");
	another_try(&p, true);
	all_go_on(&p);
	another_try(&p, false);
	only_verbs_ended(&p);
	stop(&p);
}

/* The engine of both tenants' namespaces is reached over RDMA; the session itself is over tcp,
 * which holds all that is required. */
static void start_with_rdma_engine(struct party *p, bool holds)
{
	const char *tcp = fix_nvmf_transport;
	Ros2__V1__AgentObject *objs[3];

	device_holds = holds;
	p->w = calloc(1, sizeof(*p->w));
	world_start(p->w);
	p->w->probe = scripted;
	p->w->rdma_device = "dev0";
	world_agent_start(p->w);
	world_wait(p->w, &p->w->beats, 1);
	fix_nvmf_transport = "rdma";
	objs[0] = fix_nvmf(&p->w->f, "files", 1, 1);
	fix_nvmf_transport = tcp;
	fix_require = "mr-range";
	objs[1] = fix_tenant(&p->w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 1);
	objs[2] = fix_tenant(&p->w->f, "beta", FIX_BETA, WORLD_BETA_SEED, 1);
	fix_require = "";
	world_send(p->w, objs, 3, true);
	world_wait(p->w, &p->w->applied, 3);
	world_wait(p->w, &p->w->probes, 1);
	p->alpha = world_tenant(p->w, "alpha");
	p->beta = world_tenant(p->w, "beta");
	p->tcp = open_over(p->alpha, ROS2__V1__TRANSPORT__TRANSPORT_TCP);
	p->betas = open_over(p->beta, ROS2__V1__TRANSPORT__TRANSPORT_TCP);
}

static void engine__over_a_device_that_does_not_hold_what_is_required_is_not_mounted(void **state)
{
	struct party p;
	char words[320];

	(void)state;
	start_with_rdma_engine(&p, false);
	assert_int_equal(state_of(p.alpha, &p.tcp, words), ROS2_DENIED);
	if (!strstr(words, "engine files: placement.require: mr-range over transport verbs of "
	                   "this agent: NOT enforced"))
		fail_msg("the tenant hears \"%s\"", words);
	assert_int_equal(fake_dp_log.mounts, 0);
	/* beta requires nothing */
	assert_int_equal(state_of(p.beta, &p.betas, NULL), ROS2_OK);
	stop(&p);
}

static void engine__whose_device_holds_no_longer_what_is_required_ends_the_session(void **state)
{
	struct party p;
	char words[320];

	(void)state;
	start_with_rdma_engine(&p, true);
	assert_int_equal(state_of(p.alpha, &p.tcp, NULL), ROS2_OK);
	assert_int_equal(state_of(p.beta, &p.betas, NULL), ROS2_OK);
	another_try(&p, false);
	assert_int_equal(state_of(p.alpha, &p.tcp, words), ROS2_REVOKED);
	if (!strstr(words, "engine files: placement.require: mr-range"))
		fail_msg("the tenant hears \"%s\"", words);
	assert_int_equal(state_of(p.beta, &p.betas, NULL), ROS2_OK);
	stop(&p);
}

static void control__without_the_check_all_go_on(void **state)
{
	struct party p;

	(void)state;
	agent_test_switches.no_transport_check = true;
	start(&p, true, "");
	new_document(&p, "mr-range");
	another_try(&p, false);
	all_go_on(&p);
	stop(&p);
	start_with_rdma_engine(&p, false);
	assert_int_equal(state_of(p.alpha, &p.tcp, NULL), ROS2_OK);
	another_try(&p, false);
	assert_int_equal(state_of(p.alpha, &p.tcp, NULL), ROS2_OK);
	stop(&p);
	agent_test_switches.no_transport_check = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(document__that_gains_a_requirement_ends_what_does_not_meet_it),
		cmocka_unit_test(document__whose_requirement_the_device_meets_ends_nothing),
		cmocka_unit_test(probe__that_answers_differently_ends_what_rested_on_it),
		cmocka_unit_test(
			engine__over_a_device_that_does_not_hold_what_is_required_is_not_mounted),
		cmocka_unit_test(
			engine__whose_device_holds_no_longer_what_is_required_ends_the_session),
		cmocka_unit_test(control__without_the_check_all_go_on),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

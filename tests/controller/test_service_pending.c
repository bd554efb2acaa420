/* SPDX-License-Identifier: Apache-2.0 */
/* Whose keys are pending, as a scripted agent says it, hostile or not: bounded, printable, named by
 * the controller, and over with the next receipt. */
#include "common/utf8.h"
#include "common/util.h"
#include "tests/controller/service_fixture.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define MANY    70

/* Its stream outlives a test that fails. */
static struct fake agent;

struct revoking {
	struct sf *f;
	pthread_t thread;
	uint32_t wait_ms;
	Ros2__V1__RevokeReply *reply;
	struct ros2_err err;
	int rc;
};

static void *revoke_main(void *arg)
{
	struct revoking *v = arg;

	v->rc = sf_revoke(v->f, KIND(AGENT), "dpu-0", v->wait_ms, &v->reply, &v->err);
	return NULL;
}

/* Begins a revocation of the whole agent; its uid. */
static ProtobufCBinaryData begin(struct sf *f, struct revoking *v, uint32_t wait_ms)
{
	const Ros2__V1__ControllerMessage *m;

	*v = (struct revoking){.f = f, .wait_ms = wait_ms};
	assert_int_equal(pthread_create(&v->thread, NULL, revoke_main, v), 0);
	m = fake_next(&agent, MSG(REVOKE), 10000);
	assert_non_null(m);
	return m->revoke->revocation_uid;
}

static const Ros2__V1__RevokeOutcome *end(struct revoking *v)
{
	pthread_join(v->thread, NULL);
	if (v->rc)
		fail_msg("%s", v->err.msg);
	assert_int_equal(v->reply->n_outcomes, 1);
	return v->reply->outcomes[0];
}

struct said {
	Ros2__V1__PendingKeys v[MANY], *ptrs[MANY];
	struct ros2_uid uid[MANY];
	Ros2__V1__Receipt r;
};

static struct said *said(struct said *s, ProtobufCBinaryData revocation, size_t n)
{
	ros2__v1__receipt__init(&s->r);
	s->r.revocation_uid = revocation;
	s->r.durable = true;
	s->r.draining = n ? 3 : 0;
	for (size_t i = 0; i < n; i++) {
		ros2__v1__pending_keys__init(&s->v[i]);
		s->uid[i] = ros2_uid_new();
		s->v[i].tenant_uid = (ProtobufCBinaryData){16, s->uid[i].b};
		s->v[i].tenant = (char *)"what an agent says";
		s->v[i].keys = (uint32_t)(1000 - i);
		s->v[i].device = (char *)"mlx5_0";
		s->ptrs[i] = &s->v[i];
	}
	s->r.pending = s->ptrs;
	s->r.n_pending = n;
	return s;
}

/* Returns when the controller has taken it. */
static void send(struct said *s)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;

	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT;
	m.receipt = &s->r;
	fake_send(&agent, &m);
	fake_beat(&agent, NULL, 0);
	assert_non_null(fake_next(&agent, MSG(CONTACT), 10000));
}

/* The answer to a revocation during whose wait that receipt came: on a slow machine it may come
 * after it, then it is asked again and waits for longer. */
static const Ros2__V1__RevokeOutcome *tell(struct sf *f, struct said *s, struct revoking *v)
{
	for (uint32_t wait_ms = 300; wait_ms < 60000; wait_ms *= 2) {
		const Ros2__V1__RevokeOutcome *o;

		s->r.revocation_uid = begin(f, v, wait_ms);
		send(s);
		o = end(v);
		if (o->state != ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED)
			return o;
		ros2__v1__revoke_reply__free_unpacked(v->reply, NULL);
	}
	fail_msg("no receipt arrived in time");
	return NULL;
}

static int setup(void **state)
{
	struct sf *f;

	if (sf_setup(state))
		return -1;
	f = *state;
	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	memset(&agent, 0, sizeof(agent));
	fake_enrol(f, &agent, "dpu-0");
	fake_connect(&agent, NULL, 0);
	fake_wait_synced(&agent);
	return 0;
}

static int teardown(void **state)
{
	fake_free(&agent);
	return sf_teardown(state);
}

static void pending__tenants_are_named_by_the_controller(void **state)
{
	Ros2__V1__GetReply *g = sf_get(*state, KIND(TENANT), "alpha");
	const Ros2__V1__RevokeOutcome *o;
	struct revoking v;
	struct said s;

	said(&s, (ProtobufCBinaryData){0}, 2);
	memcpy(s.uid[1].b, g->object->uid.data, 16);
	s.r.pending_left_out = 7;
	o = tell(*state, &s, &v);
	assert_int_equal(o->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_DRAINING);
	assert_int_equal(o->n_pending, 2);
	assert_int_equal(o->pending_left_out, 7);
	assert_string_equal(o->pending[0]->tenant, "");
	assert_memory_equal(o->pending[0]->tenant_uid.data, s.uid[0].b, 16);
	assert_int_equal(o->pending[0]->keys, 1000);
	assert_string_equal(o->pending[1]->tenant, "alpha");
	assert_string_equal(o->pending[1]->device, "mlx5_0");
	ros2__v1__revoke_reply__free_unpacked(v.reply, NULL);
	ros2__v1__get_reply__free_unpacked(g, NULL);
}

static void pending__beyond_the_bound_or_without_a_name_is_counted(void **state)
{
	const Ros2__V1__RevokeOutcome *o;
	char words[4000];
	struct revoking v;
	struct said s;

	memset(words, 'x', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	memcpy(words, "\x1b[2J\n\xc2\x9b", 7);
	said(&s, (ProtobufCBinaryData){0}, MANY);
	s.v[0].tenant_uid.len = 3;
	s.v[1].device = words;
	s.r.pending_left_out = 5;
	o = tell(*state, &s, &v);
	assert_int_equal(o->n_pending, 63);
	assert_int_equal(o->pending_left_out, 5 + MANY - 63);
	assert_int_equal(o->pending[0]->keys, 999);
	assert_true(strlen(o->pending[0]->device) <= 63);
	assert_true(utf8_text_printable(o->pending[0]->device));
	ros2__v1__revoke_reply__free_unpacked(v.reply, NULL);
	s.r.pending_left_out = UINT32_MAX;
	assert_int_equal(tell(*state, &s, &v)->pending_left_out, UINT32_MAX);
	ros2__v1__revoke_reply__free_unpacked(v.reply, NULL);
}

/* What is in it contradicts itself: it confirms nothing. */
static void pending__in_a_receipt_that_drains_nothing_is_not_confirmed(void **state)
{
	const Ros2__V1__RevokeOutcome *o;
	struct revoking v;
	struct said s;

	said(&s, (ProtobufCBinaryData){0}, 1);
	s.r.draining = 0;
	o = tell(*state, &s, &v);
	assert_int_equal(o->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_DRAINING);
	assert_int_equal(o->n_pending, 1);
	ros2__v1__revoke_reply__free_unpacked(v.reply, NULL);
}

static void pending__is_over_with_the_last_receipt(void **state)
{
	const Ros2__V1__RevokeOutcome *o;
	ProtobufCBinaryData uid;
	struct revoking v;
	struct said s;

	uid = begin(*state, &v, 60000);
	send(said(&s, uid, 5));
	send(said(&s, uid, 0));
	o = end(&v);
	assert_int_equal(o->state, ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED);
	assert_int_equal(o->n_pending, 0);
	assert_int_equal(o->pending_left_out, 0);
	ros2__v1__revoke_reply__free_unpacked(v.reply, NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(pending__tenants_are_named_by_the_controller),
		T(pending__beyond_the_bound_or_without_a_name_is_counted),
		T(pending__in_a_receipt_that_drains_nothing_is_not_confirmed),
		T(pending__is_over_with_the_last_receipt),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A grant that its agent gives back while something of it is under way: a renewal on the wire, at
 * the store, or a connection that begins anew. The agent must not be left with one that the
 * controller has ended: nobody could name it any more to revoke it. The agent is scripted, and what
 * it has is what the messages say, in their order.
 */
#include "controller/store.h"
#include "controller/test_switches.h"
#include "tests/await.h"
#include "tests/controller/service_attacks.h"
#include <stdlib.h>

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define HALF_MS 2000 /* of the life of a grant: then it is renewed in use */
#define LIFE    "4s"

struct ctl_test_switches ctl_test_switches;

/* ---- a store that takes nothing, or later ---- */

static _Atomic enum store_works { WORKS, FULL, HOLDS } how;
static struct loop *loop; /* of the controller */

/* What it holds: on the controller's loop, but for the count. */
static struct held {
	struct store *s;
	struct store_txn *t;
	store_done_fn done;
	void *arg;
} held[8];
static _Atomic unsigned n_held;
static unsigned n_taken;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);

static void answer_full(void *arg)
{
	struct held *h = arg;
	struct store_result r = {.rc = -ENOSPC};

	ros2_err_set(&r.err, -ENOSPC, "the disk is full");
	h->done(h->arg, &r);
	free(h);
}

/* Of what nobody waits for the end it takes all. */
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	struct held *h;

	if (how == WORKS || !done)
		return __real_store_submit(s, t, done, arg, err);
	if (how == HOLDS) {
		assert_true(n_held < ARRAY_SIZE(held));
		held[n_held++] = (struct held){s, t, done, arg};
		return 0;
	}
	store_txn_free(t);
	h = malloc(sizeof(*h));
	*h = (struct held){.done = done, .arg = arg};
	loop_post(loop, answer_full, h);
	return 0;
}

static void take_next(void *arg)
{
	struct held *h = &held[n_taken++];

	(void)arg;
	assert_int_equal(__real_store_submit(h->s, h->t, h->done, h->arg, NULL), 0);
}

/* ---- the agent ---- */

static struct two two;
static struct ros2_uid grant;
static _Atomic uint64_t has; /* its version of the grant; 0: none */

static bool sees(struct fake *a, const Ros2__V1__ControllerMessage *m)
{
	if (m->msg_case != MSG(DELTA))
		return false;
	for (size_t i = 0; i < m->delta->n_removals; i++) {
		const Ros2__V1__HaveObject *h = m->delta->removals[i];

		if (!memcmp(h->uid.data, grant.b, ROS2_UID_LEN) && h->version >= has)
			has = 0;
	}
	for (size_t i = 0; i < m->delta->n_upserts; i++) {
		Ros2__V1__AgentObject *o = fake_open(a, m->delta->upserts[i]);

		if (!memcmp(o->uid.data, grant.b, ROS2_UID_LEN))
			has = o->version;
		ros2__v1__agent_object__free_unpacked(o, NULL);
	}
	return false;
}

/* Everything that was sent before is seen. */
static void beat(struct ros2_uid *in_use)
{
	fake_beat(&two.a, in_use, in_use ? 1 : 0);
	fake_want(&two.a, MSG(CONTACT));
}

static void world(void **state)
{
	how = WORKS;
	n_held = n_taken = 0;
	two_start(state, &two);
	loop = two.f->loop;
	sf_apply(two.f, sf_tenant("alpha", LIFE, "10m", "dpu-0"));
	beat(NULL);
	grant = two_grant(&two);
	has = 0;
	two.a.sees = sees;
}

/* ---- under way ---- */

/* The renewal is on the wire when the agent gives the grant back: it takes that for a new one. True
 * when it is left with it. */
static bool crosses_on_the_wire(void)
{
	while (!has) {
		beat(&grant);
		/* poll: until its half life is over, at the rate at which an agent may speak */
		usleep(50000);
	}
	fake_release(&two.a, &grant);
	sf_audit_wait(two.f, "grant.release", 1);
	beat(NULL);
	assert_int_equal(sf_grants_of(two.f, "alpha"), 0);
	return has;
}

/* The same with the renewal at the store, which takes it, and the end, only then, one by one. */
static bool crosses_at_the_store(void)
{
	/* time: half its life, a renewal is due */
	usleep((HALF_MS + 200) * 1000);
	how = HOLDS;
	fake_beat(&two.a, &grant, 1);
	assert_true(AWAIT(n_held == 1));
	fake_release(&two.a, &grant);
	assert_true(AWAIT(n_held == 2));
	how = WORKS;
	loop_post(loop, take_next, NULL);
	sf_audit_wait(two.f, "grant.renew", 1);
	beat(NULL);
	loop_post(loop, take_next, NULL);
	sf_audit_wait(two.f, "grant.release", 1);
	beat(NULL);
	assert_int_equal(sf_grants_of(two.f, "alpha"), 0);
	return has;
}

/* The end cannot be stored, so the controller has the grant still; the agent, which does not, comes
 * anew. With @old: from a snapshot in which it was. */
static bool comes_back_with_the_next_connection(bool old)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;

	how = FULL;
	fake_release(&two.a, &grant);
	beat(NULL);
	fake_disconnect(&two.a);
	have.kind = KIND(GRANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, grant.b};
	have.version = has = old ? 1 : 0;
	fake_connect(&two.a, &have, old ? 1 : 0);
	fake_wait_synced(&two.a);
	how = WORKS;
	return has;
}

static void released__while_its_renewal_is_on_the_wire_is_taken_away_again(void **state)
{
	world(state);
	assert_false(crosses_on_the_wire());
	two_stop(&two);
}

static void released__while_its_renewal_is_at_the_store_is_not_sent(void **state)
{
	world(state);
	assert_false(crosses_at_the_store());
	two_stop(&two);
}

static void released__on_a_full_disk_is_not_handed_out_again(void **state)
{
	world(state);
	assert_false(comes_back_with_the_next_connection(false));
	assert_false(comes_back_with_the_next_connection(true));
	two_stop(&two);
}

static void control__of_the_wire(void **state)
{
	world(state);
	ctl_test_switches.no_giving_back = true;
	assert_true(crosses_on_the_wire());
	ctl_test_switches.no_giving_back = false;
	two_stop(&two);
}

static void control__of_the_store(void **state)
{
	world(state);
	ctl_test_switches.no_giving_back = true;
	assert_true(crosses_at_the_store());
	ctl_test_switches.no_giving_back = false;
	two_stop(&two);
}

static void control__of_the_full_disk(void **state)
{
	world(state);
	ctl_test_switches.no_giving_back = true;
	assert_true(comes_back_with_the_next_connection(false));
	ctl_test_switches.no_giving_back = false;
	two_stop(&two);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(released__while_its_renewal_is_on_the_wire_is_taken_away_again),
		T(released__while_its_renewal_is_at_the_store_is_not_sent),
		T(released__on_a_full_disk_is_not_handed_out_again),
		T(control__of_the_wire),
		T(control__of_the_store),
		T(control__of_the_full_disk),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's order, the classes of refusals, how many hellos of an agent are taken, and what
 * joining transactions looks at, on a domain without store and loop. */
#include "controller/ctl.h"
#include "controller/link_priv.h"
#include "controller/store_txn.c"
#include "controller/svc_priv.h"
#include "controller/test_switches.h"
#include "proto/rpc/rpc.h"
#include "tests/testing.h"
#include <stdio.h>
#include <errno.h>
#include <string.h>

struct ctl_test_switches ctl_test_switches; /* of link_hello.c: CMakeLists.txt */

static unsigned n_drafts;
static char last_action[64], last_tenant[64];

int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	n_drafts++;
	snprintf(last_action, sizeof(last_action), "%s", t->drafts[0]->action);
	snprintf(last_tenant, sizeof(last_tenant), "%s", t->drafts[0]->tenant);
	store_txn_free(t);
	if (done)
		done(arg, &(struct store_result){0});
	return 0;
}

static char order[16];
static void enters(void *arg)
{
	strcat(order, arg);
}

static void gate__lets_what_takes_rights_away_go_first(void **state)
{
	struct ctl c = {0};

	list_init(&c.gate);
	order[0] = '\0';
	assert_int_equal(ctl_gate_enter(&c, enters, (char *)"a"), 0);
	for (int i = 0; i < CTL_GATE_MAX; i++)
		assert_int_equal(ctl_gate_enter(&c, enters, i ? (char *)"" : (char *)"b"), 0);
	assert_int_equal(ctl_gate_enter(&c, enters, (char *)"x"), -EBUSY);
	assert_int_equal(ctl_gate_enter_urgent(&c, enters, (char *)"U"), 0);
	assert_int_equal(ctl_gate_enter_urgent(&c, enters, (char *)"V"), 0);
	for (int i = 0; i < CTL_GATE_MAX + 3; i++)
		ctl_gate_leave(&c);
	assert_string_equal(order, "aUVb");
	assert_false(c.gate_busy);
}

static void deny(struct ctl *c, const char *key, const struct ctl_object *tenant)
{
	struct ctl_caller who = {.spiffe = "spiffe://x/y", .role = CTL_AGENT};

	ctl_audit_denied(c, key, &who, key, tenant, "agent", "x", ROS2_DENIED, "no");
}

static void denials__of_strangers_leave_the_others_theirs(void **state)
{
	struct loop *loop;
	struct ctl c = {0};
	struct ctl_object tenant = {.kind = STORE_TENANT, .name = "alpha"};
	char key[64];

	n_drafts = 0;
	assert_int_equal(loop_new(&(struct loop_opts){.name = "x"}, &loop), 0);
	for (int i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "enrol/10.0.%d.%d", i / 256, i % 256);
		deny(&c, key, NULL);
	}
	/* Beyond so many addresses they share one count... */
	assert_int_equal(n_drafts, 1024 + 100 + 10);
	/* ...but an administrator's refusal is still one by one. */
	deny(&c, "admin/one", NULL);
	assert_int_equal(n_drafts, 1024 + 100 + 10 + 1);
	assert_string_equal(last_action, "admin/one");
	/* A count that tenants share is in the history of none. */
	for (int i = 0; i < 1100; i++) {
		snprintf(key, sizeof(key), "grant/%d", i);
		deny(&c, key, &tenant);
		assert_string_equal(last_tenant, i < 1024 ? "alpha" : "");
	}
	ctl_denials_free(&c);
	loop_free(loop);
}

/* Who has no certificate may have as many addresses as he likes. */
static void enrolments__that_are_refused_are_counted_whatever_their_address(void **state)
{
	struct loop *loop;
	struct ctl c = {0};
	struct ctl_caller who = {.role = CTL_AGENT};
	struct ros2_err err;
	bool again;

	n_drafts = 0;
	assert_int_equal(loop_new(&(struct loop_opts){.name = "x"}, &loop), 0);
	for (int i = 0; i < 1000; i++) {
		snprintf(who.peer, sizeof(who.peer), "10.0.%d.%d:7", i / 256, i % 256);
		err = (struct ros2_err)ROS2_ERR_INIT;
		assert_true(ctl_enrol_check(&c, &who, "dpu-0", "", "none", 4, &again, &err) < 0);
	}
	assert_int_equal(n_drafts, 100 + 10);
	assert_string_equal(last_action, "agent.enrol");
	ctl_denials_free(&c);
	loop_free(loop);
}

#define HELLOS_ENOUGH 1000

/* How many are taken of an agent that says nothing else. */
static unsigned hellos(size_t n_have)
{
	struct ctl c = {0};
	struct svc s = {.ctl = &c};
	struct link l = {.svc = &s, .name = "dpu-0"};
	struct ctl_object o = {.kind = STORE_AGENT, .name = "dpu-0", .uid = ros2_uid_new()};
	struct ctl_agent a = {.ctl = &c, .obj = &o};
	Ros2__V1__AgentHello h = ROS2__V1__AGENT_HELLO__INIT;
	Ros2__V1__Stamp stamp = ROS2__V1__STAMP__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	unsigned n = 0;

	stamp.boot_id = h.incarnation = h.agent_uid = (ProtobufCBinaryData){16, o.uid.b};
	h.protocol = RPC_PROTOCOL_VERSION;
	h.stamp = &stamp;
	h.n_have = n_have;
	while (n < HELLOS_ENOUGH && link_check_hello(&l, &a, &h, &err) == 0)
		n++;
	if (n == HELLOS_ENOUGH)
		return n;
	assert_int_equal(err.status, ROS2_BUSY);
	assert_non_null(strstr(err.msg, "says hello more than 10 times a second (fixed)"));
	return n;
}

static void hello__that_names_many_objects_counts_as_many(void **state)
{
	assert_in_range(hellos(0), 100, 150);
	assert_in_range(hellos(4999), 100, 150);
	assert_in_range(hellos(40000), 9, 15);
	/* The most that there can be: an agent that comes back at once is let in. */
	assert_in_range(hellos(200000), 2, 4);
}

static void control__without_the_rate_any_number_is_taken(void **state)
{
	ctl_test_switches.no_hello_rate = true;
	assert_int_equal(hellos(0), HELLOS_ENOUGH);
	assert_int_equal(hellos(200000), HELLOS_ENOUGH);
	ctl_test_switches.no_hello_rate = false;
}

/* With a draft and a string that has a piece of memory for itself. */
static struct store_txn *one_of_many(const char *action)
{
	struct store_txn *t = store_txn_new();

	assert_non_null(t);
	store_txn_audit(t)->action = store_txn_str(t, action);
	return t;
}

/* Thousands may be joined to one: each walk over what is joined already would be as long as that.
 */
static void transaction__that_is_joined_leaves_alone_what_was_joined_before(void **state)
{
	char long_one[2 * CHUNK_MIN];
	struct store_txn *t = one_of_many("first");
	struct chunk *before, *end, trap = {0};

	memset(long_one, 'x', sizeof(long_one) - 1);
	long_one[sizeof(long_one) - 1] = '\0';
	for (int i = 0; i < 3; i++)
		store_txn_join(t, one_of_many(long_one));
	/* Whoever walks to the end comes by here. */
	for (before = t->chunks; before->next->next; before = before->next)
		;
	end = before->next;
	before->next = &trap;
	store_txn_join(t, one_of_many(long_one));
	assert_null(trap.next);
	assert_ptr_equal(before->next, &trap);
	before->next = end;
	assert_int_equal(store_txn_drafts(t), 5);
	assert_string_equal(t->drafts[0]->action, "first");
	for (size_t i = 1; i < 5; i++)
		assert_string_equal(t->drafts[i]->action, long_one);
	store_txn_free(t); /* each piece once, says the sanitizer */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gate__lets_what_takes_rights_away_go_first),
		cmocka_unit_test(denials__of_strangers_leave_the_others_theirs),
		cmocka_unit_test(enrolments__that_are_refused_are_counted_whatever_their_address),
		cmocka_unit_test(hello__that_names_many_objects_counts_as_many),
		cmocka_unit_test(control__without_the_rate_any_number_is_taken),
		cmocka_unit_test(transaction__that_is_joined_leaves_alone_what_was_joined_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

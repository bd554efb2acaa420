/* SPDX-License-Identifier: Apache-2.0 */
/* The gate's order, and the classes of refusals, on a domain without store and loop. */
#include "controller/ctl.h"
#include "controller/store_txn.h"
#include "tests/testing.h"
#include <stdio.h>
#include <errno.h>
#include <string.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gate__lets_what_takes_rights_away_go_first),
		cmocka_unit_test(denials__of_strangers_leave_the_others_theirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An older copy of the controller's data directory is put back, and started until its epoch is a
 * newer one for the agent again. The agent has documents that this controller has never heard of.
 * It would keep them against each revocation up to their version, and send a receipt; so it is not
 * let in, and its tenant's revocation is confirmed by nobody. The control: a copy that has them.
 */
#include "tests/faults/pair.h"
#include "common/fsx.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"

#define CHANGES 8 /* versions that the copy does not have: more than what it gives out first */

struct copy {
	void *p; /* owned */
	size_t len;
};

static void database(struct pair *p, char path[300])
{
	snprintf(path, 300, "%s/ros2.db", p->f->dir);
}

static void take_copy(struct pair *p, struct copy *c)
{
	char path[300];

	database(p, path);
	assert_int_equal(fsx_read_file(path, 64 << 20, &c->p, &c->len, NULL), 0);
}

static void put_back(struct pair *p, struct copy *c)
{
	char path[300];

	database(p, path);
	assert_int_equal(fsx_write_atomic(path, c->p, c->len, 0600, NULL), 0);
	free(TAKE_PTR(c->p));
}

static void start(struct pair *p)
{
	sf_start(p->f);
	relay_target(p->relay, CUT_LINK, p->f->ports.agent);
	relay_target(p->relay, CUT_ENROL, p->f->ports.enrol);
	relay_target(p->relay, CUT_ADMIN, p->f->ports.admin);
}

static bool in_force(struct pair *p, void *arg)
{
	struct pair_rollout r;

	pair_rollout(p, &r);
	return r.applied == r.version && pair_is_quiet(p);
}

static void change_alpha(struct pair *p)
{
	char lifetime[16];

	for (int i = 1; i <= CHANGES; i++) {
		snprintf(lifetime, sizeof(lifetime), "%dh", 1 + i);
		pair_apply_alpha(p, lifetime, "dpu-0");
	}
	assert_true(pair_until(p, in_force, NULL));
}

static bool revoke_is_confirmed(struct pair *p)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	bool is = false;

	if (sf_revoke(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha", 1000, &r, &err))
		fail_msg("%s", err.msg);
	for (size_t i = 0; i < r->n_outcomes; i++)
		is |= !strcmp(r->outcomes[i]->agent, "dpu-0") &&
		      r->outcomes[i]->state == ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED;
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	return is;
}

static bool is_quiet(struct pair *p, void *arg)
{
	return pair_is_quiet(p);
}

static bool is_refused(struct pair *p, void *arg)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.action = (char *)"agent.connect";
	q.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED;
	return pair_is_quiet(p) || sf_audit_count(p->f, &q) > 0;
}

/* Stopped, with the copy in place, and started as often as it takes. */
static void restore(struct pair *p, struct copy *c)
{
	sf_stop(p->f);
	put_back(p, c);
	for (int i = 0; i < 2; i++) {
		sf_start(p->f);
		sf_stop(p->f);
	}
	start(p);
}

static void restore__of_a_copy_before_a_document_is_not_taken_for_the_present(void **state)
{
	struct pair *p = *state;
	struct pair_held h;
	struct pair_rollout r;
	struct copy c;
	bool confirmed;

	sf_stop(p->f);
	take_copy(p, &c);
	start(p);
	change_alpha(p);
	restore(p, &c);
	assert_true(pair_until(p, is_refused, NULL));
	pair_apply_alpha(p, "30m", "dpu-0");
	confirmed = revoke_is_confirmed(p);
	pair_rollout(p, &r);
	h.uid = r.uid;
	pair_held(p, &h);
	assert_true(h.is && !h.revoked && h.version > r.version); /* that it acts by */
	assert_false(confirmed);
	assert_int_equal(r.received, 0);
	pair_check(p, "an older copy");
}

static void restore__of_a_copy_with_the_documents_goes_on(void **state)
{
	struct pair *p = *state;
	struct pair_held h;
	struct pair_rollout r;
	struct copy c;

	change_alpha(p);
	sf_stop(p->f);
	take_copy(p, &c);
	start(p);
	assert_true(pair_until(p, is_quiet, NULL));
	restore(p, &c);
	assert_true(pair_until(p, is_quiet, NULL));
	pair_rollout(p, &r);
	h.uid = r.uid;
	assert_true(revoke_is_confirmed(p));
	pair_held(p, &h);
	assert_true(h.revoked);
	pair_check(p, "a newer copy");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, pair_setup_running, pair_teardown)
	const struct CMUnitTest tests[] = {
		T(restore__of_a_copy_before_a_document_is_not_taken_for_the_present),
		T(restore__of_a_copy_with_the_documents_goes_on),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

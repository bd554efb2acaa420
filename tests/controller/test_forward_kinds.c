/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant whose refusals are each of another kind: the controller's table of kinds and what it
 * writes in one transaction stay within their bounds, and each refusal is in the log all the same,
 * as a record or in a count. Without a bound (the controls, other programs of this text) the one
 * or the other grows with the number of kinds. And a kind is looked up, whatever the bounds: none
 * is compared with each of the others.
 */
#include "controller/ctl.h"
#include <string.h>

static _Atomic size_t compared; /* by forward.c */

static int count_strcmp(const char *a, const char *b)
{
	compared++;
	return strcmp(a, b);
}

static int count_memcmp(const void *a, const void *b, size_t n)
{
	compared++;
	return memcmp(a, b, n);
}

#undef strcmp
#undef memcmp
#define strcmp count_strcmp
#define memcmp count_memcmp
#include "controller/forward.c" /* with this program's bounds */
#undef strcmp
#undef memcmp
#include "controller/store_txn.h"
#include "proto/audit/audit.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"

#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define KINDS   1200
#define BATCH   50
/* Those of this test's build of forward.c (CMakeLists.txt): kinds by name, by name of nobody's, and
 * one for the rest; drafts, and a batch that begins below the bound. */
#define TABLE_MAX (2 * 16 + 1)
#define TXN_MAX   (100 + 3 * BATCH)
/* Of its share, of its kind in its batch and in the transaction, of its origin. */
#define COMPARED_MAX (16 * KINDS)

/* ---- what the controller does ---- */

static _Atomic bool hold;           /* no tick, so that all of it is there for one */
static _Atomic size_t most_drafts;  /* of one transaction */
static _Atomic unsigned most_kinds; /* in the table */
static _Atomic unsigned ticks;

void __real_ctl_forward_tick(struct ctl *c);
void __wrap_ctl_forward_tick(struct ctl *c);
void __wrap_ctl_forward_tick(struct ctl *c)
{
	unsigned n = HASH_COUNT(c->forward_shares);

	if (n > most_kinds)
		most_kinds = n;
	ticks++;
	if (!hold)
		__real_ctl_forward_tick(c);
}

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	if (t && t->n_drafts > most_drafts)
		most_drafts = t->n_drafts;
	return __real_store_submit(s, t, done, arg, err);
}

/* ---- an agent ---- */

struct stage {
	struct sf *f;
	struct fake a;
	char alpha[ROS2_UID_STR_LEN];
};

static int setup(void **state)
{
	static struct stage s;
	Ros2__V1__GetReply *g;
	struct ros2_uid uid;

	if (sf_setup((void **)&s.f))
		return -1;
	*state = &s;
	sf_apply(s.f, sf_engine);
	sf_apply(s.f, sf_agent0);
	sf_apply(s.f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(s.f, KIND(TENANT), "alpha");
	assert_int_equal(ros2_uid_from_bytes(g->object->uid.data, g->object->uid.len, &uid), 0);
	ros2_uid_to_str(&uid, s.alpha);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	memset(&s.a, 0, sizeof(s.a));
	fake_enrol(s.f, &s.a, "dpu-0");
	fake_connect(&s.a, NULL, 0);
	fake_wait_synced(&s.a);
	return 0;
}

static int teardown(void **state)
{
	struct stage *s = *state;
	void *f = s->f;

	fake_free(&s->a);
	return sf_teardown(&f);
}

/* Refusals @from and on, a batch of them, each of its own kind. */
static void forward(struct stage *s, uint64_t from)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d[BATCH], *ptrs[BATCH];
	Ros2__V1__AuditRecord rec[BATCH];
	char action[BATCH][32];

	for (unsigned i = 0; i < BATCH; i++) {
		ros2__v1__audit_draft__init(&d[i]);
		ros2__v1__audit_record__init(&rec[i]);
		snprintf(action[i], sizeof(action[i]), "test.deny-%u", (unsigned)from + i);
		rec[i].action = action[i];
		rec[i].actor = (char *)"spiffe://" TD "/tenant/alpha/trainer";
		rec[i].tenant = (char *)"alpha";
		rec[i].tenant_uid = s->alpha;
		rec[i].status = (char *)"DENIED";
		rec[i].result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED;
		d[i].seq = from + i;
		d[i].record = &rec[i];
		ptrs[i] = &d[i];
	}
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, s->a.incarnation.b};
	b.drafts = ptrs;
	b.n_drafts = BATCH;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(&s->a, &m);
}

static void wait_acked(struct fake *a, uint64_t seq)
{
	const Ros2__V1__ControllerMessage *m;

	do {
		m = fake_next(a, MSG(AUDIT_ACK), AWAIT_MS);
		if (!m)
			fail_msg("no acknowledgement (%s)", a->why.msg);
	} while (m->audit_ack->seq < seq);
}

static uint64_t events(struct stage *s)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	uint64_t n = 0;
	int rc;

	q.action = (char *)"test.deny-*";
	q.limit = 2 * KINDS;
	assert_int_equal(
		rpc_reader_open(s->f->admin, &ros2_v1_audit_query, &q.base, AWAIT_MS, &r, NULL), 0);
	while ((rc = rpc_reader_next(r, AWAIT_MS, &m, NULL)) == 0) {
		const Ros2__V1__StoredRecord *row = ros2_v1_audit_query_out(m)->record;
		Ros2__V1__AuditRecord *rec = NULL;

		assert_int_equal(audit_record_parse(row->record.data, row->record.len, &rec, NULL),
		                 0);
		n += rec->aggregate ? rec->aggregate->count : 1;
		ros2__v1__audit_record__free_unpacked(rec, NULL);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(rc, -ENODATA);
	rpc_reader_close(r);
	return n;
}

static void kinds__that_a_tenant_makes_up_are_bounded_and_none_is_lost(void **state)
{
	struct stage *s = *state;
	unsigned before;
	size_t drafts;

	hold = true;
	most_drafts = 0;
	compared = 0;
	for (uint64_t at = 1; at <= KINDS; at += BATCH)
		forward(s, at);
	/* What is answered after them was heard after them. */
	fake_beat(&s->a, NULL, 0);
	assert_non_null(fake_next(&s->a, MSG(CONTACT), AWAIT_MS));
	hold = false;
	wait_acked(&s->a, KINDS);
	before = ticks;
	assert_true(AWAIT(ticks > before)); /* the table is looked at there */
	drafts = most_drafts;
	if (compared > COMPARED_MAX)
		fail_msg("%zu comparisons for %d records", (size_t)compared, KINDS);
	assert_int_equal(events(s), KINDS);
	assert_true(most_kinds > 0);
#ifdef WITHOUT_TABLE_MAX
	assert_true(most_kinds > TABLE_MAX);
#else
	if (most_kinds > TABLE_MAX)
		fail_msg("%u kinds in the table", most_kinds);
#endif
#ifdef WITHOUT_TXN_MAX
	assert_true(drafts > TXN_MAX);
#else
	if (drafts > TXN_MAX)
		fail_msg("%zu records in one transaction", drafts);
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			kinds__that_a_tenant_makes_up_are_bounded_and_none_is_lost, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

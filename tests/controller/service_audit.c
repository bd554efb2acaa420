/* SPDX-License-Identifier: Apache-2.0 */
/* The Audit service as the service tests read it. */
#include "tests/controller/service_audit.h"
#include "proto/audit/audit.h"
#include "tests/await.h"

unsigned sf_audit_count(struct sf *f, const Ros2__V1__AuditQueryRequest *q)
{
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	unsigned n = 0;
	int rc;

	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_query, &q->base, 10000, &r, NULL),
	                 0);
	while ((rc = rpc_reader_next(r, 5000, &m, NULL)) == 0) {
		n++;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(rc, -ENODATA);
	rpc_reader_close(r);
	return n;
}

unsigned sf_audit_count_action(struct sf *f, const char *action, const char *tenant)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.action = (char *)action;
	q.tenant = (char *)tenant;
	return sf_audit_count(f, &q);
}

void sf_audit_wait(struct sf *f, const char *action, unsigned n)
{
	unsigned have = 0;

	AWAIT((have = sf_audit_count_action(f, action, "")) >= n);
	if (have != n)
		fail_msg("%s: %u records, expected %u", action, have, n);
}

bool sf_audit_says(struct sf *f, const char *action, const char *object, const char *words)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	bool found = false;

	q.action = (char *)action;
	q.object = (char *)object;
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_query, &q.base, 10000, &r, NULL),
	                 0);
	while (rpc_reader_next(r, 5000, &m, NULL) == 0) {
		const Ros2__V1__StoredRecord *row = ros2_v1_audit_query_out(m)->record;
		Ros2__V1__AuditRecord *rec = NULL;

		assert_int_equal(audit_record_parse(row->record.data, row->record.len, &rec, NULL),
		                 0);
		found |= !strncmp(rec->reason, words, strlen(words));
		ros2__v1__audit_record__free_unpacked(rec, NULL);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_close(r);
	return found;
}

void sf_audit_names(struct sf *f, const char *action, Ros2__V1__AuditResult result,
                    const char *actor, const char *role, const char *object)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	Ros2__V1__AuditRecord *rec = NULL;
	const Ros2__V1__StoredRecord *row;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;

	q.action = (char *)action;
	q.result = result;
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_query, &q.base, 5000, &r, NULL),
	                 0);
	assert_int_equal(rpc_reader_next(r, 5000, &m, NULL), 0);
	row = ros2_v1_audit_query_out(m)->record;
	assert_int_equal(audit_record_parse(row->record.data, row->record.len, &rec, NULL), 0);
	assert_string_equal(rec->actor, actor);
	assert_string_equal(rec->role, role);
	assert_string_equal(rec->object_name, object);
	ros2__v1__audit_record__free_unpacked(rec, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
	rpc_reader_close(r);
}

struct audit_verdict sf_verify_log(struct sf *f)
{
	Ros2__V1__AuditRawRequest q = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	Ros2__V1__StatusRequest sq = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *st = NULL;
	struct audit_verifier *v = NULL;
	struct audit_verdict verdict;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	int rc;

	assert_int_equal(ros2_v1_admin_status_sync(f->admin, &sq, 5000, &st, &err), 0);
	assert_int_equal(audit_verifier_new(st->audit_key, &v, &err), 0);
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_raw, &q.base, 10000, &r, &err),
	                 0);
	while ((rc = rpc_reader_next(r, 5000, &m, &err)) == 0) {
		Ros2__V1__AuditRawItem *item = (Ros2__V1__AuditRawItem *)m;
		int bad;

		if (item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD)
			bad = audit_verifier_record(v, item->record->seq, item->record->record.data,
			                            item->record->record.len,
			                            item->record->chain.data, &err);
		else
			bad = audit_verifier_checkpoint(v, item->checkpoint->note.data,
			                                item->checkpoint->note.len, &err);
		if (bad)
			fail_msg("%s", err.msg);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(rc, -ENODATA);
	audit_verifier_result(v, &verdict);
	assert_true(verdict.records >= st->audit_records);
	verdict.note = NULL;
	audit_verifier_free(v);
	rpc_reader_close(r);
	ros2__v1__status_reply__free_unpacked(st, NULL);
	return verdict;
}

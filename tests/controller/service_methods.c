/* SPDX-License-Identifier: Apache-2.0 */
/* See service_methods.h. */
#include "tests/controller/service_methods.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

const struct rpc_method *method_at(size_t i)
{
	if (i < ros2_v1_admin_service.n_methods)
		return ros2_v1_admin_service.methods[i];
	i -= ros2_v1_admin_service.n_methods;
	return i < ros2_v1_audit_service.n_methods ? ros2_v1_audit_service.methods[i] : NULL;
}

void methods_begin(struct sf *f)
{
	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	sf_apply(f, sf_tenant("beta", "1h", "10m", "dpu-1"));
}

/* One request, with what it points to. */
struct request {
	Ros2__V1__ApplyRequest apply;
	Ros2__V1__SourceFile file, *files;
	Ros2__V1__GetRequest get;
	Ros2__V1__ListRequest list;
	Ros2__V1__DeleteRequest del;
	Ros2__V1__RevokeRequest revoke;
	Ros2__V1__ReinstateRequest reinstate;
	Ros2__V1__CreateAgentTokenRequest token;
	Ros2__V1__IsolateAgentRequest isolate;
	Ros2__V1__StatusRequest status;
	Ros2__V1__AuditQueryRequest query;
	Ros2__V1__AuditRawRequest raw;
	Ros2__V1__ObjectRef alpha, beta, dpu_1;
};

static void refs_init(struct request *q)
{
	ros2__v1__object_ref__init(&q->alpha);
	ros2__v1__object_ref__init(&q->beta);
	ros2__v1__object_ref__init(&q->dpu_1);
	q->alpha.kind = q->beta.kind = KIND(TENANT);
	q->alpha.name = (char *)"alpha";
	q->beta.name = (char *)"beta";
	q->dpu_1.kind = KIND(AGENT);
	q->dpu_1.name = (char *)"dpu-1";
}

static ProtobufCMessage *to_apply(struct request *q, const char *yaml)
{
	ros2__v1__apply_request__init(&q->apply);
	ros2__v1__source_file__init(&q->file);
	q->file.name = (char *)"x.yaml";
	q->file.text = (ProtobufCBinaryData){strlen(yaml), (uint8_t *)yaml};
	q->files = &q->file;
	q->apply.files = &q->files;
	q->apply.n_files = 1;
	return &q->apply.base;
}

static ProtobufCMessage *to_delete(struct request *q, Ros2__V1__ObjectRef *ref)
{
	ros2__v1__delete_request__init(&q->del);
	q->del.ref = ref;
	return &q->del.base;
}

static ProtobufCMessage *to_revoke(struct request *q)
{
	ros2__v1__revoke_request__init(&q->revoke);
	q->revoke.ref = &q->alpha;
	q->revoke.reason = (char *)"test";
	q->revoke.wait_ms = 1;
	return &q->revoke.base;
}

static ProtobufCMessage *to_reinstate(struct request *q)
{
	ros2__v1__reinstate_request__init(&q->reinstate);
	q->reinstate.tenant = (char *)"alpha";
	q->reinstate.reason = (char *)"test";
	return &q->reinstate.base;
}

static ProtobufCMessage *to_token(struct request *q)
{
	ros2__v1__create_agent_token_request__init(&q->token);
	q->token.agent = (char *)"dpu-0";
	return &q->token.base;
}

static ProtobufCMessage *to_isolate(struct request *q, bool lift)
{
	ros2__v1__isolate_agent_request__init(&q->isolate);
	q->isolate.agent = (char *)"dpu-0";
	q->isolate.reason = (char *)"test";
	q->isolate.lift = lift;
	return &q->isolate.base;
}

static ProtobufCMessage *to_read(struct request *q, const struct rpc_method *m)
{
	ros2__v1__get_request__init(&q->get);
	ros2__v1__list_request__init(&q->list);
	ros2__v1__status_request__init(&q->status);
	ros2__v1__audit_query_request__init(&q->query);
	ros2__v1__audit_raw_request__init(&q->raw);
	q->get.ref = &q->alpha;
	q->list.kind = KIND(TENANT);
	q->query.tenant = (char *)"alpha";
	q->raw.from_seq = 1;
	if (m == &ros2_v1_admin_get)
		return &q->get.base;
	if (m == &ros2_v1_admin_list)
		return &q->list.base;
	if (m == &ros2_v1_admin_status)
		return &q->status.base;
	if (m == &ros2_v1_audit_query)
		return &q->query.base;
	return m == &ros2_v1_audit_raw ? &q->raw.base : NULL;
}

static ProtobufCMessage *request_of(struct request *q, const struct rpc_method *m)
{
	refs_init(q);
	if (m == &ros2_v1_admin_apply)
		return to_apply(q, sf_tenant("alpha", "2h", "10m", "dpu-0"));
	if (m == &ros2_v1_admin_delete)
		return to_delete(q, &q->beta);
	if (m == &ros2_v1_admin_revoke)
		return to_revoke(q);
	if (m == &ros2_v1_admin_reinstate)
		return to_reinstate(q);
	if (m == &ros2_v1_admin_create_agent_token)
		return to_token(q);
	if (m == &ros2_v1_admin_isolate_agent)
		return to_isolate(q, false);
	return to_read(q, m);
}

static ProtobufCMessage *identity_of(struct request *q, const struct rpc_method *m)
{
	refs_init(q);
	if (m == &ros2_v1_admin_apply)
		return to_apply(q, sf_agent0);
	if (m == &ros2_v1_admin_delete)
		return to_delete(q, &q->dpu_1);
	if (m == &ros2_v1_admin_create_agent_token)
		return to_token(q);
	return m == &ros2_v1_admin_isolate_agent ? to_isolate(q, true) : NULL;
}

/* 0, or a negative errno with words. */
static int stream(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                  struct ros2_err *err)
{
	ProtobufCMessage *reply = NULL;
	struct rpc_reader *r = NULL;
	int rc = rpc_reader_open(c, m, req, 5000, &r, err);

	if (rc)
		return rc;
	while (!(rc = rpc_reader_next(r, 5000, &reply, err)))
		protobuf_c_message_free_unpacked(reply, NULL);
	rpc_reader_close(r);
	return rc == -ENODATA ? 0 : rc;
}

static enum ros2_status call(struct sf *f, const char *cert, uint16_t port,
                             const struct rpc_method *m, const ProtobufCMessage *req)
{
	struct rpc_channel *c = sf_channel(f, cert, port, NULL);
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	if (m->kind == RPC_UNARY)
		rc = rpc_unary_sync(c, m, req, 5000, &reply, &err);
	else
		rc = stream(c, m, req, &err);
	if (reply)
		protobuf_c_message_free_unpacked(reply, NULL);
	rpc_channel_free(c);
	assert_int_equal(!rc, err.status == ROS2_OK);
	return err.status;
}

enum ros2_status attack_method(struct sf *f, const char *cert, uint16_t port,
                               const struct rpc_method *m)
{
	const ProtobufCMessage *req;
	struct request q;

	req = request_of(&q, m);
	if (!req)
		fail_msg("%s: nobody has said what a good request is", m->name);
	return call(f, cert, port, m, req);
}

enum ros2_status attack_identity(struct sf *f, const char *cert, uint16_t port,
                                 const struct rpc_method *m, bool *ret)
{
	const ProtobufCMessage *req;
	struct request q;

	req = identity_of(&q, m);
	*ret = req != NULL;
	return req ? call(f, cert, port, m, req) : ROS2_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appending to the log. A record is serialised exactly once, here; from then on only its bytes
 * count. Invariants: (1) seq grows by one; (2) heads move only when the record was serialised; (3)
 * a tenant's records form a chain of their own through tenant_seq and tenant_prev.
 */
#include "proto/audit/audit.h"
#include "common/util.h"
#include "proto/audit/audit_priv.h"
#include "proto/rpc/rpc.h"
#include <errno.h>
#include <string.h>

void audit_chain_next(const uint8_t prev[SHA256_LEN], const uint8_t leaf[SHA256_LEN],
                      uint8_t out[SHA256_LEN])
{
	const struct crypto_span parts[] = {{prev, SHA256_LEN}, {leaf, SHA256_LEN}};

	crypto_sha256v(parts, ARRAY_SIZE(parts), out);
}

static void head_advance(struct audit_head *head, const uint8_t leaf[SHA256_LEN])
{
	head->seq++;
	audit_chain_next(head->chain, leaf, head->chain);
	merkle_acc_append(&head->tree, leaf);
}

/* The fields only the log can give. */
static void fill_position(const struct audit_head *head, struct audit_tenant_head *tenant,
                          Ros2__V1__AuditRecord *rec)
{
	rec->format = AUDIT_FORMAT;
	rec->seq = head->seq + 1;
	rec->tenant_seq = tenant ? tenant->seq + 1 : 0;
	rec->tenant_prev.data = tenant ? tenant->prev : NULL;
	rec->tenant_prev.len = tenant ? SHA256_LEN : 0;
}

int audit_append(struct audit_head *head, struct audit_tenant_head *tenant,
                 Ros2__V1__AuditRecord *rec, struct audit_appended *ret, struct ros2_err *err)
{
	bool has_tenant = rec->tenant_uid && *rec->tenant_uid;
	AUTO_FREE uint8_t *bytes = NULL;
	uint8_t leaf[SHA256_LEN];
	size_t len;

	if (has_tenant != (tenant != NULL))
		return ros2_err_set(err, -EINVAL,
		                    "audit record %s: a tenant's head goes with a tenant",
		                    rec->action);
	fill_position(head, tenant, rec);
	len = ros2__v1__audit_record__get_packed_size(rec);
	if (len > AUDIT_RECORD_MAX)
		return ros2_err_set(err, -EMSGSIZE,
		                    "audit record %s is %zu bytes, at most %d allowed", rec->action,
		                    len, AUDIT_RECORD_MAX);
	bytes = malloc(len ? len : 1);
	if (!bytes)
		return ros2_err_set(err, -ENOMEM, "out of memory for an audit record");
	ros2__v1__audit_record__pack(rec, bytes);
	merkle_leaf(bytes, len, leaf);
	head_advance(head, leaf);
	if (tenant) {
		tenant->seq++;
		memcpy(tenant->prev, leaf, SHA256_LEN);
	}
	rec->tenant_prev.data = NULL; /* it pointed into the head that has moved */
	rec->tenant_prev.len = 0;
	ret->seq = head->seq;
	ret->len = len;
	memcpy(ret->chain, head->chain, SHA256_LEN);
	ret->bytes = TAKE_PTR(bytes);
	return 0;
}

int audit_replay_leaf(struct audit_head *head, const void *bytes, size_t len,
                      const uint8_t chain[SHA256_LEN], uint8_t ret_leaf[SHA256_LEN],
                      struct ros2_err *err)
{
	uint8_t next[SHA256_LEN];

	merkle_leaf(bytes, len, ret_leaf);
	audit_chain_next(head->chain, ret_leaf, next);
	if (memcmp(next, chain, SHA256_LEN))
		return ros2_err_set(err, -EBADMSG, "record %llu does not fit the hash chain",
		                    (unsigned long long)head->seq + 1);
	head->seq++;
	memcpy(head->chain, next, SHA256_LEN);
	merkle_acc_append(&head->tree, ret_leaf);
	return 0;
}

int audit_replay(struct audit_head *head, const void *bytes, size_t len,
                 const uint8_t chain[SHA256_LEN], struct ros2_err *err)
{
	uint8_t leaf[SHA256_LEN];

	return audit_replay_leaf(head, bytes, len, chain, leaf, err);
}

int audit_record_parse(const void *bytes, size_t len, Ros2__V1__AuditRecord **ret,
                       struct ros2_err *err)
{
	ProtobufCMessage *msg = NULL;
	int r;

	if (len > AUDIT_RECORD_MAX)
		return ros2_err_set(err, -EBADMSG, "record of %zu bytes, at most %d allowed", len,
		                    AUDIT_RECORD_MAX);
	r = rpc_message_decode(&ros2__v1__audit_record__descriptor, bytes, len, &msg, err);
	if (r < 0)
		return r;
	*ret = (Ros2__V1__AuditRecord *)msg;
	return 0;
}

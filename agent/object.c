/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens sealed objects. Order: bounds, inclusion path, signature, then the meaning of the body.
 * Nothing of the body is believed before the seal holds. Must never accept an object that names
 * another agent, or give back a half-filled object.
 */
#include "agent/object.h"
#include "agent/bytes.h"
#include "common/merkle.h"
#include "common/util.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include "proto/rpc/rpc.h"
#include <errno.h>

_Static_assert((int)OBJ_TENANT == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "kind");
_Static_assert((int)OBJ_ENGINE == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_ENGINE, "kind");
_Static_assert((int)OBJ_AGENT == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "kind");
_Static_assert((int)OBJ_GRANT == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT, "kind");
_Static_assert((int)OBJ_SESSION == (int)ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION, "kind");

const char *obj_kind_to_str(enum obj_kind k)
{
	static const char *const names[] = {"?",     "tenant",  "engine", "agent",
	                                    "grant", "session", "lease"};

	return (size_t)k < ARRAY_SIZE(names) ? names[k] : "?";
}

int agent_epoch_check(const struct agent_epoch *stored, const struct agent_epoch *offered,
                      struct ros2_err *err)
{
	char have[33], got[33];

	if (!offered->counter)
		return ros2_err_named(err, ROS2_INVALID, "the controller states no epoch");
	if (!stored->counter)
		return 1;
	crypto_hex(stored->lineage, 16, have);
	crypto_hex(offered->lineage, 16, got);
	if (memcmp(stored->lineage, offered->lineage, 16) != 0)
		return ros2_err_named(
			err, ROS2_WRONG_DOMAIN,
			"the controller's lineage is %s, this agent belongs to %s: wrong "
			"controller, or one restored from a backup",
			got, have);
	if (offered->counter < stored->counter)
		return ros2_err_named(err, ROS2_STALE_EPOCH,
		                      "the controller's epoch is %llu, this agent has seen %llu: a "
		                      "superseded controller",
		                      (unsigned long long)offered->counter,
		                      (unsigned long long)stored->counter);
	return offered->counter > stored->counter;
}

void agent_seal_message(const struct agent_epoch *e, uint64_t batch, uint64_t tree_size,
                        const uint8_t root[SHA256_LEN], uint8_t out[AGENT_SEAL_MESSAGE_LEN])
{
	memcpy(out, "ros2-batch-v1", 14);
	memcpy(out + 14, e->lineage, 16);
	put_be64(out + 30, e->counter);
	put_be64(out + 38, batch);
	put_be64(out + 46, tree_size);
	memcpy(out + 54, root, SHA256_LEN);
}

static int corrupt(struct ros2_err *err, const char *what)
{
	return ros2_err_named(err, ROS2_CORRUPT, "sealed object: %s", what);
}

static int check_signature(struct agent_trust *t, const struct agent_epoch *e,
                           const Ros2__V1__BatchSeal *seal, struct ros2_err *err)
{
	uint8_t msg[AGENT_SEAL_MESSAGE_LEN], digest[SHA256_LEN];
	struct crypto_span parts[] = {{msg, sizeof(msg)},
	                              {seal->signature.data, seal->signature.len},
	                              {t->snapshot_pub, ED25519_PUB_LEN}};

	agent_seal_message(e, seal->batch, seal->tree_size, seal->root.data, msg);
	crypto_sha256v(parts, ARRAY_SIZE(parts), digest);
	if (t->last.valid && !memcmp(t->last.digest, digest, SHA256_LEN))
		return 0;
	if (!crypto_verify(t->snapshot_pub, msg, sizeof(msg), seal->signature.data))
		return corrupt(err, "the batch signature is not the controller's");
	memcpy(t->last.digest, digest, SHA256_LEN);
	t->last.valid = true;
	return 0;
}

static int check_seal(struct agent_trust *t, const struct agent_epoch *lineage,
                      const Ros2__V1__SealedObject *s, struct agent_epoch *ret_epoch,
                      struct ros2_err *err)
{
	const Ros2__V1__BatchSeal *seal = s->seal;
	uint8_t path[MERKLE_PATH_MAX][SHA256_LEN], leaf[SHA256_LEN];

	if (!seal || !seal->epoch || seal->epoch->lineage.len != 16 || !seal->epoch->counter)
		return corrupt(err, "no seal, or one without an epoch");
	if (seal->root.len != SHA256_LEN || seal->signature.len != ED25519_SIG_LEN ||
	    seal->n_path > MERKLE_PATH_MAX)
		return corrupt(err, "the seal has fields of a wrong length");
	for (size_t i = 0; i < seal->n_path; i++) {
		if (seal->path[i].len != SHA256_LEN)
			return corrupt(err, "the inclusion path has a hash of a wrong length");
		memcpy(path[i], seal->path[i].data, SHA256_LEN);
	}
	merkle_leaf(s->body.data, s->body.len, leaf);
	if (!merkle_path_verify(leaf, seal->leaf_index, seal->tree_size,
	                        (const uint8_t(*)[SHA256_LEN])path, seal->n_path, seal->root.data))
		return corrupt(err, "the object is not part of the batch its seal names");
	memcpy(ret_epoch->lineage, seal->epoch->lineage.data, 16);
	ret_epoch->counter = seal->epoch->counter;
	if (lineage && memcmp(lineage->lineage, ret_epoch->lineage, 16) != 0)
		return ros2_err_named(err, ROS2_WRONG_DOMAIN,
		                      "sealed object: of another controller lineage");
	return check_signature(t, ret_epoch, seal, err);
}

static int take_grant(const Ros2__V1__GrantBody *g, struct agent_grant_body *ret,
                      struct ros2_err *err)
{
	if (!g || !g->from || g->from->boot_id.len != 16 ||
	    ros2_uid_from_bytes(g->tenant_uid.data, g->tenant_uid.len, &ret->tenant) < 0)
		return corrupt(err, "a grant without tenant or stamp");
	if (strlen(g->principal) > ROS2_SPIFFE_MAX || !ros2_spiffe_valid(g->principal, NULL, NULL))
		return corrupt(err, "a grant whose principal is not a SPIFFE ID");
	if (!g->access || g->access > 3 || !g->lifetime_ms)
		return corrupt(err, "a grant without access or lifetime");
	if (g->lifetime_ms > AGENT_GRANT_LIFETIME_MAX_MS)
		return corrupt(err, "a grant for more than 31 days");
	strcpy(ret->principal, g->principal);
	memcpy(ret->from.boot_id, g->from->boot_id.data, 16);
	ret->from.boottime_ns = g->from->boottime_ns;
	ret->max_keys = g->max_keys;
	ret->max_bytes = g->max_bytes;
	ret->access = g->access;
	ret->lifetime_ms = g->lifetime_ms;
	ret->policy_version = g->policy_version;
	return 0;
}

static int take_image(const Ros2__V1__AgentObject *b, struct agent_object *o, struct ros2_err *err)
{
	if (!ros2_name_valid(b->name))
		return corrupt(err, "the name is not a label of 1 to 63 characters");
	if (!b->image.len)
		return corrupt(err, "no policy image");
	strcpy(o->name, b->name);
	o->image = malloc(b->image.len);
	if (!o->image)
		return ros2_err_set(err, -ENOMEM, "no memory for a policy image");
	memcpy(o->image, b->image.data, b->image.len);
	o->image_len = b->image.len;
	o->revoked = b->revoked;
	return 0;
}

static int take_body(const struct agent_trust *t, const Ros2__V1__AgentObject *b,
                     struct agent_object *o, struct ros2_err *err)
{
	struct ros2_uid agent;

	if (ros2_uid_from_bytes(b->agent_uid.data, b->agent_uid.len, &agent) < 0 ||
	    ros2_uid_from_bytes(b->uid.data, b->uid.len, &o->uid) < 0 || !b->version)
		return corrupt(err, "no uid, agent or version");
	if (!ros2_uid_eq(&agent, &t->agent_uid))
		return ros2_err_named(err, ROS2_WRONG_DOMAIN,
		                      "sealed object: made for another agent");
	o->kind = (enum obj_kind)b->kind;
	o->version = b->version;
	switch (o->kind) {
	case OBJ_TENANT:
	case OBJ_ENGINE:
		return take_image(b, o, err);
	case OBJ_GRANT:
		return take_grant(b->grant, &o->grant, err);
	default:
		return corrupt(err, "neither a tenant, an engine nor a grant");
	}
}

/* Without memory nothing is said of the bytes: an object that is whole must not be taken for a
 * damaged one. */
static int decode(const ProtobufCMessageDescriptor *d, const void *p, size_t n, const char *what,
                  ProtobufCMessage **ret, struct ros2_err *err)
{
	int r = rpc_message_decode(d, p, n, ret, NULL);

	if (r == -ENOMEM)
		return ros2_err_set(err, r, "no memory for a sealed object");
	return r < 0 ? corrupt(err, what) : 0;
}

static int open_parsed(struct agent_trust *t, const struct agent_epoch *lineage,
                       const Ros2__V1__SealedObject *s, struct agent_object *o,
                       struct ros2_err *err)
{
	ProtobufCMessage *body;
	int r = check_seal(t, lineage, s, &o->epoch, err);

	if (r < 0)
		return r;
	o->batch = s->seal->batch;
	r = decode(&ros2__v1__agent_object__descriptor, s->body.data, s->body.len,
	           "the body does not parse", &body, err);
	if (r < 0)
		return r;
	r = take_body(t, (const Ros2__V1__AgentObject *)body, o, err);
	protobuf_c_message_free_unpacked(body, NULL);
	return r;
}

int agent_object_open(struct agent_trust *t, const struct agent_epoch *lineage, const void *sealed,
                      size_t len, struct agent_object **ret, struct ros2_err *err)
{
	ProtobufCMessage *s;
	struct agent_object *o;
	int r;

	if (len > AGENT_SEALED_MAX)
		return ros2_err_named(err, ROS2_TOO_LARGE, "sealed object: %zu bytes, at most %u",
		                      len, AGENT_SEALED_MAX);
	r = decode(&ros2__v1__sealed_object__descriptor, sealed, len, "does not parse", &s, err);
	if (r < 0)
		return r;
	o = calloc(1, sizeof(*o));
	if (o)
		o->sealed = malloc(len ? len : 1);
	if (!o || !o->sealed) {
		r = ros2_err_set(err, -ENOMEM, "no memory for a sealed object");
	} else {
		memcpy(o->sealed, sealed, len);
		o->sealed_len = len;
		r = open_parsed(t, lineage, (const Ros2__V1__SealedObject *)s, o, err);
	}
	protobuf_c_message_free_unpacked(s, NULL);
	if (r < 0) {
		agent_object_free(o);
		return r;
	}
	*ret = o;
	return 0;
}

void agent_object_free(struct agent_object *o)
{
	if (!o)
		return;
	free(o->image);
	free(o->sealed);
	free(o);
}

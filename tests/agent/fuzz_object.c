/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the body of an object for this agent, sealed here with a key that it trusts: what
 * fuzz_snapshot never reaches, as nobody signs its inputs. What is accepted is a tenant, an engine
 * or a grant with values in their ranges, and opens again to the same; it does not open for another
 * agent, nor with one byte of its body changed.
 */
#include "agent/object.h"
#include "common/merkle.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include "tests/fuzz/fuzz.h"

static struct crypto_sign_key *key;
static struct agent_trust trust;

static void set_up(void)
{
	if (key)
		return;
	must(crypto_sign_key_new(&key, NULL) == 0);
	crypto_sign_key_public(key, trust.snapshot_pub);
	memset(trust.agent_uid.b, 200, sizeof(trust.agent_uid.b));
}

/* A batch of one. */
static uint8_t *seal(const uint8_t *body, size_t len, size_t *ret_n)
{
	struct agent_epoch e = {.lineage = {7}, .counter = 3};
	uint8_t root[SHA256_LEN], msg[AGENT_SEAL_MESSAGE_LEN], sig[ED25519_SIG_LEN], *out;
	Ros2__V1__SealedObject s = ROS2__V1__SEALED_OBJECT__INIT;
	Ros2__V1__BatchSeal bs = ROS2__V1__BATCH_SEAL__INIT;
	Ros2__V1__Epoch epoch = ROS2__V1__EPOCH__INIT;

	merkle_leaf(body, len, root);
	agent_seal_message(&e, 9, 1, root, msg);
	must(crypto_sign(key, msg, sizeof(msg), sig) == 0);
	epoch.lineage = (ProtobufCBinaryData){16, e.lineage};
	epoch.counter = e.counter;
	bs.epoch = &epoch;
	bs.batch = 9;
	bs.tree_size = 1;
	bs.root = (ProtobufCBinaryData){SHA256_LEN, root};
	bs.signature = (ProtobufCBinaryData){ED25519_SIG_LEN, sig};
	s.body = (ProtobufCBinaryData){len, (uint8_t *)body};
	s.seal = &bs;
	*ret_n = ros2__v1__sealed_object__get_packed_size(&s);
	out = malloc(*ret_n);
	must(out && ros2__v1__sealed_object__pack(&s, out) == *ret_n);
	return out;
}

static void check(const struct agent_object *o)
{
	must(o->version && o->batch == 9 && o->epoch.counter == 3);
	if (o->kind == OBJ_GRANT) {
		must(!o->image && !o->name[0]);
		must(o->grant.access >= 1 && o->grant.access <= 3);
		must(o->grant.lifetime_ms && o->grant.lifetime_ms <= AGENT_GRANT_LIFETIME_MAX_MS);
		must(ros2_spiffe_valid(o->grant.principal, NULL, NULL));
	} else {
		must(o->kind == OBJ_TENANT || o->kind == OBJ_ENGINE);
		must(ros2_name_valid(o->name) && o->image && o->image_len);
	}
}

static void must_not_open(struct agent_trust *t, const uint8_t *sealed, size_t n)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_object *o = NULL;
	int r = agent_object_open(t, NULL, sealed, n, &o, &err);

	must_refuse(r, &err);
	must(!o);
}

static void accepted(const struct agent_object *o, uint8_t *sealed, size_t n)
{
	struct agent_trust other = trust;
	struct agent_object *again = NULL;

	check(o);
	must(o->sealed_len == n && !memcmp(o->sealed, sealed, n));
	must(agent_object_open(&trust, &o->epoch, o->sealed, o->sealed_len, &again, NULL) == 0);
	must(again->kind == o->kind && again->version == o->version &&
	     ros2_uid_eq(&again->uid, &o->uid) && !strcmp(again->name, o->name));
	agent_object_free(again);
	other.agent_uid.b[0] ^= 1;
	must_not_open(&other, sealed, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_object *o = NULL;
	uint8_t *sealed, *body;
	size_t n;
	int r;

	if (size > 65536)
		return 0;
	set_up();
	sealed = seal(data, size, &n);
	r = agent_object_open(&trust, NULL, sealed, n, &o, &err);
	if (r < 0) {
		must_refuse(r, &err);
		must(!o);
	} else {
		accepted(o, sealed, n);
		body = memmem(sealed, n, data, size);
		must(body != NULL);
		body[size / 2] ^= 1;
		must_not_open(&trust, sealed, n);
	}
	agent_object_free(o);
	free(sealed);
	return 0;
}

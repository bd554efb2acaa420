/* SPDX-License-Identifier: Apache-2.0 */
/* Seals what tests want, with a real key, a real tree and real policy images. */
#include "tests/agent/fixture.h"
#include "common/merkle.h"
#include "policy/policy.h"

const char *fix_contact_limit = "60s";
unsigned fix_verbs_per_s;
const char *fix_require = "";
const char *fix_namespaces = "";

void fixture_init(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	assert_int_equal(crypto_sign_key_new(&f->key, NULL), 0);
	crypto_sign_key_public(f->key, f->trust.snapshot_pub);
	f->trust.agent_uid = fix_uid(200);
	memset(f->epoch.lineage, 7, 16);
	f->epoch.counter = 3;
	memset(f->boot_id, 9, 16);
}

void fixture_fini(struct fixture *f)
{
	crypto_sign_key_free(f->key);
}

struct ros2_uid fix_uid(uint8_t seed)
{
	struct ros2_uid u;

	memset(u.b, seed, sizeof(u.b));
	return u;
}

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	ProtobufCBinaryData b = {.len = n, .data = malloc(n ? n : 1)};

	memcpy(b.data, p, n);
	return b;
}

static Ros2__V1__AgentObject *object(struct fixture *f, enum obj_kind kind, const char *name,
                                     uint8_t seed, uint64_t version)
{
	Ros2__V1__AgentObject *o = malloc(sizeof(*o));
	struct ros2_uid uid = fix_uid(seed);

	ros2__v1__agent_object__init(o);
	o->kind = (Ros2__V1__ObjectKind)kind;
	o->name = strdup(name);
	o->uid = bytes(uid.b, 16);
	o->version = version;
	o->agent_uid = bytes(f->trust.agent_uid.b, 16);
	return o;
}

static void compile(Ros2__V1__AgentObject *o, const char *yaml)
{
	struct policy_source src = {.name = "t.yaml", .text = yaml, .len = strlen(yaml)};
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_set *set = NULL;
	struct ros2_uid uid;
	size_t len;
	void *p;

	if (policy_parse(&src, 1, &set, &diags) < 0)
		fail_msg("%s", policy_diags_to_str(&diags));
	memcpy(uid.b, o->uid.data, 16);
	assert_int_equal(
		policy_compile_doc(policy_set_at(set, 0), &uid, o->version, &p, &len, NULL), 0);
	o->image = bytes(p, len);
	free(p);
	policy_diags_fini(&diags);
	policy_set_free(set);
}

Ros2__V1__AgentObject *fix_tenant(struct fixture *f, const char *name, const char *principal,
                                  uint8_t seed, uint64_t version)
{
	Ros2__V1__AgentObject *o = object(f, OBJ_TENANT, name, seed, version);
	char yaml[2048];

	snprintf(yaml, sizeof(yaml),
	         "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: %s}\nspec:\n"
	         "  principals:\n    - %s\n  placement: {agents: [dpu-0], require: [%s]}\n  "
	         "namespaces:\n"
	         "    - {name: data, engine: files, path: %s, access: rw,\n       paths: "
	         "[{pattern: /secret/**, access: none}, {pattern: /ro/**, access: r},\n"
	         "       {pattern: /deep/secret/**, access: none},\n"
	         "       {pattern: /**, access: rw}]}\n"
	         "    - {name: readonly, engine: files, path: %s-ro, access: r}\n%s"
	         "  memory: {registeredBytes: 1MiB, regions: 4, regionSize: {min: 4KiB, max: 1MiB},"
	         " alignment: 4KiB, controlVerbsPerSecond: %u}\n"
	         "  rkeys: {leaseTtl: 30s, concurrent: 4, violations: {limit: 20, action: kill}}\n"
	         "  times: {grantLifetime: 1h, contactLimit: %s}\n  sessions: {max: 3}\n",
	         name, principal, strcmp(name, "alpha") ? "" : fix_require, name, name,
	         strcmp(name, "alpha") ? "" : fix_namespaces,
	         fix_verbs_per_s ? fix_verbs_per_s : 5000, fix_contact_limit);
	compile(o, yaml);
	return o;
}

Ros2__V1__AgentObject *fix_engine(struct fixture *f, const char *name, uint8_t seed,
                                  uint64_t version)
{
	Ros2__V1__AgentObject *o = object(f, OBJ_ENGINE, name, seed, version);
	char yaml[256];

	snprintf(yaml, sizeof(yaml),
	         "apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: %s}\nspec: {type: mem, size: "
	         "16MiB}\n",
	         name);
	compile(o, yaml);
	return o;
}

unsigned fix_nvmf_nsid = 1;
const char *fix_nvmf_transport = "tcp\n  digests: {header: false, data: true}";

Ros2__V1__AgentObject *fix_nvmf(struct fixture *f, const char *name, uint8_t seed, uint64_t version)
{
	Ros2__V1__AgentObject *o = object(f, OBJ_ENGINE, name, seed, version);
	char yaml[1024];

	snprintf(yaml, sizeof(yaml),
	         "apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: %s}\nspec:\n"
	         "  type: nvmf\n  transport: %s\n  address: 2001:db8::1\n  port: 4421\n"
	         "  subsystem: nqn.2014-08.org.example:storage:1\n"
	         "  hostNqn: nqn.2014-08.org.example:{tenant}\n"
	         "  secretRef: nvme-{tenant}\n  targetSecretRef: nvme-target\n"
	         "  queueDepth: 64\n  keepAlive: 7s\n"
	         "  commandTimeout: 8s\n  quiesce: 9s\n  volumes:\n"
	         "    - {name: alpha/vol0, nsid: %u}\n"
	         "    - {name: beta/vol0, nsid: 2, offset: 1MiB, size: 1GiB}\n",
	         name, fix_nvmf_transport, fix_nvmf_nsid);
	compile(o, yaml);
	return o;
}

Ros2__V1__AgentObject *fix_grant(struct fixture *f, uint8_t seed, uint8_t tenant_seed,
                                 const char *principal, uint64_t version, uint64_t from_ns,
                                 uint64_t lifetime_ms, uint64_t policy_version)
{
	Ros2__V1__AgentObject *o = object(f, OBJ_GRANT, "", seed, version);
	Ros2__V1__GrantBody *g = malloc(sizeof(*g));
	struct ros2_uid tenant = fix_uid(tenant_seed);

	ros2__v1__grant_body__init(g);
	g->tenant_uid = bytes(tenant.b, 16);
	g->principal = strdup(principal);
	g->max_keys = 4;
	g->max_bytes = 1 << 20;
	g->access = 3;
	g->lifetime_ms = lifetime_ms;
	g->policy_version = policy_version;
	g->from = malloc(sizeof(*g->from));
	ros2__v1__stamp__init(g->from);
	g->from->boot_id = bytes(f->boot_id, 16);
	g->from->boottime_ns = from_ns;
	o->grant = g;
	return o;
}

void fix_seal(struct fixture *f, Ros2__V1__AgentObject **objs, size_t n, struct fix_bytes *out)
{
	uint8_t leaves[64][SHA256_LEN], root[SHA256_LEN], msg[AGENT_SEAL_MESSAGE_LEN], sig[64];
	uint8_t *bodies[64];
	const uint64_t batch = ++f->batch;
	size_t lens[64];

	assert_true(n > 0 && n <= 64);
	for (size_t i = 0; i < n; i++) {
		lens[i] = ros2__v1__agent_object__get_packed_size(objs[i]);
		bodies[i] = malloc(lens[i]);
		ros2__v1__agent_object__pack(objs[i], bodies[i]);
		merkle_leaf(bodies[i], lens[i], leaves[i]);
		ros2__v1__agent_object__free_unpacked(objs[i], NULL);
	}
	merkle_root((const uint8_t(*)[SHA256_LEN])leaves, n, root);
	agent_seal_message(&f->epoch, batch, n, root, msg);
	assert_int_equal(crypto_sign(f->key, msg, sizeof(msg), sig), 0);
	for (size_t i = 0; i < n; i++) {
		Ros2__V1__SealedObject s = ROS2__V1__SEALED_OBJECT__INIT;
		Ros2__V1__BatchSeal seal = ROS2__V1__BATCH_SEAL__INIT;
		Ros2__V1__Epoch epoch = ROS2__V1__EPOCH__INIT;
		ProtobufCBinaryData path_data[MERKLE_PATH_MAX];
		uint8_t path[MERKLE_PATH_MAX][SHA256_LEN];

		epoch.lineage = (ProtobufCBinaryData){16, f->epoch.lineage};
		epoch.counter = f->epoch.counter;
		seal.epoch = &epoch;
		seal.batch = batch;
		seal.tree_size = n;
		seal.leaf_index = i;
		seal.root = (ProtobufCBinaryData){SHA256_LEN, root};
		seal.signature = (ProtobufCBinaryData){64, sig};
		seal.n_path = merkle_path((const uint8_t(*)[SHA256_LEN])leaves, n, i, path);
		for (size_t j = 0; j < seal.n_path; j++)
			path_data[j] = (ProtobufCBinaryData){SHA256_LEN, path[j]};
		seal.path = path_data;
		s.body = (ProtobufCBinaryData){lens[i], bodies[i]};
		s.seal = &seal;
		out[i].n = ros2__v1__sealed_object__get_packed_size(&s);
		out[i].p = malloc(out[i].n);
		ros2__v1__sealed_object__pack(&s, out[i].p);
	}
	for (size_t i = 0; i < n; i++)
		free(bodies[i]);
}

struct agent_object *fix_open(struct fixture *f, Ros2__V1__AgentObject *obj)
{
	struct agent_object *o = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct fix_bytes b;

	fix_seal(f, &obj, 1, &b);
	if (agent_object_open(&f->trust, &f->epoch, b.p, b.n, &o, &err) < 0)
		fail_msg("%s", err.msg);
	free(b.p);
	return o;
}

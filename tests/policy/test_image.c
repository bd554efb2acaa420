/* SPDX-License-Identifier: Apache-2.0 */
/* Images: that they say what the document says, always in the same bytes, and that damaged or
 * hostile bytes are refused. */
#include "tests/policy/policy_testing.h"
#include "common/probe.h"
#include "policy/image_layout.h"
#include "policy/nvmf.h"

static struct policy_set *good_set(void)
{
	return parse_good_file("tests/policy/good/everything.yaml");
}

static const struct policy_doc *full(const struct policy_set *s)
{
	return policy_set_find(s, POLICY_KIND_TENANT, "full");
}

static void policy_compile__puts_the_whole_tenant_into_the_image(void **state)
{
	struct policy_set *s = good_set();
	const struct policy_tenant_spec *spec = full(s)->tenant;
	struct policy_image_tenant t;
	struct policy_namespace ns;
	const char *pattern;
	uint32_t access;
	size_t len;
	void *p = compile_good(full(s), &len);

	assert_int_equal(policy_image_open_tenant(p, len, &t, NULL), 0);
	assert_string_equal(t.name, "full");
	assert_int_equal(t.version, 42);
	assert_int_equal(t.uid.b[0], 0xab);
	assert_int_equal(t.n_principals, 2);
	assert_string_equal(policy_principal_at(&t, 1), spec->principals[1].s);
	for (int i = 0; i < LIMIT_COUNT; i++)
		assert_int_equal(limit_get(&t.limits, i), limit_get(&spec->limits, i));
	assert_int_equal(t.limits.read.ops_per_s, 100000);
	assert_int_equal(t.limits.write.bytes_per_s, 500 << 20);
	assert_int_equal(t.limits.lease_ttl_ms, 1500);
	assert_int_equal(t.limits.region_access, POLICY_ACCESS_WRITE);
	assert_int_equal(t.limits.violations_action, POLICY_VIOLATION_LOG);
	assert_int_equal(t.limits.on_controller_loss, POLICY_LOSS_HOLD);
	assert_int_equal(policy_namespace_find(&t, "data", &ns), 0);
	assert_string_equal(ns.engine, "files");
	assert_string_equal(ns.path, "full/größe \"x\" \\ y");
	assert_int_equal(ns.index, 0);
	assert_int_equal(ns.access, POLICY_ACCESS_ALL);
	assert_true(ns.shared);
	assert_int_equal(ns.n_rules, 3);
	assert_int_equal(policy_rule_at(&t, &ns, 1, &pattern, &access), 0);
	assert_string_equal(pattern, "/größe*/**");
	assert_int_equal(access, POLICY_ACCESS_READ);
	assert_int_equal(policy_rule_at(&t, &ns, 3, &pattern, &access), -ENOENT);
	assert_int_equal(policy_namespace_at(&t, 1, &ns), 0);
	assert_string_equal(ns.name, "ro");
	assert_false(ns.shared);
	assert_int_equal(policy_namespace_at(&t, 2, &ns), -ENOENT);
	assert_int_equal(policy_namespace_find(&t, "none", &ns), -ENOENT);
	assert_int_equal(policy_namespace_find(&t, NULL, &ns), -ENOENT);
	free(p);
	policy_set_free(s);
}

static void policy_compile__puts_engines_into_images(void **state)
{
	static const struct ros2_uid uid = {.b = {9}};
	struct policy_set *s = good_set();
	struct ros2_err err = ROS2_ERR_INIT;
	struct policy_image_engine e;
	struct policy_image_tenant t;
	void *p = NULL;
	size_t len;

	assert_int_equal(policy_compile_engine(s, "files", &uid, 7, &p, &len, &err), 0);
	assert_int_equal(policy_image_open_engine(p, len, &e, &err), 0);
	assert_int_equal(policy_image_open_tenant(p, len, &t, &err), -EBADMSG);
	assert_string_equal(err.msg, "policy image: expected a Tenant, found an Engine");
	free(p);
	assert_string_equal(e.name, "files");
	assert_string_equal(e.root, "/srv/ros2");
	assert_int_equal(e.type, POLICY_ENGINE_FILE);
	assert_int_equal(e.version, 7);
	assert_int_equal(policy_compile_engine(s, "null-ram", &uid, 7, &p, &len, &err), 0);
	assert_int_equal(policy_image_open_engine(p, len, &e, &err), 0);
	free(p);
	assert_int_equal(e.type, POLICY_ENGINE_MEM);
	assert_int_equal(e.size_bytes, 3ull << 29);
	assert_true(e.null_mode);
	assert_string_equal(e.root, "");
	assert_int_equal(policy_compile_engine(s, "nope", &uid, 7, &p, &len, &err), -ENOENT);
	assert_int_equal(policy_compile_tenant(s, "files", &uid, 7, &p, &len, &err), -ENOENT);
	assert_int_equal(policy_compile_doc(policy_set_find(s, POLICY_KIND_AGENT, "1"), &uid, 7, &p,
	                                    &len, &err),
	                 -EINVAL);
	policy_set_free(s);
}

/* Another file name, other comments, other ways to write the same: the same bytes. */
static void policy_compile__gives_the_same_bytes_for_the_same_policy(void **state)
{
	struct policy_set *a = good_set(), *b;
	const struct policy_doc *d = full(a);
	size_t len_a, len_b;
	void *x = compile_good(d, &len_a), *y;

	b = parse_good("elsewhere", d->canonical, strlen(d->canonical));
	y = compile_good(policy_set_at(b, 0), &len_b);
	assert_int_equal(len_a, len_b);
	assert_memory_equal(x, y, len_a);
	free(y);
	y = compile_good(d, &len_b);
	assert_memory_equal(x, y, len_a);
	free(x);
	free(y);
	policy_set_free(a);
	policy_set_free(b);
}

/* Format 1 for ever: these bytes must open and compile the same in every later version, or the
 * format number goes up. */
static void policy_image__of_format_1_has_not_changed(void **state)
{
	static const char path[] = "tests/fuzz/corpus/policy_image/everything-tenant.img";
	struct policy_set *s = good_set();
	size_t len, kept_len;
	AUTO_FREE void *p = compile_good(full(s), &len);
	AUTO_FREE void *kept = read_whole(path, &kept_len);

	assert_int_equal(len, kept_len);
	assert_memory_equal(p, kept, len);
	policy_set_free(s);
}

/* In a block of exactly its size, so that ASan sees one byte too many. */
static int verify_copy(const uint8_t *p, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);
	int rc;

	memcpy(copy, p, len);
	rc = policy_image_verify(copy, len, NULL);
	free(copy);
	return rc;
}

static void policy_image_verify__refuses_every_truncation_and_every_flipped_bit(void **state)
{
	struct policy_set *s = good_set();
	size_t len;
	uint8_t *p = compile_good(full(s), &len);

	assert_int_equal(verify_copy(p, len), 0);
	for (size_t n = 0; n < len; n++)
		assert_true(verify_copy(p, n) < 0);
	for (size_t i = 0; i < len * 8; i++) {
		p[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_true(verify_copy(p, len) < 0);
		p[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	assert_int_equal(policy_image_verify(NULL, 0, NULL), -EBADMSG);
	assert_int_equal(policy_image_verify(p, POLICY_IMAGE_MAX + 1, NULL), -EMSGSIZE);
	free(p);
	policy_set_free(s);
}

/* A writer who can compute the hash: opened or refused, never read out of bounds; what opens can be
 * asked. */
static void try_hostile(uint8_t *p, size_t len, unsigned *opened)
{
	struct policy_image_tenant t;
	struct policy_namespace ns;
	uint8_t *copy = malloc(len);

	memcpy(copy, p, len);
	image_hash(copy, len, copy + IMG_OFF_SHA256);
	if (policy_image_open_tenant(copy, len, &t, NULL) == 0) {
		(*opened)++;
		for (uint32_t i = 0; policy_namespace_at(&t, i, &ns) == 0; i++)
			policy_eval_path(&t, &ns, "a/b/c.tmp", POLICY_ACCESS_READ);
		policy_placed(&t, "1", NULL, 0);
		assert_null(policy_principal_at(&t, t.n_principals));
	}
	free(copy);
}

static void policy_image_verify__holds_against_a_writer_with_the_right_hash(void **state)
{
	static const uint32_t values[] = {0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff};
	struct policy_set *s = good_set();
	unsigned opened = 0, tried = 0;
	size_t len;
	uint8_t *p = compile_good(full(s), &len), old[4];

	for (size_t at = 0; at + 4 <= len; at++) {
		if (at >= IMG_OFF_SHA256 && at < IMG_OFF_UID)
			continue;
		memcpy(old, p + at, 4);
		for (size_t i = 0; i < ARRAY_SIZE(values); i++, tried++) {
			img_put(p + at, 4, values[i]);
			try_hostile(p, len, &opened);
		}
		memcpy(p + at, old, 4);
	}
	assert_true(opened > 0 && opened < tried);
	free(p);
	policy_set_free(s);
}

static int open_changed(const uint8_t *p, size_t len, size_t at, unsigned bytes, uint64_t v,
                        struct ros2_err *err)
{
	uint8_t *copy = malloc(len);
	int rc;

	memcpy(copy, p, len);
	img_put(copy + at, bytes, v);
	image_hash(copy, len, copy + IMG_OFF_SHA256);
	rc = policy_image_verify(copy, len, err);
	free(copy);
	return rc;
}

/* Written only where format 1 does not say it, so that an older agent refuses just these. */
static void policy_image__is_of_format_2_where_the_document_asks_for_it(void **state)
{
	static const char path[] = "tests/fuzz/corpus/policy_image/verbs-tenant.img";
	struct policy_set *s = parse_good_file("tests/policy/good/verbs.yaml");
	struct ros2_err err = ROS2_ERR_INIT;
	struct policy_image_tenant t;
	size_t len, kept_len;
	AUTO_FREE uint8_t *p = compile_good(policy_set_find(s, POLICY_KIND_TENANT, "verbs"), &len);
	AUTO_FREE void *kept = read_whole(path, &kept_len);

	assert_int_equal(img_get(p + IMG_OFF_FORMAT, 2), 2);
	assert_int_equal(policy_image_open_tenant(p, len, &t, NULL), 0);
	assert_int_equal(t.limits.control_verbs_per_s, 250);
	assert_int_equal(len, kept_len);
	assert_memory_equal(p, kept, len);
	assert_int_equal(open_changed(p, len, IMG_TENANT_LEN_1, 8, 0, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "spec.memory.controlVerbsPerSecond"));
	assert_int_equal(open_changed(p, len, IMG_OFF_KIND, 2, POLICY_KIND_ENGINE, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "format 2 is for tenants only"));
	policy_set_free(s);
	/* the same with the default: format 1 says it */
	s = good_set();
	free(TAKE_PTR(p));
	p = compile_good(full(s), &len);
	assert_int_equal(img_get(p + IMG_OFF_FORMAT, 2), 1);
	assert_int_equal(policy_image_open_tenant(p, len, &t, NULL), 0);
	assert_int_equal(t.limits.control_verbs_per_s, 5000);
	policy_set_free(s);
}

/* What an agent could not look for must not look like nothing. */
static void policy_image__is_of_format_3_where_the_placement_requires_something(void **state)
{
	static const char path[] = "tests/fuzz/corpus/policy_image/require-tenant.img";
	struct policy_set *s = parse_good_file("tests/policy/good/require.yaml");
	struct ros2_err err = ROS2_ERR_INIT;
	struct policy_image_tenant t;
	size_t len, kept_len;
	AUTO_FREE uint8_t *p = compile_good(policy_set_find(s, POLICY_KIND_TENANT, "picky"), &len);
	AUTO_FREE void *kept = read_whole(path, &kept_len);

	assert_int_equal(img_get(p + IMG_OFF_FORMAT, 2), 3);
	assert_int_equal(policy_image_open_tenant(p, len, &t, NULL), 0);
	assert_int_equal(t.require, 1u << PROBE_QP_BOUND_KEYS | 1u << PROBE_MR_RANGE);
	assert_int_equal(t.limits.control_verbs_per_s, 5000);
	assert_int_equal(len, kept_len);
	assert_memory_equal(p, kept, len);
	assert_int_equal(open_changed(p, len, IMG_OFF_REQUIRE, 8, 0, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "without a requirement"));
	assert_int_equal(open_changed(p, len, IMG_OFF_REQUIRE, 8, PROBE_ALL + 1ull, &err),
	                 -EPROTONOSUPPORT);
	assert_non_null(strstr(err.msg, "spec.placement.require"));
	policy_set_free(s);
}

static void policy_image_verify__names_what_is_wrong(void **state)
{
	static const struct {
		size_t at;
		unsigned bytes;
		uint64_t v;
		int rc;
		const char *words;
	} table[] = {
		{IMG_OFF_MAGIC, 1, 'X', -EBADMSG, "no magic"},
		{IMG_OFF_FORMAT, 2, POLICY_IMAGE_FORMAT + 1, -EPROTONOSUPPORT, "found 5"},
		{IMG_OFF_FORMAT, 2, 0, -EPROTONOSUPPORT, "expected format 1 to 4, found 0"},
		{IMG_OFF_FORMAT, 2, 2, -EBADMSG, "do not make"},
		{IMG_OFF_FORMAT, 2, 4, -EBADMSG, "format 4 is for engines only"},
		{IMG_OFF_KIND, 2, 9, -EBADMSG, "unknown kind 9"},
		{IMG_OFF_LEN, 4, 5, -EBADMSG, "it says 5 bytes"},
		{IMG_OFF_NAME, 4, 1 << 30, -EBADMSG, "name is no name"},
		{IMG_OFF_STRINGS, 4, UINT32_MAX, -EBADMSG, "do not make"},
		{IMG_OFF_LIMITS, 8, UINT64_MAX, -EBADMSG, "spec.memory.registeredBytes"},
		{IMG_OFF_LIMITS + 8 * LIMIT_REGIONS, 8, 1ull << 32, -EBADMSG,
	         "spec.memory.regions"},
		{IMG_OFF_LIMITS + 8 * LIMIT_ALIGNMENT, 8, 3, -EBADMSG, "spec.memory.alignment"},
		{IMG_OFF_LIMITS + 8 * LIMIT_CONTACT, 8, 1, -EBADMSG, "spec.times.contactLimit"},
		{IMG_OFF_ACCESS, 1, 4, -EBADMSG, "spec.memory.access"},
		{IMG_OFF_ACTION, 1, 0, -EBADMSG, "spec.rkeys.violations.action"},
		{IMG_OFF_OFFLINE, 1, 1, -EBADMSG, "spec.times.offlineRestart"},
		{IMG_OFF_LOSS, 1, 2, -EBADMSG, "spec.qos.onControllerLoss"},
		{IMG_OFF_COUNTS, 4, UINT32_MAX, -EBADMSG, "beyond its bound"},
		{IMG_OFF_COUNTS + 4 * IMG_COUNT_RULE, 4, 2, -EBADMSG, "do not make"},
		{IMG_TENANT_LEN_1, 4, 0, -EBADMSG, "principal 0 is no SPIFFE ID"},
	};
	struct policy_set *s = good_set();
	struct ros2_err err;
	size_t len;
	uint8_t *p = compile_good(full(s), &len);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		err = (struct ros2_err)ROS2_ERR_INIT;
		assert_int_equal(
			open_changed(p, len, table[i].at, table[i].bytes, table[i].v, &err),
			table[i].rc);
		if (!strstr(err.msg, table[i].words))
			fail_msg("expected `%s`, found `%s`", table[i].words, err.msg);
	}
	/* a pattern that no document may have: not UTF-8, or not to be seen */
	for (int i = 0; i < 2; i++) {
		const uint8_t *at = memmem(p, len, "/**", 4);

		assert_non_null(at);
		assert_int_equal(
			open_changed(p, len, (size_t)(at - p) + 1, 2, i ? 0xadc2 : 0x80c0, &err),
			-EBADMSG);
		assert_non_null(strstr(err.msg, "no valid pattern"));
	}
	for (unsigned i = 1; i < ROS2_UID_LEN; i++)
		p[IMG_OFF_UID + i] = 0;
	assert_int_equal(open_changed(p, len, IMG_OFF_UID, 1, 0, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "uid is zero"));
	free(p);
	policy_set_free(s);
}

static struct policy_set *nvmf_set(void)
{
	return parse_good_file("tests/policy/good/nvmf.yaml");
}

static uint8_t *flash_image(const struct policy_set *s, size_t *ret_len)
{
	return compile_good(policy_set_find(s, POLICY_KIND_ENGINE, "flash"), ret_len);
}

static void policy_compile__puts_all_of_an_nvmf_engine_into_its_image(void **state)
{
	struct policy_set *s = nvmf_set();
	struct policy_image_engine e;
	const struct policy_nvmf *n = &e.nvmf;
	size_t len;
	AUTO_FREE uint8_t *p = flash_image(s, &len), *q = NULL;

	assert_int_equal(policy_image_open_engine(p, len, &e, NULL), 0);
	assert_int_equal(e.type, POLICY_ENGINE_NVMF);
	assert_string_equal(e.name, "flash");
	assert_string_equal(e.root, "");
	assert_int_equal(n->transport, POLICY_TRANSPORT_RDMA);
	assert_string_equal(n->address, "192.0.2.10");
	assert_int_equal(n->port, 4421);
	assert_string_equal(n->subsystem, "nqn.2014-08.org.example:storage:1");
	assert_string_equal(n->host_nqn, "nqn.2014-08.org.example:ros2:{tenant}");
	assert_string_equal(n->secret, "nvme-{tenant}");
	assert_string_equal(n->target_secret, "nvme-target");
	assert_false(n->header_digest || n->data_digest || n->keys_per_command);
	assert_int_equal(n->queue_depth, 64);
	assert_int_equal(n->keep_alive_ms, 10000);
	assert_int_equal(n->command_timeout_ms, 60000);
	assert_int_equal(n->quiesce_ms, 45000);
	assert_int_equal(n->n_volumes, 4);
	assert_string_equal(n->volumes[0].name, "team-a/vol0");
	assert_int_equal(n->volumes[0].size, 0);
	assert_int_equal(n->volumes[2].offset, 10ull << 30);
	assert_int_equal(n->volumes[2].size, 512);
	assert_int_equal(n->volumes[3].nsid, 0xfffffffe);
	assert_int_equal(n->volumes[3].size, 3ull << 39);
	/* what the document leaves out */
	q = compile_good(policy_set_find(s, POLICY_KIND_ENGINE, "small"), &len);
	assert_int_equal(policy_image_open_engine(q, len, &e, NULL), 0);
	assert_int_equal(n->transport, POLICY_TRANSPORT_TCP);
	assert_string_equal(n->address, "2001:db8::1");
	assert_int_equal(n->port, 4420);
	assert_string_equal(n->secret, "");
	assert_true(n->header_digest);
	assert_false(n->data_digest || n->keys_per_command);
	assert_int_equal(n->queue_depth, 128);
	assert_int_equal(n->keep_alive_ms, 5000);
	assert_int_equal(n->command_timeout_ms, 30000);
	assert_int_equal(n->quiesce_ms, 0);
	policy_set_free(s);
}

static void policy_image__is_of_format_4_for_nvmf_engines_only(void **state)
{
	static const char path[] = "tests/fuzz/corpus/policy_image/flash-nvmf.img";
	static const struct ros2_uid uid = {.b = {9}};
	struct policy_set *s = nvmf_set();
	struct ros2_err err = ROS2_ERR_INIT;
	size_t len, kept_len;
	AUTO_FREE uint8_t *p = flash_image(s, &len);
	AUTO_FREE void *kept = read_whole(path, &kept_len), *file = NULL;

	assert_int_equal(img_get(p + IMG_OFF_FORMAT, 2), 4);
	assert_int_equal(len, kept_len);
	assert_memory_equal(p, kept, len);
	assert_int_equal(open_changed(p, len, IMG_OFF_FORMAT, 2, 1, &err), -EBADMSG);
	assert_int_equal(open_changed(p, len, IMG_OFF_FORMAT, 2, 3, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "format 3 is for tenants only"));
	policy_set_free(s);
	/* an agent of before reads what it read */
	s = good_set();
	assert_int_equal(policy_compile_engine(s, "files", &uid, 7, &file, &len, &err), 0);
	assert_int_equal(img_get((uint8_t *)file + IMG_OFF_FORMAT, 2), 1);
	policy_set_free(s);
}

static void policy_image_verify__names_what_is_wrong_in_an_nvmf_engine(void **state)
{
	const unsigned volume = IMG_NVMF_LEN, second = volume + IMG_VOLUME_LEN,
		       third = second + IMG_VOLUME_LEN, numbers = IMG_OFF_NVMF_NUMBERS;
	const struct {
		size_t at;
		unsigned bytes;
		uint64_t v;
		const char *words;
	} table[] = {
		{IMG_OFF_ENGINE_TYPE, 4, POLICY_ENGINE_MEM, "bad type"},
		{IMG_OFF_ENGINE_TYPE, 4, 9, "bad type"},
		{IMG_OFF_ENGINE_NULL, 4, 1, "root, size or mode"},
		{IMG_OFF_ENGINE_SIZE, 8, 1 << 20, "root, size or mode"},
		{IMG_OFF_ENGINE_ROOT, 4, 0, "root, size or mode"},
		{IMG_OFF_NVMF_TRANSPORT, 1, 3, "spec.transport"},
		{IMG_OFF_NVMF_TRANSPORT, 1, 0, "spec.transport"},
		{IMG_OFF_NVMF_HDGST, 1, 1, "spec.digests"},
		{IMG_OFF_NVMF_HDGST, 1, 2, "flags"},
		{IMG_OFF_NVMF_DDGST, 1, 1, "spec.digests"},
		{IMG_OFF_NVMF_KEYS, 1, 2, "flags"},
		{numbers, 8, 0, "spec.port"},
		{numbers, 8, 65536, "spec.port"},
		{numbers, 8, 1ull << 32 | 1, "spec.port"},
		{numbers + 8, 8, 1025, "spec.queueDepth"},
		{numbers + 16, 8, 999, "spec.keepAlive"},
		{numbers + 24, 8, 0, "spec.commandTimeout"},
		{numbers + 32, 8, 1, "spec.quiesce"},
		{IMG_OFF_NVMF_ADDRESS, 4, 0, "spec.address"},
		{IMG_OFF_NVMF_ADDRESS, 4, UINT32_MAX, "bad string"},
		{IMG_OFF_NVMF_SUBSYSTEM, 4, 0, "spec.subsystem"},
		{IMG_OFF_NVMF_HOST, 4, 0, "spec.hostNqn"},
		{IMG_OFF_NVMF_VOLUMES, 4, POLICY_VOLUMES_MAX + 1, "beyond its bound"},
		{IMG_OFF_NVMF_VOLUMES, 4, UINT32_MAX, "beyond its bound"},
		{IMG_OFF_NVMF_VOLUMES, 4, 3, "do not make"},
		{IMG_OFF_NVMF_VOLUMES + 4, 4, 1, "beyond its bound"},
		{volume + IMG_VOLUME_NAME, 4, UINT32_MAX, "volume 0 has no name"},
		{volume + IMG_VOLUME_NSID, 4, 0, "spec.volumes"},
		{volume + IMG_VOLUME_NSID, 4, UINT32_MAX, "spec.volumes"},
		{volume + IMG_VOLUME_NSID, 4, 2, "spec.volumes"},
		{volume + IMG_VOLUME_OFFSET, 8, 512, "spec.volumes"},
		{volume + IMG_VOLUME_SIZE, 8, 1, "spec.volumes"},
		{second + IMG_VOLUME_SIZE, 8, (10ull << 30) + 512, "spec.volumes"},
		{third + IMG_VOLUME_OFFSET, 8, UINT64_MAX - 511, "spec.volumes"},
		{third + IMG_VOLUME_SIZE, 8, UINT64_MAX - 511, "spec.volumes"},
	};
	struct policy_set *s = nvmf_set();
	size_t len;
	AUTO_FREE uint8_t *p = flash_image(s, &len);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct ros2_err err = ROS2_ERR_INIT;

		if (open_changed(p, len, table[i].at, table[i].bytes, table[i].v, &err) !=
		            -EBADMSG ||
		    !strstr(err.msg, table[i].words))
			fail_msg("row %zu: expected `%s`, found `%s`", i, table[i].words, err.msg);
	}
	assert_int_equal(open_changed(p, len, IMG_OFF_NVMF_TARGET, 4,
	                              img_u32(p + IMG_OFF_NVMF_SECRET), NULL),
	                 -EBADMSG);
	policy_set_free(s);
}

/* Any four bytes of it, with the right hash: what opens holds every promise of its header. */
static void policy_image__of_an_nvmf_engine_keeps_its_promises_whatever_was_written(void **state)
{
	static const uint32_t values[] = {0, 1, 2, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff};
	struct policy_set *s = nvmf_set();
	unsigned opened = 0, tried = 0;
	size_t len;
	AUTO_FREE uint8_t *p = flash_image(s, &len), *copy = malloc(len);
	struct policy_image_engine e;

	for (size_t at = 0; at + 4 <= len; at++) {
		if (at + 3 >= IMG_OFF_SHA256 && at < IMG_OFF_UID)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(values); i++, tried++) {
			memcpy(copy, p, len);
			img_put(copy + at, 4, values[i]);
			image_hash(copy, len, copy + IMG_OFF_SHA256);
			if (policy_image_open_engine(copy, len, &e, NULL) < 0)
				continue;
			opened++;
			assert_true(!e.nvmf.n_volumes == (e.type != POLICY_ENGINE_NVMF));
			assert_null(e.type == POLICY_ENGINE_NVMF ? nvmf_fault(&e.nvmf) : NULL);
		}
	}
	assert_true(opened > 0 && opened < tried);
	for (size_t n = 0; n < len; n++)
		assert_true(verify_copy(p, n) < 0);
	policy_set_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_compile__puts_the_whole_tenant_into_the_image),
		cmocka_unit_test(policy_compile__puts_engines_into_images),
		cmocka_unit_test(policy_compile__gives_the_same_bytes_for_the_same_policy),
		cmocka_unit_test(policy_image__of_format_1_has_not_changed),
		cmocka_unit_test(policy_image__is_of_format_2_where_the_document_asks_for_it),
		cmocka_unit_test(
			policy_image__is_of_format_3_where_the_placement_requires_something),
		cmocka_unit_test(
			policy_image_verify__refuses_every_truncation_and_every_flipped_bit),
		cmocka_unit_test(policy_image_verify__holds_against_a_writer_with_the_right_hash),
		cmocka_unit_test(policy_image_verify__names_what_is_wrong),
		cmocka_unit_test(policy_compile__puts_all_of_an_nvmf_engine_into_its_image),
		cmocka_unit_test(policy_image__is_of_format_4_for_nvmf_engines_only),
		cmocka_unit_test(policy_image_verify__names_what_is_wrong_in_an_nvmf_engine),
		cmocka_unit_test(
			policy_image__of_an_nvmf_engine_keeps_its_promises_whatever_was_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

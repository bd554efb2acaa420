/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening an image: nothing is believed before it is checked, and the checks run in an order in
 * which each only reads what the ones before have shown to be there: header, hash, section lengths,
 * strings, records, limits.
 */
#include "policy/image.h"
#include "common/crypto.h"
#include "common/probe.h"
#include "common/util.h"
#include "policy/image_layout.h"
#include "policy/nvmf.h"
#include "policy/text.h"
#include <errno.h>

_Static_assert(POLICY_DIGEST_LEN == SHA256_LEN, "the digest is a SHA-256");
_Static_assert(IMG_OFF_SHA256 + POLICY_DIGEST_LEN == IMG_OFF_UID,
               "the hash ends where the uid begins");
_Static_assert(IMG_OFF_UID + ROS2_UID_LEN == IMG_OFF_VERSION,
               "the uid ends where the version begins");
_Static_assert(IMG_TENANT_LEN_1 == 80 + 8 * 16 + 4 + 20, "format 1 has 16 limits");
_Static_assert(IMG_TENANT_LEN_2 == IMG_TENANT_LEN_1 + 8, "format 2 has one more");
_Static_assert(IMG_TENANT_LEN_3 == IMG_TENANT_LEN_2 + 8, "format 3 has the requirements");
/* the largest tenant: so compiling what parses cannot run into the bound */
_Static_assert(IMG_TENANT_LEN_3 + ROS2_NAME_MAX + 1 +
                               POLICY_PRINCIPALS_MAX * (IMG_PRINCIPAL_LEN + ROS2_SPIFFE_MAX + 1) +
                               POLICY_AGENTS_MAX * (IMG_AGENT_LEN + ROS2_NAME_MAX + 1) +
                               POLICY_LABELS_MAX * (IMG_SELECTOR_LEN + 2 * (POLICY_LABEL_MAX + 1)) +
                               POLICY_NAMESPACES_MAX *
                                       (IMG_NAMESPACE_LEN + 2 * (ROS2_NAME_MAX + 1) +
                                        POLICY_ROOT_MAX + 1) +
                               POLICY_ALL_RULES_MAX * (IMG_RULE_LEN + POLICY_PATTERN_MAX + 1) <
                       POLICY_IMAGE_MAX,
               "every tenant fits");
_Static_assert(IMG_OFF_ENGINE_ROOT + 8 == IMG_ENGINE_LEN, "the engine body ends with its root");
_Static_assert(IMG_NVMF_NUMBERS == NVMF_NUMBERS &&
                       IMG_OFF_NVMF_NUMBERS + 8 * IMG_NVMF_NUMBERS == IMG_OFF_NVMF_ADDRESS,
               "the addresses follow the numbers");
_Static_assert(IMG_OFF_NVMF_VOLUMES + 8 == IMG_NVMF_LEN, "the volumes follow their count");

void image_hash(const uint8_t *p, size_t len, uint8_t out[POLICY_DIGEST_LEN])
{
	static const uint8_t zero[POLICY_DIGEST_LEN];
	const struct crypto_span parts[] = {
		{p, IMG_OFF_SHA256},
		{zero, sizeof(zero)},
		{p + IMG_OFF_UID, len - IMG_OFF_UID},
	};

	crypto_sha256v(parts, ARRAY_SIZE(parts), out);
}

#define BAD(err, ...) ros2_err_named(err, ROS2_CORRUPT, "policy image: " __VA_ARGS__)

int policy_image_kind(const void *bytes, size_t len, enum policy_kind *ret, struct ros2_err *err)
{
	const uint8_t *p = bytes;
	uint64_t format, kind;

	if (!p || len < IMG_HEADER_LEN)
		return BAD(err, "expected at least %u bytes, found %zu", IMG_HEADER_LEN, len);
	if (memcmp(p, IMG_MAGIC, 8) != 0)
		return BAD(err, "no magic: these bytes are no policy image");
	format = img_get(p + IMG_OFF_FORMAT, 2);
	if (format < 1 || format > POLICY_IMAGE_FORMAT)
		return ros2_err_named(err, ROS2_VERSION,
		                      "policy image: expected format 1 to %u, found %u",
		                      POLICY_IMAGE_FORMAT, (unsigned)format);
	kind = img_get(p + IMG_OFF_KIND, 2);
	if (kind != POLICY_KIND_TENANT && kind != POLICY_KIND_ENGINE)
		return BAD(err, "unknown kind %u", (unsigned)kind);
	if (format == 4 && kind != POLICY_KIND_ENGINE)
		return BAD(err, "format 4 is for engines only");
	if (format > 1 && format < 4 && kind != POLICY_KIND_TENANT)
		return BAD(err, "format %u is for tenants only", (unsigned)format);
	*ret = (enum policy_kind)kind;
	return 0;
}

static int check_header(const uint8_t *p, size_t len, enum policy_kind *ret_kind,
                        struct ros2_err *err)
{
	uint8_t hash[POLICY_DIGEST_LEN], any = 0;
	int rc;

	if (len > POLICY_IMAGE_MAX)
		return ros2_err_named(err, ROS2_TOO_LARGE,
		                      "policy image: %zu bytes are more than %u", len,
		                      POLICY_IMAGE_MAX);
	rc = policy_image_kind(p, len, ret_kind, err);
	if (rc < 0)
		return rc;
	if (img_u32(p + IMG_OFF_LEN) != len)
		return BAD(err, "it says %u bytes, found %zu", img_u32(p + IMG_OFF_LEN), len);
	image_hash(p, len, hash);
	if (memcmp(hash, p + IMG_OFF_SHA256, sizeof(hash)) != 0)
		return BAD(err, "its SHA-256 does not match: the bytes are damaged");
	for (unsigned i = 0; i < ROS2_UID_LEN; i++)
		any |= p[IMG_OFF_UID + i];
	return any ? 0 : BAD(err, "the uid is zero");
}

/* The strings section is the rest behind @fixed, and ends with NUL: so every string in it ends. */
static int check_strings(const uint8_t *p, size_t len, size_t fixed, struct ros2_err *err)
{
	uint32_t n = img_u32(p + IMG_OFF_STRINGS);

	if (fixed > len || n != len - fixed)
		return BAD(err, "sections of %zu and %u bytes do not make %zu", fixed, n, len);
	if (!n || p[len - 1])
		return BAD(err, "the strings do not end with NUL");
	return 0;
}

/* NULL when the offset is outside or the string is longer than @max. */
static const char *string_at(const uint8_t *strings, uint32_t strings_len, const uint8_t *ref,
                             size_t max)
{
	uint32_t off = img_u32(ref);
	const char *s;

	if (off >= strings_len)
		return NULL;
	s = (const char *)strings + off;
	return strnlen(s, max + 1) <= max ? s : NULL;
}

static const char *name_at(const uint8_t *strings, uint32_t strings_len, const uint8_t *ref)
{
	const char *s = string_at(strings, strings_len, ref, ROS2_NAME_MAX);

	return s && ros2_name_valid(s) ? s : NULL;
}

/* ---- tenant ---- */

static const char *tenant_string(const struct policy_image_tenant *t, const uint8_t *ref,
                                 size_t max)
{
	return string_at(t->base + t->strings_off, t->strings_len, ref, max);
}

/* Counts and places. Each count is bounded first, so the sum cannot overflow. */
static int lay_out(struct policy_image_tenant *t, struct ros2_err *err)
{
	const uint8_t *c = t->base + IMG_OFF_COUNTS;
	size_t at = img_tenant_len((unsigned)img_get(t->base + IMG_OFF_FORMAT, 2));

	if (t->len < at)
		return BAD(err, "too short for a tenant: %u bytes", t->len);
	t->n_principals = img_u32(c + 4 * IMG_COUNT_PRINCIPAL);
	t->n_agents = img_u32(c + 4 * IMG_COUNT_AGENT);
	t->n_selector = img_u32(c + 4 * IMG_COUNT_SELECTOR);
	t->n_namespaces = img_u32(c + 4 * IMG_COUNT_NAMESPACE);
	t->n_rules = img_u32(c + 4 * IMG_COUNT_RULE);
	if (t->n_principals > POLICY_PRINCIPALS_MAX || t->n_agents > POLICY_AGENTS_MAX ||
	    t->n_selector > POLICY_LABELS_MAX || t->n_namespaces > POLICY_NAMESPACES_MAX ||
	    t->n_rules > POLICY_ALL_RULES_MAX)
		return BAD(err, "a count is beyond its bound");
	t->principals_off = (uint32_t)at;
	at += t->n_principals * IMG_PRINCIPAL_LEN;
	t->agents_off = (uint32_t)at;
	at += t->n_agents * IMG_AGENT_LEN;
	t->selector_off = (uint32_t)at;
	at += t->n_selector * IMG_SELECTOR_LEN;
	t->namespaces_off = (uint32_t)at;
	at += t->n_namespaces * IMG_NAMESPACE_LEN;
	t->rules_off = (uint32_t)at;
	at += t->n_rules * IMG_RULE_LEN;
	t->strings_off = (uint32_t)at;
	t->strings_len = img_u32(t->base + IMG_OFF_STRINGS);
	return check_strings(t->base, t->len, at, err);
}

/* A property that this version does not know cannot be looked for: the image is refused. */
static int read_require(struct policy_image_tenant *t, struct ros2_err *err)
{
	uint64_t set;

	if (img_get(t->base + IMG_OFF_FORMAT, 2) < 3)
		return 0;
	set = img_get(t->base + IMG_OFF_REQUIRE, 8);
	if (!set)
		return BAD(err, "format 3 without a requirement");
	if (set & ~(uint64_t)PROBE_ALL)
		return ros2_err_named(err, ROS2_VERSION,
		                      "policy image: spec.placement.require has a property that "
		                      "this version does not know (set %#llx)",
		                      (unsigned long long)set);
	t->require = (uint32_t)set;
	return 0;
}

static int read_limits(struct policy_image_tenant *t, struct ros2_err *err)
{
	const uint8_t *p = t->base;
	bool old = img_get(p + IMG_OFF_FORMAT, 2) == 1;
	const char *fault;

	for (unsigned i = 0; i < LIMIT_COUNT; i++) {
		uint64_t v = old && i >= IMG_LIMITS_1 ? limit_fields[i].fallback
		                                      : img_get(p + img_limit_off(i), 8);

		if (limit_fields[i].is_u32 && v > UINT32_MAX)
			return BAD(err, "spec.%s is out of range", limit_fields[i].path);
		limit_set(&t->limits, (enum limit_id)i, v);
	}
	t->limits.region_access = p[IMG_OFF_ACCESS];
	t->limits.violations_action = (enum policy_violation_action)p[IMG_OFF_ACTION];
	t->limits.offline_restart = p[IMG_OFF_OFFLINE] != 0;
	t->limits.on_controller_loss = (enum policy_controller_loss)p[IMG_OFF_LOSS];
	fault = limits_fault(&t->limits);
	return fault ? BAD(err, "spec.%s is out of range", fault) : 0;
}

static int check_lists(const struct policy_image_tenant *t, struct ros2_err *err)
{
	const uint8_t *strings = t->base + t->strings_off, *at = t->base + t->principals_off;

	for (uint32_t i = 0; i < t->n_principals; i++, at += IMG_PRINCIPAL_LEN) {
		const char *s = tenant_string(t, at, ROS2_SPIFFE_MAX);

		if (!s || !ros2_spiffe_valid(s, NULL, NULL))
			return BAD(err, "principal %u is no SPIFFE ID", i);
	}
	for (uint32_t i = 0; i < t->n_agents; i++, at += IMG_AGENT_LEN)
		if (!name_at(strings, t->strings_len, at))
			return BAD(err, "agent %u is no name", i);
	for (uint32_t i = 0; i < t->n_selector; i++, at += IMG_SELECTOR_LEN) {
		const char *k = tenant_string(t, at, POLICY_LABEL_MAX);
		const char *v = tenant_string(t, at + 4, POLICY_LABEL_MAX);

		if (!k || !v || !text_label_key_valid(k) || !text_label_value_valid(v))
			return BAD(err, "label %u of the selector is no label", i);
	}
	return 0;
}

static int check_rules(const struct policy_image_tenant *t, const uint8_t *ns, struct ros2_err *err)
{
	uint32_t first = img_u32(ns + IMG_NS_FIRST), n = img_u32(ns + IMG_NS_RULES);
	const uint8_t *r = t->base + t->rules_off + first * IMG_RULE_LEN;

	for (uint32_t i = 0; i < n; i++, r += IMG_RULE_LEN) {
		const char *s = tenant_string(t, r + IMG_RULE_PATTERN, POLICY_PATTERN_MAX);
		uint8_t access = r[IMG_RULE_ACCESS];

		if (!s || text_pattern_fault(s))
			return BAD(err, "rule %u has no valid pattern", first + i);
		if (access & ~ns[IMG_NS_ACCESS] || img_get(r + 5, 3))
			return BAD(err, "rule %u has a bad access", first + i);
	}
	return 0;
}

static int check_namespace(const struct policy_image_tenant *t, const uint8_t *ns, uint32_t *rules,
                           struct ros2_err *err)
{
	const uint8_t *strings = t->base + t->strings_off;
	const char *path = tenant_string(t, ns + IMG_NS_PATH, POLICY_ROOT_MAX);
	uint32_t n = img_u32(ns + IMG_NS_RULES);

	if (!name_at(strings, t->strings_len, ns + IMG_NS_NAME) ||
	    !name_at(strings, t->strings_len, ns + IMG_NS_ENGINE))
		return BAD(err, "a namespace has a bad name or engine");
	if (!path || text_namespace_path_fault(path))
		return BAD(err, "a namespace has a bad path");
	if (!ns[IMG_NS_ACCESS] || ns[IMG_NS_ACCESS] & ~POLICY_ACCESS_ALL || ns[IMG_NS_SHARED] > 1 ||
	    ns[14] || ns[15])
		return BAD(err, "a namespace has bad access or flags");
	if (img_u32(ns + IMG_NS_FIRST) != *rules || n > POLICY_RULES_MAX || n > t->n_rules - *rules)
		return BAD(err, "the rules of the namespaces do not follow each other");
	*rules += n;
	return check_rules(t, ns, err);
}

static int check_namespaces(const struct policy_image_tenant *t, struct ros2_err *err)
{
	const uint8_t *at = t->base + t->namespaces_off;
	struct policy_namespace ns;
	uint32_t rules = 0;

	for (uint32_t i = 0; i < t->n_namespaces; i++) {
		int rc = check_namespace(t, at + i * IMG_NAMESPACE_LEN, &rules, err);

		if (rc < 0)
			return rc;
		/* found as itself, or an earlier one has its name */
		policy_namespace_at(t, i, &ns);
		if (policy_namespace_find(t, ns.name, &ns) < 0 || ns.index != i)
			return BAD(err, "two namespaces `%s`", ns.name);
	}
	return rules == t->n_rules ? 0 : BAD(err, "rules that belong to no namespace");
}

int policy_image_open_tenant(const void *p, size_t len, struct policy_image_tenant *ret,
                             struct ros2_err *err)
{
	struct policy_image_tenant t = {.base = p};
	enum policy_kind kind;
	const char *name;
	int rc = check_header(p, len, &kind, err);

	if (rc < 0)
		return rc;
	if (kind != POLICY_KIND_TENANT)
		return BAD(err, "expected a Tenant, found an %s", policy_kind_to_str(kind));
	t.len = (uint32_t)len;
	if ((rc = lay_out(&t, err)) < 0 || (rc = read_limits(&t, err)) < 0 ||
	    (rc = read_require(&t, err)) < 0 || (rc = check_lists(&t, err)) < 0 ||
	    (rc = check_namespaces(&t, err)) < 0)
		return rc;
	name = name_at(t.base + t.strings_off, t.strings_len, t.base + IMG_OFF_NAME);
	if (!name)
		return BAD(err, "the tenant's name is no name");
	memcpy(t.name, name, strlen(name) + 1);
	memcpy(t.uid.b, t.base + IMG_OFF_UID, ROS2_UID_LEN);
	memcpy(t.digest, t.base + IMG_OFF_SHA256, POLICY_DIGEST_LEN);
	t.version = img_get(t.base + IMG_OFF_VERSION, 8);
	*ret = t;
	return 0;
}

/* ---- engine ---- */

/* What of an engine's image has which place. */
struct engine_bytes {
	const uint8_t *p, *strings;
	size_t fixed; /* what stands before the strings */
	uint32_t strings_len;
};

/* Counts are bounded before they are multiplied. */
static int lay_out_engine(const uint8_t *p, size_t len, struct engine_bytes *ret,
                          struct ros2_err *err)
{
	size_t fixed = IMG_ENGINE_LEN;
	int rc;

	if (img_get(p + IMG_OFF_FORMAT, 2) >= 4) {
		uint32_t n;

		if (len < IMG_NVMF_LEN)
			return BAD(err, "too short for an nvmf engine: %zu bytes", len);
		n = img_u32(p + IMG_OFF_NVMF_VOLUMES);
		if (n > POLICY_VOLUMES_MAX || img_u32(p + IMG_OFF_NVMF_VOLUMES + 4))
			return BAD(err, "a count is beyond its bound");
		fixed = IMG_NVMF_LEN + n * IMG_VOLUME_LEN;
	}
	rc = check_strings(p, len, fixed, err);
	if (rc < 0)
		return rc;
	*ret = (struct engine_bytes){p, p + fixed, fixed, img_u32(p + IMG_OFF_STRINGS)};
	return 0;
}

static bool copy_string(const struct engine_bytes *b, const uint8_t *ref, size_t max, char *out)
{
	const char *s = string_at(b->strings, b->strings_len, ref, max);

	if (s)
		memcpy(out, s, strlen(s) + 1);
	return s;
}

static int read_volumes(const struct engine_bytes *b, struct policy_nvmf *n, struct ros2_err *err)
{
	const uint8_t *at = b->p + IMG_NVMF_LEN;

	n->n_volumes = img_u32(b->p + IMG_OFF_NVMF_VOLUMES);
	for (uint32_t i = 0; i < n->n_volumes; i++, at += IMG_VOLUME_LEN) {
		struct policy_volume *v = &n->volumes[i];

		if (!copy_string(b, at + IMG_VOLUME_NAME, POLICY_VOLUME_NAME_MAX, v->name))
			return BAD(err, "volume %u has no name", i);
		v->nsid = img_u32(at + IMG_VOLUME_NSID);
		v->offset = img_get(at + IMG_VOLUME_OFFSET, 8);
		v->size = img_get(at + IMG_VOLUME_SIZE, 8);
	}
	return 0;
}

static int read_nvmf(const struct engine_bytes *b, struct policy_nvmf *n, struct ros2_err *err)
{
	const uint8_t *p = b->p;
	const char *fault;

	if (p[IMG_OFF_NVMF_HDGST] > 1 || p[IMG_OFF_NVMF_DDGST] > 1 || p[IMG_OFF_NVMF_KEYS] > 1)
		return BAD(err, "the engine's flags are bad");
	n->transport = (enum policy_transport)p[IMG_OFF_NVMF_TRANSPORT];
	n->header_digest = p[IMG_OFF_NVMF_HDGST];
	n->data_digest = p[IMG_OFF_NVMF_DDGST];
	n->keys_per_command = p[IMG_OFF_NVMF_KEYS];
	for (unsigned i = 0; i < NVMF_NUMBERS; i++) {
		uint64_t v = img_get(p + IMG_OFF_NVMF_NUMBERS + 8 * i, 8);

		if (nvmf_numbers[i].is_u32 && v > UINT32_MAX)
			return BAD(err, "spec.%s is out of range", nvmf_numbers[i].key);
		nvmf_number_set(n, (enum nvmf_number_id)i, v);
	}
	if (!copy_string(b, p + IMG_OFF_NVMF_ADDRESS, POLICY_ADDRESS_MAX, n->address) ||
	    !copy_string(b, p + IMG_OFF_NVMF_SUBSYSTEM, POLICY_NQN_MAX, n->subsystem) ||
	    !copy_string(b, p + IMG_OFF_NVMF_HOST, POLICY_NQN_MAX, n->host_nqn) ||
	    !copy_string(b, p + IMG_OFF_NVMF_SECRET, POLICY_SECRET_NAME_MAX, n->secret) ||
	    !copy_string(b, p + IMG_OFF_NVMF_TARGET, POLICY_SECRET_NAME_MAX, n->target_secret))
		return BAD(err, "an engine has a bad string");
	if (read_volumes(b, n, err) < 0)
		return -EBADMSG;
	fault = nvmf_fault(n);
	return fault ? BAD(err, "spec.%s is out of range", fault) : 0;
}

static int check_type(const struct policy_image_engine *e, bool is_nvmf, struct ros2_err *err)
{
	bool sized = e->size_bytes >= ENGINE_MEM_SIZE_MIN && e->size_bytes <= ENGINE_MEM_SIZE_MAX;

	if (is_nvmf != (e->type == POLICY_ENGINE_NVMF))
		return BAD(err, "bad type of an engine");
	if (e->type == POLICY_ENGINE_FILE) {
		if (text_root_fault(e->root) || e->size_bytes || e->null_mode)
			return BAD(err, "bad root, size or mode of a file engine");
	} else if (e->type == POLICY_ENGINE_NVMF) {
		if (e->root[0] || e->size_bytes || e->null_mode)
			return BAD(err, "root, size or mode of an nvmf engine");
	} else if (e->type != POLICY_ENGINE_MEM || e->root[0] || !sized) {
		return BAD(err, "bad type, root or size of an engine");
	}
	return 0;
}

static int read_engine(const struct engine_bytes *b, struct policy_image_engine *e,
                       struct ros2_err *err)
{
	const uint8_t *p = b->p;
	const char *name = name_at(b->strings, b->strings_len, p + IMG_OFF_NAME);
	bool is_nvmf = img_get(p + IMG_OFF_FORMAT, 2) >= 4;
	uint32_t null_mode = img_u32(p + IMG_OFF_ENGINE_NULL);
	int rc;

	if (!name || !copy_string(b, p + IMG_OFF_ENGINE_ROOT, POLICY_ROOT_MAX, e->root))
		return BAD(err, "the engine's name or root is bad");
	memcpy(e->name, name, strlen(name) + 1);
	e->type = (enum policy_engine_type)img_u32(p + IMG_OFF_ENGINE_TYPE);
	e->size_bytes = img_get(p + IMG_OFF_ENGINE_SIZE, 8);
	if (null_mode > 1 || img_u32(p + IMG_OFF_ENGINE_ROOT + 4))
		return BAD(err, "the engine's flags are bad");
	e->null_mode = null_mode;
	rc = check_type(e, is_nvmf, err);
	return rc < 0 || !is_nvmf ? rc : read_nvmf(b, &e->nvmf, err);
}

int policy_image_open_engine(const void *bytes, size_t len, struct policy_image_engine *ret,
                             struct ros2_err *err)
{
	struct policy_image_engine e = {0};
	struct engine_bytes b = {0};
	const uint8_t *p = bytes;
	enum policy_kind kind;
	int rc = check_header(p, len, &kind, err);

	if (rc < 0)
		return rc;
	if (kind != POLICY_KIND_ENGINE)
		return BAD(err, "expected an Engine, found a %s", policy_kind_to_str(kind));
	rc = lay_out_engine(p, len, &b, err);
	if (!rc)
		rc = read_engine(&b, &e, err);
	if (rc < 0)
		return rc;
	memcpy(e.uid.b, p + IMG_OFF_UID, ROS2_UID_LEN);
	memcpy(e.digest, p + IMG_OFF_SHA256, POLICY_DIGEST_LEN);
	e.version = img_get(p + IMG_OFF_VERSION, 8);
	*ret = e;
	return 0;
}

int policy_image_verify(const void *p, size_t len, struct ros2_err *err)
{
	struct policy_image_tenant t;
	struct policy_image_engine e;
	enum policy_kind kind;
	int rc;

	if (len > POLICY_IMAGE_MAX)
		return ros2_err_named(err, ROS2_TOO_LARGE,
		                      "policy image: %zu bytes are more than %u", len,
		                      POLICY_IMAGE_MAX);
	rc = policy_image_kind(p, len, &kind, err);
	if (rc < 0)
		return rc;
	return kind == POLICY_KIND_TENANT ? policy_image_open_tenant(p, len, &t, err)
	                                  : policy_image_open_engine(p, len, &e, err);
}

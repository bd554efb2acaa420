/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents to images. Nothing but the document, the uid and the version goes in: no time, no
 * randomness, no address, no source position. What is written is read back with policy_image_verify
 * before it is handed out.
 */
#include "common/util.h"
#include "policy/image_layout.h"
#include "policy/nvmf.h"
#include "policy/policy.h"
#include <errno.h>

/* The image being written. Records at fixed places, strings appended behind; equal neighbours are
 * not merged. */
struct image {
	uint8_t *p; /* owned */
	size_t len, strings_off, strings_len, strings_max;
};

static uint32_t put_string(struct image *im, const char *s)
{
	size_t n = strlen(s) + 1, off = im->strings_len;

	/* the sum of all strings was counted before */
	memcpy(im->p + im->strings_off + off, s, n);
	im->strings_len += n;
	return (uint32_t)off;
}

static int image_begin(struct image *im, size_t fixed, size_t strings)
{
	*im = (struct image){.strings_off = fixed, .strings_max = strings, .len = fixed + strings};
	if (im->len > POLICY_IMAGE_MAX)
		return -EMSGSIZE;
	im->p = calloc(1, im->len);
	return im->p ? 0 : -ENOMEM;
}

static void put_header(struct image *im, unsigned format, const struct policy_doc *d,
                       const struct ros2_uid *uid, uint64_t version)
{
	memcpy(im->p + IMG_OFF_MAGIC, IMG_MAGIC, 8);
	img_put(im->p + IMG_OFF_FORMAT, 2, format);
	img_put(im->p + IMG_OFF_KIND, 2, d->kind);
	img_put(im->p + IMG_OFF_LEN, 4, im->len);
	memcpy(im->p + IMG_OFF_UID, uid->b, ROS2_UID_LEN);
	img_put(im->p + IMG_OFF_VERSION, 8, version);
	img_put(im->p + IMG_OFF_STRINGS, 4, im->strings_max);
	img_put(im->p + IMG_OFF_NAME, 4, put_string(im, d->name));
}

static size_t string_bytes(const struct policy_string *v, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += strlen(v[i].s) + 1;
	return sum;
}

static size_t namespace_bytes(const struct policy_tenant_spec *t, size_t *ret_rules)
{
	size_t sum = 0;

	*ret_rules = 0;
	for (size_t i = 0; i < t->n_namespaces; i++) {
		const struct policy_namespace_spec *ns = &t->namespaces[i];

		sum += strlen(ns->name) + strlen(ns->engine) + strlen(ns->path) + 3;
		for (size_t j = 0; j < ns->n_rules; j++)
			sum += strlen(ns->rules[j].pattern) + 1;
		*ret_rules += ns->n_rules;
	}
	return sum;
}

/* The oldest format that says everything: an older agent takes what it can enforce, and refuses the
 * rest by name. */
static unsigned format_of(const struct policy_tenant_spec *t)
{
	const struct policy_limits *l = &t->limits;

	if (t->require)
		return 3;
	for (unsigned i = IMG_LIMITS_1; i < LIMIT_COUNT; i++)
		if (limit_get(l, (enum limit_id)i) != limit_fields[i].fallback)
			return 2;
	return 1;
}

static void put_limits(struct image *im, unsigned format, const struct policy_limits *l)
{
	for (unsigned i = 0; i < (format == 1 ? IMG_LIMITS_1 : LIMIT_COUNT); i++)
		img_put(im->p + img_limit_off(i), 8, limit_get(l, (enum limit_id)i));
	im->p[IMG_OFF_ACCESS] = (uint8_t)l->region_access;
	im->p[IMG_OFF_ACTION] = (uint8_t)l->violations_action;
	im->p[IMG_OFF_OFFLINE] = l->offline_restart;
	im->p[IMG_OFF_LOSS] = (uint8_t)l->on_controller_loss;
}

static uint8_t *put_strings(struct image *im, uint8_t *at, const struct policy_string *v, size_t n)
{
	for (size_t i = 0; i < n; i++, at += IMG_PRINCIPAL_LEN)
		img_put(at, 4, put_string(im, v[i].s));
	return at;
}

static uint8_t *put_namespaces(struct image *im, uint8_t *at, const struct policy_tenant_spec *t)
{
	size_t first = 0;

	for (size_t i = 0; i < t->n_namespaces; i++, at += IMG_NAMESPACE_LEN) {
		const struct policy_namespace_spec *ns = &t->namespaces[i];

		img_put(at + IMG_NS_NAME, 4, put_string(im, ns->name));
		img_put(at + IMG_NS_ENGINE, 4, put_string(im, ns->engine));
		img_put(at + IMG_NS_PATH, 4, put_string(im, ns->path));
		at[IMG_NS_ACCESS] = (uint8_t)ns->access;
		at[IMG_NS_SHARED] = ns->shared;
		img_put(at + IMG_NS_FIRST, 4, first);
		img_put(at + IMG_NS_RULES, 4, ns->n_rules);
		first += ns->n_rules;
	}
	return at;
}

static void put_rules(struct image *im, uint8_t *at, const struct policy_tenant_spec *t)
{
	for (size_t i = 0; i < t->n_namespaces; i++) {
		const struct policy_namespace_spec *ns = &t->namespaces[i];

		for (size_t j = 0; j < ns->n_rules; j++, at += IMG_RULE_LEN) {
			img_put(at + IMG_RULE_PATTERN, 4, put_string(im, ns->rules[j].pattern));
			at[IMG_RULE_ACCESS] = (uint8_t)ns->rules[j].access;
		}
	}
}

static int put_tenant(struct image *im, const struct policy_doc *d, const struct ros2_uid *uid,
                      uint64_t version)
{
	const struct policy_tenant_spec *t = d->tenant;
	unsigned format = format_of(t);
	size_t rules, strings, fixed;
	uint8_t *at;
	int rc;

	strings = strlen(d->name) + 1 + string_bytes(t->principals, t->n_principals) +
	          string_bytes(t->agents, t->n_agents) + namespace_bytes(t, &rules);
	for (size_t i = 0; i < t->n_selector; i++)
		strings += strlen(t->selector[i].key) + strlen(t->selector[i].value) + 2;
	fixed = img_tenant_len(format) + t->n_principals * IMG_PRINCIPAL_LEN +
	        t->n_agents * IMG_AGENT_LEN + t->n_selector * IMG_SELECTOR_LEN +
	        t->n_namespaces * IMG_NAMESPACE_LEN + rules * IMG_RULE_LEN;
	rc = image_begin(im, fixed, strings);
	if (rc < 0)
		return rc;
	put_header(im, format, d, uid, version);
	put_limits(im, format, &t->limits);
	if (format >= 3)
		img_put(im->p + IMG_OFF_REQUIRE, 8, t->require);
	at = im->p + IMG_OFF_COUNTS;
	img_put(at + 4 * IMG_COUNT_PRINCIPAL, 4, t->n_principals);
	img_put(at + 4 * IMG_COUNT_AGENT, 4, t->n_agents);
	img_put(at + 4 * IMG_COUNT_SELECTOR, 4, t->n_selector);
	img_put(at + 4 * IMG_COUNT_NAMESPACE, 4, t->n_namespaces);
	img_put(at + 4 * IMG_COUNT_RULE, 4, rules);
	at = put_strings(im, im->p + img_tenant_len(format), t->principals, t->n_principals);
	at = put_strings(im, at, t->agents, t->n_agents);
	for (size_t i = 0; i < t->n_selector; i++, at += IMG_SELECTOR_LEN) {
		img_put(at, 4, put_string(im, t->selector[i].key));
		img_put(at + 4, 4, put_string(im, t->selector[i].value));
	}
	put_rules(im, put_namespaces(im, at, t), t);
	return 0;
}

static size_t nvmf_bytes(const struct policy_nvmf *n)
{
	size_t sum = strlen(n->address) + strlen(n->subsystem) + strlen(n->host_nqn) +
	             strlen(n->secret) + strlen(n->target_secret) + 5;

	for (uint32_t i = 0; i < n->n_volumes; i++)
		sum += strlen(n->volumes[i].name) + 1;
	return sum;
}

static void put_nvmf(struct image *im, const struct policy_nvmf *n)
{
	uint8_t *at = im->p + IMG_NVMF_LEN;

	im->p[IMG_OFF_NVMF_TRANSPORT] = (uint8_t)n->transport;
	im->p[IMG_OFF_NVMF_HDGST] = n->header_digest;
	im->p[IMG_OFF_NVMF_DDGST] = n->data_digest;
	im->p[IMG_OFF_NVMF_KEYS] = n->keys_per_command;
	for (unsigned i = 0; i < NVMF_NUMBERS; i++)
		img_put(im->p + IMG_OFF_NVMF_NUMBERS + 8 * i, 8,
		        nvmf_number_get(n, (enum nvmf_number_id)i));
	img_put(im->p + IMG_OFF_NVMF_ADDRESS, 4, put_string(im, n->address));
	img_put(im->p + IMG_OFF_NVMF_SUBSYSTEM, 4, put_string(im, n->subsystem));
	img_put(im->p + IMG_OFF_NVMF_HOST, 4, put_string(im, n->host_nqn));
	img_put(im->p + IMG_OFF_NVMF_SECRET, 4, put_string(im, n->secret));
	img_put(im->p + IMG_OFF_NVMF_TARGET, 4, put_string(im, n->target_secret));
	img_put(im->p + IMG_OFF_NVMF_VOLUMES, 4, n->n_volumes);
	for (uint32_t i = 0; i < n->n_volumes; i++, at += IMG_VOLUME_LEN) {
		img_put(at + IMG_VOLUME_NAME, 4, put_string(im, n->volumes[i].name));
		img_put(at + IMG_VOLUME_NSID, 4, n->volumes[i].nsid);
		img_put(at + IMG_VOLUME_OFFSET, 8, n->volumes[i].offset);
		img_put(at + IMG_VOLUME_SIZE, 8, n->volumes[i].size);
	}
}

static int put_engine(struct image *im, const struct policy_doc *d, const struct ros2_uid *uid,
                      uint64_t version)
{
	const struct policy_engine_spec *e = d->engine;
	const struct policy_nvmf *n = e->nvmf;
	size_t fixed = n ? IMG_NVMF_LEN + n->n_volumes * IMG_VOLUME_LEN : IMG_ENGINE_LEN;
	size_t strings = strlen(d->name) + strlen(e->root) + 2 + (n ? nvmf_bytes(n) : 0);
	int rc = image_begin(im, fixed, strings);

	if (rc < 0)
		return rc;
	/* the oldest format that says it */
	put_header(im, n ? 4 : 1, d, uid, version);
	img_put(im->p + IMG_OFF_ENGINE_TYPE, 4, e->type);
	img_put(im->p + IMG_OFF_ENGINE_NULL, 4, e->null_mode);
	img_put(im->p + IMG_OFF_ENGINE_SIZE, 8, e->size_bytes);
	img_put(im->p + IMG_OFF_ENGINE_ROOT, 4, put_string(im, e->root));
	if (n)
		put_nvmf(im, n);
	return 0;
}

int policy_compile_doc(const struct policy_doc *d, const struct ros2_uid *uid, uint64_t version,
                       void **ret, size_t *ret_len, struct ros2_err *err)
{
	AUTO_FREE uint8_t *bytes = NULL;
	struct image im;
	int rc;

	if (d->tenant)
		rc = put_tenant(&im, d, uid, version);
	else if (d->engine)
		rc = put_engine(&im, d, uid, version);
	else
		return ros2_err_set(err, -EINVAL,
		                    "%s `%s` has no image: only a Tenant or an "
		                    "Engine has",
		                    policy_kind_to_str(d->kind), d->name);
	if (rc == -EMSGSIZE)
		return ros2_err_set(err, rc, "%s `%s`: its image would be longer than 1 MiB",
		                    policy_kind_to_str(d->kind), d->name);
	if (rc < 0)
		return ros2_err_set(err, rc, "out of memory");
	bytes = im.p;
	image_hash(bytes, im.len, bytes + IMG_OFF_SHA256);
	rc = policy_image_verify(bytes, im.len, err);
	if (rc < 0) {
		ros2_err_prefix(err, "%s `%s`", policy_kind_to_str(d->kind), d->name);
		return rc;
	}
	*ret_len = im.len;
	*ret = TAKE_PTR(bytes);
	return 0;
}

static int compile_named(const struct policy_set *s, enum policy_kind kind, const char *name,
                         const struct ros2_uid *uid, uint64_t version, void **ret, size_t *ret_len,
                         struct ros2_err *err)
{
	const struct policy_doc *d = policy_set_find(s, kind, name);

	if (!d)
		return ros2_err_set(err, -ENOENT, "there is no %s `%.63s`",
		                    policy_kind_to_str(kind), name);
	return policy_compile_doc(d, uid, version, ret, ret_len, err);
}

int policy_compile_tenant(const struct policy_set *s, const char *name, const struct ros2_uid *uid,
                          uint64_t version, void **ret, size_t *ret_len, struct ros2_err *err)
{
	return compile_named(s, POLICY_KIND_TENANT, name, uid, version, ret, ret_len, err);
}

int policy_compile_engine(const struct policy_set *s, const char *name, const struct ros2_uid *uid,
                          uint64_t version, void **ret, size_t *ret_len, struct ros2_err *err)
{
	return compile_named(s, POLICY_KIND_ENGINE, name, uid, version, ret, ret_len, err);
}

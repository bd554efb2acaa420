/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a policy image: as they are, and again with magic, format, length and hash put
 * right, so that the fuzzer gets behind the hash. What opens is asked everything.
 */
#include "policy/image_layout.h"
#include "policy/nvmf.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask_tenant(const struct policy_image_tenant *t)
{
	static const char *const paths[] = {"", "/", "a", "a/b/c", "x.tmp", "../a", "größe1/x"};
	static const struct policy_label labels[] = {{"rack", "r1"}};
	struct policy_namespace ns, same;
	const char *pattern;
	uint32_t access;

	for (uint32_t i = 0; i < t->n_namespaces; i++) {
		if (policy_namespace_at(t, i, &ns) < 0 ||
		    policy_namespace_find(t, ns.name, &same) < 0 || same.index != i)
			abort();
		for (uint32_t j = 0; j < ns.n_rules; j++)
			if (policy_rule_at(t, &ns, j, &pattern, &access) < 0 || !strlen(pattern))
				abort();
		for (size_t j = 0; j < sizeof(paths) / sizeof(paths[0]); j++) {
			struct policy_verdict v = policy_eval_path(t, &ns, paths[j], 3);

			if (v.allowed && ns.access != 3)
				abort();
		}
	}
	for (uint32_t i = 0; i < t->n_principals; i++)
		if (!policy_principal_match(t, policy_principal_at(t, i)))
			abort();
	policy_placed(t, "dpu-0", labels, 1);
}

/* What the header promises of volumes: no byte of a namespace belongs to two of them. */
static void ask_engine(const struct policy_image_engine *e)
{
	const struct policy_nvmf *n = &e->nvmf;

	if ((e->type == POLICY_ENGINE_NVMF) != (n->n_volumes > 0))
		abort();
	for (uint32_t i = 0; i < n->n_volumes; i++) {
		const struct policy_volume *v = &n->volumes[i];

		if (!v->name[0] || v->size > UINT64_MAX - v->offset || (v->offset && !v->size))
			abort();
		for (uint32_t j = 0; j < i; j++)
			if (nvmf_volumes_overlap(v, &n->volumes[j]))
				abort();
	}
}

static void open_any(const uint8_t *p, size_t n)
{
	struct policy_image_tenant t;
	struct policy_image_engine e;
	struct ros2_err err = ROS2_ERR_INIT;
	int good = policy_image_verify(p, n, &err) == 0;
	int opened = 0;

	if (policy_image_open_tenant(p, n, &t, &err) == 0) {
		ask_tenant(&t);
		opened++;
	}
	if (policy_image_open_engine(p, n, &e, &err) == 0) {
		ask_engine(&e);
		opened++;
	}
	if (opened != good)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	open_any(data, size);
	if (size < IMG_HEADER_LEN || size > POLICY_IMAGE_MAX)
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	memcpy(copy, IMG_MAGIC, 8);
	img_put(copy + IMG_OFF_FORMAT, 2, 1 + copy[IMG_OFF_FORMAT] % POLICY_IMAGE_FORMAT);
	img_put(copy + IMG_OFF_LEN, 4, size);
	image_hash(copy, size, copy + IMG_OFF_SHA256);
	open_any(copy, size);
	free(copy);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the policy tests share: documents from text and files, and images of them. */
#ifndef ROS2_TESTS_POLICY_TESTING_H
#define ROS2_TESTS_POLICY_TESTING_H

#include "tests/testing.h"
#include "common/fsx.h"
#include "common/util.h"
#include "policy/policy.h"
#include <errno.h>

static inline int parse_text_into(const char *text, struct policy_set **ret, struct policy_diags *d)
{
	struct policy_source src = {"t.yaml", text, strlen(text), 0};

	return policy_parse(&src, 1, ret, d);
}

/* Parses what must be good; says what is wrong when it is not. */
static inline struct policy_set *parse_good(const char *name, const char *text, size_t len)
{
	struct policy_source src = {name, text, len, 0};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	int rc = policy_parse(&src, 1, &s, &d);

	if (rc || d.n) {
		char *words = policy_diags_to_str(&d);

		print_error("%s", words);
		free(words);
		fail();
	}
	policy_diags_fini(&d);
	return s;
}

static inline void *read_whole(const char *path, size_t *ret_len)
{
	struct ros2_err err = ROS2_ERR_INIT;
	void *p = NULL;

	if (fsx_read_file(path, 4u << 20, &p, ret_len, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	return p;
}

static inline struct policy_set *parse_good_file(const char *path)
{
	size_t len;
	AUTO_FREE char *text = read_whole(path, &len);

	return parse_good(path, text, len);
}

static inline void *compile_good(const struct policy_doc *d, size_t *ret_len)
{
	static const struct ros2_uid uid = {.b = {0xab, 1, 2, 3}};
	struct ros2_err err = ROS2_ERR_INIT;
	void *image = NULL;

	if (policy_compile_doc(d, &uid, 42, &image, ret_len, &err) < 0)
		fail_msg("%s", err.msg);
	return image;
}

#define TENANT_HEAD                                                                                \
	"apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: t}\nspec:\n"                          \
	"  principals: [spiffe://ros2.test/tenant/t/a]\n  placement: {agents: [dpu-0]}\n"

#endif

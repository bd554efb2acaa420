/* SPDX-License-Identifier: Apache-2.0 */
/* Which engines this build has, and the words for what the file engine is to do without. */
#include "common/util.h"
#include "dataplane/engine.h"

#include <errno.h>
#include <string.h>

const struct engine_ops *engine_ops_find(const char *type)
{
	static const struct engine_ops *const all[] = {&engine_mem_ops, &engine_file_ops,
	                                               &engine_nvmf_ops};

	for (size_t i = 0; type && i < ARRAY_SIZE(all); i++)
		if (strcmp(all[i]->type, type) == 0)
			return all[i];
	return NULL;
}

int engine_io_features_parse(const char *words, uint32_t *ret, struct ros2_err *err)
{
	static const struct {
		const char *word;
		uint32_t bit;
	} all[] = {{"no-uring", ENGINE_IO_NO_URING},
	           {"no-deferred", ENGINE_IO_NO_DEFER},
	           {"no-cooperative", ENGINE_IO_NO_COOP},
	           {"no-direct", ENGINE_IO_NO_DIRECT},
	           {"no-fixed", ENGINE_IO_NO_FIXED}};
	uint32_t bits = 0;

	while (*words) {
		size_t n = strcspn(words, ","), i = 0;

		while (i < ARRAY_SIZE(all) &&
		       (strlen(all[i].word) != n || memcmp(all[i].word, words, n) != 0))
			i++;
		if (i == ARRAY_SIZE(all))
			return ros2_err_set(err, -EINVAL,
			                    "expected no-uring, no-deferred, no-cooperative, "
			                    "no-direct or no-fixed, found \"%.*s\"",
			                    (int)MIN(n, (size_t)64), words);
		bits |= all[i].bit;
		words += n;
		if (*words == ',' && *++words == '\0')
			return ros2_err_set(err, -EINVAL, "nothing follows the last comma");
	}
	*ret = bits;
	return 0;
}

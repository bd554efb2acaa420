/* SPDX-License-Identifier: Apache-2.0 */
/* Which engines this build has. */
#include "common/util.h"
#include "dataplane/engine.h"

#include <string.h>

const struct engine_ops *engine_ops_find(const char *type)
{
	static const struct engine_ops *const all[] = {&engine_mem_ops, &engine_file_ops};

	for (size_t i = 0; type && i < ARRAY_SIZE(all); i++)
		if (strcmp(all[i]->type, type) == 0)
			return all[i];
	return NULL;
}

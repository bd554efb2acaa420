/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in a sweep: what our objects ask for with calloc and strdup. */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <stddef.h>

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);

void *__wrap_calloc(size_t n, size_t size)
{
	errno = sweep_hit(SWEEP_ALLOC);
	return errno ? NULL : __real_calloc(n, size);
}

char *__wrap_strdup(const char *s)
{
	errno = sweep_hit(SWEEP_ALLOC);
	return errno ? NULL : __real_strdup(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "common/descriptors.h"
#include "common/util.h"
#include <sys/resource.h>

void descriptors_raise(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == l.rlim_max)
		return;
	l.rlim_cur = l.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

uint32_t descriptors_limit(void)
{
	struct rlimit l = {0};

	(void)getrlimit(RLIMIT_NOFILE, &l);
	return (uint32_t)MIN(l.rlim_cur, (rlim_t)UINT32_MAX);
}

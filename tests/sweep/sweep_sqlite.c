/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite's own allocations in a sweep. The library takes them from whoever is configured before it
 * begins (sqlite.org/c3ref/c_config_covering_index_scan.html, SQLITE_CONFIG_MALLOC); it may be told
 * that there is none at any of them.
 */
#include "tests/sweep/sweep.h"
#include <assert.h>
#include <sqlite3.h>
#include <stddef.h>

static sqlite3_mem_methods real;

static void *swept_malloc(int n)
{
	return sweep_hit(SWEEP_SQLITE) ? NULL : real.xMalloc(n);
}

static void *swept_realloc(void *p, int n)
{
	return sweep_hit(SWEEP_SQLITE) ? NULL : real.xRealloc(p, n);
}

__attribute__((constructor)) static void stand_between(void)
{
	sqlite3_mem_methods swept;
	int rc = sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real);

	swept = real;
	swept.xMalloc = swept_malloc;
	swept.xRealloc = swept_realloc;
	rc = rc ? rc : sqlite3_config(SQLITE_CONFIG_MALLOC, &swept);
	assert(rc == SQLITE_OK);
	(void)rc;
}

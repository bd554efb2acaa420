/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the note of targets (0025). What is accepted is a table within its bounds, in which
 * no subsystem is twice; written again it is read as the same.
 */
#include "dataplane/unquiet.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>

static void within_bounds(const struct unquiet_table *t)
{
	must(t->n <= UNQUIET_MAX);
	for (uint32_t i = 0; i < t->n; i++) {
		const struct unquiet_times found = unquiet_find(t, t->v[i].subsystem);

		must(strnlen(t->v[i].subsystem, NVMF_NQN_MAX + 1) <= NVMF_NQN_MAX);
		must(t->v[i].subsystem[0] != '\0' && t->v[i].times.quiesce_ms <= UNQUIET_TIME_MS &&
		     t->v[i].times.keep_alive_ms <= UNQUIET_TIME_MS);
		must(found.quiesce_ms >= t->v[i].times.quiesce_ms &&
		     found.keep_alive_ms >= t->v[i].times.keep_alive_ms);
		must(unquiet_longest_ms(&found) >= t->v[i].times.keep_alive_ms);
		for (uint32_t j = 0; j < i; j++)
			must(strcmp(t->v[i].subsystem, t->v[j].subsystem) != 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct unquiet_table t, again;
	static char out[UNQUIET_TEXT], twice[UNQUIET_TEXT];
	struct ros2_err err = ROS2_ERR_INIT;
	char *text = fuzz_text(data, size);
	int r = unquiet_parse(text, size, &t, &err);
	size_t n;

	free(text);
	if (r < 0) {
		must_refuse(r, &err);
		return 0;
	}
	within_bounds(&t);
	n = unquiet_format(&t, out);
	must(n < sizeof(out) && strlen(out) == n);
	must(unquiet_parse(out, n, &again, &err) == 0 && again.n == t.n);
	must(unquiet_format(&again, twice) == n && !memcmp(out, twice, n));
	return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* For the soak's negative controls, an agent of which ROS2_SOAK_SWITCHES turns checks off: their
 * names, commas between. A name that is not known ends it, so that no control passes for want of
 * one. */
#include "common/util.h"
#include "dataplane/test_switches.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool *switch_of(const char *name)
{
	static const struct {
		const char *name;
		bool *on;
	} all[] = {{"no_expiry", &dp_test_switches.no_expiry},
	           {"no_deadline_recheck", &dp_test_switches.no_deadline_recheck}};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(all[i].name, name))
			return all[i].on;
	return NULL;
}

__attribute__((constructor)) static void turn_off(void)
{
	const char *env = getenv("ROS2_SOAK_SWITCHES");
	char names[256], *save = NULL;

	snprintf(names, sizeof(names), "%s", env ? env : "");
	for (char *w = strtok_r(names, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		bool *on = switch_of(w);

		if (!on) {
			fprintf(stderr, "ROS2_SOAK_SWITCHES: no switch '%s'\n", w);
			_Exit(2);
		}
		*on = true;
	}
}

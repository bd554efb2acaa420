/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks a real agent, as tenants that its controller knows: RPCs by ros2-raw's reflection, data
 * by raw verbs. Prints TAP and the table; tests/attack/agent starts the cluster and looks at the
 * log.
 *
 *   attack-agent DIR [ATTACK | floods]    the cluster's directory (tests/integration/lib.sh);
 * ROS2_AGENT is set
 */
#include "tests/attack/agent_site.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned lines;

static bool line(bool ok, const char *name, const char *what, const char *seen)
{
	printf("%s %u - attack__%s__%s (%s)\n", ok ? "ok" : "not ok", ++lines, name, what, seen);
	fflush(stdout);
	return ok;
}

/* Without a word all that are no floods; those that must be alone only by name. */
static bool is_meant(const struct agent_attack *a, const char *word)
{
	if (!word || !strcmp(word, "floods"))
		return a->flood == (word != NULL) && !a->alone;
	return !strcmp(word, a->name);
}

static bool judge(struct site *site, const struct agent_attack *a, const char **ret)
{
	struct attack_try t = {.defended = true}, control = {.defended = false};
	bool good = true;
	int r = a->run(site, &t);

	if (a->own_control) {
		int c = a->run(site, &control);

		good = line(!c && control.worked, a->name, "works_without_the_defence",
		            control.seen);
	}
	*ret = "NOT DEFEATED";
	if (r)
		return line(false, a->name, "is_shown", t.seen);
	if (a->defect) {
		*ret = t.neighbour_harmed || !t.worked ? *ret : "device defect";
		return line(!t.neighbour_harmed && t.worked, a->name,
		            "is_a_defect_that_the_victim_survives", t.seen) &&
		       good;
	}
	if (!t.worked && !t.neighbour_harmed)
		*ret = "defeated";
	return line(!t.worked && !t.neighbour_harmed, a->name, "is_defeated", t.seen) && good;
}

int main(int argc, char **argv)
{
	const char *result[32];
	struct cluster cluster = {0};
	struct site site;
	bool good = true;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: attack-agent DIR [ATTACK | floods]\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (cluster_connect(&cluster, argv[1], &site))
		return 1;
	for (unsigned i = 0; i < n_agent_attacks; i++) {
		result[i] = "not tried";
		if (is_meant(&agent_attacks[i], argv[2]))
			good = judge(&site, &agent_attacks[i], &result[i]) && good;
	}
	printf("# attack | published source | defence | result\n");
	for (unsigned i = 0; i < n_agent_attacks; i++)
		if (is_meant(&agent_attacks[i], argv[2]))
			printf("# %s | %s | %s | %s\n", agent_attacks[i].words,
			       agent_attacks[i].source, agent_attacks[i].defence, result[i]);
	cluster_close(&cluster);
	return good ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the attacks of families, or single ones by name, and prints TAP with what was seen, then the
 * table. attack.h says when an attack counts as what. For the guest (tests/guest/run), from the
 * source tree: a defect of the device must be in docs/rdma.md.
 *
 *   attack-verbs FAMILY|ATTACK ...    families: keys ends floods packets forged
 */
#include "tests/attack/attack.h"
#include "dataplane/fabric/probe.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE "rxe0"
#define GUIDE  "docs/rdma.md"

enum result { DEFEATED, DEVICE_DEFECT, NOT_DEFEATED, NOT_SHOWN };
static const char *const result_str[] = {"defeated", "device defect", "NOT DEFEATED", "NOT SHOWN"};

struct outcome {
	const struct attack *a;
	enum result result;
};

static unsigned lines;

void attack_seen(struct attack_try *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->seen, sizeof(t->seen), fmt, ap);
	va_end(ap);
}

/* Does the guide have a row for it? */
static bool documented(const char *property)
{
	char line[1024], row[80];
	FILE *f = fopen(GUIDE, "r");
	bool found = false;

	snprintf(row, sizeof(row), "| `%s` |", property);
	while (f && !found && fgets(line, sizeof(line), f))
		found = !strncmp(line, row, strlen(row));
	if (f)
		fclose(f);
	return found;
}

/* A defect is one only if everybody can know: seen, refused on request, documented. */
static bool defect_is_known(const struct attack *a, char *words, size_t max)
{
	static struct probe_subject s;
	static bool tried;
	struct ros2_err err = ROS2_ERR_INIT;
	enum probe_property missing;
	const char *name = probe_property_to_str(a->property);

	if (!tried && probe_verbs(DEVICE, &s, &err)) {
		snprintf(words, max, "the probe: %.200s", err.msg);
		return false;
	}
	tried = true;
	if (s.findings[a->property].result != PROBE_NOT_ENFORCED ||
	    !probe_missing(&s, 1u << a->property, &missing)) {
		snprintf(words, max, "but the probe saw %s %s", name,
		         probe_result_to_str(s.findings[a->property].result));
		return false;
	}
	if (!documented(name)) {
		snprintf(words, max, "but " GUIDE " has no row %s", name);
		return false;
	}
	snprintf(words, max,
	         "the probe sees it (%s), placement.require refuses it, " GUIDE " has it", name);
	return true;
}

static void line(bool ok, const struct attack *a, const char *what, const char *seen)
{
	printf("%s %u - attack__%s__%s (%s)\n", ok ? "ok" : "not ok", ++lines, a->name, what, seen);
	fflush(stdout);
}

static enum result judge(const struct attack *a)
{
	struct attack_try t = {.defended = true}, control = {.defended = false};
	int r = a->run(&t), c = a->run(&control);
	char words[256];
	bool known;

	line(!c && control.worked, a, "works_without_the_defence", control.seen);
	if (r || c || !control.worked || (a->defect && !t.worked)) {
		line(false, a, "is_shown", t.seen);
		return NOT_SHOWN;
	}
	if (a->defect) {
		known = defect_is_known(a, words, sizeof(words));
		line(known, a, "is_a_known_defect_of_the_device", words);
		return known ? DEVICE_DEFECT : NOT_DEFEATED;
	}
	line(!t.worked, a, "is_defeated", t.seen);
	if (t.neighbour_harmed)
		line(false, a, "leaves_the_neighbour_alone", "A is not served any more");
	return t.worked || t.neighbour_harmed ? NOT_DEFEATED : DEFEATED;
}

static const struct {
	const char *name;
	const struct attack *attacks;
	const unsigned *n;
} families[] = {
	{"keys", attacks_keys, &n_attacks_keys},
	{"ends", attacks_ends, &n_attacks_ends},
	{"floods", attacks_floods, &n_attacks_floods},
	{"packets", attacks_packets, &n_attacks_packets},
	{"forged", attacks_forged, &n_attacks_forged},
};

/* Is it one of those named, or of a family that is? */
static bool wanted(char **names, const char *family, const struct attack *a)
{
	for (; *names; names++)
		if (!strcmp(*names, family) || !strcmp(*names, a->name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct outcome done[64];
	unsigned n = 0;
	bool good = true;

	for (size_t f = 0; f < ARRAY_SIZE(families) && argc > 1; f++)
		for (unsigned i = 0; i < *families[f].n && n < ARRAY_SIZE(done); i++) {
			const struct attack *a = &families[f].attacks[i];

			if (!wanted(argv + 1, families[f].name, a))
				continue;
			done[n].a = a;
			done[n++].result = judge(a);
		}
	printf("1..%u\n# attack | published source | defence | result\n", lines);
	for (unsigned i = 0; i < n; i++) {
		good = good && done[i].result <= DEVICE_DEFECT;
		printf("# %s | %s | %s | %s\n", done[i].a->words, done[i].a->source,
		       done[i].a->defence, result_str[done[i].result]);
	}
	if (!n)
		fprintf(stderr, "usage: attack-verbs FAMILY|ATTACK ...   families: keys ends "
		                "floods packets forged\n");
	return n && good ? 0 : n ? 1 : 2;
}

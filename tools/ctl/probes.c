/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent's devices were seen to enforce: names instead of numbers, and a table per device.
 */
#include "common/probe.h"
#include "common/utf8.h"
#include "tools/ctl/ctl.h"
#include <stdio.h>

static void name_one(json_t *finding)
{
	json_int_t p = json_integer_value(json_object_get(finding, "property"));
	json_int_t r = json_integer_value(json_object_get(finding, "result"));

	/* A newer controller's numbers stay numbers. */
	if (p >= 0 && p < PROBE_PROPERTIES)
		json_object_set_new(finding, "property",
		                    json_string(probe_property_to_str((enum probe_property)p)));
	if (r >= 0 && r <= PROBE_NOT_SUPPORTED)
		json_object_set_new(finding, "result",
		                    json_string(probe_result_to_str((enum probe_result)r)));
}

static json_t *probes_of(json_t *object)
{
	return json_object_get(json_object_get(object, "agent"), "probes");
}

void ctl_probes_name(json_t *object)
{
	json_t *subject, *finding;
	size_t i, k;

	json_array_foreach(probes_of(object), i, subject)
		json_array_foreach(json_object_get(subject, "findings"), k, finding)
			name_one(finding);
}

static const struct ctl_column subject_columns[] = {
	{"DEVICE", "name", CTL_TEXT},        {"TRANSPORT", "transport", CTL_TEXT},
	{"HARDWARE", "device", CTL_TEXT},    {"FIRMWARE", "firmware", CTL_TEXT},
	{"KERNEL", "kernel", CTL_TEXT},      {"TRIED", "triedUnixNs", CTL_AGE_UNIX_NS},
	{"KEY-BITS", "keyBits", CTL_NUMBER}, {0},
};
static const struct ctl_column finding_columns[] = {
	{"PROPERTY", "property", CTL_TEXT},
	{"RESULT", "result", CTL_TEXT},
	{"SEEN", "seen", CTL_TEXT},
	{0},
};

void ctl_probes_print(json_t *object)
{
	json_t *subjects = probes_of(object), *subject;
	size_t i;

	if (!json_array_size(subjects))
		return;
	printf("\nProbed:\n");
	ctl_print_table(subject_columns, subjects);
	json_array_foreach(subjects, i, subject)
	{
		const char *name = json_string_value(json_object_get(subject, "name"));
		char shown[4 * PROBE_NAME_MAX + 1];
		json_int_t p50 = json_integer_value(json_object_get(subject, "revokeP50Ns"));
		json_int_t p99 = json_integer_value(json_object_get(subject, "revokeP99Ns"));

		utf8_escape(name ? name : "?", shown, sizeof(shown));
		printf("\nIsolation on %s", shown);
		if (p50 || p99)
			printf(" (revoke: p50 %.1f us, p99 %.1f us)", (double)p50 / 1e3,
			       (double)p99 / 1e3);
		printf(":\n");
		ctl_print_table(finding_columns, json_object_get(subject, "findings"));
	}
}

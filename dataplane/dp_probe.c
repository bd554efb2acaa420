/* SPDX-License-Identifier: Apache-2.0 */
/* Which subjects there are, and who tries them. */
#include "common/util.h"
#include "dataplane/dp_probe.h"
#include "dataplane/fabric/probe.h"
#include "dataplane/probe_tcp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int no_such(const char *name, char (*devices)[PROBE_NAME_MAX + 1], size_t n,
                   struct ros2_err *err)
{
	char all[200] = "tcp";
	size_t len = strlen(all);

	for (size_t i = 0; i < n && len < sizeof(all); i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, ", %s", devices[i]);
	return ros2_err_set(err, -ENODEV, "no device or transport '%s'; there are: %s", name, all);
}

static int one(const char *name, char (*devices)[PROBE_NAME_MAX + 1], size_t n,
               struct probe_subject *out, struct ros2_err *err)
{
	if (!strcmp(name, "tcp"))
		return probe_tcp(out, err);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, devices[i]))
			return probe_verbs(name, out, err);
	return no_such(name, devices, n, err);
}

/* Told all the same: a device that is there and cannot be tried is not one that is not there. */
static void not_tried(const char *name, const char *why, struct probe_subject *s)
{
	*s = (struct probe_subject){.transport = "verbs"};
	snprintf(s->name, sizeof(s->name), "%s", name);
	for (unsigned p = 0; p < PROBE_PROPERTIES; p++)
		snprintf(s->findings[p].seen, sizeof(s->findings[p].seen), "%.*s", PROBE_SEEN_MAX,
		         why);
}

int dp_probe(const char *name, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
             struct ros2_err *err)
{
	char devices[PROBE_SUBJECTS_MAX - 1][PROBE_NAME_MAX + 1];
	size_t n = 0;
	int r = probe_verbs_list(devices, ARRAY_SIZE(devices), &n, err);

	if (r)
		return r;
	if (name) {
		r = one(name, devices, n, &out[0], err);
		if (!r)
			*ret_n = 1;
		return r;
	}
	r = probe_tcp(&out[0], err);
	if (r)
		return r;
	for (size_t i = 0; i < n; i++) {
		struct ros2_err why = ROS2_ERR_INIT;

		if (probe_verbs(devices[i], &out[i + 1], &why))
			not_tried(devices[i], why.msg, &out[i + 1]);
	}
	*ret_n = n + 1;
	return 0;
}

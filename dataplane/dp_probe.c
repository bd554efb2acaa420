/* SPDX-License-Identifier: Apache-2.0 */
/* Which subjects there are, and who tries them. */
#include "common/util.h"
#include "dataplane/dp_probe.h"
#include "dataplane/fabric/probe.h"
#include "dataplane/probe_soft.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEVICES_MAX (PROBE_SUBJECTS_MAX - 2) /* beside tcp and shm */

static int no_such(const char *name, char (*devices)[PROBE_NAME_MAX + 1], size_t n,
                   struct ros2_err *err)
{
	char all[200] = "tcp, shm";
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
	if (!strcmp(name, "shm"))
		return probe_shm(out, err);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, devices[i]))
			return probe_verbs(name, out, err);
	return no_such(name, devices, n, err);
}

/* Told all the same: what is there and cannot be tried is not what is not there. */
static void not_tried(const char *name, const char *transport, const char *why,
                      struct probe_subject *s)
{
	*s = (struct probe_subject){0};
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->transport, sizeof(s->transport), "%s", transport);
	for (unsigned p = 0; p < PROBE_PROPERTIES; p++)
		snprintf(s->findings[p].seen, sizeof(s->findings[p].seen), "%.*s", PROBE_SEEN_MAX,
		         why);
}

int dp_probe_offered(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                     struct ros2_err *err)
{
	char devices[DEVICES_MAX][PROBE_NAME_MAX + 1];
	struct ros2_err why = ROS2_ERR_INIT;
	size_t n_devices = 0, n = 0;
	int r = probe_verbs_list(devices, ARRAY_SIZE(devices), &n_devices, err);

	if (!r)
		r = probe_tcp(&out[n++], err);
	if (r)
		return r;
	if (shm && probe_shm(&out[n], &why))
		not_tried("shm", "shm", why.msg, &out[n]);
	n += shm;
	for (size_t i = 0; i < n_devices; i++, n++) {
		why = (struct ros2_err)ROS2_ERR_INIT;
		if (probe_verbs(devices[i], &out[n], &why))
			not_tried(devices[i], "verbs", why.msg, &out[n]);
	}
	*ret_n = n;
	return 0;
}

int dp_probe(const char *name, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
             struct ros2_err *err)
{
	char devices[DEVICES_MAX][PROBE_NAME_MAX + 1];
	size_t n = 0;
	int r;

	if (!name)
		return dp_probe_offered(true, out, ret_n, err);
	r = probe_verbs_list(devices, ARRAY_SIZE(devices), &n, err);
	if (!r)
		r = one(name, devices, n, &out[0], err);
	if (!r)
		*ret_n = 1;
	return r;
}

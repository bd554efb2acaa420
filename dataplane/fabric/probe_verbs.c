/* SPDX-License-Identifier: Apache-2.0 */
/* The probe of a device: each property on fresh tenants and queue pairs, in the order of the list.
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/fabric/probe.h"
#include "dataplane/fabric/probe_verbs_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static const struct {
	vp_case_fn run;
	bool windows; /* rests on windows of type 2 */
} cases[PROBE_PROPERTIES] = {
	[PROBE_PD_ISOLATION] = {vp_case_pd_isolation, false},
	[PROBE_QP_BOUND_KEYS] = {vp_case_qp_bound_keys, true},
	[PROBE_MR_RANGE] = {vp_case_mr_range, true},
	[PROBE_WINDOW_RANGE] = {vp_case_window_range, true},
	[PROBE_ACCESS_MASK] = {vp_case_access_mask, true},
	[PROBE_INVALIDATED_KEY] = {vp_case_invalidated_key, true},
	[PROBE_REBOUND_KEY] = {vp_case_rebound_key, true},
	[PROBE_BIND_OWN_PD] = {vp_case_bind_own_pd, true},
	[PROBE_QP_REUSE] = {vp_case_qp_reuse, true},
	[PROBE_FOREIGN_INVALIDATE] = {vp_case_foreign_invalidate, true},
	[PROBE_KEY_RANDOMNESS] = {vp_case_key_randomness, true},
	[PROBE_ZERO_LENGTH] = {vp_case_zero_length, false},
	[PROBE_REVOKE_COMPLETE] = {vp_case_revoke_complete, true},
	[PROBE_CQ_SEPARATION] = {vp_case_cq_separation, true},
	[PROBE_RQ_SEPARATION] = {vp_case_rq_separation, false},
	[PROBE_DMABUF] = {vp_case_dmabuf, false},
};

int probe_verbs_list(char (*names)[PROBE_NAME_MAX + 1], size_t max, size_t *ret_n,
                     struct ros2_err *err)
{
	struct ibv_device **list;
	size_t n = 0;

	errno = 0;
	list = ibv_get_device_list(NULL);
	if (!list && errno == ENOMEM)
		return ros2_err_set(err, -ENOMEM, "no memory for the list of devices");
	/* ENOSYS, EPERM: a kernel without RDMA; the same as no device. */
	for (; list && list[n] && n < max; n++)
		snprintf(names[n], sizeof(names[n]), "%s", ibv_get_device_name(list[n]));
	if (list)
		ibv_free_device_list(list);
	*ret_n = n;
	return 0;
}

static int no_such_device(const char *device, struct ros2_err *err)
{
	char names[PROBE_SUBJECTS_MAX][PROBE_NAME_MAX + 1], all[256] = "none";
	size_t n = 0, len = 0;
	int r = probe_verbs_list(names, ARRAY_SIZE(names), &n, err);

	for (size_t i = 0; i < n && !r && len < sizeof(all); i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i ? ", " : "",
		                        names[i]);
	return ros2_err_set(err, -ENODEV, "no RDMA device '%s'; there are: %s", device, all);
}

static void describe(const struct vp *v, const char *name, struct probe_subject *s)
{
	struct utsname u;

	*s = (struct probe_subject){.tried_unix_ns = clock_unix_ns()};
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->transport, sizeof(s->transport), "verbs");
	snprintf(s->device, sizeof(s->device), "vendor 0x%x part %u rev %u", v->attr.vendor_id,
	         v->attr.vendor_part_id, v->attr.hw_ver);
	snprintf(s->firmware, sizeof(s->firmware), "%.*s", PROBE_NAME_MAX, v->attr.fw_ver);
	if (uname(&u) == 0)
		snprintf(s->kernel, sizeof(s->kernel), "%.*s", PROBE_NAME_MAX, u.release);
}

/* Windows before queue pairs, queue pairs before regions: the order of probe_verbs_priv.h. */
static void end_case(struct vp_case *c)
{
	vp_pair_close(&c->own);
	vp_pair_close(&c->other);
	vp_tenant_close(&c->a);
	vp_tenant_close(&c->b);
}

static void try(struct vp *v, enum probe_property p, struct probe_subject *s)
{
	struct vp_case c = {.v = v, .s = s};
	struct probe_finding *f = &s->findings[p];
	int r;

	if (cases[p].windows && !v->windows) {
		vp_found(f, PROBE_NOT_SUPPORTED, "the device has no memory windows of type 2");
		return;
	}
	r = vp_tenant_open(v, &c.a);
	if (!r)
		r = vp_tenant_open(v, &c.b);
	if (!r)
		r = vp_pair_open(v, &c.a, &c.a, NULL, &c.own);
	if (!r)
		r = vp_pair_open(v, &c.b, &c.b, NULL, &c.other);
	if (r)
		vp_found(f, PROBE_NOT_TRIED, "no two tenants could be made: %s", strerror(-r));
	else
		cases[p].run(&c, f);
	end_case(&c);
}

int probe_verbs(const char *device, struct probe_subject *ret, struct ros2_err *err)
{
	struct probe_subject s;
	struct vp v;
	int r = vp_open(&v, device, err);

	if (r == -ENODEV)
		return no_such_device(device, err);
	if (r)
		return r;
	describe(&v, device, &s);
	for (unsigned p = 0; p < PROBE_PROPERTIES; p++)
		try(&v, (enum probe_property)p, &s);
	vp_close(&v);
	*ret = s;
	return 0;
}

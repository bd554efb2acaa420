/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the rights of a session still stand at a moment: the certificate of its caller, its
 * grant, and the agent's contact with the controller. Revocation is not looked at here: it travels
 * as a message, so that its receipt counts what it ended.
 */
#include "common/clock.h"
#include "dataplane/dp_priv.h"
#include "dataplane/test_switches.h"

#ifdef ROS2_TEST_SWITCHES
struct dp_test_switches dp_test_switches;
#endif

static bool contact_held(const struct dp *dp, const struct dp_tenant *t, uint64_t now_ns)
{
	uint64_t stamp = atomic_load_explicit(&dp->contact_ns, memory_order_relaxed);
	uint64_t limit = atomic_load_explicit(&t->contact_limit_ns, memory_order_relaxed);

	/* No stamp at all means that the controller was never heard in this boot. */
	return stamp && now_ns < clock_add_ns(stamp, limit);
}

uint64_t dp_rights_until(const struct dp *dp, const struct dp_tenant *t,
                         const struct dp_grant_obj *g, uint64_t cert_deadline_ns)
{
	uint64_t stamp = atomic_load_explicit(&dp->contact_ns, memory_order_relaxed);
	uint64_t limit = atomic_load_explicit(&t->contact_limit_ns, memory_order_relaxed);
	uint64_t until =
		MIN(cert_deadline_ns, atomic_load_explicit(&g->deadline_ns, memory_order_relaxed));

	if (DP_SWITCH(no_contact_check))
		return until;
	return MIN(until, stamp ? clock_add_ns(stamp, limit) : 0);
}

enum ros2_status dp_rights_now(const struct dp *dp, const struct dp_tenant *t,
                               const struct dp_grant_obj *g, uint64_t cert_deadline_ns,
                               uint64_t now_ns)
{
	if (now_ns >= cert_deadline_ns)
		return ROS2_UNAUTHENTICATED;
	if (now_ns >= atomic_load_explicit(&g->deadline_ns, memory_order_relaxed))
		return ROS2_GRANT_EXPIRED;
	if (!DP_SWITCH(no_contact_check) && !contact_held(dp, t, now_ns))
		return ROS2_CONTACT_LOST;
	return ROS2_OK;
}

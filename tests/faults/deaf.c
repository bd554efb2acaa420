/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faults/deaf.h"
#include "controller/ctl.h"

_Atomic bool deaf_to_releases;

void __real_ctl_grant_release(struct ctl_agent *a, const struct ros2_uid *uid);
void __wrap_ctl_grant_release(struct ctl_agent *a, const struct ros2_uid *uid);

void __wrap_ctl_grant_release(struct ctl_agent *a, const struct ros2_uid *uid)
{
	if (!deaf_to_releases)
		__real_ctl_grant_release(a, uid);
}

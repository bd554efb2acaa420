/* SPDX-License-Identifier: Apache-2.0 */
/* What an administrator sees of a controller, as bytes: to be compared before and after what must
 * change nothing. */
#ifndef ROS2_TESTS_CONTROLLER_SERVICE_PICTURE_H
#define ROS2_TESTS_CONTROLLER_SERVICE_PICTURE_H

#include "tests/controller/service_fixture.h"

struct picture {
	uint8_t *p; /* owned */
	size_t n;
};

/* Every object as Get describes it, with its grants, but for when it was heard last. Not agent
 * @agent and tenant @tenant ("": none such), and of the others not what is said there of it. */
void picture_take(struct sf *f, const char *agent, const char *tenant, struct picture *ret);
void picture_fini(struct picture *p);
bool picture_same(const struct picture *a, const struct picture *b);
#endif

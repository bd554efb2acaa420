/* SPDX-License-Identifier: Apache-2.0 */
/* When a software device has nothing under way any more of what was checked before now: see
 * grace.c. Any thread. */
#ifndef ROS2_DATAPLANE_FABRIC_GRACE_PRIV_H
#define ROS2_DATAPLANE_FABRIC_GRACE_PRIV_H

#include <stdbool.h>
#include <stdint.h>

struct fabric_grace;
int grace_new(struct fabric_grace **ret); /* -ENOMEM */
void grace_free(struct fabric_grace *g);  /* NULL is accepted */
uint64_t grace_ask(struct fabric_grace *g);
bool grace_reached(const struct fabric_grace *g, uint64_t n);
#endif

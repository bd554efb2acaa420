/* SPDX-License-Identifier: Apache-2.0 */
/* Between owner.c, which sees libros2, and its attacker, who sees verbs: both have a `struct raw`.
 */
#ifndef ROS2_TESTS_ATTACK_OWNER_H
#define ROS2_TESTS_ATTACK_OWNER_H

#include <stdint.h>

/* A message from one end of the attacker's to another that names @key: 0, another ibv_wc_status, or
 * -errno. */
int owner_invalidate(uint32_t key);
const char *owner_end_str(int end);
#endif

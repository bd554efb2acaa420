/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UIDs: 16 random bytes that name an object for ever. A name may be used again, a UID never is, so
 * every right is tied to the UID. Printed as 32 lower-case hex digits. Knowing one is never a
 * right.
 */
#ifndef ROS2_COMMON_IDS_H
#define ROS2_COMMON_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROS2_UID_LEN     16
#define ROS2_UID_STR_LEN 33 /* with the terminating NUL */
#define ROS2_NAME_MAX    63 /* names of tenants, engines, agents, namespaces: RFC 1123 labels */
#define ROS2_SPIFFE_MAX  255

struct ros2_uid {
	uint8_t b[ROS2_UID_LEN];
};

/* From the kernel's random number generator. Ends the process if there is none: there is no safe
 * fallback. */
struct ros2_uid ros2_uid_new(void);
bool ros2_uid_eq(const struct ros2_uid *a, const struct ros2_uid *b);
bool ros2_uid_is_zero(const struct ros2_uid *a);
void ros2_uid_to_str(const struct ros2_uid *u, char out[ROS2_UID_STR_LEN]);
/* 32 hex digits exactly; -EINVAL otherwise. */
int ros2_uid_from_str(const char *s, struct ros2_uid *ret);
/* @len must be 16, else -EINVAL: for bytes fields of messages. */
int ros2_uid_from_bytes(const void *p, size_t len, struct ros2_uid *ret);
/* An RFC 1123 label: 1..63 of [a-z0-9-], beginning and ending with a letter or digit. */
bool ros2_name_valid(const char *s);
/* spiffe://TRUST-DOMAIN/PATH within ROS2_SPIFFE_MAX, no empty or dot segments (SPIFFE-ID 2.1-2.2).
 * When ok, outputs that are not NULL are set: the domain's length (it begins at s + 9) and the path
 * (with its leading slash), which points into @s. */
bool ros2_spiffe_valid(const char *s, size_t *ret_domain_len, const char **ret_path);
#endif

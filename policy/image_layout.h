/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an image, told once; docs/decisions/0004-policy-image.md says why. All integers are
 * little-endian. Sections follow each other without gaps in the order given here, so their places
 * are computed from the counts and no offset that could lie is stored, except string offsets, which
 * are checked.
 *
 *   header | tenant: limits, counts, principals, agents, selector, namespaces, rules | strings
 *          | engine: type, flags, size, root; nvmf: its values, volumes             | strings
 */
#ifndef ROS2_POLICY_IMAGE_LAYOUT_H
#define ROS2_POLICY_IMAGE_LAYOUT_H

#include "policy/limits.h"
#include <string.h>

/* "ROS2POL" and a byte that is not text: a file that was converted as text does not pass for an
 * image */
#define IMG_MAGIC "ROS2POL\x8a"

/* header */
#define IMG_OFF_MAGIC   0u
#define IMG_OFF_FORMAT  8u  /* u16 POLICY_IMAGE_FORMAT */
#define IMG_OFF_KIND    10u /* u16 enum policy_kind */
#define IMG_OFF_LEN     12u /* u32, of the whole image */
#define IMG_OFF_SHA256  16u /* of the image with these 32 bytes zero */
#define IMG_OFF_UID     48u
#define IMG_OFF_VERSION 64u /* u64 */
#define IMG_OFF_NAME    72u /* u32 string */
#define IMG_OFF_STRINGS 76u /* u32, length of the strings section */
#define IMG_HEADER_LEN  80u

/* tenant: the limits of format 1 as u64 in the order of enum limit_id, then */
#define IMG_OFF_LIMITS      IMG_HEADER_LEN
#define IMG_LIMITS_1        ((unsigned)LIMIT_CONTROL_VERBS)
#define IMG_OFF_ENUMS       (IMG_OFF_LIMITS + 8u * IMG_LIMITS_1)
#define IMG_OFF_ACCESS      (IMG_OFF_ENUMS + 0u) /* u8 POLICY_ACCESS_* of regions */
#define IMG_OFF_ACTION      (IMG_OFF_ENUMS + 1u) /* u8 enum policy_violation_action */
#define IMG_OFF_OFFLINE     (IMG_OFF_ENUMS + 2u) /* u8, 0 */
#define IMG_OFF_LOSS        (IMG_OFF_ENUMS + 3u) /* u8 enum policy_controller_loss */
#define IMG_OFF_COUNTS      (IMG_OFF_ENUMS + 4u) /* u32 each: */
#define IMG_COUNT_PRINCIPAL 0u
#define IMG_COUNT_AGENT     1u
#define IMG_COUNT_SELECTOR  2u
#define IMG_COUNT_NAMESPACE 3u
#define IMG_COUNT_RULE      4u
#define IMG_COUNTS          5u
#define IMG_TENANT_LEN_1    (IMG_OFF_COUNTS + 4u * IMG_COUNTS)
/* from format 2 on: the other limits, as u64 */
#define IMG_TENANT_LEN_2 (IMG_TENANT_LEN_1 + 8u * (LIMIT_COUNT - IMG_LIMITS_1))
/* from format 3 on: what the placement requires */
#define IMG_OFF_REQUIRE  IMG_TENANT_LEN_2 /* u64, a set of common/probe.h; not empty */
#define IMG_TENANT_LEN_3 (IMG_OFF_REQUIRE + 8u)

/* records */
#define IMG_PRINCIPAL_LEN 4u /* u32 string */
#define IMG_AGENT_LEN     4u /* u32 string */
#define IMG_SELECTOR_LEN  8u /* u32 string key, u32 string value */
#define IMG_NAMESPACE_LEN 24u
#define IMG_NS_NAME       0u  /* u32 string */
#define IMG_NS_ENGINE     4u  /* u32 string */
#define IMG_NS_PATH       8u  /* u32 string */
#define IMG_NS_ACCESS     12u /* u8 */
#define IMG_NS_SHARED     13u /* u8 0 or 1; two zero bytes follow */
#define IMG_NS_FIRST      16u /* u32: rules of namespaces follow each other */
#define IMG_NS_RULES      20u /* u32 */
#define IMG_RULE_LEN      8u
#define IMG_RULE_PATTERN  0u /* u32 string */
#define IMG_RULE_ACCESS   4u /* u8; three zero bytes follow */

/* engine */
#define IMG_OFF_ENGINE_TYPE 80u /* u32 enum policy_engine_type */
#define IMG_OFF_ENGINE_NULL 84u /* u32 0 or 1 */
#define IMG_OFF_ENGINE_SIZE 88u /* u64 */
#define IMG_OFF_ENGINE_ROOT 96u /* u32 string; four zero bytes follow */
#define IMG_ENGINE_LEN      104u
/* from format 4 on, which is for engines of type nvmf only (null 0, size 0, root ""): */
#define IMG_OFF_NVMF_TRANSPORT 104u /* u8 enum policy_transport */
#define IMG_OFF_NVMF_HDGST     105u /* u8 0 or 1 */
#define IMG_OFF_NVMF_DDGST     106u /* u8 0 or 1 */
#define IMG_OFF_NVMF_KEYS      107u /* u8 1 = per command */
#define IMG_OFF_NVMF_NUMBERS   108u /* u64 each, in the order of nvmf_numbers */
#define IMG_NVMF_NUMBERS       5u
#define IMG_OFF_NVMF_ADDRESS   148u /* u32 string */
#define IMG_OFF_NVMF_SUBSYSTEM 152u /* u32 string */
#define IMG_OFF_NVMF_HOST      156u /* u32 string */
#define IMG_OFF_NVMF_SECRET    160u /* u32 string */
#define IMG_OFF_NVMF_TARGET    164u /* u32 string */
#define IMG_OFF_NVMF_VOLUMES   168u /* u32, 1 to POLICY_VOLUMES_MAX; four zero bytes follow */
#define IMG_NVMF_LEN           176u
#define IMG_VOLUME_LEN         24u
#define IMG_VOLUME_NAME        0u  /* u32 string */
#define IMG_VOLUME_NSID        4u  /* u32 */
#define IMG_VOLUME_OFFSET      8u  /* u64 */
#define IMG_VOLUME_SIZE        16u /* u64 */

static inline unsigned img_tenant_len(unsigned format)
{
	return format == 1 ? IMG_TENANT_LEN_1 : format == 2 ? IMG_TENANT_LEN_2 : IMG_TENANT_LEN_3;
}

static inline unsigned img_limit_off(unsigned id)
{
	return id < IMG_LIMITS_1 ? IMG_OFF_LIMITS + 8u * id
	                         : IMG_TENANT_LEN_1 + 8u * (id - IMG_LIMITS_1);
}

static inline uint64_t img_get(const uint8_t *p, unsigned bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | p[bytes];
	return v;
}

static inline uint32_t img_u32(const uint8_t *p)
{
	return (uint32_t)img_get(p, 4);
}

static inline void img_put(uint8_t *p, unsigned bytes, uint64_t v)
{
	for (unsigned i = 0; i < bytes; i++, v >>= 8)
		p[i] = (uint8_t)v;
}

/* SHA-256 of the image as if its hash were zero. @len >= IMG_HEADER_LEN. */
void image_hash(const uint8_t *p, size_t len, uint8_t out[POLICY_DIGEST_LEN]);
#endif

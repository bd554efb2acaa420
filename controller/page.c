/* SPDX-License-Identifier: Apache-2.0 */
/* Page tokens: version, kind, a hash of the filters and the position, of fixed length, in base64.
 * Told in docs/decisions/0015-pages.md. */
#include "controller/page.h"
#include <errno.h>
#include <string.h>

#define TOKEN_VERSION 1
#define FILTER_LEN    8
#define NAME_AT       (3 + FILTER_LEN)
#define KEY_AT        (NAME_AT + ROS2_NAME_MAX + 1)
#define TOKEN_LEN     (KEY_AT + ROS2_UID_LEN)

static void head(const struct page_list *l, bool ended, uint8_t out[NAME_AT])
{
	uint8_t hash[SHA256_LEN], all = l->all;
	struct crypto_span parts[] = {
		{l->tenant_uid.b, ROS2_UID_LEN}, {l->agent_uid.b, ROS2_UID_LEN}, {&all, 1}};

	crypto_sha256v(parts, ARRAY_SIZE(parts), hash);
	out[0] = TOKEN_VERSION;
	out[1] = (uint8_t)l->kind;
	out[2] = ended;
	memcpy(out + 3, hash, FILTER_LEN);
}

struct ros2_uid page_lease_key(uint64_t lease_id)
{
	struct ros2_uid u = {{0}};

	for (int i = 0; i < 8; i++)
		u.b[i] = (uint8_t)(lease_id >> (8 * (7 - i)));
	return u;
}

void page_token(const struct page_list *l, const struct page_pos *at, char out[PAGE_TOKEN_MAX])
{
	uint8_t raw[TOKEN_LEN] = {0};

	head(l, at->ended, raw);
	memcpy(raw + NAME_AT, at->name, strlen(at->name));
	memcpy(raw + KEY_AT, at->key.b, ROS2_UID_LEN);
	crypto_base64(raw, sizeof(raw), out);
}

/* A position has one token: nothing stands behind the name's end. */
static bool name_good(const uint8_t raw[ROS2_NAME_MAX + 1])
{
	size_t n = strnlen((const char *)raw, ROS2_NAME_MAX + 1);

	for (size_t i = n; i < ROS2_NAME_MAX + 1; i++)
		if (raw[i])
			return false;
	return n <= ROS2_NAME_MAX;
}

int page_parse(const struct page_list *l, const char *token, struct page_pos *ret)
{
	uint8_t raw[TOKEN_LEN], want[NAME_AT];
	size_t n;

	memset(ret, 0, sizeof(*ret));
	if (!*token)
		return 0;
	if (strlen(token) >= PAGE_TOKEN_MAX ||
	    crypto_base64_decode(token, strlen(token), raw, sizeof(raw), &n) < 0 ||
	    n != sizeof(raw))
		return -EINVAL;
	head(l, raw[2] == 1, want);
	if (raw[2] > 1 || memcmp(raw, want, NAME_AT) != 0 || !name_good(raw + NAME_AT))
		return -EINVAL;
	ret->ended = raw[2];
	memcpy(ret->name, raw + NAME_AT, ROS2_NAME_MAX);
	memcpy(ret->key.b, raw + KEY_AT, ROS2_UID_LEN);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* UIDs, names and SPIFFE IDs: made, printed and checked. Pure but for ros2_uid_new. */
#include "common/ids.h"
#include "common/crypto.h"
#include <errno.h>
#include <string.h>

struct ros2_uid ros2_uid_new(void)
{
	struct ros2_uid u;

	/* The zero UID means "none"; 2^-128 is not a reason to hand it out. */
	do {
		crypto_random(u.b, sizeof(u.b));
	} while (ros2_uid_is_zero(&u));
	return u;
}

bool ros2_uid_eq(const struct ros2_uid *a, const struct ros2_uid *b)
{
	return !memcmp(a->b, b->b, sizeof(a->b));
}

bool ros2_uid_is_zero(const struct ros2_uid *a)
{
	static const struct ros2_uid zero;

	return ros2_uid_eq(a, &zero);
}

void ros2_uid_to_str(const struct ros2_uid *u, char out[ROS2_UID_STR_LEN])
{
	crypto_hex(u->b, sizeof(u->b), out);
}

int ros2_uid_from_str(const char *s, struct ros2_uid *ret)
{
	struct ros2_uid u;

	if (strnlen(s, ROS2_UID_STR_LEN) != 2 * ROS2_UID_LEN)
		return -EINVAL;
	if (crypto_hex_decode(s, u.b, sizeof(u.b)) < 0)
		return -EINVAL;
	*ret = u;
	return 0;
}

int ros2_uid_from_bytes(const void *p, size_t len, struct ros2_uid *ret)
{
	if (len != ROS2_UID_LEN)
		return -EINVAL;
	memcpy(ret->b, p, ROS2_UID_LEN);
	return 0;
}

static bool is_alnum_lower(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool ros2_name_valid(const char *s)
{
	size_t n = strnlen(s, ROS2_NAME_MAX + 1);

	if (n == 0 || n > ROS2_NAME_MAX)
		return false;
	if (!is_alnum_lower(s[0]) || !is_alnum_lower(s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum_lower(s[i]) && s[i] != '-')
			return false;
	return true;
}

/* SPIFFE-ID 2.1: lower-case letters, digits, dots, dashes, underscores. */
static size_t domain_len(const char *s)
{
	size_t n = 0;

	while (is_alnum_lower(s[n]) || s[n] == '.' || s[n] == '-' || s[n] == '_')
		n++;
	return n;
}

static bool is_path_char(char c)
{
	return is_alnum_lower(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

/* SPIFFE-ID 2.2: one or more "/segment"; a segment is not empty, "." or "..". */
static bool path_valid(const char *p)
{
	while (*p == '/') {
		const char *segment = ++p;
		size_t n;

		while (is_path_char(*p))
			p++;
		n = (size_t)(p - segment);
		if (n == 0 || (n == 1 && segment[0] == '.') ||
		    (n == 2 && segment[0] == '.' && segment[1] == '.'))
			return false;
	}
	return *p == '\0';
}

bool ros2_spiffe_valid(const char *s, size_t *ret_domain_len, const char **ret_path)
{
	static const char scheme[] = "spiffe://";
	const size_t scheme_len = sizeof(scheme) - 1;
	size_t n;

	if (strnlen(s, ROS2_SPIFFE_MAX + 1) > ROS2_SPIFFE_MAX || strncmp(s, scheme, scheme_len))
		return false;
	n = domain_len(s + scheme_len);
	if (n == 0 || s[scheme_len + n] != '/' || !path_valid(s + scheme_len + n))
		return false;
	if (ret_domain_len)
		*ret_domain_len = n;
	if (ret_path)
		*ret_path = s + scheme_len + n;
	return true;
}

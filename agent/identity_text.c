/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of an identity: identity.json and snapshot.pub. identity.json is one flat object of
 * strings without escapes, since it holds names, hex and dots only; a member that is not known is
 * passed over, one that comes twice is a fault. What is accepted is what identity_store would
 * write.
 */
#include "agent/identity.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct reader {
	const char *p, *end;
};

static char peek(struct reader *rd)
{
	while (rd->p < rd->end && *rd->p && strchr(" \t\r\n", *rd->p))
		rd->p++;
	return rd->p < rd->end ? *rd->p : '\0';
}

static bool take(struct reader *rd, char c)
{
	if (peek(rd) != c)
		return false;
	rd->p++;
	return true;
}

/* A string without escapes and control characters, at most max - 1 bytes. */
static bool take_string(struct reader *rd, char *out, size_t max)
{
	size_t n = 0;

	if (!take(rd, '"'))
		return false;
	for (; rd->p < rd->end && *rd->p != '"'; rd->p++) {
		if ((unsigned char)*rd->p < 0x20 || *rd->p == '\\' || n + 1 >= max)
			return false;
		out[n++] = *rd->p;
	}
	out[n] = '\0';
	return take(rd, '"');
}

struct member {
	const char *key;
	char *out;
	size_t max;
	bool seen;
};

static bool take_member(struct reader *rd, struct member *m, size_t n)
{
	char key[64], value[ROS2_SPIFFE_MAX + 1];

	if (!take_string(rd, key, sizeof(key)) || !take(rd, ':') ||
	    !take_string(rd, value, sizeof(value)))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(key, m[i].key) != 0)
			continue;
		if (m[i].seen || strlen(value) >= m[i].max)
			return false;
		strcpy(m[i].out, value);
		m[i].seen = true;
	}
	return true;
}

static bool take_object(struct reader *rd, struct member *m, size_t n)
{
	if (!take(rd, '{'))
		return false;
	do {
		if (!take_member(rd, m, n))
			return false;
	} while (take(rd, ','));
	if (!take(rd, '}') || peek(rd) || rd->p != rd->end)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!m[i].seen)
			return false;
	return true;
}

bool identity_trust_domain_valid(const char *s)
{
	return *s && strnlen(s, 201) <= 200 &&
	       s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_")] == '\0';
}

int identity_json_parse(const char *text, size_t len, struct identity *ret, struct ros2_err *err)
{
	char uid[ROS2_UID_STR_LEN];
	struct identity id = *ret;
	struct member members[] = {{"agent_uid", uid, sizeof(uid)},
	                           {"name", id.name, sizeof(id.name)},
	                           {"trust_domain", id.trust_domain, sizeof(id.trust_domain)}};
	struct reader rd = {text, text + len};

	if (!take_object(&rd, members, ARRAY_SIZE(members)) ||
	    ros2_uid_from_str(uid, &id.agent_uid) < 0 || !ros2_name_valid(id.name) ||
	    !identity_trust_domain_valid(id.trust_domain))
		return ros2_err_named(err, ROS2_CORRUPT,
		                      "expected agent_uid, name and trust_domain");
	*ret = id;
	return 0;
}

int identity_json_format(const struct ros2_uid *agent_uid, const char *name,
                         const char *trust_domain, char out[IDENTITY_JSON_MAX])
{
	char uid[ROS2_UID_STR_LEN];

	if (!ros2_name_valid(name) || !identity_trust_domain_valid(trust_domain))
		return -EINVAL;
	ros2_uid_to_str(agent_uid, uid);
	return snprintf(out, IDENTITY_JSON_MAX,
	                "{\n  \"agent_uid\": \"%s\",\n  \"name\": \"%s\",\n  \"trust_domain\": "
	                "\"%s\"\n}\n",
	                uid, name, trust_domain);
}

int identity_key_parse(const char *text, size_t len, uint8_t ret[ED25519_PUB_LEN],
                       struct ros2_err *err)
{
	char hex[2 * ED25519_PUB_LEN + 1];

	if (len && text[len - 1] == '\n')
		len--;
	if (len == sizeof(hex) - 1) {
		memcpy(hex, text, len);
		hex[len] = '\0';
		if (crypto_hex_decode(hex, ret, ED25519_PUB_LEN) == 0)
			return 0;
	}
	return ros2_err_named(err, ROS2_CORRUPT, "expected 64 hex digits");
}

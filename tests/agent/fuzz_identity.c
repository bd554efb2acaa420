/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as identity.json and as snapshot.pub. What is accepted is a name, a trust domain and a
 * uid as the writer would write them: written again it is read as the same.
 */
#include "agent/identity.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>

static void as_json(const char *text, size_t len)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct identity id = {0}, again = {0};
	const struct identity none = {0};
	char out[IDENTITY_JSON_MAX];
	int r = identity_json_parse(text, len, &id, &err), n;

	if (r < 0) {
		must_refuse(r, &err);
		must(!memcmp(&id, &none, sizeof(id)));
		return;
	}
	must(ros2_name_valid(id.name) && identity_trust_domain_valid(id.trust_domain));
	n = identity_json_format(&id.agent_uid, id.name, id.trust_domain, out);
	must(n > 0 && n < IDENTITY_JSON_MAX && strlen(out) == (size_t)n);
	must(identity_json_parse(out, (size_t)n, &again, &err) == 0);
	must(ros2_uid_eq(&id.agent_uid, &again.agent_uid) && !strcmp(id.name, again.name) &&
	     !strcmp(id.trust_domain, again.trust_domain));
}

static void as_key(const char *text, size_t len)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t key[ED25519_PUB_LEN];
	char hex[2 * ED25519_PUB_LEN + 1];
	int r = identity_key_parse(text, len, key, &err);

	if (r < 0) {
		must_refuse(r, &err);
		return;
	}
	crypto_hex(key, sizeof(key), hex);
	must(len - strlen(hex) <= 1 && !memcmp(hex, text, strlen(hex)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	as_json((const char *)data, size);
	as_key((const char *)data, size);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as base64, hex, UID, name and SPIFFE ID. What is accepted has one spelling: written
 * again it is the same text.
 */
#include "common/crypto.h"
#include "common/ids.h"
#include <stdlib.h>
#include <string.h>

static void base64(const uint8_t *data, size_t size)
{
	char *out = malloc(size + 1), *again = malloc(crypto_base64_len(size));
	size_t len;

	if (!out || !again)
		abort();
	if (crypto_base64_decode((const char *)data, size, out, size, &len) == 0) {
		crypto_base64(out, len, again);
		if (strlen(again) != size || memcmp(again, data, size))
			abort();
	}
	free(out);
	free(again);
}

static void names(const char *s)
{
	char again[ROS2_UID_STR_LEN];
	const char *path;
	struct ros2_uid uid;
	size_t n;

	if (ros2_uid_from_str(s, &uid) == 0) {
		ros2_uid_to_str(&uid, again);
		if (strcmp(s, again))
			abort();
	}
	if (ros2_name_valid(s) && strlen(s) > ROS2_NAME_MAX)
		abort();
	if (ros2_spiffe_valid(s, &n, &path) && (path != s + 9 + n || *path != '/'))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = malloc(size + 1), *bytes = malloc(size / 2 + 1);

	if (!s || !bytes)
		abort();
	memcpy(s, data, size);
	s[size] = '\0';
	base64(data, size);
	names(s);
	crypto_hex_decode(s, bytes, strlen(s) / 2);
	free(s);
	free(bytes);
	return 0;
}

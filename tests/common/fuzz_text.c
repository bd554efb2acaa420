/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as base64, hex, UID, name, SPIFFE ID and name of a status, and as text to be shown.
 * What is accepted has one spelling: written again it is the same text. What is to be shown is
 * printable after it was cleaned or escaped, and text that was printable stays as it is.
 */
#include "common/crypto.h"
#include "common/ids.h"
#include "common/status.h"
#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"

static void base64(const uint8_t *data, size_t size)
{
	char *out = malloc(size + 1), *again = malloc(crypto_base64_len(size));
	size_t len;

	must(out && again);
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

static void hex(const char *s)
{
	size_t n = strlen(s) / 2;
	char *bytes = malloc(n + 1), *again = malloc(2 * n + 1);

	must(bytes && again);
	if (crypto_hex_decode(s, bytes, n) == 0) {
		crypto_hex(bytes, n, again);
		must(!strcmp(s, again));
	}
	free(bytes);
	free(again);
}

static void status(const char *s)
{
	enum ros2_status st;

	if (ros2_status_from_str(s, &st) == 0)
		must((unsigned)st < ROS2_STATUS_COUNT && !strcmp(ros2_status_to_str(st), s));
}

static void shown(const char *s, size_t max)
{
	size_t len = strlen(s), n;
	char *cleaned = strdup(s), *escaped = malloc(4 * len + 1), *cut = malloc(max);
	bool printable = utf8_text_printable(s);

	must(cleaned && escaped && cut);
	utf8_clean(cleaned);
	must(strlen(cleaned) == len && utf8_text_printable(cleaned));
	must(printable == !strcmp(cleaned, s));
	n = utf8_escape(s, escaped, 4 * len + 1);
	must(n == strlen(escaped) && n >= len && utf8_text_printable(escaped));
	must(!printable || !strcmp(escaped, s));
	n = utf8_escape(s, cut, max);
	must(n < max && n == strlen(cut) && utf8_text_printable(cut) && !strncmp(cut, escaped, n));
	free(cleaned);
	free(escaped);
	free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *s = fuzz_text(data, size);

	base64(data, size);
	names(s);
	hex(s);
	status(s);
	shown(s, 1 + size / 2);
	free(s);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as certificate, bundle, request and key: refused with words or read, never a crash, a
 * leak or an unbounded wait. What is no PEM is taken as DER and put into PEM here, so that
 * mutations reach the certificate. No text vouches for itself: the authorities of a bundle are no
 * leaves.
 */
#include "common/crypto.h"
#include "common/pki.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>

static void as_certificates(const char *pem, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_cert_info info, again;
	uint8_t hash[32], same[32];
	int r = pki_cert_info(pem, size, &info, &err);

	if (r == 0) {
		must(!info.uri[0] || strnlen(info.uri, sizeof(info.uri)) <= ROS2_SPIFFE_MAX);
		must(info.serial[0] && strlen(info.serial) < sizeof(info.serial));
		must(pki_cert_info(pem, size, &again, NULL) == 0 && !strcmp(info.uri, again.uri) &&
		     !memcmp(info.cert_sha256, again.cert_sha256, sizeof(hash)));
		ros2_spiffe_valid(info.uri, NULL, NULL);
	} else {
		must_refuse(r, &err);
	}
	r = pki_bundle_hash(pem, size, hash, &err);
	if (r == 0)
		must(pki_bundle_hash(pem, size, same, NULL) == 0 && !memcmp(hash, same, 32));
	else
		must_refuse(r, &err);
	r = pki_verify(pem, size, pem, size, &err);
	must_refuse(r, &err);
}

static void as_request_and_key(const char *pem, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t hash[32];
	int r = pki_csr_spki(pem, size, hash, &err);

	if (r)
		must_refuse(r, &err);
	r = pki_key_matches(pem, size, pem, size, &err);
	if (r)
		must_refuse(r, &err);
}

/* One line of base64 is enough for OpenSSL up to its limit; lines of 64 are what it writes. */
static void as_der(const uint8_t *data, size_t size, const char *what)
{
	size_t b64_len = crypto_base64_len(size), n;
	char *b64 = malloc(b64_len), *pem = malloc(2 * b64_len + 128);

	must(b64 && pem);
	crypto_base64(data, size, b64);
	n = (size_t)sprintf(pem, "-----BEGIN %s-----\n", what);
	for (const char *at = b64; *at; at += strnlen(at, 64))
		n += (size_t)sprintf(pem + n, "%.64s\n", at);
	n += (size_t)sprintf(pem + n, "-----END %s-----\n", what);
	if (!strcmp(what, "CERTIFICATE"))
		as_certificates(pem, n);
	else
		as_request_and_key(pem, n);
	free(b64);
	free(pem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *pem = (const char *)data;

	if (memmem(data, size, "-----BEGIN", 10)) {
		as_certificates(pem, size);
		as_request_and_key(pem, size);
		return 0;
	}
	as_der(data, size, "CERTIFICATE");
	as_der(data, size, "CERTIFICATE REQUEST");
	return 0;
}

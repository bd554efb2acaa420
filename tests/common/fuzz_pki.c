/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as certificate, bundle, request and key: refused or read, never a crash, a leak or an
 * unbounded wait. */
#include "common/pki.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *pem = (const char *)data;
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_cert_info info;
	uint8_t hash[32];

	if (pki_cert_info(pem, size, &info, &err) == 0 && info.uri[0])
		ros2_spiffe_valid(info.uri, NULL, NULL);
	pki_csr_spki(pem, size, hash, &err);
	pki_bundle_hash(pem, size, hash, &err);
	pki_verify(pem, size, pem, size, &err);
	pki_key_matches(pem, size, pem, size, &err);
	return 0;
}

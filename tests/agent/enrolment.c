/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/agent/enrolment.h"
#include "agent/identity.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "tests/testing.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *enrolment_parent, enrolment_dir[512];
void *enrolment_ca;
size_t enrolment_ca_len;

static char ca_dir[512];

static void ca_paths(char key[600], char crt[600])
{
	snprintf(key, 600, "%s/ca.key", ca_dir);
	snprintf(crt, 600, "%s/ca.crt", ca_dir);
}

/* What the controller does: no part of the disk that is watched. */
static char *issue(uint64_t life_s)
{
	static const char uri[] = "spiffe://ros2.test/agent/dpu-0";
	char key[600], crt[600], own[600], *csr = NULL, *pem = NULL;
	struct pki_issue_opts o = {
		.uri = uri, .issuer_cert_path = crt, .issuer_key_path = key, .lifetime_s = life_s};

	ca_paths(key, crt);
	snprintf(own, sizeof(own), "%s/tls.key", enrolment_dir);
	if (pki_csr_create(own, uri, &csr, NULL) == 0) {
		o.csr_pem = csr;
		o.csr_len = strlen(csr);
		pki_issue(&o, &pem, NULL);
	}
	free(csr);
	return pem;
}

int enrolment_as(uint8_t uid, uint64_t life_s)
{
	static const uint8_t snapshot_key[ED25519_PUB_LEN] = {7};
	struct identity_files f = {.name = "dpu-0",
	                           .trust_domain = "ros2.test",
	                           .agent_uid = {{uid}},
	                           .infra_pem = enrolment_ca,
	                           .infra_len = enrolment_ca_len,
	                           .tenant_pem = enrolment_ca,
	                           .tenant_len = enrolment_ca_len,
	                           .snapshot_key = snapshot_key,
	                           .snapshot_key_len = sizeof(snapshot_key)};
	char key[600], *pem;
	int r;

	snprintf(key, sizeof(key), "%s/tls.key", enrolment_dir);
	r = pki_key_create(key, NULL);
	if (r < 0 && r != -EEXIST) /* as enrol.c takes it */
		return r;
	pem = issue(life_s);
	if (!pem)
		return -EIO;
	f.cert_pem = pem;
	f.cert_len = strlen(pem);
	r = identity_store(enrolment_dir, &f, NULL);
	free(pem);
	return r;
}

int enrolment_make(void)
{
	return enrolment_as(9, ENROLMENT_LIFE_S);
}

int enrolment_renew(void)
{
	char *pem = issue(ENROLMENT_LIFE_S);
	int r = pem ? identity_store_certificate(enrolment_dir, "dpu-0", "ros2.test", pem,
	                                         strlen(pem), NULL)
	            : -EIO;

	free(pem);
	return r;
}

bool enrolment_bundle_is_whole(const char *name)
{
	char path[600];
	void *p = NULL;
	size_t n = 0;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", enrolment_dir, name);
	ok = fsx_read_file(path, 65536, &p, &n, NULL) == 0 && n == enrolment_ca_len &&
	     !memcmp(p, enrolment_ca, n);
	free(p);
	return ok;
}

int enrolment_setup(void **state)
{
	char key[600], crt[600];
	struct pki_ca_opts o = {.common_name = "ca",
	                        .trust_domain = "ros2.test",
	                        .key_path = key,
	                        .cert_path = crt,
	                        .lifetime_s = 3600};
	int r;

	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	if (testing_dir_setup((void **)&enrolment_parent) < 0)
		return -1;
	snprintf(ca_dir, sizeof(ca_dir), "%s/ca", enrolment_parent);
	snprintf(enrolment_dir, sizeof(enrolment_dir), "%s/state", enrolment_parent);
	mkdir(ca_dir, 0700);
	ca_paths(key, crt);
	r = pki_key_create(key, NULL);
	if (!r)
		r = pki_ca_create(&o, NULL);
	return r ? r : fsx_read_file(crt, 65536, &enrolment_ca, &enrolment_ca_len, NULL);
}

int enrolment_teardown(void **state)
{
	free(enrolment_ca);
	return testing_dir_teardown((void **)&enrolment_parent);
}

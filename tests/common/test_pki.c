/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates: authorities, requests, issuing, verifying; and what must be refused. */
#include "tests/testing.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include <errno.h>
#include <sys/stat.h>

#define DAY 86400

struct pem {
	char *text; /* owned */
	size_t len;
};

/* Two roots with one intermediate below the first, and a key and request of a leaf. Made once: keys
 * cost time. */
static char dir[4000];
static struct pem root, inter, other_root, leaf_key, csr;
static char inter_cert[4200], inter_key[4200], root_cert[4200], root_key[4200], key_path[4200];

static struct pem load(const char *path)
{
	struct pem p = {0};
	void *text = NULL;

	assert_int_equal(fsx_read_file(path, PKI_PEM_MAX, &text, &p.len, NULL), 0);
	p.text = text;
	return p;
}

static struct pem make_ca(const char *name, const char *issuer, char cert[4200], char key[4200])
{
	char icert[4200], ikey[4200];
	struct pki_ca_opts o = {
		.common_name = name,
		.trust_domain = "test.example",
		.key_path = key,
		.cert_path = cert,
		.lifetime_s = 30 * DAY,
	};

	snprintf(cert, 4200, "%s/%s.crt", dir, name);
	snprintf(key, 4200, "%s/%s.key", dir, name);
	if (issuer) {
		snprintf(icert, 4200, "%s/%s.crt", dir, issuer);
		snprintf(ikey, 4200, "%s/%s.key", dir, issuer);
		o.issuer_cert_path = icert;
		o.issuer_key_path = ikey;
	}
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
	return load(cert);
}

static int group_setup(void **state)
{
	char cert[4200], key[4200];
	void *path;

	if (testing_dir_setup(&path))
		return -1;
	snprintf(dir, sizeof(dir), "%s", (char *)path);
	free(path);
	root = make_ca("root", NULL, root_cert, root_key);
	inter = make_ca("inter", "root", inter_cert, inter_key);
	other_root = make_ca("foreign", NULL, cert, key);
	testing_path(key_path, dir, "leaf.key");
	assert_int_equal(pki_key_create(key_path, NULL), 0);
	leaf_key = load(key_path);
	assert_int_equal(pki_csr_create(key_path, "spiffe://test.example/hint", &csr.text, NULL),
	                 0);
	csr.len = strlen(csr.text);
	return 0;
}

static int group_teardown(void **state)
{
	void *path = strdup(dir);

	free(root.text);
	free(inter.text);
	free(other_root.text);
	free(leaf_key.text);
	free(csr.text);
	return testing_dir_teardown(&path);
}

static struct pki_issue_opts opts(void)
{
	return (struct pki_issue_opts){
		.csr_pem = csr.text,
		.csr_len = csr.len,
		.uri = "spiffe://test.example/tenant/alpha",
		.issuer_cert_path = inter_cert,
		.issuer_key_path = inter_key,
		.lifetime_s = 3600,
	};
}

static struct pem issue(const struct pki_issue_opts *o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct pem p = {0};

	if (pki_issue(o, &p.text, &err) < 0)
		fail_msg("%s", err.msg);
	p.len = strlen(p.text);
	return p;
}

static void pki__issues_a_chain_that_verifies_to_the_root(void **state)
{
	struct pki_issue_opts o = opts();
	struct pem leaf = issue(&o);
	struct pki_cert_info info;
	uint8_t spki[32];

	assert_int_equal(pki_verify(leaf.text, leaf.len, root.text, root.len, NULL), 0);
	/* The bundle may also name the intermediate alone. */
	assert_int_equal(pki_verify(leaf.text, leaf.len, inter.text, inter.len, NULL), 0);
	assert_int_equal(pki_cert_info(leaf.text, leaf.len, &info, NULL), 0);
	/* The name is the issuer's choice, not the hint of the request. */
	assert_string_equal(info.uri, "spiffe://test.example/tenant/alpha");
	assert_true(info.not_after_unix_s - info.not_before_unix_s >= 3600);
	assert_true(info.not_after_unix_s - info.not_before_unix_s <= 3600 + 120);
	assert_int_equal(strlen(info.serial), 32);
	assert_int_equal(pki_csr_spki(csr.text, csr.len, spki, NULL), 0);
	assert_memory_equal(spki, info.spki_sha256, 32);
	assert_int_equal(pki_key_matches(leaf.text, leaf.len, leaf_key.text, leaf_key.len, NULL),
	                 0);
	free(leaf.text);
}

static void pki__a_root_issues_without_a_chain(void **state)
{
	struct pki_issue_opts o = opts();
	struct pem leaf;

	o.issuer_cert_path = root_cert;
	o.issuer_key_path = root_key;
	leaf = issue(&o);
	assert_null(strstr(leaf.text + 30, "BEGIN CERTIFICATE"));
	assert_int_equal(pki_verify(leaf.text, leaf.len, root.text, root.len, NULL), 0);
	free(leaf.text);
}

static void pki__refuses_a_foreign_authority(void **state)
{
	struct pki_issue_opts o = opts();
	struct ros2_err err = ROS2_ERR_INIT;
	struct pem leaf = issue(&o);

	assert_true(pki_verify(leaf.text, leaf.len, other_root.text, other_root.len, &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "unknown issuer"));
	free(leaf.text);
}

static void pki__refuses_an_expired_certificate(void **state)
{
	struct pki_issue_opts o = opts();
	struct ros2_err err = ROS2_ERR_INIT;
	struct pem leaf;

	leaf = issue(&o);
	assert_int_equal(pki_verify(leaf.text, leaf.len, root.text, root.len, NULL), 0);
	free(leaf.text);
	o.lifetime_s = 1;
	leaf = issue(&o);
	/* time: the certificate lives one second */
	usleep(2100000);
	assert_true(pki_verify(leaf.text, leaf.len, root.text, root.len, &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "expired"));
	free(leaf.text);
}

static void pki__refuses_an_authority_as_an_identity(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	assert_true(pki_verify(inter.text, inter.len, root.text, root.len, &err) < 0);
	assert_non_null(strstr(err.msg, "authority"));
	assert_true(pki_verify(root.text, root.len, root.text, root.len, &err) < 0);
}

static void pki__a_leaf_in_a_bundle_is_refused(void **state)
{
	struct pki_issue_opts o = opts();
	struct ros2_err err = ROS2_ERR_INIT;
	struct pem leaf = issue(&o);

	assert_int_equal(pki_verify(leaf.text, leaf.len, leaf.text, leaf.len, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "not an authority"));
	free(leaf.text);
}

/* TLS reads the same text for itself: what it would read otherwise than we do is no bundle. */
static void pki__a_bundle_that_tls_could_read_otherwise_is_refused(void **state)
{
	AUTO_FREE char *trusted = NULL, *torn = NULL, *zero = NULL, *plain = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_trust *t = NULL;
	const char *at = strstr(other_root.text, "CERTIFICATE-----\n") + 17;
	int len = (int)(strstr(at, "-----END") - at);

	assert_true(asprintf(&plain, "# ours\n%s\n# theirs\n%s", root.text, other_root.text) > 0);
	assert_int_equal(pki_trust_new(plain, strlen(plain), &t, &err), 0);
	pki_trust_unref(t);
	/* Of this kind TLS takes an anchor that is not in our count. */
	assert_true(asprintf(&trusted,
	                     "%s-----BEGIN TRUSTED CERTIFICATE-----\n%.*s"
	                     "-----END TRUSTED CERTIFICATE-----\n",
	                     root.text, len, at) > 0);
	assert_int_equal(pki_trust_new(trusted, strlen(trusted), &t, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "1 certificates, and 2 blocks"));
	/* A second one whose first line is being written. */
	assert_true(asprintf(&torn, "%s-----BEGIN CERTIFI", root.text) > 0);
	assert_int_equal(pki_trust_new(torn, strlen(torn), &t, &err), -EBADMSG);
	zero = strdup(plain);
	zero[root.len + 8] = '\0';
	assert_int_equal(pki_trust_new(zero, strlen(plain), &t, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "zero byte"));
}

static struct pki_trust *trust_of(const struct pem *a, const struct pem *b)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_trust *t = NULL;
	char text[16384];

	snprintf(text, sizeof(text), "%s%s", a->text, b ? b->text : "");
	if (pki_trust_new(text, strlen(text), &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

static void pki__what_a_bundle_gains_and_loses_is_told(void **state)
{
	struct pki_trust *one = trust_of(&root, NULL), *two = trust_of(&other_root, &root);
	struct pki_issue_opts o = opts();
	struct pem leaf = issue(&o);
	struct pki_trust_changes c;
	struct pki_cert_info info;
	char hex[65];

	assert_int_equal(pki_cert_info(other_root.text, other_root.len, &info, NULL), 0);
	crypto_hex(info.cert_sha256, 32, hex);
	pki_trust_changes(one, two, &c);
	assert_int_equal(c.authorities, 2);
	assert_int_equal(c.added, 1);
	assert_string_equal(c.added_text, hex);
	assert_int_equal(c.removed, 0);
	assert_string_equal(c.removed_text, "");
	pki_trust_changes(two, one, &c);
	assert_int_equal(c.authorities, 1);
	assert_int_equal(c.added, 0);
	assert_string_equal(c.removed_text, hex);
	pki_trust_changes(NULL, two, &c);
	assert_int_equal(c.added, 2);
	assert_int_equal(strlen(c.added_text), 2 * 64 + 1);
	pki_trust_changes(one, one, &c);
	assert_int_equal(c.added + c.removed, 0);
	/* It judges as pki_verify does. */
	assert_int_equal(pki_trust_verify(one, leaf.text, leaf.len, NULL), 0);
	pki_trust_unref(one);
	one = trust_of(&other_root, NULL);
	assert_true(pki_trust_verify(one, leaf.text, leaf.len, NULL) < 0);
	pki_trust_unref(one);
	pki_trust_unref(two);
	pki_trust_unref(NULL);
	free(leaf.text);
}

static void pki__a_leaf_cannot_issue(void **state)
{
	struct pki_issue_opts o = opts();
	struct ros2_err err = ROS2_ERR_INIT;
	struct pem leaf = issue(&o);
	char path[4200], *pem = NULL;

	testing_path(path, dir, "leaf.crt");
	assert_int_equal(fsx_write_atomic(path, leaf.text, leaf.len, 0644, NULL), 0);
	o.issuer_cert_path = path;
	o.issuer_key_path = key_path;
	assert_int_equal(pki_issue(&o, &pem, &err), -EINVAL);
	assert_null(pem);
	free(leaf.text);
}

static void pki__an_intermediate_makes_no_further_authority_that_verifies(void **state)
{
	char cert[4200], key[4200];
	struct pem deep = make_ca("deep", "inter", cert, key);
	struct pki_issue_opts o = opts();
	struct pem leaf, chain;

	o.issuer_cert_path = cert;
	o.issuer_key_path = key;
	leaf = issue(&o);
	chain.len = leaf.len + inter.len;
	chain.text = malloc(chain.len + 1);
	snprintf(chain.text, chain.len + 1, "%s%s", leaf.text, inter.text);
	assert_true(pki_verify(chain.text, chain.len, root.text, root.len, NULL) < 0);
	free(chain.text);
	free(leaf.text);
	free(deep.text);
}

static void pki__mismatched_keys_are_found(void **state)
{
	struct pki_issue_opts o = opts();
	struct ros2_err err = ROS2_ERR_INIT;
	char *pem = NULL;
	struct pem wrong = load(inter_key);

	assert_int_equal(pki_key_matches(root.text, root.len, wrong.text, wrong.len, &err),
	                 -EINVAL);
	free(wrong.text);
	o.issuer_key_path = root_key;
	assert_int_equal(pki_issue(&o, &pem, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "does not belong"));
}

static void pki__keys_are_private_and_never_overwritten(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct stat st;
	struct pem now;

	assert_int_equal(stat(key_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(pki_key_create(key_path, &err), -EEXIST);
	now = load(key_path);
	assert_string_equal(now.text, leaf_key.text);
	free(now.text);
}

static void pki__a_leaf_does_not_outlive_its_issuer(void **state)
{
	struct pki_issue_opts o = opts();
	struct pki_cert_info leaf_info, inter_info;
	struct pem leaf;

	o.lifetime_s = 3650ull * DAY;
	leaf = issue(&o);
	assert_int_equal(pki_cert_info(leaf.text, leaf.len, &leaf_info, NULL), 0);
	assert_int_equal(pki_cert_info(inter.text, inter.len, &inter_info, NULL), 0);
	assert_true(leaf_info.not_after_unix_s == inter_info.not_after_unix_s);
	assert_string_equal(inter_info.uri, "spiffe://test.example");
	free(leaf.text);
}

static void pki__refuses_bad_names_and_lifetimes(void **state)
{
	static const char *const uris[] = {"", "spiffe://a", "https://a/b", "spiffe://a/../b",
	                                   "spiffe://a/b,URI:spiffe://c/d"};
	static const char *const hosts[] = {"a b",  "*.example", "a,,b", ",",
	                                    "a..b", "DNS:a",     "a\nb"};
	static const uint64_t lifetimes[] = {0, UINT64_MAX, 1ull << 63, 1ull << 40, INT64_MAX};
	struct ros2_err err = ROS2_ERR_INIT;
	char *pem = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(uris); i++) {
		struct pki_issue_opts o = opts();

		o.uri = uris[i];
		assert_int_equal(pki_issue(&o, &pem, &err), -EINVAL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct pki_issue_opts o = opts();

		o.dns = hosts[i];
		assert_int_equal(pki_issue(&o, &pem, &err), -EINVAL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(lifetimes); i++) {
		struct pki_issue_opts o = opts();

		o.lifetime_s = lifetimes[i];
		assert_int_equal(pki_issue(&o, &pem, &err), -EINVAL);
	}
	assert_null(pem);
}

static void pki__hosts_and_addresses_are_accepted(void **state)
{
	struct pki_issue_opts o = opts();
	struct pki_cert_info info;
	struct pem leaf;

	o.dns = "localhost,127.0.0.1,::1,dpu-7.rack.example";
	leaf = issue(&o);
	assert_int_equal(pki_cert_info(leaf.text, leaf.len, &info, NULL), 0);
	assert_string_equal(info.uri, o.uri);
	assert_int_equal(pki_verify(leaf.text, leaf.len, root.text, root.len, NULL), 0);
	free(leaf.text);
}

/* Every text must be refused by every reader, with words and without a leak. */
static void refuse_everywhere(const char *text, size_t len)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_issue_opts o = opts();
	struct pki_cert_info info;
	uint8_t hash[32];
	char *pem = NULL;

	o.csr_pem = text;
	o.csr_len = len;
	assert_int_equal(pki_cert_info(text, len, &info, &err), -EBADMSG);
	assert_int_equal(pki_csr_spki(text, len, hash, &err), -EBADMSG);
	assert_int_equal(pki_bundle_hash(text, len, hash, &err), -EBADMSG);
	assert_int_equal(pki_verify(text, len, root.text, root.len, &err), -EBADMSG);
	assert_int_equal(pki_verify(inter.text, inter.len, text, len, &err), -EBADMSG);
	assert_int_equal(pki_key_matches(root.text, root.len, text, len, &err), -EBADMSG);
	assert_int_equal(pki_issue(&o, &pem, &err), -EBADMSG);
	assert_true(strlen(err.msg) > 0);
}

static void pki__refuses_garbage_everywhere(void **state)
{
	static char huge[PKI_PEM_MAX + 1];
	static const char *const texts[] = {
		"",
		"hello",
		"-----BEGIN CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		"-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n",
		"-----BEGIN PRIVATE KEY-----\n!!!!\n-----END PRIVATE KEY-----\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		refuse_everywhere(texts[i], strlen(texts[i]));
	memset(huge, 'A', sizeof(huge));
	refuse_everywhere(huge, sizeof(huge));
	refuse_everywhere("\0\0\0", 3);
}

static void pki__refuses_truncated_and_changed_requests(void **state)
{
	AUTO_FREE char *bad = malloc(csr.len + 1);
	uint8_t hash[32];

	memcpy(bad, csr.text, csr.len + 1);
	for (size_t n = 0; n + 2 < csr.len; n += 7)
		assert_int_equal(pki_csr_spki(bad, n, hash, NULL), -EBADMSG);
	/* One base64 digit in the middle: the signature covers it. */
	for (size_t i = 60; i + 60 < csr.len; i += 11) {
		char old = bad[i];

		if (old == '\n')
			continue;
		bad[i] = old == 'A' ? 'B' : 'A';
		assert_int_equal(pki_csr_spki(bad, csr.len, hash, NULL), -EBADMSG);
		bad[i] = old;
	}
	assert_int_equal(pki_csr_spki(bad, csr.len, hash, NULL), 0);
}

static void pki__bundle_hash_covers_every_certificate_in_order(void **state)
{
	char ab[8192], ba[8192];
	uint8_t h1[32], h2[32], h3[32];

	snprintf(ab, sizeof(ab), "%s%s", root.text, other_root.text);
	snprintf(ba, sizeof(ba), "%s%s", other_root.text, root.text);
	assert_int_equal(pki_bundle_hash(ab, strlen(ab), h1, NULL), 0);
	assert_int_equal(pki_bundle_hash(ba, strlen(ba), h2, NULL), 0);
	assert_int_equal(pki_bundle_hash(root.text, root.len, h3, NULL), 0);
	assert_memory_not_equal(h1, h2, 32);
	assert_memory_not_equal(h1, h3, 32);
	/* A list with one broken certificate is refused as a whole. */
	snprintf(ab, sizeof(ab), "%s-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
	         root.text);
	assert_int_equal(pki_bundle_hash(ab, strlen(ab), h1, NULL), -EBADMSG);
}

static void pki__refuses_bad_trust_domains(void **state)
{
	static const char *const domains[] = {"", "A.example", "a/b", "a b", "spiffe://a", "a:1"};
	struct ros2_err err = ROS2_ERR_INIT;
	char cert[4200];

	testing_path(cert, dir, "never.crt");
	for (size_t i = 0; i < ARRAY_SIZE(domains); i++) {
		struct pki_ca_opts o = {
			.common_name = "x",
			.trust_domain = domains[i],
			.key_path = key_path,
			.cert_path = cert,
			.lifetime_s = DAY,
		};

		assert_int_equal(pki_ca_create(&o, &err), -EINVAL);
	}
	assert_int_equal(access(cert, F_OK), -1);
}

/* tests/common/data: certificates and requests made with the openssl program, as ours could not
 * make them. */
static struct pem fixture(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "tests/common/data/%s", name);
	return load(path);
}

static void pki__the_words_say_what_is_wrong_with_a_foreign_certificate(void **state)
{
	static const struct {
		const char *file, *words;
	} rows[] = {
		{"future.crt", "certificate: not yet valid"},
		{"past.crt", "certificate: expired"},
		{"server-only.crt", "purpose"},
	};
	struct pem anchor = fixture("root.crt");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ros2_err err = ROS2_ERR_INIT;
		struct pem leaf = fixture(rows[i].file);

		assert_true(pki_verify(leaf.text, leaf.len, anchor.text, anchor.len, &err) < 0);
		assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
		assert_non_null(strstr(err.msg, rows[i].words));
		free(leaf.text);
	}
	free(anchor.text);
}

static void pki__a_certificate_names_one_identity_without_tricks(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_cert_info info;
	struct pem two = fixture("two-uris.crt"), nul = fixture("uri-with-nul.crt");

	assert_int_equal(pki_cert_info(two.text, two.len, &info, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "more than one URI"));
	assert_int_equal(pki_cert_info(nul.text, nul.len, &info, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "byte 0x00"));
	free(two.text);
	free(nul.text);
}

static void pki__requests_with_other_keys_are_refused(void **state)
{
	static const char *const files[] = {"rsa.csr", "ed25519.csr", "explicit-curve.csr"};
	struct pem good = fixture("p256.csr");
	uint8_t hash[32];

	assert_int_equal(pki_csr_spki(good.text, good.len, hash, NULL), 0);
	free(good.text);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct ros2_err err = ROS2_ERR_INIT;
		struct pem bad = fixture(files[i]);

		assert_int_equal(pki_csr_spki(bad.text, bad.len, hash, &err), -EBADMSG);
		assert_non_null(strstr(err.msg, "expected an ECDSA P-256 key"));
		free(bad.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pki__issues_a_chain_that_verifies_to_the_root),
		cmocka_unit_test(pki__a_root_issues_without_a_chain),
		cmocka_unit_test(pki__refuses_a_foreign_authority),
		cmocka_unit_test(pki__refuses_an_expired_certificate),
		cmocka_unit_test(pki__refuses_an_authority_as_an_identity),
		cmocka_unit_test(pki__a_leaf_in_a_bundle_is_refused),
		cmocka_unit_test(pki__a_bundle_that_tls_could_read_otherwise_is_refused),
		cmocka_unit_test(pki__what_a_bundle_gains_and_loses_is_told),
		cmocka_unit_test(pki__a_leaf_cannot_issue),
		cmocka_unit_test(pki__an_intermediate_makes_no_further_authority_that_verifies),
		cmocka_unit_test(pki__mismatched_keys_are_found),
		cmocka_unit_test(pki__keys_are_private_and_never_overwritten),
		cmocka_unit_test(pki__a_leaf_does_not_outlive_its_issuer),
		cmocka_unit_test(pki__refuses_bad_names_and_lifetimes),
		cmocka_unit_test(pki__hosts_and_addresses_are_accepted),
		cmocka_unit_test(pki__refuses_garbage_everywhere),
		cmocka_unit_test(pki__refuses_truncated_and_changed_requests),
		cmocka_unit_test(pki__bundle_hash_covers_every_certificate_in_order),
		cmocka_unit_test(pki__refuses_bad_trust_domains),
		cmocka_unit_test(pki__the_words_say_what_is_wrong_with_a_foreign_certificate),
		cmocka_unit_test(pki__a_certificate_names_one_identity_without_tricks),
		cmocka_unit_test(pki__requests_with_other_keys_are_refused),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

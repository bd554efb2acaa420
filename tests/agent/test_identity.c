/* SPDX-License-Identifier: Apache-2.0 */
/* Join tokens and identity files: what a person hears when one of them is wrong. */
#include "agent/identity.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "tests/testing.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static char *make_token(const char *dir, const char *agent, size_t *len)
{
	char key[4200], crt[4200], hex[65], *text;
	struct pki_ca_opts o = {.common_name = "ca",
	                        .trust_domain = "ros2.test",
	                        .key_path = key,
	                        .cert_path = crt,
	                        .lifetime_s = 3600};
	uint8_t hash[32];
	size_t n;
	void *pem;

	testing_path(key, dir, "ca.key");
	testing_path(crt, dir, "ca.crt");
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
	assert_int_equal(fsx_read_file(crt, 65536, &pem, &n, NULL), 0);
	assert_int_equal(pki_bundle_hash(pem, n, hash, NULL), 0);
	crypto_hex(hash, 32, hex);
	assert_true(asprintf(&text, "ros2-join-v1 %s 00112233 %s\n%s", agent, hex, (char *)pem) >
	            0);
	*len = strlen(text);
	free(pem);
	return text;
}

static void token__is_taken_when_all_of_it_fits(void **state)
{
	struct join_token t;
	size_t n;
	char *text = make_token(*state, "dpu-0", &n);

	assert_int_equal(join_token_parse(text, n, "dpu-0", &t, NULL), 0);
	assert_string_equal(t.trust_domain, "ros2.test");
	assert_string_equal(t.secret, "00112233");
	join_token_fini(&t);
	free(text);
}

static void token__for_another_agent_names_both(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct join_token t;
	size_t n;
	char *text = make_token(*state, "dpu-1", &n);

	assert_true(join_token_parse(text, n, "dpu-0", &t, &err) < 0);
	assert_non_null(strstr(err.msg, "dpu-1"));
	assert_non_null(strstr(err.msg, "dpu-0"));
	free(text);
}

static void token__with_a_changed_ca_or_hash_is_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct join_token t;
	size_t n;
	char *text = make_token(*state, "dpu-0", &n), *hash = strchr(text, '\n') - 1;

	*hash = *hash == '0' ? '1' : '0';
	assert_true(join_token_parse(text, n, "dpu-0", &t, &err) < 0);
	assert_int_equal(err.status, ROS2_CORRUPT);
	free(text);
}

static void token__cut_anywhere_is_refused(void **state)
{
	struct join_token t;
	size_t n;
	char *text = make_token(*state, "dpu-0", &n);

	for (size_t cut = 0; cut + 2 < n; cut++)
		assert_true(join_token_parse(text, cut, "dpu-0", &t, NULL) < 0);
	free(text);
}

static void identity__is_absent_before_enrolment(void **state)
{
	struct identity id;

	assert_int_equal(identity_load(*state, "dpu-0", &id, NULL), -ENOENT);
}

static void identity__of_another_name_or_with_missing_parts_says_what_to_do(void **state)
{
	static const char json[] = "{\"agent_uid\":\"00112233445566778899aabbccddeeff\","
				   "\"name\":\"dpu-0\",\"trust_domain\":\"ros2.test\"}";
	struct ros2_err err = ROS2_ERR_INIT;
	struct identity id;
	char path[4200];

	testing_path(path, *state, "identity.json");
	assert_int_equal(fsx_write_atomic(path, json, strlen(json), 0644, NULL), 0);
	assert_true(identity_load(*state, "dpu-1", &id, &err) < 0);
	assert_non_null(strstr(err.msg, "belongs to agent dpu-0"));
	assert_int_equal(identity_load(*state, "dpu-0", &id, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "token create"));
	for (size_t cut = 0; cut < strlen(json); cut++) {
		assert_int_equal(fsx_write_atomic(path, json, cut, 0644, NULL), 0);
		assert_int_equal(identity_load(*state, "dpu-0", &id, &err), -EBADMSG);
	}
}

#define LIFE_S 3600

/* Of an agent, for LIFE_S from now on. */
static void make_certificate(const char *dir)
{
	char path[4200], key[4200], ca_key[4200], *csr, *pem;
	struct pki_issue_opts o = {.uri = "spiffe://ros2.test/agent/dpu-0",
	                           .issuer_cert_path = path,
	                           .issuer_key_path = ca_key,
	                           .lifetime_s = LIFE_S};
	size_t n;

	free(make_token(dir, "dpu-0", &n)); /* and with it the authority */
	testing_path(path, dir, "ca.crt");
	testing_path(ca_key, dir, "ca.key");
	testing_path(key, dir, "tls.key");
	assert_int_equal(pki_key_create(key, NULL), 0);
	assert_int_equal(pki_csr_create(key, o.uri, &csr, NULL), 0);
	o.csr_pem = csr;
	o.csr_len = strlen(csr);
	assert_int_equal(pki_issue(&o, &pem, NULL), 0);
	testing_path(path, dir, "tls.crt");
	assert_int_equal(fsx_write_atomic(path, pem, strlen(pem), 0644, NULL), 0);
	free(csr);
	free(pem);
}

static uint64_t renewal_of_one_that_came(const char *dir, const char *path, int64_t in_s)
{
	struct timespec at[2] = {{.tv_sec = time(NULL) + in_s}, {.tv_sec = time(NULL) + in_s}};
	uint64_t renew_in_s;

	assert_int_equal(utimensat(AT_FDCWD, path, at, 0), 0);
	assert_int_equal(identity_check_certificate(dir, "dpu-0", &renew_in_s, NULL), 0);
	return renew_in_s;
}

/* A machine whose clock was days ahead until somebody told it the time. */
static void certificate__that_a_clock_wrote_that_was_ahead_is_renewed_before_its_end(void **state)
{
	char path[4200];

	make_certificate(*state);
	testing_path(path, *state, "tls.crt");
	assert_in_range(renewal_of_one_that_came(*state, path, 0), LIFE_S / 2 - 60, LIFE_S / 2);
	assert_in_range(renewal_of_one_that_came(*state, path, LIFE_S / 2), 1, LIFE_S / 2);
	assert_in_range(renewal_of_one_that_came(*state, path, 3 * LIFE_S), 1, LIFE_S / 2);
	/* One that came before it began counts from its beginning. */
	assert_in_range(renewal_of_one_that_came(*state, path, -3 * LIFE_S), 1, LIFE_S / 2);
}

#define T(f) cmocka_unit_test_setup_teardown(f, testing_dir_setup, testing_dir_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(token__is_taken_when_all_of_it_fits),
		T(token__for_another_agent_names_both),
		T(token__with_a_changed_ca_or_hash_is_refused),
		T(token__cut_anywhere_is_refused),
		T(identity__is_absent_before_enrolment),
		T(identity__of_another_name_or_with_missing_parts_says_what_to_do),
		T(certificate__that_a_clock_wrote_that_was_ahead_is_renewed_before_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

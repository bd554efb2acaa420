/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trust bundles without memory: each allocation fails, ours and those of OpenSSL. A bundle is then
 * there whole or not at all, and a shortage is called one: not a broken bundle, which would be
 * given up. Nobody verifies to a bundle without his authority, whatever fails.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

/* ---- OpenSSL's memory ---- */

static void *ssl_malloc(size_t n, const char *file, int line)
{
	return malloc(n); /* wrapped */
}

static void *ssl_realloc(void *p, size_t n, const char *file, int line)
{
	return realloc(p, n);
}

static void ssl_free(void *p, const char *file, int line)
{
	free(p);
}

/* ---- two roots, an intermediate, a leaf ---- */

static char dir[4000];
static char *both, *second_and_third, *first, *chain, *self_made;

static char *text_of(const char *name)
{
	char path[4200];
	void *p = NULL;
	size_t n;

	testing_path(path, dir, name);
	assert_int_equal(fsx_read_file(path, PKI_PEM_MAX, &p, &n, NULL), 0);
	return p;
}

static void make_ca(const char *name, const char *issuer)
{
	char path[4][4200], file[64];
	const char *const names[] = {name, name, issuer, issuer};
	struct pki_ca_opts o = {
		.common_name = name, .trust_domain = "test.example", .lifetime_s = 3600};

	for (int i = 0; i < 4; i++) {
		snprintf(file, sizeof(file), "%s.%s", names[i] ? names[i] : "",
		         i % 2 ? "key" : "crt");
		testing_path(path[i], dir, file);
	}
	o.cert_path = path[0];
	o.key_path = path[1];
	o.issuer_cert_path = issuer ? path[2] : NULL;
	o.issuer_key_path = issuer ? path[3] : NULL;
	assert_int_equal(pki_key_create(o.key_path, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
}

static char *issue(const char *issuer)
{
	char key[4200], crt[4200], ikey[4200], file[64];
	struct pki_issue_opts o = {.uri = "spiffe://test.example/x", .lifetime_s = 3600};
	AUTO_FREE char *csr = NULL;
	char *text = NULL;

	testing_path(key, dir, "leaf.key");
	snprintf(file, sizeof(file), "%s.crt", issuer);
	testing_path(crt, dir, file);
	snprintf(file, sizeof(file), "%s.key", issuer);
	testing_path(ikey, dir, file);
	assert_int_equal(pki_csr_create(key, NULL, &csr, NULL), 0);
	o.csr_pem = csr;
	o.csr_len = strlen(csr);
	o.issuer_cert_path = crt;
	o.issuer_key_path = ikey;
	assert_int_equal(pki_issue(&o, &text, NULL), 0);
	return text;
}

static int group_setup(void **state)
{
	AUTO_FREE char *second = NULL, *third = NULL;
	char key[4200];
	void *path;

	if (testing_dir_setup(&path))
		return -1;
	snprintf(dir, sizeof(dir), "%s", (char *)path);
	free(path);
	make_ca("first", NULL);
	make_ca("second", NULL);
	make_ca("third", NULL);
	make_ca("below", "second");
	testing_path(key, dir, "leaf.key");
	assert_int_equal(pki_key_create(key, NULL), 0);
	first = text_of("first.crt");
	second = text_of("second.crt");
	third = text_of("third.crt");
	assert_true(asprintf(&both, "%s%s", first, second) > 0);
	assert_true(asprintf(&second_and_third, "%s%s", second, third) > 0);
	chain = issue("below");
	self_made = issue("first");
	return 0;
}

static int group_teardown(void **state)
{
	void *path = strdup(dir);

	free(both);
	free(second_and_third);
	free(first);
	free(chain);
	free(self_made);
	return testing_dir_teardown(&path);
}

static struct pki_trust *trust_of(const char *pem)
{
	struct pki_trust *t = NULL;

	assert_int_equal(pki_trust_new(pem, strlen(pem), &t, NULL), 0);
	return t;
}

static int judge(const struct pki_trust *t, const char *pem, struct ros2_err *err)
{
	return pki_trust_verify(t, pem, strlen(pem), err);
}

/* ---- the sweeps ---- */

static void bundle__without_memory_is_whole_or_not_there(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct pki_trust_changes c;

	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		struct pki_trust *t = NULL;
		int rc = pki_trust_new(both, strlen(both), &t, &err);

		sweep_off();
		if (rc) {
			assert_true(sweep_fired());
			assert_null(t);
			if (rc != -ENOMEM || err.status != ROS2_BUSY)
				fail_msg("allocation %u%s: %s", s.at, s.persistent ? " and on" : "",
				         err.msg);
			t = trust_of(both);
		}
		pki_trust_changes(NULL, t, &c);
		assert_int_equal(c.authorities, 2);
		/* Nor is it there damaged: OpenSSL keeps what it could not read. */
		if (judge(t, chain, &err) || judge(t, self_made, &err))
			fail_msg("allocation %u%s: %s", s.at, s.persistent ? " and on" : "",
			         err.msg);
		pki_trust_unref(t);
	}
	assert_true(s.points > 100);
}

/* @good verifies to @t, @bad does not. */
static void sweep_judgement(const struct pki_trust *t, const char *good, const char *bad)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};

	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT, why = ROS2_ERR_INIT;
		int rc = good ? judge(t, good, &err) : judge(t, bad, &why);

		sweep_off();
		if (good && rc && (rc != -ENOMEM || !sweep_fired()))
			fail_msg("allocation %u%s: %s", s.at, s.persistent ? " and on" : "",
			         err.msg);
		if (!good && !rc)
			fail_msg("allocation %u%s: verified", s.at, s.persistent ? " and on" : "");
		if (good)
			assert_int_equal(judge(t, good, NULL), 0);
		else
			assert_true(judge(t, bad, NULL) < 0);
	}
	assert_true(s.points > 50);
}

/* @narrow is part of @wide: it is what both have. */
static void sweep_all_fail(struct pki_trust *wide, struct pki_trust *narrow)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};

	while (sweep_next(&s)) {
		struct pki_trust *a = NULL, *b = NULL;

		assert_int_equal(pki_trust_common(wide, narrow, &a, NULL), 0);
		assert_int_equal(pki_trust_common(narrow, wide, &b, NULL), 0);
		sweep_off();
		assert_ptr_equal(a, narrow);
		assert_ptr_equal(b, narrow);
		pki_trust_unref(a);
		pki_trust_unref(b);
	}
	assert_int_equal(s.points, 0);
}

/* What is gone must not come back, nor what is new count, for want of memory. */
static void common__without_memory_is_whole_or_not_there(void **state)
{
	struct pki_trust *from = trust_of(first), *to = trust_of(second_and_third);
	struct pki_trust *wide = trust_of(both), *t;
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct pki_trust_changes c;

	/* first and second, to second and third: the second alone. */
	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc = pki_trust_common(wide, to, &t, &err);

		sweep_off();
		if (rc && (rc != -ENOMEM || !sweep_fired()))
			fail_msg("allocation %u%s: %s", s.at, s.persistent ? " and on" : "",
			         err.msg);
		if (rc)
			assert_int_equal(pki_trust_common(wide, to, &t, &err), 0);
		pki_trust_changes(NULL, t, &c);
		assert_int_equal(c.authorities, 1);
		assert_int_equal(judge(t, chain, &err), 0);
		assert_true(judge(t, self_made, &err) < 0);
		pki_trust_unref(t);
	}
	assert_true(s.points > 50);
	/* Nothing in common: nobody. */
	assert_int_equal(pki_trust_common(from, to, &t, NULL), 0);
	assert_string_equal(pki_trust_text(t, NULL), "");
	assert_true(judge(t, chain, NULL) < 0);
	assert_true(judge(t, self_made, NULL) < 0);
	pki_trust_unref(t);
	/* Only gone, or only new: no memory is asked for. */
	sweep_all_fail(wide, from);
	pki_trust_unref(from);
	pki_trust_unref(to);
	pki_trust_unref(wide);
}

static void judgement__without_memory_says_so(void **state)
{
	struct pki_trust *t = trust_of(both);

	sweep_judgement(t, chain, NULL);
	pki_trust_unref(t);
}

static void judgement__without_memory_believes_nobody_more(void **state)
{
	struct pki_trust *t = trust_of(first);

	sweep_judgement(t, NULL, chain);
	pki_trust_unref(t);
}

/* Before the library makes its first, which a constructor of ours asks for. */
__attribute__((constructor(101))) static void take_memory(void)
{
	if (!CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free))
		abort();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bundle__without_memory_is_whole_or_not_there),
		cmocka_unit_test(common__without_memory_is_whole_or_not_there),
		cmocka_unit_test(judgement__without_memory_says_so),
		cmocka_unit_test(judgement__without_memory_believes_nobody_more),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

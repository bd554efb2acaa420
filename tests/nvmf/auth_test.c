/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DH-HMAC-CHAP: secrets and computations against vectors (auth_vectors.py), whole exchanges against
 * a target side that computes by itself (auth_target.h), and every lie a target can tell in them.
 */
#include "dataplane/nvmf/auth_priv.h"
#include "tests/nvmf/auth_target.h"
#include "tests/nvmf/auth_vectors.h"
#include "tests/nvmf/hex.h"
#include <openssl/bn.h>
#include <sys/stat.h>

#define HOST_SECRET "DHHC-1:01:" VECTOR_BASE64 ":"
/* 64 bytes 00 01 02 ... and their CRC-32, 100ece8ch. */
#define OWN_SECRET                                                                                 \
	"DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OT" \
	"o7PD0+P4zODhA=:"

static struct ros2_err err;

static struct nvme_auth_secret parsed(const char *text)
{
	struct nvme_auth_secret s;

	assert_int_equal(nvme_auth_secret_parse(text, &s, &err), 0);
	return s;
}

static void nvme_auth_secret__of_the_specification_is_read(void **state)
{
	struct nvme_auth_secret s = parsed("DHHC-1:00:" VECTOR_BASE64 ":\n");

	assert_int_equal(s.transform, 0);
	assert_bytes(s.key, s.key_len,
	             "89aeb31a874eaf84841b46736b0dfdf2ba58d30aa2a545a3e235a3521e07594c");
	s = parsed(OWN_SECRET);
	assert_int_equal(s.key_len, 64);
	assert_int_equal(s.transform, 3);
	nvme_auth_secret_wipe(&s);
	assert_int_equal(s.key_len, 0);
}

static void nvme_auth_secret__malformed_ones_are_refused_without_telling_them(void **state)
{
	static const char *const bad[] = {
		"",
		"DHHC-1:00:",
		"DHHC-1:00::",
		"DHHC-2:00:" VECTOR_BASE64 ":",
		"DHHC-1:04:" VECTOR_BASE64 ":",
		"DHHC-1:0/:" VECTOR_BASE64 ":",
		"DHHC-1:10:" VECTOR_BASE64 ":",
		"DHHC-1:00;" VECTOR_BASE64 ":",
		"DHHC-1:00:" VECTOR_BASE64,
		"DHHC-1:00:" VECTOR_BASE64 "::",
		"DHHC-1:00:" VECTOR_BASE64 ":x",
		"DHHC-1:00:ja6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", /* one bit */
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2m:",
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ==:", /* 34 bytes */
		"DHHC-1:00:ia6zGodOr4SEG0Zz!w398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:00:" VECTOR_BASE64 VECTOR_BASE64 VECTOR_BASE64 ":", /* too long */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct nvme_auth_secret s = {.key_len = 77};

		if (nvme_auth_secret_parse(bad[i], &s, &err) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
		assert_int_equal(s.key_len, 77);
		assert_null(strstr(err.msg, "GodOr4SEG0"));
	}
}

static void put(const char *dir, const char *name, const char *text, size_t len, mode_t mode)
{
	char path[4096];
	int fd;

	testing_path(path, dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void refused_file(const char *dir, const char *name, int code, const char *words)
{
	struct nvme_auth_secret s;
	int r = nvme_auth_secret_load(dir, name, &s, &err);

	if (r != code || !strstr(err.msg, words) || strstr(err.msg, "GodOr4SEG0"))
		fail_msg("%s: %d \"%s\"", name, r, err.msg);
}

static void nvme_auth_secret__is_loaded_from_a_file_that_is_the_owners_alone(void **state)
{
	const char *dir = *state, *text = HOST_SECRET "\n";
	struct nvme_auth_secret s;
	char path[4096], link[4096];

	put(dir, "good", text, strlen(text), 0600);
	assert_int_equal(nvme_auth_secret_load(dir, "good", &s, &err), 0);
	assert_int_equal(s.key_len, 32);
	put(dir, "open", text, strlen(text), 0640);
	refused_file(dir, "open", -EPERM, "mode 0640");
	put(dir, "empty", "", 0, 0600);
	refused_file(dir, "empty", -EINVAL, "secret empty: ");
	put(dir, "nul", "DHHC-1:00:\0aaa", 14, 0600);
	refused_file(dir, "nul", -EINVAL, "NUL");
	memset(path, 'A', 300);
	put(dir, "long", path, 300, 0600);
	refused_file(dir, "long", -EINVAL, "not the form");
	refused_file(dir, "none", -ENOENT, "secret none");
	refused_file(dir, "../good", -EINVAL, "without /");
	refused_file(dir, "..", -EINVAL, "without /");
	refused_file("/nonexistent", "good", -ENOENT, "directory of secrets");
	testing_path(path, dir, "good");
	testing_path(link, dir, "link");
	assert_int_equal(symlink(path, link), 0);
	refused_file(dir, "link", -ELOOP, "secret link");
	testing_path(path, dir, "fifo");
	assert_int_equal(mkfifo(path, 0600), 0);
	refused_file(dir, "fifo", -EPERM, "regular file");
}

/* Every number of auth_vectors.py. */
static void auth__computes_what_the_vectors_say(void **state)
{
	struct nvme_auth_secret s = parsed(HOST_SECRET);
	uint8_t shared[256], out[64], challenge[64];

	hex_bytes(vector_shared, shared, sizeof(shared));
	for (uint8_t id = 1; id <= 3; id++) {
		enum crypto_hash h;
		uint8_t key[64];
		struct auth_proof p = {.key = key, .challenge = challenge, .seqnum = 0x11223344};

		assert_true(auth_hash(id, &h));
		s.transform = id;
		for (int i = 0; i < 64; i++)
			challenge[i] = (uint8_t)i;
		p.hash = h;
		p.tid = 0x5566;
		p.role = "HostHost", p.from = VECTOR_HOST, p.to = VECTOR_SUB;
		p.key_len = auth_transform(&s, VECTOR_HOST, key);
		assert_bytes(key, p.key_len, vectors[id - 1].key);
		auth_response(&p, out);
		assert_bytes(out, crypto_hash_len(h), vectors[id - 1].null_response);
		auth_augment(h, shared, sizeof(shared), challenge);
		assert_bytes(challenge, crypto_hash_len(h), vectors[id - 1].augmented);
		auth_response(&p, out);
		assert_bytes(out, crypto_hash_len(h), vectors[id - 1].dh_response);
		for (int i = 0; i < 64; i++)
			challenge[i] = (uint8_t)i;
		s.transform = 0;
		p.key_len = auth_transform(&s, VECTOR_SUB, key);
		p.role = "Controller", p.from = VECTOR_SUB, p.to = VECTOR_HOST;
		auth_response(&p, out);
		assert_bytes(out, crypto_hash_len(h), vectors[id - 1].of_target);
	}
}

/* Ours with the value that the script made of its own y: (g^y)^x = (g^x)^y, with its prime. */
static void auth__the_smallest_group_is_that_of_rfc_7919(void **state)
{
	uint8_t bytes[256], ours[256], secret[256], expected[256];
	BIGNUM *p = NULL, *y, *r = BN_new(), *pub;
	BN_CTX *ctx = BN_CTX_new();
	struct crypto_dh *d;

	assert_true(BN_hex2bn(&p, vector_p) == 512);
	y = BN_bin2bn((const uint8_t *)"target own valuetarget own valuetarget own value"
	                               "target own value",
	              64, NULL);
	assert_int_equal(crypto_dh_new(2048, &d, &err), 0);
	assert_int_equal(crypto_dh_public(d, ours, &err), 0);
	pub = BN_bin2bn(ours, 256, NULL);
	assert_int_equal(BN_mod_exp(r, pub, y, p, ctx), 1);
	assert_int_equal(BN_bn2binpad(r, expected, 256), 256);
	hex_bytes(vector_g_y, bytes, sizeof(bytes));
	assert_int_equal(crypto_dh_secret(d, bytes, secret, &err), 0);
	assert_memory_equal(secret, expected, 256);
	crypto_dh_free(d);
	assert_int_equal(crypto_dh_new(1024, &d, &err), -EINVAL);
	BN_free(pub), BN_free(r), BN_free(y), BN_free(p);
	BN_CTX_free(ctx);
}

struct exchange {
	struct nvme_auth *host;
	struct auth_target *target;
	uint8_t msg[4096]; /* the last, either way */
	size_t len;
	int r; /* of the last take */
};

static void begin(struct exchange *x, const char *host_knows, const char *wants, const char *has,
                  uint8_t hash, uint8_t group)
{
	struct nvme_auth_secret h = parsed(host_knows), t;
	struct nvme_auth_opts o = {.host = &h, .hostnqn = VECTOR_HOST, .subnqn = VECTOR_SUB};

	if (wants) {
		t = parsed(wants);
		o.target = &t;
	}
	*x = (struct exchange){0};
	assert_int_equal(nvme_auth_new(&o, &x->host, &err), 0);
	x->target = auth_target_new(HOST_SECRET, has, VECTOR_HOST, VECTOR_SUB, hash, group);
}

static void end(struct exchange *x)
{
	nvme_auth_free(x->host);
	auth_target_free(x->target);
}

/* One message either way. False when the host has none to send and waits for none. */
static bool step(struct exchange *x)
{
	switch (nvme_auth_step(x->host)) {
	case NVME_AUTH_SEND:
		assert_int_equal(nvme_auth_build(x->host, x->msg, &x->len, &err), 0);
		auth_target_take(x->target, x->msg, x->len);
		return true;
	case NVME_AUTH_RECEIVE:
		x->len = auth_target_reply(x->target, x->msg);
		x->r = nvme_auth_take(x->host, x->msg, x->len, &err);
		return true;
	default:
		return false;
	}
}

static int run(struct exchange *x)
{
	int n = 0;

	while (step(x))
		assert_true(++n < 10);
	return n;
}

static void auth__each_hash_and_group_proves_the_host_and_the_target(void **state)
{
	for (uint8_t hash = 1; hash <= 3; hash++) {
		for (uint8_t group = 0; group <= 5; group++) {
			struct exchange x;

			begin(&x, HOST_SECRET, OWN_SECRET, OWN_SECRET, hash, group);
			assert_int_equal(run(&x), 5);
			assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_DONE);
			assert_int_equal(auth_target_state(x.target), AUTH_TARGET_GOOD);
			end(&x);
		}
	}
}

static void auth__one_way_ends_with_success1(void **state)
{
	struct exchange x;

	begin(&x, HOST_SECRET, NULL, NULL, 2, 1);
	assert_int_equal(run(&x), 4);
	assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_DONE);
	assert_int_equal(auth_target_state(x.target), AUTH_TARGET_GOOD);
	end(&x);
}

static void auth__a_host_with_a_wrong_secret_is_refused(void **state)
{
	struct exchange x;

	begin(&x, OWN_SECRET, NULL, NULL, 1, 0);
	assert_int_equal(run(&x), 4);
	assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_FAILED);
	assert_int_equal(x.r, -EKEYREJECTED);
	assert_non_null(strstr(err.msg, "refused to authenticate us: authentication failed"));
	assert_int_equal(auth_target_state(x.target), AUTH_TARGET_BAD);
	end(&x);
}

static void auth__a_target_with_a_wrong_secret_or_none_is_refused(void **state)
{
	static const struct {
		const char *has, *words;
	} cases[] = {
		{HOST_SECRET, "its response is wrong"},
		{NULL, "sent no response"},
	};

	for (size_t i = 0; i < 2; i++) {
		struct exchange x;

		begin(&x, HOST_SECRET, OWN_SECRET, cases[i].has, 1, 1);
		assert_int_equal(run(&x), 5); /* the fifth is failure2 */
		assert_int_equal(x.r, -EKEYREJECTED);
		assert_non_null(strstr(err.msg, cases[i].words));
		assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_FAILED);
		assert_int_equal(auth_target_state(x.target), AUTH_TARGET_BAD);
		assert_int_equal(auth_target_why(x.target), NVME_AUTH_WHY_FAILED);
		end(&x);
	}
}

/* Base 8.13.4.1: the one message that depends on nothing but the transaction. */
static void auth__negotiate_and_failure2_are_as_laid_out(void **state)
{
	struct nvme_auth_secret s = parsed(HOST_SECRET);
	struct nvme_auth_opts o = {&s, NULL, VECTOR_HOST, VECTOR_SUB, true};
	struct nvme_auth *a;
	uint8_t msg[4096];
	size_t len;

	assert_int_equal(nvme_auth_new(&o, &a, &err), 0);
	assert_int_equal(nvme_auth_build(a, msg, &len, &err), 0);
	memset(msg + 4, 0, 2);
	assert_bytes(msg, len,
	             "00 00 0000 0000 00 01 01 00 03 05 01 02 03 00*27 01 02 03 04 05 00*25");
	assert_int_equal(nvme_auth_take(a, "\1\3\0\0\0\0\0\0", 8, &err), -EPROTO);
	assert_int_equal(nvme_auth_build(a, msg, &len, &err), 0);
	memset(msg + 4, 0, 2);
	assert_bytes(msg, len, "00 f0 0000 0000 01 07");
	assert_int_equal(nvme_auth_step(a), NVME_AUTH_FAILED);
	nvme_auth_free(a);
	o.subnqn = "volumes";
	assert_int_equal(nvme_auth_new(&o, &a, &err), -EINVAL);
}

/* The challenge (step 2) or success1 (step 4), with one byte changed or cut. */
static void lie(int when, uint8_t hash, uint8_t group, int at, uint8_t value, size_t cut, int why,
                const char *words)
{
	struct exchange x;

	begin(&x, HOST_SECRET, OWN_SECRET, OWN_SECRET, hash, group);
	for (int i = 1; i < when; i++)
		assert_true(step(&x));
	assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_RECEIVE);
	x.len = auth_target_reply(x.target, x.msg);
	if (at >= 16) /* random bytes: another one than it was */
		x.msg[at] ^= value;
	else if (at >= 0)
		x.msg[at] = value;
	x.r = nvme_auth_take(x.host, x.msg, x.len - cut, &err);
	if (x.r >= 0 || err.code != x.r || !strstr(err.msg, words))
		fail_msg("byte %d: %d \"%s\": expected \"%s\"", at, x.r, err.msg, words);
	assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_SEND);
	assert_int_equal(nvme_auth_build(x.host, x.msg, &x.len, &err), 0);
	assert_int_equal(x.len, 8);
	assert_int_equal(x.msg[1], NVME_AUTH_FAILURE2);
	assert_int_equal(x.msg[7], why);
	assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_FAILED);
	end(&x);
}

static void auth__each_lie_in_a_challenge_is_named(void **state)
{
	lie(2, 1, 0, 0, 0, 0, NVME_AUTH_WHY_MESSAGE, "message 1 of type 0: expected 1 of type 1");
	lie(2, 1, 0, 1, 3, 0, NVME_AUTH_WHY_MESSAGE, "message 3 of type 1");
	lie(2, 1, 0, 6, 48, 0, NVME_AUTH_WHY_HASH, "hash length 48 for hash 1: expected 32");
	lie(2, 1, 0, 8, 0, 0, NVME_AUTH_WHY_HASH, "hash 0: expected 1 to 3");
	lie(2, 1, 0, 8, 4, 0, NVME_AUTH_WHY_HASH, "hash 4");
	lie(2, 1, 0, 9, 6, 0, NVME_AUTH_WHY_GROUP, "group 6: expected 0 to 5");
	lie(2, 1, 0, 9, 1, 0, NVME_AUTH_WHY_PAYLOAD, "value of 0 bytes in a message of 48");
	lie(2, 1, 1, 9, 0, 0, NVME_AUTH_WHY_PAYLOAD, "value of 256 bytes");
	lie(2, 1, 1, -1, 0, 1, NVME_AUTH_WHY_PAYLOAD, "in a message of 303: expected 256, in 304");
	lie(2, 1, 0, -1, 0, 33, NVME_AUTH_WHY_PAYLOAD, "challenge of 15 bytes");
	lie(2, 1, 0, -1, 0, 41, NVME_AUTH_WHY_PAYLOAD, "message of 7 bytes");
	lie(2, 1, 0, -1, 0, 48, NVME_AUTH_WHY_PAYLOAD, "message of 0 bytes");
}

static void auth__each_lie_in_success1_is_named(void **state)
{
	lie(4, 2, 0, 1, 1, 0, NVME_AUTH_WHY_MESSAGE, "message 1 of type 1: expected 3");
	lie(4, 2, 0, 8, 0, 0, NVME_AUTH_WHY_FAILED, "sent no response of 48 bytes");
	lie(4, 2, 0, 6, 32, 0, NVME_AUTH_WHY_FAILED, "sent no response of 48 bytes");
	lie(4, 2, 0, -1, 0, 1, NVME_AUTH_WHY_PAYLOAD, "success of 63 bytes: expected 64");
	for (int at = 16; at < 64; at++)
		lie(4, 2, 0, at, 0x5b, 0, NVME_AUTH_WHY_FAILED, "");
}

static void auth__another_transaction_is_refused(void **state)
{
	struct exchange x;

	begin(&x, HOST_SECRET, NULL, NULL, 1, 0);
	step(&x);
	x.len = auth_target_reply(x.target, x.msg);
	x.msg[5] ^= 1;
	assert_int_equal(nvme_auth_take(x.host, x.msg, x.len, &err), -EPROTO);
	assert_non_null(strstr(err.msg, "authentication transaction 0x"));
	end(&x);
}

/* With 0, 1, p - 1 or p the secret would be known to all; more than p is no value at all. */
static void auth__a_public_value_that_fixes_the_secret_is_refused(void **state)
{
	for (int i = 0; i < 5; i++) {
		struct exchange x;
		uint8_t *v;

		begin(&x, HOST_SECRET, NULL, NULL, 1, 1);
		step(&x);
		x.len = auth_target_reply(x.target, x.msg);
		v = x.msg + 16 + 32;
		if (i < 2) {
			memset(v, 0, 256);
			v[255] = (uint8_t)i;
		} else {
			hex_bytes(vector_p, v, 256);
			v[255] = (uint8_t)(i == 2 ? 0xfe : 0xff);
			if (i == 4)
				memset(v, 0xff, 256);
		}
		assert_int_equal(nvme_auth_take(x.host, x.msg, x.len, &err), -EPROTO);
		assert_non_null(strstr(err.msg, "none of its group"));
		end(&x);
	}
}

static void auth__without_the_null_group_a_target_that_insists_is_refused(void **state)
{
	struct nvme_auth_secret s = parsed(HOST_SECRET);
	struct nvme_auth_opts o = {&s, NULL, VECTOR_HOST, VECTOR_SUB, true};
	struct exchange x = {0};

	assert_int_equal(nvme_auth_new(&o, &x.host, &err), 0);
	x.target = auth_target_new(HOST_SECRET, NULL, VECTOR_HOST, VECTOR_SUB, 1, 0);
	run(&x);
	assert_int_equal(nvme_auth_step(x.host), NVME_AUTH_FAILED);
	assert_non_null(strstr(err.msg, "Diffie-Hellman group not usable"));
	end(&x);
	/* and one that does not ask first */
	assert_int_equal(nvme_auth_new(&o, &x.host, &err), 0);
	assert_int_equal(nvme_auth_build(x.host, x.msg, &x.len, &err), 0);
	x.msg[0] = 1, x.msg[1] = 1, x.msg[6] = 32;
	memset(x.msg + 7, 0, 64);
	x.msg[8] = 1;
	assert_int_equal(nvme_auth_take(x.host, x.msg, 48, &err), -EPROTO);
	assert_non_null(strstr(err.msg, "group 0: expected 1 to 5"));
	nvme_auth_free(x.host);
}

static void auth__challenges_and_transactions_are_never_the_same(void **state)
{
	uint8_t seen[2][4096];

	for (int i = 0; i < 2; i++) {
		struct exchange x;

		begin(&x, HOST_SECRET, OWN_SECRET, OWN_SECRET, 1, 0);
		step(&x), step(&x), step(&x);
		memcpy(seen[i], x.msg, x.len);
		assert_int_equal(x.len, 16 + 64);
		assert_memory_not_equal(x.msg + 12, "\0\0\0\0", 4); /* S2 */
		end(&x);
	}
	assert_memory_not_equal(seen[0] + 48, seen[1] + 48, 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvme_auth_secret__of_the_specification_is_read),
		cmocka_unit_test(nvme_auth_secret__malformed_ones_are_refused_without_telling_them),
		cmocka_unit_test_setup_teardown(
			nvme_auth_secret__is_loaded_from_a_file_that_is_the_owners_alone,
			testing_dir_setup, testing_dir_teardown),
		cmocka_unit_test(auth__computes_what_the_vectors_say),
		cmocka_unit_test(auth__the_smallest_group_is_that_of_rfc_7919),
		cmocka_unit_test(auth__each_hash_and_group_proves_the_host_and_the_target),
		cmocka_unit_test(auth__one_way_ends_with_success1),
		cmocka_unit_test(auth__a_host_with_a_wrong_secret_is_refused),
		cmocka_unit_test(auth__a_target_with_a_wrong_secret_or_none_is_refused),
		cmocka_unit_test(auth__negotiate_and_failure2_are_as_laid_out),
		cmocka_unit_test(auth__each_lie_in_a_challenge_is_named),
		cmocka_unit_test(auth__each_lie_in_success1_is_named),
		cmocka_unit_test(auth__another_transaction_is_refused),
		cmocka_unit_test(auth__a_public_value_that_fixes_the_secret_is_refused),
		cmocka_unit_test(auth__without_the_null_group_a_target_that_insists_is_refused),
		cmocka_unit_test(auth__challenges_and_transactions_are_never_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

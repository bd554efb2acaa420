/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes, signatures, checksums and encodings against published vectors. */
#include "tests/testing.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <sys/stat.h>

static void assert_hex(const void *p, size_t n, const char *expected)
{
	char hex[257];

	assert_true(n <= 128);
	crypto_hex(p, n, hex);
	assert_string_equal(hex, expected);
}

static void sha256__equals_fips_180(void **state)
{
	uint8_t out[SHA256_LEN];
	struct crypto_span parts[] = {{"a", 1}, {NULL, 0}, {"bc", 2}};

	crypto_sha256("abc", 3, out);
	assert_hex(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	crypto_sha256v(parts, 3, out);
	assert_hex(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	crypto_sha256(NULL, 0, out);
	assert_hex(out, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void hmac__equals_rfc_4231(void **state)
{
	uint8_t key[131], out[SHA256_LEN];
	struct crypto_span case1[] = {{"Hi There", 8}};
	struct crypto_span case2[] = {{"what do ya want ", 16}, {"for nothing?", 12}};
	const char *text6 = "Test Using Larger Than Block-Size Key - Hash Key First";
	struct crypto_span case6[] = {{text6, strlen(text6)}};

	memset(key, 0x0b, 20);
	crypto_hmac_sha256v(key, 20, case1, 1, out);
	assert_hex(out, 32, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	crypto_hmac_sha256v("Jefe", 4, case2, 2, out);
	assert_hex(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, 131);
	crypto_hmac_sha256v(key, 131, case6, 1, out);
	assert_hex(out, 32, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
	/* An empty key over nothing: a value, not a leftover of the key before. */
	crypto_hmac_sha256v(NULL, 0, NULL, 0, out);
	assert_hex(out, 32, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

static void crc32__equals_the_check_value_of_ieee_802_3(void **state)
{
	assert_true(crypto_crc32("123456789", 9) == 0xcbf43926);
	assert_true(crypto_crc32("", 0) == 0);
}

static void crc32c__in_pieces_equals_the_whole(void **state)
{
	uint32_t crc = crypto_crc32c_more(0, "1234", 4);

	assert_true(crypto_crc32c_more(crc, "56789", 5) == 0xe3069283);
	assert_true(crypto_crc32c_more(0, "", 0) == 0);
}

static void crc32c__equals_rfc_3720(void **state)
{
	uint8_t buf[32];

	assert_true(crypto_crc32c("123456789", 9) == 0xe3069283);
	memset(buf, 0, sizeof(buf));
	assert_true(crypto_crc32c(buf, 32) == 0x8a9136aa);
	memset(buf, 0xff, sizeof(buf));
	assert_true(crypto_crc32c(buf, 32) == 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)i;
	assert_true(crypto_crc32c(buf, 32) == 0x46dd794e);
	for (int i = 0; i < 32; i++)
		buf[i] = (uint8_t)(31 - i);
	assert_true(crypto_crc32c(buf, 32) == 0x113fdb5c);
	assert_true(crypto_crc32c(buf, 0) == 0);
}

/* RFC 8410: the DER of a PKCS#8 Ed25519 key is this and the 32 bytes of the seed. */
static void write_seed_pem(const char *path, const char *seed_hex)
{
	uint8_t der[48];
	char b64[80], pem[200];
	int n;

	assert_int_equal(crypto_hex_decode("302e020100300506032b657004220420", der, 16), 0);
	assert_int_equal(crypto_hex_decode(seed_hex, der + 16, 32), 0);
	crypto_base64(der, sizeof(der), b64);
	n = snprintf(pem, sizeof(pem),
	             "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n", b64);
	assert_int_equal(fsx_write_atomic(path, pem, (size_t)n, 0600, NULL), 0);
}

static void ed25519__equals_rfc_8032(void **state)
{
	static const struct {
		const char *seed, *pub, *msg, *sig;
	} rows[] = {
		{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
	         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
	         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc"
	         "6"
	         "1e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
	         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
	         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e4"
	         "5"
	         "8f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
	};
	char path[4200];

	testing_path(path, *state, "key.pem");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct crypto_sign_key *k;
		uint8_t pub[ED25519_PUB_LEN], sig[ED25519_SIG_LEN], msg[8];
		size_t n = strlen(rows[i].msg) / 2;

		assert_int_equal(crypto_hex_decode(rows[i].msg, msg, n), 0);
		write_seed_pem(path, rows[i].seed);
		assert_int_equal(crypto_sign_key_load(path, &k, NULL), 0);
		crypto_sign_key_public(k, pub);
		assert_hex(pub, sizeof(pub), rows[i].pub);
		assert_int_equal(crypto_sign(k, msg, n, sig), 0);
		assert_hex(sig, sizeof(sig), rows[i].sig);
		assert_true(crypto_verify(pub, msg, n, sig));
		crypto_sign_key_free(k);
	}
}

static void ed25519__refuses_changed_bytes(void **state)
{
	struct crypto_sign_key *k, *other;
	uint8_t pub[ED25519_PUB_LEN], sig[ED25519_SIG_LEN], foreign[ED25519_PUB_LEN];
	char msg[] = "checkpoint";

	assert_int_equal(crypto_sign_key_new(&k, NULL), 0);
	assert_int_equal(crypto_sign_key_new(&other, NULL), 0);
	crypto_sign_key_public(k, pub);
	crypto_sign_key_public(other, foreign);
	assert_int_equal(crypto_sign(k, msg, sizeof(msg), sig), 0);
	assert_true(crypto_verify(pub, msg, sizeof(msg), sig));
	assert_false(crypto_verify(foreign, msg, sizeof(msg), sig));
	assert_false(crypto_verify(pub, msg, sizeof(msg) - 1, sig));
	msg[3] ^= 1;
	assert_false(crypto_verify(pub, msg, sizeof(msg), sig));
	msg[3] ^= 1;
	for (size_t i = 0; i < sizeof(sig); i++) {
		sig[i] ^= 0x40;
		assert_false(crypto_verify(pub, msg, sizeof(msg), sig));
		sig[i] ^= 0x40;
	}
	memset(pub, 0xff, sizeof(pub));
	assert_false(crypto_verify(pub, msg, sizeof(msg), sig));
	crypto_sign_key_free(k);
	crypto_sign_key_free(other);
	crypto_sign_key_free(NULL);
}

static void sign_key__is_saved_for_its_owner_only_and_read_back(void **state)
{
	struct crypto_sign_key *k, *back;
	uint8_t a[ED25519_PUB_LEN], b[ED25519_PUB_LEN];
	char path[4200];
	struct stat st;

	testing_path(path, *state, "key.pem");
	assert_int_equal(crypto_sign_key_new(&k, NULL), 0);
	assert_int_equal(crypto_sign_key_save(k, path, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(crypto_sign_key_load(path, &back, NULL), 0);
	crypto_sign_key_public(k, a);
	crypto_sign_key_public(back, b);
	assert_memory_equal(a, b, sizeof(a));
	crypto_sign_key_free(k);
	crypto_sign_key_free(back);
}

static void sign_key__refuses_garbage_with_words(void **state)
{
	static const char *const bad[] = {
		"",
		"garbage",
		"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
		"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE "
		"KEY-----\n",
		"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGb\n-----END ENCRYPTED PRIVATE "
		"KEY-----\n",
	};
	struct crypto_sign_key *k = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200];

	testing_path(path, *state, "key.pem");
	assert_int_equal(crypto_sign_key_load(path, &k, &err), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(fsx_write_atomic(path, bad[i], strlen(bad[i]), 0600, NULL), 0);
		assert_int_equal(crypto_sign_key_load(path, &k, &err), -EBADMSG);
		assert_non_null(strstr(err.msg, "key.pem"));
	}
	assert_null(k);
}

static void base64__equals_rfc_4648(void **state)
{
	static const char *const rows[][2] = {
		{"", ""},
		{"f", "Zg=="},
		{"fo", "Zm8="},
		{"foo", "Zm9v"},
		{"foob", "Zm9vYg=="},
		{"fooba", "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = strlen(rows[i][0]), len;
		char out[16], back[16];

		crypto_base64(rows[i][0], n, out);
		assert_string_equal(out, rows[i][1]);
		assert_int_equal(crypto_base64_len(n), strlen(out) + 1);
		assert_int_equal(crypto_base64_decode(out, strlen(out), back, n, &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(back, rows[i][0], n);
		if (n)
			assert_int_equal(crypto_base64_decode(out, strlen(out), back, n - 1, &len),
			                 -EBADMSG);
	}
}

static void base64__refuses_what_is_not_canonical(void **state)
{
	static const char *const bad[] = {
		"Z",
		"Zg",
		"Zg=",
		"Zh==",
		"Zm9=",
		"=Zg=",
		"Zg==Zg==",
		"Z===",
		"====",
		"Zg= ",
		"Zm9v\n",
		"Zm_v",
		"Zm-v",
		" Zm9",
		"Zm\xff"
		"v",
		"Zg=A",
	};
	char out[32];
	size_t len = 99;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(
			crypto_base64_decode(bad[i], strlen(bad[i]), out, sizeof(out), &len),
			-EBADMSG);
	assert_int_equal(crypto_base64_decode("Zg\0=", 4, out, sizeof(out), &len), -EBADMSG);
	assert_int_equal(len, 99);
}

static void base64__round_trips_all_bytes(void **state)
{
	uint8_t in[256], back[256];
	char out[400];
	size_t len;

	for (int i = 0; i < 256; i++)
		in[i] = (uint8_t)(255 - i);
	for (size_t n = 0; n <= 256; n++) {
		crypto_base64(in, n, out);
		assert_int_equal(crypto_base64_decode(out, strlen(out), back, 256, &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(in, back, n);
	}
}

static void hex__takes_exactly_the_digits_asked_for(void **state)
{
	uint8_t out[4];

	assert_int_equal(crypto_hex_decode("00ff10a5", out, 4), 0);
	assert_hex(out, 4, "00ff10a5");
	assert_int_equal(crypto_hex_decode("", out, 0), 0);
	assert_int_equal(crypto_hex_decode("00ff10a", out, 4), -EBADMSG);
	assert_int_equal(crypto_hex_decode("00ff10a50", out, 4), -EBADMSG);
	assert_int_equal(crypto_hex_decode("00FF10A5", out, 4), -EBADMSG);
	assert_int_equal(crypto_hex_decode("00ff10 5", out, 4), -EBADMSG);
	assert_int_equal(crypto_hex_decode("", out, 1), -EBADMSG);
}

static void random__differs_and_covers_the_range(void **state)
{
	uint8_t a[32] = {0}, b[32] = {0};
	uint32_t ones = 0, zeros = 0;

	crypto_random(a, sizeof(a));
	crypto_random(b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	assert_false(crypto_equal(a, b, sizeof(a)));
	assert_true(crypto_equal(a, a, sizeof(a)));
	for (int i = 0; i < 1000; i++) {
		uint32_t v = crypto_random_u32();

		ones |= v;
		zeros |= ~v;
	}
	assert_true(ones == UINT32_MAX && zeros == UINT32_MAX);
	crypto_wipe(a, sizeof(a));
	memset(b, 0, sizeof(b));
	assert_memory_equal(a, b, sizeof(a));
}

#define in_dir(t) cmocka_unit_test_setup_teardown(t, testing_dir_setup, testing_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256__equals_fips_180),
		cmocka_unit_test(hmac__equals_rfc_4231),
		cmocka_unit_test(crc32c__equals_rfc_3720),
		cmocka_unit_test(crc32c__in_pieces_equals_the_whole),
		cmocka_unit_test(crc32__equals_the_check_value_of_ieee_802_3),
		in_dir(ed25519__equals_rfc_8032),
		cmocka_unit_test(ed25519__refuses_changed_bytes),
		in_dir(sign_key__is_saved_for_its_owner_only_and_read_back),
		in_dir(sign_key__refuses_garbage_with_words),
		cmocka_unit_test(base64__equals_rfc_4648),
		cmocka_unit_test(base64__refuses_what_is_not_canonical),
		cmocka_unit_test(base64__round_trips_all_bytes),
		cmocka_unit_test(hex__takes_exactly_the_digits_asked_for),
		cmocka_unit_test(random__differs_and_covers_the_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

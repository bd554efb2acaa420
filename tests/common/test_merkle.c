/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 6962 trees against the vectors of the Certificate Transparency reference implementation. */
#include "tests/testing.h"
#include "common/merkle.h"
#include "common/util.h"

#define LEAVES_MAX 70

static const char *const leaf_hex[] = {
	"",
	"00",
	"10",
	"2021",
	"3031",
	"40414243",
	"5051525354555657",
	"606162636465666768696a6b6c6d6e6f",
};
static const char *const root_hex[] = {
	"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
	"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
	"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
	"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
	"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
	"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
	"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
	"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
};

static void make_leaves(uint8_t (*leaves)[SHA256_LEN], size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t bytes[16];
		size_t len = 1;

		if (i < ARRAY_SIZE(leaf_hex)) {
			len = strlen(leaf_hex[i]) / 2;
			assert_int_equal(crypto_hex_decode(leaf_hex[i], bytes, len), 0);
		} else {
			bytes[0] = (uint8_t)i;
		}
		merkle_leaf(bytes, len, leaves[i]);
	}
}

static void merkle__roots_equal_the_known_vectors(void **state)
{
	uint8_t leaves[8][SHA256_LEN], root[SHA256_LEN];
	struct merkle_acc acc;
	char hex[2 * SHA256_LEN + 1];

	make_leaves(leaves, 8);
	merkle_acc_init(&acc);
	merkle_acc_root(&acc, root);
	crypto_hex(root, sizeof(root), hex);
	assert_string_equal(hex,
	                    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	for (size_t n = 1; n <= 8; n++) {
		merkle_acc_append(&acc, leaves[n - 1]);
		merkle_acc_root(&acc, root);
		crypto_hex(root, sizeof(root), hex);
		assert_string_equal(hex, root_hex[n - 1]);
		merkle_root((const void *)leaves, n, root);
		crypto_hex(root, sizeof(root), hex);
		assert_string_equal(hex, root_hex[n - 1]);
	}
}

static void merkle__every_path_of_every_small_tree_verifies(void **state)
{
	uint8_t leaves[LEAVES_MAX][SHA256_LEN], root[SHA256_LEN];
	uint8_t path[MERKLE_PATH_MAX][SHA256_LEN];

	make_leaves(leaves, LEAVES_MAX);
	for (size_t n = 1; n <= LEAVES_MAX; n++) {
		merkle_root((const void *)leaves, n, root);
		for (size_t i = 0; i < n; i++) {
			size_t len = merkle_path((const void *)leaves, n, i, path);

			assert_true(
				merkle_path_verify(leaves[i], i, n, (const void *)path, len, root));
		}
	}
}

static void merkle__path_of_the_known_vector(void **state)
{
	/* PATH(0, 8): leaf 1, the node over 2..3, the node over 4..7. */
	static const char *const expected[] = {
		"96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
		"5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
		"6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
	};
	uint8_t leaves[8][SHA256_LEN], path[MERKLE_PATH_MAX][SHA256_LEN];
	char hex[2 * SHA256_LEN + 1];

	make_leaves(leaves, 8);
	assert_int_equal(merkle_path((const void *)leaves, 8, 0, path), 3);
	for (size_t i = 0; i < 3; i++) {
		crypto_hex(path[i], SHA256_LEN, hex);
		assert_string_equal(hex, expected[i]);
	}
}

static void merkle__refuses_any_changed_proof(void **state)
{
	uint8_t leaves[13][SHA256_LEN], root[SHA256_LEN];
	uint8_t path[MERKLE_PATH_MAX + 1][SHA256_LEN];
	const void *p = path;
	size_t len;

	memset(path, 0, sizeof(path));
	make_leaves(leaves, 13);
	merkle_root((const void *)leaves, 13, root);
	len = merkle_path((const void *)leaves, 13, 5, path);
	assert_true(merkle_path_verify(leaves[5], 5, 13, p, len, root));
	for (size_t i = 0; i < len; i++) {
		path[i][i] ^= 1;
		assert_false(merkle_path_verify(leaves[5], 5, 13, p, len, root));
		path[i][i] ^= 1;
	}
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(merkle_path_verify(leaves[5], i, 13, p, len, root), i == 5);
	assert_false(merkle_path_verify(leaves[4], 5, 13, p, len, root));
	assert_false(merkle_path_verify(leaves[5], 5, 13, p, len - 1, root));
	assert_false(merkle_path_verify(leaves[5], 5, 13, p, len + 1, root));
	assert_false(merkle_path_verify(leaves[5], 5, 13, p, MERKLE_PATH_MAX + 1, root));
	root[0] ^= 1;
	assert_false(merkle_path_verify(leaves[5], 5, 13, p, len, root));
}

static void merkle__survives_absurd_sizes(void **state)
{
	uint8_t h[SHA256_LEN] = {0}, path[MERKLE_PATH_MAX][SHA256_LEN] = {{0}};
	const void *p = path;

	assert_false(merkle_path_verify(h, 0, 0, p, 0, h));
	assert_false(merkle_path_verify(h, UINT64_MAX, UINT64_MAX, p, 64, h));
	assert_false(merkle_path_verify(h, UINT64_MAX - 1, UINT64_MAX, p, 64, h));
	assert_false(merkle_path_verify(h, 0, UINT64_MAX, p, 64, h));
	assert_false(merkle_path_verify(h, 0, UINT64_MAX, p, SIZE_MAX, h));
	assert_true(merkle_path_verify(h, 0, 1, p, 0, h));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merkle__roots_equal_the_known_vectors),
		cmocka_unit_test(merkle__path_of_the_known_vector),
		cmocka_unit_test(merkle__every_path_of_every_small_tree_verifies),
		cmocka_unit_test(merkle__refuses_any_changed_proof),
		cmocka_unit_test(merkle__survives_absurd_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RFC 6962 trees. Pure computation on hashes the caller holds. The 0x00 and 0x01 prefixes keep a
 * node from passing as a leaf; nothing here may hash without one.
 */
#include "common/merkle.h"
#include <string.h>

void merkle_leaf(const void *bytes, size_t n, uint8_t out[SHA256_LEN])
{
	static const uint8_t prefix = 0x00;
	struct crypto_span parts[] = {{&prefix, 1}, {bytes, n}};

	crypto_sha256v(parts, 2, out);
}

static void hash_node(const uint8_t *left, const uint8_t *right, uint8_t out[SHA256_LEN])
{
	static const uint8_t prefix = 0x01;
	struct crypto_span parts[] = {{&prefix, 1}, {left, SHA256_LEN}, {right, SHA256_LEN}};

	crypto_sha256v(parts, 3, out);
}

void merkle_acc_init(struct merkle_acc *a)
{
	memset(a, 0, sizeof(*a));
}

/* Adding one to a binary counter: every carry joins two trees of equal size. */
void merkle_acc_append(struct merkle_acc *a, const uint8_t leaf[SHA256_LEN])
{
	uint8_t h[SHA256_LEN];
	unsigned i = 0;

	memcpy(h, leaf, SHA256_LEN);
	for (; i < 63 && (a->size >> i & 1); i++)
		hash_node(a->peaks[i], h, h);
	memcpy(a->peaks[i], h, SHA256_LEN);
	a->size++;
}

void merkle_acc_root(const struct merkle_acc *a, uint8_t out[SHA256_LEN])
{
	unsigned i;

	if (a->size == 0) {
		crypto_sha256("", 0, out);
		return;
	}
	i = (unsigned)__builtin_ctzll(a->size);
	memcpy(out, a->peaks[i], SHA256_LEN);
	for (i++; i < 64; i++)
		if (a->size >> i & 1)
			hash_node(a->peaks[i], out, out);
}

void merkle_root(const uint8_t (*leaves)[SHA256_LEN], size_t n, uint8_t out[SHA256_LEN])
{
	struct merkle_acc a;

	merkle_acc_init(&a);
	for (size_t i = 0; i < n; i++)
		merkle_acc_append(&a, leaves[i]);
	merkle_acc_root(&a, out);
}

/* RFC 6962 2.1: the largest power of two smaller than @n; n >= 2. */
static size_t split(size_t n)
{
	return (size_t)1 << (63 - __builtin_clzll(n - 1));
}

size_t merkle_path(const uint8_t (*leaves)[SHA256_LEN], size_t n, size_t index,
                   uint8_t (*out)[SHA256_LEN])
{
	struct {
		size_t first, n;
	} sibling[MERKLE_PATH_MAX];
	size_t first = 0, depth = 0;

	/* From the root down, noting at each fork the side not taken. */
	while (n > 1) {
		size_t k = split(n);
		int right = index - first >= k;

		sibling[depth].first = right ? first : first + k;
		sibling[depth++].n = right ? k : n - k;
		first = right ? first + k : first;
		n = right ? n - k : k;
	}
	for (size_t i = 0; i < depth; i++) {
		size_t at = depth - 1 - i;

		merkle_root(leaves + sibling[at].first, sibling[at].n, out[i]);
	}
	return depth;
}

bool merkle_path_verify(const uint8_t leaf[SHA256_LEN], uint64_t index, uint64_t size,
                        const uint8_t (*path)[SHA256_LEN], size_t path_len,
                        const uint8_t root[SHA256_LEN])
{
	uint8_t h[SHA256_LEN];
	uint64_t fn = index, sn = size - 1; /* the names of RFC 9162 */

	if (index >= size || path_len > MERKLE_PATH_MAX)
		return false;
	memcpy(h, leaf, SHA256_LEN);
	for (size_t i = 0; i < path_len; i++) {
		if (sn == 0)
			return false;
		if ((fn & 1) || fn == sn) {
			hash_node(path[i], h, h);
			while (!(fn & 1) && fn) {
				fn >>= 1;
				sn >>= 1;
			}
		} else {
			hash_node(h, path[i], h);
		}
		fn >>= 1;
		sn >>= 1;
	}
	return sn == 0 && crypto_equal(h, root, SHA256_LEN);
}

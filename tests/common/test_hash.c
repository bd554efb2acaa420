/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of uthash with keys that a peer has chosen. */
#include "common/hash.h"
#include "common/util.h"
#include "tests/testing.h"
#include <string.h>

#define CHOSEN  4096
#define KEY_LEN 20 /* a uid and a kind, as the controller's table of what an agent has */

struct row {
	uint8_t key[KEY_LEN];
	UT_hash_handle hh;
};

static void put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* HASH_JEN_MIX backwards. */
static void unmix(uint32_t *a, uint32_t *b, uint32_t *c)
{
	static const int by[3][3] = {{3, 10, 15}, {12, 16, 5}, {13, 8, 13}};

	for (size_t i = 0; i < ARRAY_SIZE(by); i++) {
		*c = (*c ^ *b >> by[i][2]) + *b + *a;
		*b = (*b ^ *a << by[i][1]) + *a + *c;
		*a = (*a ^ *c >> by[i][0]) + *c + *b;
	}
}

/* The @n-th key of all that uthash's own function takes for the same: what is in its three words
 * before the last mix is chosen, and the first 12 bytes follow from it. */
static void choose(uint32_t n, uint8_t key[KEY_LEN])
{
	uint32_t a = 1 - n, b = 2, c = 3 - KEY_LEN;

	unmix(&a, &b, &c);
	put32(key, a - 0x9e3779b9u);
	put32(key + 4, b - 0x9e3779b9u);
	put32(key + 8, c - 0xfeedbeefu);
	put32(key + 12, n);
	put32(key + 16, 0);
}

static uint32_t by_uthash(const uint8_t *key)
{
	unsigned h;

	HASH_JEN(key, KEY_LEN, h);
	return h;
}

static void hash__keys_that_a_peer_has_chosen_share_no_bucket(void **state)
{
	struct row *rows = calloc(CHOSEN, sizeof(*rows)), *table = NULL, *found;
	unsigned longest = 0;

	assert_non_null(rows);
	for (uint32_t i = 0; i < CHOSEN; i++) {
		choose(i, rows[i].key);
		/* The control: they would. */
		assert_int_equal(by_uthash(rows[i].key), by_uthash(rows[0].key));
		HASH_ADD(hh, table, key, KEY_LEN, &rows[i]);
		assert_true(HASH_TOOK(hh, &rows[i]));
	}
	for (unsigned i = 0; i < table->hh.tbl->num_buckets; i++)
		longest = MAX(longest, table->hh.tbl->buckets[i].count);
	assert_in_range(longest, 1, 32);
	for (uint32_t i = 0; i < CHOSEN; i++) {
		HASH_FIND(hh, table, rows[i].key, KEY_LEN, found);
		assert_ptr_equal(found, &rows[i]);
	}
	HASH_CLEAR(hh, table);
	free(rows);
}

/* The paper's own example. */
static void siphash__gives_what_its_authors_say(void **state)
{
	uint8_t key[HASH_KEY_LEN], text[15];

	for (uint8_t i = 0; i < sizeof(key); i++)
		key[i] = i;
	memcpy(text, key, sizeof(text));
	assert_true(hash_siphash(key, text, sizeof(text)) == 0xa129ca6149be45e5);
	key[0] = 1;
	assert_false(hash_siphash(key, text, sizeof(text)) == 0xa129ca6149be45e5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash__keys_that_a_peer_has_chosen_share_no_bucket),
		cmocka_unit_test(siphash__gives_what_its_authors_say),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a page token of Admin.List. The first byte says which list it is given to and
 * whether the rest is the token (bit 7 clear) or the bytes that a token holds (set), of which the
 * head is made right. What is accepted is written the same again and is good for no other list.
 */
#include "controller/page.h"
#include "tests/fuzz/fuzz.h"

static struct page_list list_of(uint8_t n)
{
	struct page_list l = {.kind = (enum store_kind)(n & 7), .all = n >> 3 & 1};

	l.tenant_uid.b[0] = n >> 4 & 1;
	l.agent_uid.b[0] = n >> 5 & 1;
	return l;
}

static void parse(const char *token, uint8_t which)
{
	const struct page_list l = list_of(which), other = list_of(which ^ 8);
	struct page_pos at, foreign;
	char again[PAGE_TOKEN_MAX];

	if (page_parse(&l, token, &at) < 0 || !*token)
		return;
	must(memchr(at.name, '\0', sizeof(at.name)) != NULL);
	page_token(&l, &at, again);
	must(!strcmp(token, again));
	must(page_parse(&other, token, &foreign) < 0);
}

/* The head of a good token, and what follows from the input. */
static void with_head(const uint8_t *data, size_t size, uint8_t which)
{
	const struct page_list l = list_of(which);
	const struct page_pos none = {.ended = which >> 6 & 1};
	char token[PAGE_TOKEN_MAX];
	uint8_t raw[PAGE_TOKEN_MAX];
	size_t n;

	page_token(&l, &none, token);
	must(crypto_base64_decode(token, strlen(token), raw, sizeof(raw), &n) == 0 && n > 11);
	memcpy(raw + 11, data, size < n - 11 ? size : n - 11);
	crypto_base64(raw, n, token);
	parse(token, which);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *token;

	if (!size)
		return 0;
	token = fuzz_text(data + 1, size - 1);
	if (data[0] & 0x80)
		with_head(data + 1, size - 1, data[0]);
	else
		parse(token, data[0]);
	free(token);
	return 0;
}

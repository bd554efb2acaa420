/* SPDX-License-Identifier: Apache-2.0 */
/* The discovery log: entries by the offsets of Base 5.16.1.23, and its reading while it changes. */
#include "dataplane/nvmf/discover.h"
#include "tests/nvmf/hex.h"

static struct ros2_err err;
static uint8_t entry[1024];

static void entry_bytes(void)
{
	memset(entry, 0, sizeof(entry));
	hex_bytes("03 01 02 00 0100 ffff 2000", entry, sizeof(entry));
	memcpy(entry + 32, "4420    ", 8);
	strcpy((char *)entry + 256, "nqn.2026-11.example:volumes");
	strcpy((char *)entry + 512, "192.0.2.7");
	memset(entry + 521, ' ', 20);
}

static void refused(int r, int code, const char *words, int line)
{
	if (r != code || err.code != code || !strstr(err.msg, words))
		fail_msg("line %d: %d \"%s\"", line, r, err.msg);
}
#define assert_refused(r, code, words) refused(r, code, words, __LINE__)

static void nvme_discovered__is_read_field_by_field(void **state)
{
	struct nvme_discovered d;

	entry_bytes();
	assert_int_equal(nvme_discovered_parse(entry, &d, &err), 0);
	assert_string_equal(nvme_trtype_to_str(d.transport), "tcp");
	assert_string_equal(nvme_adrfam_to_str(d.family), "ipv4");
	assert_string_equal(nvme_subtype_to_str(d.kind), "nvme");
	assert_string_equal(d.address, "192.0.2.7");
	assert_string_equal(d.service, "4420");
	assert_string_equal(d.subnqn, "nqn.2026-11.example:volumes");
	assert_int_equal(d.port_id, 1);
	assert_int_equal(d.cntlid, 0xffff);
	assert_int_equal(d.admin_entries, 32);
	assert_false(d.tls);
	entry[768] = 2;
	assert_int_equal(nvme_discovered_parse(entry, &d, &err), 0);
	assert_true(d.tls);
	entry[0] = 1;
	assert_int_equal(nvme_discovered_parse(entry, &d, &err), 0);
	assert_false(d.tls);
}

static void nvme_discovered__of_unknown_kinds_and_unprintable_text_is_refused(void **state)
{
	struct nvme_discovered d;

	entry_bytes();
	entry[2] = 0;
	assert_refused(nvme_discovered_parse(entry, &d, &err), -EPROTO, "entry of type 0");
	entry[2] = 4;
	assert_refused(nvme_discovered_parse(entry, &d, &err), -EPROTO, "entry of type 4");
	entry_bytes();
	entry[33] = 7;
	assert_refused(nvme_discovered_parse(entry, &d, &err), -EPROTO, "service in a discovery");
	entry_bytes();
	memcpy(entry + 512, "\xe2\x80\xae", 3); /* writes from right to left */
	assert_refused(nvme_discovered_parse(entry, &d, &err), -EPROTO, "address in a discovery");
	entry_bytes();
	memset(entry + 256, 'n', 256);
	assert_refused(nvme_discovered_parse(entry, &d, &err), -EPROTO, "256 bytes");
	entry_bytes();
	entry[256] = 'N';
	assert_refused(nvme_discovered_parse(entry, &d, &err), -EPROTO, "expected an NQN");
}

/* A target with a log that a test changes between the parts. */
struct log {
	uint64_t generation;
	uint64_t n;
	unsigned changes; /* one before each reading of the header, so many times */
};

static void answer(struct log *l, uint64_t offset, uint32_t len, uint8_t *out)
{
	memset(out, 0, len);
	if (offset == 0) {
		assert_int_equal(len, 1024);
		if (l->changes) {
			l->changes--;
			l->generation++;
			l->n++;
		}
		memcpy(out, &l->generation, 8);
		memcpy(out + 8, &l->n, 8);
		return;
	}
	assert_true(offset % 1024 == 0 && len % 1024 == 0 && len && len <= 4096);
	assert_true((offset + len) / 1024 - 1 <= l->n);
	for (uint32_t at = 0; at < len; at += 1024) {
		entry_bytes();
		entry[4] = (uint8_t)(offset / 1024 - 1 + at / 1024); /* port id: the place */
		memcpy(out + at, entry, 1024);
	}
}

static int read_all(struct log *l, struct nvme_discovery **ret)
{
	uint8_t part[NVME_DISCOVERY_PART];
	uint64_t offset;
	uint32_t len;
	int r = 0;

	assert_int_equal(nvme_discovery_new(ret, &err), 0);
	while (r == 0 && nvme_discovery_next(*ret, &offset, &len)) {
		answer(l, offset, len, part);
		r = nvme_discovery_take(*ret, part, &err);
	}
	assert_false(nvme_discovery_next(*ret, &offset, &len));
	return r;
}

static void nvme_discovery__reads_every_entry_in_parts(void **state)
{
	static const uint64_t sizes[] = {0, 1, 3, 4, 5, 8, 200};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct log l = {.generation = 7, .n = sizes[i]};
		const struct nvme_discovered *e;
		struct nvme_discovery *d;
		uint64_t generation;
		size_t n;

		assert_int_equal(read_all(&l, &d), 0);
		e = nvme_discovery_entries(d, &n, &generation);
		assert_int_equal(n, sizes[i]);
		assert_int_equal(generation, 7);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(e[k].port_id & 0xff, k);
		nvme_discovery_free(d);
	}
}

static void nvme_discovery__starts_again_when_the_log_changed(void **state)
{
	struct log l = {.generation = 7, .n = 3, .changes = 4};
	struct nvme_discovery *d;
	uint64_t generation;
	size_t n;

	assert_int_equal(read_all(&l, &d), 0);
	nvme_discovery_entries(d, &n, &generation);
	assert_int_equal(n, 7);
	assert_int_equal(generation, 11);
	nvme_discovery_free(d);
}

static void nvme_discovery__ends_with_a_log_that_never_stays_the_same(void **state)
{
	struct log l = {.n = 1, .changes = 1000};
	struct nvme_discovery *d;

	assert_refused(read_all(&l, &d), -EAGAIN, "changed each of the 9 times");
	nvme_discovery_free(d);
}

static void nvme_discovery__refuses_what_a_header_cannot_say(void **state)
{
	static const struct {
		const char *first, *second, *words;
	} cases[] = {
		{"00*8 0104 00*6 0000 00*1006", NULL, "1025 entries: expected at most 1024"},
		{"00*8 ff*8 0000 00*1006", NULL, "18446744073709551615 entries"},
		{"00*8 01 00*7 0100 00*1006", NULL, "format 1"},
		{"00*8 01 00*7 0000 00*1006", "00*8 02 00*7 0000 00*1006", "2 entries: expected 1"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t header[1024];
		struct nvme_discovery *d;
		int r;

		assert_int_equal(nvme_discovery_new(&d, &err), 0);
		assert_int_equal(hex_bytes(cases[i].first, header, sizeof(header)), 1024);
		r = nvme_discovery_take(d, header, &err);
		if (cases[i].second) {
			assert_int_equal(r, 0);
			entry_bytes();
			assert_int_equal(nvme_discovery_take(d, entry, &err), 0);
			hex_bytes(cases[i].second, header, sizeof(header));
			r = nvme_discovery_take(d, header, &err);
		}
		assert_refused(r, -EPROTO, cases[i].words);
		nvme_discovery_free(d);
	}
	nvme_discovery_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvme_discovered__is_read_field_by_field),
		cmocka_unit_test(nvme_discovered__of_unknown_kinds_and_unprintable_text_is_refused),
		cmocka_unit_test(nvme_discovery__reads_every_entry_in_parts),
		cmocka_unit_test(nvme_discovery__starts_again_when_the_log_changed),
		cmocka_unit_test(nvme_discovery__ends_with_a_log_that_never_stays_the_same),
		cmocka_unit_test(nvme_discovery__refuses_what_a_header_cannot_say),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

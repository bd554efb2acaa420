/* SPDX-License-Identifier: Apache-2.0 */
/* docs/wire.md against wire.h: every opcode, flag and field of the header file has its row, with
 * the numbers the compiler has. */
#include "tests/testing.h"
#include "common/util.h"
#include "dataplane/wire.h"

#define FIELD(s, f)                                                                                \
	{                                                                                          \
#s, #f, offsetof(struct s, f), sizeof(((struct s *)0)->f)                          \
	}

static const struct {
	const char *of, *name;
	size_t offset, bytes;
} fields[] = {
	FIELD(wire_header, magic),          FIELD(wire_header, version),
	FIELD(wire_header, opcode),         FIELD(wire_header, flags),
	FIELD(wire_header, request_id),     FIELD(wire_header, handle),
	FIELD(wire_header, offset),         FIELD(wire_header, address),
	FIELD(wire_header, length),         FIELD(wire_header, key),
	FIELD(wire_header, generation),     FIELD(wire_header, payload_len),
	FIELD(wire_header, status),         FIELD(wire_header, reserved),
	FIELD(wire_header, header_crc),     FIELD(wire_challenge, agent_nonce),
	FIELD(wire_hello, session_uid),     FIELD(wire_hello, tenant_nonce),
	FIELD(wire_hello, proof),           FIELD(wire_welcome, proof),
	FIELD(wire_welcome, credits),       FIELD(wire_welcome, max_io),
	FIELD(wire_welcome, max_inline),    FIELD(wire_welcome, features),
	FIELD(wire_verbs_ask, version),     FIELD(wire_verbs_ask, reserved),
	FIELD(wire_verbs_ask, session_uid), FIELD(wire_verbs_ask, tenant_nonce),
	FIELD(wire_verbs_ask, proof),       FIELD(wire_verbs_answer, version),
	FIELD(wire_verbs_answer, reserved), FIELD(wire_verbs_answer, agent_nonce),
	FIELD(wire_verbs_refusal, version), FIELD(wire_verbs_refusal, reserved),
	FIELD(wire_verbs_refusal, status),  FIELD(wire_shm_ring, written),
	FIELD(wire_shm_ring, taken),        FIELD(wire_shm_ring, sleeps),
};

static char header[65536], doc[65536];

static void slurp(const char *path, char *to, size_t max)
{
	FILE *f = fopen(path, "r");
	size_t n;

	if (!f)
		fail_msg("cannot read %s", path);
	n = fread(to, 1, max - 1, f);
	to[n] = '\0';
	fclose(f);
}

static int setup(void **state)
{
	slurp("dataplane/wire.h", header, sizeof(header));
	slurp("docs/wire.md", doc, sizeof(doc));
	return 0;
}

static void wire_doc__has_every_field_with_its_offset_and_size(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		char section[64], row[96], *at, *next;

		snprintf(section, sizeof(section), "## struct %s\n", fields[i].of);
		snprintf(row, sizeof(row), "| `%s` | %zu | %zu |", fields[i].name, fields[i].offset,
		         fields[i].bytes);
		at = strstr(doc, section);
		if (!at)
			fail_msg("docs/wire.md has no section '%s'", section);
		next = strstr(at + 3, "\n## ");
		at = strstr(at, row);
		if (!at || (next && at > next))
			fail_msg("docs/wire.md: struct %s lacks the row '%s'", fields[i].of, row);
	}
}

/* So that a field added to wire.h cannot be left out of the table above. */
static void wire_doc__knows_every_field_of_the_header_file(void **state)
{
	size_t found = 0;

	for (const char *p = header; (p = strstr(p, "\tuint")); p++) {
		char name[64];

		if (sscanf(p, " %*[a-z0-9_] %63[a-z_]", name) != 1 || !strcmp(name, "pad"))
			continue;
		found++;
		for (size_t i = 0; i <= ARRAY_SIZE(fields); i++) {
			if (i == ARRAY_SIZE(fields))
				fail_msg("field %s of wire.h is not in this test's table", name);
			if (!strcmp(fields[i].name, name))
				break;
		}
	}
	assert_int_equal(found, ARRAY_SIZE(fields));
}

static void wire_doc__has_every_opcode_and_flag_with_its_number(void **state)
{
	unsigned found = 0;

	for (const char *p = header; (p = strstr(p, "\n\tWIRE_")); p++) {
		char name[64], row[96];
		unsigned number, shift;

		if (sscanf(p, " %63[A-Z_] = 1u << %u", name, &shift) == 2)
			snprintf(row, sizeof(row), "| `%s` | 0x%04x |", name, 1u << shift);
		else if (sscanf(p, " %63[A-Z_] = %u", name, &number) == 2)
			snprintf(row, sizeof(row), "| `%s` | %u |", name, number);
		else
			fail_msg("cannot read a name of wire.h at '%.40s'", p + 1);
		if (!strstr(doc, row))
			fail_msg("docs/wire.md lacks the row '%s'", row);
		found++;
	}
	assert_int_equal(found, 23);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wire_doc__has_every_field_with_its_offset_and_size),
		cmocka_unit_test(wire_doc__knows_every_field_of_the_header_file),
		cmocka_unit_test(wire_doc__has_every_opcode_and_flag_with_its_number),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a verifier key and as a signed note. The first byte says how: 0: a key, a newline, a
 * note; 1: a note for a key of ours, which signed nothing; 2: the text of a note up to the first
 * blank line, which our key signs here, and other signature lines; 3: pairs of place and mask by
 * which a good note is changed; 4: the name of a key. A note that is accepted has the text that was
 * signed and says what the text says; a key that is accepted is written the same again.
 */
#include "proto/audit/audit.h"
#include "tests/fuzz/fuzz.h"
#include <inttypes.h>
#include <stdio.h>

static const char origin[] = "ros2.test/audit";
static struct crypto_sign_key *key;
static uint8_t pub[ED25519_PUB_LEN];
static char vkey[AUDIT_VKEY_MAX];

static void set_up(void)
{
	if (key)
		return;
	must(crypto_sign_key_new(&key, NULL) == 0);
	crypto_sign_key_public(key, pub);
	must(audit_vkey_format(origin, pub, vkey) == 0);
}

static bool open_note(const char *note, size_t len, const char *by, struct audit_checkpoint *cp)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char text[AUDIT_NOTE_MAX], root64[64];
	int r = audit_checkpoint_open(note, len, by, cp, &err), n;

	if (r < 0) {
		must_refuse(r, &err);
		return false;
	}
	crypto_base64(cp->root, SHA256_LEN, root64);
	n = snprintf(text, sizeof(text), "%s\n%" PRIu64 "\n%s\n\n", cp->origin, cp->size, root64);
	must(n > 0 && (size_t)n <= len && !memcmp(text, note, (size_t)n));
	return true;
}

static void as_vkey(const char *text)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char name[AUDIT_ORIGIN_MAX], again[AUDIT_VKEY_MAX];
	uint8_t found[ED25519_PUB_LEN];
	int r = audit_vkey_parse(text, name, found, &err);

	if (r < 0) {
		must_refuse(r, &err);
		return;
	}
	must(audit_vkey_format(name, found, again) == 0);
	must(!strncmp(text, again, strlen(again)));
	must(strspn(text + strlen(again), " \t\r\n") == strlen(text + strlen(again)));
}

static void key_and_note(const char *text, size_t size)
{
	const char *nl = memchr(text, '\n', size);
	struct audit_checkpoint cp;
	char *by;

	if (!nl)
		return;
	by = fuzz_text((const uint8_t *)text, (size_t)(nl - text));
	open_note(nl + 1, size - (size_t)(nl + 1 - text), by, &cp);
	free(by);
}

/* "— NAME BASE64": what audit_checkpoint_sign puts below the blank line, for any text. */
static int signature_line(const char *text, size_t len, char out[256])
{
	uint8_t blob[4 + ED25519_SIG_LEN];
	char sig64[128];

	must(crypto_hex_decode((char[]){vkey[16], vkey[17], vkey[18], vkey[19], vkey[20], vkey[21],
	                                vkey[22], vkey[23], 0},
	                       blob, 4) == 0);
	must(crypto_sign(key, text, len, blob + 4) == 0);
	crypto_base64(blob, sizeof(blob), sig64);
	return snprintf(out, 256, "\xe2\x80\x94 %s %s\n", origin, sig64);
}

static void signed_here(const char *text, size_t size)
{
	const char *blank = memmem(text, size, "\n\n", 2);
	size_t body = blank ? (size_t)(blank + 1 - text) : size, rest = size - body;
	struct audit_checkpoint plain, cp;
	char sig[256], *note;
	int n = signature_line(text, body, sig);
	bool parses;

	note = malloc(size + 1 + (size_t)n);
	must(note != NULL);
	memcpy(note, text, body);
	note[body] = '\n';
	memcpy(note + body + 1, sig, (size_t)n);
	memcpy(note + body + 1 + n, text + body, rest);
	parses = open_note(note, size + 1 + (size_t)n, NULL, &plain);
	must((parses && !strcmp(plain.origin, origin)) ==
	     open_note(note, size + 1 + (size_t)n, vkey, &cp));
	must(!parses || body == (size_t)(strstr(note, "\n\n") + 1 - note));
	free(note);
}

static void changed(const uint8_t *data, size_t size)
{
	char note[AUDIT_NOTE_MAX], good[AUDIT_NOTE_MAX];
	const uint8_t root[SHA256_LEN] = {1, 2, 3};
	struct audit_checkpoint cp;
	size_t len, text;

	must(audit_checkpoint_sign(origin, size, root, key, good) == 0);
	len = strlen(good);
	text = (size_t)(strstr(good, "\n\n") + 2 - good);
	memcpy(note, good, sizeof(note));
	must(open_note(note, len, vkey, &cp) && cp.size == size);
	for (size_t i = 0; i + 1 < size; i += 2)
		note[data[i] % len] ^= (char)data[i + 1];
	if (open_note(note, len, vkey, &cp))
		must(!memcmp(note, good, text));
}

static void named(const char *name)
{
	char made[AUDIT_VKEY_MAX], found[AUDIT_ORIGIN_MAX];
	uint8_t found_pub[ED25519_PUB_LEN];

	if (audit_vkey_format(name, pub, made) < 0)
		return;
	as_vkey(made);
	if (audit_vkey_parse(made, found, found_pub, NULL) == 0)
		must(!strcmp(found, name) && !memcmp(found_pub, pub, sizeof(pub)));
	else
		must(!*name || strlen(name) >= AUDIT_ORIGIN_MAX || strpbrk(name, "+ \x7f") ||
		     strpbrk(name, "\x01\x02\x03\x04\x05\x06\x07\x08\t\n\v\f\r\x0e\x0f\x10\x11\x12"
		                   "\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct audit_checkpoint cp;
	char *text;

	if (!size)
		return 0;
	set_up();
	text = fuzz_text(data + 1, size - 1);
	as_vkey(text);
	open_note(text, size - 1, NULL, &cp);
	switch (data[0] % 5) {
	case 0:
		key_and_note(text, size - 1);
		break;
	case 1:
		must(!open_note(text, size - 1, vkey, &cp));
		break;
	case 2:
		signed_here(text, size - 1);
		break;
	case 3:
		changed(data + 1, size - 1);
		break;
	default:
		named(text);
	}
	free(text);
	return 0;
}

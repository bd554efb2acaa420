/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints as C2SP signed notes: three lines of text (origin, size, root), a blank line, and one
 * Ed25519 signature line. The signed text is exactly what stands before the blank line, with its
 * last newline. Sources: https://c2sp.org/tlog-checkpoint, https://c2sp.org/signed-note.
 */
#include "proto/audit/audit.h"
#include "common/util.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOTE_ALG_ED25519 1
#define KEY_HASH_LEN     4
#define SIG_BLOB_LEN     (KEY_HASH_LEN + ED25519_SIG_LEN)
static const char sig_dash[] = "\xe2\x80\x94 "; /* em dash, space */

/* SHA-256(name || "\n" || alg || key)[:4] */
static void key_hash(const char *name, size_t name_len, const uint8_t pub[ED25519_PUB_LEN],
                     uint8_t out[KEY_HASH_LEN])
{
	const uint8_t alg = NOTE_ALG_ED25519;
	const struct crypto_span parts[] = {
		{name, name_len}, {"\n", 1}, {&alg, 1}, {pub, ED25519_PUB_LEN}};
	uint8_t h[SHA256_LEN];

	crypto_sha256v(parts, ARRAY_SIZE(parts), h);
	memcpy(out, h, KEY_HASH_LEN);
}

int audit_checkpoint_sign(const char *origin, uint64_t size, const uint8_t root[SHA256_LEN],
                          const struct crypto_sign_key *key, char out[AUDIT_NOTE_MAX])
{
	uint8_t pub[ED25519_PUB_LEN], blob[SIG_BLOB_LEN];
	char root64[64], sig64[128];
	int text_len, r;

	crypto_base64(root, SHA256_LEN, root64);
	text_len = snprintf(out, AUDIT_NOTE_MAX, "%s\n%" PRIu64 "\n%s\n", origin, size, root64);
	if (strlen(origin) >= sizeof(((struct audit_checkpoint *)0)->origin))
		return -EMSGSIZE;
	crypto_sign_key_public(key, pub);
	key_hash(origin, strlen(origin), pub, blob);
	r = crypto_sign(key, out, text_len, blob + KEY_HASH_LEN);
	if (r < 0)
		return r;
	crypto_base64(blob, sizeof(blob), sig64);
	snprintf(out + text_len, AUDIT_NOTE_MAX - text_len, "\n%s%s %s\n", sig_dash, origin, sig64);
	return 0;
}

int audit_vkey_format(const char *origin, const uint8_t pub[ED25519_PUB_LEN],
                      char out[AUDIT_VKEY_MAX])
{
	uint8_t hash[KEY_HASH_LEN], blob[1 + ED25519_PUB_LEN];
	char hash16[2 * KEY_HASH_LEN + 1], blob64[64];

	key_hash(origin, strlen(origin), pub, hash);
	blob[0] = NOTE_ALG_ED25519;
	memcpy(blob + 1, pub, ED25519_PUB_LEN);
	crypto_hex(hash, sizeof(hash), hash16);
	crypto_base64(blob, sizeof(blob), blob64);
	if (snprintf(out, AUDIT_VKEY_MAX, "%s+%s+%s", origin, hash16, blob64) >= AUDIT_VKEY_MAX)
		return -EMSGSIZE;
	return 0;
}

static const char blanks[] = "\r\n \t";

/* Names are shown to people: no blanks, no control characters. */
static bool name_good(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= 0x20 || *s == 0x7f || *s == '+')
			return false;
	return true;
}

int audit_vkey_parse(const char *vkey, char ret_name[AUDIT_ORIGIN_MAX],
                     uint8_t ret_pub[ED25519_PUB_LEN], struct ros2_err *err)
{
	const char *hash = strchr(vkey, '+'), *data = hash ? strchr(hash + 1, '+') : NULL;
	uint8_t want[KEY_HASH_LEN], have[KEY_HASH_LEN], blob[1 + ED25519_PUB_LEN];
	char name[AUDIT_ORIGIN_MAX], hash16[2 * KEY_HASH_LEN + 1] = "";
	size_t n = 0, data_len;

	if (!data || hash - vkey >= AUDIT_ORIGIN_MAX || data - hash - 1 != 2 * KEY_HASH_LEN)
		return ros2_err_set(err, -EINVAL, "verifier key: expected NAME+HASH+KEY");
	memcpy(name, vkey, hash - vkey);
	name[hash - vkey] = 0;
	if (!name_good(name))
		return ros2_err_set(err, -EINVAL, "verifier key: its name is no origin of a log");
	memcpy(hash16, hash + 1, 2 * KEY_HASH_LEN);
	data_len = strcspn(data + 1, blanks);
	if (data[1 + data_len + strspn(data + 1 + data_len, blanks)])
		return ros2_err_set(err, -EINVAL, "verifier key: more than one in a text");
	if (crypto_hex_decode(hash16, want, sizeof(want)) < 0 ||
	    crypto_base64_decode(data + 1, data_len, blob, sizeof(blob), &n) < 0 ||
	    n != sizeof(blob) || blob[0] != NOTE_ALG_ED25519)
		return ros2_err_set(err, -EINVAL,
		                    "verifier key: not an Ed25519 key of a signed note");
	key_hash(name, strlen(name), blob + 1, have);
	if (memcmp(have, want, sizeof(have)))
		return ros2_err_set(err, -EINVAL,
		                    "verifier key: its hash does not belong to its key");
	strcpy(ret_name, name);
	memcpy(ret_pub, blob + 1, ED25519_PUB_LEN);
	return 0;
}

/* Takes one line of at most @max - 1 bytes from [*p, end). */
static int take_line(const char **p, const char *end, char *out, size_t max)
{
	const char *nl = memchr(*p, '\n', end - *p);

	if (!nl || (size_t)(nl - *p) >= max || memchr(*p, 0, nl - *p))
		return -EBADMSG;
	memcpy(out, *p, nl - *p);
	out[nl - *p] = 0;
	*p = nl + 1;
	return 0;
}

static int parse_body(const char **p, const char *end, struct audit_checkpoint *ret)
{
	char size[24], root64[64], *stop;
	size_t n = 0;

	if (take_line(p, end, ret->origin, sizeof(ret->origin)) < 0 || !name_good(ret->origin) ||
	    take_line(p, end, size, sizeof(size)) < 0 ||
	    take_line(p, end, root64, sizeof(root64)) < 0)
		return -EBADMSG;
	errno = 0;
	ret->size = strtoull(size, &stop, 10);
	if (errno || *stop || size[0] < '0' || size[0] > '9' || (size[0] == '0' && size[1]))
		return -EBADMSG;
	if (crypto_base64_decode(root64, strlen(root64), ret->root, SHA256_LEN, &n) < 0 ||
	    n != SHA256_LEN)
		return -EBADMSG;
	return 0;
}

/* True for a line "— NAME BASE64" that is this key's good signature over @text. */
static bool signature_good(const char *line, const char *name, const uint8_t pub[ED25519_PUB_LEN],
                           const char *text, size_t text_len)
{
	uint8_t blob[SIG_BLOB_LEN], hash[KEY_HASH_LEN];
	size_t dash = sizeof(sig_dash) - 1, name_len = strlen(name), n = 0;
	const char *sig;

	if (strncmp(line, sig_dash, dash) || strncmp(line + dash, name, name_len) ||
	    line[dash + name_len] != ' ')
		return false;
	sig = line + dash + name_len + 1;
	if (crypto_base64_decode(sig, strlen(sig), blob, sizeof(blob), &n) < 0 || n != sizeof(blob))
		return false;
	key_hash(name, name_len, pub, hash);
	return !memcmp(hash, blob, KEY_HASH_LEN) &&
	       crypto_verify(pub, text, text_len, blob + KEY_HASH_LEN);
}

int audit_checkpoint_open(const void *note, size_t len, const char *vkey,
                          struct audit_checkpoint *ret, struct ros2_err *err)
{
	const char *text = note, *p = note, *end = text + len;
	char name[AUDIT_ORIGIN_MAX], line[512];
	uint8_t pub[ED25519_PUB_LEN];
	struct audit_checkpoint cp;
	size_t text_len;
	int r = vkey ? audit_vkey_parse(vkey, name, pub, err) : 0;

	if (r < 0)
		return r;
	if (len > AUDIT_NOTE_MAX || parse_body(&p, end, &cp) < 0)
		return ros2_err_set(err, -EBADMSG,
		                    "checkpoint: not a note of origin, size and root");
	text_len = p - text;
	if (take_line(&p, end, line, sizeof(line)) < 0 || *line)
		return ros2_err_set(err, -EBADMSG,
		                    "checkpoint %" PRIu64 ": no blank line after the root",
		                    cp.size);
	if (vkey && strcmp(cp.origin, name))
		return ros2_err_set(err, -EBADMSG,
		                    "checkpoint %" PRIu64 ": is of log '%s', the key is for '%s'",
		                    cp.size, cp.origin, name);
	while (vkey && take_line(&p, end, line, sizeof(line)) == 0) {
		if (signature_good(line, name, pub, text, text_len)) {
			*ret = cp;
			return 0;
		}
	}
	if (vkey)
		return ros2_err_set(err, -EBADMSG,
		                    "checkpoint %" PRIu64 ": no good signature by key '%s'",
		                    cp.size, name);
	*ret = cp;
	return 0;
}

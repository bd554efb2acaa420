/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets of DH-HMAC-CHAP: read, checked, and what is computed from them. Nothing here puts a part
 * of a secret into words, and every buffer that held one is wiped.
 */
#include "dataplane/nvmf/auth_priv.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const char form[] = "expected DHHC-1:hh:BASE64: of 32, 48 or 64 bytes and their CRC-32";

bool auth_hash(uint8_t id, enum crypto_hash *ret)
{
	switch (id) {
	case NVME_AUTH_SHA256:
		*ret = CRYPTO_SHA256;
		return true;
	case NVME_AUTH_SHA384:
		*ret = CRYPTO_SHA384;
		return true;
	case NVME_AUTH_SHA512:
		*ret = CRYPTO_SHA512;
		return true;
	default:
		return false;
	}
}

int auth_group_bits(uint8_t id)
{
	static const int bits[] = {0, 2048, 3072, 4096, 6144, 8192};

	return id < ARRAY_SIZE(bits) ? bits[id] : -1;
}

static int decode(const char *base64, size_t n, struct nvme_auth_secret *s, struct ros2_err *err)
{
	uint8_t raw[sizeof(s->key) + 4] = {0};
	uint32_t crc;
	size_t len = 0;
	int r = 0;

	if (crypto_base64_decode(base64, n, raw, sizeof(raw), &len) < 0 ||
	    (len != 36 && len != 52 && len != 68)) {
		r = ros2_err_set(err, -EINVAL, "a secret's base64 is malformed or too short: %s",
		                 form);
	} else {
		s->key_len = (uint8_t)(len - 4);
		memcpy(s->key, raw, s->key_len);
		memcpy(&crc, raw + s->key_len, sizeof(crc));
		if (crc != crypto_crc32(s->key, s->key_len))
			r = ros2_err_set(err, -EINVAL,
			                 "a secret's CRC-32 does not match: mistyped, or cut");
	}
	crypto_wipe(raw, sizeof(raw));
	return r;
}

int nvme_auth_secret_parse(const char *text, struct nvme_auth_secret *ret, struct ros2_err *err)
{
	static const char prefix[] = "DHHC-1:0";
	const size_t head = sizeof(prefix) - 1 + 2; /* the digit and its colon */
	size_t n = strnlen(text, NVME_AUTH_SECRET_TEXT_MAX);
	struct nvme_auth_secret s = {0};
	int r;

	while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	if (n == NVME_AUTH_SECRET_TEXT_MAX || n < head + 1 ||
	    strncmp(text, prefix, sizeof(prefix) - 1) != 0 || text[head - 1] != ':' ||
	    text[n - 1] != ':')
		return ros2_err_set(err, -EINVAL, "a secret has not the form of one: %s", form);
	if (text[head - 2] < '0' || text[head - 2] > '3')
		return ros2_err_set(err, -EINVAL,
		                    "a secret names a hash that is not known: expected 00 to 03");
	s.transform = (uint8_t)(text[head - 2] - '0');
	r = decode(text + head, n - head - 1, &s, err);
	if (r == 0)
		*ret = s;
	nvme_auth_secret_wipe(&s);
	return r;
}

void nvme_auth_secret_wipe(struct nvme_auth_secret *s)
{
	crypto_wipe(s, sizeof(*s));
}

static int check_file(int fd, const char *name, struct ros2_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return ros2_err_set(err, -errno, "secret %s: %s", name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ros2_err_set(err, -EPERM, "secret %s: expected a regular file", name);
	if (st.st_mode & 077)
		return ros2_err_set(err, -EPERM,
		                    "secret %s: mode %04o, expected one that only its owner may "
		                    "use (0600)",
		                    name, (unsigned)(st.st_mode & 07777));
	return 0;
}

/* Returns how many bytes, NVME_AUTH_SECRET_TEXT_MAX for more than a secret can have. */
static ssize_t read_all(int fd, char buf[NVME_AUTH_SECRET_TEXT_MAX])
{
	size_t n = 0;

	while (n < NVME_AUTH_SECRET_TEXT_MAX) {
		ssize_t k = read(fd, buf + n, NVME_AUTH_SECRET_TEXT_MAX - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		n += (size_t)k;
	}
	return (ssize_t)n;
}

int nvme_auth_secret_load(const char *dir, const char *name, struct nvme_auth_secret *ret,
                          struct ros2_err *err)
{
	char text[NVME_AUTH_SECRET_TEXT_MAX + 1] = {0};
	AUTO_CLOSE int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int fd = -1;
	ssize_t n;
	int r;

	if (dirfd < 0)
		return ros2_err_set(err, -errno, "directory of secrets %s: %s", dir,
		                    strerror(errno));
	if (!name[0] || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return ros2_err_set(err, -EINVAL,
		                    "secret \"%s\": expected the name of a file, without /", name);
	/* O_NONBLOCK: a FIFO of that name must not stop us. */
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return ros2_err_set(err, -errno, "secret %s: %s", name, strerror(errno));
	r = check_file(fd, name, err);
	if (r < 0)
		return r;
	n = read_all(fd, text);
	if (n < 0)
		r = ros2_err_set(err, (int)n, "secret %s: %s", name, strerror((int)-n));
	else if (strlen(text) != (size_t)n)
		r = ros2_err_set(err, -EINVAL, "secret %s: has a NUL in it", name);
	else
		r = nvme_auth_secret_parse(text, ret, err);
	if (r == -EINVAL)
		ros2_err_prefix(err, "secret %s", name);
	crypto_wipe(text, sizeof(text));
	return r;
}

size_t auth_transform(const struct nvme_auth_secret *s, const char *nqn,
                      uint8_t out[CRYPTO_HASH_MAX])
{
	static const char label[] = "NVMe-over-Fabrics";
	const struct crypto_span parts[] = {{nqn, strlen(nqn)}, {label, sizeof(label) - 1}};
	enum crypto_hash h;

	if (!auth_hash(s->transform, &h)) {
		memcpy(out, s->key, s->key_len);
		return s->key_len;
	}
	crypto_hmac(h, s->key, s->key_len, parts, ARRAY_SIZE(parts), out);
	return crypto_hash_len(h);
}

void auth_augment(enum crypto_hash h, const uint8_t *shared, size_t shared_len, uint8_t *inout)
{
	const struct crypto_span part = {inout, crypto_hash_len(h)};
	uint8_t key[CRYPTO_HASH_MAX], out[CRYPTO_HASH_MAX];

	crypto_hash(h, shared, shared_len, key);
	crypto_hmac(h, key, crypto_hash_len(h), &part, 1, out);
	memcpy(inout, out, crypto_hash_len(h));
	crypto_wipe(key, sizeof(key));
	crypto_wipe(out, sizeof(out));
}

void auth_response(const struct auth_proof *p, uint8_t out[CRYPTO_HASH_MAX])
{
	static const uint8_t zero; /* SC_C: no secure channel; and the byte between the names */
	const struct crypto_span parts[] = {
		{p->challenge, crypto_hash_len(p->hash)},
		{&p->seqnum, sizeof(p->seqnum)},
		{&p->tid, sizeof(p->tid)},
		{&zero, 1},
		{p->role, strlen(p->role)},
		{p->from, strlen(p->from)},
		{&zero, 1},
		{p->to, strlen(p->to)},
	};

	crypto_hmac(p->hash, p->key, p->key_len, parts, ARRAY_SIZE(parts), out);
}

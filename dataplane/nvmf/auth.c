/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of DH-HMAC-CHAP and their order, as the host sees them (auth.h has the diagram).
 * What the target sends is copied out of its buffer once and checked before use: the hash and group
 * must be among those offered, lengths must be theirs, and the answer is compared in constant time.
 */
#include "dataplane/nvmf/auth_priv.h"
#include "common/util.h"
#include "dataplane/nvmf/codec.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is sent or received next. */
enum turn { NEGOTIATE, CHALLENGE, REPLY, SUCCESS1, SUCCESS2, FAILURE2, ENDED_WELL, ENDED_BADLY };

struct nvme_auth {
	/* immutable after init */
	struct nvme_auth_secret host, target;
	bool mutual, require_dh;
	char hostnqn[NVMF_NQN_MAX + 1], subnqn[NVMF_NQN_MAX + 1];
	uint16_t tid;
	/* as it goes */
	enum turn turn;
	uint8_t why; /* enum nvme_auth_reason, for failure2 */
	enum crypto_hash hash;
	uint8_t challenge1[CRYPTO_HASH_MAX], challenge2[CRYPTO_HASH_MAX];
	uint32_t seqnum1, seqnum2;
	struct crypto_dh *dh;          /* owned; NULL in the null group */
	uint8_t shared[CRYPTO_DH_MAX]; /* with dh */
};

static const uint8_t all_hashes[] = {NVME_AUTH_SHA256, NVME_AUTH_SHA384, NVME_AUTH_SHA512};
static const uint8_t all_groups[] = {NVME_AUTH_DH_NULL, NVME_AUTH_DH_2048, NVME_AUTH_DH_3072,
                                     NVME_AUTH_DH_4096, NVME_AUTH_DH_6144, NVME_AUTH_DH_8192};

const char *nvme_auth_step_to_str(enum nvme_auth_step s)
{
	static const char *const names[] = {
		[NVME_AUTH_SEND] = "SEND",
		[NVME_AUTH_RECEIVE] = "RECEIVE",
		[NVME_AUTH_DONE] = "DONE",
		[NVME_AUTH_FAILED] = "FAILED",
	};

	return (unsigned)s < ARRAY_SIZE(names) ? names[s] : "UNKNOWN";
}

enum nvme_auth_step nvme_auth_step(const struct nvme_auth *a)
{
	switch (a->turn) {
	case CHALLENGE:
	case SUCCESS1:
		return NVME_AUTH_RECEIVE;
	case ENDED_WELL:
		return NVME_AUTH_DONE;
	case ENDED_BADLY:
		return NVME_AUTH_FAILED;
	default:
		return NVME_AUTH_SEND;
	}
}

int nvme_auth_new(const struct nvme_auth_opts *o, struct nvme_auth **ret, struct ros2_err *err)
{
	struct nvme_auth *a;

	if (!nvme_nqn_valid(o->hostnqn) || !nvme_nqn_valid(o->subnqn))
		return ros2_err_set(err, -EINVAL, "authentication: expected two NQNs");
	a = calloc(1, sizeof(*a));
	if (!a)
		return ros2_err_set(err, -ENOMEM, "authentication: no memory");
	a->host = *o->host;
	a->mutual = o->target;
	if (o->target)
		a->target = *o->target;
	a->require_dh = o->require_dh;
	strcpy(a->hostnqn, o->hostnqn);
	strcpy(a->subnqn, o->subnqn);
	crypto_random(&a->tid, sizeof(a->tid));
	a->turn = NEGOTIATE;
	*ret = a;
	return 0;
}

void nvme_auth_free(struct nvme_auth *a)
{
	if (!a)
		return;
	crypto_dh_free(a->dh);
	crypto_wipe(a, sizeof(*a));
	free(a);
}

static struct nvme_auth_head head(const struct nvme_auth *a, uint8_t type, uint8_t id)
{
	return (struct nvme_auth_head){.type = type, .id = id, .tid = a->tid};
}

static size_t build_negotiate(const struct nvme_auth *a, uint8_t *buf)
{
	size_t skip = a->require_dh ? 1 : 0;
	struct nvme_auth_negotiate m = {
		.head = head(a, NVME_AUTH_COMMON, NVME_AUTH_NEGOTIATE),
		.napd = 1,
		.authid = 1,
		.halen = sizeof(all_hashes),
		.dhlen = (uint8_t)(sizeof(all_groups) - skip),
	};

	memcpy(m.hashes, all_hashes, sizeof(all_hashes));
	memcpy(m.groups, all_groups + skip, sizeof(all_groups) - skip);
	memcpy(buf, &m, sizeof(m));
	return sizeof(m);
}

/* What @challenge wants to see of the owner of @secret. */
static void prove(const struct nvme_auth *a, bool host, uint8_t out[CRYPTO_HASH_MAX])
{
	const char *nqn = host ? a->hostnqn : a->subnqn;
	uint8_t key[CRYPTO_HASH_MAX], challenge[CRYPTO_HASH_MAX];
	struct auth_proof p = {
		.hash = a->hash,
		.key = key,
		.key_len = auth_transform(host ? &a->host : &a->target, nqn, key),
		.challenge = challenge,
		.seqnum = host ? a->seqnum1 : a->seqnum2,
		.tid = a->tid,
		.role = host ? "HostHost" : "Controller",
		.from = nqn,
		.to = host ? a->subnqn : a->hostnqn,
	};

	memcpy(challenge, host ? a->challenge1 : a->challenge2, sizeof(challenge));
	if (a->dh)
		auth_augment(a->hash, a->shared, crypto_dh_len(a->dh), challenge);
	auth_response(&p, out);
	crypto_wipe(key, sizeof(key));
}

static int build_reply(struct nvme_auth *a, uint8_t *buf, size_t *ret_len, struct ros2_err *err)
{
	size_t hl = crypto_hash_len(a->hash), dhvlen = a->dh ? crypto_dh_len(a->dh) : 0;
	struct nvme_auth_reply m = {
		.head = head(a, NVME_AUTH_DHCHAP, NVME_AUTH_REPLY),
		.hl = (uint8_t)hl,
		.cvalid = a->mutual,
		.dhvlen = (uint16_t)dhvlen,
	};
	uint8_t proof[CRYPTO_HASH_MAX];
	int r;

	if (a->mutual) {
		crypto_random(a->challenge2, hl);
		do {
			crypto_random(&a->seqnum2, sizeof(a->seqnum2));
		} while (!a->seqnum2); /* 0 stands for "no challenge" */
		m.seqnum = a->seqnum2;
	}
	prove(a, true, proof);
	memcpy(buf, &m, sizeof(m));
	memcpy(buf + sizeof(m), proof, hl);
	memcpy(buf + sizeof(m) + hl, a->challenge2, hl); /* zeroes if not valid */
	if (a->dh) {
		r = crypto_dh_public(a->dh, buf + sizeof(m) + 2 * hl, err);
		if (r < 0)
			return r;
	}
	*ret_len = sizeof(m) + 2 * hl + dhvlen;
	return 0;
}

static size_t build_success2(const struct nvme_auth *a, uint8_t *buf)
{
	const struct nvme_auth_success2 m = {.head = head(a, NVME_AUTH_DHCHAP, NVME_AUTH_SUCCESS2)};

	memcpy(buf, &m, sizeof(m));
	return sizeof(m);
}

static size_t build_failure2(const struct nvme_auth *a, uint8_t *buf)
{
	const struct nvme_auth_failure m = {
		.head = head(a, NVME_AUTH_COMMON, NVME_AUTH_FAILURE2),
		.reason = 1,
		.why = a->why,
	};

	memcpy(buf, &m, sizeof(m));
	return sizeof(m);
}

int nvme_auth_build(struct nvme_auth *a, uint8_t *buf, size_t *ret_len, struct ros2_err *err)
{
	int r = 0;

	switch (a->turn) {
	case NEGOTIATE:
		*ret_len = build_negotiate(a, buf);
		a->turn = CHALLENGE;
		break;
	case REPLY:
		r = build_reply(a, buf, ret_len, err);
		a->turn = r < 0 ? ENDED_BADLY : SUCCESS1;
		break;
	case SUCCESS2:
		*ret_len = build_success2(a, buf);
		a->turn = ENDED_WELL;
		break;
	case FAILURE2:
		*ret_len = build_failure2(a, buf);
		a->turn = ENDED_BADLY;
		break;
	default:
		assert(!"nothing to send");
	}
	return r;
}

/* The target is told why; the caller gets the words. */
#define REFUSE(a, reason, err, code, ...)                                                          \
	((a)->turn = FAILURE2, (a)->why = (reason), ros2_err_set(err, code, __VA_ARGS__))

static const char *why_text(uint8_t why)
{
	static const char *const texts[] = {
		[NVME_AUTH_WHY_FAILED] = "authentication failed",
		[NVME_AUTH_WHY_PROTOCOL] = "authentication protocol not usable",
		[NVME_AUTH_WHY_CHANNEL] = "secure channel concatenation mismatch",
		[NVME_AUTH_WHY_HASH] = "hash function not usable",
		[NVME_AUTH_WHY_GROUP] = "Diffie-Hellman group not usable",
		[NVME_AUTH_WHY_PAYLOAD] = "incorrect payload",
		[NVME_AUTH_WHY_MESSAGE] = "incorrect protocol message",
	};

	return why < ARRAY_SIZE(texts) && texts[why] ? texts[why] : "unknown reason";
}

static int check_head(struct nvme_auth *a, const uint8_t *p, size_t len, uint8_t id,
                      struct ros2_err *err)
{
	struct nvme_auth_failure f;
	struct nvme_auth_head h;

	if (len < sizeof(f))
		return REFUSE(a, NVME_AUTH_WHY_PAYLOAD, err, -EPROTO,
		              "target sent an authentication message of %zu bytes: expected 8 or "
		              "more",
		              len);
	memcpy(&h, p, sizeof(h));
	memcpy(&f, p, sizeof(f));
	if (h.type == NVME_AUTH_COMMON && h.id == NVME_AUTH_FAILURE1) {
		a->turn = ENDED_BADLY;
		return ros2_err_set(err, -EKEYREJECTED,
		                    "target refused to authenticate us: %s (reason %u, %u)",
		                    why_text(f.why), f.reason, f.why);
	}
	if (h.type != NVME_AUTH_DHCHAP || h.id != id)
		return REFUSE(a, NVME_AUTH_WHY_MESSAGE, err, -EPROTO,
		              "target sent authentication message %u of type %u: expected %u of "
		              "type %u",
		              h.id, h.type, id, NVME_AUTH_DHCHAP);
	if (h.tid != a->tid)
		return REFUSE(a, NVME_AUTH_WHY_MESSAGE, err, -EPROTO,
		              "target sent authentication transaction 0x%04x: expected 0x%04x",
		              h.tid, a->tid);
	return 0;
}

static int take_group(struct nvme_auth *a, uint8_t group, const uint8_t *value,
                      struct ros2_err *err)
{
	int bits = auth_group_bits(group), r;

	if (bits == 0)
		return 0;
	r = crypto_dh_new((unsigned)bits, &a->dh, err);
	if (r < 0) {
		a->turn = ENDED_BADLY;
		return r;
	}
	r = crypto_dh_secret(a->dh, value, a->shared, err);
	if (r < 0)
		return REFUSE(a, NVME_AUTH_WHY_PAYLOAD, err, -EPROTO,
		              "target sent a Diffie-Hellman value that is none of its group: "
		              "expected 2 to p - 2");
	return 0;
}

static int take_challenge(struct nvme_auth *a, const uint8_t *p, size_t len, struct ros2_err *err)
{
	struct nvme_auth_challenge m;
	size_t hl;
	int bits;

	if (len < sizeof(m))
		return REFUSE(a, NVME_AUTH_WHY_PAYLOAD, err, -EPROTO,
		              "target sent a challenge of %zu bytes: expected %zu or more", len,
		              sizeof(m));
	memcpy(&m, p, sizeof(m));
	if (!auth_hash(m.hash, &a->hash))
		return REFUSE(a, NVME_AUTH_WHY_HASH, err, -EPROTO,
		              "target sent hash %u: expected 1 to 3, as offered", m.hash);
	hl = crypto_hash_len(a->hash);
	if (m.hl != hl)
		return REFUSE(a, NVME_AUTH_WHY_HASH, err, -EPROTO,
		              "target sent hash length %u for hash %u: expected %zu", m.hl, m.hash,
		              hl);
	bits = auth_group_bits(m.group);
	if (bits < 0 || (bits == 0 && a->require_dh))
		return REFUSE(a, NVME_AUTH_WHY_GROUP, err, -EPROTO,
		              "target sent Diffie-Hellman group %u: expected %u to 5, as offered",
		              m.group, a->require_dh ? 1 : 0);
	if (m.dhvlen != bits / 8 || len < sizeof(m) + hl + m.dhvlen)
		return REFUSE(a, NVME_AUTH_WHY_PAYLOAD, err, -EPROTO,
		              "target sent a Diffie-Hellman value of %u bytes in a message of %zu: "
		              "expected %u, in %zu or more",
		              m.dhvlen, len, (unsigned)bits / 8,
		              sizeof(m) + hl + (unsigned)bits / 8);
	a->seqnum1 = m.seqnum;
	memcpy(a->challenge1, p + sizeof(m), hl);
	a->turn = REPLY;
	return take_group(a, m.group, p + sizeof(m) + hl, err);
}

static int take_success1(struct nvme_auth *a, const uint8_t *p, size_t len, struct ros2_err *err)
{
	size_t hl = crypto_hash_len(a->hash);
	uint8_t expected[CRYPTO_HASH_MAX];
	struct nvme_auth_success1 m;
	bool equal;

	if (len < sizeof(m))
		return REFUSE(a, NVME_AUTH_WHY_PAYLOAD, err, -EPROTO,
		              "target sent a success of %zu bytes: expected %zu or more", len,
		              sizeof(m));
	memcpy(&m, p, sizeof(m));
	if (!a->mutual) {
		a->turn = ENDED_WELL;
		return 0;
	}
	if (!(m.rvalid & 1) || m.hl != hl)
		return REFUSE(a, NVME_AUTH_WHY_FAILED, err, -EKEYREJECTED,
		              "target did not prove that it knows its secret: sent no response of "
		              "%zu bytes",
		              hl);
	if (len < sizeof(m) + hl)
		return REFUSE(a, NVME_AUTH_WHY_PAYLOAD, err, -EPROTO,
		              "target sent a success of %zu bytes: expected %zu or more", len,
		              sizeof(m) + hl);
	prove(a, false, expected);
	equal = crypto_equal(expected, p + sizeof(m), hl);
	crypto_wipe(expected, sizeof(expected));
	if (!equal)
		return REFUSE(a, NVME_AUTH_WHY_FAILED, err, -EKEYREJECTED,
		              "target did not prove that it knows its secret: its response is "
		              "wrong");
	a->turn = SUCCESS2;
	return 0;
}

int nvme_auth_take(struct nvme_auth *a, const void *data, size_t len, struct ros2_err *err)
{
	bool challenge = a->turn == CHALLENGE;
	int r;

	assert(nvme_auth_step(a) == NVME_AUTH_RECEIVE);
	r = check_head(a, data, len, challenge ? NVME_AUTH_CHALLENGE : NVME_AUTH_SUCCESS1, err);
	if (r < 0)
		return r;
	return challenge ? take_challenge(a, data, len, err) : take_success1(a, data, len, err);
}

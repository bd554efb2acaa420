/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was taken away when the journal of revocations had no slot left: a filter (Bloom) of what
 * they are about, behind the slots of the same file. It takes any number of them in the same place
 * and forgets none; what it may do is name something that nobody revoked. A start carries out a
 * revocation of all that it names: in doubt a right is denied. Layout:
 * docs/decisions/0037-revocations-beyond-the-slots.md.
 *
 * Invariants: (1) bits are only ever added, so a write that is torn loses none of those before it;
 * (2) it is emptied when each revocation that is in it is committed, and until then nothing that
 * gives rights is: what it names cannot be given anew meanwhile. Store thread, or before it runs.
 */
#include "controller/store_front_priv.h"
#include "common/crypto.h"
#include "common/hash.h"
#include <errno.h>
#include <string.h>

#define LOG_COMPONENT "store"
#include "common/log.h"

#define HEAD_LEN 64 /* the highest version that was given out with them, and zeros */
#define BITS     ((STORE_DOUBT_LEN - HEAD_LEN) * 8u)
#define HASHES   8 /* false ones: 1 in 10^9 with 4000 in it, 1 in 140 with 50,000 */

_Static_assert(HASHES * 4 == SHA256_LEN, "four bytes of the hash for each");

/* A revocation that is nowhere but in the filter, by its uid. */
struct doubted {
	struct ros2_uid uid;
	UT_hash_handle hh;
};

static uint64_t version_of(const uint8_t *area)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | area[i];
	return v;
}

static void bits_of(uint32_t kind, const struct ros2_uid *uid, uint32_t ret[HASHES])
{
	uint8_t in[4 + ROS2_UID_LEN], sum[SHA256_LEN];

	for (int i = 0; i < 4; i++)
		in[i] = (uint8_t)(kind >> (8 * i));
	memcpy(in + 4, uid->b, ROS2_UID_LEN);
	crypto_sha256(in, sizeof(in), sum);
	for (int i = 0; i < HASHES; i++) {
		const uint8_t *p = sum + (size_t)4 * i;

		ret[i] = ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
		          (uint32_t)p[3] << 24) %
		         BITS;
	}
}

bool store_doubts(const struct store *s, uint32_t kind, const struct ros2_uid *uid)
{
	const uint8_t *bits = store_journal_doubt(s) + HEAD_LEN;
	uint32_t at[HASHES];

	bits_of(kind, uid, at);
	for (int i = 0; i < HASHES; i++)
		if (!(bits[at[i] / 8] & 1u << at[i] % 8))
			return false;
	return true;
}

bool store_doubt_any(const struct store *s)
{
	const uint8_t *area = store_journal_doubt(s);

	for (size_t i = 0; area && i < STORE_DOUBT_LEN; i++)
		if (area[i])
			return true;
	return false;
}

uint64_t store_doubt_revision(const struct store *s)
{
	return version_of(store_journal_doubt(s));
}

static void add(uint8_t *area, const struct store_target *t)
{
	uint32_t at[HASHES];

	bits_of(t->kind, &t->uid, at);
	for (int i = 0; i < HASHES; i++)
		area[HEAD_LEN + at[i] / 8] |= (uint8_t)(1u << at[i] % 8);
}

static struct doubted *find(const struct store *s, const struct ros2_uid *uid)
{
	struct doubted *d;

	HASH_FIND(hh, s->doubted, uid, sizeof(*uid), d);
	return d;
}

int store_doubt_owe(struct store *s, const struct ros2_uid *revocation)
{
	struct doubted *d;

	if (find(s, revocation))
		return 0;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->uid = *revocation;
	HASH_ADD(hh, s->doubted, uid, sizeof(d->uid), d);
	if (!HASH_TOOK(hh, d)) {
		free(d);
		return -ENOMEM;
	}
	s->n_doubted++;
	return 0;
}

bool store_doubt_put(struct store *s, const struct store_txn *t)
{
	uint8_t *area = store_journal_doubt(s);
	struct ros2_uid uid;
	uint64_t version;

	if (!area || !t->n_targets)
		return false;
	version = MAX(version_of(area), t->revision);
	memcpy(uid.b, t->note, sizeof(uid.b));
	if (store_doubt_owe(s, &uid) < 0)
		return false;
	for (size_t i = 0; i < t->n_targets; i++)
		add(area, &t->targets[i]);
	for (int i = 0; i < 8; i++)
		area[i] = (uint8_t)(version >> (8 * i));
	return true;
}

bool store_doubt_done(struct store *s, const struct store_txn *t)
{
	struct ros2_uid uid;
	struct doubted *d;

	if (!s->doubted || !t->note)
		return false;
	memcpy(uid.b, t->note, sizeof(uid.b));
	d = find(s, &uid);
	if (!d)
		return false;
	HASH_DEL(s->doubted, d);
	free(d);
	s->n_doubted--;
	return !s->doubted;
}

void store_doubt_fini(struct store *s)
{
	struct doubted *d, *tmp;

	HASH_ITER (hh, s->doubted, d, tmp) {
		HASH_DEL(s->doubted, d);
		free(d);
	}
}

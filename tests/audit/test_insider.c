/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The insider: may write every byte of the database, knows every hash, has no signing key. Each
 * attack is made three ways (bytes only; everything rehashed; everything rehashed and the
 * checkpoints that would tell removed) and the table says who notices: the chain alone, the key, or
 * only somebody who kept a checkpoint. What only the third notices is what docs/audit.md says a log
 * cannot prove by itself.
 */
#include "tests/testing.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include <errno.h>

#define ORIGIN  "ros2.test/audit"
#define RECORDS 12
#define FIRST   5 /* records of the first checkpoint; the second covers all */

static const char *const tenants[] = {"", "0000000000000000000000000000000a",
                                      "0000000000000000000000000000000b"};

/* What a record says; where it stands and its hashes come from appending it. */
struct said {
	unsigned tenant;
	char reason[16];
};

struct history {
	struct said said[RECORDS + 1];
	size_t n;
};

struct log {
	struct audit_appended rec[RECORDS + 1];
	size_t n;
	char note[2][AUDIT_NOTE_MAX];
	uint64_t note_at[2]; /* 0: removed */
	char vkey[AUDIT_VKEY_MAX];
};

/* Appends @h as a controller would; signs only with a key. */
static void write_log(struct log *l, const struct history *h, const struct crypto_sign_key *key)
{
	struct audit_tenant_head heads[3] = {0};
	struct audit_head head = {0};

	*l = (struct log){.n = h->n};
	for (size_t i = 0; i < h->n; i++) {
		Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
		unsigned t = h->said[i].tenant;
		uint8_t root[SHA256_LEN];
		int k = i + 1 == FIRST ? 0 : i + 1 == RECORDS ? 1 : -1;

		rec.action = (char *)"grant.issue";
		rec.reason = (char *)h->said[i].reason;
		rec.tenant_uid = (char *)tenants[t];
		assert_int_equal(audit_append(&head, t ? &heads[t] : NULL, &rec, &l->rec[i], NULL),
		                 0);
		if (k < 0 || !key)
			continue;
		merkle_acc_root(&head.tree, root);
		assert_int_equal(audit_checkpoint_sign(ORIGIN, i + 1, root, key, l->note[k]), 0);
		l->note_at[k] = i + 1;
	}
}

static void free_log(struct log *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->rec[i].bytes);
}

/* 0 when the verifier has nothing to say. */
static int verify(const struct log *l, const char *vkey, const char *held)
{
	struct audit_verifier *v = NULL;
	int r = 0;

	assert_int_equal(audit_verifier_new(vkey, &v, NULL), 0);
	if (held)
		assert_int_equal(audit_verifier_hold(v, held, strlen(held), NULL), 0);
	for (size_t i = 0; i < l->n && !r; i++) {
		r = audit_verifier_record(v, l->rec[i].seq, l->rec[i].bytes, l->rec[i].len,
		                          l->rec[i].chain, NULL);
		for (int k = 0; k < 2 && !r; k++)
			if (l->note_at[k] == i + 1)
				r = audit_verifier_checkpoint(v, l->note[k], strlen(l->note[k]),
				                              NULL);
	}
	if (!r)
		r = audit_verifier_end(v, NULL);
	audit_verifier_free(v);
	return r;
}

/* The attacks, on what the records say. @at: the first record concerned, from 0. */
typedef void attack_fn(struct history *h, size_t at);

static void change(struct history *h, size_t at)
{
	strcpy(h->said[at].reason, "forged");
}
static void drop(struct history *h, size_t at)
{
	memmove(&h->said[at], &h->said[at + 1], (--h->n - at) * sizeof(h->said[0]));
}
static void repeat(struct history *h, size_t at)
{
	memmove(&h->said[at + 1], &h->said[at], (h->n++ - at) * sizeof(h->said[0]));
}
static void reorder(struct history *h, size_t at)
{
	struct said s = h->said[at];

	h->said[at] = h->said[at + 1];
	h->said[at + 1] = s;
}
static void swap_tenants(struct history *h, size_t at)
{
	for (size_t i = at; i < h->n; i++)
		if (h->said[i].tenant)
			h->said[i].tenant = 3 - h->said[i].tenant;
}
static void hide_tenant(struct history *h, size_t at)
{
	h->said[at].tenant = 0;
}
static void truncate_here(struct history *h, size_t at)
{
	h->n = at;
}

static const struct {
	const char *name;
	attack_fn *fn;
} attacks[] = {
	{"change", change},          {"drop", drop},         {"repeat", repeat},
	{"reorder", reorder},        {"swap", swap_tenants}, {"hide", hide_tenant},
	{"truncate", truncate_here},
};

static struct crypto_sign_key *honest(struct history *h, struct log *l)
{
	struct crypto_sign_key *key = NULL;
	uint8_t pub[ED25519_PUB_LEN];

	*h = (struct history){.n = RECORDS};
	for (size_t i = 0; i < RECORDS; i++) {
		h->said[i].tenant = (unsigned)(i % 3);
		snprintf(h->said[i].reason, sizeof(h->said[i].reason), "%zu", i);
	}
	assert_int_equal(crypto_sign_key_new(&key, NULL), 0);
	write_log(l, h, key);
	crypto_sign_key_public(key, pub);
	assert_int_equal(audit_vkey_format(ORIGIN, pub, l->vkey), 0);
	return key;
}

/* Everything hashed again; of the checkpoints those that cover no more than @keep records stay. */
static void forge(struct log *out, const struct history *h, const struct log *from, uint64_t keep)
{
	write_log(out, h, NULL);
	for (int k = 0; k < 2; k++) {
		memcpy(out->note[k], from->note[k], AUDIT_NOTE_MAX);
		out->note_at[k] = from->note_at[k] <= keep ? from->note_at[k] : 0;
	}
}

static void expect(const char *what, size_t at, const char *how, int found, int wanted)
{
	if (found != wanted)
		fail_msg("%s at record %zu, %s: expected %d, found %d", what, at + 1, how, wanted,
		         found);
}

static void audit_insider__is_found_by_the_key_unless_only_the_unsigned_end_is_touched(void **state)
{
	struct history h, bad;
	struct log good;
	struct crypto_sign_key *key = honest(&h, &good);

	assert_int_equal(verify(&good, NULL, NULL), 0);
	assert_int_equal(verify(&good, good.vkey, NULL), 0);
	assert_int_equal(verify(&good, good.vkey, good.note[0]), 0);
	assert_int_equal(verify(&good, good.vkey, good.note[1]), 0);
	for (size_t a = 0; a < ARRAY_SIZE(attacks); a++) {
		for (size_t at = 1; at + 1 < RECORDS; at++) {
			/* all it touches lies behind the first checkpoint; what is repeated stays
			 */
			bool end = at + (attacks[a].fn == repeat) >= FIRST;
			bool cut = attacks[a].fn == truncate_here;
			bool less = cut || attacks[a].fn == drop;
			const char *name = attacks[a].name;
			struct log l;

			if (attacks[a].fn == hide_tenant && !h.said[at].tenant)
				continue;
			bad = h;
			attacks[a].fn(&bad, at);
			/* the checkpoints stay; of a shorter log the last stands behind nothing */
			forge(&l, &bad, &good, RECORDS);
			expect(name, at, "no key", verify(&l, NULL, NULL),
			       cut || (less && end) ? 0 : -EBADMSG);
			expect(name, at, "key", verify(&l, good.vkey, NULL),
			       less && end ? 0 : -EBADMSG);
			expect(name, at, "kept", verify(&l, good.vkey, good.note[1]), -EBADMSG);
			free_log(&l);
			/* no checkpoint stays: nothing is signed any more */
			forge(&l, &bad, &good, 0);
			expect(name, at, "unsigned, no key", verify(&l, NULL, NULL), 0);
			expect(name, at, "unsigned", verify(&l, good.vkey, NULL), -EBADMSG);
			free_log(&l);
			/* only those stay that do not tell */
			forge(&l, &bad, &good, FIRST);
			expect(name, at, "cut back", verify(&l, good.vkey, NULL),
			       end ? 0 : -EBADMSG);
			expect(name, at, "cut back, old one kept",
			       verify(&l, good.vkey, good.note[0]), end ? 0 : -EBADMSG);
			expect(name, at, "cut back, kept", verify(&l, good.vkey, good.note[1]),
			       -EBADMSG);
			free_log(&l);
		}
	}
	free_log(&good);
	crypto_sign_key_free(key);
}

/* Who could, would have an older checkpoint kept for it, and then write anew what lies between. */
static void audit_insider__cannot_take_a_checkpoint_away_from_who_kept_it(void **state)
{
	struct history h;
	struct log good;
	struct crypto_sign_key *key = honest(&h, &good);

	good.note_at[1] = 0;
	assert_int_equal(verify(&good, good.vkey, NULL), 0);
	assert_int_equal(verify(&good, good.vkey, good.note[0]), 0);
	assert_int_equal(verify(&good, good.vkey, good.note[1]), -EBADMSG);
	assert_int_equal(verify(&good, NULL, good.note[1]), -EBADMSG);
	good.note_at[1] = RECORDS;
	assert_int_equal(verify(&good, good.vkey, good.note[1]), 0);
	free_log(&good);
	crypto_sign_key_free(key);
}

static void audit_insider__who_moves_stored_bytes_is_found_by_the_chain(void **state)
{
	struct history h;
	struct log good, l;
	struct crypto_sign_key *key = honest(&h, &good);

	for (size_t at = 0; at + 1 < RECORDS; at++) {
		for (int how = 0; how < 5; how++) {
			l = good;
			if (how == 0 ||
			    how == 1) { /* two rows change places, with or without seq */
				l.rec[at] = good.rec[at + 1];
				l.rec[at + 1] = good.rec[at];
				l.rec[at].seq = how ? at + 1 : at + 2;
				l.rec[at + 1].seq = how ? at + 2 : at + 1;
			} else if (how == 2) { /* a row is there twice */
				l.rec[at + 1] = good.rec[at];
				l.rec[at + 1].seq = at + 2;
			} else if (how == 3) { /* a row is gone, the rest moves up */
				memmove(&l.rec[at], &l.rec[at + 1],
				        (--l.n - at) * sizeof(l.rec[0]));
				for (size_t i = at; i < l.n; i++)
					l.rec[i].seq = i + 1;
			} else { /* the chain value of another row */
				memcpy(l.rec[at].chain, good.rec[at + 1].chain, SHA256_LEN);
			}
			expect("moved", at, "bytes", verify(&l, NULL, NULL), -EBADMSG);
		}
	}
	free_log(&good);
	crypto_sign_key_free(key);
}

/* Chain and tree right, but not by audit_append: a tenant's history begins anew, a record claims a
 * place without a tenant, a format nobody knows. */
static void audit_insider__cannot_break_a_tenants_history_within_a_right_chain(void **state)
{
	for (int how = 0; how < 5; how++) {
		struct audit_verifier *v = NULL;
		struct audit_head head = {0};
		uint8_t leaf[SHA256_LEN], zero[SHA256_LEN] = {0};
		int r = 0;

		assert_int_equal(audit_verifier_new(NULL, &v, NULL), 0);
		for (uint64_t seq = 1; seq <= 2 && !r; seq++) {
			Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
			uint8_t bytes[256], joined[2 * SHA256_LEN];
			size_t len;

			rec.format = seq == 2 && how == 4 ? 2 : AUDIT_FORMAT;
			rec.seq = seq;
			rec.tenant_uid = (char *)tenants[seq == 2 && how == 3 ? 0 : 1];
			rec.tenant_seq = seq == 2 && how == 1 ? 1 : seq;
			rec.tenant_prev.data = seq == 1 || how == 2 ? zero : leaf;
			rec.tenant_prev.len = SHA256_LEN;
			if (seq == 2 && how == 3)
				rec.tenant_seq = 0;
			len = ros2__v1__audit_record__pack(&rec, bytes);
			merkle_leaf(bytes, len, leaf);
			memcpy(joined, head.chain, SHA256_LEN);
			memcpy(joined + SHA256_LEN, leaf, SHA256_LEN);
			crypto_sha256(joined, sizeof(joined), head.chain);
			r = audit_verifier_record(v, seq, bytes, len, head.chain, NULL);
			assert_true(seq == 2 || r == 0);
		}
		assert_int_equal(r, how ? -EBADMSG : 0); /* 0: the control */
		audit_verifier_free(v);
	}
}

static void audit_verifier__refuses_a_key_that_is_none_before_the_first_record(void **state)
{
	static const char *const bad[] = {"", "x", "a+b+c", "ros2.test/audit+00000000+AAAA"};
	struct audit_verifier *v = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(audit_verifier_new(bad[i], &v, NULL), -EINVAL);
}

static void audit_verifier__takes_no_kept_checkpoint_of_another_key(void **state)
{
	struct history h;
	struct log a, b;
	struct crypto_sign_key *ka = honest(&h, &a), *kb = honest(&h, &b);
	struct audit_verifier *v = NULL;

	assert_int_equal(audit_verifier_new(a.vkey, &v, NULL), 0);
	assert_int_equal(audit_verifier_hold(v, b.note[0], strlen(b.note[0]), NULL), -EBADMSG);
	assert_int_equal(audit_verifier_hold(v, "", 0, NULL), -EBADMSG);
	audit_verifier_free(v);
	free_log(&a);
	free_log(&b);
	crypto_sign_key_free(ka);
	crypto_sign_key_free(kb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			audit_insider__is_found_by_the_key_unless_only_the_unsigned_end_is_touched),
		cmocka_unit_test(audit_insider__cannot_take_a_checkpoint_away_from_who_kept_it),
		cmocka_unit_test(audit_insider__who_moves_stored_bytes_is_found_by_the_chain),
		cmocka_unit_test(
			audit_insider__cannot_break_a_tenants_history_within_a_right_chain),
		cmocka_unit_test(
			audit_verifier__refuses_a_key_that_is_none_before_the_first_record),
		cmocka_unit_test(audit_verifier__takes_no_kept_checkpoint_of_another_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a transaction: mutations and drafts, with every string copied into the transaction's own
 * memory so that the store thread reads nothing of the domain's. Without memory the builders keep
 * working on a place of rest and the transaction is marked: store_submit refuses it as a whole.
 */
#include "controller/store_txn.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_MIN 1024

struct chunk {
	struct chunk *next; /* owned */
	size_t used, size;
	_Alignas(16) char bytes[];
};

struct store_txn *store_txn_new(void)
{
	struct store_txn *t = calloc(1, sizeof(*t));

	if (t) {
		list_init(&t->link);
		t->slot = -1;
	}
	return t;
}

void store_txn_free(struct store_txn *t)
{
	if (!t)
		return;
	while (t->chunks) {
		struct chunk *next = t->chunks->next;

		free(t->chunks);
		t->chunks = next;
	}
	if (t->muts != t->few_muts)
		free(t->muts);
	free(t->drafts);
	free(t);
}

static void *take(struct store_txn *t, size_t n)
{
	struct chunk *c = t->chunks;

	n = (n + 15) & ~(size_t)15;
	if (!c || c->size - c->used < n) {
		size_t size = MAX(n, (size_t)CHUNK_MIN);

		c = malloc(sizeof(*c) + size);
		if (!c) {
			t->no_memory = true;
			return NULL;
		}
		c->next = t->chunks;
		c->used = 0;
		c->size = size;
		t->chunks = c;
	}
	c->used += n;
	return c->bytes + c->used - n;
}

void *store_txn_mem(struct store_txn *t, const void *p, size_t n)
{
	void *copy;

	if (!t || !p)
		return NULL;
	copy = take(t, n ? n : 1);
	if (copy && n)
		memcpy(copy, p, n);
	return copy;
}

const char *store_txn_str(struct store_txn *t, const char *s)
{
	char *copy = t && s && *s ? store_txn_mem(t, s, strlen(s) + 1) : NULL;

	return copy ? copy : "";
}

const char *store_txn_uid(struct store_txn *t, const struct ros2_uid *u)
{
	char s[ROS2_UID_STR_LEN];

	ros2_uid_to_str(u, s);
	return store_txn_str(t, s);
}

const char *store_txn_fmt(struct store_txn *t, const char *fmt, ...)
{
	char s[STORE_FMT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s, sizeof(s), fmt, ap);
	va_end(ap);
	return store_txn_str(t, s);
}

/* Where writes go when there is no memory: read by nobody. One per thread that builds. */
static _Thread_local struct store_mut rest_mut;
static _Thread_local struct store_draft rest_draft;

struct store_mut *store_txn_add(struct store_txn *t, enum store_mut_kind kind)
{
	struct store_mut *m = NULL;

	memset(&rest_mut, 0, sizeof(rest_mut));
	if (!t)
		return &rest_mut;
	if (!t->muts) {
		t->muts = t->few_muts;
		t->muts_cap = ARRAY_SIZE(t->few_muts);
	}
	if (t->n_muts == t->muts_cap) {
		struct store_mut *more = calloc(t->muts_cap * 2, sizeof(*more));

		if (!more) {
			t->no_memory = true;
			return &rest_mut;
		}
		memcpy(more, t->muts, t->n_muts * sizeof(*more));
		if (t->muts != t->few_muts)
			free(t->muts);
		t->muts = more;
		t->muts_cap *= 2;
	}
	m = &t->muts[t->n_muts++];
	memset(m, 0, sizeof(*m));
	m->kind = kind;
	return m;
}

struct store_draft *store_txn_audit(struct store_txn *t)
{
	struct store_draft *d;

	memset(&rest_draft, 0, sizeof(rest_draft));
	if (!t)
		return &rest_draft;
	if (t->n_drafts == t->drafts_cap) {
		size_t cap = t->drafts_cap ? t->drafts_cap * 2 : 1;
		struct store_draft **more = reallocarray(t->drafts, cap, sizeof(*more));

		if (!more) {
			t->no_memory = true;
			return &rest_draft;
		}
		t->drafts = more;
		t->drafts_cap = cap;
	}
	d = take(t, sizeof(*d));
	if (!d)
		return &rest_draft;
	memset(d, 0, sizeof(*d));
	d->result = STORE_AUDIT_OK;
	t->drafts[t->n_drafts++] = d;
	return d;
}

void store_draft_detail(struct store_txn *t, struct store_draft *d, const char *key,
                        const char *value)
{
	if (d->n_details == STORE_DETAILS_MAX || !value || !*value)
		return;
	d->details[d->n_details].key = store_txn_str(t, key);
	d->details[d->n_details].value = store_txn_str(t, value);
	d->n_details++;
}

static void join_drafts(struct store_txn *t, struct store_txn *from)
{
	size_t n = t->n_drafts + from->n_drafts;

	if (n > t->drafts_cap) {
		size_t cap = MAX(n, 2 * t->drafts_cap);
		struct store_draft **more = reallocarray(t->drafts, cap, sizeof(*more));

		if (!more) {
			t->no_memory = true;
			return;
		}
		t->drafts = more;
		t->drafts_cap = cap;
	}
	if (from->n_drafts)
		memcpy(t->drafts + t->n_drafts, from->drafts,
		       from->n_drafts * sizeof(*from->drafts));
	t->n_drafts = n;
}

/* What both point into; the one in use stays the first. Of @t's nothing else is looked at: an agent
 * may have thousands joined to one, each with little. */
static void join_chunks(struct store_txn *t, struct store_txn *from)
{
	struct chunk **first = t->chunks ? &t->chunks->next : &t->chunks, **last = &from->chunks;

	while (*last)
		last = &(*last)->next;
	*last = *first;
	*first = TAKE_PTR(from->chunks);
}

void store_txn_join(struct store_txn *t, struct store_txn *from)
{
	if (t)
		t->no_memory |= !from || from->no_memory;
	if (t && from) {
		for (size_t i = 0; i < from->n_muts; i++)
			*store_txn_add(t, from->muts[i].kind) = from->muts[i];
		join_drafts(t, from);
		join_chunks(t, from);
	}
	store_txn_free(from);
}

void store_txn_spoil(struct store_txn *t)
{
	if (t)
		t->no_memory = true;
}

size_t store_txn_drafts(const struct store_txn *t)
{
	return t ? t->n_drafts : 0;
}

void store_txn_set_shrinks(struct store_txn *t)
{
	if (t)
		t->shrinks = true;
}

void store_txn_set_kept(struct store_txn *t)
{
	store_txn_set_shrinks(t);
	if (t)
		t->kept = true;
}

void store_txn_set_order(struct store_txn *t, const struct ros2_uid *uid)
{
	if (!t)
		return;
	t->ordered = true;
	t->order = *uid;
}

void store_txn_set_note(struct store_txn *t, const void *p, size_t n, int slot)
{
	if (!t || n > STORE_NOTE_MAX)
		return;
	t->note = store_txn_mem(t, p, n);
	t->note_len = n;
	t->slot = slot;
	t->noted = slot >= 0;
}

void store_txn_add_target(struct store_txn *t, uint32_t kind, const struct ros2_uid *uid)
{
	if (!t)
		return;
	if (t->n_targets == t->targets_cap) {
		size_t cap = t->targets_cap ? 2 * t->targets_cap : 1;
		struct store_target *v = take(t, cap * sizeof(*v));

		if (!v)
			return;
		if (t->n_targets)
			memcpy(v, t->targets, t->n_targets * sizeof(*v));
		t->targets = v;
		t->targets_cap = cap;
	}
	t->targets[t->n_targets++] = (struct store_target){kind, *uid};
}

void store_txn_set_revision(struct store_txn *t, uint64_t revision)
{
	if (t)
		t->revision = MAX(t->revision, revision);
}

const char *store_grant_state_to_str(enum store_grant_state s)
{
	static const char *const names[] = {NULL, "live", "expired", "revoked", "released"};

	return (unsigned)s < ARRAY_SIZE(names) && names[s] ? names[s] : "?";
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of documents. The order of a set is the order of putting; lookups go through a hash of kind
 * and name, so that a set of thousands of documents is checked in reasonable time.
 */
#include "policy/parse.h"
#include "common/hash.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>

struct policy_set {
	const struct policy_doc **v; /* owned, one reference each */
	size_t n, max;
	size_t *slots;  /* owned; index + 1, 0 = empty; open addressing */
	size_t n_slots; /* a power of two, at least twice n */
};

const struct policy_doc *policy_doc_ref(const struct policy_doc *d)
{
	struct policy_doc_box *box = container_of(d, struct policy_doc_box, doc);

	__atomic_add_fetch(&box->refs, 1, __ATOMIC_RELAXED);
	return d;
}

void policy_doc_unref(const struct policy_doc *d)
{
	struct policy_doc_box *box;

	if (!d)
		return;
	box = container_of(d, struct policy_doc_box, doc);
	if (__atomic_sub_fetch(&box->refs, 1, __ATOMIC_ACQ_REL))
		return;
	arena_fini(&box->arena);
	free(box);
}

int policy_set_new(struct policy_set **ret)
{
	struct policy_set *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	*ret = s;
	return 0;
}

void policy_set_free(struct policy_set *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		policy_doc_unref(s->v[i]);
	free(s->v);
	free(s->slots);
	free(s);
}

size_t policy_set_count(const struct policy_set *s)
{
	return s->n;
}

const struct policy_doc *policy_set_at(const struct policy_set *s, size_t i)
{
	return i < s->n ? s->v[i] : NULL;
}

/* Names are chosen by whoever may apply documents: where they lie is not known outside, or
 * thousands would share a slot, and each apply walk past them. The order of a set does not depend
 * on it. */
static size_t hash(enum policy_kind kind, const char *name)
{
	return (size_t)hash_keyed(name, strlen(name)) + (size_t)kind;
}

/* The slot that holds it, or the empty one where it would go. n_slots > n, so there is one. */
static size_t *slot_of(const struct policy_set *s, enum policy_kind kind, const char *name)
{
	size_t i = hash(kind, name) & (s->n_slots - 1);

	for (;; i = (i + 1) & (s->n_slots - 1)) {
		const struct policy_doc *d = s->slots[i] ? s->v[s->slots[i] - 1] : NULL;

		if (!d || (d->kind == kind && !strcmp(d->name, name)))
			return &s->slots[i];
	}
}

const struct policy_doc *policy_set_find(const struct policy_set *s, enum policy_kind kind,
                                         const char *name)
{
	size_t *slot = s->n_slots ? slot_of(s, kind, name) : NULL;

	return slot && *slot ? s->v[*slot - 1] : NULL;
}

static void index_again(struct policy_set *s)
{
	memset(s->slots, 0, s->n_slots * sizeof(*s->slots));
	for (size_t i = 0; i < s->n; i++)
		*slot_of(s, s->v[i]->kind, s->v[i]->name) = i + 1;
}

static int grow(struct policy_set *s)
{
	size_t max = s->max ? s->max * 2 : 16;
	const struct policy_doc **v = reallocarray(s->v, max, sizeof(*v));
	size_t *slots;

	if (!v)
		return -ENOMEM;
	s->v = v;
	slots = calloc(max * 2, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(s->slots);
	s->slots = slots;
	s->n_slots = max * 2;
	s->max = max;
	index_again(s);
	return 0;
}

int policy_set_put(struct policy_set *s, const struct policy_doc *d)
{
	size_t *slot = s->n_slots ? slot_of(s, d->kind, d->name) : NULL;

	if (slot && *slot) {
		const struct policy_doc *old = s->v[*slot - 1];

		s->v[*slot - 1] = policy_doc_ref(d);
		policy_doc_unref(old);
		return 0;
	}
	if (s->n == s->max && grow(s) < 0)
		return -ENOMEM;
	s->v[s->n] = policy_doc_ref(d);
	*slot_of(s, d->kind, d->name) = s->n + 1;
	s->n++;
	return 0;
}

int policy_set_remove(struct policy_set *s, enum policy_kind kind, const char *name)
{
	size_t *slot = s->n_slots ? slot_of(s, kind, name) : NULL;
	const struct policy_doc *d;
	size_t i;

	if (!slot || !*slot)
		return -ENOENT;
	i = *slot - 1;
	d = s->v[i];
	memmove(&s->v[i], &s->v[i + 1], (s->n - i - 1) * sizeof(*s->v));
	s->n--;
	index_again(s);
	policy_doc_unref(d); /* last: @name may point into it */
	return 0;
}

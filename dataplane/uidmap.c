/* SPDX-License-Identifier: Apache-2.0 */
/* The map of UIDs: chained buckets. A tombstone is a node whose kind is UID_DEAD; it is taken out
 * only when it was passed. */
#include "dataplane/uidmap.h"
#include "common/hash.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct uid_node {
	struct uid_node *next; /* owned */
	struct ros2_uid uid;
	enum uid_kind kind;
	void *obj;              /* borrowed: NULL for a tombstone */
	struct ros2_uid tenant; /* of a tombstone; zero: not known */
	bool passed;            /* of a tombstone: in the ring */
};

static uint32_t bucket_of(const struct ros2_uid *uid)
{
	return hash_keyed(uid->b, ROS2_UID_LEN) % UIDMAP_BUCKETS;
}

/* Where the pointer to the node is, or would be. */
static struct uid_node **place(const struct uidmap *m, const struct ros2_uid *uid)
{
	struct uid_node **at = (struct uid_node **)&m->buckets[bucket_of(uid)];

	while (*at && !ros2_uid_eq(&(*at)->uid, uid))
		at = &(*at)->next;
	return at;
}

enum uid_kind uidmap_get(const struct uidmap *m, const struct ros2_uid *uid, void **ret_obj)
{
	struct uid_node *n = *place(m, uid);

	if (n && ret_obj)
		*ret_obj = n->obj;
	return n ? n->kind : UID_NONE;
}

int uidmap_put(struct uidmap *m, const struct ros2_uid *uid, enum uid_kind kind, void *obj)
{
	struct uid_node **at = place(m, uid), *n;

	assert(!*at);
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->uid = *uid;
	n->kind = kind;
	n->obj = obj;
	*at = n;
	return 0;
}

int uidmap_reserve(struct uidmap *m, uint32_t n)
{
	while (n--) {
		struct uid_node *node = calloc(1, sizeof(*node));

		if (!node)
			return -ENOMEM;
		node->next = m->spare;
		m->spare = node;
	}
	return 0;
}

int uidmap_restore(struct uidmap *m)
{
	for (; m->spare_used; m->spare_used--)
		if (uidmap_reserve(m, 1) < 0)
			return -ENOMEM;
	return 0;
}

static int put_tombstone(struct uidmap *m, const struct ros2_uid *uid)
{
	struct uid_node *n;

	if (uidmap_put(m, uid, UID_DEAD, NULL) == 0) {
		if (m->spare_used && uidmap_reserve(m, 1) == 0)
			m->spare_used--;
		return 0;
	}
	n = m->spare;
	if (!n)
		return -ENOMEM;
	m->spare = n->next;
	m->spare_used++;
	*n = (struct uid_node){.uid = *uid, .kind = UID_DEAD};
	*place(m, uid) = n;
	return 0;
}

int uidmap_kill(struct uidmap *m, const struct ros2_uid *uid, const struct ros2_uid *tenant)
{
	struct uid_node *n = *place(m, uid);

	if (!n)
		return put_tombstone(m, uid);
	n->kind = UID_DEAD;
	n->obj = NULL;
	n->passed = false;
	if (tenant)
		n->tenant = *tenant;
	return 0;
}

bool uidmap_tenant_of(const struct uidmap *m, const struct ros2_uid *uid, struct ros2_uid *ret)
{
	const struct uid_node *n = *place(m, uid);

	if (!n || n->kind != UID_DEAD || ros2_uid_is_zero(&n->tenant))
		return false;
	*ret = n->tenant;
	return true;
}

static void forget(struct uid_node **at)
{
	struct uid_node *n = *at;

	*at = n->next;
	free(n);
}

void uidmap_remove(struct uidmap *m, const struct ros2_uid *uid)
{
	struct uid_node **at = place(m, uid);

	if (*at && (*at)->kind != UID_DEAD)
		forget(at);
}

void uidmap_pass(struct uidmap *m, const struct ros2_uid *uid)
{
	struct ros2_uid *slot = &m->passed[m->n_passed % UIDMAP_PASSED];
	struct uid_node **at = place(m, slot), *n = *place(m, uid);

	if (!n || n->kind != UID_DEAD || n->passed)
		return;
	if (m->n_passed >= UIDMAP_PASSED && *at && (*at)->passed)
		forget(at);
	n->passed = true;
	*slot = *uid;
	m->n_passed++;
}

void uidmap_fini(struct uidmap *m)
{
	for (uint32_t i = 0; i < UIDMAP_BUCKETS; i++) {
		struct uid_node *next;

		for (struct uid_node *n = m->buckets[i]; n; n = next) {
			next = n->next;
			free(n);
		}
		m->buckets[i] = NULL;
	}
	while (m->spare) {
		struct uid_node *n = m->spare;

		m->spare = n->next;
		free(n);
	}
}

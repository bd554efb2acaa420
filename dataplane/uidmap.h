/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a UID means here: an object, or a tombstone. A UID that was withdrawn stays in the map
 * without an object until the process ends, so it can never be used again; of those that were not
 * revoked but are over the last UIDMAP_PASSED. Loop only. Which bucket is a keyed hash of all of
 * the UID: those of grants begin with a number that grows, and are alike in their first bytes.
 */
#ifndef ROS2_DATAPLANE_UIDMAP_H
#define ROS2_DATAPLANE_UIDMAP_H

#include "common/ids.h"
#include <stdbool.h>

#define UIDMAP_BUCKETS 4096u
#define UIDMAP_PASSED  65536u

enum uid_kind { UID_NONE, UID_TENANT, UID_GRANT, UID_SESSION, UID_DEAD };

struct uid_node;
struct uidmap {
	struct uid_node *buckets[UIDMAP_BUCKETS]; /* owned */
	struct uid_node *spare;                   /* owned: set aside for tombstones */
	uint32_t spare_used;                      /* to be set aside again */
	struct ros2_uid passed[UIDMAP_PASSED];    /* ring */
	uint64_t n_passed;                        /* ever */
};

/* UID_NONE when it was never seen. *ret_obj may be NULL as an argument. */
enum uid_kind uidmap_get(const struct uidmap *m, const struct ros2_uid *uid, void **ret_obj);
/* 0, -ENOMEM. The UID must not be in the map. */
int uidmap_put(struct uidmap *m, const struct ros2_uid *uid, enum uid_kind kind, void *obj);
/* Sets memory for @n tombstones aside. 0, -ENOMEM. */
int uidmap_reserve(struct uidmap *m, uint32_t n);
/* What tombstones took of it is set aside again. 0, -ENOMEM. */
int uidmap_restore(struct uidmap *m);
/* Cannot fail for a UID that is in the map; -ENOMEM for one that is not, when what was set aside
 * is used up, too. @tenant: whose it was, kept with the tombstone; NULL: not known here. */
int uidmap_kill(struct uidmap *m, const struct ros2_uid *uid, const struct ros2_uid *tenant);
/* Of a tombstone: false when it is none, or nobody knew whose it was. */
bool uidmap_tenant_of(const struct uidmap *m, const struct ros2_uid *uid, struct ros2_uid *ret);
/* Forgets a UID that is not a tombstone. */
void uidmap_remove(struct uidmap *m, const struct ros2_uid *uid);
/* The tombstone is of what is over and was not revoked: it is forgotten when UIDMAP_PASSED more
 * have come, unless the UID is killed again. */
void uidmap_pass(struct uidmap *m, const struct ros2_uid *uid);
void uidmap_fini(struct uidmap *m);
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Desired and applied: every object the controller has sent for this agent, and how far it has come
 * in the data plane. Loop thread.
 *
 *   ABSENT -> RECEIVED -> STORED -> APPLIED        a newer version goes through RECEIVED again
 *                            \----> FAILED         tried again when something it needs arrives
 *   anything -> ENDED                              removed, revoked, expired; then forgotten
 *
 * Invariants: (1) a version is applied only after it is durable (grants answered to a request are
 * applied at once: a crash only loses them); (2) what a tombstone covers is never applied; (3)
 * while a newer version is RECEIVED or STORED the older one stays in force; (4) rights that shrink
 * take effect without waiting for the disk: of a tenant's document that is not durable yet what it
 * takes away is in force, what it adds is not.
 */
#ifndef ROS2_AGENT_STATE_H
#define ROS2_AGENT_STATE_H

#include "agent/object.h"
#include "agent/revocations.h"
#include "policy/image.h"

struct dp;
struct state;

#define STATE_OBJECTS_MAX 120000u /* tenants, engines and grants together */

enum obj_state { OBJ_ABSENT, OBJ_RECEIVED, OBJ_STORED, OBJ_APPLIED, OBJ_FAILED, OBJ_ENDED };
const char *obj_state_to_str(enum obj_state s);
bool obj_state_legal(enum obj_state from, enum obj_state to);

struct state_opts {
	struct dp *dp;               /* borrowed */
	const struct revlog *revlog; /* borrowed */
	uint8_t boot_id[16];
	uint32_t io_features; /* of dp_engine_config, for every engine */
	/* The tenant's document changed, was withdrawn or revoked: sessions are to be looked at. */
	void (*on_tenant)(void *arg, const struct ros2_uid *tenant);
	/* NULL, or: it is out of force; who has it mounted has no right to it any more. */
	void (*on_engine_gone)(void *arg, const char *engine);
	/* state_next_untold has something. */
	void (*on_untold)(void *arg);
	void *arg;
};
int state_new(const struct state_opts *o, struct state **ret);
void state_free(struct state *s);

/* Takes @obj. 1: it is to be stored; 0: this version or a newer one is here already; REVOKED: a
 * tombstone covers this grant; LIMIT: too many objects. */
int state_receive(struct state *s, struct agent_object *obj, struct ros2_err *err);
/* The controller does not have it for us any more: its rights end now. */
void state_remove(struct state *s, enum obj_kind kind, const struct ros2_uid *uid,
                  uint64_t version);
/* After a tombstone went into the revlog: forgets grants it covers, marks tenants it covers revoked
 * (known, without rights, until a higher version says otherwise). The caller runs dp_revoke. */
void state_obey_tombstones(struct state *s);
/* The same for this one only. */
void state_obey(struct state *s, const struct tombstone *t);
/* One that the revlog could not take: grants that it names end, and until it is sent again nothing
 * of it comes into force of what waits, for the disk or to be tried again. Needs no memory. */
void state_obey_unheld(struct state *s, const struct tombstone *t);

/* Storing: write what state_collect (all) or state_changes (since the last begin) gives, begin,
 * then stored with the number begin gave, or not_stored. */
uint64_t state_store_begin(struct state *s);
/* The newest version of each object, borrowed. *ret is malloc'd. */
int state_collect(const struct state *s, const struct agent_object ***ret, size_t *ret_n);
struct state_have {
	enum obj_kind kind;
	struct ros2_uid uid;
	uint64_t version;
};
struct state_changes {
	const struct agent_object **v; /* owned array, borrowed objects */
	size_t n;
	struct state_have *gone; /* owned */
	size_t n_gone;
};
/* -ENOMEM; -ENOTSUP: only state_collect tells it. */
int state_changes(const struct state *s, struct state_changes *ret);
void state_changes_fini(struct state_changes *c);
/* Stored size of what state_collect gives. */
uint64_t state_bytes(const struct state *s);
void state_stored(struct state *s, uint64_t number, uint64_t now_ns);
/* The write failed and is tried again: the controller hears FAILED with the reason. */
void state_not_stored(struct state *s, const struct ros2_err *why);
/* Something that is not durable takes away what the disk still gives: an object is gone, or an
 * older version of a tenant or an engine is there. */
bool state_takes_away(const struct state *s);
/* One grant that may be used before it is stored. Named error when it could not be applied. */
int state_apply_grant(struct state *s, const struct ros2_uid *uid, uint64_t now_ns,
                      struct ros2_err *err);
/* Forgets grants that have ended, tries again what failed. Every few seconds. */
void state_sweep(struct state *s, uint64_t now_ns);

/* ---- asking ---- */
struct state_tenant {
	struct ros2_uid uid;
	char name[ROS2_NAME_MAX + 1];
	uint64_t version;
	bool revoked;
	struct policy_image_tenant image; /* borrowed: until the tenant changes */
	/* A newer document that is not durable yet: only what both allow is allowed. NULL: none.
	 * Borrowed likewise. image.limits has the lower ones of sessions and contact already,
	 * image.require what either requires. */
	const struct policy_image_tenant *also;
};
/* The one tenant with this principal. -ENOENT: none; -EEXIST: more than one, so nobody is right. */
int state_tenant_of(const struct state *s, const char *spiffe, struct state_tenant *ret);
/* Whose principal it is; any thread. -ENOENT: nobody's here, or more than one's. It says nothing of
 * what that tenant may. */
int state_principal_owner(struct state *s, const char *spiffe, struct ros2_uid *ret);
int state_tenant_get(const struct state *s, const struct ros2_uid *uid, struct state_tenant *ret);
/* The same questions as policy_principal_match, policy_namespace_find, policy_eval_path and
 * policy_allows_below, to all of a tenant's documents. */
bool state_principal_match(const struct state_tenant *t, const char *spiffe);
int state_namespace(const struct state_tenant *t, const char *name, struct policy_namespace *ret);
struct policy_verdict state_eval_path(const struct state_tenant *t, const char *ns_name,
                                      const char *path, uint32_t wanted);
bool state_allows_below(const struct state_tenant *t, const char *ns_name, const char *dir,
                        uint32_t wanted);

struct state_grant {
	struct ros2_uid uid, tenant;
	const char *principal; /* borrowed */
	uint64_t deadline_ns, policy_version;
	uint32_t sessions;
};
int state_grant_get(const struct state *s, const struct ros2_uid *uid, struct state_grant *ret);
/* A live grant of this principal that no session uses, the one that lasts longest. -ENOENT. */
int state_grant_idle(const struct state *s, const struct ros2_uid *tenant, const char *principal,
                     uint64_t now_ns, struct ros2_uid *ret);
/* One of this tenant, whoever's, that no session uses: one that could not be applied, else the one
 * that ends first. -ENOENT. */
int state_grant_spare(const struct state *s, const struct ros2_uid *tenant, struct ros2_uid *ret,
                      uint64_t *ret_version);
void state_grant_use(struct state *s, const struct ros2_uid *uid, int delta);

/* 0: what the data plane has under this name is, below this path, what the newest document here
 * says; it may be another's, or an older one's, that is still in use. UNAVAILABLE, with what is
 * known. */
int state_engine_in_force(const struct state *s, const char *name, const char *path,
                          struct ros2_err *err);
/* How the engine of this name is reached that is in force here: 0 = it is local, or there is none.
 */
enum policy_transport state_engine_transport(const struct state *s, const char *name);

void state_each_have(const struct state *s, void (*fn)(void *arg, const struct state_have *h),
                     void *arg);
/* Grants with sessions; @skip of them first. */
size_t state_grants_in_use(const struct state *s, size_t skip, struct ros2_uid *out, size_t max);

/* What the controller has not been told since state_untell_all: one at a time. */
struct state_report {
	struct state_have what;
	bool applied;
	char reason[200];
};
bool state_next_untold(struct state *s, struct state_report *ret);
void state_told(struct state *s, const struct state_report *r);
void state_untell_all(struct state *s);

/* The data plane never takes a withdrawn uid again, but a tenant may be reinstated, or placed here
 * again, under its own. So the data plane knows it by a uid that is replaced each time its rights
 * were withdrawn there; the first is the tenant's own. */
struct ros2_uid state_dp_uid(const struct state *s, const struct ros2_uid *tenant);
/* dp_revoke was called for it. */
void state_dp_withdrawn(struct state *s, const struct ros2_uid *tenant);
/* The tenant of a data plane uid; the uid itself when there is none. */
struct ros2_uid state_of_dp_uid(const struct state *s, const struct ros2_uid *dp_uid);

struct state_counts {
	uint32_t tenants, engines, grants, failed;
};
void state_counts(const struct state *s, struct state_counts *ret);
#endif

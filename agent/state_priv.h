/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the state: state.c keeps and moves, state_apply.c talks to the data plane, state_ask.c
 * answers. */
#ifndef ROS2_AGENT_STATE_PRIV_H
#define ROS2_AGENT_STATE_PRIV_H

#include "agent/state.h"
#include "common/hash.h"
#include "common/util.h"
#include <pthread.h>

struct state_key {
	uint32_t kind;
	struct ros2_uid uid;
};

/* The grants in force of one principal of one tenant. */
struct state_owner {
	struct list idle; /* state_object.idle: without sessions, the one that ends last is last */
	uint32_t grants;
	UT_hash_handle hh;
	size_t key_len;
	char key[]; /* uid of the tenant, principal */
};

/* The grants of one tenant, in force or not: an agent has many of others. */
struct state_grants {
	struct ros2_uid tenant;
	struct list all; /* state_object.of_tenant */
	UT_hash_handle hh;
};

/* A removal the disk has not heard of. */
struct state_removal {
	struct list link;
	struct state_have what;
};

struct state_object {
	struct state_key key;
	struct list of_kind; /* on state.kinds */
	struct list pending; /* on state.pending while RECEIVED */
	struct list unsaved; /* on state.unsaved or .saving while the newest is not on disk */
	bool on_disk;        /* a version of it is, or may be */
	bool being_saved;    /* on state.saving */
	enum obj_state st;
	struct agent_object *cur;  /* owned: in force in the data plane; NULL = none */
	struct agent_object *next; /* owned: received or stored, not (yet) in force */
	uint64_t store_number;     /* of next: the write that makes it durable */
	/* Of those before the newest the highest version, which the disk may have yet: a grant's
	 * may be above the newest one's. */
	uint64_t highest;
	struct list untold; /* on state.untold while the controller is to be told */
	char reason[200];
	struct policy_image_tenant image; /* tenants: of cur */
	/* engines: how the one in force is reached; 0 = it is here */
	enum policy_transport transport;
	/* Tenants: what the document in next no longer allows has ended already. */
	bool narrowed;
	struct policy_image_tenant next_image; /* of next, while narrowed */
	uint64_t deadline_ns;                  /* grants: of cur */
	uint32_t sessions;                     /* grants */
	struct state_owner *owner;             /* grants in force; NULL = not indexed */
	struct list idle;                      /* on owner->idle */
	struct state_grants *grants;           /* grants: of the tenant; else NULL */
	struct list of_tenant;                 /* on grants->all */
	UT_hash_handle hh;
};

struct state_principal {
	const char *name;            /* borrowed from the image */
	struct state_object *tenant; /* borrowed */
	uint32_t tenants;            /* more than one: nobody is right */
	bool stays;                  /* also by the image that comes now */
	UT_hash_handle hh;
};

/* Kept as long as the process: a uid that was withdrawn stays withdrawn. */
struct state_dp_name {
	struct ros2_uid tenant, dp;
	bool withdrawn;
	UT_hash_handle hh;
};

/* An engine that is not in force any more and could not be taken away: it was in use. */
struct state_leaver {
	struct list link;
	char name[ROS2_NAME_MAX + 1];
};

struct state {
	struct state_opts o;
	struct state_object *objects;       /* owned */
	struct state_principal *principals; /* owned; written under principals_lock */
	pthread_mutex_t principals_lock;    /* taken by who is not the loop, to read */
	struct state_dp_name *dp_names;     /* owned */
	struct state_owner *owners;         /* owned */
	struct state_grants *grants;        /* owned */
	struct list kinds[OBJ_GRANT + 1];
	struct list pending;
	struct list unsaved, saving;    /* state_object */
	struct list removals, removing; /* state_removal, owned */
	struct list leavers;            /* state_leaver, owned */
	bool saving_all;
	bool save_all;       /* a removal could not be noted: only all of it tells */
	bool recheck_grants; /* a tenant's change may have ended some */
	bool index_again;    /* a principal is not in the index for want of memory */
	uint64_t bytes;      /* of the newest version of each object, as stored */
	uint64_t store_number;
	struct list untold;
};

struct state_object *state_find(const struct state *s, enum obj_kind kind,
                                const struct ros2_uid *uid);
void state_move(struct state *s, struct state_object *o, enum obj_state to);
void state_forget(struct state *s, struct state_object *o);
/* NULL: it has none here. */
struct state_grants *state_grants_of(const struct state *s, const struct ros2_uid *tenant);
/* The key of a state_owner: how long it is. */
size_t state_owner_key(const struct ros2_uid *tenant, const char *principal,
                       char key[ROS2_UID_LEN + ROS2_SPIFFE_MAX]);
/* Its grant came into force, moved its end, or got or lost its last session. */
void state_index_grant(struct state *s, struct state_object *o);
void state_unindex_grant(struct state *s, struct state_object *o);
void state_tell(struct state *s, struct state_object *o);
/* Brings o->next into force: APPLIED, or FAILED with o->reason. */
void state_apply(struct state *s, struct state_object *o, uint64_t now_ns);
/* What o->next does not allow ends now; what it adds waits until it is durable. */
void state_narrow(struct state *s, struct state_object *o);
/* Tries again to take away the engines that were in use. */
void state_leavers_again(struct state *s);
void state_leaver_free(struct state_leaver *l);
/* Takes o->cur out of force in the data plane. */
void state_unapply(struct state *s, struct state_object *o);
/* A uid the data plane takes: a new one after a withdrawal. */
void state_dp_uid_live(struct state *s, const struct ros2_uid *tenant, struct ros2_uid *ret);
/* Of all tenants: for want of memory one may be missing. */
void state_index_principals(struct state *s);
/* Why, as it is told to the controller: it goes into a message, so half a character must not. */
void state_words(char *out, size_t size, enum ros2_status status, const char *msg);

static inline const struct agent_object *state_newest(const struct state_object *o)
{
	return o->next ? o->next : o->cur;
}
#endif

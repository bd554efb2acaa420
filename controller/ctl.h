/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller's domain: what exists, who holds which right, and how far each agent has followed.
 * Plain C on one loop thread; it knows no protobuf, no SQL and no gRPC. Everything here is the loop
 * thread's. Invariants: (1) memory shows what is committed, except that rights that shrink are gone
 * from memory before their commit; (2) nothing is sent to an agent before its commit, except
 * revocations that found no space; (3) object versions come from one counter (struct ctl.revision),
 * so a version compares across kinds; (4) operations on objects and identities pass the gate one at
 * a time; grants do not.
 */
#ifndef ROS2_CONTROLLER_CTL_H
#define ROS2_CONTROLLER_CTL_H

#include "common/hash.h"
#include "common/clock.h"
#include "controller/config.h"
#include "controller/store.h"
#include "policy/policy.h"

#define CTL_BEAT_MS         1000
#define CTL_CONTACT_LOST_MS 5000 /* no beat for that long: recorded once */
#define CTL_REASON_MAX      255
#define CTL_GRANTS_PER_SLOT 4 /* live grants per tenant and agent: sessions.max times this */
/* Transactions of one tenant's grants that wait at the store, over all agents: a batch, which is
 * what 16 agents let wait (64 each). */
#define CTL_GRANTS_WAITING_MAX 1024
#define CTL_WAIT_DEFAULT_MS    5000
#define CTL_WAIT_MAX_MS        25000 /* below the RPC layer's deadline */
#define CTL_GATE_MAX           1024
#define CTL_ORIGINS_MAX        64  /* incarnations remembered per agent */
#define CTL_ORIGINS_SENT       256 /* and with those that it sent on this stream */

struct ctl;
struct link;

enum ctl_role { CTL_NOBODY = 0, CTL_ADMIN = 1, CTL_OPERATOR = 2, CTL_AUDITOR = 4, CTL_AGENT = 8 };
const char *ctl_role_to_str(enum ctl_role r);

struct ctl_caller {
	char spiffe[ROS2_SPIFFE_MAX + 1];
	char peer[64];
	enum ctl_role role;
};

/* ---- what exists ---- */

struct ctl_object { /* a tenant, engine or agent document in force */
	enum store_kind kind;
	char name[ROS2_NAME_MAX + 1];
	struct ros2_uid uid;
	uint64_t version, created_unix_ns, updated_unix_ns;
	const struct policy_doc *doc; /* a reference */
	void *image;                  /* owned; NULL for agents */
	size_t image_len;
	struct policy_image_tenant policy; /* tenants: borrows image */
	bool revoked;
	bool untold; /* it is revoked in memory only: agents hear of it when that is durable */
	uint64_t revoked_version, state_since_unix_ns;
	char reason[CTL_REASON_MAX + 1];
	unsigned n_grants;           /* tenants: live and being issued */
	struct list grants;          /* likewise */
	unsigned grants_waiting;     /* tenants: transactions at the store (grant_share.c) */
	struct ctl_agent *agent;     /* agents: owned */
	char key[ROS2_NAME_MAX + 3]; /* "1/alpha" */
	UT_hash_handle by_key, by_uid;
};

enum ctl_grant_phase { CTL_GRANT_ISSUING, CTL_GRANT_LIVE, CTL_GRANT_DEAD };

struct ctl_terms { /* what a grant gives, and for how long */
	uint64_t version, max_bytes, lifetime_ms, policy_version, epoch_counter;
	uint32_t max_keys, access;
	uint64_t expires_unix_ns, expires_ns; /* expires_ns: boottime */
	/* Likewise: its agent does not count beyond, whatever the clock on the wall says. */
	uint64_t latest_ns;
	struct clock_stamp from;
};

struct ctl_grant {
	struct ros2_uid uid;
	struct ctl_object *tenant; /* borrowed: grants go before their tenant */
	struct ctl_agent *agent;   /* borrowed: likewise */
	char *principal;           /* owned */
	uint64_t issued_unix_ns;
	struct ctl_terms t;    /* LIVE: durable, and what agents are sent */
	struct ctl_terms next; /* while renewing: they hold from the commit on */
	enum ctl_grant_phase phase;
	bool renewing, ending; /* ending: its last row is on its way */
	bool given_back;       /* by its agent, which is not handed it again */
	unsigned in_flight;    /* transactions that will call back with it */
	uint64_t request_id;   /* while ISSUING */
	uint64_t stream;       /* likewise: the agent's, on which it was asked for */
	struct list of_agent, of_tenant;
	/* DEAD, in ctl.ends by of_tenant: the store has not taken its last row yet. */
	bool owes_end;
	struct ros2_uid end_tenant, end_agent; /* whose it was */
	/* It is over by the clock on the wall; its agent, which may count otherwise, has not said
	 * hello to this process. Or by what that has said: its machine was started again. It can be
	 * revoked, is not handed out, and shown as expired. */
	bool overdue;
	struct ctl_slot *slot;
	struct loop_timer expiry;
	struct ctl *ctl;
	UT_hash_handle hh;
};

struct ctl_slot { /* one tenant at one agent */
	struct {
		struct ros2_uid tenant, agent;
	} key;
	unsigned n;
	unsigned ending; /* of them: nobody has them any more, their last rows are on their way */
	UT_hash_handle hh;
};

struct ctl_rollout { /* one object at one agent */
	struct {
		struct ros2_uid uid;
		uint32_t kind;
	} key;
	uint64_t sent, received, applied; /* versions */
	uint64_t had;                     /* the one it named at hello; 0 = none */
	uint64_t failed;                  /* version the reason is about */
	char *failed_reason;              /* owned; NULL = not failed */
	uint64_t nonce;
	/* Tenants: the longest contact limit of a version that the agent may still act by. */
	uint64_t limit_ms;
	struct list unacked;
	struct list waiting; /* in the outbox: `sent` is about to be */
	bool reply;          /* waiting: a grant that was asked for, by request_id */
	uint64_t request_id;
	uint64_t mark; /* last synchronisation that wanted it */
	bool leaving;  /* a tenant that the agent is told to remove: until it says that it did */
	UT_hash_handle hh;
};

struct ctl_origin {
	struct ros2_uid incarnation;
	uint64_t acked;      /* durable */
	uint64_t queued;     /* taken from the agent: durable, at the store or waiting */
	struct list waiting; /* of struct forward, owned: behind the one that is at the store */
	uint64_t at_store;   /* the last seq of what the store has; 0 = nothing */
	uint64_t stream;     /* of the agent, on which it was sent last; 0 = of none yet */
	UT_hash_handle hh;
};

/* What an agent says of itself in its beats; its claim, not stored. */
struct ctl_condition {
	const char *name; /* static: of ctl_agent_conditions */
	char reason[CTL_REASON_MAX + 1];
	uint64_t since_unix_ns;
};
#define CTL_CONDITIONS_MAX 8
extern const char *const ctl_agent_conditions[]; /* names that are believed; NULL ends */

/* An engine's way to storage that is elsewhere, for one tenant; likewise. */
struct ctl_target {
	char engine[ROS2_NAME_MAX + 1], tenant[ROS2_NAME_MAX + 1], state[16];
	bool lost;
	uint64_t since_unix_ns;
	char reason[CTL_REASON_MAX + 1];
};
#define CTL_TARGETS_MAX 64

struct ctl_agent {
	struct ctl_object *obj; /* borrowed: the owner */
	struct ctl *ctl;
	/* identity, stored */
	bool enrolled, isolated, deleting;
	bool identity_waits; /* a change of it has a place in the gate, which is everybody's */
	uint8_t spki[32], prev_spki[32];
	char cert_serial[72];
	int64_t cert_not_after_unix_s;
	uint64_t enrolled_unix_ns, isolated_since_unix_ns;
	char isolated_reason[CTL_REASON_MAX + 1];
	/* the connection, not stored */
	struct link *link; /* borrowed; NULL when not connected */
	uint64_t stream;   /* its number, from 1 */
	struct ros2_uid incarnation;
	char address[128], software[64];
	uint64_t last_beat_unix_ns, last_contact_ns; /* contact: boottime of the last echo sent */
	struct clock_stamp stamp;
	bool contact_lost;
	bool from_store, welcomed; /* enrolled before this process; has heard its epoch */
	uint64_t busy_ns;          /* link_hello.c: boottime at which its bucket would be empty */
	struct loop_timer contact_timer;
	uint32_t sessions, leases;
	uint64_t spool_records;
	struct ctl_condition conditions[CTL_CONDITIONS_MAX];
	size_t n_conditions;
	struct ctl_target *targets; /* owned; NULL: none */
	size_t n_targets;
	uint32_t targets_left_out;
	struct ctl_probes *probes; /* owned; stored. NULL: never reported */
	struct ctl_probes
		*probes_next; /* owned: reported, not stored yet; counts beside the other */
	bool probes_busy, probes_again; /* a commit of probes_next is on its way; it is old */
	/* It was not recorded, and the timer tries again; the store keeps its record. */
	bool probes_late, probes_kept;
	struct loop_timer probes_timer;
	/* rollout */
	struct ctl_rollout *rollout; /* owned */
	struct list unacked;         /* of struct ctl_rollout, by nonce */
	uint64_t sync_mark;
	bool initial_due;          /* initial_done follows what waits in the outbox */
	struct list replies, bulk; /* the outbox: of struct ctl_rollout, by waiting */
	struct list in_outbox;     /* something waits, and the stream takes it */
	bool paced;                /* the stream has enough for now: it says when to go on */
	/* Not all revocations that it owes are sent: what gives it something waits for them. */
	bool owes;
	/* The longest contact limit of tenants that are no more, which it was told to remove; until
	 * it says that it did. */
	uint64_t gone_limit_ms, gone_nonce;
	struct list grants;
	unsigned n_grants;
	struct ctl_origin *origins; /* owned, oldest first */
	/* Records were not stored: no more are taken on this link, which the timer ends. */
	bool forward_failed;
	struct loop_timer forward_timer;
};

enum ctl_receipt_state { CTL_OWED, CTL_DRAINING, CTL_CONFIRMED };

#define CTL_PENDING_MAX 64 /* tenants in one receipt; what comes more is counted */

struct ctl_pending { /* keys that the agent's device has not ended */
	struct ros2_uid tenant_uid;
	uint32_t keys;
	char device[64]; /* printable */
};

struct ctl_owed {         /* what one agent owes for one revocation */
	struct list link; /* of ctl_revocation.owed */
	struct ros2_uid agent_uid;
	char agent[ROS2_NAME_MAX + 1];
	enum ctl_receipt_state state;
	uint32_t sessions, leases, windows, draining;
	uint64_t received_ns, last_byte_ns, last_engine_ns, last_window_ns, durable_ns;
	struct ctl_pending *pending; /* owned */
	uint32_t n_pending, pending_left_out;
	uint64_t recorded_ns; /* the last receipt that went into the log */
	/* The agent's, on which it was sent last; 0: it was never sent. */
	uint64_t stream;
	/* Boottime, all but limit_ms. */
	uint64_t limit_ms, at_most_ns; /* its contact limit; when the right ends anyway */
	uint64_t until_ns;             /* latest end when the agent is not heard */
};

struct ctl_revocation {
	struct ros2_uid uid, target_uid;
	enum store_kind kind;
	char name[ROS2_SPIFFE_MAX + 1], reason[CTL_REASON_MAX + 1], tenant[ROS2_NAME_MAX + 1];
	struct ros2_uid tenant_uid;
	uint64_t version, created_unix_ns, committed_ns;
	bool sent, record_pending;
	struct list owed;
	struct ctl_waiter *waiter; /* owned; NULL: nobody waits */
	struct {                   /* the store did not take the record: it is tried again */
		struct ctl *c;     /* borrowed */
		bool is, isolate;
		int slot; /* of the store's journal, out of which it was read; -1: none */
		struct ctl_caller who;
		struct loop_timer again;
	} unrecorded;
	UT_hash_handle hh, by_target; /* by_target: several have the same */
};

/* Records that nobody waits for and the store did not take: how many of each action. */
#define CTL_LOST_ACTIONS 4
struct ctl_lost {
	struct ctl_lost_action {
		struct ctl *ctl;
		const char *name;
		uint64_t n, sent; /* sent: of them, in a record that is at the store */
	} actions[CTL_LOST_ACTIONS];
	uint64_t first_unix_ns, last_unix_ns, sent_unix_ns;
	bool at_store;
};

struct ctl {
	struct loop *loop;
	const struct config *cfg; /* borrowed */
	struct store *store;      /* borrowed */
	struct store_epoch epoch;
	uint64_t revision, batch, started_unix_ns, started_ns;
	struct ctl_object *by_key, *by_uid; /* owned */
	struct policy_set *docs;
	struct ctl_grant *grants; /* owned */
	struct ctl_slot *slots;   /* owned */
	unsigned grants_waiting;  /* at the store: of all tenants, also of grants that are dead */
	struct list ends; /* of struct ctl_grant, owned: taken away, and not yet at the store */
	struct loop_timer ends_timer;
	struct ctl_revocation *revocations, *by_target;
	struct ctl_token *tokens;
	struct ctl_deny *denials;
	struct ctl_forward_share *forward_shares; /* owned */
	struct loop_timer deny_timer;
	struct ctl_lost lost;
	struct outbox *outbox;
	struct list gate; /* of struct gate_wait */
	size_t n_gate;
	bool gate_busy;
	unsigned agents_connected;
	uint64_t beats;
	uint64_t probe_changes; /* reports that answered differently than those before */
};

/* ---- controller/objects.c ---- */

struct ctl_object *ctl_find(struct ctl *c, enum store_kind kind, const char *name);
struct ctl_object *ctl_find_uid(struct ctl *c, const struct ros2_uid *uid);
struct ctl_agent *ctl_agent(struct ctl *c, const char *name); /* by name, or NULL */
struct ctl_agent *ctl_agent_uid(struct ctl *c, const struct ros2_uid *uid);
const char *ctl_kind_to_str(enum store_kind k); /* "tenant" */
/* Named or selected there, and all that it requires was seen there. */
bool ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a);
/* Named or selected there, whatever it requires. */
bool ctl_chosen(const struct ctl_object *tenant, const struct ctl_agent *a);

struct ctl_expect {
	enum store_kind kind;
	const char *name;
	uint64_t version;
};
enum ctl_action { CTL_CREATED = 1, CTL_CONFIGURED = 2, CTL_UNCHANGED = 3 };
struct ctl_applied {
	enum store_kind kind;
	char name[ROS2_NAME_MAX + 1];
	struct ros2_uid uid;
	uint64_t version;
	enum ctl_action action;
};
struct ctl_apply_result {
	bool applied;
	size_t n;
	const struct ctl_applied *v;
	const struct policy_diags *diags;
};
typedef void (*ctl_apply_fn)(void *arg, const struct ros2_err *err,
                             const struct ctl_apply_result *r);
/* Inside the gate. All documents or none; @fn runs once (@err->code 0: @r is set, maybe with
 * diagnostics that are errors). @may: kinds this caller may change, a bit per store_kind. */
void ctl_apply(struct ctl *c, const struct ctl_caller *who, const struct policy_source *files,
               size_t n_files, const struct ctl_expect *expect, size_t n_expect, bool dry_run,
               uint32_t may, ctl_apply_fn fn, void *arg);
/* Loading: a stored object into memory. */
int ctl_object_load(struct ctl *c, const struct store_object *o, struct ros2_err *err);
void ctl_object_free(struct ctl *c, struct ctl_object *o);
/* Fills a mutation with the object's row. */
void ctl_object_row(struct store_txn *t, const struct ctl_object *o, struct store_object *row);
typedef void (*ctl_done_fn)(void *arg, const struct ros2_err *err);
/* Inside the gate. The object goes; for tenants and agents ctl_revoke has been through before. */
void ctl_delete(struct ctl *c, const struct ctl_caller *who, struct ctl_object *o, ctl_done_fn fn,
                void *arg);
/* A delete that came to nothing: the agent may be served again. */
void ctl_delete_undo(struct ctl_object *o);
/* Would the set hold together without it? -EINVAL with the first reason. */
int ctl_delete_check(struct ctl *c, const struct ctl_object *o, struct ros2_err *err);
typedef void (*ctl_version_fn)(void *arg, const struct ros2_err *err, uint64_t version);
void ctl_reinstate(struct ctl *c, const struct ctl_caller *who, struct ctl_object *tenant,
                   const char *reason, ctl_version_fn fn, void *arg);

/* ---- the gate (controller/ctl.c): one change of objects or identities at a time ---- */

/* Runs fn(arg) now or when its turn comes; every fn leads to exactly one ctl_gate_leave. -EBUSY. */
int ctl_gate_enter(struct ctl *c, loop_fn fn, void *arg);
/* The same for what takes rights away: before all that does not, and never refused for the number
 * of changes that wait. */
int ctl_gate_enter_urgent(struct ctl *c, loop_fn fn, void *arg);
void ctl_gate_leave(struct ctl *c);

int ctl_new(struct loop *loop, const struct config *cfg, struct store *store, struct ctl **ret,
            struct ros2_err *err); /* loads everything */
/* Before store_start: nobody is served by a start that the log does not know. */
int ctl_record_start(struct ctl *c, struct ros2_err *err);
void ctl_start(struct ctl *c); /* after store_start: ends what expired */
void ctl_free(struct ctl *c);
void ctl_on_batch(void *ctl); /* after the results of a commit */

/* ---- controller/audit.c ---- */

/* A draft with who and what; the caller adds. */
struct store_draft *ctl_audit(struct store_txn *t, const struct ctl_caller *who, const char *action,
                              enum store_kind kind, const char *name, const struct ros2_uid *uid);
void ctl_audit_tenant(struct store_txn *t, struct store_draft *d, const struct ctl_object *tenant);
extern const struct ctl_caller ctl_system;
/* An agent as the actor of what it did: its SPIFFE ID and, when it is connected, its address. */
struct ctl_caller ctl_agent_caller(const struct ctl_agent *a);

/* A refusal: recorded without waiting, the first 100 per key, then 10 a second, the rest counted.
 */
void ctl_audit_denied(struct ctl *c, const char *key, const struct ctl_caller *who,
                      const char *action, const struct ctl_object *tenant, const char *object_kind,
                      const char *object, enum ros2_status status, const char *reason);
/* @n of them, of which these are the fields of the last. */
void ctl_audit_denied_n(struct ctl *c, const char *key, const struct ctl_caller *who,
                        const char *action, const struct ctl_object *tenant,
                        const char *object_kind, const char *object, enum ros2_status status,
                        const char *reason, uint64_t n);
/* An agent said something about what is another's: it has no effect, and is recorded, bounded. */
void ctl_agent_claim(struct ctl_agent *a, const char *words);
/* For @t nobody waits. What the store does not take is counted, and recorded as `audit.gap` when it
 * takes that. @action: a literal, one of CTL_LOST_ACTIONS. */
void ctl_audit_submit(struct ctl *c, struct store_txn *t, const char *action);
/* What is counted is submitted, as it is each second. */
void ctl_denials_flush(struct ctl *c);
void ctl_denials_start(struct ctl *c);
void ctl_denials_free(struct ctl *c);

/* ---- controller/forward.c ---- */

struct ctl_forward { /* one record of an agent */
	uint64_t seq;
	struct store_draft draft; /* strings: the caller's, copied */
	/* Whose the record says it is: no more than a claim; "" or the agent's own as a rule. */
	const char *claimed_agent_uid;
};
/* Appends what is new of @v to the log, in order: nothing of an incarnation is stored behind what
 * was not. When it is durable the agent is told (link_audit_ack); when it could not be stored the
 * link ends after a while, and the agent sends it again. Records of tenants that are not placed at
 * the agent lose the tenant. Refusals beyond their tenant's share are counted. */
int ctl_forward(struct ctl *c, struct ctl_agent *a, const struct ros2_uid *incarnation,
                const struct ctl_forward *v, size_t n, struct ros2_err *err);
/* The agent has a new link: it sends what was not acknowledged. */
void ctl_forward_begin(struct ctl_agent *a);
uint64_t ctl_origin_acked(struct ctl_agent *a, const struct ros2_uid *incarnation);
int ctl_origin_load(struct ctl *c, const struct store_origin *o);
void ctl_origins_free(struct ctl_agent *a);
/* Each second: what was counted leaves for the store. */
void ctl_forward_tick(struct ctl *c);
void ctl_forward_shares_free(struct ctl *c);

/* ---- controller/agents.c ---- */

struct ctl_agent *ctl_agent_new(struct ctl *c, struct ctl_object *o);
/* Isolated, or about to be deleted: nothing is given to it. */
static inline bool ctl_agent_cut_off(const struct ctl_agent *a)
{
	return a->isolated || a->deleting;
}
void ctl_agent_free(struct ctl_agent *a);
int ctl_agent_load(struct ctl *c, const struct store_agent *row);
void ctl_agent_row(struct store_txn *t, const struct ctl_agent *a, struct store_agent *row);
/* A stream said hello and was accepted; or ended. */
void ctl_agent_connected(struct ctl_agent *a, struct link *l);
void ctl_agent_disconnected(struct ctl_agent *a, const char *why);
/* A stamp came in and is being echoed: contact goes on. */
void ctl_agent_contact(struct ctl_agent *a, const struct clock_stamp *stamp);
/* The conditions of one beat: begin, then each. Names it does not know are left out, words are made
 * printable. */
void ctl_agent_conditions_begin(struct ctl_agent *a);
void ctl_agent_condition(struct ctl_agent *a, const char *name, const char *reason,
                         uint64_t since_unix_ns);
/* The targets of one beat, in place of those of the last: room for @n, of which the caller fills
 * each; at most CTL_TARGETS_MAX. NULL: @n is 0, or no memory, and all are left out. */
struct ctl_target *ctl_agent_targets_begin(struct ctl_agent *a, size_t n, uint32_t left_out);
/* ---- controller/probes.c ---- */

/* All that the agent has tried. At most PROBE_SUBJECTS_MAX, each name once. Ends grants and removes
 * tenants that require more; places others when it is recorded. -ENOMEM: what was said before
 * counts, and the agent must say this again. */
int ctl_agent_probed(struct ctl_agent *a, const struct probe_subject *v, size_t n);
/* Does one subject there enforce all of @required? */
bool ctl_probes_meet(const struct ctl_agent *a, uint32_t required);
/* Why not, in one line. */
void ctl_probes_why_not(const struct ctl_agent *a, uint32_t required, char *out, size_t size);
/* The latest report; borrowed. */
const struct probe_subject *ctl_probes(const struct ctl_agent *a, size_t *ret_n);
int ctl_probe_load(struct ctl *c, const struct store_probe *row);
void ctl_probes_free(struct ctl_agent *a);

/* ---- controller/agents.c ---- */

/* Latest moment (boottime) until which the agent may act on rights with this contact limit. */
uint64_t ctl_contact_until_ns(const struct ctl_agent *a, uint64_t limit_ms);
/* A moment of boottime by the clock on the wall, as it is now; one that has been: now. What is told
 * is turned when it is told, for that clock may be put to another time until then. */
uint64_t ctl_unix_of(uint64_t boottime_ns);
/* It has not said hello to this process: what another one has sent it is not known here, and it may
 * act on that until its contact ends. */
static inline bool ctl_agent_unheard(const struct ctl_agent *a)
{
	return a->from_store && !a->welcomed;
}
/* The longest contact limit of @tenant by which @a may act: of the document, where that places it
 * there, and of what it may still have; of one that was not heard of any document. 0: it has
 * nothing of it. */
uint64_t ctl_contact_limit_ms(const struct ctl_object *tenant, const struct ctl_agent *a);
struct ctl_agent_sum { /* of the tenants at one agent */
	const struct ctl_agent *agent;
	uint32_t tenants;          /* placed there */
	uint64_t contact_limit_ms; /* the largest */
};
/* Fills in @n of them, whose agents are set, in one pass over all objects. */
void ctl_agents_sum(const struct ctl *c, struct ctl_agent_sum *v, size_t n);
uint64_t ctl_agent_contact_limit_ms(const struct ctl_agent *a); /* of one */
struct ctl_agents {
	struct ctl_agent **v; /* owned; until the next turn of the loop they are all there */
	size_t n;
};
/* All of them, in one pass over all objects. -ENOMEM. */
int ctl_agents_list(const struct ctl *c, struct ctl_agents *ret);

/* ---- controller/rollout.c ---- */

struct ctl_rollout *ctl_rollout_get(struct ctl_agent *a, enum store_kind kind,
                                    const struct ros2_uid *uid, bool make);
struct ctl_rollout *ctl_rollout_find(const struct ctl_agent *a, enum store_kind kind,
                                     const struct ros2_uid *uid);
/* What the agent says it has, at hello: everything known before is forgotten. False: no memory, and
 * it would never be told to remove it. */
void ctl_rollout_reset(struct ctl_agent *a);
bool ctl_rollout_have(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid,
                      uint64_t version);
/* Sends what differs between what the agent should have and what was sent. */
void ctl_rollout_sync(struct ctl_agent *a);
void ctl_rollout_sync_all(struct ctl *c);
void ctl_rollout_acked(struct ctl_agent *a, uint64_t nonce);
void ctl_rollout_state(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid,
                       uint64_t version, bool applied, const char *reason);
void ctl_rollout_drop(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid);
/* The agent has it no more, by its own word. What was sent of it and is not acknowledged comes
 * behind that word, as something new: the agent is told to remove that. What waits is not sent. */
void ctl_rollout_given_back(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid);
void ctl_rollout_free(struct ctl_agent *a);

/* ---- controller/grants.c ---- */

struct ctl_grant_ask {
	uint64_t request_id;
	struct ros2_uid tenant_uid;
	const char *principal, *peer;
	struct clock_stamp stamp;
};
void ctl_grant_request(struct ctl_agent *a, const struct ctl_grant_ask *ask);
void ctl_grant_release(struct ctl_agent *a, const struct ros2_uid *uid);
void ctl_grants_in_use(struct ctl_agent *a, const struct ros2_uid *uids, size_t n);
/* The agent is told to remove what is overdue: that ends. */
void ctl_grants_heard(struct ctl_agent *a);
struct ctl_grant *ctl_grant_find(struct ctl *c, const struct ros2_uid *uid);
int ctl_grant_load(struct ctl *c, const struct store_grant *g);
/* Timers; ends what expired, and what the documents no longer allow: the record of that may be one
 * commit behind the document when the process ends. */
void ctl_grants_start(struct ctl *c);
/* Takes the right away in memory now; the rows are the caller's transaction. */
void ctl_grant_kill(struct ctl_grant *g);
/* Those up to @version: not what was given since. */
void ctl_grants_kill_tenant(const struct ctl_object *tenant, uint64_t version);
void ctl_grants_kill_agent(struct ctl_agent *a, uint64_t version);
/* Takes every grant away that @tenant's policy no longer allows. Its row and its record are owed
 * until ctl_grants_settle; its agent is told by the next ctl_rollout_sync, which is the caller's in
 * the same turn. */
void ctl_grants_recheck(struct ctl_object *tenant);
void ctl_grants_recheck_agent(struct ctl_agent *a); /* the same of what is there */
/* Hands what is owed to the store, which keeps it. Before all that may allow such a grant again:
 * its row would be in force at the next start. -EBUSY without memory; then it is tried again each
 * second, too. */
int ctl_grants_settle(struct ctl *c, struct ros2_err *err);
void ctl_grants_free(struct ctl *c);
size_t ctl_grants_live(const struct ctl *c);

/* ---- controller/grant_share.c: no tenant fills the store's queue ---- */

/* One more of this tenant may be submitted. If not: a new one is refused, renewals and ends come
 * later. @ends: it ends a grant. */
bool ctl_grant_may_wait(const struct ctl *c, const struct ctl_object *tenant, bool ends);
/* A transaction that will call back with @g is submitted; it has called back, or was not taken. */
void ctl_grant_waits(struct ctl_grant *g);
void ctl_grant_waited(struct ctl_grant *g);
/* @g is about to lose its tenant: what still waits of it is no longer the tenant's. */
void ctl_grant_left(struct ctl_grant *g);

/* ---- controller/revoke.c ---- */

struct ctl_outcome {
	const struct ctl_owed *owed;
};
struct ctl_revoke_result {
	const struct ctl_revocation *rev;
	uint64_t replied_ns;
};
typedef void (*ctl_revoke_fn)(void *arg, const struct ros2_err *err,
                              const struct ctl_revoke_result *r);
struct ctl_revoke {
	enum store_kind kind;
	struct ctl_object *object; /* tenant or agent */
	struct ctl_grant *grant;
	struct ros2_uid session;
	const struct ros2_uid *session_agents; /* where the session may be */
	size_t n_session_agents;
	const char *reason;
	uint32_t wait_ms;
	bool isolate, remove; /* agents */
};
/* Inside the gate, which it leaves as soon as the commit is through. @fn runs once. A store that
 * does not take the record refuses nothing: the revocation is effective, its record pending. Only
 * without memory for the revocation itself does nothing happen, and @fn hears so. */
void ctl_revoke(struct ctl *c, const struct ctl_caller *who, const struct ctl_revoke *v,
                ctl_revoke_fn fn, void *arg);
/* What gives rights back must come after the record that took them: -EBUSY while that waits. */
int ctl_revocation_recorded(const struct ctl *c, const struct ros2_uid *target,
                            struct ros2_err *err);
void ctl_lift_isolation(struct ctl *c, const struct ctl_caller *who, struct ctl_agent *a,
                        const char *reason, ctl_done_fn fn, void *arg);
struct ctl_receipt {
	struct ros2_uid revocation_uid;
	bool durable;
	uint32_t sessions, leases, windows, draining;
	uint64_t last_byte_ns, last_engine_ns, last_window_ns, durable_ns;
	struct ctl_pending *pending; /* owned; ctl_receipt may take it */
	uint32_t n_pending, pending_left_out;
};
void ctl_receipt(struct ctl_agent *a, struct ctl_receipt *r);
/* The agent is back: sends of what it owes so much as is for one turn. True: there is more. */
bool ctl_revocations_resend(struct ctl_agent *a);
int ctl_revocation_load(struct ctl *c, const struct store_revocation *r);
int ctl_receipt_load(struct ctl *c, const struct store_receipt *r);
/* revoke_doubt.c: store_loader.doubt. */
int ctl_doubt_load(struct ctl *c);
/* A revocation that another process carried out and could not record: it is carried out here, and
 * recorded once ctl_revocations_start has run. After everything else was loaded. 1: it was there
 * already, and its slot is free. -ENOMEM; -EBADMSG: it cannot be read, and nothing may start. */
int ctl_note_load(struct ctl *c, const void *note, size_t n, int slot);
void ctl_revocations_start(struct ctl *c);
void ctl_revocations_free(struct ctl *c);
void ctl_revocations_forget(struct ctl *c, const struct ros2_uid *agent_uid); /* it was deleted */

/* ---- controller/identity.c ---- */

typedef void (*ctl_token_fn)(void *arg, const struct ros2_err *err, const char *token,
                             uint64_t expires_unix_s);
void ctl_token_create(struct ctl *c, const struct ctl_caller *who, struct ctl_agent *a,
                      uint32_t ttl_s, ctl_token_fn fn, void *arg);
struct ctl_enrolled {
	struct ros2_uid agent_uid;
	const char *cert_pem;
	int64_t not_after_unix_s;
};
typedef void (*ctl_enrol_fn)(void *arg, const struct ros2_err *err, const struct ctl_enrolled *r);
/* Before the gate: who has neither a token nor the key takes no place in it. A refusal is recorded.
 * @ret_again: by the key, or by a token that was used before, which both open as often as one
 * likes.
 */
int ctl_enrol_check(struct ctl *c, const struct ctl_caller *who, const char *agent,
                    const char *secret, const void *csr, size_t csr_len, bool *ret_again,
                    struct ros2_err *err);
/* Inside the gate, which they leave. */
void ctl_enrol(struct ctl *c, const struct ctl_caller *who, const char *agent, const char *secret,
               const void *csr, size_t csr_len, ctl_enrol_fn fn, void *arg);
void ctl_renew(struct ctl *c, const struct ctl_caller *who, struct ctl_agent *a, const void *csr,
               size_t csr_len, ctl_enrol_fn fn, void *arg);
int ctl_token_load(struct ctl *c, const struct store_token *t);
void ctl_tokens_free(struct ctl *c);
void ctl_tokens_forget(struct ctl *c, const struct ros2_uid *agent_uid);

/* ---- controller/authz.c: ONE table ---- */

/* Kinds of object (bit per store_kind; bit 0: no object) on which @role may use @method
 * ("Admin.Apply"). 0: not at all. */
uint32_t ctl_authz(enum ctl_role role, const char *method);

/* ---- controller/outbox.c: sealing and sending ---- */

int outbox_new(struct ctl *c, struct outbox **ret);
void outbox_free(struct outbox *o);
/* What @r is about (a tenant, an engine, a grant) goes to the agent, as it is in memory then. */
void outbox_push(struct ctl_agent *a, struct ctl_rollout *r);
/* A grant that became durable; @reply: as the answer to its request, before anything else. */
void outbox_grant(struct ctl_agent *a, const struct ctl_grant *g, bool reply);
/* The first synchronisation is in the outbox: initial_done follows it. */
void outbox_initial(struct ctl_agent *a);
/* One tree, one signature over what waits and may leave now; then sends. */
void outbox_flush(struct ctl *c);
/* The stream takes more. */
void outbox_writable(struct ctl_agent *a);
/* What waits for this agent is dropped: its stream has ended. */
void outbox_forget(struct ctl_agent *a);

/* ---- controller/link.c: what the domain says to an agent ---- */

struct link_have {
	enum store_kind kind;
	struct ros2_uid uid;
	uint64_t version;
};
/* The nonce under which the agent says that it did; 0: out of memory, and the stream ends. */
uint64_t link_removals(struct link *l, const struct link_have *v, size_t n);
void link_initial_done(struct link *l);
/* Much waits to be sent already: outbox_writable follows. */
bool link_has_enough(struct link *l);
void link_grant_denied(struct link *l, uint64_t request_id, enum ros2_status status,
                       const char *words);
void link_revoke(struct link *l, const struct ctl_revocation *r);
void link_audit_ack(struct link *l, const struct ros2_uid *incarnation, uint64_t seq);
void link_end(struct link *l, enum ros2_status status, const char *why);
void link_detach(struct link *l, enum ros2_status status, const char *why); /* its agent goes */
uint64_t link_next_nonce(struct link *l);
const char *link_peer(const struct link *l);
#endif

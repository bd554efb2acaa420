/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's sessions: who owns them, what is mounted and open in them, how they ended. Ended ones
 * are remembered for a while, bounded, so that their own principal hears REVOKED or GRANT_EXPIRED
 * instead of BAD_SESSION; to anybody else they never existed. Loop thread.
 *
 *   OPENING -> LIVE -> CLOSING -> ENDED -> (forgotten)
 */
#ifndef ROS2_AGENT_SESSIONS_H
#define ROS2_AGENT_SESSIONS_H

#include "agent/agent.h"
#include "common/pki.h"
#include "common/hash.h"
#include "common/util.h"
#include "dataplane/dp.h"

#define SESSION_MOUNTS_MAX      64
#define SESSION_HANDLES_MAX     4096
#define SESSION_CONNECT_MS      10000
#define SESSIONS_PER_CONNECTION 64
#define SESSIONS_ENDED_MAX      4096
#define SESSIONS_ENDED_TENANT   64
#define SESSIONS_ENDED_KEEP_S   600

enum agent_session_state { SESSION_OPENING, SESSION_LIVE, SESSION_CLOSING, SESSION_ENDED };
const char *agent_session_state_to_str(enum agent_session_state s);

struct agent_session_mount {
	uint32_t mount; /* the data plane's number */
	uint32_t access;
	char name[ROS2_NAME_MAX + 1]; /* of the namespace */
	char engine[ROS2_NAME_MAX + 1];
	char *path; /* owned */
};

struct agent_session_handle {
	uint64_t handle;
	uint32_t mount, access;
	char *path; /* owned */
	UT_hash_handle hh;
};

struct agent_session {
	struct ros2_uid uid, tenant, grant;
	struct sessions *sessions;
	struct sessions_tenant *of; /* borrowed: it stays as long as the session */
	struct sessions_peer *from; /* likewise; NULL from ENDED on */
	enum agent_session_state state;
	enum ros2_status end; /* why; from CLOSING on */
	char end_words[200];  /* what took its right away, if there is more to say */
	char tenant_name[ROS2_NAME_MAX + 1], principal[ROS2_SPIFFE_MAX + 1], peer[64];
	char *chain;     /* owned: the principal's certificate and what came with it, PEM */
	uint64_t judged; /* the chain, by this generation of the tenants' bundle */
	int64_t cert_not_after_unix_s;
	bool has_grant, in_dp, connected, told;
	bool recorded; /* its opening is, or is on its way to disk: so is its end */
	enum dp_transport transport;
	uint32_t grant_access;
	uint64_t policy_version, opened_unix_ns, ended_ns;
	struct agent_session_mount mounts[SESSION_MOUNTS_MAX];
	uint32_t n_mounts;
	struct agent_session_handle *handles; /* owned */
	struct dp_session_stats usage;        /* as recorded last */
	uint64_t usage_unix_ns;               /* of that record; 0: none yet */
	struct dp_session_stats seen;         /* as told last: what ends uncounted is not lost */
	struct loop_timer connect;
	struct session_closing
		*closing;            /* owned: what its end takes, so that this needs no memory */
	struct list ended;           /* ENDED: in order of ending */
	struct list ended_of_tenant; /* likewise, on of->ended */
	UT_hash_handle hh;
};

/* What sessions of tenants of one name did since the start of the process. */
#define SESSIONS_ACCOUNTS_MAX 256 /* later tenants share one without a name */
struct sessions_account {
	char name[ROS2_NAME_MAX + 1];       /* tenants that had it one after the other share it */
	struct dp_session_stats ended, now; /* of ended sessions; and of all, when last asked */
	UT_hash_handle hh;
};

int sessions_new(struct agent *a, struct sessions **ret);
void sessions_free(struct sessions *t);

struct agent_session_params {
	struct ros2_uid tenant;
	const char *tenant_name, *principal, *peer;
	uint64_t policy_version;
	uint32_t max_of_tenant; /* of the policy */
	char *chain;            /* malloc'd; the session's from success on */
	uint64_t judged;        /* rpc_peer.trust_generation */
	int64_t cert_not_after_unix_s;
};
/* A session in OPENING. LIMIT (policy), BUSY (this connection's cap). */
int agent_session_new(struct sessions *t, const struct agent_session_params *p,
                      struct agent_session **ret, struct ros2_err *err);
/* Any session of this uid, ended ones too; borrowed: until the loop's next turn. */
struct agent_session *agent_session_find(struct sessions *t, const struct ros2_uid *uid);
/* Recorded and given to the tenant: the data connection must come within SESSION_CONNECT_MS.
 * -ENOMEM: nothing watches that, so it has to end. */
int agent_session_opened(struct agent_session *s);
/* Ends it at agent and data plane; harmless when it has ended. One that was never LIVE leaves no
 * trace but its records, if its opening has one. */
void agent_session_end(struct agent_session *s, enum ros2_status why);
/* Why it ended, for people; borrowed. */
const char *agent_session_end_words(const struct agent_session *s);

/* @access of an open object, path and mount, for re-checks and the record. */
int agent_session_add_handle(struct agent_session *s, uint64_t handle, uint32_t mount,
                             uint32_t access, const char *path, struct ros2_err *err);
struct agent_session_handle *agent_session_handle(struct agent_session *s, uint64_t handle);
void agent_session_drop_handle(struct agent_session *s, struct agent_session_handle *h);
int agent_session_add_mount(struct agent_session *s, const struct policy_namespace *ns,
                            uint32_t mount, struct ros2_err *err);
struct agent_session_mount *agent_session_mount(struct agent_session *s, uint32_t mount);

void sessions_on_dp_event(struct sessions *t, const struct dp_event *ev);
void sessions_on_revoke(struct sessions *t, const struct tombstone *ts);
/* The tenant's document changed: principals, namespaces, open objects and what placement.require
 * says of the transport are looked at again. */
void sessions_on_tenant(struct sessions *t, const struct ros2_uid *tenant);
void sessions_on_engine_gone(struct sessions *t, const char *engine);
/* The tenants' bundle is another, of this generation: sessions whose principal's chain does not
 * verify to it end UNAUTHENTICATED. A few at each turn of the loop. @trust is referenced. */
void sessions_on_trust(struct sessions *t, struct pki_trust *trust, uint64_t generation);
/* Devices were tried again: do they still hold what the sessions' tenants require? */
void sessions_on_probe(struct sessions *t);
void sessions_end_all(struct sessions *t, enum ros2_status why);
/* Usage records, forgetting of ended ones. Every ten seconds. */
void sessions_tick(struct sessions *t);
/* Brings `now` of each account up to date; the first one, then ->hh.next. */
void sessions_account_now(struct sessions *t);
const struct sessions_account *sessions_accounts(const struct sessions *t);
uint32_t sessions_live(const struct sessions *t);
struct agent_session *sessions_first(const struct sessions *t); /* then ->hh.next */
#endif

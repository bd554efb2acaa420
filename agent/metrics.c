/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent tells Prometheus (docs/operations.md has the list). Reads what the loop has; of the
 * data plane only what it offers to be asked at any time. Tenants are labels, at most
 * SESSIONS_ACCOUNTS_MAX of them, the rest together under "".
 */
#include "common/metrics.h"
#include "agent/health.h"
#include "agent/service.h"
#include "agent/sessions.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "dataplane/dp.h"
#include <stdio.h>

static void identity(struct agent *a, struct metrics_page *p)
{
	metrics_family(p, "ros2_agent_info", METRICS_GAUGE, "1; who and which version.");
	metrics_u64(p, "ros2_agent_info", 1, "agent", a->o.identity.name, "version",
	            ROS2_VERSION_STRING, NULL);
	metrics_family(p, "ros2_agent_epoch", METRICS_GAUGE,
	               "Newest epoch of the controller that was seen.");
	metrics_u64(p, "ros2_agent_epoch", a->epoch.counter, NULL);
	metrics_family(p, "ros2_agent_connected", METRICS_GAUGE,
	               "1 while the stream to the controller is live.");
	metrics_u64(p, "ros2_agent_connected", uplink_is_live(a->uplink), NULL);
	if (!a->contact.known)
		return;
	metrics_family(p, "ros2_agent_contact_age_seconds", METRICS_GAUGE,
	               "Since the last stamp that the controller echoed; absent before the first.");
	metrics_f64(p, "ros2_agent_contact_age_seconds",
	            (double)(clock_boottime_ns() - a->contact.last_ns) / 1e9, NULL);
}

static void objects(struct agent *a, struct metrics_page *p)
{
	struct state_counts c;

	state_counts(a->state, &c);
	metrics_family(p, "ros2_agent_objects", METRICS_GAUGE, "Objects held, by kind.");
	metrics_u64(p, "ros2_agent_objects", c.tenants, "kind", "tenant", NULL);
	metrics_u64(p, "ros2_agent_objects", c.engines, "kind", "engine", NULL);
	metrics_u64(p, "ros2_agent_objects", c.grants, "kind", "grant", NULL);
	metrics_family(p, "ros2_agent_objects_failed", METRICS_GAUGE,
	               "Objects that could not be brought into force.");
	metrics_u64(p, "ros2_agent_objects_failed", c.failed, NULL);
	metrics_family(p, "ros2_agent_sessions", METRICS_GAUGE, "Sessions that have not ended.");
	metrics_u64(p, "ros2_agent_sessions", sessions_live(a->sessions), NULL);
	metrics_family(p, "ros2_agent_leases", METRICS_GAUGE, "Live leases.");
	metrics_u64(p, "ros2_agent_leases", dp_lease_count(a->dp), NULL);
	metrics_family(p, "ros2_agent_revocations_total", METRICS_COUNTER,
	               "Revocations carried out since the start.");
	metrics_u64(p, "ros2_agent_revocations_total", revoker_total(a->revoker), NULL);
	metrics_family(p, "ros2_agent_revocations_unrecorded", METRICS_GAUGE,
	               "Revocations carried out, but not on disk.");
	metrics_u64(p, "ros2_agent_revocations_unrecorded", revoker_unrecorded(a->revoker), NULL);
	metrics_family(p, "ros2_agent_tombstones", METRICS_GAUGE,
	               "Revocations that the log remembers.");
	metrics_u64(p, "ros2_agent_tombstones", revlog_count(a->revlog), NULL);
}

static void slots(struct agent *a, struct metrics_page *p)
{
	struct dp_slots s;
	char reactor[12];

	metrics_family(p, "ros2_agent_slots_taken", METRICS_GAUGE,
	               "Buffers of a reactor that hold a request's payload.");
	for (uint32_t i = 0; dp_slots(a->dp, i, &s); i++) {
		snprintf(reactor, sizeof(reactor), "%u", i);
		metrics_u64(p, "ros2_agent_slots_taken", s.taken, "reactor", reactor, NULL);
	}
	metrics_family(p, "ros2_agent_slots", METRICS_GAUGE, "Buffers of a reactor.");
	for (uint32_t i = 0; dp_slots(a->dp, i, &s); i++) {
		snprintf(reactor, sizeof(reactor), "%u", i);
		metrics_u64(p, "ros2_agent_slots", s.total, "reactor", reactor, NULL);
	}
}

static void shared_memory(struct agent *a, struct metrics_page *p)
{
	struct dp_shm s;

	if (!a->o.shm_dir)
		return;
	dp_shm(a->dp, &s);
	metrics_family(p, "ros2_agent_shm_bytes", METRICS_GAUGE,
	               "Memory of this agent's that sessions share with tenants.");
	metrics_u64(p, "ros2_agent_shm_bytes", s.used, NULL);
	metrics_family(p, "ros2_agent_shm_limit_bytes", METRICS_GAUGE,
	               "The most of it for all tenants together (--shm-memory-total).");
	metrics_u64(p, "ros2_agent_shm_limit_bytes", s.limit, NULL);
}

static void lent_memory(struct agent *a, struct metrics_page *p)
{
	const char *const total = "ros2_agent_shm_lends_total";
	struct dp_lent l;

	if (!a->o.shm_dir || !a->o.rdma_device)
		return;
	dp_lent(a->dp, &l);
	metrics_family(p, "ros2_agent_shm_lent_regions", METRICS_GAUGE,
	               "Pieces of the memory shared with tenants that the RDMA device knows.");
	metrics_u64(p, "ros2_agent_shm_lent_regions", l.pieces, NULL);
	metrics_family(
		p, total, METRICS_COUNTER,
		"Of them, those that were made, and those that a limit or the device refused.");
	metrics_u64(p, total, l.made, "result", "made", NULL);
	metrics_u64(p, total, l.refused, "result", "limit", NULL);
	metrics_u64(p, total, l.failed, "result", "device", NULL);
}

static void disk(struct agent *a, struct metrics_page *p)
{
	uint64_t free_bytes = health_free_bytes(a->health);

	metrics_family(p, "ros2_agent_audit_spool_bytes", METRICS_GAUGE,
	               "Audit records that wait for the controller, in memory and on disk.");
	metrics_u64(p, "ros2_agent_audit_spool_bytes", spool_bytes(a->spool), NULL);
	metrics_family(p, "ros2_agent_audit_spool_records", METRICS_GAUGE,
	               "Audit records on disk that the controller has not acknowledged.");
	metrics_u64(p, "ros2_agent_audit_spool_records", spool_unacked(a->spool), NULL);
	metrics_family(p, "ros2_agent_audit_dropped_total", METRICS_COUNTER,
	               "Audit records that found no place since the start.");
	metrics_u64(p, "ros2_agent_audit_dropped_total", agent_audit_lost(a->audit), NULL);
	if (free_bytes != UINT64_MAX) {
		metrics_family(p, "ros2_agent_state_free_bytes", METRICS_GAUGE,
		               "Bytes free where the state directory is.");
		metrics_u64(p, "ros2_agent_state_free_bytes", free_bytes, NULL);
	}
	metrics_family(p, "ros2_agent_condition", METRICS_GAUGE,
	               "1 while what the label names is wrong.");
	for (int k = 0; k < HEALTH_KINDS; k++)
		metrics_u64(p, "ros2_agent_condition",
		            health_condition(a->health, (enum health_kind)k)->is, "condition",
		            health_kind_to_str((enum health_kind)k), NULL);
}

static void refused(struct agent *a, struct metrics_page *p)
{
	struct rpc_server_stats st;

	service_stats(a->service, &st);
	const struct {
		const char *why;
		uint64_t n;
	} rows[] = {
		{rpc_refused_to_str(RPC_REFUSED_CONNECTIONS), st.refused_connections},
		{rpc_refused_to_str(RPC_REFUSED_CONNECTIONS_PER_SOURCE),
	         st.refused_connections_per_source},
		{rpc_refused_to_str(RPC_REFUSED_HANDSHAKE), st.refused_handshakes},
		{rpc_refused_to_str(RPC_REFUSED_IDENTITY), st.refused_identity},
		{rpc_refused_to_str(RPC_REFUSED_TRUST), st.refused_trust},
		{rpc_refused_to_str(RPC_REFUSED_LIMIT), st.refused_limit},
		{rpc_refused_to_str(RPC_REFUSED_FUTILE), st.refused_futile},
		{"invalid", st.refused_invalid + st.refused_version + st.refused_unknown_method},
	};

	metrics_family(p, "ros2_agent_rpc_refused_total", METRICS_COUNTER,
	               "Calls and connections of tenants refused before they reached a handler.");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		metrics_u64(p, "ros2_agent_rpc_refused_total", rows[i].n, "reason", rows[i].why,
		            NULL);
	metrics_family(p, "ros2_agent_rpc_connections_ended_total", METRICS_COUNTER,
	               "Connections without a call in flight ended so that another had a place.");
	metrics_u64(p, "ros2_agent_rpc_connections_ended_total", st.ended_connections, NULL);
}

static void each(struct metrics_page *p, struct sessions *t, const char *name, const char *help,
                 size_t read_at, size_t write_at, size_t clear_at)
{
	const struct sessions_account *c;

	metrics_family(p, name, METRICS_COUNTER, help);
	for (c = sessions_accounts(t); c; c = c->hh.next) {
		const char *at = (const char *)&c->now;

		metrics_u64(p, name, *(const uint64_t *)(at + read_at), "tenant", c->name,
		            "direction", "read", NULL);
		metrics_u64(p, name, *(const uint64_t *)(at + write_at), "tenant", c->name,
		            "direction", "write", NULL);
		metrics_u64(p, name, *(const uint64_t *)(at + clear_at), "tenant", c->name,
		            "direction", "clear", NULL);
	}
}

static void tenants(struct agent *a, struct metrics_page *p)
{
	const struct sessions_account *c;

	sessions_account_now(a->sessions);
	each(p, a->sessions, "ros2_agent_tenant_bytes_total",
	     "Payload moved for a tenant since the start, and bytes cleared, which move none.",
	     offsetof(struct dp_session_stats, read_bytes),
	     offsetof(struct dp_session_stats, write_bytes),
	     offsetof(struct dp_session_stats, cleared_bytes));
	each(p, a->sessions, "ros2_agent_tenant_operations_total",
	     "Reads, writes and clears done for a tenant since the start.",
	     offsetof(struct dp_session_stats, read_ops),
	     offsetof(struct dp_session_stats, write_ops),
	     offsetof(struct dp_session_stats, clear_ops));
	metrics_family(p, "ros2_agent_tenant_violations_total", METRICS_COUNTER,
	               "What a tenant's sessions did that they may not, since the start.");
	for (c = sessions_accounts(a->sessions); c; c = c->hh.next)
		metrics_u64(p, "ros2_agent_tenant_violations_total", c->now.violations, "tenant",
		            c->name, NULL);
	metrics_family(p, "ros2_agent_tenant_shaped_seconds_total", METRICS_COUNTER,
	               "Time a tenant's requests waited for its rate, since the start.");
	for (c = sessions_accounts(a->sessions); c; c = c->hh.next)
		metrics_f64(p, "ros2_agent_tenant_shaped_seconds_total",
		            (double)c->now.shaped_ns / 1e9, "tenant", c->name, NULL);
}

struct target_rows {
	struct metrics_page *p;
	const char *name;
	size_t at; /* of the number, 64 bits; SIZE_MAX: live */
};

static void target_row(void *arg, const struct dp_engine_health *h)
{
	const struct target_rows *r = arg;
	uint64_t n = h->live;

	if (r->at != SIZE_MAX)
		n = *(const uint64_t *)((const char *)h + r->at);
	metrics_u64(r->p, r->name, n, "engine", h->engine, "tenant", h->tenant, NULL);
}

static void lost_row(void *arg, const struct dp_engine_health *h)
{
	uint64_t now = clock_boottime_ns();

	metrics_f64(arg, "ros2_agent_target_lost_seconds",
	            h->lost && now > h->since_ns ? (double)(now - h->since_ns) / 1e9 : 0, "engine",
	            h->engine, "tenant", h->tenant, NULL);
}

static void targets(struct agent *a, struct metrics_page *p)
{
	static const struct {
		const char *name, *help;
		size_t at;
	} rows[] = {
		{"ros2_agent_target_live",
	         "1 while a tenant's requests reach the target of an engine.", SIZE_MAX},
		{"ros2_agent_target_connects_total",
	         "Times a tenant's controller at a target became live, since its first mount.",
	         offsetof(struct dp_engine_health, connects)},
		{"ros2_agent_target_unknown_writes_total",
	         "Writes of a tenant that ended OUTCOME_UNKNOWN.",
	         offsetof(struct dp_engine_health, unknown_writes)},
		{"ros2_agent_target_retries_total", "Commands that were handed to a target again.",
	         offsetof(struct dp_engine_health, retries)},
		{"ros2_agent_target_given_up_total", "Requests that waited for a target in vain.",
	         offsetof(struct dp_engine_health, given_up)},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct target_rows r = {p, rows[i].name, rows[i].at};

		metrics_family(p, rows[i].name, i ? METRICS_COUNTER : METRICS_GAUGE, rows[i].help);
		dp_engines_health(a->dp, target_row, &r);
	}
	metrics_family(
		p, "ros2_agent_target_lost_seconds", METRICS_GAUGE,
		"For how long the target of an engine has been lost to a tenant; 0: it is not.");
	dp_engines_health(a->dp, lost_row, p);
}

static void calls_row(void *arg, const struct dp_control_load *l)
{
	metrics_u64(arg, "ros2_agent_control_calls", l->inside, "engine", l->engine, "state",
	            "inside", NULL);
	metrics_u64(arg, "ros2_agent_control_calls", l->waiting, "engine", l->engine, "state",
	            "waiting", NULL);
}

static void oldest_row(void *arg, const struct dp_control_load *l)
{
	metrics_f64(arg, "ros2_agent_control_oldest_seconds", (double)l->oldest_ns / 1e9, "engine",
	            l->engine, NULL);
}

static void control_calls(struct agent *a, struct metrics_page *p)
{
	metrics_family(p, "ros2_agent_control_calls", METRICS_GAUGE,
	               "Mounts, opens, closes and the like that are inside an engine, or wait.");
	dp_control_load(a->dp, calls_row, p);
	metrics_family(p, "ros2_agent_control_oldest_seconds", METRICS_GAUGE,
	               "For how long the oldest of those inside has been there; 0: none is.");
	dp_control_load(a->dp, oldest_row, p);
}

static void render(void *arg, struct metrics_page *p)
{
	struct agent *a = arg;

	identity(a, p);
	objects(a, p);
	slots(a, p);
	shared_memory(a, p);
	lent_memory(a, p);
	disk(a, p);
	tenants(a, p);
	targets(a, p);
	control_calls(a, p);
	refused(a, p);
}

int agent_metrics_start(struct agent *a, struct ros2_err *err)
{
	struct metrics_opts o = {.listen = a->o.metrics_listen,
	                         .allow_remote = a->o.metrics_allow_remote,
	                         .loop = a->o.loop,
	                         .render = render,
	                         .arg = a};

	return o.listen ? metrics_start(&o, &a->metrics, err) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What a controller tells Prometheus (docs/operations.md has the list): its store, its rights, what
 * it knows of each agent. Agents are labels, at most AGENTS_MAX of them. */
#include "common/metrics.h"
#include "controller/ctl.h"
#include "controller/metrics_priv.h"
#include "proto/rpc/rpc.h"
#include <string.h>

#define AGENTS_MAX 1024

static void store(struct ctl *c, struct metrics_page *p)
{
	struct store_stats st;

	store_stats(c->store, &st);
	metrics_family(p, "ros2_controller_info", METRICS_GAUGE, "1; which version.");
	metrics_u64(p, "ros2_controller_info", 1, "version", ROS2_VERSION_STRING, NULL);
	metrics_family(p, "ros2_controller_epoch", METRICS_GAUGE, "Its epoch.");
	metrics_u64(p, "ros2_controller_epoch", c->epoch.counter, NULL);
	metrics_family(p, "ros2_controller_store_commits_total", METRICS_COUNTER,
	               "Commits since the start.");
	metrics_u64(p, "ros2_controller_store_commits_total", st.commits, NULL);
	metrics_family(p, "ros2_controller_store_transactions_total", METRICS_COUNTER,
	               "Transactions in them.");
	metrics_u64(p, "ros2_controller_store_transactions_total", st.transactions, NULL);
	metrics_latency_write(p, "ros2_controller_store_commit_seconds",
	                      store_commit_latency(c->store),
	                      "From the beginning of a commit to its end, on disk.");
	metrics_family(p, "ros2_controller_store_queue", METRICS_GAUGE,
	               "Transactions that wait for their commit.");
	metrics_u64(p, "ros2_controller_store_queue", st.waiting, NULL);
	metrics_family(p, "ros2_controller_store_wal_bytes", METRICS_GAUGE,
	               "Write-ahead log that is not in the database yet.");
	metrics_u64(p, "ros2_controller_store_wal_bytes", st.wal_bytes, NULL);
	metrics_family(p, "ros2_controller_audit_records", METRICS_GAUGE,
	               "Records in the audit log.");
	metrics_u64(p, "ros2_controller_audit_records", st.audit_records, NULL);
	metrics_family(p, "ros2_controller_condition", METRICS_GAUGE,
	               "1 while what the label names is wrong.");
	metrics_u64(p, "ros2_controller_condition", st.full, "condition", "StoreFull", NULL);
	metrics_u64(p, "ros2_controller_condition", st.record_pending != 0, "condition",
	            "RecordsPending", NULL);
	metrics_u64(p, "ros2_controller_condition", st.journal_failed, "condition", "JournalFailed",
	            NULL);
	metrics_u64(p, "ros2_controller_condition", c->cfg->reload_failed[0] != '\0', "condition",
	            "ReloadFailed", NULL);
	metrics_u64(p, "ros2_controller_condition", c->cfg->reload_pending[0] != '\0', "condition",
	            "ReloadPending", NULL);
}

static void rights(struct ctl *c, struct metrics_page *p)
{
	uint64_t n[3] = {0}, owed = 0;
	struct ctl_revocation *r, *rtmp;
	struct ctl_object *o, *tmp;
	struct ctl_owed *w;

	HASH_ITER (by_key, c->by_key, o, tmp)
		n[o->kind == STORE_TENANT ? 0 : o->agent ? 2 : 1]++;
	HASH_ITER (hh, c->revocations, r, rtmp)
		list_for_each (&r->owed, w, link)
			owed += w->state != CTL_CONFIRMED;
	metrics_family(p, "ros2_controller_objects", METRICS_GAUGE, "Documents, by kind.");
	metrics_u64(p, "ros2_controller_objects", n[0], "kind", "tenant", NULL);
	metrics_u64(p, "ros2_controller_objects", n[1], "kind", "engine", NULL);
	metrics_u64(p, "ros2_controller_objects", n[2], "kind", "agent", NULL);
	metrics_family(p, "ros2_controller_grants", METRICS_GAUGE, "Live grants.");
	metrics_u64(p, "ros2_controller_grants", ctl_grants_live(c), NULL);
	metrics_family(p, "ros2_controller_receipts_owed", METRICS_GAUGE,
	               "Receipts of revocations that agents owe, or that are draining.");
	metrics_u64(p, "ros2_controller_receipts_owed", owed, NULL);
	metrics_family(p, "ros2_controller_agents_connected", METRICS_GAUGE,
	               "Agents with a stream.");
	metrics_u64(p, "ros2_controller_agents_connected", c->agents_connected, NULL);
	metrics_family(p, "ros2_controller_beats_total", METRICS_COUNTER,
	               "Beats of agents since the start.");
	metrics_u64(p, "ros2_controller_beats_total", c->beats, NULL);
	metrics_family(p, "ros2_controller_probe_changes_total", METRICS_COUNTER,
	               "Reports of agents whose devices or transports answered differently than "
	               "before, or were others, since the start.");
	metrics_u64(p, "ros2_controller_probe_changes_total", c->probe_changes, NULL);
	metrics_family(p, "ros2_controller_changes_waiting", METRICS_GAUGE,
	               "Changes of objects and identities that wait for their turn.");
	metrics_u64(p, "ros2_controller_changes_waiting", c->n_gate, NULL);
}

static bool has_condition(const struct ctl_agent *a, const char *name)
{
	for (size_t i = 0; a->link && i < a->n_conditions; i++)
		if (!strcmp(a->conditions[i].name, name))
			return true;
	return false;
}

static void agents(struct ctl *c, struct metrics_page *p)
{
	uint64_t now = clock_boottime_ns();
	struct ctl_object *o, *tmp;
	unsigned n = 0;

	metrics_family(p, "ros2_controller_agent_contact_age_seconds", METRICS_GAUGE,
	               "Since the last beat of an agent that was answered.");
	HASH_ITER (by_key, c->by_key, o, tmp)
		if (o->agent && o->agent->enrolled && n++ < AGENTS_MAX)
			metrics_f64(p, "ros2_controller_agent_contact_age_seconds",
			            (double)(now - o->agent->last_contact_ns) / 1e9, "agent",
			            o->name, NULL);
	metrics_family(p, "ros2_controller_agent_condition", METRICS_GAUGE,
	               "1 while a connected agent says so of itself.");
	n = 0;
	HASH_ITER (by_key, c->by_key, o, tmp) {
		if (!o->agent || !o->agent->enrolled || n++ >= AGENTS_MAX)
			continue;
		for (const char *const *k = ctl_agent_conditions; *k; k++)
			metrics_u64(p, "ros2_controller_agent_condition",
			            has_condition(o->agent, *k), "agent", o->name, "condition", *k,
			            NULL);
	}
}

static void calls_of(struct metrics_page *p, const char *listener,
                     const struct rpc_server_stats *st)
{
	const struct {
		const char *why;
		uint64_t n;
	} rows[] = {
		{rpc_refused_to_str(RPC_REFUSED_CONNECTIONS), st->refused_connections},
		{rpc_refused_to_str(RPC_REFUSED_CONNECTIONS_PER_SOURCE),
	         st->refused_connections_per_source},
		{rpc_refused_to_str(RPC_REFUSED_HANDSHAKE), st->refused_handshakes},
		{rpc_refused_to_str(RPC_REFUSED_IDENTITY), st->refused_identity},
		{rpc_refused_to_str(RPC_REFUSED_TRUST), st->refused_trust},
		{rpc_refused_to_str(RPC_REFUSED_LIMIT), st->refused_limit},
		{rpc_refused_to_str(RPC_REFUSED_FUTILE), st->refused_futile},
		{"invalid", st->refused_invalid + st->refused_version + st->refused_unknown_method},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		metrics_u64(p, "ros2_controller_rpc_refused_total", rows[i].n, "listener", listener,
		            "reason", rows[i].why, NULL);
}

static void calls(const struct controller_metrics *m, struct metrics_page *p)
{
	static const char *const names[] = {"admin", "agents", "enrol"};
	struct rpc_server *const servers[] = {m->admin, m->agents, m->enrol};
	uint64_t ended[ARRAY_SIZE(names)];

	metrics_family(p, "ros2_controller_rpc_refused_total", METRICS_COUNTER,
	               "Calls and connections refused before they reached a handler.");
	for (int i = 0; i < 3; i++) {
		struct rpc_server_stats st;

		rpc_server_stats(servers[i], &st);
		calls_of(p, names[i], &st);
		ended[i] = st.ended_connections;
	}
	metrics_family(p, "ros2_controller_rpc_connections_ended_total", METRICS_COUNTER,
	               "Connections without a call in flight ended so that another had a place.");
	for (int i = 0; i < 3; i++)
		metrics_u64(p, "ros2_controller_rpc_connections_ended_total", ended[i], "listener",
		            names[i], NULL);
}

void controller_metrics_render(void *arg, struct metrics_page *p)
{
	const struct controller_metrics *m = arg;

	store(m->ctl, p);
	rights(m->ctl, p);
	agents(m->ctl, p);
	calls(m, p);
}

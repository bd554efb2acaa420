/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wires the parts together and owns their order: configuration ▸ store (the epoch is durable) ▸
 * domain (loaded; the start is recorded) ▸ store threads ▸ services ▸ listeners. The end is the
 * reverse: listeners refuse, streams close, the store commits what was submitted, the domain goes.
 */
#include "controller/controller.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "controller/metrics_priv.h"
#include "controller/reload_priv.h"
#include "controller/svc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define STOP_GRACE_MS 3000
#define HEALTH_MS     1000

struct controller {
	struct loop *loop;
	struct config cfg;
	struct store *store;
	struct ctl *ctl;
	struct svc svc;
	struct svc_listener listeners[3];
	struct rpc_server *admin, *agents, *enrol;
	struct reload *reload;
	struct loop_timer health;
	struct controller_metrics page;
	struct metrics *metrics;
	/* stopping */
	unsigned stopping;
	loop_fn on_stopped;
	void *stopped_arg;
};

static int open_store(struct controller *c, const struct controller_opts *o, struct ros2_err *err)
{
	struct store_opts so = {.dir = o->data_dir,
	                        .trust_domain = c->cfg.trust_domain,
	                        .loop = o->loop,
	                        .audit_key = c->cfg.audit_key,
	                        .audit_origin = c->cfg.audit_origin,
	                        .max_pages = o->store_max_pages,
	                        .arg = c};
	int r;

	r = store_open(&so, &c->store, err);
	if (r < 0)
		return ros2_err_prefix(err, "--data-dir"), r;
	r = ctl_new(o->loop, &c->cfg, c->store, &c->ctl, err);
	if (r < 0)
		return r;
	store_set_on_batch(c->store, ctl_on_batch, c->ctl);
	r = ctl_record_start(c->ctl, err);
	if (r < 0)
		return ros2_err_prefix(err, "--data-dir: the record of this start"), r;
	return store_start(c->store, err);
}

typedef int (*add_fn)(struct svc *, struct rpc_server *, struct ros2_err *);

/* A listener of ours: what is the same for all, and the caps that flags give. */
static int serve(struct controller *c, struct svc_listener *l, struct rpc_server_opts *so,
                 const struct controller_caps *caps, const add_fn *adds, struct rpc_server **ret,
                 struct ros2_err *err)
{
	int r;

	so->loop = c->loop;
	so->cert_path = c->cfg.tls_crt;
	so->key_path = c->cfg.tls_key;
	so->on_refused = svc_on_refused;
	so->refused_arg = l;
	if (caps->connections)
		so->limits.max_connections = caps->connections;
	if (caps->per_address)
		so->limits.max_connections_per_source = caps->per_address;
	r = rpc_server_new(so, ret, err);
	for (; !r && *adds; adds++)
		r = (*adds)(&c->svc, *ret, err);
	if (!r)
		r = rpc_server_add_health(*ret, CONTROLLER_HEALTH_STORE, err);
	if (!r)
		r = rpc_server_start(*ret, err);
	if (r < 0)
		ros2_err_prefix(err, "%s %s", l->flag, so->listen);
	return r;
}

/* Policies, and the records of an agent that was away, come from far, too: 2.5 MB a second at a
 * round trip of 50 ms. */
#define RECEIVE_BYTES (128 * 1024)

static int listen_all(struct controller *c, const struct controller_opts *o, struct ros2_err *err)
{
	static const add_fn admin_adds[] = {svc_add_admin, svc_add_audit, NULL};
	static const add_fn agent_adds[] = {svc_add_link, NULL};
	static const add_fn enrol_adds[] = {svc_add_enrol, NULL};
	struct rpc_server_opts admin = {.name = "rpc-admin",
	                                .listen = o->admin_listen,
	                                .client_ca_path = c->cfg.admin_bundle,
	                                .limits = {.connections_name = "--admin-connections",
	                                           .receive_bytes = RECEIVE_BYTES}};
	struct rpc_server_opts agents = {.name = "rpc-agents",
	                                 .listen = o->agent_listen,
	                                 .client_ca_path = c->cfg.infra_bundle,
	                                 .limits = {.max_streams = 4096,
	                                            .max_streams_per_group = 4,
	                                            .max_connections = 8192,
	                                            .max_connections_per_source = 4096,
	                                            .connections_name = "--agent-connections",
	                                            .receive_bytes = RECEIVE_BYTES,
	                                            .stream_queue_max = 8192}};
	struct rpc_server_opts enrol = {.name = "rpc-enrol",
	                                .listen = o->enrol_listen,
	                                .chain_append_path = c->cfg.infra_bundle,
	                                .limits = {.max_connections = 256,
	                                           .max_connections_per_source = 64,
	                                           .connections_name = "--enrol-connections",
	                                           .max_calls = 64,
	                                           .max_message_bytes = 256 * 1024}};
	int r;

	c->listeners[0] = (struct svc_listener){&c->svc, "admin", "--admin-listen"};
	c->listeners[1] = (struct svc_listener){&c->svc, "agents", "--agent-listen"};
	c->listeners[2] = (struct svc_listener){&c->svc, "enrol", "--enrol-listen"};
	r = serve(c, &c->listeners[0], &admin, &o->admin_caps, admin_adds, &c->admin, err);
	if (!r)
		r = serve(c, &c->listeners[1], &agents, &o->agent_caps, agent_adds, &c->agents,
		          err);
	if (!r)
		r = serve(c, &c->listeners[2], &enrol, &o->enrol_caps, enrol_adds, &c->enrol, err);
	return r;
}

/* What the store says of its disk, as grpc.health.v1 tells it. */
static void on_health(void *arg)
{
	struct controller *c = arg;
	struct rpc_server *const all[] = {c->admin, c->agents, c->enrol};
	struct store_stats st;

	store_stats(c->store, &st);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		(void)rpc_server_set_health(all[i], CONTROLLER_HEALTH_STORE,
		                            !st.full && !st.record_pending && !st.journal_failed &&
		                                    !c->cfg.reload_pending[0]);
	loop_timer_in_ms(c->loop, &c->health, HEALTH_MS, on_health, c);
}

static int serve_metrics(struct controller *c, const struct controller_opts *o,
                         struct ros2_err *err)
{
	struct metrics_opts mo = {.listen = o->metrics_listen,
	                          .allow_remote = o->metrics_allow_remote,
	                          .loop = c->loop,
	                          .render = controller_metrics_render,
	                          .arg = &c->page};

	c->page = (struct controller_metrics){c->ctl, c->admin, c->agents, c->enrol};
	return mo.listen ? metrics_start(&mo, &c->metrics, err) : 0;
}

static int start_reload(struct controller *c, struct ros2_err *err)
{
	struct reload_opts ro = {.loop = c->loop,
	                         .cfg = &c->cfg,
	                         .ctl = c->ctl,
	                         .svc = &c->svc,
	                         .admin = c->admin,
	                         .agents = c->agents};

	return reload_new(&ro, &c->reload) < 0 ? ros2_err_set(err, -ENOMEM, "out of memory") : 0;
}

int controller_new(const struct controller_opts *o, struct controller **ret, struct ros2_err *err)
{
	struct controller *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	c->loop = o->loop;
	list_init(&c->svc.links);
	r = config_load(o->config_dir, &c->cfg, err);
	if (r < 0) {
		free(c);
		return r;
	}
	if (o->agent_cert_ttl_s)
		c->cfg.agent_cert_ttl_s = o->agent_cert_ttl_s;
	r = open_store(c, o, err);
	if (!r) {
		c->svc.ctl = c->ctl;
		c->svc.cfg = &c->cfg;
		ctl_start(c->ctl);
		r = listen_all(c, o, err);
	}
	if (!r)
		r = start_reload(c, err);
	if (r < 0) {
		controller_free(c);
		return r;
	}
	on_health(c);
	r = serve_metrics(c, o, err);
	if (r < 0) {
		controller_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void controller_ports(const struct controller *c, struct controller_ports *ret)
{
	*ret = (struct controller_ports){.admin = rpc_server_port(c->admin),
	                                 .agent = rpc_server_port(c->agents),
	                                 .enrol = rpc_server_port(c->enrol),
	                                 .metrics = metrics_port(c->metrics),
	                                 .epoch = c->ctl->epoch.counter,
	                                 .trust_domain = c->cfg.trust_domain};
}

static void one_stopped(void *arg)
{
	struct controller *c = arg;

	if (--c->stopping == 0 && c->on_stopped)
		c->on_stopped(c->stopped_arg);
}

void controller_stop(struct controller *c, loop_fn on_stopped, void *arg)
{
	c->on_stopped = on_stopped;
	c->stopped_arg = arg;
	c->stopping = 3;
	svc_close_links(&c->svc);
	rpc_server_stop(c->enrol, STOP_GRACE_MS, one_stopped, c);
	rpc_server_stop(c->agents, STOP_GRACE_MS, one_stopped, c);
	rpc_server_stop(c->admin, STOP_GRACE_MS, one_stopped, c);
}

void controller_free(struct controller *c)
{
	if (!c)
		return;
	loop_timer_stop(&c->health);
	metrics_stop(c->metrics);
	reload_end(c->reload);
	rpc_server_free(c->enrol);
	rpc_server_free(c->agents);
	rpc_server_free(c->admin);
	if (c->ctl) {
		report_free_all(&c->svc);
		ctl_denials_flush(c->ctl);
	}
	store_close(c->store);
	reload_free(c->reload);
	ctl_free(c->ctl);
	config_fini(&c->cfg);
	free(c);
}

void controller_reload(struct controller *c)
{
	reload_now(c->reload);
}

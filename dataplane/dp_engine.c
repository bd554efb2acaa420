/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines of the data plane: made, replaced, removed. Loop only. Invariant: an engine is destroyed
 * only when no mount uses it and every reactor has let go.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct dp_engine *dp_engine_find(struct dp *dp, const char *name)
{
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++)
		if (dp->engines[i] && !dp->engines[i]->removed &&
		    !strcmp(dp->engines[i]->name, name))
			return dp->engines[i];
	return NULL;
}

int dp_io_features_parse(const char *words, uint32_t *ret, struct ros2_err *err)
{
	return engine_io_features_parse(words, ret, err);
}

static bool same_volumes(const struct nvmf_config *a, const struct nvmf_config *b)
{
	if (a->n_volumes != b->n_volumes)
		return false;
	for (uint32_t i = 0; i < a->n_volumes; i++) {
		const struct nvmf_volume *v = &a->volumes[i], *w = &b->volumes[i];

		if (strcmp(v->name, w->name) != 0 || v->nsid != w->nsid || v->offset != w->offset ||
		    v->size != w->size)
			return false;
	}
	return true;
}

/* Either may be NULL: not an engine of type nvmf. */
static bool same_nvmf(const struct nvmf_config *a, const struct nvmf_config *b)
{
	if (!a || !b)
		return a == b;
	return a->transport == b->transport && !strcmp(a->address, b->address) &&
	       a->port == b->port && !strcmp(a->subsystem, b->subsystem) &&
	       !strcmp(a->host_nqn, b->host_nqn) && !strcmp(a->secret, b->secret) &&
	       !strcmp(a->target_secret, b->target_secret) &&
	       a->header_digest == b->header_digest && a->data_digest == b->data_digest &&
	       a->keys_per_command == b->keys_per_command && a->queue_depth == b->queue_depth &&
	       a->keep_alive_ms == b->keep_alive_ms &&
	       a->command_timeout_ms == b->command_timeout_ms && a->quiesce_ms == b->quiesce_ms &&
	       same_volumes(a, b);
}

static bool share_a_block(const struct nvmf_volume *v, const struct nvmf_volume *w)
{
	uint64_t v_end = v->size ? v->offset + v->size : UINT64_MAX;
	uint64_t w_end = w->size ? w->offset + w->size : UINT64_MAX;

	return v->nsid == w->nsid && v->offset < w_end && w->offset < v_end;
}

/* The volume of @b that shares a block with one of @a, or NULL. A subsystem is one thing, whatever
 * its addresses are. */
static const struct nvmf_volume *taken(const struct nvmf_config *a, const struct nvmf_config *b)
{
	if (strcmp(a->subsystem, b->subsystem) != 0)
		return NULL;
	for (uint32_t i = 0; i < a->n_volumes; i++)
		for (uint32_t j = 0; j < b->n_volumes; j++)
			if (share_a_block(&a->volumes[i], &b->volumes[j]))
				return &b->volumes[j];
	return NULL;
}

/* Documents give no block twice, but the older one of another engine may still be in force here and
 * have what a newer one gives away. While somebody has that engine mounted nobody else gets it;
 * when nobody has, it goes, until its own newer document comes. */
static int take_over(struct dp *dp, const struct dp_engine_config *c, struct ros2_err *err)
{
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct dp_engine *e = dp->engines[i];
		const struct nvmf_volume *v;
		int rc;

		if (!e || e->removed || !e->nvmf || !strcmp(e->name, c->name))
			continue;
		v = taken(c->nvmf, e->nvmf);
		if (!v)
			continue;
		if (e->n_users)
			return ros2_err_named(err, ROS2_BUSY,
			                      "engine '%s': volume %.64s is still one of engine "
			                      "'%s', of which %u namespaces are open",
			                      c->name, v->name, e->name, e->n_users);
		rc = dp_engine_remove(dp, e->name, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static bool same_config(const struct dp_engine *e, const struct dp_engine_config *c)
{
	return !strcmp(e->type, c->type) && !strcmp(e->root, c->root ? c->root : "") &&
	       e->size_bytes == c->size_bytes && e->null_mode == c->null_mode &&
	       e->io_features == c->io_features && same_nvmf(e->nvmf, c->nvmf);
}

void dp_engine_free(struct dp_engine *e)
{
	if (!e)
		return;
	pthread_mutex_destroy(&e->ready_lock);
	free(e->at);
	free(e->nvmf);
	free(e);
}

void dp_engine_destroy(struct dp_engine *e)
{
	struct engine *engine = TAKE_PTR(e->engine);

	for (uint32_t i = 0; engine && i < e->dp->n_reactors; i++) {
		struct engine_reactor *er = atomic_exchange(&e->at[i].ready, NULL);

		if (er)
			e->ops->reactor_free(er);
	}
	e->ops->destroy(engine);
}

static int create_engine(struct dp *dp, struct dp_engine *e, const struct dp_engine_config *c,
                         struct ros2_err *err)
{
	struct engine_config ec = {.name = c->name,
	                           .root = c->root,
	                           .size_bytes = c->size_bytes,
	                           .null_mode = c->null_mode,
	                           .io_features = c->io_features,
	                           .nvmf = c->nvmf,
	                           .secrets_dir = dp->opts.secrets_dir};
	int rc;

	if (c->nvmf)
		dp_unquiet_tell(dp, c->nvmf, &ec);
	e->dp = dp;
	snprintf(e->name, sizeof(e->name), "%s", c->name);
	snprintf(e->type, sizeof(e->type), "%s", c->type);
	snprintf(e->root, sizeof(e->root), "%s", c->root ? c->root : "");
	e->size_bytes = c->size_bytes;
	e->null_mode = c->null_mode;
	e->io_features = c->io_features;
	if (c->nvmf) {
		e->nvmf = malloc(sizeof(*e->nvmf));
		if (!e->nvmf)
			return ros2_err_set(err, -ENOMEM, "no memory for an engine");
		*e->nvmf = *c->nvmf;
		e->lends = c->nvmf->transport == NVMF_RDMA;
	}
	rc = e->ops->create(&ec, &e->engine, err);
	e->takes_any_memory =
		rc == 0 && e->ops->takes_any_memory && e->ops->takes_any_memory(e->engine);
	return rc;
}

/* Nobody calls one that is being removed. */
static void tell_workers(struct dp *dp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++)
		n += dp->engines[i] && !dp->engines[i]->removed;
	workers_engines(dp->workers, n);
}

static int add_engine(struct dp *dp, const struct engine_ops *ops, const struct dp_engine_config *c,
                      struct ros2_err *err)
{
	struct dp_engine *e;
	uint32_t slot = 0;
	int rc;

	while (slot < DP_ENGINES_MAX && dp->engines[slot])
		slot++;
	if (slot == DP_ENGINES_MAX)
		return ros2_err_named(err, ROS2_LIMIT,
		                      "engines of an agent: the limit is %u (fixed)",
		                      DP_ENGINES_MAX);
	e = calloc(1, sizeof(*e));
	if (!e)
		return ros2_err_set(err, -ENOMEM, "no memory for an engine");
	e->ops = ops;
	e->slot = slot;
	pthread_mutex_init(&e->ready_lock, NULL);
	e->at = calloc(dp->n_reactors, sizeof(*e->at));
	/* What takes it away again needs no memory then. */
	if (!dp->engine_drops[slot])
		dp->engine_drops[slot] = calloc(dp->n_reactors, sizeof(struct dp_op));
	rc = dp->engine_drops[slot] && e->at
	             ? create_engine(dp, e, c, err)
	             : ros2_err_set(err, -ENOMEM, "no memory for an engine");
	if (rc < 0) {
		dp_engine_free(e);
		return rc;
	}
	dp->engines[slot] = e;
	tell_workers(dp);
	return 0;
}

static const struct engine_ops *find_type(const char *type)
{
#ifdef ROS2_TEST_SWITCHES
	if (dp_test_switches.extra_engine && !strcmp(dp_test_switches.extra_engine->type, type))
		return dp_test_switches.extra_engine;
#endif
	return engine_ops_find(type);
}

int dp_engine_put(struct dp *dp, const struct dp_engine_config *c, struct ros2_err *err)
{
	const struct engine_ops *ops = find_type(c->type);
	struct dp_engine *e = dp_engine_find(dp, c->name);
	int rc;

	loop_assert_owner(dp->loop);
	if (!ops)
		return ros2_err_named(err, ROS2_UNSUPPORTED, "engine '%s': no type '%s' here",
		                      c->name, c->type);
	if (strlen(c->name) > ROS2_NAME_MAX || (c->root && strlen(c->root) >= sizeof(e->root)))
		return ros2_err_set(err, -EINVAL, "engine: the name or root is too long");
	if (c->nvmf && c->nvmf->secret[0] && !dp->opts.secrets_dir)
		return ros2_err_named(err, ROS2_UNSUPPORTED,
		                      "engine '%s' needs secrets (secretRef), and this agent has "
		                      "no directory of secrets (--secrets-dir)",
		                      c->name);
	if (e && same_config(e, c))
		return 0;
	rc = c->nvmf ? take_over(dp, c, err) : 0;
	if (rc < 0)
		return rc;
	if (e) {
		rc = dp_engine_remove(dp, c->name, err);
		if (rc < 0)
			return rc;
	}
	return add_engine(dp, ops, c, err);
}

/* On a worker: it may wait for a target that is told of it, or for a file system. */
static void destroy_engine(struct dp_op *op)
{
	dp_engine_destroy(op->engine);
}

static void destroy_next(struct dp *dp);

static void engine_destroyed(struct dp_op *op)
{
	struct dp_engine *e = op->engine;
	struct dp *dp = e->dp;

	dp_op_finish(op);
	/* No worker came to it: the data plane ends. */
	if (e->engine)
		dp_engine_destroy(e);
	dp->engines[e->slot] = NULL;
	dp_engine_free(e);
	dp->destroying = false;
	destroy_next(dp);
}

/* One after the other, so that however many are slow to end they have one worker. */
static void destroy_next(struct dp *dp)
{
	for (uint32_t i = 0; i < DP_ENGINES_MAX && !dp->destroying; i++) {
		struct dp_engine *e = dp->engines[i];

		if (!e || !e->dropped)
			continue;
		dp->destroying = true;
		dp_op_to_worker(TAKE_PTR(e->dropped), NULL, destroy_engine, engine_destroyed);
	}
}

static void engine_dropped(struct dp_op *op)
{
	struct dp_engine *e = op->engine;

	if (--e->n_dropping) {
		dp_op_finish(op);
		return;
	}
	e->ending = true;
	e->dropped = op;
	destroy_next(e->dp);
}

int dp_engine_remove(struct dp *dp, const char *name, struct ros2_err *err)
{
	struct dp_engine *e = dp_engine_find(dp, name);

	loop_assert_owner(dp->loop);
	if (!e)
		return ros2_err_named(err, ROS2_NOT_FOUND, "no engine '%s'", name);
	if (e->n_users)
		return ros2_err_named(err, ROS2_BUSY, "engine '%s': %u namespaces are open", name,
		                      e->n_users);
	e->removed = true;
	tell_workers(dp);
	e->n_dropping = dp->n_reactors;
	for (uint32_t i = 0; i < dp->n_reactors; i++) {
		struct dp_op *op = &dp->engine_drops[e->slot][i];

		dp_op_begin(op, dp, NULL, NULL);
		op->engine = e;
		dp_op_to_reactor(op, dp->reactors[i], reactor_run_engine_drop, engine_dropped);
	}
	return 0;
}

struct health_call {
	const char *engine;
	void (*fn)(void *arg, const struct dp_engine_health *h);
	void *arg;
};

static void tell_health(void *arg, const struct engine_health *h)
{
	struct health_call *c = arg;
	const struct dp_engine_health out = {.engine = c->engine,
	                                     .tenant = h->name,
	                                     .state = h->state,
	                                     .words = h->words,
	                                     .live = h->live,
	                                     .lost = h->lost,
	                                     .since_ns = h->since_ns,
	                                     .connects = h->connects,
	                                     .unknown_writes = h->unknown_writes,
	                                     .retries = h->retries,
	                                     .given_up = h->given_up};

	c->fn(c->arg, &out);
}

void dp_engines_health(struct dp *dp, void (*fn)(void *arg, const struct dp_engine_health *h),
                       void *arg)
{
	loop_assert_owner(dp->loop);
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct dp_engine *e = dp->engines[i];
		struct health_call c = {.fn = fn, .arg = arg};

		if (!e || e->removed || !e->ops->health)
			continue;
		c.engine = e->name;
		e->ops->health(e->engine, tell_health, &c);
	}
}

/* An engine that is removed may have calls inside, and another its name by now. */
void dp_control_load(struct dp *dp, void (*fn)(void *arg, const struct dp_control_load *l),
                     void *arg)
{
	struct dp_control_load all[DP_ENGINES_MAX + 1], *rest = &all[DP_ENGINES_MAX];

	loop_assert_owner(dp->loop);
	workers_load(dp->workers, all);
	rest->engine = "";
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct dp_engine *e = dp->engines[i];

		if (e && !e->removed) {
			all[i].engine = e->name;
			fn(arg, &all[i]);
			continue;
		}
		rest->inside += all[i].inside;
		rest->waiting += all[i].waiting;
		rest->oldest_ns = MAX(rest->oldest_ns, all[i].oldest_ns);
	}
	fn(arg, rest);
}

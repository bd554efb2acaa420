/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane under test on its own loop thread, and blocking forms of its calls. */
#include "tests/dataplane/fixture.h"
#include "tests/await.h"
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *fx_engine_type = "mem", *fx_engine_root;
uint32_t fx_io_features;
enum dp_transport fx_transport;
const char *fx_rdma_device, *fx_rdma_host;
uint32_t fx_rdma_keep_ms;
bool fx_shm;
uint64_t fx_shm_tenant_bytes, fx_shm_total_bytes;

void fx_from_env(void)
{
	const char *transport = getenv("ROS2_TEST_TRANSPORT");

	if (transport && !strcmp(transport, "shm")) {
		fx_transport = DP_TRANSPORT_SHM;
		fx_shm = true;
	}
	if (!transport || strcmp(transport, "verbs"))
		return;
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = getenv("ROS2_TEST_RDMA_DEVICE");
	fx_rdma_host = getenv("ROS2_TEST_RDMA_HOST");
	if (!fx_rdma_device)
		fx_rdma_device = "mem0"; /* tests/verbs/fabric_mem.h */
	if (!fx_rdma_host)
		fx_rdma_host = "127.0.0.1";
}

static void on_event(void *arg, const struct dp_event *ev)
{
	struct fx *fx = arg;

	pthread_mutex_lock(&fx->lock);
	if (ev->type == DP_EVENT_VIOLATION)
		fx->violations += ev->count;
	if (ev->type == DP_EVENT_HELLO_REFUSED)
		fx->refused += ev->count;
	/* The other half is kept for what is not a violation. */
	if (fx->n_events < (ev->type == DP_EVENT_VIOLATION ? FX_EVENTS / 2 : FX_EVENTS))
		fx->events[fx->n_events++] = *ev;
	pthread_cond_broadcast(&fx->cond);
	pthread_mutex_unlock(&fx->lock);
}

static struct timespec in_20_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += AWAIT_S;
	return ts;
}

static int find_event(struct fx *fx, enum dp_event_type type, int status)
{
	for (uint32_t i = 0; i < fx->n_events; i++)
		if (fx->events[i].type == type &&
		    (status < 0 || (int)fx->events[i].status == status))
			return (int)i;
	return -1;
}

struct dp_event fx_event(struct fx *fx, enum dp_event_type type, int status)
{
	struct timespec until = in_20_s();
	struct dp_event ev = {0};
	int i, rc = 0;

	pthread_mutex_lock(&fx->lock);
	while ((i = find_event(fx, type, status)) < 0 && rc == 0)
		rc = pthread_cond_timedwait(&fx->cond, &fx->lock, &until);
	if (i >= 0)
		ev = fx->events[i];
	for (uint32_t k = 0; i < 0 && k < fx->n_events; k++)
		fprintf(stderr, "# event %d %s: %s\n", fx->events[k].type,
		        ros2_status_to_str(fx->events[k].status), fx->events[k].words);
	pthread_mutex_unlock(&fx->lock);
	if (i < 0)
		fail_msg("no event of type %d with status %d", type, status);
	return ev;
}

uint32_t fx_count_events(struct fx *fx, enum dp_event_type type, int status)
{
	uint32_t n = 0;

	pthread_mutex_lock(&fx->lock);
	for (uint32_t i = 0; i < fx->n_events; i++)
		n += fx->events[i].type == type &&
		     (status < 0 || (int)fx->events[i].status == status);
	pthread_mutex_unlock(&fx->lock);
	return n;
}

uint64_t fx_violations(struct fx *fx)
{
	uint64_t n;

	pthread_mutex_lock(&fx->lock);
	n = fx->violations;
	pthread_mutex_unlock(&fx->lock);
	return n;
}

void fx_forget_events(struct fx *fx)
{
	pthread_mutex_lock(&fx->lock);
	fx->n_events = 0;
	pthread_mutex_unlock(&fx->lock);
}

static int find_end(struct fx *fx, const struct ros2_uid *session)
{
	for (uint32_t i = 0; i < fx->n_events; i++)
		if (fx->events[i].type == DP_EVENT_SESSION_ENDED &&
		    ros2_uid_eq(&fx->events[i].session, session))
			return (int)i;
	return -1;
}

struct dp_event fx_ended(struct fx *fx, const struct ros2_uid *session)
{
	struct timespec until = in_20_s();
	struct dp_event ev = {0};
	int i, rc = 0;

	pthread_mutex_lock(&fx->lock);
	while ((i = find_end(fx, session)) < 0 && rc == 0)
		rc = pthread_cond_timedwait(&fx->cond, &fx->lock, &until);
	if (i >= 0)
		ev = fx->events[i];
	pthread_mutex_unlock(&fx->lock);
	if (i < 0)
		fail_msg("the session does not end");
	return ev;
}

uint64_t fx_rdma_total_bytes;
uint32_t fx_unproved_per_address, fx_poll_us, fx_control_workers, fx_slot_bytes;
const char *fx_secrets_dir, *fx_state_dir, *fx_seal_program;

static void make_dp(void *arg)
{
	struct fx *fx = arg;
	struct dp_opts o = {.loop = fx->loop,
	                    .reactors = 2,
	                    .listen_host = "127.0.0.1",
	                    .slot_bytes_total = fx_slot_bytes ? fx_slot_bytes : 16u << 20,
	                    .control_workers = fx_control_workers ? fx_control_workers : 2,
	                    .unproved_per_address = fx_unproved_per_address,
	                    .poll_us = fx_poll_us,
	                    .secrets_dir = fx_secrets_dir,
	                    .state_dir = fx_state_dir,
	                    .rdma_device = fx_rdma_device,
	                    .rdma_host = fx_rdma_host,
	                    .rdma_keep_ms = fx_rdma_keep_ms,
	                    .rdma_total_bytes =
	                            fx_rdma_total_bytes ? fx_rdma_total_bytes : 4ull << 30,
	                    .shm_dir = fx->base ? fx->shm_dir : NULL,
	                    .shm_tenant_bytes = fx_shm_tenant_bytes,
	                    .shm_total_bytes = fx_shm_total_bytes ? fx_shm_total_bytes : 4ull << 30,
	                    .seal_program = fx_seal_program,
	                    .on_event = on_event,
	                    .arg = fx};
	struct dp_engine_config mem = {.name = "ram",
	                               .type = fx_engine_type,
	                               .root = fx_engine_root,
	                               .io_features = fx_io_features,
	                               .size_bytes = fx_engine_root ? 0 : 256u << 20};
	struct ros2_err err = ROS2_ERR_INIT;

	if (dp_new(&o, &fx->dp, &err) < 0 || dp_engine_put(fx->dp, &mem, &err) < 0) {
		fprintf(stderr, "# %s\n", err.msg);
		abort();
	}
}

static void free_dp(void *arg)
{
	struct fx *fx = arg;

	dp_free(fx->dp);
}

int fx_setup(void **state)
{
	static const struct loop_opts lo = {.name = "test"};
	struct fx *fx = calloc(1, sizeof(*fx));

	if (!fx || loop_new(&lo, &fx->loop) < 0 || loop_thread_start(fx->loop) < 0)
		return -1;
	if (fx_shm) {
		if (testing_dir_setup(&fx->base))
			return -1;
		testing_path(fx->shm_dir, fx->base, "shm");
	}
	pthread_mutex_init(&fx->lock, NULL);
	pthread_cond_init(&fx->cond, NULL);
	loop_call(fx->loop, make_dp, fx);
	fx->tenant = ros2_uid_new();
	fx->grant = ros2_uid_new();
	fx->limits = (struct dp_tenant_limits){.registered_bytes = 64u << 20,
	                                       .region_size_min = 4096,
	                                       .region_size_max = 16u << 20,
	                                       .region_alignment = 4096,
	                                       .regions = 16,
	                                       .rkeys_concurrent = 16,
	                                       .sessions_max = 8,
	                                       .access = 3,
	                                       .lease_ttl_ms = 30000,
	                                       .contact_limit_ms = 600000,
	                                       .burst_ms = 10};
	fx->max_keys = 12;
	/* Long: what ends by time has times of its own, and the machine may be slow. */
	fx_contact(fx, clock_boottime_ns());
	fx_limits(fx);
	fx_grant(fx, &fx->grant, &fx->tenant, clock_boottime_ns() + 600 * NS_PER_S);
	*state = fx;
	return 0;
}

int fx_teardown(void **state)
{
	struct fx *fx = *state;
	int rc = 0;

	loop_call(fx->loop, free_dp, fx);
	loop_stop(fx->loop);
	loop_thread_join(fx->loop);
	loop_free(fx->loop);
	pthread_mutex_destroy(&fx->lock);
	pthread_cond_destroy(&fx->cond);
	/* Nothing of its own is left there: rmdir takes only what is empty. */
	if (fx->base)
		rc = rmdir(fx->shm_dir);
	if (fx->base)
		rc |= testing_dir_teardown(&fx->base);
	free(fx);
	return rc;
}

static void *file_dir; /* owned, of testing_dir_setup */

int fx_file_setup(void **state)
{
	static char root[4096];

	if (testing_dir_setup(&file_dir))
		return -1;
	testing_path(root, file_dir, "root");
	fx_engine_type = "file";
	fx_engine_root = root;
	return fx_setup(state);
}

int fx_threads_setup(void **state)
{
	fx_io_features = ENGINE_IO_NO_URING;
	return fx_file_setup(state);
}

int fx_file_teardown(void **state)
{
	int rc = fx_teardown(state);

	fx_engine_type = "mem";
	fx_engine_root = NULL;
	fx_io_features = 0;
	return testing_dir_teardown(&file_dir) || rc;
}

/* ---- short calls ---- */

struct short_call {
	struct fx *fx;
	struct ros2_uid uid;
	const struct dp_grant *grant;
	struct dp_session_stats stats;
	uint32_t n;
	int rc;
};

static void do_tenant(void *arg)
{
	struct short_call *c = arg;

	c->rc = dp_tenant_put(c->fx->dp, &c->uid, "alpha", &c->fx->limits, NULL);
}

void fx_tenant(struct fx *fx, const struct ros2_uid *tenant)
{
	struct short_call c = {.fx = fx, .uid = *tenant};

	loop_call(fx->loop, do_tenant, &c);
	assert_int_equal(c.rc, 0);
}

void fx_limits(struct fx *fx)
{
	fx_tenant(fx, &fx->tenant);
}

void fx_contact(struct fx *fx, uint64_t stamp_ns)
{
	dp_contact(fx->dp, stamp_ns);
}

static void do_grant(void *arg)
{
	struct short_call *c = arg;

	c->rc = dp_grant_put(c->fx->dp, c->grant, NULL);
}

int fx_grant(struct fx *fx, const struct ros2_uid *grant, const struct ros2_uid *tenant,
             uint64_t deadline_ns)
{
	struct dp_grant g = {.grant = *grant,
	                     .tenant = *tenant,
	                     .deadline_ns = deadline_ns,
	                     .max_keys = fx->max_keys,
	                     .max_bytes = 48u << 20,
	                     .access = 3};
	struct short_call c = {.fx = fx, .grant = &g};

	loop_call(fx->loop, do_grant, &c);
	return c.rc;
}

static void do_stats(void *arg)
{
	struct short_call *c = arg;

	c->rc = dp_session_stats(c->fx->dp, &c->uid, &c->stats);
}

struct dp_session_stats fx_stats(struct fx *fx, const struct ros2_uid *session)
{
	struct short_call c = {.fx = fx, .uid = *session};

	loop_call(fx->loop, do_stats, &c);
	assert_int_equal(c.rc, 0);
	return c.stats;
}

bool fx_has_read(struct fx *fx, const struct ros2_uid *session, uint64_t n)
{
	struct short_call c = {.fx = fx, .uid = *session};

	loop_call(fx->loop, do_stats, &c);
	return c.rc < 0 || (c.stats.read_ops == n && !c.stats.in_flight);
}

static void do_count(void *arg)
{
	struct short_call *c = arg;

	c->n = dp_lease_count(c->fx->dp);
}

uint32_t fx_lease_count(struct fx *fx)
{
	struct short_call c = {.fx = fx};

	loop_call(fx->loop, do_count, &c);
	return c.n;
}

uint32_t fx_slots(struct fx *fx)
{
	struct dp_slots s;
	uint32_t n = 0;

	for (uint32_t i = 0; dp_slots(fx->dp, i, &s); i++)
		n += s.taken;
	return n;
}

void fx_no_slots(struct fx *fx)
{
	AWAIT(!fx_slots(fx));
	assert_int_equal(fx_slots(fx), 0);
}

/* ---- asynchronous calls ---- */

struct call {
	struct fx *fx;
	enum fx_kind kind;
	const struct fx_args *a;
	struct dp_result res;
	sem_t done;
};

static void call_done(void *arg, const struct dp_result *res)
{
	struct call *c = arg;

	c->res = *res;
	sem_post(&c->done);
}

static void call_start(void *arg)
{
	struct call *c = arg;
	const struct fx_args *a = c->a;
	struct dp *dp = c->fx->dp;
	struct dp_session_params p = {a->session, a->tenant,    a->grant,
	                              a->a,       fx_transport, a->shm_bytes};

	switch (c->kind) {
	case FX_OPEN_SESSION:
		dp_session_open(dp, &p, call_done, c);
		break;
	case FX_CLOSE_SESSION:
		dp_session_close(dp, &a->session, ROS2_CLOSED, call_done, c);
		break;
	case FX_MOUNT:
		dp_mount(dp, &a->session, a->to, a->path, a->flags, call_done, c);
		break;
	case FX_OPEN:
		dp_open(dp, &a->session, a->mount, a->path, a->flags, 0644, call_done, c);
		break;
	case FX_CLOSE:
		dp_close(dp, &a->session, a->a, call_done, c);
		break;
	case FX_FSTAT:
		dp_fstat(dp, &a->session, a->a, call_done, c);
		break;
	case FX_TRUNCATE:
		dp_truncate(dp, &a->session, a->a, a->b, call_done, c);
		break;
	case FX_FLUSH:
		dp_flush(dp, &a->session, a->a, call_done, c);
		break;
	case FX_PATH:
		dp_path(dp, &a->session, a->mount, a->path_op, a->path, a->to, 0755, call_done, c);
		break;
	case FX_READDIR:
		dp_readdir(dp, &a->session, a->mount, a->path, a->a, 100, call_done, c);
		break;
	case FX_REGISTER:
		dp_region_register(dp, &a->session, a->a, a->b, a->flags, call_done, c);
		break;
	case FX_RENEW:
		dp_region_renew(dp, &a->session, a->key, call_done, c);
		break;
	case FX_DEREGISTER:
		dp_region_deregister(dp, &a->session, a->key, call_done, c);
		break;
	}
}

struct dp_result fx_do(struct fx *fx, enum fx_kind kind, const struct fx_args *a)
{
	struct call c = {.fx = fx, .kind = kind, .a = a};

	sem_init(&c.done, 0, 0);
	loop_call(fx->loop, call_start, &c);
	while (sem_wait(&c.done) < 0) /* EINTR */
		;
	sem_destroy(&c.done);
	return c.res;
}

struct revoke_call {
	struct fx *fx;
	enum dp_scope scope;
	const struct ros2_uid *uid;
	struct fx_revoked *r;
};

/* r->calls is written on the loop; fx_wait_calls reads it there. */
static void revoke_done(void *arg, const struct dp_result *res)
{
	struct fx_revoked *r = arg;

	if (r->calls == 0) {
		r->first = *res;
		r->first_at_ns = clock_boottime_ns();
	}
	r->last = *res;
	r->last_at_ns = clock_boottime_ns();
	__atomic_store_n(&r->calls, r->calls + 1, __ATOMIC_RELEASE);
}

static void revoke_start(void *arg)
{
	struct revoke_call *c = arg;

	dp_revoke(c->fx->dp, c->scope, c->uid, clock_boottime_ns(), ROS2_REVOKED, revoke_done,
	          c->r);
}

static void look_calls(void *arg)
{
	uint32_t **pair = arg;

	*pair[1] = *pair[0];
}

void fx_wait_calls(struct fx *fx, struct fx_revoked *r, uint32_t calls)
{
	uint32_t seen = 0, *pair[] = {&r->calls, &seen};

	AWAIT((loop_call(fx->loop, look_calls, pair), seen >= calls));
	assert_int_equal(seen, calls);
}

void fx_revoke_begin(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid,
                     struct fx_revoked *r)
{
	struct revoke_call c = {fx, scope, uid, r};

	memset(r, 0, sizeof(*r));
	loop_call(fx->loop, revoke_start, &c);
}

void fx_revoke(struct fx *fx, enum dp_scope scope, const struct ros2_uid *uid, struct fx_revoked *r)
{
	fx_revoke_begin(fx, scope, uid, r);
	while (!__atomic_load_n(&r->calls, __ATOMIC_ACQUIRE))
		/* poll: a counter of the loop's thread */
		usleep(50);
}

struct leases_call {
	struct fx *fx;
	const struct ros2_uid *tenant;
	struct dp_lease_info *out;
	uint32_t n, max;
	sem_t done;
};

static void one_lease(void *arg, const struct dp_lease_info *info)
{
	struct leases_call *c = arg;

	if (info)
		c->out[c->n++] = *info;
	else
		sem_post(&c->done);
}

static void leases_start(void *arg)
{
	struct leases_call *c = arg;

	if (dp_leases(c->fx->dp, c->tenant, c->max, one_lease, c) < 0)
		one_lease(c, NULL);
}

uint32_t fx_leases(struct fx *fx, const struct ros2_uid *tenant, struct dp_lease_info *out,
                   uint32_t max)
{
	struct leases_call c = {.fx = fx, .tenant = tenant, .out = out, .max = max};

	sem_init(&c.done, 0, 0);
	loop_call(fx->loop, leases_start, &c);
	while (sem_wait(&c.done) < 0) /* EINTR */
		;
	sem_destroy(&c.done);
	return c.n;
}

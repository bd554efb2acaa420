/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of the probe: probe_soft_priv.h tells what it is. */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/engine.h"
#include "dataplane/probe_soft_priv.h"
#include <errno.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the data plane, on a loop of its own thread ---- */

static void ignore(void *arg, const struct dp_event *ev)
{
}

static void make_dp(void *arg)
{
	struct ps *p = arg;
	struct dp_opts o = {.loop = p->loop,
	                    .reactors = 1,
	                    .listen_host = "127.0.0.1",
	                    .slot_bytes_total = 16u << 20,
	                    .shm_dir = p->dir[0] ? p->dir : NULL,
	                    .control_workers = 1,
	                    .on_event = ignore};
	struct dp_engine_config mem = {.name = "probe", .type = "mem", .size_bytes = 64u << 20};

	if (dp_new(&o, &p->dp, &p->err) < 0)
		p->dp = NULL;
	else if (dp_engine_put(p->dp, &mem, &p->err) == 0)
		dp_contact(p->dp, clock_boottime_ns());
}

static void free_dp(void *arg)
{
	struct ps *p = arg;

	dp_free(p->dp);
}

static int make_dir_in(const char *in, struct ps *p)
{
	int n = snprintf(p->dir, sizeof(p->dir), "%s/ros2-probe-XXXXXX", in), r = 0;

	if (n < 0 || (size_t)n >= sizeof(p->dir))
		r = -ENAMETOOLONG;
	else if (!mkdtemp(p->dir))
		r = -errno;
	if (r)
		p->dir[0] = '\0';
	return r;
}

/* Where nobody else gets at the socket, and its path is short enough for one. */
static int make_dir(struct ps *p)
{
	const char *said = getenv("TMPDIR");
	int r = said && *said ? make_dir_in(said, p) : -ENAMETOOLONG;

	if (r != -ENAMETOOLONG)
		return r;
	r = make_dir_in("/tmp", p);
	return r ? make_dir_in("/dev/shm", p) : 0;
}

int ps_open(struct ps *p, const struct ps_way *way, struct ros2_err *err)
{
	static const struct loop_opts lo = {.name = "probe"};
	int r;

	*p = (struct ps){.way = way, .err = ROS2_ERR_INIT};
	r = way->memory_bytes ? make_dir(p) : 0;
	if (r)
		return ros2_err_set(err, r, "no directory for the socket of the probe: %s",
		                    strerror(-r));
	r = loop_new(&lo, &p->loop);
	if (!r)
		r = loop_thread_start(p->loop);
	if (!r)
		r = loop_call(p->loop, make_dp, p);
	if (!r)
		r = p->err.code;
	if (!r)
		return 0;
	ros2_err_set(err, r, "no data plane for the probe of %s: %s", way->name,
	             p->err.code ? p->err.msg : strerror(-r));
	ps_close(p);
	return r;
}

void ps_close(struct ps *p)
{
	if (p->dp)
		loop_call(p->loop, free_dp, p);
	if (p->loop) {
		loop_stop(p->loop);
		loop_thread_join(p->loop);
		loop_free(p->loop);
	}
	if (p->dir[0])
		rmdir(p->dir);
}

/* ---- calls that wait for their answer ---- */

struct call {
	struct ps *p;
	struct ps_peer *c;
	void (*start)(struct call *call);
	struct dp_result res;
	sem_t done;
	/* arguments */
	const char *name;
	const struct ps_tenant *tenant;
	uint64_t read_bytes_per_s;
	uint64_t base, length;
	uint32_t access, key, mount;
	uint64_t began_ns, ended_ns; /* of a revoke */
	int r;
};

static void call_run(void *arg)
{
	struct call *call = arg;

	call->start(call);
}

static void call_done(void *arg, const struct dp_result *res)
{
	struct call *call = arg;

	call->res = *res;
	sem_post(&call->done);
}

static enum ros2_status call_wait(struct call *call)
{
	sem_init(&call->done, 0, 0);
	if (loop_call(call->p->loop, call_run, call)) {
		call->res.status = ROS2_INTERNAL;
	} else {
		while (sem_wait(&call->done) < 0) /* EINTR */
			;
	}
	sem_destroy(&call->done);
	return call->res.status;
}

static void add_tenant(void *arg)
{
	struct call *call = arg;
	const struct dp_tenant_limits limits = {.registered_bytes = 64u << 20,
	                                        .region_size_min = 4096,
	                                        .region_size_max = 16u << 20,
	                                        .region_alignment = 4096,
	                                        .regions = 16,
	                                        .rkeys_concurrent = 16,
	                                        .sessions_max = 64,
	                                        .access = 3,
	                                        .lease_ttl_ms = 60000,
	                                        .contact_limit_ms = 600000,
	                                        .read_bytes_per_s = call->read_bytes_per_s,
	                                        .burst_ms = 10};
	struct dp_grant g = {.grant = call->tenant->grant,
	                     .tenant = call->tenant->tenant,
	                     .deadline_ns = UINT64_MAX,
	                     .max_keys = 64,
	                     .max_bytes = 64u << 20,
	                     .access = 3};

	call->r = dp_tenant_put(call->p->dp, &g.tenant, call->name, &limits, NULL);
	if (!call->r)
		call->r = dp_grant_put(call->p->dp, &g, NULL);
}

int ps_tenant_add(struct ps *p, const char *name, uint64_t read_bytes_per_s, struct ps_tenant *ret)
{
	struct call call = {
		.p = p, .name = name, .tenant = ret, .read_bytes_per_s = read_bytes_per_s};
	int r;

	*ret = (struct ps_tenant){ros2_uid_new(), ros2_uid_new()};
	r = loop_call(p->loop, add_tenant, &call);
	return r ? r : call.r;
}

static void start_open_session(struct call *call)
{
	const struct dp_session_params sp = {.session = call->c->session,
	                                     .tenant = call->c->of->tenant,
	                                     .grant = call->c->of->grant,
	                                     .transport = call->p->way->transport,
	                                     .shm_bytes = call->p->way->memory_bytes,
	                                     .cert_deadline_ns = UINT64_MAX};

	dp_session_open(call->p->dp, &sp, call_done, call);
}

static void start_mount(struct call *call)
{
	dp_mount(call->p->dp, &call->c->session, "probe", call->name, 3, call_done, call);
}

static void start_open(struct call *call)
{
	dp_open(call->p->dp, &call->c->session, call->mount, "file",
	        ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE, 0600, call_done, call);
}

static void start_truncate(struct call *call)
{
	dp_truncate(call->p->dp, &call->c->session, call->c->handle, PS_FILE_BYTES, call_done,
	            call);
}

static void start_register(struct call *call)
{
	dp_region_register(call->p->dp, &call->c->session, call->base, call->length, call->access,
	                   call_done, call);
}

static void start_deregister(struct call *call)
{
	dp_region_deregister(call->p->dp, &call->c->session, call->key, call_done, call);
}

static void start_close(struct call *call)
{
	dp_session_close(call->p->dp, &call->c->session, ROS2_CLOSED, call_done, call);
}

/* The first answer is the receipt; a second one says that nothing drains any more, and is the one
 * that counts where that lands. */
static void revoked(void *arg, const struct dp_result *res)
{
	struct call *call = arg;

	if (!call->ended_ns && (!res->revoke.draining || !call->p->way->lands)) {
		call->ended_ns = clock_boottime_ns();
		call->p->way->mark(call->c);
		call->res = *res;
	}
	if (res->revoke.draining == 0)
		sem_post(&call->done);
}

static void start_revoke(struct call *call)
{
	call->began_ns = clock_boottime_ns();
	dp_revoke(call->p->dp, DP_SCOPE_SESSION, &call->c->session, call->began_ns, ROS2_REVOKED,
	          revoked, call);
}

static enum ros2_status open_file(struct ps_peer *c)
{
	struct call call = {.p = c->p, .c = c, .start = start_mount};
	char path[ROS2_UID_STR_LEN];
	enum ros2_status st;

	ros2_uid_to_str(&c->of->tenant, path);
	call.name = path;
	st = call_wait(&call);
	if (st != ROS2_OK)
		return st;
	call.mount = call.res.mount.mount;
	call.start = start_open;
	st = call_wait(&call);
	if (st != ROS2_OK)
		return st;
	c->handle = call.res.open.handle;
	call.start = start_truncate;
	return call_wait(&call);
}

int ps_peer_open(struct ps *p, const struct ps_tenant *of, struct ps_peer *ret)
{
	struct call call = {.p = p, .c = ret, .start = start_open_session};

	*ret = (struct ps_peer){
		.p = p, .of = of, .session = ros2_uid_new(), .fd = -1, .m = {.fd = -1}};
	if (call_wait(&call) != ROS2_OK)
		return -EIO;
	memcpy(ret->secret, call.res.session.secret, sizeof(ret->secret));
	ret->port = call.res.session.port;
	ret->path = call.res.session.shm_path;
	ret->credits = call.res.session.credits;
	if (ps_hello(ret, &ret->fd) == ROS2_OK && (!p->way->join || p->way->join(ret) == 0) &&
	    open_file(ret) == ROS2_OK)
		return 0;
	ps_peer_close(ret);
	return -EIO;
}

void ps_peer_hang_up(struct ps_peer *c)
{
	if (c->fd >= 0)
		close(TAKE_FD(c->fd));
	if (c->p->way->leave)
		c->p->way->leave(c);
}

void ps_peer_close(struct ps_peer *c)
{
	struct call call = {.p = c->p, .c = c, .start = start_close};

	if (!c->p)
		return;
	call_wait(&call);
	ps_peer_hang_up(c);
	*c = (struct ps_peer){.fd = -1};
}

enum ros2_status ps_register(struct ps_peer *c, uint64_t base, uint64_t length, uint32_t access,
                             uint32_t *ret_key)
{
	struct call call = {.p = c->p,
	                    .c = c,
	                    .start = start_register,
	                    .base = base,
	                    .length = length,
	                    .access = access};
	enum ros2_status st = call_wait(&call);

	if (st == ROS2_OK)
		*ret_key = call.res.region.key;
	return st;
}

enum ros2_status ps_deregister(struct ps_peer *c, uint32_t key)
{
	struct call call = {.p = c->p, .c = c, .start = start_deregister, .key = key};

	return call_wait(&call);
}

int ps_revoke(struct ps_peer *c, uint64_t *ret_took_ns)
{
	struct call call = {.p = c->p, .c = c, .start = start_revoke};

	if (call_wait(&call) != ROS2_OK)
		return -EIO;
	*ret_took_ns = call.ended_ns - call.began_ns;
	return 0;
}

/* ---- words ---- */

void ps_found(struct probe_finding *f, enum probe_result r, const char *fmt, ...)
{
	va_list ap;

	f->result = r;
	va_start(ap, fmt);
	vsnprintf(f->seen, sizeof(f->seen), fmt, ap);
	va_end(ap);
}

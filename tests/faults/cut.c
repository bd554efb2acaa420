/* SPDX-License-Identifier: Apache-2.0 */
/* See cut.h. A handler's callbacks are replaced by ours, which have the handler's as their user. */
#include "tests/faults/cut.h"
#include "tests/testing.h"
#include "common/util.h"
#include <pthread.h>

int __real_rpc_server_add(struct rpc_server *s, const struct rpc_service *svc,
                          const struct rpc_handler *rows, size_t n_rows, struct ros2_err *err);
int __wrap_rpc_server_add(struct rpc_server *s, const struct rpc_service *svc,
                          const struct rpc_handler *rows, size_t n_rows, struct ros2_err *err);
int __real_rpc_stream_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, const struct rpc_stream_opts *o,
                           struct rpc_stream **ret, struct ros2_err *err);
int __wrap_rpc_stream_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, const struct rpc_stream_opts *o,
                           struct rpc_stream **ret, struct ros2_err *err);
int __real_rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, uint32_t timeout_ms,
                           struct rpc_reader **ret, struct ros2_err *err);
int __wrap_rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, uint32_t timeout_ms,
                           struct rpc_reader **ret, struct ros2_err *err);
int __real_rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *msg);
int __wrap_rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *msg);
int __real_rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *reply);
int __wrap_rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *reply);
void __real_rpc_call_fail(struct rpc_call *c, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void __wrap_rpc_call_fail(struct rpc_call *c, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void __real_rpc_call_fail_err(struct rpc_call *c, const struct ros2_err *err);
void __wrap_rpc_call_fail_err(struct rpc_call *c, const struct ros2_err *err);
void __real_rpc_stream_close(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void __wrap_rpc_stream_close(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int __real_rpc_unary(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                     uint32_t timeout_ms, rpc_reply_fn fn, void *arg, struct rpc_request **ret_req,
                     struct ros2_err *err);
int __wrap_rpc_unary(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                     uint32_t timeout_ms, rpc_reply_fn fn, void *arg, struct rpc_request **ret_req,
                     struct ros2_err *err);
int __real_rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m,
                          const ProtobufCMessage *req, uint32_t timeout_ms,
                          ProtobufCMessage **ret_reply, struct ros2_err *err);
int __wrap_rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m,
                          const ProtobufCMessage *req, uint32_t timeout_ms,
                          ProtobufCMessage **ret_reply, struct ros2_err *err);

/* In place of a handler's user. Freed by cut_fini: streams come and go in between. */
struct shim {
	struct shim *next;
	const struct rpc_stream_ops *ops;
	rpc_unary_fn unary;
	void *user;
};

static struct relay *relay;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct cut plan;
static bool armed, paused;
static unsigned seen, fired, points, readers;
static struct shim *shims;
/* its own lock: it is gone when cut_witness has returned */
static pthread_rwlock_t witness_lock = PTHREAD_RWLOCK_INITIALIZER;
static cut_witness_fn witness;
static void *witness_arg;

/* ---- names ---- */

static void name_of(const ProtobufCMessage *m, char out[96])
{
	const ProtobufCMessageDescriptor *d = m->descriptor;

	snprintf(out, 96, "%s", d->short_name);
	for (unsigned i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		uint32_t which;

		if (!(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
			continue;
		memcpy(&which, (const char *)m + f->quantifier_offset, sizeof(which));
		if (which == f->id)
			snprintf(out, 96, "%s.%s", d->short_name, f->name);
	}
}

static enum cut_line line_of(const struct rpc_method *m)
{
	static const struct {
		const char *service;
		enum cut_line line;
	} of[] = {{"/ros2.v1.AgentLink/", CUT_LINK},
	          {"/ros2.v1.Enrol/", CUT_ENROL},
	          {"/ros2.v1.Tenant/", CUT_TENANT}};

	for (size_t i = 0; i < ARRAY_SIZE(of); i++)
		if (!strncmp(m->path, of[i].service, strlen(of[i].service)))
			return of[i].line;
	return CUT_ADMIN;
}

/* ---- the plan ---- */

/* What begins a call is sent before there is a connection, or on one that is made anew for it. */
static bool is_first(const struct rpc_method *m, const char *name)
{
	return (m->kind != RPC_BIDI && !strcmp(name, m->input->short_name)) ||
	       !strcmp(name, "AgentMessage.hello");
}

static void hit_name(const struct rpc_method *m, const char *name, enum cut_when when)
{
	bool now = false;

	pthread_mutex_lock(&lock);
	if (armed && !paused && plan.when == when && !strcmp(plan.name, name)) {
		seen++;
		now = seen == plan.at || (plan.for_good && seen > plan.at);
		fired += now;
	}
	pthread_mutex_unlock(&lock);
	if (!now)
		return;
	if (when == CUT_BEFORE && is_first(m, name))
		relay_refuse_next(relay, line_of(m));
	relay_cut(relay, line_of(m));
}

static void hit(const struct rpc_method *m, const ProtobufCMessage *msg, enum cut_when when)
{
	char name[96];

	if (!msg)
		return;
	name_of(msg, name);
	hit_name(m, name, when);
}

static void arrived(const struct rpc_method *m, const ProtobufCMessage *msg)
{
	char name[96];

	pthread_rwlock_rdlock(&witness_lock);
	if (witness && msg) {
		name_of(msg, name);
		witness(witness_arg, name, msg);
	}
	pthread_rwlock_unlock(&witness_lock);
	hit(m, msg, CUT_AFTER);
}

/* Under the lock. */
static void arm(const struct cut *c)
{
	plan = *c;
	seen = fired = 0;
	armed = true;
}

bool cut_next(struct cut *c, unsigned max)
{
	bool more;

	cut_off();
	pthread_mutex_lock(&lock);
	more = c->at == 0 || (fired && c->at < max);
	if (more) {
		c->at++;
		arm(c);
	}
	pthread_mutex_unlock(&lock);
	return more;
}

void cut_at(const struct cut *c)
{
	cut_off();
	pthread_mutex_lock(&lock);
	arm(c);
	pthread_mutex_unlock(&lock);
}

void cut_off(void)
{
	pthread_mutex_lock(&lock);
	points += armed && fired;
	armed = false;
	pthread_mutex_unlock(&lock);
	relay_refuse_none(relay);
}

void cut_pause(bool on)
{
	pthread_mutex_lock(&lock);
	paused = on;
	pthread_mutex_unlock(&lock);
}

unsigned cut_fired(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = fired;
	pthread_mutex_unlock(&lock);
	return n;
}

bool cut_is_over(const struct cut *c)
{
	return cut_fired() >= (c->for_good ? CUT_FOR_GOOD : 1);
}

void cut_where(const struct cut *c, char ret[CUT_WHERE_MAX])
{
	snprintf(ret, CUT_WHERE_MAX, "%s %u, %s, %s", c->name, c->at,
	         c->when == CUT_BEFORE ? "before it leaves" : "when it has arrived",
	         c->for_good ? "for good" : "once");
}

unsigned cut_readers(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = readers;
	pthread_mutex_unlock(&lock);
	return n;
}

unsigned cut_points(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = points;
	pthread_mutex_unlock(&lock);
	return n;
}

void cut_witness(cut_witness_fn fn, void *arg)
{
	pthread_rwlock_wrlock(&witness_lock);
	witness = fn;
	witness_arg = arg;
	pthread_rwlock_unlock(&witness_lock);
}

void cut_init(struct relay *r)
{
	relay = r;
	points = readers = 0;
}

void cut_fini(void)
{
	cut_off();
	cut_witness(NULL, NULL);
	while (shims) {
		struct shim *next = shims->next;

		free(shims);
		shims = next;
	}
	relay = NULL;
}

/* ---- receiving ---- */

static struct shim *shim_new(const struct rpc_stream_ops *ops, rpc_unary_fn unary, void *user)
{
	struct shim *s = malloc(sizeof(*s));

	*s = (struct shim){.ops = ops, .unary = unary, .user = user};
	pthread_mutex_lock(&lock);
	s->next = shims;
	shims = s;
	pthread_mutex_unlock(&lock);
	return s;
}

static void shim_unary(struct rpc_call *call, const ProtobufCMessage *req, void *user)
{
	struct shim *s = user;

	arrived(rpc_call_method(call), req);
	s->unary(call, req, s->user);
}

static void shim_open(struct rpc_stream *st, const ProtobufCMessage *req, void *user)
{
	struct shim *s = user;

	if (s->ops->on_open)
		s->ops->on_open(st, req, s->user);
}

static void shim_message(struct rpc_stream *st, const ProtobufCMessage *msg, void *user)
{
	struct shim *s = user;

	arrived(rpc_stream_method(st), msg);
	if (s->ops->on_message)
		s->ops->on_message(st, msg, s->user);
}

static void shim_half_close(struct rpc_stream *st, void *user)
{
	struct shim *s = user;

	if (s->ops->on_half_close)
		s->ops->on_half_close(st, s->user);
	else
		rpc_stream_close(st, ROS2_OK, NULL);
}

static void shim_writable(struct rpc_stream *st, void *user)
{
	struct shim *s = user;

	if (s->ops->on_writable)
		s->ops->on_writable(st, s->user);
}

static void shim_closed(struct rpc_stream *st, const struct ros2_err *why, void *user)
{
	struct shim *s = user;

	if (s->ops->on_closed)
		s->ops->on_closed(st, why, s->user);
}

static void reader_open(struct rpc_stream *st, const ProtobufCMessage *req, void *user)
{
	pthread_mutex_lock(&lock);
	readers++;
	pthread_mutex_unlock(&lock);
	arrived(rpc_stream_method(st), req);
	shim_open(st, req, user);
}

static void reader_closed(struct rpc_stream *st, const struct ros2_err *why, void *user)
{
	shim_closed(st, why, user);
	pthread_mutex_lock(&lock);
	readers--;
	pthread_mutex_unlock(&lock);
}

static const struct rpc_stream_ops reader_ops = {
	.on_open = reader_open, .on_writable = shim_writable, .on_closed = reader_closed};

static const struct rpc_stream_ops shim_ops = {.on_open = shim_open,
                                               .on_message = shim_message,
                                               .on_half_close = shim_half_close,
                                               .on_writable = shim_writable,
                                               .on_closed = shim_closed};

int __wrap_rpc_server_add(struct rpc_server *s, const struct rpc_service *svc,
                          const struct rpc_handler *rows, size_t n_rows, struct ros2_err *err)
{
	struct rpc_handler mine[64];

	assert_true(relay && n_rows <= ARRAY_SIZE(mine));
	for (size_t i = 0; i < n_rows; i++) {
		mine[i] = rows[i];
		if (rows[i].unary)
			mine[i].unary = shim_unary;
		else
			mine[i].stream = rows[i].method->kind == RPC_BIDI ? &shim_ops : &reader_ops;
		mine[i].user = shim_new(rows[i].stream, rows[i].unary, rows[i].user);
	}
	return __real_rpc_server_add(s, svc, mine, n_rows, err);
}

int __wrap_rpc_stream_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, const struct rpc_stream_opts *o,
                           struct rpc_stream **ret, struct ros2_err *err)
{
	struct rpc_stream_opts mine = *o;

	mine.ops = &shim_ops;
	mine.user = shim_new(o->ops, NULL, o->user);
	return __real_rpc_stream_open(c, m, req, &mine, ret, err);
}

/* ---- sending ---- */

int __wrap_rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m,
                           const ProtobufCMessage *req, uint32_t timeout_ms,
                           struct rpc_reader **ret, struct ros2_err *err)
{
	hit(m, req, CUT_BEFORE);
	return __real_rpc_reader_open(c, m, req, timeout_ms, ret, err);
}

int __wrap_rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *msg)
{
	hit(rpc_stream_method(s), msg, CUT_BEFORE);
	return __real_rpc_stream_send(s, msg);
}

int __wrap_rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *reply)
{
	hit(rpc_call_method(c), reply, CUT_BEFORE);
	return __real_rpc_call_reply(c, reply);
}

/* A refusal is an answer, too. */
void __wrap_rpc_call_fail(struct rpc_call *c, enum ros2_status status, const char *fmt, ...)
{
	struct ros2_err err = ROS2_ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
	va_end(ap);
	hit_name(rpc_call_method(c), rpc_call_method(c)->output->short_name, CUT_BEFORE);
	__real_rpc_call_fail(c, status, "%s", err.msg);
}

void __wrap_rpc_call_fail_err(struct rpc_call *c, const struct ros2_err *err)
{
	hit_name(rpc_call_method(c), rpc_call_method(c)->output->short_name, CUT_BEFORE);
	__real_rpc_call_fail_err(c, err);
}

void __wrap_rpc_stream_close(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
{
	const struct rpc_method *m = rpc_stream_method(s);
	struct ros2_err err = ROS2_ERR_INIT;
	char name[96];
	va_list ap;

	va_start(ap, fmt);
	if (fmt)
		vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
	va_end(ap);
	snprintf(name, sizeof(name), "%s.end", m->output->short_name);
	hit_name(m, name, CUT_BEFORE);
	__real_rpc_stream_close(s, status, "%s", err.msg);
}

int __wrap_rpc_unary(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                     uint32_t timeout_ms, rpc_reply_fn fn, void *arg, struct rpc_request **ret_req,
                     struct ros2_err *err)
{
	hit(m, req, CUT_BEFORE);
	return __real_rpc_unary(c, m, req, timeout_ms, fn, arg, ret_req, err);
}

int __wrap_rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m,
                          const ProtobufCMessage *req, uint32_t timeout_ms,
                          ProtobufCMessage **ret_reply, struct ros2_err *err)
{
	hit(m, req, CUT_BEFORE);
	return __real_rpc_unary_sync(c, m, req, timeout_ms, ret_reply, err);
}

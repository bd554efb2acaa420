/* SPDX-License-Identifier: Apache-2.0 */
/* See rpc_tap.h. */
#include "tests/client/rpc_tap.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/client/internal_priv.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- time ---- */

_Atomic uint64_t rpc_tap_passed_ns;
_Thread_local bool rpc_tap_in_library;

uint64_t __real_clock_monotonic_ns(void);
uint64_t __wrap_clock_monotonic_ns(void);
uint64_t __wrap_clock_monotonic_ns(void)
{
	return __real_clock_monotonic_ns() + rpc_tap_passed_ns;
}

int __real_usleep(useconds_t us);
int __wrap_usleep(useconds_t us);
int __wrap_usleep(useconds_t us)
{
	if (!rpc_tap_in_library)
		return __real_usleep(us);
	rpc_tap_passed_ns += us * 1000ull;
	return 0;
}

_Atomic unsigned rpc_tap_vain_waits;

/* A short one is a pause: what it waits for comes by time. */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	bool is_pause = timeout_ms > 0 && timeout_ms <= REGISTER_PAUSE_MS;
	int rc;

	if (!rpc_tap_in_library || timeout_ms <= 0)
		return __real_poll(fds, n, timeout_ms);
	rc = __real_poll(fds, n, is_pause ? 1 : timeout_ms);
	if (!rc && is_pause)
		rpc_tap_passed_ns += timeout_ms * NS_PER_MS;
	rpc_tap_vain_waits += !rc && !is_pause;
	return rc;
}

/* ---- faults ---- */

static const struct {
	const char *name;
	enum ros2_status says;
	bool done; /* carried out */
} faults[FAULT_LAST] = {
	[FAULT_NONE] = {"none", ROS2_OK, true},
	[FAULT_NOT_SENT] = {"not sent", ROS2_UNAVAILABLE, false},
	[FAULT_LOST] = {"lost", ROS2_UNAVAILABLE, true},
	[FAULT_STUCK] = {"stuck", ROS2_TIMEOUT, false},
	[FAULT_LATE] = {"late", ROS2_TIMEOUT, true},
	[FAULT_BUSY] = {"busy", ROS2_BUSY, false},
	[FAULT_LIMIT] = {"limit", ROS2_LIMIT, false},
	[FAULT_NO_SESSION] = {"no session", ROS2_BAD_SESSION, false},
	[FAULT_RESTARTED] = {"restarted", ROS2_UNAVAILABLE, false},
	[FAULT_DIED] = {"died", ROS2_UNAVAILABLE, true},
	[FAULT_LIE] = {"lie", ROS2_OK, false},
	[FAULT_TWICE] = {"twice", ROS2_OK, true},
	[FAULT_ELSEWHERE] = {"elsewhere", ROS2_OK, true},
	[FAULT_LEAK] = {"leak", ROS2_OK, true},
};

const char *fault_to_str(enum fault f)
{
	return faults[f].name;
}

enum ros2_status fault_says(enum fault f)
{
	return faults[f].says;
}

uint32_t rpc_tap_method(const struct rpc_method *m)
{
	for (uint32_t i = 0; i < ros2_v1_tenant_service.n_methods; i++)
		if (ros2_v1_tenant_service.methods[i] == m)
			return 1u << i;
	return 0;
}

static bool changes_names(const struct rpc_method *m, const ProtobufCMessage *req)
{
	return m == &ros2_v1_tenant_mkdir || m == &ros2_v1_tenant_rmdir ||
	       m == &ros2_v1_tenant_unlink || m == &ros2_v1_tenant_rename ||
	       (m == &ros2_v1_tenant_open && ros2_v1_tenant_open_in(req)->flags & ROS2_O_CREAT);
}

static bool changes(const struct rpc_method *m, const ProtobufCMessage *req)
{
	return m == &ros2_v1_tenant_truncate || changes_names(m, req);
}

static int carry_out(struct rpc_tap *t, const struct rpc_method *m, const ProtobufCMessage *req,
                     ProtobufCMessage **ret, struct ros2_err *err)
{
	int rc = t->to->call(t->to, m, req, 0, ret, err);

	if (!rc && changes_names(m, req))
		WITH_AGENT(t->agent, t->elsewhere += strcmp(t->agent->acted_in, t->ns) != 0);
	return rc;
}

static void forget_sessions(struct fake_agent *a)
{
	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < FAKE_SESSIONS; i++)
		a->sessions[i].live = false;
	for (int i = 0; i < FAKE_REGIONS; i++)
		a->leases[i].live = false;
	pthread_mutex_unlock(&a->lock);
	fake_agent_reset_all(a);
}

static void end_session(struct fake_agent *a, const ProtobufCMessage *req)
{
	/* Where it is in every request but OpenSession's. */
	const ProtobufCBinaryData *uid = &((const Ros2__V1__SessionRef *)req)->session_uid;

	pthread_mutex_lock(&a->lock);
	for (int i = 0; i < FAKE_SESSIONS; i++)
		a->sessions[i].live &= memcmp(a->sessions[i].uid, uid->data, 16) != 0;
	pthread_mutex_unlock(&a->lock);
}

static void count_strays(struct rpc_tap *t, const struct rpc_method *m)
{
	bool done = faults[t->fault].done;

	t->stray_sessions +=
		m == (done ? &ros2_v1_tenant_open_session : &ros2_v1_tenant_close_session);
	t->stray_mounts += done && m == &ros2_v1_tenant_mount;
	t->stray_handles += m == (done ? &ros2_v1_tenant_open : &ros2_v1_tenant_close);
	/* One whose renewal failed is had anew; the old one ends by itself. */
	t->stray_leases +=
		m == (done ? &ros2_v1_tenant_register_region : &ros2_v1_tenant_deregister_region) ||
		m == &ros2_v1_tenant_renew_region;
	t->lost_renewals += done && m == &ros2_v1_tenant_renew_region;
}

static int fail(struct rpc_tap *t, const struct rpc_method *m, const ProtobufCMessage *req,
                uint32_t timeout_ms, struct ros2_err *err)
{
	struct ros2_err ignored = ROS2_ERR_INIT;
	ProtobufCMessage *reply = NULL;

	if (faults[t->fault].done && !carry_out(t, m, req, &reply, &ignored))
		protobuf_c_message_free_unpacked(reply, NULL);
	count_strays(t, m);
	if (t->fault == FAULT_NO_SESSION && m != &ros2_v1_tenant_open_session)
		end_session(t->agent, req);
	if (t->fault == FAULT_RESTARTED || t->fault == FAULT_DIED)
		forget_sessions(t->agent);
	if (t->fault == FAULT_STUCK || t->fault == FAULT_LATE)
		rpc_tap_passed_ns += timeout_ms * NS_PER_MS;
	return ros2_err_named(err, faults[t->fault].says, "%s: %s", m->name,
	                      ros2_status_text(faults[t->fault].says));
}

static int lie(const struct rpc_method *m, ProtobufCMessage **ret)
{
	*ret = calloc(1, sizeof(Ros2__V1__Empty));
	protobuf_c_message_init(m->output, *ret);
	return 0;
}

static int misbehave(struct rpc_tap *t, const struct rpc_method *m, const ProtobufCMessage *req,
                     ProtobufCMessage **ret, struct ros2_err *err)
{
	bool lies = t->fault == FAULT_LIE && m->output == &ros2__v1__empty__descriptor,
	     elsewhere = t->fault == FAULT_ELSEWHERE && changes_names(m, req),
	     twice = (t->fault == FAULT_TWICE && changes(m, req)) ||
	             (t->fault == FAULT_LEAK && m == &ros2_v1_tenant_register_region);
	/* Where the mount is in every call on a path. */
	uint32_t *mount = &((Ros2__V1__PathRequest *)(uintptr_t)req)->mount;
	int rc;

	t->misbehaved = elsewhere || twice || lies;
	if (lies)
		return lie(m, ret);
	if (elsewhere)
		*mount ^= 3;
	rc = carry_out(t, m, req, ret, err);
	if (elsewhere)
		*mount ^= 3;
	if (rc || !twice)
		return rc;
	protobuf_c_message_free_unpacked(TAKE_PTR(*ret), NULL);
	return carry_out(t, m, req, ret, err);
}

/* ---- the library's side ---- */

static int tap_call(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                    uint32_t timeout_ms, ProtobufCMessage **ret, struct ros2_err *err)
{
	struct rpc_tap *t = container_of(c, struct rpc_tap, base);
	unsigned n = ++t->calls;

	t->methods |= rpc_tap_method(m);
	if (!t->at || (t->for_good ? n < t->at : n != t->at))
		return carry_out(t, m, req, ret, err);
	t->fired++;
	return t->fault >= FAULT_LIE ? misbehave(t, m, req, ret, err)
	                             : fail(t, m, req, timeout_ms, err);
}

/* Nothing reaches an agent that no call reaches any more. */
static int tap_wait_ready(struct control *c, uint32_t timeout_ms, struct ros2_err *err)
{
	struct rpc_tap *t = container_of(c, struct rpc_tap, base);

	if (!t->for_good || !t->fired || t->fault != FAULT_NOT_SENT)
		return 0;
	rpc_tap_passed_ns += timeout_ms * NS_PER_MS;
	return ros2_err_named(err, ROS2_UNAVAILABLE, "%s", ros2_status_text(ROS2_UNAVAILABLE));
}

static void tap_free(struct control *c)
{
	struct rpc_tap *t = container_of(c, struct rpc_tap, base);

	t->to->free(t->to);
}

void rpc_tap_init(struct rpc_tap *t, struct fake_agent *a)
{
	*t = (struct rpc_tap){.base = {tap_call, tap_wait_ready, tap_free, 0},
	                      .to = fake_control_new(a),
	                      .agent = a,
	                      .ns = ""};
}

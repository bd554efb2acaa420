/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that does not end the keys of one tenant while everything at its agent is revoked: what
 * `ros2ctl revoke` says of it, through a real controller, a real agent and its real data plane. The
 * tenants are libros2 over the device that is memory; the engine is mem, which pretends to have
 * lent keys. Controls: another tenant's keys, and a data plane that cannot be asked.
 */
#include "agent/state.h"
#include "common/util.h"
#include "controller/ctl.h"
#include "dataplane/client/ros2.h"
#include "dataplane/dp.h"
#include "dataplane/test_switches.h"
#include "tests/dataplane/slow_engine.h"
#include "tests/faults/pair.h"
#include "tests/verbs/fabric_mem.h"
#include <jansson.h>

/* ---- the engine: how many keys of a tenant's domain the device has not ended ---- */

enum { A, B, TENANTS };
static _Atomic(const struct fabric_pd *) domain[TENANTS];
static _Atomic uint32_t alive[TENANTS];
static _Atomic(const struct fabric_pd *) listed;

static uint32_t keys_ending(const struct engine_reactor *r, const struct fabric_pd *pd,
                            uint64_t until_ns, uint64_t *ret_last_ns)
{
	uint32_t n = 0;

	for (int i = 0; i < TENANTS; i++)
		if (!pd || pd == atomic_load(&domain[i]))
			n += atomic_load(&alive[i]);
	return n;
}

static uint32_t forget_regions(struct engine_reactor *r, const struct fabric_pd *pd)
{
	return 2;
}

static void keys(const struct engine_reactor *r, const struct fabric_pd *pd, bool folded,
                 key_info_fn fn, void *arg)
{
	atomic_store(&listed, pd);
}

/* ---- what the controller hears, and when the data plane cannot be asked ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[4096]; /* guarded by lock: "3" "3+2" "?" "-" of each receipt, a space behind */

void __real_ctl_receipt(struct ctl_agent *a, struct ctl_receipt *in);
void __wrap_ctl_receipt(struct ctl_agent *a, struct ctl_receipt *in);
void __wrap_ctl_receipt(struct ctl_agent *a, struct ctl_receipt *in)
{
	size_t at;

	pthread_mutex_lock(&lock);
	at = strlen(heard);
	for (uint32_t i = 0; i < in->n_pending; i++)
		at += (size_t)snprintf(heard + at, sizeof(heard) - at, "%s%u", i ? "+" : "",
		                       in->pending[i].keys);
	snprintf(heard + at, sizeof(heard) - at, "%s ",
	         in->n_pending          ? ""
	         : in->pending_left_out ? "?"
	                                : "-");
	pthread_mutex_unlock(&lock);
	__real_ctl_receipt(a, in);
}

static bool has_heard(struct pair *p, void *arg)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = !strcmp(heard, arg);
	pthread_mutex_unlock(&lock);
	return is;
}

static void assert_heard(struct pair *p, const char *all)
{
	if (!pair_until(p, has_heard, (void *)all))
		fail_msg("expected receipts \"%s\", there were \"%s\"", all, heard);
}

static _Atomic bool cannot_ask;

int __real_dp_keys_pending(struct dp *dp, uint64_t until_ns, dp_keys_fn fn, void *arg);
int __wrap_dp_keys_pending(struct dp *dp, uint64_t until_ns, dp_keys_fn fn, void *arg);
int __wrap_dp_keys_pending(struct dp *dp, uint64_t until_ns, dp_keys_fn fn, void *arg)
{
	return cannot_ask ? -ENOMEM : __real_dp_keys_pending(dp, until_ns, fn, arg);
}

/* ---- the tenants ---- */

struct user {
	struct ros2_client *client;
	struct ros2_session *session;
	struct ros2_mount *mount;
	struct ros2_file *file;
};

struct stage {
	struct pair *p;
	struct user u[TENANTS];
};

static void ok(int rc, const struct ros2_err *err)
{
	if (rc < 0)
		fail_msg("%s", err->msg);
}

struct listing {
	struct pair *p;
	struct ros2_uid tenant;
	_Atomic bool done;
};

static void on_lease(void *arg, const struct dp_lease_info *l)
{
	struct listing *q = arg;

	if (!l)
		q->done = true;
}

static void list_leases(void *arg)
{
	struct listing *q = arg;

	assert_int_equal(dp_leases(q->p->agent->dp, &q->tenant, 16, on_lease, q), 0);
}

static bool is_listed(struct pair *p, void *arg)
{
	return ((struct listing *)arg)->done;
}

/* The engine is asked for one tenant's keys: with the domain that is the tenant's. */
static const struct fabric_pd *domain_of(struct pair *p, const char *tenant)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, tenant);
	struct listing q = {.p = p};

	assert_int_equal(ros2_uid_from_bytes(r->object->uid.data, r->object->uid.len, &q.tenant),
	                 0);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	atomic_store(&listed, NULL);
	pair_on_agent(p, list_leases, &q);
	assert_true(pair_until(p, is_listed, &q));
	assert_non_null(atomic_load(&listed));
	return atomic_load(&listed);
}

/* A session over the device, and one request, which makes the engine known to the reactor. */
static void user_open(struct stage *s, int i, const char *cert, const char *tenant)
{
	char agent[64], crt[512], key[512], ca[512], byte = 'x';
	struct ros2_client_opts o = {
		.agent = agent, .cert_path = crt, .key_path = key, .ca_path = ca};
	struct ros2_session_opts so = {.reconnect_ms = UINT32_MAX,
	                               .transport = ROS2_TRANSPORT_VERBS};
	struct ros2_err err = ROS2_ERR_INIT;
	struct user *u = &s->u[i];

	snprintf(agent, sizeof(agent), "127.0.0.1:%u", agent_tenant_port(s->p->agent));
	snprintf(ca, sizeof(ca), "%s", sf_path("controller/infra-bundle.pem"));
	snprintf(crt, sizeof(crt), "%s", sf_path("%s/tls.crt", cert));
	snprintf(key, sizeof(key), "%s", sf_path("%s/tls.key", cert));
	ok(ros2_connect(&o, &u->client, &err), &err);
	ok(ros2_session_open(u->client, &so, &u->session, &err), &err);
	ok(ros2_mount(u->session, "data", &u->mount, &err), &err);
	ok(ros2_open(u->mount, "file", ROS2_O_RDWR | ROS2_O_CREAT, 0644, &u->file, &err), &err);
	ok(ros2_pwrite(u->file, &byte, 1, 0, &err) == 1 ? 0 : -1, &err);
	atomic_store(&domain[i], domain_of(s->p, tenant));
}

static void over_memory(struct agent_opts *o)
{
	o->rdma_device = FABRIC_MEM_DEVICE;
	o->rdma_host = "127.0.0.1";
	o->reactors = 1; /* the engine says the same at each */
}

static bool in_force(struct pair *p, void *arg)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "beta");
	bool is = false;

	for (size_t i = 0; i < r->object->n_rollout; i++)
		is |= r->object->rollout[i]->applied_version == r->object->version;
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return is;
}

/* ros2ctl's context is the directory of root's certificate. */
static void make_context(void)
{
	char from[512];
	FILE *f = fopen(sf_path("root/trust-domain"), "w");

	assert_non_null(f);
	fputs(TD "\n", f);
	assert_int_equal(fclose(f), 0);
	snprintf(from, sizeof(from), "%s", sf_path("controller/infra-bundle.pem"));
	(void)!symlink(from, sf_path("root/infra-bundle.pem"));
}

static int setup(void **state)
{
	static struct stage s;

	slow_engine_init();
	slow_engine_ops.type = "mem";
	slow_engine_ops.keys = keys;
	slow_engine_ops.keys_ending = keys_ending;
	slow_engine_ops.forget_regions = forget_regions;
	dp_test_switches = (struct dp_test_switches){.extra_engine = &slow_engine_ops};
	pair_agent_opts = over_memory;
	cannot_ask = false;
	heard[0] = '\0';
	memset(&s, 0, sizeof(s));
	if (pair_setup_running((void **)&s.p) < 0)
		return -1;
	*state = &s;
	make_context();
	sf_apply(s.p->f, sf_tenant("beta", "1h", "10m", "dpu-0"));
	sf_cert("tenant", "beta", "tenant/beta/trainer");
	assert_true(pair_until(s.p, in_force, NULL));
	user_open(&s, A, "trainer", "alpha");
	user_open(&s, B, "beta", "beta");
	assert_ptr_not_equal(atomic_load(&domain[A]), atomic_load(&domain[B]));
	return 0;
}

static int teardown(void **state)
{
	struct stage *s = *state;
	void *p = s->p;

	for (int i = 0; i < TENANTS; i++) {
		atomic_store(&alive[i], 0);
		ros2_session_close(s->u[i].session);
		ros2_disconnect(s->u[i].client);
	}
	return pair_teardown(&p);
}

/* ---- the operator ---- */

struct said {
	int code;
	char out[16384], err[4096];
};

static void read_all(FILE *f, char *buf, size_t size)
{
	buf[fread(buf, 1, size - 1, f)] = '\0';
}

static void ctl(struct stage *s, const char *args, struct said *ret)
{
	char cmd[2048], errors[512];
	FILE *f;
	int rc;

	snprintf(errors, sizeof(errors), "%s", sf_path("ctl.err"));
	snprintf(cmd, sizeof(cmd), "exec '%s' --context '%s' --controller 127.0.0.1:%u %s 2>'%s'",
	         getenv("ROS2CTL"), sf_path("root"), s->p->f->ports.admin, args, errors);
	f = popen(cmd, "r");
	assert_non_null(f);
	read_all(f, ret->out, sizeof(ret->out));
	rc = pclose(f);
	assert_true(WIFEXITED(rc));
	ret->code = WEXITSTATUS(rc);
	f = fopen(errors, "r");
	assert_non_null(f);
	read_all(f, ret->err, sizeof(ret->err));
	fclose(f);
}

/* On a slow machine the receipt may come after the wait: then it is asked again, which is as
 * strict. */
static void ctl_draining(struct stage *s, const char *args, struct said *ret)
{
	for (int i = 0; i < 20; i++) {
		ctl(s, args, ret);
		if (strstr(ret->out, "draining"))
			return;
	}
	fail_msg("no receipt: %s%s", ret->out, ret->err);
}

static bool has_line(const char *text, const char *a, const char *b, const char *c)
{
	char line[512];

	for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
		if (strstr(line, a) && strstr(line, b) && strstr(line, c))
			return true;
	}
	return false;
}

static void revoke__of_an_agent_names_whose_keys_are_pending(void **state)
{
	struct stage *s = *state;
	const json_t *outcome, *v;
	struct said said;
	json_t *doc;

	atomic_store(&alive[A], 3);
	ctl_draining(s, "revoke agent/dpu-0 --wait 300ms", &said);
	assert_int_equal(said.code, 1);
	assert_true(has_line(said.out, "AGENT", "TENANT", "KEYS-PENDING"));
	assert_true(has_line(said.out, "dpu-0   alpha", "3", FABRIC_MEM_DEVICE));
	assert_null(strstr(said.out, "beta"));
	assert_non_null(strstr(said.err, "agent/dpu-0: its RDMA device has not ended keys of 1 "
	                                 "tenant:"));
	assert_non_null(strstr(said.err, "keys are pending at 1 agent:"));
	ctl_draining(s, "revoke agent/dpu-0 --wait 300ms -o json", &said);
	assert_int_equal(said.code, 1);
	doc = json_loads(said.out, 0, NULL);
	outcome = json_array_get(json_object_get(doc, "outcomes"), 0);
	assert_string_equal(json_string_value(json_object_get(outcome, "state")), "draining");
	v = json_object_get(outcome, "pending");
	assert_int_equal(json_array_size(v), 1);
	v = json_array_get(v, 0);
	assert_string_equal(json_string_value(json_object_get(v, "tenant")), "alpha");
	assert_int_equal(json_integer_value(json_object_get(v, "keys")), 3);
	assert_string_equal(json_string_value(json_object_get(v, "device")), FABRIC_MEM_DEVICE);
	assert_int_equal(strlen(json_string_value(json_object_get(v, "tenantUid"))), 32);
	json_decref(doc);
	/* The control of the name: as many keys of another. */
	atomic_store(&alive[A], 0);
	atomic_store(&alive[B], 3);
	ctl_draining(s, "revoke agent/dpu-0 --wait 300ms", &said);
	assert_true(has_line(said.out, "dpu-0   beta", "3", FABRIC_MEM_DEVICE));
	assert_null(strstr(said.out, "alpha"));
	/* The device has ended them: nothing is pending, and nothing is left to do. */
	atomic_store(&alive[B], 0);
	ctl(s, "revoke agent/dpu-0 --wait 20s", &said);
	assert_int_equal(said.code, 0);
	assert_non_null(strstr(said.out, "confirmed"));
	assert_null(strstr(said.out, "KEYS-PENDING"));
	assert_string_equal(said.err, "");
	pair_check(s->p, "in the end");
}

struct revoking {
	struct pair *p;
	pthread_t thread;
	Ros2__V1__RevokeReply *reply;
	int rc;
	struct ros2_err err;
};

static void *revoke_main(void *arg)
{
	struct revoking *v = arg;

	v->rc = sf_revoke(v->p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-0", 60000,
	                  &v->reply, &v->err);
	return NULL;
}

static void revoke__that_waits_is_told_each_change_of_what_is_pending_or_the_end(void **state)
{
	struct stage *s = *state;
	struct revoking v = {.p = s->p};

	atomic_store(&alive[A], 3);
	assert_int_equal(pthread_create(&v.thread, NULL, revoke_main, &v), 0);
	assert_heard(s->p, "3 ");
	atomic_store(&alive[A], 2);
	assert_heard(s->p, "3 2 ");
	atomic_store(&alive[B], 7);
	assert_heard(s->p, "3 2 7+2 ");
	atomic_store(&alive[A], 0);
	assert_heard(s->p, "3 2 7+2 7 ");
	atomic_store(&alive[B], 0);
	assert_heard(s->p, "3 2 7+2 7 - ");
	pthread_join(v.thread, NULL);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.reply->n_outcomes, 1);
	assert_int_equal(v.reply->outcomes[0]->state,
	                 ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED);
	assert_int_equal(v.reply->outcomes[0]->n_pending, 0);
	assert_int_equal(v.reply->outcomes[0]->pending_left_out, 0);
	ros2__v1__revoke_reply__free_unpacked(v.reply, NULL);
	/* An agent that ends while keys are pending. */
	atomic_store(&alive[A], 4);
	assert_int_equal(pthread_create(&v.thread, NULL, revoke_main, &v), 0);
	assert_heard(s->p, "3 2 7+2 7 - 4 ");
	pair_agent_stop(s->p);
	sf_stop(s->p->f);
	pthread_join(v.thread, NULL);
	assert_int_not_equal(v.rc, 0);
	sf_start(s->p->f);
	pair_check(s->p, "in the end");
}

/* Without the list nothing looks better than it is; with memory it comes. */
static void revoke__without_memory_for_the_list_says_that_somebodys_are_pending(void **state)
{
	struct stage *s = *state;
	struct said said;
	bool some, listed_some;

	cannot_ask = true;
	atomic_store(&alive[A], 3);
	ctl_draining(s, "revoke agent/dpu-0 --wait 300ms", &said);
	assert_int_equal(said.code, 1);
	assert_null(strstr(said.out, "alpha"));
	assert_non_null(strstr(said.err, "keys of 1 tenant (not all are listed):"));
	pthread_mutex_lock(&lock);
	some = strchr(heard, '?');
	listed_some = strchr(heard, '3');
	pthread_mutex_unlock(&lock);
	assert_true(some && !listed_some);
	cannot_ask = false;
	ctl_draining(s, "revoke agent/dpu-0 --wait 300ms", &said);
	assert_true(has_line(said.out, "dpu-0   alpha", "3", FABRIC_MEM_DEVICE));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(revoke__of_an_agent_names_whose_keys_are_pending),
		T(revoke__that_waits_is_told_each_change_of_what_is_pending_or_the_end),
		T(revoke__without_memory_for_the_list_says_that_somebodys_are_pending),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of libros2 over real gRPC with mTLS, against the fake agent behind a real server. */
#include "common/fsx.h"
#include "common/pki.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/client/rig.h"
#include "tests/rpc/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define AGENT_ID "spiffe://test.example/agent/dpu-0"

struct net {
	struct fake_agent *agent;
	struct loop *loop;
	struct rpc_server *server;
	char target[64];
	uint16_t port;
};

static void serve(struct net *n, const char *cert)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server_opts o = {
		.name = "agent", .loop = n->loop, .client_ca_path = fx_path("ca.crt")};
	struct rpc_handler rows[32];
	char crt[32], key[32], listen[64];

	snprintf(crt, sizeof(crt), "%s.crt", cert);
	snprintf(key, sizeof(key), "%s.key", cert);
	snprintf(listen, sizeof(listen), "127.0.0.1:%u", n->port);
	o.cert_path = fx_path(crt);
	o.key_path = fx_path(key);
	o.listen = listen;
	for (size_t i = 0; i < ros2_v1_tenant_service.n_methods; i++)
		rows[i] = (struct rpc_handler){ros2_v1_tenant_service.methods[i], fake_agent_serve,
		                               NULL, n->agent};
	assert_int_equal(rpc_server_new(&o, &n->server, &err), 0);
	assert_int_equal(rpc_server_add(n->server, &ros2_v1_tenant_service, rows,
	                                ros2_v1_tenant_service.n_methods, &err),
	                 0);
	if (rpc_server_start(n->server, &err))
		fail_msg("%s", err.msg);
	n->port = rpc_server_port(n->server);
	snprintf(n->target, sizeof(n->target), "127.0.0.1:%u", n->port);
}

static void start(void *arg)
{
	serve(arg, "agent");
}

static void start_impostor(void *arg)
{
	serve(arg, "server");
}

static void stop(void *arg)
{
	struct net *n = arg;

	rpc_server_free(n->server);
	n->server = NULL;
}

static int net_setup(void **state)
{
	struct loop_opts lo = {.name = "agent"};
	struct net *n = calloc(1, sizeof(*n));

	n->agent = fake_agent_new();
	fake_agent_file(n->agent, "f", 1u << 20);
	loop_new(&lo, &n->loop);
	loop_thread_start(n->loop);
	*state = n;
	return 0;
}

static int net_teardown(void **state)
{
	struct net *n = *state;

	loop_call(n->loop, stop, n);
	loop_stop(n->loop);
	loop_thread_join(n->loop);
	loop_free(n->loop);
	fake_agent_free(n->agent);
	free(n);
	return 0;
}

static struct ros2_client_opts opts_for(const struct net *n)
{
	return (struct ros2_client_opts){.agent = n->target,
	                                 .cert_path = fx_path("client.crt"),
	                                 .key_path = fx_path("client.key"),
	                                 .ca_path = fx_path("ca.crt"),
	                                 .timeout_ms = 5000};
}

static void over_grpc__a_file_is_written_read_and_listed(void **state)
{
	struct net *n = *state;
	struct rig r = {.agent = n->agent};
	struct ros2_client_opts o;
	struct ros2_dirent e[4];
	uint8_t data[50000], back[50000];
	uint64_t cookie = 0;

	loop_call(n->loop, start, n);
	o = opts_for(n);
	rig_ok(&r, ros2_connect(&o, &r.client, &r.err));
	rig_ok(&r, ros2_session_open(r.client, NULL, &r.session, &r.err));
	rig_ok(&r, ros2_mount(r.session, "data", &r.mount, &r.err));
	rig_ok(&r, ros2_open(r.mount, "f", ROS2_O_RDWR, 0, &r.file, &r.err));
	rig_pattern(data, sizeof(data), 1);
	assert_int_equal(ros2_pwrite(r.file, data, sizeof(data), 77, &r.err), sizeof(data));
	assert_int_equal(ros2_pread(r.file, back, sizeof(back), 77, &r.err), sizeof(back));
	assert_memory_equal(data, back, sizeof(data));
	assert_int_equal(ros2_readdir(r.mount, "", &cookie, e, 4, &r.err), 1);
	assert_int_equal(ros2_open(r.mount, "none", ROS2_O_RDONLY, 0, &r.file, &r.err), -ENOENT);
	assert_int_equal(r.err.status, ROS2_NOT_FOUND);
	ros2_session_close(r.session);
	ros2_disconnect(r.client);
}

static void over_grpc__revocation_is_named(void **state)
{
	struct net *n = *state;
	struct rig r = {.agent = n->agent};
	struct ros2_client_opts o;
	uint8_t data[10] = "";

	loop_call(n->loop, start, n);
	o = opts_for(n);
	rig_ok(&r, ros2_connect(&o, &r.client, &r.err));
	rig_ok(&r, ros2_session_open(r.client, NULL, &r.session, &r.err));
	rig_ok(&r, ros2_mount(r.session, "data", &r.mount, &r.err));
	rig_ok(&r, ros2_open(r.mount, "f", ROS2_O_RDWR, 0, &r.file, &r.err));
	WITH_AGENT(n->agent, n->agent->session_status = n->agent->open_status = ROS2_REVOKED);
	fake_agent_reset_all(n->agent);
	assert_int_equal(ros2_pread(r.file, data, 10, 0, &r.err), -EKEYREVOKED);
	assert_int_equal(r.err.status, ROS2_REVOKED);
	ros2_session_close(r.session);
	ros2_disconnect(r.client);
}

static void over_grpc__an_agent_process_that_restarts_is_found_again(void **state)
{
	struct net *n = *state;
	struct rig r = {.agent = n->agent};
	struct ros2_client_opts o;
	uint8_t data[10000];

	loop_call(n->loop, start, n);
	o = opts_for(n);
	rig_ok(&r, ros2_connect(&o, &r.client, &r.err));
	rig_ok(&r, ros2_session_open(r.client, NULL, &r.session, &r.err));
	rig_ok(&r, ros2_mount(r.session, "data", &r.mount, &r.err));
	rig_ok(&r, ros2_open(r.mount, "f", ROS2_O_RDWR, 0, &r.file, &r.err));
	assert_int_equal(ros2_pread(r.file, data, sizeof(data), 0, &r.err), sizeof(data));
	loop_call(n->loop, stop, n);
	WITH_AGENT(n->agent,
	           for (int i = 0; i < FAKE_SESSIONS; i++) n->agent->sessions[i].live = false);
	fake_agent_reset_all(n->agent);
	loop_call(n->loop, start, n);
	assert_int_equal(ros2_pread(r.file, data, sizeof(data), 0, &r.err), sizeof(data));
	assert_int_equal(r.session->reconnects, 1);
	ros2_session_close(r.session);
	ros2_disconnect(r.client);
}

static void over_grpc__who_is_no_agent_is_not_believed(void **state)
{
	struct net *n = *state;
	struct ros2_client *c = NULL;
	struct ros2_session *s;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_client_opts o;

	loop_call(n->loop, start_impostor, n);
	o = opts_for(n);
	assert_int_equal(ros2_connect(&o, &c, &err), 0);
	assert_true(ros2_session_open(c, NULL, &s, &err) < 0);
	assert_int_equal(n->agent->n_sessions_opened, 0);
	ros2_disconnect(c);
}

/* The agent believes tenants of second-ca only, from now on. */
static void trust_second_ca(struct net *n)
{
	const struct pki_ca_opts o = {.common_name = "second-ca",
	                              .trust_domain = "test.example",
	                              .cert_path = fx_path("second-ca.crt"),
	                              .key_path = fx_path("second-ca.key"),
	                              .lifetime_s = 3600};
	struct pki_trust *t = NULL;
	AUTO_FREE void *pem = NULL;
	size_t len;

	assert_int_equal(pki_key_create(o.key_path, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
	assert_int_equal(fsx_read_file(o.cert_path, 65536, &pem, &len, NULL), 0);
	assert_int_equal(pki_trust_new(pem, len, &t, NULL), 0);
	assert_true(rpc_server_set_trust(n->server, t));
	pki_trust_unref(t);
}

/* Its connection was made with the one before, and stands. */
static void over_grpc__a_new_certificate_is_used_where_the_old_one_is_refused(void **state)
{
	struct net *n = *state;
	struct rig r = {.agent = n->agent};
	struct ros2_client_opts o;
	struct ros2_session *s;

	loop_call(n->loop, start, n);
	fx_issue("ca", "renewed", CLIENT_ID, 3600);
	o = opts_for(n);
	o.cert_path = fx_path("renewed.crt");
	o.key_path = fx_path("renewed.key");
	rig_ok(&r, ros2_connect(&o, &r.client, &r.err));
	rig_ok(&r, ros2_session_open(r.client, NULL, &s, &r.err));
	ros2_session_close(s);
	trust_second_ca(n);
	assert_true(ros2_session_open(r.client, NULL, &s, &r.err) < 0);
	assert_int_equal(r.err.status, ROS2_UNAUTHENTICATED);
	fx_issue("second-ca", "renewed", CLIENT_ID, 3600);
	rig_ok(&r, ros2_session_open(r.client, NULL, &s, &r.err));
	ros2_session_close(s);
	ros2_disconnect(r.client);
}

/* One short life of a client; the first error, or 0. */
static int short_life(const struct net *n, struct ros2_err *err)
{
	const struct ros2_session_opts so = {.depth = 4, .reconnect_ms = 1000};
	struct ros2_client_opts o = opts_for(n);
	struct ros2_client *c;
	struct ros2_session *s;
	struct ros2_mount *m;
	struct ros2_file *f;
	struct ros2_stat st;
	char data[100];
	int rc = ros2_connect(&o, &c, err);

	if (rc)
		return rc;
	rc = ros2_session_open(c, &so, &s, err);
	if (!rc) {
		rc = ros2_mount(s, "data", &m, err);
		if (!rc)
			rc = ros2_open(m, "f", ROS2_O_RDWR, 0, &f, err);
		if (!rc)
			rc = ros2_fstat(f, &st, err);
		if (!rc)
			rc = (int)ros2_pread(f, data, sizeof(data), 0, err);
		ros2_session_close(s);
	}
	ros2_disconnect(c);
	return rc;
}

/* What the caller's own thread asks for, from the certificate files to the last call. */
static void over_grpc__without_memory_says_so_wherever_it_fails(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "sweeper"};
	struct net *n = *state;
	char was[16];

	loop_call(n->loop, start, n);
	pthread_getname_np(pthread_self(), was, sizeof(was));
	pthread_setname_np(pthread_self(), "sweeper");
	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc = short_life(n, &err);

		sweep_off();
		if (rc < 0) {
			assert_true(sweep_fired());
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(err.status, ROS2_BUSY);
			assert_non_null(strstr(err.msg, "memory"));
		}
		if (s.at % 8 == 1)
			assert_int_equal(short_life(n, &err), 100);
	}
	pthread_setname_np(pthread_self(), was);
	assert_true(s.points >= 20);
}

static void options__missing_or_wrong_files_are_named(void **state)
{
	struct net *n = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_client_opts o = opts_for(n);
	struct ros2_client *c;

	o.agent = "127.0.0.1:1";
	o.cert_path = "/nonexistent/tls.crt";
	assert_int_equal(ros2_connect(&o, &c, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "/nonexistent/tls.crt"));
	o.cert_path = NULL;
	assert_int_equal(ros2_connect(&o, &c, &err), -EINVAL);
}

static int group_setup(void **state)
{
	int rc = fx_group_setup(state);

	fx_issue("ca", "agent", AGENT_ID, 3600);
	return rc;
}

#define T(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(over_grpc__a_file_is_written_read_and_listed),
		T(over_grpc__revocation_is_named),
		T(over_grpc__an_agent_process_that_restarts_is_found_again),
		T(over_grpc__who_is_no_agent_is_not_believed),
		T(over_grpc__a_new_certificate_is_used_where_the_old_one_is_refused),
		T(over_grpc__without_memory_says_so_wherever_it_fails),
		T(options__missing_or_wrong_files_are_named),
	};

	return cmocka_run_group_tests(tests, group_setup, fx_group_teardown);
}

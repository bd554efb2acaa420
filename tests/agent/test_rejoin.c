/* SPDX-License-Identifier: Apache-2.0 */
/* An agent whose certificate has ended asks at the enrolment listener with the key there is: what
 * of the answer it takes. */
#include "agent/identity.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"

struct asking {
	struct loop *loop;
	struct rpc_server *server; /* of the world's controller's loop */
	struct enrol_opts o;
	struct enrol *enrol;
	struct ros2_err err;
	_Atomic bool done;
};

static ProtobufCBinaryData file_of(struct world *w, const char *name)
{
	ProtobufCBinaryData b = {0};
	char path[4200];

	testing_path(path, w->dir, name);
	assert_int_equal(fsx_read_file(path, 1 << 20, (void **)&b.data, &b.len, NULL), 0);
	return b;
}

/* A controller that has been superseded: it knows the agent and its key, and an older bundle. */
static void on_enrol(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__EnrolRequest *q = ros2_v1_enrol_enrol_in(msg);
	Ros2__V1__EnrolReply m = ROS2__V1__ENROL_REPLY__INIT;
	struct world *w = user;
	char key[4200], crt[4200], *pem;
	struct pki_issue_opts o = {.csr_pem = (const char *)q->csr_pem.data,
	                           .csr_len = q->csr_pem.len,
	                           .uri = "spiffe://ros2.test/agent/dpu-0",
	                           .issuer_cert_path = crt,
	                           .issuer_key_path = key,
	                           .lifetime_s = 3600};

	testing_path(key, w->dir, "infra.key");
	testing_path(crt, w->dir, "infra.crt");
	assert_int_equal(pki_issue(&o, &pem, NULL), 0);
	m.trust_domain = (char *)"ros2.test";
	m.agent_uid = (ProtobufCBinaryData){ROS2_UID_LEN, w->f.trust.agent_uid.b};
	m.cert_pem = (ProtobufCBinaryData){strlen(pem), (uint8_t *)pem};
	m.infra_bundle_pem = file_of(w, "infra2.crt");
	m.tenant_bundle_pem = file_of(w, "tenant2.crt");
	rpc_call_reply(call, &m.base);
	free(m.infra_bundle_pem.data);
	free(m.tenant_bundle_pem.data);
	free(pem);
}

static void listen_for_agents(struct world *w, struct asking *a)
{
	const struct rpc_handler row = {
		.method = &ros2_v1_enrol_enrol, .unary = on_enrol, .user = w};
	char crt[4200], key[4200];
	struct rpc_server_opts o = {.name = "enrol",
	                            .cert_path = crt,
	                            .key_path = key,
	                            .listen = "127.0.0.1:0",
	                            .loop = w->ctl_loop};

	testing_path(crt, w->dir, "ctl.crt");
	testing_path(key, w->dir, "ctl.key");
	assert_int_equal(rpc_server_new(&o, &a->server, NULL), 0);
	assert_int_equal(rpc_server_add(a->server, &ros2_v1_enrol_service, &row, 1, NULL), 0);
	assert_int_equal(rpc_server_start(a->server, NULL), 0);
}

static void on_done(void *arg, const struct ros2_err *err)
{
	struct asking *a = arg;

	if (err)
		a->err = *err;
	a->done = true;
}

static void ask(void *arg)
{
	struct asking *a = arg;

	assert_int_equal(enrol_start(&a->o, &a->enrol, &a->err), 0);
}

static void asked(void *arg)
{
	enrol_free(((struct asking *)arg)->enrol);
}

static void rejoin(struct world *w, struct asking *a)
{
	struct identity id = {.name = "dpu-0", .trust_domain = "ros2.test"};
	char dir[4200], address[64];

	testing_path(dir, w->dir, "state");
	snprintf(address, sizeof(address), "127.0.0.1:%u", rpc_server_port(a->server));
	id.agent_uid = w->f.trust.agent_uid;
	assert_int_equal(loop_new(&(struct loop_opts){.name = "agent"}, &a->loop), 0);
	assert_int_equal(loop_thread_start(a->loop), 0);
	a->o = (struct enrol_opts){.loop = a->loop,
	                           .dir = dir,
	                           .address = address,
	                           .again = &id,
	                           .done = on_done,
	                           .arg = a};
	loop_call(a->loop, ask, a);
	assert_true(AWAIT(a->done));
	loop_call(a->loop, asked, a);
	loop_stop(a->loop);
	loop_thread_join(a->loop);
	loop_free(a->loop);
}

static void free_server(void *arg)
{
	rpc_server_free(((struct asking *)arg)->server);
}

static void assert_same(struct world *w, const char *a, const char *b, bool same)
{
	ProtobufCBinaryData x = file_of(w, a), y = file_of(w, b);

	assert_int_equal(x.len == y.len && !memcmp(x.data, y.data, x.len), same);
	free(x.data);
	free(y.data);
}

/* Whom it believes only a stream says, behind the epoch. */
static void rejoin__brings_a_certificate_and_nobody_else_to_believe(void **state)
{
	static struct world w;
	struct asking a = {.err = ROS2_ERR_INIT};

	(void)state;
	world_start(&w);
	world_make_ca(w.dir, "tenant2");
	world_make_ca(w.dir, "infra2");
	listen_for_agents(&w, &a);
	rejoin(&w, &a);
	assert_string_equal(a.err.msg, "");
	assert_same(&w, "state/tls.crt", "agent.crt", false);
	assert_same(&w, "state/tenant-bundle.pem", "tenant.crt", true);
	assert_same(&w, "state/infra-bundle.pem", "infra.crt", true);
	loop_call(w.ctl_loop, free_server, &a);
	world_stop(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rejoin__brings_a_certificate_and_nobody_else_to_believe),
	};

	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While other tenants have all slots that the agent may pin for RDMA: what needs some is refused
 * by the name of the cap, and as something that passes: when some are free again, libros2 has what
 * it had, with nothing given up meanwhile. For files of an engine that lends, whatever their
 * session is over, and for connections over RDMA.
 */
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/client/direct.h"
#include "tests/verbs/peer.h"

#define SET (11ull << 20) /* VERBS_SLOTS: there is one */

/* The mem engine, under the name of one that lends. */
static struct engine_ops lender_ops;

static int lender_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	struct engine_config mem = {.name = c->name, .size_bytes = 1u << 20};

	return engine_mem_ops.create(&mem, ret, err);
}

static void put_engine(void *arg)
{
	static const struct nvmf_config k = {.transport = NVMF_RDMA,
	                                     .subsystem = "nqn.2026-11.test:sub"};
	struct dp_engine_config c = {.name = "far", .type = "lender", .nvmf = &k};
	struct fx *fx = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	if (dp_engine_put(fx->dp, &c, &err) < 0)
		fail_msg("%s", err.msg);
}

static int setup(void **state)
{
	lender_ops = engine_mem_ops;
	lender_ops.type = "lender";
	lender_ops.create = lender_create;
	dp_test_switches = (struct dp_test_switches){.extra_engine = &lender_ops};
	fx_transport = DP_TRANSPORT_TCP;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	fx_rdma_keep_ms = DP_RDMA_KEEP_NONE;
	fx_rdma_total_bytes = SET;
	direct_engine = "far";
	if (fx_setup(state) < 0)
		return -1;
	return loop_call(((struct fx *)*state)->loop, put_engine, *state);
}

/* ---- who has them ---- */

static struct ros2_uid other, others_grant;

static void other_tenant(struct fx *fx)
{
	other = ros2_uid_new();
	others_grant = ros2_uid_new();
	fx_tenant(fx, &other);
	assert_int_equal(fx_grant(fx, &others_grant, &other, UINT64_MAX), 0);
}

static bool takes_all(struct fx *fx, struct peer *p)
{
	enum dp_transport was = fx_transport;

	peer_device(fx, p);
	fx_transport = DP_TRANSPORT_VERBS;
	peer_session(p, &other, &others_grant);
	fx_transport = was;
	peer_ask(p);
	if (p->established)
		return true;
	peer_close(p);
	return false;
}

static uint32_t sets(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.sets;
}

/* ---- files ---- */

static struct dp_result open_file(struct raw *c)
{
	struct fx_args a = {.session = c->session, .to = "far", .path = "ns", .flags = 3};
	struct dp_result res = fx_do(c->fx, FX_MOUNT, &a);

	assert_int_equal(res.status, ROS2_OK);
	a.mount = res.mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	return fx_do(c->fx, FX_OPEN, &a);
}

static void over_tcp__a_file_that_finds_no_slots_is_refused_by_name(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct peer all;
	struct raw c;

	other_tenant(fx);
	assert_true(takes_all(fx, &all));
	raw_open(fx, &c);
	raw_connect(&c);
	res = open_file(&c);
	assert_int_equal(res.status, ROS2_BUSY);
	assert_non_null(strstr(res.words, "memory for RDMA of all tenants (--rdma-memory-total): "
	                                  "the limit is 1 sets"));
	peer_close(&all);
	assert_true(AWAIT(open_file(&c).status == ROS2_OK));
	raw_close(&c);
}

static void over_tcp__a_file_is_found_again_when_there_are_slots_again(void **state)
{
	struct fx *fx = *state;
	struct ros2_completion c;
	struct peer all;
	struct user u;

	other_tenant(fx);
	user_open(fx, &u);
	memset(u.buf, 0x55, 4096);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 4096, 0, &u.err), 4096);
	ok(&u, ros2_flush(u.file, &u.err));
	user_lose_session(&u);
	assert_true(AWAIT(takes_all(fx, &all)));
	/* Of each attempt. */
	u.control->base.timeout_ms = 50;
	memset(u.buf, 0, 4096);
	ok(&u, ros2_prep_read(u.file, u.buf, 4096, 0, 1, &u.err));
	ok(&u, ros2_submit(u.session, &u.err));
	if (ros2_wait(u.session, &c, 1, 1, 500, &u.err))
		fail_msg("%s %s", ros2_status_to_str(c.status), u.file->broken.msg);
	assert_int_equal(u.session->why.status, ROS2_BUSY);
	peer_close(&all);
	assert_int_equal(ros2_wait(u.session, &c, 1, 1, AWAIT_MS, &u.err), 1);
	assert_int_equal(c.status, ROS2_OK);
	assert_int_equal(u.buf[4095], 0x55);
	user_close(&u);
}

/* ---- connections ---- */

static enum ros2_transport is_over(const struct user *u)
{
	struct ros2_session_info info;

	ros2_session_info(u->session, &info);
	return info.transport;
}

/* Over tcp meanwhile, which needs none. */
static void connection__is_over_rdma_again_when_there_are_slots_again(void **state)
{
	struct fx *fx = *state;
	struct peer all;
	struct user u;

	other_tenant(fx);
	assert_true(takes_all(fx, &all));
	fx_transport = DP_TRANSPORT_VERBS;
	direct_engine = "ram";
	user_open_as(fx, &u, NULL);
	assert_int_equal(is_over(&u), ROS2_TRANSPORT_TCP);
	assert_int_equal(ros2_pwrite(u.file, u.buf, 4096, 0, &u.err), 4096);
	peer_close(&all);
	/* libros2's own. */
	assert_true(AWAIT(sets() == 1));
	user_lose_session(&u);
	assert_int_equal(ros2_pread(u.file, u.buf, 4096, 0, &u.err), 4096);
	assert_int_equal(is_over(&u), ROS2_TRANSPORT_VERBS);
	user_close(&u);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(over_tcp__a_file_that_finds_no_slots_is_refused_by_name),
		T(over_tcp__a_file_is_found_again_when_there_are_slots_again),
		T(connection__is_over_rdma_again_when_there_are_slots_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

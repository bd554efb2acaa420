/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that stops while its disk does not answer. It waits some seconds for that, not for as
 * long as it takes; what the disk answers then finds nothing that is gone.
 */
#include "common/fsx.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"

static const struct fsx_ops *real_io;
static _Atomic bool hold;
static _Atomic unsigned n_held;
static unsigned tenant_puts; /* before the disk answers; the data plane is gone by then */

static int held_fsync(int fd)
{
	char name[16] = "";

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (hold && !strcmp(name, "disk")) {
		n_held++;
		/* poll: until the agent has waited for it long enough */
		(void)AWAIT(!hold);
	}
	return real_io->fsync(fd);
}

/* The disk answers when the agent waits for nothing else any more. */
void __real_writer_free(struct writer *w);
void __wrap_writer_free(struct writer *w);
void __wrap_writer_free(struct writer *w)
{
	if (hold)
		tenant_puts = fake_dp_log.tenant_puts;
	hold = false;
	__real_writer_free(w);
}

struct registering {
	struct rpc_channel *c;
	struct ros2_uid session;
	enum ros2_status status;
};

static void *register_one(void *arg)
{
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	struct registering *r = arg;

	req.session_uid = (ProtobufCBinaryData){16, r->session.b};
	req.address = 0x1000;
	req.length = 4096;
	req.access = 3;
	r->status = world_call(r->c, &ros2_v1_tenant_register_region, &req.base, NULL, NULL);
	return NULL;
}

static void turn(void *arg)
{
}

/* Its record is with the disk when its tenant is revoked. */
static void stop__of_who_registers_a_region_waits_for_no_disk(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct registering r = {.status = ROS2_OK};
	struct fsx_ops io = *fsx_io;
	unsigned regions;
	pthread_t t;

	real_io = fsx_io;
	io.fsync = held_fsync;
	fsx_io = &io;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	r.c = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(r.c, &r.session), ROS2_OK);
	regions = fake_dp_log.regions;
	hold = true;
	assert_int_equal(pthread_create(&t, NULL, register_one, &r), 0);
	assert_true(AWAIT(fake_dp_log.regions == regions + 1));
	assert_true(AWAIT(n_held == 1));
	loop_call(w->loop, turn, NULL); /* the record is on its way */
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	assert_true(AWAIT(fake_dp_sessions() == 0));
	world_agent_stop(w);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_not_equal(r.status, ROS2_OK);
	rpc_channel_free(r.c);
	world_stop(w);
	free(w);
	fsx_io = real_io;
}

/* A document is with the disk. */
static void stop__with_a_document_that_is_not_on_disk_applies_it_nowhere(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	Ros2__V1__AgentObject *again[1];
	struct fsx_ops io = *fsx_io;
	unsigned puts;

	real_io = fsx_io;
	io.fsync = held_fsync;
	fsx_io = &io;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	world_wait_stored(w);
	puts = fake_dp_log.tenant_puts;
	n_held = 0;
	hold = true;
	again[0] = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 2);
	world_send(w, again, 1, false);
	/* What it takes away is gone at once. */
	assert_true(AWAIT(fake_dp_log.tenant_puts == puts + 1));
	assert_true(AWAIT(n_held > 0));
	loop_call(w->loop, turn, NULL);
	world_agent_stop(w);
	assert_int_equal(fake_dp_log.tenant_puts, tenant_puts);
	world_stop(w);
	free(w);
	fsx_io = real_io;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stop__of_who_registers_a_region_waits_for_no_disk),
		cmocka_unit_test(stop__with_a_document_that_is_not_on_disk_applies_it_nowhere),
	};

	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of what asks a target: each allocation of an authentication, and each allocation and
 * system call of a discovery, fails once and then again and again. Each ends well or with words,
 * leaves nothing, and works afterwards.
 */
#include "dataplane/dp_discover.h"
#include "dataplane/nvmf/auth.h"
#include "tests/nvmf/target.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"
#include <pthread.h>

/* negotiate, a challenge of the smallest group, reply. */
static int authenticate(struct ros2_err *err)
{
	const struct nvme_auth_secret key = {.key_len = 32, .transform = 1};
	const struct nvme_auth_opts o = {
		.host = &key, .hostnqn = "nqn.2026-11.test:host", .subnqn = "nqn.2026-11.test:sub"};
	uint8_t msg[NVME_AUTH_MESSAGE_MAX], challenge[16 + 32 + 256] = {1, 1};
	struct nvme_auth *a = NULL;
	size_t len;
	int r = nvme_auth_new(&o, &a, err);

	if (r < 0)
		return r;
	r = nvme_auth_build(a, msg, &len, err);
	assert_int_equal(r, 0);
	memcpy(challenge + 4, msg + 4, 2);
	challenge[6] = 32;
	challenge[8] = challenge[9] = challenge[11] = 1;
	memset(challenge + 48, 5, 256);
	r = nvme_auth_take(a, challenge, sizeof(challenge), err);
	if (r == 0)
		r = nvme_auth_build(a, msg, &len, err);
	else
		assert_int_not_equal(nvme_auth_step(a), NVME_AUTH_DONE);
	nvme_auth_free(a);
	return r;
}

static void nvme_auth__every_allocation_may_fail(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(authenticate(&err), 0);
	while (sweep_next(&s)) {
		int r;

		err = (struct ros2_err)ROS2_ERR_INIT;
		r = authenticate(&err);
		sweep_off();
		assert_true(r == 0 || (r == -ENOMEM && err.msg[0]));
		assert_true(r == 0 || sweep_fired());
	}
	assert_true(s.points >= 2);
	assert_int_equal(authenticate(&err), 0);
}

static int discover(const struct target *t, uint64_t timeout_ms, struct ros2_err *err)
{
	const struct dp_discover_opts o = {
		.address = "127.0.0.1", .port = target_port(t), .timeout_ms = timeout_ms};
	struct nvme_discovery *d = NULL;
	uint64_t generation;
	size_t n;
	int r = dp_discover(&o, &d, err);

	if (r == 0) {
		nvme_discovery_entries(d, &n, &generation);
		assert_int_equal(n, 6);
	}
	nvme_discovery_free(d);
	return r;
}

static void sweep_discovery(struct target *t, enum sweep_kind kind, int error, uint32_t most)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "asks", .most = most};
	unsigned fds = sweep_fds();
	struct ros2_err err;

	while (sweep_next(&s)) {
		int r;

		err = (struct ros2_err)ROS2_ERR_INIT;
		r = discover(t, 3000, &err);
		sweep_off();
		assert_true(r == 0 || (err.code == r && err.msg[0]));
		assert_true(r == 0 || sweep_fired());
	}
	assert_true(s.points >= 1);
	err = (struct ros2_err)ROS2_ERR_INIT;
	if (discover(t, 10000, &err) < 0)
		fail_msg("afterwards: %s", err.msg);
	/* The target has as many for each connection, for a moment. */
	assert_true(sweep_fds_back(fds));
}

static void dp_discover__every_call_may_fail(void **state)
{
	struct target *t = *state;

	sweep_discovery(t, SWEEP_ALLOC, ENOMEM, 0);
	sweep_discovery(t, SWEEP_FD, EMFILE, 0);
	sweep_discovery(t, SWEEP_CONNECT, ECONNREFUSED, 0);
	sweep_discovery(t, SWEEP_EPOLL_CTL, ENOMEM, 0);
	sweep_discovery(t, SWEEP_SEND, ECONNRESET, 0);
	sweep_discovery(t, SWEEP_SEND, SWEEP_SHORT, 40);
	sweep_discovery(t, SWEEP_RECV, ECONNRESET, 0);
	sweep_discovery(t, SWEEP_RECV, SWEEP_SHORT, 40);
	sweep_discovery(t, SWEEP_WAIT, EINTR, 40);
}

static int setup(void **state)
{
	const struct target_opts o = {.queue_depth = 32};
	struct target *t;

	if (target_new(&o, &t))
		return -1;
	for (int i = 0; i < 6; i++) {
		char nqn[64];
		const struct target_subsys_opts s = {.nqn = nqn};

		snprintf(nqn, sizeof(nqn), "nqn.2026-11.test:sub-%d", i);
		if (target_add_subsystem(t, &s))
			return -1;
	}
	/* The target's own thread keeps the program's name. */
	pthread_setname_np(pthread_self(), "asks");
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	target_free(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvme_auth__every_allocation_may_fail),
		cmocka_unit_test_setup_teardown(dp_discover__every_call_may_fail, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

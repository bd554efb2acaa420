/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An RDMA device is gone (pulled out, its driver loaded anew): the descriptors that told of its
 * events say so from then on, without end (POLLERR, as uverbs does it). Neither the loop nor a
 * reactor is kept awake by that. Turns are counted.
 */
#include "tests/verbs/fabric_mem.h"
#include "tests/verbs/turns.h"
#include <fcntl.h>
#include <unistd.h>

#define TURNS 16u

/* The end of a pipe that one writes to; its reader goes with the device. */
static int ends[2];
static _Atomic uint32_t asked_channels, asked_device;

int __wrap_fabric_channel_fd(const struct fabric_channel *c);
int __wrap_fabric_channel_fd(const struct fabric_channel *c)
{
	return ends[1];
}

int __wrap_fabric_dev_event_fd(const struct fabric_dev *d);
int __wrap_fabric_dev_event_fd(const struct fabric_dev *d)
{
	return ends[1];
}

uint32_t __real_fabric_channel_events(struct fabric_channel *c,
                                      void (*fn)(void *arg, struct fabric_set *s), void *arg);
uint32_t __wrap_fabric_channel_events(struct fabric_channel *c,
                                      void (*fn)(void *arg, struct fabric_set *s), void *arg);
uint32_t __wrap_fabric_channel_events(struct fabric_channel *c,
                                      void (*fn)(void *arg, struct fabric_set *s), void *arg)
{
	asked_channels++;
	return __real_fabric_channel_events(c, fn, arg);
}

uint32_t __real_fabric_dev_events(struct fabric_dev *d,
                                  void (*fn)(void *arg, const struct fabric_event *e), void *arg);
uint32_t __wrap_fabric_dev_events(struct fabric_dev *d,
                                  void (*fn)(void *arg, const struct fabric_event *e), void *arg);
uint32_t __wrap_fabric_dev_events(struct fabric_dev *d,
                                  void (*fn)(void *arg, const struct fabric_event *e), void *arg)
{
	asked_device++;
	return __real_fabric_dev_events(d, fn, arg);
}

static void device__that_is_gone_keeps_nobody_awake(void **state)
{
	struct fx *fx = *state;

	turns_hold(fx);
	close(ends[0]);
	ends[0] = -1;
	/* With each the loop has had a turn, too. */
	for (uint32_t i = 0; i < TURNS; i++)
		turns_step(fx);
	turns_go_on();
	assert_int_equal(asked_channels, TURNS_REACTORS);
	assert_int_equal(asked_device, 1);
}

static int setup(void **state)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0 ? -1 : fx_setup(state);
}

static int teardown(void **state)
{
	int rc = fx_teardown(state);

	close(ends[1]);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(device__that_is_gone_keeps_nobody_awake, setup,
	                                        teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

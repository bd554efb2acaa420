// SPDX-License-Identifier: Apache-2.0
/* Devices, what they report, domains and their caps, regions, slots: over the stub. */
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include "common/clock.h"
#include "common/util.h"
#include "tests/takers.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	stub_reset();
	world_open(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	world_close(*state);
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
	free(*state);
	return 0;
}

static int empty_setup(void **state)
{
	stub_reset();
	return 0;
}

static int empty_teardown(void **state)
{
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
	return 0;
}

static void fabric_dev__no_device_and_no_kernel_support_are_no_error(void **state)
{
	char names[2][FABRIC_NAME_MAX];
	uint32_t n = 9;

	stub_devices(0);
	assert_int_equal(fabric_list(names, 2, &n, NULL), 0);
	assert_int_equal(n, 0);
	stub_fail(STUB_get_device_list, 1, ENOSYS, false);
	n = 9;
	assert_int_equal(fabric_list(names, 2, &n, NULL), 0);
	assert_int_equal(n, 0);
	stub_fail(STUB_get_device_list, 1, ENOMEM, false);
	assert_int_equal(fabric_list(names, 2, &n, NULL), -ENOMEM);
	stub_devices(3);
	assert_int_equal(fabric_list(names, 2, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_string_equal(names[1], "stub1");
}

/* As on kernels before 5.13; where the kernel copies them nothing is asked for, for it costs a
 * system call at each registration. */
static void fabric_fork__keeps_pages_from_children_where_the_kernel_does_not(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	stub_forks(STUB_FORKS_UNNEEDED, EIO);
	assert_int_equal(fabric_fork_init(&err), 0);
	stub_forks(STUB_FORKS_ENABLED, EIO);
	assert_int_equal(fabric_fork_init(&err), 0);
	stub_forks(STUB_FORKS_DISABLED, 0);
	assert_int_equal(fabric_fork_init(&err), 0);
	assert_int_equal(stub_forks_now(), STUB_FORKS_ENABLED);
	stub_forks(STUB_FORKS_DISABLED, EINVAL);
	assert_int_equal(fabric_fork_init(&err), -EOPNOTSUPP);
	assert_int_equal(err.status, ROS2_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "RDMAV_FORK_SAFE"));
}

/* The thread that waits for a grace period. */
static void fabric_dev__of_software_takes_no_signals_of_the_program(void **state)
{
	struct fabric_dev *d;

	if (getenv("ROS2_EMULATED"))
		skip();
	stub_software(true);
	assert_int_equal(fabric_dev_open("stub0", &d, NULL), 0);
	assert_int_equal(takers_count(SIGTERM), 0);
	assert_int_equal(fabric_dev_close(d), 0);
}

static void fabric_dev__an_unknown_name_says_which_there_are(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fabric_dev *d;
	char name[200];

	stub_devices(2);
	assert_int_equal(fabric_dev_open("mlx5_7", &d, &err), -ENODEV);
	assert_non_null(strstr(err.msg, "stub0, stub1"));
	stub_devices(0);
	assert_int_equal(fabric_dev_open("mlx5_7", &d, &err), -ENODEV);
	assert_non_null(strstr(err.msg, "none"));
	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = 0;
	assert_int_equal(fabric_dev_open(name, &d, &err), -ENODEV);
	stub_devices(1);
	stub_fail(STUB_open_device, 1, EACCES, false);
	assert_int_equal(fabric_dev_open("stub0", &d, &err), -EACCES);
}

static void fabric_dev__tells_its_attributes_and_ports(void **state)
{
	struct world *w = *state;
	const struct fabric_dev_attr *a = fabric_dev_attr(w->dev);
	struct fabric_port p;

	assert_string_equal(a->name, "stub0");
	assert_string_equal(a->firmware, "stub 1.2");
	assert_int_equal(a->vendor_part_id, 42);
	assert_true(a->node_guid == 0x1122334455667788);
	assert_true(a->window_2b && !a->software);
	assert_int_equal(a->n_ports, 1);
	assert_int_equal(a->ports[0].n_gids, 2); /* the third place of the table is empty */
	assert_true(a->ports[0].gids[1].roce_v2 && !a->ports[0].gids[0].roce_v2);
	assert_int_equal(a->ports[0].mtu_bytes, 4096);
	stub_port(false);
	assert_int_equal(fabric_dev_port(w->dev, 1, &p, NULL), 0);
	assert_false(p.active);
	assert_int_equal(fabric_dev_port(w->dev, 0, &p, NULL), -EINVAL);
	assert_int_equal(fabric_dev_port(w->dev, 2, &p, NULL), -EINVAL);
	assert_int_equal(fabric_dev_close(w->dev), -EBUSY);
}

/* What a probe saw is believed of a device, and never of the kernel's. */
static void fabric_dev__peers_invalidate_where_that_was_seen_to_be_safe(void **state)
{
	for (int software = 0; software < 2; software++) {
		struct fabric_dev *d;

		stub_software(software);
		assert_int_equal(fabric_dev_open("stub0", &d, NULL), 0);
		assert_false(fabric_dev_peer_invalidates(d));
		fabric_dev_set_peer_invalidates(d, true);
		assert_int_equal(fabric_dev_peer_invalidates(d), !software);
		fabric_dev_set_peer_invalidates(d, false);
		assert_false(fabric_dev_peer_invalidates(d));
		assert_int_equal(fabric_dev_close(d), 0);
	}
	stub_software(false);
}

struct heard {
	struct fabric_event e[8];
	uint32_t n;
};

static void on_event(void *arg, const struct fabric_event *e)
{
	struct heard *h = arg;

	assert_non_null(e->words);
	h->e[h->n++] = *e;
}

static void fabric_dev__every_event_names_what_it_is_about(void **state)
{
	struct world *w = *state;
	uint32_t qpn = fabric_qp_number(w->qp[PEER]);
	struct pollfd p = {.fd = fabric_dev_event_fd(w->dev), .events = POLLIN};
	struct heard h = {0};

	assert_int_equal(poll(&p, 1, 0), 0);
	stub_event_port(false);
	stub_event_port(true);
	stub_event_qp(qpn);
	stub_event_cq_of(qpn);
	stub_event_other();
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(fabric_dev_events(w->dev, on_event, &h), 5);
	assert_int_equal(h.e[0].kind, FABRIC_EVENT_PORT_DOWN);
	assert_int_equal(h.e[0].port, 1);
	assert_int_equal(h.e[1].kind, FABRIC_EVENT_PORT_UP);
	assert_int_equal(h.e[2].kind, FABRIC_EVENT_QP_FAILED);
	assert_int_equal(h.e[2].set_cookie, PEER + 1);
	assert_ptr_equal(fabric_qp_find(w->set[PEER], h.e[2].qp_id), w->qp[PEER]);
	assert_null(fabric_qp_find(w->set[OURS], h.e[2].qp_id));
	assert_int_equal(h.e[3].kind, FABRIC_EVENT_CQ_FAILED);
	assert_int_equal(h.e[3].set_cookie, PEER + 1);
	assert_int_equal(h.e[4].kind, FABRIC_EVENT_OTHER);
	fabric_qp_failed(w->qp[PEER]);
	assert_int_equal(fabric_qp_state(w->qp[PEER]), FABRIC_QP_FAILED);
	assert_true(stub_qp_in_error(qpn));
	fabric_set_failed(w->set[PEER]);
	assert_int_equal(fabric_dev_events(w->dev, on_event, &h), 0);
}

static void fabric_dev__a_removed_device_can_be_taken_down(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 100);
	struct heard h = {0};
	struct receipts got = {0};
	uint32_t key;
	struct fabric_window *win = world_bind(w, &slot, FABRIC_READ, &key);

	stub_event_device();
	assert_false(fabric_dev_removed(w->dev));
	assert_int_equal(fabric_dev_events(w->dev, on_event, &h), 1);
	assert_int_equal(h.e[0].kind, FABRIC_EVENT_DEVICE_REMOVED);
	/* from now on it refuses everything, as a device that is gone does */
	stub_fail(STUB_modify_qp, 1, EIO, true);
	assert_true(fabric_dev_removed(w->dev));
	fabric_set_failed(w->set[OURS]);
	fabric_set_failed(w->set[PEER]);
	assert_int_equal(fabric_window_revoke(win, clock_boottime_ns(), on_receipt, &got), 0);
	assert_int_equal(got.n, 1);
}

static void fabric_pd__caps_hold_and_come_back(void **state)
{
	struct fabric_pd_opts caps = {
		.pinned_bytes_max = 3 * 4096, .regions_max = 2, .windows_max = 1, .qps_max = 1};
	static uint8_t memory[4 * 4096];
	struct fabric_region_opts o = {.addr = memory, .length = 4096};
	struct world *w = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct fabric_region *r[3];
	struct fabric_pd_use use;
	struct fabric_pd *pd;

	caps.qps_max = 0;
	assert_int_equal(fabric_pd_new(w->dev, &caps, &pd, NULL), -EINVAL);
	caps.qps_max = 1;
	assert_int_equal(fabric_pd_new(w->dev, &caps, &pd, NULL), 0);
	assert_int_equal(fabric_region_new(pd, &o, &r[0], NULL), 0);
	assert_int_equal(fabric_region_new(pd, &o, &r[1], NULL), 0);
	assert_int_equal(fabric_region_new(pd, &o, &r[2], &err), -EDQUOT);
	assert_non_null(strstr(err.msg, "one region more than the 2"));
	assert_int_equal(fabric_region_free(r[1]), 0);
	o.length = 2 * 4096 + 1;
	assert_int_equal(fabric_region_new(pd, &o, &r[2], &err), -EDQUOT);
	assert_non_null(strstr(err.msg, "pinned bytes"));
	fabric_pd_use(pd, &use);
	assert_int_equal(use.regions, 1);
	assert_int_equal(use.pinned_bytes, 4096);
	stub_fail(STUB_reg_mr, 1, ENOMEM, false);
	o.length = 4096;
	assert_int_equal(fabric_region_new(pd, &o, &r[2], &err), -ENOMEM);
	assert_non_null(strstr(err.msg, "ulimit -l"));
	assert_int_equal(fabric_pd_free(pd), -EBUSY);
	assert_int_equal(fabric_region_free(r[0]), 0);
	fabric_pd_use(pd, &use);
	assert_int_equal(use.regions + use.pinned_bytes, 0);
	assert_int_equal(fabric_pd_free(pd), 0);
	assert_int_equal(fabric_pd_free(NULL), 0);
}

static void fabric_region__is_checked_and_never_remote(void **state)
{
	struct world *w = *state;
	static uint8_t memory[4096];
	struct fabric_region *r;

	assert_int_equal(fabric_region_new(w->pd[OURS],
	                                   &(struct fabric_region_opts){.addr = memory}, &r, NULL),
	                 -EINVAL);
	assert_int_equal(
		fabric_region_new(w->pd[OURS], &(struct fabric_region_opts){.length = 1}, &r, NULL),
		-EINVAL);
	assert_int_equal(fabric_region_new(
				 w->pd[OURS],
				 &(struct fabric_region_opts){.addr = memory, .length = UINT64_MAX},
				 &r, NULL),
	                 -EINVAL);
	assert_int_equal(fabric_region_new(
				 w->pd[OURS],
				 &(struct fabric_region_opts){.addr = memory, .length = 1ull << 41},
				 &r, NULL),
	                 -EINVAL);
	assert_int_equal(fabric_region_new(w->pd[OURS],
	                                   &(struct fabric_region_opts){.addr = memory,
	                                                                .length = 4096,
	                                                                .bindable = true},
	                                   &r, NULL),
	                 0);
	assert_ptr_equal(fabric_region_mem(r), memory);
	assert_int_equal(fabric_region_base(r), (uintptr_t)memory);
	assert_int_equal(fabric_region_length(r), 4096);
	/* the device says no (a window is still bound): nothing happened, and again works */
	stub_fail(STUB_dereg_mr, 1, EINVAL, false);
	assert_int_equal(fabric_region_free(r), -EBUSY);
	assert_int_equal(fabric_region_free(r), 0);
	assert_int_equal(fabric_region_free(NULL), 0);
}

static void fabric_region__is_busy_while_a_window_is_bound_over_it(void **state)
{
	struct world *w = *state;
	static uint8_t memory[4096];
	struct fabric_region *r;
	struct receipts got = {0};
	struct fabric_window *win;
	struct fabric_completion c;
	uint32_t key;

	assert_int_equal(fabric_region_new(w->pd[OURS],
	                                   &(struct fabric_region_opts){.addr = memory,
	                                                                .length = 4096,
	                                                                .bindable = true},
	                                   &r, NULL),
	                 0);
	assert_int_equal(
		fabric_window_bind(
			w->qp[OURS],
			&(struct fabric_bind){.region = r, .length = 10, .access = FABRIC_READ},
			&win, &key),
		0);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], 1), 0);
	assert_int_equal(fabric_region_free(r), -EBUSY);
	assert_int_equal(fabric_window_revoke(win, clock_boottime_ns(), on_receipt, &got), 0);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], 1), 0);
	(void)world_poll(w, OURS, &c);
	assert_int_equal(got.n, 1);
	assert_int_equal(fabric_region_free(r), 0);
}

static void fabric_region__dma_buf_is_for_devices_that_have_it(void **state)
{
	struct world *w = *state;
	struct fabric_region_opts o = {.dmabuf = true,
	                               .dmabuf_fd = 3,
	                               .dmabuf_offset = 4096,
	                               .length = 8192,
	                               .bindable = true};
	struct ros2_err err = ROS2_ERR_INIT;
	struct fabric_region *r;

	stub_fail(STUB_reg_dmabuf_mr, 1, EOPNOTSUPP, false);
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), -EOPNOTSUPP);
	assert_string_equal(err.msg, "dma-buf: not supported by stub0");
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), 0);
	assert_null(fabric_region_mem(r));
	assert_int_equal(fabric_region_base(r), 0);
	assert_int_equal(fabric_region_free(r), 0);
	/* Addresses as the caller counts them: a number that no processor follows. */
	o.addr = (void *)(uintptr_t)0x7f0000001000;
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), 0);
	assert_null(fabric_region_mem(r));
	assert_int_equal(fabric_region_base(r), 0x7f0000001000);
	assert_int_equal(fabric_region_free(r), 0);
	o.dmabuf_offset = UINT64_MAX;
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), -EINVAL);
	o.dmabuf_offset = 0;
	o.addr = (void *)UINTPTR_MAX;
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), -EINVAL);
}

/* What it is registered for are windows: no peer reaches it without. */
static void fabric_region__dma_buf_without_windows_is_not_supported(void **state)
{
	struct world *w = *state;
	struct fabric_region_opts o = {
		.dmabuf = true, .dmabuf_fd = 3, .length = 8192, .bindable = true};
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t before = stub_alive();
	struct fabric_region *r;

	stub_dmabuf_as_linux(true);
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), -EOPNOTSUPP);
	assert_string_equal(err.msg, "windows over a dma-buf: not supported by stub0");
	assert_int_equal(stub_alive(), before);
	/* Without the flag it says what else is wrong. */
	stub_fail(STUB_reg_dmabuf_mr, 2, EINVAL, false);
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), -EINVAL);
	assert_int_equal(stub_alive(), before);
	o.bindable = false;
	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &r, &err), 0);
	assert_int_equal(fabric_region_free(r), 0);
}

/* Of one vector, all would be woken by one interrupt. */
static void fabric_channel__of_several_each_has_another_interrupt(void **state)
{
	struct world *w = *state;
	struct fabric_set_opts o = world_set();
	struct fabric_channel *c[STUB_VECTORS + 1];
	struct fabric_set *s[STUB_VECTORS + 1];
	uint32_t before = stub_cq_vectors();

	/* Both sets of the fixture are of one channel. */
	assert_int_equal(__builtin_popcount(before), 1);
	o.slots[2] = 0;
	for (uint32_t i = 0; i <= STUB_VECTORS; i++) {
		assert_int_equal(fabric_channel_new(w->dev, &c[i], NULL), 0);
		assert_int_equal(fabric_set_new(w->pd[OURS], c[i], &o, &s[i], NULL), 0);
		assert_int_equal(__builtin_popcount(stub_cq_vectors()), MIN(2 + i, STUB_VECTORS));
	}
	for (uint32_t i = 0; i <= STUB_VECTORS; i++) {
		assert_int_equal(fabric_set_free(s[i]), 0);
		fabric_channel_free(c[i]);
	}
}

static void fabric_dev__without_windows_says_so(void **state)
{
	struct world w = {0};
	struct fabric_qp_opts o;
	struct fabric_qp *qp;

	stub_windows(false);
	assert_int_equal(world_sets(&w), 0);
	o = world_qp(&w, OURS);
	assert_int_equal(fabric_qp_new(w.set[OURS], &o, &qp, &w.err), -EOPNOTSUPP);
	assert_string_equal(w.err.msg, "memory windows of type 2B: not supported by stub0");
	world_close(&w);
}

static void fabric_slot__sizes_bounds_and_exhaustion(void **state)
{
	struct world *w = *state;
	struct fabric_slot s[32], one;
	uint32_t n = 0;

	one = world_slot(w, OURS, 16385);
	assert_int_equal(one.size_bytes, 128 << 10);
	assert_int_equal((uintptr_t)one.mem % 4096, 0);
	assert_int_equal(fabric_region_length(one.region), one.size_bytes);
	assert_int_equal(fabric_region_base(one.region), (uintptr_t)one.mem);
	while (fabric_slot_take(w->set[OURS], 1 << 20, &s[n]))
		n++;
	assert_int_equal(n, 4);
	assert_false(fabric_slot_take(w->set[OURS], (1 << 20) + 1, &s[n]));
	assert_true(fabric_slot_give(w->set[OURS], &s[0]));
	assert_true(fabric_slot_take(w->set[OURS], 1 << 20, &s[0]));
	/* small ones fall back to larger ones */
	while (fabric_slot_take(w->set[OURS], 1, &s[n]))
		n++;
	assert_int_equal(n, 4 + 3 + 12); /* four small ones wait for the fixture's receives */
}

static void fabric_set__options_are_checked(void **state)
{
	struct world *w = *state;
	struct fabric_set_opts o;
	struct fabric_set *s;

#define NOT_MADE(code, ...)                                                                        \
	o = world_set();                                                                           \
	__VA_ARGS__;                                                                               \
	assert_int_equal(fabric_set_new(w->pd[OURS], w->chan, &o, &s, NULL), code)
	NOT_MADE(-EINVAL, o.cq_depth = 0);
	NOT_MADE(-EINVAL, o.cq_depth = UINT32_MAX);
	NOT_MADE(-EINVAL, o.qps_max = 0);
	NOT_MADE(-EINVAL, o.qps_max = 1025);
	NOT_MADE(-EINVAL, o.slots[0] = UINT32_MAX);
	NOT_MADE(-EDQUOT, o.slots[2] = 300);
	assert_int_equal(fabric_set_free(NULL), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define E(name) cmocka_unit_test_setup_teardown(name, empty_setup, empty_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		E(fabric_dev__no_device_and_no_kernel_support_are_no_error),
		E(fabric_fork__keeps_pages_from_children_where_the_kernel_does_not),
		E(fabric_dev__of_software_takes_no_signals_of_the_program),
		E(fabric_dev__an_unknown_name_says_which_there_are),
		T(fabric_dev__tells_its_attributes_and_ports),
		E(fabric_dev__peers_invalidate_where_that_was_seen_to_be_safe),
		T(fabric_dev__every_event_names_what_it_is_about),
		T(fabric_dev__a_removed_device_can_be_taken_down),
		T(fabric_pd__caps_hold_and_come_back),
		T(fabric_region__is_checked_and_never_remote),
		T(fabric_region__is_busy_while_a_window_is_bound_over_it),
		T(fabric_region__dma_buf_is_for_devices_that_have_it),
		T(fabric_region__dma_buf_without_windows_is_not_supported),
		T(fabric_channel__of_several_each_has_another_interrupt),
		E(fabric_dev__without_windows_says_so),
		T(fabric_slot__sizes_bounds_and_exhaustion),
		T(fabric_set__options_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

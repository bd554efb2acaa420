/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 as the owner of a window that somebody else invalidates on soft-RoCE, where nobody tells
 * it: what it does at the window's end. The second invalidation of a window stops that kernel, so
 * this runs in a guest of its own, and the control (the library ending it by LOCAL_INV, as on
 * hardware) is expected to end in its panic. Data plane, library and attacker are one process.
 */
#include "tests/attack/owner.h"
#include "tests/client/direct.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/fabric/fabric.h"
#include <errno.h>
#include <stdlib.h>

#define BLOCK 65536u

static unsigned lines;
static bool failed;

static void line(bool ok, const char *name, const char *seen)
{
	printf("%s %u - attack__owner__%s (%s)\n", ok ? "ok" : "not ok", ++lines, name, seen);
	fflush(stdout);
	failed = failed || !ok;
}

static bool io(struct user *u, uint8_t *mem)
{
	user_fill(mem, BLOCK, 7);
	if (ros2_pwrite(u->file, mem, BLOCK, 0, &u->err) != BLOCK)
		return false;
	memset(mem, 0, BLOCK);
	if (ros2_pread(u->file, mem, BLOCK, 0, &u->err) != BLOCK)
		return false;
	user_fill(mem + BLOCK, BLOCK, 7);
	return !memcmp(mem, mem + BLOCK, BLOCK);
}

/* A region that was used, whose window is then invalidated behind its owner's back. */
static struct ros2_region *attacked(struct user *u, uint8_t *mem)
{
	struct ros2_region *region = NULL;
	int r;

	ok(u, ros2_region_register(u->session, mem, 2 * BLOCK, ROS2_REGION_READ | ROS2_REGION_WRITE,
	                           &region, &u->err));
	line(io(u, mem) && region->window, "is_served", u->err.msg);
	r = owner_invalidate(fabric_window_key(region->window));
	line(r == 0 && fabric_window_state(region->window) == FABRIC_WINDOW_BOUND,
	     "is_not_told_that_its_window_was_invalidated", owner_end_str(r));
	return region;
}

static void attack(struct fx *fx)
{
	uint8_t *mem = aligned_alloc(4096, 2 * BLOCK);
	struct ros2_region *region;
	struct user u;

	user_open(fx, &u);
	region = attacked(&u, mem);
	printf("# the owner gives the region up\n");
	fflush(stdout);
	ros2_region_deregister(region);
	line(true, "gives_the_region_up_and_the_kernel_lives", "ended by dealloc");
	line(u.session->reconnects == 0, "keeps_its_connection", "");
	region = attacked(&u, mem);
	line(io(&u, mem) || io(&u, mem), "that_goes_on_reconnects_and_is_served", u.err.msg);
	line(u.session->reconnects > 0, "was_ended_for_it", "by name, at the agent");
	ros2_region_deregister(region);
	user_close(&u);
	free(mem);
}

int main(void)
{
	void *state = NULL;

	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = "rxe0";
	fx_rdma_host = "10.77.0.1";
#ifdef ROS2_CLIENT_TEST_SWITCHES
	client_test_switches.invalidates_windows = true;
#endif
	if (fx_setup(&state))
		return 1;
	attack(state);
	fx_teardown(&state);
#ifdef ROS2_CLIENT_TEST_SWITCHES
	line(false, "control",
	     "the second invalidation did not stop this kernel: nothing is shown");
#endif
	printf("1..%u\n", lines);
	return failed ? 1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Which controller gives an agent contact, and what tenants hear without any; and an agent that
 * ends while it writes down whom it obeys. */
#include "agent/grants_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"
#include <unistd.h>

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_start(w);
	world_agent_start(w);
	world_populate(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	return 0;
}

static enum ros2_status stat_handle(struct rpc_channel *c, struct ros2_uid *s, uint64_t h)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.handle = h;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, NULL);
}

static void agent__refuses_a_controller_of_an_older_epoch(void **state)
{
	struct world *w = *state;

	world_controller_stop(w);
	w->f.epoch.counter--;
	w->hellos = w->closed = w->beats = 0;
	world_controller_start(w);
	world_wait(w, &w->hellos, 2);
	world_wait(w, &w->closed, 2);
	assert_int_equal(w->beats, 0);
	world_controller_stop(w);
	w->f.epoch.counter += 2;
	world_controller_start(w);
	world_wait(w, &w->beats, 1);
}

static void tenant__is_denied_when_contact_is_lost(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c;
	Ros2__V1__AgentObject *o;
	struct ros2_uid s;

	fix_contact_limit = "1s";
	o = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 2);
	fix_contact_limit = "60s";
	world_send(w, &o, 1, false);
	world_wait(w, &w->acks, 2);
	c = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	w->silent = true;
	/* time: past the contact limit of a second */
	usleep(1500 * 1000);
	assert_int_equal(world_open_session(c, &s), ROS2_CONTACT_LOST);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_CONTACT_LOST);
	w->silent = false;
	assert_true(AWAIT(world_open_session(c, &s) == ROS2_OK));
	rpc_channel_free(c);
}

static void look_contact(void *arg)
{
	*(uint64_t *)arg = fake_dp_log.contact_ns;
}

/* A controller of before decision 0045 echoes the stamp of the hello in its Welcome, before what it
 * owes: a stream that is cut there, again and again, must give nothing. */
static void contact__is_not_given_by_a_stream_that_ends_after_its_welcome(void **state)
{
	struct world *w = *state;
	uint64_t contact[2];

	w->silent = true;
	for (int i = 0; i < 2; i++) {
		w->hellos = 0;
		world_cut(w);
		world_wait(w, &w->hellos, 1);
		/* A beat of this stream follows its Welcome. */
		w->beats = 0;
		world_wait(w, &w->beats, 1);
		loop_call(w->loop, look_contact, &contact[i]);
	}
	assert_true(contact[0] > 0);
	assert_true(contact[0] == contact[1]);
	w->silent = false;
	/* poll: the answer to a beat does */
	assert_true(
		AWAIT((loop_call(w->loop, look_contact, &contact[1]), contact[1] > contact[0])));
}

#define ASKED (CONTACT_SENT_MAX + 1)

struct asking {
	struct world *w;
	int echo;
	_Atomic unsigned answered;
};

static void on_grant(void *arg, const struct ros2_uid *grant, const struct ros2_err *err)
{
	((struct asking *)arg)->answered++;
}

/* Between a beat and its answer. */
static void ask_for_grants(void *arg)
{
	struct asking *k = arg;
	struct agent *a = k->w->agent;
	struct clock_stamp beat = contact_stamp(&a->contact, clock_boottime_ns());
	struct ros2_uid tenant = {{0}};

	for (unsigned i = 0; i < ASKED; i++) {
		tenant.b[0] = (uint8_t)(1 + i / GRANTS_PENDING_PER_TENANT);
		grants_take(a->grants, &tenant, FIX_ALPHA, "peer", on_grant, k);
	}
	k->echo = contact_echo(&a->contact, &beat, NULL);
}

/* However many sessions tenants ask for: their neighbours' rights hang on it. */
static void contact__counts_a_beat_behind_which_tenants_asked_for_much(void **state)
{
	struct world *w = *state;
	struct asking k = {.w = w};
	unsigned before = w->grant_requests;

	w->grant_status = ROS2_DENIED;
	loop_call(w->loop, ask_for_grants, &k);
	world_wait(w, &w->grant_requests, before + ASKED);
	assert_true(AWAIT(k.answered == ASKED));
	assert_int_equal(k.echo, 1);
}

/* ---- a disk that takes its time ---- */

static const struct fsx_ops *real_io;
static _Atomic bool hold; /* writes of the snapshot */
static _Atomic unsigned held;

static ssize_t held_write(int fd, const void *p, size_t n)
{
	char link[64], path[4200];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len > 0 ? len : 0] = '\0';
	if (hold && strstr(path, "snapshot")) {
		held++;
		/* poll: until the test lets it go on */
		(void)AWAIT(!hold);
	}
	return real_io->write(fd, p, n);
}

static void agent__ends_while_a_newer_epoch_is_written(void **state)
{
	struct world *w = *state;

	world_wait_stored(w);
	world_controller_stop(w);
	hold = true;
	w->f.epoch.counter++;
	world_controller_start(w);
	assert_true(AWAIT(held));
	/* As after STOP_WAIT_MS. */
	loop_stop(w->loop);
	loop_thread_join(w->loop);
	hold = false;
	agent_free(TAKE_PTR(w->agent));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(agent__refuses_a_controller_of_an_older_epoch),
		T(tenant__is_denied_when_contact_is_lost),
		T(contact__is_not_given_by_a_stream_that_ends_after_its_welcome),
		T(contact__counts_a_beat_behind_which_tenants_asked_for_much),
		T(agent__ends_while_a_newer_epoch_is_written),
	};
	struct fsx_ops io = *fsx_io;

	real_io = fsx_io;
	io.write = held_write;
	fsx_io = &io;
	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

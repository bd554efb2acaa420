/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all tenants' sessions over shared memory may have together: that it is a limit, that one
 * tenant cannot keep all of it, and that all comes back, however sessions end.
 */
#include "tests/dataplane/shm_raw.h"
#include "dataplane/dp_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define SESSION (WIRE_SHM_DATA_MIN + SHM_BASE) /* the least that one takes */
#define ALL     16u                            /* sessions fit, */
#define KEPT    (ALL / 4)                      /* so many only as a tenant's first */
#define OWN     (14 * SESSION)                 /* what one tenant may have */

struct tenant {
	struct ros2_uid uid, grant;
	struct ros2_uid sessions[ALL];
	uint32_t n;
};

static int setup(void **state)
{
	int rc;

	fx_shm_total_bytes = ALL * SESSION;
	fx_shm_tenant_bytes = OWN;
	rc = fx_setup(state);
	fx_shm_total_bytes = fx_shm_tenant_bytes = 0;
	((struct fx *)*state)->limits.sessions_max = 2 * ALL;
	fx_limits(*state);
	return rc;
}

static int teardown(void **state)
{
	int rc = fx_teardown(state);

	dp_test_switches = (struct dp_test_switches){0};
	return rc;
}

static void new_tenant(struct fx *fx, struct tenant *t)
{
	*t = (struct tenant){.uid = ros2_uid_new(), .grant = ros2_uid_new()};
	fx_tenant(fx, &t->uid);
	assert_int_equal(fx_grant(fx, &t->grant, &t->uid, UINT64_MAX), 0);
}

static struct dp_result open_one(struct fx *fx, struct tenant *t, uint64_t bytes)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = t->uid,
	                    .grant = t->grant,
	                    .a = UINT64_MAX,
	                    .shm_bytes = bytes};
	struct dp_result res = rs_try_open(fx, &a);

	if (res.status == ROS2_OK)
		t->sessions[t->n++] = a.session;
	return res;
}

static void close_one(struct fx *fx, struct tenant *t)
{
	struct fx_args a = {.session = t->sessions[--t->n]};

	(void)fx_do(fx, FX_CLOSE_SESSION, &a);
	assert_true(AWAIT(fx_do(fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
}

static void close_all(struct fx *fx, struct tenant *t)
{
	while (t->n)
		close_one(fx, t);
}

static uint64_t used(struct fx *fx)
{
	struct dp_shm shm = rs_shm(fx);

	assert_int_equal(shm.limit, ALL * SESSION);
	return shm.used;
}

/* As many as it gets. */
static struct dp_result open_all(struct fx *fx, struct tenant *t)
{
	struct dp_result res;

	do
		res = open_one(fx, t, 1);
	while (res.status == ROS2_OK && t->n < ALL);
	assert_int_equal(res.status, ROS2_LIMIT);
	return res;
}

/* ---- the limit ---- */

static void total__is_of_all_tenants_and_named_with_who_sets_it(void **state)
{
	struct tenant a, b;
	struct fx *fx = *state;
	struct dp_result res;

	new_tenant(fx, &a);
	new_tenant(fx, &b);
	assert_int_equal(open_one(fx, &a, 7 * SESSION - SHM_BASE).status, ROS2_OK);
	assert_int_equal(open_one(fx, &b, 4 * SESSION - SHM_BASE).status, ROS2_OK);
	assert_int_equal(used(fx), 11 * SESSION);
	/* One more of either, before the quarter begins that is kept. */
	res = open_one(fx, &a, 2 * SESSION - SHM_BASE);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "all tenants"));
	assert_non_null(strstr(res.words, "--shm-memory-total"));
	assert_non_null(strstr(res.words, "who runs the agent"));
	assert_int_equal(used(fx), 11 * SESSION);
	/* One that does not say how much takes what there is. */
	res = open_one(fx, &b, 0);
	assert_int_equal(res.status, ROS2_OK);
	assert_int_equal(res.session.shm_bytes, WIRE_SHM_DATA_MIN);
	assert_int_equal(open_one(fx, &b, 0).status, ROS2_LIMIT);
	close_all(fx, &a);
	assert_int_equal(used(fx), 5 * SESSION);
	close_all(fx, &b);
	assert_int_equal(used(fx), 0);
}

static void total__is_not_named_when_it_is_the_tenants_own_that_is_reached(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct tenant a;

	new_tenant(fx, &a);
	res = open_one(fx, &a, OWN);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "--shm-memory)"));
	assert_null(strstr(res.words, "--shm-memory-total"));
	/* Both are too small for it, and its own comes first. */
	res = open_one(fx, &a, ALL * SESSION);
	assert_non_null(strstr(res.words, "--shm-memory)"));
	assert_int_equal(used(fx), 0);
}

/* ---- close, then open ---- */

struct closing {
	struct fx *fx;
	const struct ros2_uid *session;
	struct dp_gone gone;
	bool waits;
	_Atomic bool is_gone, has_ended;
};

static void on_gone(struct dp_gone *w)
{
	container_of(w, struct closing, gone)->is_gone = true;
}

static void on_ended(void *arg, const struct dp_result *res)
{
	((struct closing *)arg)->has_ended = true;
}

static void close_on_loop(void *arg)
{
	struct closing *c = arg;

	dp_session_close(c->fx->dp, c->session, ROS2_CLOSED, on_ended, c);
	c->gone.fn = on_gone;
	c->waits = dp_session_await_gone(c->fx->dp, c->session, &c->gone);
}

/* Twenty times in the place of one; how often there was none. */
static unsigned close_and_open(struct fx *fx, bool until_gone)
{
	struct tenant a;
	unsigned refused = 0;

	fx->limits.sessions_max = 1;
	fx_limits(fx);
	new_tenant(fx, &a);
	for (int i = 0; i < 20; i++) {
		struct closing c = {.fx = fx};
		enum ros2_status st;

		assert_int_equal(open_one(fx, &a, 11 * SESSION - SHM_BASE).status, ROS2_OK);
		c.session = &a.sessions[--a.n];
		loop_call(fx->loop, close_on_loop, &c);
		assert_true(c.waits);
		assert_true(AWAIT(until_gone ? c.is_gone : c.has_ended));
		st = open_one(fx, &a, 11 * SESSION - SHM_BASE).status;
		if (st != ROS2_OK)
			assert_int_equal(st, ROS2_LIMIT);
		refused += st == ROS2_LIMIT;
		/* What waits lies here. */
		assert_true(AWAIT(c.is_gone));
		assert_true(c.has_ended);
		close_all(fx, &a);
	}
	return refused;
}

static void session__whose_end_was_awaited_has_left_its_place(void **state)
{
	assert_int_equal(close_and_open(*state, true), 0);
}

static void control__a_session_that_has_only_ended_is_in_its_place_still(void **state)
{
	assert_true(close_and_open(*state, false) > 0);
}

static void no_session__is_waited_for_in_vain(void **state)
{
	struct ros2_uid none = ros2_uid_new();
	struct closing c = {.fx = *state, .session = &none};

	loop_call(c.fx->loop, close_on_loop, &c);
	assert_false(c.waits);
	assert_true(AWAIT(c.has_ended));
	assert_false(c.is_gone);
}

/* ---- shares ---- */

static void others__get_their_first_whatever_one_holds(void **state)
{
	struct tenant greedy, others[KEPT + 1];
	struct fx *fx = *state;
	struct dp_result res;

	new_tenant(fx, &greedy);
	res = open_all(fx, &greedy);
	assert_non_null(strstr(res.words, "--shm-memory-total"));
	assert_int_equal(greedy.n, ALL - KEPT);
	for (uint32_t i = 0; i < KEPT; i++) {
		new_tenant(fx, &others[i]);
		assert_int_equal(open_one(fx, &others[i], 0).status, ROS2_OK);
		/* Its first, and no more. */
		assert_int_equal(open_one(fx, &others[i], 1).status, ROS2_LIMIT);
	}
	assert_int_equal(used(fx), ALL * SESSION);
	new_tenant(fx, &others[KEPT]);
	assert_int_equal(open_one(fx, &others[KEPT], 1).status, ROS2_LIMIT);
	/* What one gives back is a first for another, and not another for itself. */
	close_one(fx, &greedy);
	assert_int_equal(open_one(fx, &greedy, 1).status, ROS2_LIMIT);
	assert_int_equal(open_one(fx, &others[KEPT], 1).status, ROS2_OK);
	close_all(fx, &greedy);
	for (uint32_t i = 0; i <= KEPT; i++)
		close_all(fx, &others[i]);
	assert_int_equal(used(fx), 0);
}

static void control__without_the_share_one_tenant_takes_all(void **state)
{
	struct tenant greedy, accomplice, other;
	struct fx *fx = *state;

	dp_test_switches.no_shm_share = true;
	new_tenant(fx, &greedy);
	new_tenant(fx, &accomplice);
	new_tenant(fx, &other);
	assert_non_null(strstr(open_all(fx, &greedy).words, "--shm-memory)"));
	assert_int_equal(greedy.n, OWN / SESSION);
	assert_int_equal(open_one(fx, &accomplice, 2 * SESSION - SHM_BASE).status, ROS2_OK);
	assert_int_equal(used(fx), ALL * SESSION);
	assert_int_equal(open_one(fx, &other, 1).status, ROS2_LIMIT);
	close_all(fx, &greedy);
	close_all(fx, &accomplice);
}

/* ---- all of it comes back ---- */

static void leave_before_hello(struct shm_raw *t)
{
}

static void leave_after_welcome(struct shm_raw *t)
{
	rs_hello(t);
}

static void leave_before_mapped(struct shm_raw *t)
{
	rs_hello(t);
	rs_memory(t);
}

static void leave_while_it_is_sealed(struct shm_raw *t)
{
	leave_before_mapped(t);
	rs_mapped(t);
}

static void leave_at_work(struct shm_raw *t)
{
	struct wire_header h;

	rs_connect(t);
	h = raw_header(&t->c, WIRE_PING, 0, 0, 0);
	h.key = 0;
	rs_put(t, &h);
}

static void say_something_else(struct shm_raw *t)
{
	struct wire_header h = {.opcode = WIRE_PING};

	leave_before_mapped(t);
	raw_send(&t->c, &h, NULL, 0);
	rs_expect_end(t, ROS2_PROTOCOL, "MAPPED");
}

static void leave_a_hole(struct shm_raw *t)
{
	leave_before_mapped(t);
	assert_int_equal(
		fallocate(t->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SHM_BASE, 65536),
		0);
	rs_mapped(t);
	rs_expect_end(t, ROS2_PROTOCOL, "holes");
}

static void break_the_ring(struct shm_raw *t)
{
	rs_connect(t);
	t->written += WIRE_SHM_RING_ENTRIES + 1;
	rs_tell(t);
	rs_expect_end(t, ROS2_PROTOCOL, "more entries");
}

/* The tenant's end of it closes, its mapping stays, as when a program is killed that has given the
 * descriptor to another: the memory is there, and counts, until that goes, too. */
static void churn(struct fx *fx, const struct tenant *as, void (*how)(struct shm_raw *t))
{
	struct fx_args a;
	struct shm_raw t;

	rs_open_as(fx, &t, &as->uid, &as->grant, UINT64_MAX);
	a = (struct fx_args){.session = t.c.session};
	how(&t);
	raw_close(&t.c);
	if (how == leave_before_hello)
		(void)fx_do(fx, FX_CLOSE_SESSION, &a);
	assert_true(AWAIT(fx_do(fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
	if (t.map)
		assert_int_equal(used(fx), t.bytes);
	rs_close(&t);
	assert_true(AWAIT(used(fx) == 0));
	fx_forget_events(fx);
}

static void churn__leaves_nothing_taken(void **state)
{
	static void (*const all[])(struct shm_raw *
	                           t) = {leave_before_hello,  leave_after_welcome,
	                                 leave_before_mapped, leave_while_it_is_sealed,
	                                 leave_at_work,       say_something_else,
	                                 leave_a_hole,        break_the_ring};
	struct fx *fx = *state;
	struct tenant a;

	new_tenant(fx, &a);
	for (int i = 0; i < 10; i++)
		for (size_t k = 0; k < ARRAY_SIZE(all); k++)
			churn(fx, &a, all[k]);
	/* All that one may have is there. */
	(void)open_all(fx, &a);
	assert_int_equal(a.n, ALL - KEPT);
	close_all(fx, &a);
}

/* ---- ends that the kernel has no room to tell ---- */

struct crowd {
	struct fx *fx;
	struct shm_raw *leaves; /* meanwhile; NULL: nobody */
	bool overflowed, lost;
	int queued;
};

static void look_lost(void *arg)
{
	struct crowd *c = arg;

	c->lost = c->fx->dp->shm_kept.lost;
	assert_int_equal(ioctl(c->fx->dp->shm_kept.fd, FIONREAD, &c->queued), 0);
}

/* On the loop, so that nobody reads: others end until the kernel's queue is full, and then one that
 * counts. */
static void crowd(void *arg)
{
	struct crowd *c = arg;
	int fd = c->fx->dp->shm_kept.fd, queued = 0, before = -1;

	while (queued > before) {
		before = queued;
		for (int i = 0; i < 1000; i++) {
			int m = memfd_create("crowd", MFD_CLOEXEC);
			char path[32];

			snprintf(path, sizeof(path), "/proc/self/fd/%d", m);
			assert_true(inotify_add_watch(fd, path, IN_DELETE_SELF) > 0);
			close(m);
		}
		assert_int_equal(ioctl(fd, FIONREAD, &queued), 0);
	}
	c->overflowed = true;
	if (c->leaves)
		rs_close(c->leaves);
}

/* Two of one tenant, ended here and kept there; one is let go of while nothing can be told. */
static uint64_t lose_one(struct fx *fx, struct shm_raw *stays)
{
	struct shm_raw leaves;
	struct tenant a;
	struct crowd c = {.fx = fx, .leaves = &leaves};
	struct shm_raw *both[] = {&leaves, stays};

	new_tenant(fx, &a);
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		struct fx_args end;

		rs_open_as(fx, both[i], &a.uid, &a.grant, UINT64_MAX);
		rs_connect(both[i]);
		raw_close(&both[i]->c);
		end = (struct fx_args){.session = both[i]->c.session};
		assert_true(AWAIT(fx_do(fx, FX_CLOSE_SESSION, &end).status == ROS2_BAD_SESSION));
	}
	assert_int_equal(used(fx), leaves.bytes + stays->bytes);
	loop_call(fx->loop, crowd, &c);
	assert_true(c.overflowed);
	return leaves.bytes;
}

static void ends__that_were_not_told_are_found_and_nothing_else(void **state)
{
	struct fx *fx = *state;
	struct shm_raw stays;
	struct crowd again = {.fx = fx};

	(void)lose_one(fx, &stays);
	assert_true(AWAIT(used(fx) == stays.bytes));
	/* With nobody gone nothing is uncounted. */
	loop_call(fx->loop, crowd, &again);
	assert_true(AWAIT((loop_call(fx->loop, look_lost, &again), !again.lost)));
	assert_int_equal(used(fx), stays.bytes);
	rs_close(&stays);
	assert_true(AWAIT(used(fx) == 0));
}

static void control__ends_that_were_not_told_count_for_ever(void **state)
{
	struct fx *fx = *state;
	struct shm_raw stays;
	struct crowd c = {.fx = fx};
	uint64_t lost;

	dp_test_switches.ends_get_lost = true;
	lost = lose_one(fx, &stays);
	assert_true(AWAIT((loop_call(fx->loop, look_lost, &c), !c.queued)));
	/* This one is told. */
	rs_close(&stays);
	assert_true(AWAIT(used(fx) == lost));
	(void)fx_do(fx, FX_CLOSE_SESSION, &(struct fx_args){.session = stays.c.session});
	assert_int_equal(used(fx), lost);
}

static void revocation__of_a_tenant_gives_back_all_it_had(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct tenant a, b;

	new_tenant(fx, &a);
	new_tenant(fx, &b);
	assert_int_equal(open_one(fx, &b, 1).status, ROS2_OK);
	(void)open_all(fx, &a);
	fx_revoke(fx, DP_SCOPE_TENANT, &a.uid, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_true(AWAIT(used(fx) == SESSION));
	close_all(fx, &b);
	assert_int_equal(used(fx), 0);
}

/* ---- who gives the pages back ---- */

static _Atomic uint32_t unmapped_by_worker, unmapped_by_others;

int __real_munmap(void *p, size_t len);
int __wrap_munmap(void *p, size_t len);
int __wrap_munmap(void *p, size_t len)
{
	char name[16];

	/* As only a session's memory is long. */
	if (len == SHM_BYTES + SHM_BASE) {
		pthread_getname_np(pthread_self(), name, sizeof(name));
		(*(strcmp(name, "control") ? &unmapped_by_others : &unmapped_by_worker))++;
	}
	return __real_munmap(p, len);
}

static void memory__is_unmapped_by_a_worker(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct shm_raw t;
	struct tenant a;

	new_tenant(fx, &a);
	unmapped_by_worker = unmapped_by_others = 0;
	for (uint32_t i = 0; i < 4; i++) {
		rs_open_as(fx, &t, &a.uid, &a.grant, UINT64_MAX);
		rs_connect(&t);
		if (i % 2) /* Whatever became of its rights. */
			fx_revoke(fx, DP_SCOPE_SESSION, &t.c.session, &r);
		raw_close(&t.c);
		fx_ended(fx, &t.c.session);
		assert_true(AWAIT(unmapped_by_worker == i + 1));
		assert_int_equal(unmapped_by_others, i);
		/* The test's own. */
		rs_close(&t);
		assert_true(AWAIT(used(fx) == 0));
		assert_int_equal(unmapped_by_others, i + 1);
	}
}

static void end__of_the_data_plane_while_memory_is_unmapped_leaks_nothing(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t[2];
	struct tenant a;

	new_tenant(fx, &a);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		rs_open_as(fx, &t[i], &a.uid, &a.grant, UINT64_MAX);
		rs_connect(&t[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		rs_close(&t[i]);
	/* The teardown ends it. */
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(total__is_of_all_tenants_and_named_with_who_sets_it),
		T(total__is_not_named_when_it_is_the_tenants_own_that_is_reached),
		T(session__whose_end_was_awaited_has_left_its_place),
		T(control__a_session_that_has_only_ended_is_in_its_place_still),
		T(no_session__is_waited_for_in_vain),
		T(others__get_their_first_whatever_one_holds),
		T(control__without_the_share_one_tenant_takes_all),
		T(churn__leaves_nothing_taken),
		T(ends__that_were_not_told_are_found_and_nothing_else),
		T(control__ends_that_were_not_told_count_for_ever),
		T(revocation__of_a_tenant_gives_back_all_it_had),
		T(memory__is_unmapped_by_a_worker),
		T(end__of_the_data_plane_while_memory_is_unmapped_leaks_nothing),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

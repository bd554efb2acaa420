// SPDX-License-Identifier: Apache-2.0
/*
 * Swept faults: a whole life of everything, in which the 1st, 2nd, 3rd ... call of the libraries,
 * or allocation of ours, fails once and then for good; and ends in which the device refuses to
 * destroy. Nothing leaks, nothing is destroyed twice, nothing is done that a device would punish,
 * and the same life works afterwards.
 */
#include "dataplane/fabric/fabric_conn.h"
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include "tests/sweep/sweep.h"
#include "common/clock.h"
#include <arpa/inet.h>
#include <errno.h>

struct life {
	struct world w;
	struct fabric_cm *cm;
	struct fabric_listener *l;
	struct fabric_conn *asked, *accepted;
	struct fabric_qp *asker, *acceptor;
	struct receipts got;
	uint32_t up;
	int code;
};

static void on_conn(void *arg, const struct fabric_conn_event *e)
{
	struct life *l = arg;
	struct fabric_conn_opts ours = {.qp = world_qp(&l->w, OURS)},
				theirs = {.qp = world_qp(&l->w, PEER)};

	switch (e->kind) {
	case FABRIC_CONN_EVENT_REQUEST:
		l->accepted = e->conn;
		l->code = fabric_conn_accept(e->conn, l->w.set[PEER], &theirs, &l->acceptor,
		                             &l->w.err);
		break;
	case FABRIC_CONN_EVENT_RESOLVED:
		l->code = fabric_conn_ask(e->conn, l->w.set[OURS], &ours, &l->asker, &l->w.err);
		break;
	case FABRIC_CONN_EVENT_ESTABLISHED:
		l->up++;
		break;
	default:
		l->code = l->code ? l->code : e->code;
		break;
	}
}

static int connect_them(struct life *l)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int r = fabric_cm_new(&(struct fabric_cm_opts){0}, &l->cm, &l->w.err);

	if (r == 0)
		r = fabric_listen(l->cm, (struct sockaddr *)&at, 8, &l->l, &l->w.err);
	if (r < 0)
		return r;
	at.sin_port = htons(fabric_listener_port(l->l));
	r = fabric_connect(l->cm, NULL, (struct sockaddr *)&at, 1, &l->asked, &l->w.err);
	while (r == 0 && fabric_cm_events(l->cm, on_conn, l))
		;
	return r < 0 ? r : l->code;
}

static int move_bytes(struct life *l)
{
	static uint8_t memory[8192];
	struct fabric_region_opts ro = {.addr = memory, .length = sizeof(memory), .bindable = true};
	struct fabric_completion c[16];
	struct fabric_region *region = NULL;
	struct fabric_window *win;
	uint32_t key;
	int r = fabric_region_new(l->w.pd[OURS], &ro, &region, &l->w.err);

	if (r < 0)
		return r;
	r = fabric_window_bind(
		l->w.qp[OURS],
		&(struct fabric_bind){.region = region, .length = 100, .access = FABRIC_READ}, &win,
		&key);
	if (r == 0) {
		r = fabric_qp_flush(l->w.qp[OURS], 1);
		(void)fabric_set_poll(l->w.set[OURS], c, 16);
		(void)fabric_window_revoke(win, clock_boottime_ns(), on_receipt, &l->got);
		(void)fabric_qp_flush(l->w.qp[OURS], 1);
		(void)fabric_set_poll(l->w.set[OURS], c, 16);
		(void)fabric_set_tick(l->w.set[OURS], clock_boottime_ns() + NS_PER_S);
		/* whatever failed: the key is dead, and it has been said */
		assert_int_equal(l->got.n, 1);
	}
	assert_int_equal(fabric_region_free(region), 0);
	return r;
}

static int live(struct life *l)
{
	int r;

	*l = (struct life){0};
	r = world_sets(&l->w);
	if (r == 0)
		r = world_join(&l->w, 2);
	if (r == 0)
		r = move_bytes(l);
	return r == 0 ? connect_them(l) : r;
}

static void die(struct life *l)
{
	fabric_qp_free(l->asker);
	fabric_qp_free(l->acceptor);
	fabric_conn_free(l->asked);
	fabric_conn_free(l->accepted);
	fabric_listener_free(l->l);
	fabric_cm_free(l->cm);
	world_close(&l->w);
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
}

static void sweep_calls_of_the_libraries(bool for_good)
{
	uint32_t n = 1, told = 0;
	struct life l;

	for (;; n++) {
		int r;

		stub_reset();
		stub_fail_any(n, for_good);
		r = live(&l);
		told += r < 0;
		if (r < 0)
			assert_true(r == -ENOMEM || r == -EIO || r == -EOPNOTSUPP || r == -ENODEV ||
			            r == -ECONNREFUSED || r == -ECONNRESET || r == -EHOSTUNREACH ||
			            r == -ENOTCONN);
		if (stub_failures() == 0)
			break;
		die(&l);
	}
	stub_fail_any(0, false);
	assert_int_equal(l.up, 2);
	die(&l);
	/* most faults must be told; the others hit what could be done without */
	assert_true(n > 100 && told * 10 > n * 9);
}

static void fabric_sweep__a_call_of_the_libraries_fails_once(void **state)
{
	sweep_calls_of_the_libraries(false);
}

static void fabric_sweep__calls_of_the_libraries_fail_for_good(void **state)
{
	sweep_calls_of_the_libraries(true);
}

static void fabric_sweep__allocations_fail(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct life l;

	while (sweep_next(&s)) {
		int r;

		stub_reset();
		r = live(&l);
		sweep_off();
		if (!sweep_fired())
			assert_int_equal(r, 0);
		die(&l);
	}
	assert_true(s.points > 20);
}

/* Frees until the device lets go; how many times it did not. */
static uint32_t free_stubbornly(struct life *l)
{
	uint32_t refused = 0;

	fabric_qp_free(l->w.qp[OURS]);
	fabric_qp_free(l->w.qp[PEER]);
	for (int i = 0; i < SIDES; i++) {
		while (fabric_set_free(l->w.set[i]) != 0)
			refused++;
		l->w.set[i] = NULL;
		l->w.qp[i] = NULL;
		while (fabric_pd_free(l->w.pd[i]) != 0)
			refused++;
		l->w.pd[i] = NULL;
		assert_true(refused < 10);
	}
	return refused;
}

static void fabric_sweep__what_cannot_be_destroyed_is_kept_and_tried_again(void **state)
{
	static const enum stub_call kinds[] = {STUB_dealloc_mw, STUB_destroy_qp, STUB_dereg_mr,
	                                       STUB_destroy_cq, STUB_dealloc_pd};
	struct life l;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		uint32_t n = 1, fired;

		do {
			stub_reset();
			l = (struct life){0};
			assert_int_equal(world_sets(&l.w), 0);
			assert_int_equal(world_join(&l.w, 2), 0);
			stub_fail_any(0, false);
			stub_fail(kinds[k], n++, EBUSY, false);
			(void)free_stubbornly(&l);
			fired = stub_failures();
			world_close(&l.w);
			assert_null(stub_violation());
			assert_int_equal(stub_alive(), 0);
		} while (fired);
		assert_true(n > 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fabric_sweep__a_call_of_the_libraries_fails_once),
		cmocka_unit_test(fabric_sweep__calls_of_the_libraries_fail_for_good),
		cmocka_unit_test(fabric_sweep__allocations_fail),
		cmocka_unit_test(fabric_sweep__what_cannot_be_destroyed_is_kept_and_tried_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
